#include "ashlar/bandits/singular_subspaces.hpp"

#include <limits>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/low_rank_case.hpp"

namespace ashlar::bandits {
namespace {

using test::LowRankCase;
using test::message_of;

TEST_CASE("bandits.singular_subspaces: weights and truncation and errors of the fixtures") {
  for (const std::string name : {"a", "b", "r1", "sparse"}) {
    INFO(name);
    const LowRankCase c = test::low_rank_case(name);
    const Matrix<double> weighted = ipw_matrix(c.log, joint_weights(c.rho, c.behavior));
    CHECK((weighted - c.weighted).cwiseAbs().maxCoeff() <= 1e-12);
    const auto expected = test::fixture("low_rank_bandit/" + name + "_sv");
    const Subspaces dense = recover_subspaces(weighted, c.rank);
    CHECK((dense.singular_values - vector(expected.view<1>())).cwiseAbs().maxCoeff() <= 1e-10);
    CHECK(dense.status == SubspaceStatus::determined);
    CHECK((dense.approximation() - c.approximation).cwiseAbs().maxCoeff() <= 1e-10);
    const Subspaces truth = recover_subspaces(c.means, c.rank);
    CHECK(std::abs(subspace_error(truth.u, dense.u) - c.scalars[7]) <= 1e-7);
    CHECK(std::abs(subspace_error(truth.v, dense.v) - c.scalars[8]) <= 1e-7);
    const double worst = misspecification(c.means, dense).cwiseAbs().maxCoeff();
    CHECK(std::abs(worst - c.scalars[9]) <= 1e-7);
    const double bound = misspecification_bound(truth, dense);
    CHECK(worst <= bound * (1 + 1e-12));
    if (c.rank == 1) CHECK(worst >= bound * (1 - 1e-12));
    // The randomised form stops at a residual of 1e-9 sigma_1.
    const Subspaces random = recover_subspaces(weighted, c.rank, SvdMethod::randomized);
    const double gap = dense.singular_values[c.rank - 1] - dense.singular_values[c.rank];
    CHECK((random.u * random.u.transpose() - dense.u * dense.u.transpose()).norm() <=
          1e-8 * dense.singular_values[0] / gap);
  }
}

TEST_CASE("bandits.singular_subspaces: the weights are unbiased") {
  const auto seed = GENERATE(1u, 2u);
  INFO("seed " << seed);
  Rng rng(seed);
  LowRankInstance instance = uniform_factors_instance(3, 4, 2, rng);
  instance.rho << 0.5, 0.3, 0.2;
  instance.sigma = 0.5;
  const Matrix<double> policy = favoured_arm_policy(3, 4, 0.6), weights = joint_weights(instance.rho, policy);
  constexpr int runs = 2000;
  Matrix<double> sum = Matrix<double>::Zero(3, 4), squares = sum;
  for (int run = 0; run < runs; ++run) {
    const Matrix<double> x = ipw_matrix(simulate_log(instance, policy, 20, rng), weights);
    sum += x;
    squares += x.cwiseAbs2();
  }
  const Matrix<double> mean = sum / runs, variance = squares / runs - mean.cwiseAbs2();
  const Matrix<double> z = (mean - instance.means).cwiseQuotient((variance / runs).cwiseSqrt());
  CHECK(z.cwiseAbs().maxCoeff() < 4.5);  // of 12 normals: once in 12000 seeds
}

TEST_CASE("bandits.singular_subspaces: the choice of a rank is right for a wide gap and never too large") {
  const auto seed = GENERATE(1u, 2u, 3u);
  INFO("seed " << seed);
  Rng rng(seed);
  const LowRankInstance instance = diagonally_dominant_instance(30, 30, 2, rng);
  const Matrix<double> policy = uniform_policy(30, 30), weights = joint_weights(instance.rho, policy);
  for (const Index rounds : {Index{1000}, Index{5000}, Index{200000}}) {
    const OwnedLog log = simulate_log(instance, policy, rounds, rng);
    const Vector<double> s = recover_subspaces(ipw_matrix(log, weights), 2).singular_values;
    const Index rank = select_rank(s, noise_threshold(log, weights));
    CHECK(rank <= 2);
    if (rounds < 200000) continue;
    CHECK(rank == 2);
    // 222 samples a cell: none is unseen, so the spread of the weighted rewards is known.
    const Matrix<double> difference = ipw_matrix(log, weights) - instance.means;
    CHECK(recover_subspaces(difference, 1).singular_values[0] <= noise_threshold(log, weights));
  }
}

TEST_CASE("bandits.singular_subspaces: norms and complements and shares by hand") {
  Matrix<double> a(2, 2);
  a << 3, 4, 1, 1;
  CHECK(two_to_infinity_norm(a) == 5);
  Rng rng(1);
  const Subspaces s = recover_subspaces(normal_matrix<double>(rng, 6, 4), 2);
  Matrix<double> whole(6, 6);
  whole << s.u, orthogonal_complement(s.u);
  CHECK((whole.transpose() * whole - Matrix<double>::Identity(6, 6)).norm() <= 1e-14 * 6);
  const OwnedLog log{{0, 0, 1}, {1, 1, 0}, {2, 4, 8}};
  const Matrix<double> shares = empirical_propensity(log, 2, 2);
  CHECK(shares(0, 1) == 2.0 / 3);
  CHECK(shares(1, 1) == 0);
  CHECK(std::abs(ipw_matrix(log, shares)(0, 1) - 3) <= 1e-15 * 3);
  // By cell: (2 / 2)^2 + (4 / 2)^2 = 5 in row 0, (8 / 1)^2 = 64 in row 1; columns the same.
  CHECK(std::abs(noise_threshold(log, shares) - 16) <= 1e-13);
}

TEST_CASE("bandits.singular_subspaces: zero and ambiguous matrices are said to be so") {
  const Subspaces zero = recover_subspaces(Matrix<double>::Zero(3, 4).eval(), 2);
  CHECK(zero.status == SubspaceStatus::zero);
  CHECK(zero.u == Matrix<double>::Identity(3, 2));
  const Matrix<double> identity = Matrix<double>::Identity(4, 4);
  CHECK(recover_subspaces(identity, 2).status == SubspaceStatus::ambiguous_rank);
  CHECK(recover_subspaces(identity, 2, SvdMethod::randomized).status == SubspaceStatus::ambiguous_rank);
  CHECK(recover_subspaces(identity, 4).status == SubspaceStatus::determined);
  CHECK(recover_subspaces(identity, 2).u == recover_subspaces(identity, 2).u);
}

TEST_CASE("bandits.singular_subspaces: bad input is named") {
  const Matrix<double> weights = Matrix<double>::Constant(2, 2, 0.25);
  Matrix<double> holes = weights;
  holes(1, 0) = 0;
  const OwnedLog log{{0, 1}, {1, 0}, {1, 2}};
  CHECK(message_of<InvalidArgument>([&] { ipw_matrix(log, holes); }) ==
        "ipw_matrix: propensity[1,0] must be positive, since round 1 was there, got 0");
  CHECK(message_of<InvalidArgument>([&] {
          ipw_matrix(OwnedLog{{2}, {0}, {1}}, weights);
        }) == "ipw_matrix: context 2 of round 0 is not between 0 and 1");
  CHECK(message_of<InvalidArgument>([&] {
          ipw_matrix(OwnedLog{{0}, {-1}, {1}}, weights);
        }) == "ipw_matrix: arm -1 of round 0 is not between 0 and 1");
  CHECK(message_of<InvalidArgument>([&] {
          ipw_matrix(OwnedLog{{0}, {0}, {std::nan("")}}, weights);
        }) == "ipw_matrix: the reward of round 0 must be finite, got nan");
  CHECK(message_of<InvalidArgument>([&] {
          ipw_matrix(OwnedLog{{0}, {0, 1}, {1}}, weights);
        }) == "ipw_matrix: the log has 1 contexts, 2 arms and 1 rewards, expected as many of each");
  CHECK(message_of<InvalidArgument>([&] { recover_subspaces(weights, 3); }) ==
        "recover_subspaces: rank must be between 1 and 2, got 3");
  CHECK(message_of<InvalidArgument>([&] { recover_subspaces(weights, 0); }) ==
        "recover_subspaces: rank must be between 1 and 2, got 0");
  CHECK(message_of<InvalidArgument>([&] { empirical_propensity(OwnedLog{}, 1, 1); }) ==
        "empirical_propensity: the log is empty");
  CHECK(message_of<InvalidArgument>([&] { select_rank(std::vector<double>{1}, -1); }) ==
        "select_rank: threshold must be at least 0, got -1");
  holes(0, 0) = std::nan("");
  CHECK(message_of<NumericalError>([&] { recover_subspaces(holes, 1); }) ==
        "recover_subspaces: the matrix has an entry that is not finite");
}

}  // namespace
}  // namespace ashlar::bandits
