// Ranks 1 .. n of a sample. Equal values share the mean of their places, or get them in random order.
//
//   Vector<double> r = numerics::average_ranks(x);            // {10, 30, 10} -> {1.5, 3, 1.5}
//   Vector<double> s = numerics::random_ranks(x, rng);        // {1, 3, 2} or {2, 3, 1}
//
// O(n) for most data, O(n log n) at worst, as argsort.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/numerics/argsort.hpp"

namespace ashlar::numerics {

namespace detail {

/// Calls f(begin, end) for every run of equal values, in ascending order of the values.
template <class X, class F>
void for_each_tie(const X& x, std::span<const std::uint32_t> order, F&& f) {
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    for (end = begin + 1; end < order.size() && x[order[end]] == x[order[begin]];) ++end;
    f(begin, end);
  }
}

}  // namespace detail

/// x: [n], ranks: [n], not the same memory. Throws InvalidArgument for elements that are not finite and a wrong shape.
inline void average_ranks(View<const double, 1> x, View<double, 1> ranks, Workspace& workspace) {
  constexpr auto function = "average_ranks";
  const Index n = x.extent(0);
  detail::check_sortable(function, x);
  check_shape(function, "ranks", ranks.shape(), {n}, "same as x");
  auto* scratch = workspace.reserve<std::uint64_t>(detail::argsort_words(n) + n + (n + 1) / 2);
  auto* keys = reinterpret_cast<double*>(scratch + detail::argsort_words(n));
  auto* order = reinterpret_cast<std::uint32_t*>(keys + n);
  for (Index i = 0; i < n; ++i) keys[i] = x[i];
  detail::argsort_into(keys, n, order, scratch);
  detail::for_each_tie(keys, {order, static_cast<std::size_t>(n)}, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = 0.5 * static_cast<double>(begin + 1 + end);
  });
}
inline Vector<double> average_ranks(View<const double, 1> x) {
  Vector<double> ranks(x.extent(0));
  Workspace workspace;
  average_ranks(x, ranks, workspace);
  return ranks;
}

/// Ranks without ties: every order of equal values is as likely as any other. For rank statistics that take ties amiss.
inline Vector<double> random_ranks(View<const double, 1> x, Rng& rng) {
  detail::check_sortable("random_ranks", x);
  std::vector<std::uint32_t> order = argsort(x);
  Vector<double> ranks(x.extent(0));
  detail::for_each_tie(x, order, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = end; i > begin + 1; --i)
      std::swap(order[i - 1], order[begin + static_cast<std::size_t>(rng.below(static_cast<Index>(i - begin)))]);
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(i + 1);
  });
  return ranks;
}

}  // namespace ashlar::numerics
