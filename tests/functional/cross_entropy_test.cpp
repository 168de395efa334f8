#include "ashlar/functional/cross_entropy.hpp"

#include <cmath>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::functional {
namespace {

using test::message_of;

TEST_CASE("functional.cross_entropy: loss and gradient are those of the definition") {
  Rng rng(1);
  const auto x = normal_tensor<double>(rng, {5, 19});
  const std::vector<Index> labels{3, 0, ignored, 18, 7};
  Tensor<double> gradient({5, 19});
  const double loss = cross_entropy(x.view<2>(), labels);
  CHECK(std::abs(cross_entropy_gradient(x.view<2>(), labels, gradient.view<2>()) - loss) <= 1e-15 * 8);
  double expected = 0;
  for (Index i = 0; i < 5; ++i) {
    long double sum = 0;
    for (Index j = 0; j < 19; ++j) sum += std::exp(static_cast<long double>(x.view<2>()(i, j)));
    const Index label = labels[static_cast<std::size_t>(i)];
    if (label != ignored) expected += static_cast<double>(std::log(sum)) - x.view<2>()(i, label);
    for (Index j = 0; j < 19; ++j) {
      const double p = static_cast<double>(std::exp(static_cast<long double>(x.view<2>()(i, j))) / sum);
      const double slope = label == ignored ? 0 : (p - (j == label)) / 4;
      CHECK(std::abs(gradient.view<2>()(i, j) - slope) <= 1e-15);
    }
  }
  CHECK(std::abs(loss - expected / 4) <= 1e-15 * 8);
}

TEST_CASE("functional.cross_entropy: no row that counts gives loss and gradient zero") {
  const Tensor<float> x({2, 3}, 1.0f);
  const std::vector<Index> labels{ignored, ignored};
  Tensor<float> gradient({2, 3}, 7.0f);
  CHECK(cross_entropy(x.view<2>(), labels) == 0);
  CHECK(cross_entropy_gradient(x.view<2>(), labels, gradient.view<2>()) == 0);
  CHECK(test::identical(gradient, Tensor<float>({2, 3})));
}

TEST_CASE("functional.cross_entropy: scores far apart neither overflow nor give NaN") {
  Tensor<float> x({1, 3});
  x.data()[0] = 1e4f, x.data()[1] = -1e4f;
  const std::vector<Index> labels{1};
  Tensor<float> gradient({1, 3});
  CHECK(cross_entropy(x.view<2>(), labels) == 2e4f);
  CHECK(cross_entropy_gradient(x.view<2>(), labels, gradient.view<2>()) == 2e4f);
  CHECK(gradient.data()[0] == 1);
  CHECK(gradient.data()[1] == -1);
  CHECK(gradient.data()[2] == 0);
}

TEST_CASE("functional.cross_entropy: the same bits for any number of threads") {
  Rng rng(2);
  const auto x = normal_tensor<float>(rng, {500, 33});
  std::vector<Index> labels;
  for (Index i = 0; i < 500; ++i) labels.push_back(i % 33);
  const auto run = [&] {
    Tensor<float> gradient({500, 33}), loss(Shape{1});
    *loss.data() = cross_entropy_gradient(x.view<2>(), labels, gradient.view<2>());
    return std::vector<Tensor<float>>{loss, gradient};
  };
  const auto one = test::with_threads(1, run), other = test::with_threads(4, run);
  CHECK(test::identical(one[0], other[0]));
  CHECK(test::identical(one[1], other[1]));
}

TEST_CASE("functional.cross_entropy: the gradient may take the place of the logits") {
  Rng rng(3);
  auto x = normal_tensor<float>(rng, {4, 19});
  const std::vector<Index> labels{1, ignored, 18, 0};
  Tensor<float> apart({4, 19});
  const float loss = cross_entropy_gradient(x.view<2>(), labels, apart.view<2>());
  CHECK(cross_entropy_gradient(x.view<2>(), labels, x.view<2>()) == loss);
  CHECK(test::identical(apart, x));
}

TEST_CASE("functional.cross_entropy: wrong calls say what is wrong and write nothing") {
  const Tensor<float> x({2, 3});
  Tensor<float> gradient({2, 3}, 5.0f);
  const std::vector<Index> wrong{0, 3}, negative{-2, 0}, few{0}, right{0, 1};
  const auto call = [&](const std::vector<Index>& labels) {
    return message_of<InvalidArgument>([&] { cross_entropy_gradient(x.view<2>(), labels, gradient.view<2>()); });
  };
  CHECK(call(wrong) == "cross_entropy_gradient: label 3 is not one of the 3 classes");
  CHECK(call(negative) == "cross_entropy_gradient: label -2 is not one of the 3 classes");
  CHECK(call(few) == "cross_entropy_gradient: there are 1 labels for 2 rows of logits");
  CHECK(message_of<InvalidArgument>([&] { cross_entropy(x.view<2>(), wrong); }) ==
        "cross_entropy: label 3 is not one of the 3 classes");
  Tensor<float> narrow({2, 2});
  CHECK(message_of<InvalidArgument>([&] { cross_entropy_gradient(x.view<2>(), right, narrow.view<2>()); }) ==
        "cross_entropy_gradient: dlogits has shape [2,2], expected [2,3] (shape of logits)");
  CHECK(test::identical(gradient, Tensor<float>({2, 3}, 5.0f)));
}

}  // namespace
}  // namespace ashlar::functional
