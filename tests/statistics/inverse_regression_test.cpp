#include "ashlar/statistics/inverse_regression.hpp"

#include <cmath>
#include <vector>

#include "statistics/samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::statistics {
namespace {

using test::message_of;

double largest(const Matrix<double>& m) { return m.cwiseAbs().maxCoeff(); }

TEST_CASE("statistics.inverse_regression: matrices and directions and slices are those of the oracle") {
  const Matrix<double> x = data("x");
  const Vector<double> y = data("y");
  const SliceOptions options{.slices = static_cast<Index>(data("slice_count")(0))};
  const auto sir = sliced_inverse_regression(x, y, options), save = sliced_average_variance(x, y, options);
  const auto dr = directional_regression(x, y, options);
  CHECK(largest(sir.matrix - data("sir_matrix")) <= 1e-8);
  CHECK(largest(save.matrix - data("save_matrix")) <= 1e-8);
  CHECK(largest(dr.matrix - data("dr_matrix")) <= 1e-8);
  CHECK(largest(sir.directions - data("sir_direction")) <= 1e-6);
  CHECK(largest(save.directions - data("save_direction")) <= 1e-6);
  CHECK(largest(dr.directions - data("dr_direction")) <= 1e-6);
  CHECK(directional_regression(x, y).matrix == dr.matrix);  // ceil(log n) is its default
  const Matrix<double> labels = data("slice_labels");
  const auto own = slice_labels(y, options.slices);
  for (Index i = 0; i < y.size(); ++i) CHECK(static_cast<double>(own[static_cast<std::size_t>(i)]) == labels(i));
}

TEST_CASE("statistics.inverse_regression: tied responses go into slices by index") {
  const Matrix<double> x = data("ties/x");
  const Vector<double> y = data("ties/y");
  const auto dr = directional_regression(x, y);
  CHECK(largest(dr.matrix - data("ties/dr_matrix")) <= 1e-8);
  CHECK(largest(dr.directions - data("ties/dr_direction")) <= 1e-6);
  const SliceOptions options{.slices = 5};  // ceil(log 60)
  CHECK(largest(sliced_inverse_regression(x, y, options).matrix - data("ties/sir_matrix")) <= 1e-8);
  CHECK(largest(sliced_average_variance(x, y, options).matrix - data("ties/save_matrix")) <= 1e-8);
  CHECK(slice_labels(std::vector<double>{1, 0, 1, 0, 1, 1, 1}, 3) == std::vector<Index>{1, 0, 1, 0, 2, 2, 2});
}

TEST_CASE("statistics.inverse_regression: a linear index is found and directions follow a change of coordinates") {
  const Model m = design(1, 400, 10, 1);
  CHECK(sine(directional_regression(m.x, m.y).directions.col(0), m.truth) < 0.1);
  CHECK(sine(sliced_inverse_regression(m.x, m.y).directions.col(0), m.truth) < 0.1);
  // Symmetric links: the mean within a slice says nothing, the variance does.
  const Model square = design(2, 400, 10, 2);
  CHECK(sine(sliced_inverse_regression(square.x, square.y).directions.col(0), square.truth) > 0.3);
  CHECK(sine(sliced_average_variance(square.x, square.y).directions.col(0), square.truth) < 0.3);
  // x A'  has the directions A^-T b: x'b stays what it was.
  Rng rng(3);
  const Matrix<double> a = normal_matrix<double>(rng, 10, 10) + 4 * Matrix<double>::Identity(10, 10);
  const Vector<double> moved = directional_regression((m.x * a.transpose()).eval(), m.y).directions.col(0);
  const Vector<double> back = (a.transpose() * moved).normalized();
  CHECK(sine(back, directional_regression(m.x, m.y).directions.col(0)) <= 1e-9);
}

TEST_CASE("statistics.inverse_regression: several directions have unit length and their largest entry positive") {
  const Model m = design(3, 100, 5, 4);
  const auto fit = sliced_average_variance(m.x, m.y, {.directions = 3});
  REQUIRE(fit.directions.cols() == 3);
  for (Index k = 0; k < 3; ++k) {
    Index at = 0;
    CHECK(std::abs(fit.directions.col(k).norm() - 1) <= 1e-14);
    fit.directions.col(k).cwiseAbs().maxCoeff(&at);
    CHECK(fit.directions(at, k) > 0);
  }
  CHECK(fit.directions.col(0) == sliced_average_variance(m.x, m.y).directions.col(0));
}

TEST_CASE("statistics.inverse_regression: few points and dependent predictors and too many slices are no obstacle") {
  const Model m = design(1, 12, 20, 5);
  CHECK(directional_regression(m.x, m.y).directions.allFinite());
  Model twice = design(1, 60, 3, 6);
  twice.x.col(2) = twice.x.col(1);
  for (const auto& fit : {sliced_inverse_regression(twice.x, twice.y), sliced_average_variance(twice.x, twice.y),
                          directional_regression(twice.x, twice.y)}) {
    const Vector<double> index = twice.x * fit.directions.col(0), truth = twice.x * twice.truth;
    CHECK(sine(index.normalized(), truth.normalized()) < 0.5);
  }
  const Model small = design(1, 9, 2, 7);
  CHECK(sliced_inverse_regression(small.x, small.y, {.slices = 9}).matrix ==
        sliced_inverse_regression(small.x, small.y, {.slices = 4}).matrix);
  CHECK(sliced_average_variance(small.x, small.y).matrix.allFinite());
}

TEST_CASE("statistics.inverse_regression: bad input is named") {
  Matrix<double> x = Matrix<double>::Random(6, 2);
  Vector<double> y = Vector<double>::Random(6);
  const auto with = [&](const SliceOptions& options = {}) {
    return message_of<InvalidArgument>([&] { directional_regression(x, y, options); });
  };
  CHECK(with({.slices = 1}) == "directional_regression: slices must be at least 2, or 0 for the default, got 1");
  CHECK(with({.slices = -1}) == "directional_regression: slices must be at least 2, or 0 for the default, got -1");
  CHECK(with({.directions = 3}) == "directional_regression: directions must be between 1 and 2, got 3");
  CHECK(message_of<InvalidArgument>([&] { sliced_inverse_regression(x, Vector<double>(5)); }) ==
        "sliced_inverse_regression: y has shape [5], expected [6] (one response a row of x)");
  CHECK(message_of<InvalidArgument>([&] { sliced_average_variance(x.topRows(3), y); }) ==
        "sliced_average_variance: x has shape [3,2], expected at least 4 points and one predictor");
  CHECK(message_of<InvalidArgument>([&] { slice_labels(y, 7); }) ==
        "slice_labels: slices must be between 1 and the number of points 6, got 7");
  y[0] = NAN;
  CHECK(with() == "directional_regression: y has an entry that is not finite");
  x(0, 0) = NAN;
  CHECK(with() == "directional_regression: x has an entry that is not finite");
  CHECK(message_of<InvalidArgument>([] {
          directional_regression(Matrix<double>::Ones(6, 2).eval(), Vector<double>::Random(6).eval());
        }) == "directional_regression: x is constant");
}

}  // namespace
}  // namespace ashlar::statistics
