#include "ashlar/diffusion/guidance.hpp"

#include <cmath>
#include <vector>

#include "ashlar/diffusion/mixture_score.hpp"
#include "diffusion/mixtures.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::diffusion {
namespace {

using test::message_of;
using test::worst_gap;

/// grad log q(label | x) of a mixture, as a classifier would give it.
auto classifier_gradient(const GaussianMixture& mixture, Index label) {
  return [mixture, label](View<const double, 2> x, double t, View<double, 2> out) {
    const Matrix<double> mean = mixture.score(x, t);
    const auto scores = mixture.class_scores(x, t);
    for (Index i = 0; i < x.extent(0); ++i)
      vector(out[i]) = matrix(scores.view<3>()[i]).row(label).transpose() - mean.row(i).transpose();
  };
}

TEST_CASE("diffusion.guidance: classifier-free and classifier guidance agree for exact scores") {
  Rng rng(1);
  const auto mixture = test::random_mixture(rng, 4, 3, CovarianceKind::full, false);
  const auto x = normal_matrix<double>(rng, 200, 3, 2);
  const std::vector<double> etas = [&] {
    std::vector<double> values(200);
    for (double& eta : values) eta = rng.uniform(-1, 8);
    return values;
  }();
  const MixtureScore<double> conditional(mixture, 2, {.strength = 0.0}), unconditional(mixture, 2, {.strength = -1.0});
  const MixtureScore<double> exact(mixture, 2, {.strength = etas});
  Matrix<double> expected(200, 3), out(200, 3);
  Vector<double> divergence(200), expected_divergence(200);
  const View<const double, 2> points = x;
  for (const double t : {0.0, 0.6}) {
    exact(points, t, expected, expected_divergence);
    auto free = classifier_free<double>(conditional, unconditional, {.strength = etas});
    free(points, t, out, divergence);
    CHECK(worst_gap(out, expected) <= 1e-12);
    CHECK(worst_gap(divergence, expected_divergence) <= 1e-11);
    out.setZero();
    free(points, t, out);
    CHECK(worst_gap(out, expected) <= 1e-12);
    auto added = classifier_guided<double>(conditional, classifier_gradient(mixture, 2), {.strength = etas});
    added(points, t, out);
    CHECK(worst_gap(out, expected) <= 1e-12);
    auto from_mixture = classifier_guided<double>(unconditional, classifier_gradient(mixture, 2), {.strength = etas},
                                                  GuidedFrom::unconditional);
    from_mixture(points, t, out);
    CHECK(worst_gap(out, expected) <= 1e-12);
  }
}

TEST_CASE("diffusion.guidance: a score without a divergence cannot give one") {
  const auto zero = [](View<const float, 2>, double, View<float, 2> out) { matrix(out).setZero(); };
  const auto both = [](View<const float, 2>, double, View<float, 2> out, View<float, 1> = {}) {
    matrix(out).setZero();
  };
  using Without = decltype(classifier_free(zero, both, {}));
  using With = decltype(classifier_free(both, both, {}));
  STATIC_REQUIRE(ScoreFunction<Without, float>);
  STATIC_REQUIRE(!ScoreWithDivergence<Without, float>);
  STATIC_REQUIRE(ScoreFunction<With, float>);
  STATIC_REQUIRE(ScoreWithDivergence<With, float>);
  STATIC_REQUIRE(!ScoreFunction<int, float>);
}

TEST_CASE("diffusion.guidance: a schedule multiplies the strength and an interval switches it") {
  const auto inside = guidance_interval(0.5, 2);
  CHECK((inside(0.49) == 0 && inside(0.5) == 1 && inside(2) == 1 && inside(2.01) == 0));
  const auto one = [](View<const double, 2>, double, View<double, 2> out) { matrix(out).setOnes(); };
  const auto two = [](View<const double, 2>, double, View<double, 2> out) { matrix(out).setConstant(2); };
  auto score = classifier_free<double>(one, two, {.strength = 3.0, .schedule = inside});
  Matrix<double> x = Matrix<double>::Zero(2, 1), out(2, 1);
  const View<const double, 2> points = x;
  score(points, 1, out);
  CHECK(out == Matrix<double>::Constant(2, 1, 4 * 1 - 3 * 2));
  score(points, 3, out);
  CHECK(out == Matrix<double>::Ones(2, 1));
  CHECK(Guidance{.strength = 3.0}.factor(7) == 1);
}

TEST_CASE("diffusion.guidance: scales of libraries are one more than strengths") {
  CHECK(strength_of_scale(7.5) == 6.5);
  CHECK(scale_of_strength(0) == 1);
}

TEST_CASE("diffusion.guidance: bad input is named") {
  const auto one = [](View<const double, 2>, double, View<double, 2> out) { matrix(out).setOnes(); };
  Matrix<double> x = Matrix<double>::Zero(2, 1), out(2, 1);
  const std::vector<double> three(3, 1.0);
  auto free = classifier_free<double>(one, one, {.strength = three});
  auto guided = classifier_guided<double>(one, one, {.strength = three});
  CHECK(message_of<InvalidArgument>([&] { free(View<const double, 2>(x), 0, out); }) ==
        "classifier_free: strength has shape [3], expected [2] (one a sample)");
  CHECK(message_of<InvalidArgument>([&] { guided(View<const double, 2>(x), 0, out); }) ==
        "classifier_guided: strength has shape [3], expected [2] (one a sample)");
  CHECK(message_of<InvalidArgument>([] { guidance_interval(2, 1); }) ==
        "guidance_interval: an interval needs 0 <= low <= high, got 2 and 1");
}

}  // namespace
}  // namespace ashlar::diffusion
