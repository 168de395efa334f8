// How runs of BiE blocks are encoded and decoded: the portable form and those of AVX2 and AVX-512, which give the same
// bits. Private to precision/bi_exponent.hpp.
//
// Roof: memory. A block of sixteen floats is 64 bytes on one side and 12 on the other. Everything that happens once a
// block happens for a register of blocks at once, so that neither the latency of a block nor its scalar work shows.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ashlar/core/scalar.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/block_formats.hpp"

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define ASHLAR_BI_EXPONENT_AVX512
#include <immintrin.h>
#elif defined(__AVX2__)
#define ASHLAR_BI_EXPONENT_AVX2
#include <immintrin.h>
#endif

namespace ashlar::precision {

/// What happens to an element that rounds up to 2^M.
enum class Carry {
  saturate,       ///< it becomes 2^M - 1
  bump_exponent,  ///< its group takes the next exponent, if there is one. Not idempotent. Nearest rounding only.
};

namespace detail {

/// Which kernels run: the target's, or the portable ones that every target has and the others are tested against.
struct Native {};
struct Portable {};

/// Encodes one block with shifts on the bits of x. False, with nothing usable written, if some x is not finite. The
/// loops have no branches, so that compilers make vectors of them.
template <class F, Rounding R, Carry C, Real T>
constexpr bool encode_block(const T* x, T threshold, std::uint8_t* elements, std::uint8_t* selectors,
                            std::uint8_t* exponents) {
  using Bits = typename Ieee<T>::Bits;
  constexpr int n = F::block;
  Bits magnitude[n], select[n];  // all ones for an outlier; bits of positive numbers compare as the numbers do
  const Bits limit = magnitude_bits_of(threshold);
  for (int i = 0; i < n; ++i) magnitude[i] = magnitude_bits_of(x[i]);
  for (int i = 0; i < n; ++i) select[i] = magnitude[i] >= limit ? ~Bits{0} : Bits{0};
  Bits top_normal = 0, top_outlier = 0;
  for (int i = 0; i < n; ++i) {
    const Bits normal = magnitude[i] & ~select[i], outlier = magnitude[i] & select[i];
    top_normal = normal > top_normal ? normal : top_normal;
    top_outlier = outlier > top_outlier ? outlier : top_outlier;
  }
  if (std::max(top_normal, top_outlier) >= infinity_bits<T>) return false;

  const Bits top[2] = {top_normal, top_outlier};
  int e[2];
  T first[2], second[2];  // two factors of 2^(M-1-e): one alone can leave the range of float
  for (int g = 0; g < 2; ++g) {
    e[g] = std::clamp(exponent_field<T>(top[g]), F::min_exponent, F::max_exponent);
    const auto split = [&] {
      const int shift = F::magnitude_bits - 1 - e[g];
      first[g] = power_of_two<T>(shift / 2);
      second[g] = power_of_two<T>(shift - shift / 2);
    };
    split();
    if constexpr (C == Carry::bump_exponent) {
      const int rounded = round_magnitude<R>(std::bit_cast<T>(top[g]) * first[g] * second[g], F::max_magnitude + 1);
      if (rounded > F::max_magnitude && e[g] < F::max_exponent) {
        ++e[g];
        split();
      }
    }
  }

  T scaled[n];
  for (int i = 0; i < n; ++i) {
    const auto pick = [&](const T (&unit)[2]) {
      return std::bit_cast<T>(static_cast<Bits>((std::bit_cast<Bits>(unit[0]) & ~select[i]) |
                                                (std::bit_cast<Bits>(unit[1]) & select[i])));
    };
    scaled[i] = std::bit_cast<T>(magnitude[i]) * pick(first) * pick(second);
  }
  std::int16_t q[n];
  for (int i = 0; i < n; ++i) q[i] = static_cast<std::int16_t>(round_magnitude<R>(scaled[i], F::max_magnitude));
  std::uint8_t code[n];
  for (int i = 0; i < n; ++i)
    code[i] = static_cast<std::uint8_t>(q[i] | (((x[i] < 0) & (q[i] > 0)) ? F::sign_code : 0));
  if constexpr (F::magnitude_bits <= 3) {
    for (int j = 0; j < n / 2; ++j) elements[j] = static_cast<std::uint8_t>(code[2 * j] | code[2 * j + 1] << 4);
    if constexpr (n % 2 == 1) elements[n / 2] = code[n - 1];
  } else {
    std::copy_n(code, n, elements);
  }
  for (int j = 0; j < F::selector_bytes; ++j) {
    unsigned mask = 0;
    for (int i = 8 * j; i < std::min(n, 8 * j + 8); ++i) mask |= static_cast<unsigned>(select[i] & 1) << (i % 8);
    selectors[j] = static_cast<std::uint8_t>(mask);
  }
  const int both = (e[0] + F::bias) | (e[1] + F::bias) << F::exponent_bits;
  exponents[0] = static_cast<std::uint8_t>(both & 255);
  exponents[1] = static_cast<std::uint8_t>(both >> 8);
  return true;
}

/// Sixteen elements are a register of AVX-512, two of AVX2, and the scales are far inside the range of float.
template <class F>
inline constexpr bool fits_registers = F::block == 16 && F::exponent_bits <= 6;

#if defined(ASHLAR_BI_EXPONENT_AVX512) || defined(ASHLAR_BI_EXPONENT_AVX2)
/// Sixteen nibbles as bytes, in order.
inline __m128i nibbles(const std::uint8_t* elements) {
  const __m128i pairs = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(elements)), low = _mm_set1_epi8(15);
  return _mm_unpacklo_epi8(_mm_and_si128(pairs, low), _mm_and_si128(_mm_srli_epi16(pairs, 4), low));
}

#endif

#if defined(ASHLAR_BI_EXPONENT_AVX512)

inline constexpr Index run_blocks = 16;

/// Sixteen blocks of contiguous floats. Exponents of four blocks are packed into the bytes of one register and reduced
/// together, and all that happens once a block happens for sixteen at once, which is what lifts the encoder from the
/// latency of one block to the bandwidth of memory.
template <class F, Rounding R>
bool encode_run(const float* x, float threshold, std::uint8_t* elements, std::uint8_t* selectors,
                std::uint8_t* exponents) {
  constexpr int blocks = run_blocks;
  alignas(64) std::uint16_t outlier[blocks];
  __m128i top_normal[4], top_all[4];  // exponent fields: a 32-bit lane has four bytes of one block
  for (int four = 0; four < 4; ++four) {
    __m512i normal[4], all[4];
    for (int k = 0; k < 4; ++k) {
      const int b = 4 * four + k;
      const __m512 magnitude = _mm512_abs_ps(_mm512_loadu_ps(x + 16 * b));
      const __mmask16 mask = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(threshold), _CMP_GE_OQ);
      outlier[b] = static_cast<std::uint16_t>(mask);
      all[k] = _mm512_srli_epi32(_mm512_castps_si512(magnitude), 23);
      normal[k] = _mm512_maskz_mov_epi32(static_cast<__mmask16>(~mask), all[k]);
    }
    const auto largest = [](const __m512i (&field)[4]) {
      const __m512i bytes = _mm512_packus_epi16(_mm512_packus_epi32(field[0], field[1]),
                                                _mm512_packus_epi32(field[2], field[3]));
      const __m256i half = _mm256_max_epu8(_mm512_castsi512_si256(bytes), _mm512_extracti64x4_epi64(bytes, 1));
      return _mm_max_epu8(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    };
    top_normal[four] = largest(normal);
    top_all[four] = largest(all);
  }
  const auto gather = [](const __m128i (&part)[4]) {
    __m512i v = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(part[1], part[0])),
                                   _mm256_set_m128i(part[3], part[2]), 1);
    v = _mm512_max_epu8(v, _mm512_srli_epi32(v, 16));
    v = _mm512_max_epu8(v, _mm512_srli_epi32(v, 8));
    return _mm512_and_si512(v, _mm512_set1_epi32(255));
  };
  const __m512i field_normal = gather(top_normal), field_all = gather(top_all);
  if (_mm512_cmpeq_epi32_mask(field_all, _mm512_set1_epi32(255)) != 0) return false;

  // Outliers are larger than normal elements, so where there are any the largest element is one.
  const __m256i masks = _mm256_load_si256(reinterpret_cast<const __m256i*>(outlier));
  const __m512i field_outlier =
      _mm512_maskz_mov_epi32(_mm256_test_epi16_mask(masks, masks), field_all);
  const auto clamp = [](__m512i field) {
    return _mm512_min_epi32(_mm512_max_epi32(_mm512_sub_epi32(field, _mm512_set1_epi32(127)),
                                             _mm512_set1_epi32(F::min_exponent)),
                            _mm512_set1_epi32(F::max_exponent));
  };
  const __m512i e_normal = clamp(field_normal), e_outlier = clamp(field_outlier);
  const __m512i bias = _mm512_set1_epi32(F::bias);
  const __m512i both = _mm512_or_si512(_mm512_add_epi32(e_normal, bias),
                                       _mm512_slli_epi32(_mm512_add_epi32(e_outlier, bias), F::exponent_bits));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(exponents), _mm512_cvtepi32_epi16(both));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(selectors), masks);
  alignas(64) float scale_normal[blocks], scale_outlier[blocks];
  const auto scale = [](__m512i e) {
    return _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(F::magnitude_bits - 1 + 127), e), 23);
  };
  _mm512_store_si512(scale_normal, scale(e_normal));
  _mm512_store_si512(scale_outlier, scale(e_outlier));

  constexpr int mode = (R == Rounding::truncate ? _MM_FROUND_TO_ZERO : _MM_FROUND_TO_NEAREST_INT) | _MM_FROUND_NO_EXC;
  for (int four = 0; four < 4; ++four) {
    __m512i q[4];
    for (int k = 0; k < 4; ++k) {
      const int b = 4 * four + k;
      const __m512 unit =
          _mm512_mask_mov_ps(_mm512_set1_ps(scale_normal[b]), outlier[b], _mm512_set1_ps(scale_outlier[b]));
      const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x + 16 * b), unit);
      // The smaller magnitude of the two, with the sign of the first.
      const __m512 clamped = _mm512_range_ps(scaled, _mm512_set1_ps(static_cast<float>(F::max_magnitude)), 2);
      q[k] = _mm512_cvt_roundps_epi32(clamped, mode);
    }
    // Packing interleaves the blocks in every 128 bits; one permutation puts the sixteen bytes of each together.
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes = _mm512_permutexvar_epi32(
        order, _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3])));
    if constexpr (F::magnitude_bits <= 3) {
      const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 0, 15, 14, 13, 12, 11, 10, 9));
      const __m512i codes = _mm512_shuffle_epi8(table, _mm512_and_si512(bytes, _mm512_set1_epi8(15)));
      const __m512i pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(1 | 16 << 8));  // even + 16 odd
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(elements + 32 * four), _mm512_cvtepi16_epi8(pairs));
    } else {
      const __m512i magnitude = _mm512_abs_epi8(bytes);
      const __m512i sign = _mm512_maskz_set1_epi8(_mm512_movepi8_mask(bytes), static_cast<char>(128));
      _mm512_storeu_si512(elements + 64 * four, _mm512_or_si512(magnitude, sign));
    }
  }
  return true;
}

/// Sixteen floats of a block: the nibbles index a table of -7 .. 7, the selectors pick the unit.
template <class F>
__m512 decode_block(const std::uint8_t* elements, std::uint16_t mask, std::uint16_t both) {
  const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 0, -1, -2, -3, -4, -5, -6, -7);
  const __m512 value = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(nibbles(elements)), table);
  constexpr int field = (1 << F::exponent_bits) - 1, shift = 127 - F::bias - (F::magnitude_bits - 1);
  const __m512i unit =
      _mm512_mask_blend_epi32(mask, _mm512_set1_epi32(((both & field) + shift) << 23),
                              _mm512_set1_epi32(((both >> F::exponent_bits & field) + shift) << 23));
  return _mm512_mul_ps(value, _mm512_castsi512_ps(unit));
}

template <class F>
void decode_run(const std::uint8_t* elements, const std::uint8_t* selectors, const std::uint8_t* exponents, Index count,
                float* to) {
  for (Index b = 0; b < count; ++b) {
    std::uint16_t mask, both;
    std::memcpy(&mask, selectors + 2 * b, 2);
    std::memcpy(&both, exponents + 2 * b, 2);
    _mm512_storeu_ps(to + 16 * b, decode_block<F>(elements + 8 * b, mask, both));
  }
}

#elif defined(ASHLAR_BI_EXPONENT_AVX2)

inline constexpr Index run_blocks = 8;

/// Eight blocks of contiguous floats; false if an element is not finite. Exponents of four blocks are packed into the
/// bytes of one register and reduced together.
template <class F, Rounding R>
bool encode_run(const float* x, float threshold, std::uint8_t* elements, std::uint8_t* selectors,
                std::uint8_t* exponents) {
  constexpr int blocks = run_blocks;
  const __m256 limit = _mm256_set1_ps(threshold), no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  const auto outliers = [&](__m256 v) { return _mm256_cmp_ps(_mm256_and_ps(v, no_sign), limit, _CMP_GE_OQ); };
  std::uint16_t outlier[blocks];
  __m128i top_normal[2], top_all[2];  // exponent fields: a 32-bit lane has four bytes of one block
  for (int four = 0; four < 2; ++four) {
    __m256i normal[4], all[4];
    for (int k = 0; k < 4; ++k) {
      const int b = 4 * four + k;
      const __m256 v0 = _mm256_loadu_ps(x + 16 * b), v1 = _mm256_loadu_ps(x + 16 * b + 8);
      const __m256 mask0 = outliers(v0), mask1 = outliers(v1);
      outlier[b] = static_cast<std::uint16_t>(_mm256_movemask_ps(mask0) | _mm256_movemask_ps(mask1) << 8);
      const auto larger = [](__m256 a, __m256 c) {
        return _mm256_srli_epi32(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(c)), 23);
      };
      const __m256 magnitude0 = _mm256_and_ps(v0, no_sign), magnitude1 = _mm256_and_ps(v1, no_sign);
      all[k] = larger(magnitude0, magnitude1);
      normal[k] = larger(_mm256_andnot_ps(mask0, magnitude0), _mm256_andnot_ps(mask1, magnitude1));
    }
    const auto largest = [](const __m256i (&field)[4]) {
      const __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(field[0], field[1]),
                                                _mm256_packus_epi32(field[2], field[3]));
      return _mm_max_epu8(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    };
    top_normal[four] = largest(normal);
    top_all[four] = largest(all);
  }
  const auto gather = [](const __m128i (&part)[2]) {
    __m256i v = _mm256_set_m128i(part[1], part[0]);
    v = _mm256_max_epu8(v, _mm256_srli_epi32(v, 16));
    v = _mm256_max_epu8(v, _mm256_srli_epi32(v, 8));
    return _mm256_and_si256(v, _mm256_set1_epi32(255));
  };
  const __m256i field_normal = gather(top_normal), field_all = gather(top_all);
  if (_mm256_movemask_epi8(_mm256_cmpeq_epi32(field_all, _mm256_set1_epi32(255))) != 0) return false;

  // Outliers are larger than normal elements, so where there are any the largest element is one.
  __m128i masks;
  std::memcpy(&masks, outlier, sizeof masks);
  const __m256i none = _mm256_cmpeq_epi32(_mm256_cvtepu16_epi32(masks), _mm256_setzero_si256());
  const __m256i field_outlier = _mm256_andnot_si256(none, field_all);
  const auto clamp = [](__m256i field) {
    return _mm256_min_epi32(_mm256_max_epi32(_mm256_sub_epi32(field, _mm256_set1_epi32(127)),
                                             _mm256_set1_epi32(F::min_exponent)),
                            _mm256_set1_epi32(F::max_exponent));
  };
  const __m256i e_normal = clamp(field_normal), e_outlier = clamp(field_outlier), bias = _mm256_set1_epi32(F::bias);
  const __m256i both = _mm256_or_si256(_mm256_add_epi32(e_normal, bias),
                                       _mm256_slli_epi32(_mm256_add_epi32(e_outlier, bias), F::exponent_bits));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(exponents),
                   _mm_packus_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(selectors), masks);
  alignas(32) float scale_normal[blocks], scale_outlier[blocks];
  const auto store_scale = [](float* to, __m256i e) {
    _mm256_store_ps(to, _mm256_castsi256_ps(_mm256_slli_epi32(
                            _mm256_sub_epi32(_mm256_set1_epi32(F::magnitude_bits - 1 + 127), e), 23)));
  };
  store_scale(scale_normal, e_normal);
  store_scale(scale_outlier, e_outlier);

  /// Eight elements as integers. Large positive ones saturate here; negative ones past the range of an integer become
  /// its smallest and saturate with the rest where they are packed.
  const auto quantized = [&](const float* from, int b) {
    const __m256 v = _mm256_loadu_ps(from);
    const __m256 unit =
        _mm256_blendv_ps(_mm256_broadcast_ss(scale_normal + b), _mm256_broadcast_ss(scale_outlier + b), outliers(v));
    const __m256 scaled =
        _mm256_min_ps(_mm256_mul_ps(v, unit), _mm256_set1_ps(static_cast<float>(F::max_magnitude)));
    return R == Rounding::truncate ? _mm256_cvttps_epi32(scaled) : _mm256_cvtps_epi32(scaled);
  };
  const auto words = [&](int b) {
    return _mm256_packs_epi32(quantized(x + 16 * b, b), quantized(x + 16 * b + 8, b));
  };
  // Packing interleaves two blocks; one permutation puts the sixteen bytes of each together.
  const auto two_blocks = [&](int b, int c) {
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words(b), words(c)),
                                                      _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    return _mm256_max_epi8(bytes, _mm256_set1_epi8(-F::max_magnitude));
  };
  for (int b = 0; b < blocks; b += 4) {
    if constexpr (F::magnitude_bits <= 3) {
      const auto pairs = [&](__m256i bytes) {
        const __m256i table =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 0, 15, 14, 13, 12, 11, 10, 9));
        const __m256i codes = _mm256_shuffle_epi8(table, _mm256_and_si256(bytes, _mm256_set1_epi8(15)));
        return _mm256_maddubs_epi16(codes, _mm256_set1_epi16(1 | 16 << 8));  // even + 16 odd
      };
      const __m256i outer = pairs(two_blocks(b, b + 2)), inner = pairs(two_blocks(b + 1, b + 3));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(elements + 8 * b), _mm256_packus_epi16(outer, inner));
    } else {
      for (int c = b; c < b + 4; c += 2) {
        const __m256i bytes = two_blocks(c, c + 1), sign = _mm256_set1_epi8(static_cast<char>(F::sign_code));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(elements + 16 * c),
                            _mm256_or_si256(_mm256_abs_epi8(bytes), _mm256_and_si256(bytes, sign)));
      }
    }
  }
  return true;
}

/// `count` blocks of at most three magnitude bits, into contiguous floats. Three bits of a nibble index a table of
/// 0 .. 7, the fourth is the sign; the selector, shifted to the sign bit of its lane, picks the unit.
template <class F>
void decode_run(const std::uint8_t* elements, const std::uint8_t* selectors, const std::uint8_t* exponents, Index count,
                float* to) {
  const __m256 table = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i nibble = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i low = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
  const __m256i high = _mm256_sub_epi32(low, _mm256_set1_epi32(8));
  const __m256i sign = _mm256_set1_epi32(static_cast<int>(0x80000000u));
  constexpr int field = (1 << F::exponent_bits) - 1, shift = 127 - F::bias - (F::magnitude_bits - 1);
  for (Index b = 0; b < count; ++b) {
    std::uint16_t mask, both;
    std::int32_t codes[2];
    std::memcpy(&mask, selectors + 2 * b, 2);
    std::memcpy(&both, exponents + 2 * b, 2);
    std::memcpy(codes, elements + 8 * b, 8);
    const auto unit = [](int e) { return _mm256_castsi256_ps(_mm256_set1_epi32((e + shift) << 23)); };
    const __m256 normal = unit(both & field), outlier = unit(both >> F::exponent_bits & field);
    const __m256i select = _mm256_set1_epi32(mask);
    const auto eight = [&](std::int32_t code, __m256i selector) {
      const __m256i lanes = _mm256_srlv_epi32(_mm256_set1_epi32(code), nibble);
      const __m256 magnitude = _mm256_permutevar8x32_ps(table, lanes);
      const __m256 negative = _mm256_castsi256_ps(_mm256_and_si256(_mm256_slli_epi32(lanes, 28), sign));
      const __m256 scale =
          _mm256_blendv_ps(normal, outlier, _mm256_castsi256_ps(_mm256_sllv_epi32(select, selector)));
      return _mm256_mul_ps(_mm256_xor_ps(magnitude, negative), scale);
    };
    _mm256_storeu_ps(to + 16 * b, eight(codes[0], low));
    _mm256_storeu_ps(to + 16 * b + 8, eight(codes[1], high));
  }
}

#endif

/// Encodes a run of blocks at a time.
template <class F, Rounding R, Carry C, class Path, Real T>
struct Encoder {
#if defined(ASHLAR_BI_EXPONENT_AVX512) || defined(ASHLAR_BI_EXPONENT_AVX2)
  static constexpr bool vectors = std::is_same_v<T, float> && std::is_same_v<Path, Native> && fits_registers<F> &&
                                  C == Carry::saturate;
  static constexpr Index blocks = vectors ? run_blocks : 1;
#else
  static constexpr Index blocks = 1;
#endif

  /// Exactly `blocks` blocks of contiguous numbers; false if an element is not finite.
  static bool run(const T* x, T threshold, std::uint8_t* elements, std::uint8_t* selectors, std::uint8_t* exponents) {
#if defined(ASHLAR_BI_EXPONENT_AVX512) || defined(ASHLAR_BI_EXPONENT_AVX2)
    if constexpr (vectors) return encode_run<F, R>(x, threshold, elements, selectors, exponents);
#endif
    return encode_block<F, R, C>(x, threshold, elements, selectors, exponents);
  }
};

}  // namespace detail
}  // namespace ashlar::precision
