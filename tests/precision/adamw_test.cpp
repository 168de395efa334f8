#include "ashlar/precision/adamw.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "ashlar/core/tensor.hpp"
#include "ashlar/io/safetensors.hpp"
#include "ashlar/precision/collage.hpp"
#include "precision/adamw_cases.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/temporary.hpp"

namespace ashlar::precision {
namespace {

using namespace test_cases;
using test::message_of;

TEST_CASE("precision.adamw: an optimiser over groups does what single steps do") {
  Rng rng(51);
  Matrix<bfloat16> weight(20, 13), weight_gradient(20, 13);
  std::vector<bfloat16> bias = spread<bfloat16>(rng, 13, 2), bias_gradient = spread<bfloat16>(rng, 13, 2);
  for (Index i = 0; i < weight.size(); ++i) {
    weight.data()[i] = round_to<bfloat16>(static_cast<float>(rng.normal()));
    weight_gradient.data()[i] = round_to<bfloat16>(static_cast<float>(rng.normal()));
  }
  std::vector<bfloat16> flat(weight.data(), weight.data() + weight.size()), single_bias = bias;
  const std::vector<bfloat16> flat_gradient(weight_gradient.data(), weight_gradient.data() + weight.size());
  AdamWState<bfloat16> flat_state(Precision::collage_plus, flat), bias_state(Precision::collage_plus, single_bias);

  AdamWOptions slow;
  slow.learning_rate = 1e-4;
  slow.weight_decay = 0;
  AdamW<bfloat16> optimizer(Precision::collage_plus);
  const Index group = optimizer.add_group(slow);
  optimizer.add("weight", weight, weight_gradient);
  optimizer.add("bias", bias, bias_gradient, group);
  DescentSums total, groups[2], weight_sums, bias_sums;
  for (int t = 0; t < 5; ++t) {
    AdamWOptions fast;
    fast.learning_rate = optimizer.options(0).learning_rate = 1e-3 * (t + 1);
    CHECK(optimizer.step({.gradient_scale = 1, .check_finite = true, .quality = &total}, groups).applied);
    adamw_step(flat, flat_gradient, flat_state, fast,
               {.gradient_scale = 1, .check_finite = true, .quality = &weight_sums});
    adamw_step(single_bias, bias_gradient, bias_state, slow,
               {.gradient_scale = 1, .check_finite = true, .quality = &bias_sums});
  }
  CHECK(std::memcmp(weight.data(), flat.data(), flat.size() * 2) == 0);
  CHECK(std::memcmp(bias.data(), single_bias.data(), bias.size() * 2) == 0);
  CHECK(groups[0].update_squared == weight_sums.update_squared);
  CHECK(groups[1].update_effective == bias_sums.update_effective);
  CHECK(total.count == 20 * 13 + 13);
  // One bad gradient stops all groups.
  bias_gradient[3] = round_to<bfloat16>(NAN);
  CHECK(optimizer.step().non_finite == 1);
  CHECK(std::memcmp(weight.data(), flat.data(), flat.size() * 2) == 0);
  CHECK(optimizer.state("weight").step == 5);
}

TEST_CASE("precision.adamw: a run resumed from a checkpoint goes on with the same bits") {
  for (const Precision precision : strategies) {
    INFO(name_of(precision));
    Rng data(61);
    std::vector<bfloat16> a = spread<bfloat16>(data, 200, 3), b = spread<bfloat16>(data, 50, 3), ga(200), gb(50);
    const auto draw = [](std::vector<bfloat16>& g, Rng& rng) {
      g = spread<bfloat16>(rng, static_cast<Index>(g.size()), 5);
    };
    const auto build = [&](Rng rng) {
      AdamW<bfloat16> optimizer(precision, {}, rng);
      optimizer.add("a", a, ga);
      optimizer.add("b", b, gb);
      return optimizer;
    };
    AdamW<bfloat16> optimizer = build(Rng(1));
    Rng gradients(62);
    const auto advance = [&](AdamW<bfloat16>& some, Rng& rng) {
      for (int t = 0; t < 4; ++t) {
        std::vector<bfloat16> na(200), nb(50);
        draw(na, rng), draw(nb, rng);
        std::copy(na.begin(), na.end(), ga.begin());
        std::copy(nb.begin(), nb.end(), gb.begin());
        some.step();
      }
    };
    advance(optimizer, gradients);
    const AdamWCheckpoint<bfloat16> saved = optimizer.checkpoint();
    const auto saved_a = a, saved_b = b;
    Rng continued = gradients;
    advance(optimizer, gradients);
    const auto end_a = a, end_b = b;

    std::copy(saved_a.begin(), saved_a.end(), a.begin());
    std::copy(saved_b.begin(), saved_b.end(), b.begin());
    AdamW<bfloat16> resumed = build(Rng(99));
    resumed.restore(saved);
    advance(resumed, continued);
    CHECK(std::memcmp(a.data(), end_a.data(), a.size() * 2) == 0);
    CHECK(std::memcmp(b.data(), end_b.data(), b.size() * 2) == 0);

    // The same through a file.
    const test::TemporaryFolder folder;
    std::vector<io::NamedTensor> arrays;
    std::map<std::string, std::string> counters;
    for (const auto& [name, array] : saved.arrays) arrays.emplace_back(name, array);
    for (const auto& [name, array] : saved.float32_arrays) arrays.emplace_back(name, array);
    for (const auto& [name, count] : saved.counters) counters[name] = std::to_string(count);
    io::save_safetensors(folder / "state.safetensors", arrays, counters);
    const io::Safetensors file(folder / "state.safetensors");
    AdamWCheckpoint<bfloat16> loaded;
    for (const auto& [name, array] : saved.arrays) loaded.arrays[name] = file.tensor<bfloat16>(name);
    for (const auto& [name, array] : saved.float32_arrays) loaded.float32_arrays[name] = file.tensor<float>(name);
    for (const auto& [name, text] : file.metadata()) loaded.counters[name] = std::stoull(text);
    std::copy(saved_a.begin(), saved_a.end(), a.begin());
    resumed.restore(loaded);
    for (const auto& [name, array] : resumed.checkpoint().arrays) CHECK(test::identical(array, saved.arrays.at(name)));
    CHECK(resumed.checkpoint().counters == saved.counters);

    auto lacking = saved;
    lacking.counters.erase("a/step");
    CHECK(message_of<InvalidArgument>([&] { resumed.restore(lacking); }) ==
          "AdamW::restore: the checkpoint has no a/step");
    auto other = saved;
    other.arrays["c/moment"] = Tensor<bfloat16>({3});
    CHECK(message_of<InvalidArgument>([&] {
            resumed.restore(other);
          }).starts_with("AdamW::restore: the checkpoint has "));
  }
}

TEST_CASE("precision.adamw: bad arguments are named") {
  std::vector<bfloat16> theta(4, round_to<bfloat16>(1.0f)), g(4, round_to<bfloat16>(1.0f)), longer(5);
  CHECK(message_of<InvalidArgument>([] { AdamW<bfloat16>{Precision::stochastic}; }) ==
        "AdamW: stochastic rounding needs an Rng");
  CHECK(message_of<InvalidArgument>([] { AdamW<half>{Precision::collage_plus}; }) ==
        "AdamW: epsilon must be finite and above 0 once rounded to the format, got 1e-08");
  CHECK(message_of<InvalidArgument>([] { AdamW<half>{Precision::fp32_master}; }) == "nothing thrown");
  AdamW<bfloat16> optimizer(Precision::pure);
  optimizer.add("a", theta, g);
  CHECK(message_of<InvalidArgument>([&] { optimizer.add("a", theta, g); }) == "AdamW::add: two parameters are named a");
  CHECK(message_of<InvalidArgument>([&] { optimizer.add("b", theta, g, 2); }) ==
        "AdamW::add: group must be in [0, 1), got 2");
  CHECK(message_of<InvalidArgument>([&] { optimizer.options(1); }) == "AdamW::options: group must be in [0, 1), got 1");
  CHECK(message_of<InvalidArgument>([&] { optimizer.add("c", theta, longer); }) ==
        "AdamW::add: gradient has shape [5], expected [4] (same size as the parameter)");
  Matrix<bfloat16> m(4, 4), mg(4, 4);
  auto block = m.leftCols(2);
  auto block_gradient = mg.leftCols(2);
  CHECK(message_of<InvalidArgument>([&] { optimizer.add("d", block, block_gradient); }) ==
        "AdamW::add: an array of 4 by 2 has gaps; parameters and gradients must be contiguous");
  CHECK(message_of<InvalidArgument>([&] { optimizer.state("e"); }) == "AdamW::state: no parameter is named e");
}

TEST_CASE("precision.adamw: arrays draw different random bits") {
  const auto one = round_to<bfloat16>(1.0f);
  std::vector<bfloat16> a(300, one), b(300, one), g(300, one);
  Rng rng(3);
  AdamW<bfloat16> optimizer(Precision::stochastic, {}, rng);
  optimizer.add("a", a, g);
  optimizer.add("b", b, g);
  optimizer.step();
  CHECK(std::memcmp(a.data(), b.data(), a.size() * 2) != 0);
}

}  // namespace
}  // namespace ashlar::precision
