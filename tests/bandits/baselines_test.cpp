#include "ashlar/bandits/baselines.hpp"

#include <Eigen/LU>
#include <vector>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::bandits {
namespace {

using test::message_of;

static_assert(BatchedAlgorithm<PhasedElimination> && BatchedAlgorithm<RarelySwitchingOFUL>);

/// Rarely switching OFUL one pull at a time, with the determinant compared after each, on rewards without noise.
RunResult stepwise_oful(const LinearBandit& bandit, std::int64_t horizon) {
  const Index dim = bandit.arms.cols();
  const Vector<double> means = bandit.means(), gaps = bandit.gaps();
  Eigen::MatrixXd v = Eigen::MatrixXd::Identity(dim, dim);
  Vector<double> moment = Vector<double>::Zero(dim);
  RunResult result;
  for (std::int64_t t = 0; t < horizon;) {
    const Eigen::MatrixXd inverse = v.inverse();
    const double log_t = std::log(static_cast<double>(std::max<std::int64_t>(t, 1)));
    const double nu = t == 0 ? 1 : std::max(std::sqrt(128 * static_cast<double>(dim) * log_t), 8.0 / 3 * log_t);
    Index arm = 0;
    (bandit.arms * (inverse * moment) +
     nu * (bandit.arms * inverse).cwiseProduct(bandit.arms).rowwise().sum().cwiseSqrt())
        .maxCoeff(&arm);
    const double bound = 1.5 * v.determinant() * (1 + 1e-9);
    while (t < horizon && v.determinant() <= bound) {
      v += bandit.arms.row(arm).transpose() * bandit.arms.row(arm);
      moment += means[arm] * bandit.arms.row(arm).transpose();
      result.regret += gaps[arm];
      ++t;
    }
    ++result.batches;
  }
  return result;
}

TEST_CASE("bandits.baselines: rarely switching OFUL pulls as often as a loop over determinants") {
  for (const Index dim : {2, 3}) {
    const LinearBandit bandit{end_of_optimism(dim, 0.2).arms, Vector<double>::Unit(dim, 0), 0};
    RarelySwitchingOFUL algorithm(bandit.arms, 2000);
    Rng rng(0);
    const RunResult run = simulate(algorithm, bandit, rng), expected = stepwise_oful(bandit, 2000);
    CHECK(run.batches == expected.batches);
    CHECK(std::abs(run.regret - expected.regret) <= 1e-9 * expected.regret);
  }
}

TEST_CASE("bandits.baselines: phased elimination follows its rates and widths") {
  const LinearBandit bandit{Matrix<double>::Identity(2, 2), Vector<double>::Ones(2), 0};
  PhasedElimination algorithm(bandit.arms, 1000000);
  Rng rng(0);
  simulate(algorithm, bandit, rng);
  const auto& reports = algorithm.state().reports;
  CHECK(reports[0].plan.total() == 2000);                  // 2 T^(1/2)
  CHECK(std::abs(reports[1].plan.total() - 63246) <= 1);   // 2 T^(3/4)
  CHECK(std::abs(reports[2].plan.total() - 355656) <= 1);  // 2 T^(7/8)
  // Two arms of means 1 and 1 - gap part once 2 sqrt(2 log(2 T^2) / rate) < gap.
  for (const double gap : {0.3, 0.6}) {
    LinearBandit two = bandit;
    two.theta[1] = 1 - gap;
    PhasedElimination phased(two.arms, 1000000);
    CHECK(simulate(phased, two, rng).best_arm == 0);
    std::size_t batches = 1;
    while (2 * std::sqrt(2 * std::log(2e12) / std::pow(1e6, 1 - std::exp2(-static_cast<double>(batches)))) >= gap)
      ++batches;
    REQUIRE(phased.state().reports.size() == batches + 1);
    CHECK(phased.state().reports[batches - 1].active == std::vector<Index>{0});
  }
}

TEST_CASE("bandits.baselines: runs use the horizon exactly and resume from text to the last bit") {
  Rng rng(1);
  for (int repeat = 0; repeat < 10; ++repeat) {
    INFO(repeat);
    const LinearBandit bandit = random_instance(rng.below(8) + 1, rng.below(4) + 1, rng);
    const std::int64_t horizon = rng.below(3000) + 1;
    const auto check = [&](auto whole, auto resume) {
      Rng noise = rng.split(static_cast<std::uint64_t>(repeat)), again = noise;
      const RunResult run = simulate(whole, bandit, noise);
      CHECK(whole.state().pulls == horizon);
      auto parts = resume(TrialState(decltype(whole)(bandit.arms, horizon).state()));
      RunResult pieces;
      while (const auto plan = parts.ask()) {
        parts = resume(trial_state_from_text(to_text(parts.state())));
        std::vector<double> sums;
        for (std::size_t i = 0; i < plan->arms.size(); ++i) {
          const auto count = static_cast<double>(plan->counts[i]);
          sums.push_back(again.normal(count * bandit.means()[plan->arms[i]], std::sqrt(count)));
        }
        parts.tell(sums);
        ++pieces.batches;
      }
      CHECK(pieces.batches == run.batches);
      CHECK(parts.best_arm() == run.best_arm);
      CHECK(parts.state().counts == whole.state().counts);
    };
    check(PhasedElimination(bandit.arms, horizon),
          [&](TrialState state) { return PhasedElimination(bandit.arms, {}, std::move(state)); });
    check(RarelySwitchingOFUL(bandit.arms, horizon),
          [&](TrialState state) { return RarelySwitchingOFUL(bandit.arms, {}, std::move(state)); });
  }
}

TEST_CASE("bandits.baselines: zero arms end at the horizon") {
  const LinearBandit bandit{Matrix<double>::Zero(3, 2), Vector<double>::Ones(2)};
  Rng rng(2);
  PhasedElimination phased(bandit.arms, 50);
  CHECK(simulate(phased, bandit, rng).batches == 1);
  RarelySwitchingOFUL optimist(bandit.arms, 50);
  CHECK(simulate(optimist, bandit, rng).batches == 1);
}

TEST_CASE("bandits.baselines: bad input is named") {
  const Matrix<double> arms = Matrix<double>::Identity(2, 2);
  CHECK(message_of<InvalidArgument>([&] { PhasedElimination(arms, 0); }) ==
        "PhasedElimination: horizon must be between 1 and 2^60, got 0");
  CHECK(message_of<InvalidArgument>([&] { PhasedElimination(arms, 10, {.ridge = 0}); }) ==
        "PhasedElimination: ridge must be finite and positive, got 0");
  CHECK(message_of<InvalidArgument>([&] { PhasedElimination(arms, 10, {.sigma = 0}); }) ==
        "PhasedElimination: sigma must be finite and positive, got 0");
  CHECK(message_of<InvalidArgument>([&] { RarelySwitchingOFUL(arms, 10, {.growth = 0}); }) ==
        "RarelySwitchingOFUL: growth must be finite and positive, got 0");
  CHECK(message_of<InvalidArgument>([&] { RarelySwitchingOFUL(arms, 10, {.ridge = -1}); }) ==
        "RarelySwitchingOFUL: ridge must be finite and positive, got -1");
  CHECK(message_of<InvalidArgument>([&] { RarelySwitchingOFUL(arms, 10, {.sigma = NAN}); }) ==
        "RarelySwitchingOFUL: sigma must be finite and positive, got nan");
  RarelySwitchingOFUL optimist(arms, 10);
  CHECK(message_of<InvalidArgument>([&] { optimist.tell(std::vector<double>{1}); }) ==
        "RarelySwitchingOFUL::tell: there is no plan to tell about; call ask() first");
  CHECK(message_of<InvalidArgument>([&] { (void)optimist.best_arm(); }) ==
        "RarelySwitchingOFUL::best_arm: nothing has been told yet");
}

}  // namespace
}  // namespace ashlar::bandits
