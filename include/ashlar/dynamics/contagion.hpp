// Contagion by randomised pairwise chat: how fast an item spreads among agents that are paired at random every round,
// and which rate of recovery is proved to contain it.
//
//   c' = (1 - gamma) c + beta c (1 - c) / 2                  c: share of agents that carry the item
//   dc/dt = beta c (1 - c) / 2 - gamma c                     beta: transmission, gamma: recovery, both a round
//   beta <= 2 gamma  =>  c -> 0                              the criterion; otherwise c -> 1 - 2 gamma / beta
//
//   const ContagionRates rates{.beta = 0.5, .gamma = 0.2};
//   provably_contained(rates).contained;                     // false: margin -0.1, reproduction number 1.25
//   plan_defence(rates).purge;                               // 0.25, the least gamma that contains it
//   extinction_probability(rates, 1);                        // 0.75: most outbreaks from one agent die out all the
//   same
//
// Each pair has a questioner and an answerer, a role each with probability 1/2; only the questioner passes the item on.
// Agents may instead hold an album of the last B items received (first in, first out): then an item also leaves by
// being pushed out, and the threshold is R0 = 1 (album_reproduction_number), which is beta B = 1 without purges.
//
// An agent here is a bit, or a queue of bits; nothing is said about what the item is.
// Costs: closed forms O(1), recurrences O(rounds), with albums O(rounds B).
//
// Source: Gu et al., "Agent Smith: A Single Image Can Jailbreak One Million Multimodal LLM Agents Exponentially Fast",
// ICML 2024, section 3 (recurrence, criterion); the album mechanism is that of the authors' program, its thresholds
// are derived here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"

namespace ashlar::dynamics {

/// Probabilities, each between 0 and 1.
struct ContagionRates {
  double beta = 0;     ///< the item passes from a carrying questioner to the answerer
  double gamma = 0;    ///< a carrier is clean again after a round (with albums: its album is cleared)
  double alpha_q = 1;  ///< a carrying questioner shows symptoms (with albums: one that has just retrieved the item)
  double alpha_a = 1;  ///< a carrying answerer shows symptoms (with albums: one that has just received the item)
};

namespace detail {

inline void check_probability(std::string_view function, std::string_view argument, double value) {
  check_argument(value >= 0 && value <= 1, function, argument, "between 0 and 1", value);
}

inline void check_rates(std::string_view function, const ContagionRates& rates) {
  check_probability(function, "beta", rates.beta);
  check_probability(function, "gamma", rates.gamma);
  check_probability(function, "alpha_q", rates.alpha_q);
  check_probability(function, "alpha_a", rates.alpha_a);
}

inline void check_slots(std::string_view function, int slots) {
  check_argument(slots >= 1, function, "slots", "at least 1", slots);
}

inline void check_rounds(std::string_view function, Index rounds) {
  check_argument(rounds >= 0, function, "rounds", "not negative", rounds);
}

}  // namespace detail

// ---- One bit an agent -------------------------------------------------------------------------------------------

/// c_0 .. c_rounds by the recurrence, with the rates of round t from rates_of(t).
template <class Schedule>
requires std::is_invocable_r_v<ContagionRates, Schedule&, Index> std::vector<double> mean_field(double c0,
                                                                                                Schedule&& rates_of,
                                                                                                Index rounds) {
  detail::check_probability("mean_field", "c0", c0);
  detail::check_rounds("mean_field", rounds);
  std::vector<double> share{c0};
  for (Index t = 0; t < rounds; ++t) {
    const ContagionRates rates = rates_of(t);
    detail::check_rates("mean_field", rates);
    const double c = share.back();
    share.push_back((1 - rates.gamma) * c + rates.beta * c * (1 - c) / 2);
  }
  return share;
}

/// c_0 .. c_rounds by the recurrence.
inline std::vector<double> mean_field(double c0, const ContagionRates& rates, Index rounds) {
  detail::check_rates("mean_field", rates);
  return mean_field(
      c0, [&](Index) { return rates; }, rounds);
}

/// c(t) of the differential equation. With r = beta/2 - gamma and E = (e^(rt) - 1)/r it is
/// c0 e^(rt) / (1 + c0 beta E / 2), the logistic curve where r > 0 and algebraic decay where r = 0.
inline double logistic_share(double c0, const ContagionRates& rates, double t) {
  detail::check_probability("logistic_share", "c0", c0);
  detail::check_rates("logistic_share", rates);
  check_argument(t >= 0 && std::isfinite(t), "logistic_share", "t", "finite and not negative", t);
  const double r = rates.beta / 2 - rates.gamma, decay = std::exp(-std::abs(r) * t);
  const double integral = r == 0 ? t : -std::expm1(-std::abs(r) * t) / std::abs(r);  // of e^(-|r|t)
  const double start = r > 0 ? c0 : c0 * decay, rest = r > 0 ? decay : 1;
  return start / (rest + c0 * rates.beta / 2 * integral);
}

/// Limit of c as t grows, from any c0 > 0: 1 - 2 gamma / beta, or 0 where beta <= 2 gamma.
inline double endemic_share(const ContagionRates& rates) {
  detail::check_rates("endemic_share", rates);
  return rates.beta > 2 * rates.gamma ? 1 - 2 * rates.gamma / rates.beta : 0;
}

/// Rounds until the share of carriers grows from c0 to `target` by the differential equation: 0 where it is there
/// already, infinite where it never gets there. For a share p of symptoms ask for target p / alpha. From c0 = 1/N it is
/// of order log N.
inline double time_to_share(double c0, double target, const ContagionRates& rates) {
  detail::check_probability("time_to_share", "c0", c0);
  detail::check_probability("time_to_share", "target", target);
  detail::check_rates("time_to_share", rates);
  if (target <= c0) return 0;
  const double r = rates.beta / 2 - rates.gamma, k = endemic_share(rates);
  if (r <= 1e-12 * std::max(rates.beta, rates.gamma) || c0 == 0 || target >= k)
    return std::numeric_limits<double>::infinity();
  return std::log(target * (k - c0) / (c0 * (k - target))) / r;
}

/// What an attack that does not spread reaches after round t, one agent a round: min(1, (t + 1) / agents), of order N.
inline double linear_share(std::int64_t agents, std::int64_t t) {
  check_argument(agents >= 1, "linear_share", "agents", "at least 1", agents);
  check_argument(t >= 0, "linear_share", "t", "not negative", t);
  return std::min(1.0, (static_cast<double>(t) + 1) / static_cast<double>(agents));
}

/// Probability that an outbreak from `carriers` agents dies out before it grows (branching approximation, one bit an
/// agent): q^carriers, q = min(1, gamma (1 - beta/2) / ((1 - gamma) beta/2)). q < 1 exactly where beta > 2 gamma.
inline double extinction_probability(const ContagionRates& rates, std::int64_t carriers) {
  detail::check_rates("extinction_probability", rates);
  check_argument(carriers >= 0, "extinction_probability", "carriers", "not negative", carriers);
  const double birth = (1 - rates.gamma) * rates.beta / 2, death = rates.gamma * (1 - rates.beta / 2);
  const double q = rates.gamma == 0 ? 0 : death >= birth ? 1 : death / birth;
  return std::pow(q, static_cast<double>(carriers));
}

// ---- Albums -----------------------------------------------------------------------------------------------------

namespace detail {

/// L = sum_{j<B} (a/(1-a))^j / (1-a), a = (1-gamma)/2: rounds that a carrier stays one without being infected again.
/// Each step a newest item moves down, or stays while its agent asks, until it is pushed out or purged. In closed form
/// (1 - ((1-gamma)/(1+gamma))^B) / gamma, and 2 B where gamma = 0.
inline double carrier_rounds(double gamma, int slots) {
  if (gamma == 0) return 2.0 * slots;
  return -std::expm1(slots * std::log1p(-2 * gamma / (1 + gamma))) / gamma;
}

}  // namespace detail

/// R0 = beta L / 2: agents that one carrier infects among clean ones before its album of `slots` items is clean again.
inline double album_reproduction_number(const ContagionRates& rates, int slots) {
  detail::check_rates("album_reproduction_number", rates);
  detail::check_slots("album_reproduction_number", slots);
  return rates.beta * detail::carrier_rounds(rates.gamma, slots) / 2;
}

/// Rates of the one-bit model with the same threshold: gamma = 1/L. Right at the threshold; above it the bit model
/// says fewer carriers than there are, because an album is renewed by every further item.
inline ContagionRates effective_rates(ContagionRates rates, int slots) {
  detail::check_rates("effective_rates", rates);
  detail::check_slots("effective_rates", slots);
  rates.gamma = 1 / detail::carrier_rounds(rates.gamma, slots);
  return rates;
}

/// c_0 .. c_rounds of the mean field with albums, from a share c0 whose newest item is contagious. x_k is the share
/// whose newest contagious item outlasts k more items (0: clean); a questioner keeps k; an answerer gets k = B with
/// probability beta c and max(k - 1, 0) otherwise; who carried at the start of the round is then purged with gamma.
inline std::vector<double> mean_field_album(double c0, const ContagionRates& rates, int slots, Index rounds) {
  detail::check_probability("mean_field_album", "c0", c0);
  detail::check_rates("mean_field_album", rates);
  detail::check_slots("mean_field_album", slots);
  detail::check_rounds("mean_field_album", rounds);
  const auto b = static_cast<std::size_t>(slots);
  std::vector<double> x(b + 1, 0.0), next(b + 1), share{c0};
  x[0] = 1 - c0;
  x[b] = c0;
  for (Index t = 0; t < rounds; ++t) {
    double c = 0;
    for (std::size_t k = b; k > 0; --k) c += x[k];
    const double hit = rates.beta * c, keep = 1 - rates.gamma;
    for (std::size_t k = 1; k <= b; ++k) next[k] = keep * (x[k] + (k < b ? (1 - hit) * x[k + 1] : hit * c)) / 2;
    next[0] = x[0] * (1 - hit / 2) + keep * (1 - hit) * x[1] / 2 + rates.gamma * c;
    next[b] += hit * x[0] / 2;  // clean at the start of the round: not purged
    x.swap(next);
    double carriers = 0;
    for (std::size_t k = b; k > 0; --k) carriers += x[k];
    share.push_back(std::min(1.0, carriers));  // the sum of all x rounds
  }
  return share;
}

/// Endemic share with albums and no purge: the root c > 0 of c = 1 - (1 - beta c)^slots, or 0 where beta slots <= 1.
inline double endemic_share_album(double beta, int slots) {
  detail::check_probability("endemic_share_album", "beta", beta);
  detail::check_slots("endemic_share_album", slots);
  if (beta * slots <= 1) return 0;
  double low = 0, root = 1;
  for (double middle = 0.5; low < middle && middle < root; middle = (low + root) / 2)
    (-std::expm1(slots * std::log1p(-beta * middle)) > middle ? low : root) = middle;
  return root;
}

// ---- Defences ---------------------------------------------------------------------------------------------------

struct DefenceVerdict {
  bool contained;              ///< c -> 0 from any start: the margin is not negative
  double margin;               ///< 2 gamma - beta; with albums 2 / L - beta
  double reproduction_number;  ///< beta / (2 gamma), 0 where beta = 0; with albums R0
};

/// The paper's criterion, beta <= 2 gamma.
inline DefenceVerdict provably_contained(const ContagionRates& rates) {
  detail::check_rates("provably_contained", rates);
  const double margin = 2 * rates.gamma - rates.beta;
  return {margin >= 0, margin, rates.beta == 0 ? 0 : rates.beta / (2 * rates.gamma)};
}

/// The same with albums: R0 <= 1.
inline DefenceVerdict provably_contained_album(const ContagionRates& rates, int slots) {
  detail::check_rates("provably_contained_album", rates);
  detail::check_slots("provably_contained_album", slots);
  const double rounds = detail::carrier_rounds(rates.gamma, slots);
  const double number = rates.beta * rounds / 2;
  return {number <= 1, 2 / rounds - rates.beta, number};
}

namespace detail {

inline ContagionRates thinned(std::string_view function, ContagionRates rates, double share) {
  check_rates(function, rates);
  check_probability(function, "share", share);
  rates.beta *= 1 - share;
  return rates;
}

}  // namespace detail

/// Rates behind a filter that stops an item with probability `share` when it is retrieved.
inline ContagionRates with_filter(const ContagionRates& rates, double share) {
  return detail::thinned("with_filter", rates, share);
}

/// Rates at the threshold when a share of the agents never carries: an item is lost on them as in a filter.
inline ContagionRates with_immune(const ContagionRates& rates, double share) {
  return detail::thinned("with_immune", rates, share);
}

/// For each defence, how much of it alone contains the outbreak at the rates given.
struct DefencePlan {
  DefenceVerdict now;
  double purge;   ///< least gamma, in place of the present one
  double filter;  ///< least share of retrievals to stop
  double immune;  ///< least share of immune agents
  int slots;      ///< longest album; the largest int where any length is contained, 0 without albums
};

/// slots = 0: one bit an agent.
inline DefencePlan plan_defence(const ContagionRates& rates, int slots = 0) {
  detail::check_rates("plan_defence", rates);
  check_argument(slots >= 0, "plan_defence", "slots", "not negative", slots);
  const DefenceVerdict now = slots == 0 ? provably_contained(rates) : provably_contained_album(rates, slots);
  const double stopped = std::max(0.0, 1 - 1 / now.reproduction_number);
  if (slots == 0) return {now, rates.beta / 2, stopped, stopped, 0};

  const auto contained = [&](double gamma, int length) {
    return rates.beta * detail::carrier_rounds(gamma, length) <= 2;
  };
  double low = 0, purge = contained(0, slots) ? 0 : 1;  // gamma = 1 contains everything
  for (double middle = purge / 2; low < middle && middle < purge; middle = (low + purge) / 2)
    (contained(middle, slots) ? purge : low) = middle;
  int longest = 1, too_long = std::numeric_limits<int>::max();  // a single slot is always contained
  if (contained(rates.gamma, too_long)) longest = too_long;
  while (too_long - longest > 1) {
    const int middle = longest + (too_long - longest) / 2;
    (contained(rates.gamma, middle) ? longest : too_long) = middle;
  }
  return {now, purge, stopped, stopped, longest};
}

// ---- From a trace -----------------------------------------------------------------------------------------------

enum class ContainmentVerdict { contained, spreading, undecided };

struct RateEstimate {
  bool identifiable = true;  ///< false: only the growth rate is, as where all shares are tiny; beta and gamma are NaN
  double beta = std::numeric_limits<double>::quiet_NaN(), beta_error = beta;  ///< with its standard error
  double gamma = std::numeric_limits<double>::quiet_NaN(), gamma_error = gamma;
  double growth = 0, growth_error = 0;  ///< beta/2 - gamma, of a small outbreak a round
  ContainmentVerdict verdict = ContainmentVerdict::undecided;

  double margin() const { return -2 * growth; }  ///< 2 gamma - beta
};

/// beta and gamma from the shares of carriers in successive rounds among `agents`, by least squares on the recurrence
/// c_{t+1} - c_t = beta/2 c (1 - c) - gamma c with weights 1 / max(c, 1/agents), within 0 <= beta, gamma <= 1. The
/// verdict is decided where the 95 % interval of 2 gamma - beta lies on one side of 0.
/// Needs three rounds that start with 0 < c < 1.
inline RateEstimate estimate_rates(std::span<const double> share, std::int64_t agents) {
  constexpr auto function = "estimate_rates";
  check_argument(agents >= 1, function, "agents", "at least 1", agents);
  for (std::size_t t = 0; t < share.size(); ++t)
    require(share[t] >= 0 && share[t] <= 1, function, "share[", t, "] must be between 0 and 1, got ", share[t]);
  // u = c (1 - c) / 2 and v = -c against the change of c
  double uu = 0, uv = 0, vv = 0, uy = 0, vy = 0;
  Index points = 0;
  const auto each = [&](auto&& body) {
    for (std::size_t t = 0; t + 1 < share.size(); ++t)
      if (const double c = share[t]; c > 0 && c < 1)
        body(c * (1 - c) / 2, -c, share[t + 1] - c, 1 / std::max(c, 1 / static_cast<double>(agents)));
  };
  each([&](double u, double v, double y, double w) {
    uu += w * u * u, uv += w * u * v, vv += w * v * v, uy += w * u * y, vy += w * v * y;
    ++points;
  });
  require(points >= 3, function, "needs at least 3 rounds that start with a share between 0 and 1, got ", points);

  RateEstimate result;
  const auto residual = [&](double b, double g) {
    double sum = 0;
    each([&](double u, double v, double y, double w) { sum += w * (y - b * u - g * v) * (y - b * u - g * v); });
    return sum;
  };
  const double determinant = uu * vv - uv * uv, cosine = std::abs(uv) / std::sqrt(uu * vv);
  // Condition of the normal equations with columns of length one: (1 + cosine) / (1 - cosine).
  result.identifiable = (1 + cosine) * (1 + cosine) * uu * vv <= 1e8 * determinant;
  if (result.identifiable) {
    double b = (vv * uy - uv * vy) / determinant, g = (uu * vy - uv * uy) / determinant;
    if (!(b >= 0 && b <= 1 && g >= 0 && g <= 1)) {
      // The best point of the square lies on one of its sides.
      double best = std::numeric_limits<double>::infinity(), edge_b = 0, edge_g = 0;
      for (const double end : {0.0, 1.0}) {
        const double sides[2][2] = {{end, std::clamp((vy - uv * end) / vv, 0.0, 1.0)},
                                    {std::clamp((uy - uv * end) / uu, 0.0, 1.0), end}};
        for (const auto& [side_b, side_g] : sides)
          if (const double r = residual(side_b, side_g); r < best) best = r, edge_b = side_b, edge_g = side_g;
      }
      b = edge_b, g = edge_g;
    }
    const double variance = residual(b, g) / static_cast<double>(points - 2) / determinant;
    result.beta = b, result.beta_error = std::sqrt(variance * vv);
    result.gamma = g, result.gamma_error = std::sqrt(variance * uu);
    result.growth = b / 2 - g;
    result.growth_error = std::sqrt(variance * std::max(0.0, vv / 4 + uu + uv));
  } else {
    result.growth = -vy / vv;
    result.growth_error = std::sqrt(residual(0, -result.growth) / static_cast<double>(points - 1) / vv);
  }
  const double half_width = 1.959963984540054 * result.growth_error;
  if (result.growth + half_width <= 0)
    result.verdict = ContainmentVerdict::contained;
  else if (result.growth - half_width > 0)
    result.verdict = ContainmentVerdict::spreading;
  return result;
}

}  // namespace ashlar::dynamics
