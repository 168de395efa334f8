// What operators see of a contagion: shares round by round, rates measured from them, and many runs side by side.
//
//   Trace trace = simulate(model, 48, rng);                              // any model with step(rng)
//   estimate_rates(trace.carrying, model.population()).verdict;          // contagion.hpp
//   std::vector<Trace> runs = simulate_runs(1000, 48, rng, [] { return CountChain(4096, 1, options); });
//   RunSummary summary = summarise(runs);                                // extinct runs are counted, not averaged away
//
// Runs are spread over threads, each with a stream of its own: the same traces come out for any number of threads.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/dynamics/contagion.hpp"
#include "ashlar/dynamics/contagion_simulation.hpp"

namespace ashlar::dynamics {

template <class Model>
concept ContagionModel = requires(Model& model, const Model& constant, Rng& rng, const ContagionRates& rates) {
  { model.step(rng) } -> std::same_as<RoundStats>;
  model.set_rates(rates);
  { constant.population() } -> std::convertible_to<std::int64_t>;
  { constant.carriers() } -> std::convertible_to<std::int64_t>;
};

/// A model that also knows how many agents ever carried and ever showed symptoms.
template <class Model>
concept TracksAgents = ContagionModel<Model> && requires(const Model& model) {
  { model.ever_carrying() } -> std::convertible_to<std::int64_t>;
  { model.ever_symptomatic() } -> std::convertible_to<std::int64_t>;
};

/// Shares of the population (0 where it is empty).
struct Trace {
  std::vector<double> carrying;          ///< [rounds + 1]: before the first round, then after every one
  std::vector<double> symptomatic;       ///< [rounds]: the authors' current infection ratio
  std::vector<double> ever_carrying;     ///< [rounds], empty where the model does not know
  std::vector<double> ever_symptomatic;  ///< likewise: the authors' cumulative infection ratio
  std::vector<RoundStats> rounds;
};

/// Rates of a round, for models whose rates vary in time.
using RateSchedule = std::function<ContagionRates(Index round)>;

/// Runs a model from where it stands. With a schedule it sets the rates before every round.
template <ContagionModel Model>
Trace simulate(Model& model, Index rounds, Rng& rng, const RateSchedule& schedule = {}) {
  detail::check_rounds("simulate", rounds);
  const auto share = [&](std::int64_t count) {
    return model.population() == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(model.population());
  };
  Trace trace;
  trace.carrying.push_back(share(model.carriers()));
  for (Index t = 0; t < rounds; ++t) {
    if (schedule) model.set_rates(schedule(t));
    trace.rounds.push_back(model.step(rng));
    trace.carrying.push_back(share(model.carriers()));
    trace.symptomatic.push_back(share(trace.rounds.back().symptomatic()));
    if constexpr (TracksAgents<Model>) {
      trace.ever_carrying.push_back(share(model.ever_carrying()));
      trace.ever_symptomatic.push_back(share(model.ever_symptomatic()));
    }
  }
  return trace;
}

/// Rounds until the share of carriers is at least `target`, if it ever is.
inline std::optional<Index> rounds_to(const Trace& trace, double target) {
  detail::check_probability("rounds_to", "target", target);
  for (std::size_t t = 0; t < trace.carrying.size(); ++t)
    if (trace.carrying[t] >= target) return static_cast<Index>(t);
  return std::nullopt;
}

/// The authors' measured rates of one round: shares of the carrying questioners that passed the item on and that showed
/// symptoms, of carriers that are clean after the round, and alpha_a the share of carrying questioners whose answerer
/// showed symptoms (one bit an agent: of carrying answerers that did). NaN where nobody could.
inline ContagionRates observed_rates(const RoundStats& round, bool albums) {
  const auto ratio = [](std::int64_t part, std::int64_t whole) {
    return whole == 0 ? std::numeric_limits<double>::quiet_NaN()
                      : static_cast<double>(part) / static_cast<double>(whole);
  };
  return {ratio(round.hits, round.carrying_questioners), ratio(round.recovered, round.carriers),
          ratio(round.symptomatic_questioners, round.carrying_questioners),
          ratio(round.symptomatic_answerers, albums ? round.carrying_questioners : round.carrying_answerers)};
}

/// Run i of make() with stream i of rng.
template <class Make>
requires ContagionModel<std::invoke_result_t<Make&>> std::vector<Trace> simulate_runs(
    Index runs, Index rounds, const Rng& rng, Make make, const RateSchedule& schedule = {}) {
  check_argument(runs >= 0, "simulate_runs", "runs", "not negative", runs);
  detail::check_rounds("simulate_runs", rounds);
  std::vector<Trace> traces(static_cast<std::size_t>(runs));
  parallel_for(runs, 1, [&](Index begin, Index end) {
    for (Index run = begin; run < end; ++run) {
      auto model = make();
      Rng own = rng.split(static_cast<std::uint64_t>(run));
      traces[static_cast<std::size_t>(run)] = simulate(model, rounds, own, schedule);
    }
  });
  return traces;
}

struct RunSummary {
  Index runs = 0, extinct = 0;         ///< extinct: nobody carries after the last round
  std::vector<double> mean;            ///< [rounds + 1]: mean share of carriers over all runs
  std::vector<double> mean_surviving;  ///< over the runs that are not extinct; empty where all are

  double extinct_share() const { return runs == 0 ? 0 : static_cast<double>(extinct) / static_cast<double>(runs); }
};

/// Runs of the same length.
inline RunSummary summarise(std::span<const Trace> traces) {
  RunSummary summary;
  if (traces.empty()) return summary;
  const std::size_t length = traces.front().carrying.size();
  for (std::size_t i = 0; i < traces.size(); ++i)
    require(traces[i].carrying.size() == length && length > 0, "summarise", "traces[", i, "] has ",
            traces[i].carrying.size(), " shares of carriers, expected ", length, " (same as traces[0]; not 0)");
  summary.runs = static_cast<Index>(traces.size());
  summary.mean.assign(length, 0);
  summary.mean_surviving.assign(length, 0);
  for (const Trace& trace : traces) {
    const bool extinct = trace.carrying.back() == 0;
    summary.extinct += extinct;
    for (std::size_t t = 0; t < length; ++t) {
      summary.mean[t] += trace.carrying[t];
      if (!extinct) summary.mean_surviving[t] += trace.carrying[t];
    }
  }
  for (double& share : summary.mean) share /= static_cast<double>(summary.runs);
  if (summary.extinct == summary.runs) summary.mean_surviving.clear();
  for (double& share : summary.mean_surviving) share /= static_cast<double>(summary.runs - summary.extinct);
  return summary;
}

}  // namespace ashlar::dynamics
