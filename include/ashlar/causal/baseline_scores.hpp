// The scores that learned kernels are compared with: the generalised score by cross-validation with kernels from the
// median heuristic, and BIC of linear Gaussian models. Lower is better.
//
//   const causal::CrossValidatedScores cv(data, groups);
//   const causal::GaussianScores bic(data);
//   bic(2, std::vector<Index>{0, 1});
//
// Sources: Huang, Zhang, Lin, Schoelkopf, Glymour, "Generalized Score Functions for Causal Discovery", KDD 2018
// (cross-validation); Schwarz, "Estimating the dimension of a model", Annals of Statistics 6 (1978) (BIC).
#pragma once

#include <Eigen/Cholesky>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#include "ashlar/causal/grouped_data.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::causal {

// ---- Cross-validation -------------------------------------------------------------------------------------------

struct CrossValidationOptions {
  int folds = 10;
  double lambda = 0.01;  ///< ridge of the regression, times the number of training samples
  double gamma = 0.01;   ///< of the residual covariance
  bool standardize = true;
};

/// With kernels exp(-D / (2 l^2)), l = 2 sqrt(median / 2), multiplied over parents and centred with H = I - 1/n: the
/// mean over folds of the negative log-likelihood of the held-out features. Folds are runs of floor(n / folds) samples,
/// the last takes the rest. O(folds n^3) a score. Calls from several threads at once are fine.
class CrossValidatedScores {
 public:
  /// Throws InvalidArgument as check_groups, for fewer than 2 folds or more than n, and for a lambda or gamma that is
  /// not positive.
  template <class X>
  CrossValidatedScores(const X& data, const Groups& groups, const CrossValidationOptions& options = {})
      : options_(options) {
    constexpr auto function = "CrossValidatedScores";
    const In<X, 2> view = data;
    check_groups(function, view, groups);
    require(options.folds >= 2 && options.folds <= view.extent(0), function,
            "folds must be between 2 and n = ", view.extent(0), ", got ", options.folds);
    check_argument(options.lambda > 0, function, "lambda", "positive", options.lambda);
    check_argument(options.gamma > 0, function, "gamma", "positive", options.gamma);
    const Matrix<double> x = options.standardize ? standardized(view) : Matrix<double>(matrix(view));
    grams_.resize(groups.size());
    parallel_for(std::ssize(groups), 1, [&](Index begin, Index) {
      const auto i = static_cast<std::size_t>(begin);
      const Matrix<double> columns = columns_of(x, groups[i]);
      const double length = median_length(columns, 2);
      grams_[i] = (squared_distances(columns).array() / (-2 * length * length)).exp();
    });
  }

  Index variables() const { return std::ssize(grams_); }

  /// Throws InvalidArgument as KernelScores::fit.
  double operator()(Index node, std::span<const Index> parents) const {
    check_family("CrossValidatedScores", variables(), node, parents);
    const Matrix<double> k_x = centred(grams_[static_cast<std::size_t>(node)]);
    Matrix<double> k_parents = Matrix<double>::Ones(k_x.rows(), k_x.rows());
    for (const Index p : parents) k_parents.array() *= grams_[static_cast<std::size_t>(p)].array();
    if (!parents.empty()) k_parents = centred(k_parents);
    const Index n = k_x.rows(), length = n / options_.folds;
    double total = 0;
    for (int fold = 0; fold < options_.folds; ++fold) {
      const Index begin = fold * length, end = fold + 1 < options_.folds ? begin + length : n;
      const Split x = split(k_x, begin, end);
      total += parents.empty() ? alone(x) : given(x, split(k_parents, begin, end));
    }
    return total / options_.folds;
  }

 private:
  /// Blocks of a Gram matrix: samples to train on and held-out ones.
  struct Split {
    Matrix<double> train, cross, test;  ///< [n1, n1], [n1, nv], [nv, nv]
  };

  static Matrix<double> centred(const Matrix<double>& k) {
    const Vector<double> means = k.rowwise().mean();
    Matrix<double> c = k.colwise() - means;
    c.rowwise() -= means.transpose();
    c.array() += means.mean();
    return c;
  }

  static Split split(const Matrix<double>& k, Index begin, Index end) {
    const Index n = k.rows(), held = end - begin, rest = n - end;
    Split s{Matrix<double>(n - held, n - held), Matrix<double>(n - held, held), k.block(begin, begin, held, held)};
    s.train << k.topLeftCorner(begin, begin), k.topRightCorner(begin, rest), k.bottomLeftCorner(rest, begin),
        k.bottomRightCorner(rest, rest);
    s.cross << k.block(0, begin, begin, held), k.block(end, begin, rest, held);
    return s;
  }

  /// nv^2/2 log 2 pi + nv sum log diag chol(B) + tr(A) / 2.
  double likelihood(const Eigen::LLT<Matrix<double>>& b, double trace, Index held) const {
    if (b.info() != Eigen::Success) throw NumericalError("CrossValidatedScores: B is not positive definite");
    const double nv = static_cast<double>(held);
    return 0.5 * (nv * nv * std::log(2 * std::numbers::pi) + nv * b.matrixLLT().diagonal().array().log().sum() + trace);
  }

  double alone(const Split& x) const {
    const Index n1 = x.train.rows();
    const double scale = 1 / (options_.gamma * static_cast<double>(n1));
    const Eigen::LLT<Matrix<double>> b(Matrix<double>::Identity(n1, n1) + scale * x.train);
    const Matrix<double> half = b.matrixL().solve(x.cross);
    return likelihood(b, (x.test.trace() - scale * half.squaredNorm()) / options_.gamma, x.test.rows());
  }

  double given(const Split& x, const Split& parents) const {
    const Index n1 = x.train.rows();
    const double ridge = static_cast<double>(n1) * options_.lambda;
    const double scale = ridge * options_.lambda / options_.gamma;
    const Eigen::LLT<Matrix<double>> regression(parents.train + ridge * Matrix<double>::Identity(n1, n1));
    const Matrix<double> weights = regression.solve(parents.cross);  // T1 K_PA,tr,te
    const Matrix<double> half = regression.solve(x.train);           // T1 K_X,tr
    Matrix<double> b = scale * regression.solve(half.transpose());   // T1 K_X,tr T1 is symmetric
    b = (0.5 * (b + b.transpose())).eval();
    b.diagonal().array() += 1;
    const Eigen::LLT<Matrix<double>> b_factor(b);
    const Matrix<double> fitted = x.train * weights, c = x.cross - fitted, t_c = regression.solve(c);
    const double residual =
        x.test.trace() + weights.cwiseProduct(fitted).sum() - 2 * x.cross.cwiseProduct(weights).sum();
    const double explained = scale * c.cwiseProduct(regression.solve(b_factor.solve(t_c))).sum();
    return likelihood(b_factor, (residual - explained) / options_.gamma, x.test.rows());
  }

  CrossValidationOptions options_;
  std::vector<Matrix<double>> grams_;
};

// ---- BIC --------------------------------------------------------------------------------------------------------

/// n/2 (1 + log sigma^2) + lambda (|parents| + 1) log n, sigma^2 the residual variance of the node given its parents in
/// a covariance matrix (divided by n). covariance: [V, V]; O(|parents|^3).
/// Throws InvalidArgument for another shape or family, NumericalError where the parents are linearly dependent or leave
/// no residual.
inline double bic_score(View<const double, 2> covariance, Index samples, Index node, std::span<const Index> parents,
                        double lambda = 0.5) {
  constexpr auto function = "bic_score";
  const Index variables = covariance.extent(0), q = std::ssize(parents);
  check_shape(function, "covariance", covariance.shape(), {variables, variables}, "a square");
  check_argument(samples >= 1, function, "samples", "at least 1", samples);
  check_argument(lambda >= 0, function, "lambda", "not negative", lambda);
  check_family(function, variables, node, parents);
  Matrix<double> among(q, q);
  Vector<double> with(q);
  for (Index i = 0; i < q; ++i) {
    with[i] = covariance(parents[static_cast<std::size_t>(i)], node);
    for (Index j = 0; j < q; ++j)
      among(i, j) = covariance(parents[static_cast<std::size_t>(i)], parents[static_cast<std::size_t>(j)]);
  }
  const Eigen::LLT<Matrix<double>> factor(among);
  double variance = covariance(node, node);
  if (q > 0) {
    if (factor.info() != Eigen::Success)
      throw NumericalError(message("bic_score: the covariance of the parents of ", node, " is not positive definite"));
    variance -= factor.matrixL().solve(with).squaredNorm();
  }
  if (!(variance > 0)) throw NumericalError(message("bic_score: the residual variance of ", node, " is ", variance));
  const double n = static_cast<double>(samples);
  return n / 2 * (1 + std::log(variance)) + lambda * static_cast<double>(q + 1) * std::log(n);
}

/// bic_score of one data set, one column a variable.
class GaussianScores {
 public:
  /// data: [n, V]. Throws InvalidArgument as check_groups and for a negative lambda. O(n V^2).
  template <class X>
  explicit GaussianScores(const X& data, double lambda = 0.5) : lambda_(lambda) {
    const In<X, 2> view = data;
    check_groups("GaussianScores", view, single_columns(view.extent(1)));
    check_argument(lambda >= 0, "GaussianScores", "lambda", "not negative", lambda);
    samples_ = view.extent(0);
    const Matrix<double> centred = matrix(view).rowwise() - matrix(view).colwise().mean();
    covariance_ = centred.transpose() * centred / static_cast<double>(samples_);
  }

  Index variables() const { return covariance_.rows(); }
  double operator()(Index node, std::span<const Index> parents) const {
    return bic_score(covariance_, samples_, node, parents, lambda_);
  }

 private:
  double lambda_;
  Index samples_ = 0;
  Matrix<double> covariance_;
};

}  // namespace ashlar::causal
