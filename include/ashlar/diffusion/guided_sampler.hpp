// Samplers that turn noise into data with a score: DDIM (the probability-flow ODE), DDPM (the reverse SDE) and
// everything between. With tau = T - s the time walked backwards and s_eta the score of guidance.hpp or any other,
//
//   DDIM  dx = (x + s_eta) dtau                        DDPM  dx = (x + 2 s_eta) dtau + sqrt(2) dB
//
// One step from s to s' = s - h is A x + B score + n z in every method but Heun and Runge-Kutta:
//
//   euler        1 + h,  h                             1 + h,  2 h,            sqrt(2 h)
//   exponential  e^h,    e^h - 1                       e^h,    2 (e^h - 1),    sqrt(e^2h - 1)
//   alpha        the forms libraries use, with alpha_bar = e^-2s
//
//   auto x = normal_matrix<float>(rng, 1000, 2);
//   ddim_sample(MixtureScore<float>(mixture, 1, {.strength = 3.0}), x, TimeGrid::graded(6, 400), Step::rk4);
//   ddpm_sample(network_score, x, TimeGrid::from_betas(linear_betas(), 50), Step::alpha, rng);
//
// A score is any function (x, t, out) over a batch, a network for instance, and (x, t, out, divergence) where the
// log-density along the ODE is wanted. Exact scores of mixtures are block scores: the sampler asks for the constants of
// all its times at once and takes 160 samples through all steps before it turns to the next, so nothing leaves the
// cache. Noise belongs to (block of samples, step), whatever the score and the number of threads.
//
// Sources: Wu, Chen, Li, Wang, Wei, ICML 2024, arXiv 2403.01639 (the processes); Ho, Jain, Abbeel, NeurIPS 2020 (alpha
// DDPM); Song, Meng, Ermon, ICLR 2021 (alpha and stochastic DDIM).
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <numbers>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/diffusion/guidance.hpp"
#include "ashlar/diffusion/mixture_score.hpp"
#include "ashlar/diffusion/time_grid.hpp"
#include "ashlar/numerics/normals.hpp"
#include "ashlar/numerics/runge_kutta.hpp"

namespace ashlar::diffusion {

enum class Step {
  euler,        ///< order 1
  exponential,  ///< order 1, exact for the linear part
  alpha,        ///< order 1, the library form: exact for a single Gaussian point mass
  heun,         ///< order 2, two scores a step; ODE only
  rk4           ///< order 4, four scores a step; ODE only
};

/// The noise of an alpha step of DDPM, with beta = 1 - alpha_bar / alpha_bar'.
enum class AncestralVariance {
  small,  ///< beta (1 - alpha_bar') / (1 - alpha_bar): exact for point masses, nothing in a last step to 0
  large   ///< beta: exact for unit covariance
};

/// x' = state x + score s + noise z.
struct StepCoefficients {
  double state = 1, score = 0, noise = 0;
};

/// From time s to time next < s by an euler, exponential or alpha step.
inline StepCoefficients ddim_coefficients(Step step, double s, double next) {
  const double h = s - next;
  if (step == Step::euler) return {1 + h, h, 0};
  if (step == Step::exponential) return {std::exp(h), std::expm1(h), 0};
  // sqrt(alpha_bar') x0 + sqrt(1 - alpha_bar') eps with eps = -sqrt(1 - alpha_bar) score
  const double noise = -std::expm1(-2 * s), noise_next = -std::expm1(-2 * next);
  return {std::exp(h), std::exp(h) * noise - std::sqrt(noise_next * noise), 0};
}
inline StepCoefficients ddpm_coefficients(Step step, double s, double next, AncestralVariance variance) {
  const double h = s - next;
  if (step == Step::euler) return {1 + h, 2 * h, std::sqrt(2 * h)};
  if (step == Step::exponential) return {std::exp(h), 2 * std::expm1(h), std::sqrt(std::expm1(2 * h))};
  const double beta = -std::expm1(-2 * h);  // of this step: 1 - alpha_bar / alpha_bar'
  const double kept = variance == AncestralVariance::small ? std::expm1(-2 * next) / std::expm1(-2 * s) : 1;
  return {std::exp(h), beta * std::exp(h), std::sqrt(beta * kept)};
}
/// Between them: 0 is the alpha row of DDIM, 1 the small alpha row of DDPM.
inline StepCoefficients stochastic_ddim_coefficients(double stochasticity, double s, double next) {
  const double h = s - next, noise = -std::expm1(-2 * s), noise_next = -std::expm1(-2 * next);
  const double sigma = stochasticity * std::sqrt(-std::expm1(-2 * h) * noise_next / noise);
  return {std::exp(h), std::exp(h) * noise - std::sqrt(std::max(noise_next - sigma * sigma, 0.0) * noise), sigma};
}

/// A score that can work block by block: MixtureScore, and what has its members.
template <class S, class T>
concept BlockScore = requires(const S& score, std::string_view function, Index i, double t, const T* in, T* out) {
  { score.dim() } -> std::convertible_to<Index>;
  { score.slice_size() } -> std::convertible_to<Index>;
  { score.context_size() } -> std::convertible_to<Index>;
  { score.scratch_size() } -> std::convertible_to<Index>;
  score.check_samples(function, i);
  score.prepare(function, t, out);
  score.begin_block(i, i, out);
  score.evaluate_block(in, in, in, out, true, out);
};

namespace reference {

/// DDIM as the table of the paper's samplers has it, one sample after another. x: [N, d]; logdet: [N] or empty.
template <class Score>
void ddim_sample(Score&& score, View<double, 2> x, const TimeGrid& grid, Step step, View<double, 1> logdet = {}) {
  const Index n = x.extent(0), d = x.extent(1);
  Matrix<double> s(n, d), position = matrix(View<const double, 2>(x));
  Vector<double> divergence = Vector<double>::Zero(n), sum = Vector<double>::Zero(n);
  const auto dim = static_cast<double>(d);
  const auto ask = [&](const Matrix<double>& at, double t) {
    if constexpr (ScoreWithDivergence<Score, double>)
      if (!logdet.empty()) return score(View<const double, 2>(at), t, View<double, 2>(s), View<double, 1>(divergence));
    score(View<const double, 2>(at), t, View<double, 2>(s));
  };
  for (Index k = 0; k < grid.steps(); ++k) {
    const double from = grid[k], to = grid[k + 1], h = from - to;
    const auto slope = [&](const Matrix<double>& at, double t, Vector<double>& growth) -> Matrix<double> {
      ask(at, t);
      growth = dim + divergence.array();
      return at + s;
    };
    Vector<double> g1, g2, g3, g4;
    const Matrix<double> k1 = slope(position, from, g1);
    if (step == Step::euler) {
      position += h * k1;
      sum += h * g1;
    } else if (step == Step::heun) {
      const Matrix<double> k2 = slope(position + h * k1, to, g2);
      position += h / 2 * (k1 + k2);
      sum += h / 2 * (g1 + g2);
    } else if (step == Step::rk4) {
      const Matrix<double> k2 = slope(position + h / 2 * k1, from - h / 2, g2);
      const Matrix<double> k3 = slope(position + h / 2 * k2, from - h / 2, g3);
      const Matrix<double> k4 = slope(position + h * k3, to, g4);
      position += h / 6 * (k1 + 2 * k2 + 2 * k3 + k4);
      sum += h / 6 * (g1 + 2 * g2 + 2 * g3 + g4);
    } else {
      if (step == Step::exponential) {
        position = std::exp(h) * position + (std::exp(h) - 1) * s;
      } else {
        const double bar = alpha_bar_of_time(from), bar_next = alpha_bar_of_time(to);
        const Matrix<double> eps = -std::sqrt(1 - bar) * s;
        position = (std::sqrt(bar_next) / std::sqrt(bar) * (position - std::sqrt(1 - bar) * eps) +
                    std::sqrt(1 - bar_next) * eps)
                       .eval();
      }
      if (!logdet.empty()) ask(position, to);  // the trapezoidal rule
      sum += h / 2 * (g1.array() + dim + divergence.array()).matrix();
    }
  }
  matrix(x) = position;
  if (!logdet.empty()) vector(logdet) = sum;
}

/// DDPM. noise: [K, N, d].
template <class Score>
void ddpm_sample(Score&& score, View<double, 2> x, const TimeGrid& grid, Step step, View<const double, 3> noise,
                 AncestralVariance variance = AncestralVariance::small) {
  Matrix<double> s(x.extent(0), x.extent(1)), position = matrix(View<const double, 2>(x));
  for (Index k = 0; k < grid.steps(); ++k) {
    const double from = grid[k], to = grid[k + 1], h = from - to;
    const auto z = matrix(noise[k]);
    score(View<const double, 2>(position), from, View<double, 2>(s));
    if (step == Step::euler) {
      position = (position + h * (position + 2 * s) + std::sqrt(2 * h) * z).eval();
    } else if (step == Step::exponential) {
      position = (std::exp(h) * position + 2 * (std::exp(h) - 1) * s + std::sqrt(std::exp(2 * h) - 1) * z).eval();
    } else {
      const double bar = alpha_bar_of_time(from), bar_next = alpha_bar_of_time(to), alpha = bar / bar_next;
      const double beta = 1 - alpha, kept = variance == AncestralVariance::small ? (1 - bar_next) / (1 - bar) : 1;
      position = ((position + beta * s) / std::sqrt(alpha) + std::sqrt(beta * kept) * z).eval();
    }
  }
  matrix(x) = position;
}

}  // namespace reference

namespace detail {

/// Coefficients of all steps in the scalar of the samples, and the weight of every score in the log-determinant.
template <class T>
struct StepPlan {
  const TimeGrid& grid;
  Step step;
  T* coefficients;  ///< [steps + 1][4]: state, score, noise, weight

  static Index size(const TimeGrid& grid) { return 4 * (grid.steps() + 1); }
  bool runge_kutta() const { return step == Step::heun || step == Step::rk4; }
  /// Times at which scores are asked for: s_k, with the middles of the steps in between for rk4.
  Index times() const { return (step == Step::rk4 ? 2 : 1) * grid.steps() + 1; }
  double time(Index i) const {
    if (step != Step::rk4) return grid[i];
    return i % 2 == 0 ? grid[i / 2] : (grid[i / 2] + grid[i / 2 + 1]) / 2;
  }
  /// Heun and rk4 ask at the end of the last step, the others only for the trapezoidal rule of the log-determinant.
  Index used_times(bool logdet) const {
    return runge_kutta() || (logdet && step != Step::euler) ? times() : times() - 1;
  }

  template <class Of>
  void fill(Of&& of) const {
    const Index steps = grid.steps();
    coefficients[4 * steps + 3] = T(0);
    for (Index k = 0; k < steps; ++k) {
      const double h = grid[k] - grid[k + 1];
      T* const at = coefficients + 4 * k;
      if (!runge_kutta()) {
        const StepCoefficients c = of(grid[k], grid[k + 1]);
        at[0] = static_cast<T>(c.state), at[1] = static_cast<T>(c.score), at[2] = static_cast<T>(c.noise);
      }
      const double before = k == 0 ? 0 : grid[k - 1] - grid[k];
      at[3] = static_cast<T>(step == Step::euler ? h : (before + h) / 2);
    }
    if (step != Step::euler) coefficients[4 * steps + 3] = static_cast<T>((grid[steps - 1] - grid[steps]) / 2);
  }
};

/// Takes the samples of `blocks` blocks through all steps. state: [block][d rows, log-determinant][block_samples].
/// evaluate(i, state, out) writes scores, and divergences where the log-determinant is wanted, at time i of the plan.
/// draw(k, b, z) writes the noise of step k and block b. scratch: walk_scratch numbers.
template <class T>
Index walk_scratch(Index dim, Index blocks) {
  return numerics::runge_kutta_scratch(blocks * (dim + 1) * block_samples) + dim * block_samples;
}
template <class T, class Evaluate, class Draw>
void walk(const StepPlan<T>& plan, Index dim, Index blocks, bool logdet, Evaluate&& evaluate, Draw&& draw, T* state,
          T* scratch) {
  using V = simd::batch<T>;
  const Index rows = dim * block_samples, size = rows + block_samples, all = blocks * size;
  T* const out = scratch;
  T* const noise = scratch + numerics::runge_kutta_scratch(all);
  const V growth(static_cast<T>(dim));
  for (Index k = 0; k < plan.grid.steps(); ++k) {
    if (plan.runge_kutta()) {
      const double h = plan.grid[k] - plan.grid[k + 1];
      const auto slope = [&](double c, const T* at, T* to) {
        evaluate(plan.step == Step::rk4 ? 2 * k + static_cast<Index>(2 * c) : k + static_cast<Index>(c), at, to);
        for (Index b = 0; b < blocks; ++b, at += size, to += size) {
          for (Index i = 0; i < rows; i += simd::width<T>) simd::store(to + i, simd::load(at + i) + simd::load(to + i));
          for (Index i = rows; i < size; i += simd::width<T>)
            simd::store(to + i, logdet ? growth + simd::load(to + i) : V(T(0)));
        }
      };
      numerics::runge_kutta_step<T>(
          plan.step == Step::rk4 ? numerics::RungeKutta::classical : numerics::RungeKutta::heun, slope, h,
          std::span<T>(state, static_cast<std::size_t>(all)), std::span<T>(scratch, static_cast<std::size_t>(3 * all)));
      continue;
    }
    evaluate(k, static_cast<const T*>(state), out);
    const T* const c = plan.coefficients + 4 * k;
    const V keep(c[0]), add(c[1]), spread(c[2]), weight(c[3]);
    for (Index b = 0; b < blocks; ++b) {
      T* const x = state + b * size;
      const T* const s = out + b * size;
      if (c[2] != T(0)) {
        draw(k, b, noise);
        for (Index i = 0; i < rows; i += simd::width<T>)
          simd::store(x + i, simd::fma(spread, simd::load(noise + i),
                                       simd::fma(keep, simd::load(x + i), add * simd::load(s + i))));
      } else {
        for (Index i = 0; i < rows; i += simd::width<T>)
          simd::store(x + i, simd::fma(keep, simd::load(x + i), add * simd::load(s + i)));
      }
      if (logdet)
        for (Index i = rows; i < size; i += simd::width<T>)
          simd::store(x + i, simd::fma(weight, growth + simd::load(s + i), simd::load(x + i)));
    }
  }
  if (!logdet || plan.runge_kutta() || plan.step == Step::euler) return;
  evaluate(plan.grid.steps(), static_cast<const T*>(state), out);
  const V weight(plan.coefficients[4 * plan.grid.steps() + 3]);
  for (Index b = 0; b < blocks; ++b)
    for (Index i = b * size + rows; i < (b + 1) * size; i += simd::width<T>)
      simd::store(state + i, simd::fma(weight, growth + simd::load(out + i), simd::load(state + i)));
}

/// Samples between the caller's rows and a block. Lanes past the last sample hold zeros.
template <class T>
void load_block(View<const T, 2> x, Index first, T* to) {
  const Index here = std::min(block_samples, x.extent(0) - first);
  for (Index j = 0; j < x.extent(1); ++j) {
    T* const row = to + j * block_samples;
    for (Index i = 0; i < here; ++i) row[i] = x(first + i, j);
    std::fill(row + here, row + block_samples, T(0));
  }
}
template <class T>
void store_block(const T* from, Index first, View<T, 2> x) {
  const Index here = std::min(block_samples, x.extent(0) - first);
  for (Index j = 0; j < x.extent(1); ++j)
    for (Index i = 0; i < here; ++i) x(first + i, j) = from[j * block_samples + i];
}

/// The samplers' common body: checks, scratch, blocks. of(s, next) gives coefficients; draw as walk wants it, for
/// blocks of the whole batch.
template <class Score, class T, class Of, class Draw>
void sample(std::string_view function, Score& score, View<T, 2> x, const TimeGrid& grid, Step step, View<T, 1> logdet,
            Workspace& workspace, Of&& of, Draw&& draw) {
  const Index n = x.extent(0), d = x.extent(1), blocks = chunk_count(n, block_samples), size = (d + 1) * block_samples;
  check_argument(d >= 1, function, "the dimension of x", "at least 1", d);
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < d; ++j) check_argument(std::isfinite(x(i, j)), function, "x", "finite", x(i, j));
  const bool wants_logdet = !logdet.empty();
  if (wants_logdet) check_shape(function, "logdet", logdet.shape(), {n}, "one a sample");
  StepPlan<T> plan{grid, step, nullptr};
  const Index times = plan.used_times(wants_logdet), plan_size = StepPlan<T>::size(grid);
  if constexpr (BlockScore<std::remove_cvref_t<Score>, T>) {
    check_shape(function, "x", x.shape(), {n, score.dim()}, "points of the dimension of the score");
    score.check_samples(function, n);
    const Index slice = score.slice_size();
    const Index own = size + score.context_size() + score.scratch_size() + walk_scratch<T>(d, 1);
    plan.coefficients = workspace.reserve<T>(plan_size + times * slice + own * max_threads());
    T* const slices = plan.coefficients + plan_size;
    plan.fill(of);
    for (Index i = 0; i < times; ++i) score.prepare(function, plan.time(i), slices + i * slice);
    parallel_for(n, block_samples, [&](Index begin, Index end, int worker) {
      T* const state = slices + times * slice + own * worker;
      T* const context = state + size;
      T* const scratch = context + score.context_size();
      load_block(View<const T, 2>(x), begin, state);
      std::fill_n(state + d * block_samples, block_samples, T(0));
      score.begin_block(begin, end, context);
      const auto evaluate = [&](Index i, const T* at, T* out) {
        score.evaluate_block(slices + i * slice, context, at, out, wants_logdet, scratch);
      };
      const Index block = begin / block_samples;
      walk(
          plan, d, 1, wants_logdet, evaluate, [&](Index k, Index, T* z) { draw(k, block, z); }, state,
          scratch + score.scratch_size());
      store_block(state, begin, x);
      if (wants_logdet)
        for (Index i = begin; i < end; ++i) logdet[i] = state[d * block_samples + i - begin];
    });
  } else {
    static_assert(ScoreFunction<Score, T>, "a score is called as score(View<const T, 2> x, double t, View<T, 2> out)");
    if constexpr (!ScoreWithDivergence<Score, T>)
      require(!wants_logdet, function,
              "logdet needs a score that gives its divergence too: score(x, t, out, divergence)");
    plan.coefficients = workspace.reserve<T>(plan_size + blocks * size + 2 * n * d + n + walk_scratch<T>(d, blocks));
    plan.fill(of);
    T* const state = plan.coefficients + plan_size;
    T* const scratch = state + blocks * size;
    const View<T, 2> points(scratch + walk_scratch<T>(d, blocks), {n, d}), scores(points.data() + n * d, {n, d});
    const View<T, 1> divergences(scores.data() + n * d, {n});
    for (Index b = 0; b < blocks; ++b) {
      load_block(View<const T, 2>(x), b * block_samples, state + b * size);
      std::fill_n(state + b * size + d * block_samples, block_samples, T(0));
    }
    const auto evaluate = [&](Index i, const T* at, T* out) {
      if (n == 0) return;
      for (Index b = 0; b < blocks; ++b) store_block(at + b * size, b * block_samples, points);
      if constexpr (ScoreWithDivergence<Score, T>) {
        if (wants_logdet) score(View<const T, 2>(points), plan.time(i), scores, divergences);
      }
      if (!wants_logdet) score(View<const T, 2>(points), plan.time(i), scores);
      for (Index b = 0; b < blocks; ++b) {
        load_block(View<const T, 2>(scores), b * block_samples, out + b * size);
        if (wants_logdet)
          for (Index l = 0; l < block_samples; ++l)
            out[b * size + d * block_samples + l] = divergences[std::min(b * block_samples + l, n - 1)];
      }
    };
    walk(plan, d, blocks, wants_logdet, evaluate, draw, state, scratch);
    for (Index b = 0; b < blocks; ++b) store_block(state + b * size, b * block_samples, x);
    if (wants_logdet)
      for (Index i = 0; i < n; ++i) logdet[i] = state[i / block_samples * size + d * block_samples + i % block_samples];
  }
}

inline void check_stochastic(std::string_view function, Step step) {
  require(step != Step::heun && step != Step::rk4, function, "heun and rk4 are steps of the ODE alone");
}

/// Noise of block b and step k: numbers k rows .. (k + 1) rows of stream b, whole chunks at a time.
template <class T>
auto drawn_noise(const Rng& rng, Index dim) {
  return [rng, dim](Index k, Index block, T* z) {
    const Index count = dim * block_samples;
    const Rng stream = rng.split(static_cast<std::uint64_t>(block));
    Rng own(stream.seed(), stream.stream(), static_cast<std::uint64_t>(k) * numerics::normals_words(count));
    numerics::fill_normals<T>(own, std::span<T>(z, static_cast<std::size_t>(count)));
  };
}
template <class T>
auto given_noise(std::string_view function, View<const T, 3> noise, const TimeGrid& grid, View<T, 2> x) {
  check_shape(function, "noise", noise.shape(), {grid.steps(), x.extent(0), x.extent(1)},
              "a step, a sample, a dimension");
  require(!overlaps(noise, x), function, "noise overlaps x");
  return [noise](Index k, Index block, T* z) { load_block(noise[k], block * block_samples, z); };
}

}  // namespace detail

/// DDIM: the probability-flow ODE from grid[0] to the last time of the grid, x in place.
///
/// x: [N, d], float or double; usually standard normal, or GaussianMixture::sample at time grid[0]. logdet: [N] or
/// empty; becomes the integral of d + div score, so that log p(x at the end) = log p(x at the start) - logdet. It is
/// exact for the steps euler, heun and rk4 in the sense of the same quadrature, and by the trapezoidal rule
/// (approximate) for exponential and alpha. Allocates nothing once `workspace` has grown. Same bits for any number of
/// threads. Throws InvalidArgument for shapes that do not fit, x that is not finite, and as the score does; x is then
/// unchanged, unless a score function of the caller threw.
template <class Score, class X>
void ddim_sample(Score&& score, X&& x, const TimeGrid& grid, Step step, Out<X, 1> logdet, Workspace& workspace) {
  using T = scalar_t<X>;
  detail::sample<std::remove_reference_t<Score>, T>(
      "ddim_sample", score, Out<X, 2>(x), grid, step, logdet, workspace,
      [&](double s, double next) { return ddim_coefficients(step, s, next); }, [](Index, Index, T*) {});
}
template <class Score, class X>
void ddim_sample(Score&& score, X&& x, const TimeGrid& grid, Step step = Step::rk4, Out<X, 1> logdet = {}) {
  Workspace workspace;
  ddim_sample(score, x, grid, step, logdet, workspace);
}

/// DDPM: the reverse SDE, x in place, by an euler, exponential or alpha step. The generator moves on by one number; the
/// noise comes from streams split off there. Memory and errors as ddim_sample.
template <class Score, class X>
void ddpm_sample(Score&& score, X&& x, const TimeGrid& grid, Step step, Rng& rng, AncestralVariance variance,
                 Workspace& workspace) {
  using T = scalar_t<X>;
  detail::check_stochastic("ddpm_sample", step);
  const Out<X, 2> samples = x;
  detail::sample<std::remove_reference_t<Score>, T>(
      "ddpm_sample", score, samples, grid, step, {}, workspace,
      [&](double s, double next) { return ddpm_coefficients(step, s, next, variance); },
      detail::drawn_noise<T>(rng.split(rng.next64()), samples.extent(1)));
}
template <class Score, class X>
void ddpm_sample(Score&& score, X&& x, const TimeGrid& grid, Step step, Rng& rng,
                 AncestralVariance variance = AncestralVariance::small) {
  Workspace workspace;
  ddpm_sample(score, x, grid, step, rng, variance, workspace);
}

/// DDPM with the noise given: [K, N, d], standard normal.
template <class Score, class X>
void ddpm_sample(Score&& score, X&& x, const TimeGrid& grid, Step step, In<X, 3> noise, AncestralVariance variance,
                 Workspace& workspace) {
  using T = scalar_t<X>;
  detail::check_stochastic("ddpm_sample", step);
  const Out<X, 2> samples = x;
  detail::sample<std::remove_reference_t<Score>, T>(
      "ddpm_sample", score, samples, grid, step, {}, workspace,
      [&](double s, double next) { return ddpm_coefficients(step, s, next, variance); },
      detail::given_noise<T>("ddpm_sample", noise, grid, samples));
}
template <class Score, class X>
void ddpm_sample(Score&& score, X&& x, const TimeGrid& grid, Step step, In<X, 3> noise,
                 AncestralVariance variance = AncestralVariance::small) {
  Workspace workspace;
  ddpm_sample(score, x, grid, step, noise, variance, workspace);
}

/// Stochastic DDIM by alpha steps: stochasticity 0 is DDIM, 1 is DDPM with the small variance.
/// Throws InvalidArgument for a stochasticity outside [0, 1], and as ddim_sample.
template <class Score, class X>
void stochastic_ddim_sample(Score&& score, X&& x, const TimeGrid& grid, double stochasticity, Rng& rng) {
  using T = scalar_t<X>;
  constexpr auto function = "stochastic_ddim_sample";
  check_argument(stochasticity >= 0 && stochasticity <= 1, function, "stochasticity", "between 0 and 1", stochasticity);
  const Out<X, 2> samples = x;
  Workspace workspace;
  detail::sample<std::remove_reference_t<Score>, T>(
      function, score, samples, grid, Step::alpha, {}, workspace,
      [&](double s, double next) { return stochastic_ddim_coefficients(stochasticity, s, next); },
      detail::drawn_noise<T>(rng.split(rng.next64()), samples.extent(1)));
}

/// log p(x at the end) of ODE samples that began at `start` [N, d], standard normal: log N(start; 0, I) - logdet.
template <class X>
Vector<double> transported_log_density(const X& start, In<X, 1> logdet) {
  const In<X, 2> x = start;
  check_shape("transported_log_density", "logdet", logdet.shape(), {x.extent(0)}, "one a sample");
  Vector<double> out(x.extent(0));
  const double constant = static_cast<double>(x.extent(1)) * std::log(2 * std::numbers::pi) / 2;
  for (Index i = 0; i < out.size(); ++i)
    out[i] = -vector(x[i]).template cast<double>().squaredNorm() / 2 - constant - static_cast<double>(logdet[i]);
  return out;
}

}  // namespace ashlar::diffusion
