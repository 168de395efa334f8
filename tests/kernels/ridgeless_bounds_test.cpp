#include "ashlar/kernels/ridgeless_bounds.hpp"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ashlar/kernels/ridgeless_risk.hpp"
#include "kernels/designs.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::kernels {
namespace {

using test::message_of;

double off(double a, double b) { return a == b ? 0 : std::abs(a / b - 1); }

Vector<double> eigenvalues(const Matrix<double>& k) {
  return Eigen::SelfAdjointEigenSolver<Matrix<double>>(k, Eigen::EigenvaluesOnly).eigenvalues();
}

TEST_CASE("kernels.ridgeless_bounds: every term of every split matches the fixtures") {
  for (const auto& name : fixture_names) {
    const Design d = fixture_design(name);
    const Matrix<double> expected = ridgeless_matrix(name + "/bounds");
    const Vector<double> splits = ridgeless_vector(name + "/bounds_k");
    for (Index i = 0; i < splits.size(); ++i) {
      const SplitBounds b = split_bounds(d.lambda, d.features, d.theta, static_cast<Index>(splits[i]));
      const double actual[] = {b.variance,      b.variance_head, b.variance_tail, b.bias,
                               b.smallest_tail, b.largest_tail,  b.smallest_head, b.largest_head};
      // The sines' heads have a condition number of 1e6 and up, and the bounds divide by its square root twice.
      for (Index j = 0; j < 8; ++j) {
        INFO(name << ", split " << splits[i] << ", term " << j);
        CHECK(off(actual[j], expected(i, j)) <= (name == "sine" ? 1e-5 : 1e-8));
      }
    }
  }
}

TEST_CASE("kernels.ridgeless_bounds: bounds of the spectrum match the fixtures") {
  for (const auto& name : fixture_names) {
    INFO(name);
    const double tolerance = name == "sine" ? 1e-5 : 1e-8;
    const Design d = fixture_design(name);
    const Matrix<double> terms = ridgeless_matrix(name + "/smin_terms");
    const double leading = terms(terms.rows() - 1, 1);
    std::vector<Index> splits;
    for (Index i = 0; i + 1 < terms.rows(); ++i) {
      const std::vector<Index> one{static_cast<Index>(terms(i, 0))};
      splits.push_back(one[0]);
      CHECK(off(smallest_eigenvalue_bounds(d.lambda, d.features, one).lower, std::max(terms(i, 1), leading)) <=
            tolerance);
    }
    const Vector<double> expected = ridgeless_vector(name + "/smin_bounds");
    const Interval with_itself = smallest_eigenvalue_bounds(d.lambda, d.features, splits);
    CHECK(off(with_itself.lower, expected[0]) <= tolerance);
    CHECK(off(with_itself.upper, expected[1]) <= tolerance);
    CHECK(off(smallest_eigenvalue_bounds(d.lambda, d.features, {}).lower, leading) <= tolerance);
    // The default is the same without the split at zero.
    const double best = terms.col(1).tail(terms.rows() - 1).maxCoeff();
    CHECK(off(smallest_eigenvalue_bounds(d.lambda, d.features).lower, best) <= tolerance);
  }
}

TEST_CASE("kernels.ridgeless_bounds: effective ranks match the fixtures and their limits") {
  for (const auto& name : fixture_names) {
    const Vector<double> lambda = ridgeless_vector(name + "/lambda");
    const Matrix<double> expected = ridgeless_matrix(name + "/eff_rank");
    const Index split = static_cast<Index>(ridgeless_vector(name + "/bounds_k")[1]);
    const Index n = ridgeless_matrix(name + "/psi").cols();
    for (Index i = 0; i < 3; ++i) {
      const auto ranks = effective_ranks(lambda, std::vector<Index>{0, split, n}[static_cast<std::size_t>(i)]);
      CHECK(off(ranks.r, expected(i, 0)) <= 1e-13);
      CHECK(off(ranks.R, expected(i, 1)) <= 1e-13);
    }
  }
  // A geometric series, whatever the split.
  for (const Index k : {0, 7, 40}) {
    const auto ranks = effective_ranks(exponential_spectrum(400, 0.5), k);
    CHECK(off(ranks.r, 1 / (1 - std::exp(-0.5))) <= 1e-13);
    CHECK(off(ranks.R, (1 + std::exp(-0.5)) / (1 - std::exp(-0.5))) <= 1e-13);
  }
  // The sum over i > k of i^-2 is 1 / k - 1 / p to O(1 / k^2), so r_k (1 - k / p) is k + O(1) with a = 1.
  CHECK(std::abs(effective_ranks(power_spectrum(200000, 1), 100).r - 101.0 * 101.0 * (1 / 100.5 - 1 / 200000.5)) <=
        0.01);
  // Squares of these underflow.
  CHECK(off(effective_ranks((power_spectrum(50, 1) * 1e-200).eval(), 3).R,
            effective_ranks(power_spectrum(50, 1), 3).R) <= 1e-12);
}

TEST_CASE("kernels.ridgeless_bounds: bias and variance stay below the bounds of every split on 200 draws") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const Index n = 5 + rng.below(20), p = 3 * n + rng.below(60);
    const Vector<double> lambda = seed % 2 ? power_spectrum(p, rng.uniform(0.2, 2)) : exponential_spectrum(p, 0.3);
    const Design d{lambda,
                   seed % 3 == 0   ? sine_features(rng, n, p)
                   : seed % 3 == 1 ? rademacher_features(rng, n, p)
                                   : gaussian_features(rng, n, p),
                   normal_matrix<double>(rng, p, 1).col(0).cwiseProduct(harmonic(p))};
    const Risk risk = exact_risk(d.lambda, d.features, d.theta);
    std::vector<Index> splits(static_cast<std::size_t>(n));
    for (Index k = 0; k < n; ++k) splits[static_cast<std::size_t>(k)] = k;
    const RiskBounds bounds = risk_bounds(d.lambda, d.features, d.theta, splits);
    INFO("seed = " << seed << ", n = " << n << ", p = " << p);
    for (const SplitBounds& b : bounds.splits) {
      INFO("split " << b.split);
      CHECK(b.variance >= risk.variance * (1 - 1e-6));
      CHECK(b.bias >= risk.bias * (1 - 1e-6));
    }
    const Vector<double> s = eigenvalues(d.gram());
    const double rounding = static_cast<double>(p) * std::numeric_limits<double>::epsilon() * s[n - 1];
    const Interval smallest = smallest_eigenvalue_bounds(d.lambda, d.features);
    const Interval largest = largest_eigenvalue_bounds(d.lambda, d.features);
    CHECK(smallest.lower <= s[0] + rounding);
    CHECK(s[0] <= smallest.upper + rounding);
    CHECK(largest.lower <= s[n - 1] * (1 + 1e-12));
    CHECK(s[n - 1] <= largest.upper * (1 + 1e-12));
    const Interval condition = condition_number_bounds(d.lambda, d.features);
    CHECK(condition.lower <= (s[n - 1] + rounding) / std::max(s[0] - rounding, 1e-300) * (1 + 1e-12));
    CHECK(s[n - 1] / (s[0] + rounding) <= condition.upper * (1 + 1e-12));
  }
}

TEST_CASE("kernels.ridgeless_bounds: the bounds of the condition number enclose it and are of its order") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  INFO("seed = " << seed);
  const Design d = gaussian_design(seed, 60, power_spectrum(1200, 1));
  const double condition = condition_number(d.gram());
  const Interval bounds = condition_number_bounds(d.lambda, d.features);
  CHECK(bounds.lower <= condition);
  CHECK(condition <= bounds.upper);
  CHECK(bounds.upper <= 1000 * bounds.lower);  // n^2 up to constants and logarithms on both sides
}

TEST_CASE("kernels.ridgeless_bounds: the condition number is that of all eigenvalues") {
  const Design d = gaussian_design(4, 50, power_spectrum(300, 1));
  const Vector<double> s = eigenvalues(d.gram());
  CHECK(off(condition_number(d.gram()), s[49] / s[0]) <= 1e-6);
  CHECK(std::isinf(condition_number(Matrix<double>::Ones(3, 3).eval())));
  CHECK(std::isinf(condition_number(Matrix<double>::Zero(3, 3).eval())));
  CHECK(condition_number(Matrix<double>::Constant(1, 1, 5).eval()) == 1);
}

TEST_CASE("kernels.ridgeless_bounds: a grid gives what single splits give and the least of them") {
  const Design d = gaussian_design(5, 24, power_spectrum(300, 1));
  const std::vector<Index> splits{8, 0, 3, 12};  // any order
  const RiskBounds grid = risk_bounds(d.lambda, d.features, d.theta, splits);
  double least_variance = INFINITY, least_bias = INFINITY;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    const SplitBounds single = split_bounds(d.lambda, d.features, d.theta, splits[i]);
    CHECK(grid.splits[i].split == splits[i]);
    CHECK(off(grid.splits[i].variance, single.variance) <= 1e-10);
    CHECK(off(grid.splits[i].bias, single.bias) <= 1e-10);
    least_variance = std::min(least_variance, grid.splits[i].variance);
    least_bias = std::min(least_bias, grid.splits[i].bias);
    if (grid.variance_split == splits[i]) CHECK(grid.splits[i].variance == grid.variance);
    if (grid.bias_split == splits[i]) CHECK(grid.splits[i].bias == grid.bias);
  }
  CHECK(grid.variance == least_variance);
  CHECK(grid.bias == least_bias);
  CHECK(grid.splits[1].smallest_head == 0);  // k = 0 has no head
  CHECK(grid.splits[1].variance_head == 0);
}

TEST_CASE("kernels.ridgeless_bounds: default splits double up to half of the samples and leave enough features") {
  CHECK(default_splits(20, 400) == std::vector<Index>{0, 1, 2, 4, 8});
  CHECK(default_splits(16, 400) == std::vector<Index>{0, 1, 2, 4, 8});
  CHECK(default_splits(16, 19) == std::vector<Index>{0, 1, 2});
  CHECK(default_splits(1, 5) == std::vector<Index>{0});
  const Design d = gaussian_design(6, 16, power_spectrum(100, 1));
  CHECK(risk_bounds(d.lambda, d.features, d.theta).splits.size() == 5);
}

TEST_CASE("kernels.ridgeless_bounds: where an eigenvalue is lost to rounding the bounds are infinite") {
  Design d = gaussian_design(7, 20, power_spectrum(100, 1));
  d.features.row(19) = d.features.row(0);
  for (const Index k : {0, 5}) {
    const SplitBounds b = split_bounds(d.lambda, d.features, d.theta, k);
    CHECK(b.smallest_tail == 0);
    CHECK(std::isinf(b.variance));
    CHECK(std::isinf(b.bias));
  }
  d = gaussian_design(7, 20, power_spectrum(100, 1));
  d.features.col(1) = d.features.col(0);  // a head of rank one
  const SplitBounds b = split_bounds(d.lambda, d.features, d.theta, 2);
  CHECK(b.smallest_head == 0);
  CHECK(b.smallest_tail > 0);
  CHECK(std::isinf(b.variance));
  CHECK(std::isinf(b.bias));
}

TEST_CASE("kernels.ridgeless_bounds: the same bits for any number of threads") {
  const Design d = gaussian_design(8, 140, power_spectrum(500, 1));
  const auto run = [&] { return risk_bounds(d.lambda, d.features, d.theta); };
  const RiskBounds one = test::with_threads(1, run), two = test::with_threads(2, run),
                   four = test::with_threads(4, run);
  CHECK(one.variance == two.variance);
  CHECK(one.variance == four.variance);
  CHECK(one.bias == four.bias);
}

TEST_CASE("kernels.ridgeless_bounds: bad input is refused in words") {
  const Design d = gaussian_design(9, 4, power_spectrum(6, 1));
  const auto bounds = [&](Index k) { return split_bounds(d.lambda, d.features, d.theta, k); };
  CHECK(message_of<InvalidArgument>([&] { bounds(-1); }) ==
        "split_bounds: k must be at least 0 and below the 4 samples, got -1");
  CHECK(message_of<InvalidArgument>([&] { bounds(4); }) ==
        "split_bounds: k must be at least 0 and below the 4 samples, got 4");
  const std::string too_few =
      ": after the first 3 of 6 features there are fewer than the 4 samples, so their part of the Gram matrix is "
      "singular";
  CHECK(message_of<InvalidArgument>([&] { bounds(3); }) == "split_bounds" + too_few);
  const std::vector<Index> three{3};
  CHECK(message_of<InvalidArgument>([&] { risk_bounds(d.lambda, d.features, d.theta, three); }) ==
        "risk_bounds" + too_few);
  CHECK(message_of<InvalidArgument>([&] { smallest_eigenvalue_bounds(d.lambda, d.features, three); }) ==
        "smallest_eigenvalue_bounds" + too_few);
  CHECK(message_of<InvalidArgument>([&] { risk_bounds(d.lambda, d.features, d.theta, {}); }) ==
        "risk_bounds: splits is empty");
  CHECK(message_of<InvalidArgument>([&] { risk_bounds(d.lambda, d.features, std::vector<double>{1}); }) ==
        "risk_bounds: theta has shape [1], expected [6] (one coefficient a feature)");
  CHECK(message_of<InvalidArgument>([&] { risk_bounds(d.lambda, d.features, (d.theta / 0.0).eval()); }) ==
        "risk_bounds: theta has an entry that is not finite");
  const Design few = gaussian_design(10, 5, power_spectrum(3, 1));
  CHECK(message_of<InvalidArgument>([&] { risk_bounds(few.lambda, few.features, few.theta); }) ==
        "risk_bounds: after the first 0 of 3 features there are fewer than the 5 samples, so their part of the Gram "
        "matrix "
        "is singular");
  CHECK(message_of<InvalidArgument>([&] { smallest_eigenvalue_bounds(few.lambda, few.features); }) ==
        "smallest_eigenvalue_bounds: there are fewer features (3) than samples (5), so the Gram matrix is singular");
  CHECK(message_of<InvalidArgument>([&] { largest_eigenvalue_bounds(std::vector<double>{1}, d.features); }) ==
        "largest_eigenvalue_bounds: features has shape [4,6], expected [4,1] (one column an eigenvalue)");
  CHECK(message_of<InvalidArgument>([&] { effective_ranks(d.lambda, 6); }) ==
        "effective_ranks: k must be at least 0 and below the 6 eigenvalues, got 6");
  CHECK(message_of<InvalidArgument>([&] { effective_ranks(d.lambda, -1); }) ==
        "effective_ranks: k must be at least 0 and below the 6 eigenvalues, got -1");
  CHECK(message_of<InvalidArgument>([&] { condition_number(d.features); }) ==
        "condition_number: gram has shape [4,6], expected [4,4] (a square)");
  const Matrix<double> indefinite = Vector<double>{{1.0, -1.0}}.asDiagonal();
  CHECK(message_of<NumericalError>([&] {
          condition_number(indefinite);
        }).starts_with("condition_number: gram has the eigenvalue -1, below what rounding explains ("));
}

}  // namespace
}  // namespace ashlar::kernels
