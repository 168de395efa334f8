// What interpolating noise costs. For features psi with E psi psi^T = I, a target theta^T psi and noise of variance
// sigma^2, the interpolant of least norm has the expected test error
//
//   B + sigma^2 (V + 1),    B = |theta - C Psi^T theta|^2,    V = |C|_F^2,    C = Lambda Psi K^-1.
//
//   const auto risk = kernels::exact_risk(lambda, features, theta);            // features: [n, p]
//   risk.bias, risk.variance, risk.test_error(sigma * sigma), risk.reliable
//   const auto sampled = kernels::sampled_risk(k, k_test, target, target_test); // kernels without known features
//
// C never passes through K^-1 where features are known: with Lambda^1/2 Psi = Q L^T, Q orthonormal, it is
// Lambda^1/2 Q L^-1, and only the root of K's condition number enters. Q and L come from two rounds of Cholesky QR, all
// matrix products; where the Gram matrix is too close to singular for its first round, from Householder's method with
// column pivoting; where the features themselves are dependent, from singular values.
//
// Cost: 5 n^2 p floating-point operations; the naive route through K takes 4, Householder's 4 at the speed of memory.
// Source: Cheng et al., ICML 2024; Yamamoto et al., "Roundoff error analysis of the CholeskyQR2 algorithm", ETNA 2015.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/kernels/ridgeless.hpp"
#include "ashlar/kernels/spectral_design.hpp"
#include "ashlar/linalg/extreme_eigenvalues.hpp"
#include "ashlar/linalg/gram.hpp"

namespace ashlar::kernels {

struct Risk {
  double bias = 0;        ///< B, without noise
  double variance = 0;    ///< V, for noise of variance one
  double condition = 0;   ///< of Lambda^1/2 Psi, the root of the Gram matrix's; of what counts, when rank < n
  Index rank = 0;         ///< of Lambda^1/2 Psi
  bool reliable = false;  ///< condition < 1e10

  /// Expected squared error on a test response, noise included.
  double test_error(double noise_variance) const { return bias + noise_variance * (variance + 1); }
};

namespace reference {

/// exact_risk as written: pivoted QR of Lambda^1/2 Psi, C in full. n <= p, features in general position.
inline Risk exact_risk(const Vector<double>& lambda, const Matrix<double>& features, const Vector<double>& theta) {
  const Index n = features.rows(), p = features.cols();
  const Eigen::MatrixXd psi = features.transpose();  // [p, n], a sample a column
  const Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr(lambda.cwiseSqrt().asDiagonal() * psi);
  const Eigen::MatrixXd q = qr.householderQ() * Eigen::MatrixXd::Identity(p, n);
  const Eigen::MatrixXd r = qr.matrixQR().topRows(n).triangularView<Eigen::Upper>();
  const Eigen::MatrixXd permuted = qr.colsPermutation().transpose() * Eigen::MatrixXd::Identity(n, n);
  const Eigen::MatrixXd c =
      lambda.cwiseSqrt().asDiagonal() * q * r.transpose().triangularView<Eigen::Lower>().solve(permuted);
  const Vector<double> s = Eigen::JacobiSVD<Eigen::MatrixXd>(r).singularValues();
  Risk risk{.bias = (theta - c * (psi.transpose() * theta)).squaredNorm(), .variance = c.squaredNorm()};
  risk.condition = s[0] / s[n - 1];
  risk.rank = n;
  risk.reliable = risk.condition < 1e10;
  return risk;
}

}  // namespace reference

/// The map from n responses to the coefficients of their interpolant of least norm in p features, theta = C y.
class FeatureInterpolator {
 public:
  /// lambda: [p], positive, not increasing; features: [n, p]. n > p is least squares, of rank p.
  FeatureInterpolator(View<const double, 1> lambda, View<const double, 2> features)
      : root_(vector(lambda).cwiseMax(0.0).cwiseSqrt()), order_(features.extent(0)) {
    detail::check_design("FeatureInterpolator", lambda, features);
    q_ = detail::weighted_features(lambda, features);
    if (order_ > q_.cols() || !cholesky_qr()) {
      q_ = detail::weighted_features(lambda, features);
      if (order_ > q_.cols() || !pivoted_qr()) singular_values();
    }
    rank_ = lower_.rows();
    condition_ = condition_of_factor();
  }

  Index rank() const { return rank_; }
  double condition() const { return condition_; }  ///< of Lambda^1/2 Psi: the root of the Gram matrix's
  bool reliable() const { return condition_ < 1e10; }

  /// C y: [p]. y: [n]. O(n p).
  Vector<double> coefficients(View<const double, 1> y) const {
    check_shape("FeatureInterpolator::coefficients", "y", y.shape(), {order_}, "one response a row of features");
    const Vector<double> turned = rotation_.size() == 0 ? Vector<double>(vector(y)) : rotation_ * vector(y);
    const Vector<double> weights = lower_.triangularView<Eigen::Lower>().solve(turned);
    return root_.cwiseProduct(q_.transpose() * weights);
  }

  /// V = |C|_F^2 = sum_i lambda_i |L^-T q_i|^2, a block of features at a time, C never stored. n^2 p.
  double variance() const {
    const Index p = q_.cols();
    std::vector<double> sums(static_cast<std::size_t>(chunk_count(p, block)));
    parallel_for(p, block, [&](Index begin, Index end) {
      Matrix<double> part = q_.middleCols(begin, end - begin);
      lower_.triangularView<Eigen::Lower>().transpose().solveInPlace(part);
      sums[static_cast<std::size_t>(begin / block)] =
          (part * root_.segment(begin, end - begin).asDiagonal()).squaredNorm();
    });
    double total = 0;
    for (const double sum : sums) total += sum;
    return total;
  }

  /// B = |theta - C Psi^T theta|^2. features: those of the constructor; theta: [p]. O(n p).
  double bias(View<const double, 2> features, View<const double, 1> theta) const {
    constexpr auto function = "FeatureInterpolator::bias";
    check_shape(function, "features", features.shape(), {order_, q_.cols()}, "those it was built from");
    check_shape(function, "theta", theta.shape(), {q_.cols()}, "one coefficient a feature");
    const Vector<double> responses = matrix(features) * vector(theta);
    return (vector(theta) - coefficients(responses)).squaredNorm();
  }

 private:
  static constexpr Index block = 256;

  /// The lower triangle of q q^T: [n, n].
  Matrix<double> gram_of_rows() const {
    Matrix<double> k = Matrix<double>::Zero(order_, order_);
    parallel_for(order_, 64, [&](Index begin, Index end) {
      k.block(begin, 0, end - begin, end).noalias() = q_.middleRows(begin, end - begin) * q_.topRows(end).transpose();
    });
    return k;
  }

  /// Turns q_ = (Lambda^1/2 Psi)^T into Q^T and sets L, or says that the matrix is too close to singular for it.
  bool cholesky_qr() {
    for (int round = 0; round < 2; ++round) {
      Matrix<double> k = gram_of_rows();
      // What the first round left: orthonormal up to kappa eps. The second makes eps of it as long as that is below
      // one.
      if (round == 1) {
        Matrix<double> rest = k.triangularView<Eigen::Lower>();
        rest.diagonal().array() -= 1;
        if (!(rest.norm() < 0.25)) return false;
      }
      const Eigen::LLT<Matrix<double>> factor(k);
      if (factor.info() != Eigen::Success) return false;
      const Matrix<double> l = factor.matrixL();
      parallel_for(q_.cols(), block, [&](Index begin, Index end) {
        auto part = q_.middleCols(begin, end - begin);
        l.triangularView<Eigen::Lower>().solveInPlace(part);
      });
      lower_ = round == 0 ? l : Matrix<double>(lower_ * l);
    }
    return true;
  }

  /// The same by Householder reflections, the longest sample first: small features keep their digits next to large
  /// ones.
  bool pivoted_qr() {
    const Index n = order_, p = q_.cols();
    const Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr(q_.transpose());
    const Eigen::MatrixXd r = qr.matrixQR().topRows(n).triangularView<Eigen::Upper>();
    const Vector<double> pivots = r.diagonal().cwiseAbs();
    if (!(pivots.minCoeff() > static_cast<double>(p) * std::numeric_limits<double>::epsilon() * pivots[0]))
      return false;
    q_ = (qr.householderQ() * Eigen::MatrixXd::Identity(p, n)).transpose();
    lower_ = r.transpose();
    rotation_ = Matrix<double>(qr.colsPermutation().transpose() * Eigen::MatrixXd::Identity(n, n));
    return true;
  }

  /// The pseudo-inverse: L diagonal, y turned by the right singular vectors.
  void singular_values() {
    const Eigen::JacobiSVD<Eigen::MatrixXd> svd(q_.transpose(), Eigen::ComputeThinU | Eigen::ComputeThinV);
    const Vector<double> s = svd.singularValues();
    const double tolerance =
        static_cast<double>(std::max(order_, q_.cols())) * std::numeric_limits<double>::epsilon() * s[0];
    const Index rank = std::max<Index>(1, (s.array() > tolerance).count());
    q_ = svd.matrixU().leftCols(rank).transpose();
    lower_ = s.head(rank).asDiagonal();
    rotation_ = svd.matrixV().leftCols(rank).transpose();
  }

  double condition_of_factor() const {
    const auto lower = lower_.triangularView<Eigen::Lower>();
    const auto product = [&](View<const double, 1> x, View<double, 1> y) {
      const Vector<double> half = lower.transpose() * vector(x);
      vector(y) = lower * half;
    };
    const auto inverse = [&](View<const double, 1> x, View<double, 1> y) {
      const Vector<double> half = lower.solve(vector(x));
      vector(y) = lower.transpose().solve(half);
    };
    const Index n = lower_.rows();
    const linalg::LanczosOptions every{.max_iterations = n};  // n steps always end
    return std::sqrt(linalg::largest_eigenvalue<double>(product, n, every) *
                     linalg::largest_eigenvalue<double>(inverse, n, every));
  }

  Vector<double> root_;      ///< [p]: lambda^1/2
  Index order_;              ///< n
  Matrix<double> q_;         ///< [rank, p]: Q^T
  Matrix<double> lower_;     ///< [rank, rank]: L
  Matrix<double> rotation_;  ///< [rank, n]: what y goes through before L^-1; empty: nothing
  Index rank_ = 0;
  double condition_ = 0;
};

/// Bias and variance of the interpolant given the features. lambda: [p], features: [n, p], theta: [p], the target's
/// coefficients in psi (orthonormal in L2, not lambda^1/2 psi). 5 n^2 p. Throws InvalidArgument when lambda is not
/// positive and falling or a shape does not fit.
inline Risk exact_risk(View<const double, 1> lambda, View<const double, 2> features, View<const double, 1> theta) {
  constexpr auto function = "exact_risk";
  check_shape(function, "theta", theta.shape(), {lambda.extent(0)}, "one coefficient a feature");
  require(vector(theta).allFinite(), function, "theta has an entry that is not finite");
  const FeatureInterpolator interpolator(lambda, features);
  Risk risk{.bias = interpolator.bias(features, theta), .variance = interpolator.variance()};
  risk.condition = interpolator.condition();
  risk.rank = interpolator.rank();
  risk.reliable = interpolator.reliable();
  return risk;
}

/// Bias and variance as means over test points, with their standard errors.
struct SampledRisk {
  double bias = 0, bias_error = 0;
  double variance = 0, variance_error = 0;  ///< for noise of variance one
  double rcond = 0;                         ///< of the Gram matrix
  Index rank = 0;                           ///< below n: eigenvalues were cut off, and V is that of the cut matrix
  bool reliable = false;                    ///< nothing cut off and rcond > 1e-12

  double test_error(double noise_variance) const { return bias + noise_variance * (variance + 1); }
};

namespace reference {

/// One test point after another. gram: [n, n], k_test: [m, n].
inline double sampled_variance(const Matrix<double>& gram, const Matrix<double>& k_test) {
  double sum = 0;
  for (Index i = 0; i < k_test.rows(); ++i)
    sum += ridgeless_coefficients(gram, k_test.row(i).transpose()).squaredNorm();
  return sum / static_cast<double>(k_test.rows());
}

}  // namespace reference

/// V = mean |K^+ k_x|^2 and B = mean (f*(x) - k_x^T K^+ f*(X))^2. gram: [n, n], k_test: [m, n], target: [n] and
/// target_test: [m], values of f* without noise, zero when left out. n^3 / 3 + 2 n^2 m. Errors as RidgelessSolver.
inline SampledRisk sampled_risk(View<const double, 2> gram, View<const double, 2> k_test,
                                View<const double, 1> target = {}, View<const double, 1> target_test = {}) {
  constexpr auto function = "sampled_risk";
  const Index n = gram.extent(0), m = k_test.extent(0);
  check_shape(function, "k_test", k_test.shape(), {m, n}, "one column a training point");
  require(m >= 1, function, "k_test has no rows");
  require(matrix(k_test).allFinite(), function, "k_test has an entry that is not finite");
  const bool with_target = !target.empty() || !target_test.empty();
  if (with_target) {
    detail::check_target(function, "target", target, n);
    check_shape(function, "target_test", target_test.shape(), {m}, "one value a row of k_test");
  }
  const RidgelessSolver solver(gram);
  Vector<double> variances(m), biases = Vector<double>::Zero(m);
  if (with_target) biases = (vector(target_test) - matrix(k_test) * solver.solve(target)).cwiseAbs2();
  constexpr Index block = 64;
  parallel_for(m, block, [&](Index begin, Index end) {
    const Matrix<double> right = matrix(k_test).middleRows(begin, end - begin).transpose();
    variances.segment(begin, end - begin) = solver.solve_columns(right).colwise().squaredNorm().transpose();
  });
  const auto standard_error = [&](const Vector<double>& values) {
    if (m < 2) return std::numeric_limits<double>::infinity();
    const double spread = (values.array() - values.mean()).matrix().squaredNorm();
    return std::sqrt(spread / (static_cast<double>(m) * static_cast<double>(m - 1)));
  };
  return {.bias = biases.mean(),
          .bias_error = standard_error(biases),
          .variance = variances.mean(),
          .variance_error = standard_error(variances),
          .rcond = solver.rcond(),
          .rank = solver.rank(),
          .reliable = solver.reliable()};
}

/// The same for a kernel. x: [n, d], x_test: [m, d].
template <class K, class X>
  requires linalg::Kernel<K, double>
SampledRisk sampled_risk(const K& kernel, const X& x, In<X, 2> x_test, In<X, 1> target = {},
                         In<X, 1> target_test = {}) {
  return sampled_risk(linalg::gram(kernel, x), linalg::gram(kernel, x_test, x), target, target_test);
}

}  // namespace ashlar::kernels
