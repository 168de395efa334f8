// The guided score of a Gaussian mixture and its divergence, fast: what samplers call hundreds of times a sample.
//
//   s_eta = s_y + eta (s_y - s),      s_y - s = grad log q(y | x),
//   div s_eta = -(1 + eta) tr_y + eta (sum_c q_c tr_c - sum_c q_c |s_c - s|^2),      tr_c = trace S_c^-1.
//
// (gaussian_mixture.hpp has the letters.) The sum of squares is kept centred: it is never negative and does not cancel
// in far tails. Classes share one isotropic covariance v I, as in the paper's theorems: then s_y - s = a / v (mu_y -
// sum_c q_c mu_c), log q is linear in x, and a score is a small matrix product, a softmax and another product.
// Otherwise classes are taken one after another and merged into running means, so nothing of the size of all class
// scores is stored.
//
//   MixtureScore<float> score(mixture, 1, {.strength = 3.0});      // class 1, eta = 3
//   ddim_sample(score, x, TimeGrid::graded(6, 400), Step::euler);  // guided_sampler.hpp
//   guided_score(mixture, x, 0.7, 1, {.strength = 3.0}, out);      // one evaluation
//
// Blocks of 160 samples, coordinate by coordinate, samples in the lanes of vectors. Roof: C exponentials and about
// 4 C d + 8 d multiply-adds a sample; for one isotropic covariance four dimensions or less stay in registers.
//
// Source: Wu, Chen, Li, Wang, Wei, ICML 2024, arXiv 2403.01639.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/diffusion/gaussian_mixture.hpp"
#include "ashlar/diffusion/guidance.hpp"
#include "ashlar/linalg/small_product.hpp"

namespace ashlar::diffusion {

/// Samples of a block: whole vectors on every target, and a row of it does not map onto the cache sets of the next.
inline constexpr Index block_samples = 160;

namespace reference {

/// The equations as written, in double. x, out: [N, d]; divergence: [N] or empty.
inline void guided_score(const GaussianMixture& mixture, View<const double, 2> x, double t,
                         const PerSample<Index>& label, const Guidance& guidance, View<double, 2> out,
                         View<double, 1> divergence = {}) {
  const MixtureAtTime at = mixture.at(t);
  const Matrix<double> q = mixture.posterior(x, t);
  const Tensor<double> scores = mixture.class_scores(x, t);
  for (Index i = 0; i < x.extent(0); ++i) {
    const Index y = label[i];
    const double eta = guidance.factor(t) * guidance.strength[i];
    const auto s = matrix(scores.view<3>()[i]);
    const Vector<double> mean = s.transpose() * q.row(i).transpose();
    vector(out[i]) = (1 + eta) * s.row(y).transpose() - eta * mean;
    if (divergence.empty()) continue;
    double unconditional = 0;
    for (Index c = 0; c < mixture.classes(); ++c)
      unconditional += q(i, c) * ((s.row(c).transpose() - mean).squaredNorm() - at.precision_trace(c));
    divergence[i] = -(1 + eta) * at.precision_trace(y) - eta * unconditional;
  }
}

}  // namespace reference

/// A guided score as samplers want it. Refers to nothing but per-sample labels and strengths, which outlive it.
///
/// It is a score function (x, t, out[, divergence]) for batches, and what guided_sampler.hpp calls a block score: the
/// sampler asks for the constants of all its times at once and keeps a block of samples in cache through all steps.
template <Real T>
class MixtureScore {
 public:
  /// Throws InvalidArgument for a label that is no class or has weight 0, and a strength that is not finite.
  MixtureScore(const GaussianMixture& mixture, PerSample<Index> label, Guidance guidance)
      : mixture_(mixture), label_(std::move(label)), guidance_(std::move(guidance)) {
    if (!label_.varies()) mixture_.check_label("MixtureScore", label_[0]);
    if (!guidance_.strength.varies()) check_strength("MixtureScore", guidance_.strength[0]);
    for (Index c = 0; c < mixture_.classes(); ++c)
      if (mixture_.weights()[c] > 0) active_.push_back(c);
    linear_ = mixture_.kind() == CovarianceKind::isotropic && mixture_.common_covariance();
    rotated_ = mixture_.kind() == CovarianceKind::full;
    padded_dim_ = linalg::round_up(dim(), linalg::tile_rows);
    padded_classes_ = linalg::round_up(active(), linalg::tile_rows);
    means_ = Matrix<T>::Zero(padded_classes_, padded_dim_);
    for (Index k = 0; k < active(); ++k)
      means_.row(k).head(dim()) = mixture_.means().row(class_of(k)).template cast<T>();
    if (rotated_) {
      const Index matrices = mixture_.common_covariance() ? 1 : active();
      rotations_ = Matrix<T>::Zero(matrices * padded_dim_, padded_dim_);
      rotated_means_ = Matrix<double>::Zero(active(), padded_dim_);
      for (Index k = 0; k < active(); ++k) {
        const Index c = class_of(k);
        rotated_means_.row(k).head(dim()) = mixture_.means().row(c) * mixture_.eigenvectors(c);
        if (k < matrices)
          rotations_.block(k * padded_dim_, 0, dim(), dim()) = mixture_.eigenvectors(c).template cast<T>();
      }
    }
  }

  const GaussianMixture& mixture() const { return mixture_; }
  const PerSample<Index>& label() const { return label_; }
  const Guidance& guidance() const { return guidance_; }
  Index dim() const { return mixture_.dim(); }

  void operator()(View<const T, 2> x, double t, View<T, 2> out, View<T, 1> divergence = {}) const {
    Workspace workspace;
    evaluate("MixtureScore", x, t, out, divergence, workspace);
  }

  /// The score at x [N, d] into out [N, d], which may be x, and its divergence [N] unless that is empty.
  void evaluate(std::string_view function, View<const T, 2> x, double t, View<T, 2> out, View<T, 1> divergence,
                Workspace& workspace) const {
    const Index n = x.extent(0), rows = dim() + 1;
    check_samples(function, n);
    check_shape(function, "x", x.shape(), {n, dim()}, "points of the dimension of the means");
    check_shape(function, "out", out.shape(), {n, dim()}, "same shape as x");
    const bool wants_divergence = !divergence.empty();
    if (wants_divergence) check_shape(function, "divergence", divergence.shape(), {n}, "one a sample");
    require(same_memory(x, out) || !overlaps(x, out), function, "out overlaps x without being x");
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < dim(); ++j) check_argument(std::isfinite(x(i, j)), function, "x", "finite", x(i, j));
    const Index own = context_size() + scratch_size() + 2 * rows * block_samples;
    T* const slice = workspace.reserve<T>(slice_size() + own * max_threads());
    prepare(function, t, slice);
    parallel_for(n, block_samples, [&](Index begin, Index end, int worker) {
      T* const context = slice + slice_size() + own * worker;
      T* const scratch = context + context_size();
      T* const points = scratch + scratch_size();
      T* const scores = points + rows * block_samples;
      for (Index j = 0; j < dim(); ++j)
        for (Index i = 0; i < block_samples; ++i)
          points[j * block_samples + i] = begin + i < end ? x(begin + i, j) : T(0);
      begin_block(begin, end, context);
      evaluate_block(slice, context, points, scores, wants_divergence, scratch);
      for (Index i = begin; i < end; ++i) {
        for (Index j = 0; j < dim(); ++j) out(i, j) = scores[j * block_samples + i - begin];
        if (wants_divergence) divergence[i] = scores[dim() * block_samples + i - begin];
      }
    });
  }

  // ---- The parts of a block score. All sizes count numbers. ----------------------------------------------------

  /// Throws InvalidArgument when labels or strengths are not those of `samples` samples.
  void check_samples(std::string_view function, Index samples) const {
    label_.check(function, "label", samples);
    guidance_.strength.check(function, "strength", samples);
    if (label_.varies())
      for (Index i = 0; i < samples; ++i) mixture_.check_label(function, label_[i]);
    if (guidance_.strength.varies())
      for (Index i = 0; i < samples; ++i) check_strength(function, guidance_.strength[i]);
  }

  /// Constants of a time, for all samples.
  Index slice_size() const { return linear_ ? fixed + active() : fixed + active() * (2 + 2 * padded_dim_); }
  void prepare(std::string_view function, double t, T* slice) const {
    mixture_.check_time(function, t);
    const double factor = guidance_.factor(t), a = std::exp(-t);
    check_argument(std::isfinite(factor), function, "the schedule", "finite", factor);
    const ForwardVariance variance(t);
    slice[0] = static_cast<T>(factor);
    if (linear_) {
      const double v = variance(mixture_.eigenvalue(0, 0));
      slice[1] = static_cast<T>(1 / v);
      slice[2] = static_cast<T>(a / v);
      slice[3] = static_cast<T>(static_cast<double>(dim()) / v);
      // log q_c up to what all classes share: a / v <mu_c, x> + log w_c - a^2 |mu_c|^2 / (2 v)
      for (Index k = 0; k < active(); ++k)
        slice[fixed + k] = static_cast<T>(std::log(mixture_.weights()[class_of(k)]) -
                                          a * a * mixture_.means().row(class_of(k)).squaredNorm() / (2 * v));
      return;
    }
    for (Index k = 0; k < active(); ++k) {
      const Index c = class_of(k);
      T* const own = slice + fixed + k * (2 + 2 * padded_dim_);
      double trace = 0;
      for (Index j = 0; j < padded_dim_; ++j) {
        const bool real = j < dim();
        const double precision = real ? 1 / variance(mixture_.eigenvalue(c, j)) : 0;
        const double mean = !real ? 0 : rotated_ ? rotated_means_(k, j) : mixture_.means()(c, j);
        trace += precision;
        own[2 + j] = static_cast<T>(a * mean);
        own[2 + padded_dim_ + j] = static_cast<T>(precision);
      }
      own[0] = static_cast<T>(std::log(mixture_.weights()[c]) + mixture_.log_constant(c, variance));
      own[1] = static_cast<T>(trace);
    }
  }

  /// What a block of samples needs at every time: strengths, and the means or numbers of their classes.
  Index context_size() const { return (1 + (linear_ ? dim() : 1)) * block_samples; }
  void begin_block(Index begin, Index end, T* context) const {
    for (Index i = 0; i < block_samples; ++i) {
      const Index sample = std::min(begin + i, end - 1);
      context[i] = static_cast<T>(guidance_.strength[sample]);
      T* const column = context + block_samples + i;
      if (linear_)
        for (Index j = 0; j < dim(); ++j)
          column[j * block_samples] = static_cast<T>(mixture_.means()(label_[sample], j));
      else
        column[0] = static_cast<T>(label_[sample]);
    }
  }

  Index scratch_size() const {
    if (linear_) return (padded_classes_ + padded_dim_ + 1) * block_samples;
    return (4 * padded_dim_ + 6) * block_samples;
  }
  /// x: d rows of block_samples; out: d rows, and a row for the divergence, which is left alone unless wanted.
  void evaluate_block(const T* slice, const T* context, const T* x, T* out, bool wants_divergence, T* scratch) const {
    if (!linear_) return general(slice, context, x, out, wants_divergence, scratch);
    switch (dim()) {
      case 1:
        return linear_in_registers<1>(slice, context, x, out, wants_divergence, scratch);
      case 2:
        return linear_in_registers<2>(slice, context, x, out, wants_divergence, scratch);
      case 3:
        return linear_in_registers<3>(slice, context, x, out, wants_divergence, scratch);
      case 4:
        return linear_in_registers<4>(slice, context, x, out, wants_divergence, scratch);
      default:
        return linear_by_tiles(slice, context, x, out, wants_divergence, scratch);
    }
  }

 private:
  using V = simd::batch<T>;
  static constexpr Index width = simd::width<T>, fixed = 4;

  static void check_strength(std::string_view function, double strength) {
    check_argument(std::isfinite(strength), function, "strength", "finite", strength);
  }
  Index active() const { return static_cast<Index>(active_.size()); }
  Index class_of(Index k) const { return active_[static_cast<std::size_t>(k)]; }

  /// out_j = a / v ((1 + eta) mu_y - eta m)_j - x_j / v, m the mean of the means; with the divergence from
  /// spread = sum_c q_c |mu_c - m|^2.
  struct Finish {
    V inverse, slope, trace, eta;
    V score(const V& x, const V& target, const V& mean) const {
      return simd::fma(slope, simd::fma(eta, target - mean, target), V(T(0)) - x * inverse);
    }
    V divergence(const V& spread) const { return V(T(0)) - simd::fma(eta * slope * slope, spread, trace); }
  };
  static Finish finish(const T* slice, const T* context, Index i) {
    return {V(slice[1]), V(slice[2]), V(slice[3]), simd::load(context + i) * V(slice[0])};
  }

  template <int D>
  void linear_in_registers(const T* slice, const T* context, const T* x, T* out, bool wants_divergence,
                           T* scratch) const {
    const Index classes = active();
    T* const largest = scratch + padded_classes_ * block_samples;
    for (Index i = 0; i < block_samples; i += width) {
      V scaled[D];
      for (int j = 0; j < D; ++j) scaled[j] = simd::load(x + j * block_samples + i) * V(slice[2]);
      V most(-std::numeric_limits<T>::infinity());
      for (Index k = 0; k < classes; ++k) {
        V logit(slice[fixed + k]);
        for (int j = 0; j < D; ++j) logit = simd::fma(scaled[j], V(means_.data()[k * padded_dim_ + j]), logit);
        simd::store(scratch + k * block_samples + i, logit);
        most = simd::max(most, logit);
      }
      simd::store(largest + i, most);
    }
    // A pass of its own: few classes after one another would wait for each exponential.
    for (Index k = 0; k < classes; ++k) {
      T* const row = scratch + k * block_samples;
      for (Index i = 0; i < block_samples; i += width)
        simd::store(row + i, simd::exp(simd::load(row + i) - simd::load(largest + i)));
    }
    for (Index i = 0; i < block_samples; i += width) {
      const Finish f = finish(slice, context, i);
      V sum(T(0)), mean[D];
      for (int j = 0; j < D; ++j) mean[j] = V(T(0));
      for (Index k = 0; k < classes; ++k) {
        const V weight = simd::load(scratch + k * block_samples + i);
        sum += weight;
        for (int j = 0; j < D; ++j) mean[j] = simd::fma(weight, V(means_.data()[k * padded_dim_ + j]), mean[j]);
      }
      const V normaliser = V(T(1)) / sum;
      for (int j = 0; j < D; ++j) {
        mean[j] *= normaliser;
        const Index at = j * block_samples + i;
        simd::store(out + at, f.score(simd::load(x + at), simd::load(context + block_samples + at), mean[j]));
      }
      if (!wants_divergence) continue;
      V spread(T(0));
      for (Index k = 0; k < classes; ++k) {
        V squared(T(0));
        for (int j = 0; j < D; ++j) {
          const V gap = V(means_.data()[k * padded_dim_ + j]) - mean[j];
          squared = simd::fma(gap, gap, squared);
        }
        spread = simd::fma(simd::load(scratch + k * block_samples + i), squared, spread);
      }
      simd::store(out + D * block_samples + i, f.divergence(spread * normaliser));
    }
  }

  void linear_by_tiles(const T* slice, const T* context, const T* x, T* out, bool wants_divergence, T* scratch) const {
    const Index classes = active(), d = dim();
    T* const logits = scratch;                                 // [padded classes][block]
    T* const mean = logits + padded_classes_ * block_samples;  // [padded dim][block]
    T* const normaliser = mean + padded_dim_ * block_samples;
    // Columns outside: the panel of x that a tile reads stays in first-level cache while the classes pass by.
    columns([&](auto& tile, Index i) {
      for (Index k = 0; k < padded_classes_; k += linalg::tile_rows) {
        tile.clear();
        tile.add(means_.data() + k * padded_dim_, padded_dim_, 1, x + i, block_samples, d);
        tile.store(logits + k * block_samples + i, block_samples);
      }
    });
    for (Index i = 0; i < block_samples; i += width) {
      const V slope(slice[2]);
      V largest(-std::numeric_limits<T>::infinity()), sum(T(0));
      for (Index k = 0; k < classes; ++k) {
        T* const at = logits + k * block_samples + i;
        const V logit = simd::fma(simd::load(at), slope, V(slice[fixed + k]));
        simd::store(at, logit);
        largest = simd::max(largest, logit);
      }
      for (Index k = 0; k < classes; ++k) {
        T* const at = logits + k * block_samples + i;
        const V weight = simd::exp(simd::load(at) - largest);
        simd::store(at, weight);
        sum += weight;
      }
      simd::store(normaliser + i, V(T(1)) / sum);
    }
    columns([&](auto& tile, Index i) {
      for (Index j = 0; j < padded_dim_; j += linalg::tile_rows) {
        tile.clear();
        tile.add(means_.data() + j, 1, padded_dim_, logits + i, block_samples, classes);
        tile.store(mean + j * block_samples + i, block_samples);
      }
    });
    for (Index i = 0; i < block_samples; i += width) {
      const Finish f = finish(slice, context, i);
      const V scale = simd::load(normaliser + i);
      for (Index j = 0; j < d; ++j) {
        const Index at = j * block_samples + i;
        const V own = simd::load(mean + at) * scale;
        simd::store(out + at, f.score(simd::load(x + at), simd::load(context + block_samples + at), own));
        if (wants_divergence) simd::store(mean + at, own);
      }
      if (!wants_divergence) continue;
      V spread(T(0));
      for (Index k = 0; k < classes; ++k) {
        V squared(T(0));
        for (Index j = 0; j < d; ++j) {
          const V gap = V(means_.data()[k * padded_dim_ + j]) - simd::load(mean + j * block_samples + i);
          squared = simd::fma(gap, gap, squared);
        }
        spread = simd::fma(simd::load(logits + k * block_samples + i), squared, spread);
      }
      simd::store(out + d * block_samples + i, f.divergence(spread * scale));
    }
  }

  /// f(tile, i) for tiles of whole vectors of samples that cover the block.
  template <class F>
  static void columns(F&& f) {
    linalg::RegisterTile<T, 2> wide;
    linalg::RegisterTile<T, 1> narrow;
    Index i = 0;
    for (; i + wide.cols <= block_samples; i += wide.cols) f(wide, i);
    for (; i < block_samples; i += narrow.cols) f(narrow, i);
  }

  /// Classes merged one after another: with weights W of those before and e of the next, r = e / (W + e),
  ///   mean += r (s_c - mean),    spread = (1 - r) spread + r (1 - r) |s_c - mean before|^2.
  void general(const T* slice, const T* context, const T* x, T* out, bool wants_divergence, T* scratch) const {
    const Index d = dim(), block = padded_dim_ * block_samples;
    T* const z = scratch;         // [padded dim][block] in the eigenbasis
    T* const s = z + block;       // score of the class
    T* const mean = s + block;    // of the scores so far
    T* const own = mean + block;  // score of the class guided to
    T* const largest =
        own + block;  // rows: the largest logit, weights relative to it, their mean trace, spread, own trace
    T* const weight = largest + block_samples;
    T* const trace = weight + block_samples;
    T* const spread = trace + block_samples;
    T* const own_trace = spread + block_samples;
    T* const logit = own_trace + block_samples;
    for (Index k = 0; k < active(); ++k) {
      const T* const constants = slice + fixed + k * (2 + 2 * padded_dim_);
      class_score(k, constants, x, z, s, logit);
      const V class_trace(constants[1]), number(static_cast<T>(class_of(k)));
      for (Index i = 0; i < block_samples; i += width) {
        V gain(T(1)), rest(T(0));  // r and 1 - r, neither by subtraction
        if (k == 0) {
          simd::store(largest + i, simd::load(logit + i));
          simd::store(weight + i, V(T(1)));
          simd::store(trace + i, class_trace);
          simd::store(spread + i, V(T(0)));
        } else {
          const V before = simd::load(largest + i), now = simd::load(logit + i), old = simd::load(weight + i);
          const V gap = now - before;
          const auto rises = gap > V(T(0));
          const V e = simd::exp(xsimd::select(rises, V(T(0)) - gap, gap));
          const V kept = xsimd::select(rises, old * e, old), added = xsimd::select(rises, V(T(1)), e);
          const V total = kept + added;
          gain = added / total, rest = kept / total;
          simd::store(largest + i, simd::max(before, now));
          simd::store(weight + i, total);
          simd::store(trace + i, simd::fma(gain, class_trace - simd::load(trace + i), simd::load(trace + i)));
        }
        const auto is_own = simd::load(context + block_samples + i) == number;
        V squared(T(0));
        for (Index j = 0; j < d; ++j) {
          const Index at = j * block_samples + i;
          const V score = simd::load(s + at);
          const V gap = k == 0 ? V(T(0)) : score - simd::load(mean + at);
          squared = simd::fma(gap, gap, squared);
          simd::store(mean + at, k == 0 ? score : simd::fma(gain, gap, simd::load(mean + at)));
          simd::store(own + at, k == 0 ? score : xsimd::select(is_own, score, simd::load(own + at)));
        }
        simd::store(own_trace + i,
                    k == 0 ? class_trace : xsimd::select(is_own, class_trace, simd::load(own_trace + i)));
        if (k > 0) simd::store(spread + i, rest * simd::fma(gain, squared, simd::load(spread + i)));
      }
    }
    for (Index i = 0; i < block_samples; i += width) {
      const V eta = simd::load(context + i) * V(slice[0]);
      for (Index j = 0; j < d; ++j) {
        const V score = simd::load(own + j * block_samples + i);
        simd::store(out + j * block_samples + i,
                    simd::fma(eta, score - simd::load(mean + j * block_samples + i), score));
      }
      if (!wants_divergence) continue;
      const V own_part = simd::load(own_trace + i), mixture_part = simd::load(trace + i) - simd::load(spread + i);
      simd::store(out + d * block_samples + i, simd::fma(eta, mixture_part - own_part, V(T(0)) - own_part));
    }
  }

  /// The score of class k and its logit, constants included.
  void class_score(Index k, const T* constants, const T* x, T* z, T* s, T* logit) const {
    const T* const shift = constants + 2;
    const T* const precision = shift + padded_dim_;
    const T* const rotation =
        rotated_ ? rotations_.data() + (mixture_.common_covariance() ? 0 : k) * padded_dim_ * padded_dim_ : nullptr;
    if (rotated_) product(rotation, 1, padded_dim_, x, z);
    T* const whitened = rotated_ ? z : s;
    for (Index i = 0; i < block_samples; i += width) {
      V squared(T(0));
      for (Index j = 0; j < dim(); ++j) {
        const Index at = j * block_samples + i;
        const V gap = V(shift[j]) - simd::load((rotated_ ? z : x) + at);
        const V solved = gap * V(precision[j]);
        squared = simd::fma(gap, solved, squared);
        simd::store(whitened + at, solved);
      }
      simd::store(logit + i, simd::fma(V(T(-0.5)), squared, V(constants[0])));
    }
    if (rotated_) product(rotation, padded_dim_, 1, z, s);
  }

  /// to = A from, A [padded dim, d] with these strides, from [d][block].
  void product(const T* a, Index a_row, Index a_col, const T* from, T* to) const {
    columns([&](auto& tile, Index i) {
      for (Index j = 0; j < padded_dim_; j += linalg::tile_rows) {
        tile.clear();
        tile.add(a + j * a_row, a_row, a_col, from + i, block_samples, dim());
        tile.store(to + j * block_samples + i, block_samples);
      }
    });
  }

  GaussianMixture mixture_;
  PerSample<Index> label_;
  Guidance guidance_;
  std::vector<Index> active_;  ///< classes whose weight is not zero
  bool linear_ = false;        ///< one isotropic covariance: log q is linear in x
  bool rotated_ = false;
  Index padded_dim_ = 0, padded_classes_ = 0;
  Matrix<T> means_;               ///< [padded classes, padded dim], active classes first
  Matrix<T> rotations_;           ///< eigenvectors of the classes below one another
  Matrix<double> rotated_means_;  ///< means in those bases
};

/// out = s_eta at x, and its divergence [N] unless that is empty. x, out: [N, d], float or double. label and strength:
/// one, or one a sample. Allocates nothing once `workspace` has grown, apart from what MixtureScore copies of the
/// mixture: keep one for repeated calls. Same bits for any number of threads. Throws InvalidArgument for shapes that do
/// not fit, points that are not finite, labels that are no class or have weight 0, and times as GaussianMixture::at.
template <class X>
void guided_score(const GaussianMixture& mixture, const X& x, double t, PerSample<Index> label, Guidance guidance,
                  Out<X, 2> out, Out<X, 1> divergence = {}) {
  Workspace workspace;
  MixtureScore<scalar_t<X>>(mixture, std::move(label), std::move(guidance))
      .evaluate("guided_score", x, t, out, divergence, workspace);
}

}  // namespace ashlar::diffusion
