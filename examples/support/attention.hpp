// What lightning attention is compared with: the quadratic forms a user would write with Eigen. Blocks of 64 rows of the
// score matrix, without the columns above the diagonal; memory linear in the length.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ashlar/core/tensor.hpp"

namespace ashlar::example {

namespace detail {
template <class T, class Normalize>
void blocked_attention(const Tensor<T>& q_in, const Tensor<T>& k_in, const Tensor<T>& v_in, View<T, 4> o_out,
                       const Normalize& normalize) {
  constexpr Index block = 64;
  for (Index b = 0; b < q_in.extent(0); ++b)
    for (Index h = 0; h < q_in.extent(1); ++h) {
      const auto q = matrix(q_in.template view<4>()[b][h]), k = matrix(k_in.template view<4>()[b][h]);
      const auto v = matrix(v_in.template view<4>()[b][h]);
      auto o = matrix(o_out[b][h]);
      for (Index i = 0; i < q.rows(); i += block) {
        const Index rows = std::min(block, q.rows() - i), cols = i + rows;
        Matrix<T> scores = q.middleRows(i, rows) * k.topRows(cols).transpose();
        for (Index r = 0; r < rows; ++r) {
          auto row = scores.row(r).head(i + r + 1).array();
          normalize(row);
          scores.row(r).tail(rows - r - 1).setZero();
        }
        o.middleRows(i, rows).noalias() = scores * v.topRows(cols);
      }
    }
}
}  // namespace detail

/// O = ((Q K^T) . M) V, the operator of lightning attention, at quadratic cost.
template <class T>
void quadratic_attention(const Tensor<T>& q, const Tensor<T>& k, const Tensor<T>& v, double slope, View<T, 4> o) {
  Vector<T> decay(q.extent(2));  // lambda^(N-1), ..., lambda, 1, denormals flushed: they would cost several times the time
  for (Index i = 0; i < decay.size(); ++i) {
    const double power = std::exp(-slope * static_cast<double>(decay.size() - 1 - i));
    decay[i] = power < std::numeric_limits<T>::min() ? T{0} : static_cast<T>(power);
  }
  detail::blocked_attention(q, k, v, o, [&](auto& row) { row *= decay.tail(row.size()).transpose().array(); });
}

/// Causal softmax attention without scaling.
template <class T>
void softmax_attention(const Tensor<T>& q, const Tensor<T>& k, const Tensor<T>& v, View<T, 4> o) {
  detail::blocked_attention(q, k, v, o, [](auto& row) {
    row = (row - row.maxCoeff()).exp();
    row /= row.sum();
  });
}

}  // namespace ashlar::example
