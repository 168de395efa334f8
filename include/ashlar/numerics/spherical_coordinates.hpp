// Unit vectors as angles and back:
//
//   s_1 = cos t_1,   s_i = sin t_1 ... sin t_(i-1) cos t_i,   s_p = sin t_1 ... sin t_(p-1),
//
// t_1 .. t_(p-2) in [0, pi], t_(p-1) in [0, 2 pi).
//
//   Vector<double> t = numerics::to_spherical(s);      // p - 1 angles
//   Vector<double> s = numerics::from_spherical(t);    // any angles: those outside the ranges give points as well
//
// O(p) sines and cosines.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::numerics {

/// s: [p], of length one to 1e-8, p at least 2. Angles behind the last entry that is not zero are zero.
/// Throws InvalidArgument for other vectors.
inline Vector<double> to_spherical(View<const double, 1> s) {
  constexpr auto function = "to_spherical";
  const Index p = s.extent(0);
  check_argument(p >= 2, function, "the number of entries of s", "at least 2", p);
  const double length = vector(s).norm();
  check_argument(std::abs(length - 1) <= 1e-8, function, "the length of s", "1", length);
  Vector<double> angles(p - 1);
  double tail = std::abs(s[p - 1]);  // |(s_i, ..., s_p)|
  for (Index i = p - 2; i >= 0; --i) {
    // Of the arc cosine and sine, atan2 has the accuracy of both, also near the poles.
    angles[i] = tail == 0 && s[i] == 0 ? 0 : std::atan2(tail, s[i]);  // atan2(0, -0) is pi
    tail = std::hypot(s[i], tail);
  }
  if (s[p - 1] < 0) angles[p - 2] = 2 * std::numbers::pi - angles[p - 2];
  return angles;
}

/// angles: [p - 1], s: [p]. Allocates nothing.
inline void from_spherical(View<const double, 1> angles, View<double, 1> s) {
  check_shape("from_spherical", "s", s.shape(), {angles.extent(0) + 1}, "one more than angles");
  double product = 1;
  for (Index i = 0; i < angles.extent(0); ++i) {
    s[i] = product * std::cos(angles[i]);
    product *= std::sin(angles[i]);
  }
  s[angles.extent(0)] = product;
}
inline Vector<double> from_spherical(View<const double, 1> angles) {
  Vector<double> s(angles.extent(0) + 1);
  from_spherical(angles, s);
  return s;
}

}  // namespace ashlar::numerics
