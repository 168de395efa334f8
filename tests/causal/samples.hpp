// Data for tests of causal discovery.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "ashlar/causal/grouped_data.hpp"
#include "ashlar/core/random.hpp"
#include "support/fixture.hpp"

namespace ashlar::test {

inline Tensor<double> kernel_fixture(const std::string& name) { return fixture<double>("kernel_selection/" + name); }
inline Matrix<double> kernel_matrix(const std::string& name) { return kernel_fixture(name).matrix(); }

/// Variables of the fixtures: two, one and two columns.
inline const causal::Groups fixture_groups{{0, 1}, {2}, {3, 4}};
struct FixtureCase {
  Index node;
  std::vector<Index> parents;
};
inline const std::vector<FixtureCase> fixture_cases{{0, {}}, {0, {1}}, {0, {1, 2}}, {1, {}}, {1, {0}}, {2, {0, 1}}};

/// X depends on two parents, of one and two dimensions.
struct Regression {
  Matrix<double> x, first, second;
  std::vector<Matrix<double>> distances;  ///< of x and the parents
  std::vector<View<const double, 2>> parents() const { return {distances[1], distances[2]}; }

  Regression(Rng& rng, Index n) {
    first = normal_matrix<double>(rng, n, 1);
    second = normal_matrix<double>(rng, n, 2);
    x = normal_matrix<double>(rng, n, 2, 0.25);
    for (Index i = 0; i < n; ++i) {
      x(i, 0) += std::sin(first(i, 0) + second.row(i).sum());
      x(i, 1) += std::tanh(first(i, 0));
    }
    for (const auto* part : {&x, &first, &second}) distances.push_back(causal::squared_distances(*part));
  }
  Regression(const Regression&) = delete;
};

inline double relative_gap(double a, double b) { return std::abs(a - b) / std::abs(b); }

}  // namespace ashlar::test
