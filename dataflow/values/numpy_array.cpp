// SPDX-License-Identifier: Apache-2.0
#include "dataflow/values/numpy_array.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

namespace penstock::values {
namespace {

std::uint64_t word_of(NumpyType type, std::span<const std::byte> data) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < type.bytes; ++i) {
    const std::size_t at = type.big_endian ? i : type.bytes - 1 - i;
    word = word << 8 | std::to_integer<std::uint64_t>(data[at]);
  }
  return word;
}

struct KindRow {
  char kind;
  std::string_view name;
};

constexpr KindRow kKinds[] = {{'b', "bool"}, {'u', "uint"}, {'i', "int"}, {'f', "float"}};

}  // namespace

std::string to_string(NumpyType type) {
  const auto* const row =
      std::find_if(std::begin(kKinds), std::end(kKinds),
                   [&](const KindRow& candidate) { return candidate.kind == type.kind; });
  std::string text = type.big_endian && type.bytes > 1 ? "big-endian " : "";
  text += row == std::end(kKinds) ? "?" : row->name;
  return type.kind == 'b' ? text : text + std::to_string(8 * type.bytes);
}

std::optional<NumpyType> parse_numpy_type_or_name(std::string_view text) {
  for (const char kind : {'b', 'u', 'i', 'f'}) {
    for (const unsigned bytes : {1U, 2U, 4U, 8U}) {
      const NumpyType type{.kind = kind, .bytes = static_cast<std::uint8_t>(bytes)};
      // The short form decides which of these types are supported.
      const char brief[] = {kind, static_cast<char>('0' + bytes)};
      if (text == to_string(type) && parse_numpy_type({brief, 2})) return type;
    }
  }
  return parse_numpy_type(text);
}

std::optional<NumpyType> parse_numpy_type(std::string_view text) {
  NumpyType type;
  if (!text.empty() && std::string_view("<>|=").find(text.front()) != std::string_view::npos) {
    type.big_endian = text.front() == '>';
    text.remove_prefix(1);
  }
  if (text.size() != 2) return std::nullopt;
  type.kind = text[0];
  type.bytes = static_cast<std::uint8_t>(text[1] - '0');
  const bool known =
      (text[0] == 'b' && text[1] == '1') ||
      ((text[0] == 'u' || text[0] == 'i') && (text[1] == '1' || text[1] == '2')) ||
      (text[0] == 'f' && text[1] == '2') ||
      ((text[0] == 'u' || text[0] == 'i' || text[0] == 'f') && (text[1] == '4' || text[1] == '8'));
  return known ? std::optional(type) : std::nullopt;
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

std::optional<std::int64_t> numpy_integer(NumpyType type, std::span<const std::byte> data) {
  if (type.kind == 'f') return std::nullopt;
  const std::uint64_t word = word_of(type, data);
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
  const std::uint64_t word = word_of(type, data);
  if (type.bytes == 8) return std::bit_cast<double>(word);
  return std::bit_cast<float>(static_cast<std::uint32_t>(word));
}

}  // namespace penstock::values
