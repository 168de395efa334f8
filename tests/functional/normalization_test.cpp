#include "ashlar/functional/normalization.hpp"

#include <cmath>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::functional {
namespace {

using test::message_of;

template <class T>
Tensor<T> normalized(const Tensor<T>& x, const NormalizeOptions& options, View<const T, 1> gain = {},
                     View<const T, 1> bias = {}) {
  Tensor<T> y(x.shape()), statistics({x.extent(0), 2});
  normalize(x.template view<2>(), options, gain, bias, y.template view<2>(), statistics.template view<2>());
  return y;
}

TEST_CASE("functional.normalization: rows get mean bias and deviation gain") {
  Rng rng(1);
  const auto x = normal_tensor<double>(rng, {70, 13});
  const auto y = normalized(x, {.epsilon = 0});
  for (Index i = 0; i < 70; ++i) {
    const auto row = y.matrix().row(i);
    CHECK(std::abs(row.mean()) <= 1e-14);
    CHECK(std::abs(row.squaredNorm() / 13 - 1) <= 1e-13);
  }
  const auto rms = normalized(x, {.centred = false, .epsilon = 0});
  for (Index i = 0; i < 70; ++i) {
    CHECK(std::abs(rms.matrix().row(i).squaredNorm() / 13 - 1) <= 1e-13);
    CHECK(rms.matrix()(i, 3) * x.matrix()(i, 4) == Approx(rms.matrix()(i, 4) * x.matrix()(i, 3)));
  }
}

TEST_CASE("functional.normalization: a constant row gives the bias and a zero row stays finite") {
  Tensor<double> x({2, 4}, 3.0);
  for (Index j = 0; j < 4; ++j) x.data()[4 + j] = 0;
  const Tensor<double> gain(Shape{4}, 2.0), bias(Shape{4}, 0.5);
  const auto y = normalized<double>(x, {}, gain.view<1>(), bias.view<1>());
  for (Index i = 0; i < 8; ++i) CHECK(y.data()[i] == 0.5);
  const auto rms = normalized(x, {.centred = false});
  for (Index j = 0; j < 4; ++j) CHECK(rms.data()[4 + j] == 0);
}

TEST_CASE("functional.normalization: large offsets do not drown the deviations") {
  // The mean is taken off before squares are summed: an error of eps 1e6 / 1, not eps 1e12 / 1.
  Rng rng(2);
  const auto x = normal_tensor<double>(rng, {8, 64});
  Tensor<double> shifted = x;
  for (Index i = 0; i < shifted.size(); ++i) shifted.data()[i] += 1e6;
  CHECK(test::max_difference(normalized(shifted, {}), normalized(x, {})) <= 1e-8);
}

TEST_CASE("functional.normalization: all gradients have the same bits for any number of threads") {
  Rng rng(3);
  const auto x = normal_tensor<float>(rng, {300, 33}), dy = normal_tensor<float>(rng, {300, 33}),
             gain = normal_tensor<float>(rng, {33});
  const auto run = [&] {
    Tensor<float> y(x.shape()), statistics({300, 2}), dx(x.shape()), dgain(Shape{33}), dbias(Shape{33});
    normalize(x.view<2>(), {}, gain.view<1>(), View<const float, 1>(), y.view<2>(), statistics.view<2>());
    normalize_backward(x.view<2>(), {}, gain.view<1>(), std::as_const(statistics).view<2>(), dy.view<2>(), dx.view<2>(),
                       dgain.view<1>(), dbias.view<1>());
    return std::vector<Tensor<float>>{y, dx, dgain, dbias};
  };
  const auto one = test::with_threads(1, run);
  for (const int threads : {2, 4}) {
    const auto other = test::with_threads(threads, run);
    for (std::size_t i = 0; i < 4; ++i) CHECK(test::identical(one[i], other[i]));
  }
}

TEST_CASE("functional.normalization: wrong calls say what is wrong") {
  Tensor<double> x({2, 3}), statistics({2, 2}), narrow({2, 1});
  const Tensor<double> gain(Shape{2});
  const auto call = [&](auto&& f) { return message_of<InvalidArgument>(f); };
  CHECK(call([&] {
          normalize(x.view<2>(), {.epsilon = -1}, View<const double, 1>(), View<const double, 1>(), x.view<2>(),
                    statistics.view<2>());
        }) == "normalize: epsilon must be at least 0, got -1");
  CHECK(call([&] {
          normalize(x.view<2>(), {}, gain.view<1>(), View<const double, 1>(), x.view<2>(), statistics.view<2>());
        }) == "normalize: gain has shape [2], expected [3] (one for each column of x)");
  CHECK(call([&] {
          normalize(x.view<2>(), {}, View<const double, 1>(), View<const double, 1>(), x.view<2>(), narrow.view<2>());
        }) == "normalize: statistics has shape [2,1], expected [2,2] (m and r for each row of x)");
  CHECK(call([&] {
          normalize(x.view<2>().transposed(0, 1), {}, View<const double, 1>(), View<const double, 1>(), x.view<2>(),
                    statistics.view<2>());
        }).starts_with("normalize: x must be contiguous"));
}

}  // namespace
}  // namespace ashlar::functional
