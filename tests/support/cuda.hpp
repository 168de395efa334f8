// Memory on the device, for CUDA tests.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <vector>

#include "ashlar/core/view.hpp"

namespace ashlar::test {

inline void check_cuda(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// An array on the device, filled from and read back to the host.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : size_(values.size()) {
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), bytes()));
    check_cuda(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  /// Row-major.
  template <int Rank>
  View<T, Rank, device> view(const typename View<T, Rank>::Shape& shape) {
    return {data_, shape};
  }

  /// Waits for everything enqueued, and reports what failed in it.
  std::vector<T> to_host() const {
    check_cuda(cudaDeviceSynchronize());
    std::vector<T> values(size_);
    check_cuda(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t bytes() const { return size_ * sizeof(T); }

  std::size_t size_;
  T* data_ = nullptr;
};

}  // namespace ashlar::test
