// Tensor: owns what a View looks at. Matrix and Vector: what results of rank two and one come back as.
//
//   Tensor<float> q({batch, heads, length, dim});     // zeros
//   q.view<4>()(0, 1, 2, 3) = 1;
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

#include "ashlar/core/error.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar {

/// Samples are rows: row-major, so that one sample is contiguous.
template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;

/// A shape whose rank is known at run time; at most eight axes, no allocation.
class Shape {
 public:
  static constexpr std::size_t max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<Index> extents) : Shape(std::span<const Index>(extents.begin(), extents.size())) {}
  template <std::size_t N>
  Shape(const std::array<Index, N>& extents) : Shape(std::span<const Index>(extents)) {}
  explicit Shape(std::span<const Index> extents) : rank_(extents.size()) {
    check_argument(rank_ <= max_rank, "Shape", "rank", "at most 8", rank_);
    std::copy(extents.begin(), extents.end(), extents_.begin());
    Index count = 1;
    for (const Index extent : extents) {
      require(extent >= 0, "Shape", "extents must not be negative, got ", extents);
      require(extent == 0 || count <= std::numeric_limits<Index>::max() / 64 / extent, "Shape", extents,
              " has more elements than an index can count");
      count *= extent;
    }
    size_ = count;
  }

  int rank() const { return static_cast<int>(rank_); }
  Index size() const { return size_; }
  Index operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  std::span<const Index> extents() const { return {extents_.data(), rank_}; }
  /// Shape() holds no element and is not the shape of a scalar, which has no axis but one element.
  friend bool operator==(const Shape& a, const Shape& b) {
    return a.size_ == b.size_ && std::ranges::equal(a.extents(), b.extents());
  }

 private:
  std::array<Index, max_rank> extents_{};
  std::size_t rank_ = 0;
  Index size_ = 0;
};

/// Owning, row-major, 64-byte aligned. Copies are deep, moves are cheap.
template <class T>
class Tensor {
  static_assert(std::is_trivially_copyable_v<T>, "tensors hold plain numbers");

 public:
  using value_type = T;
  using ashlar_tensor = void;  // marks the type for ViewSource
  static constexpr std::size_t alignment = 64;

  Tensor() = default;

  /// Zeros.
  explicit Tensor(const Shape& shape) : Tensor(uninitialized(shape)) {
    std::memset(static_cast<void*>(data()), 0, static_cast<std::size_t>(size()) * sizeof(T));
  }
  explicit Tensor(std::initializer_list<Index> shape) : Tensor(Shape(shape)) {}
  Tensor(const Shape& shape, T value) : Tensor(uninitialized(shape)) { std::fill_n(data(), size(), value); }

  /// Memory that the caller is about to overwrite entirely.
  static Tensor uninitialized(const Shape& shape) {
    Tensor tensor;
    tensor.shape_ = shape;
    const auto bytes = static_cast<std::size_t>(std::max<Index>(shape.size(), 1)) * sizeof(T);
    tensor.data_.reset(static_cast<T*>(::operator new (bytes, std::align_val_t{alignment})));
    return tensor;
  }

  Tensor(const Tensor& other) : Tensor(other.data_ ? uninitialized(other.shape_) : Tensor()) {
    std::copy_n(other.data(), other.size(), data());
  }
  Tensor& operator=(const Tensor& other) { return *this = Tensor(other); }
  Tensor(Tensor&& other) noexcept : data_(std::move(other.data_)), shape_(std::exchange(other.shape_, {})) {}
  Tensor& operator=(Tensor&& other) noexcept {
    data_ = std::move(other.data_);
    shape_ = std::exchange(other.shape_, {});
    return *this;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  /// In row-major order.
  std::span<T> elements() { return {data(), static_cast<std::size_t>(size())}; }
  std::span<const T> elements() const { return {data(), static_cast<std::size_t>(size())}; }
  Index size() const { return shape_.size(); }
  int rank() const { return shape_.rank(); }
  const Shape& shape() const { return shape_; }
  Index extent(int axis) const { return shape_[axis]; }

  template <int Rank>
  View<T, Rank> view() {
    return {data(), fixed_shape<Rank>()};
  }
  template <int Rank>
  View<const T, Rank> view() const {
    return {data(), fixed_shape<Rank>()};
  }

  /// Elements begin <= i < end of one axis, as a view.
  template <int Rank>
  View<T, Rank> slice(int axis, Index begin, Index end) {
    return checked_slice(view<Rank>(), axis, begin, end);
  }
  template <int Rank>
  View<const T, Rank> slice(int axis, Index begin, Index end) const {
    return checked_slice(view<Rank>(), axis, begin, end);
  }

  /// A tensor of rank two as an Eigen map.
  auto matrix() { return Eigen::Map<Matrix<T>>(data(), view<2>().extent(0), view<2>().extent(1)); }
  auto matrix() const { return Eigen::Map<const Matrix<T>>(data(), view<2>().extent(0), view<2>().extent(1)); }

  /// The same elements under another shape of equal size.
  Tensor& reshape(const Shape& shape) {
    require(shape.size() == size(), "Tensor::reshape", "cannot view ", shape_.extents(), " as ", shape.extents());
    shape_ = shape;
    return *this;
  }

 private:
  struct Free {
    void operator()(T* memory) const { ::operator delete (memory, std::align_val_t{alignment}); }
  };

  template <int Rank>
  std::array<Index, static_cast<std::size_t>(Rank)> fixed_shape() const {
    require(Rank == rank(), "Tensor", "shape ", shape_.extents(), " has rank ", rank(), ", expected rank ", Rank);
    std::array<Index, static_cast<std::size_t>(Rank)> shape;
    std::copy_n(shape_.extents().begin(), Rank, shape.begin());
    return shape;
  }

  template <class V>
  static V checked_slice(const V& view, int axis, Index begin, Index end) {
    require(axis >= 0 && axis < V::rank && 0 <= begin && begin <= end && end <= view.extent(axis), "Tensor::slice",
            "axis ", axis, " of ", view.shape(), " has no range ", begin, " to ", end);
    return view.slice(axis, begin, end);
  }

  std::unique_ptr<T[], Free> data_;
  Shape shape_;
};

template <class X>
requires requires { typename X::ashlar_tensor; }
struct ViewSource<X> {
  using scalar = typename X::value_type;

  template <class T, int Rank>
  requires std::is_convertible_v<decltype(std::declval<X&>().data()), T*>
  static View<T, Rank> view(X& x) { return x.template view<Rank>(); }
};

/// A view as an Eigen map, for products and decompositions. Any strides; unit inner stride is not assumed.
template <class T>
auto matrix(const View<T, 2>& view) {
  using Plain = std::conditional_t<std::is_const_v<T>, const Matrix<std::remove_cv_t<T>>, Matrix<T>>;
  using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  return Eigen::Map<Plain, 0, Strides>(view.data(), view.extent(0), view.extent(1),
                                       Strides(view.stride(0), view.stride(1)));
}
template <class T>
auto vector(const View<T, 1>& view) {
  using Plain = std::conditional_t<std::is_const_v<T>, const Vector<std::remove_cv_t<T>>, Vector<T>>;
  return Eigen::Map<Plain, 0, Eigen::InnerStride<>>(view.data(), view.extent(0), Eigen::InnerStride<>(view.stride(0)));
}

}  // namespace ashlar
