#include "ashlar/dynamics/two_layer_gradient.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "dynamics/contamination_samples.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::dynamics {
namespace {

using test::message_of;

template <class T>
double distance(const NetworkGradient<T>& a, const NetworkGradient<T>& b) {
  const auto gap = [](const auto& x, const auto& y) {
    return x.size() == 0 ? 0.0 : static_cast<double>((x - y).cwiseAbs().maxCoeff());
  };
  return std::max({gap(a.weights, b.weights), gap(a.bias, b.bias), gap(a.output, b.output),
                   static_cast<double>(std::abs(a.output_bias - b.output_bias)), std::abs(a.loss - b.loss)});
}

/// How far two orders of summation can be apart. A gradient is a mean of n products l' a s' x; l' follows f, a sum of m
/// terms a h, with a slope of 2 at most, and h is a sum of d. s' and its own slope are below 2.
template <class T>
double rounding(const Samples<T>& s) {
  const double n = static_cast<double>(s.x.rows() + s.x.cols() + s.network.hidden());
  const double x = static_cast<double>(s.x.cwiseAbs().maxCoeff()), a = s.network.output.cwiseAbs().maxCoeff();
  const double h = static_cast<double>(s.network.weights.rowwise().template lpNorm<1>().maxCoeff()) * x + 1;
  const double f = a * h * static_cast<double>(s.network.hidden()) + 1;
  const double largest_slope = 2 * (f + 1);
  return static_cast<double>(std::numeric_limits<T>::epsilon()) * n * largest_slope *
         std::max({a * std::max(x, 1.0) * h, h, f});
}

TEST_CASE("dynamics.two_layer_gradient: losses and gradients match the fixtures") {
  TwoLayerNetwork<double> network{data("W"), {}, data_vector("a")};
  const Matrix<double> x = data("X");
  const Vector<double> y = data_vector("y");
  CHECK(x.row(0).norm() == 0);  // pre-activations exactly 0
  for (const auto& [loss, loss_name] :
       {std::pair{Loss::hinge, "hinge"}, {Loss::logistic, "logistic"}, {Loss::squared, "mse"}})
    for (const auto& [activation, name] : {std::pair{Activation::relu, "relu"}, {Activation::identity, "lin"}}) {
      const std::string file = std::string(loss_name) + "_" + name;
      INFO(file);
      network.activation = activation;
      const NetworkGradient<double> fast = loss_and_gradient(network, x, y, loss);
      CHECK(std::abs(fast.loss - data("loss_" + file)(0)) <= 1e-12);
      CHECK((fast.weights - data("grad_" + file)).cwiseAbs().maxCoeff() <= 1e-12);
      const NetworkGradient<double> slow = reference::loss_and_gradient(network, x, y, loss);
      CHECK(std::abs(slow.loss - data("loss_" + file)(0)) <= 1e-12);
      CHECK((slow.weights - data("grad_" + file)).cwiseAbs().maxCoeff() <= 1e-12);
    }
}

TEST_CASE("dynamics.two_layer_gradient: thirty steps of descent match the fixture") {
  TwoLayerNetwork<double> network{data("W"), {}, data_vector("a")};
  const Matrix<double> x = data("sgd_X"), y = data("sgd_y");
  const Vector<double> losses = data_vector("sgd_loss");
  Matrix<double> gradient(network.hidden(), network.dim());
  Workspace workspace;
  for (Index step = 0; step < 30; ++step) {
    const Vector<double> labels = y.row(step).transpose();
    const double loss = loss_and_gradient(network, x.middleRows(16 * step, 16), labels, Loss::hinge,
                                          View<double, 2>(gradient), workspace);
    CHECK(std::abs(loss - losses[step]) <= 1e-10);
    sgd_step(network, gradient, 0.5, 0.01);
  }
  CHECK((network.weights - data("sgd_W")).cwiseAbs().maxCoeff() <= 1e-10);
}

TEST_CASE("dynamics.two_layer_gradient: gradients are the finite differences of the loss") {
  const Loss loss = GENERATE(Loss::hinge, Loss::logistic, Loss::squared);
  const double step = 1e-6;
  for (const Activation activation : all_activations) {
    INFO("loss " << static_cast<int>(loss) << ", activation " << static_cast<int>(activation));
    Samples<double> s(21, 11, 7, 5, activation);
    const Vector<double> f = forward(s.network, s.x);
    REQUIRE(pre_activations(s.network, s.x).cwiseAbs().minCoeff() > 1e-4);  // away from the kinks
    REQUIRE((1 - f.array() * s.y.array()).abs().minCoeff() > 1e-4);
    const NetworkGradient<double> gradient = loss_and_gradient(s.network, s.x, s.y, loss);
    const double scale = std::max(gradient.weights.cwiseAbs().maxCoeff(), std::abs(gradient.output_bias));
    REQUIRE(scale > 1e-3);
    const auto check = [&](double& parameter, double derivative) {
      const double kept = parameter;
      parameter = kept + step;
      const double above = evaluate(s.network, s.x, s.y, loss).loss;
      parameter = kept - step;
      const double below = evaluate(s.network, s.x, s.y, loss).loss;
      parameter = kept;
      CHECK(std::abs((above - below) / (2 * step) - derivative) <= 1e-6 * scale);
    };
    for (Index i = 0; i < s.network.weights.size(); ++i) check(s.network.weights.data()[i], gradient.weights.data()[i]);
    for (Index k = 0; k < 7; ++k) {
      check(s.network.bias[k], gradient.bias[k]);
      check(s.network.output[k], gradient.output[k]);
    }
    check(s.network.output_bias, gradient.output_bias);
  }
}

TEMPLATE_TEST_CASE("dynamics.two_layer_gradient: fast and reference agree over shapes", "", float, double) {
  using T = TestType;
  for (const auto& [n, m, d] : std::vector<std::tuple<Index, Index, Index>>{
           {1, 1, 1}, {3, 5, 2}, {64, 33, 17}, {512, 7, 129}, {513, 16, 3}, {130, 131, 270}, {1100, 48, 40}})
    for (const Activation activation : all_activations)
      for (const Loss loss : all_losses) {
        INFO("n " << n << ", m " << m << ", d " << d << ", activation " << static_cast<int>(activation) << ", loss "
                  << static_cast<int>(loss));
        Samples<T> s(static_cast<std::uint64_t>(n + m), n, m, d, activation);
        CHECK(distance(loss_and_gradient(s.network, s.x, s.y, loss),
                       reference::loss_and_gradient(s.network, s.x, s.y, loss)) <= rounding(s));
        s.network.bias.resize(0);
        const NetworkGradient<T> unbiased = loss_and_gradient(s.network, s.x, s.y, loss);
        CHECK(unbiased.bias.size() == 0);
        CHECK(distance(unbiased, reference::loss_and_gradient(s.network, s.x, s.y, loss)) <= rounding(s));
      }
}

TEST_CASE("dynamics.two_layer_gradient: any strides go in and come out") {
  const Samples<double> s(31, 70, 9, 14, Activation::relu);
  const NetworkGradient<double> expected = loss_and_gradient(s.network, s.x, s.y, Loss::logistic);
  const Eigen::MatrixXd columns = s.x;  // column-major
  CHECK(distance(loss_and_gradient(s.network, columns, s.y, Loss::logistic), expected) == 0);
  Matrix<double> wide = Matrix<double>::Constant(140, 30, 7);
  const View<double, 2> every_other(wide.data(), {70, 14}, {60, 2});
  matrix(every_other) = s.x;
  CHECK(distance(loss_and_gradient(s.network, View<const double, 2>(every_other), s.y, Loss::logistic), expected) == 0);
  const Matrix<double> upside_down = s.x.colwise().reverse();
  CHECK(distance(loss_and_gradient(s.network, View<const double, 2>(upside_down).reversed(0), s.y, Loss::logistic),
                 expected) == 0);
  Vector<double> forwards = forward(s.network, s.x);
  CHECK(forward(s.network, columns) == forwards);

  Workspace workspace;
  Eigen::MatrixXd out(9, 14);
  loss_and_gradient(s.network, s.x, s.y, Loss::logistic, View<double, 2>(out), workspace);
  CHECK((out - expected.weights).cwiseAbs().maxCoeff() <= rounding(s));
  Matrix<double> framed = Matrix<double>::Constant(11, 20, 5);
  loss_and_gradient(s.network, s.x, s.y, Loss::logistic, View<double, 2>(framed.block(1, 3, 9, 14)), workspace);
  CHECK((framed.block(1, 3, 9, 14) - expected.weights).cwiseAbs().maxCoeff() <= rounding(s));
  framed.block(1, 3, 9, 14).setConstant(5);
  CHECK((framed.array() == 5).all());
}

TEST_CASE("dynamics.two_layer_gradient: samples whose margin is met pull no more") {
  // Labels are the network's own, so outputs times `size` meet the margin where |f| size >= 1.
  for (const double size : {0.5, 1.0, 2.0, 5.0, 20.0, 1e9}) {
    INFO("size " << size);
    Samples<double> s(41, 300, 12, 10, Activation::relu);
    s.network.output *= size;
    s.network.output_bias *= size;
    s.y = forward(s.network, s.x).unaryExpr([](double f) { return f > 0 ? 1.0 : -1.0; });
    const NetworkGradient<double> gradient = loss_and_gradient(s.network, s.x, s.y, Loss::hinge);
    CHECK(distance(gradient, reference::loss_and_gradient(s.network, s.x, s.y, Loss::hinge)) <= rounding(s));
    if (size == 1e9) {
      CHECK(gradient.weights == Matrix<double>::Zero(12, 10));
      CHECK(gradient.bias == Vector<double>::Zero(12));
      CHECK(gradient.output == Vector<double>::Zero(12));
      CHECK(gradient.loss == 0);
    }
  }
}

TEST_CASE("dynamics.two_layer_gradient: no pre-activation above zero means no relu gradient") {
  Samples<double> s(51, 20, 21, 8, Activation::relu);  // neurons in vectors and beside them
  s.network.bias.resize(0);
  const NetworkGradient<double> before = loss_and_gradient(s.network, s.x, s.y, Loss::squared);
  Matrix<double> more = Matrix<double>::Zero(21, 8);  // a zero row adds a sample, and nothing to the sum
  more.topRows(20) = s.x;
  Vector<double> labels = Vector<double>::Ones(21);
  labels.head(20) = s.y;
  const NetworkGradient<double> after = loss_and_gradient(s.network, more, labels, Loss::squared);
  CHECK((after.weights * 21 - before.weights * 20).cwiseAbs().maxCoeff() <= 21 * rounding(s));
  s.network.weights.setZero();
  CHECK(loss_and_gradient(s.network, s.x, s.y, Loss::hinge).weights.norm() == 0);
}

TEST_CASE("dynamics.two_layer_gradient: a batch of one class is a batch") {
  Samples<double> s(61, 40, 6, 8, Activation::relu);
  for (const double label : {-1.0, 1.0}) {
    s.y.setConstant(label);
    for (const Loss loss : all_losses)
      CHECK(distance(loss_and_gradient(s.network, s.x, s.y, loss),
                     reference::loss_and_gradient(s.network, s.x, s.y, loss)) <= rounding(s));
  }
}

TEST_CASE("dynamics.two_layer_gradient: outputs and losses are those of the formulas") {
  for (const Activation activation : all_activations) {
    const Samples<double> s(71, 37, 19, 6, activation);
    const Matrix<double> h = pre_activations(s.network, s.x);
    const Vector<double> f = forward(s.network, s.x);
    double loss = 0;
    int right = 0;
    for (Index i = 0; i < 37; ++i) {
      double sum = s.network.output_bias;
      for (Index k = 0; k < 19; ++k) {
        CHECK(std::abs(h(i, k) - s.network.weights.row(k).dot(s.x.row(i)) - s.network.bias[k]) <= rounding(s));
        sum += s.network.output[k] * activate(activation, h(i, k));
      }
      CHECK(std::abs(f[i] - sum) <= rounding(s));
      loss += std::log(1 + std::exp(-s.y[i] * f[i])) / 37;
      right += (f[i] > 0) == (s.y[i] > 0);
    }
    const Evaluation evaluation = evaluate(s.network, s.x, s.y, Loss::logistic);
    CHECK(std::abs(evaluation.loss - loss) <= 1e-14);
    CHECK(evaluation.accuracy == right / 37.0);
  }
  Samples<double> nothing(72, 4, 3, 2, Activation::relu);
  nothing.network.output.setZero();
  nothing.network.output_bias = 0;
  CHECK(evaluate(nothing.network, nothing.x, nothing.y, Loss::hinge).accuracy == 0);  // an output of 0 is not right
}

TEMPLATE_TEST_CASE("dynamics.two_layer_gradient: the same bits for any number of threads", "", float, double) {
  for (const Loss loss : {Loss::hinge, Loss::logistic}) {
    const Samples<TestType> s(81, 1100, 200, 150, Activation::relu);
    const auto run = [&](int threads) {
      return test::with_threads(threads, [&] { return loss_and_gradient(s.network, s.x, s.y, loss); });
    };
    const NetworkGradient<TestType> one = run(1), two = run(2), four = run(4);
    CHECK(distance(one, two) == 0);
    CHECK(distance(one, four) == 0);
    CHECK(test::with_threads(1, [&] { return forward(s.network, s.x); }) ==
          test::with_threads(4, [&] { return forward(s.network, s.x); }));
  }
}

TEST_CASE("dynamics.two_layer_gradient: a grown workspace costs no allocation") {
  const Samples<double> s(91, 40, 12, 16, Activation::relu);
  Matrix<double> gradient(12, 16);
  NetworkGradient<double> all;
  Vector<double> f(40);
  Workspace workspace;
  test::with_threads(1, [&] {  // starting threads allocates
    const auto run = [&] {
      for (const Loss loss : all_losses)
        loss_and_gradient(s.network, s.x, s.y, loss, View<double, 2>(gradient), workspace);
      loss_and_gradient(s.network, s.x, s.y, Loss::hinge, all, workspace);
      forward(s.network, s.x, f, workspace);
    };
    run();
    CHECK(test::allocations(run) == 0);
  });
}

TEST_CASE("dynamics.two_layer_gradient: bad arguments are named") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Samples<double> s(101, 4, 3, 2, Activation::relu);
  const auto run = [&] { (void)loss_and_gradient(s.network, s.x, s.y, Loss::hinge); };
  const auto message = [&] { return message_of<InvalidArgument>(run); };
  const Samples<double> good = s;
  s.x.resize(4, 3);
  CHECK(message() == "loss_and_gradient: x has shape [4,3], expected [4,2] (one column an input of the network)");
  s.x.resize(0, 2);
  CHECK(message() == "loss_and_gradient: x has no rows");
  s = good;
  s.x(2, 1) = nan;
  CHECK(message() == "loss_and_gradient: x(2,1) is nan, not finite");
  for (const Index column : {0, 40, 66}) {  // in pairs of vectors, and beside them
    Samples<double> wide(102, 3, 2, 67, Activation::relu);
    wide.x(1, column) = -std::numeric_limits<double>::infinity();
    const std::string where = "loss_and_gradient: x(1," + std::to_string(column) + ") is -inf, not finite";
    CHECK(message_of<InvalidArgument>([&] { (void)loss_and_gradient(wide.network, wide.x, wide.y, Loss::hinge); }) ==
          where);
    const Eigen::MatrixXd columns = wide.x;
    CHECK(message_of<InvalidArgument>([&] { (void)loss_and_gradient(wide.network, columns, wide.y, Loss::hinge); }) ==
          where);
  }
  s = good;
  s.y.resize(3);
  CHECK(message() == "loss_and_gradient: y has shape [3], expected [4] (one label a sample)");
  s = good;
  s.y[1] = 0;
  CHECK(message() == "loss_and_gradient: y[1] must be -1 or 1, got 0");
  s = good;
  s.network.output.resize(2);
  CHECK(message() == "loss_and_gradient: network.output has shape [2], expected [3] (one weight a neuron)");
  s = good;
  s.network.bias.resize(2);
  CHECK(message() == "loss_and_gradient: network.bias has shape [2], expected [3] (one a neuron, or none)");
  s = good;
  s.network.weights(0, 0) = std::numeric_limits<double>::infinity();
  CHECK(message() == "loss_and_gradient: network has a parameter that is not finite");
  s = good;
  s.network.weights.resize(0, 2);
  CHECK(message() == "loss_and_gradient: network.weights has shape [0,2], expected at least one row and one column");
  s = good;

  Workspace workspace;
  Matrix<double> gradient = Matrix<double>::Constant(2, 2, 5);
  const auto into = [&](const View<double, 2>& out) {
    return message_of<InvalidArgument>([&] { loss_and_gradient(s.network, s.x, s.y, Loss::hinge, out, workspace); });
  };
  CHECK(into(gradient) == "loss_and_gradient: gradient has shape [2,2], expected [3,2] (same shape as the weights)");
  CHECK((gradient.array() == 5).all());
  CHECK(into(s.network.weights) == "loss_and_gradient: gradient overlaps an input");
  CHECK(into(View<double, 2>(s.x.data(), {3, 2})) == "loss_and_gradient: gradient overlaps an input");
  Vector<double> f(3);
  CHECK(message_of<InvalidArgument>([&] { forward(s.network, s.x, f, workspace); }) ==
        "forward: out has shape [3], expected [4] (one a sample)");
  CHECK(message_of<InvalidArgument>([&] { forward(s.network, s.x, View<double, 1>(s.x.data(), {4}), workspace); }) ==
        "forward: out overlaps x");
  CHECK(message_of<InvalidArgument>([&] { (void)pre_activations(s.network, s.x.leftCols(1)); }) ==
        "pre_activations: x has shape [4,1], expected [4,2] (one column an input of the network)");
  CHECK(message_of<InvalidArgument>([&] { (void)evaluate(s.network, s.x, f, Loss::hinge); }) ==
        "evaluate: y has shape [3], expected [4] (one label a sample)");

  CHECK(message_of<InvalidArgument>([&] { sgd_step(s.network, gradient, 0.1, 0); }) ==
        "sgd_step: gradient has shape [2,2], expected [3,2] (same shape as the weights)");
  gradient.resize(3, 2);
  CHECK(message_of<InvalidArgument>([&] { sgd_step(s.network, gradient, 0, 0); }) ==
        "sgd_step: learning_rate must be positive and finite, got 0");
  CHECK(message_of<InvalidArgument>([&] { sgd_step(s.network, gradient, nan, 0); }) ==
        "sgd_step: learning_rate must be positive and finite, got nan");
  CHECK(message_of<InvalidArgument>([&] { sgd_step(s.network, gradient, 1, -1); }) ==
        "sgd_step: weight_decay must be finite and not negative, got -1");
}

}  // namespace
}  // namespace ashlar::dynamics
