// What the tests of feature contamination share.
#pragma once

#include <string>

#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/dynamics/two_layer_network.hpp"
#include "support/fixture.hpp"

namespace ashlar::dynamics {

inline constexpr Activation all_activations[] = {Activation::identity, Activation::relu,    Activation::leaky_relu,
                                                 Activation::gelu,     Activation::sigmoid, Activation::tanh};
inline constexpr Loss all_losses[] = {Loss::hinge, Loss::logistic, Loss::squared};

/// tests/data/feature_contamination/<name>.npy as a matrix: a rank of one is a column, leading axes are stacked.
inline Matrix<double> data(const std::string& name) {
  Tensor<double> values = test::fixture("feature_contamination/" + name);
  const Index columns = values.rank() == 1 ? 1 : values.extent(values.rank() - 1);
  return values.reshape({values.size() / columns, columns}).matrix();
}

inline Vector<double> data_vector(const std::string& name) { return data(name).reshaped<Eigen::RowMajor>(); }

/// Inputs, labels and a network with biases, all of order 1.
template <Real T>
struct Samples {
  Matrix<T> x;
  Vector<T> y;
  TwoLayerNetwork<T> network;

  Samples(std::uint64_t seed, Index n, Index m, Index d, Activation activation) {
    Rng rng(seed);
    x = normal_matrix<T>(rng, n, d);
    y = Vector<T>(n);
    for (T& label : y) label = rng() >> 31 ? T(1) : T(-1);
    network = uniform_network<T>(rng, m, d, activation);
    network.weights *= 2;
    network.output *= 3;
  }
};

}  // namespace ashlar::dynamics
