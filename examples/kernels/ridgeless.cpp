// Interpolating noise with a kernel (Cheng, Lucchi, Kratsios, Belius, "Characterizing overfitting in kernel ridgeless
// regression through the eigenspectrum", ICML 2024): the decay of the eigenvalues decides what it costs.
//
// The claims: with independent features and eigenvalues i^(-1-a) the variance of unit noise settles at the
// deterministic equivalent, near a, and the condition number grows like n^(1+a); with e^(-a i) both explode, the
// condition number like e^(a n). Features that depend on each other can lose the first guarantee. The same on real
// kernels: Laplace is tempered, Gauss is catastrophic, and a classifier tells them apart from the Gram matrix alone.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ashlar/kernels.hpp"
#include "ashlar/linalg/laplace_kernel.hpp"
#include "ashlar/numerics/line_fit.hpp"
#include "support/cli.hpp"
#include "support/plot.hpp"

namespace {

using namespace ashlar;
using namespace ashlar::kernels;
using example::brief;
using example::claim;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// How a design behaves as it grows.
struct Growth {
  std::string title;
  std::vector<Index> sizes;
  std::vector<double> variances;    ///< medians over draws
  std::vector<double> equivalents;  ///< E0 - 1
  std::vector<double> logs;         ///< of the median condition number of the Gram matrix
  bool bounded = true;              ///< no draw above its proven bound

  double power() const {
    std::vector<double> x;
    for (const Index n : sizes) x.push_back(std::log(static_cast<double>(n)));
    return numerics::fit_line(x, logs).slope;
  }
  double rate() const {
    const std::vector<double> x(sizes.begin(), sizes.end());
    return numerics::fit_line(x, logs).slope;
  }
  void print(double slope) const {
    std::printf("  %-22s", title.c_str());
    for (const double v : variances) std::printf(" %9s", brief(v).c_str());
    std::printf("   ");
    for (const double v : equivalents) std::printf(" %6s", brief(v).c_str());
    std::printf("   %6.3f\n", slope);
  }
};

using Spectrum = std::function<Vector<double>(Index n)>;
using Features = Matrix<double> (*)(Rng&, Index, Index);

Matrix<double> sines(Rng& rng, Index n, Index p) { return sine_features(rng, n, p); }

Growth grow(const std::string& title, const Rng& rng, const std::vector<Index>& sizes, const Spectrum& spectrum,
            Features features, Index draws) {
  Growth growth{title, sizes, {}, {}, {}};
  for (const Index n : sizes) {
    const Vector<double> lambda = spectrum(n), theta = Vector<double>::Zero(lambda.size());
    std::vector<double> variances(static_cast<std::size_t>(draws)), conditions(variances);
    std::vector<char> bounded(variances.size(), 1);
    parallel_for(draws, 1, [&](Index begin, Index) {
      Rng own = rng.split(static_cast<std::uint64_t>(n)).split(static_cast<std::uint64_t>(begin));
      const Matrix<double> psi = features(own, n, lambda.size());
      const auto at = static_cast<std::size_t>(begin);
      const Risk risk = exact_risk(lambda, psi, theta);
      variances[at] = risk.variance;
      conditions[at] = risk.condition * risk.condition;
      if (n <= 50) bounded[at] = risk.variance <= risk_bounds(lambda, psi, theta).variance * (1 + 1e-9);
    });
    growth.variances.push_back(median(variances));
    growth.logs.push_back(std::log(median(conditions)));
    growth.equivalents.push_back(deterministic_equivalent(lambda, theta, n, 1).variance);
    growth.bounded &= std::all_of(bounded.begin(), bounded.end(), [](char b) { return b != 0; });
  }
  return growth;
}

bool polynomial(const Rng& rng, Index draws, bool full, std::vector<Growth>& all) {
  std::vector<Index> sizes{25, 50, 100, 200};
  if (full) sizes.push_back(400);
  std::printf("Eigenvalues i^(-1-a), 20 n features, medians of %td draws\n", draws);
  std::printf(
      "  design                  V at n = 25, 50, 100, ...                   E0 - 1                     d log kappa / "
      "d log n\n");
  struct Case {
    const char* name;
    double a;
    Features features;
  };
  bool held = true;
  for (const auto& [name, a, features] :
       {Case{"Gaussian", 0.5, gaussian_features}, Case{"Gaussian", 1, gaussian_features},
        Case{"Rademacher", 1, rademacher_features}, Case{"Gaussian", 2, gaussian_features}, Case{"sine", 1, sines}}) {
    const Spectrum spectrum = [a = a](Index n) { return power_spectrum(20 * n, a); };
    const Growth g = grow(message(name, ", a = ", a), rng.split(all.size()), sizes, spectrum, features, draws);
    const double slope = g.power();
    g.print(slope);
    if (features == sines) {
      held &= claim(slope > 3, "the sines, functions of one number, lose the rate n^2: slope " + brief(slope));
    } else {
      double worst = 0;
      for (std::size_t i = 2; i < sizes.size(); ++i)
        worst = std::max(worst, std::abs(g.variances[i] / g.equivalents[i] - 1));
      held &= claim(worst <= 0.05 && std::abs(slope - 1 - a) <= std::max(0.1, 0.05 * (1 + a)),
                    "tempered: V within " + brief(100 * worst) + " % of the equivalent from n = 100 on, kappa ~ n^" +
                        brief(slope) + ", theory " + brief(1 + a));
    }
    held &= g.bounded;
    all.push_back(g);
  }
  return held;
}

bool exponential(const Rng& rng, Index draws, std::vector<Growth>& all) {
  std::printf("\nEigenvalues e^(-a i), n + 40 / a features, medians of %td draws\n", draws);
  std::printf(
      "  design                  V at n = 2, 4, 8, 16 over a                 E0 - 1                     d log kappa / "
      "d n\n");
  bool held = true;
  for (const double a : {0.2, 0.1}) {
    const Spectrum spectrum = [a](Index n) {
      return exponential_spectrum(n + static_cast<Index>(std::lround(40 / a)), a);
    };
    std::vector<Index> sizes;
    for (const double n : {2.0, 4.0, 8.0, 16.0}) sizes.push_back(static_cast<Index>(std::lround(n / a)));
    const Growth g =
        grow("Gaussian, a = " + brief(a), rng.split(all.size()), sizes, spectrum, gaussian_features, draws);
    const double slope = g.rate();
    g.print(slope);
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (std::size_t i = 1; i < sizes.size(); ++i) {
      least = std::min(least, g.variances[i] / g.variances[i - 1]);
      most = std::max(most, g.variances[i] / g.variances[i - 1]);
    }
    held &= claim(least >= 1.8 && most <= 2.7 && slope >= a && slope <= 1.16 * a,
                  "catastrophic: V grows by " + brief(least) + " to " + brief(most) + " a doubling, kappa ~ e^(" +
                      brief(slope) + " n)");
    held &= g.bounded;
    all.push_back(g);
    if (a != 0.2) continue;
    const Growth s = grow("sine, a = 0.2", rng.split(all.size()), sizes, spectrum, sines, draws);
    s.print(s.rate());
    held &= claim(s.variances.back() > 1e5, "with sines it is hopeless: V " + brief(s.variances.back()) + " at n = 80");
    held &= s.bounded;
    all.push_back(s);
  }
  return held;
}

Matrix<double> uniform_points(Rng& rng, Index n, Index d) {
  Matrix<double> x(n, d);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = rng.uniform(-1, 1);
  return x;
}

/// Median over draws of mean |K^-1 k_x|^2 over 1000 test points: the expected square of what interpolates pure noise.
template <class K>
double kernel_variance(const K& kernel, Index n, Index d, const Rng& rng) {
  std::vector<double> draws(15);
  parallel_for(15, 1, [&](Index begin, Index) {
    Rng own = rng.split(static_cast<std::uint64_t>(1000 * n + begin));
    const Matrix<double> x = uniform_points(own, n, d), x_test = uniform_points(own, 1000, d);
    draws[static_cast<std::size_t>(begin)] = sampled_risk(kernel, x, x_test).variance;
  });
  return median(draws);
}

bool real_kernels(const Rng& rng) {
  std::printf("\nReal kernels, points uniform on [-1, 1]^d: V at n = 20, 40, 80, 160, 320\n");
  bool held = true;
  for (const Index d : {1, 2}) {
    std::printf("  e^-r, d = %td      ", d);
    double worst = 0;
    for (const Index n : {20, 40, 80, 160, 320}) {
      const double v = kernel_variance(linalg::LaplaceKernel(1), n, d, rng.split(static_cast<std::uint64_t>(d)));
      worst = std::max(worst, v);
      std::printf(" %8s", brief(v).c_str());
    }
    std::printf("\n");
    held &= claim(worst < 1, "the Laplace kernel stays tempered: V at most " + brief(worst));
  }
  std::printf("  e^(-4 r^2), d = 2  ");
  double previous = 0, least = std::numeric_limits<double>::infinity();
  for (const Index n : {20, 40, 80, 160}) {
    const double v = kernel_variance(linalg::RbfKernel(4), n, 2, rng.split(3));
    if (previous > 0) least = std::min(least, v / previous);
    previous = v;
    std::printf(" %8s", brief(v).c_str());
  }
  std::printf("\n");
  return held & claim(least > 3, "the Gaussian kernel grows by " + brief(least) + " at least a doubling");
}

bool classifier(const Rng& rng) {
  std::printf("\nThe classifier at n = 200, from a Gram matrix and 200 points held out\n");
  bool held = true;
  const auto check = [&](const std::string& what, const OverfittingReport& report, bool right) {
    held &= claim(right, what + ": " + std::string(name(report.verdict)) + " (a = " + brief(report.decay.a()) +
                             ", growth " + brief(report.growth) + ", rcond " + brief(report.rcond) + ")");
  };
  for (const Index d : {1, 2}) {
    Rng own = rng.split(static_cast<std::uint64_t>(d));
    const Matrix<double> x = uniform_points(own, 200, d), held_out = uniform_points(own, 200, d);
    const auto laplace = classify_overfitting(linalg::LaplaceKernel(1), x, held_out, own);
    check("Laplace, d = " + std::to_string(d), laplace, laplace.verdict == Overfitting::tempered);
    const auto gauss = classify_overfitting(linalg::RbfKernel(4), x, held_out, own);
    check("Gauss, d = " + std::to_string(d), gauss, gauss.verdict == Overfitting::catastrophic);
  }
  Rng own = rng.split(3);
  const Vector<double> lambda = power_spectrum(4000, 1);
  const Matrix<double> psi = sine_features(own, 200, 4000), test = sine_features(own, 200, 4000);
  const auto sine = classify_overfitting(design_gram(lambda, psi, psi), design_gram(lambda, test, psi), own);
  check("sine features, i^-2", sine, sine.verdict != Overfitting::tempered && sine.verdict != Overfitting::benign);
  return held;
}

void plot(const std::vector<Growth>& all, const std::string& file) {
  std::string script =
      "set key outside right top\nset logscale xy\n"
      "set title 'What interpolating noise costs'\nset xlabel 'samples'\nset ylabel 'variance of unit noise'\n"
      "set format y '%g'\n";
  std::string draws;
  for (std::size_t i = 0; i < all.size(); ++i) {
    script += message("$data", i, " << EOD\n");
    for (std::size_t j = 0; j < all[i].sizes.size(); ++j)
      script += message(all[i].sizes[j], ' ', all[i].variances[j], '\n');
    script += "EOD\n";
    const char* law = i < 5 ? "i^-(1+a), " : "e^-ai, ";
    draws += message(i == 0 ? "plot " : ", ", "$data", i, " with linespoints lw 2 pt 7 ps 0.5 title '", law,
                     all[i].title, "'");
  }
  script += draws + "\n";
  example::plot(file, script);
}

bool body(const example::Settings& settings, const std::string& file) {
  const Rng rng(settings.seed);
  const Index draws = settings.full ? 200 : 64;
  std::vector<Growth> all;
  bool held = polynomial(rng.split(1), draws, settings.full, all);
  held &= exponential(rng.split(2), draws, all);
  held &= claim(std::all_of(all.begin(), all.end(), [](const Growth& g) { return g.bounded; }),
                "no draw of up to 50 samples is above its proven bound");
  held &= real_kernels(rng.split(3));
  held &= classifier(rng.split(4));
  plot(all, file);
  return held;
}

}  // namespace

int main(int argc, char** argv) {
  std::string file = "ridgeless.svg";
  return example::run(
      argc, argv, "Interpolating noise with a kernel: tempered or catastrophic, by the decay of its eigenvalues",
      [&](const example::Settings& settings) { return body(settings, file); },
      [&](CLI::App& app) { app.add_option("--plot", file, "where the plot goes (SVG)")->capture_default_str(); });
}
