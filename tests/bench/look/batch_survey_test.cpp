// SPDX-License-Identifier: Apache-2.0
// Batches whose figures are known: of every type and layout, and with what is unusual.
#include "bench/look/batch_survey.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "dataflow/values/float16.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr std::int32_t kHeight = 3, kWidth = 4;
constexpr std::size_t kPixels = kHeight * kWidth;

/// A batch in memory, whose pixels are set one by one.
class TestBatch {
 public:
  explicit TestBatch(BatchSpec spec)
      : spec_(spec), pixels_(spec.pixel_bytes()), labels_(static_cast<std::size_t>(spec.images)) {}

  void set(std::size_t image, std::size_t pixel, std::size_t channel, float value) {
    const auto channels = static_cast<std::size_t>(spec_.image.channels);
    const std::size_t at = image * kPixels * channels +
                           (spec_.planar ? channel * kPixels + pixel : pixel * channels + channel);
    std::byte* const to = pixels_.data() + at * size_of(spec_.pixel);
    if (spec_.pixel == DType::u8) *to = static_cast<std::byte>(value);
    if (spec_.pixel == DType::f32) std::memcpy(to, &value, sizeof value);
    if (spec_.pixel == DType::f16) {
      values::Fp16 half;
      store(half, value);
      std::memcpy(to, &half, sizeof half);
    }
    if (spec_.pixel == DType::bf16) {
      const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
      std::memcpy(to, &bits, sizeof bits);
    }
  }
  /// All pixels of an image: pixel p of channel c is begin + p + 32 c.
  void fill(std::size_t image, float begin) {
    for (std::size_t c = 0; c < static_cast<std::size_t>(spec_.image.channels); ++c) {
      for (std::size_t p = 0; p < kPixels; ++p) {
        set(image, p, c, begin + static_cast<float>(p + 32 * c));
      }
    }
  }
  std::int32_t& label(std::size_t image) { return labels_[image]; }
  Batch batch() { return {.pixels = pixels_, .labels = labels_, .valid = spec_.images}; }

 private:
  const BatchSpec spec_;
  std::vector<std::byte> pixels_;
  std::vector<std::int32_t> labels_;
};

BatchSpec spec_of(DType type, bool planar = false, std::int32_t channels = 3) {
  return {.images = 2,
          .image = {kHeight, kWidth, channels},
          .pixel = type,
          .planar = planar,
          .classes = 10};
}

bool says_unusual(const look::BatchSurvey& survey, std::string_view sentence) {
  return std::ranges::any_of(survey.unusual(), [&](const std::string& said) {
    return said.find(sentence) != std::string::npos;
  });
}

TEST(BatchSurvey, FiguresOfEveryTypeAndLayoutAreTheSame) {
  for (const DType type : {DType::u8, DType::f16, DType::bf16, DType::f32}) {
    for (const bool planar : {false, true}) {
      const BatchSpec spec = spec_of(type, planar);
      look::BatchSurvey survey(spec);
      TestBatch data(spec);
      data.fill(0, 0);
      data.fill(1, 100);
      data.label(1) = 7;
      survey.add(data.batch());
      ASSERT_EQ(survey.channels().size(), 3U);
      for (std::size_t c = 0; c < 3; ++c) {
        const look::ChannelFigures& of = survey.channels()[c];
        const double offset = 32.0 * static_cast<double>(c);
        EXPECT_EQ(of.low, offset);
        EXPECT_EQ(of.high, offset + 111);
        EXPECT_NEAR(of.mean(), offset + 55.5, 1e-9);
        // Two blocks of 0..11, 100 apart.
        EXPECT_NEAR(of.deviation(), std::sqrt(143.0 / 12 + 2500), 1e-9);
      }
      const dataset::Photo picture = survey.picture(data.batch(), 1);
      EXPECT_EQ(picture.width, kWidth);
      EXPECT_EQ(picture.height, kHeight);
      const double range = type == DType::u8 ? 255 : 175;
      EXPECT_EQ(picture.line(1)[3 * 2 + 1], std::lround(255 * (100 + 6 + 32) / range));
      const auto json = survey.to_json();
      EXPECT_EQ(json["layout"], planar ? "NCHW" : "NHWC");
      EXPECT_EQ(json["labels"]["7"], 1);
      EXPECT_EQ(json["different_images"], 2);
    }
  }
}

TEST(BatchSurvey, RepeatsAreCounted) {
  const BatchSpec spec = spec_of(DType::u8);
  TestBatch data(spec), other(spec);
  data.fill(0, 0);
  data.fill(1, 100);
  other.fill(0, 5);
  other.fill(1, 100);
  data.label(1) = other.label(1) = 1;
  look::BatchSurvey equal(spec);
  for (int i = 0; i < 3; ++i) equal.add(data.batch());
  EXPECT_TRUE(says_unusual(equal, "all batches are equal"));
  EXPECT_TRUE(says(equal.to_text(""), "1 of 3 batches, 2 of 6 images"));
  look::BatchSurvey images(spec);
  images.add(data.batch());
  images.add(other.batch());
  EXPECT_TRUE(says_unusual(images, "1 of 4 images repeat an earlier one"));
  other.label(0) = 3;  // another label is another batch
  images.add(other.batch());
  EXPECT_FALSE(says_unusual(images, "batches repeat"));
  EXPECT_TRUE(says(images.to_text("7.0 img/s"), "rate         7.0 img/s\n"));
}

TEST(BatchSurvey, LabelsThatTheModelDoesNotHaveAreReported) {
  const BatchSpec spec = spec_of(DType::u8);
  TestBatch data(spec);
  data.fill(0, 0);
  data.fill(1, 100);
  look::BatchSurvey survey(spec);
  survey.add(data.batch());
  EXPECT_TRUE(says_unusual(survey, "all labels are 0"));
  data.label(0) = 10;
  data.label(1) = -1;
  survey.add(data.batch());
  EXPECT_TRUE(says_unusual(survey, "2 labels are outside 0 to 9"));
  EXPECT_TRUE(says_unusual(survey, "1 of 2 batches hold one label only"));
}

TEST(BatchSurvey, NormalisedOrCastValuesAreReported) {
  const auto survey_of = [](const BatchSpec& spec, float offset, float factor) {
    TestBatch data(spec);
    for (std::size_t image = 0; image < 2; ++image) {
      for (std::size_t p = 0; p < kPixels; ++p) {
        for (std::size_t c = 0; c < 3; ++c) {
          data.set(image, p, c, offset + factor * static_cast<float>(image + p + 7 * c));
        }
      }
    }
    data.label(1) = 1;
    look::BatchSurvey survey(spec);
    survey.add(data.batch());
    return survey;
  };
  EXPECT_TRUE(says_unusual(survey_of(spec_of(DType::u8), 0, 0), "all pixels are 0:"));
  EXPECT_TRUE(says_unusual(survey_of(spec_of(DType::u8), 0, 0), "2 of 2 images have one colour"));
  EXPECT_TRUE(says_unusual(survey_of(spec_of(DType::u8), 0, 0.04F), "all pixels are 0 or 1"));
  EXPECT_TRUE(says_unusual(survey_of(spec_of(DType::u8), 0, 0.2F), "normalised before"));
  EXPECT_TRUE(says_unusual(survey_of(spec_of(DType::f32), 0, 9), "like bytes"));
  EXPECT_TRUE(says_unusual(survey_of(spec_of(DType::f32), 0, 0.03F), "between 0 and 1"));
  EXPECT_TRUE(survey_of(spec_of(DType::f32), -1, 0.1F).unusual().empty());
  EXPECT_TRUE(survey_of(spec_of(DType::u8), 10, 9).unusual().empty());
  EXPECT_TRUE(says_unusual(
      survey_of(spec_of(DType::f32), std::numeric_limits<float>::infinity(), 1), "72 values are"));
}

TEST(BatchSurvey, GreyImagesAndOneChannelAreShown) {
  TestBatch grey(spec_of(DType::u8));
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t p = 0; p < kPixels; ++p) {
      grey.set(0, p, c, static_cast<float>(20 * p));
      grey.set(1, p, c, static_cast<float>(10 * p));
    }
  }
  look::BatchSurvey survey(spec_of(DType::u8));
  survey.add(grey.batch());
  EXPECT_TRUE(says_unusual(survey, "all images are grey"));
  const BatchSpec one = spec_of(DType::u8, false, 1);
  TestBatch data(one);
  data.fill(0, 40);
  look::BatchSurvey single(one);
  single.add(data.batch());
  EXPECT_FALSE(says_unusual(single, "grey"));
  const dataset::Photo picture = single.picture(data.batch(), 0);
  EXPECT_EQ(picture.line(0)[0], 40);
  EXPECT_EQ(picture.line(0)[2], 40);
}

}  // namespace
}  // namespace penstock
