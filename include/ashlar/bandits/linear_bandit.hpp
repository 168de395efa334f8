// Linear bandits in batches: problems, the conversation between an algorithm and the outside world, and a simulator.
//
//   reward of arm x = <x, theta> + noise of variance sigma^2;    regret = sum over pulls of (best mean - mean).
// N pulls and reward sums S per arm are all an algorithm ever learns. It is asked for a plan, the caller pulls the arms
// as often as the plan says and tells the sums:
//
//   while (std::optional<BatchPlan> plan = algorithm.ask()) algorithm.tell(measure(*plan));
//
//   Rng rng(1);
//   const LinearBandit bandit = end_of_optimism(5, 0.01);
//   E4 algorithm(bandit.arms, 100000);
//   const RunResult run = simulate(algorithm, bandit, rng);           // Gaussian noise, O(K) a batch
//
// Brings along the estimators (estimation.hpp) and the state of a trial as text (trial_state.hpp).
// Source: Ren, Jin, Xu, "Optimal Batched Linear Bandits", ICML 2024, sections 2 and 3.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <optional>
#include <vector>

#include "ashlar/bandits/estimation.hpp"
#include "ashlar/bandits/trial_state.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::bandits {

// ---- Problems ----------------------------------------------------------------------------------------------------

struct LinearBandit {
  Matrix<double> arms;   ///< [K, d], one arm a row
  Vector<double> theta;  ///< [d], unknown to the algorithms
  double sigma = 1;      ///< standard deviation of the noise

  Vector<double> means() const { return arms * theta; }
  /// [K], best mean minus mean.
  Vector<double> gaps() const {
    const Vector<double> mean = means();
    return mean.maxCoeff() - mean.array();
  }
};

/// The instance on which optimism fails (Lattimore, Szepesvari 2017): theta = e_1, arms e_1 ... e_d, then
/// (1 - epsilon) e_1 + 2 epsilon e_j for j = 2 ... d. Pulling an arm that is far from best is what tells the
/// near-optimal ones apart. c* = 8 (d - 1) for epsilon < 1/4.
inline LinearBandit end_of_optimism(Index dim, double epsilon) {
  check_argument(dim >= 2, "end_of_optimism", "dim", "at least 2", dim);
  check_argument(epsilon > 0 && epsilon < 1, "end_of_optimism", "epsilon", "between 0 and 1", epsilon);
  LinearBandit bandit{Matrix<double>::Zero(2 * dim - 1, dim), Vector<double>::Unit(dim, 0)};
  bandit.arms.topRows(dim).setIdentity();
  for (Index j = 1; j < dim; ++j) {
    bandit.arms(dim + j - 1, 0) = 1 - epsilon;
    bandit.arms(dim + j - 1, j) = 2 * epsilon;
  }
  return bandit;
}

/// Arms uniform on [0, 1]^d, except that arm 0 is theta = e_1.
inline LinearBandit random_instance(Index arms, Index dim, Rng& rng) {
  check_argument(arms >= 1, "random_instance", "arms", "at least 1", arms);
  check_argument(dim >= 1, "random_instance", "dim", "at least 1", dim);
  LinearBandit bandit{Matrix<double>(arms, dim), Vector<double>::Unit(dim, 0)};
  for (Index i = 0; i < bandit.arms.size(); ++i) bandit.arms.data()[i] = rng.uniform();
  bandit.arms.row(0) = bandit.theta.transpose();
  return bandit;
}

// ---- The conversation --------------------------------------------------------------------------------------------

/// An algorithm one can hold the conversation with.
template <class A>
concept BatchedAlgorithm = requires(A& algorithm, const A& observed, View<const double, 1> reward_sums) {
  { algorithm.ask() } -> std::same_as<std::optional<BatchPlan>>;  ///< nothing at the horizon; the same until told
  algorithm.tell(reward_sums);                                    ///< one sum an arm of the plan, in its order
  { observed.best_arm() } -> std::same_as<Index>;
  { observed.state() } -> std::same_as<const TrialState&>;
};

struct RunResult {
  double regret = 0;  ///< expected regret of the arms pulled
  Index batches = 0;
  Index best_arm = -1;  ///< the algorithm's answer
};

/// Runs an algorithm to its horizon against Gaussian rewards: a batch of n pulls of an arm sums to N(n mean, n
/// sigma^2).
template <BatchedAlgorithm A>
RunResult simulate(A& algorithm, const LinearBandit& bandit, Rng& rng) {
  const Vector<double> means = bandit.means();
  const double best = means.maxCoeff();
  RunResult result;
  std::vector<double> sums;
  while (const std::optional<BatchPlan> plan = algorithm.ask()) {
    sums.clear();
    for (std::size_t i = 0; i < plan->arms.size(); ++i) {
      const auto count = static_cast<double>(plan->counts[i]);
      const double mean = means[plan->arms[i]];
      sums.push_back(rng.normal(count * mean, bandit.sigma * std::sqrt(count)));
      result.regret += count * (best - mean);
    }
    algorithm.tell(sums);
    ++result.batches;
  }
  result.best_arm = algorithm.best_arm();
  return result;
}

}  // namespace ashlar::bandits
