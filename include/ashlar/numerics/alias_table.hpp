// Many draws from one discrete distribution, each in constant time.
//
//   const AliasTable table(std::vector<double>{1, 2, 5});
//   Index i = table.draw(rng);                                // 2 with probability 5/8
//
// A column is chosen uniformly and split in at most two. A draw takes one 64-bit number for the place in the column and
// a little more than one 32-bit word for the column; building the table takes O(n).
//
// Source: Walker (1977); built as in Vose, "A linear algorithm for generating random numbers with a given
// distribution", IEEE TSE 17 (1991).
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::numerics {

class AliasTable {
 public:
  /// weights: [n], finite, not negative, not all zero; they need not sum to one.
  explicit AliasTable(View<const double, 1> weights) {
    const Index n = weights.extent(0);
    double total = 0;
    for (Index i = 0; i < n; ++i) {
      check_argument(weights[i] >= 0 && std::isfinite(weights[i]), "AliasTable", "every weight",
                     "finite and not negative", weights[i]);
      total += weights[i];
    }
    check_argument(total > 0 && std::isfinite(total), "AliasTable", "the sum of the weights", "positive and finite",
                   total);
    std::vector<double> height(static_cast<std::size_t>(n));
    std::vector<std::size_t> low, high;
    std::size_t heaviest = 0;
    for (std::size_t i = 0; i < height.size(); ++i) {
      height[i] = weights[static_cast<Index>(i)] / total * static_cast<double>(n);
      if (height[i] > height[heaviest]) heaviest = i;
      (height[i] < 1 ? low : high).push_back(i);
    }
    columns_.resize(height.size());
    while (!low.empty() && !high.empty()) {
      const std::size_t poor = low.back(), rich = high.back();
      low.pop_back();
      columns_[poor] = {height[poor], static_cast<Index>(rich)};
      height[rich] -= 1 - height[poor];
      if (height[rich] < 1) {
        high.pop_back();
        low.push_back(rich);
      }
    }
    for (const std::size_t i : high) columns_[i] = {1, static_cast<Index>(i)};
    // Rounding may leave columns just below 1 without a partner. One of weight zero must not be drawn for that.
    for (const std::size_t i : low)
      columns_[i] = {weights[static_cast<Index>(i)] > 0 ? 1.0 : 0.0, static_cast<Index>(heaviest)};
  }

  Index size() const { return static_cast<Index>(columns_.size()); }

  /// i with probability weights[i] / sum(weights).
  Index draw(Rng& rng) const {
    const Index column = rng.below(size());
    const Column& split = columns_[static_cast<std::size_t>(column)];
    return rng.uniform() < split.share ? column : split.alias;
  }

 private:
  struct Column {
    double share;  // of the column that is its own
    Index alias;   // whom the rest belongs to
  };
  std::vector<Column> columns_;
};

}  // namespace ashlar::numerics
