// Sets of the nodes 0, 1, ..., capacity - 1 as bits: unions, intersections and differences take a word for 64 nodes.
//
//   discrete::NodeSet set(5);
//   set.insert(3);
//   set.for_each([](Index node) { ... });          // in ascending order
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"

namespace ashlar::discrete {

/// Two sets in one expression have the same capacity, which is asserted alone: these are the inner loops of searches.
class NodeSet {
 public:
  /// Empty. Throws InvalidArgument for a negative capacity.
  explicit NodeSet(Index capacity = 0) : capacity_(capacity) {
    check_argument(capacity >= 0, "NodeSet", "capacity", "not negative", capacity);
    words_.resize(static_cast<std::size_t>((capacity + 63) / 64));
  }
  /// Throws InvalidArgument for a member that is no node.
  NodeSet(Index capacity, std::span<const Index> members) : NodeSet(capacity) {
    for (const Index node : members) {
      require(node >= 0 && node < capacity, "NodeSet", "members must be between 0 and ", capacity - 1, ", got ", node);
      insert(node);
    }
  }

  Index capacity() const { return capacity_; }
  bool contains(Index node) const { return (word(node) >> (node % 64) & 1) != 0; }
  void insert(Index node) { word(node) |= std::uint64_t{1} << (node % 64); }
  void erase(Index node) { word(node) &= ~(std::uint64_t{1} << (node % 64)); }

  bool empty() const {
    return std::ranges::all_of(words_, [](std::uint64_t w) { return w == 0; });
  }
  Index count() const {
    Index total = 0;
    for (const std::uint64_t w : words_) total += std::popcount(w);
    return total;
  }
  bool intersects(const NodeSet& other) const {
    ASHLAR_ASSERT(capacity_ == other.capacity_);
    for (std::size_t k = 0; k < words_.size(); ++k)
      if ((words_[k] & other.words_[k]) != 0) return true;
    return false;
  }
  bool is_subset_of(const NodeSet& other) const {
    ASHLAR_ASSERT(capacity_ == other.capacity_);
    for (std::size_t k = 0; k < words_.size(); ++k)
      if ((words_[k] & ~other.words_[k]) != 0) return false;
    return true;
  }

  NodeSet& operator|=(const NodeSet& other) {
    return combine(other, [](std::uint64_t a, std::uint64_t b) { return a | b; });
  }
  NodeSet& operator&=(const NodeSet& other) {
    return combine(other, [](std::uint64_t a, std::uint64_t b) { return a & b; });
  }
  NodeSet& operator-=(const NodeSet& other) {
    return combine(other, [](std::uint64_t a, std::uint64_t b) { return a & ~b; });
  }
  friend NodeSet operator|(NodeSet a, const NodeSet& b) { return a |= b; }
  friend NodeSet operator&(NodeSet a, const NodeSet& b) { return a &= b; }
  friend NodeSet operator-(NodeSet a, const NodeSet& b) { return a -= b; }
  friend bool operator==(const NodeSet&, const NodeSet&) = default;

  /// f(node) for every member in ascending order. f must not change this set.
  template <class F>
  void for_each(F&& f) const {
    for (std::size_t k = 0; k < words_.size(); ++k)
      for (std::uint64_t rest = words_[k]; rest != 0; rest &= rest - 1)
        f(static_cast<Index>(k) * 64 + std::countr_zero(rest));
  }
  std::vector<Index> members() const {
    std::vector<Index> nodes;
    for_each([&](Index node) { nodes.push_back(node); });
    return nodes;
  }

 private:
  std::uint64_t& word(Index node) {
    ASHLAR_ASSERT(node >= 0 && node < capacity_);
    return words_[static_cast<std::size_t>(node / 64)];
  }
  const std::uint64_t& word(Index node) const {
    ASHLAR_ASSERT(node >= 0 && node < capacity_);
    return words_[static_cast<std::size_t>(node / 64)];
  }
  template <class Operation>
  NodeSet& combine(const NodeSet& other, Operation&& operation) {
    ASHLAR_ASSERT(capacity_ == other.capacity_);
    for (std::size_t k = 0; k < words_.size(); ++k) words_[k] = operation(words_[k], other.words_[k]);
    return *this;
  }

  Index capacity_;
  std::vector<std::uint64_t> words_;
};

}  // namespace ashlar::discrete
