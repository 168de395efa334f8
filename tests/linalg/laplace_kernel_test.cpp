#include "ashlar/linalg/laplace_kernel.hpp"

#include <cmath>
#include <limits>

#include "ashlar/core/random.hpp"
#include "ashlar/linalg/gram.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::linalg {
namespace {

using test::message_of;

TEST_CASE("linalg.laplace_kernel: it is the exponential of the distance") {
  Matrix<double> x(2, 2);
  x << 1, 2, 4, 6;  // 5 apart
  const Matrix<double> k = gram(LaplaceKernel(0.3), x);
  CHECK(std::abs(k(0, 1) - std::exp(-1.5)) <= 1e-16);
  CHECK(k(0, 0) == 1);
  CHECK(std::abs(gram(LaplaceKernel(0.3), Matrix<float>(x.cast<float>()))(1, 0) - std::exp(-1.5f)) <= 1e-7f);
}

TEST_CASE("linalg.laplace_kernel: points that are the same are exactly that wherever they lie") {
  Rng rng(1);
  Matrix<double> x = normal_matrix<double>(rng, 20, 3);
  x.array() += 1000;
  x.row(17) = x.row(4);
  const Matrix<double> k = gram(LaplaceKernel(1), x);
  CHECK(k(17, 4) == 1);
  CHECK(k.row(17) == k.row(4));
}

TEST_CASE("linalg.laplace_kernel: a rate that is not positive is refused") {
  CHECK(message_of<InvalidArgument>([] { LaplaceKernel(0); }) ==
        "LaplaceKernel: gamma must be positive and finite, got 0");
  CHECK(message_of<InvalidArgument>([] { return LaplaceKernel(std::numeric_limits<double>::infinity()); }) ==
        "LaplaceKernel: gamma must be positive and finite, got inf");
}

}  // namespace
}  // namespace ashlar::linalg
