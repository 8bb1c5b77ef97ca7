// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/producer_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "dataflow/error.h"
#include "dataflow/machine/kernel_file.h"
#include "dataflow/machine/processes.h"

namespace penstock::remote {
namespace {

/// Milliseconds between SIGTERM and SIGKILL.
constexpr int kGrace = 1000;

/// Runs the command and exits with its status. If the thread that started this shell dies, the
/// kernel sends SIGUSR1, and the shell kills the whole process group. The command's own children
/// would not get that signal. SIGUSR2 is for the command's processes alone. The variable marks
/// processes that leave the group.
constexpr const char* kKeeper = R"(trap 'kill -KILL 0' USR1
PENSTOCK_STARTED=$$ /bin/sh -c "$1" &
trap '' USR2
wait $!
status=$?
trap - USR1
[ $status -gt 128 ] && kill -$((status - 128)) $$
exit $status)";

/// Runs in the child between fork and exec: only calls that are safe there.
[[noreturn]] void run_shell(const char* command, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGUSR1);
  if (getppid() != parent) _exit(127);  // the parent died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGPIPE, SIGXFSZ, SIGUSR1}) signal(number, SIG_DFL);
  if (const int empty = open("/dev/null", O_RDONLY); empty >= 0) dup2(empty, STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  execl("/bin/sh", "sh", "-c", kKeeper, "sh", command, nullptr);
  _exit(127);
}

}  // namespace

ProducerProcess::ProducerProcess(std::string command) : command_(std::move(command)) {
  // Become the parent of orphans of the command, so that their CPU time counts as that of our
  // children.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t parent = getpid();
  pid_ = fork_watched(end_);
  const std::string reason = end_ ? "" : std::strerror(errno);
  if (pid_ == 0) run_shell(command_.c_str(), parent);
  if (pid_ < 0) throw ConfigError("cannot start producer '{}': {}", command_, reason);
  setpgid(pid_, pid_);  // both processes call it, whichever is first
  if (end_) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  throw ConfigError("cannot watch producer '{}': {}; {}", command_, reason, kWatchAdvice);
}

ProducerProcess::~ProducerProcess() {
  if (group_lives()) kill(-pid_, SIGTERM);
  for (const pid_t each : outside_group()) kill(each, SIGTERM);
  if (!wait_status_) {
    pollfd ended{end_.get(), POLLIN, 0};
    poll(&ended, 1, kGrace);
  }
  // The first process is not reaped yet, or the group has others, so the group id is not reused.
  if (group_lives()) kill(-pid_, SIGKILL);
  // Orphans become our children.
  while (!(wait_status_ && group_gone_) && (waitpid(-pid_, nullptr, 0) > 0 || errno == EINTR)) {
  }
  // A process may have started another one before it was killed, so list them until there is none.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kGrace);
  for (std::vector<pid_t> outside = outside_group();
       !outside.empty() && std::chrono::steady_clock::now() < deadline; outside = outside_group()) {
    for (const pid_t each : outside) kill(each, SIGKILL);
    for (const pid_t each : outside) {
      while (waitpid(each, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
}

std::vector<pid_t> ProducerProcess::outside_group() const {
  const std::string mark = fmt::format("PENSTOCK_STARTED={}", pid_);
  std::vector<pid_t> found;
  for (const pid_t each : process_tree(getpid())) {
    if (each == getpid() || getpgid(each) == pid_) continue;
    const KernelFile environment(fmt::format("/proc/{}/environ", each));
    const std::string text = fmt::format("\0{}\0", environment.text);
    if (text.find(fmt::format("\0{}\0", mark)) != text.npos) found.push_back(each);
  }
  return found;
}

std::optional<int> ProducerProcess::status() {
  int status = 0;
  if (!wait_status_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    wait_status_ = status;
    static_cast<void>(group_lives());
  }
  return wait_status_;
}

std::string ProducerProcess::describe_end() const {
  const int status = wait_status_.value_or(0);
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

bool ProducerProcess::group_lives() {
  // Orphans that have ended stay in the group until they are reaped.
  while (wait_status_ && !group_gone_ && waitpid(-pid_, nullptr, WNOHANG) > 0) {
  }
  if (!group_gone_) group_gone_ = kill(-pid_, 0) != 0;
  return !group_gone_;
}

}  // namespace penstock::remote
