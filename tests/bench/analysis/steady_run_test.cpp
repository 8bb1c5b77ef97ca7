// SPDX-License-Identifier: Apache-2.0
#include "bench/analysis/steady_run.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::analysis {
namespace {

/// Workers load a batch in 96 ms; the device needs 40. Eight batches lie in their queue when the
/// window begins, and come at once.
TEST(SteadyRun, BatchesInTheQueueOfALoadersWorkersAreNoRate) {
  RunResult run;
  run.step_ms.assign(24, 96);
  std::fill_n(run.step_ms.begin(), 8, 40.0);
  run.device_idle_ms.assign(24, 0);
  run.starved_ms = run.copy_exposed_ms = run.late_ms = run.device_idle_ms;
  run.images_per_step = 32;
  run.img_per_s = run.sustained_img_per_s = 24 * 32e3 / (8 * 40 + 16 * 96);
  run.facts = {{"loader_num_workers", 4}, {"loader_prefetch_factor", 2}};
  EXPECT_NEAR(steady_state(run).step_ms, 96, 1e-9);
  EXPECT_GE(steady_state(run).dropped, 8U);
}

}  // namespace
}  // namespace penstock::analysis
