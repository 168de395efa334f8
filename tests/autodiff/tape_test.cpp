#include "ashlar/autodiff/tape.hpp"

#include <memory>

#include "ashlar/autodiff/loss.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/gradients.hpp"

namespace ashlar::autodiff {
namespace {

using test::identical;
using test::message_of;

Tensor<double> numbers(std::initializer_list<double> values) {
  Tensor<double> tensor(Shape{static_cast<Index>(values.size())});
  std::copy(values.begin(), values.end(), tensor.data());
  return tensor;
}

TEST_CASE("autodiff.tape: a value used several times gets the sum of its gradients") {
  Tape<double> tape;
  const auto x = tape.variable(numbers({2, 3}));
  tape.backward(sum(x * x + x * 5.0 - x));
  CHECK(identical(*x.gradient(), numbers({2 * 2 + 4, 2 * 3 + 4})));
}

TEST_CASE("autodiff.tape: no gradient passes constants or detached values and none appears where nothing depends") {
  Tape<double> tape;
  const auto x = tape.variable(numbers({2, 3})), unused = tape.variable(numbers({1, 1}));
  const auto c = tape.constant(numbers({7, 11}));
  const auto y = sum(x * c + square(x).detached() * x);
  CHECK_FALSE(c.recorded());
  CHECK_FALSE(square(c).recorded());
  tape.backward(y);
  CHECK(identical(*x.gradient(), numbers({7 + 4, 11 + 9})));
  CHECK_FALSE(unused.gradient().has_value());
  CHECK_FALSE(c.gradient().has_value());
}

TEST_CASE("autodiff.tape: constants without a tape compute and record nothing") {
  const Var<double> x(numbers({1, 2}));
  const auto y = square(x) + x;
  CHECK(y.tape() == nullptr);
  CHECK(identical(y.value(), numbers({2, 6})));
}

TEST_CASE("autodiff.tape: parameters collect gradients over sweeps and frozen ones stay without") {
  Parameter<double> w(numbers({2, 3})), frozen(numbers({5, 7})), idle(numbers({1, 1}));
  frozen.frozen = true;
  Tape<double> tape;
  for (int sweep = 1; sweep <= 2; ++sweep) {
    tape.use(idle);
    const auto a = tape.use(w);
    tape.backward(sum(a * tape.use(frozen) * tape.use(w)));
    CHECK(identical(*w.gradient, numbers({sweep * 2 * 2 * 5.0, sweep * 2 * 3 * 7.0})));
    CHECK_FALSE(frozen.gradient.has_value());
    CHECK_FALSE(idle.gradient.has_value());
    CHECK(tape.size() == 0);
  }
}

TEST_CASE("autodiff.tape: several seeds give the gradient of the sum of their products") {
  Tape<double> tape;
  const auto x = tape.variable(numbers({2, 3}));
  const auto y = square(x), z = x * 4.0;
  tape.backward({{y, numbers({1, 10})}, {z, numbers({100, 0})}, {y, numbers({1, 0})}});
  CHECK(identical(*x.gradient(), numbers({2 * 4 + 400, 60})));
}

TEST_CASE("autodiff.tape: gradients at inner values leave the tape as it was") {
  Tape<double> tape;
  const auto x = tape.variable(numbers({2, 3}));
  const auto y = square(x), z = square(y);
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto found = tape.gradients({{z, numbers({1, 1})}}, {y, x, z});
    CHECK(identical(*found[0], numbers({8, 18})));
    CHECK(identical(*found[1], numbers({4 * 8, 4 * 27})));
    CHECK(identical(*found[2], numbers({1, 1})));
    CHECK_FALSE(x.gradient().has_value());
  }
  CHECK_FALSE(tape.gradients({{y, numbers({1, 1})}}, {z})[0].has_value());
  tape.backward(sum(z));
  CHECK(identical(*x.gradient(), numbers({32, 108})));
}

TEST_CASE("autodiff.tape: the gradient of a tangent is the Hessian times the direction") {
  // L = sum x^3 + (sum x)^2: H = diag(6 x) + 2.
  Tape<double> tape;
  const auto x = tape.variable(numbers({1, -2, 3}));
  const auto total = sum(x);
  const auto loss = sum(x * x * x) + total * total;
  const Tensor<double> v = numbers({0.5, 1, -1});
  const auto slope = tape.tangent(loss, {{x, Var<double>(v)}});
  tape.backward(*slope);
  const double along = 2 * (0.5 + 1 - 1);
  CHECK(test::max_difference(*x.gradient(), numbers({6 * 0.5 + along, -12 + along, -18 + along})) <= 1e-13);
}

TEST_CASE("autodiff.tape: three momentum steps are differentiated through by one Hessian product a step") {
  // w_{t+1} = w_t - rate u_t with u_t = mu u_{t-1} + grad L(w_t); the gradient of L(w_3) with respect to w_0.
  constexpr double rate = 0.1, mu = 0.9;
  const auto loss_of = [](const Var<double>& w) {
    return sum(tanh(w * w) * Var<double>(numbers({1, 2, -1}))) + sum(w) * mean(square(w));
  };
  const auto final_loss = [&](Tensor<double> w) {
    Tensor<double> u(w.shape());
    for (int t = 0; t < 3; ++t) {
      Tape<double> tape;
      const auto at = tape.variable(w);
      tape.backward(loss_of(at));
      for (Index i = 0; i < 3; ++i) {
        u.data()[i] = mu * u.data()[i] + at.gradient()->data()[i];
        w.data()[i] -= rate * u.data()[i];
      }
    }
    return loss_of(Var<double>(w)).item();
  };
  const Tensor<double> start = numbers({0.3, -0.4, 0.7});
  std::vector<Tensor<double>> visited{start};
  Tensor<double> u(start.shape());
  for (int t = 0; t < 3; ++t) {
    Tape<double> tape;
    const auto at = tape.variable(visited.back());
    tape.backward(loss_of(at));
    Tensor<double> next = visited.back();
    for (Index i = 0; i < 3; ++i) {
      u.data()[i] = mu * u.data()[i] + at.gradient()->data()[i];
      next.data()[i] -= rate * u.data()[i];
    }
    visited.push_back(next);
  }
  // Adjoints backwards: w'_t = w'_{t+1} + H_t u'_t with u'_t = mu u'_{t+1} - rate w'_{t+1}.
  Tape<double> tape;
  const auto end = tape.variable(visited[3]);
  tape.backward(loss_of(end));
  Tensor<double> w_adjoint = *end.gradient(), u_adjoint(start.shape());
  for (int t = 2; t >= 0; --t) {
    for (Index i = 0; i < 3; ++i) u_adjoint.data()[i] = mu * u_adjoint.data()[i] - rate * w_adjoint.data()[i];
    const auto at = tape.variable(visited[static_cast<std::size_t>(t)]);
    const auto slope = tape.tangent(loss_of(at), {{at, Var<double>(u_adjoint)}});
    tape.backward(*slope);
    for (Index i = 0; i < 3; ++i) w_adjoint.data()[i] += at.gradient()->data()[i];
  }
  for (Index i = 0; i < 3; ++i) {
    constexpr double h = 1e-5;
    Tensor<double> up = start, down = start;
    up.data()[i] += h, down.data()[i] -= h;
    CHECK(std::abs((final_loss(up) - final_loss(down)) / (2 * h) - w_adjoint.data()[i]) <= 1e-8);
  }
}

TEST_CASE("autodiff.tape: a gradient penalty is differentiated by a tangent along its own direction") {
  // P = |grad_x D|, D = sum tanh(W x): dP/dW = d/dW <grad_x D, g / |g|> with g = grad_x D held fixed.
  Rng rng(3);
  const auto w0 = normal_tensor<double>(rng, {2, 3}), x0 = normal_tensor<double>(rng, {1, 3});
  const auto gradient_at = [&](const Tensor<double>& w) {
    Tape<double> tape;
    const auto x = tape.variable(x0);
    tape.backward(sum(tanh(linear(x, Var<double>(w)))));
    return *x.gradient();
  };
  const auto norm = [&](const Tensor<double>& w) {
    const auto g = gradient_at(w);
    return Eigen::Map<const Vector<double>>(g.data(), 3).norm();
  };
  Tensor<double> direction = gradient_at(w0);
  for (Index i = 0; i < 3; ++i) direction.data()[i] /= norm(w0);
  Tape<double> tape;
  const auto w = tape.variable(w0), x = tape.variable(x0);
  tape.backward(*tape.tangent(sum(tanh(linear(x, w))), {{x, Var<double>(direction)}}));
  for (Index i = 0; i < 6; ++i) {
    constexpr double h = 1e-5;
    Tensor<double> up = w0, down = w0;
    up.data()[i] += h, down.data()[i] -= h;
    CHECK(std::abs((norm(up) - norm(down)) / (2 * h) - w.gradient()->data()[i]) <= 1e-8);
  }
}

TEST_CASE("autodiff.tape: a tangent is absent where nothing moves and of a value itself is the direction") {
  Tape<double> tape;
  const auto x = tape.variable(numbers({1, 2})), y = tape.variable(numbers({3, 4}));
  CHECK_FALSE(tape.tangent(square(x), {{y, Var<double>(numbers({1, 1}))}}).has_value());
  CHECK(identical(tape.tangent(x, {{x, Var<double>(numbers({5, 6}))}})->value(), numbers({5, 6})));
}

TEST_CASE("autodiff.tape: memory of a value that is gone serves the next one of its size") {
  Tape<double> tape;
  const auto x = tape.variable(numbers({1, 2, 3}));
  const double* first = nullptr;
  { first = square(x.detached()).value().data(); }
  CHECK(square(x.detached()).value().data() == first);
  // A sweep gives back what its operations kept.
  const double* kept = nullptr;
  {
    const auto y = exp(x);
    kept = y.value().data();
    tape.backward(sum(square(y)));
  }
  const auto z = tape.variable(numbers({1, 2, 3}));
  std::vector<Var<double>> values;
  bool found = false;
  for (int i = 0; i < 8; ++i) {
    values.push_back(exp(z.detached()));
    found = found || values.back().value().data() == kept;
  }
  CHECK(found);
}

TEST_CASE("autodiff.tape: values outlive their tape") {
  Var<double> kept;
  {
    Tape<double> tape;
    kept = square(tape.variable(numbers({3})));
  }
  CHECK(kept.item() == 9);
  CHECK(kept.tape() == nullptr);
  CHECK(message_of<InvalidArgument>([&] { square(kept); }) ==
        "square: an input of shape [1] belongs to a tape that is gone");
}

TEST_CASE("autodiff.tape: wrong calls say what is wrong") {
  Tape<double> tape, other;
  const auto x = tape.variable(numbers({1, 2})), foreign = other.variable(numbers({1, 2}));
  const auto c = tape.constant(numbers({1, 2}));
  const auto call = [](auto&& f) { return message_of<InvalidArgument>(f); };
  CHECK(call([&] { tape.backward(x); }) ==
        "Tape::backward: the result has shape [2], expected one element; start from a cotangent otherwise");
  CHECK(call([&] {
          tape.backward({{x, numbers({1})}});
        }) == "Tape::backward: cotangent has shape [1], expected [2] (shape of its value)");
  CHECK(call([&] { tape.backward(sum(c)); }) ==
        "Tape::backward: a value of shape [] was not recorded: it depends on no variable and no parameter");
  CHECK(call([&] { tape.backward(sum(foreign)); }) == "Tape::backward: a value of shape [] belongs to another tape");
  CHECK(call([&] { x + foreign; }) == "add: its inputs belong to different tapes");
  CHECK(call([&] {
          tape.tangent(square(x), {{x, Var<double>(numbers({1}))}});
        }) == "Tape::tangent: direction has shape [1], expected [2] (shape of its value)");
  CHECK(call([&] { x.item(); }) == "Var::item: the value has shape [2], expected one element");
  const auto y = square(x);
  tape.backward(sum(y));
  CHECK(
      call([&] { square(y); }) ==
      "square: a value of shape [2] was recorded before the tape's last backward(), which freed it; use gradients() to "
      "sweep more than once");
  const auto z = tape.variable(numbers({1}));
  const auto opaque = record<double>(
      "opaque", {z}, numbers({1}), [](Tensor<double>&, Gradients<double>&) {}, nullptr);
  CHECK(call([&] {
          tape.tangent(opaque, {{z, Var<double>(numbers({1}))}});
        }) == "Tape::tangent: opaque has no tangent rule");
}

}  // namespace
}  // namespace ashlar::autodiff
