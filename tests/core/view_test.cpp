#include "ashlar/core/view.hpp"

#include <array>
#include <span>
#include <vector>

#include "ashlar/core/tensor.hpp"
#include "support/catch.hpp"

namespace ashlar {
namespace {

// The shape of every entry point: the first tensor argument decides the scalar, all others convert.
template <class X>
double weighted_sum(const X& x, In<X, 1> weights) {
  const In<X, 2> rows = x;
  double sum = 0;
  for (Index i = 0; i < rows.extent(0); ++i)
    for (Index j = 0; j < rows.extent(1); ++j) sum += static_cast<double>(rows(i, j) * weights[j]);
  return sum;
}

TEST_CASE("core.view: anything with memory converts without a template argument spelled") {
  Matrix<double> x(2, 3);
  x << 1, 2, 3, 4, 5, 6;
  const std::vector<double> w{1, 10, 100};
  CHECK(weighted_sum(x, w) == 975);
  CHECK(weighted_sum(x, std::vector<double>{1, 10, 100}) == 975);
  CHECK(weighted_sum(x, std::array<double, 3>{1, 10, 100}) == 975);
  CHECK(weighted_sum(x, std::span<const double>(w)) == 975);
  CHECK(weighted_sum(x, Eigen::Vector3d(1, 10, 100)) == 975);
  CHECK(weighted_sum(Eigen::MatrixXd(x), w) == 975);                     // column-major
  CHECK(weighted_sum(x.topRows(1), w) == 321);                           // a block
  CHECK(weighted_sum(x.leftCols(2), w) == 75);                           // a block with gaps
  CHECK(weighted_sum(x.transpose(), Eigen::Vector2d(1, 10)) == 156);     // a transpose
  CHECK(weighted_sum(Eigen::Map<Matrix<double>>(x.data(), 3, 2), Eigen::Vector2d(1, 10)) == 129);
  CHECK(weighted_sum((2 * x).eval(), w) == 1950);
  Tensor<double> t({2, 3}, 1.0);
  CHECK(weighted_sum(t, w) == 222);
  CHECK(weighted_sum(Tensor<float>({2, 3}, 1.0f), std::vector<float>{1, 10, 100}) == 222);
}

TEST_CASE("core.view: what must not convert does not") {
  using Doubles = View<double, 2>;
  using ConstDoubles = View<const double, 2>;
  STATIC_REQUIRE(std::is_convertible_v<Doubles, ConstDoubles>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<ConstDoubles, Doubles>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<const Eigen::MatrixXd&, Doubles>);
  STATIC_REQUIRE(std::is_convertible_v<const Eigen::MatrixXd&, ConstDoubles>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<const std::vector<double>&, View<double, 1>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<Eigen::MatrixXf&, ConstDoubles>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<Eigen::MatrixXd&, View<const double, 1>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<Eigen::MatrixXd&, View<const double, 3>>);
  // Host and device memory do not mix.
  STATIC_REQUIRE_FALSE(std::is_convertible_v<Doubles, View<const double, 2, device>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<View<double, 2, device>, ConstDoubles>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<Eigen::MatrixXd&, View<const double, 2, device>>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<View<float, 4>>);
}

TEST_CASE("core.view: slicing, fixing an axis and transposing address the same memory") {
  Tensor<int> t({2, 3, 4});
  for (int i = 0; i < 24; ++i) t.data()[i] = i;
  const View<const int, 3> v = t;
  CHECK(v(1, 2, 3) == 23);
  CHECK(v[1](2, 3) == 23);
  CHECK(v[1][2][3] == 23);
  CHECK(v.slice(1, 1, 3)(0, 0, 0) == 4);
  CHECK(v.slice(1, 1, 3).extent(1) == 2);
  CHECK(v.transposed(0, 2)(3, 2, 1) == 23);
  CHECK(v.reversed(1)(1, 0, 3) == 23);
  CHECK(v.reversed(1).reversed(1)(1, 2, 3) == 23);
  CHECK(overlaps(v.reversed(0).slice(0, 0, 1), v.slice(0, 1, 2)));
  CHECK_FALSE(overlaps(v.reversed(0).slice(0, 0, 1), v.slice(0, 0, 1)));
  CHECK(v.slice(0, 1, 1).reversed(0).empty());
  CHECK(v.contiguous());
  CHECK_FALSE(v.transposed(0, 2).contiguous());
  CHECK_FALSE(v.slice(2, 0, 2).contiguous());
  CHECK(v.slice(0, 2, 2).empty());
  CHECK(t.slice<3>(2, 1, 2)(0, 0, 0) == 1);
}

TEST_CASE("core.view: overlap is seen through strides and is empty for empty views") {
  Matrix<float> x = Matrix<float>::Zero(6, 4);
  const auto rows = [&](Index begin, Index count) { return View<float, 2>(x.middleRows(begin, count)); };
  CHECK(overlaps(rows(0, 3), rows(2, 2)));
  CHECK_FALSE(overlaps(rows(0, 3), rows(3, 3)));
  CHECK_FALSE(overlaps(rows(0, 0), rows(0, 3)));
  CHECK(same_memory(rows(1, 2), rows(1, 2)));
  CHECK_FALSE(same_memory(rows(1, 2), rows(1, 3)));
}

}  // namespace
}  // namespace ashlar
