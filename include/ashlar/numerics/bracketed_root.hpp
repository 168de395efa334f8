// A root of a function of one variable that is known to lie in an interval: Newton's steps where they help, halving
// where they do not.
//
//   const auto f = [](double x) { return std::pair(x * x - 2, 2 * x); };          // value and derivative
//   double root = numerics::bracketed_root(f, 0, 2);
//
// The interval shrinks with every step and never loses the root, so a poor derivative costs time, not the answer.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>

#include "ashlar/core/error.hpp"

namespace ashlar::numerics {

struct RootOptions {
  double tolerance = 4 * std::numeric_limits<double>::epsilon();  ///< on the root, relative to max(1, |root|)
  int max_steps = 200;                                            ///< halving alone needs 60 from an interval of one
};

/// The x in [low, high] where f(x).first is zero; f returns value and derivative. The values at the ends must have
/// opposite signs, or one of them be zero. Throws InvalidArgument when they do not, NumericalError when a value is NaN
/// or the steps do not settle.
template <class F>
  requires std::convertible_to<std::invoke_result_t<F&, double>, std::pair<double, double>>
double bracketed_root(F&& f, double low, double high, const RootOptions& options = {}) {
  constexpr auto function = "bracketed_root";
  require(std::isfinite(low) && std::isfinite(high) && low <= high, function, "[low, high] must be an interval, got [",
          low, ", ", high, "]");
  const double at_low = std::pair<double, double>(f(low)).first, at_high = std::pair<double, double>(f(high)).first;
  if (at_low == 0) return low;
  if (at_high == 0) return high;
  require((at_low < 0) != (at_high < 0) && !std::isnan(at_low) && !std::isnan(at_high), function,
          "f must change its sign between the ends, got ", at_low, " and ", at_high);
  double x = low + (high - low) / 2, last_step = high - low;
  for (int step = 0; step < options.max_steps; ++step) {
    const auto [value, slope] = std::pair<double, double>(f(x));
    if (std::isnan(value)) throw NumericalError(message(function, ": f(", x, ") is not a number"));
    if (value == 0) return x;
    const bool right = (value < 0) == (at_low < 0);  // of x is the root
    (right ? low : high) = x;
    const double tolerance = options.tolerance * std::max(1.0, std::abs(x));
    if (high - low <= 2 * tolerance) return low + (high - low) / 2;
    // Newton's steps come from one side; at their end a step across the root closes the interval from the other.
    double next_step = -value / slope;
    if (std::abs(next_step) < tolerance) next_step = right ? tolerance : -tolerance;
    double next = x + next_step;
    // A step that is no shorter than half the one before would let Newton's method crawl.
    if (!(next > low && next < high) || std::abs(next_step) > std::abs(last_step) / 2) next = low + (high - low) / 2;
    last_step = next - x;
    x = next;
  }
  throw NumericalError(
      message(function, ": did not settle after ", options.max_steps, " steps, the last one was ", last_step));
}

}  // namespace ashlar::numerics
