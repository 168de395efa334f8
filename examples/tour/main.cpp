// The tour: every block on real data, in under two minutes. Prints one table and writes a page with a plot a block.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "ashlar/io/csv.hpp"
#include "support/cli.hpp"
#include "support/plot.hpp"
#include "tour/tour.hpp"

namespace ashlar::tour {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Matrix<double> load(const std::filesystem::path& folder, const std::string& name, Index columns) {
  const std::string path = (folder / (name + ".csv")).string();
  auto table = io::load_csv(path);
  require(table.values.cols() == columns, "tour", path, " has ", table.values.cols(), " columns, expected ", columns);
  return std::move(table.values);
}

// ---- The page ---------------------------------------------------------------------------------------------------

std::string escaped(const std::string& text) {
  std::string html;
  for (const char c : text) {
    if (c == '<')
      html += "&lt;";
    else if (c == '>')
      html += "&gt;";
    else if (c == '&')
      html += "&amp;";
    else
      html += c;
  }
  return html;
}

/// Draws one plot as SVG. Returns false when gnuplot refuses.
bool draw(const Plot& plot, const std::filesystem::path& file) {
  using example::quoted;
  std::string script = "set key outside right top\nset title " + quoted(plot.title) + "\nset xlabel " +
                       quoted(plot.x_label) + "\nset ylabel " + quoted(plot.y_label) + "\n";
  if (plot.log_x) script += "set logscale x\n";
  if (plot.log_y) script += "set logscale y\nset format y '%.0e'\n";
  std::string draws;
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    const Series& series = plot.series[i];
    script += "$data" + std::to_string(i) + " << EOD\n";
    for (std::size_t n = 0; n < series.x.size(); ++n) script += message(series.x[n], ' ', series.y[n], '\n');
    script += "EOD\n";
    draws += (i == 0 ? "plot " : ", ") + ("$data" + std::to_string(i)) + " with " +
             (series.x.size() > 60 ? "lines" : "linespoints pt 7 ps 0.5") + " lw 2 title " + quoted(series.name);
  }
  return example::draw(file.string(), script + draws + "\n");
}

void write_page(const std::vector<Section>& sections, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const bool drawn = example::have_gnuplot();
  std::string page =
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>The ashlar tour</title><style>"
      "body{font:16px/1.5 sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222}"
      "table{border-collapse:collapse;width:100%;font-size:14px}td,th{border-bottom:1px solid #ddd;padding:.4em .6em;"
      "text-align:left;vertical-align:top}img{max-width:100%}.no{color:#b00}</style></head><body><h1>The ashlar tour</h1>";
  if (!drawn)
    page += "<p><strong>The plots are missing because gnuplot is not installed.</strong> Install it (Debian: "
            "<code>apt install gnuplot-nox</code>) and run the tour again.</p>";
  page += "<table><tr><th>block</th><th>the paper's claim</th><th>measured here</th><th>baseline</th><th>speed-up</th></tr>";
  for (const Section& section : sections)
    for (const Row& row : section.rows)
      page += "<tr><td>" + escaped(row.block) + "</td><td>" + escaped(row.claim) + "</td><td" +
              (row.held ? "" : " class=\"no\"") + ">" + escaped(row.measured) + "</td><td>" + escaped(row.baseline) +
              "</td><td>" + escaped(row.speed_up) + "</td></tr>";
  page += "</table>";
  int number = 0;
  for (const Section& section : sections) {
    page += "<h2>" + escaped(section.title) + "</h2><p>" + escaped(section.text) + "</p>";
    for (const Plot& plot : section.plots) {
      const std::string name = "plot" + std::to_string(++number) + ".svg";
      if (drawn && draw(plot, folder / name))
        page += "<p><img src=\"" + name + "\" alt=\"" + escaped(plot.title) + "\"></p>";
    }
  }
  page += "</body></html>\n";
  std::ofstream file(folder / "index.html");
  file << page;
  if (!file) throw std::runtime_error("cannot write " + (folder / "index.html").string());
}

// ---- The table --------------------------------------------------------------------------------------------------

/// Cuts a text into lines of at most `width` characters, at spaces where there are any.
std::vector<std::string> wrapped(std::string text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    std::size_t cut = text.rfind(' ', width);
    if (cut == std::string::npos || cut == 0) cut = width;
    lines.push_back(text.substr(0, cut));
    text.erase(0, text[cut] == ' ' ? cut + 1 : cut);
  }
  lines.push_back(text);
  return lines;
}

void print_row(const std::vector<std::string>& cells) {
  static const std::vector<std::size_t> widths{24, 36, 36, 30, 12};
  std::vector<std::vector<std::string>> columns;
  std::size_t height = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    columns.push_back(wrapped(cells[i], widths[i]));
    height = std::max(height, columns.back().size());
  }
  for (std::size_t line = 0; line < height; ++line) {
    std::string text;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      std::string cell = line < columns[i].size() ? columns[i][line] : "";
      cell.resize(widths[i] + 2, ' ');
      text += cell;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    std::printf("%s\n", text.c_str());
  }
}

bool print_table(const std::vector<Section>& sections) {
  bool held = true;
  std::printf("\n");
  print_row({"block", "the paper's claim", "measured here", "baseline", "speed-up"});
  std::printf("%s\n", std::string(146, '-').c_str());
  for (const Section& section : sections)
    for (const Row& row : section.rows) {
      print_row({row.block, row.claim, (row.held ? "" : "DOES NOT HOLD: ") + row.measured, row.baseline, row.speed_up});
      held = held && row.held;
    }
  return held;
}

struct Stop {
  const char* name;
  Section (*visit)(const Data&, Rng, const Progress&);
};

constexpr Stop stops[] = {{"covariate shift", covariate_shift_section}, {"block formats", block_formats_section},
                          {"collage", collage_section},                 {"point sets", point_sets_section},
                          {"lightning attention", lightning_section},   {"bandits", bandits_section}};

bool tour(std::uint64_t seed, const std::string& data_folder, const std::string& output) {
  const auto start = Clock::now();
  const Data data{load(data_folder, "digits", 65), load(data_folder, "wine", 14), load(data_folder, "breast_cancer", 31)};
  std::vector<Section> sections;
  const Rng rng(seed);
  for (std::size_t i = 0; i < std::size(stops); ++i) {
    const auto begin = Clock::now();
    const auto show = [&](double fraction, const std::string& what) {
      std::fprintf(stderr, "\r[%zu/%zu] %-20s %3.0f %%  %-60.60s", i + 1, std::size(stops), stops[i].name, 100 * fraction,
                   what.c_str());
    };
    show(0, "");
    sections.push_back(stops[i].visit(data, rng.split(i), show));
    show(1, message("done in ", static_cast<int>(seconds_since(begin) + 0.5), " s"));
    std::fprintf(stderr, "\n");
  }
  const bool held = print_table(sections);
  write_page(sections, output);
  std::printf("\n%s in %.0f s. The plots are in %s\n", held ? "Every claim held" : "NOT every claim held",
              seconds_since(start), (std::filesystem::path(output) / "index.html").string().c_str());
  return held;
}

}  // namespace
}  // namespace ashlar::tour

int main(int argc, char** argv) {
  std::string data = ASHLAR_EXAMPLE_DATA, output = "tour";
  return ashlar::example::run(
      argc, argv, "Every block of ashlar on real data: one table, and a page with a plot a block.",
      [&](const ashlar::example::Settings& settings) { return ashlar::tour::tour(settings.seed, data, output); },
      [&](CLI::App& app) {
        app.add_option("--data", data, "folder of digits.csv, wine.csv and breast_cancer.csv")->capture_default_str();
        app.add_option("--output", output, "folder for index.html and its plots")->capture_default_str();
      });
}
