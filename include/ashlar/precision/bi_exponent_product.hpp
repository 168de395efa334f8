// Matrix products on packed BiE blocks: C = A W^T and y = W x, with integer dot products.
//
// For blocks a, w and types u, v the integer sums P_uv of q^a_i q^w_i over the elements of type u in a and v in w give
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
#include <string_view>
#include <tuple>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/bi_exponent.hpp"
#include "ashlar/precision/detail/bi_exponent_gemm.hpp"
#include "ashlar/precision/detail/bi_exponent_gemv.hpp"

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

}  // namespace detail

/// Scratch of gemm: the next product of the same size allocates nothing.
template <BiExponentFormat FA, BiExponentFormat FW>
struct GemmWorkspace {
  detail::GemmScratch<FA, FW> scratch;
};

/// C = A W^T. a: [m, K], w: [n, K], c: [m, n]. Formats may differ in M and E, not in the block length.
template <BiExponentFormat FA, BiExponentFormat FW>
void gemm(const BiExponentMatrix<FA>& a, const BiExponentMatrix<FW>& w, View<float, 2> c,
          GemmWorkspace<FA, FW>& workspace) {
  detail::check_product(a, w, "gemm");
  check_shape("gemm", "c", c.shape(), {a.rows(), w.rows()}, "rows of a by rows of w");
  detail::gemm(detail::Native{}, a, w, c, workspace.scratch);
}
template <BiExponentFormat FA, BiExponentFormat FW>
Matrix<float> gemm(const BiExponentMatrix<FA>& a, const BiExponentMatrix<FW>& w) {
  detail::check_product(a, w, "gemm");
  Matrix<float> c(a.rows(), w.rows());
  GemmWorkspace<FA, FW> workspace;
  detail::gemm(detail::Native{}, a, w, View<float, 2>(c), workspace.scratch);
  return c;
}

/// Scratch of gemv.
template <BiExponentFormat FX, BiExponentFormat FW>
struct GemvWorkspace {
  BiExponentMatrix<FX> x;
  std::tuple<detail::GemvOperand<detail::Portable>, detail::GemvOperand<detail::Native>> operands;
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
    auto& operand = std::get<GemvOperand<Path>>(workspace.operands);
    operand.template fill<FW>(workspace.x);
    parallel_for(w.rows(), std::max<Index>(1, 65536 / std::max<Index>(w.cols(), 1)), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) y[i] = gemv_row(operand, w, i);
    });
  } else {
    const View<float, 2> as_row(y.data(), {1, y.extent(0)}, {y.extent(0), y.stride(0)});
    gemm(path, workspace.x, w, as_row, workspace.gemm.scratch);
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
