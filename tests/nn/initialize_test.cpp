#include "ashlar/nn/initialize.hpp"

#include <cmath>

#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"

namespace ashlar::nn {
namespace {

struct Moments {
  double mean, deviation, largest;
};
Moments moments(const Tensor<double>& x) {
  const Eigen::Map<const Eigen::ArrayXd> a(x.data(), x.size());
  return {a.mean(), std::sqrt((a - a.mean()).square().mean()), a.abs().maxCoeff()};
}

TEST_CASE("nn.initialize: deviations and limits are those of the formulas") {
  // 120 x 200 x 4: fan-in 800, fan-out 480. The deviation of n numbers is off by 1 / sqrt(2 n) of itself or less:
  // 0.0023.
  const Shape shape{120, 200, 4};
  const auto check = [](const char* name, const Tensor<double>& x, double deviation, double limit) {
    INFO(name);
    const Moments m = moments(x);
    CHECK(std::abs(m.mean) <= 4 * deviation / std::sqrt(96000.0));
    CHECK(std::abs(m.deviation / deviation - 1) <= 4 * 0.0023);
    CHECK(m.largest <= limit);
    CHECK(m.largest >= 0.99 * std::min(limit, 4 * deviation));
  };
  Rng rng(1);
  const double none = INFINITY;
  check("fan_in_uniform", fan_in_uniform<double>(rng, shape), 1 / std::sqrt(3 * 800.0), 1 / std::sqrt(800.0));
  check("xavier_uniform", xavier_uniform<double>(rng, shape, 2), 2 * std::sqrt(2 / 1280.0), 2 * std::sqrt(6 / 1280.0));
  check("xavier_normal", xavier_normal<double>(rng, shape, 2), 2 * std::sqrt(2 / 1280.0), none);
  check("he_normal", he_normal<double>(rng, shape), std::sqrt(2 / 800.0), none);
  check("he_uniform", he_uniform<double>(rng, shape), std::sqrt(2 / 800.0), std::sqrt(6 / 800.0));
  // A normal variable cut at two deviations has deviation 0.879626.
  check("truncated_normal", truncated_normal<double>(rng, shape, 0.5), 0.5 * 0.8796256610342398, 1.0);
}

TEST_CASE("nn.initialize: orthogonal matrices have orthonormal rows or columns times the gain") {
  Rng rng(2);
  for (const Shape& shape : {Shape{5, 5}, Shape{3, 8}, Shape{8, 3}, Shape{4, 2, 3}, Shape{1, 1}, Shape{0, 3}}) {
    const auto x = orthogonal<double>(rng, shape, 1.5);
    const Index rows = shape[0], cols = rows == 0 ? 3 : x.size() / rows;
    const Eigen::Map<const Matrix<double>> a(x.data(), rows, cols);
    const Matrix<double> gram = rows <= cols ? Matrix<double>(a * a.transpose()) : Matrix<double>(a.transpose() * a);
    CHECK((gram - 2.25 * Matrix<double>::Identity(gram.rows(), gram.cols())).norm() <= 1e-13);
  }
  // Both orientations occur: the distribution is not that of the sign convention of QR.
  int positive = 0;
  for (int i = 0; i < 200; ++i) positive += orthogonal<double>(rng, {1, 1}).data()[0] > 0;
  CHECK(std::abs(positive - 100) <= 4 * std::sqrt(50.0));
}

TEST_CASE("nn.initialize: a seed gives the same numbers again and vectors have no fan") {
  Rng a(3), b(3);
  CHECK(test::identical(he_normal<float>(a, {4, 5}), he_normal<float>(b, {4, 5})));
  CHECK(test::message_of<InvalidArgument>([&] { he_normal<float>(a, {4}); }) ==
        "fan_of: a weight has shape [outputs, inputs, ...], got [4]");
}

}  // namespace
}  // namespace ashlar::nn
