// How far apart two subspaces are: the largest eigenvalue of the difference of their projections, which is the sine of
// the largest angle between them.
//
//   double s = linalg::subspace_distance(a, b);        // columns of a and b span the subspaces
//
// Computed from the part of one basis outside the other, so that small angles keep their accuracy: sqrt(1 - cos^2)
// would lose half the digits. O(n d^2).
#pragma once

#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::linalg {

namespace detail {

template <class T>
Eigen::MatrixXd orthonormal_basis(std::string_view argument, const View<T, 2>& basis) {
  constexpr auto function = "subspace_distance";
  const auto columns = matrix(basis).template cast<double>().eval();
  require(columns.rows() >= 1 && columns.cols() >= 1, function, argument, " is empty");
  require(columns.allFinite(), function, argument, " has an entry that is not finite");
  const Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr(columns);
  require(qr.rank() == columns.cols(), function, "the columns of ", argument, " are not independent");
  return qr.householderQ() * Eigen::MatrixXd::Identity(columns.rows(), columns.cols());
}

}  // namespace detail

/// a, b: [n, d], of full column rank. Between 0 and 1.
/// Throws InvalidArgument for different shapes, dependent columns and entries that are not finite.
template <class A>
double subspace_distance(const A& a, In<A, 2> b) {
  const In<A, 2> first = a;
  check_shape("subspace_distance", "b", b.shape(), first.shape(), "same as a");
  const Eigen::MatrixXd p = detail::orthonormal_basis("a", first), q = detail::orthonormal_basis("b", b);
  const Eigen::MatrixXd outside = q - p * (p.transpose() * q);
  return std::min(1.0, Eigen::JacobiSVD<Eigen::MatrixXd>(outside).singularValues()[0]);
}

}  // namespace ashlar::linalg
