// Where normal elements end and outliers begin: the threshold T of BiE, found offline for every tensor.
//
// Only the exponents of the elements decide when T is a power of two, so trying all of them is cheap and exact; Bayesian
// optimisation (the paper's flow) spends fewer evaluations of a costly objective and tunes many layers at once.
//
//   auto error = [&](double t) { return quantization_mse(x, fake_quantize<BiE4>(x, t)); };
//   ThresholdResult best = search_exhaustive(error, threshold_candidates<BiE4>(x));
//   ThresholdResult few = search_bayesian(error, threshold_bounds<BiE4>(x), {}, rng);
//   auto sites = calibrate<BiE4>(layers);        // activations and weights of linear layers, by their outputs
//
// The squared error of a tensor is dominated by its outliers' own error; the error of the layer's output, X W^T, often
// prefers a smaller T, and is the default of calibrate.
//
// Sources: Zou et al., "BiE: Bi-Exponent Block Floating-Point for Large Language Models Quantization", ICML 2024 (offline
// Bayesian optimisation; its surrogate and budget are not published); Jones, Schonlau, Welch, "Efficient global
// optimization of expensive black-box functions", J. Global Optimization 13 (1998), for expected improvement.
#pragma once

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <concepts>
#include <functional>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/bi_exponent.hpp"

namespace ashlar::precision {

struct ThresholdResult {
  double log2_threshold = 0;  ///< infinite: no outliers
  double objective = 0;
  int evaluations = 0;

  double threshold() const { return std::exp2(log2_threshold); }
};

/// A range of log2 T.
struct ThresholdBounds {
  double low = 0, high = 0;
};

struct BayesianOptions {
  int initial = 5;            ///< Halton points for every threshold
  int further = 15;           ///< evaluations after those, for every threshold
  int candidates = 1024;      ///< uniform points among which the acquisition is maximised
  double exploration = 0.01;  ///< xi of the expected improvement, in standard deviations of the objective
  bool power_of_two = false;  ///< round log2 T to integers at the end, at the cost of one evaluation
};

struct JointThresholdResult {
  Vector<double> log2_thresholds;
  double objective = 0;
  int evaluations = 0;
};

// ---- Exhaustive -------------------------------------------------------------------------------------------------

/// The powers of two that split x differently, descending: +inf if some |x| >= 2^max_exponent, then 2^max_exponent ..
/// 2^(min_exponent+1).
template <BiExponentFormat F, class X>
std::vector<double> threshold_candidates(const X& x) {
  const In<X, 2> view = x;
  detail::check_finite(view, "threshold_candidates");
  double largest = 0;
  for (Index i = 0; i < view.extent(0); ++i)
    for (Index j = 0; j < view.extent(1); ++j)
      largest = std::max(largest, std::abs(static_cast<double>(to_float(view(i, j)))));
  std::vector<double> candidates;
  if (largest >= std::ldexp(1.0, F::max_exponent)) candidates.push_back(std::numeric_limits<double>::infinity());
  for (int j = F::max_exponent; j > F::min_exponent; --j) candidates.push_back(std::ldexp(1.0, j));
  return candidates;
}

/// The candidate with the smallest objective(T); ties to the larger T, which has fewer outliers.
template <class Objective>
ThresholdResult search_exhaustive(Objective&& objective, std::vector<double> candidates) {
  require(!candidates.empty(), "search_exhaustive", "there are no candidates");
  std::sort(candidates.begin(), candidates.end(), std::greater<>());
  ThresholdResult best{0, std::numeric_limits<double>::infinity(), 0};
  for (const double threshold : candidates) {
    detail::check_threshold(threshold, "search_exhaustive");
    const double value = objective(threshold);
    if (value < best.objective || best.evaluations == 0) best = {std::log2(threshold), value, best.evaluations};
    ++best.evaluations;
  }
  return best;
}

/// T = 2^high, 2^(high-1), .. 2^low.
template <class Objective>
ThresholdResult search_exhaustive(Objective&& objective, int low, int high) {
  require(low <= high, "search_exhaustive", "low is ", low, ", above high, ", high);
  std::vector<double> candidates;
  for (int j = high; j >= low; --j) candidates.push_back(std::ldexp(1.0, j));
  return search_exhaustive(objective, std::move(candidates));
}

// ---- Bayesian ---------------------------------------------------------------------------------------------------

/// [log2 median, log2 max] of the non-zero |x|, clamped to the exponents that are candidates.
template <BiExponentFormat F, class X>
ThresholdBounds threshold_bounds(const X& x) {
  const In<X, 2> view = x;
  detail::check_finite(view, "threshold_bounds");
  std::vector<double> magnitudes;
  for (Index i = 0; i < view.extent(0); ++i)
    for (Index j = 0; j < view.extent(1); ++j)
      if (const double m = std::abs(static_cast<double>(to_float(view(i, j)))); m > 0) magnitudes.push_back(m);
  require(!magnitudes.empty(), "threshold_bounds", "x has no element that is not zero");
  const auto middle = magnitudes.begin() + static_cast<std::ptrdiff_t>(magnitudes.size() / 2);
  std::nth_element(magnitudes.begin(), middle, magnitudes.end());
  double median = *middle;
  if (magnitudes.size() % 2 == 0) median = (median + *std::max_element(magnitudes.begin(), middle)) / 2;
  const double largest = *std::max_element(middle, magnitudes.end());
  const auto clamped = [](double t) { return std::clamp<double>(std::log2(t), F::min_exponent + 1, F::max_exponent); };
  return {clamped(median), clamped(largest)};
}

namespace detail {

/// The i-th number, i >= 1, of the van der Corput sequence: the digits of i in the base, mirrored at the point.
inline double halton(Index i, Index base) {
  double value = 0, digit = 1;
  for (; i > 0; i /= base) {
    digit /= static_cast<double>(base);
    value += digit * static_cast<double>(i % base);
  }
  return value;
}

inline std::vector<Index> primes(Index count) {
  std::vector<Index> found;
  for (Index n = 2; static_cast<Index>(found.size()) < count; ++n)
    if (std::none_of(found.begin(), found.end(), [&](Index p) { return n % p == 0; })) found.push_back(n);
  return found;
}

/// Matern 5/2 at distance r, in length scales.
inline double matern(double r) {
  const double s = std::sqrt(5.0) * r;
  return (1 + s + s * s / 3) * std::exp(-s);
}

/// A Gaussian process on [0,1]^L with a constant mean: values z are standardised, K = matern(|x - x'| / length) + 1e-6 I,
/// and the length maximises the profile likelihood -n/2 log s2 - 1/2 log|K|, s2 = z^T K^-1 z / n.
class Surrogate {
 public:
  /// points: [n, L], z: [n].
  Surrogate(const Matrix<double>& points, const Vector<double>& z) : points_(points) {
    const auto n = static_cast<double>(z.size());
    double best = -std::numeric_limits<double>::infinity();
    for (const double length : {.05, .1, .2, .4, .8}) {
      Matrix<double> k(z.size(), z.size());
      for (Index i = 0; i < z.size(); ++i)
        for (Index j = 0; j < z.size(); ++j)
          k(i, j) = matern((points.row(i) - points.row(j)).norm() / length) + (i == j ? 1e-6 : 0);
      const Eigen::LLT<Eigen::MatrixXd> cholesky(k);
      if (cholesky.info() != Eigen::Success) continue;
      const Vector<double> weights = cholesky.solve(z);
      const double s2 = z.dot(weights) / n;
      const double half_log_det = cholesky.matrixLLT().diagonal().array().log().sum();
      const double likelihood = -n / 2 * std::log(s2) - half_log_det;
      if (!(likelihood > best)) continue;
      best = likelihood;
      length_ = length, s2_ = s2, weights_ = weights, cholesky_ = cholesky;
    }
    if (weights_.size() == 0) throw NumericalError("search_bayesian: no kernel matrix is positive definite");
  }

  /// E max(best - xi - f(x), 0) under the posterior; smaller is better.
  double expected_improvement(const Vector<double>& x, double best, double exploration) const {
    Vector<double> k(weights_.size());
    for (Index i = 0; i < k.size(); ++i) k[i] = matern((points_.row(i).transpose() - x).norm() / length_);
    const double mean = k.dot(weights_);
    const double s = std::sqrt(s2_ * std::max(1 - cholesky_.matrixL().solve(k).squaredNorm(), 1e-12));
    const double u = (best - mean - exploration) / s;
    const double density = std::exp(-u * u / 2) / std::sqrt(2 * std::numbers::pi);
    const double distribution = std::erfc(-u / std::numbers::sqrt2) / 2;
    return s * (u * distribution + density);
  }

 private:
  Matrix<double> points_;
  Vector<double> weights_;
  Eigen::LLT<Eigen::MatrixXd> cholesky_;
  double length_ = 0, s2_ = 0;
};

}  // namespace detail

/// Minimises objective(T_1 .. T_L), positive, over log2 T_l in the bounds. Returns the best point that was evaluated.
/// objective: callable with a View<const double, 1> of L thresholds.
template <class Objective>
JointThresholdResult search_bayesian_joint(Objective&& objective, std::span<const ThresholdBounds> bounds,
                                           const BayesianOptions& options, Rng& rng) {
  const auto dim = static_cast<Index>(bounds.size());
  require(dim >= 1, "search_bayesian", "there are no bounds");
  check_argument(options.initial >= 1, "search_bayesian", "initial", "at least 1", options.initial);
  check_argument(options.further >= 0, "search_bayesian", "further", "not negative", options.further);
  check_argument(options.candidates >= 1, "search_bayesian", "candidates", "at least 1", options.candidates);
  bool free = false;
  for (const auto& b : bounds) {
    require(std::isfinite(b.low) && std::isfinite(b.high) && b.low <= b.high, "search_bayesian", "bounds ", b.low, " to ",
            b.high, " are not a finite range");
    free |= b.low < b.high;
  }

  JointThresholdResult best;
  best.log2_thresholds.resize(dim);
  best.objective = std::numeric_limits<double>::infinity();
  const auto evaluate = [&](const Vector<double>& log2_thresholds) {
    const Vector<double> thresholds = log2_thresholds.unaryExpr([](double l) { return std::exp2(l); });
    const double value = objective(View<const double, 1>(thresholds));
    if (value < best.objective || best.evaluations == 0) {
      best.log2_thresholds = log2_thresholds;
      best.objective = value;
    }
    ++best.evaluations;
    return value;
  };

  const Index initial = free ? options.initial * dim : 1, total = free ? initial + options.further * dim : 1;
  const auto bases = detail::primes(dim);
  Matrix<double> points(total, dim);
  Vector<double> y(total), point(dim), log2_thresholds(dim);
  for (Index n = 0; n < total; ++n) {
    if (n < initial) {
      for (Index l = 0; l < dim; ++l) point[l] = detail::halton(n + 1, bases[static_cast<std::size_t>(l)]);
    } else {
      const double mean = y.head(n).mean();
      const double deviation = std::sqrt((y.head(n).array() - mean).square().mean());
      if (!(deviation > 0)) break;  // a flat objective has nothing to improve
      const Vector<double> z = (y.head(n).array() - mean) / deviation;
      const detail::Surrogate surrogate(points.topRows(n), z);
      double best_gain = -1;
      for (int c = 0; c < options.candidates; ++c) {
        Vector<double> candidate(dim);
        for (Index l = 0; l < dim; ++l) candidate[l] = rng.uniform();
        const double gain = surrogate.expected_improvement(candidate, z.minCoeff(), options.exploration);
        if (gain > best_gain) best_gain = gain, point = candidate;
      }
    }
    points.row(n) = point.transpose();
    for (Index l = 0; l < dim; ++l) {
      const auto& b = bounds[static_cast<std::size_t>(l)];
      log2_thresholds[l] = b.low + (b.high - b.low) * point[l];
    }
    y[n] = std::log(std::max(evaluate(log2_thresholds), 1e-300));
  }
  if (options.power_of_two) {
    const Vector<double> rounded = best.log2_thresholds.array().round();
    best.objective = std::numeric_limits<double>::infinity();  // only the rounded point counts
    evaluate(rounded);
  }
  return best;
}

/// The same for one threshold: objective(T).
template <class Objective>
ThresholdResult search_bayesian(Objective&& objective, const ThresholdBounds& bounds, const BayesianOptions& options,
                                Rng& rng) {
  const auto best = search_bayesian_joint([&](View<const double, 1> t) { return objective(t[0]); },
                                          std::span(&bounds, 1), options, rng);
  return {best.log2_thresholds[0], best.objective, best.evaluations};
}

// ---- What a threshold does to a tensor --------------------------------------------------------------------------

struct OutlierStats {
  Index elements = 0;
  Index outliers = 0;               ///< |x| >= T
  Index outlier_channels = 0;       ///< columns with an outlier
  Index blocks = 0, mixed_blocks = 0;  ///< blocks with both kinds among their non-zero elements
  Index flushed = 0;                ///< non-zero elements that become zero
  double largest = 0;               ///< max |x|
  bool threshold_in_range = true;   ///< false: T is past the exponents of the format, so that one group stays empty

  double outlier_fraction() const { return fraction(outliers); }
  double flushed_fraction() const { return fraction(flushed); }

 private:
  double fraction(Index part) const { return elements ? static_cast<double>(part) / static_cast<double>(elements) : 0; }
};

/// Counts over x: [rows, cols] under format F. O(rows * cols).
template <BiExponentFormat F, class X>
OutlierStats outlier_stats(const X& x, double threshold) {
  detail::check_threshold(threshold, "outlier_stats");
  const In<X, 2> view = x;
  const auto packed = quantize<F>(view, threshold);
  OutlierStats stats;
  stats.elements = view.size();
  stats.blocks = packed.rows() * packed.blocks();
  stats.threshold_in_range =
      threshold >= std::ldexp(1.0, F::min_exponent) && threshold <= std::ldexp(1.0, F::max_exponent);
  std::vector<bool> channel(static_cast<std::size_t>(view.extent(1)), false);
  for (Index i = 0; i < packed.rows(); ++i)
    for (Index b = 0; b < packed.blocks(); ++b) {
      const auto block = packed.block(i, b);
      bool normal = false, outlier = false;
      for (Index k = 0; k < F::block && b * F::block + k < view.extent(1); ++k) {
        const Index j = b * F::block + k;
        const double magnitude = std::abs(static_cast<double>(to_float(view(i, j))));
        stats.largest = std::max(stats.largest, magnitude);
        if (block.outlier(k)) {
          ++stats.outliers;
          channel[static_cast<std::size_t>(j)] = true;
        }
        if (magnitude > 0) {
          (block.outlier(k) ? outlier : normal) = true;
          stats.flushed += block.value(k) == 0;
        }
      }
      stats.mixed_blocks += normal && outlier;
    }
  stats.outlier_channels = std::count(channel.begin(), channel.end(), true);
  return stats;
}

// ---- Objectives and calibration ---------------------------------------------------------------------------------

/// ||X W^T - X^ W^^T||^2 for one linear layer. X: [tokens, inputs], W: [outputs, inputs].
template <BiExponentFormat FX, BiExponentFormat FW = FX>
class LayerOutputError {
 public:
  LayerOutputError(Matrix<float> activations, Matrix<float> weights)
      : activations_(std::move(activations)), weights_(std::move(weights)) {
    require(activations_.size() > 0, "LayerOutputError", "the calibration set is empty");
    require(activations_.cols() == weights_.cols(), "LayerOutputError", "activations have ", activations_.cols(),
            " columns, weights have ", weights_.cols());
    output_ = activations_ * weights_.transpose();
  }

  const Matrix<float>& activations() const { return activations_; }
  const Matrix<float>& weights() const { return weights_; }

  /// Both operands quantised.
  double operator()(double activation_threshold, double weight_threshold) const {
    return error(fake_quantize<FX>(activations_, activation_threshold), fake_quantize<FW>(weights_, weight_threshold));
  }
  /// Only one of them.
  double of_activations(double threshold) const { return error(fake_quantize<FX>(activations_, threshold), weights_); }
  double of_weights(double threshold) const { return error(activations_, fake_quantize<FW>(weights_, threshold)); }

  double error(const Matrix<float>& activations, const Matrix<float>& weights) const {
    const Matrix<float> gap = activations * weights.transpose() - output_;
    return gap.template cast<double>().squaredNorm();
  }

 private:
  Matrix<float> activations_, weights_, output_;
};

/// One linear layer and the batches of inputs it was seen with.
struct CalibrationSite {
  Matrix<float> weights;                     ///< [outputs, inputs]
  std::vector<Matrix<float>> batches;        ///< [tokens, inputs] each
};

struct SiteThresholds {
  double activation = 0, weight = 0;
};

enum class CalibrationObjective {
  layer_output,  ///< ||X W^T - X^ W^^T||^2
  tensor,        ///< ||X - X^||^2 and ||W - W^||^2, without any product
};

/// Thresholds of every site, all powers of two tried: the weights first, with exact activations, then the activations
/// against the quantised weights. Throws InvalidArgument for a site without calibration data.
template <BiExponentFormat FX, BiExponentFormat FW = FX>
std::vector<SiteThresholds> calibrate(std::span<const CalibrationSite> sites,
                                      CalibrationObjective objective = CalibrationObjective::layer_output) {
  std::vector<SiteThresholds> thresholds;
  for (std::size_t s = 0; s < sites.size(); ++s) {
    const auto& site = sites[s];
    Index tokens = 0;
    for (const auto& batch : site.batches) {
      require(batch.cols() == site.weights.cols(), "calibrate", "a batch of site ", s, " has ", batch.cols(),
              " columns, its weights have ", site.weights.cols());
      tokens += batch.rows();
    }
    require(tokens > 0, "calibrate", "the calibration set of site ", s, " is empty");
    Matrix<float> all(tokens, site.weights.cols());
    Index row = 0;
    for (const auto& batch : site.batches) {
      all.middleRows(row, batch.rows()) = batch;
      row += batch.rows();
    }

    const auto weight_candidates = threshold_candidates<FW>(site.weights), candidates = threshold_candidates<FX>(all);
    SiteThresholds found;
    if (objective == CalibrationObjective::tensor) {
      const auto mse = [](const Matrix<float>& x, auto quantized) { return quantization_mse(x, quantized); };
      found.weight = search_exhaustive([&](double t) { return mse(site.weights, fake_quantize<FW>(site.weights, t)); },
                                       weight_candidates).threshold();
      found.activation =
          search_exhaustive([&](double t) { return mse(all, fake_quantize<FX>(all, t)); }, candidates).threshold();
    } else {
      const LayerOutputError<FX, FW> error(all, site.weights);
      found.weight = search_exhaustive([&](double t) { return error.of_weights(t); }, weight_candidates).threshold();
      const Matrix<float> weights = fake_quantize<FW>(site.weights, found.weight);
      found.activation =
          search_exhaustive([&](double t) { return error.error(fake_quantize<FX>(all, t), weights); }, candidates)
              .threshold();
    }
    thresholds.push_back(found);
  }
  return thresholds;
}

}  // namespace ashlar::precision
