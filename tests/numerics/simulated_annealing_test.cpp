#include "ashlar/numerics/simulated_annealing.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::numerics {
namespace {

using test::message_of;

constexpr auto gaussian_step = [](const Vector<double>& from, double, Index, Rng& rng, Vector<double>& to) {
  for (Index i = 0; i < from.size(); ++i) to[i] = from[i] + 0.5 * rng.normal();
};

TEST_CASE("numerics.simulated_annealing: the global minimum is found among many local ones") {
  const auto f = [](const Vector<double>& x) {
    return 0.1 * x.squaredNorm() + 2 - std::cos(5 * x[0]) - std::cos(5 * x[1]);
  };
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    INFO("seed = " << seed);
    Rng rng(seed);
    const auto best =
        simulated_annealing(f, std::vector<double>{6, -5}, gaussian_step, GeometricCooling{3, 1e-3}, 20000, rng);
    // The next local minima are at (2 pi / 5, 0), worth 0.158.
    CHECK(best.value < 0.15);
    CHECK(best.value == f(best.point));
    CHECK(best.evaluations == 20000);
  }
}

TEST_CASE("numerics.simulated_annealing: the first of the best points visited is returned") {
  std::vector<Vector<double>> visited;
  std::vector<double> values;
  const auto f = [&](const Vector<double>& x) {
    visited.push_back(x);
    values.push_back(std::floor(4 * x.norm()));
    return values.back();
  };
  Rng rng(4);
  const auto best = simulated_annealing(f, std::vector<double>{3, 3}, gaussian_step, LogarithmicCooling{10}, 500, rng);
  CHECK(values.size() == 500);
  const auto at = std::min_element(values.begin(), values.end());
  CHECK(best.value == *at);
  CHECK(best.point == visited[static_cast<std::size_t>(at - values.begin())]);
}

TEST_CASE("numerics.simulated_annealing: steps up by d are accepted with probability exp(-d / t)") {
  // From 0 every proposal is 1; an accepted one is followed by a proposal of 0 again, which is always accepted.
  const auto flip = [](const Vector<double>& from, double, Index, Rng&, Vector<double>& to) { to[0] = 1 - from[0]; };
  Index down = 0;
  const auto f = [&](const Vector<double>& x) { return down += x[0] == 0, x[0]; };
  Rng rng(5);
  const Index n = 40000;
  simulated_annealing(
      f, std::vector<double>{0}, flip, [](Index, Index) { return 2.0; }, n, rng);
  // q = exp(-1/2): between two proposals of 0 there are on average 1 / q of 1.
  const double q = std::exp(-0.5), share = q / (1 + q);
  CHECK(std::abs(static_cast<double>(down) / static_cast<double>(n) - share) <=
        5 * 0.5 / std::sqrt(static_cast<double>(n)));
}

TEST_CASE("numerics.simulated_annealing: schedules start and end where they say") {
  const GeometricCooling geometric{0.05, 1e-3};
  CHECK(geometric(0, 100) == 0.05);
  CHECK(std::abs(geometric(100, 100) - 1e-3) <= 1e-17);
  CHECK(std::abs(geometric(50, 100) - std::sqrt(0.05 * 1e-3)) <= 1e-16);
  const LogarithmicCooling logarithmic{10};
  CHECK(std::abs(logarithmic(1, 0) - 10) <= 1e-14);
  CHECK(logarithmic(10, 0) == logarithmic(1, 0));
  CHECK(std::abs(logarithmic(11, 0) - 10 / std::log(11 + std::exp(1.0) - 1)) <= 1e-14);
  CHECK(std::abs(logarithmic(20000, 0) - 10 / std::log(19991 + std::exp(1.0) - 1)) <= 1e-14);
}

TEST_CASE("numerics.simulated_annealing: undefined values are neither accepted nor kept") {
  Rng rng(6);
  const auto f = [](const Vector<double>& x) { return x[0] > 1 ? NAN : -x[0]; };
  const auto best = simulated_annealing(f, std::vector<double>{2}, gaussian_step, GeometricCooling{1, 0.1}, 500, rng);
  CHECK((best.value < -0.8 && best.value >= -1));
}

TEST_CASE("numerics.simulated_annealing: bad input is named") {
  Rng rng(7);
  const auto f = [](const Vector<double>& x) { return x[0]; };
  const auto with = [&](const std::vector<double>& start, Index evaluations, double temperature) {
    return message_of<InvalidArgument>([&] {
      simulated_annealing(
          f, start, gaussian_step, [&](Index, Index) { return temperature; }, evaluations, rng);
    });
  };
  CHECK(with({}, 10, 1) == "simulated_annealing: start is empty");
  CHECK(with({INFINITY}, 10, 1) == "simulated_annealing: start has an entry that is not finite");
  CHECK(with({1}, 0, 1) == "simulated_annealing: evaluations must be at least 1, got 0");
  CHECK(with({1}, 10, 0) == "simulated_annealing: the temperature must be positive, got 0");
}

}  // namespace
}  // namespace ashlar::numerics
