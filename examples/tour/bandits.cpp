// The tour's stop at batched bandits: E4 beside phased elimination and rarely switching OFUL on End-of-Optimism.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "ashlar/bandits/baselines.hpp"
#include "ashlar/bandits/e4.hpp"
#include "tour/tour.hpp"

namespace ashlar::tour {
namespace {

using namespace ashlar::bandits;

struct Mean {
  double regret = 0, batches = 0;
  int found = 0;
};

template <class Make>
Mean mean_of(const LinearBandit& bandit, int runs, const Rng& rng, Make make) {
  Mean mean;
  for (int run = 0; run < runs; ++run) {
    auto algorithm = make();
    Rng noise = rng.split(static_cast<std::uint64_t>(run));
    const RunResult result = simulate(algorithm, bandit, noise);
    mean.regret += result.regret / runs;
    mean.batches += static_cast<double>(result.batches) / runs;
    mean.found += result.best_arm == 0;
  }
  return mean;
}

template <class... Values>
std::string text(const char* format, Values... values) {
  char line[160];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

}  // namespace

Section bandits_section(const Data&, Rng rng, const Progress& progress) {
  constexpr int runs = 40;
  const LinearBandit bandit = end_of_optimism(5, 0.01);
  const double lower_bound = asymptotic_allocation(bandit.arms, bandit.gaps()).cost;
  Section section;
  section.title = "Batched bandits: three conversations are enough";
  section.text =
      "Nine treatments described by five numbers each; every pull gives a noisy reward, and the plan may change only "
      "between batches. Four treatments are nearly as good as the best one (1 % worse), and telling them apart takes "
      "pulls of treatments that are plainly bad: optimism never makes them. E4 plans them from the lower bound on "
      "regret itself. Mean of 40 runs; the rewards are simulated, as regret can only be known where the truth is.";
  Plot plot{
      .title = "Regret over the horizon", .x_label = "pulls T", .y_label = "mean regret", .log_x = true, .log_y = true, .series = {}};
  plot.series = {{"E4", {}, {}},
                 {"phased elimination", {}, {}},
                 {"rarely switching OFUL", {}, {}},
                 {"lower bound c* log T", {}, {}}};
  const std::vector<std::int64_t> horizons{3000, 10000, 30000, 100000, 300000, 1000000};
  for (std::size_t i = 0; i < horizons.size(); ++i) {
    const std::int64_t horizon = horizons[i];
    progress(static_cast<double>(i) / static_cast<double>(horizons.size()),
             message("bandits over ", horizon, " pulls"));
    const Rng noise = rng.split(i);
    const Mean e4 = mean_of(bandit, runs, noise, [&] { return E4(bandit.arms, horizon); });
    const Mean phased = mean_of(bandit, runs, noise, [&] { return PhasedElimination(bandit.arms, horizon); });
    const Mean optimist = mean_of(bandit, runs, noise, [&] { return RarelySwitchingOFUL(bandit.arms, horizon); });
    const auto t = static_cast<double>(horizon);
    const double values[] = {e4.regret, phased.regret, optimist.regret, lower_bound * std::log(t)};
    for (std::size_t k = 0; k < plot.series.size(); ++k) {
      plot.series[k].x.push_back(t);
      plot.series[k].y.push_back(values[k]);
    }
    if (horizon == 100000)
      section.rows.push_back(
          {"bandits/e4.hpp", "3 batches, at most half the regret of either baseline",
           text("regret %.0f in %.1f batches", e4.regret, e4.batches),
           text("phased %.0f in %.0f, OFUL %.0f in %.0f", phased.regret, phased.batches, optimist.regret,
                optimist.batches),
           text("regret 1/%.1f", std::min(phased.regret, optimist.regret) / e4.regret),
           2 * e4.regret <= phased.regret && 2 * e4.regret <= optimist.regret && e4.batches < 3.5 && e4.found == runs});
  }
  section.plots.push_back(std::move(plot));
  progress(1, "bandits");
  return section;
}

}  // namespace ashlar::tour
