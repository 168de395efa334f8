// Evaluating a policy from a log of low-rank rewards, and the rounds of SupLinUCB, against what the textbook says: a
// feature and an outer product a round and one dense solve; every level inverted anew. Useful work of an evaluation:
// reading the log once. Of a round of SupLinUCB: the widths of all arms on one level, 2 arms d^2 flops.
#include "ashlar/bandits/linear_ucb.hpp"
#include "ashlar/bandits/low_rank_evaluation.hpp"
#include "support/scoreboard.hpp"

namespace ashlar::bandits {
namespace {

struct Problem {
  LowRankInstance instance;
  Matrix<double> behavior, target;
  OwnedLog log;
  Index rank;
};

Problem problem(Index contexts, Index arms, Index rank, Index rounds) {
  Rng rng(1);
  Problem p{diagonally_dominant_instance(contexts, arms, rank, rng), uniform_policy(contexts, arms), {}, {}, rank};
  p.target = greedy_policy(p.instance.means);
  p.log = simulate_log(p.instance, p.behavior, rounds, rng);
  return p;
}

const bool registered = [] {
  struct Size {
    Index contexts, arms, rank, rounds;
  };
  for (const Size& s : {Size{50, 50, 2, 20000}, Size{500, 400, 5, 1000000}}) {
    const std::string size = message(s.contexts, "x", s.arms, " r=", s.rank, " T=", s.rounds);
    const double bytes = 16.0 * static_cast<double>(s.rounds);
    scoreboard::add({"bandits.rs_pe", size, "ashlar", {.bytes = bytes}}, [=] {
      return [p = problem(s.contexts, s.arms, s.rank, s.rounds)] {
        benchmark::DoNotOptimize(fit_low_rank(p.log, p.instance.rho, p.behavior, p.rank).predict(0, 0));
      };
    });
    if (s.contexts > 50) continue;  // 4475 unknowns: 10^13 operations in outer products
    scoreboard::add({"bandits.rs_pe", size, "reference"}, [=] {
      return [p = problem(s.contexts, s.arms, s.rank, s.rounds)] {
        const Matrix<double> weighted = ipw_matrix(p.log, joint_weights(p.instance.rho, p.behavior));
        benchmark::DoNotOptimize(
            reference::reduced_least_squares(recover_subspaces(weighted, p.rank), p.log, 1e-4)(0, 0));
      };
    });
  }
  static constexpr Index dim = 100, arms = 50, rounds = 200;
  const auto add = []<class Bandit>(const char* name, double flops) {
    scoreboard::add({"bandits.sup_lin_ucb", message("d=", dim, " n=", arms, " T=", rounds), name, {.flops = flops}}, [] {
      Rng rng(1);
      return [x = normal_matrix<double>(rng, arms, dim, 0.1)] {
        Bandit bandit(dim, rounds, {.alpha = 0.5});
        for (Index t = 0; t < rounds; ++t) {
          const Index arm = bandit.choose(x);
          bandit.observe(x(arm, 0));
        }
        benchmark::DoNotOptimize(bandit.level());
      };
    });
  };
  add.template operator()<SupLinUCB>("ashlar", 2.0 * rounds * arms * dim * dim);
  add.template operator()<reference::SupLinUCB>("reference", 0);
  return true;
}();

}  // namespace
}  // namespace ashlar::bandits
