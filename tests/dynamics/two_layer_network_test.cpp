#include "ashlar/dynamics/two_layer_network.hpp"

#include <cmath>
#include <limits>

#include "dynamics/contamination_samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::dynamics {
namespace {

using test::message_of;

TEST_CASE("dynamics.two_layer_network: activations have their values") {
  for (const double h : {-30.0, -2.0, -0.5, 0.0, 0.5, 2.0, 30.0}) {
    CHECK(activate(Activation::identity, h) == h);
    CHECK(activate(Activation::relu, h) == std::max(0.0, h));
    CHECK(activate(Activation::leaky_relu, h) == (h > 0 ? h : 0.1 * h));
    CHECK(activate(Activation::tanh, h) == std::tanh(h));
    CHECK(std::abs(activate(Activation::sigmoid, h) - (1 + std::tanh(h / 2)) / 2) <= 3e-16);
    CHECK(std::abs(activate(Activation::gelu, h) - h * (1 + std::erf(h / std::sqrt(2.0))) / 2) <= 4e-16 * std::abs(h));
  }
  CHECK(std::abs(activate(Activation::gelu, 1.0) - 0.84134474606854293) <= 2e-16);
  CHECK(activate(Activation::sigmoid, -1e4) == 0);
  CHECK(activate(Activation::sigmoid, 1e4f) == 1);
}

TEST_CASE("dynamics.two_layer_network: slopes are the derivatives of the activations") {
  const double step = 1e-5;
  for (const Activation activation : all_activations)
    for (const double h : {-6.0, -1.3, -0.2, 0.1, 0.9, 5.0}) {
      INFO("activation " << static_cast<int>(activation) << " at " << h);
      const double difference = (activate(activation, h + step) - activate(activation, h - step)) / (2 * step);
      // step^2 / 6 |s'''| with |s'''| <= 2, and the rounding of two values below 7 over 2 step.
      CHECK(std::abs(activation_slope(activation, h) - difference) <= step * step / 3 + 7 * 2.3e-16 / step);
    }
  CHECK(activation_slope(Activation::relu, 0.0) == 0);
  CHECK(activation_slope(Activation::leaky_relu, 0.0) == 0.1);
  CHECK(activation_slope(Activation::identity, 0.0) == 1);
  CHECK(activation_slope(Activation::gelu, 0.0) == 0.5);
}

TEST_CASE("dynamics.two_layer_network: losses have their values and slopes") {
  const double step = 1e-5;
  for (const double y : {-1.0, 1.0})
    for (const double f : {-3.0, -0.4, 0.3, 1.7}) {
      CHECK(loss_terms(Loss::hinge, f, y).value == std::max(0.0, 1 - y * f));
      CHECK(std::abs(loss_terms(Loss::logistic, f, y).value - std::log(1 + std::exp(-y * f))) <= 1e-15);
      CHECK(loss_terms(Loss::squared, f, y).value == (f - y) * (f - y));
      for (const Loss loss : all_losses) {
        INFO("loss " << static_cast<int>(loss) << " at " << f << ", " << y);
        const double difference =
            (loss_terms(loss, f + step, y).value - loss_terms(loss, f - step, y).value) / (2 * step);
        CHECK(std::abs(loss_terms(loss, f, y).slope - difference) <= step * step + 16 * 2.3e-16 / step);
      }
    }
  CHECK(loss_terms(Loss::hinge, 1.0, 1.0).slope == 0);  // margin exactly 1
  CHECK(loss_terms(Loss::hinge, -1.0, -1.0).value == 0);
}

TEST_CASE("dynamics.two_layer_network: the logistic loss is finite however wrong the output is") {
  CHECK(loss_terms(Loss::logistic, -1e4, 1.0).value == 1e4);
  CHECK(loss_terms(Loss::logistic, -1e4, 1.0).slope == -1);
  CHECK(loss_terms(Loss::logistic, 1e4, 1.0).value == 0);
  CHECK(loss_terms(Loss::logistic, 1e4, 1.0).slope == 0);
  CHECK(loss_terms(Loss::logistic, 1e4f, -1.0f).value == 1e4f);
  CHECK(loss_terms(Loss::logistic, 1e4f, -1.0f).slope == 1);
}

TEST_CASE("dynamics.two_layer_network: the theory's network has normal weights and outputs of size 1/m") {
  Rng rng(1);
  const auto network = random_network<double>(rng, 251, 100);
  CHECK(network.bias.size() == 0);
  CHECK(network.output_bias == 0);
  CHECK(network.activation == Activation::relu);
  for (Index k = 0; k < 251; ++k)
    CHECK(network.output[k] == (k < 125 ? 1.0 : -1.0) / 251);  // odd: the first floor(m/2)
  const double n = 25100, variance = network.weights.squaredNorm() / n;
  CHECK(std::abs(variance - 0.01) <= 4 * 0.01 * std::sqrt(2 / n));  // 1 / d
  const auto wide = random_network<float>(rng, 500, 100, {.deviation = 2, .signs = OutputSigns::random});
  CHECK(std::abs(wide.weights.squaredNorm() / 5e4f - 4) <= 4 * 4 * std::sqrt(2 / 5e4));
  CHECK((wide.output.array().abs() == 1 / 500.0f).all());
  CHECK(std::abs(wide.output.sum()) <= 4 / std::sqrt(500.0f));
  CHECK((wide.output.head(250).array() < 0).any());
}

TEST_CASE("dynamics.two_layer_network: the study's network is uniform within its fan-in") {
  Rng rng(2);
  const auto network = uniform_network<double>(rng, 400, 25, Activation::tanh);
  CHECK(network.activation == Activation::tanh);
  const auto fills = [](const auto& x,
                        double bound) {  // a uniform sample of n stays short of its end by about bound / n
    return x.maxCoeff() <= bound && x.minCoeff() >= -bound && x.maxCoeff() > 0.95 * bound &&
           x.minCoeff() < -0.95 * bound;
  };
  CHECK(fills(network.weights, 0.2));
  CHECK(fills(network.bias, 0.2));
  CHECK(fills(network.output, 0.05));
  CHECK(std::abs(network.output_bias) <= 0.05);
  CHECK(network.output_bias != 0);
  const auto frozen = uniform_network<double>(rng, 5, 25, Activation::relu, true);
  for (Index k = 0; k < 5; ++k) CHECK(frozen.output[k] == (k < 2 ? 0.2 : -0.2));
  CHECK(frozen.output_bias != 0);
}

TEST_CASE("dynamics.two_layer_network: networks that cannot be are refused") {
  Rng rng(3);
  CHECK(message_of<InvalidArgument>([&] { (void)random_network<double>(rng, 0, 4); }) ==
        "random_network: hidden must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { (void)random_network<double>(rng, 4, 0); }) ==
        "random_network: d must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { (void)random_network<double>(rng, 4, 4, {.deviation = -1}); }) ==
        "random_network: deviation must be finite and not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { (void)random_network<double>(rng, 4, 4, {.deviation = 0}); }) ==
        "random_network: deviation must be positive for relu, whose gradient at W = 0 is 0 for ever, got 0");
  CHECK(random_network<double>(rng, 4, 4, {.activation = Activation::tanh, .deviation = 0}).weights.norm() == 0);
  CHECK(message_of<InvalidArgument>([&] { (void)uniform_network<double>(rng, 0, 4, Activation::relu); }) ==
        "uniform_network: hidden must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { (void)uniform_network<double>(rng, 4, 0, Activation::relu); }) ==
        "uniform_network: d must be at least 1, got 0");
}

}  // namespace
}  // namespace ashlar::dynamics
