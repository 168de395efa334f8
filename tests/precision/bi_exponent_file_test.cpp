#include "ashlar/precision/bi_exponent_file.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace ashlar::precision {
namespace {

using test::message_of;

/// Normal numbers with outlier columns, and a zero row.
Matrix<float> activations(Rng& rng, Index rows, Index cols) {
  Matrix<float> x = normal_matrix<float>(rng, rows, cols);
  for (Index j = 5; j < cols && rows > 0; j += 23) x.col(j) *= 40;
  if (rows > 3) x.row(3).setZero();
  return x;
}

TEST_CASE("precision.bi_exponent_file: bytes and files round trip") {
  Rng rng(15);
  const auto path = (std::filesystem::temp_directory_path() / "ashlar_bi_exponent_file_test.bie").string();
  const auto check = [&](auto tag, Index rows, Index cols) {
    using F = decltype(tag);
    const auto packed = quantize<F>(activations(rng, rows, cols), 2.0, {.rounding = Rounding::truncate});
    save(path, packed);
    const auto back = load<F>(path);
    CHECK(to_bytes(back) == to_bytes(packed));
    CHECK(back.rounding == Rounding::truncate);
    CHECK(dequantize<float>(back) == dequantize<float>(packed));
  };
  check(BiE4{}, 5, 40);
  check(BiE8{}, 5, 40);
  check(BiExponent<13, 3, 6>{}, 4, 30);
  check(BiE4{}, 0, 40);
  check(BiE4{}, 3, 0);
  std::filesystem::remove(path);
  CHECK(message_of<InvalidArgument>([&] { load<BiE4>(path); }) ==
        "load: cannot read " + path + ": No such file or directory");
}

TEST_CASE("precision.bi_exponent_file: hostile files are refused and say where") {
  Rng rng(16);
  const auto good = to_bytes(quantize<BiE4>(activations(rng, 2, 20), 2.0));
  const auto refuse = [&](auto&& spoil) {
    auto bytes = good;
    spoil(bytes);
    return message_of<ParseError>([&] { from_bytes<BiE4>(bytes, "f"); });
  };
  using Bytes = std::vector<std::uint8_t>;
  const auto set64 = [](Bytes& b, std::size_t at, std::uint64_t v) {
    for (std::size_t i = 0; i < 8; ++i) b[at + i] = static_cast<std::uint8_t>(v >> (8 * i));
  };
  CHECK(refuse([](Bytes& b) { b.clear(); }) == "f: at byte 0 expected a header of 48 bytes, got the end");
  CHECK(refuse([](Bytes& b) { b.resize(47); }) == "f: at byte 47 expected a header of 48 bytes, got the end");
  CHECK(refuse([](Bytes& b) { b[0] = 'x'; }) == "f: at byte 0 expected the magic ashlrBiE, got something else");
  CHECK(refuse([](Bytes& b) { b[8] = 2; }) == "f: at byte 8 expected version 1, got 2");
  CHECK(refuse([](Bytes& b) { b[12] = 32; }) == "f: at byte 12 expected block length 16, got 32");
  CHECK(refuse([](Bytes& b) { b[16] = 7; }) == "f: at byte 16 expected magnitude bits 3, got 7");
  CHECK(refuse([](Bytes& b) { b[20] = 8; }) == "f: at byte 20 expected exponent bits 5, got 8");
  CHECK(refuse([](Bytes& b) { b[24] = 16; }) == "f: at byte 24 expected exponent bias 15, got 16");
  CHECK(refuse([](Bytes& b) { b[28] = 2; }) == "f: at byte 28 expected rounding 0 or 1, got 2");
  CHECK(refuse([&](Bytes& b) { set64(b, 32, ~std::uint64_t{0}); }) ==
        "f: at byte 32 expected at most 2^40 rows, got 18446744073709551615");
  CHECK(refuse([&](Bytes& b) { set64(b, 40, std::uint64_t{1} << 63); }) ==
        "f: at byte 40 expected at most 2^40 columns, got 9223372036854775808");
  CHECK(refuse([&](Bytes& b) { set64(b, 32, std::uint64_t{1} << 40), set64(b, 40, std::uint64_t{1} << 40); }) ==
        "f: at byte 48 expected 1099511627776 rows of 824633720832 bytes, got 48");
  CHECK(refuse([&](Bytes& b) { set64(b, 32, 0); }) == "f: at byte 48 expected 0 rows of 24 bytes, got 48");
  CHECK(refuse([](Bytes& b) { b.pop_back(); }) == "f: at byte 48 expected 2 rows of 24 bytes, got 47");
  CHECK(refuse([](Bytes& b) { b.push_back(0); }) == "f: at byte 48 expected 2 rows of 24 bytes, got 49");
  CHECK(refuse([](Bytes& b) { b[48] = 0x08; }) == "f: block 0 of row 0 has a negative zero");
  CHECK(refuse([](Bytes& b) { b[48 + 8 + 2] = 1; }) == "f: block 1 of row 0 has padding that is not zero");
  CHECK(refuse([](Bytes& b) { b.back() = 0x80; }) == "f: block 1 of row 1 has spare exponent bits that are set");
  CHECK(message_of<ParseError>([&] {
          auto bytes = to_bytes(BiExponentMatrix<BiE8>(1, 32));
          bytes.back() = 255;
          from_bytes<BiE8>(bytes, "f");
        }) == "f: block 0 of row 0 has an exponent out of range");
  CHECK(message_of<ParseError>([&] {
          auto bytes = to_bytes(BiExponentMatrix<BiExponent<13, 3, 5>>(1, 13));
          bytes[48 + 6] = 0x10;
          from_bytes<BiExponent<13, 3, 5>>(bytes, "f");
        }) == "f: block 0 of row 0 has spare element bits that are set");
  CHECK(message_of<ParseError>([&] {
          auto bytes = to_bytes(BiExponentMatrix<BiExponent<13, 3, 5>>(1, 13));
          bytes[48 + 7 + 1] = 0x20;
          from_bytes<BiExponent<13, 3, 5>>(bytes, "f");
        }) == "f: block 0 of row 0 has spare selector bits that are set");
  CHECK(message_of<ParseError>([&] {
          auto bytes = to_bytes(BiExponentMatrix<BiExponent<16, 2, 5>>(1, 16));
          bytes[48] = 0x04;
          from_bytes<BiExponent<16, 2, 5>>(bytes, "f");
        }) == "f: block 0 of row 0 has a magnitude that is too wide");
  // Rows without columns cost no bytes and so no time.
  const auto endless = [&] {
    Bytes b(good.begin(), good.begin() + 48);
    set64(b, 32, std::uint64_t{1} << 40), set64(b, 40, 0);
    return b;
  }();
  CHECK(from_bytes<BiE4>(endless, "f").rows() == Index{1} << 40);
  // Any one byte changed is either refused or read as what it says: never anything else.
  for (std::size_t at = 0; at < good.size(); ++at)
    for (const int flip : {1, 16, 128}) {
      auto bytes = good;
      bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ flip);
      bool held = true;
      try {
        held = to_bytes(from_bytes<BiE4>(bytes, "f")) == bytes;
      } catch (const ParseError&) {
      }
      INFO("byte " << at << " xor " << flip);
      CHECK(held);
    }
}

}  // namespace
}  // namespace ashlar::precision
