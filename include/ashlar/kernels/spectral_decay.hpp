// How fast the eigenvalues of a Gram matrix fall: like a power of their number or exponentially, which decides what
// noise does to an interpolant.
//
//   const auto decay = kernels::fit_decay(eigenvalues);              // of K or K / n, in any order
//   decay.law, decay.a(), decay.power.r_squared, decay.exponential.r_squared
//   double v = kernels::predicted_variance(decay);                   // of noise of variance one
//
// Two lines of least squares, log s_i on log i and log s_i on i^(1/d), and the one with the smaller residual: both have
// two parameters, so BIC says the same. A heuristic; on i from 3 to n / 2 by default, since the first eigenvalues
// follow no law and the last are bent by the sample being finite.
//
// Source: the decays of Cheng et al., ICML 2024; the fit is ours.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/kernels/deterministic_equivalent.hpp"
#include "ashlar/numerics/line_fit.hpp"

namespace ashlar::kernels {

enum class DecayLaw {
  unknown,      ///< fewer than eight eigenvalues to fit
  power,        ///< s_i ~ i^(-1-a)
  exponential,  ///< s_i ~ e^(-a i^(1/d))
};

struct DecayOptions {
  Index first = 3;        ///< number of the first eigenvalue fitted, from 1
  double fraction = 0.5;  ///< the last is the floor(fraction n)-th, if it was kept
  double drop = 1e-12;    ///< eigenvalues up to this share of the largest are rounding
  double dimension = 1;   ///< d of the exponential law: 1 for features of a line, d for a smooth kernel on R^d
};

struct DecayFit {
  DecayLaw law = DecayLaw::unknown;
  numerics::LineFit power = {};        ///< log s on log i
  numerics::LineFit exponential = {};  ///< log s on i^(1/d)
  Index count = 0;                     ///< eigenvalues given, n
  Index kept = 0;                      ///< eigenvalues above drop times the largest
  Index first = 0, last = 0;           ///< numbers of those fitted
  double dimension = 1;

  double power_exponent() const { return -power.slope - 1; }      ///< a of i^(-1-a)
  double exponential_rate() const { return -exponential.slope; }  ///< a of e^(-a i^(1/d))
  double a() const { return law == DecayLaw::exponential ? exponential_rate() : power_exponent(); }
};

/// eigenvalues: [n], n >= 16, finite, in any order; negative ones are rounding. When fewer than eight are kept there is
/// no law: a matrix of finite rank and one of a very smooth kernel look alike. O(n log n).
inline DecayFit fit_decay(View<const double, 1> eigenvalues, const DecayOptions& options = {}) {
  constexpr auto function = "fit_decay";
  const Index n = eigenvalues.extent(0);
  require(n >= 16, function, "eigenvalues must be 16 at least, got ", n);
  require(vector(eigenvalues).allFinite(), function, "eigenvalues has an entry that is not finite");
  check_argument(options.first >= 1, function, "first", "at least 1", options.first);
  check_argument(options.fraction > 0 && options.fraction <= 1, function, "fraction", "in (0, 1]", options.fraction);
  check_argument(options.drop >= 0 && options.drop < 1, function, "drop", "in [0, 1)", options.drop);
  check_argument(options.dimension > 0 && std::isfinite(options.dimension), function, "dimension",
                 "positive and finite", options.dimension);
  Vector<double> s = vector(eigenvalues);
  std::sort(s.begin(), s.end(), std::greater<>());
  DecayFit fit{.count = n, .first = options.first, .dimension = options.dimension};
  fit.kept = s[0] > 0 ? (s.array() > options.drop * s[0]).count() : 0;
  fit.last = std::min(static_cast<Index>(std::floor(options.fraction * static_cast<double>(n))), fit.kept);
  if (fit.kept < 8) return fit;
  const Index points = fit.last - fit.first + 1;
  require(points >= 3, function, "eigenvalues ", fit.first, " to ", fit.last, " are too few to fit a law");
  const Vector<double> number =
      Vector<double>::LinSpaced(points, static_cast<double>(fit.first), static_cast<double>(fit.last));
  const Vector<double> logs = s.segment(fit.first - 1, points).array().log();
  fit.power = numerics::fit_line(number.array().log().matrix().eval(), logs);
  fit.exponential = numerics::fit_line(number.array().pow(1 / options.dimension).matrix().eval(), logs);
  fit.law = fit.exponential.residual < fit.power.residual ? DecayLaw::exponential : DecayLaw::power;
  return fit;
}

/// V = E0 - 1 of the fitted law for as many samples as there were eigenvalues, the law carried on to 20 n. Infinite
/// where it falls so fast that fewer than n of them are numbers, NaN when no law was fitted.
inline double predicted_variance(const DecayFit& fit) {
  if (fit.law == DecayLaw::unknown) return std::numeric_limits<double>::quiet_NaN();
  const bool exponential = fit.law == DecayLaw::exponential;
  const auto abscissa = [&](Index i) {
    return exponential ? std::pow(static_cast<double>(i), 1 / fit.dimension) : std::log(static_cast<double>(i));
  };
  // E0 depends on ratios alone: with the n-th as unit, neither end of the spectrum leaves the range of doubles too
  // soon.
  const double slope = exponential ? fit.exponential.slope : fit.power.slope, unit = abscissa(fit.count);
  Vector<double> lambda(20 * fit.count);
  Index p = 0;
  for (; p < lambda.size(); ++p) {
    const double exponent = slope * (abscissa(p + 1) - unit);
    if (exponent < -600) break;
    lambda[p] = std::exp(std::min(exponent, 600.0));
  }
  if (p <= fit.count) return std::numeric_limits<double>::infinity();
  const Vector<double> spectrum = lambda.head(p);
  return deterministic_equivalent(spectrum, Vector<double>::Zero(p).eval(), fit.count, 0).variance;
}

}  // namespace ashlar::kernels
