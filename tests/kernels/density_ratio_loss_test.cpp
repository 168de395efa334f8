#include "ashlar/kernels/density_ratio_loss.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/samples.hpp"
#include "support/catch.hpp"

namespace ashlar::kernels {
namespace {

TEST_CASE(
    "kernels.density_ratio_loss: second derivatives of the losses are those of the first and links invert p over q") {
  for (const Loss loss : all_losses)
    for (const double v : {-30.0, -1.3, 0.0, 0.4, 0.9, 25.0}) {
      INFO(name(loss) << " at " << v);
      const double h = 1e-6 * std::max(1.0, std::abs(v));
      for (const Side side : {Side::numerator, Side::denominator}) {
        const auto here = loss_terms(loss, side, v), right = loss_terms(loss, side, v + h),
                   left = loss_terms(loss, side, v - h);
        const double scale = 1e-7 * (std::abs(here.value) + std::abs(here.slope) + 1);
        CHECK(std::abs((right.value - left.value) / (2 * h) - here.slope) <= scale);
        CHECK(std::abs((right.slope - left.slope) / (2 * h) - here.curvature) <= scale);
      }
      // p l'(+1, v) + q l'(-1, v) = 0 with p / q = link(v)
      const double ratio = link(loss, v);
      const double balance =
          ratio * loss_terms(loss, Side::numerator, v).slope + loss_terms(loss, Side::denominator, v).slope;
      CHECK(std::abs(balance) <= 1e-12 * (1 + std::abs(ratio * loss_terms(loss, Side::numerator, v).slope)));
      if (ratio > 0) CHECK(std::abs(log_link(loss, v) - std::log(ratio)) <= 1e-12 * (1 + std::abs(v)));
    }
}

TEST_CASE("kernels.density_ratio_loss: losses stay finite where the exponential would not") {
  CHECK(loss_terms(Loss::logistic, Side::numerator, -1e4).value == 1e4);
  CHECK(loss_terms(Loss::logistic, Side::denominator, 1e4).slope == 1);
  CHECK(loss_terms(Loss::logistic, Side::numerator, 1e4).slope == 0);
  CHECK(std::isfinite(loss_terms(Loss::exponential, Side::numerator, -1e4).value));
  CHECK(std::isfinite(loss_terms(Loss::exponential, Side::denominator, 1e4f).value));
  CHECK(log_link(Loss::kliep, 1e5) == 1e5);
}

}  // namespace
}  // namespace ashlar::kernels
