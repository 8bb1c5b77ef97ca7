// SPDX-License-Identifier: Apache-2.0
#include "bench/result_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <sstream>

#include "bench/child_run.h"
#include "dataflow/error.h"
#include "tests/bench/sweep_rows.h"

namespace penstock {
namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::size_t files_in(const std::filesystem::path& folder) {
  const std::filesystem::directory_iterator files(folder);
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

/// While it lives, this process cannot make a file longer than `bytes`, as if the disk were full.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
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

TEST(ResultFolder, MakesItsFolderAndAFileForEachReport) {
  const PrivateFolder scratch;
  const ResultFolder folder(scratch.path() / "a" / "b");
  SweepResult sweep;
  sweep.rows.push_back(make_ok_row("gpu", 10, true));
  sweep.varied = {&find_config_key("fake_location")};
  folder.write(sweep);
  folder.write(sweep);
  for (const char* file : {"results.json", "results.csv", "results.md", "report.html"}) {
    EXPECT_GT(std::filesystem::file_size(folder.path() / file), 0U) << file;
  }
  EXPECT_EQ(files_in(folder.path()), 5U) << "and the folder of figures";
  EXPECT_GT(std::filesystem::file_size(folder.path() / "figures" / "steps.svg"), 0U);
}

TEST(ResultFolder, NamesAFolderThatCannotBe) {
  const PrivateFolder scratch;
  std::ofstream(scratch.path() / "file") << "x";
  try {
    const ResultFolder folder(scratch.path() / "file" / "out");
    FAIL() << "made";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("file/out"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--out"), std::string::npos) << error.what();
  }
}

TEST(ReplaceFile, KeepsTheOldContentWhenTheDiskIsFull) {
  const PrivateFolder scratch;
  const std::filesystem::path path = scratch.path() / "file";
  signal(SIGXFSZ, SIG_IGN);
  replace_file(path, "old");
  {
    const SmallFiles limit(1000);
    try {
      replace_file(path, std::string(100000, 'n'));
      FAIL() << "written";
    } catch (const DataError& error) {
      EXPECT_NE(
          std::string(error.what()).find("cannot write '" + path.native() + "': File too large"),
          std::string::npos)
          << error.what();
    }
  }
  EXPECT_EQ(content_of(path), "old");
  EXPECT_EQ(files_in(scratch.path()), 1U) << "nothing is left beside it";
  replace_file(path, "new");
  EXPECT_EQ(content_of(path), "new");
}

}  // namespace
}  // namespace penstock
