#include "ashlar/io/dlpack.hpp"

#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"

namespace ashlar {
namespace {

using test::message_of;

/// A [2,3] tensor of floats 0 ... 5 as another library would hand it over.
struct Foreign {
  std::vector<float> numbers{0, 1, 2, 3, 4, 5};
  std::vector<std::int64_t> shape{2, 3}, strides{3, 1};
  DLTensor tensor{};

  Foreign() {
    tensor.data = numbers.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 2;
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = shape.data();
  }
  std::string refusal() {
    return message_of<InvalidArgument>([&] { View<const float, 2>{tensor}; });
  }
};

float last(const View<const float, 2>& x) { return x(x.extent(0) - 1, x.extent(1) - 1); }

TEST_CASE("io.dlpack: a foreign tensor converts to a view of its memory") {
  Foreign foreign;
  CHECK(last(foreign.tensor) == 5);
  const View<float, 2> x = foreign.tensor;
  CHECK(x.data() == foreign.numbers.data());
  CHECK(x.contiguous());
  foreign.tensor.strides = foreign.strides.data();
  CHECK(last(foreign.tensor) == 5);
  const DLTensor& constant = foreign.tensor;
  CHECK(last(constant) == 5);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<DLTensor&, View<float, 2, device>>);
}

TEST_CASE("io.dlpack: strides and the byte offset are followed") {
  Foreign foreign;
  foreign.shape = {3, 2};
  foreign.strides = {1, 3};
  foreign.tensor.strides = foreign.strides.data();
  View<const float, 2> x = foreign.tensor;
  CHECK((x(0, 1) == 3 && x(2, 0) == 2 && x(2, 1) == 5));

  foreign.shape = {1, 2};
  foreign.tensor.byte_offset = 8;
  x = foreign.tensor;
  CHECK((x(0, 0) == 2 && x(0, 1) == 5));

  foreign.shape = {2, 3};
  foreign.strides = {-3, -1};
  foreign.tensor.byte_offset = 20;
  x = foreign.tensor;
  CHECK((x(0, 0) == 5 && x(1, 2) == 0));

  foreign.shape = {0, 3};
  foreign.tensor.data = nullptr;
  CHECK(View<const float, 2>(foreign.tensor).empty());
}

TEST_CASE("io.dlpack: what does not match the view is an invalid argument") {
  const auto refused = [](auto&& change) {
    Foreign foreign;
    change(foreign);
    return foreign.refusal();
  };
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  CHECK(refused([](auto&) {}) == "nothing thrown");
  CHECK(refused([](auto& f) { f.tensor.ndim = 3; }) == "from_dlpack: the tensor has rank 3, expected 2");
  CHECK(refused([](auto& f) { f.tensor.ndim = -1; }) == "from_dlpack: the tensor has rank -1, expected 2");
  CHECK(refused([](auto& f) { f.tensor.dtype.bits = 64; }) ==
        "from_dlpack: the elements are float64, expected float32");
  CHECK(refused([](auto& f) { f.tensor.dtype.code = kDLInt; }) ==
        "from_dlpack: the elements are int32, expected float32");
  CHECK(refused([](auto& f) { f.tensor.dtype = {kDLBfloat, 16, 1}; }) ==
        "from_dlpack: the elements are bfloat16, expected float32");
  CHECK(refused([](auto& f) { f.tensor.dtype.lanes = 4; }) ==
        "from_dlpack: the elements are float32x4, expected float32");
  CHECK(refused([](auto& f) { f.tensor.dtype.code = 99; }) ==
        "from_dlpack: the elements are type code 99:32, expected float32");
  CHECK(refused([](auto& f) { f.tensor.device.device_type = kDLCUDA; }) ==
        "from_dlpack: the memory is on DLPack device type 2, expected host memory");
  CHECK(refused([](auto& f) { f.tensor.device.device_type = kDLCUDAHost; }) == "nothing thrown");
  CHECK(refused([](auto& f) { f.tensor.shape = nullptr; }) == "from_dlpack: the shape is a null pointer");
  CHECK(refused([](auto& f) { f.tensor.data = nullptr; }) == "from_dlpack: the data is a null pointer");
  CHECK(refused([](auto& f) { f.tensor.byte_offset = 2; }) == "from_dlpack: the data is not aligned to 4 bytes");
  CHECK(refused([](auto& f) { f.shape[0] = -2; }) == "Shape: extents must not be negative, got [-2,3]");
  CHECK(refused([&](auto& f) { f.shape[0] = largest; }) ==
        "Shape: [9223372036854775807,3] has more elements than an index can count");
  for (const std::int64_t stride : {largest, -largest - 1, largest / 64, -largest / 64})
    CHECK(refused([&](auto& f) {
            f.strides = {stride, 1};
            f.tensor.strides = f.strides.data();
          }) == message("from_dlpack: strides [", stride, ",1] lead further than an index can count"));
}

TEST_CASE("io.dlpack: device memory becomes a device view and nothing else") {
  Foreign foreign;
  foreign.tensor.device = {kDLCUDA, 0};
  const auto x = io::from_dlpack<const float, 2, device>(foreign.tensor);
  CHECK(x.data() == foreign.numbers.data());
  CHECK(x.extent(1) == 3);
  foreign.tensor.device = {kDLCPU, 0};
  CHECK(message_of<InvalidArgument>([&] { io::from_dlpack<const float, 2, device>(foreign.tensor); }) ==
        "from_dlpack: the memory is on DLPack device type 1, expected CUDA memory");
}

template <class T>
void has_type(std::uint8_t code, std::uint8_t bits) {
  Tensor<T> tensor({2, 1, 3});
  const T* const data = tensor.data();
  const auto managed = io::to_dlpack(std::move(tensor));
  const DLTensor& dl = managed->dl_tensor;
  CHECK(dl.dtype.code == code);
  CHECK(dl.dtype.bits == bits);
  CHECK(dl.dtype.lanes == 1);
  CHECK(dl.data == data);
  CHECK(View<const T, 3>(dl).data() == data);
}

TEST_CASE("io.dlpack: our tensors carry the type codes of DLPack") {
  has_type<float>(kDLFloat, 32);
  has_type<double>(kDLFloat, 64);
  has_type<half>(kDLFloat, 16);
  has_type<bfloat16>(kDLBfloat, 16);
  has_type<std::int8_t>(kDLInt, 8);
  has_type<std::int16_t>(kDLInt, 16);
  has_type<std::int32_t>(kDLInt, 32);
  has_type<std::int64_t>(kDLInt, 64);
  has_type<std::uint8_t>(kDLUInt, 8);
  has_type<std::uint16_t>(kDLUInt, 16);
  has_type<std::uint32_t>(kDLUInt, 32);
  has_type<std::uint64_t>(kDLUInt, 64);
}

TEST_CASE("io.dlpack: a tensor handed over lives until its deleter is called") {
  Tensor<double> tensor({2, 3, 4});
  std::iota(tensor.data(), tensor.data() + tensor.size(), 0.0);
  const double* const data = tensor.data();
  DLManagedTensor* theirs = io::to_dlpack(std::move(tensor)).release();
  REQUIRE(theirs->dl_tensor.ndim == 3);
  CHECK(theirs->dl_tensor.data == data);  // moved, not copied
  CHECK(theirs->dl_tensor.device.device_type == kDLCPU);
  CHECK(theirs->dl_tensor.byte_offset == 0);
  for (int axis = 0; axis < 3; ++axis) {
    CHECK(theirs->dl_tensor.shape[axis] == axis + 2);
    CHECK(theirs->dl_tensor.strides[axis] == (axis == 0 ? 12 : axis == 1 ? 4 : 1));
  }
  CHECK(View<const double, 3>(theirs->dl_tensor)(1, 2, 3) == 23);
  theirs->deleter(theirs);  // the address sanitizer watches that this frees everything once
  CHECK(message_of<InvalidArgument>([] { io::to_dlpack(Tensor<float>()); }) ==
        "to_dlpack: the tensor was moved from or never given a shape");
}

TEST_CASE("io.dlpack: an owned foreign tensor is given back once") {
  static int deleted;
  deleted = 0;
  Foreign foreign;
  DLManagedTensor managed{};
  managed.dl_tensor = foreign.tensor;
  managed.deleter = [](DLManagedTensor*) { ++deleted; };
  {
    io::DLPackTensor ours(&managed);
    const io::DLPackTensor kept = std::move(ours);
    CHECK(last(kept->dl_tensor) == 5);
  }
  CHECK(deleted == 1);
  managed.deleter = nullptr;  // allowed: nothing to free
  io::DLPackTensor{&managed}.reset();
}

}  // namespace
}  // namespace ashlar
