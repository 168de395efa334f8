// One value of the affinity of an index, projection and ranks included, against the definition and against what one
// would write first: std::sort for the ranks and a walk over the sorted points for the neighbours. Useful work of a
// value: reading the predictors once.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/statistics/single_index.hpp"
#include "support/scoreboard.hpp"

namespace ashlar::statistics {
namespace {

class PlainAffinity {
 public:
  PlainAffinity(const Matrix<double>& x, const Vector<double>& y) : x_(x), rank_(places(y)) {}

  double operator()(const Vector<double>& b) const {
    const std::vector<double> u = places(x_ * b);
    const std::size_t n = u.size();
    std::vector<double> v(n);
    for (std::size_t i = 0; i < n; ++i) v[static_cast<std::size_t>(u[i]) - 1] = rank_[i];
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      double best = std::numeric_limits<double>::infinity();
      for (std::size_t j = 1; static_cast<double>(j * j) < best && j < n; ++j) {
        const auto lag = static_cast<double>(j * j);
        if (i + j < n) best = std::min(best, lag + (v[i + j] - v[i]) * (v[i + j] - v[i]));
        if (i >= j) best = std::min(best, lag + (v[i - j] - v[i]) * (v[i - j] - v[i]));
      }
      sum += std::sqrt(best);
    }
    const auto count = static_cast<double>(n);
    return 2 * std::sqrt(count - 1) / (count * (count + 1)) * sum;
  }

 private:
  static std::vector<double> places(const Vector<double>& values) {
    std::vector<std::size_t> order(static_cast<std::size_t>(values.size()));
    std::iota(order.begin(), order.end(), std::size_t{0});
    const double* data = values.data();
    std::sort(order.begin(), order.end(), [data](std::size_t a, std::size_t b) { return data[a] < data[b]; });
    std::vector<double> ranks(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) ranks[order[i]] = static_cast<double>(i + 1);
    return ranks;
  }

  Matrix<double> x_;
  std::vector<double> rank_;
};

struct Sample {
  Matrix<double> x;
  Vector<double> y, b;
};

Sample sample(Index n) {
  Rng rng(1);
  Sample s{normal_matrix<double>(rng, n, 10), Vector<double>(n), normal_matrix<double>(rng, 10, 1).col(0)};
  for (Index i = 0; i < n; ++i) s.y[i] = s.x(i, 0) * s.x(i, 0) + 0.2 * rng.normal();
  return s;
}

const bool registered = [] {
  for (const Index n : {200, 400, 2000, 20000}) {
    const std::string size = message("n=", n, " p=10");
    scoreboard::add({"statistics.single_index.affinity", size, "ashlar", {.bytes = 80.0 * static_cast<double>(n)}},
                    [=] {
                      const Sample s = sample(n);
                      return [objective = hellinger_objective(s.x, s.y), b = s.b]() mutable {
                        benchmark::DoNotOptimize(objective(b));
                      };
                    });
    scoreboard::add({"statistics.single_index.affinity", size, "std::sort and a walk"}, [=] {
      const Sample s = sample(n);
      return [objective = PlainAffinity(s.x, s.y), b = s.b] { benchmark::DoNotOptimize(objective(b)); };
    });
    if (n > 2000) continue;
    scoreboard::add({"statistics.single_index.affinity", size, "reference"}, [=] {
      return [s = sample(n)] { benchmark::DoNotOptimize(reference::copula_affinity((s.x * s.b).eval(), s.y)); };
    });
    scoreboard::add({"statistics.single_index.distance_covariance", size, "ashlar"}, [=] {
      const Sample s = sample(n);
      return [against = numerics::DistanceCovariance(s.y), z = Vector<double>(s.x * s.b)]() mutable {
        benchmark::DoNotOptimize(against(z));
      };
    });
    scoreboard::add({"statistics.single_index.distance_covariance", size, "reference"}, [=] {
      const Sample s = sample(n);
      return [y = s.y, z = Vector<double>(s.x * s.b)] {
        benchmark::DoNotOptimize(numerics::reference::distance_covariance(z, y));
      };
    });
  }
  scoreboard::add({"statistics.single_index.reduction", "n=400 p=10 evaluations=30000", "ashlar"}, [] {
    return [s = sample(400)] { benchmark::DoNotOptimize(hellinger_reduction(s.x, s.y, Rng(1)).affinity); };
  });
  return true;
}();

}  // namespace
}  // namespace ashlar::statistics
