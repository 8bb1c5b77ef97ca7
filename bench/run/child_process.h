// SPDX-License-Identifier: Apache-2.0
// A program run as a child in a process group of its own, with all that it prints. Whatever
// happens, it ends and is reaped: on its own, after its timeout, when it is stopped, or when this
// process dies.
//
// Made and destroyed by one thread, which must outlive the child: the kernel ends a child with the
// thread that started it. Not for interactive programs: standard input is empty.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dataflow/clock.h"

namespace penstock {

struct ChildCommand {
  std::vector<std::string> arguments;  ///< the program first, looked up in PATH without a slash
  Nanoseconds timeout = std::chrono::hours(24);
  /// Between SIGINT and SIGTERM, and between that and SIGKILL.
  Nanoseconds grace = std::chrono::seconds(5);
  bool show_stderr = false;  ///< passes on what it says while it runs
  /// Where set, gets standard output as it comes, on a thread of the object; then ChildExit::output
  /// stays empty.
  std::function<void(std::string_view)> on_output{};
  /// Where not empty, the last argument is this and the number of a pipe that the child inherits:
  /// each line that it writes there goes to `on_line`, on a thread of the object. Lines that are
  /// longer than kMaxLine are left out.
  std::string pipe_flag{};
  std::function<void(std::string_view)> on_line{};
  static constexpr std::size_t kMaxLine = 4096;
  std::function<void()> on_end{};  ///< called once it has ended, on a thread of the object
};

struct ChildExit {
  enum class Cause : std::uint8_t { ended, timed_out, stopped };
  Cause cause = Cause::ended;
  int code = 0;             ///< where signal is 0
  int signal = 0;           ///< that ended it
  std::string output;       ///< all of standard output, at most kMaxOutput
  bool output_cut = false;  ///< there was more
  std::string last_words;   ///< the last lines of standard error

  /// "exited with code 3: cannot ...".
  std::string describe() const;
  static constexpr std::size_t kMaxOutput = std::size_t{64} << 20;
};

/// An open file, or none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int number = -1) noexcept : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int number() const noexcept { return number_; }
  int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_;
};

class ChildProcess {
 public:
  /// Starts it. Throws Error when it cannot be started.
  explicit ChildProcess(ChildCommand command);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  /// Stops it.
  ~ChildProcess();

  pid_t pid() const noexcept { return pid_; }

  /// Blocks until it has ended; a stop request stops it.
  const ChildExit& wait(const std::stop_token& stop = {});
  /// Asks it to end, with SIGINT to its group, then SIGTERM, then SIGKILL; blocks until it has
  /// ended.
  const ChildExit& stop();

 private:
  void follow(const std::stop_token& stop);
  void relay(const std::stop_token& stop);
  void take_output(std::string_view text);
  void take_errors(std::string_view text);
  void take_lines(std::string_view text);
  void reap();

  const ChildCommand command_;
  pid_t pid_ = -1;
  FileDescriptor process_, output_, errors_, lines_, wake_;
  std::string line_;  // begun
  ChildExit exit_;
  std::jthread follower_;
};

}  // namespace penstock
