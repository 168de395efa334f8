// Density ratios by iterated regularisation. Given samples of P and Q, estimates beta = dP/dQ as link(f_T) with
//
//   f_0 = 0,   f_t = argmin over f in H of  R(f) + lambda / 2 |f - f_(t-1)|_H^2,   t = 1 ... T,
//
// R one of the losses of density_ratio_loss.hpp and H the space of a kernel. T = 1 is the usual estimator (KuLSIF,
// kernel logistic regression, KLIEP, ...), whose error stops improving when beta is smoother than it can use;
// more iterations remove that saturation at the cost of one more solve each.
//
//   const auto kernel = kernels::density_ratio_kernel(x_p, x_q);
//   const auto model = kernels::fit_density_ratio(x_p, x_q, kernel, {.lambda = 0.1, .iterations = 5});
//   Vector<double> beta = model.ratio(x);
//   Vector<double> weights = kernels::normalized_weights(model.ratio(x_q));      // for training on Q's sample
//
// Source: Gruber, Holzleitner, Lehner, Hochreiter, Zellinger, "Overcoming saturation in density ratio estimation by
// iterated regularization", ICML 2024. The published KuLSIF code never runs more than two iterations, and its other
// losses restart each solve at zero and stop after one step of conjugate gradients; here T means T.
//
// Cost, with m points of P and n of Q: kulsif n^3 / 3 once and n^2 an iteration, never touching the m x m block; the
// other losses N^3 / 3 a Newton step, N = m + n (n for kliep), 1 to 5 steps an iteration after the first.
#pragma once

#include <Eigen/Core>
#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/kernels/density_ratio_loss.hpp"
#include "ashlar/kernels/detail/proximal_newton.hpp"
#include "ashlar/linalg/cholesky.hpp"
#include "ashlar/linalg/conjugate_gradient.hpp"
#include "ashlar/linalg/gram.hpp"

namespace ashlar::kernels {

enum class Solver {
  automatic,           ///< cholesky up to 6000 points to factor, conjugate_gradient above
  cholesky,            ///< stores the Gram matrix
  conjugate_gradient,  ///< stores nothing of it: every product recomputes the kernel by tiles
};

struct DensityRatioOptions {
  Loss loss = Loss::kulsif;
  double lambda = 0.1;              ///< > 0
  int iterations = 1;               ///< T >= 1
  double tolerance = 1e-10;         ///< on the largest |w l'(v) + lambda (c - c_(t-1))| over the largest weight
  int max_newton_steps = 100;       ///< an iteration, after which it is an error not to have converged
  bool require_convergence = true;  ///< false: stop after max_newton_steps without complaint (early stopping)
  Solver solver = Solver::automatic;
  bool clip_nonnegative = false;  ///< ratio() of kulsif and square cuts off what no ratio can be
};

/// How a fit went.
struct FitReport {
  Solver solver = Solver::cholesky;
  int newton_steps = 0;  ///< over all iterations; 0 for the closed form
  double residual = 0;   ///< the largest at the end of an iteration, as in DensityRatioOptions::tolerance
  double rcond = 0;      ///< of the matrix factored last; 0 when none was
  bool ldlt = false;     ///< kulsif only: it was not positive definite in this precision, and was factored by LDL^T
};

/// The fitted functions f_1 ... f_T, sums of kernel functions at the centres.
template <Real T, linalg::Kernel<T> K>
class DensityRatio {
 public:
  /// centres: [r, d], coefficients: [r, iterations].
  DensityRatio(Loss loss, const K& kernel, Matrix<T> centres, Matrix<T> coefficients, const FitReport& report = {},
               bool clip_nonnegative = false)
      : loss_(loss),
        centres_(std::move(centres)),
        coefficients_(std::move(coefficients)),
        tiles_(kernel, centres_),
        report_(report),
        clip_(clip_nonnegative) {
    check_shape("DensityRatio", "coefficients", View<const T, 2>(coefficients_).shape(),
                {centres_.rows(), coefficients_.cols()}, "one row a centre");
  }

  Loss loss() const { return loss_; }
  int iterations() const { return static_cast<int>(coefficients_.cols()); }
  const Matrix<T>& centres() const { return centres_; }            ///< [r, d]; of the exact fit P's points, then Q's
  const Matrix<T>& coefficients() const { return coefficients_; }  ///< [r, iterations]
  const FitReport& report() const { return report_; }

  /// f_t at the rows of x: [m, d]. t: 1 ... iterations(), or 0 for the last. O(m r d).
  Vector<T> score(View<const T, 2> x, int t = 0) const {
    Vector<T> f(x.extent(0));
    Workspace workspace;
    score(x, f, workspace, t);
    return f;
  }
  /// The same into f: [m]. Allocates nothing once the workspace has grown.
  void score(View<const T, 2> x, View<T, 1> f, Workspace& workspace, int t = 0) const {
    const Index column = column_of(t);
    const View<const T, 2> coefficients = View<const T, 2>(coefficients_).slice(1, column, column + 1);
    tiles_.multiply(x, coefficients, View<T, 2>(f.data(), {f.extent(0), 1}, {f.stride(0), 1}), workspace);
  }

  /// f_1 ... f_T at the rows of x, [m, iterations], for little more than the price of one.
  Matrix<T> scores(View<const T, 2> x) const { return tiles_.multiply(x, coefficients_); }

  /// The density ratio link(f_t) at the rows of x. kulsif and square may give negative values unless clipped.
  Vector<T> ratio(View<const T, 2> x, int t = 0) const {
    return score(x, t).unaryExpr([&](T v) { return clip_ ? clipped_link(loss_, v) : link(loss_, v); });
  }
  /// Its logarithm: finite where an exponential link overflows, NaN where kulsif is negative.
  Vector<T> log_ratio(View<const T, 2> x, int t = 0) const {
    return score(x, t).unaryExpr([&](T v) { return log_link(loss_, v); });
  }

  /// R(f_t) on other points, with weights (uniform when empty) that need not be normalised.
  double empirical_loss(View<const T, 2> x_p, View<const T, 2> x_q, int t = 0, View<const T, 1> w_p = {},
                        View<const T, 1> w_q = {}) const {
    return mean_loss(Side::numerator, score(x_p, t), w_p) + mean_loss(Side::denominator, score(x_q, t), w_q);
  }
  /// R(f_1) ... R(f_T).
  Vector<double> empirical_losses(View<const T, 2> x_p, View<const T, 2> x_q) const {
    const Matrix<T> f_p = scores(x_p), f_q = scores(x_q);
    Vector<double> losses(iterations());
    for (Index t = 0; t < losses.size(); ++t)
      losses[t] = mean_loss(Side::numerator, f_p.col(t), {}) + mean_loss(Side::denominator, f_q.col(t), {});
    return losses;
  }

 private:
  Index column_of(int t) const {
    require(t >= 0 && t <= iterations(), "DensityRatio", "t must be between 1 and ", iterations(),
            ", or 0 for the last iteration, got ", t);
    return t == 0 ? iterations() - 1 : t - 1;
  }
  double mean_loss(Side side, const Vector<T>& f, View<const T, 1> w) const {
    require(f.size() > 0, "DensityRatio::empirical_loss", "a sample is empty");
    require(w.empty() || w.extent(0) == f.size(), "DensityRatio::empirical_loss", "a sample of ", f.size(),
            " points has ", w.extent(0), " weights");
    double sum = 0, total = 0;
    for (Index i = 0; i < f.size(); ++i) {
      const double weight = w.empty() ? 1 : static_cast<double>(w[i]);
      if (weight > 0) sum += weight * static_cast<double>(loss_terms(loss_, side, f[i]).value);
      total += weight;
    }
    return sum / total;
  }

  Loss loss_;
  Matrix<T> centres_, coefficients_;
  linalg::KernelTiles<T, K> tiles_;
  FitReport report_;
  bool clip_;
};

namespace detail {

template <class T>
void check_samples(std::string_view function, const View<const T, 2>& x_p, const View<const T, 2>& x_q) {
  require(x_p.extent(0) > 0, function, "x_p is empty");
  require(x_q.extent(0) > 0, function, "x_q is empty");
  check_shape(function, "x_q", x_q.shape(), {x_q.extent(0), x_p.extent(1)}, "same dimension as x_p");
  require(matrix(x_p).allFinite(), function, "x_p has an entry that is not finite");
  require(matrix(x_q).allFinite(), function, "x_q has an entry that is not finite");
}

/// Weights of a sample, uniform when none are given, summing to one.
template <class T>
Vector<T> normalised(std::string_view function, std::string_view argument, View<const T, 1> w, Index count) {
  if (w.empty()) return Vector<T>::Constant(count, T(1) / static_cast<T>(count));
  check_shape(function, argument, w.shape(), {count}, "one weight a point");
  const auto weights = vector(w);
  require(weights.allFinite() && weights.minCoeff() >= 0 && weights.maxCoeff() > 0, function, argument,
          " must be finite, not negative and not all zero");
  return weights / weights.sum();
}

template <class T>
Matrix<T> stacked(View<const T, 2> x_p, View<const T, 2> x_q) {
  Matrix<T> points(x_p.extent(0) + x_q.extent(0), x_p.extent(1));
  points.topRows(x_p.extent(0)) = matrix(x_p);
  points.bottomRows(x_q.extent(0)) = matrix(x_q);
  return points;
}

inline void check_options(std::string_view function, double lambda, int iterations) {
  check_argument(lambda > 0 && std::isfinite(lambda), function, "lambda", "positive and finite", lambda);
  check_argument(iterations >= 1, function, "iterations", "at least 1", iterations);
}

/// The smallest tolerance worth asking of a precision.
template <class T>
double attainable(double tolerance) {
  return std::max(tolerance, std::is_same_v<T, double> ? 1e-14 : 2e-6);
}

inline Solver resolved(Solver solver, Index order) {
  if (solver != Solver::automatic) return solver;
  return order <= 6000 ? Solver::cholesky : Solver::conjugate_gradient;
}

/// D^1/2 K_qq D^1/2 in place, D = diag(root)^2.
template <class T>
void scale_both_sides(Matrix<T>& k, const Vector<T>& root) {
  parallel_for(k.rows(), 64, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) k.row(i).array() *= root[i] * root.transpose().array();
  });
}

/// The recursion of the closed form, given how to apply (D^1/2 K_qq D^1/2 + lambda)^-1 to a vector in place:
///   a_t = (...)^-1 (lambda a_(t-1) - t / lambda D^1/2 K_qp w_p),   alpha_t = D^1/2 a_t.
/// mean_embedding: K_qp w_p. alpha: [n, iterations].
template <class T, class Solve, class Alpha>
void kulsif_recursion(const Vector<T>& mean_embedding, const Vector<T>& root, T lambda, Solve&& solve, Alpha&& alpha) {
  Vector<T> a = Vector<T>::Zero(root.size());
  const Vector<T> pull = root.cwiseProduct(mean_embedding) / lambda;
  for (Index t = 1; t <= alpha.cols(); ++t) {
    a = lambda * a - static_cast<T>(t) * pull;
    solve(a);
    alpha.col(t - 1) = root.cwiseProduct(a);
  }
}

template <class T, class K>
DensityRatio<T, K> fit_kulsif(View<const T, 2> x_p, View<const T, 2> x_q, const K& kernel,
                              const DensityRatioOptions& options, const Vector<T>& w_p, const Vector<T>& w_q) {
  const Index m = x_p.extent(0), n = x_q.extent(0);
  const T lambda = static_cast<T>(options.lambda);
  const Vector<T> root = w_q.cwiseSqrt();
  const Vector<T> mean_embedding = linalg::kernel_product(kernel, x_q, x_p, w_p);
  FitReport report{.solver = resolved(options.solver, n)};
  Matrix<T> coefficients(m + n, options.iterations);
  for (Index t = 1; t <= options.iterations; ++t) coefficients.col(t - 1).head(m) = static_cast<T>(t) / lambda * w_p;
  auto alpha = coefficients.bottomRows(n);
  if (report.solver == Solver::cholesky) {
    Matrix<T> system = linalg::gram(kernel, x_q);
    scale_both_sides(system, root);
    system.diagonal().array() += lambda;
    const linalg::Cholesky<T> factor(std::move(system), {.ldlt_fallback = true});
    report.rcond = static_cast<double>(factor.rcond());
    report.ldlt = factor.is_ldlt();
    kulsif_recursion(
        mean_embedding, root, lambda, [&](Vector<T>& a) { factor.solve_in_place(a); }, alpha);
  } else {
    const linalg::KernelTiles<T, K> tiles(kernel, x_q);
    const auto apply = [&](View<const T, 1> x, View<T, 1> y) {
      vector(y) = root.cwiseProduct(tile_product<T, K>(tiles, x_q, root.cwiseProduct(vector(x)))) + lambda * vector(x);
    };
    const auto solve = [&](Vector<T>& a) {
      auto [x, cg] = linalg::conjugate_gradient(
          apply, a,
          {.tolerance = attainable<T>(options.tolerance), .require_convergence = options.require_convergence});
      report.residual = std::max(report.residual, cg.relative_residual);
      a = std::move(x);
    };
    kulsif_recursion(mean_embedding, root, lambda, solve, alpha);
  }
  return {Loss::kulsif, kernel, stacked(x_p, x_q), std::move(coefficients), report, options.clip_nonnegative};
}

}  // namespace detail

namespace reference {

/// Coefficients [m + n, iterations] by the definition: Newton's method on the stationarity condition
/// r = w l'(K c) + lambda (c - c_(t-1)) = 0 with a dense LU of diag(w l'') K + lambda. gram: [m + n, m + n], P first.
/// The oracle of the tests: cubic in m + n a step, and a step is halved until |r| decreases.
template <Real T>
Matrix<T> iterated_density_ratio(Loss loss, const Matrix<T>& gram, const Vector<T>& w_p, const Vector<T>& w_q, T lambda,
                                 int iterations) {
  const Index m = w_p.size(), total = gram.rows();
  const auto residual = [&](const Vector<T>& c, const Vector<T>& previous, Vector<T>* curvature) {
    const Vector<T> v = gram * c;
    Vector<T> r = lambda * (c - previous);
    for (Index i = 0; i < total; ++i) {
      const auto terms = loss_terms(loss, i < m ? Side::numerator : Side::denominator, v[i]);
      const T w = i < m ? w_p[i] : w_q[i - m];
      r[i] += w * terms.slope;
      if (curvature) (*curvature)[i] = w * terms.curvature;
    }
    return r;
  };
  Matrix<T> coefficients(total, iterations);
  Vector<T> c = Vector<T>::Zero(total), curvature(total);
  for (int t = 0; t < iterations; ++t) {
    const Vector<T> previous = c;
    for (int step = 0; step < 200; ++step) {
      const Vector<T> r = residual(c, previous, &curvature);
      Matrix<T> jacobian = curvature.asDiagonal() * gram;
      jacobian.diagonal().array() += lambda;
      const Vector<T> s = Eigen::PartialPivLU<Matrix<T>>(jacobian).solve(-r);
      T length = 1;
      while (length > T(1e-12) && !(residual(c + length * s, previous, nullptr).norm() < r.norm())) length /= 2;
      if (length <= T(1e-12)) break;  // |r| is at its rounding floor
      c += length * s;
    }
    coefficients.col(t) = c;
  }
  return coefficients;
}

/// The closed form for kulsif as the paper writes it, uniform weights:
///   beta_t = t / (lambda m),   alpha_t = (K_qq / n + lambda)^-1 (lambda alpha_(t-1) - t / (lambda m n) K_qp 1).
template <Real T>
Matrix<T> kulsif(const Matrix<T>& gram, Index m, T lambda, int iterations) {
  const Index n = gram.rows() - m;
  const T count_p = static_cast<T>(m), count_q = static_cast<T>(n);
  Matrix<T> system = gram.bottomRightCorner(n, n) / count_q;
  system.diagonal().array() += lambda;
  const Eigen::PartialPivLU<Matrix<T>> lu(system);
  const Vector<T> sums = gram.bottomLeftCorner(n, m).rowwise().sum();
  Matrix<T> coefficients(m + n, iterations);
  Vector<T> alpha = Vector<T>::Zero(n);
  for (int t = 1; t <= iterations; ++t) {
    const T beta = static_cast<T>(t) / (lambda * count_p);
    alpha = lu.solve(lambda * alpha - beta / count_q * sums).eval();
    coefficients.col(t - 1).head(m).setConstant(beta);
    coefficients.col(t - 1).tail(n) = alpha;
  }
  return coefficients;
}

}  // namespace reference

/// The kernel of the paper's code: 1 + e^(-gamma |x - y|^2), gamma = 1 / median distance of the pooled sample.
/// The 1 puts the constants, and with them the ratio of equal distributions, into H.
template <class X>
linalg::RbfKernel density_ratio_kernel(const X& x_p, In<X, 2> x_q) {
  const In<X, 2> numerators = x_p;
  detail::check_samples("density_ratio_kernel", numerators, x_q);
  return linalg::RbfKernel(linalg::median_heuristic(detail::stacked(numerators, x_q)), 1);
}

/// Fits f_1 ... f_T. x_p: [m, d] from P, x_q: [n, d] from Q; w_p: [m], w_q: [n] weights of the points (uniform when
/// left out, any scale, zeros allowed). The result's centres are the rows of x_p, then those of x_q.
/// Throws InvalidArgument for empty samples, unequal dimensions, entries that are not finite, lambda <= 0,
/// iterations < 1 and bad weights; NumericalError when Newton or conjugate gradients do not converge.
template <class X, class K>
requires linalg::Kernel<K, scalar_t<X>> DensityRatio<scalar_t<X>, K> fit_density_ratio(
    const X& x_p, In<X, 2> x_q, const K& kernel, const DensityRatioOptions& options = {}, In<X, 1> w_p = {},
    In<X, 1> w_q = {}) {
  using T = scalar_t<X>;
  constexpr auto function = "fit_density_ratio";
  const In<X, 2> numerators = x_p;
  detail::check_samples(function, numerators, x_q);
  detail::check_options(function, options.lambda, options.iterations);
  check_argument(options.max_newton_steps >= 1, function, "max_newton_steps", "at least 1", options.max_newton_steps);
  const Index m = numerators.extent(0), n = x_q.extent(0);
  const Vector<T> p = detail::normalised(function, "w_p", w_p, m), q = detail::normalised(function, "w_q", w_q, n);
  if (options.loss == Loss::kulsif) return detail::fit_kulsif<T, K>(numerators, x_q, kernel, options, p, q);

  Vector<T> w(m + n);
  w << p, q;
  Matrix<T> points = detail::stacked(numerators, x_q), coefficients(m + n, options.iterations);
  FitReport report{.solver = detail::resolved(options.solver, m + n)};
  const T lambda = static_cast<T>(options.lambda);
  const double tolerance = detail::attainable<T>(options.tolerance);
  detail::PooledSystem<T, K> system(kernel, points, w, lambda, report.solver == Solver::conjugate_gradient,
                                    tolerance / 10, is_quadratic(options.loss));
  Vector<T> c = Vector<T>::Zero(m + n);
  for (int t = 0; t < options.iterations; ++t) {
    const auto newton = detail::proximal_newton(system, options.loss, w, m, lambda,
                                                {tolerance, options.max_newton_steps, options.require_convergence}, c);
    report.newton_steps += newton.steps;
    report.residual = std::max(report.residual, newton.residual);
    coefficients.col(t) = c;
  }
  report.rcond = system.rcond();
  return {options.loss, kernel, std::move(points), std::move(coefficients), report, options.clip_nonnegative};
}

/// The divergence of P from Q that R at its minimum amounts to, from f_t and fresh points:
///   kulsif       half the Pearson divergence,   E_P f - E_Q f^2 / 2 - 1/2 = -R - 1/2
///   logistic     Jensen-Shannon,                log 2 - R / 2
///   exponential  squared Hellinger, 1 - integral of sqrt(p q):   1 - R / 2
///   square       triangular discrimination, integral of (p - q)^2 / (p + q):   2 - R
///   kliep        Kullback-Leibler of P from Q,  E_P log ratio
template <class T, class K>
double divergence(const DensityRatio<T, K>& model, View<const std::type_identity_t<T>, 2> x_p,
                  View<const std::type_identity_t<T>, 2> x_q, int t = 0) {
  switch (model.loss()) {
    case Loss::kulsif:
      return -model.empirical_loss(x_p, x_q, t) - 0.5;
    case Loss::logistic:
      return std::log(2.0) - model.empirical_loss(x_p, x_q, t) / 2;
    case Loss::exponential:
      return 1 - model.empirical_loss(x_p, x_q, t) / 2;
    case Loss::square:
      return 2 - model.empirical_loss(x_p, x_q, t);
    case Loss::kliep:
      break;
  }
  require(x_p.extent(0) > 0, "divergence", "x_p is empty");
  return model.log_ratio(x_p, t).template cast<double>().mean();
}

/// The paper's error of a ratio, each scaled to mean one: mean (b / (mean b + 1e-5) - b' / (mean b' + 1e-5))^2.
/// Clip kulsif first: the score explodes when estimates average near zero.
template <class B>
double normalized_mse(const B& truth, In<B, 1> estimate) {
  const Vector<double> b = vector(In<B, 1>(truth)).template cast<double>();
  check_shape("normalized_mse", "estimate", estimate.shape(), {b.size()}, "same length as truth");
  require(b.size() > 0, "normalized_mse", "truth is empty");
  const Vector<double> e = vector(estimate).template cast<double>();
  return (b / (b.mean() + 1e-5) - e / (e.mean() + 1e-5)).squaredNorm() / static_cast<double>(b.size());
}

/// Weights scaled to mean one, as for a loss averaged over Q's sample. Throws when they do not have a positive sum.
template <class W>
Vector<scalar_t<W>> normalized_weights(const W& weights) {
  using T = scalar_t<W>;
  const Vector<T> w = vector(In<W, 1>(weights));
  require(w.size() > 0 && w.allFinite() && w.sum() > 0, "normalized_weights",
          "weights must be finite with a positive sum");
  return w * (static_cast<T>(w.size()) / w.sum());
}

/// (sum w)^2 / sum w^2: how many equally weighted points carry as much information. 0 when all weights are zero.
template <class W>
double effective_sample_size(const W& weights) {
  const Vector<double> w = vector(In<W, 1>(weights)).template cast<double>();
  require(w.size() > 0 && w.allFinite(), "effective_sample_size", "weights must be finite, and there must be some");
  const double squares = w.squaredNorm();
  return squares > 0 ? w.sum() * w.sum() / squares : 0;
}

}  // namespace ashlar::kernels
