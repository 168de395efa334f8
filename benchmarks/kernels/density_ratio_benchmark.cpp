// KuLSIF's whole path against one symmetric eigendecomposition of the same size, which is what the textbook route
// starts with; Gram matrices and kernel products against Eigen's expressions.
#include <Eigen/Dense>
#include <memory>

#include "ashlar/core/random.hpp"
#include "ashlar/kernels/density_ratio.hpp"
#include "ashlar/kernels/kulsif_path.hpp"
#include "ashlar/linalg/cholesky.hpp"
#include "ashlar/linalg/gram.hpp"
#include "support/scoreboard.hpp"

namespace ashlar {
namespace {

struct Points {
  Matrix<double> p, q;
  Points(Index n, Index d) {
    Rng rng(1);
    p = (normal_matrix<double>(rng, n, d).array() + 0.3).matrix();
    q = normal_matrix<double>(rng, n, d);
  }
  linalg::RbfKernel kernel() const { return linalg::RbfKernel(1.0 / (2.0 * static_cast<double>(p.cols())), 1); }
};

/// What a user writes with Eigen alone: one product, then an expression.
template <class T>
Matrix<T> plain_gram(const Matrix<T>& x, const Matrix<T>& y, double gamma) {
  Matrix<T> d = T(-2) * x * y.transpose();
  d.colwise() += x.rowwise().squaredNorm();
  d.rowwise() += y.rowwise().squaredNorm().transpose();
  return T(1) + (static_cast<T>(-gamma) * d.array().max(T(0))).exp();
}

template <class T>
void add_gram(Index n, Index d, const char* type) {
  const std::string size = message(type, " n=", n, " d=", d);
  const double pairs = static_cast<double>(n) * static_cast<double>(n);
  const auto prepare = [=] {
    const Points points(n, d);
    return std::tuple(points.kernel(), Matrix<T>(points.p.cast<T>()), Matrix<T>(points.q.cast<T>()));
  };
  // The roofs are those of float: a double takes twice the time.
  const double weight = pairs * sizeof(T) / 4;
  const scoreboard::Work work{.flops = 2 * static_cast<double>(d) * weight, .exps = weight};
  scoreboard::add({"linalg.gram", size, "ashlar", work}, [=] {
    const auto [kernel, x, y] = prepare();
    auto tiles = std::make_shared<linalg::KernelTiles<T, linalg::RbfKernel>>(kernel, y);
    return [tiles, x = x, out = Matrix<T>(n, n), workspace = std::make_shared<Workspace>()]() mutable {
      tiles->gram(x, out, *workspace);
    };
  });
  scoreboard::add({"linalg.gram", size, "Eigen expression", work}, [=] {
    const auto [kernel, x, y] = prepare();
    return [kernel = kernel, x = x, y = y, out = Matrix<T>()]() mutable { out = plain_gram(x, y, kernel.gamma()); };
  });
  scoreboard::add({"linalg.kernel_product", size, "ashlar", work}, [=] {
    const auto [kernel, x, y] = prepare();
    return [kernel = kernel, x = x, y = y, out = Vector<T>()]() mutable {
      out = linalg::kernel_product(kernel, x, y, Vector<T>::Ones(y.rows()).eval());
    };
  });
  scoreboard::add({"linalg.kernel_product", size, "Eigen expression", work}, [=] {
    const auto [kernel, x, y] = prepare();
    return [kernel = kernel, x = x, y = y, out = Vector<T>()]() mutable {
      out = plain_gram(x, y, kernel.gamma()) * Vector<T>::Ones(y.rows());
    };
  });
}

void add_path(Index n, Index d, int threads) {
  const std::string size = message("m=n=", n, " d=", d, " 11x10", threads > 1 ? " threads" : "");
  const auto points = [=] { return std::make_shared<Points>(n, d); };
  const double order = static_cast<double>(n);
  const scoreboard::Work work{.flops = 2 * 11 * order * order * order / 3};  // doubles; the roof counts floats
  scoreboard::add({"kernels.kulsif_path", size, "ashlar", work, threads}, [=] {
    return [data = points()] {
      const auto path = kernels::fit_kulsif_path(data->p, data->q, data->kernel(), kernels::default_lambdas(), 10);
      benchmark::DoNotOptimize(&path);
    };
  });
  // The first step of the textbook route alone: the recursion in the eigenbasis would come on top.
  scoreboard::add({"kernels.kulsif_path", size, "one eigendecomposition", {}, threads}, [=] {
    auto data = points();
    const Eigen::MatrixXd k = linalg::gram(data->kernel(), data->q) / order;
    return [k] {
      const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(k);
      benchmark::DoNotOptimize(eigen.eigenvalues().data());
    };
  });
}

void add_fit(Index n, Index d) {
  const std::string size = message("m=n=", n, " d=", d, " t=10");
  const auto points = [=] { return std::make_shared<Points>(n, d); };
  scoreboard::add({"kernels.kulsif_fit", size, "ashlar"}, [=] {
    return [data = points()] {
      const auto model =
          kernels::fit_density_ratio(data->p, data->q, data->kernel(), {.lambda = 0.1, .iterations = 10});
      benchmark::DoNotOptimize(&model);
    };
  });
  scoreboard::add({"kernels.kulsif_fit", size, "Eigen LLT"}, [=] {
    return [data = points()] {
      const double gamma = data->kernel().gamma(), lambda = 0.1, count = static_cast<double>(data->q.rows());
      Eigen::MatrixXd system = plain_gram(data->q, data->q, gamma) / count;
      system.diagonal().array() += lambda;
      const Eigen::VectorXd sums = plain_gram(data->q, data->p, gamma).rowwise().sum();
      const Eigen::LLT<Eigen::MatrixXd> factor(system);
      Eigen::VectorXd alpha = Eigen::VectorXd::Zero(sums.size());
      for (int t = 1; t <= 10; ++t) alpha = factor.solve(lambda * alpha - t / (lambda * count * count) * sums).eval();
      benchmark::DoNotOptimize(alpha.data());
    };
  });
  scoreboard::add(
      {"kernels.kulsif_predict", size, "ashlar", {.exps = 4 * static_cast<double>(n) * static_cast<double>(n)}}, [=] {
        auto data = points();
        auto model = std::make_shared<kernels::DensityRatio<double, linalg::RbfKernel>>(
            kernels::fit_density_ratio(data->p, data->q, data->kernel(), {.lambda = 0.1, .iterations = 10}));
        return [data, model, out = Vector<double>(n), workspace = std::make_shared<Workspace>()]() mutable {
          model->score(data->q, out, *workspace);
        };
      });
}

void add_cholesky(Index n) {
  const auto matrix = [=] {
    const Points points(n, 10);
    Matrix<double> k = linalg::gram(points.kernel(), points.q) / static_cast<double>(n);
    k.diagonal().array() += 0.01;
    return k;
  };
  const double order = static_cast<double>(n);
  const scoreboard::Work work{.flops = 2 * order * order * order / 3};  // doubles; the roof counts floats
  scoreboard::add({"linalg.cholesky", message("n=", n), "ashlar", work}, [=] {
    return [k = matrix()] {
      const linalg::Cholesky<double> factor(k);
      benchmark::DoNotOptimize(factor.factor().data());
    };
  });
  scoreboard::add({"linalg.cholesky", message("n=", n), "Eigen LLT", work}, [=] {
    return [k = matrix()] {
      const Eigen::LLT<Matrix<double>> factor(k);
      benchmark::DoNotOptimize(factor.matrixLLT().data());
    };
  });
}

[[maybe_unused]] const bool registered = [] {
  for (const Index d : {10, 50}) {
    add_gram<double>(2000, d, "double");
    add_gram<float>(2000, d, "float");
  }
  add_path(500, 10, 1);
  add_path(2000, 10, 1);
  add_path(2000, 10, 2);
  add_fit(500, 10);
  add_fit(2000, 50);
  add_cholesky(500);
  add_cholesky(2000);
  return true;
}();

}  // namespace
}  // namespace ashlar
