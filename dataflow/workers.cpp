// SPDX-License-Identifier: Apache-2.0
#include "dataflow/workers.h"

#include <sys/resource.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <thread>
#include <vector>

namespace penstock {

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

}  // namespace

void run_workers(std::int32_t count, const std::function<void(std::int32_t)>& work) {
  // Without a control, an arena has no more threads than the machine has cores. There is one for
  // the process: of several, the smallest holds for all calls that run at once.
  static const tbb::global_control control(tbb::global_control::max_allowed_parallelism,
                                           kMostThreads);
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
