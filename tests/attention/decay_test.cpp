#include "ashlar/attention/decay.hpp"

#include <string>

#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::attention {
namespace {

using test::fixture;
using test::max_difference;
using test::message_of;

TEST_CASE("attention.decay: the three schedules match the fixtures") {
  for (const Index heads : {1, 4, 8, 12}) {
    const std::string h = std::to_string(heads);
    INFO("heads " << h);
    CHECK(max_difference(test::copy_of<1>(alibi_slopes(heads)), fixture("lightning_attention/slopes_H" + h)) < 1e-14);
    CHECK(max_difference(test::copy_of<1>(released_slopes(heads, 2, 6)),
                         fixture("lightning_attention/slopes_H" + h + "_layer2of6")) < 1e-14);
    CHECK(max_difference(test::copy_of<1>(paper_slopes(heads, 2, 6)),
                         fixture("lightning_attention/slopes_paper_H" + h + "_layer2of6")) < 1e-14);
  }
}

TEST_CASE("attention.decay: a single layer takes the first layer of the released schedule") {
  CHECK(released_slopes(4, 0, 1) == alibi_slopes(4) * (1 + 1e-5));
}

TEST_CASE("attention.decay: bad counts are refused") {
  CHECK(message_of<InvalidArgument>([] { alibi_slopes(0); }) == "alibi_slopes: heads must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([] { released_slopes(4, 0, 0); }) ==
        "released_slopes: layers must be at least 1, got 0");
  CHECK(message_of<InvalidArgument>([] { paper_slopes(4, 6, 6); }) ==
        "paper_slopes: layer must be between 0 and 5, got 6");
}

}  // namespace
}  // namespace ashlar::attention
