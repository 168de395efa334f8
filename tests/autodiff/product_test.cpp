#include "ashlar/autodiff/product.hpp"

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gradients.hpp"
#include "support/threads.hpp"

namespace ashlar::autodiff {
namespace {

using test::check_rules;
using test::message_of;
using Vars = std::vector<Var<double>>;

TEST_CASE("autodiff.product: the rules of matmul agree with finite differences") {
  Rng rng(1);
  const auto a = normal_tensor<double>(rng, {2, 3, 5});
  const auto product = [](const Vars& v) { return matmul(v[0], v[1]); };
  check_rules(product, {a, normal_tensor<double>(rng, {5, 4})});
  check_rules(product, {a, normal_tensor<double>(rng, {2, 5, 4})});
  check_rules(product, {normal_tensor<double>(rng, {3, 5}), normal_tensor<double>(rng, {5, 1})});
  check_rules(product, {normal_tensor<double>(rng, {1, 1}), normal_tensor<double>(rng, {1, 1})});
  check_rules([](const Vars& v) { return matmul(permute(v[0], {0, 2, 1}), v[0]); }, {a});
}

TEST_CASE("autodiff.product: the rules of linear agree with finite differences") {
  Rng rng(2);
  const auto w = normal_tensor<double>(rng, {4, 5}), b = normal_tensor<double>(rng, {4});
  for (const Shape& shape : {Shape{3, 5}, Shape{2, 3, 5}, Shape{5}, Shape{0, 5}}) {
    const auto x = normal_tensor<double>(rng, shape);
    check_rules([](const Vars& v) { return linear(v[0], v[1], std::optional(v[2])); }, {x, w, b}, shape.size() > 0);
    check_rules([](const Vars& v) { return linear(v[0], v[1]); }, {x, w}, shape.size() > 0);
  }
}

TEST_CASE("autodiff.product: linear is x times the transposed weight plus bias") {
  Rng rng(3);
  const auto x = normal_tensor<double>(rng, {3, 5}), w = normal_tensor<double>(rng, {4, 5}),
             b = normal_tensor<double>(rng, {4});
  const Matrix<double> expected =
      (x.matrix() * w.matrix().transpose()).rowwise() + Eigen::Map<const Eigen::RowVectorXd>(b.data(), 4);
  const auto y = linear(Var<double>(x), Var<double>(w), std::optional(Var<double>(b)));
  CHECK((y.value().matrix() - expected).cwiseAbs().maxCoeff() <= 1e-14);
}

TEST_CASE("autodiff.product: the same bits for any number of threads") {
  Rng rng(4);
  const auto x = normal_tensor<float>(rng, {700, 65}), w = normal_tensor<float>(rng, {130, 65});
  const auto run = [&] {
    Tape<float> tape;
    const auto a = tape.variable(x), b = tape.variable(w);
    const auto y = linear(a, b);
    auto found = tape.gradients({{y, y.value()}}, {a, b});
    return std::vector<Tensor<float>>{y.value(), *found[0], *found[1]};
  };
  const auto one = test::with_threads(1, run);
  for (const int threads : {2, 4}) {
    const auto other = test::with_threads(threads, run);
    for (std::size_t i = 0; i < 3; ++i) CHECK(test::identical(one[i], other[i]));
  }
}

TEST_CASE("autodiff.product: shapes that do not multiply are named") {
  const Var<double> x(Tensor<double>({2, 3})), y(Tensor<double>({2, 3})), v(Tensor<double>({3})),
      z(Tensor<double>({2, 4, 3}));
  const auto call = [](auto&& f) { return message_of<InvalidArgument>(f); };
  CHECK(call([&] { matmul(x, y); }) == "matmul: shapes [2,3] and [2,3] do not multiply");
  CHECK(call([&] { matmul(x, v); }) == "matmul: a and b must be matrices or batches of them, got [2,3] and [3]");
  CHECK(call([&] {
          matmul(z, Var<double>(Tensor<double>({3, 3, 4})));
        }) == "matmul: shapes [2,4,3] and [3,3,4] do not multiply");
  CHECK(call([&] {
          linear(x, Var<double>(Tensor<double>({3, 2})));
        }) == "linear: x of shape [2,3] does not go through weight of shape [3,2]");
  CHECK(call([&] { linear(x, y, std::optional(v)); }) ==
        "linear: bias has shape [3], expected [2] (one for each row of weight)");
}

}  // namespace
}  // namespace ashlar::autodiff
