// Makes the one mistake its argument names.
#include <chrono>
#include <cstdio>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "ashlar/core/parallel.hpp"
#include "support/sanitizer_options.hpp"

using ashlar::Index;
using ashlar::parallel_for;

int main(int, char** argv) {
  const std::string fault = argv[1];
  const Index n = 1000;
  std::vector<Index> x(static_cast<std::size_t>(n), 1);
  Index* const data = x.data();
  Index sum = 0;
  // More than one region: memory written in one is read in the next, which only the joins make safe.
  for (int region = 0; region < 10; ++region) {
    parallel_for(n, 100, [&](Index begin, Index end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // so that every thread gets some chunks
      for (Index i = begin; i < end; ++i) data[i] += fault == "neighbours_chunk" ? data[(i + n / 2) % n] : 1;
      if (fault == "shared_sum") sum += begin;
    });
    for (Index i = 0; i < n; ++i) sum += data[i];
  }
  if (fault == "overrun") sum += data[n];
  if (fault == "leak") sum += *new Index(sum);
  if (fault == "overflow") sum = std::numeric_limits<Index>::max() - 1 + data[0];
  std::printf("%td\n", sum);
}
