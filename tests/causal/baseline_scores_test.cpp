#include "ashlar/causal/baseline_scores.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "causal/samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::causal {
namespace {

using test::fixture_cases;
using test::kernel_fixture;
using test::kernel_matrix;
using test::message_of;
using test::relative_gap;

TEST_CASE("causal.baseline_scores: cross-validated scores match the fixtures") {
  const CrossValidatedScores cv(kernel_matrix("data"), test::fixture_groups, {.folds = 5, .standardize = false});
  const auto expected = kernel_fixture("score_cv");
  for (std::size_t c = 0; c < fixture_cases.size(); ++c) {
    INFO("case " << c);
    CHECK(relative_gap(cv(fixture_cases[c].node, fixture_cases[c].parents), expected.data()[c]) <= 1e-8);
  }
}

TEST_CASE("causal.baseline_scores: the last fold takes what is left over and scale does not matter") {
  const Matrix<double> data = kernel_matrix("data");
  const CrossValidatedScores a(data, test::fixture_groups, {.folds = 7});
  const CrossValidatedScores b(Matrix<double>(4 * data), test::fixture_groups, {.folds = 7});
  const std::vector<Index> parents{1};
  // 40 = 6 * 5 + 10: the order within the last ten does not matter as long as they are held out together.
  Matrix<double> reversed = data;
  reversed.bottomRows(10) = data.bottomRows(10).colwise().reverse().eval();
  const CrossValidatedScores c(reversed, test::fixture_groups, {.folds = 7});
  CHECK(relative_gap(c(0, parents), a(0, parents)) <= 1e-10);
  CHECK(relative_gap(a(0, parents), b(0, parents)) <= 1e-10);
}

TEST_CASE("causal.baseline_scores: BIC matches the fixtures") {
  const GaussianScores bic(kernel_matrix("linear_data"));
  const auto expected = kernel_fixture("linear_bic_full");
  for (Index node = 0; node < 5; ++node) {
    std::vector<Index> parents;
    for (Index other = 0; other < 5; ++other)
      if (other != node) parents.push_back(other);
    CHECK(relative_gap(bic(node, parents), expected.data()[node]) <= 1e-10);
  }
}

TEST_CASE("causal.baseline_scores: BIC is the log-likelihood of least squares and the same for equivalent graphs") {
  Rng rng(1);
  Matrix<double> data = normal_matrix<double>(rng, 60, 3);
  data.col(2) += 2 * data.col(0) - data.col(1);
  const GaussianScores bic(data, 0.5);
  Matrix<double> design(60, 3);
  design << Vector<double>::Ones(60), data.leftCols(2);
  const Vector<double> weights = (design.transpose() * design).llt().solve(design.transpose() * data.col(2));
  const double variance = (data.col(2) - design * weights).squaredNorm() / 60;
  CHECK(relative_gap(bic(2, std::vector<Index>{1, 0}), 30 * (1 + std::log(variance)) + 1.5 * std::log(60.0)) <= 1e-12);
  // 0 -> 2 and 2 -> 0
  CHECK(relative_gap(bic(0, {}) + bic(2, std::vector<Index>{0}), bic(2, {}) + bic(0, std::vector<Index>{2})) <= 1e-12);
}

TEST_CASE("causal.baseline_scores: bad arguments are refused") {
  const Matrix<double> data = kernel_matrix("linear_data");
  const auto cv = [&](const CrossValidationOptions& options) {
    return message_of<InvalidArgument>([&] { CrossValidatedScores(data, single_columns(5), options); });
  };
  CHECK(cv({.folds = 1}) == "CrossValidatedScores: folds must be between 2 and n = 500, got 1");
  CHECK(cv({.folds = 501}) == "CrossValidatedScores: folds must be between 2 and n = 500, got 501");
  CHECK(cv({.lambda = 0}) == "CrossValidatedScores: lambda must be positive, got 0");
  CHECK(cv({.gamma = 0}) == "CrossValidatedScores: gamma must be positive, got 0");
  CHECK(message_of<InvalidArgument>([&] { CrossValidatedScores(data, Groups{}); }) ==
        "CrossValidatedScores: the number of variables must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { GaussianScores(data, -1); }) ==
        "GaussianScores: lambda must be not negative, got -1");
  const GaussianScores bic(data);
  CHECK(message_of<InvalidArgument>([&] { bic(5, {}); }) == "bic_score: there is no variable 5 among 5");
  CHECK(message_of<InvalidArgument>([&] { bic(1, std::vector<Index>{1}); }) ==
        "bic_score: variable 1 is its own parent");
  const Matrix<double> identity = Matrix<double>::Identity(2, 2);
  CHECK(message_of<InvalidArgument>([&] { bic_score(identity.topRows(1).eval(), 10, 0, {}); }) ==
        "bic_score: covariance has shape [1,2], expected [1,1] (a square)");
  CHECK(message_of<InvalidArgument>([&] { bic_score(identity, 0, 0, {}); }) ==
        "bic_score: samples must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { bic_score(identity, 10, 0, {}, -1); }) ==
        "bic_score: lambda must be not negative, got -1");
  CHECK(message_of<NumericalError>([&] { bic_score(Matrix<double>::Zero(2, 2).eval(), 10, 0, {}); }) ==
        "bic_score: the residual variance of 0 is 0");
  CHECK(message_of<NumericalError>([&] {
          bic_score(Matrix<double>::Zero(2, 2).eval(), 10, 0, std::vector<Index>{1});
        }) == "bic_score: the covariance of the parents of 0 is not positive definite");
}

}  // namespace
}  // namespace ashlar::causal
