// The device body of collage.cuh, watched by HostBlock.
#include <cstdint>
#include <vector>

#include "ashlar/precision/collage.cuh"
#include "precision/adamw_cases.hpp"
#include "support/catch.hpp"

namespace ashlar::precision {
namespace {

using namespace test_cases;

TEST_CASE("precision.collage: the device body gives the bits of the host form") {
  for (const Precision precision : strategies)
    for (const StepRounding rounding : {StepRounding::every_operation, StepRounding::stored_values})
      for (const Index n : {1, 1023, 1024, 2500}) {
        INFO(name_of(precision) << ", n = " << n);
        AdamWOptions options;
        options.rounding = rounding;
        options.robust_grow = n == 1024;
        options.weight_decay = n == 1023 ? 0 : 0.05;
        const double scale = n == 2500 ? 3.0 : 1.0;
        Rng rng(71);
        const auto start = spread<bfloat16>(rng, n, 20);
        auto theta = start, played = start;
        Rng one(3), two(3);
        AdamWState<bfloat16> state(precision, theta, one), played_state(precision, played, two);
        for (int t = 0; t < 3; ++t) {
          const auto g = spread<bfloat16>(rng, n, 30);
          adamw_step(theta, g, state, options, {.gradient_scale = scale, .check_finite = true, .quality = nullptr});
          const std::uint64_t step = ++played_state.step;
          detail::with_body(detail::arrays_of(played.data(), g.data(), played_state), n, precision, played_state.seed,
                            step, options, scale,
                            [](const auto& body, Index blocks) { run_on_host(blocks, 256, body); });
        }
        CHECK((bytes_of(theta, state) == bytes_of(played, played_state)));
      }
}

}  // namespace
}  // namespace ashlar::precision
