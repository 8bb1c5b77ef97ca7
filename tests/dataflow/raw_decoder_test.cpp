// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "dataflow/decoder.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr ImageShape kShape{3, 5, 3};
constexpr std::ptrdiff_t kLine = 15;

class RawDecoderTest : public testing::Test {
 protected:
  RawDecoderTest() {
    sample_.file = "some/file.JPEG";
    sample_.index = 12;
    for (std::size_t i = 0; i < kShape.elements(); ++i) pixels_.push_back(std::byte(i + 1));
    sample_.lent = pixels_;
  }

  static std::unique_ptr<Decoder> make(std::string_view text = "raw") {
    const DecoderEntry& entry = find_entry(decoder_table(), "raw");
    return entry.make(Options(entry.name, entry.options, parse_component(text)));
  }

  std::vector<std::byte> decode(Decoder& decoder, std::uint64_t seed,
                                std::ptrdiff_t row_bytes = kLine) const {
    std::vector<std::byte> row(static_cast<std::size_t>(row_bytes * kShape.height));
    Random random(seed);
    decoder.decode(sample_, {row.data(), kShape, DType::u8, row_bytes}, random);
    return row;
  }

  std::vector<std::byte> pixels_;
  Sample sample_;
};

TEST_F(RawDecoderTest, CopiesPixelsAsTheyAre) {
  const auto decoder = make();
  for (std::uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(decode(*decoder, seed), pixels_);
  const std::vector<std::byte> padded = decode(*decoder, 1, kLine + 4);
  for (std::size_t y = 0; y < 3; ++y) {
    EXPECT_TRUE(std::equal(pixels_.begin() + static_cast<std::ptrdiff_t>(y) * kLine,
                           pixels_.begin() + static_cast<std::ptrdiff_t>(y + 1) * kLine,
                           padded.begin() + static_cast<std::ptrdiff_t>(y) * (kLine + 4)));
    EXPECT_EQ(padded[y * (kLine + 4) + kLine], std::byte{0});
  }
}

TEST_F(RawDecoderTest, FlipsEveryOtherImageIfAsked) {
  std::vector<std::byte> mirrored;
  for (std::size_t y = 0; y < 3; ++y) {
    for (std::size_t x = 5; x-- > 0;) {
      for (std::size_t c = 0; c < 3; ++c) mirrored.push_back(pixels_[(y * 5 + x) * 3 + c]);
    }
  }
  const auto decoder = make("raw:flip");
  int flipped = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<std::byte> row = decode(*decoder, seed);
    EXPECT_TRUE(row == pixels_ || row == mirrored);
    flipped += row == mirrored;
  }
  EXPECT_GT(flipped, 70);
  EXPECT_LT(flipped, 130);
}

TEST_F(RawDecoderTest, PixelsOfAnotherSizeAreRefused) {
  pixels_.pop_back();
  sample_.lent = pixels_;
  const auto decoder = make();
  try {
    decode(*decoder, 1);
    FAIL() << "copied them";
  } catch (const DataError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("some/file.JPEG"), std::string::npos) << text;
    EXPECT_NE(text.find("44 bytes; expected 45, 3x5x3"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace penstock
