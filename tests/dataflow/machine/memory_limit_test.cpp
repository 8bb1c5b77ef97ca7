// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/memory_limit.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// A machine with 1000 MiB available; the process is in the control group /a/b.
class Machine {
 public:
  Machine() {
    write_text(root_ / "proc/meminfo", "MemTotal: 2048000 kB\nMemAvailable: 1024000 kB\n");
    write_text(root_ / "proc/self/cgroup", "0::/a/b\n");
  }
  void limit(const std::string& group, const std::string& most, std::size_t used,
             std::size_t cache) const {
    const std::filesystem::path folder = root_ / "sys/fs/cgroup" / group;
    write_text(folder / "memory.max", most + "\n");
    write_text(folder / "memory.current", std::to_string(used) + "\n");
    write_text(folder / "memory.stat", "anon 7\ninactive_file " + std::to_string(cache) + "\n");
  }
  std::size_t available() const { return available_memory(root_.path()); }

 private:
  TempFolder root_;
};

TEST(AvailableMemory, IsTheSmallestOfTheMachineAndOfEachControlGroupAbove) {
  const Machine machine;
  EXPECT_EQ(machine.available(), 1000 * kMiB);
  machine.limit("a", std::to_string(900 * kMiB), 200 * kMiB, 50 * kMiB);
  EXPECT_EQ(machine.available(), 750 * kMiB);
  machine.limit("a/b", std::to_string(500 * kMiB), 100 * kMiB, 0);
  EXPECT_EQ(machine.available(), 400 * kMiB);
  machine.limit("a/b", "max", 100 * kMiB, 0);
  EXPECT_EQ(machine.available(), 750 * kMiB);
}

TEST(AvailableMemory, KnowsTheGroupsOfVersion1) {
  const TempFolder root;
  write_text(root / "proc/meminfo", "MemAvailable: 1024000 kB\n");
  write_text(root / "proc/self/cgroup", "5:cpu,cpuacct:/z\n3:hugetlb,memory:/a/b\n0::/\n");
  const auto limit = [&](const std::string& group, std::size_t most, std::size_t used) {
    const std::filesystem::path folder = root / "sys/fs/cgroup/memory" / group;
    write_text(folder / "memory.limit_in_bytes", std::to_string(most) + "\n");
    write_text(folder / "memory.usage_in_bytes", std::to_string(used) + "\n");
    write_text(folder / "memory.stat", "inactive_file 0\ntotal_inactive_file " +
                                           std::to_string(30 * kMiB) + "\ntotal_active_file " +
                                           std::to_string(20 * kMiB) + "\n");
  };
  constexpr std::size_t kNone = 0x7FFFFFFFFFFFF000;  // the kernel's value for no limit
  limit("", kNone, 900 * kMiB);
  limit("z", kMiB, kMiB);  // of another controller
  limit("a", 800 * kMiB, 200 * kMiB);
  limit("a/b", kNone, 100 * kMiB);
  EXPECT_EQ(available_memory(root.path()), 650 * kMiB);
  limit("a/b", 400 * kMiB, 100 * kMiB);
  EXPECT_EQ(available_memory(root.path()), 350 * kMiB);
}

TEST(RequireMemory, SaysWhatElseWouldHelp) {
  const MemoryNeed need{.what = "files", .bytes = 30e9, .advice = "take fewer files"};
  EXPECT_EQ(thrown_by<ConfigError>([&] { require_memory(std::span(&need, 1), 500'000'000); }),
            "not enough memory: files are 30.0 GB, and 500 MB are available; take fewer files");
}

TEST(RequireMemory, AddsAllUpAndSaysWhatWouldFit) {
  const std::vector<MemoryNeed> needs{{"slots", 600e6, {{"--prefetch", 6}, {"--batch-size", 100}}},
                                      {"staging", 200e6, {{"--batch-size", 100}}},
                                      {"weights", 100e6}};
  EXPECT_NO_THROW(require_memory(needs, 900'000'000));
  EXPECT_EQ(thrown_by<ConfigError>([&] { require_memory(needs, 500'000'000); }),
            "not enough memory: slots 600 MB, staging 200 MB, weights 100 MB are 900 MB together, "
            "and 500 MB are available; what would fit: --batch-size 50, or --prefetch 2");
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { require_memory(needs, 50'000'000); }),
                   "lower several of these flags"));
}

}  // namespace
}  // namespace penstock
