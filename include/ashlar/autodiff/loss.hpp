// Losses: means over a batch, as one number.
//
//   tape.backward(cross_entropy(logits, labels));
//
// What is not an operation of its own is made of a few, and costs their passes.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "ashlar/autodiff/elementwise.hpp"
#include "ashlar/autodiff/product.hpp"
#include "ashlar/autodiff/reduction.hpp"
#include "ashlar/autodiff/shape.hpp"
#include "ashlar/autodiff/softmax.hpp"
#include "ashlar/autodiff/tape.hpp"
#include "ashlar/functional/cross_entropy.hpp"

namespace ashlar::autodiff {

/// Mean of -log softmax(logits)[label] over the rows whose label is not functional::ignored; 0 when there is none.
/// logits: [..., classes]; one label for each row.
template <Real T>
Var<T> cross_entropy(const Var<T>& logits, std::vector<Index> labels) {
  require(logits.rank() >= 1, "cross_entropy", "logits must have at least one axis");
  const View<const T, 2> x = detail::rows_of(logits.value());
  Tensor<T> loss = Tensor<T>::uninitialized(Shape(std::array<Index, 0>{}));
  if (!logits.recorded()) {
    *loss.data() = functional::cross_entropy(x, labels);
    return logits.tape() ? logits.tape()->constant(std::move(loss)) : Var<T>(std::move(loss));
  }
  const auto kept = std::make_shared<const std::vector<Index>>(std::move(labels));
  const auto slope = std::make_shared<Tensor<T>>(uninitialized(logits.shape(), {logits}));
  *loss.data() = functional::cross_entropy_gradient(x, *kept, detail::rows_of(*slope));
  return record<T>(
      "cross_entropy", {logits}, std::move(loss),
      [slope](Tensor<T>& gradient, Gradients<T>& into) {
        Tensor<T> part = into.uninitialized(slope->shape());
        functional::map(
            part, [scale = *gradient.data()](const auto& g) { return g * simd::batch<T>(scale); }, *slope);
        into.add(0, std::move(part));
      },
      [logits, kept](Tangents<T> d) {
        const View<const T, 2> rows = detail::rows_of(logits.value());
        Tensor<T> chosen(logits.shape()), weight({rows.extent(0), 1});
        const auto counted =
            static_cast<T>(std::ranges::count_if(*kept, [](Index label) { return label != functional::ignored; }));
        for (Index i = 0; i < rows.extent(0); ++i)
          if (const Index label = (*kept)[static_cast<std::size_t>(i)]; label != functional::ignored) {
            chosen.data()[i * rows.extent(1) + label] = T(1);
            weight.data()[i] = 1 / counted;
          }
        const Shape flat{rows.extent(0), rows.extent(1)};
        const Var<T> excess = reshape(softmax(logits) - Var<T>(std::move(chosen)), flat);
        return sum(excess * reshape(*d[0], flat) * Var<T>(std::move(weight)));
      });
}

/// Mean of (x - y)^2.
template <Real T>
Var<T> mean_squared_error(const Var<T>& x, const Var<T>& y) {
  check_shape("mean_squared_error", "y", y.shape().extents(), x.shape().extents(), "shape of x");
  return mean(square(x - y));
}

/// Mean of r^2 / 2 for |r| = |x - y| up to `limit`, of limit (|r| - limit / 2) beyond.
template <Real T>
Var<T> huber(const Var<T>& x, const Var<T>& y, std::type_identity_t<T> limit = 1) {
  check_shape("huber", "y", y.shape().extents(), x.shape().extents(), "shape of x");
  check_argument(limit > 0, "huber", "limit", "positive", limit);
  const Var<T> r = x - y, inner = clamp(r, -limit, limit);
  return mean(inner * (r - inner * T(0.5)));
}

/// Mean of -y log p - (1 - y) log(1 - p) with p = sigmoid(logits) and targets y in [0, 1], without overflow.
template <Real T>
Var<T> binary_cross_entropy(const Var<T>& logits, const Var<T>& y) {
  check_shape("binary_cross_entropy", "y", y.shape().extents(), logits.shape().extents(), "shape of logits");
  return mean(softplus(logits) - logits * y);
}

/// Mean of (log v + (x - mean)^2 / v) / 2 with v = e^log_variance: minus the log-density of a normal variable, less
/// log(2 pi) / 2.
template <Real T>
Var<T> gaussian_negative_log_likelihood(const Var<T>& x, const Var<T>& expectation, const Var<T>& log_variance) {
  return mean(log_variance + square(x - expectation) * exp(-log_variance)) * T(0.5);
}

}  // namespace ashlar::autodiff
