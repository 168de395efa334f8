#include <ashlar/attention/decay.hpp>
#include <ashlar/attention/lightning.hpp>
#include <ashlar/core/random.hpp>
#include <iostream>

int main() {
  ashlar::Rng rng(42);
  const auto q = ashlar::normal_tensor<float>(rng, {1, 4, 1024, 64});  // batch, heads, length, dimension
  const auto k = ashlar::normal_tensor<float>(rng, {1, 4, 1024, 64});
  const auto v = ashlar::normal_tensor<float>(rng, {1, 4, 1024, 64});
  const auto slopes = ashlar::attention::alibi_slopes(4);
  const auto o = ashlar::attention::lightning_attention(q, k, v, slopes);
  std::cout << "last token, first channel: " << o.slice<4>(2, 1023, 1024)(0, 0, 0, 0) << '\n';
}
