#include "ashlar/numerics/ranks.hpp"

#include <cmath>
#include <map>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::numerics {
namespace {

using test::message_of;

TEST_CASE("numerics.ranks: a rank is one more than the smaller values and half the other equal ones") {
  for (const std::uint64_t seed : {1u, 2u})
    for (const Index n : {1, 5, 200}) {
      INFO("seed = " << seed << ", n = " << n);
      Rng rng(seed);
      Vector<double> x(n);
      for (double& value : x) value = static_cast<double>(rng.below(n / 2 + 1));
      const Vector<double> ranks = average_ranks(x);
      for (Index i = 0; i < n; ++i) {
        const auto less = static_cast<double>((x.array() < x[i]).count());
        const auto equal = static_cast<double>((x.array() == x[i]).count());
        CHECK(ranks[i] == less + (equal + 1) / 2);
      }
    }
}

TEST_CASE("numerics.ranks: the form with a workspace allocates nothing") {
  const Vector<double> x = Vector<double>::Random(150);
  Vector<double> ranks(150);
  Workspace workspace;
  average_ranks(x, ranks, workspace);
  CHECK(ranks == average_ranks(x));
  CHECK(test::allocations([&] { average_ranks(x, ranks, workspace); }) == 0);
}

TEST_CASE("numerics.ranks: random ranks order the ties alone and every way equally often") {
  Rng rng(5);
  const std::vector<double> x{2, 1, 2, 2, 7};
  std::map<std::vector<double>, int> seen;
  const int draws = 6000;
  for (int k = 0; k < draws; ++k) {
    const Vector<double> ranks = random_ranks(x, rng);
    CHECK((ranks[1] == 1 && ranks[4] == 5));
    ++seen[{ranks[0], ranks[2], ranks[3]}];
  }
  CHECK(seen.size() == 6);
  // 1000 each, five standard deviations of the binomial count.
  for (const auto& [order, count] : seen) CHECK(std::abs(count - draws / 6) <= 5 * std::sqrt(draws * 5.0 / 36));
}

TEST_CASE("numerics.ranks: bad input is named") {
  const std::vector<double> bad{1, INFINITY};
  Rng rng(1);
  Vector<double> ranks(3);
  Workspace workspace;
  CHECK(message_of<InvalidArgument>([&] { average_ranks(bad); }) ==
        "average_ranks: every element of x must be finite, got inf");
  CHECK(message_of<InvalidArgument>([&] { random_ranks(bad, rng); }) ==
        "random_ranks: every element of x must be finite, got inf");
  CHECK(message_of<InvalidArgument>([&] {
          average_ranks(std::vector<double>{1, 2}, ranks, workspace);
        }) == "average_ranks: ranks has shape [3], expected [2] (same as x)");
}

}  // namespace
}  // namespace ashlar::numerics
