#include "ashlar/precision/expansion.hpp"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"
#include "support/threads.hpp"

namespace ashlar::precision {
namespace {

using test::fixture;
using test::message_of;

template <class F>
double value(const F& x) {
  return static_cast<double>(ashlar::to_float(x));
}
template <class F>
double value(const Expansion<F>& x) {
  return value(x.hi) + value(x.lo);
}
template <class F>
F number(double x) {
  return detail::round_double<F>(x);
}

/// Equal as numbers, or both NaN.
template <class F>
bool same(const F& x, double expected) {
  return value(x) == expected || (std::isnan(value(x)) && std::isnan(expected));
}

/// A random number of F: sign, exponent in the given range, significand, all uniform.
template <class F>
F random_number(Rng& rng, int min_exponent, int max_exponent) {
  const auto span = static_cast<Index>(max_exponent - min_exponent + 1);
  const double x = (1 + rng.uniform()) * std::ldexp(1, min_exponent + static_cast<int>(rng.below(span)));
  return number<F>(rng.below(2) != 0 ? x : -x);
}

/// Half a unit in the last place, for the test of normalisation.
template <class F>
double half_ulp(F x) {
  const double magnitude = std::abs(value(x));
  const int exponent =
      magnitude > 0 ? std::max(std::ilogb(magnitude), Format<F>::min_exponent) : Format<F>::min_exponent;
  return std::ldexp(0.5, exponent - Format<F>::mantissa_bits);
}

template <class F>
const std::string name_of;
template <>
const std::string name_of<bfloat16> = "bf16";
template <>
const std::string name_of<half> = "fp16";
template <>
const std::string name_of<float8_e5m2> = "e5m2";
template <>
const std::string name_of<float8_e4m3> = "e4m3";

TEMPLATE_TEST_CASE("precision.expansion: every transformation matches the fixtures bit for bit", "", bfloat16, half,
                   float8_e5m2, float8_e4m3) {
  using F = TestType;
  const std::string prefix = "collage/mcf_" + name_of<F> + "_";
  std::map<std::string, Tensor<double>> data;
  for (const char* name : {"a",
                           "b",
                           "big",
                           "small",
                           "dx",
                           "up",
                           "twosum_s",
                           "twosum_e",
                           "twoprod_p",
                           "twoprod_e",
                           "fast2sum_s",
                           "fast2sum_e",
                           "fast2sum_swapped_s",
                           "fast2sum_swapped_e",
                           "grow_x",
                           "grow_dx",
                           "growrobust_x",
                           "growrobust_dx",
                           "mul_x",
                           "mul_dx",
                           "scale_x",
                           "scale_dx"})
    data[name] = fixture(prefix + name);
  const Index n = data["a"].size();
  REQUIRE(n == 150);
  const auto at = [&](const char* name, Index i) { return number<F>(data[name].data()[i]); };
  const auto expect = [&](const Expansion<F>& x, const char* hi, const char* lo, Index i) {
    INFO(prefix << hi << " at " << i);
    CHECK(same(x.hi, data[hi].data()[i]));
    CHECK(same(x.lo, data[lo].data()[i]));
  };
  const Expansion<F> beta = split_scalar<F>(0.999);
  for (Index i = 0; i < n; ++i) {
    const F big = at("big", i), small = at("small", i), dx = at("dx", i);
    expect(fast_two_sum(big, small), "fast2sum_s", "fast2sum_e", i);
    expect(fast_two_sum(small, big), "fast2sum_swapped_s", "fast2sum_swapped_e", i);
    expect(two_sum(at("a", i), at("b", i)), "twosum_s", "twosum_e", i);
    expect(two_prod(at("a", i), at("b", i)), "twoprod_p", "twoprod_e", i);
    expect(grow(Expansion<F>{big, dx}, at("up", i)), "grow_x", "grow_dx", i);
    const F tail = number<F>(value(small) * std::ldexp(1, -(Format<F>::digits + 2)));
    expect(grow_robust(Expansion<F>{small, tail}, big), "growrobust_x", "growrobust_dx", i);
    expect(mul(Expansion<F>{number<F>(std::abs(value(big))), dx}, beta), "mul_x", "mul_dx", i);
    expect(scale(Expansion<F>{big, dx}, number<F>(0.7)), "scale_x", "scale_dx", i);
  }
  const auto split = fixture(prefix + "beta");
  const double scalars[] = {0.9, 0.95, 0.98, 0.99, 0.999};
  for (Index i = 0; i < 5; ++i) {
    const Expansion<F> c = split_scalar<F>(scalars[i]);
    CHECK(same(c.hi, split.view<2>()(i, 0)));
    CHECK(same(c.lo, split.view<2>()(i, 1)));
  }
}

TEMPLATE_TEST_CASE("precision.expansion: sums and products are exact for a million random pairs", "", bfloat16, half,
                   float8_e5m2, float8_e4m3, float) {
  using F = TestType;
  constexpr int p = Format<F>::digits;
  // Exponents that keep sums from overflowing and products in range. float's exact sums must fit into a double.
  const int low = std::same_as<F, float> ? -12 : std::max(Format<F>::min_exponent, -40);
  const int high = std::same_as<F, float> ? 12 : std::min(Format<F>::bias - 1 - p, 40);
  Rng rng(11);
  long wrong_fast = 0, wrong_two = 0, wrong_product = 0, products = 0;
  for (int trial = 0; trial < 1000000; ++trial) {
    F a = random_number<F>(rng, low, high), b = random_number<F>(rng, low, high);
    const double sum = value(a) + value(b), product = value(a) * value(b);
    wrong_two += value(two_sum(a, b)) != sum;
    if (std::abs(value(a)) < std::abs(value(b))) std::swap(a, b);
    wrong_fast += value(fast_two_sum(a, b)) != sum;
    if (std::abs(product) < std::ldexp(1, Format<F>::min_exponent + p)) continue;
    if (std::abs(product) > std::ldexp(1, Format<F>::bias - 1)) continue;
    ++products;
    wrong_product += value(two_prod(a, b)) != product;
  }
  CHECK(wrong_fast == 0);
  CHECK(wrong_two == 0);
  CHECK(wrong_product == 0);
  CHECK(products > 100000);
}

// fast_two_sum skips the rounding of its last subtraction. That must never show, condition or no condition.
template <class F>
bool last_rounding_is_idle(F a, F b) {
  const auto fl = [](float x) { return ashlar::to_float(round_to<F>(x)); };
  const float x = ashlar::to_float(a), y = ashlar::to_float(b);
  const float s = fl(x + y), last = y - fl(s - x);
  return last == fl(last) || (std::isnan(last) && std::isnan(fl(last)));
}

TEST_CASE("precision.expansion: the last subtraction of Fast2Sum is exact for all pairs") {
  const auto all_pairs = [](auto format) {
    using F = decltype(format);
    long wrong = 0;
    for (std::uint32_t i = 0; i < 256; ++i)
      for (std::uint32_t j = 0; j < 256; ++j) wrong += !last_rounding_is_idle(from_bits<F>(i), from_bits<F>(j));
    return wrong;
  };
  CHECK(all_pairs(float8_e4m3{}) == 0);
  CHECK(all_pairs(float8_e5m2{}) == 0);
  const auto random_pairs = [](auto format) {
    using F = decltype(format);
    Rng rng(5);
    long wrong = 0;
    for (int trial = 0; trial < 1000000; ++trial) {
      const std::uint32_t a = rng() & 0xFFFFu;
      // Half of the pairs close in exponent, where something is left to lose.
      const std::uint32_t b =
          trial % 2 == 0 ? rng() & 0xFFFFu : (a + (rng() & 0x1FFFu) - 0x1000u + (rng() & 0x8000u)) & 0xFFFFu;
      wrong += !last_rounding_is_idle(from_bits<F>(a), from_bits<F>(b));
    }
    return wrong;
  };
  CHECK(random_pairs(bfloat16{}) == 0);
  CHECK(random_pairs(half{}) == 0);
}

TEMPLATE_TEST_CASE("precision.expansion: Grow keeps its error bound and leaves the result normalised", "", bfloat16,
                   half) {
  using F = TestType;
  constexpr int p = Format<F>::digits;
  Rng rng(3);
  double worst = 0, worst_robust = 0;
  long loose = 0;
  for (int trial = 0; trial < 200000; ++trial) {
    const F x = random_number<F>(rng, -1, 4);
    const F dx = number<F>(half_ulp(x) * rng.uniform(-1, 1));
    const F a = number<F>(value(x) * std::exp2(-rng.uniform(0, 2 * p)) * (rng.below(2) != 0 ? 1 : -1));
    if (std::abs(value(a)) > std::abs(value(x))) continue;
    const double exact = value(x) + value(dx) + value(a);
    const Expansion<F> y = grow(Expansion<F>{x, dx}, a), robust = grow_robust(Expansion<F>{x, dx}, a);
    worst = std::max(worst, std::abs(value(y) - exact) / std::abs(value(x)));
    worst_robust = std::max(worst_robust, std::abs(value(robust) - exact) / std::abs(value(x)));
    loose += std::abs(value(y.lo)) > half_ulp(y.hi);
  }
  CHECK(worst <= std::ldexp(1, -2 * p + 2));
  CHECK(worst_robust <= std::ldexp(1, -2 * p + 2));
  CHECK(worst > 0);  // it does round
  CHECK(loose == 0);
}

TEST_CASE("precision.expansion: a number too small for the weight is kept and adds up") {
  Expansion<bfloat16> w = split_scalar<bfloat16>(1.0);
  const auto step = round_to<bfloat16>(0x1p-12f);
  bfloat16 plain = w.hi;
  for (int i = 0; i < 1024; ++i) {
    w = grow(w, step);
    plain = round_to<bfloat16>(ashlar::to_float(plain) + ashlar::to_float(step));
  }
  CHECK(to_float(w) == 1.25f);
  CHECK(ashlar::to_float(plain) == 1.0f);
  // Past zero the plain condition fails; the robust form does not need it.
  const Expansion<bfloat16> tiny{round_to<bfloat16>(0x1p-9f), {}};
  CHECK(to_float(grow_robust(tiny, round_to<bfloat16>(1.0f + 0x1p-7f))) == 1.0f + 0x1p-7f + 0x1p-9f);
}

TEMPLATE_TEST_CASE("precision.expansion: Mul keeps its error bound and leaves the result normalised", "", bfloat16,
                   half) {
  using F = TestType;
  constexpr int p = Format<F>::digits;
  Rng rng(7);
  double worst = 0, worst_beta = 0;
  long loose = 0;
  for (int trial = 0; trial < 200000; ++trial) {
    const auto draw = [&] {
      const F hi = random_number<F>(rng, 0, 3);
      return Expansion<F>{hi, number<F>(half_ulp(hi) * rng.uniform(-1, 1))};
    };
    const Expansion<F> x = draw(), y = draw(), product = mul(x, y);
    const double exact = value(x) * value(y);
    worst = std::max(worst, std::abs(value(product) - exact) / std::abs(exact));
    loose += std::abs(value(product.lo)) > half_ulp(product.hi);
    const double beta = 0.9 + 0.0999 * rng.uniform();
    const double scaled = value(mul(x, split_scalar<F>(beta)));
    worst_beta = std::max(worst_beta, std::abs(scaled / (value(x) * beta) - 1));
  }
  CHECK(worst <= std::ldexp(1, 3 - 2 * p));
  CHECK(worst > std::ldexp(1, -2 * p));
  CHECK(worst_beta <= std::ldexp(1, 3 - 2 * p));
  CHECK(loose == 0);
}

// What an in-place product that reuses its argument gets wrong: the residue then belongs to the scaled value.
TEST_CASE("precision.expansion: products with beta decay by beta") {
  for (const double beta : {0.95, 0.98, 0.99, 0.999}) {
    Expansion<bfloat16> v = split_scalar<bfloat16>(0.37);
    for (int i = 0; i < 20; ++i) v = mul(v, split_scalar<bfloat16>(beta));
    const double expected = 0.37 * std::pow(beta, 20);
    CHECK(std::abs(value(v) / expected - 1) < 21 * 0x1p-13);
  }
  Expansion<bfloat16> v{};
  const bfloat16 square = round_to<bfloat16>(0.001f * 0.25f);
  for (int i = 0; i < 4000; ++i) v = grow(mul(v, split_scalar<bfloat16>(0.999)), square);
  CHECK(std::abs(value(v) - 0.2455) < 1e-4);
}

TEST_CASE("precision.expansion: conversions round once") {
  CHECK(value(split_scalar<bfloat16>(0.999).hi) == 1.0);
  CHECK(std::abs(value(split_scalar<bfloat16>(0.999).lo) + 0.001) < 1e-6);
  // Just above a tie of bfloat16, but a tie once rounded to float.
  const double near_tie = 1 + 0x1p-8 + 0x1p-40;
  CHECK(value(number<bfloat16>(near_tie)) == 1 + 0x1p-7);
  CHECK(value(number<bfloat16>(-near_tie)) == -(1 + 0x1p-7));
  CHECK(value(number<bfloat16>(1 + 0x1p-8 - 0x1p-40)) == 1.0);
  CHECK(std::isinf(value(number<half>(1e300))));
  CHECK(value(number<half>(65519.999999)) == 65504);
  CHECK(std::isnan(value(number<bfloat16>(NAN))));
  Rng rng(2);
  for (int trial = 0; trial < 1000; ++trial) {
    const auto w = static_cast<float>(rng.normal());
    const Expansion<bfloat16> x = from_float<bfloat16>(w);
    CHECK(bits_of(x.hi) == bits_of(round_to<bfloat16>(w)));
    CHECK(std::abs(value(x) - static_cast<double>(w)) <= std::ldexp(std::abs(static_cast<double>(w)), -17));
    CHECK(to_float(x) == static_cast<float>(value(x)));
    CHECK(to_float(from_float<float>(w)) == w);
    const Expansion<bfloat16> swapped{x.lo, x.hi};
    const Expansion<bfloat16> back = renormalize(swapped);
    CHECK(value(back) == value(x));
    CHECK(std::abs(value(back.lo)) <= half_ulp(back.hi));
  }
}

template <class F>
std::vector<F> random_bit_patterns(Rng& rng, Index n) {
  std::vector<F> x;
  for (Index i = 0; i < n; ++i) x.push_back(from_bits<F>(rng() & ((2 * Format<F>::sign_code) - 1)));
  return x;
}

// All bit patterns, infinities and NaN included: the arrays are held against the numbers one by one.
TEMPLATE_TEST_CASE("precision.expansion: array forms give the bits of the scalar forms", "", bfloat16, half,
                   float8_e4m3) {
  using F = TestType;
  Rng rng(9);
  for (const Index n : {0, 1, 15, 16, 33, 1000, 70001}) {
    const auto a = random_bit_patterns<F>(rng, n), b = random_bit_patterns<F>(rng, n),
               c = random_bit_patterns<F>(rng, n);
    const auto compare = [&](auto&& arrays, auto&& scalar) {
      for (const int threads : {1, 3}) {
        std::vector<F> hi = a, lo = b;
        test::with_threads(threads, [&] { arrays(hi, lo); });
        long wrong = 0;
        for (std::size_t i = 0; i < a.size(); ++i) {
          const Expansion<F> expected = scalar(i);
          wrong += bits_of(hi[i]) != bits_of(expected.hi) || bits_of(lo[i]) != bits_of(expected.lo);
        }
        CHECK(wrong == 0);
      }
    };
    using V = std::vector<F>;
    compare([&](V& hi, V& lo) { two_sum(a, b, hi, lo); }, [&](std::size_t i) { return two_sum(a[i], b[i]); });
    compare([&](V& hi, V& lo) { fast_two_sum(a, b, hi, lo); }, [&](std::size_t i) { return fast_two_sum(a[i], b[i]); });
    compare([&](V& hi, V& lo) { two_prod(a, b, hi, lo); }, [&](std::size_t i) { return two_prod(a[i], b[i]); });
    compare([&](V& hi, V& lo) { grow(hi, lo, c); },
            [&](std::size_t i) {
              return grow(Expansion<F>{a[i], b[i]}, c[i]);
            });
    compare([&](V& hi, V& lo) { grow_robust(hi, lo, c); },
            [&](std::size_t i) {
              return grow_robust(Expansion<F>{a[i], b[i]}, c[i]);
            });
    compare([&](V& hi, V& lo) { mul(hi, lo, c, b); },
            [&](std::size_t i) {
              return mul(Expansion<F>{a[i], b[i]}, Expansion<F>{c[i], b[i]});
            });
    compare([&](V& hi, V& lo) { scale(hi, lo, number<F>(0.7)); },
            [&](std::size_t i) {
              return scale(Expansion<F>{a[i], b[i]}, number<F>(0.7));
            });
    compare([&](V& hi, V& lo) { renormalize(hi, lo); },
            [&](std::size_t i) {
              return renormalize(Expansion<F>{a[i], b[i]});
            });
  }
}

TEST_CASE("precision.expansion: array forms check their arguments and allocate nothing") {
  std::vector<bfloat16> hi(5), lo(5), a(4);
  CHECK(message_of<InvalidArgument>([&] { grow(hi, lo, a); }) == "grow: a has shape [4], expected [5]");
  CHECK(message_of<InvalidArgument>([&] { grow(hi, hi, lo); }) == "grow: hi and lo must not overlap");
  const View<bfloat16, 1> gaps(hi.data(), {3}, {2});
  CHECK(message_of<InvalidArgument>([&] { renormalize(gaps, View<bfloat16, 1>(lo.data(), {3})); }) ==
        "renormalize: hi must be contiguous, got stride 2");
  a.resize(5);
  test::with_threads(1, [&] { CHECK(test::allocations([&] { grow(hi, lo, a); }) == 0); });
}

}  // namespace
}  // namespace ashlar::precision
