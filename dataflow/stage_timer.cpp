// SPDX-License-Identifier: Apache-2.0
#include "dataflow/stage_timer.h"

#include <time.h>

namespace penstock {

Nanoseconds thread_cpu_time() noexcept {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
}

StageTimer::Item::Item(StageTimer& timer) noexcept
    : timer_(timer), timed_(timer.is_on() && timer.until_timed_ == 0) {
  restart();
}

void StageTimer::Item::restart() noexcept {
  if (!timed_) return;
  wall_begin_ = timer_.clock_->now();
  cpu_begin_ = thread_cpu_time();
}

Nanoseconds StageTimer::Item::done(std::int64_t images, std::int64_t bytes) noexcept {
  if (!timer_.is_on()) return {};
  StageCounters& counters = *timer_.counters_;
  Nanoseconds cpu{};
  if (timed_) {
    cpu = thread_cpu_time() - cpu_begin_;
    counters.cpu_ns.add(cpu.count());
    counters.wall_ns.add((timer_.clock_->now() - wall_begin_).count());
    counters.timed_items.add();
  }
  counters.items.add();
  counters.images.add(images);
  counters.bytes.add(bytes);
  timer_.until_timed_ = (timed_ ? timer_.period_ : timer_.until_timed_) - 1;
  return cpu;
}

}  // namespace penstock
