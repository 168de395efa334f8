#include "ashlar/kernels/deterministic_equivalent.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "ashlar/kernels/ridgeless_risk.hpp"
#include "kernels/designs.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::kernels {
namespace {

using test::message_of;

double off(double a, double b) { return std::abs(a / b - 1); }

TEST_CASE("kernels.deterministic_equivalent: ridge and noise factor and error match the fixtures") {
  for (const auto& name : fixture_names)
    for (const double ridge : {0.0, 0.1}) {
      INFO(name << ", ridge " << ridge);
      const Design d = fixture_design(name);
      const auto e = deterministic_equivalent(d.lambda, d.theta, d.features.rows(), 0.25, ridge);
      const Vector<double> expected = ridgeless_vector(name + (ridge > 0 ? "/equivalent_ridge" : "/equivalent"));
      CHECK(off(e.kappa, expected[0]) <= 1e-11);
      CHECK(off(e.noise_factor, expected[1]) <= 1e-11);
      CHECK(off(e.test_error, expected[2]) <= 1e-11);
      CHECK(off(e.variance, expected[1] - 1) <= 1e-10);
    }
}

TEST_CASE("kernels.deterministic_equivalent: the effective ridge agrees with the reference and solves its equation") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u, 4u);
  INFO("seed = " << seed);
  Rng rng(seed);
  const Index p = 50 + rng.below(300), n = 1 + rng.below(p - 1);
  const Vector<double> lambda =
      (seed % 2 ? power_spectrum(p, rng.uniform(0.1, 3)) : exponential_spectrum(p, rng.uniform(0.01, 1))) * 1e3;
  for (const double ridge : {0.0, 1e-6, 1.0, 1e6}) {
    const double kappa = effective_ridge(lambda, n, ridge);
    CHECK(off(kappa, reference::effective_ridge(lambda, static_cast<double>(n), ridge)) <= 1e-11);
    // The equation itself is known to eps times p; kappa to that over its logarithmic slope.
    const double degrees = (lambda.array() / (lambda.array() + kappa)).sum() + ridge / kappa;
    CHECK(off(degrees, static_cast<double>(n)) <= 1e-11);
  }
}

TEST_CASE("kernels.deterministic_equivalent: a flat spectrum has a closed form") {
  // p / (1 + kappa) = n, L = n / p, E0 = 1 / (1 - n / p).
  const Vector<double> lambda = Vector<double>::Ones(80), theta = Vector<double>::Ones(80);
  const auto e = deterministic_equivalent(lambda, theta, 20, 3);
  CHECK(off(e.kappa, 3) <= 1e-14);
  CHECK(off(e.noise_factor, 4.0 / 3) <= 1e-14);
  CHECK(off(e.variance, 1.0 / 3) <= 1e-13);
  CHECK(off(e.test_error, 4.0 / 3 * (80 * 0.75 * 0.75 + 3)) <= 1e-14);
}

TEST_CASE("kernels.deterministic_equivalent: more samples need less ridge and a ridge adds to it") {
  const Vector<double> lambda = power_spectrum(2000, 1), theta = harmonic(2000);
  double previous = INFINITY;
  for (const Index n : {1, 5, 25, 100, 400}) {
    const auto e = deterministic_equivalent(lambda, theta, n, 1),
               ridged = deterministic_equivalent(lambda, theta, n, 1, 0.5);
    CHECK(e.kappa < previous);
    CHECK(e.noise_factor >= 1);
    CHECK(ridged.kappa > e.kappa);
    CHECK(ridged.noise_factor < e.noise_factor);
    previous = e.kappa;
  }
}

TEST_CASE("kernels.deterministic_equivalent: decay decides between bounded and growing noise") {
  // A power: towards 1 + a. For a = 1 and p = 20 n the published limit is approached to 5 %.
  for (const double a : {1.0, 2.0})
    CHECK(off(deterministic_equivalent(power_spectrum(20000, a), Vector<double>::Zero(20000).eval(), 1000, 1).variance,
              a) <= 0.06);
  // An exponential: a n. The sum of L (1 - L) is 1 / a, that of an integral.
  const auto e = deterministic_equivalent(exponential_spectrum(1000, 0.1), Vector<double>::Zero(1000).eval(), 400, 1);
  CHECK(off(e.noise_factor, 0.1 * 400) <= 1e-3);
  // Slower than any power: it falls. What is beyond the p eigenvalues acts as a ridge of their sum, 1 / log p.
  constexpr Index p = 50000;
  Vector<double> slow(p);
  for (Index i = 0; i < p; ++i) {
    const double number = static_cast<double>(i + 2);
    slow[i] = 1 / (number * std::pow(std::log(number), 2));
  }
  double previous = INFINITY;
  for (const Index n : {10, 100, 1000}) {
    const double tail = 1 / std::log(static_cast<double>(p));
    const double variance = deterministic_equivalent(slow, Vector<double>::Zero(p).eval(), n, 1, tail).variance;
    CHECK(variance < 0.8 * previous);
    previous = variance;
  }
}

TEST_CASE("kernels.deterministic_equivalent: it predicts what Gaussian features do") {
  const Vector<double> lambda = power_spectrum(1600, 1);
  const auto e = deterministic_equivalent(lambda, harmonic(1600), 80, 0.25);
  double variance = 0, error = 0;
  constexpr int draws = 24;
  for (std::uint64_t seed = 0; seed < draws; ++seed) {
    const Design d = gaussian_design(seed, 80, lambda);
    const Risk risk = exact_risk(d.lambda, d.features, d.theta);
    variance += risk.variance / draws;
    error += risk.test_error(0.25) / draws;
  }
  // V of one draw varies by about 8 %, so the mean of 24 by 1.7 %; three of that.
  CHECK(off(variance, e.variance) <= 0.05);
  CHECK(off(error, e.test_error) <= 0.05);
}

TEST_CASE("kernels.deterministic_equivalent: bad input is refused in words") {
  const Vector<double> lambda{{2.0, 1.0}}, theta = Vector<double>::Ones(2);
  CHECK(message_of<InvalidArgument>([&] { deterministic_equivalent(lambda, std::vector<double>{1}, 1, 1); }) ==
        "deterministic_equivalent: theta has shape [1], expected [2] (one coefficient an eigenvalue)");
  CHECK(message_of<InvalidArgument>([&] { deterministic_equivalent(lambda, theta, 1, -1); }) ==
        "deterministic_equivalent: noise_variance must be at least 0 and finite, got -1");
  CHECK(message_of<InvalidArgument>([&] { effective_ridge(lambda, 2); }) ==
        "effective_ridge: without a ridge there must be more eigenvalues than samples, got 2 and 2");
  CHECK(effective_ridge(lambda, 2, 0.1) > 0);
  CHECK(message_of<InvalidArgument>([&] { effective_ridge(lambda, 0); }) ==
        "effective_ridge: n must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { effective_ridge(lambda, 1, -0.5); }) ==
        "effective_ridge: ridge must be at least 0 and finite, got -0.5");
  CHECK(message_of<InvalidArgument>([&] {
          effective_ridge(std::vector<double>{1, 2}, 1);
        }) == "effective_ridge: lambda must not increase, but entry 1 is 2 after 1");
  CHECK(message_of<InvalidArgument>([&] { effective_ridge(std::vector<double>{}, 1); }) ==
        "effective_ridge: lambda is empty");
}

}  // namespace
}  // namespace ashlar::kernels
