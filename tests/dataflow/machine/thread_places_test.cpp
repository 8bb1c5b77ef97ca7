// SPDX-License-Identifier: Apache-2.0
// The choice of processors for threads, on machines described by files.
#include "dataflow/machine/thread_places.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Numbers = std::vector<std::int32_t>;

TEST(CpuList, IsNumbersAndRanges) {
  EXPECT_EQ(parse_cpu_list("0", "x"), (Numbers{0}));
  EXPECT_EQ(parse_cpu_list("0-3,8", "x"), (Numbers{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("9+0-1", "x"), (Numbers{9, 0, 1}));
  for (const char* wrong : {"", ",", "1,", "a", "-1", "1-", "3-1", "1,1", "0-4,2", "1--2", "70000",
                            "0-99999999999999999999", "1 2", "auto2"}) {
    EXPECT_TRUE(says(thrown_by<ConfigError>([&] { parse_cpu_list(wrong, "the list"); }),
                     "the list is '" + std::string(wrong) + "'"))
        << wrong;
  }
}

/// Two nodes of two cores with two processors each, numbered as most firmware does: first the first
/// processor of every core, then the second ones.
class PlacesTest : public testing::Test {
 protected:
  PlacesTest() {
    const auto write = [&](const std::string& name, const std::string& text) {
      write_text(system_ / name, text + "\n");
    };
    write("node/node0/cpulist", "0-1,4-5");
    write("node/node1/cpulist", "2-3,6-7");
    write("node/possible", "0-1");
    for (int cpu = 0; cpu < 8; ++cpu) {
      write("cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
            std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4));
    }
  }

  std::vector<Cpu> topology(const Numbers& cpus = {0, 1, 2, 3, 4, 5, 6, 7}) const {
    return read_cpu_topology(cpus, system_.path());
  }
  Numbers choose(std::int32_t threads, const PlaceChoice& choice,
                 const Numbers& allowed = {0, 1, 2, 3, 4, 5, 6, 7}) const {
    Numbers ids;
    for (const Cpu& cpu : choose_places(threads, topology(allowed), choice)) ids.push_back(cpu.id);
    return ids;
  }
  std::string refusal(const PlaceChoice& choice, const Numbers& allowed) const {
    return thrown_by<ConfigError>([&] { choose(4, choice, allowed); });
  }

  TempFolder system_;
};

TEST_F(PlacesTest, NodesAndCoresAreRead) {
  const std::vector<Cpu> cpus = topology();
  EXPECT_EQ(cpus[1], (Cpu{1, 0, 1}));
  EXPECT_EQ(cpus[5], (Cpu{5, 0, 1}));
  EXPECT_EQ(cpus[6], (Cpu{6, 1, 2}));
  const TempFolder nothing;
  EXPECT_EQ(read_cpu_topology({3}, nothing.path()), (std::vector<Cpu>{{3, 0, 3}}));
}

TEST_F(PlacesTest, AutoTakesNodesInTurnAndWholeCoresFirst) {
  EXPECT_EQ(choose(8, {.cores = "auto", .nodes = ""}), (Numbers{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(choose(3, {.cores = "auto", .nodes = ""}), (Numbers{0, 2, 1}));
  EXPECT_EQ(choose(100, {.cores = "auto", .nodes = ""}).size(), 8U);
  // Of node 1, the process may use only one core.
  EXPECT_EQ(choose(8, {.cores = "auto", .nodes = ""}, {0, 1, 3, 4, 7}), (Numbers{0, 3, 1, 7, 4}));
}

TEST_F(PlacesTest, NodesCanBeChosen) {
  EXPECT_EQ(choose(3, {.cores = "", .nodes = "1"}), (Numbers{2, 3, 6}));
  EXPECT_EQ(choose(3, {.cores = "auto", .nodes = "0+1"}), (Numbers{0, 2, 1}));
  EXPECT_TRUE(says(refusal({.cores = "", .nodes = "2"}, {0, 1}), "expected some of 0"));
  EXPECT_TRUE(says(refusal({.cores = "auto", .nodes = "0+1"}, {0, 1}), "node 1 has no processor"));
}

TEST_F(PlacesTest, AListIsTakenInItsOrder) {
  EXPECT_EQ(choose(3, {.cores = "7+0-3", .nodes = ""}), (Numbers{7, 0, 1}));
  EXPECT_EQ(choose(9, {.cores = "7+0-3", .nodes = ""}).size(), 5U);
  EXPECT_EQ(choose(9, {.cores = "7+0-3", .nodes = "1"}), (Numbers{7, 2, 3}));
  EXPECT_TRUE(says(refusal({.cores = "0-2", .nodes = ""}, {0, 2, 5}),
                   "may not run on 1; expected some of 0, 2, 5"));
}

TEST_F(PlacesTest, NothingIsChosenUnasked) { EXPECT_TRUE(choose(4, {}).empty()); }

TEST_F(PlacesTest, TheMapSaysThreadsCoresAndNodes) {
  EXPECT_EQ(describe_places(choose_places(3, topology(), {.cores = "auto", .nodes = ""})),
            "thread 0 on core 0 (node 0), 1 on 2 (1), 2 on 1 (0)");
}

TEST(PinnedThread, KeepsAThreadOnItsProcessorForAsLongAsItLives) {
  const Numbers allowed = allowed_cpus();
  ASSERT_FALSE(allowed.empty());
  const Cpu last = read_cpu_topology({allowed.back()}).front();
  {
    const PinnedThread pinned(last);
    EXPECT_EQ(allowed_cpus(), (Numbers{last.id}));
    EXPECT_EQ(sched_getcpu(), last.id);
  }
  EXPECT_EQ(allowed_cpus(), allowed);
}

}  // namespace
}  // namespace penstock
