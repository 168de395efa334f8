// Minimum of a function without derivatives: the downhill simplex, with the usual reflection 1, expansion 2,
// contraction 1/2 and shrinkage 1/2.
//
//   auto [point, value, evaluations, converged] = numerics::nelder_mead(f, start);     // f(const Vector<double>&)
//
// Made to work on piecewise constant functions, where vertices tie: a new vertex displaces an older one only when it is
// strictly better, so that steps across a plateau never go round in circles, and a simplex of equal values is the end.
// The result is never worse than the start. Each step: one or two evaluations and O(n^2).
//
// Source: Nelder, Mead, "A simplex method for function minimization", Computer Journal 7 (1965); the rules for ties
// follow Lagarias, Reeds, Wright, Wright, SIAM J. Optim. 9 (1998).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::numerics {

struct NelderMeadOptions {
  Index max_evaluations = 10000;  ///< at least 1; a step that has begun is finished
  double tolerance = 1e-8;        ///< t: stops when the values spread by at most t (|lowest| + t)
  double initial_step = 0.1;      ///< along every axis, times the largest |start_i|, or as it is where start is zero
};

struct Minimum {
  Vector<double> point;
  double value = 0;
  Index evaluations = 0;
  bool converged = false;  ///< by the tolerance, before the evaluations ran out
};

/// start: [n], n at least 1. f of NaN counts as +infinity.
/// Throws InvalidArgument for a start that is empty or not finite, and options out of range.
template <class F>
Minimum nelder_mead(F&& f, View<const double, 1> start, const NelderMeadOptions& options = {}) {
  constexpr auto function = "nelder_mead";
  const Index n = start.extent(0);
  require(n >= 1, function, "start is empty");
  require(vector(start).allFinite(), function, "start has an entry that is not finite");
  check_argument(options.max_evaluations >= 1, function, "max_evaluations", "at least 1", options.max_evaluations);
  check_argument(options.tolerance >= 0, function, "tolerance", "not negative", options.tolerance);
  check_argument(options.initial_step > 0 && std::isfinite(options.initial_step), function, "initial_step",
                 "positive and finite", options.initial_step);

  struct Vertex {
    Vector<double> point;
    double value;
  };
  Minimum result;
  const auto evaluate = [&](const Vector<double>& point) {
    ++result.evaluations;
    const double value = f(point);
    return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
  };
  const auto better = [](const Vertex& a, const Vertex& b) { return a.value < b.value; };

  std::vector<Vertex> simplex(static_cast<std::size_t>(n) + 1, {vector(start), 0});
  const double largest = vector(start).cwiseAbs().maxCoeff();
  for (Index i = 0; i < n; ++i)
    simplex[static_cast<std::size_t>(i) + 1].point[i] += options.initial_step * (largest > 0 ? largest : 1);
  for (Vertex& vertex : simplex) vertex.value = evaluate(vertex.point);
  std::stable_sort(simplex.begin(), simplex.end(), better);

  Vector<double> centroid(n);
  Vertex reflected{centroid, 0}, other{centroid, 0};
  for (;;) {
    const Vertex &best = simplex.front(), &second_worst = simplex[static_cast<std::size_t>(n) - 1];
    Vertex& worst = simplex.back();
    // Equal values, infinite ones too, have no spread.
    result.converged = worst.value == best.value ||
                       worst.value - best.value <= options.tolerance * (std::abs(best.value) + options.tolerance);
    if (result.converged || result.evaluations >= options.max_evaluations) break;

    centroid.setZero();
    for (Index i = 0; i < n; ++i) centroid += simplex[static_cast<std::size_t>(i)].point;
    centroid /= static_cast<double>(n);
    const auto along = [&](Vertex& to, double t) {
      to.point = centroid + t * (worst.point - centroid);
      to.value = evaluate(to.point);
    };
    along(reflected, -1);
    const Vertex* accepted = nullptr;
    if (reflected.value < best.value) {
      along(other, -2);
      accepted = other.value < reflected.value ? &other : &reflected;
    } else if (reflected.value < second_worst.value) {
      accepted = &reflected;
    } else if (reflected.value < worst.value) {
      along(other, -0.5);
      if (other.value <= reflected.value) accepted = &other;
    } else {
      along(other, 0.5);
      if (other.value < worst.value) accepted = &other;
    }
    if (accepted) {
      worst = *accepted;
      // Behind every older vertex of the same value.
      const auto place = std::upper_bound(simplex.begin(), simplex.end() - 1, worst, better);
      std::rotate(place, simplex.end() - 1, simplex.end());
    } else {
      for (std::size_t i = 1; i < simplex.size(); ++i) {
        simplex[i].point = best.point + 0.5 * (simplex[i].point - best.point);
        simplex[i].value = evaluate(simplex[i].point);
      }
      std::stable_sort(simplex.begin(), simplex.end(), better);
    }
  }
  result.point = simplex.front().point;
  result.value = simplex.front().value;
  return result;
}

}  // namespace ashlar::numerics
