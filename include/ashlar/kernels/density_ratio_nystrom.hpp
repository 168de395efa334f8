// Iterated density ratios for large samples: f is restricted to the kernel functions at R centres, so that nothing
// grows with the square of the sample.
//
//   Rng rng(1);
//   const auto centres = kernels::nystrom_centres(x_p, x_q, 300, rng);
//   const auto model = kernels::fit_density_ratio_nystrom(x_p, x_q, kernel, centres, {.lambda = 0.1, .iterations = 5});
//
// With K_zz = L L^T and theta = L^T c, the penalty is |theta - theta_(t-1)|^2 and values at the sample are Phi theta,
// Phi = K_xz L^-T: plain ridge regression in R variables, well conditioned however many centres coincide.
// Cost: N R d + N R^2 a Newton step, memory N R; above 5000 centres conjugate gradients on tiles, memory R^2.
//
// Source: Gruber et al., ICML 2024 (kulsif normal equations); the preconditioner is that of Rudi, Carratino, Rosasco,
// "FALKON: an optimal large scale kernel method", NeurIPS 2017.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/kernels/density_ratio.hpp"
#include "ashlar/kernels/detail/proximal_newton.hpp"
#include "ashlar/linalg/cholesky.hpp"
#include "ashlar/linalg/conjugate_gradient.hpp"
#include "ashlar/linalg/gram.hpp"

namespace ashlar::kernels {

/// `count` rows of the pooled sample, uniformly and without replacement.
template <class X>
Matrix<scalar_t<X>> nystrom_centres(const X& x_p, In<X, 2> x_q, Index count, Rng& rng) {
  const In<X, 2> numerators = x_p;
  detail::check_samples("nystrom_centres", numerators, x_q);
  const auto points = detail::stacked(numerators, x_q);
  check_argument(count >= 1 && count <= points.rows(), "nystrom_centres", "count",
                 message("between 1 and the ", points.rows(), " pooled points"), count);
  Matrix<scalar_t<X>> centres(count, points.cols());
  const auto chosen = rng.sample(points.rows(), count);
  for (Index i = 0; i < count; ++i) centres.row(i) = points.row(chosen[static_cast<std::size_t>(i)]);
  return centres;
}

namespace detail {

/// Coefficients theta in the orthonormal basis of the centres. Residuals are gradients in theta.
template <class T, class K>
class CentreSystem {
 public:
  CentreSystem(const K& kernel, const Matrix<T>& points, const Matrix<T>& centres, T lambda, bool matrix_free,
               double tolerance, bool constant_curvature)
      : points_(points),
        centres_(centres),
        basis_(linalg::gram(kernel, centres), jitter_options()),
        lambda_(lambda),
        tolerance_(tolerance),
        constant_curvature_(constant_curvature) {
    scale_ = basis_.factor().rowwise().norm().maxCoeff();  // the largest sqrt k(z, z)
    if (matrix_free) {
      to_points_.emplace(kernel, centres);
      to_centres_.emplace(kernel, points);
      return;
    }
    features_ = linalg::gram(kernel, points, centres);
    const auto upper = basis_.factor().template triangularView<Eigen::Lower>().transpose();
    parallel_for(features_.rows(), 256, [&](Index begin, Index end) {
      auto rows = features_.middleRows(begin, end - begin);
      upper.template solveInPlace<Eigen::OnTheRight>(rows);
    });
  }

  Vector<T> values(const Vector<T>& theta) const {
    if (to_points_) return tile_product<T, K>(*to_points_, points_, centre_coefficients(theta));
    Vector<T> v(features_.rows());
    parallel_for(v.size(), 64, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        v[i] = simd::dot(features_.data() + i * features_.cols(), theta.data(), theta.size());
    });
    return v;
  }
  Vector<T> residual(const Vector<T>& slope, const Vector<T>& d) const { return adjoint(slope) + lambda_ * d; }
  T size(const Vector<T>& gradient) const { return gradient.norm() / scale_; }
  T penalty(const Vector<T>& d, const Vector<T>&) const { return d.squaredNorm(); }

  NewtonStep<T> step(const Vector<T>& curvature, const Vector<T>& gradient) {
    Vector<T> direction = -gradient;
    if (to_points_) {
      iterate(curvature, direction);
    } else {
      if (!factor_ || !constant_curvature_) factor(curvature);
      factor_->solve_in_place(direction);
    }
    const T slope = gradient.dot(direction);
    return {std::move(direction), slope};
  }

  /// c = L^-T theta.
  Vector<T> centre_coefficients(Vector<T> theta) const {
    linalg::detail::backward_substitution(basis_.factor(), theta.data());
    return theta;
  }
  double rcond() const { return factor_ ? static_cast<double>(factor_->rcond()) : 0; }

 private:
  /// Centres may coincide. The jitter starts far below what the tolerance of a fit resolves.
  static linalg::CholeskyOptions jitter_options() {
    return {.jitter_attempts = 8, .jitter = std::is_same_v<T, double> ? 1e-14 : 1e-7};
  }

  /// Phi^T x. Chunks of columns, so that sums run over all points in one order.
  Vector<T> adjoint(const Vector<T>& x) const {
    if (to_centres_) {
      Vector<T> y = tile_product<T, K>(*to_centres_, centres_, x);
      linalg::detail::forward_substitution(basis_.factor(), y.data());
      return y;
    }
    Vector<T> y(features_.cols());
    parallel_for(y.size(), 64, [&](Index begin, Index end) {
      y.segment(begin, end - begin).noalias() = features_.middleCols(begin, end - begin).transpose() * x;
    });
    return y;
  }

  /// Phi^T D Phi + lambda.
  void factor(const Vector<T>& curvature) {
    const Index r = features_.cols();
    const Matrix<T> weighted = curvature.cwiseSqrt().asDiagonal() * features_;
    Matrix<T> hessian(r, r);
    parallel_for(r, 64, [&](Index begin, Index end) {
      hessian.block(begin, 0, end - begin, end).noalias() =
          weighted.middleCols(begin, end - begin).transpose() * weighted.leftCols(end);
    });
    hessian.template triangularView<Eigen::StrictlyUpper>() = hessian.transpose();
    hessian.diagonal().array() += lambda_;
    factor_.emplace(std::move(hessian), linalg::CholeskyOptions{.ldlt_fallback = true});
  }

  /// The same system by products. With D spread evenly over the points, Phi^T D Phi is about tr(D) / R L^T L.
  void iterate(const Vector<T>& curvature, Vector<T>& x) const {
    const Matrix<T>& l = basis_.factor();
    Matrix<T> estimate =
        (l.template triangularView<Eigen::Lower>().transpose() * Matrix<T>(l.template triangularView<Eigen::Lower>())) *
        (curvature.sum() / static_cast<T>(l.rows()));
    estimate.diagonal().array() += lambda_;
    const linalg::Cholesky<T> preconditioner(std::move(estimate), {.ldlt_fallback = true});
    const auto precondition = [&](View<const T, 1> from, View<T, 1> to) {
      vector(to) = vector(from);
      preconditioner.solve_in_place(to);
    };
    const auto apply = [&](View<const T, 1> from, View<T, 1> to) {
      vector(to) = adjoint(curvature.cwiseProduct(values(vector(from)))) + lambda_ * vector(from);
    };
    const linalg::ConjugateGradientOptions options{.tolerance = tolerance_, .require_convergence = false};
    x = linalg::conjugate_gradient(apply, x, options, precondition).x;
  }

  const Matrix<T>& points_;
  const Matrix<T>& centres_;
  linalg::Cholesky<T> basis_;
  T lambda_, scale_ = 1;
  double tolerance_;
  bool constant_curvature_;
  Matrix<T> features_;  // Phi, [sample, R]
  std::optional<linalg::KernelTiles<T, K>> to_points_, to_centres_;
  std::optional<linalg::Cholesky<T>> factor_;
};

}  // namespace detail

/// As fit_density_ratio, with f a sum of kernel functions at centres: [R, d]. Solver::automatic stores N R numbers up
/// to 5000 centres and recomputes kernels above. The tolerance is on the gradient norm over the largest sqrt k(z, z).
template <class X, class K>
requires linalg::Kernel<K, scalar_t<X>> DensityRatio<scalar_t<X>, K> fit_density_ratio_nystrom(
    const X& x_p, In<X, 2> x_q, const K& kernel, In<X, 2> centres, const DensityRatioOptions& options = {},
    In<X, 1> w_p = {}, In<X, 1> w_q = {}) {
  using T = scalar_t<X>;
  constexpr auto function = "fit_density_ratio_nystrom";
  const In<X, 2> numerators = x_p;
  detail::check_samples(function, numerators, x_q);
  detail::check_options(function, options.lambda, options.iterations);
  const Index m = numerators.extent(0), n = x_q.extent(0), r = centres.extent(0);
  require(r > 0, function, "centres is empty");
  check_shape(function, "centres", centres.shape(), {r, numerators.extent(1)}, "same dimension as x_p");
  require(matrix(centres).allFinite(), function, "centres has an entry that is not finite");
  Vector<T> w(m + n);
  w << detail::normalised(function, "w_p", w_p, m), detail::normalised(function, "w_q", w_q, n);

  FitReport report{.solver = options.solver};
  if (options.solver == Solver::automatic) report.solver = r <= 5000 ? Solver::cholesky : Solver::conjugate_gradient;
  const Matrix<T> points = detail::stacked(numerators, x_q);
  Matrix<T> nodes = matrix(centres), coefficients(r, options.iterations);
  const T lambda = static_cast<T>(options.lambda);
  const double tolerance = detail::attainable<T>(options.tolerance);
  detail::CentreSystem<T, K> system(kernel, points, nodes, lambda, report.solver == Solver::conjugate_gradient,
                                    tolerance / 10, is_quadratic(options.loss));
  Vector<T> theta = Vector<T>::Zero(r);
  for (int t = 0; t < options.iterations; ++t) {
    const auto newton = detail::proximal_newton(
        system, options.loss, w, m, lambda, {tolerance, options.max_newton_steps, options.require_convergence}, theta);
    report.newton_steps += newton.steps;
    report.residual = std::max(report.residual, newton.residual);
    coefficients.col(t) = system.centre_coefficients(theta);
  }
  report.rcond = system.rcond();
  return {options.loss, kernel, std::move(nodes), std::move(coefficients), report, options.clip_nonnegative};
}

}  // namespace ashlar::kernels
