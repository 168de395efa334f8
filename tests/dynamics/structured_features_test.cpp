#include "ashlar/dynamics/structured_features.hpp"

#include <cmath>
#include <limits>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::dynamics {
namespace {

using test::message_of;

FeatureModel small_model(std::uint64_t seed) {
  Rng rng(seed);
  return {.basis = FeatureBasis::random(rng, 12, 3, 5)};
}

TEST_CASE("dynamics.structured_features: random directions are orthonormal and uniform") {
  const std::uint64_t seed = GENERATE(1u, 2u);
  INFO("seed = " << seed);
  Rng rng(seed);
  const FeatureBasis basis = FeatureBasis::random(rng, 40, 7, 9);
  CHECK(basis.dim() == 40);
  CHECK(basis.features() == 16);
  CHECK(basis.core() == 7);
  CHECK(basis.background() == 9);
  CHECK(basis.orthonormal());
  const Matrix<double>& q = basis.directions();
  CHECK((q.transpose() * q - Matrix<double>::Identity(16, 16)).norm() <= 1e-13);
  CHECK(basis.core_directions() == q.leftCols(7));
  CHECK(basis.background_directions() == q.rightCols(9));
  // Haar measure: every entry has mean 0 and variance 1/d, the last column of a square basis too. 4 standard errors.
  const Index draws = 4000;
  Matrix<double> mean = Matrix<double>::Zero(3, 3), square = mean;
  for (Index t = 0; t < draws; ++t) {
    const FeatureBasis each = FeatureBasis::random(rng, 3, 1, 2);
    mean += each.directions() / static_cast<double>(draws);
    square += each.directions().cwiseAbs2() / static_cast<double>(draws);
  }
  const double n = static_cast<double>(draws);
  CHECK(mean.cwiseAbs().maxCoeff() <= 4 * std::sqrt(1.0 / 3 / n));
  CHECK((square.array() - 1.0 / 3).abs().maxCoeff() <= 4 * std::sqrt((1.0 / 5 - 1.0 / 9) / n));  // uniform entries
}

TEST_CASE("dynamics.structured_features: a sample is the sum of its features") {
  const FeatureModel model = small_model(3);
  Rng rng(4);
  const LabelledFeatures s = model.sample(50, rng);
  const Matrix<double> x = model.inputs(s.z, rng);
  REQUIRE(x.rows() == 50);
  REQUIRE(x.cols() == 12);
  bool negative = false, positive = false;
  for (Index i = 0; i < 50; ++i) {
    (s.y[i] > 0 ? positive : negative) = true;
    CHECK(std::abs(s.y[i]) == 1);
    Vector<double> sum = Vector<double>::Zero(12);
    for (Index j = 0; j < 8; ++j) {
      const double z = j < 3 ? s.y[i] * s.z(i, j) : s.z(i, j);
      CHECK((z >= 0 && z < 1));
      sum += (j < 3 ? s.y[i] * z : z) * model.basis.directions().col(j);
    }
    CHECK((sum - x.row(i).transpose()).cwiseAbs().maxCoeff() <= 1e-14);  // 8 terms below 1, each rounded once or twice
  }
  CHECK((negative && positive));
}

TEST_CASE("dynamics.structured_features: the background knows nothing of the label") {
  const std::uint64_t seed = GENERATE(5u, 6u);
  INFO("seed = " << seed);
  const FeatureModel model = small_model(seed);
  Rng rng(seed);
  const Index n = 40000;
  const LabelledFeatures s = model.sample(n, rng);
  const double root = std::sqrt(static_cast<double>(n));  // all bounds are 4 standard errors
  CHECK(std::abs(s.y.mean()) <= 4 / root);
  for (Index j = 0; j < 8; ++j) {
    const auto z = s.z.col(j).array();
    const double with_label = (z * s.y.array()).mean();
    const double spread = std::sqrt(1.0 / 12), size = std::sqrt(1.0 / 3);
    if (j < 3) {
      CHECK(std::abs(with_label - 0.5) <= 4 * spread / root);
      CHECK(std::abs(z.mean()) <= 4 * size / root);
    } else {
      CHECK(std::abs(with_label) <= 4 * size / root);
      CHECK(std::abs(z.mean() - 0.5) <= 4 * spread / root);
      CHECK(std::abs((z * s.z.col(3 + (j - 2) % 5).array()).mean() - 0.25) <= 4 * std::sqrt(1.0 / 9 - 1.0 / 16) / root);
    }
  }
}

TEST_CASE("dynamics.structured_features: uniform laws by the array are those of Rng::uniform") {
  FeatureModel fast = small_model(7), slow = fast;
  fast.core = UniformLaw{0.2, 3};
  fast.background = UniformLaw{-1, 1};
  slow.core = [](Rng& rng) { return rng.uniform(0.2, 3); };
  slow.background = [](Rng& rng) { return rng.uniform(-1, 1); };
  Rng one(8), other(8);
  for (const Index n : {1, 37, 200}) {
    const LabelledFeatures a = fast.sample(n, one), b = slow.sample(n, other);
    CHECK(a.y == b.y);
    CHECK(a.z == b.z);
    CHECK(one.position() == other.position());
  }
  FeatureModel constant = small_model(7);
  constant.background = UniformLaw{0.5, 0.5};
  CHECK((constant.sample(9, one).z.rightCols(5).array() == 0.5).all());
}

TEST_CASE("dynamics.structured_features: a shift moves the background alone") {
  const FeatureModel model = small_model(9);
  Rng rng(10), again(10);
  const LabelledFeatures s = model.sample(30, rng);
  const LabelledFeatures negated = model.shifted(s, sign_flip), moved = model.shifted(s, {.scale = 2, .offset = 0.5});
  for (const LabelledFeatures* other : {&negated, &moved}) {
    CHECK(other->y == s.y);
    CHECK(other->z.leftCols(3) == s.z.leftCols(3));
  }
  CHECK(negated.z.rightCols(5) == -s.z.rightCols(5));
  CHECK((moved.z.rightCols(5).array() == 2 * s.z.rightCols(5).array() + 0.5).all());
  CHECK(model.sample(30, again, sign_flip).z == negated.z);

  FeatureModel offset = model;
  offset.offsets = Vector<double>::LinSpaced(8, 1, 8);
  Rng third(10);
  const LabelledFeatures o = offset.sample(30, third);
  for (Index i = 0; i < 30; ++i)
    for (Index j = 0; j < 8; ++j)
      CHECK(std::abs(o.z(i, j) - (s.z(i, j) + (j < 3 ? s.y[i] : 1) * static_cast<double>(j + 1))) <= 4e-15);

  Rng fourth(11);
  const FeatureModel bare{.basis = FeatureBasis::random(fourth, 6, 4, 0)};
  const LabelledFeatures core_only = bare.sample(20, fourth);
  CHECK(bare.shifted(core_only, sign_flip).z == core_only.z);
}

TEST_CASE("dynamics.structured_features: noise has the deviation asked for in every direction") {
  FeatureModel model = small_model(12);
  Rng rng(13), quiet(14);
  const LabelledFeatures s = model.sample(5000, rng);
  const Matrix<double> clean = model.inputs(s.z, quiet);
  CHECK(quiet.position() == 0);
  model.noise = 0.3;
  const Matrix<double> noise = model.inputs(s.z, rng) - clean;
  const double n = static_cast<double>(noise.size());
  CHECK(std::abs(noise.mean()) <= 4 * 0.3 / std::sqrt(n));
  CHECK(std::abs(noise.squaredNorm() / n - 0.09) <= 4 * 0.09 * std::sqrt(2 / n));
}

TEST_CASE("dynamics.structured_features: a batch that is there already costs no allocation") {
  const FeatureModel model = small_model(15);
  Rng rng(16), again(16);
  LabelledFeatures batch{Vector<double>(64), Matrix<double>(64, 8)};
  Matrix<double> x(64, 12);
  CHECK(test::allocations([&] { model.sample(batch, rng); }) == 0);
  const LabelledFeatures fresh = model.sample(64, again);
  CHECK(batch.y == fresh.y);
  CHECK(batch.z == fresh.z);
  CHECK(test::allocations([&] { model.inputs(batch.z, rng, x); }) == 0);
  CHECK(x == model.inputs(fresh.z, again));
  Eigen::MatrixXd columns(64, 12);
  model.inputs(batch.z, rng, columns);
  CHECK((columns - x).cwiseAbs().maxCoeff() <= 1e-14);
}

TEST_CASE("dynamics.structured_features: oblique directions are taken only when asked for") {
  Matrix<double> q = Matrix<double>::Identity(4, 2);
  q(1, 0) = 1e-6;
  CHECK(FeatureBasis::oblique(q, 1).orthonormal() == false);
  CHECK(message_of<InvalidArgument>([&] {
          (void)FeatureBasis(q, 1);
        }).starts_with("FeatureBasis: |Q'Q - 1| of the directions must be at most 1e-08 (see oblique), got 1.41421"));
  q(1, 0) = 1e-9;
  CHECK(FeatureBasis(q, 1).orthonormal());
}

TEST_CASE("dynamics.structured_features: bad arguments are named") {
  Rng rng(17);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(message_of<InvalidArgument>([&] { (void)FeatureBasis::random(rng, 5, 3, 3); }) ==
        "FeatureBasis::random: d must be at least the number of features, got 5 dimensions for 6 features");
  CHECK(message_of<InvalidArgument>([&] { (void)FeatureBasis::random(rng, 5, -1, 3); }) ==
        "FeatureBasis::random: core must be not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { (void)FeatureBasis::random(rng, 5, 1, -3); }) ==
        "FeatureBasis::random: background must be not negative, got -3");
  CHECK(message_of<InvalidArgument>([&] { (void)FeatureBasis(Matrix<double>::Identity(2, 3), 1); }) ==
        "FeatureBasis: directions has shape [2,3], expected at least one column and no more columns than rows");
  CHECK(message_of<InvalidArgument>([&] { (void)FeatureBasis(Matrix<double>::Identity(3, 0), 0); }) ==
        "FeatureBasis: directions has shape [3,0], expected at least one column and no more columns than rows");
  CHECK(message_of<InvalidArgument>([&] { (void)FeatureBasis(Matrix<double>::Constant(3, 2, nan), 1); }) ==
        "FeatureBasis: directions has an entry that is not finite");
  CHECK(message_of<InvalidArgument>([&] { (void)FeatureBasis(Matrix<double>::Identity(3, 2), 3); }) ==
        "FeatureBasis: core must be between 0 and 2, got 3");

  FeatureModel model = small_model(18);
  const LabelledFeatures s = model.sample(4, rng);
  CHECK(message_of<InvalidArgument>([&] { (void)model.sample(0, rng); }) ==
        "FeatureModel::sample: n must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { (void)model.sample(4, rng, {.scale = nan}); }) ==
        "FeatureModel::sample: shift.scale must be finite, got nan");
  CHECK(message_of<InvalidArgument>([&] { (void)model.shifted(s, {.scale = 1, .offset = nan}); }) ==
        "FeatureModel::shifted: shift.offset must be finite, got nan");
  CHECK(message_of<InvalidArgument>([&] {
          (void)model.shifted({s.y, s.z.leftCols(7)}, sign_flip);
        }) ==
        "FeatureModel::shifted: features.z has shape [4,7], expected [4,8] (one row a label, one column a feature)");
  Matrix<double> x(4, 11);
  CHECK(message_of<InvalidArgument>([&] { model.inputs(s.z, rng, x); }) ==
        "FeatureModel::inputs: x has shape [4,11], expected [4,12] (one row a sample, one column a dimension)");
  CHECK(message_of<InvalidArgument>([&] { (void)model.inputs(s.z.leftCols(3), rng); }) ==
        "FeatureModel::inputs: z has shape [4,3], expected [4,8] (one column a feature)");
  Matrix<double> shared(4, 20);
  CHECK(message_of<InvalidArgument>([&] { model.inputs(shared.leftCols(8), rng, shared.rightCols(12)); }) ==
        "FeatureModel::inputs: x overlaps z");
  model.noise = -1;
  CHECK(message_of<InvalidArgument>([&] { (void)model.inputs(s.z, rng); }) ==
        "FeatureModel::inputs: noise must be finite and not negative, got -1");
  model.offsets = Vector<double>::Zero(3);
  CHECK(message_of<InvalidArgument>([&] { (void)model.sample(4, rng); }) ==
        "FeatureModel::sample: offsets has length 3, expected 8 (one a feature)");
  model.offsets = Vector<double>::Constant(8, nan);
  CHECK(message_of<InvalidArgument>([&] { (void)model.sample(4, rng); }) ==
        "FeatureModel::sample: offsets has an entry that is not finite");
  model.offsets = {};
  model.core = UniformLaw{1, 0};
  CHECK(message_of<InvalidArgument>([&] { (void)model.sample(4, rng); }) ==
        "FeatureModel::sample: the core law must be uniform on a finite interval, got 1 to 0");
  model.core = [](Rng&) { return 1.0 / 0.0; };
  CHECK(message_of<InvalidArgument>([&] { (void)model.sample(4, rng); }) ==
        "FeatureModel::sample: the core law drew inf");
  model.core = UniformLaw{};
  model.background = {};
  CHECK(message_of<InvalidArgument>([&] { (void)model.sample(4, rng); }) ==
        "FeatureModel::sample: the background law is empty");
}

}  // namespace
}  // namespace ashlar::dynamics
