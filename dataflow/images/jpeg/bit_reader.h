// SPDX-License-Identifier: Apache-2.0
// Reads the bits of an entropy-coded segment (ITU T.81, F.2.2.5). It copies the file a few
// kilobytes at a time, and removes the zero byte after each 0xFF, so that the decoder need not
// check for it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace penstock::jpeg {

/// The reading position. Decoders keep a copy of it in registers.
struct BitState {
  std::uint64_t bits = 0;   ///< the next bits, from the top
  std::uint64_t count = 0;  ///< how many of them are valid
  const std::uint8_t* next = nullptr;

  /// Fills up to at least 56 bits. Reads eight bytes at `next`; BitReader::ready() makes sure that
  /// they exist.
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
  /// The largest size of a minimum coded unit of six blocks: 31 bits for each coefficient.
  static constexpr std::size_t kUnitBytes = 6 * 64 * 31 / 8;

  /// `scan` begins with the first entropy-coded byte. It must outlive the reading.
  BitState begin(std::span<const std::byte> scan);

  /// True if the next unit can be decoded without checks for the end of the data: kUnitBytes may
  /// then be read, with zeros after the segment's end. False if more bits were taken than the
  /// segment has, or if the segment ends without a marker: the data are damaged.
  [[gnu::always_inline]] bool ready(BitState& state) {
    if (state.next <= enough_) [[likely]]
      return true;
    BitState copy = state;  // only the copy's address is taken, so that `state` stays in registers
    const bool enough = read_on(copy);
    state = copy;
    return enough;
  }

  /// Ends a segment, of which less than a byte must be left, and begins the next one after restart
  /// marker `number` modulo 8. False if the file differs from that.
  bool restart(BitState& state, unsigned number);

 private:
  static constexpr std::size_t kChunk = 8192;
  static constexpr std::size_t kLookahead = kUnitBytes + 16;  // refill() reads ahead of used bits

  [[gnu::noinline]] bool read_on(BitState& state);
  bool overrun(const BitState& state) const;
  void fill(std::uint8_t* to);

  const std::uint8_t *source_ = nullptr, *source_end_ = nullptr;
  bool at_marker_ = false;  // source_ is at a marker: the segment's bytes end at end_
  bool at_end_ = false;     // there is no marker, or an invalid one
  const std::uint8_t *end_ = nullptr, *enough_ = nullptr;
  alignas(64) std::array<std::uint8_t, kChunk + 2 * kLookahead> bytes_{};
};

}  // namespace penstock::jpeg
