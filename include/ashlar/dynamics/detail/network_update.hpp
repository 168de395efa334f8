// The update rules behind two_layer_training.hpp, over the arrays of a two-layer network.
#pragma once

#include <cstddef>
#include <span>

#include "ashlar/core/tensor.hpp"
#include "ashlar/dynamics/two_layer_gradient.hpp"
#include "ashlar/dynamics/two_layer_network.hpp"
#include "ashlar/functional/descent.hpp"

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
    update(network.output_bias, gradient.output_bias, first_.output_bias, second_.output_bias);
  }

 private:
  static NetworkGradient<T> zeros(const TwoLayerNetwork<T>& network) {
    return {0, Matrix<T>::Zero(network.hidden(), network.dim()), Vector<T>::Zero(network.bias.size()),
            Vector<T>::Zero(network.output.size()), 0};
  }

  static std::span<T> elements(T& x) { return {&x, 1}; }
  static std::span<const T> elements(const T& x) { return {&x, 1}; }
  template <class X>
  static auto elements(X& x) {
    return std::span(x.data(), static_cast<std::size_t>(x.size()));
  }

  template <class X>
  void update(X& parameter, const X& gradient, X& first, X& second) const {
    using Rule = decltype(options_.rule);
    if (options_.rule == Rule::sgd)
      return functional::sgd_update<T>(elements(parameter), elements(gradient), elements(first),
                                       {.learning_rate = options_.learning_rate,
                                        .momentum = options_.momentum,
                                        .weight_decay = options_.weight_decay});
    functional::adam_update<T>(elements(parameter), elements(gradient), elements(first), elements(second), steps_,
                               options_.rule == Rule::adamw ? functional::Decay::apart : functional::Decay::in_gradient,
                               {.learning_rate = options_.learning_rate, .weight_decay = options_.weight_decay});
  }

  Options options_;
  NetworkGradient<T> first_, second_;
  Index steps_ = 0;
};

}  // namespace ashlar::dynamics::detail
