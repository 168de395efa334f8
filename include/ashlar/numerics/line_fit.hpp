// The straight line of least squares through points.
//
//   const numerics::LineFit fit = numerics::fit_line(log_n, log_error);       // fit.slope is the rate
#pragma once

#include <cmath>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::numerics {

struct LineFit {
  double slope = 0;
  double intercept = 0;
  double residual = 0;   ///< the sum of squared residuals
  double r_squared = 0;  ///< 1 - residual / sum (y - mean y)^2; 1 when all y are equal

  double operator()(double x) const { return slope * x + intercept; }
};

/// y ~ slope x + intercept. x, y: [n], finite, at least two different x. O(n). Throws InvalidArgument otherwise.
template <class X>
LineFit fit_line(const X& x, In<X, 1> y) {
  constexpr auto function = "fit_line";
  const Vector<double> abscissas = vector(In<X, 1>(x)).template cast<double>();
  check_shape(function, "y", y.shape(), {abscissas.size()}, "same length as x");
  const Vector<double> ordinates = vector(y).template cast<double>();
  require(abscissas.allFinite() && ordinates.allFinite(), function, "x and y must be finite");
  require(abscissas.size() >= 2 && abscissas.minCoeff() < abscissas.maxCoeff(), function,
          "x must hold at least two different values");
  // Centred first: the textbook sums of squares cancel.
  const double mean_x = abscissas.mean(), mean_y = ordinates.mean();
  const Vector<double> dx = abscissas.array() - mean_x, dy = ordinates.array() - mean_y;
  LineFit fit{.slope = dx.dot(dy) / dx.squaredNorm()};
  fit.intercept = mean_y - fit.slope * mean_x;
  fit.residual = (dy - fit.slope * dx).squaredNorm();
  const double total = dy.squaredNorm();
  fit.r_squared = total > 0 ? 1 - fit.residual / total : 1;
  return fit;
}

}  // namespace ashlar::numerics
