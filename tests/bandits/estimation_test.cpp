#include "ashlar/bandits/estimation.hpp"

#include <Eigen/LU>
#include <limits>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::bandits {
namespace {

using test::message_of;
using Counts = std::vector<std::int64_t>;

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST_CASE("bandits.estimation: the Chernoff statistic of the fixtures") {
  for (const std::string name : {"eoo_d2_e001", "eoo_d2_e03", "eoo_d3_e02", "eoo_d5_e001", "rand_k9_d5", "rand_k50_d20",
                                 "rankdef_k6_d3", "duplicates_k6_d3", "single_arm_d2"}) {
    INFO(name);
    const Matrix<double> arms = test::fixture("e4_bandit/" + name + "_X").matrix();
    const auto theta = test::fixture("e4_bandit/" + name + "_theta");
    const auto counts = test::fixture<std::int64_t>("e4_bandit/" + name + "_counts100");
    const double expected = test::fixture("e4_bandit/" + name + "_scalars").data()[4];
    const double z = chernoff_statistic(arms, counts.view<1>(), theta.view<1>(), 1.0);
    const double slow = reference::chernoff_statistic(arms, counts.view<1>(), theta.view<1>(), 1.0);
    if (std::isinf(expected)) {
      CHECK(z == infinity);
      CHECK(slow == infinity);
    } else {
      CHECK(std::abs(z - expected) <= 1e-9 * expected);
      CHECK(std::abs(slow - expected) <= 1e-9 * expected);
    }
  }
}

TEST_CASE("bandits.estimation: without a ridge the Chernoff statistic is invariant to a change of coordinates") {
  Rng rng(1);
  const Matrix<double> arms = normal_matrix<double>(rng, 12, 4), map = normal_matrix<double>(rng, 4, 4);
  const Vector<double> theta = normal_matrix<double>(rng, 4, 1);
  Counts counts;
  for (Index i = 0; i < 12; ++i) counts.push_back(rng.below(50) + 1);
  const double z = chernoff_statistic(arms, counts, theta);
  const Vector<double> mapped_theta = map.inverse() * theta;
  CHECK(std::abs(chernoff_statistic((arms * map).eval(), counts, mapped_theta) - z) <= 1e-9 * z);
  CHECK(std::abs(chernoff_statistic(arms, counts, theta, 0.0, 3.0) - z / 9) <= 1e-12 * z);
  CHECK(std::abs(reference::chernoff_statistic(arms, counts, theta, 0.0, 3.0) - z / 9) <= 1e-9 * z);
}

TEST_CASE("bandits.estimation: duplicates of the best arm do not stop the Chernoff statistic") {
  Matrix<double> arms(3, 2);
  arms << 1, 0, 1, 0, 0, 1;
  const Vector<double> theta = Vector<double>::Unit(2, 0);
  // x_best - x = (1, -1), H = diag(20, 10): Z = 1 / (2 (1/20 + 1/10))
  CHECK(std::abs(chernoff_statistic(arms, Counts{10, 10, 10}, theta) - 1 / 0.3) <= 1e-12);
  CHECK(chernoff_statistic(arms.topRows(2), Counts{1, 1}, theta) == infinity);
  CHECK(chernoff_statistic(arms.topRows(1), Counts{0}, theta) == infinity);
}

TEST_CASE("bandits.estimation: a singular H serves the span of the pulled arms and refuses the rest") {
  Matrix<double> arms(3, 3);
  arms << 1, 0, 0, 0, 1, 0, 0.5, 0.5, 0;
  const Vector<double> theta = Vector<double>::Unit(3, 0);
  CHECK(std::abs(chernoff_statistic(arms, Counts{4, 4, 0}, theta) - 1) <= 1e-12);  // 1 / (2 (1/4 + 1/4)), both arms
  CHECK(
      message_of<NumericalError>([&] {
        chernoff_statistic(arms, Counts{4, 0, 0}, theta);
      }) ==
      "chernoff_statistic: H is singular and arm 1 minus arm 0 lies outside the span of the pulled arms; use a ridge");
  CHECK(
      message_of<NumericalError>([&] {
        chernoff_statistic(arms, Counts{0, 0, 0}, theta);
      }) ==
      "chernoff_statistic: H is singular and arm 1 minus arm 0 lies outside the span of the pulled arms; use a ridge");
  CHECK(std::isfinite(chernoff_statistic(arms, Counts{4, 0, 0}, theta, 1e-3)));
}

TEST_CASE("bandits.estimation: the ridge estimate solves its normal equations") {
  Rng rng(2);
  const Matrix<double> arms = normal_matrix<double>(rng, 9, 4);
  Counts counts;
  std::vector<double> sums;
  for (Index i = 0; i < 9; ++i) counts.push_back(rng.below(30)), sums.push_back(rng.normal(0, 10));
  RidgeEstimator estimator(arms, 0.5);
  for (Index i = 0; i < 9; ++i) {
    const auto k = static_cast<std::size_t>(i);
    estimator.add(i, counts[k] / 2, 0.25 * sums[k]);
    estimator.add(i, counts[k] - counts[k] / 2, 0.75 * sums[k]);
  }
  const Vector<double> pulls = Eigen::Map<Vector<std::int64_t>>(counts.data(), 9).cast<double>();
  const Vector<double> rewards = Eigen::Map<Vector<double>>(sums.data(), 9);
  const Matrix<double> h = arms.transpose() * pulls.asDiagonal() * arms + 0.5 * Matrix<double>::Identity(4, 4);
  CHECK((estimator.precision() - h).cwiseAbs().maxCoeff() <= 1e-11);
  for (const Vector<double>& theta : {estimator.theta(), ridge_estimate(arms, counts, sums, 0.5)})
    CHECK((h * theta - arms.transpose() * rewards).cwiseAbs().maxCoeff() <= 1e-10);
  CHECK(estimator.counts()[3] == counts[3]);
}

TEST_CASE("bandits.estimation: without a ridge and without the full span the estimate is the shortest one") {
  Matrix<double> arms(3, 3);
  arms << 1, 1, 0, 2, 2, 0, 0, 0, 1;
  const Vector<double> theta = ridge_estimate(arms, Counts{4, 1, 0}, std::vector<double>{8, 4, 0}, 0);
  CHECK((theta - Eigen::Vector3d(1, 1, 0)).cwiseAbs().maxCoeff() <= 1e-13);  // mean 2 of (1, 1, 0)
  CHECK(ridge_estimate(arms, Counts{0, 0, 0}, std::vector<double>{0, 0, 0}, 0).isZero(0));
}

TEST_CASE("bandits.estimation: adding data and estimating into views allocate nothing") {
  Rng rng(3);
  RidgeEstimator estimator(normal_matrix<double>(rng, 20, 6));
  Vector<double> theta(6);
  Matrix<double> factor(6, 6);
  CHECK(test::allocations([&] {
          estimator.add(3, 10, 4.0);
          estimator.theta(theta, factor);
        }) == 0);
  CHECK(theta == estimator.theta());
}

TEST_CASE("bandits.estimation: bad input is named") {
  const Matrix<double> arms = Matrix<double>::Identity(2, 2);
  const Vector<double> theta = Vector<double>::Ones(2);
  CHECK(message_of<InvalidArgument>([&] {
          chernoff_statistic(arms, Counts{1, -1}, theta);
        }) == "chernoff_statistic: every count must be not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { chernoff_statistic(arms, Counts{1}, theta); }) ==
        "chernoff_statistic: counts has shape [1], expected [2] (one count an arm)");
  CHECK(message_of<InvalidArgument>([&] {
          chernoff_statistic(arms, Counts{1, 1}, std::vector<double>{1});
        }) == "chernoff_statistic: theta has shape [1], expected [2] (one coefficient a dimension)");
  CHECK(message_of<InvalidArgument>([&] {
          chernoff_statistic(arms, Counts{1, 1}, std::vector<double>{1, NAN});
        }) == "chernoff_statistic: theta must be finite, got nan");
  CHECK(message_of<InvalidArgument>([&] {
          chernoff_statistic(arms, Counts{1, 1}, theta, -1.0);
        }) == "chernoff_statistic: ridge must be finite and not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] {
          chernoff_statistic(arms, Counts{1, 1}, theta, 0.0, 0.0);
        }) == "chernoff_statistic: sigma must be finite and positive, got 0");
  CHECK(message_of<InvalidArgument>([&] {
          ridge_estimate(arms, Counts{1, 1}, std::vector<double>{1});
        }) == "ridge_estimate: reward_sums has shape [1], expected [2] (one sum an arm)");
  CHECK(message_of<InvalidArgument>([&] { RidgeEstimator(arms, 0.0); }) ==
        "RidgeEstimator: ridge must be finite and positive, got 0");
  RidgeEstimator estimator(arms);
  CHECK(message_of<InvalidArgument>([&] { estimator.add(2, 1, 0); }) ==
        "RidgeEstimator::add: arm must be the index of an arm, got 2");
  CHECK(message_of<InvalidArgument>([&] { estimator.add(0, -1, 0); }) ==
        "RidgeEstimator::add: count must be not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { estimator.add(0, 1, NAN); }) ==
        "RidgeEstimator::add: reward_sum must be finite, got nan");
}

}  // namespace
}  // namespace ashlar::bandits
