// The benchmark program: measures the roofs, runs every registered case, prints the scoreboard and writes it as JSON.
#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
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

/// What one thread of this machine can do, measured in this process.
struct Roofs {
  double gemm_flops;  ///< per second: Eigen, 512 cubed, float
  double copy_bytes;  ///< read plus written per second: memcpy of 128 MiB
  double exps;        ///< per second: simd exp over an array in first-level cache, float
};

Roofs measure_roofs() {
  detail::limit_threads(1);
  Roofs roofs{};
  {
    constexpr Index n = 512;
    const Eigen::MatrixXf a = Eigen::MatrixXf::Random(n, n), b = Eigen::MatrixXf::Random(n, n);
    Eigen::MatrixXf c(n, n);
    roofs.gemm_flops = 2.0 * n * n * n / best_seconds(20, [&] {
                         c.noalias() = a * b;
                         benchmark::DoNotOptimize(c.data());
                       });
  }
  {
    const std::size_t bytes = std::size_t{128} << 20;
    std::vector<char> from(bytes, 1), to(bytes, 2);
    roofs.copy_bytes = 2.0 * static_cast<double>(bytes) / best_seconds(10, [&] {
                         std::memcpy(to.data(), from.data(), bytes);
                         benchmark::DoNotOptimize(to.data());
                       });
  }
  {
    constexpr Index n = 4096;
    std::vector<float> x(n, -1.5f);
    roofs.exps = 64.0 * n / best_seconds(20, [&] {
                   for (int repeat = 0; repeat < 64; ++repeat) {
                     for (Index i = 0; i < n; i += simd::width<float>) {
                       const auto y = simd::exp(simd::load(x.data() + i));
                       simd::store(x.data() + i, simd::batch<float>(-1.0f) - y);
                     }
                     benchmark::ClobberMemory();
                   }
                 });
  }
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
  return std::max({work.flops / seconds / roofs.gemm_flops, work.bytes / seconds / roofs.copy_bytes,
                   work.exps / seconds / roofs.exps});
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

void print_scoreboard(const Collector& collector, const Roofs& roofs, const std::string& path) {
  nlohmann::ordered_json board;
  board["machine"] = {{"processor", processor()},
                      {"threads", std::thread::hardware_concurrency()},
                      {"vector_bits", 32 * simd::width<float>},
                      {"gemm_gflops", roofs.gemm_flops * 1e-9},
                      {"copy_gbytes", roofs.copy_bytes * 1e-9},
                      {"gexps", roofs.exps * 1e-9}};
  std::printf("\n%s, %d-bit vectors; one thread: GEMM %.1f Gflop/s, copy %.1f GB/s, exp %.2f G/s\n\n",
              processor().c_str(), static_cast<int>(32 * simd::width<float>), roofs.gemm_flops * 1e-9,
              roofs.copy_bytes * 1e-9, roofs.exps * 1e-9);
  std::printf("%-40s %-34s %-22s %12s %7s %8s\n", "kernel", "size", "variant", "time", "roof", "ahead");
  for (const auto& [name, seconds] : collector.seconds()) {
    const Case& entry = cases().at(name);
    double best_alternative = 0;
    std::string rival;
    for (const auto& [other, time] : collector.seconds()) {
      const Case& alternative = cases().at(other);
      if (alternative.kernel != entry.kernel || alternative.size != entry.size || alternative.variant == "ashlar") continue;
      if (rival.empty() || time < best_alternative) best_alternative = time, rival = alternative.variant;
    }
    const double share = share_of_roof(entry.work, seconds, roofs);
    const bool ours = entry.variant == "ashlar";
    nlohmann::ordered_json line{{"kernel", entry.kernel}, {"size", entry.size},       {"variant", entry.variant},
                                {"seconds", seconds},     {"threads", entry.threads}};
    std::string roof = "-", ahead = "-";
    char text[32];
    if (share > 0) {
      line["share_of_roof"] = share;
      std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
      roof = text;
    }
    if (ours && !rival.empty()) {
      line["best_alternative"] = rival;
      line["times_faster"] = best_alternative / seconds;
      std::snprintf(text, sizeof text, "%.2f x", best_alternative / seconds);
      ahead = text;
    }
    std::printf("%-40s %-34s %-22s %9.1f us %7s %8s\n", entry.kernel.c_str(), entry.size.c_str(), entry.variant.c_str(),
                seconds * 1e6, roof.c_str(), ahead.c_str());
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
  const Roofs roofs = measure_roofs();
  Collector collector(cases().size());
  benchmark::RunSpecifiedBenchmarks(&collector);
  print_scoreboard(collector, roofs, path);
}
