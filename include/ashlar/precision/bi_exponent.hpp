// BiE: block floating point with two exponents a block, one for normal elements and one for outliers.
//
// Paper: Zou, Zhao, Yin, Bai, Sun, Yu, "BiE: Bi-Exponent Block Floating-Point for Large Language Models Quantization",
// ICML 2024. The paper publishes no code; field widths, rounding and packing are chosen here so that its memory figure
// comes out: 4-bit element + 1 selector bit + two 5-bit exponents for 16 elements = 5.625 bits, 16/5.625 = 2.84x.
//
//   value_i = (-1)^s_i q_i 2^(e_{t_i} - (M-1)),   t_i = 1 (outlier) iff |x_i| >= T,   0 <= q_i < 2^M, no hidden bit
//
//   auto w = quantize<BiE4>(weights, 0.25);           // T = 0.25, found by precision/threshold_search.hpp
//   Matrix<float> back = dequantize<float>(w);
//   auto best = quantize_adaptive<BiE4>(weights);     // its own T for every block; same format, nothing more stored
//   save("weights.bie", w);                           // precision/bi_exponent_file.hpp
//
// Blocks run along the columns; transpose to block the rows. Cost: one pass, bound by memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/block_formats.hpp"
#include "ashlar/precision/detail/bi_exponent_blocks.hpp"

namespace ashlar::precision {

struct BiExponentOptions {
  Rounding rounding = Rounding::nearest_even;
  Carry carry = Carry::saturate;
  bool saturate_infinity = false;  ///< take an infinity for the largest number of the format instead of throwing
};

/// N elements of sign, selector and M magnitude bits, and two exponents of E bits.
template <int N = 16, int M = 3, int E = 5>
struct BiExponent {
  static_assert(N >= 1 && N <= 1024 && M >= 1 && M <= 7 && E >= 2 && E <= 8);
  static constexpr int block = N, magnitude_bits = M, exponent_bits = E;
  static constexpr int bias = (1 << (E - 1)) - 1;
  static constexpr int min_exponent = -bias, max_exponent = E == 8 ? 127 : 1 << (E - 1);
  static constexpr int max_magnitude = (1 << M) - 1;
  static constexpr int sign_code = M <= 3 ? 8 : 128;  ///< beside the magnitude, in a nibble or a byte
  static constexpr double bits_per_element = 1 + M + 1 + 2.0 * E / N;

  // Packed, a block is two elements to a byte (the even one low) or one, a mask (bit i: element i is an outlier), and
  // a 16-bit word (e_0 + bias) | (e_1 + bias) << E. Little-endian.
  static constexpr Index element_bytes = detail::packed_bytes(M + 1, N), selector_bytes = (N + 7) / 8,
                         exponent_bytes = 2;
  static constexpr double packed_bits_per_element = 8.0 * (element_bytes + selector_bytes + exponent_bytes) / N;

  /// Largest finite number, (2 - 2^(1-M)) 2^max_exponent.
  static constexpr double largest() {
    return max_magnitude * detail::power_of_two<double>(max_exponent - (M - 1));
  }
};

using BiE4 = BiExponent<16, 3, 5>;   ///< the paper's format, for FP16 sources
using BiE8 = BiExponent<32, 7, 8>;   ///< wide: the exponent range of float

template <class F>
inline constexpr bool is_bi_exponent = false;
template <int N, int M, int E>
inline constexpr bool is_bi_exponent<BiExponent<N, M, E>> = true;
template <class F>
concept BiExponentFormat = is_bi_exponent<F>;

/// One block, unpacked.
template <BiExponentFormat F>
struct BiExponentBlock {
  std::array<std::int16_t, static_cast<std::size_t>(F::block)> value{};  ///< +-q
  std::array<bool, static_cast<std::size_t>(F::block)> outlier{};
  std::array<int, 2> exponent{F::min_exponent, F::min_exponent};  ///< of the normal elements, of the outliers

  friend bool operator==(const BiExponentBlock&, const BiExponentBlock&) = default;
};

/// One packed block where it lies.
template <BiExponentFormat F>
struct BiExponentBytes {
  const std::uint8_t *elements, *selectors, *exponents;

  constexpr int code(Index i) const { return static_cast<int>(detail::get_code(elements, F::magnitude_bits + 1, i)); }
  /// +-q
  constexpr int value(Index i) const {
    const int q = code(i) & F::max_magnitude;
    return code(i) & F::sign_code ? -q : q;
  }
  constexpr bool outlier(Index i) const { return selectors[i / 8] >> (i % 8) & 1; }
  constexpr int exponent(bool of_outliers) const {
    const int both = exponents[0] | exponents[1] << 8;
    return ((of_outliers ? both >> F::exponent_bits : both) & ((1 << F::exponent_bits) - 1)) - F::bias;
  }

  template <Real T, class Store>
  void decode(Index count, Store&& store) const {
    const T unit[2] = {detail::power_of_two<T>(exponent(false) - (F::magnitude_bits - 1)),
                       detail::power_of_two<T>(exponent(true) - (F::magnitude_bits - 1))};
    for (Index i = 0; i < count; ++i) store(i, static_cast<T>(value(i)) * unit[outlier(i)]);
  }

  BiExponentBlock<F> unpack() const {
    BiExponentBlock<F> block;
    for (std::size_t i = 0; i < static_cast<std::size_t>(F::block); ++i) {
      block.value[i] = static_cast<std::int16_t>(value(static_cast<Index>(i)));
      block.outlier[i] = outlier(static_cast<Index>(i));
    }
    block.exponent = {exponent(false), exponent(true)};
    return block;
  }
};

/// The packed form of `block`, into memory for F::element_bytes, F::selector_bytes and F::exponent_bytes.
template <BiExponentFormat F>
void pack(const BiExponentBlock<F>& block, std::uint8_t* elements, std::uint8_t* selectors, std::uint8_t* exponents) {
  std::fill_n(selectors, F::selector_bytes, std::uint8_t{0});
  for (Index i = 0; i < F::block; ++i) {
    const int value = block.value[static_cast<std::size_t>(i)];
    detail::put_code(elements, F::magnitude_bits + 1, i,
                     static_cast<unsigned>(value < 0 ? -value | F::sign_code : value));
    if (block.outlier[static_cast<std::size_t>(i)])
      selectors[i / 8] = static_cast<std::uint8_t>(selectors[i / 8] | 1u << (i % 8));
  }
  const int both = (block.exponent[0] + F::bias) | (block.exponent[1] + F::bias) << F::exponent_bits;
  exponents[0] = static_cast<std::uint8_t>(both & 255);
  exponents[1] = static_cast<std::uint8_t>(both >> 8);
}

namespace detail {

/// `count` packed blocks into contiguous numbers.
template <BiExponentFormat F, Real T>
void decode_blocks(const std::uint8_t* elements, const std::uint8_t* selectors, const std::uint8_t* exponents,
                   Index count, T* to) {
#if defined(ASHLAR_BI_EXPONENT_AVX512) || defined(ASHLAR_BI_EXPONENT_AVX2)
  if constexpr (std::is_same_v<T, float> && fits_registers<F> && F::magnitude_bits <= 3)
    return decode_run<F>(elements, selectors, exponents, count, to);
#endif
  for (Index b = 0; b < count; ++b, to += F::block)
    BiExponentBytes<F>{elements + b * F::element_bytes, selectors + b * F::selector_bytes,
                       exponents + b * F::exponent_bytes}
        .template decode<T>(F::block, [&](Index k, T value) { to[k] = value; });
}

}  // namespace detail

/// rows x cols numbers as three planes of bytes: elements, selectors, exponents. Blocks of a row lie side by side.
template <BiExponentFormat F>
class BiExponentMatrix {
 public:
  using format = F;

  BiExponentMatrix() = default;
  /// Zeros.
  BiExponentMatrix(Index rows, Index cols) : BiExponentMatrix(rows, cols, [](const Shape& s) { return Plane(s); }) {}
  /// Memory that the caller is about to overwrite entirely.
  static BiExponentMatrix uninitialized(Index rows, Index cols) {
    return BiExponentMatrix(rows, cols, [](const Shape& s) { return Plane::uninitialized(s); });
  }

  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  Index blocks() const { return blocks_; }  ///< in a row
  static constexpr Index block_size() { return F::block; }
  static constexpr double bits_per_element() { return F::bits_per_element; }
  Rounding rounding = Rounding::nearest_even;  ///< how it was made; a note for files

  std::uint8_t* elements(Index row, Index b) { return at(elements_, F::element_bytes, row, b); }
  std::uint8_t* selectors(Index row, Index b) { return at(selectors_, F::selector_bytes, row, b); }
  std::uint8_t* exponents(Index row, Index b) { return at(exponents_, F::exponent_bytes, row, b); }
  const std::uint8_t* elements(Index row, Index b) const { return at(elements_, F::element_bytes, row, b); }
  const std::uint8_t* selectors(Index row, Index b) const { return at(selectors_, F::selector_bytes, row, b); }
  const std::uint8_t* exponents(Index row, Index b) const { return at(exponents_, F::exponent_bytes, row, b); }

  /// The three planes, [rows, bytes of a row] each.
  std::array<std::span<std::uint8_t>, 3> planes() { return {span(elements_), span(selectors_), span(exponents_)}; }
  std::array<std::span<const std::uint8_t>, 3> planes() const {
    return {span(elements_), span(selectors_), span(exponents_)};
  }

  /// Looks into this matrix, so not into a temporary one.
  BiExponentBytes<F> block(Index row, Index b) const& {
    return {elements(row, b), selectors(row, b), exponents(row, b)};
  }
  BiExponentBytes<F> block(Index row, Index b) && = delete;
  void set_block(Index row, Index b, const BiExponentBlock<F>& from) {
    pack(from, elements(row, b), selectors(row, b), exponents(row, b));
  }

  template <Real T, class Store>
  void decode_block(Index row, Index b, Index count, Store&& store) const {
    block(row, b).template decode<T>(count, store);
  }

  /// The whole blocks of a row into contiguous numbers; returns how many blocks.
  template <Real T>
  Index decode_whole_blocks(Index row, T* to) const {
    const Index count = cols_ / F::block;
    detail::decode_blocks<F>(elements(row, 0), selectors(row, 0), exponents(row, 0), count, to);
    return count;
  }

 private:
  using Plane = Tensor<std::uint8_t>;

  template <class Make>
  BiExponentMatrix(Index rows, Index cols, Make make)
      : rows_(rows), cols_(cols), blocks_(detail::ceil_div(cols, F::block)),
        elements_(make({rows, blocks_ * F::element_bytes})), selectors_(make({rows, blocks_ * F::selector_bytes})),
        exponents_(make({rows, blocks_ * F::exponent_bytes})) {}

  template <class P>
  auto at(P& plane, Index bytes, Index row, Index b) const {
    return plane.data() + (row * blocks_ + b) * bytes;
  }
  static std::span<std::uint8_t> span(Plane& plane) { return {plane.data(), static_cast<std::size_t>(plane.size())}; }
  static std::span<const std::uint8_t> span(const Plane& plane) {
    return {plane.data(), static_cast<std::size_t>(plane.size())};
  }

  Index rows_ = 0, cols_ = 0, blocks_ = 0;
  Plane elements_, selectors_, exponents_;
};

namespace detail {

/// The smallest T that is not below `threshold`: |x| >= threshold decides the same in T as in double.
template <Real T>
T round_threshold(double threshold) {
  const T nearest = static_cast<T>(threshold);
  constexpr T infinity = std::numeric_limits<T>::infinity();
  return static_cast<double>(nearest) < threshold ? std::nextafter(nearest, infinity) : nearest;
}

inline void check_threshold(double threshold, std::string_view function) {
  check_argument(threshold >= 0, function, "threshold", "not negative and not NaN", threshold);
}
inline void check_options(const BiExponentOptions& options, std::string_view function) {
  require(options.rounding == Rounding::nearest_even || options.carry == Carry::saturate, function,
          "Carry::bump_exponent needs Rounding::nearest_even: truncation never carries");
}

/// Calls f with the encoder that the options ask for.
template <BiExponentFormat F, Real T, class Path, class Function>
void with_encoder(Path, const BiExponentOptions& options, Function&& f) {
  if (options.rounding == Rounding::truncate)
    f(Encoder<F, Rounding::truncate, Carry::saturate, Path, T>{});
  else if (options.carry == Carry::bump_exponent)
    f(Encoder<F, Rounding::nearest_even, Carry::bump_exponent, Path, T>{});
  else
    f(Encoder<F, Rounding::nearest_even, Carry::saturate, Path, T>{});
}

/// Calls f(first block, count, values) for the runs of at most Encoder::blocks blocks of row i: contiguous numbers,
/// zero padded to a whole run, with infinities replaced by the largest number of the format if the options say so.
template <BiExponentFormat F, class Encoder, class T, class Function>
void for_each_run(const View<const T, 2>& x, Index i, bool saturate_infinity, Function&& f) {
  using A = accumulate_t<T>;
  constexpr Index run = Encoder::blocks * F::block;
  std::array<A, static_cast<std::size_t>(run)> buffer;
  for (Index begin = 0; begin < x.extent(1); begin += run) {
    const Index count = std::min(run, x.extent(1) - begin);
    if constexpr (Real<T>)
      if (count == run && x.stride(1) == 1 && !saturate_infinity) {
        f(begin / F::block, Encoder::blocks, &x(i, begin));
        continue;
      }
    buffer.fill(0);
    for (Index k = 0; k < count; ++k) {
      const A value = to_float(x(i, begin + k));
      buffer[static_cast<std::size_t>(k)] =
          saturate_infinity && std::isinf(value) ? std::copysign(static_cast<A>(F::largest()), value) : value;
    }
    f(begin / F::block, ceil_div(count, F::block), static_cast<const A*>(buffer.data()));
  }
}

/// Memory for a run of packed blocks.
template <BiExponentFormat F, Index Blocks>
struct PackedRun {
  std::uint8_t elements[Blocks * F::element_bytes], selectors[Blocks * F::selector_bytes],
      exponents[Blocks * F::exponent_bytes];
};

template <BiExponentFormat F, class Path, class T>
void encode(Path path, const View<const T, 2>& x, double threshold, const BiExponentOptions& options,
            BiExponentMatrix<F>& packed) {
  using A = accumulate_t<T>;
  const auto limit = round_threshold<A>(threshold);
  with_encoder<F, A>(path, options, [&]<class Encoder>(Encoder encoder) {
    parallel_for(x.extent(0), row_grain(x.extent(1)), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        for_each_run<F, Encoder>(x, i, options.saturate_infinity, [&](Index b, Index count, const A* values) {
          std::uint8_t *elements = packed.elements(i, b), *selectors = packed.selectors(i, b),
                       *exponents = packed.exponents(i, b);
          bool finite;
          if (count == encoder.blocks) {
            finite = encoder.run(values, limit, elements, selectors, exponents);
          } else {  // a run would write past the row
            PackedRun<F, Encoder::blocks> run;
            finite = encoder.run(values, limit, run.elements, run.selectors, run.exponents);
            std::copy_n(run.elements, count * F::element_bytes, elements);
            std::copy_n(run.selectors, count * F::selector_bytes, selectors);
            std::copy_n(run.exponents, count * F::exponent_bytes, exponents);
          }
          if (!finite) [[unlikely]] check_finite(x, "quantize", options.saturate_infinity);
        });
    });
  });
  packed.rounding = options.rounding;
}

}  // namespace detail

// ---- Encoding ---------------------------------------------------------------------------------------------------

/// Quantises the rows of x: [rows, cols]. Elements with |x| >= threshold are outliers; infinity leaves none (plain
/// BFP), 0 makes all outliers. Throws InvalidArgument for a negative or NaN threshold, NumericalError for non-finite x.
template <BiExponentFormat F, class X>
BiExponentMatrix<F> quantize(const X& x, double threshold, const BiExponentOptions& options = {}) {
  detail::check_threshold(threshold, "quantize");
  detail::check_options(options, "quantize");
  const In<X, 2> view = x;
  auto packed = BiExponentMatrix<F>::uninitialized(view.extent(0), view.extent(1));
  detail::encode(detail::Native{}, view, threshold, options, packed);
  return packed;
}

/// The same into a matrix of the right shape. Allocates nothing; looks for non-finite x before it writes.
template <BiExponentFormat F, class X>
void quantize(const X& x, double threshold, BiExponentMatrix<F>& packed, const BiExponentOptions& options = {}) {
  detail::check_threshold(threshold, "quantize");
  detail::check_options(options, "quantize");
  const In<X, 2> view = x;
  check_shape("quantize", "packed", std::array<Index, 2>{packed.rows(), packed.cols()}, view.shape(), "the shape of x");
  detail::check_finite(view, "quantize", options.saturate_infinity);
  detail::encode(detail::Native{}, view, threshold, options, packed);
}

/// decode(encode(x)) into out: [rows, cols], which may be x itself. Allocates nothing.
template <BiExponentFormat F, class X>
void fake_quantize(const X& x, double threshold, Out<X, 2> out, const BiExponentOptions& options = {}) {
  using A = accumulate_t<scalar_t<X>>;
  detail::check_threshold(threshold, "fake_quantize");
  detail::check_options(options, "fake_quantize");
  const In<X, 2> view = x;
  check_shape("fake_quantize", "out", out.shape(), view.shape(), "the shape of x");
  require(!overlaps(view, out) || same_memory(view, out), "fake_quantize", "out overlaps x without being x");
  detail::check_finite(view, "fake_quantize", options.saturate_infinity);
  const auto limit = detail::round_threshold<A>(threshold);
  detail::with_encoder<F, A>(detail::Native{}, options, [&]<class Encoder>(Encoder encoder) {
    parallel_for(view.extent(0), detail::row_grain(view.extent(1)), [&](Index begin, Index end) {
      detail::PackedRun<F, Encoder::blocks> run;
      std::array<A, static_cast<std::size_t>(Encoder::blocks * F::block)> decoded;
      for (Index i = begin; i < end; ++i)
        detail::for_each_run<F, Encoder>(view, i, options.saturate_infinity, [&](Index b, Index, const A* values) {
          encoder.run(values, limit, run.elements, run.selectors, run.exponents);
          detail::decode_blocks<F>(run.elements, run.selectors, run.exponents, Encoder::blocks, decoded.data());
          const Index first = b * F::block, count = std::min(Encoder::blocks * F::block, view.extent(1) - first);
          for (Index k = 0; k < count; ++k)
            out(i, first + k) = from_float<scalar_t<X>>(decoded[static_cast<std::size_t>(k)]);
        });
    });
  });
}
template <BiExponentFormat F, class X>
Matrix<scalar_t<X>> fake_quantize(const X& x, double threshold, const BiExponentOptions& options = {}) {
  const In<X, 2> view = x;
  Matrix<scalar_t<X>> out(view.extent(0), view.extent(1));
  fake_quantize<F>(view, threshold, View<scalar_t<X>, 2>(out), options);
  return out;
}

// ---- A threshold for every block --------------------------------------------------------------------------------

namespace reference {

/// floor(log2) of the largest element of each group, clamped to the format; an empty or zero group has the smallest.
template <BiExponentFormat F>
BiExponentBlock<F> encode(const double* x, double threshold, const BiExponentOptions& options = {}) {
  constexpr auto n = static_cast<std::size_t>(F::block);
  constexpr int M = F::magnitude_bits;
  BiExponentBlock<F> block;
  int top[2] = {-100000, -100000};
  for (std::size_t i = 0; i < n; ++i) {
    block.outlier[i] = std::abs(x[i]) >= threshold;  // >= and not >: an outlier that rounds down to T stays one
    top[block.outlier[i]] = std::max(top[block.outlier[i]], floor_log2(x[i]));
  }
  for (std::size_t g = 0; g < 2; ++g) block.exponent[g] = std::clamp(top[g], F::min_exponent, F::max_exponent);
  if (options.carry == Carry::bump_exponent) {
    bool carried[2] = {false, false};
    for (std::size_t i = 0; i < n; ++i)
      carried[block.outlier[i]] |=
          std::nearbyint(std::ldexp(std::abs(x[i]), M - 1 - block.exponent[block.outlier[i]])) > F::max_magnitude;
    for (std::size_t g = 0; g < 2; ++g)
      block.exponent[g] = std::min(block.exponent[g] + (carried[g] ? 1 : 0), F::max_exponent);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const int q = magnitude(x[i], block.exponent[block.outlier[i]], M, options.rounding);
    block.value[i] = static_cast<std::int16_t>(x[i] < 0 ? -q : q);
  }
  return block;
}

/// value_i = +-q_i 2^(e_{t_i} - (M-1))
template <BiExponentFormat F>
double decode(const BiExponentBlock<F>& block, std::size_t i) {
  return std::ldexp(block.value[i], block.exponent[block.outlier[i]] - (F::magnitude_bits - 1));
}

/// Sum of squared errors of one block, in double.
template <BiExponentFormat F>
double squared_error(const double* x, double threshold) {
  const auto block = encode<F>(x, threshold);
  double sum = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(F::block); ++i) {
    const double gap = decode(block, i) - x[i];
    sum += gap * gap;
  }
  return sum;
}

/// The best of T_d = 2^(e_max + 1 - d), d = 0 .. e_max - e_low, by squared error; ties to the smaller d, which has
/// fewer outliers. d = 0 is plain BFP. Infinity for a zero block.
template <BiExponentFormat F>
double adaptive_threshold(const double* x) {
  int high = -100000, low = 100000;
  for (int i = 0; i < F::block; ++i)
    if (x[i] != 0) high = std::max(high, floor_log2(x[i])), low = std::min(low, floor_log2(x[i]));
  double best = std::numeric_limits<double>::infinity(), best_error = best;
  for (int d = 0; d <= high - low; ++d) {
    const double threshold = std::ldexp(1.0, high + 1 - d), error = squared_error<F>(x, threshold);
    if (error < best_error) best = threshold, best_error = error;
  }
  return best;
}

/// Calls f(row, block, values) for every block of x, in double and zero padded.
template <BiExponentFormat F, class X, class Function>
void for_each_block(const X& x, Function&& f) {
  const In<X, 2> view = x;
  for (Index i = 0; i < view.extent(0); ++i)
    for (Index begin = 0; begin < view.extent(1); begin += F::block) {
      std::array<double, static_cast<std::size_t>(F::block)> values{};
      for (Index k = 0; k < F::block && begin + k < view.extent(1); ++k)
        values[static_cast<std::size_t>(k)] = to_float(view(i, begin + k));
      f(i, begin / F::block, values.data());
    }
}

template <BiExponentFormat F, class X>
BiExponentMatrix<F> quantize(const X& x, double threshold, const BiExponentOptions& options = {}) {
  const In<X, 2> view = x;
  BiExponentMatrix<F> packed(view.extent(0), view.extent(1));
  for_each_block<F>(x, [&](Index row, Index b, const double* values) {
    packed.set_block(row, b, encode<F>(values, threshold, options));
  });
  packed.rounding = options.rounding;
  return packed;
}

template <BiExponentFormat F, class X>
Matrix<double> adaptive_thresholds(const X& x) {
  const In<X, 2> view = x;
  Matrix<double> thresholds(view.extent(0), detail::ceil_div(view.extent(1), F::block));
  for_each_block<F>(x, [&](Index row, Index b, const double* values) {
    thresholds(row, b) = adaptive_threshold<F>(values);
  });
  return thresholds;
}

}  // namespace reference

namespace detail {

/// reference::adaptive_threshold, trying only the T_d that split the block differently: one for every exponent that
/// occurs, so at most one an element.
template <BiExponentFormat F>
double adaptive_threshold(const double* x) {
  constexpr auto n = static_cast<std::size_t>(F::block);
  std::array<int, n> levels;
  std::size_t count = 0;
  for (std::size_t i = 0; i < n; ++i)
    if (x[i] != 0) levels[count++] = reference::floor_log2(x[i]);
  const auto end = levels.begin() + static_cast<std::ptrdiff_t>(count);
  std::sort(levels.begin(), end, std::greater<>());
  const auto distinct = static_cast<std::size_t>(std::unique(levels.begin(), end) - levels.begin());

  double best = std::numeric_limits<double>::infinity(), best_error = best;
  std::uint8_t elements[F::element_bytes], selectors[F::selector_bytes], exponents[F::exponent_bytes];
  for (std::size_t split = 0; split < distinct; ++split) {
    const double threshold = std::ldexp(1.0, split == 0 ? levels[0] + 1 : levels[split - 1]);
    encode_block<F, Rounding::nearest_even, Carry::saturate>(x, threshold, elements, selectors, exponents);
    double error = 0;
    BiExponentBytes<F>{elements, selectors, exponents}.template decode<double>(F::block, [&](Index i, double value) {
      error += (value - x[i]) * (value - x[i]);
    });
    if (error < best_error) best = threshold, best_error = error;
  }
  return best;
}

/// Calls f(row, block, values, threshold) for every block with its own best threshold.
template <BiExponentFormat F, class T, class Function>
void for_each_adaptive_block(const View<const T, 2>& x, Function&& f) {
  constexpr auto n = static_cast<std::size_t>(F::block);
  parallel_for(x.extent(0), std::max<Index>(1, row_grain(x.extent(1)) / 8), [&](Index begin, Index end) {
    std::array<accumulate_t<T>, n> buffer;
    std::array<double, n> values;
    for (Index i = begin; i < end; ++i)
      for_each_block(x, i, F::block, buffer.data(), [&](Index b, const accumulate_t<T>* block) {
        std::copy_n(block, n, values.begin());
        f(i, b, values.data(), adaptive_threshold<F>(values.data()));
      });
  });
}

}  // namespace detail

/// The power-of-two threshold of every block that leaves it the least squared error: [rows, blocks of a row].
template <BiExponentFormat F, class X>
Matrix<double> adaptive_thresholds(const X& x) {
  const In<X, 2> view = x;
  detail::check_finite(view, "adaptive_thresholds");
  Matrix<double> thresholds(view.extent(0), detail::ceil_div(view.extent(1), F::block));
  detail::for_each_adaptive_block<F>(
      view, [&](Index row, Index b, const double*, double threshold) { thresholds(row, b) = threshold; });
  return thresholds;
}

/// Quantises every block with its own threshold. Nothing more is stored, so only the encoder pays (about thirty times
/// quantize): for weights. No block has a larger squared error than under any one power-of-two threshold.
template <BiExponentFormat F, class X>
BiExponentMatrix<F> quantize_adaptive(const X& x) {
  const In<X, 2> view = x;
  detail::check_finite(view, "quantize_adaptive");
  auto packed = BiExponentMatrix<F>::uninitialized(view.extent(0), view.extent(1));
  detail::for_each_adaptive_block<F>(view, [&](Index row, Index b, const double* values, double threshold) {
    detail::encode_block<F, Rounding::nearest_even, Carry::saturate>(
        values, threshold, packed.elements(row, b), packed.selectors(row, b), packed.exponents(row, b));
  });
  return packed;
}

}  // namespace ashlar::precision
