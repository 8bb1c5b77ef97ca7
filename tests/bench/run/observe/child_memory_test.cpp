// SPDX-License-Identifier: Apache-2.0
// The memory of child processes over a window, and when it is worth a warning.
#include <gtest/gtest.h>

#include "bench/run/observe/child_memory.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr std::uint64_t kMb = 1'000'000;
using Facts = std::map<std::string, double>;

TEST(ChildMemory, HasTheSumTheMeanOfWorkersAndTheGrowthAMinute) {
  const MemoryOfProcesses before{
      {1, {100 * kMb, false}}, {2, {200 * kMb, true}}, {3, {220 * kMb, true}}};
  // Process 4 is new, and 3 has ended: neither is growth.
  const MemoryOfProcesses after{
      {1, {101 * kMb, false}}, {2, {205 * kMb, true}}, {4, {95 * kMb, true}}};
  Facts facts;
  EXPECT_EQ(add_child_memory(before, after, 30, 1e12, facts), "");
  EXPECT_EQ(facts, (Facts{{"child_processes", 3},
                          {"child_memory_bytes", 401e6},
                          {"child_growth_bytes_per_min", 12e6},
                          {"worker_processes", 2},
                          {"worker_memory_bytes", 150e6},
                          {"worker_growth_bytes_per_min", 10e6}}));
}

TEST(ChildMemory, WarnsIfItFillsTheRestWithinTwoHours) {
  const auto warning = [](double grown_mb, double room_mb) {
    const auto bytes = static_cast<std::uint64_t>(grown_mb * 1e6);
    Facts facts;
    return add_child_memory({{1, {kMb, false}}}, {{1, {kMb + bytes, false}}}, 60, room_mb * 1e6,
                            facts);
  };
  EXPECT_TRUE(says(warning(100, 5000), "grow by 100 MB a minute"));
  EXPECT_TRUE(says(warning(100, 5000), "in 50 min"));
  EXPECT_EQ(warning(100, 12500), "") << "in 125 min";
  EXPECT_EQ(warning(10, 50), "") << "so little says nothing";
}

TEST(ChildMemory, NoGrowthIsKnownFromAShortWindow) {
  Facts facts;
  EXPECT_EQ(add_child_memory({{1, {kMb, true}}}, {{1, {9 * kMb, true}}}, 0.01, 1e8, facts), "");
  EXPECT_EQ(facts, (Facts{{"child_processes", 1},
                          {"child_memory_bytes", 9e6},
                          {"worker_processes", 1},
                          {"worker_memory_bytes", 9e6}}));
}

TEST(ChildMemory, SaysNothingWithoutChildren) {
  Facts facts;
  EXPECT_EQ(add_child_memory({{1, {kMb, true}}}, {}, 60, 1e9, facts), "");
  EXPECT_TRUE(facts.empty());
}

}  // namespace
}  // namespace penstock
