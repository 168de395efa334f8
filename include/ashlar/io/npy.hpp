// NumPy's .npy: one array per file.
//
//   Tensor<float> x = io::load_npy<float>("x.npy");                                // the file must hold float32
//   Tensor<double> y = io::load_npy<double>("y.npy", io::Conversion::any);         // any numeric dtype
//   io::save_npy("z.npy", x.view<2>());
//
// Reads format versions 1.0, 2.0 and 3.0, both byte orders, C and Fortran order, rank 0 to 8; writes version 1.0 in C
// order. Every length in a file is checked against the bytes there are before anything is allocated.
// Source: NumPy enhancement proposal 1 and the numpy.lib.format documentation.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/io/detail/write_file.hpp"
#include "ashlar/io/mapped_file.hpp"
#include "ashlar/io/number.hpp"

namespace ashlar::io {

namespace detail {

struct NpyHeader {
  DType dtype{};
  bool swapped = false;  ///< the bytes of an element, against this machine's order
  bool fortran = false;
  Shape shape;
  std::size_t data_begin = 0;
  std::size_t descr_at = 0;
};

/// Reads the preamble and the Python dictionary behind it, a character at a time, and nothing else.
class NpyParser {
 public:
  NpyParser(std::span<const std::byte> file, std::string_view name)
      : text_(reinterpret_cast<const char*>(file.data()), file.size()), name_(name) {}

  NpyHeader header() {
    preamble();
    dictionary();
    check_size();
    return header_;
  }

  template <class... Parts>
  [[noreturn]] void fail(std::size_t at, const Parts&... sentence) const {
    throw ParseError(message(name_, ": byte ", at, ": ", sentence...));
  }

 private:
  void preamble() {
    constexpr std::string_view magic = "\x93NUMPY";
    if (!text_.starts_with(magic)) fail(0, "expected the magic string \\x93NUMPY of an .npy file");
    if (text_.size() < 8) fail(text_.size(), "the file ends within the format version");
    const int major = byte(6), minor = byte(7);
    if (major < 1 || major > 3 || minor != 0)
      fail(6, "expected format version 1.0, 2.0 or 3.0, got ", major, ".", minor);
    const std::size_t width = major == 1 ? 2 : 4, begin = 8 + width;
    if (text_.size() < begin) fail(text_.size(), "the file ends within the header length");
    std::size_t length = 0;
    for (std::size_t i = width; i-- > 0;) length = length << 8 | static_cast<std::size_t>(byte(8 + i));
    if (length > text_.size() - begin)
      fail(8, "the header has ", length, " bytes, but the file ends after ", text_.size() - begin);
    at_ = begin;
    end_ = header_.data_begin = begin + length;
  }

  /// {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), } in any order, then blanks and a line feed.
  void dictionary() {
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::size_t key_at = skip_blanks();
      const std::string_view key = quoted("a key");
      expect(':');
      if (key == "descr" && !descr)
        descr = true, parse_descr();
      else if (key == "fortran_order" && !order)
        order = true, parse_order();
      else if (key == "shape" && !shape)
        shape = true, parse_shape();
      else
        fail(key_at, "expected the keys descr, fortran_order and shape once each, got another key");
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (!(descr && order && shape)) fail(at_, "expected the keys descr, fortran_order and shape, one is missing");
    if (skip_blanks() != end_) fail(at_, "expected nothing but blanks after the header's dictionary");
  }

  void parse_descr() {
    header_.descr_at = skip_blanks();
    if (peek() == '[') fail(at_, "structured dtypes are not supported");
    const std::string_view descr = quoted("a dtype");
    const auto refuse = [&](std::string_view why) { fail(header_.descr_at, why); };
    if (descr.size() > 2 && descr[1] == 'c') refuse("complex dtypes are not supported");
    const auto known =
        std::ranges::find(dtype_table, descr.substr(std::min<std::size_t>(descr.size(), 1)), &DTypeInfo::npy);
    if (known == std::end(dtype_table) || descr.size() != 3)
      refuse("expected a numeric dtype: f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 or b1 after its byte order");
    header_.dtype = known->dtype;
    constexpr bool little = std::endian::native == std::endian::little;
    if (descr[0] == '<' || descr[0] == '>')
      header_.swapped = (descr[0] == '<') != little;
    else if (descr[0] != '=' && !(descr[0] == '|' && known->bytes == 1))
      refuse("expected a byte order < or > before the dtype");
  }

  void parse_order() {
    skip_blanks();
    const std::string_view rest = text_.substr(at_, end_ - at_);
    header_.fortran = rest.starts_with("True");
    if (!header_.fortran && !rest.starts_with("False")) fail(at_, "expected True or False");
    at_ += header_.fortran ? 4 : 5;
  }

  void parse_shape() {
    std::array<Index, Shape::max_rank> extents{};
    std::size_t rank = 0;
    bool comma = false;
    expect('(');
    while (!accept(')')) {
      if (rank == Shape::max_rank) fail(at_, "expected at most 8 axes");
      skip_blanks();
      if (rank != 0 && !comma) fail(at_, "expected ',' or ')'");
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + end_, extents[rank]);
      if (error != std::errc{} || extents[rank] < 0)
        fail(at_, "expected the length of an axis, at most ", std::numeric_limits<Index>::max());
      at_ = static_cast<std::size_t>(end - text_.data());
      ++rank;
      comma = accept(',');
    }
    if (rank == 1 && !comma) fail(at_, "expected a tuple: (n,) for one axis");
    const std::span<const Index> shape(extents.data(), rank);
    const auto checked = checked_shape(shape);
    if (!checked) fail(at_, "shape ", shape, " has more elements than an index can count");
    header_.shape = *checked;
  }

  void check_size() const {
    const auto claimed = static_cast<std::size_t>(header_.shape.size() * info(header_.dtype).bytes);
    const std::size_t there = text_.size() - header_.data_begin;
    if (claimed != there)
      fail(header_.data_begin, "shape ", header_.shape.extents(), " of ", info(header_.dtype).bytes,
           "-byte elements needs ", claimed, " bytes of data, the file has ", there);
  }

  int byte(std::size_t at) const { return static_cast<unsigned char>(text_[at]); }
  char peek() const { return at_ < end_ ? text_[at_] : '\0'; }
  std::size_t skip_blanks() {
    while (at_ < end_ && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_;
  }
  bool accept(char c) {
    skip_blanks();
    if (at_ >= end_ || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(at_, "expected '", c, "'");
  }
  std::string_view quoted(std::string_view what) {
    skip_blanks();
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail(at_, "expected ", what, " in quotes");
    const std::size_t begin = at_ + 1, close = text_.substr(0, end_).find(quote, begin);
    if (close == std::string_view::npos) fail(at_, "expected ", what, " in quotes, the second quote is missing");
    at_ = close + 1;
    return text_.substr(begin, close - begin);
  }

  std::string_view text_, name_;
  std::size_t at_ = 0, end_ = 0;
  NpyHeader header_;
};

inline std::vector<std::byte> npy_preamble(DType dtype, std::span<const Index> shape) {
  std::string text = "{'descr': '";
  const char order = info(dtype).bytes == 1 ? '|' : std::endian::native == std::endian::little ? '<' : '>';
  text += message(order, info(dtype).npy, "', 'fortran_order': False, 'shape': (");
  for (const Index extent : shape) text += message(extent, shape.size() == 1 ? "," : ", ");
  if (shape.size() > 1) text.resize(text.size() - 2);
  text += "), }";
  constexpr std::size_t begin = 10, alignment = 64;  // the data starts at a multiple of 64 bytes
  text.resize((begin + text.size() + alignment) / alignment * alignment - begin - 1, ' ');
  text += '\n';
  text = message(std::string_view("\x93NUMPY\x01\0", 8), static_cast<char>(text.size() & 0xFF),
                 static_cast<char>(text.size() >> 8), text);
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

template <Number T>
void save_npy(const std::string& path, const T* data, std::span<const Index> shape, std::span<const Index> strides,
              bool contiguous) {
  static_assert(!info(dtype_of<T>()).npy.empty(),
                "npy has no dtype for bfloat16 and float8: save floats, or a safetensors file");
  const Shape checked(shape);
  write_file(path, "save_npy", [&](auto&& put) {
    put(npy_preamble(dtype_of<T>(), shape));
    if (contiguous) return put(std::as_bytes(std::span(data, static_cast<std::size_t>(checked.size()))));
    std::array<T, 1024> buffer;
    std::size_t filled = 0;
    for_each_offset(shape, strides, [&](Index offset) {
      buffer[filled++] = data[offset];
      if (filled == buffer.size()) put(std::as_bytes(std::span(buffer))), filled = 0;
    });
    put(std::as_bytes(std::span(buffer).first(filled)));
  });
}

}  // namespace detail

/// The array in `file`, the bytes of an .npy file; `name` stands for it in messages.
/// Allocates nothing but the result: at most sizeof(T) bytes for every byte of the file.
/// Throws ParseError "name: byte N: ..." when the bytes are no .npy file, when they end early or go on after the array,
/// when the dtype is not T's (Conversion::exact), or when an integer T cannot hold an element (Conversion::any).
template <Number T>
Tensor<T> parse_npy(std::span<const std::byte> file, std::string_view name, Conversion conversion = Conversion::exact) {
  detail::NpyParser parser(file, name);
  const detail::NpyHeader header = parser.header();
  const bool same = header.dtype == detail::dtype_of<T>();
  if (!same && conversion == Conversion::exact)
    parser.fail(header.descr_at, "expected the dtype of ", detail::info(detail::dtype_of<T>()).type, ", got ",
                detail::info(header.dtype).npy, "; Conversion::any would convert");

  auto tensor = Tensor<T>::uninitialized(header.shape);
  const std::byte* const data = file.data() + header.data_begin;
  const auto shape = header.shape.extents();
  std::array<Index, Shape::max_rank> strides{};  // of the file, in elements
  Index step = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t axis = header.fortran ? i : shape.size() - 1 - i;
    strides[axis] = step;
    step *= shape[axis];
  }
  if (same && !header.swapped && !header.fortran && !std::same_as<T, bool>) {
    if (tensor.size() != 0)
      std::memcpy(static_cast<void*>(tensor.data()), data, static_cast<std::size_t>(tensor.size()) * sizeof(T));
    return tensor;
  }
  T* to = tensor.data();
  detail::for_each_offset(shape, {strides.data(), shape.size()}, [&](Index offset) {
    const std::byte* const from = data + offset * detail::info(header.dtype).bytes;
    const auto number = detail::read_as<T>(header.dtype, from, header.swapped);
    if (!number)
      parser.fail(static_cast<std::size_t>(from - file.data()), "the ", detail::info(header.dtype).npy,
                  " element is no ", detail::info(detail::dtype_of<T>()).type);
    *to++ = *number;
  });
  return tensor;
}

/// The array in the .npy file at `path`. Throws InvalidArgument when it cannot be read, else as parse_npy.
template <Number T>
Tensor<T> load_npy(const std::string& path, Conversion conversion = Conversion::exact) {
  const MappedFile file(path, "load_npy");
  return parse_npy<T>(file.bytes(), path, conversion);
}

/// Writes a view of any strides. Throws InvalidArgument when the file cannot be written; an older file of this name
/// then stays as it was. bfloat16 and float8 have no dtype in .npy files and do not compile.
template <class T, int Rank>
void save_npy(const std::string& path, const View<T, Rank>& array) {
  detail::save_npy<std::remove_cv_t<T>>(path, array.data(), array.shape(), array.strides(), array.contiguous());
}
template <class T>
void save_npy(const std::string& path, const Tensor<T>& array) {
  require(array.data() != nullptr, "save_npy", "the tensor was moved from or never given a shape");
  detail::save_npy<T>(path, array.data(), array.shape().extents(), {}, true);
}
/// Eigen objects, vectors and spans: a vector is saved with one axis, a matrix with two.
template <class X>
void save_npy(const std::string& path, const X& array) {
  save_npy(path, View<const scalar_t<X>, detail::natural_rank<X>>(array));
}

}  // namespace ashlar::io
