#include "ashlar/numerics/bracketed_root.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::numerics {
namespace {

using test::message_of;
constexpr double eps = std::numeric_limits<double>::epsilon();

std::pair<double, double> square_minus_two(double x) { return {x * x - 2, 2 * x}; }

TEST_CASE("numerics.bracketed_root: the root of a smooth function is found to the last digits") {
  CHECK(std::abs(bracketed_root(square_minus_two, 0, 2) - std::sqrt(2.0)) <= 4 * eps * std::sqrt(2.0));
  // Falling, and a root near zero, where the tolerance is absolute.
  const auto falling = [](double x) { return std::pair(1e-3 - std::expm1(x), -std::exp(x)); };
  CHECK(std::abs(bracketed_root(falling, -5, 5) - std::log1p(1e-3)) <= 8 * eps);
}

TEST_CASE("numerics.bracketed_root: Newton's steps are taken") {
  int calls = 0;
  const auto counted = [&](double x) {
    ++calls;
    return square_minus_two(x);
  };
  bracketed_root(counted, 0, 2);
  CHECK(calls <= 2 + 10);  // halving alone takes fifty
}

TEST_CASE("numerics.bracketed_root: a wrong or useless derivative costs time alone") {
  for (const double slope : {0.0, -1.0, 1e-9, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    INFO(slope);
    const auto f = [&](double x) { return std::pair(x * x * x - 5, slope); };
    CHECK(std::abs(bracketed_root(f, -10, 10) - std::cbrt(5.0)) <= 16 * eps);
  }
  // Newton's method alone diverges from any start but the root.
  const auto cube_root = [](double x) {
    return std::pair(std::cbrt(x - 0.3), 1 / (3 * std::cbrt((x - 0.3) * (x - 0.3))));
  };
  CHECK(std::abs(bracketed_root(cube_root, -7, 5) - 0.3) <= 8 * eps);
}

TEST_CASE("numerics.bracketed_root: a root at an end is returned as it is") {
  CHECK(bracketed_root([](double x) { return std::pair(x - 1, 1.0); }, 1, 3) == 1);
  CHECK(bracketed_root([](double x) { return std::pair(x - 3, 1.0); }, 1, 3) == 3);
  CHECK(bracketed_root([](double x) { return std::pair(x - 2, 1.0); }, 2, 2) == 2);
}

TEST_CASE("numerics.bracketed_root: what is no bracket is refused") {
  CHECK(message_of<InvalidArgument>([] { bracketed_root(square_minus_two, 2, 3); }) ==
        "bracketed_root: f must change its sign between the ends, got 2 and 7");
  CHECK(message_of<InvalidArgument>([] { bracketed_root(square_minus_two, 3, 2); }) ==
        "bracketed_root: [low, high] must be an interval, got [3, 2]");
  const auto nan_inside = [](double x) { return std::pair(x == 1 ? std::nan("") : x - 0.25, 1.0); };
  CHECK(message_of<NumericalError>([&] { bracketed_root(nan_inside, 0, 2); }) ==
        "bracketed_root: f(1) is not a number");
  CHECK(message_of<NumericalError>([] { bracketed_root(square_minus_two, 0, 2, {.max_steps = 1}); }) ==
        "bracketed_root: did not settle after 1 steps, the last one was 0.5");
}

}  // namespace
}  // namespace ashlar::numerics
