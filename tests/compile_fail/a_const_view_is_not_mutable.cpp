// expect: conver(t|sion) .*from [^V]*View<const double,.* to [^V]*View<(double|scalar_t)
#include "ashlar/core/view.hpp"

namespace ashlar {

template <class X>
void fill(const X& x, Out<X, 1> out) {
  out[0] = x[0];
}

void call(View<double, 1> x, [[maybe_unused]] View<const double, 1> read_only) {
#if defined(WRONG)
  fill(x, read_only);
#else
  fill(x, x);
#endif
}

}  // namespace ashlar
