// Variables that are groups of columns, and what kernel scores read of them: distances between samples.
//
//   const Matrix<double> x = causal::standardized(data);
//   const causal::Groups groups{{0, 1}, {2}};                      // variable 0 has two dimensions, variable 1 one
//   causal::check_groups("my_function", x, groups);
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/linalg/gram.hpp"

namespace ashlar::causal {

/// [variable] -> its columns.
using Groups = std::vector<std::vector<Index>>;

/// One variable a column.
inline Groups single_columns(Index columns) {
  check_argument(columns >= 0, "single_columns", "columns", "not negative", columns);
  Groups groups;
  for (Index j = 0; j < columns; ++j) groups.push_back({j});
  return groups;
}

/// Throws InvalidArgument unless data: [n, columns] has n >= 4 and finite entries, and every group has columns, all of
/// them in the data.
inline void check_groups(std::string_view function, View<const double, 2> data, const Groups& groups) {
  check_argument(data.extent(0) >= 4, function, "the number of samples", "at least 4", data.extent(0));
  check_argument(!groups.empty(), function, "the number of variables", "at least 1", groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    require(!groups[i].empty(), function, "groups[", i, "] is empty");
    for (const Index column : groups[i])
      require(column >= 0 && column < data.extent(1), function, "groups[", i, "] names column ", column,
              " of data with ", data.extent(1), " columns");
  }
  require(matrix(data).allFinite(), function, "data has an entry that is not finite");
}

/// Throws InvalidArgument unless node and parents are variables, the parents all different and not the node.
inline void check_family(std::string_view function, Index variables, Index node, std::span<const Index> parents) {
  require(node >= 0 && node < variables, function, "there is no variable ", node, " among ", variables);
  for (std::size_t p = 0; p < parents.size(); ++p) {
    require(parents[p] >= 0 && parents[p] < variables, function, "there is no variable ", parents[p], " among ",
            variables);
    require(parents[p] != node, function, "variable ", node, " is its own parent");
    for (std::size_t k = 0; k < p; ++k)
      require(parents[k] != parents[p], function, "parent ", parents[p], " appears twice");
  }
}

/// Every column with mean 0 and variance 1 (divided by n); a constant column becomes zero. data: [n, columns].
inline Matrix<double> standardized(View<const double, 2> data) {
  Matrix<double> x = matrix(data);
  for (Index j = 0; j < x.cols(); ++j) {
    const bool constant = (x.col(j).array() == x(0, j)).all();
    x.col(j).array() -= x.col(j).mean();
    const double deviation = std::sqrt(x.col(j).squaredNorm() / static_cast<double>(x.rows()));
    if (constant || deviation == 0)
      x.col(j).setZero();
    else
      x.col(j) /= deviation;
  }
  return x;
}

/// The columns of a variable, [n, d].
inline Matrix<double> columns_of(View<const double, 2> data, std::span<const Index> columns) {
  Matrix<double> x(data.extent(0), std::ssize(columns));
  for (Index j = 0; j < x.cols(); ++j)
    for (Index i = 0; i < x.rows(); ++i) x(i, j) = data(i, columns[static_cast<std::size_t>(j)]);
  return x;
}

/// |x_i - x_j|^2 by differences: exactly symmetric, zero for equal rows. x: [n, d]; O(n^2 d).
inline Matrix<double> squared_distances(View<const double, 2> x) {
  const Index n = x.extent(0);
  const Matrix<double> coordinates = matrix(x).transpose();
  Matrix<double> d = Matrix<double>::Zero(n, n);
  for (Index i = 0; i < n; ++i)
    for (Index k = 0; k < coordinates.rows(); ++k)
      d.row(i).array() += (coordinates.row(k).array() - coordinates(k, i)).square();
  return d;
}

/// scale * sqrt(median / 2), the median that of the positive squared distances between rows; 10 where there is none.
/// A length l in exp(-D / (2 l^2)). x: [n, d]; O(n^2 d).
inline double median_length(View<const double, 2> x, double scale) {
  const auto rows = matrix(x);
  const bool constant = (rows.rowwise() - rows.row(0)).isZero(0);
  return constant ? 10 : scale * std::sqrt(linalg::median_distance(x, 2) / 2);
}

}  // namespace ashlar::causal
