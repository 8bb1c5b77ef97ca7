// SPDX-License-Identifier: Apache-2.0
#include "bench/run/processes/child_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>

#include "dataflow/error.h"
#include "tests/support/patience.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

ChildCommand shell(const std::string& script) {
  return {.arguments = {"/bin/sh", "-c", script}, .timeout = 30s, .grace = 5s};
}

/// Is the process reaped, and its number not reused?
bool is_gone(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

/// Does a process that is not our child end within half a minute?
bool ends(pid_t pid) {
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return errno == ESRCH;
  pollfd file{process.get(), POLLIN, 0};
  return poll(&file, 1, 30000) == 1;
}

pid_t number_in(const std::string& text) {
  pid_t pid = 0;
  std::from_chars(text.data(), text.data() + text.size(), pid);
  return pid;
}

TEST(ChildProcess, HandsOverAllOutputAndTheCode) {
  ChildProcess child(shell("head -c 3000000 /dev/zero | tr '\\0' x; echo oops >&2; exit 7"));
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.cause, ChildExit::Cause::ended);
  EXPECT_EQ(exit.code, 7);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_EQ(exit.output, std::string(3000000, 'x'));
  EXPECT_FALSE(exit.output_cut);
  EXPECT_EQ(exit.last_words, "oops");
  EXPECT_EQ(exit.describe(), "exited with code 7; it said: oops");
  EXPECT_TRUE(is_gone(child.pid()));
}

TEST(ChildProcess, AddsToTheEnvironmentAndReplacesItsValues) {
  ChildCommand command = shell("echo $HOME $PENSTOCK_CHILD_TEST; echo \"$PATH\"");
  command.environment = {"HOME=/nowhere", "PENSTOCK_CHILD_TEST=a=b"};
  ChildProcess child(command);
  EXPECT_EQ(child.wait().output, std::string("/nowhere a=b\n") + getenv("PATH") + "\n");
}

TEST(ChildProcess, MayShareTheTerminalOfThisProcess) {
  // Its process group and its standard output are those of this process.
  const std::string script = "test $(ps -o pgid= $$) = $(ps -o pgid= " + std::to_string(getpid()) +
                             ") && test /proc/$$/fd/1 -ef /proc/" + std::to_string(getpid()) +
                             "/fd/1 && kill -USR1 $$";
  ChildCommand command = shell(script);
  command.shares_terminal = true;
  ChildProcess child(command);
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.signal, SIGUSR1) << exit.describe();
  EXPECT_EQ(exit.output, "");
}

TEST(ChildProcess, PassesASignalToTheChildAlone) {
  ChildCommand command = shell("trap 'exit 9' USR2; while :; do :; done");
  command.shares_terminal = true;
  ChildProcess child(command);
  // A shell that has not set its trap yet dies of the signal: that is a signal to the child, too.
  child.send(SIGUSR2);
  const ChildExit& exit = child.wait();
  EXPECT_TRUE(exit.code == 9 || exit.signal == SIGUSR2) << exit.describe();
  child.send(SIGUSR2);  // after its end it does nothing
}

TEST(ChildProcess, AStoppedChildThatSharesTheTerminalEndsAlone) {
  const auto before = signal(SIGINT, SIG_DFL);  // a background job ignores it, and so would a child
  ChildCommand command = shell("while :; do :; done");
  command.shares_terminal = true;
  ChildProcess child(command);
  const ChildExit& exit = child.stop();
  signal(SIGINT, before);
  EXPECT_EQ(exit.cause, ChildExit::Cause::stopped);
  EXPECT_EQ(exit.signal, SIGINT);
}

TEST(ChildProcess, KnowsWhatCanBeStarted) {
  EXPECT_TRUE(can_start("sh"));
  EXPECT_TRUE(can_start("/bin/sh"));
  for (const char* program : {"", "/", "/bin", "/etc/passwd", "no-such-program", "./sh"}) {
    EXPECT_FALSE(can_start(program)) << program;
  }
}

TEST(ChildProcess, OutputMayGoToAListenerInstead) {
  std::string heard;
  ChildCommand command = shell("echo one; echo two");
  command.on_output = [&](std::string_view text) { heard += text; };
  ChildProcess child(std::move(command));
  const ChildExit& exit = child.wait();
  EXPECT_EQ(heard, "one\ntwo\n");
  EXPECT_TRUE(exit.output.empty());
}

TEST(ChildProcess, LinesOfAnInheritedPipeComeOneByOne) {
  std::vector<std::string> lines;
  // The shell's last argument, besides $0, is the flag with the number of the pipe.
  ChildCommand command = shell(
      "pipe=/dev/fd/${1#--lines=}; echo one > $pipe; printf 'two\\nthr' > $pipe; echo ee > $pipe; "
      "head -c 5000 /dev/zero | tr '\\0' x > $pipe; echo > $pipe; echo last > $pipe; echo $#");
  command.arguments.emplace_back("sh");
  command.pipe_flag = "--lines=";
  command.on_line = [&](std::string_view line) { lines.emplace_back(line); };
  ChildProcess child(std::move(command));
  EXPECT_EQ(child.wait().output, "1\n");
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two", "three", "last"}));
}

TEST(ChildProcess, KeepsTheLastOfManyWords) {
  ChildProcess child(shell("yes noise | head -c 1200000 >&2; echo the end >&2"));
  const std::string words = child.wait().last_words;
  EXPECT_LE(words.size(), 8000U);
  EXPECT_TRUE(words.starts_with("noise\n")) << words;
  EXPECT_TRUE(words.ends_with("noise\nthe end")) << words;
}

TEST(ChildProcess, CutsOutputWithoutEnd) {
  ChildProcess child(shell("yes x | head -c 70000000"));
  const ChildExit& exit = child.wait();
  EXPECT_TRUE(exit.output_cut);
  EXPECT_EQ(exit.output.size(), ChildExit::kMaxOutput);
  EXPECT_EQ(exit.code, 0);
}

TEST(ChildProcess, HasNoInput) {
  ChildProcess child(shell("cat; echo done"));
  EXPECT_EQ(child.wait().output, "done\n");
}

TEST(ChildProcess, SignalsAreNamed) {
  ChildProcess child(shell("kill -SEGV $$"));
  EXPECT_EQ(child.wait().signal, SIGSEGV);
  EXPECT_TRUE(says(child.wait().describe(), "signal 11"));
}

TEST(ChildProcess, MissingProgramsAreNamed) {
  EXPECT_EQ(thrown_by<Error>([] { ChildProcess({.arguments = {"/no/such/program"}}); }),
            "cannot start '/no/such/program': No such file or directory");
}

TEST(ChildProcess, IsInterruptedAfterItsTimeout) {
  EXPECT_TRUE(with_patience([](std::chrono::milliseconds timeout) {
    ChildCommand command = shell("trap 'echo interrupted; exit 3' INT; echo up; sleep 1000 & wait");
    command.timeout = timeout;
    ChildProcess child(std::move(command));
    const ChildExit& exit = child.wait();
    EXPECT_EQ(exit.cause, ChildExit::Cause::timed_out);
    EXPECT_TRUE(is_gone(child.pid()));
    if (!exit.output.starts_with("up\n")) return false;
    EXPECT_EQ(exit.output, "up\ninterrupted\n");
    EXPECT_EQ(exit.code, 3);
    return true;
  }));
}

TEST(ChildProcess, IsKilledWhenItDoesNotListen) {
  EXPECT_TRUE(with_patience([](std::chrono::milliseconds timeout) {
    ChildCommand command = shell("trap '' INT TERM; echo deaf; exec sleep 1000");
    command.timeout = timeout;
    command.grace = 50ms;
    ChildProcess child(std::move(command));
    const bool was_deaf = child.wait().output == "deaf\n";
    EXPECT_TRUE(!was_deaf || child.wait().signal == SIGKILL);
    EXPECT_TRUE(is_gone(child.pid()));
    return was_deaf;
  }));
}

TEST(ChildProcess, AStopRequestEndsTheWait) {
  std::stop_source stop;
  ChildProcess child(shell("exec sleep 1000"));
  std::jthread requester([&] { stop.request_stop(); });
  const ChildExit& exit = child.wait(stop.get_token());
  EXPECT_EQ(exit.cause, ChildExit::Cause::stopped);
  EXPECT_EQ(exit.signal, SIGINT);
  EXPECT_TRUE(is_gone(child.pid()));
}

TEST(ChildProcess, ListensToInterruptsEvenIfThisProcessIgnoresThem) {
  const auto before = signal(SIGINT, SIG_IGN);
  ChildProcess child(shell("exec sleep 1000"));
  EXPECT_EQ(child.stop().signal, SIGINT);
  signal(SIGINT, before);
}

TEST(ChildProcess, DoesNotOutliveItsObject) {
  pid_t pid = 0;
  {
    const ChildProcess child(shell("exec sleep 1000"));
    pid = child.pid();
    EXPECT_FALSE(is_gone(pid));
  }
  EXPECT_TRUE(is_gone(pid));
}

TEST(ChildProcess, LeavesNothingOfItsGroupBehind) {
  ChildProcess child(shell("sleep 1000 & echo $!"));
  const pid_t left_behind = number_in(child.wait().output);
  ASSERT_GT(left_behind, 0);
  EXPECT_TRUE(ends(left_behind));
}

TEST(ChildProcess, TellsWhenItEnded) {
  std::stop_source ended;
  ChildCommand command = shell("exit 4");
  command.on_end = [&] { ended.request_stop(); };
  ChildProcess child(std::move(command));
  child.wait();
  EXPECT_TRUE(ended.stop_requested());
}

TEST(ChildProcess, DoesNotOutliveAKilledParent) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    ChildProcess child(shell("exec sleep 1000"));
    const pid_t pid = child.pid();
    static_cast<void>(!write(pipe_ends[1], &pid, sizeof pid));
    kill(getpid(), SIGKILL);
  }
  const FileDescriptor from_parent(pipe_ends[0]);
  close(pipe_ends[1]);
  pid_t orphan = 0;
  ASSERT_EQ(read(from_parent.get(), &orphan, sizeof orphan), static_cast<ssize_t>(sizeof orphan));
  EXPECT_TRUE(ends(orphan));
  int status = 0;
  EXPECT_EQ(waitpid(parent, &status, 0), parent);
}

}  // namespace
}  // namespace penstock
