// SPDX-License-Identifier: Apache-2.0
// Uses files in the build folder, which is on a disk. If its file system always keeps pages in the
// cache, tests that need to evict them are skipped.
#include "bench/run/page_cache.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "dataflow/error.h"
#include "tests/bench/run/simulated_run.h"
#include "tests/support/coloured_images.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr std::size_t kFileBytes = 20000;  // 5 pages of 4096 bytes, or 1 to 2 larger ones
constexpr int kFiles = 40;

std::string build_folder() { return std::filesystem::current_path().string() + "/"; }

class PageCacheTest : public testing::Test {
 protected:
  PageCacheTest() {
    for (int i = 0; i < kFiles; ++i) {
      const std::string name = "file" + std::to_string(i);
      folder_.write(name, std::vector<std::byte>(kFileBytes, std::byte{7}));
      files_.add((folder_ / name).native());
    }
  }

  /// Returns false if this file system keeps the pages.
  bool drop() {
    for (int i = 0; i < 3; ++i) drop_from_page_cache(files_, {});
    return measure_residency(files_).percent() < 50;
  }

  TempFolder folder_{build_folder()};
  FileList files_;
};

constexpr const char* kKeepsPages =
    "the build folder's file system keeps pages that it is told to forget";

TEST_F(PageCacheTest, WhatIsDroppedIsNotResidentAndWhatIsReadIs) {
  if (!drop()) GTEST_SKIP() << kKeepsPages;
  EXPECT_LE(measure_residency(files_).percent(), 5);
  read_into_page_cache(files_, 1 << 30, {});
  const Residency warm = measure_residency(files_);
  EXPECT_EQ(warm.percent(), 100);
  EXPECT_EQ(warm.checked, static_cast<std::size_t>(kFiles));
  EXPECT_EQ(warm.unknown, 0U);
  EXPECT_GE(warm.pages * 65536, kFiles * kFileBytes);
  ASSERT_TRUE(drop());
}

TEST_F(PageCacheTest, AShardThatIsLongerThanAnyImageIsReadToo) {
  std::filesystem::resize_file(files_.path(3), std::uintmax_t{300} << 20);  // a sparse file
  if (!drop()) GTEST_SKIP() << kKeepsPages;
  read_into_page_cache(files_, 1 << 30, {});
  EXPECT_GE(measure_residency(files_).percent(),
            50);  // a kernel that is short of memory reclaims some immediately
}

TEST_F(PageCacheTest, LookingBringsNothingIn) {
  if (!drop()) GTEST_SKIP() << kKeepsPages;
  const std::uint64_t resident = measure_residency(files_).resident_pages;
  EXPECT_EQ(measure_residency(files_).resident_pages, resident);
}

TEST_F(PageCacheTest, HalfASetIsHalfResident) {
  if (!drop()) GTEST_SKIP() << kKeepsPages;
  FileList half;
  for (std::size_t i = 0; i < files_.size(); i += 2) half.add(files_.path(i));
  read_into_page_cache(half, 1 << 30, {});
  EXPECT_NEAR(measure_residency(files_).percent(), 50, 5);
}

TEST_F(PageCacheTest, LargeSetsAreSampledEvenly) {
  FileList large;
  for (std::size_t i = 0; i < 10'007; ++i) large.add(files_.path(i % files_.size()));
  const Residency sampled = measure_residency(large);
  EXPECT_EQ(sampled.files, 10'007U);
  EXPECT_GE(sampled.checked, kFilesChecked);
  EXPECT_LE(sampled.checked, kFilesChecked * 3 / 2);
  FileList small;
  for (std::size_t i = 0; i < 2 * kFilesChecked; ++i) small.add(files_.path(i % files_.size()));
  EXPECT_EQ(measure_residency(small).checked, 2 * kFilesChecked);
}

TEST_F(PageCacheTest, FilesThatAreGoneAreUnknown) {
  for (int i = 0; i < 2; ++i) std::filesystem::remove(files_.path(static_cast<std::size_t>(i)));
  EXPECT_EQ(measure_residency(files_).unknown, 2U);
  EXPECT_TRUE(measure_residency(files_).is_known());
  std::filesystem::remove(files_.path(2));
  EXPECT_FALSE(measure_residency(files_).is_known()) << "more than a twentieth";
  read_into_page_cache(files_, 1 << 30, {});
  drop_from_page_cache(files_, {});
}

TEST_F(PageCacheTest, ASetThatDoesNotFitIsNotWarmed) {
  std::filesystem::resize_file(files_.path(3), std::uintmax_t{1} << 35);  // a sparse file
  const std::string text =
      thrown_by<ConfigError>([&] { read_into_page_cache(files_, std::uint64_t{1} << 34, {}); });
  EXPECT_TRUE(says(text, "34.4 GB"));
  EXPECT_TRUE(says(text, "17.2 GB"));
}

// ---- what a result says -----------------------------------------------------

Residency resident(std::uint64_t pages_of_1000) {
  return {.files = 5000, .checked = 2500, .pages = 1000, .resident_pages = pages_of_1000};
}

std::string notes_of(const RunResult& result) {
  std::string text;
  for (const std::string& note : result.notes) text += note + "\n";
  return text;
}

TEST(PageCacheReport, ColdAndWarmAreWhatResidencySays) {
  struct Case {
    PageCache mode;
    std::uint64_t before;
    double fact;
  };
  for (const Case& c : {Case{PageCache::cold, 50, 1},
                        {PageCache::cold, 51, 0},
                        {PageCache::warm, 950, 1},
                        {PageCache::warm, 949, 0}}) {
    RunResult result;
    result.img_per_s = 123;
    add_page_cache(result, c.mode, resident(c.before), resident(800), 10'000);
    const char* const fact = c.mode == PageCache::cold ? "page_cache_cold" : "page_cache_warm";
    EXPECT_EQ(result.facts.at(fact), c.fact) << c.before;
    EXPECT_EQ(result.facts.at("page_cache_resident_percent_before"),
              static_cast<double>(c.before) / 10);
    EXPECT_EQ(result.facts.at("page_cache_resident_percent_after"), 80);
    EXPECT_EQ(result.facts.at("page_cache_files_checked"), 2500);
    EXPECT_EQ(result.img_per_s, 123);
    EXPECT_EQ(result.notes.size(), c.fact == 1 ? 1U : 2U);
    EXPECT_TRUE(says(notes_of(result), "2500 of 5000 files"));
  }
}

TEST(PageCacheReport, ARunThatReadsAFileTwiceIsNotCold) {
  for (const std::int64_t images : {1000, 1001}) {
    RunResult result;
    result.counters = {{"images_decoded", images - 3}, {"bad_samples", 3}};
    add_page_cache(result, PageCache::cold, resident(0), resident(1000), 1000);
    EXPECT_EQ(result.facts.at("page_cache_cold"), images == 1000 ? 1 : 0);
    const bool said = notes_of(result).find("1001 images of a set of 1000") != std::string::npos;
    EXPECT_EQ(said, images == 1001) << notes_of(result);
    add_page_cache(result, PageCache::warm, resident(1000), resident(1000), 1000);
    EXPECT_EQ(result.facts.at("page_cache_warm"), 1);
  }
}

TEST(PageCacheReport, WhatTheKernelDoesNotTellIsNotClaimed) {
  RunResult result;
  const Residency unknown{.files = 10, .checked = 10, .unknown = 10};
  add_page_cache(result, PageCache::warm, unknown, unknown, 10);
  EXPECT_EQ(result.facts.at("page_cache_warm"), 0);
  EXPECT_FALSE(result.facts.contains("page_cache_resident_percent_before"));
  EXPECT_TRUE(says(notes_of(result), "10 of 10 files"));
}

// ---- whole runs -------------------------------------------------------------

class PageCacheRun : public testing::Test {
 protected:
  PageCacheRun() {
    write_coloured_images(folder_, "train", 2, 32);
    config_.fake_location = "queue";
    config_.model = "tiny_cnn";
    config_.device = "emulated:img_per_s=20000";
    config_.data_dir = (folder_ / "train").string();
    config_.batch_size = 4;
    config_.num_warmup_batches = 1;
    config_.num_batches = 4;
    config_.feeder_threads = 1;
  }

  RunResult run() {
    SteadyClock clock;
    RunListener silent;
    return Runner(config_, clock).run(silent, {});
  }

  TempFolder folder_{build_folder()};
  RunConfig config_;
};

TEST_F(PageCacheRun, AsItIsNothingIsClaimed) {
  const RunResult result = completed(run());
  EXPECT_FALSE(result.facts.contains("page_cache_files"));
}

TEST_F(PageCacheRun, AWarmRunIsProvedWarm) {
  config_.page_cache = "warm";
  const RunResult result = completed(run());
  EXPECT_EQ(result.facts.at("page_cache_warm"), 1) << notes_of(result);
  EXPECT_EQ(result.facts.at("page_cache_resident_percent_before"), 100);
  EXPECT_EQ(result.facts.at("page_cache_files"), 64);
}

TEST_F(PageCacheRun, AColdRunIsProvedColdUnlessItReadsFilesTwice) {
  config_.page_cache = "cold";
  const RunResult once = completed(run());
  if (once.facts.at("page_cache_resident_percent_before") > 5) {
    EXPECT_EQ(once.facts.at("page_cache_cold"), 0);
    GTEST_SKIP() << kKeepsPages;
  }
  EXPECT_EQ(once.facts.at("page_cache_cold"), 1) << notes_of(once);
  EXPECT_GT(once.facts.at("page_cache_resident_percent_after"),
            once.facts.at("page_cache_resident_percent_before"));
  config_.num_batches = 40;
  const RunResult twice = run();
  EXPECT_EQ(twice.facts.at("page_cache_cold"), 0) << notes_of(twice);
  EXPECT_LE(twice.facts.at("page_cache_resident_percent_before"), 5);
}

TEST_F(PageCacheRun, DirectReadsStayColdHoweverOftenTheyReadAFile) {
  config_.page_cache = "cold";
  config_.fake_location = "queue:io=direct";
  config_.num_batches = 40;
  const RunResult result = completed(run());
  if (!result.facts.contains("direct_reads")) GTEST_SKIP() << notes_of(result);
  if (result.facts.at("page_cache_resident_percent_before") > 5) GTEST_SKIP() << kKeepsPages;
  EXPECT_EQ(result.facts.at("page_cache_cold"), 1) << notes_of(result);
  EXPECT_LE(result.facts.at("page_cache_resident_percent_after"), 5) << "nothing was left there";
  config_.page_cache = "warm";
  const RunResult warm = run();
  EXPECT_EQ(warm.facts.at("page_cache_warm"), 0) << notes_of(warm);
}

TEST_F(PageCacheRun, FeedersWithoutFilesSayThatItHasNoEffect) {
  config_.page_cache = "cold";
  for (const char* feeder : {"gpu", "queue:source=memory"}) {
    config_.fake_location = feeder;
    const RunResult result = completed(run());
    EXPECT_FALSE(result.facts.contains("page_cache_cold"));
    EXPECT_TRUE(says(notes_of(result), "has no effect"));
  }
}

TEST_F(PageCacheRun, ASetThatDoesNotFitFailsTheRunBeforeItBegins) {
  config_.page_cache = "warm";
  std::filesystem::resize_file(folder_ / "train/class1/131.JPEG", std::uintmax_t{1} << 43);
  const RunResult result = run();
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(says(result.reason, "for --page-cache warm"));
}

TEST_F(PageCacheRun, OtherWordsAndEvaluationsAreRefused) {
  EXPECT_THROW(find_config_key("page_cache").set(config_, "hot"), ConfigError);
  find_config_key("page_cache").set(config_, "AS_IS");
  EXPECT_EQ(config_.page_cache, "as-is");
  config_.page_cache = "cold";
  config_.eval = true;
  EXPECT_THROW(run(), ConfigError);
}

}  // namespace
}  // namespace penstock
