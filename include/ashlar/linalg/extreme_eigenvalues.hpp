// The largest and the smallest eigenvalue of a symmetric matrix, without the others.
//
//   const auto [smallest, largest] = linalg::extreme_eigenvalues(k);            // k positive definite
//   double top = linalg::largest_eigenvalue<double>(apply, n);                  // an operator known by its action
//
// Lanczos' method, every new direction made orthogonal to all before: a few dozen products with the matrix for one end,
// as many solves with its Cholesky factor for the other. n^3 / 3 in place of the 4 n^3 / 3, mostly at the speed of
// memory, of all eigenvalues.
// Source: Golub, Van Loan, "Matrix Computations", 4th edition, section 10.1.
#pragma once

#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/linalg/cholesky.hpp"
#include "ashlar/linalg/conjugate_gradient.hpp"

namespace ashlar::linalg {

struct LanczosOptions {
  double tolerance = 1e-6;     ///< on |A v - theta v| / |theta|, which bounds the relative error of theta
  Index max_iterations = 500;  ///< products with the operator; as many vectors are kept
};

template <Real T>
struct EigenvalueRange {
  T smallest = 0, largest = 0;
};

namespace reference {

/// From all eigenvalues. a: [n, n], symmetric. O(n^3).
template <Real T>
EigenvalueRange<T> extreme_eigenvalues(const Matrix<T>& a) {
  const Eigen::SelfAdjointEigenSolver<Matrix<T>> solver(a, Eigen::EigenvaluesOnly);
  return {solver.eigenvalues()[0], solver.eigenvalues()[a.rows() - 1]};
}

}  // namespace reference

/// The largest eigenvalue of a symmetric operator on vectors of length n whose largest eigenvalue is also the largest
/// in magnitude. The result lies below it, by tolerance at most. Starts from the same vector every time.
/// Throws NumericalError when the operator gives numbers that are not finite, or the tolerance is not reached.
template <Real T, class A>
  requires LinearOperator<A, T>
T largest_eigenvalue(const A& apply, Index n, const LanczosOptions& options = {}) {
  constexpr auto function = "largest_eigenvalue";
  check_argument(n >= 1, function, "n", "at least 1", n);
  check_argument(options.max_iterations >= 1, function, "max_iterations", "at least 1", options.max_iterations);
  const Index limit = std::min(n, options.max_iterations);
  Rng rng(0);
  Vector<T> next = normal_matrix<T>(rng, n, 1).col(0);
  Matrix<T> basis(std::min<Index>(limit, 32), n);
  Vector<T> diagonal(limit), off_diagonal(limit);
  Vector<T> w(n);
  T residual = 0, value = 0, norm = next.norm();
  for (Index m = 1; m <= limit; ++m) {
    if (m > basis.rows()) basis.conservativeResize(std::min(limit, 2 * basis.rows()), n);
    basis.row(m - 1) = next.transpose() / norm;
    next = basis.row(m - 1).transpose();
    apply(View<const T, 1>(next), View<T, 1>(w));
    diagonal[m - 1] = next.dot(w);
    // Twice: once leaves what rounding brought back of the directions already found.
    const auto known = basis.topRows(m);
    for (int pass = 0; pass < 2; ++pass) w -= known.transpose() * (known * w).eval();
    norm = w.norm();
    if (!std::isfinite(norm) || !std::isfinite(diagonal[m - 1]))
      throw NumericalError(message(function, ": the operator gave a number that is not finite in iteration ", m));
    off_diagonal[m - 1] = norm;
    next = w;
    if (m % 4 != 0 && m != limit && norm > 0) continue;
    Eigen::SelfAdjointEigenSolver<Matrix<T>> small;
    small.computeFromTridiagonal(diagonal.head(m), off_diagonal.head(m - 1));
    value = small.eigenvalues()[m - 1];
    residual = norm * std::abs(small.eigenvectors()(m - 1, m - 1));
    if (m == n || residual <= static_cast<T>(options.tolerance) * std::abs(value)) return value;
  }
  throw NumericalError(message(function, ": did not converge after ", limit, " iterations, the residual is ", residual,
                               " at the eigenvalue ", value));
}

/// Both ends of the spectrum of a symmetric positive semidefinite matrix: [n, n]. The smallest eigenvalue of one that
/// has no Cholesky factor comes from all eigenvalues, and may be negative by rounding. Absolute errors are about
/// n eps times the largest, whatever the method. n^3 / 3, threaded.
template <class M>
EigenvalueRange<scalar_t<M>> extreme_eigenvalues(const M& a, const LanczosOptions& options = {}) {
  using T = scalar_t<M>;
  constexpr auto function = "extreme_eigenvalues";
  const In<M, 2> view = a;
  const Index n = view.extent(0);
  check_shape(function, "a", view.shape(), {n, n}, "a square");
  require(n >= 1, function, "a has no rows");
  const Matrix<T> copy = matrix(view);
  require(copy.allFinite(), function, "a has an entry that is not finite");
  const auto product = [&](View<const T, 1> x, View<T, 1> y) {
    parallel_for(n, 256, [&](Index begin, Index end) {
      vector(y).segment(begin, end - begin).noalias() = copy.middleRows(begin, end - begin) * vector(x);
    });
  };
  if (n <= 32) return reference::extreme_eigenvalues(copy);
  try {
    const Cholesky<T> factor{Matrix<T>(copy)};
    const auto solve = [&](View<const T, 1> x, View<T, 1> y) {
      vector(y) = vector(x);
      factor.solve_in_place(y);
    };
    return {1 / largest_eigenvalue<T>(solve, n, options), largest_eigenvalue<T>(product, n, options)};
  } catch (const NumericalError&) {  // not definite in this precision, or its ends too crowded for so few steps
    return reference::extreme_eigenvalues(copy);
  }
}

}  // namespace ashlar::linalg
