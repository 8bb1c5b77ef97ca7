// SPDX-License-Identifier: Apache-2.0
// Runs `penstock project` as a user does.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/sweep/result_folder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

ChildExit penstock(Words words) {
  words.insert(words.begin(), PENSTOCK_PROGRAM);
  return penstock::exit_of(std::move(words));
}

TEST(ProjectProgram, ProjectsWhatARunPrinted) {
  const TempFolder folder;
  const ChildExit run = penstock({"run", "--model=resnet50", "--fake-location=host",
                                  "--batch-size=4", "--num-batches=5", "--num-warmup-batches=1",
                                  "--device=emulated:img_per_s=400", "--json"});
  ASSERT_EQ(run.code, 0) << run.last_words;
  write_text(folder / "record.json", run.output);
  const std::string record = (folder / "record.json").native();
  const ChildExit exit = penstock({"project", record, "--topology", "devices=4,link=3.125",
                                   "--ranks", "1,4,64", "--out", (folder / "out").native()});
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(exit.output.starts_with("Projected, not measured: resnet50")) << exit.output;
  EXPECT_TRUE(says(exit.output, "derived from the graph"));
  const auto files = files_below(folder / "out");
  const std::string& csv = files.at("projection.csv");
  EXPECT_EQ(std::ranges::count(csv, '\n'), 1 + 3 * 5) << csv;
  const FolderLock lock(folder / "out");
  const ChildExit locked = penstock({"project", record, "--out", (folder / "out").native()});
  EXPECT_EQ(locked.code, 2) << locked.last_words;
  EXPECT_TRUE(says(locked.last_words, "another process writes"));
  const nlohmann::json json = nlohmann::json::parse(files.at("projection.json"));
  EXPECT_EQ(json["rows"].size(), 15U);
  EXPECT_EQ(json["rows"][2]["hosts"], 16);
  EXPECT_TRUE(says(files.at("projection.svg"), "projected, not measured"));

  const ChildExit some =
      penstock({"project", record, "--ranks=8", "--exchange=ps,ring", "--format=csv"});
  EXPECT_EQ(std::ranges::count(some.output, '\n'), 3) << some.output;
}

TEST(ProjectProgram, ChecksItsFormulaAgainstPublishedFigures) {
  const ChildExit exit = penstock({"project", "--check"});
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(says(exit.output, "These were not used for any constant"));
  EXPECT_FALSE(says(exit.output, "nan"));
}

TEST(ProjectProgram, SaysWhatItCannotProject) {
  const TempFolder folder;
  write_text(folder / "damaged.json", "{\"schema\": 2");
  const std::string damaged = (folder / "damaged.json").native();
  const std::vector<std::pair<Words, int>> cases{
      {{"project"}, 2},
      {{"project", "/nowhere.json"}, 2},
      {{"project", damaged}, 6},
      {{"project", damaged, "--check"}, 2},
      {{"project", damaged, "--exchange=star"}, 2},
      {{"project", damaged, "--topology=speed=3"}, 2},
      {{"project", damaged, "--overlap=2"}, 2},
      {{"project", damaged, "--format=xml"}, 2},
      {{"project", damaged, "--sigma=0.9", "--jitter-ms=1"}, 2}};
  for (const auto& [words, code] : cases) {
    const ChildExit exit = penstock(words);
    EXPECT_EQ(exit.code, code) << exit.last_words;
    EXPECT_FALSE(exit.last_words.empty());
  }
}

}  // namespace
}  // namespace penstock
