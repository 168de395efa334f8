#include "ashlar/core/scalar.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/fixture.hpp"

namespace ashlar {
namespace {

template <class F>
std::uint32_t code_count() {
  return std::uint32_t{1} << (8 * sizeof(F));
}
template <class F>
bool is_nan_code(std::uint32_t bits) {
  const std::uint32_t code = bits & (Format<F>::sign_code - 1);
  return code > Format<F>::max_code && !(Format<F>::has_infinity && code == Format<F>::infinity_code);
}
template <class F>
std::uint32_t code(F x) {
  return bits_of(x);
}

/// The value of a bit pattern by the textbook formula.
template <class F>
double decode(std::uint32_t bits) {
  using Fmt = Format<F>;
  const int exponent = static_cast<int>((bits & (Fmt::sign_code - 1)) >> Fmt::mantissa_bits);
  const auto mantissa = static_cast<double>(bits & ((1u << Fmt::mantissa_bits) - 1));
  const double sign = bits & Fmt::sign_code ? -1 : 1;
  if (is_nan_code<F>(bits)) return std::nan("");
  if (Fmt::has_infinity && exponent == (1 << Fmt::exponent_bits) - 1) return sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, Fmt::min_exponent - Fmt::mantissa_bits);
  return sign * std::ldexp(1 + std::ldexp(mantissa, -Fmt::mantissa_bits), exponent - Fmt::bias);
}

/// Rounding by arithmetic in double: to a multiple of the unit in the last place, half to even.
template <class F>
double round_in_double(float x, Overflow overflow) {
  using Fmt = Format<F>;
  const double largest = decode<F>(Fmt::max_code);
  if (std::isnan(x)) return x;
  if (std::isinf(x)) {
    if (overflow == Overflow::saturate) return std::copysign(largest, static_cast<double>(x));
    return Fmt::has_infinity ? static_cast<double>(x) : std::nan("");
  }
  if (x == 0) return x;
  const int exponent = std::max(std::ilogb(static_cast<double>(x)), Fmt::min_exponent);
  const double unit = std::ldexp(1.0, exponent - Fmt::mantissa_bits);
  const double rounded = std::nearbyint(static_cast<double>(x) / unit) * unit;
  if (std::abs(rounded) <= largest) return rounded;
  if (overflow == Overflow::saturate) return std::copysign(largest, rounded);
  return Fmt::has_infinity ? std::copysign(HUGE_VAL, rounded) : std::nan("");
}

/// Same number: same sign too, and a NaN only next to the canonical NaN.
template <class F>
bool agrees(F actual, double expected) {
  if (std::isnan(expected)) return code(actual) == Format<F>::nan_code;
  const double value = decode<F>(code(actual));
  return value == expected && std::signbit(value) == std::signbit(expected);
}

TEMPLATE_TEST_CASE("core.scalar: every pattern converts to the value of its fields and back to itself", "", half,
                   bfloat16, float8_e4m3, float8_e5m2) {
  using F = TestType;
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits < code_count<F>(); ++bits) {
    const F x = from_bits<F>(bits);
    const float value = to_float(x);
    const double expected = decode<F>(bits);
    const bool nan = is_nan_code<F>(bits);
    const bool same_value = nan ? std::isnan(value) : static_cast<double>(value) == expected &&
                                                          std::signbit(value) == std::signbit(expected);
    const std::uint32_t back = nan ? Format<F>::nan_code : bits;
    // Infinities come back as themselves unless they saturate.
    const bool infinite = std::isinf(expected);
    const std::uint32_t saturated = infinite ? (bits & Format<F>::sign_code) | Format<F>::max_code : back;
    wrong += !same_value || code(x) != bits || code(round_to<F>(value)) != back ||
             code(round_to<F>(value, Overflow::saturate)) != saturated;
  }
  CHECK(wrong == 0);
}

template <class F>
std::uint32_t disagreements(float x) {
  std::uint32_t count = 0;
  for (const Overflow overflow : {Overflow::ieee, Overflow::saturate})
    for (const float y : {x, -x}) count += !agrees(round_to<F>(y, overflow), round_in_double<F>(y, overflow));
  return count;
}

TEMPLATE_TEST_CASE("core.scalar: rounding equals arithmetic in double at and beside every value and every tie", "", half,
                   bfloat16, float8_e4m3, float8_e5m2) {
  using F = TestType;
  const auto up = [](float x) { return std::nextafter(x, HUGE_VALF); };
  const auto down = [](float x) { return std::nextafter(x, -HUGE_VALF); };
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits <= Format<F>::max_code; ++bits) {
    const double value = decode<F>(bits);
    // Beyond the largest number lies the tie with the power of two that the format does not have.
    const double next = bits == Format<F>::max_code ? 2 * value - decode<F>(bits - 1) : decode<F>(bits + 1);
    for (const auto x : {static_cast<float>(value), static_cast<float>((value + next) / 2)})
      wrong += disagreements<F>(x) + disagreements<F>(up(x)) + disagreements<F>(down(x));
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("core.scalar: rounding equals arithmetic in double for floats of every magnitude", "", half, bfloat16,
                   float8_e4m3, float8_e5m2) {
  using F = TestType;
  Rng rng(11);
  std::uint32_t wrong = 0;
  for (int i = 0; i < 200'000; ++i) wrong += disagreements<F>(std::bit_cast<float>(rng()));
  for (const float x : {0.0f, HUGE_VALF, std::numeric_limits<float>::max(), std::numeric_limits<float>::min(),
                        std::numeric_limits<float>::denorm_min()})
    wrong += disagreements<F>(x);
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("core.scalar: rounding never reverses the order of two floats", "", half, bfloat16, float8_e4m3,
                   float8_e5m2) {
  using F = TestType;
  float last = -HUGE_VALF;
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0x7F800000u; bits += 997) {
    const float rounded = to_float(round_to<F>(std::bit_cast<float>(bits), Overflow::saturate));
    wrong += !(rounded >= last);
    last = rounded;
  }
  CHECK(wrong == 0);
}

TEST_CASE("core.scalar: special values of the formats are where their standards put them") {
  CHECK(to_float(from_bits<half>(0x7BFF)) == 65504);
  CHECK(to_float(from_bits<half>(0x0001)) == 0x1p-24f);
  CHECK(to_float(from_bits<bfloat16>(0x7F7F)) == 0x1.FEp127f);
  CHECK(to_float(from_bits<float8_e4m3>(0x7E)) == 448);
  CHECK(std::isnan(to_float(from_bits<float8_e4m3>(0x7F))));
  CHECK(to_float(from_bits<float8_e4m3>(0x01)) == 0x1p-9f);
  CHECK(to_float(from_bits<float8_e5m2>(0x7B)) == 57344);
  CHECK(to_float(from_bits<float8_e5m2>(0x7C)) == HUGE_VALF);
  CHECK(to_float(from_bits<float8_e5m2>(0x01)) == 0x1p-16f);
  CHECK(code(round_to<half>(65520)) == 0x7C00);
  CHECK(code(round_to<half>(65520, Overflow::saturate)) == 0x7BFF);
  CHECK(code(round_to<half>(-HUGE_VALF, Overflow::saturate)) == 0xFBFF);
  CHECK(code(round_to<float8_e4m3>(464)) == 0x7E);   // the tie goes to the even code 448
  CHECK(code(round_to<float8_e4m3>(464.1f)) == 0x7F);  // no infinity: NaN
  CHECK(code(round_to<float8_e4m3>(-1e9f)) == 0x7F);   // without a sign
  CHECK(code(round_to<float8_e4m3>(-1e9f, Overflow::saturate)) == 0xFE);
  CHECK(code(round_to<float8_e5m2>(61440)) == 0x7C);
  CHECK(code(round_to<bfloat16>(-std::nanf("1"))) == 0x7FC0);
  CHECK(code(round_to<bfloat16>(std::nanf("1"), Overflow::saturate)) == 0x7FC0);
  STATIC_REQUIRE(Real<double>);
  STATIC_REQUIRE_FALSE(Real<half>);
  STATIC_REQUIRE(Storage<float8_e4m3>);
  STATIC_REQUIRE_FALSE(Scalar<int>);
  STATIC_REQUIRE(std::same_as<accumulate_t<bfloat16>, float>);
  STATIC_REQUIRE(std::same_as<accumulate_t<double>, double>);
  STATIC_REQUIRE(round_to<float8_e4m3>(0.3f).bits == 0x2A);  // usable at compile time
  CHECK(from_float<double>(0.1) == 0.1);
  CHECK(to_float(from_float<bfloat16>(0.1f)) == 0.10009765625f);
}

/// Formats by the names of the fixtures.
template <class F>
std::string fixture_name() {
  if (std::same_as<F, half>) return "fp16";
  if (std::same_as<F, bfloat16>) return "bf16";
  return std::same_as<F, float8_e4m3> ? "e4m3" : "e5m2";
}

TEMPLATE_TEST_CASE("core.scalar: rounding matches the arrays of an independent implementation bit for bit", "", half,
                   bfloat16, float8_e4m3, float8_e5m2) {
  using F = TestType;
  const auto load = [](const std::string& what) {
    return test::fixture<double>("collage/round_" + fixture_name<F>() + "_" + what);
  };
  const auto x = load("x"), y = load("y"), bits = load("bits"), saturated = load("saturated");
  REQUIRE(x.size() > 100);
  for (Index i = 0; i < x.size(); ++i) {
    const auto from = static_cast<float>(x.data()[i]);
    INFO("x = " << x.data()[i]);
    CHECK(static_cast<double>(code(round_to<F>(from))) == bits.data()[i]);
    CHECK(agrees(round_to<F>(from), y.data()[i]));
    CHECK(agrees(round_to<F>(from, Overflow::saturate), saturated.data()[i]));
  }
}

TEST_CASE("core.scalar: stochastic rounding matches the arrays of an independent implementation bit for bit") {
  const auto x = test::fixture<double>("collage/sr_x"), y = test::fixture<double>("collage/sr_y"),
             random = test::fixture<double>("collage/sr_bits");
  for (Index i = 0; i < x.size(); ++i)
    CHECK(agrees(stochastic_round<bfloat16>(static_cast<float>(x.data()[i]),
                                            static_cast<std::uint32_t>(random.data()[i])),
                 y.data()[i]));
}

TEMPLATE_TEST_CASE("core.scalar: stochastic rounding goes away from zero in exactly the discarded fraction of draws", "",
                   half, bfloat16, float8_e4m3, float8_e5m2) {
  using F = TestType;
  using Fmt = Format<F>;
  constexpr std::uint32_t draws = 1u << (24 - Fmt::digits);
  Rng rng(5);
  for (int i = 0; i < 12; ++i) {
    // Normal numbers, subnormals, and what lies below the smallest of them.
    const int exponent = i < 4 ? static_cast<int>(rng.below(8)) : Fmt::min_exponent - Fmt::mantissa_bits + i - 8;
    const auto x = static_cast<float>(std::ldexp(rng.uniform(1, 2), exponent)) * (i % 2 ? -1.0f : 1.0f);
    INFO("x = " << x);
    const double unit =
        std::ldexp(1.0, std::max(std::ilogb(static_cast<double>(x)), Fmt::min_exponent) - Fmt::mantissa_bits);
    const double in_units = std::abs(static_cast<double>(x)) / unit, kept = std::floor(in_units);
    std::uint32_t up = 0, elsewhere = 0;
    for (std::uint32_t random = 0; random < draws; ++random) {
      const double result = std::abs(decode<F>(code(stochastic_round<F>(x, random)))) / unit;
      up += result == kept + 1;
      elsewhere += result != kept && result != kept + 1;
    }
    CHECK(elsewhere == 0);
    // For normal numbers the draws resolve the whole fraction; among the subnormals it is cut to a whole draw.
    const double expected = (in_units - kept) * draws;
    CHECK(static_cast<double>(up) <= expected);
    CHECK(static_cast<double>(up) > expected - 1);
    CHECK(code(stochastic_round<F>(x, 3)) == code(stochastic_round<F>(x, 3 + draws)));  // higher bits do not matter
  }
}

TEMPLATE_TEST_CASE("core.scalar: stochastic rounding keeps what is exact and treats specials and overflow as rounding does",
                   "", half, bfloat16, float8_e4m3, float8_e5m2) {
  using F = TestType;
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits < code_count<F>(); ++bits)
    for (const std::uint32_t random : {0u, 0xFFFFFFFFu})
      for (const Overflow overflow : {Overflow::ieee, Overflow::saturate}) {
        const float x = to_float(from_bits<F>(bits));
        wrong += code(stochastic_round<F>(x, random, overflow)) != code(round_to<F>(x, overflow));
      }
  CHECK(wrong == 0);
  // Just past the largest number, the draw decides between it and overflow.
  const auto largest = static_cast<float>(decode<F>(Format<F>::max_code));
  const float past = std::nextafter(largest, HUGE_VALF);
  CHECK(code(stochastic_round<F>(past, 0)) == Format<F>::max_code);
  CHECK(code(stochastic_round<F>(past, ~0u)) == code(round_to<F>(HUGE_VALF)));
  CHECK(code(stochastic_round<F>(past, ~0u, Overflow::saturate)) == Format<F>::max_code);
  CHECK(code(stochastic_round<F>(std::numeric_limits<float>::denorm_min() / 2, ~0u)) == 0);
}

}  // namespace
}  // namespace ashlar
