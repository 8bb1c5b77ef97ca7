// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/jpeg/huffman_tables.h"

#include <algorithm>

namespace penstock::jpeg {

bool CodeTable::build(const HuffmanSpec& spec, bool& changed) {
  changed = !built_ || !(spec == spec_);
  if (!changed) return true;
  built_ = false;
  short_.fill({});
  end_.fill(0);
  std::uint32_t code = 0;
  std::int32_t place = 0;
  for (unsigned length = 1; length <= 16; ++length, code <<= 1) {
    const std::uint32_t count = spec.counts[length];
    // T.81, C: a code must not consist of ones alone.
    if (place + static_cast<std::int32_t>(count) > 256 || code + count >= (1U << length)) {
      return false;
    }
    offset_[length] = place - static_cast<std::int32_t>(code);
    for (std::uint32_t i = 0; i < count; ++i, ++code, ++place) {
      if (length > kLookBits) continue;
      const unsigned spread = kLookBits - length;
      const Code entry{static_cast<std::uint8_t>(length),
                       spec.values[static_cast<std::size_t>(place)]};
      std::fill_n(short_.begin() + (code << spread), std::size_t{1} << spread, entry);
    }
    end_[length] = code << (16 - length);
  }
  spec_ = spec;
  built_ = true;
  return true;
}

CodeTable::Code CodeTable::find_long(std::uint64_t bits) const {
  const auto top = static_cast<std::uint32_t>(bits >> 48);
  for (unsigned length = kLookBits + 1; length <= 16; ++length) {
    if (top >= end_[length]) continue;
    const std::int32_t place = static_cast<std::int32_t>(top >> (16 - length)) + offset_[length];
    return {static_cast<std::uint8_t>(length), spec_.values[static_cast<std::size_t>(place)]};
  }
  return {};
}

bool DcTable::build(const HuffmanSpec& spec) {
  bool changed = false;
  if (!codes_.build(spec, changed)) return false;
  if (!changed) return valid_;
  unsigned count = 0;
  for (const std::uint8_t of_length : spec.counts) count += of_length;
  valid_ = std::all_of(spec.values.begin(), spec.values.begin() + count,
                       [](std::uint8_t size) { return size < 16; });
  return valid_;
}

namespace {

/// The symbol at the start of a pattern of bits.
struct Symbol {
  std::uint8_t code_bits = 0, size = 0;  // 0: no whole code
  std::uint8_t advance = 0;
  std::int8_t value = 0;  // valid if the pattern also has its bits

  unsigned bits() const { return unsigned{code_bits} + size; }
  bool fits(unsigned end, unsigned pattern_bits) const {
    return code_bits != 0 && size < 8 && end <= pattern_bits;
  }
};

/// The first symbol of each pattern of kLookBits.
std::array<Symbol, std::size_t{1} << AcTable::kLookBits> symbols_of(const CodeTable& codes) {
  constexpr unsigned kBits = AcTable::kLookBits;
  std::array<Symbol, std::size_t{1} << kBits> symbols{};
  codes.for_each(kBits, [&](std::uint32_t code, unsigned length, std::uint8_t symbol) {
    const unsigned size = symbol & 15;
    if (size > AcTable::kMaxSize) return;
    Symbol first{static_cast<std::uint8_t>(length), static_cast<std::uint8_t>(size),
                 advance_of(symbol)};
    auto to = symbols.begin() + (std::ptrdiff_t{code} << (kBits - length));
    if (!first.fits(length + size, kBits)) {
      std::fill_n(to, std::size_t{1} << (kBits - length), first);
      return;
    }
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << size; ++bits) {
      first.value = static_cast<std::int8_t>(extend(bits << 1 << (63 - size), size));
      to = std::fill_n(to, std::size_t{1} << (kBits - length - size), first);
    }
  });
  return symbols;
}

}  // namespace

bool AcTable::build(const HuffmanSpec& spec, bool skips) {
  bool changed = false;
  if (!codes_.build(spec, changed)) return false;
  if (changed) {
    build_entries();
    skips_built_ = false;
  }
  if (skips && !skips_built_) {
    build_skips();
    skips_built_ = true;
  }
  return true;
}

void AcTable::build_entries() {
  const auto symbols = symbols_of(codes_);
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const Symbol& first = symbols[i];
    Entry& entry = entries_[i] = {};
    if (first.code_bits == 0) continue;
    const unsigned bits = first.bits();
    if (!first.fits(bits, kLookBits)) {
      entry.bits = kSpecial | first.code_bits;
      entry.size = first.size;
      entry.first_advance = entry.advance = first.advance;
      continue;
    }
    const auto first_bits = static_cast<std::uint8_t>(bits);
    entry = {first_bits,  first_bits,  first.advance, first.advance,
             first.value, first.value, first.size,    0};
    if (first.advance == kEndOfBlock) continue;
    const Symbol& second = symbols[i << bits & (symbols.size() - 1)];
    if (!second.fits(bits + second.bits(), kLookBits)) continue;
    entry.bits = static_cast<std::uint8_t>(bits + second.bits());
    entry.advance = static_cast<std::uint8_t>(first.advance + second.advance);
    entry.value = second.value;
  }
}

/// Computes patterns of one bit, of two, and so on. The bits after a pattern's first symbol are a
/// shorter pattern, whose entry is already known. Patterns of n bits are at words[1 << n] and
/// after; a word is bits | advance << 8 | before << 16, or 0 if it has no whole code.
void AcTable::build_skips() {
  std::array<std::uint32_t, std::size_t{2} << kSkipBits> words;
  words[1] = 0;
  for (unsigned n = 1; n <= kSkipBits; ++n) {
    std::uint32_t* const patterns = words.data() + (std::size_t{1} << n);
    std::fill_n(patterns, std::size_t{1} << n, 0);
    codes_.for_each(n, [&](std::uint32_t code, unsigned length, std::uint8_t symbol) {
      const unsigned size = symbol & 15, bits = length + size, advance = advance_of(symbol);
      if (size > kMaxSize) return;
      const std::uint32_t alone = bits | advance << 8;
      std::uint32_t* const to = patterns + (std::size_t{code} << (n - length));
      const std::size_t count = std::size_t{1} << (n - length);
      if (bits >= n || advance == kEndOfBlock) {
        std::fill_n(to, count, alone);
        return;
      }
      const std::size_t each = std::size_t{1} << (n - bits);
      const std::uint32_t* const rests = words.data() + each;
      for (std::size_t i = 0; i < each; ++i) {
        const std::uint32_t rest = rests[i];
        const bool joined = rest != 0 && (rest >> 8 & 0xFF) + advance <= 0xFF;
        to[i] = joined ? rest + alone + (advance << 16) : alone;
      }
      for (std::size_t done = each; done < count; done *= 2) std::copy_n(to, done, to + done);
    });
  }
  const std::uint32_t* const whole = words.data() + skips_.size();
  for (std::size_t i = 0; i < skips_.size(); ++i) {
    const std::uint32_t word = whole[i] != 0 ? whole[i] : kSpecial;
    skips_[i] = {static_cast<std::uint8_t>(word), static_cast<std::uint8_t>(word >> 8),
                 static_cast<std::uint8_t>(word >> 16), 0};
  }
}

}  // namespace penstock::jpeg
