#include "ashlar/sets/quantile_pooling.cuh"

#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda.hpp"

namespace ashlar::sets {
namespace {

using test::DeviceArray;

template <class T, int Rank>
View<T, Rank, device> watched(std::vector<std::remove_const_t<T>>& x, const typename View<T, Rank>::Shape& shape) {
  return {x.data(), shape};
}

void check_on_device(Index elements, bool integers) {
  const Index sets = 3, channels = 20;
  INFO(elements << " elements, integers " << integers);
  std::vector<float> x(static_cast<std::size_t>(sets * elements * channels)), gx(x.size(), 1.0f);
  std::uint32_t state = 1;
  for (float& v : x) {
    state = state * 1664525u + 1013904223u;
    v = integers ? static_cast<float>(state >> 29) : static_cast<float>(state) * 0x1p-32f - 0.5f;
  }
  std::vector<Index> counts{elements, 1, elements / 2 + 1};
  std::vector<double> levels;
  for (Index c = 0; c < channels; ++c) levels.push_back(static_cast<double>(c) / static_cast<double>(channels - 1));
  std::vector<float> values(static_cast<std::size_t>(sets * channels));
  std::vector<std::int32_t> positions(2 * values.size());
  DeviceArray<float> x_(x), gx_(gx), values_(values);
  DeviceArray<Index> counts_(counts);
  DeviceArray<double> levels_(levels);
  DeviceArray<std::int32_t> positions_(positions);

  const std::array<Index, 3> shape{sets, elements, channels}, pair{sets, channels, 2};
  const detail::QuantileForwardBody<float> forward{watched<const float, 3>(x, shape),
                                                   watched<const Index, 1>(counts, {sets}),
                                                   watched<const double, 1>(levels, {channels}),
                                                   watched<float, 2>(values, {sets, channels}),
                                                   watched<std::int32_t, 3>(positions, pair),
                                                   Interpolation::linear,
                                                   0};
  run_on_host(forward.blocks(), 32, forward);
  quantile_pool_forward<float>(x_.view<3>(shape), counts_.view<1>({sets}), levels_.view<1>({channels}),
                               values_.view<2>({sets, channels}), positions_.view<3>(pair), nullptr);
  CHECK(positions_.to_host() == positions);
  // The device contracts low + w gap into one rounding: an ulp of values below 8.
  const auto device_values = values_.to_host();
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::abs(device_values[i] - values[i]) < 1e-6f);

  const detail::QuantileBackwardBody<float> backward{watched<const float, 2>(values, {sets, channels}),
                                                     watched<const std::int32_t, 3>(positions, pair),
                                                     watched<const Index, 1>(counts, {sets}),
                                                     watched<const double, 1>(levels, {channels}),
                                                     watched<float, 3>(gx, shape),
                                                     Interpolation::linear};
  run_on_host(backward.blocks(), 32, backward);
  DeviceArray<float> g_(values);
  quantile_pool_backward<float>(g_.view<2>({sets, channels}), positions_.view<3>(pair), counts_.view<1>({sets}),
                                levels_.view<1>({channels}), gx_.view<3>(shape), nullptr);
  const auto device_gx = gx_.to_host();
  float worst = 0;
  for (std::size_t i = 0; i < gx.size(); ++i) worst = std::fmax(worst, std::abs(device_gx[i] - gx[i]));
  CHECK(worst < 1e-5f);
}

TEST_CASE("sets.quantile_pooling: forward and backward on the device equal their bodies on the host") {
  for (const Index elements : {1, 50, 1000, 9000})
    for (const bool integers : {false, true}) check_on_device(elements, integers);
}

}  // namespace
}  // namespace ashlar::sets
