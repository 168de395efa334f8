// What the tests of the AdamW steps share.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/precision/adamw_state.hpp"

namespace ashlar::precision::test_cases {

inline constexpr Precision strategies[] = {Precision::pure,          Precision::kahan,        Precision::stochastic,
                                           Precision::collage_light, Precision::collage_plus, Precision::fp32_states,
                                           Precision::fp32_master};

inline std::string name_of(Precision precision) {
  switch (precision) {
    case Precision::pure:
      return "pure";
    case Precision::kahan:
      return "kahan";
    case Precision::stochastic:
      return "sr";
    case Precision::collage_light:
      return "light";
    case Precision::collage_plus:
      return "plus";
    case Precision::fp32_states:
      return "fp32_states";
    case Precision::fp32_master:
      return "fp32_master";
  }
  return "";
}

/// All that a run leaves behind, for comparison by bytes.
template <class F>
std::string bytes_of(const std::vector<F>& theta, const AdamWState<F>& state) {
  std::string bytes(reinterpret_cast<const char*>(theta.data()), theta.size() * sizeof(F));
  AdamWState<F>::visit(state, [&](std::string_view, const auto& tensor) {
    bytes.append(reinterpret_cast<const char*>(tensor.data()),
                 static_cast<std::size_t>(tensor.size()) * sizeof(*tensor.data()));
  });
  return bytes;
}

/// Weights and gradients over many magnitudes, zeros among them, and now and then an update beyond its weight.
template <class F>
std::vector<F> spread(Rng& rng, Index n, int exponents) {
  std::vector<F> x;
  for (Index i = 0; i < n; ++i) {
    const double magnitude = rng.normal() * std::exp2(-rng.uniform(0, exponents));
    x.push_back(rng.below(16) == 0 ? F{} : round_to<F>(static_cast<float>(magnitude)));
  }
  return x;
}

}  // namespace ashlar::precision::test_cases
