#include "ashlar/functional/elementwise.hpp"

#include <cmath>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::functional {
namespace {

/// The element of x that lies at a place of the broadcast shape.
double at(const Tensor<double>& x, const Shape& whole, Index place) {
  Index offset = 0, stride = 1;
  for (int axis = 1; axis <= whole.rank(); ++axis) {
    const Index n = whole[whole.rank() - axis], i = place % n;
    place /= n;
    if (axis > x.rank()) continue;
    const Index own = x.extent(x.rank() - axis);
    if (own != 1) offset += i * stride;
    stride *= own;
  }
  return x.data()[offset];
}

const Shape shapes[] = {Shape{4, 3, 17}, Shape{3, 17},       Shape{17},         Shape{4, 1, 1},
                        Shape{4, 3, 1},  Shape{4, 1, 17},    Shape{1},          Shape{1, 3, 1},
                        Shape{1, 1, 17}, Shape{2, 4, 3, 17}, Shape{5, 1, 3, 1}, Shape(std::array<Index, 0>{})};

TEST_CASE("functional.elementwise: broadcasting agrees with index arithmetic for every pair of shapes") {
  Rng rng(1);
  for (const Shape& left : shapes)
    for (const Shape& right : shapes) {
      if (left.rank() == 4 && right.rank() == 4 && left[0] != right[0]) continue;  // 2 against 5
      const auto a = normal_tensor<double>(rng, left), b = normal_tensor<double>(rng, right);
      Tensor<double> out(broadcast_shape("test", left, right));
      broadcast(
          out, [](const auto& p, const auto& q) { return p - q; }, a, b);
      bool all = true;
      for (Index i = 0; i < out.size(); ++i)
        all = all && out.data()[i] == at(a, out.shape(), i) - at(b, out.shape(), i);
      INFO(left.rank() << " and " << right.rank() << " axes, " << left.size() << " and " << right.size()
                       << " elements");
      CHECK(all);
    }
}

TEST_CASE("functional.elementwise: sum_to adds each element where broadcasting would have put it") {
  Rng rng(2);
  const Shape whole{4, 3, 17};
  const auto x = normal_tensor<double>(rng, whole);
  for (const Shape& shape : shapes) {
    if (shape.rank() == 4) continue;
    // With ones at one place of `out`, broadcasting marks the elements that sum_to adds there.
    Tensor<double> out(shape);
    sum_to(out, x);
    for (Index place = 0; place < out.size(); ++place) {
      Tensor<double> mark(shape);
      mark.data()[place] = 1;
      double sum = 0;
      for (Index i = 0; i < x.size(); ++i) sum += at(mark, whole, i) * x.data()[i];
      CHECK(std::abs(sum - out.data()[place]) <= 1e-13);
    }
  }
}

TEST_CASE("functional.elementwise: an element does not depend on its place in a vector or on threads") {
  Rng rng(3);
  const auto x = normal_tensor<float>(rng, {50001});
  const auto f = [](const auto& v) { return simd::exp(v); };
  const auto run = [&] {
    Tensor<float> y(x.shape());
    map(y, f, x);
    return y;
  };
  const auto y = test::with_threads(1, run);
  CHECK(test::identical(y, test::with_threads(2, run)));
  CHECK(test::identical(y, test::with_threads(4, run)));
  for (const Index i : {0, 7, 16383, 16384, 50000}) {
    Tensor<float> one(Shape{1}), result(Shape{1});
    *one.data() = x.data()[i];
    map(result, f, one);
    CHECK(*result.data() == y.data()[i]);
  }
}

TEST_CASE("functional.elementwise: an output may be its own input") {
  Rng rng(4);
  const auto x = normal_tensor<double>(rng, {5, 9}), row = normal_tensor<double>(rng, {9});
  Tensor<double> apart(x.shape()), in_place = x;
  const auto product = [](const auto& p, const auto& q) { return p * q; };
  broadcast(apart, product, x, row);
  broadcast(in_place, product, in_place, row);
  CHECK(test::identical(apart, in_place));
}

TEST_CASE("functional.elementwise: shapes that do not broadcast are named") {
  CHECK(test::message_of<InvalidArgument>([] {
          broadcast_shape("add", Shape{2, 3}, Shape{4, 3});
        }) == "add: shapes [2,3] and [4,3] do not broadcast: an axis has 2 and 4 elements");
  CHECK(broadcast_shape("add", Shape{0, 3}, Shape{1, 3}) == Shape{0, 3});
}

}  // namespace
}  // namespace ashlar::functional
