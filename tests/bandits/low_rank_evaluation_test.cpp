#include "ashlar/bandits/low_rank_evaluation.hpp"

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/low_rank_case.hpp"

namespace ashlar::bandits {
namespace {

using test::LowRankCase;
using test::message_of;

TEST_CASE("bandits.low_rank_evaluation: values and policies and constants of the fixtures") {
  for (const std::string name : {"a", "b", "r1", "sparse"}) {
    INFO(name);
    const LowRankCase c = test::low_rank_case(name);
    const Matrix<double> target = greedy_policy(c.means);
    const double tolerance = name == "sparse" ? 1e-5 : 1e-7;  // of the ridge solution, whose condition it is
    CHECK(std::abs(LowRankInstance{c.means, c.rho}.value(target) - c.scalars[0]) <= 1e-7);
    CHECK(std::abs(ips(c.log, c.behavior, target) - c.scalars[1]) <= 1e-7);
    CHECK(std::abs(sips(c.log, c.rho, c.behavior, target, c.rank) - c.scalars[2]) <= 1e-7);
    const PolicyValue all = rs_pe(c.log, c.rho, c.behavior, target, c.rank);
    CHECK(std::abs(all.value - c.scalars[3]) <= tolerance);
    CHECK(all.status == SubspaceStatus::determined);
    CHECK(std::abs(rs_pe(c.log, c.rho, c.behavior, target, c.rank, {.split = 0.5}).value - c.scalars[4]) <= tolerance);
    const ReducedModel split = fit_low_rank(c.log, c.rho, c.behavior, c.rank, {.split = 0.5});
    CHECK((split.predict() - c.reduced_split).cwiseAbs().maxCoeff() <= tolerance);
    const Matrix<double> logged = joint_weights(c.rho, c.behavior), wanted = joint_weights(c.rho, target);
    CHECK(std::abs(pe_upper_constant(c.means, c.rank, logged, wanted) - c.scalars[5]) <= 1e-7);
    CHECK(std::abs(reference::pe_upper_constant(c.means, c.rank, logged, wanted) - c.scalars[5]) <= 1e-7);
    CHECK(std::abs(pe_lower_constant(c.means, c.rank, logged, wanted) - c.scalars[6]) <= 1e-7);
    const auto bar = test::fixture<std::int64_t>("low_rank_bandit/" + name + "_policy_bar");
    const auto hat = test::fixture<std::int64_t>("low_rank_bandit/" + name + "_policy_hat");
    const std::vector<Index> best = rs_bpi(c.log, c.rho, c.behavior, c.rank, {.ridge = 1e-4});
    const std::vector<Index> spectral =
        greedy_arms(fit_low_rank(c.log, c.rho, c.behavior, c.rank).subspaces().approximation());
    for (std::size_t i = 0; i < best.size(); ++i) {
      CHECK(best[i] == bar.data()[i]);
      CHECK(spectral[i] == hat.data()[i]);
    }
  }
}

TEST_CASE("bandits.low_rank_evaluation: IPS and the doubly robust value are unbiased") {
  Rng rng(4);
  LowRankInstance instance = uniform_factors_instance(4, 5, 1, rng);
  instance.sigma = 0.5;
  const Matrix<double> behavior = favoured_arm_policy(4, 5, 0.5), target = greedy_policy(instance.means);
  const Matrix<double> wrong = instance.means * 0.8;
  constexpr int runs = 2000;
  double sum[2] = {}, squares[2] = {};
  for (int run = 0; run < runs; ++run) {
    const OwnedLog log = simulate_log(instance, behavior, 50, rng);
    const double values[] = {ips(log, behavior, target), doubly_robust(log, instance.rho, behavior, target, wrong)};
    for (int k = 0; k < 2; ++k) sum[k] += values[k], squares[k] += values[k] * values[k];
  }
  for (int k = 0; k < 2; ++k) {
    const double mean = sum[k] / runs, error = std::sqrt((squares[k] / runs - mean * mean) / runs);
    CHECK(std::abs(mean - instance.value(target)) < 4 * error);
  }
  CHECK(squares[1] / runs - std::pow(sum[1] / runs, 2) < squares[0] / runs - std::pow(sum[0] / runs, 2));
}

TEST_CASE("bandits.low_rank_evaluation: the standard error is that of the dense formula and covers") {
  Rng rng(5);
  LowRankInstance instance = uniform_factors_instance(20, 20, 2, rng);
  instance.sigma = 0.5;
  const Matrix<double> behavior = uniform_policy(20, 20), target = greedy_policy(instance.means);
  int covered = 0;
  constexpr int runs = 60;
  for (int run = 0; run < runs; ++run) {
    const OwnedLog log = simulate_log(instance, behavior, 20000, rng);
    const PolicyValue v = rs_pe(log, instance.rho, behavior, target, 2);
    covered += std::abs(v.value - instance.value(target)) <= 1.96 * v.standard_error;
    if (run > 0) continue;
    const ReducedModel model = fit_low_rank(log, instance.rho, behavior, 2);
    const ReducedFeatures features(model.subspaces());
    Eigen::MatrixXd gram = Eigen::MatrixXd::Zero(76, 76);
    Vector<double> mean = Vector<double>::Zero(76);
    double squares = 0;
    std::vector<Matrix<double>> phi;
    for (Index i = 0; i < 20; ++i) {
      phi.push_back(features.of_context(i));
      mean += phi.back().transpose() * target.row(i).transpose() / 20;
    }
    for (std::size_t t = 0; t < log.reward.size(); ++t) {
      const Vector<double> x = phi[static_cast<std::size_t>(log.context[t])].row(log.arm[t]).transpose();
      gram += x * x.transpose();
      squares += std::pow(log.reward[t] - model.predict(log.context[t], log.arm[t]), 2);
    }
    const Eigen::MatrixXd ridged = gram + 1e-4 * Eigen::MatrixXd::Identity(76, 76);
    const Vector<double> h = ridged.ldlt().solve(mean);
    CHECK(std::abs(v.standard_error - std::sqrt(squares / (20000 - 76) * h.dot(gram * h))) <= 1e-8 * v.standard_error);
  }
  // At a true coverage of 0.9 fewer than 45 of 60 have probability 3e-4.
  CHECK(covered >= 45);
}

TEST_CASE("bandits.low_rank_evaluation: the low-rank estimate beats inverse propensities tenfold") {
  // Eight instances; the medians measured elsewhere differ by a factor of sixty.
  std::vector<double> reduced, spectral, gap_reduced, gap_spectral;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    Rng rng(seed);
    const LowRankInstance instance = diagonally_dominant_instance(50, 50, 2, rng);
    const Matrix<double> behavior = uniform_policy(50, 50), target = greedy_policy(instance.means);
    const OwnedLog log = simulate_log(instance, behavior, 20000, rng);
    const double best = instance.value(target);
    const ReducedModel model = fit_low_rank(log, instance.rho, behavior, 2);
    const Matrix<double> means = model.predict(), hat = model.subspaces().approximation();
    const Matrix<double> weights = joint_weights(instance.rho, target);
    reduced.push_back(std::abs(weights.cwiseProduct(means).sum() - best));
    spectral.push_back(std::abs(weights.cwiseProduct(hat).sum() - best));
    gap_reduced.push_back(best - instance.value(greedy_policy(means)));
    gap_spectral.push_back(best - instance.value(greedy_policy(hat)));
  }
  const auto median = [](std::vector<double> x) {
    std::sort(x.begin(), x.end());
    return (x[3] + x[4]) / 2;
  };
  CHECK(median(reduced) <= 0.1 * median(spectral));
  CHECK(median(gap_reduced) <= 0.1 * median(gap_spectral));
}

TEST_CASE("bandits.low_rank_evaluation: zero rewards and a split without a first phase are flagged") {
  const Matrix<double> policy = uniform_policy(2, 2);
  const Vector<double> rho = Vector<double>::Constant(2, 0.5);
  const OwnedLog zero{{0, 1}, {1, 0}, {0, 0}}, one{{0}, {0}, {3}};
  for (const PolicyValue& v :
       {rs_pe(zero, rho, policy, policy, 1), rs_pe(one, rho, policy, policy, 1, {.split = 0.5})}) {
    CHECK(v.value == 0);
    CHECK(v.status == SubspaceStatus::zero);
    CHECK(std::isnan(v.standard_error));
  }
}

TEST_CASE("bandits.low_rank_evaluation: bad input is named") {
  const Matrix<double> policy = uniform_policy(2, 2), half = policy / 2, wide = uniform_policy(2, 3);
  const Vector<double> rho = Vector<double>::Constant(2, 0.5);
  const OwnedLog log{{0, 1}, {1, 0}, {1, 2}};
  Matrix<double> holes = policy;
  holes.row(0) << 1, 0;
  CHECK(message_of<InvalidArgument>([&] { rs_pe(OwnedLog{}, rho, policy, policy, 1); }) ==
        "fit_low_rank: the log is empty");
  CHECK(message_of<InvalidArgument>([&] { rs_pe(log, rho, half, policy, 1); }) ==
        "joint_weights: policy row 0 must sum to 1, got 0.5");
  CHECK(message_of<InvalidArgument>([&] { rs_pe(log, rho, holes, policy, 1); }) ==
        "fit_low_rank: propensity[0,1] must be positive, since round 0 was there, got 0");
  CHECK(message_of<InvalidArgument>([&] { rs_pe(log, rho, policy, wide, 1); }) ==
        "rs_pe: target has shape [2,3], expected [2,2] (the shape of behavior)");
  CHECK(message_of<InvalidArgument>([&] { rs_pe(log, rho, policy, policy, 3); }) ==
        "recover_subspaces: rank must be between 1 and 2, got 3");
  CHECK(message_of<InvalidArgument>([&] { rs_pe(log, rho, policy, policy, 1, {.ridge = -1}); }) ==
        "fit_low_rank: ridge must be finite and not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { rs_pe(log, rho, policy, policy, 1, {.split = 1}); }) ==
        "fit_low_rank: split must be between 0 and 1, got 1");
  CHECK(message_of<InvalidArgument>([&] { ips(log, holes, policy); }) ==
        "ips: propensity[0,1] must be positive, since round 0 was there, got 0");
  CHECK(message_of<InvalidArgument>([&] { ips(OwnedLog{}, policy, policy); }) == "ips: the log is empty");
  CHECK(message_of<InvalidArgument>([&] { sips(OwnedLog{}, rho, policy, policy, 1); }) == "sips: the log is empty");
  CHECK(message_of<InvalidArgument>([&] { doubly_robust(log, rho, policy, policy, wide); }) ==
        "doubly_robust: means has shape [2,3], expected [2,2] (the shape of behavior)");
  CHECK(message_of<InvalidArgument>([&] { pe_upper_constant(policy, 1, wide, policy); }) ==
        "pe_upper_constant: behavior_weights has shape [2,3], expected [2,2] (the shape of means)");
  const Matrix<double> minus = -policy;
  CHECK(message_of<InvalidArgument>([&] { pe_lower_constant(policy, 1, policy, minus); }) ==
        "pe_lower_constant: every target weight must be not negative, got -0.5");
}

}  // namespace
}  // namespace ashlar::bandits
