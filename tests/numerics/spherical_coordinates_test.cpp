#include "ashlar/numerics/spherical_coordinates.hpp"

#include <cmath>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::numerics {
namespace {

using test::message_of;

TEST_CASE("numerics.spherical_coordinates: angles are those of the oracle") {
  const auto b = test::fixture("hellinger_sdr/betas"), angles = test::fixture("hellinger_sdr/angles");
  for (Index i = 0; i < b.extent(0); ++i) {
    CHECK((to_spherical(b.view<2>()[i]) - angles.matrix().row(i).transpose()).cwiseAbs().maxCoeff() <= 1e-12);
    CHECK((from_spherical(angles.view<2>()[i]) - b.matrix().row(i).transpose()).cwiseAbs().maxCoeff() <= 1e-12);
  }
}

TEST_CASE("numerics.spherical_coordinates: there and back is the identity and every angle is in its range") {
  Rng rng(1);
  for (const Index p : {2, 3, 10}) {
    std::vector<Vector<double>> points;
    for (Index k = 0; k < p; ++k) {
      points.push_back(Vector<double>::Unit(p, k));
      points.push_back(-Vector<double>::Unit(p, k));
    }
    for (int k = 0; k < 20; ++k) points.push_back(normal_matrix<double>(rng, p, 1).col(0).normalized());
    for (const Vector<double>& s : points) {
      const Vector<double> angles = to_spherical(s);
      CHECK((from_spherical(angles) - s).cwiseAbs().maxCoeff() <= 1e-12);
      for (Index i = 0; i + 1 < p; ++i) CHECK((angles[i] >= 0 && angles[i] <= (i + 2 < p ? M_PI : 2 * M_PI)));
    }
  }
}

TEST_CASE("numerics.spherical_coordinates: angles near a pole keep their accuracy") {
  const Vector<double> angles = to_spherical(std::vector<double>{1, 1e-12, 0});
  CHECK(angles[0] == 1e-12);  // the arc cosine of 1 would be 0
  CHECK(angles[1] == 0);
}

TEST_CASE("numerics.spherical_coordinates: bad input is named and nothing is allocated in place") {
  CHECK(message_of<InvalidArgument>([] {
          to_spherical(std::vector<double>{1, 1});
        }).substr(0, 55) == "to_spherical: the length of s must be 1, got 1.41421356");
  CHECK(message_of<InvalidArgument>([] {
          to_spherical(std::vector<double>{0, 0});
        }) == "to_spherical: the length of s must be 1, got 0");
  CHECK(message_of<InvalidArgument>([] { to_spherical(std::vector<double>{1}); }) ==
        "to_spherical: the number of entries of s must be at least 2, got 1");
  CHECK(from_spherical(std::vector<double>{}) == Vector<double>::Ones(1));
  Vector<double> s(3), angles = Vector<double>::Ones(2);
  CHECK(test::allocations([&] { from_spherical(angles, s); }) == 0);
  CHECK(message_of<InvalidArgument>([&] { from_spherical(s, s); }) ==
        "from_spherical: s has shape [3], expected [4] (one more than angles)");
}

}  // namespace
}  // namespace ashlar::numerics
