// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/make_dataset.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <set>
#include <thread>

#include "bench/dataset/default_dataset.h"
#include "bench/dataset/jpeg_file.h"
#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Outcome = dataset::MadeDataset::Outcome;

constexpr dataset::DatasetParameters kSmall{.images = 9, .val_images = 5, .classes = 4};

dataset::MakeDataset order(const fs::path& directory,
                           dataset::DatasetParameters parameters = kSmall) {
  return {.directory = directory.string(), .parameters = parameters, .threads = 2};
}

/// Why the request is refused.
std::string refusal(const dataset::MakeDataset& request) {
  return thrown_by<ConfigError>([&] { dataset::make_dataset(request, {}); });
}

std::size_t count(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(MakeDataset, LaysOutSplitsClassesAndADescription) {
  const TempFolder folder;
  const dataset::MadeDataset made = dataset::make_dataset(order(folder / "data"), {});
  EXPECT_EQ(made.outcome, Outcome::made);
  const auto files = files_below(folder / "data");
  EXPECT_EQ(files.size(), 9U + 5U + 1U);
  EXPECT_EQ(count(folder / "data"), 3U) << "something besides train, val and dataset.json is left";
  EXPECT_TRUE(files.contains("train/n00_balls/n00_balls_000008.JPEG"));
  EXPECT_TRUE(files.contains("val/n03_clouds/n03_clouds_000003.JPEG"));
  std::size_t bytes = 0;
  for (const auto& [name, text] : files) bytes += name == "dataset.json" ? 0 : text.size();
  EXPECT_EQ(static_cast<std::size_t>(made.bytes), bytes);
  EXPECT_TRUE(says(files.at("dataset.json"), "\"seed\": 1"));
}

TEST(MakeDataset, BytesDependOnTheSeedAndNotOnTheThreads) {
  const TempFolder folder;
  dataset::MakeDataset alone = order(folder / "alone"), three = order(folder / "three");
  dataset::MakeDataset other = order(folder / "other");
  alone.threads = 1;
  three.threads = 3;
  other.parameters.seed = 2;
  for (const dataset::MakeDataset& one : {alone, three, other}) dataset::make_dataset(one, {});
  const auto files = files_below(folder / "alone");
  EXPECT_EQ(files, files_below(folder / "three"));
  const std::string first = "train/n00_balls/n00_balls_000000.JPEG";
  EXPECT_NE(files.at(first), files_below(folder / "other").at(first));
}

TEST(MakeDataset, SplitsShareNoImage) {
  const TempFolder folder;
  dataset::make_dataset(order(folder.path()), {});
  std::set<std::string> contents;
  const auto files = files_below(folder.path());
  for (const auto& [name, text] : files) contents.insert(text);
  EXPECT_EQ(contents.size(), files.size());
}

TEST(MakeDataset, FilesAreAboutAsLargeAsImageNets) {
  const TempFolder folder;
  const dataset::MadeDataset made = dataset::make_dataset(
      order(folder.path(), {.images = 160, .val_images = 1, .classes = 8}), {});
  const double mean = static_cast<double>(made.bytes) / 161;
  EXPECT_GT(mean, 90e3);
  EXPECT_LT(mean, 130e3);
}

TEST(MakeDataset, DoesNothingWhereTheSameIsThere) {
  const TempFolder folder;
  dataset::make_dataset(order(folder.path()), {});
  const fs::path image = folder / "train/n00_balls/n00_balls_000000.JPEG";
  const auto written = fs::last_write_time(image);
  EXPECT_EQ(dataset::make_dataset(order(folder.path()), {}).outcome, Outcome::already_there);
  EXPECT_EQ(fs::last_write_time(image), written);
}

TEST(MakeDataset, MakesAgainWhatWasRemoved) {
  const TempFolder folder;
  dataset::make_dataset(order(folder.path()), {});
  const auto files = files_below(folder.path());
  fs::remove_all(folder / "train");
  EXPECT_EQ(dataset::make_dataset(order(folder.path()), {}).outcome, Outcome::made);
  EXPECT_EQ(files_below(folder.path()), files);
}

TEST(MakeDataset, ReplacesOtherImagesOnlyByForce) {
  const TempFolder folder;
  write_text(folder / "data/val/mine/a.jpg", "mine");
  write_text(folder / "data/notes.txt", "mine");
  dataset::MakeDataset request = order(folder / "data");
  const std::string text = refusal(request);
  EXPECT_TRUE(says(text, "--force"));
  EXPECT_TRUE(says(text, request.directory));
  EXPECT_EQ(files_below(folder / "data").size(), 2U);

  request.force = true;
  EXPECT_EQ(dataset::make_dataset(request, {}).outcome, Outcome::made);
  EXPECT_FALSE(fs::exists(folder / "data/val/mine"));
  EXPECT_EQ(read_text(folder / "data/notes.txt"), "mine");
  request.force = false;
  request.parameters.quality = 50;
  EXPECT_THROW(dataset::make_dataset(request, {}), ConfigError);
}

TEST(MakeDataset, ReplacesNoExistingFile) {
  const TempFolder folder;
  for (const char* name : {"train", "dataset.json"}) {
    write_text(folder / name, "{}");
    EXPECT_THROW(dataset::make_dataset(order(folder.path()), {}), ConfigError) << name;
    EXPECT_EQ(files_below(folder.path()), (std::map<std::string, std::string>{{name, "{}"}}));
    fs::remove(folder / name);
  }
}

TEST(MakeDataset, AddsNoClassesToAFolderThatHasSome) {
  const TempFolder folder;
  write_text(folder / "cat/1.JPEG", "x");
  fs::create_directories(folder / "notes");  // without images
  dataset::MakeDataset request = order(folder.path());
  for (const bool force : {false, true}) {
    request.force = force;
    EXPECT_TRUE(says(refusal(request), "images in 'cat'"));
  }
  EXPECT_FALSE(fs::exists(folder / "train"));
}

TEST(MakeDataset, LeavesNothingWhenStoppedMidway) {
  const TempFolder folder;
  fs::create_directory(folder / "there");
  for (const char* name : {"new/deep/data", "there"}) {
    std::stop_source stop;
    dataset::MakeDataset endless = order(folder / name, {.images = 1'000'000});
    endless.on_progress = [&](std::int64_t done, std::int64_t) {
      if (done > 0) stop.request_stop();
    };
    EXPECT_EQ(dataset::make_dataset(endless, stop.get_token()).outcome, Outcome::stopped);
  }
  EXPECT_EQ(count(folder.path()), 1U);
  EXPECT_TRUE(fs::is_empty(folder / "there"));
}

TEST(MakeDataset, SaysWhichFolderCannotBeWritten) {
  const TempFolder folder;
  write_text(folder / "file", "");
  for (const char* name : {"file", "file/data"}) {
    const std::string path = (folder / name).string();
    const std::string text = refusal(order(path));
    EXPECT_TRUE(says(text, path));
    EXPECT_TRUE(says(text, "--data-dir"));
  }
  EXPECT_TRUE(files_below(folder.path()).contains("file"));
}

TEST(MakeDataset, LeavesNothingWhenTheDiskIsFull) {
  // A limit on file sizes replaces a full disk: writes fail at the same place.
  const TempFolder folder;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit tight{10'000, before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string text = refusal(order(folder / "data"));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_TRUE(says(text, "cannot write"));
  EXPECT_TRUE(folder.empty());
}

TEST(MakeDataset, TwoAtOnceAgree) {
  const TempFolder folder;
  Outcome outcomes[2]{};
  {
    std::vector<std::jthread> makers;
    for (Outcome& outcome : outcomes) {
      makers.emplace_back(
          [&] { outcome = dataset::make_dataset(order(folder / "data"), {}).outcome; });
    }
  }
  EXPECT_EQ(static_cast<int>(outcomes[0] == Outcome::made) +
                static_cast<int>(outcomes[1] == Outcome::made),
            1);
  EXPECT_EQ(files_below(folder / "data").size(), 15U);
  EXPECT_EQ(count(folder / "data"), 3U);
}

TEST(MakeDataset, ClearsUpAfterMakersThatWereKilled) {
  const TempFolder folder;
  write_text(folder / ".making-abcdef/train/n00_balls/half.JPEG", "half");
  dataset::make_dataset(order(folder.path()), {});
  EXPECT_EQ(count(folder.path()), 3U);
}

TEST(DefaultDataset, IsNotMadeWhereSomethingIs) {
  const TempFolder folder;
  write_text(folder / "train/cats/a.jpg", "mine");
  dataset::ensure_default_dataset((folder / "train").string(), {});
  EXPECT_EQ(files_below(folder.path()).size(), 1U);
}

TEST(DefaultDataset, LeavesNothingWhenStopped) {
  const TempFolder folder;
  std::stop_source stop;
  stop.request_stop();
  const std::string directory = (folder / "data/train").string();
  EXPECT_THROW(dataset::ensure_default_dataset(directory, stop.get_token()), Error);
  EXPECT_TRUE(folder.empty());
}

}  // namespace
}  // namespace penstock
