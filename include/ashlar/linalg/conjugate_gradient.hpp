// Preconditioned conjugate gradients for symmetric positive definite operators that are known by their action alone.
//
//   const auto apply = [&](View<const double, 1> x, View<double, 1> y) { vector(y) = 2 * vector(x); };
//   auto [x, report] = linalg::conjugate_gradient(apply, b, {.tolerance = 1e-10});
//
// One application of the operator and of the preconditioner an iteration, four vectors of memory.
// Source: Hestenes, Stiefel, "Methods of conjugate gradients for solving linear systems", 1952.
#pragma once

#include <cmath>
#include <concepts>

#include "ashlar/core/error.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/workspace.hpp"

namespace ashlar::linalg {

/// apply(x, y) writes y = A x. x and y do not overlap.
template <class A, class T>
concept LinearOperator = std::invocable<const A&, View<const T, 1>, View<T, 1>>;

/// The preconditioner that does nothing.
struct Identity {
  template <class T>
  void operator()(View<const T, 1> x, View<T, 1> y) const {
    vector(y) = vector(x);
  }
};

struct ConjugateGradientOptions {
  double tolerance = 1e-10;         ///< on |b - A x| / |b|
  Index max_iterations = 0;         ///< 0: twice the order plus 50
  bool require_convergence = true;  ///< throw when the tolerance is not met; otherwise the report says so
};

struct ConjugateGradientReport {
  Index iterations = 0;
  double relative_residual = 0;  ///< |b - A x| / |b| as the recursion carries it
  bool converged = false;
};

template <class T>
struct ConjugateGradientResult {
  Vector<T> x;
  ConjugateGradientReport report;
};

/// Improves x, which holds the first guess, until |b - A x| <= tolerance |b|. Allocates nothing
/// once the workspace has grown. b, x: [n]. Throws NumericalError when the operator is not positive definite or gives
/// numbers that are not finite, or, if convergence is required, when it is not reached.
template <class A, class B, class M = Identity>
requires LinearOperator<A, scalar_t<B>> && LinearOperator<M, scalar_t<B>> ConjugateGradientReport
conjugate_gradient(const A& apply, const B& right, Out<B, 1> x, Workspace& workspace,
                   const ConjugateGradientOptions& options = {}, const M& precondition = {}) {
  using T = scalar_t<B>;
  constexpr auto function = "conjugate_gradient";
  const In<B, 1> b = right;
  const Index n = b.extent(0);
  check_shape(function, "x", x.shape(), {n}, "same length as b");
  check_argument(options.tolerance >= 0, function, "tolerance", "at least 0", options.tolerance);
  T* scratch = workspace.reserve<T>(4 * n);
  const auto part = [&](Index i) { return View<T, 1>(scratch + i * n, {n}); };
  const View<T, 1> r_view = part(0), z_view = part(1), p_view = part(2), ap_view = part(3);
  auto r = vector(r_view), z = vector(z_view), p = vector(p_view), ap = vector(ap_view), solution = vector(x);

  ConjugateGradientReport report;
  const double scale = static_cast<double>(vector(b).norm());
  if (scale == 0) {
    solution.setZero();
    report.converged = true;
    return report;
  }
  if (solution.isZero(T(0))) {
    r = vector(b);
  } else {
    apply(View<const T, 1>(x), ap_view);
    r = vector(b) - ap;
  }
  const Index limit = options.max_iterations > 0 ? options.max_iterations : 2 * n + 50;
  T rz = 0;
  for (;; ++report.iterations) {
    report.relative_residual = static_cast<double>(r.norm()) / scale;
    if (!std::isfinite(report.relative_residual))
      throw NumericalError(message(function, ": the residual is not finite after ", report.iterations, " iterations"));
    report.converged = report.relative_residual <= options.tolerance;
    if (report.converged || report.iterations == limit) break;
    precondition(View<const T, 1>(r_view), z_view);
    const T rz_next = r.dot(z);
    if (!(rz_next > 0)) throw NumericalError(message(function, ": the preconditioner is not positive definite"));
    if (report.iterations == 0)
      p = z;
    else
      p = z + (rz_next / rz) * p;
    rz = rz_next;
    apply(View<const T, 1>(p_view), ap_view);
    const T curvature = p.dot(ap);
    if (!(curvature > 0))
      throw NumericalError(message(function, ": the operator is not positive definite, p^T A p is ", curvature,
                                   " in iteration ", report.iterations + 1));
    const T step = rz / curvature;
    solution += step * p;
    r -= step * ap;
  }
  if (!report.converged && options.require_convergence)
    throw NumericalError(message(function, ": did not converge after ", report.iterations,
                                 " iterations, the relative residual is ", report.relative_residual));
  return report;
}

/// Solves A x = b from x = 0.
template <class B, class A, class M = Identity>
requires LinearOperator<A, scalar_t<B>> && LinearOperator<M, scalar_t<B>> ConjugateGradientResult<scalar_t<B>>
conjugate_gradient(const A& apply, const B& b, const ConjugateGradientOptions& options = {},
                   const M& precondition = {}) {
  using T = scalar_t<B>;
  const Index n = In<B, 1>(b).extent(0);
  ConjugateGradientResult<T> result{Vector<T>::Zero(n), {}};
  Workspace workspace;
  result.report = conjugate_gradient(apply, b, result.x, workspace, options, precondition);
  return result;
}

}  // namespace ashlar::linalg
