#include "ashlar/io/safetensors.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/temporary.hpp"

namespace ashlar {
namespace {

using io::Conversion;
using io::DType;
using io::Safetensors;
using test::message_of;

const std::string all_types = ASHLAR_TEST_DATA "/io/all.safetensors";

std::span<const std::byte> bytes_of_text(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A file of this header and this many zero bytes of data.
std::string file_of(const std::string& header, std::size_t data = 0) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i));
  return text + header + std::string(data, '\0');
}
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
std::string refusal(const std::string& file) {
  return message_of<ParseError>([&] { Safetensors(bytes_of_text(file), "evil"); });
}

template <class T>
void reads_exactly(const Safetensors& file, const std::string& name, std::vector<float> expected) {
  INFO(name);
  const auto tensor = file.tensor<T>(name);
  const auto view = file.view<T, 2>(name);
  CHECK(tensor.shape() == Shape{2, 3});
  CHECK(test::identical(test::copy_of<2>(view), tensor));
  for (Index i = 0; i < 6; ++i) {
    const auto value = [&](const auto& x) {
      if constexpr (Scalar<T>) return static_cast<float>(to_float(x));
      else return static_cast<float>(x);
    };
    CHECK(value(tensor.data()[i]) == expected[static_cast<std::size_t>(i)]);
    CHECK(file.tensor<double>(name, Conversion::any).data()[i] == expected[static_cast<std::size_t>(i)]);
  }
}

TEST_CASE("io.safetensors: a file of the reference writer reads in every type") {
  const Safetensors file(all_types);
  const std::vector<float> numbers{0, 1, 2, 3, 100, 127};
  reads_exactly<double>(file, "f64", numbers);
  reads_exactly<float>(file, "f32", numbers);
  reads_exactly<half>(file, "f16", numbers);
  reads_exactly<bfloat16>(file, "bf16", {0, 1, 2, 3, 100, -1.5});
  reads_exactly<float8_e4m3>(file, "f8_e4m3", {0, 1, 2, 3, 96, -1.5});
  reads_exactly<float8_e5m2>(file, "f8_e5m2", {0, 1, 2, 3, 96, -1.5});
  reads_exactly<std::int8_t>(file, "i8", numbers);
  reads_exactly<std::int16_t>(file, "i16", numbers);
  reads_exactly<std::int32_t>(file, "i32", numbers);
  reads_exactly<std::int64_t>(file, "i64", numbers);
  reads_exactly<std::uint8_t>(file, "u8", numbers);
  reads_exactly<std::uint16_t>(file, "u16", numbers);
  reads_exactly<std::uint32_t>(file, "u32", numbers);
  reads_exactly<std::uint64_t>(file, "u64", numbers);
  reads_exactly<bool>(file, "bool", {1, 0, 1, 0, 0, 1});
  CHECK(file.names().size() == 17);
  CHECK(std::ranges::is_sorted(file.names()));
  CHECK(file.contains("bf16"));
  CHECK_FALSE(file.contains("__metadata__"));
  CHECK(file.dtype("bf16") == DType::BF16);
  CHECK(file.shape("empty") == Shape{0, 4});
  CHECK(file.tensor<float>("empty").size() == 0);
  CHECK(file.view<float, 2>("empty").empty());
  CHECK(file.tensor<float>("scalar \"quoted\" \xC3\xA9").rank() == 0);
  CHECK(file.tensor<float>("scalar \"quoted\" \xC3\xA9").data()[0] == 2.5f);
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "np \"\xC3\xA9\""}});
}

TEST_CASE("io.safetensors: what is saved equals the reference writer byte for byte") {
  const test::TemporaryFolder folder;
  const Safetensors file(all_types);
  const Tensor<float> empty = file.tensor<float>("empty"), scalar = file.tensor<float>("scalar \"quoted\" \xC3\xA9");
  io::save_safetensors(folder / "copy.safetensors",
                       {{"bool", file.view<bool, 2>("bool")},
                        {"u8", file.view<std::uint8_t, 2>("u8")},
                        {"i8", file.view<std::int8_t, 2>("i8")},
                        {"f8_e5m2", file.view<float8_e5m2, 2>("f8_e5m2")},
                        {"f8_e4m3", file.view<float8_e4m3, 2>("f8_e4m3")},
                        {"i16", file.view<std::int16_t, 2>("i16")},
                        {"u16", file.view<std::uint16_t, 2>("u16")},
                        {"f16", file.view<half, 2>("f16")},
                        {"bf16", file.view<bfloat16, 2>("bf16")},
                        {"i32", file.view<std::int32_t, 2>("i32")},
                        {"u32", file.view<std::uint32_t, 2>("u32")},
                        {"scalar \"quoted\" \xC3\xA9", scalar},
                        {"f32", file.view<float, 2>("f32")},
                        {"empty", empty},
                        {"f64", file.view<double, 2>("f64")},
                        {"i64", file.view<std::int64_t, 2>("i64")},
                        {"u64", file.view<std::uint64_t, 2>("u64")}},
                       file.metadata());
  CHECK(contents(folder / "copy.safetensors") == contents(all_types));
}

TEST_CASE("io.safetensors: arrays with gaps and Eigen objects and ranges are saved in row-major order") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  Rng rng(5);
  const auto t = normal_tensor<float>(rng, {40, 60, 3});
  const auto swapped = t.view<3>().transposed(0, 2);  // more elements than one buffer of the writer
  Eigen::MatrixXd m(2, 3);                            // column-major
  m << 1, 2, 3, 4, 5, 6;
  const std::vector<std::int64_t> ids{7, 8, 9};
  io::save_safetensors(path, {{"swapped", swapped}, {"m", m}, {"right", m.rightCols(2)}, {"ids", ids}, {"t", t}});
  const Safetensors file(path);
  CHECK(test::identical(file.tensor<float>("swapped"), test::copy_of<3>(swapped)));
  CHECK(test::identical(file.tensor<float>("t"), t));
  CHECK(test::identical(file.tensor<double>("m"), test::copy_of<2>(m)));
  CHECK(test::identical(file.tensor<double>("right"), test::copy_of<2>(m.rightCols(2))));
  CHECK(file.view<std::int64_t, 1>("ids")[2] == 9);
  CHECK(file.metadata().empty());

  io::save_safetensors(path, std::vector<io::NamedTensor>{});
  CHECK(Safetensors(path).names().empty());
}

TEST_CASE("io.safetensors: every tensor of a saved file is aligned whatever the shapes") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  for (Index n = 0; n < 12; ++n) {
    const Tensor<std::int8_t> bytes({n});
    const Tensor<half> halves({n});
    const Tensor<float> floats({n});
    const Tensor<double> doubles({n});
    io::save_safetensors(path, {{"a", bytes}, {"b", halves}, {"c", floats}, {"d", doubles}},
                         {{std::string(static_cast<std::size_t>(n), 'k'), "v"}});
    const Safetensors file(path);
    CHECK(file.view<std::int8_t, 1>("a").extent(0) == n);
    CHECK(file.view<half, 1>("b").extent(0) == n);
    CHECK(file.view<float, 1>("c").extent(0) == n);
    CHECK(file.view<double, 1>("d").extent(0) == n);
  }
}

TEST_CASE("io.safetensors: views outlive a move of the file and look into it without a copy") {
  Safetensors file(all_types);
  const auto view = file.view<float, 2>("f32");
  const Safetensors moved = std::move(file);
  CHECK(moved.view<float, 2>("f32").data() == view.data());
  CHECK(view(1, 2) == 127);
}

TEST_CASE("io.safetensors: misaligned data is refused as a view and read as a tensor") {
  const std::string header = R"({"a":)" + entry("\"U8\"", "[1]", "[0,1]") + R"(,"b":)" + entry("\"F32\"", "[2]", "[1,9]") +
                             "}";
  std::string text = file_of(header + std::string((8 - header.size() % 8) % 8, ' '), 1);
  const float numbers[] = {1.5f, -2};
  text.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  const Safetensors file(bytes_of_text(text), "odd");
  CHECK(message_of<InvalidArgument>([&] { file.view<float, 1>("b"); }) ==
        "Safetensors::view: \"b\" is not aligned in the file: use tensor");
  CHECK(file.tensor<float>("b").data()[1] == -2);
  CHECK(file.tensor<double>("b", Conversion::any).data()[0] == 1.5);
}

TEST_CASE("io.safetensors: asking for what is not there is an invalid argument") {
  const Safetensors file(all_types);
  CHECK(message_of<InvalidArgument>([&] { file.view<float, 2>("nothing"); }) ==
        "Safetensors::view: there is no tensor \"nothing\" in " + all_types);
  CHECK(message_of<InvalidArgument>([&] { file.shape("nothing"); }) ==
        "Safetensors::shape: there is no tensor \"nothing\" in " + all_types);
  CHECK(message_of<InvalidArgument>([&] { file.view<float, 2>("f16"); }) ==
        "Safetensors::view: \"f16\" holds F16, not F32");
  CHECK(message_of<InvalidArgument>([&] { file.view<float, 1>("f32"); }) ==
        "Safetensors::view: \"f32\" has shape [2,3], expected rank 1");
  CHECK(message_of<InvalidArgument>([&] { file.tensor<bfloat16>("f16"); }) ==
        "Safetensors::tensor: \"f16\" holds F16, not BF16; Conversion::any would convert");
  CHECK(message_of<ParseError>([&] { file.tensor<std::uint8_t>("f8_e5m2", Conversion::any); }) ==
        all_types + ": tensor \"f8_e5m2\": F8_E5M2 element 5 is no uint8");
  CHECK(message_of<InvalidArgument>([] { Safetensors("/nowhere/x"); }) ==
        "Safetensors: cannot read /nowhere/x: No such file or directory");
}

TEST_CASE("io.safetensors: what cannot be saved is an invalid argument and leaves the old file alone") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  const Tensor<float> x({2}, 1.0f);
  io::save_safetensors(path, {{"x", x}});
  const std::string before = contents(path);
  const auto says = [&](auto&& save) { return message_of<InvalidArgument>(save); };
  CHECK(says([&] { io::save_safetensors(path, {{"a", x}, {"a", x}}); }) ==
        "save_safetensors: the name \"a\" appears twice or is reserved");
  CHECK(says([&] { io::save_safetensors(path, {{"__metadata__", x}}); }) ==
        "save_safetensors: the name \"__metadata__\" appears twice or is reserved");
  CHECK(says([&] { io::save_safetensors(path, {{"\xFF", x}}); }) ==
        "save_safetensors: a name or metadata text is not UTF-8");
  CHECK(says([&] { io::save_safetensors(path, {{"a", x}}, {{"k", "\xC3"}}); }) ==
        "save_safetensors: a name or metadata text is not UTF-8");
  CHECK(says([&] { io::save_safetensors(path, {{"a", Tensor<float>()}}); }) ==
        "NamedTensor: \"a\" was moved from or never given a shape");
  CHECK(contents(path) == before);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("io.safetensors: hostile lengths are parse errors") {
  CHECK(refusal("") == "evil: byte 0: the file ends within the length of the header");
  CHECK(refusal("1234567") == "evil: byte 7: the file ends within the length of the header");
  CHECK(refusal(std::string(8, '\0')) == "evil: byte 8: expected a JSON object as header");
  CHECK(refusal(std::string(8, '\xFF')) ==
        "evil: byte 0: the header has 18446744073709551615 bytes, at most 100000000 are allowed");
  CHECK(refusal(std::string("\x01\xE1\xF5\x05\0\0\0\0", 8)) ==
        "evil: byte 0: the header has 100000001 bytes, at most 100000000 are allowed");
  CHECK(refusal(std::string("\x00\xE1\xF5\x05\0\0\0\0", 8) + "{}") ==
        "evil: byte 0: the header has 100000000 bytes, but the file ends after 2");
  CHECK(refusal(file_of("{}", 3)) == "evil: the last 3 bytes belong to no tensor");
  CHECK(Safetensors(bytes_of_text(file_of("{}     "))).names().empty());
}

TEST_CASE("io.safetensors: hostile headers are parse errors that say where and what") {
  const auto one = [](const std::string& value) { return R"({"w":)" + value + "}"; };
  const auto w = [](const std::string& sentence) { return "evil: header entry \"w\": " + sentence; };
  const struct {
    std::string header, says;
  } table[] = {
      {"[]", "evil: byte 8: expected a JSON object as header"},
      {" {}", "evil: byte 8: expected a JSON object as header"},
      {"{", "evil: byte 9: the header is not JSON"},
      {"{}}", "evil: byte 10: the header is not JSON"},
      {"{}x", "evil: byte 10: the header is not JSON"},
      {std::string("{}\0", 3), "evil: byte 10: the header is not JSON"},
      {"{\"w", "evil: byte 11: the header is not JSON"},
      {"{\"\xFF\":1}", "evil: byte 10: the header is not JSON"},
      {"{\"a\\ud800\":1}", "evil: byte 17: the header is not JSON"},
      {"{1:2}", "evil: byte 9: the header is not JSON"},
      {one(""), "evil: byte 13: the header is not JSON"},
      {one("1e999"), "evil: byte 17: the header is not JSON"},
      {one("1"), w("expected an object, got a number")},
      {one("-1"), w("expected an object, got a negative number")},
      {one("null"), w("expected an object, got null")},
      {one("true"), w("expected an object, got a boolean")},
      {one("\"F32\""), w("expected an object, got a string")},
      {one("[]"), w("expected an object, got an array")},
      {one("{}"), w("one of dtype, shape and data_offsets is missing")},
      {one(R"({"dtype":"F32","shape":[]})"), w("one of dtype, shape and data_offsets is missing")},
      {one(R"({"dtype":"F32","dtype":"F32"})"), w("the key dtype appears twice")},
      {one(R"({"shape":[],"shape":[]})"), w("the key shape appears twice")},
      {one(R"({"size":1})"), w("expected the keys dtype, shape and data_offsets, got \"size\"")},
      {one(R"({"dtype":{}})"), w("expected text for dtype, got an object")},
      {one(R"({"dtype":[]})"), w("expected text for dtype, got an array")},
      {one(R"({"dtype":1})"), w("expected text for dtype, got a number")},
      {one(R"({"dtype":"f32"})"), w("the dtype \"f32\" is not supported")},
      {one(R"({"dtype":"C64"})"), w("the dtype \"C64\" is not supported")},
      {one(R"({"dtype":""})"), w("the dtype \"\" is not supported")},
      {one(R"({"shape":1})"), w("expected an array of non-negative integers for shape, got a number")},
      {one(R"({"shape":"1"})"), w("expected an array of non-negative integers for shape, got a string")},
      {one(R"({"shape":[-1]})"), w("expected an array of non-negative integers for shape, got a negative number")},
      {one(R"({"shape":[1.0]})"),
       w("expected an array of non-negative integers for shape, got a number that is no 64-bit integer")},
      {one(R"({"shape":[18446744073709551616]})"),
       w("expected an array of non-negative integers for shape, got a number that is no 64-bit integer")},
      {one(R"({"shape":[9223372036854775808]})"), w("shape holds a number larger than an index")},
      {one(R"({"shape":[4294967296,4294967296]})"),
       w("shape [4294967296,4294967296] has more elements than an index can count")},
      {one(R"({"shape":[0,4294967296,4294967296]})"),
       w("shape [0,4294967296,4294967296] has more elements than an index can count")},
      {one(R"({"shape":[1,1,1,1,1,1,1,1,1]})"), w("shape has more than 8 axes")},
      {one(R"({"shape":[[1]]})"), w("expected an array of non-negative integers for shape, got an array")},
      {one(R"({"shape":[{}]})"), w("expected an array of non-negative integers for shape, got an object")},
      {one(R"({"shape":["1"]})"), w("expected an array of non-negative integers for shape, got a string")},
      {one(R"({"shape":[null]})"), w("expected an array of non-negative integers for shape, got null")},
      {one(R"({"data_offsets":[0]})"), w("data_offsets must be [begin, end] with begin <= end")},
      {one(R"({"data_offsets":[]})"), w("data_offsets must be [begin, end] with begin <= end")},
      {one(R"({"data_offsets":[4,0]})"), w("data_offsets must be [begin, end] with begin <= end")},
      {one(R"({"data_offsets":[0,4,8]})"), w("data_offsets must be [begin, end] with begin <= end")},
      {R"({"__metadata__":1})", "evil: header entry \"__metadata__\": expected an object, got a number"},
      {R"({"__metadata__":{"k":1}})",
       "evil: header entry \"__metadata__\": expected text for the key \"k\", got a number"},
      {R"({"__metadata__":{"k":null}})",
       "evil: header entry \"__metadata__\": expected text for the key \"k\", got null"},
      {R"({"__metadata__":{"k":{"k":"v"}}})",
       "evil: header entry \"__metadata__\": expected text for the key \"k\", got an object"},
      {R"({"__metadata__":{"k":["v"]}})",
       "evil: header entry \"__metadata__\": expected text for the key \"k\", got an array"},
      {R"({"__metadata__":{"k":"v","k":"v"}})", "evil: header entry \"__metadata__\": the key \"k\" appears twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "evil: header entry \"__metadata__\": the name appears twice"},
  };
  for (const auto& row : table) {
    CHECK(refusal(file_of(row.header)) == row.says);
  }
  const std::string f32 = entry("\"F32\"", "[]", "[0,4]");
  CHECK(refusal(file_of(R"({"w":)" + f32 + R"(,"w":)" + f32 + "}", 4)) == w("the name appears twice"));
}

TEST_CASE("io.safetensors: offsets that overlap or leave holes or do not fit the shape are parse errors") {
  const auto two = [](const std::string& a, const std::string& b, std::size_t data) {
    return refusal(file_of(R"({"a":)" + a + R"(,"b":)" + b + "}", data));
  };
  const auto f32 = [](const std::string& shape, const std::string& offsets) { return entry("\"F32\"", shape, offsets); };
  CHECK(two(f32("[1]", "[0,4]"), f32("[1]", "[4,8]"), 8) == "nothing thrown");
  CHECK(two(f32("[1]", "[4,8]"), f32("[1]", "[0,4]"), 8) == "nothing thrown");
  CHECK(two(f32("[0]", "[4,4]"), f32("[1]", "[0,4]"), 4) == "nothing thrown");
  CHECK(two(f32("[2]", "[0,8]"), f32("[1]", "[4,8]"), 8) ==
        "evil: tensor \"b\": its data begins at byte 4 of the data, expected 8 (overlap)");
  CHECK(two(f32("[1]", "[0,4]"), f32("[1]", "[0,4]"), 4) ==
        "evil: tensor \"b\": its data begins at byte 0 of the data, expected 4 (overlap)");
  CHECK(two(f32("[1]", "[0,4]"), f32("[1]", "[8,12]"), 12) ==
        "evil: tensor \"b\": its data begins at byte 8 of the data, expected 4 (hole)");
  CHECK(two(f32("[1]", "[4,8]"), f32("[1]", "[8,12]"), 12) ==
        "evil: tensor \"a\": its data begins at byte 4 of the data, expected 0 (hole)");
  CHECK(two(f32("[2]", "[0,8]"), f32("[0]", "[4,4]"), 8) ==
        "evil: tensor \"b\": its data begins at byte 4 of the data, expected 8 (overlap)");
  CHECK(two(f32("[1]", "[0,4]"), f32("[1]", "[4,8]"), 9) == "evil: the last 1 bytes belong to no tensor");
  CHECK(two(f32("[1]", "[0,4]"), f32("[1]", "[4,8]"), 7) ==
        "evil: tensor \"b\": its data ends at byte 8 of the data, the file has only 7");
  CHECK(two(f32("[1]", "[0,4]"), f32("[1]", "[4,9223372036854775807]"), 8) ==
        "evil: tensor \"b\": its data ends at byte 9223372036854775807 of the data, the file has only 8");
  CHECK(two(f32("[1]", "[0,4]"), f32("[2]", "[4,8]"), 8) ==
        "evil: tensor \"b\": shape [2] of F32 needs 8 bytes, data_offsets span 4");
  CHECK(two(f32("[1]", "[0,4]"), f32("[144115188075855871]", "[4,8]"), 8) ==
        "evil: tensor \"b\": shape [144115188075855871] of F32 needs 576460752303423484 bytes, data_offsets span 4");
}

TEST_CASE("io.safetensors: a BOOL that is neither 0 nor 1 is a parse error") {
  std::string text = file_of(R"({"b":)" + entry("\"BOOL\"", "[3]", "[0,3]") + "}", 3);
  text.back() = '\2';
  const Safetensors file(bytes_of_text(text), "evil");
  CHECK(message_of<ParseError>([&] { file.view<bool, 1>("b"); }) == "evil: tensor \"b\": BOOL element 2 is no bool");
  CHECK(message_of<ParseError>([&] { file.tensor<bool>("b"); }) == "evil: tensor \"b\": BOOL element 2 is no bool");
  CHECK(message_of<ParseError>([&] { file.tensor<float>("b", Conversion::any); }) ==
        "evil: tensor \"b\": BOOL element 2 is no float");
}

TEST_CASE("io.safetensors: nesting of any depth is refused at the third level") {
  for (const std::string open : {"[", "{\"a\":"}) {
    std::string deep = "{\"w\":";
    for (int i = 0; i < 1'000'000; ++i) deep += open;
    CHECK(refusal(file_of(deep)).starts_with("evil: header entry \"w\": expected"));
  }
}

TEST_CASE("io.safetensors: a file cut anywhere or with any byte changed never does worse than a parse error") {
  const std::string whole = contents(all_types);
  for (std::size_t n = 0; n < whole.size(); ++n)
    CHECK_THROWS_AS(Safetensors(bytes_of_text(whole.substr(0, n)), "cut"), ParseError);
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); at += 3)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bent = whole;
      bent[at] = static_cast<char>(bent[at] ^ (1 << bit));
      try {
        const Safetensors file(bytes_of_text(bent), "bent");
        for (const auto& name : file.names()) file.tensor<double>(name, Conversion::any);
      } catch (const ParseError&) {
        ++refused;
      }
    }
  CHECK(refused > 1000);
}

}  // namespace
}  // namespace ashlar
