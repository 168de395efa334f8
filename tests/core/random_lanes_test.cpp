#include "ashlar/core/random_lanes.hpp"

#include <cstdint>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace ashlar {
namespace {

TEST_CASE("core.random_lanes: filling gives the words that calls one by one would") {
  for (const std::uint64_t position : {std::uint64_t{0}, std::uint64_t{3}, (std::uint64_t{1} << 34) - 40}) {
    Rng filled(0x0123456789ABCDEF, 0xFEDCBA9876543210, position), called = filled;
    for (const std::size_t count : {0u, 1u, 3u, 31u, 32u, 63u, 64u, 65u, 1000u, 2u}) {
      std::vector<std::uint32_t> words(count);
      fill_words(filled, words);
      CHECK(filled.position() == called.position() + count);
      for (const std::uint32_t word : words) REQUIRE(word == called());
    }
    CHECK(filled() == called());
  }
}

TEST_CASE("core.random_lanes: by word the same words come word after word") {
  std::uint32_t words[32];
  detail::philox_by_word<8>(5, 6, 7, words);
  Rng rng(5, 6, 4 * 7);
  for (std::size_t j = 0; j < 8; ++j)
    for (std::size_t k = 0; k < 4; ++k) CHECK(words[8 * k + j] == rng());
}

TEST_CASE("core.random_lanes: filling allocates nothing") {
  Rng rng(1);
  std::vector<std::uint32_t> words(1000);
  CHECK(test::allocations([&] { fill_words(rng, words); }) == 0);
}

}  // namespace
}  // namespace ashlar
