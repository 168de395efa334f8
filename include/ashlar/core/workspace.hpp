// Scratch memory that outlives the calls that use it: the first call grows it, the same call again allocates nothing.
//
//   Workspace workspace;
//   for (...) lightning_forward(q, k, v, slopes, o, {}, workspace);
#pragma once

#include <cstddef>
#include <cstring>

#include "ashlar/core/tensor.hpp"

namespace ashlar {

/// Not for two calls at the same time; every thread of a program has its own.
class Workspace {
 public:
  /// 64-byte aligned memory for `count` numbers. What it holds is unspecified. The pointer lasts until the next reserve.
  template <class T>
  T* reserve(Index count) {
    const Index bytes = count * static_cast<Index>(sizeof(T));
    if (memory_.size() < bytes) memory_ = Tensor<std::byte>::uninitialized({bytes});
    return reinterpret_cast<T*>(memory_.data());
  }

  Index bytes() const { return memory_.size(); }

 private:
  Tensor<std::byte> memory_;
};

}  // namespace ashlar
