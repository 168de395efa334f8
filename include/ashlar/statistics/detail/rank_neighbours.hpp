// The nearest neighbour of every point among points given by two ranks, exactly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "ashlar/core/config.hpp"
#include "ashlar/core/simd.hpp"

namespace ashlar::statistics::detail {

/// Points in ascending order of u; u and v are multiples of 1/2 below 2^23, so that differences are exact in a float,
/// and squared distances as well up to 2^22. One object a thread.
class RankNeighbours {
 public:
  explicit RankNeighbours(Index n)
      : n_(n),
        margin_(n + simd::width<float>),
        u_(padded_size()),
        v_(padded_size()),
        best_(static_cast<std::size_t>(margin_)) {
    // Far away, but finite: a difference of two of them is a number.
    std::fill_n(u_.begin(), margin_, -far);
    std::fill(u_.begin() + margin_ + n, u_.end(), far);
    std::fill(v_.begin(), v_.end(), far);
  }

  float* u() { return u_.data() + margin_; }  ///< [n], to be filled where there are ties
  float* v() { return v_.data() + margin_; }  ///< [n], to be filled

  /// Squared distances [n] for u = 1, 2, .. n.
  void untied(double* squared) {
    by_lags<false>();
    finish(squared, [](Index i) { return static_cast<double>(i); });
  }
  /// For any ascending u. Groups of equal u are in ascending order of v.
  void tied(double* squared) {
    // A group's points only leave its own row after as many lags as it has points.
    if (longest_group() > 64) {
      by_groups(squared);
      return;
    }
    by_lags<true>();
    finish(squared, [this](Index i) { return static_cast<double>(u()[i]); });
  }

 private:
  static constexpr float far = 1e18f;
  static constexpr float exact_limit = 0x1p22f;

  std::size_t padded_size() const { return static_cast<std::size_t>(n_ + 2 * margin_); }

  /// A vector of neighbouring points looks left and right, one step further each time, until none of its points can
  /// find a nearer one: about sqrt(n log(width) / pi) steps for independent coordinates, fewer for dependent ones.
  template <bool Tied>
  void by_lags() {
    using V = simd::batch<float>;
    for (Index i = 0; i < n_; i += simd::width<float>) {
      const float *const u = this->u() + i, *const v = this->v() + i;
      const V own_u = simd::load(u), own_v = simd::load(v);
      V best(std::numeric_limits<float>::max());
      for (Index j = 1; j < n_; ++j) {
        const V right = simd::load(v + j) - own_v, left = simd::load(v - j) - own_v;
        if constexpr (Tied) {
          const V u_right = simd::load(u + j) - own_u, u_left = simd::load(u - j) - own_u;
          const V right_squared = u_right * u_right, left_squared = u_left * u_left;
          best =
              simd::min(best, simd::min(simd::fma(right, right, right_squared), simd::fma(left, left, left_squared)));
          // Further out u is further still.
          if (simd::bits(best > simd::min(right_squared, left_squared)) == 0) break;
        } else {
          const auto lag = static_cast<float>(j), next = static_cast<float>(j + 1);
          best = simd::min(best, simd::min(right * right, left * left) + V(lag * lag));
          if (simd::bits(best > V(next * next)) == 0) break;
        }
      }
      simd::store(best_.data() + i, best);
    }
  }

  /// Widens, and does the few points again whose squares are too large for a float.
  template <class U>
  void finish(double* squared, U&& u) {
    for (Index i = 0; i < n_; ++i) {
      squared[i] = static_cast<double>(best_[static_cast<std::size_t>(i)]);
      if (best_[static_cast<std::size_t>(i)] < exact_limit) [[likely]]
        continue;
      double best = std::numeric_limits<double>::max();
      for (const Index step : {Index{-1}, Index{1}})
        for (Index k = i + step; k >= 0 && k < n_; k += step) {
          const double du = u(k) - u(i), dv = static_cast<double>(v()[k]) - static_cast<double>(v()[i]);
          if (du * du >= best) break;
          best = std::min(best, du * du + dv * dv);
        }
      squared[i] = best;
    }
  }

  Index longest_group() {
    Index longest = 0;
    groups_.clear();
    for (Index begin = 0, end = 0; begin < n_; begin = end) {
      for (end = begin + 1; end < n_ && u()[end] == u()[begin];) ++end;
      groups_.push_back(begin);
      longest = std::max(longest, end - begin);
    }
    groups_.push_back(n_);
    return longest;
  }

  /// For every point the nearest in v of every group that is near enough in u: O(log n) a group.
  void by_groups(double* squared) {
    const float *const u = this->u(), *const v = this->v();
    const auto groups = static_cast<Index>(groups_.size()) - 1;
    const auto begin_of = [this](Index group) { return groups_[static_cast<std::size_t>(group)]; };
    for (Index group = 0; group < groups; ++group)
      for (Index i = begin_of(group); i < begin_of(group + 1); ++i) {
        double best = std::numeric_limits<double>::max();
        const auto consider = [&](Index k) {
          const double du = static_cast<double>(u[k]) - static_cast<double>(u[i]);
          const double dv = static_cast<double>(v[k]) - static_cast<double>(v[i]);
          best = std::min(best, du * du + dv * dv);
        };
        if (i > begin_of(group)) consider(i - 1);
        if (i + 1 < begin_of(group + 1)) consider(i + 1);
        for (const Index step : {Index{-1}, Index{1}})
          for (Index other = group + step; other >= 0 && other < groups; other += step) {
            const Index begin = begin_of(other), end = begin_of(other + 1);
            const double du = static_cast<double>(u[begin]) - static_cast<double>(u[i]);
            if (du * du >= best) break;
            const Index at = std::lower_bound(v + begin, v + end, v[i]) - v;
            if (at > begin) consider(at - 1);
            if (at < end) consider(at);
          }
        squared[i] = best;
      }
  }

  Index n_, margin_;
  std::vector<float> u_, v_, best_;
  std::vector<Index> groups_;
};

}  // namespace ashlar::statistics::detail
