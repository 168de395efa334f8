// Two-layer networks with one output, f(x) = sum_k a_k s(h_k) + c with h = W x + b, the losses they are trained on, and
// their usual initialisations. two_layer_gradient.hpp has their gradients.
//
//   Rng rng(0);
//   const auto theory = random_network<double>(rng, 64, 128);                    // normal W, a = +-1/m, no biases
//   const auto study = uniform_network<float>(rng, 256, 256, Activation::tanh);  // all parameters random
//
// Derivatives where there is none: that of relu at 0 is 0, that of the hinge at margin 1 is 0.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string_view>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::dynamics {

namespace detail {
template <class T>
inline constexpr T leaky_slope = T(0.1);
}

/// identity makes the network linear in x: the control that does not contaminate. leaky_relu has slope 0.1 below 0,
/// gelu is the exact one, h Phi(h).
enum class Activation { identity, relu, leaky_relu, gelu, sigmoid, tanh };

/// Of an output f and a label y = +-1: max(0, 1 - y f), log(1 + e^(-y f)), (f - y)^2.
enum class Loss { hinge, logistic, squared };

/// s(h).
template <Real T>
T activate(Activation activation, T h) {
  switch (activation) {
    case Activation::identity:
      return h;
    case Activation::relu:
      return h > 0 ? h : T(0);
    case Activation::leaky_relu:
      return h > 0 ? h : detail::leaky_slope<T> * h;
    case Activation::gelu:
      return h / 2 * std::erfc(-h / std::numbers::sqrt2_v<T>);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-h));
    case Activation::tanh:
      break;
  }
  return std::tanh(h);
}

/// s'(h).
template <Real T>
T activation_slope(Activation activation, T h) {
  switch (activation) {
    case Activation::identity:
      return 1;
    case Activation::relu:
      return h > 0 ? T(1) : T(0);
    case Activation::leaky_relu:
      return h > 0 ? T(1) : detail::leaky_slope<T>;
    case Activation::gelu: {
      constexpr T density_at_zero = std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>;
      return std::erfc(-h / std::numbers::sqrt2_v<T>) / 2 + h * density_at_zero * std::exp(-h * h / 2);
    }
    case Activation::sigmoid: {
      const T s = activate(activation, h);
      return s * (1 - s);
    }
    case Activation::tanh:
      break;
  }
  const T s = std::tanh(h);
  return (1 - s) * (1 + s);
}

template <Real T>
struct LossTerms {
  T value, slope;  ///< l(f, y) and its derivative by f
};

/// Finite for every finite f: the logistic loss of a margin u is max(0, -u) + log(1 + e^-|u|).
template <Real T>
LossTerms<T> loss_terms(Loss loss, T f, T y) {
  const T margin = y * f;
  switch (loss) {
    case Loss::hinge:
      return margin < 1 ? LossTerms<T>{1 - margin, -y} : LossTerms<T>{0, 0};
    case Loss::logistic:
      return {std::max(T(0), -margin) + std::log1p(std::exp(-std::abs(margin))), -y / (1 + std::exp(margin))};
    case Loss::squared:
      break;
  }
  return {(f - y) * (f - y), 2 * (f - y)};
}

template <Real T>
struct TwoLayerNetwork {
  Matrix<T> weights;  ///< W: [m, d]
  Vector<T> bias;     ///< b: [m], or empty where there is none
  Vector<T> output;   ///< a: [m]
  T output_bias = 0;  ///< c
  Activation activation = Activation::relu;

  Index hidden() const { return weights.rows(); }
  Index dim() const { return weights.cols(); }
};

enum class OutputSigns {
  halves,  ///< the first floor(m / 2) neurons get +1/m, the others -1/m
  random,  ///< fair coins, as in the paper's theorems
};

struct RandomNetworkOptions {
  Activation activation = Activation::relu;
  std::optional<double> deviation = {};  ///< of the entries of W; 1 / sqrt(d) when left out
  OutputSigns signs = OutputSigns::halves;
};

/// The theory's network: normal W, a = +-1/m, no biases. Throws InvalidArgument for fewer than one neuron or dimension,
/// and for a relu network with deviation 0, which no gradient would ever move.
template <Real T>
TwoLayerNetwork<T> random_network(Rng& rng, Index hidden, Index d, const RandomNetworkOptions& options = {}) {
  constexpr auto function = "random_network";
  check_argument(hidden >= 1, function, "hidden", "at least 1", hidden);
  check_argument(d >= 1, function, "d", "at least 1", d);
  const double deviation = options.deviation.value_or(1 / std::sqrt(static_cast<double>(d)));
  check_argument(deviation >= 0 && std::isfinite(deviation), function, "deviation", "finite and not negative",
                 deviation);
  check_argument(deviation > 0 || options.activation != Activation::relu, function, "deviation",
                 "positive for relu, whose gradient at W = 0 is 0 for ever", deviation);
  TwoLayerNetwork<T> network{normal_matrix<T>(rng, hidden, d, deviation), {}, Vector<T>(hidden), 0, options.activation};
  const T size = 1 / static_cast<T>(hidden);
  for (Index k = 0; k < hidden; ++k) {
    const bool positive = options.signs == OutputSigns::halves ? k < hidden / 2 : rng() >> 31 != 0;
    network.output[k] = positive ? size : -size;
  }
  return network;
}

/// The released study's network: every parameter uniform on +-1 / sqrt(inputs of its layer), biases too. With
/// frozen_output a is +1/m for the first half and -1/m for the second, to be left out of the updates; c stays random.
template <Real T>
TwoLayerNetwork<T> uniform_network(Rng& rng, Index hidden, Index d, Activation activation, bool frozen_output = false) {
  constexpr auto function = "uniform_network";
  check_argument(hidden >= 1, function, "hidden", "at least 1", hidden);
  check_argument(d >= 1, function, "d", "at least 1", d);
  const auto uniform = [&](Index inputs) {
    const double bound = 1 / std::sqrt(static_cast<double>(inputs));
    return static_cast<T>(rng.uniform(-bound, bound));
  };
  TwoLayerNetwork<T> network{Matrix<T>(hidden, d), Vector<T>(hidden), Vector<T>(hidden), 0, activation};
  for (Index i = 0; i < network.weights.size(); ++i) network.weights.data()[i] = uniform(d);
  for (T& b : network.bias) b = uniform(d);
  for (T& a : network.output) a = uniform(hidden);
  network.output_bias = uniform(hidden);
  if (frozen_output)
    for (Index k = 0; k < hidden; ++k) network.output[k] = (k < hidden / 2 ? T(1) : T(-1)) / static_cast<T>(hidden);
  return network;
}

namespace detail {

/// Zero times a finite number adds nothing to a sum; anything else makes it NaN.
template <class T>
bool all_finite(const T* x, Index n) {
  using V = simd::batch<T>;
  constexpr Index w = simd::width<T>;
  V even(T(0)), odd(T(0));
  Index i = 0;
  for (; i + 2 * w <= n; i += 2 * w) {
    even = simd::fma(simd::load(x + i), V(T(0)), even);
    odd = simd::fma(simd::load(x + i + w), V(T(0)), odd);
  }
  T sum = simd::reduce_add(even + odd);
  for (; i < n; ++i) sum += x[i] * T(0);
  return sum == 0;
}

template <class T>
void check_network(std::string_view function, const TwoLayerNetwork<T>& network) {
  const Index m = network.hidden();
  require(m >= 1 && network.dim() >= 1, function, "network.weights has shape ",
          View<const T, 2>(network.weights).shape(), ", expected at least one row and one column");
  check_shape(function, "network.output", View<const T, 1>(network.output).shape(), {m}, "one weight a neuron");
  if (network.bias.size() != 0)
    check_shape(function, "network.bias", View<const T, 1>(network.bias).shape(), {m}, "one a neuron, or none");
  const auto finite = [](const auto& x) { return all_finite(x.data(), x.size()); };
  require(
      finite(network.weights) && finite(network.bias) && finite(network.output) && std::isfinite(network.output_bias),
      function, "network has a parameter that is not finite");
}

template <class T>
void check_inputs(std::string_view function, std::string_view name, const TwoLayerNetwork<T>& network,
                  const View<const T, 2>& x) {
  check_shape(function, name, x.shape(), {x.extent(0), network.dim()}, "one column an input of the network");
  require(x.extent(0) >= 1, function, name, " has no rows");
  for (Index i = 0; i < x.extent(0); ++i) {
    if (x.stride(1) == 1 && all_finite(x[i].data(), x.extent(1))) continue;
    for (Index j = 0; j < x.extent(1); ++j)
      if (!std::isfinite(x(i, j))) require(false, function, name, "(", i, ",", j, ") is ", x(i, j), ", not finite");
  }
}

template <class T>
void check_labels(std::string_view function, std::string_view name, const View<const T, 1>& y, Index samples) {
  check_shape(function, name, y.shape(), {samples}, "one label a sample");
  for (Index i = 0; i < samples; ++i)
    if (y[i] != 1 && y[i] != -1) require(false, function, name, "[", i, "] must be -1 or 1, got ", y[i]);
}

}  // namespace detail

}  // namespace ashlar::dynamics
