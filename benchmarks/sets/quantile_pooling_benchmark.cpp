// Quantile pooling against what a user would write per channel: std::sort, std::nth_element, and an arg-max loop, which
// answers less (level 1 alone) and is the floor of a scalar pass. float; every variant visits every set and channel.
#include "ashlar/sets/quantile_pooling.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/sets/pooling.hpp"
#include "support/scoreboard.hpp"

namespace ashlar::sets {
namespace {

struct Problem {
  Tensor<float> memory, gradient;
  View<const float, 3> x;  ///< [set, element, channel]
  View<float, 3> gx;
  std::vector<double> levels;
  Matrix<float> out;
  Tensor<std::int32_t> positions;
  std::vector<float> row;
  Workspace workspace;

  Problem(Index sets, Index channels, Index elements, double low, double high, bool channel_major)
      : memory(channel_major ? Shape{sets, channels, elements} : Shape{sets, elements, channels}),
        levels(linspace_levels(channels, low, high)),
        out(sets, channels),
        positions({sets, channels, 2}),
        row(static_cast<std::size_t>(elements)) {
    Rng rng(1);
    for (Index i = 0; i < memory.size(); ++i) memory.data()[i] = static_cast<float>(rng()) * 0x1p-32f;
    x = memory.view<3>();
    if (channel_major) x = x.transposed(1, 2);
  }

  void forward() { quantile_pool_forward(x, levels, out, positions, workspace); }

  void allocate_gradient() {
    gradient = Tensor<float>(memory.shape());
    gx = View<float, 3>(gradient.data(), x.shape(), x.strides());
    forward();
  }
  void backward() { quantile_pool_backward(out, positions, levels, gx); }

  /// out(s, c) = answer(the values of set s and channel c in `row`, the rank below level c).
  template <class Answer>
  void by_row(Answer&& answer) {
    const Index last = x.extent(1) - 1;
    for (Index s = 0; s < x.extent(0); ++s)
      for (Index c = 0; c < x.extent(2); ++c) {
        for (Index i = 0; i <= last; ++i) row[static_cast<std::size_t>(i)] = x(s, i, c);
        const double p = levels[static_cast<std::size_t>(c)] * static_cast<double>(last);
        const auto low = static_cast<Index>(std::floor(p));
        const auto [below, above] = answer(low, std::min(low + 1, last));
        out(s, c) = below + static_cast<float>(p - std::floor(p)) * (above - below);
      }
  }

  void sort() {
    by_row([&](Index low, Index high) {
      std::sort(row.begin(), row.end());
      return std::pair{row[static_cast<std::size_t>(low)], row[static_cast<std::size_t>(high)]};
    });
  }
  void nth_element() {
    by_row([&](Index low, Index high) {
      const auto at = row.begin() + low;
      std::nth_element(row.begin(), at, row.end());
      return std::pair{*at, high == low ? *at : *std::min_element(at + 1, row.end())};
    });
  }
  void arg_max() {
    for (Index s = 0; s < x.extent(0); ++s)
      for (Index c = 0; c < x.extent(2); ++c) {
        float best = x(s, 0, c);
        Index at = 0;
        for (Index i = 1; i < x.extent(1); ++i)
          if (const float v = x(s, i, c); v > best) best = v, at = i;
        out(s, c) = best;
        positions.view<3>()(s, c, 0) = static_cast<std::int32_t>(at);
      }
  }
};

struct Size {
  Index sets, channels, elements;
  double low, high;  ///< the levels
  bool channel_major;

  std::string name() const {
    return message("B=", sets, " D=", channels, " N=", elements, " [", low, ",", high, "] ",
                   channel_major ? "channel-major" : "element-major");
  }
  auto problem() const { return std::make_shared<Problem>(sets, channels, elements, low, high, channel_major); }
};

const bool registered = [] {
  // Long rows have one set here: it is as far out of the caches as eight.
  for (const Size size :
       {Size{32, 256, 1024, 0.9, 1, false}, Size{32, 256, 1024, 0.9, 1, true}, Size{32, 256, 1024, 0, 1, false},
        Size{32, 256, 1024, 0, 1, true}, Size{1, 512, 10000, 0.9, 1, false}, Size{1, 512, 10000, 0.95, 1, true},
        Size{1, 64, 99999, 0.9, 1, false}, Size{1024, 64, 32, 0, 1, false}}) {
    const std::string forward = "sets.quantile_pooling.forward";
    const auto bytes = static_cast<double>(4 * size.sets * size.channels * size.elements);
    scoreboard::add({forward, size.name(), "ashlar", {.bytes = bytes}},
                    [=] { return [p = size.problem()] { p->forward(); }; });
    scoreboard::add({forward, size.name(), "std::nth_element"},
                    [=] { return [p = size.problem()] { p->nth_element(); }; });
    if (size.elements <= 1024)
      scoreboard::add({forward, size.name(), "std::sort"}, [=] { return [p = size.problem()] { p->sort(); }; });
  }
  const Size usual{32, 256, 1024, 0.9, 1, true};
  scoreboard::add({"sets.quantile_pooling.floor", usual.name(), "scalar arg-max"},
                  [=] { return [p = usual.problem()] { p->arg_max(); }; });
  for (const Size size : {Size{32, 256, 1024, 0.9, 1, false}, Size{1024, 64, 32, 0.9, 1, false}}) {
    // Reads g and two positions, reads and writes two elements.
    const auto bytes = static_cast<double>(size.sets * size.channels) * (4 + 8 + 16);
    scoreboard::add({"sets.quantile_pooling.backward", size.name(), "ashlar", {.bytes = bytes}}, [=] {
      const auto p = size.problem();
      p->allocate_gradient();
      return [p] { p->backward(); };
    });
  }
  // Thirty-two levels of every channel: one sort a channel answers all of them.
  const Size every{8, 64, 1024, 0, 1, true};
  scoreboard::add({"sets.quantile_pooling.every_level", "B=8 D=64 N=1024 32 levels", "ashlar"}, [=] {
    const auto p = every.problem();
    p->levels = linspace_levels(32, 0, 1);
    p->out.resize(8, 64 * 32);
    return [p] { quantile_pool_forward(p->x, p->levels, p->out, {}, p->workspace, {.every_level = true}); };
  });
  scoreboard::add({"sets.quantile_pooling.every_level", "B=8 D=64 N=1024 32 levels", "std::sort"}, [=] {
    const auto p = every.problem();
    return [p] { p->sort(); };
  });
  return true;
}();

}  // namespace
}  // namespace ashlar::sets
