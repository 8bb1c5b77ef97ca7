// SPDX-License-Identifier: Apache-2.0
// Decodes the entropy-coded data of one scan that interleaves all components (ITU T.81, A.2.3 and
// F.2.2), unit by unit. Wanted blocks become coefficients. Of other blocks only the DC differences
// are added up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataflow/images/jpeg/bit_reader.h"
#include "dataflow/images/jpeg/huffman_tables.h"
#include "dataflow/images/jpeg/instruction_set.h"

namespace penstock::jpeg {

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
  /// For each wanted block, the last position in zigzag order that may hold a coefficient.
  std::array<std::uint8_t, kMaxUnitBlocks> last{};
};

/// Receives the units that have a wanted block. Other units are skipped.
class UnitSink {
 public:
  virtual void take(std::uint32_t column, std::uint32_t wanted, const Unit& unit) = 0;

 protected:
  ~UnitSink() = default;
};

/// Decodes a scan. It belongs to one thread.
class EntropyDecoder {
 public:
  explicit EntropyDecoder(InstructionSet set);

  /// `components[i]` is the component of block i of a unit, 0 to 2. `restart_interval` is in units,
  /// or 0. `data` begins after the scan's header and must outlive the decoding.
  void begin(std::span<const std::byte> data, std::span<const std::uint8_t> components,
             const std::array<BlockCode, 3>& codes, std::uint32_t restart_interval);

  /// Decodes the next row of units. Bit i of wanted[column] is set if block i of that unit is
  /// wanted; `rows` masks all of them. False if the data are damaged, or if only libjpeg can tell
  /// how to decode them; then nothing more can be decoded.
  bool decode_row(std::span<const std::uint8_t> wanted, std::uint8_t rows, UnitSink& sink);

 private:
  struct Row {
    std::span<const std::uint8_t> wanted;
    std::uint8_t rows;
    UnitSink& sink;
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
