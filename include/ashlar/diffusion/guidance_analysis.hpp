// What guidance does to samples: confidence, entropy, and where it breaks.
//
// For mixtures of Gaussians with one covariance and exact scores, guidance of strength eta raises the confidence
// P(y | x) of every sample (DDIM and DDPM, under a mild condition on the means) and lowers the differential entropy of
// DDIM samples; both survive small steps. Strength that steps are too long for splits a component into two clusters.
//
//   H = d / 2 log(2 pi e) + E integral of (d + div s_eta)         entropy of DDIM samples from N(0, I)
//   limit = min_k 2 / (h_k rho_k)                                  strength at which an Euler step overshoots
//
//   const auto sweep = guidance_sweep(mixture, 1, std::vector<double>{0, 1, 3, 10}, rng);
//   double limit = guidance_stability_limit(mixture, 1, TimeGrid::uniform(10, 50));
//
// Source: Wu, Chen, Li, Wang, Wei, ICML 2024, arXiv 2403.01639: confidence, entropy, discretised samplers and the
// three-component example. The stability limit is derived here.
#pragma once

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/diffusion/gaussian_mixture.hpp"
#include "ashlar/diffusion/guided_sampler.hpp"
#include "ashlar/diffusion/mixture_score.hpp"
#include "ashlar/diffusion/time_grid.hpp"
#include "ashlar/numerics/nearest_neighbour_entropy.hpp"

namespace ashlar::diffusion {

// ---- Confidence --------------------------------------------------------------------------------------------------

struct ConfidenceReport {
  double mean = 0;
  std::array<double, 5> quantiles{};  ///< at 0, 1/4, 1/2, 3/4 and 1
  double mean_gain = 0;               ///< over the baseline, sample by sample; 0 without one
  double least_gain = 0;
};

/// P(label | x) of the data itself (time 0): [N]. x: [N, d].
template <class X>
Vector<double> confidence(const GaussianMixture& mixture, const X& x, Index label) {
  mixture.check_label("confidence", label);
  return mixture.posterior(x, 0).col(label);
}

/// values: [N], N at least 1; baseline: [N] from the same starts and noise, or empty.
inline ConfidenceReport confidence_report(View<const double, 1> values, View<const double, 1> baseline = {}) {
  const Index n = values.extent(0);
  check_argument(n >= 1, "confidence_report", "the number of values", "at least 1", n);
  if (!baseline.empty()) check_shape("confidence_report", "baseline", baseline.shape(), {n}, "one a value");
  ConfidenceReport report;
  std::vector<double> sorted;
  report.least_gain = baseline.empty() ? 0 : std::numeric_limits<double>::infinity();
  for (Index i = 0; i < n; ++i) {
    sorted.push_back(values[i]);
    report.mean += values[i] / static_cast<double>(n);
    if (baseline.empty()) continue;
    report.mean_gain += (values[i] - baseline[i]) / static_cast<double>(n);
    report.least_gain = std::min(report.least_gain, values[i] - baseline[i]);
  }
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t q = 0; q < 5; ++q) {
    const double at = static_cast<double>(q) / 4 * static_cast<double>(n - 1);
    const auto low = static_cast<std::size_t>(at), high = std::min(low + 1, sorted.size() - 1);
    report.quantiles[q] = sorted[low] + (at - std::floor(at)) * (sorted[high] - sorted[low]);
  }
  return report;
}

// ---- Entropy of DDIM samples -------------------------------------------------------------------------------------

struct EntropyReport {
  double entropy = 0;         ///< nats
  double standard_error = 0;  ///< of the mean over samples
};

/// From the log-determinants of DDIM samples that began as N(0, I) in d dimensions: d / 2 log(2 pi e) + mean. [N], N
/// >= 2.
template <class L>
EntropyReport ddim_entropy(const L& logdet, Index dim) {
  const In<L, 1> values = logdet;
  check_argument(values.extent(0) >= 2, "ddim_entropy", "the number of samples", "at least 2", values.extent(0));
  const Vector<double> x = vector(values).template cast<double>();
  const auto n = static_cast<double>(x.size());
  const double mean = x.mean(), deviation = std::sqrt((x.array() - mean).square().sum() / (n - 1));
  return {static_cast<double>(dim) / 2 * std::log(2 * std::numbers::pi * std::numbers::e) + mean,
          deviation / std::sqrt(n)};
}

struct QuadratureOptions {
  double horizon = 10;  ///< T
  Index steps = 1000;   ///< of rk4, graded with power 2
  Index points = 2001;  ///< starts, evenly spaced over [-limit, limit]
  double limit = 8;
};
struct QuadratureResult {
  double entropy = 0;
  double confidence = 0;
};

/// Entropy and mean confidence of the continuous guided ODE in one dimension, started from N(0, 1), by the trapezoidal
/// rule over the start: an oracle to hold samples against.
inline QuadratureResult ddim_quadrature(const GaussianMixture& mixture, Index label, double strength,
                                        const QuadratureOptions& options = {}) {
  constexpr auto function = "ddim_quadrature";
  check_argument(mixture.dim() == 1, function, "the dimension of the mixture", "1", mixture.dim());
  check_argument(options.points >= 3, function, "points", "at least 3", options.points);
  check_argument(options.limit > 0 && std::isfinite(options.limit), function, "limit", "positive and finite",
                 options.limit);
  Matrix<double> x = Vector<double>::LinSpaced(options.points, -options.limit, options.limit);
  const Vector<double> weight = (-x.col(0).array().square() / 2).exp() / std::sqrt(2 * std::numbers::pi);
  Vector<double> logdet(x.rows());
  ddim_sample(MixtureScore<double>(mixture, label, {.strength = strength}), x,
              TimeGrid::graded(options.horizon, options.steps), Step::rk4, logdet);
  const double spacing = 2 * options.limit / static_cast<double>(options.points - 1);
  return {std::log(2 * std::numbers::pi * std::numbers::e) / 2 + spacing * weight.dot(logdet),
          spacing * weight.dot(confidence(mixture, x, label))};
}

// ---- A sweep over strengths --------------------------------------------------------------------------------------

struct SweepOptions {
  Index samples = 2000;
  TimeGrid grid = TimeGrid::graded(6, 400);
  Step ddim_step = Step::rk4;
  Step ddpm_step = Step::euler;
  AncestralVariance variance = AncestralVariance::small;
  int neighbours = 3;  ///< of the entropy of DDPM samples
};

struct SweepRow {
  double strength = 0;
  ConfidenceReport ddim, ddpm;  ///< gains over strength 0
  EntropyReport ddim_entropy;
  double ddpm_entropy = 0;  ///< by nearest neighbours; no entropy theorem covers it
};

/// Samples of class `label` under every strength, all from the same starts and the same noise. Works in double.
inline std::vector<SweepRow> guidance_sweep(const GaussianMixture& mixture, Index label,
                                            View<const double, 1> strengths, Rng& rng,
                                            const SweepOptions& options = {}) {
  check_argument(options.samples > options.neighbours, "guidance_sweep", "samples", "more than the neighbours",
                 options.samples);
  const Matrix<double> start = normal_matrix<double>(rng, options.samples, mixture.dim());
  const Rng noise = rng.split(rng.next64());
  Workspace workspace;
  Vector<double> logdet(options.samples);
  SweepRow row;
  const auto run = [&](double strength, Vector<double>& ddim, Vector<double>& ddpm) {
    const MixtureScore<double> score(mixture, label, {.strength = strength});
    row.strength = strength;
    Matrix<double> x = start;
    ddim_sample(score, x, options.grid, options.ddim_step, logdet, workspace);
    ddim = confidence(mixture, x, label);
    row.ddim_entropy = ddim_entropy(logdet, mixture.dim());
    x = start;
    Rng same = noise;
    ddpm_sample(score, x, options.grid, options.ddpm_step, same, options.variance, workspace);
    ddpm = confidence(mixture, x, label);
    row.ddpm_entropy = numerics::nearest_neighbour_entropy(x, {.neighbours = options.neighbours}).entropy;
  };
  Vector<double> ddim_baseline, ddpm_baseline, ddim, ddpm;
  run(0, ddim_baseline, ddpm_baseline);
  std::vector<SweepRow> rows;
  for (Index i = 0; i < strengths.extent(0); ++i) {
    run(strengths[i], ddim, ddpm);
    row.ddim = confidence_report(ddim, ddim_baseline);
    row.ddpm = confidence_report(ddpm, ddpm_baseline);
    rows.push_back(row);
  }
  return rows;
}

// ---- Strong guidance ---------------------------------------------------------------------------------------------

/// Strength from which an Euler step of DDIM can overshoot: the least 2 / (h_k rho_k) over the steps and points, rho_k
/// the largest eigenvalue of -grad (s_y - s) = Cov_q(s_c) + S_y^-1 - sum_c q_c S_c^-1. With one covariance for all
/// classes that is a^2 S^-1 Cov_q(mu) S^-1. Points are a_k mu_y, and `points` [M, d]. For DDPM take half. Infinite when
/// nothing pulls. A warning: samples split somewhat above it.
inline double guidance_stability_limit(const GaussianMixture& mixture, Index label, const TimeGrid& grid,
                                       View<const double, 2> points = {}) {
  constexpr auto function = "guidance_stability_limit";
  mixture.check_label(function, label);
  const Index d = mixture.dim();
  if (points.data() != nullptr)
    check_shape(function, "points", points.shape(), {points.extent(0), d}, "points of the dimension of the means");
  Matrix<double> x(1 + (points.data() == nullptr ? 0 : points.extent(0)), d);
  if (x.rows() > 1) x.bottomRows(x.rows() - 1) = matrix(points);
  double limit = std::numeric_limits<double>::infinity();
  for (Index k = 0; k < grid.steps(); ++k) {
    x.row(0) = std::exp(-grid[k]) * mixture.means().row(label);
    std::vector<Matrix<double>> columns;  // of the Jacobian of s_y - s
    for (Index j = 0; j < d; ++j) {
      Matrix<double> direction = Matrix<double>::Zero(x.rows(), d);
      direction.col(j).setOnes();
      columns.push_back(mixture.guided_jacobian_product(x, grid[k], label, 1, direction) -
                        mixture.guided_jacobian_product(x, grid[k], label, 0, direction));
    }
    for (Index i = 0; i < x.rows(); ++i) {
      Matrix<double> pull(d, d);
      for (Index j = 0; j < d; ++j) pull.col(j) = -columns[static_cast<std::size_t>(j)].row(i).transpose();
      const Matrix<double> symmetric = (pull + pull.transpose()) / 2;
      const double rho =
          Eigen::SelfAdjointEigenSolver<Matrix<double>>(symmetric, Eigen::EigenvaluesOnly).eigenvalues()[d - 1];
      if (rho > 0) limit = std::min(limit, 2 / ((grid[k] - grid[k + 1]) * rho));
    }
  }
  return limit;
}

struct SpreadReport {
  double within = 0;     ///< part of the samples nearer to the centre than the radius
  double deviation = 0;  ///< sqrt(mean |x - mean x|^2)
};

/// Whether samples stayed with their component or split. x: [N, d], N at least 1; centre: [d].
template <class X>
SpreadReport spread_report(const X& x, In<X, 1> centre, double radius) {
  constexpr auto function = "spread_report";
  const In<X, 2> samples = x;
  check_argument(samples.extent(0) >= 1, function, "the number of samples", "at least 1", samples.extent(0));
  check_shape(function, "centre", centre.shape(), {samples.extent(1)}, "one entry a dimension");
  check_argument(radius > 0, function, "radius", "positive", radius);
  const Matrix<double> values = matrix(samples).template cast<double>();
  const Vector<double> middle = vector(centre).template cast<double>();
  const Vector<double> distances = (values.rowwise() - middle.transpose()).rowwise().norm();
  const Matrix<double> centred = values.rowwise() - values.colwise().mean();
  return {static_cast<double>((distances.array() < radius).count()) / static_cast<double>(values.rows()),
          std::sqrt(centred.squaredNorm() / static_cast<double>(values.rows()))};
}

}  // namespace ashlar::diffusion
