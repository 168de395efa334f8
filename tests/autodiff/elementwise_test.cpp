#include "ashlar/autodiff/elementwise.hpp"

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gradients.hpp"

namespace ashlar::autodiff {
namespace {

using test::check_rules;
using test::message_of;
using Vars = std::vector<Var<double>>;

/// Away from 0, so that quotients and logarithms are smooth on the scale of a difference step.
Tensor<double> positive(Rng& rng, const Shape& shape) {
  auto tensor = normal_tensor<double>(rng, shape);
  for (Index i = 0; i < tensor.size(); ++i) tensor.data()[i] = 0.5 + std::abs(tensor.data()[i]);
  return tensor;
}

TEST_CASE("autodiff.elementwise: arithmetic agrees with finite differences under every kind of broadcasting") {
  Rng rng(1);
  const Shape whole{3, 5};
  for (const Shape& other : {Shape{3, 5}, Shape{5}, Shape{3, 1}, Shape{1}, Shape{2, 1, 5}, Shape{2, 1, 1, 1},
                             Shape(std::array<Index, 0>{})}) {
    INFO("other shape has rank " << other.rank() << " and " << other.size() << " elements");
    const auto a = positive(rng, whole), b = positive(rng, other);
    check_rules([](const Vars& v) { return v[0] + v[1]; }, {a, b});
    check_rules([](const Vars& v) { return v[0] - v[1]; }, {a, b});
    check_rules([](const Vars& v) { return v[1] - v[0]; }, {a, b});
    check_rules([](const Vars& v) { return v[0] * v[1]; }, {a, b});
    check_rules([](const Vars& v) { return v[0] / v[1]; }, {a, b});
    check_rules([](const Vars& v) { return v[1] / v[0]; }, {a, b});
  }
}

TEST_CASE("autodiff.elementwise: arithmetic works on empty tensors") {
  check_rules([](const Vars& v) { return v[0] * v[1] + v[1]; }, {Tensor<double>({0, 5}), Tensor<double>({5})});
}

TEST_CASE("autodiff.elementwise: an operand used twice gets both of its gradients") {
  Rng rng(2);
  check_rules([](const Vars& v) { return v[0] * v[0] / (v[0] + v[0] * 2.0); }, {positive(rng, {7})});
}

TEST_CASE("autodiff.elementwise: arithmetic with numbers") {
  Rng rng(3);
  const auto x = positive(rng, {3, 4});
  check_rules([](const Vars& v) { return (2.0 - v[0] * 3.0) + (v[0] / 4.0 - 1.0) + (0.5 + 2.0 * v[0]) + -v[0]; }, {x});
  const Var<double> v(x);
  const auto y = 2.0 - (v * 3.0 + 1.0) / 4.0;
  for (Index i = 0; i < x.size(); ++i)
    CHECK(std::abs(y.value().data()[i] - (2 - (x.data()[i] * 3 + 1) / 4)) <= 1e-15 * 8);
}

TEST_CASE("autodiff.elementwise: functions agree with finite differences to second order") {
  Rng rng(4);
  // 19 elements: whole vectors and a rest on every instruction set. No element lies near a corner.
  auto x = normal_tensor<double>(rng, {19}), p = positive(rng, {19});
  for (Index i = 0; i < x.size(); ++i)
    if (std::abs(x.data()[i]) < 1e-3 || std::abs(std::abs(x.data()[i]) - 0.8) < 1e-3) x.data()[i] = 0.3;
  const auto check = [](const char* name, auto f, const Tensor<double>& at) {
    INFO(name);
    check_rules([&](const Vars& v) { return f(v[0]); }, {at});
  };
  check(
      "exp", [](const auto& v) { return exp(v); }, x);
  check(
      "log", [](const auto& v) { return log(v); }, p);
  check(
      "reciprocal", [](const auto& v) { return reciprocal(v); }, p);
  check(
      "sqrt", [](const auto& v) { return sqrt(v); }, p);
  check(
      "square", [](const auto& v) { return square(v); }, x);
  check(
      "sin", [](const auto& v) { return sin(v); }, x);
  check(
      "cos", [](const auto& v) { return cos(v); }, x);
  check(
      "erf", [](const auto& v) { return erf(v); }, x);
  check(
      "abs", [](const auto& v) { return abs(v); }, x);
  check(
      "clamp", [](const auto& v) { return clamp(v, -0.8, 0.8); }, x);
  check(
      "relu", [](const auto& v) { return relu(v); }, x);
  check(
      "leaky_relu", [](const auto& v) { return leaky_relu(v, 0.2); }, x);
  check(
      "sigmoid", [](const auto& v) { return sigmoid(v); }, x);
  check(
      "tanh", [](const auto& v) { return tanh(v); }, x);
  check(
      "softplus", [](const auto& v) { return softplus(v); }, x);
  check(
      "silu", [](const auto& v) { return silu(v); }, x);
  check(
      "gelu_erf", [](const auto& v) { return gelu_erf(v); }, x);
  check(
      "gelu_tanh", [](const auto& v) { return gelu_tanh(v); }, x);
}

TEST_CASE("autodiff.elementwise: broadcast_to repeats and its gradient adds up") {
  Rng rng(5);
  check_rules([](const Vars& v) { return broadcast_to(v[0], {4, 3, 2}); }, {normal_tensor<double>(rng, {3, 1})});
  const Var<double> x(normal_tensor<double>(rng, {2}));
  CHECK(message_of<InvalidArgument>([&] { broadcast_to(x, {3}); }) ==
        "broadcast_to: shapes [2] and [3] do not broadcast: an axis has 2 and 3 elements");
  const Var<double> wide(normal_tensor<double>(rng, {3, 2}));
  CHECK(message_of<InvalidArgument>([&] { broadcast_to(wide, {2}); }) ==
        "broadcast_to: shape [3,2] does not broadcast to [2]");
}

TEST_CASE("autodiff.elementwise: shapes that do not fit and limits that cross are named") {
  const Var<double> a(Tensor<double>({2, 3})), b(Tensor<double>({2}));
  CHECK(message_of<InvalidArgument>([&] { a + b; }) ==
        "add: shapes [2,3] and [2] do not broadcast: an axis has 3 and 2 elements");
  CHECK(message_of<InvalidArgument>([&] { a - b; }) ==
        "subtract: shapes [2,3] and [2] do not broadcast: an axis has 3 and 2 elements");
  CHECK(message_of<InvalidArgument>([&] { a* b; }) ==
        "multiply: shapes [2,3] and [2] do not broadcast: an axis has 3 and 2 elements");
  CHECK(message_of<InvalidArgument>([&] { a / b; }) ==
        "divide: shapes [2,3] and [2] do not broadcast: an axis has 3 and 2 elements");
  CHECK(message_of<InvalidArgument>([&] { clamp(a, 1.0, 0.0); }) == "clamp: high must be at least low (1), got 0");
}

}  // namespace
}  // namespace ashlar::autodiff
