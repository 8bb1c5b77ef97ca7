// SPDX-License-Identifier: Apache-2.0
#include "dataflow/stager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

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

/// A device whose streams do their work at the last moment: when a thread waits for one of their
/// events, or another stream needs it. So an order that no event asks for is not kept.
class LateDevice final : public Device {
 public:
  explicit LateDevice(Clock& clock) : memory_(clock) {}
  Buffer allocate(std::size_t bytes, MemoryKind kind) override {
    return memory_.allocate(bytes, kind);
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<LateStream>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<LateEvent>(); }

 private:
  /// What a stream has still to do. It outlives the stream. One mutex serves all streams, because
  /// they wait for each other.
  struct Work {
    void add(std::function<void()> step) {
      const std::lock_guard lock(mutex);
      steps.push_back(std::move(step));
    }
    void run_to(std::size_t place) {
      const std::lock_guard lock(mutex);
      while (done < place) {
        steps.front()();
        steps.pop_front();
        ++done;
      }
    }
    inline static std::recursive_mutex mutex;
    std::deque<std::function<void()>> steps;
    std::size_t done = 0;
  };
  class LateEvent final : public Event {
   public:
    bool wait_until(Time) const override {
      if (work) work->run_to(place);
      return true;
    }
    Nanoseconds since(const Event&) const override { return {}; }
    std::shared_ptr<Work> work;
    std::size_t place = 0;
  };
  class LateStream final : public Stream {
   public:
    void record(Event& event) override {
      const std::lock_guard lock(Work::mutex);
      static_cast<LateEvent&>(event).work = work_;
      static_cast<LateEvent&>(event).place = work_->done + work_->steps.size();
    }
    void wait_for(const Event& event) override {
      const auto& late = static_cast<const LateEvent&>(event);
      if (!late.work) return;
      work_->add([work = late.work, place = late.place] { work->run_to(place); });
    }
    void copy(std::span<std::byte> to, std::span<const std::byte> from) override {
      work_->add([to, from] { std::ranges::copy(from, to.begin()); });
    }
    std::unique_ptr<Program> capture(const std::function<void()>& enqueue) override {
      return std::make_unique<Closure>(enqueue);
    }
    void* native() noexcept override { return nullptr; }

   private:
    const std::shared_ptr<Work> work_ = std::make_shared<Work>();
  };

  HostDevice memory_;
};

TEST_F(StagerTest, CopiesEachBatchWholeOnADeviceThatWorksAsLateAsItMay) {
  constexpr std::int32_t kBatches = 12;
  constexpr std::size_t kBytes = 54;
  LateDevice late(clock_);
  Device* const reader = &late;
  BatchRing host(kSpec, 3, late, MemoryKind::pinned, std::span(&reader, 1), Order::relaxed, clock_);
  BatchRing ring(kSpec, 2, late, MemoryKind::device, std::span(&reader, 1), Order::relaxed, clock_);
  std::vector<std::vector<std::byte>> read(kBatches, std::vector<std::byte>(kBytes));
  const auto stream = late.make_stream();
  const auto done = late.make_event();
  {
    std::jthread staging([&] { Stager(host, 0, ring, late).run({}); });
    std::jthread feeding([&] {
      for (std::int32_t count = 0; count < kBatches; ++count) {
        WriteLease lease = host.acquire({});
        lease.await();
        std::ranges::fill(lease.batch().pixels, static_cast<std::byte>(count));
        std::move(lease).publish();
      }
      host.close();
    });
    for (std::vector<std::byte>& batch : read) {
      ReadLease lease = ring.next(0, {});
      ASSERT_TRUE(lease);
      lease.await(*stream);
      stream->copy(batch, lease.batch().pixels);
      std::move(lease).release(*stream);
    }
  }
  stream->record(*done);
  done->wait_until(Time::max());
  for (std::int32_t count = 0; count < kBatches; ++count) {
    EXPECT_EQ(read[static_cast<std::size_t>(count)],
              std::vector(kBytes, static_cast<std::byte>(count)));
  }
}

}  // namespace
}  // namespace penstock
