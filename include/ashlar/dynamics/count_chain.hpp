// The contagion of contagion_simulation.hpp without its agents: they are exchangeable, so the number of carriers (with
// albums: the number of agents for each k) is a Markov chain of its own, and is drawn exactly. A round costs the same
// for a thousand agents and for 2^53.
//
//   CountChain chain(1'000'000'000, 1, {.rates = {.beta = 0.9, .gamma = 0.2}});
//   AlbumCountChain albums(1'000'000'000, 1, {.rates = {.beta = 0.9, .gamma = 0.2}, .slots = 10});
//   RoundStats round = albums.step(rng);                  // the law of PairwiseContagion::step
//
// With C carriers among N agents in h = floor(N / 2) pairs:
//   kq ~ Hypergeometric(N, C, h)             carrying questioners
//   ka ~ Hypergeometric(N - h, C - kq, h)    carrying answerers
//   x  ~ Hypergeometric(h, h - ka, kq)       carrying questioners that face a clean answerer
//   C' = C + Binomial(x, beta) - Binomial(C, gamma)
// and with albums the multivariate form of the same, O(slots) a round. What is not drawn is who: no share of agents
// that ever carried.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/dynamics/contagion.hpp"
#include "ashlar/dynamics/contagion_simulation.hpp"
#include "ashlar/numerics/discrete_samplers.hpp"

namespace ashlar::dynamics {

namespace detail {

inline void check_chain(std::string_view function, std::int64_t population, std::int64_t initial,
                        const ContagionOptions& options) {
  numerics::detail::check_count(function, "population", population);
  check_rates(function, options.rates);
  check_group(function, population, initial, options);
}

inline std::int64_t draw_imports(Rng& rng, double mean, std::int64_t clean) {
  return mean == 0 ? 0 : std::min(numerics::draw_poisson(rng, mean), clean);
}

}  // namespace detail

/// One bit an agent.
class CountChain {
 public:
  CountChain(std::int64_t population, std::int64_t initial, const ContagionOptions& options)
      : population_(population), carriers_(initial), options_(options) {
    detail::check_chain("CountChain", population, initial, options);
    check_argument(options.slots == 0, "CountChain", "slots", "0 (albums: AlbumCountChain)", options.slots);
  }

  std::int64_t population() const { return population_; }
  std::int64_t carriers() const { return carriers_; }
  const ContagionOptions& options() const { return options_; }

  void set_rates(const ContagionRates& rates) {
    detail::check_rates("CountChain::set_rates", rates);
    options_.rates = rates;
  }

  RoundStats step(Rng& rng) {
    using namespace numerics;
    const auto& [rates, slots, immune, imports] = options_;
    const std::int64_t pairs = population_ / 2, others = population_ - carriers_;
    RoundStats round;
    round.carriers = carriers_;
    const std::int64_t kq = draw_hypergeometric(rng, population_, carriers_, pairs);
    const std::int64_t ka = draw_hypergeometric(rng, population_ - pairs, carriers_ - kq, pairs);
    // Immune agents among those who do not carry: first of the questioners, then of the answerers.
    const std::int64_t immune_q = draw_hypergeometric(rng, others, immune, pairs - kq);
    const std::int64_t immune_a = draw_hypergeometric(rng, others - (pairs - kq), immune - immune_q, pairs - ka);
    const std::int64_t exposed = draw_hypergeometric(rng, pairs, pairs - ka - immune_a, kq);
    round.carrying_questioners = kq;
    round.carrying_answerers = ka;
    round.infected = draw_binomial(rng, exposed, rates.beta);
    round.hits = round.infected + draw_binomial(rng, kq - exposed, rates.beta);
    round.recovered = draw_binomial(rng, carriers_, rates.gamma);
    round.symptomatic_questioners = draw_binomial(rng, kq, rates.alpha_q);
    round.symptomatic_answerers = draw_binomial(rng, ka, rates.alpha_a);
    carriers_ += round.infected - round.recovered;
    round.imported = detail::draw_imports(rng, imports, population_ - immune - carriers_);
    carriers_ += round.imported;
    return round;
  }

 private:
  std::int64_t population_, carriers_;
  ContagionOptions options_;
};

/// Albums of options.slots items, any number from 1 on.
class AlbumCountChain {
 public:
  /// The initial carriers hold the item in their newest slot.
  AlbumCountChain(std::int64_t population, std::int64_t initial, const ContagionOptions& options)
      : population_(population), options_(options) {
    detail::check_chain("AlbumCountChain", population, initial, options);
    detail::check_slots("AlbumCountChain", options.slots);
    const auto groups = static_cast<std::size_t>(options.slots) + 2;
    for (auto* counts : {&counts_, &questioners_, &answerers_, &facing_, &scratch_}) counts->assign(groups, 0);
    counts_.front() = population - initial - options.immune;
    counts_[groups - 2] = initial;
    counts_.back() = options.immune;
  }

  std::int64_t population() const { return population_; }
  std::int64_t carriers() const { return population_ - counts_.front() - counts_.back(); }
  const ContagionOptions& options() const { return options_; }
  /// Agents whose newest item outlasts k more clean ones, k = 0 (clean) .. slots; immune agents count as clean.
  std::vector<std::int64_t> histogram() const {
    std::vector<std::int64_t> counts(counts_.begin(), counts_.end() - 1);
    counts.front() += counts_.back();
    return counts;
  }

  void set_rates(const ContagionRates& rates) {
    detail::check_rates("AlbumCountChain::set_rates", rates);
    options_.rates = rates;
  }

  RoundStats step(Rng& rng) {
    using namespace numerics;
    const ContagionRates& rates = options_.rates;
    const std::int64_t pairs = population_ / 2;
    const std::size_t top = counts_.size() - 2, immune = top + 1;
    RoundStats round;
    round.carriers = carriers();

    draw_multivariate_hypergeometric(rng, counts_, pairs, questioners_);
    for (std::size_t k = 0; k <= immune; ++k) scratch_[k] = counts_[k] - questioners_[k];
    draw_multivariate_hypergeometric(rng, scratch_, pairs, answerers_);
    round.carrying_questioners = pairs - questioners_.front() - questioners_.back();
    round.carrying_answerers = pairs - answerers_.front() - answerers_.back();
    // Answerers that face a carrier, and those of them that receive the item.
    draw_multivariate_hypergeometric(rng, answerers_, round.carrying_questioners, facing_);
    for (std::int64_t& count : facing_) {
      count = draw_binomial(rng, count, rates.beta);
      round.hits += count;
    }
    const std::int64_t received = round.hits - facing_.back();

    // Who was clean is so still or has just been infected; who carried moves down, up to the top, or is purged.
    round.infected = facing_.front();
    std::int64_t renewed = received - round.infected, moved_down = 0, carriers_left = 0;
    for (std::size_t k = top; k > 0; --k) {
      const std::int64_t missed = answerers_[k] - facing_[k];
      const std::int64_t here = counts_[k] - answerers_[k] + moved_down + renewed;
      renewed = 0;  // they are all at the top
      moved_down = missed;
      counts_[k] = here - draw_binomial(rng, here, rates.gamma);
      carriers_left += counts_[k];
    }
    counts_.front() = population_ - counts_.back() - round.infected - carriers_left;
    counts_[top] += round.infected;
    round.recovered = round.carriers - carriers_left;

    round.symptomatic_questioners = draw_binomial(rng, round.hits, rates.alpha_q);
    round.symptomatic_answerers = draw_binomial(rng, received, rates.alpha_a);
    round.imported = detail::draw_imports(rng, options_.imports, counts_.front());
    counts_.front() -= round.imported;
    counts_[top] += round.imported;
    return round;
  }

 private:
  std::int64_t population_;
  ContagionOptions options_;
  // One entry for each k = 0 .. slots, the last for immune agents.
  std::vector<std::int64_t> counts_, questioners_, answerers_, facing_, scratch_;
};

}  // namespace ashlar::dynamics
