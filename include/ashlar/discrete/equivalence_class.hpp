// Markov equivalence: the CPDAG that stands for all DAGs with the same d-separations, and a DAG of a CPDAG.
//
//   const discrete::Pdag cpdag = discrete::dag_to_cpdag(dag);       // i -> j where all members agree, i - j elsewhere
//   const auto member = discrete::consistent_extension(cpdag);      // nothing where the graph stands for no DAG
//
// Two DAGs are equivalent exactly where they have the same skeleton and the same v-structures (i -> k <- j, i and j not
// adjacent).
#pragma once

#include <optional>

#include "ashlar/core/error.hpp"
#include "ashlar/discrete/pdag.hpp"

namespace ashlar::discrete {

/// Directs undirected edges that every consistent extension directs the same way. Three rules are enough from the
/// v-structures of a DAG. O(E V / 64) a pass, E passes at most, two or three as a rule.
/// Source: Meek, "Causal inference and causal explanation with background knowledge", UAI 1995, rules R1 to R3.
inline void apply_meek_rules(Pdag& graph) {
  const auto forced = [&](Index a, Index b) {
    const bool no_new_v_structure = !(graph.parents(a) - graph.adjacent(b)).empty();  // c -> a - b
    const bool no_cycle = graph.children(a).intersects(graph.parents(b));             // a -> c -> b
    return no_new_v_structure || no_cycle || !is_clique(graph, graph.neighbours(a) & graph.parents(b));
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (Index a = 0; a < graph.nodes(); ++a)
      for (const Index b : graph.neighbours(a).members())
        if (forced(a, b)) {
          graph.direct(a, b);
          changed = true;
        }
  }
}

/// The CPDAG of the equivalence class of a DAG. Throws InvalidArgument for an undirected edge and for a cycle.
inline Pdag dag_to_cpdag(const Pdag& dag) {
  topological_order(dag, "dag_to_cpdag");
  Pdag cpdag(dag.nodes());
  for (Index to = 0; to < dag.nodes(); ++to)
    dag.parents(to).for_each([&](Index from) {
      NodeSet apart = dag.parents(to) - dag.adjacent(from);  // the other parents, those not adjacent to this one
      apart.erase(from);
      apart.empty() ? cpdag.add_undirected(from, to) : cpdag.add_directed(from, to);
    });
  apply_meek_rules(cpdag);
  return cpdag;
}

/// A DAG with the same skeleton, the same v-structures and the directed edges as they are; nothing where there is
/// none. O(V^4 / 64) at worst.
/// Source: Dor, Tarsi, "A simple algorithm to construct a consistent extension of a partially oriented graph" (1992).
inline std::optional<Pdag> consistent_extension(Pdag graph) {
  Pdag dag(graph.nodes());
  for (Index to = 0; to < graph.nodes(); ++to)
    graph.parents(to).for_each([&](Index from) { dag.add_directed(from, to); });
  NodeSet left(graph.nodes());
  for (Index node = 0; node < graph.nodes(); ++node) left.insert(node);

  // No edge leaves the node, and its neighbours are adjacent to all others around it: it can be the last.
  const auto is_sink = [&](Index node) {
    bool sink = graph.children(node).empty();
    graph.neighbours(node).for_each([&](Index neighbour) {
      NodeSet others = graph.adjacent(node);
      others.erase(neighbour);
      sink = sink && others.is_subset_of(graph.adjacent(neighbour));
    });
    return sink;
  };
  while (!left.empty()) {
    Index sink = -1;
    left.for_each([&](Index node) {
      if (sink < 0 && is_sink(node)) sink = node;
    });
    if (sink < 0) return std::nullopt;
    graph.neighbours(sink).for_each([&](Index neighbour) { dag.add_directed(neighbour, sink); });
    for (const Index other : graph.adjacent(sink).members()) graph.remove(sink, other);
    left.erase(sink);
  }
  return dag;
}

}  // namespace ashlar::discrete
