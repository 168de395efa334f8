#include "ashlar/dynamics/contagion_trace.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "ashlar/dynamics/contact_contagion.hpp"
#include "ashlar/dynamics/count_chain.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::dynamics {
namespace {

using test::message_of;

static_assert(TracksAgents<PairwiseContagion> && TracksAgents<ContactContagion>);
static_assert(ContagionModel<CountChain> && !TracksAgents<CountChain>);
static_assert(ContagionModel<AlbumCountChain> && !TracksAgents<AlbumCountChain>);

TEST_CASE("dynamics.contagion_trace: a trace holds what every round reported") {
  const ContagionOptions options{.rates = {.beta = 0.8, .gamma = 0.1, .alpha_q = 0.5, .alpha_a = 0.6}, .slots = 4};
  PairwiseContagion traced(500, 20, options), stepped(500, 20, options);
  Rng one(1), other(1);
  const Trace trace = simulate(traced, 20, one);
  REQUIRE(trace.carrying.size() == 21);
  REQUIRE(trace.symptomatic.size() == 20);
  REQUIRE(trace.ever_carrying.size() == 20);
  REQUIRE(trace.ever_symptomatic.size() == 20);
  CHECK(trace.carrying[0] == 0.04);
  for (std::size_t t = 0; t < 20; ++t) {
    const RoundStats round = stepped.step(other);
    CHECK(trace.rounds[t] == round);
    CHECK(trace.carrying[t + 1] == static_cast<double>(stepped.carriers()) / 500);
    CHECK(trace.symptomatic[t] ==
          static_cast<double>(round.symptomatic_questioners + round.symptomatic_answerers) / 500);
    CHECK(trace.ever_carrying[t] == static_cast<double>(stepped.ever_carrying()) / 500);
    CHECK(trace.ever_symptomatic[t] == static_cast<double>(stepped.ever_symptomatic()) / 500);
    CHECK(trace.ever_symptomatic[t] >= (t > 0 ? trace.ever_symptomatic[t - 1] : 0));
  }
  CHECK(simulate(traced, 5, one).carrying.front() == trace.carrying.back());
  CountChain chain(500, 20, {.rates = options.rates});
  CHECK(simulate(chain, 3, one).ever_carrying.empty());
  CountChain empty(0, 0, {});
  CHECK(simulate(empty, 2, one).carrying == std::vector<double>{0, 0, 0});
}

TEST_CASE("dynamics.contagion_trace: a schedule sets the rates of every round") {
  CountChain chain(1000, 300, {});
  Rng rng(2);
  const Trace trace =
      simulate(chain, 3, rng, [](Index t) { return ContagionRates{.beta = 0, .gamma = t == 1 ? 1.0 : 0.0}; });
  // Not a vector's initialiser list: gcc 12 for AVX-512 makes this one into four times 0.3.
  static constexpr double expected[] = {0.3, 0.3, 0, 0};
  REQUIRE(trace.carrying.size() == 4);
  for (std::size_t t = 0; t < 4; ++t) CHECK(trace.carrying[t] == expected[t]);
}

TEST_CASE("dynamics.contagion_trace: the time to a share is the first round that reaches it") {
  Trace trace;
  trace.carrying = {0.1, 0.3, 0.2, 0.5};
  CHECK(rounds_to(trace, 0.1) == 0);
  CHECK(rounds_to(trace, 0.25) == 1);
  CHECK(rounds_to(trace, 0.5) == 3);
  CHECK_FALSE(rounds_to(trace, 0.6).has_value());
}

TEST_CASE("dynamics.contagion_trace: observed rates are the shares of one round") {
  const RoundStats round{.carriers = 100,
                         .carrying_questioners = 40,
                         .carrying_answerers = 50,
                         .hits = 30,
                         .recovered = 7,
                         .symptomatic_questioners = 20,
                         .symptomatic_answerers = 10};
  const ContagionRates albums = observed_rates(round, true), bits = observed_rates(round, false);
  CHECK(albums.beta == 0.75);
  CHECK(albums.gamma == 0.07);
  CHECK(albums.alpha_q == 0.5);
  CHECK(albums.alpha_a == 0.25);
  CHECK(bits.alpha_a == 0.2);
  CHECK(bits.beta == 0.75);
  const ContagionRates nothing = observed_rates({}, true);
  CHECK((std::isnan(nothing.beta) && std::isnan(nothing.gamma) && std::isnan(nothing.alpha_q) &&
         std::isnan(nothing.alpha_a)));
  // On many agents they are the true ones; with albums alpha includes the retrieval.
  const ContagionRates rates{.beta = 0.6, .gamma = 0.2, .alpha_q = 0.5, .alpha_a = 0.7};
  PairwiseContagion bit_agents(1000000, 500000, {.rates = rates});
  PairwiseContagion album_agents(1000000, 500000, {.rates = rates, .slots = 50});
  Rng rng(3);
  const ContagionRates of_bits = observed_rates(bit_agents.step(rng), false),
                       of_albums = observed_rates(album_agents.step(rng), true);
  const double bound = 4 * 0.5 / std::sqrt(250000.0);
  CHECK(std::abs(of_bits.beta - 0.6) < bound);
  CHECK(std::abs(of_bits.gamma - 0.2) < bound);
  CHECK(std::abs(of_bits.alpha_q - 0.5) < bound);
  CHECK(std::abs(of_bits.alpha_a - 0.7) < bound);
  CHECK(std::abs(of_albums.beta - 0.6) < bound);
  CHECK(std::abs(of_albums.alpha_q - 0.3) < bound);
  CHECK(std::abs(of_albums.alpha_a - 0.42) < bound);
}

TEST_CASE("dynamics.contagion_trace: rates estimated from a trace are those that made it") {
  CountChain chain(1000000, 10000, {.rates = {.beta = 0.6, .gamma = 0.15}});
  Rng rng(4);
  const Trace trace = simulate(chain, 60, rng);
  const RateEstimate estimate = estimate_rates(trace.carrying, chain.population());
  CHECK(estimate.identifiable);
  CHECK(std::abs(estimate.beta - 0.6) < 4 * estimate.beta_error);
  CHECK(std::abs(estimate.gamma - 0.15) < 4 * estimate.gamma_error);
  CHECK(estimate.beta_error < 0.02);
  CHECK(estimate.verdict == ContainmentVerdict::spreading);
}

TEST_CASE("dynamics.contagion_trace: runs are the same for any number of threads") {
  const auto runs = [](int threads) {
    return test::with_threads(threads, [] {
      return simulate_runs(12, 15, Rng(5), [] {
        return PairwiseContagion(3000, 30, {.rates = {.beta = 0.9, .gamma = 0.2, .alpha_q = 0.5}, .slots = 5});
      });
    });
  };
  const std::vector<Trace> one = runs(1), two = runs(2), four = runs(4);
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(one[i].rounds == two[i].rounds);
    CHECK(one[i].rounds == four[i].rounds);
    CHECK(one[i].carrying == two[i].carrying);
    CHECK(one[i].carrying == four[i].carrying);
  }
  CHECK(one[0].rounds != one[1].rounds);
  // Run i has stream i.
  PairwiseContagion model(3000, 30, {.rates = {.beta = 0.9, .gamma = 0.2, .alpha_q = 0.5}, .slots = 5});
  Rng rng = Rng(5).split(7);
  CHECK(simulate(model, 15, rng).rounds == one[7].rounds);
}

TEST_CASE("dynamics.contagion_trace: a summary counts extinct runs and averages the others apart") {
  std::vector<Trace> traces(4);
  traces[0].carrying = {0.1, 0.2, 0.4};
  traces[1].carrying = {0.1, 0.0, 0.0};
  traces[2].carrying = {0.1, 0.3, 0.8};
  traces[3].carrying = {0.1, 0.1, 0.0};
  const RunSummary summary = summarise(traces);
  CHECK(summary.runs == 4);
  CHECK(summary.extinct == 2);
  CHECK(summary.extinct_share() == 0.5);
  CHECK(std::abs(summary.mean[1] - 0.15) < 1e-15);
  CHECK(std::abs(summary.mean[2] - 0.3) < 1e-15);
  CHECK(std::abs(summary.mean_surviving[1] - 0.25) < 1e-15);
  CHECK(std::abs(summary.mean_surviving[2] - 0.6) < 1e-15);
  traces[0].carrying = traces[2].carrying = {0.1, 0, 0};
  CHECK(summarise(traces).mean_surviving.empty());
  CHECK(summarise({}).runs == 0);
  CHECK(summarise({}).extinct_share() == 0);
}

TEST_CASE("dynamics.contagion_trace: bad arguments are named") {
  CountChain chain(10, 1, {});
  Rng rng(6);
  const auto make = [] { return CountChain(10, 1, {}); };
  CHECK(message_of<InvalidArgument>([&] { (void)simulate(chain, -1, rng); }) ==
        "simulate: rounds must be not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] {
          (void)simulate(chain, 1, rng, [](Index) { return ContagionRates{.beta = 2}; });
        }) == "CountChain::set_rates: beta must be between 0 and 1, got 2");
  CHECK(message_of<InvalidArgument>([&] { (void)simulate_runs(-1, 3, rng, make); }) ==
        "simulate_runs: runs must be not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { (void)simulate_runs(1, -3, rng, make); }) ==
        "simulate_runs: rounds must be not negative, got -3");
  CHECK(message_of<InvalidArgument>([] { (void)rounds_to({}, 1.5); }) ==
        "rounds_to: target must be between 0 and 1, got 1.5");
  std::vector<Trace> traces(2);
  traces[0].carrying = {0.1, 0.2};
  traces[1].carrying = {0.1};
  CHECK(message_of<InvalidArgument>([&] { (void)summarise(traces); }) ==
        "summarise: traces[1] has 1 shares of carriers, expected 2 (same as traces[0]; not 0)");
  traces[0].carrying.clear();
  CHECK(message_of<InvalidArgument>([&] { (void)summarise(traces); }) ==
        "summarise: traces[0] has 0 shares of carriers, expected 0 (same as traces[0]; not 0)");
}

}  // namespace
}  // namespace ashlar::dynamics
