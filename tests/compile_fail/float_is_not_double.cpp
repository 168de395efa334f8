// expect: conver(t|sion) .*from .*MatrixXf.* to .*View<const double, 2
#include "ashlar/core/tensor.hpp"

namespace ashlar {

template <class X>
Index rows(const X&, In<X, 2> y) {
  return y.extent(0);
}

Index call(const Eigen::MatrixXd& x, [[maybe_unused]] const Eigen::MatrixXf& y) {
#if defined(WRONG)
  return rows(x, y);
#else
  return rows(x, x);
#endif
}

}  // namespace ashlar
