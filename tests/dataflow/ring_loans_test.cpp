// SPDX-License-Identifier: Apache-2.0
// Slots that show lent pixels; the owner is notified once when the loan ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <semaphore>
#include <stdexcept>
#include <thread>
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/host_device.h"
#include "dataflow/stager.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr BatchSpec kSpec{.images = 2, .image = {4, 4, 3}};

class Notes final : public ForeignPixels {
 public:
  struct Note {
    std::int32_t slot = 0;
    const Event* read = nullptr;
  };
  void returned(std::int32_t slot, const Event* read) noexcept override {
    const std::lock_guard lock(mutex_);
    notes_.push_back({slot, read});
    news_.release();
  }
  std::vector<Note> all() const {
    const std::lock_guard lock(mutex_);
    return notes_;
  }
  std::size_t count() const { return all().size(); }
  /// Waits for one more notification; false on a timeout.
  bool await() { return news_.try_acquire_for(20s); }

 private:
  mutable std::mutex mutex_;
  std::vector<Note> notes_;
  std::counting_semaphore<> news_{0};
};

class RingLoans : public ::testing::Test {
 protected:
  explicit RingLoans(HostDeviceOptions options = {}) : device_(clock_, std::move(options)) {}

  std::unique_ptr<BatchRing> make(std::size_t slots) {
    auto ring = std::make_unique<BatchRing>(kSpec, slots, device_, MemoryKind::host,
                                            std::span(&reader_, 1), Order::relaxed, clock_);
    ring->accept_foreign();
    return ring;
  }
  /// A batch of `value` in memory outside the ring.
  std::span<const std::byte> foreign(std::uint8_t value) {
    bytes_.push_back(std::make_unique<Pixels>());
    bytes_.back()->fill(static_cast<std::byte>(value));
    return *bytes_.back();
  }
  void publish(BatchRing& ring, std::uint8_t value) {
    WriteLease lease = ring.acquire({});
    ASSERT_TRUE(lease);
    lease.await();
    lease.batch().labels[0] = value;
    lease.lend(foreign(value), notes_);
    std::move(lease).publish();
  }
  static bool shows(const Batch& batch, std::uint8_t value) {
    return batch.labels[0] == value && std::count(batch.pixels.begin(), batch.pixels.end(),
                                                  static_cast<std::byte>(value)) == 96;
  }

  using Pixels = std::array<std::byte, 96>;
  SteadyClock clock_;
  HostDevice device_;
  Device* const reader_ = &device_;
  std::vector<std::unique_ptr<Pixels>> bytes_;
  const std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();
};

TEST_F(RingLoans, ReadersSeeWhatWasLentAndTheLenderIsToldOnce) {
  const auto ring = make(2);
  publish(*ring, 7);
  {
    const ReadLease lease = ring->next(0, {});
    EXPECT_TRUE(shows(lease.batch(), 7));
    EXPECT_EQ(lease.batch().pixels.data(), bytes_[0]->data());
    EXPECT_EQ(notes_->count(), 0U);
  }
  ASSERT_EQ(notes_->count(), 1U);
  EXPECT_EQ(notes_->all()[0].read, nullptr);
}

TEST_F(RingLoans, TheNextWriterFindsTheSlotsOwnPixels) {
  const auto ring = make(1);
  publish(*ring, 7);
  static_cast<void>(ring->next(0, {}));
  WriteLease lease = ring->acquire({});
  EXPECT_EQ(lease.batch().pixels.data(), ring->memory(0).data());
  EXPECT_EQ(lease.batch().pixels.size(), kSpec.pixel_bytes());
  std::fill(lease.batch().pixels.begin(), lease.batch().pixels.end(), std::byte{9});
  lease.batch().labels[0] = 9;
  std::move(lease).publish();
  EXPECT_TRUE(shows(ring->next(0, {}).batch(), 9));
  EXPECT_EQ((*bytes_[0])[0], std::byte{7});
  EXPECT_EQ(notes_->count(), 1U);
}

TEST_F(RingLoans, ASlotsOwnPixelsMayBeLentForTheNewsAlone) {
  BatchRing ring(kSpec, 1, device_, MemoryKind::host, std::span(&reader_, 1), Order::relaxed,
                 clock_);
  EXPECT_FALSE(ring.accepts_foreign());
  WriteLease lease = ring.acquire({});
  lease.lend(lease.batch().pixels, notes_);
  std::move(lease).publish();
  EXPECT_EQ(notes_->count(), 0U);
  static_cast<void>(ring.next(0, {}));
  EXPECT_EQ(notes_->count(), 1U);
}

TEST_F(RingLoans, ALoanThatIsNotPublishedIsOverWithItsLease) {
  const auto ring = make(2);
  {
    const WriteLease lease = ring->acquire({});
    lease.batch();
  }
  EXPECT_EQ(notes_->count(), 0U);
  {
    WriteLease lease = ring->acquire({});
    lease.lend(foreign(3), notes_);
  }
  EXPECT_EQ(notes_->count(), 1U);
}

TEST_F(RingLoans, UnreadLoansEndWithTheRing) {
  auto ring = make(3);
  for (std::uint8_t value = 1; value <= 3; ++value) publish(*ring, value);
  static_cast<void>(ring->next(0, {}));
  ring->close();
  EXPECT_EQ(notes_->count(), 1U);
  ring.reset();
  ASSERT_EQ(notes_->count(), 3U);
  EXPECT_EQ(notes_->all()[2].read, nullptr);
}

TEST_F(RingLoans, AFailedRingStillDeliversItsLoansAndEndsThem) {
  const auto ring = make(2);
  publish(*ring, 5);
  ring->fail(std::make_exception_ptr(std::runtime_error("gone")));
  EXPECT_TRUE(shows(ring->next(0, {}).batch(), 5));
  EXPECT_EQ(notes_->count(), 1U);
  EXPECT_THROW(static_cast<void>(ring->next(0, {})), std::runtime_error);
}

TEST_F(RingLoans, TheRingKeepsALenderThatEverybodyElseLeft) {
  auto owner = std::make_shared<Notes>();
  const std::weak_ptr<Notes> seen = owner;
  auto ring = make(1);
  WriteLease write = ring->acquire({});
  write.lend(foreign(1), std::move(owner));
  std::move(write).publish();
  ReadLease read = ring->next(0, {});
  EXPECT_FALSE(seen.expired());
  read = ReadLease();
  ring.reset();
  EXPECT_TRUE(seen.expired());
}

TEST_F(RingLoans, AThreadThatWaitsForASlotDoesOtherThingsAndCountsAsWaiting) {
  const auto ring = make(1);
  ring->monitor().watch(true);
  publish(*ring, 1);
  std::atomic<int> rounds{0};
  std::jthread writer([&] {
    WriteLease lease = ring->acquire({}, [&] {
      if (++rounds == 1) return;
      EXPECT_TRUE(notes_->await());
    });
    ASSERT_TRUE(lease);
    lease.batch().labels[0] = 2;
    lease.lend(foreign(2), notes_);
    std::move(lease).publish();
  });
  while (rounds < 2) std::this_thread::yield();
  EXPECT_TRUE(shows(ring->next(0, {}).batch(), 1));
  EXPECT_TRUE(shows(ring->next(0, {}).batch(), 2));
  writer.join();
  ring->monitor().stop_watching();
  EXPECT_GT(ring->monitor().stats().producer_wait, 0ns);
}

TEST_F(RingLoans, WaitingWithOtherThingsToDoEndsWithAStopOrTheRing) {
  const auto ring = make(1);
  publish(*ring, 1);
  std::stop_source stop;
  EXPECT_FALSE(ring->acquire(stop.get_token(), [&] { stop.request_stop(); }));
  EXPECT_THROW(static_cast<void>(ring->acquire({}, [] { throw std::runtime_error("no"); })),
               std::runtime_error);
  EXPECT_FALSE(ring->acquire({}, [&] { ring->close(); }));
  EXPECT_EQ(notes_->count(), 0U);
}

/// Copies at 10 kB per second: copying a batch takes 10 ms.
class SlowRingLoans : public RingLoans {
 protected:
  SlowRingLoans() : RingLoans({.copy_bytes_per_s = 1e4}) {}
};

TEST_F(SlowRingLoans, TheLenderLearnsWhatSaysThatTheDeviceIsDone) {
  auto ring = make(1);
  publish(*ring, 4);
  const auto stream = device_.make_stream();
  Pixels copy{};
  ReadLease read = ring->next(0, {});
  stream->copy(copy, read.batch().pixels);
  std::move(read).release(*stream);
  ASSERT_EQ(notes_->count(), 1U);
  const Event* const done = notes_->all()[0].read;
  ASSERT_NE(done, nullptr);
  WriteLease write = ring->acquire({});
  write.await();
  EXPECT_TRUE(done->wait_until(clock_.now()));
  write = WriteLease();
  ring.reset();
  EXPECT_EQ(notes_->count(), 1U);
}

TEST_F(SlowRingLoans, AStagerCopiesWhatWasLentAndWritesToNone) {
  const auto host = make(3), on_device = make(2);
  std::jthread feeder([&] {
    for (std::uint8_t value = 0; value < 20; ++value) publish(*host, value);
    host->close();
  });
  std::jthread stager([&] { Stager(*host, 0, *on_device, device_).run({}); });
  for (std::uint8_t value = 0; value < 20; ++value) {
    ReadLease lease = on_device->next(0, {});
    ASSERT_TRUE(lease);
    lease.await();
    EXPECT_TRUE(shows(lease.batch(), value));
  }
  EXPECT_FALSE(on_device->next(0, {}));
  stager.join();
  EXPECT_EQ(notes_->count(), 20U);
}

}  // namespace
}  // namespace penstock
