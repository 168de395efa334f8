// Random orthonormal columns, uniformly distributed: the orthogonal factor of a matrix of normal numbers.
//
//   Matrix<double> q = linalg::random_orthonormal(rng, 128, 16);       // q^T q = 1
//
// Source: Mezzadri, How to Generate Random Matrices from the Classical Compact Groups, Notices of the AMS 54 (2007).
#pragma once

#include <Eigen/QR>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::linalg {

/// [rows, columns], rows >= columns. Draws rows columns normal numbers. O(rows columns^2).
inline Matrix<double> random_orthonormal(Rng& rng, Index rows, Index columns) {
  require(columns >= 0 && rows >= columns, "random_orthonormal", "rows must be at least columns, got ", rows, " for ",
          columns);
  if (columns == 0) return Matrix<double>(rows, 0);
  const Eigen::HouseholderQR<Matrix<double>> qr(normal_matrix<double>(rng, rows, columns));
  Matrix<double> q = qr.householderQ() * Matrix<double>::Identity(rows, columns);
  for (Index j = 0; j < columns; ++j)  // with positive pivots the factorisation is unique, and its law uniform
    if (qr.matrixQR()(j, j) < 0) q.col(j) = -q.col(j);
  return q;
}

}  // namespace ashlar::linalg
