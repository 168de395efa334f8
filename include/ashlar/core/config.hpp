// What the compiler and the target decide, in one place.
#pragma once

#include <cassert>
#include <cstddef>

#define ASHLAR_VERSION_MAJOR 0
#define ASHLAR_VERSION_MINOR 1
#define ASHLAR_VERSION_PATCH 0

/// A function that kernel bodies call: it runs on the host and, compiled by nvcc, on the device.
#if defined(__CUDACC__)
#define ASHLAR_HOST_DEVICE __host__ __device__
#else
#define ASHLAR_HOST_DEVICE
#endif

/// A check inside a hot loop: on in debug builds, gone with NDEBUG. Checks at public doors never use it.
#if defined(NDEBUG)
#define ASHLAR_ASSERT(condition) static_cast<void>(0)
#else
#define ASHLAR_ASSERT(condition) assert(condition)
#endif

namespace ashlar {

/// Every shape, stride, offset and count. Signed, so that differences and descending loops are safe.
using Index = std::ptrdiff_t;

/// Memory spaces. They are part of a view's type, so mixing them does not compile.
struct host {};
struct device {};

}  // namespace ashlar
