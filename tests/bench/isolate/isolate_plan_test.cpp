// SPDX-License-Identifier: Apache-2.0
// Plans of `penstock isolate`: which runs make a block, and how long they may be.
#include "bench/isolate/isolate_plan.h"

#include <gtest/gtest.h>

#include <set>

namespace penstock {
namespace {

isolate::IsolatePlan plan_of(std::int32_t cores, std::int32_t threads) {
  isolate::IsolatePlan plan;
  plan.config.fake_location = "queue";
  plan.config.batch_size = 64;
  plan.config.feeder_threads = threads;
  plan.cores = cores;
  plan.threads_matter = true;
  return plan;
}

std::set<std::int32_t> supply_threads(const std::vector<isolate::PlannedRun>& runs) {
  std::set<std::int32_t> threads;
  for (const isolate::PlannedRun& run : runs) {
    if (run.rung == isolate::Rung::supply) threads.insert(run.config.feeder_threads);
  }
  return threads;
}

double block_s(const std::vector<isolate::PilotTime>& times,
               const std::vector<std::int64_t>& steps) {
  double sum = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    sum += times[i].overhead_s +
           times[i].step_s * static_cast<double>(steps[i] + isolate::kWarmupSteps);
  }
  return sum;
}

TEST(IsolatePlan, ABlockHasTheCeilingTheCoupledFeederAndItsSupplyOverThreads) {
  const std::vector<isolate::PlannedRun> runs = isolate::planned_runs(plan_of(12, 12));
  ASSERT_GE(runs.size(), 3U);
  EXPECT_EQ(runs[0].rung, isolate::Rung::ceiling);
  EXPECT_EQ(runs[0].config.fake_location, "gpu");
  EXPECT_EQ(runs[1].rung, isolate::Rung::coupled);
  EXPECT_EQ(runs[1].config.fake_location, "queue");
  EXPECT_EQ(runs[2].config.model, "null");
  EXPECT_EQ(runs[2].config.batch_size, 64) << "batches stay as large";
  EXPECT_EQ(supply_threads(runs), (std::set<std::int32_t>{1, 2, 4, 8, 12}));
}

TEST(IsolatePlan, ThreadsThatDoNotMatterAreNotVaried) {
  isolate::IsolatePlan plan = plan_of(8, 8);
  plan.threads_matter = false;
  EXPECT_EQ(isolate::planned_runs(plan).size(), 3U);
}

TEST(IsolatePlan, ALoopThatRunsAheadIsMeasuredBesideOneThatWaits) {
  isolate::IsolatePlan plan = plan_of(8, 8);
  plan.threads_matter = false;
  plan.config.loop = "ahead=4";
  const std::vector<isolate::PlannedRun> runs = isolate::planned_runs(plan);
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[3].rung, isolate::Rung::waiting);
  EXPECT_EQ(runs[3].config.loop, "sync");
  EXPECT_EQ(runs[3].config.device_slots, 1);
  plan.config.loop = "sync";
  EXPECT_EQ(isolate::planned_runs(plan).size(), 3U);
}

/// Windows begin after three steps of warm-up.
TEST(IsolatePlan, WindowsReachTheEndOfAnEpochIfThreeBlocksOfThemFit) {
  const std::vector<isolate::PlannedRun> runs = isolate::planned_runs(plan_of(1, 1));
  std::vector<isolate::PilotTime> times(runs.size(), {.step_s = 0.01, .overhead_s = 0.2});
  times[1].steps_per_epoch = 300;
  EXPECT_EQ(isolate::plan_steps(runs, times, 45)[1], 300);
  times[1].steps_per_epoch = 30'000;
  EXPECT_LT(isolate::plan_steps(runs, times, 45)[1], 300);
}

TEST(IsolatePlan, OneCoreHasOnePoint) {
  EXPECT_EQ(supply_threads(isolate::planned_runs(plan_of(1, 1))), std::set<std::int32_t>{1});
}

TEST(IsolatePlan, WindowsAreTwentyReservesLongWhereFiveBlocksOfThemFit) {
  const std::vector<isolate::PlannedRun> runs = isolate::planned_runs(plan_of(2, 2));
  const std::vector<isolate::PilotTime> times(runs.size(), {.step_s = 0.005, .overhead_s = 0.2});
  const std::vector<std::int64_t> steps = isolate::plan_steps(runs, times, 45);
  EXPECT_GE(steps[0], 20 * isolate::reserve_steps(runs[0].config));
  EXPECT_EQ(steps[0], steps[1]) << "the sweep's own report compares rows of equal windows";
  EXPECT_LE(5 * block_s(times, steps), 45);
}

TEST(IsolatePlan, ShorterWindowsLeaveRoomForThreeBlocks) {
  const std::vector<isolate::PlannedRun> runs = isolate::planned_runs(plan_of(2, 2));
  const std::vector<isolate::PilotTime> times(runs.size(), {.step_s = 0.06, .overhead_s = 0.4});
  const std::vector<std::int64_t> steps = isolate::plan_steps(runs, times, 40);
  EXPECT_LT(steps[0], 20 * isolate::reserve_steps(runs[0].config));
  EXPECT_GE(steps[0], 40);
  EXPECT_LE(3 * block_s(times, steps), 40);
}

TEST(IsolatePlan, RunsWithoutATrainerEndSooner) {
  const std::vector<isolate::PlannedRun> runs = isolate::planned_runs(plan_of(4, 4));
  std::vector<isolate::PilotTime> times(runs.size(), {.step_s = 0.06, .overhead_s = 0.4});
  times.back().step_s = 0.2;  // one thread
  const std::vector<std::int64_t> steps = isolate::plan_steps(runs, times, 60);
  for (std::size_t i = 2; i < runs.size(); ++i) EXPECT_LT(steps[i], steps[0]);
  EXPECT_GT(steps.back(), isolate::reserve_steps(runs.back().config));
}

TEST(IsolatePlan, HoweverSlowTheTrainerARunHasStepsEnoughForAMean) {
  const std::vector<isolate::PlannedRun> runs = isolate::planned_runs(plan_of(2, 1));
  const std::vector<isolate::PilotTime> times(runs.size(), {.step_s = 3, .overhead_s = 1});
  for (const std::int64_t steps : isolate::plan_steps(runs, times, 10)) {
    EXPECT_GE(steps, static_cast<std::int64_t>(2 * analysis::kMinKeptSteps));
    EXPECT_LT(steps, 20);
  }
}

TEST(IsolatePlan, TheShortestWindowIsTwiceWhatLayReadyInALoadersQueue) {
  const std::vector<isolate::PlannedRun> runs = isolate::planned_runs(plan_of(2, 1));
  const double ready = static_cast<double>(isolate::reserve_steps(runs[0].config)) + 8;
  const std::vector<isolate::PilotTime> times(runs.size(),
                                              {.step_s = 3, .overhead_s = 1, .reserve = ready});
  EXPECT_GE(isolate::plan_steps(runs, times, 10).front(), 2 * 8 + 10);
}

TEST(IsolatePlan, APilotTellsStepsFromStarting) {
  RunResult result;
  result.images_per_step = 64;
  result.img_per_s = 640;
  result.sustained_img_per_s = 320;
  const isolate::PilotTime time = isolate::pilot_time(result, 1.5);
  EXPECT_DOUBLE_EQ(time.step_s, 0.2) << "what can be kept up";
  EXPECT_DOUBLE_EQ(time.overhead_s, 1.5 - 0.1 * (isolate::kPilotSteps + isolate::kPilotWarmup));
  EXPECT_EQ(isolate::pilot_time(RunResult{}, 1).step_s, 0);
}

}  // namespace
}  // namespace penstock
