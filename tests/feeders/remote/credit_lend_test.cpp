// SPDX-License-Identifier: Apache-2.0
// zmq-consume by credit, with batches in shared memory that are lent to the ring's readers.
#include <gtest/gtest.h>
#include <poll.h>
#include <atomic>
#include <deque>
#include <set>
#include <thread>

#include "feeders/remote/receive/lent_slots.h"
#include "tests/feeders/remote/credit_fixture.h"
#include "tests/feeders/remote/sender_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class CreditLend : public CreditConsume {
 protected:
  static ConsumerRing ring(std::size_t slots, Device* device = nullptr) {
    return {.slots = slots, .accepts_foreign = true, .device = device};
  }
  static ReadLease take(Consumer& consumer) { return consumer.ring().next(0, {}); }
  /// Does the lease show exactly this batch of the closed-form set?
  static bool is(const ReadLease& lease, std::uint64_t index) {
    const FrameList expected = BareProducer::payload_of(index);
    const Batch& batch = lease.batch();
    return std::equal(batch.pixels.begin(), batch.pixels.end(), expected[0].begin(),
                      expected[0].end()) &&
           std::memcmp(batch.labels.data(), expected[1].data(), expected[1].size()) == 0;
  }
  static bool lies_in(const Consumer& consumer, const ReadLease& lease) {
    const auto own =
        const_cast<Consumer&>(consumer).ring().memory(static_cast<std::size_t>(lease.batch().slot));
    return lease.batch().pixels.data() == own.data();
  }
  /// Checks that a batch in shared memory is copied to the consumer's memory, and that a note says
  /// why.
  void expect_copied(Consumer& consumer, std::string_view why) {
    Lender producer(endpoint());
    producer.lend(0, producer.fill(0, 0, 5));
    ASSERT_TRUE(producer.returns(1));
    const ReadLease lease = take(consumer);
    EXPECT_TRUE(is(lease, 0) && lies_in(consumer, lease));
    EXPECT_TRUE(says(consumer.all_notes(), why));
  }
};

TEST_F(CreditLend, ALeaseStaysOutUntilItsReaderIsDone) {
  RunningConsumer consumer(options(), 20s, {}, ring(3));
  Lender producer(endpoint(), 5);
  producer.lend(0, producer.fill(0, 0, 100));
  producer.lend(1, producer.fill(1, 1, 101));
  ReadLease first = take(consumer), second = take(consumer);
  EXPECT_TRUE(is(first, 0));
  EXPECT_TRUE(is(second, 1));
  EXPECT_FALSE(lies_in(consumer, first));
  producer.await_credit(4);  // there is room for more nevertheless
  EXPECT_TRUE(producer.returned().empty());
  producer.fill(2, 0, 0);  // forbidden for a producer, but visible to its reader
  EXPECT_EQ(first.batch().pixels[0], pixel_of(2 * 4));
  second = ReadLease();
  ASSERT_TRUE(producer.returns(1));
  first = ReadLease();
  ASSERT_TRUE(producer.returns(2));
  EXPECT_EQ(producer.returned(), (std::vector<std::uint64_t>{101, 100}));
  EXPECT_EQ(consumer.counter("bytes_lent"), 2 * 360);
  EXPECT_EQ(consumer.counter("bytes_copied"), 2 * 16);  // the labels
  EXPECT_EQ(consumer.counter("leases_cut_short"), 0);
  EXPECT_TRUE(says(consumer.all_notes(), "are lent to the device"));
}

TEST_F(CreditLend, LeasesComeBackWhileTheRingIsFull) {
  RunningConsumer consumer(options(), 20s, {}, ring(2));
  Lender producer(endpoint(), 8);
  for (std::uint64_t i = 0; i < 4; ++i) {
    producer.await_credit(i + 1);
    producer.lend(i, producer.fill(i, i, i));
  }
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(is(take(consumer), i));
    ASSERT_TRUE(producer.returns(i + 1));
    EXPECT_EQ(producer.returned()[i], i);
  }
}

TEST_F(CreditLend, LeasesComeBackAtTheEndOfTheData) {
  RunningConsumer consumer(options(",producers=1"), 20s, {}, ring(3));
  Lender producer(endpoint(), 5);
  for (std::uint64_t i = 0; i < 2; ++i) producer.lend(i, producer.fill(i, i, i));
  producer.send(end_message(2));
  ReadLease first = take(consumer), second = take(consumer);
  EXPECT_TRUE(is(first, 0) && is(second, 1));
  EXPECT_FALSE(take(consumer)) << "readers need not wait for each other";
  first = ReadLease();
  ASSERT_TRUE(producer.returns(1));
  second = ReadLease();
  ASSERT_TRUE(producer.returns(2));
}

/// The device reports completion only by events; the first copy takes 36 ms.
TEST_F(CreditLend, LeasesComeBackOnceASlowDeviceIsDone) {
  SteadyClock clock;
  HostDevice slow(clock, {.copy_bytes_per_s = 1e4});
  RunningConsumer consumer(options(), 20s, {}, ring(3, &slow));
  Lender producer(endpoint(), 8);
  const auto stream = slow.make_stream();
  std::vector<std::byte> copy(kSmall.pixel_bytes());
  for (std::uint64_t i = 0; i < 8; ++i) {
    producer.await_credit(i + 1);
    producer.lend(i, producer.fill(i, i, i));
    ReadLease lease = take(consumer);
    EXPECT_TRUE(is(lease, i));
    stream->copy(copy, lease.batch().pixels);
    std::move(lease).release(*stream);
  }
  ASSERT_TRUE(producer.returns(8));
}

TEST_F(CreditLend, EachOfManyLeasesComesBackOnce) {
  constexpr std::uint64_t kBatches = 300, kFrames = 12;
  RunningConsumer consumer("credit=5,endpoint=" + endpoint(), 20s, {}, ring(4));
  Lender producer(endpoint(), kFrames);
  std::jthread reader([&] {
    std::deque<std::pair<std::uint64_t, ReadLease>> held;
    for (std::uint64_t i = 0; i < kBatches; ++i) {
      held.emplace_back(i, take(consumer));
      while (held.size() > i % 3) {
        EXPECT_TRUE(is(held.front().second, held.front().first % 25));
        held.pop_front();
      }
    }
  });
  std::vector<std::uint64_t> free(kFrames);
  for (std::uint64_t i = 0; i < kFrames; ++i) free[i] = i;
  std::size_t heard = 0;
  const auto hear = [&] {
    ASSERT_TRUE(producer.hear_any());
    for (; heard < producer.returned().size(); ++heard) {
      free.push_back(producer.returned()[heard] % kFrames);
    }
  };
  for (std::uint64_t i = 0; i < kBatches; ++i) {
    while (free.empty() || producer.credit() <= i) hear();
    // The lease's number identifies the frame.
    producer.lend(i, producer.fill(i % 25, free.back(), 1000 * kFrames * i + free.back()));
    free.pop_back();
  }
  while (producer.returned().size() < kBatches) hear();
  const std::set<std::uint64_t> different(producer.returned().begin(), producer.returned().end());
  EXPECT_EQ(different.size(), kBatches);
  EXPECT_EQ(consumer.counter("bytes_lent"), static_cast<std::int64_t>(360 * kBatches));
}

TEST_F(CreditLend, LoansOfALostProducerStayAndAreCounted) {
  RunningConsumer consumer(options(), 20s, {}, ring(4));
  std::vector<ReadLease> held;
  {
    Lender producer(endpoint());
    for (std::uint64_t i = 0; i < 2; ++i) {
      producer.lend(i, producer.fill(i, i, i));
      held.push_back(take(consumer));
    }
  }
  EXPECT_TRUE(reaches(consumer, "producers_lost", 1));
  EXPECT_EQ(consumer.counter("leases_cut_short"), 2);
  EXPECT_TRUE(says(consumer.all_notes(), "2 are in its memory"));
  Lender other(endpoint(), 4, 8);
  for (std::uint64_t i = 0; i < 10; ++i) {
    other.await_credit(i + 1);
    other.lend(i, other.fill(i, i % 2, 7));
    EXPECT_TRUE(is(take(consumer), i));
    ASSERT_TRUE(other.returns(i + 1));
    EXPECT_TRUE(is(held[0], 0) && is(held[1], 1));
  }
  held.clear();
  other.lend(10, other.fill(10, 0, 7));
  EXPECT_TRUE(is(take(consumer), 10));
  ASSERT_TRUE(other.returns(11));  // and none of the first producer's leases
}

TEST_F(CreditLend, LoansOutliveTheFeeder) {
  RunningConsumer consumer(options(), 20s, {}, ring(3));
  Lender producer(endpoint());
  producer.lend(0, producer.fill(0, 0, 0));
  producer.lend(1, producer.fill(1, 1, 1));
  ReadLease held = take(consumer);
  EXPECT_TRUE(reaches(consumer, "images_received", 8));
  consumer.destroy();
  EXPECT_TRUE(is(held, 0));
  EXPECT_TRUE(is(take(consumer), 1));
  EXPECT_TRUE(is(held, 0));
}

TEST_F(CreditLend, AProducerGoesOnWhenItsConsumerEndedWithLeasesOut) {
  Server server(endpoint(), false, Way::shared, 6);
  server.feed(0);
  server.start();
  {
    RunningConsumer consumer(options(), 20s, {}, ring(3));
    const ReadLease first = take(consumer), second = take(consumer);
    EXPECT_TRUE(is(first, 0) && is(second, 1));
    consumer.destroy();
  }
  EXPECT_TRUE(server.reaches("leases_lost", 2));
  RunningConsumer consumer(options(), 20s, {}, ring(3));
  std::optional<std::uint64_t> last;
  for (int i = 0; i < 60; ++i) {
    const ReadLease lease = take(consumer);
    const auto index = static_cast<std::uint64_t>(lease.batch().labels[0]) / 4;
    EXPECT_TRUE(is(lease, index));
    EXPECT_TRUE(!last || index == (*last + 1) % 25) << *last << " before " << index;
    last = index;
  }
}

TEST_F(CreditLend, CopiesGiveLeasesBackAtOnce) {
  RunningConsumer consumer(options(",copy=true"), 20s, {}, ring(3));
  expect_copied(consumer, "copy=true");
  EXPECT_EQ(consumer.counter("bytes_lent"), 0);
  EXPECT_EQ(consumer.counter("bytes_copied"), 376);
}

/// A device that copies only from its driver's memory.
class ChoosyDevice final : public HostDevice {
 public:
  using HostDevice::HostDevice;
  bool takes_any_memory() const noexcept override { return false; }
};

TEST_F(CreditLend, MemoryThatADeviceCannotReadIsCopied) {
  SteadyClock clock;
  ChoosyDevice device(clock);
  RunningConsumer consumer(options(), 20s, {}, ring(3, &device));
  expect_copied(consumer, "cannot read memory");
}

TEST_F(CreditLend, ReadersThatNeedTheirOwnMemoryGetCopies) {
  RunningConsumer consumer(options());
  expect_copied(consumer, "need their own memory");
}

TEST_F(CreditLend, ALeaseThatIsRefusedComesBackAtOnce) {
  RunningConsumer consumer(options(), 20s, kSkip, ring(3));
  Lender producer(endpoint());
  const remote::FramedLease lease = producer.fill(0, 0, 1);
  const std::int32_t label = 100;  // there are 100 classes
  std::memcpy(producer.pool().slot(0).data() + lease.bytes - 4, &label, 4);
  producer.lend(0, lease);
  ASSERT_TRUE(producer.returns(1));
  EXPECT_EQ(consumer.counter("messages_rejected"), 1);
  EXPECT_TRUE(says(consumer.all_notes(), "label 3 is 100"));
  producer.await_credit(2);
  producer.lend(1, producer.fill(1, 1, 2));
  EXPECT_TRUE(is(take(consumer), 1));
  ASSERT_TRUE(producer.returns(2));
}

TEST_F(CreditLend, AProducerWithLessMemoryThanTheRingIsNamed) {
  RunningConsumer consumer(options(), 20s, {}, ring(3));
  Lender enough(endpoint(), 5);
  EXPECT_TRUE(consumer.all_notes().empty()) << consumer.all_notes();
  Lender few(endpoint(), 4, 8);
  EXPECT_TRUE(says(consumer.all_notes(), "shares memory for 4 batches"));
}

// ---- lent slots --------------------------------------------------------------

class HandSetEvent final : public Event {
 public:
  bool wait_until(Time) const override { return reached; }
  Nanoseconds since(const Event&) const override { return {}; }
  std::atomic<bool> reached{false};
};

class LentSlotsTest : public ::testing::Test {
 protected:
  LentSlotsTest() {
    for (std::int32_t slot = 0; slot < 3; ++slot) slots_.keep(slot, nullptr);
  }
  bool is_rung() const {
    pollfd item{slots_.fd(), POLLIN, 0};
    return poll(&item, 1, 0) == 1;
  }
  std::vector<std::int32_t> collect() {
    std::vector<std::int32_t> back;
    news_ = slots_.collect([&](std::int32_t slot) { back.push_back(slot); });
    return back;
  }

  SteadyClock clock_;
  remote::LentSlots slots_{clock_};
  remote::LentSlots::News news_;
};

TEST_F(LentSlotsTest, SlotsThatCameBackRingOnceAndAreCollectedOnce) {
  EXPECT_FALSE(is_rung());
  EXPECT_TRUE(collect().empty());
  EXPECT_FALSE(news_.any);
  slots_.returned(2, nullptr);
  slots_.returned(0, nullptr);
  EXPECT_TRUE(is_rung());
  EXPECT_EQ(collect(), (std::vector<std::int32_t>{2, 0}));
  EXPECT_TRUE(news_.any);
  EXPECT_FALSE(news_.pending);
  EXPECT_FALSE(is_rung());
  EXPECT_TRUE(collect().empty());
}

TEST_F(LentSlotsTest, ASlotThatADeviceStillReadsIsCollectedWhenItIsDone) {
  HandSetEvent event;
  slots_.returned(1, &event);
  slots_.returned(2, nullptr);
  EXPECT_EQ(collect(), (std::vector<std::int32_t>{2}));
  EXPECT_TRUE(news_.any && news_.pending);
  EXPECT_TRUE(collect().empty());
  EXPECT_TRUE(!news_.any && news_.pending);
  event.reached = true;
  EXPECT_EQ(collect(), (std::vector<std::int32_t>{1}));
  EXPECT_FALSE(news_.pending);
}

TEST_F(LentSlotsTest, MemoryIsKeptUntilItsSlotIsCollected) {
  auto memory = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = memory;
  slots_.keep(1, std::move(memory));
  HandSetEvent event;
  slots_.returned(1, &event);
  collect();
  EXPECT_FALSE(seen.expired());
  event.reached = true;
  collect();
  EXPECT_TRUE(seen.expired());
}

TEST_F(LentSlotsTest, AWaitEndsWithNewsOrAWakeFromAnyThread) {
  slots_.wait(1ms);  // no news
  std::jthread other([&] { slots_.returned(0, nullptr); });
  slots_.wait(20s);
  EXPECT_EQ(collect(), (std::vector<std::int32_t>{0}));
  other = std::jthread([&] { slots_.wake(); });
  slots_.wait(20s);
  EXPECT_TRUE(is_rung());
  EXPECT_TRUE(collect().empty());
}

}  // namespace
}  // namespace penstock
