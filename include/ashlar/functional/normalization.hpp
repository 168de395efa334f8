// Layer norm and RMS norm over the rows of a matrix, forward and backward.
//
//   y = gain (x - m) r + bias,    r = 1 / sqrt(mean (x - m)^2 + epsilon),    m = mean x  or, for RMS norm,  m = 0
//
//   functional::normalize(x, {.centred = true}, gain, bias, y, statistics);
//
// Ba, Kiros, Hinton, Layer Normalization, 2016; Zhang, Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019.
// RMS norm without gain is the SRMSNorm of TransNormerLLM: x sqrt(d) / |x|.
//
// Roof: copy bandwidth; a row stays in cache between the passes over it.
#pragma once

#include <algorithm>
#include <cmath>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/functional/elementwise.hpp"

namespace ashlar::functional {

struct NormalizeOptions {
  bool centred = true;    ///< layer norm; RMS norm otherwise
  double epsilon = 1e-5;  ///< added to the mean square: a row of equal numbers gives bias, a zero row stays finite
};

namespace detail {

inline constexpr Index normalize_grain = 64;  // rows; also those of one partial sum of the gradients of gain and bias

template <class T>
void check_normalize(std::string_view function, const View<const T, 2>& x, const NormalizeOptions& options) {
  check_argument(options.epsilon >= 0, function, "epsilon", "at least 0", options.epsilon);
  require(x.contiguous(), function, "x must be contiguous");
}

}  // namespace detail

/// x: [rows, d]; gain, bias: [d], or empty for 1 and 0; y: [rows, d]; statistics: [rows, 2], filled with m and r for
/// the backward pass. All contiguous.
template <class X>
void normalize(const X& x, const NormalizeOptions& options, In<X, 1> gain, In<X, 1> bias, Out<X, 2> y,
               Out<X, 2> statistics) {
  using T = scalar_t<X>;
  const In<X, 2> in = x;
  const Index d = in.extent(1);
  detail::check_normalize<T>("normalize", in, options);
  if (!gain.empty()) check_shape("normalize", "gain", gain.shape(), {d}, "one for each column of x");
  if (!bias.empty()) check_shape("normalize", "bias", bias.shape(), {d}, "one for each column of x");
  check_shape("normalize", "y", y.shape(), in.shape(), "shape of x");
  check_shape("normalize", "statistics", statistics.shape(), {in.extent(0), 2}, "m and r for each row of x");
  require(gain.contiguous() && bias.contiguous() && y.contiguous(), "normalize", "gain, bias and y must be contiguous");
  if (d == 0) return;
  const detail::ConstRowMap<T> gains(gain.data(), gain.extent(0)), biases(bias.data(), bias.extent(0));
  parallel_for(in.extent(0), detail::normalize_grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const detail::ConstRowMap<T> row(&in(i, 0), d);
      detail::RowMap<T> out(&y(i, 0), d);
      const T m = options.centred ? row.mean() : T(0);
      const T r = 1 / std::sqrt((row - m).square().mean() + static_cast<T>(options.epsilon));
      statistics(i, 0) = m;
      statistics(i, 1) = r;
      if (gain.empty())
        out = (row - m) * r;
      else
        out = (row - m) * r * gains;
      if (!bias.empty()) out += biases;
    }
  });
}

/// From dy = the gradient of y: dx [rows, d], dgain [d], dbias [d]; what is empty is not computed.
///   dx = r (h - mean h - z mean(h z)),  h = gain dy,  z = (x - m) r,  without mean h for RMS norm.
template <class X>
void normalize_backward(const X& x, const NormalizeOptions& options, In<X, 1> gain, In<X, 2> statistics, In<X, 2> dy,
                        Out<X, 2> dx, Out<X, 1> dgain, Out<X, 1> dbias) {
  using T = scalar_t<X>;
  const In<X, 2> in = x;
  const Index rows = in.extent(0), d = in.extent(1);
  detail::check_normalize<T>("normalize_backward", in, options);
  check_shape("normalize_backward", "dy", dy.shape(), in.shape(), "shape of x");
  check_shape("normalize_backward", "statistics", statistics.shape(), {rows, 2}, "as normalize filled it");
  require(dy.contiguous() && gain.contiguous(), "normalize_backward", "dy and gain must be contiguous");
  const bool sums = !dgain.empty() || !dbias.empty();
  const Index chunks = chunk_count(rows, detail::normalize_grain);
  Matrix<T> partial_gain = Matrix<T>::Zero(dgain.empty() ? 0 : chunks, d),
            partial_bias = Matrix<T>::Zero(dbias.empty() ? 0 : chunks, d);
  const detail::ConstRowMap<T> gains(gain.data(), gain.extent(0));
  if (d > 0 && (sums || !dx.empty()))
    parallel_for(rows, detail::normalize_grain, [&](Index begin, Index end) {
      const Index chunk = begin / detail::normalize_grain;
      Eigen::Array<T, 1, Eigen::Dynamic> z(d), h(d);
      for (Index i = begin; i < end; ++i) {
        const detail::ConstRowMap<T> row(&in(i, 0), d), out(&dy(i, 0), d);
        const T m = statistics(i, 0), r = statistics(i, 1);
        z = (row - m) * r;
        if (!dgain.empty()) partial_gain.row(chunk).array() += out * z;
        if (!dbias.empty()) partial_bias.row(chunk).array() += out;
        if (dx.empty()) continue;
        if (gain.empty())
          h = out;
        else
          h = out * gains;
        const T along = (h * z).mean(), level = options.centred ? h.mean() : T(0);
        detail::RowMap<T>(&dx(i, 0), d) = r * (h - level - z * along);
      }
    });
  if (!dgain.empty()) Eigen::Map<Eigen::Matrix<T, 1, Eigen::Dynamic>>(dgain.data(), d) = partial_gain.colwise().sum();
  if (!dbias.empty()) Eigen::Map<Eigen::Matrix<T, 1, Eigen::Dynamic>>(dbias.data(), d) = partial_bias.colwise().sum();
}

}  // namespace ashlar::functional
