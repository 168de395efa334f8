#include "ashlar/precision/collage.cuh"

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda.hpp"

namespace ashlar::precision {
namespace {

using test::DeviceArray;

std::vector<bfloat16> waves(Index n, double step, double range) {
  std::vector<bfloat16> x;
  for (Index i = 0; i < n; ++i) {
    const auto t = static_cast<double>(i);
    x.push_back(round_to<bfloat16>(static_cast<float>(std::sin(step * t) * std::exp2(-range * std::fmod(t, 1.7)))));
  }
  return x;
}

template <class T>
bool same_bits(const std::vector<T>& x, const T* wanted) {
  bool same = true;
  for (std::size_t i = 0; i < x.size(); ++i) same = same && bits_of(x[i]) == bits_of(wanted[i]);
  return same;
}

TEST_CASE("precision.collage: a step on the device gives the bits of the host") {
  const Index n = 5000;
  for (const Precision precision : {Precision::pure, Precision::kahan, Precision::stochastic, Precision::collage_light,
                                    Precision::collage_plus, Precision::fp32_states, Precision::fp32_master})
    for (const StepRounding rounding : {StepRounding::every_operation, StepRounding::stored_values}) {
      INFO("strategy " << static_cast<int>(precision) << ", rounding " << static_cast<int>(rounding));
      AdamWOptions options;
      options.rounding = rounding;
      auto theta = waves(n, 0.37, 10);
      Rng rng(5);
      AdamWState<bfloat16> wanted(precision, theta, rng);

      // The device holds what the host does.
      const auto copy = [](const auto& tensor) {
        using T = std::remove_cvref_t<decltype(*tensor.data())>;
        return DeviceArray<T>(std::vector<T>(tensor.data(), tensor.data() + tensor.size()));
      };
      const auto held = [&](auto& array, const auto& tensor) { return array.template view<1>({tensor.size()}); };
      DeviceArray<bfloat16> theta_(theta), moment = copy(wanted.moment), variance = copy(wanted.variance),
                                           residual = copy(wanted.residual),
                                           variance_residual = copy(wanted.variance_residual);
      DeviceArray<float> moment32 = copy(wanted.moment32), variance32 = copy(wanted.variance32),
                         master = copy(wanted.master);
      DeviceAdamWState<bfloat16> state;
      state.precision = precision;
      state.seed = wanted.seed;
      state.moment = held(moment, wanted.moment);
      state.variance = held(variance, wanted.variance);
      state.residual = held(residual, wanted.residual);
      state.variance_residual = held(variance_residual, wanted.variance_residual);
      state.moment32 = held(moment32, wanted.moment32);
      state.variance32 = held(variance32, wanted.variance32);
      state.master = held(master, wanted.master);

      for (int t = 0; t < 3; ++t) {
        const auto g = waves(n, 0.11 + 0.5 * t, 12);
        DeviceArray<bfloat16> g_(g);
        adamw_step(theta, g, wanted, options);
        adamw_step(theta_.view<1>({n}), g_.view<1>({n}), state, options, nullptr);
        CHECK(same_bits(theta_.to_host(), theta.data()));  // waits before g_ goes
      }
      CHECK(state.step == 3);
      CHECK(same_bits(moment.to_host(), wanted.moment.data()));
      CHECK(same_bits(variance.to_host(), wanted.variance.data()));
      CHECK(same_bits(residual.to_host(), wanted.residual.data()));
      CHECK(same_bits(variance_residual.to_host(), wanted.variance_residual.data()));
      CHECK(same_bits(moment32.to_host(), wanted.moment32.data()));
      CHECK(same_bits(variance32.to_host(), wanted.variance32.data()));
      CHECK(same_bits(master.to_host(), wanted.master.data()));
    }
}

TEST_CASE("precision.collage: a device state without its arrays is refused") {
  DeviceArray<bfloat16> theta(waves(8, 1, 1)), g(waves(8, 1, 1));
  DeviceAdamWState<bfloat16> state;
  CHECK_THROWS_AS(adamw_step(theta.view<1>({8}), g.view<1>({8}), state, {}, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace ashlar::precision
