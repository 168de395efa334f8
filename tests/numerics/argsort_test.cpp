#include "ashlar/numerics/argsort.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::numerics {
namespace {

using test::message_of;

std::vector<std::uint32_t> stable_order(const std::vector<double>& x) {
  std::vector<std::uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return x[a] < x[b]; });
  return order;
}

TEST_CASE("numerics.argsort: the order is that of a stable sort for smooth and tied and clustered keys") {
  for (const std::uint64_t seed : {1u, 2u, 3u})
    for (const std::size_t n : {0u, 1u, 2u, 63u, 64u, 65u, 400u, 2047u, 2048u, 5000u}) {
      INFO("seed = " << seed << ", n = " << n);
      Rng rng(seed);
      std::vector<double> normal(n), tied(n), cauchy(n), clustered(n), equal(n, -3.5), tiny(n), huge(n);
      for (std::size_t i = 0; i < n; ++i) {
        normal[i] = rng.normal();
        tied[i] = static_cast<double>(rng.below(7)) - 3;
        cauchy[i] = rng.normal() / rng.normal();
        // All but one key on the same scaled integer: only comparisons tell them apart.
        clustered[i] = i == 0 ? 1e30 : rng.normal();
        tiny[i] = static_cast<double>(rng.below(50)) * std::numeric_limits<double>::denorm_min();
        huge[i] = rng.uniform(-1, 1) * std::numeric_limits<double>::max();
      }
      for (const auto& x : {normal, tied, cauchy, clustered, equal, tiny, huge}) CHECK(argsort(x) == stable_order(x));
    }
}

TEST_CASE("numerics.argsort: strided input and no allocation in the second call") {
  Matrix<double> x = Matrix<double>::Random(300, 3);
  const std::vector<double> column(x.col(1).begin(), x.col(1).end());
  Workspace workspace;
  std::vector<std::uint32_t> order(300);
  argsort(x.col(1), order, workspace);
  CHECK(order == stable_order(column));
  CHECK(test::allocations([&] { argsort(x.col(1), order, workspace); }) == 0);
}

TEST_CASE("numerics.argsort: bad input is named") {
  std::vector<double> x{1, 2, NAN};
  CHECK(message_of<InvalidArgument>([&] { argsort(x); }) == "argsort: every element of x must be finite, got nan");
  x[2] = 3;
  std::vector<std::uint32_t> order(2);
  Workspace workspace;
  CHECK(message_of<InvalidArgument>([&] { argsort(x, order, workspace); }) ==
        "argsort: order has shape [2], expected [3] (same as x)");
}

}  // namespace
}  // namespace ashlar::numerics
