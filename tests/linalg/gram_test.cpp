#include "ashlar/linalg/gram.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"
#include "support/threads.hpp"

namespace ashlar::linalg {
namespace {

using test::message_of;

/// The Gram matrix by its definition, in long double.
template <class T>
Eigen::Matrix<long double, -1, -1> rbf_by_definition(const Matrix<T>& x, const Matrix<T>& y, double gamma,
                                                     double offset) {
  Eigen::Matrix<long double, -1, -1> k(x.rows(), y.rows());
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < y.rows(); ++j)
      k(i, j) = offset + std::exp(-gamma * (x.row(i) - y.row(j)).template cast<long double>().squaredNorm());
  return k;
}

/// |x|^2 + |y|^2 - 2 x y is off by d + 4 roundings of (|x| + |y|)^2; the exponential and the offset add a few.
template <class T>
double rbf_error_bound(const Matrix<T>& x, const Matrix<T>& y, double gamma, double offset) {
  const Vector<T> mean = y.colwise().mean();
  const double reach = static_cast<double>((x.rowwise() - mean.transpose()).rowwise().norm().maxCoeff() +
                                           (y.rowwise() - mean.transpose()).rowwise().norm().maxCoeff());
  return std::numeric_limits<T>::epsilon() *
         ((static_cast<double>(x.cols()) + 6) * gamma * reach * reach + 4 + 2 * offset);
}

/// A kernel of two points: the inner product squared.
struct Quadratic {
  double operator()(View<const double, 1> x, View<const double, 1> y) const {
    const double product = vector(x).dot(vector(y));
    return product * product;
  }
};

/// A radial kernel of a user's own: the rational quadratic.
struct RationalQuadratic {
  template <class V>
  V of_squared_distance(const V& d2) const {
    return V(1) / (V(1) + d2);
  }
};

static_assert(Kernel<RbfKernel, float> && Kernel<RbfKernel, double>);
static_assert(Kernel<Quadratic, double> && !RadialKernel<Quadratic, double>);
static_assert(Kernel<PrecomputedKernel<double>, double>);
static_assert(!Kernel<int, double>);

TEMPLATE_TEST_CASE("linalg.gram: RBF blocks are the definition for all shapes and strides", "", float, double) {
  using T = TestType;
  Rng rng(1);
  for (const Index d : {1, 3, 67})
    for (const Index m : {1, 64, 131})
      for (const Index n : {1, 16, 33, 530}) {
        INFO("d = " << d << ", m = " << m << ", n = " << n);
        const Matrix<T> x = normal_matrix<T>(rng, m, d), y = normal_matrix<T>(rng, n, d);
        const double gamma = 0.7 / static_cast<double>(d);
        const auto exact = rbf_by_definition(x, y, gamma, 1);
        const double bound = rbf_error_bound(x, y, gamma, 1);
        const Matrix<T> k = gram(RbfKernel(gamma, 1), x, y);
        CHECK((k.template cast<long double>() - exact).cwiseAbs().maxCoeff() <= bound);
        // column-major points and a column-major target with gaps
        const Eigen::Matrix<T, -1, -1> x_columns = x;
        Eigen::Matrix<T, -1, -1> target = Eigen::Matrix<T, -1, -1>::Constant(m + 2, n + 1, T(-7));
        Workspace workspace;
        KernelTiles<T, RbfKernel>(RbfKernel(gamma, 1), y).gram(x_columns, target.block(1, 1, m, n), workspace);
        CHECK(target.block(1, 1, m, n) == k);
        CHECK((target.row(0).array() == T(-7)).all());
        CHECK((target.row(m + 1).array() == T(-7)).all());
        CHECK((target.col(0).array() == T(-7)).all());
      }
}

TEMPLATE_TEST_CASE("linalg.gram: the symmetric form is exactly symmetric with an exact diagonal", "", float, double) {
  using T = TestType;
  Rng rng(2);
  for (const Index n : {1, 63, 256, 257, 400}) {
    INFO("n = " << n);
    const Matrix<T> x = normal_matrix<T>(rng, n, 5);
    const Matrix<T> k = gram(RbfKernel(0.3, 0.5), x);
    CHECK(k == k.transpose());
    CHECK((k.diagonal().array() == T(1.5)).all());
    CHECK((k.template cast<long double>() - rbf_by_definition(x, x, 0.3, 0.5)).cwiseAbs().maxCoeff() <=
          rbf_error_bound(x, x, 0.3, 0.5));
  }
}

TEST_CASE("linalg.gram: the symmetric form fills a block of a larger matrix and nothing else") {
  Rng rng(9);
  const Matrix<double> x = normal_matrix<double>(rng, 131, 3);
  Matrix<double> wide = Matrix<double>::Constant(133, 140, -7);
  const KernelTiles<double, RbfKernel> tiles(RbfKernel(0.3), x);
  Workspace workspace;
  tiles.symmetric_gram(x, wide.block(1, 4, 131, 131), workspace);
  CHECK(wide.block(1, 4, 131, 131) == gram(RbfKernel(0.3), x));
  CHECK((wide.array() == -7).count() == 133 * 140 - 131 * 131);
  test::with_threads(1, [&] {
    CHECK(test::allocations([&] { tiles.symmetric_gram(x, wide.block(1, 4, 131, 131), workspace); }) == 0);
  });
  const Matrix<double> k = gram(Quadratic{}, x);
  CHECK(k == k.transpose());
  CHECK((k - (x * x.transpose()).cwiseAbs2()).cwiseAbs().maxCoeff() <= 1e-12 * k.maxCoeff());
  CHECK(message_of<InvalidArgument>([&] { tiles.symmetric_gram(x, Eigen::MatrixXd(131, 131), workspace); }) ==
        "KernelTiles::symmetric_gram: the rows of out have gaps");
}

TEST_CASE("linalg.gram: points far from the origin lose no digits") {
  Rng rng(3);
  const Matrix<double> x = normal_matrix<double>(rng, 40, 4);
  const Matrix<double> moved = x.array() + 1024;  // differences of these are exact up to 2^-42
  const Matrix<double> k = gram(RbfKernel(0.5), x, x), far = gram(RbfKernel(0.5), moved, moved);
  CHECK((k - far).cwiseAbs().maxCoeff() <= 1e-10);
}

TEMPLATE_TEST_CASE("linalg.gram: products by tiles equal products with the stored matrix", "", float, double) {
  using T = TestType;
  Rng rng(4);
  for (const Index m : {1, 66})
    for (const Index n : {1, 31, 512, 1100})
      for (const Index vectors : {1, 2, 5}) {
        INFO("m = " << m << ", n = " << n << ", vectors = " << vectors);
        const Matrix<T> x = normal_matrix<T>(rng, m, 6), y = normal_matrix<T>(rng, n, 6);
        const Matrix<T> c = normal_matrix<T>(rng, n, vectors);
        const KernelTiles<T, RbfKernel> tiles(RbfKernel(0.2, 1), y);
        const Matrix<T> exact = tiles.gram(x) * c, product = tiles.multiply(x, c);
        const double bound = static_cast<double>(n) * std::numeric_limits<T>::epsilon() * 2 *
                             static_cast<double>(c.cwiseAbs().colwise().sum().maxCoeff());
        CHECK(static_cast<double>((exact - product).cwiseAbs().maxCoeff()) <= bound);
        CHECK(static_cast<double>(
                  (row_sums(RbfKernel(0.2, 1), x, y) - tiles.gram(x).rowwise().sum()).cwiseAbs().maxCoeff()) <=
              static_cast<double>(n * n) * std::numeric_limits<T>::epsilon() * 2);
      }
}

TEST_CASE("linalg.gram: any function of two points and any profile of the distance is a kernel") {
  Rng rng(5);
  const Matrix<double> x = normal_matrix<double>(rng, 67, 3), y = normal_matrix<double>(rng, 520, 3);
  const Matrix<double> k = gram(Quadratic{}, x, y);
  CHECK((k - (x * y.transpose()).cwiseAbs2()).cwiseAbs().maxCoeff() <= 1e-12 * k.maxCoeff());
  const Vector<double> c = normal_matrix<double>(rng, 520, 1).col(0);
  CHECK((kernel_product(Quadratic{}, x, y, c) - k * c).cwiseAbs().maxCoeff() <= 1e-11 * k.norm());
  const Matrix<double> r = gram(RationalQuadratic{}, x, y);
  double worst = 0;
  for (Index i = 0; i < 67; ++i)
    for (Index j = 0; j < 520; ++j)
      worst = std::max(worst, std::abs(r(i, j) - 1 / (1 + (x.row(i) - y.row(j)).squaredNorm())));
  CHECK(worst <= 1e-13);
}

TEST_CASE("linalg.gram: a precomputed matrix is a kernel of row numbers") {
  Rng rng(6);
  const Matrix<double> x = normal_matrix<double>(rng, 30, 2), k = gram(RbfKernel(1), x);
  const PrecomputedKernel<double> kernel{View<const double, 2>(k)};
  const auto rows = kernel.indices(0, 10), columns = kernel.indices(5, 30);
  CHECK(gram(kernel, rows, columns) == k.block(0, 5, 10, 25));
  CHECK(message_of<InvalidArgument>([&] { gram(kernel, rows, kernel.indices(29, 31)); }) ==
        "PrecomputedKernel: every point must be an index below 30, got 30");
  CHECK(message_of<InvalidArgument>([&] { PrecomputedKernel<double>(View<const double, 2>(x)); }) ==
        "PrecomputedKernel: gram has shape [30,2], expected [30,30] (a square)");
}

TEST_CASE("linalg.gram: bits do not depend on the number of threads and grown workspaces are enough") {
  Rng rng(7);
  const Matrix<double> x = normal_matrix<double>(rng, 333, 7), y = normal_matrix<double>(rng, 700, 7);
  const Matrix<double> c = normal_matrix<double>(rng, 700, 3);
  const KernelTiles<double, RbfKernel> tiles(RbfKernel(0.2), y);
  const auto run = [&](int threads) {
    return test::with_threads(threads, [&] {
      return std::tuple(tiles.gram(x), tiles.multiply(x, c), gram(RbfKernel(0.2), y), median_distance(y));
    });
  };
  CHECK(run(1) == run(2));
  CHECK(run(1) == run(7));
  test::with_threads(1, [&] {
    Matrix<double> k(333, 700), product(333, 3);
    Workspace workspace;
    tiles.multiply(x, c, product, workspace);
    CHECK(test::allocations([&] {
            tiles.multiply(x, c, product, workspace);
            tiles.gram(x, k, workspace);
          }) == 0);
  });
}

TEMPLATE_TEST_CASE("linalg.gram: the median distance is that of the sorted list", "", float, double) {
  using T = TestType;
  Rng rng(8);
  for (const Index n : {2, 3, 4, 50, 211}) {
    INFO("n = " << n);
    Matrix<T> x = normal_matrix<T>(rng, n, 3);
    if (n > 10) x.row(7) = x.row(3);  // a distance of zero, which does not count
    std::vector<double> distances;
    for (Index i = 0; i < n; ++i)
      for (Index j = i + 1; j < n; ++j) {
        const double d = (x.row(i) - x.row(j)).template cast<double>().norm();
        if (d > 0) distances.push_back(d);
      }
    std::sort(distances.begin(), distances.end());
    const std::size_t half = distances.size() / 2;
    const double median = distances.size() % 2 ? distances[half] : (distances[half - 1] + distances[half]) / 2;
    const double unit = 8 * std::numeric_limits<T>::epsilon();
    CHECK(std::abs(median_distance(x) - median) <= unit * median);
    if (distances.size() % 2) CHECK(std::abs(median_distance(x, 2) - median * median) <= unit * median * median);
    CHECK(std::abs(median_heuristic(x) * median - 1) <= unit);
  }
}

TEST_CASE("linalg.gram: the bandwidth and the Gram matrix of the density ratio fixture") {
  const auto x_p = test::fixture("density_ratio/x_p"), x_q = test::fixture("density_ratio/x_q");
  const auto params = test::fixture("density_ratio/params"), k = test::fixture("density_ratio/gram_pq");
  Matrix<double> x(x_p.extent(0) + x_q.extent(0), x_p.extent(1));
  x << x_p.matrix(), x_q.matrix();
  CHECK(std::abs(median_heuristic(x) / params.data()[0] - 1) <= 1e-13);
  CHECK((gram(RbfKernel(params.data()[0], 1), x) - k.matrix()).cwiseAbs().maxCoeff() <= 1e-14);
}

TEST_CASE("linalg.gram: bad arguments are refused in words") {
  CHECK(message_of<InvalidArgument>([] { RbfKernel(0); }) == "RbfKernel: gamma must be positive and finite, got 0");
  CHECK(message_of<InvalidArgument>([] { RbfKernel(1, -1); }) ==
        "RbfKernel: offset must be at least 0 and finite, got -1");
  const Matrix<double> x = Matrix<double>::Ones(4, 2), y = Matrix<double>::Ones(4, 3);
  CHECK(message_of<InvalidArgument>([&] { gram(RbfKernel(1), x, y); }) ==
        "KernelTiles::gram: x has shape [4,2], expected [4,3] (same dimension as the points packed)");
  CHECK(message_of<InvalidArgument>([&] { kernel_product(RbfKernel(1), x, x, Vector<double>::Ones(3).eval()); }) ==
        "KernelTiles::multiply: coefficients has shape [3,1], expected [4,1] (one row a point packed)");
  CHECK(message_of<InvalidArgument>([&] { median_distance(x, 3); }) == "median_distance: power must be 1 or 2, got 3");
  CHECK(message_of<NumericalError>([&] { median_distance(x); }) ==
        "median_distance: no two points differ, so there is no positive distance");
  CHECK(message_of<InvalidArgument>([&] { median_distance((x * NAN).eval()); }) ==
        "median_distance: x has an entry that is not finite");
}

}  // namespace
}  // namespace ashlar::linalg
