// The update rules behind two_layer_training.hpp, over the arrays of a two-layer network.
#pragma once

#include <Eigen/Core>
#include <cmath>

#include "ashlar/core/tensor.hpp"
#include "ashlar/dynamics/two_layer_gradient.hpp"
#include "ashlar/dynamics/two_layer_network.hpp"

namespace ashlar::dynamics::detail {

/// Moments of the gradient, and what a step does with them. Rule: see UpdateRule.
template <class T, class Options>
class NetworkUpdate {
 public:
  NetworkUpdate(const TwoLayerNetwork<T>& network, const Options& options)
      : options_(options), first_(zeros(network)), second_(zeros(network)) {}

  void step(TwoLayerNetwork<T>& network, const NetworkGradient<T>& gradient) {
    ++steps_;
    update(network.weights, gradient.weights, first_.weights, second_.weights);
    update(network.bias, gradient.bias, first_.bias, second_.bias);
    if (!options_.train_output) return;
    update(network.output, gradient.output, first_.output, second_.output);
    const auto scalar = [](auto& x) { return Eigen::Map<Eigen::Matrix<T, 1, 1>>(&x); };
    auto bias = scalar(network.output_bias), first = scalar(first_.output_bias), second = scalar(second_.output_bias);
    update(bias, Eigen::Matrix<T, 1, 1>(gradient.output_bias), first, second);
  }

 private:
  static NetworkGradient<T> zeros(const TwoLayerNetwork<T>& network) {
    return {0, Matrix<T>::Zero(network.hidden(), network.dim()), Vector<T>::Zero(network.bias.size()),
            Vector<T>::Zero(network.output.size()), 0};
  }

  template <class Parameter, class Gradient, class Moment>
  void update(Parameter& parameter, const Gradient& gradient, Moment& first, Moment& second) const {
    using Rule = decltype(options_.rule);
    auto theta = parameter.array();
    auto m = first.array(), v = second.array();
    const T rate = static_cast<T>(options_.learning_rate), decay = static_cast<T>(options_.weight_decay);
    if (options_.rule == Rule::sgd) {
      m = static_cast<T>(options_.momentum) * m + (gradient.array() + decay * theta);
      theta -= rate * m;
      return;
    }
    constexpr double beta1 = 0.9, beta2 = 0.999;
    const T keep1 = static_cast<T>(beta1), keep2 = static_cast<T>(beta2), epsilon = static_cast<T>(1e-8);
    const T scale1 = static_cast<T>(1 - std::pow(beta1, steps_)), scale2 = static_cast<T>(1 - std::pow(beta2, steps_));
    const bool decoupled = options_.rule == Rule::adamw;
    if (decoupled) theta *= 1 - rate * decay;
    const T coupled = decoupled ? T(0) : decay;
    m = keep1 * m + (1 - keep1) * (gradient.array() + coupled * theta);
    v = keep2 * v + (1 - keep2) * (gradient.array() + coupled * theta).square();
    theta -= rate * (m / scale1) / ((v / scale2).sqrt() + epsilon);
  }

  Options options_;
  NetworkGradient<T> first_, second_;
  double steps_ = 0;
};

}  // namespace ashlar::dynamics::detail
