// Effective descent quality: how much of an optimiser's intended update reaches the stored parameters.
//
// Source: Yu et al., "Collage: Light-Weight Low-Precision Strategy for LLM Training", ICML 2024 (arXiv 2405.03637).
//   EDQ = <update, effective> / |update|,   ratio = EDQ / |update|:   1 everything arrived, 0 everything was lost.
// The effective update of an expansion is (hi' - hi) + (lo' - lo). A step that lands residues saved earlier can
// exceed 1.
//
//   DescentSums sums = descent_quality(update, before, after);       // any optimiser, any format
//   sums += descent_quality(other_update, other_before, other_after);
//   double ratio = sums.report().ratio;
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::precision {

struct DescentReport {
  double edq = 0;     ///< <update, effective> / |update|; 0 when nothing was intended
  double ratio = 1;   ///< edq / |update|; 1 when nothing was intended
  double edq_hi = 0;  ///< the same counting only what the leading components did
  double ratio_hi = 1;
  double lost_fraction = 0;  ///< share of parameters whose leading component did not move
  double norm_update = 0;
  double norm_effective = 0;
  double norm_residual = 0;          ///< |lo'|, what is still waiting in the trailing components
  double residual_along_update = 0;  ///< <lo', update> / |update|
};

/// The sums behind a report. Groups combine by adding them, never by averaging ratios.
struct DescentSums {
  double update_effective = 0;     ///< <update, effective>
  double update_effective_hi = 0;  ///< <update, hi' - hi>
  double update_squared = 0;
  double effective_squared = 0;
  double residual_squared = 0;
  double residual_update = 0;  ///< <lo', update>
  Index lost = 0;              ///< parameters with hi' = hi
  Index count = 0;

  DescentSums& operator+=(const DescentSums& other) {
    update_effective += other.update_effective;
    update_effective_hi += other.update_effective_hi;
    update_squared += other.update_squared;
    effective_squared += other.effective_squared;
    residual_squared += other.residual_squared;
    residual_update += other.residual_update;
    lost += other.lost;
    count += other.count;
    return *this;
  }

  DescentReport report() const {
    DescentReport report;
    report.norm_update = std::sqrt(update_squared);
    report.norm_effective = std::sqrt(effective_squared);
    report.norm_residual = std::sqrt(residual_squared);
    if (count > 0) report.lost_fraction = static_cast<double>(lost) / static_cast<double>(count);
    if (update_squared == 0) return report;
    report.edq = update_effective / report.norm_update;
    report.ratio = report.edq / report.norm_update;
    report.edq_hi = update_effective_hi / report.norm_update;
    report.ratio_hi = report.edq_hi / report.norm_update;
    report.residual_along_update = residual_update / report.norm_update;
    return report;
  }
};

namespace detail {

/// One parameter of a step, in double.
struct DescentTerm {
  double update, hi_before, hi_after, lo_before, lo_after;
};

/// Sums over one chunk. Eight interleaved partial sums let the compiler use vectors without reordering anything.
class DescentAccumulator {
 public:
  static constexpr Index lanes = 8;

  /// Adds term(0) .. term(count - 1).
  template <class Term>
  void add(Index count, const Term& term) {
    for (Index i = 0; i < count; ++i) add(static_cast<std::size_t>(i % lanes), term(i));
    count_ += count;
  }

  DescentSums sums() const {
    DescentSums total;
    total.update_effective = sum(update_effective_);
    total.update_effective_hi = sum(update_effective_hi_);
    total.update_squared = sum(update_squared_);
    total.effective_squared = sum(effective_squared_);
    total.residual_squared = sum(residual_squared_);
    total.residual_update = sum(residual_update_);
    total.lost = lost_;
    total.count = count_;
    return total;
  }

 private:
  using Lanes = std::array<double, static_cast<std::size_t>(lanes)>;

  void add(std::size_t lane, const DescentTerm& term) {
    const double moved_hi = term.hi_after - term.hi_before;
    const double moved = moved_hi + (term.lo_after - term.lo_before);
    update_effective_[lane] += term.update * moved;
    update_effective_hi_[lane] += term.update * moved_hi;
    update_squared_[lane] += term.update * term.update;
    effective_squared_[lane] += moved * moved;
    residual_squared_[lane] += term.lo_after * term.lo_after;
    residual_update_[lane] += term.lo_after * term.update;
    lost_ += term.hi_after == term.hi_before;
  }
  static double sum(const Lanes& lanes_of) {
    double total = 0;
    for (const double part : lanes_of) total += part;
    return total;
  }

  Lanes update_effective_{}, update_effective_hi_{}, update_squared_{}, effective_squared_{}, residual_squared_{},
      residual_update_{};
  Index lost_ = 0, count_ = 0;
};

/// At most 256 chunks, so that their sums fit on the stack; multiples of 128 elements. Depends on the size alone.
inline constexpr Index max_chunks = 256;
constexpr Index chunk_grain(Index count) {
  return std::max<Index>((1 << 14), (chunk_count(count, max_chunks) + 127) / 128 * 128);
}

/// Runs sums(begin, end) over the chunks and adds the results in order.
template <class Sums>
DescentSums sum_chunks(Index count, const Sums& sums) {
  std::array<DescentSums, static_cast<std::size_t>(max_chunks)> parts;
  const Index grain = chunk_grain(count);
  parallel_for(count, grain,
               [&](Index begin, Index end) { parts[static_cast<std::size_t>(begin / grain)] = sums(begin, end); });
  DescentSums total;
  for (Index chunk = 0; chunk < chunk_count(count, grain); ++chunk) total += parts[static_cast<std::size_t>(chunk)];
  return total;
}

}  // namespace detail

/// What became of a step. update, before, after: [n], and for expansions the trailing components before and after.
/// Sums are kept in double. O(n), allocates nothing; the same bits for any number of threads.
template <class X>
DescentSums descent_quality(const X& update, In<X, 1> before, In<X, 1> after, In<X, 1> lo_before, In<X, 1> lo_after) {
  const In<X, 1> intended = update;
  const Index n = intended.extent(0);
  const std::string_view function = "descent_quality";
  check_shape(function, "before", before.shape(), {n}, "same length as update");
  check_shape(function, "after", after.shape(), {n}, "same length as update");
  check_shape(function, "lo_before", lo_before.shape(), {n}, "same length as update");
  check_shape(function, "lo_after", lo_after.shape(), {n}, "same length as update");
  return detail::sum_chunks(n, [&](Index begin, Index end) {
    detail::DescentAccumulator chunk;
    chunk.add(end - begin, [&](Index i) {
      const auto at = [&](const In<X, 1>& array) { return static_cast<double>(to_float(array[begin + i])); };
      return detail::DescentTerm{at(intended), at(before), at(after), at(lo_before), at(lo_after)};
    });
    return chunk.sums();
  });
}
template <class X>
DescentSums descent_quality(const X& update, In<X, 1> before, In<X, 1> after) {
  static const auto zero = from_float<scalar_t<X>>(0);
  const In<X, 1> none(&zero, after.shape(), {0});  // the same zero everywhere
  return descent_quality(update, before, after, none, none);
}

}  // namespace ashlar::precision
