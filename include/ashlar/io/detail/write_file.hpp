// Writing a file so that a failure leaves the one that was there before.
#pragma once

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "ashlar/core/error.hpp"

namespace ashlar::io::detail {

/// Calls fill(put), where put(span of bytes) appends, and then puts the file in place of `path` in one step.
/// Throws InvalidArgument "function: cannot write <path>: <reason>"; `path` is then as it was. What is not an ordinary
/// file (a pipe, a device) is written directly.
template <class Fill>
void write_file(const std::string& path, std::string_view function, Fill&& fill) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  const bool replace = kind == std::filesystem::file_type::regular || kind == std::filesystem::file_type::not_found;
  const std::string target = replace ? path + ".partial" : path;
  const auto check = [&](bool ok) {
    require(ok, function, "cannot write ", path, ": ", std::generic_category().message(errno));
  };
  const auto close = [](std::FILE* f) { return std::fclose(f); };

  std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(target.c_str(), "wb"), close);
  check(file != nullptr);
  try {
    fill([&](std::span<const std::byte> bytes) {
      check(std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size());
    });
    check(std::fclose(file.release()) == 0);
    if (replace) check(std::rename(target.c_str(), path.c_str()) == 0);
  } catch (...) {
    if (replace) std::remove(target.c_str());
    throw;
  }
}

}  // namespace ashlar::io::detail
