// SPDX-License-Identifier: Apache-2.0
// Huffman tables of baseline JPEG (ITU T.81, annex C and F.2.2). They are laid out for decoding by
// table look-up of the next bits: an entry tells how many bits are used and what they mean.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace penstock::jpeg {

/// A table as a DHT segment contains it (T.81, B.2.4.2).
struct HuffmanSpec {
  std::array<std::uint8_t, 17> counts{};   ///< [length]: codes with that many bits; [0] unused
  std::array<std::uint8_t, 256> values{};  ///< in the order of their codes
  bool operator==(const HuffmanSpec&) const = default;
};

/// A position after all of a block's zigzag order; it means that the block has ended.
constexpr unsigned kEndOfBlock = 128;

/// How far an AC symbol, a run of zeros and a size, advances in zigzag order.
constexpr std::uint8_t advance_of(std::uint8_t symbol) {
  const unsigned run = symbol >> 4, size = symbol & 15;
  return static_cast<std::uint8_t>(size == 0 && run != 15 ? kEndOfBlock : run + 1);
}

/// The common part of all tables: finds symbols by their codes, short ones with one look-up.
class CodeTable {
 public:
  static constexpr unsigned kLookBits = 9;
  struct Code {
    std::uint8_t length = 0;  ///< in bits; 0: invalid code
    std::uint8_t symbol = 0;
  };

  /// False if the counts make no prefix code. If `spec` is the same as last time, it builds nothing
  /// and leaves `changed` false.
  bool build(const HuffmanSpec& spec, bool& changed);

  /// Calls `use(code, length, symbol)` for every code of at most `longest` bits, in order.
  template <typename Use>
  void for_each(unsigned longest, const Use& use) const {
    std::uint32_t code = 0;
    std::size_t place = 0;
    for (unsigned length = 1; length <= longest; ++length, code <<= 1) {
      for (unsigned left = spec_.counts[length]; left > 0; --left) {
        use(code++, length, spec_.values[place++]);
      }
    }
  }

  /// The code at the start of the 64 bits.
  [[gnu::always_inline]] Code find(std::uint64_t bits) const {
    const Code code = short_[bits >> (64 - kLookBits)];
    return code.length != 0 ? code : find_long(bits);
  }

 private:
  [[gnu::noinline]] Code find_long(std::uint64_t bits) const;

  HuffmanSpec spec_;
  bool built_ = false;
  std::array<Code, std::size_t{1} << kLookBits> short_{};
  std::array<std::uint32_t, 17> end_{};    // [length]: first 16 bits after such codes
  std::array<std::int32_t, 17> offset_{};  // [length]: from a code to its index in values
};

/// The table for differences of DC coefficients. The symbol is the number of bits that follow.
class DcTable {
 public:
  bool build(const HuffmanSpec& spec);
  [[gnu::always_inline]] CodeTable::Code find(std::uint64_t bits) const {
    return codes_.find(bits);
  }

 private:
  CodeTable codes_;
  bool valid_ = false;
};

/// The table for AC coefficients. Most look-ups find two symbols at once with their values. If
/// values do not matter, a look-up finds as many symbols as fit.
class AcTable {
 public:
  static constexpr unsigned kLookBits = 11, kSkipBits = 12;
  static constexpr unsigned kMaxSize = 10;  ///< T.81, table F.2, for 8 bits; more is damage
  /// Set in the number of bits if one look-up is not enough.
  static constexpr std::uint8_t kSpecial = 0x80;

  /// What the next bits hold: two symbols, or one that then counts as both. Special entries are
  /// symbols whose values have 8 bits or more or do not fit, and codes that do not fit, which have
  /// 0 bits.
  struct Entry {
    std::uint8_t bits = kSpecial;    ///< bits of both symbols; of the code alone, if special
    std::uint8_t first_bits = 0;     ///< bits of the first symbol
    std::uint8_t first_advance = 0;  ///< how far it advances in zigzag order
    std::uint8_t advance = 0;        ///< how far both advance
    std::int8_t first_value = 0, value = 0;
    std::uint8_t size = 0;  ///< bits of a special value
    std::uint8_t unused = 0;
  };
  /// Whole codes in the next bits: all symbols that fit. Special entries are codes that do not fit.
  struct Skip {
    std::uint8_t bits = kSpecial;
    std::uint8_t advance = 0;
    std::uint8_t before = 0;  ///< how far all but the last symbol advance
    std::uint8_t unused = 0;
  };

  /// False if the counts make no prefix code. If `spec` is the same as last time, nothing is built
  /// again. Call look_to_skip() only if `skips` is true.
  bool build(const HuffmanSpec& spec, bool skips = true);
  [[gnu::always_inline]] const Entry& look(std::uint64_t bits) const {
    return entries_[bits >> (64 - kLookBits)];
  }
  [[gnu::always_inline]] const Skip& look_to_skip(std::uint64_t bits) const {
    return skips_[bits >> (64 - kSkipBits)];
  }
  CodeTable::Code find(std::uint64_t bits) const { return codes_.find(bits); }

 private:
  void build_entries();
  void build_skips();

  CodeTable codes_;
  bool skips_built_ = false;
  alignas(64) std::array<Entry, std::size_t{1} << kLookBits> entries_{};
  alignas(64) std::array<Skip, std::size_t{1} << kSkipBits> skips_{};
};

/// T.81, F.2.2.1 (EXTEND): the value of the top `size` bits of `bits`; 0 if `size` is 0.
[[gnu::always_inline]] inline std::int32_t extend(std::uint64_t bits, unsigned size) {
  const auto magnitude = static_cast<std::int32_t>(bits >> 1 >> (63 - size));
  const auto negative = static_cast<std::int32_t>(static_cast<std::int64_t>(~bits) >> 63);
  return magnitude + (negative & (1 - (1 << size)));
}

}  // namespace penstock::jpeg
