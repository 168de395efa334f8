#include "ashlar/diffusion/mixture_score.hpp"

#include <cmath>
#include <string>
#include <vector>

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

constexpr CovarianceKind kinds[] = {CovarianceKind::isotropic, CovarianceKind::diagonal, CovarianceKind::full};

TEST_CASE("diffusion.mixture_score: guided scores and divergences are those of the oracle") {
  for (const std::string& name : test::fixture_names)
    for (const bool as_full : {false, true}) {
      const GaussianMixture mixture = test::fixture_mixture(name, as_full);
      const auto x = test::array(name + "_X"), times = test::array(name + "_t"), etas = test::array(name + "_eta");
      const auto guided = test::array(name + "_guided"), div = test::array(name + "_div");
      Matrix<double> out(x.extent(0), x.extent(1));
      Vector<double> divergence(x.extent(0));
      for (Index i = 0; i < times.size(); ++i)
        for (Index e = 0; e < etas.size(); ++e) {
          const double t = times.data()[i], eta = etas.data()[e];
          INFO(name << " as full " << as_full << " t " << t << " eta " << eta);
          guided_score(mixture, x.matrix(), t, 1, {.strength = eta}, out, divergence);
          CHECK(worst_gap(out, matrix(guided.view<4>()[i][e])) <= 1e-10);
          CHECK(worst_gap(divergence, vector(div.view<3>()[i][e])) <= 1e-9);
          reference::guided_score(mixture, x.view<2>(), t, 1, {.strength = eta}, out, divergence);
          CHECK(worst_gap(out, matrix(guided.view<4>()[i][e])) <= 1e-10);
          CHECK(worst_gap(divergence, vector(div.view<3>()[i][e])) <= 1e-9);
        }
    }
}

/// Fast against reference with a label and a strength for every sample, through views with gaps.
template <class T>
void compare(Rng& rng, const GaussianMixture& mixture, Index n, double tolerance) {
  const Index d = mixture.dim();
  Matrix<double> x = normal_matrix<double>(rng, n, d, 2).template cast<T>().template cast<double>();
  std::vector<Index> labels;
  std::vector<double> etas;
  for (Index i = 0; i < n; ++i) {
    labels.push_back(rng.below(mixture.classes()));
    etas.push_back(rng.uniform(-1, 6));
  }
  const Guidance guidance{.strength = etas, .schedule = [](double t) { return 1 / (1 + t); }};
  Matrix<double> expected(n, d);
  Vector<double> expected_divergence(n);
  Matrix<T> wide = Matrix<T>::Constant(n, 2 * d + 1, T(7)), result = wide;
  Vector<T> divergence(n);
  const auto gaps = [&](Matrix<T>& m) { return View<T, 2>(m.data() + 1, {n, d}, {2 * d + 1, 2}); };
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < d; ++j) gaps(wide)(i, j) = static_cast<T>(x(i, j));
  for (const double t : {0.0, 0.8}) {
    reference::guided_score(mixture, x, t, labels, guidance, expected, expected_divergence);
    const View<const T, 2> points = gaps(wide);
    guided_score(mixture, points, t, labels, guidance, gaps(result), divergence);
    CHECK(worst_gap(matrix(gaps(result)), expected) <= tolerance);
    CHECK(worst_gap(divergence, expected_divergence) <= 10 * tolerance);
    for (Index i = 0; i < n; ++i) REQUIRE(result(i, 0) == T(7));
    // Without the divergence, and in place.
    Matrix<T> same = matrix(points);
    guided_score(mixture, same, t, labels, guidance, same);
    CHECK(worst_gap(same, matrix(gaps(result))) == 0);
  }
}

TEST_CASE("diffusion.mixture_score: the fast form is the reference over shapes and kinds and scalars") {
  Rng rng(11);
  for (const auto kind : kinds)
    for (const bool common : {true, false})
      for (const auto& [classes, d] :
           {std::pair<Index, Index>{1, 1}, {2, 1}, {3, 2}, {5, 3}, {4, 4}, {3, 5}, {9, 8}, {6, 17}, {33, 20}})
        for (const Index n : {1, 7, 160, 161, 333}) {
          if (n > 161 && d > 5) continue;
          INFO("kind " << static_cast<int>(kind) << " common " << common << " classes " << classes << " d " << d
                       << " n " << n);
          const auto mixture = test::random_mixture(rng, classes, d, kind, common);
          // Condition: the smallest variance is 0.1, scores reach 1e3, strengths 7.
          compare<double>(rng, mixture, n, 1e-11);
          compare<float>(rng, mixture, n, 2e-3);
        }
}

TEST_CASE("diffusion.mixture_score: the divergence is that of finite differences") {
  Rng rng(12);
  for (const auto kind : kinds) {
    const auto mixture = test::random_mixture(rng, 3, 3, kind, kind == CovarianceKind::isotropic);
    const auto x = normal_matrix<double>(rng, 30, 3);
    Matrix<double> out(30, 3), up(30, 3), down(30, 3);
    Vector<double> divergence(30), sum = Vector<double>::Zero(30);
    constexpr double h = 1e-5, t = 0.5;
    guided_score(mixture, x, t, 1, {.strength = 2.0}, out, divergence);
    for (Index j = 0; j < 3; ++j) {
      Matrix<double> moved = x;
      moved.col(j).array() += h;
      guided_score(mixture, moved, t, 1, {.strength = 2.0}, up);
      moved.col(j).array() -= 2 * h;
      guided_score(mixture, moved, t, 1, {.strength = 2.0}, down);
      sum += (up.col(j) - down.col(j)) / (2 * h);
    }
    CHECK(worst_gap(divergence, sum) <= 1e-6);
  }
}

TEST_CASE("diffusion.mixture_score: strength minus one is the score of the mixture and zero that of the class") {
  Rng rng(13);
  for (const auto kind : kinds) {
    const auto mixture = test::random_mixture(rng, 4, 3, kind, true);
    const auto x = normal_matrix<double>(rng, 50, 3, 3);
    Matrix<double> out(50, 3);
    guided_score(mixture, x, 0.3, 2, {.strength = -1.0}, out);
    CHECK(worst_gap(out, mixture.score(x, 0.3)) <= 1e-12);
    guided_score(mixture, x, 0.3, 2, {.strength = 0.0}, out);
    const auto scores = mixture.class_scores(x, 0.3);
    for (Index i = 0; i < 50; ++i)
      CHECK((out.row(i) - matrix(scores.view<3>()[i]).row(2)).cwiseAbs().maxCoeff() <= 1e-12);
  }
}

TEST_CASE("diffusion.mixture_score: guidance of unit covariances never expands the flow") {
  // div(x + s_eta) = -eta a^2 tr Cov_q(mu) <= 0, far tails included, where |s_c|^2 are huge and nearly equal.
  Rng rng(14);
  const auto circle = test::on_a_circle(5, 3);
  const Matrix<double> square = Matrix<double>::Identity(2, 2);
  const GaussianMixture general(circle.weights(), circle.means(), Covariance::full(square));
  Matrix<double> x = normal_matrix<double>(rng, 400, 2, 3), out(400, 2);
  x.bottomRows(100) *= 1e6;
  Vector<double> divergence(400);
  for (const double t : {0.0, 0.4, 3.0}) {
    const double a2 = std::exp(-2 * t);
    const Matrix<double> q = circle.posterior(x, t);
    for (const auto& mixture : {circle, general}) {
      guided_score(mixture, x, t, 1, {.strength = 4.0}, out, divergence);
      for (Index i = 0; i < 400; ++i) {
        const Vector<double> mean = circle.means().transpose() * q.row(i).transpose();
        const double trace = q.row(i).dot((circle.means().rowwise() - mean.transpose()).rowwise().squaredNorm());
        CHECK(divergence[i] + 2 <= 1e-13);
        if (i < 300) CHECK(std::abs(divergence[i] + 2 + 4 * a2 * trace) <= 1e-11 * (1 + trace));
      }
    }
  }
}

TEST_CASE("diffusion.mixture_score: one class and equal classes leave nothing to guide") {
  Rng rng(15);
  const auto x = normal_matrix<double>(rng, 20, 2);
  Matrix<double> plain(20, 2), guided(20, 2);
  Vector<double> a(20), b(20);
  const std::vector<double> one{1}, thirds{0.25, 0.25, 0.5};
  const Matrix<double> mean = Matrix<double>::Constant(1, 2, 0.7), means = Matrix<double>::Constant(3, 2, 0.7);
  const Matrix<double> covariance = test::random_covariance(rng, 2);
  for (const auto& shared : {Covariance::isotropic(0.5), Covariance::full(covariance)})
    for (const auto& mixture : {GaussianMixture(one, mean, shared), GaussianMixture(thirds, means, shared)}) {
      guided_score(mixture, x, 0.2, 0, {.strength = 0.0}, plain, a);
      guided_score(mixture, x, 0.2, 0, {.strength = 1e6}, guided, b);
      CHECK(worst_gap(guided, plain) <= 1e-9);  // 1e6 times the rounding of a mean
      CHECK(worst_gap(b, a) <= 1e-9);
    }
}

TEST_CASE("diffusion.mixture_score: classes of weight zero count for nothing wherever they stand") {
  Rng rng(16);
  const auto x = normal_matrix<double>(rng, 40, 2);
  const auto all = normal_matrix<double>(rng, 4, 2);
  Matrix<double> kept(2, 2), out(40, 2), expected(40, 2);
  kept << all.row(1), all.row(3);
  const std::vector<double> sparse{0, 0.4, 0, 0.6}, dense{0.4, 0.6}, variances{9, 0.5, 8, 0.7}, own{0.5, 0.7};
  Vector<double> a(40), b(40);
  for (const bool common : {true, false}) {
    const GaussianMixture with(sparse, all, common ? Covariance::isotropic(0.5) : Covariance::isotropic(variances));
    const GaussianMixture without(dense, kept, common ? Covariance::isotropic(0.5) : Covariance::isotropic(own));
    guided_score(with, x, 0.1, 3, {.strength = 2.0}, out, a);
    guided_score(without, x, 0.1, 1, {.strength = 2.0}, expected, b);
    CHECK(out == expected);
    CHECK(a == b);
    CHECK(message_of<InvalidArgument>([&] { MixtureScore<double>(with, 2, {}); }) ==
          "MixtureScore: class 2 has weight 0, so nothing can be guided to it");
  }
}

TEST_CASE("diffusion.mixture_score: far tails stay finite in float") {
  for (const double variance : {1.0, 0.01}) {
    const auto mixture = test::on_a_line({-3, 0, 3}, variance);
    const GaussianMixture general(mixture.weights(), mixture.means(),
                                  Covariance::isotropic(std::vector<double>{variance, variance, variance}));
    Matrix<float> x{{-400}, {400}, {0}}, out(3, 1);
    Vector<float> divergence(3);
    for (const auto& m : {mixture, general}) {
      guided_score(m, x, 0, 1, {.strength = 5.0}, out, divergence);
      CHECK((out.allFinite() && divergence.allFinite()));
      // One-hot at the ends: s_y + eta (s_y - s_far)
      const double slope = 1 / variance;
      CHECK(std::abs(out(1, 0) / (slope * (-400 - 5 * 3.0)) - 1) <= 1e-5);
      CHECK(std::abs(divergence[1] / -slope - 1) <= 1e-5);
    }
  }
}

TEST_CASE("diffusion.mixture_score: bits do not depend on the number of threads") {
  Rng rng(17);
  for (const auto kind : kinds) {
    const auto mixture = test::random_mixture(rng, 5, 6, kind, kind == CovarianceKind::isotropic);
    const auto x = normal_matrix<float>(rng, 1000, 6);
    const auto run = [&](int threads) {
      return test::with_threads(threads, [&] {
        Matrix<float> out(1000, 7);
        Vector<float> divergence(1000);
        guided_score(mixture, x, 0.3, 2, {.strength = 2.0}, out.leftCols(6), divergence);
        out.col(6) = divergence;
        return test::copy_of<2>(out);
      });
    };
    CHECK(test::identical(run(1), run(2)));
    CHECK(test::identical(run(1), run(4)));
  }
}

TEST_CASE("diffusion.mixture_score: an evaluation with a grown workspace allocates only the constants of its time") {
  Rng rng(18);
  for (const auto kind : kinds) {
    const auto mixture = test::random_mixture(rng, 5, 6, kind, true);
    const auto x = normal_matrix<double>(rng, 700, 6);
    Matrix<double> out(700, 6);
    Vector<double> divergence(700);
    const MixtureScore<double> score(mixture, 1, {.strength = 2.0});
    Workspace workspace;
    const auto call = [&](Index n) {
      return test::allocations(
          [&] { score.evaluate("test", x.topRows(n), 0.3, out.topRows(n), divergence.head(n), workspace); });
    };
    call(700);
    CHECK(call(700) == 0);
  }
}

TEST_CASE("diffusion.mixture_score: no samples are no work") {
  const auto mixture = test::on_a_line({-1, 1});
  Matrix<double> none(0, 1), out(0, 1);
  guided_score(mixture, none, 0, 0, {.strength = 1.0}, out);
  CHECK(out.rows() == 0);
}

TEST_CASE("diffusion.mixture_score: bad input is named and writes nothing") {
  const auto mixture = test::on_a_line({-1, 1});
  Matrix<double> x = Matrix<double>::Zero(3, 1), out = Matrix<double>::Constant(3, 1, 7), wide(3, 2);
  const auto with = [&](const auto& points, double t, PerSample<Index> label, Guidance guidance, View<double, 2> to,
                        View<double, 1> divergence = {}) {
    return message_of<InvalidArgument>([&] { guided_score(mixture, points, t, label, guidance, to, divergence); });
  };
  CHECK(with(wide, 0, 0, {}, wide) ==
        "guided_score: x has shape [3,2], expected [3,1] (points of the dimension of the means)");
  CHECK(with(x, 0, 0, {}, wide) == "guided_score: out has shape [3,2], expected [3,1] (same shape as x)");
  Vector<double> two(2);
  CHECK(with(x, 0, 0, {}, out, two) == "guided_score: divergence has shape [2], expected [3] (one a sample)");
  CHECK(with(x.topRows(2), 0, 0, {}, x.bottomRows(2)) == "guided_score: out overlaps x without being x");
  CHECK(with(x, 0, 2, {}, out) == "MixtureScore: label must be the index of a class, got 2");
  CHECK(with(x, 0, -1, {}, out) == "MixtureScore: label must be the index of a class, got -1");
  CHECK(with(x, 0, std::vector<Index>{0, 1, 5}, {}, out) == "guided_score: label must be the index of a class, got 5");
  CHECK(with(x, 0, std::vector<Index>{0, 1}, {}, out) ==
        "guided_score: label has shape [2], expected [3] (one a sample)");
  CHECK(with(x, 0, 0, {.strength = NAN}, out) == "MixtureScore: strength must be finite, got nan");
  const std::vector<double> four(4, 1), infinite{0, 1, INFINITY};
  CHECK(with(x, 0, 0, {.strength = four}, out) == "guided_score: strength has shape [4], expected [3] (one a sample)");
  CHECK(with(x, 0, 0, {.strength = infinite}, out) == "guided_score: strength must be finite, got inf");
  CHECK(with(x, 0, 0, {.strength = 1.0, .schedule = [](double) { return NAN; }}, out) ==
        "guided_score: the schedule must be finite, got nan");
  CHECK(with(x, -0.5, 0, {}, out) == "guided_score: t must be at least 0 and finite, got -0.5");
  Matrix<double> bad = x;
  bad(2, 0) = INFINITY;
  CHECK(with(bad, 0, 0, {}, out) == "guided_score: x must be finite, got inf");
  const auto points = test::on_a_line({-1, 1}, 0);
  CHECK(message_of<InvalidArgument>([&] { guided_score(points, x, 0, 0, {}, out); }) ==
        "guided_score: the covariance of class 0 is singular, so t must be positive, got 0");
  CHECK(out == Matrix<double>::Constant(3, 1, 7));
}

}  // namespace
}  // namespace ashlar::diffusion
