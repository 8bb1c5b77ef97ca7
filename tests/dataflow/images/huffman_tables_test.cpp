// SPDX-License-Identifier: Apache-2.0
// Huffman decoding by lookup tables. The oracle matches the specification's list of codes bit by
// bit.
#include "dataflow/images/jpeg/huffman_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "dataflow/random.h"

namespace penstock::jpeg {
namespace {

/// The symbol at the start of a string of bits; length 0: no code.
struct PlainSymbol {
  unsigned length = 0, size = 0, advance = 0;
  std::int32_t value = 0;
  unsigned bits() const { return length + size; }
};

PlainSymbol plain_symbol(const HuffmanSpec& spec, std::uint64_t bits) {
  std::uint64_t code = 0;
  std::size_t place = 0;
  for (unsigned length = 1; length <= 16; ++length, code <<= 1) {
    for (unsigned i = 0; i < spec.counts[length]; ++i, ++code, ++place) {
      if (bits >> (64 - length) != code) continue;
      const unsigned run = spec.values[place] >> 4, size = spec.values[place] & 15;
      if (size > AcTable::kMaxSize) return {};
      const std::uint64_t rest = bits << length;
      const auto magnitude = static_cast<std::int32_t>(size == 0 ? 0 : rest >> (64 - size));
      const bool negative = size > 0 && rest >> 63 == 0;
      return {length, size, size == 0 && run != 15 ? kEndOfBlock : run + 1,
              negative ? magnitude - (1 << size) + 1 : magnitude};
    }
  }
  return {};
}

/// Random symbols, or small values first as in real files. Codes have random lengths, at least
/// `shortest` bits.
HuffmanSpec make_spec(Random& random, unsigned shortest, bool small_first) {
  HuffmanSpec spec;
  std::vector<std::uint8_t> symbols(256);
  std::iota(symbols.begin(), symbols.end(), std::uint8_t{0});
  for (std::size_t i = symbols.size(); i > 1; --i)
    std::swap(symbols[i - 1], symbols[random.below(i)]);
  if (small_first) {
    std::ranges::stable_sort(symbols, {}, [](unsigned symbol) {
      const unsigned size = symbol & 15;
      return size == 0 && symbol != 0xF0 ? 4 : size;
    });
  }
  std::copy(symbols.begin(), symbols.end(), spec.values.begin());
  std::uint64_t free = 1;  // codes of this length without a shorter code as prefix
  std::uint64_t left = 256;
  for (unsigned length = 1; length <= 16; ++length) {
    free *= 2;
    if (length < shortest) continue;
    const std::uint64_t most = std::min({free - 1, left, std::uint64_t{200}});
    const std::uint64_t count = most == 0 ? 0 : random.below(most / (1 + random.below(4)) + 1);
    spec.counts[length] = static_cast<std::uint8_t>(count);
    free -= count;
    left -= count;
  }
  return spec;
}

/// Every pattern of `bits` bits at the top, followed by random bits.
template <typename Use>
void for_each_pattern(unsigned bits, Random& random, const Use& use) {
  for (std::uint64_t i = 0; i < std::uint64_t{1} << bits; ++i) {
    const std::uint64_t behind = random.below(std::uint64_t{1} << 32) << 12;
    use(i << (64 - bits) | behind);
  }
}

void expect_entries(const AcTable& table, const HuffmanSpec& spec, Random& random) {
  for_each_pattern(AcTable::kLookBits, random, [&](std::uint64_t bits) {
    const AcTable::Entry& entry = table.look(bits);
    const PlainSymbol first = plain_symbol(spec, bits);
    const bool whole = first.length != 0 && first.length <= AcTable::kLookBits;
    if (entry.bits >= AcTable::kSpecial) {
      const unsigned code_bits = entry.bits - AcTable::kSpecial;
      ASSERT_EQ(code_bits, whole ? first.length : 0U);
      if (!whole) return;
      ASSERT_EQ(entry.size, first.size);
      ASSERT_EQ(entry.advance, first.advance);
      ASSERT_TRUE(first.size >= 8 || first.bits() > AcTable::kLookBits);
      return;
    }
    ASSERT_TRUE(whole);
    ASSERT_EQ(entry.first_bits, first.bits());
    ASSERT_EQ(entry.first_advance, first.advance);
    ASSERT_EQ(entry.first_value, first.value);
    if (entry.bits == entry.first_bits) {
      ASSERT_EQ(entry.advance, first.advance);
      ASSERT_EQ(entry.value, first.value);
      return;
    }
    const PlainSymbol second = plain_symbol(spec, bits << first.bits());
    ASSERT_EQ(entry.bits, first.bits() + second.bits());
    ASSERT_LE(entry.bits, AcTable::kLookBits);
    ASSERT_EQ(entry.advance, first.advance + second.advance);
    ASSERT_EQ(entry.value, second.value);
  });
}

/// Returns the total number of symbols that lookups find in addition to the first ones.
std::size_t expect_skips(const AcTable& table, const HuffmanSpec& spec, Random& random) {
  std::size_t symbols = 0;
  for_each_pattern(AcTable::kSkipBits, random, [&](std::uint64_t bits) {
    const AcTable::Skip& skip = table.look_to_skip(bits);
    const PlainSymbol first = plain_symbol(spec, bits);
    if (skip.bits == AcTable::kSpecial) {
      ASSERT_TRUE(first.length == 0 || first.length > AcTable::kSkipBits);
      return;
    }
    unsigned taken = 0, advance = 0, before = 0;
    bool ended = false;
    while (taken < skip.bits) {
      ASSERT_FALSE(ended) << "symbols behind the end of the block";
      const PlainSymbol next = plain_symbol(spec, bits << taken);
      ASSERT_NE(next.length, 0U);
      ASSERT_LE(taken + next.length, AcTable::kSkipBits) << "a code that is not whole";
      before = advance;
      taken += next.bits();
      advance += next.advance;
      ended = next.advance == kEndOfBlock;
      symbols += before > 0 ? 1 : 0;
    }
    ASSERT_EQ(skip.bits, taken);
    ASSERT_EQ(skip.advance, advance);
    ASSERT_EQ(skip.before, before);
  });
  return symbols;
}

TEST(HuffmanTables, LooksFindTheSymbolsThatAreThere) {
  Random random(5);
  AcTable table;  // the same table for all, as in a decoder
  std::size_t symbols = 0;
  for (unsigned i = 0; i < 60 && !testing::Test::HasFatalFailure(); ++i) {
    SCOPED_TRACE(i);
    const HuffmanSpec spec = make_spec(random, 1 + i % 6, i % 2 == 0);
    const bool skips_later = i % 3 == 0;
    ASSERT_TRUE(table.build(spec, !skips_later));
    expect_entries(table, spec, random);
    ASSERT_TRUE(table.build(spec, true));
    symbols += expect_skips(table, spec, random);
    expect_entries(table, spec, random);
  }
  EXPECT_GT(symbols, 10U << AcTable::kSkipBits);
}

TEST(HuffmanTables, RunsOfZerosAreAddedUpAsFarAsTheyFit) {
  HuffmanSpec spec;  // two codes: "0" skips 16 zeros, "10" ends the block
  spec.counts[1] = 1;
  spec.counts[2] = 1;
  spec.values[0] = 0xF0;
  spec.values[1] = 0x00;
  AcTable table;
  ASSERT_TRUE(table.build(spec));
  Random random(6);
  EXPECT_GT(expect_skips(table, spec, random), 0U);
}

TEST(HuffmanTables, CountsThatMakeNoCodeAreRefused) {
  HuffmanSpec spec;
  AcTable ac;
  DcTable dc;
  spec.counts[1] = 2;  // only one code of one bit is allowed, because all ones is no code
  EXPECT_FALSE(ac.build(spec));
  EXPECT_FALSE(dc.build(spec));
  spec.counts[1] = 1;
  spec.values[0] = 16;  // a difference of 16 bits
  EXPECT_TRUE(ac.build(spec));
  EXPECT_FALSE(dc.build(spec));
  EXPECT_FALSE(dc.build(spec)) << "the second time";
  spec.values[0] = 11;
  EXPECT_TRUE(dc.build(spec));
  spec.counts.fill(200);
  EXPECT_FALSE(ac.build(spec));
}

TEST(HuffmanTables, ValuesAreExtendedByTheirSign) {
  EXPECT_EQ(extend(0, 0), 0);
  EXPECT_EQ(extend(~std::uint64_t{0}, 0), 0);
  EXPECT_EQ(extend(std::uint64_t{1} << 63, 1), 1);
  EXPECT_EQ(extend(0, 1), -1);
  EXPECT_EQ(extend(std::uint64_t{0b100} << 61, 3), 4);
  EXPECT_EQ(extend(std::uint64_t{0b011} << 61, 3), -4);
  EXPECT_EQ(extend(0, 11), -2047);
}

}  // namespace
}  // namespace penstock::jpeg
