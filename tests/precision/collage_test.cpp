#include "ashlar/precision/collage.hpp"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ashlar/core/random.hpp"
#include "precision/adamw_cases.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"
#include "support/threads.hpp"

namespace ashlar::precision {
namespace {

using namespace test_cases;
using test::fixture;
using test::message_of;

template <class F>
std::vector<F> numbers(const Tensor<double>& x) {
  std::vector<F> rounded;
  for (Index i = 0; i < x.size(); ++i) rounded.push_back(round_to<F>(static_cast<float>(x.data()[i])));
  return rounded;
}

template <class T>
bool equals(const T* x, const double* expected, Index n) {
  bool equal = true;
  for (Index i = 0; i < n; ++i) {
    const double value = static_cast<double>(ashlar::to_float(x[i]));
    equal = equal && (value == expected[i] || (std::isnan(value) && std::isnan(expected[i])));
  }
  return equal;
}

bool close(double x, double expected) { return std::abs(x - expected) <= 1e-12 * std::abs(expected) + 1e-300; }

AdamWOptions fixture_options(const std::string& name) {
  const auto hyper = fixture("collage/" + name);
  const double* h = hyper.data();
  AdamWOptions options;
  options.learning_rate = h[0];
  options.beta1 = h[1];
  options.beta2 = h[2];
  options.epsilon = h[3];
  options.weight_decay = h[4];
  return options;
}

/// Both forms, with one signature.
struct Fast {
  template <class F>
  StepReport operator()(std::vector<F>& theta, const std::vector<F>& gradient, AdamWState<F>& state,
                        const AdamWOptions& options, const StepOptions& step = {},
                        const std::vector<std::uint32_t>& bits = {}) const {
    return adamw_step(theta, gradient, state, options, step, bits);
  }
};
struct Reference {
  template <class F>
  StepReport operator()(std::vector<F>& theta, const std::vector<F>& gradient, AdamWState<F>& state,
                        const AdamWOptions& options, const StepOptions& step = {},
                        const std::vector<std::uint32_t>& bits = {}) const {
    return reference::adamw_step(theta, gradient, state, options, step, bits);
  }
};

/// The fixture's 24 parameters, `copies` times over so that whole vectors and a remainder are covered.
template <class Form>
void follows_the_fixture(const Form& form, Precision precision, Index copies) {
  const std::string name = "collage/adamw_" + name_of(precision);
  INFO(name << ", " << copies << " copies");
  const AdamWOptions options = fixture_options("adamw_hyper");
  const auto start = fixture("collage/adamw_theta0"), gradients = fixture("collage/adamw_grads");
  const auto bits = fixture("collage/adamw_sr_bits"), trajectory = fixture(name + "_theta");
  const auto quality = fixture(name + "_edq");
  const Index steps = gradients.extent(0), n = gradients.extent(1);
  const auto repeated = [&](const double* row, auto convert) {
    std::vector<decltype(convert(0.0))> all;
    for (Index copy = 0; copy < copies; ++copy)
      for (Index i = 0; i < n; ++i) all.push_back(convert(row[i]));
    return all;
  };
  const auto rounded = [](double x) { return round_to<bfloat16>(static_cast<float>(x)); };
  auto theta = repeated(start.data(), rounded);
  Rng rng(0);
  AdamWState<bfloat16> state(precision, theta, rng);
  for (Index t = 0; t < steps; ++t) {
    const auto gradient = repeated(gradients.data() + t * n, rounded);
    std::vector<std::uint32_t> words;
    if (precision == Precision::stochastic)
      words = repeated(bits.data() + t * n, [](double x) { return static_cast<std::uint32_t>(x); });
    DescentSums sums;
    const StepReport report =
        form(theta, gradient, state, options, {.gradient_scale = 1, .check_finite = true, .quality = &sums}, words);
    REQUIRE(report.applied);
    for (Index copy = 0; copy < copies; ++copy) REQUIRE(equals(theta.data() + copy * n, trajectory.data() + t * n, n));
    const DescentReport descent = sums.report();
    const double* expected = quality.data() + 5 * t;
    const double root = std::sqrt(static_cast<double>(copies));  // norms of repeated vectors
    CHECK(close(descent.edq, root * expected[0]));
    CHECK(close(descent.ratio, expected[1]));
    CHECK(close(descent.edq_hi, root * expected[2]));
    CHECK(close(descent.ratio_hi, expected[3]));
    CHECK(close(descent.lost_fraction, expected[4]));
  }
  const auto final_state = [&](const auto& tensor, const std::string& array) {
    for (Index copy = 0; copy < copies; ++copy)
      CHECK(equals(tensor.data() + copy * n, fixture(name + "_" + array).data(), n));
  };
  if (detail::float32_moments(precision)) {
    final_state(state.moment32, "m");
    final_state(state.variance32, "v");
  } else {
    final_state(state.moment, "m");
    final_state(state.variance, "v");
  }
  if (detail::keeps_residual(precision)) final_state(state.residual, "dtheta");
  if (precision == Precision::collage_plus) final_state(state.variance_residual, "dv");
  if (precision == Precision::fp32_master) final_state(state.master, "master");
}

TEST_CASE("precision.collage: the reference follows the fixtures bit for bit") {
  for (const Precision precision : strategies) follows_the_fixture(Reference{}, precision, 1);
}

TEST_CASE("precision.collage: the fast form follows the fixtures bit for bit") {
  for (const Precision precision : strategies) {
    follows_the_fixture(Fast{}, precision, 1);
    follows_the_fixture(Fast{}, precision, 16);  // 384 elements: whole vectors
    follows_the_fixture(Fast{}, precision, 7);   // 168: vectors and a remainder
  }
}

TEST_CASE("precision.collage: Collage-plus in half precision follows its fixture") {
  const AdamWOptions options = fixture_options("adamw_fp16plus_hyper");
  const auto gradients = fixture("collage/adamw_grads");
  const Index n = gradients.extent(1);
  const auto run = [&](auto form) {
    auto theta = numbers<half>(fixture("collage/adamw_theta0"));
    const auto all = numbers<half>(gradients);
    AdamWState<half> state(Precision::collage_plus, theta);
    for (Index t = 0; t < gradients.extent(0); ++t)
      form(theta, std::vector<half>(all.begin() + t * n, all.begin() + (t + 1) * n), state, options);
    CHECK(equals(theta.data(), fixture("collage/adamw_fp16plus_theta").data(), n));
    CHECK(equals(state.residual.data(), fixture("collage/adamw_fp16plus_dtheta").data(), n));
    CHECK(equals(state.variance.data(), fixture("collage/adamw_fp16plus_v").data(), n));
    CHECK(equals(state.variance_residual.data(), fixture("collage/adamw_fp16plus_dv").data(), n));
  };
  run(Reference{});
  run(Fast{});
}

template <class F, class Form>
std::string run(const Form& form, Precision precision, Index n, const AdamWOptions& options, double scale = 1) {
  Rng rng(17);
  auto theta = spread<F>(rng, n, 20);
  AdamWState<F> state = precision == Precision::stochastic && Storage<F> ? AdamWState<F>(precision, theta, rng)
                                                                         : AdamWState<F>(precision, theta);
  for (int t = 0; t < 6; ++t)
    form(theta, spread<F>(rng, n, 30), state, options,
         {.gradient_scale = scale, .check_finite = true, .quality = nullptr});
  return bytes_of(theta, state);
}

TEMPLATE_TEST_CASE("precision.collage: fast form and reference agree bit for bit on any number of threads", "",
                   bfloat16, half, float, float8_e5m2) {
  using F = TestType;
  for (const Precision precision : strategies) {
    if (std::same_as<F, float> && precision == Precision::stochastic) continue;
    for (const Index n : {0, 1, 63, 64, 65, 127, 128, 129, 193, 1000, 20001, 40002}) {
      AdamWOptions options;
      options.rounding = n % 5 == 1 || n % 5 == 2 ? StepRounding::every_operation : StepRounding::stored_values;
      options.epsilon = 1e-3;
      options.weight_decay = n % 2 == 0 ? 0.0 : 0.05;
      options.robust_grow = n % 3 == 0;
      options.bias_correction = static_cast<BiasCorrection>(n % 3);
      const double scale = n == 1000 ? 3.0 : 1.0;
      INFO(name_of(precision) << ", n = " << n);
      const std::string expected = run<F>(Reference{}, precision, n, options, scale);
      for (const int threads : {1, 2, 5})
        CHECK((test::with_threads(threads, [&] { return run<F>(Fast{}, precision, n, options, scale); }) == expected));
    }
  }
}

TEST_CASE("precision.collage: subnormal numbers and overflow take the same bits in both forms") {
  for (const Precision precision : strategies)
    for (const StepRounding rounding : {StepRounding::every_operation, StepRounding::stored_values}) {
      INFO(name_of(precision));
      const auto drive = [&](auto form) {
        Rng rng(23);
        std::vector<bfloat16> theta, gradient(300);
        for (int i = 0; i < 300; ++i) theta.push_back(from_bits<bfloat16>(rng() & 0xFFFFu));
        for (auto& w : theta)
          if (!std::isfinite(ashlar::to_float(w))) w = bfloat16{};
        AdamWState<bfloat16> state(precision, theta, rng);
        AdamWOptions options;
        options.epsilon = 1e-30;
        options.rounding = rounding;
        std::string bytes;
        for (int t = 0; t < 8; ++t) {
          for (auto& g : gradient)  // from the smallest subnormal to 2^64, so that squares underflow and overflow
            g = round_to<bfloat16>(static_cast<float>(rng.normal() * std::exp2(-rng.uniform(-64, 133))));
          form(theta, gradient, state, options);
          bytes += bytes_of(theta, state);
        }
        return bytes;
      };
      CHECK((drive(Fast{}) == drive(Reference{})));
    }
}

TEST_CASE("precision.collage: unchecked infinite and NaN gradients spread to the same bits in both forms") {
  for (const Precision precision : strategies)
    for (const StepRounding rounding : {StepRounding::every_operation, StepRounding::stored_values}) {
      INFO(name_of(precision));
      AdamWOptions options;
      options.rounding = rounding;
      const auto drive = [&](auto form) {
        Rng rng(29);
        std::vector<bfloat16> theta, gradient;
        for (std::uint32_t i = 0; i < 65536; i += 37)
          gradient.push_back(from_bits<bfloat16>(i));  // every kind there is
        for (std::size_t i = 0; i < gradient.size(); ++i) theta.push_back(from_bits<bfloat16>(rng() & 0xFFFFu));
        AdamWState<bfloat16> state(precision, theta, rng);
        for (int t = 0; t < 3; ++t)
          form(theta, gradient, state, options, {.gradient_scale = 1, .check_finite = false, .quality = nullptr});
        return bytes_of(theta, state);
      };
      CHECK((drive(Fast{}) == drive(Reference{})));
    }
}

TEST_CASE("precision.collage: float32 master over float is plain AdamW") {
  Rng rng(31);
  const Index n = 500;
  auto theta = spread<float>(rng, n, 4);
  std::vector<float> w = theta, m(theta.size()), v(theta.size());
  AdamWState<float> state(Precision::fp32_master, theta);
  const AdamWOptions o;
  for (int t = 1; t <= 20; ++t) {
    const auto g = spread<float>(rng, n, 10);
    adamw_step(theta, g, state, o);
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = static_cast<float>(o.beta1) * m[i] + static_cast<float>(1 - o.beta1) * g[i];
      v[i] = static_cast<float>(o.beta2) * v[i] + static_cast<float>(1 - o.beta2) * g[i] * g[i];
      const double root = std::sqrt(1 - std::pow(o.beta2, t));
      const float den = std::sqrt(v[i]) / static_cast<float>(root) + static_cast<float>(o.epsilon);
      w[i] += static_cast<float>(-o.learning_rate / (1 - std::pow(o.beta1, t))) * m[i] / den -
              static_cast<float>(o.learning_rate * o.weight_decay) * w[i];
    }
  }
  CHECK(std::memcmp(w.data(), theta.data(), w.size() * sizeof(float)) == 0);
}

TEST_CASE("precision.collage: light over float tracks AdamW in double where float alone does not") {
  const AdamWOptions o = fixture_options("adamw_hyper");
  const auto start = fixture("collage/adamw_theta0"), gradients = fixture("collage/adamw_grads");
  const Index n = start.size(), steps = gradients.extent(0);
  std::vector<double> w(start.data(), start.data() + n), m(w.size()), v(w.size());
  auto light = numbers<float>(start), pure = light;
  AdamWState<float> light_state(Precision::collage_light, light), pure_state(Precision::pure, pure);
  for (Index t = 0; t < steps; ++t) {
    std::vector<float> g;
    for (Index i = 0; i < n; ++i) g.push_back(static_cast<float>(gradients.data()[t * n + i]));
    adamw_step(light, g, light_state, o);
    adamw_step(pure, g, pure_state, o);
    const double power = static_cast<double>(t + 1);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double gi = static_cast<double>(g[i]);
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * gi;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * gi * gi;
      const double den = std::sqrt(v[i] / (1 - std::pow(o.beta2, power))) + o.epsilon;
      w[i] -= o.learning_rate * (m[i] / (1 - std::pow(o.beta1, power)) / den + o.weight_decay * w[i]);
    }
  }
  double light_error = 0, pure_error = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double residue = static_cast<double>(light_state.residual.data()[i]);
    light_error = std::max(light_error, std::abs(static_cast<double>(light[i]) + residue - w[i]));
    pure_error = std::max(pure_error, std::abs(static_cast<double>(pure[i]) - w[i]));
  }
  CHECK(light_error <= 1e-8);
  CHECK(pure_error > 10 * light_error);
}

TEST_CASE("precision.collage: a constant gradient brings v to its square only where v can decay") {
  const auto settle = [](Precision precision, int steps, double beta2,
                         StepRounding rounding = StepRounding::every_operation) {
    std::vector<bfloat16> theta(1), g(1, round_to<bfloat16>(0.5f));
    AdamWState<bfloat16> state(precision, theta);
    AdamWOptions options;
    options.beta2 = beta2;
    options.rounding = rounding;
    for (int t = 0; t < steps; ++t) adamw_step(theta, g, state, options);
    double v = static_cast<double>(ashlar::to_float(state.variance.data()[0]));
    if (precision == Precision::collage_plus)
      v += static_cast<double>(ashlar::to_float(state.variance_residual.data()[0]));
    return v;
  };
  CHECK(std::abs(settle(Precision::collage_plus, 4000, 0.95) - 0.2502) < 5e-4);
  CHECK(std::abs(settle(Precision::collage_plus, 4000, 0.999) - 0.2455) < 5e-4);  // exact: 0.2454
  CHECK(std::abs(settle(Precision::collage_plus, 4000, 0.999, StepRounding::stored_values) - 0.2454) < 5e-4);
  CHECK(settle(Precision::collage_light, 4000, 0.999) < 0.13);  // stuck where a term is below half an ulp
}

// The mean distance of the value of the weights from AdamW in double, in units of the updates made.
double drift(Precision precision, StepRounding rounding) {
  AdamWOptions o;
  o.rounding = rounding;
  Rng rng(33);
  const Index n = 2000;
  std::vector<bfloat16> theta;
  std::vector<double> w, m(static_cast<std::size_t>(n)), v(m.size());
  for (Index i = 0; i < n; ++i) {
    theta.push_back(round_to<bfloat16>(static_cast<float>(rng.normal())));
    w.push_back(static_cast<double>(ashlar::to_float(theta.back())));
  }
  AdamWState<bfloat16> state(precision, theta);
  for (int t = 1; t <= 100; ++t) {
    std::vector<bfloat16> g;
    for (Index i = 0; i < n; ++i) g.push_back(round_to<bfloat16>(static_cast<float>(1 + rng.normal())));
    adamw_step(theta, g, state, o);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const auto gi = static_cast<double>(ashlar::to_float(g[i]));
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * gi;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * gi * gi;
      const double den = std::sqrt(v[i] / (1 - std::pow(o.beta2, t))) + o.epsilon;
      w[i] -= o.learning_rate * (m[i] / (1 - std::pow(o.beta1, t)) / den + o.weight_decay * w[i]);
    }
  }
  double sum = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double residue =
        state.residual.size() > 0 ? static_cast<double>(ashlar::to_float(state.residual.data()[i])) : 0;
    sum += std::abs(static_cast<double>(ashlar::to_float(theta[i])) + residue - w[i]);
  }
  return sum / static_cast<double>(n) / (100 * o.learning_rate);
}

TEST_CASE("precision.collage: fewer roundings bring Collage nearer to exact AdamW") {
  const double every = drift(Precision::collage_plus, StepRounding::every_operation);
  const double stored = drift(Precision::collage_plus, StepRounding::stored_values);
  const double pure = drift(Precision::pure, StepRounding::every_operation);
  CHECK(stored < every);
  CHECK(every < 0.02);
  CHECK(pure > 0.2);  // most of it never arrived
}

TEST_CASE("precision.collage: parameters without a gradient stay and zero weights move") {
  for (const Precision precision : strategies) {
    std::vector<bfloat16> theta(200), g(200);
    theta[0] = round_to<bfloat16>(3.0f);
    g[1] = round_to<bfloat16>(1.0f);
    Rng rng(1);
    AdamWState<bfloat16> state(precision, theta, rng);
    AdamWOptions options;
    options.weight_decay = 0;
    for (int t = 0; t < 10; ++t) adamw_step(theta, g, state, options);
    CHECK(ashlar::to_float(theta[0]) == 3.0f);
    CHECK(std::abs(ashlar::to_float(theta[1]) + 0.01f) < 1e-3f);
    CHECK(ashlar::to_float(theta[199]) == 0.0f);
  }
}

TEST_CASE(
    "precision.collage: random bits belong to seed and step and element and the block form gives the same words") {
  std::uint32_t words[64];
  for (const Index block : {0, 1, 77}) {
    detail::random_block(0x123456789ABCDEFu, (std::uint64_t{5} << 32) + 7, block, words);
    for (Index i = 0; i < 64; ++i)
      CHECK(words[i] == detail::random_word(0x123456789ABCDEFu, (std::uint64_t{5} << 32) + 7, 64 * block + i));
  }
  // No bit position leans to either side: 2^16 words, six standard deviations.
  long ones[32] = {};
  for (Index block = 0; block < 1024; ++block) {
    detail::random_block(3, 1, block, words);
    for (const std::uint32_t word : words)
      for (int bit = 0; bit < 32; ++bit) ones[bit] += word >> bit & 1u;
  }
  for (const long count : ones) CHECK(std::abs(static_cast<double>(count) - 32768) < 6 * 128);
}

TEST_CASE("precision.collage: stochastic rounding matches its fixture and is unbiased") {
  const auto x = fixture("collage/sr_x"), bits = fixture("collage/sr_bits"), y = fixture("collage/sr_y");
  for (Index i = 0; i < x.size(); ++i) {
    const auto rounded =
        stochastic_round<bfloat16>(static_cast<float>(x.data()[i]), static_cast<std::uint32_t>(bits.data()[i]));
    CHECK(static_cast<double>(ashlar::to_float(rounded)) == y.data()[i]);
  }
  // Updates of a hundredth of a unit in the last place arrive on average.
  const Index n = 4096;
  std::vector<bfloat16> theta(n, round_to<bfloat16>(1.5f)), g(n, round_to<bfloat16>(1.0f));
  Rng rng(2);
  AdamWState<bfloat16> state(Precision::stochastic, theta, rng);
  AdamWOptions options;
  options.learning_rate = 0x1p-7 / 100;
  options.weight_decay = 0;
  for (int t = 0; t < 100; ++t) adamw_step(theta, g, state, options);
  double mean = 0;
  for (const bfloat16 w : theta) mean += static_cast<double>(ashlar::to_float(w)) / n;
  CHECK(std::abs(mean - (1.5 - 0x1p-7)) < 6 * 0x1p-7 / 64);  // deviation of one sum below 1 ulp, of the mean 1/64 of it
}

TEST_CASE("precision.collage: a gradient that is not finite skips the step and leaves everything as it was") {
  Rng rng(5);
  auto theta = spread<bfloat16>(rng, 300, 3);
  auto g = spread<bfloat16>(rng, 300, 3);
  for (const Precision precision : strategies) {
    AdamWState<bfloat16> state(precision, theta, rng);
    adamw_step(theta, g, state);
    const std::string before = bytes_of(theta, state);
    auto bad = g;
    bad[7] = round_to<bfloat16>(INFINITY);
    bad[299] = round_to<bfloat16>(NAN);
    const StepReport report = adamw_step(theta, bad, state);
    CHECK_FALSE(report.applied);
    CHECK(report.non_finite == 2);
    CHECK(state.step == 1);
    CHECK((bytes_of(theta, state) == before));
    CHECK(adamw_step(theta, g, state).applied);
  }
}

TEST_CASE("precision.collage: the scale of a scaled loss drops out") {
  Rng rng(6);
  const auto theta = spread<half>(rng, 333, 3);
  const auto g = spread<half>(rng, 333, 3);
  std::vector<half> scaled;
  for (const half x : g) scaled.push_back(round_to<half>(ashlar::to_float(x) * 1024));
  AdamWOptions options;
  options.epsilon = 1e-6;
  for (const Precision precision : strategies) {
    auto a = theta, b = theta;
    Rng one(1), two(1);
    AdamWState<half> sa(precision, a, one), sb(precision, b, two);
    for (int t = 0; t < 3; ++t) {
      adamw_step(a, g, sa, options);
      adamw_step(b, scaled, sb, options, {.gradient_scale = 1024, .check_finite = true, .quality = nullptr});
    }
    CHECK((bytes_of(a, sa) == bytes_of(b, sb)));
  }
}

TEST_CASE("precision.collage: descent quality is the same for any number of threads and close to its definition") {
  Rng rng(41);
  const Index n = 100001;
  const auto theta0 = spread<bfloat16>(rng, n, 6);
  const auto g = spread<bfloat16>(rng, n, 6);
  for (const Precision precision : strategies) {
    const auto measure = [&](auto form) {
      auto theta = theta0;
      Rng seed(1);
      AdamWState<bfloat16> state(precision, theta, seed);
      DescentSums sums;
      for (int t = 0; t < 2; ++t)
        form(theta, g, state, {}, {.gradient_scale = 1, .check_finite = true, .quality = &sums});
      return sums;
    };
    const DescentSums one = test::with_threads(1, [&] { return measure(Fast{}); });
    const DescentSums four = test::with_threads(4, [&] { return measure(Fast{}); });
    CHECK(std::memcmp(&one, &four, sizeof one) == 0);
    const DescentReport fast = one.report(), exact = measure(Reference{}).report();
    INFO(name_of(precision));
    // n terms of mixed sign, summed in another order: n eps times the sum of magnitudes, here the product of norms.
    const double tolerance = static_cast<double>(n) * 0x1p-53;
    CHECK(std::abs(fast.edq - exact.edq) <= tolerance * exact.norm_effective);
    CHECK(std::abs(fast.norm_update - exact.norm_update) <= tolerance * exact.norm_update);
    CHECK(std::abs(fast.norm_effective - exact.norm_effective) <= tolerance * exact.norm_effective);
    CHECK(std::abs(fast.norm_residual - exact.norm_residual) <= tolerance * exact.norm_residual);
    CHECK(std::abs(fast.residual_along_update - exact.residual_along_update) <= tolerance * exact.norm_residual);
    CHECK(fast.lost_fraction == exact.lost_fraction);
  }
}

TEST_CASE("precision.collage: a step allocates nothing") {
  test::with_threads(1, [] {
    std::vector<bfloat16> theta(70000), g(70000);
    Rng rng(0);
    for (const Precision precision : strategies) {
      AdamWState<bfloat16> state(precision, theta, rng);
      DescentSums sums;
      CHECK(test::allocations([&] { adamw_step(theta, g, state); }) == 0);
      const StepOptions measured{.gradient_scale = 1, .check_finite = true, .quality = &sums};
      CHECK(test::allocations([&] { adamw_step(theta, g, state, {}, measured); }) == 0);
    }
  });
}

TEST_CASE("precision.collage: bad arguments are named and change nothing") {
  std::vector<bfloat16> theta(4, round_to<bfloat16>(1.0f)), g(4, round_to<bfloat16>(1.0f));
  AdamWState<bfloat16> state(Precision::collage_plus, theta);
  const auto refused = [&](auto&& change) {
    AdamWOptions options;
    change(options);
    return message_of<InvalidArgument>([&] { adamw_step(theta, g, state, options); });
  };
  CHECK(refused([](auto& o) { o.beta1 = 1; }) == "adamw_step: beta1 must be in [0, 1), got 1");
  CHECK(refused([](auto& o) { o.beta2 = -0.1; }) == "adamw_step: beta2 must be in [0, 1), got -0.1");
  CHECK(refused([](auto& o) { o.beta2 = NAN; }) == "adamw_step: beta2 must be in [0, 1), got nan");
  CHECK(refused([](auto& o) { o.learning_rate = -1; }) ==
        "adamw_step: learning_rate must be finite and at least 0, got -1");
  CHECK(refused([](auto& o) { o.weight_decay = -1; }) ==
        "adamw_step: weight_decay must be finite and at least 0, got -1");
  CHECK(refused([](auto& o) { o.epsilon = -1; }) ==
        "adamw_step: epsilon must be finite and above 0 once rounded to the format, got -1");
  CHECK(refused([](auto& o) { o.epsilon = 0; }).starts_with("adamw_step: epsilon"));
  CHECK(message_of<InvalidArgument>([&] { adamw_step(theta, std::vector<bfloat16>(3), state); }) ==
        "adamw_step: gradient has shape [3], expected [4] (same length as theta)");
  std::vector<bfloat16> longer(5);
  CHECK(message_of<InvalidArgument>([&] { adamw_step(longer, longer, state); }) ==
        "adamw_step: theta has shape [5], expected [4] (the size of the state)");
  CHECK(message_of<InvalidArgument>([&] { adamw_step(theta, theta, state); }) ==
        "adamw_step: theta and gradient must not overlap");
  CHECK(message_of<InvalidArgument>([&] {
          adamw_step(theta, g, state, {}, {.gradient_scale = 0, .check_finite = true, .quality = nullptr});
        }) == "adamw_step: gradient_scale must be finite and above 0, got 0");
  CHECK(message_of<InvalidArgument>([&] { adamw_step(theta, g, state, {}, {}, std::vector<std::uint32_t>(4)); }) ==
        "adamw_step: random bits are for stochastic rounding alone");
  CHECK(state.step == 0);
  CHECK(ashlar::to_float(theta[0]) == 1.0f);
}

TEST_CASE("precision.collage: bias corrections enter where they say") {
  // One step from zero: m = (1 - beta1) g and v = (1 - beta2) g^2, so the corrections are all that differs.
  const auto moved = [](BiasCorrection where, double epsilon) {
    std::vector<float> theta(1), g(1, 2.0f);
    AdamWState<float> state(Precision::fp32_master, theta);
    AdamWOptions options;
    options.bias_correction = where;
    options.epsilon = epsilon;
    options.weight_decay = 0;
    adamw_step(theta, g, state, options);
    return static_cast<double>(theta[0]);
  };
  const double rate = 1e-3, m = 0.1 * 2, root = std::sqrt(0.001) * 2, epsilon = 0.5;
  const double correction1 = 0.1, correction2 = std::sqrt(0.001);
  CHECK(std::abs(moved(BiasCorrection::denominator, epsilon) +
                 rate * m / correction1 / (root / correction2 + epsilon)) < 1e-9);
  CHECK(std::abs(moved(BiasCorrection::step_size, epsilon) + rate * correction2 / correction1 * m / (root + epsilon)) <
        1e-9);
  CHECK(std::abs(moved(BiasCorrection::none, epsilon) + rate * m / (root + epsilon)) < 1e-9);
}

TEST_CASE("precision.collage: updates beyond their weights and second moments below zero take the same bits") {
  for (const bool robust : {false, true})
    for (const StepRounding rounding : {StepRounding::every_operation, StepRounding::stored_values}) {
      const auto drive = [&](auto form) {
        Rng rng(37);
        auto theta = spread<bfloat16>(rng, 200, 30);
        AdamWState<bfloat16> state(Precision::collage_plus, theta);
        for (Index i = 0; i < 200; i += 3) {
          state.variance.data()[i] = round_to<bfloat16>(-0x1p-20f);
          state.moment.data()[i] = round_to<bfloat16>(1.0f);
        }
        AdamWOptions options;
        options.robust_grow = robust;
        options.rounding = rounding;
        options.learning_rate = 0.1;
        options.epsilon = 1e-3;
        for (int t = 0; t < 3; ++t) form(theta, spread<bfloat16>(rng, 200, 40), state, options);
        for (const bfloat16 w : theta) CHECK(std::isfinite(ashlar::to_float(w)));
        return bytes_of(theta, state);
      };
      CHECK((drive(Fast{}) == drive(Reference{})));
    }
}

TEST_CASE("precision.collage: the largest finite gradient counts as finite and many NaN are all counted") {
  std::vector<float8_e5m2> theta(1000), g(1000, from_bits<float8_e5m2>(Format<float8_e5m2>::max_code));
  AdamWState<float8_e5m2> state(Precision::fp32_master, theta);
  CHECK(adamw_step(theta, g, state).applied);
  for (float8_e5m2& x : g) x = from_bits<float8_e5m2>(Format<float8_e5m2>::nan_code);
  CHECK(adamw_step(theta, g, state).non_finite == 1000);
}

}  // namespace
}  // namespace ashlar::precision
