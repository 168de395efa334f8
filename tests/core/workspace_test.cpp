#include "ashlar/core/workspace.hpp"

#include <cstdint>

#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace ashlar {
namespace {

TEST_CASE("core.workspace: memory is aligned grows on demand and is kept") {
  Workspace workspace;
  CHECK(workspace.bytes() == 0);
  double* first = workspace.reserve<double>(100);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 64 == 0);
  first[99] = 1;
  CHECK(test::allocations([&] { CHECK(workspace.reserve<double>(100) == first); }) == 0);
  CHECK(test::allocations([&] { CHECK(static_cast<void*>(workspace.reserve<float>(7)) == first); }) == 0);
  CHECK(workspace.bytes() == 800);
  workspace.reserve<double>(101);
  CHECK(workspace.bytes() == 808);
}

}  // namespace
}  // namespace ashlar
