// The losses whose minimiser over functions f is a density ratio: beta = dP/dQ = link(f).
//
//   R(f) = E_P l(+1, f(x)) + E_Q l(-1, f(x))
//
// R is, up to a constant, a Bregman divergence from link(f) to beta, so its value on fresh points ranks estimates
// without knowing beta. The link follows from the loss: minimising p l(+1, v) + q l(-1, v) over v gives link(v) = p /
// q.
//
// Source: Gruber, Holzleitner, Lehner, Hochreiter, Zellinger, "Overcoming saturation in density ratio estimation by
// iterated regularization", ICML 2024, section 2. The published code ends the square loss with (2v - 1) / (2 - 2v),
// which does not belong to its loss; here it is (1 + v) / (1 - v).
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>

#include "ashlar/core/scalar.hpp"

namespace ashlar::kernels {

enum class Loss {
  kulsif,       ///< l(+1, v) = -v,             l(-1, v) = v^2 / 2,      ratio v: least squares
  logistic,     ///< l(+1, v) = log(1 + e^-v),  l(-1, v) = log(1 + e^v), ratio e^v
  exponential,  ///< l(+1, v) = e^-v,           l(-1, v) = e^v,          ratio e^2v
  square,       ///< l(+1, v) = (1 - v)^2,      l(-1, v) = (1 + v)^2,    ratio (1 + v) / (1 - v)
  kliep,        ///< l(+1, v) = -v,             l(-1, v) = e^v,          ratio e^v: Kullback-Leibler
};

constexpr std::string_view name(Loss loss) {
  constexpr std::string_view names[] = {"kulsif", "logistic", "exponential", "square", "kliep"};
  return names[static_cast<int>(loss)];
}

/// Which sample a point is from: P, above the fraction bar, or Q.
enum class Side { numerator, denominator };

/// l(side, v) with its first and second derivative in v.
template <class T>
struct LossTerms {
  T value, slope, curvature;
};

/// True when l'' does not depend on v, so that one linear solve minimises R.
constexpr bool is_quadratic(Loss loss) { return loss == Loss::kulsif || loss == Loss::square; }

template <Real T>
LossTerms<T> loss_terms(Loss loss, Side side, T v) {
  const bool numerator = side == Side::numerator;
  const T sign = numerator ? T(1) : T(-1);
  switch (loss) {
    case Loss::kulsif:
      return numerator ? LossTerms<T>{-v, T(-1), T(0)} : LossTerms<T>{v * v / 2, v, T(1)};
    case Loss::logistic: {
      const T z = -sign * v, decay = std::exp(-std::abs(z));
      const T sigmoid = z >= 0 ? 1 / (1 + decay) : decay / (1 + decay);
      return {std::max(z, T(0)) + std::log1p(decay), -sign * sigmoid, decay / ((1 + decay) * (1 + decay))};
    }
    case Loss::exponential: {
      constexpr T cap = std::is_same_v<T, double> ? T(350) : T(43);  // half of what exp can represent
      const T e = std::exp(std::clamp(-sign * v, -cap, cap));
      return {e, -sign * e, e};
    }
    case Loss::square: {
      const T gap = 1 - sign * v;
      return {gap * gap, -2 * sign * gap, T(2)};
    }
    case Loss::kliep: {
      if (numerator) return {-v, T(-1), T(0)};
      const T e = std::exp(v);
      return {e, e, e};
    }
  }
  return {};
}

/// The density ratio that a function value stands for.
template <Real T>
T link(Loss loss, T v) {
  switch (loss) {
    case Loss::kulsif:
      return v;
    case Loss::logistic:
    case Loss::kliep:
      return std::exp(v);
    case Loss::exponential:
      return std::exp(2 * v);
    case Loss::square:
      return (1 + v) / (1 - v);
  }
  return v;
}

/// link(v) with what no ratio can be cut off: negative for kulsif, v outside [-1, 1 - 1e-12] for square.
template <Real T>
T clipped_link(Loss loss, T v) {
  constexpr T largest = std::is_same_v<T, double> ? T(1) - T(1e-12) : T(1) - T(1e-6);
  if (loss == Loss::kulsif) return std::max(v, T(0));
  if (loss == Loss::square) return link(loss, std::clamp(v, T(-1), largest));
  return link(loss, v);
}

/// log link(v): finite for logistic, exponential and kliep where the ratio itself overflows.
template <Real T>
T log_link(Loss loss, T v) {
  switch (loss) {
    case Loss::kulsif:
      return std::log(v);
    case Loss::logistic:
    case Loss::kliep:
      return v;
    case Loss::exponential:
      return 2 * v;
    case Loss::square:
      return std::log1p(v) - std::log1p(-v);
  }
  return v;
}

}  // namespace ashlar::kernels
