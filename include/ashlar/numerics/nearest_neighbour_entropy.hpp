// Differential entropy of a sample from the distances to its k-th nearest neighbours.
//
//   H = psi(n) - psi(k) + log c_d + d / n sum_i log e_i,     c_d = pi^(d/2) / Gamma(d/2 + 1),
//
// e_i the distance of point i to its k-th nearest neighbour. psi(n) - psi(k) = 1/k + 1/(k+1) + .. + 1/(n-1).
// All pairs are compared, O(n^2 d), with points in the lanes of a vector: the roof is the rate of multiply-adds.
//
// Source: Kozachenko, Leonenko, "Sample estimate of the entropy of a random vector", Problems of Information
// Transmission 23 (1987).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::numerics {

struct NearestNeighbourOptions {
  int neighbours = 3;    ///< k
  double floor = 1e-12;  ///< of the distances: points that coincide would make the entropy -infinity
};

struct NearestNeighbourEntropy {
  double entropy = 0;      ///< nats
  Index at_the_floor = 0;  ///< points whose k-th neighbour is nearer than the floor; the estimate means little if many
};

namespace detail {

/// The k smallest squared distances of point i to all others, ascending. coordinates: one row a dimension, padded to
/// whole vectors with infinity.
inline void nearest(const Matrix<double>& coordinates, Index i, int k, double* smallest) {
  using V = simd::batch<double>;
  constexpr Index width = simd::width<double>;
  std::fill_n(smallest, k, std::numeric_limits<double>::infinity());
  for (Index j = 0; j < coordinates.cols(); j += width) {
    V sum(0.0);
    for (Index c = 0; c < coordinates.rows(); ++c) {
      const V gap = simd::load(&coordinates(c, j)) - V(coordinates(c, i));
      sum = simd::fma(gap, gap, sum);
    }
    if (simd::bits(sum < V(smallest[k - 1])) == 0) continue;
    double lanes[static_cast<std::size_t>(width)];
    simd::store(lanes, sum);
    for (Index lane = 0; lane < width; ++lane) {
      if (j + lane == i || !(lanes[lane] < smallest[k - 1])) continue;
      int at = k - 1;
      for (; at > 0 && smallest[at - 1] > lanes[lane]; --at) smallest[at] = smallest[at - 1];
      smallest[at] = lanes[lane];
    }
  }
}

}  // namespace detail

/// x: [n, d], n > k, d at least 1, float or double; computed in double. Same bits for any number of threads.
/// Throws InvalidArgument for fewer points than neighbours, bad options and entries that are not finite.
template <class X>
NearestNeighbourEntropy nearest_neighbour_entropy(const X& x, const NearestNeighbourOptions& options = {}) {
  constexpr auto function = "nearest_neighbour_entropy";
  const In<X, 2> points = x;
  const Index n = points.extent(0), d = points.extent(1);
  const int k = options.neighbours;
  check_argument(k >= 1, function, "neighbours", "at least 1", k);
  check_argument(options.floor > 0 && std::isfinite(options.floor), function, "floor", "positive and finite",
                 options.floor);
  require(n > k && d >= 1, function, "x has shape ", points.shape(), ", expected more than ", k,
          " points and at least one dimension");
  const Index padded = (n + simd::width<double> - 1) / simd::width<double> * simd::width<double>;
  Matrix<double> coordinates = Matrix<double>::Constant(d, padded, std::numeric_limits<double>::infinity());
  coordinates.leftCols(n) = matrix(points).transpose().template cast<double>();
  require(coordinates.leftCols(n).allFinite(), function, "x has an entry that is not finite");

  std::vector<double> squared(static_cast<std::size_t>(n));
  parallel_for(n, 64, [&](Index begin, Index end) {
    std::vector<double> smallest(static_cast<std::size_t>(k));
    for (Index i = begin; i < end; ++i) {
      detail::nearest(coordinates, i, k, smallest.data());
      squared[static_cast<std::size_t>(i)] = smallest.back();
    }
  });
  NearestNeighbourEntropy result;
  const auto dim = static_cast<double>(d), count = static_cast<double>(n);
  double logs = 0;
  for (const double value : squared) {
    const double distance = std::sqrt(value);
    result.at_the_floor += distance < options.floor;
    logs += std::log(std::max(distance, options.floor));
  }
  double harmonic = 0;
  for (Index j = n - 1; j >= k; --j) harmonic += 1 / static_cast<double>(j);
  result.entropy = harmonic + dim / 2 * std::log(std::numbers::pi) - std::lgamma(dim / 2 + 1) + dim * logs / count;
  return result;
}

}  // namespace ashlar::numerics
