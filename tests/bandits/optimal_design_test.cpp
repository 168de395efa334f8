#include "ashlar/bandits/optimal_design.hpp"

#include <Eigen/LU>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"
#include "support/threads.hpp"

namespace ashlar::bandits {
namespace {

using test::message_of;

const std::vector<std::string> cases{"eoo_d2_e001",  "eoo_d2_e03",    "eoo_d3_e02",       "eoo_d5_e001",  "rand_k9_d5",
                                     "rand_k50_d20", "rankdef_k6_d3", "duplicates_k6_d3", "single_arm_d2"};

Matrix<double> arms_of(const std::string& name) { return test::fixture("e4_bandit/" + name + "_X").matrix(); }

Matrix<double> uniform_arms(Rng& rng, Index count, Index dim) {
  Matrix<double> arms(count, dim);
  for (Index i = 0; i < arms.size(); ++i) arms.data()[i] = rng.uniform(-1, 1);
  return arms;
}

/// g of some weights from the definition, for arms that span everything.
double largest_leverage(const Matrix<double>& arms, const Vector<double>& weights) {
  const Eigen::MatrixXd v = arms.transpose() * weights.asDiagonal() * arms;
  const Eigen::MatrixXd inverse = v.inverse();
  return (arms * inverse).cwiseProduct(arms).rowwise().sum().maxCoeff();
}

void check_is_design(const Design& design, double tolerance) {
  CHECK(design.converged);
  CHECK(design.weights.minCoeff() >= 0);
  CHECK(std::abs(design.weights.sum() - 1) <= 1e-12);
  const auto rank = static_cast<double>(design.rank);
  CHECK(design.g - rank <= tolerance * rank * (1 + 1e-6));
  CHECK(design.g - rank >= -1e-9 * rank);  // the largest leverage is at least the average one
}

TEST_CASE("bandits.optimal_design: fixtures have the rank and leverage and determinant of the oracle") {
  for (const std::string& name : cases) {
    INFO(name);
    const auto scalars = test::fixture("e4_bandit/" + name + "_scalars");
    const DesignOptions tight{.tolerance = 1e-10};
    for (const Design& design :
         {d_optimal_design(arms_of(name), tight), reference::d_optimal_design(arms_of(name), tight)}) {
      CHECK(static_cast<double>(design.rank) == scalars.data()[0]);
      CHECK(std::abs(design.g - scalars.data()[1]) <= 1e-6);
      CHECK(std::abs(design.log_det - scalars.data()[2]) <= 1e-8);
      check_is_design(design, 1e-10);
    }
  }
}

TEST_CASE("bandits.optimal_design: pull counts of the fixtures are met exactly") {
  for (const std::string& name : cases) {
    INFO(name);
    const auto pi = test::fixture("e4_bandit/" + name + "_pi"),
               scalars = test::fixture("e4_bandit/" + name + "_scalars");
    const auto expected = test::fixture<std::int64_t>("e4_bandit/" + name + "_counts100");
    Design design;
    design.weights = vector(pi.view<1>());
    design.rank = static_cast<Index>(scalars.data()[0]);
    design.g = scalars.data()[1];
    const Vector<std::int64_t> counts = design_counts(design, 100);
    for (Index i = 0; i < counts.size(); ++i) CHECK(counts[i] == expected.data()[i]);
  }
}

TEST_CASE("bandits.optimal_design: the fast form agrees with the reference over shapes") {
  Rng rng(1);
  for (const Index dim : {1, 2, 3, 5, 8})
    for (const Index count : {1, 2, 7, 8, 9, 33, 100, 320, 700}) {
      INFO(count << " arms of dimension " << dim);
      const Matrix<double> arms = uniform_arms(rng, count, dim);
      const DesignOptions options{.tolerance = 1e-7};
      const Design fast = d_optimal_design(arms, options), slow = reference::d_optimal_design(arms, options);
      CHECK(fast.rank == std::min(count, dim));
      CHECK(fast.rank == slow.rank);
      check_is_design(fast, options.tolerance);
      // Both are within rank log(g / rank) of the maximum.
      CHECK(std::abs(fast.log_det - slow.log_det) <= static_cast<double>(fast.rank) * 1e-7 + 1e-10);
    }
}

TEST_CASE("bandits.optimal_design: every arm counts although the working set is small") {
  Rng rng(2);
  for (const Index dim : {2, 6, 15}) {
    const Matrix<double> arms = normal_matrix<double>(rng, 5000, dim);
    const Design design = d_optimal_design(arms);
    check_is_design(design, 1e-6);
    CHECK(std::abs(largest_leverage(arms, design.weights) - design.g) <= 1e-9 * design.g);
    CHECK((design.weights.array() > 0).count() <= dim * (dim + 1) / 2 + dim);
  }
}

TEST_CASE("bandits.optimal_design: a few outermost arms that span nothing do not mislead the working set") {
  // The 400 longest arms lie on a line; the second dimension lives in the short ones.
  Matrix<double> arms = Matrix<double>::Zero(1000, 3);
  for (Index i = 0; i < 1000; ++i) {
    arms(i, 0) = i < 400 ? 10 : 0;
    arms(i, 1) = i >= 400 ? 1e-3 * std::cos(static_cast<double>(i)) : 0;
    arms(i, 2) = i >= 400 ? 1e-3 * std::sin(static_cast<double>(i)) : 0;
  }
  const Design design = d_optimal_design(arms);
  check_is_design(design, 1e-6);
  CHECK(design.rank == 3);
  CHECK(std::abs(largest_leverage(arms, design.weights) - 3) <= 1e-5);
}

TEST_CASE("bandits.optimal_design: arms below the support bound are not in the optimal support") {
  Rng rng(9);
  for (const Index dim : {2, 4, 7}) {
    const Matrix<double> arms = normal_matrix<double>(rng, 200, dim);
    const Design best = d_optimal_design(arms, {.tolerance = 1e-10});
    for (const Index iterations : {0, 20, 100, 200, 300}) {
      INFO(dim << " dimensions after " << iterations << " iterations");
      const Design early = reference::d_optimal_design(arms, {.tolerance = 1e-10, .max_iterations = iterations});
      const auto rank = static_cast<double>(dim);
      const double bound = detail::support_bound(early.g / rank - 1, rank);
      const Eigen::MatrixXd inverse = (arms.transpose() * early.weights.asDiagonal() * arms).inverse();
      Index gone = 0;
      for (Index i = 0; i < 200; ++i) {
        const double leverage = (arms.row(i) * inverse).dot(arms.row(i));
        if (leverage >= bound) continue;
        ++gone;
        CHECK(best.weights[i] <= 1e-6);
      }
      if (early.g / rank - 1 <= 0.1) CHECK(gone >= 100);
    }
  }
}

TEST_CASE("bandits.optimal_design: log det never decreases from one iteration to the next") {
  Rng rng(3);
  const Matrix<double> arms = uniform_arms(rng, 60, 4);
  double before = -1e300, before_reference = -1e300;
  for (Index iterations = 0; iterations <= 120; ++iterations) {
    INFO(iterations);
    const DesignOptions options{.tolerance = 1e-12, .max_iterations = iterations};
    const Design design = d_optimal_design(arms, options);
    CHECK(design.iterations == iterations);
    CHECK_FALSE(design.converged);
    CHECK(design.log_det >= before - 1e-12);
    before = design.log_det;
    const double reference = reference::d_optimal_design(arms, options).log_det;
    CHECK(reference >= before_reference - 1e-12);
    CHECK(std::abs(reference - before) <= 1e-10);  // step for step the same
    before_reference = reference;
  }
}

TEST_CASE("bandits.optimal_design: an invertible map of the arms changes neither weights nor leverage") {
  Rng rng(4);
  const Matrix<double> arms = uniform_arms(rng, 40, 4), map = normal_matrix<double>(rng, 4, 4);
  const DesignOptions options{.tolerance = 1e-10};
  const Design a = d_optimal_design(arms, options), b = d_optimal_design((arms * map).eval(), options);
  CHECK(std::abs(a.g - b.g) <= 1e-9);
  // log det is strongly concave along the face of the optimum: a gap of 1e-10 moves weights by about its root.
  CHECK((a.weights - b.weights).cwiseAbs().maxCoeff() <= 1e-4);
  CHECK(std::abs(b.log_det - a.log_det - 2 * std::log(std::abs(map.determinant()))) <= 1e-8);
}

TEST_CASE("bandits.optimal_design: badly scaled coordinates do not change the design") {
  Rng rng(5);
  const Matrix<double> arms = uniform_arms(rng, 50, 3);
  const Matrix<double> scaled = arms * Eigen::Vector3d(1, 1e-5, 1e3).asDiagonal();
  const Design a = d_optimal_design(arms), b = d_optimal_design(scaled);
  CHECK(b.rank == 3);
  check_is_design(b, 1e-6);
  CHECK(std::abs(b.log_det - a.log_det - 2 * std::log(1e-2)) <= 4e-6);
}

TEST_CASE("bandits.optimal_design: pulls at a rate bound every variance by rank over twice the rate") {
  Rng rng(6);
  for (const double rate : {1.0, 37.5, 1000.0}) {
    const Matrix<double> arms = uniform_arms(rng, 30, 4);
    const Vector<std::int64_t> counts = design_counts(d_optimal_design(arms), rate);
    const Vector<double> pulls = counts.cast<double>();
    CHECK(largest_leverage(arms, pulls) <= 4 / (2 * rate) * (1 + 2e-6));
  }
}

TEST_CASE("bandits.optimal_design: degenerate arms") {
  SECTION("one arm gets everything") {
    const Design design = d_optimal_design(Matrix<double>::Constant(1, 2, 3.0).eval());
    CHECK(design.weights[0] == 1);
    CHECK(design.rank == 1);
    CHECK(design.g == 1);
    CHECK(std::abs(design.log_det - std::log(18.0)) <= 1e-14);
  }
  SECTION("on a line the longest arm gets everything") {
    Matrix<double> arms(4, 2);
    arms << 1, 2, -3, -6, 2, 4, 0, 0;
    const Design design = d_optimal_design(arms);
    CHECK(design.rank == 1);
    CHECK(design.weights[1] == 1);
    CHECK(design_counts(design, 50)[1] == 100);
  }
  SECTION("zero arms are never pulled") {
    Matrix<double> arms = Matrix<double>::Zero(5, 2);
    arms(1, 0) = arms(3, 1) = 1;
    const Design design = d_optimal_design(arms);
    CHECK(design.rank == 2);
    CHECK(std::abs(design.weights[1] - 0.5) <= 1e-6);
    CHECK(std::abs(design.weights[3] - 0.5) <= 1e-6);
    CHECK(design.weights[0] == 0);
  }
  SECTION("of zero arms alone nothing is measured") {
    const Design design = d_optimal_design(Matrix<double>::Zero(3, 2).eval());
    CHECK(design.rank == 0);
    CHECK(design.weights.isZero(0));
    CHECK(design_counts(design, 10).isZero());
    CHECK(design.converged);
  }
}

TEST_CASE("bandits.optimal_design: any layout and scalar and number of threads gives the same design") {
  Rng rng(7);
  const Matrix<float> single = normal_matrix<float>(rng, 3000, 6);
  const Matrix<double> arms = single.cast<double>();
  const Design expected = test::with_threads(1, [&] { return d_optimal_design(arms); });
  CHECK(d_optimal_design(single).weights == expected.weights);
  CHECK(d_optimal_design(Eigen::MatrixXd(arms)).weights == expected.weights);
  Matrix<double> wide = Matrix<double>::Constant(3000, 9, 7.0);
  wide.middleCols(1, 6) = arms;
  CHECK(d_optimal_design(wide.middleCols(1, 6)).weights == expected.weights);
  const Design parallel = test::with_threads(4, [&] { return d_optimal_design(arms); });
  CHECK(parallel.weights == expected.weights);
  CHECK(parallel.g == expected.g);
  CHECK(parallel.log_det == expected.log_det);
}

TEST_CASE("bandits.optimal_design: counts into a view allocate nothing") {
  Rng rng(8);
  const Design design = d_optimal_design(uniform_arms(rng, 20, 3));
  Vector<std::int64_t> counts(20);
  CHECK(test::allocations([&] { design_counts(design, 10, counts); }) == 0);
  CHECK(counts == design_counts(design, 10));
}

TEST_CASE("bandits.optimal_design: bad input is named") {
  Matrix<double> arms = Matrix<double>::Identity(3, 2);
  CHECK(message_of<InvalidArgument>([] { d_optimal_design(Matrix<double>(0, 2)); }) ==
        "d_optimal_design: arms has shape [0,2], expected at least one arm and one dimension");
  CHECK(message_of<InvalidArgument>([] { d_optimal_design(Matrix<double>(3, 0)); }) ==
        "d_optimal_design: arms has shape [3,0], expected at least one arm and one dimension");
  CHECK(message_of<InvalidArgument>([&] { d_optimal_design(arms, {.tolerance = 0}); }) ==
        "d_optimal_design: tolerance must be positive, got 0");
  CHECK(message_of<InvalidArgument>([&] { d_optimal_design(arms, {.max_iterations = -1}); }) ==
        "d_optimal_design: max_iterations must be not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { d_optimal_design(arms, {.rank_tolerance = 1}); }) ==
        "d_optimal_design: rank_tolerance must be between 0 and 1, got 1");
  const Design design = d_optimal_design(arms);
  CHECK(message_of<InvalidArgument>([&] { design_counts(design, -1); }) ==
        "design_counts: rate must be finite and not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { design_counts(design, 1e19); }) ==
        "design_counts: rate must be small enough for 64-bit counts, got 1e+19");
  Vector<std::int64_t> counts(2);
  CHECK(message_of<InvalidArgument>([&] { design_counts(design, 1, counts); }) ==
        "design_counts: counts has shape [2], expected [3] (one count an arm)");
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    arms(2, 1) = bad;
    CHECK(message_of<InvalidArgument>([&] { d_optimal_design(arms); }) ==
          message("d_optimal_design: arms must be finite, got ", bad, " at [2,1]"));
  }
}

}  // namespace
}  // namespace ashlar::bandits
