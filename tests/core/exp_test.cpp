#include <cmath>
#include <limits>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/core/simd.hpp"
#include "support/catch.hpp"

namespace ashlar {
namespace {

/// simd::exp of any number of arguments.
template <class T>
std::vector<T> exp_of(std::vector<T> x) {
  const std::size_t count = x.size(), width = static_cast<std::size_t>(simd::width<T>);
  x.resize((count + width - 1) / width * width);
  for (std::size_t i = 0; i < x.size(); i += width) simd::store(x.data() + i, simd::exp(simd::load(x.data() + i)));
  x.resize(count);
  return x;
}

TEMPLATE_TEST_CASE("core.simd: exp is within one and a half units in the last place", "", float, double) {
  using T = TestType;
  const double low = std::is_same_v<T, double> ? -708 : -87, high = std::is_same_v<T, double> ? 709 : 88;
  Rng rng(1);
  std::vector<T> x;
  for (int i = 0; i < 20000; ++i) {
    x.push_back(static_cast<T>(rng.uniform(low, high)));
    x.push_back(static_cast<T>(rng.uniform(-1, 1)));
    x.push_back(static_cast<T>(std::ldexp(rng.uniform(-1, 1), -i % 60)));
  }
  const auto y = exp_of(x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double exact = std::exp(static_cast<long double>(x[i]));
    const T nearest = static_cast<T>(exact);
    const long double unit = std::nextafter(nearest, std::numeric_limits<T>::infinity()) - nearest;
    worst = std::max(worst, static_cast<double>(std::abs((y[i] - exact) / unit)));
  }
  CHECK(worst <= 1.5);
}

TEMPLATE_TEST_CASE("core.simd: exp at the ends of its range", "", float, double) {
  using T = TestType;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const T last = std::log(std::numeric_limits<T>::max()), first = std::log(std::numeric_limits<T>::min());
  const auto y = exp_of<T>({T(0), T(-0.0), -infinity, infinity, std::numeric_limits<T>::quiet_NaN(), last * T(1.001),
                            first * T(1.001), T(1e30), T(-1e30), last * T(0.9999)});
  CHECK(y[0] == 1);
  CHECK(y[1] == 1);
  CHECK(y[2] == 0);
  CHECK(y[3] == infinity);
  CHECK(std::isnan(y[4]));
  CHECK(y[5] == infinity);
  CHECK(y[6] == 0);
  CHECK(y[7] == infinity);
  CHECK(y[8] == 0);
  CHECK(std::isfinite(y[9]));
}

}  // namespace
}  // namespace ashlar
