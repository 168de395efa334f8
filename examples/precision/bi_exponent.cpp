// BiE's headline at laptop scale: with a few outlier channels among the activations, 4-bit block formats flush the normal
// elements to zero; two exponents a block keep them, at the memory of 5.625 bits.
#include "ashlar/precision/bi_exponent.hpp"

#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "ashlar/core/random.hpp"
#include "ashlar/precision/bi_exponent_product.hpp"
#include "ashlar/precision/block_formats.hpp"
#include "ashlar/precision/threshold_search.hpp"
#include "support/cli.hpp"

namespace ashlar::example {
namespace {

using namespace ashlar::precision;

/// N(0,1) activations in which a fraction of the channels is about forty times as large, as FP16 stores them.
Matrix<float> activations(Rng& rng, Index tokens, Index channels, double fraction) {
  Matrix<float> x = normal_matrix<float>(rng, tokens, channels);
  const auto outliers = static_cast<Index>(static_cast<double>(channels) * fraction);
  for (const Index channel : rng.sample(channels, outliers))
    x.col(channel) *= static_cast<float>(40 * std::exp(0.3 * rng.normal()));
  return x.unaryExpr([](float v) { return to_float(round_to<half>(v)); });
}

double best_threshold(const Matrix<float>& x) {
  return search_exhaustive([&](double t) { return quantization_mse(x, fake_quantize<BiE4>(x, t)); },
                           threshold_candidates<BiE4>(x))
      .threshold();
}

struct Method {
  std::string name;
  double bits;
  std::function<Matrix<float>(const Matrix<float>&)> quantized;
};

template <BlockFormat F>
Method block_method(const std::string& name) {
  return {name, F::bits_per_element, [](const Matrix<float>& x) { return dequantize<float>(quantize<F>(x)); }};
}
Method integer_method(const std::string& name, const IntegerOptions& options) {
  const double bits = options.bits + (options.group ? 16.0 / static_cast<double>(options.group) : 0);
  return {name, bits, [options](const Matrix<float>& x) { return dequantize<float>(quantize_integer(x, options)); }};
}

std::vector<Method> methods() {
  return {integer_method("INT4 per token", {.bits = 4}),
          integer_method("INT4 groups of 16", {.bits = 4, .group = 16}),
          block_method<Msfp12>("BFP4"),
          block_method<BlockFloat<16, 4>>("BFP5"),
          block_method<Mxfp4>("MXFP4"),
          block_method<Mxfp6>("MXFP6 (E2M3)"),
          integer_method("INT8 per token", {.bits = 8}),
          {"BiE4", BiE4::bits_per_element, [](const Matrix<float>& x) { return fake_quantize<BiE4>(x, best_threshold(x)); }},
          {"BiE4, T per block", BiE4::bits_per_element,
           [](const Matrix<float>& x) { return dequantize<float>(quantize_adaptive<BiE4>(x)); }}};
}

constexpr std::size_t bfp4 = 2, bfp5 = 3, int8 = 6, bie4 = 7;

/// The claim about one column of errors.
bool better(const std::vector<double>& error, const std::string& where) {
  char line[160];
  std::snprintf(line, sizeof line, "%s: BiE4 %.3f < BFP4/2 (%.3f), < BFP5/1.7 (%.3f), <= 1.05 INT8 (%.3f)", where.c_str(),
                error[bie4], error[bfp4] / 2, error[bfp5] / 1.7, error[int8] * 1.05);
  return claim(error[bie4] < error[bfp4] / 2 && error[bie4] < error[bfp5] / 1.7 && error[bie4] <= 1.05 * error[int8],
               line);
}

struct Normal {
  double error, flushed;
};

/// Over the elements |x| < 6: relative error, and the fraction that became zero.
Normal normal_elements(const Matrix<float>& x, const Matrix<float>& quantized) {
  const auto normal = (x.array().abs() < 6).cast<float>();
  const double count = normal.cast<double>().sum();
  const double noise = ((quantized - x).array() * normal).cast<double>().square().sum();
  const double signal = (x.array() * normal).cast<double>().square().sum();
  return {std::sqrt(noise / signal), ((quantized.array() == 0).cast<double>() * normal.cast<double>()).sum() / count};
}

bool run_example(const Settings& settings) {
  const Index tokens = settings.full ? 512 : 128, channels = settings.full ? 4096 : 1024;
  const auto all = methods();
  Rng rng(settings.seed);

  std::printf("Paper: block floating point with two exponents a block (BiE, ICML 2024) keeps 4-bit language models\n"
              "usable in the presence of outlier channels, at 2.8 times less memory than FP16.\n"
              "Here: activations %td x %td, normal but for a few channels 40 times as large.\n\n",
              tokens, channels);
  bool held = claim(std::abs(16 / BiE4::bits_per_element - 2.8) < 0.05, "memory: 16 / 5.625 bits = 2.84, paper 2.8");

  for (const double fraction : {0.01, 0.03}) {
    const auto x = activations(rng, tokens, channels, fraction);
    std::printf("\nNormal elements (|x| < 6), %.0f %% outlier channels, T = %g\n%-20s %6s %8s %9s\n", 100 * fraction,
                best_threshold(x), "format", "bits", "error", "flushed");
    std::vector<double> errors;
    for (const auto& method : all) {
      const auto normal = normal_elements(x, method.quantized(x));
      std::printf("%-20s %6.3f %8.3f %8.0f%%\n", method.name.c_str(), method.bits, normal.error, 100 * normal.flushed);
      errors.push_back(normal.error);
    }
    held &= better(errors, "normal elements");
  }

  const auto x = activations(rng, tokens, channels, 0.02);
  const Matrix<float> plain = normal_matrix<float>(rng, tokens, channels);
  const Vector<float> rms = (x.array().square().colwise().mean().sqrt()).matrix().transpose();
  const Matrix<float> balanced = plain * rms.cwiseInverse().asDiagonal();  // every channel contributes equally
  std::vector<double> plain_errors;
  for (const bool balance : {true, false}) {
    const auto& w = balance ? balanced : plain;
    const Matrix<float> exact = x * w.transpose();
    std::printf("\nProduct X W^T, both quantised, 2 %% outlier channels, %s weights\n%-20s %6s %8s\n",
                balance ? "channel-balanced" : "plain Gaussian", "format", "bits", "error");
    std::vector<double> errors;
    for (const auto& method : all) {
      const Matrix<float> product = method.quantized(x) * method.quantized(w).transpose();
      errors.push_back((product - exact).norm() / exact.norm());
      std::printf("%-20s %6.3f %8.3f\n", method.name.c_str(), method.bits, errors.back());
    }
    if (balance) {
      const double tx = best_threshold(x), tw = best_threshold(w);
      const Matrix<float> integer = gemm(quantize<BiE4>(x, tx), quantize<BiE4>(w, tw));
      const double packed = (integer - exact).norm() / exact.norm();
      std::printf("%-20s %6.3f %8.3f   (packed planes, integer dot products)\n", "BiE4 gemm", BiE4::bits_per_element, packed);
      held &= better(errors, "balanced product");
      held &= claim(std::abs(packed - errors[bie4]) < 1e-4, "the integer product is the product of the decoded matrices");
    } else {
      plain_errors = errors;
    }
  }
  std::printf("\nThe counter-example: with plain weights the outlier channels dominate the product and their own error is\n"
              "all that counts. There BFP5 (%.3f), at nearly the bits, %s BiE4 (%.3f): the second exponent pays where\n"
              "small channels matter.\n\n",
              plain_errors[bfp5], plain_errors[bfp5] < plain_errors[bie4] ? "beats" : "does not beat", plain_errors[bie4]);
  return held;
}

}  // namespace
}  // namespace ashlar::example

int main(int argc, char** argv) {
  return ashlar::example::run(argc, argv, "Bi-exponent block floating point against the usual 4-bit and 8-bit formats",
                              ashlar::example::run_example);
}
