// Quantile pooling: a permutation-invariant reduction over the elements of a set in which every channel reads a
// different order statistic. Chen, Zhu, Su, Chuang, "Stacking Deep Set Networks and Pooling by Quantiles", ICML 2024.
//
//   out_c = x_(l) + w (x_(l+1) - x_(l)),   l = floor(q_c (n - 1)),   w = q_c (n - 1) - l,
//
// x_(0) <= x_(1) <= ... the n values of channel c in ascending order and q_0 .. q_{D-1} levels evenly spread over an
// interval, [0.9, 1] by default. Level 1 is max pooling; the other channels add a view of the distribution.
//
//   std::vector<double> levels = linspace_levels(x.extent(2));           // x: [set, element, channel]
//   auto pooled = quantile_pool_forward(x, levels);                      // values [set, channel], and positions
//   quantile_pool_backward(g, pooled.positions.view<3>(), levels, gx);   // adds to gx: [set, element, channel]
//
// Padded, ragged and masked batches: padded(x, counts), ragged(values, offsets), masked(x, mask) of pooling.hpp in the
// place of x. Channel-major data: x.transposed(1, 2). One level a channel is selected and not sorted, O(n) a channel
// with channels in the lanes of a vector (detail/order_statistics.hpp). Levels are double whatever the scalar:
// 0.9f (n - 1) would pick a wrong neighbour.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/sets/detail/levels.hpp"
#include "ashlar/sets/detail/order_statistics.hpp"
#include "ashlar/sets/pooling.hpp"

namespace ashlar::sets {

struct QuantilePoolOptions {
  Interpolation interpolation = Interpolation::linear;
  /// false: levels[c] belongs to channel c (the paper). true: every channel is read at every level, and column
  /// c * levels + m of the output is channel c at levels[m].
  bool every_level = false;
  /// Output of sets without elements, whose positions are -1 and gradient 0. Without it they throw InvalidArgument.
  std::optional<double> empty = {};
};

template <class T>
struct QuantilePooled {
  Matrix<T> values;                ///< [set, column]
  Tensor<std::int32_t> positions;  ///< [set, column, 2]: the elements x_(l), x_(min(l+1, n-1)); -1 where there is none
};

// ---- Levels -----------------------------------------------------------------------------------------------------

/// low + (high - low) c / (channels - 1), c = 0 .. channels - 1; the last is exactly `high`, a single one `low`.
inline std::vector<double> linspace_levels(Index channels, double low = 0.9, double high = 1.0) {
  check_argument(channels >= 1, "linspace_levels", "channels", "at least 1", channels);
  require(0 <= low && low <= high && high <= 1, "linspace_levels", "levels need 0 <= low <= high <= 1, got low ", low,
          " and high ", high);
  std::vector<double> levels(static_cast<std::size_t>(channels));
  for (Index c = 0; c < channels; ++c)
    levels[static_cast<std::size_t>(c)] =
        c == 0 ? low : low + (high - low) * static_cast<double>(c) / static_cast<double>(channels - 1);
  if (channels > 1) levels.back() = high;
  return levels;
}

/// `groups` evenly spaced levels, each shared by channels / groups consecutive channels; one group has level `low`.
inline std::vector<double> grouped_levels(Index channels, Index groups, double low, double high) {
  require(groups >= 1 && channels >= 1 && channels % groups == 0, "grouped_levels", "groups must divide the ", channels,
          " channels, got ", groups);
  const std::vector<double> of_group = linspace_levels(groups, low, high);
  std::vector<double> levels;
  for (const double level : of_group) levels.insert(levels.end(), static_cast<std::size_t>(channels / groups), level);
  return levels;
}

namespace detail {

/// Which channel and which level a column of the output reads.
struct Columns {
  Index channels, levels;
  bool every_level;

  /// Whether a channel is sorted once for all its levels: a sort costs about as much as eight searches.
  bool sorted() const { return every_level && levels > 8; }
  Index count() const { return every_level ? channels * levels : channels; }
  Index channel(Index column) const { return every_level ? column / levels : column; }
  Index level(Index column) const { return every_level ? column % levels : column; }
};

inline Columns check_levels(std::string_view function, const View<const double, 1>& levels, Index channels,
                            const QuantilePoolOptions& options) {
  const Index count = levels.extent(0);
  if (options.every_level)
    require(count >= 1, function, "levels is empty");
  else
    check_shape(function, "levels", levels.shape(), {channels}, "one per channel");
  for (Index m = 0; m < count; ++m)
    require(levels[m] >= 0 && levels[m] <= 1, function, "levels[", m, "] must be between 0 and 1, got ", levels[m]);
  return {channels, count, options.every_level};
}

template <class T>
Columns check_forward(const SetBatch<const T>& x, const View<const double, 1>& levels,
                      const QuantilePoolOptions& options) {
  check_longest("quantile_pool", x);
  const Columns columns = check_levels("quantile_pool", levels, x.channels(), options);
  check_not_empty("quantile_pool", x, options.empty);
  return columns;
}

}  // namespace detail

// ---- As written -------------------------------------------------------------------------------------------------

namespace reference {

/// The definition: a stable argsort of every channel of every set. O(set * channel * n log n).
template <BatchOfSets X>
QuantilePooled<scalar_t<X>> quantile_pool_forward(const X& x, View<const double, 1> levels,
                                                  const QuantilePoolOptions& options = {}) {
  using T = scalar_t<X>;
  using C = accumulate_t<T>;
  const SetBatch<const T> batch = as_batch(x);
  const detail::Columns columns = detail::check_forward(batch, levels, options);
  QuantilePooled<T> pooled{Matrix<T>(batch.sets(), columns.count()),
                           Tensor<std::int32_t>({batch.sets(), columns.count(), 2}, -1)};
  for (Index s = 0; s < batch.sets(); ++s)
    for (Index column = 0; column < columns.count(); ++column) {
      const View<const T, 2> set = batch.elements(s);
      const auto value = [&](Index i) -> C { return to_float(set(i, columns.channel(column))); };
      std::vector<Index> order;
      bool nan = false;
      for (Index i = 0; i < set.extent(0); ++i)
        if (batch.counts_element(s, i)) {
          order.push_back(i);
          nan |= std::isnan(value(i));
        }
      T& out = pooled.values(s, column);
      if (order.empty() || nan) {
        out = from_float<T>(nan ? std::numeric_limits<C>::quiet_NaN() : static_cast<C>(*options.empty));
        continue;
      }
      std::stable_sort(order.begin(), order.end(), [&](Index i, Index j) { return value(i) < value(j); });
      const auto n = static_cast<Index>(order.size());
      const detail::Rank rank = detail::rank_of(levels[columns.level(column)], n, options.interpolation);
      const Index low = order[static_cast<std::size_t>(rank.low)];
      const Index high = order[static_cast<std::size_t>(std::min(rank.low + 1, n - 1))];
      out = from_float<T>(detail::interpolate(value(low), value(high), rank.weight));
      pooled.positions.template view<3>()(s, column, 0) = static_cast<std::int32_t>(low);
      pooled.positions.template view<3>()(s, column, 1) = static_cast<std::int32_t>(high);
    }
  return pooled;
}

}  // namespace reference

// ---- Forward ----------------------------------------------------------------------------------------------------

namespace detail {

/// to[i to_stride + j] = from(i, j).
template <class T, Real C>
void copy_rows(const View<const T, 2>& from, C* to, Index to_stride) {
  const Index rows = from.extent(0), cols = from.extent(1);
  if constexpr (std::is_same_v<T, C>) {
    if (from.stride(1) == 1) {
      for (Index i = 0; i < rows; ++i) std::copy_n(from.data() + i * from.stride(0), cols, to + i * to_stride);
      return;
    }
    if (from.stride(0) == 1) {  // square tiles, and element by element along the two ragged edges
      constexpr Index w = simd::width<C>;
      const Index whole_rows = rows / w * w, whole_cols = cols / w * w;
      for (Index j = 0; j < whole_cols; j += w) {
        // Each column is another cache line, often another page: the hardware does not foresee them.
        for (Index k = 4 * w; k < 5 * w; ++k)
          __builtin_prefetch(from.data() + std::min(j + k, cols - 1) * from.stride(1));
        for (Index i = 0; i < whole_rows; i += w)
          simd::transpose_block(from.data() + j * from.stride(1) + i, from.stride(1), to + i * to_stride + j,
                                to_stride);
      }
      for (Index j = 0; j < cols; ++j)
        for (Index i = j < whole_cols ? whole_rows : 0; i < rows; ++i) to[i * to_stride + j] = from(i, j);
      return;
    }
  }
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) to[i * to_stride + j] = to_float(from(i, j));
}

/// The memory of one thread.
template <Real C>
struct Scratch {
  /// Elements from one packed row to the next: room for a vector more than the row, and no power of two, which would
  /// map all rows to the same cache lines.
  static Index row_size(Index longest) { return (longest / lanes<C> + 2) * lanes<C>; }
  static Index size(Index longest) {
    return 2 * lanes<C> * row_size(longest) + (network_size + 4) * lanes<C> + longest;
  }

  Scratch(C* memory, Index longest)
      : row(row_size(longest)),
        rows(memory),
        kept(rows + lanes<C> * row),
        sorting(kept + lanes<C> * row),
        elements(reinterpret_cast<std::int32_t*>(sorting + (network_size + 4) * lanes<C>)) {}

  Index row;
  C* rows;                 ///< [lanes][row]: channels packed
  C* kept;                 ///< [lanes][row]
  C* sorting;              ///< [network_size + 4][lanes]
  std::int32_t* elements;  ///< [longest]: what a mask lets through
};

/// Answers for some columns of one set.
template <Scalar T>
struct GroupPool {
  using C = accumulate_t<T>;

  const SetBatch<const T>& x;
  const View<const double, 1>& levels;
  const Columns& columns;
  const QuantilePoolOptions& options;
  const Scratch<C>& scratch;
  const View<T, 2>& out;
  const View<std::int32_t, 3>& positions;  ///< empty when no gradient is wanted

  /// Elements of the set that count, as [element, channel] for the channels the columns read.
  struct Block {
    View<const C, 2> values;
    const std::int32_t* element = nullptr;  ///< where value i lay in the set, if not at i
  };

  /// Values as rows, one channel each, every row contiguous: in place where they lie so already.
  Block channel_rows(const View<const T, 2>& set, Index set_index) const {
    const Index channels = set.extent(1), row = scratch.row;
    C* const to = scratch.rows;
    if (x.has_mask()) {
      std::int32_t* const element = scratch.elements;
      Index count = 0;
      for (Index i = 0; i < set.extent(0); ++i)
        if (x.counts_element(set_index, i)) {
          for (Index c = 0; c < channels; ++c) to[c * row + count] = to_float(set(i, c));
          element[count++] = static_cast<std::int32_t>(i);
        }
      return {{to, {count, channels}, {1, row}}, element};
    }
    if constexpr (std::is_same_v<T, C>)
      if (set.stride(0) == 1) return {set};
    copy_rows(set.transposed(0, 1), to, row);
    return {{to, {set.extent(0), channels}, {1, row}}};
  }

  /// Values with the channels of one element in one vector: in place where they lie so already.
  View<const C, 2> element_rows(const View<const C, 2>& values) const {
    constexpr Index w = lanes<C>;
    if (values.stride(1) == 1 && values.extent(1) == w) return values;
    // Packed rows are turned in place of `kept`, which only search_rows needs.
    C* const to = scratch.kept;
    if (values.extent(1) < w) std::fill_n(to, values.extent(0) * w, C{0});
    copy_rows(values, to, w);
    return {to, values.shape(), {w, 1}};
  }

  /// One column a lane: every column is selected by itself.
  void select(Index s, Index begin, Index end) const {
    const Index first = columns.channel(begin), channels = columns.channel(end - 1) - first + 1;
    const View<const T, 2> set = x.elements(s).slice(1, first, first + channels);
    Neighbours<C> group;
    std::array<Rank, Neighbours<C>::size> rank;
    group.rows = end - begin;
    group.count = x.count(s);
    if (group.count == 0) return fill_empty(s, begin, end);

    Index from_top = 0, from_bottom = 0;
    for (Index lane = 0; lane < group.rows; ++lane) {
      const auto i = static_cast<std::size_t>(lane);
      rank[i] = rank_of(levels[columns.level(begin + lane)], group.count, options.interpolation);
      group.rank[i] = rank[i].low;
      from_top = std::max(from_top, group.count - rank[i].low);
      from_bottom = std::max(from_bottom, std::min(rank[i].low + 2, group.count));
    }
    const Block block = answer(set, s, begin, from_top, from_bottom, group);
    for (Index lane = 0; lane < group.rows; ++lane) {
      const auto i = static_cast<std::size_t>(lane);
      const Index column = begin + lane;
      if (group.nan[i])
        write_nan(s, column);
      else
        write(s, column, block, columns.channel(column) - first, group.low_at[i], group.high_at[i], rank[i].weight);
    }
  }

  /// All columns of the channels [begin, end), at most `lanes` of them: every channel is sorted once.
  void sort(Index s, Index begin, Index end) const {
    const Index count = x.count(s), row = scratch.row;
    if (count == 0) return fill_empty(s, begin * columns.levels, end * columns.levels);
    const Block block = channel_rows(x.elements(s).slice(1, begin, end), s);
    // The keys take one row of `kept`, the positions two of as many 32-bit numbers.
    auto* const keys = reinterpret_cast<SortKey<C>*>(scratch.kept);
    auto* const order = reinterpret_cast<std::int32_t*>(scratch.kept + row);
    for (Index channel = 0; channel < end - begin; ++channel) {
      const C* const values = block.values.data() + channel * block.values.stride(1);
      const std::int32_t* const sorted = stable_argsort(values, count, keys, order, order + row);
      for (Index m = 0; m < columns.levels; ++m) {
        const Index column = (begin + channel) * columns.levels + m;
        const Rank rank = rank_of(levels[m], count, options.interpolation);
        if (sorted == nullptr)
          write_nan(s, column);
        else
          write(s, column, block, channel, sorted[rank.low], sorted[std::min(rank.low + 1, count - 1)], rank.weight);
      }
    }
  }

  /// Picks the kernel. Returns the values the positions of the answer refer to.
  Block answer(const View<const T, 2>& set, Index s, Index begin, Index from_top, Index from_bottom,
               Neighbours<C>& group) const {
    C* const sorting = scratch.sorting;
    const bool near_end = std::min(from_top, from_bottom) <= most_best && group.count < Index{1} << 24;
    const bool one_lane_a_channel = !columns.every_level;
    if (one_lane_a_channel && (near_end || group.count <= network_size)) {
      Block block;
      if constexpr (std::is_same_v<T, C>)
        if (!x.has_mask()) block.values = set;
      if (block.values.data() == nullptr) block = channel_rows(set, s);
      const View<const C, 2> rows = element_rows(block.values);
      if (near_end && from_top <= from_bottom)
        neighbours_from_end<true>(from_top, rows.data(), rows.stride(0), group, sorting);
      else if (near_end)
        neighbours_from_end<false>(from_bottom, rows.data(), rows.stride(0), group, sorting);
      else
        middle_of_lanes(rows.data(), rows.stride(0), group, sorting);
      return block;
    }
    const Block block = channel_rows(set, s);
    std::array<const C*, Neighbours<C>::size> rows;
    for (Index lane = 0; lane < group.rows; ++lane)
      rows[static_cast<std::size_t>(lane)] =
          block.values.data() + (columns.channel(begin + lane) - columns.channel(begin)) * block.values.stride(1);
    search_rows(rows.data(), group, scratch.kept, scratch.row, sorting);
    return block;
  }

  void write(Index s, Index column, const Block& block, Index channel, std::int32_t low, std::int32_t high,
             double weight) const {
    out(s, column) = from_float<T>(interpolate(block.values(low, channel), block.values(high, channel), weight));
    if (positions.data() == nullptr) return;
    positions(s, column, 0) = block.element ? block.element[low] : low;
    positions(s, column, 1) = block.element ? block.element[high] : high;
  }
  void write_nothing(Index s, Index column, C value) const {
    out(s, column) = from_float<T>(value);
    if (positions.data() != nullptr) positions(s, column, 0) = positions(s, column, 1) = -1;
  }
  void write_nan(Index s, Index column) const { write_nothing(s, column, std::numeric_limits<C>::quiet_NaN()); }
  void fill_empty(Index s, Index begin, Index end) const {
    for (Index column = begin; column < end; ++column) write_nothing(s, column, static_cast<C>(*options.empty));
  }
};

}  // namespace detail

/// Pools every set; writes into the caller's memory and allocates nothing once `workspace` has grown.
///
/// x: a batch of sets (pooling.hpp), any scalar T; computed in float, or double for double. levels: [channel], or any
/// number with every_level. values: [set, column]. positions: [set, column, 2] or an empty view when no gradient is
/// wanted. workspace: grows to about 2 lanes longest-set numbers a thread.
/// A NaN among the values of a channel gives NaN and positions -1. Same bits for any number of threads.
/// O(set * element * channel), about 1.3 passes; with every_level those for each level, or one radix sort for more
/// than eight levels. Throws InvalidArgument for levels outside [0, 1], sets without
/// elements (unless `options.empty`), shapes that do not fit, and sets too long for 32-bit positions.
template <BatchOfSets X>
void quantile_pool_forward(const X& x, View<const double, 1> levels, Out<X, 2> values, View<std::int32_t, 3> positions,
                           Workspace& workspace, const QuantilePoolOptions& options = {}) {
  using T = scalar_t<X>;
  const SetBatch<const T> batch = as_batch(x);
  const detail::Columns columns = detail::check_forward(batch, levels, options);
  check_shape("quantile_pool", "values", values.shape(), {batch.sets(), columns.count()}, "one per set and column");
  if (positions.data() != nullptr || !positions.empty())
    check_shape("quantile_pool", "positions", positions.shape(), {batch.sets(), columns.count(), 2},
                "two per set and column");
  require(!overlaps(values, batch.storage()), "quantile_pool", "values overlaps x");
  using C = accumulate_t<T>;
  constexpr Index lanes = detail::lanes<C>;
  const Index per_thread = detail::Scratch<C>::size(batch.longest());
  C* const memory = workspace.reserve<C>(per_thread * max_threads());
  const Index units = columns.sorted() ? columns.channels : columns.count();
  const Index groups = chunk_count(units, lanes);
  const Index grain = 32768 / (lanes * std::max<Index>(batch.longest(), 1)) + 1;
  parallel_for(batch.sets() * groups, grain, [&](Index begin, Index end, int worker) {
    const detail::Scratch<C> scratch(memory + worker * per_thread, batch.longest());
    const detail::GroupPool<T> pool{batch, levels, columns, options, scratch, values, positions};
    for (Index i = begin; i < end; ++i) {
      const Index first = i % groups * lanes, last = std::min(first + lanes, units);
      columns.sorted() ? pool.sort(i / groups, first, last) : pool.select(i / groups, first, last);
    }
  });
}

/// Pools every set and says which elements it read.
template <BatchOfSets X>
QuantilePooled<scalar_t<X>> quantile_pool_forward(const X& x, View<const double, 1> levels,
                                                  const QuantilePoolOptions& options = {}) {
  using T = scalar_t<X>;
  const SetBatch<const T> batch = as_batch(x);
  const Index columns = detail::check_forward(batch, levels, options).count();
  QuantilePooled<T> pooled{Matrix<T>(batch.sets(), columns),
                           Tensor<std::int32_t>::uninitialized({batch.sets(), columns, 2})};
  Workspace workspace;
  quantile_pool_forward(batch, levels, pooled.values, pooled.positions, workspace, options);
  return pooled;
}

/// The pooled values alone: [set, column].
template <BatchOfSets X>
Matrix<scalar_t<X>> quantile_pool(const X& x, View<const double, 1> levels, const QuantilePoolOptions& options = {}) {
  using T = scalar_t<X>;
  const SetBatch<const T> batch = as_batch(x);
  Matrix<T> values(batch.sets(), detail::check_forward(batch, levels, options).count());
  Workspace workspace;
  quantile_pool_forward(batch, levels, values, {}, workspace, options);
  return values;
}

/// One set [element, channel]: one value a column.
template <OneSet X>
Vector<scalar_t<X>> quantile_pool(const X& x, View<const double, 1> levels, const QuantilePoolOptions& options = {}) {
  return quantile_pool(as_batch(x), levels, options).row(0).transpose();
}

// ---- Backward ---------------------------------------------------------------------------------------------------

namespace detail {

template <class T>
void check_positions(std::string_view function, const SetBatch<T>& x, const View<const std::int32_t, 3>& positions,
                     const Columns& columns) {
  check_shape(function, "positions", positions.shape(), {x.sets(), columns.count(), 2}, "two per set and column");
  for (Index s = 0; s < x.sets(); ++s) {
    const Index stored = x.elements(s).extent(0);
    for (Index column = 0; column < columns.count(); ++column)
      for (Index side = 0; side < 2; ++side) {
        const std::int32_t at = positions(s, column, side);
        require(at >= -1 && at < stored, function, "positions[", s, ",", column, ",", side, "] is ", at,
                ", outside the ", stored, " elements of the set");
      }
  }
}

}  // namespace detail

/// Adds the sub-gradient to gx: (1 - w) g to x_(l) and w g to x_(l+1), nothing to all other elements.
///
/// g: [set, column]; positions: of the forward pass; levels and options: those of the forward pass; gx: a batch of the
/// shape that was pooled. Positions -1 (NaN, no element) are skipped. O(set * column), allocates nothing.
/// Throws InvalidArgument for shapes that do not fit and positions outside their set.
template <class X>
void quantile_pool_backward(In<X, 2> g, View<const std::int32_t, 3> positions, View<const double, 1> levels, X&& gx,
                            const QuantilePoolOptions& options = {}) {
  using T = scalar_t<X>;
  using C = accumulate_t<T>;
  const auto batch = as_batch(gx);
  const detail::Columns columns = detail::check_levels("quantile_pool_backward", levels, batch.channels(), options);
  check_shape("quantile_pool_backward", "g", g.shape(), {batch.sets(), columns.count()}, "one per set and column");
  detail::check_positions("quantile_pool_backward", batch, positions, columns);
  parallel_for(batch.sets(), 8192 / std::max<Index>(columns.count(), 1) + 1, [&](Index begin, Index end) {
    for (Index s = begin; s < end; ++s) {
      const View<T, 2> set = batch.elements(s);
      const Index count = batch.count(s);
      for (Index column = 0; column < columns.count(); ++column) {
        const std::int32_t low = positions(s, column, 0), high = positions(s, column, 1);
        if (low < 0 || high < 0) continue;
        const C w = static_cast<C>(detail::rank_of(levels[columns.level(column)], count, options.interpolation).weight);
        const C upstream = to_float(g(s, column));
        const auto add = [&](std::int32_t at, C part) {
          T& to = set(at, columns.channel(column));
          to = from_float<T>(to_float(to) + part);
        };
        add(low, (1 - w) * upstream);
        if (w != 0) add(high, w * upstream);
      }
    }
  });
}

/// The gradient of the levels, summed over the sets: sum_s (n_s - 1) (x_(l+1) - x_(l)) g[s, column], in double.
///
/// x, g, positions, levels as in the passes above, linear interpolation (all others are piecewise constant in the
/// level). With every_level a level collects from all channels. At a whole q (n - 1) this is the derivative to the
/// right. Positions -1 are skipped. Returns one number a level.
template <BatchOfSets X>
Vector<double> quantile_pool_level_gradient(const X& x, In<X, 2> g, View<const std::int32_t, 3> positions,
                                            View<const double, 1> levels, const QuantilePoolOptions& options = {}) {
  using T = scalar_t<X>;
  const SetBatch<const T> batch = as_batch(x);
  constexpr auto function = "quantile_pool_level_gradient";
  const detail::Columns columns = detail::check_levels(function, levels, batch.channels(), options);
  require(options.interpolation == Interpolation::linear, function, "the interpolation must be linear");
  check_shape(function, "g", g.shape(), {batch.sets(), columns.count()}, "one per set and column");
  detail::check_positions(function, batch, positions, columns);
  Vector<double> gradient = Vector<double>::Zero(columns.levels);
  for (Index s = 0; s < batch.sets(); ++s) {
    const View<const T, 2> set = batch.elements(s);
    const auto steps = static_cast<double>(batch.count(s) - 1);
    for (Index column = 0; column < columns.count(); ++column) {
      const std::int32_t low = positions(s, column, 0), high = positions(s, column, 1);
      if (low < 0 || high < 0) continue;
      const Index channel = columns.channel(column);
      const double below = to_float(set(low, channel)), above = to_float(set(high, channel));
      if (below != above) gradient[columns.level(column)] += steps * (above - below) * to_float(g(s, column));
    }
  }
  return gradient;
}

}  // namespace ashlar::sets
