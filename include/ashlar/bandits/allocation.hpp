// The asymptotic allocation of a linear bandit (Graves, Lai 1997; Lattimore, Szepesvari 2017): how often each arm has
// to be pulled, per unit of log T, before all others are known to be worse than the best.
//
//   c* = min_{w >= 0} sum_x w_x gap_x    subject to    x^T H(w)^-1 x <= gap_x^2 / 2  for every sub-optimal x,
//   H(w) = sum_x w_x x x^T;    no consistent algorithm has regret below c* log T.
//
// Optimal arms cost nothing, so their weights tend to infinity. That limit is taken exactly: sub-optimal arms are
// projected on the complement of the optimal ones, and the rest is solved there by a log-barrier Newton method.
// Up to AllocationOptions::direct_limit arms all constraints are present, O(K^3) a Newton step; beyond, arms whose
// constraint is violated or whose pulls are worth their price join a working set, O(K d^2) a round.
//
//   const Allocation plan = asymptotic_allocation(arms, gaps);      // arms: [K, d], gaps: [K], the best arm's is 0
//   plan.cost                                                       // c*, to a relative plan.gap that is a proof
//
// Sources: Ren, Jin, Xu, "Optimal Batched Linear Bandits", ICML 2024, equation (3.2); Boyd, Vandenberghe, "Convex
// Optimization", chapter 11 (barrier method). The limit, the Hessian and the dual bound are derived beside the code.
#pragma once

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "ashlar/bandits/detail/row_space.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::bandits {

struct AllocationOptions {
  double tolerance = 1e-6;      ///< relative error of the cost
  double tie_tolerance = 1e-9;  ///< arms with a gap up to this are optimal
  Index direct_limit = 64;      ///< with more sub-optimal arms than this, constraints are generated
};

struct Allocation {
  Vector<double> weights;  ///< [K], pulls per unit of log T; infinite on optimal arms
  double cost = 0;         ///< c*, sum of weight times gap over sub-optimal arms
  double gap = 0;          ///< cost is at most (1 + gap) times the true minimum: a dual bound
  bool converged = false;  ///< gap is at most twice the tolerance
};

namespace detail {

/// The problem in the limit of infinite weights on optimal arms. With B an orthonormal basis of their span,
/// H^-1 tends to (I - BB^T)(sum_x w_x x' x'^T)^+(I - BB^T), x' = (I - BB^T) x, so only x' matters.
struct ReducedAllocation {
  std::vector<Index> arms;  // sub-optimal arms whose projection is not zero
  Matrix<double> x;         // [k, r] their projections, in an orthonormal basis of their span
  Vector<double> gaps;      // [k]
};

inline ReducedAllocation reduce(const RowMap& rows, const View<const double, 1>& gaps, double tie_tolerance) {
  constexpr double zero = 1e-10;  // relative to the arm, or to the longest direction
  const Index count = rows.rows();
  std::vector<Index> optimal;
  for (Index i = 0; i < count; ++i)
    if (gaps[i] <= tie_tolerance) optimal.push_back(i);
  const Matrix<double> basis = row_space(gather(rows, optimal), zero).basis;
  Matrix<double> projected = rows - (rows * basis) * basis.transpose();
  projected -= (projected * basis) * basis.transpose();  // once more, so that what is left is orthogonal to rounding
  ReducedAllocation reduced;
  for (Index i = 0; i < count; ++i)
    if (gaps[i] > tie_tolerance && projected.row(i).norm() > zero * std::max(1.0, rows.row(i).norm()))
      reduced.arms.push_back(i);
  const Matrix<double> kept = gather(projected, reduced.arms);
  reduced.x = kept * row_space(kept, zero).basis;
  reduced.gaps.resize(kept.rows());
  for (Index i = 0; i < kept.rows(); ++i) reduced.gaps[i] = gaps[reduced.arms[static_cast<std::size_t>(i)]];
  return reduced;
}

inline void check(const AllocationOptions& options) {
  constexpr auto function = "asymptotic_allocation";
  check_argument(options.tolerance > 0, function, "tolerance", "positive", options.tolerance);
  check_argument(options.tie_tolerance >= 0, function, "tie_tolerance", "not negative", options.tie_tolerance);
  check_argument(options.direct_limit >= 1, function, "direct_limit", "at least 1", options.direct_limit);
}

inline void check_gaps(const View<const double, 1>& gaps, Index arms, const AllocationOptions& options) {
  constexpr auto function = "asymptotic_allocation";
  check(options);
  check_shape(function, "gaps", gaps.shape(), {arms}, "one gap an arm");
  double smallest = std::numeric_limits<double>::infinity();
  for (Index i = 0; i < arms; ++i) {
    check_argument(gaps[i] >= 0 && std::isfinite(gaps[i]), function, "every gap", "finite and not negative", gaps[i]);
    smallest = std::min(smallest, gaps[i]);
  }
  check_argument(smallest <= options.tie_tolerance, function, "the smallest gap", "zero (that of the best arm)",
                 smallest);
}

/// weights[arms[i]] = w[i], zero on the other sub-optimal arms, infinite on optimal ones; and the cost.
inline Allocation scatter(const ReducedAllocation& reduced, const Vector<double>& w, const View<const double, 1>& gaps,
                          double tie_tolerance) {
  Allocation allocation{Vector<double>::Zero(gaps.extent(0)), 0, 0, true};
  for (Index i = 0; i < gaps.extent(0); ++i)
    if (gaps[i] <= tie_tolerance) allocation.weights[i] = std::numeric_limits<double>::infinity();
  for (Index i = 0; i < w.size(); ++i) allocation.weights[reduced.arms[static_cast<std::size_t>(i)]] = w[i];
  allocation.cost = w.dot(reduced.gaps.head(w.size()));
  return allocation;
}

}  // namespace detail

namespace reference {

/// phi(w) = t c.w - sum_x log(1 - f_x) - sum_x log w_x with f_x = 2 x^T H(w)^-1 x / gap_x^2, and its derivatives.
struct Barrier {
  double value = 0;            ///< infinite outside the feasible set
  Vector<double> constraints;  ///< f, [k]
  Vector<double> gradient;     ///< [k]
  Matrix<double> hessian;      ///< [k, k]
};

/// The barrier as written: arms x [k, r] that span their space, gaps, costs and weights [k].
///   G = Y H^-1 X^T, N = X H^-1 X^T, y_x = sqrt(2) x / gap_x, P = G o G, s = 1 / (1 - f)
///   d phi / d w_j = t c_j - sum_x P_xj s_x - 1 / w_j
///   d^2 phi = P^T diag(s^2) P + 2 N o (G^T diag(s) G) + diag(1 / w^2)
inline Barrier allocation_barrier(const Matrix<double>& x, const Vector<double>& gaps, const Vector<double>& costs,
                                  const Vector<double>& weights, double t) {
  const Index k = x.rows();
  const Matrix<double> y = (std::sqrt(2.0) * gaps.cwiseInverse()).asDiagonal() * x;
  const Eigen::MatrixXd h = x.transpose() * weights.asDiagonal() * x;
  const Eigen::MatrixXd inverse = h.inverse();
  const Matrix<double> g = y * inverse * x.transpose(), n = x * inverse * x.transpose(), p = g.cwiseProduct(g);
  Barrier barrier{t * costs.dot(weights), Vector<double>(k), Vector<double>(k), Matrix<double>(k, k)};
  for (Index i = 0; i < k; ++i) barrier.constraints[i] = (y.row(i) * inverse).dot(y.row(i));
  Vector<double> s(k);
  for (Index i = 0; i < k; ++i) {
    if (!(barrier.constraints[i] < 1) || !(weights[i] > 0)) barrier.value = std::numeric_limits<double>::infinity();
    s[i] = 1 / (1 - barrier.constraints[i]);
    barrier.value -= std::log(1 - barrier.constraints[i]) + std::log(weights[i]);
  }
  barrier.gradient = t * costs - p.transpose() * s - weights.cwiseInverse();
  barrier.hessian = Matrix<double>(p.transpose() * s.cwiseAbs2().asDiagonal() * p) +
                    2 * n.cwiseProduct(Matrix<double>(g.transpose() * s.asDiagonal() * g));
  barrier.hessian.diagonal() += weights.cwiseAbs2().cwiseInverse();
  return barrier;
}

/// All constraints, every derivative as written. O(K^3) a Newton step.
template <class X>
Allocation asymptotic_allocation(const X& arms, View<const double, 1> gaps, const AllocationOptions& options = {}) {
  const detail::Arms all(arms, "asymptotic_allocation");
  detail::check_gaps(gaps, all.count(), options);
  const detail::ReducedAllocation reduced = detail::reduce(all.rows(), gaps, options.tie_tolerance);
  const auto k = static_cast<double>(reduced.gaps.size());
  Vector<double> w = 4 * reduced.gaps.cwiseAbs2().cwiseInverse();
  if (k == 0) return detail::scatter(reduced, w, gaps, options.tie_tolerance);
  const Vector<double> costs = reduced.gaps / w.dot(reduced.gaps);
  const auto phi = [&](const Vector<double>& at, double t) {
    const double value = allocation_barrier(reduced.x, reduced.gaps, costs, at, t).value;
    return std::isnan(value) || !(at.minCoeff() > 0) ? std::numeric_limits<double>::infinity() : value;
  };
  for (double t = 1; 2 * k / t > options.tolerance * costs.dot(w);) {
    t *= 8;
    for (int newton = 0; newton < 60; ++newton) {
      const Barrier barrier = allocation_barrier(reduced.x, reduced.gaps, costs, w, t);
      Eigen::MatrixXd scaled = w.asDiagonal() * barrier.hessian * w.asDiagonal();
      scaled.diagonal().array() += 1e-15 * scaled.diagonal().maxCoeff();
      const Vector<double> slope = w.cwiseProduct(barrier.gradient);
      const Vector<double> direction = -w.cwiseProduct(scaled.ldlt().solve(slope));
      const double decrement = -barrier.gradient.dot(direction);
      if (decrement / 2 <= 1e-5) break;
      double step = 1;
      while (step > 1e-12 && phi(w + step * direction, t) > barrier.value - 0.25 * step * decrement) step /= 2;
      if (step <= 1e-12) break;
      w += step * direction;
    }
  }
  w *= allocation_barrier(reduced.x, reduced.gaps, costs, w, 0).constraints.maxCoeff();  // the tightest one is active
  return detail::scatter(reduced, w, gaps, options.tie_tolerance);
}

}  // namespace reference

namespace detail {

/// The barrier problem of some arms. All of G, N, P are N with rows scaled, and N = Z^T Z with Z = L^-1 X^T for the
/// Cholesky factor H = L L^T; Newton steps are taken in dw / w, where the Hessian is at least the identity.
class BarrierNewton {
 public:
  BarrierNewton(const Matrix<double>& x, const Vector<double>& gaps)
      : x_(x), transposed_(x.transpose()), scale_(2 * gaps.cwiseAbs2().cwiseInverse()) {
    w_ = 4 * gaps.cwiseAbs2().cwiseInverse();  // f <= 1/2: H = sum 2 y y^T
    costs_ = gaps / w_.dot(gaps);              // the cost starts at 1
  }

  Index size() const { return x_.rows(); }
  const Vector<double>& weights() const { return w_; }

  /// Follows the central path until 2 k / t, a bound on the distance to the minimum, is below tolerance times the cost.
  void solve(double tolerance) {
    while (2 * static_cast<double>(size()) / t_ > tolerance * costs_.dot(w_)) {
      t_ *= 8;
      for (int newton = 0; newton < 60 && aim() && decrement_ / 2 > 1e-5 && descend(); ++newton) {
      }
    }
    polish();
  }

  /// Multipliers of the constraints, for costs that are gaps. On the central path they are s / t, s = 1 / (1 - f); the
  /// first-order change of s along the Newton step takes out what rounding in 1 - f, which is tiny, and the distance
  /// from the path have left: with it the multipliers solve the linearised conditions.
  Vector<double> multipliers(const Vector<double>& gaps) const {
    const Vector<double> change = -scale_.cwiseProduct(n_.cwiseAbs2() * w_.cwiseProduct(direction_));
    const Vector<double> s = (1 - f_.array()).inverse();
    return (gaps[0] / costs_[0] / t_) * (s.array() * (1 + s.array() * change.array())).max(0.0).matrix();
  }
  const Vector<double>& constraints() const { return f_; }
  /// L^-1 X^T, [r, k], and L.
  const Eigen::MatrixXd& solved() const { return z_; }
  const Eigen::MatrixXd& cholesky() const { return l_; }

 private:
  /// H = L L^T, Z and f; false when H is not positive definite.
  bool factor(const Vector<double>& w) {
    z_.noalias() = transposed_ * w.cwiseSqrt().asDiagonal();
    l_.setZero(x_.cols(), x_.cols());
    l_.selfadjointView<Eigen::Lower>().rankUpdate(z_);
    llt_.compute(l_);
    if (llt_.info() != Eigen::Success) return false;
    l_ = llt_.matrixL();
    z_ = transposed_;
    llt_.matrixL().solveInPlace(z_);
    f_ = scale_.cwiseProduct(z_.colwise().squaredNorm().transpose());
    return true;
  }

  double value(const Vector<double>& w) {
    if (!(w.minCoeff() > 0) || !factor(w) || !(f_.maxCoeff() < 1)) return std::numeric_limits<double>::infinity();
    double sum = t_ * costs_.dot(w);
    for (Index i = 0; i < size(); ++i) sum -= std::log((1 - f_[i]) * w[i]);
    return sum;
  }

  /// The Newton direction in dw / w and its decrement; false when it cannot be had.
  bool aim() {
    value_ = value(w_);
    const Vector<double> s = (1 - f_.array()).inverse();
    n_.noalias() = z_.transpose() * z_;
    // With P = diag(scale) N o N, gradient and Hessian of phi, both multiplied by w.
    scaled_ = n_.cwiseAbs2() * w_.asDiagonal();
    scaled_.array().colwise() *= (scale_.array() * s.array());
    slope_ = t_ * w_.cwiseProduct(costs_) - scaled_.colwise().sum().transpose();
    slope_.array() -= 1;
    hessian_.setZero(size(), size());
    hessian_.selfadjointView<Eigen::Lower>().rankUpdate(scaled_.transpose());
    scaled_ = n_;
    scaled_.array().colwise() *= (scale_.array() * s.array()).sqrt();
    product_.setZero(size(), size());
    product_.selfadjointView<Eigen::Lower>().rankUpdate(scaled_.transpose());
    for (Index j = 0; j < size(); ++j) {
      const Index below = size() - j;
      hessian_.col(j).tail(below).array() +=
          (2 * w_[j]) * w_.tail(below).array() * n_.col(j).tail(below).array() * product_.col(j).tail(below).array();
    }
    // The identity, and what rounding may have taken; relative to each entry, as they span many orders of magnitude
    // and a shift by the largest one would outweigh the identity and slow Newton's method to a crawl.
    hessian_.diagonal().array() = 1 + (1 + 1e-15) * hessian_.diagonal().array();
    newton_.compute(hessian_);
    if (newton_.info() != Eigen::Success) return false;
    direction_ = -newton_.solve(slope_);
    decrement_ = -slope_.dot(direction_);
    return std::isfinite(decrement_);
  }

  /// Backtracks along the direction until Armijo's condition with 1/4 holds; false when the step vanishes.
  bool descend() {
    for (double step = 1; step > 1e-12; step /= 2) {
      candidate_ = w_ + step * w_.cwiseProduct(direction_);
      if (value(candidate_) <= value_ - 0.25 * step * decrement_) {
        w_ = candidate_;
        return true;
      }
    }
    return false;
  }

  /// Full Newton steps while they halve the decrement: near the path they converge quadratically, below what the
  /// value can resolve. Ends with the direction at the final weights.
  void polish() {
    bool aimed = aim();
    for (int newton = 0; newton < 5 && aimed && decrement_ > 1e-16; ++newton) {
      const double before = decrement_;
      const Vector<double> here = w_;
      candidate_ = w_ + w_.cwiseProduct(direction_);
      if (!std::isfinite(value(candidate_))) break;
      w_ = candidate_;
      aimed = aim();
      if (aimed && decrement_ <= before / 2) continue;
      w_ = here;
      aimed = aim();
      break;
    }
    if (!aimed) direction_.setZero(size());
    factor(w_);
  }

  Matrix<double> x_;
  Eigen::MatrixXd transposed_;
  Vector<double> scale_, costs_, w_;
  double t_ = 1, value_ = 0, decrement_ = 0;
  Vector<double> f_, slope_, direction_, candidate_;
  Eigen::MatrixXd l_, z_, n_, scaled_, product_, hessian_;
  Eigen::LLT<Eigen::MatrixXd> llt_, newton_;
};

/// What a solution of some arms means for all of them.
struct AllocationVerdict {
  Vector<double> constraints;  ///< f over all arms, at the weights of the few
  Vector<double> prices;       ///< what a pull is worth: sum_x multiplier_x G_xj^2, at most gap_j at the optimum
  double lower_bound = 0;      ///< on the cost, for all arms
};

/// The dual bound. f_x(w) = max_v 2 v^T y_x - v^T H(w) v, so for multipliers m and v_x = p H^-1 y_x (p > 0) the
/// Lagrangian is linear in w, and any m with sum_x m_x (v_x^T x_j)^2 <= gap_j bounds the cost from below by
/// sum_x m_x (2 p f_x - 1). Scaled to be feasible and with the best p this is kappa (sum m f)^2 / sum m,
/// kappa = min_j gap_j / price_j.
inline AllocationVerdict judge(const ReducedAllocation& problem, std::span<const Index> few,
                               const BarrierNewton& newton) {
  const Index rank = problem.x.cols();
  Eigen::MatrixXd root = Eigen::MatrixXd::Identity(rank, rank);  // L^-T
  newton.cholesky().triangularView<Eigen::Lower>().transpose().solveInPlace(root);
  AllocationVerdict verdict;
  const Matrix<double> solved = problem.x * root;
  verdict.constraints = 2 * solved.rowwise().squaredNorm().cwiseQuotient(problem.gaps.cwiseAbs2());
  Vector<double> gaps(static_cast<Index>(few.size()));
  for (Index i = 0; i < gaps.size(); ++i) gaps[i] = problem.gaps[few[static_cast<std::size_t>(i)]];
  const Vector<double> m = newton.multipliers(gaps);
  // price_j = 2 (L^-1 x_j)^T [sum_x m_x / gap_x^2 (L^-1 x)(L^-1 x)^T] (L^-1 x_j)
  const Eigen::MatrixXd half = newton.solved() * (2 * m.cwiseQuotient(gaps.cwiseAbs2())).cwiseSqrt().asDiagonal();
  const Eigen::MatrixXd worth = half * half.transpose();
  verdict.prices = (solved * worth).cwiseProduct(solved).rowwise().sum();
  const double kappa = problem.gaps.cwiseQuotient(verdict.prices).minCoeff();
  const double active = m.dot(newton.constraints());
  verdict.lower_bound = kappa * active * active / m.sum();
  return verdict;
}

/// A first working set: the arms that are hardest to tell from the best, as many as it takes to span everything.
inline std::vector<Index> first_constraints(const ReducedAllocation& problem, Index limit) {
  const Index count = problem.x.rows();
  std::vector<Index> everyone(static_cast<std::size_t>(count));
  std::iota(everyone.begin(), everyone.end(), Index{0});
  if (count <= limit) return everyone;
  const Matrix<double> y = problem.gaps.cwiseInverse().asDiagonal() * problem.x;
  const RowSpace space = row_space(y, 1e-10);
  const Vector<double> leverages = (y * space.whitening()).rowwise().squaredNorm();
  for (Index wanted = std::min(limit, 5 * problem.x.cols()); wanted < count; wanted *= 2) {
    std::vector<Index> few = largest(leverages, everyone, wanted);
    if (row_space(gather(y, few), 1e-8).rank() == space.rank()) return few;
  }
  return everyone;
}

}  // namespace detail

/// Weights w of the asymptotic allocation. `arms`: [K, d], float or double; `gaps`: [K], mean of the best arm minus
/// mean of the arm. Feasible for every arm: the weights are scaled until the tightest constraint is active.
/// Throws InvalidArgument for shapes that differ, gaps that are negative, not finite or nowhere zero.
template <class X>
Allocation asymptotic_allocation(const X& arms, View<const double, 1> gaps, const AllocationOptions& options = {}) {
  const detail::Arms all(arms, "asymptotic_allocation");
  detail::check_gaps(gaps, all.count(), options);
  const detail::ReducedAllocation problem = detail::reduce(all.rows(), gaps, options.tie_tolerance);
  const Index count = problem.gaps.size();
  if (count == 0) return detail::scatter(problem, Vector<double>(), gaps, options.tie_tolerance);

  std::vector<Index> few = detail::first_constraints(problem, options.direct_limit);
  for (;;) {
    Vector<double> few_gaps(static_cast<Index>(few.size()));
    for (Index i = 0; i < few_gaps.size(); ++i) few_gaps[i] = problem.gaps[few[static_cast<std::size_t>(i)]];
    detail::BarrierNewton newton(detail::gather(problem.x, few), few_gaps);
    newton.solve(options.tolerance);
    const detail::AllocationVerdict verdict = detail::judge(problem, few, newton);

    Vector<double> w = Vector<double>::Zero(count);
    const double tightest = verdict.constraints.maxCoeff();  // f is homogeneous of degree -1
    for (Index i = 0; i < few_gaps.size(); ++i) w[few[static_cast<std::size_t>(i)]] = tightest * newton.weights()[i];
    Allocation allocation = detail::scatter(problem, w, gaps, options.tie_tolerance);
    allocation.gap = std::max(allocation.cost / verdict.lower_bound - 1, 0.0);
    allocation.converged = allocation.gap <= 2 * options.tolerance;
    if (allocation.converged || newton.size() == count) return allocation;

    // Violated constraints and underpriced pulls join, the worst first.
    Vector<double> badness(count);
    for (Index i = 0; i < count; ++i)
      badness[i] = std::max(verdict.constraints[i], verdict.prices[i] / problem.gaps[i]) - 1;
    for (const Index i : few) badness[i] = 0;
    std::vector<Index> missing;
    for (Index i = 0; i < count; ++i)
      if (badness[i] > 0.1 * options.tolerance) missing.push_back(i);
    if (missing.empty()) return allocation;
    const std::vector<Index> worst = detail::largest(badness, std::move(missing), 2 * problem.x.cols());
    few.insert(few.end(), worst.begin(), worst.end());
  }
}

}  // namespace ashlar::bandits
