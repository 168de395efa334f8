#include "ashlar/kernels/spectral_design.hpp"

#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/designs.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::kernels {
namespace {

using test::message_of;

TEST_CASE("kernels.spectral_design: spectra follow their laws") {
  const Vector<double> power = power_spectrum(10, 0.5), exponential = exponential_spectrum(10, 0.3);
  for (Index i = 0; i < 10; ++i) {
    const double number = static_cast<double>(i + 1);
    CHECK(std::abs(power[i] * number * std::sqrt(number) - 1) <= 1e-14);
    CHECK(std::abs(exponential[i] * std::exp(0.3 * number) - 1) <= 1e-14);
  }
  CHECK(relative_error(power_spectrum(200, 1), ridgeless_vector("gaussian/lambda")) <= 1e-14);
  CHECK(relative_error(exponential_spectrum(60, 0.3), ridgeless_vector("exp/lambda")) <= 1e-14);
}

TEST_CASE("kernels.spectral_design: sines are orthonormal on the unit interval") {
  // The midpoint rule with m points is exact for products of sines up to the m-th.
  constexpr Index m = 64, p = 40;
  Vector<double> x(m);
  for (Index i = 0; i < m; ++i) x[i] = (static_cast<double>(i) + 0.5) / m;
  const Matrix<double> psi = sine_features(x, p);
  CHECK((psi.transpose() * psi / m - Matrix<double>::Identity(p, p)).cwiseAbs().maxCoeff() <= 1e-13);
  CHECK(std::abs(psi(0, 0) - std::sqrt(2.0) * std::sin(std::numbers::pi * x[0])) <= 1e-15);
}

TEST_CASE("kernels.spectral_design: random features are isotropic") {
  const std::uint64_t seed = GENERATE(1u, 2u);
  INFO("seed = " << seed);
  Rng rng(seed);
  constexpr Index n = 20000, p = 6;
  for (const Matrix<double>& psi :
       {gaussian_features(rng, n, p), rademacher_features(rng, n, p), sine_features(rng, n, p)}) {
    const Matrix<double> second = psi.transpose() * psi / static_cast<double>(n);
    // Entries of the sample covariance have a deviation of sqrt 2 / sqrt n at most; five of them.
    CHECK((second - Matrix<double>::Identity(p, p)).cwiseAbs().maxCoeff() <= 5 * std::sqrt(2.0 / n));
  }
  const Matrix<double> signs = rademacher_features(rng, 100, 7);
  CHECK((signs.cwiseAbs().array() == 1).all());
}

TEST_CASE("kernels.spectral_design: the gram matrix is the expansion of the kernel") {
  Rng rng(3);
  const Vector<double> lambda = power_spectrum(37, 1);
  const Matrix<double> a = gaussian_features(rng, 70, 37), b = gaussian_features(rng, 9, 37);
  const Matrix<double> cross = design_gram(lambda, a, b), square = design_gram(lambda, a, a);
  CHECK(relative_error(cross, Matrix<double>(a * lambda.asDiagonal() * b.transpose())) <= 1e-14);
  CHECK(relative_error(square, Matrix<double>(a * lambda.asDiagonal() * a.transpose())) <= 1e-14);
  CHECK(square == square.transpose());
  CHECK(relative_error(design_gram(lambda, a, Matrix<double>(a)), square) <= 1e-14);
  const Matrix<double> one = test::with_threads(1, [&] { return design_gram(lambda, a, b); });
  for (const int threads : {2, 4}) CHECK(test::with_threads(threads, [&] { return design_gram(lambda, a, b); }) == one);
}

TEST_CASE("kernels.spectral_design: a seed gives the same features") {
  Rng first(5), second(5);
  CHECK(rademacher_features(first, 4, 9) == rademacher_features(second, 4, 9));
  CHECK(sine_features(first, 4, 9) == sine_features(second, 4, 9));
}

TEST_CASE("kernels.spectral_design: bad input is refused in words") {
  CHECK(message_of<InvalidArgument>([] { power_spectrum(5, 0); }) ==
        "power_spectrum: a must be positive and finite, got 0");
  CHECK(message_of<InvalidArgument>([] { power_spectrum(0, 1); }) == "power_spectrum: p must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([] { exponential_spectrum(5, -1); }) ==
        "exponential_spectrum: a must be positive and finite, got -1");
  CHECK(message_of<InvalidArgument>([] { exponential_spectrum(800, 1); }) ==
        "exponential_spectrum: e^(-a p) underflows for a = 1 and p = 800");
  CHECK(message_of<InvalidArgument>([] { sine_features(std::vector<double>{0.5}, 0); }) ==
        "sine_features: p must be at least 1, got 0");
  const Matrix<double> psi = Matrix<double>::Ones(2, 3);
  const auto gram = [&](const std::vector<double>& lambda) { return design_gram(lambda, psi, psi); };
  CHECK(message_of<InvalidArgument>([&] { gram({}); }) == "design_gram: lambda is empty");
  CHECK(message_of<InvalidArgument>([&] {
          gram({3, 1, 0});
        }) == "design_gram: lambda must be positive and finite, but entry 2 is 0");
  CHECK(message_of<InvalidArgument>([&] {
          gram({3, 1, 2});
        }) == "design_gram: lambda must not increase, but entry 2 is 2 after 1");
  CHECK(message_of<InvalidArgument>([&] {
          gram({3, 1});
        }) == "design_gram: features has shape [2,3], expected [2,2] (one column an eigenvalue)");
  Matrix<double> nan = psi;
  nan(1, 2) = std::nan("");
  CHECK(message_of<InvalidArgument>([&] {
          design_gram(std::vector<double>{3, 2, 1}, psi, nan);
        }) == "design_gram: features has an entry that is not finite");
  CHECK(message_of<InvalidArgument>([&] { design_gram(std::vector<double>{1}, Matrix<double>(0, 1), psi); }) ==
        "design_gram: features has no rows");
}

}  // namespace
}  // namespace ashlar::kernels
