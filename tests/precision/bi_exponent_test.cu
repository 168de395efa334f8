#include "ashlar/precision/bi_exponent.cuh"

#include <cmath>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda.hpp"

namespace ashlar::precision {
namespace {

using test::DeviceArray;

constexpr Index rows = 37, cols = 16 * 70 + 9;

std::vector<float> waves(Index count, double step) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto t = static_cast<double>(i);
    x[i] = static_cast<float>(std::sin(step * t) * (i % 29 == 5 ? 40 : 1));
  }
  return x;
}

/// The three planes of a matrix on the device.
template <BiExponentFormat F>
struct Planes {
  DeviceArray<std::uint8_t> elements, selectors, exponents;
  Index rows, cols;

  explicit Planes(const BiExponentMatrix<F>& packed)
      : elements(bytes(packed, 0)), selectors(bytes(packed, 1)), exponents(bytes(packed, 2)), rows(packed.rows()),
        cols(packed.cols()) {}

  DeviceBiExponent<F> view() {
    const Index blocks = (cols + F::block - 1) / F::block;
    return {elements.view<2>({rows, blocks * F::element_bytes}), selectors.view<2>({rows, blocks * F::selector_bytes}),
            exponents.view<2>({rows, blocks * F::exponent_bytes}), cols};
  }

  static std::vector<std::uint8_t> bytes(const BiExponentMatrix<F>& packed, std::size_t plane) {
    const auto span = packed.planes()[plane];
    return {span.begin(), span.end()};
  }
};

TEST_CASE("precision.bi_exponent: quantise dequantise and product on the device equal the host") {
  auto x = waves(rows * cols, 0.37);
  const View<const float, 2> host_x(x.data(), {rows, cols});
  const auto wanted = quantize<BiE4>(host_x, 4.0);

  DeviceArray<float> x_(x), decoded_(x);
  Planes<BiE4> packed(BiExponentMatrix<BiE4>(rows, cols));
  quantize<BiE4>(x_.view<2>({rows, cols}), 4.0, packed.view(), nullptr);
  CHECK(packed.elements.to_host() == Planes<BiE4>::bytes(wanted, 0));
  CHECK(packed.selectors.to_host() == Planes<BiE4>::bytes(wanted, 1));
  CHECK(packed.exponents.to_host() == Planes<BiE4>::bytes(wanted, 2));

  dequantize<BiE4>(packed.view(), decoded_.view<2>({rows, cols}), nullptr);
  const Matrix<float> back = dequantize<float>(wanted);
  CHECK(decoded_.to_host() == std::vector<float>(back.data(), back.data() + back.size()));

  auto token = quantize<BiE4>(host_x.slice(0, 3, 4), 4.0);
  Planes<BiE4> token_(token);
  DeviceArray<float> y_(std::vector<float>(static_cast<std::size_t>(rows)));
  gemv<BiE4, BiE4>(token_.view(), packed.view(), y_.view<1>({rows}), nullptr);
  const auto y = y_.to_host();
  const Matrix<double> w = dequantize<double>(wanted), t = dequantize<double>(token);
  for (Index j = 0; j < rows; ++j) {
    double sum = 0, size = 0;
    for (Index k = 0; k < cols; ++k) sum += w(j, k) * t(0, k), size += std::abs(w(j, k) * t(0, k));
    const double roundings = 4.0 * static_cast<double>(token.blocks()) + 8;
    CHECK(std::abs(static_cast<double>(y[static_cast<std::size_t>(j)]) - sum) <= roundings * 0x1p-24 * size);
  }
}

}  // namespace
}  // namespace ashlar::precision
