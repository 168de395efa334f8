#include "ashlar/core/block.hpp"

#include <vector>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar {
namespace {

using test::message_of;

// Reverses `n` numbers through shared memory. `with_sync` leaves out what makes that correct.
struct Reverse {
  std::vector<float>* data;
  bool with_sync;

  template <class Block>
  void operator()(Block& block) const {
    const auto n = static_cast<Index>(data->size());
    auto tile = block.template shared<float>(n);
    block.for_each(n, [&](Index i) { tile[i] = (*data)[static_cast<std::size_t>(i)]; });
    if (with_sync) block.sync();
    block.for_each(n, [&](Index i) { (*data)[static_cast<std::size_t>(i)] = tile[n - 1 - i]; });
  }
};

TEST_CASE("core.block: a body with its syncs runs and reports its shared memory") {
  std::vector<float> data{1, 2, 3, 4, 5};
  CHECK(run_on_host(1, 32, Reverse{&data, true}) == 32);
  CHECK(data == std::vector<float>{5, 4, 3, 2, 1});
}

TEST_CASE("core.block: a missing sync is found") {
  std::vector<float> data{1, 2, 3, 4, 5};
  CHECK(message_of<std::logic_error>([&] { run_on_host(1, 32, Reverse{&data, false}); }) ==
        "HostBlock: read of what another thread wrote, without sync() between");
}

TEST_CASE("core.block: shared memory is bounded and starts unwritten") {
  HostBlock block(0, 4);
  auto tile = block.shared<int>(3);
  CHECK(message_of<std::logic_error>([&] { block.for_each(4, [&](Index i) { tile[i] = 1; }); }) ==
        "HostBlock: shared memory of 3 elements has no element 3");
  auto fresh = block.shared<int>(1);
  CHECK(message_of<std::logic_error>([&] { block.for_each(1, [&](Index i) { tile[0] = fresh[i]; }); }) ==
        "HostBlock: read of shared memory that was never written");
}

TEST_CASE("core.block: conflicting writes are found") {
  HostBlock block(0, 4);
  auto tile = block.shared<int>(4);
  CHECK(message_of<std::logic_error>([&] { block.for_each(4, [&](Index i) { tile[0] = static_cast<int>(i); }); }) ==
        "HostBlock: two threads write one element, without sync() between");
  block.sync();
  block.for_each(4, [&](Index i) { tile[i] = 0; });
  block.sync();
  CHECK(message_of<std::logic_error>([&] { block.for_each(3, [&](Index i) { tile[i] = tile[i + 1]; }); }) ==
        "HostBlock: write to what another thread reads, without sync() between");
  block.sync();
  block.for_each(8, [&](Index i) { tile.atomic_add(0, static_cast<int>(i)); });
  block.sync();
  block.for_each(1, [&](Index) { CHECK(tile[0] == 28); });
}

TEST_CASE("core.block: tile products cover every shape once") {
  for (const Index m : {1, 3, 4, 9})
    for (const Index n : {1, 4, 6}) {
      HostBlock block(0, 7);
      std::vector<int> seen(static_cast<std::size_t>(m * n), 0);
      tile_product(
          block, m, n, 5, [](Index i, Index k) { return static_cast<float>(i + k); },
          [](Index k, Index j) { return static_cast<float>(k * (j + 1)); },
          [&](Index i, Index j, float sum) {
            ++seen[static_cast<std::size_t>(i * n + j)];
            float expected = 0;
            for (Index k = 0; k < 5; ++k) expected += static_cast<float>((i + k) * k * (j + 1));
            CHECK(sum == expected);
          });
      CHECK(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
    }
}

}  // namespace
}  // namespace ashlar
