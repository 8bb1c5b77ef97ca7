// SPDX-License-Identifier: Apache-2.0
// Calculations and files of a ladder over ranks, from made-up results.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/scaling/launch/hosts.h"
#include "bench/scaling/launch/remote_program.h"
#include "bench/scaling/scale_runner.h"
#include "bench/scaling/scale_views.h"
#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Numbers = std::vector<std::int32_t>;

TEST(Rungs, DoublingsEndAtTheLastThatFits) {
  EXPECT_EQ(scaling::doublings(1), (Numbers{1}));
  EXPECT_EQ(scaling::doublings(6), (Numbers{1, 2, 4}));
  EXPECT_EQ(scaling::doublings(8), (Numbers{1, 2, 4, 8}));
}

TEST(Rungs, ListsAreSortedAndChecked) {
  EXPECT_EQ(scaling::parse_ranks("4,1,6,4"), (Numbers{1, 4, 6}));
  EXPECT_THROW(scaling::parse_ranks(""), ConfigError);
  EXPECT_THROW(scaling::parse_ranks("0"), ConfigError);
  EXPECT_THROW(scaling::parse_ranks("1,two"), ConfigError);
}

TEST(Rungs, LettersOfTfperftestAreSpelledOut) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(scaling::spell_out(
                Words{"-m", "alexnet", "-g", "4", "-b", "256", "-r", "/tmp/x/", "-x", "8"}),
            (Words{"--model", "alexnet", "--gpu-per-machine", "4", "--batch-size", "256",
                   "--remote-dir", "/tmp/x/", "--max-gpu", "8"}));
  EXPECT_EQ(scaling::spell_out(Words{"-h", "nodes", "-g", "2"}),
            (Words{"--hosts", "nodes", "--gpu-per-machine", "2"}));
}

TEST(Rungs, MinusHWithoutAValueAsksForHelp) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(scaling::spell_out(Words{"-h"}), (Words{"-h"}));
  EXPECT_EQ(scaling::spell_out(Words{"-h", "--ranks=1"}), (Words{"-h", "--ranks=1"}));
}

TEST(ScaleFiles, KeepTheNameThatTheModelWasAskedForBy) {
  scaling::ScaleResult result;
  result.model = "inception3";
  result.batch_size = 32;
  EXPECT_EQ(result.name(), "inception3_b32");
  result.requested_model = "inceptionv3";
  EXPECT_EQ(result.name(), "inceptionv3_b32");
}

RunResult run_of(std::int32_t ranks, double img_per_s, const std::vector<std::string>& machines) {
  RunResult run;
  run.config.num_processes = ranks;
  run.img_per_s = img_per_s;
  for (const std::string& machine : machines) {
    run.ranks.push_back({.host = machine, .img_per_s = img_per_s / ranks, .window_s = 1});
  }
  return run;
}

scaling::Rung rung_of(std::int32_t ranks, const std::vector<double>& rates) {
  scaling::Rung rung;
  rung.ranks = ranks;
  for (const double rate : rates) rung.runs.push_back(run_of(ranks, rate, {}));
  return rung;
}

scaling::ScaleResult ladder() {
  scaling::ScaleResult result;
  result.model = "resnet50";
  result.batch_size = 64;
  result.what = "feeder host";
  result.repetitions = 3;
  result.rungs = {rung_of(1, {100, 90, 110}), rung_of(2, {}), rung_of(4, {300, 320, 310})};
  result.rungs[1].failures.push_back({0, 4, "rank 1 is gone", "all of it"});
  return result;
}

TEST(Scale, FilesAreLaidOutAsTfperftestsWithoutTheRungThatFailed) {
  const scaling::ScaleResult result = ladder();
  EXPECT_EQ(scaling::rates_csv(result), "1,100.000\n4,310.000\n");
  EXPECT_EQ(scaling::ideal_csv(result), "1,100.000\n4,400.000\n");
  EXPECT_EQ(result.name(), "resnet50_b64");
  EXPECT_TRUE(scaling::has_failures(result));
}

TEST(Scale, LabelsAreTheDevicesThatRan) {
  scaling::ScaleResult result = ladder();
  for (RunResult& run : result.rungs[2].runs) run.config.num_gpus = 2;
  EXPECT_EQ(scaling::rates_csv(result), "1,100.000\n8,310.000\n");
  EXPECT_EQ(scaling::ideal_csv(result), "1,100.000\n8,800.000\n");
}

TEST(Scale, IdealComesFromTheSmallestRungThatRan) {
  scaling::ScaleResult result = ladder();
  result.rungs.erase(result.rungs.begin());
  EXPECT_EQ(scaling::ideal_rate(result)->devices, 4);
  EXPECT_DOUBLE_EQ(scaling::ideal_rate(result)->per_device_img_per_s, 77.5);
  result.rungs.pop_back();
  EXPECT_FALSE(scaling::ideal_rate(result).has_value());
  EXPECT_EQ(scaling::ideal_csv(result), "");
}

TEST(Scale, TableHasEfficiencyAndTheReasonOfAFailure) {
  std::ostringstream out;
  scaling::write_scale_text(ladder(), out);
  const std::string text = out.str();
  EXPECT_TRUE(says(text, "310.0 (300.0..320.0)  400.0          77.5  ok"));
  EXPECT_TRUE(says(text, "failed, exit code 4"));
  EXPECT_TRUE(says(text, "2 ranks: repetition 1 failed, exit code 4: rank 1 is gone"));
}

TEST(Scale, TextAndFigureHaveTheUnitOfTheRuns) {
  const TempFolder folder;
  scaling::ScaleResult result = ladder();
  for (scaling::Rung& rung : result.rungs) {
    for (RunResult& run : rung.runs) run.config.fake_location = "zmq-consume:batch=4x1000B";
  }
  std::ostringstream out;
  scaling::write_scale_text(result, out);
  scaling::write_scale_files(result, folder.path());
  for (const std::string& text : {out.str(), read_text(folder / "resnet50_b64.svg")}) {
    EXPECT_TRUE(says(text, "samples/s"));
    EXPECT_FALSE(says(text, "img/s"));
    EXPECT_FALSE(says(text, "mages"));
  }
}

TEST(Scale, TwoNamesOfOneMachineAreReported) {
  scaling::ScaleResult result = ladder();
  result.rungs[2].hosts = {{"a", "", 2}, {"b", "", 2}};
  result.rungs[2].runs.front() = run_of(4, 300, {"vm", "vm", "vm", "vm"});
  ASSERT_EQ(scaling::notes_about_machines(result).size(), 1U);
  EXPECT_EQ(scaling::notes_about_machines(result).front(),
            "4 ranks were asked for on a, b, and ran on 1 machine: vm");
  result.rungs[2].runs.front() = run_of(4, 300, {"x", "x", "y", "y"});
  EXPECT_TRUE(scaling::notes_about_machines(result).empty());
}

TEST(Scale, FilesReplaceTheFilesOfAnEarlierLadder) {
  const TempFolder folder;
  write_text(folder / "resnet50_b64.csv", "2,stale\n");
  scaling::write_scale_files(ladder(), folder.path());
  const auto files = files_below(folder.path());
  EXPECT_EQ(files.at("resnet50_b64.csv"), "1,100.000\n4,310.000\n");
  EXPECT_EQ(files.at("resnet50_b64_g4/imagespersec"), "77.500\n");
  const nlohmann::json json = nlohmann::json::parse(files.at("resnet50_b64.json"));
  EXPECT_DOUBLE_EQ(json["rungs"][2]["efficiency"], 0.775);
  EXPECT_TRUE(json["rungs"][1]["img_per_s_median"].is_null());
  EXPECT_EQ(json["rungs"][1]["failures"][0]["exit_code"], 4);
  EXPECT_EQ(json["rungs"][1]["failures"][0]["last_words"], "all of it");
  EXPECT_EQ(files.count("resnet50_b64_g2/imagespersec"), 0U);
}

TEST(Scale, RungsThatDoNotFitAreRefusedBeforeAnyRuns) {
  scaling::ScalePlan plan;
  plan.program = "penstock";
  plan.hosts = scaling::parse_host_list("a:2,b:2");
  plan.ranks = {1, 3};
  const std::vector<scaling::Rung> rungs = scaling::make_rungs(plan);
  EXPECT_EQ(scaling::to_text(rungs[1].hosts), "a:2,b:1");
  EXPECT_TRUE(says(rungs[1].command, "--num-processes=3"));
  plan.ranks = {5};
  EXPECT_THROW(scaling::make_rungs(plan), ConfigError);
}

TEST(Scale, FolderOnHostsIsAnAbsolutePath) {
  EXPECT_THROW(scaling::copy_program({}, {}, "here", "ssh", {}), ConfigError);
}

}  // namespace
}  // namespace penstock
