// The Hellinger correlation of two samples: 0 for independence and nothing else, 1 for a function either way, |rho| for
// a Gaussian copula, and the same for every increasing or decreasing function of either.
//
//   auto [eta, affinity, kx, ky, beta] = statistics::hellinger_correlation(x, y);
//   double p = statistics::independence_p_value(x, y, 999, rng);
//
// With copula points (u, v) = ranks / (n + 1), their Beta(alpha, alpha) quantiles T, R_i the distance of T_i to its
// nearest neighbour times the root of both Beta densities there, b_k the orthonormal Legendre polynomials of [0, 1]:
//
//   beta_kl = 2 sqrt(n - 1) / n sum_i R_i b_k(u_i) b_l(v_i),      B = beta_00 / sqrt(sum_{k <= K, l <= L} beta_kl^2).
//
// The quantiles keep neighbours at the edges of the square honest, the norm over degrees up to (K, L) makes sqrt(c) a
// function of norm one; K and L minimise the cross-validated error of the series. hellinger_correlation_of maps B to
// eta.
//
// O(n log n) for samples without structure, and n K L for the series: leaving a point out changes the sums by that
// point and those whose nearest neighbour it is, so no sum is taken twice.
//
// Needs the headers of Boost.Math, for the incomplete beta function.
//
// Source: Geenens, Lafaye de Micheaux, "The Hellinger correlation", JASA 117 (2022).
#pragma once

#if !__has_include(<boost/math/special_functions/beta.hpp>)
#error "ashlar/statistics/hellinger_correlation.hpp needs Boost.Math (Debian and Ubuntu: libboost-dev)"
#endif

#include <algorithm>
#include <boost/math/policies/policy.hpp>
#include <boost/math/special_functions/beta.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/numerics/argsort.hpp"
#include "ashlar/numerics/ranks.hpp"
#include "ashlar/statistics/copula_affinity.hpp"

namespace ashlar::statistics {

struct HellingerOptions {
  int max_degree_x = 20, max_degree_y = 20;  ///< K and L at most; both 0: B = beta_00, without a series
  double alpha = 6;                          ///< > 0
};

struct HellingerCorrelation {
  double correlation = 0;          ///< eta
  double affinity = 0;             ///< B; without a series it may exceed 1, and eta is 0 then
  int degree_x = 0, degree_y = 0;  ///< K and L
  Matrix<double> coefficients;     ///< beta_kl: [max_degree_x + 1, max_degree_y + 1]
};

namespace detail {

/// Where a density is infinite Boost says so by the value, and the message is ours.
using InfiniteDensity =
    boost::math::policies::policy<boost::math::policies::overflow_error<boost::math::policies::ignore_error>>;

/// One sample's side of the copula.
struct CopulaMargin {
  Vector<double> quantile;      ///< T
  Vector<double> root_density;  ///< of T
  Matrix<double> basis;         ///< b_k(u_i): [n, degree + 1]
};

inline CopulaMargin copula_margin(std::string_view function, View<const double, 1> x, int degree, double alpha) {
  const Index n = x.extent(0);
  const Vector<double> ranks = numerics::average_ranks(x);
  CopulaMargin margin{Vector<double>(n), Vector<double>(n), Matrix<double>(n, degree + 1)};
  for (Index i = 0; i < n; ++i) {
    const double u = ranks[i] / static_cast<double>(n + 1), z = 2 * u - 1;
    margin.quantile[i] = boost::math::ibeta_inv(alpha, alpha, u, InfiniteDensity());
    margin.root_density[i] =
        std::sqrt(boost::math::ibeta_derivative(alpha, alpha, margin.quantile[i], InfiniteDensity()));
    if (!(margin.root_density[i] > 0) || !std::isfinite(margin.root_density[i]))
      throw NumericalError(message(function, ": Beta(", alpha, ", ", alpha, ") has no density at its quantile of ", u));
    double before = 0, legendre = 1;
    for (int k = 0; k <= degree; ++k) {
      margin.basis(i, k) = std::sqrt(2.0 * k + 1) * legendre;
      const double next = ((2 * k + 1) * z * legendre - k * before) / (k + 1);
      before = legendre;
      legendre = next;
    }
  }
  return margin;
}

/// Distances to the two nearest neighbours, weighted, and who the nearest is (the first one on ties).
struct TwoNeighbours {
  Vector<double> first, second;
  std::vector<Index> nearest;
};

/// Partner y of x's point i is point of_y[i]. Looks left and right of every point in the order of x.
inline TwoNeighbours two_neighbours(const CopulaMargin& x, const CopulaMargin& y, std::span<const Index> of_y,
                                    std::span<const std::uint32_t> order) {
  const Index n = x.quantile.size();
  Vector<double> tx(n), ty(n);
  for (Index i = 0; i < n; ++i) {
    const auto at = order[static_cast<std::size_t>(i)];
    tx[i] = x.quantile[at];
    ty[i] = y.quantile[of_y[at]];
  }
  TwoNeighbours result{Vector<double>(n), Vector<double>(n), std::vector<Index>(static_cast<std::size_t>(n))};
  for (Index i = 0; i < n; ++i) {
    double first = std::numeric_limits<double>::infinity(), second = first;
    Index nearest = n;
    const auto consider = [&](Index k) {  // whether anything behind k can still matter
      if (k < 0 || k >= n) return false;
      const double dx = tx[k] - tx[i], dy = ty[k] - ty[i], squared = dx * dx + dy * dy;
      const Index id = order[static_cast<std::size_t>(k)];
      if (squared < first || (squared == first && id < nearest)) {
        second = first;
        first = squared;
        nearest = id;
      } else {
        second = std::min(second, squared);
      }
      return dx * dx <= second;
    };
    bool left = true, right = true;
    for (Index step = 1; left || right; ++step) {
      right = right && consider(i + step);
      left = left && consider(i - step);
    }
    const auto at = order[static_cast<std::size_t>(i)];
    const double weight = x.root_density[at] * y.root_density[of_y[at]];
    result.first[at] = weight * std::sqrt(first);
    result.second[at] = weight * std::sqrt(second);
    result.nearest[at] = nearest;
  }
  return result;
}

/// The sum that is larger than 0 where the series up to (k, l) predicts left-out points, for all k and l.
inline Matrix<double> cross_validation(const TwoNeighbours& neighbours, const Matrix<double>& bx,
                                       const Matrix<double>& by, const Matrix<double>& sums) {
  const Index n = bx.rows(), rows = bx.cols(), cols = by.cols();
  // Points by their nearest neighbour.
  std::vector<Index> start(static_cast<std::size_t>(n) + 1, 0), member(static_cast<std::size_t>(n));
  for (const Index nearest : neighbours.nearest) ++start[static_cast<std::size_t>(nearest) + 1];
  for (std::size_t i = 1; i < start.size(); ++i) start[i] += start[i - 1];
  std::vector<Index> place(start.begin(), start.end() - 1);
  for (Index j = 0; j < n; ++j)
    member[static_cast<std::size_t>(
        place[static_cast<std::size_t>(neighbours.nearest[static_cast<std::size_t>(j)])]++)] = j;

  constexpr Index grain = 64;
  std::vector<Matrix<double>> partial(static_cast<std::size_t>(chunk_count(n, grain)),
                                      Matrix<double>::Zero(rows, cols));
  parallel_for(n, grain, [&](Index begin, Index end) {
    Matrix<double>& score = partial[static_cast<std::size_t>(begin / grain)];
    Matrix<double> without(rows, cols);
    Eigen::Array<double, 1, Eigen::Dynamic> prediction(cols), norm(cols);
    for (Index i = begin; i < end; ++i) {
      // Up to a factor that the quotient below does not see.
      without = sums;
      without.noalias() -= neighbours.first[i] * bx.row(i).transpose() * by.row(i);
      for (Index at = start[static_cast<std::size_t>(i)]; at < start[static_cast<std::size_t>(i) + 1]; ++at) {
        const Index j = member[static_cast<std::size_t>(at)];
        without.noalias() += (neighbours.second[j] - neighbours.first[j]) * bx.row(j).transpose() * by.row(j);
      }
      prediction.setZero();
      norm.setZero();
      for (Index k = 0; k < rows; ++k) {
        double row_prediction = 0, row_norm = 0;
        for (Index l = 0; l < cols; ++l) {
          row_prediction += without(k, l) * bx(i, k) * by(i, l);
          row_norm += without(k, l) * without(k, l);
          prediction[l] += row_prediction;
          norm[l] += row_norm;
        }
        // No norm, no prediction: points that all coincide.
        score.row(k).array() += (norm > 0).select(neighbours.first[i] * prediction / norm.sqrt(), 0);
      }
    }
  });
  Matrix<double> score = Matrix<double>::Zero(rows, cols);
  for (const Matrix<double>& part : partial) score += part;
  return score;
}

/// From the coefficients, and the scores of the degrees unless there is no series.
inline HellingerCorrelation correlation_of_series(Matrix<double> beta, const Matrix<double>& score) {
  HellingerCorrelation result;
  result.affinity = beta(0, 0);
  if (beta.size() > 1) {
    Index k = 0, l = 0;
    for (Index i = 0; i < score.rows(); ++i)
      for (Index j = 0; j < score.cols(); ++j)
        if (score(i, j) > score(k, l)) k = i, l = j;
    k = std::min(std::max<Index>(k, 1), beta.rows() - 1);
    l = std::min(std::max<Index>(l, 1), beta.cols() - 1);
    const double norm = beta.topLeftCorner(k + 1, l + 1).norm();
    result.affinity = norm > 0 ? beta(0, 0) / norm : 0;
    result.degree_x = static_cast<int>(k);
    result.degree_y = static_cast<int>(l);
  }
  result.correlation = hellinger_correlation_of(result.affinity);
  result.coefficients = std::move(beta);
  return result;
}

inline HellingerCorrelation hellinger_correlation_of_margins(const CopulaMargin& x, const CopulaMargin& y,
                                                             std::span<const Index> of_y,
                                                             std::span<const std::uint32_t> order) {
  const Index n = x.quantile.size();
  const auto count = static_cast<double>(n);
  const TwoNeighbours neighbours = two_neighbours(x, y, of_y, order);
  Matrix<double> by(n, y.basis.cols());
  for (Index i = 0; i < n; ++i) by.row(i) = y.basis.row(of_y[static_cast<std::size_t>(i)]);
  const Matrix<double> sums = x.basis.transpose() * (neighbours.first.asDiagonal() * by);
  const Matrix<double> score = sums.size() > 1 ? cross_validation(neighbours, x.basis, by, sums) : Matrix<double>();
  return correlation_of_series(2 * std::sqrt(count - 1) / count * sums, score);
}

inline void check_hellinger(std::string_view function, View<const double, 1> x, View<const double, 1> y,
                            const HellingerOptions& options) {
  check_response(function, y);
  check_sample(function, x, y.extent(0));
  require(!constant(x), function, "x is constant");
  check_argument(options.max_degree_x >= 0, function, "max_degree_x", "not negative", options.max_degree_x);
  check_argument(options.max_degree_y >= 0, function, "max_degree_y", "not negative", options.max_degree_y);
  check_argument(options.alpha > 0 && std::isfinite(options.alpha), function, "alpha", "positive and finite",
                 options.alpha);
}

inline std::vector<Index> identity(Index n) {
  std::vector<Index> order(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = i;
  return order;
}

}  // namespace detail

namespace reference {

/// All pairs compared and every sum without a point taken anew, O(n^2 K L). x, y: [n].
inline HellingerCorrelation hellinger_correlation(View<const double, 1> x, View<const double, 1> y,
                                                  const HellingerOptions& options = {}) {
  constexpr auto function = "hellinger_correlation";
  const auto mx = detail::copula_margin(function, x, options.max_degree_x, options.alpha);
  const auto my = detail::copula_margin(function, y, options.max_degree_y, options.alpha);
  const Index n = x.extent(0);
  const auto count = static_cast<double>(n);
  Vector<double> first = Vector<double>::Constant(n, std::numeric_limits<double>::infinity()), second = first;
  std::vector<Index> nearest(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) {
      if (j == i) continue;
      const double d = std::hypot(mx.quantile[i] - mx.quantile[j], my.quantile[i] - my.quantile[j]);
      second[i] = std::min(second[i], std::max(d, first[i]));
      if (d < first[i]) first[i] = d, nearest[static_cast<std::size_t>(i)] = j;
    }
    first[i] *= mx.root_density[i] * my.root_density[i];
    second[i] *= mx.root_density[i] * my.root_density[i];
  }
  const auto series = [&](const Vector<double>& r, double m) {
    Matrix<double> beta = Matrix<double>::Zero(mx.basis.cols(), my.basis.cols());
    for (Index i = 0; i < n; ++i) beta += r[i] * mx.basis.row(i).transpose() * my.basis.row(i);
    return Matrix<double>(2 * std::sqrt(m - 1) / m * beta);
  };
  Matrix<double> score = Matrix<double>::Zero(mx.basis.cols(), my.basis.cols());
  for (Index i = 0; i < n && score.size() > 1; ++i) {
    Vector<double> r = first;
    for (Index j = 0; j < n; ++j)
      if (nearest[static_cast<std::size_t>(j)] == i) r[j] = second[j];
    r[i] = 0;
    const Matrix<double> beta = series(r, count - 1);
    for (Index k = 0; k < beta.rows(); ++k)
      for (Index l = 0; l < beta.cols(); ++l) {
        const auto block = beta.topLeftCorner(k + 1, l + 1);
        const double predicted = mx.basis.row(i).head(k + 1) * block * my.basis.row(i).head(l + 1).transpose();
        if (block.norm() > 0) score(k, l) += first[i] * predicted / block.norm();
      }
  }
  return detail::correlation_of_series(series(first, count), score);
}

}  // namespace reference

/// x, y: [n], n at least 4. Equal values share their mean rank; where points of both samples coincide the correlation
/// comes out too high, so break ties by numerics::random_ranks first. Same bits for any number of threads. Throws
/// InvalidArgument for other lengths, entries that are not finite, constant samples and options out of range,
/// NumericalError for an alpha so small that a quantile is 0 or 1.
inline HellingerCorrelation hellinger_correlation(View<const double, 1> x, View<const double, 1> y,
                                                  const HellingerOptions& options = {}) {
  constexpr auto function = "hellinger_correlation";
  detail::check_hellinger(function, x, y, options);
  const auto mx = detail::copula_margin(function, x, options.max_degree_x, options.alpha);
  const auto my = detail::copula_margin(function, y, options.max_degree_y, options.alpha);
  return detail::hellinger_correlation_of_margins(mx, my, detail::identity(x.extent(0)), numerics::argsort(x));
}

/// The probability of a Hellinger correlation as high as this one if x and y were independent: the share, this one
/// included, of samples with y permuted that reach it. Exact for any distribution; never below 1 / (1 + permutations).
/// Permutation k is drawn from rng.split(k); rng does not move. Throws as hellinger_correlation, and for no
/// permutations.
inline double independence_p_value(View<const double, 1> x, View<const double, 1> y, Index permutations, const Rng& rng,
                                   const HellingerOptions& options = {}) {
  constexpr auto function = "independence_p_value";
  detail::check_hellinger(function, x, y, options);
  check_argument(permutations >= 1, function, "permutations", "at least 1", permutations);
  const Index n = x.extent(0);
  const auto mx = detail::copula_margin(function, x, options.max_degree_x, options.alpha);
  const auto my = detail::copula_margin(function, y, options.max_degree_y, options.alpha);
  const auto order = numerics::argsort(x);
  const double observed = detail::hellinger_correlation_of_margins(mx, my, detail::identity(n), order).correlation;
  std::vector<char> reached(static_cast<std::size_t>(permutations));
  parallel_for(permutations, 1, [&](Index begin, Index end) {
    for (Index k = begin; k < end; ++k) {
      Rng own = rng.split(static_cast<std::uint64_t>(k));
      const double permuted = detail::hellinger_correlation_of_margins(mx, my, own.permutation(n), order).correlation;
      reached[static_cast<std::size_t>(k)] = permuted >= observed;
    }
  });
  const auto count = std::count(reached.begin(), reached.end(), 1);
  return static_cast<double>(1 + count) / static_cast<double>(1 + permutations);
}

}  // namespace ashlar::statistics
