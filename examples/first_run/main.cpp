// SPDX-License-Identifier: Apache-2.0
// Penstock as a library: measures what random pixels drawn on the CPU cost two emulated devices.
//   build/first_run
#include <cstdio>

#include "bench/record/statistics.h"
#include "bench/run/runner.h"

int main() {
  penstock::SteadyClock clock;
  penstock::RunConfig config;
  config.device = "emulated:img_per_s=1785.7";
  config.num_gpus = 2;
  config.num_batches = 60;

  double rates[2] = {};
  const char* const feeders[2] = {"gpu", "cpu"};
  for (int i = 0; i < 2; ++i) {
    config.fake_location = feeders[i];
    penstock::Runner runner(config, clock);
    penstock::RunListener silent;
    const penstock::RunResult result = runner.run(silent, {});
    if (result.status == penstock::Status::failed) {
      std::fprintf(stderr, "%s: %s\n", feeders[i], result.reason.c_str());
      return result.exit_code;
    }
    rates[i] = result.img_per_s;
    std::printf("%-4s %8.1f img/s\n", feeders[i], rates[i]);
  }
  const penstock::InputCost cost = penstock::input_cost(rates[0], rates[1], 2 * 64);
  std::printf("input cost %.1f %% of a step, %.2f ms\n", cost.percent, cost.ms_per_step);
  return 0;
}
