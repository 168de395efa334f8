#include "ashlar/core/prefetch.hpp"

#include "ashlar/core/tensor.hpp"
#include "support/catch.hpp"

namespace ashlar {
namespace {

TEST_CASE("core.prefetch: steps past the end and views of any shape are harmless") {
  Tensor<float> x({40, 24});
  const View<float, 2> rows = x;
  Prefetch ahead(3);
  ahead.add(rows);
  ahead.add(rows.slice(0, 5, 5));      // empty
  ahead.add(rows.transposed(0, 1));    // no unit inner stride
  for (int i = 0; i < 20; ++i) ahead.add(View<const float, 2>(rows));  // more than it keeps
  for (int i = 0; i < 50; ++i) ahead.step();
  for (Index i = 0; i < x.size(); ++i) CHECK(x.data()[i] == 0);
}

}  // namespace
}  // namespace ashlar
