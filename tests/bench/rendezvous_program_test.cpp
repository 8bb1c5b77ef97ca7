// SPDX-License-Identifier: Apache-2.0
// Several `penstock run` that no MPI launcher starts: with the variables of torchrun and other
// launchers, and by hand. They train together over TCP, or end before they start.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/record/environment.h"
#include "tests/support/patience.h"
#include "tests/support/reserved_port.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"
#include "trainer/cluster/tcp/rendezvous.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

class Rendezvous : public ::testing::Test {
 protected:
  static Words penstock(const Words& more) {
    return joined({PENSTOCK_PROGRAM, "run", "--fake-location=gpu", "--model=trivial",
                   "--batch-size=8", "--num-warmup-batches=2"},
                  more);
  }
  static Words emulated(const Words& more) {
    return penstock(
        joined({"--device=emulated:img_per_s=400", "--num-batches=10", "--variable-update=horovod"},
               more));
  }
  /// What torchrun says, if its store had the port below this test's.
  Words torchrun(int rank, int ranks) const {
    const std::string local = std::to_string(rank), size = std::to_string(ranks);
    return {"RANK=" + local,
            "WORLD_SIZE=" + size,
            "LOCAL_RANK=" + local,
            "LOCAL_WORLD_SIZE=" + size,
            "MASTER_ADDR=127.0.0.1",
            "MASTER_PORT=" + std::to_string(port_.number() - 1),
            "TORCHELASTIC_RUN_ID=none",
            "TORCHELASTIC_RESTART_COUNT=0"};
  }

  void start(const Words& words, const Words& environment) {
    children_.push_back(std::make_unique<ChildProcess>(
        ChildCommand{.arguments = words, .timeout = 60s, .environment = environment}));
  }
  /// In place of the processes that were started before.
  void start_all(int ranks, const Words& words) {
    children_.clear();
    for (int rank = 0; rank < ranks; ++rank) start(words, torchrun(rank, ranks));
  }
  const ChildExit& exit_of(int rank) { return children_[rank]->wait(); }
  static ChildExit exit_of(const Words& words, const Words& environment) {
    ChildProcess child({.arguments = words, .timeout = 60s, .environment = environment});
    return child.wait();
  }
  void expect_codes(const std::vector<int>& codes) {
    for (std::size_t rank = 0; rank < codes.size(); ++rank) {
      const ChildExit& exit = exit_of(static_cast<int>(rank));
      EXPECT_EQ(exit.code, codes[rank]) << "rank " << rank << ": " << exit.last_words;
    }
  }
  /// Waits until rank 0 has measured some steps.
  bool await_steps() const {
    return await([&] {
      return read_text(folder_ / "result.steps.jsonl").find("\"step\":5") != std::string::npos;
    });
  }

  ReservedPort port_;
  TempFolder folder_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
};

TEST_F(Rendezvous, RanksOfTorchrunHaveOneTotal) {
  start_all(2, emulated({}));
  expect_codes({0, 0});
  EXPECT_TRUE(says(exit_of(0).output, "total images/sec"));
  EXPECT_TRUE(says(exit_of(0).output, "rank 1 on "));
  EXPECT_EQ(exit_of(1).output, "");
}

TEST_F(Rendezvous, RanksStartedByHandHaveOneResult) {
  for (int rank = 0; rank < 3; ++rank) {
    start(emulated({"--json", "--rendezvous=127.0.0.1:" + port_.text(), "--world-size=3",
                    "--rank=" + std::to_string(rank)}),
          {});
  }
  expect_codes({0, 0, 0});
  const Json result = Json::parse(exit_of(0).output);
  EXPECT_EQ(result["ranks"].size(), 3U);
  EXPECT_EQ(result["images_per_step"], 24);
  EXPECT_EQ(result["config"]["num_processes"], 3);
  EXPECT_GT(result["img_per_s"], 400);
  EXPECT_LT(result["img_per_s"], 1201);
}

TEST_F(Rendezvous, ASpecOfAlgorithmsGoesOverTcpAndUpdatesTrain) {
  for (const Words& more : {Words{"--all-reduce-spec=xring"}, Words{"--variable-update=async-sgd"},
                            Words{"--variable-update=parameter_server:placement=split"}}) {
    Words words =
        joined({"--device=cpu", "--model=trivial_cifar10", "--image-size=8", "--num-batches=5",
                "--compute-threads=1", "--fake-location=cpu", "--json"},
               more);
    start_all(2, penstock(words));
    expect_codes({0, 0});
    EXPECT_EQ(Json::parse(exit_of(0).output)["losses"].size(), 5U) << more[0];
  }
}

TEST_F(Rendezvous, AllReducesAreMeasuredOverTcp) {
  for (const char* const rank : {"0", "1"}) {
    start({PENSTOCK_PROGRAM, "allreduce", "--model=lenet", "--algorithm=ring,shared-memory",
           "--num-iters=2", "--json", "--rendezvous=127.0.0.1:" + port_.text(), "--world-size=2",
           "--rank", rank},
          {});
  }
  expect_codes({0, 0});
  EXPECT_TRUE(says(exit_of(0).output, "\"ranks_are\":\"processes\""));
  const ChildExit refused = exit_of({PENSTOCK_PROGRAM, "allreduce"}, {"RANK=0", "WORLD_SIZE=2"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(says(refused.last_words, "nothing says where they meet"));
}

TEST_F(Rendezvous, FilesOfARunAreOfRank0OrOfEachRank) {
  const std::string folder = folder_.path().native();
  start_all(2, emulated({"--trace-file=" + folder + "/one.json"}));
  expect_codes({0, 0});
  EXPECT_TRUE(says(exit_of(0).last_words, "one.json gets the steps of rank 0 only"));
  start_all(2, emulated({"--trace-file=" + folder + "/each{rank}.json",
                         "--out=" + folder + "/result{rank}.json"}));
  expect_codes({0, 0});
  for (const char* const name : {"one", "each0", "each1", "result0", "result1"}) {
    EXPECT_TRUE(Json::accept(read_text(folder + "/" + name + ".json"))) << name;
  }
  const Json own = Json::parse(read_text(folder + "/result1.json"));
  EXPECT_EQ(own["images_per_step"], 8) << "the figures of rank 1 alone";
  EXPECT_NEAR(own["rate"].get<double>() / own["sustained_rate"].get<double>(), 1, 0.2);
}

TEST_F(Rendezvous, ARestartedJobSaysSo) {
  for (int rank = 0; rank < 2; ++rank) {
    Words variables = torchrun(rank, 2);
    variables.back() = "TORCHELASTIC_RESTART_COUNT=3";
    start(emulated({"--json"}), variables);
  }
  expect_codes({0, 0});
  EXPECT_TRUE(says(exit_of(0).output, "the launcher has restarted this job 3 times"));
}

/// A loader whose batches take `delay_ms` longer on rank 1.
std::string loader_with_delay(const TempFolder& folder, double delay_ms) {
  const std::string file = (folder.path() / "loader.py").native();
  std::ofstream(file) << R"(
import os, time

def make():
    delay_s = ()" << delay_ms / 1e3
                      << R"() if os.environ["RANK"] == "1" else 0
    while True:
        time.sleep(delay_s)
        yield memoryview(bytes(8 * 4 * 4 * 3)).cast("B", (8, 4, 4, 3)), list(range(8))
)";
  return "--loader=" + file + ":make";
}

TEST_F(Rendezvous, ADelayInOneRanksLoaderIsFoundWithItsSize) {
  for (const double delay_ms : {25.0, 0.0}) {
    Words words{PENSTOCK_PROGRAM,
                "run",
                "--json",
                "--device=emulated:img_per_s=800",
                "--model=trivial",
                "--loop=sync",
                "--num-warmup-batches=5",
                "--num-batches=60",
                "--variable-update=horovod",
                "--out=" + (folder_.path() / "result{rank}.json").native(),
                loader_with_delay(folder_, delay_ms)};
    start_all(3, words);
    expect_codes({0, 0, 0});
    const Json result = Json::parse(exit_of(0).output);
    const Json skew = result.at("rank_skew");
    if (delay_ms == 0) {
      EXPECT_TRUE(skew.at("culprit") == "none" || skew.at("delay_percent") < 2) << skew.dump();
      continue;
    }
    EXPECT_EQ(skew.at("culprit"), "rank") << skew.dump();
    EXPECT_EQ(skew.at("rank"), 1);
    EXPECT_NEAR(skew.at("delay_ms").get<double>(), delay_ms, 0.1 * delay_ms);
    EXPECT_FALSE(says(result.at("notes").dump(), "the loader keeps up")) << "of rank 0 alone";
    EXPECT_NEAR(skew.at("more_work_ms").get<double>(), delay_ms, 0.1 * delay_ms);
    EXPECT_NEAR(result.at("ranks")[1].at("batch_ready").at("p50_ms").get<double>(), delay_ms,
                0.1 * delay_ms);
    // The other ranks' own records are compared step by step.
    const std::string folder = folder_.path().native();
    const ChildExit together = exit_of(
        {PENSTOCK_PROGRAM, "report", folder + "/result1.json", folder + "/result2.json"}, {});
    EXPECT_EQ(together.code, 0) << together.last_words;
    EXPECT_TRUE(says(together.output, "Rank 1 on "));
    const ChildExit page =
        exit_of({PENSTOCK_PROGRAM, "report", "--format=html", folder + "/result0.json"}, {});
    EXPECT_TRUE(says(page.output, "makes the others wait for its input"));
  }
}

TEST_F(Rendezvous, ARankThatNeverComesIsNamedOnAll) {
  const Words words = emulated({"--timeout=0.5s"});
  start(words, torchrun(0, 3));
  start(words, torchrun(2, 3));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(exit_of(i).code, 5);
    EXPECT_TRUE(says(exit_of(i).last_words, "rank 1 of 3 did not come to 127.0.0.1:"));
  }
}

TEST_F(Rendezvous, AKilledRankIsNamedAndEndsAll) {
  const std::string result = (folder_.path() / "result.json").native();
  start_all(3, penstock({"--device=emulated:img_per_s=40", "--variable-update=horovod",
                         "--num-batches=100000", "--timeout=4s", "--out=" + result}));
  ASSERT_TRUE(await_steps());
  kill(children_[1]->pid(), SIGKILL);
  for (const int rank : {0, 2}) EXPECT_EQ(exit_of(rank).code, 5) << exit_of(rank).last_words;
  const std::string& said = exit_of(0).last_words;
  EXPECT_TRUE(says(said, "penstock: rank 1 (host "));
  EXPECT_TRUE(says(said, "was lost while measuring"));
  EXPECT_TRUE(says(said, "its connection closed; results of rank 0 so far are in " + result));
}

TEST_F(Rendezvous, ARankThatFailsOrIsStoppedEndsAll) {
  const Words endless{"--device=emulated:img_per_s=400", "--variable-update=horovod",
                      "--num-batches=1000000"};
  start(penstock(endless), torchrun(0, 2));
  start(penstock(joined(endless, {"--momentum=0.5"})), torchrun(1, 2));
  expect_codes({2, 2});
  EXPECT_TRUE(says(exit_of(0).last_words, "ranks were started differently"));

  const std::string out = (folder_ / "result.json").native();
  start_all(2, penstock(joined(endless, {"--out=" + out})));
  ASSERT_TRUE(await_steps());
  children_[1]->send(SIGINT);
  expect_codes({130, 130});
  EXPECT_TRUE(says(exit_of(0).last_words, "rank 0 ends, because rank 1 has ended"));
  const Json result = Json::parse(read_text(out), nullptr, false);
  ASSERT_FALSE(result.is_discarded());
  EXPECT_EQ(result["status"], "partial");
  EXPECT_GE(result["step_ms"].size(), 5U);
}

/// The test is rank 1, which says hello and nothing more.
TEST_F(Rendezvous, OneSignalEndsARankThatWaitsForTheFirstExchange) {
  start(emulated({"--timeout=20s"}), torchrun(0, 2));
  tcp::Connection rank_1;
  ASSERT_TRUE(await([&] {
    rank_1 = tcp::Connection(liveness::FrameSocket::connect("127.0.0.1:" + port_.text(), 1s));
    return rank_1.is_open();
  }));
  const Environment environment = read_environment();
  const tcp::Hello hello{.rank = 1,
                         .size = 2,
                         .pid = getpid(),
                         .job = "none",
                         .host = "elsewhere",
                         .identity = "elsewhere",
                         .program = environment.version + " (" + environment.revision + ")"};
  const Time deadline = std::chrono::steady_clock::now() + 10s;
  ASSERT_TRUE(rank_1.send({tcp::Message::Kind::hello, to_text(hello)}, deadline));
  std::optional<tcp::Message> welcome;
  ASSERT_TRUE(await([&] { return (welcome = rank_1.receive()).has_value(); }));
  ASSERT_EQ(welcome->kind, tcp::Message::Kind::welcome) << welcome->body;
  children_[0]->send(SIGINT);
  EXPECT_EQ(exit_of(0).code, 130);
  EXPECT_TRUE(says(exit_of(0).last_words, "the run was stopped while its ranks met at 127.0.0.1"));
}

TEST_F(Rendezvous, SeveralProcessesThatCannotMeetEndBeforeTheyStart) {
  const std::pair<Words, std::string> cases[] = {
      {{"PMI_RANK=0", "PMI_SIZE=2"},
       "PMI_RANK says that this is rank 0 of 2 processes that mpiexec started, and nothing says "
       "where they meet"},
      {{"RANK=1", "WORLD_SIZE=2"}, "RANK says that this is rank 1 of 2"},
      {{"JOB_COMPLETION_INDEX=0"}, "JOB_COMPLETION_INDEX says that this is rank 0 of several"},
      {{"FLUX_TASK_RANK=1", "FLUX_JOB_SIZE=2"}, "FLUX_TASK_RANK"}};
  for (const auto& [variables, said] : cases) {
    const ChildExit exit = exit_of(emulated({}), variables);
    EXPECT_EQ(exit.code, 2);
    EXPECT_EQ(exit.output, "");
    EXPECT_TRUE(says(exit.last_words, said));
    EXPECT_TRUE(says(exit.last_words, "--rendezvous HOST:PORT"));
    EXPECT_TRUE(says(exit.last_words, "--alone"));
    for (const char* const verb : {"sweep", "isolate", "selftest"}) {
      const ChildExit other = exit_of({PENSTOCK_PROGRAM, verb}, {"RANK=0", "WORLD_SIZE=2"});
      EXPECT_EQ(other.code, 2) << verb;
      EXPECT_TRUE(says(other.last_words, std::string(verb) + " measures in one"));
    }
  }
}

TEST_F(Rendezvous, AloneMeansOneProcess) {
  const Words variables{"RANK=1", "WORLD_SIZE=2"};
  const ChildExit run = exit_of(emulated({"--alone"}), variables);
  EXPECT_EQ(run.code, 0) << run.last_words;
  EXPECT_TRUE(says(run.output, "total images/sec"));
  const ChildExit sweep =
      exit_of({PENSTOCK_PROGRAM, "sweep", "--alone", "--fake-location=gpu", "--repetitions=1",
               "--device=emulated:img_per_s=400", "--num-gpus=1", "--num-batches=5",
               "--model=trivial", "--batch-size=8", "--out=" + folder_.path().native()},
              variables);
  EXPECT_EQ(sweep.code, 0) << sweep.last_words;
  const ChildExit both = exit_of(emulated({"--alone", "--rank=0"}), {});
  EXPECT_EQ(both.code, 2);
  EXPECT_TRUE(says(both.last_words, "leave out --rendezvous"));
}

TEST_F(Rendezvous, IncompleteFlagsAreRefused) {
  const auto refusal = [&](const Words& more) {
    const ChildExit exit = exit_of(emulated(more), {});
    EXPECT_EQ(exit.code, 2);
    return exit.last_words;
  };
  EXPECT_TRUE(says(refusal({"--rank=0"}), "give all of --rendezvous"));
  EXPECT_TRUE(says(refusal({"--rendezvous=host"}), "expected HOST:PORT"));
  EXPECT_TRUE(says(refusal({"--rank=2", "--world-size=2", "--rendezvous=a:1"}),
                   "--rank is 2 and the number of processes is 2"));
  EXPECT_TRUE(says(refusal({"--rank=1", "--world-size=2"}), "nothing says where they meet"));
}

}  // namespace
}  // namespace penstock
