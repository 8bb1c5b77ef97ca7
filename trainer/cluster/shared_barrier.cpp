// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/shared_barrier.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <limits>
#include <thread>

namespace penstock::cluster {
namespace {

/// Interval between checks of stops and deadlines.
constexpr std::timespec kSleep{.tv_sec = 0, .tv_nsec = 20'000'000};

void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, value, &kSleep, nullptr,
          0);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE,
          std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace

void SharedBarrierRank::meet(const ExchangeWait& wait) {
  const std::uint32_t generation = barrier_.generation.load();
  if (barrier_.waiting.fetch_add(1) + 1 == ranks_) {
    barrier_.waiting.store(0);
    barrier_.generation.store(generation + 1);
    if (barrier_.sleeping.load() > 0) wake_all(barrier_.generation);
    return;
  }
  const auto met = [&] { return barrier_.generation.load() != generation; };
  for (ExchangeWait::Attempt attempt(wait); !met();) {
    if (!attempt.lasts()) {
      std::this_thread::yield();
      continue;
    }
    // The last rank either sees a sleeping rank, or has already advanced the generation.
    barrier_.sleeping.fetch_add(1);
    if (!met()) sleep_while(barrier_.generation, generation);
    barrier_.sleeping.fetch_sub(1);
  }
}

}  // namespace penstock::cluster
