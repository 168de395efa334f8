#include "ashlar/statistics/copula_affinity.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "statistics/samples.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::statistics {
namespace {

using test::message_of;

/// n eps for the sum, and as much again for the reference's own differences of fractions.
bool close(double a, double b, Index n) { return std::abs(a - b) <= 1e-15 * static_cast<double>(n + 10) * std::abs(b); }

TEST_CASE("statistics.copula_affinity: values are those of the oracle with and without ties") {
  for (const std::string folder : {"", "ties/"}) {
    const Matrix<double> x = data(folder + "x"), b = data(folder + "betas"), expected = data(folder + "affinity");
    const Vector<double> y = data(folder + "y");
    CopulaAffinity against(y);
    for (Index i = 0; i < b.rows(); ++i)
      CHECK(std::abs(against((x * b.row(i).transpose()).eval()) - expected(i)) <= 1e-10);
  }
}

TEST_CASE("statistics.copula_affinity: the fast form is the definition for every kind of dependence and ties") {
  for (const std::uint64_t seed : {1u, 2u, 3u})
    for (const Index n : {4, 5, 15, 16, 17, 33, 100, 401}) {
      INFO("seed = " << seed << ", n = " << n);
      Rng rng(seed);
      const Vector<double> x = normal_matrix<double>(rng, n, 1).col(0);
      const Vector<double> noise = normal_matrix<double>(rng, n, 1).col(0);
      Vector<double> outlier = x, few(n), many(n), half = x.cwiseMax(0);
      outlier[n / 2] = 100;
      for (double& value : few) value = static_cast<double>(rng.below(2));
      few[0] = 0, few[1] = 1;
      for (double& value : many) value = static_cast<double>(rng.below(n));
      many[0] = 0, many[1] = 1;
      half[0] = 0, half[1] = 1;
      for (const Vector<double>& first : {x, noise, few, many, half})
        for (const Vector<double>& second : {Vector<double>(x.array().square()), outlier, noise, few, many, half})
          CHECK(close(copula_affinity(first, second), reference::copula_affinity(first, second), n));
    }
}

TEST_CASE("statistics.copula_affinity: neighbours thousands of ranks away are exact") {
  // A diagonal, and two corners that are alone, at squares of 4499^2 + 4500^2: odd and beyond 2^24.
  const Index n = 9000;
  Vector<double> x(n), y(n);
  for (Index i = 0; i < n; ++i) x[i] = y[i] = static_cast<double>(i);
  std::swap(y[0], y[n - 1]);
  CHECK(close(copula_affinity(x, y), reference::copula_affinity(x, y), n));
  // Groups of a thousand equal values walk by groups, and the same.
  for (double& value : x) value = std::floor(value / 1000);
  CHECK(close(copula_affinity(x, y), reference::copula_affinity(x, y), n));
}

TEST_CASE("statistics.copula_affinity: monotone functions and reflections leave every bit") {
  const Model m = design(4, 300, 3, 5);
  const Vector<double> z = m.x * m.truth;
  const double b = copula_affinity(z, m.y);
  CHECK(copula_affinity((-z).eval(), m.y) == b);
  CHECK(copula_affinity(z.array().cube().matrix().eval(), m.y) == b);
  CHECK(copula_affinity(z, m.y.array().exp().matrix().eval()) == b);
  CHECK(copula_affinity(z, (3 * m.y.array() + 1).matrix().eval()) == b);
  CHECK(copula_affinity(z, (-m.y).eval()) == b);
  // Exchanging the samples exchanges the coordinates of every point.
  CHECK(copula_affinity(m.y, z) == b);
}

TEST_CASE(
    "statistics.copula_affinity: the Hellinger correlation falls from one to zero and is rho for a Gaussian copula") {
  CHECK(hellinger_correlation_of(0) == 1);
  CHECK(hellinger_correlation_of(1) == 0);
  CHECK(hellinger_correlation_of(1.06) == 0);
  double before = 1;
  for (int i = 1; i <= 100; ++i) {
    const double eta = hellinger_correlation_of(i / 100.0);
    CHECK(eta < before);
    before = eta;
  }
  for (const double rho : {0.1, 0.5, 0.9, 0.999}) {
    const double b = std::pow(1 - rho * rho, 0.25) / std::sqrt(1 - rho * rho / 4);
    // B near 1 is flat in rho: an error of eps there is one of eps / rho in rho.
    CHECK(std::abs(hellinger_correlation_of(b) - rho) <= 1e-14 / rho);
  }
}

TEST_CASE("statistics.copula_affinity: independent samples are near 1.06 and a function of x is near 0") {
  Rng rng(6);
  double mean = 0;
  for (int k = 0; k < 9; ++k) {
    const Matrix<double> x = normal_matrix<double>(rng, 400, 2);
    mean += copula_affinity(x.col(0).eval(), x.col(1).eval()) / 9;
  }
  CHECK(std::abs(mean - 1.06) <= 3 * 0.025 / 3);  // sd of one draw 0.025
  const Vector<double> x = normal_matrix<double>(rng, 400, 1).col(0);
  // Neighbours on the diagonal are sqrt(2) / 401 apart, each of them.
  CHECK(std::abs(copula_affinity(x, x) - 2 * std::sqrt(399.0) * std::sqrt(2.0) / 401) <= 1e-13);
}

TEST_CASE("statistics.copula_affinity: a constant index has affinity one and coinciding points none") {
  const std::vector<double> y{1, 2, 3, 4, 5}, two{0, 0, 0, 1, 1};
  CHECK(copula_affinity(std::vector<double>(5, 3.0), y) == 1);
  CHECK(reference::copula_affinity(std::vector<double>(5, 3.0), y) == 1);
  CHECK(copula_affinity(two, two) == 0);
}

TEST_CASE("statistics.copula_affinity: nothing is allocated against a fixed sample") {
  Rng rng(7);
  const Matrix<double> x = normal_matrix<double>(rng, 300, 2);
  Vector<double> z = x.col(0), tied = z.array().round();
  CopulaAffinity against(x.col(1));
  against(z), against(tied);
  CHECK(test::allocations([&] { against(z), against(tied); }) == 0);
}

TEST_CASE("statistics.copula_affinity: bad input is named") {
  const auto with = [](const std::vector<double>& x, const std::vector<double>& y) {
    return message_of<InvalidArgument>([&] { copula_affinity(x, y); });
  };
  CHECK(with({1, 2, 3}, {1, 2, 3}) == "CopulaAffinity: y has 3 points, expected 4 to 8388607");
  CHECK(with({1, 2, 3}, {1, 2, 3, 4}) == "CopulaAffinity: x has shape [3], expected [4] (same as y)");
  CHECK(with({1, 2, 3, NAN}, {1, 2, 3, 4}) == "CopulaAffinity: x has an entry that is not finite");
  CHECK(with({1, 2, 3, 4}, {1, 2, 3, INFINITY}) == "CopulaAffinity: y has an entry that is not finite");
  CHECK(with({1, 2, 3, 4}, {2, 2, 2, 2}) == "CopulaAffinity: y is constant");
  CHECK(message_of<InvalidArgument>([] { hellinger_correlation_of(-0.5); }) ==
        "hellinger_correlation_of: affinity must be not negative, got -0.5");
  CHECK(message_of<InvalidArgument>([] { hellinger_correlation_of(NAN); }) ==
        "hellinger_correlation_of: affinity must be not negative, got nan");
}

}  // namespace
}  // namespace ashlar::statistics
