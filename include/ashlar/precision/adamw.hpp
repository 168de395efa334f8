// AdamW over named arrays in groups with options of their own, every array stepped as precision/collage.hpp does.
//
//   AdamW<bfloat16> optimizer(Precision::collage_plus, {.learning_rate = 3e-4});
//   const Index no_decay = optimizer.add_group({.learning_rate = 3e-4, .weight_decay = 0});
//   optimizer.add("layer.weight", weight, weight_gradient);
//   optimizer.add("layer.bias", bias, bias_gradient, no_decay);
//   for (...) { ...; optimizer.options(0).learning_rate = schedule(t);  optimizer.step(); }
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/adamw_state.hpp"
#include "ashlar/precision/descent_quality.hpp"
#include "ashlar/precision/detail/adamw_array.hpp"
#include "ashlar/precision/expansion.hpp"

namespace ashlar::precision {

/// What a checkpoint of an AdamW holds: arrays named "<parameter>/moment" and so on, and its counters.
template <Component F>
struct AdamWCheckpoint {
  std::map<std::string, Tensor<F>> arrays;
  std::map<std::string, Tensor<float>> float32_arrays;
  std::map<std::string, std::uint64_t> counters;  ///< "<parameter>/step" and "<parameter>/seed"
};

/// Steps arrays of parameters together. It looks at the arrays and does not own them: they must outlive it and stay
/// where they are.
template <Component F>
class AdamW {
 public:
  /// Group 0 has these options. Throws InvalidArgument on options out of range, and on stochastic rounding without rng.
  explicit AdamW(Precision precision, const AdamWOptions& options = {}) : AdamW(precision, options, nullptr) {}
  AdamW(Precision precision, const AdamWOptions& options, Rng& rng) : AdamW(precision, options, &rng) {}

  Index add_group(const AdamWOptions& options) {
    detail::check_options<F>("AdamW::add_group", options, precision_);
    groups_.push_back(options);
    return static_cast<Index>(groups_.size()) - 1;
  }
  Index groups() const { return static_cast<Index>(groups_.size()); }

  /// May be changed between steps; checked again at each.
  AdamWOptions& options(Index group) {
    check_argument(group >= 0 && group < groups(), "AdamW::options", "group", message("in [0, ", groups(), ")"), group);
    return groups_[static_cast<std::size_t>(group)];
  }

  /// Parameters and their gradient: any contiguous arrays of equal size and layout (matrices and tensors too).
  template <class X, class G>
  void add(std::string name, X& parameter, const G& gradient, Index group = 0) {
    const View<F, 1> theta = flat<F>(parameter);
    Rng stream = rng_.split(entries_.size());
    insert(std::move(name), theta, flat<const F>(gradient), group,
           precision_ == Precision::stochastic ? AdamWState<F>(precision_, theta, stream)
                                               : AdamWState<F>(precision_, theta));
  }

  /// One step of every array. quality of `step`: summed over all; `group_quality`, if not empty: one for each group.
  /// A gradient that is not finite anywhere skips the whole step.
  StepReport step(const StepOptions& step = {}, std::span<DescentSums> group_quality = {}) {
    const std::string_view function = "AdamW::step";
    require(group_quality.empty() || group_quality.size() == groups_.size(), function, "group_quality has ",
            group_quality.size(), " entries, expected one for each of ", groups_.size(), " groups");
    StepReport report;
    for (const Entry& entry : entries_)
      detail::check_step<F>(function, entry.theta, entry.gradient, entry.state, options_of(entry), step, {});
    if (step.check_finite)
      for (const Entry& entry : entries_)
        report.non_finite += detail::count_non_finite(entry.gradient.data(), entry.state.size);
    report.applied = report.non_finite == 0;
    if (!report.applied) return report;

    const bool measure = step.quality != nullptr || !group_quality.empty();
    if (step.quality != nullptr) *step.quality = {};
    for (DescentSums& sums : group_quality) sums = {};
    for (Entry& entry : entries_) {
      const DescentSums sums = detail::apply<F>(entry.theta.data(), entry.gradient.data(), entry.state,
                                                options_of(entry), step.gradient_scale, nullptr, measure);
      if (step.quality != nullptr) *step.quality += sums;
      if (!group_quality.empty()) group_quality[static_cast<std::size_t>(entry.group)] += sums;
    }
    return report;
  }

  /// The state of one array, to look at.
  const AdamWState<F>& state(const std::string& name) const {
    for (const Entry& entry : entries_)
      if (entry.name == name) return entry.state;
    throw InvalidArgument(message("AdamW::state: no parameter is named ", name));
  }

  AdamWCheckpoint<F> checkpoint() const {
    AdamWCheckpoint<F> saved;
    for (const Entry& entry : entries_) {
      saved.counters[entry.name + "/step"] = entry.state.step;
      saved.counters[entry.name + "/seed"] = entry.state.seed;
      AdamWState<F>::visit(entry.state, [&]<class T>(std::string_view array, const Tensor<T>& tensor) {
        arrays_for<T>(saved, array)[entry.name + "/" + std::string(array)] = tensor;
      });
    }
    return saved;
  }

  /// Goes on where `saved` was taken. Throws InvalidArgument, before anything changes, unless it holds exactly the
  /// arrays this optimiser keeps, in the same shapes.
  void restore(const AdamWCheckpoint<F>& saved) {
    std::vector<AdamWState<F>> states;
    std::size_t arrays = 0, counters = 0;
    for (const Entry& entry : entries_) {
      AdamWState<F> state = entry.state;
      state.step = found(saved.counters, entry.name + "/step");
      state.seed = found(saved.counters, entry.name + "/seed");
      counters += 2;
      AdamWState<F>::visit(state, [&]<class T>(std::string_view array, Tensor<T>& tensor) {
        const std::string name = entry.name + "/" + std::string(array);
        const Tensor<T>& from = found(arrays_for<T>(saved, array), name);
        check_shape("AdamW::restore", name, from.shape().extents(), {state.size});
        tensor = from;
        ++arrays;
      });
      states.push_back(std::move(state));
    }
    const std::size_t held = saved.arrays.size() + saved.float32_arrays.size();
    require(held == arrays && saved.counters.size() == counters, "AdamW::restore", "the checkpoint has ", held,
            " arrays and ", saved.counters.size(), " counters, expected ", arrays, " and ", counters);
    for (std::size_t i = 0; i < states.size(); ++i) entries_[i].state = std::move(states[i]);
  }

 private:
  struct Entry {
    std::string name;
    View<F, 1> theta;
    View<const F, 1> gradient;
    Index group;
    AdamWState<F> state;
  };

  AdamW(Precision precision, const AdamWOptions& options, Rng* rng) : precision_(precision) {
    detail::require_exact_arithmetic("AdamW");
    detail::check_options<F>("AdamW", options, precision);
    require(precision != Precision::stochastic || rng != nullptr, "AdamW", "stochastic rounding needs an Rng");
    if (rng != nullptr) rng_ = Rng(rng->next64());
    groups_.push_back(options);
  }

  void insert(std::string name, View<F, 1> theta, View<const F, 1> gradient, Index group, AdamWState<F> state) {
    const std::string_view function = "AdamW::add";
    check_argument(group >= 0 && group < groups(), function, "group", message("in [0, ", groups(), ")"), group);
    check_shape(function, "gradient", gradient.shape(), theta.shape(), "same size as the parameter");
    for (const Entry& entry : entries_) require(entry.name != name, function, "two parameters are named ", name);
    entries_.push_back({std::move(name), theta, gradient, group, std::move(state)});
  }

  const AdamWOptions& options_of(const Entry& entry) const { return groups_[static_cast<std::size_t>(entry.group)]; }

  /// All elements of a contiguous array in memory order.
  template <class T, class X>
  static View<T, 1> flat(X& x) {
    if constexpr (requires { x.rowStride(); }) {
      const bool rows_first = x.colStride() == 1 && (x.rowStride() == x.cols() || x.rows() <= 1);
      const bool columns_first = x.rowStride() == 1 && (x.colStride() == x.rows() || x.cols() <= 1);
      require(rows_first || columns_first || x.size() == 0, "AdamW::add", "an array of ", x.rows(), " by ", x.cols(),
              " has gaps; parameters and gradients must be contiguous");
    } else if constexpr (requires { x.contiguous(); }) {
      require(x.contiguous(), "AdamW::add", "parameters and gradients must be contiguous");
    }
    return View<T, 1>(std::data(x), {static_cast<Index>(std::size(x))});
  }

  /// The map an array of a state belongs in: by its type, and by its name where F itself is float.
  template <class T, class Checkpoint>
  static auto& arrays_for(Checkpoint& checkpoint, [[maybe_unused]] std::string_view array) {
    if constexpr (!std::same_as<F, float>) return [&]() -> auto& {
        if constexpr (std::same_as<T, F>)
          return checkpoint.arrays;
        else
          return checkpoint.float32_arrays;
      }
    ();
    else return array == "moment32" || array == "variance32" || array == "master" ? checkpoint.float32_arrays
                                                                                  : checkpoint.arrays;
  }
  template <class Map>
  static const typename Map::mapped_type& found(const Map& map, const std::string& name) {
    const auto at = map.find(name);
    require(at != map.end(), "AdamW::restore", "the checkpoint has no ", name);
    return at->second;
  }

  Precision precision_;
  Rng rng_;
  std::vector<AdamWOptions> groups_;
  std::vector<Entry> entries_;
};

}  // namespace ashlar::precision
