#include "ashlar/linalg/randomized_svd.hpp"

#include <Eigen/SVD>
#include <limits>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::linalg {
namespace {

using test::message_of;

/// Low rank plus noise: singular values with a gap after the third, then a slowly falling tail.
Matrix<double> noisy(Index m, Index n, unsigned seed) {
  Rng rng(seed);
  const Matrix<double> left = normal_matrix<double>(rng, m, 3), right = normal_matrix<double>(rng, 3, n);
  return left * right + normal_matrix<double>(rng, m, n, 0.1);
}

TEST_CASE("linalg.randomized_svd: the leading triples are those of Eigen's BDCSVD") {
  const auto seed = GENERATE(1u, 2u);
  const auto [m, n] = GENERATE(std::pair<Index, Index>{90, 60}, std::pair<Index, Index>{41, 97});
  INFO("seed " << seed << " " << m << " by " << n);
  const Matrix<double> a = noisy(m, n, seed);
  Rng rng(seed);
  const TruncatedSvd<double> svd = randomized_svd(a, 3, rng);
  const Eigen::BDCSVD<Eigen::MatrixXd> full(a, Eigen::ComputeThinU | Eigen::ComputeThinV);
  const Vector<double> s = full.singularValues();
  REQUIRE(svd.converged);
  CHECK(svd.residual <= 1e-10);
  // Errors of singular values are at most the residual, and quadratic in it for a gap.
  CHECK((svd.singular_values - s.head(3)).cwiseAbs().maxCoeff() <= 1e-10 * s[0]);
  // The sines of the angles are at most residual / gap (Wedin).
  const double angle = 10 * 1e-10 * s[0] / (s[2] - s[3]);
  CHECK((svd.u * svd.u.transpose() - full.matrixU().leftCols(3) * full.matrixU().leftCols(3).transpose()).norm() <=
        angle);
  CHECK((svd.v * svd.v.transpose() - full.matrixV().leftCols(3) * full.matrixV().leftCols(3).transpose()).norm() <=
        angle);
  CHECK((svd.u.transpose() * svd.u - Matrix<double>::Identity(3, 3)).norm() <= 1e-13);
  CHECK((svd.v.transpose() * svd.v - Matrix<double>::Identity(3, 3)).norm() <= 1e-13);
  CHECK(svd.next <= s[3] * (1 + 1e-12));
  CHECK(svd.next >= 0.5 * s[3]);
  Rng again(seed);
  CHECK(randomized_svd(a, 3, again).u == svd.u);
}

TEST_CASE("linalg.randomized_svd: full rank and exact low rank need no iteration") {
  Rng rng(5);
  const Matrix<double> a = normal_matrix<double>(rng, 7, 4);
  const TruncatedSvd<double> all = randomized_svd(a, 4, rng);
  CHECK((all.u * all.singular_values.asDiagonal() * all.v.transpose() - a).norm() <= 1e-13 * a.norm());
  CHECK(all.next == 0);
  const Matrix<double> low = normal_matrix<double>(rng, 50, 2) * normal_matrix<double>(rng, 2, 40);
  const TruncatedSvd<double> two = randomized_svd(low, 2, rng);
  CHECK(two.iterations == 0);
  CHECK((two.u * two.singular_values.asDiagonal() * two.v.transpose() - low).norm() <= 1e-13 * low.norm());
  const TruncatedSvd<double> zero = randomized_svd(Matrix<double>::Zero(6, 5).eval(), 2, rng);
  CHECK(zero.converged);
  CHECK(zero.singular_values.norm() == 0);
}

TEST_CASE("linalg.randomized_svd: single precision and transposed memory") {
  const Matrix<float> a = noisy(60, 50, 3).cast<float>();
  Rng rng(1), again(1);
  const TruncatedSvd<float> svd = randomized_svd(a, 3, rng, {.tolerance = 1e-5});
  CHECK(svd.converged);
  const Eigen::MatrixXf columns = a;
  CHECK(randomized_svd(columns, 3, again, {.tolerance = 1e-5}).u == svd.u);
}

TEST_CASE("linalg.randomized_svd: what it did not reach is reported") {
  Rng rng(1);
  const Matrix<double> flat = normal_matrix<double>(rng, 80, 80);
  const TruncatedSvd<double> svd = randomized_svd(flat, 5, rng, {.max_iterations = 1});
  CHECK_FALSE(svd.converged);
  CHECK(svd.iterations == 1);
  CHECK(svd.residual > 1e-10);
}

TEST_CASE("linalg.randomized_svd: bad input is named") {
  Rng rng(1);
  Matrix<double> a = Matrix<double>::Ones(3, 4);
  CHECK(message_of<InvalidArgument>([&] { randomized_svd(a, 4, rng); }) ==
        "randomized_svd: rank must be between 1 and 3, got 4");
  CHECK(message_of<InvalidArgument>([&] { randomized_svd(a, 0, rng); }) ==
        "randomized_svd: rank must be between 1 and 3, got 0");
  CHECK(message_of<InvalidArgument>([&] { randomized_svd(a, 1, rng, {.oversampling = -1}); }) ==
        "randomized_svd: oversampling must be not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { randomized_svd(a, 1, rng, {.tolerance = -1}); }) ==
        "randomized_svd: tolerance must be at least 0, got -1");
  CHECK(message_of<InvalidArgument>([&] { randomized_svd(a, 1, rng, {.max_iterations = -1}); }) ==
        "randomized_svd: max_iterations must be not negative, got -1");
  a(1, 1) = std::numeric_limits<double>::quiet_NaN();
  CHECK(message_of<NumericalError>([&] { randomized_svd(a, 1, rng); }) ==
        "randomized_svd: the matrix has an entry that is not finite");
}

}  // namespace
}  // namespace ashlar::linalg
