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

namespace detail {

template <Number T>
constexpr std::string_view type_name() {
  if constexpr (std::same_as<T, double>) return "double";
  if constexpr (std::same_as<T, float>) return "float";
  if constexpr (std::same_as<T, half>) return "half";
  if constexpr (std::same_as<T, bfloat16>) return "bfloat16";
  if constexpr (std::same_as<T, float8_e4m3>) return "float8_e4m3";
  if constexpr (std::same_as<T, float8_e5m2>) return "float8_e5m2";
  if constexpr (std::same_as<T, bool>) return "bool";
  constexpr std::string_view names[2][4] = {{"uint8", "uint16", "uint32", "uint64"},
                                            {"int8", "int16", "int32", "int64"}};
  return names[std::is_signed_v<T>][std::bit_width(sizeof(T)) - 1];
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

/// `from` as a T: rounded to nearest if T is floating, nothing if T is an integer type that cannot hold it.
template <Number T, Number S>
std::optional<T> convert_number(S from) {
  if constexpr (std::same_as<T, S>) {
    return from;
  } else if constexpr (Storage<S>) {
    return convert_number<T>(to_float(from));
  } else if constexpr (Storage<T>) {
    if constexpr (std::same_as<S, float>)
      return round_to<T>(from);
    else
      return round_to<T>(sticky_float(static_cast<double>(from)));
  } else if constexpr (Real<T>) {
    return static_cast<T>(from);
  } else if constexpr (Real<S>) {
    // Both bounds are exact: 0 or -2^k, and 2^k just past the largest T.
    constexpr auto low = static_cast<double>(std::numeric_limits<T>::min());
    const double past = std::ldexp(1.0, std::numeric_limits<T>::digits), x = static_cast<double>(from);
    if (!(x >= low && x < past) || x != std::trunc(x)) return std::nullopt;
    return static_cast<T>(x);
  } else {
    const auto to = static_cast<T>(from);
    if (static_cast<S>(to) != from || (to < T{}) != (from < S{})) return std::nullopt;
    return to;
  }
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
