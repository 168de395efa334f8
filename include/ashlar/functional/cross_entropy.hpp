// Cross-entropy of the softmax over classes, and its gradient.
//
//   loss = mean over the rows that count of  log sum_j e^x[i, j] - x[i, label[i]]
//
//   const double loss = functional::cross_entropy_gradient(logits, labels, dlogits);
//
// The gradient comes with the loss, row by row while the row is in cache, for the price of one exponential a logit:
// computed apart it would take them again. Roof: the rate of exponentials, or reading and writing the logits once.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/functional/elementwise.hpp"
#include "ashlar/linalg/softmax.hpp"

namespace ashlar::functional {

/// A row with this label does not count.
inline constexpr Index ignored = -1;

namespace detail {

inline Index check_labels(std::string_view function, std::span<const Index> labels, Index rows, Index classes) {
  require(static_cast<Index>(labels.size()) == rows, function, "there are ", static_cast<Index>(labels.size()),
          " labels for ", rows, " rows of logits");
  Index counted = 0;
  for (const Index label : labels) {
    require(label == ignored || (label >= 0 && label < classes), function, "label ", label, " is not one of the ",
            classes, " classes");
    counted += label != ignored;
  }
  return counted;
}

template <class T>
T mean_loss(double sum, Index counted) {
  return static_cast<T>(counted == 0 ? 0 : sum / static_cast<double>(counted));
}

}  // namespace detail

/// logits: [rows, classes]; labels: [rows], a class each or `ignored`. 0 when no row counts.
template <class X>
scalar_t<X> cross_entropy(const X& logits, std::span<const Index> labels) {
  const In<X, 2> x = logits;
  const Index counted = detail::check_labels("cross_entropy", labels, x.extent(0), x.extent(1));
  const Vector<scalar_t<X>> total = linalg::row_log_sum_exp(x);
  double sum = 0;
  for (Index i = 0; i < x.extent(0); ++i)
    if (const Index label = labels[static_cast<std::size_t>(i)]; label != ignored)
      sum += static_cast<double>(total[i]) - static_cast<double>(x(i, label));
  return detail::mean_loss<scalar_t<X>>(sum, counted);
}

/// The loss, and its gradient (softmax - one-hot) / rows that count into dlogits: [rows, classes], 0 in rows that do
/// not count. Both are contiguous, and dlogits may be logits itself.
template <class X>
scalar_t<X> cross_entropy_gradient(const X& logits, std::span<const Index> labels, Out<X, 2> dlogits) {
  using T = scalar_t<X>;
  constexpr auto function = "cross_entropy_gradient";
  const In<X, 2> x = logits;
  const Index rows = x.extent(0), classes = x.extent(1);
  const Index counted = detail::check_labels(function, labels, rows, classes);
  check_shape(function, "dlogits", dlogits.shape(), x.shape(), "shape of logits");
  require(x.contiguous() && dlogits.contiguous(), function, "logits and dlogits must be contiguous");
  require(same_memory(x, dlogits) || !overlaps(x, dlogits), function, "dlogits overlaps logits without being them");
  Vector<double> losses = Vector<double>::Zero(rows);
  if (!x.empty())
    parallel_for(rows, 64, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        T* const out = &dlogits(i, 0);
        const Index label = labels[static_cast<std::size_t>(i)];
        if (label == ignored) {
          std::fill_n(out, classes, T(0));
          continue;
        }
        const detail::ConstRowMap<T> row(&x(i, 0), classes);
        detail::RowMap<T> gradient(out, classes);
        const T largest = row.maxCoeff(), own = row[label];
        const simd::batch<T> shift(largest);
        const auto power = [&](const simd::batch<T>& logit) { return simd::exp(logit - shift); };
        detail::map_run(0, classes, out, power, detail::Run<T>{&x(i, 0)});
        const T sum = gradient.sum();
        losses[i] = static_cast<double>(std::log(sum)) + static_cast<double>(largest) - static_cast<double>(own);
        gradient *= 1 / (sum * static_cast<T>(counted));
        gradient[label] -= 1 / static_cast<T>(counted);
      }
    });
  return detail::mean_loss<T>(losses.sum(), counted);
}

}  // namespace ashlar::functional
