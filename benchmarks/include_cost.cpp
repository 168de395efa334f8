// What including a header costs: CPU seconds and peak memory of compiling a file that does nothing else, the best of
// three, and the ratio to Eigen/Dense and xsimd alone, which a program of this kind includes anyway.
//
//   include_cost <folder of headers> <output, one JSON object a line> <compiler> <its options>...
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Cost {
  double seconds = 1e300;
  double megabytes = 1e300;
};

/// Runs a command and its children to their end.
Cost run(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& part : command) arguments.push_back(const_cast<char*>(part.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  if (child < 0 || wait4(child, &status, 0, &usage) != child || status != 0) {
    std::fprintf(stderr, "Could not compile %s\n", command.back().c_str());
    std::exit(1);
  }
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime), static_cast<double>(usage.ru_maxrss) / 1024};
}

Cost cost_of(const std::vector<std::string>& includes, std::vector<std::string> command, const fs::path& file) {
  std::ofstream source(file);
  for (const std::string& include : includes) source << "#include <" << include << ">\n";
  source.close();
  command.insert(command.end(), {"-fsyntax-only", file.string()});
  Cost best;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const Cost cost = run(command);
    best.seconds = std::min(best.seconds, cost.seconds);
    best.megabytes = std::min(best.megabytes, cost.megabytes);
  }
  return best;
}

std::vector<std::string> headers_below(const fs::path& folder) {
  std::vector<std::string> headers;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const fs::path header = entry.path().lexically_relative(folder);
    if (header.extension() == ".hpp" && header.parent_path().filename() != "detail") headers.push_back(header.string());
  }
  std::sort(headers.begin(), headers.end());
  return headers;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "include_cost <folder of headers> <output> <compiler> <its options>...\n");
    return 2;
  }
  const std::vector<std::string> command(argv + 3, argv + argc);
  const fs::path file = fs::path(argv[2]).replace_extension(".cpp");
  std::ofstream output(argv[2]);

  const Cost basis = cost_of({"Eigen/Dense", "xsimd/xsimd.hpp"}, command, file);
  const auto report = [&](const std::string& header, const Cost& cost) {
    char line[512];
    std::snprintf(line, sizeof line, R"({"header": "%s", "seconds": %.3f, "megabytes": %.0f, "ratio": %.2f})",
                  header.c_str(), cost.seconds, cost.megabytes, cost.seconds / basis.seconds);
    output << line << std::endl;
    std::printf("%-44s %7.2f s %7.0f MB %7.2f x\n", header.c_str(), cost.seconds, cost.megabytes,
                cost.seconds / basis.seconds);
    std::fflush(stdout);
  };
  report("Eigen/Dense + xsimd/xsimd.hpp", basis);
  for (const std::string& header : headers_below(argv[1])) report(header, cost_of({header}, command, file));
  fs::remove(file);
}
