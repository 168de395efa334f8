// Checks the type and the words of an exception in one line:
//   CHECK(message_of<InvalidArgument>([&] { pool(x, bad); }) == "quantile_pool: ...");
#pragma once

#include <string>

#include "ashlar/core/error.hpp"

namespace ashlar::test {

/// What f throws, if it throws exactly an E; "nothing thrown" or "another exception: ..." otherwise.
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another exception: ") + error.what();
  }
  return "nothing thrown";
}

}  // namespace ashlar::test
