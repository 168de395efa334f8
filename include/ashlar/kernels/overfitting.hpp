// Will interpolating noise with this kernel do bounded harm, none in the limit, or more with every point?
//
//   Rng rng(1);
//   const auto report = kernels::classify_overfitting(kernel, x, x_held_out, rng);
//   report.verdict, kernels::name(report.verdict), report.decay.a(), report.growth, report.predicted_variance
//
// Two witnesses: the law by which the eigenvalues of the Gram matrix fall (spectral_decay.hpp), and how the variance
// mean |K^-1 k_x|^2 of the interpolant grows over subsamples of n / 4, n / 2 and n points. A heuristic, not a theorem:
// it says `undetermined` where the two disagree or know too little.
//
//   catastrophic  the exponential law fits better, or V grows faster than n^0.5 and has passed 1
//   tempered      a power law with a > 0.05, and V grows slower than n^0.15: expect V near a
//   benign        a power law with a <= 0.05, and V falls
//
// Growth below V = 1 is a beginning, not a verdict. An a fitted to few points in many dimensions is too small.
// Sizes at which eigenvalues had to be cut off do not count for the growth: the cut makes V fall with n.
//
// Source: the regimes of Mallinar et al., "Benign, tempered, or catastrophic", NeurIPS 2022, and Cheng et al., ICML
// 2024; the rule is ours.
#pragma once

#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/kernels/ridgeless.hpp"
#include "ashlar/kernels/ridgeless_risk.hpp"
#include "ashlar/kernels/spectral_decay.hpp"
#include "ashlar/linalg/gram.hpp"
#include "ashlar/numerics/line_fit.hpp"

namespace ashlar::kernels {

enum class Overfitting { benign, tempered, catastrophic, undetermined };

constexpr std::string_view name(Overfitting verdict) {
  switch (verdict) {
    case Overfitting::benign:
      return "benign";
    case Overfitting::tempered:
      return "tempered";
    case Overfitting::catastrophic:
      return "catastrophic";
    case Overfitting::undetermined:
      break;
  }
  return "undetermined";
}

struct OverfittingOptions {
  DecayOptions decay = {};
  int subsamples = 5;  ///< of n / 4 and n / 2 points each; V is their median
};

struct OverfittingReport {
  Overfitting verdict = Overfitting::undetermined;
  DecayFit decay = {};
  double predicted_variance = 0;      ///< V of the fitted law, by its deterministic equivalent
  std::array<Index, 3> sizes{};       ///< n / 4, n / 2, n
  std::array<double, 3> variances{};  ///< V at those sizes; NaN where eigenvalues had to be cut off
  double growth = 0;                  ///< slope of log V on log size; NaN with fewer than two sizes
  double rcond = 0;                   ///< of the whole Gram matrix: s_n / s_1
  bool rank_deficient = false;        ///< fewer than eight eigenvalues above rounding
};

/// The rule above. last_variance: V at the largest size that counted, NaN when there was none.
inline Overfitting verdict_of(const DecayFit& decay, double growth, double last_variance) {
  if (decay.law == DecayLaw::unknown) return Overfitting::undetermined;
  if (decay.law == DecayLaw::exponential || (growth > 0.5 && last_variance > 1)) return Overfitting::catastrophic;
  const double a = decay.power_exponent();  // growth may be NaN, which is none of the following
  if (a > 0.05 && growth < 0.15) return Overfitting::tempered;
  if (a <= 0.05 && growth < 0) return Overfitting::benign;
  return Overfitting::undetermined;
}

namespace detail {

/// mean |K^-1 k_x|^2 with the points `chosen` alone; NaN when eigenvalues were cut off.
inline double subsample_variance(View<const double, 2> gram, View<const double, 2> k_test,
                                 const std::vector<Index>& chosen) {
  const auto size = static_cast<Index>(chosen.size());
  Matrix<double> k(size, size), cross(k_test.extent(0), size);
  for (Index j = 0; j < size; ++j) {
    const Index from = chosen[static_cast<std::size_t>(j)];
    for (Index i = 0; i < size; ++i) k(i, j) = gram(chosen[static_cast<std::size_t>(i)], from);
    for (Index i = 0; i < cross.rows(); ++i) cross(i, j) = k_test(i, from);
  }
  const SampledRisk risk = sampled_risk(k, cross);
  return risk.rank == size ? risk.variance : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace detail

/// gram: [n, n], n >= 16; k_test: [m, n], k of held-out points (200 are plenty) and the n. An eigenvalue problem of
/// order n, and solves for the subsamples. Throws InvalidArgument when gram is not symmetric or too small,
/// NumericalError when it is not positive semidefinite.
inline OverfittingReport classify_overfitting(View<const double, 2> gram, View<const double, 2> k_test, Rng& rng,
                                              const OverfittingOptions& options = {}) {
  constexpr auto function = "classify_overfitting";
  detail::check_gram(function, gram);
  const Index n = gram.extent(0);
  require(n >= 16, function, "gram must have 16 rows at least, got ", n);
  check_shape(function, "k_test", k_test.shape(), {k_test.extent(0), n}, "one column a row of gram");
  require(k_test.extent(0) >= 1, function, "k_test has no rows");
  check_argument(options.subsamples >= 1, function, "subsamples", "at least 1", options.subsamples);

  const Vector<double> s =
      Eigen::SelfAdjointEigenSolver<Matrix<double>>(matrix(gram), Eigen::EigenvaluesOnly).eigenvalues();
  const double largest = std::max(s[n - 1], 0.0);
  detail::check_semidefinite(function, s, static_cast<double>(n) * std::numeric_limits<double>::epsilon() * largest);
  OverfittingReport report{.decay = fit_decay(s, options.decay)};
  report.predicted_variance = predicted_variance(report.decay);
  report.rcond = largest > 0 ? std::max(s[0], 0.0) / largest : 0;
  report.rank_deficient = report.decay.law == DecayLaw::unknown;
  report.sizes = {n / 4, n / 2, n};

  std::vector<double> log_size, log_variance;
  for (std::size_t i = 0; i < 3; ++i) {
    const Index size = report.sizes[i];
    std::vector<double> draws;
    for (int draw = 0; draw < (size == n ? 1 : options.subsamples); ++draw)
      draws.push_back(detail::subsample_variance(gram, k_test, rng.sample(n, size)));
    const bool complete = std::none_of(draws.begin(), draws.end(), [](double v) { return std::isnan(v); });
    std::sort(draws.begin(), draws.end());
    const std::size_t middle = draws.size() / 2;
    report.variances[i] = !complete               ? std::numeric_limits<double>::quiet_NaN()
                          : draws.size() % 2 == 1 ? draws[middle]
                                                  : (draws[middle - 1] + draws[middle]) / 2;
    if (!(report.variances[i] > 0)) continue;
    log_size.push_back(std::log(static_cast<double>(size)));
    log_variance.push_back(std::log(report.variances[i]));
  }
  report.growth = log_size.size() >= 2 ? numerics::fit_line(log_size, log_variance).slope
                                       : std::numeric_limits<double>::quiet_NaN();
  const double last = log_variance.empty() ? std::numeric_limits<double>::quiet_NaN() : std::exp(log_variance.back());
  report.verdict = verdict_of(report.decay, report.growth, last);
  return report;
}

/// The same for a kernel. x: [n, d], held_out: [m, d].
template <class K, class X>
  requires linalg::Kernel<K, double>
OverfittingReport classify_overfitting(const K& kernel, const X& x, In<X, 2> held_out, Rng& rng,
                                       const OverfittingOptions& options = {}) {
  return classify_overfitting(linalg::gram(kernel, x), linalg::gram(kernel, held_out, x), rng, options);
}

}  // namespace ashlar::kernels
