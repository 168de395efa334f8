#include "ashlar/causal/greedy_equivalence_search.hpp"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "ashlar/causal/baseline_scores.hpp"
#include "ashlar/causal/kernel_score.hpp"
#include "causal/samples.hpp"
#include "discrete/graphs.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::causal {
namespace {

using discrete::NodeSet;
using discrete::Pdag;
using test::kernel_matrix;
using test::message_of;
using test::random_dag;

Pdag cpdag_of(const std::string& name) { return discrete::pdag_from_adjacency(kernel_matrix(name)); }

/// Steps against rows [phase, i, j, |T| or |H|, change]. Of two operators with equal changes either may come.
void check_trace(const GesResult& result, const std::string& name, double tolerance) {
  const Matrix<double> trace = kernel_matrix(name);
  REQUIRE(std::ssize(result.steps) == trace.rows());
  for (Index k = 0; k < trace.rows(); ++k) {
    const GesStep& step = result.steps[static_cast<std::size_t>(k)];
    INFO("step " << k);
    CHECK((step.phase == GesPhase::insert ? 0 : 1) == trace(k, 0));
    CHECK(std::set<double>{double(step.from), double(step.to)} == std::set<double>{trace(k, 1), trace(k, 2)});
    CHECK(std::abs(step.change - trace(k, 4)) <= tolerance * std::abs(trace(k, 4)));
  }
}

TEST_CASE("causal.greedy_equivalence_search: BIC on linear data matches the fixtures") {
  const GaussianScores bic(kernel_matrix("linear_data"));
  const GesResult result = greedy_equivalence_search(5, bic);
  CHECK(result.cpdag == cpdag_of("linear_ges_cpdag"));
  check_trace(result, "linear_ges_trace", 1e-8);
}

TEST_CASE(
    "causal.greedy_equivalence_search: cross-validated and marginal scores on nonlinear data match the fixtures") {
  const Matrix<double> data = kernel_matrix("nonlinear_data");
  const CrossValidatedScores cv(data, single_columns(4), {.folds = 5, .standardize = false});
  const GesResult by_cv = greedy_equivalence_search(4, cv);
  CHECK(by_cv.cpdag == cpdag_of("cv_ges_cpdag"));
  check_trace(by_cv, "cv_ges_trace", 1e-7);
  const KernelScores marginal(data, {.kind = KernelScore::marginal, .standardize = false, .length_starts = {1}});
  CHECK(greedy_equivalence_search(4, marginal).cpdag == cpdag_of("marg_ges_cpdag"));
}

/// Of x = W^T x + noise of variance 1, with random weights of size 0.6 to 1.6.
Matrix<double> covariance_of(const Pdag& dag, Rng& rng) {
  const Index nodes = dag.nodes();
  Matrix<double> weights = Matrix<double>::Zero(nodes, nodes);
  for (Index to = 0; to < nodes; ++to)
    dag.parents(to).for_each(
        [&](Index from) { weights(from, to) = rng.uniform(0.6, 1.6) * (rng.uniform() < 0.5 ? -1 : 1); });
  Matrix<double> total = Matrix<double>::Identity(nodes, nodes);
  for (const Index node : discrete::topological_order(dag))
    dag.parents(node).for_each([&](Index from) { total.row(node) += weights(from, node) * total.row(from); });
  return total * total.transpose();
}

/// BIC of n samples whose covariance is the true one.
struct ExactBic {
  Matrix<double> covariance;
  Index samples;
  double operator()(Index node, std::span<const Index> parents) const {
    return bic_score(covariance, samples, node, parents);
  }
};

TEST_CASE("causal.greedy_equivalence_search: the exact distribution of a DAG gives back its class") {
  int right = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    const Pdag dag = random_dag(rng, 7, 0.4);
    // A million samples: an edge is worth its partial correlation squared times n / 2, far above (log n) / 2, unless
    // paths cancel to 5e-3.
    const ExactBic score{covariance_of(dag, rng), 1000000};
    const GesResult result = greedy_equivalence_search(7, score);
    if (!(result.cpdag == discrete::dag_to_cpdag(dag))) continue;
    ++right;
    CHECK(std::abs(result.score - total_score(score, dag)) <= 1e-9 * result.score);
  }
  CHECK(right >= 38);
}

TEST_CASE("causal.greedy_equivalence_search: 100000 samples of linear models give the class in 18 of 20 cases") {
  int right = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    const Pdag dag = random_dag(rng, 6, 0.4);
    Matrix<double> weights = Matrix<double>::Zero(6, 6);
    for (Index to = 0; to < 6; ++to)
      dag.parents(to).for_each(
          [&](Index from) { weights(from, to) = rng.uniform(0.6, 1.6) * (rng.uniform() < 0.5 ? -1 : 1); });
    Matrix<double> data = normal_matrix<double>(rng, 100000, 6);
    for (const Index node : discrete::topological_order(dag))
      dag.parents(node).for_each([&](Index from) { data.col(node) += weights(from, node) * data.col(from); });
    right += greedy_equivalence_search(6, GaussianScores(data)).cpdag == discrete::dag_to_cpdag(dag);
  }
  CHECK(right >= 18);  // nearly cancelling paths are allowed to fail
}

TEST_CASE("causal.greedy_equivalence_search: the score is the sum over any member and the changes add up") {
  const auto seed = GENERATE(1u, 2u, 3u);
  INFO("seed " << seed);
  Rng rng(seed);
  const Pdag truth = random_dag(rng, 8, 0.4);
  const ExactBic score{covariance_of(truth, rng), 500};
  const GesResult result = greedy_equivalence_search(8, score);
  const auto dag = discrete::consistent_extension(result.cpdag);
  REQUIRE(dag.has_value());
  CHECK(discrete::dag_to_cpdag(*dag) == result.cpdag);
  const double total = total_score(score, *dag);
  CHECK(std::abs(result.score - total) <= 1e-9 * std::abs(total));
  double sum = total_score(score, Pdag(8));
  for (const auto& step : result.steps) {
    CHECK(step.change < 0);
    sum += step.change;
  }
  CHECK(std::abs(sum - total) <= 1e-9 * std::abs(total));
}

/// All classes a single edge away by definition: every DAG of the class with one edge more or less.
std::vector<Pdag> neighbours_by_definition(const Pdag& cpdag, const std::vector<Pdag>& dags, bool insert) {
  std::vector<Pdag> found;
  for (const Pdag& dag : dags) {
    if (!(discrete::dag_to_cpdag(dag) == cpdag)) continue;
    for (Index i = 0; i < 4; ++i)
      for (Index j = 0; j < 4; ++j) {
        if (i == j || (insert ? dag.has_edge(i, j) : !dag.has_directed(i, j))) continue;
        Pdag next = dag;
        insert ? next.add_directed(i, j) : next.remove(i, j);
        if (!test::is_acyclic(next)) continue;
        next = discrete::dag_to_cpdag(next);
        if (std::ranges::find(found, next) == found.end()) found.push_back(next);
      }
  }
  return found;
}

TEST_CASE("causal.greedy_equivalence_search: operators reach exactly the neighbouring classes on four nodes") {
  const auto dags = test::all_dags(4);
  std::vector<Pdag> classes;
  for (const Pdag& dag : dags) {
    const Pdag cpdag = discrete::dag_to_cpdag(dag);
    if (std::ranges::find(classes, cpdag) == classes.end()) classes.push_back(cpdag);
  }
  // A score that is the same for equivalent graphs and different for all others.
  Rng rng(5);
  const Pdag complete = random_dag(rng, 4, 1);
  const ExactBic score{covariance_of(complete, rng), 1000};
  for (const Pdag& cpdag : classes) {
    const double here = total_score(score, *discrete::consistent_extension(cpdag));
    for (const bool insert : {true, false}) {
      std::vector<detail::GesCandidate> candidates;
      for (Index i = 0; i < 4; ++i)
        for (Index j = 0; j < 4; ++j) {
          if (insert && i != j && !cpdag.has_edge(i, j)) detail::insert_candidates(cpdag, i, j, 4, candidates);
          if (!insert && (cpdag.has_directed(i, j) || cpdag.has_undirected(i, j)))
            detail::delete_candidates(cpdag, i, j, candidates);
        }
      std::vector<Pdag> reached;
      for (const auto& candidate : candidates) {
        const Pdag next = insert ? detail::apply_insert(cpdag, candidate) : detail::apply_delete(cpdag, candidate);
        if (std::ranges::find(reached, next) == reached.end()) reached.push_back(next);
        const double change =
            score(candidate.to, candidate.after.parents) - score(candidate.to, candidate.before.parents);
        const double there = total_score(score, *discrete::consistent_extension(next));
        CHECK(std::abs(there - here - change) <= 1e-9 * std::abs(here));
      }
      const auto expected = neighbours_by_definition(cpdag, dags, insert);
      const bool same = reached.size() == expected.size() && std::ranges::all_of(expected, [&](const Pdag& next) {
                          return std::ranges::find(reached, next) != reached.end();
                        });
      if (!same) {
        CAPTURE(cpdag.adjacency_matrix(), insert, reached.size(), expected.size());
        FAIL_CHECK("the operators reach other classes than those a single edge away");
      }
    }
  }
}

TEST_CASE("causal.greedy_equivalence_search: candidates come by size and then in lexicographic order") {
  Pdag star(5);  // 0 - 1, 0 - 2, 0 - 3, 1 - 2 and 4 alone
  for (const Index leaf : {1, 2, 3}) star.add_undirected(0, leaf);
  star.add_undirected(1, 2);
  std::vector<detail::GesCandidate> candidates;
  detail::insert_candidates(star, 4, 0, 5, candidates);
  std::vector<std::vector<Index>> subsets;
  for (const auto& candidate : candidates) subsets.push_back(candidate.subset);
  CHECK(subsets == std::vector<std::vector<Index>>{{}, {1}, {2}, {3}, {1, 2}});
  candidates.clear();
  detail::insert_candidates(star, 4, 0, 2, candidates);
  CHECK(candidates.size() == 4);  // 4 and one more parent
  candidates.clear();
  detail::insert_candidates(star, 4, 0, 0, candidates);
  CHECK(candidates.empty());
  candidates.clear();
  detail::delete_candidates(star, 1, 0, candidates);
  REQUIRE(candidates.size() == 2);
  CHECK((candidates[0].subset.empty() && candidates[1].subset == std::vector<Index>{2}));
}

TEST_CASE("causal.greedy_equivalence_search: the number of parents is bounded") {
  Rng rng(6);
  Pdag dag(5);  // a collider of four
  for (Index i = 0; i < 4; ++i) dag.add_directed(i, 4);
  const ExactBic score{covariance_of(dag, rng), 100000};
  CHECK(greedy_equivalence_search(5, score).cpdag == dag);
  const GesResult bounded = greedy_equivalence_search(5, score, {.max_parents = 2});
  for (Index node = 0; node < 5; ++node) CHECK(bounded.cpdag.parents(node).count() <= 2);
  CHECK(greedy_equivalence_search(5, score, {.max_parents = 0}).steps.empty());
}

TEST_CASE("causal.greedy_equivalence_search: rounding does not choose between equal gains") {
  const auto score = [](Index node, std::span<const Index> parents) {
    return parents.empty() ? 0.0 : node == 0 ? -1 - 1e-12 : -1.0;  // 1 -> 0 seems better than 0 -> 1
  };
  const GesResult result = greedy_equivalence_search(2, score);
  REQUIRE(result.steps.size() == 1);
  CHECK((result.steps[0].from == 0 && result.steps[0].to == 1));
  CHECK(greedy_equivalence_search(2, score, {.tolerance = 0}).steps[0].from == 1);
}

TEST_CASE("causal.greedy_equivalence_search: no variables and one variable and independent ones are empty graphs") {
  const ExactBic score{Matrix<double>::Identity(3, 3), 100};
  for (const Index nodes : {Index{0}, Index{1}, Index{3}}) {
    const GesResult result = greedy_equivalence_search(nodes, score);
    CHECK(result.cpdag == Pdag(nodes));
    CHECK(result.steps.empty());
  }
}

TEST_CASE("causal.greedy_equivalence_search: the same steps and bits for any number of threads") {
  const KernelScores score(kernel_matrix("nonlinear_data"));
  std::vector<GesResult> results;
  for (const int threads : {1, 2, 4})
    results.push_back(test::with_threads(threads, [&] { return greedy_equivalence_search(4, score); }));
  for (const auto& result : results) {
    CHECK(result.cpdag == results[0].cpdag);
    CHECK(result.steps == results[0].steps);
    CHECK(result.score == results[0].score);
    CHECK(result.scored_families == results[0].scored_families);
  }
}

TEST_CASE("causal.greedy_equivalence_search: bad arguments and scores are refused") {
  const ExactBic score{Matrix<double>::Identity(3, 3), 100};
  const auto run = [&](Index nodes, const GesOptions& options) {
    return message_of<InvalidArgument>([&] { greedy_equivalence_search(nodes, score, options); });
  };
  const std::string who = "greedy_equivalence_search: ";
  CHECK(run(-1, {}) == who + "nodes must be not negative, got -1");
  CHECK(run(3, {.max_parents = -1}) == who + "max_parents must be not negative, got -1");
  CHECK(run(3, {.tolerance = -1}) == who + "tolerance must be not negative, got -1");
  CHECK(run(4, {}) == "bic_score: there is no variable 3 among 3");
  const auto nan = [](Index, std::span<const Index>) { return std::numeric_limits<double>::quiet_NaN(); };
  CHECK(message_of<NumericalError>([&] { greedy_equivalence_search(2, nan); }) ==
        who + "the score of node 1 is not a number");
  Pdag undirected(3);
  undirected.add_undirected(0, 1);
  CHECK(message_of<InvalidArgument>([&] { total_score(score, undirected); }) ==
        "total_score: the graph must be directed, got an undirected edge");
}

}  // namespace
}  // namespace ashlar::causal
