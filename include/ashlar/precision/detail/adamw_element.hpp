// The AdamW step of one element, or of one vector of elements, on the host and on the device.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "ashlar/core/config.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/precision/adamw_state.hpp"
#include "ashlar/precision/detail/lanes.hpp"
#include "ashlar/precision/expansion.hpp"

namespace ashlar::precision::detail {

/// The scalars of one step, computed in double and rounded once to what the arithmetic runs in.
template <class V>
struct Coefficients {
  V beta1, one_minus_beta1, beta2, one_minus_beta2;
  V divisor;  ///< sqrt(1 - beta2^t), or 1
  V factor;   ///< 1 / divisor
  V step;     ///< -lr / (1 - beta1^t)
  V epsilon;
  V decay;    ///< lr * weight decay
  V unscale;  ///< 1 / gradient scale
  V beta2_hi, beta2_lo;
  bool scaled;  ///< the gradient scale is not 1
  bool decays;
  bool robust;

  /// The same in a narrower scalar, or in every lane of a vector.
  template <class To, class Narrow>
  Coefficients<To> to() const {
    const auto convert = [](V x) { return To(static_cast<Narrow>(x)); };
    return {.beta1 = convert(beta1),
            .one_minus_beta1 = convert(one_minus_beta1),
            .beta2 = convert(beta2),
            .one_minus_beta2 = convert(one_minus_beta2),
            .divisor = convert(divisor),
            .factor = convert(factor),
            .step = convert(step),
            .epsilon = convert(epsilon),
            .decay = convert(decay),
            .unscale = convert(unscale),
            .beta2_hi = convert(beta2_hi),
            .beta2_lo = convert(beta2_lo),
            .scaled = scaled,
            .decays = decays,
            .robust = robust};
  }
};

template <Component F>
Coefficients<double> coefficients(const AdamWOptions& options, std::uint64_t step, double gradient_scale) {
  const auto t = static_cast<double>(step);
  const double correction1 = 1 - std::pow(options.beta1, t), correction2 = std::sqrt(1 - std::pow(options.beta2, t));
  double divisor = 1, rate = options.learning_rate;
  switch (options.bias_correction) {
    case BiasCorrection::denominator:
      divisor = correction2, rate = options.learning_rate / correction1;
      break;
    case BiasCorrection::step_size:
      rate = options.learning_rate * correction2 / correction1;
      break;
    case BiasCorrection::none:
      break;
  }
  const Expansion<F> beta2 = split_scalar<F>(options.beta2);
  return {.beta1 = options.beta1,
          .one_minus_beta1 = 1 - options.beta1,
          .beta2 = options.beta2,
          .one_minus_beta2 = 1 - options.beta2,
          .divisor = divisor,
          .factor = 1 / divisor,
          .step = -rate,
          .epsilon = options.epsilon,
          .decay = options.learning_rate * options.weight_decay,
          .unscale = 1 / gradient_scale,
          .beta2_hi = static_cast<double>(to_float(beta2.hi)),
          .beta2_lo = static_cast<double>(to_float(beta2.lo)),
          .scaled = gradient_scale != 1,
          .decays = options.weight_decay > 0,
          .robust = options.robust_grow};
}

/// Random bits: element i of step t of a seed always gets the same 32. Elements come in blocks of 64 served by 16
/// counters of four words: element 16 k + j of a block is word k of counter j.
ASHLAR_HOST_DEVICE inline std::uint32_t random_word(std::uint64_t seed, std::uint64_t step, Index element) {
  const auto i = static_cast<std::uint64_t>(element);
  const std::uint64_t counter = i / 64 * 16 + i % 16;
  const auto words =
      ashlar::detail::philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                                  static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32)},
                                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return words[i / 16 % 4];
}

/// Where the arrays of a step are; those a strategy does not keep are null.
template <Component F>
struct Arrays {
  F* theta;
  const F* gradient;
  F *moment, *variance, *residual, *variance_residual;
  float *moment32, *variance32, *master;
};

/// The arrays of a state, for one step.
template <Component F>
Arrays<F> arrays_of(F* theta, const F* gradient, AdamWState<F>& state) {
  return {theta,
          gradient,
          state.moment.data(),
          state.variance.data(),
          state.residual.data(),
          state.variance_residual.data(),
          state.moment32.data(),
          state.variance32.data(),
          state.master.data()};
}

/// What the first part of a step hands to the second.
template <class V>
struct Moments {
  V m, v;
};

/// The step of element i, or of the vector that starts there, in three parts: its moments, the update they intend, and
/// how that lands in the weight. Cut so, each part is a chain of dependent operations short enough for a processor to
/// work on several elements at once.
template <Precision P, StepRounding R, Component F, class V>
struct ElementStep {
  using L = Lanes<V>;
  using Number = Rounded<F, V>;
  static constexpr bool in_float32 = float32_moments(P);
  static constexpr bool rounds = !in_float32 && R == StepRounding::every_operation;
  static constexpr bool expands_variance = P == Precision::collage_plus;
  static constexpr bool expands_weight = P == Precision::collage_plus || P == Precision::collage_light;

  Arrays<F> a;
  Coefficients<V> c;

  constexpr Moments<V> moments(Index i) const {
    const auto [moment, variance] = moment_arrays();
    V g = L::load(a.gradient + i);
    if (c.scaled) g = g * c.unscale;
    const V square = (c.one_minus_beta2 * g) * g;

    const V m = fl(fl(c.beta1 * L::load(moment + i)) + c.one_minus_beta1 * g);
    keep(moment + i, m);
    if constexpr (expands_variance && rounds) {
      const Expansion<Number> beta2{{c.beta2_hi}, {c.beta2_lo}};
      const auto decayed = mul(load<V>(a.variance + i, a.variance_residual + i), beta2);
      const auto v = grown(decayed, Number::fl(square));
      store(a.variance + i, a.variance_residual + i, v);
      return {m, v.hi.value};
    } else {
      V v = L::load(variance + i);
      if constexpr (expands_variance) v = v + L::load(a.variance_residual + i);
      v = fl(fl(c.beta2 * v) + square);
      if constexpr (expands_variance)
        keep_sum(a.variance + i, a.variance_residual + i, v);
      else
        keep(variance + i, v);
      return {m, v};
    }
  }

  constexpr V update(Index i, const Moments<V>& moments) const {
    using std::sqrt;
    const V root = fl(sqrt(expands_variance ? L::not_negative(moments.v) : moments.v));
    const V corrected = rounds || in_float32 ? fl(root / c.divisor) : root * c.factor;
    V up = fl(fl(c.step * moments.m) / fl(corrected + c.epsilon));
    if (c.decays) up = fl(up - fl(c.decay * weight(i)));
    if constexpr (P == Precision::fp32_states) up = L::template round_any<F>(up);
    return up;
  }

  constexpr void land(Index i, const V& up, [[maybe_unused]] const std::uint32_t* random) const {
    const V w = weight(i);
    if constexpr (P == Precision::fp32_master) {
      const V next = w + up;
      L::store(a.master + i, next);
      L::store(a.theta + i, L::template round_any<F>(next));
    } else if constexpr (P == Precision::kahan) {
      const V wanted = fl(up + L::load(a.residual + i)), next = round(w + wanted);
      L::store(a.theta + i, next);
      keep(a.residual + i, fl(wanted - fl(next - w)));
    } else if constexpr (expands_weight && rounds) {
      store(a.theta + i, a.residual + i, grown(load<V>(a.theta + i, a.residual + i), Number{up}));
    } else if constexpr (expands_weight) {
      keep_sum(a.theta + i, a.residual + i, w + (L::load(a.residual + i) + up));
    } else if constexpr (P == Precision::stochastic) {
      L::store(a.theta + i, L::template stochastic<F>(w + up, random));
    } else {
      L::store(a.theta + i, round(w + up));
    }
  }

 private:
  static constexpr V round(const V& x) { return L::template round<F>(x); }
  /// The paper's fl(.) where every operation rounds.
  static constexpr V fl(const V& x) {
    if constexpr (rounds)
      return round(x);
    else
      return x;
  }
  template <class T>
  static constexpr void keep(T* to, const V& x) {
    if constexpr (rounds || std::same_as<T, float>)
      L::store(to, x);
    else
      L::store(to, round(x));
  }
  static constexpr void keep_sum(F* hi, F* lo, const V& x) {
    const V head = round(x);
    L::store(hi, head);
    L::store(lo, round(x - head));
  }
  constexpr Expansion<Number> grown(const Expansion<Number>& x, const Number& by) const {
    return c.robust ? grow_robust(x, by) : grow(x, by);
  }
  constexpr V weight(Index i) const {
    if constexpr (P == Precision::fp32_master)
      return L::load(a.master + i);
    else
      return L::load(a.theta + i);
  }
  struct MomentArrays {
    std::conditional_t<in_float32, float, F>*moment, *variance;
  };
  constexpr MomentArrays moment_arrays() const {
    if constexpr (in_float32)
      return {a.moment32, a.variance32};
    else
      return {a.moment, a.variance};
  }
};

template <Precision P, StepRounding R>
struct Strategy {
  static constexpr Precision precision = P;
  static constexpr StepRounding rounding = R;
};

/// Calls body(Strategy<P, R>{}) for a strategy known at run time.
template <Component F, class Body>
void dispatch(Precision precision, StepRounding rounding, Body&& body) {
  using enum Precision;
  const auto rounded = [&]<Precision P>(std::integral_constant<Precision, P>) {
    if (rounding == StepRounding::stored_values)
      body(Strategy<P, StepRounding::stored_values>{});
    else
      body(Strategy<P, StepRounding::every_operation>{});
  };
  switch (precision) {
    case pure:
      return rounded(std::integral_constant<Precision, pure>{});
    case kahan:
      return rounded(std::integral_constant<Precision, kahan>{});
    case stochastic:
      if constexpr (Storage<F>) rounded(std::integral_constant<Precision, stochastic>{});
      return;
    case collage_light:
      return rounded(std::integral_constant<Precision, collage_light>{});
    case collage_plus:
      return rounded(std::integral_constant<Precision, collage_plus>{});
    case fp32_states:
      return body(Strategy<fp32_states, StepRounding::every_operation>{});
    case fp32_master:
      return body(Strategy<fp32_master, StepRounding::every_operation>{});
  }
}

}  // namespace ashlar::precision::detail
