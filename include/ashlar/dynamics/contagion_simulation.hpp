// Agents that are paired at random every round and may pass an item on: the simulation whose mean field is in
// contagion.hpp, for up to 2^31 agents of two bytes each.
//
//   PairwiseContagion agents(1 << 20, 1024, {.rates = {.beta = 0.9, .gamma = 0.2}, .slots = 10});
//   RoundStats round = agents.step(rng);                    // 1 to 4 random words a pair, no allocation
//   agents.carriers();                                      // agents.set_rates({...}) between rounds: time-varying
//   rates
//
// One round, everything decided by the state at its start:
//   pair the agents at random, one questioner and one answerer a pair; if their number is odd, one stays idle
//   one bit an agent (slots = 0): a carrying questioner makes a clean answerer a carrier with probability beta
//   albums of B items (slots = B): a carrying questioner retrieves the item with probability beta, a clean item
//     otherwise; the answerer takes in what was retrieved and drops its oldest item
//   every agent that carried recovers with probability gamma
// An album needs no queue: retrieval does not depend on how many copies there are, so the number k of further clean
// items until the newest copy is pushed out says everything; k = B on receipt of the item, k - 1 on a clean one.
//
// step() takes the last agent that is left, draws its partner among the others, and moves both out of the way: half
// the random numbers of a shuffle, and what moves is the state itself. So agents have no identity from one step to the
// next. step_with() keeps it, and takes the pairing and all draws from the caller. Probabilities are rounded up to
// multiples of 2^-32 in step().
//
// Source: Gu et al., "Agent Smith", ICML 2024, and the authors' program for albums.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/random_lanes.hpp"
#include "ashlar/dynamics/contagion.hpp"
#include "ashlar/numerics/discrete_samplers.hpp"

namespace ashlar::dynamics {

struct ContagionOptions {
  ContagionRates rates = {};
  int slots = 0;            ///< items in an album, at most 255; 0: one bit an agent
  std::int64_t immune = 0;  ///< agents that never carry
  double imports = 0;       ///< mean number of clean agents that become carriers at the end of a round (Poisson)
};

/// What happened in one round. Carriers are those at its start.
struct RoundStats {
  std::int64_t carriers = 0;
  std::int64_t carrying_questioners = 0, carrying_answerers = 0;
  std::int64_t hits = 0;       ///< carrying questioners whose item went out, whoever the answerer was
  std::int64_t infected = 0;   ///< clean at the start, carriers now; without imports
  std::int64_t recovered = 0;  ///< carriers at the start, clean now
  std::int64_t imported = 0;
  std::int64_t symptomatic_questioners = 0, symptomatic_answerers = 0;

  std::int64_t symptomatic() const { return symptomatic_questioners + symptomatic_answerers; }
  bool operator==(const RoundStats&) const = default;
};

/// Uniform numbers on [0, 1) that decide one round; something with probability p happens where its number is below p.
struct RoundDraws {
  std::span<const double> transmission;        ///< [pairs]
  std::span<const double> recovery;            ///< [agents]
  std::span<const double> symptom_questioner;  ///< [pairs], or empty: nobody shows symptoms
  std::span<const double> symptom_answerer;    ///< likewise
};

namespace detail {

// An agent is 16 bits: k, 0 where clean, and what it went through.
inline constexpr std::uint32_t album_mask = 0xFF, immune_bit = 1 << 8, carried_bit = 1 << 9, symptomatic_bit = 1 << 10,
                               was_symptomatic_bit = 1 << 11;
using AgentState = std::uint16_t;

/// A coin for random words.
struct Coin {
  std::uint32_t below, always;

  explicit Coin(double probability)
      : below(static_cast<std::uint32_t>(std::min(std::ceil(probability * 0x1p32), 0x1p32 - 1))),
        always(probability == 1) {}
  std::uint32_t operator()(std::uint32_t word) const { return static_cast<std::uint32_t>(word < below) | always; }
  bool needs_words() const { return below != 0 && always == 0; }
};

/// What the two kinds of agents differ in: the value on receipt of the item, whether a clean item counts down, and
/// whether symptoms need the item in this round.
struct Memory {
  std::uint32_t top, album;

  explicit Memory(int slots) : top(static_cast<std::uint32_t>(std::max(slots, 1))), album(slots > 0) {}
};

/// Outcomes of the coins of one pair, 0 or 1 each.
struct PairCoins {
  std::uint32_t transmission, recovery_questioner, recovery_answerer, symptom_questioner, symptom_answerer;
};

struct PairTally {
  std::uint32_t carrying_questioners = 0, carrying_answerers = 0, hits = 0, infected = 0, recovered = 0,
                symptomatic_questioners = 0, symptomatic_answerers = 0, first_carried = 0, first_symptomatic = 0;
};

/// One pair's round, without branches: it runs in the lanes of vectors.
inline void exchange(std::uint32_t& questioner, std::uint32_t& answerer, const PairCoins& coins, const Memory& memory,
                     PairTally& tally) {
  const std::uint32_t q = questioner, a = answerer, kq = q & album_mask, ka = a & album_mask;
  const std::uint32_t carries_q = kq != 0, carries_a = ka != 0;
  const std::uint32_t hit = carries_q & coins.transmission, received = hit & ~(a / immune_bit) & 1;
  // 0 - x is a mask of all bits where x is 1; x - 1 where x is 0.
  const std::uint32_t countdown = ka - (carries_a & memory.album);
  const std::uint32_t new_q = kq & (coins.recovery_questioner - 1);
  const std::uint32_t new_a =
      ((memory.top & (0 - received)) | (countdown & (received - 1))) & ((carries_a & coins.recovery_answerer) - 1);
  const std::uint32_t shows_q = (memory.album ? hit : carries_q) & coins.symptom_questioner;
  const std::uint32_t shows_a = (memory.album ? received : carries_a) & coins.symptom_answerer;
  const std::uint32_t now_carries_q = new_q != 0, now_carries_a = new_a != 0;
  constexpr std::uint32_t kept = ~(album_mask | symptomatic_bit);
  questioner = (q & kept) | new_q | shows_q * (symptomatic_bit | was_symptomatic_bit);
  answerer = (a & kept) | new_a | now_carries_a * carried_bit | shows_a * (symptomatic_bit | was_symptomatic_bit);
  tally.carrying_questioners += carries_q;
  tally.carrying_answerers += carries_a;
  tally.hits += hit;
  tally.infected += now_carries_a & ~carries_a;
  tally.recovered += (carries_q & ~now_carries_q) + (carries_a & ~now_carries_a);
  tally.symptomatic_questioners += shows_q;
  tally.symptomatic_answerers += shows_a;
  tally.first_carried += (answerer & ~a) / carried_bit & 1;
  tally.first_symptomatic +=
      ((questioner & ~q) / was_symptomatic_bit & 1) + ((answerer & ~a) / was_symptomatic_bit & 1);
}

/// Uniform on 0 .. count-1 from the upper 31 bits of a word, drawing further words where that would be biased; count is
/// between 1 and 2^31. Afterwards the lowest bit of `word` is an independent coin.
/// Source: Lemire, "Fast random integer generation in an interval", ACM TOMACS 29 (2019).
inline std::uint32_t bounded(Rng& rng, std::uint32_t& word, std::uint32_t count) {
  constexpr std::uint64_t range = std::uint64_t{1} << 31;
  std::uint64_t product = std::uint64_t{word >> 1} * count;
  if ((product & (range - 1)) < count) [[unlikely]]
    while ((product & (range - 1)) < range % count) {
      word = rng();
      product = std::uint64_t{word >> 1} * count;
    }
  return static_cast<std::uint32_t>(product >> 31);
}

/// What count chains check too.
inline void check_group(std::string_view function, std::int64_t population, std::int64_t initial,
                        const ContagionOptions& options) {
  require(options.immune >= 0 && options.immune <= population, function,
          "immune must be between 0 and the population of ", population, ", got ", options.immune);
  require(initial >= 0 && initial <= population - options.immune, function, "initial must be between 0 and the ",
          population - options.immune, " agents that are not immune, got ", initial);
  check_argument(options.imports >= 0 && options.imports <= 0x1p52, function, "imports", "between 0 and 2^52",
                 options.imports);
}

/// The states of a population and the counts that follow them.
struct Agents {
  Agents(std::string_view function, std::int64_t population, std::int64_t initial, const ContagionOptions& options)
      : options_(options), memory_(options.slots) {
    check_argument(population >= 0 && population <= std::int64_t{1} << 31, function, "population", "between 0 and 2^31",
                   population);
    check_rates(function, options.rates);
    check_argument(options.slots >= 0 && options.slots <= 255, function, "slots", "between 0 and 255", options.slots);
    check_group(function, population, initial, options);
    states_.assign(static_cast<std::size_t>(population), 0);
    std::fill_n(states_.begin(), initial, static_cast<AgentState>(memory_.top | carried_bit));
    std::fill_n(states_.rbegin(), options.immune, static_cast<AgentState>(immune_bit));
    carriers_ = ever_carrying_ = initial;
  }

  std::int64_t size() const { return static_cast<std::int64_t>(states_.size()); }
  std::int64_t clean() const { return size() - options_.immune - carriers_; }

  /// A round of an agent without a partner.
  void stay_idle(AgentState& state, bool recovers, RoundStats& round) {
    std::uint32_t s = state & ~symptomatic_bit;
    if ((s & album_mask) != 0 && recovers) {
      s &= ~album_mask;
      ++round.recovered;
    }
    state = static_cast<AgentState>(s);
  }

  void add(const PairTally& tally, RoundStats& round) {
    round.carrying_questioners += tally.carrying_questioners;
    round.carrying_answerers += tally.carrying_answerers;
    round.hits += tally.hits;
    round.infected += tally.infected;
    round.recovered += tally.recovered;
    round.symptomatic_questioners += tally.symptomatic_questioners;
    round.symptomatic_answerers += tally.symptomatic_answerers;
    ever_carrying_ += tally.first_carried;
    ever_symptomatic_ += tally.first_symptomatic;
  }

  /// Imports (where there is an rng), and the number of carriers after the round.
  void finish(Rng* rng, RoundStats& round) {
    carriers_ += round.infected - round.recovered;
    if (rng == nullptr || options_.imports == 0) return;
    round.imported = std::min(numerics::draw_poisson(*rng, options_.imports), clean());
    for (std::int64_t i = 0; i < round.imported;) {
      std::uint32_t word = (*rng)();
      AgentState& state = states_[bounded(*rng, word, static_cast<std::uint32_t>(states_.size()))];
      if ((state & (album_mask | immune_bit)) != 0) continue;
      ever_carrying_ += (state & carried_bit) == 0;
      state = static_cast<AgentState>(state | memory_.top | carried_bit);
      ++i;
    }
    carriers_ += round.imported;
  }

  ContagionOptions options_;
  Memory memory_;
  std::vector<AgentState> states_;
  std::int64_t carriers_ = 0, ever_carrying_ = 0, ever_symptomatic_ = 0;
};

/// What every simulation of agents tells about them.
class Population {
 public:
  std::int64_t population() const { return agents_.size(); }
  std::int64_t carriers() const { return agents_.carriers_; }
  std::int64_t ever_carrying() const { return agents_.ever_carrying_; }
  std::int64_t ever_symptomatic() const { return agents_.ever_symptomatic_; }
  const ContagionOptions& options() const { return agents_.options_; }

  /// For the rounds to come.
  void set_rates(const ContagionRates& rates) {
    check_rates(std::string(name_) + "::set_rates", rates);
    agents_.options_.rates = rates;
  }

  bool carries(Index i) const { return (state(i) & album_mask) != 0; }
  /// In the last round.
  bool symptomatic(Index i) const { return (state(i) & symptomatic_bit) != 0; }

 protected:
  Population(std::string_view name, std::int64_t population, std::int64_t initial, const ContagionOptions& options)
      : name_(name), agents_(name, population, initial, options) {}

  std::uint32_t state(Index i) const {
    check_argument(i >= 0 && i < population(), name_, "agent", "one of the population", i);
    return agents_.states_[static_cast<std::size_t>(i)];
  }

 private:
  std::string_view name_;

 protected:
  Agents agents_;
};

}  // namespace detail

/// Rearranges the agents so that pair k is (agents[2k], agents[2k+1]), questioner first: every pairing with every
/// choice of roles equally likely. If their number is odd, the last one is idle. At most 2^31 agents; one random word a
/// pair.
template <class T>
void random_pairing(std::span<T> agents, Rng& rng) {
  require(agents.size() <= std::size_t{1} << 31, "random_pairing", "at most 2^31 agents can be paired, got ",
          agents.size());
  std::size_t left = agents.size();
  if (left % 2 == 1) {
    std::uint32_t word = rng();
    std::swap(agents[detail::bounded(rng, word, static_cast<std::uint32_t>(left))], agents[left - 1]);
    --left;
  }
  for (; left > 0; left -= 2) {
    std::uint32_t word = rng();
    std::swap(agents[detail::bounded(rng, word, static_cast<std::uint32_t>(left - 1))], agents[left - 2]);
    if (word & 1) std::swap(agents[left - 2], agents[left - 1]);
  }
}

// ---- As written -------------------------------------------------------------------------------------------------

namespace reference {

/// One round on albums as they are: bit j of masks[i] says that slot j of agent i, 0 the newest, holds the item. 64
/// slots at most; slots = 0: one bit an agent. Pair k is (pairing[2k], pairing[2k+1]). symptomatic[i] is set to 0 or 1.
inline RoundStats contagion_round(std::span<std::uint64_t> masks, const ContagionRates& rates, int slots,
                                  std::span<const std::uint32_t> pairing, const RoundDraws& draws,
                                  std::span<std::uint8_t> symptomatic) {
  check_argument(slots >= 0 && slots <= 64, "contagion_round", "slots", "between 0 and 64", slots);
  const std::uint64_t full = slots == 0 ? 1 : ~std::uint64_t{0} >> (64 - slots);
  const std::vector<std::uint64_t> before(masks.begin(), masks.end());
  RoundStats round;
  std::fill(symptomatic.begin(), symptomatic.end(), std::uint8_t{0});
  for (std::size_t k = 0; k < pairing.size() / 2; ++k) {
    const std::size_t q = pairing[2 * k], a = pairing[2 * k + 1];
    const bool hit = before[q] != 0 && draws.transmission[k] < rates.beta;
    round.carrying_questioners += before[q] != 0;
    round.carrying_answerers += before[a] != 0;
    round.hits += hit;
    if (slots > 0)
      masks[a] = (before[a] << 1 | std::uint64_t{hit}) & full;
    else if (hit)
      masks[a] = 1;
    if (draws.symptom_questioner.empty()) continue;
    symptomatic[q] = (slots > 0 ? hit : before[q] != 0) && draws.symptom_questioner[k] < rates.alpha_q;
    symptomatic[a] = (slots > 0 ? hit : before[a] != 0) && draws.symptom_answerer[k] < rates.alpha_a;
    round.symptomatic_questioners += symptomatic[q];
    round.symptomatic_answerers += symptomatic[a];
  }
  for (std::size_t i = 0; i < masks.size(); ++i) {
    if (before[i] != 0 && draws.recovery[i] < rates.gamma) masks[i] = 0;
    round.carriers += before[i] != 0;
    round.infected += before[i] == 0 && masks[i] != 0;
    round.recovered += before[i] != 0 && masks[i] == 0;
  }
  return round;
}

}  // namespace reference

// ---- Fast -------------------------------------------------------------------------------------------------------

class PairwiseContagion : public detail::Population {
 public:
  /// The first `initial` agents carry, with their newest item; the last options.immune ones never will.
  PairwiseContagion(std::int64_t population, std::int64_t initial, const ContagionOptions& options)
      : Population("PairwiseContagion", population, initial, options) {}

  /// One round. Agents are in no particular order afterwards.
  RoundStats step(Rng& rng) {
    const ContagionRates& rates = agents_.options_.rates;
    const Coins coins{detail::Coin(rates.beta), detail::Coin(rates.gamma), detail::Coin(rates.alpha_q),
                      detail::Coin(rates.alpha_a)};
    const bool recovery = coins.recovery.needs_words();
    const bool symptoms = coins.symptom_questioner.needs_words() || coins.symptom_answerer.needs_words();
    RoundStats round;
    round.carriers = carriers();
    auto left = static_cast<std::uint32_t>(population());
    if (left % 2 == 1) {
      std::uint32_t word = rng();
      std::swap(agents_.states_[detail::bounded(rng, word, left)], agents_.states_[left - 1]);
      --left;
      agents_.stay_idle(agents_.states_[left], coins.recovery(rng()), round);
    }
    while (left > 0) {
      const std::uint32_t pairs = std::min(block_pairs, left / 2);
      agents_.add(
          recovery ? symptoms ? block<true, true>(rng, left, pairs, coins) : block<true, false>(rng, left, pairs, coins)
          : symptoms ? block<false, true>(rng, left, pairs, coins)
                     : block<false, false>(rng, left, pairs, coins),
          round);
      left -= 2 * pairs;
    }
    agents_.finish(&rng, round);
    return round;
  }

  /// One round with everything random given. pairing: every agent once, pair k is (pairing[2k], pairing[2k+1]), the
  /// last of an odd number idle. Agents keep their places. No imports.
  RoundStats step_with(std::span<const std::uint32_t> pairing, const RoundDraws& draws) {
    check(pairing, draws);
    const ContagionRates& rates = agents_.options_.rates;
    RoundStats round;
    round.carriers = carriers();
    const std::size_t pairs = pairing.size() / 2;
    const bool symptoms = !draws.symptom_questioner.empty();
    for (std::size_t k = 0; k < pairs; ++k) {
      const std::size_t q = pairing[2 * k], a = pairing[2 * k + 1];
      std::uint32_t questioner = agents_.states_[q], answerer = agents_.states_[a];
      detail::PairTally tally;
      detail::exchange(questioner, answerer,
                       {draws.transmission[k] < rates.beta, draws.recovery[q] < rates.gamma,
                        draws.recovery[a] < rates.gamma, symptoms && draws.symptom_questioner[k] < rates.alpha_q,
                        symptoms && draws.symptom_answerer[k] < rates.alpha_a},
                       agents_.memory_, tally);
      agents_.states_[q] = static_cast<detail::AgentState>(questioner);
      agents_.states_[a] = static_cast<detail::AgentState>(answerer);
      agents_.add(tally, round);
    }
    if (pairing.size() % 2 == 1)
      agents_.stay_idle(agents_.states_[pairing.back()], draws.recovery[pairing.back()] < rates.gamma, round);
    agents_.finish(nullptr, round);
    return round;
  }

  /// Clean items that agent `i` may still receive before it is clean, plus one; 0: it is clean. One bit an agent: 0
  /// or 1.
  int remaining(Index i) const { return static_cast<int>(state(i) & detail::album_mask); }

  /// How many agents have remaining() = k, for k = 0 .. max(slots, 1).
  std::vector<std::int64_t> histogram() const {
    std::vector<std::int64_t> counts(agents_.memory_.top + std::size_t{1}, 0);
    for (const detail::AgentState state : agents_.states_) ++counts[state & detail::album_mask];
    return counts;
  }

 private:
  static constexpr std::uint32_t block_pairs = 512;
  struct Coins {
    detail::Coin transmission, recovery, symptom_questioner, symptom_answerer;
  };

  /// Pairs up 2 `pairs` of the first `left` agents, which end in the last places of those, and plays their round.
  template <bool recovery, bool symptoms>
  detail::PairTally block(Rng& rng, std::uint32_t left, std::uint32_t pairs, const Coins& coins) {
    constexpr std::uint32_t words_a_pair = 2 + 2 * recovery + 2 * symptoms;
    std::array<std::uint32_t, words_a_pair * block_pairs> words;
    std::array<std::uint32_t, block_pairs> partners, questioners, answerers;
    fill_words(rng, std::span(words).first(words_a_pair * pairs));
    detail::AgentState* states = agents_.states_.data();
    for (std::uint32_t p = 0; p < pairs; ++p) {
      partners[p] = detail::bounded(rng, words[p], left - 2 * p - 1);
      __builtin_prefetch(states + partners[p], 1);
    }
    for (std::uint32_t p = 0; p < pairs; ++p) {
      const std::uint32_t top = left - 2 * p;
      const std::uint32_t first = states[top - 1], second = states[partners[p]];
      states[partners[p]] = states[top - 2];
      const std::uint32_t change = (first ^ second) & (0 - (words[p] & 1));
      questioners[p] = first ^ change;
      answerers[p] = second ^ change;
    }
    const std::uint32_t *transmission = words.data() + pairs, *more = transmission + pairs;
    detail::PairTally tally;
    for (std::uint32_t p = 0; p < pairs; ++p) {
      std::uint32_t recovery_q = coins.recovery.always, recovery_a = recovery_q;
      std::uint32_t symptom_q = coins.symptom_questioner.always, symptom_a = coins.symptom_answerer.always;
      if constexpr (recovery) recovery_q = coins.recovery(more[p]), recovery_a = coins.recovery(more[pairs + p]);
      if constexpr (symptoms) {
        symptom_q = coins.symptom_questioner(more[2 * recovery * pairs + p]);
        symptom_a = coins.symptom_answerer(more[(2 * recovery + 1) * pairs + p]);
      }
      detail::exchange(questioners[p], answerers[p],
                       {coins.transmission(transmission[p]), recovery_q, recovery_a, symptom_q, symptom_a},
                       agents_.memory_, tally);
    }
    for (std::uint32_t p = 0; p < pairs; ++p) {
      states[left - 2 * pairs + p] = static_cast<detail::AgentState>(questioners[p]);
      states[left - pairs + p] = static_cast<detail::AgentState>(answerers[p]);
    }
    return tally;
  }

  void check(std::span<const std::uint32_t> pairing, const RoundDraws& draws) const {
    constexpr auto function = "PairwiseContagion::step_with";
    const auto agents = agents_.states_.size(), pairs = agents / 2;
    const auto length = [&](std::string_view name, std::size_t actual, std::size_t expected, std::string_view what) {
      require(actual == expected, function, name, " has length ", actual, ", expected ", expected, " (one ", what, ")");
    };
    length("pairing", pairing.size(), agents, "an agent");
    length("transmission", draws.transmission.size(), pairs, "a pair");
    length("recovery", draws.recovery.size(), agents, "an agent");
    if (!draws.symptom_questioner.empty() || !draws.symptom_answerer.empty()) {
      length("symptom_questioner", draws.symptom_questioner.size(), pairs, "a pair");
      length("symptom_answerer", draws.symptom_answerer.size(), pairs, "a pair");
    }
    std::vector<bool> seen(agents, false);
    for (const std::uint32_t agent : pairing) {
      require(agent < agents && !seen[agent], function, "pairing must name every agent once, but ", agent,
              agent < agents ? " is there twice" : " is not an agent");
      seen[agent] = true;
    }
  }
};

}  // namespace ashlar::dynamics
