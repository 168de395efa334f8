// Softmax, log-softmax and log-sum-exp over the rows of a matrix, shifted by the largest entry so that nothing
// overflows. Entries of -infinity are masked; a row of nothing else has log-sum-exp -infinity and softmax zero.
//
// Three passes over a row that stays in cache; the roof is the rate of exponentials.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::linalg {

namespace detail {

inline constexpr Index softmax_grain = 64;

/// A row of any stride, one batch at a time; lanes past the end hold `padding`.
template <class T>
class Lanes {
 public:
  explicit Lanes(View<T, 1> row) : data_(row.data()), stride_(row.stride(0)), size_(row.extent(0)) {}

  simd::batch<std::remove_const_t<T>> load(Index i, std::remove_const_t<T> padding) const {
    constexpr Index width = simd::width<std::remove_const_t<T>>;
    if (stride_ == 1 && i + width <= size_) return simd::load(data_ + i);
    std::remove_const_t<T> lanes[static_cast<std::size_t>(width)];
    for (Index lane = 0; lane < width; ++lane) lanes[lane] = i + lane < size_ ? data_[(i + lane) * stride_] : padding;
    return simd::load(lanes);
  }
  void store(Index i, const simd::batch<std::remove_const_t<T>>& x) const {
    constexpr Index width = simd::width<std::remove_const_t<T>>;
    if (stride_ == 1 && i + width <= size_) return simd::store(data_ + i, x);
    std::remove_const_t<T> lanes[static_cast<std::size_t>(width)];
    simd::store(lanes, x);
    for (Index lane = 0; lane < std::min(width, size_ - i); ++lane) data_[(i + lane) * stride_] = lanes[lane];
  }

 private:
  T* data_;
  Index stride_, size_;
};

/// The largest entry and the sum of e^(x - largest). A NaN in the row makes the sum NaN.
template <class T>
struct Shifted {
  T largest, sum;
};

template <class T>
Shifted<T> shifted_sum(View<const T, 1> row) {
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  const Lanes<const T> x(row);
  const Index n = row.extent(0);
  simd::batch<T> largest(lowest);
  for (Index i = 0; i < n; i += simd::width<T>) largest = xsimd::max(largest, x.load(i, lowest));
  const T shift = simd::reduce_max(largest);
  if (shift == lowest) {  // masked throughout, unless a NaN hides behind the comparison
    T sum = 0;
    for (Index i = 0; i < n; ++i)
      if (std::isnan(row[i])) sum = row[i];
    return {lowest, sum};
  }
  simd::batch<T> sum(T(0));
  for (Index i = 0; i < n; i += simd::width<T>) sum += simd::exp(x.load(i, lowest) - simd::batch<T>(shift));
  return {shift, simd::reduce_add(sum)};
}

template <class T>
void check_rowwise(std::string_view function, const View<const T, 2>& x, const View<T, 2>& out) {
  check_shape(function, "out", out.shape(), x.shape(), "same shape as x");
  require(same_memory(x, out) || !overlaps(x, out), function, "out overlaps x without being x");
}

}  // namespace detail

/// log sum_j e^row[j]; -infinity for an empty row.
template <class X>
scalar_t<X> log_sum_exp(const X& row) {
  const auto [largest, sum] = detail::shifted_sum<scalar_t<X>>(row);
  return std::isinf(largest) && largest < 0 && sum == 0 ? largest : largest + std::log(sum);
}

/// out[i] = log sum_j e^x[i, j]. x: [rows, columns], out: [rows].
template <class X>
void row_log_sum_exp(const X& x, Out<X, 1> out) {
  const In<X, 2> in = x;
  check_shape("row_log_sum_exp", "out", out.shape(), {in.extent(0)}, "one entry a row of x");
  parallel_for(in.extent(0), detail::softmax_grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) out[i] = log_sum_exp(in[i]);
  });
}

/// out[i, j] = e^x[i, j] / sum_k e^x[i, k]. out: [rows, columns], and may be x itself.
template <class X>
void row_softmax(const X& x, Out<X, 2> out) {
  using T = scalar_t<X>;
  const In<X, 2> in = x;
  detail::check_rowwise("row_softmax", in, out);
  parallel_for(in.extent(0), detail::softmax_grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const auto [largest, sum] = detail::shifted_sum<T>(in[i]);
      const bool masked = std::isinf(largest) && largest < 0;
      const simd::batch<T> shift(masked ? T(0) : largest), scale(masked && sum == 0 ? T(0) : T(1) / sum);
      const detail::Lanes<const T> from(in[i]);
      const detail::Lanes<T> to(out[i]);
      for (Index j = 0; j < in.extent(1); j += simd::width<T>)
        to.store(j, simd::exp(from.load(j, T(0)) - shift) * scale);
    }
  });
}

/// out[i, j] = x[i, j] - log sum_k e^x[i, k]. out may be x itself. A row that is masked throughout stays -infinity.
template <class X>
void row_log_softmax(const X& x, Out<X, 2> out) {
  using T = scalar_t<X>;
  const In<X, 2> in = x;
  detail::check_rowwise("row_log_softmax", in, out);
  parallel_for(in.extent(0), detail::softmax_grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const T total = log_sum_exp(in[i]);
      const simd::batch<T> shift(std::isinf(total) && total < 0 ? T(0) : total);
      const detail::Lanes<const T> from(in[i]);
      const detail::Lanes<T> to(out[i]);
      for (Index j = 0; j < in.extent(1); j += simd::width<T>) to.store(j, from.load(j, T(0)) - shift);
    }
  });
}

/// dx = y (dy - <dy, y>) for y = softmax(x). dx: [rows, columns], and may be dy itself.
template <class Y>
void row_softmax_backward(const Y& y, In<Y, 2> dy, Out<Y, 2> dx) {
  using T = scalar_t<Y>;
  const In<Y, 2> p = y;
  check_shape("row_softmax_backward", "dy", dy.shape(), p.shape(), "same shape as y");
  detail::check_rowwise("row_softmax_backward", dy, dx);
  parallel_for(p.extent(0), detail::softmax_grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const detail::Lanes<const T> probability(p[i]), from(dy[i]);
      const detail::Lanes<T> to(dx[i]);
      simd::batch<T> along(T(0));
      for (Index j = 0; j < p.extent(1); j += simd::width<T>)
        along = simd::fma(probability.load(j, T(0)), from.load(j, T(0)), along);
      const simd::batch<T> level(simd::reduce_add(along));
      for (Index j = 0; j < p.extent(1); j += simd::width<T>)
        to.store(j, probability.load(j, T(0)) * (from.load(j, T(0)) - level));
    }
  });
}

/// dx = dy - e^y sum(dy) for y = log_softmax(x). dx: [rows, columns], and may be dy itself.
template <class Y>
void row_log_softmax_backward(const Y& y, In<Y, 2> dy, Out<Y, 2> dx) {
  using T = scalar_t<Y>;
  const In<Y, 2> log_p = y;
  check_shape("row_log_softmax_backward", "dy", dy.shape(), log_p.shape(), "same shape as y");
  detail::check_rowwise("row_log_softmax_backward", dy, dx);
  parallel_for(log_p.extent(0), detail::softmax_grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const detail::Lanes<const T> log_probability(log_p[i]), from(dy[i]);
      const detail::Lanes<T> to(dx[i]);
      simd::batch<T> total(T(0));
      for (Index j = 0; j < log_p.extent(1); j += simd::width<T>) total += from.load(j, T(0));
      const simd::batch<T> level(simd::reduce_add(total));
      for (Index j = 0; j < log_p.extent(1); j += simd::width<T>)
        to.store(j, from.load(j, T(0)) - simd::exp(log_probability.load(j, T(0))) * level);
    }
  });
}

template <class X>
Vector<scalar_t<X>> row_log_sum_exp(const X& x) {
  Vector<scalar_t<X>> out(In<X, 2>(x).extent(0));
  row_log_sum_exp(x, out);
  return out;
}
template <class X>
Matrix<scalar_t<X>> row_softmax(const X& x) {
  Matrix<scalar_t<X>> out(In<X, 2>(x).extent(0), In<X, 2>(x).extent(1));
  row_softmax(x, out);
  return out;
}
template <class X>
Matrix<scalar_t<X>> row_log_softmax(const X& x) {
  Matrix<scalar_t<X>> out(In<X, 2>(x).extent(0), In<X, 2>(x).extent(1));
  row_log_softmax(x, out);
  return out;
}

}  // namespace ashlar::linalg
