// SPDX-License-Identifier: Apache-2.0
// `mpirun penstock run` with every update, as a user runs it: real training on the CPU, one or two
// devices in each process, and a peer that stands still.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "bench/child_process.h"
#include "tests/support/entry_names.h"
#include "tests/support/temp_folder.h"
#include "tests/support/update_definitions.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;
using Json = nlohmann::json;

constexpr int kWarmUp = 2, kSteps = 12;

class MpirunUpdates : public ::testing::Test {
 protected:
  MpirunUpdates() {
    // More ranks than cores, as root: as in CI.
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                             "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"}) {
      setenv(name, "1", 1);
    }
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    setenv("OMPI_MCA_btl", "self,vader", 1);
  }

  Words mpirun(int processes, const std::string& update, const Words& more) const {
    Words words{"mpirun",
                "-np",
                std::to_string(processes),
                PENSTOCK_PROGRAM,
                "run",
                "--variable-update=" + update,
                "--fake-location=cpu",
                "--model=trivial_cifar10",
                "--image-size=8",
                "--batch-size=2",
                fmt::format("--num-warmup-batches={}", kWarmUp),
                "--cache-dir=" + folder_.path().native()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Json run(int processes, const std::string& update, const Words& more) const {
    Words words = mpirun(processes, update, more);
    for (const char* const word : {"--device=cpu", "--compute-threads=1", "--json"}) {
      words.emplace_back(word);
    }
    words.push_back(fmt::format("--num-batches={}", kSteps));
    ChildProcess child({.arguments = words, .timeout = 50s});
    const ChildExit& exit = child.wait();
    EXPECT_EQ(exit.code, 0) << update << ": " << exit.last_words;
    return Json::parse(exit.output, nullptr, false);
  }
  static void expect_trained(const Json& result, const std::string& update) {
    ASSERT_FALSE(result.is_discarded()) << update;
    EXPECT_TRUE(result["status"] == "ok" || result["status"] == "draining") << update;
    ASSERT_EQ(result["losses"].size(), std::size_t{kSteps}) << update;
    for (const auto& loss : result["losses"]) EXPECT_GT(loss.get<double>(), 0) << update;
  }
  static std::int64_t reads_of(const Json& result) {
    std::int64_t reads = 0;
    for (const auto& [name, count] : result["counters"].items()) {
      if (!name.starts_with("reads_")) continue;
      EXPECT_GT(count.get<std::int64_t>(), 0) << name;
      reads += count.get<std::int64_t>();
    }
    return reads;
  }

  TempFolder folder_;
};

class MpirunUpdate : public MpirunUpdates, public ::testing::WithParamInterface<DefinedUpdate> {};

TEST_P(MpirunUpdate, TrainsOverProcesses) {
  const Json result = run(2, GetParam().update, {});
  expect_trained(result, GetParam().update);
  EXPECT_EQ(result["config"]["num_processes"], 2);
  EXPECT_EQ(result["images_per_step"], 4);
  EXPECT_EQ(result["ranks"].size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(All, MpirunUpdate, ::testing::ValuesIn(defined_updates()),
                         [](const auto& test) { return test_name(test.param.update); });

TEST_F(MpirunUpdates, SeveralDevicesOfEachProcessTrainTogether) {
  const Json result = run(2, "replicated",
                          {"--num-gpus=2", "--gradient-reduction=mean-sum", "--fake-location=gpu"});
  expect_trained(result, "replicated");
  EXPECT_EQ(result["images_per_step"], 8);
  const Json pairs = run(2, "async-sgd", {"--num-gpus=2"});
  expect_trained(pairs, "async-sgd");
  EXPECT_EQ(reads_of(pairs), 4 * (kWarmUp + kSteps));
}

TEST_F(MpirunUpdates, ReadsOfPairAveragingAreCountedOverAllRanks) {
  for (const char* const update : {"async-sgd", "async-sgd:prefetch=true,peer=kungfu"}) {
    const Json result = run(3, update, {});
    expect_trained(result, update);
    EXPECT_EQ(reads_of(result), 3 * (kWarmUp + kSteps)) << update;
    EXPECT_EQ(result["counters"]["model_requests_refused"], 0) << update;
  }
}

TEST_F(MpirunUpdates, HorovodHasOneDeviceInEachProcess) {
  const Words words = mpirun(2, "horovod", {"--num-gpus=2", "--num-batches=5"});
  ChildProcess child({.arguments = words, .timeout = 50s});
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.code, 2);
  EXPECT_NE(exit.last_words.find("use replicated"), std::string::npos) << exit.last_words;
}

TEST_F(MpirunUpdates, APeerThatStandsStillIsNamed) {
  const Words words = mpirun(
      2, "async-sgd", {"--num-batches=100000", "--timeout=3s", "--device=emulated:img_per_s=400"});
  ChildProcess child({.arguments = words, .timeout = 50s});
  const auto content_of = [](const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  };
  // Rank 1 has a socket of its model server once the run is being wired.
  pid_t rank_1 = 0;
  for (int tries = 0; tries < 400 && rank_1 == 0; ++tries) {
    std::istringstream sockets(content_of("/proc/net/unix"));
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (content_of(entry.path() / "cmdline").find(folder_.path().native()) == std::string::npos ||
          content_of(entry.path() / "environ").find("OMPI_COMM_WORLD_RANK=1") ==
              std::string::npos) {
        continue;
      }
      if (sockets.str().find("penstock-models-" + name) != std::string::npos) {
        rank_1 = std::stoi(name);
      }
    }
    std::this_thread::sleep_for(50ms);
  }
  ASSERT_NE(rank_1, 0);
  std::this_thread::sleep_for(1s);  // some steps
  ASSERT_EQ(kill(rank_1, SIGSTOP), 0);
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.cause, ChildExit::Cause::ended);
  EXPECT_EQ(exit.code, 5) << exit.last_words;
  EXPECT_NE(exit.last_words.find("rank 1"), std::string::npos) << exit.last_words;
}

}  // namespace
}  // namespace penstock
