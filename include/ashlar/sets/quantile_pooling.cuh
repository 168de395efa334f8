// Quantile pooling on the device: one thread block a channel of a set, radix selection on (value, position).
//
//   quantile_pool_forward(x, counts, levels, values, positions, stream);      // all device views
//   quantile_pool_backward(g, positions, counts, levels, gx, stream);
//
// x: [set, element, channel], any strides; channel-major memory makes the reads coalesce. One digit of eight bits a
// pass over the row: four passes for the value (eight for double), then as many as the positions need, so that equal
// values are told apart by position and the pair is that of the host form. Rows of up to `held` elements are read from
// global memory once. The bodies are written against a Block: they run on the host under HostBlock, the launches need
// nvcc. Levels and counts live on the device and are not checked.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ashlar/core/block.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/sets/detail/levels.hpp"

#if defined(__CUDACC__)
#include "ashlar/core/block.cuh"
#endif

namespace ashlar::sets {

namespace detail {

/// An unsigned number that orders as the value does; -0 and +0 are one.
template <Real C>
ASHLAR_HOST_DEVICE auto ordered_key(C value) {
  using Key = std::conditional_t<std::is_same_v<C, float>, std::uint32_t, std::uint64_t>;
  constexpr Key sign = Key{1} << (8 * sizeof(Key) - 1);
  const Key bits = std::bit_cast<Key>(value == 0 ? C{0} : value);
  return bits & sign ? static_cast<Key>(~bits) : static_cast<Key>(bits | sign);
}

template <Scalar T>
struct QuantileForwardBody {
  using C = accumulate_t<T>;
  using Key = decltype(ordered_key(C{}));
  static constexpr Index bins = 256;
  static constexpr Index held = 8192;  ///< keys of a row in shared memory: 32 KiB, or 64 for double

  View<const T, 3, device> x;
  View<const Index, 1, device> counts;  ///< [set], or left out: every element counts
  View<const double, 1, device> levels;
  View<T, 2, device> values;
  View<std::int32_t, 3, device> positions;
  Interpolation interpolation;
  double empty;  ///< output of sets without elements

  Index blocks() const { return x.extent(0) * x.extent(2); }

  template <class Block>
  ASHLAR_HOST_DEVICE void operator()(Block& block) const {
    const Index s = block.index() / x.extent(2), c = block.index() % x.extent(2);
    const Index n = counts.data() != nullptr ? counts[s] : x.extent(1);
    if (n == 0) return write(block, s, c, static_cast<C>(empty), -1, -1);

    const bool hold = x.extent(1) <= held;
    auto keys = block.template shared<Key>(hold ? x.extent(1) : 0);
    auto histogram = block.template shared<int>(bins + 1);  // the last one counts NaN
    auto digit = block.template shared<Index>(2);           // of the answer, and the rank among those who share it
    auto best = block.template shared<Index>(block.threads());

    clear(block, histogram);
    block.sync();
    block.for_each(n, [&](Index i) {
      const C value = to_float(x(s, i, c));
      if (value != value) histogram.atomic_add(bins, 1);
      if (hold) keys[i] = ordered_key(value);
    });
    block.sync();
    if (histogram[bins] != 0) return write(block, s, c, std::numeric_limits<C>::quiet_NaN(), -1, -1);
    block.sync();

    const auto key = [&](Index i) -> Key { return hold ? static_cast<Key>(keys[i]) : ordered_key(C(to_float(x(s, i, c)))); };
    const Rank rank = rank_of(levels[c], n, interpolation);
    Index left = rank.low;
    Key low = 0;
    for (int shift = 8 * static_cast<int>(sizeof(Key)) - 8; shift >= 0; shift -= 8) {
      const Key above = shift + 8 == 8 * static_cast<int>(sizeof(Key)) ? Key{0} : static_cast<Key>(low >> (shift + 8));
      select_digit(block, n, histogram, digit, left, [&](Index i) -> int {
        const Key k = key(i);
        const bool candidate = shift + 8 == 8 * static_cast<int>(sizeof(Key)) || k >> (shift + 8) == above;
        return candidate ? static_cast<int>(k >> shift & (bins - 1)) : -1;
      });
      low |= static_cast<Key>(static_cast<Index>(digit[0])) << shift;
      left = digit[1];
      block.sync();
    }
    // `left` elements of the same value come before the answer: select on among their positions.
    int position_bits = 8;
    while (n > Index{1} << position_bits) position_bits += 8;
    Index low_at = 0;
    for (int shift = position_bits - 8; shift >= 0; shift -= 8) {
      select_digit(block, n, histogram, digit, left, [&](Index i) -> int {
        const bool candidate = key(i) == low && i >> (shift + 8) == low_at >> (shift + 8);
        return candidate ? static_cast<int>(i >> shift & (bins - 1)) : -1;
      });
      low_at |= digit[0] << shift;
      left = digit[1];
      block.sync();
    }
    const Index high_at = rank.low == n - 1 ? low_at : next_after(block, n, best, low, low_at, key);
    write(block, s, c, interpolate(C(to_float(x(s, low_at, c))), C(to_float(x(s, high_at, c))), rank.weight), low_at,
          high_at);
  }

 private:
  template <class Block, class Histogram>
  ASHLAR_HOST_DEVICE static void clear(Block& block, const Histogram& histogram) {
    block.for_each(bins + 1, [&](Index bin) { histogram[bin] = 0; });
  }

  /// digit[0] = the digit of the element of rank `rank` among those whose digit is not -1, digit[1] = its rank among
  /// those of the same digit. All threads may read both when it returns.
  template <class Block, class Histogram, class Digit, class DigitOf>
  ASHLAR_HOST_DEVICE static void select_digit(Block& block, Index n, const Histogram& histogram, const Digit& digit,
                                              Index rank, const DigitOf& digit_of) {
    clear(block, histogram);
    block.sync();
    block.for_each(n, [&](Index i) {
      if (const int d = digit_of(i); d >= 0) histogram.atomic_add(d, 1);
    });
    block.sync();
    block.for_each(1, [&](Index) {
      Index bin = 0, before = 0;
      while (before + histogram[bin] <= rank) before += histogram[bin++];
      digit[0] = bin;
      digit[1] = rank - before;
    });
    block.sync();
  }

  /// The position of the smallest element after (low, low_at). Every thread looks at its share of the row.
  template <class Block, class Best, class KeyOf>
  ASHLAR_HOST_DEVICE static Index next_after(Block& block, Index n, const Best& best, Key low, Index low_at,
                                             const KeyOf& key) {
    const auto after = [&](Index i, Index j) { return key(i) != key(j) ? key(i) > key(j) : i > j; };
    const auto follows = [&](Index i) { return key(i) != low ? key(i) > low : i > low_at; };
    const Index threads = block.threads();
    block.for_each(threads, [&](Index thread) {
      Index mine = -1;
      for (Index i = thread; i < n; i += threads)
        if (follows(i) && (mine < 0 || after(mine, i))) mine = i;
      best[thread] = mine;
    });
    block.sync();
    Index next = -1;
    for (Index thread = 0; thread < threads; ++thread) {
      const Index other = best[thread];
      if (other >= 0 && (next < 0 || after(next, other))) next = other;
    }
    return next;
  }

  template <class Block>
  ASHLAR_HOST_DEVICE void write(Block& block, Index s, Index c, C value, Index low_at, Index high_at) const {
    block.for_each(1, [&](Index) {
      values(s, c) = from_float<T>(value);
      if (positions.data() == nullptr) return;
      positions(s, c, 0) = static_cast<std::int32_t>(low_at);
      positions(s, c, 1) = static_cast<std::int32_t>(high_at);
    });
  }
};

/// One block a set; a thread owns whole channels, so no two threads add to one element.
template <Scalar T>
struct QuantileBackwardBody {
  using C = accumulate_t<T>;

  View<const T, 2, device> g;
  View<const std::int32_t, 3, device> positions;
  View<const Index, 1, device> counts;  ///< [set], or left out
  View<const double, 1, device> levels;
  View<T, 3, device> gx;
  Interpolation interpolation;

  Index blocks() const { return gx.extent(0); }

  template <class Block>
  ASHLAR_HOST_DEVICE void operator()(Block& block) const {
    const Index s = block.index();
    const Index n = counts.data() != nullptr ? counts[s] : gx.extent(1);
    block.for_each(gx.extent(2), [&](Index c) {
      const Index low = positions(s, c, 0), high = positions(s, c, 1);
      if (low < 0 || high < 0) return;
      const C w = static_cast<C>(rank_of(levels[c], n, interpolation).weight), upstream = to_float(g(s, c));
      const auto add = [&](Index at, C part) {
        T& to = gx(s, at, c);
        to = from_float<T>(to_float(to) + part);
      };
      add(low, (1 - w) * upstream);
      if (w != 0) add(high, w * upstream);
    });
  }
};

}  // namespace detail

#if defined(__CUDACC__)

/// quantile_pool_forward of the host header with device views, one level a channel: enqueued on `stream`, no
/// allocation, no synchronisation. counts: [set] or left out; positions: [set, channel, 2] or left out. A set without
/// elements gives `empty`.
template <Scalar T>
void quantile_pool_forward(View<const T, 3, device> x, View<const Index, 1, device> counts,
                           View<const double, 1, device> levels, View<T, 2, device> values,
                           View<std::int32_t, 3, device> positions, cudaStream_t stream,
                           Interpolation interpolation = Interpolation::linear,
                           double empty = std::numeric_limits<double>::quiet_NaN()) {
  constexpr const char* function = "quantile_pool_forward";
  constexpr int threads = 256;
  using Body = detail::QuantileForwardBody<T>;
  check_shape(function, "levels", levels.shape(), {x.extent(2)}, "one per channel");
  check_shape(function, "values", values.shape(), {x.extent(0), x.extent(2)}, "one per set and channel");
  if (counts.data() != nullptr) check_shape(function, "counts", counts.shape(), {x.extent(0)}, "one per set");
  if (positions.data() != nullptr)
    check_shape(function, "positions", positions.shape(), {x.extent(0), x.extent(2), 2}, "two per set and channel");
  check_argument(x.extent(1) <= std::numeric_limits<std::int32_t>::max(), function, "the number of elements",
                 "countable by a 32-bit position", x.extent(1));
  const std::size_t shared = HostBlock::shared_size<typename Body::Key>(x.extent(1) <= Body::held ? x.extent(1) : 0) +
                             HostBlock::shared_size<int>(Body::bins + 1) + HostBlock::shared_size<Index>(2) +
                             HostBlock::shared_size<Index>(threads);
  const Body body{x, counts, levels, values, positions, interpolation, empty};
  launch(body.blocks(), threads, shared, stream, body);
}

/// quantile_pool_backward of the host header with device views: adds to gx.
template <Scalar T>
void quantile_pool_backward(View<const T, 2, device> g, View<const std::int32_t, 3, device> positions,
                            View<const Index, 1, device> counts, View<const double, 1, device> levels,
                            View<T, 3, device> gx, cudaStream_t stream,
                            Interpolation interpolation = Interpolation::linear) {
  constexpr const char* function = "quantile_pool_backward";
  check_shape(function, "levels", levels.shape(), {gx.extent(2)}, "one per channel");
  check_shape(function, "g", g.shape(), {gx.extent(0), gx.extent(2)}, "one per set and channel");
  check_shape(function, "positions", positions.shape(), {gx.extent(0), gx.extent(2), 2}, "two per set and channel");
  if (counts.data() != nullptr) check_shape(function, "counts", counts.shape(), {gx.extent(0)}, "one per set");
  const detail::QuantileBackwardBody<T> body{g, positions, counts, levels, gx, interpolation};
  launch(body.blocks(), 128, 0, stream, body);
}

#endif

}  // namespace ashlar::sets
