// Matrix products on packed BiE blocks: C = A W^T and y = W x, with integer dot products.
//
// For blocks a, w and types u, v the integer sums P_uv = sum of q^a_i q^w_i over elements of type u in a and v in w give
//
//   <a, w> = sum_uv P_uv 2^(e^a_u + e^w_v - (M_a - 1) - (M_w - 1))                          (four-sum form)
//
// or, with the outliers shifted onto the grid of the normal elements, q~_i = q_i << (t_i ? e_1 - e_0 : 0), one sum
//
//   <a, w> = (sum q~^a_i q~^w_i) 2^(e^a_0 + e^w_0 - (M_a - 1) - (M_w - 1))                  (shift form)
//
// The two are equal. gemv uses the first on 8-bit lanes, gemm the second on 16-bit lanes; a block whose exponents are
// too far apart for that is split in two, its outliers and its normal elements. Block sums are exact integers; they are
// added in float32, in an order that depends neither on the instruction set nor on the number of threads.
//
//   auto w = quantize<BiE4>(weights, t_w);                   // once
//   Matrix<float> c = gemm(quantize<BiE4>(tokens, t_x), w);  // [tokens, rows of w]
//   Vector<float> y = gemv<BiE4>(x, t_x, w);                 // quantises x on the fly
//
// Cost: gemv reads 6 bits a weight (n = 16, M = 3) and is bound by memory up to a few cores; gemm is bound by the
// integer units: 256 multiply-adds in 8 instructions of AVX-512 VNNI, where float needs 16.
// Source: Zou et al., "BiE: Bi-Exponent Block Floating-Point for Large Language Models Quantization", ICML 2024; the
// integer forms are derived from its format.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/bi_exponent.hpp"

#if defined(ASHLAR_BI_EXPONENT_AVX512) && defined(__AVX512VNNI__)
#define ASHLAR_BI_EXPONENT_VNNI
#elif defined(__AVX2__) && defined(__FMA__)
#define ASHLAR_BI_EXPONENT_AVX2
#include <immintrin.h>
#endif

namespace ashlar::precision {

namespace reference {

/// P_nn, P_no, P_on, P_oo (n: normal, o: outlier; first letter for a).
template <BiExponentFormat FA, BiExponentFormat FW>
std::array<int, 4> partial_sums(const BiExponentBlock<FA>& a, const BiExponentBlock<FW>& w) {
  static_assert(FA::block == FW::block, "both operands have blocks of one length");
  std::array<int, 4> sums{};
  for (std::size_t i = 0; i < static_cast<std::size_t>(FA::block); ++i)
    sums[2 * std::size_t{a.outlier[i]} + std::size_t{w.outlier[i]}] += a.value[i] * w.value[i];
  return sums;
}

/// <a, w>, four sums.
template <BiExponentFormat FA, BiExponentFormat FW>
double block_dot(const BiExponentBlock<FA>& a, const BiExponentBlock<FW>& w) {
  const auto sums = partial_sums(a, w);
  double total = 0;
  for (std::size_t u = 0; u < 2; ++u)
    for (std::size_t v = 0; v < 2; ++v)
      total += std::ldexp(sums[2 * u + v], a.exponent[u] + w.exponent[v] - (FA::magnitude_bits - 1) -
                                               (FW::magnitude_bits - 1));
  return total;
}

/// A block on one grid: values q~ 2^(exponent - (M-1)), and how far the outliers were shifted.
template <BiExponentFormat F>
struct ShiftedBlock {
  std::array<std::int64_t, static_cast<std::size_t>(F::block)> value{};
  int exponent = F::min_exponent, shift = 0;
};

/// A group without non-zero elements has no meaningful exponent: the block takes the other's, unshifted.
template <BiExponentFormat F>
ShiftedBlock<F> shifted(const BiExponentBlock<F>& block) {
  bool used[2] = {false, false};
  for (std::size_t i = 0; i < block.value.size(); ++i) used[block.outlier[i]] |= block.value[i] != 0;
  ShiftedBlock<F> out;
  out.exponent = used[0] ? block.exponent[0] : block.exponent[1];
  if (used[0] && used[1]) out.shift = block.exponent[1] - block.exponent[0];
  for (std::size_t i = 0; i < block.value.size(); ++i)
    out.value[i] = std::int64_t{block.value[i]} * (std::int64_t{1} << (block.outlier[i] ? out.shift : 0));
  return out;
}

/// <a, w>, shift form; the integer sum must fit 63 bits.
template <BiExponentFormat FA, BiExponentFormat FW>
double block_dot_shifted(const BiExponentBlock<FA>& a, const BiExponentBlock<FW>& w) {
  const auto left = shifted(a);
  const auto right = shifted(w);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < left.value.size(); ++i) sum += left.value[i] * right.value[i];
  return std::ldexp(static_cast<double>(sum),
                    left.exponent + right.exponent - (FA::magnitude_bits - 1) - (FW::magnitude_bits - 1));
}

/// C = A W^T in double, blocks ascending.
template <BiExponentFormat FA, BiExponentFormat FW>
Matrix<double> gemm(const BiExponentMatrix<FA>& a, const BiExponentMatrix<FW>& w) {
  Matrix<double> c = Matrix<double>::Zero(a.rows(), w.rows());
  for (Index i = 0; i < a.rows(); ++i)
    for (Index j = 0; j < w.rows(); ++j)
      for (Index b = 0; b < a.blocks(); ++b) c(i, j) += block_dot(a.block(i, b).unpack(), w.block(j, b).unpack());
  return c;
}

}  // namespace reference

namespace detail {

template <class FA, class FW>
void check_product(const BiExponentMatrix<FA>& a, const BiExponentMatrix<FW>& w, std::string_view function) {
  static_assert(FA::block == FW::block, "both operands have blocks of one length");
  require(a.cols() == w.cols(), function, "a has ", a.cols(), " columns, w has ", w.cols());
}

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

// ---- gemm: panels of rows, decoded to the shift form ------------------------------------------------------------

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
  alignas(64) std::int16_t values[2 * pairs_of<F>];  ///< an odd length ends in a zero
  alignas(64) std::int16_t normal[2 * pairs_of<F>];  ///< if split
  int exponent, normal_exponent;
  bool split;
};

/// Decides shift or split. `used`: which groups have non-zero elements; a group without has no meaningful exponent.
template <class F>
int choose_shift(const BiExponentBytes<F>& block, bool used_normal, bool used_outlier, int limit, ShiftedBlock<F>& out) {
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
  if constexpr (n % 2 == 1) out.values[n] = out.normal[n] = 0;
  const int keep_normal = out.split ? 0 : -1, scale = 1 << shift;
  for (int i = 0; i < n; ++i)
    out.values[i] = static_cast<std::int16_t>((value[i] & outlier[i]) * scale + (value[i] & ~outlier[i] & keep_normal));
  for (int i = 0; i < n; ++i) out.normal[i] = static_cast<std::int16_t>(value[i] & ~outlier[i]);
}

template <class F>
void decode_shifted(Native, const BiExponentBytes<F>& block, int limit, ShiftedBlock<F>& out) {
#if defined(ASHLAR_BI_EXPONENT_AVX512)
  if constexpr (F::block == 16 && F::magnitude_bits <= 3) {
    const __m128i table = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 0, -1, -2, -3, -4, -5, -6, -7);
    const __m128i value = _mm_shuffle_epi8(table, nibbles_avx512(block.elements));
    std::uint16_t outlier;
    std::memcpy(&outlier, block.selectors, 2);
    const auto nonzero = static_cast<unsigned>(_mm_test_epi8_mask(value, value));
    const int shift = choose_shift(block, (nonzero & ~static_cast<unsigned>(outlier)) != 0, (nonzero & outlier) != 0, limit, out);
    const __m256i wide = _mm256_cvtepi8_epi16(value);
    const auto normal = static_cast<__mmask16>(~outlier);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.values),
                       out.split ? _mm256_maskz_mov_epi16(outlier, wide)
                                 : _mm256_mask_sll_epi16(wide, outlier, wide, _mm_cvtsi32_si128(shift)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.normal), _mm256_maskz_mov_epi16(normal, wide));
    return;
  }
#endif
  decode_shifted(Portable{}, block, limit, out);
}

/// Decodes rows row .. row+count-1 (zeros for the rest of the panel).
template <Index Rows, class Path, class F, class Sum>
void fill_panel(Path path, const BiExponentMatrix<F>& packed, Index row, Index count, int limit, Panel<Sum>& panel) {
  constexpr Index pairs = pairs_of<F>, entry_size = pairs * Rows * 2;
  const auto unit = [](int e) { return power_of_two<Sum>(e - (F::magnitude_bits - 1)); };
  // Pairs move as one 32-bit word.
  const auto put_row = [](const std::int16_t* from, std::int16_t* to) {
    for (Index p = 0; p < pairs; ++p) std::memcpy(to + p * Rows * 2, from + 2 * p, 4);
  };
  ShiftedBlock<F> block;
  Index entry = 0;
  for (Index b = 0; b < packed.blocks(); ++b) {
    panel.first[static_cast<std::size_t>(b)] = entry;
    std::int16_t* values = panel.values.data() + entry * entry_size;
    Sum* units = panel.units.data() + entry * Rows;
    const auto clear = [&](std::int16_t* v, Sum* u) {
      std::fill_n(v, entry_size, std::int16_t{0});
      std::fill_n(u, Rows, Sum(0));
    };
    if (count < Rows) clear(values, units);
    bool split = false;
    for (Index r = 0; r < count; ++r) {
      decode_shifted(path, packed.block(row + r, b), limit, block);
      put_row(block.values, values + 2 * r);
      units[r] = unit(block.exponent);
      if (!block.split) continue;
      if (!split) clear(values + entry_size, units + Rows);
      split = true;
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
/// Six rows of a by two registers of rows of w: twelve integer and twelve float accumulators and two operands fill the
/// registers; rows of a come from memory, broadcast by the instruction. A product of an integer and a power of two is
/// exact, so the fused multiply-add rounds as the portable form does.
inline void multiply_panels(Native, const Panel<float>& a, const Panel<float>& w, Index blocks, Index pairs, float* c) {
  constexpr int rows = panel_rows_a;
  __m512 total[rows][2];
  for (auto& row : total) row[0] = row[1] = _mm512_setzero_ps();
  for (Index b = 0; b < blocks; ++b)
    for (Index ea = a.first[static_cast<std::size_t>(b)]; ea < a.first[static_cast<std::size_t>(b + 1)]; ++ea)
      for (Index ew = w.first[static_cast<std::size_t>(b)]; ew < w.first[static_cast<std::size_t>(b + 1)]; ++ew) {
        const std::int16_t* left = a.values.data() + ea * pairs * panel_rows_a * 2;
        const std::int16_t* right = w.values.data() + ew * pairs * panel_rows_w * 2;
        __m512i sum[rows][2];
        for (auto& row : sum) row[0] = row[1] = _mm512_setzero_si512();
        for (Index p = 0; p < pairs; ++p) {
          const __m512i w0 = _mm512_loadu_si512(right + p * panel_rows_w * 2);
          const __m512i w1 = _mm512_loadu_si512(right + p * panel_rows_w * 2 + 32);
          for (int i = 0; i < rows; ++i) {
            std::int32_t pair;
            std::memcpy(&pair, left + (p * panel_rows_a + i) * 2, 4);
            const __m512i l = _mm512_set1_epi32(pair);
            sum[i][0] = _mm512_dpwssd_epi32(sum[i][0], l, w0);
            sum[i][1] = _mm512_dpwssd_epi32(sum[i][1], l, w1);
          }
        }
        const __m512 u0 = _mm512_loadu_ps(w.units.data() + ew * panel_rows_w);
        const __m512 u1 = _mm512_loadu_ps(w.units.data() + ew * panel_rows_w + 16);
        for (int i = 0; i < rows; ++i) {
          const __m512 u = _mm512_set1_ps(a.units[static_cast<std::size_t>(ea * panel_rows_a + i)]);
          total[i][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][0]), _mm512_mul_ps(u, u0), total[i][0]);
          total[i][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][1]), _mm512_mul_ps(u, u1), total[i][1]);
        }
      }
  for (int i = 0; i < rows; ++i) {
    _mm512_storeu_ps(c + i * panel_rows_w, total[i][0]);
    _mm512_storeu_ps(c + i * panel_rows_w + 16, total[i][1]);
  }
}
#elif defined(ASHLAR_BI_EXPONENT_AVX2)
/// Three rows of a by four registers of rows of w in integers; the float sums wait in the first-level cache.
inline void multiply_panels(Native, const Panel<float>& a, const Panel<float>& w, Index blocks, Index pairs, float* c) {
  std::fill_n(c, panel_rows_a * panel_rows_w, 0.0f);
  for (Index b = 0; b < blocks; ++b)
    for (Index ea = a.first[static_cast<std::size_t>(b)]; ea < a.first[static_cast<std::size_t>(b + 1)]; ++ea)
      for (Index ew = w.first[static_cast<std::size_t>(b)]; ew < w.first[static_cast<std::size_t>(b + 1)]; ++ew)
        for (Index begin = 0; begin < panel_rows_a; begin += 3) {
          const std::int16_t* left = a.values.data() + (ea * pairs * panel_rows_a + begin) * 2;
          const std::int16_t* right = w.values.data() + ew * pairs * panel_rows_w * 2;
          __m256i sum[3][4];
          for (auto& row : sum) row[0] = row[1] = row[2] = row[3] = _mm256_setzero_si256();
          for (Index p = 0; p < pairs; ++p)
            for (int j = 0; j < 4; ++j) {
              const __m256i r =
                  _mm256_loadu_si256(reinterpret_cast<const __m256i*>(right + p * panel_rows_w * 2 + 16 * j));
              for (int i = 0; i < 3; ++i) {
                std::int32_t pair;
                std::memcpy(&pair, left + (p * panel_rows_a + i) * 2, 4);
                sum[i][j] = _mm256_add_epi32(sum[i][j], _mm256_madd_epi16(_mm256_set1_epi32(pair), r));
              }
            }
          for (int i = 0; i < 3; ++i) {
            const __m256 u = _mm256_set1_ps(a.units[static_cast<std::size_t>(ea * panel_rows_a + begin + i)]);
            for (int j = 0; j < 4; ++j) {
              float* const to = c + (begin + i) * panel_rows_w + 8 * j;
              const __m256 unit = _mm256_mul_ps(u, _mm256_loadu_ps(w.units.data() + ew * panel_rows_w + 8 * j));
              _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[i][j]), unit, _mm256_loadu_ps(to)));
            }
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

}  // namespace detail

/// Scratch of gemm. Grows to what a product needs and keeps it, so that the next one of that size allocates nothing.
template <BiExponentFormat FA, BiExponentFormat FW>
class GemmWorkspace {
 public:
  using Sum = detail::product_sum_t<FA, FW>;
  std::vector<detail::Panel<Sum>> a;  ///< all rows of A
  std::vector<detail::Panel<Sum>> w;  ///< a panel of W for every thread

  void reserve(const BiExponentMatrix<FA>& left) {
    const auto panels = static_cast<std::size_t>(detail::ceil_div(left.rows(), detail::panel_rows_a));
    if (a.size() < panels) a.resize(panels);
    if (w.size() < static_cast<std::size_t>(max_threads())) w.resize(static_cast<std::size_t>(max_threads()));
    for (auto& panel : a) panel.reserve(left.blocks(), detail::pairs_of<FA>, detail::panel_rows_a);
    for (auto& panel : w) panel.reserve(left.blocks(), detail::pairs_of<FA>, detail::panel_rows_w);
  }
};

namespace detail {

template <class Path, class FA, class FW>
void gemm(Path path, const BiExponentMatrix<FA>& a, const BiExponentMatrix<FW>& w, View<float, 2> c,
          GemmWorkspace<FA, FW>& workspace) {
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

}  // namespace detail

/// C = A W^T. a: [m, K], w: [n, K], c: [m, n]. Formats may differ in M and E, not in the block length.
template <BiExponentFormat FA, BiExponentFormat FW>
void gemm(const BiExponentMatrix<FA>& a, const BiExponentMatrix<FW>& w, View<float, 2> c,
          GemmWorkspace<FA, FW>& workspace) {
  detail::check_product(a, w, "gemm");
  check_shape("gemm", "c", c.shape(), {a.rows(), w.rows()}, "rows of a by rows of w");
  detail::gemm(detail::Native{}, a, w, c, workspace);
}
template <BiExponentFormat FA, BiExponentFormat FW>
Matrix<float> gemm(const BiExponentMatrix<FA>& a, const BiExponentMatrix<FW>& w) {
  detail::check_product(a, w, "gemm");
  Matrix<float> c(a.rows(), w.rows());
  GemmWorkspace<FA, FW> workspace;
  detail::gemm(detail::Native{}, a, w, View<float, 2>(c), workspace);
  return c;
}

// ---- gemv: the four sums in 8-bit lanes -------------------------------------------------------------------------
//
// Four blocks of sixteen elements are a register of 64 bytes, and its sixteen 32-bit lanes are quarters of blocks. With
// u_i = q_i + 8 > 0 for a weight and its outliers alone u'_i = t_i q_i + 8, unsigned times signed dot products give
// D = sum u x and D' = sum u' x; then S_o = D' - 8 sum x and S_n = D - D'. x comes as two planes, normal and outliers.

namespace detail {

inline constexpr Index lanes = 16, group = 64, group_blocks = 4;

/// FW can take the 8-bit form; other formats take gemm with one row.
template <class FX, class FW>
inline constexpr bool fast_gemv = FW::block == 16 && FX::block == 16 && FW::magnitude_bits <= 3 &&
                                  narrow_exponents<FW> && narrow_exponents<FX>;

/// x, quantised, in the form the rows of W meet it.
struct GemvOperand {
  Tensor<std::int8_t> values[2];        ///< +-q of the normal elements, of the outliers; zero elsewhere: [groups, 64]
  Tensor<std::int32_t> correction[2];   ///< -8 sum x over the four elements of a lane: [groups, 16]
  Tensor<std::int32_t> unit_bits[2];    ///< the bits of 2^(e^x_u - (M_x-1) - (M_w-1) - bias_w): [groups, 16]
};

template <class FX, class FW>
void fill_operand(const BiExponentMatrix<FX>& x, GemvOperand& operand) {
  const Index groups = ceil_div(x.blocks(), group_blocks);
  for (int u = 0; u < 2; ++u) {
    const auto fit = [](auto& tensor, Index rows, Index cols) {
      if (tensor.size() != rows * cols) tensor = std::remove_reference_t<decltype(tensor)>({rows, cols});
      std::fill_n(tensor.data(), rows * cols, 0);
    };
    fit(operand.values[u], groups, group);
    fit(operand.correction[u], groups, lanes);
    fit(operand.unit_bits[u], groups, lanes);
    for (Index b = 0; b < x.blocks(); ++b) {
      const auto block = x.block(0, b);
      const int e = block.exponent(u == 1) - (FX::magnitude_bits - 1) - (FW::magnitude_bits - 1) - FW::bias;
      for (Index i = 0; i < FX::block; ++i) {
        const int value = block.outlier(i) == (u == 1) ? block.value(i) : 0;
        operand.values[u].data()[b * 16 + i] = static_cast<std::int8_t>(value);
        operand.correction[u].data()[b * 4 + i / 4] -= 8 * value;
        operand.unit_bits[u].data()[b * 4 + i / 4] = (e + 127) << 23;
      }
    }
  }
}

/// The order of additions every form keeps: sixteen lanes a type pair, pairs nn + no + on + oo, then halves.
inline float sum_lanes(float (&sum)[4][lanes]) {
  float s[lanes];
  for (Index l = 0; l < lanes; ++l) s[l] = (sum[0][l] + sum[1][l]) + (sum[2][l] + sum[3][l]);
  for (Index half = lanes / 2; half > 0; half /= 2)
    for (Index l = 0; l < half; ++l) s[l] += s[l + half];
  return s[0];
}

template <class FW>
float gemv_row(Portable, const GemvOperand& x, const BiExponentMatrix<FW>& w, Index row) {
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
inline void multiply_group(const PackedGroup& w, const GemvOperand& x, Index g, __m512 (&sum)[4]) {
  // Nibbles to bytes: the low one stays, the high one moves to the byte above.
  const __m512i wide = _mm512_cvtepu8_epi16(w.elements);
  const __m512i codes =
      _mm512_and_si512(_mm512_or_si512(wide, _mm512_slli_epi16(wide, 4)), _mm512_set1_epi8(15));
  const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(8, 9, 10, 11, 12, 13, 14, 15, 8, 7, 6, 5, 4, 3, 2, 1));
  const __m512i all = _mm512_shuffle_epi8(table, codes);  // q + 8
  const __m512i outliers = _mm512_mask_mov_epi8(_mm512_set1_epi8(8), w.outliers, all);
  // Each 16-bit word with two exponents to the four lanes of its block.
  const __m512i spread = _mm512_set_epi8(7, 6, 7, 6, 7, 6, 7, 6, 7, 6, 7, 6, 7, 6, 7, 6, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4,
                                         5, 4, 5, 4, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 1, 0, 1, 0, 1, 0, 1, 0,
                                         1, 0, 1, 0, 1, 0, 1, 0);
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
float gemv_row(Native, const GemvOperand& x, const BiExponentMatrix<FW>& w, Index row) {
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

#elif defined(ASHLAR_BI_EXPONENT_AVX2)

/// Half a group: two blocks of a row of W, eight lanes of every sum.
template <int E>
inline void multiply_half(__m128i elements, std::uint32_t selectors, std::uint32_t exponents, const GemvOperand& x,
                          Index half, __m256 (&sum)[4]) {
  const __m256i wide = _mm256_cvtepu8_epi16(elements);
  const __m256i codes = _mm256_and_si256(_mm256_or_si256(wide, _mm256_slli_epi16(wide, 4)), _mm256_set1_epi8(15));
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(8, 9, 10, 11, 12, 13, 14, 15, 8, 7, 6, 5, 4, 3, 2, 1));
  const __m256i all = _mm256_shuffle_epi8(table, codes);  // q + 8
  // Each byte gets the eight selectors it belongs to and keeps its own.
  const __m256i bytes = _mm256_shuffle_epi8(
      _mm256_set1_epi32(static_cast<int>(selectors)),
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
  const __m256i outlier = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
  const __m256i outliers = _mm256_blendv_epi8(_mm256_set1_epi8(8), all, outlier);
  const __m256i both = _mm256_shuffle_epi8(
      _mm256_set1_epi32(static_cast<int>(exponents)),
      _mm256_setr_epi64x(0x0100010001000100, 0x0100010001000100, 0x0302030203020302, 0x0302030203020302));
  const __m256i e_normal = _mm256_srli_epi32(_mm256_slli_epi32(both, 32 - E), 9 - E);
  const __m256i e_outlier = _mm256_slli_epi32(_mm256_srli_epi32(_mm256_slli_epi32(both, 32 - 2 * E), 32 - E), 23);
  for (int u = 0; u < 2; ++u) {
    const auto at = [&](const auto* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); };
    const __m256i values = at(x.values[u].data() + half * group / 2);
    const __m256i correction = at(x.correction[u].data() + half * lanes / 2);
    const __m256i unit = at(x.unit_bits[u].data() + half * lanes / 2);
    const auto dot = [&](__m256i weights) {
      return _mm256_madd_epi16(_mm256_maddubs_epi16(weights, values), _mm256_set1_epi16(1));
    };
    const __m256i d = dot(all), d_outlier = dot(outliers);
    const __m256i s_normal = _mm256_sub_epi32(d, d_outlier), s_outlier = _mm256_add_epi32(d_outlier, correction);
    sum[2 * u] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s_normal), _mm256_castsi256_ps(_mm256_add_epi32(unit, e_normal)),
                                 sum[2 * u]);
    sum[2 * u + 1] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s_outlier),
                                     _mm256_castsi256_ps(_mm256_add_epi32(unit, e_outlier)), sum[2 * u + 1]);
  }
}

template <class FW>
float gemv_row(Native, const GemvOperand& x, const BiExponentMatrix<FW>& w, Index row) {
  __m256 sum[2][4];
  for (auto& half : sum)
    for (auto& s : half) s = _mm256_setzero_ps();
  const std::uint8_t *elements = w.elements(row, 0), *selectors = w.selectors(row, 0), *exponents = w.exponents(row, 0);
  const Index halves = w.blocks() / 2;
  std::uint32_t mask, both;
  for (Index h = 0; h < halves; ++h) {
    std::memcpy(&mask, selectors + 4 * h, 4);
    std::memcpy(&both, exponents + 4 * h, 4);
    multiply_half<FW::exponent_bits>(_mm_loadu_si128(reinterpret_cast<const __m128i*>(elements + 16 * h)), mask, both, x,
                                     h, sum[h % 2]);
  }
  if (w.blocks() % 2 == 1) {
    mask = both = 0;
    std::memcpy(&mask, selectors + 4 * halves, 2);
    std::memcpy(&both, exponents + 4 * halves, 2);
    multiply_half<FW::exponent_bits>(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(elements + 16 * halves)), mask,
                                     both, x, halves, sum[halves % 2]);
  }
  alignas(32) float all[4][lanes];
  for (int p = 0; p < 4; ++p)
    for (int h = 0; h < 2; ++h) _mm256_store_ps(all[p] + 8 * h, sum[h][p]);
  return sum_lanes(all);
}

#else
template <class FW>
float gemv_row(Native, const GemvOperand& x, const BiExponentMatrix<FW>& w, Index row) {
  return gemv_row(Portable{}, x, w, row);
}
#endif

}  // namespace detail

/// Scratch of gemv.
template <BiExponentFormat FX, BiExponentFormat FW>
struct GemvWorkspace {
  BiExponentMatrix<FX> x;
  detail::GemvOperand operand;
  GemmWorkspace<FX, FW> gemm;
};

namespace detail {

template <class FX, class FW, class Path>
void gemv(Path path, View<const float, 1> x, double threshold, const BiExponentMatrix<FW>& w, View<float, 1> y,
          GemvWorkspace<FX, FW>& workspace, const BiExponentOptions& options) {
  if (workspace.x.rows() != 1 || workspace.x.cols() != w.cols()) workspace.x = BiExponentMatrix<FX>(1, w.cols());
  const View<const float, 2> row(x.data(), {1, x.extent(0)}, {x.extent(0), x.stride(0)});
  quantize(row, threshold, workspace.x, options);
  if constexpr (fast_gemv<FX, FW>) {
    fill_operand<FX, FW>(workspace.x, workspace.operand);
    parallel_for(w.rows(), std::max<Index>(1, 65536 / std::max<Index>(w.cols(), 1)), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) y[i] = gemv_row(path, workspace.operand, w, i);
    });
  } else {
    const View<float, 2> as_row(y.data(), {1, y.extent(0)}, {y.extent(0), y.stride(0)});
    gemm(path, workspace.x, w, as_row, workspace.gemm);
  }
}

template <class FW>
void check_gemv(View<const float, 1> x, const BiExponentMatrix<FW>& w, View<float, 1> y) {
  require(x.extent(0) == w.cols(), "gemv", "x has ", x.extent(0), " elements, w has ", w.cols(), " columns");
  check_shape("gemv", "y", y.shape(), {w.rows()}, "one for every row of w");
}

}  // namespace detail

/// y = W x^, x^ the input quantised with threshold T as FX. x: [K], w: [n, K], y: [n].
template <BiExponentFormat FX, BiExponentFormat FW>
void gemv(View<const float, 1> x, double threshold, const BiExponentMatrix<FW>& w, View<float, 1> y,
          GemvWorkspace<FX, FW>& workspace, const BiExponentOptions& options = {}) {
  detail::check_gemv(x, w, y);
  detail::gemv(detail::Native{}, x, threshold, w, y, workspace, options);
}
template <BiExponentFormat FX, BiExponentFormat FW>
Vector<float> gemv(View<const float, 1> x, double threshold, const BiExponentMatrix<FW>& w,
                   const BiExponentOptions& options = {}) {
  Vector<float> y(w.rows());
  GemvWorkspace<FX, FW> workspace;
  gemv<FX>(x, threshold, w, View<float, 1>(y), workspace, options);
  return y;
}

/// A linear layer for inference: y = x W^T + bias with packed weights, tokens quantised as they come.
template <BiExponentFormat FX = BiE4, BiExponentFormat FW = BiE4>
struct BiExponentLinear {
  BiExponentMatrix<FW> weight;  ///< [outputs, inputs]
  double threshold = 0;         ///< of the activations, from calibrate()
  Vector<float> bias;           ///< [outputs], or empty

  /// x: [tokens, inputs]. Returns [tokens, outputs].
  Matrix<float> operator()(View<const float, 2> x) const {
    require(bias.size() == 0 || bias.size() == weight.rows(), "BiExponentLinear", "bias has ", bias.size(),
            " elements, weight has ", weight.rows(), " rows");
    Matrix<float> y = gemm(quantize<FX>(x, threshold), weight);
    if (bias.size() > 0) y.rowwise() += bias.transpose();
    return y;
  }
};

}  // namespace ashlar::precision
