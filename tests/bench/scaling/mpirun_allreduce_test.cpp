// SPDX-License-Identifier: Apache-2.0
// The exchange between real processes: `mpirun penstock allreduce`, and `mpirun penstock run` with
// a chosen algorithm.
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/entry_names.h"
#include "tests/support/mpirun_fixture.h"
#include "tests/support/thrown_by.h"
#include "trainer/backend.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class MpirunAllReduce : public MpirunFixture {
 protected:
  static Words measuring(const Words& more) {
    return joined(
        {PENSTOCK_PROGRAM, "allreduce", "--model=tiny_cnn", "--num-iters=3", "--num-warmup=1"},
        more);
  }
  Words training(const Words& more) const {
    return joined(
        {PENSTOCK_PROGRAM, "run", "--variable-update=horovod", "--device=cpu", "--model=tiny_cnn",
         "--fake-location=host", "--batch-size=4", "--num-batches=3", "--compute-threads=1",
         "--num-warmup-batches=1", "--cache-dir=" + folder_.path().native()},
        more);
  }
};

TEST_F(MpirunAllReduce, EveryWayAddsRightlyAndOneRankPrints) {
  const ChildExit exit = exit_of(3, measuring({"--json"}));
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const nlohmann::json result = nlohmann::json::parse(exit.output);  // exactly one object
  EXPECT_EQ(result["ranks"], 3);
  EXPECT_EQ(result["ranks_are"], "processes");
  std::set<std::string> names;
  for (const auto& row : result["rows"]) {
    names.insert(row["algorithm"]);
    EXPECT_TRUE(row["sums_checked"].get<bool>()) << row;
    EXPECT_EQ(row["iterations"], 3) << row;
    EXPECT_GT(row["speed_against_mpi"]["median"], 0) << row;
    EXPECT_GT(row["share_of_bound"]["median"], 0) << row;
  }
  for (const char* name : {"mpi", "mpi-nonblocking", "shared-memory", "ring", "tree"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST_F(MpirunAllReduce, HalfTheBytesMoveOn16BitsButForMpi) {
  const auto bytes_of = [&](const char* wire) {
    const ChildExit exit =
        exit_of(2, measuring({"--algorithm=mpi,ring", "--json", std::string("--wire=") + wire}));
    EXPECT_EQ(exit.code, 0) << exit.last_words;
    const nlohmann::json result = nlohmann::json::parse(exit.output);
    EXPECT_EQ(result["rows"][0]["wire"], "fp32");
    EXPECT_EQ(result["rows"][1]["wire"], wire);
    EXPECT_TRUE(result["rows"][1]["sums_checked"].get<bool>());
    return result["rows"][1]["bytes_moved"].get<double>();
  };
  EXPECT_EQ(bytes_of("bf16"), bytes_of("fp32") / 2);
}

TEST_F(MpirunAllReduce, RanksThatAreBoundToCoresOfTheirOwnShareNone) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core cannot be divided";
  const auto says_shared = [&](const char* binding, int ranks) {
    const ChildExit exit =
        penstock::exit_of(joined({"mpirun", "--bind-to", binding, "-np", std::to_string(ranks)},
                                 measuring({"--algorithm=ring"})));
    EXPECT_EQ(exit.code, 0) << exit.last_words;
    return exit.output.find("ranks share") != std::string::npos;
  };
  EXPECT_FALSE(says_shared("core", 2));
  const int too_many = static_cast<int>(std::thread::hardware_concurrency()) + 1;
  EXPECT_TRUE(too_many > 9 || says_shared("none", too_many));
}

TEST_F(MpirunAllReduce, RanksWithOtherFlagsAreNamed) {
  if (launcher_is_open_mpi_5()) GTEST_SKIP() << "mpirun of Open MPI 5.0 crashes if it gets a ':'";
  const Words first = joined({"mpirun", "-np", "1"}, measuring({"--algorithm=ring"}));
  const ChildExit exit =
      penstock::exit_of(joined(joined(first, {":", "-np", "1"}), measuring({"--algorithm=tree"})));
  EXPECT_EQ(exit.code, 2) << exit.last_words;
  EXPECT_TRUE(says(exit.last_words, "--algorithm=tree"));
}

TEST_F(MpirunAllReduce, RunsSayHowTheirRanksExchangeAndTrainAlikeByEachWay) {
  if (match_entry(backend_table(), "cpu") == nullptr) GTEST_SKIP() << "built without oneDNN";
  const auto result_of = [&](const Words& more) {
    const ChildExit exit = exit_of(2, joined(training({"--json"}), more));
    EXPECT_EQ(exit.code, 0) << exit.last_words;
    return nlohmann::json::parse(exit.output, nullptr, false);
  };
  const nlohmann::json reference = result_of({});
  // Losses differ by the order of addition; with 16 bits by a share in each of few steps.
  const auto expect_alike = [&](const nlohmann::json& result, const std::string& how, double off) {
    const std::string expected = "ranks exchange through " + how;
    bool said = false;
    for (const auto& note : result["notes"]) said = said || note == expected;
    EXPECT_TRUE(said) << result["notes"];
    ASSERT_EQ(result["losses"].size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      const double loss = reference["losses"][i];
      EXPECT_NEAR(result["losses"][i].get<double>(), loss, off * loss) << how << ", step " << i;
    }
  };
  expect_alike(reference, "shared memory of 2 processes, through fp32", 0);
  expect_alike(result_of({"--all-reduce-spec=pscpu:1k:xring#2"}),
               "gather-add up to 1024 elements, ring in 2 pieces beyond, in messages between "
               "processes of fp32",
               1e-4);
  const nlohmann::json compact = result_of({"--fp16-allreduce"});
  expect_alike(compact, "shared memory of 2 processes, through fp16", 1e-2);
  EXPECT_EQ(compact["counters"]["nonfinite_gradient_sums"], 0);
}

class MpirunAllReduceOneWay : public MpirunFixture,
                              public ::testing::WithParamInterface<const char*> {
 protected:
  static double cpu_seconds_of(pid_t process) {
    const std::string stat = content_of("/proc/" + std::to_string(process) + "/stat");
    std::istringstream fields(stat.substr(stat.rfind(')') + 2));
    std::string skipped;
    for (int field = 3; field < 14; ++field) fields >> skipped;
    double user = 0, system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
};

/// Also in MPI_Allreduce itself, which cannot be cancelled.
TEST_P(MpirunAllReduceOneWay, ARankThatStandsStillEndsAllAfterTheTimeout) {
  start(joined({"mpirun", "-np", "2"},
               rank_of({PENSTOCK_PROGRAM, "allreduce", "--model=tiny_cnn", "--num-iters=1000000",
                        "--timeout=3s", std::string("--algorithm=") + GetParam()})));
  ASSERT_TRUE(await_text(left_by(0, "err"), "take turns"));
  const Ranks all = ranks();
  ASSERT_TRUE(all.contains(1));
  const double before = cpu_seconds_of(all.at(1));
  // After some iterations, of milliseconds each.
  ASSERT_TRUE(await([&] { return cpu_seconds_of(all.at(1)) > before + 0.1; }));
  ASSERT_EQ(kill(all.at(1), SIGSTOP), 0);
  const bool returned = await_end();
  EXPECT_TRUE(!returned || exit_.code == 5) << exit_.code;
  EXPECT_EQ(content_of(left_by(0, "code")), "5\n");
  EXPECT_EQ(lines_with("rank 0 waited 3 s in ").size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Ways, MpirunAllReduceOneWay,
                         ::testing::Values("mpi", "shared-memory", "ring"),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace penstock
