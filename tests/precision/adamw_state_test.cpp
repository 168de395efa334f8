#include "ashlar/precision/adamw_state.hpp"

#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "precision/adamw_cases.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace ashlar::precision {
namespace {

using namespace test_cases;
using test::message_of;

TEST_CASE("precision.adamw_state: float32 weights start as expansions or as the master") {
  Rng rng(8);
  std::vector<float> w;
  for (int i = 0; i < 100; ++i) w.push_back(static_cast<float>(rng.normal()));
  std::vector<bfloat16> theta(100);
  const AdamWState<bfloat16> light(Precision::collage_light, w, theta);
  for (std::size_t i = 0; i < w.size(); ++i) {
    CHECK(bits_of(theta[i]) == bits_of(round_to<bfloat16>(w[i])));
    const Expansion<bfloat16> x{theta[i], light.residual.data()[i]};
    CHECK(std::abs(to_float(x) - w[i]) <= 0x1p-17f * std::abs(w[i]));
  }
  const AdamWState<bfloat16> master(Precision::fp32_master, w, theta);
  CHECK(std::memcmp(master.master.data(), w.data(), w.size() * sizeof(float)) == 0);
}

TEST_CASE("precision.adamw_state: bytes per parameter are the paper's") {
  CHECK(bytes_per_parameter<bfloat16>(Precision::pure) == 8);
  CHECK(bytes_per_parameter<bfloat16>(Precision::stochastic) == 8);
  CHECK(bytes_per_parameter<bfloat16>(Precision::kahan) == 10);
  CHECK(bytes_per_parameter<bfloat16>(Precision::collage_light) == 10);
  CHECK(bytes_per_parameter<bfloat16>(Precision::collage_plus) == 12);
  CHECK(bytes_per_parameter<bfloat16>(Precision::fp32_states) == 12);
  CHECK(bytes_per_parameter<bfloat16>(Precision::fp32_master) == 16);
  // and what a state holds.
  std::vector<bfloat16> theta(50);
  Rng rng(0);
  for (const Precision precision : strategies) {
    const AdamWState<bfloat16> state(precision, theta, rng);
    Index bytes = 4 * 50;
    AdamWState<bfloat16>::visit(state, [&](std::string_view, const auto& tensor) {
      bytes += tensor.size() * static_cast<Index>(sizeof(*tensor.data()));
    });
    CHECK(bytes == 50 * bytes_per_parameter<bfloat16>(precision));
  }
}

TEST_CASE("precision.adamw_state: stochastic rounding needs a generator and something to round") {
  std::vector<bfloat16> theta(4);
  CHECK(message_of<InvalidArgument>([&] { AdamWState<bfloat16>(Precision::stochastic, theta); }) ==
        "AdamWState: stochastic rounding needs an Rng");
  Rng rng(0);
  const std::vector<float> single(4);
  CHECK(message_of<InvalidArgument>([&] { AdamWState<float>(Precision::stochastic, single, rng); }) ==
        "AdamWState: float32 parameters are not rounded, stochastically or otherwise");
}

#if defined(__SSE__)
TEST_CASE("precision.adamw_state: a processor that flushes subnormals is refused") {
  std::vector<bfloat16> theta(1);
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8000u);
  const std::string flushed = message_of<InvalidArgument>([&] { AdamWState<bfloat16>(Precision::pure, theta); });
  _mm_setcsr(mode | 0x0040u);
  const std::string treated = message_of<InvalidArgument>([&] { AdamWState<bfloat16>(Precision::pure, theta); });
  _mm_setcsr(mode);
  const std::string expected =
      "AdamWState: subnormal numbers are flushed to zero; link without -ffast-math and leave FTZ and DAZ off";
  CHECK(flushed == expected);
  CHECK(treated == expected);
  CHECK(message_of<InvalidArgument>([&] { AdamWState<bfloat16>(Precision::pure, theta); }) == "nothing thrown");
}
#endif

}  // namespace
}  // namespace ashlar::precision
