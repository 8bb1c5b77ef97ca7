// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/workers.h"

#include <signal.h>
#include <sys/resource.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock {

void expect_threads(std::int32_t count) {
  std::vector<pid_t> ids(static_cast<std::size_t>(std::max(count, 0)));
  {
    std::latch end(1);
    std::vector<std::jthread> threads;
    struct AtEnd {
      std::latch& end;
      ~AtEnd() { end.count_down(); }
    } const at_end{end};  // before the threads are joined
    for (pid_t& id : ids) {
      threads.emplace_back([&end, &id] {
        id = gettid();
        end.wait();
      });
    }
  }
  // After its join, a thread still counts towards the limit on processes until it has run to its
  // end, which takes a while on a busy machine.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (const pid_t id : ids) {
    while (tgkill(getpid(), id, 0) == 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

#if defined(__SANITIZE_THREAD__)

// The thread sanitizer cannot see into the system's libtbb, and would report every hand-over as a
// race. So it checks the same workers on plain threads.
void run_workers(std::int32_t count, const std::function<void(std::int32_t)>& work) {
  std::vector<std::jthread> others;
  for (std::int32_t i = 1; i < count; ++i) others.emplace_back([&work, i] { work(i); });
  work(0);
}

#else

namespace {

/// The limit for all calls together. TBB makes threads only when needed.
constexpr std::size_t kMostThreads = 4096;

/// Lowers the thread's priority to the caller's. TBB keeps its threads, so an earlier call may have
/// made this one at a higher priority. Linux has a priority per thread, and always allows lowering
/// it.
void yield_as_much_as(int nice) noexcept {
  if (getpriority(PRIO_PROCESS, 0) < nice) setpriority(PRIO_PROCESS, 0, nice);
}

/// Reserves the TBB threads that a call needs besides its own. TBB hangs if it cannot start a
/// thread, and keeps those that it has.
class TbbThreads {
 public:
  explicit TbbThreads(std::int32_t count) : count_(count) {
    Book& all = book();
    const std::lock_guard lock(all.mutex);
    const std::int32_t missing = all.in_use + count - all.started;
    if (missing > 0) {
      expect_threads(missing);
      all.started += missing;
    }
    all.in_use += count;
  }
  TbbThreads(const TbbThreads&) = delete;
  TbbThreads& operator=(const TbbThreads&) = delete;
  ~TbbThreads() {
    const std::lock_guard lock(book().mutex);
    book().in_use -= count_;
  }

 private:
  struct Book {
    std::mutex mutex;
    std::int32_t started = 0, in_use = 0;
  };
  static Book& book() {
    static Book all;
    return all;
  }
  const std::int32_t count_;
};

}  // namespace

void run_workers(std::int32_t count, const std::function<void(std::int32_t)>& work) {
  // Without this control, an arena has no more threads than the machine has cores. There is one
  // control for the process, since with several the smallest would limit all calls that run at
  // once.
  static const tbb::global_control control(tbb::global_control::max_allowed_parallelism,
                                           kMostThreads);
  const TbbThreads threads(std::max(count - 1, 0));
  const int nice = getpriority(PRIO_PROCESS, 0);
  tbb::task_arena arena(count);
  arena.execute([&] {
    tbb::task_group others;
    for (std::int32_t i = 1; i < count; ++i) {
      others.run([&work, nice, i] {
        yield_as_much_as(nice);
        work(i);
      });
    }
    work(0);
    others.wait();
  });
}

#endif

}  // namespace penstock
