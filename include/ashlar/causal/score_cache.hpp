// Local scores computed once. A search asks for the same family many times, in any order of the parents.
//
//   causal::ScoreCache cache(score);                      // score(node, sorted parents) -> double
//   cache.prefetch(families);                             // the missing ones, on all threads
//   cache(2, {0, 1});
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "ashlar/core/config.hpp"
#include "ashlar/core/parallel.hpp"

namespace ashlar::causal {

/// score(node, parents in ascending order) as a number; called from several threads at once.
template <class S>
concept LocalScore = std::is_invocable_r_v<double, const S&, Index, std::span<const Index>>;

/// A node and its parents in ascending order.
struct Family {
  Index node;
  std::vector<Index> parents;
  auto operator<=>(const Family&) const = default;
};

/// Keeps a reference to the score. One thread at a time; prefetch starts its own.
template <LocalScore Score>
class ScoreCache {
 public:
  explicit ScoreCache(const Score& score) : score_(score) {}

  double operator()(Index node, std::vector<Index> parents) {
    std::ranges::sort(parents);
    Family family{node, std::move(parents)};
    const auto found = scores_.find(family);
    if (found != scores_.end()) return found->second;
    const double value = score_(family.node, family.parents);
    scores_.emplace(std::move(family), value);
    return value;
  }

  /// Computes those not known yet, each by one thread. When a score throws, the first exception (by family) comes out
  /// and the cache is as it was.
  void prefetch(std::vector<Family> families) {
    for (Family& family : families) std::ranges::sort(family.parents);
    std::ranges::sort(families);
    families.erase(std::unique(families.begin(), families.end()), families.end());
    std::erase_if(families, [&](const Family& family) { return scores_.contains(family); });
    std::vector<double> values(families.size());
    parallel_for(std::ssize(families), 1, [&](Index begin, Index) {
      const auto i = static_cast<std::size_t>(begin);
      values[i] = score_(families[i].node, families[i].parents);
    });
    for (std::size_t i = 0; i < families.size(); ++i) scores_.emplace(std::move(families[i]), values[i]);
  }

  /// Families scored so far.
  Index size() const { return std::ssize(scores_); }

 private:
  const Score& score_;
  std::map<Family, double> scores_;
};

}  // namespace ashlar::causal
