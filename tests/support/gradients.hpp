// Holds the rules of an operation against finite differences.
#pragma once

#include <cmath>
#include <vector>

#include "ashlar/autodiff/tape.hpp"
#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

namespace ashlar::test {

using autodiff::Tape;
using autodiff::Var;

namespace detail {

inline double dot(const Tensor<double>& a, const Tensor<double>& b) {
  double sum = 0;
  for (Index i = 0; i < a.size(); ++i) sum += a.data()[i] * b.data()[i];
  return sum;
}

/// <cotangent, f(x + step v)>.
template <class F>
double shifted(F& f, const std::vector<Tensor<double>>& x, const std::vector<Tensor<double>>& v, double step,
               const Tensor<double>& cotangent) {
  std::vector<Var<double>> inputs;
  for (std::size_t i = 0; i < x.size(); ++i) {
    Tensor<double> moved = x[i];
    for (Index k = 0; k < moved.size(); ++k) moved.data()[k] += step * v[i].data()[k];
    inputs.emplace_back(std::move(moved));
  }
  return dot(f(inputs).value(), cotangent);
}

}  // namespace detail

/// Checks an operation f(vector of Vars) -> Var at x, along random directions:
///   its gradient against central differences (error h^2 f''' + eps / h with h = 1e-5: about 1e-10 of the values),
///   its tangent against its gradient (<u, J v> = <J^T u, v>, up to rounding),
///   the gradient of its tangent against differences of the gradient, and that no input asked for changes another's.
template <class F>
void check_rules(F&& f, const std::vector<Tensor<double>>& x, bool second = true) {
  Rng rng(7);
  const auto like = [&](const Tensor<double>& t) { return normal_tensor<double>(rng, t.shape()); };
  std::vector<Tensor<double>> v;
  for (const auto& part : x) v.push_back(like(part));

  Tape<double> tape;
  std::vector<Var<double>> inputs;
  for (const auto& part : x) inputs.push_back(tape.variable(part));
  const Var<double> y = f(inputs);
  const Tensor<double> u = like(y.value());
  const auto gradients = tape.gradients({{y, u}}, std::span<const Var<double>>(inputs));

  double expected = 0, scale = 1 + std::abs(detail::dot(y.value(), u));
  for (std::size_t i = 0; i < x.size(); ++i)
    if (gradients[i]) {
      CHECK(gradients[i]->shape() == x[i].shape());
      expected += detail::dot(*gradients[i], v[i]);
      scale += std::abs(detail::dot(*gradients[i], v[i]));
    }
  const double h = 1e-5;
  const double difference = (detail::shifted(f, x, v, h, u) - detail::shifted(f, x, v, -h, u)) / (2 * h);
  INFO("by the reverse rule " << expected << ", by differences " << difference);
  CHECK(std::abs(expected - difference) <= 1e-7 * scale);

  // An input that is a constant leaves the others' gradients as they were, bit for bit.
  for (std::size_t i = 0; i < x.size() && x.size() > 1; ++i) {
    Tape<double> other;
    std::vector<Var<double>> some;
    for (std::size_t k = 0; k < x.size(); ++k) some.push_back(k == i ? other.constant(x[k]) : other.variable(x[k]));
    const Var<double> z = f(some);
    CHECK(identical(z.value(), y.value()));
    if (!z.recorded()) continue;
    other.backward({{z, u}});
    for (std::size_t k = 0; k < x.size(); ++k) {
      CHECK(some[k].gradient().has_value() == (k != i && gradients[k].has_value()));
      if (some[k].gradient()) CHECK(identical(*some[k].gradient(), *gradients[k]));
    }
  }
  if (!second) return;

  std::vector<Tape<double>::Direction> directions;
  for (std::size_t i = 0; i < x.size(); ++i) directions.push_back({inputs[i], Var<double>(v[i])});
  const auto moved = tape.tangent(y, std::span<const Tape<double>::Direction>(directions));
  REQUIRE(moved.has_value());
  CHECK(moved->shape() == y.shape());
  CHECK(std::abs(detail::dot(moved->value(), u) - expected) <= 1e-12 * scale);

  // Differences of the gradient along v against the gradient of the tangent, both along another direction w.
  if (!moved->recorded()) return;
  std::vector<Tensor<double>> w;
  for (const auto& part : x) w.push_back(like(part));
  const auto curvature = tape.gradients({{*moved, u}}, std::span<const Var<double>>(inputs));
  double by_rules = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (curvature[i]) by_rules += detail::dot(*curvature[i], w[i]);
  const auto slope_at = [&](double step) {
    Tape<double> there;
    std::vector<Var<double>> shifted;
    for (std::size_t i = 0; i < x.size(); ++i) {
      Tensor<double> part = x[i];
      for (Index k = 0; k < part.size(); ++k) part.data()[k] += step * v[i].data()[k];
      shifted.push_back(there.variable(std::move(part)));
    }
    const auto found = there.gradients({{f(shifted), u}}, std::span<const Var<double>>(shifted));
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (found[i]) sum += detail::dot(*found[i], w[i]);
    return sum;
  };
  const double by_differences = (slope_at(h) - slope_at(-h)) / (2 * h);
  INFO("second derivative by rules " << by_rules << ", by differences " << by_differences);
  CHECK(std::abs(by_rules - by_differences) <= 1e-6 * (1 + std::abs(by_rules) + scale));
}

}  // namespace ashlar::test
