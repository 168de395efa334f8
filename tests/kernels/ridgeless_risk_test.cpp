#include "ashlar/kernels/ridgeless_risk.hpp"

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ashlar/kernels/ridgeless_bounds.hpp"
#include "ashlar/linalg/laplace_kernel.hpp"
#include "kernels/designs.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::kernels {
namespace {

using test::message_of;
constexpr double eps = std::numeric_limits<double>::epsilon();

double off(double a, double b) { return std::abs(a / b - 1); }

/// B and V in extended precision, by Householder QR of Lambda^1/2 Psi: a yardstick with 1e-19 in place of 2e-16.
Risk extended_risk(const Design& d) {
  using Wide = Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic>;
  using WideVector = Eigen::Matrix<long double, Eigen::Dynamic, 1>;
  const Index n = d.features.rows(), p = d.features.cols();
  const WideVector root = d.lambda.cast<long double>().cwiseSqrt(), theta = d.theta.cast<long double>();
  const Wide psi = d.features.transpose().cast<long double>();
  const Eigen::ColPivHouseholderQR<Wide> qr(root.asDiagonal() * psi);
  const Wide q = qr.householderQ() * Wide::Identity(p, n);
  const Wide r = qr.matrixQR().topRows(n).triangularView<Eigen::Upper>();
  const Wide turned = qr.colsPermutation().transpose() * Wide::Identity(n, n);
  const Wide c = root.asDiagonal() * q * r.transpose().triangularView<Eigen::Lower>().solve(turned);
  return {.bias = static_cast<double>((theta - c * (psi.transpose() * theta)).squaredNorm()),
          .variance = static_cast<double>(c.squaredNorm())};
}

TEST_CASE("kernels.ridgeless_risk: bias and variance and coefficients match the fixtures") {
  for (const auto& name : fixture_names) {
    INFO(name);
    const Design d = fixture_design(name);
    const Vector<double> expected = ridgeless_vector(name + "/bias_variance");
    const Vector<double> eigenvalues = ridgeless_vector(name + "/gram_eigs");
    const double condition = eigenvalues[eigenvalues.size() - 1] / eigenvalues[0];
    const double tolerance = condition < 1e6 ? 1e-8 : 1e-5;
    const Risk risk = exact_risk(d.lambda, d.features, d.theta);
    CHECK(off(risk.bias, expected[0]) <= tolerance);
    CHECK(off(risk.variance, expected[1]) <= tolerance);
    CHECK(off(risk.condition * risk.condition, condition) <= 1e-5);
    CHECK(risk.reliable);
    CHECK(risk.rank == d.features.rows());
    CHECK(risk.test_error(0.25) == risk.bias + 0.25 * (risk.variance + 1));
    const Vector<double> y = ridgeless_vector(name + "/y");
    CHECK(relative_error(FeatureInterpolator(d.lambda, d.features).coefficients(y),
                         ridgeless_vector(name + "/coef_hat")) <= tolerance);
  }
}

TEST_CASE("kernels.ridgeless_risk: the fast form agrees with the reference over a sweep of shapes") {
  const std::uint64_t seed = GENERATE(1u, 2u);
  for (const auto& [n, p] : {std::pair<Index, Index>{1, 1}, {1, 9}, {2, 3}, {13, 40}, {40, 300}, {65, 515}, {70, 71}}) {
    INFO("seed = " << seed << ", n = " << n << ", p = " << p);
    const Design d = gaussian_design(seed, n, power_spectrum(p, 1));
    const Risk fast = exact_risk(d.lambda, d.features, d.theta);
    const Risk slow = reference::exact_risk(d.lambda, d.features, d.theta);
    const double tolerance = 1000 * eps * slow.condition;
    CHECK(off(fast.variance, slow.variance) <= tolerance);
    CHECK(std::abs(fast.bias - slow.bias) <= tolerance * (slow.bias + d.theta.squaredNorm()));
    CHECK(off(fast.condition, slow.condition) <= 1e-5);
    CHECK(fast.rank == slow.rank);
  }
}

TEST_CASE("kernels.ridgeless_risk: the variance by QR equals that by eigenvalues and by Cholesky's method") {
  const std::uint64_t seed = GENERATE(3u, 4u, 5u);
  INFO("seed = " << seed);
  const Design d = gaussian_design(seed, 40, power_spectrum(400, 1));
  const Matrix<double> k = d.gram();
  REQUIRE(condition_number(k) < 1e8);
  const Matrix<double> weighted = d.lambda.asDiagonal() * d.features.transpose();  // C K
  const double by_cholesky = k.llt().solve(weighted.transpose()).squaredNorm();
  const Eigen::SelfAdjointEigenSolver<Matrix<double>> eigen(k);
  const double by_eigenvalues =
      (weighted * eigen.eigenvectors() * eigen.eigenvalues().cwiseInverse().asDiagonal()).squaredNorm();
  const double by_qr = exact_risk(d.lambda, d.features, d.theta).variance;
  CHECK(off(by_qr, by_cholesky) <= 1e-6);
  CHECK(off(by_qr, by_eigenvalues) <= 1e-6);
}

TEST_CASE("kernels.ridgeless_risk: mixing features of equal eigenvalue changes nothing") {
  const std::uint64_t seed = GENERATE(6u, 7u);
  INFO("seed = " << seed);
  Vector<double> lambda = power_spectrum(60, 1);
  lambda.segment(10, 5).setConstant(lambda[10]);
  Design d = gaussian_design(seed, 20, lambda);
  const Risk before = exact_risk(d.lambda, d.features, d.theta);
  Rng rng(seed);
  const Matrix<double> random = normal_matrix<double>(rng, 5, 5);
  const Matrix<double> q = Eigen::HouseholderQR<Matrix<double>>(random).householderQ();
  d.features.middleCols(10, 5) = (d.features.middleCols(10, 5) * q.transpose()).eval();
  const Risk features_only = exact_risk(d.lambda, d.features, d.theta);
  d.theta.segment(10, 5) = (q * d.theta.segment(10, 5)).eval();
  const Risk after = exact_risk(d.lambda, d.features, d.theta);
  CHECK(off(after.variance, before.variance) <= 1e-11);
  CHECK(off(after.bias, before.bias) <= 1e-11);
  CHECK(off(features_only.bias, before.bias) > 1e-3);  // the target has to turn along
}

TEST_CASE("kernels.ridgeless_risk: coefficients and kernel predict the same") {
  const Design d = gaussian_design(8, 30, power_spectrum(200, 1));
  Rng rng(8);
  const Matrix<double> test = gaussian_features(rng, 11, 200);
  const Vector<double> y = normal_matrix<double>(rng, 30, 1).col(0);
  const Vector<double> by_features = test * FeatureInterpolator(d.lambda, d.features).coefficients(y);
  const Vector<double> by_kernel = predict(design_gram(d.lambda, test, d.features), fit_ridgeless(d.gram(), y));
  CHECK(relative_error(by_features, by_kernel) <= 1e-10);
}

TEST_CASE("kernels.ridgeless_risk: only the root of the condition number costs digits") {
  // Sines with a spectrum e^(-i / 5): kappa(K) of 1e8 to 1e14. Through K, V would be off by kappa eps.
  const std::uint64_t seed = GENERATE(9u, 10u, 11u);
  const Vector<double> lambda = exponential_spectrum(240, 0.2);
  Rng rng(seed);
  const Design d{lambda, sine_features(rng, 40, 240), harmonic(240)};
  const Risk risk = exact_risk(d.lambda, d.features, d.theta), exact = extended_risk(d);
  INFO("seed = " << seed << ", condition " << risk.condition);
  REQUIRE(risk.reliable);
  CHECK(off(risk.variance, exact.variance) <= 100 * eps * risk.condition);
  // C Psi^T theta is as large as |C| |Psi^T theta| eps before it cancels
  CHECK(std::abs(std::sqrt(risk.bias) - std::sqrt(exact.bias)) <=
        100 * eps * risk.condition * (std::sqrt(exact.bias) + d.theta.norm()));
}

TEST_CASE("kernels.ridgeless_risk: Gram matrices that doubles cannot factor are no obstacle") {
  // kappa(K) near e^40 = 2e17: no Cholesky factor, but Lambda^1/2 Psi has one of 5e8.
  const std::uint64_t seed = GENERATE(12u, 13u);
  const Design d = gaussian_design(seed, 36, exponential_spectrum(80, 1));
  const Risk risk = exact_risk(d.lambda, d.features, d.theta), exact = extended_risk(d);
  INFO("seed = " << seed << ", condition " << risk.condition);
  REQUIRE(risk.condition > 1e7);
  REQUIRE(std::isinf(condition_number(d.gram())));
  CHECK(risk.reliable);
  CHECK(off(risk.variance, exact.variance) <= 100 * eps * risk.condition);
}

TEST_CASE("kernels.ridgeless_risk: beyond that the result says it cannot be relied on") {
  const Design d = gaussian_design(14, 60, exponential_spectrum(120, 1));
  CHECK_FALSE(exact_risk(d.lambda, d.features, d.theta).reliable);
}

TEST_CASE("kernels.ridgeless_risk: fewer features than samples are least squares") {
  const Design d = gaussian_design(15, 25, power_spectrum(8, 1));
  Rng rng(15);
  const Vector<double> y = normal_matrix<double>(rng, 25, 1).col(0);
  const FeatureInterpolator interpolator(d.lambda, d.features);
  CHECK(interpolator.rank() == 8);
  const Eigen::MatrixXd psi = d.features;
  CHECK(relative_error(interpolator.coefficients(y), Vector<double>(psi.colPivHouseholderQr().solve(y))) <= 1e-12);
  const Risk risk = exact_risk(d.lambda, d.features, d.theta);
  CHECK(risk.bias <= 1e-24);
  const Matrix<double> normal = d.features.transpose() * d.features;
  CHECK(off(risk.variance, normal.inverse().trace()) <= 1e-12);
  CHECK(risk.reliable);
}

TEST_CASE("kernels.ridgeless_risk: samples that occur twice share their response") {
  Design d = gaussian_design(16, 20, power_spectrum(100, 1));
  d.features.row(19) = d.features.row(2);
  Rng rng(16);
  Vector<double> y = normal_matrix<double>(rng, 20, 1).col(0);
  const FeatureInterpolator interpolator(d.lambda, d.features);
  CHECK(interpolator.rank() == 19);
  const Vector<double> f = d.features * interpolator.coefficients(y);
  CHECK(std::abs(f[2] - (y[2] + y[19]) / 2) <= 1e-11);
  CHECK(std::abs(f[3] - y[3]) <= 1e-11);
  // Averaged noise has half the variance: the same as one sample of 19 with its column of C divided by sqrt 2.
  const FeatureInterpolator once(d.lambda, d.features.topRows(19));
  const double column = once.coefficients(Vector<double>::Unit(19, 2).eval()).squaredNorm();
  CHECK(off(interpolator.variance(), once.variance() - column / 2) <= 1e-10);
  CHECK(off(exact_risk(d.lambda, d.features, d.theta).bias,
            exact_risk(d.lambda, d.features.topRows(19), d.theta).bias) <= 1e-10);
}

TEST_CASE("kernels.ridgeless_risk: one sample by hand") {
  const Vector<double> lambda{{2.0, 1.0, 0.5}}, theta{{1.0, 0.0, -1.0}};
  Matrix<double> psi(1, 3);
  psi << 1, 2, -1;
  const Vector<double> c = lambda.cwiseProduct(psi.row(0).transpose()) / 6.5;  // K = 2 + 4 + 0.5
  const Risk risk = exact_risk(lambda, psi, theta);
  CHECK(off(risk.variance, c.squaredNorm()) <= 1e-14);
  CHECK(off(risk.bias, (theta - 2 * c).squaredNorm()) <= 1e-14);  // psi^T theta = 2
  CHECK(off(risk.condition, 1) <= 1e-14);
}

TEST_CASE("kernels.ridgeless_risk: the same bits for any number of threads") {
  const Design d = gaussian_design(17, 150, power_spectrum(1100, 1));
  const auto run = [&] { return exact_risk(d.lambda, d.features, d.theta); };
  const Risk one = test::with_threads(1, run);
  for (const int threads : {2, 4}) {
    const Risk more = test::with_threads(threads, run);
    CHECK(more.bias == one.bias);
    CHECK(more.variance == one.variance);
    CHECK(more.condition == one.condition);
  }
  const Matrix<double> k = d.gram();
  const auto sample = [&] { return sampled_risk(k, k.topRows(100), k.col(0), k.col(0).head(100)); };
  const SampledRisk first = test::with_threads(1, sample), second = test::with_threads(4, sample);
  CHECK(first.variance == second.variance);
  CHECK(first.bias == second.bias);
}

TEST_CASE("kernels.ridgeless_risk: test points sample what features say exactly") {
  const std::uint64_t seed = GENERATE(18u, 19u, 20u);
  INFO("seed = " << seed);
  const Design d = gaussian_design(seed, 30, power_spectrum(300, 1));
  Rng rng(seed + 100);
  const Matrix<double> test = gaussian_features(rng, 4000, 300);
  const SampledRisk sampled = sampled_risk(d.gram(), design_gram(d.lambda, test, d.features),
                                           (d.features * d.theta).eval(), (test * d.theta).eval());
  const Risk exact = exact_risk(d.lambda, d.features, d.theta);
  CHECK(std::abs(sampled.variance - exact.variance) <= 5 * sampled.variance_error);
  CHECK(std::abs(sampled.bias - exact.bias) <= 5 * sampled.bias_error);
  // |K^-1 k_x|^2 is a weighted sum of squares of normals: its deviation is at most sqrt 2 times its mean, here far less
  CHECK(sampled.variance_error <= std::sqrt(2.0 / 4000) * exact.variance);
  CHECK(sampled.variance_error >= 0.01 * std::sqrt(2.0 / 4000) * exact.variance);
  CHECK(sampled.reliable);
}

TEST_CASE("kernels.ridgeless_risk: sampled variance agrees with the reference and kernels are taken as they are") {
  Rng rng(21);
  const Matrix<double> x = normal_matrix<double>(rng, 40, 2), x_test = normal_matrix<double>(rng, 70, 2);
  const linalg::LaplaceKernel kernel(1);
  const Matrix<double> k = linalg::gram(kernel, x), k_test = linalg::gram(kernel, x_test, x);
  const SampledRisk risk = sampled_risk(k, k_test);
  CHECK(off(risk.variance, reference::sampled_variance(k, k_test)) <= 1e-10);
  CHECK(risk.bias == 0);
  CHECK(risk.rank == 40);
  CHECK(risk.test_error(2) == 2 * (risk.variance + 1));
  const SampledRisk direct = sampled_risk(kernel, x, x_test);
  CHECK(direct.variance == risk.variance);
  // On the training points themselves f interpolates: k_x is a column of K, V is one and B zero.
  const SampledRisk training = sampled_risk(kernel, x, x, x.col(0), x.col(0));
  CHECK(off(training.variance, 1) <= 1e-10);
  CHECK(training.bias <= 1e-20);
  CHECK(std::isinf(sampled_risk(k, k_test.topRows(1)).variance_error));
}

TEST_CASE("kernels.ridgeless_risk: a sampled risk of a truncated matrix is flagged") {
  Rng rng(22);
  const Matrix<double> x = normal_matrix<double>(rng, 60, 1);
  const SampledRisk risk = sampled_risk(linalg::RbfKernel(1), x, x);
  CHECK(risk.rank < 60);
  CHECK_FALSE(risk.reliable);
}

TEST_CASE("kernels.ridgeless_risk: bad input is refused in words") {
  const Vector<double> lambda{{2.0, 1.0}};
  const Matrix<double> psi = Matrix<double>::Identity(2, 2);
  CHECK(message_of<InvalidArgument>([&] {
          exact_risk(lambda, psi, std::vector<double>{1, 2, 3});
        }) == "exact_risk: theta has shape [3], expected [2] (one coefficient a feature)");
  CHECK(message_of<InvalidArgument>([&] {
          exact_risk(lambda, psi, std::vector<double>{1, std::nan("")});
        }) == "exact_risk: theta has an entry that is not finite");
  CHECK(message_of<InvalidArgument>([&] {
          exact_risk(std::vector<double>{1, 2}, psi, lambda);
        }) == "FeatureInterpolator: lambda must not increase, but entry 1 is 2 after 1");
  CHECK(message_of<InvalidArgument>([&] {
          exact_risk(std::vector<double>{1, -2}, psi, lambda);
        }) == "FeatureInterpolator: lambda must be positive and finite, but entry 1 is -2");
  CHECK(message_of<InvalidArgument>([&] { exact_risk(lambda, Matrix<double>::Ones(2, 3).eval(), lambda); }) ==
        "FeatureInterpolator: features has shape [2,3], expected [2,2] (one column an eigenvalue)");
  const FeatureInterpolator interpolator(lambda, psi);
  CHECK(message_of<InvalidArgument>([&] { interpolator.coefficients(std::vector<double>{1}); }) ==
        "FeatureInterpolator::coefficients: y has shape [1], expected [2] (one response a row of features)");
  CHECK(message_of<InvalidArgument>([&] { interpolator.bias(psi.topRows(1), lambda); }) ==
        "FeatureInterpolator::bias: features has shape [1,2], expected [2,2] (those it was built from)");
  CHECK(message_of<InvalidArgument>([&] { interpolator.bias(psi, std::vector<double>{1}); }) ==
        "FeatureInterpolator::bias: theta has shape [1], expected [2] (one coefficient a feature)");
  CHECK(message_of<InvalidArgument>([&] { sampled_risk(psi, Matrix<double>::Ones(4, 3).eval()); }) ==
        "sampled_risk: k_test has shape [4,3], expected [4,2] (one column a training point)");
  CHECK(message_of<InvalidArgument>([&] { sampled_risk(psi, Matrix<double>(0, 2)); }) ==
        "sampled_risk: k_test has no rows");
  CHECK(message_of<InvalidArgument>([&] { sampled_risk(psi, (psi / 0.0).eval()); }) ==
        "sampled_risk: k_test has an entry that is not finite");
  CHECK(message_of<InvalidArgument>([&] { sampled_risk(psi, psi, std::vector<double>{1}, lambda); }) ==
        "sampled_risk: target has shape [1], expected [2] (one value a row of gram)");
  CHECK(message_of<InvalidArgument>([&] { sampled_risk(psi, psi, lambda); }) ==
        "sampled_risk: target_test has shape [0], expected [2] (one value a row of k_test)");
}

}  // namespace
}  // namespace ashlar::kernels
