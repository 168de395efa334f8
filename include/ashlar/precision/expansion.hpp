// Multi-component floats: a value kept as the unevaluated sum hi + lo of two numbers of a small format, and the
// error-free transformations that compute with it.
//
// Source: Yu et al., "Collage: Light-Weight Low-Precision Strategy for LLM Training", ICML 2024 (arXiv 2405.03637):
// Fast2Sum, Grow, Mul and Scaling. TwoSum: Knuth, TAOCP volume 2, section 4.2.2. Names follow the paper.
//
//   Expansion<bfloat16> w = split_scalar<bfloat16>(0.3);         // (fl(0.3), fl(0.3 - fl(0.3)))
//   w = grow(w, round_to<bfloat16>(1e-4f));                      // too small for w.hi alone, kept in w.lo
//   float value = to_float(w);
//
// Every operation is rounded once to the format F, to nearest, ties to even. It is evaluated in the next wider type
// (float for the storage formats, double for float): with at most half the digits of that type less one, rounding
// twice equals rounding once. Compile with -ffp-contract=off and without -ffast-math; the optimisers check it.
#pragma once

#if defined(__FAST_MATH__)
#error "ashlar/precision: -ffast-math deletes error-free transformations. Compile this file without it."
#endif

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/detail/lanes.hpp"
#include "ashlar/precision/detail/vector_lanes.hpp"

namespace ashlar::precision {

using ashlar::to_float;

/// The unevaluated sum hi + lo. Normalised when |lo| is at most half a unit in the last place of hi.
template <class N>
struct Expansion {
  N hi{};
  N lo{};
};

/// A number of format F held in a V for computing; every operation rounds once. V is the wider scalar or a vector of
/// them, so the transformations below are written once for numbers, vector lanes and the device.
template <Component F, class V = wide_t<F>>
struct Rounded {
  V value{};

  friend constexpr Rounded operator+(const Rounded& a, const Rounded& b) { return fl(a.value + b.value); }
  friend constexpr Rounded operator-(const Rounded& a, const Rounded& b) { return fl(a.value - b.value); }
  friend constexpr Rounded operator*(const Rounded& a, const Rounded& b) { return fl(a.value * b.value); }
  friend constexpr Rounded operator/(const Rounded& a, const Rounded& b) { return fl(a.value / b.value); }

  /// The paper's fl(.): one rounding to F.
  static constexpr Rounded fl(const V& x) { return {detail::Lanes<V>::template round<F>(x)}; }
  /// fl(a b + c): the product is exact in V, the sum is rounded.
  static constexpr Rounded fl(const Rounded& a, const Rounded& b, const Rounded& c) {
    return fl(a.value * b.value + c.value);
  }
};

// ---- error-free transformations ----------------------------------------------------------------------------------

/// hi = a + b rounded, hi + lo = a + b exactly. Needs |a| >= |b| or a = 0. 3 operations.
template <class F, class V>
constexpr Expansion<Rounded<F, V>> fast_two_sum(const Rounded<F, V>& a, const Rounded<F, V>& b) {
  const auto s = a + b;
  // The last subtraction is exact even where the condition fails: then s - a rounds to within a factor two of b.
  return {s, {b.value - (s - a).value}};
}

/// The same for any a and b. 6 operations.
template <class F, class V>
constexpr Expansion<Rounded<F, V>> two_sum(const Rounded<F, V>& a, const Rounded<F, V>& b) {
  const auto s = a + b;
  const auto a_part = s - b;
  const auto b_part = s - a_part;
  return {s, (a - a_part) + (b - b_part)};
}

/// hi = a b rounded, hi + lo = a b exactly when |a b| >= 2^(min_exponent + digits); below, lo may underflow.
template <class F, class V>
constexpr Expansion<Rounded<F, V>> two_prod(const Rounded<F, V>& a, const Rounded<F, V>& b) {
  const auto p = a * b;
  return {p, Rounded<F, V>::fl(a.value * b.value - p.value)};
}

// ---- arithmetic on expansions ------------------------------------------------------------------------------------

/// Grow: adds a number to an expansion. Needs |x.hi| >= |a| or x.hi = 0; otherwise the residue of x.hi + a, at most
/// half a unit in its last place, may be lost. Error at most 2^(2 - 2 digits) |x|.
template <class F, class V>
constexpr Expansion<Rounded<F, V>> grow(const Expansion<Rounded<F, V>>& x, const Rounded<F, V>& a) {
  const auto [u, v] = fast_two_sum(x.hi, a);
  return fast_two_sum(u, x.lo + v);
}

/// Grow without a condition, at three operations more.
template <class F, class V>
constexpr Expansion<Rounded<F, V>> grow_robust(const Expansion<Rounded<F, V>>& x, const Rounded<F, V>& a) {
  const auto [u, v] = two_sum(x.hi, a);
  return fast_two_sum(u, x.lo + v);
}

/// Mul: the product of two normalised expansions. Relative error at most 2^(3 - 2 digits), underflow aside.
template <class F, class V>
constexpr Expansion<Rounded<F, V>> mul(const Expansion<Rounded<F, V>>& x, const Expansion<Rounded<F, V>>& y) {
  const auto [p, e] = two_prod(x.hi, y.hi);
  auto t = x.lo * y.hi;
  t = Rounded<F, V>::fl(x.hi, y.lo, t);
  return fast_two_sum(p, t + e);
}

/// Scaling: the product of an expansion and a number.
template <class F, class V>
constexpr Expansion<Rounded<F, V>> scale(const Expansion<Rounded<F, V>>& x, const Rounded<F, V>& c) {
  const auto [p, e] = two_prod(x.hi, c);
  return fast_two_sum(p, Rounded<F, V>::fl(x.lo, c, e));
}

/// The same value with |lo| at most half a unit in the last place of hi, whatever the parts were.
template <class F, class V>
constexpr Expansion<Rounded<F, V>> renormalize(const Expansion<Rounded<F, V>>& x) {
  return two_sum(x.hi, x.lo);
}

// ---- the same on stored numbers ----------------------------------------------------------------------------------

namespace detail {

template <Component F>
[[gnu::always_inline]] ASHLAR_HOST_DEVICE inline Rounded<F> unpack(F x) {
  return {static_cast<wide_t<F>>(to_float(x))};
}
template <Component F>
ASHLAR_HOST_DEVICE Expansion<Rounded<F>> unpack(const Expansion<F>& x) {
  return {unpack(x.hi), unpack(x.lo)};
}
template <Component F>
ASHLAR_HOST_DEVICE F pack(const Rounded<F>& x) {
  return round_to<F>(static_cast<float>(x.value));
}
template <Component F>
ASHLAR_HOST_DEVICE Expansion<F> pack(const Expansion<Rounded<F>>& x) {
  return {pack(x.hi), pack(x.lo)};
}

/// The float nearest to x that is odd when x is not a float, so that rounding it again does not depend on the detour.
inline float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || !std::isfinite(x)) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(x)) --bits;  // toward zero
  return std::bit_cast<float>(bits | 1u);
}

/// A double rounded once to F.
template <Component F>
F round_double(double x) {
  if constexpr (std::same_as<F, float>)
    return static_cast<float>(x);
  else
    return round_to<F>(round_to_odd(x));
}

}  // namespace detail

template <Component F>
ASHLAR_HOST_DEVICE Expansion<F> fast_two_sum(F a, F b) {
  return detail::pack(fast_two_sum(detail::unpack(a), detail::unpack(b)));
}
template <Component F>
ASHLAR_HOST_DEVICE Expansion<F> two_sum(F a, F b) {
  return detail::pack(two_sum(detail::unpack(a), detail::unpack(b)));
}
template <Component F>
ASHLAR_HOST_DEVICE Expansion<F> two_prod(F a, F b) {
  return detail::pack(two_prod(detail::unpack(a), detail::unpack(b)));
}
template <Component F>
ASHLAR_HOST_DEVICE Expansion<F> grow(const Expansion<F>& x, F a) {
  return detail::pack(grow(detail::unpack(x), detail::unpack(a)));
}
template <Component F>
ASHLAR_HOST_DEVICE Expansion<F> grow_robust(const Expansion<F>& x, F a) {
  return detail::pack(grow_robust(detail::unpack(x), detail::unpack(a)));
}
template <Component F>
ASHLAR_HOST_DEVICE Expansion<F> mul(const Expansion<F>& x, const Expansion<F>& y) {
  return detail::pack(mul(detail::unpack(x), detail::unpack(y)));
}
template <Component F>
ASHLAR_HOST_DEVICE Expansion<F> scale(const Expansion<F>& x, F c) {
  return detail::pack(scale(detail::unpack(x), detail::unpack(c)));
}
template <Component F>
ASHLAR_HOST_DEVICE Expansion<F> renormalize(const Expansion<F>& x) {
  return detail::pack(renormalize(detail::unpack(x)));
}

/// (fl(c), fl(c - fl(c))): a number with about twice the digits of F. In bfloat16 0.999 becomes (1, -0.00099945).
template <Component F>
Expansion<F> split_scalar(double c) {
  const F hi = detail::round_double<F>(c);
  return {hi, detail::round_double<F>(c - static_cast<double>(to_float(hi)))};
}
template <Component F>
Expansion<F> from_float(float x) {
  return split_scalar<F>(x);
}

/// hi + lo, rounded once to float.
template <Component F>
float to_float(const Expansion<F>& x) {
  return static_cast<float>(static_cast<double>(to_float(x.hi)) + static_cast<double>(to_float(x.lo)));
}

// ---- the same on arrays: hi and lo are separate, contiguous, and updated in place ---------------------------------

namespace detail {

template <class V, Component F>
constexpr Rounded<F, V> load(const F* from) {
  return {Lanes<V>::load(from)};
}
template <Component F, class V>
constexpr void store(F* to, const Rounded<F, V>& x) {
  Lanes<V>::store(to, x.value);
}
template <class V, Component F>
constexpr Expansion<Rounded<F, V>> load(const F* hi, const F* lo) {
  return {load<V>(hi), load<V>(lo)};
}
template <Component F, class V>
constexpr void store(F* hi, F* lo, const Expansion<Rounded<F, V>>& x) {
  store(hi, x.hi);
  store(lo, x.lo);
}

/// Calls body(i, std::type_identity<V>) for begin <= i < end: V a vector for as many whole vectors as there are, then
/// one number at a time.
template <Component F, class Body>
void for_lanes(Index begin, Index end, Body&& body) {
  if constexpr (vectorised<F>)
    for (; begin + simd::width<float> <= end; begin += simd::width<float>)
      body(begin, std::type_identity<simd::batch<float>>{});
  for (; begin < end; ++begin) body(begin, std::type_identity<wide_t<F>>{});
}

template <Component F, class Body>
void for_lanes_parallel(Index count, Body&& body) {
  parallel_for(count, Index{1} << 15, [&](Index begin, Index end) { for_lanes<F>(begin, end, body); });
}

template <class T>
void check_array(std::string_view function, std::string_view name, const View<T, 1>& array, Index size) {
  check_shape(function, name, array.shape(), {size});
  require(array.contiguous(), function, name, " must be contiguous, got stride ", array.stride(0));
}
template <class F>
void check_expansion(std::string_view function, const View<F, 1>& hi, const View<F, 1>& lo) {
  check_array(function, "hi", hi, hi.extent(0));
  check_array(function, "lo", lo, hi.extent(0));
  require(!overlaps(hi, lo), function, "hi and lo must not overlap");
}

}  // namespace detail

/// (hi[i], lo[i]) = fast_two_sum(a[i], b[i]).
template <class X>
void fast_two_sum(const X& a, In<X, 1> b, Out<X, 1> hi, Out<X, 1> lo) {
  const In<X, 1> first = a;
  detail::check_expansion("fast_two_sum", hi, lo);
  detail::check_array("fast_two_sum", "a", first, hi.extent(0));
  detail::check_array("fast_two_sum", "b", b, hi.extent(0));
  detail::for_lanes_parallel<scalar_t<X>>(hi.extent(0), [&]<class V>(Index i, std::type_identity<V>) {
    detail::store(&hi[i], &lo[i], fast_two_sum(detail::load<V>(&first[i]), detail::load<V>(&b[i])));
  });
}

/// (hi[i], lo[i]) = two_sum(a[i], b[i]).
template <class X>
void two_sum(const X& a, In<X, 1> b, Out<X, 1> hi, Out<X, 1> lo) {
  const In<X, 1> first = a;
  detail::check_expansion("two_sum", hi, lo);
  detail::check_array("two_sum", "a", first, hi.extent(0));
  detail::check_array("two_sum", "b", b, hi.extent(0));
  detail::for_lanes_parallel<scalar_t<X>>(hi.extent(0), [&]<class V>(Index i, std::type_identity<V>) {
    detail::store(&hi[i], &lo[i], two_sum(detail::load<V>(&first[i]), detail::load<V>(&b[i])));
  });
}

/// (hi[i], lo[i]) = two_prod(a[i], b[i]).
template <class X>
void two_prod(const X& a, In<X, 1> b, Out<X, 1> hi, Out<X, 1> lo) {
  const In<X, 1> first = a;
  detail::check_expansion("two_prod", hi, lo);
  detail::check_array("two_prod", "a", first, hi.extent(0));
  detail::check_array("two_prod", "b", b, hi.extent(0));
  detail::for_lanes_parallel<scalar_t<X>>(hi.extent(0), [&]<class V>(Index i, std::type_identity<V>) {
    detail::store(&hi[i], &lo[i], two_prod(detail::load<V>(&first[i]), detail::load<V>(&b[i])));
  });
}

/// Adds a[i] to the expansion (hi[i], lo[i]).
template <class X>
void grow(X&& hi, Out<X, 1> lo, In<X, 1> a) {
  const Out<X, 1> head = hi;
  detail::check_expansion("grow", head, lo);
  detail::check_array("grow", "a", a, head.extent(0));
  detail::for_lanes_parallel<scalar_t<X>>(head.extent(0), [&]<class V>(Index i, std::type_identity<V>) {
    detail::store(&head[i], &lo[i], grow(detail::load<V>(&head[i], &lo[i]), detail::load<V>(&a[i])));
  });
}
template <class X>
void grow_robust(X&& hi, Out<X, 1> lo, In<X, 1> a) {
  const Out<X, 1> head = hi;
  detail::check_expansion("grow_robust", head, lo);
  detail::check_array("grow_robust", "a", a, head.extent(0));
  detail::for_lanes_parallel<scalar_t<X>>(head.extent(0), [&]<class V>(Index i, std::type_identity<V>) {
    detail::store(&head[i], &lo[i], grow_robust(detail::load<V>(&head[i], &lo[i]), detail::load<V>(&a[i])));
  });
}

/// Multiplies the expansion (hi[i], lo[i]) by (y_hi[i], y_lo[i]).
template <class X>
void mul(X&& hi, Out<X, 1> lo, In<X, 1> y_hi, In<X, 1> y_lo) {
  const Out<X, 1> head = hi;
  detail::check_expansion("mul", head, lo);
  detail::check_array("mul", "y_hi", y_hi, head.extent(0));
  detail::check_array("mul", "y_lo", y_lo, head.extent(0));
  detail::for_lanes_parallel<scalar_t<X>>(head.extent(0), [&]<class V>(Index i, std::type_identity<V>) {
    const auto y = detail::load<V>(&y_hi[i], &y_lo[i]);
    detail::store(&head[i], &lo[i], mul(detail::load<V>(&head[i], &lo[i]), y));
  });
}

/// Multiplies every expansion (hi[i], lo[i]) by the number c.
template <class X>
void scale(X&& hi, Out<X, 1> lo, scalar_t<X> c) {
  const Out<X, 1> head = hi;
  detail::check_expansion("scale", head, lo);
  detail::for_lanes_parallel<scalar_t<X>>(head.extent(0), [&]<class V>(Index i, std::type_identity<V>) {
    const Rounded<scalar_t<X>, V> factor{V(detail::unpack(c).value)};
    detail::store(&head[i], &lo[i], scale(detail::load<V>(&head[i], &lo[i]), factor));
  });
}

/// Normalises every expansion (hi[i], lo[i]).
template <class X>
void renormalize(X&& hi, Out<X, 1> lo) {
  const Out<X, 1> head = hi;
  detail::check_expansion("renormalize", head, lo);
  detail::for_lanes_parallel<scalar_t<X>>(head.extent(0), [&]<class V>(Index i, std::type_identity<V>) {
    detail::store(&head[i], &lo[i], renormalize(detail::load<V>(&head[i], &lo[i])));
  });
}

}  // namespace ashlar::precision
