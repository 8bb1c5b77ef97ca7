// SPDX-License-Identifier: Apache-2.0
// Decodes the entropy-coded data of one scan that interleaves all components (ITU T.81, A.2.3 and
// F.2.2), unit by unit. Needed blocks become coefficients. Of other blocks only the DC differences
// are added up.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>

#include "dataflow/images/instruction_set.h"
#include "dataflow/images/jpeg/huffman_tables.h"

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

/// Reads the bits of an entropy-coded segment (ITU T.81, F.2.2.5). It copies the file a few
/// kilobytes at a time, and removes the zero byte after each 0xFF, so that the decoder need not
/// check for it.
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

/// T.81, figure 5: from a position in zigzag order to row * 8 + column.
extern const std::array<std::uint8_t, 64> kZigzag;

/// A block's coefficients as stored in the file (not dequantised), row * 8 + column. The values
/// after the first 64 take coefficients with invalid positions.
struct alignas(64) Coefficients {
  std::array<std::int16_t, 96> values;
};

/// The codes of one component's blocks.
struct BlockCode {
  const DcTable* dc = nullptr;
  const AcTable* ac = nullptr;
  std::int32_t max_dc = 0;  ///< a larger value of either sign is damage
};

constexpr unsigned kMaxUnitBlocks = 6;

/// One minimum coded unit, with its blocks in order.
struct Unit {
  std::array<Coefficients, kMaxUnitBlocks> blocks;
  /// For each needed block, the last position in zigzag order that may hold a coefficient.
  std::array<std::uint8_t, kMaxUnitBlocks> last{};
};

/// Receives the units that have a needed block. Other units are skipped.
using TakeUnit = std::function<void(std::uint32_t column, std::uint32_t needed, const Unit& unit)>;

/// Decodes a scan. It belongs to one thread.
class EntropyDecoder {
 public:
  explicit EntropyDecoder(InstructionSet set);

  /// `components[i]` is the component of block i of a unit, 0 to 2. `restart_interval` is in units,
  /// or 0. `data` begins after the scan's header and must outlive the decoding.
  void begin(std::span<const std::byte> data, std::span<const std::uint8_t> components,
             const std::array<BlockCode, 3>& codes, std::uint32_t restart_interval);

  /// Decodes the next row of units. Bit i of needed[column] is set if block i of that unit is
  /// needed; `rows` masks all of them. False if the data are damaged, or if only libjpeg can tell
  /// how to decode them; then nothing more can be decoded.
  bool decode_row(std::span<const std::uint8_t> needed, std::uint8_t rows, const TakeUnit& take);

 private:
  struct Row {
    std::span<const std::uint8_t> needed;
    std::uint8_t rows;
    const TakeUnit& take;
  };
  [[gnu::always_inline]] inline bool decode(const Row& row);

  bool decode_portable(const Row& row);
  bool decode_avx2(const Row& row);

  const InstructionSet set_;

  BitReader reader_;
  BitState state_;
  std::array<BlockCode, 3> codes_{};
  std::array<std::uint8_t, kMaxUnitBlocks> components_{};
  std::uint32_t blocks_ = 0, restart_interval_ = 0, units_left_ = 0, restarts_ = 0;
  std::array<std::int64_t, 3> dc_{};
  Unit unit_;
};

}  // namespace penstock::jpeg
