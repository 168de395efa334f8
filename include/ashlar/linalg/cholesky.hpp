// Cholesky factorisation of symmetric positive definite matrices: blocked, threaded, and explicit about what happens
// when a matrix is only nearly positive definite.
//
//   const linalg::Cholesky<double> factor(std::move(a));          // throws NumericalError unless a is positive
//   definite Vector<double> x = factor.solve(b); double digits_lost = -std::log10(factor.rcond());
//
// n^3 / 3 multiply-adds to factor, n^2 to solve.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::linalg {

/// What to do when a pivot is not positive. The default is to refuse.
struct CholeskyOptions {
  int jitter_attempts = 0;     ///< multiples of the identity tried before giving up
  double jitter = 1e-12;       ///< the first of them, relative to the mean diagonal entry
  double jitter_growth = 10;   ///< of each to the next
  bool ldlt_fallback = false;  ///< then factor with pivoting; directions without a pivot are solved as zero
};

namespace detail {

/// Rows of a block: the outer size feeds matrix products, the inner one keeps the scalar part small.
inline constexpr Index cholesky_block = 128, cholesky_inner_block = 32;

/// Factors the lower triangle of a small block in place; the first bad pivot, or the order of the block.
template <class T>
Index cholesky_unblocked(T* a, Index stride, Index n) {
  for (Index j = 0; j < n; ++j) {
    T* row = a + j * stride;
    for (Index k = 0; k < j; ++k) row[k] = (row[k] - simd::dot(row, a + k * stride, k)) / a[k * stride + k];
    row[j] -= simd::dot(row, row, j);
    if (!(row[j] > 0) || !std::isfinite(row[j])) return j;
    row[j] = std::sqrt(row[j]);
  }
  return n;
}

/// Factors the lower triangle of a row-major matrix in place and leaves the strict upper triangle alone; the first bad
/// pivot, or the order. Every chunk of rows is one Eigen product, so the bits do not depend on the number of threads.
template <class T>
Index cholesky_blocked(T* data, Index stride, Index n, Index block = cholesky_block) {
  Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>> a(data, n, n, Eigen::OuterStride<>(stride));
  for (Index k = 0; k < n; k += block) {
    const Index width = std::min(block, n - k), first = k + width;
    T* corner = data + k * stride + k;
    const Index pivot = block > cholesky_inner_block ? cholesky_blocked(corner, stride, width, cholesky_inner_block)
                                                     : cholesky_unblocked(corner, stride, width);
    if (pivot != width) return k + pivot;
    const auto diagonal = a.block(k, k, width, width);
    parallel_for(n - first, cholesky_block, [&](Index begin, Index end) {
      auto rows = a.block(first + begin, k, end - begin, width);
      diagonal.template triangularView<Eigen::Lower>().transpose().template solveInPlace<Eigen::OnTheRight>(rows);
    });
    parallel_for(n - first, cholesky_block, [&](Index begin, Index end) {
      const Index rows = end - begin;
      const auto left = a.block(first + begin, k, rows, width);
      a.block(first + begin, first, rows, begin).noalias() -= left * a.block(first, k, begin, width).transpose();
      auto own = a.block(first + begin, first + begin, rows, rows);
      own.template triangularView<Eigen::Lower>() -= left * left.transpose();
    });
  }
  return n;
}

/// L x = b and L^T x = b in place. Both stream the rows of L once: the roof is the bandwidth of memory.
template <class T>
void forward_substitution(const Matrix<T>& factor, T* b) {
  for (Index i = 0; i < factor.rows(); ++i) {
    const T* row = factor.data() + i * factor.cols();
    b[i] = (b[i] - simd::dot(row, b, i)) / row[i];
  }
}
template <class T>
void backward_substitution(const Matrix<T>& factor, T* b) {
  for (Index i = factor.rows(); i-- > 0;) {
    const T* row = factor.data() + i * factor.cols();
    b[i] /= row[i];
    const simd::batch<T> scale(-b[i]);
    Index j = 0;
    for (; j + simd::width<T> <= i; j += simd::width<T>)
      simd::store(b + j, simd::fma(scale, simd::load(row + j), simd::load(b + j)));
    for (; j < i; ++j) b[j] -= b[i] * row[j];
  }
}

}  // namespace detail

/// The factor L of a = L L^T, or what the options say when there is none.
template <Real T>
class Cholesky {
 public:
  /// a: [n, n], symmetric, both triangles given. O(n^3); moving it in saves a copy.
  /// Throws NumericalError when a pivot is not positive and no option helps, or an entry is not finite.
  explicit Cholesky(Matrix<T> a, const CholeskyOptions& options = {}) : factor_(std::move(a)) {
    const Index n = factor_.rows();
    require(n == factor_.cols() && n > 0, "Cholesky", "a has shape [", n, ",", factor_.cols(),
            "], expected a square with at least one row");
    const Vector<T> diagonal = factor_.diagonal();
    const Vector<T> sums = factor_.cwiseAbs().rowwise().sum();  // rows are columns, by symmetry
    if (!std::isfinite(sums.sum())) throw NumericalError("Cholesky: the matrix has an entry that is not finite");
    norm_ = sums.maxCoeff();
    Index pivot = detail::cholesky_blocked(factor_.data(), n, n);
    T value = pivot < n ? factor_(pivot, pivot) : T(0);
    const T scale = diagonal.cwiseAbs().mean();
    for (int attempt = 0; pivot < n && attempt < options.jitter_attempts; ++attempt) {
      jitter_ = scale * static_cast<T>(options.jitter * std::pow(options.jitter_growth, attempt));
      restore(diagonal);
      factor_.diagonal().array() += jitter_;
      pivot = detail::cholesky_blocked(factor_.data(), n, n);
      if (pivot < n) value = factor_(pivot, pivot);
    }
    if (pivot == n) return;
    if (!options.ldlt_fallback)
      throw NumericalError(
          message("Cholesky: pivot ", pivot, " of ", n, " is ", value, ", so the matrix is not positive definite",
                  jitter_ > 0 ? " even with a jitter of " : "", jitter_ > 0 ? message(jitter_) : std::string()));
    jitter_ = 0;
    restore(diagonal);
    ldlt_.emplace(factor_);
  }

  Index order() const { return factor_.rows(); }
  T jitter() const { return jitter_; }                ///< what was added to the diagonal, zero as a rule
  bool is_ldlt() const { return ldlt_.has_value(); }  ///< the fallback was taken
  /// L, lower triangular. The strict upper triangle holds the matrix. Not available after the fallback.
  const Matrix<T>& factor() const {
    require(!is_ldlt(), "Cholesky::factor", "the matrix was factored with pivoting and has no triangular factor");
    return factor_;
  }

  /// Overwrites b: [n] with a^-1 b. O(n^2).
  void solve_in_place(View<T, 1> b) const {
    check_shape("Cholesky::solve", "b", b.shape(), {order()}, "one entry a row of a");
    if (is_ldlt() || (order() > 1 && b.stride(0) != 1)) return substitute(vector(b));
    detail::forward_substitution(factor_, b.data());
    detail::backward_substitution(factor_, b.data());
  }
  /// Overwrites b: [n, k] with a^-1 b. O(n^2 k), threaded over columns.
  void solve_columns_in_place(View<T, 2> b) const {
    check_shape("Cholesky::solve_columns", "b", b.shape(), {order(), b.extent(1)}, "one row a row of a");
    parallel_for(b.extent(1), 64, [&](Index begin, Index end) { substitute(matrix(b.slice(1, begin, end))); });
  }
  Vector<T> solve(View<const T, 1> b) const {
    Vector<T> x = vector(b);
    solve_in_place(x);
    return x;
  }
  Matrix<T> solve_columns(View<const T, 2> b) const {
    Matrix<T> x = matrix(b);
    solve_columns_in_place(x);
    return x;
  }

  /// log det a. Throws NumericalError when the fallback found a pivot that is not positive.
  T log_determinant() const {
    if (!is_ldlt()) return 2 * factor_.diagonal().array().log().sum();
    const Vector<T> pivots = ldlt_->vectorD();
    if (!(pivots.minCoeff() > 0))
      throw NumericalError(message("Cholesky::log_determinant: a pivot is ", pivots.minCoeff()));
    return pivots.array().log().sum();
  }

  /// An estimate of 1 / (|a|_1 |a^-1|_1), rarely more than three times too large; 0 for a singular matrix. O(n^2).
  /// Source: Higham, "FORTRAN codes for estimating the one-norm", ACM TOMS 14 (1988), for symmetric matrices.
  T rcond() const {
    const Index n = order();
    Vector<T> x = Vector<T>::Constant(n, T(1) / static_cast<T>(n)), sign = Vector<T>::Zero(n);
    T estimate = 0;
    for (int iteration = 0; iteration < 5; ++iteration) {
      solve_in_place(x);
      const T norm = x.template lpNorm<1>();
      if (!std::isfinite(norm)) return 0;
      const Vector<T> next = x.unaryExpr([](T v) { return v < 0 ? T(-1) : T(1); });
      if (iteration > 0 && (norm <= estimate || next == sign)) break;
      estimate = norm;
      sign = next;
      Vector<T> gradient = sign;
      solve_in_place(gradient);
      Index steepest = 0;
      gradient.cwiseAbs().maxCoeff(&steepest);
      x.setZero();
      x[steepest] = 1;
    }
    for (Index i = 0; i < n; ++i)
      x[i] = (i % 2 ? T(-1) : T(1)) * (1 + static_cast<T>(i) / static_cast<T>(std::max<Index>(n - 1, 1)));
    solve_in_place(x);
    estimate = std::max(estimate, 2 * x.template lpNorm<1>() / (3 * static_cast<T>(n)));
    return norm_ > 0 && estimate > 0 ? std::min(T(1), T(1) / (norm_ * estimate)) : T(0);
  }

 private:
  template <class B>
  void substitute(B b) const {
    if (is_ldlt()) {
      b = solve_ldlt(b).eval();
      return;
    }
    factor_.template triangularView<Eigen::Lower>().solveInPlace(b);
    factor_.template triangularView<Eigen::Lower>().transpose().solveInPlace(b);
  }

  /// P^T L^-T D^+ L^-1 P x, the pivots within rounding of zero counted as zero.
  Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic> solve_ldlt(
      Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic> x) const {
    const Vector<T> pivots = ldlt_->vectorD();
    const T cutoff = static_cast<T>(order()) * std::numeric_limits<T>::epsilon() * pivots.cwiseAbs().maxCoeff();
    x = (ldlt_->transpositionsP() * x).eval();
    ldlt_->matrixL().solveInPlace(x);
    for (Index i = 0; i < order(); ++i)
      if (std::abs(pivots[i]) > cutoff)
        x.row(i) /= pivots[i];
      else
        x.row(i).setZero();
    ldlt_->matrixU().solveInPlace(x);
    return ldlt_->transpositionsP().transpose() * x;
  }

  /// Puts the matrix back from its strict upper triangle, which the factorisation leaves alone.
  void restore(const Vector<T>& diagonal) {
    for (Index i = 0; i < order(); ++i)
      for (Index j = 0; j < i; ++j) factor_(i, j) = factor_(j, i);
    factor_.diagonal() = diagonal;
  }

  Matrix<T> factor_;
  std::optional<Eigen::LDLT<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>>> ldlt_;
  T norm_ = 0, jitter_ = 0;
};

}  // namespace ashlar::linalg
