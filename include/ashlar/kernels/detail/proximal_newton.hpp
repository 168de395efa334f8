// Damped Newton for one outer iteration  f_t = argmin R(f) + lambda / 2 |f - f_(t-1)|^2,  and the linear systems behind
// it: all kernel functions at the sample points (exact), or those at a few centres (Nystrom).
//
// A system has, for coefficients c, function values v and d = c - c_(t-1):
//   values(c)                      v at the sample
//   residual(g, d)                 zero at the minimiser; g = w l'(v)
//   size(residual)                 in units in which options.tolerance is meant
//   penalty(d, v - v_(t-1))        |f - f_(t-1)|^2
//   step(curvature, residual)      the Newton step and its slope; curvature = w l''(v)
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/kernels/density_ratio_loss.hpp"
#include "ashlar/linalg/cholesky.hpp"
#include "ashlar/linalg/conjugate_gradient.hpp"
#include "ashlar/linalg/gram.hpp"

namespace ashlar::kernels::detail {

template <class T>
struct NewtonStep {
  Vector<T> direction;
  T slope;
};

struct NewtonOptions {
  double tolerance;
  int max_steps;
  bool require_convergence;
};

struct NewtonReport {
  int steps = 0;
  double residual = 0;
};

/// sum w l(v), w l'(v) and w l''(v). The first `numerators` points are P's.
template <class T>
struct SampleLoss {
  T value = 0;
  Vector<T> slope, curvature;
};

template <class T>
SampleLoss<T> sample_loss(Loss loss, const Vector<T>& v, const Vector<T>& w, Index numerators) {
  SampleLoss<T> sum{0, Vector<T>(v.size()), Vector<T>(v.size())};
  for (Index i = 0; i < v.size(); ++i) {
    const auto terms = loss_terms(loss, i < numerators ? Side::numerator : Side::denominator, v[i]);
    if (w[i] > 0) sum.value += w[i] * terms.value;
    sum.slope[i] = w[i] > 0 ? w[i] * terms.slope : T(0);
    sum.curvature[i] = w[i] > 0 ? w[i] * terms.curvature : T(0);
  }
  return sum;
}

/// Moves c, the previous iterate on entry, to the next one. w: [sample], P first, each side summing to one.
template <class T, class System>
NewtonReport proximal_newton(System& system, Loss loss, const Vector<T>& w, Index numerators, T lambda,
                             const NewtonOptions& options, Vector<T>& c) {
  // Phi has about this many significant digits too few to see a smaller decrease.
  const T unresolved = std::max(T(1e-10), T(1e5) * std::numeric_limits<T>::epsilon());
  const Vector<T> c_previous = c, v_previous = system.values(c);
  Vector<T> v = v_previous;
  NewtonReport report;
  bool untested = false;
  for (double last = std::numeric_limits<double>::infinity();; ++report.steps) {
    const auto current = sample_loss(loss, v, w, numerators);
    const Vector<T> d = c - c_previous;
    const Vector<T> r = system.residual(current.slope, d);
    report.residual = static_cast<double>(system.size(r));
    if (!std::isfinite(report.residual))
      throw NumericalError(message("fit_density_ratio: the ", name(loss), " residual is not finite after ",
                                   report.steps, " Newton steps"));
    const bool at_rounding_floor = untested && report.residual > last / 2;
    if (report.residual <= options.tolerance || at_rounding_floor) return report;
    if (report.steps == options.max_steps) {
      if (!options.require_convergence) return report;
      throw NumericalError(message("fit_density_ratio: the ", name(loss), " loss did not converge after ", report.steps,
                                   " Newton steps, the residual is ", report.residual));
    }
    last = report.residual;

    const NewtonStep<T> step = system.step(current.curvature, r);
    const Vector<T>& direction = step.direction;
    const Vector<T> v_direction = system.values(direction);
    const auto objective = [&](T length) {
      const Vector<T> v_new = v + length * v_direction;
      T value = 0;
      for (Index i = 0; i < v_new.size(); ++i)
        if (w[i] > 0)
          value += w[i] * loss_terms(loss, i < numerators ? Side::numerator : Side::denominator, v_new[i]).value;
      return value + lambda / 2 * system.penalty(d + length * direction, v_new - v_previous);
    };
    T length = 1;
    const T phi = current.value + lambda / 2 * system.penalty(d, v - v_previous);
    untested = std::abs(step.slope) <= unresolved * std::max(T(1), std::abs(phi));
    while (!untested && !(objective(length) <= phi + T(1e-4) * length * step.slope)) {  // not finite counts as too large
      length /= 2;
      if (length < T(1e-12))
        throw NumericalError(message("fit_density_ratio: no step decreases the ", name(loss),
                                     " objective, the residual is ", report.residual));
    }
    c += length * direction;
    v = system.values(c);
  }
}

/// y = k x for a symmetric matrix, threaded over rows.
template <class T>
Vector<T> dense_product(const Matrix<T>& k, const Vector<T>& x) {
  Vector<T> y(k.rows());
  parallel_for(k.rows(), 64, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) y[i] = simd::dot(k.data() + i * k.cols(), x.data(), k.cols());
  });
  return y;
}

/// A x of a tile operator, as a vector.
template <class T, class K>
Vector<T> tile_product(const linalg::KernelTiles<T, K>& tiles, View<const T, 2> x, const Vector<T>& c) {
  return tiles.multiply(x, View<const T, 2>(c.data(), {c.size(), 1})).col(0);
}

/// Coefficients of the kernel functions at all N sample points, v = K c. Newton's system (diag(D) K + lambda) s = -r
/// is solved in its symmetric form over the points with D > 0:
///   (lambda + D^1/2 K D^1/2) z = D^1/2 K r,   s = -(r - D^1/2 z) / lambda.
/// Conjugate gradients on it converge at the rate of the RKHS gradient, without cond(K), and need no Gram matrix.
template <class T, class K>
class PooledSystem {
 public:
  PooledSystem(const K& kernel, const Matrix<T>& points, const Vector<T>& w, T lambda, bool matrix_free,
               double tolerance, bool constant_curvature)
      : points_(points),
        lambda_(lambda),
        largest_weight_(w.maxCoeff()),
        tolerance_(tolerance),
        constant_curvature_(constant_curvature) {
    if (matrix_free)
      tiles_.emplace(kernel, points_);
    else
      gram_ = linalg::gram(kernel, points);
  }

  Vector<T> values(const Vector<T>& c) const {
    return tiles_ ? tile_product<T, K>(*tiles_, points_, c) : dense_product(gram_, c);
  }
  Vector<T> residual(const Vector<T>& slope, const Vector<T>& d) const { return slope + lambda_ * d; }
  T size(const Vector<T>& r) const { return r.cwiseAbs().maxCoeff() / largest_weight_; }
  T penalty(const Vector<T>& d, const Vector<T>& dv) const { return d.dot(dv); }

  NewtonStep<T> step(const Vector<T>& curvature, const Vector<T>& r) {
    const Vector<T> kr = values(r), root = curvature.cwiseSqrt();
    Vector<T> z = root.cwiseProduct(kr);
    if (tiles_)
      iterate(root, z);
    else
      eliminate(root, z);
    Vector<T> direction = -(r - root.cwiseProduct(z)) / lambda_;
    const T slope = kr.dot(direction);
    return {std::move(direction), slope};
  }
  /// Of the last matrix that was factored; 0 when none was.
  double rcond() const { return factor_ ? static_cast<double>(factor_->rcond()) : 0; }

 private:
  void eliminate(const Vector<T>& root, Vector<T>& z) {
    if (!factor_ || !constant_curvature_) factor(root);
    Vector<T> active(static_cast<Index>(active_.size()));
    for (Index i = 0; i < active.size(); ++i) active[i] = z[active_[static_cast<std::size_t>(i)]];
    if (active.size() > 0) factor_->solve_in_place(active);
    for (Index i = 0; i < active.size(); ++i) z[active_[static_cast<std::size_t>(i)]] = active[i];
  }

  void factor(const Vector<T>& root) {
    active_.clear();
    for (Index i = 0; i < root.size(); ++i)
      if (root[i] > 0) active_.push_back(i);
    const auto count = static_cast<Index>(active_.size());
    if (count == 0) return;
    Matrix<T> system(count, count);
    parallel_for(count, 64, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index row = active_[static_cast<std::size_t>(i)];
        for (Index j = 0; j < count; ++j) {
          const Index column = active_[static_cast<std::size_t>(j)];
          system(i, j) = root[row] * gram_(row, column) * root[column];
        }
        system(i, i) += lambda_;
      }
    });
    factor_.emplace(std::move(system), linalg::CholeskyOptions{.ldlt_fallback = true});
  }

  void iterate(const Vector<T>& root, Vector<T>& z) const {
    const auto apply = [&](View<const T, 1> x, View<T, 1> y) {
      vector(y) = root.cwiseProduct(values(root.cwiseProduct(vector(x)))) + lambda_ * vector(x);
    };
    z = linalg::conjugate_gradient(apply, z, {.tolerance = tolerance_, .require_convergence = false}).x;
  }

  const Matrix<T>& points_;
  T lambda_, largest_weight_;
  double tolerance_;
  bool constant_curvature_;
  Matrix<T> gram_;
  std::optional<linalg::KernelTiles<T, K>> tiles_;
  std::optional<linalg::Cholesky<T>> factor_;
  std::vector<Index> active_;
};

}  // namespace ashlar::kernels::detail
