// The contagion of contagion_simulation.hpp among agents that keep their identity: pairs only along the edges of a
// contact graph, and quarantine of agents that show symptoms.
//
//   ContactContagion agents(1000, 5, {.rates = {.beta = 0.5, .gamma = 0.1}}, {.edges = edges, .quarantine = 0.8});
//   RoundStats round = agents.step(rng);
//   agents.carries(7), agents.quarantined(7);
//
// Pairs of a round: the edges in random order, each taken if both ends are still free; a coin gives the roles. Who is
// left over is idle. Without edges all agents are paired as in PairwiseContagion. O(agents + edges) a round, six bytes
// an agent without edges; PairwiseContagion is several times faster where nobody asks who is who.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/random_lanes.hpp"
#include "ashlar/dynamics/contagion.hpp"
#include "ashlar/dynamics/contagion_simulation.hpp"

namespace ashlar::dynamics {

using ContactEdge = std::pair<std::uint32_t, std::uint32_t>;

struct ContactOptions {
  std::vector<ContactEdge> edges = {};  ///< who may talk to whom; empty: everybody to everybody
  double quarantine = 0;                ///< probability that an agent leaves the pairing after a round with symptoms
  /// Rounds until it comes back, with the state it then has: in quarantine it meets nobody, but may recover.
  std::int64_t quarantine_rounds = std::numeric_limits<std::int64_t>::max();
};

class ContactContagion : public detail::Population {
 public:
  /// The first `initial` agents carry, with their newest item; the last options.immune ones never will.
  ContactContagion(std::int64_t population, std::int64_t initial, const ContagionOptions& options,
                   const ContactOptions& contacts = {})
      : Population("ContactContagion", population, initial, options), contacts_(contacts) {
    constexpr auto function = "ContactContagion";
    detail::check_probability(function, "quarantine", contacts.quarantine);
    check_argument(contacts.quarantine_rounds >= 1, function, "quarantine_rounds", "at least 1",
                   contacts.quarantine_rounds);
    check_argument(contacts.edges.size() <= std::size_t{1} << 31, function, "the number of edges", "at most 2^31",
                   contacts.edges.size());
    for (std::size_t e = 0; e < contacts.edges.size(); ++e) {
      const auto [one, other] = contacts.edges[e];
      require(one < population && other < population && one != other, function, "edges[", e,
              "] must join two agents of the population of ", population, ", got ", one, " and ", other);
    }
    const auto size = static_cast<std::size_t>(population);
    pairing_.reserve(size);
    released_.assign(contacts.quarantine > 0 ? size : 0, 0);
    free_.assign(size, true);
  }

  /// In the next round.
  bool quarantined(Index i) const { return state(i), away(static_cast<std::size_t>(i)); }
  /// Pairs of the last round, questioner first: (pairs[0], pairs[1]), (pairs[2], pairs[3]), ...
  std::span<const std::uint32_t> pairs() const { return pairing_; }

  RoundStats step(Rng& rng) {
    const ContagionRates& rates = agents_.options_.rates;
    const detail::Coin transmission(rates.beta), recovery(rates.gamma), symptom_q(rates.alpha_q),
        symptom_a(rates.alpha_a), quarantine(contacts_.quarantine);
    RoundStats round;
    round.carriers = carriers();
    for (std::size_t i = 0; i < free_.size(); ++i) free_[i] = !away(i);
    draw_pairing(rng);
    for (std::size_t k = 0; k < pairing_.size(); k += 2) {
      const std::size_t q = pairing_[k], a = pairing_[k + 1];
      std::uint32_t questioner = agents_.states_[q], answerer = agents_.states_[a];
      std::array<std::uint32_t, 5> words;
      fill_words(rng, words);
      detail::PairTally tally;
      detail::exchange(
          questioner, answerer,
          {transmission(words[0]), recovery(words[1]), recovery(words[2]), symptom_q(words[3]), symptom_a(words[4])},
          agents_.memory_, tally);
      agents_.states_[q] = static_cast<detail::AgentState>(questioner);
      agents_.states_[a] = static_cast<detail::AgentState>(answerer);
      agents_.add(tally, round);
      free_[q] = free_[a] = false;
    }
    for (std::size_t i = 0; i < free_.size(); ++i)
      if (free_[i] || away(i)) agents_.stay_idle(agents_.states_[i], recovery(rng()), round);
    ++rounds_;
    if (contacts_.quarantine > 0)
      for (const std::uint32_t i : pairing_)
        if ((agents_.states_[i] & detail::symptomatic_bit) != 0 && quarantine(rng()))
          released_[i] = contacts_.quarantine_rounds > never - rounds_ ? never : rounds_ + contacts_.quarantine_rounds;
    agents_.finish(&rng, round);
    return round;
  }

 private:
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  bool away(std::size_t i) const { return !released_.empty() && released_[i] > rounds_; }

  /// Fills pairing_ from the agents that are free.
  void draw_pairing(Rng& rng) {
    pairing_.clear();
    if (contacts_.edges.empty()) {
      for (std::uint32_t i = 0; i < free_.size(); ++i)
        if (free_[i]) pairing_.push_back(i);
      random_pairing(std::span(pairing_), rng);
      if (pairing_.size() % 2 == 1) pairing_.pop_back();
      return;
    }
    // A shuffle from the front, each edge judged as soon as its place is known.
    std::vector<ContactEdge>& edges = contacts_.edges;
    for (std::size_t e = 0; e < edges.size(); ++e) {
      std::uint32_t word = rng();
      std::swap(edges[e], edges[e + detail::bounded(rng, word, static_cast<std::uint32_t>(edges.size() - e))]);
      auto [questioner, answerer] = edges[e];
      if (!free_[questioner] || !free_[answerer]) continue;
      free_[questioner] = free_[answerer] = false;
      if (word & 1) std::swap(questioner, answerer);
      pairing_.push_back(questioner);
      pairing_.push_back(answerer);
    }
  }

  ContactOptions contacts_;
  std::int64_t rounds_ = 0;
  std::vector<std::uint32_t> pairing_;
  std::vector<std::int64_t> released_;  // the round in which an agent comes back, where there is quarantine
  std::vector<bool> free_;
};

}  // namespace ashlar::dynamics
