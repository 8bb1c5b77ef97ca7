// SPDX-License-Identifier: Apache-2.0
// The bits of an entropy-coded segment (ITU T.81, F.2.2.5), taken out of the file a few kilobytes
// at a time, without the zero bytes that follow each 0xFF there: whoever decodes need not look for
// them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace penstock::jpeg {

/// Where reading stands. Decoders keep a copy of their own in registers.
struct BitState {
  std::uint64_t bits = 0;   ///< the next ones, from the top
  std::uint64_t count = 0;  ///< how many of them are certain
  const std::uint8_t* next = nullptr;

  /// At least 56 bits. Reads eight bytes at `next`, which BitReader::ready() vouches for.
  [[gnu::always_inline]] void refill() {
    std::uint64_t word;
    std::memcpy(&word, next, sizeof word);
    if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
    bits |= word >> count;
    next += (63 - count) >> 3;
    count |= 56;
  }
  [[gnu::always_inline]] void drop(std::uint64_t used) {
    bits <<= used & 63;
    count -= used;
  }
};

class BitReader {
 public:
  /// What a minimum coded unit of six blocks takes at most: 31 bits for each coefficient.
  static constexpr std::size_t kUnitBytes = 6 * 64 * 31 / 8;

  /// `scan` begins with the first entropy-coded byte; it must outlive the reading.
  BitState begin(std::span<const std::byte> scan);

  /// Whether the next unit can be decoded without looking at the end of the data: afterwards
  /// kUnitBytes may be read, beyond the segment's end as zeros. False where the bits that were
  /// taken are more than the segment has, or where it ends without a marker: something is wrong.
  [[gnu::always_inline]] bool ready(BitState& state) {
    if (state.next <= enough_) [[likely]]
      return true;
    BitState copy = state;  // whose address is taken: the other one stays in registers
    const bool enough = read_on(copy);
    state = copy;
    return enough;
  }

  /// Ends a segment, of which less than a byte must be left, and begins the next one, behind
  /// restart marker `number` modulo 8. False if that is not what the file says.
  bool restart(BitState& state, unsigned number);

 private:
  static constexpr std::size_t kChunk = 8192;
  static constexpr std::size_t kLookahead = kUnitBytes + 16;  // refill() runs ahead of what is used

  [[gnu::noinline]] bool read_on(BitState& state);
  bool overrun(const BitState& state) const;
  void fill(std::uint8_t* to);

  const std::uint8_t *source_ = nullptr, *source_end_ = nullptr;
  bool at_marker_ = false;  // source_ is at one: the segment's bytes end at end_
  bool at_end_ = false;     // there is no marker, or an odd one
  const std::uint8_t *end_ = nullptr, *enough_ = nullptr;
  alignas(64) std::array<std::uint8_t, kChunk + 2 * kLookahead> bytes_{};
};

}  // namespace penstock::jpeg
