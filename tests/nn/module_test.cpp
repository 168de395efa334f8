#include "ashlar/nn/module.hpp"

#include <type_traits>

#include "ashlar/nn/layers.hpp"
#include "support/catch.hpp"

namespace ashlar::nn {
namespace {

struct Block {
  std::vector<Linear<double>> layers;
  std::optional<LayerNorm<double>> norm;
  Parameter<double> scale;
  Tensor<double> seen;

  template <class Visitor>
  void visit(Visitor&& visitor) {
    visitor("layers", layers);
    visitor("norm", norm);
    visitor("scale", scale);
    visitor("seen", seen);
  }
};

Block block(bool with_norm) {
  Rng rng(1);
  Block made;
  made.layers.emplace_back(rng, 3, 2);
  made.layers.emplace_back(rng, 2, 1, false);
  if (with_norm) made.norm.emplace(2);
  made.scale = Parameter<double>(Tensor<double>(Shape{1}, 2.0));
  made.seen = Tensor<double>(Shape{4});
  return made;
}

TEST_CASE("nn.module: names lead from the outermost module to the parameter") {
  Block made = block(true);
  std::vector<std::string> names;
  for_each_parameter(made, [&](const std::string& name, auto&) { names.push_back(name); });
  CHECK(names == std::vector<std::string>{"layers.0.weight", "layers.0.bias", "layers.1.weight", "norm.weight",
                                          "norm.bias", "scale"});
  names.clear();
  for_each_tensor(made, [&](const std::string& name, auto&) { names.push_back(name); });
  CHECK(names.back() == "seen");
  CHECK(names.size() == 7);
  Block without = block(false);
  CHECK(parameters<double>(without).size() == 4);
}

TEST_CASE("nn.module: layers are visited with their own type") {
  Block made = block(true);
  std::vector<std::string> linears, all;
  for_each_layer(made, [&](const std::string& name, auto& layer) {
    all.push_back(name);
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(layer)>, Linear<double>>) linears.push_back(name);
  });
  CHECK(linears == std::vector<std::string>{"layers.0", "layers.1"});
  CHECK(all == std::vector<std::string>{"", "layers.0", "layers.1", "norm"});
}

TEST_CASE("nn.module: counting and freezing") {
  Block made = block(true);
  CHECK(parameter_count(made) == 6 + 2 + 2 + 4 + 1);
  freeze(made.layers[0]);
  CHECK(parameter_count(made) == 2 + 4 + 1);
  freeze(made, false);
  CHECK(parameter_count(made) == 15);
}

}  // namespace
}  // namespace ashlar::nn
