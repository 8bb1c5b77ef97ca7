// SPDX-License-Identifier: Apache-2.0
// Tests each kernel by the table of cases: against the formula of its results, and against its list
// of accesses. Numbers at the limits (infinite, vanishing, negative where none should be) have
// tests of their own.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/gpu/accesses.h"
#include "tests/support/gpu/host_launch.h"
#include "tests/support/gpu/kernel_case.h"
#include "trainer/backends/gpu/kernels/element.h"

namespace penstock::gpu {
namespace {

/// The cases of one kernel that are small enough.
std::vector<NamedCase> cases_of(std::string_view kernel, std::size_t most) {
  std::vector<NamedCase> cases = kernel_cases();
  std::erase_if(cases, [&](const NamedCase& one) {
    return one.elements > most || one.name.substr(0, one.name.find_first_of(" _")) != kernel;
  });
  return cases;
}

class Kernel : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Kernel, testing::ValuesIn(kernel_names()),
                         [](const auto& test) { return test.param; });

TEST_P(Kernel, GivesTheResultsOfItsFormulaInAnyOrderOfBlocksAndThreads) {
  const std::vector<NamedCase> cases = cases_of(GetParam(), kLargeCase);
  ASSERT_FALSE(cases.empty());
  for (const NamedCase& named : cases) {
    const KernelCase one = named.made();
    EXPECT_EQ(one.failure(one.run_on_host()), "") << named.name;
  }
}

/// For each byte of an operand: whether one of the ranges holds it.
std::vector<bool> held_by(const std::vector<MemoryRange>& ranges, const Bytes& operand) {
  std::vector<bool> held(operand.size());
  for (const MemoryRange& range : ranges) {
    if (range.begin < operand.data() || range.begin > operand.data() + operand.size()) continue;
    const auto first = static_cast<std::size_t>(range.begin - operand.data());
    EXPECT_LE(first + range.bytes, operand.size());
    std::fill_n(held.begin() + static_cast<std::ptrdiff_t>(first),
                std::min(range.bytes, operand.size() - first), true);
  }
  return held;
}

/// The kernel changes only memory in its write list, and only memory in its read list affects what
/// it writes: operands that are NaN elsewhere give the same results.
void expect_accesses(const KernelCase& one) {
  const Accesses said = accesses_of(one.call);
  std::vector<std::vector<bool>> read, written;
  for (const KernelCase::Operand& operand : one.operands()) {
    read.push_back(held_by(said.reads, operand.before));
    written.push_back(held_by(said.writes, operand.before));
  }
  const std::vector<Bytes> before = one.before();
  std::vector<Bytes> poisoned = before;
  for (std::size_t k = 0; k < read.size(); ++k) {
    for (std::size_t i = 0; i < read[k].size(); ++i) {
      if (!read[k][i]) poisoned[k][i] = std::byte{0xff};
    }
  }
  const std::vector<Bytes> first = one.run_on_host(), second = one.run_on_host(poisoned);
  for (std::size_t k = 0; k < read.size(); ++k) {
    for (std::size_t i = 0; i < read[k].size(); ++i) {
      if (first[k][i] == before[k][i] && second[k][i] == poisoned[k][i]) continue;
      ASSERT_TRUE(written[k][i]) << "byte " << i << " of operand " << k << " is written";
      ASSERT_EQ(first[k][i], second[k][i])
          << "byte " << i << " of operand " << k << " depends on more than is read";
    }
  }
}

TEST_P(Kernel, AccessesWhatItsListsSay) {
  const std::vector<NamedCase> cases = cases_of(GetParam(), 25'000);
  ASSERT_FALSE(cases.empty());
  for (const NamedCase& named : cases) {
    if (named.elements > 5000 && named.type != DType::f32) continue;
    SCOPED_TRACE(named.name);
    expect_accesses(named.made());
  }
}

TEST(ScaleShiftKernel, MaskIsOfWhatIsStored) {
  std::vector<F16> x(16), y(16);
  for (std::size_t i = 0; i < 16; ++i) x[i] = from_float<F16>(i < 8 ? 1 : 2);
  const std::vector<float> multiplier(8, 0x1p-25F);  // half of the smallest f16
  std::uint8_t mask[2] = {};
  launch_on_host(ScaleShift{.x = x.data(),
                            .multiplier = multiplier.data(),
                            .y = y.data(),
                            .mask = mask,
                            .type = DType::f16,
                            .rows = 2,
                            .channels = 8});
  EXPECT_EQ(y[0].bits, 0);
  EXPECT_EQ(to_float(y[8]), 0x1p-24F);
  EXPECT_EQ(mask[0], 0);
  EXPECT_EQ(mask[1], 0xff);
}

TEST(ScaleShiftKernel, WhatIsNotANumberPassesTheRelu) {
  for (const std::int32_t channels : {5, 8}) {
    const std::vector<float> x(8, NAN);
    std::vector<float> y(8);
    launch_on_host(
        ScaleShift{.x = x.data(), .y = y.data(), .relu = true, .rows = 1, .channels = channels});
    EXPECT_TRUE(std::isnan(y[0]));
  }
}

TEST(BatchNormKernel, AVarianceBelowZeroCountsAsZero) {
  const float partial[2] = {8, 15};  // of four rows: mean 2, and squares below 4 * 2^2
  const float scale = 1, shift = 0;
  float mean = 0, inverse = 0, multiplier = 0, addend = 0;
  launch_on_host(BatchNormFinish{.partial = partial,
                                 .blocks = 1,
                                 .rows = 4,
                                 .channels = 1,
                                 .scale = &scale,
                                 .shift = &shift,
                                 .epsilon = 1e-5F,
                                 .mean = &mean,
                                 .inverse_deviation = &inverse,
                                 .multiplier = &multiplier,
                                 .addend = &addend});
  EXPECT_NEAR(inverse, 1 / std::sqrt(double{1e-5F}), 1e-4);
}

TEST(BatchNormKernel, SumBlocksFitTheDeviceAndLeaveNoneEmpty) {
  EXPECT_EQ(sum_blocks(256 * 56 * 56, 64), 396);
  EXPECT_EQ(sum_blocks(256 * 7 * 7, 2048), 49);
  EXPECT_EQ(sum_blocks(1, 1), 1);
  for (const MatrixShape& shape : kMatrixShapes) {
    EXPECT_GE(sum_blocks(shape.rows, shape.channels), 1);
    EXPECT_LE(sum_blocks(shape.rows, shape.channels), shape.rows);
  }
}

TEST(MaxPoolKernel, WindowsOfMinusInfinityHaveAWinnerAndWindowsWithNanShowIt) {
  const PoolShape shape{1, 2, 2, 8, 1, 1, {3, 3, 1, 1, 1, 0, 0}};
  std::vector<float> x(32, -INFINITY), y(8);
  x[8] = NAN;  // channel 0 of the second pixel
  x[16] = 5;   // channel 0 of the third pixel
  std::vector<std::uint8_t> index(8, 0xff);
  launch_on_host(MaxPoolForward{x.data(), y.data(), index.data(), shape, DType::f32});
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(index[0], 5);
  for (std::size_t c = 1; c < 8; ++c) {
    EXPECT_EQ(y[c], -INFINITY);
    EXPECT_EQ(index[c], 4);  // after a row and a column of padding
  }
}

TEST(MaxPoolKernel, NeedsNoIndex) {
  const PoolShape shape{1, 2, 2, 1, 1, 1, {2, 2, 2}};
  const float x[4] = {1, 3, 2, 0};
  float y = 0;
  launch_on_host(MaxPoolForward{x, &y, nullptr, shape, DType::f32});
  EXPECT_EQ(y, 3);
}

/// The loss and the count of one image in three classes.
struct Loss {
  float loss;
  std::int32_t above;
};
Loss loss_of(const std::vector<float>& logits) {
  const std::int32_t label = 1;
  const StepScalars scalars{.valid = 1};
  Loss found{};
  launch_on_host(SoftmaxCrossEntropy{.logits = logits.data(),
                                     .labels = &label,
                                     .loss = &found.loss,
                                     .above = &found.above,
                                     .scalars = &scalars,
                                     .images = 1,
                                     .classes = static_cast<std::int32_t>(logits.size())});
  return found;
}

TEST(LossKernel, NeedsNoGradientAndNoSmallLogits) {
  const Loss found = loss_of({1e30F, 1e30F, 1e30F});
  EXPECT_NEAR(found.loss, std::log(3.), 1e-6);
  EXPECT_EQ(found.above, 0);
}

TEST(LossKernel, InfiniteLogitsMakeALossThatIsNotFinite) {
  EXPECT_FALSE(std::isfinite(loss_of({0, 1, INFINITY}).loss));
}

TEST(SummaryKernel, ForwardAloneHasNoLoss) {
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

TEST(SummaryKernel, ALossThatIsNotFiniteStaysSoAfterTheUpdate) {
  const StepScalars scalars{.valid = 2};
  const float loss[2] = {1, INFINITY}, squares = 0;
  const std::int32_t above[2] = {};
  StepResult result;
  launch_on_host(SummariseStep{loss, above, 2, &scalars, &result});
  EXPECT_FALSE(result.finite);
  launch_on_host(SummariseUpdate{&squares, 1, nullptr, &scalars, &result});
  EXPECT_FALSE(result.finite);
}

}  // namespace
}  // namespace penstock::gpu
