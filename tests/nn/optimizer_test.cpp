#include "ashlar/nn/optimizer.hpp"

#include <cmath>

#include "ashlar/autodiff/loss.hpp"
#include "ashlar/nn/layers.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::nn {
namespace {

using test::identical;
using test::message_of;

constexpr int steps = 7;
constexpr Index size = 21;  // whole vectors and a rest

/// Runs an optimiser on given gradients, and update(w, g, state[2], step) in long double beside it.
template <class Optimizer, class Options, class Update>
double worst_gap(const Options& options, Update update) {
  Rng rng(1);
  Parameter<double> parameter(normal_tensor<double>(rng, {size}));
  std::vector<long double> w(parameter.value.data(), parameter.value.data() + size);
  std::vector<std::array<long double, 2>> state(static_cast<std::size_t>(size));
  Optimizer optimizer({{"w", &parameter}}, options);
  for (int t = 1; t <= steps; ++t) {
    parameter.gradient = normal_tensor<double>(rng, {size});
    for (Index i = 0; i < size; ++i)
      update(w[static_cast<std::size_t>(i)], static_cast<long double>(parameter.gradient->data()[i]),
             state[static_cast<std::size_t>(i)], t);
    optimizer.step();
    REQUIRE_FALSE(parameter.gradient.has_value());
  }
  double worst = 0;
  for (Index i = 0; i < size; ++i)
    worst = std::max(worst, static_cast<double>(std::abs(w[static_cast<std::size_t>(i)] -
                                                         static_cast<long double>(parameter.value.data()[i]))));
  return worst;
}

TEST_CASE("nn.optimizer: SGD with momentum, Nesterov and decay is the recurrence") {
  for (const SgdOptions o :
       {SgdOptions{}, SgdOptions{.learning_rate = 0.1, .momentum = 0.9},
        SgdOptions{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.3}}) {
    CHECK(worst_gap<Sgd<double>>(o, [&](long double& w, long double g, auto& s, int) {
            const long double total = g + o.weight_decay * w;
            s[0] = o.momentum * s[0] + total;
            w -= o.learning_rate * (o.nesterov ? total + o.momentum * s[0] : s[0]);
          }) <= 1e-14);
  }
}

TEST_CASE("nn.optimizer: Adam adds decay to the gradient and AdamW takes it from the parameter") {
  const AdamOptions o{.learning_rate = 0.05, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.2};
  const auto adam = [&](bool decoupled) {
    return [&, decoupled](long double& w, long double g, auto& s, int t) {
      const long double total = decoupled ? g : g + o.weight_decay * w;
      if (decoupled) w *= 1 - o.learning_rate * o.weight_decay;
      s[0] = o.beta1 * s[0] + (1 - o.beta1) * total;
      s[1] = o.beta2 * s[1] + (1 - o.beta2) * total * total;
      const long double m = s[0] / (1 - std::pow(static_cast<long double>(o.beta1), t)),
                        v = s[1] / (1 - std::pow(static_cast<long double>(o.beta2), t));
      w -= o.learning_rate * m / (std::sqrt(v) + o.epsilon);
    };
  };
  CHECK(worst_gap<Adam<double>>(o, adam(false)) <= 1e-14);
  CHECK(worst_gap<AdamW<double>>(o, adam(true)) <= 1e-14);
}

TEST_CASE("nn.optimizer: a parameter without gradient and a frozen one stay with their state as they were") {
  Parameter<double> with(Tensor<double>(Shape{2}, 1.0)), without(Tensor<double>(Shape{2}, 1.0)),
      frozen(Tensor<double>(Shape{2}, 1.0));
  AdamW<double> optimizer({{"with", &with}, {"without", &without}, {"frozen", &frozen}}, {.weight_decay = 0.5});
  with.gradient = frozen.gradient = Tensor<double>(Shape{2}, 1.0);
  frozen.frozen = true;
  optimizer.step();
  CHECK(with.value.data()[0] != 1);
  CHECK(identical(without.value, Tensor<double>(Shape{2}, 1.0)));
  CHECK(identical(frozen.value, Tensor<double>(Shape{2}, 1.0)));
  for_each_tensor(optimizer, [](const std::string& name, auto& tensor) {
    if (name.starts_with("without") || name.starts_with("frozen"))
      for (Index i = 0; i < tensor.size(); ++i) CHECK(tensor.data()[i] == 0);
  });
}

TEST_CASE("nn.optimizer: groups have options of their own and a schedule sets the rate of all") {
  Parameter<double> a(Tensor<double>(Shape{1})), b(Tensor<double>(Shape{1}));
  Sgd<double> optimizer({{{{"a", &a}}, {.learning_rate = 1}}, {{{"b", &b}}, {.learning_rate = 2}}});
  a.gradient = b.gradient = Tensor<double>(Shape{1}, 1.0);
  optimizer.step();
  CHECK(*a.value.data() == -1);
  CHECK(*b.value.data() == -2);
  optimizer.set_learning_rate(0.5);
  a.gradient = b.gradient = Tensor<double>(Shape{1}, 1.0);
  optimizer.step();
  CHECK(*a.value.data() == -1.5);
  CHECK(*b.value.data() == -2.5);
}

TEST_CASE("nn.optimizer: clipping scales all gradients by one factor and only when their norm is too large") {
  Parameter<float> a(Tensor<float>(Shape{1})), b(Tensor<float>(Shape{2})), idle(Tensor<float>(Shape{1}));
  Sgd<float> optimizer({{"a", &a}, {"b", &b}, {"idle", &idle}}, {});
  a.gradient = Tensor<float>(Shape{1}, 3.0f);
  b.gradient = Tensor<float>(Shape{2});
  b.gradient->data()[1] = -4;
  CHECK(clip_gradient_norm<float>(optimizer, 5) == 5);
  CHECK(*a.gradient->data() == 3);
  CHECK(clip_gradient_norm<float>(optimizer, 1) == 5);
  CHECK(*a.gradient->data() == 3.0f * 0.2f);
  CHECK(b.gradient->data()[1] == -4.0f * 0.2f);
  CHECK(message_of<InvalidArgument>([&] { clip_gradient_norm<float>(optimizer, 0); }) ==
        "clip_gradient_norm: limit must be positive, got 0");
}

TEST_CASE("nn.optimizer: Polyak averages move towards the source") {
  Rng rng(2);
  Mlp<double> target(rng, {2, 3}), source(rng, {2, 3}), other(rng, {3, 3});
  const double from = target.layers[0].weight.value.data()[4], to = source.layers[0].weight.value.data()[4];
  polyak_average(target, source, 0.25);
  CHECK(std::abs(target.layers[0].weight.value.data()[4] - (0.75 * from + 0.25 * to)) <= 1e-16);
  polyak_average(target, source, 1);
  CHECK(std::abs(target.layers[0].bias->value.data()[1] - source.layers[0].bias->value.data()[1]) <= 1e-16);
  CHECK(message_of<InvalidArgument>([&] { polyak_average(target, other, 0.5); }) ==
        "polyak_average: layers.0.weight has shape [3,3], expected [3,2] (source like target)");
  CHECK(message_of<InvalidArgument>([&] { polyak_average(target, source, 1.5); }) ==
        "polyak_average: rate must be in [0, 1], got 1.5");
}

TEST_CASE("nn.optimizer: training has the same bits for any number of threads") {
  const auto train = [] {
    Rng rng(3);
    Mlp<float> model(rng, {40, 300, 5});
    AdamW<float> optimizer(parameters<float>(model), {.learning_rate = 1e-2});
    const auto x = normal_tensor<float>(rng, {300, 40});
    std::vector<Index> labels;
    for (Index i = 0; i < 300; ++i) labels.push_back(static_cast<Index>(rng.below(5)));
    Tape<float> tape;
    for (int step = 0; step < 5; ++step) {
      tape.backward(cross_entropy(model(tape.constant(x)), labels));
      clip_gradient_norm<float>(optimizer, 0.1);
      optimizer.step();
    }
    return model.layers[0].weight.value;
  };
  const auto one = test::with_threads(1, train);
  CHECK(identical(one, test::with_threads(2, train)));
  CHECK(identical(one, test::with_threads(4, train)));
}

TEST_CASE("nn.optimizer: a gradient of another shape is named") {
  Parameter<double> w(Tensor<double>(Shape{2}));
  Sgd<double> optimizer({{"layer.weight", &w}}, {});
  w.gradient = Tensor<double>(Shape{3});
  CHECK(message_of<InvalidArgument>([&] { optimizer.step(); }) ==
        "step: layer.weight has shape [3], expected [2] (gradient like value)");
}

}  // namespace
}  // namespace ashlar::nn
