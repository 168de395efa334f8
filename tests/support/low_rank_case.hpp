// One of the low-rank bandit problems of tests/data, with the numbers it is known to lead to.
#pragma once

#include <cstdint>
#include <string>

#include "ashlar/bandits/low_rank_environment.hpp"
#include "support/fixture.hpp"

namespace ashlar::test {

struct LowRankCase {
  Index rank;
  Matrix<double> means, behavior, weighted, approximation, reduced, reduced_split;
  Vector<double> rho, scalars;
  bandits::OwnedLog log;
};

inline LowRankCase low_rank_case(const std::string& name) {
  const auto array = [&](const std::string& part) { return "low_rank_bandit/" + name + "_" + part; };
  const auto read = [&](const std::string& part) { return Matrix<double>(fixture(array(part)).matrix()); };
  const auto read_vector = [&](const std::string& part) {
    const auto x = fixture(array(part));
    return Vector<double>(vector(x.view<1>()));
  };
  LowRankCase c{name == "r1"  ? 1
                : name == "b" ? 3
                              : 2,
                read("M"),
                read("behavior"),
                read("Mtilde"),
                read("Mhat"),
                read("Mbar"),
                read("Mbar_split"),
                read_vector("rho"),
                read_vector("scalars"),
                {}};
  const auto i = fixture<std::int32_t>(array("i")), j = fixture<std::int32_t>(array("j"));
  const auto y = fixture(array("y"));
  c.log = {{i.data(), i.data() + i.size()}, {j.data(), j.data() + j.size()}, {y.data(), y.data() + y.size()}};
  return c;
}

}  // namespace ashlar::test
