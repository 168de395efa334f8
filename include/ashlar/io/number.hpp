// What the array formats share: numbers of any alignment and byte order, and conversions between them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>

#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::io {

/// An element of a file: every scalar of the library, every integer, bool.
template <class T>
concept Number = Scalar<T> || std::integral<T>;

/// Which element types a load accepts.
enum class Conversion {
  exact,  ///< the file's type is the asked one
  any,    ///< every numeric type; to a floating type by rounding to nearest, to an integer only without loss
};

/// Element types of files, widest first: the order in which save_safetensors writes tensors, which aligns each of them.
enum class DType { U64, I64, F64, F32, U32, I32, BF16, F16, U16, I16, F8_E4M3, F8_E5M2, I8, U8, BOOL };

namespace detail {

struct DTypeInfo {
  DType dtype;
  std::string_view name;  ///< in safetensors files
  std::string_view npy;   ///< in .npy files, behind the byte order; empty where NumPy has none
  std::string_view type;  ///< in C++
  Index bytes;
};
inline constexpr DTypeInfo dtype_table[] = {
    {DType::U64, "U64", "u8", "uint64", 8},
    {DType::I64, "I64", "i8", "int64", 8},
    {DType::F64, "F64", "f8", "double", 8},
    {DType::F32, "F32", "f4", "float", 4},
    {DType::U32, "U32", "u4", "uint32", 4},
    {DType::I32, "I32", "i4", "int32", 4},
    {DType::BF16, "BF16", "", "bfloat16", 2},
    {DType::F16, "F16", "f2", "half", 2},
    {DType::U16, "U16", "u2", "uint16", 2},
    {DType::I16, "I16", "i2", "int16", 2},
    {DType::F8_E4M3, "F8_E4M3", "", "float8_e4m3", 1},
    {DType::F8_E5M2, "F8_E5M2", "", "float8_e5m2", 1},
    {DType::I8, "I8", "i1", "int8", 1},
    {DType::U8, "U8", "u1", "uint8", 1},
    {DType::BOOL, "BOOL", "b1", "bool", 1},
};
constexpr const DTypeInfo& info(DType dtype) { return dtype_table[static_cast<std::size_t>(dtype)]; }

template <Number T>
constexpr DType dtype_of() {
  if constexpr (std::same_as<T, double>) return DType::F64;
  if constexpr (std::same_as<T, float>) return DType::F32;
  if constexpr (std::same_as<T, bfloat16>) return DType::BF16;
  if constexpr (std::same_as<T, half>) return DType::F16;
  if constexpr (std::same_as<T, float8_e4m3>) return DType::F8_E4M3;
  if constexpr (std::same_as<T, float8_e5m2>) return DType::F8_E5M2;
  if constexpr (std::same_as<T, bool>) return DType::BOOL;
  constexpr DType integers[2][4] = {{DType::U8, DType::U16, DType::U32, DType::U64},
                                    {DType::I8, DType::I16, DType::I32, DType::I64}};
  return integers[std::is_signed_v<T>][std::bit_width(sizeof(T)) - 1];
}

/// One element at any address. A byte that is neither 0 nor 1 is no bool.
template <Number T>
std::optional<T> read_number(const std::byte* from, bool swap_bytes) {
  std::array<std::byte, sizeof(T)> bytes;
  std::memcpy(bytes.data(), from, sizeof(T));
  if (swap_bytes) std::reverse(bytes.begin(), bytes.end());
  if constexpr (std::same_as<T, bool>) {
    if (bytes[0] > std::byte{1}) return std::nullopt;
    return bytes[0] == std::byte{1};
  } else {
    return std::bit_cast<T>(bytes);
  }
}

/// The float next to x whose last bit says "inexact" unless x is a float: rounding it again to a shorter format gives
/// what rounding x would have given (round to odd).
inline float sticky_float(double x) {
  const auto nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || !std::isfinite(nearest) || std::bit_cast<std::uint32_t>(nearest) & 1u)
    return nearest;
  return std::nextafter(nearest, static_cast<double>(nearest) < x ? std::numeric_limits<float>::infinity()
                                                                  : -std::numeric_limits<float>::infinity());
}

/// Any element, without loss.
using WideNumber = std::variant<double, std::int64_t, std::uint64_t>;

/// One element of a type known at run time. Nothing if it is a bool that is neither 0 nor 1.
inline std::optional<WideNumber> read_wide(DType dtype, const std::byte* from, bool swap_bytes) {
  const auto read = [&]<class S>(S) { return *read_number<S>(from, swap_bytes); };
  const auto real = [&](auto type) { return static_cast<double>(to_float(read(type))); };
  switch (dtype) {
    case DType::U64: return read(std::uint64_t{});
    case DType::I64: return read(std::int64_t{});
    case DType::F64: return read(double{});
    case DType::F32: return real(float{});
    case DType::U32: return std::uint64_t{read(std::uint32_t{})};
    case DType::I32: return std::int64_t{read(std::int32_t{})};
    case DType::BF16: return real(bfloat16{});
    case DType::F16: return real(half{});
    case DType::U16: return std::uint64_t{read(std::uint16_t{})};
    case DType::I16: return std::int64_t{read(std::int16_t{})};
    case DType::F8_E4M3: return real(float8_e4m3{});
    case DType::F8_E5M2: return real(float8_e5m2{});
    case DType::I8: return std::int64_t{read(std::int8_t{})};
    case DType::U8: return std::uint64_t{read(std::uint8_t{})};
    default:
      const auto truth = read_number<bool>(from, swap_bytes);
      if (!truth) return std::nullopt;
      return std::uint64_t{*truth};
  }
}

/// `from` as a T: rounded to nearest if T is floating, nothing if T is an integer type that cannot hold it.
template <Number T, class S>
std::optional<T> convert_number(S from) {
  if constexpr (Storage<T>) {
    return round_to<T>(sticky_float(static_cast<double>(from)));
  } else if constexpr (Real<T>) {
    return static_cast<T>(from);
  } else if constexpr (std::same_as<S, double>) {
    // Both bounds are exact: 0 or -2^k, and 2^k just past the largest T.
    constexpr auto low = static_cast<double>(std::numeric_limits<T>::min());
    const double past = std::ldexp(1.0, std::numeric_limits<T>::digits);
    if (!(from >= low && from < past) || from != std::trunc(from)) return std::nullopt;
    return static_cast<T>(from);
  } else {
    const auto to = static_cast<T>(from);
    if (static_cast<S>(to) != from || (to < T{}) != (from < S{})) return std::nullopt;
    return to;
  }
}

/// One element of a file as a T, for every dtype. Nothing if it is no element or an integer T cannot hold it.
template <Number T>
std::optional<T> read_as(DType dtype, const std::byte* from, bool swap_bytes) {
  if (dtype == dtype_of<T>()) return read_number<T>(from, swap_bytes);
  const auto wide = read_wide(dtype, from, swap_bytes);
  if (!wide) return std::nullopt;
  return std::visit([](auto number) { return convert_number<T>(number); }, *wide);
}

/// The axes an array is saved with: one for vectors and ranges, two for matrices.
template <class X>
inline constexpr int natural_rank = std::is_convertible_v<const X&, View<const scalar_t<X>, 1>> ? 1 : 2;

/// The shape, unless it has more axes or elements than the library counts. Extents are not negative.
inline std::optional<Shape> checked_shape(std::span<const Index> extents) {
  if (extents.size() > Shape::max_rank) return std::nullopt;
  Index count = 1;  // of the axes that are not empty
  for (const Index extent : extents) {
    if (extent == 0) continue;
    if (count > std::numeric_limits<Index>::max() / 64 / extent) return std::nullopt;
    count *= extent;
  }
  return Shape(extents);
}

/// Calls f(offset) for the elements of a strided array in row-major order.
template <class F>
void for_each_offset(std::span<const Index> shape, std::span<const Index> strides, F&& f) {
  std::array<Index, Shape::max_rank> at{};
  const auto rank = shape.size();
  if (std::ranges::find(shape, Index{0}) != shape.end()) return;
  for (Index offset = 0;;) {
    f(offset);
    std::size_t axis = rank;
    for (;;) {
      if (axis == 0) return;
      --axis;
      offset += strides[axis];
      if (++at[axis] < shape[axis]) break;
      offset -= shape[axis] * strides[axis];
      at[axis] = 0;
    }
  }
}

}  // namespace detail
}  // namespace ashlar::io
