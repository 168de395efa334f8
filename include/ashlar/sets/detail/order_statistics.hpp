// Two neighbouring order statistics of many rows at once, without sorting any of them, and a sort for when many ranks
// of one row are wanted. Elements are ordered by (value, position) ascending, -0 and +0 being equal: the order of a
// stable argsort. All kernels give the same pair.
//
// A vector register holds one value of each of `lanes` rows. Three kernels:
//   best_of_lanes     few from the top or the bottom: a sorted list of K vectors in registers, one pass
//   middle_of_lanes   at most `network_size` elements: a sorting network over vectors
//   search_rows       long rows: bracket the rank between two elements of a sorted sample, keep what lies strictly
//                     between (a compress at one vector a few cycles), repeat; expected 1.3 passes over the row
// They work on values; positions follow from how many equal values come before (the tie rank), so no kernel moves
// positions along, and ties cost nothing.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "ashlar/core/config.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"

namespace ashlar::sets::detail {

template <Real C>
inline constexpr Index lanes = simd::width<C>;

/// Rows up to this long are sorted by a network; longer ones are sampled with so many elements.
inline constexpr Index network_size = 64;
/// Ranks this near to an end are kept in registers.
inline constexpr Index most_best = 8;

/// What is asked of one group of rows, and the answer.
template <Real C>
struct Neighbours {
  static constexpr auto size = static_cast<std::size_t>(lanes<C>);

  Index rows = 0;                                      ///< of the lanes, how many are used
  Index count = 0;                                     ///< elements of a row
  std::array<Index, size> rank{};                      ///< 0 <= rank < count
  std::array<bool, size> nan{};                        ///< the row has a NaN: no answer
  std::array<std::int32_t, size> low_at{}, high_at{};  ///< positions of x_(rank) and x_(min(rank + 1, count - 1))

  bool last(std::size_t lane) const { return rank[lane] == count - 1; }
};

// ---- Few from an end --------------------------------------------------------------------------------------------

/// The K largest (top) or smallest elements of every lane with their positions, best first: value[k lanes + lane].
/// Returns the lanes with a NaN. x: [count][step], lanes contiguous. Count < 2^24 keeps a position exact in float.
///
/// Of equal values the top prefers later positions and the bottom earlier ones. Walking away from the preferred end
/// makes both a strict comparison, so that rows of equal values never enter the insertion.
/// Roof: one load, one comparison and a quarter branch a vector; K ln(count / K) insertions a lane on random order.
template <int K, bool Top, Real C>
std::uint64_t best_of_lanes(const C* x, Index step, Index count, C* value, C* position) {
  using batch = simd::batch<C>;
  using mask = simd::mask<C>;
  batch best[K], at[K];
  for (int k = 0; k < K; ++k) best[k] = batch(C{0}), at[k] = batch(C{-1});
  mask nan(false);
  const auto element = [&](Index i) { return simd::load(x + (Top ? count - 1 - i : i) * step); };
  const auto insert = [&](Index i, bool filling) {
    const batch v = element(i), p(static_cast<C>(Top ? count - 1 - i : i));
    nan = nan | xsimd::isnan(v);
    const auto goes_before = [&](int k) {
      const mask better = Top ? v > best[k] : v < best[k];
      return filling ? better | (at[k] < batch(C{0})) : better;
    };
    // From the last place up: what v goes before moves down by one, also past its equals.
    mask here = goes_before(K - 1);
    for (int k = K - 1; k > 0; --k) {
      const mask above = goes_before(k - 1);
      best[k] = xsimd::select(above, best[k - 1], xsimd::select(here, v, best[k]));
      at[k] = xsimd::select(above, at[k - 1], xsimd::select(here, p, at[k]));
      here = above;
    }
    best[0] = xsimd::select(here, v, best[0]);
    at[0] = xsimd::select(here, p, at[0]);
  };
  const auto useless = [&](Index i) { return Top ? element(i) <= best[K - 1] : element(i) >= best[K - 1]; };
  Index i = 0;
  for (; i < std::min<Index>(K, count); ++i) insert(i, true);
  for (; i + 4 <= count; i += 4) {
    if (xsimd::all((useless(i) & useless(i + 1)) & (useless(i + 2) & useless(i + 3)))) continue;
    for (Index j = i; j < i + 4; ++j)
      if (!xsimd::all(useless(j))) insert(j, false);
  }
  for (; i < count; ++i) insert(i, false);
  for (int k = 0; k < K; ++k) {
    simd::store(value + k * lanes<C>, best[k]);
    simd::store(position + k * lanes<C>, at[k]);
  }
  return simd::bits(nan);
}

template <bool Top, Real C>
std::uint64_t best_of_lanes(Index k, const C* x, Index step, Index count, C* value, C* position) {
  if (k <= 1) return best_of_lanes<1, Top>(x, step, count, value, position);
  if (k <= 2) return best_of_lanes<2, Top>(x, step, count, value, position);
  if (k <= 4) return best_of_lanes<4, Top>(x, step, count, value, position);
  return best_of_lanes<8, Top>(x, step, count, value, position);
}

/// Answers with the `depth` best of one end. scratch: 2 most_best lanes elements.
template <bool Top, Real C>
void neighbours_from_end(Index depth, const C* x, Index step, Neighbours<C>& group, C* scratch) {
  C* const position = scratch + most_best * lanes<C>;
  const std::uint64_t nan = best_of_lanes<Top>(depth, x, step, group.count, scratch, position);
  for (std::size_t lane = 0; lane < static_cast<std::size_t>(group.rows); ++lane) {
    const Index low = group.rank[lane], high = std::min(low + 1, group.count - 1);
    const auto at = [&](Index rank) {
      const Index k = Top ? group.count - 1 - rank : rank;
      return static_cast<std::int32_t>(position[k * lanes<C> + static_cast<Index>(lane)]);
    };
    group.nan[lane] = nan >> lane & 1;
    group.low_at[lane] = at(low);
    group.high_at[lane] = at(high);
  }
}

// ---- Short rows -------------------------------------------------------------------------------------------------

/// Comparisons of Batcher's odd-even merge sort of n = 2^k elements.
template <std::size_t N>
constexpr auto sorting_network() {
  constexpr auto visit = [](auto&& compare) {
    for (std::size_t p = 1; p < N; p *= 2)
      for (std::size_t k = p; k >= 1; k /= 2)
        for (std::size_t j = k % p; j + k < N; j += 2 * k)
          for (std::size_t i = j; i < std::min(j + k, N - k); ++i)
            if (i / (2 * p) == (i + k) / (2 * p)) compare(i, i + k);
  };
  constexpr std::size_t size = [&] {
    std::size_t comparisons = 0;
    visit([&](std::size_t, std::size_t) { ++comparisons; });
    return comparisons;
  }();
  std::array<std::array<std::uint8_t, 2>, size> pairs{};
  std::size_t next = 0;
  visit([&](std::size_t a, std::size_t b) {
    pairs[next++] = {static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b)};
  });
  return pairs;
}

template <std::size_t N, Real C>
void sort_lanes(C* x) {
  static constexpr auto network = sorting_network<N>();
  for (const auto [a, b] : network) {
    C* const low = x + a * lanes<C>;
    C* const high = x + b * lanes<C>;
    const auto u = simd::load(low), v = simd::load(high);
    simd::store(low, simd::min(u, v));
    simd::store(high, simd::max(u, v));
  }
}

/// Sorts every lane of x[0 .. count) ascending; x has room for network_size vectors. Lanes with a NaN hold garbage.
template <Real C>
void sort_lanes(C* x, Index count) {
  const Index size = std::max<Index>(8, static_cast<Index>(std::bit_ceil(static_cast<std::size_t>(count))));
  std::fill(x + count * lanes<C>, x + size * lanes<C>, std::numeric_limits<C>::infinity());
  if (size <= 8) return sort_lanes<8>(x);
  if (size <= 16) return sort_lanes<16>(x);
  if (size <= 32) return sort_lanes<32>(x);
  sort_lanes<64>(x);
}

/// How many elements before `rank` of a sorted lane equal the one there.
template <Real C>
Index tie_rank(const C* sorted, std::size_t lane, Index rank) {
  const C* const column = sorted + lane;
  Index ties = 0;
  while (ties < rank && column[(rank - 1 - ties) * lanes<C>] == column[rank * lanes<C>]) ++ties;
  return ties;
}

/// Answers by sorting every lane. x: [count][step]; scratch: (network_size + 4) lanes elements.
template <Real C>
void middle_of_lanes(const C* x, Index step, Neighbours<C>& group, C* scratch) {
  using batch = simd::batch<C>;
  const Index count = group.count;
  for (Index i = 0; i < count; ++i) simd::store(scratch + i * lanes<C>, simd::load(x + i * step));
  sort_lanes(scratch, count);
  C* const low = scratch + network_size * lanes<C>;
  C *const high = low + lanes<C>, *const low_tie = high + lanes<C>, *const high_tie = low_tie + lanes<C>;
  std::fill(low, high_tie + lanes<C>, C{0});
  for (std::size_t lane = 0; lane < static_cast<std::size_t>(group.rows); ++lane) {
    const Index l = group.rank[lane], r = std::min(l + 1, count - 1);
    low[lane] = scratch[l * lanes<C> + static_cast<Index>(lane)];
    high[lane] = scratch[r * lanes<C> + static_cast<Index>(lane)];
    low_tie[lane] = static_cast<C>(tie_rank(scratch, lane, l));
    high_tie[lane] = static_cast<C>(high[lane] == low[lane] ? static_cast<Index>(low_tie[lane]) + (r - l) : 0);
  }
  // The elements equal to `low` pass in order; the one that finds its tie rank is the answer. So for `high`.
  const batch low_v = simd::load(low), high_v = simd::load(high), one(C{1}), zero(C{0});
  batch low_wait = simd::load(low_tie), high_wait = simd::load(high_tie), low_at(C{0}), high_at(C{0});
  simd::mask<C> nan(false);
  for (Index i = 0; i < count; ++i) {
    const batch v = simd::load(x + i * step), at(static_cast<C>(i));
    nan = nan | xsimd::isnan(v);
    const auto is_low = v == low_v, is_high = v == high_v;
    low_at = xsimd::select(is_low & (low_wait == zero), at, low_at);
    high_at = xsimd::select(is_high & (high_wait == zero), at, high_at);
    low_wait = low_wait - xsimd::select(is_low, one, zero);
    high_wait = high_wait - xsimd::select(is_high, one, zero);
  }
  simd::store(low, low_at);
  simd::store(high, high_at);
  const std::uint64_t nans = simd::bits(nan);
  for (std::size_t lane = 0; lane < static_cast<std::size_t>(group.rows); ++lane) {
    group.nan[lane] = nans >> lane & 1;
    group.low_at[lane] = static_cast<std::int32_t>(low[lane]);
    group.high_at[lane] = static_cast<std::int32_t>(high[lane]);
  }
}

// ---- Long rows --------------------------------------------------------------------------------------------------

template <Real C>
struct Split {
  Index not_above = 0;  ///< elements <= low
  Index inside = 0;     ///< elements strictly between
  bool nan = false;
};

/// Copies the elements strictly between low < high to `inside`, in order. `inside` may be x itself; it has room for
/// count + lanes elements. Roof: two comparisons and a compress a vector.
template <Real C>
Split<C> keep_between(const C* x, Index count, C low, C high, C* inside) {
  constexpr Index w = lanes<C>;
  constexpr std::uint64_t all = w == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << w) - 1;
  const simd::batch<C> low_v(low), high_v(high);
  Index kept = 0, above = 0, i = 0;
  std::uint64_t ordered = all;  // every ordered value is above low or below high
  for (; i + w <= count; i += w) {
    const auto v = simd::load(x + i);
    const auto is_above = v > low_v, is_below = v < high_v;
    const std::uint64_t above_bits = simd::bits(is_above);
    ordered &= above_bits | simd::bits(is_below);
    above += std::popcount(above_bits);
    kept += simd::compress(inside + kept, is_above & is_below, v);
  }
  bool nan = ordered != all;
  for (; i < count; ++i) {
    const C v = x[i];
    nan |= v != v;
    above += v > low;
    if (v > low && v < high) inside[kept++] = v;
  }
  return {count - above, kept, nan};
}

template <Real C>
struct Census {
  Index below = 0, equal = 0;
  C next = std::numeric_limits<C>::infinity();  ///< the smallest element above
  bool nan = false;
};

/// Where v stands among the elements of x.
template <Real C>
Census<C> census(const C* x, Index count, C v) {
  constexpr Index w = lanes<C>;
  using batch = simd::batch<C>;
  const batch pivot(v), infinity(std::numeric_limits<C>::infinity());
  batch next = infinity;
  simd::mask<C> nan(false);
  Census<C> found;
  Index i = 0;
  for (; i + w <= count; i += w) {
    const batch u = simd::load(x + i);
    nan = nan | xsimd::isnan(u);
    found.below += std::popcount(simd::bits(u < pivot));
    found.equal += std::popcount(simd::bits(u == pivot));
    next = simd::min(next, xsimd::select(u > pivot, u, infinity));
  }
  found.nan = xsimd::any(nan);
  found.next = simd::reduce_min(next);
  for (; i < count; ++i) {
    found.nan |= x[i] != x[i];
    found.below += x[i] < v;
    found.equal += x[i] == v;
    if (x[i] > v) found.next = std::min(found.next, x[i]);
  }
  return found;
}

/// The position, from `begin` on, of the element equal to v that has `tie` such elements before it. It exists.
template <Real C>
Index position_of(const C* x, Index begin, Index count, C v, Index tie) {
  constexpr Index w = lanes<C>;
  const simd::batch<C> wanted(v);
  Index i = begin;
  for (; i + w <= count; i += w) {
    std::uint64_t equal = simd::bits(simd::load(x + i) == wanted);
    if (equal == 0) continue;
    const Index here = std::popcount(equal);
    if (tie >= here) {
      tie -= here;
      continue;
    }
    for (; tie > 0; --tie) equal &= equal - 1;
    return i + std::countr_zero(equal);
  }
  for (; i < count; ++i)
    if (x[i] == v && tie-- == 0) break;
  return i;
}

/// The search for one rank in one row. What is left of the row lies strictly between two elements of it.
template <Real C>
struct Search {
  const C* row;
  Index count, rank;
  C* kept;             ///< room for count + lanes elements
  const C* left;       ///< `row` at first, then `kept`
  Index size, target;  ///< the answer is element `target` of the sorted `size` elements left
  C above = -std::numeric_limits<C>::infinity(), below = std::numeric_limits<C>::infinity();
  bool done = false, nan = false;
  C low = 0, high = 0;  ///< the answer: x_(rank), with `tie` equal elements before it, and its upper neighbour
  Index tie = 0;

  bool last() const { return rank == count - 1; }

  void answer(C value, Index equal_before, C next) {
    low = value, tie = equal_before;
    high = last() ? value : next;
    done = true;
  }

  /// Compares v with the answer on the whole row: it is the answer, or what is left is cut there.
  void settle(C v) {
    for (;;) {
      const Census<C> found = census(row, count, v);
      nan = found.nan;
      if (nan) {
        done = true;
        return;
      }
      if (found.below <= rank && rank < found.below + found.equal)
        return answer(v, rank - found.below, rank + 1 < found.below + found.equal ? v : found.next);
      (rank < found.below ? below : above) = v;
      const Split<C> split = keep_between(row, count, above, below, kept);
      left = kept, size = split.inside, target = rank - split.not_above;
      if (0 <= target && target < size) return;
      v = target < 0 ? above : below;  // the answer is an infinity that never was between
    }
  }

  /// Cuts what is left down to what lies strictly between two of its elements, `from` and `to`.
  void narrow(C from, C to) {
    if (!(from < to)) return settle(from);
    const Split<C> split = keep_between(left, size, from, to, kept);
    if (split.nan) {
      nan = done = true;
      return;
    }
    const Index inside = target - split.not_above;
    if (inside < 0) return settle(from);
    if (inside >= split.inside) return settle(to);
    above = from, below = to;
    left = kept, size = split.inside, target = inside;
  }

  /// Fills one lane with everything left, or with network_size elements of it. Returns how many.
  Index sample(C* lane) {
    if (size > network_size) {
      // One element of every stretch, at a place that shares no period with the data.
      const Index stretch = size / network_size;
      for (Index i = 0; i < network_size; ++i) lane[i * lanes<C>] = left[i * stretch + (i * 157 % 256 * stretch >> 8)];
      return network_size;
    }
    for (Index i = 0; i < size; ++i) {
      lane[i * lanes<C>] = left[i];
      nan |= left[i] != left[i];
    }
    return size;
  }

  /// The answer among network_size or fewer, sorted.
  void finish(const C* sorted) {
    const C value = sorted[target * lanes<C>];
    if (target + 1 == size && !last()) return settle(value);
    answer(value, tie_rank(sorted, 0, target), last() ? value : sorted[(target + 1) * lanes<C>]);
  }

  /// Brackets the answer by two elements of a sorted sample. Its rank there is binomial; the bracket is two deviations
  /// and a half to each side.
  void bracket(const C* sorted) {
    const double p = (static_cast<double>(target) + 0.5) / static_cast<double>(size);
    const double centre = p * network_size - 0.5, margin = 1 + 2.5 * std::sqrt(network_size * p * (1 - p));
    const auto from = static_cast<Index>(std::floor(centre - margin));
    const auto to = static_cast<Index>(std::ceil(centre + margin));
    narrow(from < 0 ? above : sorted[from * lanes<C>], to >= network_size ? below : sorted[to * lanes<C>]);
  }

  /// The end of all patience: introselect.
  void select() {
    if (left != kept) std::copy_n(left, size, kept);
    std::nth_element(kept, kept + target, kept + size);
    settle(kept[target]);
  }
};

/// Answers for lanes [begin, end) of the group, which are searched in step.
template <Real C>
void search_rows(const C* const* rows, std::size_t begin, std::size_t end, Neighbours<C>& group, C* kept,
                 Index kept_stride, C* scratch) {
  constexpr Index patience = 12;  // a round on a random row leaves a third: 12 of them, one of half a million
  std::array<Search<C>, Neighbours<C>::size> searches;
  for (std::size_t lane = begin; lane < end; ++lane)
    searches[lane] = {.row = rows[lane],
                      .count = group.count,
                      .rank = group.rank[lane],
                      .kept = kept + static_cast<Index>(lane) * kept_stride,
                      .left = rows[lane],
                      .size = group.count,
                      .target = group.rank[lane]};
  for (Index round = 0;; ++round) {
    std::fill_n(scratch, network_size * lanes<C>, std::numeric_limits<C>::infinity());
    Index longest = 0;
    for (std::size_t lane = begin; lane < end; ++lane) {
      Search<C>& search = searches[lane];
      if (round == patience && !search.done && search.size > network_size) search.select();
      if (!search.done) longest = std::max(longest, search.sample(scratch + lane));
    }
    if (longest == 0) break;
    sort_lanes(scratch, longest);
    for (std::size_t lane = begin; lane < end; ++lane) {
      Search<C>& search = searches[lane];
      if (!search.done) search.size <= network_size ? search.finish(scratch + lane) : search.bracket(scratch + lane);
    }
  }
  for (std::size_t lane = begin; lane < end; ++lane) {
    const Search<C>& search = searches[lane];
    group.nan[lane] = search.nan;
    if (search.nan) continue;
    const Index low = position_of(search.row, 0, search.count, search.low, search.tie);
    const Index after = search.high == search.low ? low + 1 : 0;
    const Index high = search.last() ? low : position_of(search.row, after, search.count, search.high, 0);
    group.low_at[lane] = static_cast<std::int32_t>(low);
    group.high_at[lane] = static_cast<std::int32_t>(high);
  }
}

/// Answers for rows of any length. rows: one pointer a lane; kept: room for group.rows times kept_stride >= count +
/// lanes elements; scratch: network_size lanes elements.
template <Real C>
void search_rows(const C* const* rows, Neighbours<C>& group, C* kept, Index kept_stride, C* scratch) {
  // Rows searched in step share the sorting of their samples, but are to be in the second-level cache when their
  // positions are looked up.
  constexpr Index cached = (Index{1} << 19) / static_cast<Index>(sizeof(C));
  const auto used = static_cast<std::size_t>(group.rows);
  const auto in_step = static_cast<std::size_t>(std::clamp<Index>(cached / group.count, 1, lanes<C>));
  for (std::size_t begin = 0; begin < used; begin += in_step)
    search_rows(rows, begin, std::min(begin + in_step, used), group, kept, kept_stride, scratch);
}

// ---- Every rank ------------------------------------------------------------------------------------------------

/// Unsigned integers in the order of the numbers.
template <Real C>
using SortKey = std::conditional_t<sizeof(C) == 4, std::uint32_t, std::uint64_t>;

template <Real C>
SortKey<C> sort_key(C v) {
  using Key = SortKey<C>;
  constexpr Key sign = Key{1} << (8 * sizeof(Key) - 1);
  const auto bits = std::bit_cast<Key>(v + C{0});  // -0 becomes +0
  return bits & sign ? ~bits : bits | sign;
}

/// The positions of x in the order of a stable argsort; null with a NaN. Sorts by one byte of the keys after the other,
/// from the last; a byte that all keys share needs no pass. keys, order, spare: room for count each; the answer lies in
/// order or spare.
template <Real C>
const std::int32_t* stable_argsort(const C* x, Index count, SortKey<C>* keys, std::int32_t* order,
                                   std::int32_t* spare) {
  constexpr std::size_t bytes = sizeof(C);
  const auto digit = [](SortKey<C> key, std::size_t byte) {
    return static_cast<std::size_t>(key >> (8 * byte) & 0xFF);
  };
  std::array<std::array<std::int32_t, 256>, bytes> start{};
  bool nan = false;
  for (Index i = 0; i < count; ++i) {
    nan |= std::isnan(x[i]);
    keys[i] = sort_key(x[i]);
    order[i] = static_cast<std::int32_t>(i);
    for (std::size_t byte = 0; byte < bytes; ++byte) ++start[byte][digit(keys[i], byte)];
  }
  if (nan) return nullptr;
  for (std::size_t byte = 0; byte < bytes; ++byte) {
    auto& next = start[byte];
    if (next[digit(keys[0], byte)] == count) continue;
    std::int32_t before = 0;
    for (std::int32_t& first : next) before += std::exchange(first, before);
    for (Index i = 0; i < count; ++i) spare[next[digit(keys[order[i]], byte)]++] = order[i];
    std::swap(order, spare);
  }
  return order;
}

}  // namespace ashlar::sets::detail
