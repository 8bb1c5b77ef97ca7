// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/workers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <thread>

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// A latch with a timeout: false if not all threads arrived in time.
class Meeting {
 public:
  explicit Meeting(int expected) : missing_(expected) {}
  bool arrive_and_wait() {
    std::unique_lock lock(mutex_);
    --missing_;
    changed_.notify_all();
    return changed_.wait_for(lock, 10s, [this] { return missing_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int missing_;
};

TEST(Workers, EachHasAThread) {
  constexpr std::int32_t kWorkers = 9;  // more than this machine may have cores
  Meeting meeting(kWorkers);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  bool met = true;
  run_workers(kWorkers, [&](std::int32_t) {
    const bool all = meeting.arrive_and_wait();
    const std::lock_guard lock(mutex);
    met = met && all;
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_TRUE(met);
  EXPECT_EQ(threads.size(), kWorkers);
}

/// Like an evaluation's decoding beside a feeder that has no slot.
TEST(Workers, ACallHasItsThreadsWhileAllThreadsOfAnotherCallWait) {
  for (const std::int32_t waiting : {1, 2, 4}) {
    Meeting all_wait(waiting + 1);
    std::promise<void> end;
    const std::shared_future<void> ended = end.get_future().share();
    std::jthread feeder([&] {
      run_workers(waiting, [&](std::int32_t) {
        all_wait.arrive_and_wait();
        ended.wait_for(60s);
      });
    });
    ASSERT_TRUE(all_wait.arrive_and_wait());
    Meeting both(2);
    std::array<bool, 2> met{};
    run_workers(2, [&](std::int32_t worker) {
      met[static_cast<std::size_t>(worker)] = both.arrive_and_wait();
    });
    EXPECT_TRUE(met[0] && met[1]) << "beside " << waiting;
    end.set_value();
  }
}

/// The nice values of a call's worker threads, if the calling thread has nice value `nice`.
std::array<int, 3> nice_of_workers(int nice) {
  std::array<int, 3> found{};
  std::jthread([&] {
    setpriority(PRIO_PROCESS, 0, nice);
    Meeting meeting(3);
    run_workers(3, [&](std::int32_t worker) {
      meeting.arrive_and_wait();
      found[static_cast<std::size_t>(worker)] = getpriority(PRIO_PROCESS, 0);
    });
  }).join();
  return found;
}

/// Like the feeder's workers beside `--device cpu`, after an index was made at normal priority.
TEST(Workers, YieldAsMuchAsTheirCallerAlsoAfterAnotherCallUsedThem) {
  const int normal = getpriority(PRIO_PROCESS, 0);
  ASSERT_LT(normal, 19) << "run the tests at a higher priority";
  const std::array<int, 3> first = nice_of_workers(normal);
  EXPECT_TRUE(std::ranges::all_of(first, [&](int nice) { return nice >= normal; }));
  for (const int nice : nice_of_workers(19)) EXPECT_EQ(nice, 19);
}

}  // namespace
}  // namespace penstock
