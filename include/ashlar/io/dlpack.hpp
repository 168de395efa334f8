// Hand-over of tensors to and from other libraries without a copy, by DLPack.
//
//   double sum(const View<const float, 2>& x);
//   sum(managed->dl_tensor);                                            // theirs, as a view
//   io::DLPackTensor ours = io::to_dlpack(std::move(tensor));           // ours, for them
//   PyCapsule_New(ours.release(), "dltensor", ...);
//
// Element types: float, double, half, bfloat16, signed and unsigned integers. DLPack 0.6 has no code for bool and
// float8: those do not compile.
#pragma once

#if !__has_include(<dlpack/dlpack.h>)
#error "ashlar/io/dlpack.hpp needs DLPack 0.6 or newer (Debian and Ubuntu: libdlpack-dev)"
#endif

#include <dlpack/dlpack.h>
#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ashlar/core/error.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::io {

namespace detail {

template <class T>
constexpr DLDataType dlpack_type() {
  static_assert(
      Real<T> || std::same_as<T, half> || std::same_as<T, bfloat16> || (std::integral<T> && !std::same_as<T, bool>),
      "DLPack 0.6 has no code for bool and float8: hand over their bytes as std::uint8_t");
  const auto code = std::same_as<T, bfloat16> ? kDLBfloat
                    : !std::integral<T>       ? kDLFloat
                    : std::is_signed_v<T>     ? kDLInt
                                              : kDLUInt;
  return {static_cast<std::uint8_t>(code), 8 * sizeof(T), 1};
}

/// "float32", or "float32x4" for vectors of four.
inline std::string dlpack_name(DLDataType type) {
  constexpr std::string_view names[] = {"int", "uint", "float", "handle", "bfloat", "complex"};
  const std::string code(type.code < std::size(names) ? names[type.code] : message("type code ", int{type.code}, ":"));
  return message(code, int{type.bits}, type.lanes == 1 ? "" : message("x", int{type.lanes}));
}

template <class Space>
bool dlpack_reachable(DLDeviceType from) {
  if constexpr (std::same_as<Space, device>)
    return from == kDLCUDA || from == kDLCUDAManaged;
  else
    return from == kDLCPU || from == kDLCUDAHost || from == kDLCUDAManaged || from == kDLROCMHost;
}

/// How far from the first element the strides lead; nothing if an index cannot count that.
inline std::optional<Index> reach(std::span<const Index> shape, std::span<const Index> strides) {
  constexpr Index largest = std::numeric_limits<Index>::max() / 64;
  Index total = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 0) return 0;
    if (strides[axis] > largest || strides[axis] < -largest) return std::nullopt;
    const Index stride = strides[axis] < 0 ? -strides[axis] : strides[axis];
    if (stride != 0 && shape[axis] - 1 > (largest - total) / stride) return std::nullopt;
    total += (shape[axis] - 1) * stride;
  }
  return total;
}

}  // namespace detail

/// A view of a DLPack tensor in host memory, or with Space = device in CUDA memory. O(Rank), no copy.
/// Throws InvalidArgument when rank, element type or device are others, when shape, strides or data cannot be, or when
/// data + byte_offset is not aligned for T. Whether the memory may be written is not part of DLPack.
template <class T, int Rank, class Space = host>
View<T, Rank, Space> from_dlpack(const DLTensor& tensor) {
  constexpr std::string_view function = "from_dlpack";
  constexpr DLDataType type = detail::dlpack_type<std::remove_cv_t<T>>();
  require(tensor.ndim == Rank, function, "the tensor has rank ", tensor.ndim, ", expected ", Rank);
  require(tensor.dtype.code == type.code && tensor.dtype.bits == type.bits && tensor.dtype.lanes == 1, function,
          "the elements are ", detail::dlpack_name(tensor.dtype), ", expected ", detail::dlpack_name(type));
  require(detail::dlpack_reachable<Space>(tensor.device.device_type), function, "the memory is on DLPack device type ",
          static_cast<int>(tensor.device.device_type), ", expected ",
          std::same_as<Space, device> ? "CUDA memory" : "host memory");
  require(tensor.shape != nullptr, function, "the shape is a null pointer");

  typename View<T, Rank, Space>::Shape shape{}, strides{};
  std::copy_n(tensor.shape, Rank, shape.begin());
  const Shape checked(shape);
  strides = ashlar::detail::row_major_strides(shape);
  if (tensor.strides != nullptr) std::copy_n(tensor.strides, Rank, strides.begin());
  require(detail::reach(shape, strides).has_value(), function, "strides ", std::span<const Index>(strides),
          " lead further than an index can count");
  require(tensor.data != nullptr || checked.size() == 0, function, "the data is a null pointer");
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset;
  require(checked.size() == 0 || address % alignof(T) == 0, function, "the data is not aligned to ", alignof(T),
          " bytes");
  return {reinterpret_cast<T*>(address), shape, strides};
}

struct DLPackDeleter {
  void operator()(DLManagedTensor* tensor) const {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
};
/// Owns a tensor of either side; release() hands it on.
using DLPackTensor = std::unique_ptr<DLManagedTensor, DLPackDeleter>;

/// Moves (or copies) a tensor into a DLPack tensor, whose deleter frees it. The elements stay where they are.
template <class T>
DLPackTensor to_dlpack(Tensor<T> tensor) {
  require(tensor.data() != nullptr, "to_dlpack", "the tensor was moved from or never given a shape");
  struct Context {
    Tensor<T> tensor;
    std::array<std::int64_t, Shape::max_rank> shape{}, strides{};
    DLManagedTensor managed{};
  };
  auto context = std::make_unique<Context>();
  context->tensor = std::move(tensor);
  std::int64_t step = 1;
  for (int axis = context->tensor.rank(); axis-- > 0;) {
    const auto i = static_cast<std::size_t>(axis);
    context->shape[i] = context->tensor.extent(axis);
    context->strides[i] = step;
    step *= context->shape[i];
  }
  DLTensor& dl = context->managed.dl_tensor;
  dl.data = context->tensor.data();
  dl.device = {kDLCPU, 0};
  dl.ndim = context->tensor.rank();
  dl.dtype = detail::dlpack_type<T>();
  dl.shape = context->shape.data();
  dl.strides = context->strides.data();
  context->managed.manager_ctx = context.get();
  context->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Context*>(self->manager_ctx); };
  return DLPackTensor(&context.release()->managed);
}

}  // namespace ashlar::io

namespace ashlar {

/// A DLPack tensor in host memory converts to a view of its rank and element type; anything else is InvalidArgument.
template <class X>
  requires std::same_as<std::remove_const_t<X>, DLTensor>
struct ViewSource<X> {
  template <class T, int Rank>
  static View<T, Rank> view(X& tensor) {
    return io::from_dlpack<T, Rank>(tensor);
  }
};

}  // namespace ashlar
