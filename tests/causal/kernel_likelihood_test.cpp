#include "ashlar/causal/kernel_likelihood.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "causal/samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::causal {
namespace {

using test::kernel_matrix;
using test::message_of;
using test::Regression;
using test::relative_gap;

constexpr KernelScore all_kinds[] = {KernelScore::marginal, KernelScore::joint, KernelScore::output};

Vector<double> numbers(std::vector<double> values) {
  return Eigen::Map<const Vector<double>>(values.data(), std::ssize(values));
}
/// (l_1, l_2, s), with a width behind for the joint score.
Vector<double> theta_for(KernelScore kind, double first, double second, double noise, double width = 0.8) {
  return kind == KernelScore::joint ? numbers({first, second, noise, width}) : numbers({first, second, noise});
}
const Matrix<double>& outputs_for(KernelScore kind, const Regression& f) {
  return kind == KernelScore::output ? f.x : f.distances[0];
}

TEST_CASE("causal.kernel_likelihood: values and gradients match the fixtures") {
  const Matrix<double> data = kernel_matrix("data");
  std::vector<Matrix<double>> d;
  for (const auto& group : test::fixture_groups) d.push_back(squared_distances(columns_of(data, group)));
  const std::vector<View<const double, 2>> parents{d[1], d[2]};
  Vector<double> gradient;
  // Rounding of the n^3 operations, conditioned by 1 / s: far below the 1e-9 asked for.
  const auto marg = test::kernel_fixture("marg_point");  // l_1, l_2, s, w, F, gradient
  const double* m = marg.data();
  KernelLikelihood marginal(KernelScore::marginal, d[0], parents, {.x_length = m[3]});
  CHECK(relative_gap(marginal.evaluate(numbers({m[0], m[1], m[2]}), gradient), m[4]) <= 1e-9);
  for (Index i = 0; i < 3; ++i) CHECK(relative_gap(gradient[i], m[5 + i]) <= 1e-9);

  const auto mi = test::kernel_fixture("mi_point");  // l_1, l_2, s, w, S, gradient
  const double* j = mi.data();
  KernelLikelihood joint(KernelScore::joint, d[0], parents);
  CHECK(relative_gap(joint.evaluate(numbers({j[0], j[1], j[2], j[3]}), gradient), j[4]) <= 1e-9);
  for (Index i = 0; i < 4; ++i) CHECK(relative_gap(gradient[i], j[5 + i]) <= 1e-9);
}

TEST_CASE("causal.kernel_likelihood: the fast form is the reference at small and at full rank") {
  const auto seed = GENERATE(1u, 2u);
  INFO("seed " << seed);
  Rng rng(seed);
  for (const Index n : {Index{4}, Index{9}, Index{40}, Index{67}, Index{150}}) {
    const Regression f(rng, n);
    const auto parents = f.parents();
    for (const KernelScore kind : all_kinds)
      for (const bool smooth : {true, false})
        for (const bool n_outputs : {false, true}) {
          CAPTURE(n, static_cast<int>(kind), smooth, n_outputs);
          const double length = smooth ? 100 : 0.4;
          const Vector<double> theta = theta_for(kind, length, 1.5 * length, 0.05);
          const KernelLikelihoodOptions options{.x_length = 1.1, .n_outputs = n_outputs};
          Vector<double> fast, slow;
          KernelLikelihood likelihood(kind, outputs_for(kind, f), parents, options);
          const double value = likelihood.evaluate(theta, fast);
          const double expected =
              reference::kernel_likelihood(kind, outputs_for(kind, f), parents, theta, slow, options);
          // The factors leave traces of 1e-10 s, which moves every term by 1e-10 in relative terms; the terms are at
          // most n^2 / (2 s) = 10 n^2, their derivatives 1 / s times that. The joint score is divided by n^2.
          const double scale = kind == KernelScore::joint ? 10 : 10 * static_cast<double>(n * n);
          CHECK(std::abs(value - expected) <= 1e-10 * scale);
          CHECK((fast - slow).cwiseAbs().maxCoeff() <= 1e-10 * scale / 0.05);
          if (n == 150) CHECK((likelihood.rank() == n) == !smooth);
        }
  }
}

TEST_CASE("causal.kernel_likelihood: gradients are those of central differences") {
  const auto seed = GENERATE(1u, 2u);
  INFO("seed " << seed);
  Rng rng(seed);
  const Regression f(rng, 60);
  const auto parents = f.parents();
  for (const KernelScore kind : all_kinds)
    for (const double length : {0.5, 4.0}) {
      KernelLikelihood likelihood(kind, outputs_for(kind, f), parents, {.x_length = 1.1});
      const Vector<double> theta = theta_for(kind, length, 1.4 * length, 0.3, 0.9);
      Vector<double> gradient, ignored;
      likelihood.evaluate(theta, gradient);
      for (Index i = 0; i < theta.size(); ++i) {
        CAPTURE(static_cast<int>(kind), length, i);
        // Truncation h^2 f''' / 6 and rounding 1e-15 |f| / h balance near h = 1e-5: 1e-10 of the size of the score.
        constexpr double h = 1e-5;
        Vector<double> up = theta, down = theta;
        up[i] += h, down[i] -= h;
        const double slope = (likelihood.evaluate(up, ignored) - likelihood.evaluate(down, ignored)) / (2 * h);
        CHECK(std::abs(slope - gradient[i]) <= 1e-6 * gradient.cwiseAbs().maxCoeff());
      }
    }
}

TEST_CASE("causal.kernel_likelihood: a parent of infinite length or without variation is no parent") {
  Rng rng(3);
  const Regression f(rng, 50);
  const Matrix<double> nothing = Matrix<double>::Zero(50, 50);
  const std::vector<View<const double, 2>> one{f.distances[1]}, with_constant{f.distances[1], nothing}, none;
  for (const KernelScore kind : all_kinds) {
    CAPTURE(static_cast<int>(kind));
    Vector<double> gradient;
    const auto value = [&](std::span<const View<const double, 2>> parents, std::vector<double> theta) {
      if (kind == KernelScore::joint) theta.push_back(0.9);
      return KernelLikelihood(kind, outputs_for(kind, f), parents).evaluate(numbers(theta), gradient);
    };
    const double alone = value(none, {0.3});
    CHECK(relative_gap(value(one, {1e9, 0.3}), alone) <= 1e-12);
    const double given = value(one, {1.2, 0.3});
    CHECK(value(with_constant, {1.2, 0.7, 0.3}) == given);
    CHECK(gradient[1] == 0);
    CHECK(std::abs(given - alone) > 1e-3 * std::abs(alone));
  }
}

TEST_CASE("causal.kernel_likelihood: the order of samples and of parents does not matter") {
  Rng rng(4);
  const Regression f(rng, 45);
  const auto order = rng.permutation(45);
  std::vector<Matrix<double>> shuffled;
  for (const auto& d : f.distances) {
    Matrix<double> p(45, 45);
    for (Index i = 0; i < 45; ++i)
      for (Index j = 0; j < 45; ++j)
        p(i, j) = d(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(j)]);
    shuffled.push_back(p);
  }
  const std::vector<View<const double, 2>> swapped{shuffled[2], shuffled[1]}, parents = f.parents();
  for (const KernelScore kind : {KernelScore::marginal, KernelScore::joint}) {
    Vector<double> a, b;
    const double x = KernelLikelihood(kind, f.distances[0], parents).evaluate(theta_for(kind, 0.9, 1.4, 0.3), a);
    const double y = KernelLikelihood(kind, shuffled[0], swapped).evaluate(theta_for(kind, 1.4, 0.9, 0.3), b);
    CHECK(relative_gap(x, y) <= 1e-9);  // pivots in another order leave another 1e-10
    std::swap(b[0], b[1]);
    CHECK((a - b).norm() <= 1e-8 * a.norm());
  }
}

TEST_CASE("causal.kernel_likelihood: without noise to speak of equal rows are no obstacle") {
  Rng rng(5);
  Regression f(rng, 30);
  const Matrix<double> zero = Matrix<double>::Zero(30, 30);  // K_PA is all ones, of rank one
  const std::vector<View<const double, 2>> parents{zero};
  Vector<double> gradient, slow;
  KernelLikelihood likelihood(KernelScore::marginal, f.distances[0], parents);
  const Vector<double> theta = numbers({1.0, 1e-3});
  const double value = likelihood.evaluate(theta, gradient);
  CHECK(likelihood.rank() == 1);
  // The condition of A is n / s = 3e4.
  CHECK(relative_gap(
            value, reference::kernel_likelihood(KernelScore::marginal, f.distances[0], parents, theta, slow)) <= 1e-10);
}

TEST_CASE("causal.kernel_likelihood: the Jacobian term counts pairs above the threshold and is 0 without any") {
  Rng rng(6);
  const Regression f(rng, 20);
  const std::vector<View<const double, 2>> none;
  KernelLikelihood joint(KernelScore::joint, f.distances[0], none);
  for (const double w : {0.05, 0.3, 1.0, 4.0}) {
    Index kept = 0;
    for (Index i = 0; i < 20; ++i)
      for (Index j = 0; j < i; ++j)
        kept += f.distances[0](i, j) / std::pow(w, 4) * std::exp(-f.distances[0](i, j) / (w * w)) > 1e-3;
    CHECK(joint.kept_pairs(w) == kept);
  }
  const Matrix<double> constant = Matrix<double>::Zero(20, 20);
  KernelLikelihood hopeless(KernelScore::joint, constant, none);
  Vector<double> gradient, slow;
  const double value = hopeless.evaluate(numbers({0.3, 1.0}), gradient);
  CHECK(hopeless.kept_pairs(1) == 0);
  CHECK(relative_gap(value, reference::kernel_likelihood(KernelScore::joint, constant, none, numbers({0.3, 1.0}),
                                                         slow)) <= 1e-12);
  CHECK(gradient[1] == 0);
}

TEST_CASE("causal.kernel_likelihood: bad arguments are refused") {
  Rng rng(7);
  const Regression f(rng, 10);
  const auto parents = f.parents();
  const auto build = [&](KernelScore kind, View<const double, 2> x, std::span<const View<const double, 2>> given,
                         const KernelLikelihoodOptions& options) {
    return message_of<InvalidArgument>([&] { KernelLikelihood(kind, x, given, options); });
  };
  const std::string who = "KernelLikelihood: ";
  CHECK(build(KernelScore::joint, Matrix<double>::Zero(3, 3).eval(), {}, {}) ==
        who + "the number of samples must be at least 4, got 3");
  CHECK(build(KernelScore::joint, f.x, {}, {}) == who + "x has shape [10,2], expected [10,10] (squared distances)");
  const Matrix<double> wide = Matrix<double>::Zero(10, 20);
  CHECK(build(KernelScore::joint, wide.leftCols(10), {}, {}) == who + "the rows of x have gaps");
  const std::vector<View<const double, 2>> odd{f.x}, gaps{wide.leftCols(10)};
  CHECK(build(KernelScore::joint, f.distances[0], odd, {}) ==
        who + "parents[0] has shape [10,2], expected [10,10] (squared distances)");
  CHECK(build(KernelScore::joint, f.distances[0], gaps, {}) == who + "the rows of parents[0] have gaps");
  CHECK(build(KernelScore::joint, f.distances[0], {}, {.x_length = 0}) ==
        who + "x_length must be positive and finite, got 0");
  CHECK(build(KernelScore::joint, f.distances[0], {}, {.threshold = 0}) ==
        who + "threshold must be positive and finite, got 0");
  KernelLikelihood joint(KernelScore::joint, f.distances[0], parents);
  const auto evaluate = [&](std::vector<double> theta) {
    return message_of<InvalidArgument>([&] {
      Vector<double> gradient;
      joint.evaluate(numbers(theta), gradient);
    });
  };
  CHECK(evaluate({1, 1, 1}) ==
        "KernelLikelihood::evaluate: theta has 3 entries, expected 4 (a length for each of 2 "
        "parents, the noise, the width of X)");
  CHECK(evaluate({1, 1, 0, 1}) == "KernelLikelihood::evaluate: theta[2] must be positive and finite, got 0");
  // Points 0 and 2 are equal to 1 but far from each other: no distances, K has the eigenvalue 1 - sqrt(2).
  Matrix<double> crooked = Matrix<double>::Constant(40, 40, 1e4);
  crooked.diagonal().setZero();
  crooked(0, 1) = crooked(1, 0) = crooked(1, 2) = crooked(2, 1) = 0;
  const std::vector<View<const double, 2>> one{crooked};
  const Matrix<double> ones = Matrix<double>::Ones(40, 1);
  CHECK(message_of<NumericalError>([&] {
          Vector<double> gradient;
          reference::kernel_likelihood(KernelScore::output, ones, one, numbers({1, 0.25}), gradient);
        }) == "kernel_likelihood: A is not positive definite");
  KernelLikelihood lost(KernelScore::output, ones, one);
  CHECK(message_of<NumericalError>([&] {
          Vector<double> gradient;
          lost.evaluate(numbers({1, 0.25}), gradient);
        }) == "KernelLikelihood: A is not positive definite even with noise 0.2500004");
}

}  // namespace
}  // namespace ashlar::causal
