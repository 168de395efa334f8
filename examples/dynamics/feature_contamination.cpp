// Neural networks learn features that have nothing to do with the label (Zhang et al., "Feature Contamination", ICML
// 2024), and fail when those features change.
//
// The claims: a two-layer relu network trained by SGD on core features that carry the label and background features
// that do not takes up both, so that its loss is of order 1 once the background changes sign, though it is near 0 where
// it was trained; a linear network does not, nor does a relu network whose background has mean zero. The cause is that
// each neuron fires for one class alone. Then the same on the data of the released study, whose core is separable by
// its norm.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/dynamics.hpp"
#include "support/cli.hpp"
#include "support/plot.hpp"

namespace {

using namespace ashlar;
using namespace ashlar::dynamics;
using example::brief;
using example::claim;

struct Setting {
  std::string name;
  Activation activation = Activation::relu;
  UniformLaw background = {};
};

/// 16 + 16 features in 128 dimensions, 64 neurons.
struct Preset {
  Rng rng;
  FeatureModel model;
  TwoLayerNetwork<double> network;

  Preset(std::uint64_t seed, const Setting& setting)
      : rng(seed),
        model{.basis = FeatureBasis::random(rng, 128, 16, 16), .background = setting.background},
        network(random_network<double>(rng, 64, 128, {.activation = setting.activation})) {}
};

const Setting settings_of_theory[] = {
    {"relu", Activation::relu, {}},
    {"linear", Activation::identity, {}},
    {"relu, background of mean 0", Activation::relu, {-1, 1}},
};

/// Both regimes of the claim. traces: one a setting, of the first seed.
bool regimes(std::uint64_t first_seed, int seeds, std::vector<OnlineTrace>& traces) {
  std::printf("Online SGD on the hinge loss, weight decay 1e-3; trained law / background negated:\n");
  std::printf("  %-28s steps   loss           accuracy   |core|   |background|   fires own / other\n", "network");
  bool held = true;
  std::array<ContaminationReport, 3> worst;
  for (int i = 0; i < seeds; ++i)
    for (std::size_t s = 0; s < 3; ++s) {
      Preset p(first_seed + static_cast<std::uint64_t>(i), settings_of_theory[s]);
      OnlineTrace trace = train_online(p.network, p.model, {.trace_every = 50}, p.rng);
      const auto gap = [](const ContaminationReport& r) { return r.shifted.loss - r.trained.loss; };
      const ContaminationReport& end = trace.points.back().report;
      const bool is_worse = s == 0 ? gap(end) < gap(worst[s]) : gap(end) > gap(worst[s]);
      if (i == 0 || is_worse) worst[s] = end;
      if (i > 0) continue;
      for (const std::size_t point : {std::size_t{0}, std::size_t{4}, trace.points.size() - 1}) {
        const auto& [step, r] = trace.points[point];
        std::printf("  %-28s %5td   %.3f / %.3f   %.3f      %6.3f   %12.3f   %.2f / %.2f\n",
                    settings_of_theory[s].name.c_str(), step, r.trained.loss, r.shifted.loss, r.shifted.accuracy,
                    r.core, r.background, r.own_rate, r.other_rate);
      }
      traces.push_back(std::move(trace));
    }
  const auto loses = [&](std::size_t s) { return worst[s].shifted.loss - worst[s].trained.loss; };
  held &= claim(loses(0) >= 0.6 && worst[0].background >= 0.4,
                "the relu network loses " + brief(loses(0)) + " under the shift, its neurons carry |background| " +
                    brief(worst[0].background) + " beside |core| " + brief(worst[0].core));
  held &= claim(loses(1) <= 0.02 && worst[1].background <= 0.05,
                "the linear one loses " + brief(loses(1)) + ", |background| " + brief(worst[1].background));
  held &= claim(
      loses(2) <= 0.02 && worst[2].background <= 0.05,
      "with a background of mean zero relu loses " + brief(loses(2)) + ", |background| " + brief(worst[2].background));
  held &= claim(worst[0].own_rate - worst[0].other_rate >= 0.9 && worst[0].core_signed > 0.1,
                "relu neurons fire for " + brief(100 * worst[0].own_rate) + " % of the class they vote for and " +
                    brief(100 * worst[0].other_rate) + " % of the other");
  const Evaluation &trained = worst[0].trained_projected, &shifted = worst[0].shifted_projected;
  held &= claim(std::abs(trained.loss - shifted.loss) <= 1e-12 && trained.loss < worst[0].shifted.loss / 2,
                "without its background the relu network has a loss of " + brief(trained.loss) + " on both laws");
  return held;
}

/// Where it comes from: what a step pulls on the background, from each class.
bool mechanism(std::uint64_t seed) {
  std::printf("\nPull of the gradient on background features, m times the mean over neurons and features:\n");
  std::printf("  network  steps     own class   other class      sum   asymmetry   covariance\n");
  double relu_at_ten = 0, asymmetry = 0, covariance = 0, linear_at_start = 0;
  for (const auto& [s, steps] : {std::pair{0, 0}, {0, 10}, {0, 200}, {1, 0}, {1, 10}}) {
    Preset p(seed, settings_of_theory[s]);
    train_online(p.network, p.model, {.steps = steps}, p.rng);
    const LabelledFeatures samples = p.model.sample(40000, p.rng);
    const GradientDecomposition pull =
        gradient_decomposition(p.network, p.model.basis, p.model.inputs(samples.z, p.rng), samples.y, Loss::hinge);
    const auto background = [](const Matrix<double>& x) { return 64 * x.rightCols(16).mean(); };
    double own = 0, other = 0;  // by the class that a neuron votes for
    for (Index k = 0; k < 64; ++k) {
      const bool positive = p.network.output[k] > 0;
      own += (positive ? pull.positive : pull.negative).row(k).tail(16).mean();
      other += (positive ? pull.negative : pull.positive).row(k).tail(16).mean();
    }
    std::printf("  %-7s  %5d   %11.4f   %11.4f   %6.4f   %9.4f   %10.4f\n", settings_of_theory[s].name.c_str(), steps,
                own, other, background(pull.sum()), background(pull.asymmetry), background(pull.covariance));
    if (s == 0 && steps == 10)
      relu_at_ten = background(pull.sum()), asymmetry = background(pull.asymmetry),
      covariance = background(pull.covariance);
    if (s == 1 && steps == 0) linear_at_start = 64 * pull.sum().rightCols(16).cwiseAbs().maxCoeff();
  }
  bool held = claim(relu_at_ten > 0.15 && asymmetry > 10 * std::abs(covariance),
                    "after ten steps relu is pulled into the background by " + brief(relu_at_ten) +
                        ", all of it from firing for one class: " + brief(asymmetry));
  held &= claim(linear_at_start < 4 * std::sqrt(1.0 / 3 / 40000),
                "the two classes cancel for linear units: at most " + brief(linear_at_start));
  return held;
}

/// The released study at its own size.
bool study(const Rng& rng, bool full) {
  std::printf("\nThe released study: 1000 samples, 32 + 32 features in 256 dimensions, 256 neurons, AdamW:\n");
  std::printf("  task    network   steps   loss                 accuracy   |core|   |background|\n");
  const auto run = [&](const char* task_name, CoreTask task, const char* name, Activation activation, Index steps) {
    Rng own = rng;
    const std::vector<TracePoint> trace = run_contamination_study<float>(
        {.data = {.task = task}, .activation = activation, .fit = {.steps = steps}, .trace_every = 500}, own);
    for (const auto& [step, r] : trace)
      if (step % (steps <= 1000 ? 500 : 5000) == 0)
        std::printf("  %-6s  %-7s   %5td   %.6f / %.6f   %.3f      %6.2f   %12.2f\n", task_name, name, step,
                    r.trained.loss, r.shifted.loss, r.shifted.accuracy, r.core, r.background);
    return trace;
  };
  const auto radial = run("radial", CoreTask::radial, "relu", Activation::relu, full ? 20000 : 1000);
  const auto linear_relu = run("linear", CoreTask::linear, "relu", Activation::relu, 500);
  const auto linear = run("linear", CoreTask::linear, "linear", Activation::identity, 500);
  if (full) run("radial", CoreTask::radial, "tanh", Activation::tanh, 500);
  const ContaminationReport &end = radial.back().report, &start = radial.front().report;
  bool held = claim(end.shifted.loss >= 50 * end.trained.loss && end.background >= 3 * start.background,
                    "radial task: " + brief(end.shifted.loss / end.trained.loss) +
                        " times the loss under the shift, |background| grows " +
                        brief(end.background / start.background) + " times");
  const ContaminationReport &bent = linear_relu.back().report, &straight = linear.back().report;
  held &= claim(bent.shifted.loss > 0.05 && straight.shifted.loss < 5e-4 && straight.background < bent.background,
                "linear task: relu has a loss of " + brief(bent.shifted.loss) +
                    " under the shift, the linear network " + brief(straight.shifted.loss));
  return held;
}

void plot(const std::vector<OnlineTrace>& traces, const std::string& file) {
  std::string script = "set xlabel 'step'\nset key center right\n";
  for (const std::size_t s : {0u, 1u}) {
    script += message("$data", s, " << EOD\n");
    for (const auto& [step, r] : traces[s].points)
      script += message(step, ' ', r.trained.loss, ' ', r.shifted.loss, ' ', r.core, ' ', r.background, '\n');
    script += "EOD\n";
  }
  script +=
      "set multiplot layout 1,2\nset title 'hinge loss'\nset yrange [0:1.1]\n"
      "plot $data0 using 1:3 with lines lw 2 lc 7 title 'relu, background negated', "
      "$data0 using 1:2 with lines lw 2 lc 6 title 'relu, as trained', "
      "$data1 using 1:3 with lines lw 2 dt 2 lc 4 title 'linear, background negated'\n"
      "set title 'mean norm of weights'\n"
      "plot $data0 using 1:4 with lines lw 2 lc 6 title 'relu, core', "
      "$data0 using 1:5 with lines lw 2 lc 7 title 'relu, background', "
      "$data1 using 1:5 with lines lw 2 dt 2 lc 4 title 'linear, background'\nunset multiplot\n";
  example::plot(file, script, {.width = 900, .height = 400});
}

bool body(const example::Settings& settings, const std::string& file) {
  std::vector<OnlineTrace> traces;
  bool held = regimes(settings.seed, settings.full ? 5 : 1, traces);
  held &= mechanism(settings.seed);
  held &= study(Rng(settings.seed).split(1), settings.full);
  plot(traces, file);
  return held;
}

}  // namespace

int main(int argc, char** argv) {
  std::string file = "feature_contamination.svg";
  return example::run(
      argc, argv, "Feature contamination: networks learn what has nothing to do with the label",
      [&](const example::Settings& settings) { return body(settings, file); },
      [&](CLI::App& app) { app.add_option("--plot", file, "where the plot goes (SVG)")->capture_default_str(); });
}
