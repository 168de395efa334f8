#include "ashlar/diffusion/gaussian_mixture.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "diffusion/mixtures.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::diffusion {
namespace {

using test::message_of;
using test::worst_gap;
using Values = std::vector<double>;

TEST_CASE("diffusion.gaussian_mixture: densities and posteriors and class scores are those of the oracle") {
  for (const std::string& name : test::fixture_names)
    for (const bool as_full : {false, true}) {
      const GaussianMixture mixture = test::fixture_mixture(name, as_full);
      const auto x = test::array(name + "_X"), times = test::array(name + "_t"), logp = test::array(name + "_logp");
      const auto post = test::array(name + "_post"), scores = test::array(name + "_class_score");
      for (Index i = 0; i < times.size(); ++i) {
        const double t = times.data()[i];
        INFO(name << " as full " << as_full << " t " << t);
        CHECK(worst_gap(mixture.class_log_densities(x.matrix(), t), matrix(logp.view<3>()[i])) <= 1e-9);
        CHECK((mixture.posterior(x.matrix(), t) - matrix(post.view<3>()[i])).cwiseAbs().maxCoeff() <= 1e-12);
        const auto s = mixture.class_scores(x.matrix(), t);
        for (Index n = 0; n < x.extent(0); ++n)
          CHECK(worst_gap(matrix(s.view<3>()[n]), matrix(scores.view<4>()[i][n])) <= 1e-10);
      }
    }
}

TEST_CASE("diffusion.gaussian_mixture: the score is the gradient of the log-density") {
  Rng rng(1);
  for (const auto kind : {CovarianceKind::isotropic, CovarianceKind::diagonal, CovarianceKind::full}) {
    const auto mixture = test::random_mixture(rng, 4, 3, kind, false);
    const auto x = normal_matrix<double>(rng, 20, 3, 2.0);
    for (const double t : {0.0, 0.3, 2.0}) {
      const Matrix<double> s = mixture.score(x, t);
      constexpr double h = 1e-5;
      for (Index j = 0; j < 3; ++j) {
        Matrix<double> up = x, down = x;
        up.col(j).array() += h, down.col(j).array() -= h;
        const Vector<double> slope = (mixture.log_density(up, t) - mixture.log_density(down, t)) / (2 * h);
        CHECK(worst_gap(slope, s.col(j)) <= 1e-6);
      }
    }
  }
}

TEST_CASE("diffusion.gaussian_mixture: the log-density integrates to one") {
  const auto mixture = test::on_a_line({-2, 0.5, 3}, 0.4);
  for (const double t : {0.0, 0.7}) {
    const Matrix<double> x = Vector<double>::LinSpaced(4001, -20, 20);
    CHECK(std::abs(mixture.log_density(x, t).array().exp().sum() * 0.01 - 1) <= 1e-12);
  }
}

TEST_CASE("diffusion.gaussian_mixture: the Jacobian product is the derivative of the guided score along a direction") {
  Rng rng(2);
  const auto mixture = test::random_mixture(rng, 3, 3, CovarianceKind::full, false);
  const auto x = normal_matrix<double>(rng, 10, 3), v = normal_matrix<double>(rng, 10, 3);
  constexpr double h = 1e-5, t = 0.4;
  for (const double eta : {-1.0, 0.0, 2.5}) {
    const auto guided = [&](const Matrix<double>& at) {
      Matrix<double> out = -eta * mixture.score(at, t);
      const auto scores = mixture.class_scores(at, t);
      for (Index i = 0; i < at.rows(); ++i) out.row(i) += (1 + eta) * matrix(scores.view<3>()[i]).row(2);
      return out;
    };
    const Matrix<double> slope = (guided(x + h * v) - guided(x - h * v)) / (2 * h);
    CHECK(worst_gap(mixture.guided_jacobian_product(x, t, 2, eta, v), slope) <= 1e-6);
  }
}

TEST_CASE("diffusion.gaussian_mixture: one kind of covariance written as another gives the same densities") {
  Rng rng(3);
  const Values w{0.2, 0.3, 0.5};
  const auto means = normal_matrix<double>(rng, 3, 4), x = normal_matrix<double>(rng, 9, 4);
  const GaussianMixture plain(w, means, Covariance::isotropic(0.7));
  const Matrix<double> row = Matrix<double>::Constant(1, 4, 0.7), rows = Matrix<double>::Constant(3, 4, 0.7);
  const Matrix<double> square = 0.7 * Matrix<double>::Identity(4, 4);
  const GaussianMixture others[] = {{w, means, Covariance::isotropic(Values{0.7, 0.7, 0.7})},
                                    {w, means, Covariance::diagonal(row)},
                                    {w, means, Covariance::diagonal(rows)},
                                    {w, means, Covariance::full(square)}};
  CHECK(plain.common_covariance());
  CHECK_FALSE(others[0].common_covariance());
  CHECK(others[1].common_covariance());
  CHECK_FALSE(others[2].common_covariance());
  CHECK(others[3].common_covariance());
  for (const auto& other : others) {
    CHECK(worst_gap(other.class_log_densities(x, 0.2), plain.class_log_densities(x, 0.2)) <= 1e-13);
    CHECK(worst_gap(other.score(x, 0.2), plain.score(x, 0.2)) <= 1e-13);
  }
}

TEST_CASE("diffusion.gaussian_mixture: samples of a class have its mean and covariance at every time") {
  Rng rng(4);
  const auto mixture = test::random_mixture(rng, 3, 2, CovarianceKind::full, false);
  constexpr Index n = 20000;
  for (const double t : {0.0, 0.5}) {
    const Matrix<double> x = mixture.sample(n, 1, rng, t);
    const auto at = mixture.at(t);
    const Matrix<double> q = mixture.eigenvectors(1);
    const Vector<double> variances{{at.variance(1, 0), at.variance(1, 1)}};
    const Matrix<double> covariance = q * variances.asDiagonal() * q.transpose();
    const Vector<double> mean = x.colwise().mean();
    const Matrix<double> centred = x.rowwise() - mean.transpose();
    const Matrix<double> measured = centred.transpose() * centred / n;
    for (Index i = 0; i < 2; ++i) {
      CHECK(std::abs(mean[i] - std::exp(-t) * mixture.means()(1, i)) <= 4 * std::sqrt(covariance(i, i) / n));
      for (Index j = 0; j < 2; ++j) {
        const double variance = covariance(i, i) * covariance(j, j) + covariance(i, j) * covariance(i, j);
        CHECK(std::abs(measured(i, j) - covariance(i, j)) <= 4 * std::sqrt(variance / n));
      }
    }
  }
}

TEST_CASE("diffusion.gaussian_mixture: a draw from the mixture takes classes by their weights") {
  Rng rng(5);
  Matrix<double> means(3, 1);
  means << -100, 0, 100;
  const GaussianMixture mixture(Values{0.2, 0, 0.8}, means, Covariance::isotropic(1.0));
  const auto drawn = mixture.sample(5000, rng);
  Index first = 0;
  for (Index i = 0; i < 5000; ++i) {
    const Index label = drawn.labels[static_cast<std::size_t>(i)];
    REQUIRE(label != 1);
    first += label == 0;
    REQUIRE(std::abs(drawn.x(i, 0) - means(label, 0)) <= 6);
  }
  CHECK(std::abs(static_cast<double>(first) / 5000 - 0.2) <= 4 * std::sqrt(0.16 / 5000));
  CHECK(mixture.sample(0, rng).x.rows() == 0);
}

TEST_CASE("diffusion.gaussian_mixture: a class of weight zero has posterior zero and leaves the others alone") {
  Matrix<double> means(3, 1);
  means << -1, 5, 1;
  const GaussianMixture with(Values{0.5, 0, 0.5}, means, Covariance::isotropic(1.0));
  const auto without = test::on_a_line({-1, 1});
  const Matrix<double> x = Vector<double>::LinSpaced(9, -4, 4);
  const Matrix<double> q = with.posterior(x, 0.1);
  CHECK(q.col(1).isZero(0));
  CHECK(q.col(2) == without.posterior(x, 0.1).col(1));
  CHECK(with.score(x, 0.1) == without.score(x, 0.1));
}

TEST_CASE("diffusion.gaussian_mixture: far tails have one-hot posteriors and finite densities") {
  const auto mixture = test::on_a_line({-1, 1}, 0.01);
  const Matrix<double> x{{1e6}, {-1e6}};
  const Matrix<double> q = mixture.posterior(x, 0);
  CHECK((q(0, 1) == 1 && q(0, 0) == 0 && q(1, 0) == 1));
  CHECK(mixture.log_density(x, 0).allFinite());
}

TEST_CASE("diffusion.gaussian_mixture: equal classes and a single class have constant posteriors") {
  const auto equal = test::on_a_line({2, 2, 2});
  const Matrix<double> x = Vector<double>::LinSpaced(5, -9, 9);
  CHECK((equal.posterior(x, 0.3).array() - 1.0 / 3).abs().maxCoeff() <= 1e-15);
  CHECK(test::on_a_line({2}).posterior(x, 0.3) == Matrix<double>::Ones(5, 1));
}

TEST_CASE("diffusion.gaussian_mixture: point masses have densities at every time but zero") {
  const auto points = test::on_a_line({-1, 1}, 0);
  const Matrix<double> x{{0.3}};
  CHECK(message_of<InvalidArgument>([&] { points.log_density(x, 0); }) ==
        "GaussianMixture::log_density: the covariance of class 0 is singular, so t must be positive, got 0");
  CHECK(std::isfinite(points.log_density(x, 1e-9)[0]));
  // A full covariance of rank one, whose zero eigenvalue comes out of the decomposition a little off.
  const Vector<double> v{{1, 2, 3}};
  const Matrix<double> flat = v * v.transpose();
  const GaussianMixture rank_one(Values{1}, Matrix<double>::Zero(1, 3).eval(), Covariance::full(flat));
  CHECK(rank_one.eigenvalue(0, 0) == 0);
  CHECK(std::abs(rank_one.eigenvalue(0, 2) - 14) <= 1e-12);
  Rng rng(6);
  const Matrix<double> drawn = points.sample(3, 1, rng);
  CHECK(drawn == Matrix<double>::Ones(3, 1));
}

TEST_CASE("diffusion.gaussian_mixture: at small times the noise keeps its digits") {
  const auto points = test::on_a_line({0}, 0);
  CHECK(std::abs(points.at(1e-12).variance(0, 0) / 2e-12 - 1) <= 1e-11);
}

TEST_CASE("diffusion.gaussian_mixture: no points give empty results") {
  const auto mixture = test::on_a_line({-1, 1});
  const Matrix<double> none(0, 1);
  CHECK(mixture.log_density(none, 0).size() == 0);
  CHECK(mixture.posterior(none, 0).rows() == 0);
  CHECK(mixture.class_scores(none, 0).size() == 0);
}

TEST_CASE("diffusion.gaussian_mixture: bad mixtures are named") {
  const auto with = [](const Values& w, const Matrix<double>& means, const Covariance& covariance) {
    return message_of<InvalidArgument>([&] { GaussianMixture(w, means, covariance); });
  };
  const Matrix<double> two = Matrix<double>::Zero(2, 2);
  const auto unit = Covariance::isotropic(1.0);
  CHECK(with({0.5, 0.5}, two, unit) == "nothing thrown");
  CHECK(with({1.5, -0.5}, two, unit) == "GaussianMixture: every weight must be not negative, got -0.5");
  CHECK(with({0.5, NAN}, two, unit) == "GaussianMixture: every weight must be not negative, got nan");
  CHECK(with({0.5, 0.25}, two, unit) == "GaussianMixture: the sum of the weights must be 1, got 0.75");
  CHECK(with({0.5, 0.5 + 0.9e-9}, two, unit) == "nothing thrown");
  CHECK(with({0.5, 0.5 + 2e-9}, two, unit).starts_with("GaussianMixture: the sum of the weights must be 1, got 1.00"));
  CHECK(with({1}, two, unit) == "GaussianMixture: weights has shape [1], expected [2] (one a class)");
  CHECK(with({}, Matrix<double>(0, 2), unit) ==
        "GaussianMixture: means has shape [0,2], expected at least one class and one dimension");
  CHECK(with({1}, Matrix<double>(1, 0), unit) ==
        "GaussianMixture: means has shape [1,0], expected at least one class and one dimension");
  CHECK(with({0.5, 0.5}, Matrix<double>::Constant(2, 2, NAN), unit) ==
        "GaussianMixture: every mean must be finite, got nan");
  CHECK(with({0.5, 0.5}, two, Covariance::isotropic(-1.0)) ==
        "GaussianMixture: the covariance of class 0 must be finite and positive semi-definite, got the eigenvalue -1");
  CHECK(with({0.5, 0.5}, two, Covariance::isotropic(Values{1, INFINITY})) ==
        "GaussianMixture: the covariance of class 1 must be finite and positive semi-definite, got the eigenvalue inf");
  CHECK(with({0.5, 0.5}, two, Covariance::isotropic(Values{1, 2, 3})) ==
        "GaussianMixture: the covariance has shape [3], expected [2] (classes or 1 first)");
  CHECK(with({0.5, 0.5}, two, Covariance::diagonal(Matrix<double>::Ones(2, 3).eval())) ==
        "GaussianMixture: the covariance has shape [2,3], expected [2,2] (classes or 1 first)");
  const Matrix<double> indefinite{{1, 2}, {2, 1}}, lopsided{{1, 0.5}, {0, 1}};
  CHECK(
      with({0.5, 0.5}, two, Covariance::full(indefinite))
          .starts_with("GaussianMixture: the covariance of class 0 must be finite and positive semi-definite, got the "
                       "eigenvalue -"));
  CHECK(with({0.5, 0.5}, two, Covariance::full(lopsided)) ==
        "GaussianMixture: the covariance of class 0 must be finite and symmetric");
  CHECK(with({0.5, 0.5}, two, Covariance::full(Matrix<double>::Constant(2, 2, NAN).eval())) ==
        "GaussianMixture: the covariance of class 0 must be finite and symmetric");
  CHECK(with({0.5, 0.5}, two, Covariance::full(Matrix<double>::Identity(3, 3).eval())) ==
        "GaussianMixture: the covariance has shape [1,3,3], expected [1,2,2] (classes or 1 first)");
}

TEST_CASE("diffusion.gaussian_mixture: bad points and times and labels are named") {
  const auto mixture = test::on_a_line({-1, 1});
  const Matrix<double> x = Matrix<double>::Zero(3, 1), wide = Matrix<double>::Zero(3, 2);
  Matrix<double> bad = x;
  bad(1, 0) = NAN;
  Rng rng(0);
  const auto of = [](auto f) { return message_of<InvalidArgument>(f); };
  CHECK(of([&] { mixture.posterior(wide, 0); }) ==
        "GaussianMixture::posterior: x has shape [3,2], expected [3,1] (points of the dimension of the means)");
  CHECK(of([&] { mixture.score(bad, 0); }) == "GaussianMixture::score: x must be finite, got nan");
  CHECK(of([&] { mixture.class_scores(x, -1); }) ==
        "GaussianMixture::class_scores: t must be at least 0 and finite, got -1");
  CHECK(of([&] { mixture.class_log_densities(x, NAN); }) ==
        "GaussianMixture::class_log_densities: t must be at least 0 and finite, got nan");
  CHECK(of([&] { mixture.guided_jacobian_product(x, 0, 0, 1, wide); }) ==
        "GaussianMixture::guided_jacobian_product: v has shape [3,2], expected [3,1] (same shape as x)");
  CHECK(of([&] { mixture.guided_jacobian_product(x, 0, 2, 1, x); }) ==
        "GaussianMixture::guided_jacobian_product: label must be the index of a class, got 2");
  CHECK(of([&] { mixture.sample(-1, 0, rng); }) == "GaussianMixture::sample: count must be not negative, got -1");
  CHECK(of([&] { mixture.sample(1, 2, rng); }) == "GaussianMixture::sample: label must be the index of a class, got 2");
  CHECK(of([&] { mixture.sample(1, 0, rng, -1); }) ==
        "GaussianMixture::sample: t must be at least 0 and finite, got -1");
  CHECK(of([&] { mixture.sample(-1, rng); }) == "GaussianMixture::sample: count must be not negative, got -1");
  CHECK(of([&] { mixture.sample(1, rng, NAN); }) ==
        "GaussianMixture::sample: t must be at least 0 and finite, got nan");
}

}  // namespace
}  // namespace ashlar::diffusion
