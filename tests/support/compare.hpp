// How far two arrays are apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::test {

/// max |a - b| over all elements, in double; infinite when the shapes differ or a NaN has no partner.
template <class T, class U>
double max_difference(const Tensor<T>& a, const Tensor<U>& b) {
  if (!(a.shape() == b.shape())) return INFINITY;
  double worst = 0;
  for (Index i = 0; i < a.size(); ++i) {
    const double x = to_float(a.data()[i]), y = to_float(b.data()[i]);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double gap = std::abs(x - y);
    worst = std::isnan(gap) ? INFINITY : std::max(worst, gap);
  }
  return worst;
}

/// max |a|.
template <class T>
double max_magnitude(const Tensor<T>& a) {
  double worst = 0;
  for (Index i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(to_float(a.data()[i]))));
  return worst;
}

/// max |a - b| / max |b|.
template <class T, class U>
double relative_difference(const Tensor<T>& a, const Tensor<U>& b) {
  const double scale = max_magnitude(b);
  return max_difference(a, b) / (scale > 0 ? scale : 1);
}

/// Bit for bit.
template <class T>
bool identical(const Tensor<T>& a, const Tensor<T>& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(T)) == 0;
}

/// A tensor with the elements of anything of rank R that View can look at, so that the above apply to it.
template <int R, class X>
Tensor<scalar_t<X>> copy_of(const X& x) {
  const In<X, R> view = x;
  auto copy = Tensor<scalar_t<X>>::uninitialized(view.shape());
  scalar_t<X>* to = copy.data();
  const auto walk = [&](auto&& self, const auto& part) -> void {
    if constexpr (std::remove_cvref_t<decltype(part)>::rank == 1)
      for (Index i = 0; i < part.extent(0); ++i) *to++ = part[i];
    else
      for (Index i = 0; i < part.extent(0); ++i) self(self, part[i]);
  };
  walk(walk, view);
  return copy;
}

}  // namespace ashlar::test
