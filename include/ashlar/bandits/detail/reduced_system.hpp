// The normal equations of the reduced model in the coordinates (P, Q), on the cells that hold data.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/QR>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "ashlar/bandits/low_rank_environment.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/linalg/conjugate_gradient.hpp"

namespace ashlar::bandits::detail {

/// The cells of a matrix [m, n] with a weight, by rows; and in which order they come by columns.
struct Cells {
  std::vector<std::size_t> row_begin;  // [m + 1]
  std::vector<std::size_t> col_begin;  // [n + 1]
  std::vector<Index> row, col;         // [cells]
  std::vector<std::size_t> by_column;  // [cells]
  std::vector<double> weight, sum;     // [cells]

  Index rows() const { return static_cast<Index>(row_begin.size()) - 1; }
  Index cols() const { return static_cast<Index>(col_begin.size()) - 1; }
};

inline Cells cells_of(View<const double, 2> weights, View<const double, 2> sums) {
  const Index m = weights.extent(0), n = weights.extent(1);
  Cells cells;
  cells.row_begin.push_back(0);
  cells.col_begin.assign(static_cast<std::size_t>(n) + 1, 0);
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      if (weights(i, j) == 0) continue;
      cells.row.push_back(i);
      cells.col.push_back(j);
      cells.weight.push_back(weights(i, j));
      cells.sum.push_back(sums(i, j));
      ++cells.col_begin[static_cast<std::size_t>(j) + 1];
    }
    cells.row_begin.push_back(cells.col.size());
  }
  for (std::size_t j = 1; j < cells.col_begin.size(); ++j) cells.col_begin[j] += cells.col_begin[j - 1];
  std::vector<std::size_t> next(cells.col_begin.begin(), cells.col_begin.end() - 1);
  cells.by_column.resize(cells.col.size());
  for (std::size_t c = 0; c < cells.col.size(); ++c)
    cells.by_column[next[static_cast<std::size_t>(cells.col[c])]++] = c;
  return cells;
}

inline Cells cells_of(const BanditLog& log, Index contexts, Index arms) {
  Matrix<double> counts = Matrix<double>::Zero(contexts, arms), sums = counts;
  for (std::size_t t = 0; t < log.reward.size(); ++t) {
    counts(log.context[t], log.arm[t]) += 1;
    sums(log.context[t], log.arm[t]) += log.reward[t];
  }
  return cells_of(counts, sums);
}

struct ReducedSolution {
  Vector<double> x;  // P row by row, then Q row by row
  Index iterations = 0;
};

/// A = sum of weight phi phi^T + ridge I as an operator on x = (P, Q). Borrows its arguments.
class ReducedSystem {
 public:
  static constexpr Index largest_dense = 3000;
  static constexpr Index grain = 32;  // rows or columns a chunk

  ReducedSystem(const Cells& cells, const Matrix<double>& u, const Matrix<double>& v, double ridge)
      : cells_(cells), u_(u), v_(v), ridge_(ridge), residual_(cells.col.size()) {}

  Index size() const { return (u_.rows() + v_.rows()) * u_.cols(); }
  Index dim() const { return size() - u_.cols() * u_.cols(); }

  auto p_of(View<const double, 1> x) const { return Eigen::Map<const Matrix<double>>(x.data(), v_.rows(), v_.cols()); }
  auto q_of(View<const double, 1> x) const {
    return Eigen::Map<const Matrix<double>>(x.data() + v_.size(), u_.rows(), u_.cols());
  }

  /// sum of value_c phi_c over the cells: (R^T U, (I - U U^T) R V) with R the values.
  Vector<double> project(const std::vector<double>& values) const {
    Vector<double> x(size());
    project(values, x);
    return x;
  }

  /// <phi_c, x> for every cell.
  void evaluate(View<const double, 1> x, std::vector<double>& values) const {
    const auto p = p_of(x), q = q_of(x);
    const Index rank = u_.cols();
    parallel_for(u_.rows(), grain, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        for (std::size_t c = row_begin(i); c < row_begin(i + 1); ++c) {
          const Index j = cells_.col[c];
          double sum = 0;
          for (Index k = 0; k < rank; ++k) sum += u_(i, k) * p(j, k) + q(i, k) * v_(j, k);
          values[c] = sum;
        }
    });
  }

  /// y = A x for x with U^T Q = 0.
  void operator()(View<const double, 1> x, View<double, 1> y) const {
    evaluate(x, residual_);
    for (std::size_t c = 0; c < residual_.size(); ++c) residual_[c] *= cells_.weight[c];
    project(residual_, y);
    vector(y) += ridge_ * vector(x);
  }

  /// The inverses of the diagonal blocks, one r x r matrix for every row of P and of Q.
  auto preconditioner() const {
    const Index rank = u_.cols(), n = v_.rows();
    std::vector<Matrix<double>> inverse(static_cast<std::size_t>(n + u_.rows()));
    parallel_for(n + u_.rows(), grain, [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        Eigen::MatrixXd block = ridge_ * Eigen::MatrixXd::Identity(rank, rank);
        if (row < n)
          for (std::size_t at = col_begin(row); at < col_begin(row + 1); ++at) {
            const std::size_t c = cells_.by_column[at];
            block += cells_.weight[c] * u_.row(cells_.row[c]).transpose() * u_.row(cells_.row[c]);
          }
        else
          for (std::size_t c = row_begin(row - n); c < row_begin(row - n + 1); ++c)
            block += cells_.weight[c] * v_.row(cells_.col[c]).transpose() * v_.row(cells_.col[c]);
        // Fewer cells than r leave a block of the ridge alone in some direction: keep it positive beside rounding.
        block.diagonal().array() += 1e-14 * block.trace();
        const Eigen::LLT<Eigen::MatrixXd> llt(block);
        inverse[static_cast<std::size_t>(row)] = llt.info() == Eigen::Success
                                                     ? Matrix<double>(llt.solve(Eigen::MatrixXd::Identity(rank, rank)))
                                                     : Matrix<double>::Identity(rank, rank);
      }
    });
    return [this, inverse = std::move(inverse)](View<const double, 1> x, View<double, 1> y) {
      const Index r = u_.cols();
      for (std::size_t row = 0; row < inverse.size(); ++row)
        for (Index a = 0; a < r; ++a) {
          double sum = 0;
          for (Index b = 0; b < r; ++b) sum += inverse[row](a, b) * x[static_cast<Index>(row) * r + b];
          y[static_cast<Index>(row) * r + a] = sum;
        }
      Eigen::Map<Matrix<double>> q(y.data() + v_.size(), u_.rows(), r);
      remove_span(q);
    };
  }

  /// A x = b to |b - A x| <= 1e-11 |b|. b has U^T Q = 0.
  ReducedSolution solve(const Vector<double>& b) const {
    if (ridge_ == 0 && dim() <= largest_dense && !full_data()) return {solve_dense(b), 0};
    const auto precondition = preconditioner();
    ReducedSolution solution{Vector<double>::Zero(size())};
    Workspace workspace;
    const linalg::ConjugateGradientReport report = linalg::conjugate_gradient(
        *this, b, solution.x, workspace,
        {.tolerance = 1e-11, .max_iterations = 4 * size() + 200, .require_convergence = dim() > largest_dense},
        precondition);
    solution.iterations = report.iterations;
    if (!report.converged) solution.x = solve_dense(b);
    return solution;
  }

 private:
  std::size_t row_begin(Index i) const { return cells_.row_begin[static_cast<std::size_t>(i)]; }
  std::size_t col_begin(Index j) const { return cells_.col_begin[static_cast<std::size_t>(j)]; }
  /// Every cell has a weight: A is positive definite without a ridge.
  bool full_data() const { return cells_.col.size() == static_cast<std::size_t>(u_.rows() * v_.rows()); }

  void project(const std::vector<double>& values, View<double, 1> x) const {
    const Index rank = u_.cols();
    Eigen::Map<Matrix<double>> p(x.data(), v_.rows(), rank), q(x.data() + v_.size(), u_.rows(), rank);
    parallel_for(v_.rows(), grain, [&](Index begin, Index end) {
      for (Index j = begin; j < end; ++j) {
        for (Index k = 0; k < rank; ++k) p(j, k) = 0;
        for (std::size_t at = col_begin(j); at < col_begin(j + 1); ++at) {
          const std::size_t c = cells_.by_column[at];
          for (Index k = 0; k < rank; ++k) p(j, k) += values[c] * u_(cells_.row[c], k);
        }
      }
    });
    parallel_for(u_.rows(), grain, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        for (Index k = 0; k < rank; ++k) q(i, k) = 0;
        for (std::size_t c = row_begin(i); c < row_begin(i + 1); ++c)
          for (Index k = 0; k < rank; ++k) q(i, k) += values[c] * v_(cells_.col[c], k);
      }
    });
    remove_span(q);
  }

  /// Q - U U^T Q.
  template <class Q>
  void remove_span(Q& q) const {
    q -= u_ * (u_.transpose() * q).eval();
  }

  /// The shortest solution, with A as a matrix of columns A e_k restricted to U^T Q = 0. O(size^3).
  Vector<double> solve_dense(const Vector<double>& b) const {
    Eigen::MatrixXd a(size(), size());
    for (Index k = 0; k < size(); ++k) {
      Vector<double> e = Vector<double>::Unit(size(), k), column(size());
      Eigen::Map<Matrix<double>> q(e.data() + v_.size(), u_.rows(), u_.cols());
      remove_span(q);
      (*this)(View<const double, 1>(e), View<double, 1>(column));
      a.col(k) = column;
    }
    return a.completeOrthogonalDecomposition().solve(b);
  }

  const Cells& cells_;
  const Matrix<double>&u_, &v_;
  double ridge_;
  mutable std::vector<double> residual_;  // scratch of one application
};

}  // namespace ashlar::bandits::detail
