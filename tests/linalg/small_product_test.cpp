#include "ashlar/linalg/small_product.hpp"

#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "support/catch.hpp"

namespace ashlar::linalg {
namespace {

// Small integers: every product and sum is exact, in any order.
template <class T>
Matrix<T> integers(Rng& rng, Index rows, Index cols) {
  Matrix<T> x(rows, cols);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<T>(rng.below(17) - 8);
  return x;
}

TEMPLATE_TEST_CASE("linalg.small_product: tiles cover the product once for every padded shape", "", float, double) {
  using T = TestType;
  Rng rng(1);
  for (const Index row_tiles : {1, 2, 3})
    for (const Index col_vectors : {1, 2, 3, 5})
      for (const Index depth : {0, 1, 7}) {
        const Index rows = row_tiles * tile_rows, cols = col_vectors * simd::width<T>;
        INFO(rows << " x " << cols << " x " << depth);
        const Matrix<T> a = integers<T>(rng, rows, depth), b = integers<T>(rng, depth, cols);
        const Matrix<T> transposed = a.transpose();
        const Matrix<T> factors = integers<T>(rng, rows, 1);

        Matrix<T> c = Matrix<T>::Constant(rows, cols, T{-99}), scaled = c;
        for_register_tiles<T>(rows, cols, [&](auto& tile, Index i, Index j) {
          tile.clear();
          tile.add(a.data() + i * depth, depth, 1, b.data() + j, cols, depth);
          tile.store(c.data() + i * cols + j, cols);
          // The same from the transpose, added a second time to rows that were scaled.
          tile.scale_rows(factors.data() + i);
          tile.add(transposed.data() + i, 1, rows, b.data() + j, cols, depth);
          tile.store(scaled.data() + i * cols + j, cols);
        });
        CHECK(c == a * b);
        CHECK(scaled == factors.col(0).asDiagonal() * (a * b).eval() + a * b);
      }
}

TEMPLATE_TEST_CASE("linalg.small_product: a Toeplitz mask is one shifted vector", "", float, double) {
  using T = TestType;
  const Index rows = 2 * tile_rows, cols = 3 * simd::width<T>;
  std::vector<T> mask(static_cast<std::size_t>(rows + cols));
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<T>(i + 1);
  const T* const zero = mask.data() + rows - 1;  // of row 0, column 0

  Matrix<T> c(rows, cols);
  const Matrix<T> ones = Matrix<T>::Ones(rows, 1), row = Matrix<T>::Ones(1, cols);
  for_register_tiles<T>(rows, cols, [&](auto& tile, Index i, Index j) {
    tile.clear();
    tile.add(ones.data() + i, 1, 1, row.data() + j, cols, 1);
    tile.scale_toeplitz(zero - i + j);
    tile.store(c.data() + i * cols + j, cols);
  });
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) CHECK(c(i, j) == zero[j - i]);
}

TEMPLATE_TEST_CASE("linalg.small_product: the transpose covers whole vectors", "", float, double) {
  using T = TestType;
  Rng rng(2);
  const Index rows = 2 * simd::width<T>, cols = 3 * simd::width<T>;
  const Matrix<T> x = integers<T>(rng, rows, cols);
  Matrix<T> y(cols, rows);
  transpose(x.data(), cols, rows, cols, y.data(), rows);
  CHECK(y == x.transpose());
}

}  // namespace
}  // namespace ashlar::linalg
