// Data that the tests of statistics share.
#pragma once

#include <cmath>
#include <string>

#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "support/fixture.hpp"

namespace ashlar::statistics {

inline Matrix<double> data(const std::string& file) {
  const auto array = test::fixture("hellinger_sdr/" + file);
  return array.rank() == 2 ? Matrix<double>(array.matrix())
                           : Matrix<double>(Eigen::Map<const Vector<double>>(array.data(), array.size()));
}

/// A single-index model: y = link(x'b) + noise.
struct Model {
  Matrix<double> x;
  Vector<double> y, truth;
};

/// The four designs of the paper, noise of 0.2: x'b with b = (1 .. 1, 0 .. 0), (1, -1, 0 ..), the first again,
/// (1, 1, 0 ..), and links z, z^2, exp z, 5 sin z.
inline Model design(int scenario, Index n, Index p, std::uint64_t seed) {
  Rng rng(seed);
  Model model{normal_matrix<double>(rng, n, p), Vector<double>(n), Vector<double>::Zero(p)};
  if (scenario == 1 || scenario == 3)
    model.truth.head(p / 2).setOnes();
  else
    model.truth.head(2) << 1, scenario == 2 ? -1 : 1;
  const Vector<double> z = model.x * model.truth;
  for (Index i = 0; i < n; ++i) {
    const double links[] = {z[i], z[i] * z[i], std::exp(z[i]), 5 * std::sin(z[i])};
    model.y[i] = links[scenario - 1] + 0.2 * rng.normal();
  }
  model.truth.normalize();
  return model;
}

/// Of the angle between two unit vectors.
inline double sine(const Vector<double>& a, const Vector<double>& b) { return (a - a.dot(b) * b).norm(); }

}  // namespace ashlar::statistics
