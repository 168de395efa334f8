#include "ashlar/nn/layers.hpp"

#include "ashlar/autodiff/loss.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/gradients.hpp"

namespace ashlar::nn {
namespace {

using test::identical;
using test::message_of;

TEST_CASE("nn.layers: on a tape and without one the same bits come out") {
  Rng rng(1);
  Mlp<float> model(rng, {5, 7, 3}, [](const Var<float>& x) { return autodiff::gelu_tanh(x); });
  const auto x = normal_tensor<float>(rng, {4, 5});
  Tape<float> tape;
  const auto taped = model(tape.constant(x)), plain = model(Var<float>(x));
  CHECK(taped.recorded());
  CHECK_FALSE(plain.recorded());
  CHECK(identical(taped.value(), plain.value()));
}

TEST_CASE("nn.layers: a frozen layer gets no gradient, keeps its bits and lets gradients through to what is below") {
  Rng rng(2);
  Mlp<double> model(rng, {3, 4, 2});
  freeze(model.layers[1]);
  const Tensor<double> before = model.layers[1].weight.value;
  Tape<double> tape;
  tape.backward(sum(square(model(tape.constant(normal_tensor<double>(rng, {5, 3}))))));
  CHECK(model.layers[0].weight.gradient.has_value());
  CHECK_FALSE(model.layers[1].weight.gradient.has_value());
  CHECK_FALSE(model.layers[1].bias->gradient.has_value());
  CHECK(identical(before, model.layers[1].weight.value));
}

TEST_CASE("nn.layers: gradients with respect to inputs alone") {
  Rng rng(3);
  Mlp<double> model(rng, {3, 4, 1});
  freeze(model);
  const auto x = normal_tensor<double>(rng, {2, 3});
  test::check_rules([&](const std::vector<Var<double>>& v) { return model(v[0]); }, {x}, false);
  for_each_parameter(model, [](const std::string&, auto& parameter) { CHECK_FALSE(parameter.gradient.has_value()); });
}

TEST_CASE("nn.layers: a linear layer shows its input") {
  Rng rng(4);
  Mlp<float> model(rng, {3, 4, 2});
  Tensor<float> seen;
  model.layers[1].on_input = [&](const Tensor<float>& x) { seen = x; };
  const auto x = normal_tensor<float>(rng, {5, 3});
  model(Var<float>(x));
  CHECK(identical(seen, autodiff::relu(model.layers[0](Var<float>(x))).value()));
}

TEST_CASE("nn.layers: embedding takes rows and only those get a gradient") {
  Rng rng(5);
  Embedding<double> table(rng, 6, 3, 0.1);
  Tape<double> tape;
  const auto y = table(&tape, {4, 1, 4});
  CHECK(identical(y.value(), table(nullptr, {4, 1, 4}).value()));
  tape.backward(sum(y));
  const auto gradient = table.weight.gradient->matrix();
  CHECK(gradient.row(4) == Eigen::RowVector3d::Constant(2));
  CHECK(gradient.row(1) == Eigen::RowVector3d::Constant(1));
  CHECK(gradient.row(0).isZero(0));
}

TEST_CASE("nn.layers: norms begin as the identity on normalised rows") {
  Rng rng(6);
  const auto x = normal_tensor<double>(rng, {4, 8});
  LayerNorm<double> layer(8);
  RmsNorm<double> rms(8);
  CHECK(identical(layer(Var<double>(x)).value(), autodiff::layer_norm(Var<double>(x)).value()));
  CHECK(identical(rms(Var<double>(x)).value(), autodiff::rms_norm(Var<double>(x)).value()));
  CHECK(parameter_count(layer) == 16);
  CHECK(parameter_count(rms) == 8);
}

TEST_CASE("nn.layers: dropout keeps the mean, its gradient follows the mask and probability 0 is the value itself") {
  Rng rng(7);
  const Tensor<double> ones({200, 100}, 1.0);
  Tape<double> tape;
  const auto x = tape.variable(ones);
  const auto y = dropout(x, 0.2, rng);
  double sum_y = 0;
  for (Index i = 0; i < y.size(); ++i) {
    CHECK((y.value().data()[i] == 0 || y.value().data()[i] == 1.25));
    sum_y += y.value().data()[i];
  }
  // 20000 trials of deviation 1.25 sqrt(0.2 0.8) = 0.5.
  CHECK(std::abs(sum_y / 20000 - 1) <= 4 * 0.5 / std::sqrt(20000.0));
  tape.backward(sum(y));
  CHECK(identical(*x.gradient(), y.value()));
  const auto before = rng.position();
  CHECK(identical(dropout(Var<double>(ones), 0, rng).value(), ones));
  CHECK(rng.position() == before);
  CHECK(message_of<InvalidArgument>([&] { dropout(Var<double>(ones), 1, rng); }) ==
        "dropout: probability must be in [0, 1), got 1");
}

TEST_CASE("nn.layers: a network needs an input and an output") {
  Rng rng(8);
  CHECK(message_of<InvalidArgument>([&] { Mlp<float>(rng, {3}); }) ==
        "Mlp: widths must name an input and an output, got 1 of them");
}

}  // namespace
}  // namespace ashlar::nn
