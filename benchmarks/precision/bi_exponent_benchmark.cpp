// BiE against what a user would write with Eigen in float, and its encoder against plain loops. 4096 x 4096 weights.
// gemv runs under the memory roof: 6 bits a weight where float reads 32. gemm runs under the integer units; its flops
// are those of the float product. quantize reads 4 bytes an element and writes 0.75.
#include "ashlar/precision/bi_exponent.hpp"

#include <memory>

#include "ashlar/core/random.hpp"
#include "ashlar/precision/bi_exponent_product.hpp"
#include "ashlar/precision/block_formats.hpp"
#include "support/scoreboard.hpp"

namespace ashlar::precision {
namespace {

constexpr Index n = 4096, tokens = 128;
constexpr double weights = static_cast<double>(n) * n;
constexpr double packed_bytes = weights * BiE4::packed_bits_per_element / 8, float_bytes = weights * 4;
constexpr double threshold = 4, weight_threshold = 2;

/// Normal numbers with 2 % outlier columns; rows repeat after the 256th, which is cheap to make.
Matrix<float> matrix_with_outliers(Index rows, bool outliers) {
  Rng rng(1);
  const Matrix<float> some = normal_matrix<float>(rng, std::min<Index>(rows, 256), n);
  Matrix<float> x(rows, n);
  for (Index i = 0; i < rows; ++i) x.row(i) = some.row(i % some.rows());
  if (outliers)
    for (const Index channel : rng.sample(n, n / 50)) x.col(channel) *= 40;
  return x;
}

const bool registered = [] {
  const scoreboard::Work product{.flops = 2 * weights * tokens};
  for (const int threads : {1, 2}) {
    const auto size = [&](const char* shape) { return message(shape, " threads=", threads); };
    scoreboard::add({"precision.bi_exponent.gemv", size("4096x4096"), "ashlar", {.bytes = packed_bytes}, threads}, [] {
      auto w = std::make_shared<BiExponentMatrix<BiE4>>(quantize<BiE4>(matrix_with_outliers(n, false), weight_threshold));
      auto workspace = std::make_shared<GemvWorkspace<BiE4, BiE4>>();
      return [w, workspace, x = Vector<float>(matrix_with_outliers(1, true).row(0)), y = Vector<float>(n)]() mutable {
        gemv<BiE4>(View<const float, 1>(x), threshold, *w, View<float, 1>(y), *workspace);
      };
    });
    scoreboard::add({"precision.bi_exponent.gemv", size("4096x4096"), "eigen float", {.bytes = float_bytes}, threads}, [=] {
      auto w = std::make_shared<Matrix<float>>(matrix_with_outliers(n, false));
      return [w, x = Vector<float>(matrix_with_outliers(1, true).row(0)), y = Vector<float>(n)]() mutable {
        parallel_for(n, 512, [&](Index begin, Index end) {
          y.segment(begin, end - begin).noalias() = w->middleRows(begin, end - begin) * x;
        });
      };
    });

    scoreboard::add({"precision.bi_exponent.gemm", size("128x4096x4096"), "ashlar", product, threads}, [] {
      auto a = std::make_shared<BiExponentMatrix<BiE4>>(quantize<BiE4>(matrix_with_outliers(tokens, true), threshold));
      auto w = std::make_shared<BiExponentMatrix<BiE4>>(quantize<BiE4>(matrix_with_outliers(n, false), weight_threshold));
      auto workspace = std::make_shared<GemmWorkspace<BiE4, BiE4>>();
      return [a, w, workspace, c = Matrix<float>(tokens, n)]() mutable { gemm(*a, *w, View<float, 2>(c), *workspace); };
    });
    scoreboard::add({"precision.bi_exponent.gemm", size("128x4096x4096"), "eigen float", product, threads}, [] {
      auto a = std::make_shared<Matrix<float>>(matrix_with_outliers(tokens, true));
      auto w = std::make_shared<Matrix<float>>(matrix_with_outliers(n, false));
      return [a, w, c = Matrix<float>(tokens, n)]() mutable {
        parallel_for(n, 1024, [&](Index begin, Index end) {
          c.middleCols(begin, end - begin).noalias() = *a * w->middleRows(begin, end - begin).transpose();
        });
      };
    });
  }

  scoreboard::add({"precision.bi_exponent.gemm", "128x4096x4096 threads=1", "dequantised tiles", product}, [] {
    auto a = std::make_shared<BiExponentMatrix<BiE4>>(quantize<BiE4>(matrix_with_outliers(tokens, true), threshold));
    auto w = std::make_shared<BiExponentMatrix<BiE4>>(quantize<BiE4>(matrix_with_outliers(n, false), weight_threshold));
    return [a, w] { benchmark::DoNotOptimize(gemm_dequantized(*a, *w).data()); };
  });

  const scoreboard::Work encode{.bytes = float_bytes + packed_bytes};
  scoreboard::add({"precision.bi_exponent.quantize", "4096x4096", "ashlar", encode}, [] {
    auto x = std::make_shared<Matrix<float>>(matrix_with_outliers(n, true));
    return [x, packed = BiExponentMatrix<BiE4>(n, n)]() mutable {
      detail::encode(detail::Native{}, View<const float, 2>(*x), threshold, {}, packed);
    };
  });
  scoreboard::add({"precision.bi_exponent.quantize_in_place", "4096x4096", "ashlar", encode}, [] {
    auto x = std::make_shared<Matrix<float>>(matrix_with_outliers(n, true));
    return [x, packed = BiExponentMatrix<BiE4>(n, n)]() mutable { quantize<BiE4>(*x, threshold, packed); };
  });
  scoreboard::add({"precision.bi_exponent.quantize", "4096x4096", "plain loops", encode}, [] {
    auto x = std::make_shared<Matrix<float>>(matrix_with_outliers(n, true));
    return [x, packed = BiExponentMatrix<BiE4>(n, n)]() mutable {
      detail::encode(detail::Portable{}, View<const float, 2>(*x), threshold, {}, packed);
    };
  });
  scoreboard::add({"precision.bi_exponent.dequantize", "4096x4096", "ashlar", encode}, [] {
    auto packed =
        std::make_shared<BiExponentMatrix<BiE4>>(quantize<BiE4>(matrix_with_outliers(n, true), threshold));
    return [packed, x = Matrix<float>(n, n)]() mutable { dequantize(*packed, x); };
  });
  scoreboard::add({"precision.bi_exponent.quantize_adaptive", "256x4096", "ashlar", {}}, [] {
    auto x = std::make_shared<Matrix<float>>(matrix_with_outliers(256, true));
    return [x] { benchmark::DoNotOptimize(quantize_adaptive<BiE4>(*x).rows()); };
  });
  scoreboard::add({"precision.bi_exponent.quantize_adaptive", "256x4096", "definition", {}}, [] {
    auto x = std::make_shared<Matrix<float>>(matrix_with_outliers(256, true));
    return [x] { benchmark::DoNotOptimize(reference::adaptive_thresholds<BiE4>(*x).rows()); };
  });
  return true;
}();

}  // namespace
}  // namespace ashlar::precision
