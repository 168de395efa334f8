// e^(-gamma |x - y|), whose spectrum falls like a power: interpolation with it is the mild counterpart of the Gaussian.
//
//   Matrix<double> k = linalg::gram(linalg::LaplaceKernel(1), x);
#pragma once

#include <cmath>

#include "ashlar/core/error.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::linalg {

/// A function of two points, not of the batches of squared distances that Gram tiles compute by products: next to zero
/// those are wrong by |x|^2 eps, and the root makes 1e-8 of it, which hides that two points are the same.
class LaplaceKernel {
 public:
  explicit LaplaceKernel(double gamma) : gamma_(gamma) {
    check_argument(gamma > 0 && std::isfinite(gamma), "LaplaceKernel", "gamma", "positive and finite", gamma);
  }
  double gamma() const { return gamma_; }

  template <Real T>
  T operator()(View<const T, 1> x, View<const T, 1> y) const {
    T sum = 0;
    for (Index k = 0; k < x.extent(0); ++k) sum += (x[k] - y[k]) * (x[k] - y[k]);
    return std::exp(static_cast<T>(-gamma_) * std::sqrt(sum));
  }

 private:
  double gamma_;
};

}  // namespace ashlar::linalg
