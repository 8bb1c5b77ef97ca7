// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/synthetic_photo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "bench/dataset/jpeg_file.h"
#include "bench/dataset/make_dataset.h"
#include "tests/dataflow/images/decoded_rows.h"

namespace penstock {
namespace {

/// Side of the rows that the decoder makes, and of the grid of mean colours.
constexpr std::int32_t kSide = 64, kGrid = 8;
/// Mean colours on the grid, and the horizontal and vertical change of brightness at two distances.
constexpr std::size_t kColours = std::size_t{3} * kGrid * kGrid, kChanges = 4;
constexpr std::size_t kFeatures = kColours + kChanges;
using Features = std::array<double, kFeatures>;

double brightness(const std::uint8_t* pixel) { return (pixel[0] + pixel[1] + pixel[2]) / 3.0; }

Features features_of(const std::vector<std::byte>& row) {
  Features features{};
  std::array<double, kChanges> changes{};
  const auto at = [&](std::int32_t x, std::int32_t y) {
    return reinterpret_cast<const std::uint8_t*>(row.data()) + 3 * (y * kSide + x);
  };
  for (std::int32_t y = 0; y < kSide; ++y) {
    for (std::int32_t x = 0; x < kSide; ++x) {
      const auto cell = static_cast<std::size_t>(y * kGrid / kSide * kGrid + x * kGrid / kSide);
      for (std::size_t c = 0; c < 3; ++c) features[3 * cell + c] += at(x, y)[c];
      if (x + 4 >= kSide || y + 4 >= kSide) continue;
      std::size_t i = 0;
      for (const std::int32_t distance : {1, 4}) {
        changes[i++] += std::abs(brightness(at(x + distance, y)) - brightness(at(x, y)));
        changes[i++] += std::abs(brightness(at(x, y + distance)) - brightness(at(x, y)));
      }
    }
  }
  for (double& change : changes) change = std::log(0.1 + change);
  features[kColours] = changes[0] + changes[1];      // how rough nearby
  features[kColours + 1] = changes[2] + changes[3];  // and farther
  features[kColours + 2] = features[kColours + 1] - features[kColours];
  // The direction of the texture.
  features[kColours + 3] = changes[0] - changes[1] + changes[2] - changes[3];
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

/// As in training: a random crop, flipped or not.
Features sample(std::int32_t scene, std::uint64_t split, std::uint64_t index) {
  const dataset::Photo photo = dataset::synthetic_photo(scene, 1, split, index);
  return features_of(decoded_row(*make_decoder(), dataset::encode_jpeg(photo, 96),
                                 {kSide, kSide, 3}, 2 * index + split));
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
