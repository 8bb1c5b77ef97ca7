// SPDX-License-Identifier: Apache-2.0
#include "dataflow/batch_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "dataflow/host_device.h"
#include "tests/support/thrown_by.h"
#include "tests/support/virtual_clock.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr BatchSpec kSpec{.images = 2, .image = {2, 2, 3}};

class Ring : public ::testing::Test {
 protected:
  std::unique_ptr<BatchRing> make(std::size_t slots, std::size_t readers = 1,
                                  Order order = Order::relaxed) {
    std::vector<Device*> devices(readers, &device_);
    return std::make_unique<BatchRing>(kSpec, slots, device_, MemoryKind::host, devices, order,
                                       clock_);
  }
  static void publish(BatchRing& ring, std::int32_t label) {
    WriteLease lease = ring.acquire({});
    ASSERT_TRUE(lease);
    lease.batch().labels[0] = label;
    std::move(lease).publish();
  }
  static std::int32_t take(BatchRing& ring, std::size_t reader = 0) {
    const ReadLease lease = ring.next(reader, {});
    return lease ? lease.batch().labels[0] : -1;
  }

  SteadyClock clock_;
  HostDevice device_{clock_};
};

TEST_F(Ring, DeliversInOrderOfPublication) {
  const auto ring = make(3);
  for (const std::int32_t label : {7, 8, 9}) publish(*ring, label);
  EXPECT_EQ(ring->monitor().stats().filled_slots, 3U);
  EXPECT_EQ(take(*ring), 7);
  EXPECT_EQ(take(*ring), 8);
  EXPECT_EQ(take(*ring), 9);
  EXPECT_EQ(ring->monitor().stats().published, 3U);
  EXPECT_EQ(ring->monitor().stats().filled_slots, 0U);
}

TEST_F(Ring, SlotsCoverWholeBatchesWithoutOverlap) {
  const auto ring = make(2);
  WriteLease a = ring->acquire({}), b = ring->acquire({});
  EXPECT_EQ(a.batch().pixels.size(), 2U * 2 * 2 * 3);
  EXPECT_EQ(a.batch().labels.size(), 2U);
  EXPECT_EQ(a.batch().valid, 2);
  std::fill(a.batch().pixels.begin(), a.batch().pixels.end(), std::byte{1});
  std::fill(b.batch().pixels.begin(), b.batch().pixels.end(), std::byte{2});
  a.batch().labels[1] = 5;
  EXPECT_EQ(std::count(a.batch().pixels.begin(), a.batch().pixels.end(), std::byte{1}), 24);
  EXPECT_NE(a.batch().slot, b.batch().slot);
}

TEST_F(Ring, UnpublishedLeaseGivesTheSlotBackAndSendsNothing) {
  const auto ring = make(1);
  { const WriteLease lease = ring->acquire({}); }
  publish(*ring, 4);
  EXPECT_EQ(take(*ring), 4);
  EXPECT_EQ(ring->monitor().stats().published, 1U);
}

TEST_F(Ring, EmptyLeaseAfterCloseOnceAllIsRead) {
  const auto ring = make(2);
  publish(*ring, 1);
  ring->close();
  EXPECT_FALSE(ring->acquire({}));
  EXPECT_EQ(take(*ring), 1);
  EXPECT_FALSE(ring->next(0, {}));
}

TEST_F(Ring, FailureReachesEveryReaderBehindTheGoodBatches) {
  const auto ring = make(3, 2);
  publish(*ring, 1);
  ring->fail(std::make_exception_ptr(std::runtime_error("first")));
  ring->fail(std::make_exception_ptr(std::runtime_error("second")));
  EXPECT_EQ(take(*ring, 0), 1);
  for (const std::size_t reader : {0U, 1U}) {
    EXPECT_EQ(thrown_by<std::runtime_error>([&] { take(*ring, reader); }), "first") << reader;
  }
}

TEST_F(Ring, StopEndsABlockedAcquireAndABlockedNext) {
  const auto ring = make(1);
  std::stop_source stop;
  std::future<bool> reader =
      std::async(std::launch::async, [&] { return bool(ring->next(0, stop.get_token())); });
  const WriteLease held = ring->acquire({});
  std::future<bool> writer =
      std::async(std::launch::async, [&] { return bool(ring->acquire(stop.get_token())); });
  stop.request_stop();
  ASSERT_EQ(reader.wait_for(5s), std::future_status::ready);
  ASSERT_EQ(writer.wait_for(5s), std::future_status::ready);
  EXPECT_FALSE(reader.get());
  EXPECT_FALSE(writer.get());
}

TEST_F(Ring, StrictOrderDealsBatchesOutInTurn) {
  const auto ring = make(6, 2, Order::strict);
  for (std::int32_t label = 0; label < 6; ++label) publish(*ring, label);
  EXPECT_EQ(take(*ring, 1), 1);
  EXPECT_EQ(take(*ring, 1), 3);
  EXPECT_EQ(take(*ring, 0), 0);
  EXPECT_EQ(take(*ring, 1), 5);
  EXPECT_EQ(take(*ring, 0), 2);
}

TEST_F(Ring, AGroupBeginsOnlyWhenTheLastOneWasTaken) {
  const auto ring = make(4);
  ring->fill_in_groups(2);
  std::vector<std::int32_t> taken;
  /// Fills a slot, and takes a batch each time that there is none to fill. Returns how often.
  const auto fill = [&](std::int32_t label) {
    const std::size_t before = taken.size();
    WriteLease lease = ring->acquire({}, [&] { taken.push_back(take(*ring)); });
    lease.batch().labels[0] = label;
    std::move(lease).publish();
    return taken.size() - before;
  };
  EXPECT_EQ(fill(0), 0U);
  EXPECT_EQ(fill(1), 0U);
  EXPECT_EQ(fill(2), 2U) << "two slots are free, but the first group is still there";
  EXPECT_EQ(fill(3), 0U);
  {
    const WriteLease unused = ring->acquire({}, [&] { taken.push_back(take(*ring)); });
  }
  EXPECT_EQ(fill(4), 0U) << "a lease that ended unpublished is no part of a group";
  EXPECT_EQ(fill(5), 0U);
  EXPECT_EQ(fill(6), 2U);
  EXPECT_EQ(taken, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST_F(Ring, AGroupOfMoreBatchesThanSlotsIsFilledAsSlotsAreFreed) {
  const auto ring = make(2);
  ring->fill_in_groups(3);
  for (int group = 0; group < 3; ++group) {
    publish(*ring, 1);
    publish(*ring, 2);
    EXPECT_EQ(take(*ring), 1);
    publish(*ring, 3);
    EXPECT_EQ(take(*ring), 2);
    EXPECT_EQ(take(*ring), 3);
  }
}

TEST_F(Ring, EachBatchOnceAcrossManyProducersAndReaders) {
  constexpr std::int32_t kBatches = 3000, kProducers = 3, kReaders = 2;
  const auto ring = make(4, kReaders);
  std::atomic<std::int32_t> next_label{0}, producers_left{kProducers};
  std::vector<std::vector<std::int32_t>> seen(kReaders);
  {
    std::vector<std::jthread> threads;
    for (std::int32_t producer = 0; producer < kProducers; ++producer) {
      threads.emplace_back([&] {
        for (std::int32_t label = next_label++; label < kBatches; label = next_label++) {
          publish(*ring, label);
        }
        if (--producers_left == 0) ring->close();
      });
    }
    for (std::size_t reader = 0; reader < kReaders; ++reader) {
      threads.emplace_back([&, reader] {
        while (ReadLease lease = ring->next(reader, {})) {
          seen[reader].push_back(lease.batch().labels[0]);
        }
      });
    }
  }
  std::vector<std::int32_t> all = seen[0];
  all.insert(all.end(), seen[1].begin(), seen[1].end());
  std::sort(all.begin(), all.end());
  std::vector<std::int32_t> expected(kBatches);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

TEST_F(Ring, WriterWaitsForTheDeviceThatStillReads) {
  // A stream that is busy for a while reads the slot. The slot is returned immediately, its memory
  // later.
  const auto ring = make(1);
  const std::unique_ptr<Stream> stream = device_.make_stream();
  publish(*ring, 1);
  ReadLease lease = ring->next(0, {});
  const Time busy_until = clock_.now() + 30ms;
  static_cast<Timeline*>(stream->native())->hold_until(busy_until);
  std::move(lease).release(*stream);
  WriteLease again = ring->acquire({});
  ASSERT_TRUE(again);
  again.await();
  EXPECT_GE(clock_.now(), busy_until);
}

TEST_F(Ring, ReaderStreamWaitsForTheWriterStream) {
  const auto ring = make(1);
  const std::unique_ptr<Stream> writer = device_.make_stream(), reader = device_.make_stream();
  const Time written = clock_.now() + 1h;
  static_cast<Timeline*>(writer->native())->hold_until(written);
  WriteLease lease = ring->acquire({});
  std::move(lease).publish(*writer);
  ReadLease read = ring->next(0, {});
  read.await(*reader);
  EXPECT_GE(static_cast<Timeline*>(reader->native())->free_at(), written);
}

TEST_F(Ring, AReaderMayAskWhenItsBatchWasWrittenAfterTheNextOneWas) {
  const auto ring = make(1);
  const std::unique_ptr<Stream> writer = device_.make_stream();
  const std::unique_ptr<Event> origin = device_.make_event();
  const Time start = clock_.now() + 1h;
  static_cast<Timeline*>(writer->native())->hold_until(start);
  writer->record(*origin);
  const auto write_and_read = [&](Nanoseconds at) {
    static_cast<Timeline*>(writer->native())->hold_until(start + at);
    ring->acquire({}).publish(*writer);
    return ring->next(0, {}).written();
  };
  const Event* const first = write_and_read(1s);
  const Event* const second = write_and_read(2s);
  EXPECT_EQ(first->since(*origin), 1s);
  EXPECT_EQ(second->since(*origin), 2s);
  publish(*ring, 1);
  EXPECT_EQ(ring->next(0, {}).written(), nullptr);  // not written by a stream
}

/// Three readers, with a simulated clock.
class ReadersInTurn : public ::testing::Test {
 protected:
  void pass(Nanoseconds time) { clock_.sleep_until(clock_.now() + time, {}); }

  VirtualClock clock_;
  const Clock::Participant participant_{clock_};
  HostDevice device_{clock_};
  const std::vector<Device*> devices_ = std::vector<Device*>(3, &device_);
  BatchRing ring_{kSpec, 4, device_, MemoryKind::host, devices_, Order::relaxed, clock_};
};

TEST_F(ReadersInTurn, ABatchGoesToTheOneThatHasAskedForLongest) {
  std::mutex mutex;
  std::vector<std::size_t> takers;
  {
    std::vector<std::jthread> readers;
    for (std::size_t reader = 0; reader < 3; ++reader) {
      readers.emplace_back([&, reader, participant = Clock::Participant(clock_)] {
        pass((reader + 1) * 1ms);
        while (ring_.next(reader, {})) {  // returned, and requested again immediately
          const std::lock_guard lock(mutex);
          takers.push_back(reader);
        }
      });
    }
    for (int batch = 0; batch < 9; ++batch) {
      pass(10ms);
      ring_.acquire({}).publish();
    }
    pass(10ms);
    ring_.close();
  }
  EXPECT_EQ(takers, (std::vector<std::size_t>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
}

TEST_F(ReadersInTurn, AStoppedReaderDelaysNoOther) {
  std::stop_source stop;
  bool taken = false;
  {
    std::jthread first([&, participant = Clock::Participant(clock_)] {
      EXPECT_FALSE(ring_.next(0, stop.get_token()));
    });
    std::jthread second([&, participant = Clock::Participant(clock_)] {
      pass(1ms);
      taken = static_cast<bool>(ring_.next(1, {}));
    });
    pass(2ms);
    stop.request_stop();
    pass(1ms);
    ring_.acquire({}).publish();
  }
  EXPECT_TRUE(taken);
}

// ---- watching ---------------------------------------------------------------

/// With a simulated clock; time passes when the test's thread says so.
class WatchedRing : public ::testing::Test {
 protected:
  void pass(Nanoseconds time) { clock_.sleep_until(clock_.now() + time); }
  void publish() { ring_.acquire({}).publish(); }
  void take() { EXPECT_TRUE(ring_.next(0, {})); }

  VirtualClock clock_;
  const Clock::Participant participant_{clock_};
  HostDevice device_{clock_};
  Device* const reader_ = &device_;
  BatchRing ring_{kSpec,          2,     device_, MemoryKind::host, std::span(&reader_, 1),
                  Order::relaxed, clock_};
};

TEST_F(WatchedRing, IntegratesHowFullItIs) {
  ring_.monitor().watch(true);
  pass(1ms);  // none is ready
  publish();
  pass(2ms);  // one is ready
  publish();
  pass(3ms);  // both are ready
  take();
  {
    const WriteLease held = ring_.acquire({});
    pass(4ms);  // one is ready, and no slot is free
  }
  ring_.monitor().stop_watching();
  pass(100ms);
  const RingStats stats = ring_.monitor().stats();
  EXPECT_EQ(stats.watched, 10ms);
  EXPECT_EQ(stats.filled_time, (1 * 2 + 2 * 3 + 1 * 4) * 1ms);
  EXPECT_EQ(stats.empty_time, 1ms);
  EXPECT_EQ(stats.full_time, (3 + 4) * 1ms);
  EXPECT_EQ(ring_.monitor().filled_over_time(10),
            (std::vector<double>{0, 1, 1, 2, 2, 2, 1, 1, 1, 1}));
}

TEST_F(WatchedRing, LeavesOutPausesAndForgetsWhatItIsToldTo) {
  ring_.monitor().watch(true);
  pass(7ms);
  ring_.monitor().watch(true);
  pass(1ms);
  ring_.monitor().stop_watching();
  publish();
  pass(1h);
  ring_.monitor().watch(false);
  pass(3ms);
  ring_.monitor().stop_watching();
  EXPECT_EQ(ring_.monitor().stats().watched, 4ms);
  EXPECT_EQ(ring_.monitor().stats().empty_time, 1ms);
  EXPECT_EQ(ring_.monitor().filled_over_time(4), (std::vector<double>{0, 1, 1, 1}));
}

TEST_F(WatchedRing, CountsWaitsAsFarAsTheyLieInside) {
  Clock::Participant participant(clock_);
  std::jthread reader([&, self = std::move(participant)] {
    while (ring_.next(0, {})) clock_.sleep_until(clock_.now() + 1ms);
  });
  pass(50ms);
  ring_.monitor().watch(true);
  pass(4ms);  // the reader waits all the time
  for (int i = 0; i < 5; ++i) publish();
  // One batch was taken immediately and two were ready. The reader waited for each of the others.
  pass(100ms);
  ring_.monitor().stop_watching();
  ring_.close();
  const RingStats stats = ring_.monitor().stats();
  EXPECT_EQ(stats.producer_wait, 2ms);
  EXPECT_EQ(stats.consumer_wait, 4ms + (102ms - 5ms));
}

TEST_F(WatchedRing, ABatchWasOfferedWhenItWasPublishedUnlessItsWriterKnowsBetter) {
  const Time earlier = clock_.now();
  pass(5ms);
  publish();
  EXPECT_EQ(ring_.next(0, {}).batch().offered, clock_.now());
  WriteLease copy = ring_.acquire({});
  copy.batch().offered = earlier;
  std::move(copy).publish();
  EXPECT_EQ(ring_.next(0, {}).batch().offered, earlier);
}

}  // namespace
}  // namespace penstock
