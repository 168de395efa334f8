#include "ashlar/core/workspace.hpp"

#include <cstdint>

#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace ashlar {
namespace {

TEST_CASE("core.workspace: the same request again allocates nothing and a smaller one gets the same memory") {
  Workspace workspace;
  double* const first = workspace.reserve<double>(1000);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 64 == 0);
  CHECK(workspace.bytes() == 8000);
  double* again = nullptr;
  float* smaller = nullptr;
  CHECK(test::allocations([&] {
          again = workspace.reserve<double>(1000);
          smaller = workspace.reserve<float>(1999);
        }) == 0);
  CHECK(again == first);
  CHECK(static_cast<void*>(smaller) == first);
  CHECK(workspace.bytes() == 8000);
}

TEST_CASE("core.workspace: a larger request grows it") {
  Workspace workspace;
  workspace.reserve<float>(10);
  float* const data = workspace.reserve<float>(20);
  for (int i = 0; i < 20; ++i) data[i] = static_cast<float>(i);
  CHECK(data[19] == 19);
  CHECK(workspace.bytes() == 80);
}

}  // namespace
}  // namespace ashlar
