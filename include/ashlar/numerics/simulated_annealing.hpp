// Minimum of a function by a random walk that accepts a step up by d with probability exp(-d / temperature) and keeps
// the best point it came by. The walk and the temperature are the caller's:
//
//   const auto step = [&](const Vector<double>& from, double temperature, Index k, Rng& rng, Vector<double>& to) {
//     for (Index i = 0; i < from.size(); ++i) to[i] = from[i] + 0.1 * rng.normal();
//   };
//   const auto best = numerics::simulated_annealing(f, start, step, numerics::GeometricCooling{1, 1e-3}, 20000, rng);
//
// One evaluation a step.
//
// Source: Kirkpatrick, Gelatt, Vecchi, "Optimization by simulated annealing", Science 220 (1983).
#pragma once

#include <cmath>
#include <numbers>
#include <utility>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/numerics/nelder_mead.hpp"

namespace ashlar::numerics {

/// From `first` to `last` along a geometric sequence, evenly over the evaluations.
struct GeometricCooling {
  double first, last;
  double operator()(Index evaluation, Index evaluations) const {
    return first * std::pow(last / first, static_cast<double>(evaluation) / static_cast<double>(evaluations));
  }
};

/// first / log(k + e - 1) at evaluation k, kept for `hold` evaluations: so slow that it hardly cools at all. This is
/// the schedule of R's optim(method = "SANN").
struct LogarithmicCooling {
  double first;
  Index hold = 10;
  double operator()(Index evaluation, Index) const {
    const Index held = (evaluation - 1) / hold * hold + 1;
    return first / std::log(static_cast<double>(held) + std::numbers::e - 1);
  }
};

/// step(from, temperature, k, rng, to) writes the proposal for evaluation k, temperature(k, evaluations) is what it is
/// judged at, k = 1 .. evaluations - 1; evaluation 0 is that of the start. Draws what step draws, then one uniform
/// number for every proposal that is worse. A proposal of value NaN is refused. Of points of equal value the first one
/// visited is returned. Throws InvalidArgument for an empty or infinite start, no evaluations, and a temperature not
/// positive.
template <class F, class Step, class Temperature>
Minimum simulated_annealing(F&& f, View<const double, 1> start, Step&& step, Temperature&& temperature,
                            Index evaluations, Rng& rng) {
  constexpr auto function = "simulated_annealing";
  require(start.extent(0) >= 1, function, "start is empty");
  require(vector(start).allFinite(), function, "start has an entry that is not finite");
  check_argument(evaluations >= 1, function, "evaluations", "at least 1", evaluations);
  Vector<double> current = vector(start), proposal = current;
  double value = f(std::as_const(current));
  Minimum best{current, value, evaluations, false};
  for (Index k = 1; k < evaluations; ++k) {
    const double t = temperature(k, evaluations);
    check_argument(t > 0, function, "the temperature", "positive", t);
    step(std::as_const(current), t, k, rng, proposal);
    const double proposed = f(std::as_const(proposal)), rise = proposed - value;
    // From a start of value NaN any number is a step down.
    if (!(rise <= 0 || (std::isnan(value) && !std::isnan(proposed)) || rng.uniform() < std::exp(-rise / t))) continue;
    current.swap(proposal);
    value = proposed;
    if (value < best.value || std::isnan(best.value)) {
      best.point = current;
      best.value = value;
    }
  }
  return best;
}

}  // namespace ashlar::numerics
