// Lightning attention: causal linear attention with a decay per head, exact, in time linear in the length.
//
// Zhen Qin, Weigao Sun, Dong Li, Xuyang Shen, Weixuan Sun, Yiran Zhong, "Various Lengths, Constant Speed: Efficient
// Language Modeling with Lightning Attention", ICML 2024, arXiv 2405.17381.
//
//   S_t = lambda S_{t-1} + k_t v_t^T,      o_t = S_t^T q_t,      lambda = exp(-slope),      t = 1 .. N
//   O   = ((Q K^T) . M) V + diag(lambda^t) Q S_0,                M_tu = lambda^(t-u) for u <= t, else 0
//
// The sequence is cut into tiles of C tokens: inside a tile the masked C x C product is formed, between tiles the D x E
// state S is carried. A token and head costs C (D + E) + 4 D E flops forward and about 2.5 times that backward.
//
//   auto slopes = ashlar::attention::alibi_slopes(heads);
//   Tensor<float> o = lightning_attention(q, k, v, slopes);      // q, k: [batch, heads, length, dim], v: [.., value dim]
//
// There is no softmax, no denominator and no 1/sqrt(dim): normalise the output. The state is kept in at least float.
// A non-finite value of a later token may reach earlier rows of its tile (0 times NaN): zero padded tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/prefetch.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/linalg/small_product.hpp"

namespace ashlar::attention {

struct LightningOptions {
  /// Tokens a tile. The result does not depend on it beyond rounding; about the head dimension is fastest (paper, sec. 4).
  Index tile = 64;
  /// Factor on q.
  double scale = 1;
  /// Packed sequences: batch is 1 and sequence i is tokens offsets[i] .. offsets[i+1]-1, with a state of its own.
  /// First 0, last the length, not decreasing. Empty: every batch entry is one sequence.
  View<const Index, 1> offsets = {};
};

/// The state before the first and after the last token: [sequences, heads, dim, value dim]. Views left out are zero
/// (initial) or not wanted (final). `final` may be the same memory as `initial`.
template <Real T>
struct LightningStates {
  View<const T, 4> initial = {};
  View<T, 4> final = {};
};

/// What the backward pass writes. The last two are optional.
template <Scalar T>
struct LightningGradientViews {
  View<T, 4> q, k, v;
  View<accumulate_t<T>, 4> initial_state = {};
  View<double, 1> slopes = {};  ///< d loss / d slope, summed over the batch
};

template <Scalar T>
struct LightningResult {
  Tensor<T> output;                  ///< [batch, heads, length, value dim]
  Tensor<accumulate_t<T>> state;     ///< [sequences, heads, dim, value dim]
};

template <Scalar T>
struct LightningGradients {
  Tensor<T> q, k, v;
  Tensor<accumulate_t<T>> initial_state;
  Vector<double> slopes;
};

// ---- The mathematics as written ---------------------------------------------------------------------------------

namespace reference {

/// Paper, Algorithm 1: O = ((Q K^T) . M) V, quadratic in the length. Zero initial state. Sums in double.
template <class Q>
Tensor<scalar_t<Q>> lightning_attention_parallel(const Q& q_in, In<Q, 4> k, In<Q, 4> v, View<const double, 1> slopes) {
  const In<Q, 4> q = q_in;
  Tensor<scalar_t<Q>> output({q.extent(0), q.extent(1), q.extent(2), v.extent(3)});
  const auto o = output.template view<4>();
  for (Index b = 0; b < q.extent(0); ++b)
    for (Index h = 0; h < q.extent(1); ++h)
      for (Index t = 0; t < q.extent(2); ++t) {
        Vector<double> sum = Vector<double>::Zero(v.extent(3));
        for (Index u = 0; u <= t; ++u) {
          double score = 0;
          for (Index d = 0; d < q.extent(3); ++d) score += to_float(q(b, h, t, d)) * double{to_float(k(b, h, u, d))};
          score *= std::exp(-slopes[h] * static_cast<double>(t - u));
          for (Index e = 0; e < v.extent(3); ++e) sum[e] += score * to_float(v(b, h, u, e));
        }
        for (Index e = 0; e < v.extent(3); ++e)
          o(b, h, t, e) = from_float<scalar_t<Q>>(static_cast<accumulate_t<scalar_t<Q>>>(sum[e]));
      }
  return output;
}

/// Paper, Algorithm 2: one token after the other. `state` [batch, heads, dim, value dim] is read and overwritten.
template <class Q>
Tensor<scalar_t<Q>> lightning_attention_recurrent(const Q& q_in, In<Q, 4> k, In<Q, 4> v, View<const double, 1> slopes,
                                                  View<double, 4> state) {
  const In<Q, 4> q = q_in;
  Tensor<scalar_t<Q>> output({q.extent(0), q.extent(1), q.extent(2), v.extent(3)});
  const auto o = output.template view<4>();
  for (Index b = 0; b < q.extent(0); ++b)
    for (Index h = 0; h < q.extent(1); ++h)
      for (Index t = 0; t < q.extent(2); ++t) {
        Vector<double> sum = Vector<double>::Zero(v.extent(3));
        for (Index d = 0; d < q.extent(3); ++d)
          for (Index e = 0; e < v.extent(3); ++e) {
            double& s = state(b, h, d, e);
            s = std::exp(-slopes[h]) * s + to_float(k(b, h, t, d)) * double{to_float(v(b, h, t, e))};
            sum[e] += to_float(q(b, h, t, d)) * s;
          }
        for (Index e = 0; e < v.extent(3); ++e)
          o(b, h, t, e) = from_float<scalar_t<Q>>(static_cast<accumulate_t<scalar_t<Q>>>(sum[e]));
      }
  return output;
}

/// Gradients of <o, d_output> + <S_N, d_final> by the recurrences S_t and Dst_{t-1} = lambda (Dst_t + q_t d_o_t^T), in
/// double, with every S_t kept. d_final may be empty (zero).
template <class Q>
LightningGradients<double> lightning_attention_backward(const Q& q_in, In<Q, 4> k, In<Q, 4> v,
                                                        View<const double, 1> slopes, In<Q, 4> d_output,
                                                        View<const double, 4> initial, View<const double, 4> d_final) {
  const In<Q, 4> q = q_in;
  const Index length = q.extent(2), dim = q.extent(3), value_dim = v.extent(3);
  LightningGradients<double> grad{Tensor<double>(q.shape()), Tensor<double>(k.shape()), Tensor<double>(v.shape()),
                                  Tensor<double>({q.extent(0), q.extent(1), dim, value_dim}),
                                  Vector<double>::Zero(q.extent(1))};
  const auto at = [](const auto& x, Index b, Index h, Index t) {
    Vector<double> row(x.extent(3));
    for (Index i = 0; i < row.size(); ++i) row[i] = to_float(x(b, h, t, i));
    return row;
  };
  for (Index b = 0; b < q.extent(0); ++b)
    for (Index h = 0; h < q.extent(1); ++h) {
      const double lambda = std::exp(-slopes[h]);
      std::vector<Matrix<double>> state(static_cast<std::size_t>(length + 1), Matrix<double>::Zero(dim, value_dim));
      if (initial.data() != nullptr) state[0] = matrix(initial[b][h]);
      for (Index t = 0; t < length; ++t) {
        const auto i = static_cast<std::size_t>(t);
        state[i + 1] = lambda * state[i] + at(k, b, h, t) * at(v, b, h, t).transpose();
      }
      Matrix<double> d_state = Matrix<double>::Zero(dim, value_dim);
      if (d_final.data() != nullptr) d_state = matrix(d_final[b][h]);
      for (Index t = length; t-- > 0;) {
        const auto i = static_cast<std::size_t>(t);
        const Vector<double> d_o = at(d_output, b, h, t);
        vector(grad.q.view<4>()[b][h][t]) = state[i + 1] * d_o;
        d_state += at(q, b, h, t) * d_o.transpose();
        vector(grad.k.view<4>()[b][h][t]) = d_state * at(v, b, h, t);
        vector(grad.v.view<4>()[b][h][t]) = d_state.transpose() * at(k, b, h, t);
        grad.slopes[h] -= lambda * d_state.cwiseProduct(state[i]).sum();
        d_state *= lambda;
      }
      matrix(grad.initial_state.view<4>()[b][h]) = d_state;
    }
  return grad;
}

}  // namespace reference

// ---- The tiled form ---------------------------------------------------------------------------------------------

namespace detail {

/// The numbers of one problem, with every tile dimension padded to whole vectors.
struct LightningShape {
  Index sequences, heads, length, dim, value_dim;  ///< length: of the whole array
  Index tile, tile_pad, dim_pad, value_pad;
};

/// A sequence: which batch entry, which tokens.
struct Sequence {
  Index batch, begin, end;
};

inline Sequence sequence(const View<const Index, 1>& offsets, Index length, Index i) {
  if (offsets.data() == nullptr) return {i, 0, length};
  return {0, offsets[i], offsets[i + 1]};
}

/// lambda^i for the tile, in the shapes the products need. Factors below the smallest normal number become 0: denormal
/// operands would cost several times the time of the whole product.
template <Real T>
class Decay {
 public:
  static Index size(const LightningShape& s) { return 3 * s.tile_pad + 1; }

  Decay(double slope, const LightningShape& s, T* memory) : slope_(slope), powers_(memory), toeplitz_(memory + s.tile_pad + 1) {
    for (Index i = 0; i <= s.tile_pad; ++i) {
      const double power = std::exp(-slope * static_cast<double>(i));
      powers_[i] = power < std::numeric_limits<T>::min() ? T{0} : static_cast<T>(power);
    }
    for (Index i = 0; i < s.tile_pad; ++i) toeplitz_[i] = powers_[s.tile_pad - 1 - i];
    std::fill_n(toeplitz_ + s.tile_pad, s.tile_pad, T{0});
    diagonal_ = toeplitz_ + s.tile_pad - 1;
  }

  double slope() const { return slope_; }
  /// lambda^i, 0 <= i <= tile.
  T power(Index i) const { return powers_[i]; }
  const T* powers() const { return powers_; }
  /// mask(r)[c] = lambda^(r-c) for c <= r, else 0.
  const T* mask(Index r) const { return diagonal_ - r; }
  /// lambda^steps - 1, exact for small slopes: S + (lambda^m - 1) S does not bias a state that hardly decays.
  T loss(Index steps) const { return static_cast<T>(std::expm1(-slope_ * static_cast<double>(steps))); }

 private:
  double slope_;
  T* powers_;
  T* toeplitz_;
  const T* diagonal_;
};

/// to[r][j] = factors[r] from[r][j] in the accumulation type, zero in the padding. Null factors: 1.
template <class T, Real A>
void pack(const View<const T, 2>& from, Index rows_pad, Index cols_pad, A* to, A scale = 1) {
  const Index rows = from.extent(0), cols = from.extent(1);
  for (Index r = 0; r < rows; ++r) {
    A* row = to + r * cols_pad;
    const T* source = from.data() + r * from.stride(0);
    if (from.stride(1) == 1)
      simd::convert(source, row, cols);
    else
      for (Index j = 0; j < cols; ++j) row[j] = to_float(source[j * from.stride(1)]);
    if (scale != A{1})
      for (Index j = 0; j < cols; ++j) row[j] *= scale;
    std::fill(row + cols, row + cols_pad, A{0});
  }
  std::fill(to + rows * cols_pad, to + rows_pad * cols_pad, A{0});
}

/// to[r] = factor(r) from[r].
template <Real A, class Factor>
void scale_rows(const A* from, Index rows, Index cols_pad, const Factor& factor, A* to) {
  for (Index r = 0; r < rows; ++r) {
    const simd::batch<A> lanes(factor(r));
    for (Index j = 0; j < cols_pad; j += simd::width<A>)
      simd::store(to + r * cols_pad + j, lanes * simd::load(from + r * cols_pad + j));
  }
}

/// The rows x cols corner of a padded tile into a strided view, rounded to its type.
template <class T, Real A>
void unpack(const A* from, Index cols_pad, const View<T, 2>& to, A scale = 1) {
  const Index rows = to.extent(0), cols = to.extent(1);
  for (Index r = 0; r < rows; ++r) {
    const A* row = from + r * cols_pad;
    T* target = to.data() + r * to.stride(0);
    if (to.stride(1) == 1 && scale == A{1})
      simd::convert(row, target, cols);
    else
      for (Index j = 0; j < cols; ++j) target[j * to.stride(1)] = from_float<T>(scale * row[j]);
  }
}

/// Exclusive scan over tiles: slot t, which holds what tile t adds to the state, receives the state before it.
/// `state` goes from before the first to after the last. Tiles are visited in the order first, first + step, ...
/// Elements are independent, so they are shared out among the threads.
template <Real A, class Steps>
void scan_states(A* state, A* slots, Index size, Index tiles, bool backwards, const Decay<A>& decay, const Steps& steps) {
  parallel_for(size, 1024, [&](Index begin, Index end) {
    for (Index n = 0; n < tiles; ++n) {
      const Index t = backwards ? tiles - 1 - n : n;
      const simd::batch<A> loss(decay.loss(steps(t)));
      A* slot = slots + t * size;
      for (Index i = begin; i < end; i += simd::width<A>) {
        const auto before = simd::load(state + i), added = simd::load(slot + i);
        simd::store(slot + i, before);
        simd::store(state + i, simd::fma(loss, before, before) + added);
      }
    }
  });
}

/// P = (A B^T) . M on the lower triangle, B given transposed. rows: a multiple of tile_rows.
template <Real A, bool Decays>
void masked_scores(const A* a, Index depth, Index a_row, const A* b_transposed, const LightningShape& s, Index rows,
                   const Decay<A>& decay, Prefetch& ahead, A* p) {
  for (Index i = 0; i < rows; i += linalg::tile_rows) {
    ahead.step();
    linalg::for_register_tiles<A>(
        linalg::tile_rows, linalg::round_up(std::min(i + linalg::tile_rows, rows), simd::width<A>),
        [&](auto& tile, Index, Index j) {
          tile.clear();
          tile.add(a + i * a_row, a_row, 1, b_transposed + j, s.tile_pad, depth);
          if (Decays || j + tile.cols > i) tile.scale_toeplitz(decay.mask(i) + j);
          tile.store(p + i * s.tile_pad + j, s.tile_pad);
        });
  }
}

/// A^T B over the rows of a tile: added[i][j] = sum over r of a[r][i] b[r][j].
template <Real A>
void outer_products(const A* a, Index a_pad, const A* b, Index b_pad, Index rows,
                    Prefetch& ahead, A* added) {
  linalg::for_register_tiles<A>(a_pad, b_pad, [&](auto& tile, Index i, Index j) {
    if (j == 0) ahead.step();
    tile.clear();
    tile.add(a + i, 1, a_pad, b + j, b_pad, rows);
    tile.store(added + i * b_pad + j, b_pad);
  });
}

/// Slices of the caller's workspace.
template <Real A>
class Slices {
 public:
  explicit Slices(A* memory) : next_(memory) {}
  A* take(Index count) { return std::exchange(next_, next_ + count); }

 private:
  A* next_;
};

/// What one worker needs for the tiles of the forward pass.
template <Scalar T>
class ForwardTile {
 public:
  using A = accumulate_t<T>;
  using Rows = View<const T, 2>;  // [tokens of the tile, dim]

  static Index size(const LightningShape& s) {
    return s.tile_pad * (3 * s.dim_pad + 3 * s.value_pad + s.tile_pad);
  }

  ForwardTile(const LightningShape& s, A* memory) : s_(s) {
    Slices<A> slices(memory);
    q_ = slices.take(s.tile_pad * s.dim_pad);
    k_ = slices.take(s.tile_pad * s.dim_pad);
    k_transposed_ = slices.take(s.tile_pad * s.dim_pad);
    v_ = slices.take(s.tile_pad * s.value_pad);
    v_decayed_ = slices.take(s.tile_pad * s.value_pad);
    o_ = slices.take(s.tile_pad * s.value_pad);
    p_ = slices.take(s.tile_pad * s.tile_pad);
  }

  void load(const Rows& k, const Rows& v) {
    const Index rows = linalg::round_up(k.extent(0), linalg::padding<A>);
    pack(k, rows, s_.dim_pad, k_);
    pack(v, rows, s_.value_pad, v_);
  }

  /// added = (diag(lambda^(m-1-r)) K)^T V, what the loaded tile adds to the state.
  template <bool Decays>
  void state(Index m, const Decay<A>& decay, Prefetch& ahead, A* added) {
    if constexpr (Decays) scale_rows(v_, m, s_.value_pad, [&](Index r) { return decay.power(m - 1 - r); }, v_decayed_);
    outer_products(k_, s_.dim_pad, Decays ? v_decayed_ : v_, s_.value_pad, m, ahead, added);
  }

  /// O = P V + diag(lambda^(r+1)) Q S with the loaded K and V.
  template <bool Decays>
  void output(const Rows& q, const A* state, const Decay<A>& decay, A scale, Prefetch& ahead, const View<T, 2>& o) {
    const Index m = q.extent(0), rows = linalg::round_up(m, linalg::padding<A>);
    pack(q, rows, s_.dim_pad, q_, scale);
    linalg::transpose(k_, s_.dim_pad, rows, s_.dim_pad, k_transposed_, s_.tile_pad);
    masked_scores<A, Decays>(q_, s_.dim, s_.dim_pad, k_transposed_, s_, rows, decay, ahead, p_);
    linalg::for_register_tiles<A>(rows, s_.value_pad, [&](auto& tile, Index i, Index j) {
      if (j == 0) ahead.step();
      tile.clear();
      tile.add(q_ + i * s_.dim_pad, s_.dim_pad, 1, state + j, s_.value_pad, s_.dim);
      if constexpr (Decays) tile.scale_rows(decay.powers() + i + 1);
      tile.add(p_ + i * s_.tile_pad, s_.tile_pad, 1, v_ + j, s_.value_pad, std::min(i + linalg::tile_rows, m));
      tile.store(o_ + i * s_.value_pad + j, s_.value_pad);
    });
    unpack(o_, s_.value_pad, o);
  }

 private:
  LightningShape s_;
  A *q_, *k_, *k_transposed_, *v_, *v_decayed_, *o_, *p_;
};

/// What one worker needs for the tiles of the backward pass. States are kept transposed, [value dim, dim], because the
/// products that read S need S^T.
template <Scalar T>
class BackwardTile {
 public:
  using A = accumulate_t<T>;
  using Rows = View<const T, 2>;

  static Index size(const LightningShape& s) {
    return s.tile_pad * (4 * s.dim_pad + 4 * s.value_pad + 2 * s.tile_pad) + s.dim_pad * s.value_pad;
  }

  BackwardTile(const LightningShape& s, A* memory) : s_(s) {
    Slices<A> slices(memory);
    q_ = slices.take(s.tile_pad * s.dim_pad);
    k_ = slices.take(s.tile_pad * s.dim_pad);
    k_transposed_ = slices.take(s.tile_pad * s.dim_pad);
    d_dim_ = slices.take(s.tile_pad * s.dim_pad);
    v_ = slices.take(s.tile_pad * s.value_pad);
    v_transposed_ = slices.take(s.tile_pad * s.value_pad);
    d_o_ = slices.take(s.tile_pad * s.value_pad);
    d_value_ = slices.take(s.tile_pad * s.value_pad);
    p_ = slices.take(s.tile_pad * s.tile_pad);
    d_p_ = slices.take(s.tile_pad * s.tile_pad);
    d_state_ = slices.take(s.dim_pad * s.value_pad);
  }

  void load_keys(const Rows& k, const Rows& v) {
    const Index rows = linalg::round_up(k.extent(0), linalg::padding<A>);
    pack(k, rows, s_.dim_pad, k_);
    pack(v, rows, s_.value_pad, v_);
  }
  void load_queries(const Rows& q, const Rows& d_o, A scale) {
    const Index rows = linalg::round_up(q.extent(0), linalg::padding<A>);
    pack(q, rows, s_.dim_pad, q_, scale);
    pack(d_o, rows, s_.value_pad, d_o_);
  }

  /// added = V^T diag(lambda^(m-1-r)) K, the transposed state of the loaded tile.
  template <bool Decays>
  void state(Index m, const Decay<A>& decay, Prefetch& ahead, A* added) {
    if constexpr (Decays) scale_rows(v_, m, s_.value_pad, [&](Index r) { return decay.power(m - 1 - r); }, d_value_);
    outer_products(Decays ? d_value_ : v_, s_.value_pad, k_, s_.dim_pad, m, ahead, added);
  }

  /// added = dO^T diag(lambda^(r+1)) Q, what the tile adds to the transposed cotangent of the state before it.
  template <bool Decays>
  void state_cotangent(Index m, const Decay<A>& decay, Prefetch& ahead, A* added) {
    if constexpr (Decays) scale_rows(d_o_, m, s_.value_pad, [&](Index r) { return decay.power(r + 1); }, d_value_);
    outer_products(Decays ? d_value_ : d_o_, s_.value_pad, q_, s_.dim_pad, m, ahead, added);
  }

  /// dQ = dP K + diag(lambda^(r+1)) dO S^T           P = (Q K^T) . M, dP = (dO V^T) . M
  /// dK = dP^T Q + diag(lambda^(m-1-r)) V Dst^T      S: state before the tile, Dst: cotangent of the state after it
  /// dV = P^T dO + diag(lambda^(m-1-r)) K Dst        (both [value dim, dim])
  /// Returns sum over r of (r+1) (q_r . dq_r - k_r . dk_r), the tile's share of d loss / d log lambda.
  template <bool Decays>
  double gradients(const A* state, const A* d_state, const Decay<A>& decay, A scale, Prefetch& ahead,
                   const View<T, 2>& dq, const View<T, 2>& dk, const View<T, 2>& dv) {
    const Index m = dq.extent(0), rows = linalg::round_up(m, linalg::padding<A>);
    const Index dim = s_.dim_pad, value = s_.value_pad, tile_pad = s_.tile_pad;
    linalg::transpose(k_, dim, rows, dim, k_transposed_, tile_pad);
    linalg::transpose(v_, value, rows, value, v_transposed_, tile_pad);
    linalg::transpose(d_state, dim, value, dim, d_state_, value);
    masked_scores<A, Decays>(q_, s_.dim, dim, k_transposed_, s_, rows, decay, ahead, p_);
    masked_scores<A, Decays>(d_o_, s_.value_dim, value, v_transposed_, s_, rows, decay, ahead, d_p_);

    linalg::for_register_tiles<A>(rows, dim, [&](auto& tile, Index i, Index j) {
      if (j == 0) ahead.step();
      tile.clear();
      tile.add(d_o_ + i * value, value, 1, state + j, dim, s_.value_dim);
      if constexpr (Decays) tile.scale_rows(decay.powers() + i + 1);
      tile.add(d_p_ + i * tile_pad, tile_pad, 1, k_ + j, dim, std::min(i + linalg::tile_rows, m));
      tile.store(d_dim_ + i * dim + j, dim);
    });
    double log_decay = position_weighted(q_, d_dim_, m);
    unpack(d_dim_, dim, dq, scale);

    // Row c of dP^T is column c of dP, from the diagonal down; above it there is nothing.
    A remaining[linalg::tile_rows];
    const auto set_remaining = [&](Index i) {
      for (Index r = 0; r < linalg::tile_rows; ++r) remaining[r] = i + r < m ? decay.power(m - 1 - i - r) : A{0};
    };
    linalg::for_register_tiles<A>(rows, dim, [&](auto& tile, Index i, Index j) {
      if (j == 0) ahead.step();
      tile.clear();
      tile.add(v_ + i * value, value, 1, d_state + j, dim, s_.value_dim);
      set_remaining(i);
      if constexpr (Decays) tile.scale_rows(remaining);
      tile.add(d_p_ + i * tile_pad + i, 1, tile_pad, q_ + i * dim + j, dim, std::max<Index>(m - i, 0));
      tile.store(d_dim_ + i * dim + j, dim);
    });
    log_decay -= position_weighted(k_, d_dim_, m);
    unpack(d_dim_, dim, dk);

    linalg::for_register_tiles<A>(rows, value, [&](auto& tile, Index i, Index j) {
      if (j == 0) ahead.step();
      tile.clear();
      tile.add(k_ + i * dim, dim, 1, d_state_ + j, value, s_.dim);
      set_remaining(i);
      if constexpr (Decays) tile.scale_rows(remaining);
      tile.add(p_ + i * tile_pad + i, 1, tile_pad, d_o_ + i * value + j, value, std::max<Index>(m - i, 0));
      tile.store(d_value_ + i * value + j, value);
    });
    unpack(d_value_, value, dv);
    return log_decay;
  }

 private:
  /// sum over r of (r+1) <x_r, dx_r>, in double.
  double position_weighted(const A* x, const A* dx, Index rows) const {
    double sum = 0;
    for (Index r = 0; r < rows; ++r)
      sum += static_cast<double>(r + 1) * double{simd::dot(x + r * s_.dim_pad, dx + r * s_.dim_pad, s_.dim_pad)};
    return sum;
  }

  LightningShape s_;
  A *q_, *k_, *k_transposed_, *d_dim_, *v_, *v_transposed_, *d_o_, *d_value_, *p_, *d_p_, *d_state_;
};

/// Tiles whose states are held at once: enough to keep the threads busy, few enough to stay in second-level cache.
template <Real A>
Index window_tiles(const LightningShape& s) {
  const Index state_bytes = s.dim_pad * s.value_pad * static_cast<Index>(sizeof(A));
  return std::clamp<Index>((Index{1} << 19) / state_bytes, 8, 64);
}

inline Index tile_count(Index length, Index tile) { return (length + tile - 1) / tile; }

/// Shares the heads of all sequences out among the threads when there are enough of them; otherwise visits one after the
/// other and lets the threads share its tiles. Either way every number is computed by the same operations.
/// run(job, slot, tile_worker): slot numbers the buffers of a head, tile_worker(inner) those of a tile.
template <class Run>
void for_each_head(Index jobs, Run&& run) {
  const int threads = max_threads();
  if (jobs >= threads && threads > 1)
    parallel_for(jobs, 1, [&](Index begin, Index end, int worker) {
      for (Index job = begin; job < end; ++job) run(job, worker, [worker](int) { return worker; });
    });
  else
    for (Index job = 0; job < jobs; ++job) run(job, 0, [](int inner) { return inner; });
}

/// A [rows, cols] state into a padded buffer, zero when the view is absent.
template <Real A>
void load_state(const View<const A, 4>& states, Index sequence, Index head, bool transposed, Index rows_pad, Index cols_pad,
                A* to) {
  std::fill_n(to, rows_pad * cols_pad, A{0});
  if (states.data() == nullptr) return;
  auto state = states[sequence][head];
  if (transposed) state = state.transposed(0, 1);
  for (Index i = 0; i < state.extent(0); ++i)
    for (Index j = 0; j < state.extent(1); ++j) to[i * cols_pad + j] = state(i, j);
}

template <Real A>
void store_state(const A* from, bool transposed, Index cols_pad, const View<A, 4>& states, Index sequence, Index head) {
  if (states.data() == nullptr) return;
  auto state = states[sequence][head];
  if (transposed) state = state.transposed(0, 1);
  for (Index i = 0; i < state.extent(0); ++i)
    for (Index j = 0; j < state.extent(1); ++j) state(i, j) = from[i * cols_pad + j];
}

/// The tiles of one sequence, visited window by window.
struct Tiles {
  Index length, tile, first = 0, count = 0;

  Index begin(Index t) const { return (first + t) * tile; }  ///< negative before the first tile
  Index end(Index t) const { return std::min((first + t + 1) * tile, length); }
  Index tokens(Index t) const { return end(t) - begin(t); }

  /// body(worker's tile, t) for every tile of the window, shared out among the threads.
  template <class Tile, class TileWorker, class Body>
  void for_each(const LightningShape& s, typename Tile::A* memory, const TileWorker& tile_worker, Body&& body) const {
    parallel_for(count, 1, [&](Index from, Index to, int worker) {
      Tile tile_(s, memory + tile_worker(worker) * Tile::size(s));
      for (Index t = from; t < to; ++t) body(tile_, t);
    });
  }
};

/// Forward pass over one head of one sequence. With threads to share tiles among, first what every tile of a window adds
/// to the state, then the states, then the outputs. Alone, tile after tile: each token is loaded once. The bits agree.
template <bool Decays, Scalar T, class TileWorker>
void forward_head(const View<const T, 2>& q, const View<const T, 2>& k, const View<const T, 2>& v,
                  const View<T, 2>& o, const LightningShape& s, const Decay<accumulate_t<T>>& decay,
                  accumulate_t<T> scale, accumulate_t<T>* state, accumulate_t<T>* slots, accumulate_t<T>* tile_memory,
                  const TileWorker& tile_worker) {
  const Index tiles = tile_count(q.extent(0), s.tile), state_size = s.dim_pad * s.value_pad;
  const bool alone = max_threads() == 1;
  const Index window = alone ? 1 : window_tiles<accumulate_t<T>>(s);
  Tiles w{q.extent(0), s.tile};
  const auto rows = [&](const auto& x, Index t) { return x.slice(0, w.begin(t), w.end(t)); };
  for (w.first = 0; w.first < tiles; w.first += window) {
    w.count = std::min(window, tiles - w.first);
    const auto for_each_tile = [&](auto&& body) { w.for_each<ForwardTile<T>>(s, tile_memory, tile_worker, body); };
    for_each_tile([&](ForwardTile<T>& tile, Index t) {
      Prefetch ahead(16);
      if (const Index next = t + 1; w.begin(next) < w.length) {
        ahead.add(rows(k, next)), ahead.add(rows(v, next));
        if (alone) ahead.add(rows(q, next)), ahead.add(rows(o, next));
      }
      tile.load(rows(k, t), rows(v, t));
      if (alone) tile.template output<Decays>(rows(q, t), state, decay, scale, ahead, rows(o, t));
      tile.template state<Decays>(w.tokens(t), decay, ahead, slots + t * state_size);
    });
    scan_states(state, slots, state_size, w.count, false, decay, [&](Index t) { return w.tokens(t); });
    if (!alone)
      for_each_tile([&](ForwardTile<T>& tile, Index t) {
        Prefetch ahead(16);
        if (const Index next = t + 1; w.begin(next) < w.length) ahead.add(rows(q, next)), ahead.add(rows(o, next));
        tile.load(rows(k, t), rows(v, t));
        tile.template output<Decays>(rows(q, t), slots + t * state_size, decay, scale, ahead, rows(o, t));
      });
  }
}

/// Backward pass over one head of one sequence. `state`: the initial state, transposed; `d_state`: the cotangent of the
/// final state, transposed, becomes that of the initial one. `boundaries`: room for a state per window. Returns
/// d loss / d log lambda.
///
/// States are recomputed, not saved: one sweep finds the state at every window, then windows are visited last to first.
/// The slope gradient is summed tile by tile (token r of a tile counts r + 1, the tile's last state its length): the sum
/// over absolute positions cancels badly in long sequences.
template <bool Decays, Scalar T, class TileWorker>
double backward_head(const View<const T, 2>& q, const View<const T, 2>& k, const View<const T, 2>& v,
                     const View<const T, 2>& d_o, const View<T, 2>& dq, const View<T, 2>& dk, const View<T, 2>& dv,
                     const LightningShape& s, const Decay<accumulate_t<T>>& decay, accumulate_t<T> scale,
                     accumulate_t<T>* state, accumulate_t<T>* d_state, accumulate_t<T>* boundaries,
                     accumulate_t<T>* slots, accumulate_t<T>* d_slots, double* partial, accumulate_t<T>* tile_memory,
                     const TileWorker& tile_worker) {
  using A = accumulate_t<T>;
  const Index tiles = tile_count(q.extent(0), s.tile), state_size = s.dim_pad * s.value_pad;
  const Index window = window_tiles<A>(s), windows = tile_count(tiles, window);
  const bool alone = max_threads() == 1;
  Tiles w{q.extent(0), s.tile};
  const auto rows = [&](const auto& x, Index t) { return x.slice(0, w.begin(t), w.end(t)); };
  const auto tokens = [&](Index t) { return w.tokens(t); };
  const auto for_each_tile = [&](auto&& body) { w.for_each<BackwardTile<T>>(s, tile_memory, tile_worker, body); };
  const auto enter = [&](Index i) {
    w.first = i * window;
    w.count = std::min(window, tiles - w.first);
  };
  const auto states_of_window = [&] {
    for_each_tile([&](BackwardTile<T>& tile, Index t) {
      Prefetch ahead(8);
      if (const Index next = t + 1; w.begin(next) < w.length) ahead.add(rows(k, next)), ahead.add(rows(v, next));
      tile.load_keys(rows(k, t), rows(v, t));
      tile.template state<Decays>(w.tokens(t), decay, ahead, slots + t * state_size);
    });
    scan_states(state, slots, state_size, w.count, false, decay, tokens);
  };
  const auto gradients_of_tile = [&](BackwardTile<T>& tile, Index t, const A* d_after, Prefetch& ahead) {
    const A* before = slots + t * state_size;
    const A* after = t + 1 < w.count ? before + state_size : state;
    partial[t] = static_cast<double>(w.tokens(t)) * double{simd::dot(after, d_after, state_size)} +
                 tile.template gradients<Decays>(before, d_after, decay, scale, ahead, rows(dq, t), rows(dk, t),
                                                 rows(dv, t));
  };

  for (Index i = 0; i < windows; ++i) {
    enter(i);
    std::copy_n(state, state_size, boundaries + i * state_size);
    states_of_window();
  }
  double log_decay = 0;
  for (Index i = windows; i-- > 0;) {
    enter(i);
    if (i + 1 < windows) {  // the last window's states are still there
      std::copy_n(boundaries + i * state_size, state_size, state);
      states_of_window();
    }
    if (alone) {
      BackwardTile<T> tile(s, tile_memory + tile_worker(0) * BackwardTile<T>::size(s));
      for (Index t = w.count; t-- > 0;) {
        Prefetch ahead(16);
        if (const Index next = t - 1; w.begin(next) >= 0) {
          ahead.add(rows(k, next)), ahead.add(rows(v, next)), ahead.add(rows(q, next)), ahead.add(rows(d_o, next));
          ahead.add(rows(dq, next)), ahead.add(rows(dk, next)), ahead.add(rows(dv, next));
        }
        tile.load_keys(rows(k, t), rows(v, t));
        tile.load_queries(rows(q, t), rows(d_o, t), scale);
        gradients_of_tile(tile, t, d_state, ahead);
        tile.template state_cotangent<Decays>(w.tokens(t), decay, ahead, d_slots);
        scan_states(d_state, d_slots, state_size, 1, true, decay, [&](Index) { return w.tokens(t); });
      }
    } else {
      for_each_tile([&](BackwardTile<T>& tile, Index t) {
        Prefetch ahead(8);
        if (const Index next = t + 1; w.begin(next) < w.length) ahead.add(rows(q, next)), ahead.add(rows(d_o, next));
        tile.load_queries(rows(q, t), rows(d_o, t), scale);
        tile.template state_cotangent<Decays>(w.tokens(t), decay, ahead, d_slots + t * state_size);
      });
      scan_states(d_state, d_slots, state_size, w.count, true, decay, tokens);
      for_each_tile([&](BackwardTile<T>& tile, Index t) {
        Prefetch ahead(16);
        if (const Index next = t + 1; w.begin(next) < w.length)
          ahead.add(rows(dq, next)), ahead.add(rows(dk, next)), ahead.add(rows(dv, next));
        tile.load_keys(rows(k, t), rows(v, t));
        tile.load_queries(rows(q, t), rows(d_o, t), scale);
        gradients_of_tile(tile, t, d_slots + t * state_size, ahead);
      });
    }
    for (Index t = w.count; t-- > 0;) log_decay += partial[t];
  }
  return log_decay;
}

/// Checks what both passes share and returns the padded shape.
template <Scalar T>
LightningShape check_problem(const char* function, const View<const T, 4>& q, const View<const T, 4>& k,
                             const View<const T, 4>& v, const View<const double, 1>& slopes,
                             const LightningOptions& options) {
  const Index batch = q.extent(0), heads = q.extent(1), length = q.extent(2), dim = q.extent(3);
  check_shape(function, "k", k.shape(), q.shape(), "same as q");
  check_shape(function, "v", v.shape(), {batch, heads, length, v.extent(3)}, "same batch, heads and length as q");
  check_shape(function, "slopes", slopes.shape(), {heads}, "one per head");
  for (Index h = 0; h < heads; ++h)
    check_argument(slopes[h] >= 0 && std::isfinite(slopes[h]), function, message("slopes[", h, "]"),
                   "finite and not negative", slopes[h]);
  check_argument(options.tile >= 1, function, "tile", "at least 1", options.tile);
  check_argument(std::isfinite(options.scale), function, "scale", "finite", options.scale);
  Index sequences = batch;
  if (const auto& offsets = options.offsets; offsets.data() != nullptr) {
    check_argument(batch == 1, function, "the batch of packed sequences", "1", batch);
    check_argument(offsets.extent(0) >= 1 && offsets[0] == 0, function, "offsets[0]", "0",
                   offsets.extent(0) >= 1 ? message(offsets[0]) : "nothing");
    sequences = offsets.extent(0) - 1;
    for (Index i = 0; i < sequences; ++i)
      check_argument(offsets[i] <= offsets[i + 1], function, message("offsets[", i + 1, "]"),
                     message("at least offsets[", i, "] = ", offsets[i]), offsets[i + 1]);
    check_argument(offsets[sequences] == length, function, "the last offset", message("the length ", length),
                   offsets[sequences]);
  }
  using A = accumulate_t<T>;
  const Index tile = std::min(options.tile, std::max<Index>(length, 1));
  constexpr Index pad = linalg::padding<A>;
  return {sequences,  heads, length, dim, v.extent(3), tile, linalg::round_up(tile, pad), linalg::round_up(dim, pad),
          linalg::round_up(v.extent(3), pad)};
}

template <class A>
void check_state(const char* function, const char* argument, const View<A, 4>& state, const LightningShape& s) {
  if (state.data() != nullptr)
    check_shape(function, argument, state.shape(), {s.sequences, s.heads, s.dim, s.value_dim},
                "one state per sequence and head");
}

template <class Output, class Input>
void check_separate(const char* function, const char* output_name, const Output& output, const char* input_name,
                    const Input& input) {
  require(!overlaps(output, input), function, output_name, " overlaps ", input_name,
          "; outputs need memory of their own");
}

/// Calls f.template operator()<Decays>() for a slope, so that heads that never forget skip the decay products.
template <class F>
decltype(auto) with_decay(double slope, F&& f) {
  if (slope == 0) return f.template operator()<false>();
  return f.template operator()<true>();
}

}  // namespace detail

// ---- Entry points -----------------------------------------------------------------------------------------------

/// Forward pass into the caller's memory. Any split of a sequence into calls that hand the state on gives the same
/// result up to rounding (chunked prefill).
///
/// q, k: [batch, heads, length, dim]; v, o: [batch, heads, length, value dim]; slopes: [heads], not negative.
/// o must not overlap an input. Allocates nothing once `workspace` has grown, which does not depend on the length.
/// Cost: length (tile (dim + value dim) + 4 dim value_dim) flops per head. Threads share heads, or tiles when heads are
/// few; the bits do not depend on their number.
/// Throws InvalidArgument on shapes that do not fit, negative or non-finite slopes, bad offsets, overlapping outputs.
template <class Q>
void lightning_forward(const Q& q_in, In<Q, 4> k, In<Q, 4> v, View<const double, 1> slopes, Out<Q, 4> o,
                       LightningStates<accumulate_t<scalar_t<Q>>> states, Workspace& workspace,
                       const LightningOptions& options = {}) {
  using T = scalar_t<Q>;
  using A = accumulate_t<T>;
  constexpr const char* function = "lightning_attention";
  const In<Q, 4> q = q_in;
  const auto s = detail::check_problem<T>(function, q, k, v, slopes, options);
  check_shape(function, "o", o.shape(), v.shape(), "same as v");
  detail::check_state(function, "the initial state", states.initial, s);
  detail::check_state(function, "the final state", states.final, s);
  detail::check_separate(function, "o", o, "q", q);
  detail::check_separate(function, "o", o, "k", k);
  detail::check_separate(function, "o", o, "v", v);
  require(!overlaps(states.final, states.initial) || same_memory(states.final, states.initial), function,
          "the final state overlaps the initial state without being the same");

  const Index state_size = s.dim_pad * s.value_pad, window = detail::window_tiles<A>(s);
  const Index head_size = linalg::round_up(detail::Decay<A>::size(s), 16) + (1 + window) * state_size;
  const Index tile_size = detail::ForwardTile<T>::size(s), threads = max_threads();
  A* const memory = workspace.reserve<A>(threads * (head_size + tile_size));

  detail::for_each_head(s.sequences * s.heads, [&](Index job, int slot, const auto& tile_worker) {
    const Index i = job / s.heads, h = job % s.heads;
    const auto [batch, begin, end] = detail::sequence(options.offsets, s.length, i);
    const auto head = [&, b = batch, from = begin, to = end](const auto& x) { return x[b][h].slice(0, from, to); };
    detail::Slices<A> slices(memory + slot * head_size);
    A *state = slices.take(state_size), *slots = slices.take(window * state_size);
    const detail::Decay<A> decay(slopes[h], s, slices.take(detail::Decay<A>::size(s)));
    detail::load_state(states.initial, i, h, false, s.dim_pad, s.value_pad, state);
    detail::with_decay(slopes[h], [&]<bool Decays> {
      detail::forward_head<Decays, T>(head(q), head(k), head(v), head(o), s, decay, static_cast<A>(options.scale), state,
                                      slots, memory + threads * head_size, tile_worker);
    });
    detail::store_state(state, false, s.value_pad, states.final, i, h);
  });
}

/// Lightning attention with its final state, from an optional initial state.
template <class Q>
LightningResult<scalar_t<Q>> lightning_attention_with_state(const Q& q_in, In<Q, 4> k, In<Q, 4> v,
                                                            View<const double, 1> slopes,
                                                            View<const accumulate_t<scalar_t<Q>>, 4> initial = {},
                                                            const LightningOptions& options = {}) {
  using T = scalar_t<Q>;
  const In<Q, 4> q = q_in;
  const Index sequences = options.offsets.data() ? std::max<Index>(options.offsets.extent(0) - 1, 0) : q.extent(0);
  LightningResult<T> result{Tensor<T>::uninitialized(v.shape()),
                            Tensor<accumulate_t<T>>({sequences, q.extent(1), q.extent(3), v.extent(3)})};
  Workspace workspace;
  lightning_forward(q, k, v, slopes, result.output.template view<4>(), {initial, result.state}, workspace, options);
  return result;
}

/// Lightning attention. q, k: [batch, heads, length, dim]; v and the result: [batch, heads, length, value dim].
/// See lightning_forward for costs and errors.
template <class Q>
Tensor<scalar_t<Q>> lightning_attention(const Q& q_in, In<Q, 4> k, In<Q, 4> v, View<const double, 1> slopes,
                                        const LightningOptions& options = {}) {
  using T = scalar_t<Q>;
  auto output = Tensor<T>::uninitialized(v.shape());
  Workspace workspace;
  lightning_forward(q_in, k, v, slopes, output.template view<4>(), {}, workspace, options);
  return output;
}

/// Gradients of <o, d_o> + <S_N, d_final> with respect to q, k, v, the initial state and the slopes.
///
/// d_o: as o. initial, d_final: [sequences, heads, dim, value dim] or left out (zero). Outputs must not overlap inputs.
/// Nothing but the inputs of the forward pass is needed. Cost: length (2.5 tile (dim + value dim) + 10 dim value_dim)
/// flops per head, and 2 dim value_dim more past one window (at most 64 tiles). Workspace: one state per window and
/// thread beyond what the forward pass takes.
/// Slope gradients in float carry a relative error of about 1e-5. Throws as lightning_forward.
template <class Q>
void lightning_backward(const Q& q_in, In<Q, 4> k, In<Q, 4> v, View<const double, 1> slopes, In<Q, 4> d_o,
                        View<const accumulate_t<scalar_t<Q>>, 4> initial,
                        View<const accumulate_t<scalar_t<Q>>, 4> d_final,
                        const LightningGradientViews<scalar_t<Q>>& gradients, Workspace& workspace,
                        const LightningOptions& options = {}) {
  using T = scalar_t<Q>;
  using A = accumulate_t<T>;
  constexpr const char* function = "lightning_backward";
  const In<Q, 4> q = q_in;
  const auto s = detail::check_problem<T>(function, q, k, v, slopes, options);
  check_shape(function, "d_o", d_o.shape(), v.shape(), "same as v");
  check_shape(function, "the gradient of q", gradients.q.shape(), q.shape(), "same as q");
  check_shape(function, "the gradient of k", gradients.k.shape(), k.shape(), "same as k");
  check_shape(function, "the gradient of v", gradients.v.shape(), v.shape(), "same as v");
  detail::check_state(function, "the initial state", initial, s);
  detail::check_state(function, "the cotangent of the final state", d_final, s);
  detail::check_state(function, "the gradient of the initial state", gradients.initial_state, s);
  if (gradients.slopes.data() != nullptr)
    check_shape(function, "the gradient of slopes", gradients.slopes.shape(), {s.heads}, "one per head");
  const auto check_output = [&](const char* name, const auto& output) {
    detail::check_separate(function, name, output, "q", q);
    detail::check_separate(function, name, output, "k", k);
    detail::check_separate(function, name, output, "v", v);
    detail::check_separate(function, name, output, "d_o", d_o);
  };
  check_output("the gradient of q", gradients.q);
  check_output("the gradient of k", gradients.k);
  check_output("the gradient of v", gradients.v);
  require(!overlaps(gradients.q, gradients.k) && !overlaps(gradients.q, gradients.v) &&
              !overlaps(gradients.k, gradients.v),
          function, "the gradients of q, k and v overlap");

  const Index state_size = s.dim_pad * s.value_pad, window = detail::window_tiles<A>(s);
  const Index windows = detail::tile_count(detail::tile_count(s.length, s.tile), window);
  constexpr Index per_double = sizeof(double) / sizeof(A);
  const Index head_size = linalg::round_up(detail::Decay<A>::size(s), 16) + (2 + 2 * window + windows) * state_size +
                          linalg::round_up(window * per_double, 16);
  const Index jobs = s.sequences * s.heads;
  const Index tile_size = linalg::round_up(detail::BackwardTile<T>::size(s), 16), threads = max_threads();
  const Index job_size = linalg::round_up(jobs * per_double, 16);
  A* const memory = workspace.reserve<A>(threads * (head_size + tile_size) + job_size);
  auto* const log_decay = reinterpret_cast<double*>(memory + threads * (head_size + tile_size));

  detail::for_each_head(jobs, [&](Index job, int slot, const auto& tile_worker) {
    const Index i = job / s.heads, h = job % s.heads;
    const auto [batch, begin, end] = detail::sequence(options.offsets, s.length, i);
    const auto head = [&, b = batch, from = begin, to = end](const auto& x) { return x[b][h].slice(0, from, to); };
    detail::Slices<A> slices(memory + slot * head_size);
    A *state = slices.take(state_size), *d_state = slices.take(state_size);
    A *slots = slices.take(window * state_size), *d_slots = slices.take(window * state_size);
    A* boundaries = slices.take(windows * state_size);
    auto* partial = reinterpret_cast<double*>(slices.take(linalg::round_up(window * per_double, 16)));
    const detail::Decay<A> decay(slopes[h], s, slices.take(detail::Decay<A>::size(s)));
    detail::load_state(initial, i, h, true, s.value_pad, s.dim_pad, state);
    detail::load_state(d_final, i, h, true, s.value_pad, s.dim_pad, d_state);
    detail::with_decay(slopes[h], [&]<bool Decays> {
      log_decay[job] = detail::backward_head<Decays, T>(
          head(q), head(k), head(v), head(d_o), head(gradients.q), head(gradients.k), head(gradients.v), s, decay,
          static_cast<A>(options.scale), state, d_state, boundaries, slots, d_slots, partial,
          memory + threads * head_size, tile_worker);
    });
    detail::store_state(d_state, true, s.dim_pad, gradients.initial_state, i, h);
  });
  if (gradients.slopes.data() != nullptr)
    for (Index h = 0; h < s.heads; ++h) {
      gradients.slopes[h] = 0;
      for (Index i = 0; i < s.sequences; ++i) gradients.slopes[h] -= log_decay[i * s.heads + h];
    }
}

/// All gradients of lightning attention as new tensors; see lightning_backward.
template <class Q>
LightningGradients<scalar_t<Q>> lightning_gradients(const Q& q_in, In<Q, 4> k, In<Q, 4> v, View<const double, 1> slopes,
                                                    In<Q, 4> d_o,
                                                    View<const accumulate_t<scalar_t<Q>>, 4> initial = {},
                                                    View<const accumulate_t<scalar_t<Q>>, 4> d_final = {},
                                                    const LightningOptions& options = {}) {
  using T = scalar_t<Q>;
  const In<Q, 4> q = q_in;
  const Index sequences = options.offsets.data() ? std::max<Index>(options.offsets.extent(0) - 1, 0) : q.extent(0);
  LightningGradients<T> grad{Tensor<T>::uninitialized(q.shape()), Tensor<T>::uninitialized(k.shape()),
                             Tensor<T>::uninitialized(v.shape()),
                             Tensor<accumulate_t<T>>({sequences, q.extent(1), q.extent(3), v.extent(3)}),
                             Vector<double>::Zero(q.extent(1))};
  Workspace workspace;
  lightning_backward(q, k, v, slopes, d_o, initial, d_final,
                     {grad.q, grad.k, grad.v, grad.initial_state, grad.slopes}, workspace, options);
  return grad;
}

/// One token: S <- lambda S + k v^T, then o = scale S^T q, in one pass over the state.
///
/// q, k: [batch, heads, dim]; v, o: [batch, heads, value dim]; state: [batch, heads, dim, value dim], read and
/// overwritten. Cost: 4 dim value_dim flops and one read and write of the state per head: bound by memory, not by the
/// number of tokens seen. Allocates nothing. o must not overlap an input.
/// Throws InvalidArgument on shapes that do not fit, negative or non-finite slopes, overlapping outputs.
template <class Q>
void lightning_decode_step(const Q& q_in, In<Q, 3> k, In<Q, 3> v, View<const double, 1> slopes,
                           View<accumulate_t<scalar_t<Q>>, 4> state, Out<Q, 3> o, double scale = 1) {
  using T = scalar_t<Q>;
  using A = accumulate_t<T>;
  constexpr const char* function = "lightning_decode_step";
  const In<Q, 3> q = q_in;
  const Index batch = q.extent(0), heads = q.extent(1), dim = q.extent(2), value_dim = v.extent(2);
  check_shape(function, "k", k.shape(), q.shape(), "same as q");
  check_shape(function, "v", v.shape(), {batch, heads, value_dim}, "same batch and heads as q");
  check_shape(function, "o", o.shape(), v.shape(), "same as v");
  check_shape(function, "slopes", slopes.shape(), {heads}, "one per head");
  check_shape(function, "state", state.shape(), {batch, heads, dim, value_dim}, "one per batch entry and head");
  for (Index h = 0; h < heads; ++h)
    check_argument(slopes[h] >= 0 && std::isfinite(slopes[h]), function, message("slopes[", h, "]"),
                   "finite and not negative", slopes[h]);
  detail::check_separate(function, "o", o, "q", q);
  detail::check_separate(function, "o", o, "k", k);
  detail::check_separate(function, "o", o, "v", v);

  const Index grain = std::max<Index>(1, (Index{1} << 15) / std::max<Index>(1, dim * value_dim));
  parallel_for(batch * heads, grain, [&](Index begin, Index end) {
    constexpr Index width = simd::width<A>, chunk = 4 * width;
    for (Index job = begin; job < end; ++job) {
      const Index b = job / heads, h = job % heads;
      const A lambda = static_cast<A>(std::exp(-slopes[h]));
      const auto s = state[b][h];
      for (Index e = 0; e < value_dim; e += chunk) {
        const Index count = std::min(chunk, value_dim - e);
        alignas(64) A value[chunk] = {}, output[chunk] = {};
        for (Index j = 0; j < count; ++j) value[j] = to_float(v(b, h, e + j));
        if (count == chunk && s.stride(1) == 1) {
          simd::batch<A> sum[4], lanes[4];
          for (int j = 0; j < 4; ++j) sum[j] = simd::batch<A>(A{0}), lanes[j] = simd::load(value + j * width);
          const simd::batch<A> decay(lambda);
          for (Index d = 0; d < dim; ++d) {
            const simd::batch<A> key(static_cast<A>(to_float(k(b, h, d))));
            const simd::batch<A> query(static_cast<A>(to_float(q(b, h, d))));
            A* row = s.data() + d * s.stride(0) + e;
            for (int j = 0; j < 4; ++j) {
              const auto next = simd::fma(key, lanes[j], decay * simd::load(row + j * width));
              simd::store(row + j * width, next);
              sum[j] = simd::fma(query, next, sum[j]);
            }
          }
          for (int j = 0; j < 4; ++j) simd::store(output + j * width, sum[j]);
        } else {
          for (Index d = 0; d < dim; ++d) {
            const A key = to_float(k(b, h, d)), query = to_float(q(b, h, d));
            for (Index j = 0; j < count; ++j) {
              A& entry = s(d, e + j);
              entry = lambda * entry + key * value[j];
              output[j] += query * entry;
            }
          }
        }
        for (Index j = 0; j < count; ++j) o(b, h, e + j) = from_float<T>(static_cast<A>(scale) * output[j]);
      }
    }
  });
}

}  // namespace ashlar::attention
