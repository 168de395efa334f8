#include "ashlar/io/mapped_file.hpp"

#include <fstream>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/temporary.hpp"

namespace ashlar {
namespace {

TEST_CASE("io.mapped_file: bytes stay in place when the file moves and empty files are empty") {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "text") << "hello";
  std::ofstream(folder / "empty");
  io::MappedFile file(folder / "text");
  const std::byte* const at = file.bytes().data();
  io::MappedFile other = std::move(file);
  CHECK(file.bytes().empty());
  file = std::move(other);
  CHECK(file.bytes().data() == at);
  CHECK(file.bytes().size() == 5);
  CHECK(file.bytes()[4] == std::byte{'o'});
  CHECK(io::MappedFile(folder / "empty").bytes().empty());
#if defined(__linux__)
  CHECK(io::MappedFile("/proc/self/status").bytes().size() > 100);  // no size to map: read instead
#endif
}

TEST_CASE("io.mapped_file: a file that cannot be read is named with the reason") {
  const test::TemporaryFolder folder;
  CHECK(test::message_of<InvalidArgument>([&] { io::MappedFile(folder / "none", "load"); }) ==
        "load: cannot read " + (folder / "none") + ": No such file or directory");
}

}  // namespace
}  // namespace ashlar
