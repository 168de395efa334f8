// Batches of sets, and the pools everybody knows: maximum, mean and sum over the elements of every set.
//
//   Matrix<float> top = max_pool(x);                              // x: [set, element, channel], sets of equal size
//   Matrix<float> mean = mean_pool(padded(x, counts));            // only the first counts[s] elements of set s
//   Matrix<float> sum = sum_pool(ragged(values, offsets));        // sets of any size, stacked: rows offsets[s] ...
//   Matrix<float> some = max_pool(masked(x, mask));               // only where mask(set, element)
//
// One set [element, channel] gives a Vector. Channel-major data [set, channel, element] is the same call on
// view.transposed(1, 2) (or x.transpose() of an Eigen matrix): layouts are strides, not options.
// Every pool is one pass over the data, O(set * element * channel); memory bandwidth is its roof.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::sets {

/// Which rows of an array are the elements of which set. Looks at memory the caller owns, and is cheap to copy; made by
/// padded(), ragged(), masked(), or from a view [set, element, channel] of which everything counts.
template <class T>
class SetBatch {
 public:
  explicit SetBatch(const View<T, 3>& x) : x_(x), sets_(x.extent(0)), longest_(x.extent(1)) {}

  /// Adds const.
  template <class U>
    requires std::is_same_v<const U, T>
  SetBatch(const SetBatch<U>& other)
      : x_(other.x_),
        counts_(other.counts_),
        offsets_(other.offsets_),
        mask_(other.mask_),
        sets_(other.sets_),
        longest_(other.longest_) {}

  /// The first counts[s] elements of set s. counts: [set], 0 <= counts[s] <= element.
  static SetBatch padded(const View<T, 3>& x, const View<const Index, 1>& counts) {
    check_shape("padded", "counts", counts.shape(), {x.extent(0)}, "one per set");
    SetBatch batch(x);
    batch.counts_ = counts;
    batch.longest_ = 0;
    for (Index s = 0; s < counts.extent(0); ++s) {
      require(counts[s] >= 0 && counts[s] <= x.extent(1), "padded", "counts[", s, "] must be between 0 and ",
              x.extent(1), ", got ", counts[s]);
      batch.longest_ = std::max(batch.longest_, counts[s]);
    }
    return batch;
  }

  /// Set s is rows offsets[s] .. offsets[s+1] - 1. values: [row, channel]; offsets: [set + 1], not descending.
  static SetBatch ragged(const View<T, 2>& values, const View<const Index, 1>& offsets) {
    const Index sets = offsets.extent(0) - 1;
    check_argument(sets >= 0, "ragged", "offsets", "one longer than the number of sets", "no element");
    SetBatch batch(
        View<T, 3>(values.data(), {1, values.extent(0), values.extent(1)}, {0, values.stride(0), values.stride(1)}));
    batch.offsets_ = offsets;
    batch.sets_ = sets;
    batch.longest_ = 0;
    require(offsets[0] >= 0, "ragged", "offsets[0] must not be negative, got ", offsets[0]);
    for (Index s = 0; s < sets; ++s) {
      require(offsets[s] <= offsets[s + 1], "ragged", "offsets must not descend, got ", offsets[s], " before ",
              offsets[s + 1]);
      batch.longest_ = std::max(batch.longest_, offsets[s + 1] - offsets[s]);
    }
    require(offsets[sets] <= values.extent(0), "ragged", "the last offset must be at most the ", values.extent(0),
            " rows of values, got ", offsets[sets]);
    return batch;
  }

  /// The elements with mask(set, element). Positions still count all elements.
  static SetBatch masked(const View<T, 3>& x, const View<const bool, 2>& mask) {
    check_shape("masked", "mask", mask.shape(), {x.extent(0), x.extent(1)}, "one per set and element");
    SetBatch batch(x);
    batch.mask_ = mask;
    return batch;
  }

  Index sets() const { return sets_; }
  Index channels() const { return x_.extent(2); }
  /// No set has more elements than this.
  Index longest() const { return longest_; }

  /// The stored elements of a set: [element, channel]. Those a mask hides are among them.
  View<T, 2> elements(Index set) const {
    if (ragged()) return x_[0].slice(0, offsets_[set], offsets_[set + 1]);
    return counts_.data() ? x_[set].slice(0, 0, counts_[set]) : x_[set];
  }
  bool has_mask() const { return mask_.data() != nullptr; }
  bool counts_element(Index set, Index element) const { return !has_mask() || mask_(set, element); }

  /// Number of elements of a set; O(element) with a mask.
  Index count(Index set) const {
    if (!has_mask()) return ragged() ? offsets_[set + 1] - offsets_[set] : counts_.data() ? counts_[set] : x_.extent(1);
    Index count = 0;
    for (Index i = 0; i < mask_.extent(1); ++i) count += mask_(set, i);
    return count;
  }

  /// The array behind all sets.
  const View<T, 3>& storage() const { return x_; }

 private:
  template <class>
  friend class SetBatch;

  bool ragged() const { return offsets_.data() != nullptr; }

  View<T, 3> x_;
  View<const Index, 1> counts_, offsets_;
  View<const bool, 2> mask_;
  Index sets_, longest_;
};

namespace detail {

template <class X>
struct is_set_batch : std::false_type {};
template <class T>
struct is_set_batch<SetBatch<T>> : std::true_type {};

/// const when X hands out const elements only.
template <class X, int Rank>
using element_of =
    std::conditional_t<std::is_constructible_v<View<scalar_t<X>, Rank>, X>, scalar_t<X>, const scalar_t<X>>;

}  // namespace detail

/// Anything that is a batch of sets: a SetBatch, or something View can see as [set, element, channel].
template <class X>
concept BatchOfSets =
    detail::is_set_batch<std::remove_cvref_t<X>>::value ||
    (requires { typename scalar_t<X>; } && std::is_constructible_v<View<const scalar_t<X>, 3>, X>);
/// One set: [element, channel].
template <class X>
concept OneSet = !BatchOfSets<X> && requires { typename scalar_t<X>; } &&
                 std::is_constructible_v<View<const scalar_t<X>, 2>, X>;

/// SetBatch::padded, ::ragged and ::masked for anything View can look at. They keep looking at their arguments.
template <class X>
auto padded(X&& x, const View<const Index, 1>& counts) {
  return SetBatch<detail::element_of<X&, 3>>::padded(x, counts);
}
template <class X>
auto ragged(X&& values, const View<const Index, 1>& offsets) {
  return SetBatch<detail::element_of<X&, 2>>::ragged(values, offsets);
}
template <class X>
auto masked(X&& x, const View<const bool, 2>& mask) {
  return SetBatch<detail::element_of<X&, 3>>::masked(x, mask);
}

/// A batch from whatever the caller holds. One set becomes a batch of one.
template <class X>
auto as_batch(X&& x) {
  if constexpr (detail::is_set_batch<std::remove_cvref_t<X>>::value) {
    return x;
  } else if constexpr (BatchOfSets<X>) {
    using T = detail::element_of<X&, 3>;
    return SetBatch<T>(View<T, 3>(x));
  } else {
    using T = detail::element_of<X&, 2>;
    const View<T, 2> set(x);
    return SetBatch<T>(View<T, 3>(set.data(), {1, set.extent(0), set.extent(1)}, {0, set.stride(0), set.stride(1)}));
  }
}

}  // namespace ashlar::sets

/// scalar_t<SetBatch<const float>> is float, so that In and Out follow a batch as they follow a view.
template <class T>
struct ashlar::ViewSource<ashlar::sets::SetBatch<T>> {
  using scalar = std::remove_cv_t<T>;
};

namespace ashlar::sets {

/// What max_pool picked.
template <class T>
struct MaxPooled {
  Matrix<T> values;                ///< [set, channel]
  Matrix<std::int32_t> positions;  ///< [set, channel]: the element, -1 where there is none
};

namespace detail {

inline constexpr Index largest_position = std::numeric_limits<std::int32_t>::max();

template <class T>
void check_longest(std::string_view function, const SetBatch<T>& x) {
  require(x.longest() <= largest_position, function, "a set has ", x.longest(),
          " elements, more than a 32-bit position can count");
}

/// Throws for the first set without elements, unless the caller chose a value for those.
template <class T>
void check_not_empty(std::string_view function, const SetBatch<T>& x, const std::optional<double>& empty) {
  if (empty) return;
  for (Index s = 0; s < x.sets(); ++s)
    require(x.count(s) > 0, function, "set ", s, " has no element and no value for empty sets is given");
}

/// f(element, channel) over the elements that count, along the memory: every channel sees its elements in order.
template <class T, class F>
void for_each_value(const SetBatch<T>& x, Index set, F&& f) {
  const View<T, 2> stored = x.elements(set);
  if (stored.stride(0) < stored.stride(1)) {
    for (Index c = 0; c < stored.extent(1); ++c)
      for (Index i = 0; i < stored.extent(0); ++i)
        if (x.counts_element(set, i)) f(i, c);
  } else {
    for (Index i = 0; i < stored.extent(0); ++i)
      if (x.counts_element(set, i))
        for (Index c = 0; c < stored.extent(1); ++c) f(i, c);
  }
}

}  // namespace detail

/// Largest element of every channel and where it is; of equal ones the last. A NaN wins: value NaN, position -1.
///
/// x: a batch of sets, T: any scalar. `empty`: the value of sets without elements (position -1); without it they throw
/// InvalidArgument.
template <BatchOfSets X>
MaxPooled<scalar_t<X>> max_pool_forward(const X& x, std::optional<double> empty = {}) {
  using T = scalar_t<X>;
  using C = accumulate_t<T>;
  const SetBatch<const T> batch = as_batch(x);
  detail::check_longest("max_pool", batch);
  detail::check_not_empty("max_pool", batch, empty);
  const Index channels = batch.channels();
  MaxPooled<T> pooled{Matrix<T>(batch.sets(), channels), Matrix<std::int32_t>(batch.sets(), channels)};
  parallel_for(batch.sets(), 1, [&](Index begin, Index end) {
    constexpr C lowest = -std::numeric_limits<C>::infinity();
    Vector<C> best(channels);
    for (Index s = begin; s < end; ++s) {
      const View<const T, 2> set = batch.elements(s);
      auto at = pooled.positions.row(s);
      best.setConstant(lowest), at.setConstant(-1);
      detail::for_each_value(batch, s, [&](Index i, Index c) {
        const C value = to_float(set(i, c));
        if (!(value < best[c]) && !std::isnan(best[c])) {
          best[c] = value;
          at[c] = std::isnan(value) ? -1 : static_cast<std::int32_t>(i);
        }
      });
      if (batch.count(s) == 0) best.setConstant(static_cast<C>(*empty));
      for (Index c = 0; c < channels; ++c) pooled.values(s, c) = from_float<T>(best[c]);
    }
  });
  return pooled;
}

template <BatchOfSets X>
Matrix<scalar_t<X>> max_pool(const X& x, std::optional<double> empty = {}) {
  return max_pool_forward(x, empty).values;
}
template <OneSet X>
Vector<scalar_t<X>> max_pool(const X& x, std::optional<double> empty = {}) {
  return max_pool_forward(as_batch(x), empty).values.row(0).transpose();
}

/// Adds the gradient of max_pool to gx: g goes to the element that was picked.
///
/// gx: a batch of the shape that was pooled; g: [set, channel]; positions: of max_pool_forward.
template <class X>
void max_pool_backward(In<X, 2> g, View<const std::int32_t, 2> positions, X&& gx) {
  using T = scalar_t<X>;
  const auto batch = as_batch(gx);
  check_shape("max_pool_backward", "g", g.shape(), {batch.sets(), batch.channels()}, "one per set and channel");
  check_shape("max_pool_backward", "positions", positions.shape(), g.shape(), "as g");
  for (Index s = 0; s < batch.sets(); ++s)
    for (Index c = 0; c < batch.channels(); ++c)
      require(positions(s, c) >= -1 && positions(s, c) < batch.elements(s).extent(0), "max_pool_backward", "position ",
              positions(s, c), " is outside set ", s, " of ", batch.elements(s).extent(0), " elements");
  for (Index s = 0; s < batch.sets(); ++s)
    for (Index c = 0; c < batch.channels(); ++c)
      if (positions(s, c) >= 0) {
        T& to = batch.elements(s)(positions(s, c), c);
        to = from_float<T>(to_float(to) + to_float(g(s, c)));
      }
}

namespace detail {

/// values(s, c) = scale(number of elements) * sum over the elements.
template <class T, class Scale>
Matrix<T> scaled_sum(const SetBatch<const T>& x, Scale&& scale) {
  using C = accumulate_t<T>;
  Matrix<T> values(x.sets(), x.channels());
  parallel_for(x.sets(), 1, [&](Index begin, Index end) {
    Vector<C> sum(x.channels());
    for (Index s = begin; s < end; ++s) {
      const View<const T, 2> set = x.elements(s);
      const Index count = x.count(s);
      sum.setZero();
      for_each_value(x, s, [&](Index i, Index c) { sum[c] += to_float(set(i, c)); });
      for (Index c = 0; c < x.channels(); ++c) values(s, c) = from_float<T>(scale(sum[c], count));
    }
  });
  return values;
}

/// Every element of set s gets scale(number of elements) * g(s, c).
template <class T, class Scale>
void spread(std::string_view function, const View<const T, 2>& g, const SetBatch<T>& gx, Scale&& scale) {
  using C = accumulate_t<T>;
  check_shape(function, "g", g.shape(), {gx.sets(), gx.channels()}, "one per set and channel");
  parallel_for(gx.sets(), 1, [&](Index begin, Index end) {
    for (Index s = begin; s < end; ++s) {
      const View<T, 2> set = gx.elements(s);
      const Index count = gx.count(s);
      for_each_value(gx, s, [&](Index i, Index c) {
        T& to = set(i, c);
        to = from_float<T>(to_float(to) + scale(static_cast<C>(to_float(g(s, c))), count));
      });
    }
  });
}

}  // namespace detail

/// Mean over the elements of every set: [set, channel], summed in order. Sets without elements give `empty` or throw
/// InvalidArgument.
template <BatchOfSets X>
Matrix<scalar_t<X>> mean_pool(const X& x, std::optional<double> empty = {}) {
  using C = accumulate_t<scalar_t<X>>;
  const SetBatch<const scalar_t<X>> batch = as_batch(x);
  detail::check_not_empty("mean_pool", batch, empty);
  return detail::scaled_sum<scalar_t<X>>(
      batch, [&](C sum, Index count) { return count == 0 ? static_cast<C>(*empty) : sum / static_cast<C>(count); });
}
template <OneSet X>
Vector<scalar_t<X>> mean_pool(const X& x, std::optional<double> empty = {}) {
  return mean_pool(as_batch(x), empty).row(0).transpose();
}

/// Adds the gradient of mean_pool to gx: g / count to every element.
template <class X>
void mean_pool_backward(In<X, 2> g, X&& gx) {
  using C = accumulate_t<scalar_t<X>>;
  detail::spread<scalar_t<X>>("mean_pool_backward", g, as_batch(gx),
                              [](C value, Index count) { return value / static_cast<C>(count); });
}

/// Sum over the elements of every set: [set, channel], in order. A set without elements gives 0.
template <BatchOfSets X>
Matrix<scalar_t<X>> sum_pool(const X& x) {
  using C = accumulate_t<scalar_t<X>>;
  return detail::scaled_sum<scalar_t<X>>(as_batch(x), [](C sum, Index) { return sum; });
}
template <OneSet X>
Vector<scalar_t<X>> sum_pool(const X& x) {
  return sum_pool(as_batch(x)).row(0).transpose();
}

/// Adds the gradient of sum_pool to gx: g to every element.
template <class X>
void sum_pool_backward(In<X, 2> g, X&& gx) {
  using C = accumulate_t<scalar_t<X>>;
  detail::spread<scalar_t<X>>("sum_pool_backward", g, as_batch(gx), [](C value, Index) { return value; });
}

}  // namespace ashlar::sets
