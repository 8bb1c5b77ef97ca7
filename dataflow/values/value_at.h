// SPDX-License-Identifier: Apache-2.0
// Reads numbers and texts from the bytes of files and messages.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace penstock::values {

static_assert(std::endian::native == std::endian::little,
              "numbers are read in native byte order, which must be little-endian");

/// The little-endian number at `offset`, which need not be aligned. The caller must check that all
/// of it is within `bytes`.
template <typename Value>
Value value_at(std::span<const std::byte> bytes, std::uint64_t offset) noexcept {
  Value value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// All bytes, eight at most, as one number.
inline std::uint64_t number_of(std::span<const std::byte> bytes, bool big_endian = false) noexcept {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::byte next = bytes[big_endian ? i : bytes.size() - 1 - i];
    number = number << 8 | std::to_integer<std::uint64_t>(next);
  }
  return number;
}

inline std::string_view text_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace penstock::values
