#include "ashlar/kernels/ridgeless.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "ashlar/linalg/gram.hpp"
#include "ashlar/linalg/laplace_kernel.hpp"
#include "kernels/designs.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::kernels {
namespace {

using test::message_of;
constexpr double eps = std::numeric_limits<double>::epsilon();

Matrix<double> uniform_points(std::uint64_t seed, Index n, Index d) {
  Rng rng(seed);
  Matrix<double> x(n, d);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = rng.uniform(-1, 1);
  return x;
}

Vector<double> normals(std::uint64_t seed, Index n) {
  Rng rng(seed);
  return normal_matrix<double>(rng, n, 1).col(0);
}

/// The norm of a symmetric matrix, from above.
double norm_bound(const Matrix<double>& k) { return k.cwiseAbs().rowwise().sum().maxCoeff(); }

TEST_CASE("kernels.ridgeless: coefficients and predictions match the fixtures") {
  for (const auto& name : fixture_names) {
    INFO(name);
    const Matrix<double> gram = fixture_design(name).gram();
    const Vector<double> eigenvalues = ridgeless_vector(name + "/gram_eigs");
    const double condition = eigenvalues[eigenvalues.size() - 1] / eigenvalues[0];
    const auto fit = fit_ridgeless(gram, ridgeless_vector(name + "/y"));
    CHECK(relative_error(fit.alpha, ridgeless_vector(name + "/alpha")) <= (condition < 1e6 ? 1e-8 : 1e-5));
    CHECK(fit.interpolates);
    CHECK(fit.rank == gram.rows());
    CHECK(relative_error(RidgePath(gram, ridgeless_vector(name + "/y")).eigenvalues(), eigenvalues) <= 1e-13);

    const Matrix<double> x = ridgeless_matrix(name + "/x"), x_test = ridgeless_matrix(name + "/x_test");
    const Vector<double> y = ridgeless_vector(name + "/y_points");
    const linalg::LaplaceKernel laplace(1);
    const linalg::RbfKernel gauss(4);
    CHECK(relative_error(predict(linalg::gram(laplace, x_test, x), fit_ridgeless(linalg::gram(laplace, x), y)),
                         ridgeless_vector(name + "/laplace_pred")) <= 1e-9);
    CHECK(relative_error(predict(linalg::gram(gauss, x_test, x), fit_ridgeless(linalg::gram(gauss, x), y)),
                         ridgeless_vector(name + "/gauss_pred")) <= 1e-9);
  }
}

TEST_CASE("kernels.ridgeless: the equations hold to rounding whatever the condition") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  for (const Index n : {1, 2, 17, 80})
    for (const double gamma : {50.0, 5.0}) {
      INFO("seed = " << seed << ", n = " << n << ", gamma = " << gamma);
      const Matrix<double> k = linalg::gram(linalg::RbfKernel(gamma), uniform_points(seed, n, 2));
      const Vector<double> y = normals(seed, n);
      const auto fit = fit_ridgeless(k, y);
      if (fit.rank < n) continue;  // a truncated system need not be solved
      const double bound = 100 * static_cast<double>(n) * eps * (norm_bound(k) * fit.alpha.norm() + y.norm());
      CHECK((k * fit.alpha - y).norm() <= bound);
      CHECK(fit.residual * y.norm() <= bound);
    }
}

TEST_CASE("kernels.ridgeless: the solver agrees with the reference") {
  const std::uint64_t seed = GENERATE(4u, 5u);
  INFO("seed = " << seed);
  const Matrix<double> k = linalg::gram(linalg::LaplaceKernel(1), uniform_points(seed, 70, 3));
  const Vector<double> y = normals(seed, 70);
  // Both are off by the condition number times eps.
  const double tolerance = 100 * eps / RidgelessSolver(k).rcond();
  CHECK(relative_error(fit_ridgeless(k, y).alpha, reference::ridgeless_coefficients(k, y)) <= tolerance);
}

TEST_CASE("kernels.ridgeless: points that occur twice get the mean of their values") {
  Matrix<double> x = uniform_points(6, 30, 2);
  x.row(29) = x.row(3);
  x.row(28) = x.row(3);
  const Vector<double> y = normals(6, 30);
  const linalg::LaplaceKernel kernel(1);
  const Matrix<double> k = linalg::gram(kernel, x);
  const auto fit = fit_ridgeless(k, y);
  CHECK(fit.rank == 28);
  CHECK_FALSE(fit.interpolates);
  CHECK(fit.rcond <= 30 * eps);
  const Vector<double> f = predict(k, fit);
  const double mean = (y[3] + y[28] + y[29]) / 3;
  for (const Index i : {3, 28, 29}) CHECK(std::abs(f[i] - mean) <= 1e-10);
  for (Index i = 4; i < 28; ++i) CHECK(std::abs(f[i] - y[i]) <= 1e-10);
  CHECK_FALSE(RidgelessSolver(k).reliable());
}

TEST_CASE("kernels.ridgeless: a spectrum below rounding is cut off and reported") {
  const Matrix<double> x = uniform_points(7, 60, 1);
  const Matrix<double> k = linalg::gram(linalg::RbfKernel(1), x);  // kappa beyond any double
  const RidgelessSolver solver(k);
  CHECK(solver.rank() < 30);
  CHECK(solver.rcond() <= 60 * eps);
  CHECK_FALSE(solver.reliable());
  // The pseudo-inverse of what is left: K K^+ K = K up to the part cut off, n eps of the largest eigenvalue.
  const Matrix<double> kk = k * solver.solve_columns(k);
  CHECK((kk - k).norm() <= 10 * 60 * 60 * eps * norm_bound(k));
}

TEST_CASE("kernels.ridgeless: a matrix from single precision needs a truncation that says so") {
  const Matrix<float> x = uniform_points(8, 50, 1).cast<float>();
  const Matrix<double> k = linalg::gram(linalg::RbfKernel(1), x).cast<double>();
  const Vector<double> y = (x.cast<double>().col(0).array() * 3).sin();
  CHECK(message_of<NumericalError>([&] {
          fit_ridgeless(k, y);
        }).starts_with("RidgelessSolver: gram has the eigenvalue -"));
  CHECK(message_of<NumericalError>([&] { fit_ridgeless(k, y); }).ends_with("): it is not positive semidefinite"));
  const auto fit = fit_ridgeless(k, y, {.truncation = 1e-6});
  CHECK(fit.rank < 15);
  CHECK((predict(k, fit) - y).norm() <= 1e-3 * y.norm());
}

TEST_CASE("kernels.ridgeless: truncation applies where Cholesky's method would have gone through") {
  const Vector<double> values{{1.0, 1e-3, 1e-8}};
  const Matrix<double> k = values.asDiagonal();
  CHECK(RidgelessSolver(k).rank() == 3);
  CHECK(RidgelessSolver(k, {.truncation = 1e-6}).rank() == 2);
  const Vector<double> alpha = fit_ridgeless(k, Vector<double>::Ones(3).eval(), {.truncation = 1e-6}).alpha;
  CHECK(relative_error(alpha, Vector<double>{{1.0, 1e3, 0.0}}) <= 1e-14);
}

TEST_CASE("kernels.ridgeless: columns are solved as one by one and with the same bits for any number of threads") {
  for (const double gamma : {50.0, 0.1}) {  // by Cholesky, by eigenvalues
    const Matrix<double> k = linalg::gram(linalg::RbfKernel(gamma), uniform_points(9, 90, 2));
    Rng rng(9);
    const Matrix<double> b = normal_matrix<double>(rng, 90, 150);
    const RidgelessSolver solver(k);
    INFO("rank " << solver.rank());
    const Matrix<double> x = test::with_threads(1, [&] { return solver.solve_columns(b); });
    for (const int threads : {2, 4}) CHECK(test::with_threads(threads, [&] { return solver.solve_columns(b); }) == x);
    for (const Index j : {0, 149})
      CHECK(relative_error(x.col(j), solver.solve(b.col(j))) <= 1e-11 / std::max(solver.rcond(), 1e-14 * 90));
  }
}

TEST_CASE("kernels.ridgeless: a ridge solves the shifted equations") {
  const Matrix<double> k = linalg::gram(linalg::RbfKernel(2), uniform_points(10, 40, 2));
  const Vector<double> y = normals(10, 40);
  const RidgePath path(k, y);
  for (const double ridge : {10.0, 0.1, 1e-4}) {
    INFO("ridge " << ridge);
    const auto fit = fit_ridgeless(k, y, {.ridge = ridge});
    CHECK((k * fit.alpha + ridge * fit.alpha - y).norm() <= 100 * 40 * eps * norm_bound(k) * fit.alpha.norm());
    CHECK(relative_error(path.coefficients(ridge), fit.alpha) <= 100 * eps * norm_bound(k) / ridge);
    // y - K alpha = ridge alpha
    CHECK(std::abs(fit.residual - ridge * fit.alpha.norm() / y.norm()) <= 1e-10);
  }
  CHECK_FALSE(fit_ridgeless(k, y, {.ridge = 0.1}).interpolates);
}

TEST_CASE("kernels.ridgeless: without a ridge the path leaves out what rounding makes of dependent points") {
  // Every point twice, with different targets: half of the eigenvalues are zero but for rounding.
  const Matrix<double> once = uniform_points(7, 20, 2);
  Matrix<double> twice(40, 2);
  twice << once, once;
  const Matrix<double> k = linalg::gram(linalg::LaplaceKernel(1), twice);
  const Vector<double> y = normals(8, 40), expected = reference::ridgeless_coefficients(k, y);
  // Of what is left the condition number is below 1e3, and both take the same eigenvectors.
  CHECK((RidgePath(k, y).coefficients(0) - expected).norm() <= 1e-12 * expected.norm());
}

TEST_CASE("kernels.ridgeless: the ridge path ends at the interpolant of least norm") {
  Matrix<double> x = uniform_points(11, 30, 2);
  x.row(29) = x.row(0);
  const Matrix<double> k = linalg::gram(linalg::LaplaceKernel(1), x);
  const Vector<double> y = normals(11, 30);
  const RidgePath path(k, y);
  CHECK(relative_error(path.coefficients(0), fit_ridgeless(k, y).alpha) <= 1e-9);
  // A small ridge leaves (y_0 - y_29) / (2 ridge) in the direction that K does not see; predictions converge.
  const Vector<double> limit = k * path.coefficients(0), close = k * path.coefficients(1e-7);
  CHECK(relative_error(close, limit) <= 1e-4);
}

TEST_CASE("kernels.ridgeless: leave-one-out by formula equals leaving out") {
  const std::uint64_t seed = GENERATE(12u, 13u);
  INFO("seed = " << seed);
  const Matrix<double> k = linalg::gram(linalg::LaplaceKernel(2), uniform_points(seed, 25, 2));
  const Vector<double> y = normals(seed, 25);
  const std::vector<double> ridges{0.0, 1e-3, 0.5, 20};
  const auto loo = RidgePath(k, y).leave_one_out(ridges);
  for (Index i = 0; i < 4; ++i) {
    const Vector<double> slow = reference::leave_one_out(k, y, ridges[static_cast<std::size_t>(i)]);
    CHECK(relative_error(loo.residuals.row(i).transpose(), slow) <= 1e-10);
    CHECK(std::abs(loo.scores[i] / (slow.squaredNorm() / 25) - 1) <= 1e-10);
  }
  Index best = 0;
  loo.scores.minCoeff(&best);
  CHECK(loo.ridge == ridges[static_cast<std::size_t>(best)]);
}

TEST_CASE("kernels.ridgeless: among ridges of equal score the largest is chosen") {
  // K = 1: every residual is y_i whatever the ridge.
  const Matrix<double> k = Matrix<double>::Identity(6, 6);
  const std::vector<double> ridges{1, 8, 2};
  CHECK(RidgePath(k, Vector<double>::Ones(6).eval()).leave_one_out(ridges).ridge == 8);
}

TEST_CASE("kernels.ridgeless: one point and a target of zero") {
  const Matrix<double> k = Matrix<double>::Constant(1, 1, 4);
  const auto fit = fit_ridgeless(k, std::vector<double>{2});
  CHECK(fit.alpha[0] == 0.5);
  CHECK(fit.rcond == 1);
  CHECK(fit.interpolates);
  const auto zero = fit_ridgeless(k, std::vector<double>{0});
  CHECK(zero.alpha[0] == 0);
  CHECK(zero.residual == 0);
  const auto nothing = fit_ridgeless(Matrix<double>::Zero(3, 3).eval(), Vector<double>::Ones(3).eval());
  CHECK(nothing.rank == 0);
  CHECK(nothing.alpha.norm() == 0);
  CHECK(nothing.residual == 1);
  CHECK(nothing.rcond == 0);
}

TEST_CASE("kernels.ridgeless: views of any layout are read") {
  const Matrix<double> k = linalg::gram(linalg::LaplaceKernel(1), uniform_points(14, 12, 2));
  const Vector<double> y = normals(14, 12);
  const Eigen::MatrixXd wide = k.replicate(2, 2);
  Matrix<double> values(12, 3);
  values.col(1) = y;
  CHECK(fit_ridgeless(wide.block(12, 0, 12, 12), values.col(1)).alpha == fit_ridgeless(k, y).alpha);
}

TEST_CASE("kernels.ridgeless: bad input is refused in words") {
  const Matrix<double> k = Matrix<double>::Identity(3, 3);
  const Vector<double> y = Vector<double>::Ones(3);
  CHECK(message_of<InvalidArgument>([&] { fit_ridgeless(Matrix<double>::Ones(3, 4).eval(), y); }) ==
        "RidgelessSolver: gram has shape [3,4], expected [3,3] (a square)");
  CHECK(message_of<InvalidArgument>([&] { RidgelessSolver(Matrix<double>(0, 0)); }) ==
        "RidgelessSolver: gram has no rows");
  CHECK(message_of<InvalidArgument>([&] {
          fit_ridgeless(k, std::vector<double>{1, 2});
        }) == "fit_ridgeless: y has shape [2], expected [3] (one value a row of gram)");
  CHECK(message_of<InvalidArgument>([&] {
          fit_ridgeless(k, std::vector<double>{1, 2, std::nan("")});
        }) == "fit_ridgeless: y has an entry that is not finite");
  Matrix<double> skew = k;
  skew(2, 0) = 1.5e-10;
  CHECK(message_of<InvalidArgument>([&] { fit_ridgeless(skew, y); }) ==
        "RidgelessSolver: gram must be symmetric, but entries differ by 1.5e-10 across the diagonal");
  skew(2, 0) = 0.5e-10;
  CHECK(fit_ridgeless(skew, y).interpolates);
  Matrix<double> infinite = k;
  infinite(1, 1) = std::numeric_limits<double>::infinity();
  CHECK(message_of<InvalidArgument>([&] { fit_ridgeless(infinite, y); }) ==
        "RidgelessSolver: gram has an entry that is not finite");
  const Matrix<double> indefinite = Vector<double>{{2.0, 1.0, -0.5}}.asDiagonal();
  const std::string sentence = message(": gram has the eigenvalue -0.5, below what rounding explains (-", 6 * eps,
                                       "): it is not positive semidefinite");
  CHECK(message_of<NumericalError>([&] { fit_ridgeless(indefinite, y); }) == "RidgelessSolver" + sentence);
  CHECK(message_of<NumericalError>([&] { RidgePath(indefinite, y); }) == "RidgePath" + sentence);
  CHECK(message_of<InvalidArgument>([&] { fit_ridgeless(k, y, {.ridge = -1}); }) ==
        "RidgelessSolver: ridge must be at least 0 and finite, got -1");
  CHECK(message_of<InvalidArgument>([&] { fit_ridgeless(k, y, {.truncation = 1}); }) ==
        "RidgelessSolver: truncation must be in [0, 1), got 1");
  CHECK(message_of<InvalidArgument>([&] { predict(Matrix<double>::Ones(2, 4).eval(), fit_ridgeless(k, y)); }) ==
        "predict: k_test has shape [2,4], expected [2,3] (one column a training point)");
  const RidgelessSolver solver(k);
  CHECK(message_of<InvalidArgument>([&] { solver.solve(std::vector<double>{1}); }) ==
        "RidgelessSolver::solve: b has shape [1], expected [3] (one entry a row of gram)");
  CHECK(message_of<InvalidArgument>([&] { solver.solve_columns(Matrix<double>::Ones(2, 5).eval()); }) ==
        "RidgelessSolver::solve_columns: b has shape [2,5], expected [3,5] (one row a row of gram)");
  const RidgePath path(k, y);
  CHECK(message_of<InvalidArgument>([&] { path.coefficients(-2); }) ==
        "RidgePath::coefficients: ridge must be at least 0 and finite, got -2");
  CHECK(message_of<InvalidArgument>([&] { path.leave_one_out({}); }) == "RidgePath::leave_one_out: ridges is empty");
  const std::vector<double> zero{0.0};
  CHECK(message_of<NumericalError>([&] { RidgePath(Matrix<double>::Ones(3, 3).eval(), y).leave_one_out(zero); }) ==
        "RidgePath::leave_one_out: the matrix is singular at the ridge 0");
}

}  // namespace
}  // namespace ashlar::kernels
