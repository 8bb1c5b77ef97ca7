// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/lent_slots.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>

namespace penstock {
namespace {

using namespace std::chrono_literals;

class HandSetEvent final : public Event {
 public:
  bool wait_until(Time) const override { return reached; }
  Nanoseconds since(const Event&) const override { return {}; }
  std::atomic<bool> reached{false};
};

class LentSlotsTest : public ::testing::Test {
 protected:
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
  remote::LentSlots slots_{3, clock_};
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
