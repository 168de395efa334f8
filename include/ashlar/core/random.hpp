// Rng: counter-based random numbers (Philox4x32-10) with our own distributions, so that a seed gives the same numbers
// with every standard library, instruction set and number of threads.
//
//   Rng rng(42);
//   double x = rng.normal();
//   Rng worker = rng.split(7);         // an independent stream; rng itself does not move
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar {

namespace detail {

/// Ten rounds of Philox: 128 random bits from a counter and a key.
ASHLAR_HOST_DEVICE constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                                     std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// sum coefficients[i] x^i with one rounding a step, the same on every target.
template <std::size_t N>
double polynomial(const double (&coefficients)[N], double x) {
  double sum = coefficients[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) sum = std::fma(sum, x, coefficients[i]);
  return sum;
}

/// ln x for normal x > 0, to about one unit in the last place. Standard libraries differ in the last bit; this does not.
inline double portable_log(double x) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  // x = 2^exponent m with m in [sqrt 1/2, sqrt 2)
  const std::uint64_t shifted = bits - std::bit_cast<std::uint64_t>(0.70710678118654752440);
  const auto exponent = static_cast<double>(static_cast<std::int64_t>(shifted) >> 52);
  const double m = std::bit_cast<double>(bits - (shifted & 0xFFF0000000000000u));
  // ln m = 2 atanh s, s = (m - 1)/(m + 1), |s| < 0.1716
  const double s = (m - 1) / (m + 1), s2 = s * s;
  static constexpr double odd[] = {1. / 3, 1. / 5, 1. / 7, 1. / 9, 1. / 11, 1. / 13, 1. / 15, 1. / 17, 1. / 19, 1. / 21};
  const double tail = s * (s2 * polynomial(odd, s2));
  return std::fma(exponent, 0.69314718055994530942, 2 * (s + tail));
}

/// Inverse of the standard normal distribution function, 0 < p < 1; relative error 1e-15.
/// Source: Wichura, "Algorithm AS 241", Applied Statistics 37 (1988).
inline double normal_quantile(double p) {
  static constexpr double a[] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                                 1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                                 3.3430575583588128105e4, 2.5090809287301226727e3};
  static constexpr double b[] = {1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
                                 2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
                                 5.2264952788528545610e3};
  static constexpr double c[] = {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
                                 3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
                                 2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static constexpr double d[] = {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
                                 1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
                                 1.05075007164441684324e-9};
  static constexpr double e[] = {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
                                 2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                 2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr double f[] = {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
                                 7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
                                 2.04426310338993978564e-15};
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = std::fma(-q, q, 0.180625);
    return q * (polynomial(a, r) / polynomial(b, r));
  }
  const double r = std::sqrt(-portable_log(q < 0 ? p : 1 - p));
  const double x = r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6) : polynomial(e, r - 5) / polynomial(f, r - 5);
  return q < 0 ? -x : x;
}

}  // namespace detail

/// A UniformRandomBitGenerator of 32-bit words. Its whole state is three integers: seed, stream, position.
class Rng {
 public:
  using result_type = std::uint32_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }

  explicit Rng(std::uint64_t seed = 0, std::uint64_t stream = 0, std::uint64_t position = 0)
      : seed_(seed), stream_(stream), position_(position) {
    if (position_ % 4 != 0) refill();
  }

  std::uint64_t seed() const { return seed_; }
  std::uint64_t stream() const { return stream_; }
  std::uint64_t position() const { return position_; }  ///< words drawn so far

  /// An independent stream for sample, layer or worker `id`. Does not depend on how much was drawn.
  Rng split(std::uint64_t id) const {
    const auto mixed = block(id, ~stream_);
    return Rng(seed_, mixed[0] | std::uint64_t{mixed[1]} << 32);
  }

  result_type operator()() {
    const auto lane = static_cast<std::size_t>(position_ % 4);
    if (lane == 0) refill();
    ++position_;
    return words_[lane];
  }

  std::uint64_t next64() {
    const std::uint64_t low = (*this)();
    return low | std::uint64_t{(*this)()} << 32;
  }

  /// Uniform on [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>(next64() >> 11) * 0x1p-53; }
  /// Uniform on [low, high).
  double uniform(double low, double high) {
    const double x = std::fma(high - low, uniform(), low);
    return x < high ? x : std::nextafter(high, low);  // rounding may reach the end
  }

  /// Standard normal.
  double normal() { return detail::normal_quantile((static_cast<double>(next64() >> 12) + 0.5) * 0x1p-52); }
  double normal(double mean, double deviation) { return std::fma(deviation, normal(), mean); }

  /// Uniform on 0 .. count-1, without bias.
  Index below(Index count) {
    check_argument(count >= 1, "Rng::below", "count", "at least 1", count);
    const std::uint64_t last = static_cast<std::uint64_t>(count) - 1;
    const std::uint64_t mask = last == 0 ? 0 : ~std::uint64_t{0} >> std::countl_zero(last);
    for (;;) {
      const std::uint64_t draw = (last >> 32 ? next64() : std::uint64_t{(*this)()}) & mask;
      if (draw <= last) return static_cast<Index>(draw);
    }
  }

  /// i with probability weights[i] / sum(weights). Weights and their sum are finite, not negative, not all zero.
  Index categorical(View<const double, 1> weights) {
    double total = 0;
    Index last = -1;
    for (Index i = 0; i < weights.extent(0); ++i) {
      check_argument(weights[i] >= 0 && std::isfinite(weights[i]), "Rng::categorical", "every weight",
                     "finite and not negative", weights[i]);
      if (weights[i] > 0) last = i;
      total += weights[i];
    }
    require(last >= 0, "Rng::categorical", "all weights are zero");
    require(std::isfinite(total), "Rng::categorical", "the sum of the weights overflows");
    double remaining = uniform() * total;
    for (Index i = 0; i < last; ++i) {
      remaining -= weights[i];
      if (remaining < 0) return i;
    }
    return last;
  }

  /// A uniformly random order of 0 .. count-1.
  std::vector<Index> permutation(Index count) {
    check_argument(count >= 0, "Rng::permutation", "count", "not negative", count);
    std::vector<Index> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), Index{0});
    for (Index i = count; i > 1; --i)
      std::swap(order[static_cast<std::size_t>(i - 1)], order[static_cast<std::size_t>(below(i))]);
    return order;
  }

  /// `count` distinct elements of 0 .. population-1, in random order.
  std::vector<Index> sample(Index population, Index count) {
    check_argument(count >= 0 && count <= population, "Rng::sample", "count", "between 0 and the population", count);
    auto order = permutation(population);
    order.resize(static_cast<std::size_t>(count));
    return order;
  }

 private:
  std::array<std::uint32_t, 4> block(std::uint64_t low, std::uint64_t high) const {
    return detail::philox4x32({static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                               static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)},
                              {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  }
  void refill() { words_ = block(position_ / 4, stream_); }

  std::uint64_t seed_, stream_, position_;
  std::array<std::uint32_t, 4> words_{};
};

/// Independent normal entries with mean zero, in row-major order.
template <Scalar T>
Matrix<T> normal_matrix(Rng& rng, Index rows, Index cols, double deviation = 1) {
  Matrix<T> x(rows, cols);
  for (Index i = 0; i < x.size(); ++i)
    x.data()[i] = from_float<T>(static_cast<accumulate_t<T>>(deviation * rng.normal()));
  return x;
}
template <Scalar T>
Tensor<T> normal_tensor(Rng& rng, const Shape& shape, double deviation = 1) {
  auto x = Tensor<T>::uninitialized(shape);
  for (Index i = 0; i < x.size(); ++i)
    x.data()[i] = from_float<T>(static_cast<accumulate_t<T>>(deviation * rng.normal()));
  return x;
}

}  // namespace ashlar
