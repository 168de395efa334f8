// The tour's stop at block formats: a digit reader whose weights and activations take four to eight bits, with and
// without the outlier channels that large models have.
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "ashlar/precision/bi_exponent.hpp"
#include "ashlar/precision/bi_exponent_product.hpp"
#include "ashlar/precision/block_formats.hpp"
#include "ashlar/precision/threshold_search.hpp"
#include "tour/classifier.hpp"
#include "tour/tour.hpp"

namespace ashlar::tour {
namespace {

using namespace ashlar::precision;

/// Every `period`-th input channel `factor` times as large and its weights as much smaller: the same function, with the
/// outlier channels of a large model.
struct Rescaling {
  float factor;
  static constexpr Index period = 24, offset = 11;

  void apply(Matrix<float>& x, Matrix<float>& w) const {
    for (Index channel = offset; channel < x.cols(); channel += period) {
      x.col(channel) *= factor;
      w.row(channel) /= factor;
    }
  }
};

/// A number format for both operands of a layer: x [n, in] and the transposed weights [out, in].
struct NumberFormat {
  std::string name;
  double bits;
  std::function<Matrix<float>(Index layer, const Matrix<float>& x, const Matrix<float>& weights)> product;
};

template <BlockFormat F>
NumberFormat block_format(const std::string& name) {
  return {name, F::bits_per_element, [](Index, const Matrix<float>& x, const Matrix<float>& w) {
            return gemm_dequantized(quantize<F>(x), quantize<F>(w));
          }};
}
NumberFormat integers(const std::string& name, int bits) {
  return {name, static_cast<double>(bits), [bits](Index, const Matrix<float>& x, const Matrix<float>& w) {
            return gemm_dequantized(quantize_integer(x, {.bits = bits}), quantize_integer(w, {.bits = bits}));
          }};
}

/// BiE4 with the thresholds that suit training images best, multiplied in integers.
NumberFormat bi_exponent(const Classifier& network, const Digits& digits, const Rescaling& rescaling) {
  Classifier::Activations seen;
  network.scores(digits.train.topRows(256), Classifier::FloatProduct{}, &seen);
  std::vector<CalibrationSite> sites;
  for (Index layer = 0; layer < Classifier::layers; ++layer) {
    Matrix<float> x = seen[static_cast<std::size_t>(layer)], w = network.weight(layer);
    rescaling.apply(x, w);
    sites.push_back({w.transpose(), {x}});
  }
  return {"BiE4", BiE4::bits_per_element,
          [thresholds = calibrate<BiE4>(sites)](Index layer, const Matrix<float>& x, const Matrix<float>& w) {
            const auto& site = thresholds[static_cast<std::size_t>(layer)];
            return gemm(quantize<BiE4>(x, site.activation), quantize<BiE4>(w, site.weight));
          }};
}

double accuracy(const Classifier& network, const Digits& digits, const Rescaling& rescaling, const NumberFormat& format) {
  return network.accuracy(digits.test, digits.test_labels, [&](Index layer, Matrix<float> x, Matrix<float> w) {
    rescaling.apply(x, w);
    return format.product(layer, x, w.transpose());
  });
}

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

}  // namespace

Section block_formats_section(const Data& data, Rng rng, const Progress& progress) {
  progress(0, "training a digit reader in float");
  const Digits digits(data.digits, rng);
  Classifier network(rng);
  train(network, digits, rng);
  const double in_float = network.accuracy(digits.test, digits.test_labels);

  Section section;
  section.title = "Block formats: reading digits with five bits a number";
  section.text =
      "A small network is trained in float and then run with its weights and activations in formats of four to eight "
      "bits. Large models have a few channels far larger than the rest; here three channels of every layer are made so "
      "by a factor that the weights undo, so the function stays the same. One shared exponent then belongs to the "
      "outliers and the other channels round to zero. BiE keeps a second exponent for them.";

  Plot plot;
  plot.title = "Accuracy under outlier channels";
  plot.x_label = "outlier factor";
  plot.y_label = "test accuracy";
  plot.log_x = true;
  const std::vector<double> factors{1, 4, 16, 64, 256, 1024};
  std::vector<double> last;
  std::vector<NumberFormat> formats;
  for (std::size_t f = 0; f < factors.size(); ++f) {
    progress((1 + static_cast<double>(f)) / 8, message("quantising with outliers of ", factors[f]));
    const Rescaling rescaling{static_cast<float>(factors[f])};
    formats = {bi_exponent(network, digits, rescaling), block_format<Msfp12>("BFP4"),
               block_format<BlockFloat<16, 4>>("BFP5"), block_format<Mxfp4>("MXFP4"), integers("INT4", 4),
               integers("INT8", 8)};
    last.clear();
    for (std::size_t k = 0; k < formats.size(); ++k) {
      if (f == 0) {
        char name[48];
        std::snprintf(name, sizeof name, "%s, %.4g bits", formats[k].name.c_str(), formats[k].bits);
        plot.series.push_back({name, {}, {}});
      }
      last.push_back(accuracy(network, digits, rescaling, formats[k]));
      plot.series[k].x.push_back(factors[f]);
      plot.series[k].y.push_back(last.back());
    }
  }
  plot.series.push_back({"float, 32 bits", {factors.front(), factors.back()}, {in_float, in_float}});

  // The claim where it is hardest: the largest outliers.
  const double bie = last[0], bfp = last[1], int8 = last[5];
  char claim[96];
  std::snprintf(claim, sizeof claim, "within 2 points of float at %.4g bits, outliers of %g", formats[0].bits,
                factors.back());
  section.rows.push_back({.block = "BiE4 (precision/bi_exponent)",
                          .claim = claim,
                          .measured = percent(bie),
                          .baseline = "float " + percent(in_float) + ", BFP4 " + percent(bfp) + ", INT8 " + percent(int8),
                          .speed_up = "",
                          .held = bie >= in_float - 0.02 && bie >= bfp});
  section.plots.push_back(plot);
  progress(1, "block formats done");
  return section;
}

}  // namespace ashlar::tour
