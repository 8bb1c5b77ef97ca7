// SPDX-License-Identifier: Apache-2.0
// Time by operation: sums, devices that emulate, and a training on this machine's cores.
#include "bench/run/trace/operation_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "bench/run/runner.h"
#include "bench/run/trace/trace.h"
#include "tests/support/thrown_by.h"
#include "trainer/backend.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

const OperationUse* use_of(const std::vector<OperationUse>& uses, const std::string& name) {
  const auto use = std::ranges::find(uses, name, &OperationUse::name);
  return use == uses.end() ? nullptr : &*use;
}

double percent_of_all(const std::vector<OperationUse>& uses) {
  return std::accumulate(uses.begin(), uses.end(), 0.0,
                         [](double sum, const OperationUse& use) { return sum + use.percent; });
}

TEST(OperationProfile, SumsTypesAndNamesWhatIsLeftOfTheStep) {
  OperationProfile profile;
  for (int step = 0; step < 2; ++step) {
    profile.add("conv2d forward: a", 3ms);
    profile.add("conv2d forward: b", 1ms);
    profile.add("relu forward: c", 2ms);
    profile.add_step(8ms);
  }
  const std::vector<OperationUse> types = profile.types();
  ASSERT_EQ(types.size(), 3U);
  EXPECT_EQ(types[0].name, "conv2d forward");
  EXPECT_DOUBLE_EQ(types[0].ms_per_step, 4);
  EXPECT_DOUBLE_EQ(types[0].calls_per_step, 2);
  EXPECT_DOUBLE_EQ(types[0].percent, 50);
  EXPECT_DOUBLE_EQ(use_of(types, "other: update, exchange, host")->ms_per_step, 2);
  EXPECT_NEAR(percent_of_all(types), 100, 1e-9);
  const std::vector<OperationUse> operations = profile.operations();
  EXPECT_EQ(operations.front().name, "conv2d forward: a");
  EXPECT_TRUE(says(profile.text(1), "conv2d forward: a"));
  EXPECT_FALSE(says(profile.text(1), "conv2d forward: b")) << "only the longest one";
}

TEST(OperationProfile, WithoutOperationsIsEmpty) {
  OperationProfile profile;
  profile.add_step(8ms);
  EXPECT_TRUE(profile.types().empty());
  EXPECT_EQ(profile.text(5), "no operations were recorded\n");
}

TEST(OperationProfile, ByArithmeticGivesBackwardTwiceTheForwardTime) {
  Graph graph({8, 8, 3});
  const NodeId conv = graph.add("conv", Conv2d{.channels = 4}, {Graph::kInput});
  const NodeId relu = graph.add("relu", Relu{}, {conv});
  graph.add("logits", Linear{.features = 3}, {relu});
  OperationProfile profile;
  profile.add_step(30ms);
  profile.add_by_arithmetic(graph, true);
  profile.add_step(30ms);
  profile.add_by_arithmetic(graph, true);  // of a later leg
  const std::vector<OperationUse> types = profile.types();
  EXPECT_NEAR(percent_of_all(types), 100, 1e-3);
  const OperationUse* const forward = use_of(types, "conv2d forward (by arithmetic)");
  const OperationUse* const backward = use_of(types, "conv2d backward (by arithmetic)");
  ASSERT_TRUE(forward != nullptr && backward != nullptr);
  EXPECT_NEAR(backward->ms_per_step, 2 * forward->ms_per_step, 1e-5);
  const double share = 8.0 * 8 * 3 * 4 / (8.0 * 8 * 3 * 4 + 8.0 * 8 * 4 * 3);
  EXPECT_NEAR(forward->ms_per_step, 30 * share / 3, 1e-5);
  EXPECT_DOUBLE_EQ(forward->calls_per_step, 1);
  EXPECT_EQ(use_of(types, "relu forward (by arithmetic)"), nullptr) << "it multiplies nothing";
}

class ProfiledRun : public testing::Test {
 protected:
  ProfiledRun() {
    config_.fake_location = "cpu";
    config_.model = "tiny_cnn";
    config_.batch_size = 8;
    config_.num_batches = 12;
    config_.num_warmup_batches = 1;
  }
  RunResult run() {
    SteadyClock clock;
    Trace trace(8, clock);
    RunListener silent;
    return Runner(config_, clock, find_components(config_), &trace).run(silent, {});
  }
  RunConfig config_;
};

TEST_F(ProfiledRun, OnAnEmulatedDeviceSharesTheStepByArithmetic) {
  config_.device = "emulated:img_per_s=4000";  // 2 ms a step
  const RunResult result = run();
  ASSERT_EQ(result.exit_code, 0) << result.reason;
  EXPECT_NEAR(percent_of_all(result.operations), 100, 0.1);
  double ms = 0;
  for (const OperationUse& use : result.operations) {
    if (use.name.starts_with("other: ")) continue;  // the host was late
    EXPECT_TRUE(says(use.name, "(by arithmetic)"));
    ms += use.ms_per_step;
  }
  EXPECT_GE(ms, 2 - 1e-3) << "and more where the host was late";
}

TEST_F(ProfiledRun, OnThisMachinesCoresTimesEveryOperation) {
  if (match_entry(backend_table(), "cpu") == nullptr) GTEST_SKIP() << "built without oneDNN";
  config_.device = "cpu";
  config_.compute_threads = 1;
  const RunResult result = run();
  ASSERT_EQ(result.exit_code, 0) << result.reason;
  for (const char* const type :
       {"conv2d forward", "conv2d backward", "linear forward", "linear backward", "loss"}) {
    const OperationUse* const use = use_of(result.operations, type);
    ASSERT_NE(use, nullptr) << type;
    EXPECT_GT(use->ms_per_step, 0) << type;
    EXPECT_GE(use->calls_per_step, 1) << type;
  }
  EXPECT_NEAR(percent_of_all(result.operations), 100, 1e-6) << "with the rest of the step";
}

TEST_F(ProfiledRun, WithoutATraceThereIsNone) {
  config_.device = "emulated:img_per_s=4000";
  SteadyClock clock;
  RunListener silent;
  EXPECT_TRUE(Runner(config_, clock, find_components(config_)).run(silent, {}).operations.empty());
}

}  // namespace
}  // namespace penstock
