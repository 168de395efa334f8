#include "ashlar/core/random.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar {
namespace {

using test::message_of;
using Words = std::array<std::uint32_t, 4>;

TEST_CASE("core.random: Philox gives the known answers of its authors") {
  constexpr std::uint32_t ones = 0xFFFFFFFFu;
  CHECK(detail::philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(detail::philox4x32({ones, ones, ones, ones}, {ones, ones}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(detail::philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

// The numbers of the next test come from an independent implementation. Results of the past depend on them: whoever
// changes a stream sees it here.
TEST_CASE("core.random: the first numbers of every distribution are the documented ones") {
  Rng words(0x0123456789ABCDEF, 7);
  for (const std::uint32_t expected : {0x34b23a77u, 0x8ec43d26u, 0xfdbf9305u, 0xa6c02cf2u, 0xf9a36445u, 0x1ee17293u})
    CHECK(words() == expected);
  Rng uniform(42), normal(42), small(42), large(42), order(42), subset(42), categories(42);
  for (const double expected : {0x1.dfd524ee73abcp-2, 0x1.5d0acf5c4afd4p-2, 0x1.4ee9b3f7f36c8p-2})
    CHECK(uniform.uniform() == expected);
  for (const double expected :
       {-0.078823468852531783147, -0.41011294279565145033, -0.44803662789792774283, -0.11476523741853366933})
    CHECK(std::abs(normal.normal() - expected) <= 1e-15 * std::abs(expected));
  for (const Index expected : {3, 7, 7, 5, 9, 9, 5, 3, 7, 5, 3, 9}) CHECK(small.below(10) == expected);
  for (const Index expected : {256035713107, 923732496557, 875425432101, 384840854937})
    CHECK(large.below(1'000'000'000'000) == expected);
  CHECK(order.permutation(10) == std::vector<Index>{0, 2, 4, 1, 6, 9, 5, 8, 7, 3});
  CHECK(subset.sample(10, 3) == std::vector<Index>{0, 2, 4});
  for (const Index expected : {2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 2, 0, 2, 0, 2, 0})
    CHECK(categories.categorical(std::vector<double>{1, 0, 2.5, 0.5}) == expected);
  Rng split = Rng(42).split(7);
  CHECK(split.stream() == 0x5dcc72cfbe3b1d45u);
  for (const std::uint32_t expected : {0x23ad2246u, 0x80130847u, 0x1b812ee4u, 0xa1f6a252u}) CHECK(split() == expected);
}

TEST_CASE("core.random: normal numbers have the same bits everywhere") {
  Rng rng(42);
  const std::uint64_t bits[] = {0xbfb42dc65ce0ff80u, 0xbfda3f4a5b3e5024u, 0xbfdcaca1d20ed483u, 0xbfbd61412d6e26a9u, 0x3fda1a8bc2f2eb54u, 0x3fe805c509d131d3u};
  for (const std::uint64_t expected : bits) CHECK(std::bit_cast<std::uint64_t>(rng.normal()) == expected);
}

TEST_CASE("core.random: the normal quantile agrees with tabulated values to 1e-15") {
  const struct {
    double p, x;
  } table[] = {
      {0x1.0000000000000p-53, -8.2095361516013868556},
      {0x1.8000000000000p-53, -8.1607078408585831755},
      {0x1.203af9ee75616p-50, -7.9413453261709967713},
      {0x1.19799812dea11p-40, -7.0344838253011319326},
      {0x1.12e0be826d695p-30, -5.9978070150076868614},
      {0x1.ad7f29abcaf48p-24, -5.19933758219281694},
      {0x1.ec94ca210599ep-37, -6.6567230915181836356},
      {0x1.4f8b588e368f1p-17, -4.2648907939228246102},
      {0x1.0624dd2f1a9fcp-10, -3.0902323061678135354},
      {0x1.47ae147ae147bp-7, -2.3263478740408410931},
      {0x1.999999999999ap-6, -1.9599639845400542118},
      {0x1.999999999999ap-5, -1.644853626951472688},
      {0x1.2f1a9fbe76c8bp-4, -1.4466320671589785099},
      {0x1.3333333333333p-4, -1.4395314709384559349},
      {0x1.374bc6a7ef9dbp-4, -1.4325027208258116188},
      {0x1.999999999999ap-4, -1.2815515655446004353},
      {0x1.0000000000000p-2, -0.6744897501960817432},
      {0x1.ae147ae147ae1p-2, -0.20189347914185089071},
      {0x1.ffe5c91d14e3cp-2, -0.00025066283008800749239},
      {0x1.0000000000000p-1, 0.0},
      {0x1.00014f8b588e3p-1, 0.000025066282748820862706},
      {0x1.3333333333333p-1, 0.25334710313579974132},
      {0x1.8000000000000p-1, 0.6744897501960817432},
      {0x1.ccccccccccccdp-1, 1.2815515655446005935},
      {0x1.d99999999999ap-1, 1.4395314709384562291},
      {0x1.da1cac083126fp-1, 1.446632067158978807},
      {0x1.f333333333333p-1, 1.9599639845400538556},
      {0x1.fae147ae147aep-1, 2.3263478740408407676},
      {0x1.ffffde7210be9p-1, 4.7534243088170877657},
      {0x1.ffffffffea028p-1, 6.7060231434147472662},
  };
  for (const auto& [p, x] : table) {
    INFO("p = " << p);
    // 1e-15 of the method, and what one unit in the last place of p moves x by.
    CHECK(std::abs(detail::normal_quantile(p) - x) <= 1e-15 * std::abs(x));
  }
  for (const double p : {1e-12, 0.01, 0.07, 0.3}) CHECK(detail::normal_quantile(p) < detail::normal_quantile(p * (1 + 1e-13)));
}

TEST_CASE("core.random: the portable logarithm is within two units in the last place") {
  Rng rng(9);
  double worst = 0;
  const auto compare = [&](double x) {
    const double expected = std::log(x);
    const double unit = std::nextafter(std::abs(expected), HUGE_VAL) - std::abs(expected);
    worst = std::max(worst, std::abs(detail::portable_log(x) - expected) / unit);
  };
  for (int i = 0; i < 100'000; ++i) {
    compare(std::ldexp(rng.uniform(1, 2), static_cast<int>(rng.below(2040)) - 1020));
    compare(rng.uniform(0.5, 2));
    compare(1 + std::ldexp(rng.uniform(-1, 1), -static_cast<int>(rng.below(50))));
  }
  CHECK(worst <= 2);
  CHECK(detail::portable_log(1) == 0);
}

TEST_CASE("core.random: three integers resume a stream at any place") {
  Rng rng(3, 99);
  for (int i = 0; i < 40; ++i) {
    Rng resumed(rng.seed(), rng.stream(), rng.position());
    const Rng copy = rng;
    CHECK(resumed.position() == static_cast<std::uint64_t>(i));
    CHECK(resumed() == rng());
    CHECK(Rng(copy)() == Rng(3, 99, static_cast<std::uint64_t>(i))());
  }
  Rng far(3, 99, (std::uint64_t{1} << 34) - 1);  // the block number outgrows 32 bits
  far();
  const std::uint32_t after = far();
  CHECK(after == detail::philox4x32({0, 1, 99, 0}, {3, 0})[0]);
}

TEST_CASE("core.random: split streams do not depend on what was drawn and differ from each other") {
  Rng rng(17);
  const Rng before = rng.split(5);
  rng();
  CHECK(rng.split(5).stream() == before.stream());
  CHECK(rng.position() == 1);
  std::set<std::uint64_t> streams{rng.stream()};
  for (std::uint64_t id = 0; id < 20'000; ++id) streams.insert(rng.split(id).stream());
  for (std::uint64_t id = 0; id < 20'000; ++id) streams.insert(rng.split(1).split(id).stream());
  CHECK(streams.size() == 40'001);
  CHECK(Rng(18).split(5).stream() != before.stream());
}

/// Pearson's statistic is about normal with mean `bins - 1` and variance twice that; five deviations bound it.
bool plausible(const std::vector<double>& observed, const std::vector<double>& expected) {
  double statistic = 0;
  for (std::size_t i = 0; i < observed.size(); ++i)
    statistic += (observed[i] - expected[i]) * (observed[i] - expected[i]) / expected[i];
  const auto freedom = static_cast<double>(observed.size() - 1);
  INFO("chi-square " << statistic << " with " << freedom << " degrees of freedom");
  const double bound = 5 * std::sqrt(2 * freedom);
  CHECK(statistic < freedom + bound);
  CHECK(statistic > freedom - std::min(bound, 0.999 * freedom));
  return statistic < freedom + bound;
}

TEST_CASE("core.random: uniform numbers fill their bins evenly also in pairs and across split streams") {
  Rng rng(1);
  constexpr int n = 256'000;
  std::vector<double> single(64), pairs(256), streams(256);
  double last = 0;
  for (int i = 0; i < n; ++i) {
    const double u = rng.uniform();
    REQUIRE((u >= 0 && u < 1));
    ++single[static_cast<std::size_t>(u * 64)];
    ++pairs[static_cast<std::size_t>(u * 16) * 16 + static_cast<std::size_t>(last * 16)];
    last = u;
    Rng a = rng.split(static_cast<std::uint64_t>(i)), b = rng.split(static_cast<std::uint64_t>(i) + 1);
    ++streams[static_cast<std::size_t>(a.uniform() * 16) * 16 + static_cast<std::size_t>(b.uniform() * 16)];
  }
  plausible(single, std::vector<double>(64, n / 64.0));
  plausible(pairs, std::vector<double>(256, n / 256.0));
  plausible(streams, std::vector<double>(256, n / 256.0));
}

TEST_CASE("core.random: every bit of a word is even-handed") {
  Rng rng(2);
  constexpr int n = 100'000;
  std::array<int, 32> ones{};
  for (int i = 0; i < n; ++i) {
    const std::uint32_t word = rng();
    for (std::size_t bit = 0; bit < 32; ++bit) ones[bit] += word >> bit & 1;
  }
  for (const int count : ones) CHECK(std::abs(count - n / 2) < 5 * std::sqrt(n) / 2);
}

TEST_CASE("core.random: an interval keeps its upper end out however narrow it is") {
  Rng rng(4);
  const double next = std::nextafter(1.0, 2.0);
  for (int i = 0; i < 1000; ++i) CHECK(rng.uniform(1, next) == 1);
  for (int i = 0; i < 1000; ++i) {
    const double x = rng.uniform(-3, 5);
    CHECK((x >= -3 && x < 5));
  }
  CHECK(rng.uniform(2, 2) == 2);
}

TEST_CASE("core.random: normal numbers have the moments and the distribution of a normal") {
  Rng rng(6);
  constexpr int n = 400'000, bins = 40;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  std::vector<double> observed(bins), expected(bins);
  const auto below = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  const auto edge = [&](int i) { return i == 0 ? -HUGE_VAL : i == bins ? HUGE_VAL : -3.8 + 0.2 * (i - 1); };
  for (int i = 0; i < bins; ++i)
    expected[static_cast<std::size_t>(i)] = n * (below(edge(i + 1)) - below(edge(i)));
  for (int i = 0; i < n; ++i) {
    const double x = rng.normal();
    m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x;
    ++observed[static_cast<std::size_t>(std::clamp((x + 4) / 0.2, 0.0, bins - 1.0))];
  }
  // Five standard deviations; the moments 2, 4, 6, 8 of a normal are 1, 3, 15, 105.
  const double root = std::sqrt(n);
  CHECK(std::abs(m1 / n) < 5 / root);
  CHECK(std::abs(m2 / n - 1) < 5 * std::sqrt(2.0) / root);
  CHECK(std::abs(m3 / n) < 5 * std::sqrt(15.0) / root);
  CHECK(std::abs(m4 / n - 3) < 5 * std::sqrt(96.0) / root);
  plausible(observed, expected);
  Rng scaled(6), plain(6);
  CHECK(scaled.normal(2, 3) == std::fma(3, plain.normal(), 2));
}

TEST_CASE("core.random: integers below a bound are unbiased for bounds beside powers of two") {
  Rng rng(8);
  for (const Index count : {1, 2, 3, 7, 8, 9, 33}) {
    constexpr int n = 66'000;
    std::vector<double> observed(static_cast<std::size_t>(count));
    for (int i = 0; i < n; ++i) ++observed.at(static_cast<std::size_t>(rng.below(count)));
    if (count > 1)
      plausible(observed, std::vector<double>(static_cast<std::size_t>(count), n / static_cast<double>(count)));
  }
  const Index huge = std::numeric_limits<Index>::max();
  for (int i = 0; i < 100; ++i) CHECK(rng.below(huge) >= 0);
  CHECK(rng.below(Index{1} << 32) >= 0);
}

TEST_CASE("core.random: categories appear in proportion and those of weight zero never") {
  Rng rng(10);
  const std::vector<double> weights{0, 3, 0, 1, 4, 0};
  std::vector<double> observed(6);
  constexpr int n = 80'000;
  for (int i = 0; i < n; ++i) ++observed[static_cast<std::size_t>(rng.categorical(weights))];
  CHECK((observed[0] == 0 && observed[2] == 0 && observed[5] == 0));
  plausible({observed[1], observed[3], observed[4]}, {n * 3 / 8.0, n / 8.0, n / 2.0});
  CHECK(rng.categorical(std::vector<double>{0, 1e-320, 0}) == 1);
}

TEST_CASE("core.random: all orders of four are equally likely and samples are distinct") {
  Rng rng(12);
  std::map<std::vector<Index>, double> orders;
  constexpr int n = 48'000;
  for (int i = 0; i < n; ++i) ++orders[rng.permutation(4)];
  REQUIRE(orders.size() == 24);
  std::vector<double> observed;
  for (const auto& [order, count] : orders) observed.push_back(count);
  plausible(observed, std::vector<double>(24, n / 24.0));
  for (int i = 0; i < 100; ++i) {
    const auto chosen = rng.sample(20, 8);
    CHECK(std::set<Index>(chosen.begin(), chosen.end()).size() == 8);
    CHECK(std::ranges::all_of(chosen, [](Index c) { return c >= 0 && c < 20; }));
  }
  CHECK(rng.permutation(0).empty());
  CHECK(rng.sample(5, 0).empty());
}

TEST_CASE("core.random: bad arguments are named") {
  Rng rng(1);
  CHECK(message_of<InvalidArgument>([&] { rng.below(0); }) == "Rng::below: count must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { rng.permutation(-1); }) ==
        "Rng::permutation: count must be not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { rng.sample(3, 4); }) ==
        "Rng::sample: count must be between 0 and the population, got 4");
  const auto draw = [&](std::vector<double> weights) {
    return message_of<InvalidArgument>([&] { rng.categorical(weights); });
  };
  CHECK(draw({}) == "Rng::categorical: all weights are zero");
  CHECK(draw({0, 0}) == "Rng::categorical: all weights are zero");
  CHECK(draw({1, -0.5}) == "Rng::categorical: every weight must be finite and not negative, got -0.5");
  CHECK(draw({1, HUGE_VAL}) == "Rng::categorical: every weight must be finite and not negative, got inf");
  CHECK(draw({1, std::nan("")}).starts_with("Rng::categorical: every weight must be finite and not negative, got"));
  CHECK(draw({1e308, 1e308}) == "Rng::categorical: the sum of the weights overflows");
  CHECK(rng.position() == 0);  // nothing was drawn
}

TEST_CASE("core.random: matrices and tensors of normals are filled in row-major order and round to their type") {
  Rng a(21), b(21), c(21), d(21);
  const Matrix<double> x = normal_matrix<double>(a, 3, 4, 2.0);
  for (Index i = 0; i < 3; ++i)
    for (Index j = 0; j < 4; ++j) CHECK(x(i, j) == 2.0 * b.normal());
  const auto t = normal_tensor<bfloat16>(c, {2, 2, 3});
  for (Index i = 0; i < t.size(); ++i)
    CHECK(bits_of(t.data()[i]) == bits_of(round_to<bfloat16>(static_cast<float>(d.normal()))));
}

TEST_CASE("core.random: the standard algorithms accept it") {
  STATIC_REQUIRE(std::uniform_random_bit_generator<Rng>);
  Rng rng(1);
  std::vector<int> x(10);
  std::shuffle(x.begin(), x.end(), rng);
}

}  // namespace
}  // namespace ashlar
