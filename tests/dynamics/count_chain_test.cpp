#include "ashlar/dynamics/count_chain.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::dynamics {
namespace {

using test::message_of;

/// Means and variances over independent runs of what a run ends with.
struct Moments {
  double count = 0, sum = 0, squares = 0;
  void add(double x) { ++count, sum += x, squares += x * x; }
  double mean() const { return sum / count; }
  double variance() const { return (squares - sum * sum / count) / (count - 1); }
};

/// The standardised difference of two means, and of the logarithms of two variances (nearly normal values).
void check_same(const Moments& a, const Moments& b) {
  const double error = std::sqrt(a.variance() / a.count + b.variance() / b.count);
  if (error == 0) {
    CHECK(a.mean() == b.mean());
    return;
  }
  CHECK(std::abs(a.mean() - b.mean()) / error < 4);
  CHECK(std::abs(std::log(a.variance() / b.variance())) / std::sqrt(2 / a.count + 2 / b.count) < 4);
}

/// Plays `rounds` rounds of both models many times and compares what the last round did.
template <class Chain>
void check_same_law(std::int64_t population, std::int64_t initial, const ContagionOptions& options, int rounds) {
  constexpr int runs = 2000;
  Moments of_agents[8], of_chain[8];
  const auto play = [&](auto model, Rng rng, Moments* moments) {
    RoundStats round;
    for (int t = 0; t < rounds; ++t) round = model.step(rng);
    const std::int64_t values[] = {model.carriers(),
                                   round.carrying_questioners,
                                   round.hits,
                                   round.infected,
                                   round.recovered,
                                   round.imported,
                                   round.symptomatic_questioners,
                                   round.symptomatic_answerers};
    for (int i = 0; i < 8; ++i) moments[i].add(static_cast<double>(values[i]));
  };
  const Rng rng(1);
  for (std::uint64_t run = 0; run < runs; ++run) {
    play(PairwiseContagion(population, initial, options), rng.split(run), of_agents);
    play(Chain(population, initial, options), rng.split(run + runs), of_chain);
  }
  for (int i = 0; i < 8; ++i) {
    INFO("quantity " << i);
    check_same(of_agents[i], of_chain[i]);
  }
}

TEST_CASE("dynamics.count_chain: the chain has the law of the agents") {
  check_same_law<CountChain>(500, 100, {.rates = {.beta = 0.6, .gamma = 0.2, .alpha_q = 0.7, .alpha_a = 0.4}}, 12);
  check_same_law<CountChain>(301, 60,
                             {.rates = {.beta = 0.9, .gamma = 0.1, .alpha_q = 0.5}, .immune = 100, .imports = 3}, 8);
}

TEST_CASE("dynamics.count_chain: the chain with albums has the law of the agents") {
  check_same_law<AlbumCountChain>(
      500, 100, {.rates = {.beta = 0.6, .gamma = 0.1, .alpha_q = 0.7, .alpha_a = 0.4}, .slots = 5}, 12);
  check_same_law<AlbumCountChain>(
      301, 60, {.rates = {.beta = 0.7, .gamma = 0, .alpha_q = 0.5}, .slots = 3, .immune = 100, .imports = 3}, 8);
  check_same_law<AlbumCountChain>(200, 150, {.rates = {.beta = 0.5, .gamma = 0.1}, .slots = 1}, 3);
}

TEST_CASE("dynamics.count_chain: every count of the albums agrees with the agents") {
  const ContagionOptions options{.rates = {.beta = 0.5, .gamma = 0.15}, .slots = 4, .immune = 50};
  std::vector<Moments> agents_moments(5), chain_moments(5);
  const Rng rng(2);
  for (std::uint64_t run = 0; run < 2000; ++run) {
    Rng one = rng.split(run), other = rng.split(run + 100000);
    PairwiseContagion agents(400, 150, options);
    AlbumCountChain chain(400, 150, options);
    for (int t = 0; t < 5; ++t) agents.step(one), chain.step(other);
    for (std::size_t k = 0; k < 5; ++k) {
      agents_moments[k].add(static_cast<double>(agents.histogram()[k]));
      chain_moments[k].add(static_cast<double>(chain.histogram()[k]));
    }
  }
  for (std::size_t k = 0; k < 5; ++k) {
    INFO("k " << k);
    check_same(agents_moments[k], chain_moments[k]);
  }
}

TEST_CASE("dynamics.count_chain: counts are conserved and stay in their ranges") {
  Rng rng(3);
  for (int trial = 0; trial < 60; ++trial) {
    const std::int64_t n = rng.below(40), immune = rng.below(n + 1), initial = rng.below(n - immune + 1);
    ContagionOptions options{.rates = {.beta = trial % 5 == 0 ? 1 : rng.uniform(), .gamma = rng.uniform()},
                             .immune = immune,
                             .imports = trial % 3 == 0 ? 2.0 : 0.0};
    CountChain chain(n, initial, options);
    options.slots = 1 + static_cast<int>(rng.below(6));
    AlbumCountChain albums(n, initial, options);
    for (int t = 0; t < 30; ++t) {
      const auto check = [&](auto& model) {
        const std::int64_t before = model.carriers();
        const RoundStats round = model.step(rng);
        REQUIRE(round.carriers == before);
        REQUIRE(model.carriers() == before + round.infected - round.recovered + round.imported);
        REQUIRE((model.carriers() >= 0 && model.carriers() <= n - immune));
        REQUIRE(round.hits <= round.carrying_questioners);
        REQUIRE(round.infected <= round.hits);
        REQUIRE(round.recovered <= round.carriers);
      };
      check(chain);
      check(albums);
      const auto counts = albums.histogram();
      REQUIRE(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == n);
      for (const std::int64_t count : counts) REQUIRE(count >= 0);
    }
  }
}

TEST_CASE("dynamics.count_chain: up to 2^53 agents follow the mean field") {
  constexpr std::int64_t n = std::int64_t{1} << 53;
  const ContagionRates rates{.beta = 0.8, .gamma = 0.1};
  CountChain chain(n, n / 100, {.rates = rates});
  AlbumCountChain albums(n, n / 128, {.rates = rates, .slots = 10});
  const double c0 = static_cast<double>(n / 100) / 0x1p53;
  const std::vector<double> expected = mean_field(c0, rates, 60),
                            of_albums = mean_field_album(1.0 / 128, rates, 10, 60);
  Rng rng(4);
  for (std::size_t t = 1; t <= 60; ++t) {
    chain.step(rng);
    albums.step(rng);
    // The deviation of a share is about 1 / sqrt N = 1e-8, multiplied while it grows.
    REQUIRE(std::abs(static_cast<double>(chain.carriers()) / 0x1p53 - expected[t]) < 1e-6);
    REQUIRE(std::abs(static_cast<double>(albums.carriers()) / 0x1p53 - of_albums[t]) < 1e-6);
  }
}

TEST_CASE("dynamics.count_chain: small outbreaks die out as often as the branching process") {
  const ContagionRates rates{.beta = 0.5, .gamma = 0.2};
  int extinct = 0;
  constexpr int runs = 4000;
  const Rng rng(5);
  for (std::uint64_t run = 0; run < runs; ++run) {
    CountChain chain(100000000, 1, {.rates = rates});
    Rng own = rng.split(run);
    for (int t = 0; t < 250 && chain.carriers() > 0; ++t) chain.step(own);
    extinct += chain.carriers() == 0;
  }
  CHECK(std::abs(extinct / double{runs} - extinction_probability(rates, 1)) < 4 * std::sqrt(0.75 * 0.25 / runs));
}

TEST_CASE("dynamics.count_chain: albums spread in a time of order log N and settle above beta B = 1") {
  const auto median_rounds = [](std::int64_t n) {
    std::vector<int> rounds;
    const Rng rng(6);
    for (std::uint64_t run = 0; run < 21; ++run) {
      AlbumCountChain chain(n, 1, {.rates = {.beta = 0.9}, .slots = 10});
      Rng own = rng.split(run);
      int t = 0;
      while (static_cast<double>(chain.carriers()) < 0.9 * static_cast<double>(n) && t < 200) chain.step(own), ++t;
      rounds.push_back(t);
    }
    std::nth_element(rounds.begin(), rounds.begin() + 10, rounds.end());
    return rounds[10];
  };
  const int small = median_rounds(256), medium = median_rounds(4096), large = median_rounds(1 << 20),
            larger = median_rounds(1 << 30);
  CHECK((small >= 17 && small <= 24));
  CHECK((medium >= 24 && medium <= 29));
  CHECK((large >= 39 && large <= 44));
  CHECK(
      (larger - large >= 14 && larger - large <= 20));  // log 2^10 / log(1.45) = 18.7 less rounding, from 7 a factor 16
  Rng rng(7);
  for (const auto& [beta, endemic] : {std::pair{0.09, 0.0}, {0.11, 0.194}, {0.15, 0.628}, {0.3, 0.968}}) {
    AlbumCountChain chain(1000000, 500000, {.rates = {.beta = beta}, .slots = 10});
    for (int t = 0; t < 1500; ++t) chain.step(rng);
    INFO("beta " << beta);
    CHECK(std::abs(static_cast<double>(chain.carriers()) / 1e6 - endemic) < 0.02);
  }
}

TEST_CASE("dynamics.count_chain: below R0 = 1 an outbreak ends after initial / (1 - R0) infections") {
  const ContagionOptions options{.rates = {.beta = 0.5, .gamma = 0.3}, .slots = 10};
  AlbumCountChain chain(1000000000, 100000, options);
  std::int64_t infections = 100000;
  Rng rng(12);
  for (int t = 0; t < 600; ++t) infections += chain.step(rng).infected;
  CHECK(chain.carriers() == 0);
  const double left = 1 - album_reproduction_number(options.rates, 10);
  CHECK(std::abs(static_cast<double>(infections) - 1e5 / left) < 4 * std::sqrt(1e5 / left / left / left) + 1e5 * 0.01);
}

TEST_CASE("dynamics.count_chain: starting from one carrier most runs lag behind the mean field") {
  // N = 4096, B = 10, beta = 0.9, gamma = 0.2: extinct runs included, mean c_47 = .33 to .41; the mean field says .54.
  const ContagionOptions options{.rates = {.beta = 0.9, .gamma = 0.2}, .slots = 10};
  double mean = 0;
  const Rng rng(8);
  for (std::uint64_t run = 0; run < 1000; ++run) {
    AlbumCountChain chain(4096, 1, options);
    Rng own = rng.split(run);
    for (int t = 0; t < 47; ++t) chain.step(own);
    mean += static_cast<double>(chain.carriers()) / 4096 / 1000;
  }
  CHECK((mean > 0.33 && mean < 0.41));
  CHECK(std::abs(mean_field_album(1.0 / 4096, options.rates, 10, 47).back() - 0.54) < 0.005);
}

TEST_CASE("dynamics.count_chain: empty and full populations behave as they must") {
  Rng rng(9);
  CountChain empty(0, 0, {.rates = {.beta = 1, .gamma = 1}});
  AlbumCountChain empty_albums(0, 0, {.rates = {.beta = 1, .gamma = 1}, .slots = 3});
  CHECK(empty.step(rng) == RoundStats{});
  CHECK(empty_albums.step(rng) == RoundStats{});
  CountChain lone(1, 1, {.rates = {.beta = 1, .gamma = 1}});
  CHECK(lone.step(rng).recovered == 1);
  CountChain nobody(1000, 0, {.rates = {.beta = 1, .gamma = 0.5}});
  CHECK(nobody.step(rng) == RoundStats{});
  CountChain everybody(1000, 1000, {.rates = {.beta = 1}});
  everybody.step(rng);
  CHECK(everybody.carriers() == 1000);
  AlbumCountChain imports(1000, 0, {.slots = 2, .imports = 1e9});
  CHECK(imports.step(rng).imported == 1000);
  CHECK(imports.carriers() == 1000);
}

TEST_CASE("dynamics.count_chain: a step allocates nothing") {
  Rng rng(10);
  const ContagionRates rates{.beta = 0.9, .gamma = 0.1, .alpha_q = 0.5, .alpha_a = 0.5};
  CountChain chain(1000000, 1000, {.rates = rates, .immune = 10, .imports = 1});
  AlbumCountChain albums(1000000, 1000, {.rates = rates, .slots = 10, .immune = 10, .imports = 1});
  CHECK(test::allocations([&] {
          for (int t = 0; t < 20; ++t) chain.step(rng), albums.step(rng);
        }) == 0);
}

TEST_CASE("dynamics.count_chain: bad arguments are named") {
  const auto text = [](std::int64_t n, std::int64_t initial, const ContagionOptions& options) {
    return message_of<InvalidArgument>([&] { CountChain(n, initial, options); });
  };
  CHECK(text(-1, 0, {}) == "CountChain: population must be between 0 and 2^53, got -1");
  CHECK(text((std::int64_t{1} << 53) + 1, 0, {}) ==
        "CountChain: population must be between 0 and 2^53, got 9007199254740993");
  CHECK(text(10, 11, {}) == "CountChain: initial must be between 0 and the 10 agents that are not immune, got 11");
  CHECK(text(10, 0, {.immune = 11}) == "CountChain: immune must be between 0 and the population of 10, got 11");
  CHECK(text(10, 0, {.imports = -1}) == "CountChain: imports must be between 0 and 2^52, got -1");
  CHECK(text(10, 0, {.rates = {.beta = 2}}) == "CountChain: beta must be between 0 and 1, got 2");
  CHECK(text(10, 0, {.slots = 3}) == "CountChain: slots must be 0 (albums: AlbumCountChain), got 3");
  CHECK(message_of<InvalidArgument>([] { AlbumCountChain(10, 0, {}); }) ==
        "AlbumCountChain: slots must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([] { AlbumCountChain(10, 11, {.slots = 1}); }) ==
        "AlbumCountChain: initial must be between 0 and the 10 agents that are not immune, got 11");
  CountChain chain(10, 1, {});
  AlbumCountChain albums(10, 1, {.slots = 1});
  CHECK(message_of<InvalidArgument>([&] { chain.set_rates({.gamma = 2}); }) ==
        "CountChain::set_rates: gamma must be between 0 and 1, got 2");
  CHECK(message_of<InvalidArgument>([&] { albums.set_rates({.gamma = 2}); }) ==
        "AlbumCountChain::set_rates: gamma must be between 0 and 1, got 2");
  Rng rng(11);
  chain.set_rates({.gamma = 1});
  albums.set_rates({.gamma = 1});
  CHECK(chain.step(rng).recovered == 1);
  CHECK(albums.step(rng).recovered == 1);
}

}  // namespace
}  // namespace ashlar::dynamics
