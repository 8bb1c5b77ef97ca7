// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/host_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace penstock::gpu {
namespace {

constexpr std::int32_t kThreads = 64;

/// Runs `phase` on every thread of a block; in order if there is no seed.
template <class Phase>
void run_phase(std::uint64_t seed, const Phase& phase) {
  alignas(16) std::array<std::byte, HostBlock::kSharedBytes> memory;
  Random random(seed);
  HostBlock block({.threads = kThreads}, 0, 0, memory, seed == 0 ? nullptr : &random);
  block.for_each_thread(phase);
}

std::vector<std::int32_t> order_of(std::uint64_t seed) {
  std::vector<std::int32_t> order;
  run_phase(seed, [&](std::int32_t thread) { order.push_back(thread); });
  return order;
}

TEST(HostBlock, RunsEachThreadOnceInOrderOrShuffled) {
  std::vector<std::int32_t> ascending(kThreads);
  std::iota(ascending.begin(), ascending.end(), 0);
  EXPECT_EQ(order_of(0), ascending);
  std::vector<std::int32_t> shuffled = order_of(1);
  EXPECT_NE(shuffled, ascending);
  EXPECT_EQ(shuffled, order_of(1)) << "the same seed";
  EXPECT_NE(shuffled, order_of(2));
  std::ranges::sort(shuffled);
  EXPECT_EQ(shuffled, ascending);
}

TEST(HostBlock, APhaseThatReadsWhatAnotherThreadWritesShowsWhenItIsShuffled) {
  const auto racing = [](std::uint64_t seed) {
    std::array<std::int32_t, kThreads + 1> values{};
    run_phase(seed, [&](std::int32_t thread) {
      const auto at = static_cast<std::size_t>(thread);
      values[at + 1] = values[at] + 1;
    });
    return values;
  };
  EXPECT_NE(racing(0), racing(1));
}

}  // namespace
}  // namespace penstock::gpu
