// SPDX-License-Identifier: Apache-2.0
// Runs `penstock isolate` and `penstock selftest` as a user does: the built program, real child
// processes, small budgets.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/record/report_text.h"
#include "bench/sweep/child_run.h"
#include "bench/sweep/private_folder.h"
#include "tests/support/npy_file.h"
#include "tests/support/patience.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class IsolateProgram : public testing::Test {
 protected:
  std::filesystem::path out() const { return scratch_.path() / "out"; }

  ChildExit run(const std::string& verb, const std::vector<std::string>& more) const {
    return exit_of(joined({PENSTOCK_PROGRAM, verb, "--out=" + out().native()}, more));
  }
  /// Isolates with a device of 2 ms per step.
  ChildExit isolate(std::vector<std::string> more) const {
    for (const char* word :
         {"--model=lenet", "--batch-size=32", "--budget=4s", "--device=emulated:img_per_s=16000"}) {
      more.emplace_back(word);
    }
    return run("isolate", more);
  }

  nlohmann::json found() const {
    return nlohmann::json::parse(read_text(out() / "isolation.json"));
  }

  PrivateFolder scratch_;
};

TEST_F(IsolateProgram, AFeederOfAFifthOfTheDevicesRateIsFoundSo) {
  // If the machine stalls for a moment, both rates are wrong, so the test tries again.
  ChildExit exit;
  nlohmann::json json;
  for (int tries = 0; tries < 4; ++tries) {
    exit = isolate({"--fake-location=host:img_per_s=3200"});
    EXPECT_TRUE(exit.code == 0 || exit.code == 7) << exit.last_words;
    json = found();
    if (std::abs(json["cost"]["percent"]["value"].get<double>() - 80) <= 8) break;
  }
  EXPECT_EQ(json["schema"], 1);
  EXPECT_NEAR(json["cost"]["percent"]["value"].get<double>(), 80, 8);
  EXPECT_FALSE(json["verdict"][0].get<std::string>().empty());
  EXPECT_GE(json["sweep"]["runs"].size(), 3U);
  EXPECT_FALSE(json["sweep"]["runs"][1]["repetitions"][0]["step_ms"].empty());
  EXPECT_TRUE(says(exit.output, "input cost"));
  EXPECT_TRUE(says(exit.output, "Again: penstock isolate"));
  for (const char* file : {"results.json", "results.csv", "report.html"}) {
    EXPECT_TRUE(std::filesystem::exists(out() / file)) << file;
  }
  for (const char* format : {"table", "markdown", "html"}) {
    ChildProcess report(
        {.arguments = {PENSTOCK_PROGRAM, "report", out().native(), "--format", format},
         .timeout = 50s});
    for (const char* key : {"ceiling_img_per_s", "coupled_img_per_s"}) {
      const std::string rate = format_fixed(json["cost"][key]["value"].get<double>(), 1);
      EXPECT_TRUE(says(exit.output, rate)) << rate;
      EXPECT_TRUE(says(report.wait().output, rate)) << format << " lacks " << rate;
    }
  }
}

TEST_F(IsolateProgram, ALadderOverAPackedSetReadsItWhereItLies) {
  const TempFolder data;
  const std::string begin = "{'descr': '|u1', 'fortran_order': False, 'shape': (4096,";
  data.write("images.npy", npy_file(begin + " 8, 8, 3)}", std::vector<std::byte>(4096 * 192)));
  data.write("labels.npy", npy_file(begin + ")}", std::vector<std::byte>(4096)));
  const ChildExit exit = isolate({"--fake-location=queue", "--data-dir=" + data.path().native(),
                                  "--ladder", "--ladder-budget=8s"});
  EXPECT_TRUE(exit.code == 0 || exit.code == 7) << exit.last_words;
  const nlohmann::json ladder = found()["ladder"];
  ASSERT_EQ(ladder.size(), 8U);
  EXPECT_EQ(ladder[3]["name"], "whole pixels");
  for (const std::size_t rung : {3U, 4U}) {
    EXPECT_EQ(ladder[rung]["unavailable"], "");
    EXPECT_FALSE(ladder[rung]["cost"].is_null());
    EXPECT_FALSE(ladder[rung]["supply_img_per_s"].is_null());
  }
}

TEST_F(IsolateProgram, RefusesWhatItCannotIsolate) {
  const ChildExit ceiling = isolate({"--fake-location=gpu"});
  EXPECT_EQ(ceiling.code, 2);
  EXPECT_TRUE(says(ceiling.last_words, "the ceiling"));
  EXPECT_EQ(isolate({"--fake-location=hots"}).code, 2);
  EXPECT_EQ(isolate({"--fake-location=cpu", "--num-batches=5"}).code, 2);
  EXPECT_EQ(isolate({"--fake-location=cpu", "--half-width=0"}).code, 2);
  EXPECT_EQ(isolate({"--fake-location=cpu", "--constant-endpoint=ipc://x"}).code, 2);
  EXPECT_EQ(isolate({"--fake-location=zmq-serve"}).code, 3) << "known, but no feeder";
  EXPECT_FALSE(std::filesystem::exists(out() / "isolation.json"));
}

TEST_F(IsolateProgram, ARunThatFailsIsTheAnswerWithItsReason) {
  const ChildExit exit = isolate({"--fake-location=cpu", "--num-gpus=100000"});
  EXPECT_EQ(exit.code, 6);
  EXPECT_TRUE(says(exit.output, "There is no answer"));
  EXPECT_TRUE(says(exit.output, "--num-gpus is 100000"));
  const ChildExit json = isolate({"--fake-location=cpu", "--num-gpus=100000", "--json"});
  EXPECT_EQ(json.code, 6);
  EXPECT_EQ(nlohmann::json::parse(json.output), found());
}

TEST_F(IsolateProgram, AnInterruptKeepsWhatThereIs) {
  ChildProcess child(
      {.arguments = {PENSTOCK_PROGRAM, "isolate", "--out=" + out().native(), "--fake-location=cpu",
                     "--model=lenet", "--batch-size=32", "--budget=1h", "--num-batches=20"},
       .timeout = 50s});
  // The file of results exists once the first run has ended.
  ASSERT_TRUE(await([&] { return std::filesystem::exists(out() / "results.json"); }));
  const ChildExit& exit = child.stop();
  EXPECT_EQ(exit.code, 130) << exit.describe();
  EXPECT_EQ(found()["stopped_because"], "it was interrupted");
}

TEST_F(IsolateProgram, SelftestComparesAWithA) {
  const ChildExit exit = run("selftest", {"--budget=6s", "--pairs=5"});
  EXPECT_TRUE(exit.code == 0 || exit.code == 7) << exit.last_words;
  const auto json = nlohmann::json::parse(read_text(out() / "selftest.json"));
  EXPECT_EQ(json["findings"].size(), 2U);
  EXPECT_TRUE(says(exit.output, "A against A"));
  EXPECT_EQ(run("selftest", {"--pairs=2"}).code, 2);
}

}  // namespace
}  // namespace penstock
