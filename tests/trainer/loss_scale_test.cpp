// SPDX-License-Identifier: Apache-2.0
// Tests the automatic loss scale by scripted steps, and its copies to a device and back.
#include "trainer/loss_scale.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

#include "dataflow/host_device.h"
#include "trainer/backend.h"

namespace penstock {
namespace {

/// The scale after steps whose gradients are finite ('.') or not ('x').
LossScale behind(std::string_view steps, float count_to, LossScale scale = {}) {
  for (const char step : steps) scale = next_loss_scale(scale, step == '.', count_to);
  return scale;
}

TEST(LossScale, IsDoubledByTheStepAfterTheCountedSteps) {
  EXPECT_EQ(behind("", 3), (LossScale{128, 0}));
  EXPECT_EQ(behind("...", 3), (LossScale{128, 3}));
  EXPECT_EQ(behind("....", 3), (LossScale{256, 0}));
  EXPECT_EQ(behind("........", 3), (LossScale{512, 0}));
  EXPECT_EQ(behind("..", 1), (LossScale{256, 0}));
}

TEST(LossScale, IsHalvedByAStepThatIsNotFiniteAndCountsAnew) {
  EXPECT_EQ(behind("x", 3), (LossScale{64, 0}));
  EXPECT_EQ(behind("xxx", 3), (LossScale{16, 0}));
  EXPECT_EQ(behind("...x", 3), (LossScale{64, 0}));
  EXPECT_EQ(behind("...x...", 3), (LossScale{64, 3}));
  EXPECT_EQ(behind("...x....", 3), (LossScale{128, 0}));
  EXPECT_EQ(behind("....x", 3), (LossScale{128, 0}));
}

TEST(LossScale, NeverBecomesZeroOrInfinite) {
  EXPECT_EQ(behind(std::string(500, 'x'), 3).scale, kLeastLossScale);
  EXPECT_EQ(behind(std::string(500, '.'), 1).scale, kMostLossScale);
  EXPECT_EQ(behind("x", 3, {kMostLossScale, 0}).scale, kMostLossScale / 2);
}

TEST(LossScale, CountsAsFarAsItMay) {
  const LossScale counted = behind("..", kMostCountedSteps, {128, kMostCountedSteps - 1});
  EXPECT_EQ(counted, (LossScale{256, 0}));
}

TEST(LossScale, IsATensorOfTwoFloatsOnItsDevice) {
  SteadyClock clock;
  HostDevice device(clock);
  std::array<float, 3> memory{1, 2, 3};
  const Tensor tensor{memory.data(), 2, DType::f32};
  EXPECT_EQ(read_loss_scale(tensor, device), (LossScale{1, 2}));
  write_loss_scale({64, 9}, tensor, device);
  EXPECT_EQ(memory, (std::array<float, 3>{64, 9, 3}));
}

}  // namespace
}  // namespace penstock
