#include "ashlar/precision/bi_exponent.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/precision/bi_exponent_file.hpp"
#include "support/allocations.hpp"
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

constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor<double> array(const std::string& name) { return fixture("bie_quantization/" + name); }

double threshold_of(const std::string& name) { return array("params").data()[name == "x" ? 0 : 1]; }

/// Normal numbers with outlier columns, rounded to eleven bits so that ties occur, and rows of special blocks.
template <class T>
Matrix<T> activations(Rng& rng, Index rows, Index cols) {
  Matrix<T> x(rows, cols);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) {
      double v = to_float(round_to<half>(static_cast<float>(rng.normal() * (j % 23 == 5 ? 40 : 1))));
      if (i % 6 == 1) v = std::ldexp(v, static_cast<int>(rng.below(60)) - 30);
      if (i % 6 == 2) v = static_cast<double>(rng.below(65)) / 16 - 2;
      if (i % 6 == 3 && j < 20) v = 0;
      if (i % 6 == 4) v *= j % 2 ? 1e-4 : 0;
      x(i, j) = static_cast<T>(v);
    }
  return x;
}

template <class F>
void matches_fields(const BiExponentMatrix<F>& packed, const std::string& name) {
  const auto sign = array(name + "_sign"), flag = array(name + "_flag"), mag = array(name + "_mag"), e = array(name + "_e");
  for (Index i = 0; i < packed.rows(); ++i)
    for (Index b = 0; b < packed.blocks(); ++b) {
      const auto block = packed.block(i, b);
      for (Index k = 0; k < F::block; ++k) {
        CHECK(std::abs(block.value(k)) == mag.view<3>()(i, b, k));
        CHECK((block.value(k) < 0) == (sign.view<3>()(i, b, k) == 1));
        CHECK(block.outlier(k) == (flag.view<3>()(i, b, k) == 1));
      }
      for (const bool g : {false, true}) CHECK(block.exponent(g) == e.view<3>()(i, b, g));
    }
}

template <class F>
Tensor<double> decoded(const BiExponentMatrix<F>& packed) {
  return test::copy_of<2>(dequantize<double>(packed));
}

TEST_CASE("precision.bi_exponent: fields and packed bytes match the fixtures exactly") {
  for (const std::string name : {"x", "w"}) {
    INFO(name);
    const Tensor<double> input = array(name);
    const double threshold = threshold_of(name);
    const auto bytes = array("bie_" + name + "_bytes"), flags = array("bie_" + name + "_flags16"),
               exponents = array("bie_" + name + "_exps10");
    for (const bool by_reference : {false, true}) {
      const auto packed = by_reference ? reference::quantize<BiE4>(input, threshold) : quantize<BiE4>(input, threshold);
      matches_fields(packed, "bie_" + name);
      CHECK(test::max_difference(decoded(packed), array("bie_" + name + "_decoded")) == 0);
      for (Index i = 0; i < packed.rows(); ++i)
        for (Index b = 0; b < packed.blocks(); ++b) {
          for (Index k = 0; k < 8; ++k) CHECK(packed.elements(i, b)[k] == bytes.view<3>()(i, b, k));
          CHECK((packed.selectors(i, b)[0] | packed.selectors(i, b)[1] << 8) == flags.view<2>()(i, b));
          CHECK((packed.exponents(i, b)[0] | packed.exponents(i, b)[1] << 8) == exponents.view<2>()(i, b));
        }
    }
    // The inputs are FP16 numbers, so float loses nothing.
    CHECK(to_bytes(quantize<BiE4>(dequantize<float>(quantize<BiE4>(input, threshold)), threshold)) ==
          to_bytes(quantize<BiE4>(dequantize<double>(quantize<BiE4>(input, threshold)), threshold)));
  }
}

TEST_CASE("precision.bi_exponent: truncation and bumped exponents match the fixtures exactly") {
  for (const std::string name : {"x", "w"}) {
    INFO(name);
    const Tensor<double> input = array(name);
    const double threshold = threshold_of(name);
    CHECK(test::max_difference(decoded(quantize<BiE4>(input, threshold, {.rounding = Rounding::truncate})),
                               array("bie_" + name + "_trunc_decoded")) == 0);
    const auto bumped = quantize<BiE4>(input, threshold, {.carry = Carry::bump_exponent});
    CHECK(test::max_difference(decoded(bumped), array("bie_" + name + "_bump_decoded")) == 0);
    const auto e = array("bie_" + name + "_bump_e");
    for (Index i = 0; i < bumped.rows(); ++i)
      for (Index b = 0; b < bumped.blocks(); ++b)
        for (const bool g : {false, true}) CHECK(bumped.block(i, b).exponent(g) == e.view<3>()(i, b, g));
  }
}

TEST_CASE("precision.bi_exponent: the wide format matches the fixture") {
  const auto packed = quantize<BiE8>(array("x"), threshold_of("x"));
  CHECK(test::max_difference(decoded(packed), array("bie_m7n32_decoded")) == 0);
  const auto e = array("bie_m7n32_e");
  for (Index i = 0; i < packed.rows(); ++i)
    for (Index b = 0; b < packed.blocks(); ++b)
      for (const bool g : {false, true}) CHECK(packed.block(i, b).exponent(g) == e.view<3>()(i, b, g));
}

TEST_CASE("precision.bi_exponent: adaptive thresholds match the fixtures") {
  for (const std::string name : {"x", "w"}) {
    INFO(name);
    const Tensor<double> input = array(name);
    const auto wanted = array("bie_" + name + "_adaptive_T");
    CHECK(test::max_difference(test::copy_of<2>(adaptive_thresholds<BiE4>(input)), wanted) == 0);
    CHECK(test::max_difference(test::copy_of<2>(reference::adaptive_thresholds<BiE4>(input)), wanted) == 0);
    CHECK(test::max_difference(decoded(quantize_adaptive<BiE4>(input)), array("bie_" + name + "_adaptive_decoded")) == 0);
  }
}

template <class F, class T>
void fast_equals_reference() {
  for (const std::uint64_t seed : {1u, 2u}) {
    INFO("seed " << seed << ", block " << F::block << ", M " << F::magnitude_bits << ", E " << F::exponent_bits);
    Rng rng(seed);
    for (const Index cols : {1, 15, 16, 17, 130, 300}) {
      const auto x = activations<T>(rng, 12, cols);
      for (const double threshold : {0.0, 1.0, 1.7, 4.0, std::exp2(F::max_exponent), infinity})
        for (const BiExponentOptions options :
             {BiExponentOptions{}, {.rounding = Rounding::truncate}, {.carry = Carry::bump_exponent}}) {
          const auto wanted = to_bytes(reference::quantize<F>(x, threshold, options));
          CHECK(to_bytes(quantize<F>(x, threshold, options)) == wanted);
          BiExponentMatrix<F> portable(x.rows(), x.cols());
          detail::encode(detail::Portable{}, View<const T, 2>(x), threshold, options, portable);
          CHECK(to_bytes(portable) == wanted);
        }
    }
  }
}

TEST_CASE("precision.bi_exponent: the fast encoders equal the definition bit for bit") {
  fast_equals_reference<BiE4, float>();
  fast_equals_reference<BiE4, double>();
  fast_equals_reference<BiE8, float>();
  fast_equals_reference<BiE8, double>();
  fast_equals_reference<BiExponent<16, 7, 5>, float>();
  fast_equals_reference<BiExponent<16, 2, 6>, float>();
  fast_equals_reference<BiExponent<16, 4, 3>, float>();
  fast_equals_reference<BiExponent<13, 3, 5>, float>();
  fast_equals_reference<BiExponent<1, 3, 5>, float>();
  fast_equals_reference<BiExponent<16, 3, 8>, float>();
}

TEST_CASE("precision.bi_exponent: half and bfloat16 sources and strided views give the bytes of their float copies") {
  Rng rng(4);
  const Matrix<float> x = activations<float>(rng, 9, 75).cwiseMin(6e4f).cwiseMax(-6e4f);  // the range of half
  const auto check = [&](auto tag) {
    using S = decltype(tag);
    const Matrix<S> small = x.unaryExpr([](float v) { return round_to<S>(v); });
    const Matrix<float> wide = small.unaryExpr([](S v) { return to_float(v); });
    CHECK(to_bytes(quantize<BiE4>(small, 4)) == to_bytes(quantize<BiE4>(wide, 4)));
  };
  check(half{});
  check(bfloat16{});
  CHECK(to_bytes(quantize<BiE4>(Eigen::MatrixXf(x), 4)) == to_bytes(quantize<BiE4>(x, 4)));
  const Matrix<float> turned = x.transpose();
  CHECK(to_bytes(quantize<BiE4>(turned.transpose(), 4)) == to_bytes(quantize<BiE4>(x, 4)));
}

TEST_CASE("precision.bi_exponent: decoding a decoded matrix again changes nothing") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    INFO("seed " << seed);
    Rng rng(seed);
    const auto x = activations<double>(rng, 64, 256);
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::truncate})
      for (const int j : {-14, -2, 0, 1, 2, 5, 16}) {
        const double threshold = std::ldexp(1.0, j);
        const auto once = quantize<BiE4>(x, threshold, {.rounding = rounding});
        const auto twice = quantize<BiE4>(dequantize<double>(once), threshold, {.rounding = rounding});
        CHECK(dequantize<double>(once) == dequantize<double>(twice));
      }
  }
}

TEST_CASE("precision.bi_exponent: the error stays within half a step or within one where it was clamped or cut") {
  Rng rng(6);
  const auto x = activations<double>(rng, 60, 200);
  for (const Rounding rounding : {Rounding::nearest_even, Rounding::truncate})
    for (const double threshold : {1.0, 4.0, infinity}) {
      const auto packed = quantize<BiE4>(x, threshold, {.rounding = rounding});
      const auto back = dequantize<double>(packed);
      for (Index i = 0; i < x.rows(); ++i)
        for (Index j = 0; j < x.cols(); ++j) {
          if (std::abs(x(i, j)) >= 0x1p17) continue;
          const auto block = packed.block(i, j / 16);
          const double step = std::ldexp(1.0, block.exponent(block.outlier(j % 16)) - 2);
          const double gap = std::abs(x(i, j) - back(i, j));
          const bool half = rounding == Rounding::nearest_even && std::abs(block.value(j % 16)) < 7;
          CHECK((half ? gap <= step / 2 : gap < step));
        }
    }
}

TEST_CASE("precision.bi_exponent: without outliers it is block floating point of the same exponent range") {
  Rng rng(7);
  const auto x = activations<double>(rng, 30, 100);
  using Wide = BiExponent<16, 3, 8>;
  CHECK(dequantize<double>(quantize<Wide>(x, infinity)) == dequantize<double>(quantize<Msfp12>(x)));
  CHECK(dequantize<double>(quantize<Wide>(x, 0)) == dequantize<double>(quantize<Msfp12>(x)));
}

TEST_CASE("precision.bi_exponent: permuting the elements of a block permutes its fields and nothing else") {
  Rng rng(8);
  const auto x = activations<double>(rng, 20, 16);
  const auto order = rng.permutation(16);
  Matrix<double> shuffled(20, 16);
  for (Index k = 0; k < 16; ++k) shuffled.col(k) = x.col(order[static_cast<std::size_t>(k)]);
  const auto a = quantize<BiE4>(x, 2.0), b = quantize<BiE4>(shuffled, 2.0);
  for (Index i = 0; i < 20; ++i) {
    CHECK(a.block(i, 0).unpack().exponent == b.block(i, 0).unpack().exponent);
    for (Index k = 0; k < 16; ++k) {
      CHECK(a.block(i, 0).value(order[static_cast<std::size_t>(k)]) == b.block(i, 0).value(k));
      CHECK(a.block(i, 0).outlier(order[static_cast<std::size_t>(k)]) == b.block(i, 0).outlier(k));
    }
  }
}

TEST_CASE("precision.bi_exponent: adaptive blocks err no more than under any one power of two") {
  Rng rng(9);
  const auto x = activations<double>(rng, 40, 80);
  const auto own = dequantize<double>(quantize_adaptive<BiE4>(x));
  const auto block_error = [&](const Matrix<double>& y, Index i, Index b) {
    return (y.row(i) - x.row(i)).segment(16 * b, 16).squaredNorm();
  };
  for (int j = -20; j <= 17; ++j) {
    const auto fixed = dequantize<double>(quantize<BiE4>(x, std::ldexp(1.0, j)));
    for (Index i = 0; i < x.rows(); ++i)
      for (Index b = 0; b < 5; ++b) CHECK(block_error(own, i, b) <= block_error(fixed, i, b) * (1 + 0x1p-48));
  }
}

TEST_CASE("precision.bi_exponent: adaptive thresholds equal the definition for every format and source") {
  Rng rng(10);
  const auto x = activations<float>(rng, 24, 70);
  CHECK(adaptive_thresholds<BiE4>(x) == reference::adaptive_thresholds<BiE4>(x));
  CHECK(adaptive_thresholds<BiE8>(x) == reference::adaptive_thresholds<BiE8>(x));
  CHECK(adaptive_thresholds<BiExponent<7, 2, 4>>(x) == reference::adaptive_thresholds<BiExponent<7, 2, 4>>(x));
}

TEST_CASE("precision.bi_exponent: bumping an exponent happens for a carry and never past the largest") {
  Matrix<double> x(1, 2);
  x << 1.9375, 1.0;
  CHECK(dequantize<double>(quantize<BiE4>(x, infinity))(0, 0) == 1.75);
  const auto bumped = quantize<BiE4>(x, infinity, {.carry = Carry::bump_exponent});
  CHECK(dequantize<double>(bumped)(0, 0) == 2);
  CHECK(bumped.block(0, 0).exponent(false) == 1);
  x *= 0x1p16;
  const auto top = quantize<BiE4>(x, infinity, {.carry = Carry::bump_exponent});
  CHECK(top.block(0, 0).exponent(false) == 16);
  CHECK(dequantize<double>(top)(0, 0) == BiE4::largest());
}

TEST_CASE("precision.bi_exponent: edge cases decode as the format says") {
  SECTION("a zero block has every field at its minimum") {
    const auto packed = quantize<BiE4>(Matrix<float>::Zero(2, 20).eval(), 1.0);
    for (const auto plane : packed.planes())
      for (const auto byte : plane) CHECK(byte == 0);
    CHECK(to_bytes(packed) == to_bytes(BiExponentMatrix<BiE4>(2, 20)));
  }
  SECTION("an element exactly at the threshold is an outlier") {
    Matrix<double> x(1, 3);
    x << 4.0, std::nextafter(4.0, 0.0), -4.0;
    const auto packed = quantize<BiE4>(x, 4.0);
    const auto block = packed.block(0, 0).unpack();
    CHECK(block.outlier[0]);
    CHECK_FALSE(block.outlier[1]);
    CHECK(block.outlier[2]);
  }
  SECTION("a threshold that float cannot hold decides as in double") {
    Matrix<float> x(1, 2);
    x << 0.1f, std::nextafter(0.1f, 0.0f);
    const auto packed = quantize<BiE4>(x, 0.1);  // 0.1f > 0.1 > its neighbour
    CHECK(packed.block(0, 0).outlier(0));
    CHECK_FALSE(packed.block(0, 0).outlier(1));
    const auto below = quantize<BiE4>(Matrix<float>::Constant(1, 1, 0.7f).eval(), 0.7);  // 0.7f < 0.7
    CHECK_FALSE(below.block(0, 0).outlier(0));
  }
  SECTION("no negative zero") {
    Matrix<float> x(1, 3);
    x << -0.0f, -1e-3f, 1.0f;
    const auto back = dequantize<float>(quantize<BiE4>(x, infinity));
    CHECK_FALSE(std::signbit(back(0, 0)));
    CHECK_FALSE(std::signbit(back(0, 1)));
  }
  SECTION("numbers past the largest saturate, numbers below the smallest grid vanish") {
    Matrix<float> x(1, 2);
    x << -1e30f, 1e-30f;
    const auto back = dequantize<double>(quantize<BiE4>(x, 1.0));
    CHECK(back(0, 0) == -BiE4::largest());
    CHECK(back(0, 1) == 0);
  }
  SECTION("subnormal floats keep their value in the wide format up to its smallest grid") {
    Matrix<float> x(1, 2);
    x << 0x1p-130f, -0x1p-128f;
    const auto back = dequantize<double>(quantize<BiE8>(x, infinity));
    CHECK(back(0, 0) == 0x1p-130);
    CHECK(back(0, 1) == -0x1p-128);
  }
  SECTION("one outlier does not flush its neighbours") {
    Matrix<float> x = Matrix<float>::Constant(1, 16, 0.75f);
    x(0, 7) = 96;
    CHECK(dequantize<float>(quantize<BiE4>(x, 4.0)) == x);
    CHECK(dequantize<float>(quantize<BiE4>(x, infinity))(0, 0) == 0);
  }
  SECTION("infinities count as the largest number if asked to") {
    Matrix<float> x(1, 3);
    x << std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), 1;
    const auto back = dequantize<double>(quantize<BiE4>(x, 4.0, {.saturate_infinity = true}));
    CHECK(back(0, 0) == BiE4::largest());
    CHECK(back(0, 1) == -BiE4::largest());
    CHECK(back(0, 2) == 1);
    x(0, 2) = std::numeric_limits<float>::quiet_NaN();
    CHECK(message_of<NumericalError>([&] { quantize<BiE4>(x, 4.0, {.saturate_infinity = true}); }) ==
          "quantize: x(0,2) is nan, expected a finite number");
  }
  SECTION("empty matrices") {
    CHECK(quantize<BiE4>(Matrix<float>(0, 16), 1.0).rows() == 0);
    CHECK(dequantize<float>(quantize<BiE4>(Matrix<float>(3, 0), 1.0)).size() == 0);
  }
}

TEST_CASE("precision.bi_exponent: bits per element are those of the paper") {
  CHECK(BiE4::bits_per_element == 5.625);
  CHECK(std::abs(16 / BiE4::bits_per_element - 2.84) < 0.01);
  CHECK(BiE4::packed_bits_per_element == 6);
  CHECK(BiE4::max_exponent == 16);
  CHECK(BiE8::max_exponent == 127);
}

TEST_CASE("precision.bi_exponent: blocks unpack and pack without loss") {
  Rng rng(11);
  const auto check = [&](auto tag) {
    using F = decltype(tag);
    const auto packed = quantize<F>(activations<float>(rng, 8, 50), 2.0);
    BiExponentMatrix<F> copy(8, 50);
    for (Index i = 0; i < 8; ++i)
      for (Index b = 0; b < packed.blocks(); ++b) copy.set_block(i, b, packed.block(i, b).unpack());
    CHECK(to_bytes(copy) == to_bytes(packed));
  };
  check(BiE4{});
  check(BiE8{});
  check(BiExponent<13, 3, 5>{});
  check(BiExponent<11, 5, 7>{});
}

TEST_CASE("precision.bi_exponent: decoding writes the columns it was asked for and no others") {
  Rng rng(17);
  for (const Index cols : {16, 27, 31, 130, 300}) {
    INFO("cols " << cols);
    const auto packed = quantize<BiE4>(activations<float>(rng, 4, cols), 2.0);
    Matrix<float> wide = Matrix<float>::Constant(5, cols + 40, 9);
    dequantize(packed, wide.topLeftCorner(4, cols));
    CHECK(wide.topRightCorner(4, 40) == Matrix<float>::Constant(4, 40, 9));
    CHECK(wide.row(4) == Matrix<float>::Constant(1, cols + 40, 9));
    for (Index i = 0; i < 4; ++i)
      for (Index j = 0; j < cols; ++j) {
        const auto block = packed.block(i, j / 16);
        const int e = block.exponent(block.outlier(j % 16)) - 2;
        CHECK(static_cast<double>(wide(i, j)) == std::ldexp(block.value(j % 16), e));
      }
  }
}

TEST_CASE("precision.bi_exponent: quantising in place of the data gives the decoded numbers") {
  Rng rng(12);
  auto x = activations<float>(rng, 10, 77);
  const Matrix<float> wanted = dequantize<float>(quantize<BiE4>(x, 2.0));
  CHECK(fake_quantize<BiE4>(x, 2.0) == wanted);
  fake_quantize<BiE4>(x, 2.0, View<float, 2>(x));
  CHECK(x == wanted);
}

TEST_CASE("precision.bi_exponent: the forms that write into their output allocate nothing") {
  Rng rng(13);
  const auto x = activations<float>(rng, 16, 128);
  BiExponentMatrix<BiE4> packed(16, 128);
  Matrix<float> out(16, 128);
  with_threads(1, [&] {
    CHECK(test::allocations([&] { quantize<BiE4>(x, 2.0, packed); }) == 0);
    CHECK(test::allocations([&] { dequantize(packed, out); }) == 0);
    CHECK(test::allocations([&] { fake_quantize<BiE4>(x, 2.0, View<float, 2>(out)); }) == 0);
  });
  CHECK(to_bytes(packed) == to_bytes(quantize<BiE4>(x, 2.0)));
}

TEST_CASE("precision.bi_exponent: the same bytes for any number of threads") {
  Rng rng(14);
  const auto x = activations<float>(rng, 600, 200);
  const auto all = [&] {
    auto bytes = to_bytes(quantize<BiE4>(x, 2.0));
    const auto adaptive = to_bytes(quantize_adaptive<BiE4>(x.topRows(40)));
    bytes.insert(bytes.end(), adaptive.begin(), adaptive.end());
    return bytes;
  };
  CHECK(with_threads(1, all) == with_threads(4, all));
}

TEST_CASE("precision.bi_exponent: bad input is refused by name and leaves the output alone") {
  Matrix<float> x = Matrix<float>::Ones(40, 32);
  CHECK(message_of<InvalidArgument>([&] { quantize<BiE4>(x, -1.0); }) ==
        "quantize: threshold must be not negative and not NaN, got -1");
  CHECK(message_of<InvalidArgument>([&] { quantize<BiE4>(x, std::nan("")); }) ==
        "quantize: threshold must be not negative and not NaN, got nan");
  CHECK(message_of<InvalidArgument>([&] {
          quantize<BiE4>(x, 1.0, {.rounding = Rounding::truncate, .carry = Carry::bump_exponent});
        }) == "quantize: Carry::bump_exponent needs Rounding::nearest_even: truncation never carries");
  BiExponentMatrix<BiE4> wrong(40, 31), packed(40, 32);
  CHECK(message_of<InvalidArgument>([&] { quantize<BiE4>(x, 1.0, wrong); }) ==
        "quantize: packed has shape [40,31], expected [40,32] (the shape of x)");
  x(39, 31) = std::numeric_limits<float>::quiet_NaN();
  CHECK(message_of<NumericalError>([&] { quantize<BiE4>(x, 1.0); }) ==
        "quantize: x(39,31) is nan, expected a finite number");
  CHECK(message_of<NumericalError>([&] { quantize<BiE4>(x, 1.0, packed); }) ==
        "quantize: x(39,31) is nan, expected a finite number");
  CHECK(to_bytes(packed) == to_bytes(BiExponentMatrix<BiE4>(40, 32)));
  Matrix<float> out = Matrix<float>::Constant(40, 32, 3);
  CHECK(message_of<NumericalError>([&] { fake_quantize<BiE4>(x, 1.0, View<float, 2>(out)); }) ==
        "fake_quantize: x(39,31) is nan, expected a finite number");
  CHECK(out == Matrix<float>::Constant(40, 32, 3));
  CHECK(message_of<NumericalError>([&] { quantize_adaptive<BiE4>(x); }) ==
        "quantize_adaptive: x(39,31) is nan, expected a finite number");
  CHECK(message_of<InvalidArgument>([&] {
          fake_quantize<BiE4>(out.topRows(39), 1.0, View<float, 2>(out).slice(0, 1, 40));
        }) == "fake_quantize: out overlaps x without being x");
}

}  // namespace
}  // namespace ashlar::precision
