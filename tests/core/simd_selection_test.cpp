// What core/simd.hpp offers to kernels that select: mask bits, compress, square transposes, minima and maxima.
#include <algorithm>
#include <vector>

#include "ashlar/core/simd.hpp"
#include "support/catch.hpp"

namespace ashlar {
namespace {

template <class T>
std::vector<T> counting(Index n) {
  std::vector<T> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(i);
  return x;
}

template <class T>
void check_compress() {
  constexpr Index w = simd::width<T>;
  const auto x = counting<T>(w);
  for (std::uint64_t pattern = 0; pattern < (std::uint64_t{1} << w); pattern += w > 8 ? 37 : 1) {
    std::vector<T> flags, expected;
    for (Index i = 0; i < w; ++i) {
      flags.push_back(static_cast<T>(pattern >> i & 1));
      if (pattern >> i & 1) expected.push_back(static_cast<T>(i));
    }
    const auto keep = simd::load(flags.data()) > simd::batch<T>(T{0});
    REQUIRE(simd::bits(keep) == pattern);
    std::vector<T> kept(static_cast<std::size_t>(w), T{-1});
    REQUIRE(simd::compress(kept.data(), keep, simd::load(x.data())) == static_cast<Index>(expected.size()));
    REQUIRE(std::equal(expected.begin(), expected.end(), kept.begin()));
  }
}

template <class T>
void check_transpose() {
  constexpr Index w = simd::width<T>, from_stride = w + 3, to_stride = w + 5;
  const auto from = counting<T>(w * from_stride);
  std::vector<T> to(static_cast<std::size_t>(w * to_stride), T{-1});
  simd::transpose_block(from.data(), from_stride, to.data(), to_stride);
  for (Index i = 0; i < w; ++i)
    for (Index j = 0; j < to_stride; ++j)
      CHECK(to[static_cast<std::size_t>(i * to_stride + j)] == (j < w ? from[static_cast<std::size_t>(j * from_stride + i)] : T{-1}));
}

template <class T>
void check_extremes() {
  constexpr Index w = simd::width<T>;
  auto a = counting<T>(w), b = a;
  std::reverse(b.begin(), b.end());
  std::vector<T> low(a.size()), high(a.size());
  simd::store(low.data(), simd::min(simd::load(a.data()), simd::load(b.data())));
  simd::store(high.data(), simd::max(simd::load(a.data()), simd::load(b.data())));
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(low[i] == std::min(a[i], b[i]));
    CHECK(high[i] == std::max(a[i], b[i]));
  }
}

TEST_CASE("core.simd: compress keeps the marked lanes in order") {
  check_compress<float>();
  check_compress<double>();
}

TEST_CASE("core.simd: a square tile is transposed and nothing beside it is touched") {
  check_transpose<float>();
  check_transpose<double>();
}

TEST_CASE("core.simd: lanewise minimum and maximum") {
  check_extremes<float>();
  check_extremes<double>();
}

}  // namespace
}  // namespace ashlar
