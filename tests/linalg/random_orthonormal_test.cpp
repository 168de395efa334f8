#include "ashlar/linalg/random_orthonormal.hpp"

#include <Eigen/LU>
#include <cmath>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::linalg {
namespace {

TEST_CASE("linalg.random_orthonormal: columns are orthonormal for every shape") {
  Rng rng(1);
  for (const Index rows : {1, 5, 40})
    for (const Index columns : {0, 1, 5, 40}) {
      if (columns > rows) continue;
      const Matrix<double> q = random_orthonormal(rng, rows, columns);
      CHECK(q.rows() == rows);
      CHECK((q.transpose() * q - Matrix<double>::Identity(columns, columns)).norm() <= 1e-13);
    }
}

TEST_CASE("linalg.random_orthonormal: rotations and reflections are equally likely") {
  // Without the signs the determinant of a 2 x 2 factor would be that of two reflections, always 1.
  Rng rng(2);
  int rotations = 0;
  for (int i = 0; i < 400; ++i) rotations += random_orthonormal(rng, 2, 2).determinant() > 0;
  CHECK(std::abs(rotations - 200) <= 4 * 10);  // four deviations of a fair coin
  int positive = 0;
  for (int i = 0; i < 400; ++i) positive += random_orthonormal(rng, 1, 1)(0, 0) > 0;
  CHECK(std::abs(positive - 200) <= 4 * 10);
}

TEST_CASE("linalg.random_orthonormal: more columns than rows are refused") {
  Rng rng(3);
  CHECK(test::message_of<InvalidArgument>([&] { random_orthonormal(rng, 2, 3); }) ==
        "random_orthonormal: rows must be at least columns, got 2 for 3");
}

}  // namespace
}  // namespace ashlar::linalg
