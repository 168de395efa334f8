// Time grids of a sampler. Time s is that of the Ornstein-Uhlenbeck process dx = -x ds + sqrt(2) dB, which keeps
// e^-s of the data: a sampler walks s_0 > s_1 > .. > s_K >= 0. Every other clock maps to it:
//
//   alpha_bar = e^(-2 s)                            discrete schedules (the product of 1 - beta)
//   sigma^2 = (1 - alpha_bar) / alpha_bar           noise level relative to the signal
//
//   TimeGrid::graded(6, 400)                        // s_k = 6 (1 - k / 400)^2
//   TimeGrid::from_betas(linear_betas(), 50)        // 50 of the 1000 steps a network was trained with
//
// Sources: Ho, Jain, Abbeel, NeurIPS 2020 (linear betas); Nichol, Dhariwal, ICML 2021 (cosine); Karras et al., NeurIPS
// 2022 (noise levels).
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/view.hpp"

namespace ashlar::diffusion {

inline double time_of_alpha_bar(double alpha_bar) {
  check_argument(alpha_bar > 0 && alpha_bar <= 1, "time_of_alpha_bar", "alpha_bar", "above 0 and at most 1", alpha_bar);
  return 0 - std::log(alpha_bar) / 2;
}
inline double alpha_bar_of_time(double time) { return std::exp(-2 * time); }

inline double time_of_sigma(double sigma) {
  check_argument(sigma >= 0 && std::isfinite(sigma), "time_of_sigma", "sigma", "not negative and finite", sigma);
  return std::log1p(sigma * sigma) / 2;
}
inline double sigma_of_time(double time) { return std::sqrt(std::expm1(2 * time)); }

/// beta_i from 1e-4 to 2e-2, evenly spaced.
inline std::vector<double> linear_betas(Index count = 1000, double first = 1e-4, double last = 2e-2) {
  check_argument(count >= 1, "linear_betas", "count", "at least 1", count);
  std::vector<double> betas(static_cast<std::size_t>(count), first);
  for (std::size_t i = 1; i < betas.size(); ++i)
    betas[i] = first + (last - first) * static_cast<double>(i) / static_cast<double>(count - 1);
  return betas;
}

/// 1 - beta_i = f(i + 1) / f(i), f(i) = cos^2(pi / 2 (i / count + 0.008) / 1.008), beta at most 0.999.
inline std::vector<double> cosine_betas(Index count = 1000) {
  check_argument(count >= 1, "cosine_betas", "count", "at least 1", count);
  std::vector<double> betas(static_cast<std::size_t>(count));
  const auto f = [&](std::size_t i) {
    const double at = (static_cast<double>(i) / static_cast<double>(count) + 0.008) / 1.008;
    return std::pow(std::cos(std::numbers::pi / 2 * at), 2);
  };
  for (std::size_t i = 0; i < betas.size(); ++i) betas[i] = std::min(1 - f(i + 1) / f(i), 0.999);
  return betas;
}

class TimeGrid {
 public:
  /// Any decreasing times, the last at least 0: two or more.
  explicit TimeGrid(std::vector<double> times) : times_(std::move(times)) {
    require(times_.size() >= 2, "TimeGrid", "a grid has at least two times, got ", times_.size());
    for (std::size_t k = 0; k < times_.size(); ++k) {
      check_argument(std::isfinite(times_[k]), "TimeGrid", "every time", "finite", times_[k]);
      require(k == 0 || times_[k] < times_[k - 1], "TimeGrid", "times must decrease, got ", times_[k], " after ",
              k == 0 ? 0 : times_[k - 1]);
    }
    check_argument(times_.back() >= 0, "TimeGrid", "the last time", "at least 0", times_.back());
  }

  /// K steps of equal length from `horizon` to `stop`.
  static TimeGrid uniform(double horizon, Index steps, double stop = 0) {
    return powered("TimeGrid::uniform", horizon, steps, 1, stop);
  }

  /// s_k = stop + (horizon - stop) (1 - k / K)^power: short steps near the data. 3 suits narrow components.
  static TimeGrid graded(double horizon, Index steps, double power = 2, double stop = 0) {
    return powered("TimeGrid::graded", horizon, steps, power, stop);
  }

  /// `steps` steps through the schedule a network was trained with: s_k = -1/2 sum_{i < n_k} log(1 - beta_i),
  /// n_k = round(n (1 - k / K)).
  static TimeGrid from_betas(View<const double, 1> betas, Index steps) {
    const Index n = betas.extent(0);
    check_argument(steps >= 1 && steps <= n, "TimeGrid::from_betas", "steps", "between 1 and the number of betas",
                   steps);
    std::vector<double> sums{0}, times;
    for (Index i = 0; i < n; ++i) {
      check_argument(betas[i] > 0 && betas[i] < 1, "TimeGrid::from_betas", "every beta", "between 0 and 1, exclusive",
                     betas[i]);
      sums.push_back(sums.back() - std::log1p(-betas[i]) / 2);
    }
    for (Index k = 0; k <= steps; ++k) {
      const double left = static_cast<double>(n * (steps - k)) / static_cast<double>(steps);
      times.push_back(sums[static_cast<std::size_t>(std::llround(left))]);
    }
    return TimeGrid(std::move(times));
  }

  /// Noise levels sigma_k = (max^(1/rho) + k / (K - 1) (min^(1/rho) - max^(1/rho)))^rho, then 0: K steps.
  static TimeGrid karras(double smallest_sigma, double largest_sigma, Index steps, double rho = 7) {
    constexpr auto function = "TimeGrid::karras";
    check_argument(steps >= 1, function, "steps", "at least 1", steps);
    check_argument(rho > 0 && std::isfinite(rho), function, "rho", "positive and finite", rho);
    require(0 < smallest_sigma && smallest_sigma < largest_sigma && std::isfinite(largest_sigma), function,
            "noise levels need 0 < smallest < largest, got ", smallest_sigma, " and ", largest_sigma);
    const double high = std::pow(largest_sigma, 1 / rho), low = std::pow(smallest_sigma, 1 / rho);
    std::vector<double> times;
    for (Index k = 0; k < steps; ++k) {
      const double along = steps == 1 ? 0 : static_cast<double>(k) / static_cast<double>(steps - 1);
      times.push_back(time_of_sigma(std::pow(high + along * (low - high), rho)));
    }
    times.push_back(0);
    return TimeGrid(std::move(times));
  }

  Index steps() const { return static_cast<Index>(times_.size()) - 1; }
  double operator[](Index k) const { return times_[static_cast<std::size_t>(k)]; }  ///< s_k, 0 <= k <= steps()
  const std::vector<double>& times() const { return times_; }

 private:
  static TimeGrid powered(const char* function, double horizon, Index steps, double power, double stop) {
    check_argument(steps >= 1, function, "steps", "at least 1", steps);
    check_argument(power > 0 && std::isfinite(power), function, "power", "positive and finite", power);
    require(0 <= stop && stop < horizon && std::isfinite(horizon), function, "times need 0 <= stop < horizon, got ",
            stop, " and ", horizon);
    std::vector<double> times;
    for (Index k = 0; k <= steps; ++k) {
      const double left = static_cast<double>(steps - k) / static_cast<double>(steps);
      times.push_back(stop + (horizon - stop) * std::pow(left, power));
    }
    return TimeGrid(std::move(times));
  }

  std::vector<double> times_;
};

}  // namespace ashlar::diffusion
