// Counts what a call allocates, on every thread and through every allocator (operator new, malloc, Eigen).
#pragma once

#include <atomic>

namespace ashlar::test {

extern std::atomic<long> allocation_count;

template <class F>
long allocations(F&& f) {
  const long before = allocation_count;
  f();
  return allocation_count - before;
}

}  // namespace ashlar::test
