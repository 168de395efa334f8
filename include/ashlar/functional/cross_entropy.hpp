// Cross-entropy of the softmax over classes, forward and backward.
//
//   loss = mean over the rows that count of  log sum_j e^x[i, j] - x[i, label[i]]
//
//   std::vector<double> total(rows);
//   const double loss = functional::cross_entropy(logits, labels, total);
//   functional::cross_entropy_backward(logits, labels, total, 1.0, dlogits);
//
// Roof: the rate of exponentials, one a logit in each direction.
#pragma once

#include <algorithm>
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

}  // namespace detail

/// logits: [rows, classes]; labels: [rows], a class each or `ignored`; total: [rows], filled with the log-sum-exp of each
/// row. The loss is 0 when no row counts.
template <class X>
scalar_t<X> cross_entropy(const X& logits, std::span<const Index> labels, Out<X, 1> total) {
  const In<X, 2> x = logits;
  const Index counted = detail::check_labels("cross_entropy", labels, x.extent(0), x.extent(1));
  linalg::row_log_sum_exp(x, total);
  double sum = 0;
  for (Index i = 0; i < x.extent(0); ++i)
    if (const Index label = labels[static_cast<std::size_t>(i)]; label != ignored)
      sum += static_cast<double>(total[i]) - static_cast<double>(x(i, label));
  return static_cast<scalar_t<X>>(counted == 0 ? 0 : sum / static_cast<double>(counted));
}

/// dlogits = dloss (softmax - one-hot) / rows that count, 0 in the others. dlogits: [rows, classes], both
/// contiguous.
template <class X>
void cross_entropy_backward(const X& logits, std::span<const Index> labels, In<X, 1> total, scalar_t<X> dloss,
                            Out<X, 2> dlogits) {
  using T = scalar_t<X>;
  const In<X, 2> x = logits;
  const Index counted = detail::check_labels("cross_entropy_backward", labels, x.extent(0), x.extent(1));
  check_shape("cross_entropy_backward", "dlogits", dlogits.shape(), x.shape(), "shape of logits");
  check_shape("cross_entropy_backward", "total", total.shape(), {x.extent(0)}, "one for each row of logits");
  require(x.contiguous() && dlogits.contiguous(), "cross_entropy_backward", "logits and dlogits must be contiguous");
  if (x.empty()) return;
  const T scale = counted == 0 ? T(0) : dloss / static_cast<T>(counted);
  parallel_for(x.extent(0), 64, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Index label = labels[static_cast<std::size_t>(i)];
      if (label == ignored) {
        std::fill_n(&dlogits(i, 0), x.extent(1), T(0));
        continue;
      }
      const simd::batch<T> shift(total[i]), factor(scale);
      const auto part = [&](const simd::batch<T>& logit) { return simd::exp(logit - shift) * factor; };
      detail::map_run(0, x.extent(1), &dlogits(i, 0), part, detail::Run<T>{&x(i, 0)});
      dlogits(i, label) -= scale;
    }
  });
}

}  // namespace ashlar::functional
