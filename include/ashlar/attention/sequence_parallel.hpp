// Lightning attention over a sequence that is spread over several ranks (LASP): one state per head travels from each
// rank to the next, whatever the length.
//
// Weigao Sun, Zhen Qin, Dong Li, Xuyang Shen, Yu Qiao, Yiran Zhong, "Linear Attention Sequence Parallelism",
// arXiv 2404.02882. Rank r holds n consecutive tokens.
//
//   KV_{r+1} = lambda^n KV_r + S_loc          S_loc: state of the rank's own tokens from zero
//   D_{r-1}  = lambda^n D_r + D_loc           D: cotangent of the state at the rank's end
//
// The local part is computed before the neighbour's state arrives, so a rank waits only for a message of one state per
// head and forwards it at once; outputs follow from the exact initial state.
//
//   InProcessRing<float> ring(4);                        // or anything with rank(), size(), send(to, state) and
//   auto rank = ring.at(r);                              // receive(from, state), such as an MPI communicator
//   lightning_forward(rank, q, k, v, slopes, o, received, workspace);
#pragma once

#include <cmath>
#include <concepts>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "ashlar/attention/lightning.hpp"

namespace ashlar::attention {

/// Passes states, [batch, heads, dim, value dim], between ranks. send may return before the state is received but must
/// have copied it; messages between two ranks arrive in order.
template <class R, class A>
concept StateRing = requires(R& ring, View<const A, 4> outgoing, View<A, 4> incoming) {
  { ring.rank() } -> std::convertible_to<int>;
  { ring.size() } -> std::convertible_to<int>;
  ring.send(0, outgoing);
  ring.receive(0, incoming);
};

/// Ranks that are threads of one process.
template <Real A>
class InProcessRing {
 public:
  explicit InProcessRing(int size) : size_(size) { check_argument(size >= 1, "InProcessRing", "size", "at least 1", size); }

  /// What one thread holds.
  class Rank {
   public:
    Rank(InProcessRing& ring, int rank) : ring_(ring), rank_(rank) {}
    int rank() const { return rank_; }
    int size() const { return ring_.size_; }

    void send(int to, View<const A, 4> state) {
      Tensor<A> message(state.shape());
      const auto copy = message.template view<4>();
      for (Index b = 0; b < state.extent(0); ++b)
        for (Index h = 0; h < state.extent(1); ++h) matrix(copy[b][h]) = matrix(state[b][h]);
      const std::lock_guard lock(ring_.mutex_);
      ring_.messages_[{rank_, to}].push_back(std::move(message));
      ring_.arrived_.notify_all();
    }

    void receive(int from, View<A, 4> state) {
      std::unique_lock lock(ring_.mutex_);
      auto& queue = ring_.messages_[{from, rank_}];
      ring_.arrived_.wait(lock, [&] { return !queue.empty(); });
      const Tensor<A> message = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      check_shape("InProcessRing", "the received state", message.shape().extents(), state.shape());
      for (Index b = 0; b < state.extent(0); ++b)
        for (Index h = 0; h < state.extent(1); ++h) matrix(state[b][h]) = matrix(message.template view<4>()[b][h]);
    }

   private:
    InProcessRing& ring_;
    int rank_;
  };

  Rank at(int rank) {
    check_argument(0 <= rank && rank < size_, "InProcessRing", "rank", message("between 0 and ", size_ - 1), rank);
    return Rank(*this, rank);
  }

 private:
  int size_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::deque<Tensor<A>>> messages_;
};

namespace detail {

/// added += lambda^steps carried, a state a head.
template <Real A>
void carry(const View<const double, 1>& slopes, Index steps, const View<const A, 4>& carried, const View<A, 4>& added) {
  for (Index b = 0; b < added.extent(0); ++b)
    for (Index h = 0; h < added.extent(1); ++h)
      matrix(added[b][h]) += static_cast<A>(std::exp(-slopes[h] * static_cast<double>(steps))) * matrix(carried[b][h]);
}

}  // namespace detail

/// Forward pass of this rank's tokens. q, k: [batch, heads, tokens, dim]; v, o: [batch, heads, tokens, value dim].
/// `received` [batch, heads, dim, value dim] gets the state before the rank's first token; keep it for the backward
/// pass. On rank 0 it is the initial state and is read. Costs 2 dim value_dim flops a token more than one process.
/// Packed sequences are not supported. Throws as lightning_forward.
template <class Ring, class Q>
  requires StateRing<Ring, accumulate_t<scalar_t<Q>>>
void lightning_forward(Ring& ring, const Q& q, In<Q, 4> k, In<Q, 4> v, View<const double, 1> slopes, Out<Q, 4> o,
                       View<accumulate_t<scalar_t<Q>>, 4> received, Workspace& workspace,
                       const LightningOptions& options = {}) {
  using A = accumulate_t<scalar_t<Q>>;
  require(options.offsets.data() == nullptr, "lightning_forward", "packed sequences cannot be spread over ranks");
  const int rank = ring.rank(), last = ring.size() - 1;
  Tensor<A> passed(received.shape());
  if (rank < last) lightning_state(k, v, slopes, {.final = passed}, workspace, options);
  if (rank > 0) ring.receive(rank - 1, received);
  if (rank < last) {
    detail::carry<A>(slopes, k.extent(2), received, passed.template view<4>());
    ring.send(rank + 1, std::as_const(passed).template view<4>());
  }
  lightning_forward(q, k, v, slopes, o, {.initial = received}, workspace, options);
}

/// Backward pass of this rank's tokens. `received`: from the forward pass. `d_state` [batch, heads, dim, value dim] gets
/// the cotangent of the state after the rank's last token; on the last rank it is that of the final state and is read.
/// gradients.slopes, summed over the ranks, is the slope gradient of the whole sequence.
template <class Ring, class Q>
  requires StateRing<Ring, accumulate_t<scalar_t<Q>>>
void lightning_backward(Ring& ring, const Q& q_in, In<Q, 4> k, In<Q, 4> v, View<const double, 1> slopes, In<Q, 4> d_o,
                        View<const accumulate_t<scalar_t<Q>>, 4> received, View<accumulate_t<scalar_t<Q>>, 4> d_state,
                        const LightningGradientViews<scalar_t<Q>>& gradients, Workspace& workspace,
                        const LightningOptions& options = {}) {
  using A = accumulate_t<scalar_t<Q>>;
  require(options.offsets.data() == nullptr, "lightning_backward", "packed sequences cannot be spread over ranks");
  const In<Q, 4> q = q_in;
  const int rank = ring.rank(), last = ring.size() - 1;
  Tensor<A> passed(d_state.shape());
  if (rank > 0) {
    // sum of lambda^t q_t d_o_t^T: the state of the reversed tokens, which counts from lambda^0, one step later.
    lightning_state(q.reversed(2), d_o.reversed(2), slopes, {.final = passed}, workspace, options);
    for (Index b = 0; b < passed.extent(0); ++b)
      for (Index h = 0; h < passed.extent(1); ++h)
        matrix(passed.template view<4>()[b][h]) *= static_cast<A>(options.scale * std::exp(-slopes[h]));
  }
  if (rank < last) ring.receive(rank + 1, d_state);
  if (rank > 0) {
    detail::carry<A>(slopes, k.extent(2), d_state, passed.template view<4>());
    ring.send(rank - 1, std::as_const(passed).template view<4>());
  }
  lightning_backward(q, k, v, slopes, d_o, received, d_state, gradients, workspace, options);
}

}  // namespace ashlar::attention
