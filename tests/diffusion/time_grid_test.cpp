#include "ashlar/diffusion/time_grid.hpp"

#include <cmath>
#include <vector>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::diffusion {
namespace {

using test::message_of;
using Times = std::vector<double>;

TEST_CASE("diffusion.time_grid: uniform and graded grids are powers of the part that is left") {
  CHECK(TimeGrid::uniform(4, 4).times() == Times{4, 3, 2, 1, 0});
  CHECK(TimeGrid::graded(4, 2).times() == Times{4, 1, 0});
  CHECK(TimeGrid::graded(8, 2, 3).times() == Times{8, 1, 0});
  CHECK(TimeGrid::graded(5, 2, 2, 1).times() == Times{5, 2, 1});
  CHECK(TimeGrid::uniform(3, 2, 1).times() == Times{3, 2, 1});
  const auto grid = TimeGrid::uniform(2, 4);
  CHECK(grid.steps() == 4);
  CHECK(grid[1] == 1.5);
}

TEST_CASE("diffusion.time_grid: clocks convert into one another") {
  for (const double t : {0.0, 1e-6, 0.3, 2.0, 6.0}) {
    CHECK(std::abs(time_of_alpha_bar(alpha_bar_of_time(t)) - t) <= 1e-15 * (1 + t));
    CHECK(std::abs(time_of_sigma(sigma_of_time(t)) - t) <= 1e-15 * (1 + t));
    const double alpha_bar = alpha_bar_of_time(t), sigma = sigma_of_time(t);
    CHECK(std::abs(sigma * sigma * alpha_bar - (1 - alpha_bar)) <= 1e-15);
  }
}

TEST_CASE("diffusion.time_grid: a grid of betas ends at zero and begins where all of them lead") {
  const auto betas = linear_betas();
  CHECK(betas.size() == 1000);
  CHECK(betas.front() == 1e-4);
  CHECK(std::abs(betas.back() - 2e-2) <= 1e-17);
  CHECK(std::abs(betas[500] - (1e-4 + (2e-2 - 1e-4) * 500 / 999)) <= 1e-17);
  double product = 1;
  for (const double beta : betas) product *= 1 - beta;
  const auto grid = TimeGrid::from_betas(betas, 50);
  CHECK(grid.steps() == 50);
  CHECK(std::abs(alpha_bar_of_time(grid[0]) / product - 1) <= 1e-10);
  CHECK(grid[50] == 0);
  // Every twentieth of all times.
  const auto all = TimeGrid::from_betas(betas, 1000);
  for (Index k = 0; k <= 50; ++k) CHECK(grid[k] == all[20 * k]);
  CHECK(TimeGrid::from_betas(Times{0.5, 0.5, 0.5}, 2).times() ==
        Times{1.5 * std::log(2.0), std::log(2.0), 0});  // n_1 = round(3 / 2) = 2
}

TEST_CASE("diffusion.time_grid: cosine betas multiply to the cosine") {
  const auto betas = cosine_betas(100);
  double product = 1;
  for (int i = 0; i < 50; ++i) product *= 1 - betas[static_cast<std::size_t>(i)];
  const auto f = [](double u) { return std::pow(std::cos(std::acos(-1.0) / 2 * (u + 0.008) / 1.008), 2); };
  CHECK(std::abs(product - f(0.5) / f(0)) <= 1e-12);
  CHECK(betas.back() == 0.999);
}

TEST_CASE("diffusion.time_grid: noise levels of Karras are evenly spaced in the root of sigma") {
  const auto grid = TimeGrid::karras(0.01, 100, 5, 7);
  REQUIRE(grid.steps() == 5);
  CHECK(std::abs(sigma_of_time(grid[0]) / 100 - 1) <= 1e-12);
  CHECK(std::abs(sigma_of_time(grid[4]) / 0.01 - 1) <= 1e-10);
  CHECK(grid[5] == 0);
  const auto root = [&](Index k) { return std::pow(sigma_of_time(grid[k]), 1.0 / 7); };
  for (Index k = 1; k < 4; ++k) CHECK(std::abs(root(k - 1) - 2 * root(k) + root(k + 1)) <= 1e-10);
  CHECK(TimeGrid::karras(0.01, 2, 1).times().size() == 2);
}

TEST_CASE("diffusion.time_grid: bad input is named") {
  const auto grid = [](Times times) { return message_of<InvalidArgument>([&] { TimeGrid{times}; }); };
  CHECK(grid({2, 1, 0.5}) == "nothing thrown");
  CHECK(grid({1}) == "TimeGrid: a grid has at least two times, got 1");
  CHECK(grid({2, 1, 1}) == "TimeGrid: times must decrease, got 1 after 1");
  CHECK(grid({1, 2}) == "TimeGrid: times must decrease, got 2 after 1");
  CHECK(grid({NAN, 0}) == "TimeGrid: every time must be finite, got nan");
  CHECK(grid({1, -1}) == "TimeGrid: the last time must be at least 0, got -1");
  const auto of = [](auto f) { return message_of<InvalidArgument>(f); };
  CHECK(of([] { TimeGrid::uniform(6, 0); }) == "TimeGrid::uniform: steps must be at least 1, got 0");
  CHECK(of([] { TimeGrid::uniform(0, 5); }) == "TimeGrid::uniform: times need 0 <= stop < horizon, got 0 and 0");
  CHECK(of([] { TimeGrid::graded(6, 5, 0); }) == "TimeGrid::graded: power must be positive and finite, got 0");
  CHECK(of([] { TimeGrid::graded(6, 5, 2, -1); }) == "TimeGrid::graded: times need 0 <= stop < horizon, got -1 and 6");
  CHECK(of([] { TimeGrid::graded(INFINITY, 5); }) == "TimeGrid::graded: times need 0 <= stop < horizon, got 0 and inf");
  CHECK(of([] {
          TimeGrid::from_betas(Times{0.1, 0.2}, 3);
        }) == "TimeGrid::from_betas: steps must be between 1 and the number of betas, got 3");
  CHECK(of([] {
          TimeGrid::from_betas(Times{0.1, 0.2}, 0);
        }) == "TimeGrid::from_betas: steps must be between 1 and the number of betas, got 0");
  CHECK(of([] {
          TimeGrid::from_betas(Times{0.1, 1.0}, 2);
        }) == "TimeGrid::from_betas: every beta must be between 0 and 1, exclusive, got 1");
  CHECK(of([] { TimeGrid::karras(0.1, 1, 0); }) == "TimeGrid::karras: steps must be at least 1, got 0");
  CHECK(of([] { TimeGrid::karras(0.1, 1, 2, 0); }) == "TimeGrid::karras: rho must be positive and finite, got 0");
  CHECK(of([] { TimeGrid::karras(1, 1, 2); }) ==
        "TimeGrid::karras: noise levels need 0 < smallest < largest, got 1 and 1");
  CHECK(of([] { time_of_alpha_bar(0); }) == "time_of_alpha_bar: alpha_bar must be above 0 and at most 1, got 0");
  CHECK(of([] { time_of_sigma(-1); }) == "time_of_sigma: sigma must be not negative and finite, got -1");
  CHECK(of([] { linear_betas(0); }) == "linear_betas: count must be at least 1, got 0");
  CHECK(of([] { cosine_betas(0); }) == "cosine_betas: count must be at least 1, got 0");
}

}  // namespace
}  // namespace ashlar::diffusion
