// SPDX-License-Identifier: Apache-2.0
// Tests that the host driver finds conflicting accesses without an order.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/trainer/backends/gpu/host_bench.h"

namespace penstock::gpu {
namespace {

/// The host repeatedly fills a pinned block while a stream copies from it.
void feed(Bench& bench, bool waits) {
  for (int step = 0; step < 3; ++step) {
    if (waits) {
      EXPECT_TRUE(bench.reach());
    }
    bench.write(0, static_cast<float>(step));
    bench.upload();
    bench.record();
  }
}

TEST(HappensBefore, HostThatOverwritesBeforeTheCopyIsDone_IsFoundInEveryTiming) {
  for (const Timing timing : kTimings) {
    Bench right({.timing = timing}), wrong({.timing = timing});
    feed(right, true);
    feed(wrong, false);
    EXPECT_TRUE(right.driver.races().empty());
    const std::vector<std::string> races = wrong.driver.races();
    ASSERT_EQ(races.size(), 2U);
    EXPECT_NE(races[0].find("reads bytes [0, 64) of pinned block 0"), std::string::npos)
        << races[0];
    EXPECT_NE(races[0].find("(write by the host) writes"), std::string::npos) << races[0];
  }
}

TEST(HappensBefore, StreamThatDoesNotWait_IsFoundInEveryTiming) {
  for (const Timing timing : kTimings) {
    for (const bool waits : {true, false}) {
      Bench bench({.timing = timing});
      bench.upload(0);
      bench.record(0, 0);
      if (waits) bench.wait(1, 0);
      bench.download(1);
      EXPECT_EQ(bench.driver.races().size(), waits ? 0U : 1U);
    }
  }
}

TEST(HappensBefore, WaitForAnEarlierRecord_OrdersOnlyWhatCameBefore) {
  Bench bench;
  bench.record(0, 0);
  bench.wait(1, 0);
  bench.upload(0);
  bench.record(0, 0);
  bench.download(1);
  EXPECT_EQ(bench.driver.races().size(), 1U);
}

TEST(HappensBefore, OrderThroughAThirdStream_Counts) {
  Bench bench;
  const StreamHandle third = bench.driver.make_stream();
  bench.upload(0);
  bench.record(0, 0);
  bench.driver.wait(third, bench.events[0]);
  bench.driver.record(third, bench.events[1]);
  bench.wait(1, 1);
  bench.download(1);
  EXPECT_TRUE(bench.driver.races().empty());
  bench.driver.destroy(third);
}

TEST(HappensBefore, ReadsOfOneRange_DoNotConflict) {
  Bench bench;
  bench.upload(0);
  bench.record(0, 0);
  bench.wait(1, 0);
  bench.download(0);
  bench.driver.copy(bench.streams[1], bench.device[1], bench.device[0], kBytes);
  EXPECT_TRUE(bench.driver.races().empty());
}

TEST(HappensBefore, RangesThatMeetInOneByte_Conflict) {
  Bench bench;
  const auto copies = [&](std::size_t second) {
    bench.driver.copy(bench.streams[0], bench.device[0], bench.pinned[0], 9);
    bench.driver.copy(bench.streams[1], bench.device[0] + second, bench.pinned[0], 8);
    return bench.driver.races().size();
  };
  EXPECT_EQ(copies(9), 0U);
  EXPECT_EQ(copies(8), 1U);
}

TEST(HappensBefore, FreeOfMemoryThatAStreamMayUse_IsFound) {
  Bench bench;
  std::byte* const block = bench.driver.allocate(kBytes, MemoryKind::device);
  bench.driver.copy(bench.streams[0], block, bench.pinned[0], kBytes);
  bench.driver.free(block, MemoryKind::device);
  EXPECT_EQ(bench.driver.races().size(), 1U);
}

TEST(HappensBefore, LaunchOfARecording_AccessesWhenItIsLaunched) {
  Bench bench;
  bench.driver.begin_capture(bench.streams[0]);
  bench.upload(0);
  const GraphHandle graph = bench.driver.end_capture(bench.streams[0]);
  bench.write(0, 1);
  EXPECT_TRUE(bench.driver.races().empty());
  bench.driver.launch(bench.streams[0], graph);
  bench.write(0, 2);
  EXPECT_EQ(bench.driver.races().size(), 1U);
  bench.driver.destroy(graph);
}

}  // namespace
}  // namespace penstock::gpu
