// SPDX-License-Identifier: Apache-2.0
#include "dataflow/values/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define PENSTOCK_CRC32C_TARGET __attribute__((target("sse4.2")))
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define PENSTOCK_CRC32C_TARGET __attribute__((target("+crc")))
#endif

namespace penstock::values {
namespace {

using Table = std::array<std::uint32_t, 256>;

constexpr std::uint32_t kPolynomial = 0x82f63b78U;  // 0x1EDC6F41 with its bits reflected

/// tables[k][v]: what byte v becomes when k zero bytes follow it.
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t value = 0; value < 256; ++value) {
    std::uint32_t crc = value;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][value] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t value = 0; value < 256; ++value) {
      const std::uint32_t before = tables[k - 1][value];
      tables[k][value] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr std::array<Table, 8> kTables = make_tables();

std::uint64_t word_at(const std::byte* at) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, at, 8);
  return word;
}

// Reading eight bytes as one word needs the first byte to be the lowest.
static_assert(std::endian::native == std::endian::little);

#ifdef PENSTOCK_CRC32C_TARGET

/// The instruction has a latency of three cycles, but one can start in each cycle. So three
/// stretches of this length are computed at once.
constexpr std::size_t kStretch = 1024;

/// tables[k][v]: the effect of byte k of a CRC, with value v, after kStretch zero bytes. The CRC of
/// two stretches is the first one's CRC moved like this, plus the CRC of the second started with 0.
constexpr std::array<Table, 4> make_stretch_tables() {
  std::array<std::uint32_t, 32> moved{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t crc = 1U << bit;
    for (std::size_t i = 0; i < kStretch; ++i) crc = (crc >> 8) ^ kTables[0][crc & 0xff];
    moved[bit] = crc;
  }
  std::array<Table, 4> tables{};
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::size_t value = 0; value < 256; ++value) {
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if ((value >> bit & 1) != 0) tables[k][value] ^= moved[8 * k + bit];
      }
    }
  }
  return tables;
}

constexpr std::array<Table, 4> kStretchTables = make_stretch_tables();

std::uint32_t move_by_stretch(std::uint32_t crc) noexcept {
  return kStretchTables[0][crc & 0xff] ^ kStretchTables[1][crc >> 8 & 0xff] ^
         kStretchTables[2][crc >> 16 & 0xff] ^ kStretchTables[3][crc >> 24];
}

PENSTOCK_CRC32C_TARGET inline std::uint32_t step(std::uint32_t crc, std::uint64_t word) noexcept {
#if defined(__x86_64__)
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
#else
  return __crc32cd(crc, word);
#endif
}

PENSTOCK_CRC32C_TARGET inline std::uint32_t step(std::uint32_t crc, std::byte byte) noexcept {
#if defined(__x86_64__)
  return _mm_crc32_u8(crc, static_cast<std::uint8_t>(byte));
#else
  return __crc32cb(crc, static_cast<std::uint8_t>(byte));
#endif
}

PENSTOCK_CRC32C_TARGET std::uint32_t crc32c_by_instruction(std::span<const std::byte> bytes,
                                                           std::uint32_t before) noexcept {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint32_t crc = ~before;
  for (; left >= 3 * kStretch; at += 3 * kStretch, left -= 3 * kStretch) {
    std::uint32_t second = 0, third = 0;
    for (std::size_t i = 0; i < kStretch; i += 8) {
      crc = step(crc, word_at(at + i));
      second = step(second, word_at(at + kStretch + i));
      third = step(third, word_at(at + 2 * kStretch + i));
    }
    crc = move_by_stretch(move_by_stretch(crc) ^ second) ^ third;
  }
  for (; left >= 8; at += 8, left -= 8) crc = step(crc, word_at(at));
  for (; left > 0; ++at, --left) crc = step(crc, *at);
  return ~crc;
}

#endif

}  // namespace

bool has_crc32c_instruction() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2") != 0;
#elif defined(__aarch64__)
  return (getauxval(AT_HWCAP) & (1UL << 7)) != 0;  // HWCAP_CRC32
#else
  return false;
#endif
}

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint32_t crc = ~before;
  for (; left >= 8; at += 8, left -= 8) {
    const std::uint64_t word = word_at(at) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> (8 * k) & 0xff];
  }
  for (; left > 0; ++at, --left) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint32_t>(*at)) & 0xff];
  }
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
#ifdef PENSTOCK_CRC32C_TARGET
  static const bool instruction = has_crc32c_instruction();
  if (instruction) return crc32c_by_instruction(bytes, before);
#endif
  return crc32c_by_table(bytes, before);
}

}  // namespace penstock::values
