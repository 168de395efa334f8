// Arrays of tests/data.
#pragma once

#include <string>

#include "ashlar/io/npy.hpp"

namespace ashlar::test {

/// tests/data/<name>.npy with its elements converted to T.
template <class T = double>
Tensor<T> fixture(const std::string& name) {
  return io::load_npy<T>(std::string(ASHLAR_TEST_DATA) + "/" + name + ".npy", io::Conversion::any);
}

}  // namespace ashlar::test
