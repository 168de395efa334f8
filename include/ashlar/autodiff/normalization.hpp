// Layer norm and RMS norm over the last axis.
//
//   const auto h = layer_norm(x, gain, bias);
//   const auto g = rms_norm(x);                   // without gain: SRMSNorm
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "ashlar/autodiff/elementwise.hpp"
#include "ashlar/autodiff/product.hpp"
#include "ashlar/autodiff/reduction.hpp"
#include "ashlar/autodiff/tape.hpp"
#include "ashlar/functional/normalization.hpp"

namespace ashlar::autodiff {

namespace detail {

template <Real T>
View<const T, 1> vector_or_empty(const std::optional<Var<T>>& x) {
  return x ? x->value().template view<1>() : View<const T, 1>();
}

template <Real T>
Var<T> normalize(std::string_view name, const Var<T>& x, const std::optional<Var<T>>& gain,
                 const std::optional<Var<T>>& bias, const functional::NormalizeOptions& options) {
  require(x.rank() >= 1, name, "x must have at least one axis");
  const Index d = x.extent(x.rank() - 1);
  if (gain) check_shape(name, "gain", gain->shape().extents(), {d}, "last axis of x");
  if (bias) check_shape(name, "bias", bias->shape().extents(), {d}, "last axis of x");
  const View<const T, 2> rows = rows_of(x.value());
  Tensor<T> y = uninitialized(x.shape(), {x});
  const auto statistics = std::make_shared<Tensor<T>>(Tensor<T>::uninitialized({rows.extent(0), 2}));
  functional::normalize(rows, options, vector_or_empty(gain), vector_or_empty(bias), rows_of(y),
                        statistics->template view<2>());
  return record<T>(
      name, {x, gain ? *gain : Var<T>(), bias ? *bias : Var<T>()}, std::move(y),
      [x, gain, options, statistics, d](Tensor<T>& gradient, Gradients<T>& into) {
        Tensor<T> dx, dgain, dbias;
        if (into.wants(0)) dx = into.uninitialized(x.shape());
        if (into.wants(1)) dgain = into.uninitialized({d});
        if (into.wants(2)) dbias = into.uninitialized({d});
        const auto vector = [](Tensor<T>& v) { return v.rank() == 1 ? v.template view<1>() : View<T, 1>(); };
        functional::normalize_backward(rows_of(x.value()), options, vector_or_empty(gain),
                                       statistics->template view<2>(), rows_of(std::as_const(gradient)),
                                       into.wants(0) ? rows_of(dx) : View<T, 2>(), vector(dgain), vector(dbias));
        if (into.wants(0)) into.add(0, std::move(dx));
        if (into.wants(1)) into.add(1, std::move(dgain));
        if (into.wants(2)) into.add(2, std::move(dbias));
      },
      [x, gain, options](Tangents<T> moving) {
        // y = gain z + bias with z = (x - m) r, and dz = r (dx - mean dx - z mean(z dx)).
        const int last = x.rank() - 1;
        const Var<T> centred = options.centred ? x - mean(x, last, Axis::kept) : x;
        const Var<T> r = reciprocal(sqrt(mean(square(centred), last, Axis::kept) + static_cast<T>(options.epsilon)));
        const Var<T> z = centred * r;
        std::optional<Var<T>> moved;
        const auto add = [&](const Var<T>& part) { moved = moved ? *moved + part : part; };
        if (moving[0]) {
          const Var<T> level = options.centred ? *moving[0] - mean(*moving[0], last, Axis::kept) : *moving[0];
          const Var<T> dz = r * (level - z * mean(z * *moving[0], last, Axis::kept));
          add(gain ? dz * *gain : dz);
        }
        if (moving[1]) add(z * *moving[1]);
        if (moving[2]) add(broadcast_to(*moving[2], x.shape()));
        return *moved;
      });
}

}  // namespace detail

/// (x - mean x) / sqrt(var x + epsilon) over the last axis, times gain, plus bias. x: [..., d]; gain, bias: [d], or
/// absent.
template <Real T>
Var<T> layer_norm(const Var<T>& x, const std::optional<Var<T>>& gain = {}, const std::optional<Var<T>>& bias = {},
                  double epsilon = 1e-5) {
  return detail::normalize("layer_norm", x, gain, bias, {.centred = true, .epsilon = epsilon});
}

/// x / sqrt(mean x^2 + epsilon) over the last axis, times gain. x: [..., d]; gain: [d] or absent.
template <Real T>
Var<T> rms_norm(const Var<T>& x, const std::optional<Var<T>>& gain = {}, double epsilon = 1e-6) {
  return detail::normalize<T>("rms_norm", x, gain, {}, {.centred = false, .epsilon = epsilon});
}

}  // namespace ashlar::autodiff
