// Any bytes either are an .npy file or a ParseError; what parses survives a rewrite.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "ashlar/io/npy.hpp"

namespace {

template <class T>
void parse(std::span<const std::byte> bytes, ashlar::io::Conversion conversion) {
  try {
    const auto tensor = ashlar::io::parse_npy<T>(bytes, "fuzz", conversion);
    if (static_cast<std::size_t>(tensor.size()) > bytes.size()) std::abort();  // every element takes a byte at least
  } catch (const ashlar::ParseError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  parse<double>(bytes, ashlar::io::Conversion::any);
  parse<std::int8_t>(bytes, ashlar::io::Conversion::any);
  parse<ashlar::bfloat16>(bytes, ashlar::io::Conversion::any);
  parse<float>(bytes, ashlar::io::Conversion::exact);
  parse<bool>(bytes, ashlar::io::Conversion::exact);
  return 0;
}
