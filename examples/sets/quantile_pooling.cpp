// The best of maximum and mean: a Deep Sets network learns the maximum, mean, median and standard deviation of sets of
// 33 numbers through four pools. Max pooling cannot see the middle of a set and mean pooling cannot see its end; one
// layer of quantile pooling sees both.
#include "ashlar/sets/quantile_pooling.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "support/cli.hpp"
#include "support/deep_sets.hpp"

namespace ashlar {
namespace {

using example::claim;
using example::DeepSets;
using example::Pool;
using example::StackedSets;

constexpr Index size = 33;

struct Sample {
  StackedSets sets;
  Matrix<float> targets;  ///< [set, 4]: maximum, mean, median, standard deviation
};

/// Sets of s z + m with z normal, s uniform on [0.5, 1.5] and m normal, one of each a set.
Sample draw(Rng& rng, Index count) {
  Sample sample{{Matrix<float>(count * size, 1), {0}}, Matrix<float>(count, 4)};
  std::vector<double> x(static_cast<std::size_t>(size));
  for (Index s = 0; s < count; ++s) {
    const double scale = rng.uniform(0.5, 1.5), shift = rng.normal();
    for (double& v : x) v = rng.normal(shift, scale);
    for (Index i = 0; i < size; ++i)
      sample.sets.values(s * size + i, 0) = static_cast<float>(x[static_cast<std::size_t>(i)]);
    sample.sets.offsets.push_back((s + 1) * size);
    std::sort(x.begin(), x.end());
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / size;
    double squares = 0;
    for (const double v : x) squares += (v - mean) * (v - mean);
    const std::array<double, 4> targets{x.back(), mean, x[x.size() / 2], std::sqrt(squares / (size - 1))};
    for (Index t = 0; t < 4; ++t) sample.targets(s, t) = static_cast<float>(targets[static_cast<std::size_t>(t)]);
  }
  return sample;
}

/// Mean squared error of the four statistics on 2000 fresh sets.
Eigen::RowVector4f errors_with(const Pool& pool, const example::Settings& settings) {
  Rng data = Rng(settings.seed).split(1), weights = Rng(settings.seed).split(2);
  DeepSets network(weights, 1, 64, 4, pool);
  const int steps = settings.full ? 3000 : 600;
  for (int step = 0; step < steps; ++step) {
    const Sample batch = draw(data, 64);
    const Matrix<float> error = network.forward(batch.sets) - batch.targets;
    network.backward(2 / static_cast<float>(error.size()) * error);
    network.step(3 * step < 2 * steps ? 3e-3f : 6e-4f);
  }
  const Sample test = draw(data, 2000);
  return (network.forward(test.sets) - test.targets).cwiseAbs2().colwise().mean();
}

bool best_of_max_and_mean(const example::Settings& settings) {
  std::printf("Mean squared error of what is read off a set of %d numbers, on 2000 new sets\n\n%-18s %8s %8s %8s %8s %8s\n",
              static_cast<int>(size), "pool", "maximum", "mean", "median", "std", "sum");
  const auto total = [&](const Pool& pool) {
    const Eigen::RowVector4f errors = errors_with(pool, settings);
    std::printf("%-18s %8.4f %8.4f %8.4f %8.4f %8.4f\n", pool.name().c_str(), errors[0], errors[1], errors[2], errors[3],
                errors.sum());
    std::fflush(stdout);
    return errors.sum();
  };
  const float upper = total({Pool::quantile, 0.9, 1}), whole = total({Pool::quantile, 0, 1});
  const float max = total({Pool::max}), mean = total({Pool::mean});
  const float best = std::min(max, mean);
  std::printf("\nPaper: pooling by quantiles has the best of max and average pooling.\n");
  bool held = claim(upper <= 0.6f * best, message("levels [0.9, 1]: ", example::brief(upper / best),
                                                  " of the error of the better of max and mean (expected at most 0.6)"));
  held &= claim(whole <= 0.1f * best,
                message("levels [0, 1]: ", example::brief(whole / best), " of that error (expected at most 0.1)"));
  return held;
}

}  // namespace
}  // namespace ashlar

int main(int argc, char** argv) {
  return ashlar::example::run(argc, argv, "Quantile pooling: the best of max and mean pooling",
                              ashlar::best_of_max_and_mean);
}
