#include "ashlar/linalg/small_product.hpp"

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"

namespace ashlar::linalg {
namespace {

TEMPLATE_TEST_CASE("linalg.small_product: register tiles give the product of every padded shape", "", float, double) {
  using T = TestType;
  Rng rng(1);
  for (const Index depth : {1, 5, 33})
    for (Index rows = tile_rows; rows <= 3 * tile_rows; rows += tile_rows)
      for (Index cols = simd::width<T>; cols <= 3 * simd::width<T>; cols += simd::width<T>) {
        INFO("rows " << rows << " cols " << cols << " depth " << depth);
        const auto a = normal_matrix<T>(rng, rows, depth), b = normal_matrix<T>(rng, depth, cols);
        const Matrix<T> a_transposed = a.transpose(), expected = a * b;
        Matrix<T> c(rows, cols), d(rows, cols);
        for_register_tiles<T>(rows, cols, [&](auto& tile, Index i, Index j) {
          tile.clear();
          tile.add(a.data() + i * depth, depth, 1, b.data() + j, cols, depth);
          tile.store(c.data() + i * cols + j, cols);
          tile.clear();
          tile.add(a_transposed.data() + i, 1, rows, b.data() + j, cols, depth);
          tile.store(d.data() + i * cols + j, cols);
        });
        const T tolerance = 40 * std::numeric_limits<T>::epsilon();  // depth 33, entries of order one
        CHECK((c - expected).cwiseAbs().maxCoeff() <= tolerance * (1 + expected.cwiseAbs().maxCoeff()));
        CHECK(c == d);
      }
}

TEMPLATE_TEST_CASE("linalg.small_product: rows are scaled and Toeplitz masks are shifted a row at a time", "", float, double) {
  using T = TestType;
  constexpr Index rows = tile_rows, cols = 2 * simd::width<T>;
  const Matrix<T> left = Matrix<T>::Ones(rows, 1), right = Matrix<T>::Ones(1, cols);
  Vector<T> factors = Vector<T>::LinSpaced(rows, 1, static_cast<T>(rows));
  Vector<T> mask = Vector<T>::LinSpaced(rows + cols, 0, static_cast<T>(rows + cols - 1));
  Matrix<T> c(rows, cols);
  for_register_tiles<T>(rows, cols, [&](auto& tile, Index i, Index j) {
    tile.clear();
    tile.add(left.data() + i, 1, 1, right.data() + j, cols, 1);
    tile.scale_rows(factors.data() + i);
    tile.scale_toeplitz(mask.data() + rows - 1 - i + j);
    tile.store(c.data() + i * cols + j, cols);
  });
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) CHECK(c(i, j) == static_cast<T>((i + 1) * (rows - 1 - i + j)));
}

TEMPLATE_TEST_CASE("linalg.small_product: transpose exchanges rows and columns of whole blocks", "", float, double) {
  using T = TestType;
  constexpr Index rows = 2 * simd::width<T>, cols = 3 * simd::width<T>;
  Rng rng(2);
  const auto x = normal_matrix<T>(rng, rows, cols);
  Matrix<T> y(cols, rows);
  transpose(x.data(), cols, rows, cols, y.data(), rows);
  CHECK(y == x.transpose());
}

}  // namespace
}  // namespace ashlar::linalg
