// Collage: AdamW with every stored number in a low-precision format, and the usual alternatives.
//
// Source: Yu, Gupta, Gopalswamy, Zhou, Huynh, Park, Diamant, Deoras, Huan, "Collage: Light-Weight Low-Precision
// Strategy for LLM Training", ICML 2024 (arXiv 2405.03637).
//
// In bfloat16 an AdamW update is usually below half a unit in the last place of its weight and vanishes, and
// beta2 = 0.999 rounds to 1, so that the second moment never decays. Collage keeps the critical quantities as
// unevaluated sums hi + lo: "light" the weights, "plus" also the second moment and beta2.
//
//   m  = fl(fl(b1 m) + (1 - b1) g)
//   v  = fl(fl(b2 v) + ((1 - b2) g) g)                                light;   in plus:
//   (v, dv) = Mul((v, dv), (b2_hi, b2_lo));  (v, dv) = Grow((v, dv), fl(((1 - b2) g) g))
//   up = fl(fl((-lr / bc1) m) / fl(fl(fl(sqrt v) / sqrt(bc2)) + eps)) - decay
//   (w, dw) = Grow((w, dw), up)                                       the forward pass reads w alone
//
//   std::vector<bfloat16> weights = ..., gradient = ...;
//   AdamWState<bfloat16> state(Precision::collage_plus, weights);
//   adamw_step(weights, gradient, state, {.learning_rate = 1e-3});
//
// One fused pass over memory. Bytes moved per parameter in a 2-byte format: pure 14, light 18, plus 22, float32 states
// 22, float32 master 28. Roof: copy bandwidth.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "ashlar/core/config.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/adamw_state.hpp"
#include "ashlar/precision/descent_quality.hpp"
#include "ashlar/precision/detail/adamw_array.hpp"
#include "ashlar/precision/detail/adamw_element.hpp"
#include "ashlar/precision/expansion.hpp"

namespace ashlar::precision {

namespace reference {

namespace detail {
using namespace precision::detail;

/// Numbers of one parameter of a step. Those a strategy does not keep are 0 and stay so.
template <Component F>
struct Parameter {
  F weight{}, moment{}, variance{}, variance_residual{}, residual{};
};

/// Steps the parameter and returns the update intended.
template <Component F>
double step_low_precision(Parameter<F>& p, F gradient, Precision precision, const AdamWOptions& options,
                          const Coefficients<wide_t<F>>& c, std::uint32_t random) {
  using Wide = wide_t<F>;
  const bool rounds = options.rounding == StepRounding::every_operation;
  const bool light = precision == Precision::collage_light, plus = precision == Precision::collage_plus;
  const auto wide = [](F x) { return static_cast<Wide>(to_float(x)); };
  const auto round = [](Wide x) { return round_to<F>(static_cast<float>(x)); };
  const auto fl = [&](Wide x) { return rounds ? wide(round(x)) : x; };
  const auto split = [&](F& hi, F& lo, Wide x) {
    hi = round(x);
    lo = round(x - wide(hi));
  };
  const auto add = [&](F& hi, F& lo, Wide x) {
    const Expansion<F> sum = options.robust_grow ? grow_robust({hi, lo}, round(x)) : grow({hi, lo}, round(x));
    hi = sum.hi;
    lo = sum.lo;
  };
  const Wide g = wide(gradient) * c.unscale, square = (c.one_minus_beta2 * g) * g, w = wide(p.weight);

  const Wide m = fl(fl(c.beta1 * wide(p.moment)) + c.one_minus_beta1 * g);
  p.moment = round(m);

  Wide v = 0;
  if (plus && rounds) {
    const Expansion<F> decayed = mul({p.variance, p.variance_residual}, split_scalar<F>(options.beta2));
    p.variance = decayed.hi;
    p.variance_residual = decayed.lo;
    add(p.variance, p.variance_residual, square);
    v = wide(p.variance);
  } else {
    v = fl(fl(c.beta2 * (wide(p.variance) + wide(p.variance_residual))) + square);
    F lost{};
    split(p.variance, plus ? p.variance_residual : lost, v);
  }

  const Wide root = fl(std::sqrt(plus && v < 0 ? 0 : v));
  const Wide corrected = rounds ? fl(root / c.divisor) : root * c.factor;
  Wide up = fl(fl(c.step * m) / fl(corrected + c.epsilon));
  if (options.weight_decay > 0) up = fl(up - fl(c.decay * w));

  if (precision == Precision::kahan) {
    const Wide wanted = fl(up + wide(p.residual));
    p.weight = round(w + wanted);
    p.residual = round(fl(wanted - fl(wide(p.weight) - w)));
  } else if ((light || plus) && rounds) {
    add(p.weight, p.residual, up);
  } else if (light || plus) {
    split(p.weight, p.residual, w + (wide(p.residual) + up));
  } else if (precision == Precision::stochastic) {
    if constexpr (Storage<F>) p.weight = stochastic_round<F>(w + up, random);
  } else {
    p.weight = round(w + up);
  }
  return static_cast<double>(static_cast<float>(up));
}

/// The float32 strategies: moments, and for fp32_master the weight itself, in float.
template <Component F>
DescentTerm step_float32(F& weight, F gradient, float& m, float& v, float* master, const Coefficients<float>& c) {
  const float g = to_float(gradient) * c.unscale, w = master != nullptr ? *master : to_float(weight);
  m = c.beta1 * m + c.one_minus_beta1 * g;
  v = c.beta2 * v + (c.one_minus_beta2 * g) * g;
  const float denominator = std::sqrt(v) / c.divisor + c.epsilon;
  float up = (c.step * m) / denominator;
  if (c.decays) up -= c.decay * w;
  if (master != nullptr) {
    *master = w + up;
    weight = round_to<F>(*master);
    return {up, w, *master, 0, 0};
  }
  const float rounded = to_float(round_to<F>(up));
  weight = round_to<F>(w + rounded);
  return {rounded, w, to_float(weight), 0, 0};
}

}  // namespace detail

/// The step as the paper writes it, one element at a time. Same arguments, same bits as the fast form.
template <class X>
StepReport adamw_step(X&& theta, In<X, 1> gradient, AdamWState<scalar_t<X>>& state, const AdamWOptions& options = {},
                      const StepOptions& step = {}, View<const std::uint32_t, 1> random_bits = {}) {
  using F = scalar_t<X>;
  const Out<X, 1> weights = theta;
  detail::check_step<F>("reference::adamw_step", weights, gradient, state, options, step, random_bits);
  StepReport report;
  if (step.check_finite)
    for (Index i = 0; i < state.size; ++i) report.non_finite += !std::isfinite(to_float(gradient[i]));
  report.applied = report.non_finite == 0;
  if (!report.applied) return report;

  const std::uint64_t t = ++state.step;
  const auto doubles = detail::coefficients<F>(options, t, step.gradient_scale);
  const auto wide = doubles.template to<wide_t<F>, wide_t<F>>();
  const auto single = doubles.template to<float, float>();
  detail::DescentAccumulator quality;
  for (Index i = 0; i < state.size; ++i) {
    detail::DescentTerm term{};
    if (detail::float32_moments(state.precision)) {
      float* const master = state.precision == Precision::fp32_master ? state.master.data() + i : nullptr;
      term = detail::step_float32(weights[i], gradient[i], state.moment32.data()[i], state.variance32.data()[i], master,
                                  single);
    } else {
      const auto at = [i](const Tensor<F>& array) { return array.size() > 0 ? array.data()[i] : F{}; };
      detail::Parameter<F> p{weights[i], at(state.moment), at(state.variance), at(state.variance_residual),
                             at(state.residual)};
      const detail::Parameter<F> before = p;
      const std::uint32_t random = random_bits.empty() ? detail::random_word(state.seed, t, i) : random_bits[i];
      term.update = detail::step_low_precision(p, gradient[i], state.precision, options, wide, random);
      weights[i] = p.weight;
      state.moment.data()[i] = p.moment;
      state.variance.data()[i] = p.variance;
      if (state.residual.size() > 0) state.residual.data()[i] = p.residual;
      if (state.variance_residual.size() > 0) state.variance_residual.data()[i] = p.variance_residual;
      term = {term.update, to_float(before.weight), to_float(p.weight), to_float(before.residual),
              to_float(p.residual)};
    }
    quality.add(1, [&](Index) { return term; });
  }
  if (step.quality != nullptr) *step.quality = quality.sums();
  return report;
}

}  // namespace reference

/// One AdamW step on one array.
///   theta: [n], updated          gradient: [n]          state: made from theta, advanced by one step
///   random_bits: [n] words for stochastic rounding, of which the low bits are used; drawn from the state's seed if
///   empty
/// O(n), one pass over memory and, to check the gradient, one more over it; allocates nothing. The same bits as
/// reference::adamw_step for any number of threads. Throws InvalidArgument on sizes that differ, arrays with gaps,
/// options out of range; then, and when the step is skipped, nothing has changed.
template <class X>
StepReport adamw_step(X&& theta, In<X, 1> gradient, AdamWState<scalar_t<X>>& state, const AdamWOptions& options = {},
                      const StepOptions& step = {}, View<const std::uint32_t, 1> random_bits = {}) {
  using F = scalar_t<X>;
  const Out<X, 1> weights = theta;
  detail::check_step<F>("adamw_step", weights, gradient, state, options, step, random_bits);
  StepReport report;
  if (step.check_finite) report.non_finite = detail::count_non_finite(gradient.data(), state.size);
  report.applied = report.non_finite == 0;
  if (!report.applied) return report;
  const DescentSums sums = detail::apply(weights.data(), gradient.data(), state, options, step.gradient_scale,
                                         random_bits.empty() ? nullptr : random_bits.data(), step.quality != nullptr);
  if (step.quality != nullptr) *step.quality = sums;
  return report;
}

}  // namespace ashlar::precision
