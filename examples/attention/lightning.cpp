// Constant speed for any length, exactly: time and scratch of lightning attention as the sequence grows, against the
// quadratic form of the same operator, and the largest difference between the two.
#include "ashlar/attention/lightning.hpp"

#include <cstdio>

#include "ashlar/attention/decay.hpp"
#include "ashlar/core/random.hpp"
#include "support/attention.hpp"
#include "support/cli.hpp"
#include "support/clock.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace ashlar {
namespace {

using example::brief;
using example::claim;

constexpr Index dim = 64;

struct Problem {
  Tensor<double> q, k, v, o;
  Vector<double> slopes = attention::alibi_slopes(1);
  Workspace workspace;

  Problem(Rng& rng, Index length)
      : q(normal_tensor<double>(rng, {1, 1, length, dim}, 0.1)),
        k(normal_tensor<double>(rng, {1, 1, length, dim}, 0.1)),
        v(normal_tensor<double>(rng, {1, 1, length, dim}, 0.1)),
        o({1, 1, length, dim}) {}

  double tiled_seconds() {
    return example::best_cpu_seconds(
        5, [&] { attention::lightning_forward(q, k, v, slopes, o.view<4>(), {}, workspace); });
  }
  double quadratic_seconds() {
    return example::best_cpu_seconds(2, [&] { example::quadratic_attention(q, k, v, slopes[0], o.view<4>()); });
  }
};

bool constant_speed(const example::Settings& settings) {
#if defined(_OPENMP)
  omp_set_num_threads(1);  // the claim is about one core
#endif
  Rng rng(settings.seed);
  std::printf("double, one head, dim %d, one thread, processor time\n\n%10s %16s %16s %14s %12s\n", static_cast<int>(dim),
              "tokens", "tiled ns/token", "quadratic", "scratch KiB", "difference");
  double tiled_1k = 0, tiled_64k = 0, tiled_8k = 0, quadratic_2k = 0, quadratic_8k = 0, worst = 0;
  Index scratch_4k = 0, scratch_64k = 0;
  const Index longest = settings.full ? 1 << 20 : 1 << 16;
  for (Index length = 1024; length <= longest; length *= 2) {
    Problem p(rng, length);
    const double tiled = p.tiled_seconds();
    std::printf("%10td %16.1f", length, 1e9 * tiled / static_cast<double>(length));
    if (length <= 8192) {
      const Tensor<double> expected = p.o;
      const double quadratic = p.quadratic_seconds();
      double gap = 0, size = 0;
      for (Index i = 0; i < p.o.size(); ++i) {
        gap = std::max(gap, std::abs(p.o.data()[i] - expected.data()[i]));
        size = std::max(size, std::abs(p.o.data()[i]));
      }
      worst = std::max(worst, gap / size);
      std::printf(" %16.1f %14td %12.1e\n", 1e9 * quadratic / static_cast<double>(length), p.workspace.bytes() / 1024, gap / size);
      if (length == 2048) quadratic_2k = quadratic;
      if (length == 8192) quadratic_8k = quadratic, tiled_8k = tiled;
    } else {
      std::printf(" %16s %14td\n", "", p.workspace.bytes() / 1024);
    }
    if (length == 4096) scratch_4k = p.workspace.bytes();
    if (length == 1024) tiled_1k = tiled;
    if (length == 65536) tiled_64k = tiled, scratch_64k = p.workspace.bytes();
  }
  std::printf("\nPaper: the same speed for any length at a fixed memory, without approximation.\n");
  const double growth = tiled_64k / tiled_1k, quadratic_growth = quadratic_8k / quadratic_2k;
  bool held = claim(worst < 1e-11, message("tiled and quadratic agree to ", brief(worst), " of the largest output"));
  // Linear time would be 64; inputs leave the caches on the way. Quadratic time would be 4096.
  held &= claim(growth < 128, message("64 times the tokens take ", brief(growth), " times the time (1k to 64k)"));
  held &= claim(quadratic_growth > 10, message("the quadratic form takes ", brief(quadratic_growth), " times the time (2k to 8k)"));
  held &= claim(quadratic_8k / tiled_8k > 20, message("at 8k tokens the tiled form is ", brief(quadratic_8k / tiled_8k), " times faster"));
  held &= claim(scratch_64k < 2 * scratch_4k,
                message("scratch is ", scratch_4k / 1024, " KiB at 4k and ", scratch_64k / 1024, " KiB at 64k tokens"));
  return held;
}

}  // namespace
}  // namespace ashlar

int main(int argc, char** argv) {
  return ashlar::example::run(argc, argv, "Lightning attention: constant speed for any length, exactly.", ashlar::constant_speed);
}
