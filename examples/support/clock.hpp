// Processor time: what a claim about speed is measured in on a machine that does other things too.
#pragma once

#include <algorithm>
#include <ctime>

namespace ashlar::example {

inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The least processor time, of all threads together, that `repeats` calls of f took.
template <class F>
double best_cpu_seconds(int repeats, F&& f) {
  double best = 1e300;
  for (int i = 0; i < repeats; ++i) {
    const double start = cpu_seconds();
    f();
    best = std::min(best, cpu_seconds() - start);
  }
  return best;
}

}  // namespace ashlar::example
