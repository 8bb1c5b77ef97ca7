// SPDX-License-Identifier: Apache-2.0
// Tests batch norm's kernels against sums in double.
#include <numeric>

#include "tests/trainer/backends/gpu/kernel_data.h"

namespace penstock::gpu {
namespace {

/// The mean and the biased variance of each channel.
std::vector<plain::Moments> moments_of(const Elements& x, const Matrix& matrix) {
  return plain::moments_of(
      images_of(x, 1, {static_cast<std::int32_t>(matrix.rows), 1, matrix.channels}));
}

/// Everything that BatchNormFinish reads and writes, per channel.
struct Statistics {
  explicit Statistics(const Matrix& matrix, DType type, Random& random)
      : channels(index_of(matrix.channels)),
        scale(random_floats(channels, random, 0.5, 2)),
        shift(random_floats(channels, random, -1, 1)),
        running_mean(random_floats(channels, random, -1, 1)),
        running_variance(random_floats(channels, random, 0.5, 2)),
        mean(channels),
        inverse(channels),
        multiplier(channels),
        addend(channels),
        short_multiplier(type, channels),
        short_addend(type, channels) {}

  std::size_t channels;
  Floats scale, shift, running_mean, running_variance, mean, inverse, multiplier, addend;
  Elements short_multiplier, short_addend;
};

BatchNormFinish finish_of(Statistics& s, const Matrix& matrix, DType type) {
  return {.type = type,
          .rows = matrix.rows,
          .channels = matrix.channels,
          .scale = s.scale.floats(),
          .shift = s.shift.floats(),
          .epsilon = 1e-5F,
          .momentum = 0.1F,
          .running_mean = s.running_mean.floats(),
          .running_variance = s.running_variance.floats(),
          .mean = s.mean.floats(),
          .inverse_deviation = s.inverse.floats(),
          .multiplier = s.multiplier.floats(),
          .addend = s.addend.floats(),
          .short_multiplier = s.short_multiplier.data(),
          .short_addend = s.short_addend.data()};
}

Floats sums_of(Elements& x, const Matrix& matrix) {
  const std::int32_t blocks = sum_blocks(matrix.rows, matrix.channels);
  Floats partial(index_of(blocks) * 2 * index_of(matrix.channels));
  launch_on_host(BatchNormSums{.x = x.data(),
                               .partial = partial.floats(),
                               .type = x.type(),
                               .rows = matrix.rows,
                               .channels = matrix.channels});
  return partial;
}

/// The mean has the rounding errors of sums of x - x[0], and the variance those of sums of squares.
/// There is at most one rounding per row of a thread and per lane of a block, and a few at the end.
/// A random walk of a hundred roundings stays below 16. Differences from the first row are at most
/// `spread`.
void expect_statistics(const Statistics& s, const Statistics& before,
                       const std::vector<plain::Moments>& moments, const Matrix& matrix,
                       double spread) {
  const double error = 16 * 0x1p-24 * spread;
  std::vector<double> running_mean(s.channels), running_variance(s.channels);
  for (std::size_t c = 0; c < s.channels; ++c) {
    const double mean = moments[c].mean;
    const double inverse = 1 / std::sqrt(moments[c].variance + double{1e-5F});
    ASSERT_NEAR(s.mean[c], mean, error + 0x1p-24 * std::abs(mean));
    // d(inverse) = inverse^3 / 2 d(variance)
    const double off = inverse * inverse * spread * error + 4 * 0x1p-24;
    ASSERT_NEAR(s.inverse[c], inverse, inverse * off);
    const double multiplier = s.scale[c] * inverse, addend = s.shift[c] - mean * multiplier;
    ASSERT_NEAR(s.multiplier[c], multiplier, multiplier * off);
    const double addend_off = (std::abs(mean) * off + error) * multiplier + 0x1p-24 * 2;
    ASSERT_NEAR(s.addend[c], addend, addend_off + 0x1p-24 * std::abs(addend));
    const double unbiased = moments[c].variance * static_cast<double>(matrix.rows) /
                            std::max(1., static_cast<double>(matrix.rows - 1));
    ASSERT_NEAR(s.running_mean[c], before.running_mean[c] * 0.9 + mean * 0.1,
                error + 0x1p-22 * (1 + std::abs(mean)));
    ASSERT_NEAR(s.running_variance[c], before.running_variance[c] * 0.9 + unbiased * 0.1,
                error * spread + 0x1p-22 * (2 + unbiased));
    const DType type = s.short_addend.type();
    ASSERT_NEAR(s.short_multiplier[c], s.multiplier[c], tolerance(type, s.multiplier[c], 0));
    ASSERT_NEAR(s.short_addend[c], s.addend[c], tolerance(type, s.addend[c], 0));
  }
}

Statistics copy_of(const Statistics& s, const Matrix& matrix) {
  Random random(1);
  Statistics copy(matrix, s.short_addend.type(), random);
  copy.running_mean = Floats(s.running_mean.copy());
  copy.running_variance = Floats(s.running_variance.copy());
  return copy;
}

TEST(GpuBatchNorm, StatisticsAreThoseOfTheRows) {
  for (const DType type : kTypes) {
    for (const Matrix& matrix : kMatrices) {
      SCOPED_TRACE(testing::Message() << matrix.rows << " x " << matrix.channels);
      Random random(3);
      Elements x = Elements::random(type, matrix.size(), random);
      Statistics s(matrix, type, random);
      const Statistics before = copy_of(s, matrix);
      Floats partial = sums_of(x, matrix);
      BatchNormFinish finish = finish_of(s, matrix, type);
      finish.partial = partial.floats();
      finish.blocks = sum_blocks(matrix.rows, matrix.channels);
      finish.pivot = x.data();
      launch_on_host(finish);
      expect_statistics(s, before, moments_of(x, matrix), matrix, 5);
      EXPECT_TRUE(partial.same_bits(sums_of(x, matrix)));
    }
  }
}

/// Without the first row as a pivot, a variance of 1/12 would be lost next to squares near 10^6.
TEST(GpuBatchNorm, AMeanFarFromZeroCostsNoPrecision) {
  const Matrix matrix{4000, 8};
  Random random(4);
  Elements x = Elements::random(DType::f32, matrix.size(), random, 1000, 1001);
  Statistics s(matrix, DType::f32, random);
  const Statistics before = copy_of(s, matrix);
  Floats partial = sums_of(x, matrix);
  BatchNormFinish finish = finish_of(s, matrix, DType::f32);
  finish.partial = partial.floats();
  finish.blocks = sum_blocks(matrix.rows, matrix.channels);
  finish.pivot = x.data();
  launch_on_host(finish);
  expect_statistics(s, before, moments_of(x, matrix), matrix, 1);
}

TEST(GpuBatchNorm, SumsOfTheLibraryNeedNoPivotAndNoRunningStatistics) {
  const Matrix matrix{40, 40};
  Random random(5);
  Elements x = Elements::random(DType::f16, matrix.size(), random);
  Statistics s(matrix, DType::f16, random);
  const Floats mean_before = Floats(s.running_mean.copy());
  Floats partial(2 * s.channels);
  for (std::size_t c = 0; c < s.channels; ++c) {
    double sum = 0, squares = 0;
    for (std::size_t i = c; i < x.size(); i += s.channels) {
      sum += x[i];
      squares += x[i] * x[i];
    }
    partial.set(c, sum);
    partial.set(s.channels + c, squares);
  }
  BatchNormFinish finish = finish_of(s, matrix, DType::f16);
  finish.partial = partial.floats();
  finish.blocks = 1;
  finish.running_mean = finish.running_variance = nullptr;
  finish.short_multiplier = finish.short_addend = nullptr;
  launch_on_host(finish);
  const std::vector<plain::Moments> moments = moments_of(x, matrix);
  for (std::size_t c = 0; c < s.channels; ++c) {
    EXPECT_NEAR(s.mean[c], moments[c].mean, 1e-6);
    EXPECT_NEAR(s.inverse[c], 1 / std::sqrt(moments[c].variance + 1e-5), 1e-5);
  }
  EXPECT_TRUE(mean_before.same_bits(s.running_mean));
}

TEST(GpuBatchNorm, AVarianceBelowZeroCountsAsZero) {
  Random random(6);
  const Matrix matrix{4, 1};
  Statistics s(matrix, DType::f32, random);
  Floats partial(2);
  partial.set(0, 8);   // mean 2
  partial.set(1, 15);  // below 4 * 2^2
  BatchNormFinish finish = finish_of(s, matrix, DType::f32);
  finish.partial = partial.floats();
  finish.blocks = 1;
  launch_on_host(finish);
  EXPECT_NEAR(s.inverse[0], 1 / std::sqrt(double{1e-5F}), 1e-4);
}

TEST(GpuBatchNorm, RunningStatisticsScaleAndShift) {
  for (const std::int32_t channels : {1, 7, 300}) {
    Random random(7);
    Statistics s({1, channels}, DType::f32, random);
    launch_on_host(BatchNormFromRunning{.running_mean = s.running_mean.floats(),
                                        .running_variance = s.running_variance.floats(),
                                        .scale = s.scale.floats(),
                                        .shift = s.shift.floats(),
                                        .epsilon = 1e-5F,
                                        .multiplier = s.multiplier.floats(),
                                        .addend = s.addend.floats(),
                                        .channels = channels});
    for (std::size_t c = 0; c < s.channels; ++c) {
      const double multiplier = s.scale[c] / std::sqrt(s.running_variance[c] + double{1e-5F});
      const double addend = s.shift[c] - s.running_mean[c] * multiplier;
      EXPECT_ROUNDED(s.multiplier[c], multiplier, DType::f32, 0);
      EXPECT_ROUNDED(s.addend[c], addend, DType::f32, 0);
    }
  }
}

/// The inputs of a backward pass, and the expected results.
struct Backward {
  Backward(DType type, const Matrix& shape, bool has_mask, Random& random)
      : matrix(shape),
        channels(index_of(shape.channels)),
        x(Elements::random(type, shape.size(), random)),
        dy(Elements::random(type, shape.size(), random, -1, 1)),
        mask(has_mask ? random_mask(shape.size(), random) : std::vector<std::uint8_t>{}),
        scale(random_floats(channels, random, 0.5, 2)),
        mean(channels),
        inverse(channels) {
    const std::vector<plain::Moments> moments = moments_of(x, matrix);
    for (std::size_t c = 0; c < channels; ++c) {
      mean.set(c, moments[c].mean);
      inverse.set(c, 1 / std::sqrt(moments[c].variance + 1e-5));
    }
  }
  double passed(std::size_t i) const { return mask.empty() || bit_of(mask, i) ? dy[i] : 0; }
  const std::uint8_t* bits() const { return mask.empty() ? nullptr : mask.data(); }

  Matrix matrix;
  std::size_t channels;
  Elements x, dy;
  std::vector<std::uint8_t> mask;
  Floats scale, mean, inverse;
};

TEST(GpuBatchNorm, BackwardSumsWhatTheMaskLetsPass) {
  for (const DType type : kTypes) {
    for (const Matrix& matrix : kMatrices) {
      for (const int options : {0, 1, 2, 3}) {
        SCOPED_TRACE(testing::Message() << matrix.rows << " x " << matrix.channels);
        Random random(8);
        Backward b(type, matrix, (options & 1) != 0, random);
        Elements in_place = b.dy.copy();  // receives g if the call asks for it
        const std::int32_t blocks = sum_blocks(matrix.rows, matrix.channels);
        Floats partial(index_of(blocks) * 2 * b.channels);
        launch_on_host(
            BatchNormBackwardSums{.dy = in_place.data(),
                                  .mask = b.bits(),
                                  .x = b.x.data(),
                                  .mean = b.mean.floats(),
                                  .inverse_deviation = b.inverse.floats(),
                                  .masked = (options & 2) != 0 ? in_place.data() : nullptr,
                                  .partial = partial.floats(),
                                  .type = type,
                                  .rows = matrix.rows,
                                  .channels = matrix.channels});
        for (std::size_t i = 0; i < matrix.size(); ++i) {
          ASSERT_EQ(in_place[i], (options & 2) != 0 ? b.passed(i) : b.dy[i]);
        }
        for (std::size_t c = 0; c < b.channels; ++c) {
          double sums[2] = {}, sizes[2] = {}, found[2] = {};
          for (std::size_t i = c; i < matrix.size(); i += b.channels) {
            const double g = b.passed(i), product = g * (b.x[i] - b.mean[c]) * b.inverse[c];
            sums[0] += g;
            sums[1] += product;
            sizes[0] += std::abs(g);
            sizes[1] += std::abs(product) + 0x1p-2;
          }
          for (std::size_t k = 0; k < index_of(blocks) * 2; ++k) {
            found[k % 2] += partial[k * b.channels + c];
          }
          ASSERT_NEAR(found[0], sums[0], 16 * 0x1p-24 * sizes[0]);
          ASSERT_NEAR(found[1], sums[1], 16 * 0x1p-24 * sizes[1]);
        }
      }
    }
  }
}

TEST(GpuBatchNorm, FactorsOfBackwardGiveTheGradient) {
  const Matrix matrix{60, 37};
  Random random(9);
  Backward b(DType::f32, matrix, false, random);
  Floats partial(3 * 2 * b.channels);  // three blocks of twenty rows
  const plain::Images x = images_of(b.x, 1, {60, 1, 37}), dy = images_of(b.dy, 1, {60, 1, 37});
  for (std::size_t c = 0; c < b.channels; ++c) {
    for (std::size_t block = 0; block < 3; ++block) {
      double sums[2] = {};
      for (std::size_t row = 20 * block; row < 20 * (block + 1); ++row) {
        const std::size_t i = row * b.channels + c;
        sums[0] += b.dy[i];
        sums[1] += b.dy[i] * (b.x[i] - b.mean[c]) * b.inverse[c];
      }
      partial.set((block * 2) * b.channels + c, sums[0]);
      partial.set((block * 2 + 1) * b.channels + c, sums[1]);
    }
  }
  Floats dscale(b.channels), dshift(b.channels), by_dy(b.channels), by_x(b.channels),
      constant(b.channels);
  launch_on_host(BatchNormBackwardFinish{.partial = partial.floats(),
                                         .blocks = 3,
                                         .rows = matrix.rows,
                                         .channels = matrix.channels,
                                         .scale = b.scale.floats(),
                                         .mean = b.mean.floats(),
                                         .inverse_deviation = b.inverse.floats(),
                                         .dscale = dscale.floats(),
                                         .dshift = dshift.floats(),
                                         .dy_factor = by_dy.floats(),
                                         .x_factor = by_x.floats(),
                                         .constant = constant.floats()});
  std::vector<double> scale(b.channels), plain_dscale(b.channels), plain_dshift(b.channels);
  for (std::size_t c = 0; c < b.channels; ++c) scale[c] = b.scale[c];
  plain::Images dx(1, {60, 1, 37});
  plain::backward(BatchNorm{}, x, plain::moments_of(x), scale, dy, &dx, plain_dscale, plain_dshift);
  for (std::size_t c = 0; c < b.channels; ++c) {
    EXPECT_NEAR(dscale[c], plain_dscale[c], 1e-5);
    EXPECT_NEAR(dshift[c], plain_dshift[c], 1e-5);
  }
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    const std::size_t c = i % b.channels;
    const double found = by_dy[c] * b.dy[i] + by_x[c] * b.x[i] + constant[c];
    ASSERT_NEAR(found, value_at(dx, i), 2e-6);
  }
}

TEST(GpuBatchNorm, ApplyingBackwardIsItsFormula) {
  for (const DType type : kTypes) {
    for (const Matrix& matrix : kMatrices) {
      for (const int options : {0, 1, 2, 3, 4, 5, 6, 7}) {
        const bool masks = (options & 1) != 0, adds = (options & 2) != 0, two = (options & 4) != 0;
        Random random(10);
        Backward b(type, matrix, masks, random);
        const Elements x2 = Elements::random(type, matrix.size(), random);
        // Without accumulation, the call writes over dy.
        Elements dx = adds ? Elements::random(type, matrix.size(), random) : b.dy.copy();
        Elements dx2 = Elements::random(type, matrix.size(), random);
        const Elements old = dx.copy(), old2 = dx2.copy();
        std::vector<Floats> factors;
        for (int k = 0; k < 6; ++k) factors.push_back(random_floats(b.channels, random, -1, 1));
        BatchNormBackwardApply call{.dy = adds ? b.dy.data() : dx.data(),
                                    .mask = b.bits(),
                                    .x = b.x.data(),
                                    .dy_factor = factors[0].floats(),
                                    .x_factor = factors[1].floats(),
                                    .constant = factors[2].floats(),
                                    .dx = dx.data(),
                                    .accumulate = adds,
                                    .type = type,
                                    .rows = matrix.rows,
                                    .channels = matrix.channels};
        if (two) {
          call.x2 = x2.data();
          call.dy_factor2 = factors[3].floats();
          call.x_factor2 = factors[4].floats();
          call.constant2 = factors[5].floats();
          call.dx2 = dx2.data();
        }
        launch_on_host(call);
        for (std::size_t i = 0; i < matrix.size(); ++i) {
          const std::size_t c = i % b.channels;
          const double g = b.passed(i);
          const double first = factors[0][c] * g + factors[1][c] * b.x[i] + factors[2][c];
          EXPECT_ROUNDED(dx[i], first + (adds ? old[i] : 0), type, 8);
          if (!two) {
            ASSERT_EQ(dx2[i], old2[i]);
            continue;
          }
          const double second = factors[3][c] * g + factors[4][c] * x2[i] + factors[5][c];
          EXPECT_ROUNDED(dx2[i], second + (adds ? old2[i] : 0), type, 8);
        }
      }
    }
  }
}

TEST(GpuBatchNorm, SumBlocksFitTheDeviceAndLeaveNoneEmpty) {
  EXPECT_EQ(sum_blocks(256 * 56 * 56, 64), 396);
  EXPECT_EQ(sum_blocks(256 * 7 * 7, 2048), 49);
  EXPECT_EQ(sum_blocks(1, 1), 1);
  for (const Matrix& matrix : kMatrices) {
    EXPECT_GE(sum_blocks(matrix.rows, matrix.channels), 1);
    EXPECT_LE(sum_blocks(matrix.rows, matrix.channels), matrix.rows);
  }
}

}  // namespace
}  // namespace penstock::gpu
