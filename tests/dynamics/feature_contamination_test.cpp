#include "ashlar/dynamics/feature_contamination.hpp"

#include <cmath>
#include <limits>

#include "dynamics/contamination_samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::dynamics {
namespace {

using test::message_of;

/// Samples of a feature model on both laws, and a network on them.
struct Study {
  FeatureModel model;
  LabelledFeatures trained, shifted;
  Matrix<double> x, x_shifted;
  TwoLayerNetwork<double> network;

  explicit Study(std::uint64_t seed, Activation activation = Activation::relu, Index n = 200)
      : model{.basis = [&] {
          Rng own(seed);
          return FeatureBasis::random(own, 15, 4, 6);
        }()} {
    Rng rng(seed + 1000);
    trained = model.sample(n, rng);
    shifted = model.shifted(trained, sign_flip);
    x = model.inputs(trained.z, rng);
    x_shifted = model.inputs(shifted.z, rng);
    network = random_network<double>(rng, 9, 15, {.activation = activation});
    network.output *= 6;
  }
};

TEST_CASE("dynamics.feature_contamination: diagnostics match the fixture") {
  const Matrix<double> x = data("sgd_X");
  const Vector<double> y = data_vector("sgd_y"), stats = data_vector("sgd_stats");
  const TwoLayerNetwork<double> network{data("sgd_W"), {}, data_vector("a")};
  const FeatureBasis basis(data("Q"), 3);
  const ContaminationReport report = diagnose(network, basis, x, y, x, y, Loss::hinge);
  CHECK(std::abs(report.core - stats[0]) <= 1e-10);
  CHECK(std::abs(report.background - stats[1]) <= 1e-10);
  CHECK(std::abs(report.core_signed - stats[2]) <= 1e-10);
  CHECK(std::abs(report.background_mean - stats[3]) <= 1e-10);
  CHECK(std::abs(report.own_rate - stats[4]) <= 1e-10);
  CHECK(std::abs(report.other_rate - stats[5]) <= 1e-10);
  CHECK(std::abs(report.trained.accuracy - stats[6]) <= 1e-10);
  CHECK(std::abs(report.trained.loss - stats[7]) <= 1e-10);
  CHECK(report.contamination() == report.background / report.core);
}

TEST_CASE("dynamics.feature_contamination: projections are inner products with the directions") {
  const Study s(1);
  const Matrix<double> p = feature_projections(s.network.weights, s.model.basis.directions());
  for (Index k = 0; k < 9; ++k)
    for (Index j = 0; j < 10; ++j)
      CHECK(std::abs(p(k, j) - s.network.weights.row(k).dot(s.model.basis.directions().col(j))) <= 1e-14);
  const ContaminationReport report =
      diagnose(s.network, s.model.basis, s.x, s.trained.y, s.x_shifted, s.shifted.y, Loss::hinge);
  for (Index k = 0; k < 9; ++k) {
    CHECK(std::abs(report.core_norms[k] - p.row(k).head(4).norm()) <= 1e-14);
    CHECK(std::abs(report.background_norms[k] - p.row(k).tail(6).norm()) <= 1e-14);
  }
}

TEST_CASE("dynamics.feature_contamination: without its background a network does as well on the shifted law") {
  for (const std::uint64_t seed : {2u, 3u})
    for (const Activation activation : all_activations)
      for (const Loss loss : all_losses) {
        INFO("seed = " << seed << ", activation " << static_cast<int>(activation) << ", loss "
                       << static_cast<int>(loss));
        const Study s(seed, activation);
        const ContaminationReport report =
            diagnose(s.network, s.model.basis, s.x, s.trained.y, s.x_shifted, s.shifted.y, loss);
        CHECK(std::abs(report.trained_projected.loss - report.shifted_projected.loss) <= 1e-12);
        CHECK(report.trained_projected.accuracy == report.shifted_projected.accuracy);
        CHECK(std::abs(report.trained.loss - report.shifted.loss) > 1e-3);
        CHECK(report.trained.loss == evaluate(s.network, s.x, s.trained.y, loss).loss);
        CHECK(report.shifted.loss == evaluate(s.network, s.x_shifted, s.shifted.y, loss).loss);
      }
}

TEST_CASE("dynamics.feature_contamination: projecting out leaves what is orthogonal and nothing else") {
  Rng rng(4);
  const Matrix<double> w = normal_matrix<double>(rng, 6, 12);
  const FeatureBasis basis = FeatureBasis::random(rng, 12, 2, 3);
  const Matrix<double> background = basis.background_directions();
  const Matrix<double> projected = project_out(w, background);
  CHECK((projected - (w - w * background * background.transpose())).cwiseAbs().maxCoeff() <= 1e-14);
  CHECK((projected * background).cwiseAbs().maxCoeff() <= 1e-14);
  CHECK((feature_projections(projected, basis.core_directions()) - w * basis.core_directions()).norm() <= 1e-14);
  // The span counts, not its basis: stretched, mixed and repeated directions take out the same.
  Matrix<double> mixed(12, 4);
  mixed << 3 * background.col(0), background.col(1) + background.col(0), background.col(2) - 2 * background.col(0),
      background.col(1);
  CHECK((project_out(w, mixed) - projected).cwiseAbs().maxCoeff() <= 1e-14);
  CHECK(project_out(w, Matrix<double>(12, 0)) == w);
  CHECK((project_out(Matrix<float>(w.cast<float>()), background).cast<double>() - projected).norm() <= 1e-5);
}

TEST_CASE("dynamics.feature_contamination: the share of the weights outside all features is told") {
  Matrix<double> q = Matrix<double>::Identity(5, 2);
  TwoLayerNetwork<double> network{Matrix<double>::Zero(2, 5), {}, Vector<double>::Ones(2)};
  network.weights(0, 0) = 3;
  network.weights(1, 4) = 4;
  const Matrix<double> x = Matrix<double>::Ones(1, 5);
  const Vector<double> y = Vector<double>::Ones(1);
  CHECK(std::abs(diagnose(network, FeatureBasis(q, 1), x, y, x, y, Loss::hinge).outside_share - 16.0 / 25) <= 1e-15);
  q(0, 0) = 0.5;
  q(1, 0) = 0.5;  // oblique: the span of (1, 1, 0, ...) and e_2 holds e_1
  CHECK(std::abs(diagnose(network, FeatureBasis::oblique(q, 1), x, y, x, y, Loss::hinge).outside_share - 16.0 / 25) <=
        1e-15);
  network.weights.setZero();
  CHECK(diagnose(network, FeatureBasis::oblique(q, 1), x, y, x, y, Loss::hinge).outside_share == 0);
}

TEST_CASE("dynamics.feature_contamination: rates count firing by class") {
  Study s(5);
  s.network.output[3] = 0;  // votes for +1
  const Matrix<double> h = pre_activations(s.network, s.x);
  const ActivationRates rates = activation_rates(s.network, s.x, s.trained.y);
  for (Index k = 0; k < 9; ++k) {
    const double vote = s.network.output[k] < 0 ? -1 : 1;
    double own = 0, owns = 0, other = 0, others = 0;
    for (Index i = 0; i < 200; ++i) {
      (s.trained.y[i] == vote ? owns : others) += 1;
      (s.trained.y[i] == vote ? own : other) += h(i, k) > 0;
    }
    CHECK(rates.own[k] == own / owns);
    CHECK(rates.other[k] == other / others);
  }
  const ActivationRates one_class = activation_rates(s.network, s.x, Vector<double>::Ones(200).eval());
  CHECK(std::isnan(one_class.other[3]));
  CHECK_FALSE(std::isnan(one_class.own[3]));
}

TEST_CASE("dynamics.feature_contamination: asymmetric neurons fire for one class alone") {
  // One core feature: neurons along +-m_1 that vote as they see fire for their own class, one that never fires does not
  // count, one that always fires neither.
  const Matrix<double> q = Matrix<double>::Identity(2, 1);
  TwoLayerNetwork<double> network{Matrix<double>::Zero(4, 2), {}, Vector<double>::Ones(4)};
  network.weights.col(0) << 1, -1, 0, 0;
  network.weights(3, 1) = 1;
  network.output[1] = -1;
  Matrix<double> x(20, 2);
  Vector<double> y(20);
  for (Index i = 0; i < 20; ++i) {
    y[i] = i < 10 ? 1 : -1;
    x.row(i) << y[i], 1;
  }
  ContaminationReport report = diagnose(network, FeatureBasis(q, 1), x, y, x, y, Loss::hinge);
  CHECK(report.asymmetric_share == 0.5);
  CHECK(report.own_rate == 0.75);
  CHECK(report.other_rate == 0.25);
  CHECK(report.core_signed == 0.5);  // (1 + 1 + 0 + 0) / 4
  CHECK(report.background == 0);
  CHECK(report.background_mean == 0);
  x(0, 0) = x(10, 0) =
      -1;  // fires for 0.9 of its own class and none of the other; the one opposite for 0.1 of the other
  x(10, 0) = 1;
  report = diagnose(network, FeatureBasis(q, 1), x, y, x, y, Loss::hinge);
  CHECK(report.rates.own[0] == 0.9);
  CHECK(report.rates.other[0] == 0.1);
  CHECK(report.asymmetric_share == 0.5);
  x(1, 0) = -1;
  CHECK(diagnose(network, FeatureBasis(q, 1), x, y, x, y, Loss::hinge).asymmetric_share == 0);
}

TEST_CASE("dynamics.feature_contamination: the pulls add up to the gradient and split by class") {
  for (const Activation activation : all_activations)
    for (const Loss loss : all_losses) {
      INFO("activation " << static_cast<int>(activation) << ", loss " << static_cast<int>(loss));
      const Study s(6, activation);
      const GradientDecomposition pull = gradient_decomposition(s.network, s.model.basis, s.x, s.trained.y, loss);
      const Matrix<double> gradient = loss_and_gradient(s.network, s.x, s.trained.y, loss).weights;
      CHECK((pull.sum() + gradient * s.model.basis.directions()).cwiseAbs().maxCoeff() <= 1e-14);
      CHECK((pull.asymmetry + pull.covariance - pull.sum()).cwiseAbs().maxCoeff() <= 1e-15);
      // The samples of class +1 alone, whose gradient is a mean over fewer.
      const auto count = static_cast<Index>((s.trained.y.array() > 0).count());
      Matrix<double> positive(count, 15);
      for (Index i = 0, at = 0; i < 200; ++i)
        if (s.trained.y[i] > 0) positive.row(at++) = s.x.row(i);
      const Matrix<double> half =
          loss_and_gradient(s.network, positive, Vector<double>::Ones(count).eval(), loss).weights;
      CHECK((pull.positive + static_cast<double>(count) / 200 * half * s.model.basis.directions())
                .cwiseAbs()
                .maxCoeff() <= 1e-14);
    }
}

TEST_CASE("dynamics.feature_contamination: the hinge pulls on the background as far as classes fire unequally") {
  const Study s(7);
  const GradientDecomposition pull = gradient_decomposition(s.network, s.model.basis, s.x, s.trained.y, Loss::hinge);
  const Matrix<double> h = pre_activations(s.network, s.x);
  const Vector<double> f = forward(s.network, s.x);
  for (Index k = 0; k < 9; ++k) {
    double difference = 0;  // Pr[active, y = 1, margin < 1] - Pr[active, y = -1, margin < 1]
    for (Index i = 0; i < 200; ++i)
      if (h(i, k) > 0 && s.trained.y[i] * f[i] < 1) difference += s.trained.y[i] / 200;
    for (Index j = 4; j < 10; ++j) {
      double covariance = 0;
      const double mean = s.trained.z.col(j).mean();
      for (Index i = 0; i < 200; ++i)
        if (h(i, k) > 0 && s.trained.y[i] * f[i] < 1)
          covariance += s.network.output[k] * s.trained.y[i] * (s.trained.z(i, j) - mean) / 200;
      CHECK(std::abs(pull.asymmetry(k, j) - s.network.output[k] * difference * mean) <= 1e-14);
      CHECK(std::abs(pull.covariance(k, j) - covariance) <= 1e-14);
    }
  }
}

TEST_CASE("dynamics.feature_contamination: bad arguments are named") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Study s(8);
  const FeatureBasis other(Matrix<double>::Identity(14, 3), 1);
  CHECK(message_of<InvalidArgument>([&] {
          (void)diagnose(s.network, other, s.x, s.trained.y, s.x, s.trained.y, Loss::hinge);
        }) == "diagnose: network.dim() must be 14 as of the basis, got 15");
  CHECK(message_of<InvalidArgument>([&] {
          (void)gradient_decomposition(s.network, other, s.x, s.trained.y, Loss::hinge);
        }) == "gradient_decomposition: network.dim() must be 14 as of the basis, got 15");
  CHECK(message_of<InvalidArgument>([&] {
          (void)diagnose(s.network, s.model.basis, s.x, s.trained.y, s.x.leftCols(3), s.trained.y, Loss::hinge);
        }) == "diagnose: x_shifted has shape [200,3], expected [200,15] (one column an input of the network)");
  CHECK(message_of<InvalidArgument>([&] {
          (void)diagnose(s.network, s.model.basis, s.x, s.trained.y, s.x, s.trained.y.head(3), Loss::hinge);
        }) == "diagnose: y_shifted has shape [3], expected [200] (one label a sample)");
  Vector<double> y = s.trained.y;
  y[0] = 0.5;
  CHECK(message_of<InvalidArgument>([&] { (void)activation_rates(s.network, s.x, y); }) ==
        "activation_rates: y[0] must be -1 or 1, got 0.5");
  CHECK(message_of<InvalidArgument>([&] {
          (void)gradient_decomposition(s.network, s.model.basis, s.x, y, Loss::hinge);
        }) == "gradient_decomposition: y[0] must be -1 or 1, got 0.5");
  CHECK(message_of<InvalidArgument>([&] { (void)project_out(s.network.weights, Matrix<double>(14, 2)); }) ==
        "project_out: weights has shape [9,15], expected [9,14] (one column a dimension of the directions)");
  Matrix<double> w = s.network.weights;
  w(0, 0) = nan;
  CHECK(message_of<InvalidArgument>([&] { (void)feature_projections(w, s.model.basis.directions()); }) ==
        "feature_projections: weights has an entry that is not finite");
  CHECK(message_of<InvalidArgument>([&] {
          (void)project_out(s.network.weights, Matrix<double>::Constant(15, 1, nan).eval());
        }) == "project_out: directions has an entry that is not finite");
}

}  // namespace
}  // namespace ashlar::dynamics
