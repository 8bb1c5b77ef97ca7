// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/resample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "dataflow/error.h"
#include "dataflow/random.h"
#include "tests/support/pil_rows.h"
#include "tests/support/plain_resample.h"

namespace penstock {
namespace {

/// Feeds the rows of `image` as a decoder does. Returns [height][width][3] and checks the bytes
/// around it.
std::vector<std::byte> resample(Resampler& resampler, const TestImage& image,
                                const Stretch& columns, const Stretch& rows, bool mirrored,
                                int width, int height, int margin = 0,
                                Filter filter = Filter::bilinear) {
  constexpr std::byte kGuard{0xA5};
  const auto line = static_cast<std::size_t>(width) * 3;
  const std::size_t stride = line + 5;
  std::vector<std::byte> memory(stride * static_cast<std::size_t>(height) + 64, kGuard);
  const ImageView view{
      memory.data() + 32, {height, width, 3}, DType::u8, static_cast<std::ptrdiff_t>(stride)};
  resampler.begin(columns, rows, mirrored, view, filter);
  const int left = std::max(0, resampler.columns().first - margin);
  const int right = std::min(image.width, resampler.columns().end + margin);
  resampler.set_row_layout(left, right - left);
  for (int y = std::max(0, resampler.rows().first - margin); y < resampler.rows().end; ++y) {
    std::uint8_t* to = resampler.row_buffer(y);
    for (int x = left; x < right; ++x, to += 4) std::memcpy(to, image.at(x, y), 3);
    resampler.rows_ready(y + 1);
  }
  std::vector<std::byte> pixels;
  for (int y = 0; y < height; ++y) {
    const auto begin = memory.begin() + 32 + static_cast<std::ptrdiff_t>(stride) * y;
    pixels.insert(pixels.end(), begin, begin + static_cast<std::ptrdiff_t>(line));
    // All lines but the last are followed by the guard of the next line.
    EXPECT_EQ(*(begin + static_cast<std::ptrdiff_t>(line)), kGuard) << "wrote behind line " << y;
  }
  EXPECT_EQ(memory[31], kGuard) << "wrote before the image";
  return pixels;
}

Stretch inside(double begin, double length) {
  return {begin, length, static_cast<std::int32_t>(std::floor(begin)),
          static_cast<std::int32_t>(std::ceil(begin + length))};
}

constexpr Filter kFilters[] = {Filter::bilinear,   Filter::bicubic,     Filter::area,
                               Filter::nearest,    Filter::tf_nearest,  Filter::tf_bilinear,
                               Filter::tf_bicubic, Filter::cv_bilinear, Filter::cv_bicubic};

std::string name_of(Filter filter) {
  return std::string(kResizeValues[static_cast<std::size_t>(filter)].name);
}

/// Compares the pixels, which no instruction set may change. Odd trials are mirrored.
void expect_definition(const TestImage& image, const Stretch& columns, const Stretch& rows,
                       int width, int height, int trial, Filter filter) {
  static Resampler best, portable(InstructionSet::portable);
  SCOPED_TRACE(name_of(filter) + ", trial " + std::to_string(trial));
  const bool mirrored = trial % 2 == 1;
  const std::vector<std::byte> pixels =
      resample(best, image, columns, rows, mirrored, width, height, trial % 4, filter);
  const std::vector<double> exact =
      plain_resample(image, columns, rows, mirrored, width, height, filter);
  ASSERT_LE(max_difference(pixels, exact), 0.51);
  ASSERT_EQ(resample(portable, image, columns, rows, mirrored, width, height, 0, filter), pixels);
}

TEST(Resample, EqualsTheDefinitionForManyRegions) {
  Random random(7);
  for (int trial = 0; trial < 60; ++trial) {
    const int width = 1 + static_cast<int>(random.below(90)),
              height = 1 + static_cast<int>(random.below(90));
    const TestImage image = make_test_image(width, height, 3, static_cast<std::uint64_t>(trial));
    const double w = random.uniform(0.3, 1) * width, h = random.uniform(0.3, 1) * height;
    const Stretch columns = inside(random.uniform(0, width - w), w);
    const Stretch rows = inside(random.uniform(0, height - h), h);
    const int out_width = 1 + static_cast<int>(random.below(50)),
              out_height = 1 + static_cast<int>(random.below(50));
    expect_definition(image, columns, rows, out_width, out_height, trial, Filter::bilinear);
  }
}

TEST(Resample, TakesWhatLiesBesideTheRegionWhereItMay) {
  const TestImage image = make_test_image(60, 40);
  const Stretch columns{10.5, 30, 0, 60}, rows{7.25, 20, 0, 40};
  Resampler resampler;
  const std::vector<double> exact = plain_resample(image, columns, rows, false, 10, 10);
  EXPECT_LE(max_difference(resample(resampler, image, columns, rows, false, 10, 10), exact), 0.51);
  EXPECT_LT(resampler.columns().first, 10);
  EXPECT_GT(resampler.columns().end, 41);
}

TEST(Resample, TheSameSizeIsACopyAndMirroredIsItsMirror) {
  const TestImage image = make_test_image(33, 9);
  Resampler resampler;
  const std::vector<std::byte> copy =
      resample(resampler, image, inside(0, 33), inside(0, 9), false, 33, 9);
  ASSERT_EQ(copy.size(), image.pixels.size());
  EXPECT_EQ(std::memcmp(copy.data(), image.pixels.data(), copy.size()), 0);
  const std::vector<std::byte> mirror =
      resample(resampler, image, inside(0, 33), inside(0, 9), true, 33, 9);
  for (int y = 0; y < 9; ++y) {
    for (int x = 0; x < 33; ++x) {
      EXPECT_EQ(
          std::memcmp(&mirror[(static_cast<std::size_t>(y) * 33 + x) * 3], image.at(32 - x, y), 3),
          0);
    }
  }
}

TEST(Resample, FlatImagesStayFlatAtAnyScale) {
  Resampler resampler;
  for (const int size : {1, 2, 3, 7, 64, 500}) {
    const TestImage image = make_flat_image(size, size, 255, 0, 77);
    const std::vector<std::byte> pixels =
        resample(resampler, image, inside(0, size), inside(0, size), false, 17, 18);
    for (std::size_t i = 0; i < pixels.size(); i += 3) {
      ASSERT_EQ(pixels[i], std::byte{255});
      ASSERT_EQ(pixels[i + 1], std::byte{0});
      ASSERT_EQ(pixels[i + 2], std::byte{77});
    }
  }
}

/// A whole number of pixels, as in crops.
Stretch random_part(int size, Random& random) {
  const int length = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(size)));
  const int begin = static_cast<int>(random.below(static_cast<std::uint64_t>(size - length + 1)));
  return inside(begin, length);
}

TEST(Resample, EveryFilterEqualsItsDefinition) {
  for (const Filter filter : kFilters) {
    Random random(8);
    for (int trial = 0; trial < 40; ++trial) {
      const int width = 1 + static_cast<int>(random.below(90)),
                height = 1 + static_cast<int>(random.below(90));
      const TestImage image = make_test_image(width, height, 3, static_cast<std::uint64_t>(trial));
      const Stretch columns = random_part(width, random), rows = random_part(height, random);
      // Primes: if a nearest pixel is a tie, rounding decides.
      constexpr int kSizes[] = {1, 2, 7, 13, 29, 53, 101};
      const int out_width = kSizes[random.below(7)], out_height = kSizes[random.below(7)];
      expect_definition(image, columns, rows, out_width, out_height, trial, filter);
    }
  }
}

TEST(Resample, EveryFilterReadsBesideARegionThatWasCutAfterwards) {
  const TestImage image = make_test_image(60, 40);
  // As in evaluation: the centre of an image resized to 51x34.
  const Stretch columns{10 * 60.0 / 51, 31 * 60.0 / 51, 0, 60},
      rows{2 * 40.0 / 34, 30 * 40.0 / 34, 0, 40};
  Resampler resampler;
  for (const Filter filter : kFilters) {
    const std::vector<double> whole =
        plain_resample(image, inside(0, 60), inside(0, 40), false, 51, 34, filter);
    std::vector<double> centre;
    for (std::size_t y = 2; y < 32; ++y) {
      const auto row = whole.begin() + static_cast<std::ptrdiff_t>(y * 51 * 3);
      centre.insert(centre.end(), row + 10 * 3, row + 41 * 3);
    }
    EXPECT_LE(
        max_difference(resample(resampler, image, columns, rows, false, 31, 30, 1, filter), centre),
        0.51)
        << name_of(filter);
  }
}

TEST(Resample, CubicFiltersAreClampedBeyondBlackAndWhite) {
  TestImage image = make_flat_image(40, 40, 0, 0, 0);
  for (int y = 0; y < 40; ++y) {
    for (int x = 20; x < 40; ++x) std::fill_n(image.pixels.begin() + (y * 40 + x) * 3, 3, 255);
  }
  Resampler resampler;
  for (const Filter filter : {Filter::bicubic, Filter::tf_bicubic, Filter::cv_bicubic}) {
    const std::vector<double> exact =
        plain_resample(image, inside(0, 40), inside(0, 40), false, 101, 101, filter);
    EXPECT_LT(*std::min_element(exact.begin(), exact.end()), -5);
    EXPECT_GT(*std::max_element(exact.begin(), exact.end()), 260);
    const std::vector<std::byte> pixels =
        resample(resampler, image, inside(0, 40), inside(0, 40), false, 101, 101, 0, filter);
    EXPECT_LE(max_difference(pixels, exact), 0.51) << name_of(filter);
  }
}

TEST(FilterTaps, NamesAreFiltersOrRoundsOfFour) {
  for (const Filter filter : kFilters) {
    const std::span<const Filter> taken = parse_resize("jpeg", name_of(filter));
    ASSERT_EQ(taken.size(), 1U);
    EXPECT_EQ(taken[0], filter);
  }
  const Filter plain[] = {Filter::nearest, Filter::bilinear, Filter::bicubic, Filter::area};
  const Filter theirs[] = {Filter::tf_nearest, Filter::tf_bilinear, Filter::tf_bicubic,
                           Filter::area};
  EXPECT_TRUE(std::ranges::equal(parse_resize("jpeg", "round_robin"), plain));
  EXPECT_TRUE(std::ranges::equal(parse_resize("jpeg", "tf-round-robin"), theirs));
  EXPECT_THROW(parse_resize("jpeg", "lanczos"), ConfigError);
}

TEST(FilterTaps, WeightsAddUpToOneInsideTheirBounds) {
  Random random(3);
  FilterTaps taps;
  for (int trial = 0; trial < 200; ++trial) {
    const double length = random.uniform(0.1, 900);
    const Stretch stretch = inside(random.uniform(0, 50), length);
    const int outputs = 1 + static_cast<int>(random.below(300));
    taps.build(stretch, outputs, false, kFilters[trial % std::size(kFilters)]);
    for (int i = 0; i < outputs; ++i) {
      const FilterTaps::Run run = taps.run(i);
      ASSERT_GE(run.first, stretch.low);
      ASSERT_LE(run.first + run.count, stretch.high);
      double sum = 0;
      for (int k = 0; k < run.count; ++k) sum += run.weights[k];
      ASSERT_NEAR(sum, 1, 1e-5);
    }
  }
}

TEST(Resample, AgreesWithPil) {
  if (!python_has("PIL")) GTEST_SKIP() << "python3-pil is not installed";
  const TempFolder folder;
  struct Case {
    Filter filter;
    const char* theirs;
    int worst;
  };
  // PIL's box filter takes whole pixels: the area if sizes are multiples.
  constexpr Case kCases[] = {{Filter::bilinear, "BILINEAR", 1},
                             {Filter::bicubic, "BICUBIC", 1},
                             {Filter::nearest, "NEAREST", 0},
                             {Filter::area, "BOX", 1}};
  Resampler resampler;
  for (const Case& method : kCases) {
    for (const auto& [width, height] :
         {std::pair{500, 375}, {150, 120}, {230, 90}, {1000, 900}, {448, 1120}}) {
      if (method.filter == Filter::area && width % 224 != 0) continue;
      const TestImage image = make_test_image(width, height);
      const auto pixels = std::as_bytes(std::span(image.pixels));
      folder.write("in", {pixels.begin(), pixels.end()});
      run_python(
          "import sys\n"
          "from PIL import Image\n"
          "size = int(sys.argv[4]), int(sys.argv[5])\n"
          "image = Image.frombytes('RGB', size, open(sys.argv[1], 'rb').read())\n"
          "resized = image.resize((224, 224), getattr(Image, sys.argv[2]))\n"
          "open(sys.argv[3], 'wb').write(resized.tobytes())\n",
          {folder / "in", method.theirs, folder / "out", std::to_string(width),
           std::to_string(height)});
      const std::vector<std::byte> ours = resample(
          resampler, image, inside(0, width), inside(0, height), false, 224, 224, 0, method.filter);
      const std::vector<std::byte> theirs = read_file(folder / "out");
      ASSERT_EQ(theirs.size(), ours.size());
      int worst = 0;
      for (std::size_t i = 0; i < ours.size(); ++i) {
        worst = std::max(worst,
                         std::abs(std::to_integer<int>(ours[i]) - std::to_integer<int>(theirs[i])));
      }
      EXPECT_LE(worst, method.worst) << method.theirs << ' ' << width << 'x' << height;
    }
  }
}

}  // namespace
}  // namespace penstock
