// Wasserstein-1 distances between samples: exact on the line, sliced in more dimensions.
//
//   W1(x, y) = integral over 0 < u < 1 of |F^-1(u) - G^-1(u)|,     F, G the empirical distribution functions;
//   sliced:  the mean of W1(<x, e>, <y, e>) over random unit vectors e.
//
// O(n log n) a direction.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::numerics {

namespace detail {

/// Of samples in ascending order, neither empty.
inline double wasserstein_of_sorted(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size()), m = static_cast<double>(y.size());
  double distance = 0, level = 0;
  for (std::size_t i = 0, j = 0; i < x.size() && j < y.size();) {
    const double x_ends = static_cast<double>(i + 1) / n, y_ends = static_cast<double>(j + 1) / m;
    const double next = std::min(x_ends, y_ends);
    distance += (next - level) * std::abs(x[i] - y[j]);
    level = next;
    const bool x_done = x_ends <= y_ends, y_done = y_ends <= x_ends;
    i += x_done, j += y_done;
  }
  return distance;
}

template <class X>
std::vector<double> sorted(const X& values) {
  std::vector<double> copy(static_cast<std::size_t>(values.size()));
  for (Index i = 0; i < values.size(); ++i) copy[static_cast<std::size_t>(i)] = static_cast<double>(values[i]);
  std::sort(copy.begin(), copy.end());
  return copy;
}

template <class V>
void check_sample(std::string_view function, std::string_view name, const V& view) {
  require(view.extent(0) >= 1, function, name, " is empty");
  for (Index i = 0; i < view.extent(0); ++i)
    if constexpr (V::rank == 1)
      check_argument(std::isfinite(view[i]), function, name, "finite", view[i]);
    else
      for (Index j = 0; j < view.extent(1); ++j)
        check_argument(std::isfinite(view(i, j)), function, name, "finite", view(i, j));
}

}  // namespace detail

/// x: [n], y: [m], n and m at least 1 and not necessarily equal.
/// Throws InvalidArgument for empty samples and entries that are not finite.
template <class X>
double wasserstein1(const X& x, In<X, 1> y) {
  const In<X, 1> first = x;
  detail::check_sample("wasserstein1", "x", first);
  detail::check_sample("wasserstein1", "y", y);
  return detail::wasserstein_of_sorted(detail::sorted(vector(first)), detail::sorted(vector(y)));
}

/// x: [n, d], y: [m, d]. Direction i is drawn from rng.split(i); rng does not move. Same bits for any number of
/// threads.
template <class X>
double sliced_wasserstein1(const X& x, In<X, 2> y, Index directions, const Rng& rng) {
  constexpr auto function = "sliced_wasserstein1";
  const In<X, 2> first = x;
  check_argument(directions >= 1, function, "directions", "at least 1", directions);
  check_shape(function, "y", y.shape(), {y.extent(0), first.extent(1)}, "same dimension as x");
  check_argument(first.extent(1) >= 1, function, "the dimension", "at least 1", first.extent(1));
  detail::check_sample(function, "x", first);
  detail::check_sample(function, "y", y);
  const Matrix<double> a = matrix(first).template cast<double>(), b = matrix(y).template cast<double>();
  std::vector<double> distances(static_cast<std::size_t>(directions));
  parallel_for(directions, 1, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      Rng own = rng.split(static_cast<std::uint64_t>(i));
      Vector<double> direction(a.cols());
      for (double& value : direction) value = own.normal();
      direction.normalize();
      const Vector<double> px = a * direction, py = b * direction;
      distances[static_cast<std::size_t>(i)] = detail::wasserstein_of_sorted(detail::sorted(px), detail::sorted(py));
    }
  });
  double sum = 0;
  for (const double distance : distances) sum += distance;
  return sum / static_cast<double>(directions);
}

}  // namespace ashlar::numerics
