// SPDX-License-Identifier: Apache-2.0
// The simulated clock that other tests rely on.
#include "tests/support/virtual_clock.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace penstock {
namespace {

using namespace std::chrono_literals;

TEST(VirtualClock, SleepingAloneJumps) {
  VirtualClock clock;
  const Clock::Participant self(clock);
  const Time start = clock.now();
  clock.sleep_until(start + 1000h);
  EXPECT_EQ(clock.now() - start, 1000h);
}

TEST(VirtualClock, TimeStandsStillWhileSomebodyCanRun) {
  VirtualClock clock;
  const Time start = clock.now();
  std::vector<int> order;
  std::mutex mutex;
  std::vector<Clock::Participant> participants;
  for (int i = 0; i < 2; ++i) participants.emplace_back(clock);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back(
        [&, thread, self = std::move(participants[static_cast<std::size_t>(thread)])] {
          for (int step = 1; step <= 3; ++step) {
            clock.sleep_until(start + step * (thread == 0 ? 10ms : 15ms));
            const std::lock_guard lock(mutex);
            order.push_back(thread);
          }
        });
  }
  for (std::jthread& thread : threads) thread.join();
  EXPECT_EQ(clock.now() - start, 45ms);
  // 10 (0), 15 (1), 20 (0), 30 (both, in either order), 45 (1).
  ASSERT_EQ(order.size(), 6U);
  EXPECT_EQ(order[0], 0);
  EXPECT_EQ(order[1], 1);
  EXPECT_EQ(order[2], 0);
  EXPECT_EQ(order[3] + order[4], 1);
  EXPECT_EQ(order[5], 1);
}

TEST(VirtualClock, AWokenThreadRunsBeforeTimeMoves) {
  VirtualClock clock;
  const Time start = clock.now();
  std::mutex mutex;
  Gate gate;
  int tokens = 0;
  std::vector<Nanoseconds> taken;
  std::vector<Clock::Participant> participants;
  for (int i = 0; i < 2; ++i) participants.emplace_back(clock);
  std::jthread taker([&, self = std::move(participants[0])] {
    for (int i = 0; i < 100; ++i) {
      std::unique_lock lock(mutex);
      clock.wait(lock, gate, {}, [&] { return tokens > 0; });
      --tokens;
      taken.push_back(clock.now() - start);
    }
  });
  std::jthread giver([&, self = std::move(participants[1])] {
    for (int i = 1; i <= 100; ++i) {
      clock.sleep_until(start + i * 1s);
      const std::lock_guard lock(mutex);
      ++tokens;
      clock.wake(gate);
    }
  });
  taker.join();
  giver.join();
  for (int i = 1; i <= 100; ++i) EXPECT_EQ(taken[static_cast<std::size_t>(i - 1)], i * 1s);
}

TEST(VirtualClock, StopEndsAWait) {
  VirtualClock clock;
  std::mutex mutex;
  Gate gate;
  std::stop_source stop;
  bool result = true;
  Clock::Participant participant(clock);
  std::jthread waiter([&, self = std::move(participant)] {
    std::unique_lock lock(mutex);
    result = clock.wait(lock, gate, stop.get_token(), [] { return false; });
  });
  stop.request_stop();
  waiter.join();
  EXPECT_FALSE(result);
}

}  // namespace
}  // namespace penstock
