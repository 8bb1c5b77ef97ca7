// SPDX-License-Identifier: Apache-2.0
// The exchange between real processes as a user measures and chooses it: `mpirun penstock
// allreduce`, and `mpirun penstock run` with a choice of its own.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "bench/child_process.h"
#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

std::string content_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool says(const std::filesystem::path& file, const std::string& part) {
  return content_of(file).find(part) != std::string::npos;
}

/// The process that `launcher` started as that rank; 0: there is none yet.
pid_t rank_of(pid_t launcher, const std::string& rank) {
  const std::string variable = "OMPI_COMM_WORLD_RANK=" + rank + '\0';
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::istringstream status(content_of(entry.path() / "stat"));
    pid_t process = 0, parent = 0;
    std::string name, state;
    if (!(status >> process >> name >> state >> parent) || parent != launcher) continue;
    if (content_of(entry.path() / "environ").find(variable) != std::string::npos) return process;
  }
  return 0;
}

class MpirunAllReduce : public ::testing::Test {
 protected:
  MpirunAllReduce() {
    // More ranks than cores, as root: as in CI.
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                             "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"}) {
      setenv(name, "1", 1);
    }
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    setenv("OMPI_MCA_btl", "self,vader", 1);
  }

  static Words mpirun(int ranks, const Words& arguments) {
    Words words{"mpirun", "-np", std::to_string(ranks), PENSTOCK_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  static Words measuring(const Words& more) {
    Words words{"allreduce", "--model=tiny_cnn", "--num-iters=3", "--num-warmup=1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words training(const Words& more) const {
    Words words{"run",
                "--variable-update=horovod",
                "--device=cpu",
                "--model=tiny_cnn",
                "--fake-location=host",
                "--batch-size=4",
                "--num-batches=3",
                "--compute-threads=1",
                "--num-warmup-batches=1",
                "--cache-dir=" + folder_.path().native()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  TempFolder folder_;
};

TEST_F(MpirunAllReduce, EveryWayAddsRightlyAndOneRankPrints) {
  ChildProcess child({.arguments = mpirun(3, measuring({"--json"})), .timeout = 50s});
  const ChildExit& exit = child.wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const nlohmann::json result = nlohmann::json::parse(exit.output);  // which one object is
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
    ChildProcess child({.arguments = mpirun(2, measuring({"--algorithm=mpi,ring", "--json",
                                                          std::string("--wire=") + wire})),
                        .timeout = 50s});
    const ChildExit& exit = child.wait();
    EXPECT_EQ(exit.code, 0) << exit.last_words;
    const nlohmann::json result = nlohmann::json::parse(exit.output);
    EXPECT_EQ(result["rows"][0]["wire"], "fp32");
    EXPECT_EQ(result["rows"][1]["wire"], wire);
    EXPECT_TRUE(result["rows"][1]["sums_checked"].get<bool>());
    return result["rows"][1]["bytes_moved"].get<double>();
  };
  EXPECT_EQ(bytes_of("bf16"), bytes_of("fp32") / 2);
}

TEST_F(MpirunAllReduce, RanksWithOtherFlagsAreNamed) {
  Words words = mpirun(1, measuring({"--algorithm=ring"}));
  words.insert(words.end(), {":", "-np", "1", PENSTOCK_PROGRAM});
  const Words other = measuring({"--algorithm=tree"});
  words.insert(words.end(), other.begin(), other.end());
  ChildProcess child({.arguments = words, .timeout = 50s});
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.code, 2) << exit.last_words;
  EXPECT_NE(exit.last_words.find("--algorithm=tree"), std::string::npos) << exit.last_words;
}

TEST_F(MpirunAllReduce, RunsSayHowTheirRanksExchangeAndTrainAlikeByEachWay) {
  const auto result_of = [&](const Words& more) {
    Words words = training({"--json"});
    words.insert(words.end(), more.begin(), more.end());
    ChildProcess child({.arguments = mpirun(2, words), .timeout = 50s});
    const ChildExit& exit = child.wait();
    EXPECT_EQ(exit.code, 0) << exit.last_words;
    return nlohmann::json::parse(exit.output, nullptr, false);
  };
  const nlohmann::json reference = result_of({});
  // By the order of addition alone; by 16 bits, a share of it in each of few steps.
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

TEST_F(MpirunAllReduce, ARankThatStandsStillEndsAllAfterTheTimeout) {
  // In MPI_Allreduce itself, which cannot be given up, as in the others.
  for (const char* way : {"mpi", "shared-memory", "ring"}) {
    const std::filesystem::path said = folder_.path() / way;
    const std::string command = std::string("exec mpirun -np 2 ")
                                    .append(PENSTOCK_PROGRAM)
                                    .append(" allreduce --model tiny_cnn --num-iters 1000000")
                                    .append(" --timeout 2s --algorithm ")
                                    .append(way)
                                    .append(" 2> ")
                                    .append(said);
    ChildProcess child({.arguments = {"sh", "-c", command}, .timeout = 50s});
    for (int tries = 0; tries < 400 && !says(said, "take turns"); ++tries) {
      std::this_thread::sleep_for(50ms);
    }
    ASSERT_TRUE(says(said, "take turns")) << way;
    std::this_thread::sleep_for(1s);  // some iterations
    const pid_t second = rank_of(child.pid(), "1");
    ASSERT_NE(second, 0) << way;
    ASSERT_EQ(kill(second, SIGSTOP), 0);
    const ChildExit& exit = child.wait();
    EXPECT_EQ(exit.cause, ChildExit::Cause::ended) << way;
    EXPECT_EQ(exit.code, 5) << way << ": " << content_of(said);
    EXPECT_TRUE(says(said, "rank 0 waited 2 s in ")) << content_of(said);
  }
}

}  // namespace
}  // namespace penstock
