#include "ashlar/dynamics/contagion.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::dynamics {
namespace {

using test::fixture;
using test::message_of;

constexpr double infinity = std::numeric_limits<double>::infinity();

bool near(double a, double b, double relative) { return a == b || std::abs(a - b) <= relative * std::abs(b); }

TEST_CASE("dynamics.contagion: recurrence and closed form agree with numpy") {
  const auto table = fixture("infectious_jailbreak/mf_params");
  const auto params = table.view<2>();
  for (Index row = 0; row < params.extent(0); ++row) {
    INFO("row " << row);
    const double c0 = params(row, 0);
    const ContagionRates rates{.beta = params(row, 1), .gamma = params(row, 2)};
    const auto rounds = static_cast<Index>(params(row, 3));
    const auto expected_table = fixture("infectious_jailbreak/mf_" + std::to_string(row));
    const auto expected = expected_table.view<2>();
    const std::vector<double> share = mean_field(c0, rates, rounds);
    REQUIRE(static_cast<Index>(share.size()) == rounds + 1);
    for (Index t = 0; t <= rounds; ++t) {
      CHECK(std::abs(share[static_cast<std::size_t>(t)] - expected(0, t)) <= 1e-12);
      CHECK(std::abs(logistic_share(c0, rates, static_cast<double>(t)) - expected(1, t)) <= 1e-10);
    }
  }
}

TEST_CASE("dynamics.contagion: times to a share agree with numpy") {
  const auto table = fixture("infectious_jailbreak/time_to");
  const auto rows = table.view<2>();
  for (Index row = 0; row < rows.extent(0); ++row) {
    INFO("row " << row);
    const ContagionRates rates{.beta = rows(row, 1), .gamma = rows(row, 2)};
    const double time = time_to_share(rows(row, 0), rows(row, 3), rates);
    CHECK(near(time, rows(row, 4), 1e-10));
    if (std::isfinite(time) && time > 0) CHECK(near(logistic_share(rows(row, 0), rates, time), rows(row, 3), 1e-10));
  }
}

TEST_CASE("dynamics.contagion: reproduction numbers and endemic shares of albums agree with numpy") {
  const auto table = fixture("infectious_jailbreak/album_theory");
  const auto rows = table.view<2>();
  for (Index row = 0; row < rows.extent(0); ++row) {
    INFO("row " << row);
    const ContagionRates rates{.beta = rows(row, 0), .gamma = rows(row, 1)};
    const int slots = static_cast<int>(rows(row, 2));
    CHECK(near(album_reproduction_number(rates, slots), rows(row, 3), 1e-10));
    if (rates.gamma == 0) CHECK(std::abs(endemic_share_album(rates.beta, slots) - rows(row, 4)) <= 1e-8);
  }
}

TEST_CASE("dynamics.contagion: the mean field with albums agrees with numpy") {
  const auto table = fixture("infectious_jailbreak/album_mf");
  const auto expected = table.view<2>();
  const double gammas[] = {0, 0.1, 0.4};
  for (Index row = 0; row < 3; ++row) {
    const std::vector<double> share =
        mean_field_album(1.0 / 128, {.beta = 0.6, .gamma = gammas[row]}, 10, expected.extent(1) - 1);
    for (Index t = 0; t < expected.extent(1); ++t)
      CHECK(std::abs(share[static_cast<std::size_t>(t)] - expected(row, t)) <= 1e-12);
  }
}

TEST_CASE("dynamics.contagion: the closed form solves the differential equation") {
  Rng rng(1);
  for (int trial = 0; trial < 60; ++trial) {
    ContagionRates rates{.beta = rng.uniform(), .gamma = rng.uniform()};
    if (trial % 4 == 1) rates.gamma = rates.beta / 2;          // algebraic decay
    if (trial % 4 == 2) rates.gamma = rates.beta / 2 + 1e-13;  // and next to it
    if (trial % 8 == 3) rates.beta = 0;
    const double c0 = trial % 5 == 0 ? 1 : rng.uniform();
    INFO("beta " << rates.beta << " gamma " << rates.gamma << " c0 " << c0);
    const auto slope = [&](double c) { return rates.beta * c * (1 - c) / 2 - rates.gamma * c; };
    constexpr double h = 1.0 / 64;
    double c = c0;
    for (int step = 1; step <= 64 * 30; ++step) {
      const double k1 = slope(c), k2 = slope(c + h / 2 * k1), k3 = slope(c + h / 2 * k2), k4 = slope(c + h * k3);
      c += h / 6 * (k1 + 2 * k2 + 2 * k3 + k4);
      if (step % 64 == 0) REQUIRE(std::abs(logistic_share(c0, rates, step * h) - c) <= 1e-10);
    }
  }
}

TEST_CASE("dynamics.contagion: shares stay between 0 and 1 and end at the endemic share") {
  Rng rng(2);
  for (int trial = 0; trial < 50; ++trial) {
    const ContagionRates rates{.beta = rng.uniform(), .gamma = trial % 3 == 0 ? 0 : rng.uniform()};
    for (const double c : mean_field(rng.uniform(), rates, 200)) REQUIRE((c >= 0 && c <= 1));
    for (const double c : mean_field_album(rng.uniform(), rates, 1 + static_cast<int>(rng.below(12)), 200))
      REQUIRE((c >= 0 && c <= 1));
    CHECK(std::abs(logistic_share(0.5, rates, 1e7) - endemic_share(rates)) <= 1e-5);
  }
  CHECK(endemic_share({.beta = 0.5, .gamma = 0.2}) == 1 - 2 * 0.2 / 0.5);
  CHECK(endemic_share({.beta = 0.5, .gamma = 0.25}) == 0);
  CHECK(endemic_share({.beta = 0, .gamma = 0}) == 0);
  CHECK(endemic_share({.beta = 0.3, .gamma = 0}) == 1);
  CHECK(logistic_share(0.2, {.beta = 0.4, .gamma = 0.2}, 10) == 0.2 / (1 + 0.2 * 0.4 / 2 * 10));
  CHECK(near(logistic_share(0.2, {.beta = 0, .gamma = 0.3}, 5), 0.2 * std::exp(-1.5), 1e-14));
  CHECK(logistic_share(0.01, {.beta = 0.1, .gamma = 1}, 1e9) == 0);  // no overflow
  CHECK(logistic_share(0.01, {.beta = 1, .gamma = 0}, 1e9) == 1);
  CHECK(logistic_share(0, {.beta = 1, .gamma = 0}, 5) == 0);
}

TEST_CASE("dynamics.contagion: rates that change with the round enter the recurrence one by one") {
  const std::vector<double> share = mean_field(
      0.1, [](Index t) { return ContagionRates{.beta = t < 2 ? 0.8 : 0, .gamma = t == 1 ? 0.5 : 0.25}; }, 3);
  double c = 0.1;
  for (const auto& [beta, gamma] : {std::pair{0.8, 0.25}, {0.8, 0.5}, {0.0, 0.25}})
    c = (1 - gamma) * c + beta * c * (1 - c) / 2;
  CHECK(near(share[3], c, 1e-14));
}

TEST_CASE("dynamics.contagion: growing takes time of order log N and spreading one by one of order N") {
  const ContagionRates rates{.beta = 0.9, .gamma = 0.1};
  const auto time = [&](double agents) { return time_to_share(1 / agents, 0.7, rates); };
  const double step = time(4096) - time(256);
  CHECK(near(step, std::log(16.0) / (0.45 - 0.1), 0.01));
  CHECK(near(time(0x1p40) - time(0x1p36), step, 0.01));
  CHECK(time_to_share(0.1, 0.1, rates) == 0);
  CHECK(time_to_share(0.2, 0.1, rates) == 0);
  CHECK(time_to_share(0, 0.1, rates) == infinity);
  CHECK(time_to_share(0.1, endemic_share(rates), rates) == infinity);
  CHECK(time_to_share(0.1, 0.2, {.beta = 0.4, .gamma = 0.2}) == infinity);
  CHECK(time_to_share(0.1, 0.2, {.beta = 0, .gamma = 0}) == infinity);
  CHECK(linear_share(1000, 0) == 0.001);
  CHECK(linear_share(1000, 499) == 0.5);
  CHECK(linear_share(1000, 5000) == 1);
}

TEST_CASE("dynamics.contagion: extinction is certain exactly below the threshold") {
  CHECK(near(extinction_probability({.beta = 0.5, .gamma = 0.2}, 1), 0.75, 1e-14));
  CHECK(near(extinction_probability({.beta = 0.5, .gamma = 0.2}, 3), 0.75 * 0.75 * 0.75, 1e-14));
  CHECK(extinction_probability({.beta = 0.5, .gamma = 0.25}, 1) == 1);
  CHECK(extinction_probability({.beta = 0.5, .gamma = 0.2499}, 1) < 1);
  CHECK(extinction_probability({.beta = 0.5, .gamma = 0.3}, 10) == 1);
  CHECK(extinction_probability({.beta = 0.5, .gamma = 0}, 1) == 0);
  CHECK(extinction_probability({.beta = 0, .gamma = 0}, 1) == 0);
  CHECK(extinction_probability({.beta = 0, .gamma = 0.1}, 1) == 1);
  CHECK(extinction_probability({.beta = 1, .gamma = 1}, 1) == 1);
  CHECK(extinction_probability({.beta = 0.5, .gamma = 0}, 0) == 1);
  // The smallest root of q = G(q), G(s) = (gamma + (1 - gamma) s)(1 - beta/2 + beta/2 s).
  Rng rng(3);
  for (int trial = 0; trial < 50; ++trial) {
    const ContagionRates rates{.beta = rng.uniform(), .gamma = rng.uniform()};
    const double q = extinction_probability(rates, 1), b = rates.beta / 2;
    CHECK(near((rates.gamma + (1 - rates.gamma) * q) * (1 - b + b * q), q, 1e-12));
    CHECK((q < 1) == (rates.beta > 2 * rates.gamma));
  }
}

TEST_CASE("dynamics.contagion: the rounds of a carrier follow from their definition") {
  for (const double gamma : {0.0, 1e-12, 0.05, 0.3, 0.9, 1.0})
    for (const int slots : {1, 2, 7, 10, 64}) {
      const double a = (1 - gamma) / 2;
      double sum = 0;
      for (int j = slots - 1; j >= 0; --j) sum += std::pow(a / (1 - a), j) / (1 - a);
      INFO("gamma " << gamma << " slots " << slots);
      CHECK(near(detail::carrier_rounds(gamma, slots), sum, 1e-10));
      CHECK(near(effective_rates({.beta = 0.7, .gamma = gamma}, slots).gamma, 1 / sum, 1e-10));
    }
  const ContagionRates effective = effective_rates({.beta = 0.7, .gamma = 0.1, .alpha_q = 0.3, .alpha_a = 0.4}, 5);
  CHECK(effective.beta == 0.7);
  CHECK(effective.alpha_q == 0.3);
  CHECK(effective.alpha_a == 0.4);
}

TEST_CASE("dynamics.contagion: the threshold of albums without purge is beta B = 1") {
  CHECK(endemic_share_album(0.1, 10) == 0);
  CHECK(std::abs(endemic_share_album(0.11, 10) - 0.194) < 5e-4);
  CHECK(std::abs(endemic_share_album(0.15, 10) - 0.628) < 5e-4);
  CHECK(std::abs(endemic_share_album(0.3, 10) - 0.968) < 5e-4);
  CHECK(endemic_share_album(1, 1) == 0);
  CHECK(endemic_share_album(1, 2) == 1);
  CHECK(endemic_share_album(0, 5) == 0);
  for (const double beta : {0.11, 0.15, 0.5, 0.9}) {
    INFO("beta " << beta);
    CHECK(std::abs(mean_field_album(0.5, {.beta = beta}, 10, 4000).back() - endemic_share_album(beta, 10)) < 1e-9);
  }
  CHECK(mean_field_album(0.5, {.beta = 0.09}, 10, 4000).back() < 1e-9);
  // With purge the same turn at R0 = 1.
  CHECK(mean_field_album(0.5, with_filter({.beta = 0.9, .gamma = 0.2}, 0.56), 10, 4000).back() < 1e-6);
  CHECK(mean_field_album(0.5, with_filter({.beta = 0.9, .gamma = 0.2}, 0.53), 10, 4000).back() > 1e-3);
}

TEST_CASE("dynamics.contagion: the criterion is beta <= 2 gamma") {
  const DefenceVerdict verdict = provably_contained({.beta = 0.5, .gamma = 0.2});
  CHECK_FALSE(verdict.contained);
  CHECK(near(verdict.margin, -0.1, 1e-14));
  CHECK(near(verdict.reproduction_number, 1.25, 1e-14));
  CHECK(provably_contained({.beta = 0.5, .gamma = 0.25}).contained);
  CHECK(provably_contained({.beta = 0.5, .gamma = 0.25}).reproduction_number == 1);
  CHECK(provably_contained({.beta = 0, .gamma = 0}).contained);
  CHECK(provably_contained({.beta = 0, .gamma = 0}).reproduction_number == 0);
  CHECK(provably_contained({.beta = 0.1, .gamma = 0}).reproduction_number == infinity);
  const ContagionRates rates{.beta = 0.9, .gamma = 0.2};
  const DefenceVerdict album = provably_contained_album(rates, 10);
  CHECK_FALSE(album.contained);
  CHECK(std::abs(album.reproduction_number - 2.21) < 5e-3);
  CHECK(near(album.margin, 2 * effective_rates(rates, 10).gamma - 0.9, 1e-12));
  CHECK(std::abs(provably_contained_album({.beta = 0.5, .gamma = 0.3}, 10).reproduction_number - 0.83) < 5e-3);
  CHECK(provably_contained_album({.beta = 0.5, .gamma = 0.3}, 10).contained);
  CHECK(provably_contained_album({.beta = 0.1, .gamma = 0}, 10).contained);
}

TEST_CASE("dynamics.contagion: a plan names the least defence that contains") {
  const ContagionRates rates{.beta = 0.5, .gamma = 0.2};
  const DefencePlan plan = plan_defence(rates);
  CHECK_FALSE(plan.now.contained);
  CHECK(plan.purge == 0.25);
  CHECK(near(plan.filter, 0.2, 1e-14));
  CHECK(near(plan.immune, 0.2, 1e-14));
  CHECK(plan.slots == 0);
  CHECK(plan_defence({.beta = 0.3, .gamma = 0.2}).filter == 0);
  CHECK(plan_defence({.beta = 0.3, .gamma = 0.2}).immune == 0);
  CHECK(plan_defence({.beta = 0.3, .gamma = 0}).filter == 1);
  CHECK(plan_defence({.beta = 0, .gamma = 0}).filter == 0);

  Rng rng(4);
  for (int trial = 0; trial < 40; ++trial) {
    const ContagionRates now{.beta = rng.uniform(), .gamma = trial % 4 == 0 ? 0 : rng.uniform()};
    const int slots = 1 + static_cast<int>(rng.below(20));
    const DefencePlan album = plan_defence(now, slots);
    INFO("beta " << now.beta << " gamma " << now.gamma << " slots " << slots);
    const auto number = [&](const ContagionRates& r, int b) { return album_reproduction_number(r, b); };
    CHECK(album.now.reproduction_number == number(now, slots));
    if (album.now.contained) {
      CHECK(album.filter == 0);
      CHECK(album.immune == 0);
      CHECK(album.purge <= now.gamma);
    } else {
      CHECK(near(number(with_filter(now, album.filter), slots), 1, 1e-12));
      CHECK(near(number(with_immune(now, album.immune), slots), 1, 1e-12));
      CHECK(album.purge > now.gamma);
    }
    if (album.purge > 0)
      CHECK(near(number({.beta = now.beta, .gamma = album.purge}, slots), 1, 1e-12));
    else
      CHECK(number({.beta = now.beta}, slots) <= 1);
    CHECK(album.slots >= 1);
    CHECK(number(now, album.slots) <= 1);
    if (album.slots < std::numeric_limits<int>::max()) CHECK(number(now, album.slots + 1) > 1);
  }
  CHECK(plan_defence({.beta = 0.1}, 3).slots == 10);
  CHECK(plan_defence({.beta = 0.4, .gamma = 0.2}, 3).slots == std::numeric_limits<int>::max());
}

TEST_CASE("dynamics.contagion: a filter and immune agents take their share of beta alone") {
  const ContagionRates rates{.beta = 0.8, .gamma = 0.1, .alpha_q = 0.2, .alpha_a = 0.3};
  for (const ContagionRates& less : {with_filter(rates, 0.25), with_immune(rates, 0.25)}) {
    CHECK(near(less.beta, 0.6, 1e-15));
    CHECK(less.gamma == 0.1);
    CHECK(less.alpha_q == 0.2);
    CHECK(less.alpha_a == 0.3);
  }
}

// ---- Estimates --------------------------------------------------------------------------------------------------

TEST_CASE("dynamics.contagion: rates are recovered from the recurrence they made") {
  const ContagionRates rates{.beta = 0.7, .gamma = 0.15};
  const RateEstimate estimate = estimate_rates(mean_field(0.01, rates, 40), 100000);
  CHECK(estimate.identifiable);
  CHECK(std::abs(estimate.beta - 0.7) < 1e-10);
  CHECK(std::abs(estimate.gamma - 0.15) < 1e-10);
  CHECK(std::abs(estimate.growth - 0.2) < 1e-10);
  CHECK(std::abs(estimate.margin() + 0.4) < 1e-10);
  CHECK(estimate.verdict == ContainmentVerdict::spreading);
  CHECK(estimate_rates(mean_field(0.5, {.beta = 0.3, .gamma = 0.4}, 20), 1000).verdict ==
        ContainmentVerdict::contained);
}

TEST_CASE("dynamics.contagion: tiny shares tell the growth rate alone") {
  for (const double gamma : {0.1, 0.4}) {
    const RateEstimate estimate = estimate_rates(mean_field(1e-9, {.beta = 0.6, .gamma = gamma}, 8), 1000000000000);
    CHECK_FALSE(estimate.identifiable);
    CHECK(std::isnan(estimate.beta));
    CHECK(std::isnan(estimate.gamma));
    CHECK(std::isnan(estimate.beta_error));
    CHECK(std::isnan(estimate.gamma_error));
    CHECK(std::abs(estimate.growth - (0.3 - gamma)) < 1e-7);
    CHECK(estimate.verdict == (gamma < 0.3 ? ContainmentVerdict::spreading : ContainmentVerdict::contained));
  }
}

TEST_CASE("dynamics.contagion: standard errors are those of the estimates") {
  // Changes with noise of deviation 0.002 sqrt(c), so that the weights are right.
  Rng rng(5);
  constexpr int runs = 400;
  double mean[3] = {}, square[3] = {}, claimed[3] = {};
  int covered = 0;
  for (int run = 0; run < runs; ++run) {
    std::vector<double> path{0.02};
    for (int t = 0; t < 60; ++t) {
      const double c = path.back();
      path.push_back(c + 0.3 * c * (1 - c) - 0.2 * c + 0.002 * std::sqrt(c) * rng.normal());
    }
    const RateEstimate estimate = estimate_rates(path, 1000000000);
    const double values[] = {estimate.beta, estimate.gamma, estimate.growth};
    const double errors[] = {estimate.beta_error, estimate.gamma_error, estimate.growth_error};
    for (int i = 0; i < 3; ++i) {
      mean[i] += values[i] / runs;
      square[i] += values[i] * values[i] / runs;
      claimed[i] += errors[i] / runs;
    }
    covered += std::abs(estimate.growth - 0.1) <= 1.959963984540054 * estimate.growth_error;
  }
  for (int i = 0; i < 3; ++i) {
    INFO("parameter " << i);
    CHECK(std::abs(std::sqrt(square[i] - mean[i] * mean[i]) / claimed[i] - 1) < 0.15);  // four errors of a deviation
  }
  CHECK(std::abs(covered - 0.95 * runs) < 4 * std::sqrt(runs * 0.95 * 0.05));
}

TEST_CASE("dynamics.contagion: estimates stay within 0 and 1 and are the best point there") {
  // Growth faster than any beta <= 1 allows, and shares that rise as if gamma were negative.
  const std::vector<std::vector<double>> traces{
      {0.1, 0.2, 0.4, 0.7, 0.95}, {0.5, 0.6, 0.72, 0.9}, {0.9, 0.1, 0.01, 0.001}, {0.2, 0.21, 0.19, 0.2, 0.22}};
  for (const std::vector<double>& share : traces) {
    const RateEstimate estimate = estimate_rates(share, 1000);
    CHECK((estimate.beta >= 0 && estimate.beta <= 1 && estimate.gamma >= 0 && estimate.gamma <= 1));
    const auto residual = [&](double b, double g) {
      double sum = 0;
      for (std::size_t t = 0; t + 1 < share.size(); ++t) {
        const double c = share[t], r = share[t + 1] - c - b * c * (1 - c) / 2 + g * c;
        sum += r * r / std::max(c, 1e-3);
      }
      return sum;
    };
    double best = infinity;
    for (int i = 0; i <= 200; ++i)
      for (int j = 0; j <= 200; ++j) best = std::min(best, residual(i / 200.0, j / 200.0));
    CHECK(residual(estimate.beta, estimate.gamma) <= best * (1 + 1e-12));
  }
  const RateEstimate flat = estimate_rates(std::vector<double>{0.2, 0.21, 0.19, 0.2, 0.22}, 1000);
  CHECK(flat.verdict == ContainmentVerdict::undecided);
}

TEST_CASE("dynamics.contagion: bad arguments are named") {
  const auto text = [](auto&& f) { return message_of<InvalidArgument>(f); };
  const auto rates = [&](const ContagionRates& bad) { return text([&] { (void)mean_field(0.1, bad, 3); }); };
  CHECK(rates({.beta = 1.5}) == "mean_field: beta must be between 0 and 1, got 1.5");
  CHECK(rates({.beta = -0.5}) == "mean_field: beta must be between 0 and 1, got -0.5");
  CHECK(rates({.gamma = 2}) == "mean_field: gamma must be between 0 and 1, got 2");
  CHECK(rates({.alpha_q = -1}) == "mean_field: alpha_q must be between 0 and 1, got -1");
  CHECK(rates({.alpha_a = NAN}) == "mean_field: alpha_a must be between 0 and 1, got nan");
  const ContagionRates good{.beta = 0.5, .gamma = 0.1}, bad{.beta = 2};
  const std::string beta = ": beta must be between 0 and 1, got 2";
  CHECK(text([&] {
          (void)mean_field(
              0.1, [&](Index) { return bad; }, 3);
        }) == "mean_field" + beta);
  CHECK(text([&] { (void)logistic_share(0.1, bad, 3); }) == "logistic_share" + beta);
  CHECK(text([&] { (void)endemic_share(bad); }) == "endemic_share" + beta);
  CHECK(text([&] { (void)time_to_share(0.1, 0.2, bad); }) == "time_to_share" + beta);
  CHECK(text([&] { (void)extinction_probability(bad, 1); }) == "extinction_probability" + beta);
  CHECK(text([&] { (void)album_reproduction_number(bad, 1); }) == "album_reproduction_number" + beta);
  CHECK(text([&] { (void)effective_rates(bad, 1); }) == "effective_rates" + beta);
  CHECK(text([&] { (void)mean_field_album(0.1, bad, 1, 1); }) == "mean_field_album" + beta);
  CHECK(text([&] { (void)endemic_share_album(2, 1); }) == "endemic_share_album" + beta);
  CHECK(text([&] { (void)provably_contained(bad); }) == "provably_contained" + beta);
  CHECK(text([&] { (void)provably_contained_album(bad, 1); }) == "provably_contained_album" + beta);
  CHECK(text([&] { (void)with_filter(bad, 0.1); }) == "with_filter" + beta);
  CHECK(text([&] { (void)with_immune(bad, 0.1); }) == "with_immune" + beta);
  CHECK(text([&] { (void)plan_defence(bad); }) == "plan_defence" + beta);

  CHECK(text([&] { (void)mean_field(1.5, good, 3); }) == "mean_field: c0 must be between 0 and 1, got 1.5");
  CHECK(text([&] { (void)mean_field(0.1, good, -1); }) == "mean_field: rounds must be not negative, got -1");
  CHECK(text([&] { (void)logistic_share(-0.5, good, 3); }) == "logistic_share: c0 must be between 0 and 1, got -0.5");
  CHECK(text([&] { (void)logistic_share(0.1, good, -3); }) ==
        "logistic_share: t must be finite and not negative, got -3");
  CHECK(text([&] { (void)time_to_share(2, 0.2, good); }) == "time_to_share: c0 must be between 0 and 1, got 2");
  CHECK(text([&] { (void)time_to_share(0.1, 1.5, good); }) == "time_to_share: target must be between 0 and 1, got 1.5");
  CHECK(text([&] { (void)linear_share(0, 1); }) == "linear_share: agents must be at least 1, got 0");
  CHECK(text([&] { (void)linear_share(1, -1); }) == "linear_share: t must be not negative, got -1");
  CHECK(text([&] { (void)extinction_probability(good, -1); }) ==
        "extinction_probability: carriers must be not negative, got -1");
  CHECK(text([&] { (void)mean_field_album(1.5, good, 3, 1); }) ==
        "mean_field_album: c0 must be between 0 and 1, got 1.5");
  CHECK(text([&] { (void)mean_field_album(0.1, good, 3, -1); }) ==
        "mean_field_album: rounds must be not negative, got -1");
  const std::string slots = ": slots must be at least 1, got 0";
  CHECK(text([&] { (void)album_reproduction_number(good, 0); }) == "album_reproduction_number" + slots);
  CHECK(text([&] { (void)effective_rates(good, 0); }) == "effective_rates" + slots);
  CHECK(text([&] { (void)mean_field_album(0.1, good, 0, 1); }) == "mean_field_album" + slots);
  CHECK(text([&] { (void)endemic_share_album(0.1, 0); }) == "endemic_share_album" + slots);
  CHECK(text([&] { (void)provably_contained_album(good, 0); }) == "provably_contained_album" + slots);
  CHECK(text([&] { (void)plan_defence(good, -1); }) == "plan_defence: slots must be not negative, got -1");
  CHECK(text([&] { (void)with_filter(good, 1.5); }) == "with_filter: share must be between 0 and 1, got 1.5");
  CHECK(text([&] { (void)with_immune(good, -1); }) == "with_immune: share must be between 0 and 1, got -1");
  CHECK(text([&] {
          (void)estimate_rates(std::vector<double>{0.1, 0.2, 0.3, 0.4}, 0);
        }) == "estimate_rates: agents must be at least 1, got 0");
  CHECK(text([&] {
          (void)estimate_rates(std::vector<double>{0.1, 1.5, 0.3, 0.4}, 10);
        }) == "estimate_rates: share[1] must be between 0 and 1, got 1.5");
  CHECK(text([&] {
          (void)estimate_rates(std::vector<double>{0, 0.2, 0.3, 1, 0.5}, 10);
        }) == "estimate_rates: needs at least 3 rounds that start with a share between 0 and 1, got 2");
  CHECK(text([&] { (void)estimate_rates({}, 10); }) ==
        "estimate_rates: needs at least 3 rounds that start with a share between 0 and 1, got 0");
}

}  // namespace
}  // namespace ashlar::dynamics
