// SPDX-License-Identifier: Apache-2.0
// Pages of chosen sizes, their NUMA nodes, and the kernel's text about them.
#include "dataflow/machine/memory_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace penstock {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::uint64_t huge_bytes_of(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  std::ifstream smaps("/proc/self/smaps");
  return huge_bytes(smaps, begin, begin + memory.size());
}

TEST(HugeBytes, AreTheBytesOfOverlappingMappings) {
  const std::string text =
      "00001000-00401000 rw-p 00000000 00:00 0   [heap]\n"
      "Rss:                4096 kB\n"
      "AnonHugePages:      2048 kB\n"
      "Private_Hugetlb:       0 kB\n"
      "00600000-00e00000 rw-p 00000000 00:0f 7   /anon_hugepage (deleted)\n"
      "AnonHugePages:         0 kB\n"
      "Private_Hugetlb:    8192 kB\n"
      "VmFlags: rd wr mr mw me ht\n";
  const auto bytes = [&](std::uintptr_t begin, std::uintptr_t end) {
    std::istringstream smaps(text);
    return huge_bytes(smaps, begin, end);
  };
  EXPECT_EQ(bytes(0x1000, 0x401000), 2 * kMiB);
  EXPECT_EQ(bytes(0x1000, 0x2000), 0x1000U) << "no more than is asked about";
  EXPECT_EQ(bytes(0x600000, 0x800000), 2 * kMiB);
  EXPECT_EQ(bytes(0, 0x1000000), 10 * kMiB);
  EXPECT_EQ(bytes(0x401000, 0x600000), 0U);
  std::istringstream nonsense("zz-00\nAnonHugePages: many kB\n\n-");
  EXPECT_EQ(huge_bytes(nonsense, 0, ~std::uintptr_t{0}), 0U);
}

TEST(AllocatePages, SmallOnesAreZerosAndNeverHuge) {
  const Buffer buffer = allocate_pages(5 * kMiB + 3, PageChoice::small);
  ASSERT_EQ(buffer.bytes().size(), 5 * kMiB + 3);
  EXPECT_TRUE(std::ranges::all_of(buffer.bytes(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(huge_bytes_of(buffer.bytes()), 0U);
}

TEST(AllocatePages, ExplicitOnesAreHugeOrRefused) {
  const Buffer buffer = allocate_pages(3 * kMiB, PageChoice::explicit_huge);
  if (buffer.bytes().empty()) GTEST_SKIP() << "no huge pages are set apart (vm.nr_hugepages)";
  std::memset(buffer.bytes().data(), 1, buffer.bytes().size());
  EXPECT_EQ(huge_bytes_of(buffer.bytes()), 3 * kMiB);
}

TEST(AllocatePages, MoreThanThereIsIsRefusedRatherThanFatal) {
  EXPECT_TRUE(allocate_pages(std::size_t{1} << 46, PageChoice::explicit_huge).bytes().empty());
}

TEST(MoveToNode, PagesLieOnTheNodeThatWasAskedFor) {
  const Buffer buffer = allocate_pages(kMiB, PageChoice::small);
  const std::int32_t node = node_of(buffer.bytes());
  if (node < 0) GTEST_SKIP() << "the kernel does not tell where pages lie";
  if (!move_to_node(buffer.bytes(), node)) GTEST_SKIP() << "mbind: " << std::strerror(errno);
  EXPECT_EQ(node_of(buffer.bytes()), node);
}

TEST(MoveToNode, NodesThatThereAreNotAreRefused) {
  const Buffer buffer = allocate_pages(kMiB, PageChoice::small);
  EXPECT_FALSE(move_to_node(buffer.bytes(), -1));
  EXPECT_FALSE(move_to_node(buffer.bytes(), 1023));
  EXPECT_FALSE(move_to_node(buffer.bytes(), 100000));
}

}  // namespace
}  // namespace penstock
