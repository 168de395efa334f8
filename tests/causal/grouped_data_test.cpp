#include "ashlar/causal/grouped_data.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "causal/samples.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::causal {
namespace {

using test::message_of;

TEST_CASE("causal.grouped_data: standardized columns have mean 0 and variance 1 and constant ones are zero") {
  Rng rng(1);
  Matrix<double> data = normal_matrix<double>(rng, 50, 3, 7.0);
  data.col(1).setConstant(0.1);
  data.col(2).array() += 100;
  const Matrix<double> x = standardized(data);
  for (const Index j : {Index{0}, Index{2}}) {
    CHECK(std::abs(x.col(j).mean()) <= 1e-14);  // 50 terms of size 15, each rounded, over a deviation of 7
    CHECK(std::abs(x.col(j).squaredNorm() / 50 - 1) <= 1e-14);
  }
  CHECK(x.col(1).isZero(0));
}

TEST_CASE("causal.grouped_data: distances are those of the rows and exactly symmetric") {
  Rng rng(2);
  Matrix<double> x = normal_matrix<double>(rng, 13, 3);
  x.row(5) = x.row(2);
  const Matrix<double> d = squared_distances(x);
  CHECK(d == Matrix<double>(d.transpose()));
  CHECK((d.diagonal().isZero(0) && d(5, 2) == 0));
  for (Index i = 0; i < 13; ++i)
    for (Index j = 0; j < 13; ++j) CHECK(std::abs(d(i, j) - (x.row(i) - x.row(j)).squaredNorm()) <= 1e-14);
  CHECK(columns_of(x, std::vector<Index>{2, 0}).col(0) == x.col(2));
}

TEST_CASE("causal.grouped_data: the median length leaves out equal rows and is 10 without others") {
  const Matrix<double> x = (Matrix<double>(4, 1) << 0, 0, 1, 3).finished();  // distances 1 1 4 9 9: the median is 4
  CHECK(std::abs(median_length(x, 2.5) - 2.5 * std::sqrt(2.0)) <= 1e-15);
  CHECK(median_length(Matrix<double>::Constant(4, 2, 3.0).eval(), 2.5) == 10);
}

TEST_CASE("causal.grouped_data: bad data and families are refused") {
  const auto groups_say = [](const Matrix<double>& data, const Groups& groups) {
    return message_of<InvalidArgument>([&] { check_groups("f", data, groups); });
  };
  Matrix<double> data = Matrix<double>::Zero(4, 2);
  CHECK(groups_say(data.topRows(3), {{0}}) == "f: the number of samples must be at least 4, got 3");
  CHECK(groups_say(data, {}) == "f: the number of variables must be at least 1, got 0");
  CHECK(groups_say(data, {{0}, {}}) == "f: groups[1] is empty");
  CHECK(groups_say(data, {{0}, {2}}) == "f: groups[1] names column 2 of data with 2 columns");
  data(1, 1) = std::numeric_limits<double>::quiet_NaN();
  CHECK(groups_say(data, {{0}}) == "f: data has an entry that is not finite");
  const auto family_says = [](Index node, std::vector<Index> parents) {
    return message_of<InvalidArgument>([&] { check_family("f", 3, node, parents); });
  };
  CHECK(family_says(3, {}) == "f: there is no variable 3 among 3");
  CHECK(family_says(0, {-1}) == "f: there is no variable -1 among 3");
  CHECK(family_says(1, {0, 1}) == "f: variable 1 is its own parent");
  CHECK(family_says(1, {0, 2, 0}) == "f: parent 0 appears twice");
  CHECK(message_of<InvalidArgument>([] { single_columns(-1); }) ==
        "single_columns: columns must be not negative, got -1");
  CHECK(single_columns(2) == Groups{{0}, {1}});
}

}  // namespace
}  // namespace ashlar::causal
