#include "ashlar/dynamics/two_layer_training.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "dynamics/contamination_samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::dynamics {
namespace {

using test::message_of;

TwoLayerNetwork<double> study_network(const std::string& stage) {
  return {data("mlp_" + stage + "_0"), data_vector("mlp_" + stage + "_1"), data_vector("mlp_" + stage + "_2"),
          data("mlp_" + stage + "_3")(0)};
}

bool same(const TwoLayerNetwork<double>& a, const TwoLayerNetwork<double>& b) {
  return a.weights == b.weights && a.bias == b.bias && a.output == b.output && a.output_bias == b.output_bias;
}

TEST_CASE("dynamics.two_layer_training: gradients and AdamW match the fixture") {
  const Matrix<double> x = data("mlp_X");
  const Vector<double> y = data_vector("mlp_y");
  TwoLayerNetwork<double> network = study_network("p0");
  const NetworkGradient<double> gradient = loss_and_gradient(network, x, y, Loss::logistic);
  CHECK((gradient.weights - data("mlp_g0_0")).cwiseAbs().maxCoeff() <= 1e-12);
  CHECK((gradient.bias - data_vector("mlp_g0_1")).cwiseAbs().maxCoeff() <= 1e-12);
  CHECK((gradient.output - data_vector("mlp_g0_2")).cwiseAbs().maxCoeff() <= 1e-12);
  CHECK(std::abs(gradient.output_bias - data("mlp_g0_3")(0)) <= 1e-12);

  Rng rng(0);
  const std::vector<double> losses = fit_network(network, x, y, {.steps = 5}, rng);
  const TwoLayerNetwork<double> expected = study_network("p5");
  CHECK(losses.size() == 5);
  CHECK(losses[0] == gradient.loss);
  CHECK((network.weights - expected.weights).cwiseAbs().maxCoeff() <= 1e-11);
  CHECK((network.bias - expected.bias).cwiseAbs().maxCoeff() <= 1e-11);
  CHECK((network.output - expected.output).cwiseAbs().maxCoeff() <= 1e-11);
  CHECK(std::abs(network.output_bias - expected.output_bias) <= 1e-11);
  CHECK(std::abs(evaluate(network, x, y, Loss::logistic).loss - data("mlp_loss5")(0)) <= 1e-12);
  CHECK(std::abs(evaluate(network, data("mlp_Xood"), y, Loss::logistic).loss - data("mlp_loss5")(1)) <= 1e-12);
  CHECK(rng.position() == 0);  // the whole of x needs no order
}

TEST_CASE("dynamics.two_layer_training: sgd and Adam take the steps of their formulas") {
  for (const UpdateRule rule : {UpdateRule::sgd, UpdateRule::adam, UpdateRule::adamw}) {
    INFO("rule " << static_cast<int>(rule));
    const Samples<double> s(1, 20, 4, 3, Activation::tanh);
    const double rate = 0.05, decay = 0.3;
    // By hand for one entry of every array.
    struct Entry {
      double theta, first = 0, second = 0;
    } entries[4] = {{s.network.weights(2, 1)}, {s.network.bias[3]}, {s.network.output[0]}, {s.network.output_bias}};
    TwoLayerNetwork<double> network = s.network;
    for (int t = 1; t <= 3; ++t) {
      // The trajectory up to here gives the gradient of this step.
      network = s.network;
      Rng rng(0);
      const FitOptions options{.loss = Loss::squared,
                               .rule = rule,
                               .learning_rate = rate,
                               .weight_decay = decay,
                               .momentum = 0.8,
                               .steps = t - 1};
      fit_network(network, s.x, s.y, options, rng);
      const NetworkGradient<double> g = reference::loss_and_gradient(network, s.x, s.y, Loss::squared);
      const double gradients[4] = {g.weights(2, 1), g.bias[3], g.output[0], g.output_bias};
      for (int i = 0; i < 4; ++i) {
        Entry& e = entries[i];
        double gradient = gradients[i];
        if (rule == UpdateRule::sgd) {
          e.first = 0.8 * e.first + gradient + decay * e.theta;
          e.theta -= rate * e.first;
          continue;
        }
        if (rule == UpdateRule::adam)
          gradient += decay * e.theta;
        else
          e.theta *= 1 - rate * decay;
        e.first = 0.9 * e.first + 0.1 * gradient;
        e.second = 0.999 * e.second + 0.001 * gradient * gradient;
        e.theta -= rate * (e.first / (1 - std::pow(0.9, t))) / (std::sqrt(e.second / (1 - std::pow(0.999, t))) + 1e-8);
      }
      network = s.network;
      FitOptions further = options;
      further.steps = t;
      fit_network(network, s.x, s.y, further, rng);
      CHECK(std::abs(network.weights(2, 1) - entries[0].theta) <= 1e-12);
      CHECK(std::abs(network.bias[3] - entries[1].theta) <= 1e-12);
      CHECK(std::abs(network.output[0] - entries[2].theta) <= 1e-12);
      CHECK(std::abs(network.output_bias - entries[3].theta) <= 1e-12);
    }
  }
}

TEST_CASE("dynamics.two_layer_training: mini-batches take every sample once an epoch") {
  // Steps so small that the network stays: then the batches of an epoch average to the whole.
  Samples<double> s(2, 10, 4, 3, Activation::relu);
  const double whole = evaluate(s.network, s.x, s.y, Loss::logistic).loss;
  Rng rng(3);
  const TwoLayerNetwork<double> before = s.network;
  const std::vector<double> losses =
      fit_network(s.network, s.x, s.y,
                  {.rule = UpdateRule::sgd, .learning_rate = 1e-300, .weight_decay = 0, .steps = 9, .batch = 4}, rng);
  CHECK(same(s.network, before));
  REQUIRE(losses.size() == 9);
  for (std::size_t epoch = 0; epoch < 9; epoch += 3)
    CHECK(std::abs((4 * losses[epoch] + 4 * losses[epoch + 1] + 2 * losses[epoch + 2]) / 10 - whole) <= 1e-15 * 10);
  CHECK(losses[0] != losses[1]);
  CHECK(losses[0] != losses[3]);  // another order

  Samples<double> full(2, 10, 4, 3, Activation::relu), all(2, 10, 4, 3, Activation::relu);
  fit_network(full.network, full.x, full.y, {.steps = 3, .batch = 0}, rng);
  fit_network(all.network, all.x, all.y, {.steps = 3, .batch = 10}, rng);
  CHECK(same(full.network, all.network));
}

TEST_CASE("dynamics.two_layer_training: a frozen output stays") {
  Samples<double> s(4, 30, 6, 3, Activation::relu);
  const TwoLayerNetwork<double> before = s.network;
  Rng rng(5);
  fit_network(s.network, s.x, s.y, {.train_output = false, .steps = 4}, rng);
  CHECK(s.network.output == before.output);
  CHECK(s.network.output_bias == before.output_bias);
  CHECK((s.network.weights.array() != before.weights.array()).all());
  CHECK((s.network.bias.array() != before.bias.array()).all());
  fit_network(s.network, s.x, s.y, {.steps = 4}, rng);
  CHECK((s.network.output.array() != before.output.array()).all());
  CHECK(s.network.output_bias != before.output_bias);
  TwoLayerNetwork<double> unbiased = before;
  unbiased.bias.resize(0);
  fit_network(unbiased, s.x, s.y, {.steps = 4}, rng);
  CHECK(unbiased.bias.size() == 0);
}

TEST_CASE("dynamics.two_layer_training: observers see every step and can end it") {
  Samples<double> s(6, 30, 6, 3, Activation::relu), t(6, 30, 6, 3, Activation::relu);
  Rng rng(7);
  std::vector<Index> seen;
  const std::vector<double> losses =
      fit_network(s.network, s.x, s.y, {.steps = 100}, rng, [&](Index step, const TwoLayerNetwork<double>&) {
        seen.push_back(step);
        return step < 3;
      });
  CHECK(seen == std::vector<Index>{0, 1, 2, 3});
  CHECK(losses.size() == 3);
  fit_network(t.network, t.x, t.y, {.steps = 3}, rng);
  CHECK(same(s.network, t.network));
  const std::vector<double> stopped =
      fit_network(t.network, t.x, t.y, {.learning_rate = 0.05, .steps = 1000, .stop_loss = 0.4}, rng);
  REQUIRE(stopped.size() < 1000);
  CHECK(stopped.back() <= 0.4);
  CHECK(*std::min_element(stopped.begin(), stopped.end() - 1) > 0.4);
}

TEST_CASE("dynamics.two_layer_training: the same bits for any number of threads") {
  const auto run = [](int threads) {
    return test::with_threads(threads, [] {
      Samples<double> s(8, 700, 150, 40, Activation::relu);
      Rng rng(9);
      fit_network(s.network, s.x, s.y, {.steps = 6, .batch = 300}, rng);
      return s.network;
    });
  };
  const TwoLayerNetwork<double> one = run(1);
  CHECK(same(one, run(2)));
  CHECK(same(one, run(4)));
}

TEST_CASE("dynamics.two_layer_training: training that diverges says so and leaves the network as it was") {
  Samples<double> s(10, 30, 6, 3, Activation::identity);
  const TwoLayerNetwork<double> before = s.network;
  Rng rng(11);
  const std::string message = message_of<NumericalError>([&] {
    fit_network(s.network, s.x, s.y,
                {.loss = Loss::squared, .rule = UpdateRule::sgd, .learning_rate = 1e6, .steps = 1000}, rng);
  });
  CHECK(message.starts_with("fit_network: step "));
  CHECK(message.ends_with(", left parameters that are not finite; lower the learning rate"));
  CHECK(same(s.network, before));
}

TEST_CASE("dynamics.two_layer_training: bad arguments are named") {
  Samples<double> s(12, 5, 3, 2, Activation::relu);
  Rng rng(13);
  const auto message = [&](const FitOptions& options) {
    return message_of<InvalidArgument>([&] { fit_network(s.network, s.x, s.y, options, rng); });
  };
  CHECK(message({.learning_rate = -1}) == "fit_network: learning_rate must be positive and finite, got -1");
  CHECK(message({.weight_decay = -1}) == "fit_network: weight_decay must be finite and not negative, got -1");
  CHECK(message({.momentum = 1}) == "fit_network: momentum must be at least 0 and less than 1, got 1");
  CHECK(message({.steps = -1}) == "fit_network: steps must be not negative, got -1");
  CHECK(message({.batch = 6}) == "fit_network: batch must be between 0 and 5, got 6");
  s.y[4] = 2;
  CHECK(message({}) == "fit_network: y[4] must be -1 or 1, got 2");
  s.x.resize(5, 3);
  CHECK(message({}) == "fit_network: x has shape [5,3], expected [5,2] (one column an input of the network)");
}

}  // namespace
}  // namespace ashlar::dynamics
