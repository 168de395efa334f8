#include "ashlar/precision/block_formats.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"
#include "support/threads.hpp"

namespace ashlar::precision {
namespace {

using test::fixture;
using test::message_of;
using test::with_threads;

Tensor<double> array(const std::string& name) { return fixture("bie_quantization/" + name); }

/// Bytes of every element and scale, in order.
template <class F>
std::vector<std::uint8_t> bytes_of(const BlockMatrix<F>& packed) {
  std::vector<std::uint8_t> bytes;
  for (Index i = 0; i < packed.rows(); ++i)
    for (Index b = 0; b < packed.blocks(); ++b) {
      bytes.insert(bytes.end(), packed.elements(i, b), packed.elements(i, b) + F::element_bytes);
      bytes.insert(bytes.end(), packed.scale(i, b), packed.scale(i, b) + F::scale_bytes);
    }
  return bytes;
}

/// Values over the whole range the formats must survive: many binades, zeros, ties, an outlier channel.
template <class T>
Matrix<T> difficult(Rng& rng, Index rows, Index cols) {
  Matrix<T> x(rows, cols);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) {
      double v = rng.normal();
      const Index kind = rng.below(12);
      if (kind == 0) v = 0;
      if (kind == 1) v *= std::exp2(rng.uniform(-40, 40));
      if (kind == 2) v = static_cast<double>(rng.below(65)) / 16 - 2;  // ties of every format
      if (i % 5 == 3) v *= std::exp2(-120);
      if (i % 5 == 4) v *= std::exp2(80);
      if (i % 7 == 6 && j < 40) v = 0;
      x(i, j) = static_cast<T>(v);
    }
  return x;
}

template <class F>
void matches_fixture(const std::string& name, const std::string& codes) {
  INFO(name);
  const Tensor<double> x = array("x"), decoded = array(name + "_decoded"), exponent = array(name + "_e"),
                       code = array(name + codes);
  for (const bool by_reference : {false, true}) {
    const auto packed = by_reference ? reference::quantize<F>(x) : quantize<F>(x);
    const Tensor<double> back = test::copy_of<2>(dequantize<double>(packed));
    CHECK(test::max_difference(back, decoded) == 0);
    for (Index i = 0; i < packed.rows(); ++i)
      for (Index b = 0; b < packed.blocks(); ++b) {
        CHECK(packed.scale(i, b)[0] - 127 == exponent.view<2>()(i, b));
        for (Index k = 0; k < F::block; ++k) {
          int got = static_cast<int>(detail::get_code(packed.elements(i, b), F::element_bits, k));
          if constexpr (requires { F::max_magnitude; }) got &= F::max_magnitude;
          if (name == "mx_int8") got = static_cast<std::int8_t>(got);
          CHECK(got == code.view<3>()(i, b, k));
        }
      }
  }
}

TEST_CASE("precision.block_formats: block floating point matches the fixtures exactly") {
  matches_fixture<BlockFloat<16, 3>>("bfp_m3", "_mag");
  matches_fixture<BlockFloat<16, 7>>("bfp_m7", "_mag");
}

TEST_CASE("precision.block_formats: every MX element type matches the fixtures code by code") {
  matches_fixture<Mx<float4_e2m1>>("mx_e2m1", "_code");
  matches_fixture<Mx<float6_e2m3>>("mx_e2m3", "_code");
  matches_fixture<Mx<float6_e3m2>>("mx_e3m2", "_code");
  matches_fixture<Mx<float8_e4m3>>("mx_e4m3", "_code");
  matches_fixture<Mx<float8_e5m2>>("mx_e5m2", "_code");
  matches_fixture<Mx<std::int8_t>>("mx_int8", "_code");
}

TEST_CASE("precision.block_formats: integer groups match the fixtures") {
  const struct {
    std::string name;
    IntegerOptions options;
  } cases[] = {{"int4_g16", {.bits = 4, .group = 16}},
               {"int8_g128", {.bits = 8, .group = 128}},
               {"int4_g128", {.bits = 4, .group = 128}},
               {"int4a_g16", {.bits = 4, .group = 16, .asymmetric = true}}};
  const Tensor<double> x = array("x");
  for (const auto& [name, options] : cases) {
    INFO(name);
    const Tensor<double> scale = array(name + "_scale"), q = array(name + "_q"), decoded = array(name + "_decoded");
    const auto packed = quantize_integer(x, options);
    CHECK(test::relative_difference(test::copy_of<2>(dequantize<double>(packed)), decoded) < 1e-15);
    for (Index i = 0; i < packed.rows(); ++i)
      for (Index b = 0; b < packed.blocks(); ++b) {
        CHECK(packed.scale(i, b) == scale.view<2>()(i, b));
        if (options.asymmetric) {
          CHECK(packed.zero_point(i, b) == array(name + "_zero").view<2>()(i, b));
        }
        for (Index k = 0; k < packed.block_size(); ++k) CHECK(packed.code(i, b, k) == q.view<3>()(i, b, k));
      }
  }
}

template <class F>
void fast_equals_reference(const std::string& name) {
  INFO(name);
  for (const std::uint64_t seed : {1u, 2u}) {
    INFO("seed " << seed);
    Rng rng(seed);
    for (const Index cols : {1, 31, 32, 200}) {
      const auto x = difficult<float>(rng, 21, cols);
      const auto wanted = bytes_of(reference::quantize<F>(x));
      CHECK(bytes_of(quantize<F>(x)) == wanted);
      CHECK(bytes_of(quantize<F>(x.template cast<double>().eval())) == wanted);
      CHECK(bytes_of(quantize<F>(Eigen::MatrixXf(x))) == wanted);  // strided
      const auto wide = difficult<double>(rng, 21, cols);          // more digits than a float has
      CHECK(bytes_of(quantize<F>(wide)) == bytes_of(reference::quantize<F>(wide)));
      const Matrix<bfloat16> small = x.unaryExpr([](float v) { return round_to<bfloat16>(v); });
      CHECK(bytes_of(quantize<F>(small)) == bytes_of(reference::quantize<F>(small)));
    }
  }
}

TEST_CASE("precision.block_formats: the fast encoders equal the definitions bit for bit") {
  fast_equals_reference<BlockFloat<16, 3>>("bfp 16 3");
  fast_equals_reference<BlockFloat<16, 4>>("bfp 16 4");
  fast_equals_reference<BlockFloat<1, 1>>("bfp 1 1");
  fast_equals_reference<BlockFloat<5, 7>>("bfp 5 7");
  fast_equals_reference<Mx<float4_e2m1>>("e2m1");
  fast_equals_reference<Mx<float6_e2m3>>("e2m3");
  fast_equals_reference<Mx<float6_e3m2>>("e3m2");
  fast_equals_reference<Mx<float8_e4m3>>("e4m3");
  fast_equals_reference<Mx<float8_e5m2>>("e5m2");
  fast_equals_reference<Mx<std::int8_t>>("int8");
}

TEST_CASE("precision.block_formats: a double on the wrong side of a tie rounds once and not twice") {
  // 1.25 is the tie between 1 and 1.5 in E2M1; float would round the sum onto it.
  Matrix<double> x(1, 2);
  x << 4, 1.25 + 0x1p-40;
  CHECK(dequantize<double>(quantize<Mxfp4>(x))(0, 1) == 1.5);
  x(0, 1) = 1.25;
  CHECK(dequantize<double>(quantize<Mxfp4>(x))(0, 1) == 1);
}

TEST_CASE("precision.block_formats: doubles past the largest scale saturate under it") {
  const Matrix<double> x = Matrix<double>::Constant(1, 2, -0x1p200);
  const auto packed = quantize<Mxfp4>(x);
  CHECK(packed.scale(0, 0)[0] == 254);
  CHECK(dequantize<double>(packed)(0, 1) == -6 * 0x1p127);
}

TEST_CASE("precision.block_formats: minifloats hold exactly the numbers their names promise") {
  const auto largest = [](auto element) { return to_float(from_bits<decltype(element)>(Format<decltype(element)>::max_code)); };
  CHECK(largest(float4_e2m1{}) == 6);
  CHECK(largest(float6_e2m3{}) == 7.5f);
  CHECK(largest(float6_e3m2{}) == 28);
  CHECK(to_float(float4_e2m1{1}) == 0.5f);
  CHECK(to_float(float6_e2m3{1}) == 0.125f);
  CHECK(to_float(float6_e3m2{1}) == 0.0625f);
  CHECK(Mxfp4::max_exponent == 2);
  CHECK(Mx<float6_e3m2>::max_exponent == 4);
  CHECK(Mxfp8::max_exponent == 8);
  CHECK(Mx<float8_e5m2>::max_exponent == 15);
}

TEST_CASE("precision.block_formats: the error of an element is at most half a unit of its block") {
  Rng rng(5);
  const auto x = normal_matrix<double>(rng, 40, 96);
  const auto packed = quantize<Msfp12>(x);
  const auto back = dequantize<double>(packed);
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < x.cols(); ++j) {
      const double unit = std::ldexp(1.0, packed.scale(i, j / 16)[0] - 127 - 2);
      const bool clamped = std::abs(back(i, j)) == 7 * unit;
      CHECK(std::abs(x(i, j) - back(i, j)) <= (clamped ? unit : unit / 2));
    }
}

TEST_CASE("precision.block_formats: bits per element count the scales") {
  CHECK(Msfp12::bits_per_element == 4.5);
  CHECK(Msfp16::bits_per_element == 8.5);
  CHECK(Mxfp4::bits_per_element == 4.25);
  CHECK(Mxfp6::bits_per_element == 6.25);
  CHECK(Mxint8::bits_per_element == 8.25);
  CHECK(quantize_integer(Matrix<float>::Ones(2, 64).eval(), {.bits = 4, .group = 16}).bits_per_element() == 5);
}

TEST_CASE("precision.block_formats: zero blocks and zero groups decode to zero with the smallest scale") {
  const Matrix<float> zero = Matrix<float>::Zero(3, 40);
  CHECK(dequantize<float>(quantize<Msfp12>(zero)) == zero);
  CHECK(quantize<Msfp12>(zero).scale(0, 0)[0] == 0);
  CHECK(quantize<Mxfp4>(zero).scale(0, 0)[0] == 0);
  CHECK(dequantize<float>(quantize<Mxfp4>(zero)) == zero);
  for (const bool asymmetric : {false, true}) {
    const auto packed = quantize_integer(zero, {.bits = 4, .group = 16, .asymmetric = asymmetric});
    CHECK(packed.scale(1, 1) == 0);
    CHECK(dequantize<float>(packed) == zero);
  }
}

TEST_CASE("precision.block_formats: a scale code of 255 decodes to a block of NaN") {
  auto packed = quantize<Mxfp8>(Matrix<float>::Ones(1, 64).eval());
  packed.scale(0, 1)[0] = 255;
  const auto back = dequantize<float>(packed);
  CHECK(back.leftCols(32) == Matrix<float>::Ones(1, 32));
  CHECK(back.rightCols(32).array().isNaN().all());
}

TEST_CASE("precision.block_formats: products of decoded tiles equal the product of the decoded matrices") {
  Rng rng(9);
  const auto a = quantize<Msfp12>(normal_matrix<float>(rng, 9, 70));
  const auto w = quantize_integer(normal_matrix<float>(rng, 150, 70), {.bits = 8});
  const Matrix<double> wanted = dequantize<double>(a) * dequantize<double>(w).transpose();
  const Matrix<float> c = gemm_dequantized(a, w);
  // 70 products of magnitude below 5 x 5, each sum rounded in float
  CHECK((c.cast<double>() - wanted).cwiseAbs().maxCoeff() <= 70 * 70 * 25 * 0x1p-24);
  const auto serial = with_threads(1, [&] { return gemm_dequantized(a, w); });
  const auto parallel = with_threads(3, [&] { return gemm_dequantized(a, w); });
  CHECK(serial == parallel);
}

TEST_CASE("precision.block_formats: the same bytes for any number of threads") {
  Rng rng(12);
  const auto x = difficult<float>(rng, 700, 130);
  const auto one = with_threads(1, [&] { return bytes_of(quantize<Mxfp6>(x)); });
  CHECK(with_threads(3, [&] { return bytes_of(quantize<Mxfp6>(x)); }) == one);
}

TEST_CASE("precision.block_formats: storage types decode rounded to nearest and strided outputs are filled") {
  Rng rng(3);
  const auto x = normal_matrix<float>(rng, 5, 50);
  const auto packed = quantize<Msfp16>(x);
  const auto back = dequantize<float>(packed);
  const auto small = dequantize<half>(packed);
  Eigen::MatrixXd column_major(5, 50);
  dequantize(packed, column_major);
  for (Index i = 0; i < 5; ++i)
    for (Index j = 0; j < 50; ++j) {
      CHECK(to_float(small(i, j)) == to_float(round_to<half>(back(i, j))));
      CHECK(column_major(i, j) == back(i, j));
    }
  Matrix<float> two(2, 50);
  dequantize_rows(packed, 3, View<float, 2>(two));
  CHECK(two == back.bottomRows(2));
}

TEST_CASE("precision.block_formats: error measures follow their definitions") {
  Matrix<double> x(1, 4), y(1, 4);
  x << 1, 2, 3, 4;
  y << 1, 2, 3, 2;
  CHECK(quantization_mse(x, y) == 1);
  CHECK(std::abs(sqnr_db(x, y) - 10 * std::log10(7.5)) < 1e-12);
  CHECK(std::isinf(sqnr_db(x, x)));
  CHECK(message_of<InvalidArgument>([&] { quantization_mse(x, y.leftCols(3)); }) ==
        "quantization_mse: quantized has shape [1,3], expected [1,4] (same shape as x)");
  CHECK(message_of<InvalidArgument>([&] { quantization_mse(x.leftCols(0), y.leftCols(0)); }) ==
        "quantization_mse: x has no elements");
}

TEST_CASE("precision.block_formats: bad input is refused by name") {
  Matrix<float> x = Matrix<float>::Ones(3, 40);
  x(2, 33) = std::numeric_limits<float>::quiet_NaN();
  CHECK(message_of<NumericalError>([&] { quantize<Msfp12>(x); }) ==
        "quantize: x(2,33) is nan, expected a finite number");
  x(2, 33) = -std::numeric_limits<float>::infinity();
  CHECK(message_of<NumericalError>([&] { quantize<Mxfp4>(x); }) ==
        "quantize: x(2,33) is -inf, expected a finite number");
  CHECK(message_of<NumericalError>([&] { quantize_integer(x); }) ==
        "quantize_integer: x(2,33) is -inf, expected a finite number");
  x(2, 33) = 3e38f, x(2, 34) = -3e38f;
  CHECK(message_of<NumericalError>([&] { quantize_integer(x, {.asymmetric = true}); }) ==
        "quantize_integer: row 2 spans -3e+38 to 3e+38, too far for its type");
  CHECK(message_of<InvalidArgument>([&] { quantize_integer(x, {.bits = 9}); }) ==
        "quantize_integer: bits must be between 2 and 8, got 9");
  CHECK(message_of<InvalidArgument>([&] { quantize_integer(x, {.group = -1}); }) ==
        "quantize_integer: group must be not negative, got -1");
  const auto a = quantize<Msfp12>(Matrix<float>::Ones(2, 32).eval());
  const auto w = quantize<Msfp12>(Matrix<float>::Ones(2, 33).eval());
  CHECK(message_of<InvalidArgument>([&] { gemm_dequantized(a, w); }) ==
        "gemm_dequantized: a has 32 columns, w has 33");
  Matrix<float> out(2, 31);
  CHECK(message_of<InvalidArgument>([&] { dequantize(a, out); }) ==
        "dequantize: out has shape [2,31], expected [2,32] (the shape that was packed)");
}

}  // namespace
}  // namespace ashlar::precision
