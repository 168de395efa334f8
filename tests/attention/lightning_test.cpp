#include "ashlar/attention/lightning.hpp"

#include <array>
#include <string>
#include <vector>

#include "ashlar/attention/decay.hpp"
#include "ashlar/core/random.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/fixture.hpp"
#include "support/threads.hpp"

namespace ashlar::attention {
namespace {

using test::fixture;
using test::identical;
using test::max_difference;
using test::message_of;
using test::relative_difference;

template <class To, class From>
Tensor<To> cast(const Tensor<From>& from) {
  auto to = Tensor<To>::uninitialized(from.shape());
  for (Index i = 0; i < from.size(); ++i)
    to.data()[i] = from_float<To>(static_cast<accumulate_t<To>>(to_float(from.data()[i])));
  return to;
}

/// Random inputs of a problem, with everything the backward pass wants.
template <Real T>
struct Problem {
  Tensor<T> q, k, v, d_o;
  Tensor<T> initial, d_final;
  Vector<double> slopes;

  Problem(Rng& rng, Index batch, Index heads, Index length, Index dim, Index value_dim)
      : q(normal_tensor<T>(rng, {batch, heads, length, dim})),
        k(normal_tensor<T>(rng, {batch, heads, length, dim})),
        v(normal_tensor<T>(rng, {batch, heads, length, value_dim})),
        d_o(normal_tensor<T>(rng, {batch, heads, length, value_dim})),
        initial(normal_tensor<T>(rng, {batch, heads, dim, value_dim})),
        d_final(normal_tensor<T>(rng, {batch, heads, dim, value_dim})),
        slopes(heads) {
    for (Index h = 0; h < heads; ++h) slopes[h] = h % 3 == 2 ? 0 : 0.7 / static_cast<double>(1 + 3 * h);
  }

  LightningResult<T> forward(const LightningOptions& options = {}) const {
    return lightning_attention_with_state(q, k, v, slopes, initial, options);
  }
  LightningGradients<T> backward(const LightningOptions& options = {}) const {
    return lightning_gradients(q, k, v, slopes, d_o, initial, d_final, options);
  }
  double loss(const LightningOptions& options = {}) const {
    const auto result = forward(options);
    double sum = 0;
    for (Index i = 0; i < d_o.size(); ++i) sum += static_cast<double>(result.output.data()[i]) * d_o.data()[i];
    for (Index i = 0; i < d_final.size(); ++i) sum += static_cast<double>(result.state.data()[i]) * d_final.data()[i];
    return sum;
  }
};

TEST_CASE("attention.lightning: forward and gradients match the fixtures in double and float") {
  for (const std::string name : {"a", "b", "c", "d"}) {
    INFO("case " << name);
    const auto array = [&](const std::string& what) { return fixture("lightning_attention/" + name + "_" + what); };
    const auto q = array("q"), k = array("k"), v = array("v"), d_o = array("do"), initial = array("S0"), d_final = array("dSn");
    const Tensor<double> s = array("s");
    const auto slopes = s.view<1>();
    for (const Index tile : {1, 5, 16, 64}) {
      INFO("tile " << tile);
      const LightningOptions options{.tile = tile};
      const auto result = lightning_attention_with_state(q, k, v, slopes, initial, options);
      CHECK(max_difference(result.output, array("o")) < 1e-10);
      CHECK(max_difference(result.state, array("Sn")) < 1e-10);
      CHECK(max_difference(lightning_attention(q, k, v, slopes, options), array("o_zero_state")) < 1e-10);
      const auto grad = lightning_gradients(q, k, v, slopes, d_o, initial, d_final, options);
      CHECK(max_difference(grad.q, array("dq")) < 1e-10);
      CHECK(max_difference(grad.k, array("dk")) < 1e-10);
      CHECK(max_difference(grad.v, array("dv")) < 1e-10);
      CHECK(max_difference(grad.initial_state, array("dS0")) < 1e-10);
      CHECK(max_difference(test::copy_of<1>(grad.slopes), array("ds")) < 1e-10);
      const auto zero = lightning_gradients(q, k, v, slopes, d_o, {}, {}, options);
      CHECK(max_difference(zero.q, array("zero_state_dq")) < 1e-10);
      CHECK(max_difference(zero.k, array("zero_state_dk")) < 1e-10);
      CHECK(max_difference(zero.v, array("zero_state_dv")) < 1e-10);

      const auto qf = cast<float>(q), kf = cast<float>(k), vf = cast<float>(v), d_of = cast<float>(d_o);
      const auto initial_f = cast<float>(initial), d_final_f = cast<float>(d_final);
      const auto result_f = lightning_attention_with_state(qf, kf, vf, slopes, initial_f, options);
      CHECK(relative_difference(result_f.output, array("o")) < 2e-5);
      CHECK(relative_difference(result_f.state, array("Sn")) < 2e-5);
      const auto grad_f = lightning_gradients(qf, kf, vf, slopes, d_of, initial_f, d_final_f, options);
      CHECK(relative_difference(grad_f.q, array("dq")) < 2e-5);
      CHECK(relative_difference(grad_f.k, array("dk")) < 2e-5);
      CHECK(relative_difference(grad_f.v, array("dv")) < 2e-5);
      CHECK(relative_difference(grad_f.initial_state, array("dS0")) < 2e-5);
      CHECK(relative_difference(test::copy_of<1>(grad_f.slopes), array("ds")) < 2e-5);
    }
  }
}

TEST_CASE("attention.lightning: tiled equals quadratic equals recurrent for every tile length") {
  Rng rng(1);
  for (const auto& [length, dim, value_dim] : {std::array<Index, 3>{1, 3, 2}, {17, 5, 8}, {63, 16, 33}, {130, 20, 7}}) {
    const Problem<double> p(rng, 2, 3, length, dim, value_dim);
    const auto quadratic = reference::lightning_attention_parallel(p.q, p.k, p.v, p.slopes);
    Tensor<double> state({2, 3, dim, value_dim});
    CHECK(relative_difference(reference::lightning_attention_recurrent(p.q, p.k, p.v, p.slopes, state), quadratic) < 1e-11);
    Tensor<double> carried = p.initial;
    const auto recurrent = reference::lightning_attention_recurrent(p.q, p.k, p.v, p.slopes, carried);
    for (const Index tile : {Index{1}, Index{7}, Index{16}, Index{64}, length + 3}) {
      INFO("length " << length << " tile " << tile);
      CHECK(relative_difference(lightning_attention(p.q, p.k, p.v, p.slopes, {.tile = tile}), quadratic) < 1e-11);
      const auto result = p.forward({.tile = tile});
      CHECK(relative_difference(result.output, recurrent) < 1e-11);
      CHECK(relative_difference(result.state, carried) < 1e-11);
    }
  }
}

TEST_CASE("attention.lightning: gradients equal the recurrent reference for every tile length") {
  Rng rng(2);
  for (const auto& [length, dim, value_dim] : {std::array<Index, 3>{1, 3, 2}, {17, 5, 8}, {100, 16, 33}}) {
    const Problem<double> p(rng, 2, 3, length, dim, value_dim);
    const auto expected =
        reference::lightning_attention_backward(p.q, p.k, p.v, p.slopes, p.d_o, p.initial, p.d_final);
    for (const Index tile : {Index{1}, Index{7}, Index{64}, length + 3}) {
      INFO("length " << length << " tile " << tile);
      const auto grad = p.backward({.tile = tile});
      CHECK(relative_difference(grad.q, expected.q) < 1e-11);
      CHECK(relative_difference(grad.k, expected.k) < 1e-11);
      CHECK(relative_difference(grad.v, expected.v) < 1e-11);
      CHECK(relative_difference(grad.initial_state, expected.initial_state) < 1e-11);
      CHECK((grad.slopes - expected.slopes).cwiseAbs().maxCoeff() < 1e-11 * expected.slopes.cwiseAbs().maxCoeff());
    }
  }
}

TEST_CASE("attention.lightning: gradients agree with central differences") {
  Rng rng(3);
  Problem<double> p(rng, 1, 2, 11, 4, 3);
  const LightningOptions options{.tile = 4, .scale = 0.5};
  const auto grad = p.backward(options);
  const auto check = [&](double* x, Index count, const double* analytic) {
    double worst = 0, largest = 0;
    for (Index i = 0; i < count; ++i) {
      const double h = 1e-6, kept = x[i];
      x[i] = kept + h;
      const double above = p.loss(options);
      x[i] = kept - h;
      const double below = p.loss(options);
      x[i] = kept;
      worst = std::max(worst, std::abs((above - below) / (2 * h) - analytic[i]));
      largest = std::max(largest, std::abs(analytic[i]));
    }
    CHECK(worst < 1e-6 * largest);
  };
  check(p.q.data(), p.q.size(), grad.q.data());
  check(p.k.data(), p.k.size(), grad.k.data());
  check(p.v.data(), p.v.size(), grad.v.data());
  check(p.initial.data(), p.initial.size(), grad.initial_state.data());
  check(p.slopes.data(), p.slopes.size(), grad.slopes.data());
}

TEST_CASE("attention.lightning: the sum identities of the gradients hold") {
  Rng rng(4);
  const Problem<double> p(rng, 1, 3, 75, 9, 6);
  const auto result = p.forward();
  const auto grad = p.backward();
  const auto inner = [](const Tensor<double>& a, const Tensor<double>& b, Index h) {
    const auto x = a.view<4>()[0][h], y = b.view<4>()[0][h];
    double sum = 0;
    for (Index i = 0; i < x.extent(0); ++i)
      for (Index j = 0; j < x.extent(1); ++j) sum += x(i, j) * y(i, j);
    return sum;
  };
  for (Index h = 0; h < 3; ++h) {
    const double output = inner(result.output, p.d_o, h);
    const double with_states =
        output + inner(result.state, p.d_final, h) - inner(p.initial, grad.initial_state, h);
    const double tolerance = 1e-11 * static_cast<double>(p.q.size());
    CHECK(std::abs(inner(p.q, grad.q, h) - output) < tolerance);
    CHECK(std::abs(inner(p.k, grad.k, h) - with_states) < tolerance);
    CHECK(std::abs(inner(p.v, grad.v, h) - with_states) < tolerance);
  }
}

TEST_CASE("attention.lightning: any split that carries the state equals the whole") {
  Rng rng(5);
  const Index length = 90;
  const Problem<double> p(rng, 1, 3, length, 8, 5);
  const auto whole = p.forward();
  const auto whole_grad = p.backward();
  const auto part = [](const Tensor<double>& x, Index begin, Index end) {
    return test::copy_of<4>(x.view<4>().slice(2, begin, end));
  };
  for (const Index cut : {0, 1, 37, 64, 90}) {
    INFO("cut at " << cut);
    const auto forward = [&](Index begin, Index end, const Tensor<double>& initial) {
      return lightning_attention_with_state(part(p.q, begin, end), part(p.k, begin, end), part(p.v, begin, end), p.slopes,
                                            initial);
    };
    const auto first = forward(0, cut, p.initial), second = forward(cut, length, first.state);
    CHECK(relative_difference(second.state, whole.state) < 1e-12);
    CHECK(relative_difference(first.output, part(whole.output, 0, cut)) < 1e-12);
    CHECK(relative_difference(second.output, part(whole.output, cut, length)) < 1e-12);

    const auto backward = [&](Index begin, Index end, const Tensor<double>& initial, const Tensor<double>& d_final) {
      return lightning_gradients(part(p.q, begin, end), part(p.k, begin, end), part(p.v, begin, end), p.slopes,
                                 part(p.d_o, begin, end), initial, d_final);
    };
    const auto late = backward(cut, length, first.state, p.d_final);
    const auto early = backward(0, cut, p.initial, late.initial_state);
    CHECK(relative_difference(early.initial_state, whole_grad.initial_state) < 1e-12);
    CHECK(relative_difference(early.q, part(whole_grad.q, 0, cut)) < 1e-12);
    CHECK(relative_difference(late.k, part(whole_grad.k, cut, length)) < 1e-12);
    CHECK(relative_difference(early.v, part(whole_grad.v, 0, cut)) < 1e-12);
    CHECK((early.slopes + late.slopes - whole_grad.slopes).norm() < 1e-12 * whole_grad.slopes.norm());
  }
}

TEST_CASE("attention.lightning: packed sequences equal separate calls and empty ones pass their state through") {
  Rng rng(6);
  const Problem<double> p(rng, 1, 2, 50, 6, 4);
  const std::vector<Index> offsets{0, 13, 13, 50};
  const auto initial = normal_tensor<double>(rng, {3, 2, 6, 4}), d_final = normal_tensor<double>(rng, {3, 2, 6, 4});
  const LightningOptions packed{.tile = 8, .offsets = offsets};
  const auto result = lightning_attention_with_state(p.q, p.k, p.v, p.slopes, initial, packed);
  const auto grad = lightning_gradients(p.q, p.k, p.v, p.slopes, p.d_o, initial, d_final, packed);
  Vector<double> slopes = Vector<double>::Zero(2);
  for (Index i = 0; i < 3; ++i) {
    INFO("sequence " << i);
    const auto from = offsets[static_cast<std::size_t>(i)], to = offsets[static_cast<std::size_t>(i + 1)];
    const auto part = [&](const Tensor<double>& x) { return test::copy_of<4>(x.view<4>().slice(2, from, to)); };
    const auto state = [&](const Tensor<double>& x) { return test::copy_of<4>(x.view<4>().slice(0, i, i + 1)); };
    const auto alone = lightning_attention_with_state(part(p.q), part(p.k), part(p.v), p.slopes, state(initial), {.tile = 8});
    CHECK(identical(alone.output, part(result.output)));
    CHECK(identical(alone.state, state(result.state)));
    const auto alone_grad = lightning_gradients(part(p.q), part(p.k), part(p.v), p.slopes, part(p.d_o), state(initial),
                                                state(d_final), {.tile = 8});
    CHECK(identical(alone_grad.q, part(grad.q)));
    CHECK(identical(alone_grad.k, part(grad.k)));
    CHECK(identical(alone_grad.v, part(grad.v)));
    CHECK(identical(alone_grad.initial_state, state(grad.initial_state)));
    slopes += alone_grad.slopes;
  }
  CHECK(slopes == grad.slopes);
  const auto middle = [](const Tensor<double>& x) { return test::copy_of<4>(x.view<4>().slice(0, 1, 2)); };
  CHECK(identical(middle(result.state), middle(initial)));
  CHECK(identical(middle(grad.initial_state), middle(d_final)));
}

TEST_CASE("attention.lightning: decoding token by token equals the prefill") {
  Rng rng(7);
  for (const auto& [dim, value_dim] : {std::array<Index, 2>{5, 3}, {16, 64}, {8, 130}}) {
    const Problem<float> p(rng, 2, 3, 21, dim, value_dim);
    const auto whole = p.forward();
    Tensor<float> state = p.initial, output({2, 3, 21, value_dim});
    for (Index t = 0; t < 21; ++t) {
      const auto token = [&](const auto& x) {
        return test::copy_of<3>(x.template view<4>().transposed(0, 2)[t].transposed(0, 1));
      };
      lightning_decode_step(token(p.q), token(p.k), token(p.v), p.slopes, state,
                            output.view<4>().transposed(0, 2)[t].transposed(0, 1));
    }
    CHECK(relative_difference(output, whole.output) < 2e-6);
    CHECK(relative_difference(state, whole.state) < 2e-6);
  }
}

TEST_CASE("attention.lightning: a change of a token leaves earlier outputs untouched bit for bit") {
  Rng rng(8);
  const Index length = 80;
  Problem<float> p(rng, 1, 3, length, 8, 8);
  const auto before = p.forward();
  for (const Index changed : {3, 63, 64, 79}) {
    Problem<float> other = p;
    for (Index h = 0; h < 3; ++h)
      for (Index d = 0; d < 8; ++d) {
        other.q.view<4>()(0, h, changed, d) += 1e6f;
        other.k.view<4>()(0, h, changed, d) -= 1e6f;
        other.v.view<4>()(0, h, changed, d) += 1e6f;
      }
    const auto after = other.forward();
    const auto early = [&](const Tensor<float>& x) { return test::copy_of<4>(x.view<4>().slice(2, 0, changed)); };
    CHECK(identical(early(before.output), early(after.output)));
    CHECK_FALSE(identical(before.output, after.output));
  }
}

TEST_CASE("attention.lightning: float and bfloat16 inputs stay close to double on the same numbers") {
  Rng rng(9);
  const Index heads = 4, length = 2048, dim = 64;
  const auto draw = [&] { return normal_tensor<float>(rng, {1, heads, length, dim}, 0.1); };
  const auto q = draw(), k = draw(), v = draw();
  const Vector<double> slopes = (Vector<double>(4) << 0.5, 0.1, 0.01, 0).finished();
  const auto frobenius = [&](const auto& a, const Tensor<double>& b, Index h) {
    double difference = 0, norm = 0;
    for (Index i = h * length * dim; i < (h + 1) * length * dim; ++i) {
      const double y = b.data()[i], gap = to_float(a.data()[i]) - y;
      difference += gap * gap;
      norm += y * y;
    }
    return std::sqrt(difference / norm);
  };
  const auto exact = lightning_attention(cast<double>(q), cast<double>(k), cast<double>(v), slopes);
  const auto single = lightning_attention(q, k, v, slopes);
  const auto low = [&]<class F>(F) {
    return lightning_attention(cast<F>(q), cast<F>(k), cast<F>(v), slopes);
  };
  const auto brain = low(bfloat16{});
  const auto half_precision = low(half{});
  for (Index h = 0; h < heads; ++h) {
    INFO("head " << h);
    CHECK(frobenius(single, exact, h) < 1e-6);
    CHECK(frobenius(brain, exact, h) < 1e-2);
    CHECK(frobenius(half_precision, exact, h) < 2e-3);
  }
}

TEST_CASE("attention.lightning: a state that hardly decays is not biased in float") {
  Rng rng(10);
  const Index length = 16384;
  const auto k = normal_tensor<float>(rng, {1, 1, length, 4}), v = normal_tensor<float>(rng, {1, 1, length, 4});
  const Tensor<float> initial({1, 1, 4, 4}, 1000.0f);
  const Vector<double> slopes = Vector<double>::Constant(1, 1e-6);
  const auto exact = lightning_attention_with_state(cast<double>(k), cast<double>(k), cast<double>(v), slopes, cast<double>(initial));
  const auto single = lightning_attention_with_state(k, k, v, slopes, initial);
  CHECK(relative_difference(single.state, exact.state) < 1e-6);
}

TEST_CASE("attention.lightning: large slopes underflow to local attention without a log of zero") {
  Rng rng(11);
  Problem<float> p(rng, 1, 1, 70, 8, 8);
  p.slopes[0] = 500;
  const auto result = p.forward();
  const auto q = p.q.view<4>()[0][0], k = p.k.view<4>()[0][0], v = p.v.view<4>()[0][0];
  for (const Index t : {1, 33, 69}) {
    float score = 0;
    for (Index d = 0; d < 8; ++d) score += q(t, d) * k(t, d);
    for (Index e = 0; e < 8; ++e) CHECK(std::abs(result.output.view<4>()(0, 0, t, e) - score * v(t, e)) < 1e-4f);
  }
  const auto grad = p.backward();
  CHECK(std::isfinite(test::max_magnitude(grad.q)));
  CHECK(std::isfinite(grad.slopes[0]));
}

TEST_CASE("attention.lightning: empty sequences return the initial state") {
  Rng rng(12);
  const Problem<float> p(rng, 2, 2, 0, 3, 4);
  const auto result = p.forward();
  CHECK(result.output.size() == 0);
  CHECK(identical(result.state, p.initial));
  CHECK(identical(p.backward().initial_state, p.d_final));
}

TEST_CASE("attention.lightning: strided views give the bits of contiguous ones") {
  Rng rng(13);
  const auto fused = normal_tensor<float>(rng, {2, 40, 3, 3 * 8});  // [batch, length, heads, q k v]
  const auto part = [&](Index i) { return fused.view<4>().transposed(1, 2).slice(3, 8 * i, 8 * i + 8); };
  const std::vector<double> slopes{0.1, 0.2, 0};
  const auto q = test::copy_of<4>(part(0)), k = test::copy_of<4>(part(1)), v = test::copy_of<4>(part(2));
  const auto expected = lightning_attention(q, k, v, slopes);
  CHECK(identical(lightning_attention(part(0), part(1), part(2), slopes), expected));

  Tensor<float> output({2, 40, 8, 3});  // [batch, length, dim, heads]: no unit stride anywhere it would help
  Workspace workspace;
  lightning_forward(part(0), part(1), part(2), slopes, output.view<4>().transposed(1, 3).transposed(2, 3), {}, workspace);
  CHECK(identical(test::copy_of<4>(output.view<4>().transposed(1, 3).transposed(2, 3)), expected));
}

TEST_CASE("attention.lightning: the same bits for one two and four threads with one head or many") {
  Rng rng(14);
  for (const Index heads : {1, 6}) {
    const Problem<float> p(rng, 1, heads, 700, 16, 16);
    const LightningOptions options{.tile = 8};
    const auto forward = [&] { return p.forward(options); };
    const auto backward = [&] { return p.backward(options); };
    const auto one = test::with_threads(1, forward);
    const auto one_grad = test::with_threads(1, backward);
    for (const int threads : {2, 4}) {
      const auto many = test::with_threads(threads, forward);
      CHECK(identical(one.output, many.output));
      CHECK(identical(one.state, many.state));
      const auto many_grad = test::with_threads(threads, backward);
      CHECK(identical(one_grad.q, many_grad.q));
      CHECK(identical(one_grad.k, many_grad.k));
      CHECK(identical(one_grad.v, many_grad.v));
      CHECK(identical(one_grad.initial_state, many_grad.initial_state));
      CHECK(one_grad.slopes == many_grad.slopes);
    }
  }
}

TEST_CASE("attention.lightning: the final state may overwrite the initial state") {
  Rng rng(15);
  const Problem<double> p(rng, 2, 2, 30, 4, 4);
  Tensor<double> state = p.initial;
  Tensor<double> output(p.v.shape());
  Workspace workspace;
  lightning_forward(p.q, p.k, p.v, p.slopes, output.view<4>(), {.initial = state, .final = state}, workspace);
  CHECK(identical(state, p.forward().state));
  CHECK(identical(output, p.forward().output));
}

TEST_CASE("attention.lightning: in-place forms allocate nothing and their scratch does not grow with the length") {
  Rng rng(16);
  Workspace workspace;
  const auto bytes = [&](Index length) {
    const Problem<float> p(rng, 1, 2, length, 16, 16);
    Tensor<float> o(p.v.shape());
    lightning_forward(p.q, p.k, p.v, p.slopes, o.view<4>(), {}, workspace, {.tile = 8});
    return workspace.bytes();
  };
  const Index grown = bytes(2048);
  CHECK(bytes(16384) == grown);

  Problem<float> p(rng, 1, 2, 300, 16, 16);
  Tensor<float> o(p.v.shape()), state = p.initial;
  LightningGradients<float> grad = p.backward();
  const LightningGradientViews<float> views{grad.q, grad.k, grad.v, grad.initial_state, grad.slopes};
  const auto forward = [&] { lightning_forward(p.q, p.k, p.v, p.slopes, o.view<4>(), {p.initial, state}, workspace); };
  const auto backward = [&] { lightning_backward(p.q, p.k, p.v, p.slopes, p.d_o, p.initial, p.d_final, views, workspace); };
  const auto first_token = [](auto& x) { return x.template view<4>().transposed(0, 2)[0].transposed(0, 1); };
  const auto decode = [&] {
    lightning_decode_step(first_token(p.q), first_token(p.k), first_token(p.v), p.slopes, state, first_token(o));
  };
  test::with_threads(1, [&] {
    forward(), backward(), decode();
    CHECK(test::allocations(forward) == 0);
    CHECK(test::allocations(backward) == 0);
    CHECK(test::allocations(decode) == 0);
  });
}

TEST_CASE("attention.lightning: bad input is refused with the argument its expectation and its value") {
  Rng rng(17);
  const Problem<float> p(rng, 2, 3, 10, 4, 5);
  const auto attend = [&](const Tensor<float>& k, const Tensor<float>& v, const std::vector<double>& slopes,
                          const LightningOptions& options = {}) {
    return message_of<InvalidArgument>([&] { lightning_attention(p.q, k, v, slopes, options); });
  };
  const std::vector<double> good{0.1, 0.2, 0.3};
  CHECK(attend(Tensor<float>({2, 3, 9, 4}), p.v, good) ==
        "lightning_attention: k has shape [2,3,9,4], expected [2,3,10,4] (same as q)");
  CHECK(attend(p.k, Tensor<float>({2, 3, 9, 5}), good) ==
        "lightning_attention: v has shape [2,3,9,5], expected [2,3,10,5] (same batch, heads and length as q)");
  CHECK(attend(p.k, p.v, {0.1, 0.2}) == "lightning_attention: slopes has shape [2], expected [3] (one per head)");
  CHECK(attend(p.k, p.v, {0.1, -0.2, 0}) ==
        "lightning_attention: slopes[1] must be finite and not negative, got -0.2");
  CHECK(attend(p.k, p.v, {0.1, 0.2, NAN}) == "lightning_attention: slopes[2] must be finite and not negative, got nan");
  CHECK(attend(p.k, p.v, good, {.tile = 0}) == "lightning_attention: tile must be at least 1, got 0");
  const auto packed = [&](const std::vector<Index>& offsets) {
    const Problem<float> one(rng, 1, 3, 10, 4, 5);
    return message_of<InvalidArgument>([&] { lightning_attention(one.q, one.k, one.v, good, {.offsets = offsets}); });
  };
  CHECK(packed({1, 10}) == "lightning_attention: offsets[0] must be 0, got 1");
  CHECK(packed({0, 7, 6, 10}) == "lightning_attention: offsets[2] must be at least offsets[1] = 7, got 6");
  CHECK(packed({0, 9}) == "lightning_attention: the last offset must be the length 10, got 9");
  const std::vector<Index> offsets{0, 10};
  CHECK(attend(p.k, p.v, good, {.offsets = offsets}) ==
        "lightning_attention: the batch of packed sequences must be 1, got 2");

  Workspace workspace;
  Tensor<float> state({2, 3, 4, 4}), v = p.v;
  CHECK(message_of<InvalidArgument>([&] {
          lightning_forward(p.q, p.k, v, good, v.view<4>(), {}, workspace);
        }) == "lightning_attention: o overlaps v; outputs need memory of their own");
  Tensor<float> o(p.v.shape());
  CHECK(message_of<InvalidArgument>([&] {
          lightning_forward(p.q, p.k, p.v, good, o.view<4>(), {.initial = state}, workspace);
        }) ==
        "lightning_attention: the initial state has shape [2,3,4,4], expected [2,3,4,5] (one state per sequence and head)");
  CHECK(test::max_magnitude(o) == 0);
}

}  // namespace
}  // namespace ashlar::attention
