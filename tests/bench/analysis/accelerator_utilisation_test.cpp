// SPDX-License-Identifier: Apache-2.0
// Accelerator utilisation against values calculated by hand.
#include <gtest/gtest.h>

#include <vector>

#include "bench/analysis/accelerator_utilisation.h"

namespace penstock {
namespace {

TEST(AcceleratorUtilisation, TheRuleCountsStatedTimesAndLeavesOutTheFirstStepsInput) {
  // Four steps of 40 ms computing; waits of 60 ms before the first and 10 ms before each other
  // step.
  const std::vector<double> steps{100, 50, 50, 50};
  EXPECT_DOUBLE_EQ(au_percent_rule(steps, 40, 60), 100 * 160.0 / 190);
  EXPECT_DOUBLE_EQ(au_percent_rule(steps, 40, 0), 100 * 160.0 / 250);
  EXPECT_EQ(au_percent_rule({}, 40, 0), 0);
}

TEST(AcceleratorUtilisation, HiddenInputIsAHundredPercentByEitherFormula) {
  const std::vector<double> steps{95, 40, 40}, compute{40, 40, 40};
  EXPECT_DOUBLE_EQ(au_percent_rule(steps, 40, 55), 100);
  EXPECT_DOUBLE_EQ(au_percent_dlio(steps, compute), 100);
}

TEST(AcceleratorUtilisation, DlioDropsTheFirstStepFromBothSums) {
  const std::vector<double> steps{100, 50, 60, 50}, compute{40, 40, 41, 39};
  EXPECT_DOUBLE_EQ(au_percent_dlio(steps, compute), 100 * 120.0 / 160);
  EXPECT_EQ(au_percent_dlio(std::span(steps).first(1), std::span(compute).first(1)), 0);
}

TEST(AcceleratorUtilisation, OversleepRaisesDliosFigureOfADeviceThatWaits) {
  // 40 of 50 ms: 80 %. Sleeps that are 2 ms too long shorten the wait: 42 of 50 ms, 84 %.
  EXPECT_DOUBLE_EQ(dlio_compute_ms(50, 10, 0), 40);
  EXPECT_DOUBLE_EQ(dlio_compute_ms(50, 10, 2), 42);
  const std::vector<double> steps{50, 50, 50}, exact(3, dlio_compute_ms(50, 10, 0)),
      late(3, dlio_compute_ms(50, 10, 2));
  EXPECT_DOUBLE_EQ(au_percent_dlio(steps, exact), 80);
  EXPECT_DOUBLE_EQ(au_percent_dlio(steps, late), 84);
  EXPECT_DOUBLE_EQ(au_percent_rule(steps, 40, 10), 100 * 120.0 / 140);  // for any oversleep
}

TEST(AcceleratorUtilisation, ComputingNeverLastsLongerThanItsStep) {
  EXPECT_DOUBLE_EQ(dlio_compute_ms(40, 0, 2), 40);
  EXPECT_DOUBLE_EQ(dlio_compute_ms(50, 1, 2), 50);
}

RunResult emulated_run() {
  RunResult result;
  result.facts = {{"emulated_step_ms", 40}, {"oversleep_us_mean", 2000}};
  result.step_ms = {100, 50, 50, 50};
  result.device_idle_ms = {60, 10, 10, 10};
  return result;
}

TEST(AcceleratorUtilisation, ARunOnAnEmulatedDeviceHasBothFiguresAndTheLineToPass) {
  RunResult result = emulated_run();
  add_accelerator_utilisation(result);
  EXPECT_DOUBLE_EQ(result.facts.at("au_percent_rule"), 100 * 160.0 / 190);
  EXPECT_DOUBLE_EQ(result.facts.at("au_percent_dlio"), 84);
  EXPECT_EQ(result.facts.at("au_pass_line_percent"), 90);
}

TEST(AcceleratorUtilisation, OtherDevicesAndRunsOfOneStepHaveNone) {
  RunResult other = emulated_run();
  other.facts.erase("emulated_step_ms");
  RunResult brief = emulated_run();
  brief.step_ms.resize(1);
  brief.device_idle_ms.resize(1);
  for (RunResult* result : {&other, &brief}) {
    add_accelerator_utilisation(*result);
    EXPECT_FALSE(result->facts.contains("au_percent_rule"));
    EXPECT_FALSE(result->facts.contains("au_pass_line_percent"));
  }
}

}  // namespace
}  // namespace penstock
