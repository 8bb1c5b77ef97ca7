// SPDX-License-Identifier: Apache-2.0
// `mpirun penstock run` as a user runs it: real processes, and what becomes of all of them when one
// fails.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
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

/// Processes whose arguments and environment contain these texts, by the rank that Open MPI gave
/// them.
std::map<std::string, pid_t> ranks_with(const std::string& argument) {
  std::map<std::string, pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (content_of(entry.path() / "cmdline").find(argument) == std::string::npos) continue;
    const std::string environment = content_of(entry.path() / "environ");
    const std::string name = "OMPI_COMM_WORLD_RANK=";
    const std::size_t at = environment.find(name);
    if (at == std::string::npos) continue;
    found[environment.c_str() + at + name.size()] = std::stoi(entry.path().filename());
  }
  return found;
}

class Mpirun : public ::testing::Test {
 protected:
  Mpirun() {
    // More ranks than cores, as root: as in CI.
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                             "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"}) {
      setenv(name, "1", 1);
    }
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    setenv("OMPI_MCA_btl", "self,vader", 1);
  }

  /// What a rank runs: a short training that computes nothing, marked so that it can be found.
  Words rank(const Words& more) const {
    Words words{PENSTOCK_PROGRAM,
                "run",
                "--variable-update=horovod",
                "--fake-location=host",
                "--model=trivial",
                "--batch-size=4",
                "--num-warmup-batches=2"};
    words.insert(words.end(), more.begin(), more.end());
    words.push_back("--cache-dir=" + folder_.path().native());
    return words;
  }
  static Words mpirun(int ranks, const Words& program) {
    Words words{"mpirun", "-np", std::to_string(ranks)};
    words.insert(words.end(), program.begin(), program.end());
    return words;
  }
  std::size_t left() const { return ranks_with(folder_.path().native()).size(); }
  std::map<std::string, pid_t> running_ranks(std::size_t count) const {
    for (int tries = 0; tries < 200; ++tries) {
      std::map<std::string, pid_t> ranks = ranks_with(folder_.path().native());
      if (ranks.size() == count) return ranks;
      std::this_thread::sleep_for(50ms);
    }
    return {};
  }

  TempFolder folder_;
};

TEST_F(Mpirun, ThreeRanksGiveOneResult) {
  ChildProcess child({.arguments = mpirun(3, rank({"--device=emulated:img_per_s=400",
                                                   "--num-batches=30", "--json"})),
                      .timeout = 50s});
  const ChildExit& exit = child.wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const nlohmann::json result = nlohmann::json::parse(exit.output);
  EXPECT_EQ(result["config"]["num_processes"], 3);
  EXPECT_EQ(result["images_per_step"], 12);
  ASSERT_EQ(result["ranks"].size(), 3U);
  EXPECT_EQ(result["step_ms"].size(), 30U);
  // Ranks step together, each at 400 images a second and no faster.
  const double rate = result["img_per_s"];
  EXPECT_GT(rate, 0);
  EXPECT_LT(rate, 1201);
  double images = 0, longest = 0;
  for (const auto& rank : result["ranks"]) {
    images += rank["img_per_s"].get<double>() * rank["window_s"].get<double>();
    longest = std::max(longest, rank["window_s"].get<double>());
  }
  EXPECT_NEAR(images, 360, 1e-6);
  EXPECT_NEAR(rate, images / longest, 1e-9);
}

TEST_F(Mpirun, PrintsOneTableAndALineForEachRank) {
  ChildProcess child({.arguments = mpirun(2, rank({"--num-batches=5"})), .timeout = 50s});
  const ChildExit& exit = child.wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const std::size_t total = exit.output.find("total images/sec: ");
  ASSERT_NE(total, std::string::npos) << exit.output;
  EXPECT_EQ(exit.output.find("total images/sec: ", total + 1), std::string::npos) << exit.output;
  EXPECT_NE(exit.output.find("8 global"), std::string::npos) << exit.output;
  EXPECT_NE(exit.output.find("\nrank 1 on "), std::string::npos) << exit.output;
}

TEST_F(Mpirun, RanksWithOtherFlagsAreNamedBeforeAnythingIsMeasured) {
  Words words = mpirun(1, rank({"--num-batches=5"}));
  const Words other = rank({"--num-batches=6"});
  words.insert(words.end(), {":", "-np", "1"});
  words.insert(words.end(), other.begin(), other.end());
  ChildProcess child({.arguments = words, .timeout = 50s});
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.code, 2) << exit.last_words;
  EXPECT_NE(exit.last_words.find("--num-batches=6"), std::string::npos) << exit.last_words;
  EXPECT_EQ(left(), 0U);
}

TEST_F(Mpirun, ARankThatIsKilledEndsAll) {
  ChildProcess child(
      {.arguments = mpirun(3, rank({"--num-batches=100000", "--device=emulated:img_per_s=40"})),
       .timeout = 50s});
  const std::map<std::string, pid_t> ranks = running_ranks(3);
  ASSERT_EQ(ranks.size(), 3U);
  std::this_thread::sleep_for(2s);  // MPI_Init has a longer patience of its own
  ASSERT_EQ(kill(ranks.at("2"), SIGKILL), 0);
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.cause, ChildExit::Cause::ended);
  EXPECT_NE(exit.code, 0);
  EXPECT_EQ(left(), 0U);
}

TEST_F(Mpirun, ARankThatStandsStillEndsAllAfterTheTimeout) {
  ChildProcess child({.arguments = mpirun(2, rank({"--num-batches=100000", "--timeout=3s",
                                                   "--device=emulated:img_per_s=40"})),
                      .timeout = 50s});
  const std::map<std::string, pid_t> ranks = running_ranks(2);
  ASSERT_EQ(ranks.size(), 2U);
  std::this_thread::sleep_for(1s);  // MPI_Init has a longer patience of its own
  ASSERT_EQ(kill(ranks.at("1"), SIGSTOP), 0);
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.cause, ChildExit::Cause::ended);
  EXPECT_EQ(exit.code, 5) << exit.last_words;
  EXPECT_NE(exit.last_words.find("rank 0 waited 3 s in the exchange"), std::string::npos)
      << exit.last_words;
  EXPECT_EQ(left(), 0U);
}

TEST_F(Mpirun, AnInterruptionSavesWhatWasMeasured) {
  const std::filesystem::path out = folder_.path() / "result.json";
  ChildProcess child({.arguments = mpirun(2, rank({"--num-batches=100000", "--out=" + out.native(),
                                                   "--device=emulated:img_per_s=40"})),
                      .timeout = 50s});
  ASSERT_EQ(running_ranks(2).size(), 2U);
  std::this_thread::sleep_for(2s);  // some steps
  ASSERT_EQ(kill(child.pid(), SIGINT), 0);
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.cause, ChildExit::Cause::ended);
  const nlohmann::json result = nlohmann::json::parse(content_of(out), nullptr, false);
  ASSERT_FALSE(result.is_discarded()) << exit.output << exit.last_words;
  EXPECT_EQ(result["status"], "partial");
  EXPECT_EQ(left(), 0U);
}

}  // namespace
}  // namespace penstock
