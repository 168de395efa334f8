#include "ashlar/numerics/nearest_neighbour_entropy.hpp"

#include <cmath>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"
#include "support/threads.hpp"

namespace ashlar::numerics {
namespace {

using test::message_of;

TEST_CASE(
    "numerics.nearest_neighbour_entropy: estimates are those of the oracle for one and three and five neighbours") {
  const auto x = test::fixture("guided_diffusion/knn_x"), expected = test::fixture("guided_diffusion/knn_entropy");
  for (int i = 0; i < 3; ++i) {
    const auto result = nearest_neighbour_entropy(x.matrix(), {.neighbours = 2 * i + 1});
    CHECK(std::abs(result.entropy - expected.data()[i]) <= 1e-10);
    CHECK(result.at_the_floor == 0);
  }
}

TEST_CASE("numerics.nearest_neighbour_entropy: normal and uniform samples have their entropies") {
  Rng rng(3);
  const double normal = 0.5 * std::log(2 * std::numbers::pi * std::numbers::e);
  for (const Index d : {1, 2, 3}) {
    const auto x = normal_matrix<double>(rng, 4000, d);
    CHECK(std::abs(nearest_neighbour_entropy(x).entropy - static_cast<double>(d) * normal) <= 0.07);
  }
  Matrix<float> u(3000, 1);
  for (Index i = 0; i < u.rows(); ++i) u(i, 0) = static_cast<float>(4 * rng.uniform());
  CHECK(std::abs(nearest_neighbour_entropy(u, {.neighbours = 5}).entropy - std::log(4.0)) <= 0.05);
}

TEST_CASE("numerics.nearest_neighbour_entropy: scaling by c adds d log c") {
  Rng rng(4);
  const auto x = normal_matrix<double>(rng, 37, 2);
  const Matrix<double> y = 3 * x;
  CHECK(std::abs(nearest_neighbour_entropy(y).entropy - nearest_neighbour_entropy(x).entropy - 2 * std::log(3.0)) <=
        1e-12);
}

TEST_CASE("numerics.nearest_neighbour_entropy: coinciding points are counted and held at the floor") {
  Matrix<double> x = Matrix<double>::Zero(8, 1);
  for (Index i = 4; i < 8; ++i) x(i, 0) = static_cast<double>(i);
  const auto result = nearest_neighbour_entropy(x, {.neighbours = 3, .floor = 0.5});
  CHECK(result.at_the_floor == 4);
  // Third neighbours: 0 of the four zeros, then 2 (5 6 7), 2 (4 6 7), 2, 3; psi(8) - psi(3) = 1/3 + .. + 1/7; c_1 = 2.
  const double logs = 4 * std::log(0.5) + std::log(3.0) + 2 * std::log(2.0) + std::log(3.0);
  const double expected = 1.0 / 3 + 0.25 + 0.2 + 1.0 / 6 + 1.0 / 7 + std::log(2.0) + logs / 8;
  CHECK(std::abs(result.entropy - expected) <= 1e-12);
}

TEST_CASE("numerics.nearest_neighbour_entropy: bits do not depend on the number of threads") {
  Rng rng(5);
  const auto x = normal_matrix<double>(rng, 500, 3);
  const auto run = [&](int threads) {
    return test::with_threads(threads, [&] { return nearest_neighbour_entropy(x).entropy; });
  };
  CHECK(run(1) == run(2));
  CHECK(run(1) == run(4));
}

TEST_CASE("numerics.nearest_neighbour_entropy: bad input is named") {
  Matrix<double> x = Matrix<double>::Random(5, 2);
  const auto with = [&](const NearestNeighbourOptions& options) {
    return message_of<InvalidArgument>([&] { nearest_neighbour_entropy(x, options); });
  };
  CHECK(with({.neighbours = 4}) == "nothing thrown");
  CHECK(with({.neighbours = 0}) == "nearest_neighbour_entropy: neighbours must be at least 1, got 0");
  CHECK(with({.floor = 0}) == "nearest_neighbour_entropy: floor must be positive and finite, got 0");
  CHECK(with({.neighbours = 5}) ==
        "nearest_neighbour_entropy: x has shape [5,2], expected more than 5 points and at least one dimension");
  CHECK(message_of<InvalidArgument>([] { nearest_neighbour_entropy(Matrix<double>(5, 0)); }) ==
        "nearest_neighbour_entropy: x has shape [5,0], expected more than 3 points and at least one dimension");
  x(1, 1) = NAN;
  CHECK(with({}) == "nearest_neighbour_entropy: x has an entry that is not finite");
}

}  // namespace
}  // namespace ashlar::numerics
