// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/output_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

std::size_t files_in(const TempFolder& folder) {
  const std::filesystem::directory_iterator files(folder.path());
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

/// During its lifetime, this process cannot write files beyond `bytes`, as on a full disk.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit small = before_;
    small.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &small);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;
  ~SmallFiles() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(OutputFile, KeepsTheOldContentWhenTheDiskIsFull) {
  const TempFolder folder;
  const std::filesystem::path path = folder / "file";
  replace_file(path, "old");
  {
    const SmallFiles limit(1000);
    const std::string said =
        thrown_by<DataError>([&] { replace_file(path, std::string(100000, 'n')); });
    EXPECT_EQ(said, "cannot write '" + path.native() + "': File too large");
  }
  EXPECT_EQ(read_text(path), "old");
  EXPECT_EQ(files_in(folder), 1U) << "nothing is left beside it";
  replace_file(path, "new");
  EXPECT_EQ(read_text(path), "new");
}

TEST(OutputFile, ReplacesTheFileThatALinkNamesAndKeepsTheLink) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "there");
  std::filesystem::create_symlink("there/second", folder / "first");
  std::filesystem::create_symlink("file", folder / "there" / "second");
  for (const char* const text : {"made", "replaced"}) {
    replace_file(folder / "first", text);
    EXPECT_EQ(read_text(folder / "there" / "file"), text);
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "first"));
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "there" / "second"));
  }
}

TEST(OutputFile, RefusesAFifoAtOnceAndLeavesIt) {
  const TempFolder folder;
  const std::filesystem::path fifo = folder / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string said = thrown_by<DataError>([&] { replace_file(fifo, "text"); });
  EXPECT_TRUE(says(said, "'" + fifo.native() + "': it is not a regular file"));
  EXPECT_EQ(thrown_by<DataError>([&] { open_growing_file(fifo); }), said);
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(OutputFile, WritesToACharacterDeviceAndLeavesIt) {
  const TempFolder folder;
  std::filesystem::create_symlink("/dev/null", folder / "link");
  replace_file(folder / "link", "text");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(thrown_by<DataError>([] { replace_file("/dev/full", "text"); }),
            "cannot write '/dev/full': No space left on device");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(OutputFile, RefusesAFolderALinkToItselfAndAFolderThatIsMissing) {
  const TempFolder folder;
  std::filesystem::create_symlink("self", folder / "self");
  const auto said = [&](const std::filesystem::path& path) {
    return thrown_by<DataError>([&] { replace_file(path, "text"); });
  };
  const std::string begin = "cannot write '" + folder.path().native();
  EXPECT_EQ(said(folder.path()), begin + "': Is a directory");
  EXPECT_EQ(said(folder / "self"), begin + "/self': Too many levels of symbolic links");
  EXPECT_EQ(said(folder / "none" / "file"), begin + "/none/file': No such file or directory");
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(OutputFile, ALinkIntoAFolderThatIsMissingIsRefusedBeforeAnythingIsWritten) {
  const TempFolder folder;
  std::filesystem::create_symlink("none/file", folder / "link");
  EXPECT_EQ(thrown_by<DataError>([&] { static_cast<void>(find_output(folder / "link")); }),
            "cannot write '" + (folder / "link").native() + "': it leads to '" +
                (folder / "none" / "file").native() +
                "': No such file or directory; name a file in a folder that exists and that you "
                "may write to");
  std::filesystem::create_directory(folder / "none");
  EXPECT_EQ(find_output(folder / "link").path, folder / "none" / "file");
}

TEST(OutputFile, WhatAKilledProcessLeftUnfinishedIsRemovedByTheNextWriter) {
  const TempFolder folder;
  const pid_t killed = fork();
  if (killed == 0) {
    OutputFile file(folder / "file");
    file.write("half of it");
    kill(getpid(), SIGKILL);
  }
  ASSERT_GT(killed, 0);
  ASSERT_EQ(waitpid(killed, nullptr, 0), killed);
  EXPECT_EQ(files_in(folder), 1U) << "nothing was left";
  const std::filesystem::path other = folder / ".penstock-backup.tmp";
  std::ofstream(other) << "of no process";
  OutputFile writing(folder / "second");  // its process, this one, is alive
  replace_file(folder / "file", "whole");
  EXPECT_EQ(read_text(folder / "file"), "whole");
  EXPECT_TRUE(std::filesystem::exists(other));
  writing.commit();
  EXPECT_EQ(files_in(folder), 3U) << "the file, the second one and the other";
}

TEST(OutputFile, WithoutACommitTheTargetKeepsItsContent) {
  const TempFolder folder;
  replace_file(folder / "file", "old");
  {
    OutputFile file(folder / "file", "choose another --out");
    file.write("new");
  }
  EXPECT_EQ(read_text(folder / "file"), "old");
  EXPECT_EQ(files_in(folder), 1U);
  EXPECT_EQ(thrown_by<DataError>([&] { OutputFile(folder.path(), "choose another --out"); }),
            "cannot write '" + folder.path().native() + "': Is a directory; choose another --out");
}

}  // namespace
}  // namespace penstock
