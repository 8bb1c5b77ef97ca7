// SPDX-License-Identifier: Apache-2.0
// Isolating real runs with a simulated clock: feeders that are limited to a known rate, and devices
// of a known rate.
#include <gtest/gtest.h>

#include "bench/isolate/isolator.h"
#include "bench/run/runner.h"
#include "tests/bench/turned_clock.h"
#include "tests/support/virtual_clock.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class KnownAnswers : public testing::Test {
 protected:
  KnownAnswers() {
    config_.model = "lenet";
    config_.batch_size = 64;
    config_.device = "emulated:img_per_s=12800,copy=none";  // 5 ms a step
  }

  isolate::Isolation isolate(const std::string& feeder) {
    config_.fake_location = feeder;
    isolate::IsolatePlan plan;
    plan.config = resolve(config_, find_components(config_));
    plan.budget = 1min;
    const auto run = [this](const RunConfig& config, const std::stop_token& stop) {
      VirtualClock simulated;
      RunListener silent;
      RunResult result = Runner(config, simulated).run(silent, stop);
      clock_.turn(std::chrono::round<Nanoseconds>(std::chrono::duration<double>(result.window_s)));
      return result;
    };
    const auto meter = [] { return isolate::NoiseReading{}; };
    return isolate::isolate(plan, run, meter, clock_, listener_, {});
  }

  RunConfig config_;
  TurnedClock clock_;
  isolate::IsolateListener listener_;
};

TEST_F(KnownAnswers, AFeederOfATenthLessThanTheDeviceCostsATenth) {
  const isolate::Isolation& found = isolate("host:img_per_s=11520");
  ASSERT_TRUE(found.cost) << found.verdict.front();
  EXPECT_EQ(found.cost->verdict, statistics::Verdict::slower);
  EXPECT_NEAR(found.cost->ceiling_img_per_s.value, 12800, 1e-3);
  EXPECT_NEAR(found.cost->percent.value, 10, 0.05);
  EXPECT_NEAR(found.cost->split.total_ms.value, 5.0 / 9, 0.005);
  ASSERT_TRUE(found.supply_img_per_s);
  EXPECT_NEAR(found.supply_img_per_s->value, 11520, 12);
  EXPECT_EQ(found.measurement.stopped_because, "the interval is within 1 %");
}

TEST_F(KnownAnswers, AFeederOfAQuarterStarvesTheDeviceForTheRest) {
  const isolate::Isolation& found = isolate("host:img_per_s=3200");
  ASSERT_TRUE(found.cost);
  EXPECT_NEAR(found.cost->percent.value, 75, 0.1);
  EXPECT_NEAR(found.cost->split.starvation_ms.value, 15, 0.1);
  EXPECT_NEAR(found.cost->split.residual_ms, 0, 0.1);
}

TEST_F(KnownAnswers, AFeederFasterThanTheDeviceCostsNothing) {
  const isolate::Isolation& found = isolate("host:img_per_s=14000");
  ASSERT_TRUE(found.cost);
  EXPECT_EQ(found.cost->verdict, statistics::Verdict::equal);
  EXPECT_NEAR(found.cost->percent.value, 0, 0.01);
  EXPECT_FALSE(found.diagnosis.bottleneck);
}

TEST_F(KnownAnswers, DeeperQueuesDoNotHelpAFeederThatIsSlowerOnAverage) {
  const isolate::Isolation& found = isolate("host:img_per_s=6400");
  ASSERT_FALSE(found.predictions.depths.empty());
  for (const isolate::Prediction& depth : found.predictions.depths)
    EXPECT_NEAR(depth.img_per_s, 6400, 64);
  EXPECT_TRUE(found.predictions.recommendations.empty() ||
              found.predictions.recommendations.front().text.find("--prefetch") ==
                  std::string::npos);
}

TEST_F(KnownAnswers, SeveralDevicesShareOneFeeder) {
  config_.num_gpus = 2;
  const isolate::Isolation& found = isolate("host:img_per_s=12800");
  ASSERT_TRUE(found.cost);
  EXPECT_NEAR(found.cost->ceiling_img_per_s.value, 25600, 1e-3);
  EXPECT_NEAR(found.cost->percent.value, 50, 0.5);
}

}  // namespace
}  // namespace penstock
