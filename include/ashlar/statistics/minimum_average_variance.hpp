// The direction of a single-index model by minimum average variance estimation (MAVE): local lines a_j + c_j (x_i -
// x_j)'b around every point, and the unit vector b that fits them best, in turns:
//
//   w_ij = exp(-((x_i - x_j)'b)^2 / (2 h^2)),   h = 1.06 sd(Xb) n^-1/5,
//   (a_j, c_j) = least squares of y_i on (1, (x_i - x_j)'b) with weights w_ij,
//   b = (sum w_ij c_j^2 d_ij d_ij')^-1 sum w_ij c_j d_ij (y_i - a_j),   d_ij = x_i - x_j.
//
// The first b is the leading eigenvector of the outer product of local gradients, with weights from all coordinates.
//
//   auto fit = statistics::minimum_average_variance(x, y);     // fit.direction
//
// The best there is for smooth links with light-tailed noise; it breaks where the link jumps or y has no variance.
// O(n^2 p^2) a pass.
//
// Source: Xia, Tong, Li, Zhu, "An adaptive estimation of dimension reduction space", JRSS B 64 (2002).
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <cmath>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/statistics/inverse_regression.hpp"

namespace ashlar::statistics {

struct AverageVarianceOptions {
  int max_passes = 20;      ///< at least 0; none leaves the outer product of gradients
  double tolerance = 1e-4;  ///< on the sine of the angle between two passes
};

struct AverageVarianceFit {
  Vector<double> direction;  ///< [p], unit, the largest entry positive
  int passes = 0;
  bool converged = false;
};

namespace detail {

inline constexpr double local_ridge = 1e-10;  // a point far from all others has no slope of its own

/// Adds up f(j, normal, right) over the points: chunks of fixed size, so that the sum does not depend on the threads.
template <class F>
void sum_over_points(Index n, Index p, Eigen::MatrixXd& normal, Eigen::VectorXd& right, F&& f) {
  constexpr Index grain = 16;
  const auto chunks = static_cast<std::size_t>(chunk_count(n, grain));
  std::vector<Eigen::MatrixXd> normals(chunks, Eigen::MatrixXd::Zero(p, p));
  std::vector<Eigen::VectorXd> rights(chunks, Eigen::VectorXd::Zero(p));
  parallel_for(n, grain, [&](Index begin, Index end) {
    const auto chunk = static_cast<std::size_t>(begin / grain);
    for (Index j = begin; j < end; ++j) f(j, normals[chunk], rights[chunk]);
  });
  normal.setZero(p, p);
  right.setZero(p);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) normal += normals[chunk], right += rights[chunk];
}

inline double deviation(const Eigen::VectorXd& v) {
  return std::sqrt((v.array() - v.mean()).square().sum() / static_cast<double>(v.size() - 1));
}

}  // namespace detail

/// x: [n, p], y: [n], n at least 4. Same bits for any number of threads. Throws InvalidArgument for other shapes,
/// entries that are not finite and constant x or y.
inline AverageVarianceFit minimum_average_variance(View<const double, 2> x, View<const double, 1> y,
                                                   const AverageVarianceOptions& options = {}) {
  constexpr auto function = "minimum_average_variance";
  detail::check_regression(function, x, y);
  check_argument(options.max_passes >= 0, function, "max_passes", "not negative", options.max_passes);
  check_argument(options.tolerance >= 0, function, "tolerance", "not negative", options.tolerance);
  const Eigen::MatrixXd points = matrix(x);
  const Eigen::VectorXd response = vector(y);
  const Index n = points.rows(), p = points.cols();
  const double shrink = 1.06 * std::pow(static_cast<double>(n), -0.2);
  double width = 0;
  for (Index k = 0; k < p; ++k) width += shrink * detail::deviation(points.col(k)) / static_cast<double>(p);
  require(width > 0, function, "x is constant");
  require(detail::deviation(response) > 0, function, "y is constant");

  Eigen::MatrixXd normal;
  Eigen::VectorXd right;
  detail::sum_over_points(n, p, normal, right, [&](Index j, Eigen::MatrixXd& outer, Eigen::VectorXd&) {
    Eigen::MatrixXd design(n, p + 1);
    design.col(0).setOnes();
    design.rightCols(p) = points.rowwise() - points.row(j);
    const Eigen::VectorXd weights = (design.rightCols(p).rowwise().squaredNorm().array() / (-2 * width * width)).exp();
    Eigen::MatrixXd local = design.transpose() * (weights.asDiagonal() * design);
    local.diagonal().array() += detail::local_ridge;
    const Eigen::VectorXd fit = local.ldlt().solve(design.transpose() * weights.cwiseProduct(response));
    outer += fit.tail(p) * fit.tail(p).transpose();
  });
  AverageVarianceFit result;
  result.direction = Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(normal).eigenvectors().col(p - 1);

  while (result.passes < options.max_passes && !result.converged) {
    const Eigen::VectorXd index = points * result.direction;
    const double h = shrink * detail::deviation(index);
    require(h > 0, function, "the index x b is constant");
    detail::sum_over_points(n, p, normal, right, [&](Index j, Eigen::MatrixXd& a, Eigen::VectorXd& b) {
      const Eigen::VectorXd t = index.array() - index[j];
      const Eigen::VectorXd weights = (t.array().square() / (-2 * h * h)).exp();
      const Eigen::VectorXd weighted = weights.cwiseProduct(t);
      Eigen::Matrix2d local;
      local << weights.sum(), weighted.sum(), weighted.sum(), weighted.dot(t);
      local.diagonal().array() += detail::local_ridge;
      const Eigen::Vector2d line = local.ldlt().solve(Eigen::Vector2d(weights.dot(response), weighted.dot(response)));
      const Eigen::MatrixXd gaps = points.rowwise() - points.row(j);
      a += line[1] * line[1] * (gaps.transpose() * (weights.asDiagonal() * gaps));
      b += line[1] * (gaps.transpose() * weights.cwiseProduct((response.array() - line[0]).matrix()));
    });
    normal.diagonal().array() += detail::local_ridge;
    Vector<double> next = normal.ldlt().solve(right);
    const double length = next.norm();
    if (!(length > 0) || !std::isfinite(length))
      throw NumericalError(message(function, ": the direction vanished in pass ", result.passes + 1));
    next /= length;
    const double sine = (next - next.dot(result.direction) * result.direction).norm();
    result.direction = next;
    ++result.passes;
    result.converged = sine < options.tolerance;
  }
  detail::fix_sign(result.direction);
  return result;
}

}  // namespace ashlar::statistics
