// The two passes behind two_layer_gradient.hpp: samples to their part of the signal D, then D'X.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <optional>

#include "ashlar/core/parallel.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/dynamics/two_layer_network.hpp"

namespace ashlar::dynamics::detail {

/// Rows a product takes at once: few enough for threads to share, and enough to pay for packing the weights.
inline constexpr Index sample_block = 512;

/// Rows and columns of a tile of the gradient, which is summed over all samples at once: a quarter of each, so that the
/// samples are packed four times and not once for every 128 numbers.
constexpr Index gradient_tile(Index extent) { return std::max<Index>(128, (extent + 63) / 64 * 16); }

template <class T>
using RowMap = Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>>;
template <class T>
using ConstRowMap = Eigen::Map<const Matrix<T>, 0, Eigen::OuterStride<>>;

/// Slope below zero of the activations that are max(h, slope h).
template <class T>
std::optional<T> slope_below_zero(Activation activation) {
  switch (activation) {
    case Activation::identity:
      return T(1);
    case Activation::relu:
      return T(0);
    case Activation::leaky_relu:
      return leaky_slope<T>;
    default:
      return std::nullopt;
  }
}

/// f of a sample from its pre-activations h: [m].
template <class T>
T output_of(const TwoLayerNetwork<T>& network, const T* h) {
  using V = simd::batch<T>;
  constexpr Index w = simd::width<T>;
  const Index m = network.hidden();
  const T* const a = network.output.data();
  T f = 0;
  Index k = 0;
  if (const std::optional<T> slope = slope_below_zero<T>(network.activation)) {
    V even(T(0)), odd(T(0));
    const auto term = [&](Index at, const V& sum) {
      const V x = simd::load(h + at);
      return simd::fma(simd::load(a + at), simd::max(x, x * V(*slope)), sum);
    };
    for (; k + 2 * w <= m; k += 2 * w) even = term(k, even), odd = term(k + w, odd);
    f = simd::reduce_add(even + odd);
  }
  for (; k < m; ++k) f += a[k] * activate(network.activation, h[k]);
  return f + network.output_bias;
}

/// h_k <- slope a_k s'(h_k): the sample's row of D.
template <class T>
void signal_of(const TwoLayerNetwork<T>& network, T slope, T* h) {
  using V = simd::batch<T>;
  constexpr Index w = simd::width<T>;
  const Index m = network.hidden();
  const T* const a = network.output.data();
  Index k = 0;
  if (const std::optional<T> below = slope_below_zero<T>(network.activation))
    for (; k + w <= m; k += w) {
      const V full = V(slope) * simd::load(a + k);
      simd::store(h + k, xsimd::select(simd::load(h + k) > V(T(0)), full, full * V(*below)));
    }
  for (; k < m; ++k) h[k] = slope * a[k] * activation_slope(network.activation, h[k]);
}

/// sums_k += slope s(h_k): what the sample adds to the gradient by the output weights.
template <class T>
void add_activations(const TwoLayerNetwork<T>& network, T slope, const T* h, T* sums) {
  using V = simd::batch<T>;
  constexpr Index w = simd::width<T>;
  const Index m = network.hidden();
  Index k = 0;
  if (const std::optional<T> below = slope_below_zero<T>(network.activation))
    for (; k + w <= m; k += w) {
      const V x = simd::load(h + k);
      simd::store(sums + k, simd::fma(V(slope), simd::max(x, x * V(*below)), simd::load(sums + k)));
    }
  for (; k < m; ++k) sums[k] += slope * activate(network.activation, h[k]);
}

/// Scratch of one call, and the passes over it.
template <class T>
class TwoLayerScratch {
 public:
  /// x: [n, d]. Without `gradients` only pre_activations may be called.
  TwoLayerScratch(const TwoLayerNetwork<T>& network, const View<const T, 2>& x, bool gradients, Workspace& workspace)
      : n_(x.extent(0)), m_(network.hidden()), d_(network.dim()), kept_(n_) {
    const bool rows_are_dense = x.stride(1) == 1 && x.stride(0) >= d_;
    const Index chunks = chunk_count(n_, sample_block);
    const auto padded = [](Index count) { return (count + 15) / 16 * 16; };  // parts start on cache lines
    const Index packed_size = gradients || !rows_are_dense ? padded(n_ * d_) : 0;
    T* memory = workspace.reserve<T>(padded(n_ * m_) + packed_size + (gradients ? 2 * padded(n_) + chunks * m_ : 0));
    signal_ = memory, memory += padded(n_ * m_);
    packed_ = memory, memory += packed_size;
    losses_ = memory;
    slopes_ = losses_ + padded(n_);
    output_parts_ = slopes_ + padded(n_);
    x_ = x.data(), x_row_ = x.stride(0);
    if (rows_are_dense) return;
    for (Index i = 0; i < n_; ++i)
      for (Index j = 0; j < d_; ++j) packed_[i * d_ + j] = x(i, j);
    x_ = packed_, x_row_ = d_;
  }

  /// h of samples begin .. end - 1, [end - begin, m], into their rows of the signal, which come back.
  T* pre_activations(const TwoLayerNetwork<T>& network, Index begin, Index end) {
    T* const h = signal_ + begin * m_;
    RowMap<T> rows(h, end - begin, m_, Eigen::OuterStride<>(m_));
    rows.noalias() = inputs(begin, end) * network.weights.transpose();
    if (network.bias.size() != 0) rows.rowwise() += network.bias.transpose();
    return h;
  }

  /// Losses, their slopes / n, and D.
  void backward_samples(const TwoLayerNetwork<T>& network, Loss loss, const View<const T, 1>& y, bool output) {
    parallel_for(n_, sample_block, [&](Index begin, Index end) {
      T* h = pre_activations(network, begin, end);
      T* const part = output_parts_ + begin / sample_block * m_;
      if (output) std::fill_n(part, m_, T(0));
      for (Index i = begin; i < end; ++i, h += m_) {
        const LossTerms<T> terms = loss_terms(loss, output_of(network, h), y[i]);
        const T slope = terms.slope / static_cast<T>(n_);
        losses_[i] = terms.value;
        slopes_[i] = slope;
        if (slope == 0) {
          std::fill_n(h, m_, T(0));
          continue;
        }
        if (output) add_activations(network, slope, h, part);
        signal_of(network, slope, h);
      }
    });
  }

  /// Moves the samples that pull together, when that saves a quarter of the second product or more.
  void drop_silent_samples() {
    const Index pulling = n_ - static_cast<Index>(std::count(slopes_, slopes_ + n_, T(0)));
    if (4 * pulling > 3 * n_) return;
    kept_ = 0;
    for (Index i = 0; i < n_; ++i) {
      if (slopes_[i] == 0) continue;
      std::copy_n(signal_ + i * m_, m_, signal_ + kept_ * m_);
      std::copy_n(x_ + i * x_row_, d_, packed_ + kept_ * d_);
      ++kept_;
    }
    x_ = packed_, x_row_ = d_;
  }

  /// D'X, and D'1 unless bias is empty.
  void weight_gradient(const View<T, 2>& weights, const View<T, 1>& bias) {
    const ConstRowMap<T> signal(signal_, kept_, m_, Eigen::OuterStride<>(m_));
    const Index tile_rows = gradient_tile(m_), tile_columns = gradient_tile(d_);
    const Index rows = chunk_count(m_, tile_rows), columns = chunk_count(d_, tile_columns);
    parallel_for(rows * columns, 1, [&](Index tile, Index) {
      const Index k = tile / columns * tile_rows, j = tile % columns * tile_columns;
      const Index height = std::min(tile_rows, m_ - k), width = std::min(tile_columns, d_ - j);
      const auto left = signal.middleCols(k, height).transpose();
      if (j == 0 && !bias.empty())
        for (Index r = 0; r < height; ++r) bias[k + r] = kept_ == 0 ? T(0) : left.row(r).sum();
      const View<T, 2> target = weights.slice(0, k, k + height).slice(1, j, j + width);
      if (kept_ == 0)
        matrix(target).setZero();
      else if (target.stride(1) == 1)
        RowMap<T>(target.data(), height, width, Eigen::OuterStride<>(target.stride(0))).noalias() =
            left * inputs(0, kept_).middleCols(j, width);
      else
        matrix(target) = left * inputs(0, kept_).middleCols(j, width);
    });
  }

  void output_gradient(const View<T, 1>& output, T& output_bias) const {
    for (Index k = 0; k < m_; ++k) output[k] = 0;
    for (Index c = 0; c < chunk_count(n_, sample_block); ++c)
      for (Index k = 0; k < m_; ++k) output[k] += output_parts_[c * m_ + k];
    output_bias = 0;
    for (Index i = 0; i < n_; ++i) output_bias += slopes_[i];
  }

  double mean_loss() const {
    double sum = 0;
    for (Index i = 0; i < n_; ++i) sum += static_cast<double>(losses_[i]);
    return sum / static_cast<double>(n_);
  }

 private:
  ConstRowMap<T> inputs(Index begin, Index end) const {
    return {x_ + begin * x_row_, end - begin, d_, Eigen::OuterStride<>(x_row_)};
  }

  Index n_, m_, d_, kept_;
  const T* x_;
  Index x_row_;
  T *signal_, *packed_, *losses_, *slopes_, *output_parts_;
};

}  // namespace ashlar::dynamics::detail
