// Learning rates as pure functions of the step: factors between 0 and 1.
//
//   optimizer.set_learning_rate(1e-3 * nn::warmup(step, 100) * nn::cosine(step, 1000));
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"

namespace ashlar::nn {

/// (step + 1) / steps up to 1: the first step is not lost.
inline double warmup(Index step, Index steps) {
  return steps <= 0 ? 1 : std::min(1.0, static_cast<double>(step + 1) / static_cast<double>(steps));
}

/// Half a cosine from 1 at step 0 to `last` at `steps`, and `last` from there on.
inline double cosine(Index step, Index steps, double last = 0) {
  check_argument(steps > 0, "cosine", "steps", "positive", steps);
  const double along = std::clamp(static_cast<double>(step) / static_cast<double>(steps), 0.0, 1.0);
  return last + (1 - last) * (1 + std::cos(std::numbers::pi * along)) / 2;
}

/// A straight line from 1 at step 0 to `last` at `steps`, and `last` from there on.
inline double linear_decay(Index step, Index steps, double last = 0) {
  check_argument(steps > 0, "linear_decay", "steps", "positive", steps);
  return 1 + (last - 1) * std::clamp(static_cast<double>(step) / static_cast<double>(steps), 0.0, 1.0);
}

/// factor^(step / every), rounded down: one step of a staircase every so many steps.
inline double staircase(Index step, Index every, double factor) {
  check_argument(every > 0, "staircase", "every", "positive", every);
  return std::pow(factor, static_cast<double>(step / every));
}

}  // namespace ashlar::nn
