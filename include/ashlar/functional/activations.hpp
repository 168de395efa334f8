// Activations and other functions of one number, each with its slope.
//
//   functional::map(y, functional::Silu{}, x);
//   functional::map(dx, functional::SlopeOf<functional::Silu>{}, dy, x);       // dx = dy silu'(x)
//
// A function f has operator()(x) and slope(s), where s is the input x or, when `from_output`, the output f(x):
// whichever makes the slope cheap is what a network has to keep. Where f has a corner, the slope there is that of the
// left side for relu and its leaky form, 0 for the absolute value.
#pragma once

#include <limits>
#include <numbers>

#include "ashlar/core/simd.hpp"

namespace ashlar::functional {

namespace detail {

template <class B>
using element = typename B::value_type;

/// e^-|x|, which every stable form of the logistic function starts from.
template <class B>
B exp_of_minus_magnitude(const B& x) {
  return simd::exp(-xsimd::abs(x));
}

template <class B>
B logistic(const B& x) {
  const B e = exp_of_minus_magnitude(x);
  const B one(element<B>(1));
  return xsimd::select(x < B(element<B>(0)), e, one) / (one + e);
}

}  // namespace detail

/// dy f'(s), with s the input or the output of f.
template <class F>
struct SlopeOf {
  F f{};
  template <class B>
  B operator()(const B& dy, const B& s) const {
    return dy * f.slope(s);
  }
};

struct Relu {
  static constexpr bool from_output = true;
  template <class B>
  B operator()(const B& x) const {
    const B zero(detail::element<B>(0));
    return xsimd::select(x > zero, x, zero);
  }
  template <class B>
  B slope(const B& y) const {
    const B zero(detail::element<B>(0));
    return xsimd::select(y > zero, B(detail::element<B>(1)), zero);
  }
};

/// x above zero, `negative` x below.
struct LeakyRelu {
  static constexpr bool from_output = false;
  double negative = 0.01;
  template <class B>
  B operator()(const B& x) const {
    return x * slope(x);
  }
  template <class B>
  B slope(const B& x) const {
    using T = detail::element<B>;
    return xsimd::select(x > B(T(0)), B(T(1)), B(static_cast<T>(negative)));
  }
};

/// 1 / (1 + e^-x), without overflow.
struct Sigmoid {
  static constexpr bool from_output = true;
  template <class B>
  B operator()(const B& x) const {
    return detail::logistic(x);
  }
  template <class B>
  B slope(const B& y) const {
    return y * (B(detail::element<B>(1)) - y);
  }
};

/// log(1 + e^x), without overflow.
struct Softplus {
  static constexpr bool from_output = false;
  template <class B>
  B operator()(const B& x) const {
    const B zero(detail::element<B>(0)), one(detail::element<B>(1));
    const B e = detail::exp_of_minus_magnitude(x), u = one + e;
    // log(1 + e) to full precision: what rounding 1 + e lost is put back as a factor.
    const B log1p = xsimd::select(u == one, e, simd::log(u) * (e / (u - one)));
    return xsimd::select(x > zero, x, zero) + log1p;
  }
  template <class B>
  B slope(const B& x) const {
    return detail::logistic(x);
  }
};

struct Tanh {
  static constexpr bool from_output = true;
  template <class B>
  B operator()(const B& x) const {
    return xsimd::tanh(x);
  }
  template <class B>
  B slope(const B& y) const {
    return B(detail::element<B>(1)) - y * y;
  }
};

/// x sigmoid(x), also called swish.
struct Silu {
  static constexpr bool from_output = false;
  template <class B>
  B operator()(const B& x) const {
    return x * detail::logistic(x);
  }
  template <class B>
  B slope(const B& x) const {
    const B s = detail::logistic(x), one(detail::element<B>(1));
    return s * (one + x * (one - s));
  }
};

/// x Phi(x) with the distribution function of the standard normal.
struct GeluErf {
  static constexpr bool from_output = false;
  template <class B>
  B operator()(const B& x) const {
    return x * phi(x);
  }
  template <class B>
  B slope(const B& x) const {
    using T = detail::element<B>;
    const B density =
        B(static_cast<T>(0.5 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi)) * simd::exp(B(T(-0.5)) * x * x);
    return phi(x) + x * density;
  }

 private:
  template <class B>
  static B phi(const B& x) {
    using T = detail::element<B>;
    return B(T(0.5)) * xsimd::erfc(x * B(static_cast<T>(-1 / std::numbers::sqrt2)));
  }
};

/// The approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
struct GeluTanh {
  static constexpr bool from_output = false;
  static constexpr double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, cubic = 0.044715;
  template <class B>
  B operator()(const B& x) const {
    return x * detail::logistic(argument(x));
  }
  template <class B>
  B slope(const B& x) const {
    using T = detail::element<B>;
    const B s = detail::logistic(argument(x)), one(T(1));
    const B steepness = B(static_cast<T>(2 * scale)) * (one + B(static_cast<T>(3 * cubic)) * x * x);
    return s + x * s * (one - s) * steepness;
  }

 private:
  /// 0.5 (1 + tanh u) is the logistic function of 2 u.
  template <class B>
  static B argument(const B& x) {
    using T = detail::element<B>;
    return B(static_cast<T>(2 * scale)) * (x + B(static_cast<T>(cubic)) * x * x * x);
  }
};

struct Exp {
  static constexpr bool from_output = true;
  template <class B>
  B operator()(const B& x) const {
    return simd::exp(x);
  }
  template <class B>
  B slope(const B& y) const {
    return y;
  }
};

struct Sqrt {
  static constexpr bool from_output = true;
  template <class B>
  B operator()(const B& x) const {
    return xsimd::sqrt(x);
  }
  template <class B>
  B slope(const B& y) const {
    return B(detail::element<B>(0.5)) / y;
  }
};

/// Natural logarithm.
struct Log {
  static constexpr bool from_output = false;
  template <class B>
  B operator()(const B& x) const {
    return simd::log(x);
  }
  template <class B>
  B slope(const B& x) const {
    return B(detail::element<B>(1)) / x;
  }
};

/// 1 / x.
struct Reciprocal {
  static constexpr bool from_output = true;
  template <class B>
  B operator()(const B& x) const {
    return B(detail::element<B>(1)) / x;
  }
  template <class B>
  B slope(const B& y) const {
    return -(y * y);
  }
};

struct Square {
  static constexpr bool from_output = false;
  template <class B>
  B operator()(const B& x) const {
    return x * x;
  }
  template <class B>
  B slope(const B& x) const {
    return x + x;
  }
};

struct Abs {
  static constexpr bool from_output = false;
  template <class B>
  B operator()(const B& x) const {
    return xsimd::abs(x);
  }
  template <class B>
  B slope(const B& x) const {
    const B zero(detail::element<B>(0)), one(detail::element<B>(1));
    return xsimd::select(x > zero, one, xsimd::select(x < zero, -one, zero));
  }
};

/// x limited to [low, high]; the slope is 1 at both ends.
struct Clamp {
  static constexpr bool from_output = false;
  double low, high;
  template <class B>
  B operator()(const B& x) const {
    using T = detail::element<B>;
    return xsimd::min(xsimd::max(x, B(static_cast<T>(low))), B(static_cast<T>(high)));
  }
  template <class B>
  B slope(const B& x) const {
    using T = detail::element<B>;
    const B zero(T(0));
    return xsimd::select(x < B(static_cast<T>(low)), zero, xsimd::select(x > B(static_cast<T>(high)), zero, B(T(1))));
  }
};

struct Erf {
  static constexpr bool from_output = false;
  template <class B>
  B operator()(const B& x) const {
    return xsimd::erf(x);
  }
  template <class B>
  B slope(const B& x) const {
    return B(static_cast<detail::element<B>>(2 * std::numbers::inv_sqrtpi)) * simd::exp(-(x * x));
  }
};

struct Cos {
  static constexpr bool from_output = false;
  template <class B>
  B operator()(const B& x) const {
    return xsimd::cos(x);
  }
  template <class B>
  B slope(const B& x) const {
    return -xsimd::sin(x);
  }
};
struct Sin {
  static constexpr bool from_output = false;
  template <class B>
  B operator()(const B& x) const {
    return xsimd::sin(x);
  }
  template <class B>
  B slope(const B& x) const {
    return xsimd::cos(x);
  }
};

}  // namespace ashlar::functional
