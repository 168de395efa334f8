// Block formats: small integers or minifloats that share a scale. The baselines every new format is measured against.
//
//   block floating point   value = +-q 2^(e - (M-1)), one exponent e a block of n (MSFP12: n=16, M=3; MSFP16: M=7)
//   OCP MX                 value = element 2^X, blocks of 32, elements E2M1, E2M3, E3M2, E4M3, E5M2 or INT8
//   integer groups         value = (q - z) s, a real scale s (and zero point z) for a group, or for the whole row
//
//   auto w = quantize<BlockFloat<16, 3>>(weights);       // blocks run along the columns; transpose to block the rows
//   Matrix<float> back = dequantize<float>(w);
//   double cost = w.bits_per_element();                  // scales counted
//
// Cost: one pass over the data, O(rows * cols); packed planes, a row's blocks padded with zeros to whole blocks.
// Sources: Rouhani et al., "Pushing the limits of narrow precision inferencing at cloud scale with Microsoft floating
// point", NeurIPS 2020; "OCP Microscaling Formats (MX) Specification", version 1.0, 2023.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::precision {

/// How a magnitude becomes an integer.
enum class Rounding {
  nearest_even,
  truncate,  ///< the pure alignment shift of cheap hardware
};

namespace detail {

constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

/// The fields of float and double.
template <Real T>
struct Ieee;
template <>
struct Ieee<float> {
  using Bits = std::uint32_t;
  static constexpr int mantissa_bits = 23, bias = 127;
};
template <>
struct Ieee<double> {
  using Bits = std::uint64_t;
  static constexpr int mantissa_bits = 52, bias = 1023;
};

template <Real T>
constexpr typename Ieee<T>::Bits magnitude_bits_of(T x) {
  return std::bit_cast<typename Ieee<T>::Bits>(x) & ~(typename Ieee<T>::Bits{1} << (8 * sizeof(T) - 1));
}
template <Real T>
inline constexpr typename Ieee<T>::Bits infinity_bits = magnitude_bits_of(std::numeric_limits<T>::infinity());

/// 2^e, exact down to the subnormals.
template <Real T>
constexpr T power_of_two(int e) {
  using I = Ieee<T>;
  using Bits = typename I::Bits;
  return e > -I::bias ? std::bit_cast<T>(static_cast<Bits>(e + I::bias) << I::mantissa_bits)
                      : std::bit_cast<T>(Bits{1} << (e + I::bias - 1 + I::mantissa_bits));
}

/// floor(log2 |x|) of |x| given by its bits, exact for normal numbers; -bias for subnormals and zero, which every
/// format clamps to the same smallest exponent.
template <Real T>
constexpr int exponent_field(typename Ieee<T>::Bits magnitude) {
  return static_cast<int>(magnitude >> Ieee<T>::mantissa_bits) - Ieee<T>::bias;
}

/// min(round(y), largest) for y >= 0 and largest < 2^15. Adding 2^mantissa_bits leaves the integer, rounded to nearest
/// even, in the low bits.
template <Rounding R, Real T>
constexpr int round_magnitude(T y, int largest) {
  y = std::min(y, static_cast<T>(largest));
  if constexpr (R == Rounding::truncate) return static_cast<int>(y);
  const T shifted = y + power_of_two<T>(Ieee<T>::mantissa_bits);
  return static_cast<int>(std::bit_cast<typename Ieee<T>::Bits>(shifted) & 0x7FFF);
}

/// The largest |x| of a block as bits, which also order infinities and NaN above every number.
template <Real T>
typename Ieee<T>::Bits largest_magnitude(const T* x, Index n) {
  typename Ieee<T>::Bits top = 0;
  for (Index i = 0; i < n; ++i) top = std::max(top, magnitude_bits_of(x[i]));
  return top;
}

/// Throws for the first element of x that is NaN or, unless allowed, infinite.
template <class T>
void check_finite(const View<const T, 2>& x, std::string_view function, bool allow_infinity = false) {
  for (Index i = 0; i < x.extent(0); ++i) {
    if constexpr (Real<T>)
      if (x.stride(1) == 1 && largest_magnitude(x.data() + i * x.stride(0), x.extent(1)) < infinity_bits<T>) continue;
    for (Index j = 0; j < x.extent(1); ++j)
      if (const auto value = to_float(x(i, j)); std::isnan(value) || (std::isinf(value) && !allow_infinity)) [[unlikely]]
        throw NumericalError(message(function, ": x(", i, ",", j, ") is ", value, ", expected a finite number"));
  }
}

/// Calls f(block, values) for the blocks of n columns of row i: contiguous float or double, the last one zero padded.
template <class T, class F>
void for_each_block(const View<const T, 2>& x, Index i, Index n, accumulate_t<T>* buffer, F&& f) {
  const Index cols = x.extent(1);
  for (Index begin = 0, block = 0; begin < cols; begin += n, ++block) {
    const Index count = std::min(n, cols - begin);
    if constexpr (Real<T>) {
      if (count == n && x.stride(1) == 1) {
        f(block, &x(i, begin));
        continue;
      }
    }
    for (Index k = 0; k < count; ++k) buffer[k] = to_float(x(i, begin + k));
    std::fill(buffer + count, buffer + n, accumulate_t<T>(0));
    f(block, static_cast<const accumulate_t<T>*>(buffer));
  }
}

/// Rows a thread takes at a time.
inline Index row_grain(Index cols) { return std::max<Index>(1, 32768 / std::max<Index>(cols, 1)); }

/// Elements of at most four bits go two to a byte, the even one in the low half; wider ones take a byte each.
constexpr Index packed_bytes(int bits, Index n) { return bits <= 4 ? ceil_div(n, 2) : n; }

constexpr void put_code(std::uint8_t* block, int bits, Index i, unsigned code) {
  if (bits > 4)
    block[i] = static_cast<std::uint8_t>(code);
  else
    block[i / 2] = static_cast<std::uint8_t>(i % 2 == 0 ? code : block[i / 2] | code << 4);
}
constexpr unsigned get_code(const std::uint8_t* block, int bits, Index i) {
  if (bits > 4) return block[i];
  return i % 2 == 0 ? block[i / 2] & 15u : block[i / 2] >> 4;
}

/// The double as a float, rounded so that a second rounding to a narrower format gives what one rounding would: an
/// inexact result gets an odd last bit and so never falls on a tie.
inline float narrow(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(x)) --bits;
  return std::bit_cast<float>(bits | 1u);
}
inline float narrow(float x) { return x; }

}  // namespace detail

// ---- The formats: how one block becomes bytes and comes back ----------------------------------------------------

/// Block floating point: sign and M magnitude bits an element, one 8-bit exponent for N of them. No hidden bit.
template <int N = 16, int M = 3>
struct BlockFloat {
  static_assert(N >= 1 && M >= 1 && M <= 7);
  static constexpr int block = N, magnitude_bits = M, element_bits = M + 1;
  static constexpr Index element_bytes = detail::packed_bytes(element_bits, N), scale_bytes = 1;
  static constexpr double bits_per_element = element_bits + 8.0 / N;
  static constexpr int sign_code = M <= 3 ? 8 : 128, max_magnitude = (1 << M) - 1;

  template <Real T>
  static bool encode(const T* x, std::uint8_t* elements, std::uint8_t* scale) {
    const auto top = detail::largest_magnitude(x, N);
    if (top >= detail::infinity_bits<T>) return false;
    const int e = std::clamp(detail::exponent_field<T>(top), -127, 127), shift = M - 1 - e;
    // Two factors, because 2^shift alone can leave the range of float.
    const T first = detail::power_of_two<T>(shift / 2), second = detail::power_of_two<T>(shift - shift / 2);
    for (Index i = 0; i < N; ++i) {
      const int q =
          detail::round_magnitude<Rounding::nearest_even>(std::abs(x[i]) * first * second, max_magnitude);
      detail::put_code(elements, element_bits, i, static_cast<unsigned>(x[i] < 0 && q > 0 ? q | sign_code : q));
    }
    scale[0] = static_cast<std::uint8_t>(e + 127);
    return true;
  }

  template <Real T, class Store>
  static void decode(const std::uint8_t* elements, const std::uint8_t* scale, Index count, Store&& store) {
    const T unit = detail::power_of_two<T>(scale[0] - 127 - (M - 1));
    for (Index i = 0; i < count; ++i) {
      const int code = static_cast<int>(detail::get_code(elements, element_bits, i)), q = code & max_magnitude;
      store(i, static_cast<T>(code & sign_code ? -q : q) * unit);
    }
  }
};

/// OCP MX with a minifloat element: float4_e2m1, float6_e2m3, float6_e3m2, float8_e4m3 or float8_e5m2.
/// Elements past the largest saturate; scale code 255 marks a block of NaN, which only decoding knows.
template <class Element, int N = 32>
struct Mx {
  using F = Format<Element>;
  static constexpr int block = N, element_bits = 1 + F::exponent_bits + F::mantissa_bits;
  static constexpr Index element_bytes = detail::packed_bytes(element_bits, N), scale_bytes = 1;
  static constexpr double bits_per_element = element_bits + 8.0 / N;
  /// floor(log2) of the largest element.
  static constexpr int max_exponent = static_cast<int>(F::max_code >> F::mantissa_bits) - F::bias;

  template <Real T>
  static bool encode(const T* x, std::uint8_t* elements, std::uint8_t* scale) {
    const auto top = detail::largest_magnitude(x, N);
    if (top >= detail::infinity_bits<T>) return false;
    const int e = std::clamp(detail::exponent_field<T>(top) - max_exponent, -127, 127);
    const T inverse = detail::power_of_two<T>(-e);
    for (Index i = 0; i < N; ++i)
      detail::put_code(elements, element_bits, i,
                       round_to<Element>(detail::narrow(x[i] * inverse), Overflow::saturate).bits);
    scale[0] = static_cast<std::uint8_t>(e + 127);
    return true;
  }

  template <Real T, class Store>
  static void decode(const std::uint8_t* elements, const std::uint8_t* scale, Index count, Store&& store) {
    const T unit = scale[0] == 255 ? std::numeric_limits<T>::quiet_NaN() : detail::power_of_two<T>(scale[0] - 127);
    for (Index i = 0; i < count; ++i)
      store(i, static_cast<T>(to_float(from_bits<Element>(detail::get_code(elements, element_bits, i)))) * unit);
  }
};

/// OCP MX with two's complement integers p, -127 <= p <= 127: value = p 2^(X-6).
template <int N>
struct Mx<std::int8_t, N> {
  static constexpr int block = N, element_bits = 8;
  static constexpr Index element_bytes = N, scale_bytes = 1;
  static constexpr double bits_per_element = element_bits + 8.0 / N;

  template <Real T>
  static bool encode(const T* x, std::uint8_t* elements, std::uint8_t* scale) {
    const auto top = detail::largest_magnitude(x, N);
    if (top >= detail::infinity_bits<T>) return false;
    const int e = std::clamp(detail::exponent_field<T>(top), -127, 127);
    const T first = detail::power_of_two<T>(-e), second = 64;
    for (Index i = 0; i < N; ++i) {
      const int q = detail::round_magnitude<Rounding::nearest_even>(std::abs(x[i]) * first * second, 127);
      elements[i] = static_cast<std::uint8_t>(x[i] < 0 ? -q : q);
    }
    scale[0] = static_cast<std::uint8_t>(e + 127);
    return true;
  }

  template <Real T, class Store>
  static void decode(const std::uint8_t* elements, const std::uint8_t* scale, Index count, Store&& store) {
    const T unit = scale[0] == 255 ? std::numeric_limits<T>::quiet_NaN() : detail::power_of_two<T>(scale[0] - 133);
    for (Index i = 0; i < count; ++i) store(i, static_cast<T>(static_cast<std::int8_t>(elements[i])) * unit);
  }
};

using Msfp12 = BlockFloat<16, 3>;
using Msfp16 = BlockFloat<16, 7>;
using Mxfp4 = Mx<float4_e2m1>;
using Mxfp6 = Mx<float6_e2m3>;
using Mxfp8 = Mx<float8_e4m3>;
using Mxint8 = Mx<std::int8_t>;

/// A format whose blocks have one shape, known at compile time, and one parameter-free encoding.
template <class F>
concept BlockFormat = requires(const float* x, std::uint8_t* bytes, void (*store)(Index, float)) {
  { F::bits_per_element } -> std::convertible_to<double>;
  { F::encode(x, bytes, bytes) } -> std::same_as<bool>;
  F::template decode<float>(bytes, bytes, Index{}, store);
};

// ---- Matrices of blocks -----------------------------------------------------------------------------------------

/// Rows of equally long blocks. decode_block<T>(row, b, count, store) calls store(k, value) for k = 0 .. count-1.
template <class P>
concept PackedMatrix = requires(const P& packed, void (*store)(Index, float)) {
  { packed.rows() } -> std::same_as<Index>;
  { packed.cols() } -> std::same_as<Index>;
  { packed.blocks() } -> std::same_as<Index>;      // in a row
  { packed.block_size() } -> std::same_as<Index>;  // elements
  { packed.bits_per_element() } -> std::convertible_to<double>;
  packed.template decode_block<float>(Index{}, Index{}, Index{}, store);
};

/// rows x cols numbers in format F: a plane of elements and a plane of scales, blocks of a row side by side.
template <BlockFormat F>
class BlockMatrix {
 public:
  using format = F;

  BlockMatrix() = default;
  /// Uninitialised planes, for quantize to fill.
  BlockMatrix(Index rows, Index cols)
      : rows_(rows), cols_(cols), blocks_(detail::ceil_div(cols, F::block)),
        elements_(Tensor<std::uint8_t>::uninitialized({rows, blocks_ * F::element_bytes})),
        scales_(Tensor<std::uint8_t>::uninitialized({rows, blocks_ * F::scale_bytes})) {}

  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  Index blocks() const { return blocks_; }
  static constexpr Index block_size() { return F::block; }
  static constexpr double bits_per_element() { return F::bits_per_element; }

  std::uint8_t* elements(Index row, Index b) { return elements_.data() + (row * blocks_ + b) * F::element_bytes; }
  const std::uint8_t* elements(Index row, Index b) const {
    return elements_.data() + (row * blocks_ + b) * F::element_bytes;
  }
  std::uint8_t* scale(Index row, Index b) { return scales_.data() + (row * blocks_ + b) * F::scale_bytes; }
  const std::uint8_t* scale(Index row, Index b) const { return scales_.data() + (row * blocks_ + b) * F::scale_bytes; }

  template <Real T, class Store>
  void decode_block(Index row, Index b, Index count, Store&& store) const {
    F::template decode<T>(elements(row, b), scale(row, b), count, store);
  }

 private:
  Index rows_ = 0, cols_ = 0, blocks_ = 0;
  Tensor<std::uint8_t> elements_, scales_;
};

/// Quantises the rows of x: [rows, cols] in blocks along the columns. Throws NumericalError for NaN and infinities.
template <BlockFormat F, class X>
BlockMatrix<F> quantize(const X& x) {
  using A = accumulate_t<scalar_t<X>>;
  const In<X, 2> view = x;
  BlockMatrix<F> packed(view.extent(0), view.extent(1));
  parallel_for(view.extent(0), detail::row_grain(view.extent(1)), [&](Index begin, Index end) {
    std::array<A, static_cast<std::size_t>(F::block)> buffer;
    for (Index i = begin; i < end; ++i)
      detail::for_each_block(view, i, F::block, buffer.data(), [&](Index b, const A* values) {
        if (!F::encode(values, packed.elements(i, b), packed.scale(i, b))) detail::check_finite(view, "quantize");
      });
  });
  return packed;
}

// ---- Integer groups ---------------------------------------------------------------------------------------------

struct IntegerOptions {
  int bits = 8;             ///< 2 to 8
  Index group = 0;          ///< elements that share a scale; 0: the whole row (per token, per output channel)
  bool asymmetric = false;  ///< a zero point, for groups that lie on one side of zero
};

/// rows x cols integers with a real scale, and a zero point if asymmetric, for every group. S: float or double.
template <Real S>
class IntegerMatrix {
 public:
  IntegerMatrix() = default;
  IntegerMatrix(Index rows, Index cols, const IntegerOptions& options)
      : options_(options), rows_(rows), cols_(cols), group_(options.group == 0 ? std::max<Index>(cols, 1) : options.group),
        blocks_(detail::ceil_div(cols, group_)), bytes_(detail::packed_bytes(options.bits, group_)),
        codes_(Tensor<std::uint8_t>::uninitialized({rows, blocks_ * bytes_})),
        zeros_(Tensor<std::uint8_t>(Shape{rows, options.asymmetric ? blocks_ : 0})),
        scales_(Tensor<S>::uninitialized({rows, blocks_})) {}

  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  Index blocks() const { return blocks_; }
  Index block_size() const { return group_; }
  const IntegerOptions& options() const { return options_; }
  /// Scales counted at 16 bits, as they are usually kept, and zero points at the bits of an element.
  double bits_per_element() const {
    return options_.bits + (16.0 + (options_.asymmetric ? options_.bits : 0)) / static_cast<double>(group_);
  }

  S scale(Index row, Index b) const { return scales_.data()[row * blocks_ + b]; }
  int zero_point(Index row, Index b) const { return options_.asymmetric ? zeros_.data()[row * blocks_ + b] : 0; }
  /// The stored integer: -(2^(bits-1)-1) .. 2^(bits-1)-1, or 0 .. 2^bits-1 if asymmetric.
  int code(Index row, Index b, Index k) const {
    const auto raw = static_cast<int>(detail::get_code(codes(row, b), options_.bits, k));
    const int half = options_.bits <= 4 ? 8 : 128;  // the sign bit of the stored nibble or byte
    return options_.asymmetric || raw < half ? raw : raw - 2 * half;
  }

  template <Real T, class Store>
  void decode_block(Index row, Index b, Index count, Store&& store) const {
    const S s = scale(row, b);
    const int z = zero_point(row, b);
    for (Index k = 0; k < count; ++k) store(k, static_cast<T>(static_cast<S>(code(row, b, k) - z) * s));
  }

  /// s = max|x| / (2^(bits-1)-1), q = round(x/s). A division: multiplying by 1/s would move the ties.
  void encode_symmetric(Index row, Index b, const S* x, S largest) {
    const int limit = (1 << (options_.bits - 1)) - 1;
    const S s = largest / static_cast<S>(limit);
    for (Index k = 0; k < group_; ++k) {
      const int q = s > 0 ? detail::round_magnitude<Rounding::nearest_even>(std::abs(x[k]) / s, limit) : 0;
      put(row, b, k, x[k] < 0 ? -q : q);
    }
    scales_.data()[row * blocks_ + b] = s;
  }

  /// s = (max-min) / (2^bits-1) with 0 in [min,max], z = round(-min/s), q = round(x/s) + z.
  void encode_asymmetric(Index row, Index b, const S* x) {
    const int limit = (1 << options_.bits) - 1;
    S low = 0, high = 0;
    for (Index k = 0; k < group_; ++k) low = std::min(low, x[k]), high = std::max(high, x[k]);
    const S s = (high - low) / static_cast<S>(limit);
    if (!std::isfinite(s))
      throw NumericalError(message("quantize_integer: row ", row, " spans ", low, " to ", high, ", too far for its type"));
    const int z = s > 0 ? detail::round_magnitude<Rounding::nearest_even>(-low / s, limit) : 0;
    for (Index k = 0; k < group_; ++k) {
      const int q = s > 0 ? detail::round_magnitude<Rounding::nearest_even>(std::abs(x[k]) / s, 2 * limit) : 0;
      put(row, b, k, std::clamp((x[k] < 0 ? -q : q) + z, 0, limit));
    }
    zeros_.data()[row * blocks_ + b] = static_cast<std::uint8_t>(z);
    scales_.data()[row * blocks_ + b] = s;
  }

 private:
  std::uint8_t* codes(Index row, Index b) { return codes_.data() + (row * blocks_ + b) * bytes_; }
  const std::uint8_t* codes(Index row, Index b) const { return codes_.data() + (row * blocks_ + b) * bytes_; }
  void put(Index row, Index b, Index k, int q) {
    detail::put_code(codes(row, b), options_.bits, k, static_cast<unsigned>(q) & (options_.bits <= 4 ? 15u : 255u));
  }

  IntegerOptions options_;
  Index rows_ = 0, cols_ = 0, group_ = 1, blocks_ = 0, bytes_ = 0;
  Tensor<std::uint8_t> codes_, zeros_;
  Tensor<S> scales_;
};

/// Quantises the rows of x: [rows, cols] to integers. Throws NumericalError for NaN and infinities.
template <class X>
IntegerMatrix<accumulate_t<scalar_t<X>>> quantize_integer(const X& x, const IntegerOptions& options = {}) {
  using A = accumulate_t<scalar_t<X>>;
  check_argument(options.bits >= 2 && options.bits <= 8, "quantize_integer", "bits", "between 2 and 8", options.bits);
  check_argument(options.group >= 0, "quantize_integer", "group", "not negative", options.group);
  const In<X, 2> view = x;
  IntegerMatrix<A> packed(view.extent(0), view.extent(1), options);
  const Index group = packed.block_size();
  parallel_for(view.extent(0), detail::row_grain(view.extent(1)), [&](Index begin, Index end) {
    Vector<A> buffer(group);
    for (Index i = begin; i < end; ++i)
      detail::for_each_block(view, i, group, buffer.data(), [&](Index b, const A* values) {
        const auto top = detail::largest_magnitude(values, group);
        if (top >= detail::infinity_bits<A>) detail::check_finite(view, "quantize_integer");
        if (options.asymmetric)
          packed.encode_asymmetric(i, b, values);
        else
          packed.encode_symmetric(i, b, values, std::bit_cast<A>(top));
      });
  });
  return packed;
}

// ---- What every packed matrix can do ----------------------------------------------------------------------------

/// Rows first_row, first_row + 1, ... of `packed`, decoded into out: [any, cols]. Allocates nothing.
template <PackedMatrix P, Scalar T>
void dequantize_rows(const P& packed, Index first_row, View<T, 2> out) {
  require(out.extent(1) == packed.cols() && first_row >= 0 && first_row + out.extent(0) <= packed.rows(),
          "dequantize", "out has shape ", out.shape(), " for rows from ", first_row, " of a matrix [", packed.rows(), ",",
          packed.cols(), "]");
  const Index n = packed.block_size(), cols = packed.cols();
  parallel_for(out.extent(0), detail::row_grain(cols), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      T* const row = out.data() + i * out.stride(0);
      const Index step = out.stride(1);
      Index b = 0;
      if constexpr (requires { packed.decode_whole_blocks(i, row); })
        if (step == 1) b = packed.decode_whole_blocks(i + first_row, row);
      for (; b < packed.blocks(); ++b) {
        T* const to = row + b * n * step;
        packed.template decode_block<accumulate_t<T>>(
            i + first_row, b, std::min(n, cols - b * n),
            [&](Index k, accumulate_t<T> value) { to[k * step] = from_float<T>(value); });
      }
    }
  });
}

/// All of `packed`, decoded into out: [rows, cols].
template <PackedMatrix P, class Y>
void dequantize(const P& packed, Y&& out) {
  const Out<Y, 2> view = out;
  check_shape("dequantize", "out", view.shape(), {packed.rows(), packed.cols()}, "the shape that was packed");
  dequantize_rows(packed, 0, view);
}
template <Scalar T, PackedMatrix P>
Matrix<T> dequantize(const P& packed) {
  Matrix<T> out(packed.rows(), packed.cols());
  dequantize_rows(packed, 0, View<T, 2>(out));
  return out;
}

/// C = A W^T: [A.rows, W.rows] over decoded tiles of W, for any two formats. The products are Eigen's, in float.
template <PackedMatrix PA, PackedMatrix PW>
Matrix<float> gemm_dequantized(const PA& a, const PW& w) {
  require(a.cols() == w.cols(), "gemm_dequantized", "a has ", a.cols(), " columns, w has ", w.cols());
  constexpr Index tile_rows = 64;
  const Matrix<float> left = dequantize<float>(a);
  Matrix<float> c(a.rows(), w.rows());
  parallel_for(w.rows(), tile_rows, [&](Index begin, Index end) {
    Matrix<float> tile(end - begin, w.cols());
    dequantize_rows(w, begin, View<float, 2>(tile));
    c.middleCols(begin, end - begin).noalias() = left * tile.transpose();
  });
  return c;
}

// ---- How far a quantised matrix is from the original ------------------------------------------------------------

/// Mean of (x - quantized)^2 over all elements, in double. Shapes agree and are not empty.
template <class X>
double quantization_mse(const X& x, In<X, 2> quantized) {
  const In<X, 2> view = x;
  check_shape("quantization_mse", "quantized", quantized.shape(), view.shape(), "same shape as x");
  require(!view.empty(), "quantization_mse", "x has no elements");
  double sum = 0;
  for (Index i = 0; i < view.extent(0); ++i)
    for (Index j = 0; j < view.extent(1); ++j) {
      const double gap = static_cast<double>(to_float(view(i, j))) - static_cast<double>(to_float(quantized(i, j)));
      sum += gap * gap;
    }
  return sum / static_cast<double>(view.size());
}

/// Signal to quantisation noise, 10 log10(mean x^2 / mse), in decibels; infinite for an exact copy.
template <class X>
double sqnr_db(const X& x, In<X, 2> quantized) {
  const In<X, 2> view = x;
  const double noise = quantization_mse(x, quantized);
  double signal = 0;
  for (Index i = 0; i < view.extent(0); ++i)
    for (Index j = 0; j < view.extent(1); ++j) signal += std::pow(static_cast<double>(to_float(view(i, j))), 2);
  if (noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / static_cast<double>(view.size()) / noise);
}

// ---- The definitions, as written --------------------------------------------------------------------------------

/// The oracle: the same planes from frexp, ldexp and rint in double, one element after the other.
namespace reference {

/// floor(log2 |x|); far below every format for zero.
inline int floor_log2(double x) {
  int e = 0;
  return std::frexp(x, &e) == 0 ? -100000 : e - 1;
}

inline int block_exponent(const double* x, int n) {
  int e = -100000;
  for (int i = 0; i < n; ++i) e = std::max(e, floor_log2(x[i]));
  return e;
}

/// min(rint(|x| 2^((M-1)-e)), 2^M - 1)
inline int magnitude(double x, int e, int M, Rounding rounding = Rounding::nearest_even) {
  const double scaled = std::ldexp(std::abs(x), M - 1 - e);
  const double q = rounding == Rounding::truncate ? std::floor(scaled) : std::nearbyint(scaled);
  return static_cast<int>(std::min(q, std::ldexp(1.0, M) - 1));
}

template <int N, int M>
void encode(BlockFloat<N, M>, const double* x, std::uint8_t* elements, std::uint8_t* scale) {
  const int e = std::clamp(block_exponent(x, N), -127, 127);
  for (int i = 0; i < N; ++i) {
    const int q = magnitude(x[i], e, M), sign = x[i] < 0 && q > 0;
    detail::put_code(elements, M + 1, i, static_cast<unsigned>(q | (sign ? BlockFloat<N, M>::sign_code : 0)));
  }
  scale[0] = static_cast<std::uint8_t>(e + 127);
}

template <class Element, int N>
void encode(Mx<Element, N>, const double* x, std::uint8_t* elements, std::uint8_t* scale) {
  using F = Format<Element>;
  const int e = std::clamp(block_exponent(x, N) - Mx<Element, N>::max_exponent, -127, 127);
  const double largest = to_float(from_bits<Element>(F::max_code));
  for (int i = 0; i < N; ++i) {
    const double scaled = std::ldexp(std::abs(x[i]), -e);
    int exponent = std::max(floor_log2(scaled), F::min_exponent);
    const double unit = std::ldexp(1.0, exponent - F::mantissa_bits);
    const double value = std::min(std::nearbyint(scaled / unit) * unit, largest);
    exponent = std::max(floor_log2(value), F::min_exponent);  // rounding up can reach the next power of two
    const int mantissa = static_cast<int>(std::ldexp(value, F::mantissa_bits - exponent));  // hidden bit included
    const int hidden = 1 << F::mantissa_bits;
    const int code = mantissa < hidden ? mantissa : (exponent + F::bias) * hidden + mantissa - hidden;
    const int sign = std::signbit(x[i]) ? static_cast<int>(F::sign_code) : 0;
    detail::put_code(elements, Mx<Element, N>::element_bits, i, static_cast<unsigned>(code | sign));
  }
  scale[0] = static_cast<std::uint8_t>(e + 127);
}

template <int N>
void encode(Mx<std::int8_t, N>, const double* x, std::uint8_t* elements, std::uint8_t* scale) {
  const int e = std::clamp(block_exponent(x, N), -127, 127);
  for (int i = 0; i < N; ++i)
    elements[i] = static_cast<std::uint8_t>(static_cast<int>(
        std::clamp(std::nearbyint(std::ldexp(x[i], 6 - e)), -127.0, 127.0)));
  scale[0] = static_cast<std::uint8_t>(e + 127);
}

template <BlockFormat F, class X>
BlockMatrix<F> quantize(const X& x) {
  const In<X, 2> view = x;
  detail::check_finite(view, "quantize");
  BlockMatrix<F> packed(view.extent(0), view.extent(1));
  for (Index i = 0; i < packed.rows(); ++i)
    for (Index b = 0; b < packed.blocks(); ++b) {
      std::array<double, static_cast<std::size_t>(F::block)> values{};  // zero padded
      for (Index k = 0; k < F::block && b * F::block + k < packed.cols(); ++k)
        values[static_cast<std::size_t>(k)] = to_float(view(i, b * F::block + k));
      encode(F{}, values.data(), packed.elements(i, b), packed.scale(i, b));
    }
  return packed;
}

}  // namespace reference

}  // namespace ashlar::precision
