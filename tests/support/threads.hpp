// Runs a piece of a test with a given number of threads.
#pragma once

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace ashlar::test {

template <class F>
auto with_threads([[maybe_unused]] int threads, F&& f) {
#if defined(_OPENMP)
  struct Restore {
    int threads = omp_get_max_threads();
    ~Restore() { omp_set_num_threads(threads); }
  } restore;
  omp_set_num_threads(threads);
#endif
  return f();
}

}  // namespace ashlar::test
