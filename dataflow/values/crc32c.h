// SPDX-License-Identifier: Apache-2.0
// CRC32C: the checksum of RFC 3720, appendix B.4 (polynomial 0x1EDC6F41, bits reflected, started
// and ended with all ones). It uses the processor's instruction if there is one, and otherwise a
// table.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::values {

/// The CRC32C of `bytes`, continued from `before`, the CRC32C of the bytes before them.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// The same by table, on every processor.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// True if crc32c() uses an instruction on this processor.
bool has_crc32c_instruction() noexcept;

/// The form in which TensorFlow stores a CRC32C beside its data: the CRC of bytes that contain
/// their own CRC would be weak.
constexpr std::uint32_t masked_crc32c(std::uint32_t crc) noexcept {
  return std::rotr(crc, 15) + 0xa282ead8U;
}

}  // namespace penstock::values
