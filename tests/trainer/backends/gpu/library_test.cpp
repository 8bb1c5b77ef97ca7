// SPDX-License-Identifier: Apache-2.0
// Tests the messages about a libpenstock_cuda.so that is missing, broken or of another revision.
#include "trainer/backends/gpu/library.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock::gpu {
namespace {

std::string reason_against(const std::vector<std::filesystem::path>& files,
                           const std::filesystem::path& gpus = "/proc") {
  return thrown_by<Unavailable>([&] { open_driver_library(files, gpus); });
}

TEST(DriverLibrary, MissingNamesTheFilesThatWereTriedAndTheTarget) {
  const TempFolder folder;
  const std::string reason =
      reason_against({folder / "libpenstock_cuda.so", folder / "lib/libpenstock_cuda.so",
                      "libpenstock_absent.so"});
  EXPECT_TRUE(says(reason, (folder / "libpenstock_cuda.so").string()));
  EXPECT_TRUE(says(reason, (folder / "lib/libpenstock_cuda.so").string()));
  EXPECT_TRUE(says(reason, "the system says: libpenstock_absent.so: cannot open"));
  EXPECT_TRUE(says(reason, "build the target penstock_cuda"));
}

TEST(DriverLibrary, MissingOnAMachineWithoutAGpuSaysThatFirst) {
  const TempFolder folder;
  const std::string reason = reason_against({folder / "libpenstock_cuda.so"}, folder / "gpus");
  EXPECT_TRUE(says(reason, "this machine has no NVIDIA GPU"));
  EXPECT_TRUE(says(reason, (folder / "gpus").string()));
}

TEST(DriverLibrary, OfAnInstalledProgramIsInTheLibFolder) {
  const TempFolder folder;
  const std::filesystem::path program = folder / "bin/penstock";
  const std::filesystem::path file = folder / "lib/libpenstock_cuda.so";
  EXPECT_TRUE(find_driver_library(program).empty());
  std::filesystem::create_directories(file.parent_path());
  write_text(file, "");
  EXPECT_EQ(find_driver_library(program), file);
}

TEST(DriverLibrary, ALibraryThatCannotBeLoadedSaysWhatItNeeds) {
  const TempFolder folder;
  const std::filesystem::path file = folder / "libpenstock_cuda.so";
  write_text(file, "not a library");
  const std::string reason = reason_against({file});
  EXPECT_TRUE(says(reason, file.string() + " cannot be loaded: "));
  EXPECT_TRUE(says(reason, "LD_LIBRARY_PATH"));
}

TEST(DriverLibrary, ALibraryOfAnotherRevisionIsRefused) {
  EXPECT_TRUE(says(reason_against({PENSTOCK_STALE_LIBRARY}),
                   "is of revision of-last-week, this program of "));
}

TEST(DriverLibrary, ALibraryWithoutItsFunctionsIsRefused) {
  EXPECT_TRUE(
      says(reason_against({PENSTOCK_OTHER_LIBRARY}), "has no function penstock_cuda_revision"));
}

}  // namespace
}  // namespace penstock::gpu
