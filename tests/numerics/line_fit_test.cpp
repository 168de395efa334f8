#include "ashlar/numerics/line_fit.hpp"

#include <cmath>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::numerics {
namespace {

using test::message_of;

TEST_CASE("numerics.line_fit: points on a line give it back") {
  const Vector<double> x = Vector<double>::LinSpaced(20, -3, 7), y = (2.5 * x.array() - 1).matrix();
  const LineFit fit = fit_line(x, y);
  CHECK(std::abs(fit.slope - 2.5) <= 1e-14);
  CHECK(std::abs(fit.intercept + 1) <= 1e-13);
  CHECK(fit.residual <= 1e-26);
  CHECK(std::abs(fit.r_squared - 1) <= 1e-14);
  CHECK(std::abs(fit(4) - 9) <= 1e-13);
}

TEST_CASE("numerics.line_fit: three points by hand") {
  const LineFit fit = fit_line(std::vector<double>{0, 1, 2}, std::vector<double>{0, 3, 3});
  CHECK(std::abs(fit.slope - 1.5) <= 1e-15);
  CHECK(std::abs(fit.intercept - 0.5) <= 1e-15);
  CHECK(std::abs(fit.residual - 1.5) <= 1e-14);    // residuals -1/2, 1, -1/2
  CHECK(std::abs(fit.r_squared - 0.75) <= 1e-14);  // of a spread of 6
}

TEST_CASE("numerics.line_fit: residuals are orthogonal to the line") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  INFO("seed = " << seed);
  Rng rng(seed);
  const Vector<double> x = normal_matrix<double>(rng, 50, 1).col(0), y = normal_matrix<double>(rng, 50, 1).col(0);
  const LineFit fit = fit_line(x, y);
  const Vector<double> r = y - (fit.slope * x.array() + fit.intercept).matrix();
  CHECK(std::abs(r.sum()) <= 1e-13);
  CHECK(std::abs(r.dot(x)) <= 1e-13);
  CHECK(std::abs(fit.residual - r.squaredNorm()) <= 1e-12);
}

TEST_CASE("numerics.line_fit: a large offset does not cost digits") {
  const Vector<double> x = Vector<double>::LinSpaced(11, 1e9, 1e9 + 10), y = Vector<double>::LinSpaced(11, 0, 30);
  CHECK(std::abs(fit_line(x, y).slope - 3) <= 1e-6);  // x carries 1e9 eps of its own, over a range of ten
}

TEST_CASE("numerics.line_fit: equal values are fitted perfectly") {
  const LineFit fit = fit_line(std::vector<double>{1, 2, 3}, std::vector<double>{4, 4, 4});
  CHECK(fit.slope == 0);
  CHECK(fit.intercept == 4);
  CHECK(fit.r_squared == 1);
}

TEST_CASE("numerics.line_fit: what has no line is refused") {
  const std::vector<double> x{1, 2, 3};
  CHECK(message_of<InvalidArgument>([&] {
          fit_line(x, std::vector<double>{1, 2});
        }) == "fit_line: y has shape [2], expected [3] (same length as x)");
  CHECK(message_of<InvalidArgument>([&] {
          fit_line(x, std::vector<double>{1, 2, std::nan("")});
        }) == "fit_line: x and y must be finite");
  CHECK(message_of<InvalidArgument>([&] {
          fit_line(std::vector<double>{2, 2, 2}, x);
        }) == "fit_line: x must hold at least two different values");
  CHECK(message_of<InvalidArgument>([&] { fit_line(std::vector<double>{}, std::vector<double>{}); }) ==
        "fit_line: x must hold at least two different values");
}

}  // namespace
}  // namespace ashlar::numerics
