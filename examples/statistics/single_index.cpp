// Sufficient dimension reduction by Hellinger correlation (Hong, Kim, Song, ICML 2024): the direction b of predictors x
// through which alone y depends on them, y = link(x'b) with any link and any noise.
//
// The claims: starting from directional regression, and even from sliced inverse regression that sees nothing of a
// symmetric link, the search by Hellinger correlation comes near the truth; it keeps working under links with poles and
// noise without a variance, where the other methods fail. The angles are measured on the designs of the paper and on
// dense directions; the plot shows y against the index found.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/linalg/subspace_distance.hpp"
#include "ashlar/statistics.hpp"
#include "ashlar/statistics/hellinger_correlation.hpp"
#include "support/cli.hpp"
#include "support/plot.hpp"

namespace {

using namespace ashlar;
using namespace ashlar::statistics;
using example::brief;
using example::claim;

struct Data {
  Matrix<double> x;
  Vector<double> y, truth;
};

template <class Link>
Data draw(Index n, const Vector<double>& direction, Rng& rng, Link&& link) {
  Data data{normal_matrix<double>(rng, n, direction.size()), Vector<double>(n), direction.normalized()};
  const Vector<double> z = data.x * direction;
  for (Index i = 0; i < n; ++i) data.y[i] = link(z[i], rng);
  return data;
}

double angle(const Vector<double>& b, const Data& data) { return linalg::subspace_distance(b, data.truth); }

/// Design 2 of the paper, from two starts: sliced inverse regression is blind here.
bool rescue(const Rng& rng, Index repetitions) {
  std::printf("y = z^2 + noise, z = x1 - x2, n = 400, p = 10, mean sine of the angle to the truth, %td data sets:\n",
              repetitions);
  std::printf("  start                           start   angle walk   cooled   simplex alone\n");
  bool held = true;
  for (const auto& [start, name] : {std::pair{StartDirection::sliced_inverse_regression, "sliced inverse regression"},
                                    {StartDirection::directional_regression, "directional regression"}}) {
    double means[4] = {};
    for (Index r = 0; r < repetitions; ++r) {
      Rng own = rng.split(static_cast<std::uint64_t>(r));
      Vector<double> b = Vector<double>::Zero(10);
      b.head(2) << 1, -1;
      const Data data = draw(400, b, own, [](double z, Rng& noise) { return z * z + 0.2 * noise.normal(); });
      HellingerReductionOptions options{.start = start, .annealing_evaluations = 8000};
      const auto cooled = hellinger_reduction(data.x, data.y, own, options);
      options.annealing = AnnealingWalk::angles;
      const auto walk = hellinger_reduction(data.x, data.y, own, options);
      options.annealing_evaluations = 0;
      const auto simplex = hellinger_reduction(data.x, data.y, own, options);
      const double sines[] = {angle(cooled.start, data), angle(walk.direction, data), angle(cooled.direction, data),
                              angle(simplex.direction, data)};
      for (int k = 0; k < 4; ++k) means[k] += sines[k] / static_cast<double>(repetitions);
    }
    std::printf("  %-30s  %5.3f   %10.3f   %6.3f   %13.3f\n", name, means[0], means[1], means[2], means[3]);
    held &= means[1] < 0.5 * means[0] && means[2] < 0.6 * means[0];
  }
  return claim(held, "annealing rescues the blind start and improves the good one");
}

/// The same link with a dense direction, where the walk of the angles has no easy path.
bool dense(const Rng& rng, Index repetitions) {
  Vector<double> b(10);
  b << 1, 1, 1, -1, -1, -1, -1, 1, 1, -1;
  std::vector<double> walk, cooled;
  for (Index r = 0; r < repetitions; ++r) {
    Rng own = rng.split(static_cast<std::uint64_t>(r));
    const Data data = draw(400, b.normalized(), own, [](double z, Rng& noise) { return z * z + 0.2 * noise.normal(); });
    HellingerReductionOptions options{.start = StartDirection::sliced_inverse_regression,
                                      .annealing_evaluations = 8000};
    cooled.push_back(angle(hellinger_reduction(data.x, data.y, own, options).direction, data));
    options.annealing = AnnealingWalk::angles;
    walk.push_back(angle(hellinger_reduction(data.x, data.y, own, options).direction, data));
  }
  std::sort(walk.begin(), walk.end()), std::sort(cooled.begin(), cooled.end());
  const double median = cooled[cooled.size() / 2];
  std::printf("\nA dense direction from sliced inverse regression: median angle walk %.3f, cooled %.3f\n",
              walk[walk.size() / 2], median);
  return claim(median < 0.09, "the cooled walk on the sphere finds dense directions as well: " + brief(median));
}

/// Links and noises that break the others.
bool wins(const Rng& rng, Index repetitions, Data& shown) {
  const char* names[] = {"z^2 + 0.05 Cauchy", "exp(1.5 z^2 + 0.2 e)", "1/z + 0.2 e"};
  const auto link = [](int k, double z, Rng& noise) {
    if (k == 0) return z * z + 0.05 * noise.normal() / noise.normal();
    if (k == 1) return std::exp(1.5 * z * z + 0.2 * noise.normal());
    return 1 / z + 0.2 * noise.normal();
  };
  std::printf("\nRandom dense directions, n = 300, p = 6, mean of %td data sets:\n", repetitions);
  std::printf("  link                     SIR     DR   MAVE   dcov   HSIC   Hellinger\n");
  bool held = true;
  for (int k = 0; k < 3; ++k) {
    double means[6] = {};
    for (Index r = 0; r < repetitions; ++r) {
      Rng own = rng.split(static_cast<std::uint64_t>(10 * r + k));
      const Vector<double> b = normal_matrix<double>(own, 6, 1).col(0).normalized();
      const Data data = draw(300, b, own, [&](double z, Rng& noise) { return link(k, z, noise); });
      const auto fit = hellinger_reduction(data.x, data.y, own, {.annealing_evaluations = 8000});
      const double sines[] = {angle(sliced_inverse_regression(data.x, data.y).directions.col(0), data),
                              angle(fit.start, data),
                              angle(minimum_average_variance(data.x, data.y).direction, data),
                              angle(distance_covariance_reduction(data.x, data.y, own, 500).direction, data),
                              angle(hsic_reduction(data.x, data.y, own, 500).direction, data),
                              angle(fit.direction, data)};
      for (int m = 0; m < 6; ++m) means[m] += sines[m] / static_cast<double>(repetitions);
      if (k == 0 && r == 0) shown = {data.x, data.y, fit.direction};
    }
    std::printf("  %-22s %5.3f  %5.3f  %5.3f  %5.3f  %5.3f   %9.3f\n", names[k], means[0], means[1], means[2], means[3],
                means[4], means[5]);
    held &= means[5] < 0.7 * means[1];
  }
  return claim(held, "poles, explosions and noise without variance: under 0.7 of directional regression's angle");
}

bool report(const Rng& rng, const Data& shown) {
  const auto eta = hellinger_correlation((shown.x * shown.truth).eval(), shown.y);
  const double p = independence_p_value((shown.x * shown.truth).eval(), shown.y, 199, rng);
  double best = 0;
  for (Index k = 0; k < shown.x.cols(); ++k)
    best = std::max(best, hellinger_correlation(shown.x.col(k).eval(), shown.y).correlation);
  std::printf(
      "\nThe index found for the first data set: Hellinger correlation %.2f, p = %.3f; the best predictor %.2f\n",
      eta.correlation, p, best);
  return claim(eta.correlation > best && p < 0.01, "the index is more dependent than any predictor");
}

void plot(const Data& shown, const std::string& file) {
  const Vector<double> index = shown.x * shown.truth;
  std::string script =
      "set yrange [-1:8]\nset title 'y = z^2 + 0.05 Cauchy'\n"
      "set xlabel 'index found'\nset ylabel 'y'\n$data << EOD\n";
  for (Index i = 0; i < index.size(); ++i) script += message(index[i], ' ', shown.y[i], '\n');
  script += "EOD\nplot $data with points pt 7 ps 0.5 notitle\n";
  example::plot(file, script);
}

bool body(const example::Settings& settings, const std::string& file) {
  const Rng rng(settings.seed);
  const Index factor = settings.full ? 10 : 1;
  Data shown;
  bool held = rescue(rng.split(1), 5 * factor);
  held &= dense(rng.split(2), 5 * factor);
  held &= wins(rng.split(3), 10 * factor, shown);
  held &= report(rng.split(4), shown);
  plot(shown, file);
  return held;
}

}  // namespace

int main(int argc, char** argv) {
  std::string file = "single_index.svg";
  return example::run(
      argc, argv, "Sufficient dimension reduction by Hellinger correlation",
      [&](const example::Settings& settings) { return body(settings, file); },
      [&](CLI::App& app) { app.add_option("--plot", file, "where the plot goes (SVG)")->capture_default_str(); });
}
