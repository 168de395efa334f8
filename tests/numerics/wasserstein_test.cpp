#include "ashlar/numerics/wasserstein.hpp"

#include <cmath>
#include <numbers>
#include <vector>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::numerics {
namespace {

using test::message_of;
using Values = std::vector<double>;

TEST_CASE("numerics.wasserstein: samples of one size are compared in order") {
  CHECK(std::abs(wasserstein1(Values{3, 1, 2}, Values{2, 4, 3}) - (1)) <= 1e-15);
  CHECK(wasserstein1(Values{1}, Values{-2}) == 3);
  CHECK(wasserstein1(Values{5, 1}, Values{1, 5}) == 0);
}

TEST_CASE("numerics.wasserstein: samples of different sizes are compared by level") {
  // F^-1: 0 below 1/2 and 1 above; G^-1: 0, 1, 2 by thirds.
  CHECK(std::abs(wasserstein1(Values{0, 1}, Values{0, 1, 2}) - (1.0 / 6 + 1.0 / 3)) <= 1e-15);
  Values x, y;
  for (int i = 0; i < 7; ++i) x.push_back(i * i);
  for (int copy = 0; copy < 3; ++copy) y.insert(y.end(), x.begin(), x.end());
  CHECK(std::abs(wasserstein1(x, y) - (0)) <= 1e-12);
  CHECK(std::abs(wasserstein1(std::vector<float>{0, 1}, std::vector<float>{2, 3}) - (2)) <= 1e-15);
}

TEST_CASE("numerics.wasserstein: a shift in d dimensions is seen by its mean projection") {
  Rng rng(1);
  const auto x = normal_matrix<double>(rng, 50, 2);
  Matrix<double> y = x;
  y.col(0).array() += 3;
  // E |<3 e_1, e>| = 3 * 2 / pi on the circle
  CHECK(std::abs(sliced_wasserstein1(x, y, 4000, rng) - 6 / std::numbers::pi) <= 0.06);
  CHECK(sliced_wasserstein1(x, x, 10, rng) == 0);
  const Matrix<double> line = x.col(0), other = y.col(0);
  CHECK(std::abs(sliced_wasserstein1(line, other, 3, rng) - (3)) <= 1e-12);
}

TEST_CASE("numerics.wasserstein: bits do not depend on the number of threads") {
  Rng rng(2);
  const auto x = normal_matrix<double>(rng, 60, 3), y = normal_matrix<double>(rng, 40, 3);
  const auto run = [&](int threads) {
    return test::with_threads(threads, [&] { return sliced_wasserstein1(x, y, 9, rng); });
  };
  CHECK(run(1) == run(4));
}

TEST_CASE("numerics.wasserstein: bad input is named") {
  const Rng rng(0);
  const Matrix<double> x = Matrix<double>::Zero(2, 2);
  CHECK(message_of<InvalidArgument>([] { wasserstein1(Values{}, Values{1}); }) == "wasserstein1: x is empty");
  CHECK(message_of<InvalidArgument>([] { wasserstein1(Values{1}, Values{}); }) == "wasserstein1: y is empty");
  CHECK(message_of<InvalidArgument>([] { wasserstein1(Values{1}, Values{NAN}); }) ==
        "wasserstein1: y must be finite, got nan");
  CHECK(message_of<InvalidArgument>([&] { sliced_wasserstein1(x, x, 0, rng); }) ==
        "sliced_wasserstein1: directions must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { sliced_wasserstein1(x, x.leftCols(1), 1, rng); }) ==
        "sliced_wasserstein1: y has shape [2,1], expected [2,2] (same dimension as x)");
  const Matrix<double> flat(2, 0), none(0, 2);
  CHECK(message_of<InvalidArgument>([&] { sliced_wasserstein1(flat, flat, 1, rng); }) ==
        "sliced_wasserstein1: the dimension must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { sliced_wasserstein1(none, x, 1, rng); }) ==
        "sliced_wasserstein1: x is empty");
  const Matrix<double> bad = Matrix<double>::Constant(2, 2, INFINITY);
  CHECK(message_of<InvalidArgument>([&] { sliced_wasserstein1(bad, x, 1, rng); }) ==
        "sliced_wasserstein1: x must be finite, got inf");
}

}  // namespace
}  // namespace ashlar::numerics
