// What AdamW keeps of an array of parameters under each strategy of precision/collage.hpp, and its options.
//
//   std::vector<bfloat16> weights = ...;
//   AdamWState<bfloat16> state(Precision::collage_plus, weights);
//   AdamWState<bfloat16>::visit(state, [](std::string_view name, const auto& array) { ... });   // for a checkpoint
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/scalar.hpp"
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
  /// Of all but the float32 strategies, which never round in between.
  StepRounding rounding = StepRounding::every_operation;
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

}  // namespace detail

}  // namespace ashlar::precision
