// What a running trial is made of: plain data, to be looked at, saved and resumed.
//
//   std::string text = to_text(trial.state());
//   E4 resumed(arms, options, trial_state_from_text(text));                // goes on to the last bit as `trial` would
#pragma once

#include <charconv>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"

namespace ashlar::bandits {

/// How often to pull which arm before reporting back. Arms without pulls are not listed.
struct BatchPlan {
  std::vector<Index> arms;
  std::vector<std::int64_t> counts;  ///< positive, one an arm listed

  std::int64_t total() const { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }
  friend bool operator==(const BatchPlan&, const BatchPlan&) = default;
};

/// What one batch was and what was concluded from it.
struct BatchReport {
  BatchPlan plan;
  bool tested = false;        ///< the stopping test was made after this batch
  double statistic = 0;       ///< Z of that test
  double threshold = 0;       ///< beta of that test; Z >= beta ends exploration
  std::vector<Index> active;  ///< arms still in the race after this batch; empty where none is ever dropped

  friend bool operator==(const BatchReport&, const BatchReport&) = default;
};

/// Everything a running algorithm knows besides the arms and its options: plain data, to be saved and resumed.
struct TrialState {
  std::int64_t horizon = 0;          ///< pulls in all
  std::int64_t pulls = 0;            ///< pulls made so far
  Index stage = 1;                   ///< of the next plan to be learned from
  std::vector<std::int64_t> counts;  ///< [K], prior data included
  std::vector<double> reward_sums;   ///< [K], prior data included
  std::vector<double> theta;         ///< [d], the last estimate; empty before the first
  std::vector<Index> active;         ///< arms still in the race
  BatchPlan pending;                 ///< asked for and not told yet; empty if there is none
  std::vector<BatchReport> reports;  ///< one a batch told

  friend bool operator==(const TrialState&, const TrialState&) = default;
};

/// Observations from before the trial. They do not count against the horizon.
struct PriorData {
  std::vector<std::int64_t> counts;  ///< [K]
  std::vector<double> reward_sums;   ///< [K]
};

// ---- As text -----------------------------------------------------------------------------------------------------

namespace detail {

template <class T>
void write(std::string& text, std::string_view name, const std::vector<T>& values) {
  ashlar::detail::append(text, message(name, " ", values.size()));
  for (const T value : values) text += message(" ", value);
  text += '\n';
}

/// Reads "name value" lines; every number is checked, and no list is believed to be longer than the text that is left.
class StateReader {
 public:
  explicit StateReader(std::string_view text) : text_(text) {}

  void word(std::string_view expected) {
    skip_space();
    if (text_.substr(at_, expected.size()) != expected) fail(expected);
    at_ += expected.size();
  }

  template <class T>
  T number(std::string_view what) {
    skip_space();
    T value{};
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail(what);
    at_ = static_cast<std::size_t>(end - text_.data());
    if (at_ < text_.size() && text_[at_] != ' ' && text_[at_] != '\n') fail("a space after the number");
    return value;
  }

  template <class T>
  std::vector<T> list(std::string_view name) {
    word(name);
    const auto count = number<std::uint64_t>("the length of a list");
    if (count > (text_.size() - at_) / 2) fail("a length that fits the text");
    std::vector<T> values;
    values.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) values.push_back(number<T>(name));
    return values;
  }

  void end() {
    skip_space();
    if (at_ != text_.size()) fail("the end of the text");
  }

  std::size_t left() const { return text_.size() - at_; }
  [[noreturn]] void fail(std::string_view expected) const {
    throw ParseError(message("trial_state_from_text: byte ", at_, ": expected ", expected));
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

inline BatchPlan read_plan(StateReader& reader, std::string_view arms, std::string_view counts) {
  BatchPlan plan;
  plan.arms = reader.list<Index>(arms);
  plan.counts = reader.list<std::int64_t>(counts);
  return plan;
}

}  // namespace detail

/// A few lines of text that give back the same state to the last bit.
inline std::string to_text(const TrialState& state) {
  std::string text = "ashlar-trial 1\n";
  text += message("horizon ", state.horizon, "\npulls ", state.pulls, "\nstage ", state.stage, "\n");
  detail::write(text, "counts", state.counts);
  detail::write(text, "reward_sums", state.reward_sums);
  detail::write(text, "theta", state.theta);
  detail::write(text, "active", state.active);
  detail::write(text, "pending_arms", state.pending.arms);
  detail::write(text, "pending_counts", state.pending.counts);
  text += message("reports ", state.reports.size(), "\n");
  for (const BatchReport& report : state.reports) {
    detail::write(text, "arms", report.plan.arms);
    detail::write(text, "counts", report.plan.counts);
    text += message("test ", report.tested ? 1 : 0, " ", report.statistic, " ", report.threshold, "\n");
    detail::write(text, "active", report.active);
  }
  text += "end\n";
  return text;
}

/// The state that to_text wrote. Throws ParseError with the byte that is wrong and what was expected there.
inline TrialState trial_state_from_text(std::string_view text) {
  detail::StateReader reader(text);
  TrialState state;
  reader.word("ashlar-trial 1\n");
  reader.word("horizon");
  state.horizon = reader.number<std::int64_t>("the horizon");
  reader.word("pulls");
  state.pulls = reader.number<std::int64_t>("the number of pulls");
  reader.word("stage");
  state.stage = reader.number<Index>("the stage");
  state.counts = reader.list<std::int64_t>("counts");
  state.reward_sums = reader.list<double>("reward_sums");
  state.theta = reader.list<double>("theta");
  state.active = reader.list<Index>("active");
  state.pending = detail::read_plan(reader, "pending_arms", "pending_counts");
  reader.word("reports");
  const auto reports = reader.number<std::uint64_t>("the number of reports");
  if (reports > reader.left()) reader.fail("a number of reports that fits the text");
  for (std::uint64_t i = 0; i < reports; ++i) {
    BatchReport report;
    report.plan = detail::read_plan(reader, "arms", "counts");
    reader.word("test");
    report.tested = reader.number<int>("0 or 1") != 0;
    report.statistic = reader.number<double>("the statistic");
    report.threshold = reader.number<double>("the threshold");
    report.active = reader.list<Index>("active");
    state.reports.push_back(std::move(report));
  }
  reader.word("end\n");  // so that a text cut short is never taken for a whole one
  reader.end();
  return state;
}

}  // namespace ashlar::bandits
