// What the modules of this room share about the arms: row-major doubles, and the directions they span.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::bandits::detail {

/// Row-major doubles; rows need not touch.
using RowMap = Eigen::Map<const Matrix<double>, 0, Eigen::OuterStride<>>;

/// The caller's arms as row-major doubles: the memory itself where it already is that, a converted copy otherwise.
/// Throws InvalidArgument when there is no arm, no dimension, or an entry that is not finite.
class Arms {
 public:
  template <class X>
  Arms(const X& arms, std::string_view function) {
    const In<X, 2> view = arms;
    require(view.extent(0) >= 1 && view.extent(1) >= 1, function, "arms has shape ",
            std::span<const Index>(view.shape()), ", expected at least one arm and one dimension");
    if constexpr (std::is_same_v<scalar_t<X>, double>) {
      if (view.stride(1) == 1 && view.stride(0) >= view.extent(1)) {
        data_ = view.data(), rows_ = view.extent(0), cols_ = view.extent(1), stride_ = view.stride(0);
        check_finite(function);
        return;
      }
    }
    copy_ = matrix(view).template cast<double>();
    data_ = copy_.data(), rows_ = copy_.rows(), cols_ = stride_ = copy_.cols();
    check_finite(function);
  }
  Arms(const Arms&) = delete;
  Arms& operator=(const Arms&) = delete;

  Index count() const { return rows_; }
  Index dim() const { return cols_; }
  RowMap rows() const { return RowMap(data_, rows_, cols_, Eigen::OuterStride<>(stride_)); }

 private:
  void check_finite(std::string_view function) const {
    // 0 x is 0 for finite x and NaN otherwise; the sum vectorises, a search for the culprit does not.
    if ((rows().array() * 0.0).sum() == 0) [[likely]]
      return;
    for (Index i = 0; i < rows_; ++i)
      for (Index j = 0; j < cols_; ++j)
        require(std::isfinite(rows()(i, j)), function, "arms must be finite, got ", rows()(i, j), " at [", i, ",", j,
                "]");
  }

  Matrix<double> copy_;
  const double* data_ = nullptr;
  Index rows_ = 0, cols_ = 0, stride_ = 0;
};

/// An orthonormal basis of the span of the rows of a matrix, and the singular values along it.
struct RowSpace {
  Matrix<double> basis;            ///< [dim, rank]
  Vector<double> singular_values;  ///< [rank], all positive

  Index rank() const { return basis.cols(); }
  /// T with (rows T)^T (rows T) = I; on the span, T T^T inverts rows^T rows.
  Matrix<double> whitening() const { return basis * singular_values.cwiseInverse().asDiagonal(); }
};

/// R of rows = Q R, [min(rows, dim), dim], backward stable, a cache-sized stack of rows at a time.
template <class Rows>
Eigen::MatrixXd triangular_factor(const Rows& rows) {
  const Index dim = rows.cols(), step = std::max<Index>(4 * dim, 64);
  Eigen::MatrixXd factor(0, dim), stack;
  for (Index begin = 0; begin < rows.rows(); begin += step) {
    const Index count = std::min(step, rows.rows() - begin), kept = factor.rows();
    stack.resize(kept + count, dim);
    stack.topRows(kept) = factor;
    stack.bottomRows(count) = rows.middleRows(begin, count);
    const Eigen::HouseholderQR<Eigen::MatrixXd> qr(stack);
    factor = qr.matrixQR().topRows(std::min(stack.rows(), dim)).template triangularView<Eigen::Upper>();
  }
  return factor;
}

/// Row space with singular values below tolerance times the largest counted as zero. O(rows dim^2).
template <class Rows>
RowSpace row_space(const Rows& rows, double tolerance) {
  const Index dim = rows.cols();
  if (rows.rows() == 0) return {Matrix<double>(dim, 0), Vector<double>(0)};
  // The eigenvectors of the Gram matrix are enough when the rank is beyond doubt: its eigenvalues are squares, so
  // 1e-6 here is a condition number of 1e3, known to about 1e-10.
  if (rows.rows() >= dim) {
    Eigen::MatrixXd gram = Eigen::MatrixXd::Zero(dim, dim);
    gram.template selfadjointView<Eigen::Lower>().rankUpdate(rows.transpose());
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(gram);
    const auto& squares = eigen.eigenvalues();
    if (eigen.info() == Eigen::Success && squares[0] > 1e-6 * squares[dim - 1])
      return {eigen.eigenvectors(), squares.cwiseSqrt()};
  }
  const Eigen::JacobiSVD<Eigen::MatrixXd> svd(triangular_factor(rows), Eigen::ComputeThinV);
  const auto& values = svd.singularValues();
  Index rank = 0;
  while (rank < values.size() && values[rank] > tolerance * std::max(values[0], 1e-300)) ++rank;
  return {svd.matrixV().leftCols(rank), values.head(rank)};
}

/// The `count` candidates of largest value, largest first (ties by index, so that the choice is the same everywhere).
inline std::vector<Index> largest(const Vector<double>& values, std::vector<Index> candidates, Index count) {
  const auto before = [&](Index a, Index b) { return values[a] != values[b] ? values[a] > values[b] : a < b; };
  count = std::min(count, static_cast<Index>(candidates.size()));
  std::partial_sort(candidates.begin(), candidates.begin() + count, candidates.end(), before);
  candidates.resize(static_cast<std::size_t>(count));
  return candidates;
}

/// The picked rows, as a matrix of their own.
template <class Rows>
Matrix<double> gather(const Rows& rows, std::span<const Index> picked) {
  Matrix<double> out(static_cast<Index>(picked.size()), rows.cols());
  for (Index i = 0; i < out.rows(); ++i) out.row(i) = rows.row(picked[static_cast<std::size_t>(i)]);
  return out;
}

}  // namespace ashlar::bandits::detail
