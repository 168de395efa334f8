#include <ashlar/core/random.hpp>
#include <ashlar/core/tensor.hpp>
#include <iostream>

int main() {
  ashlar::Rng rng(42);
  const ashlar::Tensor<float> x = ashlar::normal_tensor<float>(rng, {2, 3});
  std::cout << x.matrix() << '\n';
}
