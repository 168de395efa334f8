// Number formats. float and double compute; half, bfloat16, float8_e4m3 and float8_e5m2 store.
//
//   bfloat16 w = round_to<bfloat16>(0.1f);      // to nearest, ties to even
//   float x = to_float(w);                      // exact
//
// float8 follows the OCP 8-bit floating point specification: E4M3 has no infinity and one NaN magnitude (0x7F).
#pragma once

#include <Eigen/Core>
#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "ashlar/core/config.hpp"

namespace ashlar {

using half = Eigen::half;
using bfloat16 = Eigen::bfloat16;

/// 1 sign, 4 exponent, 3 mantissa bits; largest 448.
struct float8_e4m3 {
  std::uint8_t bits = 0;
};
/// 1 sign, 5 exponent, 2 mantissa bits; largest 57344; has infinities.
struct float8_e5m2 {
  std::uint8_t bits = 0;
};

// Narrower formats, every code of which is a finite number. Elements of block formats; the code is in the low bits.

/// 1 sign, 2 exponent, 1 mantissa bits; largest 6.
struct float4_e2m1 {
  std::uint8_t bits = 0;
};
/// 1 sign, 2 exponent, 3 mantissa bits; largest 7.5.
struct float6_e2m3 {
  std::uint8_t bits = 0;
};
/// 1 sign, 3 exponent, 2 mantissa bits; largest 28.
struct float6_e3m2 {
  std::uint8_t bits = 0;
};

/// What rounding does past the largest finite number.
enum class Overflow {
  ieee,      ///< infinity, or NaN where the format has none
  saturate,  ///< the largest finite number, for infinities too; NaN stays NaN
};

namespace detail {

/// Sign, exponent and mantissa fields, IEEE style. The largest exponent field holds infinity and NaN, unless the
/// format is finite-only: then only its last code is NaN.
template <class Bits, int ExponentBits, int MantissaBits, bool HasInfinity>
struct BinaryFormat {
  using bits_type = Bits;
  static constexpr int exponent_bits = ExponentBits;
  static constexpr int mantissa_bits = MantissaBits;
  static constexpr bool has_infinity = HasInfinity;
  static constexpr int digits = MantissaBits + 1;                    ///< significant bits with the hidden one
  static constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr int min_exponent = 1 - bias;                      ///< of the smallest normal number
  static constexpr std::uint32_t sign_code = std::uint32_t{1} << (ExponentBits + MantissaBits);
  static constexpr std::uint32_t infinity_code = ((1u << ExponentBits) - 1) << MantissaBits;  ///< if it has one
  static constexpr std::uint32_t max_code = HasInfinity ? infinity_code - 1 : sign_code - 2;
  static constexpr std::uint32_t nan_code =
      HasInfinity ? infinity_code | (1u << (MantissaBits - 1)) : sign_code - 1;
};

/// No infinity and no NaN.
template <int ExponentBits, int MantissaBits>
struct FiniteFormat : BinaryFormat<std::uint8_t, ExponentBits, MantissaBits, false> {
  static constexpr std::uint32_t max_code = (1u << (ExponentBits + MantissaBits)) - 1;
};

}  // namespace detail

/// The layout of a format: digits, exponents, the codes of its special values.
template <class F>
struct Format;
template <>
struct Format<float> : detail::BinaryFormat<std::uint32_t, 8, 23, true> {};
template <>
struct Format<half> : detail::BinaryFormat<std::uint16_t, 5, 10, true> {};
template <>
struct Format<bfloat16> : detail::BinaryFormat<std::uint16_t, 8, 7, true> {};
template <>
struct Format<float8_e4m3> : detail::BinaryFormat<std::uint8_t, 4, 3, false> {};
template <>
struct Format<float8_e5m2> : detail::BinaryFormat<std::uint8_t, 5, 2, true> {};
template <>
struct Format<float4_e2m1> : detail::FiniteFormat<2, 1> {};
template <>
struct Format<float6_e2m3> : detail::FiniteFormat<2, 3> {};
template <>
struct Format<float6_e3m2> : detail::FiniteFormat<3, 2> {};

/// Computes in its own precision.
template <class T>
concept Real = std::same_as<T, float> || std::same_as<T, double>;
/// Only stores; arithmetic happens in float.
template <class T>
concept Storage = std::same_as<T, half> || std::same_as<T, bfloat16> || std::same_as<T, float8_e4m3> ||
                  std::same_as<T, float8_e5m2>;
template <class T>
concept Scalar = Real<T> || Storage<T>;

/// The type sums are kept in: double for double, float for everything else.
template <Scalar T>
using accumulate_t = std::conditional_t<std::same_as<T, double>, double, float>;

// Always inlined: gcc 12 forgets that a caller reads the memory of a small struct it passes by value to a function
// without side effects, and drops the stores before.

/// The bit pattern of a number, and the number of a bit pattern.
template <class F>
[[gnu::always_inline]] ASHLAR_HOST_DEVICE constexpr auto bits_of(F x) {
  return std::bit_cast<typename Format<F>::bits_type>(x);
}
template <class F>
ASHLAR_HOST_DEVICE constexpr F from_bits(std::uint32_t bits) {
  return std::bit_cast<F>(static_cast<typename Format<F>::bits_type>(bits));
}

/// Exact. NaN patterns give a NaN.
template <class F>
[[gnu::always_inline]] ASHLAR_HOST_DEVICE constexpr float to_float(F x) {
  using Fmt = Format<F>;
  const std::uint32_t bits = bits_of(x);
  if constexpr (Fmt::exponent_bits == 8) {  // float and bfloat16 share the exponent field
    return std::bit_cast<float>(bits << (23 - Fmt::mantissa_bits));
  } else {
    const std::uint32_t sign = (bits & Fmt::sign_code) ? 0x80000000u : 0u;
    const std::uint32_t code = bits & (Fmt::sign_code - 1);
    std::uint32_t magnitude = 0;
    if (code > Fmt::max_code)
      magnitude = Fmt::has_infinity && code == Fmt::infinity_code ? 0x7F800000u : 0x7FC00000u;
    else if (code >> Fmt::mantissa_bits)
      magnitude = (code + (static_cast<std::uint32_t>(127 - Fmt::bias) << Fmt::mantissa_bits))
                  << (23 - Fmt::mantissa_bits);
    else  // subnormal: code * 2^(min_exponent - mantissa_bits), a normal float
      magnitude = std::bit_cast<std::uint32_t>(
          static_cast<float>(code) *
          std::bit_cast<float>(static_cast<std::uint32_t>(127 + Fmt::min_exponent - Fmt::mantissa_bits) << 23));
    return std::bit_cast<float>(sign | magnitude);
  }
}
ASHLAR_HOST_DEVICE constexpr double to_float(double x) { return x; }

namespace detail {

/// How many low bits of a float's mantissa the format drops at this magnitude, and the bits to drop them from.
struct Truncation {
  std::uint32_t magnitude;  ///< exponent (already of the target) and mantissa
  int dropped;
};

template <class F>
ASHLAR_HOST_DEVICE constexpr Truncation truncation(std::uint32_t magnitude) {
  using Fmt = Format<F>;
  constexpr int normal = 23 - Fmt::mantissa_bits;
  if constexpr (Fmt::exponent_bits == 8) return {magnitude, normal};
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent >= Fmt::min_exponent)
    return {magnitude - (static_cast<std::uint32_t>(127 - Fmt::bias) << 23), normal};
  // A subnormal of the target. Float subnormals are far below half of the smallest one and vanish either way.
  const std::uint32_t mantissa = (magnitude & 0x7FFFFFu) | (magnitude >> 23 ? 0x800000u : 0u);
  return {mantissa, normal + Fmt::min_exponent - exponent};
}

template <class F>
ASHLAR_HOST_DEVICE constexpr F assemble(bool negative, std::uint32_t code, Overflow overflow) {
  using Fmt = Format<F>;
  if (code > Fmt::max_code) {
    if (overflow == Overflow::saturate)
      code = Fmt::max_code;
    else if constexpr (Fmt::has_infinity)
      code = Fmt::infinity_code;
    else
      return from_bits<F>(Fmt::nan_code);
  }
  return from_bits<F>((negative ? Fmt::sign_code : 0u) | code);
}

}  // namespace detail

/// Rounds to nearest, ties to even. NaN becomes the canonical NaN: sign 0, top mantissa bit alone (E4M3: 0x7F).
template <class F>
ASHLAR_HOST_DEVICE constexpr F round_to(float x, Overflow overflow = Overflow::ieee) {
  if constexpr (std::same_as<F, float>) {
    static_cast<void>(overflow);
    return x;
  } else {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return from_bits<F>(Format<F>::nan_code);
    const auto [kept, dropped] = detail::truncation<F>(magnitude);
    std::uint32_t code = 0;
    if (dropped <= 24) code = (kept + (1u << (dropped - 1)) - 1 + ((kept >> dropped) & 1u)) >> dropped;
    return detail::assemble<F>(bits >> 31, code, overflow);
  }
}

/// Rounds away from zero with probability equal to the discarded fraction of a unit in the last place.
/// `random`: uniform bits, of which the low 24 - digits are used (16 for bfloat16). Infinities and NaN as round_to.
template <Storage F>
ASHLAR_HOST_DEVICE constexpr F stochastic_round(float x, std::uint32_t random, Overflow overflow = Overflow::ieee) {
  constexpr int random_bits = 24 - Format<F>::digits;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), magnitude = bits & 0x7FFFFFFFu;
  if (magnitude >= 0x7F800000u) return round_to<F>(x, overflow);
  const auto [kept, dropped] = detail::truncation<F>(magnitude);
  const int extra = dropped - random_bits;  // > 0 among the subnormals, where less of the fraction is resolved
  std::uint64_t code = 0;
  if (extra <= 24)
    code = (kept + (static_cast<std::uint64_t>(random & ((1u << random_bits) - 1)) << extra)) >> dropped;
  return detail::assemble<F>(bits >> 31, static_cast<std::uint32_t>(code), overflow);
}

/// The nearest T to a float or double: round_to for storage formats, a cast otherwise.
template <Scalar T>
ASHLAR_HOST_DEVICE constexpr T from_float(accumulate_t<T> x) {
  if constexpr (Storage<T>)
    return round_to<T>(x);
  else
    return x;
}

}  // namespace ashlar
