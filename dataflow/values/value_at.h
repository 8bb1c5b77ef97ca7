// SPDX-License-Identifier: Apache-2.0
// Reads numbers from the bytes of files and messages, which are little-endian here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace penstock::values {

static_assert(std::endian::native == std::endian::little,
              "numbers are read in native byte order, which must be little-endian");

/// The number at `offset`, which need not be aligned. The caller must check that all of it is
/// within `bytes`.
template <typename Value>
Value value_at(std::span<const std::byte> bytes, std::uint64_t offset) noexcept {
  Value value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace penstock::values
