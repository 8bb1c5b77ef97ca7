// SPDX-License-Identifier: Apache-2.0
// The harness against known answers, with a simulated clock: its results must be exact.
#include "bench/run/runner.h"
#include "bench/record/machine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/record/statistics.h"
#include "dataflow/error.h"
#include "tests/bench/run/simulated_run.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

// ---- feeders that misbehave in stated ways ----------------------------------

/// Publishes `burst` batches at once and then one every `period`. It does not catch up after a
/// delay.
class Throttled final : public Feeder {
 public:
  explicit Throttled(const FeederContext& context)
      : clock_(context.clock),
        period_(context.options.duration("period")),
        burst_(context.options.integer("burst")),
        batches_(context.options.integer("batches")),
        epoch_(context.options.integer("epoch")),
        fails_(context.options.flag("fails")) {}

  void run(BatchRing& out, std::stop_token stop) override {
    Time ready = clock_.now();
    for (std::int64_t count = 0; count != batches_; ++count) {
      WriteLease lease = out.acquire(stop);
      if (!lease) return;
      ready = std::max(ready, clock_.now()) + (count < burst_ ? Nanoseconds{} : period_);
      clock_.sleep_until(ready);
      lease.batch().begins_epoch = count > 0 && count % epoch_ == 0;
      std::move(lease).publish();
    }
    if (fails_) throw DataError("image 7 of a.tar is damaged");
  }

 private:
  Clock& clock_;
  const Nanoseconds period_;
  const std::int64_t burst_, batches_, epoch_;
  const bool fails_;
};

constexpr OptionSpec kThrottledOptions[] = {{"period", "1ms", "time between two batches"},
                                            {"burst", "0", "batches that are there at once"},
                                            {"batches", "-1", "how many; -1: for ever"},
                                            {"epoch", "1000000", "batches of an epoch"},
                                            {"fails", "false", "throws behind the last one"}};
constexpr FeederEntry kThrottled{
    .name = "throttled",
    .options = kThrottledOptions,
    .make = make_feeder<Throttled>,
};

class RunnerTest : public SimulatedRun {
 protected:
  RunnerTest() {
    config_.device = "emulated:img_per_s=12800,copy=none";  // 5 ms for 64 images
    config_.num_batches = 100;
    config_.num_warmup_batches = 10;
  }
};

TEST_F(RunnerTest, EmulatedStepsOfFiveMillisecondsAreTwelveThousandEightHundredImagesPerSecond) {
  for (const char* feeder : {"gpu", "host", "cpu"}) {
    config_.fake_location = feeder;
    const RunResult result = run();
    EXPECT_EQ(result.status, Status::ok) << feeder << ": " << result.reason;
    EXPECT_NEAR(result.img_per_s, 12800, 1e-6) << feeder;
    EXPECT_NEAR(result.window_s, 0.5, 1e-9) << feeder;
    ASSERT_EQ(result.step_ms.size(), 100U) << feeder;
    for (const double step : result.step_ms) EXPECT_NEAR(step, 5, 1e-9) << feeder;
    EXPECT_EQ(result.device_idle_percent, 0) << feeder;
    EXPECT_EQ(result.discarded_steps, 10);
  }
}

TEST_F(RunnerTest, RatesAddUpOverDevices) {
  config_.num_gpus = 3;
  for (const char* update : {"replicated", "independent"}) {
    config_.variable_update = update;
    const RunResult result = run();
    EXPECT_NEAR(result.img_per_s, 3 * 12800, 1e-6) << update;
    EXPECT_EQ(result.images_per_step, 3 * 64);
  }
}

TEST_F(RunnerTest, AFeederTenPercentTooSlowShowsTenPercent) {
  config_.fake_location = "throttled:period=5555555ns";  // 5 ms / 0.9
  config_.num_warmup_batches = 100;                      // the reserve is used up by then
  const RunResult result = run(&kThrottled);
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  const InputCost cost = input_cost(12800, result.sustained_img_per_s, 64);
  EXPECT_NEAR(cost.percent, 10, 1e-4);
  EXPECT_NEAR(cost.ms_per_step, 5.555555 - 5, 1e-4);
  EXPECT_NEAR(result.img_per_s, 0.9 * 12800, 1e-2);
}

TEST_F(RunnerTest, AHostFeederOfAStatedRateSuppliesThatRate) {
  config_.fake_location = "host:img_per_s=11520";  // 0.9 of the ceiling
  config_.num_warmup_batches = 100;
  const RunResult slow = run();
  EXPECT_EQ(slow.status, Status::ok) << slow.reason;
  EXPECT_NEAR(input_cost(12800, slow.sustained_img_per_s, 64).percent, 10, 1e-4);
  EXPECT_NEAR(slow.img_per_s, 11520, 1e-2);
  config_.fake_location = "host:img_per_s=12801";
  EXPECT_NEAR(run().img_per_s, 12800, 1e-6);
  config_.fake_location = "host:img_per_s=-1";
  EXPECT_THROW(run(), ConfigError);
}

/// Makes a batch in 1 ms, and notes when it begins each.
class Noted final : public Feeder {
 public:
  static inline std::vector<Time> begins;
  explicit Noted(const FeederContext& context) : clock_(context.clock) { begins.clear(); }
  void run(BatchRing& out, std::stop_token stop) override {
    while (WriteLease lease = out.acquire(stop)) {
      begins.push_back(clock_.now());
      clock_.sleep_until(clock_.now() + 1ms);
      std::move(lease).publish();
    }
  }

 private:
  Clock& clock_;
};
constexpr FeederEntry kNoted{.name = "noted", .make = make_feeder<Noted>};

TEST_F(RunnerTest, BatchesAreMadeInGroupsInLockStepWithTheDevice) {
  config_.prefetch = 8;
  const RunResult free = run(&kNoted);
  EXPECT_GE(free.reserve_start, 8);
  for (std::size_t batch = 40; batch < 100; ++batch) {
    EXPECT_EQ(Noted::begins[batch] - Noted::begins[batch - 1], 5ms) << "one a step";
  }
  config_.batch_group_size = 3;
  const RunResult grouped = run(&kNoted);
  EXPECT_NEAR(grouped.img_per_s, 12800, 1e-6) << "the device's own slots cover the wait";
  EXPECT_LE(grouped.reserve_start, 3 + config_.device_slots);
  for (std::size_t batch = 42; batch < 99; batch += 3) {
    const auto began = std::span(Noted::begins).subspan(batch);
    EXPECT_EQ(began[1] - began[0], 1ms) << batch;
    EXPECT_EQ(began[2] - began[1], 1ms) << batch;
    EXPECT_EQ(began[3] - began[0], 15ms) << "three steps later, when all three were taken";
  }
}

TEST_F(RunnerTest, ADeviceIsIdleForWhatASlowFeederLeavesOfItsTime) {
  config_.fake_location = "throttled:period=8ms";
  config_.num_warmup_batches = 20;  // the reserve is used up by then
  const RunResult result = run(&kThrottled);
  ASSERT_EQ(result.device_idle_ms.size(), 100U);
  for (std::size_t step = 0; step < 100; ++step) {
    EXPECT_NEAR(result.step_ms[step], 5 + result.device_idle_ms[step], 1e-9) << step;
    if (step < 3) continue;  // the initial contents of the rings are used up
    EXPECT_NEAR(result.device_idle_ms[step], 3, 1e-9) << step;
  }
  const double supply = 64 / 8e-3, ceiling = 12800;
  EXPECT_NEAR(result.device_idle_percent, 100 * (1 - supply / ceiling), 0.5);
}

/// If devices exchange gradients, the first one waits for the last one inside its step. If they do
/// not, chance decides which waiting device gets a batch.
TEST_F(RunnerTest, DevicesAreIdleForWhatTheyWaitWhetherOrNotTheyWaitForEachOther) {
  config_.fake_location = "throttled:period=5ms";  // one batch for three devices of 5 ms
  config_.num_gpus = 3;
  config_.num_warmup_batches = 50;
  config_.variable_update = "replicated";
  EXPECT_NEAR(run(&kThrottled).device_idle_percent, 100 * 2 / 3.0, 1);
  config_.variable_update = "independent";
  EXPECT_NEAR(run(&kThrottled).device_idle_percent, 100 * 2 / 3.0, 1);
}

TEST_F(RunnerTest, AFeederOfHalfTheRateHalvesTwoDevices) {
  config_.fake_location = "throttled:period=5ms";  // one batch for two devices of 5 ms
  config_.num_gpus = 2;
  config_.num_warmup_batches = 50;
  const RunResult result = run(&kThrottled);
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  // A window of 200 batches may begin with one batch in the ring.
  EXPECT_NEAR(result.img_per_s, 12800, 12800 / 190.0);
  EXPECT_NEAR(input_cost(25600, result.sustained_img_per_s, 128).percent, 50, 50 / 190.0);
}

TEST_F(RunnerTest, AWindowThatLivesOnTheReserveIsDraining) {
  config_.fake_location = "throttled:period=5555555ns,burst=14";
  config_.num_batches = 20;
  config_.num_warmup_batches = 2;
  config_.prefetch = 10;
  const RunResult result = run(&kThrottled);
  EXPECT_EQ(result.status, Status::draining);
  EXPECT_TRUE(says(result.reason, "batches were ready"));
}

TEST_F(RunnerTest, AShortWindowWhoseReserveDidNotFallHasARateWithABound) {
  config_.fake_location = "throttled:period=4ms";  // keeps up, with full rings
  config_.num_batches = 10;
  const RunResult result = run(&kThrottled);
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  EXPECT_GT(result.reserve_start, 1);
  EXPECT_NEAR(result.facts.at("most_hidden_percent"), 10, 1e-9) << "one batch of ten";
  EXPECT_TRUE(mentions(result.notes, "up to 10 % of the window's 10 batches"));
}

TEST_F(RunnerTest, AWindowWithAnEvaluationInsideIsOneWindow) {
  config_.fake_location = "host";
  config_.num_batches = 10;
  config_.eval_during_training_at_specified_steps = "5";
  config_.num_eval_batches = 4;
  const RunResult result = run();
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  EXPECT_NEAR(result.window_s, 10 * 5e-3, 1e-9);
  EXPECT_NEAR(result.facts.at("most_hidden_percent"), 10, 1e-9) << "one batch of ten";
  ASSERT_EQ(result.evaluations.size(), 1U);
  EXPECT_NEAR(result.evaluations[0].seconds, 4 * 5e-3, 1e-9);
}

TEST_F(RunnerTest, StepsWithTheFirstBatchOfAnEpochAreNamed) {
  config_.fake_location = "throttled:period=4ms,epoch=16";
  config_.num_batches = 40;
  EXPECT_EQ(run(&kThrottled).epoch_begins, (std::vector<std::int64_t>{6, 22, 38}));
}

TEST_F(RunnerTest, BatchesThatMayWaitInSocketsMakeAShortWindowDraining) {
  FeederEntry feeder = kThrottled;
  feeder.outside_reserve = [](const Options&, const BatchSpec&) -> std::int64_t { return 18; };
  config_.fake_location = "throttled:period=4ms";
  config_.num_batches = 20;
  EXPECT_EQ(run(&feeder).status, Status::draining);
  config_.num_batches = 40;
  const RunResult longer = run(&feeder);
  EXPECT_EQ(longer.status, Status::ok) << longer.reason;
  EXPECT_NEAR(longer.facts.at("most_hidden_percent"), 100 * 19 / 40.0, 1e-9);
}

TEST_F(RunnerTest, AProducerThatSaysWhenItSentItsBatchesBoundsWhatSocketsHid) {
  static double sent = 0;
  FeederEntry feeder = kThrottled;
  feeder.outside_reserve = [](const Options&, const BatchSpec&) -> std::int64_t { return 18; };
  feeder.make = [](const FeederContext& context) -> std::unique_ptr<Feeder> {
    context.probe.fact("producer_window_batches", sent);
    context.probe.fact("producer_window_s", 0.08);  // the window is 0.1 s
    return std::make_unique<Throttled>(context);
  };
  config_.fake_location = "throttled:period=4ms";
  config_.num_batches = 20;
  sent = 16;  // as many as were consumed in that time
  const RunResult kept_up = run(&feeder);
  EXPECT_EQ(kept_up.status, Status::ok) << kept_up.reason;
  EXPECT_NEAR(kept_up.facts.at("most_hidden_percent"), 100 / 16.0, 1e-6);
  sent = 12;
  const RunResult fell_behind = run(&feeder);
  EXPECT_EQ(fell_behind.status, Status::draining);
  EXPECT_TRUE(says(fell_behind.reason, "the producer sent 12 batches while 16 were trained on"));
}

TEST_F(RunnerTest, AnExtendedWindowOutlastsTheReserve) {
  config_.fake_location = "throttled:period=5555555ns,burst=14";
  config_.num_batches = 20;
  config_.num_warmup_batches = 2;
  config_.prefetch = 10;
  config_.extend_window = true;
  const RunResult result = run(&kThrottled);
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  EXPECT_NEAR(input_cost(12800, result.sustained_img_per_s, 64).percent, 10, 0.5);
  EXPECT_GT(result.discarded_steps, 2);
}

TEST_F(RunnerTest, AFeederThatKeepsUpCostsNothing) {
  config_.fake_location = "throttled:period=4ms";
  const RunResult result = run(&kThrottled);
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  EXPECT_NEAR(result.img_per_s, 12800, 1e-6);
  EXPECT_GE(result.sustained_img_per_s, 12800 - 1e-6);  // more while the reserve still fills
}

TEST_F(RunnerTest, ExchangeTimeLengthensEachStep) {
  config_.device = "emulated:img_per_s=12800,exchange=ms=1";
  const RunResult result = run();
  for (const double step : result.step_ms) EXPECT_NEAR(step, 6, 1e-9);
}

TEST_F(RunnerTest, TheNullModelTakesWhatTheFeederSupplies) {
  config_.fake_location = "throttled:period=2ms";
  static constexpr ModelEntry kNull{
      .name = "null", .image = {2, 2, 3}, .build = [](Graph&, int) {}};
  model_ = &kNull;
  const RunResult result = run(&kThrottled);
  EXPECT_NEAR(result.img_per_s, 32 / 2e-3, 1e-6);  // the entry's batch of 32
}

// ---- ends before the end ----------------------------------------------------

TEST_F(RunnerTest, AFailingFeederFailsTheRunWithItsReason) {
  config_.fake_location = "throttled:batches=30,fails=true";
  const RunResult result = run(&kThrottled);
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.reason, "image 7 of a.tar is damaged");
  EXPECT_EQ(result.step_ms.size(), 20U);  // earlier measurements are kept
}

TEST_F(RunnerTest, DataThatEndEarlyMakeAPartialResult) {
  config_.num_gpus = 2;
  config_.fake_location = "throttled:batches=61";
  const RunResult result = run(&kThrottled);
  EXPECT_EQ(result.status, Status::partial);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_TRUE(says(result.reason, "data ended"));
  EXPECT_LE(result.step_ms.size(), 20U);
}

TEST_F(RunnerTest, DataThatEndDuringWarmUpAreAFailure) {
  config_.fake_location = "throttled:batches=7";
  const RunResult one = run(&kThrottled);
  EXPECT_EQ(one.status, Status::failed);
  EXPECT_EQ(one.exit_code, 6);
  EXPECT_EQ(one.reason,
            "the data ended during warm-up, after 7 of 10 steps; give more data or a smaller "
            "--num-warmup-batches");
  EXPECT_TRUE(one.step_ms.empty());
  config_.num_gpus = 2;  // chance decides which device gets a batch
  for (const char* update : {"replicated", "independent"}) {
    config_.variable_update = update;
    const RunResult two = run(&kThrottled);
    EXPECT_EQ(two.status, Status::failed) << update;
    EXPECT_EQ(two.exit_code, 6) << update;
    EXPECT_TRUE(says(two.reason, " of 10 steps; give more data"));
  }
}

TEST_F(RunnerTest, DataThatEndWithTheWarmUpMakeAPartialResult) {
  config_.fake_location = "throttled:batches=10";
  const RunResult result = run(&kThrottled);
  EXPECT_EQ(result.status, Status::partial);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.reason, "the feeder's data ended after 0 of 100 steps");
}

TEST_F(RunnerTest, DataThatEndInTheExtensionOfAWindowAreEnough) {
  config_.fake_location = "throttled:period=4ms,burst=14,batches=80";
  config_.num_batches = 20;
  config_.prefetch = 10;
  config_.extend_window = true;
  const RunResult result = run(&kThrottled);
  EXPECT_EQ(result.status, Status::draining) << "the rings were full, and are empty";
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_FALSE(says(result.reason, "--extend-window")) << "it is given";
  EXPECT_EQ(result.reserve_end, 0);
  EXPECT_EQ(result.step_ms.size(), 70U);
  EXPECT_TRUE(mentions(result.notes, "the feeder's data ended after 70 of "));
}

TEST_F(RunnerTest, DataThatEndBeforeTheStepsThatWereAskedForAreCountedByThese) {
  config_.fake_location = "throttled:period=4ms,burst=14,batches=25";
  config_.num_batches = 20;
  config_.prefetch = 10;
  config_.extend_window = true;
  const RunResult result = run(&kThrottled);
  EXPECT_EQ(result.status, Status::partial);
  EXPECT_EQ(result.reason, "the feeder's data ended after 15 of 20 steps");
}

TEST_F(RunnerTest, AStopFromOutsideKeepsWhatWasMeasured) {
  // Uses the real clock: another thread requests the stop during the steps.
  SteadyClock clock;
  config_.num_batches = 1'000'000;
  for (const char* update : {"replicated", "independent"}) {
    StopAfter listener(6);
    config_.variable_update = update;
    config_.num_gpus = 2;
    Runner::Components components = find_components(config_);
    components.model = &kTinyModel;
    const RunResult result =
        Runner(config_, clock, components).run(listener, listener.source.get_token());
    EXPECT_EQ(result.status, Status::partial) << result.reason;
    EXPECT_EQ(result.exit_code, 130);
    EXPECT_GE(result.step_ms.size(), 6U);
    EXPECT_LT(result.step_ms.size(), 1000U);
  }
}

TEST_F(RunnerTest, ResolvesAutomaticValues) {
  VirtualClock clock;
  const Runner runner(config_, clock);
  EXPECT_EQ(runner.config().batch_size, 64);
  EXPECT_EQ(runner.config().feeder_threads, usable_cores());
}

TEST_F(RunnerTest, RefusesWhatItDoesNotHave) {
  VirtualClock clock;
  config_.fake_location = "zmq-serve";
  EXPECT_THROW(Runner(config_, clock), Unavailable);
  config_.fake_location = "gpu";
  config_.variable_update = "replicted";
  EXPECT_THROW(Runner(config_, clock), ConfigError);
  config_.variable_update = "replicated:foo=1";
  EXPECT_THROW(Runner(config_, clock), ConfigError);
}

}  // namespace
}  // namespace penstock
