#include "ashlar/sets/quantile_pooling.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/sets/quantile_pooling.cuh"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"
#include "support/threads.hpp"

namespace ashlar::sets {
namespace {

using test::copy_of;
using test::fixture;
using test::max_difference;
using test::message_of;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Fixtures lie channel-major, [set, channel, element]; the library's axes are [set, element, channel].
template <class T>
View<const T, 3> by_element(const Tensor<T>& channel_major) {
  return channel_major.template view<3>().transposed(1, 2);
}

/// Values, positions and gradient of the library against a fixture.
template <class Sets, class Gradient>
void check_against(const std::string& tag, const Sets& x, const std::vector<double>& levels, Gradient&& gx_sets,
                   const Tensor<double>& gx) {
  INFO(tag);
  const auto g = fixture("quantile_pooling/g");
  const auto out = fixture("quantile_pooling/" + tag + "_out");
  const auto positions = fixture<std::int32_t>("quantile_pooling/" + tag + "_idx");
  for (const bool by_definition : {true, false}) {
    const auto pooled = by_definition ? reference::quantile_pool_forward(x, levels) : quantile_pool_forward(x, levels);
    CHECK(max_difference(copy_of<2>(pooled.values), out) < 1e-12);
    CHECK(std::equal(positions.data(), positions.data() + positions.size(), pooled.positions.data()));
  }
  quantile_pool_backward(g.view<2>(), quantile_pool_forward(x, levels).positions, levels, gx_sets);
  CHECK(max_difference(gx, fixture("quantile_pooling/" + tag + "_gx")) < 1e-12);
}

TEST_CASE("sets.quantile_pooling: values positions and gradients of six intervals agree with numpy") {
  const auto x = fixture("quantile_pooling/x");
  const std::vector<std::tuple<std::string, double, double>> intervals{{"a_default", .9, 1},   {"b_full", 0, 1},
                                                                       {"c_narrow", .25, .75}, {"d_max", 1, 1},
                                                                       {"e_min", 0, 0},        {"f_median", .5, .5}};
  for (const auto& [tag, low, high] : intervals) {
    const auto levels = linspace_levels(x.extent(1), low, high);
    const auto expected = fixture("quantile_pooling/" + tag + "_levels");
    CHECK(std::equal(levels.begin(), levels.end(), expected.data()));
    Tensor<double> gx(x.shape());
    check_against(tag, by_element(x), levels, gx.view<3>().transposed(1, 2), gx);
  }
}

TEST_CASE("sets.quantile_pooling: ties are ordered by position") {
  const auto x = fixture("quantile_pooling/t_x");
  Tensor<double> gx(x.shape());
  check_against("t", by_element(x), linspace_levels(x.extent(1), 0, 1), gx.view<3>().transposed(1, 2), gx);
}

TEST_CASE("sets.quantile_pooling: padding is never read") {
  const auto x = fixture("quantile_pooling/r_x");
  const auto count = fixture("quantile_pooling/r_count");
  std::vector<Index> counts;
  for (Index s = 0; s < count.size(); ++s) counts.push_back(static_cast<Index>(count.data()[s]));
  Tensor<double> gx(x.shape());
  check_against("r", padded(by_element(x), counts), linspace_levels(x.extent(1), .5, 1),
                padded(gx.view<3>().transposed(1, 2), counts), gx);
}

// ---- Fast form against the definition ---------------------------------------------------------------------------

enum class Values { normal, rectified, few, infinite, zeros, with_nan };

template <Scalar T>
Tensor<T> random_sets(Rng& rng, const Shape& shape, Values kind) {
  Tensor<T> x = Tensor<T>::uninitialized(shape);
  for (Index i = 0; i < x.size(); ++i) {
    double v = rng.normal();
    switch (kind) {
      case Values::normal:
        break;
      case Values::rectified:
        v = std::max(v, 0.0);
        break;
      case Values::few:
        v = std::floor(2 * v);
        break;
      case Values::infinite:
        v = rng.below(3) == 0 ? v : rng.below(2) == 0 ? infinity : -infinity;
        break;
      case Values::zeros:
        v = rng.below(2) == 0 ? 0.0 : -0.0;
        break;
      case Values::with_nan:
        v = rng.below(300) == 0 ? nan : v;
        break;
    }
    x.data()[i] = from_float<T>(static_cast<accumulate_t<T>>(v));
  }
  return x;
}

template <class T>
bool same_bits_or_nan(const Matrix<T>& a, const Matrix<T>& b) {
  if (a.rows() != b.rows() || a.cols() != b.cols()) return false;
  for (Index i = 0; i < a.size(); ++i) {
    const T u = a.data()[i], v = b.data()[i];
    const bool both_nan = std::isnan(to_float(u)) && std::isnan(to_float(v));
    if (!both_nan && std::memcmp(&u, &v, sizeof(T)) != 0) return false;
  }
  return true;
}

template <Scalar T>
void check_random_batches(int trials) {
  for (int trial = 0; trial < trials; ++trial) {
    Rng rng(static_cast<std::uint64_t>(trial));
    const Index sets = 1 + rng.below(3), channels = 1 + rng.below(40);
    const Index elements = 1 + rng.below(trial % 10 == 0 ? 3000 : trial % 3 == 0 ? 300 : 70);
    const auto kind = static_cast<Values>(rng.below(6));
    const bool channel_major = rng.below(2) == 0;
    const double low = rng.below(3) == 0 ? 0 : rng.uniform(), high = rng.below(3) == 0 ? 1 : rng.uniform(low, 1);
    QuantilePoolOptions options;
    options.interpolation = static_cast<Interpolation>(rng.below(5));
    options.every_level = rng.below(4) == 0;
    INFO("seed " << trial << ": " << sets << " sets, " << elements << " elements, " << channels << " channels, kind "
                 << static_cast<int>(kind) << ", levels " << low << " to " << high << ", channel-major "
                 << channel_major << ", every level " << options.every_level);
    const auto levels = linspace_levels(options.every_level ? 1 + rng.below(20) : channels, low, high);
    const auto memory = channel_major ? random_sets<T>(rng, {sets, channels, elements}, kind)
                                      : random_sets<T>(rng, {sets, elements, channels}, kind);
    const View<const T, 3> x = channel_major ? by_element(memory) : memory.template view<3>();
    const auto check = [&](const auto& batch) {
      const auto fast = quantile_pool_forward(batch, levels, options);
      const auto slow = reference::quantile_pool_forward(batch, levels, options);
      REQUIRE(same_bits_or_nan(fast.values, slow.values));
      REQUIRE(test::identical(fast.positions, slow.positions));
      REQUIRE(same_bits_or_nan(quantile_pool(batch, levels, options), slow.values));
    };
    check(x);
    options.empty = -1;
    std::vector<Index> counts, offsets{rng.below(2)};
    Tensor<bool> mask({sets, elements});
    for (Index s = 0; s < sets; ++s) {
      counts.push_back(rng.below(elements + 1));
      offsets.push_back(offsets.back() + rng.below((elements - offsets.back()) / 2 + 1));
      for (Index i = 0; i < elements; ++i) mask.view<2>()(s, i) = rng.below(4) != 0;
    }
    check(padded(x, counts));
    check(masked(x, mask));
    if (offsets[0] <= elements) check(ragged(x[0], offsets));
  }
}

TEST_CASE("sets.quantile_pooling: the fast form gives the bits of the definition") {
  check_random_batches<float>(400);
  check_random_batches<double>(400);
}

TEST_CASE("sets.quantile_pooling: half and bfloat16 storage give the bits of the definition") {
  check_random_batches<half>(60);
  check_random_batches<bfloat16>(60);
}

TEST_CASE("sets.quantile_pooling: views with gaps and reversed strides are read in place") {
  Rng rng(5);
  const auto memory = normal_tensor<float>(rng, {3, 150, 2 * 21});
  const View<const float, 3> every_other(memory.data() + 1, {3, 150, 21}, {150 * 42, 42, 2});
  const View<const float, 3> backwards(memory.data() + 149 * 42, {3, 150, 42}, {150 * 42, -42, 1});
  for (const auto& x : {every_other, backwards}) {
    const auto levels = linspace_levels(x.extent(2), 0.2, 1);
    const auto fast = quantile_pool_forward(x, levels);
    const auto slow = reference::quantile_pool_forward(x, levels);
    CHECK(same_bits_or_nan(fast.values, slow.values));
    CHECK(test::identical(fast.positions, slow.positions));
  }
}

// The search's slow paths: samples that mislead it, ranks on the edge of a run of equal values.
TEST_CASE("sets.quantile_pooling: rows made to mislead the sample are still searched right") {
  const Index n = 4096;
  const auto row = [&](const std::function<double(Index)>& value) {
    Tensor<double> x({1, n, 1});
    for (Index i = 0; i < n; ++i) x.data()[i] = value(i);
    return x;
  };
  const Index stretch = n / detail::network_size;
  const auto sampled = [&](Index i) { return i % stretch == (i / stretch * 157 % 256 * stretch >> 8); };
  const std::vector<Tensor<double>> rows{
      row([](Index i) { return static_cast<double>(i); }),
      row([](Index i) { return static_cast<double>(-i); }),
      row([&](Index i) { return sampled(i) ? 1e6 + static_cast<double>(i) : static_cast<double>(i); }),
      row([&](Index i) { return sampled(i) ? -1e6 - static_cast<double>(i) : static_cast<double>(i); }),
      row([&](Index i) { return sampled(i) ? static_cast<double>(i) : -infinity; }),
      row([&](Index i) { return sampled(i) ? static_cast<double>(i) : infinity; }),
      row([](Index i) { return i < n / 2 ? 0.0 : 1.0; }),
      row([](Index i) { return i % 2 == 0 ? 0.0 : static_cast<double>(i); }),
      row([](Index i) { return i % 3 == 0   ? -infinity
                               : i % 3 == 1 ? infinity
                                            : static_cast<double>(i); }),
      row([](Index i) { return std::exp(-0.01 * static_cast<double>(i)); }),
      row([](Index) { return 7.0; }),
  };
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (Index rank = 0; rank < n; rank += rank < 20 || rank > n - 20 || std::abs(rank - n / 2) < 5 ? 1 : 37) {
      const std::vector<double> level{static_cast<double>(rank) / static_cast<double>(n - 1)};
      INFO("row " << r << ", rank " << rank);
      const auto fast = quantile_pool_forward(rows[r], level);
      const auto slow = reference::quantile_pool_forward(rows[r], level);
      REQUIRE(fast.values(0, 0) == slow.values(0, 0));
      REQUIRE(test::identical(fast.positions, slow.positions));
    }
}

TEST_CASE("sets.quantile_pooling: a search that ran out of patience ends with introselect") {
  const Index n = 1000;
  Rng rng(23);
  std::vector<float> row(static_cast<std::size_t>(n)),
      kept(row.size() + static_cast<std::size_t>(detail::lanes<float>));
  for (float& v : row) v = static_cast<float>(rng.below(300));
  auto sorted = row;
  std::sort(sorted.begin(), sorted.end());
  for (Index rank = 0; rank < n; ++rank) {
    detail::Search<float> search{.row = row.data(),
                                 .count = n,
                                 .rank = rank,
                                 .kept = kept.data(),
                                 .left = row.data(),
                                 .size = n,
                                 .target = rank};
    search.select();
    const auto at = sorted.begin() + rank;
    REQUIRE(search.done);
    REQUIRE(search.low == *at);
    REQUIRE(search.tie == at - std::lower_bound(sorted.begin(), sorted.end(), *at));
    REQUIRE(search.high == sorted[static_cast<std::size_t>(std::min(rank + 1, n - 1))]);
  }
}

TEST_CASE("sets.quantile_pooling: a sort of positions is the stable one and refuses a NaN") {
  Rng rng(24);
  for (const Index n : {1, 2, 3, 255, 256, 257, 5000})
    for (const auto kind : {Values::normal, Values::few, Values::infinite, Values::zeros}) {
      INFO("n " << n << ", kind " << static_cast<int>(kind));
      const auto check = [&]<class C>(C) {
        auto x = random_sets<C>(rng, {n}, kind);
        std::vector<detail::SortKey<C>> keys(static_cast<std::size_t>(n));
        std::vector<std::int32_t> order(keys.size()), spare(keys.size()), expected(keys.size());
        std::iota(expected.begin(), expected.end(), 0);
        std::stable_sort(expected.begin(), expected.end(), [&](auto i, auto j) { return x.data()[i] < x.data()[j]; });
        const auto sorted = [&] {
          return detail::stable_argsort(x.data(), n, keys.data(), order.data(), spare.data());
        };
        const std::int32_t* const found = sorted();
        REQUIRE(std::equal(expected.begin(), expected.end(), found));
        x.data()[n / 2] = std::numeric_limits<C>::quiet_NaN();
        REQUIRE(sorted() == nullptr);
      };
      check(float{});
      check(double{});
    }
}

// ---- Identities -------------------------------------------------------------------------------------------------

TEST_CASE(
    "sets.quantile_pooling: the output does not depend on the order of the elements and the gradient follows it") {
  Rng rng(11);
  for (const Index n : {1, 2, 17, 64, 65, 900}) {
    INFO("n " << n);
    const Index channels = 24;
    const Matrix<double> x = normal_matrix<double>(rng, n, channels);
    Matrix<double> shuffled(n, channels);
    const auto order = rng.permutation(n);
    for (Index i = 0; i < n; ++i) shuffled.row(i) = x.row(order[static_cast<std::size_t>(i)]);
    const auto levels = linspace_levels(channels, 0, 1);
    const auto a = quantile_pool_forward(as_batch(x), levels), b = quantile_pool_forward(as_batch(shuffled), levels);
    CHECK(a.values == b.values);
    const Matrix<double> g = normal_matrix<double>(rng, 1, channels);
    Matrix<double> gx = Matrix<double>::Zero(n, channels), gs = gx;
    quantile_pool_backward(g, a.positions, levels, gx);
    quantile_pool_backward(g, b.positions, levels, gs);
    for (Index i = 0; i < n; ++i) CHECK(gs.row(i) == gx.row(order[static_cast<std::size_t>(i)]));
  }
}

TEST_CASE("sets.quantile_pooling: the gradient agrees with central differences away from ties") {
  Rng rng(12);
  const auto x = normal_tensor<double>(rng, {2, 13, 7});
  const auto g = normal_matrix<double>(rng, 2, 7);
  for (const auto interpolation : {Interpolation::linear, Interpolation::lower, Interpolation::higher,
                                   Interpolation::nearest, Interpolation::midpoint}) {
    const QuantilePoolOptions options{.interpolation = interpolation};
    const auto levels = linspace_levels(7, 0.13, 0.97);
    Tensor<double> gx(x.shape());
    quantile_pool_backward(g, quantile_pool_forward(x, levels, options).positions, levels, gx, options);
    for (Index i = 0; i < x.size(); ++i) {
      const double h = 1e-6;  // gaps between 13 normals are far wider
      const auto objective = [&](double step) {
        Tensor<double> moved = x;
        moved.data()[i] += step;
        return quantile_pool(moved, levels, options).cwiseProduct(g).sum();
      };
      CHECK(std::abs((objective(h) - objective(-h)) / (2 * h) - gx.data()[i]) < 1e-6);
    }
  }
}

TEST_CASE("sets.quantile_pooling: the level gradient agrees with central differences") {
  Rng rng(13);
  const auto x = normal_tensor<double>(rng, {3, 11, 5});
  const std::vector<Index> counts{11, 4, 7};
  const auto batch = padded(x, counts);
  for (const bool every_level : {false, true}) {
    const QuantilePoolOptions options{.every_level = every_level};
    const auto levels = every_level ? std::vector<double>{0.31, 0.77} : linspace_levels(5, 0.23, 0.94);
    const auto pooled = quantile_pool_forward(batch, levels, options);
    const auto g = normal_matrix<double>(rng, 3, pooled.values.cols());
    const auto gq = quantile_pool_level_gradient(batch, g, pooled.positions, levels, options);
    REQUIRE(gq.size() == static_cast<Index>(levels.size()));
    for (std::size_t m = 0; m < levels.size(); ++m) {
      const double h = 1e-7;
      auto up = levels, down = levels;
      up[m] += h, down[m] -= h;
      const double difference =
          (quantile_pool(batch, up, options) - quantile_pool(batch, down, options)).cwiseProduct(g).sum() / (2 * h);
      CHECK(std::abs(difference - gq[static_cast<Index>(m)]) < 1e-6);
    }
  }
}

TEST_CASE("sets.quantile_pooling: equal infinite neighbours give a level no gradient") {
  const std::vector<double> x{1, infinity, infinity}, level{0.75};
  const View<const double, 3> set(x.data(), {1, 3, 1});
  const auto pooled = quantile_pool_forward(set, level);
  CHECK(quantile_pool_level_gradient(set, Matrix<double>::Ones(1, 1).eval(), pooled.positions, level)[0] == 0);
}

TEST_CASE("sets.quantile_pooling: the gradient of a set adds up to what came in and adds to what is there") {
  Rng rng(14);
  for (const Index n : {1, 2, 5, 200}) {
    const auto x = random_sets<double>(rng, {4, n, 9}, Values::few);
    const auto levels = linspace_levels(9, 0.3, 1);
    const auto g = normal_matrix<double>(rng, 4, 9);
    Tensor<double> gx(x.shape(), 3.0);
    quantile_pool_backward(g, quantile_pool_forward(x, levels).positions, levels, gx);
    for (Index s = 0; s < 4; ++s)
      for (Index c = 0; c < 9; ++c) {
        double sum = 0;
        for (Index i = 0; i < n; ++i) sum += gx.view<3>()(s, i, c) - 3;
        // (1 - w) g + w g and the two additions to 3 round four times, near 3 + |g| < 8
        CHECK(std::abs(sum - g(s, c)) < 8 * 4.5e-16);
      }
  }
}

TEST_CASE("sets.quantile_pooling: the gradient of a masked set is that of the elements alone") {
  Rng rng(25);
  for (const bool every_level : {false, true}) {
    const auto x = normal_tensor<double>(rng, {1, 12, 5});
    const std::vector<Index> kept{1, 2, 4, 7, 8, 10, 11};
    Tensor<bool> mask({1, 12}, false);
    Tensor<double> alone({1, 7, 5});
    for (Index i = 0; i < 7; ++i) {
      const Index from = kept[static_cast<std::size_t>(i)];
      mask.view<2>()(0, from) = true;
      for (Index c = 0; c < 5; ++c) alone.view<3>()(0, i, c) = x.view<3>()(0, from, c);
    }
    const QuantilePoolOptions options{.every_level = every_level};
    const auto levels = linspace_levels(every_level ? 11 : 5, 0.05, 0.93);
    const auto a = quantile_pool_forward(masked(x, mask), levels, options);
    const auto b = quantile_pool_forward(alone, levels, options);
    CHECK(a.values == b.values);
    const auto g = normal_matrix<double>(rng, 1, a.values.cols());
    Tensor<double> ga(x.shape()), gb(alone.shape());
    quantile_pool_backward(g, a.positions, levels, masked(ga, mask), options);
    quantile_pool_backward(g, b.positions, levels, gb, options);
    for (Index i = 0; i < 7; ++i)
      for (Index c = 0; c < 5; ++c)
        CHECK(ga.view<3>()(0, kept[static_cast<std::size_t>(i)], c) == gb.view<3>()(0, i, c));
    const auto count = [](const Tensor<double>& t) {
      return std::count_if(t.data(), t.data() + t.size(), [](double v) { return v != 0; });
    };
    CHECK(count(ga) == count(gb));
    CHECK(quantile_pool_level_gradient(masked(x, mask), g, a.positions, levels, options) ==
          quantile_pool_level_gradient(alone, g, b.positions, levels, options));
  }
}

TEST_CASE("sets.quantile_pooling: level one is max pooling and level zero the minimum") {
  Rng rng(15);
  for (const auto kind : {Values::normal, Values::few, Values::infinite, Values::with_nan}) {
    const auto x = random_sets<float>(rng, {3, 80, 33}, kind);
    const auto top = quantile_pool_forward(x, linspace_levels(33, 1, 1));
    const auto max = max_pool_forward(x);
    CHECK(same_bits_or_nan(top.values, max.values));
    for (Index s = 0; s < 3; ++s)
      for (Index c = 0; c < 33; ++c) CHECK(top.positions.view<3>()(s, c, 0) == max.positions(s, c));
    Tensor<float> negative = x;
    for (Index i = 0; i < x.size(); ++i) negative.data()[i] = -x.data()[i];
    CHECK(same_bits_or_nan<float>(-quantile_pool(negative, linspace_levels(33, 0, 0)), max.values));
  }
}

TEST_CASE("sets.quantile_pooling: the output never falls as the level rises and stays between its neighbours") {
  Rng rng(16);
  const QuantilePoolOptions every{.every_level = true};
  for (const auto kind : {Values::normal, Values::few}) {
    for (const double scale : {1.0, 3e38}) {  // at 3e38 the gaps overflow float
      auto x = random_sets<float>(rng, {1, 9, 3}, kind);
      for (Index i = 0; i < x.size(); ++i)
        x.data()[i] = static_cast<float>(std::clamp(scale * static_cast<double>(x.data()[i]), -3.4e38, 3.4e38));
      const auto levels = linspace_levels(4001, 0, 1);
      const auto pooled = quantile_pool_forward(x, levels, every);
      for (Index c = 0; c < 3; ++c)
        for (Index m = 0; m < 4001; ++m) {
          const Index column = c * 4001 + m;
          const float value = pooled.values(0, column);
          REQUIRE(std::isfinite(value));
          if (m > 0) REQUIRE(value >= pooled.values(0, column - 1));
          const auto at = [&](Index side) { return x.view<3>()(0, pooled.positions.view<3>()(0, column, side), c); };
          REQUIRE((at(0) <= value && value <= at(1)));
        }
    }
  }
}

TEST_CASE("sets.quantile_pooling: every level of every channel equals one pass a level") {
  Rng rng(17);
  const auto x = normal_tensor<float>(rng, {2, 130, 21});
  // In any order; searched one by one, and more of them than it pays to search.
  const auto levels = GENERATE(std::vector<double>{0.5, 0, 0.75, 1},
                               std::vector<double>{0.5, 0, 0.75, 1, 0.1, 0.2, 0.9, 0.9, 0.3, 0.6, 0.4});
  const auto count = static_cast<Index>(levels.size());
  const auto all = quantile_pool_forward(x, levels, {.every_level = true});
  Tensor<float> g_all({2, 21 * count}), gx_all(x.shape()), gx_each(x.shape());
  for (Index i = 0; i < g_all.size(); ++i) g_all.data()[i] = static_cast<float>(rng.normal());
  for (Index m = 0; m < count; ++m) {
    const std::vector<double> same(21, levels[static_cast<std::size_t>(m)]);
    const auto one = quantile_pool_forward(x, same);
    Matrix<float> g(2, 21);
    for (Index s = 0; s < 2; ++s)
      for (Index c = 0; c < 21; ++c) {
        CHECK(all.values(s, c * count + m) == one.values(s, c));
        CHECK(all.positions.view<3>()(s, c * count + m, 1) == one.positions.view<3>()(s, c, 1));
        g(s, c) = g_all.view<2>()(s, c * count + m);
      }
    quantile_pool_backward(g, one.positions, same, gx_each);
  }
  quantile_pool_backward(g_all, all.positions, levels, gx_all, {.every_level = true});
  // At most `count` gradients of size 1 or so meet in another order.
  CHECK(max_difference(gx_all, gx_each) < static_cast<double>(2 * count) * 1.2e-7);
}

// ---- Definitions at the edges -----------------------------------------------------------------------------------

TEST_CASE("sets.quantile_pooling: one set gives a vector and everything with memory converts") {
  Eigen::MatrixXd x(3, 2);  // column-major
  x << 1, 10, 3, 30, 2, 20;
  const Vector<double> pooled = quantile_pool(x.topRows(2), std::vector<double>{.1, .5});
  CHECK(std::abs(pooled[0] - 1.2) < 1e-15);
  CHECK(pooled[1] == 20);
  CHECK(quantile_pool(x, std::vector<double>{.5, 1}) == Eigen::Vector2d(2, 30));
  CHECK(quantile_pool(x.transpose(), std::vector<double>{.5, .5, .5}) == Eigen::Vector3d(5.5, 16.5, 11));
}

TEST_CASE("sets.quantile_pooling: interpolation rules agree with numpy") {
  // numpy.quantile([1, 2, 4, 8, 16], q, method=...)
  const std::vector<double> x{1, 2, 4, 8, 16};
  const View<const double, 2> set(x.data(), {5, 1});
  const std::vector<double> levels{0, .1, .125, .375, .5, .6, 1};
  const auto check = [&](Interpolation interpolation, std::vector<double> expected) {
    const auto pooled = quantile_pool(set, levels, {.interpolation = interpolation, .every_level = true});
    for (std::size_t m = 0; m < levels.size(); ++m)
      CHECK(std::abs(pooled[static_cast<Index>(m)] - expected[m]) < 1e-14);
  };
  check(Interpolation::linear, {1, 1.4, 1.5, 3, 4, 5.6, 16});
  check(Interpolation::lower, {1, 1, 1, 2, 4, 4, 16});
  check(Interpolation::higher, {1, 2, 2, 4, 4, 8, 16});
  check(Interpolation::nearest, {1, 1, 1, 4, 4, 4, 16});
  check(Interpolation::midpoint, {1, 1.5, 1.5, 3, 4, 6, 16});
}

TEST_CASE("sets.quantile_pooling: infinities are never multiplied by zero") {
  const auto pool = [](std::vector<double> x, double level) {
    return quantile_pool(View<const double, 2>(x.data(), {static_cast<Index>(x.size()), 1}),
                         std::vector<double>{level})[0];
  };
  CHECK(pool({1, infinity, 2}, 0.5) == 2);
  CHECK(pool({1, infinity, infinity}, 0.75) == infinity);
  CHECK(pool({-infinity, -infinity, 1}, 0.25) == -infinity);
  CHECK(pool({1, 2, infinity}, 0.75) == infinity);
  CHECK(pool({-infinity, 2, 3}, 0.25) == -infinity);
  CHECK(std::isnan(pool({-infinity, infinity}, 0.5)));
  CHECK(pool({-infinity, infinity}, 1) == infinity);
}

TEST_CASE("sets.quantile_pooling: a neighbour that is read alone or tied comes back to the bit") {
  CHECK(detail::interpolate(-1.0, 1e-17, 1.0) == 1e-17);  // -1 + (1e-17 + 1) would be 0
  CHECK(std::signbit(detail::interpolate(-0.0, 0.0, 0.5)));
  CHECK(detail::interpolate(infinity, infinity, 0.5) == infinity);
}

TEST_CASE("sets.quantile_pooling: a NaN silences its channel alone") {
  for (const Index n : {3, 40, 500}) {
    Rng rng(18);
    auto x = normal_tensor<float>(rng, {1, n, 20});
    x.view<3>()(0, n / 2, 7) = std::numeric_limits<float>::quiet_NaN();
    for (const double level : {0.0, 0.5, 1.0}) {
      const std::vector<double> levels(20, level);
      const auto pooled = quantile_pool_forward(x, levels);
      for (Index c = 0; c < 20; ++c) CHECK(std::isnan(pooled.values(0, c)) == (c == 7));
      CHECK(pooled.positions.view<3>()(0, 7, 0) == -1);
      CHECK(pooled.positions.view<3>()(0, 7, 1) == -1);
      Tensor<float> gx(x.shape());
      quantile_pool_backward(Matrix<float>::Ones(1, 20).eval(), pooled.positions, levels, gx);
      for (Index i = 0; i < n; ++i) CHECK(gx.view<3>()(0, i, 7) == 0);
      CHECK(std::accumulate(gx.data(), gx.data() + gx.size(), 0.0) == 19);
    }
  }
}

TEST_CASE("sets.quantile_pooling: ties do not hide a NaN") {
  const Index n = 131;
  for (const Index at : {0, 64, 127, 130}) {
    Matrix<float> x = Matrix<float>::Constant(n, 20, 7);
    x(at, 3) = std::numeric_limits<float>::quiet_NaN();
    const Vector<float> pooled = quantile_pool(x, std::vector<double>(20, 0.5));
    for (Index c = 0; c < 20; ++c) CHECK((c == 3 ? std::isnan(pooled[c]) : pooled[c] == 7));
  }
}

TEST_CASE("sets.quantile_pooling: sets without elements take the value the caller chose") {
  Rng rng(19);
  const auto x = normal_tensor<double>(rng, {3, 4, 5});
  const std::vector<Index> counts{2, 0, 4};
  const auto levels = linspace_levels(5);
  const QuantilePoolOptions options{.empty = -7};
  const auto pooled = quantile_pool_forward(padded(x, counts), levels, options);
  CHECK((pooled.values.row(1).array() == -7).all());
  for (Index c = 0; c < 5; ++c) CHECK(pooled.positions.view<3>()(1, c, 0) == -1);
  Tensor<double> gx(x.shape());
  quantile_pool_backward(Matrix<double>::Ones(3, 5).eval(), pooled.positions, levels, padded(gx, counts), options);
  CHECK(matrix(View<const double, 2>(gx.view<3>()[1])).isZero());
  CHECK(matrix(View<const double, 2>(gx.view<3>()[0].slice(0, 2, 4))).isZero());  // what lies before set 1
  CHECK(quantile_pool_level_gradient(padded(x, counts), Matrix<double>::Ones(3, 5).eval(), pooled.positions, levels,
                                     options)
            .allFinite());
  // No set at all is no error.
  CHECK(quantile_pool(Tensor<double>({0, 4, 5}), levels).rows() == 0);
  CHECK(quantile_pool(Tensor<double>({3, 4, 0}), std::vector<double>{}).size() == 0);
}

TEST_CASE("sets.quantile_pooling: rounding of the level does not move the rank and nothing larger is absorbed") {
  using detail::rank_of;
  CHECK(rank_of(0.9, 11, Interpolation::linear).low == 9);
  CHECK(rank_of(0.9, 11, Interpolation::linear).weight == 0);
  CHECK(rank_of(0.1 + 0.2, 11, Interpolation::linear).low == 3);
  // In double 0.29 times 100 is below 29 and 0.07 times 100 above 7.
  for (const auto& [level, rank] : {std::pair<double, Index>{0.29, 29}, {0.57, 57}, {0.07, 7}}) {
    CHECK(rank_of(level, 101, Interpolation::linear).low == rank);
    CHECK(rank_of(level, 101, Interpolation::linear).weight == 0);
  }
  CHECK(rank_of(1, 1, Interpolation::linear).low == 0);
  const auto near = rank_of(0.5 + 1e-9, 100001, Interpolation::linear);
  CHECK(near.low == 50000);
  CHECK(std::abs(near.weight - 1e-4) < 1e-10);
}

TEST_CASE("sets.quantile_pooling: levels are spread evenly or in groups") {
  CHECK(linspace_levels(1, 0.3, 0.8) == std::vector<double>{0.3});
  CHECK(linspace_levels(3, 0, 1) == std::vector<double>{0, 0.5, 1});
  CHECK(linspace_levels(257).back() == 1.0);
  CHECK(grouped_levels(6, 3, 0, 1) == std::vector<double>{0, 0, 0.5, 0.5, 1, 1});
  CHECK(grouped_levels(4, 1, 0.25, 0.75) == std::vector<double>{0.25, 0.25, 0.25, 0.25});
  CHECK(grouped_levels(4, 4, 0.9, 1) == linspace_levels(4));
}

// ---- Bad input --------------------------------------------------------------------------------------------------

TEST_CASE("sets.quantile_pooling: bad input is named and nothing is written") {
  const Tensor<double> x({2, 4, 3}, 1.0);
  const auto levels = linspace_levels(3);
  const auto error = [](auto&& f) { return message_of<InvalidArgument>(f); };
  CHECK(error([] { linspace_levels(3, 0.9, 0.1); }) ==
        "linspace_levels: levels need 0 <= low <= high <= 1, got low 0.9 and high 0.1");
  CHECK(error([] { linspace_levels(3, -0.1, 0.1); }) ==
        "linspace_levels: levels need 0 <= low <= high <= 1, got low -0.1 and high 0.1");
  CHECK(error([] { linspace_levels(3, nan, 1); }) ==
        "linspace_levels: levels need 0 <= low <= high <= 1, got low nan and high 1");
  CHECK(error([] { linspace_levels(0); }) == "linspace_levels: channels must be at least 1, got 0");
  CHECK(error([] { grouped_levels(6, 4, 0, 1); }) == "grouped_levels: groups must divide the 6 channels, got 4");
  CHECK(error([&] {
          quantile_pool(x, std::vector<double>{.5, .5});
        }) == "quantile_pool: levels has shape [2], expected [3] (one per channel)");
  CHECK(error([&] {
          quantile_pool(x, std::vector<double>{.5, nan, .5});
        }) == "quantile_pool: levels[1] must be between 0 and 1, got nan");
  CHECK(error([&] {
          quantile_pool(x, std::vector<double>{.5, 1, 1.5});
        }) == "quantile_pool: levels[2] must be between 0 and 1, got 1.5");
  CHECK(error([&] {
          quantile_pool(padded(x, std::vector<Index>{4, 0}), levels);
        }) == "quantile_pool: set 1 has no element and no value for empty sets is given");

  const Index many = Index{1} << 31;  // a set that never existed: nothing is read before the check
  CHECK(error([&] {
          quantile_pool(View<const double, 3>(x.data(), {1, many, 3}, {0, 0, 1}), levels);
        }) == "quantile_pool: a set has 2147483648 elements, more than a 32-bit position can count");

  CHECK(error([&] { quantile_pool(x, std::vector<double>{}, {.every_level = true}); }) ==
        "quantile_pool: levels is empty");
  const auto pooled = quantile_pool_forward(x, levels);
  CHECK(error([&] {
          quantile_pool_level_gradient(x, pooled.values, pooled.positions, levels,
                                       {.interpolation = Interpolation::lower});
        }) == "quantile_pool_level_gradient: the interpolation must be linear");

  Matrix<double> out = Matrix<double>::Constant(2, 3, 5);
  Tensor<std::int32_t> positions({2, 3, 2}, 9);
  Workspace workspace;
  CHECK(error([&] { quantile_pool_forward(x, levels, out.leftCols(2), positions, workspace); }) ==
        "quantile_pool: values has shape [2,2], expected [2,3] (one per set and column)");
  CHECK((out.array() == 5).all());
  CHECK(positions.data()[0] == 9);

  Tensor<double> same = x;  // one channel, so that the values could lie where the elements do
  CHECK(error([&] {
          quantile_pool_forward(View<const double, 3>(same.data(), {2, 12, 1}), std::vector<double>{1},
                                View<double, 2>(same.data(), {2, 1}), {}, workspace);
        }) == "quantile_pool: values overlaps x");
  CHECK(test::identical(same, x));

  Tensor<double> gx(x.shape());
  const Matrix<double> g = Matrix<double>::Ones(2, 3);
  CHECK(error([&] { quantile_pool_backward(g.leftCols(2), positions, levels, gx); }) ==
        "quantile_pool_backward: g has shape [2,2], expected [2,3] (one per set and column)");
  positions = quantile_pool_forward(x, levels).positions;
  positions.view<3>()(1, 2, 1) = 4;
  CHECK(error([&] { quantile_pool_backward(g, positions, levels, gx); }) ==
        "quantile_pool_backward: positions[1,2,1] is 4, outside the 4 elements of the set");
  positions.view<3>()(1, 2, 1) = -2;
  CHECK(error([&] { quantile_pool_backward(g, positions, levels, gx); }) ==
        "quantile_pool_backward: positions[1,2,1] is -2, outside the 4 elements of the set");
  CHECK(std::all_of(gx.data(), gx.data() + gx.size(), [](double v) { return v == 0; }));
}

// ---- The device bodies, watched on the host -----------------------------------------------------------------------

/// A device view of host memory, for bodies that run under HostBlock.
template <class T, int Rank>
View<T, Rank, device> watched(const View<T, Rank>& view) {
  return {view.data(), view.shape(), view.strides()};
}

template <Scalar T>
void check_device_bodies(Index elements, Values kind, bool channel_major, bool with_counts) {
  const Index sets = 2, channels = 3;
  Rng rng(static_cast<std::uint64_t>(elements));
  INFO(elements << " elements, kind " << static_cast<int>(kind) << ", channel-major " << channel_major);
  const auto memory = channel_major ? random_sets<T>(rng, {sets, channels, elements}, kind)
                                    : random_sets<T>(rng, {sets, elements, channels}, kind);
  const View<const T, 3> x = channel_major ? by_element(memory) : memory.template view<3>();
  const std::vector<Index> counts{elements / 2, elements};
  const View<const Index, 1> count_view = with_counts ? View<const Index, 1>(counts) : View<const Index, 1>();
  const QuantilePoolOptions options{.empty = -5};
  for (const auto& levels : {linspace_levels(channels, 0, 1), linspace_levels(channels, 0.9, 1)}) {
    const auto batch = with_counts ? padded(x, counts) : as_batch(x);
    const auto expected = quantile_pool_forward(batch, levels, options);
    Matrix<T> values(sets, channels);
    Tensor<std::int32_t> positions({sets, channels, 2});
    const detail::QuantileForwardBody<T> forward{watched(x),
                                                 watched(count_view),
                                                 watched(View<const double, 1>(levels)),
                                                 watched(View<T, 2>(values)),
                                                 watched(positions.template view<3>()),
                                                 options.interpolation,
                                                 *options.empty};
    run_on_host(forward.blocks(), 32, forward);
    REQUIRE(same_bits_or_nan(values, expected.values));
    REQUIRE(test::identical(positions, expected.positions));

    const auto g = normal_matrix<T>(rng, sets, channels);
    Tensor<T> gx({sets, elements, channels}), expected_gx({sets, elements, channels});
    const auto expected_sets = with_counts ? padded(expected_gx, counts) : as_batch(expected_gx);
    quantile_pool_backward(g, expected.positions, levels, expected_sets, options);
    const detail::QuantileBackwardBody<T> backward{watched(View<const T, 2>(g)),
                                                   watched(View<const std::int32_t, 3>(positions.template view<3>())),
                                                   watched(count_view),
                                                   watched(View<const double, 1>(levels)),
                                                   watched(gx.template view<3>()),
                                                   options.interpolation};
    run_on_host(backward.blocks(), 32, backward);
    REQUIRE(test::identical(gx, expected_gx));
  }
}

TEST_CASE("sets.quantile_pooling: the device bodies give the bits of the host form") {
  for (const Index elements : {1, 2, 33, 300, 70000})
    for (const auto kind :
         {Values::normal, Values::rectified, Values::few, Values::infinite, Values::zeros, Values::with_nan}) {
      if (elements > 1000 && kind != Values::few) continue;  // three position digits, keys not held
      check_device_bodies<float>(elements, kind, elements % 2 == 0, kind != Values::few);
      if (elements < 1000) check_device_bodies<double>(elements, kind, elements % 2 != 0, kind == Values::few);
      if (elements < 1000) check_device_bodies<bfloat16>(elements, kind, true, true);
    }
}

// ---- Threads and memory -----------------------------------------------------------------------------------------

TEST_CASE("sets.quantile_pooling: any number of threads gives the same bits") {
  Rng rng(21);
  const auto x = normal_tensor<float>(rng, {5, 700, 70});
  const auto levels = linspace_levels(70, 0.1, 1);
  const auto g = normal_matrix<float>(rng, 5, 70);
  const auto run = [&] {
    auto pooled = quantile_pool_forward(x, levels);
    Tensor<float> gx(x.shape());
    quantile_pool_backward(g, pooled.positions, levels, gx);
    return std::make_tuple(std::move(pooled), std::move(gx), quantile_pool(x, levels, {.every_level = true}));
  };
  const auto one = test::with_threads(1, run);
  for (const int threads : {2, 3, 8}) {
    const auto many = test::with_threads(threads, run);
    CHECK(std::get<0>(one).values == std::get<0>(many).values);
    CHECK(test::identical(std::get<0>(one).positions, std::get<0>(many).positions));
    CHECK(test::identical(std::get<1>(one), std::get<1>(many)));
    CHECK(std::get<2>(one) == std::get<2>(many));
  }
}

TEST_CASE("sets.quantile_pooling: the passes into the memory of the caller allocate nothing") {
  test::with_threads(1, [] {
    Rng rng(22);
    const auto x = normal_tensor<float>(rng, {3, 300, 40});
    const auto levels = linspace_levels(40, 0.5, 1);
    Matrix<float> out(3, 40);
    Tensor<std::int32_t> positions({3, 40, 2});
    Tensor<float> gx(x.shape());
    Workspace workspace;
    quantile_pool_forward(x, levels, out, positions, workspace);
    CHECK(test::allocations([&] { quantile_pool_forward(x, levels, out, positions, workspace); }) == 0);
    CHECK(test::allocations([&] { quantile_pool_backward(out, positions, levels, gx); }) == 0);
    Matrix<float> all(3, 40 * 40);
    CHECK(test::allocations([&] { quantile_pool_forward(x, levels, all, {}, workspace, {.every_level = true}); }) == 0);
  });
}

}  // namespace
}  // namespace ashlar::sets
