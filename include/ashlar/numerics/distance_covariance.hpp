// Distance covariance of two samples of numbers, zero in the limit if and only if they are independent:
//
//   V^2 = mean over i, j of A_ij B_ij,   A, B the matrices |x_i - x_j|, |y_i - y_j| less their row and column means.
//
//   double v = numerics::distance_covariance(x, y);
//   numerics::DistanceCovariance against(y);             // for many x: y is sorted once, and nothing is allocated
//   double w = against(x);
//
// O(n log n): the products of distances are sums over points to the lower left, kept in a tree over the ranks of y.
//
// Source: Szekely, Rizzo, Bakirov, "Measuring and testing dependence by correlation of distances", Annals of Statistics
// 35 (2007); the fast form follows Huo, Szekely, "Fast computing for distance covariance", Technometrics 58 (2016).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/numerics/argsort.hpp"

namespace ashlar::numerics {

namespace detail {

inline Vector<double> centred(View<const double, 1> x) { return (vector(x).array() - vector(x).mean()).matrix(); }

inline void check_paired_samples(std::string_view function, View<const double, 1> x, Index n) {
  check_shape(function, "x", x.shape(), {n}, "same as y");
  require(vector(x).allFinite(), function, "x has an entry that is not finite");
}
inline void check_fixed_sample(std::string_view function, View<const double, 1> y) {
  check_argument(y.extent(0) >= 2, function, "the number of points", "at least 2", y.extent(0));
  require(vector(y).allFinite(), function, "y has an entry that is not finite");
}

}  // namespace detail

namespace reference {

/// The definition, O(n^2). x, y: [n].
inline double distance_covariance(View<const double, 1> x, View<const double, 1> y) {
  const auto centred_distances = [](View<const double, 1> values) {
    const auto v = vector(values);
    Matrix<double> d(v.size(), v.size());
    for (Index i = 0; i < v.size(); ++i)
      for (Index j = 0; j < v.size(); ++j) d(i, j) = std::abs(v[i] - v[j]);
    const Vector<double> means = d.rowwise().mean();
    const double mean = means.mean();
    d.colwise() -= means;
    d.rowwise() -= means.transpose();
    d.array() += mean;
    return d;
  };
  return std::sqrt(std::max(0.0, centred_distances(x).cwiseProduct(centred_distances(y)).mean()));
}

}  // namespace reference

/// Against a fixed sample y: [n], n at least 2. One object a thread.
class DistanceCovariance {
 public:
  /// Throws InvalidArgument for fewer than two points and entries that are not finite.
  explicit DistanceCovariance(View<const double, 1> y) {
    detail::check_fixed_sample("DistanceCovariance", y);
    const Index n = y.extent(0);
    const auto size = static_cast<std::size_t>(n);
    y_ = detail::centred(y);
    x_.resize(n);
    row_sums_.resize(n);
    order_.resize(size);
    place_.resize(size);
    scratch_.resize(static_cast<std::size_t>(detail::argsort_words(n)));
    tree_.resize(size + 1);
    y_total_ = row_sums(y_, row_sums_);
    for (std::size_t i = 0; i < size; ++i) place_[order_[i]] = static_cast<std::uint32_t>(size - i);
    x_sums_.resize(n);
  }

  /// x: [n]. The square root V of the V-statistic, in the units of x and y to the power 1/2 each.
  double operator()(View<const double, 1> x) {
    detail::check_paired_samples("DistanceCovariance", x, y_.size());
    x_ = vector(x);
    x_.array() -= x_.mean();
    const double x_total = row_sums(x_, x_sums_);
    const auto n = static_cast<double>(y_.size());
    const double squared =
        products() / (n * n) - 2 * x_sums_.dot(row_sums_) / (n * n * n) + x_total * y_total_ / (n * n * n * n);
    return std::sqrt(std::max(0.0, squared));
  }

 private:
  using Sums = std::array<double, 4>;  // of 1, x, y, x y

  /// sums[i] = sum over j of |v_i - v_j|; returns their sum. Leaves the order of v in order_.
  double row_sums(const Vector<double>& v, Vector<double>& sums) {
    const Index n = v.size();
    detail::argsort_into(v.data(), n, order_.data(), scratch_.data());
    const double all = v.sum();
    double below = 0, total = 0;
    for (Index i = 0; i < n; ++i) {
      const Index at = order_[static_cast<std::size_t>(i)];
      below += v[at];
      sums[at] = static_cast<double>(2 * (i + 1) - n) * v[at] + all - 2 * below;
      total += sums[at];
    }
    return total;
  }

  /// sum over i, j of |x_i - x_j| |y_i - y_j|, order_ that of x. Of two points, the product of the differences has the
  /// sign minus if the one with the smaller x has the larger y; place_ counts from the largest y down.
  double products() {
    std::fill(tree_.begin(), tree_.end(), Sums{});
    Sums before{};
    double sum = 0;
    for (const std::uint32_t j : order_) {
      Sums above{};
      for (std::uint32_t at = place_[j]; at > 0; at &= at - 1)
        for (std::size_t k = 0; k < 4; ++k) above[k] += tree_[at][k];
      const double x = x_[j], y = y_[j];
      const auto differences = [x, y](const Sums& s) { return x * y * s[0] - y * s[1] - x * s[2] + s[3]; };
      sum += differences(before) - 2 * differences(above);
      const Sums own{1, x, y, x * y};
      for (std::size_t k = 0; k < 4; ++k) before[k] += own[k];
      for (std::uint32_t at = place_[j]; at < tree_.size(); at += at & (~at + 1))
        for (std::size_t k = 0; k < 4; ++k) tree_[at][k] += own[k];
    }
    return 2 * sum;
  }

  Vector<double> x_, y_, x_sums_, row_sums_;
  double y_total_ = 0;
  std::vector<std::uint32_t> order_, place_;
  std::vector<std::uint64_t> scratch_;
  std::vector<Sums> tree_;
};

/// x, y: [n], n at least 2. Throws InvalidArgument for fewer points, different lengths and entries that are not finite.
inline double distance_covariance(View<const double, 1> x, View<const double, 1> y) { return DistanceCovariance(y)(x); }

}  // namespace ashlar::numerics
