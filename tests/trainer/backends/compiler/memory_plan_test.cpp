// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/compiler/memory_plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "dataflow/random.h"

namespace penstock::compiler {
namespace {

/// Expects that tensors with overlapping lifetimes share no byte, and that all are inside the
/// block.
void expect_sound(const std::vector<Lifetime>& tensors, std::size_t size) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Lifetime& a = tensors[i];
    EXPECT_EQ(a.offset % kPlanAlignment, 0U);
    EXPECT_LE(a.offset + a.bytes, size);
    for (std::size_t j = 0; j < i; ++j) {
      const Lifetime& b = tensors[j];
      const bool together = a.first <= b.last && b.first <= a.last;
      const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
      EXPECT_TRUE(!together || apart) << i << " and " << j;
    }
  }
}

TEST(MemoryPlan, TensorsThatTakeTurnsShareMemory) {
  std::vector<Lifetime> tensors{{1000, 0, 1}, {500, 2, 3}, {700, 2, 2}, {64, 3, 3}};
  const std::size_t size = plan_memory(tensors);
  expect_sound(tensors, size);
  EXPECT_EQ(size, 768U + 512U);  // the second and the third at once, each rounded up to 256
  EXPECT_EQ(peak_of(tensors), size);
}

TEST(MemoryPlan, RandomLifetimesNeverCollideAndStayNearThePeak) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    std::vector<Lifetime> tensors;
    for (int i = 0; i < 120; ++i) {
      const auto first = static_cast<std::int32_t>(random.below(100));
      const auto length = static_cast<std::int32_t>(random.below(i % 3 == 0 ? 100 : 5));
      tensors.push_back({random.below(1 << 20), first, first + length});
    }
    const std::size_t size = plan_memory(tensors);
    expect_sound(tensors, size);
    EXPECT_GE(size, peak_of(tensors));
    EXPECT_LE(static_cast<double>(size), 1.25 * static_cast<double>(peak_of(tensors)));
  }
}

TEST(MemoryPlan, NothingTakesNoMemory) {
  std::vector<Lifetime> tensors{{0, 0, 5}, {0, 1, 2}};
  EXPECT_EQ(plan_memory(tensors), 0U);
  EXPECT_EQ(plan_memory({}), 0U);
}

/// Workspaces do not grow linearly, so that the first guess is too large.
TEST(BatchThatFits, IsCorrectedByItsOwnPlan) {
  const auto planned = [](std::int32_t images) {
    return static_cast<std::size_t>(images) * 10 + (images > 4 ? 30 : 0);
  };
  const PlannedBatch known{20, planned(20)};
  const std::int32_t fitting = find_batch_that_fits(known, 20, 100, planned);
  EXPECT_LE(planned(fitting), 100U);
  EXPECT_GT(planned(fitting + 2), 100U);
  EXPECT_EQ(find_batch_that_fits(known, 3, 1000, planned), 2) << "fewer than the limit";
  EXPECT_EQ(find_batch_that_fits(known, 20, 9, planned), 0);
}

}  // namespace
}  // namespace penstock::compiler
