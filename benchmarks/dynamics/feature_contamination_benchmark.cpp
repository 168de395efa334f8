// A gradient of a two-layer network, and the theory preset of online training, against what one would write with Eigen:
// both products whole, masks and losses as expressions, samples made in the space of the inputs.
#include <cmath>
#include <random>
#include <string>
#include <tuple>

#include "ashlar/dynamics/online_training.hpp"
#include "ashlar/dynamics/two_layer_gradient.hpp"
#include "support/scoreboard.hpp"

namespace ashlar::dynamics {
namespace {

template <class T>
struct Problem {
  Matrix<T> x;
  Vector<T> y;
  TwoLayerNetwork<T> network;
  Matrix<T> gradient;

  Problem(Index n, Index d, Index m) : gradient(m, d) {
    Rng rng(1);
    x = normal_matrix<T>(rng, n, d);
    y = Vector<T>(n);
    for (T& label : y) label = rng() >> 31 ? T(1) : T(-1);
    network = random_network<T>(rng, m, d);
  }
};

/// The gradient of the mean loss of f = relu(X W') a by W.
template <class T>
T plain_gradient(const Matrix<T>& w, const Vector<T>& a, const Matrix<T>& x, const Vector<T>& y, bool hinge,
                 Matrix<T>& gradient) {
  const Matrix<T> h = x * w.transpose();
  const Vector<T> f = h.cwiseMax(T(0)) * a;
  const Vector<T> margin = y.cwiseProduct(f);
  Vector<T> slope;
  T loss;
  if (hinge) {
    loss = (1 - margin.array()).cwiseMax(T(0)).mean();
    slope = (margin.array() < 1).select(-y, T(0));
  } else {
    loss = ((-margin.array()).cwiseMax(T(0)) + (-margin.array().abs()).exp().log1p()).mean();
    slope = -y.array() / (1 + margin.array().exp());
  }
  const Matrix<T> d = (h.array() > 0).select(slope * a.transpose(), T(0)) / static_cast<T>(x.rows());
  gradient.noalias() = d.transpose() * x;
  return loss;
}

template <class T>
void register_gradient(Index n, Index d, Index m, const std::string& type) {
  const std::string kernel = "dynamics.two_layer_gradient", size = message("n=", n, " d=", d, " m=", m, ' ', type);
  const double flops = 4 * static_cast<double>(n * d * m);
  scoreboard::add({kernel, size, "ashlar", {.flops = flops}}, [=] {
    return [p = Problem<T>(n, d, m), workspace = Workspace()]() mutable {
      benchmark::DoNotOptimize(
          loss_and_gradient(p.network, p.x, p.y, Loss::logistic, View<T, 2>(p.gradient), workspace));
    };
  });
  scoreboard::add({kernel, size, "Eigen expressions"}, [=] {
    return [p = Problem<T>(n, d, m)]() mutable {
      benchmark::DoNotOptimize(plain_gradient<T>(p.network.weights, p.network.output, p.x, p.y, false, p.gradient));
    };
  });
  if (n > 1000) return;
  scoreboard::add({kernel, size, "reference"}, [=] {
    return [p = Problem<T>(n, d, m)] {
      benchmark::DoNotOptimize(reference::loss_and_gradient(p.network, p.x, p.y, Loss::logistic).loss);
    };
  });
}

/// 400 steps of the preset by the textbook: standard library numbers, inputs in d dimensions.
void plain_training(const Matrix<double>& q, Index core, Matrix<double> w, const Vector<double>& a) {
  std::mt19937_64 engine(1);
  std::uniform_real_distribution<double> uniform;
  Matrix<double> z(64, q.cols()), gradient(w.rows(), w.cols());
  Vector<double> y(64);
  for (int step = 0; step < 400; ++step) {
    for (Index i = 0; i < 64; ++i) {
      y[i] = uniform(engine) < 0.5 ? 1 : -1;
      for (Index j = 0; j < q.cols(); ++j) z(i, j) = (j < core ? y[i] : 1) * uniform(engine);
    }
    const Matrix<double> x = z * q.transpose();
    plain_gradient<double>(w, a, x, y, true, gradient);
    w = (1 - 2e-3) * w - 2 * gradient;
  }
  benchmark::DoNotOptimize(w.data());
}

const bool registered = [] {
  register_gradient<double>(64, 128, 64, "double");
  register_gradient<float>(1000, 256, 256, "float");
  register_gradient<double>(1000, 256, 256, "double");
  register_gradient<float>(4096, 1024, 1024, "float");

  const std::string kernel = "dynamics.online_training", size = "d=128 features=32 m=64 B=64 steps=400";
  const auto preset = [](TrainingSpace space) {
    Rng rng(1);
    return [model = FeatureModel{.basis = FeatureBasis::random(rng, 128, 16, 16)},
            network = random_network<double>(rng, 64, 128), space]() {
      auto trained = network;
      Rng own(2);
      train_online(trained, model, {.steps = 400, .space = space, .evaluation_samples = 1}, own);
      benchmark::DoNotOptimize(trained.weights.data());
    };
  };
  scoreboard::add({kernel, size, "ashlar", {.flops = 400 * 4.0 * 64 * 64 * 32}},
                  [=] { return preset(TrainingSpace::features); });
  scoreboard::add({kernel, size, "ashlar, in the inputs' space"}, [=] { return preset(TrainingSpace::inputs); });
  scoreboard::add({kernel, size, "Eigen expressions"}, [] {
    Rng rng(1);
    return [basis = FeatureBasis::random(rng, 128, 16, 16), network = random_network<double>(rng, 64, 128)] {
      plain_training(basis.directions(), 16, network.weights, network.output);
    };
  });
  return true;
}();

}  // namespace
}  // namespace ashlar::dynamics
