#include "ashlar/discrete/equivalence_class.hpp"

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "discrete/graphs.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::discrete {
namespace {

using test::all_dags;
using test::message_of;
using test::random_dag;

/// Skeleton and v-structures: what equivalent DAGs have in common.
using Signature = std::pair<std::set<std::pair<Index, Index>>, std::set<std::tuple<Index, Index, Index>>>;
Signature signature(const Pdag& dag) {
  Signature s;
  for (Index k = 0; k < dag.nodes(); ++k)
    dag.parents(k).for_each([&](Index i) {
      s.first.emplace(std::min(i, k), std::max(i, k));
      dag.parents(k).for_each([&](Index j) {
        if (i < j && !dag.has_edge(i, j)) s.second.emplace(i, k, j);
      });
    });
  return s;
}

/// An edge stays directed where all members agree.
Pdag union_of(const std::vector<Pdag>& members) {
  const Pdag& first = members[0];
  Pdag graph(first.nodes());
  for (Index i = 0; i < first.nodes(); ++i)
    first.children(i).for_each([&](Index j) {
      const bool agreed = std::ranges::all_of(members, [&](const Pdag& dag) { return dag.has_directed(i, j); });
      agreed ? graph.add_directed(i, j) : graph.add_undirected(i, j);
    });
  return graph;
}

TEST_CASE("discrete.equivalence_class: the CPDAG is the union of the class for all 543 DAGs on four nodes") {
  std::map<Signature, std::vector<Pdag>> classes;
  for (const Pdag& dag : all_dags(4)) classes[signature(dag)].push_back(dag);
  CHECK(classes.size() == 185);
  for (const auto& [key, members] : classes) {
    const Pdag cpdag = union_of(members);
    for (const Pdag& dag : members)
      if (!(dag_to_cpdag(dag) == cpdag)) {
        CAPTURE(dag.adjacency_matrix());
        FAIL_CHECK("the CPDAG is not the union of the class");
      }
    const auto extension = consistent_extension(cpdag);
    REQUIRE(extension.has_value());
    CHECK(signature(*extension) == key);
  }
}

TEST_CASE("discrete.equivalence_class: the CPDAG of an extension of a CPDAG is that CPDAG") {
  const auto seed = GENERATE(1u, 2u, 3u);
  INFO("seed " << seed);
  Rng rng(seed);
  for (const Index nodes : {Index{1}, Index{7}, Index{20}, Index{70}}) {
    const Pdag dag = random_dag(rng, nodes, nodes > 30 ? 0.05 : 0.3), cpdag = dag_to_cpdag(dag);
    const auto extension = consistent_extension(cpdag);
    REQUIRE(extension.has_value());
    CHECK(signature(*extension) == signature(dag));
    CHECK(dag_to_cpdag(*extension) == cpdag);
    CHECK(consistent_extension(dag) == dag);
  }
}

TEST_CASE("discrete.equivalence_class: CPDAGs match the fixtures") {
  const auto dags = test::fixture<double>("kernel_selection/dags"),
             cpdags = test::fixture<double>("kernel_selection/cpdags");
  REQUIRE(dags.extent(0) == 12);
  for (Index k = 0; k < 12; ++k)
    CHECK(dag_to_cpdag(pdag_from_adjacency(dags.view<3>()[k])) == pdag_from_adjacency(cpdags.view<3>()[k]));
}

TEST_CASE("discrete.equivalence_class: Meek's third rule directs the edge into two colliding neighbours") {
  Pdag graph(4);  // 0 - 1, 0 - 2, 0 - 3, 1 -> 3 <- 2
  for (const Index other : {1, 2, 3}) graph.add_undirected(0, other);
  graph.add_directed(1, 3);
  graph.add_directed(2, 3);
  apply_meek_rules(graph);
  CHECK((graph.has_directed(0, 3) && graph.has_undirected(0, 1) && graph.has_undirected(0, 2)));
}

TEST_CASE("discrete.equivalence_class: a graph that stands for no DAG has no extension") {
  Pdag square(4);  // an undirected cycle without a chord needs a new v-structure
  square.add_undirected(0, 1);
  square.add_undirected(1, 2);
  square.add_undirected(2, 3);
  square.add_undirected(3, 0);
  CHECK_FALSE(consistent_extension(square).has_value());
  square.add_undirected(0, 2);
  CHECK(consistent_extension(square).has_value());
  Pdag cycle(3);
  cycle.add_directed(0, 1);
  cycle.add_directed(1, 2);
  cycle.add_directed(2, 0);
  CHECK_FALSE(consistent_extension(cycle).has_value());
  CHECK(message_of<InvalidArgument>([&] { dag_to_cpdag(cycle); }) ==
        "dag_to_cpdag: the graph must be acyclic, got a directed cycle");
  CHECK(message_of<InvalidArgument>([&] { dag_to_cpdag(square); }) ==
        "dag_to_cpdag: the graph must be directed, got an undirected edge");
}

}  // namespace
}  // namespace ashlar::discrete
