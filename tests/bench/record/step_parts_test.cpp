// SPDX-License-Identifier: Apache-2.0
#include "bench/record/step_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/bench/record/sweep_rows.h"

namespace penstock {
namespace {

/// Step i of 101, from 0, takes 10 ms of computing, i ms without a batch, and 1 ms of exchange.
RunResult hundred_and_one_steps() {
  RunResult result;
  for (int i = 0; i <= 100; ++i) {
    result.starved_ms.push_back(i);
    result.copy_exposed_ms.push_back(0);
    result.late_ms.push_back(i == 50 ? 4 : 0);
    result.exchange_exposed_ms.push_back(1);
    result.step_ms.push_back(11 + i + result.late_ms.back());
  }
  return result;
}

PartTimes part_of(const std::vector<PartTimes>& parts, const std::string& name) {
  const auto part = std::ranges::find(parts, name, &PartTimes::name);
  if (part != parts.end()) return *part;
  ADD_FAILURE() << "there is no part " << name;
  return {};
}

std::vector<std::string> lines_of(const document::Table& table) {
  std::stringstream text;
  document::write_text(table, text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(StepParts, HavePercentilesOverTheSteps) {
  const RunResult result = hundred_and_one_steps();
  const std::vector<PartTimes> parts = part_times(std::span(&result, 1));
  const PartTimes starved = part_of(parts, "starved");
  EXPECT_DOUBLE_EQ(starved.p50, 50);
  EXPECT_DOUBLE_EQ(starved.p90, 90);
  EXPECT_DOUBLE_EQ(starved.p95, 95);
  EXPECT_DOUBLE_EQ(starved.p99, 99);
  EXPECT_DOUBLE_EQ(starved.max, 100);
  const PartTimes late = part_of(parts, "late");
  EXPECT_DOUBLE_EQ(late.p99, 0);
  EXPECT_DOUBLE_EQ(late.max, 4);
  EXPECT_DOUBLE_EQ(part_of(parts, "exchange_exposed").max, 1);
}

TEST(StepParts, ComputeIsWhatTheOthersLeave) {
  const RunResult result = hundred_and_one_steps();
  const PartTimes compute = part_of(part_times(std::span(&result, 1)), "compute");
  EXPECT_DOUBLE_EQ(compute.p50, 10);
  EXPECT_DOUBLE_EQ(compute.max, 10);
}

TEST(StepParts, CoverAllStepsOfSeveralRuns) {
  RunResult fast, slow;
  fast.step_ms = {1, 1};
  slow.step_ms = {3, 3, 3};
  const std::vector<RunResult> runs{fast, slow};
  EXPECT_DOUBLE_EQ(part_of(part_times(runs), "step").p50, 3);
  EXPECT_TRUE(part_times(std::span<const RunResult>()).empty());
}

TEST(StepParts, AreATableThatLeavesOutWhatTakesNoTime) {
  const RunResult result = hundred_and_one_steps();
  const std::vector<std::string> lines = lines_of(parts_table(part_times(std::span(&result, 1))));
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "ms of a step            p50     p95     p99     max",
                       "step                  62.00  106.00  110.00  111.00",
                       "input wait (starved)  50.00   95.00   99.00  100.00",
                       "compute               10.00   10.00   10.00   10.00",
                       "exchange               1.00    1.00    1.00    1.00",
                       "host overhead          0.00    0.00    0.00    4.00",
                   }));
}

TEST(StepParts, OfASweepNameTheRowAndFitEightyColumns) {
  SweepResult sweep;
  sweep.varied = {&find_config_key("fake_location")};
  sweep.rows = {make_ok_row("gpu", 1000, true), make_ok_row("zmq-consume", 500)};
  sweep.rows[1].repetitions[0].result = hundred_and_one_steps();
  sweep.rows[1].repetitions[1].result.status = Status::failed;
  const std::vector<std::string> lines = lines_of(parts_table(sweep));
  const auto begins = [&](const char* words) {
    return std::ranges::any_of(lines, [&](const auto& line) { return line.starts_with(words); });
  };
  EXPECT_TRUE(begins("gpu          step"));
  EXPECT_TRUE(begins("zmq-consume  input wait (starved)"));
  sweep.rows[1].repetitions[0].result.status = Status::draining;
  EXPECT_EQ(lines_of(parts_table(sweep)), lines) << "its steps are measured, too";
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80U) << line;
}

}  // namespace
}  // namespace penstock
