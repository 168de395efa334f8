// One evaluation of a kernel score with its gradient against the formulas written down with Eigen; local scores; greedy
// equivalence search with BIC. Useful work of an evaluation without low rank: a Cholesky factor, the inverse and the
// products with K_X, 4 n^3 operations, at half the rate of float.
#include <Eigen/Dense>
#include <cmath>
#include <memory>
#include <numbers>
#include <vector>

#include "ashlar/causal/baseline_scores.hpp"
#include "ashlar/causal/greedy_equivalence_search.hpp"
#include "ashlar/causal/grouped_data.hpp"
#include "ashlar/causal/kernel_likelihood.hpp"
#include "ashlar/causal/kernel_score.hpp"
#include "ashlar/core/random.hpp"
#include "support/scoreboard.hpp"

namespace ashlar::causal {
namespace {

/// The joint score as a user transcribes it from the paper: column-major, every intermediate a matrix.
double plain_eigen(const Eigen::VectorXd& theta, const Eigen::MatrixXd& d_x,
                   const std::vector<Eigen::MatrixXd>& parents, double tau, Eigen::VectorXd& gradient) {
  const Index n = d_x.rows(), q = std::ssize(parents);
  const double s = theta[q], w = theta[q + 1], count = static_cast<double>(n * n);
  Eigen::MatrixXd exponent = Eigen::MatrixXd::Zero(n, n);
  for (Index p = 0; p < q; ++p) exponent += parents[static_cast<std::size_t>(p)] / (theta[p] * theta[p]);
  const Eigen::MatrixXd k = (-0.5 * exponent.array()).exp(), k_x = (d_x.array() / (-2 * w * w)).exp();
  const Eigen::LLT<Eigen::MatrixXd> factor(k + s * Eigen::MatrixXd::Identity(n, n));
  const Eigen::MatrixXd inverse = factor.solve(Eigen::MatrixXd::Identity(n, n)), r = inverse * k_x;
  const Eigen::MatrixXd m = 0.5 * (static_cast<double>(n) * inverse - r * r.transpose());
  const double f = 0.5 * k_x.cwiseProduct(r).sum() +
                   static_cast<double>(n) * factor.matrixLLT().diagonal().array().log().sum() +
                   count / 2 * std::log(2 * std::numbers::pi);
  for (Index p = 0; p < q; ++p)
    gradient[p] = (m.array() * k.array() * parents[static_cast<std::size_t>(p)].array()).sum() / std::pow(theta[p], 3);
  gradient[q] = m.trace();
  gradient[q + 1] = (r.array() * k_x.array() * d_x.array()).sum() / std::pow(w, 3);
  gradient /= count;
  const Eigen::ArrayXXd g = d_x.array() * k_x.array().square() / std::pow(w, 4);
  const auto kept = (g > tau).eval();
  const double pairs = static_cast<double>(kept.count());
  gradient[q + 1] -= kept.select(d_x.array() / std::pow(w, 3) - 2 / w, 0).sum() / pairs;
  return f / count - kept.select(0.5 * g.max(tau).log(), 0).sum() / pairs;
}

struct Problem {
  Matrix<double> data;
  std::vector<Matrix<double>> distances;
  std::vector<View<const double, 2>> parents;

  /// Column 0 depends on the q others.
  Problem(Index n, Index q) {
    Rng rng(1);
    data = normal_matrix<double>(rng, n, q + 1);
    for (Index i = 0; i < n; ++i) data(i, 0) = std::sin(data.row(i).tail(q).sum()) + 0.25 * rng.normal();
    data = standardized(data);
    for (Index j = 0; j <= q; ++j) distances.push_back(squared_distances(data.col(j).eval()));
    for (Index j = 1; j <= q; ++j) parents.emplace_back(distances[static_cast<std::size_t>(j)]);
  }
  Problem(const Problem&) = delete;
};

Vector<double> theta_at(Index q, double length) {
  Vector<double> theta(q + 2);
  theta.head(q).setConstant(length);
  theta[q] = 0.1, theta[q + 1] = 1;
  return theta;
}

void add_evaluation(Index n, Index q, double length) {
  const double order = static_cast<double>(n);
  const scoreboard::Work work{.flops = 2 * 4 * order * order * order, .exps = 2 * 2 * order * order};
  const std::string size = message("n=", n, " q=", q, q > 0 ? message(" l=", length) : std::string());
  scoreboard::add({"causal.kernel_likelihood", size, "ashlar", work}, [=] {
    auto problem = std::make_shared<Problem>(n, q);
    auto likelihood = std::make_shared<KernelLikelihood>(KernelScore::joint, problem->distances[0], problem->parents);
    return [problem, likelihood, theta = theta_at(q, length), gradient = Vector<double>(q + 2)]() mutable {
      benchmark::DoNotOptimize(likelihood->evaluate(theta, gradient));
    };
  });
  scoreboard::add({"causal.kernel_likelihood", size, "plain Eigen", work}, [=] {
    const Problem problem(n, q);
    const Eigen::MatrixXd d_x = problem.distances[0];
    const std::vector<Eigen::MatrixXd> parents(problem.distances.begin() + 1, problem.distances.end());
    return [=, theta = theta_at(q, length), gradient = Eigen::VectorXd(q + 2)]() mutable {
      benchmark::DoNotOptimize(plain_eigen(theta, d_x, parents, 1e-3, gradient));
    };
  });
  if (n > 300) return;
  scoreboard::add({"causal.kernel_likelihood", size, "reference", work}, [=] {
    auto problem = std::make_shared<Problem>(n, q);
    return [problem, theta = theta_at(q, length), gradient = Vector<double>()]() mutable {
      benchmark::DoNotOptimize(
          reference::kernel_likelihood(KernelScore::joint, problem->distances[0], problem->parents, theta, gradient));
    };
  });
}

void add_scores(Index n, Index q) {
  const std::string size = message("n=", n, " q=", q);
  std::vector<Index> parents;
  for (Index p = 1; p <= q; ++p) parents.push_back(p);
  for (const KernelScore kind : {KernelScore::joint, KernelScore::marginal})
    scoreboard::add(
        {kind == KernelScore::joint ? "causal.local_score.joint" : "causal.local_score.marginal", size, "ashlar"}, [=] {
          const Problem problem(n, q);
          auto scores = std::make_shared<KernelScores>(problem.data, KernelScoreOptions{.kind = kind});
          return [=] { benchmark::DoNotOptimize((*scores)(0, parents)); };
        });
}

/// A random linear model of `nodes` variables with two parents each.
Matrix<double> linear_data(Index n, Index nodes) {
  Rng rng(2);
  Matrix<double> data = normal_matrix<double>(rng, n, nodes);
  for (Index j = 1; j < nodes; ++j)
    for (int parent = 0; parent < 2; ++parent) data.col(j) += rng.uniform(0.4, 0.9) * data.col(rng.below(j));
  return data;
}

[[maybe_unused]] const bool registered = [] {
  for (const Index n : {100, 300, 1000})
    for (const Index q : {0, 1, 3}) add_evaluation(n, q, 1.5);
  add_evaluation(300, 3, 0.4);  // K_PA of full rank
  for (const Index n : {100, 300})
    for (const Index q : {0, 1, 3}) add_scores(n, q);
  scoreboard::add({"causal.ges.bic", "V=20 n=1000", "ashlar"}, [] {
    return [data = linear_data(1000, 20)] {
      const GaussianScores score(data);
      benchmark::DoNotOptimize(greedy_equivalence_search(20, score).score);
    };
  });
  scoreboard::add({"causal.ges.joint", "V=6 n=300", "ashlar"}, [] {
    return [data = linear_data(300, 6)] {
      const KernelScores score(data);
      benchmark::DoNotOptimize(greedy_equivalence_search(6, score).score);
    };
  });
  return true;
}();

}  // namespace
}  // namespace ashlar::causal
