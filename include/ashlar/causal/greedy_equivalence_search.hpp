// Greedy equivalence search: the CPDAG of least score by single edges, first added while that helps, then deleted. With
// a consistent score and enough samples of a distribution that is faithful to a DAG it ends at that DAG's class.
//
//   const causal::GaussianScores score(data);
//   const auto result = causal::greedy_equivalence_search(score.variables(), score);
//   result.cpdag.adjacency_matrix();  result.score;  result.steps;        // what was done, in order
//
// A state is a class of equivalent DAGs, so no step depends on which of them one happens to hold.
//   insert(i, j, T):  i, j not adjacent, T neighbours of j not adjacent to i; valid where NA + T is a clique and meets
//                     every semi-directed path from j to i, NA = neighbours of j adjacent to i. Gains
//                     S(j, NA + T + pa(j) + i) - S(j, NA + T + pa(j))
//   delete(i, j, H):  i -> j or i - j, H in NA; valid where NA - H is a clique. Gains
//                     S(j, NA - H + pa(j) - i) - S(j, NA - H + pa(j) + i)
// Of equal gains, and gains within the tolerance are equal, the first in the order (i, j, |T|, T) is taken: scores of
// equivalent graphs differ by rounding alone, and rounding does not choose.
//
// Every local score is computed once; those a sweep needs are computed by all threads. The result does not depend on
// their number.
//
// Source: Chickering, "Optimal Structure Identification With Greedy Search", JMLR 3 (2002), theorems 15 and 17.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/causal/score_cache.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/discrete/equivalence_class.hpp"
#include "ashlar/discrete/pdag.hpp"

namespace ashlar::causal {

struct GesOptions {
  Index max_parents = std::numeric_limits<Index>::max();  ///< directed parents of j, T among them, after an insert
  double tolerance = 1e-10;  ///< a gain must exceed it, and the gain of an earlier candidate by as much
};

enum class GesPhase { insert, erase };

struct GesStep {
  GesPhase phase;
  Index from, to;
  std::vector<Index> subset;  ///< T or H
  double change;              ///< of the score, negative

  friend bool operator==(const GesStep&, const GesStep&) = default;
};

struct GesResult {
  discrete::Pdag cpdag;
  double score;  ///< sum of the local scores of any DAG in the class
  std::vector<GesStep> steps;
  Index scored_families;  ///< local scores computed
};

namespace detail {

using discrete::NodeSet;
using discrete::Pdag;

/// An operator with the two families whose scores it exchanges.
struct GesCandidate {
  Index from, to;
  std::vector<Index> subset;
  Family before, after;
};

inline Family family_of(Index node, const NodeSet& parents) { return {node, parents.members()}; }

/// Valid inserts of from -> to, by |T| and then in lexicographic order. A T that is no clique with NA has no valid
/// superset; one that meets all paths has only such supersets.
inline void insert_candidates(const Pdag& graph, Index from, Index to, Index max_parents,
                              std::vector<GesCandidate>& out) {
  const NodeSet joint = graph.neighbours(to) & graph.adjacent(from);
  const std::vector<Index> others = (graph.neighbours(to) - graph.adjacent(from)).members();
  const Index parents = graph.parents(to).count() + 1;
  if (parents > max_parents || !is_clique(graph, joint)) return;

  struct Set {
    std::vector<Index> chosen;
    std::size_t next;  ///< where in `others` supersets go on
    bool meets_paths;
  };
  std::vector<Set> level{{{}, 0, false}};
  while (!level.empty()) {
    std::vector<Set> larger;
    for (Set& set : level) {
      NodeSet base = joint;
      for (const Index node : set.chosen) base.insert(node);
      set.meets_paths = set.meets_paths || !has_semi_directed_path(graph, to, from, base);
      if (set.meets_paths) {
        NodeSet before = base | graph.parents(to), after = before;
        after.insert(from);
        out.push_back({from, to, set.chosen, family_of(to, before), family_of(to, after)});
      }
      if (parents + std::ssize(set.chosen) >= max_parents) continue;
      for (std::size_t k = set.next; k < others.size(); ++k) {
        if (!base.is_subset_of(graph.adjacent(others[k]))) continue;  // no clique
        Set superset = set;
        superset.chosen.push_back(others[k]);
        superset.next = k + 1;
        larger.push_back(std::move(superset));
      }
    }
    level = std::move(larger);
  }
}

/// Valid deletions of the edge from -> to or from - to, by |H| and then in lexicographic order.
inline void delete_candidates(const Pdag& graph, Index from, Index to, std::vector<GesCandidate>& out) {
  const NodeSet joint = graph.neighbours(to) & graph.adjacent(from);
  const std::vector<Index> members = joint.members();
  std::vector<std::vector<Index>> kept{{}};  // the cliques within NA, each from a smaller one
  for (std::size_t k = 0; k < kept.size(); ++k)
    for (const Index node : members) {
      if (!kept[k].empty() && node <= kept[k].back()) continue;
      if (!NodeSet(graph.nodes(), kept[k]).is_subset_of(graph.adjacent(node))) continue;
      std::vector<Index> larger = kept[k];
      larger.push_back(node);
      kept.push_back(std::move(larger));
    }
  const std::size_t first = out.size();
  for (const auto& clique : kept) {
    const NodeSet stay(graph.nodes(), clique);
    NodeSet after = stay | graph.parents(to);
    after.erase(from);
    NodeSet before = after;
    before.insert(from);
    out.push_back({from, to, (joint - stay).members(), family_of(to, before), family_of(to, after)});
  }
  std::sort(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(),
            [](const GesCandidate& a, const GesCandidate& b) {
              return std::pair(a.subset.size(), a.subset) < std::pair(b.subset.size(), b.subset);
            });
}

inline Pdag completed(const Pdag& graph) {
  const auto dag = discrete::consistent_extension(graph);
  ASHLAR_ASSERT(dag.has_value());  // by theorems 15 and 17
  return discrete::dag_to_cpdag(*dag);
}

inline Pdag apply_insert(Pdag graph, const GesCandidate& candidate) {
  graph.add_directed(candidate.from, candidate.to);
  for (const Index t : candidate.subset) graph.direct(t, candidate.to);
  return completed(graph);
}

inline Pdag apply_delete(Pdag graph, const GesCandidate& candidate) {
  graph.remove(candidate.from, candidate.to);
  for (const Index h : candidate.subset) {
    graph.direct(candidate.to, h);
    if (graph.has_undirected(candidate.from, h)) graph.direct(candidate.from, h);
  }
  return completed(graph);
}

}  // namespace detail

/// Sum of the local scores of a DAG. Throws InvalidArgument for a graph that is none.
template <LocalScore Score>
double total_score(const Score& score, const discrete::Pdag& dag) {
  double sum = 0;
  for (const Index node : discrete::topological_order(dag, "total_score"))
    sum += static_cast<double>(score(node, dag.parents(node).members()));
  return sum;
}

/// From the empty graph over `nodes` nodes. score(node, parents) gives the same number for equivalent graphs when
/// summed (BIC does, kernel scores do nearly); lower is better. Throws InvalidArgument for a negative number of nodes,
/// of max_parents or tolerance, NumericalError for a score that is not a number, and whatever the score throws.
template <LocalScore Score>
GesResult greedy_equivalence_search(Index nodes, const Score& score, const GesOptions& options = {}) {
  constexpr auto function = "greedy_equivalence_search";
  check_argument(nodes >= 0, function, "nodes", "not negative", nodes);
  check_argument(options.max_parents >= 0, function, "max_parents", "not negative", options.max_parents);
  check_argument(options.tolerance >= 0, function, "tolerance", "not negative", options.tolerance);
  ScoreCache<Score> cache(score);
  GesResult result{discrete::Pdag(nodes), 0, {}, 0};

  for (const GesPhase phase : {GesPhase::insert, GesPhase::erase})
    for (;;) {
      std::vector<detail::GesCandidate> candidates;
      for (Index i = 0; i < nodes; ++i)
        for (Index j = 0; j < nodes; ++j) {
          if (phase == GesPhase::insert && i != j && !result.cpdag.has_edge(i, j))
            detail::insert_candidates(result.cpdag, i, j, options.max_parents, candidates);
          if (phase == GesPhase::erase && (result.cpdag.has_directed(i, j) || result.cpdag.has_undirected(i, j)))
            detail::delete_candidates(result.cpdag, i, j, candidates);
        }
      std::vector<Family> families;
      for (const auto& candidate : candidates) {
        families.push_back(candidate.before);
        families.push_back(candidate.after);
      }
      cache.prefetch(std::move(families));

      const detail::GesCandidate* best = nullptr;
      double best_change = 0;
      for (const auto& candidate : candidates) {
        const double change =
            cache(candidate.to, candidate.after.parents) - cache(candidate.to, candidate.before.parents);
        if (std::isnan(change))
          throw NumericalError(message(function, ": the score of node ", candidate.to, " is not a number"));
        if (change < best_change - options.tolerance) best = &candidate, best_change = change;
      }
      if (best == nullptr) break;
      result.cpdag = phase == GesPhase::insert ? detail::apply_insert(result.cpdag, *best)
                                               : detail::apply_delete(result.cpdag, *best);
      result.steps.push_back({phase, best->from, best->to, best->subset, best_change});
    }

  const auto dag = discrete::consistent_extension(result.cpdag);
  for (Index node = 0; node < nodes; ++node) result.score += cache(node, dag->parents(node).members());
  result.scored_families = cache.size();
  return result;
}

}  // namespace ashlar::causal
