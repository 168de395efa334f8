// One step of AdamW under every strategy, against the float32 master copy and against float alone.
// Roof: copy bandwidth. Bytes per parameter, read plus written: pure 14, light and Kahan 18, plus and float32 states
// 22, master 28; plain float AdamW 28. Checking the gradient reads its two bytes once more.
#include "ashlar/precision/collage.hpp"

#include <Eigen/Core>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/scoreboard.hpp"

namespace ashlar::precision {
namespace {

template <class T>
std::vector<T> values(Index n, double deviation) {
  Rng rng(1);
  std::vector<T> x;
  x.reserve(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i)
    x.push_back(i < 4096 ? round_to<T>(static_cast<float>(deviation * rng.normal()))
                         : x[static_cast<std::size_t>(i % 4096)]);  // cheap to make, random enough
  return x;
}

/// Parameters in bfloat16 under a strategy.
auto step(Index n, Precision how, bool checked) {
  struct Data {
    std::vector<bfloat16> theta, gradient;
    AdamWState<bfloat16> state;
  };
  return [=] {
    auto data = std::make_shared<Data>();
    data->theta = values<bfloat16>(n, 0.1);
    data->gradient = values<bfloat16>(n, 1e-3);
    Rng rng(2);
    data->state = AdamWState<bfloat16>(how, data->theta, rng);
    const StepOptions options{.gradient_scale = 1, .check_finite = checked, .quality = nullptr};
    return [data, options] { adamw_step(data->theta, data->gradient, data->state, {}, options); };
  };
}

auto reference_step(Index n, Precision how) {
  struct Data {
    std::vector<bfloat16> theta, gradient;
    AdamWState<bfloat16> state;
  };
  return [=] {
    auto data = std::make_shared<Data>();
    data->theta = values<bfloat16>(n, 0.1);
    data->gradient = values<bfloat16>(n, 1e-3);
    data->state = AdamWState<bfloat16>(how, data->theta);
    return [data] { reference::adamw_step(data->theta, data->gradient, data->state); };
  };
}

/// What a user would write: AdamW in float with Eigen arrays, no bfloat16 anywhere.
auto eigen_step(Index n) {
  struct Data {
    Eigen::ArrayXf w, g, m, v;
    int t = 0;
  };
  return [=] {
    auto data = std::make_shared<Data>();
    const auto w = values<float>(n, 0.1), g = values<float>(n, 1e-3);
    data->w = Eigen::Map<const Eigen::ArrayXf>(w.data(), n);
    data->g = Eigen::Map<const Eigen::ArrayXf>(g.data(), n);
    data->m = data->v = Eigen::ArrayXf::Zero(n);
    return [data] {
      auto& [w_, g_, m_, v_, t] = *data;
      ++t;
      const float rate = static_cast<float>(1e-3 / (1 - std::pow(0.9, t)));
      const float root = static_cast<float>(std::sqrt(1 - std::pow(0.999, t)));
      m_ = 0.9f * m_ + 0.1f * g_;
      v_ = 0.999f * v_ + 0.001f * g_.square();
      w_ -= rate * m_ / (v_.sqrt() / root + 1e-8f) + 1e-5f * w_;
    };
  };
}

const bool registered = [] {
  struct Strategy {
    Precision how;
    const char* name;
    double bytes;
  };
  for (const Index millions : {1, 16})
    for (const int threads : {1, 2}) {
      const Index n = millions << 20;
      const auto count = static_cast<double>(n);
      const std::string size = message("P=", millions, "M threads=", threads);
      for (const auto& [how, name, bytes] :
           {Strategy{Precision::pure, "pure", 14}, Strategy{Precision::kahan, "kahan", 18},
            Strategy{Precision::stochastic, "stochastic", 14}, Strategy{Precision::collage_light, "light", 18},
            Strategy{Precision::collage_plus, "plus", 22}, Strategy{Precision::fp32_states, "fp32_states", 22},
            Strategy{Precision::fp32_master, "fp32_master", 28}}) {
        const std::string kernel = std::string("precision.collage.") + name;
        scoreboard::add({kernel, size, "ashlar", {.bytes = bytes * count}, threads}, step(n, how, false));
        if (how != Precision::fp32_master)
          scoreboard::add({kernel, size, "float32 master", {.bytes = 28 * count}, threads},
                          step(n, Precision::fp32_master, false));
        scoreboard::add({kernel, size, "float with Eigen", {.bytes = 28 * count}, threads}, eigen_step(n));
        if (millions == 1 && threads == 1 && how != Precision::stochastic)
          scoreboard::add({kernel, size, "reference", {.bytes = bytes * count}, threads}, reference_step(n, how));
      }
      scoreboard::add({"precision.collage.light_checked", size, "ashlar", {.bytes = 20 * count}, threads},
                      step(n, Precision::collage_light, true));
      scoreboard::add({"precision.collage.light_checked", size, "float32 master", {.bytes = 30 * count}, threads},
                      step(n, Precision::fp32_master, true));
    }
  // StepRounding alone: four bytes in, two out.
  const Index n = Index{16} << 20;
  const auto rounding = [=](auto run) {
    return [=] {
      auto from = std::make_shared<std::vector<float>>(values<float>(n, 1));
      auto to = std::make_shared<std::vector<bfloat16>>(static_cast<std::size_t>(n));
      return [from, to, run] { run(from->data(), to->data()); };
    };
  };
  const scoreboard::Work work{.bytes = 6.0 * static_cast<double>(n)};
  scoreboard::add({"precision.rounding.bfloat16", "N=16M", "ashlar", work},
                  rounding([=](const float* from, bfloat16* to) { simd::convert(from, to, n); }));
  scoreboard::add({"precision.rounding.bfloat16", "N=16M", "one by one", work},
                  rounding([=](const float* from, bfloat16* to) {
                    for (Index i = 0; i < n; ++i) to[i] = round_to<bfloat16>(from[i]);
                  }));
  scoreboard::add({"precision.rounding.bfloat16", "N=16M", "Eigen cast", work},
                  rounding([=](const float* from, bfloat16* to) {
                    Eigen::Map<Eigen::Array<bfloat16, Eigen::Dynamic, 1>>(to, n) =
                        Eigen::Map<const Eigen::ArrayXf>(from, n).cast<bfloat16>();
                  }));
  return true;
}();

}  // namespace
}  // namespace ashlar::precision
