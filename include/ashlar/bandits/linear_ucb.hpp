// Contextual linear bandits round by round: SupLinUCB, which bears features that are only nearly right, and LinUCB.
//
//   SupLinUCB bandit(dim, horizon, {.alpha = 0.5});
//   Index arm = bandit.choose(features);            // [arms, dim], those of this round's context
//   bandit.observe(reward);
//
// SupLinUCB keeps a ridge regression on each of S = ceil(log2 T) levels. Widths w = alpha |x|_{V_s^-1}, means mu:
//   (1) s = S or all w <= 1/sqrt(T): play argmax mu + w and learn nothing;
//   (2) all w <= 2^-s: keep the arms with mu + w >= max(mu + w) - 2^(1-s), go to level s + 1;
//   (3) else play the widest arm and teach level s alone.
// So what a level learns from does not depend on the rewards it has seen, and an error of the features enters once, not
// once a round. O(arms dim^2) a level and round, on the roof of GEMM; 16 dim^2 bytes for every level that was reached.
//
// Sources: Auer, JMLR 3 (2002); Chu, Li, Reyzin, Schapire, AISTATS 2011; for misspecified features Takemura et al.,
// AISTATS 2021.
#pragma once

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::bandits {

namespace detail {

/// theta = V^-1 sum reward x with V = ridge I + sum x x^T, one observation after another.
class OnlineRidge {
 public:
  static constexpr Index refactor_after = 512;  // updates, so that the rounding of rank-one updates stays small

  OnlineRidge(Index dim, double ridge)
      : precision(ridge * Matrix<double>::Identity(dim, dim)),
        inverse(Matrix<double>::Identity(dim, dim) / ridge),
        moment(Vector<double>::Zero(dim)),
        theta(Vector<double>::Zero(dim)),
        step(dim) {}

  void add(const Vector<double>& x, double reward) {
    precision += x * x.transpose();
    moment += reward * x;
    if (++updates % refactor_after == 0) {
      const Eigen::LLT<Eigen::MatrixXd> llt{Eigen::MatrixXd(precision)};
      inverse = llt.solve(Eigen::MatrixXd::Identity(x.size(), x.size()));
    } else {
      step.noalias() = inverse * x;
      const double scale = 1 / (1 + x.dot(step));
      for (Index i = 0; i < x.size(); ++i) inverse.row(i) -= scale * step[i] * step.transpose();
    }
    theta.noalias() = inverse * moment;
  }

  Matrix<double> precision, inverse;
  Vector<double> moment, theta, step;
  Index updates = 0;
};

inline void check_linear(std::string_view function, Index dim, std::string_view factor_name, double factor,
                         double ridge) {
  check_argument(dim >= 1, function, "dim", "at least 1", dim);
  check_argument(factor >= 0 && std::isfinite(factor), function, factor_name, "finite and not negative", factor);
  check_argument(ridge > 0 && std::isfinite(ridge), function, "ridge", "finite and positive", ridge);
}

inline void check_features(std::string_view function, View<const double, 2> features, Index dim) {
  check_shape(function, "features", features.shape(), {features.extent(0), dim}, "one row an arm");
  require(features.extent(0) >= 1, function, "features has no row, expected one an arm");
  for (Index j = 0; j < features.extent(0); ++j)
    for (Index k = 0; k < dim; ++k)
      require(std::isfinite(features(j, k)), function, "features[", j, ",", k, "] must be finite, got ",
              features(j, k));
}

}  // namespace detail

struct SupLinUCBOptions {
  double alpha = 1;  ///< factor of the widths; theory: sigma sqrt(log(arms T / delta)), practice: 0.5 sigma
  double ridge = 1;
};

class SupLinUCB {
 public:
  SupLinUCB(Index dim, std::int64_t horizon, const SupLinUCBOptions& options = {}) : dim_(dim), options_(options) {
    detail::check_linear("SupLinUCB", dim, "alpha", options.alpha, options.ridge);
    check_argument(horizon >= 1, "SupLinUCB", "horizon", "at least 1", horizon);
    for (std::int64_t reach = 2; reach < horizon && levels_ < 62; reach *= 2) ++levels_;
    narrow_ = 1 / std::sqrt(static_cast<double>(horizon));
  }

  /// The arm to play. features: [arms, dim]. Ties go to the lowest index.
  Index choose(View<const double, 2> features) {
    detail::check_features("SupLinUCB::choose", features, dim_);
    const auto all = matrix(features);
    candidates_.resize(static_cast<std::size_t>(all.rows()));
    for (std::size_t k = 0; k < candidates_.size(); ++k) candidates_[k] = static_cast<Index>(k);
    rows_.resize(all.rows(), dim_);
    product_.resize(all.rows(), dim_);
    means_.resize(all.rows());
    widths_.resize(all.rows());
    rows_ = all;
    for (int level = 1;; ++level) {
      if (static_cast<int>(regressions_.size()) < level) regressions_.emplace_back(dim_, options_.ridge);
      const detail::OnlineRidge& regression = regressions_[static_cast<std::size_t>(level - 1)];
      const auto count = static_cast<Index>(candidates_.size());
      product_.topRows(count).noalias() = rows_.topRows(count) * regression.inverse;
      means_.head(count).noalias() = rows_.topRows(count) * regression.theta;
      for (Index k = 0; k < count; ++k)
        widths_[k] = options_.alpha * std::sqrt(std::max(0.0, product_.row(k).dot(rows_.row(k))));
      Index chosen = 0;
      const double widest = widths_.head(count).maxCoeff(&chosen);
      if (level == levels_ || widest <= narrow_) {
        (means_ + widths_).head(count).maxCoeff(&chosen);
        return decide(chosen, 0);
      }
      const double resolution = std::ldexp(1.0, -level);
      if (widest > resolution) return decide(chosen, level);
      const double bar = (means_ + widths_).head(count).maxCoeff() - 2 * resolution;
      Index kept = 0;
      for (Index k = 0; k < count; ++k) {
        if (means_[k] + widths_[k] < bar) continue;
        candidates_[static_cast<std::size_t>(kept)] = candidates_[static_cast<std::size_t>(k)];
        rows_.row(kept++) = rows_.row(k);
      }
      candidates_.resize(static_cast<std::size_t>(kept));
    }
  }

  /// What the arm of the last choice paid.
  void observe(double reward) {
    require(waiting_, "SupLinUCB::observe", "no choice is waiting for a reward");
    check_argument(std::isfinite(reward), "SupLinUCB::observe", "reward", "finite", reward);
    if (level_ > 0) regressions_[static_cast<std::size_t>(level_ - 1)].add(played_, reward);
    waiting_ = false;
  }

  Index dim() const { return dim_; }
  int levels() const { return levels_; }  ///< S
  int level() const { return level_; }    ///< taught by the last choice; 0 for none

 private:
  Index decide(Index candidate, int level) {
    level_ = level;
    played_ = rows_.row(candidate).transpose();
    waiting_ = true;
    return candidates_[static_cast<std::size_t>(candidate)];
  }

  Index dim_;
  SupLinUCBOptions options_;
  int levels_ = 1, level_ = 0;
  double narrow_ = 0;
  bool waiting_ = false;
  std::vector<detail::OnlineRidge> regressions_;  // of the levels reached so far
  std::vector<Index> candidates_;
  Matrix<double> rows_, product_;
  Vector<double> means_, widths_, played_;
};

namespace reference {

/// SupLinUCB as written: every level keeps what it learnt from and inverts V_s anew.
class SupLinUCB {
 public:
  SupLinUCB(Index dim, std::int64_t horizon, const SupLinUCBOptions& options = {})
      : options_(options),
        narrow_(1 / std::sqrt(static_cast<double>(horizon))),
        levels_(std::max(1, static_cast<int>(std::ceil(std::log2(static_cast<double>(horizon)))))),
        precision_(static_cast<std::size_t>(levels_), options.ridge * Eigen::MatrixXd::Identity(dim, dim)),
        moment_(static_cast<std::size_t>(levels_), Vector<double>::Zero(dim)) {}

  Index choose(View<const double, 2> features) {
    std::vector<Index> active;
    for (Index j = 0; j < features.extent(0); ++j) active.push_back(j);
    for (int s = 1;; ++s) {
      const auto at = static_cast<std::size_t>(s - 1);
      const Eigen::LDLT<Eigen::MatrixXd> v(precision_[at]);
      const Vector<double> theta = v.solve(moment_[at]);
      std::vector<double> mean, width, upper;
      for (const Index j : active) {
        const Vector<double> x = matrix(features).row(j).transpose();
        mean.push_back(x.dot(theta));
        width.push_back(options_.alpha * std::sqrt(x.dot(v.solve(x))));
        upper.push_back(mean.back() + width.back());
      }
      const auto widest = std::max_element(width.begin(), width.end());
      const auto best = std::max_element(upper.begin(), upper.end());
      if (s == levels_ || *widest <= narrow_) return play(features, active, best - upper.begin(), 0);
      if (*widest > std::pow(2.0, -s)) return play(features, active, widest - width.begin(), s);
      std::vector<Index> kept;
      for (std::size_t k = 0; k < active.size(); ++k)
        if (upper[k] >= *best - std::pow(2.0, 1 - s)) kept.push_back(active[k]);
      active = kept;
    }
  }
  void observe(double reward) {
    if (level_ == 0) return;
    const auto at = static_cast<std::size_t>(level_ - 1);
    precision_[at] += x_ * x_.transpose();
    moment_[at] += reward * x_;
  }
  int level() const { return level_; }

 private:
  Index play(View<const double, 2> features, const std::vector<Index>& active, Index k, int level) {
    const Index arm = active[static_cast<std::size_t>(k)];
    x_ = matrix(features).row(arm).transpose();
    level_ = level;
    return arm;
  }

  SupLinUCBOptions options_;
  double narrow_;
  int levels_, level_ = 0;
  std::vector<Eigen::MatrixXd> precision_;
  std::vector<Vector<double>> moment_;
  Vector<double> x_;
};

}  // namespace reference

struct LinUCBOptions {
  double beta = 1;  ///< factor of the widths
  double ridge = 1;
};

/// One regression on everything, arm argmax <x, theta> + beta |x|_{V^-1}. An error of the features is never forgotten.
class LinUCB {
 public:
  explicit LinUCB(Index dim, const LinUCBOptions& options = {})
      : beta_((detail::check_linear("LinUCB", dim, "beta", options.beta, options.ridge), options.beta)),
        regression_(dim, options.ridge) {}

  /// The arm to play. features: [arms, dim]. Ties go to the lowest index. O(arms dim^2).
  Index choose(View<const double, 2> features) {
    detail::check_features("LinUCB::choose", features, regression_.theta.size());
    rows_ = matrix(features);
    product_.noalias() = rows_ * regression_.inverse;
    index_.noalias() = rows_ * regression_.theta;
    for (Index k = 0; k < index_.size(); ++k)
      index_[k] += beta_ * std::sqrt(std::max(0.0, product_.row(k).dot(rows_.row(k))));
    Index arm = 0;
    index_.maxCoeff(&arm);
    played_ = rows_.row(arm).transpose();
    waiting_ = true;
    return arm;
  }

  void observe(double reward) {
    require(waiting_, "LinUCB::observe", "no choice is waiting for a reward");
    check_argument(std::isfinite(reward), "LinUCB::observe", "reward", "finite", reward);
    regression_.add(played_, reward);
    waiting_ = false;
  }

  const Vector<double>& theta() const { return regression_.theta; }  ///< [dim]

 private:
  double beta_;
  detail::OnlineRidge regression_;
  Matrix<double> rows_, product_;
  Vector<double> index_, played_;
  bool waiting_ = false;
};

}  // namespace ashlar::bandits
