// Functions of one, two or three tensors element by element, a vector at a time, with broadcasting for two.
//
//   functional::map(y, [](auto x) { return x * x; }, x);                      // y = x^2, all of one shape
//   functional::broadcast(y, [](auto a, auto b) { return a + b; }, rows, bias);
//
// Broadcasting is NumPy's: shapes are aligned at the last axis, and an axis of extent 1, or one that is missing,
// repeats. Roof: copy bandwidth, unless f computes exponentials. The same bits for any number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::functional {

inline constexpr Index elementwise_grain = 16384;

namespace detail {

/// A row of a matrix, for Eigen's arithmetic.
template <class T>
using RowMap = Eigen::Map<Eigen::Array<T, 1, Eigen::Dynamic>>;
template <class T>
using ConstRowMap = Eigen::Map<const Eigen::Array<T, 1, Eigen::Dynamic>>;

/// `count` elements from memory, or one element that repeats.
template <class T>
struct Run {
  const T* data;
  bool repeats = false;

  simd::batch<T> load(Index i) const { return repeats ? simd::batch<T>(*data) : simd::load(data + i); }
  simd::batch<T> load(Index i, Index count) const {
    if (repeats) return simd::batch<T>(*data);
    T lanes[static_cast<std::size_t>(simd::width<T>)] = {};
    std::copy_n(data + i, count, lanes);
    return simd::load(lanes);
  }
};

/// out[i] = f(in[i] ...) for begin <= i < end. The last lanes are computed like the others, so that an element does not
/// depend on where a chunk ends.
template <class T, class F, class... Runs>
void map_run(Index begin, Index end, T* out, F& f, const Runs&... in) {
  constexpr Index width = simd::width<T>;
  Index i = begin;
  for (; i + width <= end; i += width) simd::store(out + i, f(in.load(i)...));
  if (i < end) {
    T lanes[static_cast<std::size_t>(width)];
    simd::store(lanes, f(in.load(i, end - i)...));
    std::copy_n(lanes, end - i, out + i);
  }
}

/// How two operands walk along a result: runs in which each of them either advances or repeats, and outer axes.
struct Walk {
  Index run = 1, outer = 1;
  bool a_repeats = false, b_repeats = false;  // within a run
  int axes = 0;                               // outer ones, the last first
  std::array<Index, Shape::max_rank> extent{}, a_stride{}, b_stride{};

  Walk(const Shape& out, const Shape& a, const Shape& b) {
    bool in_run = true, started = false;
    Index a_step = 1, b_step = 1;
    for (int axis = 1; axis <= out.rank(); ++axis) {
      const Index n = out[out.rank() - axis];
      const Index n_a = axis <= a.rank() ? a[a.rank() - axis] : 1, n_b = axis <= b.rank() ? b[b.rank() - axis] : 1;
      if (n == 1) continue;
      const bool a_fixed = n_a == 1, b_fixed = n_b == 1;
      if (!started) a_repeats = a_fixed, b_repeats = b_fixed, started = true;
      in_run = in_run && a_fixed == a_repeats && b_fixed == b_repeats;
      if (in_run) {
        run *= n;
      } else {
        const auto k = static_cast<std::size_t>(axes++);
        extent[k] = n;
        a_stride[k] = a_fixed ? 0 : a_step;
        b_stride[k] = b_fixed ? 0 : b_step;
        outer *= n;
      }
      a_step *= n_a;
      b_step *= n_b;
    }
  }

  /// Where the operands stand at the beginning of run number r.
  std::array<Index, 2> offsets(Index r) const {
    Index a = 0, b = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(axes); ++k) {
      const Index at = r % extent[k];
      r /= extent[k];
      a += at * a_stride[k];
      b += at * b_stride[k];
    }
    return {a, b};
  }
};

}  // namespace detail

/// The shape of a result of a and b under broadcasting.
inline Shape broadcast_shape(std::string_view function, const Shape& a, const Shape& b) {
  std::array<Index, Shape::max_rank> extents{};
  const int rank = std::max(a.rank(), b.rank());
  for (int axis = 1; axis <= rank; ++axis) {
    const Index n_a = axis <= a.rank() ? a[a.rank() - axis] : 1, n_b = axis <= b.rank() ? b[b.rank() - axis] : 1;
    require(n_a == n_b || n_a == 1 || n_b == 1, function, "shapes ", a.extents(), " and ", b.extents(),
            " do not broadcast: an axis has ", n_a, " and ", n_b, " elements");
    extents[static_cast<std::size_t>(rank - axis)] = n_a == 1 ? n_b : n_a;
  }
  return Shape(std::span<const Index>(extents.data(), static_cast<std::size_t>(rank)));
}

/// out = f(in ...), all of one shape. f takes and returns simd::batch<T>.
template <class T, class F, class... In>
void map(Tensor<T>& out, F&& f, const In&... in) {
  ASHLAR_ASSERT(((in.size() == out.size()) && ...));
  parallel_for(out.size(), elementwise_grain, [&](Index begin, Index end) {
    detail::map_run(begin, end, out.data(), f, detail::Run<T>{in.data()}...);
  });
}

/// out = f(a, b), where out has the shape of the two under broadcasting.
template <class T, class F>
void broadcast(Tensor<T>& out, F&& f, const Tensor<T>& a, const Tensor<T>& b) {
  if (out.size() == 0) return;
  const detail::Walk walk(out.shape(), a.shape(), b.shape());
  if (walk.outer == 1) {
    parallel_for(walk.run, elementwise_grain, [&](Index begin, Index end) {
      detail::map_run(begin, end, out.data(), f, detail::Run<T>{a.data(), walk.a_repeats},
                      detail::Run<T>{b.data(), walk.b_repeats});
    });
    return;
  }
  parallel_for(walk.outer, elementwise_grain / walk.run, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      const auto [at_a, at_b] = walk.offsets(r);
      detail::map_run(0, walk.run, out.data() + r * walk.run, f, detail::Run<T>{a.data() + at_a, walk.a_repeats},
                      detail::Run<T>{b.data() + at_b, walk.b_repeats});
    }
  });
}

/// Adds x over the axes along which `out` repeats: the adjoint of broadcasting out to the shape of x.
template <class T>
void sum_to(Tensor<T>& out, const Tensor<T>& x) {
  std::fill_n(out.data(), out.size(), T(0));
  if (x.size() == 0) return;
  const detail::Walk walk(x.shape(), out.shape(), x.shape());
  const auto add_runs = [&](Index begin, Index end, T* sums) {
    for (Index r = begin; r < end; ++r) {
      const Eigen::Map<const Vector<T>> run(x.data() + r * walk.run, walk.run);
      T* const to = sums + walk.offsets(r)[0];
      if (walk.a_repeats)
        *to += run.sum();
      else
        Eigen::Map<Vector<T>>(to, walk.run) += run;
    }
  };
  // Rows added up to one: a partial sum a chunk, the chunks in order.
  const Index grain = std::max<Index>(1, elementwise_grain / walk.run), chunks = chunk_count(walk.outer, grain);
  if (out.size() == (walk.a_repeats ? 1 : walk.run) && chunks > 1) {
    Tensor<T> partial({chunks, out.size()});
    parallel_for(walk.outer, grain,
                 [&](Index begin, Index end) { add_runs(begin, end, partial.data() + begin / grain * out.size()); });
    Eigen::Map<Vector<T>>(out.data(), out.size()) = partial.matrix().colwise().sum();
    return;
  }
  add_runs(0, walk.outer, out.data());
}

}  // namespace ashlar::functional
