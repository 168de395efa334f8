// Explicit Runge-Kutta steps for dx/dt = f(t, x) with x an array of numbers.
//
//   std::vector<double> x{1, 0}, scratch(runge_kutta_scratch(2));
//   for (double t = 0; t < 1; t += h)
//     runge_kutta_step<double>(RungeKutta::classical, [&](double c, const double* y, double* slope) {
//       slope[0] = y[1], slope[1] = -y[0];                 // at the time t + c h
//     }, h, x, scratch);
//
// Three streams of memory a stage: as fast as the cache the arrays are in.
#pragma once

#include <span>

#include "ashlar/core/error.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"

namespace ashlar::numerics {

enum class RungeKutta {
  euler,     ///< order 1, one evaluation: at the start of the step
  heun,      ///< order 2, two: start and end
  classical  ///< order 4, four: start, middle twice, end
};

/// Numbers of scratch for a state of n numbers.
constexpr Index runge_kutta_scratch(Index n) { return 3 * n; }

namespace detail {

/// out = x + a y.
template <Real T>
void scaled_sum(const T* x, T a, const T* y, T* out, Index n) {
  Index i = 0;
  for (; i + simd::width<T> <= n; i += simd::width<T>)
    simd::store(out + i, simd::fma(simd::batch<T>(a), simd::load(y + i), simd::load(x + i)));
  for (; i < n; ++i) out[i] = x[i] + a * y[i];
}

}  // namespace detail

/// x becomes its value one step of length h later. f(c, y, slope) writes the slope at y and at the fraction c (0, 1/2
/// or 1) of the step, n numbers each. scratch: runge_kutta_scratch(n) numbers. Allocates nothing. Throws
/// InvalidArgument when scratch is too small.
template <Real T, class F>
void runge_kutta_step(RungeKutta method, F&& f, double h, std::span<T> x, std::span<T> scratch) {
  const auto n = static_cast<Index>(x.size());
  require(static_cast<Index>(scratch.size()) >= runge_kutta_scratch(n), "runge_kutta_step", "scratch has ",
          scratch.size(), " numbers, expected at least ", runge_kutta_scratch(n));
  T* const state = x.data();
  T* const slope = scratch.data();
  T* const stage = slope + n;
  T* const sum = stage + n;
  const auto step = static_cast<T>(h);
  f(0.0, static_cast<const T*>(state), method == RungeKutta::euler ? slope : sum);
  if (method == RungeKutta::euler) return detail::scaled_sum(state, step, slope, state, n);
  const auto next = [&](const T* last, T reach, double c, T weight) {
    detail::scaled_sum(state, reach, last, stage, n);
    f(c, static_cast<const T*>(stage), slope);
    detail::scaled_sum(sum, weight, slope, sum, n);
  };
  if (method == RungeKutta::heun) {
    next(sum, step, 1.0, T(1));
    return detail::scaled_sum(state, step / 2, sum, state, n);
  }
  next(sum, step / 2, 0.5, T(2));
  next(slope, step / 2, 0.5, T(2));
  next(slope, step, 1.0, T(1));
  detail::scaled_sum(state, step / 6, sum, state, n);
}

}  // namespace ashlar::numerics
