// Graphs for tests: random DAGs, all DAGs on a few nodes, and d-separation by definition.
#pragma once

#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/discrete/pdag.hpp"

namespace ashlar::test {

/// Each pair is an edge with probability `density`, in a random order of the nodes.
inline discrete::Pdag random_dag(Rng& rng, Index nodes, double density) {
  const auto order = rng.permutation(nodes);
  discrete::Pdag dag(nodes);
  for (std::size_t a = 0; a < order.size(); ++a)
    for (std::size_t b = a + 1; b < order.size(); ++b)
      if (rng.uniform() < density) dag.add_directed(order[a], order[b]);
  return dag;
}

inline bool is_acyclic(const discrete::Pdag& graph) {
  try {
    discrete::topological_order(graph);
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

/// Every DAG on `nodes` nodes: each pair without an edge or with one of two, cycles left out.
inline std::vector<discrete::Pdag> all_dags(Index nodes) {
  std::vector<discrete::Pdag> graphs{discrete::Pdag(nodes)};
  for (Index i = 0; i < nodes; ++i)
    for (Index j = i + 1; j < nodes; ++j) {
      const auto before = graphs;
      for (const auto& graph : before) {
        graphs.push_back(graph);
        graphs.back().add_directed(i, j);
        graphs.push_back(graph);
        graphs.back().add_directed(j, i);
      }
    }
  std::erase_if(graphs, [](const discrete::Pdag& graph) { return !is_acyclic(graph); });
  return graphs;
}

}  // namespace ashlar::test
