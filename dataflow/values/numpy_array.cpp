// SPDX-License-Identifier: Apache-2.0
#include "dataflow/values/numpy_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <iterator>
#include <limits>

#include "dataflow/error.h"
#include "dataflow/values/value_at.h"

namespace penstock::values {
namespace {

struct KindRow {
  char kind;
  std::string_view name;
};

constexpr KindRow kKinds[] = {{'b', "bool"}, {'u', "uint"}, {'i', "int"}, {'f', "float"}};
constexpr std::string_view kTypes[] = {"b1", "u1", "u2", "u4", "u8", "i1",
                                       "i2", "i4", "i8", "f2", "f4", "f8"};

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kLongestHeader = 65536;

[[noreturn]] void refuse(const std::string& problem) {
  throw DataError(
      "a .npy file that cannot be read: {}; expected version 1 to 3 with an array of plain "
      "numbers, as numpy.save writes it",
      problem);
}

/// Parses the header's dictionary, a Python literal with three keys.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  NumpyArray parse() {
    NumpyArray array;
    bool has_type = false, has_order = false, has_shape = false;
    expect('{');
    while (!accepts('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !has_type) {
        const std::string_view name = quoted();
        const std::optional<NumpyType> type = parse_numpy_type(name);
        if (!type) refuse(fmt::format("its type is '{}'", name.substr(0, 40)));
        array.type = *type;
        has_type = true;
      } else if (key == "fortran_order" && !has_order) {
        array.fortran_order = truth();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        array.shape = shape();
        has_shape = true;
      } else {
        refuse(fmt::format("its header has the key '{}' too many", key.substr(0, 40)));
      }
      if (!accepts(',')) {
        expect('}');
        break;
      }
    }
    if (!has_type || !has_order || !has_shape) {
      refuse("its header lacks one of descr, fortran_order and shape");
    }
    if (skip_spaces() != text_.size()) refuse("its header has text after the dictionary");
    return array;
  }

 private:
  std::size_t skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_;
  }
  bool accepts(char c) {
    if (skip_spaces() == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (accepts(c)) return;
    refuse(fmt::format("its header has no '{}' at character {}", std::string(1, c), at_));
  }
  std::string_view quoted() {
    const char quote = accepts('\'') ? '\'' : '"';
    if (quote == '"') expect('"');
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) refuse("its header has a string without an end");
    const std::string_view inside = text_.substr(at_, end - at_);
    at_ = end + 1;
    return inside;
  }
  bool truth() {
    skip_spaces();
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return word == "True";
    }
    refuse("its fortran_order is neither True nor False");
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> lengths;
    expect('(');
    while (!accepts(')')) {
      skip_spaces();
      std::int64_t length = 0;
      const char* const end = text_.data() + text_.size();
      const auto [stop, error] = std::from_chars(text_.data() + at_, end, length);
      if (error != std::errc() || length < 0 || lengths.size() == kMaxNumpyDimensions) {
        refuse("its shape is no tuple of up to 32 lengths");
      }
      at_ = static_cast<std::size_t>(stop - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2
      lengths.push_back(length);
      if (!accepts(',')) {
        expect(')');
        break;
      }
    }
    return lengths;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

/// The dictionary in the header.
std::string_view npy_header(std::span<const std::byte> file) {
  const std::string_view text = text_of(file);
  if (!text.starts_with(kMagic)) refuse("it does not begin with \\x93NUMPY");
  const auto number = [&](std::size_t at, std::size_t width) {
    if (file.size() < at + width) refuse("it ends within its header");
    return static_cast<std::size_t>(number_of(file.subspan(at, width)));
  };
  const std::size_t version = number(6, 1);
  if (version < 1 || version > 3) refuse(fmt::format("it has version {}", version));
  const std::size_t width = version == 1 ? 2 : 4, begin = 8 + width, length = number(8, width);
  if (length > kLongestHeader || length > file.size() - begin) {
    refuse(fmt::format("its header has {} bytes", length));
  }
  return text.substr(begin, length);
}

std::span<const std::byte> behind(std::string_view header, std::span<const std::byte> file) {
  return file.subspan(
      static_cast<std::size_t>(header.data() + header.size() - text_of(file).data()));
}

}  // namespace

std::string to_string(NumpyType type) {
  const auto* const row = std::ranges::find(kKinds, type.kind, &KindRow::kind);
  std::string text = type.big_endian && type.bytes > 1 ? "big-endian " : "";
  text += row == std::end(kKinds) ? "?" : row->name;
  return type.kind == 'b' ? text : fmt::format("{}{}", text, 8 * type.bytes);
}

std::optional<NumpyType> parse_numpy_type_or_name(std::string_view text) {
  for (const std::string_view known : kTypes) {
    const std::optional<NumpyType> type = parse_numpy_type(known);
    if (text == to_string(*type)) return type;
  }
  return parse_numpy_type(text);
}

std::optional<NumpyType> parse_numpy_type(std::string_view text) {
  const bool big_endian = text.starts_with('>');
  if (text.find_first_of("<>|=") == 0) text.remove_prefix(1);
  if (std::ranges::find(kTypes, text) == std::end(kTypes)) return std::nullopt;
  return NumpyType{
      .kind = text[0], .bytes = static_cast<std::uint8_t>(text[1] - '0'), .big_endian = big_endian};
}

std::optional<std::uint64_t> numpy_bytes(NumpyType type, std::span<const std::int64_t> shape) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (shape.size() > kMaxNumpyDimensions) return std::nullopt;
  std::uint64_t bytes = type.bytes;
  for (const std::int64_t length : shape) {
    if (length < 0) return std::nullopt;
    const auto factor = static_cast<std::uint64_t>(length);
    if (factor > 0 && bytes > kMost / factor) return std::nullopt;
    bytes *= factor;
  }
  return bytes;
}

std::vector<std::byte> in_c_order(const NumpyArray& array) {
  std::vector<std::byte> ordered(array.data.size());
  std::vector<std::size_t> strides, index(array.shape.size());
  std::size_t stride = array.type.bytes, from = 0;
  for (const std::int64_t length : array.shape) {
    strides.push_back(stride);
    stride *= static_cast<std::size_t>(length);
  }
  for (std::size_t to = 0; to < ordered.size(); to += array.type.bytes) {
    std::memcpy(&ordered[to], &array.data[from], array.type.bytes);
    for (std::size_t i = strides.size(); i-- > 0;) {
      from += strides[i];
      if (++index[i] < static_cast<std::size_t>(array.shape[i])) break;
      from -= strides[i] * index[i];
      index[i] = 0;
    }
  }
  return ordered;
}

std::optional<std::int64_t> numpy_integer(NumpyType type, std::span<const std::byte> data) {
  if (type.kind == 'f') return std::nullopt;
  const std::uint64_t word = number_of(data.first(type.bytes), type.big_endian);
  if (type.kind == 'i') {
    const int spare = 64 - 8 * type.bytes;
    return static_cast<std::int64_t>(word << spare) >> spare;
  }
  if (word > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(word);
}

std::optional<double> numpy_real(NumpyType type, std::span<const std::byte> data) {
  if (type.kind != 'f' || type.bytes < 4) return std::nullopt;
  const std::uint64_t word = number_of(data.first(type.bytes), type.big_endian);
  if (type.bytes == 8) return std::bit_cast<double>(word);
  return std::bit_cast<float>(static_cast<std::uint32_t>(word));
}

std::span<const std::byte> npy_pickle(std::span<const std::byte> file) {
  const std::string_view header = npy_header(file);
  const bool holds_objects = header.find("'|O'") != std::string_view::npos;
  return holds_objects ? behind(header, file) : std::span<const std::byte>();
}

NumpyArray parse_npy(std::span<const std::byte> file) {
  const std::string_view header = npy_header(file);
  NumpyArray array = HeaderParser(header).parse();
  const std::optional<std::uint64_t> bytes = numpy_bytes(array.type, array.shape);
  if (!bytes) refuse("its shape has more elements than there can be");
  const std::span<const std::byte> rest = behind(header, file);
  array.data = rest.first(static_cast<std::size_t>(std::min<std::uint64_t>(*bytes, rest.size())));
  return array;
}

}  // namespace penstock::values
