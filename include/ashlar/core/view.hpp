// View: the one type at every door. A non-owning, strided look at memory somebody else owns.
//
//   double sum(const View<const double, 2>& x);       // takes Matrix, Eigen block or map, Tensor, View, ...
//
// Shape and strides count elements. A view is trivially copyable and usable in device code.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"

namespace ashlar {

template <class T, int Rank, class Space = host>
class View;

/// How View looks at a foreign type X. A specialisation has
///   static View<T, Rank> view<T, Rank>(X&)     and, when X fixes it at compile time,     using scalar = ...;
template <class X>
struct ViewSource {};

namespace detail {

template <class X>
struct is_view : std::false_type {};
template <class T, int Rank, class Space>
struct is_view<View<T, Rank, Space>> : std::true_type {};

template <class X, class T, int Rank>
concept ViewableAs = !is_view<std::remove_cvref_t<X>>::value && requires(std::remove_reference_t<X> & x) {
  { ViewSource<std::remove_reference_t<X>>::template view<T, Rank>(x) } -> std::same_as<View<T, Rank>>;
};

/// An Eigen expression: something to be computed, with no memory to look at.
template <class X>
concept Expression = !is_view<std::remove_cvref_t<X>>::value && requires(std::remove_cvref_t<X> & x) {
  x.derived();
  x.eval();
}
&&!requires(std::remove_cvref_t<X> & x) { x.data(); };

template <std::size_t Rank>
constexpr std::array<Index, Rank> row_major_strides(const std::array<Index, Rank>& shape) {
  std::array<Index, Rank> strides{};
  Index step = 1;
  for (std::size_t i = Rank; i-- > 0;) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

}  // namespace detail

template <class T, int Rank, class Space>
class View {
  static_assert(Rank >= 1, "a view has at least one axis");

 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using space = Space;
  using Shape = std::array<Index, static_cast<std::size_t>(Rank)>;
  static constexpr int rank = Rank;

  constexpr View() = default;

  /// Contiguous row-major memory.
  ASHLAR_HOST_DEVICE constexpr View(T* data, const Shape& shape)
      : View(data, shape, detail::row_major_strides(shape)) {}

  ASHLAR_HOST_DEVICE constexpr View(T* data, const Shape& shape, const Shape& strides)
      : data_(data), shape_(shape), strides_(strides) {}

  /// Adds const.
  template <class U>
  requires std::is_same_v<const U, T> ASHLAR_HOST_DEVICE constexpr View(const View<U, Rank, Space>& other)
      : View(other.data(), other.shape(), other.strides()) {}

  /// Tensor, Eigen objects with direct access, vectors and spans, DLPack tensors.
  template <class Source>
  requires std::is_same_v<Space, host> && detail::ViewableAs<Source, T, Rank> View(Source&& source)
      : View(ViewSource<std::remove_reference_t<Source>>::template view<T, Rank>(source)) {}

  template <class Source>
  requires detail::Expression<Source> View(Source&&) {
    static_assert(!detail::Expression<Source>,
                  "this Eigen expression has no memory to view: write (expression).eval()");
  }

  ASHLAR_HOST_DEVICE constexpr T* data() const { return data_; }
  ASHLAR_HOST_DEVICE constexpr const Shape& shape() const { return shape_; }
  ASHLAR_HOST_DEVICE constexpr const Shape& strides() const { return strides_; }
  ASHLAR_HOST_DEVICE constexpr Index extent(int axis) const { return shape_[static_cast<std::size_t>(axis)]; }
  ASHLAR_HOST_DEVICE constexpr Index stride(int axis) const { return strides_[static_cast<std::size_t>(axis)]; }

  ASHLAR_HOST_DEVICE constexpr Index size() const {
    Index count = 1;
    for (int axis = 0; axis < Rank; ++axis) count *= extent(axis);
    return count;
  }
  ASHLAR_HOST_DEVICE constexpr bool empty() const { return size() == 0; }

  /// The element at one index per axis.
  template <class... At>
  requires(sizeof...(At) == Rank && (std::is_convertible_v<At, Index> && ...)) ASHLAR_HOST_DEVICE constexpr T&
  operator()(At... indices) const {
    const Index at[] = {static_cast<Index>(indices)...};
    Index offset = 0;
    for (int axis = 0; axis < Rank; ++axis) {
      ASHLAR_ASSERT(at[axis] >= 0 && at[axis] < extent(axis));
      offset += at[axis] * stride(axis);
    }
    return data_[offset];
  }

  /// Fixes the first axis: a view of one rank less, or the element itself.
  ASHLAR_HOST_DEVICE constexpr decltype(auto) operator[](Index i) const {
    ASHLAR_ASSERT(i >= 0 && i < extent(0));
    if constexpr (Rank == 1) {
      return static_cast<T&>(data_[i * stride(0)]);
    } else {
      typename View<T, Rank - 1, Space>::Shape shape{}, strides{};
      for (int axis = 1; axis < Rank; ++axis) {
        shape[static_cast<std::size_t>(axis - 1)] = extent(axis);
        strides[static_cast<std::size_t>(axis - 1)] = stride(axis);
      }
      return View<T, Rank - 1, Space>(data_ + i * stride(0), shape, strides);
    }
  }

  /// Elements begin <= i < end along one axis.
  ASHLAR_HOST_DEVICE constexpr View slice(int axis, Index begin, Index end) const {
    ASHLAR_ASSERT(begin >= 0 && begin <= end && end <= extent(axis));
    View part = *this;
    if (begin != end) part.data_ += begin * stride(axis);  // an empty slice keeps a valid pointer
    part.shape_[static_cast<std::size_t>(axis)] = end - begin;
    return part;
  }

  /// The same memory with two axes exchanged.
  ASHLAR_HOST_DEVICE constexpr View transposed(int a, int b) const {
    View other = *this;
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    other.shape_[i] = shape_[j], other.shape_[j] = shape_[i];
    other.strides_[i] = strides_[j], other.strides_[j] = strides_[i];
    return other;
  }

  /// The same memory with one axis running backwards.
  ASHLAR_HOST_DEVICE constexpr View reversed(int axis) const {
    View other = *this;
    if (extent(axis) > 0) other.data_ += (extent(axis) - 1) * stride(axis);
    other.strides_[static_cast<std::size_t>(axis)] = -stride(axis);
    return other;
  }

  /// Row-major without gaps, so that data()[0 .. size()) are the elements in order; no elements always are.
  ASHLAR_HOST_DEVICE constexpr bool contiguous() const {
    if (empty()) return true;
    Index step = 1;
    for (int axis = Rank; axis-- > 0;) {
      if (extent(axis) != 1 && stride(axis) != step) return false;
      step *= extent(axis);
    }
    return true;
  }

 private:
  T* data_ = nullptr;
  Shape shape_{};
  Shape strides_{};
};

namespace detail {

template <class X>
struct scalar_of {
  using type = typename ViewSource<X>::scalar;
};
template <class T, int Rank, class Space>
struct scalar_of<View<T, Rank, Space>> {
  using type = std::remove_cv_t<T>;
};

template <class X>
struct space_of {
  using type = host;
};
template <class T, int Rank, class Space>
struct space_of<View<T, Rank, Space>> {
  using type = Space;
};

}  // namespace detail

/// The scalar of anything a View can look at: `scalar_t<Eigen::MatrixXf>` is float.
template <class X>
using scalar_t = typename detail::scalar_of<std::remove_cvref_t<X>>::type;

/// Parameter types whose scalar and space follow the tensor argument X. They are non-deduced, so the first tensor
/// argument of a call decides and every other one converts:
///   template <class Q> Tensor<scalar_t<Q>> attend(const Q& q, In<Q, 4> k, In<Q, 4> v);
template <class X, int Rank>
using In = View<const scalar_t<X>, Rank, typename detail::space_of<std::remove_cvref_t<X>>::type>;
template <class X, int Rank>
using Out = View<scalar_t<X>, Rank, typename detail::space_of<std::remove_cvref_t<X>>::type>;

namespace detail {

/// The half-open byte range a view can touch (strides may be negative).
template <class T, int Rank, class Space>
std::pair<std::uintptr_t, std::uintptr_t> byte_range(const View<T, Rank, Space>& view) {
  if (view.empty()) return {0, 0};
  Index low = 0, high = 0;
  for (int axis = 0; axis < Rank; ++axis) {
    const Index last = (view.extent(axis) - 1) * view.stride(axis);
    (last < 0 ? low : high) += last;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(view.data());
  const auto bytes = static_cast<Index>(sizeof(T));
  return {base + static_cast<std::uintptr_t>(low * bytes), base + static_cast<std::uintptr_t>((high + 1) * bytes)};
}

}  // namespace detail

/// True when the memory spans of two views meet. Conservative: interleaved strides count as overlap.
template <class A, class B>
bool overlaps(const A& a, const B& b) {
  const auto [a_begin, a_end] = detail::byte_range(a);
  const auto [b_begin, b_end] = detail::byte_range(b);
  return a_begin < b_end && b_begin < a_end;
}

/// True when both views start at the same element and have the same shape and strides.
template <class A, class B>
bool same_memory(const A& a, const B& b) {
  return static_cast<const void*>(a.data()) == static_cast<const void*>(b.data()) && a.shape() == b.shape() &&
         a.strides() == b.strides();
}

// ---- Eigen objects with direct access: either storage order, blocks, maps, transposes ---------------------------

namespace detail {
template <class X>
concept EigenDirect = requires(X& x) {
  x.derived();
  x.data();
  { x.rowStride() } -> std::convertible_to<Index>;
  { x.colStride() } -> std::convertible_to<Index>;
  { x.rows() } -> std::convertible_to<Index>;
  { x.cols() } -> std::convertible_to<Index>;
};
}  // namespace detail

template <class X>
requires detail::EigenDirect<X>
struct ViewSource<X> {
  using scalar = typename X::Scalar;

  template <class T, int Rank>
  requires(std::is_convertible_v<decltype(std::declval<X&>().data()), T*> &&
           (Rank == 2 || (Rank == 1 && bool(X::IsVectorAtCompileTime)))) static View<T, Rank> view(X& x) {
    if constexpr (Rank == 1)
      return {x.data(), {x.size()}, {x.innerStride()}};
    else
      return {x.data(), {x.rows(), x.cols()}, {x.rowStride(), x.colStride()}};
  }
};

// ---- std::vector, std::array, std::span and anything else with data() and size() --------------------------------

namespace detail {
template <class X>
concept ContiguousRange = !requires(X & x) {
  x.derived();
}
&&!requires { typename X::ashlar_tensor; }
&&requires(X& x) {
  typename X::value_type;
  { std::data(x) } -> std::convertible_to<const typename X::value_type*>;
  { std::size(x) } -> std::convertible_to<std::size_t>;
};
}  // namespace detail

template <class X>
requires detail::ContiguousRange<X>
struct ViewSource<X> {
  using scalar = std::remove_cv_t<typename X::value_type>;

  template <class T, int Rank>
  requires(Rank == 1 &&
           std::is_convertible_v<decltype(std::data(std::declval<X&>())), T*>) static View<T, Rank> view(X& x) {
    return {std::data(x), {static_cast<Index>(std::size(x))}};
  }
};

}  // namespace ashlar
