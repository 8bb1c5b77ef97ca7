// SPDX-License-Identifier: Apache-2.0
// Runs `penstock ab` on scripts whose speed is known.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

/// A git repository with two commits: a script that is fast, and one that is 5 % slower.
class AbProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const ChildExit made = exit_of({"sh", "-c", R"(set -e
cd "$1"; git init -q; git config user.email a@example.org; git config user.name a
mkdir scripts; echo 'echo rate: 100' > scripts/bench.sh; git add .; git commit -qm fast
echo 'echo rate: 95' > scripts/bench.sh; git commit -qam slower)",
                                    "sh", folder_.path().native()});
    if (made.code == 127) GTEST_SKIP() << "there is no git";
    ASSERT_EQ(made.code, 0) << made.describe();
  }
  ChildExit ab(const std::string& flags, const std::string& command) const {
    return exit_of({"sh", "-c",
                    "cd " + (folder_ / "scripts").native() + " && exec " + PENSTOCK_PROGRAM +
                        " ab --pairs 3 " + flags + " -- " + command});
  }
  std::string left_behind() const {
    return exit_of({"git", "-C", folder_.path().native(), "worktree", "list"}).output;
  }

  const TempFolder folder_;
};

constexpr char kMetric[] = "--metric 'rate: ([0-9]+)' ";

TEST_F(AbProgram, ARevisionThatIsSlowerIsARegression) {
  const ChildExit slower = ab(kMetric + std::string("--base HEAD~1"), "sh bench.sh");
  EXPECT_EQ(slower.code, 1) << slower.describe();
  EXPECT_TRUE(says(slower.output, "this folder is 5.0 % slower than HEAD~1 (")) << slower.output;
  EXPECT_TRUE(says(slower.output, ": a regression."));
  const ChildExit faster = ab(kMetric + std::string("--base HEAD --head HEAD~1"), "sh bench.sh");
  EXPECT_EQ(faster.code, 0) << faster.describe();
  EXPECT_TRUE(says(faster.output, "an improvement")) << faster.output;
  EXPECT_EQ(ab(kMetric, "sh bench.sh").code, 0) << "this folder is as its last commit";
  const std::string trees = left_behind();
  EXPECT_EQ(std::ranges::count(trees, '\n'), 1) << trees;
}

TEST_F(AbProgram, BracesNameTheTwoSides) {
  const ChildExit exit =
      ab(kMetric + std::string("--format json --out ") + (folder_ / "out").native(),
         "sh -c 'echo rate: {100|90}'");
  EXPECT_EQ(exit.code, 1) << exit.describe();
  const nlohmann::json json = nlohmann::json::parse(exit.output);
  EXPECT_NEAR(json.at("rows").at(0).at("change_percent").get<double>(), -10, 1e-6);
  EXPECT_EQ(nlohmann::json::parse(read_text(folder_ / "out/ab.json")), json);
  EXPECT_TRUE(says(read_text(folder_ / "out/ab.md"), "the head is 10.0 % slower than the base"));
}

TEST_F(AbProgram, WhatCannotBeComparedIsNamed) {
  const auto refusal = [&](const std::string& flags, const std::string& command, int code) {
    const ChildExit exit = ab(flags, command);
    EXPECT_EQ(exit.code, code) << exit.describe();
    return exit.last_words;
  };
  EXPECT_TRUE(says(refusal("--base nowhere", "true", 2), "neither a folder nor a revision"));
  EXPECT_TRUE(says(refusal("", "no_such_program", 2), "no folder of PATH"));
  EXPECT_TRUE(says(refusal("", "false", 6), "the command of HEAD ("));
  EXPECT_TRUE(says(refusal(kMetric, "echo speed: 3", 6), "printed nothing that --metric"));
  EXPECT_TRUE(says(refusal("--base-venv .", "true", 2), "no virtual environment"));
  EXPECT_TRUE(says(refusal("--format html", "true", 2), "--format"));
}

}  // namespace
}  // namespace penstock
