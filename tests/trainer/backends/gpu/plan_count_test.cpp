// SPDX-License-Identifier: Apache-2.0
// Tests how many plans cuDNN is asked for if libcuda.so.1 exists, as on every machine with a GPU.
// cuDNN then offers engines that it compiles at run time, each in about a second. In a child
// process, the toolkit's stub replaces the driver's library.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>

#include "bench/run/processes/child_process.h"
#include "tests/support/temp_folder.h"

namespace penstock::gpu {
namespace {

struct Count {
  int engines = 0, plans = 0, compiled = 0, candidates = 0;
};
using Counts = std::map<std::string, Count>;

/// `libraries` is searched first; empty: only the usual places.
std::string output_of_counter(const std::filesystem::path& libraries) {
  ChildProcess child({.arguments = {"/usr/bin/env", "LD_LIBRARY_PATH=" + libraries.string(),
                                    PENSTOCK_PLAN_COUNTER, PENSTOCK_H200},
                      .timeout = std::chrono::seconds(90)});
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.code, 0) << exit.describe();
  return exit.output;
}

Counts parse(const std::string& output) {
  Counts counts;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    Count count;
    if (words >> name >> count.engines >> count.plans >> count.compiled >> count.candidates) {
      counts[name] = count;
    }
  }
  return counts;
}

class PlansWithALibcuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(PENSTOCK_CUDA_STUB)) {
      GTEST_SKIP() << "the CUDA toolkit has no " << PENSTOCK_CUDA_STUB;
    }
    std::filesystem::create_symlink(PENSTOCK_CUDA_STUB, folder_ / "libcuda.so.1");
    counts_ = parse(output_of_counter(folder_.path()));
    ASSERT_EQ(counts_.size(), 6U);
  }

  TempFolder folder_;
  Counts counts_;
};

TEST_F(PlansWithALibcuda, NoEngineIsCompiledForAGraphThatHasOthers) {
  for (const auto& [name, count] : counts_) {
    EXPECT_EQ(count.compiled, 0) << name;
    EXPECT_GT(count.candidates, 0) << name;
  }
  // Here the library offers such engines.
  EXPECT_GT(counts_.at("plain").engines, parse(output_of_counter({})).at("plain").engines);
}

TEST_F(PlansWithALibcuda, AskedForOneCandidateFinalisesFewPlans) {
  for (const std::string name : {"plain_first", "fused_first"}) {
    EXPECT_EQ(counts_.at(name).candidates, 1) << name;
    EXPECT_LE(counts_.at(name).plans, 3) << name;
  }
}

TEST_F(PlansWithALibcuda, EnginesThatTheRulesExcludeAreNotFinalised) {
  const Count &f32 = counts_.at("f32"), &tf32 = counts_.at("tf32");
  EXPECT_LE(f32.plans, tf32.plans - (tf32.candidates - f32.candidates));
  EXPECT_LT(f32.plans, tf32.plans);
}

TEST(DescribeDevice, IsEmptyWhenTheLibraryGivesNoDescription) {
  EXPECT_NE(output_of_counter({}).find("null handle ''"), std::string::npos);
}

}  // namespace
}  // namespace penstock::gpu
