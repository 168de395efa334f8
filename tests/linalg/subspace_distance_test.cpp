#include "ashlar/linalg/subspace_distance.hpp"

#include <Eigen/Eigenvalues>
#include <cmath>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::linalg {
namespace {

using test::message_of;

TEST_CASE("linalg.subspace_distance: lines are as far apart as the oracle says") {
  const auto b = test::fixture("hellinger_sdr/betas"), truth = test::fixture("hellinger_sdr/beta_true");
  const auto expected = test::fixture("hellinger_sdr/subspace_distance");
  const Vector<double> t = Eigen::Map<const Vector<double>>(truth.data(), truth.size());
  for (Index i = 0; i < b.extent(0); ++i)
    CHECK(std::abs(subspace_distance(b.matrix().row(i).transpose().eval(), t) - expected.data()[i]) <= 1e-10);
}

TEST_CASE("linalg.subspace_distance: the largest eigenvalue of the difference of projections") {
  for (const std::uint64_t seed : {1u, 2u})
    for (const Index d : {1, 2, 4}) {
      INFO("seed = " << seed << ", d = " << d);
      Rng rng(seed);
      const Matrix<double> a = normal_matrix<double>(rng, 7, d), b = normal_matrix<double>(rng, 7, d);
      const auto projection = [](const Matrix<double>& m) {
        return Eigen::MatrixXd(m * (m.transpose() * m).inverse() * m.transpose());
      };
      const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(projection(a) - projection(b));
      CHECK(std::abs(subspace_distance(a, b) - eigen.eigenvalues()[6]) <= 1e-12);
      CHECK(subspace_distance(a, (a * normal_matrix<double>(rng, d, d)).eval()) <= 1e-13);
    }
}

TEST_CASE("linalg.subspace_distance: small angles keep their digits") {
  const Eigen::Vector2d a(1, 0), b(1, 1e-11);
  CHECK(std::abs(subspace_distance(a, b) / 1e-11 - 1) <= 1e-4);
}

TEST_CASE("linalg.subspace_distance: bad input is named") {
  const Matrix<double> a = Matrix<double>::Identity(3, 2);
  const auto with = [&](const Matrix<double>& b) {
    return message_of<InvalidArgument>([&] { subspace_distance(a, b); });
  };
  CHECK(with(Matrix<double>::Identity(3, 1)) == "subspace_distance: b has shape [3,1], expected [3,2] (same as a)");
  CHECK(with(Matrix<double>::Ones(3, 2)) == "subspace_distance: the columns of b are not independent");
  CHECK(with(Matrix<double>::Constant(3, 2, NAN)) == "subspace_distance: b has an entry that is not finite");
  CHECK(message_of<InvalidArgument>([] { subspace_distance(Matrix<double>(3, 0), Matrix<double>(3, 0)); }) ==
        "subspace_distance: a is empty");
}

}  // namespace
}  // namespace ashlar::linalg
