#include "ashlar/core/parallel.hpp"

#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar {
namespace {

using test::with_threads;

constexpr Index largest = std::numeric_limits<Index>::max();

TEST_CASE("core.parallel: chunks cover the range once and do not depend on the number of threads") {
  for (const Index count : {0, 1, 2, 7, 63, 64, 65, 1000})
    for (const Index grain : {Index{-3}, Index{0}, Index{1}, Index{2}, Index{3}, Index{64}, Index{5000}, largest}) {
      INFO("count " << count << " grain " << grain);
      std::set<std::pair<Index, Index>> expected;
      with_threads(1, [&] {
        parallel_for(count, grain, [&](Index begin, Index end) { expected.emplace(begin, end); });
      });
      CHECK(static_cast<Index>(expected.size()) == chunk_count(count, grain));
      for (const int threads : {1, 2, 3, 8}) {
        std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
        std::set<std::pair<Index, Index>> chunks;
        std::mutex mutex;
        with_threads(threads, [&] {
          parallel_for(count, grain, [&](Index begin, Index end) {
            for (Index i = begin; i < end; ++i) ++visits.at(static_cast<std::size_t>(i));
            const std::lock_guard lock(mutex);
            chunks.emplace(begin, end);
          });
        });
        CHECK(std::ranges::all_of(visits, [](const auto& n) { return n == 1; }));
        CHECK(chunks == expected);
      }
    }
}

TEST_CASE("core.parallel: chunks are counted without overflow") {
  CHECK(chunk_count(-5, 1) == 0);
  CHECK(chunk_count(0, 1) == 0);
  CHECK(chunk_count(10, 3) == 4);
  CHECK(chunk_count(9, 3) == 3);
  CHECK(chunk_count(10, 0) == 10);
  CHECK(chunk_count(10, largest) == 1);
  CHECK(chunk_count(largest, largest) == 1);
  CHECK(chunk_count(largest, largest - 1) == 2);
  CHECK(chunk_count(largest, 1) == largest);
}

TEST_CASE("core.parallel: a negative count calls nothing") {
  parallel_for(-4, 1, [](Index, Index) { FAIL("called"); });
}

TEST_CASE("core.parallel: the worker is below the number of threads and runs one chunk at a time") {
  for (const int threads : {1, 2, 5}) with_threads(threads, [&] {
      const auto workers = static_cast<std::size_t>(max_threads());
      std::vector<std::atomic<int>> busy(workers);
      std::atomic<int> clashes{0};
      parallel_for(200, 1, [&](Index, Index, int worker) {
        clashes += busy.at(static_cast<std::size_t>(worker)).exchange(1);
        double x = 1;
        for (int i = 0; i < 2000; ++i) x = std::sqrt(x + 1);
        clashes += x < 0;
        busy[static_cast<std::size_t>(worker)] = 0;
      });
      CHECK(clashes == 0);
    });
}

TEST_CASE("core.parallel: the exception of the first failing chunk is thrown again") {
  for (const int threads : {1, 2, 4}) with_threads(threads, [] {
      for (int repeat = 0; repeat < 20; ++repeat)
        CHECK(test::message_of<std::runtime_error>([] {
                parallel_for(100, 10, [](Index begin, Index) {
                  if (begin >= 30) throw std::runtime_error("chunk " + std::to_string(begin / 10));
                });
              }) == "chunk 3");
      std::atomic<int> after{0};
      parallel_for(8, 1, [&](Index, Index) { ++after; });
      CHECK(after == 8);
    });
}

TEST_CASE("core.parallel: calls inside a chunk run serially") {
  with_threads(4, [] {
    std::atomic<int> inner_calls{0}, wrong{0};
    parallel_for(8, 1, [&](Index, Index) {
#if defined(_OPENMP)
      wrong += max_threads() != 1;
      const int outer = omp_get_thread_num();
#endif
      Index next = 0;
      parallel_for(10, 3, [&](Index begin, Index end, int worker) {
        wrong += worker != 0 || begin != next;  // in order, on this thread
#if defined(_OPENMP)
        wrong += omp_get_thread_num() != outer;
#endif
        next = end;
        ++inner_calls;
      });
    });
    CHECK(inner_calls == 32);
    CHECK(wrong == 0);
#if defined(_OPENMP)
    CHECK(max_threads() == 4);
#endif
  });
}

TEST_CASE("core.parallel: a sum kept per chunk has the same bits for any number of threads") {
  std::vector<float> x(10'007);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i)) * 1e3f;
  const auto sum = [&](int threads) {
    return with_threads(threads, [&] {
      const auto n = static_cast<Index>(x.size());
      std::vector<float> partial(static_cast<std::size_t>(chunk_count(n, 64)));
      parallel_for(n, 64, [&](Index begin, Index end) {
        partial[static_cast<std::size_t>(begin / 64)] = std::accumulate(x.begin() + begin, x.begin() + end, 0.0f);
      });
      return std::accumulate(partial.begin(), partial.end(), 0.0f);
    });
  };
  for (const int threads : {2, 3, 7}) CHECK(sum(threads) == sum(1));
}

}  // namespace
}  // namespace ashlar
