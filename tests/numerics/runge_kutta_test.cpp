#include "ashlar/numerics/runge_kutta.hpp"

#include <cmath>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::numerics {
namespace {

/// x' = x cos t from x = 1 over [0, 2]: x = e^(sin t). n copies, the i-th scaled by i + 1.
template <class T>
std::vector<T> integrate(RungeKutta method, int steps, std::size_t n) {
  std::vector<T> x(n), scratch(3 * n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>(i + 1);
  const double h = 2.0 / steps;
  for (int k = 0; k < steps; ++k)
    runge_kutta_step<T>(
        method,
        [&](double c, const T* at, T* slope) {
          for (std::size_t i = 0; i < n; ++i) slope[i] = at[i] * static_cast<T>(std::cos((k + c) * h));
        },
        h, x, scratch);
  return x;
}

TEST_CASE("numerics.runge_kutta: halving the step divides the error by two to the order") {
  const double exact = std::exp(std::sin(2.0));
  for (const auto& [method, order] :
       {std::pair{RungeKutta::euler, 1}, {RungeKutta::heun, 2}, {RungeKutta::classical, 4}}) {
    const double coarse = integrate<double>(method, 40, 1)[0] - exact,
                 fine = integrate<double>(method, 80, 1)[0] - exact;
    INFO("order " << order);
    CHECK(std::abs(std::log2(coarse / fine) - order) <= 0.1);
  }
}

TEST_CASE("numerics.runge_kutta: numbers in whole vectors and behind them take the same steps") {
  for (const auto method : {RungeKutta::euler, RungeKutta::heun, RungeKutta::classical}) {
    const auto x = integrate<double>(method, 10, 21);
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(x[i] / (static_cast<double>(i + 1) * x[0]) - 1) <= 1e-14);
    const auto narrow = integrate<float>(method, 10, 21);
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(narrow[i] / x[i] - 1) <= 1e-5);
  }
}

TEST_CASE("numerics.runge_kutta: the slope is asked for where the method says") {
  std::vector<double> x{0}, scratch(3), asked;
  const auto ask = [&](double c, const double*, double* slope) { asked.push_back(c), *slope = 0; };
  runge_kutta_step<double>(RungeKutta::euler, ask, 1, x, scratch);
  CHECK(asked == std::vector<double>{0});
  asked.clear();
  runge_kutta_step<double>(RungeKutta::heun, ask, 1, x, scratch);
  CHECK(asked == std::vector<double>{0, 1});
  asked.clear();
  runge_kutta_step<double>(RungeKutta::classical, ask, 1, x, scratch);
  CHECK(asked == std::vector<double>{0, 0.5, 0.5, 1});
}

TEST_CASE("numerics.runge_kutta: a step allocates nothing and refuses short scratch") {
  std::vector<double> x(10, 1.0), scratch(30), small(29);
  const auto decay = [](double, const double* at, double* slope) {
    for (int i = 0; i < 10; ++i) slope[i] = -at[i];
  };
  CHECK(test::allocations([&] { runge_kutta_step<double>(RungeKutta::classical, decay, 0.1, x, scratch); }) == 0);
  CHECK(test::message_of<InvalidArgument>([&] {
          runge_kutta_step<double>(RungeKutta::classical, decay, 0.1, x, small);
        }) == "runge_kutta_step: scratch has 29 numbers, expected at least 30");
}

}  // namespace
}  // namespace ashlar::numerics
