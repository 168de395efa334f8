#include "ashlar/causal/kernel_score.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "causal/samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::causal {
namespace {

using test::fixture_cases;
using test::fixture_groups;
using test::kernel_fixture;
using test::kernel_matrix;
using test::message_of;
using test::relative_gap;

constexpr KernelScore fixture_kinds[] = {KernelScore::marginal, KernelScore::joint};
std::string prefix(KernelScore kind) { return kind == KernelScore::joint ? "mi" : "marg"; }

KernelScores fixture_scores(KernelScore kind, ScoreOptimizer optimizer) {
  return KernelScores(kernel_matrix("data"), fixture_groups,
                      {.kind = kind, .optimizer = optimizer, .standardize = false, .length_starts = {1}});
}

/// The parameters in the order of the fixtures: without parents those carry one length that does nothing.
std::vector<double> parameters(const LocalFit& fit, KernelScore kind) {
  std::vector<double> theta(fit.length_scales.begin(), fit.length_scales.end());
  if (theta.empty()) theta.push_back(10);
  theta.push_back(fit.noise);
  if (kind == KernelScore::joint) theta.push_back(fit.x_length);
  return theta;
}

TEST_CASE("causal.kernel_score: scores at the first start match the fixtures") {
  for (const KernelScore kind : fixture_kinds) {
    const auto scores = fixture_scores(kind, ScoreOptimizer::fixed);
    const auto expected = kernel_fixture("score_" + prefix(kind) + "_fixed");
    const Matrix<double> theta = kernel_matrix("theta_" + prefix(kind) + "_fixed");
    for (std::size_t c = 0; c < fixture_cases.size(); ++c) {
      const auto fit = scores.fit(fixture_cases[c].node, fixture_cases[c].parents);
      CAPTURE(static_cast<int>(kind), c);
      CHECK(relative_gap(fit.score, expected.data()[c]) <= 1e-9);
      const auto found = parameters(fit, kind);
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (fixture_cases[c].parents.empty() && i == 0) continue;  // clamped there, absent here
        CHECK(relative_gap(found[i], theta(static_cast<Index>(c), static_cast<Index>(i))) <= 1e-12);
      }
    }
  }
}

TEST_CASE("causal.kernel_score: Adam repeats the authors' steps") {
  for (const KernelScore kind : fixture_kinds) {
    const auto scores = fixture_scores(kind, ScoreOptimizer::adam);
    const auto expected = kernel_fixture("score_" + prefix(kind) + "_adam");
    const Matrix<double> theta = kernel_matrix("theta_" + prefix(kind) + "_adam");
    for (std::size_t c = 0; c < fixture_cases.size(); ++c) {
      const auto fit = scores.fit(fixture_cases[c].node, fixture_cases[c].parents);
      CAPTURE(static_cast<int>(kind), c);
      // Hundreds of steps of fixed length carry rounding along: the fixtures' own tolerance.
      CHECK(relative_gap(fit.score, expected.data()[c]) <= 1e-6);
      const auto found = parameters(fit, kind);
      for (std::size_t i = fixture_cases[c].parents.empty() ? 1 : 0; i < found.size(); ++i)
        CHECK(std::abs(found[i] - theta(static_cast<Index>(c), static_cast<Index>(i))) <= 1e-4);
    }
  }
}

TEST_CASE("causal.kernel_score: L-BFGS-B is as low as SciPy's from the same start") {
  for (const KernelScore kind : fixture_kinds) {
    const auto scores = fixture_scores(kind, ScoreOptimizer::lbfgsb);
    const auto expected = kernel_fixture("score_" + prefix(kind) + "_lbfgs");
    const auto by_adam = kernel_fixture("score_" + prefix(kind) + "_adam");
    const Matrix<double> theta = kernel_matrix("theta_" + prefix(kind) + "_lbfgs");
    for (std::size_t c = 0; c < fixture_cases.size(); ++c) {
      CAPTURE(static_cast<int>(kind), c);
      const LocalFit fit = scores.fit(fixture_cases[c].node, fixture_cases[c].parents);
      const bool joint = kind == KernelScore::joint;
      if (joint && theta(static_cast<Index>(c), 3) < 0.25) {
        // SciPy ended in the degenerate basin of the joint score, at the lower bound of the width, where few pairs are
        // kept and scores mean nothing. Adam stays in the basin of the start, and so do we, lower.
        CHECK(fit.x_length > 0.5);
        CHECK(fit.score <= by_adam.data()[c]);
        continue;
      }
      // The threshold makes the joint score smooth in pieces alone, and each solver may end on another one.
      const double slack = joint ? 0.02 : 0;
      CHECK(fit.score <= expected.data()[c] + 1e-3 * std::abs(expected.data()[c]) + slack);
    }
  }
}

TEST_CASE("causal.kernel_score: more starts never raise the score and a fit is a point of its likelihood") {
  const Matrix<double> data = kernel_matrix("nonlinear_data");
  for (const KernelScore kind : {KernelScore::marginal, KernelScore::joint, KernelScore::output}) {
    const KernelScores one(data, {.kind = kind, .length_starts = {1}}), two(data, {.kind = kind});
    const std::vector<Index> parents{3, 0};
    const LocalFit first = one.fit(1, parents), best = two.fit(1, parents);
    CAPTURE(static_cast<int>(kind));
    CHECK(best.score <= first.score);
    // Lengths come in the order of the parents given.
    const Matrix<double> x = standardized(data), target = x.col(1);
    const Matrix<double> d1 = squared_distances(target), d3 = squared_distances(x.col(3).eval()),
                         d0 = squared_distances(x.col(0).eval());
    const std::vector<View<const double, 2>> distances{d3, d0};
    std::vector<double> theta = parameters(best, kind);
    Vector<double> gradient;
    const View<const double, 2> outputs = kind == KernelScore::output ? target : d1;
    const double value = reference::kernel_likelihood(kind, outputs, distances,
                                                      Eigen::Map<const Vector<double>>(theta.data(), std::ssize(theta)),
                                                      gradient, {.x_length = best.x_length});
    CHECK(relative_gap(best.score, value) <= 1e-9);
    CHECK(two(1, std::vector<Index>{0, 3}) == best.score);  // bit for bit
  }
}

TEST_CASE("causal.kernel_score: a start multiplies the lengths and nothing else") {
  const Matrix<double> data = kernel_matrix("nonlinear_data");
  const std::vector<Index> parents{0};
  const KernelScoreOptions whole{.optimizer = ScoreOptimizer::fixed, .length_starts = {1}};
  const KernelScoreOptions half{.optimizer = ScoreOptimizer::fixed, .length_starts = {0.5}};
  const LocalFit a = KernelScores(data, whole).fit(1, parents), b = KernelScores(data, half).fit(1, parents);
  CHECK(b.length_scales[0] == a.length_scales[0] / 2);
  CHECK((b.noise == a.noise && b.x_length == a.x_length && a.noise == std::sqrt(0.1)));
}

TEST_CASE("causal.kernel_score: standardizing takes away scale and shift") {
  const Matrix<double> data = kernel_matrix("nonlinear_data");
  Matrix<double> moved = 8 * data;  // exact
  moved.col(2).array() += 3;
  const KernelScores a(data), b(moved);
  // The optimiser multiplies the rounding of the data by what a score loses before it stops: value_tolerance = 2e-9 at
  // each of few iterations.
  CHECK(std::abs(a(0, std::vector<Index>{2}) - b(0, std::vector<Index>{2})) <= 1e-6);
}

TEST_CASE("causal.kernel_score: a parent helps and a stranger does not where links are smooth or oscillate") {
  Rng rng(1);
  Matrix<double> data(100, 3);
  for (Index i = 0; i < 100; ++i) {
    data(i, 0) = rng.normal();
    data(i, 1) = rng.normal();
    data(i, 2) = std::tanh(2 * data(i, 0)) + 0.25 * rng.normal();
  }
  const KernelScores scores(data);
  CHECK(scores(2, std::vector<Index>{0}) < scores(2, {}));
  CHECK(scores(2, std::vector<Index>{0}) < scores(2, std::vector<Index>{1}));
}

TEST_CASE("causal.kernel_score: a constant variable scores finitely and says that its Jacobian is empty") {
  Matrix<double> data = kernel_matrix("nonlinear_data");
  data.col(1).setConstant(4);
  for (const KernelScore kind : {KernelScore::marginal, KernelScore::joint, KernelScore::output}) {
    const KernelScores scores(data, {.kind = kind});
    const LocalFit fit = scores.fit(1, std::vector<Index>{0});
    CHECK(std::isfinite(fit.score));
    CHECK(fit.kept_pairs == 0);
    CHECK(std::isfinite(scores(0, std::vector<Index>{1})));
  }
}

TEST_CASE("causal.kernel_score: the same bits for any number of threads") {
  const Matrix<double> data = kernel_matrix("nonlinear_data");
  std::vector<double> seen;
  for (const int threads : {1, 2, 4})
    seen.push_back(test::with_threads(threads, [&] { return KernelScores(data)(2, std::vector<Index>{0, 1}); }));
  CHECK((seen[0] == seen[1] && seen[0] == seen[2]));
}

TEST_CASE("causal.kernel_score: bad arguments are refused") {
  const Matrix<double> data = kernel_matrix("nonlinear_data");
  const auto build = [&](KernelScoreOptions options) {
    return message_of<InvalidArgument>([&] { KernelScores scores(data, std::move(options)); });
  };
  CHECK(build({.length_starts = {}}) == "KernelScores: the number of length_starts must be at least 1, got 0");
  CHECK(build({.length_starts = {1, 0}}) ==
        "KernelScores: every one of length_starts must be positive and finite, got 0");
  CHECK(build({.bounds = KernelScoreBounds{{2, 1}, {1, 2}, {1, 2}}}) ==
        "KernelScores: bounds of length must be positive, finite and in order, got [2,1]");
  CHECK(build({.bounds = KernelScoreBounds{{1, 1}, {0, 2}, {1, 2}}}) ==
        "KernelScores: bounds of noise must be positive, finite and in order, got [0,2]");
  CHECK(build({.x_length = -1}) == "KernelScores: x_length must be positive and finite, got -1");
  CHECK(build({.threshold = 0}) == "KernelScores: threshold must be positive and finite, got 0");
  CHECK(build({.max_iterations = 0}) == "KernelScores: max_iterations must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { KernelScores scores(data.topRows(3).eval()); }) ==
        "KernelScores: the number of samples must be at least 4, got 3");
  CHECK(message_of<InvalidArgument>([&] {
          KernelScores scores(data, Groups{{0}, {}});
        }) == "KernelScores: groups[1] is empty");
  const KernelScores scores(data);
  CHECK(message_of<InvalidArgument>([&] { scores(4, {}); }) == "KernelScores::fit: there is no variable 4 among 4");
  CHECK(message_of<InvalidArgument>([&] { scores(0, std::vector<Index>{0}); }) ==
        "KernelScores::fit: variable 0 is its own parent");
  CHECK(message_of<InvalidArgument>([&] {
          scores(0, std::vector<Index>{1, 1});
        }) == "KernelScores::fit: parent 1 appears twice");
}

}  // namespace
}  // namespace ashlar::causal
