// SPDX-License-Identifier: Apache-2.0
#include "bench/record/wait_cause.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

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

std::vector<double> waits_of(std::size_t steps, const std::function<double(double)>& wait_ms) {
  std::vector<double> waits;
  for (std::size_t step = 0; step < steps; ++step) {
    waits.push_back(wait_ms(static_cast<double>(step)));
  }
  return waits;
}

TEST(WaitGrowth, IsSeenAboveTheNoiseOfSteps) {
  const auto growth = growth_of_waits(
      waits_of(90, [](double step) { return step / 10 + (std::fmod(step, 7) < 1 ? 3.0 : 0.0); }));
  ASSERT_TRUE(growth);
  EXPECT_NEAR(growth->first_ms, 1.45 + 3 * 5.0 / 30, 0.01);
  EXPECT_NEAR(growth->last_ms, 7.45 + 3 * 4.0 / 30, 0.01);
  EXPECT_EQ(to_string(WaitGrowth{1.25, 14}), "from 1.2 ms at first to 14.0 ms in the end");
  EXPECT_TRUE(growth_of_waits(waits_of(90, [](double step) { return std::max(0.0, step - 40); })));
}

TEST(WaitGrowth, IsNoFewBurstsNoShortRunAndNoSmallChange) {
  const auto grows = [](std::size_t steps, const std::function<double(double)>& wait_ms) {
    return growth_of_waits(waits_of(steps, wait_ms)).has_value();
  };
  EXPECT_FALSE(grows(59, [](double step) { return step; }));
  EXPECT_FALSE(grows(90, [](double step) { return 10 + step / 20; }));
  EXPECT_FALSE(grows(90, [](double step) { return step == 80 || step == 85 ? 900.0 : 1.0; }));
  EXPECT_FALSE(grows(300, [](double step) { return std::fmod(step, 50) < 1 ? 500.0 : 0.0; }));
  EXPECT_FALSE(grows(90, [](double step) { return step < 3 ? 0.0 : 10.0; })) << "a full queue";
  EXPECT_FALSE(grows(300, [](double step) { return step < 180 ? 0.02 : 10 + std::fmod(step, 3); }))
      << "a long queue that drains";
  EXPECT_FALSE(grows(60, [](double step) { return step < 30 ? 0.0 : 5.0; }));
  EXPECT_FALSE(grows(90, [](double step) { return step < 60 ? (step == 40 ? 90.0 : 0.0) : 0.1; }));
  EXPECT_FALSE(grows(90, [](double) { return 0.0; }));
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
  const RunResult growing = run_of(waits_of(90, [](double step) { return step; }));
  EXPECT_TRUE(says(describe_waits(growing), "in waits that grow from 16.0 ms at first to 75.0 ms"));
}

}  // namespace
}  // namespace penstock
