// What precision/ computes in: one number, a vector of numbers (vector_lanes.hpp), or a number on the device.
//
// What is written once for all of them is constexpr rather than ASHLAR_HOST_DEVICE: nvcc compiles a constexpr function
// for the device only where device code calls it, and the device knows no vectors.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "ashlar/core/config.hpp"
#include "ashlar/core/scalar.hpp"

namespace ashlar::precision {

/// What expansions are made of.
template <class F>
concept Component = Storage<F> || std::same_as<F, float>;

/// Holds sums, products and quotients of two F closely enough that a second rounding is harmless.
template <Component F>
using wide_t = std::conditional_t<std::same_as<F, float>, double, float>;

namespace detail {

/// What a V needs besides + - * / and sqrt. This one serves single numbers: float, double, and what converts to and
/// from float. Vectors have their own, which code for the device never names.
template <class V>
struct Lanes {
  static constexpr Index count = 1;

  /// One rounding to F, to nearest, ties to even. A NaN stays a NaN.
  template <Component F>
  static ASHLAR_HOST_DEVICE V round(const V& x) {
    if constexpr (std::same_as<V, double>)
      return static_cast<double>(static_cast<float>(x));
    else if constexpr (std::same_as<F, float>)
      return x;
    else
      return V(to_float(round_to<F>(static_cast<float>(x))));
  }
  /// The same for an x whose NaN may carry any payload: for vectors a difference.
  template <Component F>
  static ASHLAR_HOST_DEVICE V round_any(const V& x) {
    return round<F>(x);
  }

  template <Component F>
  static ASHLAR_HOST_DEVICE V load(const F* from) {
    return static_cast<V>(to_float(*from));
  }
  /// x is rounded to F already; NaN get the one pattern that storage formats have.
  template <Component F>
  static ASHLAR_HOST_DEVICE void store(F* to, const V& x) {
    *to = round_to<F>(static_cast<float>(x));
  }
  /// Writes the lanes as floats, in the order of the elements.
  static void unpack(float* to, const V& x) { *to = static_cast<float>(x); }

  /// max(x, 0); NaN stays.
  static ASHLAR_HOST_DEVICE V not_negative(const V& x) { return x < V(0) ? V(0) : x; }

  /// Rounded stochastically, with one random word for each lane.
  template <Storage F>
  static ASHLAR_HOST_DEVICE V stochastic(const V& x, const std::uint32_t* random) {
    return V(to_float(stochastic_round<F>(static_cast<float>(x), *random)));
  }
};

}  // namespace detail

}  // namespace ashlar::precision
