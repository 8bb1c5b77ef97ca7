// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep/result_folder.h"
#include "bench/sweep/private_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>

#include "dataflow/error.h"
#include "tests/bench/record/sweep_rows.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

std::size_t files_in(const std::filesystem::path& folder) {
  const std::filesystem::directory_iterator files(folder);
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

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

TEST(ResultFolder, TwoWritersOfOneFolderMeet) {
  const PrivateFolder scratch;
  auto first = std::make_unique<ResultFolder>(scratch.path() / "out");
  std::filesystem::create_symlink("out", scratch.path() / "link");
  for (const char* const name : {"out", "link"}) {
    EXPECT_TRUE(says(thrown_by<ConfigError>([&] { ResultFolder(scratch.path() / name); }),
                     "another process writes its results"))
        << name;
  }
  first.reset();
  EXPECT_NO_THROW(ResultFolder(scratch.path() / "out"));
}

TEST(ResultFolder, NamesAFolderThatCannotBe) {
  const PrivateFolder scratch;
  std::ofstream(scratch.path() / "file") << "x";
  const std::string said =
      thrown_by<ConfigError>([&] { ResultFolder(scratch.path() / "file" / "out"); });
  EXPECT_TRUE(says(said, "file/out"));
  EXPECT_TRUE(says(said, "--out"));
}

}  // namespace
}  // namespace penstock
