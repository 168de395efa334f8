// Optimisers: SGD with momentum, Adam and AdamW, on groups of parameters.
//
//   nn::AdamW<float> optimizer(nn::parameters<float>(model), {.learning_rate = 3e-4, .weight_decay = 0.1});
//   for (...) {
//     tape.backward(loss);
//     nn::clip_gradient_norm<float>(optimizer, 1.0);
//     optimizer.step();                                       // uses up the gradients
//   }
//
// A step moves the parameters that have a gradient and takes the gradient away; it leaves those without one, and their
// state, alone. Between backward() and step() gradients may be read and rewritten: they are `parameter.gradient`. An
// optimiser is a module: what a checkpoint needs to continue is visited beside its parameters.
//
// The arithmetic is in functional/descent.hpp, for parameters that are no module's.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/functional/descent.hpp"
#include "ashlar/nn/module.hpp"

namespace ashlar::nn {

using functional::AdamOptions;
using functional::SgdOptions;

/// Parameters that share options.
template <Real T, class Options>
struct ParameterGroup {
  std::vector<NamedParameter<T>> parameters;
  Options options;
};

namespace detail {

/// What all optimisers do: keep a state beside each parameter, and step through those that have a gradient.
template <Real T, class Options, std::size_t Moments>
class Optimizer {
 public:
  using Group = ParameterGroup<T, Options>;

  Optimizer(std::vector<NamedParameter<T>> all, const Options& options) : Optimizer({Group{std::move(all), options}}) {}
  explicit Optimizer(std::vector<Group> groups) : groups_(std::move(groups)) {
    for (const Group& group : groups_) states_.emplace_back(group.parameters.size());
  }

  /// Options may change from step to step, the learning rate by a schedule for instance.
  std::vector<Group>& groups() { return groups_; }
  void set_learning_rate(double rate) {
    for (Group& group : groups_) group.options.learning_rate = rate;
  }

  /// For checkpoints: steps and moments of every parameter, under the parameter's name. Allocates those that are not
  /// there yet, as zeros.
  template <class Visitor>
  void visit(Visitor&& visitor) {
    static constexpr const char* names[] = {"moment1", "moment2"};
    for_each([&](const NamedParameter<T>& named, State& state, const Options&) {
      prepare(state, *named.parameter);
      visitor(named.name + ".step", state.step);
      for (std::size_t m = 0; m < Moments; ++m) visitor(named.name + "." + names[m], state.moments[m]);
    });
  }

 protected:
  struct State {
    Tensor<T> step;  // [1]: a number like the others, so that a checkpoint holds tensors alone
    Tensor<T> moments[Moments];
  };

  /// update(value, gradient, state, options) for parameters with a gradient, which is gone afterwards.
  template <class Update>
  void step(Update&& update) {
    for_each([&](const NamedParameter<T>& named, State& state, const Options& options) {
      Parameter<T>& parameter = *named.parameter;
      if (!parameter.gradient || parameter.frozen) return;
      check_shape("step", named.name, parameter.gradient->shape().extents(), parameter.value.shape().extents(),
                  "gradient like value");
      prepare(state, parameter);
      *state.step.data() += T(1);
      update(parameter.value, *parameter.gradient, state, options);
      parameter.gradient.reset();
    });
  }

 private:
  static void prepare(State& state, const Parameter<T>& parameter) {
    if (state.step.size() == 1) return;
    state.step = Tensor<T>(Shape{1});
    for (Tensor<T>& moment : state.moments) moment = Tensor<T>(parameter.value.shape());
  }
  template <class F>
  void for_each(F&& f) {
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (std::size_t i = 0; i < groups_[g].parameters.size(); ++i)
        f(groups_[g].parameters[i], states_[g][i], groups_[g].options);
  }

  std::vector<Group> groups_;
  std::vector<std::vector<State>> states_;
};

}  // namespace detail

/// Stochastic gradient descent:  g += weight_decay w,  u = momentum u + g,  w -= learning_rate u.
template <Real T>
class Sgd : public detail::Optimizer<T, SgdOptions, 1> {
 public:
  using Base = detail::Optimizer<T, SgdOptions, 1>;
  using Base::Base;

  void step() {
    Base::step([](Tensor<T>& value, const Tensor<T>& gradient, typename Base::State& state, const SgdOptions& options) {
      functional::sgd_update<T>(value.elements(), gradient.elements(), state.moments[0].elements(), options);
    });
  }
};

namespace detail {

template <Real T, functional::Decay Kind>
class AdamFamily : public Optimizer<T, AdamOptions, 2> {
 public:
  using Base = Optimizer<T, AdamOptions, 2>;
  using Base::Base;

  void step() {
    Base::step([](Tensor<T>& value, const Tensor<T>& gradient, typename Base::State& state,
                  const AdamOptions& options) {
      functional::adam_update<T>(value.elements(), gradient.elements(), state.moments[0].elements(),
                                 state.moments[1].elements(), static_cast<Index>(*state.step.data()), Kind, options);
    });
  }
};

}  // namespace detail

/// Kingma, Ba 2015: functional::adam_update with the decay in the gradient.
template <Real T>
using Adam = detail::AdamFamily<T, functional::Decay::in_gradient>;
/// Loshchilov, Hutter 2019: functional::adam_update with the decay apart.
template <Real T>
using AdamW = detail::AdamFamily<T, functional::Decay::apart>;

/// Scales all gradients of an optimiser's parameters so that their common Euclidean norm is at most `limit`. Returns
/// the norm before.
template <Real T, class Optimizer>
double clip_gradient_norm(Optimizer& optimizer, double limit) {
  check_argument(limit > 0, "clip_gradient_norm", "limit", "positive", limit);
  double squares = 0;
  for (auto& group : optimizer.groups())
    for (auto& [name, parameter] : group.parameters)
      if (parameter->gradient)
        squares += Eigen::Map<const Vector<T>>(parameter->gradient->data(), parameter->gradient->size())
                       .template cast<double>()
                       .squaredNorm();
  const double norm = std::sqrt(squares);
  if (norm > limit)
    for (auto& group : optimizer.groups())
      for (auto& [name, parameter] : group.parameters)
        if (parameter->gradient)
          Eigen::Map<Vector<T>>(parameter->gradient->data(), parameter->gradient->size()) *=
              static_cast<T>(limit / norm);
  return norm;
}

/// target = (1 - rate) target + rate source, parameter by parameter: two modules of the same type and sizes.
template <Module M>
void polyak_average(M& target, M& source, double rate) {
  check_argument(rate >= 0 && rate <= 1, "polyak_average", "rate", "in [0, 1]", rate);
  std::vector<void*> from;
  for_each_parameter(source, [&](const std::string&, auto& parameter) { from.push_back(&parameter); });
  std::size_t i = 0;
  for_each_parameter(target, [&](const std::string& name, auto& parameter) {
    require(i < from.size(), "polyak_average", "source has no parameter ", name);
    const auto& other = *static_cast<std::remove_reference_t<decltype(parameter)>*>(from[i++]);
    check_shape("polyak_average", name, other.value.shape().extents(), parameter.value.shape().extents(),
                "source like target");
    using T = typename std::remove_cvref_t<decltype(parameter.value)>::value_type;
    Eigen::Map<Vector<T>> to(parameter.value.data(), parameter.value.size());
    to += static_cast<T>(rate) * (Eigen::Map<const Vector<T>>(other.value.data(), other.value.size()) - to);
  });
}

}  // namespace ashlar::nn
