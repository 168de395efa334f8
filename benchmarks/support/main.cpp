// The benchmark program: measures the roofs, runs every registered case, prints the scoreboard and writes it as JSON.
#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ashlar/core/parallel.hpp"
#include "ashlar/core/simd.hpp"
#include "support/scoreboard.hpp"

namespace ashlar::scoreboard {
namespace {

std::map<std::string, Case>& cases() {
  static std::map<std::string, Case> all;
  return all;
}

/// Best of `repeats` runs of f, in seconds.
template <class F>
double best_seconds(int repeats, F&& f) {
  double best = 1e300;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

/// What this machine can do, measured in this process.
struct Roofs {
  double gemm_flops;  ///< per second: Eigen, 512 cubed, float
  double copy_bytes;  ///< read plus written per second: 128 MiB, by memcpy or by a plain loop, whichever is faster
  double exps;        ///< per second: simd exp over an array in first-level cache, float
};

/// The rates of `threads` threads that each do the same. Every thread has data of its own, touched by itself.
Roofs measure_roofs(int threads) {
  detail::limit_threads(threads);
  const auto rate = [&](double work, int repeats, auto make) {
    std::vector<std::function<void()>> calls(static_cast<std::size_t>(threads));
    const auto on_every_thread = [&](auto&& body) {
      parallel_for(threads, 1, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) body(calls[static_cast<std::size_t>(i)]);
      });
    };
    on_every_thread([&](std::function<void()>& call) { call = make(); });
    return threads * work / best_seconds(repeats, [&] { on_every_thread([](auto& call) { call(); }); });
  };
  Roofs roofs{};
  roofs.gemm_flops = rate(4 * 2.0 * 512 * 512 * 512, 10, [] {
    constexpr Index n = 512;
    return [a = Eigen::MatrixXf(Eigen::MatrixXf::Ones(n, n)), c = Eigen::MatrixXf(n, n)]() mutable {
      for (int i = 0; i < 4; ++i) {
        c.noalias() = a * a;
        benchmark::DoNotOptimize(c.data());
      }
    };
  });
  static constexpr Index floats = Index{32} << 20;
  const auto copy_rate = [&](auto copy) {
    return rate(2.0 * floats * sizeof(float), 6, [copy] {
      return [copy, from = std::vector<float>(floats, 1.0f), to = std::vector<float>(floats, 2.0f)]() mutable {
        copy(from.data(), to.data());
        benchmark::DoNotOptimize(to.data());
      };
    });
  };
  roofs.copy_bytes =
      std::max(copy_rate([](const float* from, float* to) { std::memcpy(to, from, floats * sizeof(float)); }),
               copy_rate([](const float* from, float* to) {
                 for (Index i = 0; i < floats; i += simd::width<float>) simd::store(to + i, simd::load(from + i));
               }));
  roofs.exps = rate(64.0 * 4096, 20, [] {
    return [x = std::vector<float>(4096, -1.5f)]() mutable {
      for (int repeat = 0; repeat < 64; ++repeat) {
        for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(simd::width<float>)) {
          const auto y = simd::exp(simd::load(x.data() + i));
          simd::store(x.data() + i, simd::batch<float>(-1.0f) - y);
        }
        benchmark::ClobberMemory();
      }
    };
  });
  return roofs;
}

/// Keeps the best time of every case; prints nothing itself.
class Collector : public benchmark::BenchmarkReporter {
 public:
  explicit Collector(std::size_t total) : total_(total) {}
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.iterations == 0) continue;
      std::string name = run.benchmark_name();
      name = name.substr(0, name.rfind("/real_time"));
      const double seconds = run.real_accumulated_time / static_cast<double>(run.iterations);
      const auto [at, added] = seconds_.emplace(name, seconds);
      if (!added) at->second = std::min(at->second, seconds);
      if (added) std::fprintf(stderr, "\r[%3zu/%zu] %-100.100s", seconds_.size(), total_, name.c_str());
    }
  }
  const std::map<std::string, double>& seconds() const { return seconds_; }

 private:
  std::size_t total_;
  std::map<std::string, double> seconds_;
};

double share_of_roof(const Work& work, double seconds, const Roofs& roofs) {
  return std::max(work.flops / roofs.gemm_flops + work.exps / roofs.exps, work.bytes / roofs.copy_bytes) / seconds;
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

/// One line for each case of ours: kernel, size, time, share of the roof, ratio to the best alternative. The JSON has the
/// alternatives too.
void print_scoreboard(const Collector& collector, std::map<int, Roofs>& roofs_of, const std::string& path) {
  nlohmann::ordered_json board;
  board["machine"] = {{"processor", processor()},
                      {"threads", std::thread::hardware_concurrency()},
                      {"vector_bits", 32 * simd::width<float>}};
  std::printf("\n%s, %d-bit vectors\n", processor().c_str(), static_cast<int>(32 * simd::width<float>));
  for (const auto& [threads, roofs] : roofs_of) {
    std::printf("%d thread%s  matrix product %.1f Gflop/s, copy %.1f GB/s, exp %.2f G/s\n", threads,
                threads == 1 ? ": " : "s:", roofs.gemm_flops * 1e-9, roofs.copy_bytes * 1e-9, roofs.exps * 1e-9);
    board["machine"]["roofs"].push_back({{"threads", threads},
                                         {"gemm_gflops", roofs.gemm_flops * 1e-9},
                                         {"copy_gbytes", roofs.copy_bytes * 1e-9},
                                         {"gexps", roofs.exps * 1e-9}});
  }
  std::printf("\n%-36s %-40s %3s %10s %6s   %s\n", "kernel", "size", "thr", "time", "roof", "ahead of the best alternative");
  for (const auto& [name, seconds] : collector.seconds()) {
    const Case& entry = cases().at(name);
    const double share = share_of_roof(entry.work, seconds, roofs_of.at(entry.threads));
    nlohmann::ordered_json line{{"kernel", entry.kernel}, {"size", entry.size},       {"variant", entry.variant},
                                {"seconds", seconds},     {"threads", entry.threads}};
    if (share > 0) line["share_of_roof"] = share;
    if (entry.variant == "ashlar") {
      double best_alternative = 0;
      std::string rival;
      for (const auto& [other, time] : collector.seconds()) {
        const Case& alternative = cases().at(other);
        if (alternative.kernel != entry.kernel || alternative.size != entry.size || alternative.variant == "ashlar")
          continue;
        if (rival.empty() || time < best_alternative) best_alternative = time, rival = alternative.variant;
      }
      std::string roof = "-", ahead = "-";
      char text[160];
      if (share > 0) {
        std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
        roof = text;
      }
      if (!rival.empty()) {
        line["best_alternative"] = rival;
        line["times_faster"] = best_alternative / seconds;
        std::snprintf(text, sizeof text, "%6.2f x %s", best_alternative / seconds, rival.c_str());
        ahead = text;
      }
      std::printf("%-36s %-40s %3d %7.2f ms %6s   %s\n", entry.kernel.c_str(), entry.size.c_str(), entry.threads,
                  seconds * 1e3, roof.c_str(), ahead.c_str());
    }
    board["results"].push_back(line);
  }
  if (!path.empty()) std::ofstream(path) << board.dump(1) << '\n';
}

}  // namespace

void detail::remember(const Case& entry) { cases().emplace(entry.kernel + "/" + entry.size + "/" + entry.variant, entry); }

void detail::enter(const std::string& name, std::function<void()> release) {
  static std::string current;
  static std::function<void()> release_current;
  if (name == current) return;
  if (release_current) release_current();
  current = name;
  release_current = std::move(release);
}

void detail::limit_threads([[maybe_unused]] int threads) {
#if defined(_OPENMP)
  omp_set_num_threads(threads);
#endif
}

}  // namespace ashlar::scoreboard

// ashlar_benchmark [scoreboard.json] [Google Benchmark flags]
int main(int argc, char** argv) {
  using namespace ashlar::scoreboard;
  std::vector<char*> arguments(argv, argv + argc);
  static char min_time[] = "--benchmark_min_time=0.1", repetitions[] = "--benchmark_repetitions=3";
  arguments.insert(arguments.begin() + 1, {min_time, repetitions});
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  const std::string path = count > 1 ? arguments[1] : "";
  std::map<int, Roofs> roofs;
  for (const auto& [name, entry] : cases())
    if (!roofs.contains(entry.threads)) roofs.emplace(entry.threads, measure_roofs(entry.threads));
  Collector collector(cases().size());
  benchmark::RunSpecifiedBenchmarks(&collector);
  print_scoreboard(collector, roofs, path);
}
