#include "ashlar/linalg/softmax.hpp"

#include <cmath>
#include <limits>

#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::linalg {
namespace {

using test::message_of;
constexpr double infinity = std::numeric_limits<double>::infinity();

TEMPLATE_TEST_CASE("linalg.softmax: all three forms agree with the definition in long double", "", float, double) {
  using T = TestType;
  Rng rng(1);
  for (const Index columns : {1, 3, 8, 16, 17, 100}) {
    INFO("columns = " << columns);
    const Matrix<T> x = normal_matrix<T>(rng, 70, columns, 10);
    const Matrix<T> p = row_softmax(x), log_p = row_log_softmax(x);
    const Vector<T> total = row_log_sum_exp(x);
    // Rounding of x - max moves an exponential by |x - max| units; sums and the exponential add a few more.
    const double unit = std::numeric_limits<T>::epsilon();
    for (Index i = 0; i < x.rows(); ++i) {
      long double sum = 0;
      const long double largest = x.row(i).maxCoeff();
      for (Index j = 0; j < columns; ++j) sum += std::exp(x(i, j) - largest);
      const long double exact_total = largest + std::log(sum);
      const double scale = 1 + static_cast<double>(std::abs(largest));
      CHECK(std::abs(static_cast<double>(total[i] - exact_total)) <= 8 * unit * scale);
      for (Index j = 0; j < columns; ++j) {
        const long double exact = std::exp(x(i, j) - exact_total);
        const double shift = static_cast<double>(largest - x(i, j));
        CHECK(std::abs(static_cast<double>(p(i, j) - exact)) <=
              (8 + shift + static_cast<double>(columns) / 8) * unit * static_cast<double>(exact) + 1e-38);
        CHECK(std::abs(static_cast<double>(log_p(i, j) - (x(i, j) - exact_total))) <= 8 * unit * (scale + shift));
      }
    }
  }
}

TEST_CASE("linalg.softmax: huge and tiny scores neither overflow nor vanish") {
  Matrix<double> x(2, 3);
  x << 1e300, 1e300, -1e300, -1e5, -1e5, -1e5;
  const Matrix<double> p = row_softmax(x);
  CHECK(p(0, 0) == 0.5);
  CHECK(p(0, 2) == 0);
  CHECK(std::abs(p(1, 1) - 1.0 / 3) < 1e-15);
  CHECK(std::abs(row_log_sum_exp(x)[1] - (-1e5 + std::log(3.0))) < 1e-10);
}

TEST_CASE("linalg.softmax: masked entries get nothing and a row masked throughout is zero") {
  Matrix<double> x(2, 4);
  x << 0, -infinity, 0, -infinity, -infinity, -infinity, -infinity, -infinity;
  const Matrix<double> p = row_softmax(x);
  CHECK(p.row(0) == Eigen::RowVector4d(0.5, 0, 0.5, 0));
  CHECK(p.row(1).isZero(0));
  CHECK(row_log_sum_exp(x)[1] == -infinity);
  CHECK(row_log_softmax(x)(1, 2) == -infinity);
  CHECK(row_log_softmax(x)(0, 1) == -infinity);
  CHECK(row_softmax(Matrix<double>(3, 0)).size() == 0);
}

TEST_CASE("linalg.softmax: a NaN makes its whole row NaN wherever it stands") {
  for (Index at = 0; at < 20; ++at) {
    Matrix<double> x = Matrix<double>::Zero(2, 20);
    x(0, at) = NAN;
    const Matrix<double> p = row_softmax(x);
    CHECK(p.row(0).array().isNaN().all());
    CHECK(p.row(1).allFinite());
    x.row(0).setConstant(-infinity);
    x(0, at) = NAN;
    CHECK(row_softmax(x).row(0).array().isNaN().all());
    CHECK(std::isnan(row_log_sum_exp(x)[0]));
  }
}

TEST_CASE("linalg.softmax: any strides and in place and any number of threads give the same bits") {
  Rng rng(2);
  const Matrix<double> x = normal_matrix<double>(rng, 200, 37);
  const Matrix<double> p = row_softmax(x);
  CHECK(row_softmax(Eigen::MatrixXd(x)) == p);
  Matrix<double> wide(200, 50);
  wide.middleCols(5, 37) = x;
  row_softmax(wide.middleCols(5, 37), wide.middleCols(5, 37));
  CHECK(wide.middleCols(5, 37) == p);
  CHECK(test::with_threads(3, [&] { return row_softmax(x); }) == test::with_threads(1, [&] { return row_softmax(x); }));
  Matrix<double> out(200, 37);
  CHECK(test::with_threads(1, [&] { return test::allocations([&] { row_softmax(x, out); }); }) == 0);
}

TEST_CASE("linalg.softmax: shapes are checked") {
  Matrix<double> x = Matrix<double>::Zero(4, 3), out(3, 3);
  CHECK(message_of<InvalidArgument>([&] { row_softmax(x, out); }) ==
        "row_softmax: out has shape [3,3], expected [4,3] (same shape as x)");
  CHECK(message_of<InvalidArgument>([&] { row_softmax(x.topRows(2), x.middleRows(1, 2)); }) ==
        "row_softmax: out overlaps x without being x");
}

}  // namespace
}  // namespace ashlar::linalg
