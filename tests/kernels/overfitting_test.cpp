#include "ashlar/kernels/overfitting.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ashlar/linalg/laplace_kernel.hpp"
#include "kernels/designs.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::kernels {
namespace {

using test::message_of;

constexpr Index samples = 200, held_out = 200;

template <class K>
OverfittingReport of_kernel(const K& kernel, Index d, std::uint64_t seed) {
  Rng rng(seed);
  Matrix<double> x(samples + held_out, d);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = rng.uniform(-1, 1);
  return classify_overfitting(kernel, x.topRows(samples), x.bottomRows(held_out), rng);
}

OverfittingReport of_features(const Vector<double>& lambda, bool sine, std::uint64_t seed) {
  Rng rng(seed);
  const Index p = lambda.size();
  const Matrix<double> psi =
      sine ? sine_features(rng, samples + held_out, p) : gaussian_features(rng, samples + held_out, p);
  const Matrix<double> train = psi.topRows(samples), test = psi.bottomRows(held_out);
  return classify_overfitting(design_gram(lambda, train, train), design_gram(lambda, test, train), rng);
}

std::string describe(const OverfittingReport& r) {
  return message(name(r.verdict), ", a ", r.decay.a(), ", growth ", r.growth, ", V ", r.variances[0], " ",
                 r.variances[1], " ", r.variances[2]);
}

TEST_CASE("kernels.overfitting: kernels and designs of known regime are told apart") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  INFO("seed = " << seed);
  for (const double a : {0.5, 1.0, 2.0}) {
    const auto report = of_features(power_spectrum(20 * samples, a), false, seed);
    INFO("Gaussian i^-(1 + " << a << "): " << describe(report));
    CHECK(report.verdict == Overfitting::tempered);
  }
  for (const Index d : {1, 2}) {
    const auto laplace = of_kernel(linalg::LaplaceKernel(1), d, seed);
    INFO("Laplace, d = " << d << ": " << describe(laplace));
    CHECK(laplace.verdict == Overfitting::tempered);
    for (const double gamma : {4.0, 0.5}) {
      const auto gauss = of_kernel(linalg::RbfKernel(gamma), d, seed);
      INFO("RBF " << gamma << ", d = " << d << ": " << describe(gauss));
      CHECK(gauss.verdict == Overfitting::catastrophic);
    }
  }
  for (const double a : {0.2, 0.02}) {
    const auto report = of_features(exponential_spectrum(samples + static_cast<Index>(40 / a), a), false, seed);
    INFO("Gaussian e^-" << a << "i: " << describe(report));
    CHECK(report.verdict == Overfitting::catastrophic);
  }
  const auto sine = of_features(power_spectrum(20 * samples, 1), true, seed);
  INFO("sine: " << describe(sine));
  CHECK((sine.verdict == Overfitting::catastrophic || sine.verdict == Overfitting::undetermined));
  const auto high = of_kernel(linalg::LaplaceKernel(1), 5, seed);
  INFO("Laplace, d = 5: " << describe(high));
  CHECK(high.verdict == Overfitting::undetermined);
}

TEST_CASE("kernels.overfitting: a report says what it rests on") {
  const auto report = of_features(power_spectrum(20 * samples, 1), false, 4);
  CHECK(report.sizes == std::array<Index, 3>{50, 100, 200});
  CHECK(std::abs(report.decay.a() - 1) <= 0.2);
  CHECK(std::abs(report.predicted_variance - 1) <= 0.25);
  for (const double v : report.variances) CHECK(std::abs(v - 1) <= 0.35);
  CHECK(std::abs(report.growth) <= 0.2);
  CHECK(report.rcond > 1e-7);
  CHECK(report.rcond < 1e-4);
  CHECK_FALSE(report.rank_deficient);
}

TEST_CASE("kernels.overfitting: sizes with eigenvalues cut off do not count") {
  const auto report = of_kernel(linalg::RbfKernel(0.5), 1, 5);
  for (const double v : report.variances) CHECK(std::isnan(v));
  CHECK(std::isnan(report.growth));
  CHECK(report.verdict == Overfitting::catastrophic);  // by the spectrum alone
  CHECK(report.rcond <= samples * std::numeric_limits<double>::epsilon());
}

TEST_CASE("kernels.overfitting: a matrix of small rank is undetermined") {
  Rng rng(6);
  const Matrix<double> x = normal_matrix<double>(rng, 50, 5);
  const auto report = classify_overfitting(Matrix<double>(x * x.transpose()), Matrix<double>(x * x.transpose()), rng);
  CHECK(report.rank_deficient);
  CHECK(report.decay.kept == 5);
  CHECK(report.verdict == Overfitting::undetermined);
  CHECK(std::isnan(report.predicted_variance));
}

TEST_CASE("kernels.overfitting: the rule") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto power = [](double a) {
    DecayFit fit{.law = DecayLaw::power};
    fit.power.slope = -1 - a;
    return fit;
  };
  CHECK(verdict_of(power(1), 0.1, 1) == Overfitting::tempered);
  CHECK(verdict_of(power(1), -2, 1) == Overfitting::tempered);
  CHECK(verdict_of(power(1), 0.2, 1) == Overfitting::undetermined);
  CHECK(verdict_of(power(1), 0.6, 1.1) == Overfitting::catastrophic);
  CHECK(verdict_of(power(1), 0.6, 0.9) == Overfitting::undetermined);  // pre-asymptotic
  CHECK(verdict_of(power(1), 0.4, 5) == Overfitting::undetermined);
  CHECK(verdict_of(power(1), nan, 1) == Overfitting::undetermined);
  CHECK(verdict_of(power(0), -0.3, 0.1) == Overfitting::benign);
  CHECK(verdict_of(power(0), 0.1, 0.1) == Overfitting::undetermined);
  CHECK(verdict_of(power(0), nan, 0.1) == Overfitting::undetermined);
  CHECK(verdict_of({.law = DecayLaw::exponential}, nan, nan) == Overfitting::catastrophic);
  CHECK(verdict_of({}, 2, 10) == Overfitting::undetermined);
  CHECK(name(Overfitting::benign) == "benign");
  CHECK(name(Overfitting::tempered) == "tempered");
  CHECK(name(Overfitting::catastrophic) == "catastrophic");
  CHECK(name(Overfitting::undetermined) == "undetermined");
}

TEST_CASE("kernels.overfitting: the variance of a subsample is that of its own points") {
  Rng rng(7);
  const Matrix<double> x = normal_matrix<double>(rng, 40, 2), x_test = normal_matrix<double>(rng, 9, 2);
  const linalg::LaplaceKernel kernel(1);
  const std::vector<Index> chosen{3, 17, 0, 25, 39};
  Matrix<double> part(5, 2);
  for (Index i = 0; i < 5; ++i) part.row(i) = x.row(chosen[static_cast<std::size_t>(i)]);
  const Matrix<double> k = linalg::gram(kernel, x), cross = linalg::gram(kernel, x_test, x);
  CHECK(std::abs(detail::subsample_variance(k, cross, chosen) / sampled_risk(kernel, part, x_test).variance - 1) <=
        1e-12);
}

TEST_CASE("kernels.overfitting: the variance of a size is the median over subsamples") {
  Rng rng(8);
  const Matrix<double> k = 2 * Matrix<double>::Identity(16, 16), cross = normal_matrix<double>(rng, 3, 16);
  for (const int subsamples : {1, 4, 5}) {
    INFO(subsamples << " subsamples");
    Rng first(9), second(9);
    const auto report = classify_overfitting(k, cross, first, {.subsamples = subsamples});
    for (std::size_t i = 0; i < 2; ++i) {
      std::vector<double> draws;
      for (int draw = 0; draw < subsamples; ++draw)
        draws.push_back(detail::subsample_variance(k, cross, second.sample(16, report.sizes[i])));
      std::sort(draws.begin(), draws.end());
      const double median = subsamples == 1 ? draws[0] : subsamples == 4 ? (draws[1] + draws[2]) / 2 : draws[2];
      CHECK(report.variances[i] == median);
    }
    CHECK(std::abs(report.variances[2] / (cross.squaredNorm() / 3 / 4) - 1) <= 1e-14);
  }
}

TEST_CASE("kernels.overfitting: growth is the slope between logarithms") {
  // K = 2 and k_x = 1: V is a quarter of the number of points.
  const Matrix<double> k = 2 * Matrix<double>::Identity(16, 16), cross = Matrix<double>::Ones(3, 16);
  Rng rng(8);
  const auto report = classify_overfitting(k, cross, rng);
  for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(report.variances[i] / static_cast<double>(1 << i) - 1) <= 1e-14);
  CHECK(std::abs(report.growth - 1) <= 1e-14);
  CHECK(report.verdict == Overfitting::catastrophic);
}

TEST_CASE("kernels.overfitting: a seed gives the same report for any number of threads") {
  const auto run = [] { return of_kernel(linalg::LaplaceKernel(1), 2, 9); };
  const auto one = test::with_threads(1, run);
  for (const int threads : {2, 4}) {
    const auto more = test::with_threads(threads, run);
    CHECK(more.variances == one.variances);
    CHECK(more.growth == one.growth);
    CHECK(more.decay.a() == one.decay.a());
  }
}

TEST_CASE("kernels.overfitting: bad input is refused in words") {
  Rng rng(10);
  const Matrix<double> k = Matrix<double>::Identity(16, 16);
  CHECK(message_of<InvalidArgument>([&] { classify_overfitting(k.topLeftCorner(15, 15), k.leftCols(15), rng); }) ==
        "classify_overfitting: gram must have 16 rows at least, got 15");
  CHECK(message_of<InvalidArgument>([&] { classify_overfitting(k.topRows(15), k, rng); }) ==
        "classify_overfitting: gram has shape [15,16], expected [15,15] (a square)");
  CHECK(message_of<InvalidArgument>([&] { classify_overfitting(k, k.leftCols(15), rng); }) ==
        "classify_overfitting: k_test has shape [16,15], expected [16,16] (one column a row of gram)");
  CHECK(message_of<InvalidArgument>([&] { classify_overfitting(k, Matrix<double>(0, 16), rng); }) ==
        "classify_overfitting: k_test has no rows");
  CHECK(message_of<InvalidArgument>([&] { classify_overfitting(k, k, rng, {.subsamples = 0}); }) ==
        "classify_overfitting: subsamples must be at least 1, got 0");
  Matrix<double> indefinite = k;
  indefinite(3, 3) = -1;
  CHECK(message_of<NumericalError>([&] {
          classify_overfitting(indefinite, k, rng);
        }).starts_with("classify_overfitting: gram has the eigenvalue -1, below what rounding explains ("));
}

}  // namespace
}  // namespace ashlar::kernels
