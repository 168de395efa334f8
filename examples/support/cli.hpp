// What every example's command line has in common: --help, --seed, --full, and one sentence about what went wrong.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>

namespace ashlar::example {

struct Settings {
  std::uint64_t seed = 0;
  bool full = false;  ///< nearer the paper's scale
};

/// Parses the common flags and those `more` adds, then runs `body`, which returns whether the claim held.
/// Exit status: 0 it held, 1 it did not, 2 the command line or the data was at fault.
inline int run(int argc, char** argv, const std::string& description, const std::function<bool(const Settings&)>& body,
               const std::function<void(CLI::App&)>& more = {}) {
  CLI::App app(description);
  Settings settings;
  app.add_option("--seed", settings.seed, "seed of every random draw")->capture_default_str();
  app.add_flag("--full", settings.full, "run nearer the paper's scale (minutes instead of seconds)");
  if (more) more(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    return status == 0 ? 0 : 2;
  }
  try {
    return body(settings) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "Stopped: %s\n", error.what());
    return 2;
  }
}

/// Three significant digits, for sentences.
inline std::string brief(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", x);
  return text;
}

/// Prints one line of the verdict and passes the outcome on.
inline bool claim(bool held, const std::string& sentence) {
  std::printf("%s  %s\n", held ? "holds " : "FAILED", sentence.c_str());
  return held;
}

}  // namespace ashlar::example
