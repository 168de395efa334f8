#include "ashlar/functional/activations.hpp"

#include <cmath>
#include <limits>

#include "ashlar/functional/elementwise.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

namespace ashlar::functional {
namespace {

template <class T, class F>
T apply(const F& f, double x) {
  Tensor<T> in(Shape{1}, static_cast<T>(x)), out(Shape{1});
  map(out, f, in);
  return *out.data();
}

/// Relative error against long double, in units of the type's epsilon; results below the smallest normal number count
/// as zero.
template <class T, class F, class Exact>
double worst_error(const F& f, Exact exact, double from, double to) {
  double worst = 0;
  for (int i = 0; i <= 4000; ++i) {
    const T x = static_cast<T>(from + (to - from) * i / 4000);
    const long double expected = exact(static_cast<long double>(x));
    const long double error = std::abs(static_cast<long double>(apply<T>(f, static_cast<double>(x))) - expected);
    const long double scale = std::abs(expected) + static_cast<long double>(std::numeric_limits<T>::min());
    worst =
        std::max(worst, static_cast<double>(error / scale) / static_cast<double>(std::numeric_limits<T>::epsilon()));
  }
  return worst;
}

TEMPLATE_TEST_CASE("functional.activations: values agree with long double to a few units", "", float, double) {
  using T = TestType;
  const auto sigma = [](long double x) { return 1 / (1 + std::exp(-x)); };
  CHECK(worst_error<T>(Sigmoid{}, sigma, -30, 30) <= 6);
  CHECK(worst_error<T>(
            Silu{}, [&](long double x) { return x * sigma(x); }, -30, 30) <= 8);
  CHECK(worst_error<T>(
            Softplus{}, [](long double x) { return std::log1p(std::exp(x)); }, -30, 30) <= 8);
  CHECK(worst_error<T>(
            Tanh{}, [](long double x) { return std::tanh(x); }, -10, 10) <= 4);
  CHECK(worst_error<T>(
            Exp{}, [](long double x) { return std::exp(x); }, -20, 20) <= 3);
  CHECK(worst_error<T>(
            Log{}, [](long double x) { return std::log(x); }, 1e-3, 0.9) <= 4);
  CHECK(worst_error<T>(
            Reciprocal{}, [](long double x) { return 1 / x; }, 0.1, 9) <= 1);
  CHECK(worst_error<T>(
            Sqrt{}, [](long double x) { return std::sqrt(x); }, 0, 9) <= 1);
  CHECK(worst_error<T>(
            Relu{}, [](long double x) { return std::max(x, 0.0L); }, -3, 3) == 0);
  CHECK(worst_error<T>(
            LeakyRelu{0.25}, [](long double x) { return x > 0 ? x : x / 4; }, -3, 3) == 0);
  CHECK(worst_error<T>(
            Clamp{-0.5, 1.5}, [](long double x) { return std::clamp(x, -0.5L, 1.5L); }, -3, 3) == 0);
  // The argument of erfc and of the logistic function is rounded before: an error of |argument| units or so.
  CHECK(worst_error<T>(
            GeluErf{}, [](long double x) { return x * std::erfc(-x / std::sqrt(2.0L)) / 2; }, -3, 6) <= 60);
  CHECK(worst_error<T>(
            GeluTanh{},
            [&](long double x) {
              return x * sigma(2 * std::sqrt(2 / 3.14159265358979323846L) * (x + 0.044715L * x * x * x));
            },
            -3, 6) <= 60);
}

TEMPLATE_TEST_CASE("functional.activations: far arguments saturate without overflow", "", float, double) {
  using T = TestType;
  for (const double x : {1e3, 1e30}) {
    CHECK(apply<T>(Sigmoid{}, x) == 1);
    CHECK(apply<T>(Sigmoid{}, -x) == 0);
    CHECK(apply<T>(Tanh{}, x) == 1);
    CHECK(apply<T>(Tanh{}, -x) == -1);
    CHECK(apply<T>(Softplus{}, x) == static_cast<T>(x));
    CHECK(apply<T>(Softplus{}, -x) == 0);
    CHECK(apply<T>(Silu{}, x) == static_cast<T>(x));
    CHECK(apply<T>(Silu{}, -x) == 0);
    CHECK(apply<T>(GeluErf{}, x) == static_cast<T>(x));
    CHECK(apply<T>(GeluErf{}, -x) == 0);
  }
  CHECK(apply<T>(GeluTanh{}, 1e3) == static_cast<T>(1e3));
  CHECK(apply<T>(GeluTanh{}, -1e3) == 0);
}

TEST_CASE("functional.activations: the two forms of GELU differ and are not mixed up") {
  CHECK(std::abs(apply<double>(GeluErf{}, 1.0) - 0.841344746068543) <= 1e-14);
  CHECK(std::abs(apply<double>(GeluTanh{}, 1.0) - 0.841191990608276) <= 1e-14);
}

TEST_CASE("functional.activations: slopes at corners are those of the left side or zero") {
  const auto slope = [](const auto& f, double s) {
    Tensor<double> one(Shape{1}, 1.0), at(Shape{1}, s), out(Shape{1});
    map(out, SlopeOf<std::remove_cvref_t<decltype(f)>>{f}, one, at);
    return *out.data();
  };
  CHECK(slope(Relu{}, 0.0) == 0);
  CHECK(slope(LeakyRelu{0.25}, 0.0) == 0.25);
  CHECK(slope(Abs{}, 0.0) == 0);
  CHECK(slope(Abs{}, -2.0) == -1);
  CHECK(slope(Clamp{-1, 2}, 2.0) == 1);
  CHECK(slope(Clamp{-1, 2}, 2.5) == 0);
  CHECK(slope(Clamp{-1, 2}, -1.5) == 0);
}

}  // namespace
}  // namespace ashlar::functional
