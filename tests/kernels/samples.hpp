// Data that the tests of density ratios share.
#pragma once

#include <string>

#include "ashlar/core/random.hpp"
#include "ashlar/kernels/density_ratio_loss.hpp"
#include "support/fixture.hpp"

namespace ashlar::kernels {

inline constexpr Loss all_losses[] = {Loss::kulsif, Loss::logistic, Loss::exponential, Loss::square, Loss::kliep};

inline Matrix<double> data(const std::string& file) {
  const auto array = test::fixture("density_ratio/" + file);
  return array.rank() == 2 ? Matrix<double>(array.matrix())
                           : Matrix<double>(Eigen::Map<const Vector<double>>(array.data(), array.size()));
}

/// max |a - b| / max |b|.
template <class A, class B>
double relative(const A& a, const B& b) {
  return static_cast<double>((a - b).cwiseAbs().maxCoeff() / b.cwiseAbs().maxCoeff());
}

/// Two overlapping normal samples.
template <class T = double>
struct Samples {
  Matrix<T> p, q;
  explicit Samples(std::uint64_t seed, Index m = 25, Index n = 35, Index d = 2) {
    Rng rng(seed);
    p = normal_matrix<T>(rng, m, d, 0.8);
    p.array() += T(0.4);
    q = normal_matrix<T>(rng, n, d);
  }
  Matrix<T> pooled() const {
    Matrix<T> x(p.rows() + q.rows(), p.cols());
    x << p, q;
    return x;
  }
  Vector<T> weights() const {
    Vector<T> w(p.rows() + q.rows());
    w << Vector<T>::Constant(p.rows(), T(1) / static_cast<T>(p.rows())),
        Vector<T>::Constant(q.rows(), T(1) / static_cast<T>(q.rows()));
    return w;
  }
};

}  // namespace ashlar::kernels
