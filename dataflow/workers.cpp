// SPDX-License-Identifier: Apache-2.0
#include "dataflow/workers.h"

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

void run_workers(std::int32_t count, const std::function<void(std::int32_t)>& work) {
  // Without the control, an arena has no more threads than the machine has cores.
  const tbb::global_control control(tbb::global_control::max_allowed_parallelism,
                                    static_cast<std::size_t>(count));
  tbb::task_arena arena(count);
  arena.execute([&] {
    tbb::task_group others;
    for (std::int32_t i = 1; i < count; ++i) others.run([&work, i] { work(i); });
    work(0);
    others.wait();
  });
}

#endif

}  // namespace penstock
