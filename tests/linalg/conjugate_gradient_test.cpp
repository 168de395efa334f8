#include "ashlar/linalg/conjugate_gradient.hpp"

#include <cmath>

#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::linalg {
namespace {

using test::message_of;

/// y = diag(d) x.
template <class T>
struct Diagonal {
  Vector<T> d;
  void operator()(View<const T, 1> x, View<T, 1> y) const { vector(y) = d.cwiseProduct(vector(x)); }
};

TEMPLATE_TEST_CASE("linalg.conjugate_gradient: the true residual meets the tolerance", "", float, double) {
  using T = TestType;
  Rng rng(1);
  const Matrix<T> x = normal_matrix<T>(rng, 80, 90);
  Matrix<T> a = x * x.transpose() / T(80);
  a.diagonal().array() += T(0.5);
  const auto apply = [&](View<const T, 1> from, View<T, 1> to) { vector(to) = a * vector(from); };
  const Vector<T> b = normal_matrix<T>(rng, 80, 1).col(0);
  const double tolerance = std::is_same_v<T, double> ? 1e-10 : 1e-4;
  const auto [solution, report] = conjugate_gradient(apply, b, {.tolerance = tolerance});
  CHECK(report.converged);
  // The recursion drifts from the true residual by a few units of |A| |x| an iteration.
  const double drift = 10.0 * static_cast<double>(report.iterations) * std::numeric_limits<T>::epsilon() *
                       static_cast<double>(a.norm() * solution.norm() / b.norm());
  CHECK(static_cast<double>((a * solution - b).norm() / b.norm()) <= tolerance + drift);
}

TEST_CASE("linalg.conjugate_gradient: it ends after as many iterations as there are distinct eigenvalues") {
  Vector<double> d(50);
  for (Index i = 0; i < 50; ++i) d[i] = static_cast<double>(1 + i % 3);
  const auto result = conjugate_gradient(Diagonal<double>{d}, Vector<double>::LinSpaced(50, 1, 2).eval());
  CHECK(result.report.iterations == 3);
}

TEST_CASE("linalg.conjugate_gradient: an exact preconditioner ends it after one iteration") {
  const Vector<double> d = Vector<double>::LinSpaced(50, 1, 1e6);
  const Diagonal<double> inverse{d.cwiseInverse()};
  const Vector<double> b = Vector<double>::Ones(50);
  CHECK(conjugate_gradient(Diagonal<double>{d}, b, {}, inverse).report.iterations == 1);
  CHECK(conjugate_gradient(Diagonal<double>{d}, b, {.require_convergence = false}).report.iterations > 20);
}

TEST_CASE("linalg.conjugate_gradient: a first guess is used and a workspace that has grown is enough") {
  const Diagonal<double> apply{Vector<double>::LinSpaced(40, 1, 9)};
  const Vector<double> b = Vector<double>::Ones(40);
  Vector<double> x = b.cwiseQuotient(apply.d);
  Workspace workspace;
  CHECK(conjugate_gradient(apply, b, x, workspace).iterations == 0);
  x.setZero();
  CHECK(test::allocations([&] { conjugate_gradient(apply, b, x, workspace); }) == 0);
  CHECK((apply.d.cwiseProduct(x) - b).norm() <= 1e-9);
}

TEST_CASE("linalg.conjugate_gradient: a zero right-hand side has the zero solution") {
  Vector<double> x = Vector<double>::Ones(4);
  Workspace workspace;
  const auto report =
      conjugate_gradient(Diagonal<double>{Vector<double>::Ones(4)}, Vector<double>::Zero(4).eval(), x, workspace);
  CHECK(report.converged);
  CHECK(x.isZero(0));
}

TEST_CASE("linalg.conjugate_gradient: what cannot work is refused in words") {
  const Vector<double> b = Vector<double>::Ones(3);
  CHECK(message_of<NumericalError>([&] { conjugate_gradient(Diagonal<double>{-b}, b); }) ==
        "conjugate_gradient: the operator is not positive definite, p^T A p is -3 in iteration 1");
  CHECK(message_of<NumericalError>([&] { conjugate_gradient(Diagonal<double>{b}, b, {}, Diagonal<double>{-b}); }) ==
        "conjugate_gradient: the preconditioner is not positive definite");
  const Diagonal<double> stretched{Eigen::Vector3d(1, 2, 3)};
  const auto words = message_of<NumericalError>([&] { conjugate_gradient(stretched, b, {.max_iterations = 1}); });
  CHECK(words.starts_with("conjugate_gradient: did not converge after 1 iterations, the relative residual is 0."));
  CHECK_FALSE(conjugate_gradient(stretched, b, {.max_iterations = 1, .require_convergence = false}).report.converged);
  CHECK(message_of<NumericalError>([&] { conjugate_gradient(stretched, (b * NAN).eval()); }) ==
        "conjugate_gradient: the residual is not finite after 0 iterations");
  Vector<double> x = Vector<double>::Zero(2);
  Workspace workspace;
  CHECK(message_of<InvalidArgument>([&] { conjugate_gradient(stretched, b, x, workspace); }) ==
        "conjugate_gradient: x has shape [2], expected [3] (same length as b)");
}

}  // namespace
}  // namespace ashlar::linalg
