// The AdamW step of a whole array: checks, vectors, threads, and what became of the update.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random_lanes.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/adamw_state.hpp"
#include "ashlar/precision/descent_quality.hpp"
#include "ashlar/precision/detail/adamw_element.hpp"
#include "ashlar/precision/detail/vector_lanes.hpp"

namespace ashlar::precision::detail {

/// random_word of the 64 elements of a block.
inline void random_block(std::uint64_t seed, std::uint64_t step, Index block, std::uint32_t* words) {
  ashlar::detail::philox_by_word<16>(seed, step, static_cast<std::uint64_t>(block) * 16, words);
}

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

/// Elements that go through one part of the step before they go through the next.
inline constexpr Index block_size = 128;

/// Elements begin .. end of an array; begin is a multiple of 128. Flattened: one call left inside the loop would send
/// every vector through memory.
template <Precision P, StepRounding R, Component F>
[[gnu::flatten]] void update_range(const Arrays<F>& arrays, Index begin, Index end, const Coefficients<double>& doubles,
                                   std::uint64_t seed, std::uint64_t step, const std::uint32_t* given_bits,
                                   DescentAccumulator* quality) {
  using Working = working_t<P, F>;
  using Vector = vector_t<P, F>;
  constexpr Index width = Lanes<Vector>::count;
  constexpr bool draws = P == Precision::stochastic;
  const ElementStep<P, R, F, Vector> vectors{arrays, doubles.to<Vector, Working>()};
  const ElementStep<P, R, F, Working> scalars{arrays, doubles.to<Working, Working>()};
  Moments<Vector> moments[static_cast<std::size_t>(block_size / width)];
  Vector updates[static_cast<std::size_t>(block_size / width)];
  std::uint32_t random[draws ? block_size : 1];
  float intended[block_size], hi_before[block_size], lo_before[block_size];  // for the quality
  const auto hi = [&](Index i) { return P == Precision::fp32_master ? arrays.master[i] : to_float(arrays.theta[i]); };
  const auto lo = [&](Index i) { return keeps_residual(P) ? to_float(arrays.residual[i]) : 0.0f; };

  for (Index block = begin; block < end; block += block_size) {
    const Index stop = std::min(end, block + block_size), vectors_of = (stop - block) / width;
    if constexpr (draws) {
      if (given_bits != nullptr)
        std::copy(given_bits + block, given_bits + stop, random);
      else
        for (Index i = 0; i < block_size; i += 64) random_block(seed, step, (block + i) / 64, random + i);
    }
    const auto words = [&](Index i) { return random + (draws ? i : 0); };
    if (quality != nullptr)
      for (Index i = block; i < stop; ++i) hi_before[i - block] = hi(i), lo_before[i - block] = lo(i);

    for (Index k = 0; k < vectors_of; ++k) moments[k] = vectors.moments(block + k * width);
    for (Index k = 0; k < vectors_of; ++k) updates[k] = vectors.update(block + k * width, moments[k]);
    if (quality != nullptr)
      for (Index k = 0; k < vectors_of; ++k) Lanes<Vector>::unpack(intended + k * width, updates[k]);
    for (Index k = 0; k < vectors_of; ++k) vectors.land(block + k * width, updates[k], words(k * width));
    for (Index i = block + vectors_of * width; i < stop; ++i) {
      const Working update = scalars.update(i, scalars.moments(i));
      intended[i - block] = static_cast<float>(update);
      scalars.land(i, update, words(i - block));
    }

    if (quality != nullptr)
      quality->add(stop - block, [&](Index k) {
        return DescentTerm{intended[k], hi_before[k], hi(block + k), lo_before[k], lo(block + k)};
      });
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
        update_range<P, R>(arrays, begin, end, scalars, state.seed, step, bits, &quality);
        return quality.sums();
      });
    } else {
      parallel_for(state.size, chunk_grain(state.size), [&](Index begin, Index end) {
        update_range<P, R>(arrays, begin, end, scalars, state.seed, step, bits, nullptr);
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

}  // namespace ashlar::precision::detail
