#include "ashlar/precision/descent_quality.hpp"

#include <cmath>
#include <cstring>
#include <vector>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::precision {
namespace {

using test::message_of;

TEST_CASE("precision.descent_quality: what arrived is measured on plain arrays and groups add their sums") {
  const std::vector<double> update{1, 2, 0, -2}, before{0, 0, 5, 1}, after{1, 0, 5, 0};
  const DescentSums sums = descent_quality(update, before, after);
  const DescentReport report = sums.report();
  CHECK(report.norm_update == 3);
  CHECK(report.edq == 1);  // (1 + 0 + 0 + 2) / 3
  CHECK(std::abs(report.ratio - 1.0 / 3) < 1e-15);
  CHECK(report.lost_fraction == 0.5);
  DescentSums both = sums;
  both += descent_quality(std::vector<double>{3}, std::vector<double>{0}, std::vector<double>{3});
  CHECK(std::abs(both.report().ratio - 12.0 / 18) < 1e-15);  // not the mean of 1/3 and 1
  const DescentReport nothing =
      descent_quality(std::vector<double>{0}, std::vector<double>{1}, std::vector<double>{1}).report();
  CHECK(nothing.edq == 0);
  CHECK(nothing.ratio == 1);
  CHECK(DescentSums{}.report().ratio == 1);
  CHECK(message_of<InvalidArgument>([&] { descent_quality(update, before, std::vector<double>{1}); }) ==
        "descent_quality: after has shape [1], expected [4] (same length as update)");
}

TEST_CASE("precision.descent_quality: trailing components count as arrived and the bits do not depend on threads") {
  const std::vector<double> update(100000, 0.5), hi_before(update.size(), 2.0), hi_after(update.size(), 2.0),
      lo_before(update.size(), 0.0), lo_after(update.size(), 0.5);
  const auto measure = [&] { return descent_quality(update, hi_before, hi_after, lo_before, lo_after); };
  const DescentSums one = test::with_threads(1, measure), four = test::with_threads(4, measure);
  CHECK(std::memcmp(&one, &four, sizeof one) == 0);
  const DescentReport report = one.report();
  CHECK(std::abs(report.ratio - 1) < 1e-12);
  CHECK(report.ratio_hi == 0);
  CHECK(report.lost_fraction == 1);
  CHECK(std::abs(report.norm_residual - report.norm_update) < 1e-12 * report.norm_update);
}

TEST_CASE("precision.descent_quality: what waits in the trailing components is measured along the update") {
  const std::vector<double> update{3, 4}, hi(2, 1.0), lo_before{7, -1}, lo_after{2, 1};
  const DescentReport report = descent_quality(update, hi, hi, lo_before, lo_after).report();
  CHECK(report.norm_residual == std::sqrt(5.0));
  CHECK(report.residual_along_update == 2);  // (3 * 2 + 4 * 1) / 5
}

TEST_CASE("precision.descent_quality: chunks begin at whole blocks and fit on the stack") {
  for (const Index n : {0, 1, 1 << 14, 5000001, 100000000}) {
    CHECK(detail::chunk_grain(n) % 128 == 0);
    CHECK(chunk_count(n, detail::chunk_grain(n)) <= detail::max_chunks);
  }
}

}  // namespace
}  // namespace ashlar::precision
