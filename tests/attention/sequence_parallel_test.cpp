#include "ashlar/attention/sequence_parallel.hpp"

#include <thread>
#include <vector>

#include "ashlar/core/random.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"

namespace ashlar::attention {
namespace {

using test::relative_difference;

TEST_CASE("attention.sequence_parallel: ranks that hand states on equal one process forward and backward") {
  Rng rng(1);
  const Index heads = 3, dim = 6, value = 4;
  const std::vector<Index> cuts{0, 20, 21, 60, 60};  // uneven shares, one of a single token, one empty
  const Index length = cuts.back();
  const auto draw = [&](Index tokens, Index cols) { return normal_tensor<double>(rng, {2, heads, tokens, cols}); };
  const auto q = draw(length, dim), k = draw(length, dim), v = draw(length, value), d_o = draw(length, value);
  const auto initial = draw(dim, value), d_final = draw(dim, value);
  const std::vector<double> slopes{0.2, 0, 0.01};
  const LightningOptions options{.tile = 8, .scale = 0.7};
  const auto expected = lightning_attention_with_state(q, k, v, slopes, initial, options);
  const auto expected_grad = lightning_gradients(q, k, v, slopes, d_o, initial, d_final, options);

  Tensor<double> o(v.shape()), dq(q.shape()), dk(k.shape()), dv(v.shape()), d_initial(initial.shape());
  Vector<double> d_slopes = Vector<double>::Zero(heads);
  const int ranks = static_cast<int>(cuts.size()) - 1;
  InProcessRing<double> ring(ranks);
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      auto rank = ring.at(r);
      const auto part = [&](auto& x) {
        return x.template view<4>().slice(2, cuts[static_cast<std::size_t>(r)], cuts[static_cast<std::size_t>(r) + 1]);
      };
      Workspace workspace;
      Tensor<double> received = r == 0 ? initial : Tensor<double>(initial.shape());
      lightning_forward(rank, part(q), part(k), part(v), slopes, part(o), received, workspace, options);
      Tensor<double> d_state = r == ranks - 1 ? d_final : Tensor<double>(d_final.shape());
      Tensor<double> before(initial.shape());
      Vector<double> rank_slopes(heads);
      lightning_backward(rank, part(q), part(k), part(v), slopes, part(d_o), received, d_state,
                         {part(dq), part(dk), part(dv), before, rank_slopes}, workspace, options);
      const std::lock_guard lock(mutex);
      d_slopes += rank_slopes;
      if (r == 0) d_initial = before;
    });
  for (auto& thread : threads) thread.join();
  CHECK(relative_difference(o, expected.output) < 1e-12);
  CHECK(relative_difference(dq, expected_grad.q) < 1e-12);
  CHECK(relative_difference(dk, expected_grad.k) < 1e-12);
  CHECK(relative_difference(dv, expected_grad.v) < 1e-12);
  CHECK(relative_difference(d_initial, expected_grad.initial_state) < 1e-12);
  CHECK((d_slopes - expected_grad.slopes).norm() < 1e-11 * expected_grad.slopes.norm());
}

TEST_CASE("attention.sequence_parallel: the state alone is the final state of the forward pass") {
  Rng rng(2);
  const auto k = normal_tensor<float>(rng, {1, 2, 50, 5}), v = normal_tensor<float>(rng, {1, 2, 50, 7});
  const std::vector<double> slopes{0.2, 0};
  const auto initial = normal_tensor<float>(rng, {1, 2, 5, 7});
  Tensor<float> state(initial.shape());
  Workspace workspace;
  lightning_state(k, v, slopes, {initial, state}, workspace, {.tile = 16});
  CHECK(test::identical(state, lightning_attention_with_state(k, k, v, slopes, initial, {.tile = 16}).state));
}

TEST_CASE("attention.sequence_parallel: bad ranks and packed sequences are refused") {
  using test::message_of;
  CHECK(message_of<InvalidArgument>([] { InProcessRing<float>(0); }) == "InProcessRing: size must be at least 1, got 0");
  InProcessRing<float> ring(2);
  CHECK(message_of<InvalidArgument>([&] { ring.at(2); }) == "InProcessRing: rank must be between 0 and 1, got 2");
  auto rank = ring.at(0);
  const Tensor<float> x({1, 1, 4, 2});
  Tensor<float> o({1, 1, 4, 2}), received({1, 1, 2, 2});
  Workspace workspace;
  const std::vector<Index> offsets{0, 4};
  CHECK(message_of<InvalidArgument>([&] {
          lightning_forward(rank, x, x, x, std::vector<double>{0.1}, o.view<4>(), received, workspace, {.offsets = offsets});
        }) == "lightning_forward: packed sequences cannot be spread over ranks");
}

}  // namespace
}  // namespace ashlar::attention
