#include "ashlar/autodiff/reduction.hpp"

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gradients.hpp"
#include "support/threads.hpp"

namespace ashlar::autodiff {
namespace {

using test::check_rules;
using test::message_of;
using Vars = std::vector<Var<double>>;

TEST_CASE("autodiff.reduction: the rules agree with finite differences along every axis") {
  Rng rng(1);
  const auto x = normal_tensor<double>(rng, {3, 4, 2});
  check_rules([](const Vars& v) { return sum(square(v[0])); }, {x});
  check_rules([](const Vars& v) { return mean(square(v[0])); }, {x});
  for (int axis = 0; axis < 3; ++axis)
    for (const Axis reduced : {Axis::kept, Axis::dropped}) {
      check_rules([&](const Vars& v) { return sum(square(v[0]), axis, reduced); }, {x});
      check_rules([&](const Vars& v) { return square(mean(v[0], axis, reduced)); }, {x});
      check_rules([&](const Vars& v) { return variance(v[0], axis, reduced); }, {x});
    }
}

TEST_CASE("autodiff.reduction: values are those of plain loops") {
  Rng rng(2);
  const auto x = normal_tensor<double>(rng, {3, 4, 2});
  const auto v = x.view<3>();
  const Var<double> var(x);
  const auto sums = sum(var, 1), biased = variance(var, 1), unbiased = variance(var, 1, Axis::dropped, false);
  CHECK(sums.shape() == Shape{3, 2});
  CHECK(sum(var, 1, Axis::kept).shape() == Shape{3, 1, 2});
  for (Index i = 0; i < 3; ++i)
    for (Index k = 0; k < 2; ++k) {
      double total = 0, squares = 0;
      for (Index j = 0; j < 4; ++j) total += v(i, j, k);
      for (Index j = 0; j < 4; ++j) squares += (v(i, j, k) - total / 4) * (v(i, j, k) - total / 4);
      CHECK(std::abs(sums.value().view<2>()(i, k) - total) <= 1e-15 * 8);
      CHECK(std::abs(biased.value().view<2>()(i, k) - squares / 4) <= 1e-15 * 16);
      CHECK(std::abs(unbiased.value().view<2>()(i, k) - squares / 3) <= 1e-15 * 16);
    }
}

TEST_CASE("autodiff.reduction: a sum over many rows has the same bits for any number of threads") {
  Rng rng(3);
  const auto x = normal_tensor<float>(rng, {5000, 33});
  const auto run = [&] { return sum(Var<float>(x), 0).value(); };
  const auto one = test::with_threads(1, run);
  CHECK(test::identical(one, test::with_threads(2, run)));
  CHECK(test::identical(one, test::with_threads(4, run)));
  // Chunks of about 500 rows, added in float: error of a sum of n numbers at most n eps sum |x|, in fact about sqrt(n).
  for (Index j = 0; j < 33; ++j) {
    double exact = 0, magnitude = 0;
    for (Index i = 0; i < 5000; ++i) exact += x.view<2>()(i, j), magnitude += std::abs(x.view<2>()(i, j));
    CHECK(std::abs(exact - one.data()[j]) <= 6e-8 * 30 * magnitude);
  }
}

TEST_CASE("autodiff.reduction: sum_to is the adjoint of broadcast_to") {
  Rng rng(4);
  for (const Shape& shape : {Shape{4}, Shape{3, 1}, Shape{1, 4}, Shape{1}, Shape{3, 4}, Shape{1, 1, 1}}) {
    const auto small = normal_tensor<double>(rng, shape);
    const auto wide = normal_tensor<double>(rng, {2, 3, 4});
    const double left = test::detail::dot(broadcast_to(Var<double>(small), wide.shape()).value(), wide);
    const double right = test::detail::dot(small, sum_to(Var<double>(wide), shape).value());
    CHECK(std::abs(left - right) <= 1e-14 * 100);
  }
}

TEST_CASE("autodiff.reduction: wrong calls say what is wrong") {
  const Var<double> x(Tensor<double>({2, 3}));
  CHECK(message_of<InvalidArgument>([&] { sum(x, 2); }) == "sum: axis must be in [0, 2), got 2");
  CHECK(message_of<InvalidArgument>([&] { mean(x, -1); }) == "mean: axis must be in [0, 2), got -1");
  CHECK(message_of<InvalidArgument>([&] { sum_to(x, {4, 2, 3}); }) == "sum_to: shape [2,3] does not sum to [4,2,3]");
}

}  // namespace
}  // namespace ashlar::autodiff
