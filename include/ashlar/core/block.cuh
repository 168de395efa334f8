// The Block of core/block.hpp on the device, and how a body is launched.
#pragma once

#include <cuda_runtime.h>

#include "ashlar/core/block.hpp"

namespace ashlar {

/// A CUDA runtime call failed.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class CudaBlock {
 public:
  __device__ explicit CudaBlock(unsigned char* arena) : arena_(arena) {}

  __device__ Index index() const { return static_cast<Index>(blockIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }

  template <class F>
  __device__ void for_each(Index n, F&& f) {
    for (Index i = threadIdx.x; i < n; i += blockDim.x) f(i);
  }

  __device__ void sync() { __syncthreads(); }

  template <class T>
  class Shared {
   public:
    __device__ explicit Shared(T* data) : data_(data) {}
    __device__ T& operator[](Index i) const { return data_[i]; }
    __device__ T atomic_add(Index i, T value) const { return atomicAdd(data_ + i, value); }

   private:
    T* data_;
  };

  template <class T>
  __device__ Shared<T> shared(Index n) {
    T* data = reinterpret_cast<T*>(arena_);
    arena_ += (static_cast<std::size_t>(n) * sizeof(T) + 15) / 16 * 16;
    return Shared<T>(data);
  }

 private:
  unsigned char* arena_;
};

namespace detail {

template <class Body>
__global__ void run_body(const Body body) {
  extern __shared__ __align__(16) unsigned char arena[];
  CudaBlock block(arena);
  body(block);
}

inline void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw DeviceError(message(what, ": ", cudaGetErrorString(status)));
}

}  // namespace detail

/// Enqueues `body` over `blocks` thread blocks on `stream`. No synchronisation, no allocation.
/// `shared_bytes`: what run_on_host returns for the same body. Throws DeviceError if the launch is refused.
template <class Body>
void launch(Index blocks, int threads, std::size_t shared_bytes, cudaStream_t stream, const Body& body) {
  if (blocks == 0) return;
  if (shared_bytes > 48 * 1024)  // more than the default has to be asked for
    detail::check_cuda(cudaFuncSetAttribute(detail::run_body<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(shared_bytes)),
                       "launch: shared memory");
  detail::run_body<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared_bytes, stream>>>(body);
  detail::check_cuda(cudaGetLastError(), "launch");
}

}  // namespace ashlar
