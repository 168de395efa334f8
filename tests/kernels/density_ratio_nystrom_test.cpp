#include "ashlar/kernels/density_ratio_nystrom.hpp"

#include "kernels/samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::kernels {
namespace {

using linalg::RbfKernel;

TEST_CASE("kernels.density_ratio_nystrom: Nystrom predictions match the fixture") {
  const auto model = fit_density_ratio_nystrom(data("x_p"), data("x_q"), RbfKernel(data("params")(0), 1),
                                               data("nystrom_centers"), {.lambda = data("params")(1), .iterations = 5});
  CHECK(relative(model.scores(data("x_test")).transpose(), data("nystrom_ratio_test")) <= 1e-6);
}

TEST_CASE("kernels.density_ratio_nystrom: Nystrom with all points equals the full fit for both of its solvers") {
  const Samples<> s(8);
  const RbfKernel kernel(0.5, 1);
  for (const Loss loss : all_losses)
    for (const Solver solver : {Solver::cholesky, Solver::conjugate_gradient}) {
      INFO(name(loss) << (solver == Solver::cholesky ? ", cholesky" : ", conjugate gradients"));
      const DensityRatioOptions options{.loss = loss, .lambda = 0.01, .iterations = 4, .solver = solver};
      const auto full = fit_density_ratio(s.p, s.q, kernel, options);
      const auto nystrom = fit_density_ratio_nystrom(s.p, s.q, kernel, s.pooled(), options);
      CHECK(relative(nystrom.scores(s.p), full.scores(s.p)) <= 1e-6);
      CHECK(relative(nystrom.scores(s.q), full.scores(s.q)) <= 1e-6);
    }
}

}  // namespace
}  // namespace ashlar::kernels
