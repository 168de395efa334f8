#include "ashlar/dynamics/contact_contagion.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::dynamics {
namespace {

using test::message_of;

std::vector<ContactEdge> ring(std::uint32_t n) {
  std::vector<ContactEdge> edges;
  for (std::uint32_t i = 0; i < n; ++i) edges.emplace_back(i, (i + 1) % n);
  return edges;
}

TEST_CASE("dynamics.contact_contagion: pairs are edges and no free edge is left") {
  Rng rng(1);
  std::set<ContactEdge> edges;
  while (edges.size() < 60) {
    const auto a = static_cast<std::uint32_t>(rng.below(30)), b = static_cast<std::uint32_t>(rng.below(30));
    if (a < b) edges.emplace(a, b);
  }
  ContactContagion agents(30, 5, {.rates = {.beta = 0.5, .gamma = 0.1}}, {.edges = {edges.begin(), edges.end()}});
  for (int t = 0; t < 100; ++t) {
    agents.step(rng);
    std::vector<bool> taken(30, false);
    for (std::size_t k = 0; k < agents.pairs().size(); k += 2) {
      const std::uint32_t q = agents.pairs()[k], a = agents.pairs()[k + 1];
      REQUIRE(edges.contains({std::min(q, a), std::max(q, a)}));
      REQUIRE((!taken[q] && !taken[a]));
      taken[q] = taken[a] = true;
    }
    for (const auto& [a, b] : edges) REQUIRE((taken[a] || taken[b]));
  }
}

TEST_CASE("dynamics.contact_contagion: edges and roles are drawn evenly") {
  // A path of three edges: the middle edge is taken alone when it comes first, with probability 1/3.
  ContactContagion agents(4, 0, {}, {.edges = {{0, 1}, {1, 2}, {2, 3}}});
  Rng rng(2);
  int middle = 0, one_asks = 0, ends = 0;
  constexpr int rounds = 20000;
  for (int t = 0; t < rounds; ++t) {
    agents.step(rng);
    if (agents.pairs().size() == 2)
      ++middle;
    else
      ends += agents.pairs().size() == 4;
    const auto at = std::find(agents.pairs().begin(), agents.pairs().end(), 1u) - agents.pairs().begin();
    one_asks += at % 2 == 0;
  }
  CHECK(middle + ends == rounds);
  CHECK(std::abs(middle - rounds / 3.0) < 4 * std::sqrt(rounds * 2.0 / 9));
  CHECK(std::abs(one_asks - rounds / 2.0) < 4 * std::sqrt(rounds / 4.0));
}

TEST_CASE("dynamics.contact_contagion: without edges or on the complete graph it is the pairwise contagion") {
  const ContagionOptions options{.rates = {.beta = 0.6, .gamma = 0.1, .alpha_q = 0.5, .alpha_a = 0.5}, .slots = 5};
  std::vector<ContactEdge> complete;
  for (std::uint32_t i = 0; i < 40; ++i)
    for (std::uint32_t j = 0; j < i; ++j) complete.emplace_back(i, j);
  double sum[3] = {}, square[3] = {};
  constexpr int runs = 1500;
  const Rng rng(3);
  for (int run = 0; run < runs; ++run) {
    const auto play = [&](auto model, int which) {
      Rng own = rng.split(static_cast<std::uint64_t>(3 * run + which));
      double value = 0;
      for (int t = 0; t < 8; ++t) value = static_cast<double>(100 * model.step(own).symptomatic() + model.carriers());
      sum[which] += value, square[which] += value * value;
    };
    play(PairwiseContagion(40, 8, options), 0);
    play(ContactContagion(40, 8, options), 1);
    play(ContactContagion(40, 8, options, {.edges = complete}), 2);
  }
  const auto variance = [&](int i) { return (square[i] - sum[i] * sum[i] / runs) / runs; };
  for (const int i : {1, 2})
    CHECK(std::abs(sum[i] - sum[0]) / runs < 4 * std::sqrt((variance(0) + variance(i)) / runs));
}

TEST_CASE("dynamics.contact_contagion: on a ring the item moves one agent a round") {
  ContactContagion agents(100, 1, {.rates = {.beta = 1}}, {.edges = ring(100)});
  Rng rng(4);
  for (int t = 1; t <= 49; ++t) {
    agents.step(rng);
    REQUIRE(agents.carriers() <= 1 + 2 * t);
    for (Index i = t + 1; i < 100 - t; ++i) REQUIRE_FALSE(agents.carries(i));
  }
  CHECK(agents.carriers() > 10);
  CHECK(agents.ever_carrying() == agents.carriers());
}

TEST_CASE("dynamics.contact_contagion: who is in quarantine meets nobody and keeps its state") {
  ContactContagion agents(200, 20, {.rates = {.beta = 0.8}}, {.quarantine = 0.5, .quarantine_rounds = 3});
  std::vector<int> left(200, 0);
  Rng rng(5);
  int begun = 0, shown = 0;
  for (int t = 0; t < 40; ++t) {
    std::vector<bool> away, carried;
    for (Index i = 0; i < 200; ++i) away.push_back(agents.quarantined(i)), carried.push_back(agents.carries(i));
    agents.step(rng);
    for (const std::uint32_t i : agents.pairs()) REQUIRE_FALSE(away[i]);
    for (std::size_t i = 0; i < 200; ++i) {
      const auto agent = static_cast<Index>(i);
      if (away[i]) {
        REQUIRE(agents.carries(agent) == carried[i]);
        REQUIRE_FALSE(agents.symptomatic(agent));
        REQUIRE(agents.quarantined(agent) == (--left[i] > 0));
      } else {
        shown += agents.symptomatic(agent);
        if (agents.quarantined(agent)) {
          REQUIRE(agents.symptomatic(agent));
          left[i] = 3;
          ++begun;
        }
      }
    }
  }
  CHECK(std::abs(begun - 0.5 * shown) < 4 * std::sqrt(0.25 * shown));

  // For good, and with recovery inside.
  ContactContagion forever(100, 100, {.rates = {.gamma = 0.1}}, {.quarantine = 1});
  forever.step(rng);
  for (Index i = 0; i < 100; ++i) CHECK(forever.quarantined(i));
  for (int t = 0; t < 200; ++t) forever.step(rng);
  CHECK(forever.pairs().empty());
  CHECK(forever.carriers() == 0);
  for (Index i = 0; i < 100; ++i) CHECK(forever.quarantined(i));
}

TEST_CASE("dynamics.contact_contagion: quarantine contains what spreads without it") {
  const ContagionOptions options{.rates = {.beta = 0.6, .gamma = 0.05, .alpha_q = 0.5, .alpha_a = 0.5}};
  ContactContagion open(2000, 40, options), guarded(2000, 40, options, {.quarantine = 1, .quarantine_rounds = 100});
  Rng rng(6);
  for (int t = 0; t < 100; ++t) open.step(rng), guarded.step(rng);
  CHECK(open.carriers() > 1000);
  CHECK(guarded.ever_carrying() < 200);
  CHECK(guarded.ever_symptomatic() <= guarded.ever_carrying());
}

TEST_CASE("dynamics.contact_contagion: agents without a partner recover and imports arrive") {
  Rng rng(7);
  ContactContagion isolated(50, 50, {.rates = {.beta = 1, .gamma = 1}}, {.edges = {{0, 1}}});
  CHECK(isolated.step(rng).recovered == 50);
  ContactContagion imports(50, 0, {.imports = 3}, {.edges = {{0, 1}}});
  const RoundStats round = imports.step(rng);
  CHECK(round.imported == imports.carriers());
  ContactContagion three(3, 3, {.rates = {.gamma = 1}});
  CHECK(three.step(rng).recovered == 3);
  CHECK(three.pairs().size() == 2);
  ContactContagion empty(0, 0, {});
  CHECK(empty.step(rng) == RoundStats{});
  three.set_rates({.gamma = 0});
  CHECK(three.options().rates.gamma == 0);
}

TEST_CASE("dynamics.contact_contagion: a step allocates nothing") {
  Rng rng(8);
  const ContagionOptions options{.rates = {.beta = 0.5, .gamma = 0.1}, .imports = 1};
  ContactContagion free(1001, 10, options, {.quarantine = 0.1, .quarantine_rounds = 3});
  ContactContagion bound(1000, 10, options, {.edges = ring(1000)});
  CHECK(test::allocations([&] {
          for (int t = 0; t < 5; ++t) free.step(rng), bound.step(rng);
        }) == 0);
}

TEST_CASE("dynamics.contact_contagion: bad arguments are named") {
  const auto text = [](const ContagionOptions& options, const ContactOptions& contacts) {
    return message_of<InvalidArgument>([&] { ContactContagion(10, 1, options, contacts); });
  };
  CHECK(text({.rates = {.beta = 2}}, {}) == "ContactContagion: beta must be between 0 and 1, got 2");
  CHECK(text({.slots = 256}, {}) == "ContactContagion: slots must be between 0 and 255, got 256");
  CHECK(text({.immune = 10}, {}) ==
        "ContactContagion: initial must be between 0 and the 0 agents that are not immune, got 1");
  CHECK(text({}, {.quarantine = 1.5}) == "ContactContagion: quarantine must be between 0 and 1, got 1.5");
  CHECK(text({}, {.quarantine_rounds = 0}) == "ContactContagion: quarantine_rounds must be at least 1, got 0");
  CHECK(text({}, {.edges = {{0, 1}, {3, 10}}}) ==
        "ContactContagion: edges[1] must join two agents of the population of 10, got 3 and 10");
  CHECK(text({}, {.edges = {{10, 1}}}) ==
        "ContactContagion: edges[0] must join two agents of the population of 10, got 10 and 1");
  CHECK(text({}, {.edges = {{4, 4}}}) ==
        "ContactContagion: edges[0] must join two agents of the population of 10, got 4 and 4");
  ContactContagion agents(10, 1, {});
  CHECK(message_of<InvalidArgument>([&] { (void)agents.carries(10); }) ==
        "ContactContagion: agent must be one of the population, got 10");
  CHECK(message_of<InvalidArgument>([&] { (void)agents.quarantined(-1); }) ==
        "ContactContagion: agent must be one of the population, got -1");
  CHECK(message_of<InvalidArgument>([&] { agents.set_rates({.gamma = 2}); }) ==
        "ContactContagion::set_rates: gamma must be between 0 and 1, got 2");
}

}  // namespace
}  // namespace ashlar::dynamics
