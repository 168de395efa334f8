#include "ashlar/statistics/single_index.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "statistics/samples.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/threads.hpp"

namespace ashlar::statistics {
namespace {

using test::message_of;

/// n = 200, p = 6, 4000 evaluations of annealing from directional regression. Over 60 seeds the mean falls to 0.16,
/// 0.41, 0.05 of its start by the angle walk (designs 2, 3, 4), to 0.29, 0.56, 0.10 by the cooled one; of five seeds
/// one in twelve groups is twice as far off, so there are twenty.
struct Outcome {
  double start = 0, result = 0, worst_excess = -1;  // mean sines; the largest B(result) - B(truth)
};
Outcome outcome(int scenario, AnnealingWalk walk) {
  Outcome mean;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Model m = design(scenario, 200, 6, seed);
    const auto fit = hellinger_reduction(m.x, m.y, Rng(seed), {.annealing = walk, .annealing_evaluations = 4000});
    mean.start += sine(fit.start, m.truth) / 20;
    mean.result += sine(fit.direction, m.truth) / 20;
    mean.worst_excess = std::max(mean.worst_excess, fit.affinity - copula_affinity((m.x * m.truth).eval(), m.y));
  }
  return mean;
}

TEST_CASE("statistics.single_index: the published walk halves the angle of directional regression") {
  for (const int scenario : {2, 3, 4}) {
    const Outcome mean = outcome(scenario, AnnealingWalk::angles);
    INFO("scenario = " << scenario << ": " << mean.start << " to " << mean.result << ", " << mean.worst_excess);
    CHECK(mean.result <= 0.5 * mean.start);
    CHECK(mean.worst_excess <= 0.02);
  }
}

TEST_CASE("statistics.single_index: the cooled walk ends below the affinity of the truth") {
  for (const int scenario : {2, 3, 4}) {
    const Outcome mean = outcome(scenario, AnnealingWalk::cooled);
    INFO("scenario = " << scenario << ": " << mean.start << " to " << mean.result << ", " << mean.worst_excess);
    CHECK(mean.result <= (scenario == 3 ? 1.0 : 0.5) * mean.start);
    CHECK(mean.worst_excess <= 0);
  }
}

TEST_CASE("statistics.single_index: a dense direction is found from a useless start by the cooled walk") {
  // Of 40 samples: median 0.061, largest 0.097. With 8000 evaluations three ended elsewhere, at an affinity far above.
  std::vector<double> sines;
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u, 5u}) {
    Rng rng(seed);
    Vector<double> b(10);
    b << 1, 1, 1, -1, -1, -1, -1, 1, 1, -1;
    b.normalize();
    const Matrix<double> x = normal_matrix<double>(rng, 400, 10);
    Vector<double> y = (x * b).array().square();
    for (double& value : y) value += 0.2 * rng.normal();
    const auto fit = hellinger_reduction(x, y, rng, {.start = StartDirection::sliced_inverse_regression});
    CHECK(sine(fit.start, b) > 0.3);
    sines.push_back(sine(fit.direction, b));
  }
  std::sort(sines.begin(), sines.end());
  INFO(sines[0] << ' ' << sines[2] << ' ' << sines[4]);
  CHECK(sines[2] <= 0.09);
  CHECK(sines[4] <= 0.2);
}

TEST_CASE("statistics.single_index: the objective is even and takes any length and is the affinity of the index") {
  const Model m = design(4, 150, 5, 1);
  auto objective = hellinger_objective(m.x, m.y);
  Rng rng(2);
  for (int k = 0; k < 20; ++k) {
    const Vector<double> b = normal_matrix<double>(rng, 5, 1).col(0);
    const double value = objective(b);
    CHECK(objective((-b).eval()) == value);
    CHECK(objective((4 * b).eval()) == value);
    CHECK(copula_affinity(objective.index(b), m.y) == value);
    CHECK((objective.index(b) - m.x * b).cwiseAbs().maxCoeff() <= 1e-14 * b.norm() * m.x.norm());
  }
  const Vector<double> b = m.truth;
  CHECK(test::allocations([&] { objective(b); }) == 0);
}

TEST_CASE("statistics.single_index: equal rows have equal indices wherever they stand") {
  Matrix<double> x = Matrix<double>::Random(13, 3);
  for (Index i = 1; i < 13; ++i) x.row(i) = x.row(0);
  x(5, 1) += 1;
  auto objective = hellinger_objective(x, Vector<double>::LinSpaced(13, 0, 1).eval());
  const Vector<double> z = objective.index(std::vector<double>{0.3, 0.1, 0.7});
  for (Index i = 1; i < 13; ++i)
    if (i != 5) CHECK(z[i] == z[0]);
}

TEST_CASE("statistics.single_index: the result is a unit vector with its index and never worse than its start") {
  const Model m = design(3, 120, 4, 3);
  for (const StartDirection start :
       {StartDirection::sliced_inverse_regression, StartDirection::sliced_average_variance,
        StartDirection::directional_regression, StartDirection::minimum_average_variance,
        StartDirection::distance_covariance, StartDirection::hsic, StartDirection::random, StartDirection::given})
    for (const Index annealing : {0, 200})
      for (const Index simplex : {0, 100}) {
        INFO("start " << static_cast<int>(start) << ", annealing " << annealing << ", simplex " << simplex);
        const auto fit = hellinger_reduction(m.x, m.y, Rng(4),
                                             {.start = start,
                                              .given = Eigen::Vector4d(0, 3, 0, 0),
                                              .annealing_evaluations = annealing,
                                              .simplex_evaluations = simplex});
        Index at = 0;
        fit.direction.cwiseAbs().maxCoeff(&at);
        CHECK(fit.direction[at] > 0);
        CHECK(std::abs(fit.direction.norm() - 1) <= 1e-14);
        CHECK(fit.affinity <= copula_affinity((m.x * fit.start).eval(), m.y) + 1e-14);
        CHECK(fit.correlation == hellinger_correlation_of(fit.affinity));
        CHECK((fit.index - m.x * fit.direction).norm() <= 1e-13);
        CHECK(std::abs(fit.affinity - copula_affinity(fit.index, m.y)) <= 1e-12);
        CHECK(fit.evaluations >= std::max<Index>(annealing, 1));
        if (annealing == 0 && simplex == 0) CHECK(sine(fit.direction, fit.start) <= 1e-14);
        if (start == StartDirection::given) CHECK(fit.start == Eigen::Vector4d(0, 1, 0, 0));
      }
}

TEST_CASE("statistics.single_index: the starts are the estimators they are named after") {
  const Model m = design(1, 100, 3, 5);
  const auto start = [&](StartDirection kind) {
    return hellinger_reduction(m.x, m.y, Rng(6),
                               {.start = kind, .slices = 4, .annealing_evaluations = 0, .simplex_evaluations = 0})
        .start;
  };
  CHECK(start(StartDirection::sliced_inverse_regression) ==
        sliced_inverse_regression(m.x, m.y, {.slices = 4}).directions.col(0));
  CHECK(start(StartDirection::sliced_average_variance) ==
        sliced_average_variance(m.x, m.y, {.slices = 4}).directions.col(0));
  CHECK(start(StartDirection::directional_regression) ==
        directional_regression(m.x, m.y, {.slices = 4}).directions.col(0));
  CHECK(start(StartDirection::minimum_average_variance) == minimum_average_variance(m.x, m.y).direction);
  CHECK(start(StartDirection::distance_covariance) ==
        distance_covariance_reduction(m.x, m.y, Rng(6).split(1)).direction);
  CHECK(start(StartDirection::hsic) == hsic_reduction(m.x, m.y, Rng(6).split(1)).direction);
}

TEST_CASE("statistics.single_index: distance covariance and HSIC find monotone and symmetric links") {
  for (const int scenario : {1, 2, 3}) {
    const Model m = design(scenario, 200, 4, 7);
    const auto d = distance_covariance_reduction(m.x, m.y, Rng(8)), h = hsic_reduction(m.x, m.y, Rng(8));
    INFO("scenario = " << scenario << ": " << sine(d.direction, m.truth) << ' ' << sine(h.direction, m.truth));
    CHECK(sine(d.direction, m.truth) <= 0.2);
    CHECK(sine(h.direction, m.truth) <= 0.2);
    const Vector<double> truth = m.x * m.truth;
    CHECK(d.dependence >= numerics::distance_covariance(truth, m.y));
    CHECK(h.dependence >= numerics::hsic(truth, m.y));
    CHECK(std::abs(d.dependence - numerics::distance_covariance((m.x * d.direction).eval(), m.y)) <= 1e-12);
  }
}

TEST_CASE("statistics.single_index: restarts are divided among threads without changing a bit") {
  const Model m = design(2, 100, 4, 9);
  const auto run = [&](int threads, Index restarts) {
    return test::with_threads(threads, [&] {
      return hellinger_reduction(
          m.x, m.y, Rng(10),
          {.start = StartDirection::sliced_inverse_regression, .annealing_evaluations = 300, .restarts = restarts});
    });
  };
  const auto one = run(1, 5), two = run(2, 5), four = run(4, 5), single = run(1, 1);
  CHECK(one.direction == two.direction);
  CHECK(one.direction == four.direction);
  CHECK(one.evaluations == four.evaluations);
  CHECK(one.evaluations > 5 * 300);
  CHECK(one.affinity <= single.affinity);
}

TEST_CASE("statistics.single_index: one predictor needs no search and two have one angle") {
  const Model m = design(4, 80, 2, 11);
  const auto one = hellinger_reduction(m.x.leftCols(1).eval(), m.y, Rng(1));
  CHECK(one.direction == Vector<double>::Ones(1));
  CHECK(one.evaluations == 1);
  CHECK(one.affinity == copula_affinity(m.x.col(0).eval(), m.y));
  CHECK(distance_covariance_reduction(m.x.leftCols(1).eval(), m.y, Rng(1)).direction[0] == 1);
  CHECK(sine(hellinger_reduction(m.x, m.y, Rng(1), {.annealing_evaluations = 500}).direction, m.truth) <= 0.1);
}

TEST_CASE("statistics.single_index: bad input is named") {
  Matrix<double> x = Matrix<double>::Random(8, 2);
  Vector<double> y = Vector<double>::Random(8);
  const auto with = [&](const HellingerReductionOptions& options) {
    return message_of<InvalidArgument>([&] { hellinger_reduction(x, y, Rng(1), options); });
  };
  CHECK(with({.annealing_evaluations = -1}) ==
        "hellinger_reduction: annealing_evaluations must be not negative, got -1");
  CHECK(with({.simplex_evaluations = -1}) == "hellinger_reduction: simplex_evaluations must be not negative, got -1");
  CHECK(with({.restarts = 0}) == "hellinger_reduction: restarts must be at least 1, got 0");
  CHECK(with({.slices = 1}) == "directional_regression: slices must be at least 2, or 0 for the default, got 1");
  CHECK(with({.start = StartDirection::given}) ==
        "hellinger_reduction: given has shape [0], expected [2] (one entry a column of x)");
  CHECK(with({.start = StartDirection::given, .given = Eigen::Vector2d(0, 0)}) ==
        "hellinger_reduction: given must be finite and not zero");
  CHECK(with({.start = static_cast<StartDirection>(77)}) ==
        "hellinger_reduction: start must be a StartDirection, got 77");
  auto objective = hellinger_objective(x, y);
  const auto at = [&](const std::vector<double>& b) { return message_of<InvalidArgument>([&] { objective(b); }); };
  CHECK(at({0, 0}) == "IndexObjective: the direction is zero");
  CHECK(at({1, NAN}) == "IndexObjective: the direction must be finite, got nan");
  CHECK(at({1}) == "IndexObjective: the direction has shape [1], expected [2] (one entry a column of x)");
  CHECK(message_of<InvalidArgument>([&] { hellinger_objective(x.topRows(5), y); }) ==
        "hellinger_objective: x has 5 rows, y has 8");
  CHECK(message_of<InvalidArgument>([&] { hsic_reduction(x, y, Rng(1), 0); }) ==
        "hsic_reduction: evaluations must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { distance_covariance_reduction(x, y, Rng(1), 0); }) ==
        "distance_covariance_reduction: evaluations must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([&] { hellinger_reduction(x, y.head(7), Rng(1)); }) ==
        "hellinger_reduction: y has shape [7], expected [8] (one response a row of x)");
  CHECK(message_of<InvalidArgument>([&] { hellinger_reduction(x.topRows(3), y.head(3), Rng(1)); }) ==
        "hellinger_reduction: x has shape [3,2], expected at least 4 points and one predictor");
  y.setOnes();
  CHECK(with({}) == "hellinger_reduction: y is constant");
  x(0, 0) = NAN;
  CHECK(with({}) == "hellinger_reduction: x has an entry that is not finite");
}

}  // namespace
}  // namespace ashlar::statistics
