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

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/descent_quality.hpp"
#include "ashlar/precision/expansion.hpp"

namespace ashlar::precision {

/// What is kept of a parameter, in a format F, and how its update lands.
enum class Precision {
  pure,           ///< weights and moments in F, w + up rounded to nearest (option A)
  kahan,          ///< pure with a compensation of the lost part of each update
  stochastic,     ///< pure with w + up rounded stochastically
  collage_light,  ///< weights as an expansion (option B)
  collage_plus,   ///< weights, second moment and beta2 as expansions (option C)
  fp32_states,    ///< moments in float32, weights in F
  fp32_master,    ///< moments and a master copy of the weights in float32 (option D)
};

/// Where the corrections 1 - beta^t of the moments' start at zero enter.
enum class BiasCorrection {
  denominator,  ///< sqrt(v) / sqrt(1 - beta2^t) + epsilon, as published for Adam
  step_size,    ///< folded into the step, epsilon meets the uncorrected sqrt(v): another algorithm when epsilon matters
  none,
};

/// How often the arithmetic between loads and stores rounds to the format.
enum class StepRounding {
  every_operation,  ///< as the paper's low-precision operations do
  stored_values,    ///< float in between, one rounding for each number stored: fewer errors, and two to three times as
                    ///< fast where memory keeps up. Expansions hi + lo are added up, updated and split again.
};

struct AdamWOptions {
  double learning_rate = 1e-3;  ///< at least 0; may change at every step
  double beta1 = 0.9;           ///< in [0, 1)
  double beta2 = 0.999;         ///< in [0, 1)
  double epsilon = 1e-8;        ///< above 0 also when rounded to the format: 1e-8 is 0 in half precision
  double weight_decay = 0.01;   ///< at least 0; decoupled from the gradient, part of the update
  BiasCorrection bias_correction = BiasCorrection::denominator;
  StepRounding rounding = StepRounding::every_operation;  ///< of all but the float32 strategies, which never round in between
  bool robust_grow = false;  ///< Collage rounding every operation: exact also where an update exceeds its weight
};

struct StepOptions {
  double gradient_scale = 1;       ///< the gradient is divided by it: the scale of a scaled loss
  bool check_finite = true;        ///< skip the step when a gradient is infinite or NaN
  DescentSums* quality = nullptr;  ///< receives what became of the intended update
};

struct StepReport {
  bool applied = true;   ///< false: the step was skipped and nothing changed
  Index non_finite = 0;  ///< infinite or NaN gradients found
};

/// Stored per parameter, its gradient included.
template <Component F>
constexpr Index bytes_per_parameter(Precision precision) {
  const auto size = static_cast<Index>(sizeof(F));
  switch (precision) {
    case Precision::pure:
    case Precision::stochastic:
      return 4 * size;
    case Precision::kahan:
    case Precision::collage_light:
      return 5 * size;
    case Precision::collage_plus:
      return 6 * size;
    case Precision::fp32_states:
      return 2 * size + 8;
    case Precision::fp32_master:
      return 2 * size + 12;
  }
  return 0;
}

namespace detail {

constexpr bool keeps_residual(Precision p) {
  return p == Precision::kahan || p == Precision::collage_light || p == Precision::collage_plus;
}
constexpr bool float32_moments(Precision p) { return p == Precision::fp32_states || p == Precision::fp32_master; }

/// Error-free transformations need each operation rounded as written. Of this translation unit, at run time: nothing
/// else sees flags like -ffp-contract=fast (gcc's default) or a start-up routine that flushes subnormals.
[[gnu::always_inline]] inline void require_exact_arithmetic(std::string_view function) {
  volatile float a_source = 1 + 0x1p-12f, c_source = -(1 + 0x1p-11f), tiny_source = 0x1p-126f, large_source = 0x1p30f;
  const float a = a_source, c = c_source, tiny = tiny_source, large = large_source;
  require(a * a + c == 0, function,
          "a product and a sum were fused into one operation; compile with -ffp-contract=off");
  require((tiny + large) - large == 0, function, "sums were reordered; compile without -fassociative-math");
  volatile float subnormal = tiny * 0.5f;
  const float doubled = subnormal * 2.0f;
  require(doubled == tiny, function,
          "subnormal numbers are flushed to zero; link without -ffast-math and leave FTZ and DAZ off");
}

}  // namespace detail

/// All that AdamW remembers of one array of parameters: what a checkpoint must hold besides the parameters.
template <Component F>
struct AdamWState {
  Precision precision = Precision::pure;
  std::uint64_t step = 0;  ///< steps applied
  std::uint64_t seed = 0;  ///< of the stochastic rounding; with `step` and the element it fixes the bits
  Index size = 0;
  Tensor<F> moment;             ///< m; empty where `moment32` is kept, and so on
  Tensor<F> variance;           ///< v
  Tensor<F> residual;           ///< dw of an expansion, or Kahan's compensation
  Tensor<F> variance_residual;  ///< dv
  Tensor<float> moment32, variance32;
  Tensor<float> master;  ///< the weights in float32

  AdamWState() = default;

  /// Everything zero; the master copy, where there is one, equals `parameters`, of shape [n].
  /// Throws InvalidArgument for Precision::stochastic, which needs a generator, and where the compiler's flags or the
  /// processor's mode break the arithmetic.
  AdamWState(Precision how, View<const F, 1> parameters) : AdamWState(how, parameters, nullptr) {}
  /// Draws the seed of the stochastic rounding.
  AdamWState(Precision how, View<const F, 1> parameters, Rng& rng) : AdamWState(how, parameters, &rng) {}

  /// Starts from float32 weights: writes fl(w) to `parameters` and keeps what that lost in the residual or the master.
  AdamWState(Precision how, View<const float, 1> weights, View<F, 1> parameters, Rng* rng = nullptr)
      : AdamWState(how, checked(weights, parameters), rng) {
    for (Index i = 0; i < size; ++i) {
      const auto [hi, lo] = from_float<F>(weights[i]);
      parameters[i] = hi;
      if (detail::keeps_residual(how)) residual.data()[i] = lo;
      if (how == Precision::fp32_master) master.data()[i] = weights[i];
    }
  }

  /// Calls visitor(name, tensor) for every array this strategy keeps.
  template <class Self, class Visitor>
  static void visit(Self& state, Visitor&& visitor) {
    const auto one = [&](std::string_view name, auto& tensor) {
      if (tensor.rank() > 0) visitor(name, tensor);
    };
    one("moment", state.moment);
    one("variance", state.variance);
    one("residual", state.residual);
    one("variance_residual", state.variance_residual);
    one("moment32", state.moment32);
    one("variance32", state.variance32);
    one("master", state.master);
  }

 private:
  AdamWState(Precision how, const View<const F, 1>& parameters, Rng* rng) : precision(how), size(parameters.extent(0)) {
    detail::require_exact_arithmetic("AdamWState");
    if (how == Precision::stochastic) {
      require(Storage<F>, "AdamWState", "float32 parameters are not rounded, stochastically or otherwise");
      require(rng != nullptr, "AdamWState", "stochastic rounding needs an Rng");
      seed = rng->next64();
    }
    if (detail::float32_moments(how)) {
      moment32 = Tensor<float>({size});
      variance32 = Tensor<float>({size});
    } else {
      moment = Tensor<F>({size});
      variance = Tensor<F>({size});
    }
    if (detail::keeps_residual(how)) residual = Tensor<F>({size});
    if (how == Precision::collage_plus) variance_residual = Tensor<F>({size});
    if (how == Precision::fp32_master) {
      master = Tensor<float>({size});
      for (Index i = 0; i < size; ++i) master.data()[i] = to_float(parameters[i]);
    }
  }

  static View<const F, 1> checked(const View<const float, 1>& weights, const View<F, 1>& parameters) {
    check_shape("AdamWState", "parameters", parameters.shape(), weights.shape(), "same length as weights");
    return parameters;
  }
};

namespace detail {

/// Throws unless the options make sense for F under this strategy.
template <Component F>
void check_options(std::string_view function, const AdamWOptions& options, Precision precision) {
  check_argument(options.learning_rate >= 0 && std::isfinite(options.learning_rate), function, "learning_rate",
                 "finite and at least 0", options.learning_rate);
  check_argument(options.beta1 >= 0 && options.beta1 < 1, function, "beta1", "in [0, 1)", options.beta1);
  check_argument(options.beta2 >= 0 && options.beta2 < 1, function, "beta2", "in [0, 1)", options.beta2);
  check_argument(options.weight_decay >= 0 && std::isfinite(options.weight_decay), function, "weight_decay",
                 "finite and at least 0", options.weight_decay);
  const bool in_float = float32_moments(precision) || options.rounding == StepRounding::stored_values;
  const float rounded = in_float ? static_cast<float>(options.epsilon) : to_float(round_double<F>(options.epsilon));
  check_argument(rounded > 0 && std::isfinite(rounded), function, "epsilon",
                 "finite and above 0 once rounded to the format", options.epsilon);
}

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
  ASHLAR_HOST_DEVICE Coefficients<To> to() const {
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

// ---- random bits: element i of step t of a seed always gets the same 32 -------------------------------------------

/// Elements come in blocks of 64 served by 16 counters of four words: element 16 k + j of a block is word k of counter
/// j.
ASHLAR_HOST_DEVICE inline std::uint32_t random_word(std::uint64_t seed, std::uint64_t step, Index element) {
  const auto i = static_cast<std::uint64_t>(element);
  const std::uint64_t counter = i / 64 * 16 + i % 16;
  const auto words =
      ashlar::detail::philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                                  static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32)},
                                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return words[i / 16 % 4];
}

/// The words of a whole block: Philox with a counter in every 64-bit lane. Only the lower halves of the lanes matter.
inline void random_block(std::uint64_t seed, std::uint64_t step, Index block, std::uint32_t* words) {
  using Lanes = simd::batch<std::uint64_t>;
  constexpr std::size_t counters = 16;
  std::uint64_t first[counters], result[4][counters];
  for (std::size_t j = 0; j < counters; ++j) first[j] = static_cast<std::uint64_t>(block) * counters + j;
  for (std::size_t j = 0; j < counters; j += Lanes::size) {
    Lanes c0 = simd::load(first + j), c1 = c0 >> 32, c2(step), c3(step >> 32);
    std::uint64_t key0 = seed, key1 = seed >> 32;
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
      const Lanes a = simd::multiply_lower_halves(c0, Lanes(std::uint64_t{0xD2511F53u}));
      const Lanes b = simd::multiply_lower_halves(c2, Lanes(std::uint64_t{0xCD9E8D57u}));
      c0 = (b >> 32) ^ c1 ^ Lanes(key0);
      c1 = b;
      c2 = (a >> 32) ^ c3 ^ Lanes(key1);
      c3 = a;
    }
    simd::store(result[0] + j, c0);
    simd::store(result[1] + j, c1);
    simd::store(result[2] + j, c2);
    simd::store(result[3] + j, c3);
  }
  for (std::size_t k = 0; k < 4; ++k)
    for (std::size_t j = 0; j < counters; ++j) words[counters * k + j] = static_cast<std::uint32_t>(result[k][j]);
}

/// Brings the words of every run into the order of EvenOdd: even elements, then odd ones.
inline void order_as_lanes(std::uint32_t* words, Index count) {
  constexpr Index width = 2 * simd::width<float>;
  std::uint32_t ordered[static_cast<std::size_t>(width)];
  for (; count >= width; count -= width, words += width) {
    for (Index j = 0; j < width / 2; ++j) ordered[j] = words[2 * j], ordered[width / 2 + j] = words[2 * j + 1];
    std::copy_n(ordered, width, words);
  }
}

// ---- the update of one element, or of one vector of elements ------------------------------------------------------

/// Elements that go through one half of the step before they go through the other: a chain of dependent operations
/// half as long, of which the processor can overlap more.
inline constexpr Index block_size = 128;

/// Where the arrays of a step are; those a strategy does not keep are null.
template <Component F>
struct Arrays {
  F* theta;
  const F* gradient;
  F *moment, *variance, *residual, *variance_residual;
  float *moment32, *variance32, *master;
};

/// What a block of elements intended and did, for the descent quality, in float.
struct Probe {
  float update[block_size], hi_before[block_size], hi_after[block_size], lo_before[block_size], lo_after[block_size];

  template <Component F, class V>
  static void set(float* slot, const Rounded<F, V>& x) {
    if constexpr (std::same_as<V, simd::batch<float>>)
      simd::store(slot, x.value);
    else if constexpr (std::same_as<V, EvenOdd>)
      for (const auto& part : {x.value.even0, x.value.odd0, x.value.even1, x.value.odd1})  // the order does not matter
        simd::store(slot, part), slot += simd::width<float>;
    else
      *slot = static_cast<float>(x.value);
  }
};
struct NoProbe {};

template <class V>
ASHLAR_HOST_DEVICE V not_negative(const V& x) {
  return x < V(0) ? V(0) : x;  // NaN stays
}
inline simd::batch<float> not_negative(const simd::batch<float>& x) {
  using V = simd::batch<float>;
  return xsimd::select(x < V(0.0f), V(0.0f), x);
}
inline EvenOdd not_negative(const EvenOdd& x) {
  return x.each([](const simd::batch<float>& part) { return not_negative(part); });
}

/// Numbers about to be stored as they are in registers get the one NaN of their format. A trailing component is NaN
/// only beside a leading one that is NaN or infinite, so the leading ones alone are watched.
template <Component F, class V, class... Others>
ASHLAR_HOST_DEVICE void canonical_nan([[maybe_unused]] const V& watched, [[maybe_unused]] Rounded<F, V>& number,
                                      [[maybe_unused]] Others&... others) {
  if constexpr (std::same_as<V, EvenOdd>) {
    const simd::batch<float> zero(0.0f);
    const auto marks = simd::fma(watched.even0, zero, watched.odd0 * zero) +
                       simd::fma(watched.even1, zero, watched.odd1 * zero);  // 0 unless something is not finite
    if (xsimd::all(marks == zero)) [[likely]]
      return;
    const auto repair = [](auto& x) { x.value = x.value.each(simd::canonical_nan); };
    repair(number), (repair(others), ...);
  }
}

/// fl(x) and its store, for an x computed from float32 arrays: its NaN may carry any payload.
template <Component F, class V>
ASHLAR_HOST_DEVICE Rounded<F, V> round_any(const V& x) {
  if constexpr (std::same_as<V, simd::batch<float>>)
    return Rounded<F, V>::fl(simd::canonical_nan(x));
  else
    return Rounded<F, V>::fl(x);
}
template <Component F, class V>
ASHLAR_HOST_DEVICE void store_rounded(F* to, const V& x) {
  if constexpr (std::same_as<V, simd::batch<float>>)
    simd::store(to, x);
  else
    *to = round_to<F>(static_cast<float>(x));
}

/// The sum x rounded stochastically, one random word per lane in the order of the lanes.
template <Storage F, class V>
ASHLAR_HOST_DEVICE Rounded<F, V> stochastic(const V& x, const std::uint32_t* random) {
  return {V(to_float(stochastic_round<F>(static_cast<float>(x), *random)))};
}
template <Storage F>
requires std::same_as<F, bfloat16> Rounded<F, EvenOdd> stochastic(const EvenOdd& x, const std::uint32_t* random) {
  using B = simd::batch<float>;
  using Bits = simd::batch<std::uint32_t>;
  const auto round = [](const B& half, const Bits& bits) {
    const Bits raised = (simd::bits_of(half) + (bits & Bits(0xFFFFu))) & Bits(0xFFFF0000u);
    return xsimd::select(xsimd::abs(half) < B(INFINITY), simd::from_bits(raised), half);
  };
  constexpr Index w = simd::width<float>;
  return {{round(x.even0, simd::load_bits(random)), round(x.odd0, simd::load_bits(random + w)),
           round(x.even1, simd::load_bits(random + 2 * w)), round(x.odd1, simd::load_bits(random + 3 * w))}};
}

/// What the first half of a step hands to the second.
template <class V>
struct Moments {
  V m, v;
};

/// First half of the step of element i, or of the vector that starts there: the moments.
template <Precision P, StepRounding R, Component F, class V>
ASHLAR_HOST_DEVICE Moments<V> update_moments(const Arrays<F>& a, Index i, const Coefficients<V>& c) {
  V g = load<V>(a.gradient + i).value;
  if (c.scaled) g = g * c.unscale;

  if constexpr (float32_moments(P)) {
    const V m = c.beta1 * load<V>(a.moment32 + i).value + c.one_minus_beta1 * g;
    const V v = c.beta2 * load<V>(a.variance32 + i).value + (c.one_minus_beta2 * g) * g;
    store(a.moment32 + i, Rounded<float, V>{m});
    store(a.variance32 + i, Rounded<float, V>{v});
    return {m, v};
  } else if constexpr (R == StepRounding::stored_values) {
    using Number = Rounded<F, V>;
    const V m = c.beta1 * load<V>(a.moment + i).value + c.one_minus_beta1 * g;
    V v = load<V>(a.variance + i).value;
    if constexpr (P == Precision::collage_plus) v = v + load<V>(a.variance_residual + i).value;
    v = c.beta2 * v + (c.one_minus_beta2 * g) * g;
    Number stored = Number::fl(m);
    Expansion<Number> split{Number::fl(v), {}};
    if constexpr (P == Precision::collage_plus) split.lo = Number::fl(v - split.hi.value);
    canonical_nan(stored.value, stored);
    canonical_nan(split.hi.value, split.hi, split.lo);
    store(a.moment + i, stored);
    store(a.variance + i, split.hi);
    if constexpr (P == Precision::collage_plus) store(a.variance_residual + i, split.lo);
    return {m, v};
  } else {
    using Number = Rounded<F, V>;
    const auto fl = [](const V& x) { return Number::fl(x); };
    Number m = fl(fl(c.beta1 * load<V>(a.moment + i).value).value + c.one_minus_beta1 * g);
    Expansion<Number> v;
    if constexpr (P == Precision::collage_plus) {
      const Expansion<Number> beta2{{c.beta2_hi}, {c.beta2_lo}};
      const auto decayed = mul(load<V>(a.variance + i, a.variance_residual + i), beta2);
      const Number square = fl((c.one_minus_beta2 * g) * g);
      v = c.robust ? grow_robust(decayed, square) : grow(decayed, square);
    } else {
      v.hi = fl(fl(c.beta2 * load<V>(a.variance + i).value).value + (c.one_minus_beta2 * g) * g);
    }
    canonical_nan(m.value, m);
    canonical_nan(v.hi.value, v.hi, v.lo);
    store(a.moment + i, m);
    store(a.variance + i, v.hi);
    if constexpr (P == Precision::collage_plus) store(a.variance_residual + i, v.lo);
    return {m.value, v.hi.value};
  }
}

/// Second half: the update and how it lands. `slot`: the element's place in the probe's block.
template <Precision P, StepRounding R, Component F, class V, class Recorder>
ASHLAR_HOST_DEVICE void update_weight(const Arrays<F>& a, Index i, const Coefficients<V>& c, const Moments<V>& moments,
                                      [[maybe_unused]] const std::uint32_t* random, [[maybe_unused]] Recorder& record,
                                      [[maybe_unused]] Index slot) {
  using std::sqrt;
  using Number = Rounded<F, V>;
  using Single = Rounded<float, V>;
  constexpr bool recorded = std::same_as<Recorder, Probe>;
  const auto [m, v] = moments;

  if constexpr (P == Precision::fp32_master) {
    const Single w = load<V>(a.master + i);
    const Single up{(c.step * m) / (sqrt(v) / c.divisor + c.epsilon) - c.decay * w.value};
    const Single next{w.value + up.value};
    store(a.master + i, next);
    store_rounded(a.theta + i, next.value);
    if constexpr (recorded) {
      Probe::set(record.update + slot, up);
      Probe::set(record.hi_before + slot, w);
      Probe::set(record.hi_after + slot, next);
    }
  } else {
    const auto fl = [](const V& x) { return Number::fl(x); };
    const Number theta = load<V>(a.theta + i);
    Number up, updated, residual;
    if constexpr (P == Precision::fp32_states) {
      up = round_any<F>((c.step * m) / (sqrt(v) / c.divisor + c.epsilon) - c.decay * theta.value);
    } else if constexpr (R == StepRounding::stored_values) {
      const V root = sqrt(P == Precision::collage_plus ? not_negative(v) : v);
      up.value = (c.step * m) / (root * c.factor + c.epsilon);  // not rounded
      if (c.decays) up.value = up.value - c.decay * theta.value;
    } else {
      const Number root = fl(sqrt(P == Precision::collage_plus ? not_negative(v) : v));
      const Number denominator = fl(fl(root.value / c.divisor).value + c.epsilon);
      up = fl(c.step * m) / denominator;
      if (c.decays) up = up - fl(c.decay * theta.value);
    }
    if constexpr (keeps_residual(P)) {
      const Number before = load<V>(a.residual + i);
      if constexpr (R == StepRounding::stored_values && P == Precision::kahan) {
        const V wanted = up.value + before.value;
        updated = fl(theta.value + wanted);
        residual = fl(wanted - (updated.value - theta.value));
      } else if constexpr (R == StepRounding::stored_values) {
        const V weight = theta.value + (before.value + up.value);
        updated = fl(weight);
        residual = fl(weight - updated.value);
      } else if constexpr (P == Precision::kahan) {
        const Number wanted = up + before;
        updated = theta + wanted;
        residual = wanted - (updated - theta);
      } else {
        const Expansion<Number> weight{theta, before};
        const auto grown = c.robust ? grow_robust(weight, up) : grow(weight, up);
        updated = grown.hi;
        residual = grown.lo;
      }
      if constexpr (recorded) {
        Probe::set(record.lo_before + slot, before);
        Probe::set(record.lo_after + slot, residual);
      }
    } else if constexpr (P == Precision::stochastic) {
      updated = stochastic<F>(theta.value + up.value, random);
    } else {
      updated = theta + up;
    }
    canonical_nan(updated.value, updated, residual);
    store(a.theta + i, updated);
    if constexpr (keeps_residual(P)) store(a.residual + i, residual);
    if constexpr (recorded) {
      Probe::set(record.update + slot, up);
      Probe::set(record.hi_before + slot, theta);
      Probe::set(record.hi_after + slot, updated);
    }
  }
}

// ---- one array ------------------------------------------------------------------------------------------------

/// The scalar arithmetic of a strategy: the moments of the float32 strategies are float32 whatever F is.
template <Precision P, Component F>
using working_t = std::conditional_t<float32_moments(P), float, wide_t<F>>;
/// What a strategy runs in as long as there are enough elements left: vectors where they pay.
template <Precision P, Component F>
using vector_t =
    std::conditional_t<std::same_as<F, bfloat16> && !float32_moments(P), EvenOdd,
                       std::conditional_t<(std::same_as<F, float> && float32_moments(P)) ||
                                              (vectorised<F> && !(std::same_as<F, half> && P == Precision::stochastic)),
                                          simd::batch<float>, working_t<P, F>>>;

/// Elements begin .. end of an array; begin is a multiple of 128. Flattened: one call left inside the loop would send
/// every vector through memory.
template <Precision P, StepRounding R, Component F, class Recorder>
[[gnu::flatten]] void update_range(const Arrays<F>& arrays, Index begin, Index end, const Coefficients<double>& doubles,
                                   std::uint64_t seed, std::uint64_t step, const std::uint32_t* given_bits,
                                   Recorder& record, [[maybe_unused]] DescentAccumulator* quality) {
  using Working = working_t<P, F>;
  using Vector = vector_t<P, F>;
  constexpr Index width = lanes_of<Vector>;
  constexpr bool draws = P == Precision::stochastic;
  const auto scalars = doubles.to<Working, Working>();
  const auto vectors = doubles.to<Vector, Working>();
  Moments<Vector> moments[static_cast<std::size_t>(block_size / width)];
  std::uint32_t random[draws ? block_size : 1];

  for (Index block = begin; block < end; block += block_size) {
    const Index stop = std::min(end, block + block_size), whole = block + (stop - block) / width * width;
    if constexpr (draws) {
      if (given_bits != nullptr)
        std::copy(given_bits + block, given_bits + stop, random);
      else
        for (Index i = 0; i < block_size; i += 64) random_block(seed, step, (block + i) / 64, random + i);
      if constexpr (std::same_as<Vector, EvenOdd>) order_as_lanes(random, whole - block);
    }
    const auto words = [&](Index i) { return random + (draws ? i - block : 0); };
    for (Index i = block; i < whole; i += width)
      moments[(i - block) / width] = update_moments<P, R>(arrays, i, vectors);
    for (Index i = block; i < whole; i += width)
      update_weight<P, R>(arrays, i, vectors, moments[(i - block) / width], words(i), record, i - block);
    for (Index i = whole; i < stop; ++i)
      update_weight<P, R>(arrays, i, scalars, update_moments<P, R>(arrays, i, scalars), words(i), record, i - block);
    if constexpr (std::same_as<Recorder, Probe>)
      quality->add(stop - block, [&](Index k) {
        return DescentTerm{record.update[k], record.hi_before[k], record.hi_after[k], record.lo_before[k],
                           record.lo_after[k]};
      });
  }
}

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

/// Applies a step whose arguments are checked. Bits: null to draw them from the state's seed.
template <Component F>
DescentSums apply(F* theta, const F* gradient, AdamWState<F>& state, const AdamWOptions& options, double gradient_scale,
                  const std::uint32_t* bits, bool measure) {
  const std::uint64_t step = ++state.step;
  const auto scalars = coefficients<F>(options, step, gradient_scale);
  const Arrays<F> arrays = arrays_of(theta, gradient, state);
  DescentSums sums;
  dispatch<F>(state.precision, options.rounding, [&]<Precision P, StepRounding R>(Strategy<P, R>) {
    if (measure) {
      sums = sum_chunks(state.size, [&](Index begin, Index end) {
        DescentAccumulator quality;
        Probe record{};
        update_range<P, R>(arrays, begin, end, scalars, state.seed, step, bits, record, &quality);
        return quality.sums();
      });
    } else {
      parallel_for(state.size, chunk_grain(state.size), [&](Index begin, Index end) {
        NoProbe record;
        update_range<P, R>(arrays, begin, end, scalars, state.seed, step, bits, record, nullptr);
      });
    }
  });
  return sums;
}

/// Infinite and NaN elements.
template <Component F>
Index count_non_finite(const F* x, Index n) {
  using Bits = typename Format<F>::bits_type;
  constexpr auto magnitude = static_cast<Bits>(Format<F>::sign_code - 1),
                 largest = static_cast<Bits>(Format<F>::max_code);
  std::array<Index, static_cast<std::size_t>(max_chunks)> counts{};
  const Index grain = chunk_grain(n);
  parallel_for(n, grain, [&](Index begin, Index end) {
    // Short inner sums of the format's own width, so that a vector holds as many lanes as it can.
    Index count = 0;
    for (Index i = begin; i < end;) {
      const Index stop = std::min(end, i + 128);
      Bits some = 0;
      for (; i < stop; ++i) some = static_cast<Bits>(some + ((bits_of(x[i]) & magnitude) > largest));
      count += static_cast<Index>(some);
    }
    counts[static_cast<std::size_t>(begin / grain)] = count;
  });
  Index total = 0;
  for (const Index count : counts) total += count;
  return total;
}

template <Component F>
void check_step(std::string_view function, const View<F, 1>& theta, const View<const F, 1>& gradient,
                const AdamWState<F>& state, const AdamWOptions& options, const StepOptions& step,
                const View<const std::uint32_t, 1>& bits) {
  check_shape(function, "theta", theta.shape(), {state.size}, "the size of the state");
  check_shape(function, "gradient", gradient.shape(), {state.size}, "same length as theta");
  require(theta.contiguous() && gradient.contiguous(), function, "theta and gradient must be contiguous, got strides ",
          theta.stride(0), " and ", gradient.stride(0));
  require(!overlaps(theta, gradient), function, "theta and gradient must not overlap");
  check_options<F>(function, options, state.precision);
  check_argument(step.gradient_scale > 0 && std::isfinite(step.gradient_scale), function, "gradient_scale",
                 "finite and above 0", step.gradient_scale);
  if (bits.empty()) return;
  require(state.precision == Precision::stochastic, function, "random bits are for stochastic rounding alone");
  check_shape(function, "random_bits", bits.shape(), {state.size}, "same length as theta");
  require(bits.contiguous(), function, "random_bits must be contiguous, got stride ", bits.stride(0));
}

}  // namespace detail

namespace reference {

namespace detail {
using namespace precision::detail;

/// Numbers of one parameter of a step. Those a strategy does not keep are 0 and stay so.
template <Component F>
struct Parameter {
  F weight{}, moment{}, variance{}, variance_residual{}, residual{};
};

/// What the step intended for the parameter, which it updates: every operation rounds to F.
template <Component F>
double step_rounding_every_operation(Parameter<F>& p, F gradient, Precision precision, const AdamWOptions& options,
                                     const Coefficients<wide_t<F>>& c, std::uint32_t random) {
  using Number = Rounded<F>;
  const auto fl = [](wide_t<F> x) { return Number::fl(x); };
  const auto g = static_cast<wide_t<F>>(to_float(gradient)) * c.unscale;
  const Number w = unpack(p.weight);

  const Number m = fl(fl(c.beta1 * unpack(p.moment).value).value + c.one_minus_beta1 * g);
  Number v;
  if (precision == Precision::collage_plus) {
    const Expansion<F> decayed = mul(Expansion<F>{p.variance, p.variance_residual}, split_scalar<F>(options.beta2));
    const F square = pack(fl((c.one_minus_beta2 * g) * g));
    const Expansion<F> grown = options.robust_grow ? grow_robust(decayed, square) : grow(decayed, square);
    p.variance_residual = grown.lo;
    v = unpack(grown.hi);
  } else {
    v = fl(fl(c.beta2 * unpack(p.variance).value).value + (c.one_minus_beta2 * g) * g);
  }
  p.moment = pack(m);
  p.variance = pack(v);

  const bool below_zero = precision == Precision::collage_plus && v.value < 0;
  const Number root = fl(std::sqrt(below_zero ? 0 : v.value));
  const Number denominator = fl(fl(root.value / c.divisor).value + c.epsilon);
  Number up = fl(c.step * m.value) / denominator;
  if (options.weight_decay > 0) up = up - fl(c.decay * w.value);

  if (precision == Precision::kahan) {
    const Number wanted = up + unpack(p.residual), next = w + wanted;
    p.residual = pack(wanted - (next - w));
    p.weight = pack(next);
  } else if (precision == Precision::collage_light || precision == Precision::collage_plus) {
    const Expansion<F> before{p.weight, p.residual};
    const Expansion<F> grown = options.robust_grow ? grow_robust(before, pack(up)) : grow(before, pack(up));
    p.weight = grown.hi;
    p.residual = grown.lo;
  } else if (precision == Precision::stochastic) {
    if constexpr (Storage<F>) p.weight = stochastic_round<F>(w.value + up.value, random);
  } else {
    p.weight = pack(w + up);
  }
  return static_cast<double>(up.value);
}

/// The same with one rounding for every number that is stored.
template <Component F>
double step_rounding_stored_values(Parameter<F>& p, F gradient, Precision precision, const AdamWOptions& options,
                                   const Coefficients<wide_t<F>>& c, std::uint32_t random) {
  using Wide = wide_t<F>;
  const auto wide = [](F x) { return static_cast<Wide>(to_float(x)); };
  const auto round = [](Wide x) { return round_to<F>(static_cast<float>(x)); };
  const Wide g = wide(gradient) * c.unscale, w = wide(p.weight);

  const Wide m = c.beta1 * wide(p.moment) + c.one_minus_beta1 * g;
  const Wide v = c.beta2 * (wide(p.variance) + wide(p.variance_residual)) + (c.one_minus_beta2 * g) * g;
  p.moment = round(m);
  p.variance = round(v);
  if (precision == Precision::collage_plus) p.variance_residual = round(v - wide(p.variance));

  const bool below_zero = precision == Precision::collage_plus && v < 0;
  Wide up = (c.step * m) / (std::sqrt(below_zero ? 0 : v) * c.factor + c.epsilon);
  if (options.weight_decay > 0) up = up - c.decay * w;

  if (precision == Precision::kahan) {
    const Wide wanted = up + wide(p.residual);
    p.weight = round(w + wanted);
    p.residual = round(wanted - (wide(p.weight) - w));
  } else if (precision == Precision::collage_light || precision == Precision::collage_plus) {
    const Wide weight = w + (wide(p.residual) + up);
    p.weight = round(weight);
    p.residual = round(weight - wide(p.weight));
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
  const float up = (c.step * m) / denominator - c.decay * w;
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
      term.update = options.rounding == StepRounding::stored_values
                        ? detail::step_rounding_stored_values(p, gradient[i], state.precision, options, wide, random)
                        : detail::step_rounding_every_operation(p, gradient[i], state.precision, options, wide, random);
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

// ---- many arrays in groups --------------------------------------------------------------------------------------

/// What a checkpoint of an AdamW holds: arrays named "<parameter>/moment" and so on, and its counters.
template <Component F>
struct AdamWCheckpoint {
  std::map<std::string, Tensor<F>> arrays;
  std::map<std::string, Tensor<float>> float32_arrays;
  std::map<std::string, std::uint64_t> counters;  ///< "<parameter>/step" and "<parameter>/seed"
};

/// AdamW over named arrays of parameters, with groups that have options of their own.
///
///   AdamW<bfloat16> optimizer(Precision::collage_plus, {.learning_rate = 3e-4});
///   const Index no_decay = optimizer.add_group({.learning_rate = 3e-4, .weight_decay = 0});
///   optimizer.add("layer.weight", weight, weight_gradient);
///   optimizer.add("layer.bias", bias, bias_gradient, no_decay);
///   for (...) { ...; optimizer.options(0).learning_rate = schedule(t);  optimizer.step(); }
///
/// It looks at the arrays and does not own them: they must outlive it and stay where they are.
template <Component F>
class AdamW {
 public:
  /// Group 0 has these options. Throws InvalidArgument on options out of range, and on stochastic rounding without rng.
  explicit AdamW(Precision precision, const AdamWOptions& options = {}) : AdamW(precision, options, nullptr) {}
  AdamW(Precision precision, const AdamWOptions& options, Rng& rng) : AdamW(precision, options, &rng) {}

  Index add_group(const AdamWOptions& options) {
    detail::check_options<F>("AdamW::add_group", options, precision_);
    groups_.push_back(options);
    return static_cast<Index>(groups_.size()) - 1;
  }
  Index groups() const { return static_cast<Index>(groups_.size()); }

  /// May be changed between steps; checked again at each.
  AdamWOptions& options(Index group) {
    check_argument(group >= 0 && group < groups(), "AdamW::options", "group", message("in [0, ", groups(), ")"), group);
    return groups_[static_cast<std::size_t>(group)];
  }

  /// Parameters and their gradient: any contiguous arrays of equal size and layout (matrices and tensors too).
  template <class X, class G>
  void add(std::string name, X& parameter, const G& gradient, Index group = 0) {
    const View<F, 1> theta = flat<F>(parameter);
    Rng stream = rng_.split(entries_.size());
    insert(std::move(name), theta, flat<const F>(gradient), group,
           precision_ == Precision::stochastic ? AdamWState<F>(precision_, theta, stream)
                                               : AdamWState<F>(precision_, theta));
  }

  /// One step of every array. quality of `step`: summed over all; `group_quality`, if not empty: one for each group.
  /// A gradient that is not finite anywhere skips the whole step.
  StepReport step(const StepOptions& step = {}, std::span<DescentSums> group_quality = {}) {
    const std::string_view function = "AdamW::step";
    require(group_quality.empty() || group_quality.size() == groups_.size(), function, "group_quality has ",
            group_quality.size(), " entries, expected one for each of ", groups_.size(), " groups");
    StepReport report;
    for (const Entry& entry : entries_)
      detail::check_step<F>(function, entry.theta, entry.gradient, entry.state, options_of(entry), step, {});
    if (step.check_finite)
      for (const Entry& entry : entries_)
        report.non_finite += detail::count_non_finite(entry.gradient.data(), entry.state.size);
    report.applied = report.non_finite == 0;
    if (!report.applied) return report;

    const bool measure = step.quality != nullptr || !group_quality.empty();
    if (step.quality != nullptr) *step.quality = {};
    for (DescentSums& sums : group_quality) sums = {};
    for (Entry& entry : entries_) {
      const DescentSums sums = detail::apply<F>(entry.theta.data(), entry.gradient.data(), entry.state,
                                                options_of(entry), step.gradient_scale, nullptr, measure);
      if (step.quality != nullptr) *step.quality += sums;
      if (!group_quality.empty()) group_quality[static_cast<std::size_t>(entry.group)] += sums;
    }
    return report;
  }

  /// The state of one array, to look at.
  const AdamWState<F>& state(const std::string& name) const {
    for (const Entry& entry : entries_)
      if (entry.name == name) return entry.state;
    throw InvalidArgument(message("AdamW::state: no parameter is named ", name));
  }

  AdamWCheckpoint<F> checkpoint() const {
    AdamWCheckpoint<F> saved;
    for (const Entry& entry : entries_) {
      saved.counters[entry.name + "/step"] = entry.state.step;
      saved.counters[entry.name + "/seed"] = entry.state.seed;
      AdamWState<F>::visit(entry.state, [&]<class T>(std::string_view array, const Tensor<T>& tensor) {
        arrays_for<T>(saved, array)[entry.name + "/" + std::string(array)] = tensor;
      });
    }
    return saved;
  }

  /// Goes on where `saved` was taken. Throws InvalidArgument, before anything changes, unless it holds exactly the
  /// arrays this optimiser keeps, in the same shapes.
  void restore(const AdamWCheckpoint<F>& saved) {
    std::vector<AdamWState<F>> states;
    std::size_t arrays = 0, counters = 0;
    for (const Entry& entry : entries_) {
      AdamWState<F> state = entry.state;
      state.step = found(saved.counters, entry.name + "/step");
      state.seed = found(saved.counters, entry.name + "/seed");
      counters += 2;
      AdamWState<F>::visit(state, [&]<class T>(std::string_view array, Tensor<T>& tensor) {
        const std::string name = entry.name + "/" + std::string(array);
        const Tensor<T>& from = found(arrays_for<T>(saved, array), name);
        check_shape("AdamW::restore", name, from.shape().extents(), {state.size});
        tensor = from;
        ++arrays;
      });
      states.push_back(std::move(state));
    }
    const std::size_t held = saved.arrays.size() + saved.float32_arrays.size();
    require(held == arrays && saved.counters.size() == counters, "AdamW::restore", "the checkpoint has ", held,
            " arrays and ", saved.counters.size(), " counters, expected ", arrays, " and ", counters);
    for (std::size_t i = 0; i < states.size(); ++i) entries_[i].state = std::move(states[i]);
  }

 private:
  struct Entry {
    std::string name;
    View<F, 1> theta;
    View<const F, 1> gradient;
    Index group;
    AdamWState<F> state;
  };

  AdamW(Precision precision, const AdamWOptions& options, Rng* rng) : precision_(precision) {
    detail::require_exact_arithmetic("AdamW");
    detail::check_options<F>("AdamW", options, precision);
    require(precision != Precision::stochastic || rng != nullptr, "AdamW", "stochastic rounding needs an Rng");
    if (rng != nullptr) rng_ = Rng(rng->next64());
    groups_.push_back(options);
  }

  void insert(std::string name, View<F, 1> theta, View<const F, 1> gradient, Index group, AdamWState<F> state) {
    const std::string_view function = "AdamW::add";
    check_argument(group >= 0 && group < groups(), function, "group", message("in [0, ", groups(), ")"), group);
    check_shape(function, "gradient", gradient.shape(), theta.shape(), "same size as the parameter");
    for (const Entry& entry : entries_) require(entry.name != name, function, "two parameters are named ", name);
    entries_.push_back({std::move(name), theta, gradient, group, std::move(state)});
  }

  const AdamWOptions& options_of(const Entry& entry) const { return groups_[static_cast<std::size_t>(entry.group)]; }

  /// All elements of a contiguous array in memory order.
  template <class T, class X>
  static View<T, 1> flat(X& x) {
    if constexpr (requires { x.rowStride(); }) {
      const bool rows_first = x.colStride() == 1 && (x.rowStride() == x.cols() || x.rows() <= 1);
      const bool columns_first = x.rowStride() == 1 && (x.colStride() == x.rows() || x.cols() <= 1);
      require(rows_first || columns_first || x.size() == 0, "AdamW::add", "an array of ", x.rows(), " by ", x.cols(),
              " has gaps; parameters and gradients must be contiguous");
    } else if constexpr (requires { x.contiguous(); }) {
      require(x.contiguous(), "AdamW::add", "parameters and gradients must be contiguous");
    }
    return View<T, 1>(std::data(x), {static_cast<Index>(std::size(x))});
  }

  /// The map an array of a state belongs in: by its type, and by its name where F itself is float.
  template <class T, class Checkpoint>
  static auto& arrays_for(Checkpoint& checkpoint, [[maybe_unused]] std::string_view array) {
    if constexpr (!std::same_as<F, float>) return [&]() -> auto& {
        if constexpr (std::same_as<T, F>)
          return checkpoint.arrays;
        else
          return checkpoint.float32_arrays;
      }
    ();
    else return array == "moment32" || array == "variance32" || array == "master" ? checkpoint.float32_arrays
                                                                                  : checkpoint.arrays;
  }
  template <class Map>
  static const typename Map::mapped_type& found(const Map& map, const std::string& name) {
    const auto at = map.find(name);
    require(at != map.end(), "AdamW::restore", "the checkpoint has no ", name);
    return at->second;
  }

  Precision precision_;
  Rng rng_;
  std::vector<AdamWOptions> groups_;
  std::vector<Entry> entries_;
};

}  // namespace ashlar::precision
