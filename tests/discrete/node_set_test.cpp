#include "ashlar/discrete/node_set.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::discrete {
namespace {

using test::message_of;

std::set<Index> random_members(Rng& rng, Index capacity) {
  std::set<Index> members;
  for (Index node = 0; node < capacity; ++node)
    if (rng.uniform() < 0.3) members.insert(node);
  return members;
}

TEST_CASE("discrete.node_set: operations agree with those of std::set across words") {
  const auto seed = GENERATE(1u, 2u);
  INFO("seed " << seed);
  Rng rng(seed);
  for (const Index capacity : {Index{1}, Index{63}, Index{64}, Index{65}, Index{130}}) {
    const std::set<Index> a = random_members(rng, capacity), b = random_members(rng, capacity);
    const std::vector<Index> a_list(a.begin(), a.end()), b_list(b.begin(), b.end());
    const NodeSet x(capacity, a_list), y(capacity, b_list);
    CHECK(x.members() == a_list);
    CHECK(x.count() == std::ssize(a));
    CHECK(x.empty() == a.empty());
    std::vector<Index> both, either, left;
    std::ranges::set_intersection(a, b, std::back_inserter(both));
    std::ranges::set_union(a, b, std::back_inserter(either));
    std::ranges::set_difference(a, b, std::back_inserter(left));
    CHECK((x & y).members() == both);
    CHECK((x | y).members() == either);
    CHECK((x - y).members() == left);
    CHECK(x.intersects(y) == !both.empty());
    CHECK(x.is_subset_of(y) == left.empty());
    CHECK((x & y).is_subset_of(y));
    CHECK((x == y) == (a == b));
    for (Index node = 0; node < capacity; ++node) CHECK(x.contains(node) == a.contains(node));
  }
}

TEST_CASE("discrete.node_set: inserting and erasing change one member") {
  NodeSet set(70);
  set.insert(69);
  set.insert(3);
  set.insert(3);
  CHECK(set.members() == std::vector<Index>{3, 69});
  set.erase(3);
  set.erase(4);
  CHECK(set.members() == std::vector<Index>{69});
}

TEST_CASE("discrete.node_set: bad arguments are refused") {
  CHECK(message_of<InvalidArgument>([] { NodeSet(-1); }) == "NodeSet: capacity must be not negative, got -1");
  CHECK(message_of<InvalidArgument>([] { NodeSet(3, std::vector<Index>{3}); }) ==
        "NodeSet: members must be between 0 and 2, got 3");
}

}  // namespace
}  // namespace ashlar::discrete
