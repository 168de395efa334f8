// Matrix products and affine maps.
//
//   const auto y = linear(x, weight, bias);       // x weight^T + bias over the last axis of x
//   const auto scores = matmul(q, permute(k, {0, 2, 1}));
//
// Roof: fused multiply-adds. A product whose gradient no input wants is not computed.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "ashlar/autodiff/elementwise.hpp"
#include "ashlar/autodiff/reduction.hpp"
#include "ashlar/autodiff/shape.hpp"
#include "ashlar/autodiff/tape.hpp"
#include "ashlar/linalg/product.hpp"

namespace ashlar::autodiff {

namespace detail {

/// All axes but the last as rows.
template <class T>
View<T, 2> rows_of(T* data, const Shape& shape) {
  const Index last = shape[shape.rank() - 1];
  return {data, {last == 0 ? 0 : shape.size() / last, last}};
}
template <class T>
View<const T, 2> rows_of(const Tensor<T>& x) {
  return rows_of(x.data(), x.shape());
}
template <class T>
View<T, 2> rows_of(Tensor<T>& x) {
  return rows_of(x.data(), x.shape());
}

/// The matrices of the last two axes.
template <class T>
View<T, 3> matrices_of(T* data, const Shape& shape) {
  const Index rows = shape[shape.rank() - 2], cols = shape[shape.rank() - 1];
  Index count = 1;
  for (int axis = 0; axis + 2 < shape.rank(); ++axis) count *= shape[axis];
  return {data, {count, rows, cols}};
}

/// c[i] (+)= a[i] b[i] for every matrix of a batch.
template <class T>
void multiply_each(const View<const T, 3>& a, const View<const T, 3>& b, const View<T, 3>& c) {
  if (c.extent(0) == 1) return linalg::multiply(a[0], b[0], c[0]);
  parallel_for(c.extent(0), 1, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) linalg::multiply(a[i], b[i], c[i]);
  });
}

}  // namespace detail

/// Products of the matrices in the last two axes. a: [..., m, k]; b: [..., k, n] with the same leading extents, or one
/// matrix [k, n] for all of them; result: [..., m, n].
template <Real T>
Var<T> matmul(const Var<T>& a, const Var<T>& b) {
  require(a.rank() >= 2 && b.rank() >= 2, "matmul", "a and b must be matrices or batches of them, got ",
          a.shape().extents(), " and ", b.shape().extents());
  const bool shared = b.rank() == 2;
  bool fits = a.extent(a.rank() - 1) == b.extent(b.rank() - 2) && (shared || a.rank() == b.rank());
  for (int axis = 0; fits && !shared && axis + 2 < a.rank(); ++axis) fits = a.extent(axis) == b.extent(axis);
  require(fits, "matmul", "shapes ", a.shape().extents(), " and ", b.shape().extents(), " do not multiply");
  Tensor<T> y = uninitialized(detail::with_extent(a.shape(), a.rank() - 1, b.extent(b.rank() - 1)), {a, b});
  if (shared)
    linalg::multiply(detail::rows_of(a.value()), b.value(), detail::rows_of(y));
  else
    detail::multiply_each<T>(detail::matrices_of(a.value().data(), a.shape()),
                             detail::matrices_of(b.value().data(), b.shape()),
                             detail::matrices_of(y.data(), y.shape()));
  return record<T>(
      "matmul", {a, b}, std::move(y),
      [a, b, shared](Tensor<T>& gradient, Gradients<T>& into) {
        const View<const T, 3> left = detail::matrices_of(a.value().data(), a.shape()),
                               right = detail::matrices_of(b.value().data(), b.shape()),
                               out = detail::matrices_of(std::as_const(gradient).data(), gradient.shape());
        if (into.wants(0)) {  // gradient b^T
          Tensor<T> part = into.uninitialized(a.shape());
          if (shared)
            linalg::multiply(detail::rows_of(std::as_const(gradient)), right[0].transposed(0, 1),
                             detail::rows_of(part));
          else
            detail::multiply_each<T>(out, right.transposed(1, 2), detail::matrices_of(part.data(), part.shape()));
          into.add(0, std::move(part));
        }
        if (into.wants(1)) {  // a^T gradient
          Tensor<T> part = into.uninitialized(b.shape());
          if (shared)
            linalg::multiply(detail::rows_of(a.value()).transposed(0, 1), detail::rows_of(std::as_const(gradient)),
                             part);
          else
            detail::multiply_each<T>(left.transposed(1, 2), out, detail::matrices_of(part.data(), part.shape()));
          into.add(1, std::move(part));
        }
      },
      [a, b](Tangents<T> d) {
        if (d[0] && d[1]) return matmul(*d[0], b) + matmul(a, *d[1]);
        return d[0] ? matmul(*d[0], b) : matmul(a, *d[1]);
      });
}

/// x weight^T + bias. x: [..., inputs], weight: [outputs, inputs], bias: [outputs] or absent; result: [..., outputs].
template <Real T>
Var<T> linear(const Var<T>& x, const Var<T>& weight, const std::optional<Var<T>>& bias = {}) {
  require(x.rank() >= 1 && weight.rank() == 2 && x.extent(x.rank() - 1) == weight.extent(1), "linear", "x of shape ",
          x.shape().extents(), " does not go through weight of shape ", weight.shape().extents());
  if (bias) check_shape("linear", "bias", bias->shape().extents(), {weight.extent(0)}, "one for each row of weight");
  Tensor<T> y = uninitialized(detail::with_extent(x.shape(), x.rank() - 1, weight.extent(0)), {x, weight});
  linalg::multiply(detail::rows_of(x.value()), View<const T, 2>(weight.value()).transposed(0, 1), detail::rows_of(y));
  if (bias)
    functional::broadcast(
        y, [](const auto& p, const auto& q) { return p + q; }, y, bias->value());
  return record<T>(
      "linear", {x, weight, bias ? *bias : Var<T>()}, std::move(y),
      [x, weight](Tensor<T>& gradient, Gradients<T>& into) {
        const View<const T, 2> out = detail::rows_of(std::as_const(gradient));
        if (into.wants(0)) {
          Tensor<T> part = into.uninitialized(x.shape());
          linalg::multiply(out, weight.value(), detail::rows_of(part));
          into.add(0, std::move(part));
        }
        if (into.wants(1)) {
          Tensor<T> part = into.uninitialized(weight.shape());
          linalg::multiply(out.transposed(0, 1), detail::rows_of(x.value()), part);
          into.add(1, std::move(part));
        }
        if (into.wants(2)) detail::add_repeated(into, 2, Shape{weight.extent(0)}, std::move(gradient));
      },
      [x, weight, shape = detail::with_extent(x.shape(), x.rank() - 1, weight.extent(0))](Tangents<T> d) {
        std::optional<Var<T>> moved;
        const auto add = [&](const Var<T>& part) { moved = moved ? *moved + part : part; };
        if (d[0]) add(linear(*d[0], weight));
        if (d[1]) add(linear(x, *d[1]));
        if (d[2]) add(broadcast_to(*d[2], shape));
        return *moved;
      });
}

}  // namespace ashlar::autodiff
