#include "ashlar/core/error.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar {
namespace {

using test::message_of;

TEST_CASE("core.error: messages join text and numbers and shapes") {
  const std::array<Index, 3> shape{2, 0, -1};
  CHECK(message() == "");
  CHECK(message("a", std::string("b"), std::string_view("c"), 'd') == "abcd");
  CHECK(message(1, " ", -2L, " ", 3u, " ", std::numeric_limits<std::int64_t>::min()) == "1 -2 3 -9223372036854775808");
  CHECK(message(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
  CHECK(message(true, " ", false) == "true false");
  CHECK(message(0.1, " ", 1e300, " ", -0.5f) == "0.1 1e+300 -0.5");
  CHECK(message(std::numeric_limits<double>::denorm_min()) == "5e-324");
  CHECK(message(-1.7976931348623157e308) == "-1.7976931348623157e+308");
  CHECK(message(std::span<const Index>(shape)) == "[2,0,-1]");
  CHECK(message(std::span<const Index>()) == "[]");
}

TEST_CASE("core.error: a bad argument is named with what it must be and what it was") {
  CHECK(message_of<InvalidArgument>([] { check_argument(false, "pool", "levels", "positive", -3); }) ==
        "pool: levels must be positive, got -3");
  CHECK(message_of<InvalidArgument>([] { check_argument(false, "pool", "mode", "a known mode", "max"); }) ==
        "pool: mode must be a known mode, got max");
  CHECK(message_of<InvalidArgument>([] { check_argument(true, "pool", "levels", "positive", 3); }) == "nothing thrown");
}

TEST_CASE("core.error: a condition between arguments is a sentence") {
  CHECK(message_of<InvalidArgument>([] { require(false, "fit", "there are ", 3, " labels for ", 4, " samples"); }) ==
        "fit: there are 3 labels for 4 samples");
  CHECK(message_of<InvalidArgument>([] { require(true, "fit", "never"); }) == "nothing thrown");
}

TEST_CASE("core.error: a wrong shape is shown beside the right one and the reason") {
  const std::array<Index, 4> k{2, 8, 128, 64};
  const std::array<Index, 4> q{2, 8, 256, 64};
  CHECK(message_of<InvalidArgument>([&] { check_shape("lightning_attention", "k", k, q, "same length as q"); }) ==
        "lightning_attention: k has shape [2,8,128,64], expected [2,8,256,64] (same length as q)");
  CHECK(message_of<InvalidArgument>([&] { check_shape("f", "k", k, {2, 8}); }) ==
        "f: k has shape [2,8,128,64], expected [2,8]");
  CHECK(message_of<InvalidArgument>([&] { check_shape("f", "k", std::span<const Index>(), {0}); }) ==
        "f: k has shape [], expected [0]");
  CHECK(message_of<InvalidArgument>([&] { check_shape("f", "k", k, {2, 8, 128, 64}); }) == "nothing thrown");
  CHECK(message_of<InvalidArgument>([&] { check_shape("f", "k", k, k); }) == "nothing thrown");
}

TEST_CASE("core.error: the exceptions are what a C++ user would catch") {
  STATIC_REQUIRE(std::is_base_of_v<std::invalid_argument, InvalidArgument>);
  STATIC_REQUIRE(std::is_base_of_v<std::runtime_error, NumericalError>);
  STATIC_REQUIRE(std::is_base_of_v<std::runtime_error, ParseError>);
  STATIC_REQUIRE_FALSE(std::is_base_of_v<NumericalError, ParseError>);
  CHECK(message_of<NumericalError>([] { throw NumericalError("no convergence after 100 iterations"); }) ==
        "no convergence after 100 iterations");
}

}  // namespace
}  // namespace ashlar
