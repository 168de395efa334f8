// What every algorithm for linear bandits in batches needs: problems, the estimator, the stopping statistic, and the
// conversation with the outside world.
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
// Source: Ren, Jin, Xu, "Optimal Batched Linear Bandits", ICML 2024, sections 2 and 3.
#pragma once

#include <Eigen/Cholesky>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/bandits/detail/row_space.hpp"
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

// ---- Estimation --------------------------------------------------------------------------------------------------

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

// ---- The conversation --------------------------------------------------------------------------------------------

/// How often to pull which arm before reporting back. Arms without pulls are not listed.
struct BatchPlan {
  std::vector<Index> arms;
  std::vector<std::int64_t> counts;  ///< positive, one an arm listed

  std::int64_t total() const { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }
  friend bool operator==(const BatchPlan&, const BatchPlan&) = default;
};

/// What one batch was and what was concluded from it.
struct BatchReport {
  BatchPlan plan;
  bool tested = false;        ///< the stopping test was made after this batch
  double statistic = 0;       ///< Z of that test
  double threshold = 0;       ///< beta of that test; Z >= beta ends exploration
  std::vector<Index> active;  ///< arms still in the race after this batch; empty where none is ever dropped

  friend bool operator==(const BatchReport&, const BatchReport&) = default;
};

/// Everything a running algorithm knows besides the arms and its options: plain data, to be saved and resumed.
struct TrialState {
  std::int64_t horizon = 0;          ///< pulls in all
  std::int64_t pulls = 0;            ///< pulls made so far
  Index stage = 1;                   ///< of the next plan to be learned from
  std::vector<std::int64_t> counts;  ///< [K], prior data included
  std::vector<double> reward_sums;   ///< [K], prior data included
  std::vector<double> theta;         ///< [d], the last estimate; empty before the first
  std::vector<Index> active;         ///< arms still in the race
  BatchPlan pending;                 ///< asked for and not told yet; empty if there is none
  std::vector<BatchReport> reports;  ///< one a batch told

  friend bool operator==(const TrialState&, const TrialState&) = default;
};

/// Observations from before the trial. They do not count against the horizon.
struct PriorData {
  std::vector<std::int64_t> counts;  ///< [K]
  std::vector<double> reward_sums;   ///< [K]
};

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

// ---- Saving and resuming -----------------------------------------------------------------------------------------

namespace detail {

template <class T>
void write(std::string& text, std::string_view name, const std::vector<T>& values) {
  ashlar::detail::append(text, message(name, " ", values.size()));
  for (const T value : values) text += message(" ", value);
  text += '\n';
}

/// Reads "name value" lines; every number is checked, and no list is believed to be longer than the text that is left.
class StateReader {
 public:
  explicit StateReader(std::string_view text) : text_(text) {}

  void word(std::string_view expected) {
    skip_space();
    if (text_.substr(at_, expected.size()) != expected) fail(expected);
    at_ += expected.size();
  }

  template <class T>
  T number(std::string_view what) {
    skip_space();
    T value{};
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail(what);
    at_ = static_cast<std::size_t>(end - text_.data());
    if (at_ < text_.size() && text_[at_] != ' ' && text_[at_] != '\n') fail("a space after the number");
    return value;
  }

  template <class T>
  std::vector<T> list(std::string_view name) {
    word(name);
    const auto count = number<std::uint64_t>("the length of a list");
    if (count > (text_.size() - at_) / 2) fail("a length that fits the text");
    std::vector<T> values;
    values.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) values.push_back(number<T>(name));
    return values;
  }

  void end() {
    skip_space();
    if (at_ != text_.size()) fail("the end of the text");
  }

  std::size_t left() const { return text_.size() - at_; }
  [[noreturn]] void fail(std::string_view expected) const {
    throw ParseError(message("trial_state_from_text: byte ", at_, ": expected ", expected));
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

inline BatchPlan read_plan(StateReader& reader, std::string_view arms, std::string_view counts) {
  BatchPlan plan;
  plan.arms = reader.list<Index>(arms);
  plan.counts = reader.list<std::int64_t>(counts);
  return plan;
}

}  // namespace detail

/// A few lines of text that give back the same state to the last bit.
inline std::string to_text(const TrialState& state) {
  std::string text = "ashlar-trial 1\n";
  text += message("horizon ", state.horizon, "\npulls ", state.pulls, "\nstage ", state.stage, "\n");
  detail::write(text, "counts", state.counts);
  detail::write(text, "reward_sums", state.reward_sums);
  detail::write(text, "theta", state.theta);
  detail::write(text, "active", state.active);
  detail::write(text, "pending_arms", state.pending.arms);
  detail::write(text, "pending_counts", state.pending.counts);
  text += message("reports ", state.reports.size(), "\n");
  for (const BatchReport& report : state.reports) {
    detail::write(text, "arms", report.plan.arms);
    detail::write(text, "counts", report.plan.counts);
    text += message("test ", report.tested ? 1 : 0, " ", report.statistic, " ", report.threshold, "\n");
    detail::write(text, "active", report.active);
  }
  text += "end\n";
  return text;
}

/// The state that to_text wrote. Throws ParseError with the byte that is wrong and what was expected there.
inline TrialState trial_state_from_text(std::string_view text) {
  detail::StateReader reader(text);
  TrialState state;
  reader.word("ashlar-trial 1\n");
  reader.word("horizon");
  state.horizon = reader.number<std::int64_t>("the horizon");
  reader.word("pulls");
  state.pulls = reader.number<std::int64_t>("the number of pulls");
  reader.word("stage");
  state.stage = reader.number<Index>("the stage");
  state.counts = reader.list<std::int64_t>("counts");
  state.reward_sums = reader.list<double>("reward_sums");
  state.theta = reader.list<double>("theta");
  state.active = reader.list<Index>("active");
  state.pending = detail::read_plan(reader, "pending_arms", "pending_counts");
  reader.word("reports");
  const auto reports = reader.number<std::uint64_t>("the number of reports");
  if (reports > reader.left()) reader.fail("a number of reports that fits the text");
  for (std::uint64_t i = 0; i < reports; ++i) {
    BatchReport report;
    report.plan = detail::read_plan(reader, "arms", "counts");
    reader.word("test");
    report.tested = reader.number<int>("0 or 1") != 0;
    report.statistic = reader.number<double>("the statistic");
    report.threshold = reader.number<double>("the threshold");
    report.active = reader.list<Index>("active");
    state.reports.push_back(std::move(report));
  }
  reader.word("end\n");  // so that a text cut short is never taken for a whole one
  reader.end();
  return state;
}

// ---- What the algorithms share -----------------------------------------------------------------------------------

namespace detail {

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

}  // namespace detail

}  // namespace ashlar::bandits
