// The tile passes of lightning attention: how one head of one sequence is computed. Private to attention/lightning.hpp.
//
// Roof: fused multiply-adds. Every product runs on register tiles over operands packed into cache; rows are packed (and
// widened from 16 bits) once a pass.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/linalg/small_product.hpp"

namespace ashlar::attention::detail {

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

/// to[r][j] = scale from[r][j] in the accumulation type, zero in the padding.
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
/// `state` goes from before the first to after the last. Tiles are visited first to last, or backwards.
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
                   const Decay<A>& decay, A* p) {
  for (Index i = 0; i < rows; i += linalg::tile_rows) {
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
void outer_products(const A* a, Index a_pad, const A* b, Index b_pad, Index rows, A* added) {
  linalg::for_register_tiles<A>(a_pad, b_pad, [&](auto& tile, Index i, Index j) {
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
  void state(Index m, const Decay<A>& decay, A* added) {
    if constexpr (Decays) scale_rows(v_, m, s_.value_pad, [&](Index r) { return decay.power(m - 1 - r); }, v_decayed_);
    outer_products(k_, s_.dim_pad, Decays ? v_decayed_ : v_, s_.value_pad, m, added);
  }

  /// O = P V + diag(lambda^(r+1)) Q S with the loaded K and V.
  template <bool Decays>
  void output(const Rows& q, const A* state, const Decay<A>& decay, A scale, const View<T, 2>& o) {
    const Index m = q.extent(0), rows = linalg::round_up(m, linalg::padding<A>);
    pack(q, rows, s_.dim_pad, q_, scale);
    linalg::transpose(k_, s_.dim_pad, rows, s_.dim_pad, k_transposed_, s_.tile_pad);
    masked_scores<A, Decays>(q_, s_.dim, s_.dim_pad, k_transposed_, s_, rows, decay, p_);
    linalg::for_register_tiles<A>(rows, s_.value_pad, [&](auto& tile, Index i, Index j) {
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
  void state(Index m, const Decay<A>& decay, A* added) {
    if constexpr (Decays) scale_rows(v_, m, s_.value_pad, [&](Index r) { return decay.power(m - 1 - r); }, d_value_);
    outer_products(Decays ? d_value_ : v_, s_.value_pad, k_, s_.dim_pad, m, added);
  }

  /// added = dO^T diag(lambda^(r+1)) Q, what the tile adds to the transposed cotangent of the state before it.
  template <bool Decays>
  void state_cotangent(Index m, const Decay<A>& decay, A* added) {
    if constexpr (Decays) scale_rows(d_o_, m, s_.value_pad, [&](Index r) { return decay.power(r + 1); }, d_value_);
    outer_products(Decays ? d_value_ : d_o_, s_.value_pad, q_, s_.dim_pad, m, added);
  }

  /// dQ = dP K + diag(lambda^(r+1)) dO S^T           P = (Q K^T) . M, dP = (dO V^T) . M
  /// dK = dP^T Q + diag(lambda^(m-1-r)) V Dst^T      S: state before the tile, Dst: cotangent of the state after it
  /// dV = P^T dO + diag(lambda^(m-1-r)) K Dst        (both [value dim, dim])
  /// Returns sum over r of (r+1) (q_r . dq_r - k_r . dk_r), the tile's share of d loss / d log lambda.
  template <bool Decays>
  double gradients(const A* state, const A* d_state, const Decay<A>& decay, A scale, const View<T, 2>& dq,
                   const View<T, 2>& dk, const View<T, 2>& dv) {
    const Index m = dq.extent(0), rows = linalg::round_up(m, linalg::padding<A>);
    const Index dim = s_.dim_pad, value = s_.value_pad, tile_pad = s_.tile_pad;
    linalg::transpose(k_, dim, rows, dim, k_transposed_, tile_pad);
    linalg::transpose(v_, value, rows, value, v_transposed_, tile_pad);
    linalg::transpose(d_state, dim, value, dim, d_state_, value);
    masked_scores<A, Decays>(q_, s_.dim, dim, k_transposed_, s_, rows, decay, p_);
    masked_scores<A, Decays>(d_o_, s_.value_dim, value, v_transposed_, s_, rows, decay, d_p_);

    linalg::for_register_tiles<A>(rows, dim, [&](auto& tile, Index i, Index j) {
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

  Index begin(Index t) const { return (first + t) * tile; }
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
/// Without an `o` only the state advances.
template <bool Decays, Scalar T, class TileWorker>
void forward_head(const View<const T, 2>& q, const View<const T, 2>& k, const View<const T, 2>& v,
                  const View<T, 2>& o, const LightningShape& s, const Decay<accumulate_t<T>>& decay,
                  accumulate_t<T> scale, accumulate_t<T>* state, accumulate_t<T>* slots, accumulate_t<T>* tile_memory,
                  const TileWorker& tile_worker) {
  const Index tiles = tile_count(q.extent(0), s.tile), state_size = s.dim_pad * s.value_pad;
  const bool alone = max_threads() == 1, outputs = o.data() != nullptr;
  const Index window = alone ? 1 : window_tiles<accumulate_t<T>>(s);
  Tiles w{q.extent(0), s.tile};
  const auto rows = [&](const auto& x, Index t) { return x.slice(0, w.begin(t), w.end(t)); };
  for (w.first = 0; w.first < tiles; w.first += window) {
    w.count = std::min(window, tiles - w.first);
    const auto for_each_tile = [&](auto&& body) { w.for_each<ForwardTile<T>>(s, tile_memory, tile_worker, body); };
    for_each_tile([&](ForwardTile<T>& tile, Index t) {
      tile.load(rows(k, t), rows(v, t));
      if (alone && outputs) tile.template output<Decays>(rows(q, t), state, decay, scale, rows(o, t));
      tile.template state<Decays>(w.tokens(t), decay, slots + t * state_size);
    });
    scan_states(state, slots, state_size, w.count, false, decay, [&](Index t) { return w.tokens(t); });
    if (!alone && outputs)
      for_each_tile([&](ForwardTile<T>& tile, Index t) {
        tile.load(rows(k, t), rows(v, t));
        tile.template output<Decays>(rows(q, t), slots + t * state_size, decay, scale, rows(o, t));
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
      tile.load_keys(rows(k, t), rows(v, t));
      tile.template state<Decays>(w.tokens(t), decay, slots + t * state_size);
    });
    scan_states(state, slots, state_size, w.count, false, decay, tokens);
  };
  const auto gradients_of_tile = [&](BackwardTile<T>& tile, Index t, const A* d_after) {
    const A* before = slots + t * state_size;
    const A* after = t + 1 < w.count ? before + state_size : state;
    partial[t] = static_cast<double>(w.tokens(t)) * double{simd::dot(after, d_after, state_size)} +
                 tile.template gradients<Decays>(before, d_after, decay, scale, rows(dq, t), rows(dk, t),
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
        tile.load_keys(rows(k, t), rows(v, t));
        tile.load_queries(rows(q, t), rows(d_o, t), scale);
        gradients_of_tile(tile, t, d_state);
        tile.template state_cotangent<Decays>(w.tokens(t), decay, d_slots);
        scan_states(d_state, d_slots, state_size, 1, true, decay, [&](Index) { return w.tokens(t); });
      }
    } else {
      for_each_tile([&](BackwardTile<T>& tile, Index t) {
        tile.load_queries(rows(q, t), rows(d_o, t), scale);
        tile.template state_cotangent<Decays>(w.tokens(t), decay, d_slots + t * state_size);
      });
      scan_states(d_state, d_slots, state_size, w.count, true, decay, tokens);
      for_each_tile([&](BackwardTile<T>& tile, Index t) {
        tile.load_keys(rows(k, t), rows(v, t));
        tile.load_queries(rows(q, t), rows(d_o, t), scale);
        gradients_of_tile(tile, t, d_slots + t * state_size);
      });
    }
    for (Index t = w.count; t-- > 0;) log_decay += partial[t];
  }
  return log_decay;
}

}  // namespace ashlar::attention::detail
