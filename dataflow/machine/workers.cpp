// SPDX-License-Identifier: Apache-2.0
#include "dataflow/workers.h"

#include <sys/resource.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <algorithm>
#include <latch>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock {

void expect_threads(std::int32_t count) {
  std::latch end(1);
  std::vector<std::jthread> threads;
  struct AtEnd {
    std::latch& end;
    ~AtEnd() { end.count_down(); }
  } const at_end{end};  // before the threads are joined
  for (std::int32_t i = 0; i < count; ++i) threads.emplace_back([&end] { end.wait(); });
}

#if defined(__SANITIZE_THREAD__)

// The thread sanitizer does not see into the system's libtbb, and would take every hand-over for a
// race: it watches the same workers on plain threads.
void run_workers(std::int32_t count, const std::function<void(std::int32_t)>& work) {
  std::vector<std::jthread> others;
  for (std::int32_t i = 1; i < count; ++i) others.emplace_back([&work, i] { work(i); });
  work(0);
}

#else

namespace {

/// Of all calls together. TBB makes threads as they are needed.
constexpr std::size_t kMostThreads = 4096;

/// TBB keeps its threads, so that one may have been made at a higher priority than the call that
/// uses it now. Linux has a priority for each thread, and lowering it is always allowed.
void yield_as_much_as(int nice) noexcept {
  if (getpriority(PRIO_PROCESS, 0) < nice) setpriority(PRIO_PROCESS, 0, nice);
}

/// Threads that a call wants of TBB beside its own. TBB waits for ever where it cannot start one,
/// and keeps those that it has.
class TbbThreads {
 public:
  explicit TbbThreads(std::int32_t wanted) : wanted_(wanted) {
    Book& all = book();
    const std::lock_guard lock(all.mutex);
    const std::int32_t missing = all.in_use + wanted - all.started;
    if (missing > 0) {
      expect_threads(missing);
      all.started += missing;
    }
    all.in_use += wanted;
  }
  TbbThreads(const TbbThreads&) = delete;
  TbbThreads& operator=(const TbbThreads&) = delete;
  ~TbbThreads() {
    const std::lock_guard lock(book().mutex);
    book().in_use -= wanted_;
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
  const std::int32_t wanted_;
};

}  // namespace

void run_workers(std::int32_t count, const std::function<void(std::int32_t)>& work) {
  // Without a control, an arena has no more threads than the machine has cores. There is one for
  // the process: of several, the smallest holds for all calls that run at once.
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
