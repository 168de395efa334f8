// Hilbert-Schmidt independence criterion of two samples of numbers, with Gaussian kernels:
//
//   HSIC = mean_ij K_ij L_ij + mean_ij K_ij mean_ij L_ij - 2 mean_i (mean_j K_ij) (mean_j L_ij),
//   K_ij = exp(-(x_i - x_j)^2 / (2 s^2)),   s^2 = half the median of (x_i - x_j)^2 over i < j;  L likewise of y.
//
//   double h = numerics::hsic(x, y);
//   numerics::Hsic against(y);                 // for many x: L is kept, n^2 numbers, and nothing is allocated
//   double g = against(x);
//
// O(n^2) exponentials, half of the pairs, in the lanes of a vector: the roof is their rate. The median of the pairs
// takes O(n log n).
//
// Source: Gretton, Bousquet, Smola, Schoelkopf, "Measuring statistical dependence with Hilbert-Schmidt norms", ALT
// 2005.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/numerics/argsort.hpp"
#include "ashlar/numerics/distance_covariance.hpp"

namespace ashlar::numerics {

namespace detail {

/// The k-th smallest difference x_j - x_i, i < j, of an ascending sample, k from 1: bisection over the bits of the
/// answer, whose order is that of the numbers.
inline double order_statistic_of_differences(const double* x, Index n, Index k) {
  const auto reaches = [&](double bound) {
    Index count = 0;
    for (Index i = 0, j = 0; i < n; ++i) {
      while (j + 1 < n && x[j + 1] - x[i] <= bound) ++j;
      count += j - i;
    }
    return count >= k;
  };
  std::uint64_t low = 0, high = std::bit_cast<std::uint64_t>(x[n - 1] - x[0]);
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (reaches(std::bit_cast<double>(middle)))
      high = middle;
    else
      low = middle + 1;
  }
  return std::bit_cast<double>(low);
}

/// 1 / (2 s^2) for an ascending sample. Where half of the pairs coincide the mean of the squared distances replaces the
/// median; 0, which makes all kernel values one, for a sample of equal numbers.
inline double gaussian_rate(const double* x, Index n) {
  if (x[0] == x[n - 1]) return 0;
  const Index pairs = n * (n - 1) / 2;
  const double lower = order_statistic_of_differences(x, n, (pairs + 1) / 2);
  const double upper = pairs % 2 == 1 ? lower : order_statistic_of_differences(x, n, pairs / 2 + 1);
  double median = (lower * lower + upper * upper) / 2;
  if (median == 0) {
    const Eigen::Map<const Vector<double>> v(x, n);
    median = 2 * (v.array() - v.mean()).square().sum() / static_cast<double>(n - 1);
  }
  return 1 / median;
}

}  // namespace detail

namespace reference {

/// The definition, O(n^2). x, y: [n].
inline double hsic(View<const double, 1> x, View<const double, 1> y) {
  const auto kernel = [](View<const double, 1> values) {
    const auto v = vector(values);
    const Index n = v.size();
    Matrix<double> squares(n, n);
    std::vector<double> pairs;
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) {
        squares(i, j) = (v[i] - v[j]) * (v[i] - v[j]);
        if (i < j) pairs.push_back(squares(i, j));
      }
    std::sort(pairs.begin(), pairs.end());
    const std::size_t m = pairs.size();
    double scale = (pairs[(m - 1) / 2] + pairs[m / 2]) / 2;  // 2 s^2
    if (scale == 0) scale = squares.sum() / static_cast<double>(n * (n - 1));
    if (scale == 0) scale = 1;
    return Matrix<double>((-squares / scale).array().exp());
  };
  const Matrix<double> k = kernel(x), l = kernel(y);
  return k.cwiseProduct(l).mean() + k.mean() * l.mean() -
         2 * k.rowwise().mean().cwiseProduct(l.rowwise().mean()).mean();
}

}  // namespace reference

/// Against a fixed sample y: [n], n at least 2. One object a thread; n^2 numbers of memory.
class Hsic {
 public:
  /// Throws InvalidArgument for fewer than two points and entries that are not finite.
  explicit Hsic(View<const double, 1> y) {
    detail::check_fixed_sample("Hsic", y);
    n_ = y.extent(0);
    padded_ = n_ + simd::width<double>;
    x_ = Vector<double>::Constant(padded_, std::numeric_limits<double>::infinity());
    row_sums_.resize(padded_);
    scratch_.resize(static_cast<std::size_t>(detail::argsort_words(n_)));
    order_.resize(static_cast<std::size_t>(n_));
    sorted_.resize(n_);
    l_ = Matrix<double>::Zero(n_, padded_);
    y_row_sums_.resize(padded_);
    for_each_kernel_value(
        y, y_row_sums_, [this](Index i, Index j, const simd::batch<double>& value) { simd::store(&l_(i, j), value); });
    y_row_sums_.conservativeResize(n_);
    y_total_ = y_row_sums_.sum();
  }

  /// x: [n]. The biased estimate, never below zero.
  double operator()(View<const double, 1> x) {
    detail::check_paired_samples("Hsic", x, n_);
    simd::batch<double> products(0.0);
    for_each_kernel_value(x, row_sums_, [&](Index i, Index j, const simd::batch<double>& value) {
      products = simd::fma(value, simd::load(&l_(i, j)), products);
    });
    const auto n = static_cast<double>(n_);
    const auto sums = row_sums_.head(n_);
    const double mean = (2 * simd::reduce_add(products) + n) / (n * n);  // the diagonal is one
    return std::max(0.0, mean + sums.sum() * y_total_ / (n * n * n * n) - 2 * sums.dot(y_row_sums_) / (n * n * n));
  }

 private:
  /// Calls f(i, j, values of pairs (i, j), (i, j + 1), ...) for all pairs i < j, and sums up the rows of the kernel.
  /// Lanes behind the last point are zero.
  template <class F>
  void for_each_kernel_value(View<const double, 1> x, Vector<double>& sums, F&& f) {
    using V = simd::batch<double>;
    for (Index i = 0; i < n_; ++i) x_[i] = x[i];
    detail::argsort_into(x_.data(), n_, order_.data(), scratch_.data());
    for (Index i = 0; i < n_; ++i) sorted_[i] = x_[order_[static_cast<std::size_t>(i)]];
    const double rate = detail::gaussian_rate(sorted_.data(), n_);
    sums.setOnes();
    for (Index i = 0; i < n_; ++i) {
      V sum(0.0);
      for (Index j = i + 1; j < n_; j += simd::width<double>) {
        const V gap = simd::load(&x_[j]) - V(x_[i]);
        // Infinity times a rate of zero is no number, so the padding is cut off by hand there.
        const V value = xsimd::select(gap < V(std::numeric_limits<double>::infinity()),
                                      simd::exp(V(0.0) - gap * gap * V(rate)), V(0.0));
        f(i, j, value);
        sum = sum + value;
        simd::store(&sums[j], simd::load(&sums[j]) + value);
      }
      sums[i] += simd::reduce_add(sum);
    }
  }

  Index n_ = 0, padded_ = 0;
  Vector<double> x_, sorted_, row_sums_, y_row_sums_;
  double y_total_ = 0;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint64_t> scratch_;
  Matrix<double> l_;
};

/// x, y: [n], n at least 2. Throws InvalidArgument for fewer points, different lengths and entries that are not finite.
inline double hsic(View<const double, 1> x, View<const double, 1> y) { return Hsic(y)(x); }

}  // namespace ashlar::numerics
