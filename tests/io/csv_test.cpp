#include "ashlar/io/csv.hpp"

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/temporary.hpp"

namespace ashlar {
namespace {

using io::parse_csv;
using test::message_of;

TEST_CASE("io.csv: a first line of names is a header and a first line of numbers is not") {
  const auto named = parse_csv("x,height in cm\n1,2\n3,4\n");
  CHECK(named.columns == std::vector<std::string>{"x", "height in cm"});
  CHECK(named.values == (Matrix<double>(2, 2) << 1, 2, 3, 4).finished());
  const auto bare = parse_csv("1,2\n3,4\n");
  CHECK(bare.columns.empty());
  CHECK(bare.values == named.values);
  const auto quoted = parse_csv("\"1\",\"2\"\n3,4\n");
  CHECK(quoted.columns == std::vector<std::string>{"1", "2"});
  CHECK(quoted.values.rows() == 1);
  const auto only_names = parse_csv("a,b,c");
  CHECK(only_names.columns.size() == 3);
  CHECK((only_names.values.rows() == 0 && only_names.values.cols() == 3));
}

TEST_CASE("io.csv: line ends may be LF or CRLF and the last one may be missing") {
  for (const std::string end : {"\n", "\r\n"})
    for (const std::string& last : {std::string(), end}) {
      const auto table = parse_csv("a,b" + end + "1,2" + end + "3,4" + last);
      CHECK(table.columns == std::vector<std::string>{"a", "b"});
      CHECK(table.values == (Matrix<double>(2, 2) << 1, 2, 3, 4).finished());
    }
  CHECK(parse_csv("\xEF\xBB\xBF"
                  "a,b\n1,2\n")
            .columns[0] == "a");
}

TEST_CASE("io.csv: names in quotes may hold separators quotes and line ends") {
  const auto table = parse_csv("\"a,b\",\"say \"\"hi\"\"\",\"two\r\nlines\",\"\"\r\n1,2,3,4\r\n");
  CHECK(table.columns == std::vector<std::string>{"a,b", "say \"hi\"", "two\r\nlines", ""});
  CHECK(table.values == (Matrix<double>(1, 4) << 1, 2, 3, 4).finished());
}

TEST_CASE("io.csv: numbers read in every common form") {
  const auto row = parse_csv(" 1 ,\t-2.5,+3e2,.5,-0,inf,-inf,nan,1e-310,12345678901234567890\n").values;
  const double expected[] = {1, -2.5, 300, 0.5, -0.0, HUGE_VAL, -HUGE_VAL, 0, 1e-310, 12345678901234567890.0};
  for (Index j = 0; j < 10; ++j)
    if (j != 7) CHECK(std::bit_cast<std::uint64_t>(row(0, j)) == std::bit_cast<std::uint64_t>(expected[j]));
  CHECK(std::isnan(row(0, 7)));
}

TEST_CASE("io.csv: hostile text is a parse error that says where and what") {
  const struct {
    std::string text, says;
  } table[] = {
      {"", "line 1, column 1: expected at least one line"},
      {"\n", "line 1, column 1: the field is empty"},
      {"\r\n", "line 1, column 1: the field is empty"},
      {",", "line 1, column 1: the field is empty"},
      {"a,", "line 1, column 3: the field is empty"},
      {"a, ,c", "line 1, column 3: the field is empty"},
      {"a,b\n1,", "line 2, column 3: the field is empty"},
      {"a,b\n,1", "line 2, column 1: the field is empty"},
      {"a,b\n1,2\n\n", "line 3, column 1: the field is empty"},
      {"1,b",
       "line 1, column 3: expected names alone or numbers alone in the first line; a name that reads as a number needs "
       "quotes"},
      {"a,1\n",
       "line 1, column 3: expected names alone or numbers alone in the first line; a name that reads as a number needs "
       "quotes"},
      {"1,2\n3", "line 2, column 1: expected 2 fields as in line 1, got 1"},
      {"1,2\n3\n4,5", "line 2, column 1: expected 2 fields as in line 1, got 1"},
      {"1,2\r\n3,4,5", "line 2, column 5: expected 2 fields as in line 1, got more"},
      {"1,2\n3,4,", "line 2, column 5: expected 2 fields as in line 1, got more"},
      {"1\nabc", "line 2, column 1: expected a number, got \"abc\""},
      {"1\n1.5x", "line 2, column 1: expected a number, got \"1.5x\""},
      {"1\n1 2", "line 2, column 1: expected a number, got \"1 2\""},
      {"1\n0x10", "line 2, column 1: expected a number, got \"0x10\""},
      {"1\n+-1", "line 2, column 1: expected a number, got \"+-1\""},
      {"1\n+", "line 2, column 1: expected a number, got \"+\""},
      {"1\n1e400", "line 2, column 1: expected a number, got \"1e400\""},
      {"1,1\n1,1;5", "line 2, column 3: expected a number, got \"1;5\""},
      {"1\n2\r3", "line 2, column 1: expected a number, got \"2?3\""},
      {std::string("1\n\0\x1B[31m", 7), "line 2, column 1: expected a number, got \"??[31\""},
      {"1\n" + std::string(1000, 'z'), "line 2, column 1: expected a number, got \"" + std::string(32, 'z') + "\"..."},
      {"1\n\"2\"", "line 2, column 1: expected a number, got a quoted field"},
      {"1\n2\"", "line 2, column 2: expected a quote only at the beginning of a field"},
      {"a\"b", "line 1, column 2: expected a quote only at the beginning of a field"},
      {"\"a", "line 1, column 1: the quote that opens this field is never closed"},
      {"x,\"a\"\"", "line 1, column 3: the quote that opens this field is never closed"},
      {"\"a\"b", "line 1, column 4: expected a comma or the end of the line"},
      {"\"a\" ,b", "line 1, column 4: expected a comma or the end of the line"},
      {"\"a\nb\",c\n1", "line 3, column 1: expected 2 fields as in line 1, got 1"},
      {"\"a\nb\"x", "line 2, column 3: expected a comma or the end of the line"},
      {"\xEF\xBB\xBF", "line 1, column 1: expected at least one line"},
      {"\xEF\xBB\xBF,", "line 1, column 1: the field is empty"},
  };
  for (const auto& row : table) {
    CHECK(message_of<ParseError>([&] { parse_csv(row.text, "evil.csv"); }) == "evil.csv: " + row.says);
  }
}

TEST_CASE("io.csv: what is saved loads to the same bits") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "table.csv";
  Rng rng(3);
  io::Table table;
  table.columns = {"plain", "comma, quote \" and\nline", "7", "nan", "", "  ", "caf\xC3\xA9", " padded "};
  table.values = Matrix<double>(50, 8);
  for (Index i = 0; i < table.values.size(); ++i)
    do
      table.values.data()[i] = std::bit_cast<double>(rng.next64());  // every exponent, subnormals, infinities
    while (std::isnan(table.values.data()[i]));
  table.values(0, 0) = -0.0;
  table.values(0, 1) = std::numeric_limits<double>::denorm_min();
  table.values(0, 2) = std::numeric_limits<double>::max();
  table.values(0, 3) = -HUGE_VAL;
  io::save_csv(path, table);
  const auto loaded = io::load_csv(path);
  CHECK(loaded.columns == table.columns);
  REQUIRE(loaded.values.rows() == 50);
  REQUIRE(loaded.values.cols() == 8);
  for (Index i = 0; i < table.values.size(); ++i)
    CHECK(std::bit_cast<std::uint64_t>(loaded.values.data()[i]) ==
          std::bit_cast<std::uint64_t>(table.values.data()[i]));

  io::save_csv(path, table.values.transpose());  // any strides, no names
  CHECK(io::load_csv(path).columns.empty());
  CHECK(io::load_csv(path).values == table.values.transpose());
  table.values.resize(0, 8);
  io::save_csv(path, table);
  CHECK(io::load_csv(path).values.rows() == 0);
}

TEST_CASE("io.csv: what cannot be saved or read is an invalid argument") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "table.csv";
  CHECK(message_of<InvalidArgument>([&] { io::save_csv(path, {{"a"}, Matrix<double>::Zero(2, 3)}); }) ==
        "save_csv: there are 1 names for 3 columns");
  CHECK(message_of<InvalidArgument>([&] { io::save_csv(path, {{}, Matrix<double>(0, 3)}); }) ==
        "save_csv: the table is empty");
  CHECK(message_of<InvalidArgument>([&] { io::save_csv(path, {{}, Matrix<double>(3, 0)}); }) ==
        "save_csv: the table is empty");
  CHECK(message_of<InvalidArgument>([&] { io::load_csv(path); }) ==
        "load_csv: cannot read " + path + ": No such file or directory");
  std::ofstream(path) << "a\n1\nx\n";
  CHECK(message_of<ParseError>([&] { io::load_csv(path); }) ==
        path + ": line 3, column 1: expected a number, got \"x\"");
}

}  // namespace
}  // namespace ashlar
