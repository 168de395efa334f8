#include "ashlar/diffusion/guidance_analysis.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "diffusion/mixtures.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::diffusion {
namespace {

using test::message_of;
using Values = std::vector<double>;

/// DDIM samples of one strength from given starts, with their log-determinants.
struct Run {
  Matrix<double> x;
  Vector<double> logdet;
};
Run run(const GaussianMixture& mixture, Index label, double strength, const Matrix<double>& start, const TimeGrid& grid,
        Step step) {
  Run result{start, Vector<double>(start.rows())};
  ddim_sample(MixtureScore<double>(mixture, label, {.strength = strength}), result.x, grid, step, result.logdet);
  return result;
}

TEST_CASE("diffusion.guidance_analysis: quadrature gives the table of the oracle") {
  const auto table = test::array("entropy_table"), w = test::array("entropy_w"), mu = test::array("entropy_mu");
  const GaussianMixture mixture(w.view<1>(), mu.view<2>(), Covariance::isotropic(1.0));
  for (Index i = 0; i < table.extent(0); ++i) {
    const auto result = ddim_quadrature(mixture, 1, table.view<2>()(i, 0));
    CHECK(std::abs(result.entropy - table.view<2>()(i, 1)) <= 1e-4);
    CHECK(std::abs(result.confidence - table.view<2>()(i, 2)) <= 1e-4);
  }
}

TEST_CASE("diffusion.guidance_analysis: confidence rises and entropy falls as measured in the headline") {
  const auto mixture = test::on_a_line({-1, 1});
  const struct {
    double eta, entropy, confidence;
  } rows[] = {{0, 1.4189, 0.7752}, {1, 1.1372, 0.9202},  {2, 0.9695, 0.9679},
              {5, 0.7575, 0.9948}, {10, 0.6424, 0.9992}, {20, 0.5686, 0.99994}};
  double entropy = INFINITY, confident = 0;
  for (const auto& row : rows) {
    const auto result = ddim_quadrature(mixture, 1, row.eta);
    CHECK(std::abs(result.entropy - row.entropy) <= 1e-4);
    CHECK(std::abs(result.confidence - row.confidence) <= 1e-4);
    CHECK((result.entropy < entropy && result.confidence > confident));
    entropy = result.entropy, confident = result.confidence;
  }
}

TEST_CASE("diffusion.guidance_analysis: a sweep over two components finds the figures of the headline") {
  Rng rng(41);
  const auto rows = guidance_sweep(test::on_a_line({-1, 1}), 1, Values{0, 1, 3, 10}, rng, {.samples = 20000});
  const double ddpm[] = {0.775, 0.893, 0.956, 0.986}, entropy[] = {1.42, 1.21, 1.09, 1.035};
  REQUIRE(rows.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    INFO("eta " << rows[i].strength);
    CHECK(std::abs(rows[i].ddpm.mean - ddpm[i]) <= 0.005);
    CHECK(std::abs(rows[i].ddpm_entropy - entropy[i]) <= 0.03);
    CHECK(rows[i].ddim.least_gain >= -1e-9);
    if (i == 0) continue;
    CHECK(rows[i].ddpm.mean > rows[i - 1].ddpm.mean);
    CHECK(rows[i].ddim.mean > rows[i - 1].ddim.mean);
    CHECK(rows[i].ddim_entropy.entropy < rows[i - 1].ddim_entropy.entropy);
    CHECK(std::abs(rows[i].ddim.mean_gain - (rows[i].ddim.mean - rows[0].ddim.mean)) <= 1e-12);
  }
  CHECK(rows[0].ddim.mean_gain == 0);
  CHECK(rows[0].ddpm.least_gain == 0);
}

TEST_CASE("diffusion.guidance_analysis: a sweep over three classes on a circle finds the figures of the headline") {
  Rng rng(42);
  const auto rows = guidance_sweep(test::on_a_circle(3, 2), 0, Values{0, 1, 3, 10}, rng);
  const double ddpm[] = {0.885, 0.978, 0.992, 0.998}, ddim[] = {0.898, 0.996, 0.9998, 1.0};
  const double entropy[] = {2.838, 2.284, 1.939, 1.661};
  for (std::size_t i = 0; i < 4; ++i) {
    INFO("eta " << rows[i].strength);
    CHECK(std::abs(rows[i].ddpm.mean - ddpm[i]) <= 0.01);
    CHECK(std::abs(rows[i].ddim.mean - ddim[i]) <= 0.01);
    CHECK(std::abs(rows[i].ddim_entropy.entropy - entropy[i]) <= 0.05);
    CHECK(rows[i].ddim.least_gain >= -1e-9);
    if (i == 0) continue;
    CHECK(rows[i].ddpm.mean > rows[i - 1].ddpm.mean);
    CHECK(rows[i].ddim.mean > rows[i - 1].ddim.mean);
    CHECK(rows[i].ddim_entropy.entropy < rows[i - 1].ddim_entropy.entropy);
  }
}

TEST_CASE("diffusion.guidance_analysis: entropy of many samples is that of quadrature") {
  const auto mixture = test::on_a_line({-1, 1});
  Rng rng(43);
  const auto start = normal_matrix<double>(rng, 100000, 1);
  for (const double eta : {1.0, 5.0}) {
    const Run r = run(mixture, 1, eta, start, TimeGrid::graded(6, 100), Step::rk4);
    const auto report = ddim_entropy(r.logdet, 1);
    CHECK(std::abs(report.entropy - ddim_quadrature(mixture, 1, eta).entropy) <= 0.02);
    CHECK((report.standard_error > 1e-4 && report.standard_error < 5e-3));
  }
}

TEST_CASE("diffusion.guidance_analysis: truncating the horizon at six costs what it must") {
  const auto mixture = test::on_a_line({-1, 1});
  const auto cost = [&](double eta) {
    return ddim_quadrature(mixture, 1, eta, {.horizon = 6}).entropy - ddim_quadrature(mixture, 1, eta).entropy;
  };
  CHECK(std::abs(cost(1) - -0.0005) <= 1e-4);
  CHECK(std::abs(cost(20) - -0.009) <= 1e-3);
}

TEST_CASE("diffusion.guidance_analysis: every sample of simplex means grows more confident with guidance") {
  Rng rng(44);
  Matrix<double> means(3, 2);
  means << 0, 0, 3, 0, 0, 2;
  const Values w{0.2, 0.5, 0.3};
  const GaussianMixture simplex(w, means, Covariance::isotropic(1.0));
  const auto pair = test::on_a_line({-0.5, 2});
  for (const GaussianMixture& mixture : {simplex, pair}) {
    const auto start = normal_matrix<double>(rng, 1000, mixture.dim());
    const TimeGrid grid = TimeGrid::graded(8, 200);
    for (Index label = 0; label < mixture.classes(); ++label) {
      Vector<double> before = confidence(mixture, run(mixture, label, 0, start, grid, Step::rk4).x, label);
      for (const double eta : {0.5, 2.0, 8.0}) {
        const Vector<double> now = confidence(mixture, run(mixture, label, eta, start, grid, Step::rk4).x, label);
        CHECK((now - before).minCoeff() >= -1e-9);
        CHECK(now.mean() > before.mean());
        before = now;
      }
    }
  }
}

TEST_CASE("diffusion.guidance_analysis: entropy falls for any mixture with one covariance") {
  Rng rng(45);
  for (int repeat = 0; repeat < 4; ++repeat) {
    const auto mixture = test::random_mixture(rng, 4, 2, CovarianceKind::full, true);
    const auto start = normal_matrix<double>(rng, 1000, 2);
    double before = INFINITY;
    for (const double eta : {0.0, 0.1, 1.0, 4.0}) {
      const double entropy =
          ddim_entropy(run(mixture, 1, eta, start, TimeGrid::graded(8, 200, 3), Step::rk4).logdet, 2).entropy;
      CHECK(entropy < before);
      before = entropy;
    }
  }
}

TEST_CASE("diffusion.guidance_analysis: both claims survive Euler steps that are short for the strength") {
  const auto mixture = test::on_a_circle(3, 2);
  Rng rng(46);
  const auto start = normal_matrix<double>(rng, 2000, 2);
  const TimeGrid grid = TimeGrid::graded(6, 200);
  double entropy = INFINITY;
  Vector<double> confident = Vector<double>::Zero(2000);
  for (const double eta : {0.0, 1.0, 3.0}) {
    for (Index k = 0; k < grid.steps(); ++k)  // h eta e^-2s lambda_max(Cov_q mu) <= 1/2, the largest covariance 4
      REQUIRE((grid[k] - grid[k + 1]) * eta * std::exp(-2 * grid[k]) * 4 <= 0.5);
    const Run r = run(mixture, 0, eta, start, grid, Step::euler);
    const double now = ddim_entropy(r.logdet, 2).entropy;
    const Vector<double> c = confidence(mixture, r.x, 0);
    CHECK(now < entropy);
    CHECK((c - confident).minCoeff() >= -1e-9);
    CHECK(c.mean() > confident.mean());
    entropy = now, confident = c;
  }
}

TEST_CASE("diffusion.guidance_analysis: without the condition on the means guidance can lower confidence") {
  Matrix<double> means(3, 1);
  means << 0, 1, 6;
  const GaussianMixture mixture(Values{0.05, 0.05, 0.9}, means, Covariance::isotropic(1.0));
  const double etas[] = {0, 1, 2, 5}, confidences[] = {0.571, 0.423, 0.387, 0.482};
  const double entropies[] = {1.419, 0.775, 0.478, -0.080};
  for (int i = 0; i < 4; ++i) {
    const auto result = ddim_quadrature(mixture, 1, etas[i]);
    CHECK(std::abs(result.confidence - confidences[i]) <= 1e-3);
    CHECK(std::abs(result.entropy - entropies[i]) <= 1e-3);
  }
}

TEST_CASE("diffusion.guidance_analysis: guidance to the centre contracts below the limit and splits far above") {
  const auto mixture = test::on_a_line({-2, 0, 2});
  const TimeGrid grid = TimeGrid::uniform(10, 50);
  const double limit = guidance_stability_limit(mixture, 1, grid);
  Rng rng(47);
  const auto start = normal_matrix<double>(rng, 2000, 1);
  const auto spread = [&](double eta, const TimeGrid& steps) {
    return spread_report(run(mixture, 1, eta, start, steps, Step::euler).x, Values{0}, 0.1);
  };
  CHECK(spread(0.9 * limit, grid).within >= 0.99);
  const auto split = spread(4 * limit, grid);
  CHECK((split.within <= 0.2 && split.deviation > 1));
  const auto calm = spread(9.8, grid), torn = spread(43.4, grid);
  CHECK((calm.within == 1 && std::abs(calm.deviation - 0.001) <= 5e-4));
  CHECK((std::abs(torn.within - 0.03) <= 0.02 && std::abs(torn.deviation - 2.5) <= 0.1));
  const TimeGrid fine = TimeGrid::uniform(10, 200);
  CHECK(spread(86, fine).within >= 0.99);
  CHECK(std::abs(spread(173, fine).deviation - 7.9) <= 0.3);  // steep: 10.1 at 172, 7.3 at 174
}

TEST_CASE("diffusion.guidance_analysis: the stability limit is that of the linear map at the centre") {
  for (const double m : {1.0, 2.0, 3.0})
    for (const Index steps : {50, 200}) {
      const auto mixture = test::on_a_line({-m, 0, m});
      const TimeGrid grid = TimeGrid::uniform(10, steps);
      double expected = INFINITY;
      for (Index k = 0; k < steps; ++k) {
        const double a2 = std::exp(-2 * grid[k]), phi = std::exp(-m * m * a2 / 2);
        expected = std::min(expected, 2 / ((grid[k] - grid[k + 1]) * a2 * m * m * 2 * phi / (1 + 2 * phi)));
      }
      CHECK(std::abs(guidance_stability_limit(mixture, 1, grid) / expected - 1) <= 1e-12);
    }
}

TEST_CASE("diffusion.guidance_analysis: the stability limit takes any covariance and more points") {
  Rng rng(48);
  const auto mixture = test::random_mixture(rng, 3, 2, CovarianceKind::full, true);
  const TimeGrid grid = TimeGrid::uniform(3, 10, 0.1);
  const auto points = normal_matrix<double>(rng, 4, 2);
  const auto limit = [&](const GaussianMixture& m, const Matrix<double>& more) {
    return guidance_stability_limit(m, 1, grid, more);
  };
  // a^2 S^-1 Cov_q(mu) S^-1 as written, over all points.
  double expected = INFINITY, own = INFINITY;
  const Matrix<double> q = mixture.eigenvectors(0);
  for (Index k = 0; k < 10; ++k)
    for (Index i = 0; i < 5; ++i) {
      const Matrix<double> x =
          i == 0 ? Matrix<double>(std::exp(-grid[k]) * mixture.means().row(1)) : Matrix<double>(points.row(i - 1));
      const Vector<double> p = mixture.posterior(x, grid[k]).row(0).transpose();
      const Vector<double> mean = mixture.means().transpose() * p;
      const Matrix<double> gaps = mixture.means().rowwise() - mean.transpose();
      const ForwardVariance variance(grid[k]);
      const Vector<double> precision{{1 / variance(mixture.eigenvalue(0, 0)), 1 / variance(mixture.eigenvalue(0, 1))}};
      const Matrix<double> inverse = q * precision.asDiagonal() * q.transpose();
      const Matrix<double> pull = std::exp(-2 * grid[k]) * inverse * gaps.transpose() * p.asDiagonal() * gaps * inverse;
      const double rho = Eigen::SelfAdjointEigenSolver<Matrix<double>>(pull).eigenvalues()[1];
      expected = std::min(expected, 2 / ((grid[k] - grid[k + 1]) * rho));
      if (i == 0) own = std::min(own, 2 / ((grid[k] - grid[k + 1]) * rho));
    }
  CHECK(std::abs(limit(mixture, points) / expected - 1) <= 1e-10);
  CHECK(std::abs(guidance_stability_limit(mixture, 1, grid) / own - 1) <= 1e-10);
  CHECK(expected <= own);
  CHECK(guidance_stability_limit(test::on_a_line({2}), 0, grid) == INFINITY);
  // A wide class guided to among narrow ones pulls outward: -grad (s_y - s) = 1 / v_y - sum q / v + Cov.
  const std::vector<double> w{0.5, 0.5}, variances{4, 0.25};
  Matrix<double> same(2, 1);
  same << 0, 0;
  const GaussianMixture nested(w, same, Covariance::isotropic(variances));
  CHECK(guidance_stability_limit(nested, 0, grid) == INFINITY);
  CHECK(guidance_stability_limit(nested, 1, grid) < INFINITY);
}

TEST_CASE("diffusion.guidance_analysis: a confidence report has quantiles and gains") {
  const auto report = confidence_report(Values{0.5, 0.1, 0.3, 0.9}, Values{0.4, 0.2, 0.3, 0.1});
  CHECK(std::abs(report.mean - 0.45) <= 1e-15);
  const double quantiles[] = {0.1, 0.25, 0.4, 0.6, 0.9};
  for (std::size_t i = 0; i < 5; ++i) CHECK(std::abs(report.quantiles[i] - quantiles[i]) <= 1e-15);
  CHECK(std::abs(report.mean_gain - 0.2) <= 1e-15);
  CHECK(std::abs(report.least_gain - -0.1) <= 1e-15);
  const auto alone = confidence_report(Values{0.25});
  CHECK((alone.quantiles[4] == 0.25 && alone.mean_gain == 0 && alone.least_gain == 0));
}

TEST_CASE("diffusion.guidance_analysis: spread is measured around the centre and the mean") {
  Matrix<double> x(4, 2);
  x << 1, 0, 3, 0, 1, 0.05, 3, 0;
  const auto report = spread_report(x, Values{1, 0}, 0.1);
  CHECK(report.within == 0.5);
  CHECK(std::abs(report.deviation - std::sqrt(1 + 0.05 * 0.05 * 3 / 16)) <= 1e-15);
}

TEST_CASE("diffusion.guidance_analysis: bad input is named") {
  const auto mixture = test::on_a_line({-1, 1}), flat = test::on_a_circle(3, 1);
  const Matrix<double> x = Matrix<double>::Zero(2, 1), wide = Matrix<double>::Zero(2, 2), none(0, 1);
  Rng rng(0);
  const auto of = [](auto f) { return message_of<InvalidArgument>(f); };
  CHECK(of([&] { confidence(mixture, x, 2); }) == "confidence: label must be the index of a class, got 2");
  CHECK(of([&] { confidence_report(Values{}); }) ==
        "confidence_report: the number of values must be at least 1, got 0");
  CHECK(of([&] {
          confidence_report(Values{1}, Values{1, 2});
        }) == "confidence_report: baseline has shape [2], expected [1] (one a value)");
  CHECK(of([&] { ddim_entropy(Values{1}, 1); }) == "ddim_entropy: the number of samples must be at least 2, got 1");
  CHECK(of([&] { ddim_quadrature(flat, 0, 1); }) == "ddim_quadrature: the dimension of the mixture must be 1, got 2");
  CHECK(of([&] { ddim_quadrature(mixture, 0, 1, {.points = 2}); }) ==
        "ddim_quadrature: points must be at least 3, got 2");
  CHECK(of([&] { ddim_quadrature(mixture, 0, 1, {.limit = 0}); }) ==
        "ddim_quadrature: limit must be positive and finite, got 0");
  CHECK(of([&] { guidance_sweep(mixture, 0, Values{1}, rng, {.samples = 3}); }) ==
        "guidance_sweep: samples must be more than the neighbours, got 3");
  CHECK(of([&] { guidance_stability_limit(mixture, 2, TimeGrid::uniform(1, 2)); }) ==
        "guidance_stability_limit: label must be the index of a class, got 2");
  CHECK(of([&] { guidance_stability_limit(mixture, 1, TimeGrid::uniform(1, 2), wide); }) ==
        "guidance_stability_limit: points has shape [2,2], expected [2,1] (points of the dimension of the means)");
  CHECK(of([&] { spread_report(none, Values{0}, 1); }) ==
        "spread_report: the number of samples must be at least 1, got 0");
  CHECK(of([&] {
          spread_report(x, Values{0, 0}, 1);
        }) == "spread_report: centre has shape [2], expected [1] (one entry a dimension)");
  CHECK(of([&] { spread_report(x, Values{0}, 0); }) == "spread_report: radius must be positive, got 0");
}

}  // namespace
}  // namespace ashlar::diffusion
