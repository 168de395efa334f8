// One step of gradient descent on arrays: SGD with momentum, Adam, AdamW.
//
//   functional::adam_update<float>(w, gradient, m, v, step, functional::Decay::apart, {.learning_rate = 3e-4});
//
// Roof: copy bandwidth; one pass over value, gradient and state. The same bits for any number of threads.
//
// Source: Kingma, Ba, Adam: A Method for Stochastic Optimization, ICLR 2015; Loshchilov, Hutter, Decoupled Weight Decay
// Regularization, ICLR 2019.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <span>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/functional/elementwise.hpp"

namespace ashlar::functional {

struct SgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0;      ///< mu in  u = mu u + g  (the first u is g)
  bool nesterov = false;    ///< steps along g + mu u instead of u
  double weight_decay = 0;  ///< added to the gradient, times the parameter
};

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;     ///< decay of the mean of the gradient
  double beta2 = 0.999;   ///< decay of the mean of its square
  double epsilon = 1e-8;  ///< added to the root of the latter
  double weight_decay = 0;
};

/// One step on arrays, for parameters that are no module's. velocity: u, zeros at first; all of one size.
template <Real T>
void sgd_update(std::span<T> w, std::span<const T> gradient, std::span<T> velocity, const SgdOptions& options) {
  require(gradient.size() == w.size() && velocity.size() == w.size(), "sgd_update", "the arrays differ in size");
  using Array = Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>>;
  using ConstArray = Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>>;
  const auto rate = static_cast<T>(options.learning_rate), mu = static_cast<T>(options.momentum),
             decay = static_cast<T>(options.weight_decay);
  parallel_for(static_cast<Index>(w.size()), elementwise_grain, [&](Index begin, Index end) {
    Array value(w.data() + begin, end - begin), u(velocity.data() + begin, end - begin);
    const ConstArray g(gradient.data() + begin, end - begin);
    u = mu * u + (g + decay * value);
    if (options.nesterov)
      value -= rate * (g + decay * value + mu * u);
    else
      value -= rate * u;
  });
}

/// Where weight decay acts: through the gradient, as if |w|^2 / 2 were part of the loss, or on the parameter itself.
enum class Decay { in_gradient, apart };

/// Step number `step` (from 1) on arrays of one size; m and v are zeros at first.
///   g += weight_decay w  (in_gradient)   or   w -= learning_rate weight_decay w  (apart)
///   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
///   w -= learning_rate m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + epsilon)
template <Real T>
void adam_update(std::span<T> w, std::span<const T> gradient, std::span<T> m, std::span<T> v, Index step, Decay decay,
                 const AdamOptions& options) {
  require(gradient.size() == w.size() && m.size() == w.size() && v.size() == w.size(), "adam_update",
          "the arrays differ in size");
  check_argument(step >= 1, "adam_update", "step", "at least 1", step);
  using V = simd::batch<T>;
  const bool apart = decay == Decay::apart;
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(step)),
               correction2 = 1 - std::pow(options.beta2, static_cast<double>(step));
  const V beta1(static_cast<T>(options.beta1)), beta2(static_cast<T>(options.beta2)),
      rest1(static_cast<T>(1 - options.beta1)), rest2(static_cast<T>(1 - options.beta2)),
      epsilon(static_cast<T>(options.epsilon)), root(static_cast<T>(1 / std::sqrt(correction2))),
      rate(static_cast<T>(options.learning_rate / correction1)),
      coupled(static_cast<T>(apart ? 0 : options.weight_decay)),
      kept(static_cast<T>(apart ? 1 - options.learning_rate * options.weight_decay : 1));
  const auto lanes = [&](const V& old, const V& given, V& mean, V& square) {
    const V g = simd::fma(coupled, old, given);
    mean = simd::fma(beta1, mean, rest1 * g);
    square = simd::fma(beta2, square, rest2 * (g * g));
    return old * kept - rate * mean / simd::fma(xsimd::sqrt(square), root, epsilon);
  };
  parallel_for(static_cast<Index>(w.size()), elementwise_grain, [&](Index begin, Index end) {
    constexpr Index width = simd::width<T>;
    T* const value = w.data();
    T* const first = m.data();
    T* const second = v.data();
    Index i = begin;
    for (; i + width <= end; i += width) {
      V mean = simd::load(first + i), square = simd::load(second + i);
      simd::store(value + i, lanes(simd::load(value + i), simd::load(gradient.data() + i), mean, square));
      simd::store(first + i, mean);
      simd::store(second + i, square);
    }
    for (; i < end; ++i) {  // one number in all lanes, so that it is computed like the others
      V mean(first[i]), square(second[i]);
      value[i] = lanes(V(value[i]), V(gradient.data()[i]), mean, square).get(0);
      first[i] = mean.get(0);
      second[i] = square.get(0);
    }
  });
}

}  // namespace ashlar::functional
