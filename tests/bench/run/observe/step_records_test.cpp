// SPDX-License-Identifier: Apache-2.0
#include "bench/run/observe/step_records.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "bench/record/saved_results.h"
#include "bench/record/saved_steps.h"
#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/virtual_clock.h"

namespace penstock {
namespace {

class Records : public ::testing::Test {
 protected:
  Records() {
    config_.batch_size = 10;
    config_.num_gpus = 2;
  }
  static void take(StepRecords& records, std::size_t index, double seconds, double loss = 1.5) {
    records.step({.index = index, .seconds = seconds, .loss = loss});
  }
  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }
  const RunResult& only_run(const SweepResult& sweep) const {
    return sweep.rows.at(0).repetitions.at(0).result;
  }

  TempFolder folder_;
  const std::filesystem::path path_ = folder_ / "result.steps.jsonl";
  RunConfig config_;
  SteadyClock clock_;
};

TEST_F(Records, StandBesideTheResult) {
  EXPECT_EQ(step_records_path("out/result.json"), "out/result.steps.jsonl");
  EXPECT_EQ(step_records_path("out/result"), "out/result.steps.jsonl");
}

TEST_F(Records, AreReadBackAsAPartialRun) {
  {
    StepRecords records(path_, config_, clock_);
    records.window_begins();
    take(records, 0, 0.5);
    take(records, 1, 1.5, std::nan(""));
  }
  const SweepResult sweep = read_saved_results(path_);
  const RunResult& run = only_run(sweep);
  EXPECT_EQ(run.config, config_);
  EXPECT_EQ(run.status, Status::partial);
  EXPECT_EQ(run.step_ms, (std::vector<double>{500, 1500}));
  ASSERT_EQ(run.losses.size(), 2U);
  EXPECT_EQ(run.losses[0], 1.5);
  EXPECT_TRUE(std::isnan(run.losses[1]));
  EXPECT_DOUBLE_EQ(run.img_per_s, 2 * 20 / 2.0);
  EXPECT_DOUBLE_EQ(run.window_s, 2);
}

TEST_F(Records, AreTheSameInMemory) {
  StepRecords records({}, config_, clock_);
  records.window_begins();
  take(records, 0, 0.25);
  const RunResult run = records.so_far();
  EXPECT_EQ(run.status, Status::partial);
  EXPECT_EQ(run.exit_code, 5);
  EXPECT_DOUBLE_EQ(run.img_per_s, 80);
  EXPECT_TRUE(folder_.empty());
}

TEST_F(Records, AWindowThatBeginsAgainReplacesTheOneBefore) {
  {
    StepRecords records(path_, config_, clock_);
    records.window_begins();
    take(records, 0, 9);
    records.window_begins();
    take(records, 0, 0.5);
    EXPECT_EQ(records.so_far().step_ms, (std::vector<double>{500}));
  }
  EXPECT_EQ(only_run(read_saved_results(path_)).step_ms, (std::vector<double>{500}));
}

TEST_F(Records, ALineThatIsCutIsLeftOut) {
  {
    StepRecords records(path_, config_, clock_);
    take(records, 0, 0.5);
    take(records, 1, 0.5);
  }
  const std::string text = content();
  const SweepResult sweep = parse_saved_results(text.substr(0, text.size() - 4), "steps");
  EXPECT_EQ(only_run(sweep).step_ms.size(), 1U);
  const std::string first_line = text.substr(0, text.find('\n'));
  EXPECT_THROW(parse_saved_results(first_line.substr(0, first_line.size() / 2), "steps"),
               DataError);
  EXPECT_THROW(parse_saved_results(text + "{\"step\":3}\n", "steps"), DataError);
  EXPECT_THROW(parse_saved_results(text + "noise\n", "steps"), DataError);
}

TEST_F(Records, AMissingFolderIsReportedAtOnce) {
  EXPECT_THROW(StepRecords(folder_ / "nowhere" / "steps", config_, clock_), ConfigError);
}

}  // namespace
}  // namespace penstock
