// Where a level falls between two order statistics, and what is read there; the same on the host and on the device.
#pragma once

#include <algorithm>
#include <cmath>

#include "ashlar/core/config.hpp"
#include "ashlar/core/scalar.hpp"

namespace ashlar::sets {

/// What is read between the neighbours x_(l) and x_(l+1). At a whole q (n - 1) all of them are x_(l).
enum class Interpolation {
  linear,    ///< the paper
  lower,     ///< x_(l)
  higher,    ///< x_(l+1)
  nearest,   ///< the nearer one; half-way the one of even rank
  midpoint,  ///< their mean
};

namespace detail {

/// Where a level falls among n ordered elements.
struct Rank {
  Index low;      ///< l
  double weight;  ///< w of x_(l+1); 1 - w of x_(l)
};

ASHLAR_HOST_DEVICE inline Rank rank_of(double level, Index n, Interpolation interpolation) {
  double p = level * static_cast<double>(n - 1);
  // Absorbs the rounding of the level, and no more: 0.9 times 10 is 9.
  const double whole = std::nearbyint(p);
  if (std::abs(p - whole) < 4e-15 * static_cast<double>(n)) p = whole;
  const double low = std::floor(p), w = p - low;
  const auto l = static_cast<Index>(low);
  if (w == 0) return {l, 0};
  switch (interpolation) {
    case Interpolation::linear: break;
    case Interpolation::lower: return {l, 0};
    case Interpolation::higher: return {l, 1};
    case Interpolation::nearest: return {l, w < 0.5 || (w == 0.5 && l % 2 == 0) ? 0.0 : 1.0};
    case Interpolation::midpoint: return {l, 0.5};
  }
  return {l, w};
}

/// low + w (high - low) for low <= high: within [low, high], and never falling as w rises.
template <Real C>
ASHLAR_HOST_DEVICE C interpolate(C low, C high, double weight) {
  const C w = static_cast<C>(weight);
  if (w == 0 || low == high) return low;
  if (w == 1) return high;
  const C gap = high - low;
  if (std::isfinite(gap)) return std::min(high, low + w * gap);
  if (std::isinf(low) || std::isinf(high)) return low + high;  // -inf and +inf have nothing between them: NaN
  return 2 * std::min(high / 2, low / 2 + w * (high / 2 - low / 2));  // the gap alone overflowed
}

}  // namespace detail

}  // namespace ashlar::sets
