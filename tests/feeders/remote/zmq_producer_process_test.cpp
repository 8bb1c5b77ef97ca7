// SPDX-License-Identifier: Apache-2.0
// Producers that the zmq-consume feeder starts as child processes, and how they end.
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "dataflow/machine/file_descriptor.h"
#include "dataflow/machine/processes.h"
#include "feeders/remote/receive/producer_process.h"
#include "tests/feeders/remote/zmq_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class ZmqProducerProcess : public ZmqConsume {
 protected:
  ZmqProducerProcess() { EXPECT_EQ(mkfifo(pipe().c_str(), 0600), 0); }
  /// Where a producer writes the number of a process that it started.
  std::string pipe() const { return folder_.path().string() + "/pid"; }
  /// Opens that process. Blocks until the producer writes its number.
  FileDescriptor open_process() const {
    pid_t pid = 0;
    std::ifstream(pipe()) >> pid;
    return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  }
  static bool has_ended(const FileDescriptor& process, std::chrono::milliseconds limit) {
    pollfd ended{process.get(), POLLIN, 0};
    return poll(&ended, 1, static_cast<int>(limit.count())) == 1;
  }
  std::string command(const std::string& text) const {
    return "endpoint=" + endpoint() + ",producer='" + text + "'";
  }
};

TEST_F(ZmqProducerProcess, EndsWithTheFeederAndSoDoesWhatItStarted) {
  Consumer consumer(command("sleep 1000 & echo $! > " + pipe() + "; wait"));
  consumer.start();
  const FileDescriptor grandchild = open_process();
  ASSERT_TRUE(grandchild);
  EXPECT_FALSE(has_ended(grandchild, 0ms));
  consumer.destroy();
  EXPECT_TRUE(has_ended(grandchild, 20s));
}

/// A daemon has a session and a group of its own, and its parent may have ended.
TEST_F(ZmqProducerProcess, AProcessThatLeftItsGroupEndsWithTheFeeder) {
  const std::string commands[] = {"setsid sh -c \"trap : TERM; echo \\$\\$ > " + pipe() +
                                      "; while :; do sleep 1000; done\" & wait",
                                  "(setsid sleep 1000 & echo $! > " + pipe() + "); exit 0"};
  for (const std::string& text : commands) {
    SCOPED_TRACE(text);
    Consumer consumer(command(text));
    consumer.start();
    const FileDescriptor daemon = open_process();
    ASSERT_TRUE(daemon);
    EXPECT_FALSE(has_ended(daemon, 0ms));
    consumer.destroy();
    EXPECT_TRUE(has_ended(daemon, 20s));
    EXPECT_EQ(process_tree(getpid()).size(), 1U) << "a process that it started meanwhile goes on";
  }
}

/// A shell that is asked to end does not wait for its children.
TEST_F(ZmqProducerProcess, ItsCpuTimeIsOursWithThatOfAllThatItStarted) {
  const auto cpu_of_children = [] {
    rusage usage{};
    getrusage(RUSAGE_CHILDREN, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec);
  };
  const double before = cpu_of_children();
  Consumer consumer(command("(i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo $$ > " +
                            pipe() + "; exec sleep 1000) & wait"));
  consumer.start();
  open_process();  // when it has finished its work
  consumer.destroy();
  EXPECT_GT(cpu_of_children() - before, 0.02) << "200,000 rounds of a shell";
}

TEST_F(ZmqProducerProcess, AProducerThatIgnoresTheRequestToEndIsKilled) {
  Consumer consumer(
      command("trap \"\" TERM; echo $$ > " + pipe() + "; while true; do sleep 0.1; done"));
  const FileDescriptor child = open_process();
  ASSERT_TRUE(child);
  const auto asked = std::chrono::steady_clock::now();
  consumer.destroy();
  EXPECT_LT(std::chrono::steady_clock::now() - asked, 20s);
  EXPECT_TRUE(has_ended(child, 20s));
}

TEST_F(ZmqProducerProcess, AProducerThatFailsIsReportedWithItsStatus) {
  RunningConsumer consumer(command("exit 3"));
  const std::string text = thrown_by<DataError>([&] { consumer.next(); });
  EXPECT_TRUE(says(text, "producer 'exit 3' ended with status 3"));
}

TEST_F(ZmqProducerProcess, AProducerWhoseMessagesWereAllRefusedIsReportedWithThat) {
  for (const char* const more : {"", "credit=2,"}) {
    Consumer consumer(more + command("cat " + pipe() + "; exit 3"));
    zmq::context_t context;
    zmq::socket_t rubbish(context, more[0] == '\0' ? ZMQ_PUSH : ZMQ_DEALER);
    rubbish.connect(endpoint());
    rubbish.send(zmq::str_buffer("rubbish"));
    consumer.start();
    EXPECT_TRUE(await([&] { return consumer.counter("messages_rejected") > 0; }));
    std::ofstream(pipe()) << "and now it fails";
    const std::string text = thrown_by<DataError>([&] { consumer.next(); });
    EXPECT_TRUE(says(text, "ended with status 3"));
    EXPECT_TRUE(says(text, "1 messages were refused, the last: "));
  }
}

TEST_F(ZmqProducerProcess, AKilledProducerIsReportedWithTheSignal) {
  RunningConsumer consumer(command("kill -9 $$"));
  const std::string text = thrown_by<DataError>([&] { consumer.next(); });
  EXPECT_TRUE(says(text, "was ended by signal 9"));
}

TEST_F(ZmqProducerProcess, AProducerThatEndsWithoutABatchIsReported) {
  RunningConsumer consumer(command("true"));
  const std::string text = thrown_by<DataError>([&] { consumer.next(); });
  EXPECT_TRUE(says(text, "sent no batch"));
}

TEST_F(ZmqProducerProcess, ANormalEndAfterBatchesIsTheEndOfTheData) {
  Consumer consumer(command("true"));
  Producer producer(endpoint(), false);
  producer.send(message_of(kSmall, 0));
  consumer.start();
  EXPECT_EQ(consumer.next(), 0U);
  EXPECT_EQ(consumer.next(), std::nullopt);
}

TEST_F(ZmqProducerProcess, AllThatItStartedDiesWithAKilledProgram) {
  const pid_t program = fork();
  if (program == 0) {
    const remote::ProducerProcess producer("sleep 1000 & echo $! > " + pipe() + "; wait");
    pause();
    _exit(0);
  }
  const FileDescriptor grandchild = open_process();
  ASSERT_TRUE(grandchild);
  ASSERT_EQ(kill(program, SIGKILL), 0);
  EXPECT_TRUE(has_ended(grandchild, 20s));
  waitpid(program, nullptr, 0);
}

}  // namespace
}  // namespace penstock
