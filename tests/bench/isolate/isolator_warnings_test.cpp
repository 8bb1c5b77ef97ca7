// SPDX-License-Identifier: Apache-2.0
// Isolating a simulated machine: verification of a recommendation, and runs that fail or do not
// compare.
#include "tests/bench/isolate/isolator_fixture.h"

namespace penstock {
namespace {

TEST_F(IsolatorTest, VerifyTriesMoreThreadsAndAgrees) {
  plan_.verify = true;
  machine_.device_ms = 12;
  machine_.feeder_ms = 40;  // 20 with two threads, 10 with four
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
  machine_.feeder_ms = 40;
  change_ = [](RunResult& result) {  // with the trainer, four threads disturb each other
    if (result.config.feeder_threads != 4 || result.config.model == "null") return;
    for (double& ms : result.step_ms) ms *= 2;
  };
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.verification);
  EXPECT_FALSE(found.verification->agrees);
  EXPECT_TRUE(mentions(found.verdict, "does not hold"));
}

TEST_F(IsolatorTest, VerifyIsNotContentWithAnIntervalThatHoldsEverything) {
  plan_.verify = true;
  machine_.device_ms = 12;
  machine_.feeder_ms = 40;
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
  machine_.feeder_ms = 40;
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
  EXPECT_NE(found.verdict.front().find("no such image"), std::string::npos);
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

TEST_F(IsolatorTest, DamagedStepTimesAreNotUsed) {
  change_ = [this](RunResult& result) {
    if (ran_.size() > 12) result.step_ms.front() = -1;
  };
  const isolate::Isolation& found = isolate();
  EXPECT_LT(found.measurement.blocks, isolate::kMinBlocks);
  EXPECT_TRUE(mentions(found.warnings, "support no verdict"));
}

TEST_F(IsolatorTest, BatchesThatLayReadyDoNotHideASlowFeeder) {
  plan_.steps = 60;
  machine_.device_ms = 10;
  machine_.feeder_ms = 40;
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
