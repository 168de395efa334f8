// Ridgeless regression: the interpolant, its exact risk, and the ends of a spectrum, against what Eigen's
// factorisations give a user who writes the formulas down. Everything is in double; the roofs count floats, so work is
// doubled.
#include <Eigen/Dense>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/kernels/ridgeless.hpp"
#include "ashlar/kernels/ridgeless_risk.hpp"
#include "ashlar/linalg/extreme_eigenvalues.hpp"
#include "ashlar/linalg/gram.hpp"
#include "ashlar/linalg/laplace_kernel.hpp"
#include "support/scoreboard.hpp"

namespace ashlar {
namespace {

using Eigen::MatrixXd, Eigen::VectorXd;

/// The Gram matrix of a Laplace kernel on uniform points: a condition number of 1e5 or so.
Matrix<double> laplace_gram(Index n) {
  Rng rng(1);
  Matrix<double> x(n, 2);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = rng.uniform(-1, 1);
  return linalg::gram(linalg::LaplaceKernel(1), x);
}
Vector<double> noise(Index n) {
  Rng rng(2);
  return normal_matrix<double>(rng, n, 1).col(0);
}

void add_fit(Index n) {
  const std::string size = message("n=", n);
  const double order = static_cast<double>(n);
  const scoreboard::Work work{.flops = 2 * order * order * order / 3};
  scoreboard::add({"kernels.ridgeless_fit", size, "ashlar", work}, [=] {
    return [k = laplace_gram(n), y = noise(n)] {
      const auto fit = kernels::fit_ridgeless(k, y);
      benchmark::DoNotOptimize(fit.alpha.data());
    };
  });
  scoreboard::add({"kernels.ridgeless_fit", size, "Eigen LLT, unchecked", work}, [=] {
    return [k = MatrixXd(laplace_gram(n)), y = noise(n)] {
      const VectorXd alpha = k.llt().solve(y);
      benchmark::DoNotOptimize(alpha.data());
    };
  });
  scoreboard::add({"kernels.ridgeless_fit", size, "reference", {}}, [=] {
    return [k = laplace_gram(n), y = noise(n)] {
      const Vector<double> alpha = kernels::reference::ridgeless_coefficients(k, y);
      benchmark::DoNotOptimize(alpha.data());
    };
  });
}

void add_extremes(Index n) {
  const std::string size = message("n=", n);
  const double order = static_cast<double>(n);
  scoreboard::add({"linalg.extreme_eigenvalues", size, "ashlar", {.flops = 2 * order * order * order / 3}}, [=] {
    return [k = laplace_gram(n)] {
      const auto ends = linalg::extreme_eigenvalues(k);
      benchmark::DoNotOptimize(&ends);
    };
  });
  scoreboard::add({"linalg.extreme_eigenvalues", size, "Eigen, all eigenvalues", {}}, [=] {
    return [k = MatrixXd(laplace_gram(n))] {
      const Eigen::SelfAdjointEigenSolver<MatrixXd> eigen(k, Eigen::EigenvaluesOnly);
      benchmark::DoNotOptimize(eigen.eigenvalues().data());
    };
  });
}

void add_leave_one_out(Index n) {
  const std::string size = message("n=", n, " 20 ridges");
  const auto ridges = [] {
    std::vector<double> values;
    for (int i = 0; i < 20; ++i) values.push_back(std::pow(10.0, -0.25 * i));
    return values;
  };
  scoreboard::add({"kernels.leave_one_out", size, "ashlar"}, [=] {
    return [k = laplace_gram(n), y = noise(n), r = ridges()] {
      const auto choice = kernels::RidgePath(k, y).leave_one_out(r);
      benchmark::DoNotOptimize(&choice);
    };
  });
  scoreboard::add({"kernels.leave_one_out", size, "Eigen, an inverse a ridge"}, [=] {
    return [k = MatrixXd(laplace_gram(n)), y = noise(n), r = ridges()] {
      for (const double ridge : r) {
        MatrixXd shifted = k;
        shifted.diagonal().array() += ridge;
        const MatrixXd inverse = shifted.llt().solve(MatrixXd::Identity(k.rows(), k.cols()));
        const VectorXd residuals = (inverse * y).cwiseQuotient(inverse.diagonal());
        benchmark::DoNotOptimize(residuals.data());
      }
    };
  });
}

struct RiskData {
  Vector<double> lambda, theta;
  Matrix<double> features;
  explicit RiskData(Index n) : lambda(kernels::power_spectrum(20 * n, 1)), theta(Vector<double>::Ones(20 * n)) {
    Rng rng(3);
    features = kernels::gaussian_features(rng, n, 20 * n);
  }
};

void add_risk(Index n, int threads, bool with_reference) {
  const std::string size = message("n=", n, " p=", 20 * n, threads > 1 ? " threads" : "");
  const double order = static_cast<double>(n);
  const scoreboard::Work work{.flops = 2 * 5 * order * order * 20 * order};
  scoreboard::add({"kernels.exact_risk", size, "ashlar", work, threads}, [=] {
    return [data = std::make_shared<RiskData>(n)] {
      const auto risk = kernels::exact_risk(data->lambda, data->features, data->theta);
      benchmark::DoNotOptimize(&risk);
    };
  });
  // Half of the digits, and garbage where K has none.
  scoreboard::add({"kernels.exact_risk", size, "Eigen LLT of K", {}, threads}, [=] {
    return [data = std::make_shared<RiskData>(n)] {
      const MatrixXd weighted = data->features * data->lambda.asDiagonal();  // [n, p]
      const MatrixXd k = weighted * data->features.transpose();
      const MatrixXd c = k.llt().solve(weighted);
      const VectorXd rest = data->theta - c.transpose() * (data->features * data->theta);
      const double risk[] = {rest.squaredNorm(), c.squaredNorm()};
      benchmark::DoNotOptimize(&risk);
    };
  });
  if (!with_reference) return;
  scoreboard::add({"kernels.exact_risk", size, "reference", {}, threads}, [=] {
    return [data = std::make_shared<RiskData>(n)] {
      const auto risk = kernels::reference::exact_risk(data->lambda, data->features, data->theta);
      benchmark::DoNotOptimize(&risk);
    };
  });
}

[[maybe_unused]] const bool registered = [] {
  for (const Index n : {500, 2000}) {
    add_fit(n);
    add_extremes(n);
  }
  add_leave_one_out(500);
  add_risk(200, 1, true);
  add_risk(500, 1, false);
  add_risk(500, 2, false);
  return true;
}();

}  // namespace
}  // namespace ashlar
