// Minimisation of a smooth function within bounds: L-BFGS-B by LBFGSpp, with the guards a search over thousands of fits
// needs. It never leaves the bounds, never ends above its start, and says whether it converged instead of throwing.
//
//   const auto best = numerics::minimize_bounded(
//       [](const Vector<double>& x, Vector<double>& gradient) { gradient = 2 * x; return x.squaredNorm(); },
//       start, lower, upper);                                     // best.x, best.value, best.converged
//
// Source: Byrd, Lu, Nocedal, Zhu, "A limited memory algorithm for bound constrained optimization", SIAM J. Sci. Comput.
// 16 (1995); line search of More and Thuente.
#pragma once

#if !__has_include(<LBFGSB.h>)
#error "ashlar/numerics/bounded_minimizer.hpp needs LBFGSpp (Debian and Ubuntu: liblbfgspp-dev)"
#endif

#include <LBFGSB.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::numerics {

struct BoundedMinimizerOptions {
  int max_iterations = 200;
  double gradient_tolerance = 1e-5;  ///< of the largest entry of the projected gradient, absolute and relative to |x|
  double value_tolerance = 2e-9;  ///< stops when an iteration gains less, relative to max(1, |value|); SciPy's choice
};

struct BoundedMinimum {
  Vector<double> x;
  double value;
  int iterations;   ///< of the attempt that ended the search
  int evaluations;  ///< of the function
  bool converged;   ///< false: out of iterations, or the line search found nothing better
};

namespace detail {

/// Passes calls on, remembers the best point, and turns what the solver cannot handle into one exception.
template <class F>
class GuardedObjective {
 public:
  struct NotFinite {};

  GuardedObjective(F& f, const Vector<double>& lower, const Vector<double>& upper)
      : f_(f), lower_(lower), upper_(upper) {}

  double operator()(const Vector<double>& x, Vector<double>& gradient) {
    const Vector<double> inside = x.cwiseMax(lower_).cwiseMin(upper_);  // steps to a bound may round past it
    ++evaluations;
    double value = 0;
    try {
      value = f_(inside, gradient);
    } catch (...) {
      error = std::current_exception();
      throw;
    }
    if (!std::isfinite(value) || !gradient.allFinite()) throw NotFinite{};
    if (value < best_value) best_value = value, best = inside;
    return value;
  }

  Vector<double> best;
  double best_value = std::numeric_limits<double>::infinity();
  int evaluations = 0;
  std::exception_ptr error;  ///< thrown by the function itself

 private:
  F& f_;
  const Vector<double>&lower_, &upper_;
};

}  // namespace detail

/// f(x, gradient) returns the value at x and fills the gradient, which has the size of x. The start is moved into the
/// bounds. A line search that fails, or that meets a value that is not finite, starts again from the best point so far,
/// with steps a tenth as long where it had gained nothing.
/// Throws InvalidArgument for sizes that differ and for crossed bounds, NumericalError when the value at the start is
/// not finite, and whatever f throws.
template <class F>
requires std::is_invocable_r_v<double, F&, const Vector<double>&, Vector<double>&>
BoundedMinimum minimize_bounded(F&& f, const Vector<double>& start, const Vector<double>& lower,
                                const Vector<double>& upper, const BoundedMinimizerOptions& options = {}) {
  constexpr auto function = "minimize_bounded";
  const Index n = start.size();
  check_argument(n >= 1, function, "the number of unknowns", "at least 1", n);
  require(lower.size() == n && upper.size() == n, function, "lower and upper have ", lower.size(), " and ",
          upper.size(), " entries, expected ", n, " as in start");
  for (Index i = 0; i < n; ++i)
    require(lower[i] <= upper[i], function, "bounds cross: lower[", i, "] is ", lower[i], ", upper[", i, "] is ",
            upper[i]);
  check_argument(options.max_iterations >= 1, function, "max_iterations", "at least 1", options.max_iterations);

  LBFGSpp::LBFGSBParam<double> parameters;
  parameters.epsilon = parameters.epsilon_rel = options.gradient_tolerance;
  parameters.past = 1;
  parameters.delta = options.value_tolerance;
  parameters.max_iterations = options.max_iterations;

  using Guarded = detail::GuardedObjective<std::remove_reference_t<F>>;
  Guarded guarded(f, lower, upper);
  BoundedMinimum result{start.cwiseMax(lower).cwiseMin(upper), 0, 0, 0, false};
  const double longest = parameters.max_step;
  for (int attempt = 0; attempt < 30; ++attempt) {
    const double before = guarded.best_value;
    bool failed = false;
    double shortest = 1e-2;
    try {
      Vector<double> x = attempt == 0 ? result.x : guarded.best;
      double value = 0;
      LBFGSpp::LBFGSBSolver<double> solver(parameters);
      result.iterations = solver.minimize(guarded, x, value, lower, upper);
      result.converged = result.iterations < options.max_iterations;
    } catch (const typename Guarded::NotFinite&) {
      failed = true;
      shortest = 1e-8;
    } catch (const std::exception&) {  // the solver's word for a line search that found nothing
      if (guarded.error) std::rethrow_exception(guarded.error);
      failed = true;
    }
    if (guarded.best.size() == 0)
      throw NumericalError("minimize_bounded: the value or the gradient at the start is not finite");
    if (!failed) break;
    const double least = options.value_tolerance * std::max(1.0, std::abs(guarded.best_value));
    if (before - guarded.best_value > least) {
      parameters.max_step = longest;
    } else {
      if (parameters.max_step <= shortest) break;
      parameters.max_step = std::min(parameters.max_step, 1.0) / 10;
    }
  }
  result.x = guarded.best;
  result.value = guarded.best_value;
  result.evaluations = guarded.evaluations;
  return result;
}

}  // namespace ashlar::numerics
