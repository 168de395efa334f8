#include "ashlar/discrete/pdag.hpp"

#include <functional>
#include <string>
#include <vector>

#include "discrete/graphs.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::discrete {
namespace {

using test::all_dags;
using test::message_of;
using test::random_dag;

NodeSet set(Index capacity, std::vector<Index> members) { return NodeSet(capacity, members); }

/// 0 -> 1 - 2, 3 alone.
Pdag small() {
  Pdag graph(4);
  graph.add_directed(0, 1);
  graph.add_undirected(2, 1);
  return graph;
}

TEST_CASE("discrete.pdag: edges are seen from both ends") {
  Pdag graph = small();
  CHECK(graph.edges() == 2);
  CHECK_FALSE(graph.is_directed());
  CHECK((graph.has_directed(0, 1) && !graph.has_directed(1, 0) && !graph.has_undirected(0, 1)));
  CHECK((graph.has_undirected(1, 2) && graph.has_undirected(2, 1) && !graph.has_directed(1, 2)));
  CHECK(graph.parents(1).members() == std::vector<Index>{0});
  CHECK(graph.children(0).members() == std::vector<Index>{1});
  CHECK(graph.neighbours(1).members() == std::vector<Index>{2});
  CHECK(graph.adjacent(1).members() == std::vector<Index>{0, 2});
  CHECK((graph.has_edge(1, 0) && !graph.has_edge(0, 2)));
  graph.direct(2, 1);
  CHECK((graph.has_directed(2, 1) && graph.is_directed()));
  graph.remove(1, 0);
  CHECK((graph.edges() == 1 && graph.parents(1).members() == std::vector<Index>{2} && graph.children(0).empty()));
}

TEST_CASE("discrete.pdag: adjacency and endpoint matrices say the same and read back") {
  const Pdag graph = small();
  const Matrix<int> adjacency = graph.adjacency_matrix(), endpoints = graph.endpoint_matrix();
  CHECK(adjacency == (Matrix<int>(4, 4) << 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0).finished());
  CHECK(endpoints == (Matrix<int>(4, 4) << 0, -1, 0, 0, 1, 0, -1, 0, 0, -1, 0, 0, 0, 0, 0, 0).finished());
  CHECK(pdag_from_adjacency(adjacency) == graph);
  CHECK(pdag_from_endpoints(endpoints) == graph);
  const Matrix<double> numbers = adjacency.cast<double>();
  CHECK(pdag_from_adjacency(numbers) == graph);
  CHECK(pdag_from_endpoints(Matrix<int>(endpoints.transpose())).has_directed(1, 0));
}

TEST_CASE("discrete.pdag: cliques and semi-directed paths") {
  Pdag graph = small();
  CHECK(is_clique(graph, set(4, {0, 1})));
  CHECK(is_clique(graph, set(4, {3})));
  CHECK_FALSE(is_clique(graph, set(4, {0, 1, 2})));
  CHECK(has_semi_directed_path(graph, 0, 2, set(4, {})));
  CHECK_FALSE(has_semi_directed_path(graph, 2, 0, set(4, {})));
  CHECK_FALSE(has_semi_directed_path(graph, 0, 2, set(4, {1})));
  graph.add_directed(2, 3);
  CHECK(has_semi_directed_path(graph, 0, 3, set(4, {})));
  CHECK_FALSE(has_semi_directed_path(graph, 3, 0, set(4, {})));
}

TEST_CASE("discrete.pdag: a topological order puts parents first and the smallest node early") {
  Pdag dag(4);
  dag.add_directed(3, 0);
  dag.add_directed(3, 1);
  dag.add_directed(1, 0);
  CHECK(topological_order(dag) == std::vector<Index>{2, 3, 1, 0});
}

/// By definition: some path between x and y whose colliders all have a given descendant (or are given) and whose other
/// inner nodes are not given.
bool connected(const Pdag& dag, Index x, Index y, const NodeSet& given) {
  const std::function<bool(Index)> opens = [&](Index node) {
    if (given.contains(node)) return true;
    bool open = false;
    dag.children(node).for_each([&](Index child) { open = open || opens(child); });
    return open;
  };
  std::vector<Index> path{x};
  const std::function<bool()> extend = [&] {
    if (path.back() == y) return true;
    bool found = false;
    dag.adjacent(path.back()).for_each([&](Index next) {
      if (found || std::ranges::count(path, next) != 0) return;
      if (path.size() >= 2) {
        const Index node = path.back(), previous = path[path.size() - 2];
        const bool collider = dag.has_directed(previous, node) && dag.has_directed(next, node);
        if (collider ? !opens(node) : given.contains(node)) return;
      }
      path.push_back(next);
      found = extend();
      path.pop_back();
    });
    return found;
  };
  return extend();
}

TEST_CASE("discrete.pdag: d-separation is the absence of an active path in every DAG on four nodes") {
  for (const Pdag& dag : all_dags(4))
    for (Index x = 0; x < 4; ++x)
      for (Index y = 0; y < 4; ++y)
        for (unsigned subset = 0; subset < 16; ++subset) {
          NodeSet given(4);
          for (Index node = 0; node < 4; ++node)
            if (subset >> node & 1u) given.insert(node);
          if (x == y || given.contains(x) || given.contains(y)) continue;
          if (d_separated(dag, x, y, given) == connected(dag, x, y, given)) {
            CAPTURE(dag.adjacency_matrix(), x, y, subset);
            FAIL_CHECK("d-separation and the search over paths disagree");
          }
        }
  CHECK(all_dags(4).size() == 543);
}

TEST_CASE("discrete.pdag: distances between graphs count pairs and common adjacencies") {
  const Pdag graph = small();
  Pdag other = graph;
  other.direct(1, 0);        // turned round
  other.direct(1, 2);        // directed
  other.add_directed(0, 3);  // new
  CHECK(structural_hamming_distance(graph, graph) == 0);
  CHECK(structural_hamming_distance(graph, other) == 3);
  CHECK(structural_hamming_distance(other, graph) == 3);
  CHECK(skeleton_f1(graph, other) == 2.0 * 2 / (2 + 3));
  CHECK(skeleton_f1(graph, Pdag(4)) == 0);
  CHECK(skeleton_f1(Pdag(4), Pdag(4)) == 1);
}

TEST_CASE("discrete.pdag: bad arguments are refused") {
  Pdag graph = small();
  CHECK(message_of<InvalidArgument>([] { Pdag(-1); }) == "Pdag: nodes must be not negative, got -1");
  CHECK(message_of<InvalidArgument>([&] { graph.parents(4); }) == "Pdag::parents: there is no node 4 among 4");
  CHECK(message_of<InvalidArgument>([&] { graph.has_edge(0, -1); }) == "Pdag::has_edge: there is no node -1 among 4");
  CHECK(message_of<InvalidArgument>([&] { graph.add_directed(2, 2); }) ==
        "Pdag::add_directed: an edge must join two nodes, got 2 twice");
  CHECK(message_of<InvalidArgument>([&] { graph.add_undirected(1, 0); }) ==
        "Pdag::add_undirected: there is an edge between 1 and 0 already");
  CHECK(graph == small());
  CHECK(message_of<InvalidArgument>([] { pdag_from_adjacency(Matrix<int>(2, 3)); }) ==
        "pdag_from_adjacency: m has shape [2,3], expected [2,2] (a square)");
  CHECK(message_of<InvalidArgument>([] { pdag_from_adjacency((Matrix<int>(2, 2) << 0, 2, 0, 0).finished()); }) ==
        "pdag_from_adjacency: m[0,1] must be 0 or 1, got 2");
  CHECK(message_of<InvalidArgument>([] { pdag_from_adjacency((Matrix<int>(2, 2) << 0, 1, 0, 1).finished()); }) ==
        "pdag_from_adjacency: m[1,1] must be 0, got 1");
  CHECK(message_of<InvalidArgument>([] { pdag_from_endpoints(Matrix<int>(1, 2)); }) ==
        "pdag_from_endpoints: m has shape [1,2], expected [1,1] (a square)");
  CHECK(message_of<InvalidArgument>([] { pdag_from_endpoints((Matrix<int>(2, 2) << 0, 1, 1, 0).finished()); }) ==
        "pdag_from_endpoints: m[0,1] and m[1,0] must be 0 and 0, -1 and 1, 1 and -1 or -1 and -1, got 1 and 1");
  CHECK(message_of<InvalidArgument>([&] { topological_order(graph); }) ==
        "topological_order: the graph must be directed, got an undirected edge");
  Pdag cycle(2 + 1);
  cycle.add_directed(0, 1);
  cycle.add_directed(1, 2);
  cycle.add_directed(2, 0);
  CHECK(message_of<InvalidArgument>([&] { topological_order(cycle); }) ==
        "topological_order: the graph must be acyclic, got a directed cycle");
  CHECK(message_of<InvalidArgument>([] { d_separated(Pdag(2), 0, 1, set(2, {1})); }) ==
        "d_separated: x and y must not be given");
  CHECK(message_of<InvalidArgument>([] { d_separated(Pdag(2), 0, 1, NodeSet(3)); }) ==
        "d_separated: the capacity of given must be the number of nodes, got 3");
  CHECK(message_of<InvalidArgument>([] { has_semi_directed_path(Pdag(2), 0, 1, NodeSet(3)); }) ==
        "has_semi_directed_path: the capacity of blocked must be the number of nodes, got 3");
  CHECK(message_of<InvalidArgument>([] { structural_hamming_distance(Pdag(2), Pdag(3)); }) ==
        "structural_hamming_distance: the graphs have 2 and 3 nodes");
  CHECK(message_of<InvalidArgument>([] { skeleton_f1(Pdag(2), Pdag(3)); }) ==
        "skeleton_f1: the graphs have 2 and 3 nodes");
}

}  // namespace
}  // namespace ashlar::discrete
