// Structured features: inputs that are sums of orthonormal feature directions. The core features carry the label, the
// background features are independent of it and of everything else.
//
//   x = sum over core of y z_j m_j + sum over background of z_j m_j,     y = +-1 fair,  z_j by default uniform [0, 1]
//
//   Rng rng(0);
//   const FeatureModel model{.basis = FeatureBasis::random(rng, 128, 16, 16)};
//   const LabelledFeatures train = model.sample(4000, rng);
//   const LabelledFeatures shifted = model.shifted(train, sign_flip);   // same labels, same core, background negated
//   const Matrix<double> x = model.inputs(train.z, rng);
//
// Cost: a random number a feature, d multiply-adds a feature for the inputs.
//
// Source: Zhang, Zhao, Chen, Jiang, Feng, "Feature Contamination: Neural Networks Learn Uncorrelated Features and Fail
// to Generalize", ICML 2024, arXiv 2406.03345.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "ashlar/core/error.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/random_lanes.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/linalg/random_orthonormal.hpp"

namespace ashlar::dynamics {

/// Directions in the input space, core features first.
class FeatureBasis {
 public:
  /// directions: [d, features], one column a feature; the first `core` are core features, the rest background.
  /// Throws InvalidArgument unless the columns are orthonormal, |Q'Q - 1| <= 1e-8.
  FeatureBasis(Matrix<double> directions, Index core) : FeatureBasis(std::move(directions), core, false) {}

  /// Columns of any length and angle, such as measured directions are.
  static FeatureBasis oblique(Matrix<double> directions, Index core) { return {std::move(directions), core, true}; }

  /// Uniformly random orthonormal directions in d dimensions.
  static FeatureBasis random(Rng& rng, Index d, Index core, Index background) {
    constexpr auto function = "FeatureBasis::random";
    check_argument(core >= 0, function, "core", "not negative", core);
    check_argument(background >= 0, function, "background", "not negative", background);
    const Index features = core + background;
    require(d >= features, function, "d must be at least the number of features, got ", d, " dimensions for ", features,
            " features");
    return {linalg::random_orthonormal(rng, d, features), core};
  }

  const Matrix<double>& directions() const { return directions_; }  ///< Q: [d, features]
  Index dim() const { return directions_.rows(); }
  Index features() const { return directions_.cols(); }
  Index core() const { return core_; }
  Index background() const { return features() - core_; }
  bool orthonormal() const { return orthonormal_; }
  Matrix<double> core_directions() const { return directions_.leftCols(core_); }
  Matrix<double> background_directions() const { return directions_.rightCols(background()); }

 private:
  FeatureBasis(Matrix<double> directions, Index core, bool any_angle)
      : directions_(std::move(directions)), core_(core) {
    constexpr auto function = "FeatureBasis";
    require(features() >= 1 && dim() >= features(), function, "directions has shape ",
            View<const double, 2>(directions_).shape(), ", expected at least one column and no more columns than rows");
    require(directions_.allFinite(), function, "directions has an entry that is not finite");
    check_argument(core >= 0 && core <= features(), function, "core", message("between 0 and ", features()), core);
    const Matrix<double> gram = directions_.transpose() * directions_;
    const double defect = (gram - Matrix<double>::Identity(features(), features())).norm();
    orthonormal_ = defect <= 1e-8;
    check_argument(any_angle || orthonormal_, function, "|Q'Q - 1| of the directions", "at most 1e-08 (see oblique)",
                   defect);
  }

  Matrix<double> directions_;
  Index core_;
  bool orthonormal_ = false;
};

/// Uniform on [low, high].
struct UniformLaw {
  double low = 0, high = 1;
  double operator()(Rng& rng) const { return rng.uniform(low, high); }
};

/// Draws one coefficient: a UniformLaw (drawn many at a time) or any function of an Rng.
using FeatureLaw = std::function<double(Rng&)>;

/// What another environment does to every background coefficient: z becomes scale z + offset.
struct BackgroundShift {
  double scale = 1;
  double offset = 0;
};
/// The paper's shift: background drawn from [-1, 0] where training had [0, 1].
inline constexpr BackgroundShift sign_flip{-1, 0};

/// Samples in feature space.
struct LabelledFeatures {
  Vector<double> y;  ///< [n], -1 or +1
  Matrix<double> z;  ///< [n, features]; core columns carry the factor y already, so that x = z Q'
};

namespace detail {

/// Columns first .. first + count - 1 of z, row by row.
inline void draw_columns(std::string_view side, const FeatureLaw& law, Rng& rng, Index first, Index count,
                         Matrix<double>& z) {
  constexpr auto function = "FeatureModel::sample";
  if (const auto* uniform = law.target<UniformLaw>()) {
    const double low = uniform->low, high = uniform->high, width = high - low;
    require(std::isfinite(width) && width >= 0, function, "the ", side,
            " law must be uniform on a finite interval, got ", low, " to ", high);
    // What as many calls of rng.uniform(low, high) would give, from words by the array.
    constexpr std::size_t block = 256;
    std::array<std::uint32_t, 2 * block> words;
    std::array<double, block> numbers;
    const double below_high = std::nextafter(high, low);
    const Index total = z.rows() * count;
    Index row = 0, column = 0;
    for (Index done = 0; done < total;) {
      const auto part = static_cast<std::size_t>(std::min<Index>(total - done, block));
      fill_words(rng, std::span(words).first(2 * part));
      for (std::size_t i = 0; i < part; ++i) {
        const std::uint64_t bits = words[2 * i] | std::uint64_t{words[2 * i + 1]} << 32;
        const double x = std::fma(width, static_cast<double>(bits >> 11) * 0x1p-53, low);
        numbers[i] = x < high ? x : below_high;
      }
      for (std::size_t i = 0; i < part; ++i) {
        z(row, first + column) = numbers[i];
        if (++column == count) column = 0, ++row;
      }
      done += static_cast<Index>(part);
    }
    return;
  }
  require(static_cast<bool>(law), function, "the ", side, " law is empty");
  for (Index i = 0; i < z.rows(); ++i)
    for (Index j = 0; j < count; ++j) {
      const double value = law(rng);
      require(std::isfinite(value), function, "the ", side, " law drew ", value);
      z(i, first + j) = value;
    }
}

}  // namespace detail

/// Where samples come from.
struct FeatureModel {
  FeatureBasis basis;
  FeatureLaw core = UniformLaw{};
  FeatureLaw background = UniformLaw{};  ///< a mean that is not zero is what contaminates
  Vector<double> offsets = {};           ///< [features], added to every z_j of that feature; empty: none
  double noise = 0;                      ///< standard deviation of normal noise on every coordinate of x

  /// n samples, their labels fair coins. Throws InvalidArgument for n < 1 and for laws that draw no finite numbers.
  LabelledFeatures sample(Index n, Rng& rng, const BackgroundShift& shift = {}) const {
    check_argument(n >= 1, "FeatureModel::sample", "n", "at least 1", n);
    LabelledFeatures out{Vector<double>(n), Matrix<double>(n, basis.features())};
    sample(out, rng, shift);
    return out;
  }
  /// The same into `out`, as many as it has labels. Allocates nothing when out.z has its shape already.
  void sample(LabelledFeatures& out, Rng& rng, const BackgroundShift& shift = {}) const {
    constexpr auto function = "FeatureModel::sample";
    check_argument(out.y.size() >= 1, function, "n", "at least 1", out.y.size());
    require(offsets.size() == 0 || offsets.size() == basis.features(), function, "offsets has length ", offsets.size(),
            ", expected ", basis.features(), " (one a feature)");
    require(offsets.allFinite(), function, "offsets has an entry that is not finite");
    out.z.resize(out.y.size(), basis.features());
    for (double& label : out.y) label = rng() >> 31 ? 1 : -1;
    detail::draw_columns("core", core, rng, 0, basis.core(), out.z);
    detail::draw_columns("background", background, rng, basis.core(), basis.background(), out.z);
    if (offsets.size() != 0) out.z.rowwise() += offsets.transpose();
    out.z.leftCols(basis.core()).array().colwise() *= out.y.array();
    apply(function, shift, out);
  }

  /// The same samples in another environment: labels and core stay, only the background coefficients move.
  LabelledFeatures shifted(LabelledFeatures features, const BackgroundShift& shift) const {
    check_shape("FeatureModel::shifted", "features.z", View<const double, 2>(features.z).shape(),
                {features.y.size(), basis.features()}, "one row a label, one column a feature");
    apply("FeatureModel::shifted", shift, features);
    return features;
  }

  /// x = z Q' + noise: [n, d] from z: [n, features].
  Matrix<double> inputs(View<const double, 2> z, Rng& rng) const {
    Matrix<double> x(z.extent(0), basis.dim());
    inputs(z, rng, x);
    return x;
  }
  void inputs(View<const double, 2> z, Rng& rng, View<double, 2> x) const {
    constexpr auto function = "FeatureModel::inputs";
    check_shape(function, "z", z.shape(), {z.extent(0), basis.features()}, "one column a feature");
    check_shape(function, "x", x.shape(), {z.extent(0), basis.dim()}, "one row a sample, one column a dimension");
    check_argument(noise >= 0 && std::isfinite(noise), function, "noise", "finite and not negative", noise);
    require(!overlaps(z, x), function, "x overlaps z");
    if (z.stride(1) == 1 && x.stride(1) == 1) {  // Eigen multiplies in place what has dense rows, and copies the rest
      using Rows = Eigen::OuterStride<>;
      const Eigen::Map<const Matrix<double>, 0, Rows> from(z.data(), z.extent(0), z.extent(1), Rows(z.stride(0)));
      Eigen::Map<Matrix<double>, 0, Rows> to(x.data(), x.extent(0), x.extent(1), Rows(x.stride(0)));
      to.noalias() = from * basis.directions().transpose();
    } else {
      matrix(x) = matrix(z) * basis.directions().transpose();
    }
    if (noise == 0) return;
    for (Index i = 0; i < x.extent(0); ++i)
      for (Index j = 0; j < x.extent(1); ++j) x(i, j) += noise * rng.normal();
  }

 private:
  void apply(std::string_view function, const BackgroundShift& shift, LabelledFeatures& features) const {
    check_argument(std::isfinite(shift.scale), function, "shift.scale", "finite", shift.scale);
    check_argument(std::isfinite(shift.offset), function, "shift.offset", "finite", shift.offset);
    if (shift.scale == 1 && shift.offset == 0) return;
    auto background_part = features.z.rightCols(basis.background()).array();
    background_part = shift.scale * background_part + shift.offset;
  }
};

}  // namespace ashlar::dynamics
