// expect: this Eigen expression has no memory to view: write \(expression\)\.eval\(\)
#include "ashlar/core/tensor.hpp"

namespace ashlar {

template <class X>
Index rows(const X&, In<X, 1> weights) {
  return weights.extent(0);
}

Index call(const Matrix<double>& x, const Vector<double>& w) {
#if defined(WRONG)
  return rows(x, 2 * w);
#else
  return rows(x, (2 * w).eval());
#endif
}

}  // namespace ashlar
