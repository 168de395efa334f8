#include "ashlar/io/npy.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"
#include "support/temporary.hpp"

namespace ashlar {
namespace {

using io::Conversion;
using test::message_of;

const std::string data = ASHLAR_TEST_DATA "/io/";

std::span<const std::byte> bytes_of_text(const std::string& text) { return std::as_bytes(std::span(text)); }

/// An .npy file of version 1.0 with this dictionary and these data bytes.
std::string npy(const std::string& dictionary, const std::string& elements = "") {
  const auto length = dictionary.size();
  return std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(length & 0xFF) + static_cast<char>(length >> 8) +
         dictionary + elements;
}
std::string plain(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

template <class T>
std::vector<T> elements(const Tensor<T>& x) {
  return std::vector<T>(x.data(), x.data() + x.size());
}

template <class T>
void reads_exactly(const std::string& name) {
  INFO(name);
  const auto x = io::load_npy<T>(data + name + ".npy");
  CHECK(x.shape() == Shape{2, 3});
  const int expected[] = {0, 1, 2, 3, 100, 127};
  for (Index i = 0; i < 6; ++i) {
    CHECK(x.data()[i] == static_cast<T>(expected[i]));
    CHECK(io::load_npy<double>(data + name + ".npy", Conversion::any).data()[i] == expected[i]);
    CHECK(to_float(io::load_npy<half>(data + name + ".npy", Conversion::any).data()[i]) == static_cast<float>(expected[i]));
    CHECK(io::load_npy<std::uint8_t>(data + name + ".npy", Conversion::any).data()[i] == expected[i]);
  }
}

TEST_CASE("io.npy: every numeric dtype NumPy writes reads exactly and converts") {
  reads_exactly<half>("f2");
  reads_exactly<float>("f4");
  reads_exactly<double>("f8");
  reads_exactly<std::int8_t>("i1");
  reads_exactly<std::int16_t>("i2");
  reads_exactly<std::int32_t>("i4");
  reads_exactly<std::int64_t>("i8");
  reads_exactly<long long>("i8");
  reads_exactly<std::uint8_t>("u1");
  reads_exactly<std::uint16_t>("u2");
  reads_exactly<std::uint32_t>("u4");
  reads_exactly<std::uint64_t>("u8");
  CHECK(elements(io::load_npy<bool>(data + "b1.npy")) == std::vector<bool>{true, false, true, false, false, true});
  CHECK(elements(test::fixture<double>("io/b1")) == std::vector<double>{1, 0, 1, 0, 0, 1});
}

TEST_CASE("io.npy: byte order and storage order are undone") {
  const auto big = io::load_npy<double>(data + "big_endian.npy");
  CHECK(big.shape() == Shape{2, 3});
  CHECK(elements(big) == std::vector<double>{1.5, -2.25, 3, 4, 5, 6e-3});
  const auto fortran = io::load_npy<std::int32_t>(data + "fortran.npy");
  CHECK(fortran.shape() == Shape{2, 3, 4});
  std::vector<std::int32_t> counting(24);
  std::iota(counting.begin(), counting.end(), 0);
  CHECK(elements(fortran) == counting);
  const auto both = io::load_npy<std::int16_t>(data + "big_endian_fortran.npy");
  CHECK(elements(both) == std::vector<std::int16_t>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("io.npy: versions 2 and 3 and ranks 0 and 8 and empty arrays read") {
  CHECK(elements(io::load_npy<double>(data + "version2.npy")) == std::vector<double>{1, 2, 3});
  CHECK(elements(io::load_npy<double>(data + "version3.npy")) == std::vector<double>{1, 2, 3});
  const auto scalar = io::load_npy<double>(data + "scalar.npy");
  CHECK(scalar.rank() == 0);
  CHECK(elements(scalar) == std::vector<double>{2.5});
  const auto empty = io::load_npy<float>(data + "empty.npy");
  CHECK(empty.shape() == Shape{0, 4});
  const auto eight = io::load_npy<std::uint16_t>(data + "rank8.npy");
  CHECK(eight.shape() == Shape{2, 1, 2, 1, 2, 1, 2, 1});
  CHECK(elements(eight) ==
        std::vector<std::uint16_t>{0, 2, 8, 10, 32, 34, 40, 42, 128, 130, 136, 138, 160, 162, 168, 170});
}

TEST_CASE("io.npy: a dtype other than the asked one is refused unless conversion is asked for") {
  CHECK(message_of<ParseError>([] { io::load_npy<double>(data + "f4.npy"); }) ==
        data + "f4.npy: byte 20: expected the dtype of double, got f4; Conversion::any would convert");
  CHECK(message_of<ParseError>([] { io::load_npy<std::uint32_t>(data + "i4.npy"); }) ==
        data + "i4.npy: byte 20: expected the dtype of uint32, got i4; Conversion::any would convert");
  CHECK(message_of<ParseError>([] { io::load_npy<bfloat16>(data + "f2.npy"); }) ==
        data + "f2.npy: byte 20: expected the dtype of bfloat16, got f2; Conversion::any would convert");
}

TEST_CASE("io.npy: conversion rounds once and integers lose nothing") {
  const auto parse = [](auto to, auto from) {
    const std::string raw(reinterpret_cast<const char*>(&from), sizeof from);
    const char kind = std::is_floating_point_v<decltype(from)> ? 'f' : std::is_signed_v<decltype(from)> ? 'i' : 'u';
    const auto file = npy(plain(message('<', kind, sizeof from), "()"), raw);
    return io::parse_npy<decltype(to)>(bytes_of_text(file), "x", Conversion::any).data()[0];
  };
  // 1 + 2^-8 + 2^-40 lies above the tie between 1 and 1 + 2^-7; rounding through float would make it a tie.
  CHECK(to_float(parse(bfloat16{}, 1 + 0x1p-8 + 0x1p-40)) == 1.0078125f);
  CHECK(to_float(parse(bfloat16{}, 1 + 0x1p-8 - 0x1p-40)) == 1.0f);
  CHECK(to_float(parse(half{}, -(1 + 0x1p-11 + 0x1p-50))) == -1.0009765625f);
  CHECK(to_float(parse(half{}, 0x1p-25 + 0x1p-70)) == 0x1p-24f);
  CHECK(to_float(parse(half{}, 0x1p-25)) == 0);
  CHECK(to_float(parse(half{}, std::int32_t{65520})) == INFINITY);
  CHECK(to_float(parse(half{}, 65519.99999999999)) == 65504);
  CHECK(parse(float{}, 1e300) == INFINITY);
  CHECK(std::isnan(parse(float{}, std::nan(""))));
  CHECK(std::isnan(to_float(parse(float8_e4m3{}, std::nan("")))));
  CHECK(parse(std::int8_t{}, -128.0) == -128);
  CHECK(parse(std::uint64_t{}, 0x1.fffffffffffffp63) == 0xFFFFFFFFFFFFF800u);
  CHECK(parse(std::int64_t{}, std::uint64_t{0x7FFFFFFFFFFFFFFF}) == std::numeric_limits<std::int64_t>::max());
  CHECK(parse(bool{}, 1.0f));
  for (const double bad : {128.0, -129.0, 0.5, 1e300, HUGE_VAL, -HUGE_VAL, std::nan("")})
    CHECK(message_of<ParseError>([&] { parse(std::int8_t{}, bad); }) == "x: byte 65: the f8 element is no int8");
  CHECK(message_of<ParseError>([&] { parse(std::int64_t{}, 0x1p63); }) == "x: byte 65: the f8 element is no int64");
  CHECK(message_of<ParseError>([&] { parse(std::uint64_t{}, -1.0); }) == "x: byte 65: the f8 element is no uint64");
  CHECK(message_of<ParseError>([&] { parse(std::uint64_t{}, std::int8_t{-1}); }) ==
        "x: byte 65: the i1 element is no uint64");
  CHECK(message_of<ParseError>([&] { parse(std::int64_t{}, ~std::uint64_t{0}); }) ==
        "x: byte 65: the u8 element is no int64");
  CHECK(message_of<ParseError>([&] { parse(bool{}, 2.0f); }) == "x: byte 65: the f4 element is no bool");
}

template <class T>
void round_trips(const test::TemporaryFolder& folder, const Shape& shape) {
  INFO(message(io::detail::info(io::detail::dtype_of<T>()).type, " ", shape.extents()));
  Rng rng(7);
  auto x = Tensor<T>::uninitialized(shape);
  for (Index i = 0; i < x.size(); ++i) {
    if constexpr (std::same_as<T, bool>)
      x.data()[i] = rng.below(2) == 1;
    else if constexpr (std::integral<T>)
      x.data()[i] = static_cast<T>(rng.next64());
    else
      x.data()[i] = from_float<T>(static_cast<accumulate_t<T>>(rng.normal()));
  }
  io::save_npy(folder / "x.npy", x);
  CHECK(test::identical(io::load_npy<T>(folder / "x.npy"), x));
}

TEST_CASE("io.npy: what is saved loads to the same bits for every type and rank") {
  const test::TemporaryFolder folder;
  const std::span<const Index> none;
  for (const Shape& shape : {Shape(none), Shape{5}, Shape{3, 7}, Shape{0, 3}, Shape{2, 3, 4}, Shape{1, 2, 1, 3, 1, 2, 1, 2}}) {
    round_trips<float>(folder, shape);
    round_trips<double>(folder, shape);
    round_trips<half>(folder, shape);
    round_trips<bool>(folder, shape);
    round_trips<std::int8_t>(folder, shape);
    round_trips<std::int16_t>(folder, shape);
    round_trips<std::int32_t>(folder, shape);
    round_trips<std::int64_t>(folder, shape);
    round_trips<std::uint8_t>(folder, shape);
    round_trips<std::uint16_t>(folder, shape);
    round_trips<std::uint32_t>(folder, shape);
    round_trips<std::uint64_t>(folder, shape);
  }
}

TEST_CASE("io.npy: views with gaps and Eigen objects are saved in row-major order") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  Tensor<int> t({30, 70, 2});
  std::iota(t.data(), t.data() + t.size(), 0);
  io::save_npy(path, t.view<3>().transposed(0, 1));  // more elements than one buffer of the writer
  const auto swapped = io::load_npy<int>(path);
  CHECK(swapped.shape() == Shape{70, 30, 2});
  CHECK(test::identical(swapped, test::copy_of<3>(t.view<3>().transposed(0, 1))));
  io::save_npy(path, t.slice<3>(1, 2, 4));
  CHECK(test::identical(io::load_npy<int>(path), test::copy_of<3>(t.slice<3>(1, 2, 4))));

  Eigen::MatrixXd m(2, 3);  // column-major
  m << 1, 2, 3, 4, 5, 6;
  io::save_npy(path, m);
  CHECK(io::load_npy<double>(path).shape() == Shape{2, 3});
  CHECK(elements(io::load_npy<double>(path)) == std::vector<double>{1, 2, 3, 4, 5, 6});
  io::save_npy(path, m.rightCols(2));
  CHECK(elements(io::load_npy<double>(path)) == std::vector<double>{2, 3, 5, 6});
  io::save_npy(path, m.row(1));
  CHECK(io::load_npy<double>(path).shape() == Shape{3});
  io::save_npy(path, std::vector<float>{1, 2});
  CHECK(elements(io::load_npy<float>(path)) == std::vector<float>{1, 2});
}

TEST_CASE("io.npy: the data of a saved file starts at a multiple of 64 bytes whatever the header says") {
  const test::TemporaryFolder folder;
  for (Index n = 1; n < Index{1} << 40; n *= 10) {
    io::save_npy(folder / "x.npy", Tensor<std::int8_t>({0, n, n % 7 + 1}));
    CHECK(std::filesystem::file_size(folder / "x.npy") % 64 == 0);
    CHECK(io::load_npy<std::int8_t>(folder / "x.npy").shape() == Shape{0, n, n % 7 + 1});
  }
}

TEST_CASE("io.npy: hostile bytes are parse errors that say where and what") {
  const std::string magic("\x93NUMPY", 6);
  const std::string one(8, '\0');
  const struct {
    std::string file, says;
  } table[] = {
      {"", "0: expected the magic string \\x93NUMPY of an .npy file"},
      {"\x93NUMPX\x01", "0: expected the magic string \\x93NUMPY of an .npy file"},
      {"PK\x03\x04", "0: expected the magic string \\x93NUMPY of an .npy file"},
      {magic, "6: the file ends within the format version"},
      {magic + '\x01', "7: the file ends within the format version"},
      {magic + std::string("\0\0", 2), "6: expected format version 1.0, 2.0 or 3.0, got 0.0"},
      {magic + "\x04\x01", "6: expected format version 1.0, 2.0 or 3.0, got 4.1"},
      {magic + "\xFF\xFF", "6: expected format version 1.0, 2.0 or 3.0, got 255.255"},
      {magic + std::string("\x01\0", 2), "8: the file ends within the header length"},
      {magic + std::string("\x02\0\x01\0\0", 5), "11: the file ends within the header length"},
      {magic + std::string("\x01\0\xFF\xFF", 4), "8: the header has 65535 bytes, but the file ends after 0"},
      {magic + std::string("\x02\0\xFF\xFF\xFF\xFF", 6), "8: the header has 4294967295 bytes, but the file ends after 0"},
      {npy(""), "10: expected '{'"},
      {npy(" \n "), "13: expected '{'"},
      {npy(std::string(5, '\0')), "10: expected '{'"},
      {npy("["), "10: expected '{'"},
      {npy("{"), "11: expected a key in quotes"},
      {npy("{}"), "12: expected the keys descr, fortran_order and shape, one is missing"},
      {npy("{'"), "11: expected a key in quotes, the second quote is missing"},
      {npy("{'descr"), "11: expected a key in quotes, the second quote is missing"},
      {npy("{'descr'"), "18: expected ':'"},
      {npy("{'descr': }"), "20: expected a dtype in quotes"},
      {npy("{'descr': '<f8'"), "25: expected '}'"},
      {npy("{'descr': '<f8' 'shape': ()}"), "26: expected '}'"},
      {npy("{'descr': '<f8', 'descr': '<f8'}"),
       "27: expected the keys descr, fortran_order and shape once each, got another key"},
      {npy("{'evil': 1}"), "11: expected the keys descr, fortran_order and shape once each, got another key"},
      {npy("{'descr': [('a', '<i4')]}"), "20: structured dtypes are not supported"},
      {npy("{'descr': '<c16'}"), "20: complex dtypes are not supported"},
      {npy("{'descr': '|O'}"), "20: expected a numeric dtype: f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 or b1 after its byte order"},
      {npy("{'descr': '<U2'}"), "20: expected a numeric dtype: f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 or b1 after its byte order"},
      {npy("{'descr': '<f16'}"), "20: expected a numeric dtype: f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 or b1 after its byte order"},
      {npy("{'descr': '<i3'}"), "20: expected a numeric dtype: f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 or b1 after its byte order"},
      {npy("{'descr': ''}"), "20: expected a numeric dtype: f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 or b1 after its byte order"},
      {npy("{'descr': '|f8'}"), "20: expected a byte order < or > before the dtype"},
      {npy("{'descr': '*f8'}"), "20: expected a byte order < or > before the dtype"},
      {npy("{'fortran_order': 1}"), "28: expected True or False"},
      {npy("{'fortran_order': Tru"), "28: expected True or False"},
      {npy("{'shape': 3}"), "20: expected '('"},
      {npy("{'shape': (3)}"), "23: expected a tuple: (n,) for one axis"},
      {npy("{'shape': (,)}"), "21: expected the length of an axis, at most 9223372036854775807"},
      {npy("{'shape': (3 4)}"), "23: expected ',' or ')'"},
      {npy("{'shape': (3,,4)}"), "23: expected the length of an axis, at most 9223372036854775807"},
      {npy("{'shape': (-1,)}"), "21: expected the length of an axis, at most 9223372036854775807"},
      {npy("{'shape': (1e3,)}"), "22: expected ',' or ')'"},
      {npy("{'shape': (True,)}"), "21: expected the length of an axis, at most 9223372036854775807"},
      {npy("{'shape': (9223372036854775808,)}"), "21: expected the length of an axis, at most 9223372036854775807"},
      {npy("{'shape': (3,"), "23: expected the length of an axis, at most 9223372036854775807"},
      {npy("{'shape': (((((((((("), "21: expected the length of an axis, at most 9223372036854775807"},
      {npy("{'shape': (1,1,1,1,1,1,1,1,1)}"), "37: expected at most 8 axes"},
      {npy("{'shape': (4294967296, 4294967296)}"),
       "44: shape [4294967296,4294967296] has more elements than an index can count"},
      {npy("{'shape': (0, 4294967296, 4294967296)}"),
       "47: shape [0,4294967296,4294967296] has more elements than an index can count"},
      {npy(plain("<f8", "(1,)") + "x", one), "67: expected nothing but blanks after the header's dictionary"},
      {npy(plain("<f8", "(1,)") + "}", one), "67: expected nothing but blanks after the header's dictionary"},
      {npy(plain("<f8", "(2,)"), one), "67: shape [2] of 8-byte elements needs 16 bytes of data, the file has 8"},
      {npy(plain("<f8", "(1,)"), one + one), "67: shape [1] of 8-byte elements needs 8 bytes of data, the file has 16"},
      {npy(plain("<f8", "()")), "65: shape [] of 8-byte elements needs 8 bytes of data, the file has 0"},
      {npy(plain("<f8", "(100000000000000,)")),
       "81: shape [100000000000000] of 8-byte elements needs 800000000000000 bytes of data, the file has 0"},
      {npy(plain("|b1", "(8,)"), "\1\1\1\1\1\1\2\1"), "73: the b1 element is no double"},
  };
  for (const auto& row : table) {
    CHECK(message_of<ParseError>([&] { io::parse_npy<double>(bytes_of_text(row.file), "evil.npy", Conversion::any); }) ==
          "evil.npy: byte " + row.says);
  }
  CHECK(message_of<ParseError>([&] {
          io::parse_npy<bool>(bytes_of_text(npy(plain("|b1", "(8,)"), "\1\1\1\1\1\1\2\1")), "evil.npy");
        }) == "evil.npy: byte 73: the b1 element is no bool");
}

TEST_CASE("io.npy: files NumPy writes for types that are no numbers are refused") {
  const auto refusal = [](const std::string& name) {
    return message_of<ParseError>([&] { io::load_npy<double>(data + name, Conversion::any); }).substr(data.size());
  };
  CHECK(refusal("complex.npy") == "complex.npy: byte 20: complex dtypes are not supported");
  CHECK(refusal("structured.npy") == "structured.npy: byte 20: structured dtypes are not supported");
  CHECK(refusal("text.npy") ==
        "text.npy: byte 20: expected a numeric dtype: f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 or b1 after its byte order");
  CHECK(refusal("nine_axes.npy").ends_with(": expected at most 8 axes"));
}

TEST_CASE("io.npy: a file cut anywhere or with any byte changed never does worse than a parse error") {
  std::ifstream stream(data + "fortran.npy", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(stream), {}};
  for (std::size_t n = 0; n < whole.size(); ++n)
    CHECK_THROWS_AS(io::parse_npy<std::int32_t>(bytes_of_text(whole.substr(0, n)), "cut"), ParseError);
  int refused = 0;
  for (std::size_t at = 0; at < 128; ++at)
    for (int flip = 1; flip < 256; ++flip) {
      std::string bent = whole;
      bent[at] = static_cast<char>(bent[at] ^ flip);
      try {
        io::parse_npy<std::int32_t>(bytes_of_text(bent), "bent", Conversion::any);
      } catch (const ParseError&) {
        ++refused;
      }
    }
  CHECK(refused > 128 * 128);
}

TEST_CASE("io.npy: a short file that claims a huge array allocates nothing") {
  const std::string file = npy(plain("<f8", "(100000000000,)"), std::string(64, '\0'));
  const auto before = test::allocation_count.load();
  CHECK_THROWS_AS(io::parse_npy<double>(bytes_of_text(file), "x"), ParseError);
  CHECK(test::allocation_count - before < 64);  // the words of the message
}

TEST_CASE("io.npy: files that cannot be read or written are invalid arguments and leave the old file alone") {
  const test::TemporaryFolder folder;
  CHECK(message_of<InvalidArgument>([&] { io::load_npy<double>(folder / "none.npy"); }) ==
        "load_npy: cannot read " + folder / "none.npy" + ": No such file or directory");
  CHECK(message_of<InvalidArgument>([&] { io::load_npy<double>(folder.path()); }) ==
        "load_npy: cannot read " + folder.path() + ": Is a directory");
  CHECK(message_of<InvalidArgument>([&] { io::save_npy(folder / "no/x.npy", std::vector<int>{1}); }) ==
        "save_npy: cannot write " + folder / "no/x.npy" + ": No such file or directory");
  CHECK(message_of<InvalidArgument>([&] { io::save_npy(folder / "x.npy", Tensor<double>()); }) ==
        "save_npy: the tensor was moved from or never given a shape");

  io::save_npy(folder / "x.npy", std::vector<int>{1, 2, 3});
  CHECK_THROWS_AS(io::detail::write_file(folder / "x.npy", "test",
                                         [](auto&& put) {
                                           put(bytes_of_text("half of"));
                                           throw InvalidArgument("stop");
                                         }),
                  InvalidArgument);
  CHECK(elements(io::load_npy<int>(folder / "x.npy")) == std::vector<int>{1, 2, 3});
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
#if defined(__linux__)
  CHECK(message_of<InvalidArgument>([] { io::save_npy("/dev/full", Tensor<double>({100000})); }) ==
        "save_npy: cannot write /dev/full: No space left on device");
#endif
}

}  // namespace
}  // namespace ashlar
