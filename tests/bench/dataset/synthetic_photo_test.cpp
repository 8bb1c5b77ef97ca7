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
/// Mean colours on a grid, and the horizontal and vertical change of brightness at two distances.
constexpr std::size_t kColours = std::size_t{3} * kGrid * kGrid, kChanges = 4;
constexpr std::size_t kFeatures = kColours + kChanges;
using Features = std::array<double, kFeatures>;

double brightness(const std::uint8_t* pixel) { return (pixel[0] + pixel[1] + pixel[2]) / 3.0; }

struct Crop {
  std::int32_t left, top, width, height;
  bool flipped;
};

/// As in augmentation: a third to all of the area, flipped or not.
Crop random_crop(const dataset::Photo& photo, Random& random) {
  const double side = std::sqrt(random.uniform(0.35, 1));
  Crop crop{};
  crop.width = static_cast<std::int32_t>(side * photo.width);
  crop.height = static_cast<std::int32_t>(side * photo.height);
  crop.left = static_cast<std::int32_t>(random.uniform() * (photo.width - crop.width));
  crop.top = static_cast<std::int32_t>(random.uniform() * (photo.height - crop.height));
  crop.flipped = random.below(2) == 1;
  return crop;
}

Features features_of(const dataset::Photo& photo, const Crop& crop) {
  Features features{};
  std::array<double, std::size_t{kGrid} * kGrid> counts{};
  std::array<double, kChanges> changes{};
  for (std::int32_t y = 0; y + 8 < crop.height; ++y) {
    const std::uint8_t* const line = photo.line(crop.top + y);
    for (std::int32_t x = 0; x + 8 < crop.width; ++x) {
      const std::uint8_t* const pixel = line + std::ptrdiff_t{3} * (crop.left + x);
      const std::int32_t column = x * kGrid / crop.width;
      const std::int32_t row = y * kGrid / crop.height;
      const std::int32_t number = row * kGrid + (crop.flipped ? kGrid - 1 - column : column);
      const auto cell = static_cast<std::size_t>(number);
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
  for (double& change : changes) change = std::log(0.1 + change / pixels);
  features[kColours] = changes[0] + changes[1];      // how rough at 2 pixels
  features[kColours + 1] = changes[2] + changes[3];  // and at 8
  features[kColours + 2] = features[kColours + 1] - features[kColours];
  features[kColours + 3] = changes[0] - changes[1] + changes[2] - changes[3];  // the direction of
                                                                               // the texture
  return features;
}

/// In units of the spread within classes; both kinds of features have equal weight.
double squared_distance(const Features& a, const Features& b, const Features& variances) {
  double colours = 0, changes = 0;
  for (std::size_t i = 0; i < kFeatures; ++i) {
    (i < kColours ? colours : changes) += (a[i] - b[i]) * (a[i] - b[i]) / variances[i];
  }
  return colours / kColours + changes / kChanges;
}

Features sample(std::int32_t scene, std::uint64_t split, std::uint64_t index) {
  const dataset::Photo photo = dataset::synthetic_photo(scene, 1, split, index);
  Random random(99, split, index);
  return features_of(photo, random_crop(photo, random));
}

/// The simplest classifier: chooses the nearest mean.
struct NearestCentroid {
  std::vector<Features> centroids;
  Features variances{};

  explicit NearestCentroid(const std::vector<std::vector<Features>>& by_class)
      : centroids(by_class.size()) {
    for (std::size_t c = 0; c < by_class.size(); ++c) {
      const auto count = static_cast<double>(by_class[c].size());
      for (std::size_t f = 0; f < kFeatures; ++f) {
        for (const Features& one : by_class[c]) centroids[c][f] += one[f] / count;
        for (const Features& one : by_class[c]) {
          const double off = one[f] - centroids[c][f];
          variances[f] += off * off / count / static_cast<double>(by_class.size());
        }
      }
    }
  }
  std::size_t operator()(const Features& one) const {
    std::size_t best = 0;
    for (std::size_t c = 1; c < centroids.size(); ++c) {
      const double distance = squared_distance(one, centroids[c], variances);
      if (distance < squared_distance(one, centroids[best], variances)) best = c;
    }
    return best;
  }
};

TEST(SyntheticPhoto, ClassesDifferUnderCropsAndFlips) {
  constexpr std::uint64_t kTrain = 16, kHeldOut = 10;
  const auto classes = static_cast<std::size_t>(dataset::DatasetParameters().classes);
  ASSERT_GE(classes, 8U);
  std::vector<std::vector<Features>> seen(classes);
  for (std::uint64_t i = 0; i < kTrain * classes; ++i) {
    seen[i % classes].push_back(sample(static_cast<std::int32_t>(i % classes), 0, i));
  }
  const NearestCentroid classify(seen);
  std::uint64_t right = 0;
  for (std::uint64_t i = 0; i < kHeldOut * classes; ++i) {
    const std::size_t expected = i % classes;
    const std::size_t got = classify(sample(static_cast<std::int32_t>(expected), 1, i));
    right += got == expected ? 1 : 0;
  }
  const double accuracy = static_cast<double>(right) / static_cast<double>(kHeldOut * classes);
  RecordProperty("accuracy", std::to_string(accuracy));
  EXPECT_GT(accuracy, 0.8);
}

TEST(SyntheticPhoto, IsAFunctionOfItsArguments) {
  const dataset::Photo one = dataset::synthetic_photo(4, 7, 0, 3),
                       same = dataset::synthetic_photo(4, 7, 0, 3);
  EXPECT_EQ(one.rgb, same.rgb);
  EXPECT_EQ(one.rgb.size(), static_cast<std::size_t>(one.width) * one.height * 3U);
  EXPECT_NE(one.rgb, dataset::synthetic_photo(4, 8, 0, 3).rgb);
  EXPECT_NE(one.rgb, dataset::synthetic_photo(4, 7, 1, 3).rgb);
  EXPECT_NE(one.rgb, dataset::synthetic_photo(4, 7, 0, 4).rgb);
}

TEST(SyntheticPhoto, SizesSpreadAround500By375) {
  std::vector<std::int32_t> long_sides;
  int portrait = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const dataset::Photo photo = dataset::synthetic_photo(3, 1, 0, i);
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
  // In a 1/f spectrum, the change of brightness grows slowly with distance. In white noise it does
  // not grow; in smooth gradients it grows in proportion.
  for (std::int32_t scene = 0; scene < dataset::most_classes(); ++scene) {
    const dataset::Photo photo = dataset::synthetic_photo(scene, 1, 0, 5);
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
