#include "ashlar/bandits/trial_state.hpp"

#include <cmath>
#include <limits>
#include <string>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::bandits {
namespace {

using test::message_of;

constexpr double infinity = std::numeric_limits<double>::infinity();

TrialState some_state() {
  TrialState state;
  state.horizon = 1000;
  state.pulls = 30;
  state.stage = 2;
  state.counts = {10, 0, 20};
  state.reward_sums = {0.1, -1.0 / 3, 1e-300};
  state.theta = {std::nextafter(1.0, 2.0), -0.0};
  state.active = {0, 2};
  state.pending = {{1, 2}, {5, 7}};
  state.reports = {{{{0}, {10}}, false, 0, 0, {0, 1, 2}}, {{{2}, {20}}, true, infinity, 4.75, {0, 2}}};
  return state;
}

TEST_CASE("bandits.trial_state: a state survives its text to the last bit") {
  const TrialState state = some_state();
  const std::string text = to_text(state);
  CHECK(trial_state_from_text(text) == state);
  CHECK(std::signbit(trial_state_from_text(text).theta[1]));
  CHECK(to_text(trial_state_from_text(text)) == text);
  CHECK(trial_state_from_text(to_text(TrialState())) == TrialState());
}

TEST_CASE("bandits.trial_state: broken state texts are refused with the byte at fault") {
  const std::string text = to_text(some_state());
  for (std::size_t length = 0; length < text.size(); ++length) {
    INFO(length);
    CHECK(message_of<ParseError>([&] {
            trial_state_from_text(text.substr(0, length));
          }).starts_with("trial_state_from_text: byte "));
  }
  CHECK(message_of<ParseError>([] { trial_state_from_text("hello"); }) ==
        "trial_state_from_text: byte 0: expected ashlar-trial 1\n");
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    return message_of<ParseError>([&] { trial_state_from_text(other); });
  };
  CHECK(edited("counts 3", "counts 18446744073709551615") ==
        "trial_state_from_text: byte 72: expected a length that fits the text");
  CHECK(edited("horizon 1000", "horizon many") == "trial_state_from_text: byte 23: expected the horizon");
  CHECK(edited("horizon 1000", "horizon 10x0") == "trial_state_from_text: byte 25: expected a space after the number");
  CHECK(edited("reports 2", "reports 3").ends_with("expected arms"));
  CHECK(edited("reports 2", "reports 1").ends_with("expected end\n"));
  CHECK(message_of<ParseError>([&] { trial_state_from_text(text + "x"); }).ends_with("expected the end of the text"));
  CHECK(edited("reports 2", "reports 99999999").ends_with("expected a number of reports that fits the text"));
}

}  // namespace
}  // namespace ashlar::bandits
