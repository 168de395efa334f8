// A thin layer over xsimd: the vector of the target's widest instruction set, and the names that changed between
// xsimd 8 and 14.
//
//   for (; i + simd::width<float> <= n; i += simd::width<float>)
//     simd::store(y + i, simd::fma(a, simd::load(x + i), simd::load(y + i)));
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>
#include <xsimd/xsimd.hpp>

#include "ashlar/core/config.hpp"
#include "ashlar/core/scalar.hpp"

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace ashlar::simd {

template <class T>
using batch = xsimd::batch<T>;
template <class T>
using mask = typename batch<T>::batch_bool_type;

/// Lanes of a batch.
template <class T>
inline constexpr Index width = static_cast<Index>(batch<T>::size);

/// Vector registers the target has; tiles are sized so that their accumulators stay in them.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int registers = 32;
#else
inline constexpr int registers = 16;
#endif

template <class T>
batch<T> load(const T* from) {
  return batch<T>::load_unaligned(from);
}
template <class T>
void store(T* to, const batch<T>& x) {
  x.store_unaligned(to);
}
/// a b + c, in one rounding where the target has the instruction.
template <class T>
batch<T> fma(const batch<T>& a, const batch<T>& b, const batch<T>& c) {
#if defined(__AVX512F__)  // xsimd 8 multiplies and adds here
  if constexpr (sizeof(T) == 4)
    return _mm512_fmadd_ps(a, b, c);
  else
    return _mm512_fmadd_pd(a, b, c);
#else
  return xsimd::fma(a, b, c);
#endif
}

template <class T>
T reduce_add(const batch<T>& x) {
#if XSIMD_VERSION_MAJOR >= 10
  return xsimd::reduce_add(x);
#else
  return xsimd::hadd(x);
#endif
}
template <class T>
T reduce_max(const batch<T>& x) {
  alignas(64) T lanes[batch<T>::size];
  x.store_aligned(lanes);
  return *std::max_element(lanes, lanes + batch<T>::size);
}
template <class T>
T reduce_min(const batch<T>& x) {
  alignas(64) T lanes[batch<T>::size];
  x.store_aligned(lanes);
  return *std::min_element(lanes, lanes + batch<T>::size);
}

namespace detail {

/// Constants of exp. e^r = 1 + r + r^2 q(r) for |r| <= ln(2) / 2, q of near-minimax coefficients.
template <class T>
struct Exp;
template <>
struct Exp<double> {
  using Bits = std::int64_t;
  static constexpr double round = 0x1.8p52;                 // adding it leaves the nearest integer in the low bits
  static constexpr double ln2_high = 0x1.62e42fefa3800p-1;  // 42 bits: k ln2_high is exact
  static constexpr double ln2_low = 0x1.ef35793c76730p-45;
  static constexpr double smallest = -708.3964185322641;  // of the argument: below, the result is not normal
  static constexpr double largest = 709.782712893384;
  static constexpr double q[] = {0.5,
                                 0.1666666666666666746,
                                 0.041666666666623820532,
                                 0.0083333333333300381973,
                                 0.0013888888917367080562,
                                 0.00019841269863171556026,
                                 0.000024801521057868205199,
                                 2.7557268276905696187e-6,
                                 2.7620201591031548792e-7,
                                 2.5100472505694996003e-8};
};
template <>
struct Exp<float> {
  using Bits = std::int32_t;
  static constexpr float round = 0x1.8p23f;
  static constexpr float ln2_high = 0x1.62e4p-1f;  // 15 bits
  static constexpr float ln2_low = 0x1.7f7d1cp-20f;
  static constexpr float smallest = -87.33654f;
  static constexpr float largest = 88.72283f;
  static constexpr float q[] = {0.5f, 0.16666576666f, 0.041666554212984f, 0.0083632328836827f, 0.00139262508314975f};
};

/// The mantissa field of every lane moved up to the exponent field.
template <class Bits>
batch<Bits> mantissa_to_exponent(const batch<Bits>& bits) {
  constexpr int distance = sizeof(Bits) == 8 ? 52 : 23;
#if defined(__AVX512F__)  // gcc 12 warns about the undefined lanes inside the unmasked intrinsics
  if constexpr (sizeof(bits) == 64 && sizeof(Bits) == 8)
    return batch<Bits>(_mm512_maskz_slli_epi64(0xFF, bits, distance));
  if constexpr (sizeof(bits) == 64 && sizeof(Bits) == 4)
    return batch<Bits>(_mm512_maskz_slli_epi32(0xFFFF, bits, distance));
#endif
  return bits << distance;
}

}  // namespace detail

/// e^x, 1.5 units in the last place at most. Results below the smallest normal number are zero; NaN stays NaN.
template <Real T>
batch<T> exp(const batch<T>& x) {
  using C = detail::Exp<T>;
  using Bits = batch<typename C::Bits>;
  const batch<T> shifted = fma(x, batch<T>(T(1.4426950408889634)), batch<T>(C::round));
  const batch<T> k = shifted - batch<T>(C::round);
  batch<T> r = fma(k, batch<T>(-C::ln2_high), x);
  r = fma(k, batch<T>(-C::ln2_low), r);
  constexpr int last = static_cast<int>(std::size(C::q)) - 1;
  batch<T> q(C::q[last]);
  for (int i = last; i-- > 0;) q = fma(q, r, batch<T>(C::q[i]));
  const batch<T> power = fma(r * r, q, r) + batch<T>(T(1));
  // Adding k to the exponent field multiplies by 2^k.
  const Bits scaled = std::bit_cast<Bits>(power) + detail::mantissa_to_exponent(std::bit_cast<Bits>(shifted));
  batch<T> result = std::bit_cast<batch<T>>(scaled);
  result = xsimd::select(x < batch<T>(C::smallest), batch<T>(T(0)), result);
  result = xsimd::select(x > batch<T>(C::largest), batch<T>(std::numeric_limits<T>::infinity()), result);
  return xsimd::select(x == x, result, x);
}

/// Natural logarithm. xsimd 8 does not compile its own for float with AVX-512.
template <Real T>
batch<T> log(const batch<T>& x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    T lanes[static_cast<std::size_t>(width<T>)];
    store(lanes, x);
    for (T& lane : lanes) lane = std::log(lane);
    return load(lanes);
  } else {
    return xsimd::log(x);
  }
#else
  return xsimd::log(x);
#endif
}

#if defined(__AVX512F__)
namespace detail {
// gcc 12 warns about the unmasked intrinsics (its header reads an undefined register). The maskz forms under a full
// mask compile to the same instructions.
inline constexpr __mmask16 all_lanes = 0xFFFF;
}  // namespace detail
#endif

/// Lane by lane. With a NaN in a lane that lane is unspecified.
template <class T>
batch<T> min(const batch<T>& a, const batch<T>& b) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float> && sizeof(a) == 64) return _mm512_maskz_min_ps(detail::all_lanes, a, b);
  if constexpr (std::is_same_v<T, double> && sizeof(a) == 64) return _mm512_maskz_min_pd(0xFF, a, b);
#endif
  return xsimd::min(a, b);
}
template <class T>
batch<T> max(const batch<T>& a, const batch<T>& b) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float> && sizeof(a) == 64) return _mm512_maskz_max_ps(detail::all_lanes, a, b);
  if constexpr (std::is_same_v<T, double> && sizeof(a) == 64) return _mm512_maskz_max_pd(0xFF, a, b);
#endif
  return xsimd::max(a, b);
}

/// Lane i of a mask as bit i.
template <class T, class A>
std::uint64_t bits(const xsimd::batch_bool<T, A>& m) {
#if XSIMD_VERSION_MAJOR >= 9
  return m.mask();
#else
  if constexpr (requires { std::uint64_t{m.data}; }) {
    return m.data;
  } else {
#if defined(__AVX__)
    if constexpr (sizeof(m) == 32 && sizeof(T) == 4)
      return static_cast<std::uint64_t>(_mm256_movemask_ps(std::bit_cast<__m256>(m)));
    if constexpr (sizeof(m) == 32 && sizeof(T) == 8)
      return static_cast<std::uint64_t>(_mm256_movemask_pd(std::bit_cast<__m256d>(m)));
#endif
    bool lanes[xsimd::batch_bool<T, A>::size];
    m.store_unaligned(lanes);
    std::uint64_t packed = 0;
    for (std::size_t i = 0; i < m.size; ++i) packed |= std::uint64_t{lanes[i]} << i;
    return packed;
  }
#endif
}

#if defined(__AVX2__) && !defined(__AVX512F__)
namespace detail {
/// Byte k of entry m: the k-th set bit of m.
inline constexpr auto set_bits = [] {
  std::array<std::uint64_t, 256> entries{};
  for (unsigned m = 0; m < 256; ++m)
    for (unsigned bit = 0, k = 0; bit < 8; ++bit)
      if (m >> bit & 1u) entries[m] |= std::uint64_t{bit} << (8 * k++);
  return entries;
}();
}  // namespace detail
#endif

/// Writes the lanes of x that `keep` marks side by side, in order, and returns how many. All `width` elements at `to`
/// must be writable: those behind the kept ones are overwritten with anything.
template <Real T>
Index compress(T* to, const mask<T>& keep, const batch<T>& x) {
#if defined(__AVX512F__)
  const std::uint64_t kept = bits(keep);
  // Compressed in a register: the form that stores to memory is microcoded on some processors.
  if constexpr (std::is_same_v<T, float>)
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(static_cast<__mmask16>(kept), x));
  else
    _mm512_storeu_pd(to, _mm512_maskz_compress_pd(static_cast<__mmask8>(kept), x));
  return std::popcount(kept);
#elif defined(__AVX2__)
  // Halves of a double move together: their mask bits are equal.
  const auto kept = static_cast<unsigned>(_mm256_movemask_ps(std::bit_cast<__m256>(keep)));
  const __m128i order = _mm_cvtsi64_si128(static_cast<std::int64_t>(detail::set_bits[kept]));
  const __m256 packed = _mm256_permutevar8x32_ps(std::bit_cast<__m256>(x), _mm256_cvtepu8_epi32(order));
  store(to, std::bit_cast<batch<T>>(packed));
  return std::popcount(kept) * 4 / static_cast<Index>(sizeof(T));
#else
  const std::uint64_t kept = bits(keep);
  T lanes[batch<T>::size];
  store(lanes, x);
  Index count = 0;
  for (Index i = 0; i < width<T>; ++i) {
    to[count] = lanes[i];
    count += static_cast<Index>(kept >> i & 1);
  }
  return count;
#endif
}

/// Sum of a[i] b[i]. Four accumulators hide the latency of the additions.
template <class T>
T dot(const T* a, const T* b, Index n) {
  constexpr Index w = width<T>;
  batch<T> s0(T{0}), s1(T{0}), s2(T{0}), s3(T{0});
  Index i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    s0 = fma(load(a + i), load(b + i), s0);
    s1 = fma(load(a + i + w), load(b + i + w), s1);
    s2 = fma(load(a + i + 2 * w), load(b + i + 2 * w), s2);
    s3 = fma(load(a + i + 3 * w), load(b + i + 3 * w), s3);
  }
  for (; i + w <= n; i += w) s0 = fma(load(a + i), load(b + i), s0);
  T sum = reduce_add((s0 + s1) + (s2 + s3));
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// to[j * to_stride + i] = from[i * from_stride + j] for one block of width x width elements. Interleaving row i with
/// row i + width/2 rotates the bits of (row, column) by one; log2(width) rounds exchange row and column.
template <Real T>
void transpose_block(const T* from, Index from_stride, T* to, Index to_stride) {
  constexpr int w = static_cast<int>(width<T>);
  typedef T Lanes __attribute__((vector_size(w * sizeof(T))));
  Lanes rows[w], next[w];
  for (int i = 0; i < w; ++i) std::memcpy(&rows[i], from + i * from_stride, sizeof(Lanes));
#if defined(__CUDACC__)  // nvcc loses the pack among the builtin's arguments
  for (int i = 0; i < w; ++i)
    for (int j = 0; j < w; ++j) next[j][i] = rows[i][j];
  for (int i = 0; i < w; ++i) rows[i] = next[i];
#else
  const auto zip = []<std::size_t... I>(const Lanes& a, const Lanes& b, int half, std::index_sequence<I...>)->Lanes {
    return half == 0 ? __builtin_shufflevector(a, b, static_cast<int>(I / 2 + (I % 2) * w)...)
                     : __builtin_shufflevector(a, b, static_cast<int>(w / 2 + I / 2 + (I % 2) * w)...);
  };
  constexpr std::make_index_sequence<w> lanes;
  for (int step = 1; step < w; step *= 2) {
    for (int i = 0; i < w / 2; ++i) {
      next[2 * i] = zip(rows[i], rows[i + w / 2], 0, lanes);
      next[2 * i + 1] = zip(rows[i], rows[i + w / 2], 1, lanes);
    }
    for (int i = 0; i < w; ++i) rows[i] = next[i];
  }
#endif
  for (int i = 0; i < w; ++i) std::memcpy(to + i * to_stride, &rows[i], sizeof(Lanes));
}

namespace detail {

/// The body works on a fixed number of elements, so that every optimisation level turns it into vectors.
inline constexpr Index convert_chunk = 16;

#if defined(__AVX2__) && !defined(__AVX512F__)  // gcc 12 makes long detours of the loops below
inline void to_float_chunk(const bfloat16* from, float* to) {
  for (Index i = 0; i < convert_chunk; i += 8) {
    const __m256i halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    _mm256_storeu_ps(to + i, _mm256_castsi256_ps(_mm256_slli_epi32(halves, 16)));
  }
}
inline void to_storage_chunk(const float* from, bfloat16* to) {
  const auto upper_halves = [](const float* x) {
    const __m256 value = _mm256_loadu_ps(x);
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), last);
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
    const __m256 unordered = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    const __m256 result = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), nan, unordered);
    return _mm256_srli_epi32(_mm256_castps_si256(result), 16);
  };
  const __m256i packed = _mm256_packus_epi32(upper_halves(from), upper_halves(from + 8));  // in quarters 0 2 1 3
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xD8));
}
#else
inline void to_float_chunk(const bfloat16* from, float* to) {
  std::uint16_t bits[convert_chunk];
  std::memcpy(bits, from, sizeof bits);
  std::uint32_t wide[convert_chunk];
  for (Index i = 0; i < convert_chunk; ++i) wide[i] = static_cast<std::uint32_t>(bits[i]) << 16;
  std::memcpy(to, wide, sizeof wide);
}
inline void to_storage_chunk(const float* from, bfloat16* to) {
  std::uint32_t wide[convert_chunk];
  std::memcpy(wide, from, sizeof wide);
  std::uint16_t bits[convert_chunk];
  for (Index i = 0; i < convert_chunk; ++i) {
    const std::uint32_t rounded = (wide[i] + 0x7FFFu + ((wide[i] >> 16) & 1u)) >> 16;
    bits[i] = static_cast<std::uint16_t>((wide[i] & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
  }
  std::memcpy(static_cast<void*>(to), bits, sizeof bits);
}
#endif

#if defined(__F16C__)
/// NaN lanes become the one NaN that to_float and round_to give, with the sign bits of `sign`.
inline __m256 canonical_nan(__m256 x, __m256 sign) {
  const __m256 nan = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)));
  return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
inline void to_float_chunk(const half* from, float* to) {
  for (Index i = 0; i < convert_chunk; i += 8) {
    const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    _mm256_storeu_ps(to + i, canonical_nan(x, _mm256_and_ps(x, _mm256_set1_ps(-0.0f))));
  }
}
inline void to_storage_chunk(const float* from, half* to) {
  for (Index i = 0; i < convert_chunk; i += 8) {
    const __m256 x = canonical_nan(_mm256_loadu_ps(from + i), _mm256_setzero_ps());
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(x, 0));
  }
}
#endif

}  // namespace detail

/// to[i] = to_float(from[i]) bit for bit, NaN included.
template <Storage F>
void convert(const F* from, float* to, Index n) {
  Index whole = 0;
  if constexpr (requires { detail::to_float_chunk(from, to); }) {
    whole = n / detail::convert_chunk * detail::convert_chunk;
    for (Index i = 0; i < whole; i += detail::convert_chunk) detail::to_float_chunk(from + i, to + i);
  }
  for (Index i = whole; i < n; ++i) to[i] = to_float(from[i]);
}

/// to[i] = round_to<F>(from[i]) bit for bit, NaN included.
template <Storage F>
void convert(const float* from, F* to, Index n) {
  Index whole = 0;
  if constexpr (requires { detail::to_storage_chunk(from, to); }) {
    whole = n / detail::convert_chunk * detail::convert_chunk;
    for (Index i = 0; i < whole; i += detail::convert_chunk) detail::to_storage_chunk(from + i, to + i);
  }
  for (Index i = whole; i < n; ++i) to[i] = round_to<F>(from[i]);
}

template <Real T>
void convert(const T* from, T* to, Index n) {
  std::copy_n(from, n, to);
}

// ---- storage formats in registers --------------------------------------------------------------------------------

/// The bit patterns of the lanes, and the lanes of bit patterns.
inline batch<std::uint32_t> bits_of(const batch<float>& x) {
  using Bits = batch<std::uint32_t>;
  if constexpr (requires {
                  { xsimd::bitwise_cast<std::uint32_t>(x) } -> std::same_as<Bits>;
                })
    return xsimd::bitwise_cast<std::uint32_t>(x);
  else
    return xsimd::bitwise_cast<Bits>(x);
}
inline batch<float> from_bits(const batch<std::uint32_t>& bits) {
  if constexpr (requires {
                  { xsimd::bitwise_cast<float>(bits) } -> std::same_as<batch<float>>;
                })
    return xsimd::bitwise_cast<float>(bits);
  else
    return xsimd::bitwise_cast<batch<float>>(bits);
}

/// 32 bits a lane from and to memory of any type.
template <class T>
batch<std::uint32_t> load_bits(const T* from) {
  return batch<std::uint32_t>::load_unaligned(reinterpret_cast<const std::uint32_t*>(from));
}
template <class T>
void store_bits(const batch<std::uint32_t>& bits, T* to) {
  bits.store_unaligned(reinterpret_cast<std::uint32_t*>(to));
}

/// The 64-bit products of the lower halves of the lanes.
inline batch<std::uint64_t> multiply_lower_halves(const batch<std::uint64_t>& a, const batch<std::uint64_t>& b) {
#if defined(__AVX512F__)
  return batch<std::uint64_t>(_mm512_mul_epu32(a, b));
#elif defined(__AVX2__)
  return batch<std::uint64_t>(_mm256_mul_epu32(a, b));
#else
  std::uint64_t x[batch<std::uint64_t>::size], y[batch<std::uint64_t>::size];
  a.store_unaligned(x);
  b.store_unaligned(y);
  for (std::size_t i = 0; i < batch<std::uint64_t>::size; ++i) x[i] = (x[i] & 0xFFFFFFFFu) * (y[i] & 0xFFFFFFFFu);
  return load(x);
#endif
}

/// NaN lanes become the canonical NaN, the others stay.
inline batch<float> canonical_nan(const batch<float>& x) {
  return xsimd::select(xsimd::isnan(x), batch<float>(std::bit_cast<float>(0x7FC00000u)),
                       x);  // xsimd 8: x != x is false
}

namespace detail {

/// The upper halves of width<float> lanes, to and from memory.
inline batch<float> load_high_halves(const bfloat16* from) {
#if defined(__AVX512F__)
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return batch<float>(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16)));
#elif defined(__AVX2__)
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return batch<float>(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16)));
#else
  std::uint16_t halves[batch<float>::size];
  std::memcpy(halves, from, sizeof halves);
  std::uint32_t bits[batch<float>::size];
  for (std::size_t i = 0; i < batch<float>::size; ++i) bits[i] = static_cast<std::uint32_t>(halves[i]) << 16;
  return from_bits(batch<std::uint32_t>::load_unaligned(bits));
#endif
}
inline void store_high_halves(bfloat16* to, const batch<float>& x) {
#if defined(__AVX512F__)
  const __m512i bits = _mm512_srli_epi32(_mm512_castps_si512(x), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(bits));
#elif defined(__AVX2__)
  const __m256i bits = _mm256_srli_epi32(_mm256_castps_si256(x), 16);
  const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
#else
  std::uint32_t bits[batch<float>::size];
  bits_of(x).store_unaligned(bits);
  std::uint16_t halves[batch<float>::size];
  for (std::size_t i = 0; i < batch<float>::size; ++i) halves[i] = static_cast<std::uint16_t>(bits[i] >> 16);
  std::memcpy(static_cast<void*>(to), halves, sizeof halves);
#endif
}

/// Rounds lanes whose NaN, if any, have their low 16 bits clear: those survive the addition. Lanes loaded from
/// bfloat16 and whatever arithmetic makes of them are such. Four integer operations with AVX-512.
inline batch<float> round_to_bfloat16(const batch<float>& x) {
  using Bits = batch<std::uint32_t>;
  const Bits bits = bits_of(x);
  // Setting the lowest bit where the kept part is odd makes a tie round up there, and changes nothing else.
  return from_bits(((bits | ((bits >> 16) & Bits(1u))) + Bits(0x7FFFu)) & Bits(0xFFFF0000u));
}

#if defined(__AVX512F__)
inline batch<float> load_half(const half* from) {
  return batch<float>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}
inline void store_half(half* to, const batch<float>& x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline batch<float> round_to_half(const batch<float>& x) {
  return batch<float>(_mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)));
}
#elif defined(__AVX2__) && defined(__F16C__)
inline batch<float> load_half(const half* from) {
  return batch<float>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
inline void store_half(half* to, const batch<float>& x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline batch<float> round_to_half(const batch<float>& x) {
  return batch<float>(_mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)));
}
#else
inline batch<float> load_half(const half* from) {
  float lanes[batch<float>::size];
  convert(from, lanes, width<float>);
  return simd::load(lanes);
}
inline void store_half(half* to, const batch<float>& x) {
  float lanes[batch<float>::size];
  x.store_unaligned(lanes);
  convert(lanes, to, width<float>);
}
inline batch<float> round_to_half(const batch<float>& x) {
  float lanes[batch<float>::size];
  x.store_unaligned(lanes);
  for (float& lane : lanes) lane = to_float(round_to<half>(lane));
  return simd::load(lanes);
}
#endif

}  // namespace detail

/// width<float> numbers of a storage format as floats, exactly.
template <Storage F>
batch<float> load(const F* from) {
  if constexpr (std::same_as<F, bfloat16>) {
    return detail::load_high_halves(from);
  } else if constexpr (std::same_as<F, half>) {
    return detail::load_half(from);
  } else {
    float lanes[batch<float>::size];
    convert(from, lanes, width<float>);
    return load(lanes);
  }
}

/// The lanes rounded to nearest, ties to even, as round_to does.
template <Storage F>
void store(F* to, const batch<float>& x) {
  if constexpr (std::same_as<F, bfloat16>) {
    detail::store_high_halves(to, detail::round_to_bfloat16(canonical_nan(x)));
  } else if constexpr (std::same_as<F, half>) {
    detail::store_half(to, canonical_nan(x));
  } else {
    float lanes[batch<float>::size];
    store(lanes, canonical_nan(x));
    convert(lanes, to, width<float>);
  }
}

}  // namespace ashlar::simd
