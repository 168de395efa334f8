#include "ashlar/io/number.hpp"

#include <vector>

#include "support/catch.hpp"

namespace ashlar::io {
namespace {

using detail::convert_number;

TEST_CASE("io.number: integers convert exactly or not at all") {
  CHECK(convert_number<std::int8_t>(std::int64_t{-128}) == std::int8_t{-128});
  CHECK_FALSE(convert_number<std::int8_t>(std::int64_t{128}));
  CHECK_FALSE(convert_number<std::uint64_t>(std::int64_t{-1}));
  CHECK_FALSE(convert_number<std::int64_t>(std::uint64_t{1} << 63));
  CHECK(convert_number<std::int64_t>(-0x1p63) == std::numeric_limits<std::int64_t>::min());
  CHECK_FALSE(convert_number<std::int64_t>(0x1p63));
  CHECK_FALSE(convert_number<std::int32_t>(0.5));
  CHECK_FALSE(convert_number<std::int32_t>(std::numeric_limits<double>::quiet_NaN()));
  CHECK(convert_number<bool>(std::uint64_t{1}) == true);
  CHECK_FALSE(convert_number<bool>(std::uint64_t{2}));
}

TEST_CASE("io.number: a double is rounded to half once and not by way of float") {
  // Just above the middle of 1 and the next half: as a float it would be the middle itself, and go down to even.
  const double above = 1 + 0x1p-11 + 0x1p-40;
  CHECK(static_cast<float>(above) == 1 + 0x1p-11f);
  CHECK(to_float(*convert_number<half>(above)) == 1 + 0x1p-10f);
  CHECK(to_float(*convert_number<half>(1 + 0x1p-11)) == 1);
  CHECK(to_float(*convert_number<bfloat16>(-(1 + 0x1p-8 + 0x1p-40))) == -(1 + 0x1p-7f));
}

TEST_CASE("io.number: bytes of any alignment and order become numbers and a bool is 0 or 1") {
  const std::byte bytes[] = {std::byte{9}, std::byte{0x12}, std::byte{0x34}, std::byte{2}};
  CHECK(detail::read_number<std::uint16_t>(bytes + 1, false) == 0x3412);
  CHECK(detail::read_number<std::uint16_t>(bytes + 1, true) == 0x1234);
  CHECK(detail::read_as<double>(DType::U16, bytes + 1, true) == 0x1234);
  CHECK(detail::read_as<std::int8_t>(DType::U16, bytes + 1, true) == std::nullopt);
  CHECK(detail::read_number<bool>(bytes + 3, false) == std::nullopt);
  CHECK(detail::read_as<float>(DType::BOOL, bytes + 3, false) == std::nullopt);
}

TEST_CASE("io.number: offsets run in row-major order through any strides") {
  const auto offsets = [](std::vector<Index> shape, std::vector<Index> strides) {
    std::vector<Index> seen;
    detail::for_each_offset(shape, strides, [&](Index offset) { seen.push_back(offset); });
    return seen;
  };
  CHECK(offsets({2, 3}, {1, 2}) == std::vector<Index>{0, 2, 4, 1, 3, 5});
  CHECK(offsets({2, 2}, {-2, 1}) == std::vector<Index>{0, 1, -2, -1});
  CHECK(offsets({}, {}) == std::vector<Index>{0});
  CHECK(offsets({2, 0, 3}, {0, 3, 1}).empty());
}

TEST_CASE("io.number: shapes that cannot be counted are refused") {
  const std::vector<Index> fine{2, 0, 3}, huge{Index{1} << 40, Index{1} << 40}, hidden{Index{1} << 40, Index{1} << 40, 0},
      deep(9, 1);
  CHECK(detail::checked_shape(fine)->size() == 0);
  CHECK_FALSE(detail::checked_shape(huge));
  CHECK_FALSE(detail::checked_shape(hidden));
  CHECK_FALSE(detail::checked_shape(deep));
}

}  // namespace
}  // namespace ashlar::io
