// SPDX-License-Identifier: Apache-2.0
// All ways to read files return the same bytes.
#include "dataflow/machine/file_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "dataflow/datasets/source_over.h"
#include "dataflow/error.h"
#include "dataflow/random.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr std::size_t kBytes = 5'000'123;  // more than io_uring's pieces in flight

class FileReaderTest : public testing::TestWithParam<const char*> {
 protected:
  FileReaderTest() {
    content_.resize(kBytes);
    Random(1).fill(content_);
    folder_.write("large", content_);
    path_ = (folder_ / "large").string();
    std::string note;
    reader_ = make_file_reader(GetParam(), path_.c_str(), note);
    if (!note.empty()) reason_ = note;
  }

  bool is_content(std::span<const std::byte> read, std::size_t offset) const {
    return std::equal(read.begin(), read.end(),
                      content_.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  TempFolder folder_;
  std::vector<std::byte> content_, storage_;
  std::string path_, reason_;
  std::unique_ptr<FileReader> reader_;
};

#define SKIP_WHERE_THE_SYSTEM_REFUSES() \
  if (!reason_.empty()) GTEST_SKIP() << reason_

TEST_P(FileReaderTest, PartsMatchTheFile) {
  SKIP_WHERE_THE_SYSTEM_REFUSES();
  for (const std::size_t offset : {0U, 1U, 4095U, 4096U, 4097U, 131072U, 4'999'000U}) {
    for (const std::size_t count : {1U, 100U, 1123U, 4096U, 131073U, 4'194'305U}) {
      if (offset + count > kBytes) continue;
      const std::span<const std::byte> read = reader_->read(path_.c_str(), offset, count, storage_);
      ASSERT_EQ(read.size(), count);
      EXPECT_TRUE(is_content(read, offset)) << offset << ", " << count;
    }
  }
}

TEST_P(FileReaderTest, WholeFilesOfAnySizeAreRead) {
  SKIP_WHERE_THE_SYSTEM_REFUSES();
  const std::span<const std::byte> all = reader_->read(path_.c_str(), storage_);
  ASSERT_EQ(all.size(), kBytes);
  EXPECT_TRUE(is_content(all, 0));
  const std::byte* const data = storage_.data();
  for (const std::size_t size : {1U, 4095U, 4096U, 4097U, 131072U, 131073U}) {
    folder_.write("small",
                  {content_.begin(), content_.begin() + static_cast<std::ptrdiff_t>(size)});
    const std::span<const std::byte> read = reader_->read((folder_ / "small").c_str(), storage_);
    ASSERT_EQ(read.size(), size);
    EXPECT_TRUE(is_content(read, 0)) << size;
    EXPECT_EQ(storage_.data(), data) << "what was large enough is used again";
  }
}

TEST_P(FileReaderTest, UnreadableFilesAreRefusedByName) {
  SKIP_WHERE_THE_SYSTEM_REFUSES();
  const auto refusal = [&](const std::filesystem::path& path) {
    return thrown_by<DataError>([&] { reader_->read(path.c_str(), storage_); });
  };
  folder_.write("empty", {});
  EXPECT_TRUE(says(refusal(folder_ / "empty"), "empty': it is empty"));
  EXPECT_TRUE(says(refusal(folder_ / "none"), "No such file"));
  EXPECT_NE(refusal(folder_.path()), "nothing was thrown");
  for (const auto& [offset, count] : {std::pair<std::uint64_t, std::uint64_t>{kBytes - 1, 2},
                                      {kBytes + 10, 1},
                                      {5, kBytes},
                                      {std::uint64_t{1} << 40, 100}}) {
    EXPECT_TRUE(says(thrown_by<DataError>([&, from = offset, bytes = count] {
                       reader_->read(path_.c_str(), from, bytes, storage_);
                     }),
                     "large': it ended after "))
        << offset;
  }
  EXPECT_TRUE(says(
      thrown_by<DataError>([&] { reader_->read(path_.c_str(), 0, ~std::uint64_t{0}, storage_); }),
      "too many bytes"));
  // It then works again.
  EXPECT_TRUE(is_content(reader_->read(path_.c_str(), 77, 5000, storage_), 77));
}

TEST_P(FileReaderTest, ThreadsReadAtTheSameTime) {
  SKIP_WHERE_THE_SYSTEM_REFUSES();
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < 6; ++thread) {
      threads.emplace_back([&, thread] {
        std::vector<std::byte> storage;
        for (std::size_t i = 0; i < 40; ++i) {
          const std::size_t offset = (thread * 7919 + i * 104729) % 4'000'000;
          wrong += !is_content(reader_->read(path_.c_str(), offset, 300'001, storage), offset);
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

/// Lends parts of a file without having their bytes: a reader of the lent memory sees zeros.
class PartsOfAFile final : public Source {
 public:
  PartsOfAFile(std::string path, const std::byte* zeros) : path_(std::move(path)), zeros_(zeros) {}
  bool next(Sample& sample) override {
    if (count_ == 5) return false;
    sample.index = count_++;
    sample.label = sample.index == 3 ? -1 : 0;
    sample.file = path_;
    sample.offset = 1000 * sample.index + 1;
    sample.lent = {zeros_, 500};
    return true;
  }
  void load(Sample& sample) const override { sample.lent = sample.lent.subspan(10); }
  SourceFacts facts() const override { return {.size = 5, .size_over_ranks = 5, .classes = 1}; }

 private:
  const std::string path_;
  const std::byte* const zeros_;
  std::uint64_t count_ = 0;
};

TEST_P(FileReaderTest, RecordsAreTakenApartByTheirSource) {
  SKIP_WHERE_THE_SYSTEM_REFUSES();
  const std::vector<std::byte> zeros(500);
  const auto reads = datasets::read_by(std::make_unique<PartsOfAFile>(path_, zeros.data()),
                                       std::move(reader_), false);
  Sample sample;
  while (reads->next(sample)) {
    reads->load(sample);
    ASSERT_EQ(sample.content().size(), 490U);
    if (sample.index == 3) {
      EXPECT_EQ(sample.content().data(), zeros.data() + 10) << "a damaged one is left alone";
    } else {
      EXPECT_TRUE(is_content(sample.content(), sample.offset + 10)) << sample.index;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, FileReaderTest, testing::Values("pread", "direct", "uring"),
                         [](const auto& way) { return std::string(way.param); });

TEST(FileReader, AFileSystemWithoutDirectReadsIsReportedAndRead) {
  std::string note;
  const std::unique_ptr<FileReader> reader = make_file_reader("direct", "/proc/version", note);
  EXPECT_TRUE(says(note, "'/proc/version' cannot be read past the page cache"));
  const TempFolder folder;
  folder.write("file", {std::byte{7}, std::byte{8}});
  std::vector<std::byte> storage;
  EXPECT_EQ(reader->read((folder / "file").c_str(), storage)[1], std::byte{8});
}

TEST(FileReader, OtherWaysAreRefused) {
  std::string note;
  EXPECT_THROW(make_file_reader("mmap", "/proc/version", note), ConfigError);
}

}  // namespace
}  // namespace penstock
