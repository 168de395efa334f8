// Kernel regression without a ridge: the function of least norm through noisy data,
//
//   f(x) = k(x, X) K^+ y,        K = k(X, X),
//
// computed as carefully as a Gram matrix allows and honest about what that was worth; and the ridge it is compared
// with.
//
//   const Matrix<double> k = linalg::gram(kernel, x);
//   const auto fit = kernels::fit_ridgeless(k, y);                 // fit.rcond, fit.rank, fit.interpolates
//   Vector<double> f = kernels::predict(linalg::gram(kernel, x_test, x), fit);
//   const auto choice = kernels::RidgePath(k, y).leave_one_out(ridges);       // choice.ridge
//
// What the noise does to f is the business of ridgeless_risk.hpp (measured), ridgeless_bounds.hpp (proven),
// deterministic_equivalent.hpp (predicted) and overfitting.hpp (classified).
//
// Source: Cheng, Lucchi, Kratsios, Belius, "Characterizing overfitting in kernel ridgeless regression through the
// eigenspectrum", ICML 2024. Everything here is in double: condition numbers grow like n^(1 + a) or e^(a n), and single
// precision ends at 1e7.
//
// Cost: n^3 / 3 for a fit; ten times that and more when the matrix is close to singular, and for a path of ridges.
#pragma once

#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/linalg/cholesky.hpp"

namespace ashlar::kernels {

struct RidgelessOptions {
  double ridge = 0;       ///< lambda >= 0 in (K + lambda)^-1; not divided by n
  double truncation = 0;  ///< eigenvalues up to this share of the largest count as zero; 0: n eps, for Gram matrices
                          ///< that are right to the last digit. 1e-6 suits one computed in single precision
};

struct RidgelessFit {
  Vector<double> alpha;       ///< [n]: f(x) = k(x, X) alpha
  double rcond = 0;           ///< an estimate of s_min / s_max of K + ridge; 0 where nothing is left of s_min
  Index rank = 0;             ///< eigenvalues that counted; below n, f is the interpolant of least norm of what is left
  double residual = 0;        ///< |K alpha - y| / |y|
  bool interpolates = false;  ///< residual < 1e-6
};

namespace detail {

/// Below this a Cholesky factor leaves fewer than three digits, and eigenvalues say which directions are to blame.
inline constexpr double cholesky_rcond = 1e-13;

inline void check_gram(std::string_view function, View<const double, 2> gram) {
  const Index n = gram.extent(0);
  check_shape(function, "gram", gram.shape(), {n, n}, "a square");
  require(n >= 1, function, "gram has no rows");
  const auto k = matrix(gram);
  require(k.allFinite(), function, "gram has an entry that is not finite");
  const double scale = k.cwiseAbs().maxCoeff();
  double gap = 0;
  constexpr Index block = 64;  // both triangles of a pair of blocks stay in cache
  for (Index i = 0; i < n; i += block)
    for (Index j = 0; j <= i; j += block) {
      const Index rows = std::min(block, n - i), cols = std::min(block, n - j);
      gap = std::max(gap, (k.block(i, j, rows, cols) - k.block(j, i, cols, rows).transpose()).cwiseAbs().maxCoeff());
    }
  require(gap <= 1e-10 * scale, function, "gram must be symmetric, but entries differ by ", gap,
          " across the diagonal");
}

inline void check_target(std::string_view function, std::string_view argument, View<const double, 1> y, Index n) {
  check_shape(function, argument, y.shape(), {n}, "one value a row of gram");
  require(vector(y).allFinite(), function, argument, " has an entry that is not finite");
}

/// Throws unless the eigenvalues are those of a positive semidefinite matrix but for rounding.
inline void check_semidefinite(std::string_view function, const Vector<double>& values, double tolerance) {
  if (values[0] < -tolerance)
    throw NumericalError(message(function, ": gram has the eigenvalue ", values[0], ", below what rounding explains (-",
                                 tolerance, "): it is not positive semidefinite"));
}

}  // namespace detail

/// (K + ridge)^+, factored once. By Cholesky where the condition allows it, by eigenvalues where it does not.
class RidgelessSolver {
 public:
  /// gram: [n, n], symmetric positive semidefinite. Throws InvalidArgument when it is not symmetric to 1e-10 of its
  /// largest entry, NumericalError when it has an eigenvalue below -truncation times the largest.
  explicit RidgelessSolver(View<const double, 2> gram, const RidgelessOptions& options = {}) {
    constexpr auto function = "RidgelessSolver";
    check_argument(options.ridge >= 0 && std::isfinite(options.ridge), function, "ridge", "at least 0 and finite",
                   options.ridge);
    check_argument(options.truncation >= 0 && options.truncation < 1, function, "truncation", "in [0, 1)",
                   options.truncation);
    detail::check_gram(function, gram);
    order_ = rank_ = gram.extent(0);
    const auto system = [&] {
      Matrix<double> k = matrix(gram);
      k.diagonal().array() += options.ridge;
      return k;
    };
    const double rounding = static_cast<double>(order_) * std::numeric_limits<double>::epsilon();
    const double share = options.truncation > 0 ? options.truncation : rounding;
    try {
      cholesky_.emplace(system());
      rcond_ = cholesky_->rcond();
      if (rcond_ >= std::max(share, detail::cholesky_rcond)) return;
    } catch (const NumericalError&) {  // a pivot is not positive
    }
    cholesky_.reset();
    const Eigen::SelfAdjointEigenSolver<Matrix<double>> eigen(system());
    const Vector<double> values = eigen.eigenvalues();
    const double largest = std::max(values[order_ - 1], 0.0), tolerance = share * largest;
    detail::check_semidefinite(function, values.array() - options.ridge, tolerance);
    rank_ = (values.array() > tolerance).count();
    rcond_ = largest > 0 ? std::max(values[0], 0.0) / largest : 0;
    inverse_values_ = values.tail(rank_).cwiseInverse();
    vectors_ = eigen.eigenvectors().rightCols(rank_);
  }

  Index order() const { return order_; }
  Index rank() const { return rank_; }
  double rcond() const { return rcond_; }
  /// Whether a solution is worth at least three digits, whatever the right-hand side.
  bool reliable() const { return rank_ == order_ && rcond_ > 1e-12; }

  /// b: [n]. O(n^2).
  Vector<double> solve(View<const double, 1> b) const {
    check_shape("RidgelessSolver::solve", "b", b.shape(), {order_}, "one entry a row of gram");
    if (cholesky_) return cholesky_->solve(b);
    return vectors_ * inverse_values_.cwiseProduct(vectors_.transpose() * vector(b));
  }
  /// b: [n, m], a right-hand side a column. O(n^2 m), threaded over columns; the bits do not depend on threads.
  Matrix<double> solve_columns(View<const double, 2> b) const {
    check_shape("RidgelessSolver::solve_columns", "b", b.shape(), {order_, b.extent(1)}, "one row a row of gram");
    if (cholesky_) return cholesky_->solve_columns(b);
    Matrix<double> x(order_, b.extent(1));
    parallel_for(b.extent(1), 64, [&](Index begin, Index end) {
      const auto part = matrix(b.slice(1, begin, end));
      x.middleCols(begin, end - begin) = vectors_ * (inverse_values_.asDiagonal() * (vectors_.transpose() * part));
    });
    return x;
  }

 private:
  Index order_ = 0, rank_ = 0;
  double rcond_ = 0;
  std::optional<linalg::Cholesky<double>> cholesky_;
  Matrix<double> vectors_;  ///< [n, rank]
  Vector<double> inverse_values_;
};

namespace reference {

/// K^+ y by eigenvalues, those up to n eps times the largest left out. gram: [n, n], y: [n]. 9 n^3.
inline Vector<double> ridgeless_coefficients(const Matrix<double>& gram, const Vector<double>& y) {
  const Eigen::SelfAdjointEigenSolver<Matrix<double>> eigen(gram);
  const Vector<double>& s = eigen.eigenvalues();
  const double tolerance = static_cast<double>(y.size()) * std::numeric_limits<double>::epsilon() * s[y.size() - 1];
  Vector<double> alpha = Vector<double>::Zero(y.size());
  for (Index i = 0; i < y.size(); ++i)
    if (s[i] > tolerance) alpha += eigen.eigenvectors().col(i) * (eigen.eigenvectors().col(i).dot(y) / s[i]);
  return alpha;
}

/// The residuals y_i - f_i(x_i), f_i fitted with ridge > 0 to all points but i: n solves of order n - 1.
inline Vector<double> leave_one_out(const Matrix<double>& gram, const Vector<double>& y, double ridge) {
  const Index n = y.size();
  Vector<double> residuals(n);
  for (Index left_out = 0; left_out < n; ++left_out) {
    const auto at = [&](Index i) { return i < left_out ? i : i + 1; };
    Matrix<double> rest(n - 1, n - 1);
    Vector<double> cross(n - 1), target(n - 1);
    for (Index i = 0; i < n - 1; ++i) {
      for (Index j = 0; j < n - 1; ++j) rest(i, j) = gram(at(i), at(j)) + (i == j ? ridge : 0);
      cross[i] = gram(left_out, at(i));
      target[i] = y[at(i)];
    }
    residuals[left_out] = y[left_out] - cross.dot(rest.ldlt().solve(target));
  }
  return residuals;
}

}  // namespace reference

/// The interpolant of least norm, or the ridge regression when options.ridge > 0. gram: [n, n], y: [n]. Points that
/// occur twice make K singular; f then passes through the mean of their values, and rank is below n. Errors as
/// RidgelessSolver. (A step of iterative refinement in the same precision gains less than half a digit, so there is
/// none.)
inline RidgelessFit fit_ridgeless(View<const double, 2> gram, View<const double, 1> y,
                                  const RidgelessOptions& options = {}) {
  constexpr auto function = "fit_ridgeless";
  const Index n = gram.extent(0);
  detail::check_target(function, "y", y, n);
  const RidgelessSolver solver(gram, options);
  RidgelessFit fit{.alpha = solver.solve(y), .rcond = solver.rcond(), .rank = solver.rank()};
  const auto target = vector(y);
  const double scale = target.norm();
  fit.residual = scale > 0 ? (target - matrix(gram) * fit.alpha).norm() / scale : 0;
  fit.interpolates = fit.residual < 1e-6;
  return fit;
}

/// f at test points. k_test: [m, n], k(x_test, X). O(m n).
inline Vector<double> predict(View<const double, 2> k_test, const RidgelessFit& fit) {
  check_shape("predict", "k_test", k_test.shape(), {k_test.extent(0), fit.alpha.size()}, "one column a training point");
  return matrix(k_test) * fit.alpha;
}

struct LeaveOneOut {
  Matrix<double> residuals;  ///< [ridges, n]: y_i minus the prediction at x_i without point i
  Vector<double> scores;     ///< [ridges]: their mean squares
  double ridge = 0;          ///< the one with the least score, the larger of equals
};

/// Ridge regressions for any number of ridges from one eigendecomposition.
class RidgePath {
 public:
  /// gram: [n, n], y: [n]. About 9 n^3. Errors as RidgelessSolver.
  RidgePath(View<const double, 2> gram, View<const double, 1> y) {
    constexpr auto function = "RidgePath";
    detail::check_gram(function, gram);
    detail::check_target(function, "y", y, gram.extent(0));
    const Eigen::SelfAdjointEigenSolver<Matrix<double>> eigen(matrix(gram));
    values_ = eigen.eigenvalues();
    tolerance_ = static_cast<double>(values_.size()) * std::numeric_limits<double>::epsilon() *
                 std::max(values_[values_.size() - 1], 0.0);
    detail::check_semidefinite(function, values_, tolerance_);
    vectors_ = eigen.eigenvectors();
    target_ = vectors_.transpose() * vector(y);
  }

  const Vector<double>& eigenvalues() const { return values_; }  ///< ascending

  /// alpha for one ridge, [n]; for 0 the limit of small ridges, which is the interpolant of least norm. O(n^2).
  Vector<double> coefficients(double ridge) const {
    check_ridge("RidgePath::coefficients", ridge);
    return vectors_ * target_.cwiseProduct(inverse(ridge));
  }

  /// What every point says about the fit without it: residual_i = ((K + ridge)^-1 y)_i / ((K + ridge)^-1)_ii, O(n^2) a
  /// ridge. Throws NumericalError where K + ridge is singular, since then some point has no fit without it.
  LeaveOneOut leave_one_out(std::span<const double> ridges) const {
    constexpr auto function = "RidgePath::leave_one_out";
    require(!ridges.empty(), function, "ridges is empty");
    const Index n = values_.size(), count = static_cast<Index>(ridges.size());
    for (const double ridge : ridges) {
      check_ridge(function, ridge);
      if (!(std::max(values_[0], 0.0) + ridge > tolerance_))
        throw NumericalError(message(function, ": the matrix is singular at the ridge ", ridge));
    }
    LeaveOneOut result{.residuals = Matrix<double>(count, n), .scores = Vector<double>(count)};
    const Matrix<double> squares = vectors_.cwiseAbs2();
    parallel_for(count, 1, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Vector<double> weights = inverse(ridges[static_cast<std::size_t>(i)]);
        const Vector<double> alpha = vectors_ * target_.cwiseProduct(weights), diagonal = squares * weights;
        result.residuals.row(i) = alpha.cwiseQuotient(diagonal).transpose();
        result.scores[i] = result.residuals.row(i).squaredNorm() / static_cast<double>(n);
      }
    });
    Index best = 0;
    for (Index i = 1; i < count; ++i) {
      const bool larger = ridges[static_cast<std::size_t>(i)] > ridges[static_cast<std::size_t>(best)];
      if (result.scores[i] < result.scores[best] || (result.scores[i] == result.scores[best] && larger)) best = i;
    }
    result.ridge = ridges[static_cast<std::size_t>(best)];
    return result;
  }

 private:
  static void check_ridge(std::string_view function, double ridge) {
    check_argument(ridge >= 0 && std::isfinite(ridge), function, "ridge", "at least 0 and finite", ridge);
  }
  /// 1 / (s + ridge), zero where that is nothing but rounding.
  Vector<double> inverse(double ridge) const {
    return values_.unaryExpr([&](double s) {
      const double shifted = std::max(s, 0.0) + ridge;
      return shifted > (ridge > 0 ? 0.0 : tolerance_) ? 1 / shifted : 0.0;
    });
  }

  Vector<double> values_, target_;
  Matrix<double> vectors_;
  double tolerance_ = 0;
};

}  // namespace ashlar::kernels
