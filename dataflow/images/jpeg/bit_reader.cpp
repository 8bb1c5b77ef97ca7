// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/jpeg/bit_reader.h"

#include <algorithm>

namespace penstock::jpeg {
namespace {

constexpr std::uint8_t kMarker = 0xFF, kFirstRestart = 0xD0;

bool has_marker_byte(std::uint64_t word) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHighs = kOnes << 7;
  return ((~word - kOnes) & word & kHighs) != 0;
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

}  // namespace penstock::jpeg
