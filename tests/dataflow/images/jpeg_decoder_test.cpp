// SPDX-License-Identifier: Apache-2.0
// The jpeg decoder. The oracle: libjpeg's full decode, then the crop of the same random generator,
// then the triangle filter by its definition.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "dataflow/error.h"
#include "dataflow/images/crop.h"
#include "tests/dataflow/images/decoded_rows.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/plain_resample.h"
#include "tests/support/text_bytes.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr ImageShape kSmall{48, 56, 3};

/// Of sample 12; empty: there is none.
std::string error_of(Decoder& decoder, const std::vector<std::byte>& bytes) {
  try {
    decoded_row(decoder, bytes, kSmall, 12);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

/// Inks are stored inverted.
TestImage cmyk_to_rgb(const TestImage& inks) {
  TestImage image{inks.width, inks.height, 3, {}};
  for (std::size_t i = 0; i < inks.pixels.size(); i += 4) {
    const auto light = [&](std::size_t c) { return inks.pixels[i + c]; };
    for (std::size_t c = 0; c < 3; ++c) {
      image.pixels.push_back(static_cast<std::uint8_t>(std::lround(light(c) * light(3) / 255.0)));
    }
  }
  return image;
}

/// Decodes with crops of many seeds, and compares with the oracle.
void expect_regions_equal_full_decode(const std::vector<std::byte>& bytes, bool fancy = true) {
  TestImage full = decode_jpeg(bytes, fancy);
  if (full.channels == 4) full = cmyk_to_rgb(full);
  const auto decoder = make_decoder(fancy ? "jpeg:upsampling=fancy" : "jpeg:upsampling=plain");
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Random random(seed);
    const Region region = choose_region(Crop::random, {full.width, full.height}, {}, random);
    // Smaller than the crop, but by less than half, so that libjpeg does not scale.
    const auto smaller = [](double length) { return static_cast<int>(length / 2) + 1; };
    const ImageShape shape{smaller(region.rows.length), smaller(region.columns.length), 3};
    const bool mirrored = random.uniform() < 0.5;
    const std::vector<double> exact =
        plain_resample(full, region.columns, region.rows, mirrored, shape.width, shape.height);
    ASSERT_LE(max_difference(decoded_row(*decoder, bytes, shape, seed), exact), 1)
        << "seed " << seed << ", " << region.columns.length << 'x' << region.rows.length << " at "
        << region.columns.begin << ',' << region.rows.begin;
  }
}

TEST(JpegDecoder, RegionsEqualTheFullDecodeForAllSubsamplings) {
  for (const auto& [h, v] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {4, 2}}) {
    for (const bool fancy : {true, false}) {
      SCOPED_TRACE(std::to_string(h) + "x" + std::to_string(v) + (fancy ? " fancy" : " plain"));
      expect_regions_equal_full_decode(
          encode_jpeg(make_test_image(229, 187), {.horizontal = h, .vertical = v}), fancy);
    }
  }
}

TEST(JpegDecoder, RegionsEqualTheFullDecodeForAllForms) {
  const TestImage rgb = make_test_image(173, 210);
  const JpegForm forms[] = {{.progressive = true},
                            {.separate_scans = true},
                            {.restart_interval = 3},
                            {.restart_interval = 1, .stored_as_rgb = true},
                            {.arithmetic = true},
                            {.quality = 30},
                            {.quality = 100, .horizontal = 1, .vertical = 1}};
  for (std::size_t i = 0; i < std::size(forms); ++i) {
    SCOPED_TRACE(i);
    expect_regions_equal_full_decode(encode_jpeg(rgb, forms[i]));
  }
  expect_regions_equal_full_decode(encode_jpeg(make_test_image(173, 210, 1)));
  expect_regions_equal_full_decode(
      encode_jpeg(make_test_image(173, 210, 1), {.progressive = true}));
}

TEST(JpegDecoder, InksBecomeRgb) {
  const TestImage inks = make_test_image(120, 90, 4);
  expect_regions_equal_full_decode(encode_jpeg(inks));
  expect_regions_equal_full_decode(encode_jpeg(inks, {.ycck = true}));
  expect_regions_equal_full_decode(encode_jpeg(inks, {.progressive = true}));
  expect_regions_equal_full_decode(encode_jpeg(inks, {.adobe_marker = false}));
}

TEST(JpegDecoder, OddSizesHaveTheirPixels) {
  for (const auto& [width, height] :
       {std::pair{1, 1}, {1, 77}, {77, 1}, {2, 2}, {16, 16}, {17, 33}, {15, 400}}) {
    SCOPED_TRACE(std::to_string(width) + "x" + std::to_string(height));
    expect_regions_equal_full_decode(encode_jpeg(make_test_image(width, height)));
  }
}

TEST(JpegDecoder, LargeImagesAreScaledByLibjpegOnlyWhereEnoughIsLeft) {
  const std::vector<std::byte> bytes = encode_jpeg(make_test_image(901, 811));
  for (const auto& [divisor, shape] : {std::pair{2, ImageShape{400, 450, 3}},
                                       {4, ImageShape{180, 200, 3}},
                                       {8, ImageShape{70, 101, 3}}}) {
    const TestImage scaled = decode_jpeg(bytes, true, divisor);
    const Stretch columns{0, 901.0 / divisor, 0, scaled.width},
        rows{0, 811.0 / divisor, 0, scaled.height};
    const std::vector<double> exact =
        plain_resample(scaled, columns, rows, false, shape.width, shape.height);
    const auto decoder = make_decoder("jpeg:crop=full,flip=false");
    EXPECT_LE(max_difference(decoded_row(*decoder, bytes, shape, 1), exact), 1) << divisor;
  }
}

TEST(JpegDecoder, ScaledRegionsLookLikeTheImage) {
  const TestImage image = make_test_image(1200, 900);
  const std::vector<std::byte> bytes = encode_jpeg(image, {.quality = 95});
  const TestImage full = decode_jpeg(bytes);
  const auto decoder = make_decoder();
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Random random(seed);
    const Region region = choose_region(Crop::random, {1200, 900}, {}, random);
    const bool mirrored = random.uniform() < 0.5;
    const ImageShape shape{40, 40, 3};
    const std::vector<double> exact =
        plain_resample(full, region.columns, region.rows, mirrored, 40, 40);
    const std::vector<std::byte> row = decoded_row(*decoder, bytes, shape, seed);
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i)
      sum += std::abs(std::to_integer<int>(row[i]) - exact[i]);
    EXPECT_LT(sum / static_cast<double>(row.size()), 4)
        << seed;  // another filter, but the same place
  }
}

TEST(JpegDecoder, CentreCropIsTheUsualEvaluation) {
  const std::vector<std::byte> bytes = encode_jpeg(make_test_image(300, 256));
  const TestImage full = decode_jpeg(bytes);
  const std::vector<double> exact =
      plain_resample(full, {38, 224, 0, 300}, {16, 224, 0, 256}, false, 224, 224);
  const auto decoder = make_decoder("jpeg:crop=center,flip=false");
  EXPECT_LE(max_difference(decoded_row(*decoder, bytes, {224, 224, 3}, 1), exact), 1);
}

TEST(JpegDecoder, PixelsAreAFunctionOfTheGenerator) {
  const std::vector<std::byte> bytes = encode_jpeg(make_test_image(200, 150));
  const auto one = make_decoder(), other = make_decoder();
  const std::vector<std::byte> first = decoded_row(*one, bytes, kSmall, 3);
  EXPECT_NE(decoded_row(*one, bytes, kSmall, 4), first);
  EXPECT_EQ(decoded_row(*other, bytes, kSmall, 3), first);
}

TEST(JpegDecoder, FlipsEveryOtherImage) {
  const std::vector<std::byte> bytes = encode_jpeg(make_test_image(64, 64));
  const auto decoder = make_decoder("jpeg:crop=full"),
             straight = make_decoder("jpeg:crop=full,flip=false");
  const std::vector<std::byte> plain = decoded_row(*straight, bytes, kSmall, 1);
  int flipped = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    flipped += decoded_row(*decoder, bytes, kSmall, seed) != plain;
  EXPECT_GT(flipped, 70);
  EXPECT_LT(flipped, 130);
}

// ---- whole images -----------------------------------------------------------

TEST(JpegDecoder, WholeImagesGiveThePixelsOfRegionsByteForByte) {
  const TestImage rgb = make_test_image(229, 187);
  const std::vector<std::byte> files[] = {
      encode_jpeg(rgb),
      encode_jpeg(rgb, {.horizontal = 1, .vertical = 1}),
      encode_jpeg(rgb, {.progressive = true}),
      encode_jpeg(make_test_image(229, 187, 1)),
      encode_jpeg(make_test_image(229, 187, 4)),
  };
  for (const std::string text : {"jpeg:crop=random", "jpeg:crop=center", "jpeg:crop=full",
                                 "jpeg:chain=tf_cnn_benchmarks", "jpeg:chain=tensorpack"}) {
    // One decoder for all files: its buffer has held larger and different images before.
    const auto region = make_decoder(text), whole = make_decoder(text + ",decode=full");
    for (const std::vector<std::byte>& file : files) {
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        // So large that no crop is twice its size; twice is the limit for decoding regions at half
        // scale.
        const ImageShape shape{120, 130, 3};
        EXPECT_EQ(decoded_row(*whole, file, shape, seed), decoded_row(*region, file, shape, seed))
            << text << ", file " << &file - files << ", seed " << seed;
      }
    }
  }
}

TEST(JpegDecoder, WholeImagesAreNotScaledBeforeTheFilter) {
  const std::vector<std::byte> bytes = encode_jpeg(make_test_image(640, 480));
  const TestImage full = decode_jpeg(bytes);
  const std::vector<double> exact =
      plain_resample(full, {0, 640, 0, 640}, {0, 480, 0, 480}, false, kSmall.width, kSmall.height);
  const auto region = make_decoder("jpeg:crop=full,flip=false"),
             whole = make_decoder("jpeg:crop=full,flip=false,decode=full"),
             not_shrunk = make_decoder("jpeg:crop=full,flip=false,shrink=false");
  EXPECT_LE(max_difference(decoded_row(*whole, bytes, kSmall, 1), exact), 1);
  EXPECT_EQ(decoded_row(*not_shrunk, bytes, kSmall, 1), decoded_row(*whole, bytes, kSmall, 1));
  EXPECT_GT(max_difference(decoded_row(*region, bytes, kSmall, 1), exact), 1);
}

TEST(JpegDecoder, WholeImagesAreDamagedWhereverBytesAreMissing) {
  const std::vector<std::byte> bytes = encode_jpeg(make_test_image(200, 150));
  const auto whole = make_decoder("jpeg:decode=full"), fresh = make_decoder("jpeg:decode=full");
  for (std::size_t size = 0; size + 2 < bytes.size(); size += 1 + size / 16) {
    EXPECT_NE(error_of(*whole, {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}),
              "")
        << size;
  }
  EXPECT_EQ(decoded_row(*whole, bytes, kSmall, 3), decoded_row(*fresh, bytes, kSmall, 3));
  const auto strict = make_decoder("jpeg:decode=full,max_pixels=29999");
  EXPECT_TRUE(says(error_of(*strict, bytes), "max_pixels"));
}

// ---- bad input --------------------------------------------------------------

TEST(JpegDecoder, OtherFilesAreDescribed) {
  const auto decoder = make_decoder();
  EXPECT_TRUE(says(error_of(*decoder, bytes_of_text("\x89PNG\r\n\x1a\n....")), "PNG"));
  EXPECT_TRUE(says(error_of(*decoder, bytes_of_text("<html>404")), "HTML"));
  EXPECT_TRUE(says(error_of(*decoder, bytes_of_text("rubbish")), "72 75 62"));
  EXPECT_TRUE(says(error_of(*decoder, {}), "empty"));
  const std::string text = error_of(*decoder, bytes_of_text("rubbish"));
  EXPECT_TRUE(says(text, "some/file.JPEG"));
  EXPECT_TRUE(says(text, "sample 12"));
}

TEST(JpegDecoder, TruncatedFilesAreDamagedUnlessTheRegionIsWhole) {
  const std::vector<std::byte> whole = encode_jpeg(make_test_image(200, 150));
  const auto full = make_decoder("jpeg:crop=full"), random = make_decoder();
  for (std::size_t size = 0; size + 2 < whole.size(); size += 1 + size / 16) {
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(error_of(*full, cut), "") << size;
    try {
      // If it returns pixels, they equal those of the whole file: never grey in place of missing
      // bytes.
      EXPECT_EQ(decoded_row(*random, cut, kSmall, size), decoded_row(*random, whole, kSmall, size));
    } catch (const DataError&) {
    }
  }
}

TEST(JpegDecoder, GoesOnBehindDamage) {
  const std::vector<std::byte> whole =
      encode_jpeg(make_test_image(200, 150), {.progressive = true});
  const auto decoder = make_decoder("jpeg:crop=full"), fresh = make_decoder("jpeg:crop=full");
  const std::vector<std::byte> half(whole.begin(),
                                    whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2));
  EXPECT_TRUE(says(error_of(*decoder, half), "remature end"));
  EXPECT_EQ(decoded_row(*decoder, whole, kSmall, 3), decoded_row(*fresh, whole, kSmall, 3));
}

TEST(JpegDecoder, FlippedBitsEndInPixelsOrAnError) {
  const JpegForm forms[] = {{},
                            {.progressive = true},
                            {.restart_interval = 4},
                            {.arithmetic = true},
                            {.separate_scans = true}};
  // A damaged header may state any size; huge sizes must not be decoded.
  const auto decoder = make_decoder("jpeg:max_pixels=1000000");
  Random random(11);
  int errors = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<std::byte> bytes = encode_jpeg(make_test_image(97, 65), forms[trial % 5]);
    const std::size_t range =
        trial % 2 == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 700);
    for (int flips = 0; flips < 1 + trial % 4; ++flips) {
      bytes[random.below(range)] ^= std::byte{1} << static_cast<int>(random.below(8));
    }
    errors += !error_of(*decoder, bytes).empty();
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_GT(errors, 100);
}

TEST(JpegDecoder, HugeImagesAreRefusedByTheirHeader) {
  std::vector<std::byte> bytes = encode_jpeg(make_test_image(64, 64));
  for (std::size_t i = 0; i + 8 < bytes.size(); ++i) {
    if (bytes[i] != std::byte{0xFF} || bytes[i + 1] != std::byte{0xC0}) continue;
    for (std::size_t k = 5; k < 9; ++k) bytes[i + k] = std::byte{0xFE};
    break;
  }
  const auto decoder = make_decoder();
  EXPECT_TRUE(says(error_of(*decoder, bytes), "65278x65278"));
  const auto strict = make_decoder("jpeg:max_pixels=4095");
  EXPECT_TRUE(says(error_of(*strict, encode_jpeg(make_test_image(64, 64))), "max_pixels"));
}

TEST(JpegDecoder, ThousandsOfScansAreRefused) {
  const std::vector<std::byte> bytes =
      encode_jpeg(make_flat_image(64, 64, 9, 80, 200), {.progressive = true});
  // Repeats the last scan, which refines nothing: from its SOS marker to the end of the image.
  std::size_t last = 0;
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
    if (bytes[i] == std::byte{0xFF} && bytes[i + 1] == std::byte{0xDA}) last = i;
  }
  std::vector<std::byte> bomb(bytes.begin(), bytes.end() - 2);
  for (int i = 0; i < 5000; ++i)
    bomb.insert(bomb.end(), bytes.begin() + static_cast<std::ptrdiff_t>(last), bytes.end() - 2);
  bomb.insert(bomb.end(), bytes.end() - 2, bytes.end());
  const auto decoder = make_decoder();
  const std::string error = error_of(*decoder, bomb);
  EXPECT_TRUE(says(error, "more than 100 scans"));
}

TEST(JpegDecoder, WrongOptionsAreRefused) {
  EXPECT_THROW(make_decoder("jpeg:crop=left"), ConfigError);
  EXPECT_THROW(make_decoder("jpeg:upsampling=none"), ConfigError);
  EXPECT_THROW(make_decoder("jpeg:max_pixels=0"), ConfigError);
  EXPECT_THROW(make_decoder("jpeg:decode=raw"), ConfigError);
}

}  // namespace
}  // namespace penstock
