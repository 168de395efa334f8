// Kernels, their Gram blocks, and products with a Gram matrix that is never stored.
//
//   const linalg::RbfKernel kernel(linalg::median_heuristic(x));
//   Matrix<double> k = linalg::gram(kernel, x);                     // [n, n], exactly symmetric
//   Vector<double> f = linalg::kernel_product(kernel, x, y, c);     // k(x, y) c by tiles, O(1) memory a thread
//
// A kernel of the distance alone says what it makes of a batch of squared distances and is computed four rows and two
// batches at a time: the distances in registers, the exponential on top of them, one store. The roof is the rate of
// exponentials when points are short (d <= 20 or so), of multiply-adds when they are long. Any other kernel is a
// function of two points.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/workspace.hpp"

namespace ashlar::linalg {

/// k(x, y) = profile(|x - y|^2), the profile given for a batch of squared distances.
template <class K, class T>
concept RadialKernel = requires(const K& kernel, const simd::batch<T>& squared_distance) {
  { kernel.of_squared_distance(squared_distance) } -> std::same_as<simd::batch<T>>;
};

/// k(x, y) for any two points, as views of rank one. Symmetric and positive definite, which nobody checks.
template <class K, class T>
concept PointKernel = requires(const K& kernel, View<const T, 1> x, View<const T, 1> y) {
  { kernel(x, y) } -> std::convertible_to<T>;
};

template <class K, class T>
concept Kernel = RadialKernel<K, T> || PointKernel<K, T>;

/// offset + e^(-gamma |x - y|^2). A positive offset puts the constants into the space of functions.
class RbfKernel {
 public:
  explicit RbfKernel(double gamma, double offset = 0) : gamma_(gamma), offset_(offset) {
    check_argument(gamma > 0 && std::isfinite(gamma), "RbfKernel", "gamma", "positive and finite", gamma);
    check_argument(offset >= 0 && std::isfinite(offset), "RbfKernel", "offset", "at least 0 and finite", offset);
  }
  double gamma() const { return gamma_; }
  double offset() const { return offset_; }

  template <class V>
  V of_squared_distance(const V& squared_distance) const {
    using T = typename V::value_type;
    return simd::exp(squared_distance * V(static_cast<T>(-gamma_))) + V(static_cast<T>(offset_));
  }

 private:
  double gamma_, offset_;
};

/// A Gram matrix computed elsewhere. Points are then their row numbers: [n, 1] matrices of indices().
template <class T>
class PrecomputedKernel {
 public:
  /// gram: [n, n], symmetric; kept by reference.
  explicit PrecomputedKernel(View<const T, 2> gram) : gram_(gram) {
    check_shape("PrecomputedKernel", "gram", gram.shape(), {gram.extent(0), gram.extent(0)}, "a square");
  }
  T operator()(View<const T, 1> x, View<const T, 1> y) const { return gram_(at(x), at(y)); }

  /// The points begin, ..., end - 1.
  static Matrix<T> indices(Index begin, Index end) {
    Matrix<T> points(end - begin, 1);
    for (Index i = begin; i < end; ++i) points(i - begin, 0) = static_cast<T>(i);
    return points;
  }

 private:
  Index at(View<const T, 1> point) const {
    const T value = point[0];
    require(value >= 0 && value < static_cast<T>(gram_.extent(0)), "PrecomputedKernel",
            "every point must be an index below ", gram_.extent(0), ", got ", value);
    return static_cast<Index>(value);
  }
  View<const T, 2> gram_;
};

namespace detail {

inline constexpr Index tile_rows = 64, tile_columns = 512;  // 256 KiB of doubles: stays in second-level cache
inline constexpr int block_rows = 4, block_batches = 2;     // eight accumulators hide the latency of multiply-adds
template <class T>
inline constexpr Index panel_width = block_batches* simd::width<T>;

constexpr Index round_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Distances of four points to a panel of two batches, passed through the kernel. Distances come as
/// |x|^2 + |y|^2 - 2 x y; x arrives multiplied by -2. out: four rows, `stride` apart.
template <class T, class K>
void radial_block(const K& kernel, const T* x, const T* x_norms, const T* panel, const T* y_norms, Index dim, T* out,
                  Index stride) {
  constexpr Index width = simd::width<T>;
  using Batch = simd::batch<T>;
  Batch sum[block_rows][block_batches];
#pragma GCC unroll 4
  for (int r = 0; r < block_rows; ++r)
#pragma GCC unroll 2
    for (int b = 0; b < block_batches; ++b) sum[r][b] = Batch(x_norms[r]) + simd::load(y_norms + b * width);
  for (Index k = 0; k < dim; ++k) {
    Batch y[block_batches];
#pragma GCC unroll 2
    for (int b = 0; b < block_batches; ++b) y[b] = simd::load(panel + (k * block_batches + b) * width);
#pragma GCC unroll 4
    for (int r = 0; r < block_rows; ++r)
#pragma GCC unroll 2
      for (int b = 0; b < block_batches; ++b) sum[r][b] = simd::fma(Batch(x[r * dim + k]), y[b], sum[r][b]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < block_rows; ++r)
#pragma GCC unroll 2
    for (int b = 0; b < block_batches; ++b)
      simd::store(out + r * stride + b * width, kernel.of_squared_distance(xsimd::max(sum[r][b], Batch(T(0)))));
}

/// Points of one side, coordinate by coordinate in panels of two batches, moved so that their mean is the origin:
/// |x|^2 + |y|^2 - 2 x y cancels for points far from it.
template <class T>
class PackedPoints {
 public:
  explicit PackedPoints(View<const T, 2> points)
      : count_(points.extent(0)), dim_(points.extent(1)), shift_(matrix(points).colwise().mean().transpose()) {
    constexpr Index width = panel_width<T>;
    panels_ = Tensor<T>({round_up(count_, width) * dim_});
    norms_ = Tensor<T>({round_up(count_, width)});
    parallel_for(count_, 16 * width, [&](Index begin, Index end) {
      for (Index j = begin; j < end; ++j)
        for (Index k = 0; k < dim_; ++k) {
          const T value = points(j, k) - shift_[k];
          panels_.data()[(j / width * dim_ + k) * width + j % width] = value;
          norms_.data()[j] += value * value;
        }
    });
  }

  Index count() const { return count_; }
  Index dim() const { return dim_; }
  const T* panel(Index first) const { return panels_.data() + first * dim_; }  ///< first: a multiple of panel_width
  const T* norms(Index first) const { return norms_.data() + first; }

  /// Rows of the other side as radial_block wants them, four at least: moved, multiplied by -2, and their norms.
  void prepare(View<const T, 2> rows, T* prepared, T* norms) const {
    const Index padded = round_up(rows.extent(0), block_rows);
    for (Index i = 0; i < padded; ++i) {
      norms[i] = 0;
      for (Index k = 0; k < dim_; ++k) {
        const T value = i < rows.extent(0) ? rows(i, k) - shift_[k] : T(0);
        prepared[i * dim_ + k] = -2 * value;
        norms[i] += value * value;
      }
    }
  }

 private:
  Index count_, dim_;
  Vector<T> shift_;
  Tensor<T> panels_, norms_;
};

/// sums[r][v] += tile[r] . vectors[v] for four rows and up to two vectors at a time. Allocates nothing.
template <class T>
void tile_dots(const T* tile, Index stride, Index columns, const T* vectors, Index vector_stride, Index count, T* sums,
               Index rows) {
  constexpr Index width = simd::width<T>;
  using Batch = simd::batch<T>;
  for (Index v = 0; v < count; v += 2) {
    const T* first = vectors + v * vector_stride;
    const T* second = v + 1 < count ? first + vector_stride : first;
    for (Index r = 0; r < rows; r += block_rows) {
      const T* row = tile + r * stride;
      Batch sum[block_rows][2];
#pragma GCC unroll 4
      for (int i = 0; i < block_rows; ++i) sum[i][0] = sum[i][1] = Batch(T(0));
      for (Index j = 0; j < columns; j += width) {
        const Batch a = simd::load(first + j), b = simd::load(second + j);
#pragma GCC unroll 4
        for (int i = 0; i < block_rows; ++i) {
          const Batch k = simd::load(row + i * stride + j);
          sum[i][0] = simd::fma(k, a, sum[i][0]);
          sum[i][1] = simd::fma(k, b, sum[i][1]);
        }
      }
      for (int i = 0; i < block_rows; ++i) {
        sums[(r + i) * count + v] += simd::reduce_add(sum[i][0]);
        if (v + 1 < count) sums[(r + i) * count + v + 1] += simd::reduce_add(sum[i][1]);
      }
    }
  }
}

}  // namespace detail

/// A kernel together with the points on its right-hand side, packed once: gives Gram blocks k(x, points) and products
/// with them for any x. The forms that take a workspace allocate nothing once it has grown.
template <Real T, Kernel<T> K>
class KernelTiles {
 public:
  /// points: [n, d], copied. O(n d).
  KernelTiles(K kernel, View<const T, 2> points) : kernel_(std::move(kernel)), points_(points) {}

  Index count() const { return points_.count(); }
  Index dim() const { return points_.dim(); }
  const K& kernel() const { return kernel_; }

  /// out[i, j] = k(x_i, points_j). x: [m, d], out: [m, n]. O(m n d).
  void gram(View<const T, 2> x, View<T, 2> out, Workspace& workspace) const {
    check_points("KernelTiles::gram", x);
    check_shape("KernelTiles::gram", "out", out.shape(), {x.extent(0), count()}, "points of x by points packed");
    T* scratch = workspace.reserve<T>(max_threads() * worker_scratch(0));
    parallel_for(x.extent(0), detail::tile_rows, [&](Index begin, Index end, int worker) {
      fill_rows(x.slice(0, begin, end), out.slice(0, begin, end), count(), scratch + worker * worker_scratch(0));
    });
  }
  Matrix<T> gram(View<const T, 2> x) const {
    Matrix<T> out(x.extent(0), count());
    Workspace workspace;
    gram(x, out, workspace);
    return out;
  }

  /// out[i, j] = k(points_i, points_j), given the points packed once more. out: [n, n], contiguous along rows; exactly
  /// symmetric, and k(x, x) is that of a distance of exactly zero. Half the kernel evaluations of the above.
  void symmetric_gram(View<const T, 2> points, View<T, 2> out, Workspace& workspace) const {
    constexpr auto function = "KernelTiles::symmetric_gram";
    check_shape(function, "points", points.shape(), {count(), dim()}, "the points packed");
    check_shape(function, "out", out.shape(), {count(), count()}, "a square");
    require(count() <= 1 || out.stride(1) == 1, function, "the rows of out have gaps");
    T* scratch = workspace.reserve<T>(max_threads() * worker_scratch(0));
    parallel_for(count(), detail::tile_rows, [&](Index begin, Index end, int worker) {
      fill_rows(points.slice(0, begin, end), out.slice(0, begin, end), end, scratch + worker * worker_scratch(0));
      if constexpr (radial) {
        T diagonal[simd::batch<T>::size];
        simd::store(diagonal, kernel_.of_squared_distance(simd::batch<T>(T(0))));
        for (Index i = begin; i < end; ++i) out(i, i) = diagonal[0];
      }
      mirror_rows(out, begin, end);
    });
  }
  Matrix<T> symmetric_gram(View<const T, 2> points) const {
    Matrix<T> out(count(), count());
    Workspace workspace;
    symmetric_gram(points, out, workspace);
    return out;
  }

  /// out = k(x, points) coefficients, by tiles. coefficients: [n, vectors], out: [m, vectors].
  /// O(m n (d + vectors)). The order of the sums does not depend on threads.
  void multiply(View<const T, 2> x, View<const T, 2> coefficients, View<T, 2> out, Workspace& workspace) const {
    constexpr auto function = "KernelTiles::multiply";
    const Index vectors = coefficients.extent(1), padded = padded_count();
    check_points(function, x);
    check_shape(function, "coefficients", coefficients.shape(), {count(), vectors}, "one row a point packed");
    check_shape(function, "out", out.shape(), {x.extent(0), vectors}, "points of x by coefficient vectors");
    T* packed = workspace.reserve<T>(vectors * padded + max_threads() * worker_scratch(vectors));
    for (Index v = 0; v < vectors; ++v)
      for (Index j = 0; j < padded; ++j) packed[v * padded + j] = j < count() ? coefficients(j, v) : T(0);
    parallel_for(x.extent(0), detail::tile_rows, [&](Index begin, Index end, int worker) {
      T* own = packed + vectors * padded + worker * worker_scratch(vectors);
      multiply_rows(x.slice(0, begin, end), packed, vectors, out.slice(0, begin, end), own);
    });
  }
  Matrix<T> multiply(View<const T, 2> x, View<const T, 2> coefficients) const {
    Matrix<T> out(x.extent(0), coefficients.extent(1));
    Workspace workspace;
    multiply(x, coefficients, out, workspace);
    return out;
  }

 private:
  static constexpr bool radial = RadialKernel<K, T>;
  struct PlainPoints {
    explicit PlainPoints(View<const T, 2> points) : values(matrix(points)) {}
    Index count() const { return values.rows(); }
    Index dim() const { return values.cols(); }
    Matrix<T> values;
  };
  using Points = std::conditional_t<radial, detail::PackedPoints<T>, PlainPoints>;

  Index padded_count() const { return detail::round_up(count(), detail::panel_width<T>); }
  Index worker_scratch(Index vectors) const { return detail::tile_rows * (detail::tile_columns + dim() + 1 + vectors); }

  void check_points(std::string_view function, const View<const T, 2>& x) const {
    check_shape(function, "x", x.shape(), {x.extent(0), dim()}, "same dimension as the points packed");
  }
  /// k of up to 64 rows and the columns first <= j < last into a tile; columns past the last point hold anything
  /// finite.
  void fill_tile(View<const T, 2> x, Index first, Index last, T* tile, Index stride, const T* prepared,
                 const T* norms) const {
    if constexpr (radial) {
      // Along the rows, so that stores run through memory in order.
      for (Index i = 0; i < x.extent(0); i += detail::block_rows)
        for (Index j = first; j < last; j += detail::panel_width<T>)
          detail::radial_block(kernel_, prepared + i * dim(), norms + i, points_.panel(j), points_.norms(j), dim(),
                               tile + i * stride + (j - first), stride);
    } else {
      const View<const T, 2> y = points_.values;
      for (Index i = 0; i < detail::round_up(x.extent(0), detail::block_rows); ++i)
        for (Index j = first; j < detail::round_up(last, detail::panel_width<T>); ++j)
          tile[i * stride + (j - first)] = i < x.extent(0) && j < last ? static_cast<T>(kernel_(x[i], y[j])) : T(0);
    }
  }

  /// One tile after another of up to 64 rows: use(tile, first column, one past the last).
  template <class Use>
  void for_each_tile(View<const T, 2> x, Index columns, T* scratch, Use&& use) const {
    T* tile = scratch;
    T* norms = tile + detail::tile_rows * detail::tile_columns;
    T* prepared = norms + detail::tile_rows;
    if constexpr (radial) points_.prepare(x, prepared, norms);
    for (Index first = 0; first < columns; first += detail::tile_columns) {
      const Index last = std::min(columns, first + detail::tile_columns);
      fill_tile(x, first, last, tile, detail::tile_columns, prepared, norms);
      use(tile, first, last);
    }
  }

  /// The first `columns` of a few rows.
  void fill_rows(View<const T, 2> x, View<T, 2> out, Index columns, T* scratch) const {
    const bool straight = radial && out.stride(1) == 1 && x.extent(0) % detail::block_rows == 0;
    if (straight) {  // whole panels go to memory without a detour, the rest through the tile
      constexpr Index width = detail::panel_width<T>;
      const Index whole = columns / width * width;
      T* norms = scratch + detail::tile_rows * detail::tile_columns;
      T* prepared = norms + detail::tile_rows;
      if constexpr (radial) points_.prepare(x, prepared, norms);
      for (Index first = 0; first < whole; first += detail::tile_columns)
        fill_tile(x, first, std::min(whole, first + detail::tile_columns), out.data() + first, out.stride(0), prepared,
                  norms);
      if (whole == columns) return;
      fill_tile(x, whole, columns, scratch, width, prepared, norms);
      for (Index i = 0; i < x.extent(0); ++i)
        for (Index j = whole; j < columns; ++j) out(i, j) = scratch[i * width + (j - whole)];
      return;
    }
    for_each_tile(x, columns, scratch, [&](const T* tile, Index first, Index last) {
      for (Index i = 0; i < x.extent(0); ++i)
        for (Index j = first; j < last; ++j) out(i, j) = tile[i * detail::tile_columns + (j - first)];
    });
  }

  /// out[j, i] = out[i, j] for begin <= i < end and j < i, while the rows are in cache.
  static void mirror_rows(View<T, 2> out, Index begin, Index end) {
    constexpr Index width = simd::width<T>;
    const Index stride = out.stride(0), rows = (end - begin) / width * width;
    for (Index j = 0; j < begin; j += width)  // begin is a multiple of the width
      for (Index i = begin; i < begin + rows; i += width) simd::transpose_block(&out(i, j), stride, &out(j, i), stride);
    for (Index i = begin; i < end; ++i)
      for (Index j = i < begin + rows ? begin : 0; j < i; ++j) out(j, i) = out(i, j);
  }

  void multiply_rows(View<const T, 2> x, const T* packed, Index vectors, View<T, 2> out, T* scratch) const {
    const Index padded = padded_count();
    T* sums = scratch + detail::tile_rows * (detail::tile_columns + 1 + dim());
    std::fill_n(sums, detail::tile_rows * vectors, T(0));
    for_each_tile(x, count(), scratch, [&](const T* tile, Index first, Index last) {
      // Coefficients past the last point are zero.
      const Index columns = detail::round_up(last, detail::panel_width<T>) - first;
      detail::tile_dots(tile, detail::tile_columns, columns, packed + first, padded, vectors, sums,
                        detail::round_up(x.extent(0), detail::block_rows));
    });
    for (Index i = 0; i < x.extent(0); ++i)
      for (Index v = 0; v < vectors; ++v) out(i, v) = sums[i * vectors + v];
  }

  K kernel_;
  Points points_;
};

/// k(x_i, y_j). x: [m, d], y: [n, d]; the result is [m, n].
template <class K, class X>
requires Kernel<K, scalar_t<X>> Matrix<scalar_t<X>> gram(const K& kernel, const X& x, In<X, 2> y) {
  return KernelTiles<scalar_t<X>, K>(kernel, y).gram(x);
}

/// k(x_i, x_j), exactly symmetric, with k(x_i, x_i) of a distance of exactly zero.
template <class K, class X>
requires Kernel<K, scalar_t<X>> Matrix<scalar_t<X>> gram(const K& kernel, const X& x) {
  return KernelTiles<scalar_t<X>, K>(kernel, x).symmetric_gram(x);
}

/// k(x, y) c without storing k. c: [n]; the result is [m].
template <class K, class X>
requires Kernel<K, scalar_t<X>> Vector<scalar_t<X>> kernel_product(const K& kernel, const X& x, In<X, 2> y,
                                                                   In<X, 1> c) {
  const View<const scalar_t<X>, 2> column(c.data(), {c.extent(0), 1}, {c.stride(0), 1});
  return KernelTiles<scalar_t<X>, K>(kernel, y).multiply(x, column).col(0);
}

/// sum_j k(x_i, y_j), without storing k.
template <class K, class X>
requires Kernel<K, scalar_t<X>> Vector<scalar_t<X>> row_sums(const K& kernel, const X& x, In<X, 2> y) {
  return kernel_product(kernel, x, y, Vector<scalar_t<X>>::Ones(y.extent(0)).eval());
}

namespace detail {

/// use(squared distance) for every pair i < j of points with begin <= i < end, by differences, so that equal points
/// are exactly zero apart. coordinates: [d, n rounded up to a batch], one row a coordinate.
template <class T, class Use>
void pair_distances(const Matrix<T>& coordinates, Index n, Index begin, Index end, Use&& use) {
  constexpr Index width = simd::width<T>;
  for (Index i = begin; i < end; ++i)
    for (Index first = i / width * width; first < n; first += width) {
      simd::batch<T> sum(T(0));
      for (Index k = 0; k < coordinates.rows(); ++k) {
        const auto gap = simd::load(&coordinates(k, first)) - simd::batch<T>(coordinates(k, i));
        sum = simd::fma(gap, gap, sum);
      }
      T lanes[static_cast<std::size_t>(width)];
      simd::store(lanes, sum);
      for (Index j = std::max(first, i + 1); j < std::min(first + width, n); ++j) use(lanes[j - first]);
    }
}

}  // namespace detail

/// The median over pairs of distinct points of |x_i - x_j|^power, power 1 or 2; pairs at distance zero are left out.
/// O(n^2 d), two passes, without storing the distances. Kernels are usually given gamma = 1 / median.
/// Throws NumericalError when all points are identical.
template <class X>
double median_distance(const X& x, int power = 1) {
  using T = scalar_t<X>;
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  constexpr int shift = sizeof(T) * 8 - 16;  // a bin: sign, exponent and the first bits of the mantissa
  constexpr Index grain = 64;
  check_argument(power == 1 || power == 2, "median_distance", "power", "1 or 2", power);
  const In<X, 2> points = x;
  const Index n = points.extent(0), chunks = chunk_count(n, grain);
  Matrix<T> coordinates = Matrix<T>::Zero(points.extent(1), detail::round_up(n, simd::width<T>));
  coordinates.leftCols(n) = matrix(points).transpose();
  require(coordinates.allFinite(), "median_distance", "x has an entry that is not finite");

  const auto bin_of = [](T distance) { return static_cast<std::size_t>(std::bit_cast<Bits>(distance) >> shift); };
  std::vector<std::vector<Index>> counts(static_cast<std::size_t>(max_threads()), std::vector<Index>(1 << 16, 0));
  parallel_for(n, grain, [&](Index begin, Index end, int worker) {
    auto& own = counts[static_cast<std::size_t>(worker)];
    detail::pair_distances(coordinates, n, begin, end, [&](T distance) {
      if (distance > 0) ++own[bin_of(distance)];
    });
  });
  for (std::size_t worker = 1; worker < counts.size(); ++worker)
    for (std::size_t bin = 0; bin < counts[0].size(); ++bin) counts[0][bin] += counts[worker][bin];
  Index total = 0;
  for (const Index count : counts[0]) total += count;
  if (total == 0) throw NumericalError("median_distance: no two points differ, so there is no positive distance");

  // The middle one or two, by rank, and the bins they are in.
  const Index low_rank = (total - 1) / 2, high_rank = total / 2;
  std::size_t low_bin = 0;
  Index before = 0;  // distances in the bins below
  while (before + counts[0][low_bin] <= low_rank) before += counts[0][low_bin++];
  std::size_t high_bin = low_bin;
  for (Index through = before + counts[0][low_bin]; through <= high_rank; through += counts[0][high_bin]) ++high_bin;

  std::vector<std::vector<T>> found(static_cast<std::size_t>(chunks));
  parallel_for(n, grain, [&](Index begin, Index end) {
    auto& own = found[static_cast<std::size_t>(begin / grain)];
    detail::pair_distances(coordinates, n, begin, end, [&](T distance) {
      if (distance > 0 && bin_of(distance) >= low_bin && bin_of(distance) <= high_bin) own.push_back(distance);
    });
  });
  std::vector<T> middle;
  for (const auto& part : found) middle.insert(middle.end(), part.begin(), part.end());
  const auto ranked = [&](Index rank) {
    const auto at = middle.begin() + (rank - before);
    std::nth_element(middle.begin(), at, middle.end());
    const double squared = static_cast<double>(*at);
    return power == 1 ? std::sqrt(squared) : squared;
  };
  const double low = ranked(low_rank);
  return high_rank == low_rank ? low : (low + ranked(high_rank)) / 2;
}

/// gamma = 1 / median_distance: the bandwidth of the paper's code with power 1.
template <class X>
double median_heuristic(const X& x, int power = 1) {
  return 1 / median_distance(x, power);
}

}  // namespace ashlar::linalg
