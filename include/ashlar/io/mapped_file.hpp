// The bytes of a file without copying them.
//
//   io::MappedFile file("weights.safetensors");
//   std::span<const std::byte> bytes = file.bytes();      // pages are read when they are touched
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#include <sys/stat.h>
#endif

namespace ashlar::io {

/// Read-only; mapped where the system can, read into memory otherwise (pipes, devices, systems without mmap). Movable,
/// and bytes() stay where they are. The file must not be shortened while it is mapped.
/// Throws InvalidArgument "function: cannot read <path>: <reason>".
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path, std::string_view function = "MappedFile") {
    errno = 0;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                               [](std::FILE* f) { return std::fclose(f); });
    const bool ok = file && (map(file.get()) || read(file.get()));
    require(ok, function, "cannot read ", path, ": ", std::generic_category().message(errno));
  }

  MappedFile(MappedFile&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})),
        mapped_(std::exchange(other.mapped_, false)),
        copy_(std::move(other.copy_)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_, other.mapped_);
    std::swap(copy_, other.copy_);
    return *this;
  }
  ~MappedFile() {
#if __has_include(<sys/mman.h>)
    if (mapped_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
#endif
  }

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  bool map([[maybe_unused]] std::FILE* file) {
#if __has_include(<sys/mman.h>)
    struct stat status {};
    if (::fstat(::fileno(file), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= 0) return false;
    const auto size = static_cast<std::size_t>(status.st_size);
    void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, ::fileno(file), 0);
    if (memory == MAP_FAILED) return false;
    bytes_ = {static_cast<const std::byte*>(memory), size};
    mapped_ = true;
    return true;
#else
    return false;
#endif
  }

  bool read(std::FILE* file) {
    constexpr std::size_t step = std::size_t{1} << 16;
    std::size_t size = 0, got = 0;
    do {
      copy_.resize(std::max(size + step, size + size / 2));
      got = std::fread(copy_.data() + size, 1, copy_.size() - size, file);
      size += got;
    } while (got != 0);
    bytes_ = {copy_.data(), size};
    return std::ferror(file) == 0;
  }

  std::span<const std::byte> bytes_;
  bool mapped_ = false;
  std::vector<std::byte> copy_;
};

}  // namespace ashlar::io
