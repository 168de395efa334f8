// Choosing lambda and the number of iterations from data alone.
//
//   Rng rng(1);
//   const auto choice = kernels::select_density_ratio(x_p, x_q, kernel, {.max_iterations = 10}, rng);
//   const auto model = kernels::fit_density_ratio(x_p, x_q, kernel, choice.options());      // on all points
//
// The score is R on points left out: up to a constant an unbiased estimate of the Bregman divergence to the true ratio.
// (The published scripts choose by the error against the true ratio, or by the training loss.)
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/kernels/density_ratio.hpp"
#include "ashlar/kernels/kulsif_path.hpp"

namespace ashlar::kernels {

struct SelectionOptions {
  Loss loss = Loss::kulsif;
  std::vector<double> lambdas = default_lambdas();
  int max_iterations = 10;  ///< every t from 1 to this is tried
  int folds = 1;            ///< 1: one split, 4 to 1; k >= 2: k-fold cross-validation
};

struct Selection {
  Loss loss = Loss::kulsif;
  double lambda = 0;
  int iterations = 0;
  Matrix<double> losses;  ///< [lambdas, iterations]: mean R on the points left out, infinite where a fit failed

  /// What to fit all points with.
  DensityRatioOptions options() const { return {.loss = loss, .lambda = lambda, .iterations = iterations}; }
};

namespace detail {

/// The rows of a sample in fold `fold` of `folds`, and the others, by position in a random order.
template <class T>
std::pair<Matrix<T>, Matrix<T>> split_rows(const View<const T, 2>& x, std::span<const Index> order, Index fold,
                                           Index folds) {
  const auto count = static_cast<Index>(order.size()), held_out = (count - fold + folds - 1) / folds;
  Matrix<T> inside(held_out, x.extent(1)), outside(count - held_out, x.extent(1));
  Index in = 0, out = 0;
  for (Index i = 0; i < count; ++i) {
    const auto row = matrix(x).row(order[static_cast<std::size_t>(i)]);
    if (i % folds == fold)
      inside.row(in++) = row;
    else
      outside.row(out++) = row;
  }
  return {std::move(inside), std::move(outside)};
}

/// R of every (lambda, t) on the validation points.
template <class T, class K>
Matrix<double> validation_losses(const Matrix<T>& x_p, const Matrix<T>& x_q, const Matrix<T>& v_p, const Matrix<T>& v_q,
                                 const K& kernel, const SelectionOptions& options) {
  if (options.loss == Loss::kulsif)
    return fit_kulsif_path(x_p, x_q, kernel, options.lambdas, options.max_iterations).losses(v_p, v_q);
  Matrix<double> losses(static_cast<Index>(options.lambdas.size()), options.max_iterations);
  parallel_for(losses.rows(), 1, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      try {
        const DensityRatioOptions fit{.loss = options.loss,
                                      .lambda = options.lambdas[static_cast<std::size_t>(i)],
                                      .iterations = options.max_iterations};
        losses.row(i) = fit_density_ratio(x_p, x_q, kernel, fit).empirical_losses(v_p, v_q).transpose();
      } catch (const NumericalError&) {
        losses.row(i).setConstant(std::numeric_limits<double>::infinity());
      }
    }
  });
  return losses;
}

}  // namespace detail

/// The (lambda, t) with the smallest loss on points left out; ties go to the larger lambda, then the smaller t. The
/// split is by sample, so both keep their share. Throws NumericalError when no combination has a finite loss.
template <class X, class K>
requires linalg::Kernel<K, scalar_t<X>> Selection select_density_ratio(const X& x_p, In<X, 2> x_q, const K& kernel,
                                                                       const SelectionOptions& options, Rng& rng) {
  using T = scalar_t<X>;
  constexpr auto function = "select_density_ratio";
  const In<X, 2> numerators = x_p;
  detail::check_samples(function, numerators, x_q);
  require(!options.lambdas.empty(), function, "lambdas is empty");
  for (const double lambda : options.lambdas) detail::check_options(function, lambda, options.max_iterations);
  check_argument(options.folds >= 1, function, "folds", "at least 1", options.folds);
  const Index m = numerators.extent(0), n = x_q.extent(0), parts = options.folds == 1 ? 5 : options.folds;
  const Index needed = options.folds == 1 ? 2 : parts;
  require(m >= needed && n >= needed, function, "samples of ", m, " and ", n, " points cannot be split into ", parts,
          " parts");
  const auto p_order = rng.permutation(m), q_order = rng.permutation(n);

  Selection choice{.loss = options.loss,
                   .losses = Matrix<double>::Zero(static_cast<Index>(options.lambdas.size()), options.max_iterations)};
  for (Index fold = 0; fold < options.folds; ++fold) {
    const auto [v_p, t_p] = detail::split_rows<T>(numerators, p_order, fold, parts);
    const auto [v_q, t_q] = detail::split_rows<T>(x_q, q_order, fold, parts);
    choice.losses += detail::validation_losses<T, K>(t_p, t_q, v_p, v_q, kernel, options) / options.folds;
  }
  double best = std::numeric_limits<double>::infinity();
  for (Index i = 0; i < choice.losses.rows(); ++i)
    for (Index t = 0; t < choice.losses.cols(); ++t) {
      double& loss = choice.losses(i, t);
      if (std::isnan(loss)) loss = std::numeric_limits<double>::infinity();
      const double lambda = options.lambdas[static_cast<std::size_t>(i)];
      if (loss < best || (loss == best && std::isfinite(best) && lambda > choice.lambda)) {
        best = loss;
        choice.lambda = lambda;
        choice.iterations = static_cast<int>(t) + 1;
      }
    }
  if (!std::isfinite(best))
    throw NumericalError(message(function, ": no lambda gives the ", name(options.loss), " loss a finite value"));
  return choice;
}

}  // namespace ashlar::kernels
