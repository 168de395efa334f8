#include "ashlar/statistics/hellinger_correlation.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "statistics/samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::statistics {
namespace {

using test::message_of;

TEST_CASE("statistics.hellinger_correlation: estimates and degrees and coefficients are those of the oracle") {
  const Matrix<double> x = data("x"), b = data("betas"), expected = data("hellcor"), raw = data("hellcor_raw");
  const Vector<double> y = data("y");
  for (Index i = 0; i < b.rows(); ++i) {
    const Vector<double> z = x * b.row(i).transpose();
    const auto series = hellinger_correlation(z, y, {.max_degree_x = 8, .max_degree_y = 8});
    CHECK(std::abs(series.correlation - expected(i, 0)) <= 1e-8);
    CHECK(std::abs(series.affinity - expected(i, 1)) <= 1e-8);
    CHECK(series.degree_x == static_cast<int>(expected(i, 2)));
    CHECK(series.degree_y == static_cast<int>(expected(i, 3)));
    const auto none = hellinger_correlation(z, y, {.max_degree_x = 0, .max_degree_y = 0});
    CHECK(std::abs(none.correlation - raw(i, 0)) <= 1e-8);
    CHECK(std::abs(none.affinity - raw(i, 1)) <= 1e-8);
    if (i == 0) CHECK((series.coefficients - data("hellcor_beta_first")).cwiseAbs().maxCoeff() <= 1e-8);
  }
}

TEST_CASE("statistics.hellinger_correlation: the fast form is the definition over sizes and degrees and ties") {
  for (const std::uint64_t seed : {1u, 2u})
    for (const Index n : {4, 11, 70}) {
      INFO("seed = " << seed << ", n = " << n);
      Rng rng(seed);
      const Vector<double> x = normal_matrix<double>(rng, n, 1).col(0);
      const Vector<double> y = x.array().square() + 0.3 * normal_matrix<double>(rng, n, 1).array();
      Vector<double> tied = (3 * x).array().round();
      tied[0] = 0, tied[1] = 1;
      for (const auto& [kx, ky] : {std::pair{0, 0}, {0, 3}, {5, 2}})
        for (const Vector<double>& first : {x, tied}) {
          const HellingerOptions options{.max_degree_x = kx, .max_degree_y = ky, .alpha = 3.5};
          const auto fast = hellinger_correlation(first, y, options);
          const auto slow = reference::hellinger_correlation(first, y, options);
          CHECK((fast.coefficients - slow.coefficients).cwiseAbs().maxCoeff() <= 1e-12);
          CHECK(fast.degree_x == slow.degree_x);
          CHECK(fast.degree_y == slow.degree_y);
          CHECK(std::abs(fast.affinity - slow.affinity) <= 1e-12);
        }
    }
}

TEST_CASE("statistics.hellinger_correlation: scores by differences are those recomputed without each point") {
  Rng rng(3);
  const Index n = 60;
  const Matrix<double> sample = normal_matrix<double>(rng, n, 2);
  const Vector<double> x = sample.col(0), y = sample.col(0) + sample.col(1);
  const auto mx = detail::copula_margin("test", x, 6, 6), my = detail::copula_margin("test", y, 4, 6);
  const auto neighbours = detail::two_neighbours(mx, my, detail::identity(n), numerics::argsort(x));
  const Matrix<double> sums = mx.basis.transpose() * (neighbours.first.asDiagonal() * my.basis);
  const Matrix<double> fast = detail::cross_validation(neighbours, mx.basis, my.basis, sums);
  Matrix<double> slow = Matrix<double>::Zero(7, 5);
  for (Index i = 0; i < n; ++i) {
    Matrix<double> without = Matrix<double>::Zero(7, 5);
    for (Index j = 0; j < n; ++j) {
      if (j == i) continue;
      const bool lost = neighbours.nearest[static_cast<std::size_t>(j)] == i;
      without += (lost ? neighbours.second[j] : neighbours.first[j]) * mx.basis.row(j).transpose() * my.basis.row(j);
    }
    for (Index k = 0; k < 7; ++k)
      for (Index l = 0; l < 5; ++l) {
        const auto block = without.topLeftCorner(k + 1, l + 1);
        const double predicted = mx.basis.row(i).head(k + 1) * block * my.basis.row(i).head(l + 1).transpose();
        slow(k, l) += neighbours.first[i] * predicted / block.norm();
      }
  }
  CHECK((fast - slow).cwiseAbs().maxCoeff() <= 1e-10);
}

TEST_CASE("statistics.hellinger_correlation: Gaussian copulas of 800 points have the means known for them") {
  for (const auto& [rho, expected] : {std::pair{0.0, 0.07}, {0.5, 0.50}, {0.8, 0.81}}) {
    Rng rng(4);
    double mean = 0;
    for (int k = 0; k < 9; ++k) {
      const Matrix<double> z = normal_matrix<double>(rng, 800, 2);
      const Vector<double> x = z.col(0), y = rho * z.col(0) + std::sqrt(1 - rho * rho) * z.col(1);
      mean += hellinger_correlation(x, y, {.max_degree_x = 6, .max_degree_y = 6}).correlation / 9;
    }
    INFO("rho = " << rho << ", mean = " << mean);
    CHECK(std::abs(mean - expected) <= 0.03);  // three standard deviations of the mean of nine
  }
}

TEST_CASE("statistics.hellinger_correlation: p-values are small for dependence and uniform for independence") {
  Rng rng(5);
  const HellingerOptions options{.max_degree_x = 4, .max_degree_y = 4};
  const Vector<double> x = normal_matrix<double>(rng, 80, 1).col(0);
  CHECK(independence_p_value(x, x.array().square().matrix().eval(), 39, Rng(6), options) == 1.0 / 40);
  double mean = 0, least = 1;
  for (int k = 0; k < 40; ++k) {
    const Matrix<double> z = normal_matrix<double>(rng, 20, 2);
    const double p = independence_p_value(z.col(0).eval(), z.col(1).eval(), 19, Rng(7), options);
    mean += p / 40;
    least = std::min(least, p);
    CHECK(std::abs(20 * p - std::round(20 * p)) <= 1e-12);
  }
  // Uniform on 1/20 .. 1: mean 0.525, standard deviation 0.288 / sqrt(40).
  CHECK(std::abs(mean - 0.525) <= 4 * 0.288 / std::sqrt(40.0));
  CHECK(least <= 0.2);
}

TEST_CASE("statistics.hellinger_correlation: bits do not depend on the number of threads") {
  const Model m = design(2, 300, 3, 8);
  const Vector<double> z = m.x * m.truth;
  const auto run = [&](int threads) {
    return test::with_threads(threads, [&] {
      return std::pair(hellinger_correlation(z, m.y).correlation,
                       independence_p_value(z.head(60).eval(), m.y.head(60).eval(), 9, Rng(1)));
    });
  };
  CHECK(run(1) == run(2));
  CHECK(run(1) == run(4));
}

TEST_CASE("statistics.hellinger_correlation: points that all coincide are dependent entirely") {
  const std::vector<double> two{0, 0, 0, 1, 1, 1};
  CHECK(hellinger_correlation(two, two).correlation == 1);
}

TEST_CASE("statistics.hellinger_correlation: bad input is named") {
  const std::vector<double> x{1, 2, 3, 4}, y{2, 1, 4, 3};
  const auto with = [](const std::vector<double>& a, const std::vector<double>& b, const HellingerOptions& options) {
    return message_of<InvalidArgument>([&] { hellinger_correlation(a, b, options); });
  };
  CHECK(with({1, 2, 3}, {1, 2, 3}, {}) == "hellinger_correlation: y has 3 points, expected 4 to 8388607");
  CHECK(with({1, 2, 3}, y, {}) == "hellinger_correlation: x has shape [3], expected [4] (same as y)");
  CHECK(with({1, 2, 3, NAN}, y, {}) == "hellinger_correlation: x has an entry that is not finite");
  CHECK(with(x, {1, 2, 3, NAN}, {}) == "hellinger_correlation: y has an entry that is not finite");
  CHECK(with({1, 1, 1, 1}, y, {}) == "hellinger_correlation: x is constant");
  CHECK(with(x, {1, 1, 1, 1}, {}) == "hellinger_correlation: y is constant");
  CHECK(with(x, y, {.max_degree_x = -1}) == "hellinger_correlation: max_degree_x must be not negative, got -1");
  CHECK(with(x, y, {.max_degree_y = -2}) == "hellinger_correlation: max_degree_y must be not negative, got -2");
  CHECK(with(x, y, {.alpha = 0}) == "hellinger_correlation: alpha must be positive and finite, got 0");
  CHECK(message_of<InvalidArgument>([&] { independence_p_value(x, y, 0, Rng(1)); }) ==
        "independence_p_value: permutations must be at least 1, got 0");
  CHECK(message_of<NumericalError>([&] { hellinger_correlation(x, y, {.alpha = 1e-4}); }) ==
        "hellinger_correlation: Beta(1e-04, 1e-04) has no density at its quantile of 0.2");
}

}  // namespace
}  // namespace ashlar::statistics
