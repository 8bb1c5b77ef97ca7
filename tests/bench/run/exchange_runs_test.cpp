// SPDX-License-Identifier: Apache-2.0
// Whole runs whose ranks exchange gradients in buckets during backward.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/bench/run/simulated_run.h"
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
  const RunResult one = completed(run());
  EXPECT_EQ(one.facts.at("gradient_buckets"), 1);
  config_.bucket_mib = 1e-6;  // one byte, so every tensor is a bucket
  config_.first_bucket_mib = 0;
  const RunResult two = completed(run());
  EXPECT_EQ(two.facts.at("gradient_buckets"), 2);
  EXPECT_EQ(two.losses, one.losses);
}

TEST_F(ExchangeRuns, LossesOfEveryAlgorithmEqualTheDefault) {
  // The orders of addition differ. One step changes the loss by less than a millionth, 20 steps by
  // less than a ten thousandth.
  const RunResult reference = completed(run());
  for (const char* spec : {"xring", "pscpu", "nccl/rechd#2", "tree:10:halving-doubling"}) {
    config_.all_reduce_spec = spec;
    const RunResult result = completed(run());
    ASSERT_EQ(result.losses.size(), reference.losses.size());
    for (std::size_t i = 0; i < result.losses.size(); ++i) {
      EXPECT_NEAR(result.losses[i], reference.losses[i], 1e-4 * std::abs(reference.losses[i]))
          << spec << ", step " << i;
    }
    EXPECT_TRUE(notes(result, "ranks exchange through ")) << spec;
  }
}

TEST_F(ExchangeRuns, GradientsOf16BitsTrainAlmostTheSame) {
  const RunResult reference = run();
  for (const char* wire : {"fp16", "bf16"}) {
    for (const char* spec : {"", "xring"}) {
      config_.gradient_wire = wire;
      config_.all_reduce_spec = spec;
      const RunResult result = completed(run());
      EXPECT_EQ(result.counters.at("nonfinite_gradient_sums"), 0);
      for (std::size_t i = 0; i < result.losses.size(); ++i) {
        EXPECT_NEAR(result.losses[i], reference.losses[i], 0.02) << wire << ", step " << i;
      }
      EXPECT_NE(result.losses, reference.losses) << wire;
    }
  }
}

TEST_F(ExchangeRuns, EqualPiecesAndGroupsOfSmallGradientsChangeNoLoss) {
  const RunResult reference = run();
  config_.gradient_repacking = 4;
  const RunResult pieces = run();
  EXPECT_EQ(pieces.facts.at("gradient_buckets"), 4);
  EXPECT_EQ(pieces.losses, reference.losses);
  config_.agg_small_grads_max_bytes = 1 << 20;
  EXPECT_TRUE(says(refusal(), "leave one of them out"));
  config_.gradient_repacking = 0;
  const RunResult groups = run();
  EXPECT_EQ(groups.facts.at("gradient_buckets"), 1);
  EXPECT_EQ(groups.losses, reference.losses);
}

TEST_F(ExchangeRuns, AnUpdateWithoutAnAllReduceRefusesASpec) {
  config_.variable_update = "parameter_server";
  config_.all_reduce_spec = "xring";
  EXPECT_TRUE(says(refusal(), "--all-reduce-spec is 'xring'"));
}

TEST_F(ExchangeRuns, SayHowLongTheExchangeTookAndHowMuchOfItShowed) {
  const RunResult result = completed(run());
  EXPECT_GT(result.facts.at("exchange_ms_per_step"), 0);
  EXPECT_GE(result.facts.at("exchange_exposed_ms_per_step"), 0);
  EXPECT_GE(result.facts.at("exchange_hideable_ms_per_step"), 0);
  ASSERT_EQ(result.exchange_exposed_ms.size(), result.step_ms.size());
  for (std::size_t i = 0; i < result.step_ms.size(); ++i) {
    EXPECT_LE(result.exchange_exposed_ms[i] + result.device_idle_ms[i], result.step_ms[i] + 1e-6);
  }
  double sum = 0;
  for (const BucketUse& bucket : result.buckets) {
    EXPECT_GT(bucket.mib, 0);
    EXPECT_GE(bucket.lead_ms, 0);
    sum += bucket.exchange_ms;
  }
  EXPECT_NEAR(sum, result.facts.at("exchange_ms_per_step"), 1e-6);
}

TEST_F(ExchangeRuns, ARankAloneAndOtherUpdatesHaveNone) {
  config_.num_gpus = 1;
  config_.all_reduce_spec = "xring";
  const RunResult alone = completed(run());
  EXPECT_FALSE(alone.facts.contains("exchange_ms_per_step"));
  EXPECT_FALSE(notes(alone, "ranks exchange"));
  config_.num_gpus = 3;
  config_.all_reduce_spec.clear();
  config_.forward_only = true;
  EXPECT_FALSE(run().facts.contains("exchange_ms_per_step"));
  config_.forward_only = false;
  config_.variable_update = "parameter_server";
  EXPECT_FALSE(run().facts.contains("exchange_ms_per_step"));
}

TEST_F(ExchangeRuns, UpdatesWithAnotherSystemsNameSayHowTheyDiffer) {
  const std::vector<double> losses = run().losses;
  for (const char* update : {"distributed_all_reduce", "collective_all_reduce"}) {
    config_.variable_update = update;
    const RunResult result = run();
    EXPECT_EQ(result.losses, losses) << update;
    EXPECT_EQ(result.config.variable_update, update);
    EXPECT_TRUE(notes(result, std::string(update) + ": ")) << update;
  }
}

TEST_F(ExchangeRuns, AStopFromOutsideEndsAllRanks) {
  StopAfter listener(6);
  config_.num_batches = 100000;
  const RunResult result = run(listener, listener.source.get_token());
  EXPECT_EQ(result.status, Status::partial);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_GE(result.step_ms.size(), 5U);
}

TEST_F(ExchangeRuns, AFailureOfOneRankEndsAll) {
  device_ = "tiny:nonfinite_at=7";
  const RunResult result = run();
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_TRUE(says(result.reason, "the loss of step 8"));
}

}  // namespace
}  // namespace penstock
