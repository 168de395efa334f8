// The released feature-contamination study: one fixed data set whose core features may be separable by their norm only,
// a two-layer network with biases, all of it trained by AdamW on the logistic loss.
//
//   Rng rng(0);
//   const auto trace = run_contamination_study<float>({.fit = {.steps = 1500}, .trace_every = 500}, rng);
//   trace.back().report.shifted.loss;                         // hundreds of times trained.loss
//
//   const StudyData<double> data = study_data<double>({.task = CoreTask::linear}, rng);      // the data alone
//
// Source: Zhang et al., "Feature Contamination", ICML 2024, arXiv 2406.03345, and its released numerical study. The
// study measures norms of projections; rates, counterfactual and controls come with ContaminationReport.
#pragma once

#include <cmath>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/dynamics/feature_contamination.hpp"
#include "ashlar/dynamics/online_training.hpp"
#include "ashlar/dynamics/structured_features.hpp"
#include "ashlar/dynamics/two_layer_network.hpp"
#include "ashlar/dynamics/two_layer_training.hpp"

namespace ashlar::dynamics {

enum class CoreTask {
  radial,  ///< core uniform on a sphere, of radius 1 for y = 1 and 2 for y = -1: no linear network can tell them apart
  linear,  ///< core uniform on [0, 1] for y = 1, on [-1, 0] for y = -1
};

struct StudyDataOptions {
  Index samples = 1000;  ///< the first half of class +1
  Index core = 32, background = 32, d = 256;
  CoreTask task = CoreTask::radial;
};

template <Real T>
struct StudyData {
  FeatureBasis basis;
  Matrix<T> x, x_shifted;  ///< [n, d]: the same core, background uniform on [0, 1] and on [-1, 0], drawn apart
  Vector<T> y;             ///< [n], of both
};

/// Throws InvalidArgument for fewer than one sample or core feature and for d < core + background.
template <Real T>
StudyData<T> study_data(const StudyDataOptions& options, Rng& rng) {
  constexpr auto function = "study_data";
  const Index n = options.samples, core = options.core, positives = n / 2;
  check_argument(n >= 1, function, "samples", "at least 1", n);
  check_argument(core >= 1, function, "core", "at least 1", core);
  StudyData<T> data{FeatureBasis::random(rng, options.d, core, options.background), {}, {}, Vector<T>(n)};
  Matrix<double> z(n, data.basis.features());
  for (Index i = 0; i < n; ++i) {
    const bool positive = i < positives;
    data.y[i] = positive ? T(1) : T(-1);
    auto own = z.row(i).head(core);
    for (double& c : own) c = options.task == CoreTask::radial ? rng.normal() : rng.uniform();
    if (options.task == CoreTask::radial)
      own *= (positive ? 1 : 2) / own.norm();
    else if (!positive)
      own = -own;
  }
  auto background = z.rightCols(options.background);
  const auto inputs = [&](double sign) {
    for (Index i = 0; i < n; ++i)
      for (double& c : background.row(i)) c = sign * rng.uniform();
    return Matrix<double>(z * data.basis.directions().transpose()).template cast<T>().eval();
  };
  data.x = inputs(1);
  data.x_shifted = inputs(-1);
  return data;
}

struct StudyOptions {
  StudyDataOptions data = {};
  Index hidden = 256;
  Activation activation = Activation::relu;
  bool frozen_output = false;  ///< a = +-1/m and c keep their initial values
  FitOptions fit = {};         ///< fit.train_output is that of frozen_output
  Index trace_every = 1000;    ///< updates between reports; 0: one before the first, one after the last
  std::function<bool(const TracePoint&)> progress = {};  ///< called at every point; false ends the training
};

/// Data, network and training from one seed. The first point is before any update, the last after the last.
template <Real T>
std::vector<TracePoint> run_contamination_study(const StudyOptions& options, Rng& rng) {
  check_argument(options.trace_every >= 0, "run_contamination_study", "trace_every", "not negative",
                 options.trace_every);
  const StudyData<T> data = study_data<T>(options.data, rng);
  TwoLayerNetwork<T> network =
      uniform_network<T>(rng, options.hidden, options.data.d, options.activation, options.frozen_output);
  FitOptions fit = options.fit;
  fit.train_output = !options.frozen_output;
  std::vector<TracePoint> trace;
  const auto record = [&](Index step, const TwoLayerNetwork<T>& at) {
    trace.push_back({step, diagnose(at, data.basis, data.x, data.y, data.x_shifted, data.y, fit.loss)});
    return !options.progress || options.progress(trace.back());
  };
  const std::vector<double> losses =
      fit_network(network, data.x, data.y, fit, rng, [&](Index step, const TwoLayerNetwork<T>& at) {
        const bool due = step == 0 || (options.trace_every > 0 && step % options.trace_every == 0);
        return !due || record(step, at);
      });
  const auto steps = static_cast<Index>(losses.size());
  if (trace.back().step != steps) record(steps, network);
  return trace;
}

}  // namespace ashlar::dynamics
