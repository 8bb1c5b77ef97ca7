// SPDX-License-Identifier: Apache-2.0
// The decode pool between an artificial source and decoder: pixels and labels encode the sample.
#include "dataflow/images/decode_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/dataflow/images/index_decoder.h"
#include "tests/support/thrown_by.h"
#include "tests/support/virtual_clock.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

std::function<void(const Sample&)> refuse(std::set<std::uint64_t> indices) {
  return [indices = std::move(indices)](const Sample& sample) {
    if (indices.contains(sample.index)) throw DataError("damaged " + std::to_string(sample.index));
  };
}

struct ReadRow {
  std::uint64_t index = 0, epoch = 0, random = 0;
  std::int32_t label = 0;
  bool operator==(const ReadRow&) const = default;
};

/// A ring, and a reader that records every row.
class PoolTest : public testing::Test {
 protected:
  explicit PoolTest(std::size_t slots = 4) { make_ring(slots); }

  void make_ring(std::size_t slots) {
    rows_.clear();
    valid_.clear();
    ring_ = std::make_unique<BatchRing>(kSpec, slots, device_, MemoryKind::host, readers_,
                                        Order::relaxed, clock_);
  }

  /// Runs the pool to the end of its data, or until `batches` are read. Rethrows its exception.
  void run(Source& source, DecodePlan plan, std::function<void(const Sample&)> before = {},
           std::size_t batches = ~std::size_t{0}) {
    DecodePool pool(
        plan, source, [&] { return std::make_unique<IndexDecoder>(before); }, clock_, probe_);
    std::stop_source stop;
    std::jthread reader([&] {
      while (const ReadLease lease = ring_->next(0, {})) {
        note(lease.batch());
        if (valid_.size() == batches) stop.request_stop();
      }
    });
    try {
      pool.run(*ring_, stop.get_token());
    } catch (...) {
      ring_->close();
      throw;
    }
    ring_->close();
  }

  void note(const Batch& batch) {
    valid_.push_back(batch.valid);
    for (std::int32_t number = 0; number < kSpec.images; ++number) {
      const std::byte* row =
          batch.pixels.data() + static_cast<std::size_t>(number) * kSpec.row_bytes();
      ReadRow read;
      std::memcpy(&read.index, row, 8);
      std::memcpy(&read.epoch, row + 8, 8);
      std::memcpy(&read.random, row + 16, 8);
      read.label = batch.labels[static_cast<std::size_t>(number)];
      if (number < batch.valid) {
        EXPECT_EQ(read.label, static_cast<std::int32_t>(read.index));
        rows_.push_back(read);
      } else {
        EXPECT_EQ(read, ReadRow{}) << "rows that hold nothing are zeros";
      }
    }
  }

  /// The indices of each epoch, over all rows read.
  std::map<std::uint64_t, std::multiset<std::uint64_t>> seen() const {
    std::map<std::uint64_t, std::multiset<std::uint64_t>> result;
    for (const ReadRow& row : rows_) result[row.epoch].insert(row.index);
    return result;
  }

  std::int64_t counter(const std::string& name) const { return probe_.values().at(name); }

  SteadyClock clock_;
  HostDevice device_{clock_};
  Device* readers_[1] = {&device_};
  Probe probe_;
  std::unique_ptr<BatchRing> ring_;
  std::vector<ReadRow> rows_;
  std::vector<std::int32_t> valid_;
};

TEST_F(PoolTest, EachSampleOnceInEveryEpochWithAnyNumberOfThreadsAndSlots) {
  for (const std::int32_t threads : {1, 2, 3, 8}) {
    for (const std::size_t slots : {1, 2, 7}) {
      for (const Order order : {Order::strict, Order::relaxed}) {
        make_ring(slots);
        CountingSource source(23, 4);
        run(source, {.threads = threads, .order = order});
        std::multiset<std::uint64_t> all;
        for (std::uint64_t index = 0; index < 23; ++index) all.insert(index);
        const auto epochs = seen();
        ASSERT_EQ(epochs.size(), 4U) << threads << " threads, " << slots << " slots";
        for (const auto& [epoch, indices] : epochs)
          ASSERT_EQ(indices, all) << threads << " threads, " << slots << " slots";
        // 92 samples in batches of 5: the last batch has 2.
        ASSERT_EQ(valid_.size(), 19U);
        EXPECT_EQ(valid_.back(), 2);
        EXPECT_EQ(std::count(valid_.begin(), valid_.end(), 5), 18);
      }
    }
  }
}

TEST_F(PoolTest, StrictOrderRepeatsWhateverTheThreads) {
  CountingSource source(37, 5);
  run(source, {.threads = 1, .order = Order::strict, .seed = 9});
  const std::vector<ReadRow> expected = rows_;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].index, i % 37);
    EXPECT_EQ(expected[i].random, Random(9, i / 37, i % 37).bits());
  }
  for (const std::int32_t threads : {2, 5}) {
    make_ring(4);
    CountingSource again(37, 5);
    run(again, {.threads = threads, .order = Order::strict, .seed = 9});
    EXPECT_EQ(rows_, expected) << threads << " threads";
  }
}

TEST_F(PoolTest, AllThreadsDecodeAtOnceEvenBeyondTheCores) {
  constexpr int kThreads = 6;
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;
  CountingSource source(100, -1);
  // The first samples wait for each other. They meet only if as many threads decode simultaneously.
  bool met = false;
  const auto meet = [&](const Sample&) {
    std::unique_lock lock(mutex);
    if (met) return;
    met = ++inside == kThreads;
    changed.notify_all();
    EXPECT_TRUE(changed.wait_for(lock, 20s, [&] { return met; }));
    met = true;
  };
  run(source, {.threads = kThreads}, meet, 3);
  EXPECT_EQ(counter("decode_threads"), kThreads);
}

TEST_F(PoolTest, CountsWhatItDoes) {
  CountingSource source(20, 1);
  run(source, {.threads = 2});
  EXPECT_EQ(counter("images_decoded"), 20);
  EXPECT_EQ(counter("encoded_bytes"), 160);
  EXPECT_GT(counter("decode_ns"), 0);
  EXPECT_EQ(counter("bad_samples"), 0);
}

// ---- bad samples ------------------------------------------------------------

TEST_F(PoolTest, TheFirstBadSampleFailsTheRun) {
  CountingSource source(50, -1);
  EXPECT_EQ(thrown_by<DataError>([&] { run(source, {.threads = 3}, refuse({41})); }),
            "damaged 41, or leave it out with --on-bad-sample skip");
  EXPECT_GE(counter("bad_samples"), 1);
  make_ring(4);
  CountingSource unreadable(50, -1, {30});
  EXPECT_THROW(run(unreadable, {.threads = 3}), DataError);
}

TEST_F(PoolTest, SkippedSamplesAreCountedNamedAndReplaced) {
  for (const std::int32_t threads : {1, 4}) {
    for (const Order order : {Order::strict, Order::relaxed}) {
      make_ring(3);
      CountingSource source(29, 3, {0, 17});
      run(source, {.threads = threads, .order = order, .bad_samples_allowed = -1},
          refuse({5, 27, 28}));
      std::multiset<std::uint64_t> good;
      for (std::uint64_t index = 0; index < 29; ++index) {
        if (!std::set<std::uint64_t>{0, 17, 5, 27, 28}.contains(index)) good.insert(index);
      }
      const auto epochs = seen();
      ASSERT_EQ(epochs.size(), 3U);
      for (const auto& [epoch, indices] : epochs) EXPECT_EQ(indices, good);
      // 72 good samples: full batches, and one of two at the end.
      ASSERT_EQ(valid_.size(), 15U);
      EXPECT_EQ(valid_.back(), 2);
    }
  }
  EXPECT_EQ(counter("bad_samples"), 4 * 15);
  const std::vector<std::string> notes = probe_.notes();
  ASSERT_FALSE(notes.empty());
  EXPECT_TRUE(says(notes.front(), "cannot read 0"));
}

TEST_F(PoolTest, MoreThanTheLimitFails) {
  CountingSource source(10, -1);
  const std::string error = thrown_by<DataError>(
      [&] { run(source, {.threads = 2, .bad_samples_allowed = 4}, refuse({3})); });
  EXPECT_TRUE(says(error, "limit=4"));
  EXPECT_TRUE(says(error, "damaged 3"));
  EXPECT_GE(counter("bad_samples"), 5);
}

TEST_F(PoolTest, AnEpochWithoutAnyGoodSampleFails) {
  for (const std::int64_t epochs : {std::int64_t{1}, std::int64_t{-1}}) {
    make_ring(2);
    CountingSource source(6, epochs, {1, 3, 5});
    EXPECT_THROW(run(source, {.threads = 3, .bad_samples_allowed = -1}, refuse({0, 2, 4})),
                 DataError);
    EXPECT_TRUE(valid_.empty());
  }
  make_ring(2);
  CountingSource almost(6, 40);
  run(almost, {.threads = 3, .bad_samples_allowed = -1}, refuse({0, 1, 2, 3, 4}));
  EXPECT_EQ(rows_.size(), 40U);
}

TEST_F(PoolTest, LabelsOutOfRangeAreBadSamples) {
  class Far final : public Source {
   public:
    bool next(Sample& sample) override {
      sample.label = kSpec.classes;
      sample.bytes.assign(1, std::byte{0});
      return true;
    }
    SourceFacts facts() const override {
      return {.size = 1, .size_over_ranks = 1, .classes = kSpec.classes};
    }
  } far;
  EXPECT_THROW(run(far, {.threads = 1}), DataError);
}

TEST_F(PoolTest, OtherFailuresGoThrough) {
  CountingSource source(10, -1);
  const auto fail = [](const Sample& sample) {
    if (sample.index == 7) throw std::runtime_error("out of luck");
  };
  EXPECT_THROW(run(source, {.threads = 2, .bad_samples_allowed = -1}, fail), std::runtime_error);
}

// ---- stopping ---------------------------------------------------------------

/// Checks that every slot is either filled or free.
void expect_no_lease_is_kept(BatchRing& ring) {
  std::vector<WriteLease> leases;
  const std::size_t free = ring.slots() - ring.monitor().stats().filled_slots;
  for (std::size_t i = 0; i < free; ++i) {
    leases.push_back(ring.acquire({}));
    EXPECT_TRUE(leases.back());
  }
}

TEST_F(PoolTest, StopsWhileTheRingIsFull) {
  for (const std::int32_t threads : {1, 4}) {
    make_ring(3);
    CountingSource source(100, -1);
    DecodePool pool(
        {.threads = threads}, source, [] { return std::make_unique<IndexDecoder>(); }, clock_,
        probe_);
    std::stop_source stop;
    std::jthread stopper([&] {
      const auto deadline = std::chrono::steady_clock::now() + 20s;
      while (ring_->monitor().stats().filled_slots < 3 &&
             std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();
      EXPECT_EQ(ring_->monitor().stats().filled_slots, 3U);
      stop.request_stop();
    });
    pool.run(*ring_, stop.get_token());
    expect_no_lease_is_kept(*ring_);
  }
}

TEST_F(PoolTest, StopsWhenTheRingIsClosed) {
  CountingSource source(100, -1);
  DecodePool pool(
      {.threads = 3}, source, [] { return std::make_unique<IndexDecoder>(); }, clock_, probe_);
  std::jthread closer([&] {
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(ring_->next(0, {}));
    ring_->close();
  });
  pool.run(*ring_, {});
  EXPECT_GE(ring_->monitor().stats().published, 20U);
}

TEST_F(PoolTest, AStopRequestedBeforehandStopsAtOnce) {
  CountingSource source(100, -1);
  DecodePool pool(
      {.threads = 3}, source, [] { return std::make_unique<IndexDecoder>(); }, clock_, probe_);
  std::stop_source stop;
  stop.request_stop();
  pool.run(*ring_, stop.get_token());
  EXPECT_EQ(ring_->monitor().stats().published, 0U);
  expect_no_lease_is_kept(*ring_);
}

// ---- what its stages report of the workers' time ----------------------------------

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
    SourceFacts facts() const override {
      return {.size = size_, .size_over_ranks = size_, .classes = 1};
    }

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
  EXPECT_EQ(stage(0).stage, (StageName{"read", "decode threads", 2, StageRole::reads_storage}));
  EXPECT_EQ(stage(1).stage, (StageName{"decode", "decode threads", 2, StageRole::decodes}));
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
