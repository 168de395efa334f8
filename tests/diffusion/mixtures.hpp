// Mixtures that several tests of diffusion use.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/diffusion/gaussian_mixture.hpp"
#include "support/fixture.hpp"

namespace ashlar::diffusion::test {

using namespace ashlar::test;

inline const std::vector<std::string> fixture_names{"iso2_1d", "iso3_2d", "full4_3d", "narrow2_2d"};

inline Tensor<double> array(const std::string& name) { return fixture("guided_diffusion/" + name); }

/// The mixture of a fixture; isotropic covariances as such, or as full matrices all the same.
inline GaussianMixture fixture_mixture(const std::string& name, bool as_full = false) {
  const auto w = array(name + "_w"), mu = array(name + "_mu"), cov = array(name + "_cov");
  const bool full = as_full || name == "full4_3d";
  return {w.view<1>(), mu.view<2>(),
          full ? Covariance::full(cov.view<3>()) : Covariance::isotropic(cov.view<3>()(0, 0, 0))};
}

/// Components of one variance on a line, all weights equal.
inline GaussianMixture on_a_line(const std::vector<double>& means, double variance = 1) {
  const std::vector<double> w(means.size(), 1 / static_cast<double>(means.size()));
  return {w, View<const double, 2>(means.data(), {static_cast<Index>(means.size()), 1}),
          Covariance::isotropic(variance)};
}

/// `classes` components of unit variance on a circle, the first at the top.
inline GaussianMixture on_a_circle(Index classes, double radius) {
  Matrix<double> means(classes, 2);
  for (Index c = 0; c < classes; ++c) {
    const double angle =
        2 * std::numbers::pi * static_cast<double>(c) / static_cast<double>(classes) + std::numbers::pi / 2;
    means(c, 0) = radius * std::cos(angle), means(c, 1) = radius * std::sin(angle);
  }
  const Vector<double> w = Vector<double>::Constant(classes, 1 / static_cast<double>(classes));
  return {w, means, Covariance::isotropic(1.0)};
}

inline Matrix<double> random_covariance(Rng& rng, Index d) {
  const auto a = normal_matrix<double>(rng, d, d);
  return a * a.transpose() / static_cast<double>(d) + 0.1 * Matrix<double>::Identity(d, d);
}

/// Random weights, means and covariances of a kind.
inline GaussianMixture random_mixture(Rng& rng, Index classes, Index d, CovarianceKind kind, bool common) {
  Vector<double> w(classes);
  for (double& weight : w) weight = 0.1 + rng.uniform();
  w /= w.sum();
  const auto means = normal_matrix<double>(rng, classes, d, 1.5);
  const Index given = common ? 1 : classes;
  if (kind == CovarianceKind::full) {
    Tensor<double> values({given, d, d});
    for (Index c = 0; c < given; ++c) matrix(values.view<3>()[c]) = random_covariance(rng, d);
    return {w, means, Covariance::full(values.view<3>())};
  }
  Matrix<double> variances(given, d);
  for (Index i = 0; i < variances.size(); ++i) variances.data()[i] = 0.2 + rng.uniform();
  if (kind == CovarianceKind::diagonal) return {w, means, Covariance::diagonal(variances)};
  const Vector<double> first = variances.col(0);
  return {w, means, Covariance::isotropic(View<const double, 1>(first))};
}

/// max |a - b| / max(|b|, 1), entry by entry.
template <class A, class B>
double worst_gap(const A& a, const B& b) {
  if (a.rows() != b.rows() || a.cols() != b.cols()) return INFINITY;
  double worst = 0;
  for (Index i = 0; i < a.rows(); ++i)
    for (Index j = 0; j < a.cols(); ++j) {
      const double x = static_cast<double>(a(i, j)), y = static_cast<double>(b(i, j));
      const double gap = std::abs(x - y) / std::max(std::abs(y), 1.0);
      worst = std::isnan(gap) ? INFINITY : std::max(worst, gap);
    }
  return worst;
}

}  // namespace ashlar::diffusion::test
