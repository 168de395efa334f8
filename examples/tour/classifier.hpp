// A small network that reads handwritten digits, used by several sections: 64 pixels -> 64 ReLU -> 10 classes.
//
//   Digits digits(data.digits, rng);
//   Classifier network(rng);
//   train(network, digits, rng);
//   double right = network.accuracy(digits.test, digits.test_labels);
//
// Every linear layer goes through a product that the caller may replace, for example by one in another number format.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::tour {

/// The digits table as pixels in [0, 1] and labels, a fifth of it held out.
struct Digits {
  Matrix<float> train, test;
  std::vector<int> train_labels, test_labels;

  Digits(const Matrix<double>& table, Rng& rng) {
    const Index pixels = table.cols() - 1, held_out = table.rows() / 5;
    train.resize(table.rows() - held_out, pixels);
    test.resize(held_out, pixels);
    Index row = 0;
    for (const Index from : rng.permutation(table.rows())) {
      const bool to_test = row < held_out;
      auto to = to_test ? test.row(row) : train.row(row - held_out);
      to = (table.row(from).head(pixels) / 16).cast<float>();
      (to_test ? test_labels : train_labels).push_back(static_cast<int>(table(from, pixels)));
      ++row;
    }
  }
};

/// Parameters lie in one array: W1 [64, hidden], b1, W2 [hidden, 10], b2.
class Classifier {
 public:
  static constexpr Index pixels = 64, hidden = 64, classes = 10, layers = 2;
  static constexpr Index parameter_count = pixels * hidden + hidden + hidden * classes + classes;

  /// What entered each linear layer: [n, in].
  using Activations = std::array<Matrix<float>, static_cast<std::size_t>(layers)>;

  /// x [n, in] times w [in, out] of layer 0 or 1.
  struct FloatProduct {
    Matrix<float> operator()(Index, const Matrix<float>& x, const Matrix<float>& w) const { return x * w; }
  };

  explicit Classifier(Rng& rng) : parameters_(static_cast<std::size_t>(parameter_count), 0.0f) {
    for (Index layer = 0; layer < layers; ++layer) {
      auto w = weight(layer);
      for (Index i = 0; i < w.size(); ++i)
        w.data()[i] = static_cast<float>(std::sqrt(2.0 / static_cast<double>(w.rows())) * rng.normal());
    }
  }

  std::span<float> parameters() { return parameters_; }
  std::span<const float> parameters() const { return parameters_; }

  Eigen::Map<Matrix<float>> weight(Index layer) { return weight_in(parameters_.data(), layer); }
  Eigen::Map<const Matrix<float>> weight(Index layer) const {
    return {parameters_.data() + first(layer), rows(layer), cols(layer)};
  }
  Eigen::Map<const Eigen::RowVectorXf> bias(Index layer) const {
    return {parameters_.data() + first(layer) + rows(layer) * cols(layer), cols(layer)};
  }

  /// Scores [n, classes] of images [n, pixels]. `product(layer, x, w)` computes x w; `seen` receives its inputs.
  template <class Product = FloatProduct>
  Matrix<float> scores(const Matrix<float>& images, const Product& product = {}, Activations* seen = nullptr) const {
    Matrix<float> x = images;
    for (Index layer = 0; layer < layers; ++layer) {
      if (seen != nullptr) (*seen)[static_cast<std::size_t>(layer)] = x;
      x = product(layer, x, Matrix<float>(weight(layer)));
      x.rowwise() += bias(layer);
      if (layer + 1 < layers) x = x.cwiseMax(0.0f);
    }
    return x;
  }

  template <class Product = FloatProduct>
  double accuracy(const Matrix<float>& images, std::span<const int> labels, const Product& product = {}) const {
    const Matrix<float> s = scores(images, product);
    Index right = 0;
    for (Index i = 0; i < s.rows(); ++i) {
      Index best = 0;
      s.row(i).maxCoeff(&best);
      right += best == labels[static_cast<std::size_t>(i)];
    }
    return static_cast<double>(right) / static_cast<double>(s.rows());
  }

  /// Mean cross-entropy; its gradient in the parameters' order where `gradient` is not empty.
  double loss(const Matrix<float>& images, std::span<const int> labels, std::span<float> gradient = {}) const {
    Activations x;
    Matrix<float> s = scores(images, FloatProduct{}, &x);
    const Index n = s.rows();
    double total = 0;
    for (Index i = 0; i < n; ++i) {  // scores become softmax minus the label, over n
      const Index label = labels[static_cast<std::size_t>(i)];
      s.row(i).array() -= s.row(i).maxCoeff();
      const float sum = s.row(i).array().exp().sum();
      total += std::log(static_cast<double>(sum)) - static_cast<double>(s(i, label));
      s.row(i) = s.row(i).array().exp() / sum;
      s(i, label) -= 1;
    }
    if (!gradient.empty()) {
      Matrix<float> slope = s / static_cast<float>(n);
      for (Index layer = layers; layer-- > 0;) {
        weight_in(gradient.data(), layer).noalias() = x[static_cast<std::size_t>(layer)].transpose() * slope;
        Eigen::Map<Eigen::RowVectorXf>(gradient.data() + first(layer) + rows(layer) * cols(layer), cols(layer)) =
            slope.colwise().sum();
        if (layer == 0) break;
        slope = ((slope * weight(layer).transpose()).array() *
                 (x[static_cast<std::size_t>(layer)].array() > 0).cast<float>())
                    .matrix()
                    .eval();
      }
    }
    return total / static_cast<double>(n);
  }

 private:
  static constexpr Index rows(Index layer) { return layer == 0 ? pixels : hidden; }
  static constexpr Index cols(Index layer) { return layer == 0 ? hidden : classes; }
  static constexpr Index first(Index layer) { return layer == 0 ? 0 : (pixels + 1) * hidden; }
  static Eigen::Map<Matrix<float>> weight_in(float* parameters, Index layer) {
    return {parameters + first(layer), rows(layer), cols(layer)};
  }

  std::vector<float> parameters_;
};

/// The images and labels of one random minibatch.
struct Minibatch {
  Matrix<float> images;
  std::vector<int> labels;

  Minibatch(const Digits& digits, Index size, Rng& rng) : images(size, digits.train.cols()) {
    for (Index i = 0; i < size; ++i) {
      const Index row = rng.below(digits.train.rows());
      images.row(i) = digits.train.row(row);
      labels.push_back(digits.train_labels[static_cast<std::size_t>(row)]);
    }
  }
};

/// Plain Adam in float: a trained network for sections that start from one.
inline void train(Classifier& network, const Digits& digits, Rng& rng, int steps = 1500, double rate = 1e-3) {
  constexpr auto count = static_cast<std::size_t>(Classifier::parameter_count);
  std::vector<float> gradient(count), m(count), v(count);
  for (int t = 1; t <= steps; ++t) {
    const Minibatch batch(digits, 64, rng);
    network.loss(batch.images, batch.labels, gradient);
    const auto step = static_cast<float>(rate / (1 - std::pow(0.9, t)));
    const auto root = static_cast<float>(std::sqrt(1 - std::pow(0.999, t)));
    for (std::size_t i = 0; i < count; ++i) {
      m[i] = 0.9f * m[i] + 0.1f * gradient[i];
      v[i] = 0.999f * v[i] + 0.001f * gradient[i] * gradient[i];
      network.parameters()[i] -= step * m[i] / (std::sqrt(v[i]) / root + 1e-8f);
    }
  }
}

}  // namespace ashlar::tour
