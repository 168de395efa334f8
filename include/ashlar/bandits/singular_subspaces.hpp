// Singular subspaces of a low-rank reward matrix from a log, and how far every single row of them is off.
//
//   Mtilde_ij = 1/T sum_t reward_t / omega_ij [(i_t, j_t) = (i, j)],    Mtilde ~ U diag(s) V^T, the top r.
//
//   const Matrix<double> weighted = ipw_matrix(log, propensity);      // propensity: omega = rho_i policy(j|i), [m, n]
//   const Subspaces subspaces = recover_subspaces(weighted, 2);
//   double error = subspace_error(true_u, subspaces.u);               // the row that is off most
//
// The error that counts is two-to-infinity, the largest norm of a row: it bounds every entry of what is estimated from
// the subspaces, and is smaller than the spectral error by a factor sqrt(m) when no row is special.
// O(T + m n min(m, n)) for small sides, else a randomised SVD, O(T + m n r) a step.
//
// Source: Jedra, Réveillard, Stojanovic, Proutiere, ICML 2024, section 3. The choice of a rank is ours.
#pragma once

#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ashlar/bandits/low_rank_environment.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/linalg/randomized_svd.hpp"

namespace ashlar::bandits {

namespace detail {

inline void check_propensity(std::string_view function, const BanditLog& log, View<const double, 2> propensity) {
  check_log(function, log, propensity.extent(0), propensity.extent(1));
  for (std::size_t t = 0; t < log.reward.size(); ++t) {
    const double weight = propensity(log.context[t], log.arm[t]);
    require(weight > 0 && std::isfinite(weight), function, "propensity[", log.context[t], ",", log.arm[t],
            "] must be positive, since round ", t, " was there, got ", weight);
  }
}

}  // namespace detail

/// Mtilde, the unbiased estimate of M by inverse propensity weights; 0 where nothing was seen. propensity: [m, n], the
/// probability of each cell. An empty log gives zeros. Throws InvalidArgument for a sample in a cell of probability 0.
inline Matrix<double> ipw_matrix(const BanditLog& log, View<const double, 2> propensity) {
  detail::check_propensity("ipw_matrix", log, propensity);
  Matrix<double> sums = Matrix<double>::Zero(propensity.extent(0), propensity.extent(1));
  for (std::size_t t = 0; t < log.reward.size(); ++t) sums(log.context[t], log.arm[t]) += log.reward[t];
  const auto rounds = static_cast<double>(log.size());
  for (Index i = 0; i < sums.rows(); ++i)
    for (Index j = 0; j < sums.cols(); ++j)
      if (sums(i, j) != 0) sums(i, j) /= propensity(i, j) * rounds;
  return sums;
}

/// Shares of the cells in a log, [m, n]: what to use when nobody knows the propensities. Mtilde is then the mean of
/// each cell that was seen, less noisy and biased towards 0 by those that were not.
inline Matrix<double> empirical_propensity(const BanditLog& log, Index contexts, Index arms) {
  detail::check_nonempty("empirical_propensity", log);
  detail::check_log("empirical_propensity", log, contexts, arms);
  Matrix<double> shares = Matrix<double>::Zero(contexts, arms);
  for (std::size_t t = 0; t < log.reward.size(); ++t) shares(log.context[t], log.arm[t]) += 1;
  return shares / static_cast<double>(log.size());
}

enum class SubspaceStatus {
  determined,      ///< sigma_r and sigma_{r+1} are apart
  ambiguous_rank,  ///< they are within 1e-12 sigma_1: another basis would do as well
  zero,            ///< the matrix is zero: the first unit vectors stand in for subspaces
  not_converged,   ///< the randomised SVD ran out of steps: the gap is too small for it, or the spectrum too flat
};

struct Subspaces {
  Matrix<double> u;                ///< [m, rank], orthonormal columns
  Matrix<double> v;                ///< [n, rank], orthonormal columns
  Vector<double> singular_values;  ///< at least rank of them, largest first
  SubspaceStatus status = SubspaceStatus::determined;

  Index rank() const { return u.cols(); }
  /// U diag(s) V^T, the best approximation of this rank. [m, n]
  Matrix<double> approximation() const { return u * singular_values.head(rank()).asDiagonal() * v.transpose(); }
};

/// Orthonormal columns that complete u: [m, r] to a basis of R^m, [m, m - r]. O(m^2 r).
inline Matrix<double> orthogonal_complement(View<const double, 2> u) {
  const Index m = u.extent(0), rank = u.extent(1);
  require(rank <= m, "orthogonal_complement", "u has shape ", std::span<const Index>(u.shape()),
          ", expected no more columns than rows");
  const Eigen::HouseholderQR<Eigen::MatrixXd> qr{Eigen::MatrixXd(matrix(u))};
  const Eigen::MatrixXd full = qr.householderQ() * Eigen::MatrixXd::Identity(m, m);
  return full.rightCols(m - rank);
}

enum class SvdMethod {
  automatic,   ///< dense up to 128 on the shorter side, randomised beyond
  dense,       ///< all singular values
  randomized,  ///< the leading ones
};

/// The leading singular subspaces of a matrix [m, n]. The randomised SVD draws from Rng(seed).
inline Subspaces recover_subspaces(View<const double, 2> input, Index rank, SvdMethod method = SvdMethod::automatic,
                                   std::uint64_t seed = 0) {
  constexpr auto function = "recover_subspaces";
  const Index m = input.extent(0), n = input.extent(1), smaller = std::min(m, n);
  require(rank >= 1 && rank <= smaller, function, "rank must be between 1 and ", smaller, ", got ", rank);
  const Matrix<double> a = matrix(input);
  if (!a.allFinite()) throw NumericalError("recover_subspaces: the matrix has an entry that is not finite");
  Subspaces result;
  if (a.isZero(0)) {
    result.u = Matrix<double>::Identity(m, rank);
    result.v = Matrix<double>::Identity(n, rank);
    result.singular_values = Vector<double>::Zero(std::min(rank + 1, smaller));
    result.status = SubspaceStatus::zero;
    return result;
  }
  if (method == SvdMethod::automatic) method = smaller <= 128 ? SvdMethod::dense : SvdMethod::randomized;
  bool converged = true;
  if (method == SvdMethod::dense) {
    const Eigen::JacobiSVD<Eigen::MatrixXd> svd(a, Eigen::ComputeThinU | Eigen::ComputeThinV);
    result.u = svd.matrixU().leftCols(rank);
    result.v = svd.matrixV().leftCols(rank);
    result.singular_values = svd.singularValues();
  } else {
    Rng rng(seed);
    // As many columns again as are wanted: what is left of a noisy matrix decays slowly.
    const auto svd = linalg::randomized_svd(
        a, rank, rng, {.oversampling = std::max<Index>(10, rank), .tolerance = 1e-9, .max_iterations = 200});
    result.u = svd.u;
    result.v = svd.v;
    result.singular_values.resize(std::min(rank + 1, smaller));
    result.singular_values.head(rank) = svd.singular_values;
    if (rank < smaller) result.singular_values[rank] = svd.next;
    converged = svd.converged;
  }
  const Vector<double>& s = result.singular_values;
  if (s.size() > rank && s[rank - 1] - s[rank] < 1e-12 * s[0])
    result.status = SubspaceStatus::ambiguous_rank;
  else if (!converged)
    result.status = SubspaceStatus::not_converged;
  return result;
}

/// How many singular values exceed a threshold.
inline Index select_rank(View<const double, 1> singular_values, double threshold) {
  check_argument(threshold >= 0, "select_rank", "threshold", "at least 0", threshold);
  Index rank = 0;
  for (Index k = 0; k < singular_values.extent(0); ++k) rank += singular_values[k] > threshold;
  return rank;
}

/// A threshold above the spectral norm of Mtilde - M, as a rule: sqrt(max_i sum_j V_ij) + sqrt(max_j sum_i V_ij) with
/// V_ij the sum of (reward / (T omega_ij))^2 over the samples of a cell. The weights make a noise of the order of M
/// itself even where rewards have none. Errs towards too small a rank when the gap is small. It says nothing of cells
/// that were not seen: a large entry among them is noise that this does not count.
inline double noise_threshold(const BanditLog& log, View<const double, 2> propensity) {
  detail::check_nonempty("noise_threshold", log);
  detail::check_propensity("noise_threshold", log, propensity);
  Vector<double> rows = Vector<double>::Zero(propensity.extent(0)), cols = Vector<double>::Zero(propensity.extent(1));
  const auto rounds = static_cast<double>(log.size());
  for (std::size_t t = 0; t < log.reward.size(); ++t) {
    const double weighted = log.reward[t] / (rounds * propensity(log.context[t], log.arm[t]));
    rows[log.context[t]] += weighted * weighted;
    cols[log.arm[t]] += weighted * weighted;
  }
  return std::sqrt(rows.maxCoeff()) + std::sqrt(cols.maxCoeff());
}

/// The largest Euclidean norm of a row.
inline double two_to_infinity_norm(View<const double, 2> a) {
  return a.empty() ? 0 : matrix(a).rowwise().norm().maxCoeff();
}

/// |U - Uhat Uhat^T U| two-to-infinity, for u and estimate: [m, r] with orthonormal columns.
inline double subspace_error(View<const double, 2> u, View<const double, 2> estimate) {
  check_shape("subspace_error", "estimate", estimate.shape(), {u.extent(0), estimate.extent(1)}, "as many rows as u");
  const auto truth = matrix(u), hat = matrix(estimate);
  const Matrix<double> error = truth - hat * (hat.transpose() * truth);
  return two_to_infinity_norm(error);
}

/// What the reduced model cannot say of M: (I - Uhat Uhat^T) M (I - Vhat Vhat^T), [m, n].
inline Matrix<double> misspecification(View<const double, 2> means, const Subspaces& estimate) {
  check_shape("misspecification", "means", means.shape(), {estimate.u.rows(), estimate.v.rows()},
              "the shape of the estimate");
  Matrix<double> rest = matrix(means);
  rest -= estimate.u * (estimate.u.transpose() * rest).eval();
  rest -= (rest * estimate.v).eval() * estimate.v.transpose();
  return rest;
}

/// |U - Uhat Uhat^T U|_{2,inf} |M| |V - Vhat Vhat^T V|_{2,inf}, which no entry of the misspecification exceeds: a
/// product of two errors, so it is second order. `truth` are the subspaces of M, of rank r.
inline double misspecification_bound(const Subspaces& truth, const Subspaces& estimate) {
  return subspace_error(truth.u, estimate.u) * truth.singular_values[0] * subspace_error(truth.v, estimate.v);
}

}  // namespace ashlar::bandits
