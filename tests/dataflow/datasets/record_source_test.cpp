// SPDX-License-Identifier: Apache-2.0
// Packed data: lists of shards, places of records, and their order.
#include "dataflow/datasets/record_source.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"
#include "tests/support/source_fixture.h"
#include "tests/support/text_bytes.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

// ---- lists of shards --------------------------------------------------------

TEST(Braces, StandForRangesAndLists) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(datasets::expand_braces("x.tar"), Names{"x.tar"});
  EXPECT_EQ(datasets::expand_braces("a-{008..011}.tar"),
            (Names{"a-008.tar", "a-009.tar", "a-010.tar", "a-011.tar"}));
  EXPECT_EQ(datasets::expand_braces("{a,b}/{0..1}"), (Names{"a/0", "a/1", "b/0", "b/1"}));
  EXPECT_EQ(datasets::expand_braces("x{,.gz}"), (Names{"x", "x.gz"}));
}

TEST(Braces, ThatMakeNoSenseAreRefused) {
  for (const char* text :
       {"a{0..3", "a}b", "a{{0..1}}", "a{x}", "a{3..1}", "a{0..z}", "a{}", "{0..999999}{0..999999}",
        "{0..99999999999}", "{0..99999999999999999999}"}) {
    EXPECT_THROW(datasets::expand_braces(text), ConfigError) << text;
  }
}

class ShardList : public SourceFixture {
 protected:
  static bool is_data(std::string_view name) { return name.find(".dat") != std::string_view::npos; }
  FileList list(const std::string& place, bool augment = true) const {
    return datasets::list_shards({.directory = place, .augment = augment}, is_data, "test",
                                 "a.dat");
  }
  void write(const std::vector<std::string>& names) {
    for (const std::string& name : names) folder_.write(name, bytes_of_text(name));
  }
};

TEST_F(ShardList, IsAFoldersFilesInByteOrder) {
  write({"b.dat", "a.dat", "notes.txt", ".hidden.dat", "_tmp.dat", "folder.dat/x"});
  const FileList shards = list(plan_.directory);
  ASSERT_EQ(shards.size(), 2U);
  EXPECT_EQ(shards.path(0), path("a.dat"));
  EXPECT_EQ(shards.path(1), path("b.dat"));
}

TEST_F(ShardList, IsWhatBracesNameInTheirOrder) {
  write({"b.dat", "a.dat"});
  const FileList shards = list(path("{b,a}.dat"));
  ASSERT_EQ(shards.size(), 2U);
  EXPECT_EQ(shards.path(0), path("b.dat"));
}

TEST_F(ShardList, MissesNoShardWithoutSayingSo) {
  EXPECT_TRUE(
      says(thrown_by<ConfigError>([&] { list(path("{a,b}.dat")); }), "a.dat' do not exist"));
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { list(plan_.directory); }), "without such files"));
  write({"x-00000-of-00007.dat", "x-00002-of-00007.dat"});
  const std::string gaps = thrown_by<ConfigError>([&] { list(plan_.directory); });
  EXPECT_TRUE(says(gaps, "2 of 7 shards"));
  EXPECT_TRUE(says(gaps, "missing: 1, 3, 4, ..."));
  write({"y-00000-of-00001.dat"});
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { list(plan_.directory); }),
                   "more than one set ('x-{00000..00006}-of-00007.dat'"));
}

TEST_F(ShardList, OfTrainingAndValidationShardsInOneFolderIsTheSetThatThePlanIsFor) {
  const std::string& folder = plan_.directory;
  write({"train-00000-of-00002.dat", "train-00001-of-00002.dat"});
  EXPECT_EQ(datasets::validation_set(folder), "");
  write({"validation-00000-of-00001.dat"});
  EXPECT_EQ(datasets::validation_set(folder), "validation-00000-of-00001.dat");
  EXPECT_EQ(list(path(datasets::validation_set(folder))).size(), 1U);
  const FileList training = list(folder), validation = list(folder, false);
  ASSERT_EQ(training.size(), 2U);
  EXPECT_EQ(training.path(1), path("train-00001-of-00002.dat"));
  ASSERT_EQ(validation.size(), 1U);
  EXPECT_EQ(validation.path(0), path("validation-00000-of-00001.dat"));
  std::filesystem::remove(path("train-00000-of-00002.dat"));
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { list(folder); }), "missing: 0"));
  EXPECT_EQ(list(folder, false).size(), 1U);
  write({"other-00000-of-00001.dat"});
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { list(folder); }), "more than one set"));
}

// ---- records ----------------------------------------------------------------

/// Records of four bytes: a label, two letters, and '!' if the record is damaged.
class FourBytes final : public datasets::RecordFormat {
 public:
  void index(const datasets::MappedFile& shard, const datasets::AddRecord& add) const override {
    if (shard.bytes().size() % 4 != 0) throw ConfigError(shard.path() + " is not of fours");
    for (std::uint64_t at = 0; at < shard.bytes().size(); at += 4) {
      add({at, 4, static_cast<std::int32_t>(shard.bytes()[at]) - '0'});
    }
  }
  void open(Sample& sample) const override {
    if (sample.lent[3] == std::byte{'!'}) datasets::refuse_record(sample, "it is damaged");
    sample.lent = sample.lent.subspan(1, 2);
  }
};

class RecordSourceTest : public ShardList {
 protected:
  RecordSourceTest() {
    folder_.write("a.dat", bytes_of_text("0aa.1ab.0ac."));
    folder_.write("b.dat", {});
    folder_.write("c.dat", bytes_of_text("2ca.1cb."));
    plan_.threads = 3;
  }
  std::unique_ptr<Source> open() const {
    return datasets::make_record_source(plan_, list(plan_.directory),
                                        std::make_unique<FourBytes>());
  }
};

TEST_F(RecordSourceTest, LendsEachRecordWithItsPlaceAndLabel) {
  const auto source = open();
  EXPECT_EQ(source->facts().size, 5U);
  EXPECT_EQ(source->facts().classes, 3);
  ASSERT_NE(source->facts().files, nullptr);
  EXPECT_EQ(source->facts().files->size(), 3U);
  std::string seen;
  for (Sample sample; source->next(sample);) {
    source->load(sample);
    EXPECT_TRUE(sample.bytes.empty());
    seen += text_of(sample.content()) + std::to_string(sample.label) + "@" +
            std::to_string(sample.offset) +
            std::string(sample.file.substr(sample.file.size() - 5, 1)) + " ";
  }
  EXPECT_EQ(seen, "aa0@0a ab1@4a ac0@8a ca2@0c cb1@4c ");
}

/// How many of the file's first pages stay in memory after a request to drop them.
std::ptrdiff_t pages_that_stay(const std::string& path) {
  constexpr std::size_t kPages = 16, kBytes = kPages * 4096;
  const int file = ::open(path.c_str(), O_RDONLY);
  EXPECT_EQ(::fsync(file), 0);
  EXPECT_EQ(::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
  unsigned char resident[kPages] = {};
  void* const view = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file, 0);
  EXPECT_NE(view, MAP_FAILED);
  EXPECT_EQ(::mincore(view, kBytes, resident), 0);
  ::munmap(view, kBytes);
  ::close(file);
  return std::ranges::count_if(resident, [](unsigned char page) { return (page & 1) != 0; });
}

TEST_F(RecordSourceTest, HoldsNoPageOnceItHasIndexed) {
  std::string text;
  while (text.size() < 16 * 4096) text += "0aa.";
  for (const char* name : {"a.dat", "control"}) folder_.write(name, bytes_of_text(text));
  if (pages_that_stay(path("control")) > 0) {
    GTEST_SKIP() << "this file system does not drop pages, or does not tell";
  }
  const auto source = open();
  EXPECT_EQ(pages_that_stay(path("a.dat")), 0);
}

TEST_F(RecordSourceTest, GivesEachRecordOnceInEveryEpochOverAllRanks) {
  plan_.shuffle = true;
  plan_.epochs = 2;
  for (const std::int32_t ranks : {1, 2, 3, 5}) {
    std::map<std::uint64_t, std::multiset<std::string>> seen;
    for (plan_.rank = 0, plan_.ranks = ranks; plan_.rank < ranks; ++plan_.rank) {
      const auto source = open();
      EXPECT_EQ(source->facts().size_over_ranks, 5U);
      for (const GivenSample& given : all_of(*source)) seen[given.epoch].insert(given.content);
    }
    ASSERT_EQ(seen.size(), 2U);
    for (const auto& [epoch, texts] : seen) {
      EXPECT_EQ(texts, (std::multiset<std::string>{"aa", "ab", "ac", "ca", "cb"})) << epoch;
    }
    plan_.rank = 0;
  }
}

TEST_F(RecordSourceTest, ADamagedRecordIsNamedAndCostsItselfAlone) {
  folder_.write("a.dat", bytes_of_text("0aa.1ab!0ac."));
  const auto source = open();
  int good = 0;
  for (Sample sample; source->next(sample);) {
    if (sample.index != 1) {
      source->load(sample);
      ++good;
      continue;
    }
    EXPECT_TRUE(says(thrown_by<DataError>([&] { source->load(sample); }),
                     "a.dat' at byte 4: it is damaged"));
  }
  EXPECT_EQ(good, 4);
}

TEST_F(RecordSourceTest, UnusableRecordsAreReportedBeforeTheRun) {
  plan_.classes = 2;
  const std::string labels = thrown_by<ConfigError>([&] { open(); });
  EXPECT_TRUE(says(labels, "c.dat' have label 2 (at byte 0)"));
  EXPECT_TRUE(says(labels, "--classes 3"));
  plan_.classes = 10;
  folder_.write("b.dat", bytes_of_text("xyz"));
  folder_.write("c.dat", bytes_of_text("x"));
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { open(); }), "b.dat"));
  for (const char* name : {"a.dat", "b.dat", "c.dat"}) folder_.write(name, {});
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { open(); }), "no sample"));
}

}  // namespace
}  // namespace penstock
