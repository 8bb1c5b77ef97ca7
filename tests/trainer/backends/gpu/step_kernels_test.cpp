// SPDX-License-Identifier: Apache-2.0
// Tests the kernels of the loss, and of a step's inputs and results.
#include "tests/trainer/backends/gpu/kernel_data.h"

namespace penstock::gpu {
namespace {

TEST(GpuStep, ScalarsAreSet) {
  StepScalars scalars;
  const Hyper hyper{.learning_rate = 0.25F, .weight_decay = 3, .gradient_clip = 2, .step = 77};
  launch_on_host(
      SetStep{.scalars = &scalars, .step = std::int64_t{1} << 40, .valid = 9, .loss_scale = 128});
  launch_on_host(SetHyper{&scalars, hyper});
  EXPECT_EQ(scalars.step, std::int64_t{1} << 40);
  EXPECT_EQ(scalars.valid, 9);
  EXPECT_EQ(scalars.loss_scale, 128);
  launch_on_host(SetStep{.scalars = &scalars, .step = 5, .valid = 2, .loss_scale = 0});
  EXPECT_EQ(scalars.step, 5);
  EXPECT_EQ(scalars.loss_scale, 128) << "stays";
  EXPECT_EQ(scalars.hyper.learning_rate, 0.25F);
  EXPECT_EQ(scalars.hyper.weight_decay, 3);
  EXPECT_EQ(scalars.hyper.gradient_clip, 2);
  EXPECT_EQ(scalars.hyper.step, 77);
}

/// Logits of a few images, and the expected loss.
struct Logits {
  Logits(DType type, std::int32_t images, std::int32_t count, std::int32_t counted)
      : classes(index_of(count)),
        scalars{.valid = counted, .loss_scale = 64},
        dlogits(type, index_of(images) * classes),
        loss(index_of(images)),
        above(index_of(images), -1) {
    Random random(1);
    values.push_back(Elements::random(type, index_of(images) * classes, random, -20, 20));
    for (std::int32_t n = 0; n < images; ++n) {
      labels.push_back(static_cast<std::int32_t>(random.below(classes)));
    }
  }
  SoftmaxCrossEntropy call() {
    return {.logits = values[0].data(),
            .labels = labels.data(),
            .dlogits = dlogits.data(),
            .loss = loss.floats(),
            .above = above.data(),
            .scalars = &scalars,
            .type = values[0].type(),
            .images = static_cast<std::int32_t>(labels.size()),
            .classes = static_cast<std::int32_t>(classes)};
  }

  std::size_t classes;
  StepScalars scalars;
  std::vector<Elements> values;
  std::vector<std::int32_t> labels;
  Elements dlogits;
  Floats loss;
  std::vector<std::int32_t> above;
};

/// For image n: expf of float differences up to 40 has the error of 40 roundings, sums that of a
/// few more.
void expect_loss(const Logits& l, std::size_t n) {
  const Elements& logits = l.values[0];
  const std::size_t first = n * l.classes;
  const double own = logits[first + index_of(l.labels[n])];
  double largest = own, sum = 0;
  std::int32_t above = 0;
  for (std::size_t c = 0; c < l.classes; ++c) {
    largest = std::max(largest, logits[first + c]);
    above += logits[first + c] > own ? 1 : 0;
  }
  for (std::size_t c = 0; c < l.classes; ++c) sum += std::exp(logits[first + c] - largest);
  EXPECT_NEAR(l.loss[n], std::log(sum) + largest - own, 64 * 0x1p-24 * (1 + largest - own));
  EXPECT_EQ(l.above[n], above);
  for (std::size_t c = 0; c < l.classes; ++c) {
    const double share = std::exp(logits[first + c] - largest) / sum;
    const double factor = 64. / l.scalars.valid;
    const double expected = (share - (c == index_of(l.labels[n]) ? 1 : 0)) * factor;
    ASSERT_NEAR(l.dlogits[first + c], expected,
                tolerance(logits.type(), expected, share * factor, 64));
  }
}

TEST(GpuLoss, IsSoftmaxCrossEntropyOfValidImages) {
  for (const DType type : kTypes) {
    for (const std::int32_t classes : {1, 7, 256, 1001}) {
      Logits l(type, 6, classes, 4);
      launch_on_host(l.call());
      for (std::size_t n = 0; n < 4; ++n) expect_loss(l, n);
      for (std::size_t n = 4; n < 6; ++n) {
        EXPECT_EQ(l.loss[n], 0);
        EXPECT_EQ(l.above[n], classes);
        for (std::size_t c = 0; c < l.classes; ++c) ASSERT_EQ(l.dlogits[n * l.classes + c], 0);
      }
      Logits again(type, 6, classes, 4);
      launch_on_host(again.call());
      EXPECT_TRUE(again.loss.same_bits(l.loss) && again.dlogits.same_bits(l.dlogits));
    }
  }
}

TEST(GpuLoss, NeedsNoGradientAndNoSmallLogits) {
  Logits l(DType::f32, 1, 3, 1);
  for (std::size_t c = 0; c < 3; ++c) l.values[0].set(c, 1e30);
  SoftmaxCrossEntropy call = l.call();
  call.dlogits = nullptr;
  launch_on_host(call);
  EXPECT_NEAR(l.loss[0], std::log(3.), 1e-6);
  EXPECT_EQ(l.above[0], 0);
  EXPECT_TRUE(std::isnan(l.dlogits[0]));  // unchanged
}

TEST(GpuLoss, InfiniteLogitsMakeALossThatIsNotFinite) {
  Logits l(DType::f16, 1, 30, 1);
  l.values[0].set(5, 1e6);
  launch_on_host(l.call());
  EXPECT_FALSE(std::isfinite(l.loss[0]));
}

TEST(GpuSummary, CountsValidImages) {
  constexpr std::int32_t kImages = 700, kValid = 601;
  Random random(2);
  Floats loss = random_floats(kImages, random, 0, 9);
  std::vector<std::int32_t> above;
  double sum = 0;
  std::int32_t top1 = 0, top5 = 0;
  for (std::size_t n = 0; n < kImages; ++n) {
    above.push_back(static_cast<std::int32_t>(random.below(9)));
    if (n >= kValid) continue;
    sum += loss[n];
    top1 += above[n] < 1 ? 1 : 0;
    top5 += above[n] < 5 ? 1 : 0;
  }
  const StepScalars scalars{.valid = kValid};
  StepResult result{.l2_loss = 5, .finite = false};
  const SummariseStep call{loss.floats(), above.data(), kImages, &scalars, &result};
  launch_on_host(call);
  EXPECT_NEAR(result.loss, sum / kValid, 1e-6 * sum / kValid);
  EXPECT_EQ(result.l2_loss, 0);
  EXPECT_EQ(result.top1, top1);
  EXPECT_EQ(result.top5, top5);
  EXPECT_EQ(result.images, kValid);
  EXPECT_TRUE(result.finite);
  loss.set(kValid - 1, std::numeric_limits<double>::infinity());
  launch_on_host(call);
  EXPECT_FALSE(result.finite);
}

TEST(GpuSummary, ForwardAloneHasNoLoss) {
  const StepScalars scalars{.valid = 3};
  StepResult result{.loss = 5, .l2_loss = 5, .top1 = 5, .top5 = 5, .finite = false};
  launch_on_host(SummariseStep{nullptr, nullptr, 4, &scalars, &result});
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(result.l2_loss, 0);
  EXPECT_EQ(result.top1, 0);
  EXPECT_EQ(result.top5, 0);
  EXPECT_EQ(result.images, 3);
  EXPECT_TRUE(result.finite);
}

TEST(GpuSummary, UpdatesAddTheDecaysShareAndWhetherGradientsWereFinite) {
  Random random(3);
  Floats squares = random_floats(1000, random, 0, 5);
  double sum = 0;
  for (std::size_t i = 0; i < 1000; ++i) sum += squares[i];
  const StepScalars scalars{.hyper = {.weight_decay = 0.01F}};
  std::vector<std::int32_t> finite(kFiniteBlocks, 1);
  StepResult result{.loss = 7};
  SummariseUpdate call{squares.floats(), 1000, finite.data(), &scalars, &result};
  launch_on_host(call);
  EXPECT_NEAR(result.l2_loss, 0.005 * sum, 1e-6 * sum);
  EXPECT_TRUE(result.finite);
  finite.back() = 0;
  launch_on_host(call);
  EXPECT_FALSE(result.finite);
  call.finite = nullptr;
  launch_on_host(call);
  EXPECT_FALSE(result.finite) << "what the loss said stays";
  EXPECT_EQ(result.loss, 7);
}

TEST(GpuStep, TheLossScaleFollowsItsRule) {
  std::vector<std::int32_t> finite(kFiniteBlocks, 1);
  StepScalars scalars{.step = 3, .valid = 2, .loss_scale = 64, .hyper = {.learning_rate = 2}};
  LossScale expected{64, 0};
  for (const char step : std::string_view("....x..xx...x")) {
    finite[77] = step == '.' ? 1 : 0;
    launch_on_host(AdaptLossScale{finite.data(), 2, &scalars});
    expected = next_loss_scale(expected, step == '.', 2);
    EXPECT_EQ((LossScale{scalars.loss_scale, scalars.good_steps}), expected);
  }
  EXPECT_EQ(expected.scale, 16);
  EXPECT_EQ(scalars.step, 3);
  EXPECT_EQ(scalars.hyper.learning_rate, 2);
}

}  // namespace
}  // namespace penstock::gpu
