// The device bodies of lightning attention, run and watched on the host, against the host form.
#include "ashlar/attention/lightning.cuh"

#include "ashlar/attention/lightning.hpp"
#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

namespace ashlar::attention {
namespace {

using test::relative_difference;

/// Host memory seen as a device view: HostBlock stands in for the device.
template <int Rank, class T>
View<T, Rank, device> on_device(Tensor<T>& x) {
  return {x.data(), x.template view<Rank>().shape()};
}

constexpr Index batch = 2, heads = 3, dim = 6, value = 5;
const Vector<double> slopes = (Vector<double>(3) << 0.3, 0, 0.02).finished();

template <class T>
void check_bodies(Index length, Index tile, double tolerance) {
  INFO("length " << length << " tile " << tile);
  using A = accumulate_t<T>;
  Rng rng(static_cast<std::uint64_t>(length));
  auto q = normal_tensor<T>(rng, {batch, heads, length, dim}), k = normal_tensor<T>(rng, {batch, heads, length, dim});
  auto v = normal_tensor<T>(rng, {batch, heads, length, value}), d_o = normal_tensor<T>(rng, {batch, heads, length, value});
  auto initial = normal_tensor<A>(rng, {batch, heads, dim, value}), d_final = normal_tensor<A>(rng, {batch, heads, dim, value});
  Vector<double> device_slopes = slopes;
  const View<const double, 1, device> s(device_slopes.data(), {heads});
  const LightningOptions options{.scale = 0.5};

  const auto expected = lightning_attention_with_state(q, k, v, slopes, initial, options);
  Tensor<T> o(v.shape());
  Tensor<A> final(initial.shape());
  const detail::LightningForwardBody<T> forward{on_device<4>(q), on_device<4>(k), on_device<4>(v), s, on_device<4>(o),
                                                {on_device<4>(initial), on_device<4>(final)}, tile, 2, A(0.5)};
  CHECK(run_on_host(forward.blocks(), 32, forward) ==
        detail::shared_total<A>(tile + 1, tile * dim, tile * dim, tile * 2, tile * tile, dim * 2));
  CHECK(relative_difference(o, expected.output) < tolerance);
  CHECK(relative_difference(final, expected.state) < tolerance);

  const auto grad = lightning_gradients(q, k, v, slopes, d_o, initial, d_final, options);
  Tensor<T> dq(q.shape()), dk(k.shape()), dv(v.shape());
  Tensor<A> d_initial(initial.shape());
  const detail::LightningBackwardBody<T> backward{
      on_device<4>(q), on_device<4>(k),  on_device<4>(v),  on_device<4>(d_o), s, on_device<4>(initial), on_device<4>(d_final),
      on_device<4>(dq), on_device<4>(dk), on_device<4>(dv), on_device<4>(d_initial), tile, A(0.5)};
  CHECK(run_on_host(backward.blocks(), 32, backward) ==
        detail::shared_total<A>(tile + 1, tile * dim, tile * dim, tile * value, tile * value, tile * tile, tile * tile,
                                dim * value));
  CHECK(relative_difference(dq, grad.q) < tolerance);
  CHECK(relative_difference(dk, grad.k) < tolerance);
  CHECK(relative_difference(dv, grad.v) < tolerance);
  CHECK(relative_difference(d_initial, grad.initial_state) < tolerance);
}

TEST_CASE("attention.lightning: the device bodies equal the host form for every tile and tail") {
  for (const Index length : {0, 1, 7, 16, 33})
    for (const Index tile : {4, 16}) {
      check_bodies<double>(length, tile, 1e-12);
      check_bodies<float>(length, tile, 1e-5);
    }
  check_bodies<bfloat16>(33, 8, 1e-2);
}

TEST_CASE("attention.lightning: the device decode body equals the host step") {
  Rng rng(3);
  auto q = normal_tensor<float>(rng, {batch, heads, dim}), k = normal_tensor<float>(rng, {batch, heads, dim});
  auto v = normal_tensor<float>(rng, {batch, heads, value});
  auto state = normal_tensor<float>(rng, {batch, heads, dim, value});
  Vector<double> device_slopes = slopes;
  Tensor<float> host_state = state, host_o(v.shape()), o(v.shape());
  lightning_decode_step(q, k, v, slopes, host_state, host_o.view<3>(), 0.5);
  const detail::LightningDecodeBody<float> body{on_device<3>(q), on_device<3>(k), on_device<3>(v),
                                                {device_slopes.data(), {heads}}, on_device<4>(state), on_device<3>(o), 0.5f};
  CHECK(run_on_host(body.blocks(), 4, body) == detail::shared_total<float>(dim, dim));
  CHECK(relative_difference(state, host_state) < 1e-6);
  CHECK(relative_difference(o, host_o) < 1e-6);
}

}  // namespace
}  // namespace ashlar::attention
