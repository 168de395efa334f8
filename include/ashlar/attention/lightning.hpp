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
#include <vector>

#include "ashlar/attention/detail/lightning_tiles.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
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

// ---- Checks shared by the entry points --------------------------------------------------------------------------

namespace detail {

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

template <Real A>
void check_states(const char* function, const LightningStates<A>& states, const LightningShape& s) {
  check_state(function, "the initial state", states.initial, s);
  check_state(function, "the final state", states.final, s);
  require(!overlaps(states.final, states.initial) || same_memory(states.final, states.initial), function,
          "the final state overlaps the initial state without being the same");
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

/// The forward pass over all heads of all sequences, after the checks. No `o`: states only.
template <Scalar T>
void forward_all(const View<const T, 4>& q, const View<const T, 4>& k, const View<const T, 4>& v,
                 const View<const double, 1>& slopes, const View<T, 4>& o, const LightningStates<accumulate_t<T>>& states,
                 const LightningShape& s, Workspace& workspace, const LightningOptions& options) {
  using A = accumulate_t<T>;
  const Index state_size = s.dim_pad * s.value_pad, window = window_tiles<A>(s);
  const Index head_size = linalg::round_up(Decay<A>::size(s), 16) + (1 + window) * state_size;
  const Index tile_size = ForwardTile<T>::size(s), threads = max_threads();
  A* const memory = workspace.reserve<A>(threads * (head_size + tile_size));

  for_each_head(s.sequences * s.heads, [&](Index job, int slot, const auto& tile_worker) {
    const Index i = job / s.heads, h = job % s.heads;
    const auto [batch, begin, end] = sequence(options.offsets, s.length, i);
    const auto head = [&, b = batch, from = begin, to = end](const auto& x) {
      return x.data() ? x[b][h].slice(0, from, to) : decltype(x[b][h]){};
    };
    Slices<A> slices(memory + slot * head_size);
    A *state = slices.take(state_size), *slots = slices.take(window * state_size);
    const Decay<A> decay(slopes[h], s, slices.take(Decay<A>::size(s)));
    load_state(states.initial, i, h, false, s.dim_pad, s.value_pad, state);
    with_decay(slopes[h], [&]<bool Decays> {
      forward_head<Decays, T>(head(q), head(k), head(v), head(o), s, decay, static_cast<A>(options.scale), state,
                              slots, memory + threads * head_size, tile_worker);
    });
    store_state(state, false, s.value_pad, states.final, i, h);
  });
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
  constexpr const char* function = "lightning_attention";
  const In<Q, 4> q = q_in;
  const auto s = detail::check_problem<T>(function, q, k, v, slopes, options);
  check_shape(function, "o", o.shape(), v.shape(), "same as v");
  detail::check_states(function, states, s);
  detail::check_separate(function, "o", o, "q", q);
  detail::check_separate(function, "o", o, "k", k);
  detail::check_separate(function, "o", o, "v", v);

  detail::forward_all<T>(q, k, v, slopes, o, states, s, workspace, options);
}

/// The state alone: S_N = lambda^N S_0 + sum over t of lambda^(N-t) k_t v_t^T, for a prefix whose outputs nobody reads.
/// k: [batch, heads, length, dim]; v: [batch, heads, length, value dim]. Half the cost of lightning_forward or less.
template <class K>
void lightning_state(const K& k_in, In<K, 4> v, View<const double, 1> slopes,
                     LightningStates<accumulate_t<scalar_t<K>>> states, Workspace& workspace,
                     const LightningOptions& options = {}) {
  using T = scalar_t<K>;
  const In<K, 4> k = k_in;
  const auto s = detail::check_problem<T>("lightning_state", k, k, v, slopes, options);
  detail::check_states("lightning_state", states, s);
  detail::forward_all<T>(k, k, v, slopes, {}, states, s, workspace, options);
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
