// SPDX-License-Identifier: Apache-2.0
// Recordings of the driver without a GPU.
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "tests/trainer/gpu/host_bench.h"

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

TEST(HostCapture, StreamThatJoined_RunsBesideTheFirstAndIsWaitedFor) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Bench bench(shuffled(seed));
    bench.driver.begin_capture(bench.streams[0]);
    bench.upload(0);
    bench.record(0, 0);
    bench.wait(1, 0);
    bench.driver.copy(bench.streams[1], bench.device[1], bench.device[0], kBytes);
    bench.record(1, 1);
    bench.wait(0, 1);
    bench.driver.copy(bench.streams[0], bench.pinned[1], bench.device[1], kBytes);
    const GraphHandle graph = bench.driver.end_capture(bench.streams[0]);
    bench.write(0, 6);
    bench.driver.launch(bench.streams[0], graph);
    bench.record(0);
    EXPECT_TRUE(bench.reach());
    EXPECT_EQ(bench.read(1), 6);
    EXPECT_TRUE(bench.driver.races().empty());
    bench.driver.destroy(graph);
  }
}

TEST(HostCapture, WhatCannotBeRecorded_Throws) {
  Bench bench;
  float pageable[kCount] = {};
  bench.record(0, 1);
  bench.driver.begin_capture(bench.streams[0]);
  EXPECT_THROW(bench.driver.allocate(1, MemoryKind::device), std::logic_error);
  EXPECT_THROW(bench.reach(), std::logic_error);
  EXPECT_THROW(bench.upload(1), std::logic_error) << "the other stream did not join";
  EXPECT_THROW(bench.wait(0, 1), std::logic_error) << "that event is outside";
  EXPECT_THROW(bench.driver.copy(bench.streams[0], bench.device[0],
                                 reinterpret_cast<const std::byte*>(pageable), kBytes),
               std::logic_error);
  EXPECT_THROW(bench.driver.begin_capture(bench.streams[1]), std::logic_error);
  bench.record(0, 0);
  bench.wait(1, 0);
  EXPECT_THROW(bench.driver.end_capture(bench.streams[1]), std::logic_error) << "not the first";
  bench.upload(1);
  EXPECT_THROW(bench.driver.end_capture(bench.streams[0]), std::logic_error) << "not joined";
  EXPECT_THROW(bench.reach(0), std::logic_error) << "recorded in a recording";
  bench.upload(1);  // both streams run again
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
