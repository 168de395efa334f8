// D-optimal design: how often to measure each arm so that every arm's mean is known equally well.
//
// Over weights pi on the simplex, with V(pi) = sum_x pi_x x x^T,
//   maximise log det V(pi);    optimal <=> g(pi) = max_x x^T V(pi)^-1 x = rank of the arms    (Kiefer, Wolfowitz 1960).
// Frank-Wolfe with away and drop steps on a working set of arms; all arms are looked at once a round, and the ones the
// set is missing join it. An arm that the bound of Harman and Pronzato (2007) keeps out of the optimal support leaves.
// Cost: a round reads the arms once, 2 K d r flops; an iteration costs O(m r + r^2) for a working set of m arms.
//
//   const Design design = d_optimal_design(arms);                       // arms: [K, d], one arm a row
//   Vector<std::int64_t> pulls = design_counts(design, 100.0);          // every variance <= rank / 200
//
// Sources: Todd, "Minimum-Volume Ellipsoids" (2016), algorithm 3.2; Ren, Jin, Xu, "Optimal Batched Linear Bandits",
// ICML 2024, section 3 (pull counts).
#pragma once

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "ashlar/bandits/detail/row_space.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::bandits {

struct DesignOptions {
  double tolerance = 1e-6;           ///< stop when g / rank - 1, and its twin on the support, are below
  Index max_iterations = 1'000'000;  ///< Frank-Wolfe steps
  double rank_tolerance = 1e-10;     ///< singular values of the arms below this share of the largest are zero
};

struct Design {
  Vector<double> weights;  ///< [K], not negative, sum 1 (all zero when every arm is zero)
  Index rank = 0;          ///< dimension of the arms' span
  double g = 0;            ///< largest leverage x^T V^-1 x over all arms; rank at the optimum
  double log_det = 0;      ///< log det V(weights) in an orthonormal basis of the span
  Index iterations = 0;    ///< Frank-Wolfe steps taken
  bool converged = false;  ///< the tolerance was met
};

namespace detail {

inline void check(const DesignOptions& options) {
  check_argument(options.tolerance > 0, "d_optimal_design", "tolerance", "positive", options.tolerance);
  check_argument(options.max_iterations >= 0, "d_optimal_design", "max_iterations", "not negative",
                 options.max_iterations);
  check_argument(options.rank_tolerance > 0 && options.rank_tolerance < 1, "d_optimal_design", "rank_tolerance",
                 "between 0 and 1", options.rank_tolerance);
}

/// gamma of pi <- (1 - gamma) pi + gamma e_j: the exact line search towards or away from an arm of leverage l, stopped
/// where the weight of the arm reaches zero.
inline double exact_step(double leverage, double rank, double weight) {
  const double drop = -weight / (1 - weight);
  return leverage > 1 + 1e-14 ? std::max(drop, (leverage / rank - 1) / (leverage - 1)) : drop;
}

/// An arm of smaller leverage cannot be in the support of an optimal design, given a design of excess e = g / rank - 1:
///   rank (1 + e / 2 - sqrt(e (4 + e - 4 / rank)) / 2)      (Harman, Pronzato 2007, theorem 1).
inline double support_bound(double excess, double rank) {
  return rank * (1 + excess / 2 - std::sqrt(excess * (4 + excess - 4 / rank)) / 2);
}

/// Designs of a span of one dimension or none have closed forms: all the mass on the longest arm. `y`: [K, rank].
inline Design trivial_design(const Matrix<double>& y, const RowSpace& space) {
  Design design{Vector<double>::Zero(y.rows()), space.rank(), 0, 0, 0, true};
  if (space.rank() == 0) return design;
  Index longest = 0;
  const double length = y.col(0).cwiseAbs().maxCoeff(&longest);
  design.weights[longest] = 1;
  design.g = 1;
  design.log_det = 2 * std::log(length);
  return design;
}

}  // namespace detail

namespace reference {

/// The algorithm as written: V and every leverage are computed afresh in each iteration. O(K d^2) an iteration.
template <class X>
Design d_optimal_design(const X& arms, const DesignOptions& options = {}) {
  detail::check(options);
  const detail::Arms rows(arms, "d_optimal_design");
  const detail::RowSpace space = detail::row_space(rows.rows(), options.rank_tolerance);
  const Matrix<double> y = rows.rows() * space.basis;
  if (space.rank() <= 1) return detail::trivial_design(y, space);
  const Index count = y.rows();
  const auto rank = static_cast<double>(space.rank());
  Design design{Vector<double>::Constant(count, 1.0 / static_cast<double>(count)), space.rank(), 0, 0, 0, false};
  Vector<double>& weights = design.weights;
  for (;; ++design.iterations) {
    const Eigen::MatrixXd v = y.transpose() * weights.asDiagonal() * y;
    const Eigen::MatrixXd inverse = v.inverse();
    const Vector<double> leverages = (y * inverse).cwiseProduct(y).rowwise().sum();
    Index most = 0, least = -1;
    design.g = leverages.maxCoeff(&most);
    for (Index i = 0; i < count; ++i)
      if (weights[i] > 0 && (least < 0 || leverages[i] < leverages[least])) least = i;
    const double above = design.g / rank - 1, below = 1 - leverages[least] / rank;
    design.log_det = std::log(v.determinant());
    design.converged = std::max(above, below) <= options.tolerance;
    if (design.converged || design.iterations == options.max_iterations) return design;
    const Index j = above >= below ? most : least;
    const double gamma = detail::exact_step(leverages[j], rank, weights[j]);
    weights *= 1 - gamma;
    weights[j] += gamma;
    if (weights[j] < 1e-15) weights[j] = 0;
    weights /= weights.sum();
  }
}

}  // namespace reference

namespace detail {

/// The arms Frank-Wolfe works on, in coordinates where all arms together have the identity as their Gram matrix, with
/// their weights, their leverages and V^-1. Coordinates lie one dimension after the other, so that a leverage update
/// runs over arms in whole vectors: 2 m r flops on 8 m r bytes, which stay in the second-level cache.
class WorkingSet {
 public:
  explicit WorkingSet(Index rank) : rank_(rank), dimensions_(static_cast<double>(rank)), y_(rank, 0) {}

  Index size() const { return static_cast<Index>(arms_.size()); }
  std::span<const Index> arms() const { return arms_; }
  double weight(Index i) const { return weights_[i]; }
  double excess() const { return std::max(above_, below_); }
  Index iterations() const { return iterations_; }
  const Eigen::MatrixXd& cholesky() const { return cholesky_; }

  /// Adds arms (their coordinates are rows of y) of weight zero.
  void add(std::span<const Index> arms, const Matrix<double>& y) {
    const Index old = size();
    arms_.insert(arms_.end(), arms.begin(), arms.end());
    resize(size());
    y_.middleCols(old, y.rows()) = y.transpose();
  }

  void spread_uniformly() { weights_.head(size()).setConstant(1.0 / static_cast<double>(size())); }

  /// Frank-Wolfe until both gaps are at most `tolerance` or `budget` steps in total are spent. Monotone in log det V.
  void solve(double tolerance, Index budget) {
    refresh();
    for (Index since = 0;;) {
      const bool done = excess() <= tolerance || iterations_ >= budget;
      if (done && since == 0) return;
      if (done || since == steps_between_refreshes) {
        refresh();
        drop_hopeless();
        since = 0;
      } else {
        step();
        ++since;
        ++iterations_;
      }
    }
  }

 private:
  static constexpr Index steps_between_refreshes = 50;  // rounding of the rank-one updates stays below 1e-13

  void resize(Index count) {
    constexpr Index lanes = simd::width<double>;
    const Index padded = (count + lanes - 1) / lanes * lanes, old = std::min(y_.cols(), padded);
    Matrix<double> y = Matrix<double>::Zero(rank_, padded);
    Vector<double> weights = Vector<double>::Zero(padded);
    y.leftCols(old) = y_.leftCols(old);
    weights.head(old) = weights_.head(old);
    y_.swap(y);
    weights_.swap(weights);
    leverages_ = Vector<double>::Zero(padded);
  }

  /// V, its inverse and all leverages from the weights.
  void refresh() {
    weights_ /= weights_.sum();
    const Eigen::MatrixXd scaled = y_ * weights_.cwiseSqrt().asDiagonal();
    cholesky_.setZero(rank_, rank_);
    cholesky_.selfadjointView<Eigen::Lower>().rankUpdate(scaled);
    const Eigen::LLT<Eigen::MatrixXd> llt(cholesky_);
    if (llt.info() != Eigen::Success)
      throw NumericalError("d_optimal_design: V(weights) is not positive definite in the span of the arms");
    cholesky_ = llt.matrixL();
    inverse_ = llt.solve(Eigen::MatrixXd::Identity(rank_, rank_));
    const Eigen::MatrixXd solved = llt.matrixL().solve(Eigen::MatrixXd(y_));
    leverages_ = solved.colwise().squaredNorm();
    double most = 0, least = std::numeric_limits<double>::infinity();
    for (Index i = 0; i < size(); ++i) {
      most = std::max(most, leverages_[i]);
      if (weights_[i] > 0) least = std::min(least, leverages_[i]);
    }
    find_extremes(most, least);
  }

  void find_extremes(double most, double least) {
    above_ = most / dimensions_ - 1;
    below_ = 1 - least / dimensions_;
    const double wanted = above_ >= below_ ? most : least;
    chosen_ = 0;
    const auto matches = [&](Index i) { return leverages_[i] == wanted && (above_ >= below_ || weights_[i] > 0); };
    while (chosen_ + 1 < size() && !matches(chosen_)) ++chosen_;
  }

  /// One Frank-Wolfe, away or drop step, with V^-1 and the leverages updated by Sherman and Morrison's formula.
  void step() {
    const double gamma = exact_step(leverages_[chosen_], dimensions_, weights_[chosen_]);
    const double keep = 1 - gamma, ratio = gamma / keep;
    const double kappa = ratio / (1 + ratio * leverages_[chosen_]);
    direction_.noalias() = inverse_ * y_.col(chosen_);
    inverse_ -= (kappa * direction_) * direction_.transpose();
    inverse_ /= keep;
    weights_[chosen_] += ratio;  // update_leverages multiplies all weights by `keep`
    if (weights_[chosen_] * keep < 1e-15) weights_[chosen_] = 0;
    update_leverages(kappa, keep);
  }

  /// leverage <- (leverage - kappa (y . direction)^2) / keep, and the extremes on the way.
  void update_leverages(double kappa, double keep) {
    using Batch = simd::batch<double>;
    constexpr Index lanes = simd::width<double>;
    const Index padded = y_.cols();
    const Batch minus_kappa(-kappa), grow(1 / keep), shrink(keep), zero(0.0);
    const Batch infinite(std::numeric_limits<double>::infinity());
    Batch most(0.0), least = infinite;
    const auto finish = [&](Index i, const Batch& product) {
      const Batch weight = simd::load(&weights_[i]) * shrink;
      const Batch leverage = simd::fma(minus_kappa * product, product, simd::load(&leverages_[i])) * grow;
      simd::store(&weights_[i], weight);
      simd::store(&leverages_[i], leverage);
      most = xsimd::max(most, leverage);
      least = xsimd::min(least, xsimd::select(weight > zero, leverage, infinite));
    };
    Index i = 0;
    for (; i + 4 * lanes <= padded; i += 4 * lanes) {
      Batch p0(0.0), p1(0.0), p2(0.0), p3(0.0);
      const double* y = y_.data() + i;
      for (Index k = 0; k < rank_; ++k, y += padded) {
        const Batch u(direction_[k]);
        p0 = simd::fma(u, simd::load(y), p0);
        p1 = simd::fma(u, simd::load(y + lanes), p1);
        p2 = simd::fma(u, simd::load(y + 2 * lanes), p2);
        p3 = simd::fma(u, simd::load(y + 3 * lanes), p3);
      }
      finish(i, p0), finish(i + lanes, p1), finish(i + 2 * lanes, p2), finish(i + 3 * lanes, p3);
    }
    for (; i < padded; i += lanes) {
      Batch p(0.0);
      const double* y = y_.data() + i;
      for (Index k = 0; k < rank_; ++k, y += padded) p = simd::fma(Batch(direction_[k]), simd::load(y), p);
      finish(i, p);
    }
    find_extremes(simd::reduce_max(most), simd::reduce_min(least));
  }

  /// Lets go of arms of weight zero that cannot be in the optimal support.
  void drop_hopeless() {
    const double bound = support_bound(std::max(above_, 0.0), dimensions_) * (1 - 1e-9);
    const auto hopeless = [&](Index i) { return weights_[i] <= 0 && leverages_[i] < bound; };
    Index leaving = 0;
    for (Index i = 0; i < size(); ++i) leaving += hopeless(i);
    if (4 * leaving < size()) return;
    Index kept = 0;
    for (Index i = 0; i < size(); ++i) {
      if (hopeless(i)) continue;
      arms_[static_cast<std::size_t>(kept)] = arms_[static_cast<std::size_t>(i)];
      weights_[kept] = weights_[i];
      y_.col(kept) = y_.col(i);
      ++kept;
    }
    arms_.resize(static_cast<std::size_t>(kept));
    y_.rightCols(y_.cols() - kept).setZero();
    weights_.tail(weights_.size() - kept).setZero();
    resize(kept);
    refresh();
  }

  Index rank_;
  double dimensions_;  // the rank as a number
  std::vector<Index> arms_;
  Matrix<double> y_;                    // [rank, padded size]
  Vector<double> weights_, leverages_;  // [padded size]
  Eigen::MatrixXd cholesky_, inverse_;  // of V
  Vector<double> direction_;            // V^-1 y of the chosen arm
  double above_ = 0, below_ = 0;        // g / r - 1, and 1 - (smallest leverage on the support) / r
  Index chosen_ = 0, iterations_ = 0;
};

/// ||rows root||^2 row by row. Each chunk is one matrix product that stays in the cache.
inline Vector<double> squared_norms(const RowMap& rows, const Matrix<double>& root) {
  constexpr Index grain = 256;
  Vector<double> norms(rows.rows());
  parallel_for(rows.rows(), grain, [&](Index begin, Index end) {
    const Matrix<double> product = rows.middleRows(begin, end - begin) * root;
    norms.segment(begin, end - begin) = product.rowwise().squaredNorm();
  });
  return norms;
}

/// All arms when they are few, else the outermost ones, enough of them to span everything with room to spare.
inline std::vector<Index> first_working_set(const RowMap& rows, const Matrix<double>& whitening) {
  std::vector<Index> everyone(static_cast<std::size_t>(rows.rows()));
  std::iota(everyone.begin(), everyone.end(), Index{0});
  const Index rank = whitening.cols();
  Index wanted = std::max<Index>(4 * rank, 128);
  if (rows.rows() <= 2 * wanted) return everyone;
  const Vector<double> lengths = squared_norms(rows, whitening);
  for (; wanted < rows.rows(); wanted *= 2) {
    std::vector<Index> outermost = largest(lengths, everyone, wanted);
    if (row_space(Matrix<double>(gather(rows, outermost) * whitening), 1e-5).rank() == rank) return outermost;
  }
  return everyone;
}

}  // namespace detail

/// D-optimal design of `arms` [K, d] (float or double; computed in double), in the span of the arms.
/// Throws InvalidArgument for no arms, entries that are not finite, or options out of range. A design that ran out of
/// iterations comes back with converged = false and its true g.
template <class X>
Design d_optimal_design(const X& arms, const DesignOptions& options = {}) {
  detail::check(options);
  const detail::Arms all(arms, "d_optimal_design");
  const detail::RowMap rows = all.rows();
  const detail::RowSpace space = detail::row_space(rows, options.rank_tolerance);
  if (space.rank() <= 1) return detail::trivial_design(rows * space.basis, space);
  const Matrix<double> whitening = space.whitening();
  const auto rank = static_cast<double>(space.rank());

  detail::WorkingSet working(space.rank());
  std::vector<char> inside(static_cast<std::size_t>(rows.rows()));
  const auto join = [&](const std::vector<Index>& arms_to_add) {
    working.add(arms_to_add, detail::gather(rows, arms_to_add) * whitening);
  };
  join(detail::first_working_set(rows, whitening));
  working.spread_uniformly();
  const bool everyone = working.size() == rows.rows();

  Design design{Vector<double>(), space.rank(), 0, 0, 0, false};
  Matrix<double> root;
  for (double tolerance = everyone ? options.tolerance : std::max(options.tolerance, 0.1);;) {
    working.solve(tolerance, options.max_iterations);
    root = whitening;  // leverage = ||x root||^2
    Eigen::MatrixXd transposed = root.transpose();
    working.cholesky().triangularView<Eigen::Lower>().solveInPlace(transposed);
    root = transposed.transpose();
    const Vector<double> leverages = detail::squared_norms(rows, root);
    design.g = leverages.maxCoeff();
    const double excess = std::max(design.g / rank - 1, working.excess());
    design.converged = excess <= options.tolerance;
    if (design.converged || working.iterations() >= options.max_iterations) break;
    std::fill(inside.begin(), inside.end(), char{0});
    for (const Index arm : working.arms()) inside[static_cast<std::size_t>(arm)] = 1;
    std::vector<Index> missing;
    for (Index i = 0; i < rows.rows(); ++i)
      if (!inside[static_cast<std::size_t>(i)] && leverages[i] > rank * (1 + options.tolerance)) missing.push_back(i);
    join(detail::largest(leverages, std::move(missing), 4 * space.rank()));
    tolerance = std::max(options.tolerance, 0.1 * std::min(tolerance, excess));
  }
  design.iterations = working.iterations();
  for (Index k = 0; k < space.rank(); ++k)
    design.log_det += 2 * std::log(working.cholesky()(k, k) * space.singular_values[k]);
  design.weights = Vector<double>::Zero(rows.rows());
  for (Index i = 0; i < working.size(); ++i)
    design.weights[working.arms()[static_cast<std::size_t>(i)]] = working.weight(i);
  return design;
}

/// Pulls of each arm for exploration rate `rate`: ceil((1 - 1e-6) 2 weight g rate / rank), so that every arm has
/// x^T H^-1 x <= rank / (2 rate) (up to the slack, which keeps an exact 40 from becoming 41 by rounding).
/// Writes into `counts` [K] and allocates nothing.
inline void design_counts(const Design& design, double rate, View<std::int64_t, 1> counts) {
  check_argument(rate >= 0 && std::isfinite(rate), "design_counts", "rate", "finite and not negative", rate);
  check_shape("design_counts", "counts", counts.shape(), {design.weights.size()}, "one count an arm");
  const double scale = design.rank == 0 ? 0 : (1 - 1e-6) * 2 * design.g * rate / static_cast<double>(design.rank);
  check_argument(scale < 0x1p62, "design_counts", "rate", "small enough for 64-bit counts", rate);
  for (Index i = 0; i < design.weights.size(); ++i)
    counts[i] = static_cast<std::int64_t>(std::ceil(design.weights[i] * scale));
}
inline Vector<std::int64_t> design_counts(const Design& design, double rate) {
  Vector<std::int64_t> counts(design.weights.size());
  design_counts(design, rate, counts);
  return counts;
}

}  // namespace ashlar::bandits
