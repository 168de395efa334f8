#include "ashlar/io/dot.hpp"

#include <fstream>
#include <string>
#include <vector>

#include "discrete/graphs.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/temporary.hpp"

namespace ashlar {
namespace {

using discrete::Pdag;
using io::parse_dot;
using io::to_dot;
using test::message_of;

TEST_CASE("io.dot: graphs and names read back as they were written") {
  const auto seed = GENERATE(1u, 2u);
  INFO("seed " << seed);
  Rng rng(seed);
  Pdag graph = test::random_dag(rng, 5, 0.6);
  for (Index i = 0; i < 5; ++i)
    for (const Index j : graph.children(i).members())
      if (rng.uniform() < 0.5) graph.remove(i, j), graph.add_undirected(i, j);
  const std::vector<std::string> names{"plain", "with \"quotes\"", "a\\b -> c", "node", "\xC3\xA4;\n"};
  const auto copy = parse_dot(to_dot(graph, names));
  CHECK(copy.graph == graph);
  CHECK(copy.names == names);
  CHECK(parse_dot(to_dot(graph)).names == std::vector<std::string>{"0", "1", "2", "3", "4"});
  CHECK(parse_dot(to_dot(Pdag(0))).graph == Pdag(0));

  const test::TemporaryFolder folder;
  io::save_dot(folder / "graph.dot", graph, names);
  CHECK(io::load_dot(folder / "graph.dot").graph == graph);
}

TEST_CASE("io.dot: the text written is this one") {
  Pdag graph(3);
  graph.add_directed(1, 0);
  graph.add_undirected(2, 1);
  CHECK(to_dot(graph, std::vector<std::string>{"x", "y", "z"}) ==
        "digraph {\n  \"x\";\n  \"y\";\n  \"z\";\n  \"y\" -> \"x\";\n  \"y\" -> \"z\" [dir=none];\n}\n");
}

TEST_CASE("io.dot: the language as people write it") {
  const auto dag = parse_dot(
      "/* a */ strict DiGraph g {\n# line\n rankdir=LR; node [shape=box, color=red]; // b\n"
      "a -> b -> -1.5 [label=\"x y\"; weight=2][style=bold] c; edge [color=blue] }");
  CHECK(dag.names == std::vector<std::string>{"a", "b", "-1.5", "c"});
  CHECK((dag.graph.has_directed(0, 1) && dag.graph.has_directed(1, 2) && dag.graph.edges() == 2));

  const auto undirected = parse_dot("graph { a -- b; b -- c }").graph;
  CHECK((undirected.has_undirected(0, 1) && undirected.has_undirected(1, 2)));

  const auto dirs = parse_dot("digraph { a -> b [dir=back] edge [dir=none] b -> c c -> d [dir=forward] }").graph;
  CHECK((dirs.has_directed(1, 0) && dirs.has_undirected(1, 2) && dirs.has_directed(2, 3)));
}

TEST_CASE("io.dot: hostile text is a parse error that says where and what") {
  std::string many = "digraph {";
  for (Index i = 0; i <= io::dot_max_nodes; ++i) many += message(i, ";");
  const std::string token = "expected a name, a number, a quoted string or one of { } [ ] ; , = -> --";
  const struct {
    std::string text, says;
  } table[] = {
      {"", "line 1, column 1: expected graph or digraph"},
      {"tree {}", "line 1, column 1: expected graph or digraph"},
      {"digraph", "line 1, column 8: expected {"},
      {"digraph {", "line 1, column 10: expected a node, an edge or }"},
      {"digraph {} x", "line 1, column 12: expected the end of the text after the graph"},
      {"digraph {\n a -- b }", "line 2, column 4: expected -> in a digraph"},
      {"graph {\n a -> b }", "line 2, column 4: expected -- in a graph"},
      {"digraph { a -> }", "line 1, column 16: expected a node"},
      {"digraph { a -> a }", "line 1, column 13: expected an edge between two nodes, got a loop"},
      {"digraph { a -> b; b -> a }", "line 1, column 21: expected one edge at most between two nodes"},
      {"digraph { a -> b [dir=both] }", "line 1, column 18: expected dir to be forward, back or none"},
      {"digraph { subgraph s { a } }", "line 1, column 11: subgraphs are not supported"},
      {"digraph { { a } }", "line 1, column 11: subgraphs are not supported"},
      {"digraph { a -> { b } }", "line 1, column 16: subgraphs are not supported"},
      {"digraph { a:n -> b }", "line 1, column 12: ports are not supported"},
      {"digraph { node a }", "line 1, column 16: expected [ and attributes"},
      {"digraph { a = }", "line 1, column 15: expected a value"},
      {"digraph { a [=] }", "line 1, column 14: expected an attribute or ]"},
      {"digraph { a [x=] }", "line 1, column 16: expected a value"},
      {"digraph { a [x", "line 1, column 15: expected an attribute or ]"},
      {"digraph { \"a }", "line 1, column 11: the quote that opens here is never closed"},
      {"digraph { \"a\\\"", "line 1, column 11: the quote that opens here is never closed"},
      {"digraph { /* a }", "line 1, column 11: the comment that opens here is never closed"},
      {"digraph { <b>x</b> }", "line 1, column 11: " + token},
      {"digraph { a - b }", "line 1, column 13: " + token},
      {std::string("digraph { \0 }", 13), "line 1, column 11: " + token},
      {many, message("line 1, column ", many.size() - 4, ": expected at most 4096 nodes")},
  };
  for (const auto& [text, says] : table) {
    INFO(text.substr(0, 60));
    CHECK(message_of<ParseError>([&text = text] { parse_dot(text, "g"); }) == "g: " + says);
  }
}

TEST_CASE("io.dot: what cannot be written or opened is refused") {
  const auto write = [](std::vector<std::string> names) {
    return message_of<InvalidArgument>([&] { to_dot(Pdag(2), names); });
  };
  CHECK(write({"a"}) == "to_dot: there are 1 names for 2 nodes");
  CHECK(write({"a", "a"}) == "to_dot: names must be different, got a twice");
  CHECK(write({"a", "b\\"}) == "to_dot: DOT has no way to write the name b\\");
  CHECK(write({"a", "b\\\"c"}) == "to_dot: DOT has no way to write the name b\\\"c");
  CHECK(message_of<InvalidArgument>([] { io::load_dot("/nowhere/graph.dot"); }).find("load_dot: cannot") == 0);
}

}  // namespace
}  // namespace ashlar
