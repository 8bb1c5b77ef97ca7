// SPDX-License-Identifier: Apache-2.0
// Tests the reference itself: against finite differences, and against values computed by hand.
#include "tests/support/plain_net.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "dataflow/random.h"
#include "tests/support/plain_operators.h"
#include "tests/support/small_graphs.h"
#include "trainer/dropout.h"

namespace penstock {
namespace {

using plain::Images;

class PlainNetGradients : public ::testing::TestWithParam<SmallGraph> {};

/// Central differences with a step of h have an error of h^2 times the third derivative, plus the
/// rounding error of the losses, 2^-53 / h. Both are near 1e-11 for h = 1e-5. A tensor's largest
/// gradient is of the order of 1.
TEST_P(PlainNetGradients, AreTheFiniteDifferencesOfTheLoss) {
  constexpr double kStep = 1e-5, kTolerance = 2e-8;
  const SmallGraph& small = GetParam();
  PlainWeights weights = uneven_weights(small.graph, 3);
  const PlainBatch batch =
      random_batch(small.graph.input_shape(), small.images, small.classes(), 4);
  const PlainRun run{.step = 5};
  const PlainStep step = run_plain(small.graph, weights, batch, run);
  const std::vector<ParameterSpec> specs = small.graph.parameters();
  Random random(6);
  for (std::size_t tensor = 0; tensor < specs.size(); ++tensor) {
    std::vector<double>& values = weights.parameters[tensor];
    ASSERT_EQ(step.gradients[tensor].size(), values.size());
    // All elements of short tensors, some elements of long ones.
    const std::size_t stride = values.size() / 40 + 1;
    for (std::size_t i = random.below(stride); i < values.size(); i += stride) {
      const double value = values[i];
      values[i] = value + kStep;
      const double above = run_plain(small.graph, weights, batch, run).loss;
      values[i] = value - kStep;
      const double below = run_plain(small.graph, weights, batch, run).loss;
      values[i] = value;
      EXPECT_NEAR(step.gradients[tensor][i], (above - below) / (2 * kStep), kTolerance)
          << specs[tensor].name << "[" << i << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlainNetGradients, ::testing::ValuesIn(small_graphs()),
                         [](const auto& test) { return test.param.name; });

Images images(const ImageShape& shape, std::vector<double> values) {
  Images made(static_cast<std::int32_t>(values.size() / shape.elements()), shape);
  made.values = std::move(values);
  return made;
}

TEST(PlainNet, ConvolutionCorrelatesAndPadsWithZeros) {
  const Conv2d op{1, {2, 2, 2, 1, 0, 0, 1}, 1, true};
  const Images x = images({3, 3, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  Images y(1, {2, 2, 1});
  const std::vector<double> weight{1, 10, 100, 1000}, bias{0.5};
  plain::forward(op, x, weight, bias, y);
  // Windows begin at rows -1 and 1 and at columns 0 and 2; row -1 and column 3 are zeros.
  EXPECT_EQ(y.values, (std::vector<double>{2100.5, 300.5, 4 + 50 + 700 + 8000 + .5, 906.5}));
}

TEST(PlainNet, GroupsSeeOnlyTheirChannels) {
  const Conv2d op{2, {}, 2};
  const Images x = images({1, 1, 4}, {1, 2, 3, 4});
  Images y(1, {1, 1, 2});
  plain::forward(op, x, std::vector<double>{1, 10, 1, 10}, {}, y);
  EXPECT_EQ(y.values, (std::vector<double>{21, 43}));
}

TEST(PlainNet, PaddingNeverWinsAMaximumAndCountsInAMeanWhenAsked) {
  const Window window{2, 2, 1, 1, 1, 0, 0};
  const Images x = images({2, 2, 1}, {-1, -2, -3, -8});
  Images y(1, {2, 2, 1});
  plain::forward(MaxPool{window}, x, y);
  EXPECT_EQ(y.values, (std::vector<double>{-1, -1, -1, -1}));
  Images counted(1, {2, 2, 1}), inside(1, {2, 2, 1});
  plain::forward(AvgPool{window, true}, x, counted);
  EXPECT_EQ(counted.values, (std::vector<double>{-.25, -.75, -1, -3.5}));
  plain::forward(AvgPool{window, false}, x, inside);
  EXPECT_EQ(inside.values, (std::vector<double>{-1, -1.5, -2, -3.5}));
}

TEST(PlainNet, TheFirstOfEqualElementsGetsTheMaximumsGradient) {
  const Images x = images({2, 2, 1}, {3, 7, 7, 7});
  Images dx(1, {2, 2, 1});
  plain::backward(MaxPool{{2, 2, 1}}, x, images({1, 1, 1}, {5}), &dx);
  EXPECT_EQ(dx.values, (std::vector<double>{0, 5, 0, 0}));
}

TEST(PlainNet, ResponsesAreNormalisedAcrossNeighbouringChannels) {
  const Lrn op{3, 6, 0.5F, 2};
  const Images x = images({1, 1, 4}, {1, 2, 3, 4});
  Images y(1, {1, 1, 4});
  plain::forward(op, x, y);
  // alpha / size is 2: the denominators are 2 + 2 * (1+4), (1+4+9), (4+9+16), (9+16).
  const double expected[] = {1 / std::sqrt(12.), 2 / std::sqrt(30.), 3 / std::sqrt(60.),
                             4 / std::sqrt(52.)};
  for (std::size_t c = 0; c < 4; ++c) EXPECT_NEAR(y.values[c], expected[c], 1e-15) << c;
}

TEST(PlainNet, BatchNormKeepsTheUnbiasedVarianceAndUsesTheBiasedOne) {
  const BatchNorm op{0, 0.25F};
  const Images x = images({1, 2, 1}, {1, 3, 5, 7});
  const std::vector<plain::Moments> moments = plain::moments_of(x);
  EXPECT_EQ(moments[0].mean, 4);
  EXPECT_EQ(moments[0].variance, 5);
  std::vector<double> mean{8}, variance{2};
  plain::update_running(op, x, moments, mean, variance);
  EXPECT_EQ(mean[0], 0.75 * 8 + 0.25 * 4);
  EXPECT_NEAR(variance[0], 0.75 * 2 + 0.25 * 20 / 3, 1e-15);
  Images y(2, {1, 2, 1});
  plain::forward(op, x, moments, std::vector<double>{2}, std::vector<double>{10}, y);
  EXPECT_NEAR(y.values[0], 10 - 3 * 2 / std::sqrt(5.), 1e-15);
}

TEST(PlainNet, OneElementAloneHasNoVariance) {
  std::vector<double> mean{0}, variance{1};
  const Images x = images({1, 1, 1}, {3});
  plain::update_running(BatchNorm{0, 0.5F}, x, plain::moments_of(x), mean, variance);
  EXPECT_EQ(variance[0], 0.5);
}

TEST(PlainNet, DropoutKeepsTheMeanAndDropsItsShare) {
  const Dropout op{0.25F};
  Images x(8, {25, 25, 4}), y = x;
  std::fill(x.values.begin(), x.values.end(), 3.);
  plain::forward(op, DropoutMask(1, 2, 3, op.rate), x, y);
  const auto dropped = std::count(y.values.begin(), y.values.end(), 0.);
  EXPECT_EQ(dropped + std::count(y.values.begin(), y.values.end(), 4.),
            static_cast<std::ptrdiff_t>(y.values.size()));
  // 20,000 elements: 0.25 with a standard deviation of 0.003.
  EXPECT_NEAR(static_cast<double>(dropped) / static_cast<double>(y.values.size()), 0.25, 0.01);
}

TEST(PlainNet, DropoutDependsOnSeedAndStepAndRestsOutsideTraining) {
  Graph graph({3, 5, 3});
  const NodeId dropped = graph.add("dropped", Dropout{0.5F}, {Graph::kInput});
  graph.add("logits", Linear{4}, {dropped});
  const PlainWeights weights = plain_initial_weights(graph, 1);
  const PlainBatch batch = random_batch(graph.input_shape(), 2, 4, 2);
  const auto logits = [&](Phase phase, std::uint64_t seed, std::int64_t step) {
    return run_plain(graph, weights, batch, {.phase = phase, .seed = seed, .step = step}).logits;
  };
  EXPECT_EQ(logits(Phase::train, 1, 7), logits(Phase::train, 1, 7));
  EXPECT_NE(logits(Phase::train, 1, 7), logits(Phase::train, 1, 8));
  EXPECT_NE(logits(Phase::train, 1, 7), logits(Phase::train, 2, 7));
  EXPECT_EQ(logits(Phase::evaluate, 1, 7), logits(Phase::evaluate, 2, 8));
  EXPECT_EQ(logits(Phase::evaluate, 1, 7), logits(Phase::forward_only, 1, 7));
}

/// Logits that equal the biases for any image.
struct FixedLogits {
  Graph graph{{1, 1, 1}};
  PlainWeights weights;
  explicit FixedLogits(const std::vector<double>& logits) {
    graph.add("logits", Linear{static_cast<std::int32_t>(logits.size())}, {Graph::kInput});
    weights.parameters = {std::vector<double>(logits.size()), logits};
  }
  PlainStep run(std::vector<std::int32_t> labels, std::int32_t valid) const {
    const PlainBatch batch{std::vector<std::uint8_t>(labels.size()), std::move(labels), valid};
    return run_plain(graph, weights, batch, {});
  }
};

TEST(PlainNet, TiesCountForTheLabel) {
  const FixedLogits net({1, 1, 1, 1, 1, 1, 2});
  // Label 0 is second together with five others. Only one logit is greater, so it is among the
  // first 5.
  const PlainStep step = net.run({0, 6}, 2);
  EXPECT_EQ(step.top1, 1);
  EXPECT_EQ(step.top5, 2);
  const PlainStep last = FixedLogits({0, 1, 2, 3, 4, 5}).run({0, 1}, 2);
  EXPECT_EQ(last.top1, 0);
  EXPECT_EQ(last.top5, 1);
}

TEST(PlainNet, LossIsTheMeanCrossEntropyOfTheValidImages) {
  const FixedLogits net({0, std::log(3.)});
  EXPECT_NEAR(net.run({0, 1}, 2).loss, (std::log(4.) + std::log(4. / 3)) / 2, 1e-15);
  const PlainStep step = net.run({0, 1}, 1);
  EXPECT_NEAR(step.loss, std::log(4.), 1e-15);
  EXPECT_NEAR(step.gradients[1][0], 0.25 - 1, 1e-15);
  EXPECT_NEAR(step.gradients[1][1], 0.75, 1e-15);
}

TEST(PlainNet, PixelsAreNormalisedByChannel) {
  Graph graph({1, 2, 3});
  graph.add("picked", Conv2d{3, {}}, {Graph::kInput});
  PlainWeights weights;
  weights.parameters = {{1, 0, 0, 0, 1, 0, 0, 0, 1}};
  const PlainBatch batch{{255, 0, 0, 0, 255, 0}, {0}, 1};
  const PlainStep step = run_plain(graph, weights, batch, {.phase = Phase::forward_only});
  const double expected[] = {(255 - 123.675) / 58.395, -123.675 / 58.395, -116.28 / 57.12,
                             (255 - 116.28) / 57.12,   -103.53 / 57.375,  -103.53 / 57.375};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(step.logits[i], expected[i], 1e-6) << i;
}

}  // namespace
}  // namespace penstock
