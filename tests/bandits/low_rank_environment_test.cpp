#include "ashlar/bandits/low_rank_environment.hpp"

#include <Eigen/QR>
#include <vector>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::bandits {
namespace {

using test::message_of;

Index rank_of(const Matrix<double>& a) {
  Eigen::FullPivHouseholderQR<Matrix<double>> qr(a);
  qr.setThreshold(1e-12);
  return qr.rank();
}

TEST_CASE("bandits.low_rank_environment: instances have the rank and range they promise") {
  Rng rng(1);
  const LowRankInstance uniform = uniform_factors_instance(9, 7, 2, rng);
  CHECK(rank_of(uniform.means) == 2);
  CHECK(uniform.means.maxCoeff() == 1);
  CHECK(uniform.means.minCoeff() >= 0);
  const LowRankInstance dominant = diagonally_dominant_instance(9, 7, 2, rng);
  CHECK(rank_of(dominant.means) == 2);
  CHECK(dominant.means(0, 0) > dominant.means.bottomRightCorner(7, 5).maxCoeff());
  CHECK(constant_instance(3, 2, 4).means == Matrix<double>::Constant(3, 2, 4));
  CHECK(std::abs(dominant.rho.sum() - 1) <= 1e-15 * 9);
}

TEST_CASE("bandits.low_rank_environment: policies by hand") {
  const Matrix<double> favoured = favoured_arm_policy(2, 4, 0.6);
  CHECK(favoured(1, 0) == 0.4);
  CHECK(std::abs(favoured(1, 3) - 0.2) <= 1e-16);
  CHECK((favoured_arm_policy(2, 4, 0.75) - uniform_policy(2, 4)).norm() <= 1e-15);
  Matrix<double> means(2, 3);
  means << 1, 5, 5, 2, 1, 0;
  CHECK(greedy_arms(means) == std::vector<Index>{1, 0});
  Matrix<double> greedy(2, 3);
  greedy << 0, 1, 0, 1, 0, 0;
  CHECK(greedy_policy(means) == greedy);
  LowRankInstance instance{means, Vector<double>(2)};
  instance.rho << 0.25, 0.75;
  CHECK(instance.value(greedy) == 0.25 * 5 + 0.75 * 2);
  CHECK(joint_weights(instance.rho, greedy)(1, 0) == 0.75);
}

TEST_CASE("bandits.low_rank_environment: a simulated log follows contexts and policy and means") {
  const auto seed = GENERATE(1u, 2u);
  INFO("seed " << seed);
  Rng rng(seed);
  LowRankInstance instance = uniform_factors_instance(3, 4, 1, rng);
  instance.rho << 0.6, 0.4, 0;
  instance.sigma = 0.5;
  const Matrix<double> policy = favoured_arm_policy(3, 4, 0.5), weights = joint_weights(instance.rho, policy);
  constexpr Index rounds = 100000;
  for (const RewardModel model : {RewardModel::gaussian, RewardModel::bernoulli}) {
    const OwnedLog log = simulate_log(instance, policy, rounds, rng, model);
    Matrix<double> counts = Matrix<double>::Zero(3, 4), sums = counts;
    for (std::size_t t = 0; t < log.reward.size(); ++t) {
      counts(log.context[t], log.arm[t]) += 1;
      sums(log.context[t], log.arm[t]) += log.reward[t];
      if (model == RewardModel::bernoulli) REQUIRE(log.reward[t] * (1 - log.reward[t]) == 0);
    }
    for (Index i = 0; i < 3; ++i)
      for (Index j = 0; j < 4; ++j) {
        const double p = weights(i, j), mean = instance.means(i, j);
        // Five standard deviations.
        CHECK(std::abs(counts(i, j) - rounds * p) <= 5 * std::sqrt(rounds * p * (1 - p)));
        if (i == 2) continue;
        const double deviation = model == RewardModel::gaussian ? 0.5 : std::sqrt(mean * (1 - mean));
        CHECK(std::abs(sums(i, j) / counts(i, j) - mean) <= 5 * deviation / std::sqrt(counts(i, j)));
      }
  }
  Rng a(9), b(9);
  CHECK(simulate_log(instance, policy, 50, a).reward == simulate_log(instance, policy, 50, b).reward);
}

TEST_CASE("bandits.low_rank_environment: bad input is named") {
  Rng rng(1);
  CHECK(message_of<InvalidArgument>([&] { uniform_factors_instance(0, 2, 1, rng); }) ==
        "uniform_factors_instance: contexts must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { constant_instance(2, 0); }) ==
        "constant_instance: arms must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { diagonally_dominant_instance(4, 3, 4, rng); }) ==
        "diagonally_dominant_instance: rank must be between 1 and 3, got 4");
  CHECK(message_of<InvalidArgument>([&] { favoured_arm_policy(2, 1, 0.5); }) ==
        "favoured_arm_policy: arms must be at least 2, got 1");
  CHECK(message_of<InvalidArgument>([&] { favoured_arm_policy(2, 2, 1.5); }) ==
        "favoured_arm_policy: p must be between 0 and 1, got 1.5");
  const LowRankInstance instance = constant_instance(2, 2, 3);
  const Matrix<double> policy = uniform_policy(2, 2);
  CHECK(message_of<InvalidArgument>([&] { simulate_log(instance, policy, -1, rng); }) ==
        "simulate_log: rounds must be not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { simulate_log(instance, policy, 1, rng, RewardModel::bernoulli); }) ==
        "simulate_log: Bernoulli rewards need means between 0 and 1, got 3 to 3");
  CHECK(message_of<InvalidArgument>([&] { simulate_log(instance, uniform_policy(2, 3), 1, rng); }) ==
        "simulate_log: policy has shape [2,3], expected [2,2] (one row a context, one column an arm)");
  const Matrix<double> half = policy / 2;
  CHECK(message_of<InvalidArgument>([&] { instance.value(half); }) ==
        "LowRankInstance::value: policy row 0 must sum to 1, got 0.5");
  const OwnedLog log{{0, 0}, {0, 0}, {1, 2}};
  CHECK(log.view().slice(1, 2).reward[0] == 2);
  CHECK(message_of<InvalidArgument>([&] { log.view().slice(1, 3); }) ==
        "BanditLog::slice: a log of 2 rounds has no range 1 to 3");
}

}  // namespace
}  // namespace ashlar::bandits
