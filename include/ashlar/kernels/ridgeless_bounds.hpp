// Proven bounds for interpolation with known features: on the ends of the Gram matrix's spectrum, on its condition
// number, and on bias and variance. None needs an assumption on how the features are drawn; all hold for the ones at
// hand.
//
//   const auto s = kernels::smallest_eigenvalue_bounds(lambda, features);          // s.lower <= s_min(K) <= s.upper
//   const auto b = kernels::split_bounds(lambda, features, theta, 10);             // V <= b.variance, B <= b.bias
//   const auto best = kernels::risk_bounds(lambda, features, theta);               // over a grid of splits
//
// With A = K_>k, the part of K = Psi^T Lambda Psi that the features after the k-th make, and S = Psi_<=k Psi_<=k^T:
//
//   lambda_i |psi_i|^2 <= s_max <= tr K;   s_min(A), lambda_n s_min(Psi_<=n)^2 <= s_min <= s_max(K_>n-1);
//   V <= (s_max(A) / s_min(A))^2 tr S / mu_k(S)^2 + tr(Psi_>k^T Lambda_>k^2 Psi_>k) / s_min(A)^2;
//   B <= (g h + g mu_1(S)^1/2 u / s_min(A))^2 + (|theta_>k| + r u + r mu_1(S)^1/2 g h)^2,
//   g = s_max(A) / mu_k(S),  h = |Lambda_<=k^-1 theta_<=k|,  u = |Psi_>k^T theta_>k|,
//   r = (lambda_(k+1) s_max(A))^1/2 / s_min(A).
//
// For independent features and lambda_i = i^(-1-a) the condition number grows like n^(1+a), up to logarithms; for
// lambda_i = e^(-a i) like e^(a n). The constants of the risk bounds are large: they certify rates, not numbers.
// Everything is up to rounding, n eps s_max(A); an eigenvalue that small counts as zero, which makes the bounds that
// divide by it infinite, and so still true.
//
// Source: Cheng et al., ICML 2024, on the split of Tsigler, Bartlett, "Benign overfitting in ridge regression", JMLR
// 2023.
#pragma once

#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/kernels/ridgeless.hpp"
#include "ashlar/kernels/spectral_design.hpp"
#include "ashlar/linalg/extreme_eigenvalues.hpp"

namespace ashlar::kernels {

/// s_max / s_min of a Gram matrix: [n, n]. Infinite when s_min is below n eps s_max, where doubles know nothing of it.
/// n^3 / 3. Throws InvalidArgument when it is not symmetric, NumericalError when it is not positive semidefinite.
inline double condition_number(View<const double, 2> gram) {
  constexpr auto function = "condition_number";
  detail::check_gram(function, gram);
  const auto [smallest, largest] = linalg::extreme_eigenvalues(gram);
  const double tolerance =
      static_cast<double>(gram.extent(0)) * std::numeric_limits<double>::epsilon() * std::max(largest, 0.0);
  detail::check_semidefinite(function, Vector<double>::Constant(1, smallest), tolerance);
  return smallest > tolerance ? largest / smallest : std::numeric_limits<double>::infinity();
}

/// How many eigenvalues after the first k weigh as much as the next one, by sum and by sum of squares.
struct EffectiveRanks {
  double r = 0;  ///< sum_(i>k) lambda_i / lambda_(k+1): k / a for a power, 1 / (1 - e^-a) whatever k for an exponential
  double R = 0;  ///< (sum_(i>k) lambda_i)^2 / sum_(i>k) lambda_i^2
};

/// lambda: [p]; 0 <= k < p.
inline EffectiveRanks effective_ranks(View<const double, 1> lambda, Index k) {
  constexpr auto function = "effective_ranks";
  detail::check_spectrum(function, lambda);
  const Index p = lambda.extent(0);
  check_argument(k >= 0 && k < p, function, "k", message("at least 0 and below the ", p, " eigenvalues"), k);
  const auto tail = vector(lambda).tail(p - k) / lambda[k];  // scaled, so that squares do not underflow
  return {.r = tail.sum(), .R = tail.sum() * tail.sum() / tail.squaredNorm()};
}

struct Interval {
  double lower = 0, upper = 0;
};

/// Bounds of one split. They hold with certainty, and are infinite where an eigenvalue they divide by is zero.
struct SplitBounds {
  Index split = 0;                             ///< k
  double variance = 0;                         ///< V is at most this: the sum of the next two
  double variance_head = 0;                    ///< what the first k features add to it
  double variance_tail = 0;                    ///< and the others
  double bias = 0;                             ///< B is at most this
  double smallest_tail = 0, largest_tail = 0;  ///< eigenvalues of K_>k
  double smallest_head = 0, largest_head = 0;  ///< eigenvalues of Psi_<=k Psi_<=k^T; 0 when k is 0
};

/// The least of the bounds over several splits, and where they were found.
struct RiskBounds {
  double variance = 0, bias = 0;
  Index variance_split = 0, bias_split = 0;
  std::vector<SplitBounds> splits;  ///< in the order asked for
};

namespace detail {

/// The lower triangle of k += part part^T. k: [n, n], part: [n, any]. Threaded, the same bits for any number of
/// threads.
template <class Part>
void add_outer_product(Matrix<double>& k, const Part& part) {
  parallel_for(k.rows(), 64, [&](Index begin, Index end) {
    k.block(begin, 0, end - begin, end).noalias() +=
        part.middleRows(begin, end - begin) * part.topRows(end).transpose();
  });
}

inline void check_split(std::string_view function, Index k, Index n, Index p) {
  check_argument(k >= 0 && k < n, function, "k", message("at least 0 and below the ", n, " samples"), k);
  require(p - k >= n, function, "after the first ", k, " of ", p, " features there are fewer than the ", n,
          " samples, so their part of the Gram matrix is singular");
}

/// use(position in splits, K_>k) from the largest split down, adding features to the part before: taking them away from
/// K would cancel what is left. Only the lower triangle of K_>k is meant. weighted: [n, p].
template <class Use>
void for_each_tail(const Matrix<double>& weighted, std::span<const Index> splits, Use&& use) {
  std::vector<std::size_t> order(splits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return splits[a] > splits[b]; });
  Matrix<double> tail = Matrix<double>::Zero(weighted.rows(), weighted.rows());
  Index from = weighted.cols();
  for (const std::size_t i : order) {
    add_outer_product(tail, weighted.middleCols(splits[i], from - splits[i]));
    from = splits[i];
    use(i, tail);
  }
}

/// The ends of the spectrum from a lower triangle; a smallest one below n eps times the largest is zero.
inline Interval spectrum_ends(const Matrix<double>& lower_triangle) {
  const Eigen::SelfAdjointEigenSolver<Matrix<double>> solver(lower_triangle, Eigen::EigenvaluesOnly);
  const Index n = lower_triangle.rows();
  const double largest = solver.eigenvalues()[n - 1], smallest = solver.eigenvalues()[0];
  const double tolerance = static_cast<double>(n) * std::numeric_limits<double>::epsilon() * largest;
  return {.lower = smallest > tolerance ? smallest : 0.0, .upper = largest};
}

/// What the bounds of a split add up to, given the ends of both spectra.
inline void fill_bounds(SplitBounds& b, View<const double, 1> lambda, View<const double, 2> features,
                        View<const double, 1> theta) {
  const Index k = b.split, p = lambda.extent(0);
  const auto psi = matrix(features);
  const auto coefficients = vector(theta), values = vector(lambda);
  const double smallest = b.smallest_tail, largest = b.largest_tail;
  b.variance_tail = (psi.rightCols(p - k) * values.tail(p - k).asDiagonal()).squaredNorm() / (smallest * smallest);
  const double u = (psi.rightCols(p - k) * coefficients.tail(p - k)).norm();
  const double r = std::sqrt(lambda[k] * largest) / smallest;
  double head = 0, tail = coefficients.tail(p - k).norm() + r * u;
  if (k > 0) {
    const double ratio = largest / smallest, g = largest / b.smallest_head, root = std::sqrt(b.largest_head);
    const double h = coefficients.head(k).cwiseQuotient(values.head(k)).norm();
    b.variance_head = ratio * ratio * psi.leftCols(k).squaredNorm() / (b.smallest_head * b.smallest_head);
    head = g * h + g * root / smallest * u;
    tail += r * root * g * h;
  }
  b.variance = b.variance_head + b.variance_tail;
  b.bias = head * head + tail * tail;
  if (!(smallest > 0) || (k > 0 && !(b.smallest_head > 0)))  // 0 / 0 may have happened above
    b.variance = b.bias = std::numeric_limits<double>::infinity();
}

}  // namespace detail

/// 0, 1, 2, 4, ... up to half of n, as far as p features leave n of them after the split.
inline std::vector<Index> default_splits(Index n, Index p) {
  std::vector<Index> splits;
  for (Index k = 0; 2 * k <= n && k < n && p - k >= n; k = std::max<Index>(1, 2 * k)) splits.push_back(k);
  return splits;
}

/// s_max of the Gram matrix of features: max_i lambda_i |psi_i|^2 <= s_max <= tr K. lambda: [p], features: [n, p]. O(n
/// p).
inline Interval largest_eigenvalue_bounds(View<const double, 1> lambda, View<const double, 2> features) {
  detail::check_design("largest_eigenvalue_bounds", lambda, features);
  const Vector<double> parts = matrix(features).colwise().squaredNorm().transpose().cwiseProduct(vector(lambda));
  return {.lower = parts.maxCoeff(), .upper = parts.sum()};
}

/// s_min of the Gram matrix of features: [n, p], p >= n. The lower bound is the best of s_min(K_>k) over the splits,
/// all in [0, n) with p - k >= n, and of lambda_n s_min(Psi_<=n)^2. k = 0 is K itself and proves nothing; the default
/// are the multiples of max(1, n / 8) from 1 on. n^2 p and an eigenvalue problem a split.
inline Interval smallest_eigenvalue_bounds(View<const double, 1> lambda, View<const double, 2> features,
                                           std::span<const Index> splits) {
  constexpr auto function = "smallest_eigenvalue_bounds";
  detail::check_design(function, lambda, features);
  const Index n = features.extent(0), p = features.extent(1);
  require(p >= n, function, "there are fewer features (", p, ") than samples (", n,
          "), so the Gram matrix is singular");
  for (const Index k : splits) detail::check_split(function, k, n, p);
  const auto psi = matrix(features);
  const Matrix<double> weighted = detail::weighted_features(lambda, features);

  const Vector<double> leading = Eigen::BDCSVD<Eigen::MatrixXd>(psi.leftCols(n)).singularValues();
  Interval bounds{.lower = lambda[n - 1] * leading[n - 1] * leading[n - 1]};
  detail::for_each_tail(weighted, splits, [&](std::size_t, const Matrix<double>& tail) {
    bounds.lower = std::max(bounds.lower, detail::spectrum_ends(tail).lower);
  });
  // A vector orthogonal to the first n - 1 features sees only what comes after them.
  const Index last[] = {n - 1};
  detail::for_each_tail(weighted, last, [&](std::size_t, const Matrix<double>& tail) {
    bounds.upper = detail::spectrum_ends(tail).upper;
  });
  return bounds;
}
inline Interval smallest_eigenvalue_bounds(View<const double, 1> lambda, View<const double, 2> features) {
  const Index n = features.extent(0), p = features.extent(1), step = std::max<Index>(1, n / 8);
  std::vector<Index> splits;
  for (Index k = step; k < n && p - k >= n; k += step) splits.push_back(k);
  return smallest_eigenvalue_bounds(lambda, features, splits);
}

/// The condition number of the Gram matrix of features, from the bounds of both ends.
inline Interval condition_number_bounds(View<const double, 1> lambda, View<const double, 2> features) {
  const Interval smallest = smallest_eigenvalue_bounds(lambda, features);
  const Interval largest = largest_eigenvalue_bounds(lambda, features);
  return {.lower = std::max(1.0, largest.lower / smallest.upper), .upper = largest.upper / smallest.lower};
}

namespace detail {

inline RiskBounds bounds_of_splits(std::string_view function, View<const double, 1> lambda,
                                   View<const double, 2> features, View<const double, 1> theta,
                                   std::span<const Index> splits) {
  check_design(function, lambda, features);
  const Index n = features.extent(0), p = features.extent(1);
  check_shape(function, "theta", theta.shape(), {p}, "one coefficient a feature");
  require(vector(theta).allFinite(), function, "theta has an entry that is not finite");
  require(!splits.empty(), function, "splits is empty");
  for (const Index k : splits) check_split(function, k, n, p);

  constexpr double infinity = std::numeric_limits<double>::infinity();
  RiskBounds best{.variance = infinity, .bias = infinity, .splits = std::vector<SplitBounds>(splits.size())};
  const auto psi = matrix(features);
  for_each_tail(weighted_features(lambda, features), splits, [&](std::size_t i, const Matrix<double>& tail) {
    SplitBounds& b = best.splits[i];
    b.split = splits[i];
    const Interval tails = spectrum_ends(tail);
    b.smallest_tail = tails.lower, b.largest_tail = tails.upper;
    if (b.split > 0) {
      const auto head = psi.leftCols(b.split);
      const Interval heads = spectrum_ends(head.transpose() * head);
      b.smallest_head = heads.lower, b.largest_head = heads.upper;
    }
    fill_bounds(b, lambda, features, theta);
  });
  best.variance_split = best.bias_split = splits[0];
  for (const SplitBounds& b : best.splits) {
    if (b.variance < best.variance) best.variance = b.variance, best.variance_split = b.split;
    if (b.bias < best.bias) best.bias = b.bias, best.bias_split = b.split;
  }
  return best;
}

}  // namespace detail

/// Bounds of B and V for each of several splits, all in [0, n) with p - k >= n. lambda: [p], features: [n, p],
/// theta: [p]. n^2 p, and an eigenvalue problem of order n a split. Throws InvalidArgument for other splits.
inline RiskBounds risk_bounds(View<const double, 1> lambda, View<const double, 2> features, View<const double, 1> theta,
                              std::span<const Index> splits) {
  return detail::bounds_of_splits("risk_bounds", lambda, features, theta, splits);
}
/// Over default_splits. Throws InvalidArgument when there are fewer features than samples.
inline RiskBounds risk_bounds(View<const double, 1> lambda, View<const double, 2> features,
                              View<const double, 1> theta) {
  const Index n = features.extent(0), p = features.extent(1);
  if (n >= 1) detail::check_split("risk_bounds", 0, n, p);
  return risk_bounds(lambda, features, theta, default_splits(n, p));
}

/// One split.
inline SplitBounds split_bounds(View<const double, 1> lambda, View<const double, 2> features,
                                View<const double, 1> theta, Index k) {
  return detail::bounds_of_splits("split_bounds", lambda, features, theta, std::span<const Index>(&k, 1)).splits[0];
}

}  // namespace ashlar::kernels
