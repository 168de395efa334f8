// Lightning attention against the quadratic form and the token-by-token recurrence, D = E = 64.
// Useful work per token and head: tile (D + E) + 4 D E flops forward, 2.5 tile (D + E) + 10 D E backward.
#include "ashlar/attention/lightning.hpp"

#include <memory>

#include "ashlar/attention/decay.hpp"
#include "../../examples/support/attention.hpp"
#include "ashlar/core/random.hpp"
#include "support/scoreboard.hpp"

namespace ashlar::attention {
namespace {

constexpr Index dim = 64, tile = 64;
constexpr double forward_flops = tile * 2 * dim + 4 * dim * dim;
constexpr double backward_flops = 2.5 * tile * 2 * dim + 10 * dim * dim;

template <Scalar T>
struct Inputs {
  Tensor<T> q, k, v, o, dq, dk, dv;
  Vector<double> slopes;
  Workspace workspace;

  Inputs(Index heads, Index length) : o({1, heads, length, dim}), slopes(alibi_slopes(heads)) {
    Rng rng(1);
    const auto block = normal_tensor<T>(rng, {1, 1, std::min<Index>(length, 1024), dim}, 0.1);
    const auto repeat = [&] {  // cheap to make, random enough
      auto x = Tensor<T>::uninitialized({1, heads, length, dim});
      for (Index i = 0; i < x.size(); ++i) x.data()[i] = block.data()[i % block.size()];
      return x;
    };
    q = repeat(), k = repeat(), v = repeat();
  }
  void forward() { lightning_forward(q, k, v, slopes, o.template view<4>(), {}, workspace); }
  void allocate_gradients() { dq = q, dk = k, dv = v; }
  void backward() {
    lightning_backward(q, k, v, slopes, o, {}, {},
                       {dq.template view<4>(), dk.template view<4>(), dv.template view<4>()}, workspace);
  }
};

/// Two vectorised passes over the state a token: the textbook loop.
void recurrent(Inputs<float>& x) {
  for (Index h = 0; h < x.q.extent(1); ++h) {
    const auto q = matrix(x.q.view<4>()[0][h]), k = matrix(x.k.view<4>()[0][h]), v = matrix(x.v.view<4>()[0][h]);
    auto o = matrix(x.o.view<4>()[0][h]);
    const auto lambda = static_cast<float>(std::exp(-x.slopes[h]));
    Matrix<float> state = Matrix<float>::Zero(dim, dim);
    for (Index t = 0; t < q.rows(); ++t) {
      state = lambda * state + k.row(t).transpose() * v.row(t);
      o.row(t).noalias() = q.row(t) * state;
    }
  }
}

const bool registered = [] {
  const auto size = [](Index heads, Index length) { return message("heads=", heads, " N=", length, " D=E=64"); };
  const auto work = [](Index heads, Index length, double flops) {
    return scoreboard::Work{.flops = flops * static_cast<double>(heads * length)};
  };
  const auto make = [](Index heads, Index length) { return std::make_shared<Inputs<float>>(heads, length); };
  for (const Index length : {4096, 65536, 1048576}) {
    const Index heads = length > 100000 ? 1 : 8;
    scoreboard::add({"attention.lightning.forward", size(heads, length), "ashlar", work(heads, length, forward_flops)},
                    [=] { return [x = make(heads, length)] { x->forward(); }; });
  }
  for (const Index heads : {1, 8})
    scoreboard::add({"attention.lightning.forward", size(heads, 65536) + " 2 threads", "ashlar",
                     work(heads, 65536, forward_flops), 2},
                    [=] { return [x = make(heads, 65536)] { x->forward(); }; });
  scoreboard::add({"attention.lightning.forward", size(1, 65536), "ashlar", work(1, 65536, forward_flops)},
                  [=] { return [x = make(1, 65536)] { x->forward(); }; });
  scoreboard::add({"attention.lightning.forward", size(1, 8192), "ashlar", work(1, 8192, forward_flops)},
                  [=] { return [x = make(1, 8192)] { x->forward(); }; });
  scoreboard::add({"attention.lightning.forward", size(1, 8192), "quadratic, Eigen"},
                  [=] { return [x = make(1, 8192)] { example::quadratic_attention(x->q, x->k, x->v, x->slopes[0], x->o.view<4>()); }; });
  scoreboard::add({"attention.lightning.forward", size(1, 8192), "softmax, Eigen"},
                  [=] { return [x = make(1, 8192)] { example::softmax_attention(x->q, x->k, x->v, x->o.view<4>()); }; });
  scoreboard::add({"attention.lightning.forward", size(1, 8192), "recurrent, Eigen"},
                  [=] { return [x = make(1, 8192)] { recurrent(*x); }; });
  scoreboard::add({"attention.lightning.forward", "bfloat16 " + size(8, 4096), "ashlar", work(8, 4096, forward_flops)}, [] {
    return [x = std::make_shared<Inputs<bfloat16>>(8, 4096)] { x->forward(); };
  });
  for (const Index length : {4096, 65536})
    scoreboard::add(
        {"attention.lightning.backward", size(8, length), "ashlar", work(8, length, backward_flops)}, [=] {
          auto x = make(8, length);
          x->allocate_gradients();
          return [x] { x->backward(); };
        });
  for (const Index heads : {8, 1})
    scoreboard::add({"attention.lightning.backward", size(heads, 65536) + " 2 threads", "ashlar",
                     work(heads, 65536, backward_flops), 2}, [=] {
      auto x = make(heads, 65536);
      x->allocate_gradients();
      return [x] { x->backward(); };
    });
  // One token for 256 heads: reads and writes 4 MiB of state, which stay in cache.
  scoreboard::add({"attention.lightning.decode", "batch=32 heads=8 D=E=64", "ashlar"},
                  [] {
                    Rng rng(1);
                    auto state = std::make_shared<Tensor<float>>(normal_tensor<float>(rng, {32, 8, dim, dim}));
                    auto x = normal_tensor<float>(rng, {32, 8, dim});
                    return [state, x, o = x, slopes = alibi_slopes(8)]() mutable {
                      lightning_decode_step(x, x, x, slopes, *state, o.view<3>());
                    };
                  });
  scoreboard::add({"attention.lightning.decode", "batch=32 heads=8 D=E=64", "Eigen"}, [] {
    Rng rng(1);
    auto state = std::make_shared<Tensor<float>>(normal_tensor<float>(rng, {32, 8, dim, dim}));
    auto x = normal_tensor<float>(rng, {256, dim});
    return [state, x, o = x]() mutable {
      for (Index h = 0; h < 256; ++h) {
        Eigen::Map<Matrix<float>> s(state->data() + h * dim * dim, dim, dim);
        const auto row = x.matrix().row(h);
        s = 0.9f * s + row.transpose() * row;
        o.matrix().row(h).noalias() = row * s;
      }
    };
  });
  return true;
}();

}  // namespace
}  // namespace ashlar::attention
