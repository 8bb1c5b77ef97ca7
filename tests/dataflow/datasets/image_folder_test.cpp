// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "dataflow/error.h"
#include "tests/support/source_fixture.h"
#include "tests/support/text_bytes.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// Takes the next sample with its bytes; false at the end of data.
bool take(Source& source, Sample& sample) {
  if (!source.next(sample)) return false;
  source.load(sample);
  return true;
}

/// 3 classes of 5, 7 and 9 files; each file holds its name.
class ImageFolderTest : public SourceFixture {
 protected:
  ImageFolderTest() : SourceFixture("image-folder") {
    for (const auto& [name, count] : {std::pair{"cat", 7}, {"ant", 5}, {"dog", 9}}) {
      for (int i = 0; i < count; ++i) {
        const std::string file = std::string(name) + "/" + std::to_string(i) + kExtensions[i % 4];
        folder_.write(file, bytes_of_text(file));
      }
    }
    folder_.write("cat/notes.txt", bytes_of_text("no image"));
    folder_.write(".cache/x.JPEG", bytes_of_text("hidden"));
    folder_.write("labels.json", bytes_of_text("{}"));
    plan_.shuffle = true;
  }

  static constexpr const char* kExtensions[] = {".JPEG", ".jpg", ".JpG", ".png"};
};

TEST_F(ImageFolderTest, ClassesInByteOrderAreTheLabelsAndItsFilesAreTold) {
  plan_.shuffle = false;
  const auto source = open();
  EXPECT_EQ(source->facts().size, 21U);
  ASSERT_NE(source->facts().files, nullptr);
  ASSERT_EQ(source->facts().files->size(), 21U);
  Sample sample;
  std::string before;
  for (std::uint64_t index = 0; index < 21; ++index) {
    ASSERT_TRUE(take(*source, sample));
    EXPECT_EQ(sample.index, index);
    EXPECT_EQ(sample.epoch, 0U);
    EXPECT_EQ(source->facts().files->path(index), sample.file);
    const std::string text = text_of(sample.bytes);
    EXPECT_TRUE(sample.file.ends_with(text)) << sample.file;
    EXPECT_EQ(sample.label, text.starts_with("ant") ? 0 : text.starts_with("cat") ? 1 : 2);
    EXPECT_LT(before, text);
    before = text;
  }
  EXPECT_FALSE(take(*source, sample));
  EXPECT_FALSE(take(*source, sample));
}

TEST_F(ImageFolderTest, EachSampleOnceInEveryEpochOverAllRanks) {
  for (const std::int32_t ranks : {1, 2, 3, 5, 21}) {
    std::map<std::uint64_t, std::multiset<std::uint64_t>> seen;  // by epoch
    std::uint64_t total = 0;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      plan_.rank = rank;
      plan_.ranks = ranks;
      plan_.epochs = 3;
      const auto source = open();
      total += source->facts().size;
      EXPECT_EQ(source->facts().size_over_ranks, 21U);
      for (const GivenSample& given : all_of(*source)) {
        EXPECT_TRUE(given.file.ends_with(given.content));
        seen[given.epoch].insert(given.index);
      }
    }
    EXPECT_EQ(total, 21U);
    ASSERT_EQ(seen.size(), 3U);
    std::multiset<std::uint64_t> all;
    for (std::uint64_t index = 0; index < 21; ++index) all.insert(index);
    for (const auto& [epoch, indices] : seen)
      EXPECT_EQ(indices, all) << ranks << " ranks, epoch " << epoch;
  }
}

TEST_F(ImageFolderTest, OrderIsAFunctionOfSeedAndEpoch) {
  const auto order = [&](std::uint64_t seed) {
    plan_.seed = seed;
    plan_.epochs = 2;
    std::vector<std::uint64_t> indices;
    for (const GivenSample& given : all_of(*open())) indices.push_back(given.index);
    return indices;
  };
  const std::vector<std::uint64_t> first = order(1);
  EXPECT_EQ(order(1), first);
  EXPECT_NE(order(2), first);
  EXPECT_FALSE(std::equal(first.begin(), first.begin() + 21, first.begin() + 21))
      << "epochs are alike";
}

TEST_F(ImageFolderTest, EndlessEpochsDoNotEnd) {
  plan_.epochs = -1;
  const auto source = open();
  Sample sample;
  for (int i = 0; i < 21 * 10; ++i) ASSERT_TRUE(take(*source, sample));
  EXPECT_EQ(sample.epoch, 9U);
  plan_.epochs = 0;
  EXPECT_FALSE(open()->next(sample));
}

TEST_F(ImageFolderTest, AFileThatCannotBeReadIsNamedAndPassed) {
  plan_.shuffle = false;
  const auto source = open();
  folder_.write("ant/1.jpg", {});
  std::filesystem::remove(folder_.path() / "ant/2.JpG");
  std::filesystem::remove(folder_.path() / "ant/3.png");
  std::filesystem::create_directory(folder_.path() / "ant/3.png");
  Sample sample;
  ASSERT_TRUE(take(*source, sample));
  for (const auto& [name, reason] : {std::pair{"ant/1.jpg", "empty"},
                                     {"ant/2.JpG", "No such file"},
                                     {"ant/3.png", "not a regular file"}}) {
    const std::string error = thrown_by<DataError>([&] { take(*source, sample); });
    EXPECT_TRUE(says(error, name));
    EXPECT_TRUE(says(error, reason));
  }
  ASSERT_TRUE(take(*source, sample));
  EXPECT_EQ(sample.index, 4U);
}

TEST_F(ImageFolderTest, AFileTooLargeIsRefusedBeforeItIsRead) {
  plan_.shuffle = false;
  std::filesystem::resize_file(folder_.path() / "ant/0.JPEG", std::uintmax_t{1} << 40);
  const auto source = open();
  Sample sample;
  EXPECT_THROW(take(*source, sample), DataError);
  EXPECT_LT(sample.bytes.capacity(), std::size_t{1} << 20);
}

TEST_F(ImageFolderTest, MissingFilesAreReportedWithTheirPath) {
  const std::string root = plan_.directory;
  const auto expect = [&](const std::string& directory, const std::string& problem) {
    plan_.directory = directory;
    const std::string error = refusal();
    EXPECT_TRUE(says(error, problem));
    EXPECT_TRUE(says(error, "'" + directory + "'"));
  };
  expect(root + "/nothing", "does not exist");
  expect(root + "/labels.json", "is no folder");
  expect(root + "/cat", "has no class folders");
  std::filesystem::create_directory(root + "/empty");
  expect(root + "/empty", "is empty");
  folder_.write("split/train/c/x.txt", bytes_of_text("x"));
  expect(root + "/split", "has no images");
  expect(root + "/split", "did you mean '" + root + "/split/train'");
  plan_.directory = root + "/empty";
  EXPECT_TRUE(says(refusal(), "penstock dataset make"));
}

TEST_F(ImageFolderTest, ImagesThatAreLeftOutAreCounted) {
  EXPECT_EQ(open()->facts().note, "");
  folder_.write("ant/more/1.jpg", bytes_of_text("x"));
  folder_.write("ant/more/again/2.jpg", bytes_of_text("x"));
  folder_.write("cat/x.webp", bytes_of_text("x"));
  const auto source = open();
  const std::string note = source->facts().note;
  EXPECT_EQ(source->facts().size, 21U);
  EXPECT_TRUE(says(note, "2 images lie")) << note;
  EXPECT_TRUE(says(note, "1 images are of a format that is not decoded")) << note;
  const std::string root = plan_.directory;
  folder_.write("nested/a/2019/1.jpg", bytes_of_text("x"));
  plan_.directory = root + "/nested";
  EXPECT_TRUE(says(refusal(), "1 images lie one folder deeper"));
  folder_.write("parquet/data/0.parquet", bytes_of_text("PAR1"));
  plan_.directory = root + "/parquet";
  EXPECT_TRUE(says(refusal(), "data/0.parquet' is a Parquet file"));
}

TEST_F(ImageFolderTest, OtherNamesOfJpegFilesCount) {
  folder_.write("ant/x.jfif", bytes_of_text("x"));
  folder_.write("ant/x.pjpeg", bytes_of_text("x"));
  folder_.write("ant/picture", bytes_of_text("\xff\xd8\xff\xe0"));
  folder_.write("ant/LICENSE", bytes_of_text("no image"));
  EXPECT_EQ(open()->facts().size, 24U);
}

TEST_F(ImageFolderTest, ALinkToItselfIsNamed) {
  const std::filesystem::path link = folder_.path() / "cat" / "self.png";
  std::filesystem::create_symlink("self.png", link);
  EXPECT_TRUE(says(refusal(), "'" + link.native() + "'"));
}

TEST_F(ImageFolderTest, AFolderWithoutReadPermissionIsReported) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read every folder";
  std::filesystem::permissions(folder_.path() / "cat", std::filesystem::perms::none);
  EXPECT_TRUE(says(refusal(), "cannot be read"));
  std::filesystem::permissions(folder_.path() / "cat", std::filesystem::perms::owner_all);
}

TEST_F(ImageFolderTest, MoreClassesOrRanksThanFitAreRefused) {
  plan_.classes = 2;
  EXPECT_TRUE(says(refusal(), "3 classes"));
  plan_.classes = 3;
  EXPECT_NO_THROW(open());
  plan_.ranks = 22;
  EXPECT_TRUE(says(refusal(), "22 ranks"));
}

TEST_F(ImageFolderTest, GoesOnInTheMiddleOfAnEpoch) {
  for (const std::int32_t rank : {0, 1}) {
    plan_.rank = rank;
    plan_.ranks = 2;
    plan_.epochs = -1;
    plan_.first_sample = 0;
    const std::unique_ptr<Source> whole = open();
    std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
    Sample sample;
    for (int i = 0; i < 60; ++i) {
      ASSERT_TRUE(whole->next(sample));
      all.emplace_back(sample.epoch, sample.index);
    }
    for (const std::uint64_t first : {1U, 9U, 10U, 11U, 25U, 40U}) {
      plan_.first_sample = first;
      const std::unique_ptr<Source> rest = open();
      for (std::size_t i = first; i < all.size(); ++i) {
        ASSERT_TRUE(rest->next(sample));
        EXPECT_EQ(std::pair(sample.epoch, sample.index), all[i]) << "from " << first;
      }
    }
  }
}

}  // namespace
}  // namespace penstock
