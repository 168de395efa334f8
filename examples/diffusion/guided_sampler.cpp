// Theoretical Insights for Diffusion Guidance (Wu, Chen, Li, Wang, Wei, ICML 2024), on mixtures of Gaussians, where
// every score is exact and so is every measurement.
//
// 1. Guidance makes samples more confidently of their class, sample by sample, in DDIM and DDPM.
// 2. It takes diversity: the differential entropy of DDIM samples falls with every bit of strength.
// 3. Both hold for discretised samplers with short steps.
// 4. With steps too long for its strength, guidance to the middle one of three components splits it in two.
// 5. Without a condition on the means guidance can lower confidence.
// 6. Not of the paper: guiding at high noise alone gives diversity back. The score here is one a user brings, two
//    functions as two heads of a network, made one by classifier_free.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <string>
#include <vector>

#include "ashlar/diffusion/guidance.hpp"
#include "ashlar/diffusion/guidance_analysis.hpp"
#include "ashlar/diffusion/guided_sampler.hpp"
#include "support/cli.hpp"
#include "support/plot.hpp"

namespace {

using namespace ashlar;
using namespace ashlar::diffusion;
using example::brief;
using example::claim;

GaussianMixture on_a_line(const std::vector<double>& means, const std::vector<double>& weights) {
  return {weights, View<const double, 2>(means.data(), {static_cast<Index>(means.size()), 1}),
          Covariance::isotropic(1.0)};
}

GaussianMixture on_a_circle(Index classes, double radius) {
  Matrix<double> means(classes, 2);
  for (Index c = 0; c < classes; ++c) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(c) / static_cast<double>(classes);
    means(c, 0) = radius * std::cos(angle), means(c, 1) = radius * std::sin(angle);
  }
  const Vector<double> weights = Vector<double>::Constant(classes, 1 / static_cast<double>(classes));
  return {weights, means, Covariance::isotropic(1.0)};
}

/// Claims 1 to 3 in one mixture: confidences rise, and the entropy of DDIM samples falls.
bool confidence_and_entropy(const std::string& name, const GaussianMixture& mixture,
                            const std::vector<double>& strengths, Rng& rng, const SweepOptions& options,
                            std::vector<SweepRow>& rows) {
  rows = guidance_sweep(mixture, 0, strengths, rng, options);
  std::printf("\n%s, %td samples\n", name.c_str(), options.samples);
  std::printf("%8s %14s %14s %14s %22s %14s\n", "strength", "DDIM conf.", "least gain", "DDIM entropy",
              "DDPM confidence", "DDPM entropy");
  bool rises = true, falls = true, each = true;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SweepRow& row = rows[i];
    std::printf("%8g %14.5f %14.1e %8.3f+-%.3f %22.4f %14.3f\n", row.strength, row.ddim.mean, row.ddim.least_gain,
                row.ddim_entropy.entropy, row.ddim_entropy.standard_error, row.ddpm.mean, row.ddpm_entropy);
    each &= row.ddim.least_gain >= -1e-9;
    if (i == 0) continue;
    rises &= row.ddim.mean > rows[i - 1].ddim.mean && row.ddpm.mean > rows[i - 1].ddpm.mean;
    falls &= row.ddim_entropy.entropy < rows[i - 1].ddim_entropy.entropy;
  }
  bool held = claim(rises, "Confidence rises with every strength, DDIM and DDPM.");
  held &= claim(each, "No DDIM sample is less confident than without guidance.");
  return claim(falls, "The entropy of DDIM samples falls with every strength.") && held;
}

bool against_quadrature(const GaussianMixture& mixture, const std::vector<SweepRow>& rows) {
  double worst = 0;
  for (const SweepRow& row : rows) {
    const double exact = ddim_quadrature(mixture, 0, row.strength).entropy;
    worst = std::max(worst, std::abs(row.ddim_entropy.entropy - exact) - 4 * row.ddim_entropy.standard_error);
  }
  return claim(worst <= 0.01,
               "Those entropies are the exact ones, up to four standard errors and 0.01 for the horizon.");
}

bool splitting(Rng& rng, Index samples) {
  const GaussianMixture mixture = on_a_line({-2, 0, 2}, {1. / 3, 1. / 3, 1. / 3});
  const TimeGrid grid = TimeGrid::uniform(10, 50);
  const double limit = guidance_stability_limit(mixture, 1, grid);
  std::printf("\nThree components at -2, 0, 2, guided to the middle one by 50 Euler steps; the limit is %.1f\n", limit);
  std::printf("%10s %10s %14s %14s\n", "strength", "of limit", "within 0.1", "deviation");
  const auto start = normal_matrix<double>(rng, samples, 1);
  SpreadReport below, above;
  for (const double part : {0.1, 0.5, 0.9, 2.0, 4.0}) {
    Matrix<double> x = start;
    ddim_sample(MixtureScore<double>(mixture, 1, {.strength = part * limit}), x, grid, Step::euler);
    const SpreadReport report = spread_report(x, std::vector<double>{0}, 0.1);
    std::printf("%10.1f %10.1f %14.3f %14.4f\n", part * limit, part, report.within, report.deviation);
    if (part == 0.9) below = report;
    if (part == 4.0) above = report;
  }
  bool held = claim(below.within >= 0.99, "Below the limit the component contracts to its centre.");
  return claim(above.within <= 0.2 && above.deviation > 1, "At four times the limit it has split.") && held;
}

bool without_the_condition() {
  const GaussianMixture mixture = on_a_line({0, 1, 6}, {0.05, 0.05, 0.9});
  std::printf("\nMeans 0, 1, 6 with weights 0.05, 0.05, 0.9, guided to the one at 1 (exact quadrature)\n");
  std::printf("%10s %14s %14s\n", "strength", "confidence", "entropy");
  std::vector<QuadratureResult> results;
  for (const double strength : {0., 1., 2., 5.}) {
    results.push_back(ddim_quadrature(mixture, 1, strength));
    std::printf("%10g %14.3f %14.3f\n", strength, results.back().confidence, results.back().entropy);
  }
  return claim(results[1].confidence < results[0].confidence && results[3].entropy < results[0].entropy,
               "A mean between the others: confidence falls, entropy falls all the same.");
}

bool interval(const GaussianMixture& mixture, Rng& rng, Index samples) {
  const auto start = normal_matrix<float>(rng, samples, mixture.dim());
  const MixtureScore<float> conditional(mixture, 0, {.strength = 0.0}), unconditional(mixture, 0, {.strength = -1.0});
  const double class_entropy = std::log(2 * std::numbers::pi * std::numbers::e);  // of one component in two dimensions
  struct Outcome {
    double confidence, entropy;
  };
  const auto run = [&](Guidance guidance) {
    Matrix<float> x = start;
    Vector<float> logdet(samples);
    auto score = classifier_free(conditional, unconditional, std::move(guidance));
    ddim_sample(score, x, TimeGrid::graded(6, 100), Step::heun, logdet);
    return Outcome{confidence(mixture, x, 0).mean(), ddim_entropy(logdet, mixture.dim()).entropy};
  };
  std::printf("\nThree classes on a circle, scores from two functions in float, strength 10\n");
  const Outcome never = run({}), always = run({.strength = 10.0});
  const Outcome part = run({.strength = 10.0, .schedule = guidance_interval(2, 6)});
  std::printf("%-24s confidence %.4f, entropy %.3f\n", "unguided", never.confidence, never.entropy);
  std::printf("%-24s confidence %.4f, entropy %.3f\n", "guided throughout", always.confidence, always.entropy);
  std::printf("%-24s confidence %.4f, entropy %.3f\n", "guided for 2 <= t <= 6", part.confidence, part.entropy);
  const double given_back = (part.entropy - always.entropy) / (class_entropy - always.entropy);
  return claim(part.confidence > 0.99 && given_back >= 0.5,
               message("The interval gives ", brief(100 * given_back),
                       " % of the lost entropy back at a confidence of ", brief(part.confidence), "."));
}

/// Confidence and entropy over strength, as SVG, where gnuplot is installed.
void plot(const std::vector<SweepRow>& rows, const std::string& file) {
  std::string script =
      "set border 11\nset key outside right top\nset ytics nomirror\n"
      "set y2tics\nset title 'Guidance of three classes on a circle'\nset xlabel 'strength'\n"
      "set ylabel 'confidence'\nset y2label 'entropy of DDIM samples'\n$data << EOD\n";
  for (const SweepRow& row : rows)
    script += message(row.strength, ' ', row.ddim.mean, ' ', row.ddpm.mean, ' ', row.ddim_entropy.entropy, '\n');
  script +=
      "EOD\nplot $data using 1:2 with linespoints pt 7 lw 2 title 'DDIM confidence', $data using 1:3 with linespoints "
      "pt 7 lw 2 title 'DDPM confidence', $data using 1:4 axes x1y2 with linespoints pt 7 lw 2 title 'entropy'\n";
  example::plot(file, script);
}

bool body(const example::Settings& settings, const std::string& file) {
  const SweepOptions options{.samples = settings.full ? Index{20000} : Index{2000},
                             .grid = TimeGrid::graded(6, settings.full ? 1000 : 400)};
  const std::vector<double> strengths =
      settings.full ? std::vector<double>{0, 0.5, 1, 2, 3, 5, 10, 20} : std::vector<double>{0, 1, 3, 10};
  const Rng seed(settings.seed);
  Rng rng = seed.split(0);
  std::vector<SweepRow> rows;
  const GaussianMixture pair = on_a_line({1, -1}, {0.5, 0.5}), circle = on_a_circle(3, 2);
  bool held = confidence_and_entropy("Two components at 1 and -1", pair, strengths, rng, options, rows);
  held &= against_quadrature(pair, rows);
  held &= confidence_and_entropy("Three classes on a circle", circle, strengths, rng, options, rows);
  std::vector<SweepRow> coarse;
  SweepOptions euler = options;
  euler.ddim_step = Step::euler;
  euler.grid = TimeGrid::graded(6, 200);
  held &= confidence_and_entropy("The same by 200 Euler steps", circle, {0, 0.5, 1, 3}, rng, euler, coarse);
  held &= splitting(rng, options.samples);
  held &= without_the_condition();
  held &= interval(circle, rng, 5 * options.samples);
  plot(rows, file);
  return held;
}

}  // namespace

int main(int argc, char** argv) {
  std::string file = "guided_sampler.svg";
  return example::run(
      argc, argv, "What guidance does to diffusion samples of Gaussian mixtures",
      [&](const example::Settings& settings) { return body(settings, file); },
      [&](CLI::App& app) { app.add_option("--plot", file, "where the plot goes, as SVG")->capture_default_str(); });
}
