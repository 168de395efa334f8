// How likely a variable X is given candidate parents PA, by Gaussian-process regression of features of X on PA: the
// score of kernel causal discovery as a function of its kernel parameters, with its gradient. Lower is better.
//
//   K_PA = exp(-1/2 sum_p D_p / l_p^2),  A = K_PA + s I,  K_X = exp(-D_X / (2 w^2))     D: squared distances, [n, n]
//   marginal:  F(l, s) = 1/2 tr(K_X A^-1 K_X) + n/2 log|A| + n^2/2 log 2 pi,  w given
//   joint:     S(l, s, w) = F / n^2 - J(w),  J = mean of 1/2 log g over the pairs with g > tau,
//              g_ij = |d k(x_i, x_j) / d x_i|^2 = D_ij w^-4 K_X,ij^2
//   output:    F(l, s) = 1/2 tr(X^T A^-1 X) + c/2 log|A| + c n/2 log 2 pi,  c = d columns of X
//
// The features are the empirical kernel map: the n columns of K_X, so that the determinant counts n times. J is what
// keeps the width w of X from growing until everything is predictable. It averages over kept pairs alone, so S has no
// useful global minimum in w: it is meant to be descended from a wide start.
//
//   causal::KernelLikelihood joint(causal::KernelScore::joint, d_x, parents);
//   Vector<double> gradient; double value = joint.evaluate(theta, gradient);     // theta = l_1 .. l_q, s, w
//
// Kernels of smooth functions have few eigenvalues above rounding. With K_PA = H H^T + E (rank m) and K_X = G G^T + E'
// (rank r) by pivoted Cholesky, the inverse of A is one of m x m, and value and gradient take
// O(n^2 (m + r + q) + n (m + r)^2) instead of 6 n^3; where m is above n / 4 the n x n matrix is factored. The
// remainders have traces of at most max(1e-10 s, 1e-15 n), which moves A^-1, and the terms of F with it, by
// at most 1e-10 + 1e-15 n / s in relative terms.
//
// Source: Wang, Huang, Liu, You, Liu, Zhang, Gong, "Optimal Kernel Choice for Score Function-based Causal Discovery",
// ICML 2024; the features and the score by cross-validation are those of Huang, Zhang, Lin, Schoelkopf, Glymour,
// "Generalized Score Functions for Causal Discovery", KDD 2018.
#pragma once

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/causal/detail/kernel_factors.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::causal {

enum class KernelScore {
  marginal,  ///< F with lengths and noise as parameters
  joint,     ///< S with the width of X as one more: the paper's score
  output     ///< regression of X itself
};

struct KernelLikelihoodOptions {
  double x_length = 1;      ///< w of the marginal score
  double threshold = 1e-3;  ///< tau of the joint score, compared with g; the authors' program
  bool n_outputs = false;  ///< the output score counts the determinant n times instead of d times, as that program does
};

namespace detail {

inline void check_theta(std::string_view function, Index parents, KernelScore kind, const Vector<double>& theta) {
  const Index expected = parents + (kind == KernelScore::joint ? 2 : 1);
  require(theta.size() == expected, function, "theta has ", theta.size(), " entries, expected ", expected,
          " (a length for each of ", parents, " parents, the noise",
          kind == KernelScore::joint ? ", the width of X)" : ")");
  for (Index i = 0; i < theta.size(); ++i)
    require(theta[i] > 0 && std::isfinite(theta[i]), function, "theta[", i, "] must be positive and finite, got ",
            theta[i]);
}

inline void check_distances(std::string_view function, KernelScore kind, View<const double, 2> x,
                            std::span<const View<const double, 2>> parents, const KernelLikelihoodOptions& options) {
  const Index n = x.extent(0);
  check_argument(n >= 4, function, "the number of samples", "at least 4", n);
  if (kind != KernelScore::output) check_shape(function, "x", x.shape(), {n, n}, "squared distances");
  require(kind == KernelScore::output || x.contiguous(), function, "the rows of x have gaps");
  for (std::size_t p = 0; p < parents.size(); ++p) {
    check_shape(function, message("parents[", p, "]"), parents[p].shape(), {n, n}, "squared distances");
    require(parents[p].contiguous(), function, "the rows of parents[", p, "] have gaps");
  }
  check_argument(options.x_length > 0 && std::isfinite(options.x_length), function, "x_length", "positive and finite",
                 options.x_length);
  check_argument(options.threshold > 0 && std::isfinite(options.threshold), function, "threshold",
                 "positive and finite", options.threshold);
}

}  // namespace detail

namespace reference {

/// The formulas as they stand, with a full inverse. x: [n, n] squared distances of X, for the output score [n, d] X
/// itself; parents: [n, n] each. Fills the gradient, the kept pairs of J taken as constant. O(n^3).
inline double kernel_likelihood(KernelScore kind, View<const double, 2> x,
                                std::span<const View<const double, 2>> parents, const Vector<double>& theta,
                                Vector<double>& gradient, const KernelLikelihoodOptions& options = {}) {
  detail::check_distances("kernel_likelihood", kind, x, parents, options);
  const Index n = x.extent(0), q = std::ssize(parents);
  detail::check_theta("kernel_likelihood", q, kind, theta);
  const double order = static_cast<double>(n), s = theta[q];
  const double w = kind == KernelScore::joint ? theta[q + 1] : options.x_length;
  Matrix<double> exponent = Matrix<double>::Zero(n, n);
  for (Index p = 0; p < q; ++p) exponent += matrix(parents[static_cast<std::size_t>(p)]) / (theta[p] * theta[p]);
  const Matrix<double> k = (-0.5 * exponent.array()).exp();
  Matrix<double> y = matrix(x);
  if (kind != KernelScore::output) y = (-y.array() / (2 * w * w)).exp().matrix().eval();
  const double outputs = kind == KernelScore::output && options.n_outputs ? order : static_cast<double>(y.cols());

  const Eigen::LLT<Matrix<double>> factor(k + s * Matrix<double>::Identity(n, n));
  if (factor.info() != Eigen::Success) throw NumericalError("kernel_likelihood: A is not positive definite");
  const Matrix<double> inverse = factor.solve(Matrix<double>::Identity(n, n)), r = inverse * y;
  const Matrix<double> m = 0.5 * (outputs * inverse - r * r.transpose());
  double value = 0.5 * y.cwiseProduct(r).sum() + outputs * factor.matrixLLT().diagonal().array().log().sum() +
                 outputs * order / 2 * std::log(2 * std::numbers::pi);
  gradient.resize(theta.size());
  for (Index p = 0; p < q; ++p)
    gradient[p] = (m.array() * k.array() * matrix(parents[static_cast<std::size_t>(p)]).array()).sum() /
                  (theta[p] * theta[p] * theta[p]);
  gradient[q] = m.trace();
  if (kind != KernelScore::joint) return value;

  const Matrix<double> d = matrix(x);
  gradient[q + 1] = (r.array() * y.array() * d.array()).sum() / (w * w * w);
  double sum = 0, slope = 0, kept = 0;
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j)
      if (const double g = d(i, j) * y(i, j) * y(i, j) / (w * w * w * w); g > options.threshold) {
        sum += std::log(g) / 2;
        slope += -2 / w + d(i, j) / (w * w * w);
        kept += 1;
      }
  gradient /= order * order;
  if (kept > 0) gradient[q + 1] -= slope / kept;
  return value / (order * order) - (kept > 0 ? sum / kept : 0);
}

}  // namespace reference

/// The same, arranged for many evaluations with one X and one set of parents. Keeps views of the distances, which must
/// outlive it, and 4 n^2 numbers of scratch. One evaluation at a time.
class KernelLikelihood {
 public:
  /// x: [n, n] squared distances of X, for the output score [n, d] X itself; parents: [n, n] each, contiguous.
  /// Throws InvalidArgument for other shapes, for n < 4 and for options that are not positive.
  KernelLikelihood(KernelScore kind, View<const double, 2> x, std::span<const View<const double, 2>> parents,
                   const KernelLikelihoodOptions& options = {})
      : KernelLikelihood(kind, x, parents, options, nullptr) {}

  /// The same with the order of the distances of X computed before.
  KernelLikelihood(KernelScore kind, View<const double, 2> x, std::span<const View<const double, 2>> parents,
                   const KernelLikelihoodOptions& options, std::shared_ptr<const detail::OrderedDistances> ordered)
      : kind_(kind), x_(x), parents_(parents.begin(), parents.end()), options_(options), ordered_(std::move(ordered)) {
    detail::check_distances("KernelLikelihood", kind, x, parents, options);
    const Index n = samples();
    k_ = h_ = Matrix<double>::Zero(n, n);
    if (kind == KernelScore::output) {
      g_ = matrix(x).transpose();
      core_ = Matrix<double>::Identity(g_.rows(), g_.rows());
      outputs_ = static_cast<double>(options.n_outputs ? n : x.extent(1));
      return;
    }
    g_ = k_x_ = Matrix<double>::Zero(n, n);
    outputs_ = static_cast<double>(n);
    if (kind == KernelScore::marginal) factor_outputs(options.x_length, 1e-15 * outputs_);
    if (kind == KernelScore::joint && !ordered_) ordered_ = std::make_shared<detail::OrderedDistances>(x);
  }

  Index samples() const { return x_.extent(0); }
  Index parents() const { return std::ssize(parents_); }
  Index parameters() const { return parents() + (kind_ == KernelScore::joint ? 2 : 1); }
  /// Rank of K_PA in the last evaluation, n where it was factored whole.
  Index rank() const { return rank_; }
  /// Pairs of samples that J(w) averages; J is 0 without any. For the joint score.
  Index kept_pairs(double w) const { return ordered_ ? ordered_->term(w, options_.threshold).kept : 0; }

  /// The score at theta = (l_1, ..., l_q, s), with w behind for the joint score; fills the gradient.
  /// Where A is not positive definite to rounding, 1e-10 n is added to s, then 10 and 100 times as much.
  /// Throws InvalidArgument for another number of parameters or one that is not positive, NumericalError where that
  /// does not help.
  double evaluate(const Vector<double>& theta, Vector<double>& gradient) {
    const Index n = samples(), q = parents();
    detail::check_theta("KernelLikelihood::evaluate", q, kind_, theta);
    gradient.resize(theta.size());
    const double order = static_cast<double>(n), tolerance = std::max(1e-10 * theta[q], 1e-15 * order);
    weights_.resize(parents_.size());
    for (Index p = 0; p < q; ++p) weights_[static_cast<std::size_t>(p)] = 0.5 / (theta[p] * theta[p]);
    detail::product_gram(parents_, weights_, k_);
    rank_ = detail::pivoted_cholesky(k_, tolerance, std::min(n, std::max<Index>(8, n / 4)), h_);
    if (kind_ == KernelScore::joint) factor_outputs(theta[q + 1], tolerance);

    double value = 0, noise = theta[q], jitter = 1e-10 * order;
    for (int attempt = 0; !(rank_ >= 0 ? solve_low_rank(noise, value) : solve_dense(noise, value)); ++attempt) {
      if (attempt == 3)
        throw NumericalError(message("KernelLikelihood: A is not positive definite even with noise ", noise));
      noise = theta[q] + jitter;
      jitter *= 10;
    }
    length_gradient(theta, noise, gradient);
    gradient[q] = noise_gradient_;
    if (rank_ < 0) rank_ = n;
    if (kind_ != KernelScore::joint) return value;

    const double w = theta[q + 1];
    const auto jacobian = ordered_->term(w, options_.threshold);
    gradient[q + 1] = width_gradient(w);
    gradient /= order * order;
    gradient[q + 1] -= jacobian.slope;
    return value / (order * order) - jacobian.value;
  }

 private:
  static constexpr Index tile_rows = 64;

  /// K_X, its factor G as the rows of g_, and G^T G.
  void factor_outputs(double w, double tolerance) {
    const double weight = 0.5 / (w * w);
    detail::product_gram({&x_, 1}, {&weight, 1}, k_x_);
    const Index rank = detail::pivoted_cholesky(k_x_, tolerance, samples(), g_);
    g_rank_ = rank;
    core_.noalias() = g_.topRows(rank) * g_.topRows(rank).transpose();
  }

  Index output_rank() const { return kind_ == KernelScore::output ? g_.rows() : g_rank_; }

  /// F, its derivative in s, T = L^-1 H^T with H^T H + s I = L L^T, and Z = A^-1 G; false without a Cholesky factor.
  bool solve_low_rank(double s, double& value) {
    const Index n = samples(), m = rank_, r = output_rank();
    const auto g = g_.topRows(r), h = h_.topRows(m);
    Matrix<double> small = h * h.transpose();
    small.diagonal().array() += s;
    const Eigen::LLT<Matrix<double>> factor(small);
    if (factor.info() != Eigen::Success) return false;
    t_ = h;
    factor.matrixL().solveInPlace(t_);
    const Matrix<double> v = t_ * g.transpose();
    z_ = g;
    z_.noalias() -= v.transpose() * t_;
    z_ /= s;
    core_z_.noalias() = core_ * z_;
    const Matrix<double> inverse = factor.matrixL().solve(Matrix<double>::Identity(m, m));
    const double trace = static_cast<double>(n - m) / s + inverse.squaredNorm();  // of A^-1
    const double half_log =
        0.5 * static_cast<double>(n - m) * std::log(s) + factor.matrixLLT().diagonal().array().log().sum();
    finish(trace, half_log, value);
    return true;
  }

  /// The same from the factor of A itself; inverse_ holds A^-1 in its lower triangle.
  bool solve_dense(double s, double& value) {
    const Index n = samples(), r = output_rank();
    inverse_ = k_.triangularView<Eigen::Lower>();
    inverse_.diagonal().array() += s;
    Eigen::LLT<Eigen::Ref<Matrix<double>>> factor(inverse_);
    if (factor.info() != Eigen::Success) return false;
    const double half_log = inverse_.diagonal().array().log().sum();
    invert_factor(inverse_);
    const double trace = inverse_.squaredNorm();  // above the diagonal are zeros
    z_.noalias() = g_.topRows(r) * inverse_.triangularView<Eigen::Lower>().transpose();
    z_ = (z_ * inverse_.triangularView<Eigen::Lower>()).eval();
    for (Index begin = 0; begin < n; begin += tile_rows) {
      const Index rows = std::min(tile_rows, n - begin);
      // A^-1 = L^-T L^-1: its rows need those of L^-1 from the same one on, so that they can take their place.
      const Matrix<double> left = inverse_.block(begin, begin, n - begin, rows);
      const Matrix<double> right = inverse_.block(begin, 0, n - begin, begin + rows);
      inverse_.block(begin, 0, rows, begin + rows).noalias() = left.transpose() * right;
    }
    core_z_.noalias() = core_ * z_;
    finish(trace, half_log, value);
    return true;
  }

  static void invert_factor(Matrix<double>& l) {
    detail::invert_lower<Eigen::Ref<Matrix<double>, 0, Eigen::OuterStride<>>>(l);
  }

  void finish(double trace, double half_log, double& value) {
    const auto g = g_.topRows(output_rank());
    value = 0.5 * core_z_.cwiseProduct(g).sum() + outputs_ * half_log +
            outputs_ * static_cast<double>(samples()) / 2 * std::log(2 * std::numbers::pi);
    noise_gradient_ = 0.5 * (outputs_ * trace - core_z_.cwiseProduct(z_).sum());
  }

  /// dF/dl_p = -sum_{i > j} E_ij K_ij D_p,ij / l_p^3, E = -2 M = R R^T - c A^-1 off the diagonal, where D is zero.
  /// E comes in tiles of a few rows: products of rank m + r, or of rank r with A^-1 added.
  void length_gradient(const Vector<double>& theta, double s, Vector<double>& gradient) {
    const Index n = samples(), q = parents(), m = std::max<Index>(rank_, 0), r = output_rank();
    gradient.head(q).setZero();
    if (q == 0) return;
    left_.resize(m + r, n);
    right_.resize(m + r, n);
    if (m > 0) left_.topRows(m) = (outputs_ / s) * t_, right_.topRows(m) = t_;
    left_.bottomRows(r) = core_z_;
    right_.bottomRows(r) = z_;
    for (Index begin = 0; begin < n; begin += tile_rows) {
      const Index rows = std::min(tile_rows, n - begin), columns = begin + rows;
      tile_.noalias() = left_.middleCols(begin, rows).transpose() * right_.leftCols(columns);
      if (rank_ < 0) tile_ -= outputs_ * inverse_.block(begin, 0, rows, columns);
      for (Index i = begin; i < columns; ++i) {
        auto row = tile_.row(i - begin).head(i);
        row.array() *= k_.row(i).head(i).array();
        for (Index p = 0; p < q; ++p) {
          const Eigen::Map<const Eigen::RowVectorXd> d(parents_[static_cast<std::size_t>(p)].data() + i * n, i);
          gradient[p] -= row.dot(d);
        }
      }
    }
    gradient.head(q).array() /= theta.head(q).array().cube();
  }

  /// dF/dw = sum (A^-1 K_X)_ij K_X,ij D_ij / w^3 with A^-1 K_X = Z G^T, both triangles of the product taken together.
  double width_gradient(double w) {
    const Index n = samples(), r = output_rank();
    left_.resize(2 * r, n);
    right_.resize(2 * r, n);
    left_ << z_, g_.topRows(r);
    right_ << g_.topRows(r), z_;
    double sum = 0;
    for (Index begin = 0; begin < n; begin += tile_rows) {
      const Index rows = std::min(tile_rows, n - begin), columns = begin + rows;
      tile_.noalias() = left_.middleCols(begin, rows).transpose() * right_.leftCols(columns);
      for (Index i = begin; i < columns; ++i) {
        const Eigen::Map<const Eigen::RowVectorXd> d(x_.data() + i * n, i);
        sum += (tile_.row(i - begin).head(i).array() * k_x_.row(i).head(i).array() * d.array()).sum();
      }
    }
    return sum / (w * w * w);
  }

  KernelScore kind_;
  View<const double, 2> x_;
  std::vector<View<const double, 2>> parents_;
  KernelLikelihoodOptions options_;
  std::shared_ptr<const detail::OrderedDistances> ordered_;
  double outputs_ = 0, noise_gradient_ = 0;
  Index rank_ = 0, g_rank_ = 0;
  std::vector<double> weights_;
  Matrix<double> k_, k_x_;         ///< Gram matrices, lower triangles
  Matrix<double> h_, g_, core_;    ///< factors, a row a rank; Y Y^T = G core G^T
  Matrix<double> t_, z_, core_z_;  ///< L^-1 H^T; (A^-1 G)^T and core times it
  Matrix<double> inverse_;         ///< A^-1 in its lower triangle, when K_PA has no small rank
  Matrix<double> left_, right_, tile_;
};

}  // namespace ashlar::causal
