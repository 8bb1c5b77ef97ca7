// SPDX-License-Identifier: Apache-2.0
// Tests the gradient of weights on AMX tiles against plain loops in double.
#include "trainer/backends/cpu/weight_gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "dataflow/random.h"
#include "trainer/backends/cpu/kernels.h"
#include "trainer/simd.h"

namespace penstock::cpu {
namespace {

struct Case {
  ConvolutionShape shape;
  std::int32_t threads;
};

/// An output of the size that the window gives.
ConvolutionShape shape_of(std::int32_t images, const ImageShape& in, std::int32_t outputs,
                          const Window& window) {
  const auto size = [&](std::int32_t side, std::int32_t kernel, std::int32_t padding) {
    return (side + padding - kernel) / window.stride + 1;
  };
  return {images,
          in,
          {size(in.height, window.kernel_h, window.top + window.bottom),
           size(in.width, window.kernel_w, window.left + window.right), outputs},
          window};
}

/// Products of matrices (more and fewer pixels than a tile), strides, uneven padding and windows,
/// channels that do not fill a block, and more threads than images.
const Case kCases[] = {
    {shape_of(3, {5, 5, 16}, 16, {}), 1},
    {shape_of(2, {37, 29, 32}, 48, {}), 2},
    {shape_of(2, {8, 8, 64}, 16, {1, 1, 2}), 2},
    {shape_of(5, {7, 7, 32}, 48, {3, 3, 1, 1, 1, 1, 1}), 3},
    {shape_of(3, {9, 9, 48}, 32, {3, 3, 2, 1, 1, 1, 1}), 2},
    {shape_of(2, {8, 10, 16}, 16, {3, 3, 2, 0, 0, 1, 1}), 1},
    {shape_of(1, {15, 17, 3}, 64, {7, 7, 2, 3, 3, 3, 3}), 4},
    {shape_of(4, {6, 11, 17}, 16, {1, 7, 1, 0, 3, 0, 3}), 2},
    {shape_of(2, {11, 8, 32}, 32, {5, 2, 3, 2, 1, 1, 0}), 2},
    {shape_of(20, {4, 4, 16}, 16, {4, 4, 1}), 2},
};

std::vector<Bf16> random_values(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<Bf16> values(count);
  for (Bf16& value : values) store(value, static_cast<float>(random.uniform(-1, 1)));
  return values;
}

std::size_t at(const ImageShape& shape, std::int32_t image, std::int32_t row, std::int32_t column) {
  return static_cast<std::size_t>(((image * shape.height + row) * shape.width + column) *
                                  shape.channels);
}

TEST(WeightGradientKernel, IsTheSumOverAllPixels) {
  if (!WeightGradient::is_available()) GTEST_SKIP() << "this CPU has no AMX tiles for bf16";
  for (const Case& test : kCases) {
    const auto& [images, in, out, window] = test.shape;
    SCOPED_TRACE(std::to_string(in.channels) + " to " + std::to_string(out.channels) +
                 " channels, " + std::to_string(window.kernel_h) + " x " +
                 std::to_string(window.kernel_w));
    const std::vector<Bf16> x = random_values(at(in, images, 0, 0), 1);
    const std::vector<Bf16> gradient_y = random_values(at(out, images, 0, 0), 2);
    const std::size_t filter =
        static_cast<std::size_t>(window.kernel_h * window.kernel_w * in.channels);
    const auto outputs = static_cast<std::size_t>(out.channels);
    std::vector<float> gradient(outputs * filter), bias(outputs);
    const Team team(test.threads);
    const WeightGradient kernel(test.shape, test.threads);
    auto* const scratch = static_cast<std::byte*>(std::aligned_alloc(64, kernel.scratch_bytes()));
    std::memset(scratch, 0xff, kernel.scratch_bytes());  // NaN
    kernel.run(x.data(), gradient_y.data(), scratch, gradient.data(), bias.data());
    std::free(scratch);

    std::vector<double> expected(outputs * filter), expected_bias(outputs);
    for (std::int32_t n = 0; n < images; ++n) {
      for (std::int32_t row = 0; row < out.height; ++row) {
        for (std::int32_t column = 0; column < out.width; ++column) {
          const Bf16* const y = gradient_y.data() + at(out, n, row, column);
          for (std::size_t o = 0; o < outputs; ++o) expected_bias[o] += load(y[o]);
          for (std::int32_t k = 0; k < window.kernel_h * window.kernel_w; ++k) {
            const std::int32_t i = row * window.stride + k / window.kernel_w - window.top;
            const std::int32_t j = column * window.stride + k % window.kernel_w - window.left;
            if (i < 0 || i >= in.height || j < 0 || j >= in.width) continue;
            const Bf16* const from = x.data() + at(in, n, i, j);
            for (std::size_t o = 0; o < outputs; ++o) {
              for (std::int32_t c = 0; c < in.channels; ++c) {
                expected[o * filter + static_cast<std::size_t>(k * in.channels + c)] +=
                    double{load(y[o])} * double{load(from[c])};
              }
            }
          }
        }
      }
    }
    const double pixels = static_cast<double>(images) * out.height * out.width;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(gradient[i], expected[i], 1e-6 * pixels) << "element " << i;
    }
    for (std::size_t o = 0; o < outputs; ++o) {
      ASSERT_NEAR(bias[o], expected_bias[o], 1e-5 * std::sqrt(pixels)) << "bias " << o;
    }
  }
}

}  // namespace
}  // namespace penstock::cpu
