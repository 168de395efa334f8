// Decay schedules of linear attention: slopes s >= 0, one per head; a head forgets by exp(-s) a token.
//
// The three in use differ. Sources: Press et al., "Train Short, Test Long" (ALiBi), ICLR 2022; Qin et al., "Various
// Lengths, Constant Speed: Efficient Language Modeling with Lightning Attention", ICML 2024, eq. (10), and the models
// released with it.
#pragma once

#include <cmath>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::attention {

/// ALiBi slopes: r, r^2, ..., r^heads with r = 2^(-8/heads) when heads is a power of two. Otherwise the slopes of the
/// power of two below, then every second slope of the power of two above.
inline Vector<double> alibi_slopes(Index heads) {
  check_argument(heads >= 1, "alibi_slopes", "heads", "at least 1", heads);
  Index power = 1;
  while (2 * power <= heads) power *= 2;
  Vector<double> slopes(heads);
  for (Index i = 0; i < power; ++i) slopes[i] = std::exp2(-8.0 * static_cast<double>(i + 1) / static_cast<double>(power));
  for (Index i = power; i < heads; ++i)
    slopes[i] = std::exp2(-4.0 * static_cast<double>(2 * (i - power) + 1) / static_cast<double>(power));
  return slopes;
}

namespace detail {
inline void check_layer(const char* function, Index layer, Index layers) {
  check_argument(layers >= 1, function, "layers", "at least 1", layers);
  check_argument(0 <= layer && layer < layers, function, "layer", message("between 0 and ", layers - 1), layer);
}
}  // namespace detail

/// The released models: alibi_slopes(heads) (1 - layer/(layers-1) + 1e-5). The last layer hardly forgets. With a single
/// layer the quotient is taken as 0.
inline Vector<double> released_slopes(Index heads, Index layer, Index layers) {
  detail::check_layer("released_slopes", layer, layers);
  const double depth = layers == 1 ? 0 : static_cast<double>(layer) / static_cast<double>(layers - 1);
  return alibi_slopes(heads) * (1 - depth + 1e-5);
}

/// Eq. (10) of the paper: 8 h/heads (1 - layer/layers), h and layer from 0, so head 0 never forgets. (The paper does not
/// say where h and layer start; this is the reading of the flash-linear-attention library.)
inline Vector<double> paper_slopes(Index heads, Index layer, Index layers) {
  check_argument(heads >= 1, "paper_slopes", "heads", "at least 1", heads);
  detail::check_layer("paper_slopes", layer, layers);
  const double depth = static_cast<double>(layer) / static_cast<double>(layers);
  return Vector<double>::LinSpaced(heads, 0, static_cast<double>(heads - 1)) * (8 / static_cast<double>(heads) * (1 - depth));
}

}  // namespace ashlar::attention
