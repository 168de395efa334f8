#include "ashlar/dynamics/contamination_study.hpp"

#include <cmath>
#include <vector>

#include "dynamics/contamination_samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::dynamics {
namespace {

using test::message_of;

TEST_CASE("dynamics.contamination_study: data have the laws of the study") {
  const CoreTask task = GENERATE(CoreTask::radial, CoreTask::linear);
  Rng rng(1);
  const Index n = 801, core = 6, background = 5;
  const StudyData<double> data =
      study_data<double>({.samples = n, .core = core, .background = background, .d = 20, .task = task}, rng);
  const Matrix<double> z = data.x * data.basis.directions(), shifted = data.x_shifted * data.basis.directions();
  CHECK((z * data.basis.directions().transpose() - data.x).cwiseAbs().maxCoeff() <= 1e-14);  // nothing outside the span
  CHECK((z.leftCols(core) - shifted.leftCols(core)).cwiseAbs().maxCoeff() <= 1e-14);
  CHECK((data.y.array() > 0).count() == 400);
  for (Index i = 0; i < n; ++i) {
    const bool positive = i < 400;
    CHECK(data.y[i] == (positive ? 1 : -1));
    const auto own = z.row(i).head(core);
    if (task == CoreTask::radial)
      CHECK(std::abs(own.norm() - (positive ? 1 : 2)) <= 1e-14);
    else
      CHECK((positive ? own.minCoeff() >= -1e-14 && own.maxCoeff() <= 1
                      : own.maxCoeff() <= 1e-14 && own.minCoeff() >= -1));
  }
  CHECK((z.rightCols(background).minCoeff() >= -1e-14 && z.rightCols(background).maxCoeff() <= 1));
  CHECK((shifted.rightCols(background).maxCoeff() <= 1e-14 && shifted.rightCols(background).minCoeff() >= -1));
  CHECK((z.rightCols(background) + shifted.rightCols(background)).cwiseAbs().maxCoeff() > 0.5);  // drawn apart
  // Means within 4 standard errors of uniform numbers.
  const double bound = 4 * std::sqrt(1.0 / 12 / static_cast<double>(n));
  for (Index j = core; j < core + background; ++j) {
    CHECK(std::abs(z.col(j).mean() - 0.5) <= bound);
    CHECK(std::abs(shifted.col(j).mean() + 0.5) <= bound);
    CHECK(std::abs((z.col(j).array() * data.y.array()).mean() - 0.5 * data.y.mean()) <= 2 * bound);
  }
}

/// The study at an eighth of its features, with a step eight times as long.
StudyOptions small_study(CoreTask task, Activation activation) {
  return {.data = {.samples = 1000, .core = 8, .background = 8, .d = 32, .task = task},
          .hidden = 64,
          .activation = activation,
          .fit = {.learning_rate = 8e-3, .steps = 300},
          .trace_every = 0};
}

TEST_CASE("dynamics.contamination_study: relu networks learn the background of the radial task") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  INFO("seed = " << seed);
  Rng rng(seed);
  const std::vector<TracePoint> trace =
      run_contamination_study<double>(small_study(CoreTask::radial, Activation::relu), rng);
  REQUIRE(trace.size() == 2);
  const ContaminationReport &start = trace[0].report, &end = trace[1].report;
  CHECK(end.trained.accuracy == 1);
  CHECK(end.shifted.loss >= 10 * end.trained.loss);
  CHECK(end.background >= 1.5 * start.background);
}

TEST_CASE("dynamics.contamination_study: on the linear task only the linear network generalises") {
  const std::uint64_t seed = GENERATE(1u, 2u);
  INFO("seed = " << seed);
  Rng rng(seed), again(seed);
  const auto relu = run_contamination_study<double>(small_study(CoreTask::linear, Activation::relu), rng);
  const auto linear = run_contamination_study<double>(small_study(CoreTask::linear, Activation::identity), again);
  CHECK(relu[0].report.background == linear[0].report.background);  // one seed, one network
  CHECK(relu[1].report.shifted.loss >= 10 * relu[1].report.trained.loss);
  CHECK(linear[1].report.shifted.loss <= 3 * linear[1].report.trained.loss);
  CHECK(linear[1].report.background < relu[1].report.background);
}

TEST_CASE("dynamics.contamination_study: a frozen output and the trace are as asked for") {
  StudyOptions options = small_study(CoreTask::linear, Activation::relu);
  options.frozen_output = true;
  options.fit.steps = 25;
  options.trace_every = 10;
  std::vector<Index> steps;
  options.progress = [&](const TracePoint& point) {
    steps.push_back(point.step);
    return true;
  };
  Rng rng(4);
  const std::vector<TracePoint> trace = run_contamination_study<float>(options, rng);
  CHECK(steps == std::vector<Index>{0, 10, 20, 25});
  CHECK(trace.size() == 4);
  // The same by its parts.
  Rng again(4);
  const StudyData<float> data = study_data<float>(options.data, again);
  TwoLayerNetwork<float> network = uniform_network<float>(again, 64, 32, Activation::relu, true);
  const Vector<float> output = network.output;
  FitOptions fit = options.fit;
  fit.train_output = false;
  fit_network(network, data.x, data.y, fit, again);
  CHECK(network.output == output);
  CHECK(trace[3].report.trained.loss == evaluate(network, data.x, data.y, Loss::logistic).loss);
  CHECK(trace[3].report.shifted.loss == evaluate(network, data.x_shifted, data.y, Loss::logistic).loss);

  options.progress = [](const TracePoint& point) { return point.step < 10; };
  CHECK(run_contamination_study<float>(options, rng).size() == 2);
}

TEST_CASE("dynamics.contamination_study: bad arguments are named") {
  Rng rng(5);
  CHECK(message_of<InvalidArgument>([&] { (void)study_data<double>({.samples = 0}, rng); }) ==
        "study_data: samples must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { (void)study_data<double>({.core = 0}, rng); }) ==
        "study_data: core must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { (void)study_data<double>({.d = 63}, rng); }) ==
        "FeatureBasis::random: d must be at least the number of features, got 63 dimensions for 64 features");
  CHECK(message_of<InvalidArgument>([&] { (void)run_contamination_study<double>({.trace_every = -1}, rng); }) ==
        "run_contamination_study: trace_every must be not negative, got -1");
}

}  // namespace
}  // namespace ashlar::dynamics
