// SPDX-License-Identifier: Apache-2.0
#include "bench/record/wait_spread.h"

#include <gtest/gtest.h>

#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

RunResult run_of(std::vector<double> waits_ms) {
  RunResult run;
  run.starved_ms = std::move(waits_ms);
  for (const double wait : run.starved_ms) run.step_ms.push_back(40 + wait);
  return run;
}

TEST(WaitSpread, SaysHowManyStepsHoldMostOfTheWaiting) {
  const WaitSpread spread = spread_of_waits({0, 160, 0, 10, 0, 30, 0, 0});
  EXPECT_DOUBLE_EQ(spread.late_percent, 12.5);
  EXPECT_DOUBLE_EQ(spread.late_ms, 160);
  EXPECT_DOUBLE_EQ(spread.other_ms, 40.0 / 7);
  EXPECT_DOUBLE_EQ(spread_of_waits({5, 5, 5, 5, 5}).late_percent, 80);
  EXPECT_DOUBLE_EQ(spread_of_waits({0, 0}).late_percent, 0);
}

TEST(WaitSpread, OfARunIsItsAnswer) {
  EXPECT_TRUE(says(describe_waits(run_of({0, 0.1, 0, 0})), "the loader keeps up"));
  const std::string uneven = describe_waits(run_of({0, 160, 0, 0}));
  EXPECT_TRUE(says(uneven, "waited for the loader for 50 % of the time"));
  EXPECT_TRUE(says(uneven, "25 % of the steps wait 160 ms each, the others 0.0 ms"));
  EXPECT_TRUE(says(describe_waits(run_of({11, 9, 10, 12, 11})), "11.0 ms before most steps"));
  RunResult edges = run_of({0, 160, 0, 0});
  edges.epoch_begins = {1};
  edges.facts["loader_steps_per_epoch"] = 4;
  EXPECT_TRUE(says(describe_waits(edges), "mostly for the first batch of each epoch"));
  EXPECT_EQ(describe_waits({}), "");
}

}  // namespace
}  // namespace penstock
