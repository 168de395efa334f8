#include "ashlar/precision/threshold_search.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::precision {
namespace {

using test::fixture;
using test::message_of;

struct Layer {
  Matrix<float> activations, weights;
};

/// Normal activations with a few channels forty times as large, and normal weights.
Layer outlier_layer(Rng& rng, Index tokens, Index inputs, Index outputs, Index outliers) {
  Layer layer{normal_matrix<float>(rng, tokens, inputs), normal_matrix<float>(rng, outputs, inputs)};
  for (const Index channel : rng.sample(inputs, outliers))
    layer.activations.col(channel) *= static_cast<float>(40 * std::exp(0.3 * rng.normal()));
  return layer;
}

TEST_CASE("precision.threshold_search: the exhaustive search matches the fixture at every candidate") {
  const Tensor<double> x = fixture("bie_quantization/x"), errors = fixture("bie_quantization/threshold_errors"),
                       best = fixture("bie_quantization/threshold_best");
  const auto objective = [&](double t) { return quantization_mse(x, fake_quantize<BiE4>(x, t)); };
  for (Index i = 0; i < errors.extent(0); ++i) {
    const double value = objective(std::ldexp(1.0, static_cast<int>(errors.view<2>()(i, 0))));
    // 240 squares summed in another order
    CHECK(std::abs(value - errors.view<2>()(i, 1)) <= 240 * 0x1p-53 * value);
  }
  const auto found = search_exhaustive(objective, threshold_candidates<BiE4>(x));
  CHECK(found.log2_threshold == best.data()[0]);
  CHECK(found.evaluations == 31);
  const auto same = search_exhaustive(objective, -14, 16);
  CHECK(same.log2_threshold == found.log2_threshold);
  CHECK(same.objective == found.objective);
}

TEST_CASE("precision.threshold_search: ties go to the larger threshold") {
  const auto flat = search_exhaustive([](double) { return 1.0; }, -3, 5);
  CHECK(flat.log2_threshold == 5);
  CHECK(flat.evaluations == 9);
  CHECK(search_exhaustive([](double t) { return t <= 4 ? 0.0 : 1.0; }, -3, 5).log2_threshold == 2);
}

TEST_CASE("precision.threshold_search: candidates include no outliers only where an element reaches the largest exponent") {
  Matrix<double> x = Matrix<double>::Constant(1, 4, 0x1p16 - 1);
  CHECK(threshold_candidates<BiE4>(x).size() == 31);
  CHECK(threshold_candidates<BiE4>(x).front() == 0x1p16);
  CHECK(threshold_candidates<BiE4>(x).back() == 0x1p-14);
  x(0, 2) = -0x1p16;
  CHECK(threshold_candidates<BiE4>(x).size() == 32);
  CHECK(std::isinf(threshold_candidates<BiE4>(x).front()));
}

TEST_CASE("precision.threshold_search: the best of all powers of two is never worse than block floating point") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    INFO("seed " << seed);
    Rng rng(seed);
    Matrix<double> x = normal_matrix<double>(rng, 32, 64);
    x.col(5) *= 3e4;
    x.row(7) *= 1e-3;
    const auto objective = [&](double t) { return quantization_mse(x, fake_quantize<BiE4>(x, t)); };
    const auto best = search_exhaustive(objective, threshold_candidates<BiE4>(x));
    CHECK(best.objective <= objective(std::numeric_limits<double>::infinity()));
  }
}

TEST_CASE("precision.threshold_search: bounds are the median and the maximum of what is not zero") {
  Matrix<double> x(1, 6);
  x << 0, -8, 2, 0, 1, 4;
  const auto bounds = threshold_bounds<BiE4>(x);
  CHECK(bounds.low == std::log2(3.0));
  CHECK(bounds.high == 3);
  x.setConstant(1e9);
  CHECK(threshold_bounds<BiE4>(x).low == 16);
  CHECK(threshold_bounds<BiE4>(x).high == 16);
  x.setConstant(1e-9);
  CHECK(threshold_bounds<BiE4>(x).high == -14);
}

TEST_CASE("precision.threshold_search: the first points are the Halton sequence") {
  Rng rng(1);
  std::vector<double> seen;
  const auto remember = [&](double t) {
    seen.push_back(std::log2(t));
    return 1.0;  // flat: the search stops after them
  };
  const auto result = search_bayesian(remember, {0, 8}, {}, rng);
  CHECK(seen == std::vector<double>{4, 2, 6, 1, 5});
  CHECK(result.evaluations == 5);
  CHECK(result.log2_threshold == 4);

  seen.clear();
  const std::vector<ThresholdBounds> bounds{{0, 8}, {0, 27}};
  std::vector<double> second;
  search_bayesian_joint(
      [&](View<const double, 1> t) {
        seen.push_back(std::log2(t[0]));
        second.push_back(std::log2(t[1]));
        return 1.0;
      },
      bounds, {}, rng);
  REQUIRE(seen.size() == 10);
  CHECK(seen[5] == 3);
  const double base_three[] = {9, 18, 3, 12, 21, 6, 15, 24, 1, 10};
  for (std::size_t i = 0; i < 10; ++i) CHECK(std::abs(second[i] - base_three[i]) < 1e-12);
}

TEST_CASE("precision.threshold_search: equal bounds need one evaluation") {
  Rng rng(1);
  int calls = 0;
  const auto result = search_bayesian([&](double t) { return ++calls, t; }, {3, 3}, {}, rng);
  CHECK(result.threshold() == 8);
  CHECK(result.evaluations == 1);
  CHECK(calls == 1);
}

TEST_CASE("precision.threshold_search: the surrogate interpolates and its expected improvement has the closed form") {
  Matrix<double> points(3, 1);
  points << 0.1, 0.5, 0.9;
  Vector<double> z(3);
  z << 1, -1.2, 0.2;
  const detail::Surrogate surrogate(points, z);
  // At an evaluated point the posterior is nearly certain: nothing to gain except below the best.
  Vector<double> x(1);
  for (Index i = 0; i < 3; ++i) {
    x[0] = points(i, 0);
    CHECK(surrogate.expected_improvement(x, z.minCoeff(), 0.01) < 1e-2);
    // A target far above the value is reached surely: EI is the distance.
    CHECK(std::abs(surrogate.expected_improvement(x, z[i] + 3, 0) - 3) < 1e-3);
  }
  x[0] = 0.45;
  CHECK(surrogate.expected_improvement(x, z.minCoeff(), 0.01) > 1e-3);
  // Matern 5/2 by hand at r = 1.
  CHECK(std::abs(detail::matern(1) - (1 + std::sqrt(5.0) + 5.0 / 3) * std::exp(-std::sqrt(5.0))) < 1e-15);
}

TEST_CASE("precision.threshold_search: a smooth valley is found to a hundredth of its width") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    INFO("seed " << seed);
    Rng rng(seed);
    const auto valley = [](double t) { return 1 + std::pow(std::log2(t) - 3.3, 2); };
    const auto found = search_bayesian(valley, {-4, 12}, {.further = 20}, rng);
    CHECK(std::abs(found.log2_threshold - 3.3) < 0.16);
    CHECK(found.evaluations == 25);
    CHECK(valley(found.threshold()) == found.objective);
    const auto rounded = search_bayesian(valley, {-4, 12}, {.further = 20, .power_of_two = true}, rng);
    CHECK(rounded.log2_threshold == 3);
    CHECK(rounded.evaluations == 26);
    CHECK(rounded.objective == valley(8));
  }
}

TEST_CASE("precision.threshold_search: eighteen evaluations reach the exhaustive optimum of a layer within a percent") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed);
    auto layer = outlier_layer(rng, 64, 512, 64, 10);
    const LayerOutputError<BiE4> error(layer.activations, layer.weights);
    const auto objective = [&](double t) { return error.of_activations(t); };
    const auto all = search_exhaustive(objective, threshold_candidates<BiE4>(layer.activations));
    const auto few = search_bayesian(objective, threshold_bounds<BiE4>(layer.activations), {.further = 13}, rng);
    CHECK(few.evaluations == 18);
    CHECK(few.objective <= 1.01 * all.objective);
    CHECK(objective(few.threshold()) == few.objective);
  }
}

TEST_CASE("precision.threshold_search: thresholds of several layers are tuned jointly") {
  Rng rng(3);
  auto first = outlier_layer(rng, 32, 128, 32, 3), second = outlier_layer(rng, 32, 128, 32, 3);
  second.activations *= 0.125f;
  const LayerOutputError<BiE4> a(first.activations, first.weights), b(second.activations, second.weights);
  const auto joint = [&](View<const double, 1> t) { return a.of_activations(t[0]) + 64 * b.of_activations(t[1]); };
  const std::vector<ThresholdBounds> bounds{threshold_bounds<BiE4>(first.activations),
                                            threshold_bounds<BiE4>(second.activations)};
  const auto found = search_bayesian_joint(joint, bounds, {}, rng);
  CHECK(found.evaluations == 40);
  const double best_a = search_exhaustive([&](double t) { return a.of_activations(t); }, -14, 16).objective;
  const double best_b = search_exhaustive([&](double t) { return b.of_activations(t); }, -14, 16).objective;
  CHECK(found.objective <= 1.1 * (best_a + 64 * best_b));
  const Vector<double> thresholds = found.log2_thresholds.unaryExpr([](double l) { return std::exp2(l); });
  CHECK(joint(View<const double, 1>(thresholds)) == found.objective);
}

TEST_CASE("precision.threshold_search: one seed gives one answer") {
  const auto run = [] {
    Rng rng(11);
    return search_bayesian([](double t) { return 2 + std::sin(3 * std::log2(t)); }, {-4, 12}, {}, rng).log2_threshold;
  };
  CHECK(run() == run());
}

TEST_CASE("precision.threshold_search: calibration takes the best candidate for the layer output or for the tensor") {
  Rng rng(5);
  const auto layer = outlier_layer(rng, 48, 256, 40, 6);
  const CalibrationSite site{layer.weights, {layer.activations.topRows(20), layer.activations.bottomRows(28)}};
  const std::vector<CalibrationSite> sites{site, {layer.weights.topRows(8), {layer.activations}}};
  const auto found = calibrate<BiE4>(sites);
  REQUIRE(found.size() == 2);
  const LayerOutputError<BiE4> error(layer.activations, layer.weights);
  for (int j = -14; j <= 16; ++j) {
    const double t = std::ldexp(1.0, j);
    CHECK(error.of_weights(found[0].weight) <= error.of_weights(t));
    CHECK(error(found[0].activation, found[0].weight) <= error(t, found[0].weight));
  }
  const auto by_tensor = calibrate<BiE4>(sites, CalibrationObjective::tensor);
  const auto mse = [&](double t) { return quantization_mse(layer.activations, fake_quantize<BiE4>(layer.activations, t)); };
  for (int j = -14; j <= 16; ++j) CHECK(mse(by_tensor[0].activation) <= mse(std::ldexp(1.0, j)));
  // The output weighs the small channels more than the tensor does.
  CHECK(error(found[0].activation, found[0].weight) <= error(by_tensor[0].activation, found[0].weight));
}

TEST_CASE("precision.threshold_search: bad input is refused by name") {
  Rng rng(1);
  const auto one = [](double) { return 1.0; };
  CHECK(message_of<InvalidArgument>([&] { search_exhaustive(one, 3, 2); }) ==
        "search_exhaustive: low is 3, above high, 2");
  CHECK(message_of<InvalidArgument>([&] { search_exhaustive(one, std::vector<double>{}); }) ==
        "search_exhaustive: there are no candidates");
  CHECK(message_of<InvalidArgument>([&] { search_exhaustive(one, std::vector<double>{-1}); }) ==
        "search_exhaustive: threshold must be not negative and not NaN, got -1");
  CHECK(message_of<InvalidArgument>([&] { search_bayesian(one, {2, 1}, {}, rng); }) ==
        "search_bayesian: bounds 2 to 1 are not a finite range");
  CHECK(message_of<InvalidArgument>([&] { search_bayesian(one, {0, 1}, {.initial = 0}, rng); }) ==
        "search_bayesian: initial must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { threshold_bounds<BiE4>(Matrix<float>::Zero(2, 2).eval()); }) ==
        "threshold_bounds: x has no element that is not zero");
  const CalibrationSite empty{Matrix<float>::Ones(2, 4), {}};
  CHECK(message_of<InvalidArgument>([&] { calibrate<BiE4>(std::span(&empty, 1)); }) ==
        "calibrate: the calibration set of site 0 is empty");
  const CalibrationSite wrong{Matrix<float>::Ones(2, 4), {Matrix<float>::Ones(2, 5)}};
  CHECK(message_of<InvalidArgument>([&] { calibrate<BiE4>(std::span(&wrong, 1)); }) ==
        "calibrate: a batch of site 0 has 5 columns, its weights have 4");
  CHECK(message_of<InvalidArgument>([&] { LayerOutputError<BiE4>(Matrix<float>(0, 4), Matrix<float>::Ones(2, 4)); }) ==
        "LayerOutputError: the calibration set is empty");
}

TEST_CASE("precision.threshold_search: an objective that is infinite everywhere leaves the first point") {
  Rng rng(31);
  const auto none = search_bayesian([](double) { return std::numeric_limits<double>::infinity(); }, {1, 3}, {}, rng);
  CHECK(none.log2_threshold == 2);
  CHECK(std::isinf(none.objective));
}

TEST_CASE("precision.threshold_search: exploration asks for more than the best so far") {
  Matrix<double> points(3, 1);
  points << 0, 0.5, 1;
  Vector<double> z(3);
  z << 1, -1, 0;
  const detail::Surrogate surrogate(points, z);
  const Vector<double> x = Vector<double>::Constant(1, 0.7);
  CHECK(surrogate.expected_improvement(x, -1, 0.5) < surrogate.expected_improvement(x, -1, 0.0));
}

TEST_CASE("precision.threshold_search: outlier statistics count what the threshold does") {
  Matrix<float> x = Matrix<float>::Constant(2, 32, 0.01f);
  x(0, 3) = 8;
  x(1, 3) = -16;
  x(1, 20) = 4;
  x(0, 31) = 0;
  const auto stats = outlier_stats<BiE4>(x, 4.0);
  CHECK(stats.elements == 64);
  CHECK(stats.outliers == 3);
  CHECK(stats.outlier_channels == 2);
  CHECK(stats.blocks == 4);
  CHECK(stats.mixed_blocks == 3);
  CHECK(stats.largest == 16);
  CHECK(stats.flushed == 0);
  CHECK(stats.threshold_in_range);
  const auto plain = outlier_stats<BiE4>(x, std::numeric_limits<double>::infinity());
  CHECK(plain.outliers == 0);
  CHECK(plain.flushed == 45);  // every 0.01 beside a large element
  CHECK_FALSE(plain.threshold_in_range);
  CHECK(outlier_stats<BiE4>(x, 0x1p-15).threshold_in_range);
}

}  // namespace
}  // namespace ashlar::precision
