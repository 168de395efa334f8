// Using a density ratio: choosing among, or averaging, models that were trained on a source distribution for use on a
// target distribution, when labels exist on the source only.
//
//   const auto mix = kernels::aggregate(source_outputs, target_outputs, labels, weights);   // weights: beta(x_i),
//   source Matrix<double> f = kernels::combine(mix.theta, new_outputs);
//
// Model outputs are [models, samples, classes] (class probabilities, or vectors of a regression); labels are
// [samples, classes], one-hot for classes. k, i, c below index models, samples, classes.
//
// Source: Gruber et al., ICML 2024, section 5; the aggregation is that of Dinu et al., "Addressing parameter choice
// issues in unsupervised domain adaptation by aggregation", ICLR 2023 (IWA). IWV: Sugiyama et al. 2007; DEV: You et al.
// 2019.
#pragma once

#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <cmath>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::kernels {

struct Aggregation {
  Vector<double> theta;    ///< [models]: the weight of each; zero for the models left out
  Matrix<double> gram;     ///< [models, models]: G of the models used, zero elsewhere
  Vector<double> moment;   ///< [models]: g of the models used
  std::vector<bool> used;  ///< [models]: false where an output is not finite
  Index rank = 0;          ///< singular values of G kept; 0 (all outputs zero) makes theta zero
};

/// Scores of every model, smaller is better, and the smallest; ties go to the smaller number.
struct ModelScores {
  Vector<double> scores;  ///< [models]
  Index best = 0;
};

namespace detail {

using Outputs = View<const double, 3>;

inline void check_labels(std::string_view function, const Outputs& source, const View<const double, 2>& labels) {
  require(source.extent(0) > 0 && source.extent(1) > 0 && source.extent(2) > 0, function, "source has shape ",
          source.shape(), ", expected at least one model, sample and class");
  check_shape(function, "labels", labels.shape(), {source.extent(1), source.extent(2)}, "samples by classes of source");
  require(matrix(labels).allFinite(), function, "labels has an entry that is not finite");
}

inline Vector<double> checked_weights(std::string_view function, View<const double, 1> w, Index count) {
  check_shape(function, "weights", w.shape(), {count}, "one weight a source sample");
  require(vector(w).allFinite(), function, "weights has an entry that is not finite");
  return vector(w);
}

inline std::vector<bool> finite_models(const Outputs& outputs) {
  std::vector<bool> finite(static_cast<std::size_t>(outputs.extent(0)));
  for (Index k = 0; k < outputs.extent(0); ++k) finite[static_cast<std::size_t>(k)] = matrix(outputs[k]).allFinite();
  return finite;
}

/// Models as rows, [models, samples * classes]; zero for those left out.
inline Matrix<double> flattened(const Outputs& outputs, const std::vector<bool>& used) {
  Matrix<double> flat = Matrix<double>::Zero(outputs.extent(0), outputs.extent(1) * outputs.extent(2));
  for (Index k = 0; k < outputs.extent(0); ++k)
    if (used[static_cast<std::size_t>(k)])
      Eigen::Map<Matrix<double>>(flat.row(k).data(), outputs.extent(1), outputs.extent(2)) = matrix(outputs[k]);
  return flat;
}

/// pinv(gram) moment for a symmetric matrix: singular values up to rcond times the largest count as zero.
inline Vector<double> pseudo_solve(const Matrix<double>& gram, const Vector<double>& moment, double rcond,
                                   Index& rank) {
  const Eigen::SelfAdjointEigenSolver<Matrix<double>> eigen(gram);
  if (eigen.info() != Eigen::Success)
    throw NumericalError("aggregate: the eigenvalues of the Gram matrix of the models did not converge");
  const Vector<double> values = eigen.eigenvalues();
  const double cutoff = rcond * values.cwiseAbs().maxCoeff();
  Vector<double> coordinates = eigen.eigenvectors().transpose() * moment;
  rank = 0;
  for (Index i = 0; i < values.size(); ++i) {
    const bool kept = std::abs(values[i]) > cutoff;
    coordinates[i] = kept ? coordinates[i] / values[i] : 0;
    rank += kept;
  }
  return eigen.eigenvectors() * coordinates;
}

inline void check_rcond(std::string_view function, double rcond) {
  check_argument(rcond >= 0 && rcond < 1, function, "rcond", "at least 0 and below 1", rcond);
}

/// The least-squares theta for outputs . theta = targets over (sample, class), minimum norm.
inline Aggregation least_squares(std::string_view function, const Outputs& outputs, const Matrix<double>& targets,
                                 double rcond) {
  check_rcond(function, rcond);
  Aggregation fit;
  fit.used = finite_models(outputs);
  const Matrix<double> flat = flattened(outputs, fit.used);
  fit.gram = flat * flat.transpose();
  fit.moment = flat * Eigen::Map<const Vector<double>>(targets.data(), targets.size());
  // Singular values of the outputs are square roots of those of the Gram matrix.
  fit.theta = pseudo_solve(fit.gram, fit.moment, rcond * rcond, fit.rank);
  return fit;
}

inline Matrix<double> one_hot(const std::vector<Index>& labels, Index classes) {
  Matrix<double> targets = Matrix<double>::Zero(static_cast<Index>(labels.size()), classes);
  for (std::size_t i = 0; i < labels.size(); ++i) targets(static_cast<Index>(i), labels[i]) = 1;
  return targets;
}

}  // namespace detail

/// The class with the largest entry of every row: [samples]. Ties go to the smallest class.
inline std::vector<Index> classes_of(View<const double, 2> outputs) {
  std::vector<Index> labels(static_cast<std::size_t>(outputs.extent(0)));
  for (Index i = 0; i < outputs.extent(0); ++i) matrix(outputs).row(i).maxCoeff(&labels[static_cast<std::size_t>(i)]);
  return labels;
}

/// f[i, c] = sum_k theta_k outputs[k, i, c]. Models with theta zero may hold anything, NaN included.
inline Matrix<double> combine(View<const double, 1> theta, View<const double, 3> outputs) {
  check_shape("combine", "theta", theta.shape(), {outputs.extent(0)}, "one weight a model");
  Matrix<double> f = Matrix<double>::Zero(outputs.extent(1), outputs.extent(2));
  for (Index k = 0; k < outputs.extent(0); ++k)
    if (theta[k] != 0) f += theta[k] * matrix(outputs[k]);
  return f;
}

/// Importance-weighted aggregation: theta = pinv(G) g, the least-squares fit to the target's unseen labels with
///   G[k, k'] = 1/m sum over target of <F_k, F_k'>,   g[k] = 1/n sum over source of w_i <F_k, y_i>.
/// source: [models, n, classes], target: [models, m, classes], labels: [n, classes], weights: [n], the density ratio
/// target over source. rcond: singular values of G below this share of the largest count as zero.
/// O(models^2 (n + m) classes). Throws InvalidArgument for shapes that do not fit and rcond outside [0, 1).
inline Aggregation aggregate(View<const double, 3> source, View<const double, 3> target, View<const double, 2> labels,
                             View<const double, 1> weights, double rcond = 1e-2) {
  constexpr auto function = "aggregate";
  detail::check_labels(function, source, labels);
  check_shape(function, "target", target.shape(), {source.extent(0), target.extent(1), source.extent(2)},
              "models and classes of source");
  require(target.extent(1) > 0, function, "target has no samples");
  detail::check_rcond(function, rcond);
  const Vector<double> w = detail::checked_weights(function, weights, source.extent(1));

  Aggregation mix;
  mix.used = detail::finite_models(source);
  const auto target_finite = detail::finite_models(target);
  for (std::size_t k = 0; k < mix.used.size(); ++k) mix.used[k] = mix.used[k] && target_finite[k];
  const Matrix<double> on_target = detail::flattened(target, mix.used), on_source = detail::flattened(source, mix.used);
  mix.gram = on_target * on_target.transpose() / static_cast<double>(target.extent(1));
  const Matrix<double> weighted = w.asDiagonal() * matrix(labels);
  mix.moment = on_source * Eigen::Map<const Vector<double>>(weighted.data(), weighted.size()) /
               static_cast<double>(source.extent(1));
  mix.theta = detail::pseudo_solve(mix.gram, mix.moment, rcond, mix.rank);
  for (std::size_t k = 0; k < mix.used.size(); ++k)
    if (!mix.used[k]) mix.theta[static_cast<Index>(k)] = 0;
  return mix;
}

/// errors[k, i] = 1 where model k's class of source sample i is not the label's, else 0: [models, n].
inline Matrix<double> zero_one_errors(View<const double, 3> source, View<const double, 2> labels) {
  detail::check_labels("zero_one_errors", source, labels);
  const auto truth = classes_of(labels);
  Matrix<double> errors(source.extent(0), source.extent(1));
  for (Index k = 0; k < errors.rows(); ++k) {
    const auto predicted = classes_of(source[k]);
    for (Index i = 0; i < errors.cols(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      errors(k, i) = predicted[at] == truth[at] ? 0 : 1;
    }
  }
  return errors;
}

namespace detail {

template <class Score>
ModelScores scored(std::string_view function, View<const double, 2> errors, View<const double, 1> weights,
                   Score&& score) {
  require(errors.extent(0) > 0 && errors.extent(1) > 0, function, "errors has shape ", errors.shape(),
          ", expected at least one model and sample");
  const Vector<double> w = checked_weights(function, weights, errors.extent(1));
  require(matrix(errors).allFinite(), function, "errors has an entry that is not finite");
  ModelScores result{Vector<double>(errors.extent(0))};
  for (Index k = 0; k < errors.extent(0); ++k) {
    const Vector<double> loss = w.cwiseProduct(matrix(errors).row(k).transpose());
    result.scores[k] = score(loss, w);
  }
  result.scores.minCoeff(&result.best);
  return result;
}

}  // namespace detail

/// Importance-weighted validation: mean_i w_i err_k(i). errors: [models, n], weights: [n].
inline ModelScores importance_weighted_validation(View<const double, 2> errors, View<const double, 1> weights) {
  return detail::scored("importance_weighted_validation", errors, weights,
                        [](const Vector<double>& loss, const Vector<double>&) { return loss.mean(); });
}

/// Deep embedded validation: the same with the weights as a control variate,
/// mean L + eta mean w - eta, L = w err_k, eta = -Cov(L, w) / Var(w), both over n - 1. Constant weights: eta = 0.
inline ModelScores deep_embedded_validation(View<const double, 2> errors, View<const double, 1> weights) {
  return detail::scored("deep_embedded_validation", errors, weights,
                        [](const Vector<double>& loss, const Vector<double>& w) {
                          const Vector<double> deviation = w.array() - w.mean();
                          const double variance = deviation.squaredNorm();  // times n - 1, which cancels
                          const double covariance = deviation.dot((loss.array() - loss.mean()).matrix());
                          const double eta = variance > 0 ? -covariance / variance : 0;
                          return loss.mean() + eta * w.mean() - eta;
                        });
}

/// The class most models choose, sample by sample: [samples]. Ties go to the smallest class; models whose outputs are
/// not finite have no vote.
inline std::vector<Index> majority_vote(View<const double, 3> outputs) {
  require(outputs.extent(0) > 0 && outputs.extent(2) > 0, "majority_vote", "outputs has shape ", outputs.shape(),
          ", expected at least one model and class");
  Matrix<double> votes = Matrix<double>::Zero(outputs.extent(1), outputs.extent(2));
  const auto used = detail::finite_models(outputs);
  for (Index k = 0; k < outputs.extent(0); ++k) {
    if (!used[static_cast<std::size_t>(k)]) continue;
    const auto labels = classes_of(outputs[k]);
    for (Index i = 0; i < votes.rows(); ++i) votes(i, labels[static_cast<std::size_t>(i)]) += 1;
  }
  return classes_of(votes);
}

/// Baseline: theta fits the source labels, without weights.
inline Aggregation fit_source_labels(View<const double, 3> source, View<const double, 2> labels, double rcond = 1e-2) {
  detail::check_labels("fit_source_labels", source, labels);
  return detail::least_squares("fit_source_labels", source, matrix(labels), rcond);
}

/// Baseline: theta fits the majority vote of the models on the target.
inline Aggregation fit_target_vote(View<const double, 3> target, double rcond = 1e-2) {
  const auto pseudo = detail::one_hot(majority_vote(target), target.extent(2));
  return detail::least_squares("fit_target_vote", target, pseudo, rcond);
}

/// Baseline: theta fits the class of the models' mean output on the target.
inline Aggregation fit_target_mean(View<const double, 3> target, double rcond = 1e-2) {
  require(target.extent(0) > 0 && target.extent(2) > 0, "fit_target_mean", "target has shape ", target.shape(),
          ", expected at least one model and class");
  const auto used = detail::finite_models(target);
  Vector<double> share(target.extent(0));
  for (Index k = 0; k < share.size(); ++k) share[k] = used[static_cast<std::size_t>(k)] ? 1 : 0;
  const auto pseudo = detail::one_hot(classes_of(combine(share, target)), target.extent(2));
  return detail::least_squares("fit_target_mean", target, pseudo, rcond);
}

}  // namespace ashlar::kernels
