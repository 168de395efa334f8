// Optimal design, allocation and a whole E4 run, against a plain Eigen transcription of the authors' program (Python,
// github.com/panxulab/optimal-batched-linear-bandits): V and its inverse from all arms in every iteration of the
// design, Frank-Wolfe without away steps, every single pull drawn and V^-1 updated after it. Two stopping rules for
// that design: the authors' (successive g closer than 1e-4, far from optimal) and the one the library's result meets.
// Useful work of a design: reading the arms once, 2 K d^2 flops for their leverages.
#include "ashlar/bandits/e4.hpp"

#include <Eigen/Dense>
#include <cmath>
#include <memory>
#include <vector>

#include "support/scoreboard.hpp"

namespace ashlar::bandits {
namespace {

Matrix<double> uniform_arms(Index count, Index dim) {
  Rng rng(1);
  return random_instance(count, dim, rng).arms;
}

/// The authors' design. `tolerance` > 0 replaces their stopping rule by g / d - 1 <= tolerance.
Eigen::VectorXd plain_design(const Eigen::MatrixXd& arms, double rate, double tolerance, Index most_iterations) {
  const Index count = arms.rows();
  const auto dim = static_cast<double>(arms.cols());
  Eigen::VectorXd weights = Eigen::VectorXd::Constant(count, 1.0 / static_cast<double>(count));
  double before = -1, g = 10;
  for (Index iteration = 0; iteration < most_iterations; ++iteration) {
    Eigen::MatrixXd v = arms.transpose() * weights.asDiagonal() * arms;
    if (v.determinant() < 1e-12) v.diagonal().array() += 1e-5;
    const Eigen::MatrixXd inverse = v.inverse();
    const Eigen::VectorXd leverages = (arms * inverse).cwiseProduct(arms).rowwise().sum();
    Index most = 0;
    g = leverages.maxCoeff(&most);
    if (tolerance > 0 ? g / dim - 1 <= tolerance : std::abs(before - g) < 1e-4) break;
    const double step = (g / dim - 1) / (g - 1);
    weights *= 1 - step;
    weights[most] += step;
    before = g;
  }
  return (2 * rate * g / dim * weights).array().ceil();
}

/// A trial as the authors simulate it: one pull, one draw and one update at a time.
class PlainE4 {
 public:
  PlainE4(const LinearBandit& bandit, std::int64_t horizon, std::uint64_t seed)
      : arms_(bandit.arms),
        means_(bandit.means()),
        horizon_(horizon),
        rng_(seed),
        inverse_(Eigen::MatrixXd::Identity(arms_.cols(), arms_.cols())),
        moment_(Eigen::VectorXd::Zero(arms_.cols())) {}

  double run() {
    const double log_t = std::log(static_cast<double>(horizon_)), log_log = std::log(log_t);
    const auto dim = static_cast<double>(arms_.cols()), count = static_cast<double>(arms_.rows());
    const auto t = static_cast<double>(horizon_);
    pull(plain_design(arms_, std::sqrt(t), 0, 100000));
    Eigen::VectorXd gaps = arms_ * theta();
    gaps = (gaps.maxCoeff() - gaps.array()).eval();
    const Matrix<double> arms = arms_;
    const Allocation allocation = reference::asymptotic_allocation(arms, gaps);  // theirs is a conic solver, far slower
    const double alpha = (1 + 1 / log_log) * (1 + dim * log_log / log_t);
    pull((allocation.weights * (alpha * log_t)).cwiseMin(std::min(std::pow(log_t, 3), t / (2 * count))).array().ceil());
    const Eigen::VectorXd estimates = arms_ * theta();
    Index best = 0;
    estimates.maxCoeff(&best);
    double z = INFINITY;
    for (Index k = 0; k < arms_.rows(); ++k) {
      const Eigen::VectorXd v = (arms_.row(k) - arms_.row(best)).transpose();
      if (k != best) z = std::min(z, std::pow(estimates[best] - estimates[k], 2) / (2 * v.dot(inverse_ * v)));
    }
    if (z <= (dim / 2 * std::log(static_cast<double>(pulls_)) + log_t) / 2) return regret_;  // not on these instances
    commit(best);
    return regret_;
  }

 private:
  Eigen::VectorXd theta() const { return inverse_ * moment_; }

  void pull(const Eigen::VectorXd& counts) {
    for (Index k = 0; k < arms_.rows(); ++k)
      for (double i = 0; i < counts[k] && pulls_ < horizon_; ++i) {
        const double reward = rng_.normal(means_[k], 1);
        regret_ += means_.maxCoeff() - means_[k];
        moment_ += reward * arms_.row(k).transpose();
        const Eigen::VectorXd omega = inverse_ * arms_.row(k).transpose();
        inverse_ -= omega * omega.transpose() / (1 + arms_.row(k).dot(omega));
        ++pulls_;
      }
  }

  void commit(Index arm) {
    for (; pulls_ < horizon_; ++pulls_) {
      total_ += rng_.normal(means_[arm], 1);
      regret_ += means_.maxCoeff() - means_[arm];
    }
  }

  Eigen::MatrixXd arms_;
  Eigen::VectorXd means_;
  std::int64_t horizon_, pulls_ = 0;
  Rng rng_;
  Eigen::MatrixXd inverse_;
  Eigen::VectorXd moment_;
  double regret_ = 0, total_ = 0;
};

const bool registered = [] {
  for (const auto& [count, dim] : {std::pair<Index, Index>{100, 5},
                                   {100, 20},
                                   {10000, 5},
                                   {10000, 20},
                                   {10000, 50},
                                   {100000, 5},
                                   {100000, 20},
                                   {100000, 50}}) {
    const std::string size = message("K=", count, " d=", dim);
    const double flops = 2.0 * static_cast<double>(count * dim * dim);
    scoreboard::add({"bandits.optimal_design.to_1e-6", size, "ashlar", {.flops = flops}}, [count = count, dim = dim] {
      return [arms = uniform_arms(count, dim)] { benchmark::DoNotOptimize(d_optimal_design(arms).g); };
    });
    if (count <= 100)
      scoreboard::add({"bandits.optimal_design.to_1e-6", size, "reference"}, [count = count, dim = dim] {
        return [arms = uniform_arms(count, dim)] { benchmark::DoNotOptimize(reference::d_optimal_design(arms).g); };
      });
    if (count <= 10000)
      scoreboard::add({"bandits.optimal_design.to_1e-6", size, "authors' stop, plain Eigen"},
                      [count = count, dim = dim] {
                        return [arms = Eigen::MatrixXd(uniform_arms(count, dim))] {
                          benchmark::DoNotOptimize(plain_design(arms, 100, 0, 100000).sum());
                        };
                      });
    if (count <= 100 || (count == 10000 && dim <= 20))
      // Without away steps 1e-6 is out of reach (about 2 d / tolerance iterations); this stops at 1e-3.
      scoreboard::add({"bandits.optimal_design.to_1e-6", size, "to 1e-3, plain Eigen"}, [count = count, dim = dim] {
        return [arms = Eigen::MatrixXd(uniform_arms(count, dim))] {
          benchmark::DoNotOptimize(plain_design(arms, 100, 1e-3, 100000).sum());
        };
      });
  }
  for (const auto& [count, dim] : {std::pair<Index, Index>{50, 20}, {500, 20}, {20000, 20}}) {
    const std::string size = message("K=", count, " d=", dim);
    const auto problem = [count = count, dim = dim] {
      Rng rng(2);
      return random_instance(count, dim, rng);
    };
    scoreboard::add({"bandits.allocation.to_1e-6", size, "ashlar"}, [=] {
      return [bandit = problem(), gaps = problem().gaps()] {
        benchmark::DoNotOptimize(asymptotic_allocation(bandit.arms, gaps).cost);
      };
    });
    if (count <= 50)
      scoreboard::add({"bandits.allocation.to_1e-6", size, "reference"}, [=] {
        return [bandit = problem(), gaps = problem().gaps()] {
          benchmark::DoNotOptimize(reference::asymptotic_allocation(bandit.arms, gaps).cost);
        };
      });
  }
  for (const std::int64_t horizon : {10000, 100000}) {
    const std::string size = message("EoO d=5 T=", horizon);
    scoreboard::add({"bandits.e4.simulate", size, "ashlar"}, [=] {
      return [=, bandit = end_of_optimism(5, 0.01), seed = std::uint64_t{0}]() mutable {
        E4 algorithm(bandit.arms, horizon);
        Rng rng(++seed);
        benchmark::DoNotOptimize(simulate(algorithm, bandit, rng).regret);
      };
    });
    scoreboard::add({"bandits.e4.simulate", size, "one pull at a time, plain Eigen"}, [=] {
      return [=, bandit = end_of_optimism(5, 0.01), seed = std::uint64_t{0}]() mutable {
        benchmark::DoNotOptimize(PlainE4(bandit, horizon, ++seed).run());
      };
    });
  }
  return true;
}();

}  // namespace
}  // namespace ashlar::bandits
