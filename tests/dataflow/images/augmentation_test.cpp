// SPDX-License-Identifier: Apache-2.0
// Augmentation chains through the whole jpeg decoder. The oracle: libjpeg's full decode, the crop
// of the same random generator, the resize method by its definition, and the distortion of the same
// pixels.
#include "dataflow/images/augmentation.h"

#include <gtest/gtest.h>

#include <string>

#include "dataflow/error.h"
#include "tests/dataflow/images/decoded_rows.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/plain_resample.h"

namespace penstock {
namespace {

Options options_of(std::string_view text) {
  const DecoderEntry& entry = find_entry(decoder_table(), "jpeg");
  return {entry.name, entry.options, parse_component(text)};
}

Sample make_sample(const std::vector<std::byte>& bytes, std::uint64_t index,
                   std::uint64_t epoch = 0) {
  Sample sample;
  sample.lent = bytes;
  sample.index = index;
  sample.epoch = epoch;
  return sample;
}

ImageView view_of(std::vector<std::byte>& row, ImageShape shape) {
  return {row.data(), shape, DType::u8, std::ptrdiff_t{3} * shape.width};
}

TEST(Augmentation, ChainsNameTheirPartsAndOptionsOverrideThem) {
  const Augmentation usual = read_augmentation("jpeg", options_of("jpeg"));
  EXPECT_EQ(usual.crop, Crop::random);
  EXPECT_EQ(usual.filter(3), Filter::bilinear);
  EXPECT_EQ(usual.colour, Colour::none);
  const Augmentation tf = read_augmentation("jpeg", options_of("jpeg:chain=tf-cnn-benchmarks"));
  EXPECT_EQ(tf.crop, Crop::tf_box);
  EXPECT_EQ(tf.filter(0), Filter::tf_bilinear);
  EXPECT_EQ(tf.colour, Colour::none);
  EXPECT_EQ(evaluation_of(tf).crop, Crop::tf_centre);
  const Augmentation tensorpack = read_augmentation("jpeg", options_of("jpeg:chain=tensorpack"));
  EXPECT_EQ(tensorpack.crop, Crop::tensorpack_random);
  EXPECT_EQ(tensorpack.filter(0), Filter::cv_bicubic);
  EXPECT_EQ(tensorpack.colour, Colour::fbresnet);
  EXPECT_EQ(evaluation_of(tensorpack).crop, Crop::tensorpack_centre);
  EXPECT_EQ(evaluation_of(tensorpack).colour, Colour::none);
  EXPECT_EQ(evaluation_of(tensorpack).filter(0), Filter::cv_bicubic);
  const Augmentation mixed = read_augmentation(
      "jpeg", options_of("jpeg:crop=full,color=tf,resize=round_robin,chain=tensorpack"));
  EXPECT_EQ(mixed.crop, Crop::full);
  EXPECT_EQ(mixed.filter(2), Filter::bicubic);
  EXPECT_EQ(mixed.filter(7), Filter::area);
  EXPECT_EQ(mixed.colour, Colour::tf);
  for (const char* text : {"jpeg:chain=keras", "jpeg:crop=left", "jpeg:resize=lanczos",
                           "jpeg:color=sepia", "jpeg:chain="}) {
    EXPECT_THROW(make_decoder(text), ConfigError) << text;
  }
}

TEST(Augmentation, EveryCropAndResizeEqualsTheFullDecodeAtEveryEdge) {
  const TestImage image = make_test_image(61, 45);
  const std::vector<std::byte> bytes = encode_jpeg(image);
  const TestImage full = decode_jpeg(bytes);
  int left = 0, right = 0, top = 0, bottom = 0;
  for (const OptionValue& crop : kCropValues) {
    for (std::size_t method = 0; method + 2 < std::size(kResizeValues); ++method) {
      const std::string text = std::string("jpeg:crop=") + std::string(crop.name) +
                               ",resize=" + std::string(kResizeValues[method].name);
      const auto decoder = make_decoder(text);
      for (std::uint64_t seed = 0; seed < 25; ++seed) {
        // Larger and smaller than the crops, by less than half, so that libjpeg does not scale.
        // Primes: if a nearest pixel is a tie, rounding decides.
        const ImageShape shape{seed % 2 == 0 ? 53 : 41, seed % 3 == 0 ? 67 : 47, 3};
        Random random(seed);
        const Region region =
            choose_region(parse_crop("", crop.name), {full.width, full.height}, shape, random);
        const bool mirrored = random.uniform() < 0.5;
        const std::vector<double> exact =
            plain_resample(full, region.columns, region.rows, mirrored, shape.width, shape.height,
                           static_cast<Filter>(method));
        ASSERT_LE(max_difference(decoded_row(*decoder, bytes, shape, seed), exact), 1)
            << text << ", seed " << seed;
        left += region.columns.begin == 0;
        right += region.columns.begin + region.columns.length == full.width;
        top += region.rows.begin == 0;
        bottom += region.rows.begin + region.rows.length == full.height;
      }
    }
  }
  for (const int edge : {left, right, top, bottom}) EXPECT_GT(edge, 100);
}

TEST(Augmentation, CropsOfBoxesAreOfTheSamplesBoxes) {
  const std::vector<std::byte> bytes = encode_jpeg(make_test_image(61, 45));
  const auto decoder = make_decoder("jpeg:crop=tf_box,flip=false"),
             plain = make_decoder("jpeg:crop=tf_random,flip=false");
  constexpr ImageShape kShape{53, 67, 3};
  const TestImage full = decode_jpeg(bytes);
  int differ = 0;
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    Sample sample = make_sample(bytes, seed);
    EXPECT_EQ(decoded_row(*decoder, sample, kShape, Random(seed)),
              decoded_row(*plain, sample, kShape, Random(seed)));
    sample.boxes = {{0, 0, 0.1F, 0.1F}};
    Random random(seed);
    const Region region =
        choose_region(Crop::tf_box, {full.width, full.height}, kShape, random, sample.boxes);
    const std::vector<std::byte> cropped = decoded_row(*decoder, sample, kShape, Random(seed));
    EXPECT_LE(
        max_difference(cropped, plain_resample(full, region.columns, region.rows, false,
                                               kShape.width, kShape.height, Filter::bilinear)),
        1);
    differ += cropped != decoded_row(*plain, sample, kShape, Random(seed));
  }
  EXPECT_GT(differ, 5);
}

TEST(Augmentation, OnlyAntialiasedMethodsAreShrunkByLibjpegFirst) {
  const std::vector<std::byte> bytes = encode_jpeg(make_test_image(640, 480));
  for (std::size_t method = 0; method + 2 < std::size(kResizeValues); ++method) {
    const std::string text =
        std::string("jpeg:crop=full,flip=false,resize=") + std::string(kResizeValues[method].name);
    const auto region = make_decoder(text), whole = make_decoder(text + ",decode=full");
    const ImageShape shape{48, 56, 3};
    const bool same = decoded_row(*region, bytes, shape) == decoded_row(*whole, bytes, shape);
    EXPECT_EQ(same, !is_antialiased(static_cast<Filter>(method))) << text;
  }
}

TEST(Augmentation, ColoursAreDistortedAfterCropAndFlip) {
  const std::vector<std::byte> bytes = encode_jpeg(make_test_image(120, 90));
  constexpr ImageShape kShape{61, 53, 3};
  const auto plain = make_decoder("jpeg");
  for (const char* name : {"tf", "tf_yiq", "fbresnet"}) {
    const auto decoder = make_decoder(std::string("jpeg:color=") + name);
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      const Sample sample = make_sample(bytes, seed, 3);
      Random random(seed);
      std::vector<std::byte> expected(kShape.elements());
      plain->decode(sample, view_of(expected, kShape), random);
      ColourDistorter().apply(draw_colour(parse_colour("", name), seed + 3, random),
                              view_of(expected, kShape));
      EXPECT_EQ(decoded_row(*decoder, sample, kShape, Random(seed)), expected) << name << seed;
    }
  }
}

TEST(Augmentation, MethodsTakeTurnsByIndexAndEpoch) {
  const std::vector<std::byte> bytes = encode_jpeg(make_test_image(120, 90));
  constexpr ImageShape kShape{61, 53, 3};
  const std::pair<const char*, std::vector<std::string>> rounds[] = {
      {"round_robin", {"nearest", "bilinear", "bicubic", "area"}},
      {"tf_round_robin", {"tf_nearest", "tf_bilinear", "tf_bicubic", "area"}}};
  for (const auto& [round, methods] : rounds) {
    const auto decoder = make_decoder(std::string("jpeg:resize=") + round);
    for (std::uint64_t index = 0; index < 5; ++index) {
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const Sample sample = make_sample(bytes, index, epoch);
        const auto one = make_decoder("jpeg:resize=" + methods[(index + epoch) % 4]);
        EXPECT_EQ(decoded_row(*decoder, sample, kShape, Random(index)),
                  decoded_row(*one, sample, kShape, Random(index)));
      }
    }
  }
}

TEST(Augmentation, OrientationTagsChangeNothing) {
  const std::vector<std::byte> plain = encode_jpeg(make_test_image(90, 60));
  // EXIF after the first marker: one tag, orientation 6, a quarter turn.
  constexpr unsigned char kExif[] = {0xFF, 0xE1, 0, 34, 'E', 'x', 'i', 'f', 0, 0,    'M', 'M',
                                     0,    42,   0, 0,  0,   8,   0,   1,   1, 0x12, 0,   3,
                                     0,    0,    0, 1,  0,   6,   0,   0,   0, 0,    0,   0};
  std::vector<std::byte> tagged = plain;
  const auto exif = std::as_bytes(std::span(kExif));
  tagged.insert(tagged.begin() + 2, exif.begin(), exif.end());
  for (const OptionValue& chain : kChainValues) {
    const auto decoder = make_decoder("jpeg:chain=" + std::string(chain.name));
    EXPECT_EQ(decoded_row(*decoder, tagged, {50, 70, 3}), decoded_row(*decoder, plain, {50, 70, 3}))
        << chain.name;
  }
}

}  // namespace
}  // namespace penstock
