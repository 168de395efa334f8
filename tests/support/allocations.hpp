// Counts what a call allocates, on every thread and through every allocator (operator new, malloc, Eigen).
#pragma once

#include <atomic>

#if defined(__clang__)
#include "support/threads.hpp"
#endif

namespace ashlar::test {

extern std::atomic<long> allocation_count;

template <class F>
long allocations(F&& f) {
  const long before = allocation_count;
#if defined(__clang__)
  with_threads(1, f);  // LLVM's OpenMP runtime allocates for a parallel loop, and that is not ours to count
#else
  f();
#endif
  return allocation_count - before;
}

}  // namespace ashlar::test
