#include "ashlar/autodiff/shape.hpp"

#include <numeric>

#include "ashlar/autodiff/elementwise.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gradients.hpp"

namespace ashlar::autodiff {
namespace {

using test::check_rules;
using test::message_of;
using Vars = std::vector<Var<double>>;

Tensor<double> counting(const Shape& shape) {
  Tensor<double> tensor(shape);
  std::iota(tensor.data(), tensor.data() + tensor.size(), 0.0);
  return tensor;
}
std::vector<double> elements(const Var<double>& x) { return {x.value().data(), x.value().data() + x.size()}; }

TEST_CASE("autodiff.shape: every operation moves elements where it says") {
  const Var<double> x(counting({2, 3}));
  CHECK(elements(reshape(x, {3, 2})) == std::vector<double>{0, 1, 2, 3, 4, 5});
  CHECK(elements(permute(x, {1, 0})) == std::vector<double>{0, 3, 1, 4, 2, 5});
  CHECK(elements(slice(x, 1, 1, 3)) == std::vector<double>{1, 2, 4, 5});
  CHECK(elements(slice(x, 0, 1, 2)) == std::vector<double>{3, 4, 5});
  CHECK(elements(concatenate(0, Vars{x, x})) == std::vector<double>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
  CHECK(elements(concatenate(1, Vars{x, slice(x, 1, 0, 1)})) == std::vector<double>{0, 1, 2, 0, 3, 4, 5, 3});
  CHECK(elements(gather_rows(x, {1, 0, 1})) == std::vector<double>{3, 4, 5, 0, 1, 2, 3, 4, 5});
  CHECK(elements(scatter_rows(x, {2, 2}, 3)) == std::vector<double>{0, 0, 0, 0, 0, 0, 3, 5, 7});
  // x[i, j, k] of shape [2, 3, 4] becomes y[k, i, j].
  const Var<double> y = permute(Var<double>(counting({2, 3, 4})), {2, 0, 1});
  for (Index i = 0; i < 2; ++i)
    for (Index j = 0; j < 3; ++j)
      for (Index k = 0; k < 4; ++k) CHECK(y.value().view<3>()(k, i, j) == static_cast<double>(12 * i + 4 * j + k));
}

TEST_CASE("autodiff.shape: the rules agree with finite differences") {
  Rng rng(1);
  const auto x = normal_tensor<double>(rng, {3, 4, 2}), other = normal_tensor<double>(rng, {3, 1, 2});
  // Squares, so that second derivatives are not zero.
  check_rules([](const Vars& v) { return reshape(square(v[0]), {4, 6}); }, {x});
  check_rules([](const Vars& v) { return permute(square(v[0]), {1, 2, 0}); }, {x});
  check_rules([](const Vars& v) { return slice(square(v[0]), 1, 1, 3); }, {x});
  check_rules([](const Vars& v) { return slice(v[0], 1, 0, 2) * slice(v[0], 1, 1, 3); }, {x});
  check_rules([](const Vars& v) { return square(concatenate(1, Vars{v[0], v[1], v[0]})); }, {x, other});
  check_rules([](const Vars& v) { return square(gather_rows(v[0], {2, 0, 2, 2})); }, {x});
  check_rules([](const Vars& v) { return square(scatter_rows(v[0], {4, 0, 4}, 6)); }, {x});
}

TEST_CASE("autodiff.shape: empty parts and no indices are allowed") {
  Rng rng(2);
  const auto x = normal_tensor<double>(rng, {3, 2});
  CHECK(slice(Var<double>(x), 0, 1, 1).shape() == Shape{0, 2});
  CHECK(gather_rows(Var<double>(x), {}).shape() == Shape{0, 2});
  CHECK(elements(scatter_rows(Var<double>(Tensor<double>({0, 2})), {}, 1)) == std::vector<double>{0, 0});
  CHECK(permute(Var<double>(Tensor<double>({0, 2})), {1, 0}).shape() == Shape{2, 0});
  check_rules([](const Vars& v) { return square(concatenate(0, Vars{v[0], v[1]})); }, {x, Tensor<double>({0, 2})});
}

TEST_CASE("autodiff.shape: gathering is the adjoint of scattering") {
  Rng rng(3);
  const auto x = normal_tensor<double>(rng, {5, 2}), y = normal_tensor<double>(rng, {3, 2});
  const std::vector<Index> at{4, 1, 4};
  const double left = test::detail::dot(gather_rows(Var<double>(x), at).value(), y);
  const double right = test::detail::dot(x, scatter_rows(Var<double>(y), at, 5).value());
  CHECK(std::abs(left - right) <= 1e-14 * 10);
}

TEST_CASE("autodiff.shape: wrong calls say what is wrong") {
  const Var<double> x(Tensor<double>({2, 3})), y(Tensor<double>({3, 3}));
  const auto call = [](auto&& f) { return message_of<InvalidArgument>(f); };
  CHECK(call([&] { reshape(x, {4}); }) == "reshape: cannot view [2,3] as [4]");
  CHECK(call([&] { permute(x, {0, 0}); }) == "permute: order must name each of the 2 axes once");
  CHECK(call([&] { permute(x, {0}); }) == "permute: order must name each of the 2 axes once");
  CHECK(call([&] { slice(x, 2, 0, 1); }) == "slice: axis must be in [0, 2), got 2");
  CHECK(call([&] { slice(x, 1, 2, 4); }) == "slice: [2, 4) is not within axis 1 of [2,3]");
  CHECK(call([&] { concatenate(1, Vars{x, y}); }) == "concatenate: shapes [2,3] and [3,3] differ off axis 1");
  CHECK(call([&] { concatenate(0, Vars{}); }) == "concatenate: there must be at least one part");
  CHECK(call([&] { gather_rows(x, {2}); }) == "gather_rows: index 2 is not within the 2 rows of x");
  CHECK(call([&] { scatter_rows(x, {0}, 4); }) ==
        "scatter_rows: x of shape [2,3] does not have one row for each of 1 indices");
  CHECK(call([&] { scatter_rows(x, {0, 4}, 4); }) == "scatter_rows: index 4 is not within 4 rows");
}

}  // namespace
}  // namespace ashlar::autodiff
