// SPDX-License-Identifier: Apache-2.0
// A rank that is killed or stopped, at any time from joining to the end: it is named once, all
// ranks end with exit code 5, and measured results are kept.
#include <fcntl.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "tests/support/mpirun_fixture.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

class MpirunRankFaults : public MpirunFixture {
 protected:
  /// `first`: what the shell of each rank does before it runs the program.
  Words run_of(int ranks, const Words& program, const std::string& first = "") const {
    return joined({"mpirun", "-np", std::to_string(ranks)}, rank_of(program, first));
  }

  /// Checks that all ranks ended, that the only line about a loss contains `line`, and that all
  /// ranks except `victim` exit with 5.
  void expect_named(int victim, const std::string& line, int size = 3) {
    await_end();
    const std::vector<std::string> lines = lines_with("was lost");
    ASSERT_EQ(lines.size(), 1U) << ::testing::PrintToString(lines);
    EXPECT_EQ(lines[0].find("penstock: rank " + std::to_string(victim) + " (host "), 0U)
        << lines[0];
    EXPECT_TRUE(says(lines[0], line));
    for (int rank = 0; rank < size; ++rank) {
      if (rank != victim) expect_exit_5(rank);
    }
  }

  void expect_exit_5(int rank) const {
    const std::string code = content_of(left_by(rank, "code"));
    if (code.empty() && launcher_cuts_ranks_off()) return;
    EXPECT_EQ(code, "5\n") << "rank " << rank;
  }

  void expect_partial(int saver) {
    const Json json = Json::parse(content_of(result()), nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << content_of(result());
    EXPECT_EQ(json["status"], "partial");
    EXPECT_EQ(json["exit_code"], 5);
    EXPECT_TRUE(says(json["reason"].get<std::string>(), "was lost while measuring"));
    EXPECT_GT(json["step_ms"].size(), 0U);
    EXPECT_GT(json["img_per_s"], 0);
    const std::string where = "results of rank " + std::to_string(saver) + " so far are in " +
                              result().native() + ", marked partial";
    EXPECT_EQ(lines_with(where).size(), 1U);
    EXPECT_FALSE(std::filesystem::exists(steps()));
  }
};

/// Steps of a tenth of a second.
const std::vector<std::string> kLong{"--device=emulated:img_per_s=40", "--batch-size=4",
                                     "--num-batches=100000", "--timeout=4s"};
/// Steps of several seconds.
const std::vector<std::string> kSlow{"--device=emulated:img_per_s=1", "--batch-size=20",
                                     "--num-batches=10", "--timeout=4s"};

TEST_F(MpirunRankFaults, ARankThatNeverJoins) {
  start(run_of(3, training(kLong), "[ $OMPI_COMM_WORLD_RANK = 2 ] && kill -STOP $$; "));
  await_end();
  const std::vector<std::string> lines = lines_with("was lost");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0],
            "penstock: rank 2 was lost while joining the other ranks: it did not join within 8 s; "
            "check that it was started, and that it is not stopped");
  for (const int rank : {0, 1}) expect_exit_5(rank);
}

class MpirunRankFaultsBySignal : public MpirunRankFaults,
                                 public ::testing::WithParamInterface<int> {
 protected:
  /// How the message describes the loss of the victim.
  static std::string how() {
    return GetParam() == SIGKILL ? ": its connection closed" : ": silent for ";
  }
  void strike(int rank) {
    const Ranks all = ranks();
    ASSERT_TRUE(all.contains(rank));
    ASSERT_EQ(kill(all.at(rank), GetParam()), 0);
  }
};

TEST_P(MpirunRankFaultsBySignal, WhileJoining) {
  // The others wait in MPI_Init for rank 1, which never calls it.
  start(run_of(3, training(kLong), "[ $OMPI_COMM_WORLD_RANK = 1 ] && exec sleep 60; "));
  ASSERT_TRUE(await_text(left_by(0, "err"), "waiting for rank 1 to join (2 of 3 are here)"));
  strike(2);
  await_end();
  const std::vector<std::string> lines = lines_with("rank 2 (host ");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(says(lines[0], "was lost while joining the other ranks" + how()));
  expect_exit_5(0);
}

TEST_P(MpirunRankFaultsBySignal, InTheFirstStep) {
  start(run_of(3, training(kSlow)));
  ASSERT_TRUE(await_text(left_by(0, "out"), "Running warm up"));
  strike(2);
  expect_named(2, "was lost in the first step" + how());
}

TEST_P(MpirunRankFaultsBySignal, WhileMeasuring) {
  start(run_of(3, training(kLong)));
  ASSERT_TRUE(await_text(steps(), "\"step\":5"));
  strike(2);
  expect_named(2, "was lost while measuring, at step ");
  EXPECT_EQ(lines_with(how()).size(), 1U);
  expect_partial(0);
}

TEST_P(MpirunRankFaultsBySignal, Rank0WhileMeasuring) {
  start(run_of(3, training(kLong)));
  ASSERT_TRUE(await_text(steps(), "\"step\":5"));
  strike(0);
  expect_named(0, "was lost while measuring, at step ");
  EXPECT_EQ(lines_with(how()).size(), 1U);
  const Json json = Json::parse(content_of(result()), nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["status"], "partial");
}

TEST_P(MpirunRankFaultsBySignal, AtTheEnd) {
  // Rank 0 has its result, and blocks while printing it, because there is no reader.
  const std::filesystem::path pipe = left_by(0, "out");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  fcntl(reader, F_SETPIPE_SZ, 4096);
  start(run_of(3, training({"--device=emulated:img_per_s=4000", "--batch-size=4",
                            "--num-batches=1000", "--timeout=4s", "--json"})));
  ASSERT_TRUE(await_text(result(), "\"status\": \"ok\""));
  strike(2);
  expect_named(2, "was lost at the end" + how());
  EXPECT_TRUE(says(content_of(result()), "\"status\": \"ok\""));
  close(reader);
}

INSTANTIATE_TEST_SUITE_P(Signals, MpirunRankFaultsBySignal, ::testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& each) {
                           return each.param == SIGKILL ? "killed" : "stopped";
                         });

}  // namespace
}  // namespace penstock
