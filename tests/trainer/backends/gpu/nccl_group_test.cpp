// SPDX-License-Identifier: Apache-2.0
// Tests the host's part of exchanges through communicators: the order of calls, deadlines, late
// errors, and the end of a run.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/rank_threads.h"
#include "tests/support/thrown_by.h"
#include "tests/support/virtual_clock.h"
#include "trainer/backends/gpu/device.h"
#include "trainer/backends/gpu/group.h"
#include "trainer/wire_format.h"

namespace penstock::gpu {
namespace {

using namespace std::chrono_literals;

/// Records a communicator's calls for a test, and lets the test control it. Outlives the
/// communicator.
struct Script {
  std::int32_t polls_until_ready = 0;  ///< of each call; -1: never ready
  std::string error{};                 ///< thrown when the call should be ready
  std::atomic<int> began{0}, aborted{0};
  std::vector<std::string> calls{};
};

class FakeCommunicator final : public Communicator {
 public:
  explicit FakeCommunicator(Script& script) : script_(script) { begin("connect", 0, 0); }
  void all_reduce(void*, DType type, std::size_t count, StreamHandle) override {
    begin(type == DType::f32 ? "all_reduce" : "all_reduce of 16 bits", count, 0);
  }
  void reduce(float*, std::size_t count, std::int32_t root, StreamHandle) override {
    begin("reduce", count, root);
  }
  void broadcast(float*, std::size_t count, std::int32_t root, StreamHandle) override {
    begin("broadcast", count, root);
  }
  bool ready() override {
    if (script_.polls_until_ready < 0 || left_-- > 0) return false;
    if (!script_.error.empty()) throw DeviceError(script_.error);
    return true;
  }
  void abort() noexcept override { ++script_.aborted; }

 private:
  void begin(const std::string& call, std::size_t count, std::int32_t root) {
    left_ = script_.polls_until_ready;
    script_.calls.push_back(call + " " + std::to_string(count) + " " + std::to_string(root));
    ++script_.began;
  }
  Script& script_;
  std::int32_t left_ = 0;
};

/// A process with `local` ranks.
class Process {
 public:
  Process(Clock& clock, NcclGroup::Rules rules, std::size_t local)
      : library_({.devices = static_cast<std::int32_t>(local)}), scripts(local) {
    std::vector<Device*> borrowed;
    for (std::size_t rank = 0; rank < local; ++rank) {
      devices_.push_back(
          std::make_unique<GpuDevice>(library_.open(static_cast<std::int32_t>(rank))));
      streams.push_back(devices_.back()->make_stream());
      borrowed.push_back(devices_.back().get());
    }
    group.emplace(
        borrowed, rules,
        [this, rules](const CommunicatorPlace& place) {
          const std::lock_guard lock(mutex_);
          places.push_back(place);
          return std::make_unique<FakeCommunicator>(
              scripts[static_cast<std::size_t>(place.rank - rules.first_rank)]);
        },
        clock, stop.get_token());
  }

  GpuDevice& device() { return *devices_.front(); }

 private:
  HostDriverLibrary library_;
  std::vector<std::unique_ptr<GpuDevice>> devices_;
  std::mutex mutex_;

 public:
  std::vector<Script> scripts;
  std::vector<CommunicatorPlace> places;
  std::stop_source stop;
  std::vector<std::unique_ptr<Stream>> streams;
  std::optional<NcclGroup> group;
};

Tensor tensor_of(std::vector<float>& values) { return {values.data(), values.size(), DType::f32}; }

TEST(NcclGroup, ARankOfItsOwnProcessConnectsInItsFirstCallAndCanBeRecorded) {
  VirtualClock clock;
  Process process(clock, {.first_rank = 3, .ranks = 4}, 1);
  const std::unique_ptr<Collective> collective = process.group->join(3);
  EXPECT_EQ(collective->world().rank, 3);
  EXPECT_EQ(collective->world().size, 4);
  EXPECT_TRUE(collective->recordable());
  EXPECT_TRUE(collective->overlaps());
  EXPECT_TRUE(process.places.empty());
  process.scripts[0].polls_until_ready = 5;
  std::vector<float> values(12);
  collective->all_reduce_sum(tensor_of(values), *process.streams[0]);
  collective->reduce_sum(tensor_of(values), 2, *process.streams[0]);
  collective->broadcast(tensor_of(values), 1, *process.streams[0]);
  collective->broadcast({}, 1, *process.streams[0]);
  ASSERT_EQ(process.places.size(), 1U);
  EXPECT_EQ(process.places[0].rank, 3);
  EXPECT_EQ(process.places[0].size, 4);
  EXPECT_EQ(process.scripts[0].calls,
            (std::vector<std::string>{"connect 0 0", "all_reduce 12 0", "reduce 12 2",
                                      "broadcast 12 1", "all_reduce 1 0"}));
  EXPECT_EQ(process.scripts[0].aborted, 0);
}

TEST(NcclGroup, GradientsOf16BitsAreRoundedForTheAllReduceAloneAlsoInARecording) {
  VirtualClock clock;
  Process process(clock, {.ranks = 2, .wire = WireFormat::f16}, 1);
  GpuDevice& device = process.device();
  const Buffer memory = device.allocate(3 * sizeof(float), MemoryKind::device);
  const Tensor tensor{memory.bytes().data(), 3, DType::f32};
  std::vector<float> values{1.F / 3, 70000, -2};
  const auto copy = [&](std::byte* to, const std::byte* from) {
    device.copy_now(to, from, memory.bytes().size());
  };
  const auto read = [&] {
    copy(reinterpret_cast<std::byte*>(values.data()), memory.bytes().data());
    return values;
  };
  const std::unique_ptr<Collective> collective = process.group->join(0);
  Stream& stream = *process.streams[0];
  copy(memory.bytes().data(), reinterpret_cast<const std::byte*>(values.data()));
  collective->broadcast(tensor, 1, stream);
  collective->reduce_sum(tensor, 1, stream);
  EXPECT_EQ(read(), (std::vector<float>{1.F / 3, 70000, -2}));
  // The host driver refuses allocations in a recording.
  const std::unique_ptr<Program> program =
      stream.capture([&] { collective->all_reduce_sum(tensor, stream); });
  EXPECT_EQ(read(), (std::vector<float>{1.F / 3, 70000, -2}));
  program->launch(stream);
  const std::unique_ptr<Event> done = device.make_event();
  stream.record(*done);
  done->wait_until(Time::max());
  EXPECT_EQ(read(), (std::vector<float>{0x1.554p-2F, std::numeric_limits<float>::infinity(), -2}));
  EXPECT_EQ(process.scripts[0].calls,
            (std::vector<std::string>{"connect 0 0", "broadcast 3 1", "reduce 3 1",
                                      "all_reduce of 16 bits 3 0"}));
  collective->all_reduce_sum({}, stream);
  EXPECT_EQ(process.scripts[0].calls.back(), "all_reduce 1 0");
}

TEST(NcclGroup, ThreadsOfAProcessMeetBeforeTheyBegin) {
  SteadyClock clock;
  Process process(clock, {.ranks = 2}, 2);
  EXPECT_FALSE(process.group->join(0)->recordable());
  std::atomic<bool> first_began_alone = false;
  run_ranks(2, [&](std::int32_t rank) {
    const std::unique_ptr<Collective> collective = process.group->join(rank);
    Stream& stream = *process.streams[static_cast<std::size_t>(rank)];
    std::vector<float> values(4);
    for (int call = 0; call < 100; ++call) {
      if (rank == 1) {
        // One for the connection of the other rank, and one for each earlier call of this rank: no
        // more can have begun.
        if (process.scripts[0].began > 1 + call) first_began_alone = true;
      }
      collective->all_reduce_sum(tensor_of(values), stream);
    }
  });
  EXPECT_FALSE(first_began_alone);
  for (const Script& script : process.scripts) EXPECT_EQ(script.began, 101);
}

TEST(NcclGroup, ARankAloneNeedsNoCommunicator) {
  VirtualClock clock;
  Process process(clock, {.ranks = 1}, 1);
  std::vector<float> values(4);
  const std::unique_ptr<Collective> collective = process.group->join(0);
  EXPECT_FALSE(collective->overlaps());
  collective->all_reduce_sum(tensor_of(values), *process.streams[0]);
  EXPECT_TRUE(process.places.empty());
}

TEST(NcclGroup, ACallThatIsNotUnderWayInTimeNamesRankAndCallAndIsAborted) {
  VirtualClock clock;
  Process process(clock, {.first_rank = 1, .ranks = 2, .timeout = 60s}, 1);
  const std::unique_ptr<Collective> collective = process.group->join(1);
  std::vector<float> values(7);
  collective->all_reduce_sum(tensor_of(values), *process.streams[0]);
  process.scripts[0].polls_until_ready = -1;
  const Time began = clock.now();
  const auto call = [&] { collective->broadcast(tensor_of(values), 0, *process.streams[0]); };
  EXPECT_EQ(thrown_by<TimeoutError>(call),
            "rank 1 of 2: the broadcast of 7 elements did not start within 60 s: another rank "
            "has not joined, or is disconnected; look for its message, or raise gpu:nccl_timeout");
  EXPECT_EQ(clock.now() - began, 60s);
  EXPECT_EQ(process.scripts[0].aborted, 1);
  EXPECT_THROW(call(), Error);  // it remains unusable
  EXPECT_EQ(process.scripts[0].began, 3);
}

TEST(NcclGroup, ARankThatNeverConnectsIsNamedToo) {
  VirtualClock clock;
  Process process(clock, {.ranks = 2, .timeout = 5s}, 1);
  process.scripts[0].polls_until_ready = -1;
  const std::string text = thrown_by<TimeoutError>(
      [&] { process.group->join(0)->all_reduce_sum({}, *process.streams[0]); });
  EXPECT_EQ(text.find("rank 0 of 2: the connection did not start within 5 s"), 0U) << text;
  EXPECT_EQ(process.scripts[0].aborted, 1);
}

TEST(NcclGroup, AnErrorThatTheLibraryFindsLaterComesWithRankAndCall) {
  VirtualClock clock;
  Process process(clock, {.ranks = 2}, 1);
  process.scripts[0].polls_until_ready = 2;
  const std::unique_ptr<Collective> collective = process.group->join(0);
  collective->all_reduce_sum({}, *process.streams[0]);
  process.scripts[0].error = "CUDA device 0: ncclCommGetAsyncError failed with 6 (remote)";
  std::vector<float> values(3);
  EXPECT_EQ(thrown_by<DeviceError>(
                [&] { collective->all_reduce_sum(tensor_of(values), *process.streams[0]); }),
            "rank 0 of 2: the all-reduce of 3 elements: CUDA device 0: ncclCommGetAsyncError "
            "failed with 6 (remote)");
  EXPECT_EQ(process.scripts[0].aborted, 1);
}

TEST(NcclGroup, AStopAbortsWhatIsUnderWayAndFreesTheRanksThatWait) {
  SteadyClock clock;
  Process process(clock, {.first_rank = 0, .ranks = 2}, 1);
  process.scripts[0].polls_until_ready = -1;
  std::future<void> waiting = std::async(
      std::launch::async, [&] { process.group->join(0)->all_reduce_sum({}, *process.streams[0]); });
  while (process.scripts[0].began == 0) std::this_thread::yield();
  process.stop.request_stop();
  ASSERT_EQ(waiting.wait_for(5s), std::future_status::ready);
  EXPECT_THROW(waiting.get(), Error);
  EXPECT_EQ(process.scripts[0].aborted, 1);
}

TEST(NcclGroup, AStopAbortsRanksThatWaitForTheirDevicesOnly) {
  SteadyClock clock;
  Process process(clock, {.ranks = 2}, 2);
  run_ranks(2, [&](std::int32_t rank) {
    process.group->join(rank)->all_reduce_sum({}, *process.streams[static_cast<std::size_t>(rank)]);
  });
  process.stop.request_stop();
  for (const Script& script : process.scripts) EXPECT_EQ(script.aborted, 1);
}

TEST(NcclGroup, AfterAStopNothingConnectsAnyMore) {
  VirtualClock clock;
  Process process(clock, {.ranks = 2}, 1);
  process.stop.request_stop();
  EXPECT_THROW(process.group->join(0)->all_reduce_sum({}, *process.streams[0]), Error);
  EXPECT_TRUE(process.places.empty());
}

}  // namespace
}  // namespace penstock::gpu
