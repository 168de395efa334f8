#include "ashlar/precision/bi_exponent_product.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
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

Tensor<double> array(const std::string& name) { return fixture("bie_quantization/" + name); }

using BiE8Narrow = BiExponent<16, 7, 5>;  // eight bits an element, the paper's exponents

/// Normal numbers whose outlier columns reach from a little to very far above the rest, and blocks of one kind only.
Matrix<float> operand(Rng& rng, Index rows, Index cols) {
  Matrix<float> x = normal_matrix<float>(rng, rows, cols);
  for (Index j = 3; j < cols; j += 17) x.col(j) *= static_cast<float>(std::exp2(rng.uniform(2, 15)));
  for (Index i = 2; i < rows; i += 5) x.row(i) *= 0x1p-9f;
  if (rows > 1) x.row(1).setConstant(20);
  if (rows > 3) x.row(3).leftCols(cols / 2).setZero();
  return x;
}

/// sum |a_k w_k|, which bounds every rounding of the sum of products.
template <class FA, class FW>
Matrix<double> magnitude(const BiExponentMatrix<FA>& a, const BiExponentMatrix<FW>& w) {
  return dequantize<double>(a).cwiseAbs() * dequantize<double>(w).cwiseAbs().transpose();
}

/// Products of both forms add a few float terms a block: at most 4 * blocks + 4 roundings of partial sums.
template <class FA, class FW>
bool close(const Matrix<float>& c, const Matrix<double>& wanted, const BiExponentMatrix<FA>& a,
           const BiExponentMatrix<FW>& w) {
  const double roundings = 8.0 * static_cast<double>(a.blocks()) + 8;
  return ((c.cast<double>() - wanted).array().abs() <= roundings * 0x1p-24 * magnitude(a, w).array()).all();
}

TEST_CASE("precision.bi_exponent_product: integer sums and products match the fixtures") {
  const auto params = array("params");
  const auto a = quantize<BiE4>(array("x"), params.data()[0]), w = quantize<BiE4>(array("w"), params.data()[1]);
  const auto partials = array("gemm_partials");
  for (Index i = 0; i < 6; ++i)
    for (Index j = 0; j < 4; ++j)
      for (Index b = 0; b < a.blocks(); ++b) {
        const auto sums = reference::partial_sums(a.block(i, b).unpack(), w.block(j, b).unpack());
        for (Index p = 0; p < 4; ++p) CHECK(sums[static_cast<std::size_t>(p)] == partials.view<4>()(i, j, b, p));
      }
  CHECK(test::max_difference(test::copy_of<2>(reference::gemm(a, w)), array("gemm_c")) == 0);
  const auto a7 = quantize<BiE8Narrow>(array("x"), params.data()[0]);
  CHECK(test::max_difference(test::copy_of<2>(reference::gemm(a7, w)), array("gemm_m7m3_c")) == 0);
  CHECK(close(gemm(a, w), reference::gemm(a, w), a, w));
  CHECK(close(gemm(a7, w), reference::gemm(a7, w), a7, w));
}

TEST_CASE("precision.bi_exponent_product: the definition is the product of the decoded matrices") {
  Rng rng(1);
  const auto a = quantize<BiE4>(operand(rng, 9, 100), 4.0), w = quantize<BiE4>(operand(rng, 7, 100), 2.0);
  const Matrix<double> decoded = dequantize<double>(a) * dequantize<double>(w).transpose();
  const Matrix<double> integer = reference::gemm(a, w);
  CHECK((decoded - integer).cwiseAbs().maxCoeff() <= 1e-12 * integer.cwiseAbs().maxCoeff());
}

TEST_CASE("precision.bi_exponent_product: the shift form equals the four sums exactly") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    INFO("seed " << seed);
    Rng rng(seed);
    // thresholds that leave groups empty on either side
    for (const double t : {0.0, 0.5, 4.0, 64.0, std::numeric_limits<double>::infinity()}) {
      const auto a = quantize<BiE4>(operand(rng, 8, 64), t);
      const auto w = quantize<BiE8Narrow>(operand(rng, 8, 64), 2.0);
      for (Index i = 0; i < 8; ++i)
        for (Index j = 0; j < 8; ++j)
          for (Index b = 0; b < 4; ++b) {
            const auto left = a.block(i, b).unpack();
            const auto right = w.block(j, b).unpack();
            CHECK(reference::block_dot(left, right) == reference::block_dot_shifted(left, right));
          }
    }
  }
}

template <class FA, class FW>
void product_holds(const BiExponentMatrix<FA>& a, const BiExponentMatrix<FW>& w) {
  const Matrix<float> c = gemm(a, w);
  CHECK(close(c, reference::gemm(a, w), a, w));
  Matrix<float> portable(a.rows(), w.rows());
  GemmWorkspace<FA, FW> workspace;
  detail::gemm(detail::Portable{}, a, w, View<float, 2>(portable), workspace.scratch);
  CHECK(portable == c);
}

template <class FA, class FW>
void gemm_holds(Index rows, Index outputs, Index cols) {
  INFO("[" << rows << "," << cols << "] x [" << outputs << "," << cols << "], M " << FA::magnitude_bits << " and "
           << FW::magnitude_bits << ", block " << FA::block);
  Rng rng(static_cast<std::uint64_t>(rows * 1000 + cols));
  const auto x = operand(rng, rows, cols), y = operand(rng, outputs, cols);
  product_holds(quantize<FA>(x, 4.0), quantize<FW>(y, 2.0));
  product_holds(quantize<FA>(x, 0.0), quantize<FW>(y, std::numeric_limits<double>::infinity()));  // one empty group
}

TEST_CASE("precision.bi_exponent_product: gemm is the definition rounded in float and the same on every path") {
  for (const Index rows : {1, 6, 7, 20})
    for (const Index outputs : {1, 31, 33, 70}) gemm_holds<BiE4, BiE4>(rows, outputs, 200);
  for (const Index cols : {1, 15, 16, 17, 64, 129}) gemm_holds<BiE4, BiE4>(5, 40, cols);
  gemm_holds<BiE8Narrow, BiE4>(7, 35, 150);
  gemm_holds<BiE4, BiE8Narrow>(7, 35, 150);
  gemm_holds<BiE8Narrow, BiE8Narrow>(7, 35, 150);
  gemm_holds<BiExponent<13, 3, 5>, BiExponent<13, 5, 6>>(7, 35, 150);
  gemm_holds<BiE8, BiE8>(7, 35, 150);
  gemm_holds<BiExponent<1, 3, 5>, BiExponent<1, 3, 5>>(3, 5, 20);
}

/// One block of +-7, all but the last element outliers, whose exponents differ by `shift`.
template <class F>
BiExponentMatrix<F> spread_block(int shift) {
  BiExponentBlock<F> block;
  block.value.fill(F::max_magnitude);
  block.outlier.fill(true);
  block.outlier.back() = false;
  block.exponent = {-5, -5 + shift};
  BiExponentMatrix<F> packed(1, F::block);
  packed.set_block(0, 0, block);
  return packed;
}

template <class FA, class FW>
void every_shift_holds() {
  for (int left = -3; left <= 16; ++left)
    for (int right = -3; right <= 16; ++right) {
      INFO("shifts " << left << " and " << right << ", M " << FA::magnitude_bits << " and " << FW::magnitude_bits);
      product_holds(spread_block<FA>(left), spread_block<FW>(right));
    }
}

TEST_CASE("precision.bi_exponent_product: the largest sums of every shift fit or the block is split") {
  every_shift_holds<BiE4, BiE4>();
  every_shift_holds<BiE4, BiE8Narrow>();
  every_shift_holds<BiE8Narrow, BiE8Narrow>();
  every_shift_holds<BiExponent<13, 3, 5>, BiExponent<13, 2, 6>>();
}

TEST_CASE("precision.bi_exponent_product: exponents at both ends of the wide format do not overflow on the way") {
  Matrix<float> x(1, 32), y(1, 32);
  x.setConstant(0x1p100f);
  y.setConstant(0x1p-100f);
  const auto a = quantize<BiE8>(x, 1.0), w = quantize<BiE8>(y, 1.0);
  CHECK(gemm(a, w)(0, 0) == 32);
}

template <class FX, class FW>
void gemv_holds(Index outputs, Index cols) {
  INFO(outputs << " x " << cols << ", M " << FX::magnitude_bits << " and " << FW::magnitude_bits);
  Rng rng(static_cast<std::uint64_t>(outputs * 1000 + cols));
  const Matrix<float> x = operand(rng, 4, cols);
  const auto w = quantize<FW>(operand(rng, outputs, cols), 2.0);
  for (Index i = 0; i < 4; ++i) {
    const Vector<float> y = gemv<FX>(x.row(i), 4.0, w);
    const auto a = quantize<FX>(x.row(i), 4.0);
    CHECK(close(Matrix<float>(y.transpose()), reference::gemm(a, w), a, w));
    Vector<float> portable(outputs);
    GemvWorkspace<FX, FW> workspace;
    detail::gemv(detail::Portable{}, View<const float, 1>(x.row(i)), 4.0, w, View<float, 1>(portable), workspace, {});
    CHECK(portable == y);
  }
}

TEST_CASE("precision.bi_exponent_product: gemv is the definition rounded in float and the same on every path") {
  for (const Index cols : {1, 16, 17, 48, 63, 64, 65, 320}) gemv_holds<BiE4, BiE4>(37, cols);
  gemv_holds<BiE8Narrow, BiE4>(37, 130);
  gemv_holds<BiExponent<16, 2, 6>, BiExponent<16, 1, 6>>(37, 130);
  gemv_holds<BiE4, BiE8Narrow>(37, 130);
  gemv_holds<BiE8, BiE8>(9, 130);
}

TEST_CASE("precision.bi_exponent_product: the same bits for any number of threads") {
  Rng rng(21);
  const Matrix<float> x = operand(rng, 40, 300);
  const auto a = quantize<BiE4>(x, 4.0), w = quantize<BiE4>(operand(rng, 900, 300), 2.0);
  const auto one = with_threads(1, [&] { return gemm(a, w); });
  CHECK(with_threads(4, [&] { return gemm(a, w); }) == one);
  const auto y = with_threads(1, [&] { return gemv<BiE4>(x.row(0), 4.0, w); });
  CHECK(with_threads(4, [&] { return gemv<BiE4>(x.row(0), 4.0, w); }) == y);
}

TEST_CASE("precision.bi_exponent_product: a second product of the same size allocates nothing") {
  Rng rng(22);
  const Matrix<float> x = operand(rng, 9, 130);
  const auto a = quantize<BiE4>(x, 4.0), w = quantize<BiE4>(operand(rng, 40, 130), 2.0);
  Matrix<float> c(9, 40);
  Vector<float> y(40);
  const Vector<float> token = x.row(4);
  GemmWorkspace<BiE4, BiE4> gemm_workspace;
  GemvWorkspace<BiE4, BiE4> gemv_workspace;
  const auto both = [&] {
    gemm(a, w, View<float, 2>(c), gemm_workspace);
    gemv<BiE4>(View<const float, 1>(token), 4.0, w, View<float, 1>(y), gemv_workspace);
  };
  with_threads(1, [&] {
    both();
    CHECK(test::allocations(both) == 0);
  });
  CHECK(c == gemm(a, w));
  CHECK(y == gemv<BiE4>(token, 4.0, w));
}

TEST_CASE("precision.bi_exponent_product: strided inputs and outputs work") {
  Rng rng(23);
  const Eigen::MatrixXf x = operand(rng, 5, 50);
  const auto w = quantize<BiE4>(operand(rng, 12, 50), 2.0);
  const auto a = quantize<BiE4>(x, 4.0);
  Eigen::MatrixXf c(5, 12);
  GemmWorkspace<BiE4, BiE4> workspace;
  gemm(a, w, View<float, 2>(c), workspace);
  CHECK(c == Eigen::MatrixXf(gemm(a, w)));
  CHECK(gemv<BiE4>(x.row(2), 4.0, w) == gemv<BiE4>(Vector<float>(x.row(2)), 4.0, w));
}

TEST_CASE("precision.bi_exponent_product: a linear layer is the product with its bias") {
  Rng rng(24);
  const Matrix<float> x = operand(rng, 5, 50);
  BiExponentLinear<> layer{quantize<BiE4>(operand(rng, 12, 50), 2.0), 4.0, {}};
  const Matrix<float> plain = layer(x);
  CHECK(plain == gemm(quantize<BiE4>(x, 4.0), layer.weight));
  layer.bias = Vector<float>::LinSpaced(12, -1, 1);
  CHECK(layer(x) == (plain.rowwise() + layer.bias.transpose()).eval());
  layer.bias.resize(11);
  CHECK(message_of<InvalidArgument>([&] { layer(x); }) ==
        "BiExponentLinear: bias has 11 elements, weight has 12 rows");
}

TEST_CASE("precision.bi_exponent_product: operands that do not fit are refused by name") {
  const auto a = BiExponentMatrix<BiE4>(2, 32), w = BiExponentMatrix<BiE4>(3, 33);
  CHECK(message_of<InvalidArgument>([&] { gemm(a, w); }) == "gemm: a has 32 columns, w has 33");
  Matrix<float> c(2, 2);
  GemmWorkspace<BiE4, BiE4> workspace;
  CHECK(message_of<InvalidArgument>([&] { gemm(a, a, View<float, 2>(c).slice(0, 0, 1), workspace); }) ==
        "gemm: c has shape [1,2], expected [2,2] (rows of a by rows of w)");
  CHECK(message_of<InvalidArgument>([&] { gemv<BiE4>(Vector<float>::Ones(31).eval(), 1.0, a); }) ==
        "gemv: x has 31 elements, w has 32 columns");
  Vector<float> y = Vector<float>::Ones(2);
  GemvWorkspace<BiE4, BiE4> scratch;
  const Vector<float> bad = Vector<float>::Constant(32, std::nanf(""));
  CHECK(message_of<NumericalError>([&] { gemv<BiE4>(View<const float, 1>(bad), 1.0, a, View<float, 1>(y), scratch); }) ==
        "quantize: x(0,0) is nan, expected a finite number");
  CHECK(y == Vector<float>::Ones(2));
}

TEST_CASE("precision.bi_exponent_product: products with no rows or no columns are empty or zero") {
  CHECK(gemm(BiExponentMatrix<BiE4>(0, 16), BiExponentMatrix<BiE4>(3, 16)).rows() == 0);
  CHECK(gemm(BiExponentMatrix<BiE4>(2, 16), BiExponentMatrix<BiE4>(0, 16)).cols() == 0);
  CHECK(gemm(BiExponentMatrix<BiE4>(2, 0), BiExponentMatrix<BiE4>(3, 0)) == Matrix<float>::Zero(2, 3));
  CHECK(gemv<BiE4>(Vector<float>(0), 1.0, BiExponentMatrix<BiE4>(3, 0)) == Vector<float>::Zero(3));
}

}  // namespace
}  // namespace ashlar::precision
