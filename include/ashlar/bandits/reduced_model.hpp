// A rank-r reward matrix as a linear model in r (m + n) - r^2 numbers, once its singular subspaces are nearly known.
//
//   M_ij = <phi_ij, theta> + something second order in the errors of Uhat [m, r] and Vhat [n, r],
//   phi_ij = [ vec(u_i v_j^T) ; vec(u_i vperp_j^T) ; vec(uperp_i v_j^T) ],
//   theta = argmin sum_t (reward_t - <phi, theta>)^2 + ridge |theta|^2.
//
//   ReducedModel model(subspaces);
//   model.fit(log, 1e-4);
//   Matrix<double> means = model.predict();                                 // Mbar, [m, n]
//
// The fit never forms a feature. Mbar = U P^T + Q V^T with U^T Q = 0 says the same in P [n, r] and Q [m, r], the two
// parts are orthogonal and |theta|^2 = |P|^2 + |Q|^2; the normal equations are solved by conjugate gradients on the
// cells that were seen, with the diagonal r x r blocks as preconditioner:
//   N o (U P^T + Q V^T) = R,     (R^T U + ridge P,  (I - U U^T) R V + ridge Q) = (S^T U,  (I - U U^T) S V),
// N counts and S sums of rewards. O(cells r) a step, on the roof of memory bandwidth, and O(T) once for N and S, where
// the textbook form takes O(T d^2). Mbar depends on the two subspaces alone, not on their bases.
//
// Source: Jedra, Réveillard, Stojanovic, Proutiere, ICML 2024, section 4; the fast form is ours.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "ashlar/bandits/detail/reduced_system.hpp"
#include "ashlar/bandits/low_rank_environment.hpp"
#include "ashlar/bandits/singular_subspaces.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::bandits {

/// The features of all arms in one context after another. d = r (m + n) - r^2.
class ReducedFeatures {
 public:
  /// O(m^2 r + n^2 r) for the complements.
  explicit ReducedFeatures(const Subspaces& subspaces)
      : u_(subspaces.u), v_(subspaces.v), u_perp_(orthogonal_complement(u_)), v_perp_(orthogonal_complement(v_)) {}

  Index contexts() const { return u_.rows(); }
  Index arms() const { return v_.rows(); }
  Index dim() const { return u_.cols() * (u_.rows() + v_.rows() - u_.cols()); }

  /// phi_ij of every arm j into out: [n, d]. O(n d), allocates nothing.
  void of_context(Index context, View<double, 2> out) const {
    constexpr auto function = "ReducedFeatures::of_context";
    check_argument(context >= 0 && context < contexts(), function, "context", "the index of a context", context);
    check_shape(function, "out", out.shape(), {arms(), dim()}, "one row an arm");
    for (Index j = 0; j < arms(); ++j) {
      Index k = 0;
      const auto outer = [&](const auto& left, const auto& right) {
        for (Index a = 0; a < left.cols(); ++a)
          for (Index b = 0; b < right.cols(); ++b) out(j, k++) = left(context, a) * right(j, b);
      };
      outer(u_, v_);
      outer(u_, v_perp_);
      outer(u_perp_, v_);
    }
  }
  Matrix<double> of_context(Index context) const {
    Matrix<double> out(arms(), dim());
    of_context(context, out);
    return out;
  }

  /// theta with <phi_ij, theta> as near to M_ij as any: [U Uperp]^T M [V Vperp] without its last block. [d]
  Vector<double> coefficients(View<const double, 2> means) const {
    check_shape("ReducedFeatures::coefficients", "means", means.shape(), {contexts(), arms()}, "contexts by arms");
    const auto m = matrix(means);
    const Matrix<double> blocks[] = {u_.transpose() * m * v_, u_.transpose() * m * v_perp_,
                                     u_perp_.transpose() * m * v_};
    Vector<double> theta(dim());
    Index k = 0;
    for (const Matrix<double>& block : blocks)
      for (Index i = 0; i < block.size(); ++i) theta[k++] = block.data()[i];
    return theta;
  }

 private:
  Matrix<double> u_, v_, u_perp_, v_perp_;
};

namespace reference {

/// Mbar by the features of every round and one Gram matrix [d, d]. Without a ridge: the shortest least squares
/// solution. O(T d^2 + d^3).
inline Matrix<double> reduced_least_squares(const Subspaces& subspaces, const BanditLog& log, double ridge) {
  const ReducedFeatures features(subspaces);
  const Index m = features.contexts(), n = features.arms(), dim = features.dim();
  std::vector<Matrix<double>> phi;
  for (Index i = 0; i < m; ++i) phi.push_back(features.of_context(i));
  Eigen::MatrixXd gram = ridge * Eigen::MatrixXd::Identity(dim, dim);
  Vector<double> moment = Vector<double>::Zero(dim);
  for (std::size_t t = 0; t < log.reward.size(); ++t) {
    const Vector<double> x = phi[static_cast<std::size_t>(log.context[t])].row(log.arm[t]).transpose();
    gram += x * x.transpose();
    moment += log.reward[t] * x;
  }
  const Vector<double> theta = ridge > 0 ? Vector<double>(gram.ldlt().solve(moment))
                                         : Vector<double>(gram.completeOrthogonalDecomposition().solve(moment));
  Matrix<double> means(m, n);
  for (Index i = 0; i < m; ++i) means.row(i) = (phi[static_cast<std::size_t>(i)] * theta).transpose();
  return means;
}

}  // namespace reference

class ReducedModel {
 public:
  /// Before a fit it predicts 0.
  explicit ReducedModel(Subspaces subspaces)
      : subspaces_(std::move(subspaces)),
        p_(Matrix<double>::Zero(subspaces_.v.rows(), subspaces_.rank())),
        q_(Matrix<double>::Zero(subspaces_.u.rows(), subspaces_.rank())) {
    require(subspaces_.u.cols() == subspaces_.v.cols() && subspaces_.rank() >= 1, "ReducedModel",
            "the subspaces have dimensions ", subspaces_.u.cols(), " and ", subspaces_.v.cols(),
            ", expected the same, at least 1");
  }

  Index contexts() const { return subspaces_.u.rows(); }
  Index arms() const { return subspaces_.v.rows(); }
  Index dim() const { return subspaces_.rank() * (contexts() + arms() - subspaces_.rank()); }
  const Subspaces& subspaces() const { return subspaces_; }
  const Matrix<double>& p() const { return p_; }                           ///< [n, r]
  const Matrix<double>& q() const { return q_; }                           ///< [m, r], U^T q = 0
  Index iterations() const { return iterations_; }                         ///< of conjugate gradients in the last fit
  bool zero() const { return subspaces_.status == SubspaceStatus::zero; }  ///< no subspaces: stays at 0

  /// The ridge estimate from the rounds of a log. ridge >= 0; zero asks for the shortest solution, O(d^3).
  /// Throws NumericalError when conjugate gradients fail and the model is too large for a dense solve (d > 3000).
  void fit(const BanditLog& log, double ridge) {
    constexpr auto function = "ReducedModel::fit";
    detail::check_nonempty(function, log);
    detail::check_log(function, log, contexts(), arms());
    check_argument(ridge >= 0 && std::isfinite(ridge), function, "ridge", "finite and not negative", ridge);
    if (zero()) return;
    solve(detail::cells_of(log, contexts(), arms()), ridge);
  }

  /// The same from counts [m, n] and sums of rewards [m, n] by cell; counts may be weights.
  void fit(View<const double, 2> counts, View<const double, 2> sums, double ridge) {
    constexpr auto function = "ReducedModel::fit";
    check_shape(function, "counts", counts.shape(), {contexts(), arms()}, "contexts by arms");
    check_shape(function, "sums", sums.shape(), {contexts(), arms()}, "contexts by arms");
    check_argument(ridge >= 0 && std::isfinite(ridge), function, "ridge", "finite and not negative", ridge);
    for (Index i = 0; i < contexts(); ++i)
      for (Index j = 0; j < arms(); ++j) {
        check_argument(counts(i, j) >= 0 && std::isfinite(counts(i, j)), function, "every count",
                       "finite and not negative", counts(i, j));
        check_argument(std::isfinite(sums(i, j)), function, "every sum", "finite", sums(i, j));
      }
    if (zero()) return;
    solve(detail::cells_of(counts, sums), ridge);
  }

  /// Mbar_ij. O(r).
  double predict(Index context, Index arm) const {
    check_argument(context >= 0 && context < contexts(), "ReducedModel::predict", "context", "the index of a context",
                   context);
    check_argument(arm >= 0 && arm < arms(), "ReducedModel::predict", "arm", "the index of an arm", arm);
    return subspaces_.u.row(context).dot(p_.row(arm)) + q_.row(context).dot(subspaces_.v.row(arm));
  }
  /// Mbar into out: [m, n]. O(m n r), allocates nothing.
  void predict(View<double, 2> out) const {
    check_shape("ReducedModel::predict", "out", out.shape(), {contexts(), arms()}, "contexts by arms");
    const Index rank = subspaces_.rank();
    for (Index i = 0; i < contexts(); ++i)
      for (Index j = 0; j < arms(); ++j) {
        double sum = 0;
        for (Index k = 0; k < rank; ++k) sum += subspaces_.u(i, k) * p_(j, k) + q_(i, k) * subspaces_.v(j, k);
        out(i, j) = sum;
      }
  }
  Matrix<double> predict() const {
    Matrix<double> out(contexts(), arms());
    predict(out);
    return out;
  }

 private:
  void solve(const detail::Cells& cells, double ridge) {
    detail::ReducedSystem system(cells, subspaces_.u, subspaces_.v, ridge);
    const detail::ReducedSolution solution = system.solve(system.project(cells.sum));
    iterations_ = solution.iterations;
    p_ = system.p_of(solution.x);
    q_ = system.q_of(solution.x);
  }

  Subspaces subspaces_;
  Matrix<double> p_, q_;
  Index iterations_ = 0;
};

}  // namespace ashlar::bandits
