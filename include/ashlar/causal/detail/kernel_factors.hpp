// The pieces of a kernel likelihood: Gram matrices of products of Gaussian kernels, their low-rank factors, and the
// Jacobian term in sorted distances.
#pragma once

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::causal::detail {

/// k(i, j) = exp(-sum_p weights[p] D_p(i, j)) for j <= i; the strict upper triangle is left as it was. Without
/// distances all ones. Distances are [n, n] and contiguous. n^2 / 2 exponentials.
inline void product_gram(std::span<const View<const double, 2>> distances, std::span<const double> weights,
                         Matrix<double>& k) {
  using Batch = simd::batch<double>;
  constexpr Index width = simd::width<double>;
  const Index n = k.rows();
  for (Index i = 0; i < n; ++i) {
    double* row = k.data() + i * n;
    for (Index j = 0; j <= i; j += width) {
      const Index lanes = std::min(width, n - j);  // whole batches may run over the diagonal, not out of the row
      Batch sum(0.0);
      for (std::size_t p = 0; p < distances.size(); ++p) {
        const double* from = distances[p].data() + i * n + j;
        double rest[static_cast<std::size_t>(width)] = {};
        if (lanes < width) from = std::copy_n(from, lanes, rest) - lanes;
        sum = simd::fma(Batch(-weights[p]), simd::load(from), sum);
      }
      if (lanes == width) {
        simd::store(row + j, simd::exp(sum));
      } else {
        double rest[static_cast<std::size_t>(width)];
        simd::store(rest, simd::exp(sum));
        std::copy_n(rest, lanes, row + j);
      }
    }
  }
}

/// Rows g_1, g_2, ... of `factor` with k = sum_r g_r^T g_r + E, E positive semi-definite with trace <= tolerance. k is
/// read in its lower triangle, and has a diagonal of ones. factor: at least max_rank rows of n.
/// Returns the number of rows, or -1 where max_rank are not enough. O(n rank^2): the pivot is the largest residual.
inline Index pivoted_cholesky(const Matrix<double>& k, double tolerance, Index max_rank, Matrix<double>& factor) {
  const Index n = k.rows();
  Vector<double> residual = Vector<double>::Ones(n);
  for (Index rank = 0;; ++rank) {
    Index pivot = 0;
    const double largest = residual.maxCoeff(&pivot);
    if (residual.sum() <= tolerance || rank == n) return rank;
    if (rank == max_rank) return -1;
    auto row = factor.row(rank);
    row.head(pivot + 1) = k.row(pivot).head(pivot + 1);
    row.tail(n - pivot - 1) = k.col(pivot).tail(n - pivot - 1).transpose();
    row.noalias() -= factor.col(pivot).head(rank).transpose() * factor.topRows(rank);
    row /= std::sqrt(largest);
    residual.array() = (residual.array() - row.transpose().array().square()).max(0);
    residual[pivot] = 0;
  }
}

/// Replaces a lower triangular matrix by its inverse; halves, so that most of the n^3 / 3 operations are products.
template <class Block>
void invert_lower(Block l) {
  const Index n = l.rows(), half = n / 2;
  if (n <= 32) {
    for (Index j = 0; j < n; ++j) {
      l(j, j) = 1 / l(j, j);
      for (Index i = j + 1; i < n; ++i) l(i, j) = -l.row(i).segment(j, i - j).dot(l.col(j).segment(j, i - j)) / l(i, i);
    }
    return;
  }
  auto corner = l.topLeftCorner(half, half), last = l.bottomRightCorner(n - half, n - half);
  auto below = l.bottomLeftCorner(n - half, half);
  invert_lower<Eigen::Ref<Matrix<double>, 0, Eigen::OuterStride<>>>(corner);
  invert_lower<Eigen::Ref<Matrix<double>, 0, Eigen::OuterStride<>>>(last);
  below = (-(last.template triangularView<Eigen::Lower>() * below.eval())).eval();
  below = (below * corner.template triangularView<Eigen::Lower>()).eval();
}

/// Squared distances of one variable in ascending order with running sums, which give the Jacobian term of any kernel
/// width in O(log n): a pair is kept where g = D w^-4 exp(-D / w^2) > tau, and g has one maximum over D, at w^2, so
/// that the kept pairs are neighbours in this order.
class OrderedDistances {
 public:
  OrderedDistances() = default;
  /// distances: [n, n]. O(n^2 log n).
  explicit OrderedDistances(View<const double, 2> distances) {
    for (Index i = 0; i < distances.extent(0); ++i)
      for (Index j = 0; j < i; ++j)
        if (distances(i, j) > 0) distance_.push_back(distances(i, j));
    std::ranges::sort(distance_);
    sum_.assign(1, 0.0);
    log_sum_.assign(1, 0.0);
    for (const double d : distance_) {
      sum_.push_back(sum_.back() + d);
      log_sum_.push_back(log_sum_.back() + std::log(d));
    }
  }

  struct Term {
    double value = 0, slope = 0;  ///< J(w) and dJ/dw with the kept pairs as they are
    Index kept = 0;               ///< pairs i < j
  };
  Term term(double w, double tau) const {
    const auto kept = [&](double d) { return d / (w * w * w * w) * std::exp(-d / (w * w)) > tau; };
    const auto peak = std::ranges::upper_bound(distance_, w * w);
    const auto first = std::partition_point(distance_.begin(), peak, [&](double d) { return !kept(d); });
    const auto last = std::partition_point(peak, distance_.end(), kept);
    const Index count = last - first;
    if (count == 0) return {};
    const auto begin = static_cast<std::size_t>(first - distance_.begin());
    const auto end = static_cast<std::size_t>(last - distance_.begin());
    const double mean = (sum_[end] - sum_[begin]) / static_cast<double>(count);
    const double log_mean = (log_sum_[end] - log_sum_[begin]) / static_cast<double>(count);
    return {log_mean / 2 - 2 * std::log(w) - mean / (2 * w * w), -2 / w + mean / (w * w * w), count};
  }

 private:
  std::vector<double> distance_, sum_, log_sum_;  ///< sums over all before
};

}  // namespace ashlar::causal::detail
