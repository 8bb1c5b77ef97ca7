// SPDX-License-Identifier: Apache-2.0
// Servers and workers that do not fit, do not come, are lost, or lack keys.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <mutex>
#include <optional>

#include "bench/run/observe/progress.h"
#include "dataflow/net/certificate.h"
#include "tests/bench/parameter_server_program.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

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
  // A server ends, too: its workers will not come.
  for (const auto& [flag, why] : {std::pair{"--variable-update=replicated", "has no servers"},
                                  {"--model=resnet5", "did you mean"},
                                  {"--extend-window=true", "windows have to be equally long"},
                                  {"--fp16-vars=true", "parameter servers hold them in 32"}}) {
    for (const char* const job : {"ps", "worker"}) {
      const ChildExit& exit = start(job, 0, {flag}).wait();
      EXPECT_EQ(exit.code, 2) << job << flag;
      EXPECT_TRUE(says(exit.last_words, why)) << exit.last_words;
    }
  }
  ps_hosts_ = "0.0.0.0:2222";
  EXPECT_TRUE(says(start("ps", 0).wait().last_words, "insecure"));
  ps_hosts_ = "nobody.invalid:2222";
  EXPECT_TRUE(says(start("ps", 0).wait().last_words, "nobody.invalid"));
}

/// ZeroMQ drops messages that other programs send to a server.
TEST_F(ParameterServerProgram, StrangersDoNotDisturb) {
  name_tasks(1, 1);
  ChildProcess& server = start("ps", 0);
  const sockaddr_in there = loopback(ports_[0].number());
  ASSERT_TRUE(await_server(ports_[0]));
  const FileDescriptor stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(stranger.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there), 0);
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
  ChildCommand watched = child("worker", 0, joined(more, {"--out=" + out().native()}));
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
    return start("worker", task,
                 joined({"--variable-update=parameter_server", "--device=emulated:img_per_s=400",
                         "--num-batches=5", "--curve-server-key=" + servers,
                         "--curve-secret=" + file(secret + ".key_secret")},
                        more));
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
