// Arithmetic and functions element by element, with broadcasting as in functional/elementwise.hpp.
//
//   const auto y = gelu_tanh(x * w + b) - 0.5f;
//
// Every operation costs one pass over its operands forward, and one backward.
#pragma once

#include <algorithm>
#include <memory>
#include <numbers>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ashlar/autodiff/tape.hpp"
#include "ashlar/functional/activations.hpp"
#include "ashlar/functional/elementwise.hpp"

namespace ashlar::autodiff {

namespace detail {

template <Real T>
Tensor<T> copy_of(const Tensor<T>& x, Gradients<T>& into) {
  Tensor<T> y = into.uninitialized(x.shape());
  std::copy_n(x.data(), x.size(), y.data());
  return y;
}

/// A gradient of a result's shape goes to the input it belongs to, added up where the input repeats.
template <Real T>
void add_repeated(Gradients<T>& into, int i, const Shape& shape, Tensor<T>&& gradient) {
  if (gradient.shape() == shape) return into.add(i, std::move(gradient));
  Tensor<T> sum = into.uninitialized(shape);
  functional::sum_to(sum, gradient);
  into.add(i, std::move(sum));
}

/// f(a, b) of broadcast operands, as a tensor.
template <Real T, class F>
Tensor<T> broadcast(std::string_view name, F&& f, const Var<T>& a, const Var<T>& b) {
  Tensor<T> y = uninitialized(functional::broadcast_shape(name, a.shape(), b.shape()), {a, b});
  functional::broadcast(y, f, a.value(), b.value());
  return y;
}

/// f of gradient and operand, in a tensor of the gradient's shape.
template <Real T, class F>
Tensor<T> with_gradient(Gradients<T>& into, F&& f, const Tensor<T>& gradient, const Tensor<T>& operand) {
  Tensor<T> y = into.uninitialized(gradient.shape());
  functional::broadcast(y, f, gradient, operand);
  return y;
}

inline constexpr auto product = [](const auto& p, const auto& q) { return p * q; };
inline constexpr auto quotient = [](const auto& p, const auto& q) { return p / q; };

/// f(x) for an f of functional/activations.hpp. slope(x, y) is f'(x) in recorded operations, for second derivatives.
template <Real T, class F, class Slope>
Var<T> unary(std::string_view name, const Var<T>& x, F f, Slope slope) {
  Tensor<T> value = uninitialized(x.shape(), {x});
  functional::map(value, f, x.value());
  // The rules keep the input or the output, whichever the slope is computed from. The tangent rule needs no more.
  const auto saved = std::make_shared<Var<T>>(x);
  Var<T> y = record<T>(
      name, {x}, std::move(value),
      [saved, f](Tensor<T>& gradient, Gradients<T>& into) {
        functional::map(gradient, functional::SlopeOf<F>{f}, gradient, saved->value());
        into.add(0, std::move(gradient));
      },
      [saved, slope](Tangents<T> d) { return *d[0] * slope(*saved); });
  if constexpr (F::from_output) *saved = y;
  return y;
}

/// f'(s) as a constant, for functions made of straight pieces.
template <Real T, class F>
Var<T> straight_slope(const F& f, const Var<T>& s) {
  Tensor<T> slope = uninitialized(s.shape(), {s});
  functional::map(
      slope, [&](const auto& at) { return f.slope(at); }, s.value());
  return Var<T>(std::move(slope));
}

template <Real T, class F>
Var<T> straight(std::string_view name, const Var<T>& x, F f) {
  return unary(name, x, f, [f](const Var<T>& s) { return straight_slope(f, s); });
}

}  // namespace detail

template <Real T>
Var<T> operator*(const Var<T>& a, const Var<T>& b);

/// x repeated to a shape that it broadcasts to.
template <Real T>
Var<T> broadcast_to(const Var<T>& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  require(functional::broadcast_shape("broadcast_to", x.shape(), shape) == shape, "broadcast_to", "shape ",
          x.shape().extents(), " does not broadcast to ", shape.extents());
  Tensor<T> y = uninitialized(shape, {x});
  functional::broadcast(
      y, [](const auto& p, const auto&) { return p; }, x.value(), y);
  return record<T>(
      "broadcast_to", {x}, std::move(y),
      [from = x.shape()](Tensor<T>& gradient, Gradients<T>& into) {
        detail::add_repeated(into, 0, from, std::move(gradient));
      },
      [shape](Tangents<T> d) { return broadcast_to(*d[0], shape); });
}

namespace detail {

template <Real T>
Var<T> add(std::string_view name, const Var<T>& a, const Var<T>& b, T sign) {
  const auto signed_b = [sign](const auto& q) { return q * simd::batch<T>(sign); };
  Tensor<T> y = broadcast(
      name, [&](const auto& p, const auto& q) { return p + signed_b(q); }, a, b);
  const Shape shape = y.shape();
  return record<T>(
      name, {a, b}, std::move(y),
      [left = a.shape(), right = b.shape(), sign, signed_b](Tensor<T>& gradient, Gradients<T>& into) {
        if (into.wants(0)) add_repeated(into, 0, left, into.wants(1) ? copy_of(gradient, into) : std::move(gradient));
        if (!into.wants(1)) return;
        if (sign != T(1)) functional::map(gradient, signed_b, gradient);
        add_repeated(into, 1, right, std::move(gradient));
      },
      [name, shape, sign](Tangents<T> d) {
        if (d[0] && d[1]) return add(name, *d[0], *d[1], sign);
        return d[0] ? broadcast_to(*d[0], shape) : broadcast_to(*d[1] * sign, shape);
      });
}

}  // namespace detail

template <Real T>
Var<T> operator+(const Var<T>& a, const Var<T>& b) {
  return detail::add("add", a, b, T(1));
}
template <Real T>
Var<T> operator-(const Var<T>& a, const Var<T>& b) {
  return detail::add("subtract", a, b, T(-1));
}

template <Real T>
Var<T> operator*(const Var<T>& x, std::type_identity_t<T> factor) {
  const auto scale = [factor](const auto& p) { return p * simd::batch<T>(factor); };
  Tensor<T> y = uninitialized(x.shape(), {x});
  functional::map(y, scale, x.value());
  return record<T>(
      "multiply by a number", {x}, std::move(y),
      [scale](Tensor<T>& gradient, Gradients<T>& into) {
        functional::map(gradient, scale, gradient);
        into.add(0, std::move(gradient));
      },
      [factor](Tangents<T> d) { return *d[0] * factor; });
}

template <Real T>
Var<T> operator+(const Var<T>& x, std::type_identity_t<T> shift) {
  Tensor<T> y = uninitialized(x.shape(), {x});
  functional::map(
      y, [shift](const auto& p) { return p + simd::batch<T>(shift); }, x.value());
  return record<T>(
      "add a number", {x}, std::move(y),
      [](Tensor<T>& gradient, Gradients<T>& into) { into.add(0, std::move(gradient)); },
      [](Tangents<T> d) { return *d[0]; });
}

template <Real T>
Var<T> operator*(const Var<T>& a, const Var<T>& b) {
  Tensor<T> y = detail::broadcast("multiply", detail::product, a, b);
  return record<T>(
      "multiply", {a, b}, std::move(y),
      [a, b](Tensor<T>& gradient, Gradients<T>& into) {
        if (into.wants(0))
          detail::add_repeated(into, 0, a.shape(), detail::with_gradient(into, detail::product, gradient, b.value()));
        if (into.wants(1))
          detail::add_repeated(into, 1, b.shape(), detail::with_gradient(into, detail::product, gradient, a.value()));
      },
      [a, b](Tangents<T> d) {
        if (d[0] && d[1]) return *d[0] * b + a * *d[1];
        return d[0] ? *d[0] * b : a * *d[1];
      });
}

template <Real T>
Var<T> operator/(const Var<T>& a, const Var<T>& b) {
  Tensor<T> y = detail::broadcast("divide", detail::quotient, a, b);
  return record<T>(
      "divide", {a, b}, std::move(y),
      [a, b](Tensor<T>& gradient, Gradients<T>& into) {
        Tensor<T> left = detail::with_gradient(into, detail::quotient, gradient, b.value());
        if (into.wants(1)) {  // -(g / b) (a / b)
          Tensor<T> right = detail::with_gradient(into, detail::product, left, a.value());
          functional::broadcast(
              right, [](const auto& p, const auto& q) { return -(p / q); }, right, b.value());
          detail::add_repeated(into, 1, b.shape(), std::move(right));
        }
        if (into.wants(0)) detail::add_repeated(into, 0, a.shape(), std::move(left));
      },
      [a, b](Tangents<T> d) {
        const auto by_b = [&] { return *d[1] * (a / b) / b * T(-1); };
        if (d[0] && d[1]) return *d[0] / b + by_b();
        return d[0] ? *d[0] / b : by_b();
      });
}

template <Real T>
Var<T> operator-(const Var<T>& x) {
  return x * T(-1);
}
template <Real T>
Var<T> operator-(const Var<T>& x, std::type_identity_t<T> shift) {
  return x + -shift;
}
template <Real T>
Var<T> operator/(const Var<T>& x, std::type_identity_t<T> divisor) {
  return x * (T(1) / divisor);
}
template <Real T>
Var<T> operator+(std::type_identity_t<T> shift, const Var<T>& x) {
  return x + shift;
}
template <Real T>
Var<T> operator*(std::type_identity_t<T> factor, const Var<T>& x) {
  return x * factor;
}
template <Real T>
Var<T> operator-(std::type_identity_t<T> from, const Var<T>& x) {
  return -x + from;
}

// ---- functions of one number: what they compute and where their corners are stands in functional/activations.hpp ----

template <Real T>
Var<T> exp(const Var<T>& x) {
  return detail::unary("exp", x, functional::Exp{}, [](const Var<T>& y) { return y; });
}
template <Real T>
Var<T> log(const Var<T>& x) {
  return detail::unary("log", x, functional::Log{}, [](const Var<T>& s) { return reciprocal(s); });
}
template <Real T>
Var<T> reciprocal(const Var<T>& x) {
  return detail::unary("reciprocal", x, functional::Reciprocal{}, [](const Var<T>& y) { return -square(y); });
}
template <Real T>
Var<T> sqrt(const Var<T>& x) {
  return detail::unary("sqrt", x, functional::Sqrt{}, [](const Var<T>& y) { return reciprocal(y) * T(0.5); });
}
template <Real T>
Var<T> square(const Var<T>& x) {
  return detail::unary("square", x, functional::Square{}, [](const Var<T>& s) { return s * T(2); });
}
template <Real T>
Var<T> sin(const Var<T>& x) {
  return detail::unary("sin", x, functional::Sin{}, [](const Var<T>& s) { return cos(s); });
}
template <Real T>
Var<T> cos(const Var<T>& x) {
  return detail::unary("cos", x, functional::Cos{}, [](const Var<T>& s) { return -sin(s); });
}
template <Real T>
Var<T> erf(const Var<T>& x) {
  return detail::unary("erf", x, functional::Erf{},
                       [](const Var<T>& s) { return exp(-square(s)) * T(2 * std::numbers::inv_sqrtpi); });
}
template <Real T>
Var<T> abs(const Var<T>& x) {
  return detail::straight("abs", x, functional::Abs{});
}
/// x limited to [low, high].
template <Real T>
Var<T> clamp(const Var<T>& x, std::type_identity_t<T> low, std::type_identity_t<T> high) {
  check_argument(low <= high, "clamp", "high", message("at least low (", low, ")"), high);
  return detail::straight("clamp", x, functional::Clamp{double(low), double(high)});
}
template <Real T>
Var<T> relu(const Var<T>& x) {
  return detail::straight("relu", x, functional::Relu{});
}
template <Real T>
Var<T> leaky_relu(const Var<T>& x, double negative = 0.01) {
  return detail::straight("leaky_relu", x, functional::LeakyRelu{negative});
}
template <Real T>
Var<T> sigmoid(const Var<T>& x) {
  return detail::unary("sigmoid", x, functional::Sigmoid{}, [](const Var<T>& y) { return y * (T(1) - y); });
}
template <Real T>
Var<T> tanh(const Var<T>& x) {
  return detail::unary("tanh", x, functional::Tanh{}, [](const Var<T>& y) { return T(1) - square(y); });
}
template <Real T>
Var<T> softplus(const Var<T>& x) {
  return detail::unary("softplus", x, functional::Softplus{}, [](const Var<T>& s) { return sigmoid(s); });
}
template <Real T>
Var<T> silu(const Var<T>& x) {
  return detail::unary("silu", x, functional::Silu{}, [](const Var<T>& s) {
    const Var<T> p = sigmoid(s);
    return p * (T(1) + s * (T(1) - p));
  });
}
template <Real T>
Var<T> gelu_erf(const Var<T>& x) {
  return detail::unary("gelu_erf", x, functional::GeluErf{}, [](const Var<T>& s) {
    const Var<T> density = exp(square(s) * T(-0.5)) * T(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return T(0.5) + erf(s * T(1 / std::numbers::sqrt2)) * T(0.5) + s * density;
  });
}
template <Real T>
Var<T> gelu_tanh(const Var<T>& x) {
  return detail::unary("gelu_tanh", x, functional::GeluTanh{}, [](const Var<T>& s) {
    constexpr double scale = 2 * functional::GeluTanh::scale, cubic = functional::GeluTanh::cubic;
    const Var<T> p = sigmoid((s + square(s) * s * T(cubic)) * T(scale));
    return p + s * p * (T(1) - p) * (square(s) * T(3 * cubic * scale) + T(scale));
  });
}

}  // namespace ashlar::autodiff
