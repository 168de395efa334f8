#include "ashlar/kernels/spectral_decay.hpp"

#include <Eigen/Eigenvalues>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/designs.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::kernels {
namespace {

using test::message_of;

Matrix<double> laplace_or_gauss(const Matrix<double>& x, bool gauss) {
  Matrix<double> k(x.rows(), x.rows());
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < x.rows(); ++j) {
      const double squared = (x.row(i) - x.row(j)).squaredNorm();
      k(i, j) = std::exp(gauss ? -4 * squared : -std::sqrt(squared));
    }
  return k;
}

Vector<double> eigenvalues(const Matrix<double>& k) {
  return Eigen::SelfAdjointEigenSolver<Matrix<double>>(k, Eigen::EigenvaluesOnly).eigenvalues();
}

TEST_CASE("kernels.spectral_decay: both fits match the fixtures") {
  for (const auto& name : fixture_names) {
    const Matrix<double> x = ridgeless_matrix(name + "/x");
    const std::pair<Vector<double>, std::string> cases[] = {
        {ridgeless_vector(name + "/gram_eigs"), "/decay_fit"},
        {eigenvalues(laplace_or_gauss(x, false)), "/laplace_decay_fit"},
        {eigenvalues(laplace_or_gauss(x, true)), "/gauss_decay_fit"}};
    for (const auto& [spectrum, file] : cases) {
      INFO(name << file);
      const Vector<double> expected = ridgeless_vector(name + file);
      const DecayFit fit = fit_decay(spectrum);
      CHECK(std::abs(fit.power.slope / expected[0] - 1) <= 1e-8);
      CHECK(std::abs(fit.power.residual / expected[1] - 1) <= 1e-8);
      CHECK(std::abs(fit.power.r_squared - expected[2]) <= 1e-8);
      CHECK(std::abs(fit.exponential.slope / expected[3] - 1) <= 1e-8);
      CHECK(std::abs(fit.exponential.residual / expected[4] - 1) <= 1e-8);
      CHECK(std::abs(fit.exponential.r_squared - expected[5]) <= 1e-8);
      CHECK(fit.kept == static_cast<Index>(expected[6]));
      CHECK(fit.law == (expected[4] < expected[1] ? DecayLaw::exponential : DecayLaw::power));
    }
  }
}

TEST_CASE("kernels.spectral_decay: exact laws are recognised in any order and scale") {
  Vector<double> power = 1e-5 * power_spectrum(100, 0.7);
  std::swap(power[0], power[60]);
  std::swap(power[5], power[99]);
  const DecayFit p = fit_decay(power);
  CHECK(p.law == DecayLaw::power);
  CHECK(std::abs(p.a() - 0.7) <= 1e-12);
  CHECK(p.first == 3);
  CHECK(p.last == 50);
  CHECK(p.kept == 100);
  const DecayFit e = fit_decay((exponential_spectrum(101, 0.1) * 7).eval());
  CHECK(e.law == DecayLaw::exponential);
  CHECK(std::abs(e.a() - 0.1) <= 1e-12);
  CHECK(e.last == 50);
  // In two dimensions, e^(-a i^1/2).
  Vector<double> plane(100);
  for (Index i = 0; i < 100; ++i) plane[i] = std::exp(-2 * std::sqrt(static_cast<double>(i + 1)));
  const DecayFit d = fit_decay(plane, {.dimension = 2});
  CHECK(d.law == DecayLaw::exponential);
  CHECK(std::abs(d.a() - 2) <= 1e-12);
  CHECK(d.exponential.residual <= 1e-20);
  CHECK(fit_decay(plane).exponential.residual > 1e-2);
}

TEST_CASE("kernels.spectral_decay: what is below rounding is not fitted") {
  Vector<double> spectrum = exponential_spectrum(60, 1);  // down to e^-60
  spectrum[59] = -1e-17;
  const DecayFit fit = fit_decay(spectrum);
  CHECK(fit.kept == 28);  // e^-i > 1e-12 e^-1: i < 1 + 27.6
  CHECK(fit.last == 28);
  CHECK(std::abs(fit.a() - 1) <= 1e-12);
  const DecayFit more = fit_decay(spectrum, {.first = 2, .fraction = 0.25, .drop = 1e-20});
  CHECK(more.kept == 47);
  CHECK(more.first == 2);
  CHECK(more.last == 15);
}

TEST_CASE("kernels.spectral_decay: fewer than eight eigenvalues follow no law") {
  Vector<double> spectrum = Vector<double>::Zero(40);
  spectrum.head(7) = power_spectrum(7, 1);
  const DecayFit fit = fit_decay(spectrum);
  CHECK(fit.law == DecayLaw::unknown);
  CHECK(fit.kept == 7);
  CHECK(std::isnan(predicted_variance(fit)));
  spectrum[7] = 1e-3;
  CHECK(fit_decay(spectrum).law != DecayLaw::unknown);
  CHECK(fit_decay(Vector<double>::Zero(20).eval()).kept == 0);
}

TEST_CASE("kernels.spectral_decay: the predicted variance is that of the fitted law") {
  for (const double a : {0.5, 1.0, 2.0}) {
    const double predicted = predicted_variance(fit_decay(power_spectrum(200, a)));
    const auto e = deterministic_equivalent(power_spectrum(4000, a), Vector<double>::Zero(4000).eval(), 200, 0);
    CHECK(std::abs(predicted / e.variance - 1) <= 1e-8);
  }
  const auto e = deterministic_equivalent(exponential_spectrum(600, 0.2), Vector<double>::Zero(600).eval(), 100, 0);
  CHECK(std::abs(predicted_variance(fit_decay(exponential_spectrum(100, 0.2))) / e.variance - 1) <= 1e-8);
  // So steep that e^(-a i) leaves the range of doubles soon after the n-th: still a number, near a n.
  const double steep = predicted_variance(fit_decay(exponential_spectrum(100, 3)));
  CHECK(steep > 100);
  CHECK(std::isfinite(steep));
  // And so steep that the n + 1-st is gone.
  DecayFit cliff = fit_decay(exponential_spectrum(100, 3));
  cliff.exponential.slope = -1000;
  CHECK(std::isinf(predicted_variance(cliff)));
}

TEST_CASE("kernels.spectral_decay: bad input is refused in words") {
  const Vector<double> s = power_spectrum(20, 1);
  CHECK(message_of<InvalidArgument>([&] { fit_decay(s.head(15)); }) ==
        "fit_decay: eigenvalues must be 16 at least, got 15");
  CHECK(message_of<InvalidArgument>([&] { fit_decay((s / 0.0).eval()); }) ==
        "fit_decay: eigenvalues has an entry that is not finite");
  CHECK(message_of<InvalidArgument>([&] { fit_decay(s, {.first = 0}); }) ==
        "fit_decay: first must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { fit_decay(s, {.fraction = 1.5}); }) ==
        "fit_decay: fraction must be in (0, 1], got 1.5");
  CHECK(message_of<InvalidArgument>([&] { fit_decay(s, {.drop = 1}); }) == "fit_decay: drop must be in [0, 1), got 1");
  CHECK(message_of<InvalidArgument>([&] { fit_decay(s, {.dimension = 0}); }) ==
        "fit_decay: dimension must be positive and finite, got 0");
  CHECK(message_of<InvalidArgument>([&] { fit_decay(s, {.first = 9}); }) ==
        "fit_decay: eigenvalues 9 to 10 are too few to fit a law");
}

}  // namespace
}  // namespace ashlar::kernels
