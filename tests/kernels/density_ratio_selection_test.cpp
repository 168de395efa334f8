#include "ashlar/kernels/density_ratio_selection.hpp"

#include <cmath>
#include <vector>

#include "ashlar/core/random.hpp"
#include "kernels/samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::kernels {
namespace {

using linalg::RbfKernel;

TEST_CASE("kernels.density_ratio_selection: selection returns the smallest loss on points left out with its tie rule") {
  const Samples<> s(27, 60, 80);
  for (const Loss loss : {Loss::kulsif, Loss::logistic})
    for (const int folds : {1, 4}) {
      INFO(name(loss) << ", folds = " << folds);
      Rng rng(27);
      const auto choice =
          select_density_ratio(s.p, s.q, RbfKernel(0.5, 1),
                               {.loss = loss, .lambdas = {10, 1, 0.1, 0.01}, .max_iterations = 4, .folds = folds}, rng);
      Index row = 0, column = 0;
      choice.losses.minCoeff(&row, &column);
      CHECK(choice.lambda == std::vector<double>{10, 1, 0.1, 0.01}[static_cast<std::size_t>(row)]);
      CHECK(choice.iterations == column + 1);
      CHECK(choice.options().loss == loss);

      // the same split by hand
      Rng again(27);
      const auto p_order = again.permutation(60), q_order = again.permutation(80);
      const Index parts = folds == 1 ? 5 : folds;
      double expected = 0;
      for (Index fold = 0; fold < folds; ++fold) {
        const auto [v_p, t_p] = detail::split_rows<double>(s.p, p_order, fold, parts);
        const auto [v_q, t_q] = detail::split_rows<double>(s.q, q_order, fold, parts);
        CHECK(v_p.rows() == 60 / parts);
        CHECK(t_q.rows() == 80 - 80 / parts);
        expected += fit_density_ratio(t_p, t_q, RbfKernel(0.5, 1), choice.options()).empirical_loss(v_p, v_q) / folds;
      }
      CHECK(std::abs(choice.losses(row, column) - expected) <= 1e-8);
    }
  // Identical samples: every lambda and t of logistic gives the same f = 0.
  Matrix<double> constant = Matrix<double>::Ones(10, 1);
  Rng rng(28);
  const auto tie = select_density_ratio(constant, constant, RbfKernel(1),
                                        {.loss = Loss::logistic, .lambdas = {0.1, 10, 1}, .max_iterations = 3}, rng);
  CHECK(tie.lambda == 10);
  CHECK(tie.iterations == 1);
}

}  // namespace
}  // namespace ashlar::kernels
