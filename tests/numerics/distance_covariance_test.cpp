#include "ashlar/numerics/distance_covariance.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::numerics {
namespace {

using test::fixture;
using test::message_of;

TEST_CASE("numerics.distance_covariance: values are those of the oracle with and without ties") {
  for (const std::string folder : {"hellinger_sdr/", "hellinger_sdr/ties/"}) {
    const auto x = fixture(folder + "x"), y = fixture(folder + "y"), b = fixture(folder + "betas");
    const auto expected = fixture(folder + "dcov");
    for (Index i = 0; i < b.extent(0); ++i) {
      const Vector<double> z = x.matrix() * b.matrix().row(i).transpose();
      CHECK(std::abs(distance_covariance(z, y) - expected.data()[i]) <= 1e-10);
    }
  }
}

TEST_CASE("numerics.distance_covariance: the fast form is the definition for odd sizes and ties and offsets") {
  for (const std::uint64_t seed : {1u, 2u})
    for (const Index n : {2, 3, 17, 130}) {
      INFO("seed = " << seed << ", n = " << n);
      Rng rng(seed);
      const Vector<double> x = normal_matrix<double>(rng, n, 1).col(0);
      Vector<double> y = x.array().square() + 1000, tied(n);
      for (double& value : tied) value = static_cast<double>(rng.below(3));
      // The square carries rounding of sums of size 1 (here the spread of x and y), about n eps.
      const auto close = [](double a, double b) { return std::abs(a * a - b * b) <= 1e-13; };
      CHECK(close(distance_covariance(x, y), reference::distance_covariance(x, y)));
      CHECK(close(distance_covariance(x, tied), reference::distance_covariance(x, tied)));
      CHECK(close(distance_covariance(tied, x), reference::distance_covariance(tied, x)));
      CHECK(close(distance_covariance(tied, tied), reference::distance_covariance(tied, tied)));
    }
}

TEST_CASE("numerics.distance_covariance: zero for a constant and nothing allocated against a fixed sample") {
  Rng rng(3);
  const Vector<double> x = normal_matrix<double>(rng, 200, 1).col(0), y = x.array().sin();
  CHECK(distance_covariance(Vector<double>::Constant(200, 4.0).eval(), y) <= 1e-8);
  DistanceCovariance against(y);
  const double first = against(x);
  CHECK(first == distance_covariance(x, y));
  CHECK(test::allocations([&] { against(x); }) == 0);
}

TEST_CASE("numerics.distance_covariance: bad input is named") {
  const std::vector<double> two{1, 2}, three{1, 2, 3}, bad{1, NAN};
  const auto with = [](const std::vector<double>& x, const std::vector<double>& y) {
    return message_of<InvalidArgument>([&] { distance_covariance(x, y); });
  };
  CHECK(with(three, two) == "DistanceCovariance: x has shape [3], expected [2] (same as y)");
  CHECK(with(bad, two) == "DistanceCovariance: x has an entry that is not finite");
  CHECK(with(two, bad) == "DistanceCovariance: y has an entry that is not finite");
  CHECK(with({1}, {1}) == "DistanceCovariance: the number of points must be at least 2, got 1");
}

}  // namespace
}  // namespace ashlar::numerics
