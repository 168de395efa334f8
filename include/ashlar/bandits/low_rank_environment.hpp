// Low-rank contextual bandits: what a log holds, problems, behaviour policies and a simulator.
//
//   context i ~ rho, arm j ~ policy(. | i), reward = M_ij + noise,    M of rank r much smaller than its sides.
//
//   Rng rng(1);
//   const LowRankInstance instance = diagonally_dominant_instance(50, 50, 2, rng);
//   const OwnedLog log = simulate_log(instance, uniform_policy(50, 50), 20000, rng);        // O(m n + T)
//
// Source: Jedra, Réveillard, Stojanovic, Proutiere, "Low-Rank Bandits via Tight Two-to-Infinity Singular Subspace
// Recovery", ICML 2024; the instances are those of the authors' experiments.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/numerics/alias_table.hpp"

namespace ashlar::bandits {

/// A look at T rounds: who came, what was played, what it paid.
struct BanditLog {
  std::span<const std::int32_t> context, arm;  ///< [T]
  std::span<const double> reward;              ///< [T]

  Index size() const { return static_cast<Index>(reward.size()); }
  /// Rounds begin <= t < end.
  BanditLog slice(Index begin, Index end) const {
    require(begin >= 0 && begin <= end && end <= size(), "BanditLog::slice", "a log of ", size(),
            " rounds has no range ", begin, " to ", end);
    const auto from = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(end - begin);
    return {context.subspan(from, count), arm.subspan(from, count), reward.subspan(from, count)};
  }
};

struct OwnedLog {
  std::vector<std::int32_t> context, arm;  ///< [T]
  std::vector<double> reward;              ///< [T]

  BanditLog view() const { return {context, arm, reward}; }
  operator BanditLog() const { return view(); }
};

namespace detail {

/// Lengths agree, indices are in range and rewards finite.
inline void check_log(std::string_view function, const BanditLog& log, Index contexts, Index arms) {
  const auto count = log.reward.size();
  require(log.context.size() == count && log.arm.size() == count, function, "the log has ", log.context.size(),
          " contexts, ", log.arm.size(), " arms and ", count, " rewards, expected as many of each");
  for (std::size_t t = 0; t < count; ++t) {
    require(log.context[t] >= 0 && log.context[t] < contexts, function, "context ", log.context[t], " of round ", t,
            " is not between 0 and ", contexts - 1);
    require(log.arm[t] >= 0 && log.arm[t] < arms, function, "arm ", log.arm[t], " of round ", t,
            " is not between 0 and ", arms - 1);
    require(std::isfinite(log.reward[t]), function, "the reward of round ", t, " must be finite, got ", log.reward[t]);
  }
}

inline void check_nonempty(std::string_view function, const BanditLog& log) {
  require(log.size() > 0, function, "the log is empty");
}

/// Entries not negative, sum 1 up to the rounding of n additions with room for probabilities given in single precision.
inline void check_distribution(std::string_view function, std::string_view what, View<const double, 1> weights) {
  double total = 0;
  for (Index j = 0; j < weights.extent(0); ++j) {
    check_argument(weights[j] >= 0 && std::isfinite(weights[j]), function, what, "finite and not negative", weights[j]);
    total += weights[j];
  }
  require(std::abs(total - 1) <= 1e-6, function, what, " must sum to 1, got ", total);
}

inline void check_policy(std::string_view function, std::string_view what, View<const double, 2> policy, Index contexts,
                         Index arms) {
  check_shape(function, what, policy.shape(), {contexts, arms}, "one row a context, one column an arm");
  for (Index i = 0; i < contexts; ++i) check_distribution(function, message(what, " row ", i), policy[i]);
}

}  // namespace detail

struct LowRankInstance {
  Matrix<double> means;  ///< M, [m, n]: mean reward of arm j in context i
  Vector<double> rho;    ///< [m], law of the contexts
  double sigma = 1;      ///< standard deviation of Gaussian rewards

  Index contexts() const { return means.rows(); }
  Index arms() const { return means.cols(); }
  /// sum_i rho_i sum_j policy_ij M_ij.
  double value(View<const double, 2> policy) const {
    detail::check_policy("LowRankInstance::value", "policy", policy, contexts(), arms());
    return rho.dot(matrix(policy).cwiseProduct(means).rowwise().sum());
  }
};

namespace detail {

inline void check_sizes(std::string_view function, Index contexts, Index arms, Index rank) {
  check_argument(contexts >= 1, function, "contexts", "at least 1", contexts);
  check_argument(arms >= 1, function, "arms", "at least 1", arms);
  require(rank >= 1 && rank <= std::min(contexts, arms), function, "rank must be between 1 and ",
          std::min(contexts, arms), ", got ", rank);
}

inline Matrix<double> uniform_matrix(Index rows, Index cols, Rng& rng) {
  Matrix<double> x(rows, cols);
  for (Index k = 0; k < x.size(); ++k) x.data()[k] = rng.uniform();
  return x;
}

inline Vector<double> uniform_law(Index n) { return Vector<double>::Constant(n, 1 / static_cast<double>(n)); }

}  // namespace detail

/// Two factors uniform on [0, 1], scaled so that the largest entry is 1; contexts uniform.
inline LowRankInstance uniform_factors_instance(Index contexts, Index arms, Index rank, Rng& rng) {
  detail::check_sizes("uniform_factors_instance", contexts, arms, rank);
  const Matrix<double> left = detail::uniform_matrix(contexts, rank, rng),
                       right = detail::uniform_matrix(rank, arms, rng);
  Matrix<double> means = left * right;
  means /= means.maxCoeff();
  return {means, detail::uniform_law(contexts)};
}

/// A I_r B with A [m, m] and B [n, n] uniform on [0, 1], each diagonal entry replaced by the sum of its row;
/// contexts uniform. Well conditioned in the leading rows and columns, with entries that grow like m n / 4.
inline LowRankInstance diagonally_dominant_instance(Index contexts, Index arms, Index rank, Rng& rng) {
  detail::check_sizes("diagonally_dominant_instance", contexts, arms, rank);
  Matrix<double> left = detail::uniform_matrix(contexts, contexts, rng),
                 right = detail::uniform_matrix(arms, arms, rng);
  left.diagonal() = left.rowwise().sum().eval();
  right.diagonal() = right.rowwise().sum().eval();
  return {left.leftCols(rank) * right.topRows(rank), detail::uniform_law(contexts)};
}

/// Every entry is `value`, rank one; contexts uniform.
inline LowRankInstance constant_instance(Index contexts, Index arms, double value = 1) {
  detail::check_sizes("constant_instance", contexts, arms, 1);
  return {Matrix<double>::Constant(contexts, arms, value), detail::uniform_law(contexts)};
}

inline Matrix<double> uniform_policy(Index contexts, Index arms) {
  detail::check_sizes("uniform_policy", contexts, arms, 1);
  return Matrix<double>::Constant(contexts, arms, 1 / static_cast<double>(arms));
}

/// Arm 0 with probability 1 - p, each other one with p / (arms - 1); p = 1 - 1 / arms is uniform.
inline Matrix<double> favoured_arm_policy(Index contexts, Index arms, double p) {
  detail::check_sizes("favoured_arm_policy", contexts, arms, 1);
  check_argument(arms >= 2, "favoured_arm_policy", "arms", "at least 2", arms);
  check_argument(p >= 0 && p <= 1, "favoured_arm_policy", "p", "between 0 and 1", p);
  Matrix<double> policy = Matrix<double>::Constant(contexts, arms, p / static_cast<double>(arms - 1));
  policy.col(0).setConstant(1 - p);
  return policy;
}

/// The arm of the largest entry of each row, the lowest index where there are several. [m]
inline std::vector<Index> greedy_arms(View<const double, 2> means) {
  std::vector<Index> best(static_cast<std::size_t>(means.extent(0)));
  for (Index i = 0; i < means.extent(0); ++i) {
    Index& arm = best[static_cast<std::size_t>(i)];
    for (Index j = 1; j < means.extent(1); ++j)
      if (means(i, j) > means(i, arm)) arm = j;
  }
  return best;
}

/// greedy_arms as a policy: probability one on the arm, [m, n].
inline Matrix<double> greedy_policy(View<const double, 2> means) {
  Matrix<double> policy = Matrix<double>::Zero(means.extent(0), means.extent(1));
  const std::vector<Index> best = greedy_arms(means);
  for (Index i = 0; i < policy.rows(); ++i) policy(i, best[static_cast<std::size_t>(i)]) = 1;
  return policy;
}

/// omega_ij = rho_i policy_ij, [m, n].
inline Matrix<double> joint_weights(View<const double, 1> rho, View<const double, 2> policy) {
  detail::check_distribution("joint_weights", "rho", rho);
  detail::check_policy("joint_weights", "policy", policy, rho.extent(0), policy.extent(1));
  return vector(rho).asDiagonal() * matrix(policy);
}

enum class RewardModel {
  gaussian,   ///< normal with mean M_ij and standard deviation sigma
  bernoulli,  ///< 1 with probability M_ij, else 0; entries between 0 and 1
};

/// `rounds` rounds of a behaviour policy. O(m n + rounds).
inline OwnedLog simulate_log(const LowRankInstance& instance, View<const double, 2> policy, Index rounds, Rng& rng,
                             RewardModel model = RewardModel::gaussian) {
  constexpr auto function = "simulate_log";
  const Index m = instance.contexts(), n = instance.arms();
  check_argument(rounds >= 0, function, "rounds", "not negative", rounds);
  check_shape(function, "rho", View<const double, 1>(instance.rho).shape(), {m}, "one entry a context");
  detail::check_distribution(function, "rho", instance.rho);
  detail::check_policy(function, "policy", policy, m, n);
  check_argument(instance.sigma >= 0 && std::isfinite(instance.sigma), function, "sigma", "finite and not negative",
                 instance.sigma);
  require(m <= std::numeric_limits<std::int32_t>::max() && n <= std::numeric_limits<std::int32_t>::max(), function,
          "a log holds indices of 32 bits");
  require(model == RewardModel::gaussian || (instance.means.minCoeff() >= 0 && instance.means.maxCoeff() <= 1),
          function, "Bernoulli rewards need means between 0 and 1, got ", instance.means.minCoeff(), " to ",
          instance.means.maxCoeff());
  const numerics::AliasTable law(instance.rho);
  std::vector<numerics::AliasTable> arms;
  for (Index i = 0; i < m; ++i) arms.emplace_back(policy[i]);
  OwnedLog log;
  for (Index t = 0; t < rounds; ++t) {
    const Index i = law.draw(rng), j = arms[static_cast<std::size_t>(i)].draw(rng);
    const double mean = instance.means(i, j);
    log.context.push_back(static_cast<std::int32_t>(i));
    log.arm.push_back(static_cast<std::int32_t>(j));
    log.reward.push_back(model == RewardModel::gaussian ? rng.normal(mean, instance.sigma)
                                                        : static_cast<double>(rng.uniform() < mean));
  }
  return log;
}

}  // namespace ashlar::bandits
