// Products of large matrices on several threads.
//
//   linalg::multiply(a, b, c);                               // C = A B
//   linalg::multiply(a.transposed(0, 1), b, c, linalg::Sum::added);   // C += A^T B
//
// Eigen multiplies; the rows of C are cut into panels, whose number depends on the shape alone, so that the same bits
// come out for any number of threads. Roof: fused multiply-adds.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <string_view>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::linalg {

/// What a product does with what is already in its result.
enum class Sum { overwritten, added };

namespace detail {

/// Calls f with an Eigen map of a matrix whose rows or columns are contiguous, in its own storage order.
template <class T, class F>
void with_map(const View<const T, 2>& x, F&& f) {
  using Stride = Eigen::OuterStride<>;
  if (x.stride(1) == 1 || x.extent(1) <= 1)
    f(Eigen::Map<const Matrix<T>, 0, Stride>(x.data(), x.extent(0), x.extent(1), Stride(x.stride(0))));
  else
    f(Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>, 0, Stride>(x.data(), x.extent(0), x.extent(1),
                                                                                    Stride(x.stride(1))));
}

template <class View>
bool one_step_is_one(const View& x) {
  return x.stride(0) == 1 || x.stride(1) == 1 || x.extent(0) <= 1 || x.extent(1) <= 1;
}

/// Eight panels where there are enough rows, of 64 to 256: short enough to share out, long enough to pay for packing B.
inline Index panel_rows(Index rows) { return std::clamp<Index>((rows / 8 + 15) / 16 * 16, 64, 256); }

template <class T>
void multiply_panel(const View<const T, 2>& a, const View<const T, 2>& b, const View<T, 2>& c, Sum sum) {
  Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>> out(c.data(), c.extent(0), c.extent(1),
                                                     Eigen::OuterStride<>(c.stride(0)));
  with_map(a, [&](const auto& left) {
    with_map(b, [&](const auto& right) {
      if (sum == Sum::added)
        out.noalias() += left * right;
      else
        out.noalias() = left * right;
    });
  });
}

}  // namespace detail

/// c = a b, or c += a b. a: [m, k], b: [k, n], rows or columns contiguous (a transposed view is as good as any); c: [m,
/// n], rows contiguous, apart from a and b. 2 m k n flops.
template <class A>
void multiply(const A& a, In<A, 2> b, Out<A, 2> c, Sum sum = Sum::overwritten) {
  using T = scalar_t<A>;
  const In<A, 2> left = a;
  check_shape("multiply", "b", b.shape(), {left.extent(1), b.extent(1)}, "as many rows as a has columns");
  check_shape("multiply", "c", c.shape(), {left.extent(0), b.extent(1)}, "rows of a, columns of b");
  require(detail::one_step_is_one(left) && detail::one_step_is_one(b), "multiply",
          "a and b must have contiguous rows or contiguous columns");
  require(c.stride(1) == 1 || c.extent(1) <= 1, "multiply", "c must have contiguous rows");
  require(!overlaps(left, c) && !overlaps(b, c), "multiply", "c overlaps a factor");
  parallel_for(c.extent(0), detail::panel_rows(c.extent(0)), [&](Index begin, Index end) {
    detail::multiply_panel<T>(left.slice(0, begin, end), b, c.slice(0, begin, end), sum);
  });
}

}  // namespace ashlar::linalg
