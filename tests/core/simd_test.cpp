#include "ashlar/core/simd.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"

namespace ashlar {
namespace {

TEMPLATE_TEST_CASE("core.simd: loads and stores and fused products work at any address", "", float, double) {
  using T = TestType;
  constexpr auto w = static_cast<std::size_t>(simd::width<T>);
  std::vector<T> a(2 * w), b(2 * w), c(2 * w), out(3 * w, T{-1});
  std::iota(a.begin(), a.end(), T{1});
  std::iota(b.begin(), b.end(), T{3});
  std::iota(c.begin(), c.end(), T{7});
  for (std::size_t shift = 0; shift < w; ++shift) {
    simd::store(out.data() + shift, simd::fma(simd::load(a.data() + shift), simd::load(b.data() + shift),
                                              simd::load(c.data() + shift)));
    for (std::size_t i = shift; i < shift + w; ++i) CHECK(out[i] == a[i] * b[i] + c[i]);
    CHECK(out[shift + w] == -1);  // nothing is written past the batch
  }
  // One rounding: 1 - (1 + e)(1 - e) = e^2, which two roundings lose.
  const T e = std::numeric_limits<T>::epsilon();
  simd::store(out.data(), simd::fma(simd::batch<T>(T{1} + e), simd::batch<T>(T{1} - e), simd::batch<T>(T{-1})));
  const T fused = std::fma(T{1} + e, T{1} - e, T{-1});
  for (std::size_t i = 0; i < w; ++i) CHECK((out[i] == fused || out[i] == 0));  // 0: a target without the instruction
}

TEMPLATE_TEST_CASE("core.simd: reductions see every lane", "", float, double) {
  using T = TestType;
  constexpr auto w = static_cast<std::size_t>(simd::width<T>);
  for (std::size_t lane = 0; lane < w; ++lane) {
    std::vector<T> x(w, T{2});
    x[lane] = 50;
    CHECK(simd::reduce_add(simd::load(x.data())) == static_cast<T>(48 + 2 * w));
    CHECK(simd::reduce_max(simd::load(x.data())) == 50);
    x[lane] = -50;
    CHECK(simd::reduce_min(simd::load(x.data())) == -50);
    CHECK(simd::reduce_max(simd::load(x.data())) == (w > 1 ? 2 : -50));
  }
}

TEMPLATE_TEST_CASE("core.simd: the dot product is exact on integers and within its bound on reals for every length", "",
                   float, double) {
  using T = TestType;
  Rng rng(2);
  for (Index n = 0; n <= 200; ++n) {
    INFO("n = " << n);
    std::vector<T> a(static_cast<std::size_t>(n) + 1), b(a.size());
    T exact = 0;
    for (Index i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      a[at] = static_cast<T>(rng.below(17) - 8);
      b[at] = static_cast<T>(rng.below(17) - 8);
      exact += a[at] * b[at];
    }
    a.back() = b.back() = std::numeric_limits<T>::quiet_NaN();  // one past the end must not be read
    CHECK(simd::dot(a.data(), b.data(), n) == exact);
    long double sum = 0, magnitude = 0;
    for (Index i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      a[at] = static_cast<T>(rng.normal());
      b[at] = static_cast<T>(rng.normal());
      sum += static_cast<long double>(a[at]) * static_cast<long double>(b[at]);
      magnitude += std::abs(static_cast<long double>(a[at]) * static_cast<long double>(b[at]));
    }
    // Higham, gamma_n: every product and every sum rounds once, in any order.
    const auto unit = static_cast<long double>(std::numeric_limits<T>::epsilon()) / 2;
    const long double bound = static_cast<long double>(n + 1) * unit * magnitude * 1.01L;
    CHECK(std::abs(static_cast<long double>(simd::dot(a.data(), b.data(), n)) - sum) <= bound);
  }
}

template <class F>
std::vector<F> every_pattern() {
  std::vector<F> all(std::size_t{1} << (8 * sizeof(F)));
  for (std::size_t bits = 0; bits < all.size(); ++bits) all[bits] = from_bits<F>(static_cast<std::uint32_t>(bits));
  return all;
}

TEMPLATE_TEST_CASE("core.simd: converting every pattern to float equals the scalar conversion bit for bit", "", half,
                   bfloat16, float8_e4m3, float8_e5m2) {
  using F = TestType;
  const auto all = every_pattern<F>();
  std::vector<float> converted(all.size());
  simd::convert(all.data(), converted.data(), static_cast<Index>(all.size()));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) wrong += bits_of(converted[i]) != bits_of(to_float(all[i]));
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("core.simd: converting floats equals scalar rounding bit for bit with ties and specials and NaN", "",
                   half, bfloat16, float8_e4m3, float8_e5m2) {
  using F = TestType;
  std::vector<float> from;
  for (const F x : every_pattern<F>()) {
    const float value = to_float(x);
    from.push_back(value);
    const float next = to_float(from_bits<F>(bits_of(x) + 1u));
    const auto tie = static_cast<float>((static_cast<double>(value) + static_cast<double>(next)) / 2);
    for (const float y : {tie, std::nextafter(tie, HUGE_VALF), std::nextafter(tie, -HUGE_VALF)}) from.push_back(y);
  }
  Rng rng(13);
  for (int i = 0; i < 100'000; ++i) from.push_back(std::bit_cast<float>(rng()));
  for (std::uint32_t payload = 1; payload < 0x800000u; payload = payload * 3 + 1)  // quiet and signalling, both signs
    for (const std::uint32_t sign : {0u, 0x80000000u}) from.push_back(std::bit_cast<float>(sign | 0x7F800000u | payload));
  std::vector<F> converted(from.size());
  simd::convert(from.data(), converted.data(), static_cast<Index>(from.size()));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < from.size(); ++i) wrong += bits_of(converted[i]) != bits_of(round_to<F>(from[i]));
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("core.simd: conversions of every length write what they must and nothing else", "", half, bfloat16,
                   float8_e4m3, float8_e5m2) {
  using F = TestType;
  Rng rng(14);
  for (Index n = 0; n <= 40; ++n)
    for (std::size_t shift = 0; shift < 3; ++shift) {
      const auto size = static_cast<std::size_t>(n);
      std::vector<float> x(size + shift), wide(size + shift + 1, -7.0f);
      for (float& value : x) value = static_cast<float>(rng.normal());
      std::vector<F> narrow(size + shift + 1, from_bits<F>(0x55));
      simd::convert(x.data() + shift, narrow.data() + shift, n);
      simd::convert(narrow.data() + shift, wide.data() + shift, n);
      std::size_t wrong = 0;
      for (std::size_t i = shift; i < shift + size; ++i)
        wrong += bits_of(narrow[i]) != bits_of(round_to<F>(x[i])) || wide[i] != to_float(narrow[i]);
      CHECK(wrong == 0);
      CHECK(bits_of(narrow.back()) == bits_of(from_bits<F>(0x55)));
      CHECK(wide.back() == -7);
    }
}

TEST_CASE("core.simd: converting floats to floats and doubles to doubles copies") {
  const std::vector<float> x{1, 2, 3};
  std::vector<float> y(3);
  simd::convert(x.data(), y.data(), 3);
  CHECK(y == x);
  const std::vector<double> u{1, 2, 3};
  std::vector<double> v(3);
  simd::convert(u.data(), v.data(), 3);
  CHECK(v == u);
}

}  // namespace
}  // namespace ashlar
