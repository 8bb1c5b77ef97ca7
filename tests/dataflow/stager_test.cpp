// SPDX-License-Identifier: Apache-2.0
#include "dataflow/stager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <vector>

#include "dataflow/host_device.h"

namespace penstock {
namespace {

constexpr BatchSpec kSpec{.images = 2, .image = {3, 3, 3}};

class StagerTest : public ::testing::Test {
 protected:
  SteadyClock clock_;
  HostDevice device_{clock_};
  Device* const devices_[2] = {&device_, &device_};
  BatchRing host_{kSpec, 3, device_, MemoryKind::pinned, devices_, Order::relaxed, clock_};
  BatchRing first_{kSpec,          2,     device_, MemoryKind::device, std::span(devices_, 1),
                   Order::relaxed, clock_};
  BatchRing second_{kSpec,          2,     device_, MemoryKind::device, std::span(devices_, 1),
                    Order::relaxed, clock_};
};

TEST_F(StagerTest, EveryBatchArrivesOnceWithItsPixelsLabelsAndCount) {
  constexpr std::int32_t kBatches = 500;
  std::vector<std::int32_t> seen;
  std::mutex mutex;
  {
    std::vector<std::jthread> threads;
    threads.emplace_back([&] { Stager(host_, 0, first_, device_).run({}); });
    threads.emplace_back([&] { Stager(host_, 1, second_, device_).run({}); });
    for (BatchRing* ring : {&first_, &second_}) {
      threads.emplace_back([&, ring] {
        while (ReadLease lease = ring->next(0, {})) {
          const Batch& batch = lease.batch();
          const auto expected = static_cast<std::byte>(batch.labels[0]);
          const std::lock_guard lock(mutex);
          EXPECT_EQ(std::count(batch.pixels.begin(), batch.pixels.end(), expected), 54);
          EXPECT_EQ(batch.valid, batch.labels[1]);
          seen.push_back(batch.labels[0]);
        }
      });
    }
    for (std::int32_t count = 0; count < kBatches; ++count) {
      WriteLease lease = host_.acquire({});
      std::fill(lease.batch().pixels.begin(), lease.batch().pixels.end(),
                static_cast<std::byte>(count));
      lease.batch().labels[0] = count;
      lease.batch().valid = lease.batch().labels[1] = 1 + count % 2;
      std::move(lease).publish();
    }
    host_.close();
  }
  std::sort(seen.begin(), seen.end());
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(kBatches));
  for (std::int32_t count = 0; count < kBatches; ++count) {
    EXPECT_EQ(seen[static_cast<std::size_t>(count)], count);
  }
}

TEST_F(StagerTest, PassesTheFeedersFailureDown) {
  host_.fail(std::make_exception_ptr(std::runtime_error("disk gone")));
  Stager(host_, 0, first_, device_).run({});
  EXPECT_THROW(static_cast<void>(first_.next(0, {})), std::runtime_error);
}

TEST_F(StagerTest, EndsWhenItsReaderLeaves) {
  std::stop_source stop;
  std::jthread thread([&] { Stager(host_, 0, first_, device_).run(stop.get_token()); });
  WriteLease lease = host_.acquire({});
  std::move(lease).publish();
  const ReadLease read = first_.next(0, {});
  EXPECT_TRUE(read);
  first_.close();
  host_.close();
  thread.join();
  EXPECT_EQ(first_.monitor().stats().published, 1U);
}

TEST_F(StagerTest, HoldsNoBatchWhileItsDeviceIsFull) {
  // Both device slots are filled, so a third batch stays in the host ring for other stagers.
  std::jthread thread([&] { Stager(host_, 0, first_, device_).run({}); });
  for (std::int32_t count = 0; count < 3; ++count) {
    WriteLease lease = host_.acquire({});
    lease.batch().labels[0] = count;
    std::move(lease).publish();
  }
  const ReadLease first = first_.next(0, {}), second = first_.next(0, {});
  EXPECT_TRUE(first && second);
  const ReadLease left = host_.next(1, {});
  EXPECT_EQ(left.batch().labels[0], 2);
  host_.close();
}

/// The host ring has one slot, which the stager gives back when a training loop would ask for the
/// next batch.
TEST_F(StagerTest, KeepsABatchUntilItsStepIsLaunchedOrHasEnded) {
  for (const Holding holding : {Holding::launched, Holding::read}) {
    SCOPED_TRACE(static_cast<int>(holding));
    BatchRing host(kSpec, 1, device_, MemoryKind::pinned, std::span(devices_, 1), Order::relaxed,
                   clock_);
    BatchRing ring(kSpec, 1, device_, MemoryKind::device, std::span(devices_, 1), Order::relaxed,
                   clock_);
    std::jthread thread([&] { Stager(host, 0, ring, device_, {}, holding).run({}); });
    const auto stream = device_.make_stream();
    Time ended{};
    for (std::int32_t count = 0; count < 3; ++count) {
      WriteLease lease = host.acquire({});
      lease.await();
      EXPECT_GE(clock_.now(), ended) << "batch " << count;
      std::move(lease).publish();
      ReadLease read = ring.next(0, {});
      ASSERT_TRUE(read);
      EXPECT_EQ(host.monitor().stats().published, static_cast<std::uint64_t>(count) + 1);
      if (holding == Holding::read) {
        static_cast<Timeline*>(stream->native())->occupy(std::chrono::milliseconds(20));
        ended = static_cast<Timeline*>(stream->native())->free_at();
      }
      std::move(read).release(*stream);
    }
    host.close();
  }
}

}  // namespace
}  // namespace penstock
