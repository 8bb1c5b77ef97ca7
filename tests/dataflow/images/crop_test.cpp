// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/crop.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dataflow/error.h"

namespace penstock {
namespace {

bool is_inside(const Stretch& stretch, int size) {
  return stretch.low >= 0 && stretch.low < stretch.high && stretch.high <= size &&
         stretch.begin == stretch.low && stretch.length == stretch.high - stretch.low;
}

/// The region of a crop without randomness, for outputs of 224 x 224.
Region still_region(Crop crop, ImageSize image) {
  Random unused(1);
  return choose_region(crop, image, {224, 224, 3}, unused);
}

/// Statistics of many crops of a 500x375 image.
struct Spread {
  double min_area = 9, max_area = 0, mean_area = 0;
  double min_ratio = 9, max_ratio = 0, mean_ratio = 0, mean_log_ratio = 0;
  double mean_left = 0;  // as a share of the available room
};

Spread spread_of(Crop crop) {
  constexpr int kCount = 20000;
  Spread spread;
  for (int i = 0; i < kCount; ++i) {
    Random random(5, 0, static_cast<std::uint64_t>(i));
    const Region region = choose_region(crop, {500, 375}, {224, 224, 3}, random);
    EXPECT_TRUE(is_inside(region.columns, 500) && is_inside(region.rows, 375));
    const double area = region.columns.length * region.rows.length / (500 * 375);
    const double ratio = region.columns.length / region.rows.length;
    spread.min_area = std::min(spread.min_area, area);
    spread.max_area = std::max(spread.max_area, area);
    spread.min_ratio = std::min(spread.min_ratio, ratio);
    spread.max_ratio = std::max(spread.max_ratio, ratio);
    spread.mean_area += area / kCount;
    spread.mean_ratio += ratio / kCount;
    spread.mean_log_ratio += std::log(ratio) / kCount;
    spread.mean_left += region.columns.begin / (500 - region.columns.length) / kCount;
  }
  return spread;
}

TEST(RandomResizedCrop, AreasAndRatiosLieWithinTheirBounds) {
  const Spread spread = spread_of(Crop::random);
  EXPECT_GE(spread.min_area, 0.078);
  EXPECT_GE(spread.min_ratio, 0.74);
  EXPECT_LE(spread.max_ratio, 1.35);
  // Crops that do not fit are drawn again, which favours small ones: 0.43 instead of 0.54 for this
  // size.
  EXPECT_NEAR(spread.mean_area, 0.43, 0.01);
  EXPECT_NEAR(spread.mean_log_ratio, 0, 0.04);
}

TEST(PaddedCrop, HasTheImagesSizeAndEveryPlace) {
  int seen[9][9] = {};
  for (std::uint64_t i = 0; i < 8100; ++i) {
    Random random(1, 0, i);
    const Region region = padded_crop({32, 20}, 4, random);
    ASSERT_TRUE(is_inside(region.columns, 40) && is_inside(region.rows, 28));
    ASSERT_EQ(region.columns.length, 32);
    ASSERT_EQ(region.rows.length, 20);
    ++seen[region.rows.low][region.columns.low];
  }
  for (const auto& row : seen) {
    for (const int count : row) EXPECT_NEAR(count, 100, 50);
  }
}

TEST(RandomResizedCrop, EverySizeHasOne) {
  for (const auto& [width, height] : {std::pair{1, 1}, {1, 1000}, {1000, 1}, {2, 3}, {65500, 3}}) {
    for (std::uint64_t i = 0; i < 50; ++i) {
      Random random(1, 0, i);
      const Region region = choose_region(Crop::random, {width, height}, {}, random);
      ASSERT_TRUE(is_inside(region.columns, width)) << width << 'x' << height;
      ASSERT_TRUE(is_inside(region.rows, height)) << width << 'x' << height;
    }
  }
}

TEST(RandomResizedCrop, ImagesTooLongForAnyTryAreCutAtTheCentre) {
  Random random(1);
  const Region region = choose_region(Crop::random, {1000, 30}, {}, random);
  EXPECT_EQ(region.rows.length, 30);
  EXPECT_EQ(region.columns.length, 40);
  EXPECT_EQ(region.columns.begin, 480);
}

TEST(CentreCrop, TakesSevenEighthsOfTheShorterSide) {
  const Region region = still_region(Crop::centre, {500, 256});
  EXPECT_DOUBLE_EQ(region.rows.length, 224);
  EXPECT_DOUBLE_EQ(region.columns.length, 224);
  EXPECT_DOUBLE_EQ(region.columns.begin, 138);
  EXPECT_EQ(region.columns.low, 0);
  EXPECT_EQ(region.columns.high, 500);
}

TEST(WholeImage, IsAllOfIt) {
  const Region region = still_region(Crop::full, {5, 4});
  EXPECT_TRUE(is_inside(region.columns, 5) && is_inside(region.rows, 4));
  EXPECT_EQ(region.columns.length, 5);
}

// ---- the references' crops --------------------------------------------------

TEST(TfRandomCrop, HeightsAreUniformBetweenWhatTheAreaAndTheWidthAllow) {
  const Spread spread = spread_of(Crop::tf_random);
  // An object that is the whole image is covered to at least a tenth.
  EXPECT_GE(spread.min_area, 0.1);
  EXPECT_LT(spread.min_area, 0.102);
  EXPECT_LE(spread.max_area, 1);
  EXPECT_GT(spread.max_area, 0.95);
  EXPECT_GE(spread.min_ratio, 0.745);
  EXPECT_LE(spread.max_ratio, 1.335);
  EXPECT_NEAR(spread.mean_ratio, (0.75 + 1.33) / 2, 0.005);
  // The mean area, by integrating over the ratio r. Heights h are uniform between the height that
  // covers a tenth and the smaller of 375 and 500 / r.
  double area = 0;
  constexpr int kSteps = 1000;
  for (int i = 0; i < kSteps; ++i) {
    const double r = 0.75 + 0.58 * (i + 0.5) / kSteps;
    const double low = std::sqrt(0.1 * 187500 / r), high = std::min(375.0, 500 / r);
    area += r * (high * high * high - low * low * low) / (3 * (high - low)) / 187500 / kSteps;
  }
  EXPECT_NEAR(spread.mean_area, area, 0.006);
  EXPECT_NEAR(spread.mean_left, 0.5, 0.01);
}

TEST(TfRandomCrop, TheLastPlaceIsNeverDrawn) {
  for (std::uint64_t i = 0; i < 3000; ++i) {
    Random random(2, 0, i);
    const Region region = choose_region(Crop::tf_random, {12, 9}, {}, random);
    EXPECT_TRUE(region.columns.length == 12 || region.columns.high < 12);
    EXPECT_TRUE(region.rows.length == 9 || region.rows.high < 9);
  }
}

TEST(TfRandomCrop, ImagesOfAnotherShapeThanAnyCropAreTakenWhole) {
  Random random(1);
  const Region region =
      choose_region(Crop::tf_random, {1000, 20}, {}, random);  // a crop covers at most 3 %
  EXPECT_EQ(region.columns.length, 1000);
  EXPECT_EQ(region.rows.length, 20);
}

/// The share of a box of pixels that a region covers.
double covered(const Region& region, double left, double top, double right, double bottom) {
  const double columns =
      std::min<double>(region.columns.high, right) - std::max<double>(region.columns.low, left);
  const double rows =
      std::min<double>(region.rows.high, bottom) - std::max<double>(region.rows.low, top);
  return std::max(columns, 0.0) * std::max(rows, 0.0) / ((right - left) * (bottom - top));
}

TEST(TfBoxCrop, EachCoversATenthOfABoxOrIsTheWholeImage) {
  const ObjectBox boxes[] = {{0.9F, 0.8F, 1, 1}, {0, 0, 0.04F, 0.08F}};  // in two corners
  int first = 0, second = 0, whole = 0;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    Random random(4, 0, i);
    const Region region = choose_region(Crop::tf_box, {500, 375}, {}, random, boxes);
    const bool of_first = covered(region, 450, 300, 500, 375) >= 0.1;
    const bool of_second = covered(region, 0, 0, 20, 30) >= 0.1;
    ASSERT_TRUE(of_first || of_second) << i;
    const double area = region.columns.length * region.rows.length / (500 * 375);
    ASSERT_GE(area, 0.05);
    if (area < 1) {
      const double ratio = region.columns.length / region.rows.length;
      ASSERT_TRUE(ratio > 0.745 && ratio < 1.335);
    }
    first += of_first;
    second += of_second;
    whole += area == 1;
  }
  EXPECT_GT(first, 1000);
  EXPECT_GT(second, 100);
  EXPECT_LT(whole, 10);
}

TEST(TfBoxCrop, PlacesThatCoverATenthOfTheBoxAreUniform) {
  // A box of 100 x 375 at the left: a crop of w columns whose left edge is x covers
  // min(100, x + w) - x of its columns if that is not negative, and its rows' share.
  const ObjectBox box[] = {{0, 0, 0.2F, 1}};
  double left = 0, expected = 0;
  constexpr int kCount = 20000;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    Random random(6, 0, i);
    const Region region = choose_region(Crop::tf_box, {500, 375}, {}, random, box);
    const double rows = region.rows.length / 375, w = region.columns.length;
    // The greatest x that covers enough: (100 - x) rows >= 10, but never the last place.
    const double most = std::min(std::floor(100 - 10 / rows), std::max(0.0, 500 - w - 1));
    ASSERT_LE(region.columns.begin, most);
    left += region.columns.begin / kCount;
    expected += most / 2 / kCount;
  }
  EXPECT_NEAR(left, expected, 0.7);
}

TEST(TfBoxCrop, BoxesWithoutAPixelLeaveTheWholeImageAndNoBoxesTheRandomCrop) {
  const ObjectBox empty[] = {{0.5F, 0.5F, 0.5F, 0.5F}, {0.001F, 0.2F, 0.0015F, 0.9F}};
  for (std::uint64_t i = 0; i < 100; ++i) {
    Random random(3, 0, i), same(3, 0, i);
    EXPECT_EQ(choose_region(Crop::tf_box, {500, 375}, {}, random, empty).columns.length, 500);
    random = Random(3, 0, i);
    const Region box = choose_region(Crop::tf_box, {500, 375}, {}, random);
    const Region plain = choose_region(Crop::tf_random, {500, 375}, {}, same);
    EXPECT_EQ(box.columns.begin, plain.columns.begin);
    EXPECT_EQ(box.rows.length, plain.rows.length);
  }
}

TEST(TfCentreCrop, IsTheCentreOfTheImageAt1145OfTheOutput) {
  const Region region = still_region(Crop::tf_centre, {500, 375});
  // 375 becomes 256.48, rounded down; 500 becomes 341.97.
  EXPECT_DOUBLE_EQ(region.rows.length, 224 * 375.0 / 256);
  EXPECT_DOUBLE_EQ(region.rows.begin, 16 * 375.0 / 256);
  EXPECT_DOUBLE_EQ(region.columns.length, 224 * 500.0 / 341);
  EXPECT_DOUBLE_EQ(region.columns.begin, 58 * 500.0 / 341);
  EXPECT_EQ(region.columns.low, 0);
  EXPECT_EQ(region.columns.high, 500);
}

TEST(TensorpackRandomCrop, RatiosAreUniformAndInvertedForEveryOther) {
  const Spread spread = spread_of(Crop::tensorpack_random);
  EXPECT_GE(spread.min_area, 0.078);
  EXPECT_LT(spread.min_area, 0.085);
  EXPECT_GT(spread.max_area, 0.97);
  EXPECT_GE(spread.min_ratio, 1 / 1.345);
  EXPECT_LE(spread.max_ratio, 1.345);
  EXPECT_NEAR(spread.mean_left, 0.5, 0.01);
  // For areas so small that every ratio fits, the mean of the ratios shows: r and 1/r alternate.
  double sum = 0;
  int count = 0;
  for (std::uint64_t i = 0; i < 40000; ++i) {
    Random random(9, 0, i);
    const Region region =
        choose_region(Crop::tensorpack_random, {1000, 1000}, {224, 224, 3}, random);
    if (region.columns.length * region.rows.length > 0.5e6) continue;
    sum += region.columns.length / region.rows.length;
    count += 1;
  }
  const double inverse = std::log(1.333 / 0.75) / (1.333 - 0.75);
  EXPECT_NEAR(sum / count, ((0.75 + 1.333) / 2 + inverse) / 2, 0.005);
}

TEST(TensorpackRandomCrop, OtherwiseTheCentreOfTheShorterSide) {
  Random random(1);
  const Region region = choose_region(Crop::tensorpack_random, {1000, 30}, {224, 224, 3}, random);
  EXPECT_DOUBLE_EQ(region.rows.begin, 0);
  EXPECT_DOUBLE_EQ(region.rows.length, 30);
  // 1000 becomes 7466.67, rounded to 7467.
  EXPECT_DOUBLE_EQ(region.columns.length, 224 * 1000.0 / 7467);
  EXPECT_DOUBLE_EQ(region.columns.begin, 3621 * 1000.0 / 7467);
  EXPECT_EQ(region.columns.high, 1000);
}

TEST(TensorpackCentreCrop, RoundsTheLongerSide) {
  const Region region = still_region(Crop::tensorpack_centre, {500, 375});
  EXPECT_DOUBLE_EQ(region.rows.length, 224 * 375.0 / 256);
  EXPECT_DOUBLE_EQ(region.columns.length, 224 * 500.0 / 341);  // 341.33
  EXPECT_DOUBLE_EQ(region.columns.begin, 58 * 500.0 / 341);
}

TEST(CropChoice, EveryCropOfEverySizeLiesInTheImage) {
  for (std::size_t crop = 0; crop < std::size(kCropValues); ++crop) {
    for (const auto& [width, height] :
         {std::pair{1, 1}, {1, 1000}, {1000, 1}, {2, 3}, {65500, 3}, {224, 224}, {65500, 65500}}) {
      for (const ImageShape& output : {ImageShape{224, 224, 3}, {1, 1, 3}, {7, 300, 3}}) {
        for (std::uint64_t i = 0; i < 20; ++i) {
          SCOPED_TRACE(std::string(kCropValues[crop].name) + " of " + std::to_string(width) + 'x' +
                       std::to_string(height));
          Random random(1, 0, i);
          const Region region =
              choose_region(static_cast<Crop>(crop), {width, height}, output, random);
          for (const auto& [stretch, size] :
               {std::pair{region.columns, width}, {region.rows, height}}) {
            ASSERT_GE(stretch.low, 0);
            ASSERT_LT(stretch.low, stretch.high);
            ASSERT_LE(stretch.high, size);
            ASSERT_GT(stretch.length, 0);
            ASSERT_GE(stretch.begin, stretch.low - 1e-9);
            ASSERT_LE(stretch.begin + stretch.length, stretch.high + 1e-6);
          }
        }
      }
    }
  }
}

TEST(CropChoice, EvaluationLeavesNothingToChance) {
  for (std::size_t i = 0; i < std::size(kCropValues); ++i) {
    const auto crop = static_cast<Crop>(i);
    EXPECT_EQ(parse_crop("jpeg", name_of(crop)), crop);
    const Crop still = evaluation_crop(crop);
    EXPECT_EQ(evaluation_crop(still), still);
    Random random(3), untouched(3);
    choose_region(still, {300, 200}, {224, 224, 3}, random);
    EXPECT_EQ(random.bits(), untouched.bits()) << name_of(still);
  }
  EXPECT_EQ(parse_crop("jpeg", "centre"), Crop::centre);
  EXPECT_EQ(parse_crop("jpeg", "tf-random"), Crop::tf_random);
  EXPECT_THROW(parse_crop("jpeg", "left"), ConfigError);
}

}  // namespace
}  // namespace penstock
