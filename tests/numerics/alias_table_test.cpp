#include "ashlar/numerics/alias_table.hpp"

#include <cmath>
#include <vector>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::numerics {
namespace {

using test::message_of;

TEST_CASE("numerics.alias_table: draws follow the weights") {
  const auto seed = GENERATE(1u, 2u);
  INFO("seed " << seed);
  const std::vector<double> weights{3, 0, 0.5, 11, 1e-9, 2.5, 7};
  const AliasTable table(weights);
  CHECK(table.size() == 7);
  Rng rng(seed);
  constexpr int draws = 200000;
  std::vector<double> counts(7);
  for (int k = 0; k < draws; ++k) ++counts[static_cast<std::size_t>(table.draw(rng))];
  CHECK(counts[1] == 0);
  for (std::size_t i = 0; i < 7; ++i) {
    const double p = weights[i] / 24.000000001;
    // Five standard deviations of a binomial count; 1 for the weight that is expected 1e-5 times.
    CHECK(std::abs(counts[i] - draws * p) <= 5 * std::sqrt(draws * p * (1 - p)) + (i == 4 ? 1 : 0));
  }
}

TEST_CASE("numerics.alias_table: one weight is always drawn and a zero never is") {
  Rng rng(3);
  const AliasTable one(std::vector<double>{0.1});
  const AliasTable last(std::vector<double>{0, 0, 1e-300});
  for (int k = 0; k < 100; ++k) {
    CHECK(one.draw(rng) == 0);
    CHECK(last.draw(rng) == 2);
  }
}

TEST_CASE("numerics.alias_table: bad input is named") {
  CHECK(message_of<InvalidArgument>([] {
          AliasTable(std::vector<double>{1, -1});
        }) == "AliasTable: every weight must be finite and not negative, got -1");
  CHECK(message_of<InvalidArgument>([] {
          AliasTable(std::vector<double>{0, 0});
        }) == "AliasTable: the sum of the weights must be positive and finite, got 0");
  CHECK(message_of<InvalidArgument>([] { AliasTable(std::vector<double>{}); }) ==
        "AliasTable: the sum of the weights must be positive and finite, got 0");
}

}  // namespace
}  // namespace ashlar::numerics
