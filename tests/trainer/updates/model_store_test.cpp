// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/model_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/rank_threads.h"
#include "tests/support/uniform_model.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class ModelStores : public ::testing::Test {
 protected:
  static constexpr std::size_t kCount = 5000;

  std::unique_ptr<cluster::ThreadsModelStore> make(std::int32_t ranks, std::stop_token stop = {}) {
    const std::vector<Device*> devices(static_cast<std::size_t>(ranks), &device_);
    return std::make_unique<cluster::ThreadsModelStore>(devices, clock_, std::move(stop));
  }
  /// Forwards to a host stream, and calls `in_copy` before each copy.
  class WatchedStream final : public Stream {
   public:
    WatchedStream(Device& device, std::function<void()> in_copy)
        : stream_(device.make_stream()), in_copy_(std::move(in_copy)) {}
    void record(Event& event) override { stream_->record(event); }
    void wait_for(const Event& event) override { stream_->wait_for(event); }
    void copy(std::span<std::byte> to, std::span<const std::byte> from) override {
      in_copy_();
      stream_->copy(to, from);
    }
    std::unique_ptr<Program> capture(const std::function<void()>& enqueue) override {
      return stream_->capture(enqueue);
    }
    void* native() noexcept override { return stream_->native(); }

   private:
    std::unique_ptr<Stream> stream_;
    std::function<void()> in_copy_;
  };

  SteadyClock clock_;
  HostDevice device_{clock_};
  std::unique_ptr<Stream> stream_ = device_.make_stream();
};

TEST_F(ModelStores, HaveNothingToReadBeforeAnythingIsPublished) {
  const auto store = make(2);
  UniformModel mine(kCount, 7);
  EXPECT_EQ(store->read(0, 1, mine.tensor(), *stream_), std::nullopt);
  EXPECT_EQ(mine.value(), 7);
}

TEST_F(ModelStores, GiveTheNewestModelOfTheOneWhoIsAsked) {
  const auto store = make(3);
  UniformModel published(kCount, 0), mine(kCount, -1);
  for (std::int64_t version = 0; version < 7; ++version) {
    for (const std::int32_t owner : {1, 2}) {
      published.fill(static_cast<float>(100 * owner + version));
      store->publish(owner, 3 * version, published.tensor(), *stream_);
    }
    for (const std::int32_t owner : {1, 2}) {
      EXPECT_EQ(store->read(0, owner, mine.tensor(), *stream_), 3 * version);
      EXPECT_EQ(mine.value(), static_cast<float>(100 * owner + version));
    }
  }
}

TEST_F(ModelStores, GiveAReaderOneModelWhileItsOwnerPublishesOthers) {
  const auto store = make(2);
  UniformModel published(kCount, 1), mine(kCount, 0);
  store->publish(1, 1, published.tensor(), *stream_);
  WatchedStream reading(device_, [&] {
    for (const float version : {2.F, 3.F, 4.F, 5.F}) {  // more than there are snapshots
      published.fill(version);
      store->publish(1, static_cast<std::int64_t>(version), published.tensor(), *stream_);
    }
  });
  EXPECT_EQ(store->read(0, 1, mine.tensor(), reading), 1);
  EXPECT_EQ(mine.value(), 1);
  EXPECT_EQ(store->read(0, 1, mine.tensor(), *stream_), 5);
  EXPECT_EQ(mine.value(), 5);
}

TEST_F(ModelStores, GiveWhatIsCompleteWhileAnotherIsBeingPublished) {
  const auto store = make(2);
  UniformModel published(kCount, 1), mine(kCount, 0);
  store->publish(1, 1, published.tensor(), *stream_);
  std::optional<std::int64_t> version;
  WatchedStream publishing(device_, [&] { version = store->read(0, 1, mine.tensor(), *stream_); });
  published.fill(2);
  store->publish(1, 2, published.tensor(), publishing);
  EXPECT_EQ(version, 1);
  EXPECT_EQ(mine.value(), 1);
}

TEST_F(ModelStores, LetAPublisherWaitOnlyWhileAllButTheNewestAreRead) {
  std::stop_source stop;
  const auto store = make(4, stop.get_token());
  UniformModel published(kCount, 0);
  const auto publish = [&](std::int64_t version) {
    published.fill(static_cast<float>(version));
    store->publish(3, version, published.tensor(), *stream_);
  };
  publish(1);
  UniformModel first(kCount, 0), second(kCount, 0);
  std::future<void> blocked;
  WatchedStream reads_second(device_, [&] {
    publish(3);  // readers hold 1 and 2: the third snapshot is the newest from here on
    blocked = std::async(std::launch::async, [&] {
      const auto own = device_.make_stream();
      UniformModel fourth(kCount, 4);
      store->publish(3, 4, fourth.tensor(), *own);
    });
    stop.request_stop();
    EXPECT_THROW(blocked.get(), Error);
  });
  WatchedStream reads_first(device_, [&] {
    publish(2);
    EXPECT_EQ(store->read(1, 3, second.tensor(), reads_second), 2);
  });
  EXPECT_EQ(store->read(0, 3, first.tensor(), reads_first), 1);
  EXPECT_EQ(first.value(), 1);
  EXPECT_EQ(second.value(), 2);
  publish(4);  // without readers there is room again, also while stopping
}

TEST_F(ModelStores, NeverMixTwoModelsUnderFreeRunningRanks) {
  constexpr std::int32_t kRanks = 4;
  const auto store = make(kRanks);
  for (std::int32_t rank = 0; rank < kRanks; ++rank) {
    UniformModel first(kCount, 0);
    store->publish(rank, 0, first.tensor(), *stream_);
  }
  run_ranks(kRanks, [&](std::int32_t rank) {
    const auto own = device_.make_stream();
    expect_whole_models(*store, rank, kRanks, 300, kCount, *own);
  });
}

TEST_F(ModelStores, CarryModelsOfDevicesThatHaveNoWeights) {
  const auto store = make(2);
  store->publish(1, 4, {}, *stream_);
  EXPECT_EQ(store->read(0, 1, {}, *stream_), 4);
}

}  // namespace
}  // namespace penstock
