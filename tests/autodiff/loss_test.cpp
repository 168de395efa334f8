#include "ashlar/autodiff/loss.hpp"

#include <cmath>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gradients.hpp"

namespace ashlar::autodiff {
namespace {

using test::check_rules;
using test::message_of;
using Vars = std::vector<Var<double>>;

TEST_CASE("autodiff.loss: the rules agree with finite differences") {
  Rng rng(1);
  const auto x = normal_tensor<double>(rng, {2, 3, 5}), y = normal_tensor<double>(rng, {2, 3, 5}),
             z = normal_tensor<double>(rng, {2, 3, 5});
  check_rules([](const Vars& v) { return cross_entropy(v[0], {1, 0, 4, functional::ignored, 2, 2}); }, {x});
  check_rules([](const Vars& v) { return mean_squared_error(v[0], v[1]); }, {x, y});
  check_rules([](const Vars& v) { return huber(v[0], v[1], 0.7); }, {x, y});
  check_rules([](const Vars& v) { return binary_cross_entropy(v[0], v[1]); }, {x, y});
  check_rules([](const Vars& v) { return gaussian_negative_log_likelihood(v[0], v[1], v[2]); }, {x, y, z});
}

TEST_CASE("autodiff.loss: values are those of the definitions") {
  Rng rng(2);
  const auto x = normal_tensor<double>(rng, {7}), y = normal_tensor<double>(rng, {7});
  const Var<double> a(x), b(y);
  double squares = 0, robust = 0, binary = 0, gauss = 0;
  Tensor<double> target(Shape{7});
  for (Index i = 0; i < 7; ++i) {
    const double r = x.data()[i] - y.data()[i], t = target.data()[i] = 1 / (1 + std::exp(-y.data()[i]));
    squares += r * r / 7;
    robust += (std::abs(r) <= 0.5 ? r * r / 2 : 0.5 * (std::abs(r) - 0.25)) / 7;
    const double p = 1 / (1 + std::exp(-x.data()[i]));
    binary -= (t * std::log(p) + (1 - t) * std::log(1 - p)) / 7;
    gauss += (y.data()[i] + x.data()[i] * x.data()[i] / std::exp(y.data()[i])) / 2 / 7;
  }
  CHECK(std::abs(mean_squared_error(a, b).item() - squares) <= 1e-14);
  CHECK(std::abs(huber(a, b, 0.5).item() - robust) <= 1e-14);
  CHECK(std::abs(binary_cross_entropy(a, Var<double>(target)).item() - binary) <= 1e-14);
  CHECK(std::abs(gaussian_negative_log_likelihood(a, a * 0.0, b).item() - gauss) <= 1e-13);
}

TEST_CASE("autodiff.loss: huge logits neither overflow nor lose the gradient") {
  Tensor<double> logits(Shape{2});
  logits.data()[0] = 1e4, logits.data()[1] = -1e4;
  Tape<double> tape;
  const auto x = tape.variable(logits);
  const auto loss = binary_cross_entropy(x, Var<double>(Tensor<double>(Shape{2}, 0.5)));
  CHECK(loss.item() == 5e3);
  tape.backward(loss);
  CHECK(x.gradient()->data()[0] == 0.25);
  CHECK(x.gradient()->data()[1] == -0.25);
}

TEST_CASE("autodiff.loss: wrong calls say what is wrong") {
  const Var<double> x(Tensor<double>({2, 3})), y(Tensor<double>({3}));
  const auto call = [](auto&& f) { return message_of<InvalidArgument>(f); };
  CHECK(call([&] { mean_squared_error(x, y); }) == "mean_squared_error: y has shape [3], expected [2,3] (shape of x)");
  CHECK(call([&] { huber(x, y); }) == "huber: y has shape [3], expected [2,3] (shape of x)");
  CHECK(call([&] { huber(x, x, 0.0); }) == "huber: limit must be positive, got 0");
  CHECK(call([&] { binary_cross_entropy(x, y); }) ==
        "binary_cross_entropy: y has shape [3], expected [2,3] (shape of logits)");
  CHECK(call([&] { cross_entropy(x, {0}); }) == "cross_entropy: there are 1 labels for 2 rows of logits");
  CHECK(call([&] { cross_entropy(x, {0, 3}); }) == "cross_entropy: label 3 is not one of the 3 classes");
}

}  // namespace
}  // namespace ashlar::autodiff
