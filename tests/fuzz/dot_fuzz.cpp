// Any text either is a graph, which then reads back as it is written, or a ParseError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "ashlar/io/dot.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto read = ashlar::io::parse_dot({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (read.names.size() > size || std::ssize(read.names) != read.graph.nodes()) std::abort();
    const auto again = ashlar::io::parse_dot(ashlar::io::to_dot(read.graph, read.names), "written");
    if (again.names != read.names || !(again.graph == read.graph)) std::abort();
  } catch (const ashlar::ParseError&) {
  } catch (const ashlar::InvalidArgument&) {  // a name that ends with a backslash
  }
  return 0;
}
