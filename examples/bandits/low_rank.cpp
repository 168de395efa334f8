// Low-Rank Bandits via Tight Two-to-Infinity Singular Subspace Recovery (Jedra et al., ICML 2024): a log of rewards of
// rank two tells what a policy is worth and which arm is best from samples in proportion to m + n, not to m n.
//
// Medians over instances of the error of a policy's value and of the loss of the policy that looks best; then regret
// from the first round on. The claim: a tenth of the error of inverse propensities, truncated or not, a tenth of the
// loss, and at most three quarters of the regret of UCB in every context by itself.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "ashlar/bandits/low_rank_evaluation.hpp"
#include "ashlar/bandits/low_rank_regret.hpp"
#include "support/cli.hpp"

namespace {

using namespace ashlar;
using namespace ashlar::bandits;

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return (x[(x.size() - 1) / 2] + x[x.size() / 2]) / 2;
}

bool evaluate(Index rounds, std::uint64_t instances, const Rng& root, bool judged) {
  std::vector<double> reduced, truncated, weighted, loss, truncated_loss;
  for (std::uint64_t k = 0; k < instances; ++k) {
    Rng rng = root.split(k);
    const LowRankInstance instance = diagonally_dominant_instance(50, 50, 2, rng);
    const Matrix<double> behavior = uniform_policy(50, 50), target = greedy_policy(instance.means);
    const OwnedLog log = simulate_log(instance, behavior, rounds, rng);
    const double best = instance.value(target);
    const ReducedModel model = fit_low_rank(log, instance.rho, behavior, 2);
    const Matrix<double> weights = joint_weights(instance.rho, target), means = model.predict(),
                         approximation = model.subspaces().approximation();
    reduced.push_back(std::abs(weights.cwiseProduct(means).sum() - best));
    truncated.push_back(std::abs(weights.cwiseProduct(approximation).sum() - best));
    weighted.push_back(std::abs(ips(log, behavior, target) - best));
    loss.push_back(best - instance.value(greedy_policy(means)));
    truncated_loss.push_back(best - instance.value(greedy_policy(approximation)));
  }
  std::printf("T=%-6td  %8.3f %8.3f %8.3f      %8.4f %8.4f\n", rounds, median(reduced), median(truncated),
              median(weighted), median(loss), median(truncated_loss));
  return !judged || (median(reduced) <= 0.1 * median(truncated) && median(reduced) <= 0.1 * median(weighted) &&
                     median(loss) <= 0.1 * median(truncated_loss));
}

bool play(std::uint64_t runs, const Rng& root) {
  std::vector<double> robust, optimistic, commit, plain;
  for (std::uint64_t k = 0; k < runs; ++k) {
    Rng rng = root.split(k);
    LowRankInstance instance = uniform_factors_instance(20, 20, 1, rng);
    instance.sigma = 0.3;
    const auto regret = [&](SecondPhase phase) {
      RsRmin bandit(20, 20, 1, 10000, {.sigma = 0.3, .second_phase = phase});
      return simulate_regret(bandit, instance, 10000, rng);
    };
    robust.push_back(regret(SecondPhase::sup_lin_ucb));
    optimistic.push_back(regret(SecondPhase::lin_ucb));
    commit.push_back(regret(SecondPhase::commit));
    ContextUCB ucb(20, 20, 0.3);
    plain.push_back(simulate_regret(ucb, instance, 10000, rng));
  }
  std::printf("\nMedian regret of %d runs of 10000 rounds, 20 x 20, rank 1, noise 0.3:\n", static_cast<int>(runs));
  std::printf("RS-RMIN %.0f, with LinUCB %.0f, with the best arm for ever %.0f; UCB a context %.0f\n", median(robust),
              median(optimistic), median(commit), median(plain));
  return median(robust) <= 0.75 * median(plain);
}

bool body(const example::Settings& settings) {
  const Rng root(settings.seed);
  const std::uint64_t instances = settings.full ? 64 : 16;
  std::printf("50 x 50, rank 2, noise 1, arms uniform; medians of %d instances.\n\n", static_cast<int>(instances));
  std::printf("          error of a value: reduced, truncated, IPS    loss: reduced, truncated\n");
  bool held = true;
  for (const Index rounds : {2500, 10000, 20000})
    held &= evaluate(rounds, instances, root.split(static_cast<std::uint64_t>(rounds)), rounds == 20000);
  const bool evaluated = example::claim(
      held, "At 20000 rounds the reduced model has at most a tenth of the error and of the loss of the weighted one.");
  const bool played = play(settings.full ? 100 : 20, root.split(1));
  return example::claim(played, "RS-RMIN pays at most three quarters of the regret of UCB in every context.") &&
         evaluated;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argc, argv, "Low-rank bandits: value of a policy, best policy, regret", body);
}
