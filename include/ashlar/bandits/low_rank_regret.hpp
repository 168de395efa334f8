// Playing a low-rank contextual bandit well from the first round to the last.
//
//   RsRmin bandit(20, 20, 1, 10000, {.sigma = 0.3});
//   Index arm = bandit.act(context, rng);                                // the log and the regressions are its own
//   bandit.observe(reward);
//
// RS-RMIN: T1 rounds of uniform arms, singular subspaces from them, then a linear bandit on the reduced features
// (reduced_model.hpp) that forgives their error. T1 = c r^(7/4) (m + n)^(3/4) sqrt(T) balances the exploration against
// what the misspecification costs, and so is the order of the regret; bandits that know nothing of the rank pay
// sqrt(m n T). The second phase starts empty, so that its noise is independent of the features.
//
// Source: Jedra, Réveillard, Stojanovic, Proutiere, ICML 2024, section 6; second phase: linear_ucb.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ashlar/bandits/linear_ucb.hpp"
#include "ashlar/bandits/low_rank_environment.hpp"
#include "ashlar/bandits/reduced_model.hpp"
#include "ashlar/bandits/singular_subspaces.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/numerics/alias_table.hpp"

namespace ashlar::bandits {

enum class SecondPhase {
  sup_lin_ucb,  ///< the paper's: robust to misspecified features
  lin_ucb,      ///< simpler, no guarantee
  commit,       ///< the best arm of Mbar for ever after
};

struct RsRminOptions {
  double sigma = 1;          ///< the noise is sigma-sub-Gaussian
  double exploration = 0.6;  ///< c of T1
  SecondPhase second_phase = SecondPhase::sup_lin_ucb;
  double alpha = 0.5;       ///< widths of SupLinUCB in units of sigma
  double beta = 1;          ///< widths of LinUCB in units of sigma
  Vector<double> rho = {};  ///< [m], law of the contexts; empty: the shares seen while exploring
};

/// T1 = c r^(7/4) (m + n)^(3/4) sqrt(T), at least (m + n) r and at most T / 2.
inline std::int64_t exploration_rounds(Index contexts, Index arms, Index rank, std::int64_t horizon,
                                       double exploration = 0.6) {
  detail::check_sizes("exploration_rounds", contexts, arms, rank);
  check_argument(horizon >= 2, "exploration_rounds", "horizon", "at least 2", horizon);
  check_argument(exploration > 0 && std::isfinite(exploration), "exploration_rounds", "exploration",
                 "finite and positive", exploration);
  const auto r = static_cast<double>(rank), sides = static_cast<double>(contexts + arms),
             rounds = static_cast<double>(horizon);
  const double wanted = exploration * std::pow(r, 1.75) * std::pow(sides, 0.75) * std::sqrt(rounds);
  return static_cast<std::int64_t>(std::min(std::max(wanted, sides * r), std::floor(rounds / 2)));
}

/// An algorithm that is asked for an arm and told what it paid.
template <class A>
concept ContextualAlgorithm = requires(A& algorithm, Index context, Rng& rng, double reward) {
  { algorithm.act(context, rng) } -> std::same_as<Index>;
  algorithm.observe(reward);
};

class RsRmin {
 public:
  RsRmin(Index contexts, Index arms, Index rank, std::int64_t horizon, const RsRminOptions& options = {})
      : contexts_(contexts), arms_(arms), rank_(rank), horizon_(horizon), options_(options) {
    constexpr auto function = "RsRmin";
    explore_ = exploration_rounds(contexts, arms, rank, horizon, options.exploration);
    check_argument(options.sigma >= 0 && std::isfinite(options.sigma), function, "sigma", "finite and not negative",
                   options.sigma);
    check_argument(options.alpha >= 0 && std::isfinite(options.alpha), function, "alpha", "finite and not negative",
                   options.alpha);
    check_argument(options.beta >= 0 && std::isfinite(options.beta), function, "beta", "finite and not negative",
                   options.beta);
    if (options.rho.size() == 0) return;
    check_shape(function, "rho", View<const double, 1>(options.rho).shape(), {contexts}, "one entry a context");
    detail::check_distribution(function, "rho", options.rho);
  }

  /// The arm for this context. Draws from `rng` only while exploring.
  Index act(Index context, Rng& rng) {
    check_argument(context >= 0 && context < contexts_, "RsRmin::act", "context", "the index of a context", context);
    context_ = context;
    waiting_ = true;
    if (exploring()) return arm_ = rng.below(arms_);
    if (options_.second_phase == SecondPhase::commit) return arm_ = best_[static_cast<std::size_t>(context)];
    features_->of_context(context, phi_);
    return arm_ = robust_ ? robust_->choose(phi_) : simple_->choose(phi_);
  }

  void observe(double reward) {
    require(waiting_, "RsRmin::observe", "no choice is waiting for a reward");
    check_argument(std::isfinite(reward), "RsRmin::observe", "reward", "finite", reward);
    waiting_ = false;
    if (!exploring()) {
      if (robust_) robust_->observe(reward);
      if (simple_) simple_->observe(reward);
      return;
    }
    log_.context.push_back(static_cast<std::int32_t>(context_));
    log_.arm.push_back(static_cast<std::int32_t>(arm_));
    log_.reward.push_back(reward);
    if (!exploring()) begin_second_phase();
  }

  std::int64_t exploration() const { return explore_; }  ///< T1
  bool exploring() const { return static_cast<std::int64_t>(log_.reward.size()) < explore_; }
  /// What exploration found; nothing before it is over.
  const std::optional<Subspaces>& subspaces() const { return subspaces_; }

 private:
  void begin_second_phase() {
    Vector<double> rho = options_.rho;
    if (rho.size() == 0) {
      rho = Vector<double>::Zero(contexts_);
      for (const std::int32_t i : log_.context) rho[i] += 1 / static_cast<double>(explore_);
    }
    const Matrix<double> propensity = joint_weights(rho, uniform_policy(contexts_, arms_));
    subspaces_ = recover_subspaces(ipw_matrix(log_, propensity), rank_);
    if (options_.second_phase == SecondPhase::commit) {
      ReducedModel model(*subspaces_);
      model.fit(log_, 1e-4);
      best_ = greedy_arms(model.predict());
      return;
    }
    features_.emplace(*subspaces_);
    phi_.resize(arms_, features_->dim());
    if (options_.second_phase == SecondPhase::sup_lin_ucb)
      robust_.emplace(features_->dim(), horizon_ - explore_,
                      SupLinUCBOptions{.alpha = options_.alpha * options_.sigma});
    else
      simple_.emplace(features_->dim(), LinUCBOptions{.beta = options_.beta * options_.sigma});
  }

  Index contexts_, arms_, rank_;
  std::int64_t horizon_, explore_ = 0;
  RsRminOptions options_;
  OwnedLog log_;  // of the exploration
  std::optional<Subspaces> subspaces_;
  std::optional<ReducedFeatures> features_;
  std::optional<SupLinUCB> robust_;
  std::optional<LinUCB> simple_;
  std::vector<Index> best_;
  Matrix<double> phi_;  // of the context at hand
  Index context_ = 0, arm_ = 0;
  bool waiting_ = false;
};

/// UCB1 in every context by itself: arms never tried come first, then the largest mean + sigma sqrt(2 log t_i / N_ij)
/// with t_i the visits of the context. What ignoring the rank costs.
class ContextUCB {
 public:
  ContextUCB(Index contexts, Index arms, double sigma) : sigma_(sigma) {
    detail::check_sizes("ContextUCB", contexts, arms, 1);
    check_argument(sigma >= 0 && std::isfinite(sigma), "ContextUCB", "sigma", "finite and not negative", sigma);
    counts_ = sums_ = Matrix<double>::Zero(contexts, arms);
  }

  Index act(Index context, Rng&) {
    check_argument(context >= 0 && context < counts_.rows(), "ContextUCB::act", "context", "the index of a context",
                   context);
    context_ = context;
    waiting_ = true;
    const double scale = 2 * std::log(std::max(1.0, counts_.row(context).sum()));
    double best = -INFINITY;
    for (Index j = 0; j < counts_.cols(); ++j) {
      const double count = counts_(context, j);
      if (count == 0) return arm_ = j;
      const double index = sums_(context, j) / count + sigma_ * std::sqrt(scale / count);
      if (index > best) best = index, arm_ = j;
    }
    return arm_;
  }

  void observe(double reward) {
    require(waiting_, "ContextUCB::observe", "no choice is waiting for a reward");
    check_argument(std::isfinite(reward), "ContextUCB::observe", "reward", "finite", reward);
    waiting_ = false;
    counts_(context_, arm_) += 1;
    sums_(context_, arm_) += reward;
  }

 private:
  double sigma_;
  Matrix<double> counts_, sums_;
  Index context_ = 0, arm_ = 0;
  bool waiting_ = false;
};

/// Sum over the rounds of best mean minus mean of the arm, with Gaussian rewards. Contexts and noise come from streams
/// of their own, so that two algorithms with the same `rng` see the same contexts.
template <ContextualAlgorithm A>
double simulate_regret(A& algorithm, const LowRankInstance& instance, std::int64_t rounds, const Rng& rng) {
  const numerics::AliasTable law(instance.rho);
  const Vector<double> best = instance.means.rowwise().maxCoeff();
  Rng contexts = rng.split(0), noise = rng.split(1), actions = rng.split(2);
  double regret = 0;
  for (std::int64_t t = 0; t < rounds; ++t) {
    const Index i = law.draw(contexts), j = algorithm.act(i, actions);
    regret += best[i] - instance.means(i, j);
    algorithm.observe(noise.normal(instance.means(i, j), instance.sigma));
  }
  return regret;
}

}  // namespace ashlar::bandits
