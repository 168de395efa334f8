#include "ashlar/bandits/linear_bandit.hpp"

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"

namespace ashlar::bandits {
namespace {

using test::message_of;

TEST_CASE("bandits.linear_bandit: instances have the arms and gaps they promise") {
  const LinearBandit bandit = end_of_optimism(3, 0.2);
  Matrix<double> arms(5, 3);
  arms << 1, 0, 0, 0, 1, 0, 0, 0, 1, 0.8, 0.4, 0, 0.8, 0, 0.4;
  CHECK(bandit.arms == arms);
  CHECK((bandit.gaps() - (Vector<double>(5) << 0, 1, 1, 0.2, 0.2).finished()).cwiseAbs().maxCoeff() <= 1e-15);
  CHECK(bandit.arms == Matrix<double>(test::fixture("e4_bandit/eoo_d3_e02_X").matrix()));
  Rng a(4), b(4);
  const LinearBandit random = random_instance(9, 5, a);
  CHECK(random.arms == random_instance(9, 5, b).arms);
  CHECK(random.arms.row(0).transpose() == random.theta);
  CHECK(random.gaps()[0] == 0);
  CHECK(random.arms.minCoeff() >= 0);
  CHECK(random.arms.maxCoeff() <= 1);
}

TEST_CASE("bandits.linear_bandit: bad input is named") {
  CHECK(message_of<InvalidArgument>([] { end_of_optimism(1, 0.1); }) ==
        "end_of_optimism: dim must be at least 2, got 1");
  CHECK(message_of<InvalidArgument>([] { end_of_optimism(2, 1); }) ==
        "end_of_optimism: epsilon must be between 0 and 1, got 1");
}

}  // namespace
}  // namespace ashlar::bandits
