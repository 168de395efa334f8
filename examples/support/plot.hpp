// Plots of the examples, by gnuplot where it is installed.
//
//   example::plot("growth.svg", "set title 'Growth'\n$data << EOD\n" + rows + "EOD\nplot $data with lines\n");
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace ashlar::example {

/// Width and height of an SVG.
struct PlotSize {
  int width = 760, height = 420;
};

/// gnuplot's own quoting: inside single quotes, a quote is doubled.
inline std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("''") : std::string(1, c);
  return result + "'";
}

inline bool have_gnuplot() { return std::system("gnuplot --version > /dev/null 2>&1") == 0; }

/// Draws what gnuplot's commands say as an SVG. Returns false when gnuplot refuses.
inline bool draw(const std::string& file, const std::string& commands, const PlotSize& size = {}) {
  std::FILE* gnuplot = popen("gnuplot 2> /dev/null", "w");
  if (gnuplot == nullptr) return false;
  const std::string script = "set terminal svg size " + std::to_string(size.width) + "," + std::to_string(size.height) +
                             " dynamic font 'sans,13' background 'white' noenhanced\nset output " + quoted(file) +
                             "\nset grid lc rgb '#dddddd'\nset border 3\n" + commands;
  std::fwrite(script.data(), 1, script.size(), gnuplot);
  return pclose(gnuplot) == 0;
}

/// The same, with a sentence on what became of it.
inline void plot(const std::string& file, const std::string& commands, const PlotSize& size = {}) {
  if (!have_gnuplot())
    std::printf("\nNo plot: gnuplot is not installed.\n");
  else
    std::printf("\n%s %s\n", draw(file, commands, size) ? "The plot is in" : "gnuplot could not write", file.c_str());
}

}  // namespace ashlar::example
