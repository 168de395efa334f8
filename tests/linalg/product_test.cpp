#include "ashlar/linalg/product.hpp"

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::linalg {
namespace {

using test::message_of;

TEMPLATE_TEST_CASE("linalg.product: every storage order and blocks of matrices agree with long double", "", float,
                   double) {
  using T = TestType;
  Rng rng(1);
  for (const Index m : {1, 5, 70, 600})
    for (const Index n : {1, 17})
      for (const Index k : {0, 1, 33}) {
        const Matrix<T> a = normal_matrix<T>(rng, m, k, 1), b = normal_matrix<T>(rng, k, n, 1);
        const Matrix<T> a_transposed = a.transpose(), b_transposed = b.transpose();
        const Matrix<long double> exact = a.template cast<long double>() * b.template cast<long double>();
        const View<const T, 2> lefts[] = {a, View<const T, 2>(a_transposed).transposed(0, 1)},
                               rights[] = {b, View<const T, 2>(b_transposed).transposed(0, 1)};
        for (const auto& left : lefts)
          for (const auto& right : rights) {
            Matrix<T> padded = Matrix<T>::Constant(m, n + 3, T(7));
            const View<T, 2> c = View<T, 2>(padded).slice(1, 0, n);
            multiply(left, right, c);
            multiply(left, right, c, Sum::added);
            const double unit = std::numeric_limits<T>::epsilon() * static_cast<double>(k + 2) * 8;
            CHECK((padded.leftCols(n).template cast<long double>() - 2 * exact).cwiseAbs().maxCoeff() <= unit * 4);
            CHECK(padded.rightCols(3) == Matrix<T>::Constant(m, 3, T(7)));
          }
      }
}

TEST_CASE("linalg.product: the same bits for any number of threads") {
  Rng rng(2);
  const auto a = normal_matrix<float>(rng, 1000, 65, 1), b = normal_matrix<float>(rng, 65, 70, 1);
  const auto run = [&] {
    Matrix<float> c(1000, 70);
    multiply(a, b, c);
    return c;
  };
  const auto one = test::with_threads(1, run);
  CHECK(one == test::with_threads(2, run));
  CHECK(one == test::with_threads(4, run));
}

TEST_CASE("linalg.product: wrong calls say what is wrong and leave the result alone") {
  const Matrix<double> a = Matrix<double>::Ones(2, 3), b = Matrix<double>::Ones(3, 4);
  Matrix<double> c = Matrix<double>::Constant(2, 4, 5), square = Matrix<double>::Ones(4, 4);
  const auto call = [](auto&& f) { return message_of<InvalidArgument>(f); };
  CHECK(call([&] { multiply(a, a, c); }) ==
        "multiply: b has shape [2,3], expected [3,3] (as many rows as a has columns)");
  CHECK(call([&] { multiply(b, square, c); }) ==
        "multiply: c has shape [2,4], expected [3,4] (rows of a, columns of b)");
  CHECK(call([&] { multiply(square, square, square); }) == "multiply: c overlaps a factor");
  CHECK(call([&] {
          multiply(a, b, View<double, 2>(c.data(), {2, 4}, {1, 2}));
        }) == "multiply: c must have contiguous rows");
  const View<const double, 2> gaps(square.data(), {2, 2}, {8, 2});
  Matrix<double> small(2, 2);
  CHECK(call([&] { multiply(gaps, small, Matrix<double>(small)); }).find("contiguous") != std::string::npos);
  CHECK(c == Matrix<double>::Constant(2, 4, 5));
}

}  // namespace
}  // namespace ashlar::linalg
