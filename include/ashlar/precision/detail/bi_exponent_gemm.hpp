// Products of panels: rows of packed BiE matrices decoded to the shift form and multiplied in 16-bit lanes. Private to
// precision/bi_exponent_product.hpp.
//
// Roof: the integer units. A register tile keeps its integer sums through a block; the float sums take one fused
// multiply-add a block and output.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "ashlar/core/parallel.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/bi_exponent.hpp"

#if defined(ASHLAR_BI_EXPONENT_AVX512) && defined(__AVX512VNNI__)
#define ASHLAR_BI_EXPONENT_VNNI
#elif defined(__AVX2__) && defined(__FMA__)
#define ASHLAR_BI_EXPONENT_FMA
#include <immintrin.h>
#endif

namespace ashlar::precision::detail {

/// Elements as +-q and selectors as 0 or -1 (all ones), in loops that compilers make vectors of.
template <class F>
void unpack_block(const BiExponentBytes<F>& block, std::int16_t (&value)[F::block], std::int16_t (&outlier)[F::block]) {
  constexpr int n = F::block;
  std::uint8_t code[n];
  if constexpr (F::magnitude_bits <= 3) {
    for (int j = 0; j < n / 2; ++j) {
      code[2 * j] = block.elements[j] & 15;
      code[2 * j + 1] = static_cast<std::uint8_t>(block.elements[j] >> 4);
    }
    if constexpr (n % 2 == 1) code[n - 1] = block.elements[n / 2] & 15;
  } else {
    std::copy_n(block.elements, n, code);
  }
  for (int i = 0; i < n; ++i) {
    const int q = code[i] & F::max_magnitude, negative = -((code[i] & F::sign_code) / F::sign_code);
    value[i] = static_cast<std::int16_t>((q ^ negative) - negative);
  }
  for (int i = 0; i < n; ++i) outlier[i] = static_cast<std::int16_t>(-(block.selectors[i / 8] >> (i % 8) & 1));
}

/// The products of the powers of two stay far inside the range of float: sums go to float, otherwise to double.
template <class F>
inline constexpr bool narrow_exponents = F::exponent_bits <= 6;
template <class FA, class FW>
using product_sum_t = std::conditional_t<narrow_exponents<FA> && narrow_exponents<FW>, float, double>;

/// The largest shift of either operand for which q~ fits 16 bits and a block sum 32:
/// n (q_a 2^d)(q_w 2^d) < 2^31.
template <class FA, class FW>
constexpr int shift_limit() {
  int limit = 0;
  const auto fits = [](int d) {
    const double a = FA::max_magnitude * power_of_two<double>(d), w = FW::max_magnitude * power_of_two<double>(d);
    return a <= 32767 && w <= 32767 && FA::block * a * w < 2147483648.0;
  };
  while (fits(limit + 1)) ++limit;
  return limit;
}

/// Some rows of a packed matrix in the shift form, interleaved so that two elements of each row lie together:
/// values [entry][pair of elements][row][2], units [entry][row]. A block takes one entry, or two if some row of it was
/// split.
template <class Sum>
struct Panel {
  std::vector<std::int16_t> values;
  std::vector<Sum> units;       ///< 2^(e - (M-1))
  std::vector<Index> first;     ///< entries of block b: first[b] .. first[b+1]-1

  void reserve(Index blocks, Index pairs, Index panel_rows) {
    const auto entries = static_cast<std::size_t>(2 * blocks);
    grow(values, entries * static_cast<std::size_t>(pairs * panel_rows * 2));
    grow(units, entries * static_cast<std::size_t>(panel_rows));
    grow(first, static_cast<std::size_t>(blocks + 1));
  }

 private:
  template <class V>
  static void grow(V& v, std::size_t size) {
    if (v.size() < size) v.resize(size);
  }
};

template <class F>
constexpr Index pairs_of = (F::block + 1) / 2;

/// A block on the grid its products need: values q~ 2^(exponent - (M-1)), or, split, its outliers and its normal
/// elements on the grid of each.
template <class F>
struct ShiftedBlock {
  alignas(64) std::int16_t values[2 * pairs_of<F>];
  alignas(64) std::int16_t normal[2 * pairs_of<F>];  ///< if split
  int exponent, normal_exponent;
  bool split;
};

/// Decides shift or split. `used`: which groups have non-zero elements; a group without has no meaningful exponent.
template <class F>
int choose_shift(const BiExponentBytes<F>& block, bool used_normal, bool used_outlier, int limit,
                 ShiftedBlock<F>& out) {
  const int normal = block.exponent(false), outlier = block.exponent(true);
  const int shift = used_normal && used_outlier ? outlier - normal : 0;
  out.split = shift < 0 || shift > limit;
  out.exponent = used_normal && !out.split ? normal : outlier;
  out.normal_exponent = normal;
  return out.split ? 0 : shift;
}

template <class F>
void decode_shifted(Portable, const BiExponentBytes<F>& block, int limit, ShiftedBlock<F>& out) {
  constexpr int n = F::block;
  std::int16_t value[n], outlier[n];
  unpack_block(block, value, outlier);
  int used_normal = 0, used_outlier = 0;
  for (int i = 0; i < n; ++i) {
    used_normal |= value[i] & ~outlier[i];
    used_outlier |= value[i] & outlier[i];
  }
  const int shift = choose_shift(block, used_normal != 0, used_outlier != 0, limit, out);
  const int keep_normal = out.split ? 0 : -1, scale = 1 << shift;
  for (int i = 0; i < n; ++i)
    out.values[i] = static_cast<std::int16_t>((value[i] & outlier[i]) * scale + (value[i] & ~outlier[i] & keep_normal));
  for (int i = 0; i < n; ++i) out.normal[i] = static_cast<std::int16_t>(value[i] & ~outlier[i]);
}

template <class F>
void decode_shifted(Native, const BiExponentBytes<F>& block, int limit, ShiftedBlock<F>& out) {
#if defined(ASHLAR_BI_EXPONENT_AVX512) || defined(ASHLAR_BI_EXPONENT_AVX2)
  if constexpr (F::block == 16 && F::magnitude_bits <= 3) {
    const __m128i table = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 0, -1, -2, -3, -4, -5, -6, -7);
    const __m128i value = _mm_shuffle_epi8(table, nibbles(block.elements));
    const __m256i wide = _mm256_cvtepi8_epi16(value);
    std::uint16_t outlier;
    std::memcpy(&outlier, block.selectors, 2);
    const int zero = _mm_movemask_epi8(_mm_cmpeq_epi8(value, _mm_setzero_si128())), nonzero = zero ^ 0xFFFF;
    const int shift = choose_shift(block, (nonzero & ~outlier) != 0, (nonzero & outlier) != 0, limit, out);
#if defined(ASHLAR_BI_EXPONENT_AVX512)
    const auto normal = static_cast<__mmask16>(~outlier);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.values),
                       out.split ? _mm256_maskz_mov_epi16(outlier, wide)
                                 : _mm256_mask_sll_epi16(wide, outlier, wide, _mm_cvtsi32_si128(shift)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.normal), _mm256_maskz_mov_epi16(normal, wide));
#else
    const __m256i bit =
        _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
    const __m256i select =
        _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16(static_cast<short>(outlier)), bit), bit);
    const __m256i normal = _mm256_andnot_si256(select, wide), kept = out.split ? _mm256_setzero_si256() : normal;
    const __m256i shifted = _mm256_sll_epi16(_mm256_and_si256(select, wide), _mm_cvtsi32_si128(shift));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.values), _mm256_or_si256(shifted, kept));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.normal), normal);
#endif
    return;
  }
#endif
  decode_shifted(Portable{}, block, limit, out);
}

/// Decodes rows row .. row+count-1. Nobody reads what the rest of the panel gives.
template <Index Rows, class Path, class F, class Sum>
void fill_panel(Path path, const BiExponentMatrix<F>& packed, Index row, Index count, int limit, Panel<Sum>& panel) {
  constexpr Index pairs = pairs_of<F>, entry_size = pairs * Rows * 2;
  const auto unit = [](int e) { return power_of_two<Sum>(e - (F::magnitude_bits - 1)); };
  // Pairs move as one 32-bit word.
  const auto put_row = [](const std::int16_t* from, std::int16_t* to) {
    for (Index p = 0; p < pairs; ++p) std::memcpy(to + p * Rows * 2, from + 2 * p, 4);
  };
  ShiftedBlock<F> block = {};  // the padding of an odd length stays zero
  Index entry = 0;
  for (Index b = 0; b < packed.blocks(); ++b) {
    panel.first[static_cast<std::size_t>(b)] = entry;
    std::int16_t* values = panel.values.data() + entry * entry_size;
    Sum* units = panel.units.data() + entry * Rows;
    bool split = false;
    for (Index r = 0; r < count; ++r) {
      decode_shifted(path, packed.block(row + r, b), limit, block);
      put_row(block.values, values + 2 * r);
      units[r] = unit(block.exponent);
      if (!block.split) continue;
      if (!split) {
        std::fill_n(values + entry_size, entry_size, std::int16_t{0});
        std::fill_n(units + Rows, Rows, Sum(0));
        split = true;
      }
      put_row(block.normal, values + entry_size + 2 * r);
      units[Rows + r] = unit(block.normal_exponent);
    }
    entry += split ? 2 : 1;
  }
  panel.first[static_cast<std::size_t>(packed.blocks())] = entry;
}

inline constexpr Index panel_rows_a = 6, panel_rows_w = 32;

/// c[i][j] = sum over blocks, entries of a, entries of w: integer sum * (unit of a * unit of w), in Sum.
template <class Sum>
void multiply_panels(Portable, const Panel<Sum>& a, const Panel<Sum>& w, Index blocks, Index pairs, Sum* c) {
  std::fill_n(c, panel_rows_a * panel_rows_w, Sum(0));
  for (Index b = 0; b < blocks; ++b)
    for (Index ea = a.first[static_cast<std::size_t>(b)]; ea < a.first[static_cast<std::size_t>(b + 1)]; ++ea)
      for (Index ew = w.first[static_cast<std::size_t>(b)]; ew < w.first[static_cast<std::size_t>(b + 1)]; ++ew) {
        const std::int16_t* left = a.values.data() + ea * pairs * panel_rows_a * 2;
        const std::int16_t* right = w.values.data() + ew * pairs * panel_rows_w * 2;
        const Sum* left_unit = a.units.data() + ea * panel_rows_a;
        const Sum* right_unit = w.units.data() + ew * panel_rows_w;
        for (Index i = 0; i < panel_rows_a; ++i) {
          std::int32_t sum[panel_rows_w] = {};
          for (Index p = 0; p < pairs; ++p) {
            const std::int32_t l0 = left[(p * panel_rows_a + i) * 2], l1 = left[(p * panel_rows_a + i) * 2 + 1];
            const std::int16_t* r = right + p * panel_rows_w * 2;
            for (Index j = 0; j < panel_rows_w; ++j) sum[j] += l0 * r[2 * j] + l1 * r[2 * j + 1];
          }
          for (Index j = 0; j < panel_rows_w; ++j)
            c[i * panel_rows_w + j] += static_cast<Sum>(sum[j]) * (left_unit[i] * right_unit[j]);
        }
      }
}

#if defined(ASHLAR_BI_EXPONENT_VNNI)
struct ProductLanes {
  using Integer = __m512i;
  using Float = __m512;
  static constexpr Index size = 16;
  static Integer zero() { return _mm512_setzero_si512(); }
  static Float zero_float() { return _mm512_setzero_ps(); }
  static Integer load(const std::int16_t* from) { return _mm512_loadu_si512(from); }
  static Float load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Float v) { _mm512_storeu_ps(to, v); }
  static Integer broadcast(std::int32_t pair) { return _mm512_set1_epi32(pair); }
  static Float broadcast(float v) { return _mm512_set1_ps(v); }
  static Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static void add_products(Integer& sum, Integer a, Integer b) { sum = _mm512_dpwssd_epi32(sum, a, b); }
  static void add_scaled(Float& total, Integer sum, Float unit) {
    total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), unit, total);
  }
};
#elif defined(ASHLAR_BI_EXPONENT_FMA)
struct ProductLanes {
  using Integer = __m256i;
  using Float = __m256;
  static constexpr Index size = 8;
  static Integer zero() { return _mm256_setzero_si256(); }
  static Float zero_float() { return _mm256_setzero_ps(); }
  static Integer load(const std::int16_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  static Float load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Float v) { _mm256_storeu_ps(to, v); }
  static Integer broadcast(std::int32_t pair) { return _mm256_set1_epi32(pair); }
  static Float broadcast(float v) { return _mm256_set1_ps(v); }
  static Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static void add_products(Integer& sum, Integer a, Integer b) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    asm("" : "+x"(sum));  // or gcc multiplies everything first and runs out of registers
  }
  static void add_scaled(Float& total, Integer sum, Float unit) {
    total = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), unit, total);
  }
};
#endif

#if defined(ASHLAR_BI_EXPONENT_VNNI) || defined(ASHLAR_BI_EXPONENT_FMA)
/// Six rows of a by two registers of rows of w: twelve integer sums and two operands fill the registers of AVX2; those
/// of AVX-512 hold the float sums as well. Rows of a come from memory, broadcast by the instruction. A product of an
/// integer and a power of two is exact, so the fused multiply-add rounds as the portable form does.
inline void multiply_panels(Native, const Panel<float>& a, const Panel<float>& w, Index blocks, Index pairs, float* c) {
  constexpr int rows = panel_rows_a;
  for (Index column = 0; column < panel_rows_w; column += 2 * ProductLanes::size) {
    ProductLanes::Float total[rows][2];
    for (auto& row : total) row[0] = row[1] = ProductLanes::zero_float();
    for (Index b = 0; b < blocks; ++b)
      for (Index ea = a.first[static_cast<std::size_t>(b)]; ea < a.first[static_cast<std::size_t>(b + 1)]; ++ea)
        for (Index ew = w.first[static_cast<std::size_t>(b)]; ew < w.first[static_cast<std::size_t>(b + 1)]; ++ew) {
          const std::int16_t* left = a.values.data() + ea * pairs * panel_rows_a * 2;
          const std::int16_t* right = w.values.data() + (ew * pairs * panel_rows_w + column) * 2;
          ProductLanes::Integer sum[rows][2];
          for (auto& row : sum) row[0] = row[1] = ProductLanes::zero();
          for (Index p = 0; p < pairs; ++p) {
            const auto w0 = ProductLanes::load(right + p * panel_rows_w * 2);
            const auto w1 = ProductLanes::load(right + p * panel_rows_w * 2 + 2 * ProductLanes::size);
            for (int i = 0; i < rows; ++i) {
              std::int32_t pair;
              std::memcpy(&pair, left + (p * panel_rows_a + i) * 2, 4);
              const auto l = ProductLanes::broadcast(pair);
              ProductLanes::add_products(sum[i][0], l, w0);
              ProductLanes::add_products(sum[i][1], l, w1);
            }
          }
          const auto u0 = ProductLanes::load(w.units.data() + ew * panel_rows_w + column);
          const auto u1 = ProductLanes::load(w.units.data() + ew * panel_rows_w + column + ProductLanes::size);
          for (int i = 0; i < rows; ++i) {
            const auto u = ProductLanes::broadcast(a.units[static_cast<std::size_t>(ea * panel_rows_a + i)]);
            ProductLanes::add_scaled(total[i][0], sum[i][0], ProductLanes::multiply(u, u0));
            ProductLanes::add_scaled(total[i][1], sum[i][1], ProductLanes::multiply(u, u1));
          }
        }
    for (int i = 0; i < rows; ++i) {
      ProductLanes::store(c + i * panel_rows_w + column, total[i][0]);
      ProductLanes::store(c + i * panel_rows_w + column + ProductLanes::size, total[i][1]);
    }
  }
}
#else
inline void multiply_panels(Native, const Panel<float>& a, const Panel<float>& w, Index blocks, Index pairs, float* c) {
  multiply_panels(Portable{}, a, w, blocks, pairs, c);
}
#endif
inline void multiply_panels(Native, const Panel<double>& a, const Panel<double>& w, Index blocks, Index pairs,
                            double* c) {
  multiply_panels(Portable{}, a, w, blocks, pairs, c);
}

/// Scratch of gemm. Grows to what a product needs and keeps it, so that the next one of that size allocates nothing.
template <class FA, class FW>
struct GemmScratch {
  using Sum = product_sum_t<FA, FW>;
  std::vector<Panel<Sum>> a;  ///< all rows of A
  std::vector<Panel<Sum>> w;  ///< a panel of W for every thread

  void reserve(const BiExponentMatrix<FA>& left) {
    const auto panels = static_cast<std::size_t>(ceil_div(left.rows(), panel_rows_a));
    if (a.size() < panels) a.resize(panels);
    if (w.size() < static_cast<std::size_t>(max_threads())) w.resize(static_cast<std::size_t>(max_threads()));
    for (auto& panel : a) panel.reserve(left.blocks(), pairs_of<FA>, panel_rows_a);
    for (auto& panel : w) panel.reserve(left.blocks(), pairs_of<FA>, panel_rows_w);
  }
};

template <class Path, class FA, class FW>
void gemm(Path path, const BiExponentMatrix<FA>& a, const BiExponentMatrix<FW>& w, View<float, 2> c,
          GemmScratch<FA, FW>& workspace) {
  using Sum = product_sum_t<FA, FW>;
  constexpr int limit = shift_limit<FA, FW>();
  workspace.reserve(a);
  const Index a_panels = ceil_div(a.rows(), panel_rows_a);
  parallel_for(a_panels, 4, [&](Index begin, Index end) {
    for (Index p = begin; p < end; ++p)
      fill_panel<panel_rows_a>(path, a, p * panel_rows_a, std::min(panel_rows_a, a.rows() - p * panel_rows_a), limit,
                               workspace.a[static_cast<std::size_t>(p)]);
  });
  parallel_for(w.rows(), panel_rows_w, [&](Index begin, Index end, int worker) {
    auto& panel = workspace.w[static_cast<std::size_t>(worker)];
    fill_panel<panel_rows_w>(path, w, begin, end - begin, limit, panel);
    alignas(64) Sum tile[panel_rows_a * panel_rows_w];
    for (Index p = 0; p < a_panels; ++p) {
      multiply_panels(path, workspace.a[static_cast<std::size_t>(p)], panel, a.blocks(), pairs_of<FA>, tile);
      for (Index i = 0; i < std::min(panel_rows_a, a.rows() - p * panel_rows_a); ++i)
        for (Index j = begin; j < end; ++j)
          c(p * panel_rows_a + i, j) = static_cast<float>(tile[i * panel_rows_w + j - begin]);
    }
  });
}

}  // namespace ashlar::precision::detail
