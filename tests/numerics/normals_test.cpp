#include "ashlar/numerics/normals.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace ashlar::numerics {
namespace {

std::vector<float> draw(Rng& rng, std::size_t count) {
  std::vector<float> z(count);
  fill_normals<float>(rng, z);
  return z;
}

TEST_CASE("numerics.normals: every number is the normal quantile of its word of Philox") {
  Rng rng(7, 3);
  const auto z = draw(rng, 3200);
  double worst = 0;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const std::size_t block = i / 32, word = i % 32 / 8, counter = 8 * block + i % 8;
    const auto words = ashlar::detail::philox4x32({static_cast<std::uint32_t>(counter), 0, 3, 0}, {7, 0});
    const double p = ((words[word] >> 9) + 0.5) * 0x1p-23;
    worst =
        std::max(worst, std::abs(z[i] - ashlar::detail::normal_quantile(p)) / std::max(1.0, std::abs(double{z[i]})));
  }
  CHECK(worst <= 1e-6);
}

TEST_CASE("numerics.normals: the ends and the middle of the unit interval are the quantiles there") {
  const std::uint32_t words[] = {0u,          0xFFFFFFFFu, 0x80000000u, 0x7FFFFFFFu, 0x02000000u, 0xFDFFFFFFu,
                                 0x40000000u, 0x1000u,     0u,          0u,          0u,          0u,
                                 0u,          0u,          0u,          0u};
  float z[16];
  for (Index i = 0; i < 16; i += simd::width<float>)
    simd::store(z + i, detail::normal_of_words(simd::load_bits(words + i)));
  for (std::size_t i = 0; i < 8; ++i) {
    const double exact = ashlar::detail::normal_quantile(((words[i] >> 9) + 0.5) * 0x1p-23);
    CHECK(std::abs(z[i] - exact) <= 1e-6 * std::max(1.0, std::abs(exact)));
  }
  CHECK(z[0] == -z[1]);
  CHECK(z[0] < -5);
}

TEST_CASE("numerics.normals: moments and tails are those of the standard normal distribution") {
  Rng rng(1);
  const std::size_t n = 1 << 20;
  const auto z = draw(rng, n);
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, lag = 0, beyond = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = z[i];
    m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x;
    lag += x * z[(i + 1) % n];
    beyond += std::abs(x) > 3;
  }
  const double count = static_cast<double>(n), error = 1 / std::sqrt(count);
  CHECK(std::abs(m1 / count) <= 4 * error);
  CHECK(std::abs(m2 / count - 1) <= 4 * std::sqrt(2.0) * error);
  CHECK(std::abs(m3 / count) <= 4 * std::sqrt(15.0) * error);
  CHECK(std::abs(m4 / count - 3) <= 4 * std::sqrt(96.0) * error);
  CHECK(std::abs(lag / count) <= 4 * error);
  const double p = 0.0026997960632601866;
  CHECK(std::abs(beyond / count - p) <= 4 * std::sqrt(p / count));
}

TEST_CASE("numerics.normals: an array in parts of whole blocks is the array in one") {
  Rng whole(5), parts(5);
  const auto z = draw(whole, 96);
  auto first = draw(parts, 32);
  const auto second = draw(parts, 64);
  first.insert(first.end(), second.begin(), second.end());
  CHECK(first == z);
  CHECK(parts.position() == whole.position());
}

TEST_CASE("numerics.normals: the generator moves on by whole blocks and a shorter array begins alike") {
  for (const std::size_t count : {0u, 1u, 31u, 32u, 33u, 100u}) {
    Rng rng(9), other(9);
    const auto z = draw(rng, count), longer = draw(other, 128);
    CHECK(rng.position() == normals_words(static_cast<Index>(count)));
    CHECK(std::equal(z.begin(), z.end(), longer.begin()));
  }
  Rng rng(9);
  rng();
  const auto z = draw(rng, 5);
  CHECK(rng.position() == 4 + 32);
  Rng aligned(9, 0, 4);
  CHECK(draw(aligned, 5) == z);
}

TEST_CASE("numerics.normals: doubles are the same numbers and nothing is allocated") {
  Rng a(2), b(2);
  std::vector<double> wide(77);
  CHECK(test::allocations([&] { fill_normals<double>(a, wide); }) == 0);
  const auto narrow = draw(b, 77);
  for (std::size_t i = 0; i < wide.size(); ++i) CHECK(wide[i] == double{narrow[i]});
}

}  // namespace
}  // namespace ashlar::numerics
