// Guided sampling of Gaussian mixtures with exact scores against the same loops in plain Eigen, a batch at a time in
// column-major arrays, so that samples are in the lanes there too; DDPM draws its noise from std::normal_distribution.
// float. Useful work of a sample and step, one isotropic covariance: C exponentials, two products of 2 C d flops, and 8
// d flops for the score and the step; DDPM has d normals more, counted as one exponential each. For full covariances: C
// exponentials and two rotations a class, 4 C d^2 flops.
#include "ashlar/diffusion/guided_sampler.hpp"

#include <Eigen/Dense>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "support/scoreboard.hpp"

namespace ashlar::diffusion {
namespace {

GaussianMixture mixture_of(Index classes, Index d, bool full) {
  Rng rng(1);
  const Matrix<double> means = normal_matrix<double>(rng, classes, d, 2);
  const Vector<double> weights = Vector<double>::Constant(classes, 1 / static_cast<double>(classes));
  if (!full) return {weights, means, Covariance::isotropic(1.0)};
  Tensor<double> values({classes, d, d});
  for (Index c = 0; c < classes; ++c) {
    const auto a = normal_matrix<double>(rng, d, d);
    matrix(values.view<3>()[c]) = a * a.transpose() / static_cast<double>(d) + 0.1 * Matrix<double>::Identity(d, d);
  }
  return {weights, means, Covariance::full(values.view<3>())};
}

/// What a user would write.
class PlainSampler {
 public:
  PlainSampler(const GaussianMixture& mixture, float eta)
      : mixture_(mixture), means_(mixture.means().cast<float>()), eta_(eta) {}

  const Eigen::MatrixXf& score(const Eigen::MatrixXf& x, double t) {
    const auto a = static_cast<float>(std::exp(-t));
    if (mixture_.kind() == CovarianceKind::full) return full_score(x, a);
    const auto v = static_cast<float>(a * a * mixture_.eigenvalue(0, 0) - std::expm1(-2 * t));
    const Eigen::RowVectorXf constant = mixture_.weights().cast<float>().transpose().array().log() -
                                        a * a / (2 * v) * means_.rowwise().squaredNorm().transpose().array();
    logits_.noalias() = x * means_.transpose();
    logits_ = (a / v * logits_).rowwise() + constant;
    largest_ = logits_.rowwise().maxCoeff();
    logits_ = (logits_.colwise() - largest_).array().exp();
    sum_ = logits_.rowwise().sum();
    mean_.noalias() = logits_ * means_;
    mean_.array().colwise() /= sum_.array();
    score_ = ((-eta_ * a / v * mean_ - x / v).rowwise() + (1 + eta_) * a / v * means_.row(0)).eval();
    return score_;
  }

  void ddim(Eigen::MatrixXf& x, const TimeGrid& grid) {
    for (Index k = 0; k < grid.steps(); ++k) {
      const auto h = static_cast<float>(grid[k] - grid[k + 1]);
      x += h * (x + score(x, grid[k]));
    }
  }
  void ddpm(Eigen::MatrixXf& x, const TimeGrid& grid) {
    std::mt19937_64 engine(1);
    std::normal_distribution<float> normal;
    for (Index k = 0; k < grid.steps(); ++k) {
      const auto h = static_cast<float>(grid[k] - grid[k + 1]);
      const Eigen::MatrixXf& s = score(x, grid[k]);
      const float spread = std::sqrt(2 * h);
      for (Index i = 0; i < x.size(); ++i) x.data()[i] += h * (x.data()[i] + 2 * s.data()[i]) + spread * normal(engine);
    }
  }

 private:
  const Eigen::MatrixXf& full_score(const Eigen::MatrixXf& x, float a) {
    const Index classes = mixture_.classes(), d = mixture_.dim();
    logits_.resize(x.rows(), classes);
    scores_.resize(static_cast<std::size_t>(classes));
    for (Index c = 0; c < classes; ++c) {
      Eigen::RowVectorXf precision(d);
      float constant = std::log(static_cast<float>(mixture_.weights()[c]));
      for (Index j = 0; j < d; ++j) {
        const float v = a * a * static_cast<float>(mixture_.eigenvalue(c, j)) + 1 - a * a;
        precision[j] = 1 / v;
        constant -= std::log(v) / 2;
      }
      const Eigen::MatrixXf q = mixture_.eigenvectors(c).cast<float>();
      gap_ = (-x).rowwise() + a * means_.row(c);
      whitened_.noalias() = gap_ * q;
      logits_.col(c) = constant - (whitened_.cwiseAbs2() * precision.transpose()).array() / 2;
      whitened_ = whitened_ * precision.asDiagonal();
      scores_[static_cast<std::size_t>(c)].noalias() = whitened_ * q.transpose();
    }
    largest_ = logits_.rowwise().maxCoeff();
    logits_ = (logits_.colwise() - largest_).array().exp();
    sum_ = logits_.rowwise().sum();
    score_ = (1 + eta_) * scores_[0];
    for (Index c = 0; c < classes; ++c)
      score_ -=
          eta_ * (logits_.col(c).array() / sum_.array()).matrix().asDiagonal() * scores_[static_cast<std::size_t>(c)];
    return score_;
  }

  const GaussianMixture mixture_;
  Eigen::MatrixXf means_, logits_, mean_, score_, gap_, whitened_;
  Eigen::VectorXf largest_, sum_;
  std::vector<Eigen::MatrixXf> scores_;
  float eta_;
};

const bool registered = [] {
  struct Size {
    Index n, d, classes, steps;
    bool full;
  };
  for (const Size s : {Size{100000, 2, 3, 200, false}, Size{10000, 64, 32, 200, false}, Size{1000, 2, 3, 200, false},
                       Size{10000, 16, 8, 20, true}}) {
    const std::string size = message("N=", s.n, " d=", s.d, " C=", s.classes, " K=", s.steps, s.full ? " full" : "");
    const double evaluations = static_cast<double>(s.n * s.steps), d = static_cast<double>(s.d);
    const auto classes = static_cast<double>(s.classes);
    const double flops = evaluations * (s.full ? 4 * classes * d * d : 4 * classes * d + 8 * d);
    const auto grid = TimeGrid::graded(6, s.steps);
    const auto start = [=] {
      Rng rng(2);
      return normal_matrix<float>(rng, s.n, s.d);
    };
    const std::string ddim = "diffusion.guided_sampler.ddim", ddpm = "diffusion.guided_sampler.ddpm";
    scoreboard::add({ddim, size, "ashlar", {.flops = flops, .exps = evaluations * classes}}, [=] {
      return [=, score = MixtureScore<float>(mixture_of(s.classes, s.d, s.full), 0, {.strength = 3.0}), begin = start(),
              x = start(), workspace = std::make_shared<Workspace>()]() mutable {
        x = begin;
        ddim_sample(score, x, grid, Step::euler, {}, *workspace);
        benchmark::DoNotOptimize(x.data());
      };
    });
    scoreboard::add({ddim, size, "plain Eigen"}, [=] {
      return [=, plain = PlainSampler(mixture_of(s.classes, s.d, s.full), 3), begin = Eigen::MatrixXf(start()),
              x = Eigen::MatrixXf(start())]() mutable {
        x = begin;
        plain.ddim(x, grid);
        benchmark::DoNotOptimize(x.data());
      };
    });
    if (s.n == 1000)
      scoreboard::add({ddim, size, "reference"}, [=] {
        return [=, mixture = mixture_of(s.classes, s.d, s.full), x = Matrix<double>(start().cast<double>())]() mutable {
          Matrix<double> moved = x;
          reference::ddim_sample(
              [&](View<const double, 2> at, double t, View<double, 2> out) {
                reference::guided_score(mixture, at, t, 0, {.strength = 3.0}, out);
              },
              moved, grid, Step::euler);
          benchmark::DoNotOptimize(moved.data());
        };
      });
    if (s.full) continue;
    scoreboard::add({ddpm, size, "ashlar", {.flops = flops, .exps = evaluations * (classes + d)}}, [=] {
      return [=, score = MixtureScore<float>(mixture_of(s.classes, s.d, s.full), 0, {.strength = 3.0}), begin = start(),
              x = start(), rng = Rng(3), workspace = std::make_shared<Workspace>()]() mutable {
        x = begin;
        ddpm_sample(score, x, grid, Step::euler, rng, AncestralVariance::small, *workspace);
        benchmark::DoNotOptimize(x.data());
      };
    });
    scoreboard::add({ddpm, size, "plain Eigen"}, [=] {
      return [=, plain = PlainSampler(mixture_of(s.classes, s.d, s.full), 3), begin = Eigen::MatrixXf(start()),
              x = Eigen::MatrixXf(start())]() mutable {
        x = begin;
        plain.ddpm(x, grid);
        benchmark::DoNotOptimize(x.data());
      };
    });
  }

  const std::string normals = "numerics.normals.fill", size = "N=1000000";
  const std::size_t count = 1000000;
  scoreboard::add({normals, size, "ashlar", {.exps = static_cast<double>(count)}}, [=] {
    return [rng = Rng(1), z = std::vector<float>(count)]() mutable {
      numerics::fill_normals<float>(rng, z);
      benchmark::DoNotOptimize(z.data());
    };
  });
  scoreboard::add({normals, size, "Rng::normal"}, [=] {
    return [rng = Rng(1), z = std::vector<float>(count)]() mutable {
      for (float& x : z) x = static_cast<float>(rng.normal());
      benchmark::DoNotOptimize(z.data());
    };
  });
  scoreboard::add({normals, size, "std::normal_distribution"}, [=] {
    return [engine = std::mt19937_64(1), normal = std::normal_distribution<float>(),
            z = std::vector<float>(count)]() mutable {
      for (float& x : z) x = normal(engine);
      benchmark::DoNotOptimize(z.data());
    };
  });
  return true;
}();

}  // namespace
}  // namespace ashlar::diffusion
