#include "ashlar/kernels/importance_weighting.hpp"

#include <Eigen/QR>
#include <cmath>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::kernels {
namespace {

using test::message_of;

/// Outputs of random classifiers: rows of probabilities.
Tensor<double> random_outputs(Rng& rng, Index models, Index samples, Index classes) {
  auto outputs = normal_tensor<double>(rng, {models, samples, classes});
  for (Index row = 0; row < models * samples; ++row) {
    auto p = Eigen::Map<Vector<double>>(outputs.data() + row * classes, classes).array();
    p = p.exp();
    p /= p.sum();
  }
  return outputs;
}

Matrix<double> random_one_hot(Rng& rng, Index samples, Index classes) {
  Matrix<double> y = Matrix<double>::Zero(samples, classes);
  for (Index i = 0; i < samples; ++i) y(i, rng.below(classes)) = 1;
  return y;
}

TEST_CASE("kernels.importance_weighting: aggregation matches the fixture though two models span a third") {
  const auto source = test::fixture("density_ratio/agg_source"), target = test::fixture("density_ratio/agg_target");
  const auto labels = test::fixture("density_ratio/agg_onehot"), weights = test::fixture("density_ratio/agg_weights");
  const auto gram = test::fixture("density_ratio/agg_G"), moment = test::fixture("density_ratio/agg_g");
  const auto theta = test::fixture("density_ratio/agg_theta");
  const auto mix = aggregate(source, target, labels, weights);
  CHECK((mix.gram - gram.matrix()).cwiseAbs().maxCoeff() <= 1e-12);
  for (Index k = 0; k < 4; ++k) {
    CHECK(std::abs(mix.moment[k] - moment.data()[k]) <= 1e-12);
    CHECK(std::abs(mix.theta[k] - theta.data()[k]) <= 1e-12);
  }
  CHECK(mix.rank < 4);
  // without the cut the copy makes theta explode or at least move
  CHECK((aggregate(source, target, labels, weights, 0).theta - mix.theta).norm() > 1e-6);
}

TEST_CASE("kernels.importance_weighting: with true weights the aggregation minimises the squared error on the target") {
  Rng rng(1);
  const auto outputs = random_outputs(rng, 3, 200, 4);
  const Matrix<double> y = random_one_hot(rng, 200, 4);
  // source = target and weights one: theta is the plain least-squares fit
  const auto mix = aggregate(outputs, outputs, y, Vector<double>::Ones(200).eval(), 1e-12);
  Matrix<double> a(800, 3);
  for (Index k = 0; k < 3; ++k)
    for (Index i = 0; i < 800; ++i) a(i, k) = outputs.data()[k * 800 + i];
  const Vector<double> b = Eigen::Map<const Vector<double>>(y.data(), 800);
  const Vector<double> least_squares = a.colPivHouseholderQr().solve(b);
  CHECK((mix.theta - least_squares).norm() <= 1e-12);
  CHECK((combine(mix.theta, outputs) - Eigen::Map<const Matrix<double>>((a * least_squares).eval().data(), 200, 4))
            .norm() <= 1e-10);
  const auto unweighted = fit_source_labels(outputs, y, 1e-12);
  CHECK((unweighted.theta - least_squares).norm() <= 1e-12);
}

TEST_CASE("kernels.importance_weighting: models that are not finite are left out") {
  Rng rng(2);
  auto source = random_outputs(rng, 3, 40, 2), target = random_outputs(rng, 3, 30, 2);
  const Matrix<double> y = random_one_hot(rng, 40, 2);
  const Vector<double> w = Vector<double>::LinSpaced(40, 0, 2);
  source.data()[1 * 80 + 7] = NAN;
  const auto mix = aggregate(source, target, y, w);
  CHECK(mix.used == std::vector<bool>{true, false, true});
  CHECK(mix.theta[1] == 0);
  CHECK(combine(mix.theta, source).allFinite());
  Tensor<double> source_rest({2, 40, 2}), target_rest({2, 30, 2});
  for (Index k = 0; k < 2; ++k) {
    std::copy_n(source.data() + 2 * k * 80, 80, source_rest.data() + k * 80);
    std::copy_n(target.data() + 2 * k * 60, 60, target_rest.data() + k * 60);
  }
  const auto rest = aggregate(source_rest, target_rest, y, w);
  CHECK(std::abs(mix.theta[0] - rest.theta[0]) <= 1e-13);
  CHECK(std::abs(mix.theta[2] - rest.theta[1]) <= 1e-13);
}

TEST_CASE("kernels.importance_weighting: outputs that are all zero give theta zero and rank zero") {
  const Tensor<double> zero({2, 5, 3});
  Rng rng(3);
  const auto mix = aggregate(zero, zero, random_one_hot(rng, 5, 3), Vector<double>::Ones(5).eval());
  CHECK(mix.rank == 0);
  CHECK(mix.theta.isZero(0));
}

TEST_CASE("kernels.importance_weighting: the vote breaks ties towards the smallest class") {
  Tensor<double> outputs({2, 3, 3});
  const double scores[] = {0.1, 0.8, 0.1, 0.2, 0.2, 0.6, 0.5, 0.5, 0.0,   // classes 1, 2, 0
                           0.7, 0.2, 0.1, 0.1, 0.2, 0.7, 0.0, 0.0, 1.0};  // classes 0, 2, 2
  std::copy_n(scores, 18, outputs.data());
  CHECK(majority_vote(outputs) == std::vector<Index>{0, 2, 0});
  outputs.data()[0] = NAN;  // the first model loses its vote
  CHECK(majority_vote(outputs) == std::vector<Index>{0, 2, 2});
}

TEST_CASE("kernels.importance_weighting: the least-squares baselines solve their own problems") {
  Rng rng(4);
  const auto target = random_outputs(rng, 3, 50, 3);
  Matrix<double> a(150, 3), mean = Matrix<double>::Zero(50, 3);
  for (Index k = 0; k < 3; ++k)
    for (Index i = 0; i < 150; ++i) {
      a(i, k) = target.data()[k * 150 + i];
      mean.data()[i] += target.data()[k * 150 + i] / 3;
    }
  const auto solve = [&](const std::vector<Index>& labels) {
    Vector<double> b = Vector<double>::Zero(150);
    for (Index i = 0; i < 50; ++i) b[3 * i + labels[static_cast<std::size_t>(i)]] = 1;
    return Vector<double>(a.colPivHouseholderQr().solve(b));
  };
  CHECK((fit_target_vote(target, 1e-9).theta - solve(majority_vote(target))).norm() <= 1e-12);
  CHECK((fit_target_mean(target, 1e-9).theta - solve(classes_of(mean))).norm() <= 1e-12);
}

TEST_CASE("kernels.importance_weighting: IWV and DEV by their formulas") {
  Matrix<double> errors(2, 4);
  errors << 1, 0, 0, 1, 0, 1, 1, 0;
  const Eigen::Vector4d w(0.5, 2, 1, 0.1);
  const auto iwv = importance_weighted_validation(errors, w);
  CHECK(std::abs(iwv.scores[0] - 0.6 / 4) <= 1e-15);
  CHECK(std::abs(iwv.scores[1] - 3.0 / 4) <= 1e-15);
  CHECK(iwv.best == 0);
  const auto dev = deep_embedded_validation(errors, w);
  for (Index k = 0; k < 2; ++k) {
    const Vector<double> loss = w.cwiseProduct(errors.row(k).transpose());
    const double mean_loss = loss.mean(), mean_w = w.mean();
    double covariance = 0, variance = 0;
    for (Index i = 0; i < 4; ++i) {
      covariance += (loss[i] - mean_loss) * (w[i] - mean_w) / 3;
      variance += (w[i] - mean_w) * (w[i] - mean_w) / 3;
    }
    const double eta = -covariance / variance;
    CHECK(std::abs(dev.scores[k] - (mean_loss + eta * mean_w - eta)) <= 1e-14);
  }
  // constant weights: eta is zero and DEV is IWV; equal models: the smaller number wins
  const Eigen::Vector4d constant = Eigen::Vector4d::Constant(0.3);
  CHECK(deep_embedded_validation(errors, constant).scores == importance_weighted_validation(errors, constant).scores);
  CHECK(importance_weighted_validation(errors, constant).best == 0);
}

TEST_CASE("kernels.importance_weighting: zero-one errors compare classes") {
  Tensor<double> outputs({2, 2, 2});
  const double scores[] = {0.9, 0.1, 0.4, 0.6, 0.2, 0.8, 0.5, 0.5};
  std::copy_n(scores, 8, outputs.data());
  Matrix<double> labels(2, 2);
  labels << 1, 0, 1, 0;
  Matrix<double> expected(2, 2);
  expected << 0, 1, 1, 0;
  CHECK(zero_one_errors(outputs, labels) == expected);
}

TEST_CASE("kernels.importance_weighting: importance weights repair the choice of a model under covariate shift") {
  // Two regressors on [0, 1], one right on the left half, one on the right half. The source lives on the left, the
  // target on the right; the density ratio is known.
  Rng rng(5);
  const Index n = 4000;
  Tensor<double> source({2, n, 1}), target({2, n, 1});
  Matrix<double> y(n, 1);
  Vector<double> w(n);
  const auto fill = [&](Tensor<double>& outputs, Index i, double x) {
    outputs.data()[i] = x < 0.5 ? x : 0;
    outputs.data()[n + i] = x < 0.5 ? 0 : x;
  };
  for (Index i = 0; i < n; ++i) {
    const double u = rng.uniform(), x = u < 0.8 ? u / 1.6 : 0.5 + (u - 0.8) * 2.5;  // density 1.6 left, 0.4 right
    fill(source, i, x);
    y(i, 0) = x;
    w[i] = x < 0.5 ? 0.4 / 1.6 : 1.6 / 0.4;
    const double v = rng.uniform(), z = v < 0.2 ? v * 2.5 : 0.5 + (v - 0.2) / 1.6;  // density 0.4 left, 1.6 right
    fill(target, i, z);
  }
  Matrix<double> errors(2, n);
  for (Index k = 0; k < 2; ++k)
    for (Index i = 0; i < n; ++i) errors(k, i) = std::pow(source.data()[k * n + i] - y(i, 0), 2);
  CHECK(importance_weighted_validation(errors, w).best == 1);
  CHECK(deep_embedded_validation(errors, w).best == 1);
  // The true mixture is theta = (1, 1); g scatters by about 1 / sqrt(n) times the deviation of w x^2.
  const auto mix = aggregate(source, target, y, w, 1e-6);
  CHECK((mix.theta - Eigen::Vector2d(1, 1)).cwiseAbs().maxCoeff() <= 0.15);
}

TEST_CASE("kernels.importance_weighting: bad arguments are refused in words") {
  Rng rng(6);
  const auto source = random_outputs(rng, 2, 5, 3), target = random_outputs(rng, 2, 4, 3);
  const Matrix<double> y = random_one_hot(rng, 5, 3);
  const Vector<double> w = Vector<double>::Ones(5);
  CHECK(message_of<InvalidArgument>([&] { aggregate(source, target, y, w, 1.0); }) ==
        "aggregate: rcond must be at least 0 and below 1, got 1");
  CHECK(message_of<InvalidArgument>([&] { aggregate(source, target, y, w, -0.1); }) ==
        "aggregate: rcond must be at least 0 and below 1, got -0.1");
  CHECK(message_of<InvalidArgument>([&] { aggregate(source, random_outputs(rng, 3, 4, 3), y, w); }) ==
        "aggregate: target has shape [3,4,3], expected [2,4,3] (models and classes of source)");
  CHECK(message_of<InvalidArgument>([&] { aggregate(source, target, y.topRows(4), w); }) ==
        "aggregate: labels has shape [4,3], expected [5,3] (samples by classes of source)");
  CHECK(message_of<InvalidArgument>([&] { aggregate(source, target, y, w.head(3)); }) ==
        "aggregate: weights has shape [3], expected [5] (one weight a source sample)");
  CHECK(message_of<InvalidArgument>([&] { aggregate(source, target, y, (w * NAN).eval()); }) ==
        "aggregate: weights has an entry that is not finite");
  CHECK(message_of<InvalidArgument>([&] {
          aggregate(Tensor<double>({0, 5, 3}), target, y, w);
        }) == "aggregate: source has shape [0,5,3], expected at least one model, sample and class");
  CHECK(message_of<InvalidArgument>([&] { combine(w, source); }) ==
        "combine: theta has shape [5], expected [2] (one weight a model)");
  CHECK(message_of<InvalidArgument>([&] { importance_weighted_validation(Matrix<double>(2, 4), w); }) ==
        "importance_weighted_validation: weights has shape [5], expected [4] (one weight a source sample)");
}

}  // namespace
}  // namespace ashlar::kernels
