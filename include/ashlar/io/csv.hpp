// Tables of numbers as comma-separated values.
//
//   const io::Table table = io::load_csv("iris.csv");          // table.columns, table.values
//   io::save_csv("copy.csv", table);                           // reads back to the same numbers
//
// Source: RFC 4180, with numbers for all fields but the names in the first line.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "ashlar/core/error.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/io/detail/write_file.hpp"
#include "ashlar/io/mapped_file.hpp"

namespace ashlar::io {

struct Table {
  std::vector<std::string> columns;  ///< one name a column, or none when the file has no header
  Matrix<double> values;             ///< one row a line
};

namespace detail {

/// A decimal number, "inf" or "nan" between blanks; nothing if the text is something else or too large for a double.
inline std::optional<double> csv_number(std::string_view text) {
  const auto first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  text = text.substr(first, last - first + 1);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

class CsvParser {
 public:
  CsvParser(std::string_view text, std::string_view name) : text_(text), name_(name) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = line_begin_ = field_line_begin_ = 3;  // the byte order mark of UTF-8
  }

  Table table() {
    if (at_ == text_.size()) fail(at_, "expected at least one line");
    Table table;
    std::vector<double> values;
    first_line(table.columns, values);
    const std::size_t columns = values.empty() ? table.columns.size() : values.size();
    while (at_ < text_.size()) {
      std::size_t fields = 0;
      bool more = true;
      for (; more; more = separator(), ++fields) {
        if (fields == columns) fail(at_, "expected ", columns, " fields as in line 1, got more");
        values.push_back(number());
      }
      if (fields != columns) fail(field_begin_, "expected ", columns, " fields as in line 1, got ", fields);
      end_line();
    }
    table.values = Eigen::Map<const Matrix<double>>(values.data(), std::ssize(values) / static_cast<Index>(columns),
                                                    static_cast<Index>(columns));
    return table;
  }

 private:
  /// Either names or numbers. A quoted field is a name whatever it says.
  void first_line(std::vector<std::string>& names, std::vector<double>& values) {
    for (bool more = true; more; more = separator()) {
      std::string field;
      const bool quoted = read_field(field);
      const auto value = quoted ? std::nullopt : csv_number(field);
      if (value)
        values.push_back(*value);
      else
        names.push_back(std::move(field));
      if (!names.empty() && !values.empty())
        fail(field_begin_,
             "expected names alone or numbers alone in the first line; a name that reads as a number "
             "needs quotes");
    }
    end_line();
  }

  double number() {
    std::string field;
    if (read_field(field)) fail(field_begin_, "expected a number, got a quoted field");
    const auto value = csv_number(field);
    if (!value) fail(field_begin_, "expected a number, got ", excerpt(field));
    return *value;
  }

  /// Stops before the separator; true if the field was in quotes.
  bool read_field(std::string& field) {
    field_begin_ = at_;
    field_line_ = line_;
    field_line_begin_ = line_begin_;
    if (at_ < text_.size() && text_[at_] == '"') {
      read_quoted(field);
      return true;
    }
    const std::size_t end = std::min(text_.find_first_of(",\n\"", at_), text_.size());
    std::string_view plain = text_.substr(at_, end - at_);
    if (plain.ends_with('\r') && end < text_.size() && text_[end] == '\n') plain.remove_suffix(1);
    if (end < text_.size() && text_[end] == '"') fail(end, "expected a quote only at the beginning of a field");
    if (plain.find_first_not_of(" \t") == std::string_view::npos) fail(at_, "the field is empty");
    at_ += plain.size();
    field = plain;
    return false;
  }

  void read_quoted(std::string& field) {
    ++at_;
    for (;;) {
      const std::size_t quote = text_.find('"', at_);
      if (quote == std::string_view::npos) fail(field_begin_, "the quote that opens this field is never closed");
      for (std::size_t i = at_; i < quote; ++i)
        if (text_[i] == '\n') ++line_, line_begin_ = i + 1;
      field.append(text_, at_, quote - at_);
      at_ = quote + 1;
      if (at_ == text_.size() || text_[at_] != '"') return;
      field += '"';  // "" within quotes
      ++at_;
    }
  }

  /// True past a comma; false at the end of the line or of the text.
  bool separator() {
    if (at_ == text_.size() || text_.substr(at_).starts_with("\n") || text_.substr(at_).starts_with("\r\n"))
      return false;
    field_line_ = line_;
    field_line_begin_ = line_begin_;
    if (text_[at_] != ',') fail(at_, "expected a comma or the end of the line");
    ++at_;
    return true;
  }

  void end_line() {
    if (at_ == text_.size()) return;
    at_ += text_[at_] == '\r' ? 2 : 1;
    ++line_;
    line_begin_ = at_;
  }

  /// The beginning of a field in quotes, as far as it is printable ASCII.
  static std::string excerpt(std::string_view field) {
    constexpr std::size_t longest = 32;
    std::string shown(field.substr(0, longest));
    for (char& c : shown)
      if (c < ' ' || c > '~') c = '?';
    return '"' + shown + (field.size() > longest ? "\"..." : "\"");
  }

  template <class... Parts>
  [[noreturn]] void fail(std::size_t at, const Parts&... sentence) const {
    throw ParseError(
        message(name_, ": line ", field_line_, ", column ", at - field_line_begin_ + 1, ": ", sentence...));
  }

  std::string_view text_, name_;
  std::size_t at_ = 0, line_ = 1, line_begin_ = 0;
  std::size_t field_begin_ = 0, field_line_ = 1, field_line_begin_ = 0;  // where the current field starts
};

/// A name as one field, in quotes where it would not read back as itself without.
inline std::string csv_name(const std::string& name) {
  const bool plain = name.find_first_of(",\"\r\n") == std::string::npos &&
                     name.find_first_not_of(" \t") != std::string::npos && !csv_number(name) &&
                     !name.starts_with("\xEF\xBB\xBF");
  if (plain) return name;
  std::string quoted = "\"";
  for (const char c : name) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

}  // namespace detail

/// The table in `text`; `name` stands for it in messages. The first line names the columns unless its fields are
/// numbers. Fields are separated by commas, lines end with LF or CRLF, the last one may go without.
/// Throws ParseError "name: line L, column C: ..." (C counts bytes of the line from 1) for fields that are empty, no
/// number or too large for a double, for lines with more or fewer fields than the first, for broken quotes.
inline Table parse_csv(std::string_view text, std::string_view name = "csv") {
  return detail::CsvParser(text, name).table();
}

/// The table in the file at `path`. Throws InvalidArgument when it cannot be read, else as parse_csv.
inline Table load_csv(const std::string& path) {
  const MappedFile file(path, "load_csv");
  const auto bytes = file.bytes();
  return parse_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

/// Writes values [rows, columns] under the names, if there are any, so that load_csv gives the same numbers.
/// Throws InvalidArgument when the numbers of names and columns differ, when there is nothing to write, and when the
/// file cannot be written; an older file of this name then stays as it was.
inline void save_csv(const std::string& path, const View<const double, 2>& values,
                     std::span<const std::string> columns = {}) {
  require(columns.empty() || std::ssize(columns) == values.extent(1), "save_csv", "there are ", columns.size(),
          " names for ", values.extent(1), " columns");
  require(values.extent(1) > 0 && (values.extent(0) > 0 || !columns.empty()), "save_csv", "the table is empty");
  detail::write_file(path, "save_csv", [&](auto&& put) {
    std::string line;
    const auto end_line = [&] {
      line.back() = '\n';  // in place of the last comma
      put(std::as_bytes(std::span(line)));
      line.clear();
    };
    for (const std::string& name : columns) line += detail::csv_name(name) + ',';
    if (!columns.empty()) end_line();
    for (Index i = 0; i < values.extent(0); ++i) {
      for (Index j = 0; j < values.extent(1); ++j) line += message(values(i, j), ",");
      end_line();
    }
  });
}
inline void save_csv(const std::string& path, const Table& table) { save_csv(path, table.values, table.columns); }

}  // namespace ashlar::io
