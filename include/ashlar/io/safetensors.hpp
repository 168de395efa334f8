// Named tensors in one file: the safetensors format of model weights.
//
//   const io::Safetensors weights("model.safetensors");
//   View<const float, 2> w = weights.view<float, 2>("layer.weight");            // no copy, lives as long as `weights`
//   Tensor<float> b = weights.tensor<float>("layer.bias", io::Conversion::any);
//   io::save_safetensors("copy.safetensors", {{"layer.weight", w}, {"layer.bias", b}}, {{"step", "12"}});
//
// Source: the format description of the safetensors project, whose own writer makes the same files byte for byte.
#pragma once

#if !__has_include(<nlohmann/json.hpp>)
#error "ashlar/io/safetensors.hpp needs nlohmann-json (Debian and Ubuntu: nlohmann-json3-dev)"
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/io/detail/write_file.hpp"
#include "ashlar/io/mapped_file.hpp"
#include "ashlar/io/number.hpp"

namespace ashlar::io {

namespace detail {

/// One tensor of the header. Offsets count from the end of the header.
struct SafetensorsEntry {
  std::optional<DType> dtype;
  std::optional<Shape> shape;
  std::optional<std::pair<std::size_t, std::size_t>> offsets;
};

/// Receives the header's JSON as it is read and keeps only what the format allows, so that nothing a file says can
/// nest deeply or pile up values:
///   {"__metadata__": {"key": "text", ...}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
class SafetensorsHeader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Json = nlohmann::json;

  explicit SafetensorsHeader(std::string_view file) : file_(file) {}

  std::map<std::string, SafetensorsEntry, std::less<>> entries;
  std::map<std::string, std::string> metadata;

  bool start_object(std::size_t) override {
    if (depth_ >= 2 || in_array_) unexpected("an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 1 && !in_metadata_) {
      const auto& entry = entries.at(name_);
      if (!entry.dtype || !entry.shape || !entry.offsets) fail("one of dtype, shape and data_offsets is missing");
    }
    in_metadata_ = false;
    return true;
  }
  bool key(Json::string_t& text) override {
    if (depth_ == 1) {
      name_ = text;
      in_metadata_ = name_ == "__metadata__";
      const bool first = in_metadata_ ? !std::exchange(metadata_seen_, true) : entries.try_emplace(name_).second;
      if (!first) fail("the name appears twice");
    } else {
      key_ = text;
      if (in_metadata_ && metadata.contains(key_)) fail("the key \"", key_, "\" appears twice");
      if (!in_metadata_) check_key();
    }
    return true;
  }
  bool string(Json::string_t& text) override {
    if (depth_ == 2 && in_metadata_) {
      metadata.emplace(key_, text);
      return true;
    }
    if (depth_ != 2 || key_ != "dtype" || in_array_) unexpected("a string");
    const auto at = std::ranges::find(dtype_table, std::string_view(text), &DTypeInfo::name);
    if (at == std::end(dtype_table)) fail("the dtype \"", text, "\" is not supported");
    entries.at(name_).dtype = at->dtype;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || in_array_ || key_ == "dtype") unexpected("an array");
    in_array_ = true;
    count_ = 0;
    return true;
  }
  bool number_unsigned(Json::number_unsigned_t number) override {
    if (!in_array_) unexpected("a number");
    if (number > static_cast<std::uint64_t>(std::numeric_limits<Index>::max()))
      fail(key_, " holds a number larger than an index");
    if (count_ == numbers_.size()) fail(key_, key_ == "shape" ? " has more than 8 axes" : " has more than two numbers");
    numbers_[count_++] = static_cast<Index>(number);
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    auto& entry = entries.at(name_);
    if (key_ == "shape") {
      const std::span<const Index> extents(numbers_.data(), count_);
      entry.shape = checked_shape(extents);
      if (!entry.shape) fail("shape ", extents, " has more elements than an index can count");
    } else {
      if (count_ != 2 || numbers_[0] > numbers_[1]) fail("data_offsets must be [begin, end] with begin <= end");
      entry.offsets.emplace(static_cast<std::size_t>(numbers_[0]), static_cast<std::size_t>(numbers_[1]));
    }
    return true;
  }
  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(Json::number_integer_t) override { unexpected("a negative number"); }
  bool number_float(Json::number_float_t, const Json::string_t&) override {
    unexpected("a number that is no 64-bit integer");
  }
  bool binary(Json::binary_t&) override { unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    throw ParseError(message(file_, ": byte ", position + 7, ": the header is not JSON"));
  }

 private:
  void check_key() {
    const auto& entry = entries.at(name_);
    const bool known = key_ == "dtype" || key_ == "shape" || key_ == "data_offsets";
    if (!known) fail("expected the keys dtype, shape and data_offsets, got \"", key_, "\"");
    if ((key_ == "dtype" && entry.dtype) || (key_ == "shape" && entry.shape) ||
        (key_ == "data_offsets" && entry.offsets))
      fail("the key ", key_, " appears twice");
  }
  [[noreturn]] void unexpected(std::string_view what) const {
    if (depth_ == 0) throw ParseError(message(file_, ": byte 8: expected a JSON object as header, got ", what));
    if (depth_ == 1) fail("expected an object, got ", what);
    if (in_metadata_) fail("expected text for the key \"", key_, "\", got ", what);
    fail("expected ", key_ == "dtype" ? "text" : "an array of non-negative integers", " for ", key_, ", got ", what);
  }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... sentence) const {
    throw ParseError(message(file_, ": header entry \"", name_, "\": ", sentence...));
  }

  std::string_view file_;
  int depth_ = 0;
  bool in_metadata_ = false, metadata_seen_ = false, in_array_ = false;
  std::string name_, key_;
  std::array<Index, Shape::max_rank> numbers_{};
  std::size_t count_ = 0;
};

}  // namespace detail

/// A safetensors file, mapped. Movable; views keep pointing into the file, which must outlive them.
///
/// The constructor checks the whole header, so that what it accepts can be used without a further look: the length, the
/// JSON, types, duplicate names, that every tensor's bytes match its shape, lie within the file and follow each other
/// without a hole or an overlap. Throws ParseError "file: ..." with the byte or the entry at fault.
class Safetensors {
 public:
  /// Throws InvalidArgument when the file cannot be read.
  explicit Safetensors(const std::string& path) : file_(path, "Safetensors"), name_(path) { parse(file_.bytes()); }
  /// Bytes in memory, which must outlive this; `name` stands for them in messages.
  explicit Safetensors(std::span<const std::byte> bytes, std::string name = "safetensors") : name_(std::move(name)) {
    parse(bytes);
  }

  /// In alphabetical order.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : entries_) all.push_back(name);
    return all;
  }
  bool contains(std::string_view name) const { return entries_.contains(name); }
  DType dtype(std::string_view name) const { return *find(name, "Safetensors::dtype").dtype; }
  const Shape& shape(std::string_view name) const { return *find(name, "Safetensors::shape").shape; }
  /// The texts under __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// The tensor's bytes where they lie in the file. Throws InvalidArgument when there is no such tensor, its dtype is
  /// not T's or its rank not Rank, or when its bytes are not aligned for a T (files by other writers; tensor() reads
  /// those). Throws ParseError when T is bool and a byte is neither 0 nor 1.
  template <Number T, int Rank>
  View<const T, Rank> view(std::string_view name) const {
    static_assert(std::endian::native == std::endian::little || sizeof(T) == 1,
                  "the file is little-endian: use tensor");
    constexpr std::string_view function = "Safetensors::view";
    const auto& entry = find(name, function);
    require(entry.dtype == detail::dtype_of<T>(), function, "\"", name, "\" holds ", detail::info(*entry.dtype).name,
            ", not ", detail::info(detail::dtype_of<T>()).name);
    const auto extents = entry.shape->extents();
    require(entry.shape->rank() == Rank, function, "\"", name, "\" has shape ", extents, ", expected rank ", Rank);
    const std::byte* const from = data_.data() + entry.offsets->first;
    require(reinterpret_cast<std::uintptr_t>(from) % alignof(T) == 0, function, "\"", name,
            "\" is not aligned in the file: use tensor");
    if constexpr (std::same_as<T, bool>)
      for (Index i = 0; i < entry.shape->size(); ++i) read<T>(name, entry, i);
    typename View<const T, Rank>::Shape shape{};
    std::copy_n(extents.begin(), Rank, shape.begin());
    return {reinterpret_cast<const T*>(from), shape};
  }

  /// A copy of the tensor, of any rank and alignment. Throws InvalidArgument when there is no such tensor or (with
  /// Conversion::exact) its dtype is not T's, ParseError when an integer T cannot hold an element and when a BOOL is
  /// neither 0 nor 1.
  template <Number T>
  Tensor<T> tensor(std::string_view name, Conversion conversion = Conversion::exact) const {
    constexpr std::string_view function = "Safetensors::tensor";
    const auto& entry = find(name, function);
    require(conversion == Conversion::any || entry.dtype == detail::dtype_of<T>(), function, "\"", name, "\" holds ",
            detail::info(*entry.dtype).name, ", not ", detail::info(detail::dtype_of<T>()).name,
            "; Conversion::any would convert");
    auto tensor = Tensor<T>::uninitialized(*entry.shape);
    const std::byte* const from = data_.data() + entry.offsets->first;
    constexpr bool plain = std::endian::native == std::endian::little && !std::same_as<T, bool>;
    if (plain && entry.dtype == detail::dtype_of<T>()) {
      if (tensor.size() != 0) std::memcpy(static_cast<void*>(tensor.data()), from, bytes_of(entry));
      return tensor;
    }
    for (Index i = 0; i < tensor.size(); ++i) tensor.data()[i] = read<T>(name, entry, i);
    return tensor;
  }

 private:
  using Entries = std::map<std::string, detail::SafetensorsEntry, std::less<>>;

  void parse(std::span<const std::byte> bytes) {
    constexpr std::uint64_t longest = 100'000'000;  // the reference implementation's limit
    const auto refuse = [&](const auto&... sentence) { throw ParseError(message(name_, ": byte ", sentence...)); };
    if (bytes.size() < 8) refuse(bytes.size(), ": the file ends within the length of the header");
    std::uint64_t length = 0;
    for (std::size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
    if (length > longest) refuse("0: the header has ", length, " bytes, at most ", longest, " are allowed");
    if (length > bytes.size() - 8)
      refuse("0: the header has ", length, " bytes, but the file ends after ", bytes.size() - 8);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<std::size_t>(length));
    if (!text.starts_with('{')) refuse("8: expected a JSON object as header");
    if (const auto zero = text.find('\0'); zero != text.npos)  // where the JSON parser would stop without a word
      refuse(zero + 8, ": the header is not JSON");
    detail::SafetensorsHeader header(name_);
    nlohmann::json::sax_parse(text.begin(), text.end(), &header);
    entries_ = std::move(header.entries);
    metadata_ = std::move(header.metadata);
    data_ = bytes.subspan(8 + text.size());
    check_layout();
  }

  static std::size_t bytes_of(const detail::SafetensorsEntry& entry) {
    return static_cast<std::size_t>(entry.shape->size() * detail::info(*entry.dtype).bytes);
  }

  /// Tensors sorted by where they begin must tile the data.
  void check_layout() const {
    std::vector<const Entries::value_type*> order;
    for (const auto& named : entries_) order.push_back(&named);
    std::ranges::stable_sort(order, {}, [](const auto* named) { return *named->second.offsets; });
    std::size_t end = 0;
    for (const auto* named : order) {
      const auto& [name, entry] = *named;
      const auto [first, last] = *entry.offsets;
      const std::size_t bytes = bytes_of(entry);
      if (last > data_.size())
        fail(name, "its data ends at byte ", last, " of the data, the file has only ", data_.size());
      if (last - first != bytes)
        fail(name, "shape ", entry.shape->extents(), " of ", detail::info(*entry.dtype).name, " needs ", bytes,
             " bytes, data_offsets span ", last - first);
      if (first != end)
        fail(name, "its data begins at byte ", first, " of the data, expected ", end,
             first < end ? " (overlap)" : " (hole)");
      end = last;
    }
    if (end != data_.size())
      throw ParseError(message(name_, ": the last ", data_.size() - end, " bytes belong to no tensor"));
  }

  const detail::SafetensorsEntry& find(std::string_view name, std::string_view function) const {
    const auto at = entries_.find(name);
    require(at != entries_.end(), function, "there is no tensor \"", name, "\" in ", name_);
    return at->second;
  }

  template <Number T>
  T read(std::string_view name, const detail::SafetensorsEntry& entry, Index i) const {
    const std::byte* const from = data_.data() + entry.offsets->first;
    const auto number = detail::read_as<T>(*entry.dtype, from + i * detail::info(*entry.dtype).bytes,
                                           std::endian::native != std::endian::little);
    if (!number)
      fail(name, detail::info(*entry.dtype).name, " element ", i, " is no ", detail::info(detail::dtype_of<T>()).type);
    return *number;
  }

  template <class... Parts>
  [[noreturn]] void fail(std::string_view tensor, const Parts&... sentence) const {
    throw ParseError(message(name_, ": tensor \"", tensor, "\": ", sentence...));
  }

  MappedFile file_;
  std::string name_;
  std::span<const std::byte> data_;
  Entries entries_;
  std::map<std::string, std::string> metadata_;
};

/// A name for an array that save_safetensors will write. Looks at the array, which must outlive it.
class NamedTensor {
 public:
  template <class T, int Rank>
  NamedTensor(std::string name, const View<T, Rank>& array)
      : name_(std::move(name)),
        dtype_(detail::dtype_of<std::remove_cv_t<T>>()),
        shape_(array.shape()),
        data_(reinterpret_cast<const std::byte*>(array.data())),
        contiguous_(array.contiguous()) {
    std::ranges::copy(array.strides(), strides_.begin());
  }
  template <class T>
  NamedTensor(std::string name, const Tensor<T>& array)
      : name_(std::move(name)),
        dtype_(detail::dtype_of<T>()),
        shape_(array.shape()),
        data_(reinterpret_cast<const std::byte*>(array.data())),
        contiguous_(true) {
    require(data_ != nullptr, "NamedTensor", "\"", name_, "\" was moved from or never given a shape");
  }
  /// Eigen objects, vectors and spans: a vector has one axis, a matrix two.
  template <class X>
  NamedTensor(std::string name, const X& array)
      : NamedTensor(std::move(name), View<const scalar_t<X>, detail::natural_rank<X>>(array)) {}

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::size_t bytes() const { return static_cast<std::size_t>(shape_.size() * detail::info(dtype_).bytes); }

  /// Hands over the elements in row-major order, through calls of put(span of bytes).
  template <class Put>
  void write(Put&& put) const {
    if (contiguous_ && std::endian::native == std::endian::little) return put(std::span(data_, bytes()));
    const auto size = static_cast<std::size_t>(detail::info(dtype_).bytes);
    std::array<std::byte, 8192> buffer;
    std::size_t filled = 0;
    detail::for_each_offset(shape_.extents(), strides_, [&](Index offset) {
      const std::byte* const from = data_ + offset * static_cast<Index>(size);
      std::memcpy(buffer.data() + filled, from, size);
      if constexpr (std::endian::native != std::endian::little)
        std::reverse(buffer.data() + filled, buffer.data() + filled + size);
      filled += size;
      if (filled == buffer.size()) put(std::span<const std::byte>(buffer)), filled = 0;
    });
    put(std::span<const std::byte>(buffer).first(filled));
  }

 private:
  std::string name_;
  DType dtype_;
  Shape shape_;
  std::array<Index, Shape::max_rank> strides_{};
  const std::byte* data_;
  bool contiguous_;  // if not, strides_ lead to the elements
};

/// Writes the tensors, widest type first and then by name, so that every one is aligned in the file, and `metadata`.
/// Throws InvalidArgument when a name appears twice, is __metadata__ or is not UTF-8, and when the file cannot be
/// written; an older file of this name then stays as it was.
inline void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata = {}) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const NamedTensor* t) { return std::pair(t->dtype(), std::string_view(t->name())); });

  const auto quoted = [](const std::string& text) {
    try {
      return nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
      throw InvalidArgument("save_safetensors: a name or metadata text is not UTF-8");
    }
  };
  std::string header = "{";
  const auto entry = [&](const std::string& name) {
    if (header.size() > 1) header += ',';
    header += quoted(name) + ':';
  };
  if (!metadata.empty()) {
    entry("__metadata__");
    char before = '{';
    for (const auto& [key, text] : metadata) {
      header += before + quoted(key) + ':' + quoted(text);
      before = ',';
    }
    header += '}';
  }
  std::map<std::string_view, int> seen;
  std::size_t begin = 0;
  for (const NamedTensor* tensor : order) {
    require(tensor->name() != "__metadata__" && ++seen[tensor->name()] == 1, "save_safetensors", "the name \"",
            tensor->name(), "\" appears twice or is reserved");
    entry(tensor->name());
    header += message("{\"dtype\":\"", detail::info(tensor->dtype()).name, "\",\"shape\":", tensor->shape().extents(),
                      ",\"data_offsets\":[", begin, ",", begin + tensor->bytes(), "]}");
    begin += tensor->bytes();
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');

  detail::write_file(path, "save_safetensors", [&](auto&& put) {
    std::array<std::byte, 8> length;
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(header.size() >> (8 * i));
    put(std::span<const std::byte>(length));
    put(std::as_bytes(std::span(header)));
    for (const NamedTensor* tensor : order) tensor->write(put);
  });
}
inline void save_safetensors(const std::string& path, std::initializer_list<NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata = {}) {
  save_safetensors(path, std::span(tensors.begin(), tensors.size()), metadata);
}

}  // namespace ashlar::io
