// SPDX-License-Identifier: Apache-2.0
// Isolating a simulated trainer and feeder with known speeds: cost, split, cause, recommendation
// and cores; budgets and stop rules with a clock that the runs advance.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/bench/isolate/isolator_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

// ---- known answers ------------------------------------------------------------------------------

TEST_F(IsolatorTest, AFeederOfTwiceTheStepTimeCostsHalfAndDecodingIsBlamed) {
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.cost);
  EXPECT_EQ(found.cost->verdict, statistics::Verdict::slower);
  EXPECT_TRUE(covers(found.cost->percent, 50)) << found.verdict.front();
  EXPECT_LT(found.cost->percent.half_width(), 1);
  EXPECT_TRUE(covers(found.cost->split.total_ms, 10));
  EXPECT_NEAR(found.cost->split.starvation_ms.value, 10, 0.5);
  EXPECT_NEAR(found.cost->split.interference_ms.value, 0, 0.2);
  EXPECT_EQ(blamed(found).name, "decode");
  EXPECT_TRUE(says(found.verdict.front(), "JPEG decoding is the bottleneck"));
  EXPECT_TRUE(found.warnings.empty()) << found.warnings.front();
}

TEST_F(IsolatorTest, WhatComesNextIsTheLeastBoundWithoutTheBottleneck) {
  machine_.device_ms = 5;
  machine_.read_share = 0.4;
  const isolate::Isolation& reading = isolate();
  ASSERT_TRUE(reading.diagnosis.next_bottleneck);
  EXPECT_EQ(reading.diagnosis.stages[*reading.diagnosis.next_bottleneck].name, "read");
  EXPECT_NEAR(reading.diagnosis.gain_until_next, 2.5, 0.1)
      << "reading is left, and takes 8 of 20 ms";
  machine_.device_ms = 10;
  machine_.read_share = 0.1;
  const isolate::Isolation& training = isolate();
  EXPECT_TRUE(training.diagnosis.bottleneck);
  EXPECT_FALSE(training.diagnosis.next_bottleneck) << "the trainer";
  EXPECT_NEAR(training.diagnosis.gain_until_next, 2, 0.1);
}

TEST_F(IsolatorTest, WallTimeIsNotBlamedWhereOthersComputeOnTheSameProcessors) {
  change_ = [](RunResult& result) {  // readers are displaced, or wait for the disk
    if (result.stages.empty()) return;
    StageUse &read = result.stages[0], &decode = result.stages[1];
    const double all_s = read.wall_s + decode.wall_s;
    read.wall_s = 0.7 * all_s;
    decode.wall_s = decode.cpu_s = 0.3 * all_s;
  };
  const isolate::Isolation& quiet = isolate();
  EXPECT_EQ(blamed(quiet).name, "read");
  EXPECT_TRUE(mentions(quiet.verdict, "waiting for storage"));
  foreign_ = 50;
  const isolate::Isolation& crowded = isolate();
  EXPECT_EQ(blamed(crowded).name, "decode");
  EXPECT_TRUE(mentions(crowded.warnings, "the machine was not quiet"));
}

TEST_F(IsolatorTest, StagesOfAnotherProcessAreJudgedByWallTime) {
  change_ = [](RunResult& result) {
    result.facts["waited_for_core_s"] = 0;
    for (StageUse& stage : result.stages) stage.cpu_s = 0;  // not measured
  };
  const isolate::Isolation& found = isolate();
  EXPECT_GT(blamed(found).capacity_img_per_s, 0);
  EXPECT_FALSE(mentions(found.verdict, "computing")) << "its processor time is not known";
}

TEST_F(IsolatorTest, ThePartsOfTheCostAreFoundAndAddUp) {
  machine_.device_ms = 20;
  machine_.feeder_ms = 60;  // 30 with two threads: starves for the rest of the time
  machine_.slower_ms = 3;
  machine_.copy_exposed_ms = 1;
  machine_.late_ms = 0.5;
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.cost);
  const analysis::CostSplit& split = found.cost->split;
  EXPECT_NEAR(split.total_ms.value, 10, 0.3);
  EXPECT_NEAR(split.starvation_ms.value, 5.5, 0.3);
  EXPECT_NEAR(split.transfer_ms.value, 1, 0.05);
  EXPECT_NEAR(split.interference_ms.value, 3.5, 0.1);
  EXPECT_NEAR(split.starvation_ms.value + split.transfer_ms.value + split.interference_ms.value +
                  split.residual_ms,
              split.total_ms.value, 1e-9);
  EXPECT_NEAR(split.residual_ms, 0, 0.01);
}

TEST_F(IsolatorTest, AFeederThatKeepsUpLeavesTheTrainerAsTheBottleneck) {
  machine_.device_ms = 30;
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.cost);
  EXPECT_EQ(found.cost->verdict, statistics::Verdict::equal) << found.verdict.front();
  EXPECT_FALSE(found.diagnosis.bottleneck);
  EXPECT_TRUE(found.predictions.recommendations.empty());
  EXPECT_TRUE(says(found.verdict.front(), "The trainer is the bottleneck"));
}

TEST_F(IsolatorTest, StepsThatGetSlowerAreInterference) {
  machine_.device_ms = 20;
  machine_.slower_ms = 4;
  machine_.feeder_ms = 20;
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.cost);
  EXPECT_EQ(found.cost->verdict, statistics::Verdict::slower);
  EXPECT_NEAR(found.cost->split.interference_ms.value, 4, 0.2);
  EXPECT_FALSE(found.diagnosis.bottleneck);
  EXPECT_TRUE(says(found.verdict.front(), "Feeding slows the steps themselves down"));
}

TEST_F(IsolatorTest, AnExposedCopyIsBlamedOnTheCopy) {
  machine_.device_ms = 20;
  machine_.copy_exposed_ms = 4;
  machine_.feeder_ms = 20;
  const isolate::Isolation& found = isolate();
  EXPECT_EQ(blamed(found).name, "copy");
}

TEST_F(IsolatorTest, AReceiverThatWaitsBlamesItsProducer) {
  plan_.has_producer = true;
  plan_.threads_matter = false;
  machine_.receives = true;
  const isolate::Isolation& found = isolate();
  EXPECT_EQ(blamed(found).workers, "producer");
  EXPECT_NEAR(blamed(found).capacity_img_per_s, 64 / 0.020, 64 / 0.020 * 0.05);
  EXPECT_TRUE(says(found.verdict.front(),
                   "The producer or the network, outside this run, is the bottleneck"));
  EXPECT_FALSE(found.predictions.cores_per_device);
}

TEST_F(IsolatorTest, CoresNeededFollowFromTheSupplyCurve) {
  machine_.feeder_ms = 75;  // 7.5 threads, if they scale; a ninth more for the margin
  plan_.targets.margin = 0.1;
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.predictions.cores_per_device);
  EXPECT_TRUE(found.predictions.cores_per_device->reachable);
  EXPECT_NEAR(found.predictions.cores_per_device->threads.value, 7.5 / 0.9, 0.6);
  EXPECT_EQ(found.predictions.cores_per_device->whole, 9);  // 8.33
  EXPECT_EQ(found.predictions.cores_per_device->measured_to, 4);
  EXPECT_TRUE(mentions(found.verdict, "takes at least 9 cores like these"));
  EXPECT_TRUE(mentions(found.verdict, "extrapolated: 1, 2 and 4 threads supplied up to"));
}

TEST_F(IsolatorTest, ADemandBeyondEveryNumberOfCoresIsNotReachable) {
  machine_.feeder_ms = 80;
  machine_.serial_share = 0.5;  // never below 40 ms
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.predictions.cores_per_device);
  EXPECT_FALSE(found.predictions.cores_per_device->reachable);
  EXPECT_FALSE(found.predictions.cores_per_device->known) << "three thread counts";
  EXPECT_TRUE(mentions(found.verdict, "is not known: 1, 2 and 4 threads supplied"));
  EXPECT_FALSE(mentions(found.verdict, "not reachable"));
}

TEST_F(IsolatorTest, FourThreadCountsTellThatADemandIsNotReachable) {
  plan_.cores = 8;
  machine_.noise = machine_.drift = 0.001;
  machine_.feeder_ms = 80;
  machine_.serial_share = 0.5;
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.predictions.cores_per_device);
  EXPECT_TRUE(found.predictions.cores_per_device->known);
  EXPECT_TRUE(mentions(found.verdict, "not reachable with any number of cores"));
}

// ---- budget and stop rules ----------------------------------------------------------------------

TEST_F(IsolatorTest, StopsOnceTheIntervalIsNarrowAndFiveBlocksAreThere) {
  machine_.device_ms = 5;
  machine_.feeder_ms = 12;
  machine_.noise = 0.001;
  plan_.budget = 10min;
  const isolate::Isolation& found = isolate();
  EXPECT_EQ(found.blocks, isolate::kTargetBlocks);
  EXPECT_EQ(found.measurement.stopped_because, "the interval is within 1 %");
  EXPECT_LT(elapsed_s(), 60);
  EXPECT_EQ(found.measurement.noise.size(), isolate::kTargetBlocks);
}

TEST_F(IsolatorTest, KeepsToItsBudgetAndStillHasThreeBlocks) {
  change_ = [](RunResult& result) {  // runs of one row differ too much for any interval
    Random random(result.config.seed, result.config.fake_location == "gpu" ? 1 : 2);
    const double factor = random.uniform(0.8, 1.2);
    for (double& ms : result.step_ms) ms *= factor;
  };
  plan_.budget = 60s;
  plan_.spent = 15s;  // a loader's start, before the first run
  const isolate::Isolation& found = isolate();
  EXPECT_EQ(found.measurement.stopped_because, "the budget of 60 s ended");
  EXPECT_GE(found.blocks, isolate::kMinBlocks);
  EXPECT_LE(elapsed_s(), 45 * 1.1);
}

TEST_F(IsolatorTest, EveryBlockHasItsOwnOrderAndTheCeilingInIt) {
  const isolate::Isolation& found = isolate();
  std::set<std::vector<std::size_t>> orders;
  for (const std::vector<std::size_t>& round : found.measurement.sweep.rounds) {
    orders.insert(round);
    if (round.size() == found.measurement.sweep.rows.size()) {
      EXPECT_EQ(std::count(round.begin(), round.end(), found.measurement.ceiling_row), 1);
    }
  }
  EXPECT_GT(orders.size(), 1U);
}

TEST_F(IsolatorTest, WindowsOfAGivenLengthAreKept) {
  plan_.steps = 40;
  isolate();
  for (std::size_t i = 3; i < ran_.size(); ++i) EXPECT_EQ(ran_[i].num_batches, 40);
}

TEST_F(IsolatorTest, AStopKeepsTheBlocksThatAreThere) {
  stop_after_ = 3 + 5 * 4 + 2;  // a pilot, four blocks, and part of a block
  const isolate::Isolation& found = isolate();
  EXPECT_EQ(found.measurement.stopped_because, "it was interrupted");
  EXPECT_GE(found.blocks, 4U);
  EXPECT_TRUE(found.cost);
}

TEST_F(IsolatorTest, AStopInThePilotLeavesNoAnswer) {
  stop_after_ = 2;
  const isolate::Isolation& found = isolate();
  EXPECT_FALSE(found.cost);
  EXPECT_EQ(found.measurement.stopped_because, "it was interrupted");
  EXPECT_TRUE(says(found.verdict.front(), "There is no answer"));
}

// ---- verification, and runs that fail or do not compare -----------------------------------------

TEST_F(IsolatorTest, VerifyTriesMoreThreadsAndAgrees) {
  plan_.verify = true;
  machine_.device_ms = 12;
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.verification) << found.verdict.back();
  EXPECT_EQ(found.verification->change, "--feeder-threads 4");
  EXPECT_NEAR(found.verification->predicted_img_per_s, 64 / 0.012, 64 / 0.012 * 0.02);
  EXPECT_TRUE(found.verification->agrees);
  EXPECT_LT(std::abs(found.verification->error_percent), 5);
  EXPECT_TRUE(mentions(found.verdict, "Tried --feeder-threads 4"));
}

TEST_F(IsolatorTest, VerifySaysSoWhereAPredictionDoesNotHold) {
  plan_.verify = true;
  machine_.device_ms = 12;
  change_ = [](RunResult& result) {  // with the trainer, four threads disturb each other
    if (result.config.feeder_threads != 4 || result.config.model == "null") return;
    for (double& ms : result.step_ms) ms *= 2;
  };
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.verification);
  EXPECT_FALSE(found.verification->agrees);
  EXPECT_NEAR(found.verification->error_percent, 100, 10) << "twice what was achieved";
  EXPECT_TRUE(mentions(found.verdict, "does not hold"));
}

TEST_F(IsolatorTest, VerifyIsNotContentWithAnIntervalThatHoldsEverything) {
  plan_.verify = true;
  machine_.device_ms = 12;
  change_ = [](RunResult& result) {
    if (result.config.feeder_threads != 4 || result.config.model == "null") return;
    Random random(result.config.seed);
    const double factor = random.uniform(0.3, 4);
    for (double& ms : result.step_ms) ms *= factor;
  };
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.verification);
  EXPECT_FALSE(found.verification->agrees);
  EXPECT_TRUE(mentions(found.verdict, "neither confirmed nor refuted"));
}

TEST_F(IsolatorTest, VerifyTriesNothingThatThisMachineDoesNotHave) {
  plan_.verify = true;
  plan_.cores = 2;
  machine_.device_ms = 5;
  const isolate::Isolation& found = isolate();
  EXPECT_FALSE(found.verification);
  EXPECT_FALSE(found.predictions.recommendations.empty());
  EXPECT_TRUE(mentions(found.verdict, "no remedy is possible on this machine"));
}

TEST_F(IsolatorTest, ARunThatFailsInThePilotIsTheAnswer) {
  change_ = [](RunResult& result) {
    if (result.config.fake_location == "gpu") return;
    result.img_per_s = 0;
    result.status = Status::failed;
    result.reason = "no such image";
  };
  const isolate::Isolation& found = isolate();
  EXPECT_FALSE(found.cost);
  EXPECT_TRUE(says(found.verdict.front(), "no such image"));
  EXPECT_EQ(found.measurement.stopped_because, "a run failed");
  EXPECT_EQ(ran_.size(), 3U);
}

TEST_F(IsolatorTest, RunsThatKeepFailingEndIt) {
  change_ = [this](RunResult& result) {
    if (ran_.size() < 3 || result.config.fake_location == "gpu") return;
    result.status = Status::failed;
    result.reason = "exited with code 8";
  };
  const isolate::Isolation& found = isolate();
  EXPECT_EQ(found.measurement.stopped_because, "runs kept failing");
  EXPECT_FALSE(found.cost);
  EXPECT_TRUE(mentions(found.warnings, "exited with code 8"));
}

TEST_F(IsolatorTest, TheCodeOfALoaderIsProfiledInSeparateRuns) {
  plan_.config.fake_location = "python:loader=train.py:loader";
  plan_.has_loader = true;
  plan_.threads_matter = false;
  machine_.feeder_ms = 60;
  std::size_t profiled = 0;
  change_ = [&](RunResult& result) {
    for (StageUse& stage : result.stages) {
      if (stage.role == StageRole::decodes) stage.role = StageRole::loads;
    }
    if (result.config.fake_location.find("profile=true") == std::string::npos) return;
    ++profiled;
    result.counters = {{"load_ns: ColorJitter", 6'000'000},
                       {"load_ns: train.py:7 image.resize(size)", 3'000'000},
                       {"load_ns: ToTensor", 1'000'000},
                       {"images_received", 500}};
  };
  const isolate::Isolation found = isolate();
  EXPECT_GE(profiled, 1U);
  EXPECT_LE(profiled, 3U);
  ASSERT_TRUE(found.code);
  ASSERT_EQ(found.code->shares.size(), 3U);
  EXPECT_EQ(found.code->shares[1].name, "train.py:7 image.resize(size)");
  EXPECT_NEAR(found.code->shares[1].percent, 30, 1e-9);
  EXPECT_NEAR(found.code->cost_percent.value, 0, 3);
  EXPECT_TRUE(mentions(found.verdict,
                       "Of the time for samples, 60 % is spent in ColorJitter, 30 % in "
                       "train.py:7 image.resize(size), 10 % in ToTensor (from separate runs with a "
                       "profile, which costs less than 1 %)."));
}

TEST_F(IsolatorTest, ALoaderWhoseSamplesAreNotTheBottleneckIsNotProfiled) {
  plan_.config.fake_location = "python:loader=train.py:loader";
  plan_.has_loader = true;
  plan_.threads_matter = false;
  machine_.feeder_ms = 1;  // less than the device needs
  EXPECT_FALSE(isolate().code);
  for (const RunConfig& config : ran_) {
    EXPECT_EQ(config.fake_location.find("profile"), std::string::npos);
  }
}

TEST_F(IsolatorTest, ACostThatIsSeenAsWaitsIsDecidedByOneBlock) {
  machine_.feeder_ms = 26;  // 13 ms with two threads, steps take 10
  stop_after_ = 3 + 5;      // the pilot and a block
  EXPECT_EQ(isolate().cost->verdict, statistics::Verdict::undecided);
  machine_.feeder_ms = 30;
  ran_.clear();
  stop_ = {};
  EXPECT_EQ(isolate().cost->verdict, statistics::Verdict::slower);
}

TEST_F(IsolatorTest, OneBlockOfAMachineWithoutAFreeProcessorDecidesLargeCostsOnly) {
  plan_.cores = 2;
  foreign_ = 80;
  stop_after_ = 3 + 5;
  machine_.feeder_ms = 30;  // 15 ms with two threads, steps take 10
  EXPECT_EQ(isolate().cost->verdict, statistics::Verdict::undecided);
  machine_.feeder_ms = 60;
  ran_.clear();
  stop_ = {};
  EXPECT_EQ(isolate().cost->verdict, statistics::Verdict::slower);
}

TEST_F(IsolatorTest, DamagedStepTimesAreNotUsed) {
  change_ = [this](RunResult& result) {
    if (ran_.size() > 12) result.step_ms.front() = -1;
  };
  const isolate::Isolation& found = isolate();
  EXPECT_LT(found.blocks, isolate::kMinBlocks);
  EXPECT_TRUE(mentions(found.warnings, "fewer than 3"));
}

TEST_F(IsolatorTest, BatchesThatLayReadyDoNotHideASlowFeeder) {
  plan_.steps = 60;
  machine_.fast_steps = 12;
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.cost);
  EXPECT_NEAR(found.cost->percent.value, 50, 1.5) << "the first steps are warm-up";
}

TEST_F(IsolatorTest, RunsWithoutASplitLeaveItInTheResidualAndSaySo) {
  change_ = [](RunResult& result) { result.starved_ms.clear(); };
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.cost);
  EXPECT_NEAR(found.cost->split.residual_ms, found.cost->split.total_ms.value, 0.5);
  EXPECT_TRUE(mentions(found.warnings, "did not record what their devices waited for"));
}

TEST_F(IsolatorTest, StepsOfDifferentSizesDoNotCompare) {
  change_ = [](RunResult& result) {
    if (result.config.fake_location == "gpu") result.images_per_step = 32;
  };
  EXPECT_TRUE(mentions(isolate().warnings, "the runs are not comparable"));
}

}  // namespace
}  // namespace penstock
