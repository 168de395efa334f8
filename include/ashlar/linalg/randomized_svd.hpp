// The leading singular values and vectors of a large matrix: subspace iteration from a random start.
//
//   const auto svd = linalg::randomized_svd(a, 5, rng);          // a ~ svd.u diag(svd.singular_values) svd.v^T
//
//   Q_0 = orth(A G),   Q_k+1 = orth(A A^T Q_k),   svd of the small matrix Q_k^T A,
// until every wanted triple has |A v - sigma u| <= tolerance sigma_1; A^T u = sigma v holds by construction, up to
// rounding. A step shrinks what is wrong with the wanted space by
// (sigma_{rank + oversampling + 1} / sigma_rank)^2: two or three steps for a fast decay, tens for a flat spectrum.
// A step is two products of A with rank + oversampling columns: O(m n (rank + oversampling)), on the roof of GEMM.
//
// Source: Halko, Martinsson, Tropp, "Finding structure with randomness", SIAM Review 53 (2011), algorithms 4.4 and 5.1.
#pragma once

#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::linalg {

struct RandomizedSvdOptions {
  Index oversampling = 10;    ///< columns carried beside the wanted ones
  double tolerance = 1e-10;   ///< on the residual of every wanted triple, relative to sigma_1
  Index max_iterations = 50;  ///< products with A A^T; what they do not reach is reported, not thrown
};

template <class T>
struct TruncatedSvd {
  Matrix<T> u;                ///< [m, rank], orthonormal columns
  Vector<T> singular_values;  ///< [rank], largest first
  Matrix<T> v;                ///< [n, rank], orthonormal columns
  T next = 0;                 ///< sigma_{rank + 1} from below, not to the tolerance; 0 when not carried along
  Index iterations = 0;       ///< products with A A^T
  double residual = 0;        ///< largest |A v - sigma u| / sigma_1
  bool converged = false;
};

/// The leading `rank` singular triples of a: [m, n]. Same bits for the same state of `rng`; draws n (rank +
/// oversampling) normals. Throws InvalidArgument for a rank outside 1 .. min(m, n), NumericalError for an entry that is
/// not finite.
template <class A>
TruncatedSvd<scalar_t<A>> randomized_svd(const A& input, Index rank, Rng& rng,
                                         const RandomizedSvdOptions& options = {}) {
  using T = scalar_t<A>;
  using Dense = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
  constexpr auto function = "randomized_svd";
  const In<A, 2> view = input;
  const Dense a = matrix(view);  // products want one unit stride, known at compile time
  const Index m = a.rows(), n = a.cols(), smaller = std::min(m, n);
  require(rank >= 1 && rank <= smaller, function, "rank must be between 1 and ", smaller, ", got ", rank);
  check_argument(options.oversampling >= 0, function, "oversampling", "not negative", options.oversampling);
  check_argument(options.tolerance >= 0, function, "tolerance", "at least 0", options.tolerance);
  check_argument(options.max_iterations >= 0, function, "max_iterations", "not negative", options.max_iterations);
  if (!a.allFinite()) throw NumericalError("randomized_svd: the matrix has an entry that is not finite");

  const Index width = std::min(rank + options.oversampling, smaller);
  const auto orthonormal = [&](const Dense& x) -> Dense {
    return Eigen::HouseholderQR<Dense>(x).householderQ() * Dense::Identity(x.rows(), width);
  };
  TruncatedSvd<T> result;
  Dense q = orthonormal(a * normal_matrix<T>(rng, n, width));
  for (;; ++result.iterations) {
    const Dense image = a.transpose() * q;  // the transpose of Q^T A, [n, width]
    const Dense basis = orthonormal(image), next = a * basis;
    const Eigen::JacobiSVD<Dense> small(image.transpose() * basis, Eigen::ComputeFullU | Eigen::ComputeFullV);
    result.singular_values = small.singularValues().head(rank);
    result.next = width > rank ? small.singularValues()[rank] : T(0);
    result.u = q * small.matrixU().leftCols(rank);
    result.v = basis * small.matrixV().leftCols(rank);
    Dense difference = next * small.matrixV().leftCols(rank);  // A v, then A v - sigma u
    difference -= result.u * result.singular_values.asDiagonal();
    const double scale = static_cast<double>(small.singularValues()[0]);
    result.residual = scale > 0 ? static_cast<double>(difference.colwise().norm().maxCoeff()) / scale : 0.0;
    result.converged = result.residual <= options.tolerance;
    if (result.converged || result.iterations == options.max_iterations) return result;
    q = orthonormal(next);
  }
}

}  // namespace ashlar::linalg
