// SPDX-License-Identifier: Apache-2.0
// Processes and their memory, from files in the kernel's format.
#include "dataflow/machine/processes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"

namespace penstock {
namespace {

class Processes : public testing::Test {
 protected:
  void add(std::int32_t pid, std::int32_t parent, char state = 'S') const {
    std::string text = std::to_string(pid) + " (a) (b) " + state + " " + std::to_string(parent);
    for (int field = 5; field <= 52; ++field) text += " " + std::to_string(field);
    write_text(file(pid, "stat"), text + "\n");
  }
  std::filesystem::path file(std::int32_t pid, const char* name) const {
    return root_.path() / "proc" / std::to_string(pid) / name;
  }
  const TempFolder root_;
};

TEST_F(Processes, ATreeHasTheRunningDescendantsParentsFirst) {
  add(10, 1);
  add(30, 10);
  add(20, 30);
  add(40, 10, 'Z');
  add(50, 1);
  EXPECT_EQ(process_tree(10, 0, root_.path()), (std::vector<std::int32_t>{10, 30, 20}));
  EXPECT_EQ(process_tree(10, 30, root_.path()), (std::vector<std::int32_t>{10}));
  const ProcessStat stat(root_.path() / "proc/20");
  EXPECT_EQ(stat.name(), "a) (b");
  EXPECT_EQ(stat.number(ProcessStat::kStart), 22U);
}

TEST_F(Processes, MemoryIsProportionalOrElseResidentAndWorkersAreBelowChildren) {
  add(10, 1);
  add(11, 10);
  add(12, 11);
  write_text(file(10, "status"), "VmRSS: 900 kB\n");
  write_text(file(11, "status"), "VmRSS: 500 kB\n");
  write_text(file(12, "status"), "VmRSS: 400 kB\n");
  write_text(file(12, "smaps_rollup"),
             "55-7ff ---p 0 00:00 0 [rollup]\nRss: 400 kB\nPss: 100 kB\n");
  const MemoryOfProcesses memory = memory_of_descendants(10, root_.path());
  ASSERT_EQ(memory.size(), 2U);
  EXPECT_EQ(memory.at(11).bytes, 500U * 1024);
  EXPECT_FALSE(memory.at(11).is_worker);
  EXPECT_EQ(memory.at(12).bytes, 100U * 1024);
  EXPECT_TRUE(memory.at(12).is_worker);
}

TEST_F(Processes, ThisProcessIsAChildOfItsParent) {
  const std::vector<std::int32_t> tree = process_tree(getppid());
  EXPECT_NE(std::ranges::find(tree, getpid()), tree.end());
  EXPECT_TRUE(memory_of_descendants(getpid()).empty());
}

}  // namespace
}  // namespace penstock
