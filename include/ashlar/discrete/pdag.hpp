// Partially directed graphs: at most one edge between two nodes, i -> j or i - j. DAGs and the CPDAGs of their
// equivalence classes are such graphs.
//
//   discrete::Pdag graph(3);
//   graph.add_directed(0, 1);                                    // 0 -> 1
//   graph.add_undirected(1, 2);                                  // 1 - 2
//   Matrix<int> m = graph.adjacency_matrix();                    // m(0, 1) = 1, m(1, 0) = 0; m(1, 2) = m(2, 1) = 1
//   d_separated(dag, 0, 2, NodeSet(3, std::vector<Index>{1}));
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/discrete/node_set.hpp"

namespace ashlar::discrete {

/// V^2 / 2 bytes. Every member throws InvalidArgument for a node that the graph does not have.
class Pdag {
 public:
  /// Without edges.
  explicit Pdag(Index nodes = 0) {
    check_argument(nodes >= 0, "Pdag", "nodes", "not negative", nodes);
    const std::vector<NodeSet> none(static_cast<std::size_t>(nodes), NodeSet(nodes));
    parents_ = children_ = neighbours_ = adjacent_ = none;
  }

  Index nodes() const { return std::ssize(parents_); }
  const NodeSet& parents(Index node) const { return parents_[at("Pdag::parents", node)]; }
  const NodeSet& children(Index node) const { return children_[at("Pdag::children", node)]; }
  const NodeSet& neighbours(Index node) const { return neighbours_[at("Pdag::neighbours", node)]; }  ///< by i - j
  const NodeSet& adjacent(Index node) const { return adjacent_[at("Pdag::adjacent", node)]; }        ///< by any edge

  bool has_directed(Index from, Index to) const {
    at("Pdag::has_directed", to);
    return children_[at("Pdag::has_directed", from)].contains(to);
  }
  bool has_undirected(Index a, Index b) const {
    at("Pdag::has_undirected", b);
    return neighbours_[at("Pdag::has_undirected", a)].contains(b);
  }
  bool has_edge(Index a, Index b) const {
    at("Pdag::has_edge", b);
    return adjacent_[at("Pdag::has_edge", a)].contains(b);
  }
  Index edges() const {
    Index ends = 0;
    for (const NodeSet& set : adjacent_) ends += set.count();
    return ends / 2;
  }
  bool is_directed() const {
    return std::ranges::all_of(neighbours_, [](const NodeSet& set) { return set.empty(); });
  }

  /// Throws InvalidArgument for a loop and where there is an edge already.
  void add_directed(Index from, Index to) {
    const auto [i, j] = new_edge("Pdag::add_directed", from, to);
    children_[i].insert(to);
    parents_[j].insert(from);
  }
  void add_undirected(Index a, Index b) {
    const auto [i, j] = new_edge("Pdag::add_undirected", a, b);
    neighbours_[i].insert(b);
    neighbours_[j].insert(a);
  }
  /// Takes away whatever edge there is.
  void remove(Index a, Index b) {
    const std::size_t i = at("Pdag::remove", a), j = at("Pdag::remove", b);
    for (auto* sets : {&parents_, &children_, &neighbours_, &adjacent_}) {
      (*sets)[i].erase(b);
      (*sets)[j].erase(a);
    }
  }
  /// from -> to in place of the edge there is, or of none.
  void direct(Index from, Index to) {
    remove(from, to);
    add_directed(from, to);
  }

  friend bool operator==(const Pdag&, const Pdag&) = default;

  /// m(i, j) = 1 and m(j, i) = 0 where i -> j, both 1 where i - j, both 0 where there is no edge.
  Matrix<int> adjacency_matrix() const {
    Matrix<int> m = Matrix<int>::Zero(nodes(), nodes());
    for (Index i = 0; i < nodes(); ++i) {
      children(i).for_each([&](Index j) { m(i, j) = 1; });
      neighbours(i).for_each([&](Index j) { m(i, j) = 1; });
    }
    return m;
  }
  /// The marks at the ends, which causal-learn uses: m(j, i) = 1 and m(i, j) = -1 where i -> j, both -1 where i - j.
  Matrix<int> endpoint_matrix() const {
    Matrix<int> m = Matrix<int>::Zero(nodes(), nodes());
    for (Index i = 0; i < nodes(); ++i) {
      children(i).for_each([&](Index j) { m(i, j) = -1, m(j, i) = 1; });
      neighbours(i).for_each([&](Index j) { m(i, j) = -1; });
    }
    return m;
  }

 private:
  std::size_t at(std::string_view function, Index node) const {
    require(node >= 0 && node < nodes(), function, "there is no node ", node, " among ", nodes());
    return static_cast<std::size_t>(node);
  }
  std::pair<std::size_t, std::size_t> new_edge(std::string_view function, Index a, Index b) {
    const std::size_t i = at(function, a), j = at(function, b);
    require(a != b, function, "an edge must join two nodes, got ", a, " twice");
    require(!adjacent_[i].contains(b), function, "there is an edge between ", a, " and ", b, " already");
    adjacent_[i].insert(b);
    adjacent_[j].insert(a);
    return {i, j};
  }

  std::vector<NodeSet> parents_, children_, neighbours_, adjacent_;
};

// ---- Matrices in ------------------------------------------------------------------------------------------------

/// The graph of an adjacency matrix (see Pdag::adjacency_matrix). m: [V, V] of zeros and ones.
/// Throws InvalidArgument for another shape, another number, or a loop.
template <class M>
Pdag pdag_from_adjacency(const M& m) {
  constexpr auto function = "pdag_from_adjacency";
  const In<M, 2> a = m;
  check_shape(function, "m", a.shape(), {a.extent(0), a.extent(0)}, "a square");
  Pdag graph(a.extent(0));
  for (Index i = 0; i < graph.nodes(); ++i)
    for (Index j = 0; j < graph.nodes(); ++j)
      require(a(i, j) == 0 || (a(i, j) == 1 && i != j), function, "m[", i, ",", j, "] must be 0", i == j ? "" : " or 1",
              ", got ", a(i, j));
  for (Index i = 0; i < graph.nodes(); ++i)
    for (Index j = 0; j < graph.nodes(); ++j) {
      if (a(i, j) == 0) continue;
      if (a(j, i) == 0) graph.add_directed(i, j);
      if (a(j, i) == 1 && i < j) graph.add_undirected(i, j);
    }
  return graph;
}

/// The graph of a matrix of marks (see Pdag::endpoint_matrix). m: [V, V].
/// Throws InvalidArgument for another shape and for marks that are neither i -> j nor i - j.
template <class M>
Pdag pdag_from_endpoints(const M& m) {
  constexpr auto function = "pdag_from_endpoints";
  const In<M, 2> a = m;
  check_shape(function, "m", a.shape(), {a.extent(0), a.extent(0)}, "a square");
  Pdag graph(a.extent(0));
  for (Index i = 0; i < graph.nodes(); ++i)
    for (Index j = i; j < graph.nodes(); ++j) {
      if (a(i, j) == 0 && a(j, i) == 0) continue;
      const bool directed = a(i, j) == -1 && a(j, i) == 1, back = a(i, j) == 1 && a(j, i) == -1;
      require(i != j && (directed || back || (a(i, j) == -1 && a(j, i) == -1)), function, "m[", i, ",", j, "] and m[",
              j, ",", i, "] must be 0 and 0, -1 and 1, 1 and -1 or -1 and -1, got ", a(i, j), " and ", a(j, i));
      if (directed) graph.add_directed(i, j);
      if (back) graph.add_directed(j, i);
      if (!directed && !back) graph.add_undirected(i, j);
    }
  return graph;
}

// ---- Questions --------------------------------------------------------------------------------------------------

/// Every two of the nodes are adjacent. O(|nodes| V / 64).
inline bool is_clique(const Pdag& graph, const NodeSet& nodes) {
  bool clique = true;
  nodes.for_each([&](Index node) {
    NodeSet others = nodes;
    others.erase(node);
    clique = clique && others.is_subset_of(graph.adjacent(node));
  });
  return clique;
}

/// There is a path from -> ... -> to, every edge directed that way or undirected, that avoids `blocked`. O(V^2 / 64).
inline bool has_semi_directed_path(const Pdag& graph, Index from, Index to, const NodeSet& blocked) {
  check_argument(blocked.capacity() == graph.nodes(), "has_semi_directed_path", "the capacity of blocked",
                 "the number of nodes", blocked.capacity());
  graph.parents(from), graph.parents(to);  // both are nodes
  NodeSet closed = blocked;
  closed.insert(from);
  std::vector<Index> open{from};
  while (!open.empty()) {
    const Index node = open.back();
    open.pop_back();
    NodeSet next = graph.children(node) | graph.neighbours(node);
    next -= closed;
    if (next.contains(to)) return true;
    closed |= next;
    next.for_each([&](Index other) { open.push_back(other); });
  }
  return false;
}

/// Parents before children, the smallest node first among those that could come next.
/// Throws InvalidArgument for an undirected edge and for a cycle. O(V^2).
inline std::vector<Index> topological_order(const Pdag& dag, std::string_view function = "topological_order") {
  require(dag.is_directed(), function, "the graph must be directed, got an undirected edge");
  std::vector<Index> order;
  NodeSet placed(dag.nodes());
  while (std::ssize(order) < dag.nodes()) {
    const auto before = order.size();
    for (Index node = 0; node < dag.nodes() && order.size() == before; ++node)
      if (!placed.contains(node) && dag.parents(node).is_subset_of(placed)) order.push_back(node);
    require(order.size() > before, function, "the graph must be acyclic, got a directed cycle");
    placed.insert(order.back());
  }
  return order;
}

/// x and y are d-separated by `given` in a DAG: no path between them is active. O(V + E).
/// Throws InvalidArgument when x or y is in `given`, and as topological_order.
/// Source: Shachter, "Bayes-Ball: The Rational Pastime", UAI 1998.
inline bool d_separated(const Pdag& dag, Index x, Index y, const NodeSet& given) {
  constexpr auto function = "d_separated";
  check_argument(given.capacity() == dag.nodes(), function, "the capacity of given", "the number of nodes",
                 given.capacity());
  topological_order(dag, function);
  dag.parents(x), dag.parents(y);  // both are nodes
  require(!given.contains(x) && !given.contains(y), function, "x and y must not be given");
  // Every node is entered from a child (up) and from a parent (down) at most once.
  NodeSet up(dag.nodes()), down(dag.nodes());
  std::vector<std::pair<Index, bool>> entered;
  const auto enter = [&](Index node, bool from_child) {
    NodeSet& seen = from_child ? up : down;
    if (seen.contains(node)) return;
    seen.insert(node);
    entered.emplace_back(node, from_child);
  };
  enter(x, true);
  while (!entered.empty()) {
    const auto [node, from_child] = entered.back();
    entered.pop_back();
    if (node == y) return false;
    const bool through = !given.contains(node);
    // A collider is opened by what is given: by itself, or from a descendant, which sends the ball back up.
    if (from_child ? through : !through) dag.parents(node).for_each([&](Index parent) { enter(parent, true); });
    if (through) dag.children(node).for_each([&](Index child) { enter(child, false); });
  }
  return true;
}

// ---- How far two graphs are apart -------------------------------------------------------------------------------

/// Pairs of nodes whose edges differ in kind or direction. Throws InvalidArgument for different numbers of nodes.
inline Index structural_hamming_distance(const Pdag& a, const Pdag& b) {
  require(a.nodes() == b.nodes(), "structural_hamming_distance", "the graphs have ", a.nodes(), " and ", b.nodes(),
          " nodes");
  Index different = 0;
  for (Index i = 0; i < a.nodes(); ++i)
    for (Index j = i + 1; j < a.nodes(); ++j)
      different += a.has_directed(i, j) != b.has_directed(i, j) || a.has_directed(j, i) != b.has_directed(j, i) ||
                   a.has_undirected(i, j) != b.has_undirected(i, j);
  return different;
}

/// Harmonic mean of precision and recall of the adjacencies; 1 where neither graph has an edge, and 0 where only one
/// has. Throws InvalidArgument for different numbers of nodes.
inline double skeleton_f1(const Pdag& truth, const Pdag& estimate) {
  require(truth.nodes() == estimate.nodes(), "skeleton_f1", "the graphs have ", truth.nodes(), " and ",
          estimate.nodes(), " nodes");
  Index common = 0;
  for (Index i = 0; i < truth.nodes(); ++i) common += (truth.adjacent(i) & estimate.adjacent(i)).count();
  const Index total = truth.edges() + estimate.edges();
  return total == 0 ? 1 : static_cast<double>(common) / static_cast<double>(total);  // common counts both ends
}

}  // namespace ashlar::discrete
