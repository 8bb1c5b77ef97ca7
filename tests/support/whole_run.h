// SPDX-License-Identifier: Apache-2.0
// A whole run in this process, for tests of a run's data rather than of the program.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "bench/run/runner.h"

namespace penstock {

/// Runs some batches of that feeder over the data, with a device that takes no time. Expects
/// success.
inline RunResult run_of(const std::string& feeder, const std::string& data_dir,
                        const std::string& model = "null") {
  RunConfig config;
  config.device = "emulated:img_per_s=100000";
  config.fake_location = feeder;
  config.data_dir = data_dir;
  config.model = model;
  config.batch_size = 2;
  config.num_batches = 6;
  config.num_warmup_batches = 1;
  SteadyClock clock;
  RunListener silent;
  const RunResult result = Runner(config, clock, find_components(config)).run(silent, {});
  EXPECT_EQ(result.exit_code, 0) << result.reason;
  EXPECT_GT(result.img_per_s, 0);
  return result;
}

}  // namespace penstock
