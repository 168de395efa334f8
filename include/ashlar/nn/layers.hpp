// The plain layers: affine map, embedding, norms, dropout, multilayer perceptron.
//
//   Rng rng(1);
//   nn::Mlp<float> model(rng, {64, 128, 10});
//   const auto logits = model(tape.constant(images));          // [batch, 10]
//
// A layer called with a value on a tape records itself there; called with a plain constant it computes, and no more.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ashlar/autodiff/elementwise.hpp"
#include "ashlar/autodiff/normalization.hpp"
#include "ashlar/autodiff/product.hpp"
#include "ashlar/autodiff/shape.hpp"
#include "ashlar/autodiff/tape.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/nn/initialize.hpp"
#include "ashlar/nn/module.hpp"

namespace ashlar::nn {

/// x weight^T + bias over the last axis.
template <Real T>
struct Linear {
  Parameter<T> weight;               ///< [outputs, inputs]
  std::optional<Parameter<T>> bias;  ///< [outputs]
  /// Called with every input [..., inputs] before the product, for statistics of activations.
  std::function<void(const Tensor<T>&)> on_input = {};

  Linear() = default;
  /// Weight and bias uniform within 1 / sqrt(inputs).
  Linear(Rng& rng, Index inputs, Index outputs, bool with_bias = true)
      : weight(fan_in_uniform<T>(rng, {outputs, inputs})) {
    if (with_bias)
      bias.emplace(uniform<T>(rng, {outputs}, 1 / std::sqrt(static_cast<double>(std::max<Index>(inputs, 1)))));
  }

  Var<T> operator()(const Var<T>& x) {
    if (on_input) on_input(x.value());
    std::optional<Var<T>> shift;
    if (bias) shift = autodiff::use(*bias, x);
    return autodiff::linear(x, autodiff::use(weight, x), shift);
  }

  template <class Visitor>
  void visit(Visitor&& visitor) {
    visitor("weight", weight);
    visitor("bias", bias);
  }
};

/// Rows of a table by index.
template <Real T>
struct Embedding {
  Parameter<T> weight;  ///< [entries, width]

  Embedding() = default;
  /// Normal numbers times `deviation`.
  Embedding(Rng& rng, Index entries, Index width, double deviation = 1)
      : weight(normal_tensor<T>(rng, {entries, width}, deviation)) {}

  /// [count of ids, width], on the given tape or, for a null one, as a constant.
  Var<T> operator()(Tape<T>* tape, std::vector<Index> ids) {
    return autodiff::gather_rows(tape ? tape->use(weight) : Var<T>::refer_to(weight.value), std::move(ids));
  }

  template <class Visitor>
  void visit(Visitor&& visitor) {
    visitor("weight", weight);
  }
};

/// Layer norm over the last axis, with gain and bias.
template <Real T>
struct LayerNorm {
  Parameter<T> weight;  ///< [width], the gain
  Parameter<T> bias;    ///< [width]
  double epsilon = 1e-5;

  LayerNorm() = default;
  explicit LayerNorm(Index width, double eps = 1e-5)
      : weight(Tensor<T>(Shape{width}, T(1))), bias(Tensor<T>(Shape{width})), epsilon(eps) {}

  Var<T> operator()(const Var<T>& x) {
    return autodiff::layer_norm<T>(x, autodiff::use(weight, x), autodiff::use(bias, x), epsilon);
  }

  template <class Visitor>
  void visit(Visitor&& visitor) {
    visitor("weight", weight);
    visitor("bias", bias);
  }
};

/// RMS norm over the last axis, with gain.
template <Real T>
struct RmsNorm {
  Parameter<T> weight;  ///< [width], the gain
  double epsilon = 1e-6;

  RmsNorm() = default;
  explicit RmsNorm(Index width, double eps = 1e-6) : weight(Tensor<T>(Shape{width}, T(1))), epsilon(eps) {}

  Var<T> operator()(const Var<T>& x) { return autodiff::rms_norm<T>(x, autodiff::use(weight, x), epsilon); }

  template <class Visitor>
  void visit(Visitor&& visitor) {
    visitor("weight", weight);
  }
};

/// Each element 0 with this probability, the others divided by 1 - probability. One number of the generator an element;
/// probability 0 draws none and returns x itself.
template <Real T>
Var<T> dropout(const Var<T>& x, double probability, Rng& rng) {
  check_argument(probability >= 0 && probability < 1, "dropout", "probability", "in [0, 1)", probability);
  if (probability == 0) return x;
  auto mask = Tensor<T>::uninitialized(x.shape());
  const auto kept = static_cast<T>(1 / (1 - probability));
  for (Index i = 0; i < mask.size(); ++i) mask.data()[i] = rng.uniform() < probability ? T(0) : kept;
  return x * Var<T>(std::move(mask));
}

/// Affine maps with an activation between them.
template <Real T>
struct Mlp {
  using Activation = std::function<Var<T>(const Var<T>&)>;

  std::vector<Linear<T>> layers;
  Activation activation = [](const Var<T>& x) { return autodiff::relu(x); };

  Mlp() = default;
  /// widths: input, hidden ones, output; at least two.
  Mlp(Rng& rng, const std::vector<Index>& widths) {
    require(widths.size() >= 2, "Mlp", "widths must name an input and an output, got ",
            static_cast<Index>(widths.size()), " of them");
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) layers.emplace_back(rng, widths[i], widths[i + 1]);
  }
  Mlp(Rng& rng, const std::vector<Index>& widths, Activation between) : Mlp(rng, widths) {
    activation = std::move(between);
  }

  Var<T> operator()(const Var<T>& x) {
    Var<T> h = x;
    for (std::size_t i = 0; i < layers.size(); ++i) h = layers[i](i == 0 ? h : activation(h));
    return h;
  }

  template <class Visitor>
  void visit(Visitor&& visitor) {
    visitor("layers", layers);
  }
};

}  // namespace ashlar::nn
