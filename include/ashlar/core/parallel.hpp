// Threads: OpenMP where the consumer compiles with it, one thread otherwise.
//
//   parallel_for(rows, 64, [&](Index begin, Index end) { ... });
//
// The range is cut into chunks of `grain` whatever the number of threads, so work that keeps one partial result a
// chunk and adds them in order gives the same bits for 1, 2 and 64 threads. Calls inside a chunk run serially.
#pragma once

#include <algorithm>
#include <exception>
#include <type_traits>

#include "ashlar/core/config.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace ashlar {

/// Threads the next parallel_for may use; 1 inside one.
inline int max_threads() {
#if defined(_OPENMP)
  return omp_in_parallel() ? 1 : omp_get_max_threads();
#else
  return 1;
#endif
}

/// Chunks that parallel_for(count, grain, f) cuts its range into.
constexpr Index chunk_count(Index count, Index grain) {
  return count <= 0 ? 0 : (count - 1) / std::max<Index>(grain, 1) + 1;
}

/// Calls f(begin, end), or f(begin, end, worker) with 0 <= worker < max_threads(), once for every chunk of
/// [0, count). Chunks may run at the same time and in any order. The first exception (by chunk) is rethrown.
template <class F>
void parallel_for(Index count, Index grain, F&& f) {
  grain = std::max<Index>(grain, 1);
  const Index chunks = chunk_count(count, grain);
  const auto run = [&](Index chunk, int worker) {
    const Index begin = chunk * grain, end = begin + std::min(grain, count - begin);
    if constexpr (std::is_invocable_v<F&, Index, Index, int>)
      f(begin, end, worker);
    else
      f(begin, end);
  };
#if defined(_OPENMP)
  const int threads = static_cast<int>(std::min<Index>(max_threads(), chunks));
  if (threads > 1) {
    std::exception_ptr error;
    Index failed = chunks;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (Index chunk = 0; chunk < chunks; ++chunk) {
      try {
        run(chunk, omp_get_thread_num());
      } catch (...) {
#pragma omp critical(ashlar_parallel_for_error)
        if (chunk < failed) {
          failed = chunk;
          error = std::current_exception();
        }
      }
    }
    if (error) std::rethrow_exception(error);
    return;
  }
#endif
  for (Index chunk = 0; chunk < chunks; ++chunk) run(chunk, 0);
}

}  // namespace ashlar
