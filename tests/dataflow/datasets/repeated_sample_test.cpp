// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/source_over.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "dataflow/error.h"
#include "tests/support/source_fixture.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// Seven files; each file holds its name.
class RepeatedSampleTest : public SourceFixture {
 protected:
  RepeatedSampleTest() {
    for (const char* const name : {"ant/1", "ant/2", "bee/0", "bee/1", "bee/2", "bee/3", "cat/9"}) {
      const std::string file = std::string(name) + ".JPEG";
      std::filesystem::create_directories((folder_ / file).parent_path());
      write_text(folder_ / file, file);
    }
    plan_.epochs = -1;
    plan_.shuffle = true;
  }
  std::unique_ptr<Source> open(const std::string& source = "image-folder") const {
    const SourceEntry& entry = find_entry(source_table(), source);
    const auto set = entry.make(datasets::plan_of_first_sample(plan_),
                                Options(entry.name, entry.options, {source, {}}));
    return datasets::repeat_first_sample(*set, plan_);
  }
};

TEST_F(RepeatedSampleTest, EveryRankGetsTheFirstSampleForEverAtPositionsOfTheSet) {
  plan_.ranks = 2;
  plan_.shuffle = true;
  std::set<std::pair<std::uint64_t, std::uint64_t>> places;  // epoch, index
  for (plan_.rank = 0; plan_.rank < 2; ++plan_.rank) {
    const auto source = open();
    std::filesystem::rename(folder_ / "ant", folder_ / "gone");  // no file is read any more
    EXPECT_EQ(source->files(), nullptr);
    EXPECT_EQ(source->classes(), 3);
    EXPECT_EQ(source->kind(), SampleKind::encoded);
    EXPECT_EQ(source->size(), plan_.rank == 0 ? 4U : 3U);
    EXPECT_EQ(source->size_over_ranks(), 7U);
    EXPECT_TRUE(says(source->note(), "ant/1.JPEG'"));
    EXPECT_TRUE(says(source->note(), " 10 bytes"));
    Sample sample;
    const std::byte* first = nullptr;
    for (std::uint64_t i = 0; i < 3 * source->size(); ++i) {
      ASSERT_TRUE(source->next(sample));
      source->load(sample);
      const auto* const text = reinterpret_cast<const char*>(sample.content().data());
      EXPECT_EQ(std::string(text, sample.content().size()), "ant/1.JPEG");
      if (first == nullptr) first = sample.content().data();
      EXPECT_EQ(sample.content().data(), first);
      EXPECT_EQ(sample.label, 0);
      EXPECT_TRUE(sample.file.ends_with("ant/1.JPEG"));
      EXPECT_TRUE(places.emplace(sample.epoch, sample.index).second) << "a position comes twice";
    }
    std::filesystem::rename(folder_ / "gone", folder_ / "ant");
  }
  EXPECT_EQ(places.size(), 3 * 7U);
  EXPECT_EQ(places.begin()->second, 0U);
  EXPECT_EQ(*places.rbegin(), std::pair(std::uint64_t{2}, std::uint64_t{6}));
}

TEST_F(RepeatedSampleTest, EndsAndGoesOnWhereTheSetWould) {
  plan_.epochs = 2;
  plan_.first_sample = 9;
  const auto source = open();
  Sample sample;
  for (std::uint64_t i = 9; i < 14; ++i) {
    ASSERT_TRUE(source->next(sample));
    EXPECT_EQ(sample.epoch, 1U);
    EXPECT_EQ(sample.index, i - 7);
  }
  EXPECT_FALSE(source->next(sample));
  EXPECT_FALSE(source->next(sample));
}

TEST_F(RepeatedSampleTest, AFirstSampleThatCannotBeReadIsRefused) {
  write_text(folder_ / "ant/1.JPEG", "");
  const std::string error = thrown_by<ConfigError>([&] { open(); });
  EXPECT_TRUE(says(error, "ant/1.JPEG"));
  EXPECT_TRUE(says(error, "leave repeat_cached_sample out"));
  plan_.rank = 7;
  plan_.ranks = 8;
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { open(); }), "ranks"));
}

}  // namespace
}  // namespace penstock
