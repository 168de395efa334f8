// Kernels known by their Mercer expansion K(x, x') = sum_i lambda_i psi_i(x) psi_i(x'): spectra that fall like a power
// or exponentially, and features to go with them.
//
//   Rng rng(1);
//   const auto lambda = kernels::power_spectrum(2000, 1.0);                    // i^-2
//   const auto psi = kernels::gaussian_features(rng, 100, 2000);               // [100, 2000], samples are rows
//   const Matrix<double> k = kernels::design_gram(lambda, psi, psi);
//
// E psi psi^T = I for all of them. Gaussian and Rademacher features are independent, which the theory of interpolation
// leans on; the sines are functions of one number and break it.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::kernels {

namespace detail {

/// lambda: [p], positive, finite, not increasing.
inline void check_spectrum(std::string_view function, View<const double, 1> lambda) {
  require(lambda.extent(0) >= 1, function, "lambda is empty");
  for (Index i = 0; i < lambda.extent(0); ++i) {
    require(lambda[i] > 0 && std::isfinite(lambda[i]), function, "lambda must be positive and finite, but entry ", i,
            " is ", lambda[i]);
    const double before = lambda[i > 0 ? i - 1 : 0];
    require(lambda[i] <= before, function, "lambda must not increase, but entry ", i, " is ", lambda[i], " after ",
            before);
  }
}

/// The same and features: [n, p].
inline void check_design(std::string_view function, View<const double, 1> lambda, View<const double, 2> features) {
  check_spectrum(function, lambda);
  require(features.extent(0) >= 1, function, "features has no rows");
  check_shape(function, "features", features.shape(), {features.extent(0), lambda.extent(0)},
              "one column an eigenvalue");
  require(matrix(features).allFinite(), function, "features has an entry that is not finite");
}

/// [n, p]: features times the roots of the eigenvalues, so that K is this times its transpose.
inline Matrix<double> weighted_features(View<const double, 1> lambda, View<const double, 2> features) {
  return matrix(features) * vector(lambda).cwiseSqrt().asDiagonal();
}

inline void check_spectrum_arguments(std::string_view function, Index p, double a) {
  check_argument(p >= 1, function, "p", "at least 1", p);
  check_argument(a > 0 && std::isfinite(a), function, "a", "positive and finite", a);
}

}  // namespace detail

/// lambda_i = i^(-1 - a), i = 1 ... p. a > 0.
inline Vector<double> power_spectrum(Index p, double a) {
  detail::check_spectrum_arguments("power_spectrum", p, a);
  Vector<double> lambda(p);
  for (Index i = 0; i < p; ++i) lambda[i] = std::pow(static_cast<double>(i + 1), -1 - a);
  return lambda;
}

/// lambda_i = e^(-a i), i = 1 ... p. a > 0, and a p so small that the last one is a normal number.
inline Vector<double> exponential_spectrum(Index p, double a) {
  detail::check_spectrum_arguments("exponential_spectrum", p, a);
  Vector<double> lambda(p);
  for (Index i = 0; i < p; ++i) lambda[i] = std::exp(-a * static_cast<double>(i + 1));
  require(lambda[p - 1] >= std::numeric_limits<double>::min(), "exponential_spectrum",
          "e^(-a p) underflows for a = ", a, " and p = ", p);
  return lambda;
}

/// Independent standard normal features: [n, p].
inline Matrix<double> gaussian_features(Rng& rng, Index n, Index p) { return normal_matrix<double>(rng, n, p); }

/// Independent signs: [n, p].
inline Matrix<double> rademacher_features(Rng& rng, Index n, Index p) {
  Matrix<double> psi(n, p);
  for (Index i = 0; i < psi.size(); ++i) psi.data()[i] = (rng() & 1u) != 0 ? 1.0 : -1.0;
  return psi;
}

/// psi_i(x) = sqrt 2 sin(pi i x), i = 1 ... p, orthonormal for x uniform on [0, 1]. x: [n]; the result is [n, p].
inline Matrix<double> sine_features(View<const double, 1> x, Index p) {
  check_argument(p >= 1, "sine_features", "p", "at least 1", p);
  Matrix<double> psi(x.extent(0), p);
  parallel_for(psi.rows(), 16, [&](Index begin, Index end) {
    for (Index j = begin; j < end; ++j)
      for (Index i = 0; i < p; ++i)
        psi(j, i) = std::numbers::sqrt2 * std::sin(std::numbers::pi * static_cast<double>(i + 1) * x[j]);
  });
  return psi;
}
/// The same at n independent uniform points.
inline Matrix<double> sine_features(Rng& rng, Index n, Index p) {
  Vector<double> x(n);
  for (double& value : x) value = rng.uniform();
  return sine_features(x, p);
}

/// K(x_i, x'_j) = sum_l lambda_l left_il right_jl. left: [m, p], right: [n, p]; the result is [m, n], exactly symmetric
/// when both are the same. O(m n p), threaded.
inline Matrix<double> design_gram(View<const double, 1> lambda, View<const double, 2> left,
                                  View<const double, 2> right) {
  constexpr auto function = "design_gram";
  detail::check_design(function, lambda, left);
  detail::check_design(function, lambda, right);
  const Matrix<double> a = detail::weighted_features(lambda, left);
  const bool symmetric = same_memory(left, right);
  const Matrix<double> b = symmetric ? Matrix<double>() : detail::weighted_features(lambda, right);
  const Matrix<double>& other = symmetric ? a : b;
  Matrix<double> k(a.rows(), other.rows());
  parallel_for(a.rows(), 64, [&](Index begin, Index end) {
    const Index columns = symmetric ? end : other.rows();
    k.block(begin, 0, end - begin, columns).noalias() =
        a.middleRows(begin, end - begin) * other.topRows(columns).transpose();
  });
  if (symmetric) k.triangularView<Eigen::StrictlyUpper>() = k.transpose();
  return k;
}

}  // namespace ashlar::kernels
