// SPDX-License-Identifier: Apache-2.0
// Numbers in the bytes of files, whose formats here all have the least byte first.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace penstock {

static_assert(std::endian::native == std::endian::little, "files are read as they lie");

/// The number at `offset`, which need not be aligned. The caller has checked that all of it is
/// within `bytes`.
template <typename Value>
Value value_at(std::span<const std::byte> bytes, std::uint64_t offset) noexcept {
  Value value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace penstock
