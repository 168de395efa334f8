// BiE on the device: quantise, dequantise, and y = W x on the packed planes of precision/bi_exponent.hpp.
//
//   DeviceBiExponent<BiE4> w{elements, selectors, exponents, cols};       // three planes in device memory
//   quantize(x, 4.0, w, stream);
//   gemv(token, w, y, stream);                                            // token: one packed row
//
// The bodies are written against a Block and encode with the host's own function, so the bytes are the host's; the
// launches need nvcc. Data is not checked for NaN: it lives on the device. Formats with exponents of at most six bits.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ashlar/core/block.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/bi_exponent.hpp"

#if defined(__CUDACC__)
#include "ashlar/core/block.cuh"
#endif

namespace ashlar::precision {

/// The planes of a BiExponentMatrix in device memory, [rows, bytes of a row] each, contiguous rows.
/// Byte: std::uint8_t, or const for an operand that is only read.
template <BiExponentFormat F, class Byte = std::uint8_t>
struct DeviceBiExponent {
  static_assert(F::exponent_bits <= 6, "exponents of at most six bits: units and products stay in the range of float");
  View<Byte, 2, device> elements, selectors, exponents;
  Index cols = 0;

  ASHLAR_HOST_DEVICE Index rows() const { return elements.extent(0); }
  ASHLAR_HOST_DEVICE Index blocks() const { return (cols + F::block - 1) / F::block; }
  ASHLAR_HOST_DEVICE BiExponentBytes<F> block(Index row, Index b) const {
    return {&elements(row, b * F::element_bytes), &selectors(row, b * F::selector_bytes),
            &exponents(row, b * F::exponent_bytes)};
  }

  /// Adds const.
  template <class To>
    requires(std::is_same_v<To, DeviceBiExponent<F, const std::uint8_t>> && !std::is_const_v<Byte>)
  operator To() const {
    return {elements, selectors, exponents, cols};
  }
};

namespace detail {

/// One thread block takes `tile` blocks of a row: it loads them side by side, then each thread encodes one.
template <BiExponentFormat F>
struct QuantizeBody {
  static constexpr Index tile = 64, stride = F::block + 1;  // the odd stride spreads blocks over the memory banks
  View<const float, 2, device> x;
  float threshold;
  DeviceBiExponent<F> out;

  Index tiles() const { return ceil_div(out.blocks(), tile); }
  Index grid() const { return x.extent(0) * tiles(); }

  template <class Block>
  ASHLAR_HOST_DEVICE void operator()(Block& block) const {
    const Index tiles_of_row = (out.blocks() + tile - 1) / tile;
    const Index row = block.index() / tiles_of_row, first = block.index() % tiles_of_row * tile;
    const Index count = tile < out.blocks() - first ? tile : out.blocks() - first;
    auto values = block.template shared<float>(tile * stride);
    block.for_each(count * F::block, [&](Index i) {
      const Index column = first * F::block + i;
      values[i / F::block * stride + i % F::block] = column < x.extent(1) ? x(row, column) : 0.0f;
    });
    block.sync();
    block.for_each(count, [&](Index k) {
      float own[F::block];
      for (int i = 0; i < F::block; ++i) own[i] = values[k * stride + i];
      const Index b = first + k;
      encode_block<F, Rounding::nearest_even, Carry::saturate>(
          own, threshold, &out.elements(row, b * F::element_bytes), &out.selectors(row, b * F::selector_bytes),
          &out.exponents(row, b * F::exponent_bytes));
    });
  }
};

/// One thread an element.
template <BiExponentFormat F>
struct DequantizeBody {
  static constexpr Index tile = 1024;
  DeviceBiExponent<F, const std::uint8_t> packed;
  View<float, 2, device> out;

  Index grid() const { return ceil_div(out.size(), tile); }

  template <class Block>
  ASHLAR_HOST_DEVICE void operator()(Block& block) const {
    const Index first = block.index() * tile, count = tile < out.size() - first ? tile : out.size() - first;
    block.for_each(count, [&](Index k) {
      const Index row = (first + k) / packed.cols, column = (first + k) % packed.cols, i = column % F::block;
      const auto bytes = packed.block(row, column / F::block);
      out(row, column) = static_cast<float>(bytes.value(i)) *
                         power_of_two<float>(bytes.exponent(bytes.outlier(i)) - (F::magnitude_bits - 1));
    });
  }
};

/// One thread block a row of W. Every thread adds the four integer sums of its blocks; halving adds the threads.
template <BiExponentFormat FX, BiExponentFormat FW>
struct GemvBody {
  static_assert(FX::block == FW::block, "both operands have blocks of one length");
  static constexpr Index lanes = 128;
  DeviceBiExponent<FX, const std::uint8_t> x;  ///< one row
  DeviceBiExponent<FW, const std::uint8_t> w;
  View<float, 1, device> y;

  Index grid() const { return w.rows(); }

  template <class Block>
  ASHLAR_HOST_DEVICE void operator()(Block& block) const {
    const Index row = block.index();
    auto sums = block.template shared<float>(lanes);
    block.for_each(lanes, [&](Index lane) {
      float sum = 0;
      for (Index b = lane; b < w.blocks(); b += lanes) sum += dot(x.block(0, b), w.block(row, b));
      sums[lane] = sum;
    });
    for (Index half = lanes / 2; half > 0; half /= 2) {
      block.sync();
      block.for_each(half, [&](Index lane) { sums[lane] += sums[lane + half]; });
    }
    block.sync();
    block.for_each(1, [&](Index) { y[row] = sums[0]; });
  }

 private:
  ASHLAR_HOST_DEVICE static float dot(const BiExponentBytes<FX>& a, const BiExponentBytes<FW>& b) {
    int sums[4] = {0, 0, 0, 0};  // nn, no, on, oo
    for (Index i = 0; i < FX::block; ++i) sums[2 * a.outlier(i) + b.outlier(i)] += a.value(i) * b.value(i);
    float total = 0;
    for (int u = 0; u < 2; ++u)
      for (int v = 0; v < 2; ++v)
        total += static_cast<float>(sums[2 * u + v]) *
                 power_of_two<float>(a.exponent(u == 1) + b.exponent(v == 1) - (FX::magnitude_bits - 1) -
                                     (FW::magnitude_bits - 1));
    return total;
  }
};

template <BiExponentFormat F, class Byte>
void check_planes(const DeviceBiExponent<F, Byte>& packed, std::string_view function, std::string_view argument) {
  const auto check = [&](const View<Byte, 2, device>& plane, Index bytes) {
    check_shape(function, argument, plane.shape(), {packed.rows(), packed.blocks() * bytes}, "bytes of a plane");
    require(plane.extent(0) == 0 || plane.stride(1) == 1, function, argument, " has a plane with gaps between bytes");
  };
  check(packed.elements, F::element_bytes);
  check(packed.selectors, F::selector_bytes);
  check(packed.exponents, F::exponent_bytes);
}

}  // namespace detail

#if defined(__CUDACC__)

/// quantize of the host header, nearest rounding, into device planes. x: [rows, cols]. Enqueued on `stream`.
template <BiExponentFormat F>
void quantize(View<const float, 2, device> x, double threshold, const DeviceBiExponent<F>& out, cudaStream_t stream) {
  detail::check_threshold(threshold, "quantize");
  detail::check_planes(out, "quantize", "out");
  check_shape("quantize", "x", x.shape(), {out.rows(), out.cols}, "the shape of out");
  const detail::QuantizeBody<F> body{x, detail::round_threshold<float>(threshold), out};
  launch(body.grid(), 128, HostBlock::shared_size<float>(body.tile * body.stride), stream, body);
}

/// dequantize of the host header. out: [rows, cols].
template <BiExponentFormat F>
void dequantize(const DeviceBiExponent<F, const std::uint8_t>& packed, View<float, 2, device> out, cudaStream_t stream) {
  detail::check_planes(packed, "dequantize", "packed");
  check_shape("dequantize", "out", out.shape(), {packed.rows(), packed.cols}, "the shape that was packed");
  const detail::DequantizeBody<F> body{packed, out};
  launch(body.grid(), 256, 0, stream, body);
}

/// y = W x^. x: one packed row of K, w: [n, K], y: [n].
template <BiExponentFormat FX, BiExponentFormat FW>
void gemv(const DeviceBiExponent<FX, const std::uint8_t>& x, const DeviceBiExponent<FW, const std::uint8_t>& w,
          View<float, 1, device> y, cudaStream_t stream) {
  detail::check_planes(x, "gemv", "x");
  detail::check_planes(w, "gemv", "w");
  require(x.rows() == 1 && x.cols == w.cols, "gemv", "x has ", x.rows(), " rows of ", x.cols, " elements, w has ", w.cols,
          " columns");
  check_shape("gemv", "y", y.shape(), {w.rows()}, "one for every row of w");
  const detail::GemvBody<FX, FW> body{x, w, y};
  launch(body.grid(), static_cast<int>(body.lanes), HostBlock::shared_size<float>(body.lanes), stream, body);
}

#endif

}  // namespace ashlar::precision
