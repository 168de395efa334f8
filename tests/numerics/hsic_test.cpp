#include "ashlar/numerics/hsic.hpp"

#include <algorithm>
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

TEST_CASE("numerics.hsic: values are those of the oracle with and without ties") {
  for (const std::string folder : {"hellinger_sdr/", "hellinger_sdr/ties/"}) {
    const auto x = fixture(folder + "x"), y = fixture(folder + "y"), b = fixture(folder + "betas");
    const auto expected = fixture(folder + "hsic");
    for (Index i = 0; i < b.extent(0); ++i) {
      const Vector<double> z = x.matrix() * b.matrix().row(i).transpose();
      CHECK(std::abs(hsic(z, y) - expected.data()[i]) <= 1e-10);
    }
  }
}

TEST_CASE("numerics.hsic: the fast form is the definition for odd sizes and ties and offsets") {
  for (const std::uint64_t seed : {1u, 2u})
    for (const Index n : {2, 3, 17, 130}) {
      INFO("seed = " << seed << ", n = " << n);
      Rng rng(seed);
      const Vector<double> x = normal_matrix<double>(rng, n, 1).col(0);
      Vector<double> y = x.array().square() + 1000, tied(n);
      for (double& value : tied) value = static_cast<double>(rng.below(3));
      // Sums of numbers up to one, divided by as many: rounding of about n eps.
      const auto close = [](double a, double b) { return std::abs(a - b) <= 1e-13; };
      CHECK(close(hsic(x, y), reference::hsic(x, y)));
      CHECK(close(hsic(x, tied), reference::hsic(x, tied)));
      CHECK(close(hsic(tied, x), reference::hsic(tied, x)));
      CHECK(close(hsic(tied, tied), reference::hsic(tied, tied)));
    }
}

TEST_CASE("numerics.hsic: the median of squared differences is that of all pairs sorted") {
  for (const Index n : {2, 3, 4, 9, 50}) {
    Rng rng(static_cast<std::uint64_t>(n));
    std::vector<double> x(static_cast<std::size_t>(n)), squares;
    for (double& value : x) value = rng.normal();
    std::sort(x.begin(), x.end());
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = i + 1; j < x.size(); ++j) squares.push_back((x[j] - x[i]) * (x[j] - x[i]));
    std::sort(squares.begin(), squares.end());
    const std::size_t m = squares.size();
    CHECK(detail::gaussian_rate(x.data(), n) == 1 / ((squares[(m - 1) / 2] + squares[m / 2]) / 2));
  }
}

TEST_CASE("numerics.hsic: zero for a constant and nothing allocated against a fixed sample") {
  Rng rng(3);
  const Vector<double> x = normal_matrix<double>(rng, 200, 1).col(0), y = x.array().sin();
  CHECK(hsic(Vector<double>::Constant(200, 4.0).eval(), y) <= 1e-14);
  Hsic against(y);
  const double first = against(x);
  CHECK(first == hsic(x, y));
  CHECK(test::allocations([&] { against(x); }) == 0);
}

TEST_CASE("numerics.hsic: bad input is named") {
  const std::vector<double> two{1, 2}, three{1, 2, 3}, bad{1, NAN};
  const auto with = [](const std::vector<double>& x, const std::vector<double>& y) {
    return message_of<InvalidArgument>([&] { hsic(x, y); });
  };
  CHECK(with(three, two) == "Hsic: x has shape [3], expected [2] (same as y)");
  CHECK(with(bad, two) == "Hsic: x has an entry that is not finite");
  CHECK(with(two, bad) == "Hsic: y has an entry that is not finite");
  CHECK(with({1}, {1}) == "Hsic: the number of points must be at least 2, got 1");
}

}  // namespace
}  // namespace ashlar::numerics
