// Training of all parameters of a two-layer network on given samples, in full or in mini-batches, by the rules of the
// released feature-contamination study.
//
//   Rng rng(0);
//   auto network = uniform_network<float>(rng, 256, 256, Activation::relu);
//   std::vector<double> losses = fit_network(network, x, y, {.steps = 500}, rng);      // AdamW on all of x, logistic
//
// Cost: a step is one loss_and_gradient of its batch, and a pass over the parameters and their moments.
//
// Source: Kingma and Ba, "Adam", ICLR 2015; Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/dynamics/detail/network_update.hpp"
#include "ashlar/dynamics/two_layer_gradient.hpp"
#include "ashlar/dynamics/two_layer_network.hpp"

namespace ashlar::dynamics {

/// With gradient g, rate r and decay w of a parameter p:
enum class UpdateRule {
  sgd,    ///< b <- momentum b + g + w p,  p <- p - r b
  adam,   ///< Adam on g + w p, with beta 0.9 and 0.999, epsilon 1e-8
  adamw,  ///< p <- (1 - r w) p, then Adam on g
};

struct FitOptions {
  Loss loss = Loss::logistic;
  UpdateRule rule = UpdateRule::adamw;
  double learning_rate = 1e-3;  ///< > 0
  double weight_decay = 1e-3;   ///< >= 0, on biases too
  double momentum = 0.9;        ///< of sgd, between 0 and 1
  bool train_output = true;     ///< false: a and c stay as they are
  Index steps = 20000;
  Index batch = 0;        ///< samples a step, every one once an epoch in random order, the last batch smaller; 0: all
  double stop_loss = -1;  ///< ends after the first step whose loss is at most this
};

/// Called with the number of updates made, before the first and after every one; false ends the training.
template <Real T>
using NetworkObserver = std::function<bool(Index steps, const TwoLayerNetwork<T>& network)>;

/// The loss of each step's batch before its update. Draws from rng only for mini-batches.
/// Throws InvalidArgument for options out of range and what loss_and_gradient does not take; NumericalError when
/// training diverges, in which case the network is as before.
template <Real T>
std::vector<double> fit_network(TwoLayerNetwork<T>& network, View<const std::type_identity_t<T>, 2> x,
                                View<const std::type_identity_t<T>, 1> y, const FitOptions& options, Rng& rng,
                                const std::type_identity_t<NetworkObserver<T>>& observer = {}) {
  constexpr auto function = "fit_network";
  const Index n = x.extent(0);
  detail::check_network(function, network);
  detail::check_inputs(function, "x", network, x);
  detail::check_labels(function, "y", y, n);
  detail::check_step(function, options.learning_rate, options.weight_decay);
  check_argument(options.momentum >= 0 && options.momentum < 1, function, "momentum", "at least 0 and less than 1",
                 options.momentum);
  check_argument(options.steps >= 0, function, "steps", "not negative", options.steps);
  check_argument(options.batch >= 0 && options.batch <= n, function, "batch", message("between 0 and ", n),
                 options.batch);
  const bool whole = options.batch == 0 || options.batch == n;

  TwoLayerNetwork<T> trained = network;
  detail::NetworkUpdate<T, FitOptions> update(trained, options);
  NetworkGradient<T> gradient;
  Workspace workspace;
  Matrix<T> rows(whole ? 0 : options.batch, network.dim());
  Vector<T> labels(whole ? 0 : options.batch);
  std::vector<Index> order;
  Index next = n;
  std::vector<double> losses;
  bool going = !observer || observer(0, trained);
  for (Index step = 1; going && step <= options.steps; ++step) {
    if (whole) {
      loss_and_gradient(trained, x, y, options.loss, gradient, workspace);
    } else {
      if (next == n) order = rng.permutation(n), next = 0;
      const Index count = std::min(options.batch, n - next);
      for (Index i = 0; i < count; ++i) {
        const Index sample = order[static_cast<std::size_t>(next + i)];
        rows.row(i) = vector(x[sample]).transpose();
        labels[i] = y[sample];
      }
      next += count;
      loss_and_gradient(trained, rows.topRows(count), labels.head(count), options.loss, gradient, workspace);
    }
    update.step(trained, gradient);
    if (!std::isfinite(gradient.loss) || !trained.weights.allFinite() || !trained.bias.allFinite() ||
        !trained.output.allFinite() || !std::isfinite(trained.output_bias))
      throw NumericalError(message(function, ": step ", step, ", with a loss of ", gradient.loss,
                                   ", left parameters that are not finite; lower the learning rate"));
    losses.push_back(gradient.loss);
    going = (!observer || observer(step, trained)) && gradient.loss > options.stop_loss;
  }
  network = std::move(trained);
  return losses;
}

}  // namespace ashlar::dynamics
