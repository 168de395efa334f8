// The device bodies of bi_exponent.cuh, watched by HostBlock.
#include <cmath>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/precision/bi_exponent.cuh"
#include "ashlar/precision/bi_exponent_file.hpp"
#include "ashlar/precision/bi_exponent_product.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::precision {
namespace {

/// Host memory seen as a device view: HostBlock stands in for the device.
template <BiExponentFormat F>
DeviceBiExponent<F> watched(BiExponentMatrix<F>& packed) {
  const auto planes = packed.planes();
  const auto view = [&](std::size_t plane, Index bytes) {
    return View<std::uint8_t, 2, device>(planes[plane].data(), {packed.rows(), packed.blocks() * bytes});
  };
  return {view(0, F::element_bytes), view(1, F::selector_bytes), view(2, F::exponent_bytes), packed.cols()};
}

Matrix<float> operand(Rng& rng, Index rows, Index cols) {
  Matrix<float> x = normal_matrix<float>(rng, rows, cols);
  for (Index j = 3; j < cols; j += 17) x.col(j) *= 60;
  return x;
}

template <BiExponentFormat F>
void bodies_hold(Index rows, Index cols) {
  INFO("[" << rows << "," << cols << "], block " << F::block << ", M " << F::magnitude_bits);
  Rng rng(3);
  Matrix<float> x = operand(rng, rows, cols);
  auto wanted = quantize<F>(x, 4.0);
  BiExponentMatrix<F> packed(rows, cols);
  const detail::QuantizeBody<F> encode{View<const float, 2, device>(x.data(), {rows, cols}), 4.0f, watched(packed)};
  CHECK(run_on_host(encode.grid(), 32, encode) == HostBlock::shared_size<float>(encode.tile * encode.stride));
  CHECK(to_bytes(packed) == to_bytes(wanted));

  Matrix<float> decoded(rows, cols);
  const detail::DequantizeBody<F> decode{watched(wanted), View<float, 2, device>(decoded.data(), {rows, cols})};
  CHECK(run_on_host(decode.grid(), 32, decode) == 0);
  CHECK(decoded == dequantize<float>(wanted));
}

TEST_CASE("precision.bi_exponent: device bodies write the bytes and numbers of the host") {
  bodies_hold<BiE4>(3, 40);
  bodies_hold<BiE4>(2, 16 * 130 + 5);
  bodies_hold<BiExponent<16, 7, 5>>(3, 100);
  bodies_hold<BiExponent<13, 3, 6>>(3, 100);
}

TEST_CASE("precision.bi_exponent: the device product is the definition rounded in float") {
  Rng rng(4);
  for (const Index cols : {16, 50, 16 * 200 + 3}) {
    INFO("cols " << cols);
    auto x = quantize<BiExponent<16, 7, 5>>(operand(rng, 1, cols), 4.0);
    auto w = quantize<BiE4>(operand(rng, 5, cols), 2.0);
    Vector<float> y(5);
    const detail::GemvBody<BiExponent<16, 7, 5>, BiE4> body{watched(x), watched(w), View<float, 1, device>(y.data(), {5})};
    CHECK(run_on_host(body.grid(), 128, body) == HostBlock::shared_size<float>(body.lanes));
    const Matrix<double> wanted = reference::gemm(x, w);
    const Matrix<double> size = dequantize<double>(x).cwiseAbs() * dequantize<double>(w).cwiseAbs().transpose();
    // at most four additions a block and seven halvings
    const double roundings = 4.0 * static_cast<double>(w.blocks()) + 8;
    for (Index j = 0; j < 5; ++j)
      CHECK(std::abs(static_cast<double>(y[j]) - wanted(0, j)) <= roundings * 0x1p-24 * size(0, j));
  }
}

TEST_CASE("precision.bi_exponent: device planes of the wrong size are refused") {
  BiExponentMatrix<BiE4> packed(2, 40);
  auto planes = watched(packed);
  detail::check_planes(planes, "gemv", "w");
  planes.cols = 60;
  CHECK(test::message_of<InvalidArgument>([&] { detail::check_planes(planes, "gemv", "w"); }) ==
        "gemv: w has shape [2,24], expected [2,32] (bytes of a plane)");
}

}  // namespace
}  // namespace ashlar::precision
