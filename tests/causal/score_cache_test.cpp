#include "ashlar/causal/score_cache.hpp"

#include <atomic>
#include <span>
#include <vector>

#include "ashlar/core/error.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::causal {
namespace {

/// Counts its calls, and whether parents ever came out of order.
struct Counting {
  mutable std::atomic<int> calls{0};
  mutable std::atomic<bool> sorted{true};
  double operator()(Index node, std::span<const Index> parents) const {
    ++calls;
    if (!std::ranges::is_sorted(parents)) sorted = false;
    if (node == 9) throw NumericalError("nine");
    double value = static_cast<double>(node);
    for (const Index p : parents) value = 10 * value + static_cast<double>(p);
    return value;
  }
};

TEST_CASE("causal.score_cache: a family is scored once in whatever order its parents come") {
  const Counting score;
  ScoreCache cache(score);
  CHECK(cache(3, {2, 1}) == 312);
  CHECK(cache(3, {1, 2}) == 312);
  CHECK(cache(2, {1, 3}) == 213);
  CHECK(cache(3, {}) == 3);
  CHECK(score.calls == 3);
  CHECK(score.sorted);
  CHECK(cache.size() == 3);
}

TEST_CASE("causal.score_cache: fetching ahead scores what is missing on any number of threads") {
  for (const int threads : {1, 2, 4})
    test::with_threads(threads, [] {
      const Counting score;
      ScoreCache cache(score);
      cache(1, {0});
      std::vector<Family> families{{1, {0}}, {2, {4, 0}}, {2, {0, 4}}};
      for (Index node = 3; node < 8; ++node) families.push_back({node, {0, 1}});
      cache.prefetch(families);
      CHECK(score.calls == 7);
      CHECK(score.sorted);
      CHECK(cache(2, {4, 0}) == 204);
      CHECK(cache(5, {1, 0}) == 501);
      CHECK(score.calls == 7);
    });
}

TEST_CASE("causal.score_cache: an exception of the score leaves the cache as it was") {
  const Counting score;
  ScoreCache cache(score);
  CHECK(test::message_of<NumericalError>([&] { cache.prefetch({{1, {}}, {9, {}}}); }) == "nine");
  CHECK(cache.size() == 0);
}

}  // namespace
}  // namespace ashlar::causal
