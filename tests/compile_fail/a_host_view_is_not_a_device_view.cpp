// expect: conver(t|sion) .*from [^V]*View<float,.*host>.* to [^V]*View<const .*device
#include "ashlar/core/view.hpp"

namespace ashlar {

template <class X>
Index length(const X&, In<X, 1> weights) {
  return weights.extent(0);
}

Index call(View<float, 1, device> on_device, [[maybe_unused]] View<float, 1> on_host) {
#if defined(WRONG)
  return length(on_device, on_host);
#else
  return length(on_device, on_device);
#endif
}

}  // namespace ashlar
