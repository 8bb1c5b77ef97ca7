// SPDX-License-Identifier: Apache-2.0
// Tests kernels over [rows, channels], and the normalising of pixels, against their formulas in
// double.
#include "tests/trainer/backends/gpu/kernel_data.h"
#include "trainer/dropout.h"

namespace penstock::gpu {
namespace {

/// Which optional tensors ScaleShift has.
struct Parts {
  bool multiplier, addend, residual, residual_multiplier, residual_addend, mask, relu, in_place;
};
constexpr Parts kParts[] = {
    {true, true, false, false, false, true, true, true},
    {true, true, false, false, false, false, false, false},
    {false, true, false, false, false, false, true, false},
    {true, true, true, false, false, true, true, false},
    {true, true, true, false, false, false, true, true},
    {true, true, true, true, true, true, true, false},
    {true, true, true, true, true, false, false, true},
    {false, false, true, false, true, true, false, false},
};

TEST(GpuScaleShift, IsItsFormula) {
  for (const DType type : kTypes) {
    for (const Matrix& matrix : kMatrices) {
      for (const Parts& parts : kParts) {
        SCOPED_TRACE(testing::Message() << matrix.rows << " x " << matrix.channels);
        Random random(1);
        const auto channels = index_of(matrix.channels);
        const Elements x = Elements::random(type, matrix.size(), random);
        const Elements residual = Elements::random(type, matrix.size(), random);
        std::vector<Floats> of;
        for (int k = 0; k < 4; ++k) of.push_back(random_floats(channels, random, -1, 1));
        Elements y = parts.in_place ? (parts.residual ? residual.copy() : x.copy())
                                    : Elements(type, matrix.size());
        std::vector<std::uint8_t> mask((matrix.size() + 7) / 8, 0xa5);
        const void* const in_place = y.data();
        launch_on_host(
            ScaleShift{.x = parts.in_place && !parts.residual ? in_place : x.data(),
                       .multiplier = parts.multiplier ? of[0].floats() : nullptr,
                       .addend = parts.addend ? of[1].floats() : nullptr,
                       .residual = !parts.residual  ? nullptr
                                   : parts.in_place ? in_place
                                                    : residual.data(),
                       .residual_multiplier = parts.residual_multiplier ? of[2].floats() : nullptr,
                       .residual_addend = parts.residual_addend ? of[3].floats() : nullptr,
                       .y = y.data(),
                       .mask = parts.mask ? mask.data() : nullptr,
                       .relu = parts.relu,
                       .type = type,
                       .rows = matrix.rows,
                       .channels = matrix.channels});
        for (std::size_t i = 0; i < matrix.size(); ++i) {
          const std::size_t c = i % channels;
          double value = x[i] * (parts.multiplier ? of[0][c] : 1) + (parts.addend ? of[1][c] : 0);
          if (parts.residual) {
            value += residual[i] * (parts.residual_multiplier ? of[2][c] : 1) +
                     (parts.residual_addend ? of[3][c] : 0);
          }
          EXPECT_ROUNDED(y[i], parts.relu ? std::max(value, 0.) : value, type, 8);
          ASSERT_EQ(bit_of(mask, i), parts.mask ? y[i] > 0 : (0xa5 >> (i % 8) & 1) != 0);
        }
      }
    }
  }
}

TEST(GpuScaleShift, MaskIsOfWhatIsStored) {
  Elements x(DType::f16, 16), y(DType::f16, 16);
  Floats multiplier(8);
  for (std::size_t i = 0; i < 16; ++i) x.set(i, i < 8 ? 1 : 2);
  for (std::size_t c = 0; c < 8; ++c) multiplier.set(c, 0x1p-25);  // half of the smallest f16
  std::uint8_t mask[2] = {};
  launch_on_host(ScaleShift{.x = x.data(),
                            .multiplier = multiplier.floats(),
                            .y = y.data(),
                            .mask = mask,
                            .type = DType::f16,
                            .rows = 2,
                            .channels = 8});
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[8], 0x1p-24);
  EXPECT_EQ(mask[0], 0);
  EXPECT_EQ(mask[1], 0xff);
}

TEST(GpuScaleShift, WhatIsNotANumberPassesTheRelu) {
  for (const std::int32_t channels : {5, 8}) {
    Elements x(DType::f32, index_of(channels)), y(DType::f32, index_of(channels));
    launch_on_host(
        ScaleShift{.x = x.data(), .y = y.data(), .relu = true, .rows = 1, .channels = channels});
    EXPECT_TRUE(std::isnan(y[0]));
  }
}

TEST(GpuReluBackward, PassesWhereTheOutputWasPositive) {
  for (const DType type : kTypes) {
    for (const std::size_t count : {1, 7, 8, 300, 4096, 70001}) {
      for (const int options : {0, 1, 2, 3}) {
        const bool masks = (options & 1) != 0, adds = (options & 2) != 0;
        Random random(2);
        const Elements dy = Elements::random(type, count, random);
        Elements y = Elements::random(type, count, random, -1, 1);
        y.set(0, 0);
        const std::vector<std::uint8_t> mask = random_mask(count, random);
        Elements dx = adds ? Elements::random(type, count, random) : dy.copy();
        const Elements old = dx.copy();
        launch_on_host(ReluBackward{.dy = adds ? dy.data() : dx.data(),
                                    .mask = masks ? mask.data() : nullptr,
                                    .y = masks ? nullptr : y.data(),
                                    .dx = dx.data(),
                                    .accumulate = adds,
                                    .type = type,
                                    .count = static_cast<std::int64_t>(count)});
        for (std::size_t i = 0; i < count; ++i) {
          const double passed = (masks ? bit_of(mask, i) : y[i] > 0) ? dy[i] : 0;
          EXPECT_ROUNDED(dx[i], passed + (adds ? old[i] : 0), type, 0);
        }
      }
    }
  }
}

TEST(GpuColumnSums, AddUpAllRows) {
  for (const DType type : kTypes) {
    for (const Matrix& matrix : kMatrices) {
      Random random(3);
      const Elements dy = Elements::random(type, matrix.size(), random);
      const auto channels = index_of(matrix.channels);
      const std::int32_t blocks = sum_blocks(matrix.rows, matrix.channels);
      Floats partial(index_of(blocks) * channels), again(index_of(blocks) * channels);
      Floats sums(channels);
      for (Floats* const to : {&partial, &again}) {
        launch_on_host(ColumnSums{.dy = dy.data(),
                                  .partial = to->floats(),
                                  .type = type,
                                  .rows = matrix.rows,
                                  .channels = matrix.channels});
      }
      EXPECT_TRUE(partial.same_bits(again));
      launch_on_host(ColumnFinish{.partial = partial.floats(),
                                  .blocks = blocks,
                                  .channels = matrix.channels,
                                  .sums = sums.floats()});
      for (std::size_t c = 0; c < channels; ++c) {
        double sum = 0, size = 0;
        for (std::size_t i = c; i < matrix.size(); i += channels) {
          sum += dy[i];
          size += std::abs(dy[i]);
        }
        // Rounded once per row of a thread and per lane of a block: fewer than 64 times, in random
        // directions.
        ASSERT_NEAR(sums[c], sum, 8 * 0x1p-24 * size);
      }
    }
  }
}

/// Whole numbers are exact in any order, so that a missing number or one counted twice shows.
TEST(GpuColumnSums, FinishAddsUpAnyNumberOfBlocks) {
  for (const std::int32_t blocks : {1, 31, 32, 33, 64, 396, 1000}) {
    for (const std::int32_t channels : {1, 32, 77}) {
      Floats partial(index_of(blocks) * index_of(channels)), sums(index_of(channels));
      for (std::size_t i = 0; i < partial.size(); ++i) partial.set(i, static_cast<double>(i % 97));
      launch_on_host(ColumnFinish{partial.floats(), blocks, channels, sums.floats()});
      for (std::size_t c = 0; c < sums.size(); ++c) {
        double sum = 0;
        for (std::size_t i = c; i < partial.size(); i += sums.size()) sum += partial[i];
        ASSERT_EQ(sums[c], sum) << blocks;
      }
    }
  }
}

/// Ranges of channels that are multiples of eight or not, at both ends.
struct Range {
  std::int32_t channels, from_channels, from_first, to_channels, to_first;
};
constexpr Range kRanges[] = {{3, 3, 0, 8, 0},    {8, 24, 8, 40, 16},   {5, 9, 4, 5, 0},
                             {16, 16, 0, 16, 0}, {64, 64, 0, 320, 64}, {7, 16, 8, 24, 17}};

TEST(GpuCopyChannels, WritesItsRangeAndNothingElse) {
  for (const DType type : kTypes) {
    for (const Range& range : kRanges) {
      for (const std::int64_t rows : {1, 301}) {
        for (const int options : {0, 1, 2}) {
          const bool zeroes = options == 1, adds = options == 2;
          Random random(4);
          const Elements from =
              Elements::random(type, index_of(rows * range.from_channels), random);
          Elements to = Elements::random(type, index_of(rows * range.to_channels), random);
          const Elements old = to.copy();
          launch_on_host(CopyChannels{.from = from.data(),
                                      .to = to.data(),
                                      .rows = rows,
                                      .channels = range.channels,
                                      .from_channels = range.from_channels,
                                      .from_first = range.from_first,
                                      .to_channels = range.to_channels,
                                      .to_first = range.to_first,
                                      .zero_rest = zeroes,
                                      .accumulate = adds,
                                      .type = type});
          for (std::size_t i = 0; i < to.size(); ++i) {
            const auto row = static_cast<std::int64_t>(i) / range.to_channels;
            const std::int64_t c = static_cast<std::int64_t>(i) % range.to_channels;
            const std::int64_t place = c - range.to_first;
            if (place < 0 || place >= range.channels) {
              ASSERT_EQ(to[i], zeroes ? 0 : old[i]);
              continue;
            }
            const double value =
                from[index_of(row * range.from_channels + range.from_first + place)];
            EXPECT_ROUNDED(to[i], value + (adds ? old[i] : 0), type, 0);
          }
        }
      }
    }
  }
}

/// Neighbours within and beyond the reach of the body for eight channels, and all channels.
constexpr Lrn kLrns[] = {
    {5, 0.5F, 0.75F, 1}, {9, 0.3F, 0.5F, 2}, {11, 0.2F, 0.75F, 1}, {1, 1, 1, 1}};

TEST(GpuLrn, ForwardAndBackwardAreTheirFormulas) {
  for (const DType type : kTypes) {
    for (const Lrn& lrn : kLrns) {
      for (const std::int32_t channels : {3, 8, 24, 40}) {
        SCOPED_TRACE(testing::Message() << lrn.size << " of " << channels);
        const ImageShape shape{5, 7, channels};
        Random random(5);
        const Elements x = Elements::random(type, 2 * shape.elements(), random);
        const Elements dy = Elements::random(type, x.size(), random);
        Elements y(type, x.size()), dx(type, x.size());
        Elements added = Elements::random(type, x.size(), random);
        const Elements old = added.copy();
        launch_on_host(LrnForward{x.data(), y.data(), lrn, type, 70, channels});
        launch_on_host(LrnBackward{x.data(), dy.data(), dx.data(), false, lrn, type, 70, channels});
        launch_on_host(
            LrnBackward{x.data(), dy.data(), added.data(), true, lrn, type, 70, channels});
        const plain::Images plain_x = images_of(x, 2, shape);
        plain::Images plain_y(2, shape), plain_dx(2, shape);
        plain::forward(lrn, plain_x, plain_y);
        plain::backward(lrn, plain_x, images_of(dy, 2, shape), &plain_dx);
        for (std::size_t i = 0; i < x.size(); ++i) {
          EXPECT_ROUNDED(y[i], value_at(plain_y, i), type, 4);
          // A few terms of up to 27 = x^2 dy.
          const double expected = value_at(plain_dx, i);
          EXPECT_ROUNDED(dx[i], expected, type, 30);
          EXPECT_ROUNDED(added[i], expected + old[i], type, 30);
        }
      }
    }
  }
}

TEST(GpuDropout, KeepsWhatTheMaskOfEveryBackendKeeps) {
  for (const DType type : kTypes) {
    for (const std::int32_t channels : {5, 16}) {
      for (const bool adds : {false, true}) {
        const ImageShape shape{3, 7, channels};
        Random random(6);
        const Elements x = Elements::random(type, 2 * shape.elements(), random, 1, 2);
        Elements y = adds ? Elements::random(type, x.size(), random) : x.copy();
        const Elements old = y.copy();
        const StepScalars scalars{.step = 41};
        launch_on_host(DropoutApply{.x = adds ? x.data() : y.data(),
                                    .y = y.data(),
                                    .accumulate = adds,
                                    .seed = 12345678901234567U,
                                    .node = 17,
                                    .rate = 0.3F,
                                    .scalars = &scalars,
                                    .type = type,
                                    .images = 2,
                                    .channels = channels,
                                    .pixels_per_image = 21});
        plain::Images expected(2, shape);
        plain::forward(Dropout{0.3F}, DropoutMask(12345678901234567U, 41, 17, 0.3F),
                       images_of(x, 2, shape), expected);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double value = value_at(expected, i);
          if (!adds) {
            ASSERT_EQ(y[i] == 0, value == 0);
          }
          EXPECT_ROUNDED(y[i], value + (adds ? old[i] : 0), type, 4);
        }
      }
    }
  }
}

/// Pixels of images, their channels, and the padded number of channels.
struct Pixels {
  std::int64_t per_image;
  std::int32_t channels, padded;
};

TEST(GpuNormalise, ScalesShiftsAndPadsEachChannel) {
  for (const DType type : kTypes) {
    for (const DType from : {DType::u8, DType::f16, DType::f32}) {
      for (const Pixels& shape : {Pixels{28, 3, 4}, {7, 3, 4}, {9, 3, 3}, {300, 1, 8}, {5, 6, 8}}) {
        constexpr std::int32_t kImages = 4, kValid = 3;
        Random random(7);
        const std::size_t pixels = index_of(kImages * shape.per_image);
        const std::size_t count = pixels * index_of(shape.channels);
        Elements wide(from == DType::u8 ? DType::f32 : from, count);
        std::vector<std::uint8_t> bytes(count);
        for (std::size_t i = 0; i < count; ++i) {
          bytes[i] = static_cast<std::uint8_t>(random.bits());
          wide.set(i, bytes[i]);
        }
        const StepScalars scalars{.valid = kValid};
        const float factor[4] = {0.01F, -0.02F, 0.03F, 0.04F}, offset[4] = {-1, 2, -3, 4};
        Normalise call{.pixels = from == DType::u8 ? bytes.data() : wide.data(),
                       .from = from,
                       .type = type,
                       .images = kImages,
                       .pixels_per_image = shape.per_image,
                       .channels = shape.channels,
                       .padded_channels = shape.padded,
                       .scalars = &scalars};
        std::copy_n(factor, 4, call.factor);
        std::copy_n(offset, 4, call.offset);
        Elements to(type, pixels * index_of(shape.padded));
        call.to = to.data();
        launch_on_host(call);
        for (std::size_t i = 0; i < to.size(); ++i) {
          const std::size_t pixel = i / index_of(shape.padded), c = i % index_of(shape.padded);
          const bool counts =
              c < index_of(shape.channels) && pixel < index_of(kValid * shape.per_image);
          const std::size_t of = std::min<std::size_t>(c, 3);
          const double value =
              counts ? wide[pixel * index_of(shape.channels) + c] * double{factor[of]} +
                           double{offset[of]}
                     : 0;
          EXPECT_ROUNDED(to[i], value, type, counts ? 14 : 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock::gpu
