// Gradients of two-layer networks in closed form, no tape:
//
//   f(x) = sum_k a_k s(h_k) + c,     h = W x + b,                    L = mean_i l(f(x_i), y_i),  y_i = +-1
//   dL/dW = D' X,  dL/db = D' 1,     D_ik = l'_i a_k s'(h_ik) / n
//   dL/da_k = mean_i l'_i s(h_ik),   dL/dc = mean_i l'_i
//
//   Rng rng(0);
//   auto network = random_network<double>(rng, 64, 128);          // W normal, a = +-1/m, no biases
//   Matrix<double> gradient(64, 128);
//   Workspace workspace;
//   double loss = loss_and_gradient(network, x, y, Loss::hinge, View<double, 2>(gradient), workspace);
//   sgd_step(network, gradient, 2.0, 1e-3);                       // W <- (1 - 0.002) W - 2 gradient
//
// Samples go by blocks: a block's pre-activations become its part of D while they are in cache, and samples whose
// margin is met (hinge) leave the second product. Roof: 4 n m d flops in two matrix products, of which the second
// shrinks with the share of samples that still pull.
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/dynamics/detail/two_layer_kernel.hpp"
#include "ashlar/dynamics/two_layer_network.hpp"

namespace ashlar::dynamics {

/// The loss and its derivative by every parameter, in the shapes of the parameters.
template <Real T>
struct NetworkGradient {
  double loss = 0;    ///< mean over the samples
  Matrix<T> weights;  ///< [m, d]
  Vector<T> bias;     ///< [m], or empty
  Vector<T> output;   ///< [m]
  T output_bias = 0;
};

/// h = W x + b: [n, m].
template <Real T>
Matrix<T> pre_activations(const TwoLayerNetwork<T>& network, View<const std::type_identity_t<T>, 2> x) {
  constexpr auto function = "pre_activations";
  detail::check_network(function, network);
  detail::check_inputs(function, "x", network, x);
  Matrix<T> h(x.extent(0), network.hidden());
  Workspace workspace;
  detail::TwoLayerScratch<T> scratch(network, x, false, workspace);
  parallel_for(h.rows(), detail::sample_block, [&](Index begin, Index end) {
    std::copy_n(scratch.pre_activations(network, begin, end), (end - begin) * h.cols(), h.row(begin).data());
  });
  return h;
}

/// f(x): [n] for x: [n, d].
template <Real T>
void forward(const TwoLayerNetwork<T>& network, View<const std::type_identity_t<T>, 2> x,
             View<std::type_identity_t<T>, 1> out, Workspace& workspace) {
  constexpr auto function = "forward";
  detail::check_network(function, network);
  detail::check_inputs(function, "x", network, x);
  check_shape(function, "out", out.shape(), {x.extent(0)}, "one a sample");
  require(!overlaps(out, x), function, "out overlaps x");
  detail::TwoLayerScratch<T> scratch(network, x, false, workspace);
  parallel_for(x.extent(0), detail::sample_block, [&](Index begin, Index end) {
    const T* const h = scratch.pre_activations(network, begin, end);
    for (Index i = begin; i < end; ++i) out[i] = detail::output_of(network, h + (i - begin) * network.hidden());
  });
}
template <Real T>
Vector<T> forward(const TwoLayerNetwork<T>& network, View<const std::type_identity_t<T>, 2> x) {
  Vector<T> out(x.extent(0));
  Workspace workspace;
  forward(network, x, out, workspace);
  return out;
}

struct Evaluation {
  double loss;      ///< mean over the samples
  double accuracy;  ///< share with y f > 0
};

template <Real T>
Evaluation evaluate(const TwoLayerNetwork<T>& network, View<const std::type_identity_t<T>, 2> x,
                    View<const std::type_identity_t<T>, 1> y, Loss loss) {
  detail::check_labels("evaluate", "y", y, x.extent(0));
  const Vector<T> f = forward(network, x);
  double sum = 0;
  Index right = 0;
  for (Index i = 0; i < f.size(); ++i) {
    sum += static_cast<double>(loss_terms(loss, f[i], y[i]).value);
    right += y[i] * f[i] > 0;
  }
  const auto n = static_cast<double>(f.size());
  return {sum / n, static_cast<double>(right) / n};
}

namespace reference {

/// The formulas at the top, one sample and one neuron after another. The oracle of the tests.
template <Real T>
NetworkGradient<T> loss_and_gradient(const TwoLayerNetwork<T>& network, View<const std::type_identity_t<T>, 2> x,
                                     View<const std::type_identity_t<T>, 1> y, Loss loss) {
  const Index n = x.extent(0), m = network.hidden();
  const bool biased = network.bias.size() != 0;
  NetworkGradient<T> out{0, Matrix<T>::Zero(m, network.dim()), Vector<T>::Zero(network.bias.size()), Vector<T>::Zero(m),
                         0};
  for (Index i = 0; i < n; ++i) {
    const Vector<T> input = vector(x[i]);
    Vector<T> h = network.weights * input;
    if (biased) h += network.bias;
    T f = network.output_bias;
    for (Index k = 0; k < m; ++k) f += network.output[k] * activate(network.activation, h[k]);
    const LossTerms<T> terms = loss_terms(loss, f, y[i]);
    const T slope = terms.slope / static_cast<T>(n);
    out.loss += static_cast<double>(terms.value) / static_cast<double>(n);
    out.output_bias += slope;
    for (Index k = 0; k < m; ++k) {
      const T signal = slope * network.output[k] * activation_slope(network.activation, h[k]);
      out.weights.row(k) += signal * input.transpose();
      if (biased) out.bias[k] += signal;
      out.output[k] += slope * activate(network.activation, h[k]);
    }
  }
  return out;
}

}  // namespace reference

namespace detail {

/// Gradients into what is not empty. Returns the mean loss.
template <class T>
double backward(std::string_view function, const TwoLayerNetwork<T>& network, const View<const T, 2>& x,
                const View<const T, 1>& y, Loss loss, const View<T, 2>& weights, const View<T, 1>& bias,
                const View<T, 1>& output, T* output_bias, Workspace& workspace) {
  check_network(function, network);
  check_inputs(function, "x", network, x);
  check_labels(function, "y", y, x.extent(0));
  check_shape(function, "gradient", weights.shape(), {network.hidden(), network.dim()}, "same shape as the weights");
  require(!overlaps(weights, x) && !overlaps(weights, y) && !overlaps(weights, View<const T, 2>(network.weights)),
          function, "gradient overlaps an input");
  TwoLayerScratch<T> scratch(network, x, true, workspace);
  scratch.backward_samples(network, loss, y, !output.empty());
  scratch.drop_silent_samples();
  scratch.weight_gradient(weights, bias);
  if (!output.empty()) scratch.output_gradient(output, *output_bias);
  return scratch.mean_loss();
}

inline void check_step(std::string_view function, double learning_rate, double weight_decay) {
  check_argument(learning_rate > 0 && std::isfinite(learning_rate), function, "learning_rate", "positive and finite",
                 learning_rate);
  check_argument(weight_decay >= 0 && std::isfinite(weight_decay), function, "weight_decay", "finite and not negative",
                 weight_decay);
}

}  // namespace detail

/// The mean loss over the rows of x: [n, d] with labels y: [n], and its derivative by W into gradient: [m, d]. Scratch
/// n (m + d) numbers. Allocates nothing once the workspace has grown, but for what Eigen packs large products into. The
/// same bits for any number of threads.
/// Throws InvalidArgument for n = 0, shapes that do not fit, labels other than +-1 and numbers that are not finite.
template <Real T>
double loss_and_gradient(const TwoLayerNetwork<T>& network, View<const std::type_identity_t<T>, 2> x,
                         View<const std::type_identity_t<T>, 1> y, Loss loss, View<std::type_identity_t<T>, 2> gradient,
                         Workspace& workspace) {
  return detail::backward<T>("loss_and_gradient", network, x, y, loss, gradient, {}, {}, nullptr, workspace);
}

/// With the derivatives by all parameters, into `gradient`, which takes the shapes of the parameters.
template <Real T>
void loss_and_gradient(const TwoLayerNetwork<T>& network, View<const std::type_identity_t<T>, 2> x,
                       View<const std::type_identity_t<T>, 1> y, Loss loss, NetworkGradient<T>& gradient,
                       Workspace& workspace) {
  gradient.weights.resize(network.hidden(), network.dim());
  gradient.bias.resize(network.bias.size());
  gradient.output.resize(network.output.size());
  gradient.loss = detail::backward<T>("loss_and_gradient", network, x, y, loss, gradient.weights, gradient.bias,
                                      gradient.output, &gradient.output_bias, workspace);
}
template <Real T>
NetworkGradient<T> loss_and_gradient(const TwoLayerNetwork<T>& network, View<const std::type_identity_t<T>, 2> x,
                                     View<const std::type_identity_t<T>, 1> y, Loss loss) {
  NetworkGradient<T> gradient;
  Workspace workspace;
  loss_and_gradient(network, x, y, loss, gradient, workspace);
  return gradient;
}

/// W <- (1 - learning_rate weight_decay) W - learning_rate gradient, gradient: [m, d]. The decay multiplies, as in the
/// paper's analysis.
template <Real T>
void sgd_step(TwoLayerNetwork<T>& network, View<const std::type_identity_t<T>, 2> gradient, double learning_rate,
              double weight_decay) {
  constexpr auto function = "sgd_step";
  detail::check_step(function, learning_rate, weight_decay);
  check_shape(function, "gradient", gradient.shape(), {network.hidden(), network.dim()}, "same shape as the weights");
  const T keep = static_cast<T>(1 - learning_rate * weight_decay), rate = static_cast<T>(learning_rate);
  for (Index k = 0; k < network.hidden(); ++k)
    for (Index j = 0; j < network.dim(); ++j)
      network.weights(k, j) = keep * network.weights(k, j) - rate * gradient(k, j);
}

}  // namespace ashlar::dynamics
