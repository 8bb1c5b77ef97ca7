// SPDX-License-Identifier: Apache-2.0
// Tests the kernels against plain sums in double, for every way to divide the work.
#include "trainer/backends/cpu/batch_norm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "dataflow/random.h"
#include "trainer/backends/cpu/kernels.h"

namespace penstock::cpu {
namespace {

constexpr float kEpsilon = 1e-5F;

struct Case {
  BatchNormShape shape;
  std::int32_t threads;
};
/// One block and several, more threads than blocks and than images, numbers of pixels that are not
/// multiples of four; and channels last, fewer and more than a loop handles at once.
constexpr Case kCases[] = {{{3, 16, 49}, 1},       {{3, 48, 6}, 1},     {{2, 32, 1}, 2},
                           {{5, 16, 7}, 3},        {{1, 16, 5}, 4},     {{4, 32, 64}, 3},
                           {{3, 16, 49, 16}, 2},   {{3, 48, 6, 48}, 1}, {{2, 32, 33, 32}, 2},
                           {{5, 80, 7, 80}, 3},    {{1, 64, 5, 64}, 4}, {{4, 128, 300, 128}, 3},
                           {{2, 2048, 9, 2048}, 2}};

struct Numbers {
  explicit Numbers(const BatchNormShape& shape)
      : channels(static_cast<std::size_t>(shape.channels)),
        count(static_cast<std::size_t>(shape.images) * channels * shape.pixels) {
    Random random(7);
    for (std::vector<float>* tensor : {&x, &gradient, &residual}) {
      for (std::size_t i = 0; i < count; ++i) {
        tensor->push_back(static_cast<float>(random.uniform(-2, 3)));
      }
    }
    for (std::size_t c = 0; c < channels; ++c) {
      scale.push_back(static_cast<float>(random.uniform(0.5, 2)));
      shift.push_back(static_cast<float>(random.uniform(-1, 1)));
    }
    for (std::vector<float>* tensor : {&mean, &variance, &d_scale, &d_shift}) {
      tensor->assign(channels, 0);
    }
    y.assign(count, 0);
    d_x.assign(count, 0);
  }
  BatchNormWeights weights() const { return {scale.data(), shift.data(), kEpsilon}; }

  std::size_t channels, count;
  std::vector<float> x, gradient, residual, scale, shift, mean, variance, y, d_x, d_scale, d_shift;
};

/// The indices of one channel's elements, in any order.
std::vector<std::size_t> places(const BatchNormShape& shape, std::size_t channel) {
  const auto together = static_cast<std::size_t>(shape.together);
  const std::size_t groups = static_cast<std::size_t>(shape.channels) / together;
  std::vector<std::size_t> found;
  for (std::size_t image = 0; image < static_cast<std::size_t>(shape.images); ++image) {
    for (std::size_t pixel = 0; pixel < shape.pixels; ++pixel) {
      found.push_back(((image * groups + channel / together) * shape.pixels + pixel) * together +
                      channel % together);
    }
  }
  return found;
}

TEST(BatchNormKernels, ForwardIsTheFormula) {
  for (const Case& test : kCases) {
    for (const bool relu : {false, true}) {
      for (const bool adds : {false, true}) {
        Numbers n(test.shape);
        const Team team(test.threads);
        batch_norm_forward(DType::f32, test.shape, n.weights(), relu, n.x.data(),
                           adds ? n.residual.data() : nullptr, n.mean.data(), n.variance.data(),
                           n.y.data());
        for (std::size_t c = 0; c < n.channels; ++c) {
          const std::vector<std::size_t> at = places(test.shape, c);
          double sum = 0, squares = 0;
          for (const std::size_t i : at) sum += n.x[i];
          const double mean = sum / static_cast<double>(at.size());
          for (const std::size_t i : at) squares += (n.x[i] - mean) * (n.x[i] - mean);
          const double variance = squares / static_cast<double>(at.size());
          EXPECT_NEAR(n.mean[c], mean, 1e-5);
          EXPECT_NEAR(n.variance[c], variance, 1e-5);
          for (const std::size_t i : at) {
            double y = n.scale[c] * (n.x[i] - mean) / std::sqrt(variance + kEpsilon) + n.shift[c];
            if (adds) y += n.residual[i];
            if (relu) y = std::max(y, 0.);
            ASSERT_NEAR(n.y[i], y, 2e-5 * (1 + n.scale[c] / std::sqrt(variance + kEpsilon)))
                << "channel " << c << " element " << i;
          }
        }
      }
    }
  }
}

TEST(BatchNormKernels, BackwardIsTheFormula) {
  for (const Case& test : kCases) {
    for (const bool relu : {false, true}) {
      Numbers n(test.shape);
      const Team team(test.threads);
      batch_norm_forward(DType::f32, test.shape, n.weights(), relu, n.x.data(), nullptr,
                         n.mean.data(), n.variance.data(), n.y.data());
      batch_norm_backward(DType::f32, test.shape, n.weights(), relu, n.x.data(), n.gradient.data(),
                          n.mean.data(), n.variance.data(), n.d_x.data(), n.d_scale.data(),
                          n.d_shift.data());
      for (std::size_t c = 0; c < n.channels; ++c) {
        const std::vector<std::size_t> at = places(test.shape, c);
        const auto count = static_cast<double>(at.size());
        const double inverse = 1 / std::sqrt(double{n.variance[c]} + kEpsilon);
        const auto passed = [&](std::size_t i) {
          return !relu || n.y[i] > 0 ? double{n.gradient[i]} : 0.;
        };
        double sum = 0, sum_by_x = 0;
        for (const std::size_t i : at) {
          sum += passed(i);
          sum_by_x += passed(i) * (n.x[i] - n.mean[c]) * inverse;
        }
        EXPECT_NEAR(n.d_shift[c], sum, 1e-4 * count);
        EXPECT_NEAR(n.d_scale[c], sum_by_x, 1e-4 * count);
        for (const std::size_t i : at) {
          const double x_hat = (n.x[i] - n.mean[c]) * inverse;
          const double expected =
              n.scale[c] * inverse * (passed(i) - sum / count - x_hat * sum_by_x / count);
          ASSERT_NEAR(n.d_x[i], expected, 1e-4 * n.scale[c] * inverse) << "element " << i;
        }
      }
    }
  }
}

TEST(BatchNormKernels, HowManyThreadsDoesNotMatter) {
  for (const BatchNormShape& shape : {BatchNormShape{6, 32, 33}, BatchNormShape{6, 32, 33, 32}}) {
    std::vector<Numbers> runs;
    for (const std::int32_t threads : {1, 2, 5}) {
      Numbers n(shape);
      const Team team(threads);
      batch_norm_forward(DType::f32, shape, n.weights(), true, n.x.data(), nullptr, n.mean.data(),
                         n.variance.data(), n.y.data());
      batch_norm_backward(DType::f32, shape, n.weights(), true, n.x.data(), n.gradient.data(),
                          n.mean.data(), n.variance.data(), n.d_x.data(), n.d_scale.data(),
                          n.d_shift.data());
      runs.push_back(std::move(n));
    }
    for (const Numbers& other : runs) {
      EXPECT_EQ(other.d_x, runs[0].d_x);  // sums over parts are in double and rounded once
      EXPECT_EQ(other.y, runs[0].y);
    }
  }
}

TEST(BatchNormKernels, ShortTypesRoundOnlyWhatTheyStore) {
  const BatchNormShape shape{4, 16, 25};
  Numbers n(shape);
  std::vector<std::uint16_t> x, y(n.count);
  for (float& value : n.x) {  // values that bf16 holds exactly
    x.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
    value = std::bit_cast<float>(std::uint32_t{x.back()} << 16);
  }
  batch_norm_forward(DType::f32, shape, n.weights(), true, n.x.data(), nullptr, n.mean.data(),
                     n.variance.data(), n.y.data());
  const std::vector<float> mean = n.mean;
  batch_norm_forward(DType::bf16, shape, n.weights(), true, x.data(), nullptr, n.mean.data(),
                     n.variance.data(), y.data());
  EXPECT_EQ(n.mean, mean);
  for (std::size_t i = 0; i < n.count; ++i) {
    const float stored = std::bit_cast<float>(std::uint32_t{y[i]} << 16);
    ASSERT_NEAR(stored, n.y[i], std::abs(n.y[i]) * 0x1p-8) << i;
  }
}

}  // namespace
}  // namespace penstock::cpu
