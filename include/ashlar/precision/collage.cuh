// Collage AdamW on the device: the step of precision/collage.hpp, one element a thread, the same bits as on the host.
//
//   DeviceAdamWState<bfloat16> state{.precision = Precision::collage_plus, .moment = ..., .variance = ..., ...};
//   adamw_step(theta, gradient, state, options, stream);            // all device views, all zero before the first step
//
// The body is written against a Block, so it runs on the host under HostBlock; the launch needs nvcc. It reads the same
// bytes as the host form: the roof is the bandwidth of the device's memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ashlar/core/block.hpp"
#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/precision/adamw_state.hpp"
#include "ashlar/precision/collage.hpp"
#include "ashlar/precision/detail/adamw_element.hpp"

#if defined(__CUDACC__)
#include "ashlar/core/block.cuh"
#endif

namespace ashlar::precision {

/// AdamWState on the device. The caller owns the arrays, [n] or empty where the strategy keeps none, and zeroes them
/// before the first step; `master` starts as the weights.
template <Storage F>
struct DeviceAdamWState {
  Precision precision = Precision::pure;
  std::uint64_t step = 0;
  std::uint64_t seed = 0;  ///< of the stochastic rounding
  View<F, 1, device> moment = {}, variance = {}, residual = {}, variance_residual = {};
  View<float, 1, device> moment32 = {}, variance32 = {}, master = {};
};

namespace detail {

/// A float whose operations the device's compiler must not fuse.
class SingleOperation {
 public:
  SingleOperation() = default;
  ASHLAR_HOST_DEVICE constexpr explicit SingleOperation(float x) : x_(x) {}
  ASHLAR_HOST_DEVICE constexpr explicit operator float() const { return x_; }

#if defined(__CUDA_ARCH__)
  friend __device__ SingleOperation operator+(SingleOperation a, SingleOperation b) {
    return make(__fadd_rn(a.x_, b.x_));
  }
  friend __device__ SingleOperation operator-(SingleOperation a, SingleOperation b) {
    return make(__fsub_rn(a.x_, b.x_));
  }
  friend __device__ SingleOperation operator*(SingleOperation a, SingleOperation b) {
    return make(__fmul_rn(a.x_, b.x_));
  }
  friend __device__ SingleOperation operator/(SingleOperation a, SingleOperation b) {
    return make(__fdiv_rn(a.x_, b.x_));
  }
  friend __device__ SingleOperation sqrt(SingleOperation a) { return make(__fsqrt_rn(a.x_)); }
#else
  friend ASHLAR_HOST_DEVICE SingleOperation operator+(SingleOperation a, SingleOperation b) {
    return make(a.x_ + b.x_);
  }
  friend ASHLAR_HOST_DEVICE SingleOperation operator-(SingleOperation a, SingleOperation b) {
    return make(a.x_ - b.x_);
  }
  friend ASHLAR_HOST_DEVICE SingleOperation operator*(SingleOperation a, SingleOperation b) {
    return make(a.x_ * b.x_);
  }
  friend ASHLAR_HOST_DEVICE SingleOperation operator/(SingleOperation a, SingleOperation b) {
    return make(a.x_ / b.x_);
  }
  friend ASHLAR_HOST_DEVICE SingleOperation sqrt(SingleOperation a) { return make(std::sqrt(a.x_)); }
#endif
  friend ASHLAR_HOST_DEVICE bool operator<(SingleOperation a, SingleOperation b) { return a.x_ < b.x_; }

 private:
  static ASHLAR_HOST_DEVICE SingleOperation make(float x) { return SingleOperation(x); }
  float x_ = 0;
};

/// Elements of one thread block.
inline constexpr Index elements_per_block = 1024;

/// One step of `elements_per_block` elements.
template <Precision P, StepRounding R, Storage F>
struct AdamWBody {
  ElementStep<P, R, F, SingleOperation> element;
  Index size;
  std::uint64_t seed, step;

  template <class Block>
  ASHLAR_HOST_DEVICE void operator()(Block& block) const {
    const Index first = block.index() * elements_per_block;
    const Index count = size - first < elements_per_block ? size - first : elements_per_block;
    block.for_each(count, [&](Index k) {
      const Index i = first + k;
      std::uint32_t word = 0;
      if constexpr (P == Precision::stochastic) word = random_word(seed, step, i);
      element.land(i, element.update(i, element.moments(i)), &word);
    });
  }
};

/// Calls run(body, blocks) with the body of a step.
template <Storage F, class Run>
void with_body(const Arrays<F>& arrays, Index size, Precision precision, std::uint64_t seed, std::uint64_t step,
               const AdamWOptions& options, double gradient_scale, const Run& run) {
  const auto scalars = coefficients<F>(options, step, gradient_scale).template to<SingleOperation, float>();
  dispatch<F>(precision, options.rounding, [&]<Precision P, StepRounding R>(Strategy<P, R>) {
    run(AdamWBody<P, R, F>{{arrays, scalars}, size, seed, step}, chunk_count(size, elements_per_block));
  });
}

}  // namespace detail

#if defined(__CUDACC__)
/// One AdamW step on `stream`. theta, gradient and the state's arrays: [n], contiguous. gradient_scale: the gradient is
/// divided by it. Does not synchronise and so does not look at the gradient: check that it is finite where that is
/// known. Throws InvalidArgument on sizes that differ and options out of range, DeviceError if the launch is refused.
template <Storage F>
void adamw_step(View<F, 1, device> theta, std::type_identity_t<View<const F, 1, device>> gradient,
                DeviceAdamWState<F>& state, const AdamWOptions& options, cudaStream_t stream,
                double gradient_scale = 1) {
  const std::string_view function = "adamw_step";
  const Index n = theta.extent(0);
  const bool single = detail::float32_moments(state.precision);
  const auto check = [&](std::string_view name, const auto& array, bool kept) {
    check_shape(function, name, array.shape(), {kept ? n : 0});
    require(array.contiguous(), function, name, " must be contiguous, got stride ", array.stride(0));
  };
  check("theta", theta, true);
  check("gradient", gradient, true);
  check("moment", state.moment, !single);
  check("variance", state.variance, !single);
  check("residual", state.residual, detail::keeps_residual(state.precision));
  check("variance_residual", state.variance_residual, state.precision == Precision::collage_plus);
  check("moment32", state.moment32, single);
  check("variance32", state.variance32, single);
  check("master", state.master, state.precision == Precision::fp32_master);
  detail::check_options<F>(function, options, state.precision);
  check_argument(gradient_scale > 0 && std::isfinite(gradient_scale), function, "gradient_scale", "finite and above 0",
                 gradient_scale);
  const detail::Arrays<F> arrays{theta.data(),          gradient.data(),         state.moment.data(),
                                 state.variance.data(), state.residual.data(),   state.variance_residual.data(),
                                 state.moment32.data(), state.variance32.data(), state.master.data()};
  detail::with_body(arrays, n, state.precision, state.seed, state.step + 1, options, gradient_scale,
                    [&](const auto& body, Index blocks) { launch(blocks, 256, 0, stream, body); });
  ++state.step;
}
#endif

}  // namespace ashlar::precision
