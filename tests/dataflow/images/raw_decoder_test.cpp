// SPDX-License-Identifier: Apache-2.0
// The raw decoder. The oracles: the pixels, the resampler, and the triangle filter by its
// definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "dataflow/error.h"
#include "dataflow/images/crop.h"
#include "tests/dataflow/images/decoded_rows.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/plain_resample.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

constexpr ImageShape kShape{3, 5, 3};
constexpr std::ptrdiff_t kLine = 15;

Bytes bytes_of(const TestImage& image) {
  const auto bytes = std::as_bytes(std::span(image.pixels));
  return {bytes.begin(), bytes.end()};
}

Sample make_sample(Bytes pixels, PixelLayout layout) {
  Sample sample;
  sample.bytes = std::move(pixels);
  sample.layout = layout;
  sample.file = "some/file.bin";
  sample.index = 12;
  return sample;
}

Bytes decode(Decoder& decoder, const Sample& sample, Random random, ImageShape shape = kShape) {
  return decoded_row(decoder, sample, shape, random);
}

class RawDecoderTest : public testing::Test {
 protected:
  RawDecoderTest() {
    for (std::size_t i = 0; i < kShape.elements(); ++i) pixels_.push_back(std::byte(i + 1));
    sample_ = make_sample(pixels_, {5, 3});
    for (std::size_t y = 0; y < 3; ++y) {
      for (std::size_t x = 5; x-- > 0;) {
        for (std::size_t c = 0; c < 3; ++c) mirrored_.push_back(pixels_[(y * 5 + x) * 3 + c]);
      }
    }
  }

  /// In planes, with the channels in this order.
  Bytes planes(std::initializer_list<std::size_t> channels) const {
    Bytes result;
    for (const std::size_t c : channels) {
      for (std::size_t i = 0; i < 15; ++i) result.push_back(pixels_[i * 3 + c]);
    }
    return result;
  }

  Bytes pixels_, mirrored_;
  Sample sample_;
};

TEST_F(RawDecoderTest, CopiesPixelsAsTheyAre) {
  const auto decoder = make_decoder("raw");
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(decode(*decoder, sample_, Random(seed)), pixels_);
  }
  Bytes padded(3 * (kLine + 4));
  Random random(1);
  decoder->decode(sample_, {padded.data(), kShape, DType::u8, kLine + 4}, random);
  for (std::size_t y = 0; y < 3; ++y) {
    EXPECT_TRUE(std::equal(pixels_.begin() + static_cast<std::ptrdiff_t>(y) * kLine,
                           pixels_.begin() + static_cast<std::ptrdiff_t>(y + 1) * kLine,
                           padded.begin() + static_cast<std::ptrdiff_t>(y) * (kLine + 4)));
    EXPECT_EQ(padded[y * (kLine + 4) + kLine], std::byte{0});
  }
}

TEST_F(RawDecoderTest, PlanesAndOtherOrdersOfChannelsBecomeRgb) {
  const auto decoder = make_decoder("raw"), flipping = make_decoder("raw:flip");
  const Sample planar = make_sample(planes({0, 1, 2}), {5, 3, 3, true});
  const Sample bgr_planar = make_sample(planes({2, 1, 0}), {5, 3, 3, true, true});
  Bytes swapped = pixels_;
  for (std::size_t i = 0; i < swapped.size(); i += 3) std::swap(swapped[i], swapped[i + 2]);
  const Sample bgr = make_sample(swapped, {5, 3, 3, false, true});
  for (const Sample* sample : {&planar, &bgr_planar, &bgr}) {
    EXPECT_EQ(decode(*decoder, *sample, Random(1)), pixels_);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      EXPECT_EQ(decode(*flipping, *sample, Random(seed)), decode(*flipping, sample_, Random(seed)));
    }
  }
  Bytes grey, triple;
  for (int i = 0; i < 15; ++i) {
    grey.push_back(std::byte(i + 40));
    triple.insert(triple.end(), 3, std::byte(i + 40));
  }
  EXPECT_EQ(decode(*decoder, make_sample(grey, {5, 3, 1}), Random(1)), triple);
  EXPECT_EQ(decode(*decoder, make_sample(grey, {5, 3, 1, true}), Random(1)), triple);
}

TEST_F(RawDecoderTest, FlipsEveryOtherImageIfAsked) {
  const auto decoder = make_decoder("raw:flip");
  int flipped = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Bytes row = decode(*decoder, sample_, Random(seed));
    EXPECT_TRUE(row == pixels_ || row == mirrored_);
    flipped += row == mirrored_;
  }
  EXPECT_GT(flipped, 70);
  EXPECT_LT(flipped, 130);
}

TEST_F(RawDecoderTest, PaddedCropsAreAllShiftsOverBlack) {
  std::set<std::string> expected, seen;
  for (const Bytes* from : {&pixels_, &mirrored_}) {
    for (int top = -2; top <= 2; ++top) {
      for (int left = -2; left <= 2; ++left) {
        std::string shifted;
        for (int y = top; y < top + 3; ++y) {
          for (int i = 3 * left; i < 3 * (left + 5); ++i) {
            const bool inside = y >= 0 && y < 3 && i >= 0 && i < 15;
            shifted +=
                inside ? static_cast<char>((*from)[static_cast<std::size_t>(y * 15 + i)]) : '\0';
          }
        }
        expected.insert(shifted);
      }
    }
  }
  const auto decoder = make_decoder("raw:crop=pad2");
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const Bytes row = decode(*decoder, sample_, Random(seed));
    seen.emplace(reinterpret_cast<const char*>(row.data()), row.size());
  }
  EXPECT_EQ(seen.size(), 50U);
  EXPECT_EQ(seen, expected);
}

TEST_F(RawDecoderTest, OfAnotherSizeAreResampledLikeDecodedImages) {
  const TestImage image = make_test_image(61, 47);
  const Sample sample = make_sample(bytes_of(image), {61, 47});
  const ImageShape shape{20, 24, 3};
  const auto random_crop = make_decoder("raw"), centre = make_decoder("raw:auto-center"),
             padded = make_decoder("raw:pad6");
  TestImage black{73, 59, 3, std::vector<std::uint8_t>(std::size_t{73} * 59 * 3)};
  for (int y = 0; y < 47; ++y) {
    std::copy_n(image.at(0, y), 61 * 3, black.pixels.data() + ((y + 6) * 73 + 6) * 3);
  }
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Random random(seed), pad_random(seed);
    const Region region = choose_region(Crop::random, {61, 47}, {}, random);
    const bool mirrored = random.uniform() < 0.5;
    EXPECT_LE(max_difference(decode(*random_crop, sample, Random(seed), shape),
                             plain_resample(image, region.columns, region.rows, mirrored, 24, 20)),
              1);
    const Region shifted = padded_crop({61, 47}, 6, pad_random);
    const bool pad_mirrored = pad_random.uniform() < 0.5;
    EXPECT_LE(
        max_difference(decode(*padded, sample, Random(seed), shape),
                       plain_resample(black, shifted.columns, shifted.rows, pad_mirrored, 24, 20)),
        1);
  }
  Random unused(1);
  const Region middle = choose_region(Crop::centre, {61, 47}, shape, unused);
  EXPECT_LE(max_difference(decode(*centre, sample, Random(1), shape),
                           plain_resample(image, middle.columns, middle.rows, false, 24, 20)),
            1);
}

TEST_F(RawDecoderTest, CopiesAreWhatTheResamplerGivesAtTheSameSize) {
  const TestImage image = make_test_image(29, 23);
  const Bytes pixels = bytes_of(image);
  EXPECT_EQ(
      decode(*make_decoder("raw:crop=full"), make_sample(pixels, {29, 23}), Random(1), {23, 29, 3}),
      pixels);
  const Stretch columns{0, 29, 0, 29}, rows{0, 23, 0, 23};
  EXPECT_EQ(max_difference(pixels, plain_resample(image, columns, rows, false, 29, 23)), 0);
}

TEST_F(RawDecoderTest, PixelsThatAreNotAsManyAsTheirLayoutSaysAreRefused) {
  const auto decoder = make_decoder("raw");
  sample_.bytes.pop_back();
  const std::string text = thrown_by<DataError>([&] { decode(*decoder, sample_, Random(1)); });
  EXPECT_TRUE(says(text, "some/file.bin"));
  EXPECT_TRUE(says(text, "44 bytes for 3x5x3 pixels"));
  for (const PixelLayout layout : {PixelLayout{}, PixelLayout{-5, -3}, PixelLayout{5, 3, 2},
                                   PixelLayout{5, 0}, PixelLayout{INT32_MAX, INT32_MAX, 3}}) {
    EXPECT_THROW(decode(*decoder, make_sample(pixels_, layout), Random(1)), DataError);
  }
}

TEST_F(RawDecoderTest, CropsThatMakeNoSenseAreRefused) {
  for (const char* text : {"left", "pad", "pad0", "pad-1", "pad4x", "pad257", "pad99999999999"}) {
    EXPECT_THROW(make_decoder(std::string("raw:crop=") + text), ConfigError) << text;
  }
}

}  // namespace
}  // namespace penstock
