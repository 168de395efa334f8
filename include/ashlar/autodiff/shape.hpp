// Operations that move elements: reshape, transposition, slices, concatenation, rows by index.
//
//   const auto tokens = gather_rows(table, ids);            // [count of ids, width of table]
//   const auto both = concatenate(1, {left, right});
//
// Each costs a copy of what it returns, and its reverse a copy of the gradient.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ashlar/autodiff/tape.hpp"

namespace ashlar::autodiff {

namespace detail {

/// An axis cuts a shape into outer x extent x inner.
struct Cut {
  Index outer = 1, extent, inner = 1;
  Cut(const Shape& shape, int axis) : extent(shape[axis]) {
    for (int i = 0; i < shape.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
  }
};

inline Shape with_extent(const Shape& shape, int axis, Index extent) {
  std::array<Index, Shape::max_rank> extents{};
  std::ranges::copy(shape.extents(), extents.begin());
  extents[static_cast<std::size_t>(axis)] = extent;
  return Shape(std::span<const Index>(extents.data(), static_cast<std::size_t>(shape.rank())));
}

inline void check_axis(std::string_view function, int axis, int rank) {
  require(axis >= 0 && axis < rank, function, "axis must be in [0, ", rank, "), got ", axis);
}

/// to[outer, at + i, inner] (+)= from[outer, i, inner] for every i of `from`, or the other way round.
template <class T>
void copy_into_slice(const Tensor<T>& from, Tensor<T>& to, int axis, Index at) {
  const Cut part(from.shape(), axis), whole(to.shape(), axis);
  for (Index o = 0; o < part.outer; ++o)
    std::copy_n(from.data() + o * part.extent * part.inner, part.extent * part.inner,
                to.data() + (o * whole.extent + at) * whole.inner);
}
template <class T>
void copy_from_slice(const Tensor<T>& from, Tensor<T>& to, int axis, Index at) {
  const Cut part(to.shape(), axis), whole(from.shape(), axis);
  for (Index o = 0; o < part.outer; ++o)
    std::copy_n(from.data() + (o * whole.extent + at) * whole.inner, part.extent * part.inner,
                to.data() + o * part.extent * part.inner);
}

template <class T>
void permute(const Tensor<T>& from, Tensor<T>& to, std::span<const int> order) {
  const auto rank = static_cast<std::size_t>(from.rank());
  std::array<Index, Shape::max_rank> strides{}, step{}, at{};
  Index stride = 1;
  for (std::size_t i = rank; i-- > 0;) {
    strides[i] = stride;
    stride *= from.extent(static_cast<int>(i));
  }
  for (std::size_t i = 0; i < rank; ++i) step[i] = strides[static_cast<std::size_t>(order[i])];
  const Index last = rank == 0 ? 1 : to.extent(to.rank() - 1), last_step = rank == 0 ? 0 : step[rank - 1];
  const T* source = from.data();
  T* target = to.data();
  for (Index row = 0; row < (last == 0 ? 0 : to.size() / last); ++row) {
    for (Index i = 0; i < last; ++i) *target++ = source[i * last_step];
    for (std::size_t axis = rank; axis-- > 1;) {  // the next row, like an odometer
      const std::size_t outer = axis - 1;
      source += step[outer];
      if (++at[outer] < to.extent(static_cast<int>(outer))) break;
      source -= at[outer] * step[outer];
      at[outer] = 0;
    }
  }
}

}  // namespace detail

/// The same elements in another shape of equal size.
template <Real T>
Var<T> reshape(const Var<T>& x, const Shape& shape) {
  require(shape.size() == x.size(), "reshape", "cannot view ", x.shape().extents(), " as ", shape.extents());
  Tensor<T> y = uninitialized(shape, {x});
  std::copy_n(x.value().data(), x.size(), y.data());
  return record<T>(
      "reshape", {x}, std::move(y),
      [from = x.shape()](Tensor<T>& gradient, Gradients<T>& into) {
        gradient.reshape(from);
        into.add(0, std::move(gradient));
      },
      [shape](Tangents<T> d) { return reshape(*d[0], shape); });
}

/// Axis i of the result is axis order[i] of x.
template <Real T>
Var<T> permute(const Var<T>& x, std::vector<int> order) {
  const auto rank = static_cast<std::size_t>(x.rank());
  std::vector<int> inverse(rank, -1);
  std::vector<Index> extents;
  bool valid = order.size() == rank;
  for (std::size_t i = 0; valid && i < rank; ++i) {
    valid = order[i] >= 0 && order[i] < x.rank() && inverse[static_cast<std::size_t>(order[i])] < 0;
    if (!valid) break;
    inverse[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
    extents.push_back(x.extent(order[i]));
  }
  require(valid, "permute", "order must name each of the ", rank, " axes once");
  Tensor<T> y = uninitialized(Shape(std::span<const Index>(extents)), {x});
  detail::permute(x.value(), y, order);
  return record<T>(
      "permute", {x}, std::move(y),
      [inverse, from = x.shape()](Tensor<T>& gradient, Gradients<T>& into) {
        Tensor<T> part = into.uninitialized(from);
        detail::permute(gradient, part, inverse);
        into.add(0, std::move(part));
      },
      [order](Tangents<T> d) { return permute(*d[0], order); });
}

/// Elements begin <= i < end of one axis.
template <Real T>
Var<T> slice(const Var<T>& x, int axis, Index begin, Index end) {
  detail::check_axis("slice", axis, x.rank());
  require(0 <= begin && begin <= end && end <= x.extent(axis), "slice", "[", begin, ", ", end, ") is not within axis ",
          axis, " of ", x.shape().extents());
  Tensor<T> y = uninitialized(detail::with_extent(x.shape(), axis, end - begin), {x});
  detail::copy_from_slice(x.value(), y, axis, begin);
  return record<T>(
      "slice", {x}, std::move(y),
      [from = x.shape(), axis, begin](Tensor<T>& gradient, Gradients<T>& into) {
        Tensor<T>& whole = into.accumulator(0, from);
        const detail::Cut part(gradient.shape(), axis), all(from, axis);
        const Index run = part.extent * part.inner;
        for (Index o = 0; o < part.outer; ++o)
          Eigen::Map<Vector<T>>(whole.data() + (o * all.extent + begin) * all.inner, run) +=
              Eigen::Map<const Vector<T>>(gradient.data() + o * run, run);
      },
      [axis, begin, end](Tangents<T> d) { return slice(*d[0], axis, begin, end); });
}

/// The parts one behind the other along an axis; their other extents are equal.
template <Real T>
Var<T> concatenate(int axis, const std::vector<Var<T>>& parts) {
  require(!parts.empty(), "concatenate", "there must be at least one part");
  detail::check_axis("concatenate", axis, parts[0].rank());
  Index extent = 0;
  std::vector<Shape> shapes;
  for (const Var<T>& part : parts) {
    require(part.rank() == parts[0].rank() &&
                detail::with_extent(part.shape(), axis, 0) == detail::with_extent(parts[0].shape(), axis, 0),
            "concatenate", "shapes ", parts[0].shape().extents(), " and ", part.shape().extents(), " differ off axis ",
            axis);
    extent += part.extent(axis);
    shapes.push_back(part.shape());
  }
  Tensor<T> y = uninitialized(detail::with_extent(parts[0].shape(), axis, extent), {parts[0]});
  Index at = 0;
  for (const Var<T>& part : parts) {
    detail::copy_into_slice(part.value(), y, axis, at);
    at += part.extent(axis);
  }
  std::vector<Tensor<T>> values;
  values.push_back(std::move(y));
  return record_all<T>(
      "concatenate", parts, std::move(values),
      [shapes, axis](std::span<std::optional<Tensor<T>>> gradient, Gradients<T>& into) {
        Index begin = 0;
        for (std::size_t i = 0; i < shapes.size(); ++i) {
          if (into.wants(static_cast<int>(i))) {
            Tensor<T> part = into.uninitialized(shapes[i]);
            detail::copy_from_slice(*gradient[0], part, axis, begin);
            into.add(static_cast<int>(i), std::move(part));
          }
          begin += shapes[i][axis];
        }
      },
      [shapes, axis](Tangents<T> d) {
        std::vector<Var<T>> moved;
        for (std::size_t i = 0; i < shapes.size(); ++i) moved.push_back(d[i] ? *d[i] : Var<T>(Tensor<T>(shapes[i])));
        return std::vector<std::optional<Var<T>>>{concatenate(axis, moved)};
      })[0];
}

/// Rows of x: [n, ...] by index: [count of indices, ...]. An index may occur more than once.
template <Real T>
Var<T> gather_rows(const Var<T>& x, std::vector<Index> at) {
  require(x.rank() >= 1, "gather_rows", "x must have at least one axis");
  const Index rows = x.extent(0), row = rows == 0 ? 0 : x.size() / rows;
  for (const Index i : at)
    require(i >= 0 && i < rows, "gather_rows", "index ", i, " is not within the ", rows, " rows of x");
  Tensor<T> y = uninitialized(detail::with_extent(x.shape(), 0, static_cast<Index>(at.size())), {x});
  for (std::size_t k = 0; k < at.size(); ++k)
    std::copy_n(x.value().data() + at[k] * row, row, y.data() + static_cast<Index>(k) * row);
  const auto kept = std::make_shared<const std::vector<Index>>(std::move(at));
  return record<T>(
      "gather_rows", {x}, std::move(y),
      [kept, from = x.shape(), row](Tensor<T>& gradient, Gradients<T>& into) {
        Tensor<T>& whole = into.accumulator(0, from);
        for (std::size_t k = 0; k < kept->size(); ++k)
          Eigen::Map<Vector<T>>(whole.data() + (*kept)[k] * row, row) +=
              Eigen::Map<const Vector<T>>(gradient.data() + static_cast<Index>(k) * row, row);
      },
      [kept](Tangents<T> d) { return gather_rows(*d[0], *kept); });
}

/// The adjoint of gather_rows: row at[k] of the result, which has `count` rows, is the sum of the rows k that go there.
template <Real T>
Var<T> scatter_rows(const Var<T>& x, std::vector<Index> at, Index count) {
  require(x.rank() >= 1 && x.extent(0) == static_cast<Index>(at.size()), "scatter_rows", "x of shape ",
          x.shape().extents(), " does not have one row for each of ", at.size(), " indices");
  require(count >= 0, "scatter_rows", "count must not be negative, got ", count);
  for (const Index i : at) require(i >= 0 && i < count, "scatter_rows", "index ", i, " is not within ", count, " rows");
  const Shape shape = detail::with_extent(x.shape(), 0, count);
  const Index row = at.empty() ? 0 : x.size() / x.extent(0);
  Tensor<T> y = uninitialized(shape, {x});
  std::fill_n(y.data(), y.size(), T(0));
  for (std::size_t k = 0; k < at.size(); ++k)
    Eigen::Map<Vector<T>>(y.data() + at[k] * row, row) +=
        Eigen::Map<const Vector<T>>(x.value().data() + static_cast<Index>(k) * row, row);
  const auto kept = std::make_shared<const std::vector<Index>>(std::move(at));
  return record<T>(
      "scatter_rows", {x}, std::move(y),
      [kept, from = x.shape(), row](Tensor<T>& gradient, Gradients<T>& into) {
        Tensor<T> part = into.uninitialized(from);
        for (std::size_t k = 0; k < kept->size(); ++k)
          std::copy_n(gradient.data() + (*kept)[k] * row, row, part.data() + static_cast<Index>(k) * row);
        into.add(0, std::move(part));
      },
      [kept, count](Tangents<T> d) { return scatter_rows(*d[0], *kept, count); });
}

}  // namespace ashlar::autodiff
