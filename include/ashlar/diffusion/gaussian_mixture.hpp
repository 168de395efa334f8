// A Gaussian mixture under the Ornstein-Uhlenbeck process dx = -x dt + sqrt(2) dB, with everything a diffusion model
// would have to learn in closed form. At time t, with a = e^-t,
//
//   x | y ~ N(a mu_y, S_y),    S_y = a^2 Sigma_y + (1 - a^2) I,
//   l_y = log w_y + log N(x; a mu_y, S_y),    q(y | x) = softmax_y l_y,
//   score of a class  s_y = -S_y^-1 (x - a mu_y),    score of the mixture  s = sum_y q_y s_y.
//
//   const GaussianMixture mixture(weights, means, Covariance::isotropic(1));      // [C], [C, d]
//   Matrix<double> q = mixture.posterior(x, 0);                                   // [N, C]
//   Matrix<double> start = mixture.sample(1000, 2, rng, 6.0);                     // class 2 at time 6
//
// Covariances are diagonalised once; S_y has the same eigenvectors and eigenvalues a^2 lambda + 1 - a^2 at every time.
// Everything here is computed in double, one point after another, threaded over points: this is what fast forms are
// held against. Scores for samplers are in mixture_score.hpp.
//
// Source: Wu, Chen, Li, Wang, Wei, "Theoretical Insights for Diffusion Guidance: A Case Study for Gaussian Mixture
// Models", ICML 2024, arXiv 2403.01639.
#pragma once

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::diffusion {

enum class CovarianceKind {
  isotropic,  ///< sigma^2 I
  diagonal,
  full
};

/// The covariances of a mixture: one for every class, or one they share (the paper's theorems).
struct Covariance {
  CovarianceKind kind = CovarianceKind::isotropic;
  Tensor<double> values;  ///< [C or 1], [C or 1, d], [C or 1, d, d]

  static Covariance isotropic(double variance) { return {CovarianceKind::isotropic, Tensor<double>({1}, variance)}; }
  static Covariance isotropic(View<const double, 1> variances) { return of(CovarianceKind::isotropic, variances); }
  /// variances: [C, d], or [1, d] for all classes.
  static Covariance diagonal(View<const double, 2> variances) { return of(CovarianceKind::diagonal, variances); }
  /// matrices: [C, d, d], or [1, d, d] for all classes.
  static Covariance full(View<const double, 3> matrices) { return of(CovarianceKind::full, matrices); }
  static Covariance full(View<const double, 2> common) {
    return of(CovarianceKind::full, View<const double, 3>(common.data(), {1, common.extent(0), common.extent(1)},
                                                          {0, common.stride(0), common.stride(1)}));
  }

 private:
  template <int R>
  static Covariance of(CovarianceKind kind, const View<const double, R>& view) {
    Covariance covariance{kind, Tensor<double>(Shape(view.shape()))};
    double* to = covariance.values.data();
    const auto copy = [&](auto&& self, const auto& part) -> void {
      for (Index i = 0; i < part.extent(0); ++i)
        if constexpr (std::remove_cvref_t<decltype(part)>::rank == 1)
          *to++ = part[i];
        else
          self(self, part[i]);
    };
    copy(copy, view);
    return covariance;
  }
};

/// What time does to an eigenvalue of a covariance: a^2 lambda + 1 - a^2, the latter without cancellation.
class ForwardVariance {
 public:
  explicit ForwardVariance(double t) : kept_(std::exp(-2 * t)), noise_(-std::expm1(-2 * t)) {}
  double operator()(double eigenvalue) const { return kept_ * eigenvalue + noise_; }

 private:
  double kept_, noise_;
};

class GaussianMixture;

/// The mixture at one time: constants of its densities, and the densities and scores of one point.
class MixtureAtTime {
 public:
  double signal() const { return signal_; }                             ///< a = e^-t
  double variance(Index c, Index j) const { return variances_(c, j); }  ///< eigenvalues of S_c, all positive
  double log_constant(Index c) const { return log_constants_[c]; }      ///< log N(x; ..) at its centre
  double precision_trace(Index c) const { return variances_.row(c).cwiseInverse().sum(); }

  /// log N(x; a mu_c, S_c). x: d numbers; score, when not null: d numbers that become s_c. whitened: d of scratch.
  double class_density(Index c, const double* x, double* whitened, double* score) const;
  /// z becomes S_c^-1 v. whitened: d numbers of scratch.
  void solve(Index c, const double* v, double* whitened, double* z) const;

 private:
  friend class GaussianMixture;
  const GaussianMixture* mixture_ = nullptr;
  double signal_ = 1;
  Matrix<double> variances_;
  Vector<double> log_constants_;
};

class GaussianMixture {
 public:
  /// weights: [C], not negative, sum 1 within 1e-9. means: [C, d]. Covariances have eigenvalues of at least 0; where
  /// one is 0, densities and scores exist for t > 0 only. Throws InvalidArgument for anything else.
  GaussianMixture(View<const double, 1> weights, View<const double, 2> means, const Covariance& covariance)
      : weights_(vector(weights)), means_(matrix(means)), kind_(covariance.kind) {
    constexpr auto function = "GaussianMixture";
    require(classes() >= 1 && dim() >= 1, function, "means has shape ", means.shape(),
            ", expected at least one class and one dimension");
    check_shape(function, "weights", weights.shape(), {classes()}, "one a class");
    for (Index c = 0; c < classes(); ++c) {
      check_argument(weights_[c] >= 0, function, "every weight", "not negative", weights_[c]);
      for (Index j = 0; j < dim(); ++j)
        check_argument(std::isfinite(means_(c, j)), function, "every mean", "finite", means_(c, j));
    }
    check_argument(std::abs(weights_.sum() - 1) <= 1e-9, function, "the sum of the weights", "1", weights_.sum());
    diagonalise(covariance.values);
  }

  Index classes() const { return means_.rows(); }
  Index dim() const { return means_.cols(); }
  const Vector<double>& weights() const { return weights_; }  ///< [C]
  const Matrix<double>& means() const { return means_; }      ///< [C, d]
  CovarianceKind kind() const { return kind_; }
  bool common_covariance() const { return eigenvalues_.rows() == 1; }
  double eigenvalue(Index c, Index j) const { return eigenvalues_(shared(c), j); }
  /// Columns are the eigenvectors of Sigma_c. Empty unless the covariances are full.
  const Matrix<double>& eigenvectors(Index c) const { return eigenvectors_[static_cast<std::size_t>(shared(c))]; }

  /// Throws InvalidArgument for t < 0, and for t = 0 where a covariance is singular.
  MixtureAtTime at(double t, std::string_view function = "GaussianMixture::at") const {
    check_time(function, t);
    const ForwardVariance variance(t);
    MixtureAtTime at;
    at.mixture_ = this;
    at.signal_ = std::exp(-t);
    at.variances_.resize(classes(), dim());
    at.log_constants_.resize(classes());
    for (Index c = 0; c < classes(); ++c) {
      for (Index j = 0; j < dim(); ++j) at.variances_(c, j) = variance(eigenvalue(c, j));
      at.log_constants_[c] = log_constant(c, variance);
    }
    return at;
  }

  /// log N(x; a mu_c, S_c) where it is largest.
  double log_constant(Index c, const ForwardVariance& variance) const {
    double logs = static_cast<double>(dim()) * std::log(2 * std::numbers::pi);
    for (Index j = 0; j < dim(); ++j) logs += std::log(variance(eigenvalue(c, j)));
    return -logs / 2;
  }

  /// Throws as at(t) does, with `function` in the message.
  void check_time(std::string_view function, double t) const {
    check_argument(t >= 0 && std::isfinite(t), function, "t", "at least 0 and finite", t);
    const ForwardVariance variance(t);
    for (Index c = 0; c < classes(); ++c)
      for (Index j = 0; j < dim(); ++j)
        require(variance(eigenvalue(c, j)) > 0, function, "the covariance of class ", c,
                " is singular, so t must be positive, got ", t);
  }

  // Points x: [N, d], float or double, finite. All throw InvalidArgument for other shapes, and as at(t).

  /// log N(x; a mu_c, S_c): [N, C]. The logarithms of the weights are not part of it.
  template <class X>
  Matrix<double> class_log_densities(const X& x, double t) const {
    Matrix<double> out(In<X, 2>(x).extent(0), classes());
    for_each_point<X>("GaussianMixture::class_log_densities", x, t,
                      [&](Index i, Point& p) { out.row(i) = p.log_densities.transpose(); });
    return out;
  }

  /// log p_t(x): [N].
  template <class X>
  Vector<double> log_density(const X& x, double t) const {
    Vector<double> out(In<X, 2>(x).extent(0));
    for_each_point<X>("GaussianMixture::log_density", x, t, [&](Index i, Point& p) { out[i] = p.log_density; });
    return out;
  }

  /// q(c | x) at time t: [N, C].
  template <class X>
  Matrix<double> posterior(const X& x, double t) const {
    Matrix<double> out(In<X, 2>(x).extent(0), classes());
    for_each_point<X>("GaussianMixture::posterior", x, t,
                      [&](Index i, Point& p) { out.row(i) = p.posterior.transpose(); });
    return out;
  }

  /// s_c: [N, C, d].
  template <class X>
  Tensor<double> class_scores(const X& x, double t) const {
    auto out = Tensor<double>::uninitialized({In<X, 2>(x).extent(0), classes(), dim()});
    for_each_point<X>("GaussianMixture::class_scores", x, t, [&](Index i, Point& p) {
      std::copy_n(p.scores.data(), p.scores.size(), out.data() + i * p.scores.size());
    });
    return out;
  }

  /// The score of the mixture: [N, d].
  template <class X>
  Matrix<double> score(const X& x, double t) const {
    Matrix<double> out(In<X, 2>(x).extent(0), dim());
    for_each_point<X>("GaussianMixture::score", x, t,
                      [&](Index i, Point& p) { out.row(i) = p.posterior.transpose() * p.scores; });
    return out;
  }

  /// Row i of the result is J v_i, J the Jacobian of the guided score (1 + eta) s_y - eta s at x_i: what the
  /// sensitivity of the probability-flow ODE is made of. With eta = -1, the Jacobian of the score of the mixture. v:
  /// [N, d].
  template <class X>
  Matrix<double> guided_jacobian_product(const X& x, double t, Index label, double eta, In<X, 2> v) const {
    constexpr auto function = "GaussianMixture::guided_jacobian_product";
    check_label(function, label);
    check_shape(function, "v", v.shape(), In<X, 2>(x).shape(), "same shape as x");
    Matrix<double> out(In<X, 2>(x).extent(0), dim());
    for_each_point<X>(function, x, t, [&](Index i, Point& p) {
      const Vector<double> direction = vector(v[i]).template cast<double>();
      const Vector<double> mean = p.scores.transpose() * p.posterior;
      Vector<double> mixture = Vector<double>::Zero(dim()), solved(dim()), own = mixture;
      for (Index c = 0; c < classes(); ++c) {
        if (p.posterior[c] == 0 && c != label) continue;
        p.at.solve(c, direction.data(), p.whitened.data(), solved.data());
        const Vector<double> gap = p.scores.row(c).transpose() - mean;
        mixture += p.posterior[c] * (gap * gap.dot(direction) - solved);
        if (c == label) own = -solved;
      }
      out.row(i) = ((1 + eta) * own - eta * mixture).transpose();
    });
    return out;
  }

  /// [count, d] independent draws from the class `label` at time t: from N(a mu, S).
  Matrix<double> sample(Index count, Index label, Rng& rng, double t = 0) const {
    constexpr auto function = "GaussianMixture::sample";
    check_argument(count >= 0, function, "count", "not negative", count);
    check_argument(label >= 0 && label < classes(), function, "label", "the index of a class", label);
    check_argument(t >= 0 && std::isfinite(t), function, "t", "at least 0 and finite", t);
    Matrix<double> x(count, dim());
    for (Index i = 0; i < count; ++i) draw(label, rng, t, x.row(i));
    return x;
  }

  struct Labelled {
    Matrix<double> x;           ///< [count, d]
    std::vector<Index> labels;  ///< [count]
  };
  /// Draws a class by its weight, then a point of it.
  Labelled sample(Index count, Rng& rng, double t = 0) const {
    constexpr auto function = "GaussianMixture::sample";
    check_argument(count >= 0, function, "count", "not negative", count);
    check_argument(t >= 0 && std::isfinite(t), function, "t", "at least 0 and finite", t);
    Labelled result{Matrix<double>(count, dim()), {}};
    for (Index i = 0; i < count; ++i) {
      result.labels.push_back(rng.categorical(weights_));
      draw(result.labels.back(), rng, t, result.x.row(i));
    }
    return result;
  }

  /// A class one can guide to: an index whose weight is not zero. `function` goes into the message.
  void check_label(std::string_view function, Index label) const {
    check_argument(label >= 0 && label < classes(), function, "label", "the index of a class", label);
    require(weights_[label] > 0, function, "class ", label, " has weight 0, so nothing can be guided to it");
  }

 private:
  /// What is known about one point.
  struct Point {
    const MixtureAtTime& at;
    Vector<double> x, whitened, log_densities, posterior;
    Matrix<double> scores;  ///< [C, d]
    double log_density = 0;
  };

  template <class X, class Use>
  void for_each_point(std::string_view function, In<X, 2> x, double t, Use&& use) const {
    check_shape(function, "x", x.shape(), {x.extent(0), dim()}, "points of the dimension of the means");
    for (Index i = 0; i < x.extent(0); ++i)
      for (Index j = 0; j < dim(); ++j) check_argument(std::isfinite(x(i, j)), function, "x", "finite", x(i, j));
    const MixtureAtTime mixture_at_t = at(t, function);
    parallel_for(x.extent(0), 64, [&](Index begin, Index end) {
      Point p{mixture_at_t,
              Vector<double>(dim()),
              Vector<double>(dim()),
              Vector<double>(classes()),
              Vector<double>(classes()),
              Matrix<double>(classes(), dim())};
      for (Index i = begin; i < end; ++i) {
        p.x = vector(x[i]).template cast<double>();
        double largest = -std::numeric_limits<double>::infinity();
        for (Index c = 0; c < classes(); ++c) {
          p.log_densities[c] = p.at.class_density(c, p.x.data(), p.whitened.data(), p.scores.row(c).data());
          p.posterior[c] = std::log(weights_[c]) + p.log_densities[c];
          largest = std::max(largest, p.posterior[c]);
        }
        // Not Eigen's exp, which on SSE2 stops at the smallest normal number and leaves a trace of what is impossible.
        for (double& logit : p.posterior) logit = std::exp(logit - largest);
        const double sum = p.posterior.sum();
        p.posterior /= sum;
        p.log_density = largest + std::log(sum);
        use(i, p);
      }
    });
  }

  Index shared(Index c) const { return common_covariance() ? 0 : c; }

  template <class Row>
  void draw(Index label, Rng& rng, double t, Row row) const {
    const ForwardVariance variance(t);
    Vector<double> z(dim());
    for (Index j = 0; j < dim(); ++j) z[j] = std::sqrt(variance(eigenvalue(label, j))) * rng.normal();
    if (kind_ == CovarianceKind::full) z = (eigenvectors(label) * z).eval();
    row = std::exp(-t) * means_.row(label) + z.transpose();
  }

  void diagonalise(const Tensor<double>& values) {
    constexpr auto function = "GaussianMixture";
    const Index given = values.rank() >= 1 && values.extent(0) == 1 ? 1 : classes();
    Shape expected{given};
    if (kind_ == CovarianceKind::diagonal) expected = {given, dim()};
    if (kind_ == CovarianceKind::full) expected = {given, dim(), dim()};
    check_shape(function, "the covariance", values.shape().extents(), expected.extents(), "classes or 1 first");
    eigenvalues_.resize(given, dim());
    eigenvectors_.resize(static_cast<std::size_t>(given));
    for (Index c = 0; c < given; ++c) {
      if (kind_ == CovarianceKind::full) {
        const Eigen::Map<const Matrix<double>> matrix(values.data() + c * dim() * dim(), dim(), dim());
        const double scale = matrix.cwiseAbs().maxCoeff();
        require(std::isfinite(matrix.sum()) && (matrix - matrix.transpose()).cwiseAbs().maxCoeff() <= 1e-9 * scale,
                function, "the covariance of class ", c, " must be finite and symmetric");
        const Eigen::SelfAdjointEigenSolver<Matrix<double>> solver(matrix);
        eigenvalues_.row(c) = solver.eigenvalues().transpose();
        eigenvectors_[static_cast<std::size_t>(c)] = solver.eigenvectors();
        // Rounding leaves eigenvalues that are zero a little to either side.
        const double slack = 1e-12 * scale;
        eigenvalues_.row(c) = (eigenvalues_.row(c).array().abs() <= slack).select(0.0, eigenvalues_.row(c).array());
      } else {
        for (Index j = 0; j < dim(); ++j)
          eigenvalues_(c, j) = values.data()[kind_ == CovarianceKind::isotropic ? c : c * dim() + j];
      }
      for (Index j = 0; j < dim(); ++j)
        require(eigenvalues_(c, j) >= 0 && std::isfinite(eigenvalues_(c, j)), function, "the covariance of class ", c,
                " must be finite and positive semi-definite, got the eigenvalue ", eigenvalues_(c, j));
    }
  }

  Vector<double> weights_;
  Matrix<double> means_;
  CovarianceKind kind_;
  Matrix<double> eigenvalues_;                ///< [C or 1, d]
  std::vector<Matrix<double>> eigenvectors_;  ///< [C or 1], each [d, d] or empty
};

inline void MixtureAtTime::solve(Index c, const double* v, double* whitened, double* z) const {
  const Index d = mixture_->dim();
  const bool rotated = mixture_->kind() == CovarianceKind::full;
  for (Index j = 0; j < d; ++j) {
    double sum = v[j];
    if (rotated) {
      sum = 0;
      for (Index l = 0; l < d; ++l) sum += mixture_->eigenvectors(c)(l, j) * v[l];
    }
    whitened[j] = sum / variances_(c, j);
  }
  for (Index j = 0; j < d; ++j) {
    double sum = whitened[j];
    if (rotated) {
      sum = 0;
      for (Index l = 0; l < d; ++l) sum += mixture_->eigenvectors(c)(j, l) * whitened[l];
    }
    z[j] = sum;
  }
}

inline double MixtureAtTime::class_density(Index c, const double* x, double* whitened, double* score) const {
  const Index d = mixture_->dim();
  for (Index j = 0; j < d; ++j) score[j] = signal_ * mixture_->means()(c, j) - x[j];
  double squared = 0;  // (x - a mu)^T S^-1 (x - a mu), in the eigenbasis: no cancellation
  for (Index j = 0; j < d; ++j) {
    double z = score[j];
    if (mixture_->kind() == CovarianceKind::full) {
      z = 0;
      for (Index l = 0; l < d; ++l) z += mixture_->eigenvectors(c)(l, j) * score[l];
    }
    whitened[j] = z / variances_(c, j);
    squared += z * whitened[j];
  }
  if (mixture_->kind() == CovarianceKind::full) {
    for (Index j = 0; j < d; ++j) {
      score[j] = 0;
      for (Index l = 0; l < d; ++l) score[j] += mixture_->eigenvectors(c)(j, l) * whitened[l];
    }
  } else {
    std::copy_n(whitened, d, score);
  }
  return log_constants_[c] - squared / 2;
}

}  // namespace ashlar::diffusion
