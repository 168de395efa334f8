// Softmax and log-softmax over the last axis.
//
//   const auto p = softmax(scores);               // [..., n], each row a distribution
//
// Roof: the rate of exponentials.
#pragma once

#include <memory>
#include <utility>

#include "ashlar/autodiff/elementwise.hpp"
#include "ashlar/autodiff/product.hpp"
#include "ashlar/autodiff/reduction.hpp"
#include "ashlar/autodiff/tape.hpp"
#include "ashlar/linalg/softmax.hpp"

namespace ashlar::autodiff {

/// e^x / sum e^x over the last axis. Entries of -infinity get nothing; where all are, the result is 0.
template <Real T>
Var<T> softmax(const Var<T>& x) {
  require(x.rank() >= 1, "softmax", "x must have at least one axis");
  Tensor<T> y = uninitialized(x.shape(), {x});
  linalg::row_softmax(detail::rows_of(x.value()), detail::rows_of(y));
  const auto saved = std::make_shared<Var<T>>();
  Var<T> result = record<T>(
      "softmax", {x}, std::move(y),
      [saved](Tensor<T>& gradient, Gradients<T>& into) {
        linalg::row_softmax_backward(detail::rows_of(saved->value()), detail::rows_of(std::as_const(gradient)),
                                     detail::rows_of(gradient));
        into.add(0, std::move(gradient));
      },
      [saved](Tangents<T> d) {
        const Var<T> weighted = *saved * *d[0];
        return weighted - *saved * sum(weighted, weighted.rank() - 1, Axis::kept);
      });
  *saved = result;
  return result;
}

/// x - log sum e^x over the last axis.
template <Real T>
Var<T> log_softmax(const Var<T>& x) {
  require(x.rank() >= 1, "log_softmax", "x must have at least one axis");
  Tensor<T> y = uninitialized(x.shape(), {x});
  linalg::row_log_softmax(detail::rows_of(x.value()), detail::rows_of(y));
  const auto saved = std::make_shared<Var<T>>();
  Var<T> result = record<T>(
      "log_softmax", {x}, std::move(y),
      [saved](Tensor<T>& gradient, Gradients<T>& into) {
        linalg::row_log_softmax_backward(detail::rows_of(saved->value()), detail::rows_of(std::as_const(gradient)),
                                         detail::rows_of(gradient));
        into.add(0, std::move(gradient));
      },
      [saved](Tangents<T> d) { return *d[0] - sum(exp(*saved) * *d[0], d[0]->rank() - 1, Axis::kept); });
  *saved = result;
  return result;
}

}  // namespace ashlar::autodiff
