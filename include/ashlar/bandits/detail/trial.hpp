// What the algorithms of this room share: the arms, the state, and the bookkeeping of ask and tell.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/bandits/detail/row_space.hpp"
#include "ashlar/bandits/estimation.hpp"
#include "ashlar/bandits/trial_state.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::bandits::detail {

/// Counts scaled down to sum to `limit` when they exceed it: proportionally, the largest remainders rounded up, ties
/// in order. Cutting in arm order instead would favour whoever is listed first.
inline void fit(std::span<std::int64_t> counts, std::int64_t limit) {
  __extension__ using Wide = unsigned __int128;  // count times limit is exact
  Wide total = 0;
  for (const std::int64_t count : counts) total += static_cast<Wide>(count);
  if (total <= static_cast<Wide>(limit)) return;
  std::vector<Wide> remainders;
  std::int64_t left = limit;
  for (std::int64_t& count : counts) {
    const Wide product = static_cast<Wide>(count) * static_cast<Wide>(limit);
    count = static_cast<std::int64_t>(product / total);
    remainders.push_back(product % total);
    left -= count;
  }
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return remainders[a] > remainders[b]; });
  for (std::size_t i = 0; i < static_cast<std::size_t>(left); ++i) ++counts[order[i]];
}

/// Arms, state and the bookkeeping of ask and tell.
class Trial {
 public:
  static constexpr std::int64_t longest_horizon = std::int64_t{1} << 60;

  template <class X>
  Trial(std::string name, const X& arms, std::int64_t horizon, const PriorData& prior) : Trial(std::move(name), arms) {
    check_argument(horizon >= 1 && horizon <= longest_horizon, name_, "horizon", "between 1 and 2^60", horizon);
    const auto count = static_cast<std::size_t>(arms_.rows());
    state_.horizon = horizon;
    state_.counts.assign(count, 0);
    state_.reward_sums.assign(count, 0);
    state_.active = everyone();
    if (!prior.counts.empty() || !prior.reward_sums.empty()) {
      state_.counts = prior.counts;
      state_.reward_sums = prior.reward_sums;
    }
    check_state();
  }

  template <class X>
  Trial(std::string name, const X& arms, TrialState state) : Trial(std::move(name), arms) {
    state_ = std::move(state);
    check_state();
  }

  const Matrix<double>& arms() const { return arms_; }
  RowMap rows() const { return RowMap(arms_.data(), arms_.rows(), arms_.cols(), Eigen::OuterStride<>(arms_.cols())); }
  TrialState& state() { return state_; }
  const TrialState& state() const { return state_; }
  std::int64_t remaining() const { return state_.horizon - state_.pulls; }
  bool waiting() const { return !state_.pending.arms.empty(); }
  std::vector<Index> everyone() const {
    std::vector<Index> all(static_cast<std::size_t>(arms_.rows()));
    std::iota(all.begin(), all.end(), Index{0});
    return all;
  }
  Matrix<double> active_arms() const { return gather(arms_, state_.active); }

  /// Makes the plan pending; `counts` are pulls of `arms`, scaled down to what the horizon leaves. False when there is
  /// nothing to pull.
  bool offer(std::span<const Index> arms, std::span<const std::int64_t> counts) {
    std::vector<std::int64_t> fitted(counts.begin(), counts.end());
    fit(fitted, remaining());
    for (std::size_t i = 0; i < fitted.size(); ++i) {
      if (fitted[i] == 0) continue;
      state_.pending.arms.push_back(arms[i]);
      state_.pending.counts.push_back(fitted[i]);
    }
    return waiting();
  }

  /// Checks what was told, then calls `learn(counts, sums)`, both [K], of the batch alone, with the state already
  /// holding it. When that throws the state is as before.
  template <class Learn>
  void tell(View<const double, 1> reward_sums, Learn&& learn) {
    const std::string function = name_ + "::tell";
    require(waiting(), function, "there is no plan to tell about; call ask() first");
    check_shape(function, "reward_sums", reward_sums.shape(), {static_cast<Index>(state_.pending.arms.size())},
                "one sum an arm of the plan");
    for (Index i = 0; i < reward_sums.extent(0); ++i)
      check_argument(std::isfinite(reward_sums[i]), function, "every reward sum", "finite", reward_sums[i]);
    std::vector<std::int64_t> counts(state_.counts.size(), 0);
    std::vector<double> sums(state_.counts.size(), 0);
    const Undo before{state_.stage, state_.theta, state_.active, gathered_sums()};
    state_.reports.emplace_back();
    state_.reports.back().plan = std::exchange(state_.pending, {});
    const BatchPlan& plan = state_.reports.back().plan;
    for (std::size_t i = 0; i < plan.arms.size(); ++i) {
      const auto arm = static_cast<std::size_t>(plan.arms[i]);
      state_.counts[arm] += counts[arm] = plan.counts[i];
      state_.reward_sums[arm] += sums[arm] = reward_sums[static_cast<Index>(i)];
    }
    state_.pulls += plan.total();
    try {
      learn(counts, sums);
    } catch (...) {
      undo(before);
      throw;
    }
  }

  void set_theta(const Vector<double>& theta) { state_.theta.assign(theta.begin(), theta.end()); }
  Vector<double> theta() const {
    return Eigen::Map<const Vector<double>>(state_.theta.data(), static_cast<Index>(state_.theta.size()));
  }

  /// The active arm of the largest estimated mean, the first of several; the first active arm without an estimate.
  Index leader() const {
    Index best = state_.active.front();
    if (state_.theta.empty()) return best;
    const Vector<double> coefficients = theta();
    double largest = -std::numeric_limits<double>::infinity();
    for (const Index arm : state_.active) {
      const double mean = arms_.row(arm).dot(coefficients);
      if (mean > largest) largest = mean, best = arm;
    }
    return best;
  }

  Index best_arm() const {
    require(!state_.reports.empty(), name_ + "::best_arm", "nothing has been told yet");
    return leader();
  }

  /// Keeps the active arms whose estimated mean is within 2 epsilon of the largest.
  void eliminate(double epsilon) {
    const Vector<double> coefficients = theta();
    const double bar = arms_.row(leader()).dot(coefficients) - 2 * epsilon;
    std::erase_if(state_.active, [&](Index arm) { return arms_.row(arm).dot(coefficients) < bar; });
  }

 private:
  template <class X>
  Trial(std::string name, const X& arms) : name_(std::move(name)) {
    arms_ = Arms(arms, name_).rows();
  }

  void check_state() const {
    const Index count = arms_.rows(), dim = arms_.cols();
    const auto is_arm = [&](Index arm) { return arm >= 0 && arm < count; };
    check_counts(name_, state_.counts, count);
    check_shape(name_, "reward_sums", View<const double, 1>(state_.reward_sums).shape(), {count}, "one sum an arm");
    std::int64_t pulled = 0;
    for (std::size_t i = 0; i < state_.counts.size(); ++i) {
      check_argument(std::isfinite(state_.reward_sums[i]), name_, "every reward sum", "finite", state_.reward_sums[i]);
      check_argument(state_.counts[i] <= longest_horizon - pulled, name_, "the sum of the counts", "at most 2^60",
                     state_.counts[i]);
      pulled += state_.counts[i];
    }
    check_argument(state_.horizon >= 1 && state_.horizon <= longest_horizon, name_, "horizon", "between 1 and 2^60",
                   state_.horizon);
    check_argument(state_.pulls >= 0 && state_.pulls <= state_.horizon && state_.pulls <= pulled, name_, "pulls",
                   "at most the horizon and the sum of the counts", state_.pulls);
    check_argument(state_.stage >= 1, name_, "stage", "at least 1", state_.stage);
    require(state_.theta.empty() || static_cast<Index>(state_.theta.size()) == dim, name_, "theta has ",
            state_.theta.size(), " entries, expected none or ", dim);
    for (const double entry : state_.theta) check_argument(std::isfinite(entry), name_, "theta", "finite", entry);
    require(state_.stage == 1 || !state_.theta.empty(), name_, "theta is missing at stage ", state_.stage);
    require(!state_.active.empty(), name_, "no arm is active");
    for (const Index arm : state_.active)
      check_argument(is_arm(arm), name_, "every active arm", "the index of an arm", arm);
    const auto ascending = [](const std::vector<Index>& list) {
      return std::ranges::adjacent_find(list, std::greater_equal<>()) == list.end();
    };
    require(ascending(state_.active) && ascending(state_.pending.arms), name_,
            "active and planned arms must be listed once each, in ascending order");
    require(state_.pending.arms.size() == state_.pending.counts.size(), name_, "the pending plan has ",
            state_.pending.arms.size(), " arms and ", state_.pending.counts.size(), " counts");
    std::int64_t planned = 0;
    for (std::size_t i = 0; i < state_.pending.arms.size(); ++i) {
      check_argument(is_arm(state_.pending.arms[i]), name_, "every planned arm", "the index of an arm",
                     state_.pending.arms[i]);
      check_argument(state_.pending.counts[i] >= 1 && state_.pending.counts[i] <= remaining() - planned, name_,
                     "every planned count", "positive and within the horizon", state_.pending.counts[i]);
      planned += state_.pending.counts[i];
    }
  }

  /// What a failed tell() puts back. Sums are kept, not subtracted: that would leave rounding behind.
  struct Undo {
    Index stage;
    std::vector<double> theta;
    std::vector<Index> active;
    std::vector<double> sums;  // of the planned arms
  };

  std::vector<double> gathered_sums() const {
    std::vector<double> sums;
    for (const Index arm : state_.pending.arms) sums.push_back(state_.reward_sums[static_cast<std::size_t>(arm)]);
    return sums;
  }

  void undo(const Undo& before) {
    state_.pending = std::move(state_.reports.back().plan);
    state_.reports.pop_back();
    for (std::size_t i = 0; i < before.sums.size(); ++i) {
      const auto arm = static_cast<std::size_t>(state_.pending.arms[i]);
      state_.counts[arm] -= state_.pending.counts[i];
      state_.reward_sums[arm] = before.sums[i];
    }
    state_.pulls -= state_.pending.total();
    state_.stage = before.stage;
    state_.theta = before.theta;
    state_.active = before.active;
  }

  std::string name_;
  Matrix<double> arms_;
  TrialState state_;
};

}  // namespace ashlar::bandits::detail
