// SPDX-License-Identifier: Apache-2.0
// Runs `penstock report` as a user does, on results of `run` and `sweep`.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/report/report.h"
#include "dataflow/entry.h"
#include "tests/bench/record/sweep_rows.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

class ReportProgram : public testing::Test {
 protected:
  static ChildExit penstock(const Words& words) {
    return exit_of(joined({PENSTOCK_PROGRAM}, words));
  }

  std::string path(const std::string& name) const { return (folder_.path() / name).native(); }

  /// Writes results.json with two rows; the second has this rate.
  std::string save(const std::string& name, double img_per_s, const std::string& model = "null") {
    SweepResult sweep;
    sweep.repetitions = 3;
    sweep.rows = {make_row("gpu", true), make_row("cpu")};
    sweep.varied = {&find_config_key("fake_location")};
    for (Row& row : sweep.rows) {
      row.config.model = model;
      for (std::int32_t round = 0; round < 3; ++round) {
        const double rate = (row.is_ceiling ? 1000 : img_per_s) * (1 + 1e-4 * round);
        add_repetition(row, round, make_result(Status::ok, rate, rate));
      }
    }
    summarise(sweep);
    std::ofstream file(path(name));
    find_entry(report::report_table(), "json").write(sweep, {}, file);
    return path(name);
  }

  TempFolder folder_;
};

TEST_F(ReportProgram, ShowsSavedResultsInEveryForm) {
  const std::string file = save("a.json", 800);
  for (const report::ReportEntry* report : report::report_table().entries) {
    const ChildExit exit = penstock({"report", file, "--format", std::string(report->name)});
    EXPECT_EQ(exit.code, 0) << report->name << ": " << exit.last_words;
    EXPECT_FALSE(exit.output.empty()) << report->name;
  }
  EXPECT_TRUE(says(penstock({"report", file}).output, "800.1 (800.0..800.2)"));
  const ChildExit exit = penstock({"report", file, "--format=json", "--out", path("b.json")});
  EXPECT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(exit.output.empty());
  EXPECT_EQ(read_text(file), read_text(path("b.json"))) << "nothing gets lost";
}

TEST_F(ReportProgram, ComparesWithTheExitCodesOfTheTable) {
  const std::string before = save("a.json", 800), slower = save("b.json", 700);
  const ChildExit regression = penstock({"report", "compare", before, slower});
  EXPECT_EQ(regression.code, 1) << regression.last_words;
  EXPECT_TRUE(says(regression.output, "-12.5 ["));
  EXPECT_EQ(penstock({"report", "compare", slower, before}).code, 0);
  EXPECT_EQ(penstock({"report", "compare", before, slower, "--margin=20"}).code, 0);
  const ChildExit other = penstock({"report", "compare", before, save("c.json", 800, "trivial")});
  EXPECT_EQ(other.code, 7);
  EXPECT_TRUE(says(other.output, "model: null -> trivial"));
  const ChildExit json = penstock({"report", "compare", before, slower, "--format=json"});
  EXPECT_EQ(nlohmann::json::parse(json.output)["exit_code"], 1);
}

TEST_F(ReportProgram, RefusesWhatItCannotReadByName) {
  write_text(path("bad.json"), R"({"schema": 99, "runs": []})");
  const ChildExit newer = penstock({"report", path("bad.json")});
  EXPECT_EQ(newer.code, 6);
  EXPECT_TRUE(says(newer.last_words, "bad.json"));
  EXPECT_TRUE(says(newer.last_words, "schema 99"));
  EXPECT_EQ(penstock({"report", path("absent.json")}).code, 2);
  EXPECT_EQ(penstock({"report"}).code, 2);
  EXPECT_EQ(penstock({"report", "compare", path("bad.json")}).code, 2);
  EXPECT_EQ(penstock({"report", save("a.json", 1), "--format=pdf"}).code, 2);
}

/// Long enough that batches prepared before the window do not decide the rate.
const std::vector<std::string> kShortRun = {"--fake-location=cpu", "--model=null", "--batch-size=2",
                                            "--num-batches=2000", "--num-warmup-batches=1"};

TEST_F(ReportProgram, RunsOnLinesAreRepetitions) {
  std::string lines;
  for (int run = 0; run < 2; ++run) lines += penstock(joined({"run", "--json"}, kShortRun)).output;
  write_text(path("runs.jsonl"), lines);
  const ChildExit exit = penstock({"report", "compare", path("runs.jsonl"), path("runs.jsonl")});
  EXPECT_EQ(exit.code, 7) << exit.output << exit.last_words;
  EXPECT_TRUE(says(exit.output, "at least 3 each"));
}

TEST_F(ReportProgram, ARunPrintsAnyReport) {
  Words words = joined({"run", "--format=horovod"}, kShortRun);
  const ChildExit exit = penstock(words);
  EXPECT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(says(exit.output, "Total img/sec on 1 GPU(s): "));
  words.emplace_back("--json");
  EXPECT_EQ(penstock(words).code, 2) << "two forms";
}

TEST_F(ReportProgram, ARunEndsWithPercentilesOfItsSteps) {
  const ChildExit exit =
      penstock({"run", "--fake-location=gpu", "--model=null", "--device=emulated:img_per_s=8000",
                "--batch-size=8", "--num-batches=40", "--out=" + path("run.json")});
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(says(exit.last_words, "ms of a step")) << exit.last_words;
  EXPECT_FALSE(says(exit.output, "ms of a step")) << "parsers of the table read this";
  const auto json = nlohmann::json::parse(read_text(path("run.json")));
  auto steps = json["step_ms"].get<std::vector<double>>();
  std::ranges::sort(steps);
  const auto& step = json["parts"][0];
  EXPECT_EQ(step["name"], "step");
  EXPECT_DOUBLE_EQ(step["max_ms"].get<double>(), steps.back());
  EXPECT_NEAR(step["p50_ms"].get<double>(), (steps[19] + steps[20]) / 2, 1e-9);
  EXPECT_LE(step["p95_ms"].get<double>(), step["p99_ms"].get<double>());
  const ChildExit shown = penstock({"report", path("run.json"), "--format=markdown"});
  EXPECT_TRUE(says(shown.output, "| ms of a step |")) << shown.output;
}

TEST_F(ReportProgram, ASweepComparesWithItsBaseline) {
  Words words =
      joined({"sweep", "--repetitions=1", "--num-gpus=1", "--out", path("out")}, kShortRun);
  ASSERT_EQ(penstock(words).code, 0);
  words.insert(words.end(), {"--baseline", path("out")});
  const ChildExit exit = penstock(words);
  EXPECT_EQ(exit.code, 7) << "one repetition decides nothing; " << exit.last_words;
  EXPECT_TRUE(says(exit.output, "undecided"));
  words.back() = path("absent");
  EXPECT_EQ(penstock(words).code, 2);
}

TEST_F(ReportProgram, ARunTellsItsParentHowFarItIs) {
  std::vector<std::string> lines;
  ChildProcess child({.arguments = joined({PENSTOCK_PROGRAM, "run", "--json"}, kShortRun),
                      .timeout = std::chrono::seconds(50),
                      .pipe_flag = "--progress-fd=",
                      .on_line = [&](std::string_view line) { lines.emplace_back(line); }});
  EXPECT_EQ(child.wait().code, 0) << child.wait().last_words;
  ASSERT_FALSE(lines.empty()) << "one at the end, however short the run";
  EXPECT_EQ(nlohmann::json::parse(lines.back())["steps_done"], 2000);
  EXPECT_EQ(penstock({"run", "--progress-fd=77"}).code, 2);
}

}  // namespace
}  // namespace penstock
