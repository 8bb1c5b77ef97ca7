// SPDX-License-Identifier: Apache-2.0
// Runs `penstock dataset` as a user does: the built program in a separate process.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "tests/support/patience.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Runs `penstock dataset` to its end.
ChildExit dataset(const Words& words) {
  return exit_of(joined({PENSTOCK_PROGRAM, "dataset"}, words), std::chrono::seconds(100));
}

TEST(DatasetVerb, MakesOnceAndInspects) {
  const TempFolder folder;
  const std::string data = (folder / "data").string();
  const Words make{"make", "--data-dir", data, "--images=6", "--val_images", "2", "--classes", "2"};
  const ChildExit first = dataset(make);
  ASSERT_EQ(first.code, 0) << first.last_words;
  EXPECT_TRUE(says(first.output, data + ": 8 images of 2 classes"));
  EXPECT_TRUE(says(first.last_words, "making 6 + 2 synthetic photographs"));
  EXPECT_FALSE(says(first.last_words, "\r")) << "rewrites lines of a file";

  const ChildExit second = dataset(make);
  ASSERT_EQ(second.code, 0) << second.last_words;
  EXPECT_TRUE(says(second.output, "already there"));
  EXPECT_EQ(second.last_words, "");

  const std::string sheet = (folder / "sheet.png").string();
  const ChildExit inspect =
      dataset({"inspect", "--data-dir", data + "/train", "--contact-sheet", sheet});
  ASSERT_EQ(inspect.code, 0) << inspect.last_words;
  EXPECT_TRUE(says(inspect.output, "6 images in 2 classes"));
  EXPECT_GT(fs::file_size(sheet), 10'000U);
  const ChildExit json = dataset({"inspect", "--data-dir", data + "/val", "--json"});
  ASSERT_EQ(json.code, 0) << json.last_words;
  EXPECT_EQ(json.output.front(), '{');
  EXPECT_TRUE(says(json.output, "\"images\": 2"));
}

TEST(DatasetVerb, InspectsPackedSets) {
  const TempFolder folder;
  const std::string data = (folder / "data").string(), packed = (folder / "packed").string();
  ASSERT_EQ(dataset({"make", "--data-dir", data, "--images=6", "--classes", "2"}).code, 0);
  const ChildExit convert =
      dataset({"convert", "--data-dir", data + "/train", "--to", "webdataset", "--out", packed});
  ASSERT_EQ(convert.code, 0) << convert.last_words;
  const std::string sheet = (folder / "sheet.png").string();
  const ChildExit inspect = dataset({"inspect", "--data-dir", packed, "--contact-sheet", sheet});
  ASSERT_EQ(inspect.code, 0) << inspect.last_words;
  EXPECT_TRUE(says(inspect.output, "6 images in 2 classes"));
  EXPECT_TRUE(says(inspect.output, "webdataset"));
  EXPECT_GT(fs::file_size(sheet), 10'000U);
  const ChildExit wrong = dataset({"inspect", "--data-dir", packed, "--source", "tfrecord"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(says(wrong.last_words, "packed"));
}

TEST(DatasetVerb, WrongInputIsRefusedInOneSentence) {
  const TempFolder folder;
  const std::string data = (folder / "data").string();
  const std::pair<Words, std::string> cases[] = {
      {{}, "make, inspect, check, convert, index or coverage"},
      {{"mkae"}, "did you mean 'make'?"},
      {{"convert"}, "--to is not stated"},
      {{"convert", "--to", "tar"}, "--out is not stated"},
      {{"convert", "--to", "webdatset", "--out", data}, "did you mean 'webdataset'?"},
      {{"convert", "--to", "mds", "--out", data, "--data-dir", "/nowhere"}, "/nowhere"},
      {{"convert", "--to", "mds", "--out", data, "--shards", "-1"}, "--shards is -1"},
      {{"check", "--data-dir", data}, data},
      {{"chekc"}, "did you mean 'check'?"},
      {{"make", "--imgaes", "5"}, "did you mean --images?"},
      {{"make", "--images=0", "--data-dir", data}, "--images is 0"},
      {{"make", "--val-images=-3", "--data-dir", data}, "--val-images is -3"},
      {{"make", "--classes=99", "--data-dir", data}, "--classes is 99"},
      {{"make", "--quality=101", "--data-dir", data}, "--quality is 101"},
      {{"make", "--threads=0", "--data-dir", data}, "--threads is 0"},
      {{"make", "--images=many", "--data-dir", data}, "--images is 'many'"},
      {{"make", "stray", "--data-dir", data}, "stray"},
      {{"make", "--images=1", "--data-dir", "/dev/null/data"}, "/dev/null/data"},
      {{"inspect", "--data-dir", data}, data},
      {{"index", "--data-dir", data}, data},
      {{"index", "stray"}, "stray"},
  };
  for (const auto& [words, said] : cases) {
    const ChildExit exit = dataset(words);
    EXPECT_EQ(exit.code, 2) << exit.last_words;
    EXPECT_TRUE(says(exit.last_words, said));
    EXPECT_EQ(exit.output, "");
  }
  EXPECT_FALSE(fs::exists(data));
}

TEST(DatasetVerb, ControlCLeavesNothing) {
  const TempFolder folder;
  const std::string data = (folder / "data").string();
  ChildProcess program(
      {.arguments = {PENSTOCK_PROGRAM, "dataset", "make", "--data-dir", data, "--images=1000000"}});
  ASSERT_TRUE(await([&] { return fs::exists(data); })) << "the work begins with the folder";
  program.send(SIGINT);
  const ChildExit& exit = program.wait();
  EXPECT_EQ(exit.code, 130) << exit.last_words;
  EXPECT_TRUE(says(exit.last_words, "stopped"));
  EXPECT_FALSE(fs::exists(data));
}

TEST(DatasetVerb, PrintsHelp) {
  for (const Words& words :
       {Words{"--help"}, Words{"make", "--help"}, Words{"inspect", "--help"}}) {
    const ChildExit exit = dataset(words);
    EXPECT_EQ(exit.code, 0) << exit.last_words;
    EXPECT_TRUE(says(exit.output, "sage: "));
  }
}

}  // namespace
}  // namespace penstock
