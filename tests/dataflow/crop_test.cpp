// SPDX-License-Identifier: Apache-2.0
#include "dataflow/crop.h"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock {
namespace {

bool is_inside(const Stretch& stretch, int size) {
  return stretch.low >= 0 && stretch.low < stretch.high && stretch.high <= size &&
         stretch.begin == stretch.low && stretch.length == stretch.high - stretch.low;
}

TEST(RandomResizedCrop, AreasAndRatiosLieWithinTheirBounds) {
  double area_sum = 0, log_ratio_sum = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    Random random(1, 0, static_cast<std::uint64_t>(i));
    const Region region = random_resized_crop({500, 375}, random);
    ASSERT_TRUE(is_inside(region.columns, 500) && is_inside(region.rows, 375));
    const double area = region.columns.length * region.rows.length / (500 * 375);
    const double ratio = region.columns.length / region.rows.length;
    ASSERT_GE(area, 0.078);
    ASSERT_GE(ratio, 0.74);
    ASSERT_LE(ratio, 1.35);
    area_sum += area;
    log_ratio_sum += std::log(ratio);
  }
  // Crops that do not fit are drawn again, which favours small ones: 0.43 instead of 0.54 for this
  // size.
  EXPECT_NEAR(area_sum / kCount, 0.43, 0.01);
  EXPECT_NEAR(log_ratio_sum / kCount, 0, 0.04);
}

TEST(RandomResizedCrop, EverySizeHasOne) {
  for (const auto& [width, height] : {std::pair{1, 1}, {1, 1000}, {1000, 1}, {2, 3}, {65500, 3}}) {
    for (std::uint64_t i = 0; i < 50; ++i) {
      Random random(1, 0, i);
      const Region region = random_resized_crop({width, height}, random);
      ASSERT_TRUE(is_inside(region.columns, width)) << width << 'x' << height;
      ASSERT_TRUE(is_inside(region.rows, height)) << width << 'x' << height;
    }
  }
}

TEST(RandomResizedCrop, ImagesTooLongForAnyTryAreCutAtTheCentre) {
  Random random(1);
  const Region region = random_resized_crop({1000, 30}, random);
  EXPECT_EQ(region.rows.length, 30);
  EXPECT_EQ(region.columns.length, 40);
  EXPECT_EQ(region.columns.begin, 480);
}

TEST(CentreCrop, TakesSevenEighthsOfTheShorterSide) {
  const Region region = centre_crop({500, 256}, {224, 224, 3});
  EXPECT_DOUBLE_EQ(region.rows.length, 224);
  EXPECT_DOUBLE_EQ(region.columns.length, 224);
  EXPECT_DOUBLE_EQ(region.columns.begin, 138);
  EXPECT_EQ(region.columns.low, 0);
  EXPECT_EQ(region.columns.high, 500);
}

TEST(WholeImage, IsAllOfIt) {
  const Region region = whole_image({5, 4});
  EXPECT_TRUE(is_inside(region.columns, 5) && is_inside(region.rows, 4));
  EXPECT_EQ(region.columns.length, 5);
}

}  // namespace
}  // namespace penstock
