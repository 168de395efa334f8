#include "ashlar/bandits/reduced_model.hpp"

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/low_rank_case.hpp"
#include "support/threads.hpp"

namespace ashlar::bandits {
namespace {

using test::LowRankCase;
using test::message_of;

double largest(const Matrix<double>& x) { return x.cwiseAbs().maxCoeff(); }

Matrix<double> fitted(const Subspaces& subspaces, const BanditLog& log, double ridge) {
  ReducedModel model(subspaces);
  model.fit(log, ridge);
  return model.predict();
}

/// An orthogonal matrix.
Matrix<double> rotation(Index n, Rng& rng) {
  return recover_subspaces(normal_matrix<double>(rng, n, n), n, SvdMethod::dense).u;
}

TEST_CASE("bandits.reduced_model: the least squares of the fixtures by both forms") {
  for (const std::string name : {"a", "b", "r1", "sparse"}) {
    INFO(name);
    const LowRankCase c = test::low_rank_case(name);
    const Subspaces s = recover_subspaces(c.weighted, c.rank);
    const double tolerance = name == "sparse" ? 1e-5 : 1e-7;
    CHECK(largest(fitted(s, c.log, 1e-4) - c.reduced) <= tolerance);
    CHECK(largest(reference::reduced_least_squares(s, c.log, 1e-4) - c.reduced) <= tolerance);
  }
}

TEST_CASE("bandits.reduced_model: fast and reference agree for any shape and ridge and rank") {
  const auto seed = GENERATE(1u, 2u, 3u);
  Rng rng(seed);
  const Index m = 1 + rng.below(12), n = 1 + rng.below(12), rank = 1 + rng.below(std::min(m, n));
  INFO("seed " << seed << ": " << m << " by " << n << " rank " << rank);
  const LowRankInstance instance = uniform_factors_instance(m, n, rank, rng);
  const OwnedLog log = simulate_log(instance, uniform_policy(m, n), 20 * m * n, rng);
  const Subspaces s = recover_subspaces(normal_matrix<double>(rng, m, n), rank);
  for (const double ridge : {1e-2, 1.0, 100.0})
    // Condition at most 40 m n / ridge, a residual of 1e-11 and solutions of order 1.
    CHECK(largest(fitted(s, log, ridge) - reference::reduced_least_squares(s, log, ridge)) <= 1e-8);
}

TEST_CASE("bandits.reduced_model: no ridge means the shortest least squares solution") {
  const LowRankCase c = test::low_rank_case("sparse");
  const Subspaces s = recover_subspaces(c.weighted, c.rank);
  const BanditLog few = c.log.view().slice(0, 20);  // d = 28 unknowns
  CHECK(largest(fitted(s, few, 0) - reference::reduced_least_squares(s, few, 0)) <= 1e-8);
  const LowRankCase full = test::low_rank_case("a");
  const Subspaces t = recover_subspaces(full.weighted, full.rank);
  CHECK(largest(fitted(t, full.log, 0) - reference::reduced_least_squares(t, full.log, 0)) <= 1e-8);
}

TEST_CASE("bandits.reduced_model: with the true subspaces the features reproduce the means") {
  const LowRankCase c = test::low_rank_case("b");
  const ReducedFeatures features(recover_subspaces(c.means, c.rank));
  CHECK(features.dim() == 3 * (8 + 15 - 3));
  const Vector<double> theta = features.coefficients(c.means);
  for (Index i = 0; i < features.contexts(); ++i)
    CHECK((features.of_context(i) * theta - c.means.row(i).transpose()).cwiseAbs().maxCoeff() <= 1e-12);
  CHECK(std::abs(theta.norm() - c.means.norm()) <= 1e-12 * c.means.norm());
}

TEST_CASE("bandits.reduced_model: norms of features and the space of the estimate") {
  const LowRankCase c = test::low_rank_case("b");
  const Subspaces s = recover_subspaces(c.weighted, c.rank);
  const ReducedFeatures features(s);
  for (Index i = 0; i < 8; ++i) {
    const Matrix<double> phi = features.of_context(i);
    for (Index j = 0; j < 15; ++j) {
      const double u = s.u.row(i).squaredNorm(), v = s.v.row(j).squaredNorm();
      CHECK(std::abs(phi.row(j).squaredNorm() - (u * v + u * (1 - v) + (1 - u) * v)) <= 1e-14);
    }
  }
  ReducedModel model(s);
  model.fit(c.log, 1e-4);
  CHECK(largest(misspecification(model.predict(), s)) <= 1e-10);
  CHECK(largest(s.u.transpose() * model.q()) <= 1e-10);
  CHECK(model.dim() == features.dim());
  CHECK(model.iterations() > 0);
  CHECK(std::abs(model.predict(3, 7) - model.predict()(3, 7)) <= 1e-14 * 3);
}

TEST_CASE("bandits.reduced_model: the normal equations hold") {
  const LowRankCase c = test::low_rank_case("a");
  const Subspaces s = recover_subspaces(c.weighted, c.rank);
  ReducedModel model(s);
  model.fit(c.log, 0.5);
  Matrix<double> rest = Matrix<double>::Zero(12, 9), sums = rest;
  for (std::size_t t = 0; t < c.log.reward.size(); ++t) {
    const Index i = c.log.context[t], j = c.log.arm[t];
    sums(i, j) += c.log.reward[t];
    rest(i, j) += c.log.reward[t] - model.predict(i, j);
  }
  // Conjugate gradients stop at 1e-11 of the right side, at most |sums| for each half; as much again for rounding.
  const double tolerance = 4e-11 * sums.norm();
  CHECK(largest(rest.transpose() * s.u - 0.5 * model.p()) <= tolerance);
  const Matrix<double> q = rest * s.v;
  CHECK(largest(q - s.u * (s.u.transpose() * q) - 0.5 * model.q()) <= tolerance);
}

TEST_CASE("bandits.reduced_model: the estimate depends on the subspaces and not on their bases") {
  const auto seed = GENERATE(1u, 2u);
  INFO("seed " << seed);
  Rng rng(seed);
  const LowRankCase c = test::low_rank_case("b");
  const Subspaces s = recover_subspaces(c.weighted, c.rank);
  Subspaces turned = s;
  turned.u = s.u * rotation(3, rng);
  turned.v = s.v * rotation(3, rng);
  CHECK(largest(fitted(turned, c.log, 1e-2) - fitted(s, c.log, 1e-2)) <= 1e-10 * 10);
}

TEST_CASE("bandits.reduced_model: with full rank every entry is its own ridge mean") {
  const LowRankCase c = test::low_rank_case("sparse");
  const Subspaces s = recover_subspaces(c.weighted, 7);
  Matrix<double> counts = Matrix<double>::Zero(9, 7), sums = counts;
  for (std::size_t t = 0; t < c.log.reward.size(); ++t) {
    counts(c.log.context[t], c.log.arm[t]) += 1;
    sums(c.log.context[t], c.log.arm[t]) += c.log.reward[t];
  }
  ReducedModel model(s);
  model.fit(counts, sums, 0.1);
  CHECK(model.dim() == 63);
  CHECK(largest(model.predict() - sums.cwiseQuotient((counts.array() + 0.1).matrix())) <= 1e-9);
}

TEST_CASE("bandits.reduced_model: same bits for any number of threads and views that may be written into") {
  Rng rng(1);
  const LowRankInstance instance = uniform_factors_instance(150, 130, 2, rng);
  const OwnedLog log = simulate_log(instance, uniform_policy(150, 130), 40000, rng);
  const Subspaces s = recover_subspaces(instance.means, 2);
  const Matrix<double> one = test::with_threads(1, [&] { return fitted(s, log, 1e-4); });
  CHECK(test::with_threads(2, [&] { return fitted(s, log, 1e-4); }) == one);
  CHECK(test::with_threads(4, [&] { return fitted(s, log, 1e-4); }) == one);
  ReducedModel model(s);
  model.fit(log, 1e-4);
  Eigen::MatrixXd columns(150, 130);
  CHECK(test::allocations([&] { model.predict(columns); }) == 0);
  CHECK(Matrix<double>(columns) == model.predict());
  const ReducedFeatures features(s);
  Matrix<double> phi(130, features.dim());
  CHECK(test::allocations([&] { features.of_context(4, phi); }) == 0);
  CHECK(phi == features.of_context(4));
}

TEST_CASE("bandits.reduced_model: without subspaces it stays at zero and says so") {
  ReducedModel model(recover_subspaces(Matrix<double>::Zero(3, 3).eval(), 1));
  model.fit(OwnedLog{{0}, {0}, {5}}, 1);
  CHECK(model.zero());
  CHECK(model.predict() == Matrix<double>::Zero(3, 3));
}

TEST_CASE("bandits.reduced_model: bad input is named") {
  ReducedModel model(recover_subspaces(Matrix<double>::Identity(2, 2).eval(), 1));
  const OwnedLog log{{0}, {0}, {5}};
  CHECK(message_of<InvalidArgument>([&] { model.fit(log, -1); }) ==
        "ReducedModel::fit: ridge must be finite and not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { model.fit(OwnedLog{}, 1); }) == "ReducedModel::fit: the log is empty");
  CHECK(message_of<InvalidArgument>([&] {
          model.fit(OwnedLog{{0}, {2}, {5}}, 1);
        }) == "ReducedModel::fit: arm 2 of round 0 is not between 0 and 1");
  const Matrix<double> ones = Matrix<double>::Ones(2, 2), wide = Matrix<double>::Ones(2, 3), minus = -ones;
  CHECK(message_of<InvalidArgument>([&] { model.fit(wide, ones, 1); }) ==
        "ReducedModel::fit: counts has shape [2,3], expected [2,2] (contexts by arms)");
  CHECK(message_of<InvalidArgument>([&] { model.fit(minus, ones, 1); }) ==
        "ReducedModel::fit: every count must be finite and not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { model.predict(2, 0); }) ==
        "ReducedModel::predict: context must be the index of a context, got 2");
  CHECK(message_of<InvalidArgument>([&] { model.predict(0, -1); }) ==
        "ReducedModel::predict: arm must be the index of an arm, got -1");
}

}  // namespace
}  // namespace ashlar::bandits
