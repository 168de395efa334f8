// First values of parameters.
//
//   Parameter<float> weight(he_normal<float>(rng, {outputs, inputs}));
//
// A weight has shape [outputs, inputs, ...]: its fan-in is inputs times the extents behind (a kernel's), its fan-out
// outputs times those. Each function draws one number an element, in order.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/linalg/random_orthonormal.hpp"

namespace ashlar::nn {

/// Numbers that enter one output of a weight, and outputs that one input enters.
struct Fan {
  Index in, out;
};
inline Fan fan_of(const Shape& shape) {
  require(shape.rank() >= 2, "fan_of", "a weight has shape [outputs, inputs, ...], got ", shape.extents());
  Index behind = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) behind *= shape[axis];
  return {shape[1] * behind, shape[0] * behind};
}

/// Uniform on [-limit, limit).
template <Real T>
Tensor<T> uniform(Rng& rng, const Shape& shape, double limit) {
  auto tensor = Tensor<T>::uninitialized(shape);
  for (Index i = 0; i < tensor.size(); ++i) tensor.data()[i] = static_cast<T>(limit * (2 * rng.uniform() - 1));
  return tensor;
}
/// Normal with mean 0, drawn again while it is more than two deviations away.
template <Real T>
Tensor<T> truncated_normal(Rng& rng, const Shape& shape, double deviation) {
  auto tensor = Tensor<T>::uninitialized(shape);
  for (Index i = 0; i < tensor.size(); ++i) {
    double z = rng.normal();
    while (std::abs(z) > 2) z = rng.normal();
    tensor.data()[i] = static_cast<T>(deviation * z);
  }
  return tensor;
}

/// Uniform with limit 1 / sqrt(fan-in).
template <Real T>
Tensor<T> fan_in_uniform(Rng& rng, const Shape& shape) {
  return uniform<T>(rng, shape, 1 / std::sqrt(static_cast<double>(std::max<Index>(fan_of(shape).in, 1))));
}
/// Glorot, Bengio 2010: uniform with limit gain sqrt(6 / (fan-in + fan-out)).
template <Real T>
Tensor<T> xavier_uniform(Rng& rng, const Shape& shape, double gain = 1) {
  const Fan fan = fan_of(shape);
  return uniform<T>(rng, shape, gain * std::sqrt(6 / static_cast<double>(std::max<Index>(fan.in + fan.out, 1))));
}
/// Glorot, Bengio 2010: normal with deviation gain sqrt(2 / (fan-in + fan-out)).
template <Real T>
Tensor<T> xavier_normal(Rng& rng, const Shape& shape, double gain = 1) {
  const Fan fan = fan_of(shape);
  return normal_tensor<T>(rng, shape, gain * std::sqrt(2 / static_cast<double>(std::max<Index>(fan.in + fan.out, 1))));
}
/// He, Zhang, Ren, Sun 2015, for ReLU: normal with deviation sqrt(2 / fan-in).
template <Real T>
Tensor<T> he_normal(Rng& rng, const Shape& shape) {
  return normal_tensor<T>(rng, shape, std::sqrt(2 / static_cast<double>(std::max<Index>(fan_of(shape).in, 1))));
}
/// He, Zhang, Ren, Sun 2015, for ReLU: uniform with limit sqrt(6 / fan-in).
template <Real T>
Tensor<T> he_uniform(Rng& rng, const Shape& shape) {
  return uniform<T>(rng, shape, std::sqrt(6 / static_cast<double>(std::max<Index>(fan_of(shape).in, 1))));
}

/// Saxe, McClelland, Ganguli 2014: gain times a matrix [outputs, inputs x ...] with orthonormal rows or columns,
/// whichever are fewer, uniformly distributed among those. O(rows columns min(rows, columns)).
template <Real T>
Tensor<T> orthogonal(Rng& rng, const Shape& shape, double gain = 1) {
  const Fan fan = fan_of(shape);
  const Index rows = shape[0], cols = fan.in, many = std::max(rows, cols), few = std::min(rows, cols);
  Tensor<T> tensor(shape);
  if (few == 0) return tensor;
  const Matrix<double> q = linalg::random_orthonormal(rng, many, few);
  Eigen::Map<Matrix<T>> out(tensor.data(), rows, cols);
  if (rows >= cols)
    out = (gain * q).template cast<T>();
  else
    out = (gain * q.transpose()).template cast<T>();
  return tensor;
}

}  // namespace ashlar::nn
