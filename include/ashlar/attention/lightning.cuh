// Lightning attention on the device: the tile pass of attention/lightning.hpp, one thread block per sequence and head.
//
//   lightning_forward(q, k, v, slopes, o, {initial, final}, stream);      // all device views
//
// The bodies are written against a Block, so the same index arithmetic runs on the host under HostBlock; the launches
// need nvcc. State and sums are float (double for double). Slopes are not checked: they live on the device.
#pragma once

#include <cmath>
#include <limits>

#include "ashlar/core/block.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/view.hpp"

#if defined(__CUDACC__)
#include "ashlar/core/block.cuh"
#endif

namespace ashlar::attention {

/// As LightningStates, on the device: [batch, heads, dim, value dim] or left out.
template <Real T>
struct DeviceLightningStates {
  View<const T, 4, device> initial = {};
  View<T, 4, device> final = {};
};

namespace detail {

/// lambda^i for 0 <= i <= tile in shared memory, and lambda^m - 1 without cancellation.
template <class A, class Block>
ASHLAR_HOST_DEVICE auto shared_powers(Block& block, double slope, Index tile) {
  auto powers = block.template shared<A>(tile + 1);
  block.for_each(tile + 1, [&](Index i) {
    const double power = exp(-slope * static_cast<double>(i));
    powers[i] = power < std::numeric_limits<A>::min() ? A{0} : static_cast<A>(power);
  });
  return powers;
}

/// Rows begin .. begin+m-1 of x[b][h] into shared memory, [m, cols] row-major.
template <class A, class Block, class Rows, class Tile>
ASHLAR_HOST_DEVICE void load_rows(Block& block, const Rows& x, Index begin, Index m, Index first_col, Index cols, A scale,
                                  const Tile& tile) {
  block.for_each(m * cols, [&](Index i) {
    tile[i] = scale * static_cast<A>(to_float(x(begin + i / cols, first_col + i % cols)));
  });
}

template <class A, class Block, class State, class Tile>
ASHLAR_HOST_DEVICE void load_state(Block& block, const State& states, Index b, Index h, Index dim, Index first_col,
                                   Index cols, const Tile& tile) {
  block.for_each(dim * cols, [&](Index i) {
    tile[i] = states.data() != nullptr ? states(b, h, i / cols, first_col + i % cols) : A{0};
  });
}

/// O = P V + diag(lambda^(r+1)) Q S over the tiles of a sequence. A block owns `slice` columns of V, S and O.
template <Scalar T>
struct LightningForwardBody {
  using A = accumulate_t<T>;
  View<const T, 4, device> q, k, v;
  View<const double, 1, device> slopes;
  View<T, 4, device> o;
  DeviceLightningStates<A> states;
  Index tile, slice;
  A scale;

  Index blocks() const { return q.extent(0) * q.extent(1) * slices(); }

  template <class Block>
  ASHLAR_HOST_DEVICE void operator()(Block& block) const {
    const Index heads = q.extent(1), length = q.extent(2), dim = q.extent(3);
    const Index job = block.index() / slices(), first = block.index() % slices() * slice;
    const Index b = job / heads, h = job % heads;
    const Index cols = slice < v.extent(3) - first ? slice : v.extent(3) - first;
    const double slope = slopes[h];
    auto powers = shared_powers<A>(block, slope, tile);
    auto queries = block.template shared<A>(tile * dim), keys = block.template shared<A>(tile * dim);
    auto values = block.template shared<A>(tile * cols), scores = block.template shared<A>(tile * tile);
    auto state = block.template shared<A>(dim * cols);
    load_state<A>(block, states.initial, b, h, dim, first, cols, state);

    for (Index begin = 0; begin < length; begin += tile) {
      const Index m = tile < length - begin ? tile : length - begin;
      load_rows(block, q[b][h], begin, m, 0, dim, scale, queries);
      load_rows(block, k[b][h], begin, m, 0, dim, A{1}, keys);
      load_rows(block, v[b][h], begin, m, first, cols, A{1}, values);
      block.sync();
      tile_product(
          block, m, m, dim, [&](Index r, Index d) -> A { return queries[r * dim + d]; },
          [&](Index d, Index c) -> A { return keys[c * dim + d]; },
          [&](Index r, Index c, A sum) { scores[r * tile + c] = c <= r ? static_cast<A>(sum * powers[r - c]) : A{0}; });
      block.sync();
      tile_product(
          block, m, cols, dim + m,
          [&](Index r, Index l) -> A { return l < dim ? powers[r + 1] * queries[r * dim + l] : A(scores[r * tile + l - dim]); },
          [&](Index l, Index e) -> A { return l < dim ? state[l * cols + e] : values[(l - dim) * cols + e]; },
          [&](Index r, Index e, A sum) { o(b, h, begin + r, first + e) = from_float<T>(sum); });
      block.sync();
      const A loss = static_cast<A>(expm1(-slope * static_cast<double>(m)));
      tile_product(
          block, dim, cols, m, [&](Index d, Index r) -> A { return powers[m - 1 - r] * keys[r * dim + d]; },
          [&](Index r, Index e) -> A { return values[r * cols + e]; },
          [&](Index d, Index e, A sum) {
            const A before = state[d * cols + e];
            state[d * cols + e] = before + loss * before + sum;
          });
      block.sync();
    }
    if (states.final.data() != nullptr) {
      block.sync();
      block.for_each(dim * cols, [&](Index i) { states.final(b, h, i / cols, first + i % cols) = state[i]; });
    }
  }

 private:
  ASHLAR_HOST_DEVICE Index slices() const { return (v.extent(3) + slice - 1) / slice; }
};

/// dQ left to right, then dK and dV right to left, each with the state it needs; nothing but the inputs is read.
template <Scalar T>
struct LightningBackwardBody {
  using A = accumulate_t<T>;
  View<const T, 4, device> q, k, v, d_o;
  View<const double, 1, device> slopes;
  View<const A, 4, device> initial, d_final;
  View<T, 4, device> dq, dk, dv;
  View<A, 4, device> d_initial;
  Index tile;
  A scale;

  Index blocks() const { return q.extent(0) * q.extent(1); }

  template <class Block>
  ASHLAR_HOST_DEVICE void operator()(Block& block) const {
    const Index heads = q.extent(1), length = q.extent(2), dim = q.extent(3), value = v.extent(3);
    const Index b = block.index() / heads, h = block.index() % heads;
    const double slope = slopes[h];
    auto powers = shared_powers<A>(block, slope, tile);
    auto queries = block.template shared<A>(tile * dim), keys = block.template shared<A>(tile * dim);
    auto values = block.template shared<A>(tile * value), outputs = block.template shared<A>(tile * value);
    auto scores = block.template shared<A>(tile * tile), d_scores = block.template shared<A>(tile * tile);
    auto state = block.template shared<A>(dim * value);

    const auto load = [&](Index begin, Index m) {
      load_rows(block, q[b][h], begin, m, 0, dim, scale, queries);
      load_rows(block, k[b][h], begin, m, 0, dim, A{1}, keys);
      load_rows(block, v[b][h], begin, m, 0, value, A{1}, values);
      load_rows(block, d_o[b][h], begin, m, 0, value, A{1}, outputs);
      block.sync();
    };
    // to = (X Y^T) . M
    const auto masked = [&](Index m, Index depth, const auto& x, const auto& y, const auto& to) {
      tile_product(
          block, m, m, depth, [&](Index r, Index l) -> A { return x[r * depth + l]; },
          [&](Index l, Index c) -> A { return y[c * depth + l]; },
          [&](Index r, Index c, A sum) { to[r * tile + c] = c <= r ? static_cast<A>(sum * powers[r - c]) : A{0}; });
    };
    const auto advance = [&](Index m, const auto& left, const auto& right) {
      const A loss = static_cast<A>(expm1(-slope * static_cast<double>(m)));
      tile_product(block, dim, value, m, left, right, [&](Index d, Index e, A sum) {
        const A before = state[d * value + e];
        state[d * value + e] = before + loss * before + sum;
      });
      block.sync();
    };

    load_state<A>(block, initial, b, h, dim, 0, value, state);
    for (Index begin = 0; begin < length; begin += tile) {
      const Index m = tile < length - begin ? tile : length - begin;
      load(begin, m);
      masked(m, value, outputs, values, d_scores);
      block.sync();
      tile_product(
          block, m, dim, value + m,
          [&](Index r, Index l) -> A {
            return l < value ? powers[r + 1] * outputs[r * value + l] : A(d_scores[r * tile + l - value]);
          },
          [&](Index l, Index d) -> A { return l < value ? state[d * value + l] : keys[(l - value) * dim + d]; },
          [&](Index r, Index d, A sum) { dq(b, h, begin + r, d) = from_float<T>(scale * sum); });
      block.sync();
      advance(
          m, [&](Index d, Index r) -> A { return powers[m - 1 - r] * keys[r * dim + d]; },
          [&](Index r, Index e) -> A { return values[r * value + e]; });
    }

    block.sync();
    load_state<A>(block, d_final, b, h, dim, 0, value, state);
    for (Index begin = (length - 1) / tile * tile; begin >= 0 && length > 0; begin -= tile) {
      const Index m = tile < length - begin ? tile : length - begin;
      load(begin, m);
      masked(m, dim, queries, keys, scores);
      masked(m, value, outputs, values, d_scores);
      block.sync();
      tile_product(
          block, m, dim, value + m,
          [&](Index c, Index l) -> A {
            return l < value ? powers[m - 1 - c] * values[c * value + l] : A(d_scores[(l - value) * tile + c]);
          },
          [&](Index l, Index d) -> A { return l < value ? state[d * value + l] : queries[(l - value) * dim + d]; },
          [&](Index c, Index d, A sum) { dk(b, h, begin + c, d) = from_float<T>(sum); });
      tile_product(
          block, m, value, dim + m,
          [&](Index c, Index l) -> A {
            return l < dim ? powers[m - 1 - c] * keys[c * dim + l] : A(scores[(l - dim) * tile + c]);
          },
          [&](Index l, Index e) -> A { return l < dim ? state[l * value + e] : outputs[(l - dim) * value + e]; },
          [&](Index c, Index e, A sum) { dv(b, h, begin + c, e) = from_float<T>(sum); });
      block.sync();
      advance(
          m, [&](Index d, Index r) -> A { return powers[r + 1] * queries[r * dim + d]; },
          [&](Index r, Index e) -> A { return outputs[r * value + e]; });
    }
    if (d_initial.data() != nullptr) {
      block.sync();
      block.for_each(dim * value, [&](Index i) { d_initial(b, h, i / value, i % value) = state[i]; });
    }
  }
};

/// S <- lambda S + k v^T; o = scale S^T q. A thread owns one column of the state, so the state streams through once.
template <Scalar T>
struct LightningDecodeBody {
  using A = accumulate_t<T>;
  View<const T, 3, device> q, k, v;
  View<const double, 1, device> slopes;
  View<A, 4, device> state;
  View<T, 3, device> o;
  A scale;

  Index blocks() const { return q.extent(0) * q.extent(1); }

  template <class Block>
  ASHLAR_HOST_DEVICE void operator()(Block& block) const {
    const Index heads = q.extent(1), dim = q.extent(2), value = v.extent(2);
    const Index b = block.index() / heads, h = block.index() % heads;
    const A lambda = static_cast<A>(exp(-slopes[h]));
    auto query = block.template shared<A>(dim), key = block.template shared<A>(dim);
    block.for_each(dim, [&](Index d) {
      query[d] = static_cast<A>(to_float(q(b, h, d)));
      key[d] = static_cast<A>(to_float(k(b, h, d)));
    });
    block.sync();
    block.for_each(value, [&](Index e) {
      const A added = static_cast<A>(to_float(v(b, h, e)));
      A sum = 0;
      for (Index d = 0; d < dim; ++d) {
        A& entry = state(b, h, d, e);
        entry = lambda * entry + key[d] * added;
        sum += query[d] * entry;
      }
      o(b, h, e) = from_float<T>(scale * sum);
    });
  }
};

/// Bytes that Block::shared takes for each of these counts of A.
template <class A, class... Counts>
constexpr std::size_t shared_total(Counts... counts) {
  return (HostBlock::shared_size<A>(counts) + ...);
}

}  // namespace detail

#if defined(__CUDACC__)

/// lightning_forward of the host header with device views: enqueued on `stream`, no allocation, no synchronisation.
/// Shapes as there; every batch entry is one sequence.
template <Scalar T>
void lightning_forward(View<const T, 4, device> q, View<const T, 4, device> k, View<const T, 4, device> v,
                       View<const double, 1, device> slopes, View<T, 4, device> o,
                       DeviceLightningStates<accumulate_t<T>> states, cudaStream_t stream, double scale = 1,
                       Index tile = 64) {
  using A = accumulate_t<T>;
  constexpr const char* function = "lightning_forward";
  check_shape(function, "k", k.shape(), q.shape(), "same as q");
  check_shape(function, "v", v.shape(), {q.extent(0), q.extent(1), q.extent(2), v.extent(3)}, "same tokens as q");
  check_shape(function, "o", o.shape(), v.shape(), "same as v");
  check_shape(function, "slopes", slopes.shape(), {q.extent(1)}, "one per head");
  check_argument(tile >= 1, function, "tile", "at least 1", tile);
  const Index dim = q.extent(3), slice = v.extent(3) < 32 ? v.extent(3) : 32;
  const detail::LightningForwardBody<T> body{q, k, v, slopes, o, states, tile, slice, static_cast<A>(scale)};
  launch(body.blocks(), 256,
         detail::shared_total<A>(tile + 1, tile * dim, tile * dim, tile * slice, tile * tile, dim * slice), stream, body);
}

/// lightning_backward of the host header with device views, without the slope gradient.
template <Scalar T>
void lightning_backward(View<const T, 4, device> q, View<const T, 4, device> k, View<const T, 4, device> v,
                        View<const double, 1, device> slopes, View<const T, 4, device> d_o,
                        View<const accumulate_t<T>, 4, device> initial, View<const accumulate_t<T>, 4, device> d_final,
                        View<T, 4, device> dq, View<T, 4, device> dk, View<T, 4, device> dv,
                        View<accumulate_t<T>, 4, device> d_initial, cudaStream_t stream, double scale = 1,
                        Index tile = 32) {
  using A = accumulate_t<T>;
  constexpr const char* function = "lightning_backward";
  check_shape(function, "k", k.shape(), q.shape(), "same as q");
  check_shape(function, "v", v.shape(), {q.extent(0), q.extent(1), q.extent(2), v.extent(3)}, "same tokens as q");
  check_shape(function, "d_o", d_o.shape(), v.shape(), "same as v");
  check_shape(function, "the gradient of q", dq.shape(), q.shape(), "same as q");
  check_shape(function, "the gradient of k", dk.shape(), q.shape(), "same as k");
  check_shape(function, "the gradient of v", dv.shape(), v.shape(), "same as v");
  check_argument(tile >= 1, function, "tile", "at least 1", tile);
  const Index dim = q.extent(3), value = v.extent(3);
  const detail::LightningBackwardBody<T> body{q,  k,  v,  d_o,       slopes, initial, d_final,
                                              dq, dk, dv, d_initial, tile,   static_cast<A>(scale)};
  launch(body.blocks(), 256,
         detail::shared_total<A>(tile + 1, tile * dim, tile * dim, tile * value, tile * value, tile * tile, tile * tile,
                                 dim * value),
         stream, body);
}

/// lightning_decode_step of the host header with device views.
template <Scalar T>
void lightning_decode_step(View<const T, 3, device> q, View<const T, 3, device> k, View<const T, 3, device> v,
                           View<const double, 1, device> slopes, View<accumulate_t<T>, 4, device> state,
                           View<T, 3, device> o, cudaStream_t stream, double scale = 1) {
  using A = accumulate_t<T>;
  constexpr const char* function = "lightning_decode_step";
  check_shape(function, "k", k.shape(), q.shape(), "same as q");
  check_shape(function, "v", v.shape(), {q.extent(0), q.extent(1), v.extent(2)}, "same batch and heads as q");
  check_shape(function, "o", o.shape(), v.shape(), "same as v");
  check_shape(function, "state", state.shape(), {q.extent(0), q.extent(1), q.extent(2), v.extent(2)});
  const detail::LightningDecodeBody<T> body{q, k, v, slopes, state, o, static_cast<A>(scale)};
  launch(body.blocks(), 64, detail::shared_total<A>(q.extent(2), q.extent(2)), stream, body);
}

#endif

}  // namespace ashlar::attention
