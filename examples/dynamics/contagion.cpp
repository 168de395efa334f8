// Contagion among agents that talk in random pairs (Gu et al., "Agent Smith", ICML 2024), as an epidemic of abstract
// states: how fast it grows, which recovery rate contains it, and what an operator can read off a trace.
//
// The claims: a share of agents is reached in a time of order log N; the outbreak dies out where beta <= 2 gamma and
// settles at 1 - 2 gamma / beta otherwise. With albums of B items the threshold moves to R0 = 1, beta B = 1 without
// purges. Checked on simulated agents and on count chains; the plot shows the growth for populations up to a billion.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/dynamics.hpp"
#include "support/cli.hpp"
#include "support/plot.hpp"

namespace {

using namespace ashlar;
using namespace ashlar::dynamics;
using example::brief;
using example::claim;

bool between(double x, double low, double high) { return x >= low && x <= high; }

/// beta = 0.5 and three recovery rates around beta / 2.
bool criterion(const Rng& rng, Index rounds) {
  std::printf("One bit an agent, 200000 agents, 1 %% carriers, beta 0.5, after %td rounds:\n", rounds);
  std::printf("  gamma   beta <= 2 gamma   limit   mean field   agents\n");
  const double gammas[] = {0.2, 0.25, 0.3};
  double shares[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const ContagionRates rates{.beta = 0.5, .gamma = gammas[i]};
    PairwiseContagion agents(200000, 2000, {.rates = rates});
    Rng own = rng.split(i);
    shares[i] = simulate(agents, rounds, own).carrying.back();
    std::printf("  %5.2f   %-15s   %5.3f   %10.4f   %6.4f\n", gammas[i],
                provably_contained(rates).contained ? "yes" : "no", endemic_share(rates),
                mean_field(0.01, rates, rounds).back(), shares[i]);
  }
  return claim(between(shares[0], 0.19, 0.21) && shares[1] < 0.01 && shares[2] < 5e-4,
               "above the threshold the share settles at 1 - 2 gamma / beta = 0.2, at it and below it dies away: " +
                   brief(shares[0]) + ", " + brief(shares[1]) + ", " + brief(shares[2]));
}

struct Growth {
  std::int64_t agents;
  Index median;
  std::vector<double> curve;  // of the median run
};

/// Rounds until 90 % carry, from one agent, for populations each 16 times the one before.
bool growth(const Rng& rng, Index runs, std::vector<Growth>& table) {
  const ContagionOptions options{.rates = {.beta = 0.9}, .slots = 10};
  std::printf(
      "\nAlbums of 10 items, beta 0.9, no purge, rounds until 90 %% carry (median of %td runs that take off):\n", runs);
  std::printf("        agents   rounds   one by one\n");
  for (const int bits : {8, 12, 16, 20, 24, 28}) {
    const std::int64_t n = std::int64_t{1} << bits;
    const std::vector<Trace> traces = simulate_runs(runs, 100, rng.split(static_cast<std::uint64_t>(bits)),
                                                    [&] { return AlbumCountChain(n, 1, options); });
    std::vector<std::pair<Index, std::size_t>> reached;
    for (std::size_t i = 0; i < traces.size(); ++i)
      if (const std::optional<Index> t = rounds_to(traces[i], 0.9)) reached.emplace_back(*t, i);
    require(!reached.empty(), "contagion", "no run took off");
    const auto middle = reached.begin() + static_cast<std::ptrdiff_t>(reached.size() / 2);
    std::nth_element(reached.begin(), middle, reached.end());
    table.push_back({n, middle->first, traces[middle->second].carrying});
    std::printf("  %12lld   %6td   %10.0f\n", static_cast<long long>(n), middle->first, 0.9 * static_cast<double>(n));
  }
  bool even = true;
  for (std::size_t i = 1; i < table.size(); ++i)
    even &= between(static_cast<double>(table[i].median - table[i - 1].median), 5, 9);
  return claim(even && between(static_cast<double>(table[3].median), 37, 44),
               "16 times the agents take about 7 rounds more, from 256 to 268 million");
}

/// A million agents, one by one, and what purges do to them.
bool million(const Rng& rng) {
  std::printf("\n1048576 agents with albums of 10 items, 1024 of them carrying:\n");
  bool held = true;
  {
    PairwiseContagion agents(1 << 20, 1024, {.rates = {.beta = 0.9}, .slots = 10});
    Rng own = rng.split(0);
    const std::optional<Index> rounds = rounds_to(simulate(agents, 48, own), 0.9);
    held &= claim(rounds && between(static_cast<double>(*rounds), 21, 26),
                  "90 % carry after 23 rounds: " + (rounds ? std::to_string(*rounds) : "never"));
  }
  {
    const ContagionRates rates{.beta = 0.9, .gamma = 0.2};
    PairwiseContagion agents(1 << 20, 1024, {.rates = rates, .slots = 10});
    Rng own = rng.split(1);
    const double plateau = simulate(agents, 70, own).carrying.back();
    held &= claim(std::abs(plateau - 0.55) < 0.01,
                  "with a purge of 0.2 (R0 = " + brief(album_reproduction_number(rates, 10)) +
                      ") the share stays at 0.55: " + brief(plateau));
  }
  {
    const ContagionRates rates{.beta = 0.5, .gamma = 0.3};
    PairwiseContagion agents(1 << 20, 1024, {.rates = rates, .slots = 10});
    Rng own = rng.split(2);
    const Trace trace = simulate(agents, 48, own);
    held &= claim(trace.ever_carrying.back() < 0.01 && trace.carrying.back() < trace.carrying.front() / 4,
                  "beta 0.5 with a purge of 0.3 (R0 = " + brief(album_reproduction_number(rates, 10)) +
                      ") dies out and ever reaches 0.58 %: " + brief(100 * trace.ever_carrying.back()) + " %");
  }
  return held;
}

bool album_threshold(const Rng& rng) {
  std::printf("\nAlbums of 10 items without purge, a million agents, after 1500 rounds:\n  beta   theory   chain\n");
  double worst = 0;
  for (const double beta : {0.09, 0.11, 0.15, 0.3}) {
    AlbumCountChain chain(1000000, 500000, {.rates = {.beta = beta}, .slots = 10});
    Rng own = rng.split(static_cast<std::uint64_t>(1000 * beta));
    const double share = simulate(chain, 1500, own).carrying.back(), theory = endemic_share_album(beta, 10);
    std::printf("  %4.2f   %6.3f   %5.3f\n", beta, theory, share);
    worst = std::max(worst, std::abs(share - theory));
  }
  return claim(worst < 0.02,
               "the share leaves 0 where beta B = 1 and follows c = 1 - (1 - beta c)^B, to " + brief(worst));
}

bool extinction(const Rng& rng, Index runs) {
  const ContagionOptions options{.rates = {.beta = 0.5, .gamma = 0.2}};
  const RunSummary summary =
      summarise(simulate_runs(runs, 600, rng, [&] { return CountChain(1000000000, 1, options); }));
  const double expected = extinction_probability(options.rates, 1);
  const double error = std::sqrt(expected * (1 - expected) / static_cast<double>(runs));
  std::printf("\nA billion agents, one carrier, beta 0.5, gamma 0.2, %td runs:\n", runs);
  return claim(std::abs(summary.extinct_share() - expected) < 4 * error,
               "dies out by chance with probability " + brief(expected) + ": " + brief(summary.extinct_share()) +
                   "; the others carry " + brief(summary.mean_surviving.back()) + " in the end");
}

/// What an operator would do: measure, decide, act, measure again.
bool operate(Rng rng) {
  const ContagionRates hidden{.beta = 0.6, .gamma = 0.15};
  CountChain chain(1000000, 1000, {.rates = hidden});
  const RateEstimate before = estimate_rates(simulate(chain, 50, rng).carrying, chain.population());
  const DefencePlan plan = plan_defence({.beta = before.beta, .gamma = before.gamma});
  ContagionRates defended = hidden;
  defended.gamma = std::min(1.0, plan.purge * 1.2);
  chain.set_rates(defended);
  const RateEstimate after = estimate_rates(simulate(chain, 50, rng).carrying, chain.population());
  std::printf(
      "\nAn operator sees 50 rounds of shares (true beta 0.6, gamma 0.15): beta %.3f +- %.3f, gamma %.3f +- %.3f.\n",
      before.beta, before.beta_error, before.gamma, before.gamma_error);
  std::printf("The plan: purge at %.3f, or filter %.3f of the retrievals, or make %.3f of the agents immune.\n",
              plan.purge, plan.filter, plan.immune);
  return claim(before.verdict == ContainmentVerdict::spreading && after.verdict == ContainmentVerdict::contained &&
                   std::abs(plan.purge - 0.3) < 0.03,
               "a purge 20 % above the planned one turns the verdict from spreading to contained");
}

void plot(const std::vector<Growth>& table, const std::string& file) {
  std::string script =
      "set key outside right top\nset title 'From one agent: albums of 10 items, beta 0.9'\nset xlabel 'round'\nset "
      "ylabel 'share of carriers'\n";
  std::string draws;
  for (std::size_t i = 0; i < table.size(); ++i) {
    script += message("$data", i, " << EOD\n");
    for (std::size_t t = 0; t <= 70; ++t) script += message(t, ' ', table[i].curve[t], '\n');
    script += "EOD\n";
    draws += message(i == 0 ? "plot " : ", ", "$data", i, " with lines lw 2 title '", table[i].agents, " agents'");
  }
  script += draws + "\n";
  example::plot(file, script);
}

bool body(const example::Settings& settings, const std::string& file) {
  const Rng rng(settings.seed);
  const Index factor = settings.full ? 10 : 1;
  std::vector<Growth> table;
  bool held = criterion(rng.split(1), 200);
  held &= growth(rng.split(2), 41 * factor, table);
  held &= million(rng.split(3));
  held &= album_threshold(rng.split(4));
  held &= extinction(rng.split(5), 2000 * factor);
  held &= operate(rng.split(6));
  plot(table, file);
  return held;
}

}  // namespace

int main(int argc, char** argv) {
  std::string file = "contagion.svg";
  return example::run(
      argc, argv, "Contagion by pairwise chat: growth, threshold, defence",
      [&](const example::Settings& settings) { return body(settings, file); },
      [&](CLI::App& app) { app.add_option("--plot", file, "where the plot goes (SVG)")->capture_default_str(); });
}
