// SPDX-License-Identifier: Apache-2.0
// Real training runs with a small model and device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "bench/record/machine.h"
#include "tests/bench/run/simulated_run.h"
#include "tests/support/training_fixture.h"

namespace penstock {
namespace {

class Training : public TrainingFixture {};

class KeepReports final : public RunListener {
 public:
  void step(const StepReport& step) override { steps.push_back(step); }
  std::vector<StepReport> steps;
};

TEST_F(Training, LossesFallAndAccuracyRises) {
  KeepReports listener;
  config_.num_batches = 60;
  const RunResult result = completed(run(listener));
  ASSERT_EQ(result.losses.size(), 60U);
  EXPECT_LT(result.losses.back(), 0.5 * result.losses.front());
  ASSERT_EQ(listener.steps.size(), 60U);
  EXPECT_GT(listener.steps.back().top1, 0.75);
  EXPECT_EQ(listener.steps.back().top5, 1) << "four classes are among the five highest";
  EXPECT_EQ(listener.steps.back().loss, result.losses.back());
}

TEST_F(Training, ForwardOnlyLeavesTheWeightsAlone) {
  config_.forward_only = true;
  KeepReports slow, fast;
  const RunResult result = completed(run(slow));
  EXPECT_EQ(result.losses, std::vector<double>(20, 0.0));
  config_.init_learning_rate = 1000;  // would be visible if there were an update
  run(fast);
  ASSERT_EQ(fast.steps.size(), slow.steps.size());
  for (std::size_t i = 0; i < slow.steps.size(); ++i) {
    EXPECT_EQ(fast.steps[i].top1, slow.steps[i].top1);
  }
}

TEST_F(Training, BaseLossLeavesTheDecaysShareOut) {
  config_.weight_decay = 0.5;
  config_.num_batches = 1;
  const double total = run().losses.at(0);
  config_.loss_type_to_report = "base_loss";
  const double base = run().losses.at(0);
  EXPECT_GT(total, base + 0.1);
}

TEST_F(Training, ALossHasTheDecaysShareFromTheFirstStepOnWhicheverUpdateAppliesIt) {
  config_.weight_decay = 0.5;
  config_.num_batches = 1;
  const double total = run().losses.at(0);
  for (const char* update : {"replicated:consistency=relaxed", "parameter_server",
                             "parameter_server:staged=true", "independent", "sma", "async-sgd"}) {
    config_.variable_update = update;
    EXPECT_DOUBLE_EQ(run().losses.at(0), total) << update;
  }
}

TEST_F(Training, TwoRanksOnHalfTheBatchTrainLikeOne) {
  // Dropout masks differ by rank, so compare only roughly.
  config_.num_batches = 60;
  const RunResult one = run();
  config_.num_gpus = 2;
  config_.batch_size = 4;
  for (const char* update : {"replicated", "parameter_server"}) {
    config_.variable_update = update;
    const RunResult two = completed(run());
    EXPECT_NEAR(two.losses.back(), one.losses.back(), 0.4) << update;
  }
}

TEST_F(Training, AveragingAndStaleUpdatesTrainAsWell) {
  config_.num_batches = 60;
  config_.num_gpus = 2;
  config_.batch_size = 4;
  for (const char* update : {"sync-sgd", "sma", "async-sgd", "async-sgd:prefetch=true",
                             "replicated:consistency=relaxed", "parameter_server:staged=true",
                             "parameter_server:placement=greedy", "distributed_replicated"}) {
    config_.variable_update = update;
    const RunResult result = completed(run());
    EXPECT_LT(result.losses.back(), 0.5 * result.losses.front()) << update;
  }
}

TEST_F(Training, AsyncSgdCountsHowOldTheModelsWere) {
  config_.num_gpus = 2;
  config_.variable_update = "async-sgd";
  const RunResult result = completed(run());
  std::int64_t reads = 0;
  for (const auto& [name, count] : result.counters) {
    if (name.starts_with("reads_")) reads += count;
  }
  EXPECT_EQ(reads, config_.num_gpus * config_.num_batches);
}

TEST_F(Training, SpreadHomesRefuseToSaveAPartOfAnOptimizersState) {
  config_.num_gpus = 2;
  config_.variable_update = "parameter_server:placement=split";
  config_.train_dir = (folder_ / "checkpoints").string();
  EXPECT_EQ(refusal(), "accepted");  // sgd has no state
  config_.optimizer = "momentum";
  EXPECT_TRUE(says(refusal(), "rank 0 would save only a part"));
  config_.train_dir.clear();
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(Training, EveryOptimizerTrains) {
  config_.num_batches = 60;
  const std::pair<const char*, double> rates[] = {
      {"sgd", 0.05},     {"momentum", 0.01}, {"momentum:nesterov=false", 0.01},
      {"rmsprop", 0.02}, {"adam", 0.01},     {"lars:eta=0.2", 0.1}};
  for (const auto& [optimizer, rate] : rates) {
    config_.optimizer = optimizer;
    config_.init_learning_rate = rate;
    const RunResult result = completed(run());
    EXPECT_LT(result.losses.back(), 0.6 * result.losses.front()) << optimizer;
  }
}

TEST_F(Training, HomesOfWholeTensorsTrainLayerWiseAndHomesOfPartsRefuse) {
  config_.num_gpus = 2;
  config_.optimizer = "lars";
  config_.init_learning_rate = 5;
  config_.variable_update = "parameter_server";
  const RunResult first = run();
  config_.variable_update = "parameter_server:placement=greedy";
  const RunResult greedy = completed(run());
  EXPECT_EQ(greedy.losses, first.losses);
  config_.variable_update = "parameter_server:placement=split";
  EXPECT_TRUE(says(refusal(), "use placement=greedy or placement=first"));
}

TEST_F(Training, RatesDecayAndClippingShowInTheStepThatTheyChange) {
  config_.fake_location = "queue:crop=full,flip=false";
  config_.num_batches = 14;  // an epoch of 40 images has 5 steps
  config_.weight_decay = 0;
  const std::vector<double> plain = run().losses;
  // The first step whose loss the flags change, which is the step after the first changed update;
  // -1: none.
  const auto first_change = [&](const std::vector<std::pair<const char*, const char*>>& flags) {
    const RunConfig before = config_;
    for (const auto& [name, value] : flags) find_config_key(name).set(config_, value);
    const RunResult result = completed(run());
    config_ = before;
    const auto place = std::ranges::mismatch(result.losses, plain).in1;
    return place == result.losses.end() ? -1 : static_cast<int>(place - result.losses.begin());
  };
  EXPECT_EQ(first_change({}), -1);
  EXPECT_EQ(first_change({{"init_learning_rate", "0.02"}}), 1);
  // int(2 * 5) - 1 = 9 is the last step with the first rate. Step 10 is the first with the second
  // rate, and step 11 the first whose loss shows it.
  EXPECT_EQ(first_change(
                {{"init_learning_rate", "0"}, {"piecewise_learning_rate_schedule", "0.05;2;0.5"}}),
            11);
  EXPECT_EQ(first_change({{"num_epochs_per_decay", "1.2"}, {"learning_rate_decay_factor", "0.5"}}),
            7);
  EXPECT_EQ(first_change({{"num_learning_rate_warmup_epochs", "0.4"}}), 1);
  EXPECT_EQ(first_change({{"weight_decay", "0.5"}, {"loss_type_to_report", "base_loss"}}), 1);
  EXPECT_EQ(first_change({{"gradient_clip", "1000"}}), -1);
  EXPECT_EQ(first_change({{"gradient_clip", "1e-4"}}), 1);
}

TEST_F(Training, SumsOfGradientsStepFurtherThanMeans) {
  config_.num_gpus = 2;
  config_.num_batches = 2;
  config_.seed = 5;
  const RunResult mean = run();
  config_.gradient_reduction = "sum";
  const RunResult sum = run();
  EXPECT_EQ(mean.losses[0], sum.losses[0]);
  EXPECT_NE(mean.losses[1], sum.losses[1]);
}

TEST_F(Training, ALossThatIsNotFiniteStopsTheRunByName) {
  device_ = "tiny:nonfinite_at=7";
  const RunResult result = run();
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_TRUE(says(result.reason, "the loss of step 8 of resnet50 in fp32 is not finite"));
  EXPECT_TRUE(says(result.reason, "--on-nonfinite continue"));
  EXPECT_LT(result.step_ms.size(), 20U);
}

TEST_F(Training, OrGoesOnWithOneWarning) {
  device_ = "tiny:nonfinite_at=7";
  config_.on_nonfinite = "continue";
  const RunResult result = completed(run());
  EXPECT_EQ(result.counters.at("nonfinite_steps"), 1);
  EXPECT_TRUE(std::isnan(result.losses.at(7)));
  EXPECT_TRUE(notes(result, "the loss of step 8"));
}

TEST_F(Training, APrecisionThatTheDeviceLacksIsUnavailable) {
  config_.precision = "fp16";
  EXPECT_THROW(Runner(config_, clock_, components()), Unavailable);
}

TEST_F(Training, MoreClassesInTheDataThanInTheModelAreRefusedWithWhatToType) {
  config_.classes = 3;
  EXPECT_TRUE(says(refusal(), "has 4 classes; the model has 3 outputs; pass --classes 4"));
}

TEST_F(Training, FewerClassesAreOneNote) {
  config_.classes = 10;
  config_.num_batches = 1;
  const RunResult result = run();
  EXPECT_NE(result.exit_code, 2);
  EXPECT_TRUE(notes(result, "has 4 classes and the model 10 outputs"));
}

TEST_F(Training, FeedersAndTrainersOnTheSameCoresShareThem) {
  config_.feeder_threads = 0;
  config_.compute_threads = 0;
  const Runner runner(config_, clock_, components());
  EXPECT_EQ(runner.config().compute_threads, usable_cores());
  EXPECT_EQ(runner.config().feeder_threads, std::max(1, usable_cores() / 2));
  config_.num_batches = 1;
  const RunResult result = run();
  EXPECT_TRUE(notes(result, "nice 19"));
}

}  // namespace
}  // namespace penstock
