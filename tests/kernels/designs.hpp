// Designs that the tests of ridgeless regression share.
#pragma once

#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/kernels/spectral_design.hpp"
#include "support/fixture.hpp"

namespace ashlar::kernels {

inline const std::vector<std::string> fixture_names{"gaussian", "exp", "sine"};

inline Matrix<double> ridgeless_matrix(const std::string& file) {
  return test::fixture("kernel_ridgeless/" + file).matrix();
}
inline Vector<double> ridgeless_vector(const std::string& file) {
  const auto array = test::fixture("kernel_ridgeless/" + file);
  return Eigen::Map<const Vector<double>>(array.data(), array.size());
}

/// Spectrum, features (samples are rows) and the target's coefficients.
struct Design {
  Vector<double> lambda;
  Matrix<double> features;
  Vector<double> theta;

  Matrix<double> gram() const { return design_gram(lambda, features, features); }
};

inline Design fixture_design(const std::string& name) {
  return {ridgeless_vector(name + "/lambda"), ridgeless_matrix(name + "/psi").transpose(),
          ridgeless_vector(name + "/theta")};
}

/// theta_i = 1 / i.
inline Vector<double> harmonic(Index p) {
  Vector<double> theta(p);
  for (Index i = 0; i < p; ++i) theta[i] = 1 / static_cast<double>(i + 1);
  return theta;
}

inline Design gaussian_design(std::uint64_t seed, Index n, const Vector<double>& lambda) {
  Rng rng(seed);
  return {lambda, gaussian_features(rng, n, lambda.size()), harmonic(lambda.size())};
}

/// |a - b| / |b|.
template <class A, class B>
double relative_error(const A& a, const B& b) {
  return static_cast<double>((a - b).norm() / b.norm());
}

}  // namespace ashlar::kernels
