#include "ashlar/kernels/kulsif_path.hpp"

#include <cmath>
#include <vector>

#include "kernels/samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::kernels {
namespace {

using linalg::RbfKernel;
using test::message_of;

TEST_CASE("kernels.kulsif_path: the path equals a fit per lambda") {
  const Samples<> s(10);
  const RbfKernel kernel(0.5, 1);
  const std::vector<double> lambdas{1e4, 1, 1e-2, 1e-4, 1e-6};
  const auto path = fit_kulsif_path(s.p, s.q, kernel, lambdas, 4);
  const Samples<> fresh(11);
  const Matrix<double> scores = path.scores(fresh.q), losses = path.losses(fresh.p, fresh.q);
  for (Index i = 0; i < 5; ++i) {
    INFO("lambda = " << lambdas[static_cast<std::size_t>(i)]);
    const auto model =
        fit_density_ratio(s.p, s.q, kernel, {.lambda = lambdas[static_cast<std::size_t>(i)], .iterations = 4});
    const Matrix<double> alone = model.scores(fresh.q);
    CHECK(relative(scores.middleCols(4 * i, 4), alone) <= 1e-8);
    CHECK(relative(path.model(i).scores(fresh.q), alone) <= 1e-8);
    for (int t = 1; t <= 4; ++t) {
      CHECK(relative(path.ratio(fresh.q, i, t), model.ratio(fresh.q, t)) <= 1e-8);
      const double loss = model.empirical_loss(fresh.p, fresh.q, t);
      CHECK(std::abs(losses(i, t - 1) - loss) <= 1e-8 * (1 + std::abs(loss)));
    }
  }
  CHECK(path.ratio(fresh.q, 4, 1, true).minCoeff() >= 0);
  CHECK(message_of<InvalidArgument>([&] { path.ratio(fresh.q, 5, 1); }) ==
        "KulsifPath: lambda must be a number of lambdas(), below 5, got 5");
  CHECK(message_of<InvalidArgument>([&] { path.ratio(fresh.q, 0, 5); }) ==
        "KulsifPath: t must be between 1 and 4, got 5");
}

}  // namespace
}  // namespace ashlar::kernels
