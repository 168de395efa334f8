// A classifier trained on one kind of handwriting and used on another. The only thing known of the second are its
// images; a density ratio between the two, estimated with iterated regularisation, weights the training images.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/kernels/density_ratio.hpp"
#include "ashlar/kernels/density_ratio_selection.hpp"
#include "ashlar/kernels/kulsif_path.hpp"
#include "tour/tour.hpp"

namespace ashlar::tour {
namespace {

constexpr int max_iterations = 10;

/// A table with a label of -1 or 1, what the classifier sees, what the ratio is estimated on, and the direction along
/// which source and target differ.
struct Problem {
  Matrix<double> features, covariates;
  Vector<double> label, direction;
};

Matrix<double> standardised(const Matrix<double>& x) {
  const Eigen::RowVectorXd mean = x.colwise().mean();
  const Eigen::RowVectorXd deviation =
      ((x.rowwise() - mean).colwise().squaredNorm() / static_cast<double>(x.rows())).cwiseSqrt();
  return ((x.rowwise() - mean).array().rowwise() / deviation.array().max(1e-12)).matrix();
}

/// Coordinates along the directions of largest variance.
Matrix<double> principal_components(const Matrix<double>& x, Index count) {
  const Matrix<double> centred = x.rowwise() - x.colwise().mean();
  const Eigen::SelfAdjointEigenSolver<Matrix<double>> eigen(centred.transpose() * centred);
  Matrix<double> directions = eigen.eigenvectors().rowwise().reverse().leftCols(count);
  for (Index k = 0; k < count; ++k) {  // a sign that does not depend on the eigenvalue routine
    Index largest = 0;
    directions.col(k).cwiseAbs().maxCoeff(&largest);
    if (directions(largest, k) < 0) directions.col(k) *= -1;
  }
  return centred * directions;
}

/// Is the digit five or more? Source and target differ along the first principal component of the images.
Problem digits_problem(const Matrix<double>& table) {
  const Matrix<double> components = principal_components(table.leftCols(64), 16);
  Problem problem{components, standardised(components.leftCols(8)), Vector<double>(table.rows()), components.col(0)};
  for (Index i = 0; i < table.rows(); ++i) problem.label[i] = table(i, 64) >= 5 ? 1 : -1;
  return problem;
}

/// Malignant or benign from mean radius and smoothness; source and target differ in radius. sign -1: large to small.
Problem tumour_problem(const Matrix<double>& table, double sign) {
  Matrix<double> two(table.rows(), 2);
  two << table.col(0), table.col(4);
  const Matrix<double> features = standardised(two);
  Problem problem{features, features, Vector<double>(table.rows()), sign * features.col(0)};
  for (Index i = 0; i < table.rows(); ++i) problem.label[i] = table(i, table.cols() - 1) > 0 ? 1 : -1;
  return problem;
}

/// The chosen rows of a table or entries of a column.
template <class X>
X chosen_rows(const X& x, const std::vector<Index>& rows) {
  X chosen(static_cast<Index>(rows.size()), x.cols());
  for (Index i = 0; i < chosen.rows(); ++i) chosen.row(i) = x.row(rows[static_cast<std::size_t>(i)]);
  return chosen;
}

struct Split {
  std::vector<Index> source, target;
};

/// The further along the direction, the likelier a row is in the target; 0.5 in the middle, 0.88 one deviation on.
Split biased_split(const Vector<double>& direction, Rng& rng) {
  const Vector<double> z = standardised(direction).col(0);
  Split split;
  for (Index i = 0; i < z.size(); ++i)
    (rng.uniform() < 1 / (1 + std::exp(-2 * z[i])) ? split.target : split.source).push_back(i);
  return split;
}

/// Weighted ridge regression on the label, with an intercept: the last coefficient.
Vector<double> train(const Matrix<double>& x, const Vector<double>& y, const Vector<double>& weights) {
  Matrix<double> z(x.rows(), x.cols() + 1);
  z << x, Vector<double>::Ones(x.rows());
  const Vector<double> w = kernels::normalized_weights(weights) / static_cast<double>(x.rows());
  const Matrix<double> weighted = w.asDiagonal() * z;
  Matrix<double> system = z.transpose() * weighted;
  system.diagonal().head(x.cols()).array() += 1e-2;
  return system.ldlt().solve(weighted.transpose() * y);
}

double accuracy(const Vector<double>& model, const Matrix<double>& x, const Vector<double>& y) {
  const Vector<double> score = (x * model.head(x.cols())).array() + model[x.cols()];
  return static_cast<double>((score.array() * y.array() > 0).count()) / static_cast<double>(y.size());
}

/// Accuracies on the target.
struct Outcome {
  double unweighted = 0, once = 0, iterated = 0, oracle = 0;
  Vector<double> after = Vector<double>::Zero(max_iterations);  ///< [t - 1]: lambda chosen for that t
};

Outcome correct_shift(const Problem& problem, Rng& rng) {
  const Split split = biased_split(problem.direction, rng);
  const Matrix<double> x_source = chosen_rows(problem.features, split.source),
                       x_target = chosen_rows(problem.features, split.target);
  const Vector<double> y_source = chosen_rows(problem.label, split.source),
                       y_target = chosen_rows(problem.label, split.target);
  const Matrix<double> p = chosen_rows(problem.covariates, split.target),
                       q = chosen_rows(problem.covariates, split.source);

  const auto kernel = kernels::density_ratio_kernel(p, q);
  const auto lambdas = kernels::default_lambdas();
  const auto choice = kernels::select_density_ratio(p, q, kernel, {.max_iterations = max_iterations}, rng);
  const auto path = kernels::fit_kulsif_path(p, q, kernel, lambdas, max_iterations);
  const Matrix<double> scores = path.scores(q);
  const auto weighted_accuracy = [&](Index lambda, int t) {
    const Vector<double> weights = scores.col(lambda * max_iterations + t - 1).cwiseMax(0.0);
    return accuracy(train(x_source, y_source, weights), x_target, y_target);
  };
  Outcome outcome;
  outcome.unweighted = accuracy(train(x_source, y_source, Vector<double>::Ones(y_source.size())), x_target, y_target);
  outcome.oracle = accuracy(train(x_target, y_target, Vector<double>::Ones(y_target.size())), x_target, y_target);
  for (int t = 1; t <= max_iterations; ++t) {
    Index best = 0;
    choice.losses.col(t - 1).minCoeff(&best);
    outcome.after[t - 1] = weighted_accuracy(best, t);
  }
  outcome.once = outcome.after[0];
  const auto chosen = std::find(lambdas.begin(), lambdas.end(), choice.lambda) - lambdas.begin();
  outcome.iterated = weighted_accuracy(chosen, choice.iterations);
  return outcome;
}

struct Summary {
  Outcome mean;
  int repeats = 0, better = 0;
};

template <class Report>
Summary repeat(const Problem& problem, const Rng& rng, int repeats, Report&& report) {
  Summary summary{{}, repeats, 0};
  for (int i = 0; i < repeats; ++i) {
    Rng own = rng.split(static_cast<std::uint64_t>(i));
    const Outcome one = correct_shift(problem, own);
    summary.mean.unweighted += one.unweighted / repeats;
    summary.mean.once += one.once / repeats;
    summary.mean.iterated += one.iterated / repeats;
    summary.mean.oracle += one.oracle / repeats;
    summary.mean.after += one.after / repeats;
    summary.better += one.iterated > one.unweighted;
    report(i + 1);
  }
  return summary;
}

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

Row row(const std::string& claim, const Summary& summary, bool held) {
  return {"kernels/density_ratio",
          claim,
          percent(summary.mean.iterated) + " (t = 1: " + percent(summary.mean.once) + "), better in " +
              std::to_string(summary.better) + " of " + std::to_string(summary.repeats),
          percent(summary.mean.unweighted) + " unweighted, " + percent(summary.mean.oracle) + " trained on the target",
          "",
          held};
}

}  // namespace

Section covariate_shift_section(const Data& data, Rng rng, const Progress& progress) {
  constexpr int digit_repeats = 5, tumour_repeats = 10;
  constexpr double steps = digit_repeats + 2;
  const Summary digits = repeat(digits_problem(data.digits), rng.split(1), digit_repeats,
                                [&](int done) { progress(done / steps, "digits, split " + std::to_string(done)); });
  const auto tumours = [&](double sign, std::uint64_t stream) {
    return repeat(tumour_problem(data.breast_cancer, sign), rng.split(stream), tumour_repeats, [](int) {});
  };
  const Summary growing = tumours(1, 2);
  progress((digit_repeats + 1) / steps, "tumours, small to large");
  const Summary shrinking = tumours(-1, 3);
  progress(1, "tumours, large to small");

  Section section;
  section.title = "Covariate shift: training on one population for another";
  section.text =
      "Rows of a table are divided with a bias along one direction of their features, so that the source, which has "
      "labels, and the target, which has none, are different populations under the same rule. A density ratio of "
      "target "
      "to source, estimated from features alone with lambda and the number of iterations t chosen on held-out points, "
      "weights the source rows when a linear classifier is trained. Handwritten digits (is it five or more?) divided "
      "along their first principal component; tumours (malignant or benign, from radius and smoothness) divided by "
      "radius. Weights pay where the classifier is too simple to be right everywhere. They do not always: from large "
      "to "
      "small tumours the unweighted classifier has " +
      percent(shrinking.mean.unweighted) + ", the weighted one " + percent(shrinking.mean.iterated) +
      ", because the unweighted fit happens to suit small tumours and the weights cost "
      "effective sample size.";
  section.rows.push_back(row("digits: weights from the iterated ratio raise accuracy on the target", digits,
                             digits.better == digits.repeats && digits.mean.iterated >= digits.mean.once - 0.005));
  section.rows.push_back(row("tumours, small to large: the same", growing, growing.better >= growing.repeats * 8 / 10));

  Plot plot{"Digits: accuracy on the target after t iterations", "iterations t", "accuracy", false, false, {}};
  Series after{"weighted", {}, {}}, unweighted{"unweighted", {}, {}}, oracle{"trained on the target", {}, {}};
  for (int t = 1; t <= max_iterations; ++t) {
    for (Series* series : {&after, &unweighted, &oracle}) series->x.push_back(t);
    after.y.push_back(digits.mean.after[t - 1]);
    unweighted.y.push_back(digits.mean.unweighted);
    oracle.y.push_back(digits.mean.oracle);
  }
  plot.series = {after, unweighted, oracle};
  section.plots.push_back(std::move(plot));
  return section;
}

}  // namespace ashlar::tour
