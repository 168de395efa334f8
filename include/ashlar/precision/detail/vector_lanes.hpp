// The vector forms of lanes.hpp.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>

#include "ashlar/core/simd.hpp"
#include "ashlar/precision/detail/lanes.hpp"

namespace ashlar::precision::detail {

/// Whether numbers of F are rounded a vector at a time.
template <Component F>
inline constexpr bool vectorised = std::same_as<F, bfloat16> || std::same_as<F, half>;

template <>
struct Lanes<simd::batch<float>> {
  using V = simd::batch<float>;
  static constexpr Index count = simd::width<float>;

  template <Component F>
  static V round(const V& x) {
    static_assert(!Storage<F> || vectorised<F>, "no vector rounding to this format");
    if constexpr (std::same_as<F, bfloat16>)
      return simd::detail::round_to_bfloat16(x);  // every NaN in here came from a bfloat16 or from arithmetic
    else if constexpr (std::same_as<F, half>)
      return simd::detail::round_to_half(x);
    else
      return x;
  }
  template <Component F>
  static V round_any(const V& x) {
    return round<F>(simd::canonical_nan(x));
  }
  template <Component F>
  static V load(const F* from) {
    return simd::load(from);
  }
  template <Component F>
  static void store(F* to, const V& x) {
    if constexpr (std::same_as<F, bfloat16>)
      simd::detail::store_high_halves(to, simd::canonical_nan(x));
    else
      simd::store(to, x);
  }
  static void unpack(float* to, const V& x) { simd::store(to, x); }
  static V not_negative(const V& x) { return xsimd::select(x < V(0.0f), V(0.0f), x); }
};

/// Four vectors of floats: the even and the odd ones of two runs of bfloat16. Even and odd come apart and together with
/// one operation each, where widening a run in order takes twice as many; and an error-free transformation is a long
/// chain of dependent operations, of which a processor needs about four to keep its units busy.
struct EvenOdd {
  using B = simd::batch<float>;
  B even0, odd0, even1, odd1;

  EvenOdd() = default;
  EvenOdd(const B& e0, const B& o0, const B& e1, const B& o1) : even0(e0), odd0(o0), even1(e1), odd1(o1) {}
  explicit EvenOdd(float x) : even0(x), odd0(even0), even1(even0), odd1(even0) {}
  // Written out, because gcc copies structures of this size through memory.
  EvenOdd(const EvenOdd& x) : even0(x.even0), odd0(x.odd0), even1(x.even1), odd1(x.odd1) {}
  EvenOdd& operator=(const EvenOdd& x) {
    even0 = x.even0, odd0 = x.odd0, even1 = x.even1, odd1 = x.odd1;
    return *this;
  }

  friend EvenOdd operator+(const EvenOdd& x, const EvenOdd& y) {
    return {x.even0 + y.even0, x.odd0 + y.odd0, x.even1 + y.even1, x.odd1 + y.odd1};
  }
  friend EvenOdd operator-(const EvenOdd& x, const EvenOdd& y) {
    return {x.even0 - y.even0, x.odd0 - y.odd0, x.even1 - y.even1, x.odd1 - y.odd1};
  }
  friend EvenOdd operator*(const EvenOdd& x, const EvenOdd& y) {
    return {x.even0 * y.even0, x.odd0 * y.odd0, x.even1 * y.even1, x.odd1 * y.odd1};
  }
  friend EvenOdd operator/(const EvenOdd& x, const EvenOdd& y) {
    return {x.even0 / y.even0, x.odd0 / y.odd0, x.even1 / y.even1, x.odd1 / y.odd1};
  }
  friend EvenOdd sqrt(const EvenOdd& x) {
    return x.each([](const B& part) { return xsimd::sqrt(part); });
  }

  /// f of every part.
  template <class Function>
  EvenOdd each(const Function& f) const {
    return {f(even0), f(odd0), f(even1), f(odd1)};
  }
};

/// Little-endian: the first of two neighbours is the lower half of a 32-bit word.
template <>
struct Lanes<EvenOdd> {
  static_assert(std::endian::native == std::endian::little);
  using V = EvenOdd;
  using B = simd::batch<float>;
  using Bits = simd::batch<std::uint32_t>;
  static constexpr Index run = 2 * simd::width<float>, count = 2 * run;

  template <std::same_as<bfloat16> F>
  static V round(const V& x) {
    return x.each(simd::detail::round_to_bfloat16);
  }
  static V load(const bfloat16* from) {
    const Bits first = simd::load_bits(from), second = simd::load_bits(from + run), upper(0xFFFF0000u);
    return {simd::from_bits(first << 16), simd::from_bits(first & upper), simd::from_bits(second << 16),
            simd::from_bits(second & upper)};
  }
  static void store(bfloat16* to, const V& x) {
    const V y = x.each(simd::canonical_nan);
    simd::store_bits((simd::bits_of(y.even0) >> 16) | simd::bits_of(y.odd0), to);
    simd::store_bits((simd::bits_of(y.even1) >> 16) | simd::bits_of(y.odd1), to + run);
  }
  static void unpack(float* to, const V& x) {
    float parts[4][simd::batch<float>::size];
    simd::store(parts[0], x.even0), simd::store(parts[1], x.odd0);
    simd::store(parts[2], x.even1), simd::store(parts[3], x.odd1);
    for (Index i = 0; i < count; ++i) to[i] = parts[i / run * 2 + i % 2][i % run / 2];
  }
  static V not_negative(const V& x) { return x.each(Lanes<B>::not_negative); }

  /// Adds 16 random bits below the last one kept. Infinities and NaN have zeros there and stay.
  template <std::same_as<bfloat16> F>
  static V stochastic(const V& x, const std::uint32_t* random) {
    std::uint16_t low[static_cast<std::size_t>(count)];
    for (Index i = 0; i < count; ++i) low[i] = static_cast<std::uint16_t>(random[i]);
    const auto round = [](const B& part, const Bits& bits) {
      return simd::from_bits((simd::bits_of(part) + bits) & Bits(0xFFFF0000u));
    };
    const Bits first = simd::load_bits(low), second = simd::load_bits(low + run), lower(0xFFFFu);
    return {round(x.even0, first & lower), round(x.odd0, first >> 16), round(x.even1, second & lower),
            round(x.odd1, second >> 16)};
  }
};

}  // namespace ashlar::precision::detail
