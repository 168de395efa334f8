// Partially directed graphs as DOT, the language of Graphviz.
//
//   const io::NamedGraph graph = io::load_dot("graph.dot");        // graph.names, graph.graph
//   io::save_dot("copy.dot", graph.graph, graph.names);            // reads back to the same graph
//
// i -> j is `i -> j`, i - j is `i -> j [dir=none]` in a digraph and `i -- j` in a graph. Nodes are numbered as they
// first appear. Other attributes are read and dropped.
//
// Source: the DOT language of graphviz.org, without subgraphs, ports and HTML strings.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/discrete/pdag.hpp"
#include "ashlar/io/detail/write_file.hpp"
#include "ashlar/io/mapped_file.hpp"

namespace ashlar::io {

struct NamedGraph {
  std::vector<std::string> names;  ///< one a node, all different
  discrete::Pdag graph;
};

/// More nodes than this in a file are an error: a graph takes the square of their number in memory.
inline constexpr Index dot_max_nodes = 4096;

namespace detail {

class DotParser {
 public:
  DotParser(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  NamedGraph graph() {
    advance();
    if (is_word("strict")) advance();
    directed_ = is_word("digraph");
    if (!directed_ && !is_word("graph")) fail("expected graph or digraph");
    advance();
    if (is_id()) advance();
    expect("{");
    while (!is("}")) statement();
    advance();
    if (kind_ != Kind::end) fail("expected the end of the text after the graph");

    NamedGraph result{std::move(names_), discrete::Pdag(std::ssize(numbers_))};
    for (const Edge& edge : edges_) {
      here_ = edge.at;
      if (edge.from == edge.to) fail("expected an edge between two nodes, got a loop");
      if (result.graph.has_edge(edge.from, edge.to)) fail("expected one edge at most between two nodes");
      if (edge.directed)
        result.graph.add_directed(edge.from, edge.to);
      else
        result.graph.add_undirected(edge.from, edge.to);
    }
    return result;
  }

 private:
  enum class Kind { word, quoted, symbol, end };
  struct Place {
    std::size_t line = 1, column = 1;
  };
  struct Edge {
    Index from, to;
    bool directed;
    Place at;
  };
  using Attributes = std::map<std::string, std::string, std::less<>>;

  void statement() {
    if (is(";")) return advance();
    if (is("{") || is_word("subgraph")) fail("subgraphs are not supported");
    if (is_word("graph") || is_word("node") || is_word("edge")) {
      const bool of_edges = is_word("edge");
      advance();
      if (!is("[")) fail("expected [ and attributes");
      const Attributes attributes = attribute_lists();
      if (const auto dir = attributes.find("dir"); of_edges && dir != attributes.end()) default_dir_ = dir->second;
      return end_statement();
    }
    if (!is_id()) fail("expected a node, an edge or }");
    const Place start = here_;
    const std::string first = token_;
    advance();
    if (is("=")) {  // an attribute of the graph
      advance();
      if (!is_id()) fail("expected a value");
      advance();
      return end_statement();
    }
    const std::size_t before = edges_.size();
    Index from = node(first, start);
    while (is("->") || is("--")) {
      if (is("->") != directed_) fail(directed_ ? "expected -> in a digraph" : "expected -- in a graph");
      const Place at = here_;
      advance();
      if (is("{") || is_word("subgraph")) fail("subgraphs are not supported");
      if (!is_id()) fail("expected a node");
      const Index to = node(token_, here_);
      edges_.push_back({from, to, directed_, at});
      from = to;
      advance();
    }
    if (is(":")) fail("ports are not supported");
    Attributes attributes;
    const Place at = here_;
    if (is("[")) attributes = attribute_lists();
    const auto dir = attributes.find("dir");
    const std::string& direction = dir == attributes.end() ? default_dir_ : dir->second;
    if (directed_ && edges_.size() > before) {
      if (direction != "forward" && direction != "back" && direction != "none") {
        here_ = at;
        fail("expected dir to be forward, back or none");
      }
      for (std::size_t k = before; k < edges_.size(); ++k) {
        edges_[k].directed = direction != "none";
        if (direction == "back") std::swap(edges_[k].from, edges_[k].to);
      }
    }
    end_statement();
  }

  void end_statement() {
    if (is(";")) advance();
  }

  /// [a=b, c=d][...]; the last of two attributes of one name counts.
  Attributes attribute_lists() {
    Attributes attributes;
    while (is("[")) {
      advance();
      while (!is("]")) {
        if (!is_id()) fail("expected an attribute or ]");
        const std::string key = token_;
        advance();
        std::string value = "true";
        if (is("=")) {
          advance();
          if (!is_id()) fail("expected a value");
          value = token_;
          advance();
        }
        attributes.insert_or_assign(key, value);
        if (is(",") || is(";")) advance();
      }
      advance();
    }
    return attributes;
  }

  Index node(const std::string& id, Place at) {
    const auto [entry, is_new] = numbers_.try_emplace(id, std::ssize(names_));
    if (is_new) {
      if (std::ssize(names_) == dot_max_nodes) {
        here_ = at;
        fail("expected at most ", dot_max_nodes, " nodes");
      }
      names_.push_back(id);
    }
    return entry->second;
  }

  // ---- Tokens ----

  bool is(std::string_view symbol) const { return kind_ == Kind::symbol && token_ == symbol; }
  bool is_id() const { return kind_ == Kind::quoted || (kind_ == Kind::word && !is_keyword()); }
  bool is_keyword() const {
    return is_word("node") || is_word("edge") || is_word("graph") || is_word("digraph") || is_word("subgraph") ||
           is_word("strict");
  }
  /// Keywords are the same in upper and lower case.
  bool is_word(std::string_view word) const {
    return kind_ == Kind::word && std::ranges::equal(token_, word, [](char a, char b) { return lower(a) == b; });
  }
  static char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
  static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  void expect(std::string_view symbol) {
    if (!is(symbol)) fail("expected ", symbol);
    advance();
  }

  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void skip() {
    if (text_[at_++] == '\n')
      ++next_.line, next_.column = 1;
    else
      ++next_.column;
  }

  void skip_blanks() {
    for (;;) {
      if (at_ < text_.size() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) {
        skip();
      } else if ((peek() == '/' && peek(1) == '/') || (peek() == '#' && next_.column == 1)) {
        while (at_ < text_.size() && peek() != '\n') skip();
      } else if (peek() == '/' && peek(1) == '*') {
        here_ = next_;
        const std::size_t close = text_.find("*/", at_ + 2);
        if (close == std::string_view::npos) fail("the comment that opens here is never closed");
        while (at_ < close + 2) skip();
      } else {
        return;
      }
    }
  }

  void advance() {
    skip_blanks();
    here_ = next_;
    token_.clear();
    if (at_ == text_.size()) {
      kind_ = Kind::end;
      return;
    }
    const char c = peek();
    const auto take = [&] {
      token_ += peek();
      skip();
    };
    if (is_letter(c)) {
      kind_ = Kind::word;
      while (at_ < text_.size() && (is_letter(peek()) || is_digit(peek()))) take();
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1))) ||
               (c == '-' && (is_digit(peek(1)) || (peek(1) == '.' && is_digit(peek(2)))))) {
      kind_ = Kind::quoted;  // a numeral is no keyword either
      if (c == '-') take();
      while (is_digit(peek())) take();
      if (peek() == '.') take();
      while (is_digit(peek())) take();
    } else if (c == '"') {
      quoted();
    } else if (c == '-' && (peek(1) == '>' || peek(1) == '-')) {
      kind_ = Kind::symbol;
      take();
      take();
    } else if (std::string_view("{}[];,=:").find(c) != std::string_view::npos) {
      kind_ = Kind::symbol;
      take();
    } else {
      fail("expected a name, a number, a quoted string or one of { } [ ] ; , = -> --");
    }
  }

  void quoted() {
    kind_ = Kind::quoted;
    skip();
    while (at_ < text_.size() && peek() != '"') {
      if (peek() == '\\' && peek(1) == '"') skip();  // the only escape of the language itself
      token_ += peek();
      skip();
    }
    if (at_ == text_.size()) fail("the quote that opens here is never closed");
    skip();
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... sentence) const {
    throw ParseError(message(name_, ": line ", here_.line, ", column ", here_.column, ": ", sentence...));
  }

  std::string_view text_, name_;
  std::size_t at_ = 0;
  Place next_, here_;  // of the next character, and of the token
  Kind kind_ = Kind::end;
  std::string token_;
  bool directed_ = true;
  std::string default_dir_ = "forward";
  std::vector<std::string> names_;
  std::map<std::string, Index, std::less<>> numbers_;
  std::vector<Edge> edges_;
};

inline std::string dot_id(std::string_view name) {
  std::string id = "\"";
  for (const char c : name) {
    if (c == '"') id += '\\';
    id += c;
  }
  return id + '"';
}

}  // namespace detail

/// The graph in `text`; `name` stands for it in messages.
/// Throws ParseError "name: line L, column C: ..." for what is no DOT or beyond the subset above, loops, two edges
/// between the same nodes, dir=both, and more than dot_max_nodes nodes.
inline NamedGraph parse_dot(std::string_view text, std::string_view name = "dot") {
  return detail::DotParser(text, name).graph();
}

/// The graph in the file at `path`. Throws InvalidArgument when it cannot be read, else as parse_dot.
inline NamedGraph load_dot(const std::string& path) {
  const MappedFile file(path, "load_dot");
  const auto bytes = file.bytes();
  return parse_dot({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

/// The graph as a digraph; without names the nodes are "0", "1", ... parse_dot gives the same graph and names.
/// Throws InvalidArgument when the numbers of names and nodes differ, for two equal names, and for a name that DOT
/// cannot express: one that ends with a backslash or has one before a quote.
inline std::string to_dot(const discrete::Pdag& graph, std::span<const std::string> names = {}) {
  require(names.empty() || std::ssize(names) == graph.nodes(), "to_dot", "there are ", names.size(), " names for ",
          graph.nodes(), " nodes");
  std::vector<std::string> ids, sorted(names.begin(), names.end());
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  require(twice == sorted.end(), "to_dot", "names must be different, got ", twice == sorted.end() ? "" : *twice,
          " twice");
  for (Index node = 0; node < graph.nodes(); ++node) {
    const std::string name = names.empty() ? message(node) : names[static_cast<std::size_t>(node)];
    require(!name.ends_with('\\') && name.find("\\\"") == std::string::npos, "to_dot",
            "DOT has no way to write the name ", name);
    ids.push_back(detail::dot_id(name));
  }
  std::string text = "digraph {\n";
  for (const std::string& id : ids) text += "  " + id + ";\n";
  for (Index i = 0; i < graph.nodes(); ++i)
    graph.adjacent(i).for_each([&](Index j) {
      const bool undirected = graph.has_undirected(i, j);
      if (undirected ? i > j : !graph.has_directed(i, j)) return;
      text += "  " + ids[static_cast<std::size_t>(i)] + " -> " + ids[static_cast<std::size_t>(j)] +
              (undirected ? " [dir=none];\n" : ";\n");
    });
  return text + "}\n";
}

/// Writes to_dot to a file. Throws InvalidArgument as to_dot and when the file cannot be written; an older file of this
/// name then stays as it was.
inline void save_dot(const std::string& path, const discrete::Pdag& graph, std::span<const std::string> names = {}) {
  const std::string text = to_dot(graph, names);
  detail::write_file(path, "save_dot", [&](auto&& put) { put(std::as_bytes(std::span(text))); });
}

}  // namespace ashlar::io
