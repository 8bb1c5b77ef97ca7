// SPDX-License-Identifier: Apache-2.0
#include "dataflow/clock.h"

#include <sys/prctl.h>
#include <time.h>

#include <cerrno>

namespace penstock {
namespace {

/// In the C++ libraries of GCC and LLVM on Linux, std::chrono::steady_clock is this clock.
constexpr clockid_t kSteady = CLOCK_MONOTONIC;

void sleep_to(Time deadline) {
  using std::chrono::seconds;
  const auto whole = std::chrono::floor<seconds>(deadline.time_since_epoch());
  const timespec moment{.tv_sec = whole.count(),
                        .tv_nsec = Nanoseconds(deadline.time_since_epoch() - whole).count()};
  while (clock_nanosleep(kSteady, TIMER_ABSTIME, &moment, nullptr) == EINTR) {
  }
}

/// Timer slack is the delay that the kernel may add to a wake-up to wake several threads at once.
void set_least_timer_slack() {
  thread_local bool is_set = false;
  if (is_set) return;
  prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds; if refused, only precision is lost
  is_set = true;
}

}  // namespace

Time SteadyClock::now() const { return std::chrono::steady_clock::now(); }

void SteadyClock::sleep_until(Time deadline, std::stop_token stop) {
  if (deadline <= now()) return;
  if (!stop.stop_possible()) {
    sleep_to(deadline);
    return;
  }
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_until(lock, stop, deadline, [] { return false; });
}

Nanoseconds SteadyClock::sleep_exactly_until(Time deadline, Nanoseconds spin) {
  const Time begin = now();
  if (deadline <= begin) return {};
  if (deadline - begin > spin) {
    set_least_timer_slack();
    sleep_to(deadline - spin);
  }
  const Time awake = now();
  Time moment = awake;
  while (moment < deadline) moment = now();
  return moment - awake;
}

void SteadyClock::wake(Gate& gate) { gate.condition.notify_all(); }

bool SteadyClock::wait_for_condition(std::unique_lock<std::mutex>& lock, Gate& gate,
                                     std::stop_token stop, Condition ready) {
  return gate.condition.wait(lock, std::move(stop), ready);
}

}  // namespace penstock
