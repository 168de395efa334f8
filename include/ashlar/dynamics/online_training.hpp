// Stochastic gradient descent on fresh samples of a feature model, as the analysis of feature contamination has it:
//
//   each step:  draw B samples;  W <- (1 - eta lambda) W - eta dL/dW;   everything but W stays as it is.
//
//   Rng rng(0);
//   const FeatureModel model{.basis = FeatureBasis::random(rng, 128, 16, 16)};
//   auto network = random_network<double>(rng, 64, 128);
//   const OnlineTrace trace = train_online(network, model, {.steps = 4000, .trace_every = 200}, rng);
//   trace.points.back().report.shifted.loss;                  // 0.78, where the training law has 0.003
//
// Without noise on the inputs every x lies in the span of the directions Q, so a gradient does too. Then the network is
// trained in feature space: P = W Q on coefficients z, and the rest of W only decays:
//
//   H = Z P',   G_P = D'Z,   P <- (1 - eta lambda) P - eta G_P,      W_t = P_t Q' + (1 - eta lambda)^t (W_0 - P_0 Q').
//
// The same numbers up to rounding for features / d of the cost.
//
// Roof: 4 B m features flops a step in two products (4 B m d with noise), and B features random numbers.
//
// Source: Zhang et al., "Feature Contamination", ICML 2024, arXiv 2406.03345; training in feature space is derived
// here.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/dynamics/feature_contamination.hpp"
#include "ashlar/dynamics/structured_features.hpp"
#include "ashlar/dynamics/two_layer_gradient.hpp"
#include "ashlar/dynamics/two_layer_network.hpp"

namespace ashlar::dynamics {

struct TracePoint {
  Index step = 0;  ///< updates made so far
  ContaminationReport report;
};

enum class TrainingSpace {
  automatic,  ///< features where that is exact, inputs otherwise
  inputs,
  features,
};

/// The defaults show the effect within seconds for d = 128, 16 + 16 features and 64 neurons. Outputs carry 1/m, so the
/// learning rate grows with m.
struct OnlineOptions {
  double learning_rate = 2;    ///< eta > 0
  double weight_decay = 1e-3;  ///< lambda >= 0, with eta lambda < 1
  Index batch = 64;            ///< B
  Index steps = 4000;
  Loss loss = Loss::hinge;
  TrainingSpace space = TrainingSpace::automatic;
  double stop_loss = -1;            ///< ends after the first step whose batch loss is at most this
  Index trace_every = 0;            ///< steps between points of the trace; 0: one before the first, one after the last
  Index evaluation_samples = 4000;  ///< that all points are measured on
  BackgroundShift shift = sign_flip;                     ///< from the training law to the shifted one
  std::function<bool(const TracePoint&)> progress = {};  ///< called at every point; false ends the training
};

struct OnlineTrace {
  std::vector<double> losses;      ///< of each step's batch, before its update
  std::vector<TracePoint> points;  ///< the first before any update, the last after the last
};

namespace detail {

inline void check_online(std::string_view function, const OnlineOptions& options, const FeatureModel& model) {
  check_step(function, options.learning_rate, options.weight_decay);
  const double decay = options.learning_rate * options.weight_decay;
  check_argument(decay < 1, function, "learning_rate weight_decay", "less than 1", decay);
  check_argument(options.batch >= 1, function, "batch", "at least 1", options.batch);
  check_argument(options.steps >= 0, function, "steps", "not negative", options.steps);
  check_argument(options.trace_every >= 0, function, "trace_every", "not negative", options.trace_every);
  check_argument(options.evaluation_samples >= 1, function, "evaluation_samples", "at least 1",
                 options.evaluation_samples);
  require(options.space != TrainingSpace::features || (model.noise == 0 && model.basis.orthonormal()), function,
          "space features needs orthonormal directions and inputs without noise");
}

/// A network with the weights in feature space, and what the inputs' space has beside.
template <class T>
class FeatureSpaceWeights {
 public:
  FeatureSpaceWeights(const TwoLayerNetwork<T>& network, const FeatureBasis& basis)
      : directions_(basis.directions().cast<T>()), features_(network) {
    features_.weights = network.weights * directions_;
    rest_ = network.weights - features_.weights * directions_.transpose();
  }

  TwoLayerNetwork<T>& network() { return features_; }
  Matrix<T> weights(double decay) const {
    return features_.weights * directions_.transpose() + static_cast<T>(decay) * rest_;
  }

 private:
  Matrix<T> directions_;
  TwoLayerNetwork<T> features_;
  Matrix<T> rest_;
};

}  // namespace detail

/// Trains the weights W of a network with any fixed output weights and biases. Draws from rng what the batches need,
/// and the samples for the trace from a stream split off it, the same for equal streams. Allocates nothing between
/// points. Throws InvalidArgument for options out of range, a network of another dimension than the model's and space =
/// features where it is not exact; NumericalError when training diverges, in which case the network is as before.
template <Real T>
OnlineTrace train_online(TwoLayerNetwork<T>& network, const FeatureModel& model, const OnlineOptions& options,
                         Rng& rng) {
  constexpr auto function = "train_online";
  constexpr std::uint64_t evaluation_stream = 0x6576616c;
  detail::check_network(function, network);
  detail::check_online(function, options, model);
  check_argument(network.dim() == model.basis.dim(), function, "network.dim()",
                 message(model.basis.dim(), " as of the model"), network.dim());
  const bool in_features = options.space == TrainingSpace::features ||
                           (options.space == TrainingSpace::automatic && model.noise == 0 && model.basis.orthonormal());

  Rng evaluation_rng = rng.split(evaluation_stream);
  const LabelledFeatures trained = model.sample(options.evaluation_samples, evaluation_rng);
  const Vector<T> labels = trained.y.template cast<T>();
  Rng noise = evaluation_rng;  // the same noise on both laws: they differ in the background alone
  const Matrix<T> x = model.inputs(trained.z, evaluation_rng).template cast<T>();
  const Matrix<T> x_shifted = model.inputs(model.shifted(trained, options.shift).z, noise).template cast<T>();

  TwoLayerNetwork<T> in_inputs = network;
  detail::FeatureSpaceWeights<T> feature_space(network, model.basis);
  TwoLayerNetwork<T>& current = in_features ? feature_space.network() : in_inputs;
  const double keep = 1 - options.learning_rate * options.weight_decay;
  OnlineTrace trace;
  trace.losses.reserve(static_cast<std::size_t>(options.steps));
  const auto record = [&](Index step) {
    if (in_features) in_inputs.weights = feature_space.weights(std::pow(keep, static_cast<double>(step)));
    trace.points.push_back({step, diagnose(in_inputs, model.basis, x, labels, x_shifted, labels, options.loss)});
    return !options.progress || options.progress(trace.points.back());
  };

  LabelledFeatures batch{Vector<double>(options.batch), Matrix<double>(options.batch, model.basis.features())};
  Matrix<double> drawn(in_features ? 0 : options.batch, model.basis.dim());
  Matrix<T> inputs(options.batch, current.dim()), gradient(current.hidden(), current.dim());
  Vector<T> y(options.batch);
  Workspace workspace;
  bool going = record(0);
  for (Index step = 1; going && step <= options.steps; ++step) {
    model.sample(batch, rng);
    y = batch.y.template cast<T>();
    if (in_features) {
      inputs = batch.z.template cast<T>();
    } else {
      model.inputs(batch.z, rng, drawn);
      inputs = drawn.template cast<T>();
    }
    const double loss = loss_and_gradient(current, inputs, y, options.loss, View<T, 2>(gradient), workspace);
    sgd_step(current, View<T, 2>(gradient), options.learning_rate, options.weight_decay);
    if (!std::isfinite(loss) || !current.weights.allFinite())
      throw NumericalError(message(function, ": step ", step, ", with a batch loss of ", loss,
                                   ", left weights that are not finite; lower the learning rate"));
    trace.losses.push_back(loss);
    const bool last = step == options.steps || loss <= options.stop_loss;
    if (last || (options.trace_every > 0 && step % options.trace_every == 0)) going = record(step) && !last;
  }
  network = std::move(in_inputs);
  return trace;
}

}  // namespace ashlar::dynamics
