// SPDX-License-Identifier: Apache-2.0
// The selftest on simulated machines: quiet ones, and ones whose blocks differ.
#include "bench/isolate/selftest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/bench/isolate/simulated_machine.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// `blocks` blocks of both cases; `bias` slows down B of the first case.
isolate::Selftest measured(std::size_t blocks, double noise, double bias = 1) {
  const std::vector<isolate::SelftestCase> cases = isolate::selftest_cases();
  const SimulatedMachine machine{.device_ms = 1, .feeder_ms = 2, .noise = noise};
  isolate::Selftest test;
  test.sweep.seed = 7;
  for (std::size_t row = 0; row < 2 * cases.size(); ++row) {
    Row& made = test.sweep.rows.emplace_back();
    made.config = cases[row / 2].config;
    for (std::size_t block = 0; block < blocks; ++block) {
      RunConfig config = made.config;
      config.seed = 100 * row + block;
      RunResult result = machine.run(config);
      Random random(config.seed, 9);
      const double factor = (1 + noise * random.uniform(-1, 1)) * (row == 1 ? bias : 1);
      for (double& ms : result.step_ms) ms *= factor;
      made.repetitions.push_back({static_cast<std::int32_t>(block), std::move(result)});
    }
  }
  isolate::judge_selftest(test, cases);
  return test;
}

TEST(Selftest, IndependentBlocksRaiseFewFalseAlarms) {
  const isolate::Selftest test = measured(200, 0.02);
  for (const isolate::SelftestFinding& finding : test.findings) {
    EXPECT_EQ(finding.pairs, 200U);
    EXPECT_EQ(finding.groups, 40U);
    EXPECT_FALSE(isolate::is_alarming(finding)) << finding.without_margin;
    EXPECT_LE(finding.drawn_alarms, 18U);
    EXPECT_LE(finding.drawn_alarms, finding.drawn_without_margin);
    EXPECT_GT(finding.detectable_percent, 0.5);
    EXPECT_LT(finding.detectable_percent, 10);
  }
  EXPECT_NEAR(test.findings[0].measured_ms, test.findings[0].expected_ms, 0.02);
}

TEST(Selftest, BlocksThatAreNotAlikeAreFoundOut) {
  EXPECT_TRUE(isolate::is_alarming(measured(100, 0.005, 1.05).findings[0]));
}

TEST(Selftest, AQuietMachineSeesSmallEffects) {
  const isolate::Selftest test = measured(20, 0.001);
  EXPECT_LT(test.findings[0].detectable_percent, 0.5);
  EXPECT_EQ(test.findings[0].verdict, statistics::Verdict::equal);
  EXPECT_TRUE(test.warnings.empty());
}

TEST(Selftest, FewPairsSayNothing) {
  const isolate::Selftest test = measured(3, 0.01);
  EXPECT_EQ(test.findings[0].pairs, 3U);
  EXPECT_EQ(test.findings[0].detectable_percent, 0);
  std::ostringstream text;
  isolate::write_selftest_text(test, text);
  EXPECT_TRUE(says(text.str(), "inconclusive"));
}

TEST(Selftest, ADifferenceThatIsThereIsSeenInAllPairsTogether) {
  const isolate::Selftest test = measured(30, 0.005, 1.05);
  EXPECT_EQ(test.findings[0].verdict, statistics::Verdict::slower);
  EXPECT_NEAR(test.findings[0].ratio.value, 1.05, 0.01);
}

TEST(Selftest, TheFileHasFindingsAndRuns) {
  const nlohmann::ordered_json json = isolate::to_json(measured(6, 0.01));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["findings"].size(), 2U);
  EXPECT_EQ(json["findings"][0]["pairs"], 6);
  EXPECT_EQ(json["sweep"]["runs"][0]["repetitions"].size(), 6U);
}

}  // namespace
}  // namespace penstock
