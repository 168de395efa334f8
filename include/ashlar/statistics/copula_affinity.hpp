// How dependent two samples are, by their ranks alone: the Bhattacharyya affinity of their copula c with independence,
//
//   B = integral of sqrt(c(u, v)) du dv,    estimated by   2 sqrt(n - 1) / n sum_i R_i,
//
// R_i the distance of point i of (rank x, rank y) / (n + 1) to its nearest neighbour. B is 1 for independent samples,
// less otherwise; the Hellinger correlation maps it to [0, 1] so that it is |rho| for a Gaussian copula.
//
//   double b = statistics::copula_affinity(x, y), eta = statistics::hellinger_correlation_of(b);
//   statistics::CopulaAffinity against(y);         // for many x: allocates nothing
//   double c = against(x);
//
// It is what single_index.hpp minimises. As a measure to report it is biased at the edges of the square (1.06 for
// independent samples of 400): hellinger_correlation.hpp has the estimator to quote.
//
// O(n log n) for the ranks and sqrt(n) vector operations for every vector of points for the neighbours, which are
// exact. Roof: arithmetic, four operations a pair compared.
//
// Source: Geenens, Lafaye de Micheaux, "The Hellinger correlation", JASA 117 (2022); Leonenko, Pronzato, Savani, "A
// class of Renyi information estimators for multidimensional densities", Annals of Statistics 36 (2008).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/numerics/argsort.hpp"
#include "ashlar/numerics/ranks.hpp"
#include "ashlar/statistics/detail/rank_neighbours.hpp"

namespace ashlar::statistics {

/// eta = 2/B^2 sqrt(B^4 + sqrt(4 - 3 B^4) - 2) for an affinity B >= 0: 1 at 0, decreasing, 0 from 1 on (estimates may
/// exceed 1). Throws InvalidArgument for B negative or NaN.
inline double hellinger_correlation_of(double affinity) {
  check_argument(affinity >= 0, "hellinger_correlation_of", "affinity", "not negative", affinity);
  const double b = std::min(affinity, 1.0), w = std::sqrt(4 - 3 * b * b * b * b);
  // The same with the common factor (2 - w)/3 of both roots taken out, which vanishes at B = 0.
  return 2 * std::sqrt(std::max(0.0, w - 1) / (w + 2));
}

namespace detail {

inline bool constant(View<const double, 1> x) {
  for (Index i = 1; i < x.extent(0); ++i)
    if (x[i] != x[0]) return false;
  return true;
}

/// y: at least four points, finite, not all equal.
inline void check_response(std::string_view function, View<const double, 1> y) {
  require(y.extent(0) >= 4 && y.extent(0) < Index{1} << 23, function, "y has ", y.extent(0),
          " points, expected 4 to 8388607");
  require(vector(y).allFinite(), function, "y has an entry that is not finite");
  require(!constant(y), function, "y is constant");
}
inline void check_sample(std::string_view function, View<const double, 1> x, Index n) {
  check_shape(function, "x", x.shape(), {n}, "same as y");
  require(vector(x).allFinite(), function, "x has an entry that is not finite");
}

}  // namespace detail

namespace reference {

/// The definition, O(n^2). x, y: [n].
inline double copula_affinity(View<const double, 1> x, View<const double, 1> y) {
  const Index n = x.extent(0);
  const auto count = static_cast<double>(n);
  if (detail::constant(x)) return 1;
  const Vector<double> u = numerics::average_ranks(x) / (count + 1), v = numerics::average_ranks(y) / (count + 1);
  double sum = 0;
  for (Index i = 0; i < n; ++i) {
    double nearest = std::numeric_limits<double>::infinity();
    for (Index j = 0; j < n; ++j)
      if (j != i) nearest = std::min(nearest, (u[i] - u[j]) * (u[i] - u[j]) + (v[i] - v[j]) * (v[i] - v[j]));
    sum += std::sqrt(nearest);
  }
  return 2 * std::sqrt(count - 1) / count * sum;
}

}  // namespace reference

/// Against a fixed sample y: [n]. Distances are computed in whole ranks and summed in the order of the points, so that
/// every increasing or decreasing function of x or y gives the same bits. One object a thread.
class CopulaAffinity {
 public:
  /// Throws InvalidArgument for fewer than 4 or more than 2^23 - 1 points, entries that are not finite, constant y.
  explicit CopulaAffinity(View<const double, 1> y) : neighbours_(checked_size(y)) {
    const Index n = y.extent(0);
    const Vector<double> ranks = numerics::average_ranks(y);
    for (const double rank : ranks) ranks_.push_back(static_cast<float>(rank));
    x_.resize(n);
    order_.resize(ranks_.size());
    scratch_.resize(static_cast<std::size_t>(numerics::detail::argsort_words(n)));
    sorted_squares_.resize(ranks_.size());
    squares_.assign(ranks_.size() + static_cast<std::size_t>(simd::width<double>), 0);
  }

  Index size() const { return x_.size(); }

  /// x: [n]. 1 for a constant x, which tells nothing. With ties in both samples points may coincide, and the affinity
  /// is too low: break them by numerics::random_ranks. Throws InvalidArgument for another length and entries not
  /// finite.
  double operator()(View<const double, 1> x) {
    detail::check_sample("CopulaAffinity", x, size());
    x_ = vector(x);
    numerics::detail::argsort_into(x_.data(), size(), order_.data(), scratch_.data());
    if (x_[order_.front()] == x_[order_.back()]) return 1;
    bool ties = false;
    for (std::size_t i = 1; i < order_.size(); ++i) ties |= x_[order_[i]] == x_[order_[i - 1]];
    if (ties) order_ties();
    for (std::size_t i = 0; i < order_.size(); ++i) neighbours_.v()[i] = ranks_[order_[i]];
    if (ties)
      neighbours_.tied(sorted_squares_.data());
    else
      neighbours_.untied(sorted_squares_.data());
    for (std::size_t i = 0; i < order_.size(); ++i) squares_[order_[i]] = sorted_squares_[i];
    simd::batch<double> sum(0.0);
    for (Index i = 0; i < size(); i += simd::width<double>) sum = sum + xsimd::sqrt(simd::load(squares_.data() + i));
    const auto n = static_cast<double>(size());
    return 2 * std::sqrt(n - 1) / (n * (n + 1)) * simd::reduce_add(sum);
  }

 private:
  static Index checked_size(View<const double, 1> y) {
    detail::check_response("CopulaAffinity", y);
    return y.extent(0);
  }

  void order_ties() {
    numerics::detail::for_each_tie(x_, order_, [&](std::size_t begin, std::size_t end) {
      std::sort(order_.begin() + static_cast<std::ptrdiff_t>(begin), order_.begin() + static_cast<std::ptrdiff_t>(end),
                [&](std::uint32_t a, std::uint32_t b) { return ranks_[a] < ranks_[b]; });
      std::fill(neighbours_.u() + begin, neighbours_.u() + end, 0.5f * static_cast<float>(begin + 1 + end));
    });
  }

  detail::RankNeighbours neighbours_;
  std::vector<float> ranks_;  // of y
  Vector<double> x_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint64_t> scratch_;
  std::vector<double> sorted_squares_, squares_;
};

/// x, y: [n], at least four points. Throws as CopulaAffinity.
inline double copula_affinity(View<const double, 1> x, View<const double, 1> y) { return CopulaAffinity(y)(x); }

}  // namespace ashlar::statistics
