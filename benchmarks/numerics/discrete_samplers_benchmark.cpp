// A thousand draws of a count, against the standard library where it has the law. For hypergeometric counts it has
// none; there the alternative takes the marked ones out of the urn one draw at a time.
#include "ashlar/numerics/discrete_samplers.hpp"

#include <cstdint>
#include <random>

#include "support/scoreboard.hpp"

namespace ashlar::numerics {
namespace {

template <class Draw>
void add(const char* kernel, const std::string& size, const char* variant, Draw draw) {
  scoreboard::add({kernel, size, variant}, [=] {
    return [draw]() mutable {
      std::int64_t sum = 0;
      for (int i = 0; i < 1000; ++i) sum += draw();
      benchmark::DoNotOptimize(sum);
    };
  });
}

const bool registered = [] {
  for (const std::int64_t n : {20, 1000, 1000000, 1000000000}) {
    const std::string size = message("n=", n, " p=0.3");
    add("numerics.discrete_samplers.binomial", size, "ashlar",
        [n, rng = Rng(1)]() mutable { return draw_binomial(rng, n, 0.3); });
    add("numerics.discrete_samplers.binomial", size, "std::binomial_distribution",
        [law = std::binomial_distribution<std::int64_t>(n, 0.3), engine = std::mt19937_64(1)]() mutable {
          return law(engine);
        });
  }
  for (const double mean : {0.1, 10.0, 1e6}) {
    const std::string size = message("mean=", mean);
    add("numerics.discrete_samplers.poisson", size, "ashlar",
        [mean, rng = Rng(1)]() mutable { return draw_poisson(rng, mean); });
    add("numerics.discrete_samplers.poisson", size, "std::poisson_distribution",
        [law = std::poisson_distribution<std::int64_t>(mean), engine = std::mt19937_64(1)]() mutable {
          return law(engine);
        });
  }
  for (const std::int64_t n : {100, 10000, 1000000000}) {
    const std::string size = message("N=", n);
    add("numerics.discrete_samplers.hypergeometric", size, "ashlar",
        [n, rng = Rng(1)]() mutable { return draw_hypergeometric(rng, n, n / 3, n / 2); });
    if (n <= 10000)
      add("numerics.discrete_samplers.hypergeometric", size, "one at a time", [n, rng = Rng(1)]() mutable {
        std::int64_t marked = n / 3;
        for (std::int64_t left = n; left > n - n / 2; --left) marked -= rng.below(left) < marked;
        return n / 3 - marked;
      });
  }
  return true;
}();

}  // namespace
}  // namespace ashlar::numerics
