// What E4 is measured against: phased elimination on a D-optimal design, and optimism that rarely switches arms.
//
//   PhasedElimination phased(arms, 100000);
//   RarelySwitchingOFUL optimist(arms, 100000);        // both: ask(), tell(reward_sums), best_arm(), state()
//
// Sources: Lattimore, Szepesvari, "Bandit Algorithms" (2020), chapter 22; Abbasi-Yadkori, Pal, Szepesvari, "Improved
// algorithms for linear stochastic bandits", NeurIPS 2011, section 5.1; settings as in Ren, Jin, Xu, ICML 2024.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "ashlar/bandits/detail/row_space.hpp"
#include "ashlar/bandits/detail/trial.hpp"
#include "ashlar/bandits/e4.hpp"
#include "ashlar/bandits/linear_bandit.hpp"
#include "ashlar/bandits/optimal_design.hpp"

namespace ashlar::bandits {

struct PhasedEliminationOptions {
  double ridge = 1;  ///< of the estimate, which pools all data
  double sigma = 1;  ///< the noise is sigma-sub-Gaussian
  DesignOptions design = {};
};

/// Batch l = 1, 2, ...: a D-optimal design on the active arms at rate T^(1 - 2^-l), then arms whose estimated mean is
/// more than 2 sqrt(rank log(K T^2) / rate) below the best leave. The last one standing gets the rest of the horizon.
class PhasedElimination {
 public:
  template <class X>
  PhasedElimination(const X& arms, std::int64_t horizon, const PhasedEliminationOptions& options = {})
      : trial_("PhasedElimination", arms, horizon, {}), options_(options), logs_(horizon) {
    check_options();
  }
  /// A saved trial, with the arms and options it was begun with.
  template <class X>
  PhasedElimination(const X& arms, const PhasedEliminationOptions& options, TrialState state)
      : trial_("PhasedElimination", arms, std::move(state)), options_(options), logs_(trial_.state().horizon) {
    check_options();
  }

  std::optional<BatchPlan> ask() {
    TrialState& state = trial_.state();
    if (trial_.waiting()) return state.pending;
    if (trial_.remaining() == 0) return std::nullopt;
    std::vector<std::int64_t> counts(state.active.size());
    if (state.active.size() > 1) design_counts(d_optimal_design(trial_.active_arms(), options_.design), rate(), counts);
    if (!trial_.offer(state.active, counts)) {  // one arm left, or only arms that are zero
      state.active = {trial_.leader()};
      trial_.offer(state.active, std::vector<std::int64_t>{trial_.remaining()});
    }
    return state.pending;
  }

  void tell(View<const double, 1> reward_sums) {
    trial_.tell(reward_sums, [&](const auto&, const auto&) {
      TrialState& state = trial_.state();
      if (state.active.size() > 1) {
        const detail::InverseRoot inverse = detail::inverse_root(trial_.rows(), state.counts, options_.ridge);
        trial_.set_theta(detail::estimate(trial_.rows(), inverse, state.reward_sums));
        const Index rank = detail::row_space(trial_.active_arms(), options_.design.rank_tolerance).rank();
        trial_.eliminate(detail::confidence_width(rank, trial_.arms().rows(), logs_.log, rate(), options_.sigma));
        ++state.stage;
      }
      state.reports.back().active = state.active;
    });
  }

  Index best_arm() const { return trial_.best_arm(); }
  const TrialState& state() const { return trial_.state(); }

 private:
  double rate() const {
    return std::pow(static_cast<double>(trial_.state().horizon),
                    1 - std::exp2(-static_cast<double>(trial_.state().stage)));
  }
  void check_options() const {
    check_argument(options_.ridge > 0 && std::isfinite(options_.ridge), "PhasedElimination", "ridge",
                   "finite and positive", options_.ridge);
    check_argument(options_.sigma > 0 && std::isfinite(options_.sigma), "PhasedElimination", "sigma",
                   "finite and positive", options_.sigma);
    detail::check(options_.design);
  }

  detail::Trial trial_;
  PhasedEliminationOptions options_;
  detail::HorizonLogs logs_;
};

struct RarelySwitchingOptions {
  double ridge = 1;     ///< V starts as ridge I
  double growth = 0.5;  ///< C: a batch ends when det V exceeds 1 + C times its value at the start
  double sigma = 1;     ///< scales the confidence radius
};

/// Pulls argmax <x, theta> + nu ||x||_{V^-1}, nu = sigma max(sqrt(128 d log t), 8/3 log t), until det V has grown by
/// 1 + C. One arm repeats within a batch, so det grows as 1 + n ||x||^2_{V^-1} and n is known beforehand.
class RarelySwitchingOFUL {
 public:
  template <class X>
  RarelySwitchingOFUL(const X& arms, std::int64_t horizon, const RarelySwitchingOptions& options = {})
      : RarelySwitchingOFUL(detail::Trial("RarelySwitchingOFUL", arms, horizon, {}), options) {}
  /// A saved trial, with the arms and options it was begun with.
  template <class X>
  RarelySwitchingOFUL(const X& arms, const RarelySwitchingOptions& options, TrialState state)
      : RarelySwitchingOFUL(detail::Trial("RarelySwitchingOFUL", arms, std::move(state)), options) {}

  std::optional<BatchPlan> ask() {
    TrialState& state = trial_.state();
    if (trial_.waiting()) return state.pending;
    if (trial_.remaining() == 0) return std::nullopt;
    const Vector<double> widths = squared_widths();
    const Vector<double> means = trial_.arms() * theta_;
    const double nu = radius();
    Index arm = 0;
    double best = -std::numeric_limits<double>::infinity();
    for (Index i = 0; i < means.size(); ++i) {
      const double optimistic = means[i] + nu * std::sqrt(widths[i]);
      if (optimistic > best) best = optimistic, arm = i;
    }
    // Exact ties of C / ||x||^2 with a whole number are common; rounding must not lose a pull there.
    const double pulls = std::floor(options_.growth / widths[arm] + 1e-9) + 1;
    const auto left = static_cast<double>(trial_.remaining());
    trial_.offer(std::vector<Index>{arm},
                 std::vector<std::int64_t>{pulls < left ? static_cast<std::int64_t>(pulls) : trial_.remaining()});
    return state.pending;
  }

  void tell(View<const double, 1> reward_sums) {
    trial_.tell(reward_sums, [&](const auto&, const auto&) {
      const BatchPlan& plan = trial_.state().reports.back().plan;
      RidgeEstimator estimator = estimator_;
      estimator.add(plan.arms.front(), plan.counts.front(), reward_sums[0]);
      estimator.theta(theta_, factor_);
      estimator_ = std::move(estimator);
      trial_.set_theta(theta_);
    });
  }

  Index best_arm() const { return trial_.best_arm(); }
  const TrialState& state() const { return trial_.state(); }

 private:
  RarelySwitchingOFUL(detail::Trial trial, const RarelySwitchingOptions& options)
      : trial_(std::move(trial)), options_(options), estimator_(trial_.arms(), checked(options).ridge) {
    const TrialState& state = trial_.state();
    for (Index i = 0; i < trial_.arms().rows(); ++i)
      estimator_.add(i, state.counts[static_cast<std::size_t>(i)], state.reward_sums[static_cast<std::size_t>(i)]);
    theta_.resize(trial_.arms().cols());
    factor_.resize(theta_.size(), theta_.size());
    estimator_.theta(theta_, factor_);
  }

  static const RarelySwitchingOptions& checked(const RarelySwitchingOptions& options) {
    constexpr auto function = "RarelySwitchingOFUL";
    check_argument(options.ridge > 0 && std::isfinite(options.ridge), function, "ridge", "finite and positive",
                   options.ridge);
    check_argument(options.growth > 0 && std::isfinite(options.growth), function, "growth", "finite and positive",
                   options.growth);
    check_argument(options.sigma > 0 && std::isfinite(options.sigma), function, "sigma", "finite and positive",
                   options.sigma);
    return options;
  }

  /// ||x||^2_{V^-1} of every arm.
  Vector<double> squared_widths() const {
    Eigen::MatrixXd solved = trial_.arms().transpose();
    factor_.triangularView<Eigen::Lower>().solveInPlace(solved);
    return solved.colwise().squaredNorm();
  }

  double radius() const {
    if (trial_.state().pulls == 0) return options_.sigma;
    const double log_t = std::log(static_cast<double>(trial_.state().pulls));
    return options_.sigma * std::max(std::sqrt(128 * static_cast<double>(theta_.size()) * log_t), 8 * log_t / 3);
  }

  detail::Trial trial_;
  RarelySwitchingOptions options_;
  RidgeEstimator estimator_;
  Vector<double> theta_;
  Matrix<double> factor_;
};

}  // namespace ashlar::bandits
