#include "ashlar/sets/pooling.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::sets {
namespace {

using test::message_of;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// A tensor [set, channel, element] along the library's axes [set, element, channel].
template <class T>
View<const T, 3> by_element(const Tensor<T>& channel_major) {
  return channel_major.template view<3>().transposed(1, 2);
}

TEST_CASE("sets.pooling: maximum mean and sum agree with a loop on every kind of batch") {
  Rng rng(20);
  const auto memory = normal_tensor<double>(rng, {3, 6, 8});
  Tensor<bool> mask({3, 8});
  for (Index i = 0; i < mask.size(); ++i) mask.data()[i] = i % 3 != 0;
  const std::vector<Index> counts{1, 8, 5}, offsets{0, 3, 4, 8};
  const auto check = [&](const auto& x, auto&& gx_batch, Tensor<double>& gx) {
    const auto batch = as_batch(x);
    const Index channels = batch.channels();
    const auto g = normal_matrix<double>(rng, batch.sets(), channels);
    const auto top = max_pool_forward(x);
    const auto mean = mean_pool(x), sum = sum_pool(x);
    Tensor<double> expected(gx.shape());
    mean_pool_backward(g, gx_batch);  // and the others add
    max_pool_backward(g, top.positions, gx_batch);
    sum_pool_backward(g, gx_batch);
    for (Index s = 0; s < batch.sets(); ++s) {
      const auto set = batch.elements(s);
      const auto set_gx = as_batch(gx_batch).elements(s);
      for (Index c = 0; c < channels; ++c) {
        double total = 0, best = -infinity;
        Index count = 0, at = -1;
        for (Index i = 0; i < set.extent(0); ++i) {
          if (!batch.counts_element(s, i)) continue;
          ++count;
          total += set(i, c);
          if (set(i, c) >= best) best = set(i, c), at = i;
        }
        CHECK(top.values(s, c) == best);
        CHECK(top.positions(s, c) == at);
        CHECK(sum(s, c) == total);
        CHECK(mean(s, c) == total / static_cast<double>(count));
        for (Index i = 0; i < set.extent(0); ++i) {
          const double share = batch.counts_element(s, i) ? g(s, c) + g(s, c) / static_cast<double>(count) : 0;
          CHECK(std::abs(set_gx(i, c) - share - (i == at ? g(s, c) : 0)) < 1e-14);
        }
      }
    }
  };
  Tensor<double> a(memory.shape()), b(memory.shape()), c(memory.shape()), d(memory.shape());
  check(by_element(memory), a.view<3>().transposed(1, 2), a);
  check(padded(by_element(memory), counts), padded(b.view<3>().transposed(1, 2), counts), b);
  check(masked(by_element(memory), mask), masked(c.view<3>().transposed(1, 2), mask), c);
  check(ragged(by_element(memory)[0], offsets), ragged(d.view<3>().transposed(1, 2)[0], offsets), d);
}

TEST_CASE("sets.pooling: one set gives a vector") {
  Eigen::MatrixXd x(3, 2);
  x << 1, 10, 3, 30, 2, 20;
  CHECK(max_pool(x) == Eigen::Vector2d(3, 30));
  CHECK(mean_pool(x) == Eigen::Vector2d(2, 20));
  CHECK(sum_pool(x) == Eigen::Vector2d(6, 60));
  CHECK(max_pool(x.transpose()) == Eigen::Vector3d(10, 30, 20));
}

TEST_CASE("sets.pooling: the last of equal maxima is picked and a NaN wins") {
  Matrix<double> x(4, 4);
  x << 1, 5, nan, -infinity, 7, 5, 2, -infinity, 7, nan, 9, -infinity, 0, 5, 1, -infinity;
  for (const auto& top : {max_pool_forward(as_batch(x)), max_pool_forward(as_batch(Eigen::MatrixXd(x)))}) {
    CHECK(top.values(0, 0) == 7);
    CHECK(top.positions(0, 0) == 2);
    CHECK(std::isnan(top.values(0, 1)));
    CHECK(std::isnan(top.values(0, 2)));
    CHECK(top.positions(0, 1) == -1);
    CHECK(top.values(0, 3) == -infinity);
    CHECK(top.positions(0, 3) == 3);
    Matrix<double> gx = Matrix<double>::Zero(4, 4);
    max_pool_backward(Matrix<double>::Ones(1, 4).eval(), top.positions, gx);
    CHECK(gx.sum() == 2);
  }
}

TEST_CASE("sets.pooling: sets without elements") {
  const Tensor<double> x({2, 3, 2}, 1.0);
  const std::vector<Index> counts{0, 3};
  CHECK(sum_pool(padded(x, counts)).row(0).isZero());
  CHECK(mean_pool(padded(x, counts), -2.0)(0, 1) == -2);
  const auto top = max_pool_forward(padded(x, counts), -3.0);
  CHECK(top.values(0, 1) == -3);
  CHECK(top.positions(0, 1) == -1);
  Tensor<double> gx(x.shape());
  mean_pool_backward(Matrix<double>::Ones(2, 2).eval(), padded(gx, counts));
  CHECK(gx.view<3>()(0, 0, 0) == 0);
}

TEST_CASE("sets.pooling: batches are checked where they enter") {
  const auto error = [](auto&& f) { return message_of<InvalidArgument>(f); };
  const Tensor<double> x({2, 4, 3}, 1.0), rows({7, 3}, 1.0);
  CHECK(error([&] { padded(x, std::vector<Index>{4, 5}); }) == "padded: counts[1] must be between 0 and 4, got 5");
  CHECK(error([&] { padded(x, std::vector<Index>{-1, 4}); }) == "padded: counts[0] must be between 0 and 4, got -1");
  CHECK(error([&] { padded(x, std::vector<Index>{4}); }) == "padded: counts has shape [1], expected [2] (one per set)");
  CHECK(error([&] {
          mean_pool(padded(x, std::vector<Index>{0, 4}));
        }) == "mean_pool: set 0 has no element and no value for empty sets is given");
  CHECK(error([&] {
          ragged(rows, std::vector<Index>{0, 4, 3});
        }) == "ragged: offsets must not descend, got 4 before 3");
  CHECK(error([&] {
          ragged(rows, std::vector<Index>{0, 4, 8});
        }) == "ragged: the last offset must be at most the 7 rows of values, got 8");
  CHECK(error([&] { ragged(rows, std::vector<Index>{-1, 4}); }) == "ragged: offsets[0] must not be negative, got -1");
  CHECK(error([&] { ragged(rows, std::vector<Index>{}); }) ==
        "ragged: offsets must be one longer than the number of sets, got no element");
  CHECK(error([&] {
          masked(x, Tensor<bool>({2, 3}).view<2>());
        }) == "masked: mask has shape [2,3], expected [2,4] (one per set and element)");
  Tensor<double> gx(x.shape());
  CHECK(error([&] {
          max_pool_backward(Matrix<double>::Ones(2, 3).eval(), Matrix<std::int32_t>::Constant(2, 3, 4).eval(), gx);
        }) == "max_pool_backward: position 4 is outside set 0 of 4 elements");
  CHECK(error([&] { sum_pool_backward(Matrix<double>::Ones(2, 2).eval(), gx); }) ==
        "sum_pool_backward: g has shape [2,2], expected [2,3] (one per set and channel)");
}

TEST_CASE("sets.pooling: mutable storage gives mutable batches and const storage const ones") {
  Tensor<float> x({1, 2, 3});
  const Tensor<float>& c = x;
  const std::vector<Index> counts{2};
  STATIC_REQUIRE(std::is_same_v<decltype(padded(x, counts)), SetBatch<float>>);
  STATIC_REQUIRE(std::is_same_v<decltype(padded(c, counts)), SetBatch<const float>>);
  STATIC_REQUIRE(std::is_convertible_v<SetBatch<float>, SetBatch<const float>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<SetBatch<const float>, SetBatch<float>>);
  STATIC_REQUIRE(std::is_same_v<scalar_t<SetBatch<const float>>, float>);
}

}  // namespace
}  // namespace ashlar::sets
