#include "ashlar/linalg/cholesky.hpp"

#include <Eigen/Eigenvalues>
#include <Eigen/LU>
#include <cmath>
#include <limits>

#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::linalg {
namespace {

using test::message_of;

template <class T>
Matrix<T> positive_definite(Rng& rng, Index n, double ridge) {
  const Matrix<T> x = normal_matrix<T>(rng, n, n + 3);
  Matrix<T> a = x * x.transpose() / static_cast<T>(n);
  a = ((a + a.transpose()) / 2).eval();
  a.diagonal().array() += static_cast<T>(ridge);
  return a;
}

// Higham, Accuracy and stability of numerical algorithms, theorem 10.3: |a - L L^T| <= gamma_(n+1) |L| |L^T|.
TEMPLATE_TEST_CASE("linalg.cholesky: the factor reproduces the matrix to the backward error bound", "", float, double) {
  using T = TestType;
  Rng rng(1);
  for (const Index n : {1, 2, 7, 64, 127, 128, 129, 300}) {
    INFO("n = " << n);
    const Matrix<T> a = positive_definite<T>(rng, n, 0.1);
    const Cholesky<T> factor(a);
    const Matrix<T> l = factor.factor().template triangularView<Eigen::Lower>();
    const Matrix<T> bound =
        static_cast<T>(n + 3) * std::numeric_limits<T>::epsilon() * (l.cwiseAbs() * l.cwiseAbs().transpose());
    CHECK(((a - l * l.transpose()).cwiseAbs().array() <= bound.array()).all());
    CHECK(factor.jitter() == 0);
    CHECK_FALSE(factor.is_ldlt());
  }
}

TEMPLATE_TEST_CASE("linalg.cholesky: solving leaves a residual within the backward error bound", "", float, double) {
  using T = TestType;
  Rng rng(2);
  for (const Index n : {1, 5, 130, 257}) {
    INFO("n = " << n);
    const Matrix<T> a = positive_definite<T>(rng, n, 0.01);
    const Cholesky<T> factor(a);
    const Matrix<T> l = factor.factor().template triangularView<Eigen::Lower>();
    const Matrix<T> b = normal_matrix<T>(rng, n, 70);
    const Vector<T> first = b.col(0);
    const Vector<T> x = factor.solve(first);
    const Matrix<T> many = factor.solve_columns(b);
    const T gamma = static_cast<T>(3 * n + 4) * std::numeric_limits<T>::epsilon();
    const Matrix<T> size = l.cwiseAbs() * l.cwiseAbs().transpose();
    CHECK(((a * x - first).cwiseAbs().array() <= (gamma * size * x.cwiseAbs()).array()).all());
    CHECK(((a * many - b).cwiseAbs().array() <= (gamma * size * many.cwiseAbs()).array()).all());
    Vector<T> spaced(2 * n);  // every other element
    const View<T, 1> strided(spaced.data(), {n}, {2});
    vector(strided) = first;
    factor.solve_in_place(strided);
    CHECK((a * vector(strided) - first).norm() <= gamma * size.norm() * x.norm());
  }
}

TEST_CASE("linalg.cholesky: log determinant and condition agree with the eigenvalues") {
  Rng rng(3);
  for (const double ridge : {1.0, 1e-3, 1e-6}) {
    const Matrix<double> a = positive_definite<double>(rng, 60, ridge);
    const Cholesky<double> factor(a);
    const Vector<double> values = Eigen::SelfAdjointEigenSolver<Matrix<double>>(a).eigenvalues();
    CHECK(std::abs(factor.log_determinant() - values.array().log().sum()) < 1e-8);
    const double exact =
        1 / (a.cwiseAbs().colwise().sum().maxCoeff() * a.inverse().cwiseAbs().colwise().sum().maxCoeff());
    CHECK(factor.rcond() >= exact * (1 - 1e-6));  // the estimate of |a^-1| is from below
    CHECK(factor.rcond() <= 3 * exact);
  }
}

TEST_CASE("linalg.cholesky: a jitter is added only when asked for and only as much as needed") {
  Rng rng(4);
  const Matrix<double> x = normal_matrix<double>(rng, 150, 20);
  Matrix<double> singular = x * x.transpose();
  singular = ((singular + singular.transpose()) / 2).eval();
  CHECK_THROWS_AS(Cholesky<double>(singular), NumericalError);
  const Cholesky<double> factor(singular, {.jitter_attempts = 10, .jitter = 1e-16});
  const double scale = singular.diagonal().mean();
  CHECK(factor.jitter() > 0);
  CHECK(factor.jitter() <= 1e-12 * scale);
  const Matrix<double> l = factor.factor().triangularView<Eigen::Lower>();
  const Matrix<double> shifted = singular + factor.jitter() * Matrix<double>::Identity(150, 150);
  CHECK((shifted - l * l.transpose()).norm() <= 1e-12 * singular.norm());
  CHECK(factor.rcond() < 1e-10);
}

TEST_CASE("linalg.cholesky: the fallback solves a singular consistent system") {
  Rng rng(5);
  const Matrix<double> x = normal_matrix<double>(rng, 30, 4);
  Matrix<double> singular = x * x.transpose();
  singular = ((singular + singular.transpose()) / 2).eval();
  singular(29, 29) -= 1e-12;  // not positive definite beyond doubt
  const Cholesky<double> factor(singular, {.ldlt_fallback = true});
  REQUIRE(factor.is_ldlt());
  const Vector<double> b = singular * Vector<double>::Ones(30);
  CHECK((singular * factor.solve(b) - b).norm() <= 1e-8 * b.norm());
  CHECK(factor.rcond() < 1e-10);
  CHECK_THROWS_AS(factor.factor(), InvalidArgument);
  CHECK_THROWS_AS(factor.log_determinant(), NumericalError);
}

TEST_CASE("linalg.cholesky: bits do not depend on the number of threads") {
  Rng rng(6);
  const Matrix<double> a = positive_definite<double>(rng, 500, 0.1);
  const auto factored = [&](int threads) {
    return test::with_threads(threads, [&] { return Cholesky<double>(a).factor(); });
  };
  const Matrix<double> one = factored(1);
  CHECK(one == factored(2));
  CHECK(one == factored(5));
}

TEST_CASE("linalg.cholesky: solving in place allocates nothing") {
  Rng rng(7);
  const Cholesky<double> factor(positive_definite<double>(rng, 200, 0.1));
  Vector<double> b = Vector<double>::Ones(200);
  CHECK(test::allocations([&] { factor.solve_in_place(b); }) == 0);
}

TEST_CASE("linalg.cholesky: bad matrices are refused in words") {
  CHECK(message_of<InvalidArgument>([] { Cholesky<double>(Matrix<double>::Zero(2, 3)); }) ==
        "Cholesky: a has shape [2,3], expected a square with at least one row");
  CHECK(message_of<NumericalError>([] { Cholesky<double>(Matrix<double>::Zero(2, 2)); }) ==
        "Cholesky: pivot 0 of 2 is 0, so the matrix is not positive definite");
  Matrix<double> a = Matrix<double>::Identity(3, 3);
  a(2, 2) = -4;
  CHECK(message_of<NumericalError>([&] { Cholesky<double>{a}; }) ==
        "Cholesky: pivot 2 of 3 is -4, so the matrix is not positive definite");
  CHECK(message_of<NumericalError>([&] { Cholesky<double>(a, {.jitter_attempts = 1, .jitter = 0.5}); }) ==
        "Cholesky: pivot 2 of 3 is -3, so the matrix is not positive definite even with a jitter of 1");
  a(1, 0) = a(0, 1) = NAN;
  CHECK(message_of<NumericalError>([&] { Cholesky<double>{a}; }) ==
        "Cholesky: the matrix has an entry that is not finite");
  const Cholesky<double> factor(Matrix<double>::Identity(3, 3));
  CHECK(message_of<InvalidArgument>([&] { factor.solve(std::vector<double>(4)); }) ==
        "Cholesky::solve: b has shape [4], expected [3] (one entry a row of a)");
}

}  // namespace
}  // namespace ashlar::linalg
