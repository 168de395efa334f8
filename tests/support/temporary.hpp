// A folder for the files a test writes, gone when the test ends.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>

namespace ashlar::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> number{0};
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    do
      path_ = std::filesystem::temp_directory_path() /
              ("ashlar-test-" + std::to_string(now) + "-" + std::to_string(++number));
    while (!std::filesystem::create_directory(path_));
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace ashlar::test
