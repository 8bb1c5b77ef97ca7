// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/synthetic_photo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "bench/dataset/make_dataset.h"
#include "dataflow/random.h"

namespace penstock {
namespace {

constexpr std::int32_t kGrid = 8;
/// Mean colours on a grid, and how much brightness changes across and along at two distances.
constexpr std::size_t kFeatures = 3 * kGrid * kGrid + 4;
using Features = std::array<double, kFeatures>;

double brightness(const std::uint8_t* pixel) { return (pixel[0] + pixel[1] + pixel[2]) / 3.0; }

struct Crop {
  std::int32_t left, top, width, height;
  bool flipped;
};

/// As augmentation draws it: a third to all of the area, flipped or not.
Crop random_crop(const Photo& photo, Random& random) {
  const double side = std::sqrt(random.uniform(0.35, 1));
  Crop crop{};
  crop.width = static_cast<std::int32_t>(side * photo.width);
  crop.height = static_cast<std::int32_t>(side * photo.height);
  crop.left = static_cast<std::int32_t>(random.uniform() * (photo.width - crop.width));
  crop.top = static_cast<std::int32_t>(random.uniform() * (photo.height - crop.height));
  crop.flipped = random.below(2) == 1;
  return crop;
}

Features features_of(const Photo& photo, const Crop& crop) {
  Features features{};
  std::array<double, std::size_t{kGrid} * kGrid> counts{};
  std::array<double, 4> changes{};
  for (std::int32_t y = 0; y + 8 < crop.height; ++y) {
    const std::uint8_t* const line = photo.line(crop.top + y);
    for (std::int32_t x = 0; x + 8 < crop.width; ++x) {
      const std::uint8_t* const pixel = line + std::ptrdiff_t{3} * (crop.left + x);
      const std::int32_t column = x * kGrid / crop.width;
      const auto cell = static_cast<std::size_t>(y * kGrid / crop.height * kGrid +
                                                 (crop.flipped ? kGrid - 1 - column : column));
      for (std::size_t c = 0; c < 3; ++c) features[3 * cell + c] += pixel[c];
      ++counts[cell];
      std::size_t i = 0;
      for (const std::ptrdiff_t distance : {2, 8}) {
        const std::uint8_t* const below = pixel + distance * photo.width * 3;
        changes[i++] += std::abs(brightness(pixel + 3 * distance) - brightness(pixel));
        changes[i++] += std::abs(brightness(below) - brightness(pixel));
      }
    }
  }
  double pixels = 0;
  for (std::size_t cell = 0; cell < counts.size(); ++cell) {
    pixels += counts[cell];
    for (std::size_t c = 0; c < 3; ++c) features[3 * cell + c] /= counts[cell];
  }
  // Four numbers against the 192 of the grid: weighed so that both count.
  for (std::size_t i = 0; i < 4; ++i) features[kFeatures - 4 + i] = 10 * changes[i] / pixels;
  return features;
}

double squared_distance(const Features& a, const Features& b) {
  double sum = 0;
  for (std::size_t i = 0; i < kFeatures; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

Features sample(std::int32_t scene, std::uint64_t split, std::uint64_t index) {
  const Photo photo = synthetic_photo(scene, 1, split, index);
  Random random(99, split, index);
  return features_of(photo, random_crop(photo, random));
}

TEST(SyntheticPhoto, ClassesDifferUnderCropsAndFlips) {
  constexpr std::uint64_t kTrain = 12, kHeldOut = 10;
  const auto classes = static_cast<std::size_t>(most_classes());
  ASSERT_GE(classes, 8U);
  std::vector<Features> centroids(classes);
  for (std::size_t scene = 0; scene < classes; ++scene) {
    for (std::uint64_t i = 0; i < kTrain; ++i) {
      const Features one = sample(static_cast<std::int32_t>(scene), 0, i * classes + scene);
      for (std::size_t f = 0; f < kFeatures; ++f) centroids[scene][f] += one[f] / kTrain;
    }
  }
  std::size_t right = 0, asked = 0;
  for (std::size_t scene = 0; scene < classes; ++scene) {
    for (std::uint64_t i = 0; i < kHeldOut; ++i, ++asked) {
      const Features one = sample(static_cast<std::int32_t>(scene), 1, i * classes + scene);
      std::size_t best = 0;
      for (std::size_t c = 1; c < classes; ++c) {
        if (squared_distance(one, centroids[c]) < squared_distance(one, centroids[best])) best = c;
      }
      right += best == scene ? 1 : 0;
    }
  }
  const double accuracy = static_cast<double>(right) / static_cast<double>(asked);
  RecordProperty("accuracy", std::to_string(accuracy));
  EXPECT_GT(accuracy, 0.8);
}

TEST(SyntheticPhoto, IsAFunctionOfItsArguments) {
  const Photo one = synthetic_photo(4, 7, 0, 3), same = synthetic_photo(4, 7, 0, 3);
  EXPECT_EQ(one.rgb, same.rgb);
  EXPECT_EQ(one.rgb.size(), static_cast<std::size_t>(one.width) * one.height * 3U);
  EXPECT_NE(one.rgb, synthetic_photo(4, 8, 0, 3).rgb);
  EXPECT_NE(one.rgb, synthetic_photo(4, 7, 1, 3).rgb);
  EXPECT_NE(one.rgb, synthetic_photo(4, 7, 0, 4).rgb);
}

TEST(SyntheticPhoto, SizesSpreadAround500By375) {
  std::vector<std::int32_t> long_sides;
  int portrait = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Photo photo = synthetic_photo(3, 1, 0, i);
    long_sides.push_back(std::max(photo.width, photo.height));
    portrait += photo.height > photo.width ? 1 : 0;
  }
  std::sort(long_sides.begin(), long_sides.end());
  EXPECT_EQ(long_sides[50], 500);
  EXPECT_LT(long_sides.front(), 480);
  EXPECT_GT(long_sides.back(), 550);
  EXPECT_GT(portrait, 10);
  EXPECT_LT(portrait, 45);
}

TEST(SyntheticPhoto, HasDetailAtEveryScaleAsPhotographsHave) {
  // In a 1/f spectrum the change of brightness grows slowly with distance: not at all for white
  // noise, in proportion for smooth gradients.
  for (std::int32_t scene = 0; scene < most_classes(); ++scene) {
    const Photo photo = synthetic_photo(scene, 1, 0, 5);
    double near = 0, far = 0;
    for (std::int32_t y = 0; y < photo.height; ++y) {
      for (std::int32_t x = 0; x + 16 < photo.width; ++x) {
        const std::uint8_t* const pixel = photo.line(y) + std::ptrdiff_t{3} * x;
        near += std::abs(brightness(pixel + 3) - brightness(pixel));
        far += std::abs(brightness(pixel + 48) - brightness(pixel));
      }
    }
    EXPECT_GT(far, 1.2 * near) << "scene " << scene;
    EXPECT_LT(far, 12 * near) << "scene " << scene;
  }
}

}  // namespace
}  // namespace penstock
