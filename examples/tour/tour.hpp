// The tour visits every block on real data. A block contributes one section: what it shows in the table and on the page.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/core/tensor.hpp"

namespace ashlar::tour {

struct Series {
  std::string name;
  std::vector<double> x, y;
};

struct Plot {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<Series> series;
};

/// One line of the table.
struct Row {
  std::string block, claim, measured, baseline, speed_up;
  bool held = true;  ///< did the claim reproduce?
};

struct Section {
  std::string title, text;
  std::vector<Row> rows;
  std::vector<Plot> plots;
};

/// The tables of examples/data: features, then the label in the last column.
struct Data {
  Matrix<double> digits;         ///< 1797 x 65: 8 x 8 pixels of 0 .. 16, digit
  Matrix<double> wine;           ///< 178 x 14: chemistry, cultivar
  Matrix<double> breast_cancer;  ///< 569 x 31: cell nuclei, benign or malignant
};

/// Called with the part of the section that is done, 0 to 1, and what is going on.
using Progress = std::function<void(double fraction, const std::string& what)>;

Section covariate_shift_section(const Data& data, Rng rng, const Progress& progress);
Section block_formats_section(const Data& data, Rng rng, const Progress& progress);
Section collage_section(const Data& data, Rng rng, const Progress& progress);
Section point_sets_section(const Data& data, Rng rng, const Progress& progress);
Section lightning_section(const Data& data, Rng rng, const Progress& progress);
Section bandits_section(const Data& data, Rng rng, const Progress& progress);

}  // namespace ashlar::tour
