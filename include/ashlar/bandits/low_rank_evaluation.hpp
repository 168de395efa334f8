// What a policy is worth, and which is best, from the log of another policy when rewards have low rank.
//
//   const PolicyValue v = rs_pe(log, rho, behavior, target, 2);        // v.value +- v.standard_error
//   const std::vector<Index> best = rs_bpi(log, rho, behavior, 2);     // an arm a context
//
// rho: [m], law of the contexts. behavior, target: [m, n], policies, rows sum to 1. Two phases: subspaces from the
// inverse-propensity matrix, then ridge regression in r (m + n) - r^2 numbers (reduced_model.hpp). Without a split both
// use the whole log, as in the authors' experiments; the analysis splits.
// The error is about sigma pe_upper_constant sqrt(2 log(1 / delta) / T), where inverse propensities pay for m n cells.
//
// Source: Jedra, Réveillard, Stojanovic, Proutiere, ICML 2024, sections 4 and 5. Standard error and doubly robust
// estimate are ours.
#pragma once

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "ashlar/bandits/detail/reduced_system.hpp"
#include "ashlar/bandits/low_rank_environment.hpp"
#include "ashlar/bandits/reduced_model.hpp"
#include "ashlar/bandits/singular_subspaces.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::bandits {

struct LowRankOptions {
  double ridge = 1e-4;          ///< not scaled with T: it fades
  std::optional<double> split = {};  ///< share of the log for the subspaces; the rest is for the regression
  SvdMethod method = SvdMethod::automatic;
};

struct PolicyValue {
  double value = 0;
  /// Of the noise, given the subspaces; NaN when the regression has no more rounds than unknowns.
  double standard_error = std::numeric_limits<double>::quiet_NaN();
  SubspaceStatus status = SubspaceStatus::determined;  ///< with `zero` the value is 0 and says nothing
};

namespace detail {

struct Phases {
  BanditLog subspaces, regression;
};

inline Phases phases_of(std::string_view function, const BanditLog& log, const LowRankOptions& options) {
  check_nonempty(function, log);
  check_argument(options.ridge >= 0 && std::isfinite(options.ridge), function, "ridge", "finite and not negative",
                 options.ridge);
  if (!options.split) return {log, log};
  check_argument(*options.split > 0 && *options.split < 1, function, "split", "between 0 and 1", *options.split);
  const auto first = static_cast<Index>(std::floor(*options.split * static_cast<double>(log.size())));
  return {log.slice(0, first), log.slice(first, log.size())};
}

inline ReducedModel fit_phases(const Phases& phases, const Matrix<double>& propensity, Index rank,
                               const LowRankOptions& options) {
  ReducedModel model(recover_subspaces(ipw_matrix(phases.subspaces, propensity), rank, options.method));
  model.fit(phases.regression, options.ridge);
  return model;
}

/// sigma^2 hat phi^T A^-1 (A - ridge I) A^-1 phi for phi = sum of weights phi_ij, square root.
inline double value_error(const ReducedModel& model, const BanditLog& log, const Matrix<double>& weights,
                          double ridge) {
  const Index spare = log.size() - model.dim();
  if (spare <= 0 || model.zero()) return std::numeric_limits<double>::quiet_NaN();
  double squares = 0;
  for (std::size_t t = 0; t < log.reward.size(); ++t) {
    const double rest = log.reward[t] - model.predict(log.context[t], log.arm[t]);
    squares += rest * rest;
  }
  const Subspaces& s = model.subspaces();
  const Cells cells = cells_of(log, model.contexts(), model.arms()), target = cells_of(weights, weights);
  const ReducedSystem system(cells, s.u, s.v, ridge), target_system(target, s.u, s.v, 0);
  std::vector<double> influence(cells.col.size());
  system.evaluate(system.solve(target_system.project(target.weight)).x, influence);
  double variance = 0;
  for (std::size_t c = 0; c < influence.size(); ++c) variance += cells.weight[c] * influence[c] * influence[c];
  return std::sqrt(squares / static_cast<double>(spare) * variance);
}

}  // namespace detail

/// Both phases: the model whose predict() is Mbar and whose subspaces() give Mhat. O(T + SVD + regression).
inline ReducedModel fit_low_rank(const BanditLog& log, View<const double, 1> rho, View<const double, 2> behavior,
                                 Index rank, const LowRankOptions& options = {}) {
  const detail::Phases phases = detail::phases_of("fit_low_rank", log, options);
  const Matrix<double> propensity = joint_weights(rho, behavior);
  detail::check_propensity("fit_low_rank", log, propensity);
  return detail::fit_phases(phases, propensity, rank, options);
}

/// RS-PE: sum_ij rho_i target_ij Mbar_ij.
inline PolicyValue rs_pe(const BanditLog& log, View<const double, 1> rho, View<const double, 2> behavior,
                         View<const double, 2> target, Index rank, const LowRankOptions& options = {}) {
  check_shape("rs_pe", "target", target.shape(), behavior.shape(), "the shape of behavior");
  const ReducedModel model = fit_low_rank(log, rho, behavior, rank, options);
  const Matrix<double> weights = joint_weights(rho, target);
  const BanditLog regression = detail::phases_of("rs_pe", log, options).regression;
  return {weights.cwiseProduct(model.predict()).sum(), detail::value_error(model, regression, weights, options.ridge),
          model.subspaces().status};
}

/// SIPS: the same from the truncated inverse-propensity matrix, Mhat.
inline double sips(const BanditLog& log, View<const double, 1> rho, View<const double, 2> behavior,
                   View<const double, 2> target, Index rank) {
  detail::check_nonempty("sips", log);
  check_shape("sips", "target", target.shape(), behavior.shape(), "the shape of behavior");
  const Subspaces subspaces = recover_subspaces(ipw_matrix(log, joint_weights(rho, behavior)), rank);
  return joint_weights(rho, target).cwiseProduct(subspaces.approximation()).sum();
}

/// IPS: the mean of target / behavior times the reward. Unbiased.
inline double ips(const BanditLog& log, View<const double, 2> behavior, View<const double, 2> target) {
  detail::check_nonempty("ips", log);
  detail::check_policy("ips", "behavior", behavior, behavior.extent(0), behavior.extent(1));
  detail::check_policy("ips", "target", target, behavior.extent(0), behavior.extent(1));
  detail::check_propensity("ips", log, behavior);
  double sum = 0;
  for (std::size_t t = 0; t < log.reward.size(); ++t)
    sum += target(log.context[t], log.arm[t]) / behavior(log.context[t], log.arm[t]) * log.reward[t];
  return sum / static_cast<double>(log.size());
}

/// The value by any estimate of the means, corrected by the weighted mean of what it misses on the log. Unbiased when
/// the estimate comes from other data.
inline double doubly_robust(const BanditLog& log, View<const double, 1> rho, View<const double, 2> behavior,
                            View<const double, 2> target, View<const double, 2> means) {
  constexpr auto function = "doubly_robust";
  check_shape(function, "means", means.shape(), behavior.shape(), "the shape of behavior");
  detail::check_log(function, log, behavior.extent(0), behavior.extent(1));
  std::vector<double> rest(log.reward.begin(), log.reward.end());
  for (std::size_t t = 0; t < rest.size(); ++t) rest[t] -= means(log.context[t], log.arm[t]);
  const double correction = ips({log.context, log.arm, rest}, behavior, target);
  return joint_weights(rho, target).cwiseProduct(matrix(means)).sum() + correction;
}

/// RS-BPI: the best arm of every context by Mbar, the lowest index where there are several. [m]
/// greedy_arms of Mhat or Mtilde are the baselines.
inline std::vector<Index> rs_bpi(const BanditLog& log, View<const double, 1> rho, View<const double, 2> behavior,
                                 Index rank, const LowRankOptions& options = {.ridge = 1e-5}) {
  return greedy_arms(fit_low_rank(log, rho, behavior, rank, options).predict());
}

namespace reference {

/// sqrt(phi^T Lambda^-1 phi), Lambda = sum_ij omega_ij phi_ij phi_ij^T, with every feature formed. O(m n d^2).
inline double pe_upper_constant(const Matrix<double>& means, Index rank, const Matrix<double>& behavior_weights,
                                const Matrix<double>& target_weights) {
  const ReducedFeatures features(recover_subspaces(means, rank, SvdMethod::dense));
  Eigen::MatrixXd lambda = Eigen::MatrixXd::Zero(features.dim(), features.dim());
  Vector<double> mean = Vector<double>::Zero(features.dim());
  for (Index i = 0; i < means.rows(); ++i) {
    const Matrix<double> phi = features.of_context(i);
    lambda += phi.transpose() * behavior_weights.row(i).asDiagonal() * phi;
    mean += phi.transpose() * target_weights.row(i).transpose();
  }
  return std::sqrt(mean.dot(lambda.ldlt().solve(mean)));
}

}  // namespace reference

namespace detail {
inline void check_constants(std::string_view function, View<const double, 2> means,
                            View<const double, 2> behavior_weights, View<const double, 2> target_weights) {
  check_shape(function, "behavior_weights", behavior_weights.shape(), means.shape(), "the shape of means");
  check_shape(function, "target_weights", target_weights.shape(), means.shape(), "the shape of means");
  for (Index i = 0; i < means.extent(0); ++i)
    for (Index j = 0; j < means.extent(1); ++j) {
      check_argument(behavior_weights(i, j) >= 0, function, "every behavior weight", "not negative",
                     behavior_weights(i, j));
      check_argument(target_weights(i, j) >= 0, function, "every target weight", "not negative", target_weights(i, j));
    }
}
}  // namespace detail

/// What the error of RS-PE is asymptotically proportional to, given the truth: sqrt(phi^T Lambda^-1 phi), with
/// phi = sum omega^target phi_ij and Lambda = sum omega^behavior phi_ij phi_ij^T. Weights: [m, n], joint_weights.
inline double pe_upper_constant(View<const double, 2> means, Index rank, View<const double, 2> behavior_weights,
                                View<const double, 2> target_weights) {
  detail::check_constants("pe_upper_constant", means, behavior_weights, target_weights);
  const Subspaces s = recover_subspaces(means, rank);
  const detail::Cells cells = detail::cells_of(behavior_weights, behavior_weights),
                      target = detail::cells_of(target_weights, target_weights);
  const detail::ReducedSystem system(cells, s.u, s.v, 0), target_system(target, s.u, s.v, 0);
  const Vector<double> phi = target_system.project(target.weight);
  return std::sqrt(phi.dot(system.solve(phi).x));
}

/// What no estimator of this value beats: sqrt(max(A, B)), A = sum_i v_i^T B_i^-1 v_i, v_i = sum_j omega^target_ij
/// psi_j, B_i = sum_j omega^behavior_ij psi_j psi_j^T, psi_j = row j of V sqrt(Sigma); B the same over columns with U.
inline double pe_lower_constant(View<const double, 2> means, Index rank, View<const double, 2> behavior_weights,
                                View<const double, 2> target_weights) {
  detail::check_constants("pe_lower_constant", means, behavior_weights, target_weights);
  const Subspaces s = recover_subspaces(means, rank);
  const Vector<double> root = s.singular_values.head(rank).cwiseSqrt();
  const auto sum_over = [](const Matrix<double>& psi, const auto& behavior, const auto& target) {
    double total = 0;
    for (Index i = 0; i < behavior.rows(); ++i) {
      const Vector<double> v = psi.transpose() * target.row(i).transpose();
      const Eigen::MatrixXd gram = psi.transpose() * behavior.row(i).asDiagonal() * psi;
      total += v.dot(gram.completeOrthogonalDecomposition().solve(v));
    }
    return total;
  };
  const Matrix<double> behavior = matrix(behavior_weights), target = matrix(target_weights);
  const Matrix<double> behavior_t = behavior.transpose(), target_t = target.transpose();
  return std::sqrt(std::max(sum_over(s.v * root.asDiagonal(), behavior, target),
                            sum_over(s.u * root.asDiagonal(), behavior_t, target_t)));
}

}  // namespace ashlar::bandits
