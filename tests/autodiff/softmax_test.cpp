#include "ashlar/autodiff/softmax.hpp"

#include <limits>

#include "support/catch.hpp"
#include "support/gradients.hpp"

namespace ashlar::autodiff {
namespace {

using test::check_rules;
using Vars = std::vector<Var<double>>;

TEST_CASE("autodiff.softmax: the rules agree with finite differences") {
  Rng rng(1);
  for (const Shape& shape : {Shape{2, 3, 5}, Shape{4, 1}, Shape{19}}) {
    const auto x = normal_tensor<double>(rng, shape);
    check_rules([](const Vars& v) { return softmax(v[0]); }, {x});
    check_rules([](const Vars& v) { return log_softmax(v[0]); }, {x});
  }
}

TEST_CASE("autodiff.softmax: masked scores get no weight and no gradient") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Tensor<double> scores({2, 3});
  const double values[] = {0.5, -infinity, 1, -infinity, -infinity, -infinity};
  std::copy(std::begin(values), std::end(values), scores.data());
  Tape<double> tape;
  const auto x = tape.variable(scores);
  const auto y = softmax(x);
  CHECK(y.value().data()[1] == 0);
  CHECK(y.value().data()[4] == 0);
  tape.backward(sum(square(y)));
  for (const Index i : {1, 3, 4, 5}) CHECK(x.gradient()->data()[i] == 0);
  CHECK(std::abs(x.gradient()->data()[0] + x.gradient()->data()[2]) <= 1e-15);
}

}  // namespace
}  // namespace ashlar::autodiff
