// What training is made of: a step of a network, norms, cross-entropy, AdamW. The alternatives are what one would write
// with Eigen for these shapes alone, with every buffer allocated beforehand.
#include <Eigen/Core>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "ashlar/autodiff/loss.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/functional/cross_entropy.hpp"
#include "ashlar/functional/descent.hpp"
#include "ashlar/functional/normalization.hpp"
#include "ashlar/nn/layers.hpp"
#include "ashlar/nn/optimizer.hpp"
#include "support/scoreboard.hpp"

namespace ashlar::nn {
namespace {

constexpr Index batch = 2048, width = 256, hidden = 1024;

std::vector<Index> labels_of(Index rows, Index classes) {
  std::vector<Index> labels;
  for (Index i = 0; i < rows; ++i) labels.push_back(i % classes);
  return labels;
}

struct Ours {
  Rng rng{1};
  Mlp<float> model{rng, {width, hidden, width}};
  AdamW<float> optimizer{parameters<float>(model), AdamOptions{}};
  Tensor<float> x = normal_tensor<float>(rng, {batch, width});
  std::vector<Index> labels = labels_of(batch, width);
  Tape<float> tape;

  void step() {
    tape.backward(cross_entropy(model(tape.constant(x)), labels));
    optimizer.step();
  }
};

struct PlainEigen {
  using M = Matrix<float>;
  Rng rng{1};
  M x = normal_matrix<float>(rng, batch, width, 1), w1 = normal_matrix<float>(rng, hidden, width, 0.06),
    w2 = normal_matrix<float>(rng, width, hidden, 0.03);
  Eigen::RowVectorXf b1 = Eigen::RowVectorXf::Zero(hidden), b2 = Eigen::RowVectorXf::Zero(width), db1 = b1, db2 = b2;
  M h{batch, hidden}, dh{batch, hidden}, logits{batch, width}, dw1{hidden, width}, dw2{width, hidden};
  struct Moments {
    Eigen::ArrayXf m, v;
  };
  std::vector<Moments> moments;
  int t = 0;
  double loss = 0;

  PlainEigen() {
    for (const Index size : {w1.size(), b1.size(), w2.size(), b2.size()})
      moments.push_back({Eigen::ArrayXf::Zero(size), Eigen::ArrayXf::Zero(size)});
  }
  void adamw(Moments& state, float* value, const float* gradient) {
    Eigen::Map<Eigen::ArrayXf> w(value, state.m.size());
    const Eigen::Map<const Eigen::ArrayXf> g(gradient, state.m.size());
    state.m = 0.9f * state.m + 0.1f * g;
    state.v = 0.999f * state.v + 0.001f * g.square();
    const auto c1 = static_cast<float>(1 - std::pow(0.9, t)), c2 = static_cast<float>(1 - std::pow(0.999, t));
    w -= 1e-3f / c1 * state.m / ((state.v / c2).sqrt() + 1e-8f);
  }
  void step() {
    h.noalias() = x * w1.transpose();
    h = (h.rowwise() + b1).cwiseMax(0.0f);
    logits.noalias() = h * w2.transpose();
    logits.rowwise() += b2;
    loss = 0;
    for (Index i = 0; i < batch; ++i) {
      auto row = logits.row(i).array();
      const float largest = row.maxCoeff(), own = row[i % width];
      row = (row - largest).exp();
      const float sum = row.sum();
      loss += std::log(sum) + largest - own;
      row /= sum * batch;
      row[i % width] -= 1.0f / batch;
    }
    dw2.noalias() = logits.transpose() * h;
    db2 = logits.colwise().sum();
    dh.noalias() = logits * w2;
    dh = (h.array() > 0).select(dh, 0.0f);
    dw1.noalias() = dh.transpose() * x;
    db1 = dh.colwise().sum();
    ++t;
    adamw(moments[0], w1.data(), dw1.data());
    adamw(moments[1], b1.data(), db1.data());
    adamw(moments[2], w2.data(), dw2.data());
    adamw(moments[3], b2.data(), db2.data());
  }
};

const bool registered = [] {
  // Forward two products, backward three: the gradient of the images is not wanted.
  const double flops = 2.0 * batch * width * hidden * 5;
  for (const int threads : {1, 2})
    scoreboard::add({"nn.training_step",
                     message("MLP 256-1024-256 batch 2048 threads=", threads),
                     "ashlar",
                     {.flops = flops},
                     threads},
                    [] { return [ours = std::make_shared<Ours>()] { ours->step(); }; });
  scoreboard::add({"nn.training_step", "MLP 256-1024-256 batch 2048 threads=1", "plain Eigen", {.flops = flops}},
                  [] { return [plain = std::make_shared<PlainEigen>()] { plain->step(); }; });

  constexpr Index rows = 16384, d = 512;
  struct Norm {
    Rng rng{2};
    Tensor<float> x = normal_tensor<float>(rng, {rows, d}), dy = x, y{{rows, d}}, dx{{rows, d}}, statistics{{rows, 2}},
                  gain{Shape{d}, 1.0f}, bias{Shape{d}}, dgain{Shape{d}}, dbias{Shape{d}};
  };
  const double pass = static_cast<double>(rows * d) * sizeof(float);
  scoreboard::add({"functional.layer_norm", "16384x512", "ashlar", {.bytes = 2 * pass}}, [] {
    return [n = std::make_shared<Norm>()] {
      functional::normalize(n->x.view<2>(), {}, n->gain.view<1>(), n->bias.view<1>(), n->y.view<2>(),
                            n->statistics.view<2>());
    };
  });
  scoreboard::add({"functional.layer_norm", "16384x512", "Eigen row by row"}, [] {
    return [n = std::make_shared<Norm>()] {
      const auto x = n->x.matrix();
      auto y = n->y.matrix();
      const Eigen::Map<const Eigen::RowVectorXf> gain(n->gain.data(), d), bias(n->bias.data(), d);
      for (Index i = 0; i < rows; ++i) {
        const float mean = x.row(i).mean(), r = 1 / std::sqrt((x.row(i).array() - mean).square().mean() + 1e-5f);
        y.row(i) = (x.row(i).array() - mean) * r * gain.array() + bias.array();
      }
    };
  });
  scoreboard::add({"functional.layer_norm_backward", "16384x512", "ashlar", {.bytes = 3 * pass}}, [] {
    const auto n = std::make_shared<Norm>();
    functional::normalize(n->x.view<2>(), {}, n->gain.view<1>(), n->bias.view<1>(), n->y.view<2>(),
                          n->statistics.view<2>());
    return [n] {
      functional::normalize_backward(n->x.view<2>(), {}, n->gain.view<1>(), n->statistics.view<2>(), n->dy.view<2>(),
                                     n->dx.view<2>(), n->dgain.view<1>(), n->dbias.view<1>());
    };
  });

  constexpr Index tokens = 4096, classes = 4096;
  struct Loss {
    Rng rng{3};
    Tensor<float> logits = normal_tensor<float>(rng, {tokens, classes}), gradient{{tokens, classes}},
                  total{Shape{tokens}};
    std::vector<Index> labels = labels_of(tokens, classes);
  };
  const double count = static_cast<double>(tokens * classes);
  scoreboard::add({"functional.cross_entropy", "4096x4096 with gradient", "ashlar", {.bytes = 2 * 4 * count}}, [] {
    return [l = std::make_shared<Loss>()] {
      benchmark::DoNotOptimize(
          functional::cross_entropy_gradient(l->logits.view<2>(), l->labels, l->gradient.view<2>()));
    };
  });
  scoreboard::add({"functional.cross_entropy", "4096x4096 with gradient", "Eigen row by row"}, [] {
    return [l = std::make_shared<Loss>()] {
      double loss = 0;
      const auto x = l->logits.matrix();
      auto dx = l->gradient.matrix();
      for (Index i = 0; i < tokens; ++i) {
        const float largest = x.row(i).maxCoeff();
        auto row = dx.row(i).array();
        row = (x.row(i).array() - largest).exp();
        const float sum = row.sum();
        loss += std::log(sum) + largest - x(i, l->labels[static_cast<std::size_t>(i)]);
        row /= sum * tokens;
        row[l->labels[static_cast<std::size_t>(i)]] -= 1.0f / tokens;
      }
      benchmark::DoNotOptimize(loss);
    };
  });

  constexpr Index count16 = Index{16} << 20;
  struct Update {
    Tensor<float> w{Shape{count16}, 1.0f}, gradient{Shape{count16}, 1e-3f}, m{Shape{count16}}, v{Shape{count16}};
    Index step = 0;
  };
  scoreboard::add({"functional.adam_update", "16M parameters", "ashlar", {.bytes = 7.0 * 4 * count16}}, [] {
    return [u = std::make_shared<Update>()] {
      functional::adam_update<float>(u->w.elements(), std::as_const(u->gradient).elements(), u->m.elements(),
                                     u->v.elements(), ++u->step, functional::Decay::apart, {});
    };
  });
  scoreboard::add({"functional.adam_update", "16M parameters", "Eigen"}, [] {
    return [u = std::make_shared<Update>()] {
      using Array = Eigen::Map<Eigen::ArrayXf>;
      Array w(u->w.data(), count16), g(u->gradient.data(), count16), m(u->m.data(), count16), v(u->v.data(), count16);
      ++u->step;
      m = 0.9f * m + 0.1f * g;
      v = 0.999f * v + 0.001f * g.square();
      const auto c1 = static_cast<float>(1 - std::pow(0.9, u->step)),
                 c2 = static_cast<float>(1 - std::pow(0.999, u->step));
      w -= 1e-3f / c1 * m / ((v / c2).sqrt() + 1e-8f);
    };
  });
  return true;
}();

}  // namespace
}  // namespace ashlar::nn
