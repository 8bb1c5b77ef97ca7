// SPDX-License-Identifier: Apache-2.0
// The report of the decode pool's stages about its workers' time.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "dataflow/host_device.h"
#include "dataflow/images/decode_pool.h"
#include "tests/dataflow/images/index_decoder.h"
#include "tests/support/virtual_clock.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// With a simulated clock. Reading and decoding take a given time, with two exceptions. The first
/// sample of each worker takes none: the workers meet there, so that all are present before time
/// passes. Decoding the last sample takes none, because time stops when the calling worker waits
/// for the others.
class PoolStages : public testing::Test {
 protected:
  class SlowSource final : public Source {
   public:
    SlowSource(Clock& clock, Nanoseconds time, std::uint64_t free, std::uint64_t size)
        : clock_(clock), time_(time), free_(free), size_(size) {}
    bool next(Sample& sample) override {
      if (count_ == size_) return false;
      sample.index = count_++;
      sample.label = 0;
      sample.bytes.assign(10, std::byte{0});
      if (sample.index >= free_) clock_.sleep_until(clock_.now() + time_);
      return true;
    }
    std::uint64_t size() const noexcept override { return size_; }
    std::int32_t classes() const noexcept override { return 1; }

   private:
    Clock& clock_;
    const Nanoseconds time_;
    const std::uint64_t free_, size_;
    std::uint64_t count_ = 0;
  };

  /// `consume` runs beside the pool. The pool reads `samples` samples after those at which workers
  /// meet.
  void run(std::int32_t threads, Nanoseconds reading, Nanoseconds decoding, std::uint64_t samples,
           const std::function<void()>& consume) {
    const auto meeting = static_cast<std::uint64_t>(threads);
    std::atomic<std::uint64_t> there{0};
    const auto before = [&](const Sample& sample) {
      if (sample.index < meeting) {
        if (++there == meeting) there.notify_all();
        for (std::uint64_t seen = there; seen < meeting; seen = there) there.wait(seen);
      } else if (sample.index + 1 < meeting + samples) {
        clock_.sleep_until(clock_.now() + decoding);
      }
    };
    SlowSource source(clock_, reading, meeting, meeting + samples);
    const Clock::Participant self(clock_);
    Clock::Participant consumer(clock_);
    DecodePool pool(
        {.threads = threads}, source, [&] { return std::make_unique<IndexDecoder>(before); },
        clock_, probe_);
    const std::jthread thread([&, participant = std::move(consumer)] { consume(); });
    pool.run(ring_, {});
    ring_.close();
    now_ = clock_.now();
  }

  const StageCounters& stage(std::size_t number) const { return probe_.stages().at(number); }
  Nanoseconds waited_in() const { return Nanoseconds(stage(1).wait_in.until(now_).ns); }
  Nanoseconds waited_out() const { return Nanoseconds(stage(1).wait_out.until(now_).ns); }

  VirtualClock clock_;
  HostDevice device_{clock_};
  Device* readers_[1] = {&device_};
  Probe probe_;
  BatchRing ring_{kSpec, 2, device_, MemoryKind::host, readers_, Order::relaxed, clock_};
  Time now_{};
};

TEST_F(PoolStages, WorkersWaitForInputWhileAnotherReads) {
  run(2, 10ms, 1ms, 100, [&] {
    while (ring_.next(0, {})) {
    }
  });
  EXPECT_EQ(stage(0).stage, (StageName{"read", "decode threads", 2}));
  EXPECT_EQ(stage(1).stage, (StageName{"decode", "decode threads", 2}));
  for (const std::size_t number : {0U, 1U}) {
    EXPECT_EQ(stage(number).items.value(), 102);
    EXPECT_EQ(stage(number).images.value(), 102);
    EXPECT_EQ(stage(number).bytes.value(), 1020);
    EXPECT_NEAR(static_cast<double>(stage(number).timed_items.value()), 102 / 17.0, 1);
  }
  // Each worker waits for the other's 10 ms of reading, except 1 ms in which it decodes.
  EXPECT_EQ(waited_in(), 10ms + 99 * 9ms);
  EXPECT_EQ(waited_out(), 0ns);
}

TEST_F(PoolStages, WorkersWaitForRoomWhereTheOneThatGivesRowsOutHasNoSlot) {
  run(3, 0ms, 0ms, 3 * 5 - 3, [&] {
    for (int batch = 0; batch < 2; ++batch) {
      clock_.sleep_until(clock_.now() + 100ms);
      EXPECT_TRUE(ring_.next(0, {}));
    }
  });
  // Two slots are full immediately. A third batch finds room 100 ms later, and the next sample
  // another 100 ms later. Only then does the end of the data show.
  EXPECT_EQ(waited_out(), 3 * 200ms);
  EXPECT_EQ(waited_in(), 0ns);
}

TEST_F(PoolStages, OneWorkerNeverWaitsForItself) {
  run(1, 2ms, 3ms, 35, [&] {
    while (ring_.next(0, {})) {
    }
  });
  EXPECT_EQ(waited_in() + waited_out(), 0ns);
  // Samples 0, 17 and 34 are timed; the first took no time.
  EXPECT_EQ(stage(0).timed_items.value(), 3);
  EXPECT_EQ(stage(0).wall_ns.value(), 2 * 2'000'000);
  EXPECT_EQ(stage(1).wall_ns.value(), 2 * 3'000'000);
}

}  // namespace
}  // namespace penstock
