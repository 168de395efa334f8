// How a kernel gets onto the scoreboard. Register the library's form and what a user would write instead under the same
// kernel and size; the runner measures the roofs of this machine first, then all of them in one process, and prints
// each kernel's share of its roof and its ratio to the best alternative.
//
//   const bool registered = [] {
//     for (Index n : {4096, 65536}) {
//       const std::string size = message("N=", n);
//       scoreboard::add({"attention.lightning.forward", size, "ashlar", {.flops = 24576.0 * n}}, [=] {
//         auto q = ...;                                        // set-up, not timed, when the case is about to run
//         return [q = std::move(q)]() mutable { ... };         // timed
//       });
//       scoreboard::add({"attention.lightning.forward", size, "quadratic"}, [=] { ... });
//     }
//     return true;
//   }();
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"

namespace ashlar::scoreboard {

/// What one call has to do at least. Its roof: arithmetic and exponentials one after the other, since they need the same
/// units, or the memory traffic, whichever takes longer at the rates measured for as many threads.
struct Work {
  double flops = 0;  ///< useful floating-point operations, at the rate of a large matrix product
  double bytes = 0;  ///< bytes read plus bytes written, at the rate of a copy
  double exps = 0;   ///< exponentials, at the rate of simd exp
};

struct Case {
  std::string kernel;   ///< "<field>.<module>.<operation>"
  std::string size;     ///< "N=4096 D=64"
  std::string variant;  ///< "ashlar", or the name of the alternative
  Work work = {};
  int threads = 1;
};

namespace detail {
void remember(const Case& entry);
void limit_threads(int threads);
/// Says which case runs now; `release` is called when another one begins.
void enter(const std::string& name, std::function<void()> release);
}  // namespace detail

/// Registers one case. `setup()` returns the callable that is timed; it lives through all repetitions of the case.
template <class Setup>
void add(const Case& entry, Setup setup) {
  detail::remember(entry);
  const std::string name = entry.kernel + "/" + entry.size + "/" + entry.variant;
  const auto call = std::make_shared<std::optional<decltype(setup())>>();
  benchmark::RegisterBenchmark(name.c_str(), [name, setup, call, threads = entry.threads](benchmark::State& state) {
    detail::limit_threads(threads);
    detail::enter(name, [call] { call->reset(); });
    if (!call->has_value()) {
      call->emplace(setup());
      (**call)();  // touches the memory and warms the caches
    }
    for (auto _ : state) {
      (**call)();
      benchmark::ClobberMemory();
    }
  })->UseRealTime()->Unit(benchmark::kMicrosecond);
}

}  // namespace ashlar::scoreboard
