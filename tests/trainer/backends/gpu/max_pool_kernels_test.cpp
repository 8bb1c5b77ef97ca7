// SPDX-License-Identifier: Apache-2.0
// Tests max pools that normalise against the separate kernels for each operation.
#include "tests/trainer/backends/gpu/kernel_data.h"

namespace penstock::gpu {
namespace {

struct Pool {
  std::int32_t height, width, channels;
  Window window;
};
constexpr Pool kPools[] = {{7, 9, 8, {3, 3, 2, 1, 1, 1, 1}},
                           {5, 4, 5, {3, 2, 1, 0, 1, 2, 0}},
                           {8, 8, 16, {2, 2, 2, 0, 0, 0, 0}},
                           {1, 1, 3, {3, 3, 2, 1, 1, 1, 1}}};
constexpr std::int32_t kImages = 2;

std::int32_t extent(std::int32_t in, std::int32_t pads, std::int32_t kernel, std::int32_t stride) {
  return (in + pads - kernel) / stride + 1;
}
PoolShape shape_of(const Pool& pool) {
  const Window& window = pool.window;
  return {kImages,
          pool.height,
          pool.width,
          pool.channels,
          extent(pool.height, window.top + window.bottom, window.kernel_h, window.stride),
          extent(pool.width, window.left + window.right, window.kernel_w, window.stride),
          window};
}

/// In f32 both do the same arithmetic. Most elements are negative, so that some windows have only
/// negative ones.
TEST(GpuMaxPool, NormalisingPoolIsNormReluAndPool) {
  for (const Pool& pool : kPools) {
    const PoolShape shape = shape_of(pool);
    SCOPED_TRACE(testing::Message() << pool.height << " x " << pool.width);
    Random random(7);
    const auto channels = index_of(pool.channels);
    const std::int64_t rows = std::int64_t{kImages} * pool.height * pool.width;
    const std::size_t inputs = index_of(rows) * channels;
    const std::size_t outputs = index_of(kImages * shape.out_height * shape.out_width) * channels;
    Elements x = Elements::random(DType::f32, inputs, random, -2, 0.5);
    Floats multiplier = random_floats(channels, random, 0.5, 2);
    Floats addend = random_floats(channels, random, -0.25, 0.25);
    Elements u(DType::f32, inputs), y(DType::f32, outputs), fused(DType::f32, outputs);
    std::vector<std::uint8_t> index(outputs, 9), fused_index(outputs, 9);
    launch_on_host(ScaleShift{.x = x.data(),
                              .multiplier = multiplier.floats(),
                              .addend = addend.floats(),
                              .y = u.data(),
                              .relu = true,
                              .rows = rows,
                              .channels = pool.channels});
    launch_on_host(MaxPoolForward{u.data(), y.data(), index.data(), shape});
    launch_on_host(MaxPoolForward{x.data(), fused.data(), fused_index.data(), shape, DType::f32,
                                  multiplier.floats(), addend.floats()});
    std::size_t without = 0;
    for (std::size_t i = 0; i < outputs; ++i) {
      ASSERT_EQ(fused[i], y[i]) << i;
      ASSERT_EQ(fused_index[i], y[i] > 0 ? index[i] : kNoPlace) << i;
      without += fused_index[i] == kNoPlace;
    }
    EXPECT_GT(without, 0U);
    Elements dy = Elements::random(DType::f32, outputs, random), dx(DType::f32, inputs);
    Elements masked(DType::f32, inputs);
    launch_on_host(MaxPoolBackward{dy.data(), index.data(), dx.data(), false, shape});
    launch_on_host(MaxPoolBackward{dy.data(), fused_index.data(), masked.data(), false, shape});
    for (std::size_t i = 0; i < inputs; ++i) ASSERT_EQ(masked[i], u[i] > 0 ? dx[i] : 0.) << i;
  }
}

TEST(GpuMaxPool, NormalisingPoolRoundsOnce) {
  for (const DType type : kTypes) {
    Random random(8);
    Elements x = Elements::random(type, 4 * 4 * 8, random), y(type, 2 * 2 * 8);
    Floats multiplier = random_floats(8, random, 0.5, 2), addend = random_floats(8, random, -1, 1);
    const PoolShape shape{1, 4, 4, 8, 2, 2, {2, 2, 2}};
    launch_on_host(MaxPoolForward{x.data(), y.data(), nullptr, shape, type, multiplier.floats(),
                                  addend.floats()});
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t c = i % 8, column = i / 8 % 2, row = i / 16;
      double best = 0;
      for (const std::size_t place : {0, 1, 4, 5}) {
        const std::size_t pixel = 8 * row + 2 * column + place;
        best = std::max(best, x[pixel * 8 + c] * multiplier[c] + addend[c]);
      }
      EXPECT_ROUNDED(y[i], best, type, 7) << i;
    }
  }
}

}  // namespace
}  // namespace penstock::gpu
