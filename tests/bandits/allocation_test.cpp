#include "ashlar/bandits/allocation.hpp"

#include <Eigen/LU>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::bandits {
namespace {

using test::message_of;

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Problem {
  Matrix<double> arms;
  Vector<double> gaps;
};

Problem problem_of(const std::string& name) {
  const Matrix<double> arms = test::fixture("e4_bandit/" + name + "_X").matrix();
  const auto theta = test::fixture("e4_bandit/" + name + "_theta");
  const Vector<double> means = arms * vector(theta.view<1>());
  return {arms, means.maxCoeff() - means.array()};
}

/// Arms uniform on [0, 1]^d, the first e_1, theta = e_1.
Problem random_problem(Rng& rng, Index count, Index dim) {
  Matrix<double> arms(count, dim);
  for (Index i = 0; i < arms.size(); ++i) arms.data()[i] = rng.uniform();
  arms.row(0) = Vector<double>::Unit(dim, 0).transpose();
  return {arms, 1 - arms.col(0).array()};
}

/// max over sub-optimal arms of 2 x^T H(w)^-1 x / gap^2 in the original space, with a huge weight for an infinite one.
double tightest_constraint(const Problem& problem, const Vector<double>& weights, double huge) {
  const Vector<double> w = weights.cwiseMin(huge);
  const Eigen::MatrixXd h = problem.arms.transpose() * w.asDiagonal() * problem.arms;
  const Eigen::MatrixXd inverse = h.inverse();
  double worst = 0;
  for (Index i = 0; i < w.size(); ++i) {
    const auto x = problem.arms.row(i);
    const double gap = problem.gaps[i];
    if (gap > 1e-9) worst = std::max(worst, 2 * (x * inverse).dot(x) / (gap * gap));
  }
  return worst;
}

TEST_CASE("bandits.allocation: fixtures have the cost of the oracle and infinite weights on optimal arms") {
  for (const char* name : {"eoo_d2_e001", "eoo_d2_e03", "eoo_d3_e02", "eoo_d5_e001", "rand_k9_d5", "rand_k50_d20",
                           "rankdef_k6_d3", "duplicates_k6_d3", "single_arm_d2"}) {
    INFO(name);
    const Problem problem = problem_of(name);
    const auto scalars = test::fixture(std::string("e4_bandit/") + name + "_scalars");
    const auto w = test::fixture(std::string("e4_bandit/") + name + "_w");
    const double cost = scalars.data()[3];
    for (const double tolerance : {1e-6, 1e-8}) {
      const Allocation allocation = asymptotic_allocation(problem.arms, problem.gaps, {.tolerance = tolerance});
      CHECK(allocation.converged);
      CHECK(std::abs(allocation.cost - cost) <= 1e-6 * cost);
      CHECK(allocation.cost >= cost * (1 - 1e-6));
      for (Index i = 0; i < allocation.weights.size(); ++i)
        CHECK(std::isinf(allocation.weights[i]) == std::isinf(w.data()[i]));
    }
    const Allocation slow = reference::asymptotic_allocation(problem.arms, problem.gaps);
    CHECK(std::abs(slow.cost - cost) <= 1e-6 * cost);
  }
}

TEST_CASE("bandits.allocation: End of Optimism has closed forms on both sides of a quarter") {
  for (const double epsilon : {0.01, 0.2, 0.24, 0.26, 0.3, 0.45}) {
    INFO(epsilon);
    Problem problem{Matrix<double>(3, 2), Vector<double>(3)};
    problem.arms << 1, 0, 0, 1, 1 - epsilon, 2 * epsilon;
    problem.gaps << 0, 1, epsilon;
    const Allocation allocation = asymptotic_allocation(problem.arms, problem.gaps);
    CHECK(allocation.weights[0] == infinity);
    const bool near = epsilon > 0.25;
    const double weight = near ? 2 / (epsilon * epsilon) : 8, cost = near ? 2 / epsilon : 8;
    CHECK(std::abs(allocation.cost - cost) <= 1e-6 * cost);
    // The cost of moving mass to the other arm is at least 4 % of it, so a cost to 1e-6 fixes weights to 1e-4.
    CHECK(std::abs(allocation.weights[near ? 2 : 1] - weight) <= 1e-4 * weight);
    CHECK(allocation.weights[near ? 1 : 2] * problem.gaps[near ? 1 : 2] <= 1e-4 * cost);
  }
}

TEST_CASE("bandits.allocation: several optimal arms span a subspace that costs nothing") {
  const Problem problem = problem_of("ties");
  const Allocation allocation = asymptotic_allocation(problem.arms, problem.gaps);
  for (const Index i : {0, 1, 2}) CHECK(allocation.weights[i] == infinity);
  CHECK(std::abs(allocation.weights[3] - 12.5) <= 1e-3);
  CHECK(allocation.weights[4] <= 1e-3);
  CHECK(std::abs(allocation.cost - test::fixture("e4_bandit/ties_scalars").data()[0]) <= 5e-6);
}

TEST_CASE("bandits.allocation: a tiny gap needs a relative start and stop") {
  const Problem problem{problem_of("rand_k9_d5").arms, vector(test::fixture("e4_bandit/smallgap_gaps").view<1>())};
  const double cost = test::fixture("e4_bandit/smallgap_scalars").data()[0];
  const Allocation allocation = asymptotic_allocation(problem.arms, problem.gaps);
  CHECK(std::abs(allocation.cost - cost) <= 1e-6 * cost);
  CHECK(allocation.converged);
}

TEST_CASE("bandits.allocation: the gradient and Hessian of the barrier agree with finite differences") {
  Rng rng(1);
  const Problem problem = random_problem(rng, 7, 3);
  const Matrix<double> x = problem.arms.bottomRows(6);
  const Vector<double> gaps = problem.gaps.tail(6);
  Vector<double> w = 4 * gaps.cwiseAbs2().cwiseInverse();
  for (Index i = 0; i < 6; ++i) w[i] *= rng.uniform(1, 2);
  const Vector<double> costs = gaps / w.dot(gaps);
  const reference::Barrier barrier = reference::allocation_barrier(x, gaps, costs, w, 5.0);
  CHECK(std::isfinite(barrier.value));
  for (Index j = 0; j < 6; ++j) {
    const double h = 1e-5 * w[j];
    Vector<double> up = w, down = w;
    up[j] += h, down[j] -= h;
    const auto above = reference::allocation_barrier(x, gaps, costs, up, 5.0);
    const auto below = reference::allocation_barrier(x, gaps, costs, down, 5.0);
    CHECK(std::abs((above.value - below.value) / (2 * h) - barrier.gradient[j]) <=
          1e-5 * barrier.gradient.cwiseAbs().maxCoeff());
    const Vector<double> column = (above.gradient - below.gradient) / (2 * h);
    CHECK((column - barrier.hessian.col(j)).cwiseAbs().maxCoeff() <= 1e-5 * barrier.hessian.cwiseAbs().maxCoeff());
  }
}

TEST_CASE("bandits.allocation: the fast form finds the cost of the reference and never violates a constraint") {
  Rng rng(2);
  for (const Index dim : {1, 2, 3, 6})
    for (const Index count : {2, 3, 8, 30, 60}) {
      INFO(count << " arms of dimension " << dim);
      const Problem problem = random_problem(rng, count, dim);
      const Allocation fast = asymptotic_allocation(problem.arms, problem.gaps);
      const Allocation slow = reference::asymptotic_allocation(problem.arms, problem.gaps);
      CHECK(fast.converged);
      CHECK(std::abs(fast.cost - slow.cost) <= 2e-6 * slow.cost);
      if (count < dim) continue;  // the check below inverts H
      // In the limit of infinite weights the constraints hold to 1e-9; at 1e10 the rest is of order w / 1e10.
      const double largest = (fast.weights.array() < infinity).select(fast.weights, 0).maxCoeff();
      CHECK(tightest_constraint(problem, fast.weights, 1e10 * std::max(1.0, largest)) <= 1 + 1e-7);
    }
}

TEST_CASE("bandits.allocation: generated constraints give the cost of all constraints") {
  Rng rng(3);
  for (const Index count : {70, 130, 300}) {
    INFO(count);
    const Problem problem = random_problem(rng, count, 5);
    const Allocation generated = asymptotic_allocation(problem.arms, problem.gaps, {.direct_limit = 10});
    const Allocation direct = asymptotic_allocation(problem.arms, problem.gaps, {.direct_limit = 1000});
    CHECK(generated.converged);
    CHECK(direct.converged);
    CHECK(std::abs(generated.cost - direct.cost) <= 2e-6 * direct.cost);
    CHECK(tightest_constraint(problem, generated.weights, 1e14) <= 1 + 1e-7);
  }
}

TEST_CASE("bandits.allocation: the dual bound is a bound however early the solver stops") {
  Rng rng(4);
  for (const double tolerance : {1.0, 1e-1, 1e-2, 1e-4}) {
    const Problem problem = random_problem(rng, 40, 4);
    const double best = asymptotic_allocation(problem.arms, problem.gaps, {.tolerance = 1e-9}).cost;
    const Allocation rough = asymptotic_allocation(problem.arms, problem.gaps, {.tolerance = tolerance});
    CHECK(rough.cost <= best * (1 + rough.gap) * (1 + 1e-8));
    CHECK(rough.cost >= best * (1 - 1e-8));
    CHECK(rough.gap <= 2 * tolerance);
    CHECK(rough.gap > 0);
  }
}

/// Arms near the best one at many angles, and unit vectors that are dear but tell all of them apart. A first working
/// set of the arms hardest to tell apart has no unit vector in it.
Problem crowd(Index count) {
  Problem problem{Matrix<double>::Zero(count + 3, 3), Vector<double>(count + 3)};
  problem.arms.topRows(3).setIdentity();
  problem.gaps.head(3) << 0, 1, 1;
  for (Index i = 0; i < count; ++i) {
    const double gap = 0.01 + 1e-3 * static_cast<double>(i), angle = 0.1 * static_cast<double>(i);
    problem.arms.row(3 + i) << 1 - gap, 2 * gap * std::cos(angle), 2 * gap * std::sin(angle);
    problem.gaps[3 + i] = gap;
  }
  return problem;
}

TEST_CASE("bandits.allocation: arms worth pulling join the working set although none is hard to tell from the best") {
  const Problem problem = crowd(30);
  const Allocation generated = asymptotic_allocation(problem.arms, problem.gaps, {.direct_limit = 10});
  const Allocation direct = asymptotic_allocation(problem.arms, problem.gaps);
  CHECK(direct.cost < 20);  // 8 a direction; the near arms alone would cost about 2 / 0.01
  CHECK(generated.converged);
  CHECK(std::abs(generated.cost - direct.cost) <= 2e-6 * direct.cost);
}

TEST_CASE("bandits.allocation: an arm whose constraint is violated joins the working set although no pull of it pays") {
  // With H = diag(h1, h2) on the complement of the best arm the cost is h1 + h2 / 2. The first two arms ask for h >= 2,
  // the third, whose gap is too small to be pulled, for 1.125 (1 / h1 + 1 / h2) <= 1.
  Matrix<double> arms(4, 3);
  arms << 1, 0, 0, 0, 1, 0, -1, 0, 2, 0.99, 0.0075, 0.0075;
  const std::vector<double> gaps{0, 1, 2, 0.01};
  const double h2 = 1 / (1 / 1.125 - 0.5), cost = 2 + h2 / 2;
  for (const Index limit : {2, 64}) {
    const Allocation allocation = asymptotic_allocation(arms, gaps, {.direct_limit = limit});
    CHECK(allocation.converged);
    CHECK(std::abs(allocation.cost - cost) <= 2e-6 * cost);
  }
}

TEST_CASE("bandits.allocation: the dual bound holds for arms outside the working set") {
  Rng rng(8);
  const Problem random = random_problem(rng, 200, 4), crowded = crowd(40);
  for (const Problem* problem : {&random, &crowded})
    for (const double tolerance : {10.0, 1.0, 1e-1, 1e-2}) {
      INFO(tolerance);
      const double best = asymptotic_allocation(problem->arms, problem->gaps, {.direct_limit = 1000}).cost;
      const Allocation rough =
          asymptotic_allocation(problem->arms, problem->gaps, {.tolerance = tolerance, .direct_limit = 4});
      CHECK(rough.cost <= best * (1 + rough.gap) * (1 + 2e-6));
      CHECK(rough.cost >= best * (1 - 2e-6));
    }
}

TEST_CASE("bandits.allocation: the tightest constraint is active however early the solver stops") {
  Rng rng(9);
  for (const double tolerance : {1.0, 1e-2, 1e-6}) {
    INFO(tolerance);
    const Problem problem = random_problem(rng, 30, 4);
    const Allocation rough = asymptotic_allocation(problem.arms, problem.gaps, {.tolerance = tolerance});
    // At 1e12 times the largest weight in place of an infinite one the rest of the constraint is of order 1e-12.
    const double largest = (rough.weights.array() < infinity).select(rough.weights, 0).maxCoeff();
    CHECK(std::abs(tightest_constraint(problem, rough.weights, 1e12 * largest) - 1) <= 1e-8);
  }
}

TEST_CASE("bandits.allocation: gaps scaled by s scale weights by 1 over s squared and the cost by 1 over s") {
  Rng rng(5);
  const Problem problem = random_problem(rng, 20, 4);
  const Allocation one = asymptotic_allocation(problem.arms, problem.gaps);
  for (const double s : {1e-3, 0.25, 40.0}) {
    const Allocation scaled = asymptotic_allocation(problem.arms, (s * problem.gaps).eval());
    CHECK(std::abs(scaled.cost * s / one.cost - 1) <= 1e-9);
    for (Index i = 1; i < 20; ++i)
      CHECK(std::abs(scaled.weights[i] * s * s - one.weights[i]) <= 1e-6 * one.weights.tail(19).maxCoeff());
  }
}

TEST_CASE("bandits.allocation: degenerate problems") {
  SECTION("identical arms are all optimal and cost nothing") {
    const Allocation allocation =
        asymptotic_allocation(Matrix<double>::Ones(4, 3).eval(), Vector<double>::Zero(4).eval());
    CHECK(allocation.cost == 0);
    CHECK(allocation.converged);
    for (Index i = 0; i < 4; ++i) CHECK(allocation.weights[i] == infinity);
  }
  SECTION("an arm in the span of the optimal ones needs no pulls") {
    Matrix<double> arms(3, 2);
    arms << 1, 0, 0.5, 0, 0, 1;
    const Allocation allocation = asymptotic_allocation(arms, std::vector<double>{0, 0.5, 1});
    CHECK(allocation.weights[1] == 0);
    CHECK(std::abs(allocation.weights[2] - 2) <= 1e-5);
  }
  SECTION("a gap within the tie tolerance makes an arm optimal") {
    Matrix<double> arms = Matrix<double>::Identity(2, 2);
    CHECK(asymptotic_allocation(arms, std::vector<double>{0, 1e-10}).weights[1] == infinity);
    CHECK(asymptotic_allocation(arms, std::vector<double>{0, 1e-4}).weights[1] < infinity);
    Matrix<double> three(3, 2);
    three << 1, 0, 0, 1, 0.25, 0.5;  // the third in the span of the first two
    CHECK(asymptotic_allocation(three, std::vector<double>{0, 1e-10, 0.25}).weights[2] == 0);
  }
  SECTION("float arms are computed in double") {
    Rng rng(6);
    const Problem problem = random_problem(rng, 9, 3);
    const Matrix<float> single = problem.arms.cast<float>();
    CHECK(asymptotic_allocation(single, problem.gaps).cost ==
          asymptotic_allocation(single.cast<double>().eval(), problem.gaps).cost);
  }
}

TEST_CASE("bandits.allocation: bad input is named") {
  const Matrix<double> arms = Matrix<double>::Identity(2, 2);
  const auto with = [&](std::vector<double> gaps, AllocationOptions options = {}) {
    return message_of<InvalidArgument>([&] { asymptotic_allocation(arms, gaps, options); });
  };
  CHECK(with({0, 1, 2}) == "asymptotic_allocation: gaps has shape [3], expected [2] (one gap an arm)");
  CHECK(with({0, -1}) == "asymptotic_allocation: every gap must be finite and not negative, got -1");
  CHECK(with({0, std::nan("")}) == "asymptotic_allocation: every gap must be finite and not negative, got nan");
  CHECK(with({1, 0.5}) == "asymptotic_allocation: the smallest gap must be zero (that of the best arm), got 0.5");
  CHECK(with({0, 1}, {.tolerance = 0}) == "asymptotic_allocation: tolerance must be positive, got 0");
  CHECK(with({0, 1}, {.tie_tolerance = -1}) == "asymptotic_allocation: tie_tolerance must be not negative, got -1");
  CHECK(with({0, 1}, {.direct_limit = 0}) == "asymptotic_allocation: direct_limit must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([] {
          asymptotic_allocation(Matrix<double>::Constant(1, 1, std::nan("")).eval(), std::vector<double>{0});
        }) == "asymptotic_allocation: arms must be finite, got nan at [0,0]");
}

}  // namespace
}  // namespace ashlar::bandits
