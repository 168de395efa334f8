// Directions that a response depends on, from how the predictors look within slices of it: sliced inverse regression,
// sliced average variance estimation, directional regression. With Z = (X - mean) S^-1/2, and in slice h of the sorted
// response the share p_h, mean m_h and covariance V_h of Z,
//
//   SIR:   M = sum_h p_h m_h m_h'
//   SAVE:  M = sum_h p_h (I - V_h)^2
//   DR:    M = 2 sum_h p_h (V_h + m_h m_h')^2 + 2 SIR^2 + 2 tr(SIR) SIR - 2 I,
//
// and the directions are S^-1/2 times the leading eigenvectors of M. SIR does not see symmetric links.
//
//   auto [matrix, directions] = statistics::directional_regression(x, y);      // directions.col(0): a unit vector
//
// O(n log n + n p^2 + h p^3), h slices.
//
// Source: Li, JASA 86 (1991); Cook, Weisberg, JASA 86 (1991); Li, Wang, JASA 102 (2007).
#pragma once

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/numerics/argsort.hpp"

namespace ashlar::statistics {

struct SliceOptions {
  /// At least 2, or 0: ceil(log n) for directional regression, max(8, p + 3) for the others, but such that every slice
  /// has two points; more slices than that are as many as have two points.
  Index slices = 0;
  Index directions = 1;  ///< 1 .. p
};

struct SlicedDirections {
  Matrix<double> matrix;      ///< M: [p, p]
  Matrix<double> directions;  ///< [p, options.directions], unit columns, the largest entry of each positive
};

/// Slice of every point: floor(n / slices) points a slice in the order of y, ties by index, the last takes the rest.
/// y: [n]. Throws InvalidArgument for slices outside 1 .. n and entries that are not finite.
inline std::vector<Index> slice_labels(View<const double, 1> y, Index slices) {
  const Index n = y.extent(0);
  require(slices >= 1 && slices <= n, "slice_labels", "slices must be between 1 and the number of points ", n, ", got ",
          slices);
  const auto order = numerics::argsort(y);
  std::vector<Index> labels(order.size());
  for (Index i = 0; i < n; ++i) labels[order[static_cast<std::size_t>(i)]] = std::min(i / (n / slices), slices - 1);
  return labels;
}

namespace detail {

/// One of v and -v, the same for both.
template <class V>
void fix_sign(V&& v) {
  Index largest = 0;
  v.cwiseAbs().maxCoeff(&largest);
  if (v[largest] < 0) v = -v;
}

inline void check_regression(std::string_view function, View<const double, 2> x, View<const double, 1> y) {
  require(x.extent(0) >= 4 && x.extent(1) >= 1, function, "x has shape ", x.shape(),
          ", expected at least 4 points and one predictor");
  check_shape(function, "y", y.shape(), {x.extent(0)}, "one response a row of x");
  require(matrix(x).allFinite(), function, "x has an entry that is not finite");
  require(vector(y).allFinite(), function, "y has an entry that is not finite");
}

struct SliceMoments {
  double share;
  Vector<double> mean;
  Matrix<double> covariance;
};

struct SlicedSample {
  Matrix<double> whitening;   ///< S^-1/2
  Matrix<double> covariance;  ///< of Z: I, but for the directions in which x does not vary
  std::vector<SliceMoments> slices;
};

inline Matrix<double> covariance_of(const Matrix<double>& z, Vector<double>& mean) {
  mean = z.colwise().mean();
  const Matrix<double> centred = z.rowwise() - mean.transpose();
  return centred.transpose() * centred / static_cast<double>(z.rows() - 1);
}

inline SlicedSample sliced_sample(std::string_view function, View<const double, 2> x, View<const double, 1> y,
                                  Index default_slices, const SliceOptions& options) {
  check_regression(function, x, y);
  const Index n = x.extent(0), p = x.extent(1);
  check_argument(options.slices == 0 || options.slices >= 2, function, "slices", "at least 2, or 0 for the default",
                 options.slices);
  require(options.directions >= 1 && options.directions <= p, function, "directions must be between 1 and ", p,
          ", got ", options.directions);
  const Index slices = std::min(options.slices == 0 ? default_slices : options.slices, n / 2);

  Matrix<double> z = matrix(x);
  Vector<double> mean;
  Matrix<double> s = covariance_of(z, mean);
  require(s.trace() > 0, function, "x is constant");
  Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(s);
  Matrix<double> whitened = Matrix<double>::Identity(p, p);
  if (eigen.eigenvalues()[0] <= 1e-12 * eigen.eigenvalues()[p - 1]) {
    // Fewer points than predictors, or predictors that depend on each other.
    const Matrix<double> singular = s;
    s.diagonal().array() += 1e-8 * s.trace() / static_cast<double>(p);
    eigen.compute(s);
    whitened = eigen.operatorInverseSqrt() * singular * eigen.operatorInverseSqrt();
  }
  SlicedSample sample{eigen.operatorInverseSqrt(), std::move(whitened), {}};
  z.rowwise() -= mean.transpose();
  z = (z * sample.whitening).eval();

  const auto labels = slice_labels(y, slices);
  for (Index slice = 0; slice < slices; ++slice) {
    const Index count = std::count(labels.begin(), labels.end(), slice);
    Matrix<double> members(count, p);
    for (Index i = 0, at = 0; i < n; ++i)
      if (labels[static_cast<std::size_t>(i)] == slice) members.row(at++) = z.row(i);
    SliceMoments moments{static_cast<double>(count) / static_cast<double>(n), {}, {}};
    moments.covariance = covariance_of(members, moments.mean);
    sample.slices.push_back(std::move(moments));
  }
  return sample;
}

inline Matrix<double> between_slices(const SlicedSample& sample) {
  Matrix<double> m = Matrix<double>::Zero(sample.whitening.rows(), sample.whitening.cols());
  for (const SliceMoments& slice : sample.slices) m += slice.share * slice.mean * slice.mean.transpose();
  return m;
}

inline SlicedDirections leading_directions(const SlicedSample& sample, Matrix<double> m, Index count) {
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen((m + m.transpose()).eval() / 2);
  const Index p = m.rows();
  SlicedDirections result{std::move(m), Matrix<double>(p, count)};
  for (Index k = 0; k < count; ++k) {
    Vector<double> direction = sample.whitening * eigen.eigenvectors().col(p - 1 - k);
    direction.normalize();
    fix_sign(direction);
    result.directions.col(k) = direction;
  }
  return result;
}

inline Index slices_by_dimension(Index p) { return std::max<Index>(8, p + 3); }

}  // namespace detail

/// x: [n, p], y: [n], n at least 4. Throws InvalidArgument for other shapes, entries that are not finite, constant x,
/// and options out of range. Where S is singular a ridge of 1e-8 tr(S) / p takes its place, for all three.
inline SlicedDirections sliced_inverse_regression(View<const double, 2> x, View<const double, 1> y,
                                                  const SliceOptions& options = {}) {
  const auto sample =
      detail::sliced_sample("sliced_inverse_regression", x, y, detail::slices_by_dimension(x.extent(1)), options);
  return detail::leading_directions(sample, detail::between_slices(sample), options.directions);
}

inline SlicedDirections sliced_average_variance(View<const double, 2> x, View<const double, 1> y,
                                                const SliceOptions& options = {}) {
  const auto sample =
      detail::sliced_sample("sliced_average_variance", x, y, detail::slices_by_dimension(x.extent(1)), options);
  const Index p = x.extent(1);
  Matrix<double> m = Matrix<double>::Zero(p, p);
  for (const detail::SliceMoments& slice : sample.slices) {
    const Matrix<double> lost = sample.covariance - slice.covariance;
    m += slice.share * lost * lost;
  }
  return detail::leading_directions(sample, std::move(m), options.directions);
}

inline SlicedDirections directional_regression(View<const double, 2> x, View<const double, 1> y,
                                               const SliceOptions& options = {}) {
  const auto default_slices =
      static_cast<Index>(std::ceil(std::log(static_cast<double>(std::max<Index>(x.extent(0), 1)))));
  const auto sample = detail::sliced_sample("directional_regression", x, y, default_slices, options);
  const Index p = x.extent(1);
  const Matrix<double> sir = detail::between_slices(sample);
  Matrix<double> m = 2 * sir * sir + 2 * sir.trace() * sir - 2 * Matrix<double>::Identity(p, p);
  for (const detail::SliceMoments& slice : sample.slices) {
    const Matrix<double> second = slice.covariance + slice.mean * slice.mean.transpose();
    m += 2 * slice.share * second * second;
  }
  return detail::leading_directions(sample, std::move(m), options.directions);
}

}  // namespace ashlar::statistics
