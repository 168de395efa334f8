// The three exceptions the library throws, and the helpers that phrase their messages.
//
// A message names the function, the argument, what it must be and what it was:
//   lightning_attention: k has shape [2,8,128,64], expected [2,8,256,64] (same length as q)
// On a throw nothing the caller owns has been half-written.
#pragma once

#include <charconv>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "ashlar/core/config.hpp"

namespace ashlar {

/// The caller passed something the function cannot work with.
class InvalidArgument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// The numbers themselves failed: not positive definite, no convergence, non-finite input.
class NumericalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file or buffer does not follow its format: which one, where (byte offset or line), what was expected.
class ParseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

inline void append(std::string& text, std::string_view part) { text += part; }

template <class Number>
  requires std::is_arithmetic_v<Number>
void append(std::string& text, Number number) {
  if constexpr (std::is_same_v<Number, bool>) {
    text += number ? "true" : "false";
  } else if constexpr (std::is_same_v<Number, char>) {
    text += number;
  } else {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    text.append(digits, end);
  }
}

inline void append(std::string& text, std::span<const Index> shape) {
  text += '[';
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ',';
    append(text, shape[i]);
  }
  text += ']';
}

}  // namespace detail

/// Joins text, numbers and shapes into one message.
template <class... Parts>
std::string message(const Parts&... parts) {
  std::string text;
  (detail::append(text, parts), ...);
  return text;
}

/// Throws InvalidArgument "function: argument must be <expected>, got <actual>" unless `ok`.
template <class Actual>
void check_argument(bool ok, std::string_view function, std::string_view argument, std::string_view expected,
                    const Actual& actual) {
  if (!ok) [[unlikely]]
    throw InvalidArgument(message(function, ": ", argument, " must be ", expected, ", got ", actual));
}

/// Throws InvalidArgument "function: <sentence>" unless `ok`, for conditions between several arguments.
template <class... Parts>
void require(bool ok, std::string_view function, const Parts&... sentence) {
  if (!ok) [[unlikely]]
    throw InvalidArgument(message(function, ": ", sentence...));
}

/// Throws InvalidArgument "function: argument has shape [..], expected [..] (why)" unless the shapes agree.
inline void check_shape(std::string_view function, std::string_view argument, std::span<const Index> actual,
                        std::span<const Index> expected, std::string_view why = {}) {
  bool same = actual.size() == expected.size();
  for (std::size_t i = 0; same && i < actual.size(); ++i) same = actual[i] == expected[i];
  if (same) [[likely]] return;
  throw InvalidArgument(message(function, ": ", argument, " has shape ", actual, ", expected ", expected,
                                why.empty() ? "" : " (", why, why.empty() ? "" : ")"));
}

inline void check_shape(std::string_view function, std::string_view argument, std::span<const Index> actual,
                        std::initializer_list<Index> expected, std::string_view why = {}) {
  check_shape(function, argument, actual, std::span<const Index>(expected.begin(), expected.size()), why);
}

}  // namespace ashlar
