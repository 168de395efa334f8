#include "ashlar/numerics/nelder_mead.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::numerics {
namespace {

using test::message_of;

TEST_CASE("numerics.nelder_mead: quadratics and the banana valley are minimised") {
  const auto quadratic = [](const Vector<double>& x) {
    return 2 + std::pow(x[0] - 1, 2) + 4 * std::pow(x[1] + 2, 2) + (x[0] - 1) * (x[1] + 2);
  };
  const auto q = nelder_mead(quadratic, std::vector<double>{0, 0}, {.tolerance = 1e-12});
  CHECK(q.converged);
  // A spread of 2e-12 in the value is one of about its root in the point.
  CHECK((q.point - Eigen::Vector2d(1, -2)).norm() <= 1e-5);
  CHECK(std::abs(q.value - 2) <= 1e-11);
  const auto banana = [](const Vector<double>& x) {
    return 100 * std::pow(x[1] - x[0] * x[0], 2) + std::pow(1 - x[0], 2);
  };
  const auto b = nelder_mead(banana, std::vector<double>{-1.2, 1}, {.tolerance = 1e-10});
  CHECK((b.point - Eigen::Vector2d(1, 1)).norm() <= 1e-3);
  CHECK(b.evaluations < 300);
}

TEST_CASE("numerics.nelder_mead: the first simplex and the first steps are those computed by hand") {
  std::vector<double> seen;
  const auto f = [&](const Vector<double>& x) { return seen.push_back(x[0]), x[0]; };
  // Vertices 2 and 2.2; reflected at 1.8 and expanded to 1.6, which is the better; then 2 goes by 1.2 to 0.8.
  nelder_mead(f, std::vector<double>{2}, {.max_evaluations = 6});
  const std::vector<double> expected{2, 2.2, 1.8, 1.6, 1.2, 0.8};
  REQUIRE(seen.size() == expected.size());
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK(std::abs(seen[i] - expected[i]) <= 1e-14);

  // From zero the step is 0.1 itself. |x| rises, is reflected to -0.1, no better than the worst, contracted inside to
  // 0.05.
  seen.clear();
  nelder_mead([&](const Vector<double>& x) { return seen.push_back(x[0]), std::abs(x[0]); }, std::vector<double>{0},
              {.max_evaluations = 4});
  CHECK(seen == std::vector<double>{0, 0.1, -0.1, 0.05});

  // An inside contraction that is no better shrinks towards the best vertex.
  seen.clear();
  nelder_mead([&](const Vector<double>& x) { return seen.push_back(x[0]), x[0] == 0 ? 0.0 : 1.0; },
              std::vector<double>{0}, {.max_evaluations = 5});
  CHECK(seen == std::vector<double>{0, 0.1, -0.1, 0.05, 0.05});

  // Reflected to -0.1, between best and worst: contracted outside, to -0.05.
  seen.clear();
  nelder_mead([&](const Vector<double>& x) { return seen.push_back(x[0]), x[0] > 0 ? 3 * x[0] : -x[0]; },
              std::vector<double>{0}, {.max_evaluations = 4});
  CHECK(seen == std::vector<double>{0, 0.1, -0.1, -0.05});
}

TEST_CASE("numerics.nelder_mead: vertices of equal value end the search and the older one is kept") {
  const auto flat =
      nelder_mead([](const Vector<double>&) { return 7.0; }, std::vector<double>{1, 2, 3}, {.tolerance = 0});
  CHECK(flat.converged);
  CHECK(flat.evaluations == 4);
  CHECK(flat.point == Eigen::Vector3d(1, 2, 3));
  const auto nowhere = nelder_mead([](const Vector<double>&) { return NAN; }, std::vector<double>{1, 2});
  CHECK(nowhere.converged);
  CHECK(nowhere.value == std::numeric_limits<double>::infinity());
}

TEST_CASE("numerics.nelder_mead: a staircase is descended and never left worse than the start") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    INFO("seed = " << seed);
    Rng rng(seed);
    const Vector<double> start = normal_matrix<double>(rng, 4, 1).col(0);
    const auto steps = [](const Vector<double>& x) { return std::floor(20 * x.squaredNorm()); };
    const auto found = nelder_mead(steps, start);
    CHECK(found.value < steps(start));
    CHECK(found.value == steps(found.point));
    const auto bumpy = [](const Vector<double>& x) { return std::sin(50 * x.sum()) + std::cos(31 * x[0]); };
    CHECK(nelder_mead(bumpy, start, {.max_evaluations = 10}).value <= bumpy(start));
  }
}

TEST_CASE("numerics.nelder_mead: bad input is named") {
  const auto f = [](const Vector<double>& x) { return x.norm(); };
  const auto with = [&](const std::vector<double>& start, const NelderMeadOptions& options = {}) {
    return message_of<InvalidArgument>([&] { nelder_mead(f, start, options); });
  };
  CHECK(with({}) == "nelder_mead: start is empty");
  CHECK(with({1, NAN}) == "nelder_mead: start has an entry that is not finite");
  CHECK(with({1}, {.max_evaluations = 0}) == "nelder_mead: max_evaluations must be at least 1, got 0");
  CHECK(with({1}, {.tolerance = -1}) == "nelder_mead: tolerance must be not negative, got -1");
  CHECK(with({1}, {.initial_step = 0}) == "nelder_mead: initial_step must be positive and finite, got 0");
}

}  // namespace
}  // namespace ashlar::numerics
