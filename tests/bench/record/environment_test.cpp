// SPDX-License-Identifier: Apache-2.0
#include "bench/record/environment.h"

#include <gtest/gtest.h>

#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

TEST(Environment, SaysWhatThisMachineAndProgramAre) {
  const Environment environment = read_environment();
  EXPECT_FALSE(environment.cpu_model.empty());
  EXPECT_GE(environment.usable_cores, 1);
  EXPECT_GE(environment.online_cores, environment.usable_cores);
  EXPECT_GT(environment.memory_bytes, 1U << 20);
  EXPECT_TRUE(environment.kernel.starts_with("Linux ")) << environment.kernel;
  EXPECT_FALSE(environment.revision.empty());
  EXPECT_TRUE(says(environment.compiler_flags, "-std=c++20"));
  EXPECT_TRUE(environment.libraries.contains("fmt"));
  EXPECT_TRUE(environment.libraries.contains("glibc"));
  EXPECT_EQ(environment.date.size(), std::string("2026-01-02T03:04:05Z").size());
}

TEST(Environment, StolenTimeIsAShareOfAllTime) {
  EXPECT_DOUBLE_EQ(steal_percent({1000, 10}, {1400, 30}), 5);
  EXPECT_DOUBLE_EQ(steal_percent({1000, 10}, {1000, 10}), 0);
  EXPECT_DOUBLE_EQ(steal_percent({1000, 10}, {2000, 5}), 0) << "counters went back";
}

TEST(Environment, CpuTimeGrows) {
  const CpuTicks before = read_cpu_ticks();
  EXPECT_GT(before.total, 0U);
  EXPECT_GE(read_cpu_ticks().total, before.total);
}

TEST(Environment, WarnsWhereNumbersMayLie) {
  Environment environment;
  environment.usable_cores = 4;
  environment.load_average = 0.2;
  environment.cpu_governor = "performance";
  EXPECT_TRUE(warnings_of(environment).empty());
  environment.load_average = 3.5;
  environment.cpu_governor = "powersave";
  environment.steal_percent = 7.5;
  const std::vector<std::string> warnings = warnings_of(environment);
  ASSERT_EQ(warnings.size(), 3U);
  EXPECT_TRUE(says(warnings[0], "'powersave'"));
  EXPECT_TRUE(says(warnings[1], "3.5 on 4 usable cores"));
  EXPECT_TRUE(says(warnings[2], "7.5 %"));
}

}  // namespace
}  // namespace penstock
