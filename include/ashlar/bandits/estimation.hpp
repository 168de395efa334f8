// What pulls and reward sums say about a linear bandit: the ridge estimate of its coefficients, and the statistic that
// says how surely the arm that looks best is the best.
//
//   reward of arm x = <x, theta> + noise of variance sigma^2,    H = sum_x N_x x x^T for N_x pulls of arm x.
//
//   Vector<double> theta = ridge_estimate(arms, counts, reward_sums);      // arms: [K, d], the others: [K]
//   double z = chernoff_statistic(arms, counts, theta);                    // large when the best arm is beyond doubt
//
// Source: Ren, Jin, Xu, "Optimal Batched Linear Bandits", ICML 2024, sections 2 and 3.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "ashlar/bandits/detail/row_space.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::bandits {

namespace detail {

/// H^-1 = root root^T for H = sum_x N_x x x^T + ridge I. Without a ridge the inverse is the one in the span of the
/// arms that were pulled, `basis`.
struct InverseRoot {
  Matrix<double> root;   // [d, rank]
  Matrix<double> basis;  // [d, rank] when rank < d, else empty
};

inline void check_counts(std::string_view function, View<const std::int64_t, 1> counts, Index arms) {
  check_shape(function, "counts", counts.shape(), {arms}, "one count an arm");
  for (Index i = 0; i < arms; ++i) check_argument(counts[i] >= 0, function, "every count", "not negative", counts[i]);
}

inline void check_ridge(std::string_view function, double ridge) {
  check_argument(ridge >= 0 && std::isfinite(ridge), function, "ridge", "finite and not negative", ridge);
}

inline InverseRoot inverse_root(const RowMap& rows, View<const std::int64_t, 1> counts, double ridge) {
  std::vector<Index> pulled;
  for (Index i = 0; i < rows.rows(); ++i)
    if (counts[i] > 0) pulled.push_back(i);
  Matrix<double> scaled = gather(rows, pulled);
  for (Index i = 0; i < scaled.rows(); ++i)
    scaled.row(i) *= std::sqrt(static_cast<double>(counts[pulled[static_cast<std::size_t>(i)]]));
  const Index dim = rows.cols();
  if (ridge == 0) {
    const RowSpace space = row_space(scaled, 1e-10);
    return {space.whitening(), space.rank() < dim ? space.basis : Matrix<double>()};
  }
  Eigen::MatrixXd h = ridge * Eigen::MatrixXd::Identity(dim, dim);
  h.selfadjointView<Eigen::Lower>().rankUpdate(scaled.transpose());
  const Eigen::LLT<Eigen::MatrixXd> llt(h);
  if (llt.info() != Eigen::Success)
    throw NumericalError(message("ridge estimate: H + ", ridge, " I is not positive definite in double precision"));
  Eigen::MatrixXd root = Eigen::MatrixXd::Identity(dim, dim);
  llt.matrixU().solveInPlace(root);
  return {root, {}};
}

inline Vector<double> estimate(const RowMap& rows, const InverseRoot& inverse, View<const double, 1> reward_sums) {
  const Vector<double> moment = rows.transpose() * vector(reward_sums);
  return inverse.root * (inverse.root.transpose() * moment);
}

inline double chernoff(const RowMap& rows, const InverseRoot& inverse, const Vector<double>& theta, double sigma,
                       std::string_view function) {
  const Vector<double> means = rows * theta;
  Index best = 0;
  means.maxCoeff(&best);
  double smallest = std::numeric_limits<double>::infinity();
  Vector<double> difference(rows.cols()), part(inverse.root.cols());
  for (Index i = 0; i < rows.rows(); ++i) {
    difference = (rows.row(best) - rows.row(i)).transpose();
    const double length = difference.norm();
    if (length <= 1e-14 * rows.row(best).norm()) continue;  // a duplicate: there is nothing to tell apart
    if (inverse.basis.size() != 0 || inverse.root.cols() == 0) {
      const Vector<double> outside = difference - inverse.basis * (inverse.basis.transpose() * difference);
      if (outside.norm() > 1e-8 * length)
        throw NumericalError(message(function, ": H is singular and arm ", i, " minus arm ", best,
                                     " lies outside the span of the pulled arms; use a ridge"));
    }
    part.noalias() = inverse.root.transpose() * difference;
    const double gap = means[best] - means[i];
    smallest = std::min(smallest, gap * gap / (2 * part.squaredNorm()));
  }
  return smallest / (sigma * sigma);
}

}  // namespace detail

/// theta = (H + ridge I)^-1 sum_x S_x x with H = sum_x N_x x x^T. Without a ridge: least squares, the shortest solution
/// when the pulled arms do not span everything. arms: [K, d]; counts, reward_sums: [K]. O(K d^2).
template <class X>
Vector<double> ridge_estimate(const X& arms, View<const std::int64_t, 1> counts, View<const double, 1> reward_sums,
                              double ridge = 1) {
  const detail::Arms all(arms, "ridge_estimate");
  detail::check_counts("ridge_estimate", counts, all.count());
  check_shape("ridge_estimate", "reward_sums", reward_sums.shape(), {all.count()}, "one sum an arm");
  detail::check_ridge("ridge_estimate", ridge);
  return detail::estimate(all.rows(), detail::inverse_root(all.rows(), counts, ridge), reward_sums);
}

/// The generalised likelihood ratio statistic of "the best arm is the one that looks best":
///   Z = min_{x != best} <best - x, theta>^2 / (2 sigma^2 ||best - x||^2_{H^-1}),   H = sum_x N_x x x^T + ridge I.
/// Duplicates of the best arm are skipped; with no other arm left Z is infinite. O(K d^2).
/// Throws NumericalError when H is singular and a difference lies outside the span of the pulled arms.
template <class X>
double chernoff_statistic(const X& arms, View<const std::int64_t, 1> counts, View<const double, 1> theta,
                          double ridge = 0, double sigma = 1) {
  constexpr auto function = "chernoff_statistic";
  const detail::Arms all(arms, function);
  detail::check_counts(function, counts, all.count());
  check_shape(function, "theta", theta.shape(), {all.dim()}, "one coefficient a dimension");
  for (Index k = 0; k < all.dim(); ++k) check_argument(std::isfinite(theta[k]), function, "theta", "finite", theta[k]);
  detail::check_ridge(function, ridge);
  check_argument(sigma > 0 && std::isfinite(sigma), function, "sigma", "finite and positive", sigma);
  return detail::chernoff(all.rows(), detail::inverse_root(all.rows(), counts, ridge), vector(theta), sigma, function);
}

namespace reference {

/// The statistic as written, with one inverse of H. For ridge > 0 or pulled arms that span everything.
inline double chernoff_statistic(const Matrix<double>& arms, View<const std::int64_t, 1> counts,
                                 View<const double, 1> theta, double ridge = 0, double sigma = 1) {
  Eigen::MatrixXd h = ridge * Eigen::MatrixXd::Identity(arms.cols(), arms.cols());
  for (Index i = 0; i < arms.rows(); ++i) h += static_cast<double>(counts[i]) * arms.row(i).transpose() * arms.row(i);
  const Eigen::MatrixXd inverse = h.inverse();
  const Vector<double> means = arms * vector(theta);
  Index best = 0;
  means.maxCoeff(&best);
  double z = std::numeric_limits<double>::infinity();
  for (Index i = 0; i < arms.rows(); ++i) {
    const Vector<double> v = (arms.row(best) - arms.row(i)).transpose();
    if (v.squaredNorm() == 0) continue;
    z = std::min(z, (means[best] - means[i]) * (means[best] - means[i]) / (2 * sigma * sigma * v.dot(inverse * v)));
  }
  return z;
}

}  // namespace reference

/// The ridge estimate of data that keep coming: counts and sums per arm, H and sum_x S_x x are kept up to date,
/// O(d^2) for a new result. Needs a ridge, so that H is invertible from the start.
class RidgeEstimator {
 public:
  template <class X>
  explicit RidgeEstimator(const X& arms, double ridge = 1) {
    check_argument(ridge > 0 && std::isfinite(ridge), "RidgeEstimator", "ridge", "finite and positive", ridge);
    arms_ = detail::Arms(arms, "RidgeEstimator").rows();
    counts_ = Vector<std::int64_t>::Zero(arms_.rows());
    reward_sums_ = Vector<double>::Zero(arms_.rows());
    precision_ = ridge * Matrix<double>::Identity(arms_.cols(), arms_.cols());
    moment_ = Vector<double>::Zero(arms_.cols());
  }

  /// `count` more pulls of an arm, with rewards that sum to `reward_sum`. Allocates nothing.
  void add(Index arm, std::int64_t count, double reward_sum) {
    check_argument(arm >= 0 && arm < arms_.rows(), "RidgeEstimator::add", "arm", "the index of an arm", arm);
    check_argument(count >= 0, "RidgeEstimator::add", "count", "not negative", count);
    check_argument(std::isfinite(reward_sum), "RidgeEstimator::add", "reward_sum", "finite", reward_sum);
    counts_[arm] += count;
    reward_sums_[arm] += reward_sum;
    for (Index i = 0; i < arms_.cols(); ++i) {
      const double scaled = static_cast<double>(count) * arms_(arm, i);
      for (Index j = 0; j < arms_.cols(); ++j) precision_(i, j) += scaled * arms_(arm, j);
      moment_[i] += reward_sum * arms_(arm, i);
    }
  }

  const Matrix<double>& arms() const { return arms_; }                ///< [K, d]
  const Vector<std::int64_t>& counts() const { return counts_; }      ///< [K]
  const Vector<double>& reward_sums() const { return reward_sums_; }  ///< [K]
  const Matrix<double>& precision() const { return precision_; }      ///< H + ridge I, [d, d]

  /// (H + ridge I)^-1 sum_x S_x x. O(d^3).
  Vector<double> theta() const {
    Vector<double> theta(arms_.cols());
    Matrix<double> factor(arms_.cols(), arms_.cols());
    this->theta(theta, factor);
    return theta;
  }

  /// The same into `theta` [d]; `factor` [d, d], contiguous, receives the lower Cholesky factor of H + ridge I.
  /// Allocates nothing.
  void theta(View<double, 1> theta, View<double, 2> factor) const {
    const Index dim = arms_.cols();
    check_shape("RidgeEstimator::theta", "theta", theta.shape(), {dim}, "one coefficient a dimension");
    check_shape("RidgeEstimator::theta", "factor", factor.shape(), {dim, dim}, "the shape of H");
    for (Index i = 0; i < dim; ++i) {
      double sum = moment_[i];
      for (Index j = 0; j <= i; ++j) {
        double entry = precision_(i, j);
        for (Index k = 0; k < j; ++k) entry -= factor(i, k) * factor(j, k);
        if (i == j && !(entry > 0))
          throw NumericalError("RidgeEstimator::theta: H + ridge I is not positive definite in double precision");
        factor(i, j) = i == j ? std::sqrt(entry) : entry / factor(j, j);
        if (j < i) sum -= factor(i, j) * theta[j];
      }
      theta[i] = sum / factor(i, i);
    }
    for (Index i = dim; i-- > 0;) {
      double sum = theta[i];
      for (Index k = i + 1; k < dim; ++k) sum -= factor(k, i) * theta[k];
      theta[i] = sum / factor(i, i);
    }
  }

 private:
  Matrix<double> arms_;
  Vector<std::int64_t> counts_;
  Vector<double> reward_sums_;
  Matrix<double> precision_;
  Vector<double> moment_;
};

}  // namespace ashlar::bandits
