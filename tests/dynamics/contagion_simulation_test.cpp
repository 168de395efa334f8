#include "ashlar/dynamics/contagion_simulation.hpp"

#include <algorithm>
#include <bit>
#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::dynamics {
namespace {

using test::fixture;
using test::message_of;
using Masks = std::vector<std::uint64_t>;

std::vector<double> row_of(const Tensor<double>& table, Index row, Index begin, Index count) {
  const double* from = table.data() + row * table.extent(1) + begin;
  return {from, from + count};
}

std::vector<std::uint32_t> pairing_of(const Tensor<std::int64_t>& table, Index row) {
  const std::int64_t* from = table.data() + row * table.extent(1);
  return {from, from + table.extent(1)};
}

/// k of an album kept as a mask.
int remaining(std::uint64_t mask, int slots) { return mask == 0 ? 0 : std::max(slots, 1) - std::countr_zero(mask); }

/// Everything random in one round.
struct Draws {
  std::vector<std::uint32_t> pairing;
  std::vector<double> transmission, recovery, symptom_q, symptom_a;
  RoundDraws view() const { return {transmission, recovery, symptom_q, symptom_a}; }
};

// ---- Replays ----------------------------------------------------------------------------------------------------

TEST_CASE("dynamics.contagion_simulation: one bit an agent replays the states of the oracle") {
  const auto perm = fixture<std::int64_t>("infectious_jailbreak/simple_perm");
  const auto states = fixture<std::int64_t>("infectious_jailbreak/simple_states");
  const auto ub = fixture("infectious_jailbreak/simple_ub"), ug = fixture("infectious_jailbreak/simple_ug");
  const ContagionRates rates{.beta = 0.8, .gamma = 0.1};
  PairwiseContagion agents(65, 5, {.rates = rates});
  Masks masks(65, 0);
  std::fill_n(masks.begin(), 5, 1);
  std::vector<std::uint8_t> symptomatic(65);
  for (Index t = 0; t < perm.extent(0); ++t) {
    const auto transmission = row_of(ub, t, 0, 32), recovery = row_of(ug, t, 0, 65);
    const RoundDraws draws{transmission, recovery, {}, {}};
    const RoundStats fast = agents.step_with(pairing_of(perm, t), draws);
    CHECK(fast == reference::contagion_round(masks, rates, 0, pairing_of(perm, t), draws, symptomatic));
    for (Index i = 0; i < 65; ++i) {
      const std::int64_t expected = states.data()[(t + 1) * 65 + i];
      CHECK(agents.carries(i) == (expected != 0));
      CHECK(static_cast<std::int64_t>(masks[static_cast<std::size_t>(i)]) == expected);
    }
  }
}

TEST_CASE("dynamics.contagion_simulation: albums replay the masks and symptoms of the oracle") {
  const auto perm = fixture<std::int64_t>("infectious_jailbreak/album_perm");
  const auto expected = fixture<std::int64_t>("infectious_jailbreak/album_masks");
  const auto shown = fixture<std::int64_t>("infectious_jailbreak/album_symptomatic");
  const auto u = fixture("infectious_jailbreak/album_u");
  const ContagionRates rates{.beta = 0.85, .gamma = 0.08, .alpha_q = 0.9, .alpha_a = 0.7};
  PairwiseContagion agents(65, 5, {.rates = rates, .slots = 4});
  Masks masks(65, 0);
  std::fill_n(masks.begin(), 5, 1);
  std::vector<std::uint8_t> symptomatic(65);
  for (Index t = 0; t < perm.extent(0); ++t) {
    const Draws draws{pairing_of(perm, t), row_of(u, t, 0, 32), row_of(u, t, 96, 65), row_of(u, t, 32, 32),
                      row_of(u, t, 64, 32)};
    const RoundStats fast = agents.step_with(draws.pairing, draws.view());
    CHECK(fast == reference::contagion_round(masks, rates, 4, draws.pairing, draws.view(), symptomatic));
    for (Index i = 0; i < 65; ++i) {
      const auto mask = static_cast<std::int64_t>(masks[static_cast<std::size_t>(i)]);
      CHECK(mask == expected.data()[(t + 1) * 65 + i]);
      CHECK(agents.remaining(i) == remaining(masks[static_cast<std::size_t>(i)], 4));
      CHECK(agents.symptomatic(i) == (shown.data()[t * 65 + i] != 0));
      CHECK(symptomatic[static_cast<std::size_t>(i)] == shown.data()[t * 65 + i]);
    }
  }
}

/// The words that PairwiseContagion::step takes, as draws with a pairing of agents that keep their identity. `order` is
/// where they stand.
Draws draws_of_step(Rng& rng, std::vector<std::uint32_t>& order, const ContagionRates& rates) {
  const auto random = [](double p) { return p > 0 && p < 1; };
  const auto unit = [](std::uint32_t word) { return word * 0x1p-32; };
  const bool recovery = random(rates.gamma), symptoms = random(rates.alpha_q) || random(rates.alpha_a);
  auto left = static_cast<std::uint32_t>(order.size());
  Draws draws;
  draws.recovery.assign(order.size(), 0);
  std::vector<std::uint32_t> idle;
  if (left % 2 == 1) {
    std::uint32_t word = rng();
    std::swap(order[detail::bounded(rng, word, left)], order[left - 1]);
    idle.push_back(order[--left]);
    draws.recovery[order[left]] = unit(rng());
  }
  while (left > 0) {
    const std::uint32_t pairs = std::min(512u, left / 2);
    std::vector<std::uint32_t> words(pairs * (2u + (recovery ? 2 : 0) + (symptoms ? 2 : 0)));
    for (std::uint32_t& word : words) word = rng();
    std::vector<std::uint32_t> questioners, answerers, partners;
    for (std::uint32_t p = 0; p < pairs; ++p) partners.push_back(detail::bounded(rng, words[p], left - 2 * p - 1));
    for (std::uint32_t p = 0; p < pairs; ++p) {
      const std::uint32_t top = left - 2 * p, j = partners[p];
      std::uint32_t q = order[top - 1], a = order[j];
      order[j] = order[top - 2];
      if (words[p] & 1) std::swap(q, a);
      questioners.push_back(q);
      answerers.push_back(a);
      draws.pairing.insert(draws.pairing.end(), {q, a});
      draws.transmission.push_back(unit(words[pairs + p]));
      if (recovery) {
        draws.recovery[q] = unit(words[2 * pairs + p]);
        draws.recovery[a] = unit(words[3 * pairs + p]);
      }
      const std::size_t shift = recovery ? 4 : 2;
      draws.symptom_q.push_back(symptoms ? unit(words[shift * pairs + p]) : 0);
      draws.symptom_a.push_back(symptoms ? unit(words[(shift + 1) * pairs + p]) : 0);
    }
    std::copy(questioners.begin(), questioners.end(), order.begin() + (left - 2 * pairs));
    std::copy(answerers.begin(), answerers.end(), order.begin() + (left - pairs));
    left -= 2 * pairs;
  }
  draws.pairing.insert(draws.pairing.end(), idle.begin(), idle.end());
  return draws;
}

TEST_CASE("dynamics.contagion_simulation: a step is a round of the reference on the same random words") {
  const ContagionRates all_rates[] = {{.beta = 0.9, .gamma = 0},
                                      {.beta = 0.8, .gamma = 0.2},
                                      {.beta = 0.9, .gamma = 0.1, .alpha_q = 0.7, .alpha_a = 0.4},
                                      {.beta = 1, .gamma = 0, .alpha_q = 0.3, .alpha_a = 0},
                                      {.beta = 0.7, .gamma = 1, .alpha_q = 0, .alpha_a = 0}};
  for (const int slots : {0, 1, 4, 10, 64})
    for (const ContagionRates& rates : all_rates)
      for (const std::size_t n : {0u, 1u, 2u, 3u, 65u, 1024u, 2500u, 2501u}) {
        INFO("slots " << slots << " beta " << rates.beta << " gamma " << rates.gamma << " agents " << n);
        const std::size_t initial = n / 3;
        PairwiseContagion agents(static_cast<std::int64_t>(n), static_cast<std::int64_t>(initial),
                                 {.rates = rates, .slots = slots});
        Masks masks(n, 0);
        std::fill_n(masks.begin(), initial, 1);
        std::vector<std::uint8_t> symptomatic(n), ever_carried(n, 0), ever_shown(n, 0);
        std::fill_n(ever_carried.begin(), initial, std::uint8_t{1});
        std::vector<std::uint32_t> order(n);
        std::iota(order.begin(), order.end(), 0u);
        Rng rng(n + 1), replayed = rng;
        for (int t = 0; t < 6; ++t) {
          const Draws draws = draws_of_step(replayed, order, rates);
          const RoundStats expected =
              reference::contagion_round(masks, rates, slots, draws.pairing, draws.view(), symptomatic);
          REQUIRE(agents.step(rng) == expected);
          REQUIRE(rng.position() == replayed.position());
          std::int64_t carriers = 0, ever = 0, shown = 0;
          for (std::size_t i = 0; i < n; ++i) {
            REQUIRE(agents.remaining(static_cast<Index>(i)) == remaining(masks[order[i]], slots));
            REQUIRE(agents.symptomatic(static_cast<Index>(i)) == (symptomatic[order[i]] != 0));
            carriers += masks[i] != 0;
            ever += ever_carried[i] |= masks[i] != 0;
            shown += ever_shown[i] |= symptomatic[i];
          }
          CHECK(agents.carriers() == carriers);
          CHECK(agents.ever_carrying() == ever);
          CHECK(agents.ever_symptomatic() == shown);
        }
      }
}

// ---- Pairing ----------------------------------------------------------------------------------------------------

double uniform_tail(const std::vector<int>& observed) {
  const double expected = std::accumulate(observed.begin(), observed.end(), 0.0) / static_cast<double>(observed.size());
  double statistic = 0;
  for (const int o : observed) statistic += (o - expected) * (o - expected) / expected;
  return cdf(complement(boost::math::chi_squared(static_cast<double>(observed.size()) - 1), statistic));
}

TEST_CASE("dynamics.contagion_simulation: a pairing is a permutation and every one is equally likely") {
  Rng rng(1);
  for (const std::size_t n : {0u, 1u, 2u, 3u, 10u, 1001u}) {
    std::vector<std::uint32_t> agents(n);
    std::iota(agents.begin(), agents.end(), 0u);
    random_pairing(std::span(agents), rng);
    std::sort(agents.begin(), agents.end());
    for (std::size_t i = 0; i < n; ++i) REQUIRE(agents[i] == i);
  }
  // Five agents: the idle one, the answerer of agent 0 (or of nobody), roles.
  std::vector<int> idle(5, 0), partner(4, 0), role(2, 0), whole(60, 0);
  std::vector<std::uint32_t> agents{0, 1, 2, 3, 4};
  for (int trial = 0; trial < 60000; ++trial) {
    random_pairing(std::span(agents), rng);
    ++idle[agents[4]];
    const auto at = static_cast<std::size_t>(std::find(agents.begin(), agents.end(), 0u) - agents.begin());
    if (at < 4) {
      ++partner[agents[at ^ 1] - 1];
      ++role[at % 2];
    }
    // 5 idle ones, 3 pairings of the rest, 4 choices of roles: 60 outcomes.
    std::vector<std::uint32_t> rest;
    for (std::uint32_t i = 0; i < 5; ++i)
      if (i != agents[4]) rest.push_back(i);
    const auto place = [&](std::uint32_t agent) {
      return static_cast<std::size_t>(std::find(agents.begin(), agents.end(), agent) - agents.begin());
    };
    const std::uint32_t mate = agents[place(rest[0]) ^ 1];
    const auto mate_rank = static_cast<std::size_t>(std::find(rest.begin(), rest.end(), mate) - rest.begin()) - 1;
    std::uint32_t other = 0;
    for (const std::uint32_t i : rest)
      if (i != rest[0] && i != mate) {
        other = i;
        break;
      }
    ++whole[agents[4] * 12 + mate_rank * 4 + place(rest[0]) % 2 * 2 + place(other) % 2];
  }
  CHECK(uniform_tail(idle) > 1e-3);
  CHECK(uniform_tail(partner) > 1e-3);
  CHECK(uniform_tail(role) > 1e-3);
  CHECK(uniform_tail(whole) > 1e-3);
}

TEST_CASE("dynamics.contagion_simulation: bounded integers are uniform where rejection matters and leave a fair coin") {
  Rng rng(2);
  std::vector<int> thirds(3, 0), coin(2, 0), six(6, 0);
  const std::uint32_t count = 3u << 29;  // 3/4 of 2^31: a third of the words must be drawn again
  for (int i = 0; i < 30000; ++i) {
    std::uint32_t word = rng();
    const std::uint32_t x = detail::bounded(rng, word, count);
    REQUIRE(x < count);
    ++thirds[x >> 29], ++coin[word & 1], ++six[2 * (x % 3) + (word & 1)];
  }
  CHECK(uniform_tail(thirds) > 1e-3);
  CHECK(uniform_tail(coin) > 1e-3);
  CHECK(uniform_tail(six) > 1e-3);
  std::uint32_t word = 0xFFFFFFFF;
  CHECK(detail::bounded(rng, word, 1) == 0);
  CHECK(detail::bounded(rng, word, 1u << 31) == 0x7FFFFFFF);
}

// ---- The paper's claims -----------------------------------------------------------------------------------------

double share(const PairwiseContagion& agents) {
  return static_cast<double>(agents.carriers()) / static_cast<double>(agents.population());
}

TEST_CASE("dynamics.contagion_simulation: the recurrence describes many agents") {
  PairwiseContagion agents(200000, 10000, {.rates = {.beta = 0.5, .gamma = 0.2}});
  const std::vector<double> expected = mean_field(0.05, agents.options().rates, 50);
  Rng rng(3);
  double worst = 0;
  for (std::size_t t = 1; t <= 50; ++t) {
    agents.step(rng);
    worst = std::max(worst, std::abs(share(agents) - expected[t]));
  }
  CHECK(worst < 0.012);
}

TEST_CASE("dynamics.contagion_simulation: beta <= 2 gamma decides between 0 and an endemic share") {
  const auto after = [](double gamma) {
    PairwiseContagion agents(200000, 2000, {.rates = {.beta = 0.5, .gamma = gamma}});
    Rng rng(4);
    for (int t = 0; t < 200; ++t) agents.step(rng);
    return share(agents);
  };
  const double above = after(0.2), at = after(0.25), below = after(0.3);
  CHECK((above >= 0.195 && above <= 0.206));
  CHECK((at >= 0.004 && at <= 0.009));
  CHECK(below < 5e-4);
}

TEST_CASE("dynamics.contagion_simulation: a million agents carry within 39 to 44 rounds of the first one") {
  const auto rounds_to_most = [](std::int64_t initial, std::uint64_t seed) {
    PairwiseContagion agents(1 << 20, initial, {.rates = {.beta = 0.9}, .slots = 10});
    Rng rng(seed);
    for (int t = 1; t <= 48; ++t) {
      agents.step(rng);
      if (share(agents) >= 0.9) return t;
    }
    return 0;
  };
  const int one = rounds_to_most(1, 5), many = rounds_to_most(1024, 6);
  CHECK((one >= 39 && one <= 44));
  CHECK((many >= 22 && many <= 24));
}

TEST_CASE("dynamics.contagion_simulation: purges hold a plateau above the threshold and end the outbreak below it") {
  PairwiseContagion above(1 << 18, 256, {.rates = {.beta = 0.9, .gamma = 0.2}, .slots = 10});
  PairwiseContagion below(1 << 20, 1024, {.rates = {.beta = 0.5, .gamma = 0.3}, .slots = 10});
  Rng rng(7);
  for (int t = 0; t < 70; ++t) above.step(rng);
  CHECK(std::abs(share(above) - 0.55) < 0.01);
  for (int t = 0; t < 48; ++t) below.step(rng);
  // Mean field, and the variance of a branching process: a carrier's change in a round has at most beta/2 + gamma.
  const ContagionRates& rates = below.options().rates;
  const double mean = mean_field_album(0x1p-10, rates, 10, 48).back() * 0x1p20, factor = std::pow(mean / 1024, 1.0 / 48);
  const double variance =
      1024 * (rates.beta / 2 + rates.gamma) * std::pow(factor, 47) * (1 - mean / 1024) / (1 - factor);
  CHECK(std::abs(static_cast<double>(below.carriers()) - mean) < 4 * std::sqrt(variance));
  CHECK(below.carriers() < 1024 / 4);
  // Ever carrying: initial / (1 - R0), with a deviation of about sqrt(initial / (1 - R0)^3).
  const double ever = static_cast<double>(below.ever_carrying()) / (1 << 20);
  const double left = 1 - album_reproduction_number(below.options().rates, 10);
  CHECK(ever < 0.01);
  CHECK(std::abs(ever - 1024 / left / (1 << 20)) < 4 * std::sqrt(1024 / left / left / left) / (1 << 20));
}

// ---- Options and edges ------------------------------------------------------------------------------------------

TEST_CASE("dynamics.contagion_simulation: immune agents never carry and act as a filter") {
  PairwiseContagion agents(20000, 200, {.rates = {.beta = 0.8, .gamma = 0.2}, .immune = 8000});
  Rng rng(8);
  for (int t = 0; t < 100; ++t) {
    agents.step(rng);
    REQUIRE(agents.carriers() <= 12000);
  }
  // Endemic where 0.8 (0.6 - c) / 2 = 0.2.
  CHECK(std::abs(share(agents) - 0.1) < 0.015);
  PairwiseContagion albums(1000, 400, {.rates = {.beta = 1}, .slots = 200, .immune = 600});
  for (int t = 0; t < 20; ++t) albums.step(rng);
  CHECK(albums.carriers() == 400);
  CHECK(albums.ever_carrying() == 400);
  CHECK(albums.histogram()[0] == 600);
}

TEST_CASE("dynamics.contagion_simulation: imports are Poisson in number and stop when nobody is clean") {
  PairwiseContagion agents(100000, 0, {.imports = 20});
  Rng rng(9);
  std::int64_t sum = 0;
  for (int t = 0; t < 400; ++t) {
    const RoundStats round = agents.step(rng);
    sum += round.imported;
    REQUIRE(agents.carriers() == round.carriers + round.imported);
  }
  CHECK(sum == agents.carriers());
  CHECK(sum == agents.ever_carrying());
  CHECK(std::abs(static_cast<double>(sum) - 8000) < 4 * std::sqrt(8000.0));
  PairwiseContagion few(5, 1, {.slots = 3, .immune = 2, .imports = 1000});
  CHECK(few.step(rng).imported == 2);
  CHECK(few.carriers() == 3);
  CHECK(few.histogram() == std::vector<std::int64_t>{2, 0, 0, 3});
}

TEST_CASE("dynamics.contagion_simulation: rates may change between rounds") {
  PairwiseContagion agents(1000, 500, {.rates = {.beta = 1}});
  Rng rng(10);
  agents.set_rates({.beta = 0, .gamma = 1});
  CHECK(agents.step(rng).recovered == 500);
  CHECK(agents.carriers() == 0);
}

TEST_CASE("dynamics.contagion_simulation: nobody and everybody and one slot behave as they must") {
  Rng rng(11);
  PairwiseContagion nobody(100, 0, {.rates = {.beta = 1, .gamma = 0.5}, .slots = 3});
  PairwiseContagion everybody(100, 100, {.rates = {.beta = 0.3}});
  for (int t = 0; t < 20; ++t) {
    CHECK(nobody.step(rng) == RoundStats{});
    everybody.step(rng);
  }
  CHECK(everybody.carriers() == 100);
  PairwiseContagion empty(0, 0, {});
  CHECK(empty.step(rng) == RoundStats{});
  PairwiseContagion lone(1, 1, {.rates = {.beta = 1, .gamma = 0.3}});  // no partner, only recovery
  int alive = 0;
  while (lone.carriers() == 1 && alive < 100) lone.step(rng), ++alive;
  CHECK(alive < 100);
  // One slot: a clean item clears at once, so every answerer is clean after a round without transmission.
  PairwiseContagion single(1000, 1000, {.slots = 1});
  single.step(rng);
  CHECK(single.carriers() == 500);
  // 255 slots: the most a byte can count.
  PairwiseContagion longest(2, 2, {.slots = 255});
  CHECK(longest.remaining(0) == 255);
  longest.step(rng);
  CHECK(longest.remaining(0) + longest.remaining(1) == 509);
}

TEST_CASE("dynamics.contagion_simulation: an agent takes at most 16 bytes and a step allocates nothing") {
  Rng rng(12);
  PairwiseContagion agents(
      10001, 100, {.rates = {.beta = 0.9, .gamma = 0.1, .alpha_q = 0.5, .alpha_a = 0.5}, .slots = 10, .imports = 1});
  CHECK(test::allocations([&] {
          for (int t = 0; t < 5; ++t) agents.step(rng);
        }) == 0);
  static_assert(sizeof(detail::AgentState) <= 16);
}

TEST_CASE("dynamics.contagion_simulation: probabilities become thresholds that are never and always where they must") {
  CHECK(detail::Coin(0)(0) == 0);
  CHECK(detail::Coin(1)(0xFFFFFFFF) == 1);
  CHECK(detail::Coin(0.5)(0x7FFFFFFF) == 1);
  CHECK(detail::Coin(0.5)(0x80000000) == 0);
  CHECK(detail::Coin(1 - 0x1p-33)(0xFFFFFFFE) == 1);
  CHECK(detail::Coin(1e-300)(0) == 1);
  CHECK(detail::Coin(1e-300)(1) == 0);
}

TEST_CASE("dynamics.contagion_simulation: bad arguments are named") {
  const auto text = [](std::int64_t n, std::int64_t initial, const ContagionOptions& options) {
    return message_of<InvalidArgument>([&] { PairwiseContagion(n, initial, options); });
  };
  CHECK(text(-1, 0, {}) == "PairwiseContagion: population must be between 0 and 2^31, got -1");
  CHECK(text((std::int64_t{1} << 31) + 1, 0, {}) ==
        "PairwiseContagion: population must be between 0 and 2^31, got 2147483649");
  CHECK(text(10, 11, {}) ==
        "PairwiseContagion: initial must be between 0 and the 10 agents that are not immune, got 11");
  CHECK(text(10, -1, {}) ==
        "PairwiseContagion: initial must be between 0 and the 10 agents that are not immune, got -1");
  CHECK(text(10, 8, {.immune = 3}) ==
        "PairwiseContagion: initial must be between 0 and the 7 agents that are not immune, got 8");
  CHECK(text(10, 0, {.immune = 11}) == "PairwiseContagion: immune must be between 0 and the population of 10, got 11");
  CHECK(text(10, 0, {.immune = -1}) == "PairwiseContagion: immune must be between 0 and the population of 10, got -1");
  CHECK(text(10, 0, {.imports = -1}) == "PairwiseContagion: imports must be between 0 and 2^52, got -1");
  CHECK(text(10, 0, {.imports = NAN}) == "PairwiseContagion: imports must be between 0 and 2^52, got nan");
  CHECK(text(10, 1, {.slots = -1}) == "PairwiseContagion: slots must be between 0 and 255, got -1");
  CHECK(text(10, 1, {.slots = 256}) == "PairwiseContagion: slots must be between 0 and 255, got 256");
  CHECK(text(10, 1, {.rates = {.beta = 1.5}}) == "PairwiseContagion: beta must be between 0 and 1, got 1.5");
  CHECK(text(10, 1, {.rates = {.gamma = -1}}) == "PairwiseContagion: gamma must be between 0 and 1, got -1");

  PairwiseContagion agents(3, 1, {.rates = {.beta = 1}});
  CHECK(message_of<InvalidArgument>([&] { agents.set_rates({.alpha_q = 3}); }) ==
        "PairwiseContagion::set_rates: alpha_q must be between 0 and 1, got 3");
  CHECK(message_of<InvalidArgument>([&] { (void)agents.carries(3); }) ==
        "PairwiseContagion: agent must be one of the population, got 3");
  CHECK(message_of<InvalidArgument>([&] { (void)agents.remaining(-1); }) ==
        "PairwiseContagion: agent must be one of the population, got -1");
  const auto replay = [&](const std::vector<std::uint32_t>& pairing, std::size_t transmission, std::size_t recovery,
                          std::size_t questioner, std::size_t answerer) {
    const std::vector<double> zeros(10, 0);
    const auto some = [&](std::size_t n) { return std::span(zeros).first(n); };
    const std::string what = message_of<InvalidArgument>([&] {
      agents.step_with(pairing, {some(transmission), some(recovery), some(questioner), some(answerer)});
    });
    CHECK(agents.histogram() == std::vector<std::int64_t>{2, 1});
    return what;
  };
  const std::string step_with = "PairwiseContagion::step_with: ";
  CHECK(replay({0, 1}, 1, 3, 0, 0) == step_with + "pairing has length 2, expected 3 (one an agent)");
  CHECK(replay({0, 1, 2}, 2, 3, 0, 0) == step_with + "transmission has length 2, expected 1 (one a pair)");
  CHECK(replay({0, 1, 2}, 1, 2, 0, 0) == step_with + "recovery has length 2, expected 3 (one an agent)");
  CHECK(replay({0, 1, 2}, 1, 3, 2, 1) == step_with + "symptom_questioner has length 2, expected 1 (one a pair)");
  CHECK(replay({0, 1, 2}, 1, 3, 1, 0) == step_with + "symptom_answerer has length 0, expected 1 (one a pair)");
  CHECK(replay({0, 1, 3}, 1, 3, 0, 0) == step_with + "pairing must name every agent once, but 3 is not an agent");
  CHECK(replay({0, 1, 1}, 1, 3, 0, 0) == step_with + "pairing must name every agent once, but 1 is there twice");
  Masks masks(2, 0);
  CHECK(message_of<InvalidArgument>([&] { reference::contagion_round(masks, {}, 65, {}, {}, {}); }) ==
        "contagion_round: slots must be between 0 and 64, got 65");
  CHECK(message_of<InvalidArgument>([&] { reference::contagion_round(masks, {}, -1, {}, {}, {}); }) ==
        "contagion_round: slots must be between 0 and 64, got -1");
}

}  // namespace
}  // namespace ashlar::dynamics
