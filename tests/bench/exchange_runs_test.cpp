// SPDX-License-Identifier: Apache-2.0
// Whole runs whose ranks exchange gradients in buckets while backward goes on.
#include <gtest/gtest.h>

#include "tests/support/training_fixture.h"

namespace penstock {
namespace {

class ExchangeRuns : public TrainingFixture {
 protected:
  ExchangeRuns() {
    config_.num_gpus = 3;
    config_.batch_size = 4;
  }
};

TEST_F(ExchangeRuns, LossesDoNotDependOnTheBuckets) {
  config_.bucket_mib = 0;
  const RunResult one = run();
  ASSERT_EQ(one.exit_code, 0) << one.reason;
  EXPECT_EQ(one.facts.at("gradient_buckets"), 1);
  config_.bucket_mib = 1e-6;  // one byte: every tensor is a bucket
  config_.first_bucket_mib = 0;
  const RunResult two = run();
  ASSERT_EQ(two.exit_code, 0) << two.reason;
  EXPECT_EQ(two.facts.at("gradient_buckets"), 2);
  EXPECT_EQ(two.losses, one.losses);
}

TEST_F(ExchangeRuns, SayHowLongTheExchangeTookAndHowMuchOfItShowed) {
  const RunResult result = run();
  ASSERT_EQ(result.exit_code, 0) << result.reason;
  EXPECT_GT(result.facts.at("exchange_ms_per_step"), 0);
  EXPECT_GE(result.facts.at("exchange_exposed_ms_per_step"), 0);
}

TEST_F(ExchangeRuns, ARankAloneAndOtherUpdatesHaveNone) {
  config_.num_gpus = 1;
  EXPECT_FALSE(run().facts.contains("exchange_ms_per_step"));
  config_.num_gpus = 3;
  config_.forward_only = true;
  EXPECT_FALSE(run().facts.contains("exchange_ms_per_step"));
  config_.forward_only = false;
  config_.variable_update = "parameter_server";
  EXPECT_FALSE(run().facts.contains("exchange_ms_per_step"));
}

TEST_F(ExchangeRuns, AStopFromOutsideEndsAllRanks) {
  std::stop_source stop;
  class StopAtFive final : public RunListener {
   public:
    explicit StopAtFive(std::stop_source& source) : source_(source) {}
    void step(const StepReport& step) override {
      if (step.index == 5) source_.request_stop();
    }

   private:
    std::stop_source& source_;
  } listener(stop);
  config_.num_batches = 100000;
  const RunResult result = run(listener, stop.get_token());
  EXPECT_EQ(result.status, Status::partial);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_GE(result.step_ms.size(), 5U);
}

TEST_F(ExchangeRuns, AFailureOfOneRankEndsAll) {
  device_ = "tiny:nonfinite_at=7";
  const RunResult result = run();
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_TRUE(says(result.reason, "the loss of step 8")) << result.reason;
}

}  // namespace
}  // namespace penstock
