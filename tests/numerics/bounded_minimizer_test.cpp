#include "ashlar/numerics/bounded_minimizer.hpp"

#include <cmath>
#include <limits>
#include <string>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::numerics {
namespace {

using test::message_of;

double rosenbrock(const Vector<double>& x, Vector<double>& gradient) {
  const double a = 1 - x[0], b = x[1] - x[0] * x[0];
  gradient << -2 * a - 400 * x[0] * b, 200 * b;
  return a * a + 100 * b * b;
}

Vector<double> pair(double a, double b) { return (Vector<double>(2) << a, b).finished(); }

TEST_CASE("numerics.bounded_minimizer: Rosenbrock's valley free and cut by a bound") {
  const BoundedMinimizerOptions sharp{.gradient_tolerance = 1e-9, .value_tolerance = 0};
  const auto free = minimize_bounded(rosenbrock, pair(-1.2, 1), pair(-5, -5), pair(5, 5), sharp);
  // The smallest curvature at (1, 1) is about 0.4: |x - x*| <= gradient / 0.4, with the relative tolerance |x| = 1.5.
  CHECK((free.x - pair(1, 1)).norm() <= 1e-8);
  CHECK(free.converged);
  CHECK(free.evaluations >= free.iterations);
  // With x_0 <= 1/2 the least value is (1 - 1/2)^2 at x_1 = 1/4.
  const auto cut = minimize_bounded(rosenbrock, pair(-1.2, 1), pair(-5, -5), pair(0.5, 5), sharp);
  CHECK(std::abs(cut.x[0] - 0.5) <= 1e-12);
  CHECK(std::abs(cut.x[1] - 0.25) <= 1e-8);
  CHECK(std::abs(cut.value - 0.25) <= 1e-12);
}

TEST_CASE("numerics.bounded_minimizer: every point asked for is within the bounds and the start is moved there") {
  bool inside = true;
  const auto f = [&](const Vector<double>& x, Vector<double>& gradient) {
    inside = inside && x[0] >= 0.1 && x[0] <= 0.3 && x[1] >= -0.7 && x[1] <= 0.2;
    return rosenbrock(x, gradient);
  };
  const auto found = minimize_bounded(f, pair(9, 9), pair(0.1, -0.7), pair(0.3, 0.2));
  CHECK(inside);
  // The solver's steps round, so what lies past a bound is brought back.
  const Vector<double> low = pair(0.1, -0.7), high = pair(0.3, 0.2);
  detail::GuardedObjective<const decltype(f)> guarded(f, low, high);
  Vector<double> gradient(2);
  guarded(pair(0.3 + 1e-12, -0.8), gradient);
  CHECK(inside);
  CHECK(guarded.best == pair(0.3, -0.7));
  CHECK(std::abs(found.x[0] - 0.3) <= 1e-12);
}

TEST_CASE("numerics.bounded_minimizer: values that are not finite shorten the steps") {
  // log x - x^-1 and so on would do: here x^2 / 2 - log(x - 1), defined beyond 1 alone, least at the golden ratio.
  const auto f = [](const Vector<double>& x, Vector<double>& gradient) {
    if (x[0] <= 1) return std::numeric_limits<double>::infinity();
    gradient[0] = x[0] - 1 / (x[0] - 1);
    return x[0] * x[0] / 2 - std::log(x[0] - 1);
  };
  const Vector<double> start = Vector<double>::Constant(1, 2.0), low = Vector<double>::Constant(1, -50.0);
  const auto found = minimize_bounded(f, start, low, Vector<double>(-low));
  CHECK(std::abs(found.x[0] - (1 + std::sqrt(5.0)) / 2) <= 1e-4);  // curvature 3.6, gradient tolerance 1e-5 |x|
}

TEST_CASE("numerics.bounded_minimizer: never ends above its start and says when it did not converge") {
  const auto wrong = [](const Vector<double>& x, Vector<double>& gradient) {
    gradient = -2 * x;  // uphill
    return x.squaredNorm();
  };
  const auto lost = minimize_bounded(wrong, pair(1, 2), pair(-5, -5), pair(5, 5));
  CHECK(lost.value <= 5);
  CHECK_FALSE(lost.converged);
  const auto stopped = minimize_bounded(rosenbrock, pair(-1.2, 1), pair(-5, -5), pair(5, 5), {.max_iterations = 3});
  CHECK_FALSE(stopped.converged);
  CHECK(stopped.iterations == 3);
  Vector<double> gradient(2);
  CHECK(stopped.value < rosenbrock(pair(-1.2, 1), gradient));
}

TEST_CASE("numerics.bounded_minimizer: bad arguments are refused and exceptions of the function come out") {
  const auto run = [](const Vector<double>& start, const Vector<double>& low, const Vector<double>& high,
                      int iterations = 10) {
    return message_of<InvalidArgument>(
        [&] { minimize_bounded(rosenbrock, start, low, high, {.max_iterations = iterations}); });
  };
  CHECK(run(Vector<double>(0), Vector<double>(0), Vector<double>(0)) ==
        "minimize_bounded: the number of unknowns must be at least 1, got 0");
  CHECK(run(pair(0, 0), Vector<double>(1), pair(1, 1)) ==
        "minimize_bounded: lower and upper have 1 and 2 entries, expected 2 as in start");
  CHECK(run(pair(0, 0), pair(0, 2), pair(1, 1)) == "minimize_bounded: bounds cross: lower[1] is 2, upper[1] is 1");
  CHECK(run(pair(0, 0), pair(0, 0), pair(1, 1), 0) == "minimize_bounded: max_iterations must be at least 1, got 0");
  const auto nan = [](const Vector<double>&, Vector<double>& gradient) {
    gradient.setZero();
    return std::numeric_limits<double>::quiet_NaN();
  };
  CHECK(message_of<NumericalError>([&] { minimize_bounded(nan, pair(0, 0), pair(-1, -1), pair(1, 1)); }) ==
        "minimize_bounded: the value or the gradient at the start is not finite");
  const auto throws = [](const Vector<double>&, Vector<double>&) -> double { throw NumericalError("mine"); };
  CHECK(message_of<NumericalError>([&] { minimize_bounded(throws, pair(0, 0), pair(-1, -1), pair(1, 1)); }) == "mine");
}

}  // namespace
}  // namespace ashlar::numerics
