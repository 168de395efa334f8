// Local scores for causal discovery with kernels chosen by likelihood: how well parents explain a variable, without
// assuming linear relations, Gaussian noise or one-dimensional variables. Lower is better.
//
//   const causal::KernelScores scores(data, {{0, 1}, {2}, {3}});          // variable 0 has two columns
//   scores(0, std::vector<Index>{1, 2});                                  // S(x_0 | x_1, x_2)
//   const causal::LocalFit fit = scores.fit(0, std::vector<Index>{1});    // with its lengths, noise and width
//   causal::greedy_equivalence_search(3, scores).cpdag;                   // the search that wants such scores
//
// Each score is a minimum of KernelLikelihood over one length a parent, the noise and, for the joint score, the width
// of X, within bounds. The joint score has no useful global minimum in the width: restarts change lengths alone.
//
// Source: as KernelLikelihood; starts, bounds and optimisers are those of the authors' program but for the second
// start.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ashlar/causal/grouped_data.hpp"
#include "ashlar/causal/kernel_likelihood.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/functional/descent.hpp"
#include "ashlar/numerics/bounded_minimizer.hpp"

namespace ashlar::causal {

enum class ScoreOptimizer {
  lbfgsb,  ///< from every start, the lowest score wins
  adam,    ///< from the first start a fixed number of steps, as the authors' program does
  fixed    ///< the parameters of the first start: kernels by the median heuristic
};

struct Interval {
  double low, high;
};

struct KernelScoreBounds {
  Interval length, noise, x_length;
};

/// The bounds of the authors' program. They assume columns of unit variance.
inline KernelScoreBounds default_bounds(KernelScore kind) {
  switch (kind) {
    case KernelScore::marginal:
      return {{0.1, 10}, {1e-3, 1}, {0.2, 5}};
    case KernelScore::output:
      return {{0.5, 5}, {1e-2, 1}, {0.2, 5}};
    case KernelScore::joint:
      break;
  }
  return {{0.2, 5}, {1e-2, 10}, {0.2, 5}};
}

struct KernelScoreOptions {
  KernelScore kind = KernelScore::joint;
  ScoreOptimizer optimizer = ScoreOptimizer::lbfgsb;
  bool standardize = true;                       ///< each column first, to mean 0 and variance 1
  std::vector<double> length_starts{1, 0.25};    ///< multiples of the median heuristic to start the lengths from
  std::optional<double> x_length = {};           ///< start of w, or w itself; default: the median heuristic
  std::optional<KernelScoreBounds> bounds = {};  ///< default: default_bounds(kind)
  double threshold = 1e-3;                       ///< tau of the joint score
  bool n_outputs = false;                        ///< of the output score, see KernelLikelihoodOptions
  int max_iterations = 200;                      ///< of L-BFGS-B
};

struct LocalFit {
  double score;
  Vector<double> length_scales;  ///< [q], in the order of the parents given
  double noise;                  ///< the variance s on the diagonal
  double x_length;               ///< w; of no meaning for the output score
  int iterations;
  bool converged;
  Index kept_pairs;  ///< that the Jacobian term of the joint score averages; 0 warns that X is constant or w hopeless
};

/// A score of families (node, parents) of one data set. Copies what it needs: V matrices of n^2 distances.
/// Calls from several threads at once are fine.
class KernelScores {
 public:
  /// data: [n, columns]; groups: the columns of each variable, by default one column a variable.
  /// Throws InvalidArgument as check_groups, and for options out of range. O(V n^2 log n).
  template <class X>
  explicit KernelScores(const X& data, const Groups& groups, KernelScoreOptions options = {})
      : options_(std::move(options)) {
    constexpr auto function = "KernelScores";
    const In<X, 2> view = data;
    check_groups(function, view, groups);
    check_options();
    const Matrix<double> x = options_.standardize ? standardized(view) : Matrix<double>(matrix(view));
    const auto variables = groups.size();
    columns_.resize(variables);
    distances_.resize(variables);
    lengths_.resize(variables);
    ordered_.resize(variables);
    parallel_for(std::ssize(groups), 1, [&](Index begin, Index) {
      const auto i = static_cast<std::size_t>(begin);
      columns_[i] = columns_of(x, groups[i]);
      distances_[i] = squared_distances(columns_[i]);
      lengths_[i] = median_length(columns_[i], 2.5);
      if (options_.kind == KernelScore::joint)
        ordered_[i] = std::make_shared<const detail::OrderedDistances>(distances_[i]);
    });
  }
  template <class X>
  explicit KernelScores(const X& data, KernelScoreOptions options = {})
      : KernelScores(data, single_columns(In<X, 2>(data).extent(1)), std::move(options)) {}

  Index variables() const { return std::ssize(distances_); }
  const KernelScoreOptions& options() const { return options_; }

  /// Throws InvalidArgument for a node or parent that is no variable, a node among its parents, a parent twice;
  /// NumericalError as KernelLikelihood::evaluate. O(starts iterations n^3) at worst, n^2 (ranks) for smooth kernels.
  LocalFit fit(Index node, std::span<const Index> parents) const {
    check_family("KernelScores::fit", variables(), node, parents);
    std::vector<Index> sorted(parents.begin(), parents.end());
    std::ranges::sort(sorted);  // so that the bits do not depend on the order given
    const auto x = static_cast<std::size_t>(node);
    std::vector<View<const double, 2>> parent_distances;
    for (const Index p : sorted) parent_distances.emplace_back(distances_[static_cast<std::size_t>(p)]);

    const KernelScoreBounds bounds = options_.bounds.value_or(default_bounds(options_.kind));
    const bool joint = options_.kind == KernelScore::joint;
    const double width = options_.x_length.value_or(lengths_[x]);
    const View<const double, 2> outputs = options_.kind == KernelScore::output ? columns_[x] : distances_[x];
    KernelLikelihood likelihood(options_.kind, outputs, parent_distances,
                                {.x_length = width, .threshold = options_.threshold, .n_outputs = options_.n_outputs},
                                ordered_[x]);

    const Index q = std::ssize(sorted);
    Vector<double> lower(likelihood.parameters()), upper = lower, start = lower;
    lower.head(q).setConstant(bounds.length.low);
    upper.head(q).setConstant(bounds.length.high);
    for (Index p = 0; p < q; ++p) start[p] = lengths_[static_cast<std::size_t>(sorted[static_cast<std::size_t>(p)])];
    lower[q] = bounds.noise.low, upper[q] = bounds.noise.high, start[q] = std::sqrt(0.1);
    if (joint) lower[q + 1] = bounds.x_length.low, upper[q + 1] = bounds.x_length.high, start[q + 1] = width;

    Found best = optimise(likelihood, start, lower, upper);
    LocalFit fit{best.score,
                 Vector<double>(q),
                 best.theta[q],
                 joint ? best.theta[q + 1] : width,
                 best.iterations,
                 best.converged,
                 0};
    for (Index p = 0; p < q; ++p)
      fit.length_scales[p] =
          best.theta[std::ranges::lower_bound(sorted, parents[static_cast<std::size_t>(p)]) - sorted.begin()];
    fit.kept_pairs = joint ? likelihood.kept_pairs(fit.x_length) : 0;
    return fit;
  }

  double operator()(Index node, std::span<const Index> parents) const { return fit(node, parents).score; }

 private:
  struct Found {
    double score;
    Vector<double> theta;
    int iterations;
    bool converged;
  };

  void check_options() const {
    constexpr auto function = "KernelScores";
    check_argument(!options_.length_starts.empty(), function, "the number of length_starts", "at least 1",
                   options_.length_starts.size());
    for (const double start : options_.length_starts)
      check_argument(start > 0 && std::isfinite(start), function, "every one of length_starts", "positive and finite",
                     start);
    const KernelScoreBounds bounds = options_.bounds.value_or(default_bounds(options_.kind));
    const auto check = [&](std::string_view name, const Interval& interval) {
      require(interval.low > 0 && interval.low <= interval.high && std::isfinite(interval.high), function, "bounds of ",
              name, " must be positive, finite and in order, got [", interval.low, ",", interval.high, "]");
    };
    check("length", bounds.length);
    check("noise", bounds.noise);
    check("x_length", bounds.x_length);
    const double width = options_.x_length.value_or(1);
    check_argument(width > 0 && std::isfinite(width), function, "x_length", "positive and finite", width);
    check_argument(options_.threshold > 0 && std::isfinite(options_.threshold), function, "threshold",
                   "positive and finite", options_.threshold);
    check_argument(options_.max_iterations >= 1, function, "max_iterations", "at least 1", options_.max_iterations);
  }

  Found optimise(KernelLikelihood& likelihood, const Vector<double>& start, const Vector<double>& lower,
                 const Vector<double>& upper) const {
    const auto value = [&](const Vector<double>& theta, Vector<double>& gradient) {
      return likelihood.evaluate(theta, gradient);
    };
    const auto begin = [&](double multiple) {
      Vector<double> theta = start;
      theta.head(likelihood.parents()) *= multiple;
      return Vector<double>(theta.cwiseMax(lower).cwiseMin(upper));
    };
    switch (options_.optimizer) {
      case ScoreOptimizer::fixed: {
        Vector<double> theta = begin(options_.length_starts[0]), gradient;
        const double score = likelihood.evaluate(theta, gradient);
        return {score, std::move(theta), 0, true};
      }
      case ScoreOptimizer::adam:
        return adam(likelihood, begin(options_.length_starts[0]), lower, upper);
      case ScoreOptimizer::lbfgsb:
        break;
    }
    Found best{std::numeric_limits<double>::infinity(), {}, 0, false};
    for (const double multiple : options_.length_starts) {
      const auto found =
          numerics::minimize_bounded(value, begin(multiple), lower, upper, {.max_iterations = options_.max_iterations});
      if (found.value < best.score) best = {found.value, found.x, found.iterations, found.converged};
      if (likelihood.parents() == 0) break;  // all starts are the same
    }
    return best;
  }

  /// Clamp, evaluate, step. As in the authors' program the score is that of the last evaluation, the parameters are
  /// those after the step behind it, and neither is the best seen.
  Found adam(KernelLikelihood& likelihood, Vector<double> theta, const Vector<double>& lower,
             const Vector<double>& upper) const {
    const bool output = options_.kind == KernelScore::output;
    const double rate = output ? 0.05 : 0.005;
    const int steps = options_.kind == KernelScore::joint ? 200 : 300;
    Vector<double> first = Vector<double>::Zero(theta.size()), second = first, gradient(theta.size());
    double score = 0;
    for (int t = 1; t <= steps; ++t) {
      theta = theta.cwiseMax(lower).cwiseMin(upper).eval();
      score = likelihood.evaluate(theta, gradient);
      const auto elements = [](Vector<double>& x) { return std::span(x.data(), static_cast<std::size_t>(x.size())); };
      functional::adam_update<double>(elements(theta), elements(gradient), elements(first), elements(second), t,
                                      functional::Decay::apart, {.learning_rate = rate});
    }
    return {score, std::move(theta), steps, true};
  }

  KernelScoreOptions options_;
  std::vector<Matrix<double>> columns_, distances_;
  std::vector<double> lengths_;  ///< of the median heuristic
  std::vector<std::shared_ptr<const detail::OrderedDistances>> ordered_;
};

}  // namespace ashlar::causal
