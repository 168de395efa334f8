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
// Roof: copy bandwidth; one pass over value, gradient and state. The same bits for any number of threads.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/functional/elementwise.hpp"
#include "ashlar/nn/module.hpp"

namespace ashlar::nn {

struct SgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0;      ///< mu in  u = mu u + g  (the first u is g)
  bool nesterov = false;    ///< steps along g + mu u instead of u
  double weight_decay = 0;  ///< added to the gradient, times the parameter
};

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;      ///< decay of the mean of the gradient
  double beta2 = 0.999;    ///< decay of the mean of its square
  double epsilon = 1e-8;   ///< added to the root of the latter
  double weight_decay = 0;
};

/// One step on arrays, for parameters that are no module's. velocity: u, zeros at first; all of one size.
template <Real T>
void sgd_update(std::span<T> w, std::span<const T> gradient, std::span<T> velocity, const SgdOptions& options) {
  require(gradient.size() == w.size() && velocity.size() == w.size(), "sgd_update", "the arrays differ in size");
  using Array = Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>>;
  using ConstArray = Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>>;
  const auto rate = static_cast<T>(options.learning_rate), mu = static_cast<T>(options.momentum),
             decay = static_cast<T>(options.weight_decay);
  parallel_for(static_cast<Index>(w.size()), functional::elementwise_grain, [&](Index begin, Index end) {
    Array value(w.data() + begin, end - begin), u(velocity.data() + begin, end - begin);
    const ConstArray g(gradient.data() + begin, end - begin);
    u = mu * u + (g + decay * value);
    if (options.nesterov)
      value -= rate * (g + decay * value + mu * u);
    else
      value -= rate * u;
  });
}

/// Where weight decay acts: through the gradient, as if |w|^2 / 2 were part of the loss, or on the parameter itself.
enum class Decay { in_gradient, apart };

/// Step number `step` (from 1) on arrays of one size; m and v are zeros at first.
///   g += weight_decay w  (in_gradient)   or   w -= learning_rate weight_decay w  (apart)
///   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
///   w -= learning_rate m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + epsilon)
template <Real T>
void adam_update(std::span<T> w, std::span<const T> gradient, std::span<T> m, std::span<T> v, Index step, Decay decay,
                 const AdamOptions& options) {
  require(gradient.size() == w.size() && m.size() == w.size() && v.size() == w.size(), "adam_update",
          "the arrays differ in size");
  check_argument(step >= 1, "adam_update", "step", "at least 1", step);
  using V = simd::batch<T>;
  const bool apart = decay == Decay::apart;
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(step)),
               correction2 = 1 - std::pow(options.beta2, static_cast<double>(step));
  const V beta1(static_cast<T>(options.beta1)), beta2(static_cast<T>(options.beta2)),
      rest1(static_cast<T>(1 - options.beta1)), rest2(static_cast<T>(1 - options.beta2)),
      epsilon(static_cast<T>(options.epsilon)), root(static_cast<T>(1 / std::sqrt(correction2))),
      rate(static_cast<T>(options.learning_rate / correction1)),
      coupled(static_cast<T>(apart ? 0 : options.weight_decay)),
      kept(static_cast<T>(apart ? 1 - options.learning_rate * options.weight_decay : 1));
  const auto lanes = [&](const V& old, const V& given, V& mean, V& square) {
    const V g = simd::fma(coupled, old, given);
    mean = simd::fma(beta1, mean, rest1 * g);
    square = simd::fma(beta2, square, rest2 * (g * g));
    return old * kept - rate * mean / simd::fma(xsimd::sqrt(square), root, epsilon);
  };
  parallel_for(static_cast<Index>(w.size()), functional::elementwise_grain, [&](Index begin, Index end) {
    constexpr Index width = simd::width<T>;
    T* const value = w.data();
    T* const first = m.data();
    T* const second = v.data();
    Index i = begin;
    for (; i + width <= end; i += width) {
      V mean = simd::load(first + i), square = simd::load(second + i);
      simd::store(value + i, lanes(simd::load(value + i), simd::load(gradient.data() + i), mean, square));
      simd::store(first + i, mean);
      simd::store(second + i, square);
    }
    for (; i < end; ++i) {  // one number in all lanes, so that it is computed like the others
      V mean(first[i]), square(second[i]);
      value[i] = lanes(V(value[i]), V(gradient.data()[i]), mean, square).get(0);
      first[i] = mean.get(0);
      second[i] = square.get(0);
    }
  });
}

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
    Tensor<T> step;                // [1]: a number like the others, so that a checkpoint holds tensors alone
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
      sgd_update<T>(value.elements(), gradient.elements(), state.moments[0].elements(), options);
    });
  }
};

namespace detail {

template <Real T, Decay Kind>
class AdamFamily : public Optimizer<T, AdamOptions, 2> {
 public:
  using Base = Optimizer<T, AdamOptions, 2>;
  using Base::Base;

  void step() {
    Base::step([](Tensor<T>& value, const Tensor<T>& gradient, typename Base::State& state, const AdamOptions& options) {
      adam_update<T>(value.elements(), gradient.elements(), state.moments[0].elements(), state.moments[1].elements(),
                     static_cast<Index>(*state.step.data()), Kind, options);
    });
  }
};

}  // namespace detail

/// Kingma, Ba 2015: adam_update with the decay in the gradient.
template <Real T>
using Adam = detail::AdamFamily<T, Decay::in_gradient>;
/// Loshchilov, Hutter 2019: adam_update with the decay apart.
template <Real T>
using AdamW = detail::AdamFamily<T, Decay::apart>;

/// Scales all gradients of an optimiser's parameters so that their common Euclidean norm is at most `limit`. Returns the
/// norm before.
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
          Eigen::Map<Vector<T>>(parameter->gradient->data(), parameter->gradient->size()) *= static_cast<T>(limit / norm);
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
    check_shape("polyak_average", name, other.value.shape().extents(), parameter.value.shape().extents(), "source like target");
    using T = typename std::remove_cvref_t<decltype(parameter.value)>::value_type;
    Eigen::Map<Vector<T>> to(parameter.value.data(), parameter.value.size());
    to += static_cast<T>(rate) * (Eigen::Map<const Vector<T>>(other.value.data(), other.value.size()) - to);
  });
}

}  // namespace ashlar::nn
