// The digits classifier trained with everything AdamW stores in bfloat16, against a float32 master copy.
#include "ashlar/precision/collage.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tour/classifier.hpp"
#include "tour/tour.hpp"

namespace ashlar::tour {
namespace {

using precision::AdamWOptions;
using precision::AdamWState;
using precision::DescentSums;
using precision::Precision;

constexpr std::pair<Precision, const char*> strategies[] = {{Precision::pure, "plain bfloat16"},
                                                            {Precision::collage_light, "Collage-light"},
                                                            {Precision::collage_plus, "Collage-plus"},
                                                            {Precision::fp32_master, "float32 master copy"}};
constexpr int steps = 3000, every = 50;

std::string text(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

struct Run {
  Series loss, arrived;  ///< training loss and EDQ ratio over the steps
  double final_loss = 0, accuracy = 0, mean_arrived = 0;
};

Run train_in_bfloat16(const Digits& digits, Precision how, const std::string& name, const Rng& seed) {
  Rng start = seed.split(1), batches = seed.split(2);  // the same for every strategy
  Classifier network(start);
  const auto parameters = network.parameters();
  std::vector<float> gradient(parameters.size());
  std::vector<bfloat16> theta(parameters.size()), low(parameters.size());
  const auto count = static_cast<Index>(parameters.size());
  simd::convert(parameters.data(), theta.data(), count);
  AdamWState<bfloat16> state(how, theta);
  AdamWOptions options;
  options.learning_rate = 1e-4;

  Run run;
  run.loss.name = run.arrived.name = name;
  double recent = 0;
  for (int t = 0; t <= steps; ++t) {
    simd::convert(theta.data(), parameters.data(), count);  // the network sees the leading components alone
    if (t % every == 0) {
      run.final_loss = network.loss(digits.train, digits.train_labels);
      run.loss.x.push_back(t);
      run.loss.y.push_back(run.final_loss);
      if (t > 0) {
        run.arrived.x.push_back(t);
        run.arrived.y.push_back(recent / every);
        run.mean_arrived += recent / steps;
        recent = 0;
      }
    }
    if (t == steps) break;
    const Minibatch batch(digits, 64, batches);
    network.loss(batch.images, batch.labels, gradient);
    simd::convert(gradient.data(), low.data(), count);
    DescentSums sums;
    adamw_step(theta, low, state, options, {.gradient_scale = 1, .check_finite = true, .quality = &sums});
    recent += sums.report().ratio;
  }
  run.accuracy = network.accuracy(digits.test, digits.test_labels);
  return run;
}

/// Seconds of one step of four million parameters, the best of a few.
double step_time(Precision how) {
  std::vector<bfloat16> theta(std::size_t{4} << 20, round_to<bfloat16>(0.1f)),
      gradient(theta.size(), round_to<bfloat16>(1e-3f));
  AdamWState<bfloat16> state(how, theta);
  double best = 1e9;
  for (int i = 0; i < 8; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    adamw_step(theta, gradient, state);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

Section collage_section(const Data& data, Rng rng, const Progress& progress) {
  const Digits digits(data.digits, rng);
  std::vector<Run> runs;
  for (const auto& [how, name] : strategies) {
    progress(static_cast<double>(runs.size()) / 5, std::string("training the digits network: ") + name);
    runs.push_back(train_in_bfloat16(digits, how, name, rng));
  }
  progress(0.8, "timing the optimiser");
  const double plus_time = step_time(Precision::collage_plus), master_time = step_time(Precision::fp32_master);
  const Run &pure = runs[0], &light = runs[1], &plus = runs[2], &master = runs[3];

  Section section;
  section.title = "Collage: training in bfloat16 without a float32 copy";
  section.text =
      "A bfloat16 number has eight significant bits, so a small update of a weight rounds away. Collage keeps what was "
      "rounded away in a second bfloat16 number. The network reads handwritten digits; batches, start and learning "
      "rate "
      "are the same for all. EDQ is the part of the intended update that reaches the stored weights. Test accuracy: " +
      text("plain %.1f %%, ", 100 * pure.accuracy) + text("light %.1f %%, ", 100 * light.accuracy) +
      text("plus %.1f %%, ", 100 * plus.accuracy) + text("master copy %.1f %%.", 100 * master.accuracy);
  section.rows.push_back(
      {.block = "Collage AdamW",
       .claim = "bfloat16 alone trains as well as a float32 master copy, in 12 instead of 16 bytes a parameter",
       .measured = text("loss %.4f", plus.final_loss) + text(", EDQ %.2f", plus.mean_arrived),
       .baseline = text("master %.4f", master.final_loss) + text(", plain bfloat16 %.4f", pure.final_loss) +
                   text(" (EDQ %.2f)", pure.mean_arrived),
       .speed_up = text("%.2f x a step", master_time / plus_time),
       .held = plus.final_loss < 1.05 * master.final_loss && pure.final_loss > 1.5 * master.final_loss});
  Plot loss{.title = "Training loss", .x_label = "step", .y_label = "cross-entropy", .log_y = true, .series = {}};
  Plot arrived{.title = "Descent quality", .x_label = "step", .y_label = "EDQ / |update|", .series = {}};
  Plot memory{.title = "Memory",
              .x_label = "bytes per parameter",
              .y_label = "final training loss",
              .log_y = true,
              .series = {}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    loss.series.push_back(runs[i].loss);
    arrived.series.push_back(runs[i].arrived);
    const auto bytes = static_cast<double>(precision::bytes_per_parameter<bfloat16>(strategies[i].first));
    memory.series.push_back({strategies[i].second, {bytes}, {runs[i].final_loss}});
  }
  section.plots = {std::move(loss), std::move(arrived), std::move(memory)};
  progress(1, "done");
  return section;
}

}  // namespace ashlar::tour
