// SPDX-License-Identifier: Apache-2.0
// Runs a program as a child in a separate process group and collects its output. The child always
// ends and is reaped: when it exits, after its timeout, on a stop request, or when this process
// dies.
//
// One thread makes and destroys the object, and must outlive the child, because the kernel ends a
// child when the thread that started it ends. Standard input is empty, unless the child shares the
// terminal of this process.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/machine/file_descriptor.h"

namespace penstock {

struct ChildCommand {
  std::vector<std::string> arguments;  ///< the program first; looked up in PATH if it has no slash
  Nanoseconds timeout = std::chrono::hours(24);
  /// Time from SIGINT to SIGTERM, and from SIGTERM to SIGKILL.
  Nanoseconds grace = std::chrono::seconds(5);
  bool show_stderr = false;  ///< pass on standard error while the child runs
  /// If set, receives standard output as it arrives, on a thread of the ChildProcess.
  /// ChildExit::output then stays empty.
  std::function<void(std::string_view)> on_output{};
  /// If not empty, the last argument is this text and the number of a pipe that the child inherits.
  /// Each line that the child writes there goes to `on_line`, on a thread of the ChildProcess.
  /// Lines longer than kMaxLine are dropped.
  std::string pipe_flag{};
  std::function<void(std::string_view)> on_line{};
  static constexpr std::size_t kMaxLine = 4096;
  /// Adds NAME=VALUE to the environment of this process, or replaces the value of NAME.
  std::vector<std::string> environment{};
  /// The child gets the standard streams of this process, and stays in its process group, so that
  /// the keys of a terminal reach both. No output is collected. Signals and deadlines concern the
  /// child alone, and the processes that it leaves behind go on.
  bool shares_terminal = false;
  std::function<void()> on_end{};  ///< called after its end, on a thread of the ChildProcess
};

struct ChildExit {
  enum class Cause : std::uint8_t { ended, timed_out, stopped };
  Cause cause = Cause::ended;
  int code = 0;             ///< valid if `signal` is 0
  int signal = 0;           ///< the signal that ended the child; 0: none
  std::string output;       ///< all of standard output, at most kMaxOutput
  bool output_cut = false;  ///< there was more output
  std::string last_words;   ///< the last lines of standard error

  /// "exited with code 3: cannot ...".
  std::string describe() const;
  static constexpr std::size_t kMaxOutput = std::size_t{64} << 20;
};

class ChildProcess {
 public:
  /// Starts the child. Throws Error if that fails.
  explicit ChildProcess(ChildCommand command);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  /// Stops the child.
  ~ChildProcess();

  pid_t pid() const noexcept { return pid_; }

  /// Blocks until the child has ended. A stop request stops the child.
  const ChildExit& wait(const std::stop_token& stop = {});
  /// Ends the child: sends SIGINT to its group, then SIGTERM, then SIGKILL. Blocks until it has
  /// ended.
  const ChildExit& stop();
  /// Sends a signal to the child, if it has not ended. Any thread may call it.
  void send(int signal) const noexcept;

 private:
  void follow(const std::stop_token& stop);
  void relay(const std::stop_token& stop);
  bool read_stream(std::size_t stream);
  void take_output(std::string_view text);
  void take_errors(std::string_view text);
  void take_lines(std::string_view text);
  void reap();

  /// What signals go to: the child's group, or the child alone.
  pid_t target() const noexcept { return command_.shares_terminal ? pid_ : -pid_; }

  const ChildCommand command_;
  pid_t pid_ = -1;
  EventFd wake_;
  FileDescriptor process_;
  std::array<FileDescriptor, 3> streams_;  // standard output, standard error, and lines
  std::string line_;                       // an incomplete line
  ChildExit exit_;
  std::jthread follower_;
};

/// True if execvp would find an executable file: a path, or a name in a folder of PATH.
bool can_start(const std::string& program);

}  // namespace penstock
