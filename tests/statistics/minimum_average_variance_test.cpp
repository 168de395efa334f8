#include "ashlar/statistics/minimum_average_variance.hpp"

#include <cmath>

#include "statistics/samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::statistics {
namespace {

using test::message_of;

TEST_CASE("statistics.minimum_average_variance: the four designs are found from their gradients") {
  for (const int scenario : {1, 2, 3, 4})
    for (const std::uint64_t seed : {1u, 2u}) {
      const Model m = design(scenario, 200, 6, seed);
      const auto fit = minimum_average_variance(m.x, m.y);
      INFO("scenario = " << scenario << ", seed = " << seed << ", passes = " << fit.passes);
      CHECK(sine(fit.direction, m.truth) <= 0.06);
      CHECK(std::abs(fit.direction.norm() - 1) <= 1e-14);
      CHECK(fit.converged);
    }
}

TEST_CASE("statistics.minimum_average_variance: a pass solves the two least squares problems of its definition") {
  const Model m = design(3, 40, 3, 3);
  const Index n = 40, p = 3;
  const auto width = [&](const Eigen::MatrixXd& v) {
    double sd = 0;
    for (Index k = 0; k < v.cols(); ++k)
      sd += std::sqrt((v.col(k).array() - v.col(k).mean()).square().sum() / 39) / static_cast<double>(v.cols());
    return 1.06 * sd * std::pow(40.0, -0.2);
  };
  Vector<double> b = minimum_average_variance(m.x, m.y, {.max_passes = 0}).direction;
  {
    // The start, with local lines fitted by QR on the roots of the weights.
    Eigen::MatrixXd outer = Eigen::MatrixXd::Zero(p, p);
    const double h = width(m.x);
    for (Index j = 0; j < n; ++j) {
      Eigen::MatrixXd design(n + p + 1, p + 1);
      design.setZero();
      Eigen::VectorXd target = Eigen::VectorXd::Zero(n + p + 1);
      for (Index i = 0; i < n; ++i) {
        const Vector<double> d = (m.x.row(i) - m.x.row(j)).transpose();
        const double root = std::exp(-d.squaredNorm() / (4 * h * h));
        design(i, 0) = root;
        design.row(i).tail(p) = root * d.transpose();
        target[i] = root * m.y[i];
      }
      design.bottomRows(p + 1).diagonal().setConstant(1e-5);  // the ridge of 1e-10
      const Eigen::VectorXd g = design.colPivHouseholderQr().solve(target).tail(p);
      outer += g * g.transpose();
    }
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(outer);
    CHECK(sine(eigen.eigenvectors().col(p - 1), b) <= 1e-6);
  }
  const Eigen::VectorXd z = m.x * b;
  const double h = width(z);
  Eigen::MatrixXd a = Eigen::MatrixXd::Zero(p, p);
  Eigen::VectorXd r = Eigen::VectorXd::Zero(p);
  for (Index j = 0; j < n; ++j) {
    Eigen::MatrixXd line(n, 2);
    Eigen::VectorXd w(n);
    for (Index i = 0; i < n; ++i) {
      w[i] = std::exp(-(z[i] - z[j]) * (z[i] - z[j]) / (2 * h * h));
      line.row(i) << std::sqrt(w[i]), std::sqrt(w[i]) * (z[i] - z[j]);
    }
    const Eigen::Vector2d fit = line.colPivHouseholderQr().solve(w.cwiseSqrt().cwiseProduct(m.y));
    for (Index i = 0; i < n; ++i) {
      const Eigen::VectorXd d = (m.x.row(i) - m.x.row(j)).transpose();
      a += w[i] * fit[1] * fit[1] * d * d.transpose();
      r += w[i] * fit[1] * (m.y[i] - fit[0]) * d;
    }
  }
  const Vector<double> next = a.ldlt().solve(r).normalized();
  CHECK(sine(minimum_average_variance(m.x, m.y, {.max_passes = 1}).direction, next) <= 1e-6);
}

TEST_CASE("statistics.minimum_average_variance: bits do not depend on the number of threads") {
  const Model m = design(2, 90, 4, 4);
  const auto run = [&](int threads) {
    return test::with_threads(threads, [&] { return minimum_average_variance(m.x, m.y).direction; });
  };
  CHECK(run(1) == run(2));
  CHECK(run(1) == run(4));
}

TEST_CASE("statistics.minimum_average_variance: bad input is named") {
  const Matrix<double> x = Matrix<double>::Random(8, 2);
  const Vector<double> y = Vector<double>::Random(8);
  const auto with = [](const Matrix<double>& a, const Vector<double>& b, const AverageVarianceOptions& options = {}) {
    return message_of<InvalidArgument>([&] { minimum_average_variance(a, b, options); });
  };
  CHECK(with(x, y.head(7)) == "minimum_average_variance: y has shape [7], expected [8] (one response a row of x)");
  CHECK(with(Matrix<double>::Ones(8, 2), y) == "minimum_average_variance: x is constant");
  CHECK(with(x, Vector<double>::Ones(8)) == "minimum_average_variance: y is constant");
  CHECK(with(x, y, {.max_passes = -1}) == "minimum_average_variance: max_passes must be not negative, got -1");
  CHECK(with(x, y, {.tolerance = -1}) == "minimum_average_variance: tolerance must be not negative, got -1");
}

}  // namespace
}  // namespace ashlar::statistics
