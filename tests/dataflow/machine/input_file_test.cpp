// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "dataflow/datasets/image_folder.h"
#include "dataflow/datasets/mapped_file.h"
#include "dataflow/datasets/shard_stream.h"
#include "dataflow/error.h"
#include "dataflow/machine/file_reader.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr const char* kReason = "it is not a regular file";

TEST(InputFile, GivesTheContentOfARegularFileUpToALimit) {
  const TempFolder folder;
  const std::string content(200'000, 'x');
  write_text(folder / "file", content);
  const InputFile file(folder / "file");
  ASSERT_TRUE(file) << file.problem();
  EXPECT_EQ(file.size(), content.size());
  EXPECT_EQ(InputFile(folder / "file").text(content.size()), content);
  EXPECT_EQ(thrown_by<DataError>([&] { InputFile(folder / "file").text(content.size() - 1); }),
            "it has more than 199999 bytes");
  EXPECT_EQ(file.part(content.size() - 2, 10), "xx");
  EXPECT_EQ(file.part(0, 3), "xxx");
  EXPECT_EQ(file.part(content.size() + 1, 3), "");
  EXPECT_EQ(InputFile(folder / "none").part(0, 3), "");
  EXPECT_FALSE(InputFile("/proc/self/status").text().empty()) << "which has no size";
}

TEST(InputFile, RefusesAtOnceWhatIsNoRegularFile) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const std::filesystem::path& path :
       {folder / "fifo", folder.path(), std::filesystem::path("/dev/zero")}) {
    const InputFile file(path);
    EXPECT_FALSE(file) << path;
    EXPECT_EQ(file.problem(), kReason) << path;
  }
  EXPECT_EQ(InputFile(folder / "none").problem(), "No such file or directory");
  EXPECT_EQ(thrown_by<DataError>([&] { InputFile(folder / "none").text(); }),
            "No such file or directory");
}

TEST(DataFiles, AFifoIsRefusedByEveryWayToReadIt) {
  const TempFolder folder;
  const std::string fifo = (folder / "fifo").native();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::vector<std::byte> bytes;
  EXPECT_TRUE(says(thrown_by<DataError>([&] { datasets::read_image_file(fifo, bytes); }), kReason));
  for (const char* const way : {"pread", "direct", "uring"}) {
    std::string note;
    const std::unique_ptr<FileReader> reader = make_file_reader(way, fifo.c_str(), note);
    EXPECT_TRUE(
        says(thrown_by<DataError>([&] { reader->read(fifo.c_str(), 0, 10, bytes); }), kReason));
  }
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { datasets::MappedFile mapped(fifo); }),
                   "not a regular file"));
  EXPECT_TRUE(says(
      thrown_by<ConfigError>([&] { static_cast<void>(datasets::open_shard_stream(fifo, "", {})); }),
      "not a regular file"));
}

}  // namespace
}  // namespace penstock
