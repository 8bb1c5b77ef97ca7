// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/kernel_file.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"

namespace penstock {
namespace {

TEST(KernelFile, HasFieldsOfBothForms) {
  const TempFolder root;
  write_text(root / "file", "VmRSS:\t  12 kB\nVmRSSX: 1\nnr_throttled 7\nempty:\nlimit max\n");
  const KernelFile file(root / "file");
  EXPECT_EQ(file.value("VmRSS"), 12U);
  EXPECT_EQ(file.value("nr_throttled"), 7U);
  EXPECT_EQ(file.field("empty"), "");
  EXPECT_FALSE(file.value("empty"));
  EXPECT_EQ(file.field("limit"), "max");
  EXPECT_FALSE(file.value("limit"));
  EXPECT_FALSE(file.field("VmR")) << "the beginning of a key is no key";
  EXPECT_EQ(file.first_line(), "VmRSS:\t  12 kB");
}

TEST(KernelFile, SaysWhyItHasNoText) {
  const TempFolder root;
  const KernelFile missing(root / "missing"), folder(root.path());
  EXPECT_EQ(missing.error, ENOENT);
  EXPECT_EQ(folder.error, EISDIR);
  EXPECT_FALSE(missing.number());
  EXPECT_FALSE(missing.first_line());
}

TEST(KernelFile, RefusesNumbersThatDoNotFit) {
  const TempFolder root;
  write_text(root / "a", "18446744073709551615\n");
  write_text(root / "b", "18446744073709551616\n");
  write_text(root / "c", "-1\n");
  EXPECT_EQ(KernelFile(root / "a").number(), UINT64_MAX);
  EXPECT_FALSE(KernelFile(root / "b").number());
  EXPECT_FALSE(KernelFile(root / "c").number());
}

TEST(KernelFile, ReadsPressure) {
  const TempFolder root;
  write_text(root / "io", "some avg10=1.00 avg60=0 avg300=0 total=42\nfull avg10=0 total=7\n");
  EXPECT_EQ(KernelFile(root / "io").pressure_us(), 42U);
  EXPECT_EQ(KernelFile(root / "io").pressure_us("full"), 7U);
  EXPECT_FALSE(KernelFile(root / "none").pressure_us());
}

TEST(ControlGroups, GoFromTheRootToTheGroupOfTheProcess) {
  const TempFolder root;
  write_text(root / "proc/7/cgroup", "5:cpu,cpuacct:/z\n0::/a/b\n");
  const std::filesystem::path mounted = root / "sys/fs/cgroup";
  const auto groups = control_groups("7", "cpu", root.path());
  ASSERT_EQ(groups.size(), 5U);
  EXPECT_EQ(groups[1].folder, mounted / "cpu/z");
  EXPECT_EQ(groups[2].folder, mounted);
  EXPECT_EQ(groups[4].folder, mounted / "a/b");
  EXPECT_EQ(groups[4].version, 2);
}

TEST(ControlGroups, StayBelowTheRootAndFindVersion2BesideVersion1) {
  const TempFolder root;
  write_text(root / "proc/7/cgroup", "0::/../../a\n");
  std::filesystem::create_directories(root / "sys/fs/cgroup/unified");
  const auto groups = control_groups("7", "cpu", root.path());
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[1].folder, root / "sys/fs/cgroup/unified");
}

TEST(CpuQuota, IsTheSmallestOfAllGroups) {
  const TempFolder root;
  EXPECT_FALSE(cpu_quota("7", root.path()));
  write_text(root / "proc/7/cgroup", "1:cpu:/z\n0::/a\n");
  write_text(root / "sys/fs/cgroup/cpu/z/cpu.cfs_quota_us", "-1\n");
  write_text(root / "sys/fs/cgroup/cpu/z/cpu.cfs_period_us", "100000\n");
  write_text(root / "sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_FALSE(cpu_quota("7", root.path()));
  write_text(root / "sys/fs/cgroup/a/cpu.max", "350000 100000\n");
  EXPECT_EQ(cpu_quota("7", root.path()), 3.5);
  write_text(root / "sys/fs/cgroup/cpu/z/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(cpu_quota("7", root.path()), 1.5);
}

}  // namespace
}  // namespace penstock
