// Any text either is a table or a ParseError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "ashlar/io/csv.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto table = ashlar::io::parse_csv({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto columns = static_cast<std::size_t>(table.values.cols());
    if (columns == 0 || static_cast<std::size_t>(table.values.size()) > size) std::abort();
    if (!table.columns.empty() && table.columns.size() != columns) std::abort();
  } catch (const ashlar::ParseError&) {
  }
  return 0;
}
