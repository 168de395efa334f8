// A small Deep Sets network with its backward pass and Adam, written out: rho(pool(phi(x))).
//   phi = Linear ReLU Linear on every element, rho = Linear ReLU Linear on the pooled vector.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/sets/quantile_pooling.hpp"

namespace ashlar::example {

/// Stacked sets: set s is rows offsets[s] .. offsets[s+1] - 1 of values.
struct StackedSets {
  Matrix<float> values;
  std::vector<Index> offsets;

  Index sets() const { return static_cast<Index>(offsets.size()) - 1; }
};

class Linear {
 public:
  /// Uniform +-1/sqrt(inputs), weights and biases.
  Linear(Rng& rng, Index inputs, Index outputs) : weight_(inputs + 1, outputs) {
    const double bound = 1 / std::sqrt(static_cast<double>(inputs));
    for (Index i = 0; i < weight_.size(); ++i) weight_.data()[i] = static_cast<float>(rng.uniform(-bound, bound));
    first_ = second_ = gradient_ = Matrix<float>::Zero(inputs + 1, outputs);
  }

  Matrix<float> forward(const Matrix<float>& x) {
    input_ = x;
    Matrix<float> y = x * weight_.topRows(x.cols());
    y.rowwise() += weight_.row(x.cols());
    return y;
  }
  /// From the gradient of the output to that of the input.
  Matrix<float> backward(const Matrix<float>& g) {
    gradient_.topRows(input_.cols()).noalias() = input_.transpose() * g;
    gradient_.row(input_.cols()) = g.colwise().sum();
    return g * weight_.topRows(input_.cols()).transpose();
  }
  /// Adam, step t = 1, 2, ...
  void step(int t, float rate) {
    const float b1 = 0.9f, b2 = 0.999f;
    first_ = b1 * first_ + (1 - b1) * gradient_;
    second_ = b2 * second_ + (1 - b2) * gradient_.cwiseAbs2();
    const float scale1 = 1 / (1 - std::pow(b1, static_cast<float>(t)));
    const float scale2 = 1 / (1 - std::pow(b2, static_cast<float>(t)));
    weight_.array() -= rate * scale1 * first_.array() / ((scale2 * second_.array()).sqrt() + 1e-8f);
  }

 private:
  Matrix<float> weight_;  ///< the last row is the bias
  Matrix<float> gradient_, first_, second_, input_;
};

/// How the elements become one vector.
struct Pool {
  enum Kind { quantile, max, mean } kind = quantile;
  double low = 0.9, high = 1;

  std::string name() const {
    if (kind == quantile) return message("quantile [", low, ",", high, "]");
    return kind == max ? "max" : "mean";
  }
};

class DeepSets {
 public:
  DeepSets(Rng& rng, Index inputs, Index hidden, Index outputs, const Pool& pool)
      : pool_(pool),
        levels_(sets::linspace_levels(hidden, pool.low, pool.high)),
        layers_{{rng, inputs, hidden}, {rng, hidden, hidden}, {rng, hidden, hidden}, {rng, hidden, outputs}} {}

  /// One row a set.
  Matrix<float> forward(const StackedSets& x) {
    offsets_ = x.offsets;
    phi_ = layers_[1].forward(phi_hidden_ = layers_[0].forward(x.values).cwiseMax(0.0f));
    const auto elements = sets::ragged(phi_, offsets_);
    Matrix<float> pooled(x.sets(), phi_.cols());
    switch (pool_.kind) {
      case Pool::quantile:
        positions_ = Tensor<std::int32_t>::uninitialized({x.sets(), phi_.cols(), 2});
        sets::quantile_pool_forward(elements, levels_, pooled, positions_, workspace_);
        break;
      case Pool::max: {
        auto top = sets::max_pool_forward(elements);
        pooled = top.values, top_ = top.positions;
        break;
      }
      case Pool::mean: pooled = sets::mean_pool(elements); break;
    }
    return layers_[3].forward(rho_hidden_ = layers_[2].forward(pooled).cwiseMax(0.0f));
  }

  /// g: the gradient of the loss with respect to the last forward's output.
  void backward(const Matrix<float>& g) {
    const auto through_relu = [](const Matrix<float>& upstream, const Matrix<float>& output) -> Matrix<float> {
      return (output.array() > 0).select(upstream, 0.0f);
    };
    const Matrix<float> g_pooled = layers_[2].backward(through_relu(layers_[3].backward(g), rho_hidden_));
    Matrix<float> g_phi = Matrix<float>::Zero(phi_.rows(), phi_.cols());
    const auto elements = sets::ragged(g_phi, offsets_);
    switch (pool_.kind) {
      case Pool::quantile: sets::quantile_pool_backward(g_pooled, positions_, levels_, elements); break;
      case Pool::max: sets::max_pool_backward(g_pooled, top_, elements); break;
      case Pool::mean: sets::mean_pool_backward(g_pooled, elements); break;
    }
    layers_[0].backward(through_relu(layers_[1].backward(g_phi), phi_hidden_));
  }

  void step(float rate) {
    ++steps_;
    for (Linear& layer : layers_) layer.step(steps_, rate);
  }

 private:
  Pool pool_;
  std::vector<double> levels_;
  std::vector<Linear> layers_;
  int steps_ = 0;
  std::vector<Index> offsets_;
  Matrix<float> phi_hidden_, phi_, rho_hidden_;
  Tensor<std::int32_t> positions_;
  Matrix<std::int32_t> top_;
  Workspace workspace_;
};

}  // namespace ashlar::example
