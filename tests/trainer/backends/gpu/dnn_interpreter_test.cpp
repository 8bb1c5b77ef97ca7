// SPDX-License-Identifier: Apache-2.0
// Tests the interpreter of DNN graphs against the plain operators, and its rounding.
#include "tests/support/gpu/dnn_interpreter.h"
#include "tests/support/gpu/accesses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "dataflow/random.h"
#include "tests/support/gpu/rounding.h"
#include "tests/support/plain_operators.h"

namespace penstock::gpu {
namespace {

/// Relative to the largest value of a result. Test values are near 1; results are sums of up to a
/// few hundred of them, rounded to f32.
constexpr double kClose = 1e-6;

/// A graph of f32 tensors with their memory.
struct Bench {
  DnnGraph graph;
  std::vector<std::vector<float>> memory;

  DnnTensorId add(const std::array<std::int64_t, 4>& shape, bool is_virtual = false) {
    const DnnTensor tensor{.shape = shape, .dtype = DType::f32, .is_virtual = is_virtual};
    memory.emplace_back(tensor.count());
    return graph.add(tensor);
  }
  DnnTensorId add(const plain::Images& images) {
    const auto id =
        add({images.count, images.shape.channels, images.shape.height, images.shape.width});
    to_channels_last(images, (*this)[id]);
    return id;
  }
  std::vector<float>& operator[](DnnTensorId id) { return memory[static_cast<std::size_t>(id)]; }

  void run(F32Products products = F32Products::exact) {
    check(graph);
    std::vector<std::byte*> tensors;
    for (std::size_t i = 0; i < memory.size(); ++i) {
      tensors.push_back(
          graph.tensors[i].is_virtual ? nullptr : reinterpret_cast<std::byte*>(memory[i].data()));
    }
    interpret(graph, tensors, products);
  }

  static void to_channels_last(const plain::Images& images, std::vector<float>& to) {
    const auto channels = static_cast<std::size_t>(images.shape.channels);
    for (std::size_t i = 0; i < images.values.size(); ++i) {
      const std::size_t pixel = i % images.plane(), c = i / images.plane() % channels;
      const std::size_t image = i / images.plane() / channels;
      to[(image * images.plane() + pixel) * channels + c] = static_cast<float>(images.values[i]);
    }
  }
};

void expect_close(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  double largest = 1;
  for (const float value : expected) largest = std::max(largest, std::abs(double{value}));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], kClose * largest) << "element " << i;
  }
}
void expect_close(const std::vector<float>& got, const plain::Images& expected) {
  std::vector<float> turned(expected.values.size());
  Bench::to_channels_last(expected, turned);
  expect_close(got, turned);
}
std::vector<float> narrowed(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

void fill(std::vector<double>& values, Random& random) {
  for (double& value : values) value = static_cast<float>(random.uniform(-1, 1.5));
}
plain::Images random_images(std::int32_t count, const ImageShape& shape, Random& random) {
  plain::Images images(count, shape);
  fill(images.values, random);
  return images;
}

struct ConvolutionCase {
  ImageShape in;
  Conv2d op;
};
/// Kernels 1x1 and 3x3, strided with uneven padding, stem, grouped, one channel per group, more
/// pixels than a tile has, and windows larger than the image.
const ConvolutionCase kConvolutions[] = {
    {{4, 5, 6}, {.channels = 7, .window = {}}},
    {{5, 4, 3}, {.channels = 4, .window = {3, 3, 1, 1, 1, 1, 1}}},
    {{7, 6, 4}, {.channels = 8, .window = {3, 2, 2, 0, 1, 1, 0}}},
    {{12, 12, 3}, {.channels = 5, .window = {7, 7, 2, 3, 3, 3, 3}}},
    {{6, 7, 8}, {.channels = 12, .window = {3, 3, 2, 1, 1, 1, 1}, .groups = 4}},
    {{5, 5, 6}, {.channels = 6, .window = {3, 3, 1, 1, 1, 1, 1}, .groups = 6}},
    {{2, 2, 2}, {.channels = 3, .window = {5, 5, 1, 2, 2, 2, 2}}}};

/// The operator's output, its weights in both orders, and an output gradient.
struct ConvolutionNumbers {
  explicit ConvolutionNumbers(const ConvolutionCase& given) : of(given), random(3) {
    const Window& at = of.op.window;
    const ImageShape out{(of.in.height + at.top + at.bottom - at.kernel_h) / at.stride + 1,
                         (of.in.width + at.left + at.right - at.kernel_w) / at.stride + 1,
                         of.op.channels};
    x = random_images(3, of.in, random);
    y = plain::Images(3, out);
    dy = random_images(3, out, random);
    weight.resize(static_cast<std::size_t>(of.op.channels * inner() * at.kernel_h * at.kernel_w));
    fill(weight, random);
    window = {.stride = {at.stride, at.stride},
              .before = {at.top, at.left},
              .after = {at.bottom, at.right}};
  }
  std::int32_t inner() const { return of.in.channels / of.op.groups; }
  /// The operator's weights [K, C, R, S], reordered to [K, R, S, C].
  std::vector<float> turned(const std::vector<double>& weights) const {
    plain::Images each(of.op.channels, {of.op.window.kernel_h, of.op.window.kernel_w, inner()});
    each.values = weights;
    std::vector<float> result(weights.size());
    Bench::to_channels_last(each, result);
    return result;
  }
  std::array<std::int64_t, 4> weight_shape() const {
    return {of.op.channels, inner(), of.op.window.kernel_h, of.op.window.kernel_w};
  }

  const ConvolutionCase& of;
  Random random;
  plain::Images x, y, dy;
  std::vector<double> weight;
  DnnWindow window;
};

TEST(DnnInterpreter, Convolution_EqualsPlainOperator) {
  for (const ConvolutionCase& each : kConvolutions) {
    ConvolutionNumbers n(each);
    Bench bench;
    const auto x = bench.add(n.x), w = bench.add(n.weight_shape()), y = bench.add(n.y);
    bench[w] = n.turned(n.weight);
    bench[y].assign(bench[y].size(), NAN);  // not read if beta is 0
    bench.graph.operations = {DnnConvolution{n.window, x, w, y, 0}};
    bench.run();
    plain::forward(each.op, n.x, n.weight, {}, n.y);
    expect_close(bench[y], n.y);
  }
}

TEST(DnnInterpreter, ConvolutionBackwardData_EqualsPlainOperatorAndAddsBeta) {
  for (const ConvolutionCase& each : kConvolutions) {
    ConvolutionNumbers n(each);
    plain::Images before = random_images(3, each.in, n.random);
    Bench bench;
    const auto dx = bench.add(before), w = bench.add(n.weight_shape()), dy = bench.add(n.dy);
    bench[w] = n.turned(n.weight);
    bench.graph.operations = {DnnConvolutionBackwardData{n.window, dy, w, dx, 0.5F}};
    bench.run();
    for (double& value : before.values) value *= 0.5;
    std::vector<double> ignored(n.weight.size());
    plain::backward(each.op, n.x, n.weight, n.dy, &before, ignored, {});
    expect_close(bench[dx], before);
  }
}

TEST(DnnInterpreter, ConvolutionBackwardFilter_EqualsPlainOperator) {
  for (const ConvolutionCase& each : kConvolutions) {
    ConvolutionNumbers n(each);
    Bench bench;
    const auto x = bench.add(n.x), dw = bench.add(n.weight_shape()), dy = bench.add(n.dy);
    bench.graph.operations = {DnnConvolutionBackwardFilter{n.window, x, dy, dw}};
    bench.run();
    std::vector<double> expected(n.weight.size());
    plain::backward(each.op, n.x, n.weight, n.dy, nullptr, expected, {});
    expect_close(bench[dw], n.turned(expected));
  }
}

/// A batch norm's operands, and the operator's results.
struct NormNumbers {
  NormNumbers()
      : random(5), x(random_images(3, {4, 5, 6}, random)), dy(3, x.shape), dx(3, x.shape) {
    fill(dy.values, random);
    for (std::size_t c = 0; c < 6; ++c) scale.push_back(static_cast<float>(0.5 + 0.1 * double(c)));
    moments = plain::moments_of(x);
    plain::backward(BatchNorm{}, x, moments, scale, dy, &dx, dscale, dshift);
    for (const plain::Moments& of : moments) {
      mean.push_back(of.mean);
      inverse.push_back(1 / std::sqrt(of.variance + BatchNorm{}.epsilon));
    }
  }
  Random random;
  plain::Images x, dy, dx;
  std::vector<double> scale, mean, inverse, dscale = std::vector<double>(6),
                                            dshift = std::vector<double>(6);
  std::vector<plain::Moments> moments;
};

TEST(DnnInterpreter, GenerateStatistics_GivesMeanAndVariance) {
  const NormNumbers n;
  Bench bench;
  const auto x = bench.add(n.x), sum = bench.add({1, 6, 1, 1}), squares = bench.add({1, 6, 1, 1});
  bench.graph.operations = {DnnGenerateStatistics{x, sum, squares}};
  bench.run();
  for (std::size_t c = 0; c < 6; ++c) {
    const double mean = double{bench[sum][c]} / 60;
    EXPECT_NEAR(mean, n.moments[c].mean, kClose);
    EXPECT_NEAR(double{bench[squares][c]} / 60 - mean * mean, n.moments[c].variance, kClose);
  }
}

TEST(DnnInterpreter, BatchNormBackwardWeights_FactorsGiveThePlainOperatorsGradient) {
  const NormNumbers n;
  Bench bench;
  const std::array<std::int64_t, 4> channels{1, 6, 1, 1};
  const auto x = bench.add(n.x), dy = bench.add(n.dy), mean = bench.add(channels);
  const auto inverse = bench.add(channels), scale = bench.add(channels);
  const auto dscale = bench.add(channels), dshift = bench.add(channels);
  const auto dy_factor = bench.add(channels), x_factor = bench.add(channels);
  const auto constant = bench.add(channels);
  // Compute dx = dy_factor * dy + x_factor * x + constant by operations on virtual tensors.
  const std::array<std::int64_t, 4> shape = bench.graph.tensor(x).shape;
  const auto scaled_dy = bench.add(shape, true), scaled_x = bench.add(shape, true);
  const auto sum = bench.add(shape, true), dx = bench.add(shape);
  bench[mean] = narrowed(n.mean);
  bench[inverse] = narrowed(n.inverse);
  bench[scale] = narrowed(n.scale);
  using enum PointwiseMode;
  bench.graph.operations = {DnnBatchNormBackwardWeights{x, dy, mean, inverse, scale, dscale, dshift,
                                                        dy_factor, x_factor, constant},
                            DnnPointwise{multiply, dy, dy_factor, scaled_dy},
                            DnnPointwise{multiply, x, x_factor, scaled_x},
                            DnnPointwise{add, scaled_dy, scaled_x, sum},
                            DnnPointwise{add, sum, constant, dx}};
  bench.run();
  expect_close(bench[dscale], narrowed(n.dscale));
  expect_close(bench[dshift], narrowed(n.dshift));
  expect_close(bench[dx], n.dx);
}

TEST(DnnInterpreter, Pointwise_ComputesInPlaceAndPassesGradientsWhereTheInputIsPositive) {
  Bench bench;
  const auto x = bench.add({1, 2, 1, 2}), b = bench.add({1, 2, 1, 1}), dy = bench.add({1, 2, 1, 2});
  bench[x] = {1, 2, 3, 4};
  bench[b] = {2, 4};
  bench[dy] = {5, 6, 7, 8};
  bench.graph.operations = {DnnPointwise{PointwiseMode::subtract, x, b, x}};
  bench.run();
  EXPECT_EQ(bench[x], (std::vector<float>{-1, -2, 1, 0}));
  bench.graph.operations = {DnnPointwise{PointwiseMode::relu_backward, dy, x, dy},
                            DnnPointwise{PointwiseMode::relu, x, kNoTensor, x}};
  bench.run();
  EXPECT_EQ(bench[dy], (std::vector<float>{0, 0, 7, 0}));
  EXPECT_EQ(bench[x], (std::vector<float>{0, 0, 1, 0}));
}

TEST(DnnInterpreter, Rounding_ToTheTypeOfVirtualTensorsAndOfMemory) {
  DnnGraph graph;
  const std::array<std::int64_t, 4> shape{1, 1, 1, 1};
  const auto x = graph.add({shape, DType::f32, false}), b = graph.add({shape, DType::f32, false});
  const auto middle = graph.add({shape, DType::bf16, true});
  const auto y = graph.add({shape, DType::f16, false});
  graph.operations = {DnnPointwise{PointwiseMode::add, x, b, middle},
                      DnnPointwise{PointwiseMode::add, middle, b, y}};
  alignas(16) float x_value = 1 + 0x1p-8F, b_value = 0x1p-20F;  // just over half a unit
  alignas(16) std::uint16_t y_bits = 0;
  const std::vector<std::byte*> tensors = {reinterpret_cast<std::byte*>(&x_value),
                                           reinterpret_cast<std::byte*>(&b_value), nullptr,
                                           reinterpret_cast<std::byte*>(&y_bits)};
  check(graph);
  interpret(graph, tensors);
  EXPECT_EQ(from_f16(y_bits), 1 + 0x1p-7F);
}

TEST(DnnInterpreter, Rounding_Tf32RoundsTheOperandsOfProductsOnly) {
  Bench bench;
  const auto x = bench.add({1, 1, 1, 1}), w = bench.add({1, 1, 1, 1}), y = bench.add({1, 1, 1, 1});
  bench[x] = {1 + 0x1p-11F + 0x1p-20F};
  bench[w] = {1 + 0x1p-12F};
  bench.graph.operations = {DnnConvolution{{}, x, w, y, 0}};
  bench.run(F32Products::tf32);
  EXPECT_EQ(bench[y][0], 1 + 0x1p-10F);
  bench.run();
  EXPECT_EQ(bench[y][0], static_cast<float>(double{bench[x][0]} * double{bench[w][0]}));
}

TEST(Rounding, F16_EveryValueSurvivesAndTiesGoToEven) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = from_f16(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(from_f16(to_f16(value))));
    } else {
      ASSERT_EQ(to_f16(value), half);
    }
    // Halfway to the next value rounds to the even one. Above the largest finite value comes
    // infinity.
    const float next = from_f16(static_cast<std::uint16_t>(bits + 1));
    if (!std::isfinite(value) || !std::isfinite(next) || (bits & 0x7FFFU) == 0x7FFFU) continue;
    ASSERT_EQ(to_f16(value / 2 + next / 2), bits % 2 == 0 ? bits : bits + 1);
  }
  EXPECT_EQ(to_f16(65519.F), 0x7BFF);
  EXPECT_EQ(to_f16(65520.F), 0x7C00);
  EXPECT_EQ(to_f16(0x1p-25F), 0);  // half of the smallest value
  EXPECT_EQ(to_f16(-0x1.8p-24F), 0x8002);
}

TEST(Rounding, Bf16_TiesGoToEvenAndNanStays) {
  EXPECT_EQ(from_bf16(to_bf16(1 + 0x1p-8F)), 1);
  EXPECT_EQ(from_bf16(to_bf16(1 + 0x3p-8F)), 1 + 0x1p-6F);
  EXPECT_EQ(from_bf16(to_bf16(-1 - 0x1p-8F - 0x1p-20F)), -1 - 0x1p-7F);
  EXPECT_TRUE(std::isinf(from_bf16(to_bf16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(0x7F800001U)))));
}

TEST(DnnCheck, IllFormedGraphs_AreRefused) {
  DnnGraph graph;
  const auto x = graph.add({{1, 4, 5, 5}, DType::f16, false});
  const auto w = graph.add({{8, 4, 3, 3}, DType::f16, false});
  const auto y = graph.add({{1, 8, 3, 3}, DType::f16, false});
  const auto hidden = graph.add({{1, 8, 3, 3}, DType::f16, true});
  const auto ill_formed = [&](const DnnOperation& operation) {
    graph.operations = {operation};
    EXPECT_THROW(check(graph), std::invalid_argument) << to_text(graph);
  };
  const DnnWindow around{.stride = {1, 1}, .before = {1, 1}, .after = {1, 1}};
  graph.operations = {DnnConvolution{{}, x, w, y, 0}};
  check(graph);
  ill_formed(DnnConvolution{around, x, w, y, 0});
  ill_formed(DnnConvolution{{}, x, w, kNoTensor, 0});
  ill_formed(DnnConvolution{{}, hidden, w, y, 0});
  ill_formed(DnnPointwise{PointwiseMode::add, y, x, y});
  ill_formed(DnnPointwise{PointwiseMode::add, y, hidden, y});
  ill_formed(DnnPointwise{PointwiseMode::relu, y, y, y});
  ill_formed(DnnGenerateStatistics{y, x, w});
}

TEST(DnnAccesses, TensorsThatHaveMemory_AreReadAndWrittenAsTheirOperationsDo) {
  DnnGraph graph;
  const auto x = graph.add({{1, 2, 1, 1}, DType::f16, false});
  const auto hidden = graph.add({{1, 2, 1, 1}, DType::f32, true});
  const auto y = graph.add({{1, 2, 1, 1}, DType::f32, false});
  graph.operations = {DnnPointwise{PointwiseMode::relu, x, kNoTensor, hidden},
                      DnnPointwise{PointwiseMode::add, hidden, y, y}};
  std::byte memory[2][16];
  const Accesses said = accesses_of(graph, std::vector<std::byte*>{memory[0], nullptr, memory[1]});
  EXPECT_EQ(said.reads, (std::vector<MemoryRange>{{memory[0], 4}, {memory[1], 8}}));
  EXPECT_EQ(said.writes, (std::vector<MemoryRange>{{memory[1], 8}}));
  EXPECT_EQ(said.bytes(), 20U);
}

}  // namespace
}  // namespace penstock::gpu
