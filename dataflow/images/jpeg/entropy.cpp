// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/jpeg/entropy.h"

#include <algorithm>
#include <cstdlib>

namespace penstock::jpeg {
constexpr std::array<std::uint8_t, 64> kZigzag = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

namespace {

constexpr std::uint8_t kMarker = 0xFF, kFirstRestart = 0xD0;

bool has_marker_byte(std::uint64_t word) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHighs = kOnes << 7;
  return ((~word - kOnes) & word & kHighs) != 0;
}

constexpr unsigned kLast = 63;

/// Where a coefficient goes; invalid positions go after the block's 64.
constexpr std::array<std::uint8_t, 256> kPlaces = [] {
  std::array<std::uint8_t, 256> places{};
  places.fill(64);
  std::copy(kZigzag.begin(), kZigzag.end(), places.begin());
  return places;
}();

/// An advance from any position in a block to one where no block ends.
constexpr std::uint16_t kNowhere = 65;

/// True if a block ends at this position: after its last coefficient, or by an end-of-block code.
constexpr bool ends(unsigned place) {
  return place == kLast || (place >= kEndOfBlock && place < kEndOfBlock + kLast);
}

/// One symbol, with a code of any length.
struct Symbol {
  std::int32_t value = 0;
  std::uint16_t advance = kNowhere;  // the default means an invalid code or a too large value
  std::uint16_t bits = 0;
};

[[gnu::noinline]] Symbol decode_one(std::uint64_t bits, const AcTable& table) {
  const CodeTable::Code code = table.find(bits);
  const unsigned size = code.symbol & 15;
  if (code.length == 0 || size > AcTable::kMaxSize) return {};
  return {extend(bits << code.length, size), advance_of(code.symbol),
          static_cast<std::uint16_t>(code.length + size)};
}

/// One look-up may find symbols of two blocks. Returns the number of bits of those that belong to
/// the block at `place`, or 0 if they do not end it.
[[gnu::noinline]] unsigned bits_to_end(std::uint64_t bits, const AcTable& table, unsigned place) {
  unsigned taken = 0;
  while (place < kLast) {
    const Symbol symbol = decode_one(bits << taken, table);
    taken += symbol.bits;
    place += symbol.advance;
  }
  return ends(place) ? taken : 0;
}

/// Adds the difference to the previous DC coefficient. False: invalid code.
[[gnu::always_inline]] inline bool decode_dc(BitState& state, const DcTable& table,
                                             std::int64_t& dc) {
  state.refill();
  const CodeTable::Code code = table.find(state.bits);
  state.drop(code.length);
  dc += extend(state.bits, code.symbol);
  state.drop(code.symbol);
  return code.length != 0;
}

/// Decodes all AC coefficients of a block into `to`, which is zero before. Sets `last` to the last
/// position reached in zigzag order.
[[gnu::always_inline]] inline bool decode_ac(BitState& state, const AcTable& table,
                                             std::int16_t* to, std::uint8_t& last) {
  unsigned place = 0, first_place = 0;
  std::uint64_t before = 0;
  // One look-up; enough bits must be there. Returns whether the block continues.
  const auto step = [&]() __attribute__((always_inline)) {
    const AcTable::Entry& entry = table.look(state.bits);
    before = state.bits;
    if (entry.bits >= AcTable::kSpecial) [[unlikely]] {
      const unsigned code_bits = entry.bits - AcTable::kSpecial, size = entry.size;
      Symbol symbol{extend(before << code_bits, size), entry.advance,
                    static_cast<std::uint16_t>(code_bits + size)};
      if (code_bits == 0) symbol = decode_one(before, table);
      state.drop(symbol.bits);
      state.refill();
      first_place = place += symbol.advance;
      to[kPlaces[place]] = static_cast<std::int16_t>(symbol.value);
    } else {
      state.drop(entry.bits);
      first_place = place + entry.first_advance;
      place += entry.advance;
      to[kPlaces[first_place]] = entry.first_value;
      to[kPlaces[place]] = entry.value;
    }
    return place < kLast;
  };
  do {
    state.refill();
  } while (step() && step() && step());
  static_assert(2 * AcTable::kLookBits + 16 + AcTable::kMaxSize <= 56);
  if (first_place == kLast && place > kLast) {  // the second symbol belongs to the next block
    const AcTable::Entry& entry = table.look(before);
    state.bits = before << entry.first_bits;
    state.count += entry.bits - entry.first_bits;
    place = kLast;
  }
  last = static_cast<std::uint8_t>(place % kEndOfBlock);
  return ends(place);
}

/// The same without storing coefficients.
[[gnu::always_inline]] inline bool skip_ac(BitState& state, const AcTable& table) {
  unsigned place = 0, place_before = 0;
  std::uint64_t before = 0;
  const auto step = [&]() __attribute__((always_inline)) {
    const AcTable::Skip& skip = table.look_to_skip(state.bits);
    before = state.bits;
    place_before = place;
    if (skip.bits == AcTable::kSpecial) [[unlikely]] {
      const Symbol symbol = decode_one(before, table);
      state.drop(symbol.bits);
      state.refill();
      place += symbol.advance;
    } else {
      state.drop(skip.bits);
      place += skip.advance;
    }
    return place < kLast;
  };
  do {
    state.refill();
  } while (step() && step());
  static_assert(AcTable::kSkipBits + AcTable::kMaxSize + 16 + AcTable::kMaxSize <= 56);
  const AcTable::Skip& skip = table.look_to_skip(before);
  if (place_before + skip.before >= kLast) {
    // The block ended before the last symbol, which belongs to the next block.
    const unsigned bits = bits_to_end(before, table, place_before);
    state.bits = before << bits;
    state.count += skip.bits - bits;
    return bits != 0;
  }
  return ends(place);
}

}  // namespace

BitState BitReader::begin(std::span<const std::byte> scan) {
  source_ = reinterpret_cast<const std::uint8_t*>(scan.data());
  source_end_ = source_ + scan.size();
  fill(bytes_.data());
  return {0, 0, bytes_.data()};
}

/// Copies from the source to `to` until the chunk is full or the segment ends.
void BitReader::fill(std::uint8_t* to) {
  at_marker_ = at_end_ = false;
  std::uint8_t* const full = bytes_.data() + kChunk + kLookahead - sizeof(std::uint64_t);
  while (to < full) {
    if (source_end_ - source_ >= static_cast<std::ptrdiff_t>(sizeof(std::uint64_t))) {
      std::uint64_t word;
      std::memcpy(&word, source_, sizeof word);
      if (!has_marker_byte(word)) {
        std::memcpy(to, &word, sizeof word);
        source_ += sizeof word;
        to += sizeof word;
        continue;
      }
    } else if (source_ == source_end_) {
      at_end_ = true;
      break;
    }
    const std::uint8_t byte = *source_;
    if (byte == kMarker) {
      if (source_end_ - source_ < 2 || source_[1] == kMarker) {
        at_end_ = true;
        break;
      }
      if (source_[1] != 0) {
        at_marker_ = true;
        break;
      }
      ++source_;
    }
    ++source_;
    *to++ = byte;
  }
  end_ = to;
  if (at_marker_ || at_end_) {
    std::memset(to, 0, kLookahead);
    // libjpeg reads some bytes ahead, and then warns of a missing marker. So close to the end,
    // leave the decision to libjpeg.
    constexpr std::ptrdiff_t kClose = 16;
    enough_ = at_marker_ ? end_ : end_ - std::min(kClose, end_ - bytes_.data());
  } else {
    enough_ = end_ - kLookahead;
  }
}

bool BitReader::overrun(const BitState& state) const {
  return state.next > end_ && static_cast<std::uint64_t>(state.next - end_) * 8 > state.count;
}

bool BitReader::read_on(BitState& state) {
  if (at_end_) return false;
  if (at_marker_) return !overrun(state);
  const auto left = static_cast<std::size_t>(end_ - state.next);
  std::memmove(bytes_.data(), state.next, left);
  state.next = bytes_.data();
  fill(bytes_.data() + left);
  return true;
}

bool BitReader::restart(BitState& state, unsigned number) {
  while (!at_marker_) {
    if (state.next <= enough_ || !read_on(state)) return false;
  }
  if (overrun(state)) return false;
  const std::ptrdiff_t bits_left =
      (end_ - state.next) * 8 + static_cast<std::ptrdiff_t>(state.count);
  if (bits_left >= 8 || source_[1] != kFirstRestart + number % 8) return false;
  source_ += 2;
  fill(bytes_.data());
  state = {0, 0, bytes_.data()};
  return true;
}

bool EntropyDecoder::decode(const Row& row) {
  BitState state = state_;
  for (std::uint32_t column = 0; column < row.needed.size(); ++column) {
    if (restart_interval_ != 0) {
      if (units_left_ == 0) {
        BitState copy = state;  // as in BitReader::ready()
        if (!reader_.restart(copy, restarts_++)) return false;
        state = copy;
        units_left_ = restart_interval_;
        dc_.fill(0);
      }
      --units_left_;
    }
    if (!reader_.ready(state)) return false;
    const std::uint32_t needed = row.needed[column] & row.rows;
    for (std::uint32_t block = 0; block < blocks_; ++block) {
      const std::uint8_t component = components_[block];
      const BlockCode& code = codes_[component];
      std::int64_t& dc = dc_[component];
      if (!decode_dc(state, *code.dc, dc)) return false;
      if ((needed >> block & 1) == 0) {
        if (!skip_ac(state, *code.ac)) return false;
        continue;
      }
      std::int16_t* const values = unit_.blocks[block].values.data();
      std::memset(values, 0, 64 * sizeof *values);
      if (std::abs(dc) > code.max_dc) return false;
      values[0] = static_cast<std::int16_t>(dc);
      if (!decode_ac(state, *code.ac, values, unit_.last[block])) return false;
    }
    if (needed != 0) row.take(column, needed, unit_);
  }
  state_ = state;
  return reader_.ready(state_);
}

bool EntropyDecoder::decode_portable(const Row& row) { return decode(row); }

PENSTOCK_TARGET("bmi,bmi2,avx2")
bool EntropyDecoder::decode_avx2(const Row& row) { return decode(row); }

EntropyDecoder::EntropyDecoder(InstructionSet set) : set_(set) {}

void EntropyDecoder::begin(std::span<const std::byte> data,
                           std::span<const std::uint8_t> components,
                           const std::array<BlockCode, 3>& codes, std::uint32_t restart_interval) {
  state_ = reader_.begin(data);
  blocks_ = static_cast<std::uint32_t>(components.size());
  std::copy(components.begin(), components.end(), components_.begin());
  codes_ = codes;
  restart_interval_ = units_left_ = restart_interval;
  restarts_ = 0;
  dc_.fill(0);
}

bool EntropyDecoder::decode_row(std::span<const std::uint8_t> needed, std::uint8_t rows,
                                const TakeUnit& take) {
  const Row row{needed, rows, take};
  return set_ == InstructionSet::portable ? decode_portable(row) : decode_avx2(row);
}

}  // namespace penstock::jpeg
