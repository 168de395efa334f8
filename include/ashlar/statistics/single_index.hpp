// Sufficient dimension reduction in single-index models: the unit vector b such that y depends on x through x'b alone,
// found by making x'b and y as dependent as can be. Nothing is assumed of the link or of the noise, and x need not be
// elliptical:
//
//   b = argmin over |b| = 1 of B(Xb, y),     B the copula affinity of copula_affinity.hpp.
//
//   Rng rng(1);
//   const auto fit = statistics::hellinger_reduction(x, y, rng);
//   fit.direction, fit.index;                              // index = x b, for plots or as the input of a smoother
//   statistics::hellinger_correlation(fit.index, y);       // the dependence to report
//
// B is piecewise constant in b, so the search is by simulated annealing from a start and then the downhill simplex on
// spherical coordinates. Two walks are offered: `cooled` goes by tangent steps on the sphere and cools; `angles` is the
// published one, a random walk of the angles that hardly cools and lives on the memory of its best point. It does well
// where the direction has few leading entries that are not zero, and badly on dense ones.
//
// The same search with distance covariance or HSIC in place of B is here to compare with.
//
// Cost: annealing_evaluations + simplex_evaluations values of B at most, each O(n p + n log n + n^1.5 / vector width).
//
// Source: Hong, Kim, Song, "Enhancing sufficient dimension reduction via Hellinger correlation", ICML 2024.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/numerics/distance_covariance.hpp"
#include "ashlar/numerics/hsic.hpp"
#include "ashlar/numerics/nelder_mead.hpp"
#include "ashlar/numerics/simulated_annealing.hpp"
#include "ashlar/numerics/spherical_coordinates.hpp"
#include "ashlar/statistics/copula_affinity.hpp"
#include "ashlar/statistics/inverse_regression.hpp"
#include "ashlar/statistics/minimum_average_variance.hpp"

namespace ashlar::statistics {

/// A measure of dependence as a function of the direction: measure(X b). One object a thread; copies are independent.
template <class Measure>
class IndexObjective {
 public:
  /// x: [n, p], finite; measure takes [n]. Throws InvalidArgument for an empty or not finite x.
  IndexObjective(View<const double, 2> x, Measure measure)
      : measure_(std::move(measure)), n_(x.extent(0)), p_(x.extent(1)), z_(Vector<double>::Zero(padded())) {
    require(n_ >= 1 && p_ >= 1, "IndexObjective", "x is empty");
    require(matrix(x).allFinite(), "IndexObjective", "x has an entry that is not finite");
    columns_ = Matrix<double>::Zero(p_, padded());
    columns_.leftCols(n_) = matrix(x).transpose();
  }

  Index dimension() const { return p_; }

  /// direction: [p], of any length but zero. Allocates nothing if the measure does not.
  double operator()(View<const double, 1> direction) {
    project(direction);
    return measure_(View<const double, 1>(z_.data(), {n_}));
  }

  /// X b: [n].
  Vector<double> index(View<const double, 1> direction) {
    project(direction);
    return z_.head(n_);
  }

 private:
  Index padded() const { return (n_ + simd::width<double> - 1) / simd::width<double> * simd::width<double>; }

  /// In whole vectors, so that equal rows of x give equal bits wherever they stand.
  void project(View<const double, 1> direction) {
    check_shape("IndexObjective", "the direction", direction.shape(), {p_}, "one entry a column of x");
    double largest = 0;
    for (Index k = 0; k < p_; ++k) {
      check_argument(std::isfinite(direction[k]), "IndexObjective", "the direction", "finite", direction[k]);
      largest = std::max(largest, std::abs(direction[k]));
    }
    require(largest > 0, "IndexObjective", "the direction is zero");
    for (Index i = 0; i < padded(); i += simd::width<double>) {
      simd::batch<double> sum(0.0);
      for (Index k = 0; k < p_; ++k)
        sum = simd::fma(simd::load(&columns_(k, i)), simd::batch<double>(direction[k]), sum);
      simd::store(&z_[i], sum);
    }
  }

  Measure measure_;
  Index n_, p_;
  Matrix<double> columns_;  // of x, one a row
  Vector<double> z_;
};

/// The function that hellinger_reduction minimises.
inline IndexObjective<CopulaAffinity> hellinger_objective(View<const double, 2> x, View<const double, 1> y) {
  require(x.extent(0) == y.extent(0), "hellinger_objective", "x has ", x.extent(0), " rows, y has ", y.extent(0));
  return {x, CopulaAffinity(y)};
}

enum class StartDirection {
  sliced_inverse_regression,
  sliced_average_variance,
  directional_regression,
  minimum_average_variance,
  distance_covariance,  ///< the result of distance_covariance_reduction
  hsic,                 ///< the result of hsic_reduction
  random,               ///< the best of 200 random directions
  given,
};

enum class AnnealingWalk {
  cooled,  ///< temperature 0.05 to 0.001 and steps 0.5 to 0.02, geometrically; tangent steps
  angles,  ///< temperature t = 10 / log(evaluations + e - 1) by tens, steps t / 10 of every angle
};

struct HellingerReductionOptions {
  StartDirection start = StartDirection::directional_regression;
  Vector<double> given = {};  ///< [p], of any length but zero, for StartDirection::given
  Index slices = 0;           ///< of the sliced starts, as SliceOptions
  AnnealingWalk annealing = AnnealingWalk::cooled;
  /// Not negative; 0: the simplex alone. From a useless start in ten dimensions, 8000 miss one dense direction in 13.
  Index annealing_evaluations = 20000;
  Index simplex_evaluations = 10000;  ///< not negative; 0: annealing alone
  Index restarts = 1;                 ///< at least 1; all but the first begin at random directions
};

struct HellingerReduction {
  Vector<double> direction;  ///< [p], unit, the largest entry positive
  Vector<double> index;      ///< x b: [n]
  double affinity = 0;       ///< B(x b, y), unclamped
  double correlation = 0;    ///< hellinger_correlation_of(affinity)
  Vector<double> start;      ///< the direction that the first search began at
  Index evaluations = 0;     ///< of B, in all searches
};

/// Of the searches to compare with.
struct DependenceReduction {
  Vector<double> direction;  ///< [p], unit, the largest entry positive
  double dependence = 0;     ///< reached by it
  Index evaluations = 0;
};

namespace detail {

inline constexpr Index random_directions = 200;

inline Vector<double> random_direction(Index p, Rng& rng) {
  Vector<double> b(p);
  do
    for (double& entry : b) entry = rng.normal();
  while (!(b.norm() > 0));
  return b.normalized();
}

/// The best of random unit vectors.
template <class F>
numerics::Minimum best_random_direction(F&& f, Index p, Rng& rng) {
  numerics::Minimum best{{}, std::numeric_limits<double>::infinity(), random_directions, false};
  for (Index k = 0; k < random_directions; ++k) {
    Vector<double> b = random_direction(p, rng);
    const double value = f(b);
    if (k == 0 || value < best.value) best.point = std::move(b), best.value = value;
  }
  return best;
}

/// The downhill simplex on the angles; point is a unit vector before and after. p at least 2.
template <class F>
void improve_by_simplex(F&& f, numerics::Minimum& minimum, Index evaluations) {
  Vector<double> b(minimum.point.size());
  const auto found = numerics::nelder_mead(
      [&](const Vector<double>& angles) {
        numerics::from_spherical(angles, b);
        return f(b);
      },
      numerics::to_spherical(minimum.point), {.max_evaluations = evaluations});
  minimum.evaluations += found.evaluations;
  if (!(found.value < minimum.value)) return;  // to angles and back is not exact, and never to lose is
  minimum.point = numerics::from_spherical(found.point).normalized();
  minimum.value = found.value;
}

/// One annealed walk from a unit vector. p at least 2.
template <class F>
numerics::Minimum anneal(F&& f, const Vector<double>& start, AnnealingWalk walk, Index evaluations, Rng& rng) {
  const Index p = start.size();
  if (walk == AnnealingWalk::angles) {
    Vector<double> b(p);
    const auto step = [](const Vector<double>& from, double temperature, Index, Rng& own, Vector<double>& to) {
      for (Index i = 0; i < from.size(); ++i) to[i] = from[i] + temperature / 10 * own.normal();
    };
    auto found = numerics::simulated_annealing(
        [&](const Vector<double>& angles) {
          numerics::from_spherical(angles, b);
          return f(b);
        },
        numerics::to_spherical(start), step, numerics::LogarithmicCooling{10}, evaluations, rng);
    found.point = numerics::from_spherical(found.point).normalized();
    return found;
  }
  const numerics::GeometricCooling step_length{0.5, 0.02};
  const double root = std::sqrt(static_cast<double>(p));
  const auto step = [&](const Vector<double>& from, double, Index k, Rng& own, Vector<double>& to) {
    const double deviation = step_length(k, evaluations) / root;
    for (double& entry : to) entry = deviation * own.normal();
    to += (1 - from.dot(to)) * from;
    to.normalize();
  };
  return numerics::simulated_annealing(f, start, step, numerics::GeometricCooling{0.05, 1e-3}, evaluations, rng);
}

template <class Measure>
DependenceReduction maximise_dependence(View<const double, 2> x, Measure measure, Index evaluations, const Rng& rng) {
  IndexObjective<Measure> objective(x, std::move(measure));
  const auto negative = [&](const Vector<double>& b) { return -objective(b); };
  if (objective.dimension() == 1) {
    const Vector<double> only = Vector<double>::Ones(1);
    return {only, objective(only), 1};
  }
  Rng own = rng;
  auto best = best_random_direction(negative, objective.dimension(), own);
  improve_by_simplex(negative, best, evaluations);
  fix_sign(best.point);
  return {std::move(best.point), -best.value, best.evaluations};
}

inline void check_simplex_evaluations(std::string_view function, Index evaluations) {
  check_argument(evaluations >= 1, function, "evaluations", "at least 1", evaluations);
}

}  // namespace detail

/// The direction of largest distance covariance between x b and y: the simplex from the best of 200 random directions.
/// x: [n, p], y: [n], n at least 4. Throws InvalidArgument for other shapes and entries that are not finite.
inline DependenceReduction distance_covariance_reduction(View<const double, 2> x, View<const double, 1> y,
                                                         const Rng& rng, Index evaluations = 10000) {
  detail::check_regression("distance_covariance_reduction", x, y);
  detail::check_simplex_evaluations("distance_covariance_reduction", evaluations);
  return detail::maximise_dependence(x, numerics::DistanceCovariance(y), evaluations, rng);
}

/// The same with the Hilbert-Schmidt independence criterion.
inline DependenceReduction hsic_reduction(View<const double, 2> x, View<const double, 1> y, const Rng& rng,
                                          Index evaluations = 10000) {
  detail::check_regression("hsic_reduction", x, y);
  detail::check_simplex_evaluations("hsic_reduction", evaluations);
  return detail::maximise_dependence(x, numerics::Hsic(y), evaluations, rng);
}

namespace detail {

template <class F>
Vector<double> start_direction(F&& f, View<const double, 2> x, View<const double, 1> y,
                               const HellingerReductionOptions& options, const Rng& rng) {
  constexpr auto function = "hellinger_reduction";
  const SliceOptions slices{.slices = options.slices};
  switch (options.start) {
    case StartDirection::sliced_inverse_regression:
      return sliced_inverse_regression(x, y, slices).directions.col(0);
    case StartDirection::sliced_average_variance:
      return sliced_average_variance(x, y, slices).directions.col(0);
    case StartDirection::directional_regression:
      return directional_regression(x, y, slices).directions.col(0);
    case StartDirection::minimum_average_variance:
      return minimum_average_variance(x, y).direction;
    case StartDirection::distance_covariance:
      return distance_covariance_reduction(x, y, rng).direction;
    case StartDirection::hsic:
      return hsic_reduction(x, y, rng).direction;
    case StartDirection::random: {
      Rng own = rng;
      return best_random_direction(f, x.extent(1), own).point;
    }
    case StartDirection::given:
      check_shape(function, "given", View<const double, 1>(options.given).shape(), {x.extent(1)},
                  "one entry a column of x");
      require(options.given.allFinite() && options.given.stableNorm() > 0, function,
              "given must be finite and not zero");
      return options.given.stableNormalized();
  }
  throw InvalidArgument(message(function, ": start must be a StartDirection, got ", static_cast<int>(options.start)));
}

}  // namespace detail

/// x: [n, p], y: [n], n at least 4. Restart r draws from rng.split(r), the start from rng.split(restarts); rng does not
/// move, and the bits are the same for any number of threads, among which the restarts are divided. Of equal affinities
/// the first restart's direction is returned. With p = 1 there is nothing to search.
/// Throws InvalidArgument for other shapes, entries that are not finite, constant x or y, and options out of range.
inline HellingerReduction hellinger_reduction(View<const double, 2> x, View<const double, 1> y, const Rng& rng,
                                              const HellingerReductionOptions& options = {}) {
  constexpr auto function = "hellinger_reduction";
  detail::check_regression(function, x, y);
  require(!detail::constant(y), function, "y is constant");
  check_argument(options.annealing_evaluations >= 0, function, "annealing_evaluations", "not negative",
                 options.annealing_evaluations);
  check_argument(options.simplex_evaluations >= 0, function, "simplex_evaluations", "not negative",
                 options.simplex_evaluations);
  check_argument(options.restarts >= 1, function, "restarts", "at least 1", options.restarts);
  const Index p = x.extent(1);
  IndexObjective<CopulaAffinity> objective = hellinger_objective(x, y);
  HellingerReduction result;
  if (p == 1) {
    result.start = Vector<double>::Ones(1);
    result.direction = result.start;
    result.affinity = objective(result.direction);
    result.evaluations = 1;
  } else {
    result.start =
        detail::start_direction(objective, x, y, options, rng.split(static_cast<std::uint64_t>(options.restarts)));
    if (options.start == StartDirection::random) result.evaluations = detail::random_directions;
    std::vector<numerics::Minimum> found(static_cast<std::size_t>(options.restarts));
    parallel_for(options.restarts, 1, [&](Index begin, Index end) {
      for (Index r = begin; r < end; ++r) {
        IndexObjective<CopulaAffinity> own_objective = objective;
        Rng own = rng.split(static_cast<std::uint64_t>(r));
        numerics::Minimum& minimum = found[static_cast<std::size_t>(r)];
        minimum.point = r == 0 ? result.start : detail::random_direction(p, own);
        if (options.annealing_evaluations > 0) {
          minimum = detail::anneal(own_objective, minimum.point, options.annealing, options.annealing_evaluations, own);
        } else {
          minimum.value = own_objective(minimum.point);
          minimum.evaluations = 1;
        }
        if (options.simplex_evaluations > 0)
          detail::improve_by_simplex(own_objective, minimum, options.simplex_evaluations);
      }
    });
    const auto best =
        std::min_element(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.value < b.value; });
    result.direction = best->point;
    detail::fix_sign(result.direction);
    result.affinity = best->value;
    for (const numerics::Minimum& minimum : found) result.evaluations += minimum.evaluations;
  }
  result.index = objective.index(result.direction);
  result.correlation = hellinger_correlation_of(result.affinity);
  return result;
}

}  // namespace ashlar::statistics
