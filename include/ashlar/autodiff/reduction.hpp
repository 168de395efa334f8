// Sums and means over all elements or one axis, and what is built on them.
//
//   const auto loss = mean(square(x - y));            // one number, of shape []
//   const auto centred = x - mean(x, 1, Axis::kept);  // [n, d] - [n, 1]
#pragma once

#include <array>
#include <utility>

#include "ashlar/autodiff/elementwise.hpp"
#include "ashlar/autodiff/shape.hpp"
#include "ashlar/autodiff/tape.hpp"

namespace ashlar::autodiff {

/// Whether a reduced axis stays, with extent 1, or goes.
enum class Axis { kept, dropped };

/// x added up over the axes along which `shape` has extent 1 or none: the adjoint of broadcast_to.
template <Real T>
Var<T> sum_to(const Var<T>& x, const Shape& shape) {
  require(functional::broadcast_shape("sum_to", x.shape(), shape) == x.shape(), "sum_to", "shape ", x.shape().extents(),
          " does not sum to ", shape.extents());
  Tensor<T> y = uninitialized(shape, {x});
  functional::sum_to(y, x.value());
  return record<T>(
      "sum_to", {x}, std::move(y),
      [from = x.shape()](Tensor<T>& gradient, Gradients<T>& into) {
        Tensor<T> part = into.uninitialized(from);
        functional::broadcast(
            part, [](const auto& p, const auto&) { return p; }, gradient, part);
        into.add(0, std::move(part));
      },
      [shape](Tangents<T> d) { return sum_to(*d[0], shape); });
}

/// The sum of all elements: shape [].
template <Real T>
Var<T> sum(const Var<T>& x) {
  return sum_to(x, Shape(std::array<Index, 0>{}));
}
template <Real T>
Var<T> sum(const Var<T>& x, int axis, Axis reduced = Axis::dropped) {
  detail::check_axis("sum", axis, x.rank());
  const Var<T> kept = sum_to(x, detail::with_extent(x.shape(), axis, 1));
  if (reduced == Axis::kept) return kept;
  std::vector<Index> extents;
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis) extents.push_back(x.extent(i));
  return reshape(kept, Shape(std::span<const Index>(extents)));
}

/// The mean of no elements is NaN.
template <Real T>
Var<T> mean(const Var<T>& x) {
  return sum(x) * (T(1) / static_cast<T>(x.size()));
}
template <Real T>
Var<T> mean(const Var<T>& x, int axis, Axis reduced = Axis::dropped) {
  detail::check_axis("mean", axis, x.rank());
  return sum(x, axis, reduced) * (T(1) / static_cast<T>(x.extent(axis)));
}

/// Mean of the squared deviations from the mean, divided by n (biased) or n - 1.
template <Real T>
Var<T> variance(const Var<T>& x, int axis, Axis reduced = Axis::dropped, bool biased = true) {
  const Var<T> squared = square(x - mean(x, axis, Axis::kept));
  return sum(squared, axis, reduced) * (T(1) / static_cast<T>(x.extent(axis) - (biased ? 0 : 1)));
}

}  // namespace ashlar::autodiff
