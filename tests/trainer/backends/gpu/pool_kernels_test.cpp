// SPDX-License-Identifier: Apache-2.0
// Tests pools against the plain operators.
#include "tests/trainer/backends/gpu/kernel_data.h"

namespace penstock::gpu {
namespace {

/// Windows that overlap, that leave gaps, that pad more on one side, and that cover the whole
/// image; and rows of more channels than a block has threads.
constexpr PoolShape kShapes[] = {
    {2, 12, 11, 16, 6, 5, {3, 3, 2, 1, 0, 1, 0}},
    {3, 9, 7, 5, 4, 3, {3, 3, 2}},
    {1, 7, 7, 8, 7, 7, {3, 3, 1, 1, 1, 1, 1}},
    {2, 6, 9, 3, 2, 3, {2, 1, 3}},
    {2, 7, 7, 24, 1, 1, {7, 7, 1}},
    {1, 8, 8, 2056, 4, 4, {2, 2, 2}},
    {1, 5, 6, 8, 3, 4, {2, 3, 2, 1, 2, 0, 3}},
    {1, 4, 4, 300, 2, 2, {2, 2, 2}},
};

ImageShape in_shape(const PoolShape& shape) { return {shape.height, shape.width, shape.channels}; }
ImageShape out_shape(const PoolShape& shape) {
  return {shape.out_height, shape.out_width, shape.channels};
}
std::size_t inputs(const PoolShape& shape) {
  return index_of(shape.images) * in_shape(shape).elements();
}
std::size_t outputs(const PoolShape& shape) {
  return index_of(shape.images) * out_shape(shape).elements();
}
/// The largest sum over the windows of one element: each window holds at most this number of
/// elements, which are below 3.
double size_of_sums(const PoolShape& shape) {
  return 3. * shape.window.kernel_h * shape.window.kernel_w;
}

/// Few distinct values, so that windows have ties.
Elements values_with_ties(DType type, std::size_t count, Random& random) {
  Elements elements(type, count);
  for (std::size_t i = 0; i < count; ++i) {
    elements.set(i, static_cast<double>(random.below(6)) - 4);
  }
  return elements;
}

TEST(GpuMaxPool, ForwardTakesTheLargestAndBackwardTheFirstOfThem) {
  for (const DType type : kTypes) {
    for (const PoolShape& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << shape.height << " x " << shape.width);
      Random random(1);
      const Elements x = values_with_ties(type, inputs(shape), random);
      const Elements dy = Elements::random(type, outputs(shape), random);
      Elements y(type, outputs(shape)), unindexed(type, outputs(shape));
      Elements dx(type, inputs(shape)), added = Elements::random(type, inputs(shape), random);
      const Elements old = added.copy();
      std::vector<std::uint8_t> index(outputs(shape), 0xff);
      launch_on_host(MaxPoolForward{x.data(), y.data(), index.data(), shape, type});
      launch_on_host(MaxPoolForward{x.data(), unindexed.data(), nullptr, shape, type});
      launch_on_host(MaxPoolBackward{dy.data(), index.data(), dx.data(), false, shape, type});
      launch_on_host(MaxPoolBackward{dy.data(), index.data(), added.data(), true, shape, type});
      const plain::Images plain_x = images_of(x, shape.images, in_shape(shape));
      plain::Images plain_y(shape.images, out_shape(shape)),
          plain_dx(shape.images, in_shape(shape));
      plain::forward(MaxPool{shape.window}, plain_x, plain_y);
      plain::backward(MaxPool{shape.window}, plain_x, images_of(dy, shape.images, out_shape(shape)),
                      &plain_dx);
      for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], value_at(plain_y, i));
      EXPECT_TRUE(y.same_bits(unindexed));
      for (std::size_t i = 0; i < dx.size(); ++i) {
        EXPECT_ROUNDED(dx[i], value_at(plain_dx, i), type, size_of_sums(shape));
        EXPECT_ROUNDED(added[i], value_at(plain_dx, i) + old[i], type, size_of_sums(shape));
      }
    }
  }
}

TEST(GpuMaxPool, WindowsOfMinusInfinityHaveAWinnerAndThoseOfNoNumberShowIt) {
  const PoolShape shape{1, 2, 2, 8, 1, 1, {3, 3, 1, 1, 1, 0, 0}};
  Elements x(DType::f32, 32), y(DType::f32, 8);
  for (std::size_t i = 0; i < x.size(); ++i) x.set(i, -std::numeric_limits<double>::infinity());
  x.set(8, NAN);  // channel 0 of the second pixel
  x.set(16, 5);   // channel 0 of the third pixel
  std::vector<std::uint8_t> index(8, 0xff);
  launch_on_host(MaxPoolForward{x.data(), y.data(), index.data(), shape, DType::f32});
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(index[0], 5);
  for (std::size_t c = 1; c < 8; ++c) {
    EXPECT_EQ(y[c], -std::numeric_limits<double>::infinity());
    EXPECT_EQ(index[c], 4);  // after a row and a column of padding
  }
}

TEST(GpuAvgPool, ForwardAndBackwardShareOutEqually) {
  for (const DType type : kTypes) {
    for (const PoolShape& shape : kShapes) {
      for (const bool count_padding : {false, true}) {
        SCOPED_TRACE(testing::Message() << shape.height << " x " << shape.width);
        Random random(2);
        const Elements x = Elements::random(type, inputs(shape), random);
        const Elements dy = Elements::random(type, outputs(shape), random);
        Elements y(type, outputs(shape)), dx(type, inputs(shape));
        Elements added = Elements::random(type, inputs(shape), random);
        const Elements old = added.copy();
        launch_on_host(AvgPoolForward{x.data(), y.data(), count_padding, shape, type});
        launch_on_host(AvgPoolBackward{dy.data(), dx.data(), count_padding, false, shape, type});
        launch_on_host(AvgPoolBackward{dy.data(), added.data(), count_padding, true, shape, type});
        const AvgPool op{shape.window, count_padding};
        const plain::Images plain_x = images_of(x, shape.images, in_shape(shape));
        plain::Images plain_y(shape.images, out_shape(shape)),
            plain_dx(shape.images, in_shape(shape));
        plain::forward(op, plain_x, plain_y);
        plain::backward(op, plain_x, images_of(dy, shape.images, out_shape(shape)), &plain_dx);
        for (std::size_t i = 0; i < y.size(); ++i) {
          EXPECT_ROUNDED(y[i], value_at(plain_y, i), type, 3);
        }
        for (std::size_t i = 0; i < dx.size(); ++i) {
          EXPECT_ROUNDED(dx[i], value_at(plain_dx, i), type, size_of_sums(shape));
          EXPECT_ROUNDED(added[i], value_at(plain_dx, i) + old[i], type, size_of_sums(shape));
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock::gpu
