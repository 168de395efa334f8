// One step of AdamW on bfloat16 parameters against the float32 master copy, and that against float alone. Collage in
// both roundings: "every_operation" rounds as the paper does, 16 times a parameter in light and 27 times in plus, which
// no longer hides behind memory on one AVX2 core; "stored_values" rounds what it stores. Roof: copy bandwidth. Bytes
// per parameter, read plus written: pure 14, light 18, plus 22, master and float AdamW 28.
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
auto step(Index n, Precision how, StepRounding rounding) {
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
    AdamWOptions options;
    options.rounding = rounding;
    return [data, options] {
      adamw_step(data->theta, data->gradient, data->state, options,
                 {.gradient_scale = 1, .check_finite = false, .quality = nullptr});
    };
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
    StepRounding rounding;
    const char* name;
    double bytes;
    int most_threads;
  };
  using enum Precision;
  using enum StepRounding;
  const Index n = Index{16} << 20;
  const auto count = static_cast<double>(n);
  for (const auto& [how, rounding, name, bytes, most_threads] :
       {Strategy{collage_light, every_operation, "light.every_operation", 18, 2},
        Strategy{collage_light, stored_values, "light.stored_values", 18, 2},
        Strategy{collage_plus, every_operation, "plus.every_operation", 22, 2},
        Strategy{collage_plus, stored_values, "plus.stored_values", 22, 2},
        Strategy{pure, every_operation, "pure.every_operation", 14, 1},
        Strategy{stochastic, every_operation, "stochastic.every_operation", 14, 1}})
    for (int threads = 1; threads <= most_threads; ++threads) {
      const std::string kernel = std::string("precision.collage.") + name, size = message("P=16M threads=", threads);
      scoreboard::add({kernel, size, "ashlar", {.bytes = bytes * count}, threads}, step(n, how, rounding));
      scoreboard::add({kernel, size, "float32 master", {.bytes = 28 * count}, threads},
                      step(n, fp32_master, every_operation));
    }
  scoreboard::add({"precision.collage.fp32_master", "P=16M threads=1", "ashlar", {.bytes = 28 * count}},
                  step(n, fp32_master, every_operation));
  scoreboard::add({"precision.collage.fp32_master", "P=16M threads=1", "float with Eigen", {.bytes = 28 * count}},
                  eigen_step(n));
  // Rounding alone: four bytes in, two out.
  const auto rounding = [=](auto run) {
    return [=] {
      auto from = std::make_shared<std::vector<float>>(values<float>(n, 1));
      auto to = std::make_shared<std::vector<bfloat16>>(static_cast<std::size_t>(n));
      return [from, to, run] { run(from->data(), to->data()); };
    };
  };
  const scoreboard::Work work{.bytes = 6 * count};
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
