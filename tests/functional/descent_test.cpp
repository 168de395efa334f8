#include "ashlar/functional/descent.hpp"

#include <cmath>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::functional {
namespace {

using test::message_of;

TEST_CASE("functional.descent: the first Adam step has the size of the learning rate against the gradient") {
  // m / (1 - beta1) = g and v / (1 - beta2) = g^2 at step 1, so that the step is rate g / (|g| + epsilon).
  std::vector<double> w(19), gradient(19), m(19), v(19);
  Rng rng(1);
  for (double& g : gradient) g = rng.normal();
  adam_update<double>(w, gradient, m, v, 1, Decay::apart, {.learning_rate = 0.25, .epsilon = 0});
  for (std::size_t i = 0; i < w.size(); ++i) CHECK(std::abs(w[i] + std::copysign(0.25, gradient[i])) <= 1e-15);
}

TEST_CASE("functional.descent: decay acts through the gradient or on the parameter") {
  std::vector<double> zero(1), w{2.0}, m(1), v(1);
  adam_update<double>(w, zero, m, v, 1, Decay::apart, {.learning_rate = 0.1, .weight_decay = 0.5});
  CHECK(w[0] == 2 * (1 - 0.1 * 0.5));
  CHECK(m[0] == 0);
  w = {2.0};
  adam_update<double>(w, zero, m, v, 1, Decay::in_gradient, {.learning_rate = 0.1, .epsilon = 0, .weight_decay = 0.5});
  CHECK(std::abs(w[0] - 1.9) <= 1e-15);
  CHECK(std::abs(m[0] - 0.1) <= 1e-16);
}

TEST_CASE("functional.descent: steps allocate nothing") {
  std::vector<float> w(1000), gradient(1000, 1.0f), m(1000), v(1000);
  CHECK(test::allocations([&] {
          adam_update<float>(w, gradient, m, v, 1, Decay::apart, {});
          sgd_update<float>(w, gradient, m, {.momentum = 0.9, .nesterov = true});
        }) == 0);
}

TEST_CASE("functional.descent: arrays that do not fit and a step before the first are named") {
  std::vector<double> two(2), three(3);
  CHECK(message_of<InvalidArgument>([&] { sgd_update<double>(two, three, two, {}); }) ==
        "sgd_update: the arrays differ in size");
  CHECK(message_of<InvalidArgument>([&] { adam_update<double>(two, two, two, three, 1, Decay::apart, {}); }) ==
        "adam_update: the arrays differ in size");
  CHECK(message_of<InvalidArgument>([&] { adam_update<double>(two, two, two, two, 0, Decay::apart, {}); }) ==
        "adam_update: step must be at least 1, got 0");
}

}  // namespace
}  // namespace ashlar::functional
