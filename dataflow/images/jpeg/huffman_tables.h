// SPDX-License-Identifier: Apache-2.0
// Huffman tables of baseline JPEG (ITU T.81, annex C and F.2.2), laid out for decoding by looking
// up the next bits: an entry says how many of them are spent and what they mean.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace penstock::jpeg {

/// As a DHT segment gives it (T.81, B.2.4.2).
struct HuffmanSpec {
  std::array<std::uint8_t, 17> counts{};   ///< [length]: codes of that many bits; [0] unused
  std::array<std::uint8_t, 256> values{};  ///< in the order of their codes
  bool operator==(const HuffmanSpec&) const = default;
};

/// Position in a block's zigzag order that no coefficient has: the block ended.
constexpr unsigned kEndOfBlock = 128;

/// What all tables share: symbols by their codes, the short ones by one look.
class CodeTable {
 public:
  static constexpr unsigned kLookBits = 9;
  struct Code {
    std::uint8_t length = 0;  ///< in bits; 0: no code begins like this
    std::uint8_t symbol = 0;
  };

  /// False if the counts make no prefix code. Builds nothing if `spec` is the one of last time, and
  /// then leaves `changed` false.
  bool build(const HuffmanSpec& spec, bool& changed);

  /// Calls `use(code, length, symbol)` for every code of at most `longest` bits, in their order.
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

  /// The code that the 64 bits begin with.
  [[gnu::always_inline]] Code find(std::uint64_t bits) const {
    const Code code = short_[bits >> (64 - kLookBits)];
    return code.length != 0 ? code : find_long(bits);
  }

 private:
  [[gnu::noinline]] Code find_long(std::uint64_t bits) const;

  HuffmanSpec spec_;
  bool built_ = false;
  std::array<Code, std::size_t{1} << kLookBits> short_{};
  std::array<std::uint32_t, 17> end_{};    // [length]: first 16 bits that are no such code any more
  std::array<std::int32_t, 17> offset_{};  // [length]: from a code to its place in values
};

/// Differences of DC coefficients: the symbol is the number of bits that follow.
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

/// AC coefficients. Most looks find two symbols at once with their values, or, where values do not
/// matter, as many as there are.
class AcTable {
 public:
  static constexpr unsigned kLookBits = 11, kSkipBits = 12;
  static constexpr unsigned kMaxSize = 10;  ///< T.81, table F.2, for 8 bits; more is damage
  /// Set in the number of bits of what takes more than a look.
  static constexpr std::uint8_t kSpecial = 0x80;

  /// What the next bits hold: two symbols, or one that then counts as both. Special are symbols
  /// whose values have 8 bits or more or do not fit, and codes that do not fit, which have 0 bits.
  struct Entry {
    std::uint8_t bits = kSpecial;    ///< that the symbols take; the code alone, if special
    std::uint8_t first_bits = 0;     ///< that the first one takes
    std::uint8_t first_advance = 0;  ///< by how much it moves on in zigzag order
    std::uint8_t advance = 0;        ///< by how much both do
    std::int8_t first_value = 0, value = 0;
    std::uint8_t size = 0;  ///< bits of a special value
    std::uint8_t unused = 0;
  };
  /// Symbols that have whole codes there: all of them, or fewer. Special are codes that do not fit.
  struct Skip {
    std::uint8_t bits = kSpecial;
    std::uint8_t advance = 0;
    std::uint8_t before = 0;  ///< by how much all but the last move on
    std::uint8_t unused = 0;
  };

  /// False if the counts make no prefix code. Of a table that is the one of last time nothing is
  /// built again. look_to_skip() may be called only if `skips`.
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

/// T.81, F.2.2.1 (EXTEND): the value of `size` bits that stand at the top of `bits`; 0 for none.
[[gnu::always_inline]] inline std::int32_t extend(std::uint64_t bits, unsigned size) {
  const auto magnitude = static_cast<std::int32_t>(bits >> 1 >> (63 - size));
  const auto negative = static_cast<std::int32_t>(static_cast<std::int64_t>(~bits) >> 63);
  return magnitude + (negative & (1 - (1 << size)));
}

}  // namespace penstock::jpeg
