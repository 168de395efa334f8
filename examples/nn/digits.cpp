// A network that reads handwritten digits: the training loop, a checkpoint in the middle of it, and what comes out.
//
// Claim: at least 94 % of the digits held out are read, and a run continued from a checkpoint ends with the same bits
// as one that was never interrupted.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/autodiff/loss.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/io/csv.hpp"
#include "ashlar/nn/checkpoint.hpp"
#include "ashlar/nn/layers.hpp"
#include "ashlar/nn/optimizer.hpp"
#include "ashlar/nn/schedule.hpp"
#include "support/cli.hpp"

namespace {

using namespace ashlar;

/// Pixels in [0, 1] and labels of some rows of the table.
struct Digits {
  Tensor<float> pixels;
  std::vector<Index> labels;

  Digits(const Matrix<double>& table, const std::vector<Index>& rows) : pixels({static_cast<Index>(rows.size()), 64}) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      pixels.matrix().row(static_cast<Index>(i)) = (table.row(rows[i]).head(64) / 16).cast<float>();
      labels.push_back(static_cast<Index>(table(rows[i], 64)));
    }
  }
};

struct Network {
  nn::Mlp<float> layers;
  nn::AdamW<float> optimizer;

  explicit Network(Rng& rng)
      : layers(rng, {64, 64, 10}), optimizer(nn::parameters<float>(layers), {.weight_decay = 0.01}) {}
  Network(const Network&) = delete;  // the optimiser points at the layers' parameters
  Network& operator=(const Network&) = delete;
};

constexpr Index batch = 64;

/// Steps begin <= step < end of a run that has `steps`. The batches of a step depend on its number alone.
void train(Network& network, const Digits& data, const Rng& rng, Index begin, Index end, Index steps) {
  autodiff::Tape<float> tape;
  for (Index step = begin; step < end; ++step) {
    Rng draw = rng.split(static_cast<std::uint64_t>(step));
    std::vector<Index> rows, labels;
    for (Index i = 0; i < batch; ++i) {
      rows.push_back(draw.below(data.pixels.extent(0)));
      labels.push_back(data.labels[static_cast<std::size_t>(rows.back())]);
    }
    const auto x = autodiff::gather_rows(autodiff::Var<float>::refer_to(data.pixels), rows);
    const auto loss = autodiff::cross_entropy(network.layers(tape.constant(x.value())), labels);
    tape.backward(loss);
    nn::clip_gradient_norm<float>(network.optimizer, 1.0);
    network.optimizer.set_learning_rate(3e-3 * nn::warmup(step, 20) * nn::cosine(step, steps));
    network.optimizer.step();
    if (step % (steps / 5) == 0) std::printf("step %5td   loss %.4f\n", step, static_cast<double>(loss.item()));
  }
}

double accuracy(Network& network, const Digits& data) {
  const auto logits = network.layers(autodiff::Var<float>::refer_to(data.pixels));
  Index right = 0;
  for (std::size_t i = 0; i < data.labels.size(); ++i) {
    Index best;
    logits.value().matrix().row(static_cast<Index>(i)).maxCoeff(&best);
    right += best == data.labels[i];
  }
  return static_cast<double>(right) / static_cast<double>(data.labels.size());
}

bool same_bits(Network& a, Network& b) {
  std::vector<const Tensor<float>*> of_a;
  nn::for_each_tensor(a.layers, [&](const std::string&, auto& tensor) { of_a.push_back(&tensor); });
  bool same = true;
  std::size_t i = 0;
  nn::for_each_tensor(b.layers, [&](const std::string&, auto& tensor) {
    same = same &&
           std::memcmp(of_a[i++]->data(), tensor.data(), static_cast<std::size_t>(tensor.size()) * sizeof(float)) == 0;
  });
  return same;
}

bool learn(const example::Settings& settings, const std::string& path) {
  const Matrix<double> table = io::load_csv(path).values;
  Rng rng(settings.seed);
  std::vector<Index> order;
  for (const Index row : rng.permutation(table.rows())) order.push_back(row);
  const auto held_out = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 5);
  const Digits test(table, {order.begin(), held_out}), data(table, {held_out, order.end()});

  const Index steps = settings.full ? 5000 : 600;
  const Rng batches = rng.split(1);
  Rng start = rng.split(2), other_start = rng.split(3);
  Network network(start), resumed(other_start);
  std::printf("%td digits to learn from, %td held out, %td parameters\n", data.pixels.extent(0), test.pixels.extent(0),
              nn::parameter_count(network.layers));

  const auto folder = std::filesystem::temp_directory_path();
  const std::string stem =
      (folder / ("ashlar-digits-" + std::to_string(settings.seed) + "-" + std::to_string(::getpid()))).string();
  train(network, data, batches, 0, steps / 2, steps);
  nn::save(network.layers, stem + "-layers.safetensors", {{"step", std::to_string(steps / 2)}});
  nn::save(network.optimizer, stem + "-optimizer.safetensors");
  train(network, data, batches, steps / 2, steps, steps);

  nn::load(resumed.layers, stem + "-layers.safetensors");
  nn::load(resumed.optimizer, stem + "-optimizer.safetensors");
  for (const char* part : {"-layers.safetensors", "-optimizer.safetensors"}) std::filesystem::remove(stem + part);
  train(resumed, data, batches, steps / 2, steps, steps);

  const double right = accuracy(network, test);
  bool held = example::claim(right >= 0.94,
                             "reads at least 94 % of the digits held out: " + example::brief(100 * right) + " %");
  held &= example::claim(same_bits(network, resumed), "continued from a checkpoint, the run ends with the same bits");
  return held;
}

}  // namespace

int main(int argc, char** argv) {
  std::string path = ASHLAR_EXAMPLE_DATA "/digits.csv";
  return example::run(
      argc, argv, "A network that learns to read digits, with a checkpoint in the middle",
      [&](const example::Settings& settings) { return learn(settings, path); },
      [&](CLI::App& app) {
        app.add_option("--data", path, "table of 64 pixels (0 to 16) and the digit")->capture_default_str();
      });
}
