#include "ashlar/diffusion/guided_sampler.hpp"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/numerics/wasserstein.hpp"
#include "diffusion/mixtures.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::diffusion {
namespace {

using test::message_of;
using test::worst_gap;

constexpr Step every_step[] = {Step::euler, Step::exponential, Step::alpha, Step::heun, Step::rk4};
constexpr Step affine_steps[] = {Step::euler, Step::exponential, Step::alpha};
const std::vector<std::pair<Step, std::string>> oracle_steps{
    {Step::euler, "euler"}, {Step::exponential, "exp"}, {Step::alpha, "alpha"}};

/// The same score as a function that knows nothing of blocks.
auto as_function(const MixtureScore<double>& score) {
  return [&score](View<const double, 2> x, double t, View<double, 2> out, View<double, 1> divergence = {}) {
    reference::guided_score(score.mixture(), x, t, score.label(), score.guidance(), out, divergence);
  };
}

TEST_CASE("diffusion.guided_sampler: DDIM and DDPM follow the oracle step by step") {
  for (const std::string& name : test::fixture_names) {
    const double tolerance = name == "narrow2_2d" ? 1e-7 : 1e-9;
    const GaussianMixture mixture = test::fixture_mixture(name);
    const auto times = test::array(name + "_grid"), etas = test::array(name + "_eta"),
               start = test::array(name + "_x0");
    const auto noise = test::array(name + "_Z"), logdets = test::array(name + "_ddim_euler_logdet");
    const TimeGrid grid(std::vector<double>(times.data(), times.data() + times.size()));
    for (const auto& [step, label] : oracle_steps) {
      const auto ddim = test::array(name + "_ddim_" + label), ddpm = test::array(name + "_ddpm_" + label);
      for (Index e = 0; e < etas.size(); ++e) {
        INFO(name << " " << label << " eta " << etas.data()[e]);
        const MixtureScore<double> score(mixture, 1, {.strength = etas.data()[e]});
        Matrix<double> x = start.matrix();
        Vector<double> logdet(x.rows());
        ddim_sample(score, x, grid, step, logdet);
        CHECK(worst_gap(x, matrix(ddim.view<3>()[e])) <= tolerance);
        if (step == Step::euler) CHECK(worst_gap(logdet, vector(logdets.view<2>()[e])) <= tolerance);
        x = start.matrix();
        ddpm_sample(score, x, grid, step, noise.view<3>());
        CHECK(worst_gap(x, matrix(ddpm.view<3>()[e])) <= tolerance);
      }
    }
  }
}

TEST_CASE("diffusion.guided_sampler: fine Runge-Kutta steps reach the flow and log-determinants of the oracle") {
  for (const std::string& name : test::fixture_names) {
    const double tolerance = name == "narrow2_2d" ? 1e-4 : 1e-6;
    const GaussianMixture mixture = test::fixture_mixture(name);
    const auto etas = test::array(name + "_eta"), start = test::array(name + "_x0");
    const auto exact = test::array(name + "_ddim_exact"), logdets = test::array(name + "_ddim_exact_logdet");
    const auto confidences = test::array(name + "_ddim_exact_conf");
    for (Index e = 0; e < etas.size(); ++e) {
      INFO(name << " eta " << etas.data()[e]);
      Matrix<double> x = start.matrix();
      Vector<double> logdet(x.rows());
      ddim_sample(MixtureScore<double>(mixture, 1, {.strength = etas.data()[e]}), x, TimeGrid::graded(4, 1500),
                  Step::rk4, logdet);
      CHECK(worst_gap(x, matrix(exact.view<3>()[e])) <= tolerance);
      CHECK(worst_gap(logdet, vector(logdets.view<2>()[e])) <= tolerance);
      CHECK(worst_gap(mixture.posterior(x, 0).col(1), vector(confidences.view<2>()[e])) <= tolerance);
    }
  }
}

TEST_CASE("diffusion.guided_sampler: every step of both processes is the reference with and without blocks") {
  Rng rng(21);
  for (const auto kind : {CovarianceKind::isotropic, CovarianceKind::full}) {
    const auto mixture = test::random_mixture(rng, 3, 2, kind, kind == CovarianceKind::isotropic);
    const Index n = 333;
    std::vector<Index> labels;
    std::vector<double> etas;
    for (Index i = 0; i < n; ++i) labels.push_back(rng.below(3)), etas.push_back(rng.uniform(0, 3));
    const MixtureScore<double> score(mixture, labels, {.strength = etas, .schedule = guidance_interval(0.1, 2)});
    const auto start = normal_matrix<double>(rng, n, 2);
    const TimeGrid grid = TimeGrid::graded(4, 15, 2, 0.01);
    Tensor<double> noise = normal_tensor<double>(rng, {15, n, 2});
    for (const Step step : every_step) {
      INFO("kind " << static_cast<int>(kind) << " step " << static_cast<int>(step));
      Matrix<double> expected = start, blocks = start, plain = start, quiet = start;
      Vector<double> expected_logdet(n), logdet(n), plain_logdet(n);
      reference::ddim_sample(as_function(score), expected, grid, step, expected_logdet);
      ddim_sample(score, blocks, grid, step, logdet);
      ddim_sample(as_function(score), plain, grid, step, plain_logdet);
      ddim_sample(score, quiet, grid, step);
      CHECK(worst_gap(blocks, expected) <= 1e-10);
      CHECK(worst_gap(logdet, expected_logdet) <= 1e-10);
      CHECK(worst_gap(plain, expected) <= 1e-10);
      CHECK(worst_gap(plain_logdet, expected_logdet) <= 1e-10);
      CHECK(worst_gap(quiet, blocks) == 0);
      if (step == Step::heun || step == Step::rk4) continue;
      for (const auto variance : {AncestralVariance::small, AncestralVariance::large}) {
        expected = blocks = plain = start;
        reference::ddpm_sample(as_function(score), expected, grid, step, noise.view<3>(), variance);
        ddpm_sample(score, blocks, grid, step, noise.view<3>(), variance);
        ddpm_sample(as_function(score), plain, grid, step, noise.view<3>(), variance);
        CHECK(worst_gap(blocks, expected) <= 1e-10);
        CHECK(worst_gap(plain, expected) <= 1e-10);
        // Drawn noise is the noise of the block whatever the score.
        Rng one(5), two(5);
        blocks = plain = start;
        ddpm_sample(score, blocks, grid, step, one, variance);
        ddpm_sample(as_function(score), plain, grid, step, two, variance);
        CHECK(worst_gap(plain, blocks) <= 1e-10);
      }
    }
  }
}

TEST_CASE("diffusion.guided_sampler: the flow of unit covariance moves every start by the mean") {
  const auto mixture = test::on_a_circle(3, 2);
  Rng rng(22);
  for (const double horizon : {1.0, 6.0}) {
    const auto start = normal_matrix<double>(rng, 50, 2);
    Matrix<double> x = start;
    Vector<double> logdet(50);
    ddim_sample(MixtureScore<double>(mixture, 1, {}), x, TimeGrid::uniform(horizon, 100), Step::rk4, logdet);
    const Matrix<double> moved = start.rowwise() - std::expm1(-horizon) * mixture.means().row(1);
    CHECK((x - moved).cwiseAbs().maxCoeff() <= 1e-8);
    CHECK(logdet.cwiseAbs().maxCoeff() <= 1e-12);
  }
}

TEST_CASE("diffusion.guided_sampler: errors fall with the order of the step") {
  const auto mixture = test::on_a_line({-1.5, 1}, 0.5);
  const MixtureScore<double> score(mixture, 1, {.strength = 2.0});
  const Matrix<double> start = Vector<double>::LinSpaced(9, -2, 2);
  const auto run = [&](Step step, Index steps) {
    Matrix<double> x = start;
    ddim_sample(score, x, TimeGrid::uniform(3, steps), step);
    return x;
  };
  const Matrix<double> exact = run(Step::rk4, 6400);
  const auto slope = [&](Step step) {
    const double coarse = (run(step, 50) - exact).norm(), fine = (run(step, 400) - exact).norm();
    return std::log2(coarse / fine) / 3;
  };
  CHECK(std::abs(slope(Step::euler) - 1) <= 0.15);
  CHECK(std::abs(slope(Step::exponential) - 1) <= 0.15);
  CHECK(std::abs(slope(Step::heun) - 2) <= 0.15);
  CHECK(std::abs(slope(Step::rk4) - 4) <= 0.15);
  CHECK(std::abs(slope(Step::alpha) - 0.85) <= 0.15);
}

TEST_CASE("diffusion.guided_sampler: the log-determinant is that of the derivative of the flow") {
  Rng rng(23);
  const auto mixture = test::random_mixture(rng, 3, 2, CovarianceKind::full, false);
  const MixtureScore<double> score(mixture, 0, {.strength = 2.0});
  const auto start = normal_matrix<double>(rng, 20, 2);
  const TimeGrid grid = TimeGrid::graded(5, 200);
  const auto flow = [&](Matrix<double> x, Step step, Vector<double>& logdet) {
    ddim_sample(score, x, grid, step, logdet);
    return x;
  };
  double worst[2] = {0, 0};
  for (const Step step : {Step::rk4, Step::euler}) {
    Vector<double> logdet(20), ignored(20);
    flow(start, step, logdet);
    constexpr double h = 1e-5;
    Matrix<double> columns[2];
    for (Index j = 0; j < 2; ++j) {
      Matrix<double> up = start, down = start;
      up.col(j).array() += h, down.col(j).array() -= h;
      columns[j] = (flow(up, step, ignored) - flow(down, step, ignored)) / (2 * h);
    }
    for (Index i = 0; i < 20; ++i) {
      const double det = columns[0](i, 0) * columns[1](i, 1) - columns[0](i, 1) * columns[1](i, 0);
      double& gap = worst[step == Step::euler];
      gap = std::max(gap, std::abs(std::log(std::abs(det)) - logdet[i]));
    }
  }
  CHECK(worst[0] <= 1e-4);
  CHECK(worst[1] >= 10 * worst[0]);  // of euler only the trace of the log: O(h) off
}

TEST_CASE("diffusion.guided_sampler: transported densities are those of the class") {
  Rng rng(24);
  const auto mixture = test::random_mixture(rng, 3, 2, CovarianceKind::full, false);
  const auto start = normal_matrix<double>(rng, 30, 2);
  Matrix<double> x = start;
  Vector<double> logdet(30);
  ddim_sample(MixtureScore<double>(mixture, 1, {}), x, TimeGrid::graded(12, 400, 3), Step::rk4, logdet);
  const Vector<double> density = transported_log_density(start, logdet);
  CHECK(worst_gap(density, mixture.class_log_densities(x, 0).col(1)) <= 1e-4);  // the start is N(0, I) up to e^-12
  CHECK(message_of<InvalidArgument>([&] { transported_log_density(start, logdet.head(3)); }) ==
        "transported_log_density: logdet has shape [3], expected [30] (one a sample)");
}

/// Variance after all steps of DDPM for a class N(mean, deviation^2), from N(0, 1): v becomes (A - B / v_t)^2 v + n^2.
double output_variance(Step step, const TimeGrid& grid, AncestralVariance variance, double data = 1, double start = 1) {
  double v = start;
  for (Index k = 0; k < grid.steps(); ++k) {
    const StepCoefficients c = ddpm_coefficients(step, grid[k], grid[k + 1], variance);
    const double slope = c.state - c.score / ForwardVariance(grid[k])(data);
    v = slope * slope * v + c.noise * c.noise;
  }
  return v;
}

TEST_CASE("diffusion.guided_sampler: DDPM steps give the variances they must") {
  constexpr auto small = AncestralVariance::small, large = AncestralVariance::large;
  const auto rows = [&](const TimeGrid& grid) {
    return std::vector<double>{output_variance(Step::euler, grid, small),
                               output_variance(Step::exponential, grid, small),
                               output_variance(Step::alpha, grid, small)};
  };
  const auto close = [](const std::vector<double>& a, const std::vector<double>& b) {
    for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(a[i] - b[i]) <= 1e-4);
  };
  close(rows(TimeGrid::graded(6, 50)), {1.0315, 1.0647, 0.8466});
  close(rows(TimeGrid::uniform(6, 50)), {1.0638, 1.1362, 0.6385});
  close(rows(TimeGrid::graded(6, 400)), {1.0038, 1.0077, 0.9765});
  for (const Index steps : {1, 2, 7, 50})
    CHECK(std::abs(output_variance(Step::alpha, TimeGrid::uniform(6, steps), large) - 1) <= 1e-13);
  for (const Index steps : {1, 2, 7, 50})  // point masses
    CHECK(output_variance(Step::alpha, TimeGrid::uniform(6, steps), small, 0) <= 1e-20);
  const auto deviation = [&](const TimeGrid& grid) {
    return std::sqrt(output_variance(Step::euler, grid, small, 0.01));
  };
  CHECK(std::abs(deviation(TimeGrid::uniform(6, 200)) - 0.249305) <= 1e-6);
  CHECK(std::abs(deviation(TimeGrid::graded(6, 200)) - 0.107057) <= 1e-6);
  CHECK(std::abs(deviation(TimeGrid::graded(6, 200, 3)) - 0.103275) <= 1e-6);
}

TEST_CASE("diffusion.guided_sampler: DDPM samples have those variances and the mean of the class") {
  const auto mixture = test::on_a_line({-1, 1.5});
  constexpr Index n = 20000;
  Rng rng(25);
  const TimeGrid grid = TimeGrid::graded(6, 50);
  for (const Step step : affine_steps) {
    Matrix<double> x = normal_matrix<double>(rng, n, 1);
    ddpm_sample(MixtureScore<double>(mixture, 1, {}), x, grid, step, rng);
    const double v = output_variance(step, grid, AncestralVariance::small), mean = x.mean();
    const double measured = (x.array() - mean).square().mean();
    INFO("step " << static_cast<int>(step));
    CHECK(std::abs(measured - v) <= 4 * v * std::sqrt(2.0 / n));
  }
}

TEST_CASE("diffusion.guided_sampler: plain DDPM samples have the moments and the shape of their class") {
  Rng rng(26);
  const auto mixture = test::random_mixture(rng, 3, 2, CovarianceKind::full, false);
  constexpr Index n = 2000;
  Matrix<double> x = normal_matrix<double>(rng, n, 2);
  ddpm_sample(MixtureScore<double>(mixture, 1, {}), x, TimeGrid::graded(6, 400), Step::euler, rng);
  const auto at = mixture.at(0);
  const Matrix<double> q = mixture.eigenvectors(1);
  const Matrix<double> covariance =
      q * Vector<double>{{at.variance(1, 0), at.variance(1, 1)}}.asDiagonal() * q.transpose();
  const Vector<double> mean = x.colwise().mean();
  const Matrix<double> centred = x.rowwise() - mean.transpose();
  const Matrix<double> measured = centred.transpose() * centred / n;
  for (Index i = 0; i < 2; ++i) {
    CHECK(std::abs(mean[i] - mixture.means()(1, i)) <= 4 * std::sqrt(covariance(i, i) / n));
    for (Index j = 0; j < 2; ++j) {
      const double variance = covariance(i, i) * covariance(j, j) + covariance(i, j) * covariance(i, j);
      CHECK(std::abs(measured(i, j) - covariance(i, j)) <= 4 * std::sqrt(variance / n));
    }
  }
  const Matrix<double> exact = mixture.sample(n, 1, rng), other = mixture.sample(n, 1, rng);
  const double floor = numerics::sliced_wasserstein1(exact, other, 50, rng);
  CHECK(numerics::sliced_wasserstein1(x, exact, 50, rng) <= 3 * floor);
}

TEST_CASE("diffusion.guided_sampler: from the exact start every step of the ODE keeps the class") {
  Rng rng(27);
  const auto mixture = test::on_a_line({-2, 3}, 0.3);
  constexpr Index n = 4000;
  const Matrix<double> start = mixture.sample(n, 1, rng, 1.0), exact = mixture.sample(n, 1, rng);
  for (const Step step : every_step) {
    Matrix<double> x = start;
    ddim_sample(MixtureScore<double>(mixture, 1, {}), x, TimeGrid::graded(1, 400), step);
    CHECK(numerics::wasserstein1(x.col(0), exact.col(0)) <= 0.04);  // two samples of this size are 0.02 apart
  }
}

TEST_CASE("diffusion.guided_sampler: the library step meets the exponential one to second order but for the last") {
  const auto gap = [](double s, double h) {
    const auto a = ddim_coefficients(Step::alpha, s, s - h), e = ddim_coefficients(Step::exponential, s, s - h);
    CHECK(a.state == e.state);
    return std::abs(a.score - e.score);
  };
  CHECK(std::abs(std::log2(gap(1, 0.02) / gap(1, 0.01)) - 2) <= 0.05);
  CHECK(std::abs(std::log2(gap(0.02, 0.02) / gap(0.01, 0.01)) - 1) <= 0.05);
}

TEST_CASE("diffusion.guided_sampler: stochastic DDIM goes from DDIM to DDPM") {
  for (const auto& [s, next] : {std::pair{2.0, 1.5}, {0.3, 0.1}, {0.2, 0.0}}) {
    const auto ddim = ddim_coefficients(Step::alpha, s, next), none = stochastic_ddim_coefficients(0, s, next);
    const auto ddpm = ddpm_coefficients(Step::alpha, s, next, AncestralVariance::small);
    const auto all = stochastic_ddim_coefficients(1, s, next);
    CHECK((none.state == ddim.state && none.noise == 0));
    CHECK(std::abs(none.score - ddim.score) <= 1e-15);
    CHECK(all.state == ddpm.state);
    CHECK(std::abs(all.score - ddpm.score) <= 1e-14);
    CHECK(std::abs(all.noise - ddpm.noise) <= 1e-14);
  }
  Rng rng(28);
  const auto mixture = test::on_a_line({-1, 1});
  const MixtureScore<double> score(mixture, 1, {.strength = 1.0});
  const auto start = normal_matrix<double>(rng, 200, 1);
  const TimeGrid grid = TimeGrid::from_betas(linear_betas(), 20);
  Matrix<double> x = start, y = start;
  stochastic_ddim_sample(score, x, grid, 0, rng);
  ddim_sample(score, y, grid, Step::alpha);
  CHECK(worst_gap(x, y) <= 1e-12);
  Rng a(3), b(3);
  x = y = start;
  stochastic_ddim_sample(score, x, grid, 1, a);
  ddpm_sample(score, y, grid, Step::alpha, b);
  CHECK(worst_gap(x, y) <= 1e-12);
  x = start;
  stochastic_ddim_sample(score, x, grid, 0.5, a);
  CHECK(worst_gap(x, y) > 0.1);
}

TEST_CASE("diffusion.guided_sampler: the last library step to zero adds no noise and the others do") {
  for (const Step step : affine_steps) {
    const double noise = ddpm_coefficients(step, 0.1, 0, AncestralVariance::small).noise;
    CHECK((step == Step::alpha ? noise == 0 : noise > 0.4));
  }
  CHECK(ddpm_coefficients(Step::alpha, 0.1, 0, AncestralVariance::large).noise > 0.4);
  // Point masses are sampled down to zero: no score is asked for there.
  const auto points = test::on_a_line({-1, 1}, 0);
  Rng rng(29);
  for (const Step step : affine_steps) {
    Matrix<double> x = normal_matrix<double>(rng, 20, 1);
    ddim_sample(MixtureScore<double>(points, 1, {}), x, TimeGrid::graded(6, 50, 3), step);
    CHECK((x.array() - 1).abs().maxCoeff() <= 0.05);
  }
  Matrix<double> x = normal_matrix<double>(rng, 20, 1);
  ddpm_sample(MixtureScore<double>(points, 1, {}), x, TimeGrid::graded(6, 50, 3), Step::alpha, rng);
  CHECK((x.array() - 1).abs().maxCoeff() <= 1e-10);
}

TEST_CASE("diffusion.guided_sampler: a score function is asked at the start of every step") {
  std::vector<double> asked;
  const auto zero = [&](View<const float, 2>, double t, View<float, 2> out) {
    asked.push_back(t), matrix(out).setZero();
  };
  Matrix<float> x = Matrix<float>::Ones(3, 2);
  const TimeGrid grid = TimeGrid::uniform(2, 2);
  ddim_sample(zero, x, grid, Step::euler);
  CHECK(asked == std::vector<double>{2, 1});
  CHECK(x == Matrix<float>::Constant(3, 2, 4));
  asked.clear();
  ddim_sample(zero, x, grid, Step::rk4);
  CHECK(asked == std::vector<double>{2, 1.5, 1.5, 1, 1, 0.5, 0.5, 0});
  asked.clear();
  ddim_sample(zero, x, grid, Step::heun);
  CHECK(asked == std::vector<double>{2, 1, 1, 0});
}

TEST_CASE("diffusion.guided_sampler: an interval that never begins is no guidance") {
  Rng rng(30);
  const auto mixture = test::on_a_line({-1, 1});
  const auto start = normal_matrix<double>(rng, 50, 1);
  const TimeGrid grid = TimeGrid::graded(6, 40);
  const auto run = [&](Guidance guidance) {
    Matrix<double> x = start;
    ddim_sample(MixtureScore<double>(mixture, 1, std::move(guidance)), x, grid, Step::heun);
    return x;
  };
  CHECK(run({.strength = 5.0, .schedule = guidance_interval(7, 8)}) == run({}));
  CHECK(run({.strength = 5.0, .schedule = guidance_interval(0, 6)}) == run({.strength = 5.0}));
  CHECK(run({.strength = 5.0, .schedule = guidance_interval(0.5, 2)}) != run({.strength = 5.0}));
}

TEST_CASE("diffusion.guided_sampler: a seed gives the same bits for any number of threads and new noise every call") {
  Rng rng(31);
  const auto mixture = test::on_a_circle(3, 2);
  const auto start = normal_matrix<float>(rng, 1000, 2);
  const MixtureScore<float> score(mixture, 1, {.strength = 2.0});
  const auto run = [&](int threads) {
    return test::with_threads(threads, [&] {
      Matrix<float> x(2000, 3);
      x.setZero();
      x.topLeftCorner(1000, 2) = x.bottomLeftCorner(1000, 2) = start;
      Rng noise(1);
      ddpm_sample(score, x.topLeftCorner(1000, 2), TimeGrid::graded(6, 30), Step::exponential, noise);
      ddim_sample(score, x.bottomLeftCorner(1000, 2), TimeGrid::graded(6, 30), Step::rk4, x.col(2).tail(1000));
      return test::copy_of<2>(x);
    });
  };
  CHECK(test::identical(run(1), run(2)));
  CHECK(test::identical(run(1), run(4)));
  Rng noise(1);
  Matrix<float> first = start, second = start;
  ddpm_sample(score, first, TimeGrid::graded(6, 30), Step::euler, noise);
  ddpm_sample(score, second, TimeGrid::graded(6, 30), Step::euler, noise);
  CHECK(first != second);
  CHECK(noise.position() == 4);
}

TEST_CASE("diffusion.guided_sampler: noise differs between blocks and steps and follows the normal law") {
  const auto draw = detail::drawn_noise<double>(Rng(3), 2);
  std::vector<double> all;
  std::vector<std::vector<double>> parts;
  for (Index k = 0; k < 20; ++k)
    for (Index b = 0; b < 20; ++b) {
      std::vector<double> z(2 * block_samples);
      draw(k, b, z.data());
      for (const auto& part : parts) REQUIRE(part[0] != z[0]);
      parts.push_back(z);
      all.insert(all.end(), z.begin(), z.end());
    }
  double mean = 0, square = 0;
  for (const double z : all) mean += z, square += z * z;
  const auto n = static_cast<double>(all.size());
  CHECK(std::abs(mean / n) <= 4 / std::sqrt(n));
  CHECK(std::abs(square / n - 1) <= 4 * std::sqrt(2 / n));
}

TEST_CASE("diffusion.guided_sampler: float follows double and strided samples follow contiguous ones") {
  Rng rng(32);
  const auto mixture = test::random_mixture(rng, 5, 6, CovarianceKind::isotropic, true);
  const auto start = normal_matrix<double>(rng, 170, 6);
  const TimeGrid grid = TimeGrid::graded(4, 30, 2, 0.05);
  for (const Step step : every_step) {
    Matrix<double> x = start;
    Matrix<float> y = start.cast<float>();
    Eigen::MatrixXd columns = start;
    ddim_sample(MixtureScore<double>(mixture, 1, {.strength = 1.0}), x, grid, step);
    ddim_sample(MixtureScore<float>(mixture, 1, {.strength = 1.0}), y, grid, step);
    ddim_sample(MixtureScore<double>(mixture, 1, {.strength = 1.0}), columns, grid, step);
    CHECK(worst_gap(y, x) <= 1e-3);
    CHECK(columns == x);
  }
}

TEST_CASE("diffusion.guided_sampler: calls with a grown workspace allocate nothing") {
  Rng rng(33);
  const auto mixture = test::random_mixture(rng, 4, 3, CovarianceKind::full, false);
  const MixtureScore<double> score(mixture, 1, {.strength = 1.0});
  Matrix<double> x = normal_matrix<double>(rng, 500, 3);
  Vector<double> logdet(500);
  const TimeGrid grid = TimeGrid::graded(4, 10);
  Workspace workspace;
  const auto calls = [&] {
    for (const Step step : every_step) ddim_sample(score, x, grid, step, logdet, workspace);
    for (const Step step : affine_steps) ddpm_sample(score, x, grid, step, rng, AncestralVariance::small, workspace);
    const auto pull = [](View<const double, 2> at, double, View<double, 2> out) {
      for (Index i = 0; i < at.extent(0); ++i)
        for (Index j = 0; j < at.extent(1); ++j) out(i, j) = -at(i, j);
    };
    ddim_sample(pull, x, grid, Step::rk4, {}, workspace);
    ddpm_sample(pull, x, grid, Step::euler, rng, AncestralVariance::small, workspace);
  };
  calls();
  CHECK(test::allocations(calls) == 0);
}

TEST_CASE("diffusion.guided_sampler: no samples are no work") {
  const auto mixture = test::on_a_line({-1, 1});
  const MixtureScore<double> score(mixture, 1, {});
  Matrix<double> none(0, 1);
  Rng rng(0);
  const TimeGrid grid = TimeGrid::uniform(1, 3);
  ddim_sample(score, none, grid, Step::rk4);
  ddim_sample(as_function(score), none, grid, Step::alpha);
  ddpm_sample(score, none, grid, Step::euler, rng);
  ddpm_sample(as_function(score), none, grid, Step::euler, rng);
  CHECK(none.rows() == 0);
}

TEST_CASE("diffusion.guided_sampler: bad input is named and leaves the samples alone") {
  const auto mixture = test::on_a_line({-1, 1}), points = test::on_a_line({-1, 1}, 0);
  const MixtureScore<double> score(mixture, 1, {}), singular(points, 1, {});
  const TimeGrid grid = TimeGrid::uniform(1, 3);
  Rng rng(0);
  Matrix<double> x = Matrix<double>::Ones(4, 1), wide = Matrix<double>::Ones(4, 2), flat(4, 0);
  const auto of = [](auto f) { return message_of<InvalidArgument>(f); };
  CHECK(of([&] { ddim_sample(score, wide, grid); }) ==
        "ddim_sample: x has shape [4,2], expected [4,1] (points of the dimension of the score)");
  CHECK(of([&] { ddim_sample(score, flat, grid); }) == "ddim_sample: the dimension of x must be at least 1, got 0");
  Vector<double> three(3);
  CHECK(of([&] { ddim_sample(score, x, grid, Step::euler, three); }) ==
        "ddim_sample: logdet has shape [3], expected [4] (one a sample)");
  const std::vector<Index> labels(3, 1);
  CHECK(of([&] { ddim_sample(MixtureScore<double>(mixture, labels, {}), x, grid); }) ==
        "ddim_sample: label has shape [3], expected [4] (one a sample)");
  for (const Step step : {Step::heun, Step::rk4}) {
    CHECK(of([&] { ddpm_sample(score, x, grid, step, rng); }) ==
          "ddpm_sample: heun and rk4 are steps of the ODE alone");
    CHECK(of([&] { ddim_sample(singular, x, grid, step); }) ==
          "ddim_sample: the covariance of class 0 is singular, so t must be positive, got 0");
  }
  Vector<double> four(4);
  CHECK(of([&] { ddim_sample(singular, x, grid, Step::alpha, four); }) ==
        "ddim_sample: the covariance of class 0 is singular, so t must be positive, got 0");
  CHECK(of([&] { ddim_sample(singular, x, TimeGrid::uniform(1, 3, 0.01), Step::rk4); }) == "nothing thrown");
  x.setOnes();
  const Tensor<double> noise({2, 4, 1});
  CHECK(of([&] { ddpm_sample(score, x, grid, Step::euler, noise.view<3>()); }) ==
        "ddpm_sample: noise has shape [2,4,1], expected [3,4,1] (a step, a sample, a dimension)");
  const View<const double, 3> itself(x.data(), {3, 4, 1}, {0, 1, 1});
  CHECK(of([&] { ddpm_sample(score, x, grid, Step::euler, itself); }) == "ddpm_sample: noise overlaps x");
  CHECK(of([&] { stochastic_ddim_sample(score, x, grid, 1.5, rng); }) ==
        "stochastic_ddim_sample: stochasticity must be between 0 and 1, got 1.5");
  CHECK(of([&] { stochastic_ddim_sample(score, x, grid, NAN, rng); }) ==
        "stochastic_ddim_sample: stochasticity must be between 0 and 1, got nan");
  const auto plain = [](View<const double, 2>, double, View<double, 2> out) { matrix(out).setZero(); };
  CHECK(of([&] { ddim_sample(plain, x, grid, Step::euler, four); }) ==
        "ddim_sample: logdet needs a score that gives its divergence too: score(x, t, out, divergence)");
  CHECK(x == Matrix<double>::Ones(4, 1));
  x(2, 0) = NAN;
  CHECK(of([&] { ddim_sample(score, x, grid); }) == "ddim_sample: x must be finite, got nan");
  CHECK(of([&] { ddpm_sample(plain, x, grid, Step::euler, rng); }) == "ddpm_sample: x must be finite, got nan");
}

}  // namespace
}  // namespace ashlar::diffusion
