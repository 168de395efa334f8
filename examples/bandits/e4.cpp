// Optimal Batched Linear Bandits (Ren, Jin, Xu, ICML 2024): E4 finds the best arm in three batches and pays less for it
// than algorithms that talk to the world more often.
//
// On End-of-Optimism instances, mean regret and batches of E4 beside phased elimination, rarely switching OFUL and the
// asymptotic lower bound c* log T. The claim: at most half the regret of either, with three batches, and the best arm
// played in the end.
#include "ashlar/bandits/e4.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <vector>

#include "ashlar/bandits/baselines.hpp"
#include "support/cli.hpp"

namespace {

using namespace ashlar;
using namespace ashlar::bandits;

struct Row {
  Index dim;
  double epsilon;
  std::int64_t horizon;
};

struct Summary {
  double regret = 0, deviation = 0, mean_batches = 0;
  Index median_batches = 0;
  int found = 0;  // runs that end on the best arm
};

/// `make()` gives a fresh algorithm; run i of every algorithm sees the same noise stream.
template <class Make>
Summary repeat(const LinearBandit& bandit, int runs, const Rng& rng, Make make) {
  std::vector<double> regrets;
  std::vector<Index> batches;
  Summary summary;
  for (int run = 0; run < runs; ++run) {
    auto algorithm = make();
    Rng noise = rng.split(static_cast<std::uint64_t>(run));
    const RunResult result = simulate(algorithm, bandit, noise);
    regrets.push_back(result.regret);
    batches.push_back(result.batches);
    summary.found += bandit.gaps()[result.best_arm] == 0;
  }
  for (const double regret : regrets) summary.regret += regret / runs;
  for (const double regret : regrets) summary.deviation += (regret - summary.regret) * (regret - summary.regret) / runs;
  summary.deviation = std::sqrt(summary.deviation);
  for (const Index count : batches) summary.mean_batches += static_cast<double>(count) / runs;
  std::nth_element(batches.begin(), batches.begin() + runs / 2, batches.end());
  summary.median_batches = batches[static_cast<std::size_t>(runs / 2)];
  return summary;
}

bool compare(const Row& row, int runs, const Rng& rng) {
  const LinearBandit bandit = end_of_optimism(row.dim, row.epsilon);
  const double bound =
      asymptotic_allocation(bandit.arms, bandit.gaps()).cost * std::log(static_cast<double>(row.horizon));
  const Summary e4 = repeat(bandit, runs, rng, [&] { return E4(bandit.arms, row.horizon); });
  const Summary theory =
      repeat(bandit, runs, rng, [&] { return E4(bandit.arms, row.horizon, {.preset = E4Preset::theory}); });
  const Summary phased = repeat(bandit, runs, rng, [&] { return PhasedElimination(bandit.arms, row.horizon); });
  const Summary optimist = repeat(bandit, runs, rng, [&] { return RarelySwitchingOFUL(bandit.arms, row.horizon); });
  std::printf("d=%td eps=%-4g T=%-6lld %8.0f   %6.0f +- %-4.0f (%.1f)   %6.0f (%.1f)   %6.0f (%.0f)   %6.0f (%.0f)\n",
              row.dim, row.epsilon, static_cast<long long>(row.horizon), bound, e4.regret, e4.deviation,
              e4.mean_batches, theory.regret, theory.mean_batches, phased.regret, phased.mean_batches, optimist.regret,
              optimist.mean_batches);
  return e4.regret <= 0.5 * phased.regret && e4.regret <= 0.5 * optimist.regret && e4.median_batches == 3 &&
         e4.found == runs;
}

bool body(const example::Settings& settings) {
  const int runs = settings.full ? 480 : 40;
  std::printf("Mean regret and (batches) of %d runs, Gaussian noise of deviation 1.\n\n", runs);
  std::printf("instance                c* log T   E4                     E4 theory       phased          OFUL\n");
  const Row rows[] = {{2, 0.01, 10000}, {2, 0.2, 10000}, {3, 0.01, 50000}, {5, 0.01, 100000}};
  bool held = true;
  Rng rng(settings.seed);
  for (std::size_t i = 0; i < std::size(rows); ++i) held &= compare(rows[i], runs, rng.split(i));
  std::printf("\nThe theory settings need horizons no computer can count to before three batches suffice.\n");
  return example::claim(held,
                        "E4 pays at most half the regret of both baselines in three batches and ends on the best arm.");
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argc, argv, "E4 against phased elimination and rarely switching OFUL", body);
}
