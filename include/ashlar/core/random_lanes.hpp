// The words of Rng many at a time: Philox with a counter in every 64-bit lane.
//
//   std::vector<std::uint32_t> words(1000);
//   fill_words(rng, words);                       // what a thousand calls of rng() would give
//
// Roof: arithmetic, about 10 instructions of a vector a word of each lane.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ashlar/core/random.hpp"
#include "ashlar/core/simd.hpp"

namespace ashlar {

namespace detail {

template <std::size_t Counters>
using PhiloxWords = std::array<std::array<std::uint64_t, Counters>, 4>;

/// [k][j]: word k of Philox at counter first + j, in the lower half; what stands above it means nothing.
template <std::size_t Counters>
PhiloxWords<Counters> philox_lanes(std::uint64_t seed, std::uint64_t stream, std::uint64_t first) {
  using Lanes = simd::batch<std::uint64_t>;
  static_assert(Counters % Lanes::size == 0);
  std::array<std::uint64_t, Counters> counter;
  PhiloxWords<Counters> words;
  for (std::size_t j = 0; j < Counters; ++j) counter[j] = first + j;
  for (std::size_t j = 0; j < Counters; j += Lanes::size) {
    Lanes c0 = simd::load(counter.data() + j), c1 = c0 >> 32, c2(stream), c3(stream >> 32);
    std::uint64_t key0 = seed, key1 = seed >> 32;
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
      const Lanes a = simd::multiply_lower_halves(c0, Lanes(std::uint64_t{0xD2511F53u}));
      const Lanes b = simd::multiply_lower_halves(c2, Lanes(std::uint64_t{0xCD9E8D57u}));
      c0 = (b >> 32) ^ c1 ^ Lanes(key0);
      c1 = b;
      c2 = (a >> 32) ^ c3 ^ Lanes(key1);
      c3 = a;
    }
    simd::store(words[0].data() + j, c0);
    simd::store(words[1].data() + j, c1);
    simd::store(words[2].data() + j, c2);
    simd::store(words[3].data() + j, c3);
  }
  return words;
}

/// to[Counters k + j]: word k of Philox at counter first + j. The same words in the order that costs least.
template <std::size_t Counters>
void philox_by_word(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::uint32_t* to) {
  const auto words = philox_lanes<Counters>(seed, stream, first);
  for (std::size_t k = 0; k < 4; ++k)
    for (std::size_t j = 0; j < Counters; ++j) to[Counters * k + j] = static_cast<std::uint32_t>(words[k][j]);
}

}  // namespace detail

/// The next words of `rng`, the same as one call for each would give. Allocates nothing.
inline void fill_words(Rng& rng, std::span<std::uint32_t> words) {
  constexpr std::size_t counters = 16, step = 4 * counters;
  std::size_t i = 0;
  while (i < words.size() && rng.position() % 4 != 0) words[i++] = rng();
  const std::size_t begin = i;
  for (; words.size() - i >= step; i += step) {
    const auto lanes = detail::philox_lanes<counters>(rng.seed(), rng.stream(), (rng.position() + (i - begin)) / 4);
    for (std::size_t j = 0; j < counters; ++j)
      for (std::size_t k = 0; k < 4; ++k) words[i + 4 * j + k] = static_cast<std::uint32_t>(lanes[k][j]);
  }
  if (i > begin) rng = Rng(rng.seed(), rng.stream(), rng.position() + (i - begin));
  while (i < words.size()) words[i++] = rng();
}

}  // namespace ashlar
