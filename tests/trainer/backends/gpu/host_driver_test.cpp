// SPDX-License-Identifier: Apache-2.0
// Tests the driver without a GPU: memory, order, time, failures and recordings.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/trainer/backends/gpu/host_bench.h"

namespace penstock::gpu {
namespace {

TEST(HostDriver, Copy_IsNotVisibleBeforeItsEventIsWaitedFor) {
  Bench bench;
  bench.write(0, 3);
  bench.upload();
  bench.download();
  bench.record();
  EXPECT_EQ(*reinterpret_cast<const float*>(bench.pinned[1]), 0);
  EXPECT_TRUE(bench.reach());
  EXPECT_EQ(bench.read(1), 3);
}

TEST(HostDriver, LateTiming_RunsNothingThatTheEventNeedNotWaitFor) {
  Bench bench;
  bench.write(0, 3);
  bench.record();
  bench.upload();
  bench.download();
  EXPECT_TRUE(bench.reach());
  EXPECT_EQ(*reinterpret_cast<const float*>(bench.pinned[1]), 0);
}

TEST(HostDriver, AtOnceTiming_RunsWhileItIsEnqueued) {
  Bench bench({.timing = Timing::at_once});
  bench.write(0, 3);
  bench.upload();
  bench.download();
  EXPECT_EQ(*reinterpret_cast<const float*>(bench.pinned[1]), 3);
}

TEST(HostDriver, EventThatWasNeverRecorded_IsReached) {
  Bench bench;
  bench.wait(0, 0);
  bench.record(0, 1);
  EXPECT_TRUE(bench.reach(1));
  EXPECT_TRUE(bench.reach(0));
}

TEST(HostDriver, DeadlineOfLongAgo_AsksAndBringsTheEventNearer) {
  Bench bench;
  bench.upload();
  bench.record();
  EXPECT_FALSE(bench.reach(0, Time{}));
  EXPECT_TRUE(bench.reach(0, Time{}));
}

TEST(HostDriver, WaitOfAStream_RefersToTheRecordBeforeIt) {
  Bench bench;
  bench.write(0, 1);
  bench.upload(0);
  bench.record(0, 0);
  bench.wait(1, 0);
  bench.record(0, 0);  // again; stream 1 does not wait for this one
  bench.download(1);
  bench.record(1, 1);
  EXPECT_TRUE(bench.reach(1));
  EXPECT_EQ(bench.read(1), 1);
  EXPECT_TRUE(bench.driver.races().empty());
}

TEST(HostDriver, ShuffledTiming_KeepsTheOrderOfEvents) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Bench bench(shuffled(seed));
    for (int step = 1; step <= 5; ++step) {
      bench.write(0, static_cast<float>(step));
      bench.upload(0);
      bench.record(0, 0);
      bench.wait(1, 0);
      bench.enqueue_doubling(0, 1);
      bench.download(1);
      bench.record(1, 1);
      bench.wait(0, 1);
      EXPECT_TRUE(bench.reach(1));
      EXPECT_EQ(bench.read(1), static_cast<float>(2 * step));
    }
    EXPECT_TRUE(bench.driver.races().empty());
    bench.driver.free(bench.workspace, MemoryKind::device);
  }
}

TEST(HostDriver, ThreadsWithStreamsOfTheirOwn_DoNotMeet) {
  Bench bench(shuffled(1));
  const auto copy_in_steps = [&bench](std::size_t which) {
    for (int step = 0; step < 100; ++step) {
      EXPECT_TRUE(bench.reach(which));
      bench.write(which, static_cast<float>(step));
      bench.driver.copy(bench.streams[which], bench.device[which], bench.pinned[which], kBytes);
      bench.record(which, which);
    }
  };
  std::thread other([&] { copy_in_steps(1); });
  copy_in_steps(0);
  other.join();
  EXPECT_TRUE(bench.driver.races().empty());
  EXPECT_EQ(*reinterpret_cast<const float*>(bench.device[1]), 99);
}

TEST(HostDriver, ElapsedTime_IsWhatTheBytesCost) {
  Bench bench({.cost = [](std::size_t bytes) { return Nanoseconds(10 * bytes); }});
  bench.record(0, 0);
  bench.upload(0);
  bench.record(0, 1);
  EXPECT_THROW(bench.driver.elapsed(bench.events[0], bench.events[1]), std::logic_error);
  EXPECT_TRUE(bench.reach(1));
  EXPECT_EQ(bench.driver.elapsed(bench.events[0], bench.events[1]), Nanoseconds(20 * kBytes));
}

TEST(HostDriver, Execute_ComputesInItsTensorsAndScribblesOverTheWorkspace) {
  Bench bench;
  bench.write(0, 4);
  bench.upload();
  bench.enqueue_doubling(0);
  std::memset(bench.workspace, 0, sizeof(float));
  bench.download();
  bench.record();
  EXPECT_TRUE(bench.reach());
  EXPECT_EQ(bench.read(1), 8);
  EXPECT_TRUE(std::isnan(*reinterpret_cast<const float*>(bench.workspace)));
  bench.driver.free(bench.workspace, MemoryKind::device);
}

TEST(HostDriver, Execute_RefusesTensorsThatAreMissingOrNotAligned) {
  Bench bench;
  DnnGraph graph;
  const auto x = graph.add({{1, 2, 1, 1}, DType::f32, false});
  graph.operations = {DnnPointwise{PointwiseMode::relu, x, kNoTensor, x}};
  const auto plan = bench.driver.build(
      graph, bench.driver.planner().candidates(graph, {.allow_tf32 = true}, 3)[0].choice);
  EXPECT_GT(plan->workspace_bytes(), 0U);
  for (std::byte* const wrong : {static_cast<std::byte*>(nullptr), bench.device[0] + 4}) {
    EXPECT_THROW(bench.driver.execute(bench.streams[0], *plan, std::vector{wrong}, bench.device[1]),
                 std::logic_error);
  }
  EXPECT_THROW(bench.driver.build(graph, {.engine = 7, .knobs = {}}), DeviceError);
}

TEST(HostDriver, WorkOutsideOfItsMemory_FailsTheNextWait) {
  Bench bench;
  bench.driver.copy(bench.streams[0], bench.device[0], bench.pinned[0] + 1, kBytes);
  bench.record();
  EXPECT_THROW(bench.reach(), std::logic_error);
}

TEST(HostDriver, Memory_IsCountedAndBeginsAsNan) {
  HostDriver driver({.memory_bytes = 1024});
  std::byte* const block = driver.allocate(700, MemoryKind::device);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 256, 0U);
  EXPECT_TRUE(std::isnan(*reinterpret_cast<const float*>(block)));
  EXPECT_EQ(driver.free_bytes(), 256U);
  EXPECT_THROW(driver.allocate(257, MemoryKind::device), DeviceError);
  driver.free(block, MemoryKind::device);
  EXPECT_EQ(driver.free_bytes(), 1024U);
}

TEST(HostDriver, FailAt_FailsThatCallOnce) {
  Bench bench;
  bench.driver.fail_at("copy", 2);
  bench.upload();
  EXPECT_THROW(bench.upload(), DeviceError);
  bench.upload();
  bench.driver.fail_at("allocate", 1);
  EXPECT_THROW(bench.driver.allocate(1, MemoryKind::pinned), DeviceError);
}

TEST(HostDriverLibrary, EventsAndMemory_WorkAcrossDevices) {
  HostDriverLibrary library({.devices = 2});
  EXPECT_EQ(library.device_count(), 2);
  EXPECT_THROW(library.open(2), DeviceError);
  const auto first = library.open_host(0), second = library.open_host(1);
  std::byte* const from = first->allocate(kBytes, MemoryKind::device);
  std::byte* const to = second->allocate(kBytes, MemoryKind::device);
  const StreamHandle near = first->make_stream(), far = second->make_stream();
  const EventHandle event = first->make_event();
  float value[kCount] = {7}, seen[kCount] = {};
  first->copy(near, from, reinterpret_cast<const std::byte*>(value), kBytes);
  first->record(near, event);
  second->wait(far, event);
  second->copy(far, to, from, kBytes);
  second->copy(far, reinterpret_cast<std::byte*>(seen), to, kBytes);
  second->record(far, event);
  EXPECT_TRUE(second->wait_until(event, Time::max()));
  EXPECT_EQ(seen[0], 7);
  EXPECT_TRUE(second->races().empty());
  first->free(from, MemoryKind::device);
  second->free(to, MemoryKind::device);
  EXPECT_TRUE(first->races().empty());
  EXPECT_EQ(second->free_bytes(), second->facts().memory_bytes);
  first->destroy(event);
  first->destroy(near);
  second->destroy(far);
}

// ---- recordings ---------------------------------------------------------------

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
