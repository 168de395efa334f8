// Modules to and from safetensors files, under the names that for_each_tensor gives.
//
//   nn::save(model, "model.safetensors");
//   nn::load(model, "model.safetensors");
//
// An optimiser is a module too: saving both and loading both continues a training run with the same bits.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/io/safetensors.hpp"
#include "ashlar/nn/module.hpp"

namespace ashlar::nn {

/// Writes every tensor of a module. The file appears whole or not at all.
template <Module M>
void save(M& module, const std::string& path, const std::map<std::string, std::string>& metadata = {}) {
  std::vector<io::NamedTensor> tensors;
  for_each_tensor(module, [&](const std::string& name, auto& tensor) { tensors.emplace_back(name, tensor); });
  io::save_safetensors(path, tensors, metadata);
}

/// Reads every tensor of a module; 16-bit and 8-bit files are converted. Throws ParseError for a file that is none, and
/// InvalidArgument when a name is missing, left over or has another shape; the module is then as it was.
template <Module M>
void load(M& module, const std::string& path) {
  const io::Safetensors file(path);
  std::set<std::string> left;
  for (const auto& name : file.names()) left.insert(std::string(name));
  for_each_tensor(module, [&](const std::string& name, auto& tensor) {
    require(left.erase(name) == 1, "load", path, " has no tensor \"", name, "\"");
    check_shape("load", name, file.shape(name).extents(), tensor.shape().extents(), "shape of the module's");
  });
  require(left.empty(), "load", path, " has a tensor \"", left.empty() ? "" : *left.begin(),
          "\" that the module has not");
  for_each_tensor(module, [&](const std::string& name, auto& tensor) {
    using T = typename std::remove_cvref_t<decltype(tensor)>::value_type;
    tensor = file.tensor<T>(name, io::Conversion::any);
  });
}

}  // namespace ashlar::nn
