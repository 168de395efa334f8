// What samples are guided to and how strongly, and guided scores made of scores that somebody learned.
//
//   s_eta = s(x | y) + eta (s(x | y) - s(x)) = (1 + eta) s(x | y) - eta s(x)
//
// eta = 0 samples from the class, eta = -1 from the mixture. Libraries speak of a guidance scale; that is 1 + eta.
//
//   auto score = classifier_free(conditional, unconditional, {.strength = 3.0});
//   ddim_sample(score, x, TimeGrid::graded(6, 400), Step::euler);       // guided_sampler.hpp
//
// Sources: Dhariwal, Nichol, NeurIPS 2021 (classifier guidance); Ho, Salimans, arXiv 2207.12598 (classifier-free);
// Kynkaanniemi et al., arXiv 2404.07724 (guidance in an interval of noise levels).
#pragma once

#include <cmath>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ashlar/core/error.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::diffusion {

/// eta of a guidance scale as libraries count it, and back.
constexpr double strength_of_scale(double scale) { return scale - 1; }
constexpr double scale_of_strength(double strength) { return 1 + strength; }

/// One value for all samples, or a view of one a sample, kept by reference.
template <class T>
class PerSample {
 public:
  PerSample(T common) : common_(common) {}
  template <class Source>
  requires(!std::is_arithmetic_v<std::remove_cvref_t<Source>> && std::is_convertible_v<Source, View<const T, 1>>)
      PerSample(Source&& each)
      : each_(std::forward<Source>(each)), varies_(true) {}

  T operator[](Index i) const { return varies_ ? each_[i] : common_; }
  bool varies() const { return varies_; }
  /// Throws InvalidArgument when there is one value a sample and not for `samples` of them.
  void check(std::string_view function, std::string_view name, Index samples) const {
    if (varies_) check_shape(function, name, each_.shape(), {samples}, "one a sample");
  }

 private:
  T common_{};
  View<const T, 1> each_;
  bool varies_ = false;
};

struct Guidance {
  PerSample<double> strength = 0.0;             ///< eta
  std::function<double(double)> schedule = {};  ///< a factor of eta at time t; nothing is 1
  double factor(double t) const { return schedule ? schedule(t) : 1.0; }
};

/// A schedule that guides at low <= t <= high only: the remedy for lost diversity.
inline std::function<double(double)> guidance_interval(double low, double high) {
  require(0 <= low && low <= high, "guidance_interval", "an interval needs 0 <= low <= high, got ", low, " and ", high);
  return [=](double t) { return t >= low && t <= high ? 1.0 : 0.0; };
}

/// score(x, t, out): writes the score at x [N, d] into out [N, d].
template <class S, class T>
concept ScoreFunction = requires(S& score, View<const T, 2> x, double t, View<T, 2> out) {
  score(x, t, out);
};
/// score(x, t, out, divergence): the divergence of the score [N] as well.
template <class S, class T>
concept ScoreWithDivergence = requires(S& score, View<const T, 2> x, double t, View<T, 2> out, View<T, 1> divergence) {
  score(x, t, out, divergence);
};

namespace detail {

/// out = p out + q other, row by row; p and q of the strength of the row.
template <class T, class P, class Q>
void combine(const Guidance& guidance, double t, View<T, 2> out, const Matrix<T>& other, P&& p, Q&& q) {
  const double factor = guidance.factor(t);
  for (Index i = 0; i < out.extent(0); ++i) {
    const double eta = factor * guidance.strength[i];
    const auto keep = static_cast<T>(p(eta)), add = static_cast<T>(q(eta));
    for (Index j = 0; j < out.extent(1); ++j) out(i, j) = keep * out(i, j) + add * other(i, j);
  }
}

template <class T>
Matrix<T>& resized(Matrix<T>& buffer, Index rows, Index cols) {
  if (buffer.rows() != rows || buffer.cols() != cols) buffer.resize(rows, cols);
  return buffer;
}

}  // namespace detail

/// (1 + eta) conditional - eta unconditional. Keeps both functions and a buffer; not for two calls at once.
template <Real T, ScoreFunction<T> Conditional, ScoreFunction<T> Unconditional>
class ClassifierFreeScore {
 public:
  ClassifierFreeScore(Conditional conditional, Unconditional unconditional, Guidance guidance)
      : conditional_(std::move(conditional)),
        unconditional_(std::move(unconditional)),
        guidance_(std::move(guidance)) {}

  void operator()(View<const T, 2> x, double t, View<T, 2> out) {
    guidance_.strength.check("classifier_free", "strength", x.extent(0));
    conditional_(x, t, out);
    unconditional_(x, t, View<T, 2>(detail::resized(other_, x.extent(0), x.extent(1))));
    combine(t, out, other_);
  }
  void operator()(View<const T, 2> x, double t, View<T, 2> out, View<T, 1> divergence) requires(
      ScoreWithDivergence<Conditional, T>&& ScoreWithDivergence<Unconditional, T>) {
    guidance_.strength.check("classifier_free", "strength", x.extent(0));
    conditional_(x, t, out, divergence);
    detail::resized(other_divergence_, x.extent(0), 1);
    unconditional_(x, t, View<T, 2>(detail::resized(other_, x.extent(0), x.extent(1))),
                   View<T, 1>(other_divergence_.data(), {x.extent(0)}));
    combine(t, out, other_);
    combine(t, View<T, 2>(divergence.data(), {x.extent(0), 1}, {divergence.stride(0), 1}), other_divergence_);
  }

 private:
  void combine(double t, View<T, 2> out, const Matrix<T>& other) const {
    detail::combine(
        guidance_, t, out, other, [](double eta) { return 1 + eta; }, [](double eta) { return -eta; });
  }

  Conditional conditional_;
  Unconditional unconditional_;
  Guidance guidance_;
  Matrix<T> other_, other_divergence_;
};

/// Classifier-free guidance of two scores of a network.
template <Real T = float, class Conditional, class Unconditional>
auto classifier_free(Conditional conditional, Unconditional unconditional, Guidance guidance) {
  return ClassifierFreeScore<T, Conditional, Unconditional>(std::move(conditional), std::move(unconditional),
                                                            std::move(guidance));
}

/// What the score that a classifier's gradient is added to stands for.
enum class GuidedFrom {
  conditional,   ///< s(x | y) + eta grad log p(y | x)
  unconditional  ///< s(x) + (1 + eta) grad log p(y | x): the same for exact scores
};

/// A score plus the gradient of a classifier's log-probability. Keeps both functions and a buffer.
template <Real T, ScoreFunction<T> Score, ScoreFunction<T> Gradient>
class ClassifierGuidedScore {
 public:
  ClassifierGuidedScore(Score score, Gradient log_gradient, Guidance guidance, GuidedFrom from)
      : score_(std::move(score)), log_gradient_(std::move(log_gradient)), guidance_(std::move(guidance)), from_(from) {}

  void operator()(View<const T, 2> x, double t, View<T, 2> out) {
    guidance_.strength.check("classifier_guided", "strength", x.extent(0));
    score_(x, t, out);
    log_gradient_(x, t, View<T, 2>(detail::resized(other_, x.extent(0), x.extent(1))));
    const double extra = from_ == GuidedFrom::unconditional ? 1 : 0;
    detail::combine(
        guidance_, t, out, other_, [](double) { return 1.0; }, [=](double eta) { return eta + extra; });
  }

 private:
  Score score_;
  Gradient log_gradient_;
  Guidance guidance_;
  GuidedFrom from_;
  Matrix<T> other_;
};

/// Classifier guidance. log_gradient(x, t, out) writes grad_x log p(y | x).
template <Real T = float, class Score, class Gradient>
auto classifier_guided(Score score, Gradient log_gradient, Guidance guidance,
                       GuidedFrom from = GuidedFrom::conditional) {
  return ClassifierGuidedScore<T, Score, Gradient>(std::move(score), std::move(log_gradient), std::move(guidance),
                                                   from);
}

}  // namespace ashlar::diffusion
