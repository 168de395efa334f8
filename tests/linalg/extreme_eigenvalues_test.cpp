#include "ashlar/linalg/extreme_eigenvalues.hpp"

#include <Eigen/QR>
#include <cmath>
#include <limits>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::linalg {
namespace {

using test::message_of;

/// Q diag(values) Q^T with a random Q.
template <class T>
Matrix<T> with_spectrum(std::uint64_t seed, const Vector<T>& values) {
  Rng rng(seed);
  const Index n = values.size();
  const Matrix<T> random = normal_matrix<T>(rng, n, n);
  const Matrix<T> q = Eigen::HouseholderQR<Matrix<T>>(random).householderQ();
  const Matrix<T> a = q * values.asDiagonal() * q.transpose();
  return (a + a.transpose()) / 2;
}

Vector<double> powers(Index n, double exponent) {
  Vector<double> values(n);
  for (Index i = 0; i < n; ++i) values[i] = std::pow(static_cast<double>(i + 1), exponent);
  return values;
}

TEST_CASE("linalg.extreme_eigenvalues: both ends of a known spectrum are found") {
  const Index n = GENERATE(1, 2, 31, 33, 64, 150);
  for (const double exponent : {-0.5, -2.0, -4.0}) {
    const Vector<double> values = powers(n, exponent);
    const auto [smallest, largest] = extreme_eigenvalues(with_spectrum(static_cast<std::uint64_t>(n), values));
    INFO("n = " << n << ", exponent " << exponent);
    CHECK(std::abs(largest - values[0]) <= 1e-6 * values[0]);
    // The tolerance of the method, and what rounding of the matrix itself does to its smallest eigenvalue.
    const double rounding = static_cast<double>(n) * std::numeric_limits<double>::epsilon() * values[0];
    CHECK(std::abs(smallest - values[n - 1]) <= 1e-6 * values[n - 1] + rounding);
  }
}

TEST_CASE("linalg.extreme_eigenvalues: the fast form agrees with all eigenvalues") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  INFO("seed = " << seed);
  Rng rng(seed);
  const Matrix<double> x = normal_matrix<double>(rng, 90, 120), a = x * x.transpose();
  const auto fast = extreme_eigenvalues(a), slow = reference::extreme_eigenvalues(a);
  CHECK(std::abs(fast.smallest / slow.smallest - 1) <= 1e-6);
  CHECK(std::abs(fast.largest / slow.largest - 1) <= 1e-6);
}

TEST_CASE("linalg.extreme_eigenvalues: float works too") {
  const Vector<float> values = powers(80, -1).cast<float>();
  const auto [smallest, largest] = extreme_eigenvalues(with_spectrum<float>(1, values), {.tolerance = 1e-4});
  CHECK(std::abs(largest - 1.0f) <= 1e-3f);
  CHECK(std::abs(smallest * 80 - 1.0f) <= 1e-2f);
}

TEST_CASE("linalg.extreme_eigenvalues: equal eigenvalues end the search at once") {
  const auto [smallest, largest] = extreme_eigenvalues(Matrix<double>(3 * Matrix<double>::Identity(70, 70)));
  CHECK(std::abs(smallest - 3) <= 1e-14);
  CHECK(std::abs(largest - 3) <= 1e-14);
  const auto zero = extreme_eigenvalues(Matrix<double>(Matrix<double>::Zero(40, 40)));
  CHECK(zero.smallest == 0);
  CHECK(zero.largest == 0);
}

TEST_CASE("linalg.extreme_eigenvalues: a matrix without a Cholesky factor is taken apart in full") {
  Vector<double> values = powers(60, -1);
  values[59] = -0.25;
  const auto [smallest, largest] = extreme_eigenvalues(with_spectrum(4, values));
  CHECK(std::abs(smallest + 0.25) <= 1e-13);
  CHECK(std::abs(largest - 1) <= 1e-13);
}

TEST_CASE("linalg.extreme_eigenvalues: an operator is enough and its range is not left") {
  const Vector<double> d = Vector<double>::LinSpaced(500, -1, 2);
  const auto apply = [&](View<const double, 1> x, View<double, 1> y) { vector(y) = d.cwiseProduct(vector(x)); };
  const double top = largest_eigenvalue<double>(apply, 500);
  CHECK(top <= 2 * (1 + 1e-14));
  CHECK(top >= 2 * (1 - 1e-6));
}

TEST_CASE("linalg.extreme_eigenvalues: the same bits for any number of threads") {
  const Matrix<double> a = with_spectrum(5, powers(600, -1));
  const auto one = test::with_threads(1, [&] { return extreme_eigenvalues(a); });
  for (const int threads : {2, 4}) {
    const auto more = test::with_threads(threads, [&] { return extreme_eigenvalues(a); });
    CHECK(more.smallest == one.smallest);
    CHECK(more.largest == one.largest);
  }
}

TEST_CASE("linalg.extreme_eigenvalues: what has no spectrum is refused") {
  const Matrix<double> wide = Matrix<double>::Ones(2, 3);
  CHECK(message_of<InvalidArgument>([&] { extreme_eigenvalues(wide); }) ==
        "extreme_eigenvalues: a has shape [2,3], expected [2,2] (a square)");
  CHECK(message_of<InvalidArgument>([&] { extreme_eigenvalues(Matrix<double>(0, 0)); }) ==
        "extreme_eigenvalues: a has no rows");
  Matrix<double> nan = Matrix<double>::Identity(3, 3);
  nan(1, 1) = std::nan("");
  CHECK(message_of<InvalidArgument>([&] { extreme_eigenvalues(nan); }) ==
        "extreme_eigenvalues: a has an entry that is not finite");
  const auto identity = [](View<const double, 1> x, View<double, 1> y) { vector(y) = vector(x); };
  CHECK(message_of<InvalidArgument>([&] { largest_eigenvalue<double>(identity, 0); }) ==
        "largest_eigenvalue: n must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { largest_eigenvalue<double>(identity, 3, {.max_iterations = 0}); }) ==
        "largest_eigenvalue: max_iterations must be at least 1, got 0");
  const auto infinite = [](View<const double, 1> x, View<double, 1> y) { vector(y) = vector(x) / 0.0; };
  CHECK(message_of<NumericalError>([&] { largest_eigenvalue<double>(infinite, 3); }) ==
        "largest_eigenvalue: the operator gave a number that is not finite in iteration 1");
  const auto ramp = [](View<const double, 1> x, View<double, 1> y) {
    for (Index i = 0; i < 50; ++i) y[i] = static_cast<double>(i) * x[i];
  };
  CHECK(message_of<NumericalError>([&] {
          largest_eigenvalue<double>(ramp, 50, {.max_iterations = 2});
        }).starts_with("largest_eigenvalue: did not converge after 2 iterations, the residual is "));
}

}  // namespace
}  // namespace ashlar::linalg
