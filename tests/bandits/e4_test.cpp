#include "ashlar/bandits/e4.hpp"

#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"
#include "support/threads.hpp"

namespace ashlar::bandits {
namespace {

using test::message_of;
using Counts = std::vector<std::int64_t>;

static_assert(BatchedAlgorithm<E4>);

LinearBandit fixture_bandit(const std::string& name, double sigma) {
  const auto theta = test::fixture("e4_bandit/" + name + "_theta");
  return {test::fixture("e4_bandit/" + name + "_X").matrix(), vector(theta.view<1>()), sigma};
}

/// Rewards without noise.
std::vector<double> exact_sums(const BatchPlan& plan, const LinearBandit& bandit) {
  const Vector<double> means = bandit.means();
  std::vector<double> sums;
  for (std::size_t i = 0; i < plan.arms.size(); ++i)
    sums.push_back(static_cast<double>(plan.counts[i]) * means[plan.arms[i]]);
  return sums;
}

TEST_CASE("bandits.e4: noise-free runs follow the trace of the oracle") {
  const auto trace = test::fixture("e4_bandit/noisefree_trace");
  Index row = 0;
  for (const std::string name :
       {"eoo_d2_e001", "eoo_d2_e03", "eoo_d3_e02", "eoo_d5_e001", "rand_k9_d5", "rand_k50_d20", "duplicates_k6_d3"}) {
    const LinearBandit bandit = fixture_bandit(name, 0);
    for (const std::int64_t horizon : {10000, 50000})
      for (const E4Preset preset : {E4Preset::practical, E4Preset::theory}) {
        INFO(name << " horizon " << horizon << " preset " << static_cast<int>(preset));
        const double* expected = trace.view<2>()[row++].data();
        REQUIRE(expected[0] == static_cast<double>(horizon));
        REQUIRE(expected[1] == (preset == E4Preset::practical ? 0 : 1));
        E4 algorithm(bandit.arms, horizon, {.preset = preset});
        Rng rng(0);
        const RunResult run = simulate(algorithm, bandit, rng);
        CHECK(std::abs(run.regret - expected[2]) <= 1e-3 * expected[2] + 2);
        CHECK(static_cast<double>(run.batches) == expected[3]);
        const BatchReport& second = algorithm.state().reports[1];
        CHECK(second.tested);
        CHECK(std::abs(second.statistic - expected[4]) <= 0.01 * expected[4]);
        CHECK(std::abs(second.threshold - expected[5]) <= 1e-3 * expected[5]);
        CHECK(bandit.gaps()[run.best_arm] == 0);
      }
  }
}

TEST_CASE("bandits.e4: elimination keeps the arms of the fixture") {
  detail::Trial trial("test", test::fixture("e4_bandit/elim_X").view<2>(), 100, {});
  const auto theta = test::fixture("e4_bandit/elim_theta");
  const auto keep = test::fixture<std::int64_t>("e4_bandit/elim_keep");
  trial.set_theta(vector(theta.view<1>()));
  trial.eliminate(test::fixture("e4_bandit/elim_eps").data()[0]);
  CHECK(trial.state().active == std::vector<Index>(keep.data(), keep.data() + keep.size()));
}

TEST_CASE("bandits.e4: the theory preset needs a fourth batch at every horizon that a computer can count") {
  const LinearBandit bandit{Matrix<double>::Identity(2, 2), Vector<double>::Unit(2, 0), 0};
  std::vector<double> ratios;
  for (const std::int64_t horizon : {1000LL, 10000LL, 1000000LL, 100000000LL, 1000000000000LL, 1000000000000000000LL}) {
    E4 algorithm(bandit.arms, horizon, {.preset = E4Preset::theory});
    Rng rng(0);
    CHECK(simulate(algorithm, bandit, rng).batches == 4);
    const BatchReport& second = algorithm.state().reports[1];
    ratios.push_back(second.statistic / second.threshold);
  }
  CHECK(std::abs(ratios[1] / 0.859 - 1) <= 0.01);
  CHECK(std::abs(ratios[3] / 0.925 - 1) <= 0.01);
  CHECK(std::abs(ratios[5] / 0.963 - 1) <= 0.01);
  CHECK(std::is_sorted(ratios.begin(), ratios.end()));
  CHECK(ratios.back() < 1);
}

TEST_CASE("bandits.e4: a run uses the horizon exactly and never plans an empty batch") {
  Rng rng(1);
  for (const E4Preset preset : {E4Preset::practical, E4Preset::theory})
    for (const E4Schedule schedule : {E4Schedule::minimax, E4Schedule::geometric})
      for (const std::int64_t horizon : {1, 2, 3, 7, 15, 16, 100, 3000, 100000}) {
        INFO("horizon " << horizon << " preset " << static_cast<int>(preset) << " schedule "
                        << static_cast<int>(schedule));
        const LinearBandit bandit = random_instance(rng.below(12) + 1, rng.below(4) + 1, rng);
        E4 algorithm(bandit.arms, horizon, {.preset = preset, .schedule = schedule});
        std::int64_t pulls = 0;
        while (const auto plan = algorithm.ask()) {
          REQUIRE(plan->total() > 0);
          REQUIRE(*std::min_element(plan->counts.begin(), plan->counts.end()) > 0);
          pulls += plan->total();
          std::vector<double> sums = exact_sums(*plan, bandit);
          for (double& sum : sums) sum += rng.normal();
          algorithm.tell(sums);
        }
        CHECK(pulls == horizon);
        CHECK(algorithm.state().pulls == horizon);
        CHECK(algorithm.ask() == std::nullopt);
        CHECK(algorithm.best_arm() >= 0);
      }
}

TEST_CASE("bandits.e4: the geometric schedule doubles the rate of every elimination batch") {
  // Two arms that no batch can tell apart: elimination goes on to the horizon.
  const LinearBandit bandit{Matrix<double>::Identity(2, 2), Vector<double>::Ones(2), 0};
  E4 algorithm(bandit.arms, 1000000, {.schedule = E4Schedule::geometric});
  Rng rng(0);
  simulate(algorithm, bandit, rng);
  const auto& reports = algorithm.state().reports;
  REQUIRE(reports.size() > 5);
  const double first = 2 * (std::log(2.0) + 2 * std::log(1e6)) * 4;  // d log(K T^2) 2^(3-1)
  for (std::size_t i = 2; i + 1 < reports.size(); ++i) {
    const double rate = first * std::exp2(static_cast<double>(i) - 2);
    CHECK(std::abs(static_cast<double>(reports[i].plan.total()) - 2 * rate) <= 3);
  }
}

TEST_CASE("bandits.e4: degenerate arms end at the horizon") {
  Rng rng(2);
  SECTION("a single arm takes one batch") {
    const LinearBandit bandit{Matrix<double>::Ones(1, 2), Vector<double>::Ones(2)};
    E4 algorithm(bandit.arms, 500);
    const RunResult run = simulate(algorithm, bandit, rng);
    CHECK(run.batches == 1);
    CHECK(run.best_arm == 0);
    CHECK(run.regret == 0);
  }
  SECTION("identical arms cost nothing whichever is pulled") {
    const LinearBandit bandit{Matrix<double>::Ones(4, 3), Vector<double>::Ones(3)};
    E4 algorithm(bandit.arms, 5000);
    CHECK(simulate(algorithm, bandit, rng).regret == 0);
    CHECK(algorithm.state().pulls == 5000);
  }
  SECTION("zero arms alone are committed to at once") {
    const LinearBandit bandit{Matrix<double>::Zero(3, 2), Vector<double>::Ones(2)};
    for (const E4Preset preset : {E4Preset::practical, E4Preset::theory}) {
      E4 algorithm(bandit.arms, 100, {.preset = preset});
      simulate(algorithm, bandit, rng);
      CHECK(algorithm.state().pulls == 100);
    }
  }
  SECTION("a zero arm can be the best although no design pulls it") {
    LinearBandit bandit{Matrix<double>::Zero(3, 2), -Vector<double>::Ones(2)};
    bandit.arms.bottomRows(2).setIdentity();
    E4 algorithm(bandit.arms, 100000);
    CHECK(simulate(algorithm, bandit, rng).best_arm == 0);
  }
}

TEST_CASE("bandits.e4: a trial resumed from text after any step goes on to the last bit") {
  Rng rng(3);
  const LinearBandit bandit = random_instance(9, 4, rng);
  for (const E4Preset preset : {E4Preset::practical, E4Preset::theory}) {
    const E4Options options{.preset = preset};
    E4 whole(bandit.arms, 20000, options);
    Rng noise(5);
    simulate(whole, bandit, noise);
    E4 parts(bandit.arms, 20000, options);
    Rng again(5);
    while (const auto plan = parts.ask()) {
      parts = E4(bandit.arms, options, trial_state_from_text(to_text(parts.state())));
      REQUIRE(parts.ask() == plan);
      std::vector<double> sums;
      for (std::size_t i = 0; i < plan->arms.size(); ++i) {
        const auto count = static_cast<double>(plan->counts[i]);
        sums.push_back(again.normal(count * bandit.means()[plan->arms[i]], std::sqrt(count)));
      }
      parts.tell(sums);
      parts = E4(bandit.arms, options, trial_state_from_text(to_text(parts.state())));
    }
    CHECK(parts.state() == whole.state());
    CHECK(parts.best_arm() == whole.best_arm());
  }
}

TEST_CASE("bandits.e4: a seed gives the same run for any number of threads") {
  const LinearBandit bandit = end_of_optimism(5, 0.01);
  const auto run = [&](int threads) {
    return test::with_threads(threads, [&] {
      E4 algorithm(bandit.arms, 50000);
      Rng rng(7);
      simulate(algorithm, bandit, rng);
      return algorithm.state();
    });
  };
  CHECK(run(1) == run(4));
}

TEST_CASE("bandits.e4: noise and means that double together change no plan") {
  const LinearBandit one = end_of_optimism(3, 0.1);
  LinearBandit two = one;
  two.theta *= 2;
  two.sigma = 2;
  for (const E4Preset preset : {E4Preset::practical, E4Preset::theory}) {
    E4 a(one.arms, 30000, {.preset = preset}), b(one.arms, 30000, {.preset = preset, .sigma = 2});
    Rng rng_a(8), rng_b(8);
    simulate(a, one, rng_a);
    simulate(b, two, rng_b);
    REQUIRE(a.state().reports.size() == b.state().reports.size());
    for (std::size_t i = 0; i < a.state().reports.size(); ++i) CHECK(a.state().reports[i] == b.state().reports[i]);
  }
}

TEST_CASE("bandits.e4: prior data are credited to the first batch") {
  const LinearBandit bandit = end_of_optimism(2, 0.2);
  E4 fresh(bandit.arms, 10000);
  const BatchPlan first = *fresh.ask();
  PriorData prior{Counts(3, 0), std::vector<double>(3, 0)};
  for (std::size_t i = 0; i < first.arms.size(); ++i) {
    const auto arm = static_cast<std::size_t>(first.arms[i]);
    prior.counts[arm] = first.counts[i] - 1;
    prior.reward_sums[arm] = static_cast<double>(prior.counts[arm]) * bandit.means()[first.arms[i]];
  }
  SECTION("what is missing is pulled") {
    E4 warm(bandit.arms, 10000, {}, prior);
    const BatchPlan rest = *warm.ask();
    CHECK(rest.arms == first.arms);
    CHECK(rest.counts == Counts(first.arms.size(), 1));
    // Then the second batch is that of a trial that pulled everything itself.
    warm.tell(exact_sums(rest, bandit));
    fresh.tell(exact_sums(first, bandit));
    CHECK(warm.ask() == fresh.ask());
    CHECK(warm.state().pulls == static_cast<std::int64_t>(first.arms.size()));
  }
  SECTION("enough of it replaces the batch") {
    for (std::size_t i = 0; i < 3; ++i)
      prior.counts[i] += 1, prior.reward_sums[i] += bandit.means()[static_cast<Index>(i)];
    for (const E4Preset preset : {E4Preset::practical, E4Preset::theory}) {
      E4 warm(bandit.arms, 10000, {.preset = preset}, prior);
      REQUIRE(warm.ask());
      CHECK(warm.state().stage == 2);
      Rng rng(9);
      const RunResult run = simulate(warm, bandit, rng);
      CHECK(run.best_arm == 0);
      CHECK(warm.state().pulls == 10000);
    }
  }
}

TEST_CASE("bandits.e4: asking twice gives the same plan and a refused tell changes nothing") {
  const LinearBandit bandit = end_of_optimism(2, 0.1);
  E4 algorithm(bandit.arms, 10000);
  CHECK(message_of<InvalidArgument>([&] { algorithm.tell(std::vector<double>{}); }) ==
        "E4::tell: there is no plan to tell about; call ask() first");
  CHECK(message_of<InvalidArgument>([&] { (void)algorithm.best_arm(); }) == "E4::best_arm: nothing has been told yet");
  const BatchPlan plan = *algorithm.ask();
  CHECK(algorithm.ask() == plan);
  const TrialState before = algorithm.state();
  CHECK(message_of<InvalidArgument>([&] { algorithm.tell(std::vector<double>{1}); }) ==
        message("E4::tell: reward_sums has shape [1], expected [", plan.arms.size(), "] (one sum an arm of the plan)"));
  std::vector<double> sums = exact_sums(plan, bandit);
  sums.back() = NAN;
  CHECK(message_of<InvalidArgument>([&] { algorithm.tell(sums); }) ==
        "E4::tell: every reward sum must be finite, got nan");
  CHECK(algorithm.state() == before);
  algorithm.tell(exact_sums(plan, bandit));
  CHECK(algorithm.best_arm() == 0);
}

TEST_CASE("bandits.e4: a plan beyond the horizon shrinks in proportion and not in arm order") {
  Counts counts{10, 20, 30, 40};
  detail::fit(counts, 50);
  CHECK(counts == Counts{5, 10, 15, 20});
  counts = {3, 3, 3, 1};  // 2.1 2.1 2.1 0.7: the largest remainder is the last
  detail::fit(counts, 7);
  CHECK(counts == Counts{2, 2, 2, 1});
  counts = {1, 1, 1};
  detail::fit(counts, 2);  // ties in order
  CHECK(counts == Counts{1, 1, 0});
  counts = {1, 2};
  detail::fit(counts, 5);
  CHECK(counts == Counts{1, 2});
  const std::int64_t huge = std::int64_t{1} << 61;
  counts = {huge, huge - 1, huge};
  detail::fit(counts, (std::int64_t{1} << 60) - 1);
  CHECK(counts[0] + counts[1] + counts[2] == (std::int64_t{1} << 60) - 1);
  CHECK(counts[0] - counts[1] <= 1);
}

TEST_CASE("bandits.e4: a tell that fails half way leaves the state as it was") {
  detail::Trial trial("test", Matrix<double>::Identity(2, 2).eval(), 100, {{1, 2}, {0.1, 0.2}});
  trial.offer(std::vector<Index>{0, 1}, Counts{5, 6});
  trial.set_theta(Vector<double>::Ones(2));
  const TrialState before = trial.state();
  CHECK_THROWS_AS(trial.tell(std::vector<double>{0.7, 1e-9},
                             [&](const auto&, const auto&) {
                               ++trial.state().stage;
                               trial.state().active = {1};
                               trial.set_theta(Vector<double>::Zero(2));
                               throw NumericalError("no");
                             }),
                  NumericalError);
  CHECK(trial.state() == before);
}

TEST_CASE("bandits.e4: bad input is named") {
  const Matrix<double> arms = Matrix<double>::Identity(2, 2);
  const auto with = [&](std::int64_t horizon, const E4Options& options = {}, const PriorData& prior = {}) {
    return message_of<InvalidArgument>([&] { E4(arms, horizon, options, prior); });
  };
  CHECK(with(0) == "E4: horizon must be between 1 and 2^60, got 0");
  CHECK(with(100, {.gamma = 0}) == "E4: gamma must be finite and positive, got 0");
  CHECK(with(100, {.ridge = 0}) == "E4: ridge must be finite and positive, got 0");
  CHECK(with(100, {.sigma = -1}) == "E4: sigma must be finite and positive, got -1");
  CHECK(with(100, {.design = {.tolerance = 0}}) == "d_optimal_design: tolerance must be positive, got 0");
  CHECK(with(100, {.allocation = {.tolerance = 0}}) == "asymptotic_allocation: tolerance must be positive, got 0");
  CHECK(with(100, {}, {{1}, {1, 2}}) == "E4: counts has shape [1], expected [2] (one count an arm)");
  CHECK(with(100, {}, {{1, 1}, {1}}) == "E4: reward_sums has shape [1], expected [2] (one sum an arm)");
  CHECK(with(100, {}, {{1, -1}, {1, 2}}) == "E4: every count must be not negative, got -1");
  CHECK(with(100, {}, {{1, 1}, {1, NAN}}) == "E4: every reward sum must be finite, got nan");
  CHECK(message_of<InvalidArgument>([] { E4(Matrix<double>(0, 3), 10); }) ==
        "E4: arms has shape [0,3], expected at least one arm and one dimension");
  CHECK(message_of<InvalidArgument>([] { E4(Matrix<double>(3, 0), 10); }) ==
        "E4: arms has shape [3,0], expected at least one arm and one dimension");
  CHECK(message_of<InvalidArgument>([] { E4(Matrix<double>::Constant(1, 1, NAN).eval(), 10); }) ==
        "E4: arms must be finite, got nan at [0,0]");
}

TEST_CASE("bandits.e4: a state that does not fit is refused") {
  const Matrix<double> arms = Matrix<double>::Identity(2, 2);
  E4 algorithm(arms, 100);
  algorithm.ask();
  const TrialState good = algorithm.state();
  const auto with = [&](auto edit) {
    TrialState state = good;
    edit(state);
    return message_of<InvalidArgument>([&] { E4(arms, {}, state); });
  };
  CHECK(with([](TrialState&) {}) == "nothing thrown");
  CHECK(with([](TrialState& s) { s.counts.pop_back(); }) ==
        "E4: counts has shape [1], expected [2] (one count an arm)");
  CHECK(with([](TrialState& s) { s.reward_sums.push_back(0); }) ==
        "E4: reward_sums has shape [3], expected [2] (one sum an arm)");
  CHECK(with([](TrialState& s) { s.horizon = 0; }) == "E4: horizon must be between 1 and 2^60, got 0");
  CHECK(with([](TrialState& s) { s.pulls = 1; }) ==
        "E4: pulls must be at most the horizon and the sum of the counts, got 1");
  CHECK(with([](TrialState& s) { s.stage = 0; }) == "E4: stage must be at least 1, got 0");
  CHECK(with([](TrialState& s) { s.theta = {1}; }) == "E4: theta has 1 entries, expected none or 2");
  CHECK(with([](TrialState& s) { s.theta = {1, NAN}; }) == "E4: theta must be finite, got nan");
  CHECK(with([](TrialState& s) { s.stage = 2; }) == "E4: theta is missing at stage 2");
  for (const auto& twice : {std::vector<Index>{0, 0}, std::vector<Index>{1, 0}})
    CHECK(with([&](TrialState& s) { s.active = twice; }) ==
          "E4: active and planned arms must be listed once each, in ascending order");
  CHECK(with([](TrialState& s) {
          s.pending.arms = {1, 0};
        }) == "E4: active and planned arms must be listed once each, in ascending order");
  CHECK(with([](TrialState& s) { s.active.clear(); }) == "E4: no arm is active");
  CHECK(with([](TrialState& s) { s.active = {2}; }) == "E4: every active arm must be the index of an arm, got 2");
  CHECK(with([](TrialState& s) { s.pending.arms[0] = -1; }) ==
        "E4: every planned arm must be the index of an arm, got -1");
  CHECK(with([](TrialState& s) { s.pending.counts[0] = 0; }) ==
        "E4: every planned count must be positive and within the horizon, got 0");
  CHECK(with([](TrialState& s) { s.pending.counts[1] = 100; }) ==
        "E4: every planned count must be positive and within the horizon, got 100");
  CHECK(with([](TrialState& s) {
          s.pending.arms = {0, 7};
        }) == "E4: every planned arm must be the index of an arm, got 7");
  CHECK(with([](TrialState& s) { s.pending.counts.pop_back(); }) == "E4: the pending plan has 2 arms and 1 counts");
  CHECK(with([](TrialState& s) { s.counts[0] = (std::int64_t{1} << 60) + 1; }) ==
        "E4: the sum of the counts must be at most 2^60, got 1152921504606846977");
}

}  // namespace
}  // namespace ashlar::bandits
