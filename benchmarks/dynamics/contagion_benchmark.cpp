// 48 rounds among N agents, against what one would write first: an index that std::shuffle permutes every round, a
// struct an agent, a uniform_real_distribution a decision. And the count chains, whose rounds cost the same for every
// N. Useful work of a round among agents: every state read and written once, two bytes each.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "ashlar/dynamics/contagion_simulation.hpp"
#include "ashlar/dynamics/count_chain.hpp"
#include "support/scoreboard.hpp"

namespace ashlar::dynamics {
namespace {

class PlainContagion {
 public:
  PlainContagion(std::size_t agents, std::size_t initial, const ContagionRates& rates, int slots)
      : agents_(agents), order_(agents), rates_(rates), full_((std::uint64_t{1} << slots) - 1) {
    for (std::size_t i = 0; i < initial; ++i) agents_[i].album = 1;
    std::iota(order_.begin(), order_.end(), 0u);
  }

  std::size_t step() {
    std::shuffle(order_.begin(), order_.end(), engine_);
    std::size_t carriers = 0;
    for (std::size_t k = 0; k + 1 < order_.size(); k += 2) {
      Agent &q = agents_[order_[k]], &a = agents_[order_[k + 1]];
      const bool carries_q = q.album != 0, carries_a = a.album != 0;
      const bool hit = carries_q && uniform_(engine_) < rates_.beta;
      a.album = (a.album << 1 | std::uint64_t{hit}) & full_;
      q.ever_symptomatic |= hit;
      a.ever_symptomatic |= hit;
      a.ever_carried |= hit;
      if (rates_.gamma > 0) {
        if (carries_q && uniform_(engine_) < rates_.gamma) q.album = 0;
        if (carries_a && uniform_(engine_) < rates_.gamma) a.album = 0;
      }
      carriers += (q.album != 0) + (a.album != 0);
    }
    return carriers;
  }

 private:
  struct Agent {
    std::uint64_t album = 0;
    bool ever_carried = false, ever_symptomatic = false;
  };
  std::vector<Agent> agents_;
  std::vector<std::uint32_t> order_;
  ContagionRates rates_;
  std::uint64_t full_;
  std::mt19937_64 engine_{1};
  std::uniform_real_distribution<double> uniform_;
};

const bool registered = [] {
  constexpr int slots = 10;
  for (const double gamma : {0.0, 0.2})
    for (const auto& [bits, rounds] : {std::pair{14, 48}, {20, 48}, {24, 4}}) {
      const ContagionRates rates{.beta = 0.9, .gamma = gamma};
      const std::int64_t n = std::int64_t{1} << bits;
      const std::string size = message("N=2^", bits, " B=10 gamma=", gamma, " rounds=", rounds);
      scoreboard::add({"dynamics.contagion.rounds", size, "ashlar", {.bytes = 4.0 * static_cast<double>(n * rounds)}},
                      [=, rounds = rounds] {
                        return [=] {
                          PairwiseContagion agents(n, n / 1024, {.rates = rates, .slots = slots});
                          Rng rng(1);
                          for (int t = 0; t < rounds; ++t) agents.step(rng);
                          benchmark::DoNotOptimize(agents.carriers());
                        };
                      });
      scoreboard::add({"dynamics.contagion.rounds", size, "index shuffle, one struct an agent"}, [=, rounds = rounds] {
        return [=] {
          PlainContagion agents(static_cast<std::size_t>(n), static_cast<std::size_t>(n / 1024), rates, slots);
          std::size_t carriers = 0;
          for (int t = 0; t < rounds; ++t) carriers = agents.step();
          benchmark::DoNotOptimize(carriers);
        };
      });
    }
  for (const std::int64_t n : {1000, 1000000, 1000000000}) {
    const std::string size = message("N=", n, " rounds=48");
    const ContagionRates rates{.beta = 0.9, .gamma = 0.2};
    scoreboard::add({"dynamics.count_chain.bits", size, "ashlar"}, [=] {
      return [=] {
        CountChain chain(n, n / 100, {.rates = rates});
        Rng rng(1);
        for (int t = 0; t < 48; ++t) chain.step(rng);
        benchmark::DoNotOptimize(chain.carriers());
      };
    });
    scoreboard::add({"dynamics.count_chain.albums", size + " B=10", "ashlar"}, [=] {
      return [=] {
        AlbumCountChain chain(n, n / 100, {.rates = rates, .slots = slots});
        Rng rng(1);
        for (int t = 0; t < 48; ++t) chain.step(rng);
        benchmark::DoNotOptimize(chain.carriers());
      };
    });
    if (n > 1000000) continue;
    scoreboard::add({"dynamics.count_chain.bits", size, "agents"}, [=] {
      return [=] {
        PairwiseContagion agents(n, n / 100, {.rates = rates});
        Rng rng(1);
        for (int t = 0; t < 48; ++t) agents.step(rng);
        benchmark::DoNotOptimize(agents.carriers());
      };
    });
    scoreboard::add({"dynamics.count_chain.albums", size + " B=10", "agents"}, [=] {
      return [=] {
        PairwiseContagion agents(n, n / 100, {.rates = rates, .slots = slots});
        Rng rng(1);
        for (int t = 0; t < 48; ++t) agents.step(rng);
        benchmark::DoNotOptimize(agents.carriers());
      };
    });
  }
  return true;
}();

}  // namespace
}  // namespace ashlar::dynamics
