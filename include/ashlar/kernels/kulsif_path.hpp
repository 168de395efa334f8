// KuLSIF for many lambda and t at once: what a search over the two costs next to one fit.
//
//   const auto path = kernels::fit_kulsif_path(x_p, x_q, kernel, kernels::default_lambdas(), 10);
//   Matrix<double> r = path.losses(v_p, v_q);                 // [lambdas, iterations], on validation points
//
// One Gram matrix K_qq, a Cholesky factor a lambda (n^3 / 3 each, lambdas in parallel), and n^2 a (lambda, t). The
// textbook route, one eigendecomposition and O(n) a pair, takes longer until there are some fifty lambdas: an
// eigendecomposition with vectors costs as much as that many factors.
//
// Source: Gruber et al., ICML 2024, closed form of the iterated KuLSIF.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/kernels/density_ratio.hpp"
#include "ashlar/linalg/cholesky.hpp"
#include "ashlar/linalg/gram.hpp"

namespace ashlar::kernels {

/// The grid of the paper's code: 1e4, 1e3, ..., 1e-6.
inline std::vector<double> default_lambdas() { return {1e4, 1e3, 1e2, 1e1, 1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6}; }

/// f_t for every lambda of a grid and t = 1 ... iterations.
template <Real T, linalg::Kernel<T> K>
class KulsifPath {
 public:
  /// alpha: [n, lambdas * iterations], columns lambda by lambda: coefficients of the points x_q. w_p sums to one.
  KulsifPath(const K& kernel, View<const T, 2> x_p, View<const T, 2> x_q, Vector<T> w_p, std::vector<double> lambdas,
             int iterations, Matrix<T> alpha)
      : p_(kernel, x_p),
        q_(kernel, x_q),
        centres_(detail::stacked(x_p, x_q)),
        w_p_(std::move(w_p)),
        lambdas_(std::move(lambdas)),
        iterations_(iterations),
        alpha_(std::move(alpha)) {}

  const std::vector<double>& lambdas() const { return lambdas_; }
  int iterations() const { return iterations_; }

  /// All functions at the rows of x: [m, lambdas * iterations], column (lambda number) * iterations + t - 1.
  Matrix<T> scores(View<const T, 2> x) const {
    Matrix<T> f = q_.multiply(x, alpha_);
    const Vector<T> mean_embedding = p_.multiply(x, column(w_p_)).col(0);
    for (Index j = 0; j < f.cols(); ++j) f.col(j) += pull(j) * mean_embedding;
    return f;
  }
  /// f_t of lambdas()[lambda] at the rows of x.
  Vector<T> score(View<const T, 2> x, Index lambda, int t) const {
    const Index j = at(lambda, t);
    const Vector<T> alpha = alpha_.col(j);
    return q_.multiply(x, column(alpha)).col(0) + pull(j) * p_.multiply(x, column(w_p_)).col(0);
  }
  /// The density ratio: the same number, negative values cut off if asked.
  Vector<T> ratio(View<const T, 2> x, Index lambda, int t, bool clip_nonnegative = false) const {
    Vector<T> f = score(x, lambda, t);
    if (clip_nonnegative) f = f.cwiseMax(T(0));
    return f;
  }

  /// R(f_t) on other points: [lambdas, iterations].
  Matrix<double> losses(View<const T, 2> x_p, View<const T, 2> x_q) const {
    detail::check_samples("KulsifPath::losses", x_p, x_q);
    const Matrix<T> f_p = scores(x_p), f_q = scores(x_q);
    Matrix<double> r(static_cast<Index>(lambdas_.size()), iterations_);
    for (Index j = 0; j < f_p.cols(); ++j)
      r(j / iterations_, j % iterations_) =
          f_q.col(j).template cast<double>().squaredNorm() / (2.0 * static_cast<double>(f_q.rows())) -
          f_p.col(j).template cast<double>().mean();
    return r;
  }

  /// The fit for lambdas()[lambda], as fit_density_ratio returns it.
  DensityRatio<T, K> model(Index lambda, bool clip_nonnegative = false) const {
    at(lambda, 1);
    Matrix<T> coefficients(centres_.rows(), iterations_);
    for (int t = 0; t < iterations_; ++t) {
      const Index j = lambda * iterations_ + t;
      coefficients.col(t) << pull(j) * w_p_, alpha_.col(j);
    }
    return {Loss::kulsif, q_.kernel(), centres_, std::move(coefficients), {}, clip_nonnegative};
  }

 private:
  Index at(Index lambda, int t) const {
    check_argument(lambda >= 0 && lambda < static_cast<Index>(lambdas_.size()), "KulsifPath", "lambda",
                   message("a number of lambdas(), below ", lambdas_.size()), lambda);
    check_argument(t >= 1 && t <= iterations_, "KulsifPath", "t", message("between 1 and ", iterations_), t);
    return lambda * iterations_ + t - 1;
  }
  /// Of every point of P, times its weight: t / lambda.
  T pull(Index j) const {
    return static_cast<T>(static_cast<double>(j % iterations_ + 1) /
                          lambdas_[static_cast<std::size_t>(j / iterations_)]);
  }
  static View<const T, 2> column(const Vector<T>& v) { return {v.data(), {v.size(), 1}}; }

  linalg::KernelTiles<T, K> p_, q_;
  Matrix<T> centres_;
  Vector<T> w_p_;
  std::vector<double> lambdas_;
  int iterations_;
  Matrix<T> alpha_;
};

/// Fits the whole path. Arguments and errors as fit_density_ratio.
template <class X, class K>
requires linalg::Kernel<K, scalar_t<X>> KulsifPath<scalar_t<X>, K> fit_kulsif_path(const X& x_p, In<X, 2> x_q,
                                                                                   const K& kernel,
                                                                                   std::vector<double> lambdas,
                                                                                   int iterations, In<X, 1> w_p = {},
                                                                                   In<X, 1> w_q = {}) {
  using T = scalar_t<X>;
  constexpr auto function = "fit_kulsif_path";
  const In<X, 2> numerators = x_p;
  detail::check_samples(function, numerators, x_q);
  require(!lambdas.empty(), function, "lambdas is empty");
  for (const double lambda : lambdas) detail::check_options(function, lambda, iterations);
  const Index n = x_q.extent(0), count = static_cast<Index>(lambdas.size());
  Vector<T> p = detail::normalised(function, "w_p", w_p, numerators.extent(0));
  const Vector<T> root = detail::normalised(function, "w_q", w_q, n).cwiseSqrt();
  const Vector<T> mean_embedding = linalg::kernel_product(kernel, x_q, numerators, p);
  Matrix<T> scaled = linalg::gram(kernel, x_q);
  detail::scale_both_sides(scaled, root);

  Matrix<T> alpha(n, count * iterations);
  const auto solve_path = [&](Index first, Index last) {
    for (Index i = first; i < last; ++i) {
      const T lambda = static_cast<T>(lambdas[static_cast<std::size_t>(i)]);
      Matrix<T> system = scaled;
      system.diagonal().array() += lambda;
      const linalg::Cholesky<T> factor(std::move(system), {.ldlt_fallback = true});
      detail::kulsif_recursion(
          mean_embedding, root, lambda, [&](Vector<T>& a) { factor.solve_in_place(a); },
          alpha.middleCols(i * iterations, iterations));
    }
  };
  // A copy of the matrix for every thread while it is small; one at a time, threaded inside, when it is not.
  parallel_for(count, n <= 4096 ? 1 : count, solve_path);
  return {kernel, numerators, x_q, std::move(p), std::move(lambdas), iterations, std::move(alpha)};
}

}  // namespace ashlar::kernels
