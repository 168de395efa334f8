// Products of matrices small enough to stay in cache (tens to a few hundred rows), the way fused kernels need them: a
// tile of the result stays in registers while several products are added, rows are scaled, masks applied.
//
//   for_register_tiles<float>(rows, cols, [&](auto& tile, Index i, Index j) {
//     tile.clear();
//     tile.add(a + i * lda, lda, 1, b + j, ldb, depth);           // A B
//     tile.store(c + i * ldc + j, ldc);
//   });
//
// Roof: fused multiply-adds. A tile of 8 x 2 vectors (4 x 2 with 16 registers) does two of them for every 1.25 loads,
// so it is bound by arithmetic as long as b is in first-level cache.
#pragma once

#include "ashlar/core/config.hpp"
#include "ashlar/core/simd.hpp"

namespace ashlar::linalg {

/// Rows of a register tile. Buffers that hold its operands are padded to whole tiles: round_up(rows, padding<T>).
inline constexpr int tile_rows = simd::registers == 32 ? 8 : 4;

template <class T>
inline constexpr Index padding = simd::width<T> > tile_rows ? simd::width<T> : tile_rows;

constexpr Index round_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

/// tile_rows x (Vectors * width) sums of a product.
template <class T, int Vectors>
struct RegisterTile {
  static constexpr Index width = simd::width<T>;
  static constexpr Index cols = Vectors * width;
  simd::batch<T> sum[tile_rows][Vectors];

  void clear() {
    for (auto& row : sum)
      for (auto& lanes : row) lanes = simd::batch<T>(T{0});
  }

  /// sum += A B. A[i][l] is a[i * a_row + l * a_col], so A may be a transpose; row l of B starts at b + l * b_row.
  void add(const T* a, Index a_row, Index a_col, const T* b, Index b_row, Index depth) {
    for (Index l = 0; l < depth; ++l) {
      simd::batch<T> right[Vectors];
      for (int j = 0; j < Vectors; ++j) right[j] = simd::load(b + l * b_row + j * width);
      for (int i = 0; i < tile_rows; ++i) {
        const simd::batch<T> left(a[i * a_row + l * a_col]);
        for (int j = 0; j < Vectors; ++j) sum[i][j] = simd::fma(left, right[j], sum[i][j]);
      }
    }
  }

  /// Row i times factors[i].
  void scale_rows(const T* factors) {
    for (int i = 0; i < tile_rows; ++i)
      for (int j = 0; j < Vectors; ++j) sum[i][j] = sum[i][j] * simd::batch<T>(factors[i]);
  }

  /// Row i, element j times mask[j - i * mask_shift]: Toeplitz masks are one vector, shifted.
  void scale_toeplitz(const T* mask) {
    for (int i = 0; i < tile_rows; ++i)
      for (int j = 0; j < Vectors; ++j) sum[i][j] = sum[i][j] * simd::load(mask - i + j * width);
  }

  void store(T* c, Index c_row) const {
    for (int i = 0; i < tile_rows; ++i)
      for (int j = 0; j < Vectors; ++j) simd::store(c + i * c_row + j * width, sum[i][j]);
  }
};

/// f(tile, i, j) for register tiles that cover rows x cols; i and j are the corner. rows is a multiple of tile_rows and
/// cols of the vector width.
template <class T, class F>
void for_register_tiles(Index rows, Index cols, F&& f) {
  RegisterTile<T, 2> wide;
  RegisterTile<T, 1> narrow;
  for (Index i = 0; i < rows; i += tile_rows) {
    Index j = 0;
    for (; j + wide.cols <= cols; j += wide.cols) f(wide, i, j);
    for (; j < cols; j += narrow.cols) f(narrow, i, j);
  }
}

/// to = from^T for a rows x cols matrix; both are padded to whole vectors.
template <class T>
void transpose(const T* from, Index from_row, Index rows, Index cols, T* to, Index to_row) {
  constexpr Index w = simd::width<T>;
  for (Index i = 0; i < rows; i += w)
    for (Index j = 0; j < cols; j += w) simd::transpose_block(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
}

}  // namespace ashlar::linalg
