// What a Gaussian design does on average: the self-consistent prediction of kernel (ridgeless) regression from its
// spectrum alone.
//
//   const auto e = kernels::deterministic_equivalent(lambda, theta, n, sigma * sigma);
//   e.test_error, e.variance, e.kappa
//
// kappa > 0 solves  sum_i lambda_i / (lambda_i + kappa) + ridge / kappa = n;  with L_i = lambda_i / (lambda_i + kappa),
//
//   E0 = n / (n - sum L_i^2),     test error = E0 (sum (1 - L_i)^2 theta_i^2 + sigma^2).
//
// Noise is multiplied by E0: 1 + a for lambda_i = i^(-1-a) (tempered), about a n for e^(-a i) (catastrophic), 1 for
// slower decay (benign). Exact in the limit for Gaussian features; for features that depend on each other it is neither
// exact nor a bound. A spectrum cut off near n has its peak of double descent there, so give it 20 n eigenvalues.
//
// Source: the prediction Cheng et al., ICML 2024, examine; Simon et al., "The eigenlearning framework", TMLR 2023.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/kernels/spectral_design.hpp"
#include "ashlar/numerics/bracketed_root.hpp"

namespace ashlar::kernels {

struct DeterministicEquivalent {
  double kappa = 0;         ///< the effective ridge
  double noise_factor = 0;  ///< E0 >= 1
  double variance = 0;      ///< E0 - 1: V of unit noise, as in Risk
  double test_error = 0;    ///< on a test response, noise included
};

namespace reference {

/// kappa by bisection of its equation, in the logarithm.
inline double effective_ridge(const Vector<double>& lambda, double n, double ridge) {
  double low = std::log(lambda.minCoeff()) - 60, high = std::log(lambda.sum() + ridge) + 5;
  for (int step = 0; step < 200; ++step) {
    const double middle = (low + high) / 2, kappa = std::exp(middle);
    double degrees = ridge / kappa;
    for (const double value : lambda) degrees += value / (value + kappa);
    (degrees > n ? low : high) = middle;
  }
  return std::exp((low + high) / 2);
}

}  // namespace reference

/// The kappa of the equation above. lambda: [p], positive and falling; without a ridge p must exceed n, or the features
/// run out before the samples and there is no root. O(p) a step of Newton's method in log kappa.
inline double effective_ridge(View<const double, 1> lambda, Index n, double ridge = 0) {
  constexpr auto function = "effective_ridge";
  detail::check_spectrum(function, lambda);
  check_argument(n >= 1, function, "n", "at least 1", n);
  check_argument(ridge >= 0 && std::isfinite(ridge), function, "ridge", "at least 0 and finite", ridge);
  const Index p = lambda.extent(0);
  require(ridge > 0 || p > n, function, "without a ridge there must be more eigenvalues than samples, got ", p, " and ",
          n);
  const auto values = vector(lambda).array();
  const double count = static_cast<double>(n);
  // kappa < (tr + ridge) / n, since lambda / (lambda + kappa) < lambda / kappa. The first k > n eigenvalues are
  // lambda_k at least and alone put kappa above lambda_k (k - n) / n; the ridge alone puts it above ridge / n.
  double low = ridge / count;
  for (Index k = n + 1; k <= p; ++k) low = std::max(low, lambda[k - 1] * (static_cast<double>(k) / count - 1));
  const double high = (values.sum() + ridge) / count;
  const auto degrees = [&](double log_kappa) {
    const double kappa = std::exp(log_kappa);
    const auto share = values / (values + kappa);
    return std::pair(share.sum() + ridge / kappa - count, (share * (share - 1)).sum() - ridge / kappa);
  };
  // Both ends may be the root but for rounding: a flat spectrum, or next to no eigenvalues beside the ridge.
  return std::exp(numerics::bracketed_root(degrees, std::log(low) - 1e-9, std::log(high) + 1e-9));
}

/// lambda: [p], theta: [p] (coefficients in psi, not lambda^1/2 psi), n samples. Throws InvalidArgument for a spectrum
/// that is not positive and falling, or one of n eigenvalues or fewer without a ridge.
inline DeterministicEquivalent deterministic_equivalent(View<const double, 1> lambda, View<const double, 1> theta,
                                                        Index n, double noise_variance, double ridge = 0) {
  constexpr auto function = "deterministic_equivalent";
  check_shape(function, "theta", theta.shape(), {lambda.extent(0)}, "one coefficient an eigenvalue");
  check_argument(noise_variance >= 0 && std::isfinite(noise_variance), function, "noise_variance",
                 "at least 0 and finite", noise_variance);
  DeterministicEquivalent result{.kappa = effective_ridge(lambda, n, ridge)};
  const Vector<double> shifted = vector(lambda).array() + result.kappa;
  const Vector<double> kept = vector(lambda).cwiseQuotient(shifted), lost = result.kappa * shifted.cwiseInverse();
  // n - sum L^2 = sum L (1 - L) + ridge / kappa by the equation of kappa, without the cancellation.
  const double slack = kept.dot(lost) + ridge / result.kappa;
  result.noise_factor = static_cast<double>(n) / slack;
  result.variance = kept.squaredNorm() / slack;
  result.test_error = result.noise_factor * (lost.cwiseProduct(vector(theta)).squaredNorm() + noise_variance);
  return result;
}

}  // namespace ashlar::kernels
