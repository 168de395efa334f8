// One row of y = W x on packed BiE blocks: the four sums in 8-bit lanes. Private to precision/bi_exponent_product.hpp.
//
// Four blocks of sixteen elements are a group of 64, and its sixteen lanes are quarters of blocks. With u_i = q_i + 8
// for a weight, which is positive, and u'_i = t_i q_i + 8 for its outliers alone, unsigned times signed dot products
// give D = sum u x and D' = sum u' x; then S_o = D' - 8 sum x and S_n = D - D'. x comes as two planes, normal and
// outliers.
//
// Roof: 12 bytes a block from memory; a core of AVX2 meets it at about 14 instructions a block.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/bi_exponent.hpp"
#include "ashlar/precision/detail/bi_exponent_gemm.hpp"

namespace ashlar::precision::detail {

inline constexpr Index lanes = 16, group = 64, group_blocks = 4;

/// FW can take the 8-bit form; other formats take gemm with one row.
template <class FX, class FW>
inline constexpr bool fast_gemv = FW::block == 16 && FX::block == 16 && FW::magnitude_bits <= 3 &&
                                  narrow_exponents<FW> && narrow_exponents<FX>;

/// The bits of 2^(e - (M_x-1) - (M_w-1) - bias_w).
template <class FX, class FW>
constexpr std::int32_t operand_unit(int e) {
  return (e - (FX::magnitude_bits - 1) - (FW::magnitude_bits - 1) - FW::bias + 127) << 23;
}

/// x, quantised, in the form the rows of W meet it on each path: values of the normal elements and of the outliers
/// apart, zero elsewhere.
template <class Path>
struct GemvOperand {
  Tensor<std::int8_t> values[2];        ///< +-q: [groups, 64]
  Tensor<std::int32_t> correction[2];   ///< -8 sum x over the four elements of a lane: [groups, 16]
  Tensor<std::int32_t> unit_bits[2];    ///< the bits of 2^(e^x_u - (M_x-1) - (M_w-1) - bias_w): [groups, 16]

  template <class FW, class FX>
  void fill(const BiExponentMatrix<FX>& x) {
    const Index groups = ceil_div(x.blocks(), group_blocks);
    for (std::size_t u = 0; u < 2; ++u) {
      const auto fit = [](auto& tensor, Index rows, Index cols) {
        if (tensor.size() != rows * cols) tensor = std::remove_reference_t<decltype(tensor)>({rows, cols});
        std::fill_n(tensor.data(), rows * cols, 0);
      };
      fit(values[u], groups, group);
      fit(correction[u], groups, lanes);
      fit(unit_bits[u], groups, lanes);
      for (Index b = 0; b < x.blocks(); ++b) {
        const auto block = x.block(0, b);
        for (Index i = 0; i < FX::block; ++i) {
          const int value = block.outlier(i) == (u == 1) ? block.value(i) : 0;
          values[u].data()[b * 16 + i] = static_cast<std::int8_t>(value);
          correction[u].data()[b * 4 + i / 4] -= 8 * value;
          unit_bits[u].data()[b * 4 + i / 4] = operand_unit<FX, FW>(block.exponent(u == 1));
        }
      }
    }
  }
};

/// The order of additions every form keeps: sixteen lanes a type pair, pairs nn + no + on + oo, then halves.
inline float sum_lanes(float (&sum)[4][lanes]) {
  float s[lanes];
  for (Index l = 0; l < lanes; ++l) s[l] = (sum[0][l] + sum[1][l]) + (sum[2][l] + sum[3][l]);
  for (Index half = lanes / 2; half > 0; half /= 2)
    for (Index l = 0; l < half; ++l) s[l] += s[l + half];
  return s[0];
}

/// The portable form.
template <class Path, class FW>
float gemv_row(const GemvOperand<Path>& x, const BiExponentMatrix<FW>& w, Index row) {
  float sum[4][lanes] = {};
  for (Index b = 0; b < w.blocks(); ++b) {
    const auto block = w.block(row, b);
    std::int16_t value[16], outlier[16];
    unpack_block(block, value, outlier);
    for (Index u = 0; u < 2; ++u) {
      const std::int8_t* xs = x.values[u].data() + b * 16;
      std::int32_t normal[16], of_outliers[16];
      for (Index i = 0; i < 16; ++i) {
        const std::int32_t product = xs[i] * value[i];
        of_outliers[i] = product & outlier[i];
        normal[i] = product - of_outliers[i];
      }
      for (Index v = 0; v < 2; ++v) {
        const std::int32_t* p = v == 0 ? normal : of_outliers;
        const std::int32_t e_bits = (block.exponent(v == 1) + FW::bias) << 23;
        for (Index quarter = 0; quarter < 4; ++quarter) {
          const std::int32_t partial = p[4 * quarter] + p[4 * quarter + 1] + p[4 * quarter + 2] + p[4 * quarter + 3];
          const float unit = std::bit_cast<float>(x.unit_bits[u].data()[b * 4 + quarter] + e_bits);
          sum[2 * u + v][b % group_blocks * 4 + quarter] += static_cast<float>(partial) * unit;
        }
      }
    }
  }
  return sum_lanes(sum);
}

#if defined(ASHLAR_BI_EXPONENT_VNNI)

/// Four blocks of a row of W as they lie in memory.
struct PackedGroup {
  __m256i elements;
  __mmask64 outliers;
  std::uint64_t exponents;
};

template <int E>
inline void multiply_group(const PackedGroup& w, const GemvOperand<Native>& x, Index g, __m512 (&sum)[4]) {
  // Nibbles to bytes: the low one stays, the high one moves to the byte above.
  const __m512i wide = _mm512_cvtepu8_epi16(w.elements);
  const __m512i codes =
      _mm512_and_si512(_mm512_or_si512(wide, _mm512_slli_epi16(wide, 4)), _mm512_set1_epi8(15));
  const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(8, 9, 10, 11, 12, 13, 14, 15, 8, 7, 6, 5, 4, 3, 2, 1));
  const __m512i all = _mm512_shuffle_epi8(table, codes);  // q + 8
  const __m512i outliers = _mm512_mask_mov_epi8(_mm512_set1_epi8(8), w.outliers, all);
  // Each 16-bit word with two exponents to the four lanes of its block.
  const __m512i spread = _mm512_set_epi8(
      7, 6, 7, 6, 7, 6, 7, 6, 7, 6, 7, 6, 7, 6, 7, 6, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4,  //
      3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0);
  const __m512i both =
      _mm512_shuffle_epi8(_mm512_set1_epi64(static_cast<long long>(w.exponents)), spread);
  const __m512i e_normal = _mm512_srli_epi32(_mm512_slli_epi32(both, 32 - E), 9 - E);
  const __m512i e_outlier = _mm512_slli_epi32(_mm512_srli_epi32(_mm512_slli_epi32(both, 32 - 2 * E), 32 - E), 23);
  for (int u = 0; u < 2; ++u) {
    const __m512i values = _mm512_loadu_si512(x.values[u].data() + g * group);
    const __m512i correction = _mm512_loadu_si512(x.correction[u].data() + g * lanes);
    const __m512i unit = _mm512_loadu_si512(x.unit_bits[u].data() + g * lanes);
    const __m512i d = _mm512_dpbusd_epi32(correction, all, values);
    const __m512i s_outlier = _mm512_dpbusd_epi32(correction, outliers, values);
    const __m512i s_normal = _mm512_sub_epi32(d, s_outlier);
    sum[2 * u] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s_normal), _mm512_castsi512_ps(_mm512_add_epi32(unit, e_normal)),
                                 sum[2 * u]);
    sum[2 * u + 1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s_outlier),
                                     _mm512_castsi512_ps(_mm512_add_epi32(unit, e_outlier)), sum[2 * u + 1]);
  }
}

template <class FW>
float gemv_row(const GemvOperand<Native>& x, const BiExponentMatrix<FW>& w, Index row) {
  __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  const std::uint8_t *elements = w.elements(row, 0), *selectors = w.selectors(row, 0), *exponents = w.exponents(row, 0);
  const Index groups = w.blocks() / group_blocks, rest = w.blocks() % group_blocks;
  PackedGroup packed;
  for (Index g = 0; g < groups; ++g) {
    packed.elements = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(elements + 32 * g));
    std::memcpy(&packed.outliers, selectors + 8 * g, 8);
    std::memcpy(&packed.exponents, exponents + 8 * g, 8);
    multiply_group<FW::exponent_bits>(packed, x, g, sum);
  }
  if (rest > 0) {
    packed.elements = _mm256_maskz_loadu_epi8((1u << (8 * rest)) - 1, elements + 32 * groups);
    packed.outliers = 0, packed.exponents = 0;
    std::memcpy(&packed.outliers, selectors + 8 * groups, static_cast<std::size_t>(2 * rest));
    std::memcpy(&packed.exponents, exponents + 8 * groups, static_cast<std::size_t>(2 * rest));
    multiply_group<FW::exponent_bits>(packed, x, groups, sum);
  }
  alignas(64) float all[4][lanes];
  for (int p = 0; p < 4; ++p) _mm512_store_ps(all[p], sum[p]);
  return sum_lanes(all);
}

#elif defined(ASHLAR_BI_EXPONENT_FMA)

/// Four blocks of x. Even elements meet the low nibbles of W as they lie, odd ones the high nibbles; their products,
/// added in 16 bits, are the sums of the sixteen lanes.
struct GemvGroup {
  alignas(32) std::int8_t even[2][32] = {}, odd[2][32] = {};
  std::int16_t correction[2][lanes] = {};  ///< -8 sum x over the four elements of a lane
  std::int32_t unit_bits[2][8] = {};       ///< for two lanes: they are of one block
  bool outliers = false;                   ///< without any, half of the work would add zeros
};

template <>
struct GemvOperand<Native> {
  std::vector<GemvGroup> groups;

  template <class FW, class FX>
  void fill(const BiExponentMatrix<FX>& x) {
    groups.assign(static_cast<std::size_t>(ceil_div(x.blocks(), group_blocks)), GemvGroup{});
    for (Index b = 0; b < x.blocks(); ++b) {
      const auto block = x.block(0, b);
      auto& to = groups[static_cast<std::size_t>(b / group_blocks)];
      const Index at = b % group_blocks;
      for (Index i = 0; i < FX::block; ++i) {
        const bool u = block.outlier(i);
        const int value = block.value(i);
        (i % 2 == 0 ? to.even : to.odd)[u][8 * at + i / 2] = static_cast<std::int8_t>(value);
        auto& correction = to.correction[u][4 * at + i / 4];
        correction = static_cast<std::int16_t>(correction - 8 * value);
        to.outliers |= u && value != 0;
      }
      for (const bool u : {false, true})
        to.unit_bits[u][2 * at] = to.unit_bits[u][2 * at + 1] = operand_unit<FX, FW>(block.exponent(u));
    }
  }
};

/// The sums of one type pair.
struct LaneSums {
  __m256 even = _mm256_setzero_ps(), odd = _mm256_setzero_ps();
};

template <int E>
inline void multiply_group(const std::uint8_t* elements, std::int64_t selectors, std::int64_t exponents,
                           const GemvGroup& x, LaneSums (&sum)[4]) {
  const __m256i nibbles = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(elements)), low = _mm256_set1_epi8(15);
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(8, 9, 10, 11, 12, 13, 14, 15, 8, 7, 6, 5, 4, 3, 2, 1));  // q + 8
  const __m256i even = _mm256_shuffle_epi8(table, _mm256_and_si256(nibbles, low));
  const __m256i odd = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(nibbles, 4), low));
  // Each byte gets the eight selectors it belongs to; what is no outlier becomes 8.
  const __m256i bytes = _mm256_shuffle_epi8(
      _mm256_set1_epi64x(selectors),
      _mm256_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707));
  const auto outliers = [&](__m256i weights, int four_bits) {
    const __m256i bit = _mm256_set1_epi32(four_bits);
    return _mm256_blendv_epi8(_mm256_set1_epi8(8), weights, _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit));
  };
  const __m256i even_outliers = outliers(even, 0x40100401);
  const __m256i odd_outliers = outliers(odd, static_cast<int>(0x80200802u));
  // The word with two exponents to the lanes of its block.
  constexpr int none = static_cast<int>(0x80800000u);
  const __m256i both = _mm256_shuffle_epi8(
      _mm256_set1_epi64x(exponents),
      _mm256_setr_epi32(none | 0x0100, none | 0x0100, none | 0x0302, none | 0x0302, none | 0x0504, none | 0x0504,
                        none | 0x0706, none | 0x0706));
  constexpr int field = (1 << E) - 1;
  const __m256i e_normal = _mm256_slli_epi32(_mm256_and_si256(both, _mm256_set1_epi32(field)), 23);
  const __m256i e_outlier = _mm256_slli_epi32(_mm256_and_si256(both, _mm256_set1_epi32(field << E)), 23 - E);
  const auto at = [](const auto* from) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(from)); };
  const auto add = [](LaneSums& to, __m256i words, __m256i unit_bits) {
    const __m256 unit = _mm256_castsi256_ps(unit_bits);
    to.even = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(words, _mm256_set1_epi32(1))), unit, to.even);
    to.odd = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(words, 16)), unit, to.odd);
  };
  const auto multiply = [&](int u) {
    const __m256i x_even = at(x.even[u]), x_odd = at(x.odd[u]), unit = at(x.unit_bits[u]);
    const __m256i d = _mm256_add_epi16(_mm256_maddubs_epi16(even, x_even), _mm256_maddubs_epi16(odd, x_odd));
    const __m256i d_outlier =
        _mm256_add_epi16(_mm256_maddubs_epi16(even_outliers, x_even), _mm256_maddubs_epi16(odd_outliers, x_odd));
    add(sum[2 * u], _mm256_sub_epi16(d, d_outlier), _mm256_add_epi32(unit, e_normal));
    add(sum[2 * u + 1], _mm256_add_epi16(d_outlier, at(x.correction[u])), _mm256_add_epi32(unit, e_outlier));
  };
  multiply(0);
  if (x.outliers) multiply(1);
}

template <class FW>
float gemv_row(const GemvOperand<Native>& x, const BiExponentMatrix<FW>& w, Index row) {
  LaneSums sum[4];
  const std::uint8_t *elements = w.elements(row, 0), *selectors = w.selectors(row, 0), *exponents = w.exponents(row, 0);
  const Index groups = w.blocks() / group_blocks, rest = w.blocks() % group_blocks;
  std::int64_t mask, both;
  for (Index g = 0; g < groups; ++g) {
    std::memcpy(&mask, selectors + 8 * g, 8);
    std::memcpy(&both, exponents + 8 * g, 8);
    multiply_group<FW::exponent_bits>(elements + 32 * g, mask, both, x.groups[static_cast<std::size_t>(g)], sum);
  }
  if (rest > 0) {
    std::uint8_t last[32] = {};
    mask = both = 0;
    std::memcpy(last, elements + 32 * groups, static_cast<std::size_t>(8 * rest));
    std::memcpy(&mask, selectors + 8 * groups, static_cast<std::size_t>(2 * rest));
    std::memcpy(&both, exponents + 8 * groups, static_cast<std::size_t>(2 * rest));
    multiply_group<FW::exponent_bits>(last, mask, both, x.groups.back(), sum);
  }
  // sum_lanes: its halvings leave even and odd lanes apart until the last.
  const auto total = [&](__m256 LaneSums::*lane) {
    const __m256 normal = _mm256_add_ps(sum[0].*lane, sum[1].*lane);
    const __m256 s = _mm256_add_ps(normal, _mm256_add_ps(sum[2].*lane, sum[3].*lane));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  };
  return total(&LaneSums::even) + total(&LaneSums::odd);
}

#endif

}  // namespace ashlar::precision::detail
