#include "ashlar/numerics/discrete_samplers.hpp"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/hypergeometric.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/poisson.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::numerics {
namespace {

using test::message_of;
using Counts = std::vector<std::int64_t>;

constexpr std::int64_t largest = largest_count;

/// Probability of a chi-square statistic at least as large, cells of fewer than five expected draws pooled.
double chi_square_tail(const std::vector<double>& expected, const std::vector<double>& observed) {
  double statistic = 0, pooled_expected = 0, pooled_observed = 0;
  int cells = 0;
  const auto add = [&](double e, double o) { statistic += (o - e) * (o - e) / e, ++cells; };
  for (std::size_t i = 0; i < expected.size(); ++i) {
    pooled_expected += expected[i], pooled_observed += observed[i];
    if (pooled_expected < 5) continue;
    add(pooled_expected, pooled_observed);
    pooled_expected = pooled_observed = 0;
  }
  if (pooled_expected > 1) add(pooled_expected, pooled_observed);
  if (cells < 2) return 1;
  return cdf(complement(boost::math::chi_squared(cells - 1), statistic));
}

/// Draws against a probability mass function on low .. high, which must hold all but a millionth of the mass.
template <class Draw, class Pmf>
void check_law(std::int64_t low, std::int64_t high, Draw draw, Pmf pmf) {
  constexpr int draws = 40000;
  std::vector<double> expected, observed(static_cast<std::size_t>(high - low + 1), 0);
  for (std::int64_t k = low; k <= high; ++k) expected.push_back(draws * pmf(static_cast<double>(k)));
  CHECK(std::abs(std::accumulate(expected.begin(), expected.end(), 0.0) / draws - 1) < 1e-6);
  int outside = 0;
  for (int i = 0; i < draws; ++i) {
    const std::int64_t k = draw();
    if (k < low || k > high)
      ++outside;
    else
      ++observed[static_cast<std::size_t>(k - low)];
  }
  CHECK(outside <= 3);
  CHECK(chi_square_tail(expected, observed) > 1e-3);
}

std::pair<std::int64_t, std::int64_t> window(double mean, double variance, std::int64_t low, std::int64_t high) {
  const double reach = 6 * std::sqrt(variance) + 12;
  return {std::max(low, static_cast<std::int64_t>(std::floor(mean - reach))),
          std::min(high, static_cast<std::int64_t>(std::ceil(mean + reach)))};
}

TEST_CASE("numerics.discrete_samplers: binomial draws follow the binomial law") {
  Rng rng(1);
  for (const auto& [n, p] : std::vector<std::pair<std::int64_t, double>>{{1, 0.3},
                                                                         {2, 0.5},
                                                                         {7, 0.97},
                                                                         {20, 0.5},
                                                                         {100, 0.01},
                                                                         {100, 0.123},
                                                                         {1000, 0.999},
                                                                         {5000, 0.4},
                                                                         {1000000, 3e-6},
                                                                         {1000000000, 2.5e-8},
                                                                         {40000, 0.75}}) {
    INFO("n " << n << " p " << p);
    const boost::math::binomial law(static_cast<double>(n), p);
    const auto [low, high] = window(mean(law), variance(law), 0, n);
    check_law(
        low, high, [&, n = n, p = p] { return draw_binomial(rng, n, p); }, [&](double k) { return pdf(law, k); });
  }
}

TEST_CASE("numerics.discrete_samplers: hypergeometric draws follow the hypergeometric law") {
  Rng rng(2);
  for (const auto& [population, marked, drawn] :
       std::vector<std::tuple<unsigned, unsigned, unsigned>>{{2, 1, 1},
                                                             {10, 4, 3},
                                                             {10, 7, 8},
                                                             {65, 5, 32},
                                                             {100, 99, 50},
                                                             {500, 30, 250},
                                                             {4000, 2000, 2000},
                                                             {100000, 40, 50000},
                                                             {100000, 30000, 17},
                                                             {100000, 5000, 900}}) {
    INFO(population << " of which " << marked << " marked, " << drawn << " drawn");
    const boost::math::hypergeometric law(marked, drawn, population);
    const double mean = 1.0 * marked * drawn / population;
    const std::int64_t low = std::max<std::int64_t>(0, std::int64_t{marked} + drawn - population);
    const auto [from, to] = window(mean, mean, low, std::min(marked, drawn));
    check_law(
        from, to,
        [&, population = population, marked = marked, drawn = drawn] {
          return draw_hypergeometric(rng, population, marked, drawn);
        },
        [&](double k) { return pdf(law, k); });
  }
}

TEST_CASE("numerics.discrete_samplers: Poisson draws follow the Poisson law") {
  Rng rng(3);
  for (const double mean : {1e-3, 0.1, 0.99, 1.0, 1.01, 3.5, 10.0, 47.3, 1000.0, 65536.5}) {
    INFO("mean " << mean);
    const boost::math::poisson law(mean);
    const auto [low, high] = window(mean, mean, 0, largest);
    check_law(
        low, high, [&, mean = mean] { return draw_poisson(rng, mean); }, [&](double k) { return pdf(law, k); });
  }
}

TEST_CASE("numerics.discrete_samplers: multivariate draws follow the product of binomial coefficients") {
  const Counts counts{3, 0, 2, 4};
  const std::int64_t drawn = 5;
  const auto choose = [](std::int64_t n, std::int64_t k) {
    double value = 1;
    for (std::int64_t i = 0; i < k; ++i) value *= static_cast<double>(n - i) / static_cast<double>(i + 1);
    return value;
  };
  std::map<Counts, double> observed;
  Rng rng(4);
  Counts taken(4);
  constexpr int draws = 60000;
  for (int i = 0; i < draws; ++i) {
    draw_multivariate_hypergeometric(rng, counts, drawn, taken);
    ++observed[taken];
  }
  std::vector<double> expected_list, observed_list;
  for (std::int64_t a = 0; a <= 3; ++a)
    for (std::int64_t c = 0; c <= 2; ++c)
      for (std::int64_t d = 0; d <= 4; ++d)
        if (a + c + d == drawn) {
          expected_list.push_back(draws * choose(3, a) * choose(2, c) * choose(4, d) / choose(9, drawn));
          observed_list.push_back(observed[{a, 0, c, d}]);
        }
  CHECK(std::accumulate(observed_list.begin(), observed_list.end(), 0.0) == draws);
  CHECK(chi_square_tail(expected_list, observed_list) > 1e-3);
  Counts in_place = counts;
  Rng again(4);
  draw_multivariate_hypergeometric(again, counts, drawn, taken);
  again = Rng(4);
  draw_multivariate_hypergeometric(again, in_place, drawn, in_place);
  CHECK(in_place == taken);
}

/// Draws whose law is normal up to 1e-6 of its deviation, in ten cells of equal probability.
template <class Draw>
void check_nearly_normal(std::int64_t mean, double mean_rest, double deviation, Draw draw) {
  constexpr int draws = 20000, cells = 10;
  std::vector<double> expected(cells, double{draws} / cells), observed(cells, 0);
  double sum = 0, squares = 0;
  for (int i = 0; i < draws; ++i) {
    const double z = (static_cast<double>(draw() - mean) - mean_rest) / deviation;
    sum += z, squares += z * z;
    ++observed[static_cast<std::size_t>(std::min(cells - 1.0, std::floor(cells * cdf(boost::math::normal(), z))))];
  }
  CHECK(std::abs(sum / draws) < 4 / std::sqrt(draws));
  CHECK(std::abs(squares / draws - 1) < 4 * std::sqrt(2.0 / draws));
  CHECK(chi_square_tail(expected, observed) > 1e-3);
}

TEST_CASE("numerics.discrete_samplers: counts up to 2^53 have the right mean and spread") {
  Rng rng(5);
  check_nearly_normal(largest / 2, 0, std::sqrt(0x1p53) / 2, [&] { return draw_binomial(rng, largest, 0.5); });
  check_nearly_normal(largest - (std::int64_t{1} << 33), 0, std::sqrt(0x1p33),
                      [&] { return draw_binomial(rng, largest, 1 - 0x1p-20); });
  check_nearly_normal(largest / 4, 0, std::sqrt(0x1p53) / 4,
                      [&] { return draw_hypergeometric(rng, largest, largest / 2, largest / 2); });
  // mean 2^52 - 2^23, variance 2^52 (1 - 2^-29) / 2
  check_nearly_normal((std::int64_t{1} << 52) - (1 << 23), 0, std::sqrt(0x1p51),
                      [&] { return draw_binomial(rng, largest - (1 << 24), 0.5); });
  check_nearly_normal(std::int64_t{1} << 52, 0, 0x1p26, [&] { return draw_poisson(rng, 0x1p52); });
  check_nearly_normal(largest / 3, 0.5, std::sqrt(0x1p53 * 2 / 9 / 4),
                      [&] { return draw_hypergeometric(rng, largest, largest / 3 * 2 + 1, largest / 2); });
}

TEST_CASE("numerics.discrete_samplers: probabilities agree with Boost.Math to rounding") {
  for (const double mean : {1e-8, 0.3, 1.0, 5.5, 40.0, 1234.5, 1e6}) {
    const boost::math::poisson_distribution<long double> law(mean);
    for (const double k : {0.0, 1.0, 2.0, 7.0, 15.0, 16.0, 17.0, 42.0, 1200.0, 1000500.0}) {
      const auto expected = std::log(pdf(law, static_cast<long double>(k))) + 0.91893853320467274178L;
      if (!std::isfinite(static_cast<double>(expected))) continue;
      INFO("mean " << mean << " k " << k);
      CHECK(std::abs(detail::log_cell(k, k - mean, mean) - static_cast<double>(expected)) <=
            2e-14 * (k + mean + std::abs(static_cast<double>(expected))));
    }
  }
  // Where Stirling's error is a table and where it is a series, to its last digit.
  for (int n = 1; n < 40; ++n) {
    const long double x = n;
    const long double expected =
        std::lgamma(x + 1) - (x + 0.5L) * std::log(x) + x - 0.91893853320467274178032973640562L;
    CHECK(std::abs(detail::stirling_error(n) - static_cast<double>(expected)) < 2e-16 + 2e-17 * n);
  }
}

TEST_CASE("numerics.discrete_samplers: the hat covers every law") {
  // |x - mean - 1/2| sqrt(f(floor x) / f(mode)) <= width / 2 for all x.
  const auto worst = [](std::int64_t low, std::int64_t high, double mean, double variance, auto log_f) {
    double peak = -INFINITY, most = 0;
    for (std::int64_t k = low; k <= high; ++k) peak = std::max(peak, log_f(static_cast<double>(k)));
    for (std::int64_t k = low; k <= high; ++k) {
      const auto x = static_cast<double>(k);
      const double far = std::max(std::abs(x - mean - 0.5), std::abs(x + 1 - mean - 0.5));
      most = std::max(most, far * std::exp((log_f(x) - peak) / 2));
    }
    return most / (detail::hat_width(variance) / 2);
  };
  Rng rng(6);
  double most = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const auto n = static_cast<std::int64_t>(std::exp(rng.uniform(0, 6)));
    const double p = trial % 2 == 0 ? rng.uniform(0.001, 0.999) : std::pow(10, -5 * rng.uniform());
    if (p == 1) continue;
    const auto total = static_cast<double>(n);
    most = std::max(most, worst(0, n, total * p, total * p * (1 - p), [&](double k) {
                      return detail::log_cell(k, k - total * p, total * p) +
                             detail::log_cell(total - k, total * p - k, total * (1 - p));
                    }));
    const std::int64_t marked = rng.below(n + 1), drawn = rng.below(n + 1);
    const std::int64_t low = std::max<std::int64_t>(0, marked + drawn - n), high = std::min(marked, drawn);
    if (low < high) {
      const auto m = static_cast<double>(marked), d = static_cast<double>(drawn);
      most = std::max(most, worst(low, high, m * d / total,
                                  m * d / total * (total - m) / total * (total - d) / (total - 1), [&](double k) {
                                    return -std::lgamma(k + 1) - std::lgamma(m - k + 1) - std::lgamma(d - k + 1) -
                                           std::lgamma(total - m - d + k + 1);
                                  }));
    }
    const double mean = std::exp(rng.uniform(-8, 6));
    most = std::max(most, worst(0, static_cast<std::int64_t>(mean + 20 * std::sqrt(mean) + 50), mean, mean,
                                [&](double k) { return detail::log_cell(k, k - mean, mean); }));
  }
  CHECK(most <= 1 + 1e-12);
  CHECK(most > 0.99);  // and is no wider than it must be
}

TEST_CASE("numerics.discrete_samplers: a seed gives these counts everywhere") {
  Rng rng(42);
  Counts drawn;
  for (int i = 0; i < 4; ++i) {
    drawn.push_back(draw_binomial(rng, 1000, 0.3));
    drawn.push_back(draw_binomial(rng, largest, 0.7));
    drawn.push_back(draw_hypergeometric(rng, 1000000, 300000, 5000));
    drawn.push_back(draw_poisson(rng, 12.5));
  }
  CHECK(drawn == Counts{292, 6305039473253501, 1545, 10, 283, 6305039386095927, 1470, 12, 300, 6305039511256476, 1494,
                        10, 279, 6305039455436840, 1477, 12});
}

TEST_CASE("numerics.discrete_samplers: certain outcomes need no randomness") {
  Rng rng(7);
  CHECK(draw_binomial(rng, 0, 0.5) == 0);
  CHECK(draw_binomial(rng, largest, 0) == 0);
  CHECK(draw_binomial(rng, largest, 1) == largest);
  CHECK(draw_hypergeometric(rng, 0, 0, 0) == 0);
  CHECK(draw_hypergeometric(rng, 9, 9, 4) == 4);
  CHECK(draw_hypergeometric(rng, 9, 4, 9) == 4);
  CHECK(draw_hypergeometric(rng, 9, 0, 4) == 0);
  CHECK(draw_hypergeometric(rng, 9, 4, 0) == 0);
  CHECK(draw_poisson(rng, 0) == 0);
  CHECK(rng.position() == 0);
  CHECK(draw_binomial(rng, largest, 1e-300) == 0);
  CHECK(draw_poisson(rng, 1e-300) == 0);
  draw_multivariate_hypergeometric(rng, {}, 0, {});
}

TEST_CASE("numerics.discrete_samplers: draws take a few attempts whatever the counts and allocate nothing") {
  Rng rng(8);
  Counts counts(12, 1000), taken(12);
  CHECK(test::allocations([&] {
          for (int i = 0; i < 100; ++i) {
            draw_multivariate_hypergeometric(rng, counts, 6000, taken);
            draw_binomial(rng, 1000, 0.3);
            draw_poisson(rng, 3);
          }
        }) == 0);
  // Four words an attempt; at most 2 width f(mode) attempts, which is 4.3 for a mean near 0 and 1.4 for large ones.
  const auto words = [&](auto draw) {
    const std::uint64_t before = rng.position();
    for (int i = 0; i < 2000; ++i) draw();
    return static_cast<double>(rng.position() - before) / 2000;
  };
  CHECK(words([&] { draw_binomial(rng, 1000000, 1e-9); }) < 4 * 4.5);
  CHECK(words([&] { draw_binomial(rng, largest, 0.5); }) < 4 * 1.5);
  CHECK(words([&] { draw_hypergeometric(rng, largest, largest / 3, largest / 5); }) < 4 * 1.5);
  CHECK(words([&] { draw_poisson(rng, 1e12); }) < 4 * 1.5);
}

TEST_CASE("numerics.discrete_samplers: bad arguments are named") {
  Rng rng(9);
  const auto binomial = [&](std::int64_t n, double p) {
    return message_of<InvalidArgument>([&] { draw_binomial(rng, n, p); });
  };
  CHECK(binomial(-1, 0.5) == "draw_binomial: trials must be between 0 and 2^53, got -1");
  CHECK(binomial(largest + 1, 0.5) == "draw_binomial: trials must be between 0 and 2^53, got 9007199254740993");
  CHECK(binomial(10, -0.5) == "draw_binomial: probability must be between 0 and 1, got -0.5");
  CHECK(binomial(10, 1.5) == "draw_binomial: probability must be between 0 and 1, got 1.5");
  CHECK(binomial(10, NAN) == "draw_binomial: probability must be between 0 and 1, got nan");
  const auto hypergeometric = [&](std::int64_t population, std::int64_t marked, std::int64_t drawn) {
    return message_of<InvalidArgument>([&] { draw_hypergeometric(rng, population, marked, drawn); });
  };
  CHECK(hypergeometric(-1, 0, 0) == "draw_hypergeometric: population must be between 0 and 2^53, got -1");
  CHECK(hypergeometric(largest + 1, 0, 0) ==
        "draw_hypergeometric: population must be between 0 and 2^53, got 9007199254740993");
  CHECK(hypergeometric(10, 11, 1) == "draw_hypergeometric: marked must be between 0 and the population of 10, got 11");
  CHECK(hypergeometric(10, -1, 1) == "draw_hypergeometric: marked must be between 0 and the population of 10, got -1");
  CHECK(hypergeometric(10, 1, 11) == "draw_hypergeometric: drawn must be between 0 and the population of 10, got 11");
  CHECK(hypergeometric(10, 1, -1) == "draw_hypergeometric: drawn must be between 0 and the population of 10, got -1");
  const auto multivariate = [&](const Counts& counts, std::int64_t drawn, std::size_t length) {
    Counts taken(length, -7);
    const std::string text =
        message_of<InvalidArgument>([&] { draw_multivariate_hypergeometric(rng, counts, drawn, taken); });
    CHECK(std::all_of(taken.begin(), taken.end(), [](std::int64_t t) { return t == -7; }));
    return text;
  };
  CHECK(multivariate({1, 2}, 1, 3) ==
        "draw_multivariate_hypergeometric: taken has length 3, expected 2 (same as counts)");
  CHECK(multivariate({1, -2}, 1, 2) == "draw_multivariate_hypergeometric: counts[1] must not be negative, got -2");
  CHECK(multivariate({1, largest}, 1, 2) == "draw_multivariate_hypergeometric: the sum of counts must be at most 2^53");
  CHECK(multivariate({1, 2}, 4, 2) ==
        "draw_multivariate_hypergeometric: drawn must be between 0 and the sum of counts 3, got 4");
  CHECK(multivariate({1, 2}, -1, 2) ==
        "draw_multivariate_hypergeometric: drawn must be between 0 and the sum of counts 3, got -1");
  const auto poisson = [&](double mean) { return message_of<InvalidArgument>([&] { draw_poisson(rng, mean); }); };
  CHECK(poisson(-1) == "draw_poisson: mean must be between 0 and 2^52, got -1");
  CHECK(poisson(NAN) == "draw_poisson: mean must be between 0 and 2^52, got nan");
  CHECK(poisson(0x1p53) == "draw_poisson: mean must be between 0 and 2^52, got 9007199254740992");
}

}  // namespace
}  // namespace ashlar::numerics
