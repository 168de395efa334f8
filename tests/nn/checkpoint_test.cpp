#include "ashlar/nn/checkpoint.hpp"

#include "ashlar/autodiff/loss.hpp"
#include "ashlar/nn/layers.hpp"
#include "ashlar/nn/optimizer.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/temporary.hpp"

namespace ashlar::nn {
namespace {

using test::identical;
using test::message_of;

void train(Mlp<float>& model, AdamW<float>& optimizer, int steps) {
  Rng rng(9);
  const auto x = normal_tensor<float>(rng, {16, 4});
  std::vector<Index> labels;
  for (Index i = 0; i < 16; ++i) labels.push_back(i % 3);
  Tape<float> tape;
  for (int step = 0; step < steps; ++step) {
    tape.backward(cross_entropy(model(tape.constant(x)), labels));
    optimizer.step();
  }
}

TEST_CASE("nn.checkpoint: training, saving, loading and training gives the bits of training straight through") {
  const test::TemporaryFolder folder;
  Rng rng(1), other(2);
  Mlp<float> straight(rng, {4, 9, 3}), resumed(other, {4, 9, 3});
  AdamW<float> optimizer(parameters<float>(straight), {.learning_rate = 1e-2});
  train(straight, optimizer, 5);
  save(straight, folder.path() + "/model.safetensors");
  save(optimizer, folder.path() + "/optimizer.safetensors");
  train(straight, optimizer, 5);

  AdamW<float> again(parameters<float>(resumed), {.learning_rate = 1e-2});
  load(resumed, folder.path() + "/model.safetensors");
  load(again, folder.path() + "/optimizer.safetensors");
  train(resumed, again, 5);
  CHECK(identical(straight.layers[0].weight.value, resumed.layers[0].weight.value));
  CHECK(identical(straight.layers[1].bias->value, resumed.layers[1].bias->value));
}

TEST_CASE("nn.checkpoint: names are those of the module and half precision is converted") {
  const test::TemporaryFolder folder;
  Rng rng(1);
  Linear<float> layer(rng, 2, 1);
  save(layer, folder.path() + "/a", {{"origin", "test"}});
  const io::Safetensors file(folder.path() + "/a");
  CHECK(file.names() == std::vector<std::string>{"bias", "weight"});
  Tensor<bfloat16> weight({1, 2}, bfloat16(1.5f)), bias(Shape{1}, bfloat16(-2.0f));
  io::save_safetensors(folder.path() + "/b", {{"weight", weight}, {"bias", bias}});
  load(layer, folder.path() + "/b");
  CHECK(layer.weight.value.data()[1] == 1.5f);
  CHECK(*layer.bias->value.data() == -2.0f);
}

TEST_CASE("nn.checkpoint: a file that does not fit is named and leaves the module as it was") {
  const test::TemporaryFolder folder;
  Rng rng(1);
  Linear<float> layer(rng, 2, 1), wide(rng, 3, 1), bare(rng, 2, 1, false);
  const auto weight = layer.weight.value;
  const std::string path = folder.path() + "/m";
  const auto fault = [&] { return message_of<InvalidArgument>([&] { load(layer, path); }); };
  save(wide, path);
  CHECK(fault() == "load: weight has shape [1,3], expected [1,2] (shape of the module's)");
  save(bare, path);
  CHECK(fault() == "load: " + path + " has no tensor \"bias\"");
  save(layer, path);
  CHECK(message_of<InvalidArgument>([&] { load(bare, path); }) ==
        "load: " + path + " has a tensor \"bias\" that the module has not");
  CHECK(identical(weight, layer.weight.value));
}

}  // namespace
}  // namespace ashlar::nn
