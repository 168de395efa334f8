#include "ashlar/bandits/linear_ucb.hpp"

#include <cmath>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::bandits {
namespace {

using test::message_of;

TEST_CASE("bandits.linear_ucb: SupLinUCB plays the trace of the fixture") {
  const auto means = test::fixture("low_rank_bandit/sup_M");
  const auto phi = test::fixture("low_rank_bandit/sup_phi"), noise = test::fixture("low_rank_bandit/sup_eps");
  const auto contexts = test::fixture<std::int64_t>("low_rank_bandit/sup_ctx"),
             actions = test::fixture<std::int64_t>("low_rank_bandit/sup_actions"),
             levels = test::fixture<std::int64_t>("low_rank_bandit/sup_levels");
  const Index rounds = contexts.size();
  SupLinUCB bandit(phi.extent(2), rounds, {.alpha = 0.5});
  CHECK(bandit.levels() == 12);
  Index same = 0;
  for (Index t = 0; t < rounds; ++t) {
    const auto i = static_cast<Index>(contexts.data()[t]);
    const Index arm = bandit.choose(phi.view<3>()[i]);
    bandit.observe(means.view<2>()(i, arm) + noise.data()[t]);
    const bool agree = arm == actions.data()[t] && bandit.level() == levels.data()[t];
    same += agree;
    if (t < 500) REQUIRE(agree);
  }
  CHECK(same >= rounds * 99 / 100);
}

TEST_CASE("bandits.linear_ucb: the fast form takes the decisions of the reference") {
  const auto seed = GENERATE(1u, 2u);
  INFO("seed " << seed);
  Rng rng(seed);
  const Vector<double> theta = normal_matrix<double>(rng, 3, 1);
  constexpr std::int64_t rounds = 1500;  // more than 512 updates of a level
  SupLinUCB fast(3, rounds, {.alpha = 0.7, .ridge = 2});
  reference::SupLinUCB slow(3, rounds, {.alpha = 0.7, .ridge = 2});
  Index differences = 0, explored = 0;
  for (std::int64_t t = 0; t < rounds; ++t) {
    const Matrix<double> x = normal_matrix<double>(rng, 6, 3);
    const Index arm = fast.choose(x), other = slow.choose(x);
    differences += arm != other || fast.level() != slow.level();
    explored += fast.level() > 0;
    const double reward = x.row(arm).dot(theta) + 0.1 * rng.normal();
    fast.observe(reward);
    slow.observe(reward);
  }
  // No ties among random features: a decision could flip only where two numbers meet to 1e-12.
  CHECK(differences == 0);
  CHECK(explored > 600);
}

TEST_CASE("bandits.linear_ucb: rank-one updates and new factors give the same estimate") {
  Rng rng(3);
  detail::OnlineRidge online(4, 0.5);
  Eigen::MatrixXd gram = 0.5 * Eigen::MatrixXd::Identity(4, 4);
  Vector<double> moment = Vector<double>::Zero(4);
  for (int t = 0; t < 1100; ++t) {
    const Vector<double> x = normal_matrix<double>(rng, 4, 1);
    const double reward = rng.normal();
    online.add(x, reward);
    gram += x * x.transpose();
    moment += reward * x;
    if (t % 100 == 11 || t == 511) {
      // Condition below 10^4 and 600 updates of rounding 1e-16.
      CHECK((online.theta - gram.ldlt().solve(moment)).norm() <= 1e-9);
      CHECK((online.inverse * gram - Eigen::MatrixXd::Identity(4, 4)).norm() <= 1e-9);
    }
  }
}

TEST_CASE("bandits.linear_ucb: LinUCB adds beta times the width") {
  Matrix<double> x(2, 2);
  x << 1, 0, 0, 1;
  LinUCB bandit(2, {.beta = 1, .ridge = 1});
  CHECK(bandit.choose(x) == 0);  // a tie
  bandit.observe(1.2);           // theta_0 = 0.6, width sqrt(1/2): 1.307 beside 1
  CHECK(std::abs(bandit.theta()[0] - 0.6) <= 1e-15);
  CHECK(bandit.choose(x) == 0);
  bandit.observe(0);  // theta_0 = 0.4, width sqrt(1/3): 0.977 beside 1
  CHECK(bandit.choose(x) == 1);
}

TEST_CASE("bandits.linear_ucb: bad input is named") {
  CHECK(message_of<InvalidArgument>([] { SupLinUCB(0, 10); }) == "SupLinUCB: dim must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([] { SupLinUCB(2, 0); }) == "SupLinUCB: horizon must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([] { SupLinUCB(2, 9, {.alpha = -1}); }) ==
        "SupLinUCB: alpha must be finite and not negative, got -1");
  CHECK(message_of<InvalidArgument>([] { LinUCB(2, {.ridge = 0}); }) ==
        "LinUCB: ridge must be finite and positive, got 0");
  SupLinUCB robust(2, 10);
  LinUCB simple(2);
  CHECK(message_of<InvalidArgument>([&] { robust.observe(1); }) ==
        "SupLinUCB::observe: no choice is waiting for a reward");
  CHECK(message_of<InvalidArgument>([&] { simple.observe(1); }) ==
        "LinUCB::observe: no choice is waiting for a reward");
  const Matrix<double> wide = Matrix<double>::Ones(2, 3), none(0, 2);
  CHECK(message_of<InvalidArgument>([&] { robust.choose(wide); }) ==
        "SupLinUCB::choose: features has shape [2,3], expected [2,2] (one row an arm)");
  CHECK(message_of<InvalidArgument>([&] { simple.choose(none); }) ==
        "LinUCB::choose: features has no row, expected one an arm");
  Matrix<double> bad = Matrix<double>::Ones(2, 2);
  robust.choose(bad);
  CHECK(message_of<InvalidArgument>([&] { robust.observe(std::nan("")); }) ==
        "SupLinUCB::observe: reward must be finite, got nan");
  bad(1, 0) = std::nan("");
  CHECK(message_of<InvalidArgument>([&] { robust.choose(bad); }) ==
        "SupLinUCB::choose: features[1,0] must be finite, got nan");
}

}  // namespace
}  // namespace ashlar::bandits
