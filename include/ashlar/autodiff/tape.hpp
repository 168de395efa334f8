// Reverse-mode differentiation over tensors: a tape that remembers operations in the order they ran.
//
//   autodiff::Tape<float> tape;
//   const auto w = tape.variable(weights), x = tape.constant(inputs), y = tape.constant(targets);
//   tape.backward(mean(square(matmul(x, w) - y)));
//   *w.gradient();                                             // [shape of weights]
//
// For y = f(x) the tape keeps two rules: the reverse rule x' += (df/dx)^T y', and the tangent rule dy = (df/dx) dx,
// written in operations that go on the tape themselves. backward() is one sweep of reverse rules. tangent() is one
// sweep of tangent rules, and as its result is on the tape, backward() of it gives second derivatives:
//   grad <grad L, v> = H v,  so  tape.backward(*tape.tangent(loss, {{w, v}}))  leaves H v in w.gradient().
//
// Operations are plain functions of tensors; the tape adds order, not arithmetic. The same inputs give the same bits
// for any number of threads. A sweep frees what it has passed. A tape is for one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/functional/elementwise.hpp"

namespace ashlar::autodiff {

template <Real T>
class Tape;
template <Real T>
class Var;

/// Numbers that training changes. No gradient is not a zero gradient: an optimiser leaves a parameter without one
/// alone.
template <Real T>
struct Parameter {
  Parameter() = default;
  explicit Parameter(Tensor<T> initial) : value(std::move(initial)) {}

  Tensor<T> value;
  std::optional<Tensor<T>> gradient;  ///< [shape of value], what backward() adds to; absent until it does
  bool frozen = false;                ///< wants no gradient: whatever only that would need is not computed
};

/// What the reverse rule of an operation adds to: the gradients of the operation's inputs.
template <Real T>
class Gradients {
 public:
  /// Whether input i wants a gradient.
  bool wants(int i) const;
  /// The gradient of input i grows by `part`, which has the shape of the input.
  void add(int i, Tensor<T>&& part);
  /// The gradient of input i, for rules that touch few of its elements: zeros when there was none yet.
  Tensor<T>& accumulator(int i, const Shape& shape);
  /// Memory for a part.
  Tensor<T> uninitialized(const Shape& shape);

 private:
  friend class Tape<T>;
  Gradients(Tape<T>& tape, std::span<const Index> slots) : tape_(tape), slots_(slots) {}
  Tape<T>& tape_;
  std::span<const Index> slots_;
};

/// Gradients of an operation's results (absent where the final result does not depend on one) -> gradients of its
/// inputs. A rule may move from what it is given.
template <Real T>
using ReverseRule = std::function<void(std::span<std::optional<Tensor<T>>>, Gradients<T>&)>;
/// Directions in which the inputs move (absent for those that stand still, never all) -> those of the results.
template <Real T>
using Tangents = std::span<const std::optional<Var<T>>>;
template <Real T>
using TangentRule = std::function<std::vector<std::optional<Var<T>>>(Tangents<T>)>;

namespace detail {

inline constexpr Index not_recorded = -1;

/// to += from, element by element.
template <class T>
void add_to(Tensor<T>& to, const Tensor<T>& from) {
  ASHLAR_ASSERT(to.shape() == from.shape());
  functional::map(
      to, [](const auto& a, const auto& b) { return a + b; }, to, from);
}

/// What a tape shares with the values made on it, which may outlive it: whether it is there, how often it was swept,
/// and the memory of tensors that are gone. A training step repeats its shapes, and the pages of a fresh allocation
/// cost as much as the arithmetic on them.
template <class T>
struct TapeState {
  Tape<T>* tape = nullptr;
  std::uint64_t sweeps = 0;
  std::unordered_map<Index, std::vector<Tensor<T>>> free;  // by size

  Tensor<T> take(const Shape& shape) {
    const auto found = free.find(shape.size());
    if (found == free.end() || found->second.empty()) return Tensor<T>::uninitialized(shape);
    Tensor<T> tensor = std::move(found->second.back());
    found->second.pop_back();
    tensor.reshape(shape);
    return tensor;
  }
  void give(Tensor<T>&& tensor) {
    if (tape != nullptr && tensor.size() > 0) free[tensor.size()].push_back(std::move(tensor));
  }
};

/// What all copies of a Var share.
template <class T>
struct Cell {
  Tensor<T> own;
  const Tensor<T>* value = &own;        // or a parameter's, or that of `source`
  std::shared_ptr<Cell> source;         // of a detached value
  std::shared_ptr<TapeState<T>> state;  // null for a constant made without a tape
  std::uint64_t sweep = 0;              // how often the tape had been swept when this was made
  Index slot = not_recorded;            // where its gradient is kept during a sweep
  std::optional<Tensor<T>> gradient;    // of a variable, after backward()

  Cell() = default;
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell&) = delete;
  ~Cell() {
    if (state) state->give(std::move(own));
  }
};

}  // namespace detail

/// A tensor as operations see it: its value, and its place on a tape if gradients pass through it. Copies share both.
template <Real T>
class Var {
 public:
  using value_type = T;

  /// An empty constant.
  Var() : Var(Tensor<T>()) {}
  /// A constant without a tape. Operations on such constants alone record nothing: this is how to run a trained model.
  explicit Var(Tensor<T> value) : cell_(std::make_shared<detail::Cell<T>>()) { cell_->own = std::move(value); }

  /// A constant without a tape that looks at a tensor, which has to stay.
  static Var refer_to(const Tensor<T>& value) {
    Var var;
    var.cell_->value = &value;
    return var;
  }

  const Tensor<T>& value() const { return *cell_->value; }
  const Shape& shape() const { return value().shape(); }
  Index size() const { return value().size(); }
  int rank() const { return value().rank(); }
  Index extent(int axis) const { return value().extent(axis); }
  /// The only element.
  T item() const {
    require(size() == 1, "Var::item", "the value has shape ", shape().extents(), ", expected one element");
    return value().data()[0];
  }

  /// Of a variable, after backward(): absent when the result did not depend on it.
  const std::optional<Tensor<T>>& gradient() const { return cell_->gradient; }
  /// Whether gradients pass through.
  bool recorded() const { return cell_->slot != detail::not_recorded; }
  /// The tape this was made on, or null.
  Tape<T>* tape() const { return cell_->state ? cell_->state->tape : nullptr; }

  /// The same value as a constant: gradients stop here.
  Var detached() const {
    Var constant;
    constant.cell_->value = cell_->value;
    constant.cell_->source = cell_;
    constant.cell_->state = cell_->state;
    return constant;
  }

 private:
  friend class Tape<T>;
  template <Real U>
  friend std::vector<Var<U>> record_all(std::string_view, std::span<const Var<U>>, std::vector<Tensor<U>>,
                                        ReverseRule<U>, TangentRule<U>);
  template <Real U>
  friend Tensor<U> uninitialized(const Shape&, std::initializer_list<Var<U>>);

  std::shared_ptr<detail::Cell<T>> cell_;
};

template <Real T>
class Tape {
 public:
  Tape() : state_(std::make_shared<detail::TapeState<T>>()) { state_->tape = this; }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  ~Tape() { state_->tape = nullptr; }

  /// A value that gradients stop at.
  Var<T> constant(Tensor<T> value) {
    Var<T> var(std::move(value));
    var.cell_->state = state_;
    var.cell_->sweep = state_->sweeps;
    return var;
  }
  /// A value whose gradient is wanted.
  Var<T> variable(Tensor<T> value) {
    Var<T> var = constant(std::move(value));
    enter_leaf("variable", var, [cell = std::weak_ptr(var.cell_)](Tensor<T>&& gradient) {
      if (const auto alive = cell.lock()) alive->gradient = std::move(gradient);
    });
    return var;
  }
  /// A parameter by reference: it must stay, with its value, until the sweep, which adds to its gradient. Using it
  /// twice gives the same variable.
  Var<T> use(Parameter<T>& parameter) {
    if (const auto found = used_.find(&parameter); found != used_.end()) return found->second;
    Var<T> var = constant({});
    var.cell_->value = &parameter.value;
    if (!parameter.frozen)
      enter_leaf("parameter", var, [&parameter](Tensor<T>&& gradient) {
        if (parameter.gradient)
          detail::add_to(*parameter.gradient, gradient);
        else
          parameter.gradient = std::move(gradient);
      });
    used_.emplace(&parameter, var);
    return var;
  }

  /// A value and what is wanted of it: a cotangent to start a reverse sweep from.
  struct Seed {
    Var<T> of;
    Tensor<T> cotangent;  ///< [shape of the value]
  };
  /// A value and the direction it moves in.
  struct Direction {
    Var<T> of;
    Var<T> along;  ///< [shape of the value]
  };

  /// The gradients of `result`, one number, into every variable and parameter that it depends on. The tape is empty
  /// afterwards. Costs about twice the recorded operations.
  void backward(const Var<T>& result) {
    require(result.size() == 1, "Tape::backward", "the result has shape ", result.shape().extents(),
            ", expected one element; start from a cotangent otherwise");
    backward({{result, Tensor<T>(result.shape(), T(1))}});
  }
  /// The gradients of the sum of <cotangent, value> over all seeds.
  void backward(std::initializer_list<Seed> seeds) {
    start("Tape::backward", seeds);
    while (!nodes_.empty()) {
      reverse(nodes_.back(), {});
      nodes_.pop_back();
    }
    gradients_.clear();
    used_.clear();
    ++state_->sweeps;
  }

  /// The gradients of the sum of <cotangent, value> with respect to `at`, any recorded values; absent where no seed
  /// depends on one. The tape stays as it is, and no gradient is left in variables and parameters.
  std::vector<std::optional<Tensor<T>>> gradients(std::initializer_list<Seed> seeds, std::span<const Var<T>> at) {
    for (const Var<T>& var : at) check_recorded("Tape::gradients", var);
    start("Tape::gradients", seeds);
    std::vector<char> kept(gradients_.size(), 0);
    for (const Var<T>& var : at) kept[static_cast<std::size_t>(var.cell_->slot)] = 1;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node)
      if (!node->inputs.empty()) reverse(*node, kept);
    std::vector<std::optional<Tensor<T>>> found;
    for (const Var<T>& var : at) found.push_back(gradients_[static_cast<std::size_t>(var.cell_->slot)]);
    gradients_.clear();
    return found;
  }
  std::vector<std::optional<Tensor<T>>> gradients(std::initializer_list<Seed> seeds, std::initializer_list<Var<T>> at) {
    return gradients(seeds, std::span<const Var<T>>(at.begin(), at.size()));
  }

  /// d result(x + epsilon v) / d epsilon at epsilon = 0, where x are the values `of` (each taken as independent of the
  /// others) and v the directions: [shape of result]. It is recorded in its turn. Absent where the result does not
  /// depend on any x. Costs about as much as the recorded operations.
  std::optional<Var<T>> tangent(const Var<T>& result, std::span<const Direction> directions) {
    check_recorded("Tape::tangent", result);
    const auto last = static_cast<std::size_t>(result.cell_->slot);
    std::vector<std::optional<Var<T>>> moving(last + 1);
    for (const auto& [of, along] : directions) {
      check_recorded("Tape::tangent", of);
      check_shape("Tape::tangent", "direction", along.shape().extents(), of.shape().extents(), "shape of its value");
      if (const auto slot = static_cast<std::size_t>(of.cell_->slot); slot <= last) moving[slot] = along;
    }
    std::vector<char> needed(last + 1, 0);  // by the result
    needed[last] = 1;
    const std::size_t count = nodes_.size();  // the rules append behind it
    for (std::size_t i = count; i-- > 0;) {
      const Node& node = nodes_[i];
      if (!any_output(node, [&](std::size_t slot) { return slot <= last && needed[slot]; })) continue;
      for (const Index input : node.inputs)
        if (input != detail::not_recorded) needed[static_cast<std::size_t>(input)] = 1;
    }
    std::vector<std::optional<Var<T>>> inputs;
    for (std::size_t i = 0; i < count; ++i) {
      const Node& node = nodes_[i];
      if (!any_output(node, [&](std::size_t slot) { return slot <= last && needed[slot] && !moving[slot]; })) continue;
      inputs.clear();
      for (const Index input : node.inputs)
        inputs.push_back(input == detail::not_recorded ? std::nullopt : moving[static_cast<std::size_t>(input)]);
      if (std::ranges::none_of(inputs, [](const auto& input) { return input.has_value(); })) continue;
      require(bool(node.tangent), "Tape::tangent", node.name, " has no tangent rule");
      std::vector<std::optional<Var<T>>> outputs = node.tangent(inputs);
      for (std::size_t k = 0; k < outputs.size(); ++k)
        if (const auto slot = static_cast<std::size_t>(node.first_output) + k; slot <= last && !moving[slot])
          moving[slot] = std::move(outputs[k]);
    }
    return moving[last];
  }
  std::optional<Var<T>> tangent(const Var<T>& result, std::initializer_list<Direction> directions) {
    return tangent(result, std::span<const Direction>(directions.begin(), directions.size()));
  }

  /// How many operations, variables and parameters a sweep would visit.
  Index size() const { return static_cast<Index>(nodes_.size()); }

 private:
  friend class Gradients<T>;
  template <Real U>
  friend std::vector<Var<U>> record_all(std::string_view, std::span<const Var<U>>, std::vector<Tensor<U>>,
                                        ReverseRule<U>, TangentRule<U>);

  struct Node {
    std::string_view name;
    std::vector<Index> inputs;  // slots; none for a leaf
    Index first_output;
    Index outputs;
    ReverseRule<T> reverse;
    TangentRule<T> tangent;
  };

  template <class F>
  static bool any_output(const Node& node, F&& holds) {
    for (Index k = 0; k < node.outputs; ++k)
      if (holds(static_cast<std::size_t>(node.first_output + k))) return true;
    return false;
  }

  /// Puts values on the tape, in consecutive slots.
  void enter(Node node, std::span<const Var<T>> outputs) {
    node.first_output = nodes_.empty() ? 0 : nodes_.back().first_output + nodes_.back().outputs;
    node.outputs = static_cast<Index>(outputs.size());
    for (std::size_t k = 0; k < outputs.size(); ++k) outputs[k].cell_->slot = node.first_output + static_cast<Index>(k);
    nodes_.push_back(std::move(node));
  }
  template <class Sink>
  void enter_leaf(std::string_view name, const Var<T>& var, Sink sink) {
    enter({name,
           {},
           0,
           0,
           [sink](std::span<std::optional<Tensor<T>>> gradient, Gradients<T>&) { sink(std::move(*gradient[0])); },
           {}},
          std::span(&var, 1));
  }

  void check_current(std::string_view function, const Var<T>& var) const {
    require(var.cell_->state == state_, function, "a value of shape ", var.shape().extents(),
            " belongs to another tape");
    require(var.cell_->sweep == state_->sweeps, function, "a value of shape ", var.shape().extents(),
            " was recorded before the tape's last backward(), which freed it; use gradients() to sweep more than once");
  }
  void check_recorded(std::string_view function, const Var<T>& var) const {
    require(var.recorded(), function, "a value of shape ", var.shape().extents(),
            " was not recorded: it depends on no variable and no parameter");
    check_current(function, var);
  }

  void start(std::string_view function, std::initializer_list<Seed> seeds) {
    for (const auto& [of, cotangent] : seeds) {
      check_recorded(function, of);
      check_shape(function, "cotangent", cotangent.shape().extents(), of.shape().extents(), "shape of its value");
    }
    gradients_.assign(static_cast<std::size_t>(nodes_.back().first_output + nodes_.back().outputs), std::nullopt);
    for (const auto& [of, cotangent] : seeds) {
      auto& gradient = gradients_[static_cast<std::size_t>(of.cell_->slot)];
      if (gradient)
        detail::add_to(*gradient, cotangent);
      else
        gradient = cotangent;
    }
  }

  /// The reverse rule of one node, and an end to the gradients it used up, unless they are to be kept.
  void reverse(const Node& node, std::span<const char> kept) {
    const auto outputs =
        std::span(gradients_)
            .subspan(static_cast<std::size_t>(node.first_output), static_cast<std::size_t>(node.outputs));
    if (std::ranges::none_of(outputs, [](const auto& gradient) { return gradient.has_value(); })) return;
    std::vector<std::optional<Tensor<T>>> used(outputs.size());
    for (std::size_t k = 0; k < used.size(); ++k) {
      const bool keep = !kept.empty() && kept[static_cast<std::size_t>(node.first_output) + k];
      if (keep)
        used[k] = outputs[k];
      else
        used[k].swap(outputs[k]);
    }
    Gradients<T> inputs(*this, node.inputs);
    node.reverse(used, inputs);
    for (auto& gradient : used)
      if (gradient) state_->give(std::move(*gradient));
  }

  std::shared_ptr<detail::TapeState<T>> state_;
  std::deque<Node> nodes_;                           // a deque, because tangent rules record while one is read
  std::vector<std::optional<Tensor<T>>> gradients_;  // by slot, during a sweep
  std::unordered_map<Parameter<T>*, Var<T>> used_;
};

template <Real T>
bool Gradients<T>::wants(int i) const {
  return slots_[static_cast<std::size_t>(i)] != detail::not_recorded;
}

template <Real T>
void Gradients<T>::add(int i, Tensor<T>&& part) {
  auto& gradient = tape_.gradients_[static_cast<std::size_t>(slots_[static_cast<std::size_t>(i)])];
  if (!gradient) {
    gradient = std::move(part);
  } else {
    detail::add_to(*gradient, part);
    tape_.state_->give(std::move(part));
  }
}

template <Real T>
Tensor<T>& Gradients<T>::accumulator(int i, const Shape& shape) {
  auto& gradient = tape_.gradients_[static_cast<std::size_t>(slots_[static_cast<std::size_t>(i)])];
  if (!gradient) {
    gradient = uninitialized(shape);
    std::fill_n(gradient->data(), gradient->size(), T(0));
  }
  return *gradient;
}

template <Real T>
Tensor<T> Gradients<T>::uninitialized(const Shape& shape) {
  return tape_.state_->take(shape);
}

/// A parameter beside x: a variable on the tape of x, or a constant where x has none.
template <Real T>
Var<T> use(Parameter<T>& parameter, const Var<T>& x) {
  return x.tape() ? x.tape()->use(parameter) : Var<T>::refer_to(parameter.value);
}

/// Memory for the result of an operation on `inputs`: recycled, if one of them has a tape.
template <Real T>
Tensor<T> uninitialized(const Shape& shape, std::initializer_list<Var<T>> inputs) {
  for (const Var<T>& input : inputs)
    if (input.tape()) return input.cell_->state->take(shape);
  return Tensor<T>::uninitialized(shape);
}

/// Makes an operation with several results. It is recorded if gradients pass through one of its inputs.
/// `tangent` may be empty where no second derivative will be asked for.
template <Real T>
std::vector<Var<T>> record_all(std::string_view name, std::span<const Var<T>> inputs, std::vector<Tensor<T>> values,
                               ReverseRule<T> reverse, TangentRule<T> tangent) {
  Tape<T>* tape = nullptr;
  bool recorded = false;
  for (const Var<T>& input : inputs) {
    require(!input.recorded() || input.tape(), name, "an input of shape ", input.shape().extents(),
            " belongs to a tape that is gone");
    if (!tape) tape = input.tape();
    if (input.recorded()) {
      input.tape()->check_current(name, input);
      require(!recorded || tape == input.tape(), name, "its inputs belong to different tapes");
      tape = input.tape();
      recorded = true;
    }
  }
  std::vector<Var<T>> outputs;
  for (Tensor<T>& value : values) outputs.push_back(tape ? tape->constant(std::move(value)) : Var<T>(std::move(value)));
  if (recorded) {
    std::vector<Index> slots;
    for (const Var<T>& input : inputs) slots.push_back(input.cell_->slot);
    tape->enter({name, std::move(slots), 0, 0, std::move(reverse), std::move(tangent)}, outputs);
  }
  return outputs;
}

/// Makes an operation with one result, from the gradient of the result -> gradients of the inputs, and from the
/// directions of the inputs -> direction of the result (nullptr where no second derivative will be asked for).
///
///   return record<T>("matmul", {a, b}, std::move(product),
///       [a, b](const Tensor<T>& gradient, Gradients<T>& into) { if (into.wants(0)) into.add(0, ...); ... },
///       [a, b](Tangents<T> d) { return sum(d[0], ...); });
template <Real T, class Reverse, class Tangent>
Var<T> record(std::string_view name, std::initializer_list<Var<T>> inputs, Tensor<T> value, Reverse reverse,
              Tangent tangent) {
  std::vector<Tensor<T>> values;
  values.push_back(std::move(value));
  TangentRule<T> tangent_rule;
  if constexpr (!std::is_same_v<Tangent, std::nullptr_t>)
    tangent_rule = [tangent = std::move(tangent)](Tangents<T> directions) {
      return std::vector<std::optional<Var<T>>>{tangent(directions)};
    };
  return record_all<T>(
      name, std::span<const Var<T>>(inputs.begin(), inputs.size()), std::move(values),
      [reverse = std::move(reverse)](std::span<std::optional<Tensor<T>>> gradients, Gradients<T>& into) {
        reverse(*gradients[0], into);
      },
      std::move(tangent_rule))[0];
}

}  // namespace ashlar::autodiff
