#include "ashlar/nn/schedule.hpp"

#include <cmath>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::nn {
namespace {

using test::message_of;

TEST_CASE("nn.schedule: factors at beginning, middle and end") {
  CHECK(warmup(0, 4) == 0.25);
  CHECK(warmup(3, 4) == 1);
  CHECK(warmup(9, 4) == 1);
  CHECK(warmup(0, 0) == 1);
  CHECK(cosine(0, 10) == 1);
  CHECK(std::abs(cosine(5, 10) - 0.5) <= 1e-15);
  CHECK(std::abs(cosine(10, 10)) <= 1e-15);
  CHECK(std::abs(cosine(5, 10, 0.1) - 0.55) <= 1e-15);
  CHECK(cosine(99, 10, 0.1) == cosine(10, 10, 0.1));
  CHECK(linear_decay(0, 10) == 1);
  CHECK(std::abs(linear_decay(5, 10, 0.2) - 0.6) <= 1e-15);
  CHECK(std::abs(linear_decay(50, 10, 0.2) - 0.2) <= 1e-15);
  CHECK(staircase(9, 10, 0.5) == 1);
  CHECK(staircase(10, 10, 0.5) == 0.5);
  CHECK(staircase(29, 10, 0.5) == 0.25);
}

TEST_CASE("nn.schedule: lengths that are not positive are named") {
  CHECK(message_of<InvalidArgument>([] { cosine(0, 0); }) == "cosine: steps must be positive, got 0");
  CHECK(message_of<InvalidArgument>([] { linear_decay(0, 0); }) == "linear_decay: steps must be positive, got 0");
  CHECK(message_of<InvalidArgument>([] { staircase(0, 0, 0.5); }) == "staircase: every must be positive, got 0");
}

}  // namespace
}  // namespace ashlar::nn
