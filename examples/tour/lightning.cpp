// Time per token from a thousand to a quarter of a million tokens, against quadratic attention.
#include "ashlar/attention/lightning.hpp"

#include <algorithm>
#include <cstdio>


#include "ashlar/attention/decay.hpp"
#include "support/attention.hpp"
#include "support/clock.hpp"
#include "tour/tour.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace ashlar::tour {
namespace {

/// Limits parallel_for to one thread for as long as it lives: the claim is about one core.
struct OneThread {
#if defined(_OPENMP)
  int before = omp_get_max_threads();
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before); }
#endif
};

}  // namespace

Section lightning_section(const Data&, Rng rng, const Progress& progress) {
  const OneThread one_thread;
  constexpr Index heads = 1, dim = 64;
  const auto slopes = attention::alibi_slopes(heads);
  Series linear{"lightning attention", {}, {}}, quadratic{"quadratic, the same operator", {}, {}},
      softmax{"softmax attention", {}, {}};
  Workspace workspace;
  const std::vector<Index> lengths{1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144};
  double at_8k = 0, quadratic_at_8k = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const Index length = lengths[i];
    progress(static_cast<double>(i) / static_cast<double>(lengths.size()), message(length, " tokens"));
    const auto q = normal_tensor<float>(rng, {1, heads, length, dim}, 0.1);
    const auto k = normal_tensor<float>(rng, {1, heads, length, dim}, 0.1);
    const auto v = normal_tensor<float>(rng, {1, heads, length, dim});
    Tensor<float> o(v.shape());
    const double scale = 1e9 / static_cast<double>(length);
    const double seconds = example::best_cpu_seconds(length < 100000 ? 5 : 2, [&] {
      attention::lightning_forward(q, k, v, slopes, o.view<4>(), {}, workspace);
    });
    linear.x.push_back(static_cast<double>(length));
    linear.y.push_back(seconds * scale);
    if (length > 8192) continue;
    const int repeats = length < 4096 ? 3 : 1;
    const double masked = example::best_cpu_seconds(repeats, [&] { example::quadratic_attention(q, k, v, slopes[0], o.view<4>()); });
    const double soft = example::best_cpu_seconds(repeats, [&] { example::softmax_attention(q, k, v, o.view<4>()); });
    for (auto* series : {&quadratic, &softmax}) series->x.push_back(static_cast<double>(length));
    quadratic.y.push_back(masked * scale);
    softmax.y.push_back(soft * scale);
    if (length == 8192) at_8k = seconds, quadratic_at_8k = masked;
  }
  const auto [fastest, slowest] = std::minmax_element(linear.y.begin(), linear.y.end());
  const double factor = quadratic_at_8k / at_8k;
  char measured[160], baseline[160], speed_up[32];
  std::snprintf(measured, sizeof measured, "%.0f to %.0f ns a token and head from 1k to 256k tokens", *fastest, *slowest);
  std::snprintf(baseline, sizeof baseline, "quadratic %.0f ns at 1k, %.0f ns at 8k", quadratic.y.front(), quadratic.y.back());
  std::snprintf(speed_up, sizeof speed_up, "%.0f x at 8k", factor);
  return {"Lightning attention: constant time per token",
          "Causal linear attention with decay (dim 64, one thread, processor time). The tiled form is exact; the quadratic "
          "forms compute the score matrix in row blocks, softmax attention is the operator it stands in for.",
          {{"lightning attention", "constant speed for any length, exact", measured, baseline, speed_up,
            factor >= 20 && *slowest < 2 * *fastest}},
          {{"Time per token", "tokens", "ns per token and head", true, true, {linear, quadratic, softmax}}}};
}

}  // namespace ashlar::tour
