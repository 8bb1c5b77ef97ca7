// SPDX-License-Identifier: Apache-2.0
// Tests recordings of the driver without a GPU.
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "tests/trainer/backends/gpu/host_bench.h"

namespace penstock::gpu {
namespace {

TEST(HostCapture, Replay_SeesNewData) {
  for (const Timing timing : kTimings) {
    Bench bench({.timing = timing});
    bench.write(0, 1);
    bench.driver.begin_capture(bench.streams[0]);
    bench.upload();
    bench.download();
    const GraphHandle graph = bench.driver.end_capture(bench.streams[0]);
    for (const float value : {2.F, 5.F}) {
      bench.write(0, value);
      EXPECT_NE(*reinterpret_cast<const float*>(bench.pinned[1]), value);
      bench.driver.launch(bench.streams[1], graph);
      bench.record(1);
      EXPECT_TRUE(bench.reach());
      EXPECT_EQ(bench.read(1), value);
    }
    EXPECT_TRUE(bench.driver.races().empty());
    bench.driver.destroy(graph);
  }
}

TEST(HostCapture, EventInside_IsRecordedAgainByEachLaunch) {
  for (const Timing timing : kTimings) {
    Bench bench({.timing = timing});
    bench.driver.begin_capture(bench.streams[0]);
    bench.upload(0);
    bench.record(0, 0);
    const GraphHandle graph = bench.driver.end_capture(bench.streams[0]);
    EXPECT_TRUE(bench.reach(0)) << "nothing was launched yet";
    for (const float value : {6.F, 7.F}) {
      bench.write(0, value);
      bench.driver.launch(bench.streams[0], graph);
      bench.wait(1, 0);
      bench.download(1);
      bench.record(1, 1);
      EXPECT_TRUE(bench.reach(1));
      EXPECT_EQ(bench.read(1), value);
    }
    EXPECT_TRUE(bench.driver.races().empty());
    bench.driver.destroy(graph);
  }
}

TEST(HostCapture, WaitInside_IsForTheLastRecordBeforeEachLaunch) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Bench bench(shuffled(seed));
    bench.driver.begin_capture(bench.streams[0]);
    bench.wait(0, 0);
    bench.download(0);
    const GraphHandle graph = bench.driver.end_capture(bench.streams[0]);
    for (const float value : {6.F, 7.F}) {
      bench.write(0, value);
      bench.upload(1);
      bench.record(1, 0);
      bench.driver.launch(bench.streams[0], graph);
      bench.record(0, 1);
      EXPECT_TRUE(bench.reach(1));
      EXPECT_EQ(bench.read(1), value);
    }
    EXPECT_TRUE(bench.driver.races().empty());
    bench.driver.destroy(graph);
  }
}

TEST(HostCapture, WhatCannotBeRecorded_Throws) {
  Bench bench;
  float pageable[kCount] = {};
  bench.driver.begin_capture(bench.streams[0]);
  EXPECT_THROW(bench.driver.allocate(1, MemoryKind::device), std::logic_error);
  EXPECT_THROW(bench.reach(), std::logic_error);
  EXPECT_THROW(bench.upload(1), std::logic_error) << "another stream";
  EXPECT_THROW(bench.driver.copy(bench.streams[0], bench.device[0],
                                 reinterpret_cast<const std::byte*>(pageable), kBytes),
               std::logic_error);
  EXPECT_THROW(bench.driver.begin_capture(bench.streams[1]), std::logic_error);
  EXPECT_THROW(bench.driver.end_capture(bench.streams[1]), std::logic_error) << "not this stream";
  bench.driver.abandon_capture(bench.streams[0]);
  bench.upload(1);  // both streams work again
}

TEST(HostCapture, FreeingMemory_FailsTheRecording) {
  Bench bench;
  std::byte* const block = bench.driver.allocate(1, MemoryKind::device);
  bench.driver.begin_capture(bench.streams[0]);
  bench.driver.free(block, MemoryKind::device);
  EXPECT_THROW(bench.driver.end_capture(bench.streams[0]), std::logic_error);
}

TEST(HostCapture, AnotherThread_AllocatesAndWaitsMeanwhile) {
  Bench bench;
  bench.driver.begin_capture(bench.streams[0]);
  std::thread([&] {
    bench.driver.free(bench.driver.allocate(1, MemoryKind::device), MemoryKind::device);
    bench.upload(1);
    bench.record(1);
    EXPECT_TRUE(bench.reach());
    EXPECT_THROW(bench.upload(0), std::logic_error) << "that stream is recorded by another thread";
  }).join();
  bench.upload(0);
  bench.driver.destroy(bench.driver.end_capture(bench.streams[0]));
}

}  // namespace
}  // namespace penstock::gpu
