// The order that sorts an array, for code that sorts again and again: keys scaled to integers, three passes of radix
// sort, and an insertion sort of what fell on the same integer. A few times as fast as std::sort from a hundred
// elements on, stable, and free of allocations.
//
//   std::vector<std::uint32_t> order = numerics::argsort(x);            // x[order[0]] <= x[order[1]] <= ...
//
// O(n) for most data. Where many keys are nearly equal and few far away it falls back to std::sort, O(n log n).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/core/workspace.hpp"

namespace ashlar::numerics {

namespace detail {

/// 64-bit words that argsort_into needs for n keys.
constexpr Index argsort_words(Index n) { return 2 * n; }

/// Insertion sort of order by the keys, ties left alone; false, the order still a permutation, after too many moves.
inline bool insertion_argsort(const double* x, std::uint32_t* order, Index n, Index moves) {
  for (Index i = 1; i < n; ++i) {
    const std::uint32_t current = order[i];
    Index at = i;
    for (; at > 0 && x[order[at - 1]] > x[current]; --at) order[at] = order[at - 1];
    order[at] = current;
    moves -= i - at;
    if (moves < 0) return false;
  }
  return true;
}

template <int Bits>
void radix_argsort(const double* x, double low, double scale, std::uint32_t* order, Index n, std::uint64_t* from) {
  constexpr std::uint32_t digits = 1u << Bits, last = digits - 1;
  std::uint64_t* to = from + n;
  std::uint32_t starts[3][digits] = {};
  for (Index i = 0; i < n; ++i) {
    const auto key = static_cast<std::uint32_t>((x[i] - low) * scale);
    ++starts[0][key & last];
    ++starts[1][key >> Bits & last];
    ++starts[2][key >> 2 * Bits];
    from[i] = std::uint64_t{key} << 32 | static_cast<std::uint32_t>(i);
  }
  for (auto& pass : starts) std::exclusive_scan(pass, pass + digits, pass, 0u);
  const auto move = [&](int pass, auto&& put) {
    for (Index i = 0; i < n; ++i) put(starts[pass][from[i] >> (32 + pass * Bits) & last]++, from[i]);
  };
  move(0, [&](std::uint32_t at, std::uint64_t element) { to[at] = element; });
  std::swap(from, to);
  move(1, [&](std::uint32_t at, std::uint64_t element) { to[at] = element; });
  std::swap(from, to);
  move(2, [&](std::uint32_t at, std::uint64_t element) { order[at] = static_cast<std::uint32_t>(element); });
}

/// Keys are finite; scratch: argsort_words(n). Ties by index.
inline void argsort_into(const double* x, Index n, std::uint32_t* order, std::uint64_t* scratch) {
  const auto by_comparison = [&] {
    std::iota(order, order + n, 0u);
    std::sort(order, order + n,
              [x](std::uint32_t a, std::uint32_t b) { return x[a] < x[b] || (x[a] == x[b] && a < b); });
  };
  if (n < 64) {
    std::iota(order, order + n, 0u);
    insertion_argsort(x, order, n, n * n);
    return;
  }
  double low = x[0], high = x[0];
  for (Index i = 1; i < n; ++i) low = std::min(low, x[i]), high = std::max(high, x[i]);
  // Monotone in the key as every operation is, so that different integers are in the order of the keys.
  const bool large = n >= 2048;
  const double scale = (large ? 0x1p30 - 1 : 0x1p24 - 1) / (high - low);
  if (!(high - low <= std::numeric_limits<double>::max()) || !(scale <= std::numeric_limits<double>::max())) {
    by_comparison();
    return;
  }
  if (large)
    radix_argsort<10>(x, low, scale, order, n, scratch);
  else
    radix_argsort<8>(x, low, scale, order, n, scratch);
  if (!insertion_argsort(x, order, n, 8 * n)) by_comparison();
}

inline void check_sortable(std::string_view function, View<const double, 1> x) {
  require(x.extent(0) <= Index{std::numeric_limits<std::uint32_t>::max()}, function, "x has ", x.extent(0),
          " elements, more than 32 bits can count");
  for (Index i = 0; i < x.extent(0); ++i)
    check_argument(std::isfinite(x[i]), function, "every element of x", "finite", x[i]);
}

}  // namespace detail

/// order: [n], where each element of x: [n] goes; equal elements stay in order. Allocates nothing once the workspace
/// has grown. Throws InvalidArgument for elements that are not finite and an order of another length.
inline void argsort(View<const double, 1> x, std::span<std::uint32_t> order, Workspace& workspace) {
  constexpr auto function = "argsort";
  const Index n = x.extent(0);
  detail::check_sortable(function, x);
  check_shape(function, "order", std::initializer_list<Index>{static_cast<Index>(order.size())}, {n}, "same as x");
  auto* scratch = workspace.reserve<std::uint64_t>(detail::argsort_words(n) + n);
  auto* keys = reinterpret_cast<double*>(scratch + detail::argsort_words(n));
  for (Index i = 0; i < n; ++i) keys[i] = x[i];
  detail::argsort_into(keys, n, order.data(), scratch);
}
inline std::vector<std::uint32_t> argsort(View<const double, 1> x) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(x.extent(0)));
  Workspace workspace;
  argsort(x, order, workspace);
  return order;
}

}  // namespace ashlar::numerics
