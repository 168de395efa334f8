#include "ashlar/core/tensor.hpp"

#include <cstdint>
#include <utility>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar {
namespace {

using test::message_of;

TEST_CASE("core.tensor: shapes are checked where they enter") {
  CHECK(message_of<InvalidArgument>([] { Tensor<double>({2, -1}); }) ==
        "Shape: extents must not be negative, got [2,-1]");
  CHECK(message_of<InvalidArgument>([] { Tensor<double>({Index{1} << 40, Index{1} << 40}); }) ==
        "Shape: [1099511627776,1099511627776] has more elements than an index can count");
  Tensor<double> t({2, 3, 4});
  CHECK(message_of<InvalidArgument>([&] { View<double, 2>{t}; }) ==
        "Tensor: shape [2,3,4] has rank 3, expected rank 2");
  CHECK(message_of<InvalidArgument>([&] { t.reshape({5, 5}); }) == "Tensor::reshape: cannot view [2,3,4] as [5,5]");
  CHECK(message_of<InvalidArgument>([&] { t.slice<3>(1, 2, 4); }) ==
        "Tensor::slice: axis 1 of [2,3,4] has no range 2 to 4");
}

TEST_CASE("core.tensor: copies are deep and moves leave an empty tensor") {
  Tensor<int> a({2, 2}, 7);
  Tensor<int> b = a;
  b.data()[0] = 1;
  CHECK(a.data()[0] == 7);
  Tensor<int> c = std::move(a);
  CHECK(c.data()[3] == 7);
  CHECK(a.size() == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(c.data()) % 64 == 0);
  CHECK(Tensor<int>({0, 5}).view<2>().empty());
}

TEST_CASE("core.tensor: Eigen maps address the memory of tensors and views") {
  Tensor<double> t({3, 4});
  for (int i = 0; i < 12; ++i) t.data()[i] = i;
  CHECK(t.matrix()(2, 1) == 9);
  t.matrix()(2, 1) = -1;
  CHECK(t.data()[9] == -1);
  CHECK_THROWS_AS(Tensor<double>({2, 2, 2}).matrix(), InvalidArgument);

  const View<double, 2> v = t;
  CHECK(matrix(v) == t.matrix());
  CHECK(matrix(v.transposed(0, 1)) == t.matrix().transpose());
  CHECK(matrix(v.slice(1, 1, 3)) == t.matrix().middleCols(1, 2));
  CHECK(vector(v.transposed(0, 1)[2]) == t.matrix().col(2));
  const Matrix<double> product = matrix(v) * matrix(v).transpose();
  CHECK(product(0, 0) == 0 + 1 + 4 + 9);
}

TEST_CASE("core.tensor: reshaping keeps the elements in order") {
  Tensor<int> t({2, 6});
  for (int i = 0; i < 12; ++i) t.data()[i] = i;
  CHECK(t.reshape({3, 2, 2}).view<3>()(2, 1, 0) == 10);
  CHECK(t.shape() == Shape{3, 2, 2});
  CHECK(Shape{}.rank() == 0);
  CHECK(message_of<InvalidArgument>([] { Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}); }) == "Shape: rank must be at most 8, got 9");
}

}  // namespace
}  // namespace ashlar
