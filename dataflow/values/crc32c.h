// SPDX-License-Identifier: Apache-2.0
// CRC32C: the checksum of RFC 3720, appendix B.4 (polynomial 0x1EDC6F41, bits reflected, begun and
// ended with all ones), by the instruction that the processor has for it, else by a table.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

/// Of `bytes`, going on from `before`, the CRC32C of the bytes in front of them.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// The same on every processor, without its instruction.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// Whether crc32c() has an instruction to use here.
bool has_crc32c_instruction() noexcept;

/// As TensorFlow stores a CRC32C beside what it was taken of: a CRC of bytes that hold a CRC of
/// theirs would be weak.
constexpr std::uint32_t masked_crc32c(std::uint32_t crc) noexcept {
  return std::rotr(crc, 15) + 0xa282ead8U;
}

}  // namespace penstock
