// Packed BiE matrices in files: a header of 48 bytes and the three planes, little-endian.
//
//   save("weights.bie", quantize<BiE4>(weights, 0.25));
//   auto w = load<BiE4>("weights.bie");                   // ParseError for anything an encoder would not have written
//
// Source of the format: precision/bi_exponent.hpp. Cost: one pass.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/io/mapped_file.hpp"
#include "ashlar/precision/bi_exponent.hpp"

namespace ashlar::precision {

namespace detail {

inline constexpr std::string_view file_magic = "ashlrBiE";
inline constexpr std::uint32_t file_version = 1;
inline constexpr std::size_t file_header = 48;  // magic, six 32-bit words, two 64-bit words; all little-endian

inline void put_little_endian(std::uint8_t* to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to[i] = static_cast<std::uint8_t>(value >> (8 * i));
}
inline std::uint64_t get_little_endian(const std::uint8_t* from, int bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= std::uint64_t{from[i]} << (8 * i);
  return value;
}

/// Throws unless every block of a matrix that came from outside is one an encoder could have written.
template <BiExponentFormat F>
void check_blocks(const BiExponentMatrix<F>& packed, std::string_view name) {
  const auto check = [&](bool ok, Index row, Index b, std::string_view what) {
    if (!ok) [[unlikely]] throw ParseError(message(name, ": block ", b, " of row ", row, " has ", what));
  };
  if (packed.blocks() == 0) return;  // whatever the number of rows, which costs a file nothing
  for (Index row = 0; row < packed.rows(); ++row)
    for (Index b = 0; b < packed.blocks(); ++b) {
      const auto block = packed.block(row, b);
      for (const bool g : {false, true})
        check(block.exponent(g) <= F::max_exponent, row, b, "an exponent out of range");
      check((block.exponents[0] | block.exponents[1] << 8) >> (2 * F::exponent_bits) == 0, row, b,
            "spare exponent bits that are set");
      if constexpr (F::block % 8 != 0)
        check(block.selectors[F::selector_bytes - 1] >> (F::block % 8) == 0, row, b,
              "spare selector bits that are set");
      if constexpr (F::magnitude_bits <= 3 && F::block % 2 == 1)
        check(block.elements[F::element_bytes - 1] >> 4 == 0, row, b, "spare element bits that are set");
      for (Index k = 0; k < F::block; ++k) {
        const int code = block.code(k), q = code & F::max_magnitude;
        check((code & ~(F::max_magnitude | F::sign_code)) == 0, row, b, "a magnitude that is too wide");
        check(q > 0 || code == 0, row, b, "a negative zero");
        check(b * F::block + k < packed.cols() || code == 0, row, b, "padding that is not zero");
      }
    }
}

}  // namespace detail

/// The matrix as bytes: a header of 48 (magic, version, N, M, E, bias, rounding, rows, cols), then the three planes.
template <BiExponentFormat F>
std::vector<std::uint8_t> to_bytes(const BiExponentMatrix<F>& packed) {
  std::vector<std::uint8_t> bytes(detail::file_header);
  std::copy(detail::file_magic.begin(), detail::file_magic.end(), bytes.begin());
  const std::uint32_t words[] = {detail::file_version, F::block, F::magnitude_bits, F::exponent_bits, F::bias,
                                 static_cast<std::uint32_t>(packed.rounding)};
  for (std::size_t i = 0; i < 6; ++i) detail::put_little_endian(bytes.data() + 8 + 4 * i, words[i], 4);
  detail::put_little_endian(bytes.data() + 32, static_cast<std::uint64_t>(packed.rows()), 8);
  detail::put_little_endian(bytes.data() + 40, static_cast<std::uint64_t>(packed.cols()), 8);
  for (const auto plane : packed.planes()) bytes.insert(bytes.end(), plane.begin(), plane.end());
  return bytes;
}

/// The inverse of to_bytes. Throws ParseError, which begins with `name`, for anything an encoder would not have
/// written.
template <BiExponentFormat F>
BiExponentMatrix<F> from_bytes(std::span<const std::uint8_t> bytes, std::string_view name = "from_bytes") {
  const auto check = [&](bool ok, std::size_t offset, std::string_view expected, auto actual) {
    if (!ok) throw ParseError(message(name, ": at byte ", offset, " expected ", expected, ", got ", actual));
  };
  check(bytes.size() >= detail::file_header, bytes.size(), "a header of 48 bytes", "the end");
  check(std::equal(detail::file_magic.begin(), detail::file_magic.end(), bytes.begin()), 0, "the magic ashlrBiE",
        "something else");
  const std::pair<std::string_view, int> words[] = {{"version", static_cast<int>(detail::file_version)},
                                                    {"block length", F::block},
                                                    {"magnitude bits", F::magnitude_bits},
                                                    {"exponent bits", F::exponent_bits},
                                                    {"exponent bias", F::bias}};
  for (std::size_t i = 0; i < 5; ++i) {
    const auto word = detail::get_little_endian(bytes.data() + 8 + 4 * i, 4);
    check(word == static_cast<std::uint64_t>(words[i].second), 8 + 4 * i, message(words[i].first, " ", words[i].second),
          word);
  }
  const auto rounding = detail::get_little_endian(bytes.data() + 28, 4);
  check(rounding <= 1, 28, "rounding 0 or 1", rounding);
  const auto rows = detail::get_little_endian(bytes.data() + 32, 8);
  const auto cols = detail::get_little_endian(bytes.data() + 40, 8);
  constexpr std::uint64_t most = std::uint64_t{1} << 40;
  check(rows <= most, 32, "at most 2^40 rows", rows);
  check(cols <= most, 40, "at most 2^40 columns", cols);
  const std::uint64_t row_bytes = (cols + F::block - 1) / F::block *
                                  static_cast<std::uint64_t>(F::element_bytes + F::selector_bytes + F::exponent_bytes);
  const std::uint64_t payload = bytes.size() - detail::file_header;
  check(rows == 0 || row_bytes == 0 ? payload == 0 : payload % rows == 0 && payload / rows == row_bytes, 48,
        message(rows, " rows of ", row_bytes, " bytes"), payload);

  auto packed = BiExponentMatrix<F>::uninitialized(static_cast<Index>(rows), static_cast<Index>(cols));
  packed.rounding = static_cast<Rounding>(rounding);
  auto from = bytes.begin() + detail::file_header;
  for (const auto plane : packed.planes()) {
    std::copy_n(from, plane.size(), plane.begin());
    from += static_cast<std::ptrdiff_t>(plane.size());
  }
  detail::check_blocks(packed, name);
  return packed;
}

/// Writes to_bytes to a file; throws InvalidArgument when it cannot.
template <BiExponentFormat F>
void save(const std::string& path, const BiExponentMatrix<F>& packed) {
  const auto bytes = to_bytes(packed);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  require(file.flush().good(), "save", "cannot write ", path);
}

template <BiExponentFormat F>
BiExponentMatrix<F> load(const std::string& path) {
  const io::MappedFile file(path, "load");
  return from_bytes<F>({reinterpret_cast<const std::uint8_t*>(file.bytes().data()), file.bytes().size()}, path);
}

}  // namespace ashlar::precision
