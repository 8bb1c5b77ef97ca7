// SPDX-License-Identifier: Apache-2.0
// Runs `penstock sweep` as a user does: the built program, real child processes, small
// configurations.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/sweep/child_run.h"
#include "bench/sweep/private_folder.h"
#include "tests/support/patience.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

/// Is there a process with `text` among its arguments?
bool is_running_with(const std::string& text) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (read_text(entry.path() / "cmdline").find(text) != std::string::npos) return true;
  }
  return false;
}

class SweepProgram : public testing::Test {
 protected:
  std::filesystem::path out() const { return scratch_.path() / "out"; }

  /// The command of a sweep with very short runs. `more` comes first and replaces defaults.
  Words arguments(const Words& more) const {
    // A busy machine may slow down one round, and a repeated round would change the counts.
    Words words = joined({PENSTOCK_PROGRAM, "sweep", "--norepeat-outlier"}, more);
    for (const std::string& word :
         Words{"--device=emulated", "--model=null", "--batch-size=2", "--num-batches=5",
               "--num-warmup-batches=1", "--num-gpus=1", "--out=" + out().native()}) {
      const std::string name = word.substr(0, word.find('=') + 1);
      const auto is_named = [&](const std::string& other) { return other.starts_with(name); };
      if (std::ranges::none_of(more, is_named)) words.push_back(word);
    }
    return words;
  }

  ChildExit sweep(const Words& more) const { return exit_of(arguments(more)); }

  nlohmann::json results() const {
    return nlohmann::json::parse(read_text(out() / "results.json"));
  }

  std::size_t repetitions() const {
    std::size_t count = 0;
    const nlohmann::json json = results();
    for (const auto& run : json["runs"]) count += run["repetitions"].size();
    return count;
  }

  PrivateFolder scratch_;
};

TEST_F(SweepProgram, HasAsManyDevicesAsARunAndAnIsolation) {
  Words words = arguments({"--fake-location=gpu", "--repetitions=1"});
  std::erase(words, "--num-gpus=1");
  const ChildExit exit = exit_of(std::move(words));
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_EQ(results()["runs"][0]["config"]["num_gpus"], RunConfig().num_gpus);
}

TEST_F(SweepProgram, MeasuresEveryConfigurationAndWritesEveryReport) {
  const ChildExit exit = sweep({"--fake-location", "gpu,host,cpu", "--prefetch=2,3"});
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_EQ(repetitions(), 18U);
  const nlohmann::json json = results();
  ASSERT_EQ(json["runs"].size(), 6U);
  for (const auto& run : json["runs"]) {
    EXPECT_EQ(run["config"]["extend_window"], true);
    EXPECT_NE(run["status"], "failed") << run["reason"];
    EXPECT_NE(run["status"], "skipped") << run["reason"];
  }
  EXPECT_EQ(json["sweep"]["rounds"].size(), 3U);
  EXPECT_TRUE(says(exit.output, "feeder  prefetch  img/s"));
  for (const char* file : {"results.csv", "results.md", "report.html"}) {
    EXPECT_TRUE(std::filesystem::exists(out() / file)) << file;
  }
  EXPECT_TRUE(says(exit.last_words, "[18/18] round 3: "));
}

TEST_F(SweepProgram, RefusesSlipsBeforeAnythingStarts) {
  const ChildExit feeder = sweep({"--fake-location=gpu,hots"});
  EXPECT_EQ(feeder.code, 2);
  EXPECT_TRUE(says(feeder.last_words, "did you mean 'host'?"));
  const ChildExit device = sweep({"--fake-location=gpu", "--device=emulated:img_per_s=-1"});
  EXPECT_EQ(device.code, 2) << device.last_words;
  EXPECT_EQ(sweep({"--repetitions=0"}).code, 2);
  EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(SweepProgram, ComparesOurDecoderWithTheOneThatOthersHaveUnlessTold) {
  EXPECT_TRUE(says(exit_of({PENSTOCK_PROGRAM, "sweep", "--help"}).output,
                   "gpu,host,cpu,queue,queue:engine=libjpeg,zmq-consume"));
}

TEST_F(SweepProgram, AbsentComponentsAreSkippedRows) {
  const ChildExit exit = sweep({"--fake-location=gpu,zmq-serve", "--repetitions=1"});
  EXPECT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_EQ(results()["runs"][1]["status"], "skipped");
  EXPECT_TRUE(says(exit.output, "Warning: 1 repetition of each row"));
  EXPECT_EQ(sweep({"--fake-location=zmq-serve"}).code, 3) << "nothing can run";
}

TEST_F(SweepProgram, FailedRowsAreWrittenAndTold) {
  const ChildExit exit = sweep({"--fake-location=gpu", "--num-gpus=1,100000", "--repetitions=1"});
  EXPECT_EQ(exit.code, 6);
  const nlohmann::json json = results();
  EXPECT_EQ(json["runs"][0]["repetitions"][0]["exit_code"], 0);
  EXPECT_EQ(json["runs"][1]["status"], "failed");
  EXPECT_TRUE(says(json["runs"][1]["reason"].get<std::string>(), "--num-gpus is 100000"));
}

TEST_F(SweepProgram, AFolderThatCannotBeWrittenIsReportedFirst) {
  const ChildExit exit = sweep({"--fake-location=gpu", "--out=/proc/here"});
  EXPECT_EQ(exit.code, 2);
  EXPECT_TRUE(says(exit.last_words, "/proc/here"));
  EXPECT_FALSE(says(exit.last_words, "round")) << "nothing ran";
}

TEST_F(SweepProgram, AFullDiskKeepsEarlierResultsAndTheTable) {
  // A file size limit replaces a full disk: each run adds its steps to results.json.
  const ChildExit exit =
      exit_of(joined({"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 200; exec \"$@\"", "sh"},
                     arguments({"--fake-location=gpu", "--num-batches=400", "--repetitions=8"})));
  EXPECT_EQ(exit.code, 6) << exit.last_words;
  EXPECT_TRUE(says(exit.last_words, "cannot write"));
  EXPECT_TRUE(says(exit.last_words, "[8/8]")) << "the sweep goes on";
  EXPECT_TRUE(says(exit.output, "feeder  img/s"));
  EXPECT_GT(repetitions(), 0U);
  EXPECT_LT(repetitions(), 8U);
}

TEST_F(SweepProgram, AnInterruptKeepsFinishedRunsAndLeavesNothing) {
  // A harmless timeout that no other process uses marks the processes of this test.
  const std::string marker = std::to_string(70000000 + getpid());
  std::atomic<std::ptrdiff_t> lines{0};
  ChildProcess child(
      {.arguments = joined({"sh", "-c", "export TMPDIR=\"$0\"; exec \"$@\" 2>&1 >/dev/null",
                            scratch_.path().native()},
                           arguments({"--fake-location=gpu,cpu", "--repetitions=10000",
                                      "--time-budget=1h", "--timeout=" + marker})),
       .on_output = [&](std::string_view text) { lines += std::ranges::count(text, '\n'); }});
  ASSERT_TRUE(await([&] { return lines >= 4; }));
  child.send(SIGINT);
  EXPECT_EQ(child.wait().code, 130);
  EXPECT_GE(repetitions(), 4U);
  EXPECT_FALSE(is_running_with("--timeout=" + marker));
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) {
    left.push_back(entry.path().filename());
  }
  EXPECT_EQ(left, std::vector<std::string>{"out"});
}

}  // namespace
}  // namespace penstock
