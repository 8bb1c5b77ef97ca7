// SPDX-License-Identifier: Apache-2.0
// Appends fields of protocol buffers to a message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::dataset {

/// A varint: seven bits per byte, the lowest first.
inline void append_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

/// A field with a length: text, bytes or another message.
inline void append_field(std::string& to, unsigned number, std::string_view value) {
  append_varint(to, number << 3 | 2);
  append_varint(to, value.size());
  to += value;
}

/// A field with a whole number.
inline void append_number_field(std::string& to, unsigned number, std::uint64_t value) {
  append_varint(to, number << 3);
  append_varint(to, value);
}

}  // namespace penstock::dataset
