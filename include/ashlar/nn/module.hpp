// Modules: structs that own parameters and name them.
//
//   template <Real T>
//   struct Block {
//     nn::Linear<T> up, down;
//     Var<T> operator()(const Var<T>& x) { return x + down(silu(up(x))); }
//     template <class Visitor>
//     void visit(Visitor&& visitor) { visitor("up", up), visitor("down", down); }
//   };
//
//   for_each_parameter(block, [](const std::string& name, auto& parameter) { ... });   // up.weight, up.bias,
//   down.weight, ... for_each_layer(block, [](const std::string& name, auto& layer) { ... });           // "", up, down
//
// visit() names parameters, tensors that are kept but not trained, other modules, and std::vector or std::optional of
// these. There is no base class; a module is any type with visit().
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ashlar/autodiff/tape.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::nn {

using autodiff::Parameter;
using autodiff::Tape;
using autodiff::Var;

namespace detail {

template <class X>
struct is_parameter : std::false_type {};
template <class T>
struct is_parameter<Parameter<T>> : std::true_type {};
template <class X>
struct is_tensor : std::false_type {};
template <class T>
struct is_tensor<Tensor<T>> : std::true_type {};
template <class X>
struct is_optional : std::false_type {};
template <class X>
struct is_optional<std::optional<X>> : std::true_type {};
template <class X>
struct is_vector : std::false_type {};
template <class X>
struct is_vector<std::vector<X>> : std::true_type {};

struct AnyVisitor {
  template <class X>
  void operator()(std::string_view, X&) const {}
};

/// f(full name, part) for `part` and everything below it, outer ones first.
template <class X, class F>
void walk(const std::string& name, X& part, F& f) {
  if constexpr (is_optional<X>::value) {
    if (part) walk(name, *part, f);
  } else if constexpr (is_vector<X>::value) {
    for (std::size_t i = 0; i < part.size(); ++i)
      walk(name + (name.empty() ? "" : ".") + std::to_string(i), part[i], f);
  } else {
    f(name, part);
    if constexpr (!is_parameter<X>::value && !is_tensor<X>::value)
      part.visit([&](std::string_view child, auto& below) {
        walk(name + (name.empty() ? "" : ".") + std::string(child), below, f);
      });
  }
}

}  // namespace detail

template <class M>
concept Module = requires(M& module) {
  module.visit(detail::AnyVisitor{});
};

/// f(name, parameter) for every parameter, in the order in which modules name them. The first part of a name is the
/// outermost module's: "blocks.0.attention.query.weight".
template <Module M, class F>
void for_each_parameter(M& module, F&& f) {
  auto only = [&](const std::string& name, auto& part) {
    if constexpr (detail::is_parameter<std::remove_cvref_t<decltype(part)>>::value) f(name, part);
  };
  detail::walk(std::string(), module, only);
}

/// f(name, tensor) for everything a checkpoint holds: the values of parameters, and tensors that are not trained.
template <Module M, class F>
void for_each_tensor(M& module, F&& f) {
  auto only = [&](const std::string& name, auto& part) {
    if constexpr (detail::is_parameter<std::remove_cvref_t<decltype(part)>>::value)
      f(name, part.value);
    else if constexpr (detail::is_tensor<std::remove_cvref_t<decltype(part)>>::value)
      f(name, part);
  };
  detail::walk(std::string(), module, only);
}

/// f(name, layer) for the module and all modules below it, each with its own type.
template <Module M, class F>
void for_each_layer(M& module, F&& f) {
  auto only = [&](const std::string& name, auto& part) {
    using X = std::remove_cvref_t<decltype(part)>;
    if constexpr (!detail::is_parameter<X>::value && !detail::is_tensor<X>::value) f(name, part);
  };
  detail::walk(std::string(), module, only);
}

/// A parameter and what it is called.
template <Real T>
struct NamedParameter {
  std::string name;
  Parameter<T>* parameter;
};

/// All parameters of a module, which must not be moved while they are in use.
template <Real T, Module M>
std::vector<NamedParameter<T>> parameters(M& module) {
  std::vector<NamedParameter<T>> all;
  for_each_parameter(module, [&](const std::string& name, auto& parameter) { all.push_back({name, &parameter}); });
  return all;
}

/// How many numbers training may change.
template <Module M>
Index parameter_count(M& module) {
  Index count = 0;
  for_each_parameter(
      module, [&](const std::string&, auto& parameter) { count += parameter.frozen ? 0 : parameter.value.size(); });
  return count;
}

/// Freezes a module's parameters, or lets them go.
template <Module M>
void freeze(M& module, bool frozen = true) {
  for_each_parameter(module, [&](const std::string&, auto& parameter) { parameter.frozen = frozen; });
}

}  // namespace ashlar::nn
