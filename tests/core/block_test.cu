#include <vector>

#include "ashlar/core/block.cuh"
#include "support/catch.hpp"
#include "support/cuda.hpp"

namespace ashlar {
namespace {

// c = a b for one tile a block, through shared memory. The space makes it a host or a device body.
template <class Space>
struct Product {
  View<const float, 2, Space> a, b;
  View<float, 2, Space> c;
  static constexpr Index tile = 16;

  template <class Block>
  ASHLAR_HOST_DEVICE void operator()(Block& block) const {
    const Index depth = a.extent(1), cols = b.extent(1), first = block.index() * tile;
    const Index rows = a.extent(0) - first < tile ? a.extent(0) - first : tile;
    auto left = block.template shared<float>(tile * depth);
    auto right = block.template shared<float>(depth * cols);
    block.for_each(rows * depth, [&](Index i) { left[i] = a(first + i / depth, i % depth); });
    block.for_each(depth * cols, [&](Index i) { right[i] = b(i / cols, i % cols); });
    block.sync();
    tile_product(
        block, rows, cols, depth, [&](Index i, Index k) -> float { return left[i * depth + k]; },
        [&](Index k, Index j) -> float { return right[k * cols + j]; },
        [&](Index i, Index j, float sum) { c(first + i, j) = sum; });
  }
};

TEST_CASE("core.block: a body gives the same on the host and on the device") {
  const Index rows = 37, depth = 19, cols = 23, blocks = (rows + 15) / 16;
  std::vector<float> a(static_cast<std::size_t>(rows * depth)), b(static_cast<std::size_t>(depth * cols));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 17) - 8;  // small integers: sums are exact
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 13) - 6;
  std::vector<float> c(static_cast<std::size_t>(rows * cols));

  const Product<host> on_host{View<float, 2>(a.data(), {rows, depth}), View<float, 2>(b.data(), {depth, cols}),
                              View<float, 2>(c.data(), {rows, cols})};
  const std::size_t shared_bytes = run_on_host(blocks, 64, on_host);

  test::DeviceArray<float> device_a(a), device_b(b), device_c(std::vector<float>(c.size(), -1.0f));
  const Product<device> on_device{device_a.view<2>({rows, depth}), device_b.view<2>({depth, cols}),
                                  device_c.view<2>({rows, cols})};
  launch(blocks, 64, shared_bytes, cudaStream_t{}, on_device);
  CHECK(device_c.to_host() == c);
}

}  // namespace
}  // namespace ashlar
