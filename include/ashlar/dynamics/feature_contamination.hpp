// Feature contamination: a network trained by gradients takes up features that have nothing to do with the label, along
// with those that do. Under a shift of those background features its loss rises to the order of 1.
//
//   const ContaminationReport report = diagnose(network, model.basis, x, y, x_shifted, y, Loss::hinge);
//   report.background;                              // mean over neurons of |w_k's background projections|
//   report.own_rate - report.other_rate;            // how much the neurons fire for one class alone
//   report.shifted.loss - report.trained.loss;      // what it costs
//   gradient_decomposition(network, model.basis, x, y, Loss::hinge).asymmetry;     // where it comes from
//
// The mechanism. With P = W Q the pull of a step on neuron k along feature m_j is
//
//   -dL/dw_k . m_j = E[r_k c_j] = E[r_k] E[c_j] + Cov(r_k, c_j),     r_k = -l' a_k s'(h_k),  c_j = x . m_j.
//
// For the hinge r_k = y a_k where the neuron is active and the margin is not met, so for a background feature
//   E[r_k] = a_k (Pr[active, y = 1, margin < 1] - Pr[active, y = -1, margin < 1]).
// A linear unit is active for both classes: the two halves cancel. A relu neuron first aligns with the core features of
// the class it votes for, then fires for that class alone; nothing cancels the pull E[c_j] of its own class any more,
// and all neurons take the background up with the same sign. Where the background has mean 0 only the covariance is
// left. The shift c_j -> -c_j lowers the pre-activations of all neurons together, which costs both classes their
// margin.
//
// Source: Zhang, Zhao, Chen, Jiang, Feng, "Feature Contamination", ICML 2024, arXiv 2406.03345 (the phenomenon, mean
// projection norms). The decomposition, the rates and the counterfactual are derived here.
#pragma once

#include <Eigen/Core>
#include <Eigen/QR>
#include <string_view>
#include <type_traits>

#include "ashlar/core/error.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/dynamics/structured_features.hpp"
#include "ashlar/dynamics/two_layer_gradient.hpp"
#include "ashlar/dynamics/two_layer_network.hpp"

namespace ashlar::dynamics {

namespace detail {

/// weights as double, after checking that they are numbers in the space of the directions.
template <class T>
Matrix<double> checked_weights(std::string_view function, const View<const T, 2>& weights,
                               const View<const double, 2>& directions) {
  check_shape(function, "weights", weights.shape(), {weights.extent(0), directions.extent(0)},
              "one column a dimension of the directions");
  const Matrix<double> w = matrix(weights).template cast<double>();
  require(w.allFinite(), function, "weights has an entry that is not finite");
  require(matrix(directions).allFinite(), function, "directions has an entry that is not finite");
  return w;
}

}  // namespace detail

/// P = W Q: [m, features], the weights of any first layer W: [m, d] along directions Q: [d, features].
template <class W>
Matrix<double> feature_projections(const W& weights, View<const double, 2> directions) {
  const Matrix<double> w = detail::checked_weights<scalar_t<W>>("feature_projections", weights, directions);
  return w * matrix(directions);
}

/// W without its part in the span of the directions, W - W B B' for an orthonormal basis B of it: [m, d]. The
/// directions need not be orthogonal, nor independent. O(d features (features + m)).
template <class W>
Matrix<scalar_t<W>> project_out(const W& weights, View<const double, 2> directions) {
  Matrix<double> w = detail::checked_weights<scalar_t<W>>("project_out", weights, directions);
  if (directions.extent(1) > 0) {
    const Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr(matrix(directions));
    const Index rank = qr.rank();
    const Eigen::MatrixXd basis = qr.householderQ() * Eigen::MatrixXd::Identity(directions.extent(0), rank);
    w -= (w * basis).eval() * basis.transpose();
  }
  return w.template cast<scalar_t<W>>();
}

struct ActivationRates {
  Vector<double> own;    ///< [m]: Pr[h_k > 0 | y = sign a_k]
  Vector<double> other;  ///< [m]: Pr[h_k > 0 | y = -sign a_k]
};

/// How often each neuron fires for the class it votes for and for the other one. A neuron with a_k = 0 counts as one
/// that votes for +1. NaN for a class that is not among the labels.
template <Real T>
ActivationRates activation_rates(const TwoLayerNetwork<T>& network, View<const std::type_identity_t<T>, 2> x,
                                 View<const std::type_identity_t<T>, 1> y) {
  detail::check_labels("activation_rates", "y", y, x.extent(0));
  const Matrix<T> h = pre_activations(network, x);
  Vector<double> positive = Vector<double>::Zero(h.cols()), negative = positive;
  double positives = 0;
  for (Index i = 0; i < h.rows(); ++i) {
    Vector<double>& fired = y[i] > 0 ? positive : negative;
    positives += y[i] > 0;
    for (Index k = 0; k < h.cols(); ++k) fired[k] += h(i, k) > 0;
  }
  positive /= positives;
  negative /= static_cast<double>(h.rows()) - positives;
  ActivationRates rates{positive, negative};
  for (Index k = 0; k < h.cols(); ++k)
    if (network.output[k] < 0) std::swap(rates.own[k], rates.other[k]);
  return rates;
}

struct ContaminationReport {
  // Means over neurons, of row k of P = W Q split into its core and background part.
  double core = 0;             ///< |P_core|
  double background = 0;       ///< |P_background|: the contamination
  double core_signed = 0;      ///< sign(a_k) P_core, mean over features too: positive where neurons vote as they see
  double background_mean = 0;  ///< P_background, mean over features too: what all neurons have in common
  double outside_share = 0;    ///< of |W|^2, outside the span of all features
  double own_rate = 0, other_rate = 0;  ///< means of the rates below; NaN where a class is missing
  double asymmetric_share = 0;  ///< of neurons that fire for at least 0.9 of one class and 0.1 of the other at most

  Evaluation trained{}, shifted{};  ///< on the training law and on the shifted one
  /// The same without the background projections of W. The background helps to reach the margin, so the loss is not
  /// that of `trained`; it is the same on both laws where directions are orthonormal and samples differ in background
  /// alone.
  Evaluation trained_projected{}, shifted_projected{};

  Vector<double> core_norms, background_norms;  ///< [m], of the rows of P
  ActivationRates rates;                        ///< [m] each, on the training law

  /// |P_background| over |P_core|, of the means.
  double contamination() const { return background / core; }
};

/// Everything at once. x, y: samples of the training law, x_shifted, y_shifted: of the shifted one.
template <Real T>
ContaminationReport diagnose(const TwoLayerNetwork<T>& network, const FeatureBasis& basis,
                             View<const std::type_identity_t<T>, 2> x, View<const std::type_identity_t<T>, 1> y,
                             View<const std::type_identity_t<T>, 2> x_shifted,
                             View<const std::type_identity_t<T>, 1> y_shifted, Loss loss) {
  constexpr auto function = "diagnose";
  detail::check_network(function, network);
  check_argument(network.dim() == basis.dim(), function, "network.dim()", message(basis.dim(), " as of the basis"),
                 network.dim());
  detail::check_inputs(function, "x", network, x);
  detail::check_inputs(function, "x_shifted", network, x_shifted);
  detail::check_labels(function, "y", y, x.extent(0));
  detail::check_labels(function, "y_shifted", y_shifted, x_shifted.extent(0));

  ContaminationReport report;
  const Matrix<double> p = feature_projections(network.weights, basis.directions());
  const auto core = p.leftCols(basis.core()), background = p.rightCols(basis.background());
  report.core_norms = core.rowwise().norm();
  report.background_norms = background.rowwise().norm();
  report.core = report.core_norms.mean();
  report.background = report.background_norms.mean();
  for (Index k = 0; k < p.rows(); ++k) report.core_signed += (network.output[k] < 0 ? -1 : 1) * core.row(k).sum();
  if (core.size() > 0) report.core_signed /= static_cast<double>(core.size());
  if (background.size() > 0) report.background_mean = background.sum() / static_cast<double>(background.size());
  const double energy = network.weights.template cast<double>().squaredNorm();
  if (energy > 0)
    report.outside_share =
        project_out(network.weights.template cast<double>().eval(), basis.directions()).squaredNorm() / energy;

  report.rates = activation_rates(network, x, y);
  report.own_rate = report.rates.own.mean();
  report.other_rate = report.rates.other.mean();
  Index asymmetric = 0;
  for (Index k = 0; k < p.rows(); ++k) asymmetric += report.rates.own[k] >= 0.9 && report.rates.other[k] <= 0.1;
  report.asymmetric_share = static_cast<double>(asymmetric) / static_cast<double>(p.rows());

  report.trained = evaluate(network, x, y, loss);
  report.shifted = evaluate(network, x_shifted, y_shifted, loss);
  TwoLayerNetwork<T> projected = network;
  projected.weights = project_out(network.weights, basis.background_directions());
  report.trained_projected = evaluate(projected, x, y, loss);
  report.shifted_projected = evaluate(projected, x_shifted, y_shifted, loss);
  return report;
}

/// The pull -dL/dw_k . m_j on every neuron along every feature, each [m, features], taken apart in two ways.
struct GradientDecomposition {
  Matrix<double> positive;    ///< from samples of class +1
  Matrix<double> negative;    ///< from samples of class -1
  Matrix<double> asymmetry;   ///< E[r_k] E[c_j]: from firing for one class more than for the other
  Matrix<double> covariance;  ///< Cov(r_k, c_j): the rest

  Matrix<double> sum() const { return positive + negative; }
};

/// On samples x: [n, d], y: [n]. O(n m (d + features)).
template <Real T>
GradientDecomposition gradient_decomposition(const TwoLayerNetwork<T>& network, const FeatureBasis& basis,
                                             View<const std::type_identity_t<T>, 2> x,
                                             View<const std::type_identity_t<T>, 1> y, Loss loss) {
  constexpr auto function = "gradient_decomposition";
  detail::check_network(function, network);
  check_argument(network.dim() == basis.dim(), function, "network.dim()", message(basis.dim(), " as of the basis"),
                 network.dim());
  detail::check_labels(function, "y", y, x.extent(0));
  const Matrix<T> h = pre_activations(network, x);
  const Vector<T> f = forward(network, x);
  const Matrix<double> coefficients = matrix(x).template cast<double>() * basis.directions();
  const Index n = h.rows(), m = h.cols();
  Matrix<double> pulls[2] = {Matrix<double>::Zero(n, m), Matrix<double>::Zero(n, m)};  // r / n, of class -1 and +1
  for (Index i = 0; i < n; ++i) {
    const double slope = static_cast<double>(loss_terms(loss, f[i], y[i]).slope) / static_cast<double>(n);
    for (Index k = 0; k < m; ++k)
      pulls[y[i] > 0](i, k) = -slope * static_cast<double>(network.output[k]) *
                              static_cast<double>(activation_slope(network.activation, h(i, k)));
  }
  GradientDecomposition out;
  out.positive.noalias() = pulls[1].transpose() * coefficients;
  out.negative.noalias() = pulls[0].transpose() * coefficients;
  const Eigen::RowVectorXd mean_pull = pulls[0].colwise().sum() + pulls[1].colwise().sum();
  const Eigen::RowVectorXd mean_coefficient = coefficients.colwise().mean();
  out.asymmetry.noalias() = mean_pull.transpose() * mean_coefficient;
  out.covariance = out.sum() - out.asymmetry;
  return out;
}

}  // namespace ashlar::dynamics
