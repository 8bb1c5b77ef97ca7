// SPDX-License-Identifier: Apache-2.0
// Runs `penstock run --job-name ps|worker` as a user does: real processes over TCP, and what
// happens to all of them if one fails.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "bench/run/observe/progress.h"
#include "bench/run/processes/child_process.h"
#include "dataflow/net/certificate.h"
#include "tests/support/coloured_images.h"
#include "tests/support/patience.h"
#include "tests/support/reserved_port.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "trainer/backend.h"
#include "trainer/checkpoint.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

/// A run with this many servers and workers, each a child process.
class ParameterServerProgram : public ::testing::Test {
 protected:
  void name_tasks(int servers, int workers) {
    for (int i = 0; i < servers; ++i) ports_.emplace_back();
    for (const ReservedPort& port : ports_) add(ps_hosts_, port.number());
    for (int i = 0; i < workers; ++i) add(worker_hosts_, static_cast<std::uint16_t>(i + 1));
  }
  static void add(std::string& hosts, std::uint16_t port) {
    if (!hosts.empty()) hosts += ',';
    hosts += address(port);
  }
  static std::string address(std::uint16_t port) {
    return std::string("127.0.0.1:").append(std::to_string(port));
  }
  Words command(const std::string& job, int task) const {
    return {PENSTOCK_PROGRAM,          "run",
            "--job_name=" + job,       std::string("--task_index=").append(std::to_string(task)),
            "--ps_hosts=" + ps_hosts_, "--worker_hosts=" + worker_hosts_,
            "--timeout=" + timeout_,   "--rendezvous-timeout=20s"};
  }
  ChildCommand child(const std::string& job, int task, const Words& more) const {
    Words words = command(job, task);
    if (job == "worker") {
      const Words training{"--fake-location=gpu", "--model=trivial", "--batch-size=4",
                           "--num-warmup-batches=2"};
      words.insert(words.end(), training.begin(), training.end());
    }
    words.insert(words.end(), more.begin(), more.end());
    return {.arguments = words, .timeout = 50s};
  }
  ChildProcess& start(ChildCommand command) {
    children_.push_back(std::make_unique<ChildProcess>(std::move(command)));
    return *children_.back();
  }
  ChildProcess& start(const std::string& job, int task, const Words& more = {}) {
    return start(child(job, task, more));
  }
  /// Waits until a server of this test listens on the port.
  static bool await_server(const ReservedPort& port) {
    const std::string listens = fmt::format(" 0100007F:{:04X} 00000000:0000 0A ", port.number());
    return await([&] { return read_text("/proc/net/tcp").find(listens) != std::string::npos; });
  }
  std::filesystem::path out() const { return folder_.path() / "out.json"; }
  nlohmann::json result() const { return nlohmann::json::parse(read_text(out()), nullptr, false); }
  TempFolder folder_;
  std::string timeout_ = "20s", ps_hosts_, worker_hosts_;
  std::vector<ReservedPort> ports_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
};

TEST_F(ParameterServerProgram, AWorkerOnAGpuIsRefusedWithWhatToUse) {
  name_tasks(1, 1);
  for (const char* const update : {"parameter_server", "distributed_replicated", "byteps"}) {
    for (const char* const device : {"gpu", "GPU:replicas=2"}) {
      const ChildExit& exit =
          start("worker", 0,
                {std::string("--variable-update=") + update, std::string("--device=") + device})
              .wait();
      EXPECT_EQ(exit.code, 2) << exit.last_words;
      EXPECT_TRUE(says(exit.last_words,
                       "workers send gradients from the host's memory only; use "
                       "--device cpu or emulated"));
    }
  }
}

TEST_F(ParameterServerProgram, TwoServersAndThreeWorkersGiveOneResultAndEndByThemselves) {
  for (const std::string update :
       {"parameter_server", "parameter_server:sync=tf", "distributed_replicated", "byteps"}) {
    SCOPED_TRACE(update);
    ports_.clear();
    ps_hosts_.clear();
    worker_hosts_.clear();
    children_.clear();
    name_tasks(2, 3);
    const Words more{"--variable_update=" + update, "--device=emulated:img_per_s=400",
                     "--num-batches=20"};
    for (const int task : {0, 1}) start("ps", task);
    for (const int task : {1, 2}) start("worker", task, more);
    Words first = more;
    first.push_back("--json");
    ChildProcess& worker = start("worker", 0, first);
    const ChildExit& exit = worker.wait();
    ASSERT_EQ(exit.code, 0) << exit.last_words;
    for (const auto& child : children_) {
      EXPECT_EQ(child->wait().code, 0) << child->wait().last_words;
      EXPECT_EQ(child->wait().cause, ChildExit::Cause::ended);
    }
    const nlohmann::json measured = nlohmann::json::parse(exit.output);
    EXPECT_EQ(measured["config"]["num_processes"], 3);
    EXPECT_EQ(measured["images_per_step"], 12);
    ASSERT_EQ(measured["ranks"].size(), 3U);
    EXPECT_EQ(measured["step_ms"].size(), 20U);
    const double rate = measured["img_per_s"];
    EXPECT_GT(rate, 0);
    EXPECT_LT(rate, 1201);
  }
}

TEST_F(ParameterServerProgram, TheTableSaysWhetherWorkersWait) {
  name_tasks(1, 1);
  for (const OptionSpec& option : find_entry(update_table(), "parameter_server").options) {
    if (option.name != "sync") continue;
    for (const OptionValue& value : option.values) {
      children_.clear();
      start("ps", 0);
      const std::string name(value.name);
      const ChildExit& exit = start("worker", 0,
                                    {"--variable-update=parameter_server:sync=" + name,
                                     "--num-batches=5", "--device=emulated:img_per_s=400"})
                                  .wait();
      EXPECT_EQ(exit.code, 0) << name << ": " << exit.last_words;
      EXPECT_TRUE(says(exit.output, name == "false" ? "Sync:        False" : "Sync:        True"));
      EXPECT_EQ(children_.front()->wait().code, 0) << name;
    }
  }
}

/// Worker 0 gets a batch each 10 ms and worker 1 each 80 ms, so worker 0 ends long before.
TEST_F(ParameterServerProgram, WorkersThatDoNotWaitCountWhileAllTrain) {
  name_tasks(1, 2);
  const std::string loader = folder_ / "paced.py";
  std::ofstream(loader) << "import os, time\n"
                           "def make():\n"
                           "    pixels = memoryview(bytearray(4*8*8*3)).cast('B', [4, 8, 8, 3])\n"
                           "    while True:\n"
                           "        time.sleep(float(os.environ['PACE']))\n"
                           "        yield pixels, [0, 1, 2, 3]\n";
  const auto worker = [&](int task, const char* pace, const Words& more) {
    Words words{"env", std::string("PACE=") + pace};
    const Words known = command("worker", task);
    const Words training{"--loader=" + loader + ":make",
                         "--model=trivial",
                         "--variable-update=parameter_server:sync=false",
                         "--device=emulated:img_per_s=4000",
                         "--num-warmup-batches=2",
                         "--num-batches=20"};
    for (const Words* part : {&known, &training, &more}) {
      words.insert(words.end(), part->begin(), part->end());
    }
    return ChildCommand{.arguments = words, .timeout = 50s};
  };
  start("ps", 0);
  start(worker(1, ".08", {}));
  const ChildExit& exit = start(worker(0, ".01", {"--json"})).wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const nlohmann::json measured = nlohmann::json::parse(exit.output);
  ASSERT_EQ(measured["ranks"].size(), 2U);
  EXPECT_GE(measured["facts"]["steps_outside_window"].get<double>(), 1);
  EXPECT_LT(measured["window_s"].get<double>(), measured["ranks"][1]["window_s"].get<double>());
  EXPECT_GT(measured["img_per_s"].get<double>(),
            1.1 * 2 * measured["ranks"][1]["img_per_s"].get<double>());
}

TEST_F(ParameterServerProgram, SaysTheRuleAndCountsStaleness) {
  if (match_entry(backend_table(), "cpu") == nullptr) GTEST_SKIP() << "built without oneDNN";
  name_tasks(1, 2);
  const Words more{"--variable-update=parameter_server",
                   "--cross_replica_sync=false",
                   "--device=cpu",
                   "--compute-threads=1",
                   "--model=lenet",
                   "--num-batches=10"};
  start("ps", 0);
  start("worker", 1, more);
  Words first = more;
  first.push_back("--json");
  const ChildExit& exit = start("worker", 0, first).wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(says(exit.last_words, "applies each worker's gradients on arrival"));
  const nlohmann::json measured = nlohmann::json::parse(exit.output);
  std::int64_t updates = 0;
  for (const auto& [name, count] : measured["counters"].items()) {
    if (name.starts_with("updates_stale_by_")) updates += count.get<std::int64_t>();
  }
  EXPECT_EQ(updates, 24);  // of both workers, with warm-up
}

TEST_F(ParameterServerProgram, AnEpochOfRealDataIsOneHoweverManyWorkersShareIt) {
  if (match_entry(backend_table(), "cpu") == nullptr) GTEST_SKIP() << "built without oneDNN";
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "it trains on --device cpu, and gcc's OpenMP is not instrumented";
#endif
  write_coloured_images(folder_, "train", 4, 10);
  const Words data{"--variable-update=parameter_server",
                   "--fake-location=queue:crop=full,repeat_cached_sample=true",
                   "--data-dir=" + (folder_.path() / "train").native(),
                   "--model=trivial_cifar10",
                   "--image-size=8",
                   "--device=cpu",
                   "--compute-threads=1",
                   "--num-warmup-batches=0",
                   "--num-epochs=1.2",
                   "--piecewise-learning-rate-schedule=0.02;0.5;0.2;1;0",
                   "--json"};
  Words alone{PENSTOCK_PROGRAM, "run", "--num-gpus=2"};
  alone.insert(alone.end(), data.begin(), data.end());
  alone.emplace_back("--batch-size=2");
  const ChildExit& one = start(ChildCommand{.arguments = alone, .timeout = 50s}).wait();
  ASSERT_EQ(one.code, 0) << one.last_words;
  name_tasks(1, 2);
  Words worker = data;
  worker.emplace_back("--batch-size=2");
  start("ps", 0);
  start("worker", 1, worker);
  const ChildExit& exit = start("worker", 0, worker).wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const nlohmann::json result = nlohmann::json::parse(exit.output);
  EXPECT_EQ(result["examples_per_epoch"], 40);
  const auto losses = result["losses"].get<std::vector<double>>();
  const auto expected = nlohmann::json::parse(one.output)["losses"].get<std::vector<double>>();
  ASSERT_EQ(expected.size(), 12U);  // 40 images, 4 per step
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-4) << i;
}

struct SavedUpdate {
  friend void PrintTo(const SavedUpdate& saved, std::ostream* out) { *out << saved.update; }
  const char* name;
  const char* update;
  const char* optimizer;
  int workers;
};
/// Workers that learn four colours, and their servers.
class ParameterServerTraining : public ParameterServerProgram,
                                public ::testing::WithParamInterface<SavedUpdate> {
 protected:
  ParameterServerTraining() {
    write_coloured_images(folder_, "data/train", 4, 10);
    write_coloured_images(folder_, "data/val", 4, 3);
  }
  Words data(const std::string& name, int steps) const {
    return {std::string("--optimizer=") + GetParam().optimizer,
            "--fake-location=queue",
            "--data-dir=" + (folder_ / "data/train").string(),
            "--train-dir=" + (folder_ / name).string(),
            "--model=lenet",
            "--image-size=8",
            "--classes=4",
            "--batch-size=2",
            "--num-warmup-batches=0",
            "--init-learning-rate=0.002",
            "--device=cpu",
            "--compute-threads=1",
            "--order=strict",
            "--feeder-threads=1",
            "--json",
            fmt::format("--num-batches={}", steps)};
  }
  /// The result of worker 0.
  nlohmann::json train(const std::string& name, int steps, const Words& more = {}) {
    ports_.clear();
    ps_hosts_.clear();
    worker_hosts_.clear();
    children_.clear();
    name_tasks(2, GetParam().workers);
    Words words = data(name, steps);
    words.push_back(std::string("--variable-update=") + GetParam().update);
    words.insert(words.end(), more.begin(), more.end());
    for (const int task : {0, 1}) start("ps", task);
    for (int task = GetParam().workers - 1; task > 0; --task) start("worker", task, words);
    const ChildExit& exit = start("worker", 0, words).wait();
    for (const auto& child : children_) {
      EXPECT_EQ(child->wait().code, 0) << child->wait().last_words;
    }
    return nlohmann::json::parse(exit.output, nullptr, false);
  }
  std::string checkpoint(const std::string& name, int step) const {
    return read_text(checkpoint_path(folder_ / name, step));
  }
};

TEST_P(ParameterServerTraining, ResumedEqualsUninterruptedAndEvaluatesAsOneProcess) {
  if (match_entry(backend_table(), "cpu") == nullptr) GTEST_SKIP() << "built without oneDNN";
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "it trains on --device cpu, and gcc's OpenMP is not instrumented";
#endif
  const nlohmann::json whole = train("whole", 7, {"--eval-during-training-every-n-steps=7"});
  train("parts", 3, {"--save-model-steps=2"});
  const nlohmann::json rest = train("parts", 7);
  EXPECT_EQ(rest["step_ms"].size(), 4U);
  ASSERT_FALSE(checkpoint("whole", 7).empty());
  EXPECT_EQ(checkpoint("parts", 7), checkpoint("whole", 7));
  EXPECT_FALSE(checkpoint("parts", 2).empty());
  ASSERT_EQ(whole["evaluations"].size(), 1U);
  EXPECT_EQ(whole["evaluations"][0]["images"], 12);
  if (std::string(GetParam().update).ends_with("staged=true")) return;  // evaluates older weights
  Words alone{PENSTOCK_PROGRAM, "run", "--eval"};
  const Words same = data("whole", 7);
  alone.insert(alone.end(), same.begin(), same.end());
  const ChildExit& exit = start(ChildCommand{.arguments = alone, .timeout = 50s}).wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const nlohmann::json evaluated = nlohmann::json::parse(exit.output);
  EXPECT_EQ(evaluated["evaluations"][0]["step"], 7);
  EXPECT_EQ(evaluated["evaluations"][0]["top_1_accuracy"],
            whole["evaluations"][0]["top_1_accuracy"]);
}

// Updates on arrival have the same bits in each run only with one worker.
INSTANTIATE_TEST_SUITE_P(
    All, ParameterServerTraining,
    ::testing::Values(SavedUpdate{"Together", "parameter_server", "momentum", 2},
                      SavedUpdate{"Staged", "parameter_server:staged=true", "adam", 2},
                      SavedUpdate{"OnArrival", "parameter_server:sync=false", "adam", 1},
                      SavedUpdate{"BytePs", "byteps", "momentum", 2}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(ParameterServerProgram, AnEvaluationMayTakeLongerThanTheTimeout) {
  timeout_ = "3s";
  name_tasks(1, 2);
  const Words more{"--variable-update=parameter_server",
                   "--fake-location=host",
                   "--device=emulated:img_per_s=40",
                   "--num-batches=4",
                   "--eval-during-training-every-n-steps=2",
                   "--eval-batch-size=16",
                   "--num-eval-batches=10",
                   "--json"};
  ChildProcess& server = start("ps", 0);
  ChildProcess& other = start("worker", 1, more);
  const ChildExit& exit = start("worker", 0, more).wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_EQ(server.wait().code, 0) << server.wait().last_words;
  EXPECT_EQ(other.wait().code, 0) << other.wait().last_words;
  const nlohmann::json measured = nlohmann::json::parse(exit.output);
  ASSERT_EQ(measured["evaluations"].size(), 2U);
  EXPECT_GT(measured["evaluations"][0]["seconds"], 3.5);
  EXPECT_EQ(measured["step_ms"].size(), 4U);
}

TEST_F(ParameterServerProgram, TheFirstLossHasTheDecaysShareAlsoWhereWeightsAreStaged) {
  const auto first_loss = [&](const std::string& update) {
    ports_.clear();
    ps_hosts_.clear();
    worker_hosts_.clear();
    name_tasks(1, 1);
    start("ps", 0);
    const ChildExit& exit = start("worker", 0,
                                  {"--variable-update=" + update, "--device=cpu",
                                   "--compute-threads=1", "--image-size=32", "--weight-decay=0.5",
                                   "--num-warmup-batches=0", "--num-batches=1", "--json"})
                                .wait();
    EXPECT_EQ(exit.code, 0) << exit.last_words;
    return nlohmann::json::parse(exit.output)["losses"].at(0).get<double>();
  };
  const double loss = first_loss("parameter_server");
  EXPECT_NEAR(first_loss("parameter_server:staged=true"), loss, 1e-3 * loss);
}

TEST_F(ParameterServerProgram, WorkersWithOtherFlagsAreNamedBeforeAnythingIsMeasured) {
  name_tasks(1, 2);
  ChildProcess& server = start("ps", 0);
  start("worker", 1, {"--variable-update=byteps", "--num-batches=6"});
  const ChildExit& exit =
      start("worker", 0, {"--variable-update=byteps", "--num-batches=5"}).wait();
  EXPECT_EQ(exit.code, 2);
  EXPECT_TRUE(says(exit.last_words, "--num-batches=6"));
  EXPECT_EQ(server.wait().code, 5);
}

TEST_F(ParameterServerProgram, AWorkerThatNeverComesIsNamed) {
  name_tasks(2, 2);
  const Words more{"--variable-update=parameter_server", "--num-batches=5",
                   "--rendezvous-timeout=3s"};
  ChildProcess& server = start("ps", 0);
  ASSERT_TRUE(await_server(ports_[0]));
  ChildProcess& worker = start("worker", 0, more);
  EXPECT_EQ(worker.wait().code, 5);
  EXPECT_TRUE(
      says(worker.wait().last_words, address(ports_[1].number()) +
                                         ") was lost while joining the other ranks: it did not "
                                         "join within 3 s"));
  EXPECT_EQ(server.wait().code, 5);
  EXPECT_TRUE(says(server.wait().last_words,
                   "worker task 0 (127.0.0.1:1) was lost while joining the "
                   "other ranks: it ended with exit code 5"));
}

TEST_F(ParameterServerProgram, AWorkerThatNeverComesIsNamedByTheServer) {
  name_tasks(1, 2);
  // The worker waits for its server.
  ChildProcess& worker =
      start("worker", 0, {"--variable-update=parameter_server", "--num-batches=5"});
  ChildProcess& server = start("ps", 0, {"--rendezvous-timeout=3s"});
  for (ChildProcess* child : {&server, &worker}) {
    EXPECT_EQ(child->wait().code, 5);
    EXPECT_TRUE(says(child->wait().last_words,
                     "worker task 1 (127.0.0.1:2) was lost while joining "
                     "the other ranks: it did not join within 3 s"));
  }
}

TEST_F(ParameterServerProgram, ATakenPortIsReportedAtTheStart) {
  ReservedPort taken;
  taken.listen();
  ps_hosts_ = address(taken.number());
  worker_hosts_ = "127.0.0.1:1";
  const ChildExit& exit = start("ps", 0).wait();
  EXPECT_EQ(exit.code, 2);
  EXPECT_TRUE(says(exit.last_words, "the port is taken by another process"));
}

TEST_F(ParameterServerProgram, FlagsThatContradictEachOtherAreRefused) {
  name_tasks(1, 1);
  EXPECT_TRUE(says(start("ps", 1).wait().last_words, "--task-index is 1"));
  EXPECT_EQ(start("ps", 1).wait().code, 2);
  EXPECT_TRUE(
      says(start("worker", 0, {"--variable-update=sma"}).wait().last_words, "has no servers"));
  EXPECT_EQ(start("controller", 0).wait().code, 2);
  ps_hosts_ = "0.0.0.0:2222";
  EXPECT_TRUE(says(start("ps", 0).wait().last_words, "insecure"));
  ps_hosts_ = "nobody.invalid:2222";
  EXPECT_TRUE(says(start("ps", 0).wait().last_words, "nobody.invalid"));
}

/// ZeroMQ drops messages that other programs send to a server.
TEST_F(ParameterServerProgram, StrangersDoNotDisturb) {
  name_tasks(1, 1);
  ChildProcess& server = start("ps", 0);
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  there.sin_port = htons(ports_[0].number());
  ASSERT_TRUE(await_server(ports_[0]));
  const FileDescriptor stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(stranger.get(), reinterpret_cast<sockaddr*>(&there), sizeof there), 0);
  const std::string words = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  EXPECT_GT(write(stranger.get(), words.data(), words.size()), 0);
  const ChildExit& exit =
      start("worker", 0, {"--variable-update=parameter_server", "--num-batches=5"}).wait();
  EXPECT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_EQ(server.wait().code, 0) << server.wait().last_words;
}

struct Fault {
  friend void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }
  const char* name;
  std::size_t victim;  // 0: the server, 1 and 2: the workers
  int signal;
  const char* says;
};
class ParameterServerFault : public ParameterServerProgram,
                             public ::testing::WithParamInterface<Fault> {};

TEST_P(ParameterServerFault, EndsAllInTimeAndSavesWhatWasMeasured) {
  timeout_ = "4s";
  name_tasks(1, 2);
  const Words more{"--variable-update=parameter_server", "--device=emulated:img_per_s=80",
                   "--num-batches=100000", "--display-every=1"};
  start("ps", 0);
  Words first = more;
  first.push_back("--out=" + out().native());
  ChildCommand watched = child("worker", 0, first);
  std::promise<void> measures;
  std::once_flag once;
  watched.pipe_flag = "--progress-fd=";
  watched.on_line = [&](std::string_view line) {
    const std::optional<Progress> progress = progress_from_line(line);
    if (!progress || progress->phase != "window" || progress->steps_done < 3) return;
    std::call_once(once, [&] { measures.set_value(); });
  };
  start(std::move(watched));
  start("worker", 1, more);
  ASSERT_EQ(measures.get_future().wait_for(40s), std::future_status::ready);
  ASSERT_EQ(kill(children_[GetParam().victim]->pid(), GetParam().signal), 0);
  const auto before = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if (i == GetParam().victim) continue;
    const ChildExit& exit = children_[i]->wait();
    EXPECT_EQ(exit.code, 5) << i << ": " << exit.last_words;
    EXPECT_TRUE(says(exit.last_words, GetParam().says)) << i << ": " << exit.last_words;
    EXPECT_TRUE(says(exit.last_words, "while training, at step ")) << i << ": " << exit.last_words;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - before, 30s);
  kill(children_[GetParam().victim]->pid(), SIGKILL);
  if (GetParam().victim == 1) return;  // this worker saves the result
  const nlohmann::json saved = result();
  ASSERT_TRUE(saved.is_object());
  EXPECT_EQ(saved["status"], "partial");
  EXPECT_GE(saved["step_ms"].size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(
    All, ParameterServerFault,
    ::testing::Values(Fault{"ServerKilled", 0, SIGKILL, ": its connection closed"},
                      Fault{"ServerStopped", 0, SIGSTOP, ": silent for 4."},
                      Fault{"WorkerKilled", 2, SIGKILL, "worker task 1 (127.0.0.1:2) was lost"},
                      Fault{"WorkerStopped", 2, SIGSTOP, "worker task 1 (127.0.0.1:2) was lost"},
                      Fault{"FirstWorkerKilled", 1, SIGKILL,
                            "worker task 0 (127.0.0.1:1) was lost"}),
    [](const auto& test) { return std::string(test.param.name); });

/// With keys, on addresses that other machines can reach.
class ParameterServerKeys : public ParameterServerProgram {
 protected:
  void SetUp() override {
    if (!net::has_curve()) GTEST_SKIP() << "this libzmq was built without CURVE";
    for (const char* const name : {"one", "two", "stranger"}) make_keys(folder_.path(), name);
    for (const char* const name : {"zero", "first"}) make_keys(folder_ / "workers", name);
    for (int i = 0; i < 2; ++i) {
      ports_.emplace_back();
      if (!ps_hosts_.empty()) ps_hosts_ += ',';
      ps_hosts_ += "0.0.0.0:" + ports_.back().text();
    }
    worker_hosts_ = address(1) + "," + address(2);
  }
  static void make_keys(const std::filesystem::path& folder, const std::string& name) {
    net::write_certificate(net::make_curve_keys(), folder, name);
  }
  std::string file(const std::string& name) const { return folder_ / name; }
  ChildProcess& start_server(int task, const std::string& name) {
    return start(
        "ps", task,
        {"--curve-secret=" + file(name + ".key_secret"), "--curve-allow=" + file("workers")});
  }
  ChildProcess& start_worker(int task, const std::string& secret, const std::string& servers,
                             const Words& more = {}) {
    Words words{"--variable-update=parameter_server", "--device=emulated:img_per_s=400",
                "--num-batches=5", "--curve-server-key=" + servers,
                "--curve-secret=" + file(secret + ".key_secret")};
    words.insert(words.end(), more.begin(), more.end());
    return start("worker", task, words);
  }
  std::string both() const { return file("one.key") + "," + file("two.key"); }
};

TEST_F(ParameterServerKeys, AdmitTheClientsThatHaveThem) {
  start_server(0, "one");
  start_server(1, "two");
  start_worker(1, "workers/first", both());
  const ChildExit& exit = start_worker(0, "workers/zero", both(), {"--json"}).wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  for (const auto& child : children_) {
    EXPECT_EQ(child->wait().code, 0) << child->wait().last_words;
  }
}

/// Workers without a valid key get an error immediately, and do not disturb the others.
TEST_F(ParameterServerKeys, KeepStrangersOutWhileTheRunGoesOn) {
  ChildProcess& server = start_server(0, "one");
  ChildProcess& other = start_server(1, "two");
  const ChildExit& stranger = start_worker(0, "stranger", both()).wait();
  EXPECT_EQ(stranger.code, 2);
  EXPECT_TRUE(says(stranger.last_words, "does not accept the key of this side"));
  const ChildExit& mistaken = start_worker(0, "workers/zero", file("stranger.key")).wait();
  EXPECT_EQ(mistaken.code, 2);
  EXPECT_TRUE(says(mistaken.last_words, "--curve-server-key"));
  const ChildExit& plain =
      start("worker", 0, {"--variable-update=parameter_server", "--num-batches=5"}).wait();
  EXPECT_EQ(plain.code, 2);
  EXPECT_TRUE(says(plain.last_words, "only peers with CURVE keys"));
  start_worker(1, "workers/first", both());
  const ChildExit& exit = start_worker(0, "workers/zero", both()).wait();
  EXPECT_EQ(exit.code, 0) << exit.last_words;
  const ChildExit& served = server.wait();
  EXPECT_EQ(served.code, 0);
  // Each refused worker left as soon as a server had refused it.
  const std::string words = served.last_words + other.wait().last_words;
  EXPECT_TRUE(says(words, "refused 127.0.0.1: its key"));
  EXPECT_TRUE(says(words, " connections"));
}

TEST_F(ParameterServerKeys, OfTheWrongSideAreRefused) {
  const auto words_of = [](ChildProcess& child) {
    EXPECT_EQ(child.wait().code, 2);
    return child.wait().last_words;
  };
  const std::string secret = "--curve-secret=" + file("one.key_secret");
  EXPECT_TRUE(says(words_of(start("ps", 0, {secret, "--curve-server-key=" + file("two.key")})),
                   "which is for workers"));
  EXPECT_TRUE(says(words_of(start("worker", 0,
                                  {"--variable-update=parameter_server", secret,
                                   "--curve-allow=" + file("workers")})),
                   "which is for parameter servers"));
  const std::string three = both() + "," + file("stranger.key");
  EXPECT_TRUE(says(words_of(start_worker(0, "one", three)), "has 3 files, and --ps-hosts 2"));
}

}  // namespace
}  // namespace penstock
