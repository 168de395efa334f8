#include "ashlar/attention/lightning.cuh"

#include <cmath>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda.hpp"

namespace ashlar::attention {
namespace {

using test::DeviceArray;

constexpr Index batch = 2, heads = 3, length = 300, dim = 64, value = 48;

std::vector<float> waves(Index count, double step) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(std::sin(step * static_cast<double>(i)));
  return x;
}

/// A device view of host memory, for the same body under HostBlock.
template <int Rank>
View<float, Rank, device> watched(std::vector<float>& x, const typename View<float, Rank>::Shape& shape) {
  return {x.data(), shape};
}

double worst_gap(const std::vector<float>& a, const std::vector<float>& b) {
  double gap = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    gap = std::fmax(gap, std::abs(double{a[i]} - b[i]));
    size = std::fmax(size, std::abs(double{b[i]}));
  }
  return gap / size;
}

TEST_CASE("attention.lightning: forward backward and decode on the device equal their bodies on the host") {
  const std::array<Index, 4> qk{batch, heads, length, dim}, vo{batch, heads, length, value}, ss{batch, heads, dim, value};
  auto q = waves(batch * heads * length * dim, 0.37), k = waves(batch * heads * length * dim, 0.51);
  auto v = waves(batch * heads * length * value, 0.73), d_o = waves(batch * heads * length * value, 0.91);
  auto initial = waves(batch * heads * dim * value, 0.11), o = v, final = initial, dq = q, dk = k, dv = v, d_initial = initial;
  std::vector<double> slopes{0.3, 0, 0.02};
  const View<const double, 1, device> watched_slopes(slopes.data(), {heads});

  DeviceArray<float> q_(q), k_(k), v_(v), d_o_(d_o), initial_(initial), o_(o), final_(final), dq_(dq), dk_(dk), dv_(dv),
      d_initial_(d_initial);
  DeviceArray<double> slopes_(slopes);
  const View<const double, 1, device> s = slopes_.view<1>({heads});

  run_on_host(batch * heads * 2, 256,
              detail::LightningForwardBody<float>{watched<4>(q, qk), watched<4>(k, qk), watched<4>(v, vo), watched_slopes,
                                                  watched<4>(o, vo), {watched<4>(initial, ss), watched<4>(final, ss)},
                                                  64, 32, 1.0f});
  lightning_forward<float>(q_.view<4>(qk), k_.view<4>(qk), v_.view<4>(vo), s, o_.view<4>(vo),
                           {initial_.view<4>(ss), final_.view<4>(ss)}, nullptr);
  CHECK(worst_gap(o_.to_host(), o) < 1e-5);
  CHECK(worst_gap(final_.to_host(), final) < 1e-5);

  run_on_host(batch * heads, 256,
              detail::LightningBackwardBody<float>{watched<4>(q, qk), watched<4>(k, qk), watched<4>(v, vo),
                                                   watched<4>(d_o, vo), watched_slopes, watched<4>(initial, ss), {},
                                                   watched<4>(dq, qk), watched<4>(dk, qk), watched<4>(dv, vo),
                                                   watched<4>(d_initial, ss), 32, 1.0f});
  lightning_backward<float>(q_.view<4>(qk), k_.view<4>(qk), v_.view<4>(vo), s, d_o_.view<4>(vo), initial_.view<4>(ss), {},
                            dq_.view<4>(qk), dk_.view<4>(qk), dv_.view<4>(vo), d_initial_.view<4>(ss), nullptr);
  CHECK(worst_gap(dq_.to_host(), dq) < 1e-5);
  CHECK(worst_gap(dk_.to_host(), dk) < 1e-5);
  CHECK(worst_gap(dv_.to_host(), dv) < 1e-5);
  CHECK(worst_gap(d_initial_.to_host(), d_initial) < 1e-5);

  const std::array<Index, 3> token{batch, heads, dim}, output{batch, heads, value};
  run_on_host(batch * heads, 64,
              detail::LightningDecodeBody<float>{watched<3>(q, token), watched<3>(k, token), watched<3>(v, output),
                                                 watched_slopes, watched<4>(final, ss), watched<3>(o, output), 1.0f});
  lightning_decode_step<float>(q_.view<3>(token), k_.view<3>(token), v_.view<3>(output), s, final_.view<4>(ss),
                               o_.view<3>(output), nullptr);
  CHECK(worst_gap(final_.to_host(), final) < 1e-5);
  CHECK(worst_gap(o_.to_host(), o) < 1e-5);
}

}  // namespace
}  // namespace ashlar::attention
