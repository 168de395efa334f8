// The runner of every CUDA test program. It exits with 77 where no device answers, which ctest reports as skipped.
#include <cuda_runtime.h>

#include <cstdio>

#define CATCH_CONFIG_RUNNER
#include "support/catch.hpp"

int main(int argc, char** argv) {
  int devices = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&devices); status != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device answers (%s)\n", cudaGetErrorString(status));
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
