#include "ashlar/autodiff/normalization.hpp"

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gradients.hpp"

namespace ashlar::autodiff {
namespace {

using test::check_rules;
using test::message_of;
using Vars = std::vector<Var<double>>;

TEST_CASE("autodiff.normalization: the rules agree with finite differences with and without gain and bias") {
  Rng rng(1);
  const auto x = normal_tensor<double>(rng, {2, 3, 5}), gain = normal_tensor<double>(rng, {5}),
             bias = normal_tensor<double>(rng, {5});
  check_rules([](const Vars& v) { return layer_norm<double>(v[0], v[1], v[2]); }, {x, gain, bias});
  check_rules([](const Vars& v) { return layer_norm<double>(v[0], v[1]); }, {x, gain});
  check_rules([](const Vars& v) { return layer_norm(v[0]); }, {x});
  check_rules([](const Vars& v) { return rms_norm<double>(v[0], v[1]); }, {x, gain});
  check_rules([](const Vars& v) { return rms_norm(v[0]); }, {x});
  check_rules([](const Vars& v) { return rms_norm<double>(v[0], {}, 0.5); }, {x});
}

TEST_CASE("autodiff.normalization: shapes that do not fit are named") {
  const Var<double> x(Tensor<double>({2, 3})), wrong(Tensor<double>({2}));
  CHECK(message_of<InvalidArgument>([&] { layer_norm<double>(x, wrong); }) ==
        "layer_norm: gain has shape [2], expected [3] (last axis of x)");
  CHECK(message_of<InvalidArgument>([&] { layer_norm<double>(x, {}, wrong); }) ==
        "layer_norm: bias has shape [2], expected [3] (last axis of x)");
  CHECK(message_of<InvalidArgument>([&] { rms_norm<double>(x, wrong); }) ==
        "rms_norm: gain has shape [2], expected [3] (last axis of x)");
}

}  // namespace
}  // namespace ashlar::autodiff
