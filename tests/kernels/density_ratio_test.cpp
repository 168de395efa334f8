#include "ashlar/kernels/density_ratio.hpp"

#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <tuple>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/kernels/density_ratio_nystrom.hpp"
#include "ashlar/kernels/density_ratio_selection.hpp"
#include "ashlar/kernels/kulsif_path.hpp"
#include "kernels/samples.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::kernels {
namespace {

using linalg::RbfKernel;
using test::message_of;

/// r_t = w l'(K c_t) + lambda (c_t - c_(t-1)), which is zero at the solution, over max w.
double stationarity(Loss loss, const Matrix<double>& gram, const Matrix<double>& c, const Vector<double>& w, Index m,
                    double lambda) {
  double worst = 0;
  Vector<double> previous = Vector<double>::Zero(c.rows());
  for (Index t = 0; t < c.cols(); ++t) {
    const Vector<double> v = gram * c.col(t);
    for (Index i = 0; i < v.size(); ++i) {
      const double slope = loss_terms(loss, i < m ? Side::numerator : Side::denominator, v[i]).slope;
      worst = std::max(worst, std::abs(w[i] * slope + lambda * (c(i, t) - previous[i])));
    }
    previous = c.col(t);
  }
  return worst / w.maxCoeff();
}

TEST_CASE("kernels.density_ratio: coefficients and predictions and losses match the fixtures of all five losses") {
  const Matrix<double> x_p = data("x_p"), x_q = data("x_q"), x_test = data("x_test"), params = data("params");
  const RbfKernel kernel(params(0), 1);
  const std::map<Loss, std::string> files{{Loss::kulsif, "kulsif"},
                                          {Loss::logistic, "lr"},
                                          {Loss::exponential, "exp"},
                                          {Loss::square, "sq"},
                                          {Loss::kliep, "kliep"}};
  for (const Loss loss : all_losses) {
    const std::string file = files.at(loss);
    INFO(file);
    const auto model = fit_density_ratio(x_p, x_q, kernel, {.loss = loss, .lambda = params(1), .iterations = 5});
    CHECK(relative(model.coefficients().transpose(), data(file + "_coef")) <= 1e-6);
    const Matrix<double> ratios = data(file + "_ratio_test");
    for (int t = 1; t <= 5; ++t) {
      CHECK(relative(model.ratio(x_test, t).transpose(), ratios.row(t - 1)) <= 1e-8);
      if (loss == Loss::kulsif) continue;
      CHECK(relative(model.score(x_test, t).transpose(), data(file + "_f_test").row(t - 1)) <= 1e-8);
      CHECK(std::abs(model.empirical_loss(x_p, x_q, t) - data(file + "_emp_loss")(t - 1)) <= 1e-8);
    }
  }
}

TEST_CASE("kernels.density_ratio: the default kernel is the one of the fixture") {
  CHECK(std::abs(density_ratio_kernel(data("x_p"), data("x_q")).gamma() / data("params")(0) - 1) <= 1e-13);
  CHECK(density_ratio_kernel(data("x_p"), data("x_q")).offset() == 1);
}

TEST_CASE("kernels.density_ratio: the KuLSIF closed form equals the Newton template") {
  const Samples<> s(1);
  const RbfKernel kernel(0.6, 1);
  const Matrix<double> gram = linalg::gram(kernel, s.pooled());
  const Vector<double> p = s.weights().head(25), q = s.weights().tail(35);
  const Matrix<double> newton = reference::iterated_density_ratio(Loss::kulsif, gram, p, q, 0.02, 6);
  const auto model = fit_density_ratio(s.p, s.q, kernel, {.lambda = 0.02, .iterations = 6});
  CHECK(relative(model.coefficients(), newton) <= 1e-10);
  CHECK(relative(reference::kulsif(gram, 25, 0.02, 6), newton) <= 1e-10);
  CHECK(model.report().rcond > 0);
  CHECK_FALSE(model.report().ldlt);
}

TEST_CASE("kernels.density_ratio: every loss is stationary after every iteration") {
  for (const std::uint64_t seed : {2u, 3u})
    for (const double lambda : {10.0, 0.1, 1e-3, 1e-4}) {
      const Samples<> s(seed);
      const RbfKernel kernel(0.6, 1);
      const Matrix<double> gram = linalg::gram(kernel, s.pooled());
      for (const Loss loss : all_losses) {
        INFO(name(loss) << ", lambda = " << lambda << ", seed = " << seed);
        const auto model = fit_density_ratio(s.p, s.q, kernel, {.loss = loss, .lambda = lambda, .iterations = 4});
        CHECK(stationarity(loss, gram, model.coefficients(), s.weights(), 25, lambda) <= 1e-9);
      }
    }
}

TEST_CASE("kernels.density_ratio: small lambda converges to the rounding floor") {
  const Samples<> s(4);
  const RbfKernel kernel(0.6, 1);
  const Matrix<double> gram = linalg::gram(kernel, s.pooled());
  for (const Loss loss : all_losses) {
    INFO(name(loss));
    const auto model = fit_density_ratio(s.p, s.q, kernel, {.loss = loss, .lambda = 1e-6, .iterations = 2});
    // r carries rounding of K c, about eps |K| |c|, and |c| grows as 1 / lambda.
    const double floor =
        100 * 2.2e-16 * gram.rowwise().norm().maxCoeff() * model.coefficients().colwise().norm().maxCoeff();
    const double slope_scale = loss == Loss::kliep || loss == Loss::exponential ? 50 : 2;  // l'' multiplies it
    CHECK(stationarity(loss, gram, model.coefficients(), s.weights(), 25, 1e-6) <= std::max(1e-7, slope_scale * floor));
  }
}

TEST_CASE("kernels.density_ratio: values at Q follow their own recursion") {
  const Samples<> s(5);
  const RbfKernel kernel(0.4, 1);
  const double lambda = 0.03;
  const Matrix<double> k_qq = linalg::gram(kernel, s.q);
  const Vector<double> pull = linalg::row_sums(kernel, s.q, s.p) / (lambda * 25);
  const Matrix<double> system = Matrix<double>::Identity(35, 35) + k_qq / (35 * lambda);
  const Matrix<double> f = fit_density_ratio(s.p, s.q, kernel, {.lambda = lambda, .iterations = 5}).scores(s.q);
  Vector<double> u = Vector<double>::Zero(35);
  for (Index t = 0; t < 5; ++t) {
    u = system.partialPivLu().solve(u + pull).eval();
    CHECK(relative(f.col(t), u) <= 1e-10);
  }
}

TEST_CASE("kernels.density_ratio: one iteration is the textbook KuLSIF estimator") {
  const Samples<> s(6);
  const RbfKernel kernel(0.4, 1);
  const double lambda = 0.07;
  Matrix<double> system = linalg::gram(kernel, s.q);
  system.diagonal().array() += 35 * lambda;
  const Vector<double> alpha = -system.partialPivLu().solve(linalg::row_sums(kernel, s.q, s.p)) / (25 * lambda);
  const auto model = fit_density_ratio(s.p, s.q, kernel, {.lambda = lambda});
  CHECK(relative(model.coefficients().col(0).tail(35), alpha) <= 1e-12);
  CHECK(relative(model.coefficients().col(0).head(25), Vector<double>::Constant(25, 1 / (25 * lambda))) <= 1e-15);
}

TEST_CASE("kernels.density_ratio: the gradient of the objective in c is K r") {
  const Samples<> s(7, 8, 9);
  const Matrix<double> gram = linalg::gram(RbfKernel(0.5, 1), s.pooled());
  const Vector<double> w = s.weights();
  const double lambda = 0.2, h = 1e-5;
  Rng rng(7);
  const Vector<double> c = normal_matrix<double>(rng, 17, 1, 0.2).col(0),
                       previous = normal_matrix<double>(rng, 17, 1, 0.2).col(0);
  for (const Loss loss : all_losses) {
    INFO(name(loss));
    const auto objective = [&](const Vector<double>& at) {
      const auto sum = detail::sample_loss<double>(loss, gram * at, w, 8);
      return sum.value + lambda / 2 * (at - previous).dot(gram * (at - previous));
    };
    const Vector<double> r = detail::sample_loss<double>(loss, gram * c, w, 8).slope + lambda * (c - previous);
    const Vector<double> gradient = gram * r;
    for (Index i = 0; i < 17; ++i) {
      Vector<double> step = Vector<double>::Zero(17);
      step[i] = h;
      const double difference = (objective(c + step) - objective(c - step)) / (2 * h);
      CHECK(std::abs(difference - gradient[i]) <= 1e-6 * gradient.cwiseAbs().maxCoeff());
    }
  }
}

TEST_CASE("kernels.density_ratio: conjugate gradients on tiles equal the factorisation") {
  const Samples<> s(9, 60, 90);
  const RbfKernel kernel(0.5, 1);
  for (const Loss loss : all_losses) {
    INFO(name(loss));
    DensityRatioOptions options{.loss = loss, .lambda = 0.01, .iterations = 3, .solver = Solver::cholesky};
    const auto direct = fit_density_ratio(s.p, s.q, kernel, options);
    options.solver = Solver::conjugate_gradient;
    const auto iterative = fit_density_ratio(s.p, s.q, kernel, options);
    CHECK(relative(iterative.scores(s.p), direct.scores(s.p)) <= 1e-7);
    CHECK(iterative.report().solver == Solver::conjugate_gradient);
  }
}

TEST_CASE("kernels.density_ratio: the training loss does not increase with t") {
  for (const std::uint64_t seed : {12u, 13u, 14u}) {
    const Samples<> s(seed);
    for (const Loss loss : all_losses) {
      INFO(name(loss) << ", seed = " << seed);
      const auto model = fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), {.loss = loss, .lambda = 0.1, .iterations = 8});
      const Vector<double> r = model.empirical_losses(s.p, s.q);
      for (Index t = 1; t < 8; ++t) CHECK(r[t] <= r[t - 1] + 1e-12 * std::abs(r[t - 1]));
      CHECK(r[7] < r[0]);
      CHECK(std::abs(model.empirical_loss(s.p, s.q) - r[7]) <= 1e-13 * std::abs(r[7]));
    }
  }
}

TEST_CASE("kernels.density_ratio: the scale of weights does not matter") {
  const Samples<> s(15);
  Rng rng(15);
  const Vector<double> w_p = normal_matrix<double>(rng, 25, 1).col(0).cwiseAbs(),
                       w_q = normal_matrix<double>(rng, 35, 1).col(0).cwiseAbs();
  for (const Loss loss : all_losses) {
    const DensityRatioOptions options{.loss = loss, .lambda = 0.05, .iterations = 3};
    const auto one = fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), options, w_p, w_q);
    const auto other = fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), options, (7 * w_p).eval(), (0.01 * w_q).eval());
    CHECK(relative(other.coefficients(), one.coefficients()) <= 1e-9);
    const auto plain = fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), options);
    CHECK(relative(plain.coefficients(), one.coefficients()) > 1e-3);
  }
}

TEST_CASE("kernels.density_ratio: the weighted closed form equals the Newton template with the same weights") {
  const Samples<> s(16);
  Rng rng(16);
  Vector<double> w_p = normal_matrix<double>(rng, 25, 1).col(0).cwiseAbs(),
                 w_q = normal_matrix<double>(rng, 35, 1).col(0).cwiseAbs();
  w_p[3] = w_q[5] = 0;
  w_p /= w_p.sum();
  w_q /= w_q.sum();
  const Matrix<double> gram = linalg::gram(RbfKernel(0.5, 1), s.pooled());
  const Matrix<double> newton = reference::iterated_density_ratio<double>(Loss::kulsif, gram, w_p, w_q, 0.03, 4);
  const auto model = fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), {.lambda = 0.03, .iterations = 4}, w_p, w_q);
  CHECK(relative(model.coefficients(), newton) <= 1e-10);
  const auto path = fit_kulsif_path(s.p, s.q, RbfKernel(0.5, 1), {0.03}, 4, w_p, w_q);
  CHECK(relative(path.model(0).coefficients(), newton) <= 1e-10);
}

TEST_CASE("kernels.density_ratio: a point of weight zero is a point left out") {
  const Samples<> s(17);
  Vector<double> w_p = Vector<double>::Ones(25), w_q = Vector<double>::Ones(35);
  w_p[24] = w_q[34] = 0;
  for (const Loss loss : all_losses) {
    INFO(name(loss));
    const DensityRatioOptions options{.loss = loss, .lambda = 0.05, .iterations = 3};
    const auto weighted = fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), options, w_p, w_q);
    const auto without = fit_density_ratio(s.p.topRows(24), s.q.topRows(34), RbfKernel(0.5, 1), options);
    CHECK(relative(weighted.scores(s.p), without.scores(s.p)) <= 1e-8);
    CHECK(weighted.coefficients().row(24).isZero(0));
    CHECK(weighted.coefficients().row(59).isZero(0));
  }
}

TEST_CASE("kernels.density_ratio: iterations lift the saturation of the exact filter and of the public fit") {
  const Matrix<double> grid = data("sat_grid"), target = data("sat_target"), lambdas = data("sat_lambda"),
                       errors = data("sat_err"), slopes = data("sat_slope");
  const RbfKernel kernel(8, 0);
  const Index count = lambdas.size();
  Matrix<double> measured(4, count);
  for (Index i = 0; i < count; ++i) {
    const Vector<double> w_p = target.col(0);
    REQUIRE(w_p.minCoeff() > 0);
    const auto model = fit_density_ratio(grid, grid, kernel, {.lambda = lambdas(i), .iterations = 4}, w_p);
    for (int t = 1; t <= 4; ++t) {
      const Vector<double> error = w_p.mean() * model.ratio(grid, t) - w_p;
      measured(t - 1, i) = std::sqrt(error.squaredNorm() / 64);
      CHECK(std::abs(measured(t - 1, i) - errors(t - 1, i)) <= 1e-12);
    }
  }
  for (Index t = 0; t < 3; ++t) {
    const Vector<double> x = lambdas.col(0).tail(9).array().log(), y = measured.row(t).tail(9).array().log();
    const Vector<double> centred = x.array() - x.mean();
    const double slope = centred.dot(y) / centred.squaredNorm();
    // Errors of t = 3 fall to 1e-12, the rounding of coefficients of size t / lambda: one point in nine is off by a
    // part.
    CHECK(std::abs(slope - slopes(t)) <= (t < 2 ? 1e-5 : 0.03));
    CHECK(std::abs(slope - static_cast<double>(t + 1)) <= 0.04);
  }
}

TEST_CASE("kernels.density_ratio: equal samples have ratio one") {
  const Samples<> s(18);
  for (const Loss loss : {Loss::logistic, Loss::exponential, Loss::square, Loss::kliep}) {
    INFO(name(loss));
    const auto model = fit_density_ratio(s.p, s.p, RbfKernel(0.5, 1), {.loss = loss, .lambda = 0.1, .iterations = 3});
    for (int t = 1; t <= 3; ++t) CHECK((model.ratio(s.q, t).array() - 1).abs().maxCoeff() <= 1e-12);
  }
  const auto kulsif = fit_density_ratio(s.p, s.p, RbfKernel(0.5, 1), {.lambda = 1e-3, .iterations = 2000});
  CHECK((kulsif.ratio(s.p, 2000).array() - 1).abs().maxCoeff() <= 2e-3);
  CHECK((kulsif.ratio(s.p, 1).array() - 1).abs().maxCoeff() > (kulsif.ratio(s.p, 2000).array() - 1).abs().maxCoeff());
}

TEST_CASE("kernels.density_ratio: very large lambda moves f by t over lambda times the difference of the embeddings") {
  const Samples<> s(19);
  const RbfKernel kernel(0.5, 1);
  const double lambda = 1e8;
  const Vector<double> embedding_p = linalg::row_sums(kernel, s.q, s.p) / 25,
                       embedding_q = linalg::row_sums(kernel, s.q, s.q) / 35;
  for (const Loss loss : all_losses) {
    INFO(name(loss));
    const auto model = fit_density_ratio(s.p, s.q, kernel, {.loss = loss, .lambda = lambda, .iterations = 3});
    const double slope_p = loss_terms(loss, Side::numerator, 0.0).slope,
                 slope_q = loss_terms(loss, Side::denominator, 0.0).slope;
    const Vector<double> expected = -(slope_p * embedding_p + slope_q * embedding_q) * 3 / lambda;
    CHECK(relative(model.score(s.q), expected) <= 1e-6);
  }
}

TEST_CASE("kernels.density_ratio: single points and duplicated points are valid") {
  const Samples<> s(20, 1, 1);
  Matrix<double> twice_p(6, 2), twice_q(8, 2);
  Rng rng(20);
  twice_p << normal_matrix<double>(rng, 3, 2), Matrix<double>::Zero(3, 2);
  twice_q << normal_matrix<double>(rng, 4, 2), Matrix<double>::Zero(4, 2);
  twice_p.bottomRows(3) = twice_p.topRows(3);
  twice_q.bottomRows(4) = twice_q.topRows(4);
  for (const Loss loss : all_losses) {
    INFO(name(loss));
    const DensityRatioOptions options{.loss = loss, .lambda = 0.1, .iterations = 2};
    CHECK(fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), options).ratio(s.q).allFinite());
    const auto doubled = fit_density_ratio(twice_p, twice_q, RbfKernel(0.5, 1), options);
    const auto once = fit_density_ratio(twice_p.topRows(3), twice_q.topRows(4), RbfKernel(0.5, 1), options);
    CHECK(relative(doubled.scores(twice_p), once.scores(twice_p)) <= 1e-9);
    CHECK(relative(fit_density_ratio_nystrom(twice_p, twice_q, RbfKernel(0.5, 1), twice_q, options).scores(twice_q),
                   fit_density_ratio_nystrom(twice_p, twice_q, RbfKernel(0.5, 1), twice_q.topRows(4), options)
                       .scores(twice_q)) <= 1e-6);
  }
}

TEST_CASE("kernels.density_ratio: a precomputed Gram matrix and a kernel of two points give the same fit") {
  const Samples<> s(21);
  const RbfKernel kernel(0.5, 1);
  const Matrix<double> gram = linalg::gram(kernel, s.pooled());
  const linalg::PrecomputedKernel<double> table{View<const double, 2>(gram)};
  const auto by_hand = [](View<const double, 1> x, View<const double, 1> y) {
    return 1 + std::exp(-0.5 * (vector(x) - vector(y)).squaredNorm());
  };
  const auto rows_p = table.indices(0, 25), rows_q = table.indices(25, 60);
  for (const Loss loss : {Loss::kulsif, Loss::logistic}) {
    const DensityRatioOptions options{.loss = loss, .lambda = 0.05, .iterations = 3};
    const auto usual = fit_density_ratio(s.p, s.q, kernel, options);
    const auto tabulated = fit_density_ratio(rows_p, rows_q, table, options);
    const auto handmade = fit_density_ratio(s.p, s.q, by_hand, options);
    CHECK(relative(tabulated.scores(rows_q), usual.scores(s.q)) <= 1e-9);
    CHECK(relative(handmade.scores(s.q), usual.scores(s.q)) <= 1e-9);
  }
  Rng rng(21);
  CHECK(select_density_ratio(rows_p, rows_q, table, {.max_iterations = 3}, rng).lambda > 0);
}

TEST_CASE("kernels.density_ratio: negative ratios are kept unless clipping is asked for") {
  const Samples<> s(22);
  Matrix<double> far = s.q;
  far.array() -= 3;
  for (const Loss loss : {Loss::kulsif, Loss::square}) {
    DensityRatioOptions options{.loss = loss, .lambda = 1e-4, .iterations = 5};
    CHECK(fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), options).ratio(far).minCoeff() < 0);
    options.clip_nonnegative = true;
    const Vector<double> clipped = fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), options).ratio(far);
    CHECK(clipped.minCoeff() >= 0);
    CHECK(clipped.allFinite());
  }
  CHECK(clipped_link(Loss::square, 5.0) == (2 - 1e-12) / (1 - (1 - 1e-12)));
  CHECK(clipped_link(Loss::square, -5.0) == 0);
}

TEST_CASE("kernels.density_ratio: log ratios stay finite where the KLIEP ratio overflows") {
  Matrix<double> p(2, 1), q(2, 1);
  p << 40, 41;
  q << 0, 1;
  const auto model = fit_density_ratio(p, q, RbfKernel(1, 0), {.loss = Loss::kliep, .lambda = 1e-6});
  CHECK(std::isinf(model.ratio(p)[0]));
  CHECK(std::isfinite(model.log_ratio(p)[0]));
  CHECK(model.log_ratio(p)[0] > 1e5);
}

TEST_CASE("kernels.density_ratio: float agrees with double to its precision") {
  const Samples<double> s(23);
  const Samples<float> f(23);
  for (const Loss loss : all_losses) {
    INFO(name(loss));
    const DensityRatioOptions options{.loss = loss, .lambda = 0.1, .iterations = 4};
    const Matrix<double> exact = fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), options).scores(s.q);
    const Matrix<float> scores = fit_density_ratio(f.p, f.q, RbfKernel(0.5, 1), options).scores(f.q);
    // Condition of the systems times a few hundred roundings: |K| / lambda is about 12.
    CHECK(relative(scores.cast<double>(), exact) <= 1e-4);
    // The basis of the centres has condition up to jitter^-1/2 = 3000 in float.
    CHECK(relative(fit_density_ratio_nystrom(f.p, f.q, RbfKernel(0.5, 1), f.q, options).scores(f.q).cast<double>(),
                   fit_density_ratio_nystrom(s.p, s.q, RbfKernel(0.5, 1), s.q, options).scores(s.q)) <= 1e-3);
  }
  CHECK(relative(fit_kulsif_path(f.p, f.q, RbfKernel(0.5, 1), {1.0, 0.1}, 2).scores(f.q).cast<double>(),
                 fit_kulsif_path(s.p, s.q, RbfKernel(0.5, 1), {1.0, 0.1}, 2).scores(s.q)) <= 1e-4);
}

TEST_CASE("kernels.density_ratio: bits do not depend on the number of threads") {
  const Samples<> s(24, 150, 200);
  const auto run = [&](int threads) {
    return test::with_threads(threads, [&] {
      Rng rng(1);
      return std::tuple(
          fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), {.iterations = 3}).scores(s.q),
          fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), {.loss = Loss::logistic, .iterations = 2}).scores(s.q),
          fit_density_ratio_nystrom(s.p, s.q, RbfKernel(0.5, 1), s.q, {.loss = Loss::kliep}).scores(s.q),
          fit_kulsif_path(s.p, s.q, RbfKernel(0.5, 1), {1, 0.1, 0.01}, 3).scores(s.q),
          select_density_ratio(s.p, s.q, RbfKernel(0.5, 1), {.max_iterations = 2}, rng).losses);
    });
  };
  const auto one = run(1);
  CHECK(one == run(2));
  CHECK(one == run(5));
}

TEST_CASE("kernels.density_ratio: prediction into a grown workspace allocates nothing") {
  const Samples<> s(25);
  const auto model = fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), {.iterations = 2});
  Vector<double> f(35);
  Workspace workspace;
  model.score(s.q, f, workspace);
  test::with_threads(1, [&] { CHECK(test::allocations([&] { model.score(s.q, f, workspace, 1); }) == 0); });
  CHECK(f == model.score(s.q, 1));
}

TEST_CASE("kernels.density_ratio: early stopping keeps the best so far instead of throwing") {
  const Samples<> s(26);
  DensityRatioOptions options{.loss = Loss::kliep, .lambda = 1e-3, .max_newton_steps = 1};
  const auto words = message_of<NumericalError>([&] { fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), options); });
  CHECK(words.starts_with("fit_density_ratio: the kliep loss did not converge after 1 Newton steps, the residual is "));
  options.require_convergence = false;
  const auto early = fit_density_ratio(s.p, s.q, RbfKernel(0.5, 1), options);
  CHECK(early.report().newton_steps == 1);
  CHECK(early.report().residual > 1e-10);
  CHECK(early.empirical_loss(s.p, s.q) < 1);  // R(0) of kliep
}

TEST_CASE("kernels.density_ratio: divergences of two normals come near their closed forms") {
  Rng rng(29);
  const Index n = 400;
  const double gap = 0.8;
  const auto draw = [&](double mean) { return (normal_matrix<double>(rng, n, 1).array() + mean).matrix().eval(); };
  const Matrix<double> p = draw(gap), q = draw(0), fresh_p = draw(gap), fresh_q = draw(0);
  const Matrix<double> centres = nystrom_centres(p, q, 50, rng);
  // numerical integrals over the line for the two without a closed form
  double js = 0, triangular = 0;
  for (double x = -8; x < 9; x += 1e-3) {
    const double a = std::exp(-(x - gap) * (x - gap) / 2) / std::sqrt(2 * std::numbers::pi),
                 b = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    js += 1e-3 * (a * std::log(2 * a / (a + b)) + b * std::log(2 * b / (a + b))) / 2;
    triangular += 1e-3 * (a - b) * (a - b) / (a + b);
  }
  const std::map<Loss, double> exact{{Loss::kulsif, (std::exp(gap * gap) - 1) / 2},
                                     {Loss::logistic, js},
                                     {Loss::exponential, 1 - std::exp(-gap * gap / 8)},
                                     {Loss::square, triangular},
                                     {Loss::kliep, gap * gap / 2}};
  for (const auto& [loss, value] : exact) {
    INFO(name(loss));
    const auto model =
        fit_density_ratio_nystrom(p, q, RbfKernel(0.5, 1), centres, {.loss = loss, .lambda = 0.02, .iterations = 5});
    // Means over 400 points scatter by a few hundredths of the deviation of the terms, which is of the order of one.
    CHECK(std::abs(divergence(model, fresh_p, fresh_q) - value) <= 0.25 * value + 0.02);
  }
}

TEST_CASE("kernels.density_ratio: weights and scores by their formulas") {
  const std::vector<double> w{1, 0, 3};
  CHECK(normalized_weights(w) == Eigen::Vector3d(0.75, 0, 2.25));
  CHECK(effective_sample_size(w) == 1.6);
  CHECK(effective_sample_size(std::vector<double>{2, 2, 2, 2}) == 4);
  CHECK(effective_sample_size(std::vector<double>{0, 0}) == 0);
  const double a = 1 / (2 + 1e-5), b = 2 / (3 + 1e-5);
  const double c = 3 / (2 + 1e-5), d = 4 / (3 + 1e-5);
  CHECK(std::abs(normalized_mse(std::vector<double>{1, 3}, std::vector<double>{2, 4}) -
                 ((a - b) * (a - b) + (c - d) * (c - d)) / 2) <= 1e-15);
  CHECK_THROWS_AS(normalized_weights(std::vector<double>{0, 0}), InvalidArgument);
  CHECK_THROWS_AS(effective_sample_size(std::vector<double>{}), InvalidArgument);
}

TEST_CASE("kernels.density_ratio: bad arguments are refused in words") {
  const Samples<> s(30);
  const RbfKernel kernel(1, 1);
  const auto words = [&](const Matrix<double>& p, const Matrix<double>& q, const DensityRatioOptions& options,
                         const Vector<double>& w_p = {}) {
    const auto full = message_of<InvalidArgument>([&] { fit_density_ratio(p, q, kernel, options, w_p); });
    CHECK_THROWS_AS(fit_density_ratio_nystrom(p, q, kernel, s.q, options, w_p), InvalidArgument);
    CHECK_THROWS_AS(fit_kulsif_path(p, q, kernel, {options.lambda}, options.iterations, w_p), InvalidArgument);
    return full;
  };
  CHECK(words(s.p.topRows(0), s.q, {}) == "fit_density_ratio: x_p is empty");
  CHECK(words(s.p, s.q.topRows(0), {}) == "fit_density_ratio: x_q is empty");
  CHECK(words(s.p, s.q.leftCols(1), {}) ==
        "fit_density_ratio: x_q has shape [35,1], expected [35,2] (same dimension as x_p)");
  CHECK(words(s.p, s.q, {.lambda = 0}) == "fit_density_ratio: lambda must be positive and finite, got 0");
  CHECK(words(s.p, s.q, {.lambda = NAN}) == "fit_density_ratio: lambda must be positive and finite, got nan");
  CHECK(words(s.p, s.q, {.iterations = 0}) == "fit_density_ratio: iterations must be at least 1, got 0");
  CHECK(words(s.p * NAN, s.q, {}) == "fit_density_ratio: x_p has an entry that is not finite");
  CHECK(words(s.p, s.q, {}, Vector<double>::Ones(24)) ==
        "fit_density_ratio: w_p has shape [24], expected [25] (one weight a point)");
  CHECK(words(s.p, s.q, {}, -Vector<double>::Ones(25)) ==
        "fit_density_ratio: w_p must be finite, not negative and not all zero");
  CHECK(words(s.p, s.q, {}, Vector<double>::Zero(25)) ==
        "fit_density_ratio: w_p must be finite, not negative and not all zero");
  const auto model = fit_density_ratio(s.p, s.q, kernel, {.iterations = 3});
  CHECK(message_of<InvalidArgument>([&] { model.ratio(s.q, 4); }) ==
        "DensityRatio: t must be between 1 and 3, or 0 for the last iteration, got 4");
  CHECK(message_of<InvalidArgument>([&] { model.ratio(s.q, -1); }) ==
        "DensityRatio: t must be between 1 and 3, or 0 for the last iteration, got -1");
  CHECK(message_of<InvalidArgument>([&] { model.ratio(s.q.leftCols(1)); }) ==
        "KernelTiles::multiply: x has shape [35,1], expected [35,2] (same dimension as the points packed)");
  CHECK(message_of<NumericalError>([] {
          density_ratio_kernel(Matrix<double>::Ones(3, 2).eval(), Matrix<double>::Ones(4, 2).eval());
        }) == "median_distance: no two points differ, so there is no positive distance");
  Rng rng(1);
  CHECK(message_of<InvalidArgument>([&] { nystrom_centres(s.p, s.q, 61, rng); }) ==
        "nystrom_centres: count must be between 1 and the 60 pooled points, got 61");
  CHECK(message_of<InvalidArgument>([&] { select_density_ratio(s.p.topRows(1), s.q, kernel, {}, rng); }) ==
        "select_density_ratio: samples of 1 and 35 points cannot be split into 5 parts");
  CHECK(message_of<InvalidArgument>([&] { select_density_ratio(s.p, s.q, kernel, {.folds = 0}, rng); }) ==
        "select_density_ratio: folds must be at least 1, got 0");
}

}  // namespace
}  // namespace ashlar::kernels
