// SPDX-License-Identifier: Apache-2.0
// A producer as a child process: a shell command in a process group of its own. Whatever happens,
// the group ends: with this object, or with the thread that made it. The CPU time of all of the
// group is then that of this process's children (RUSAGE_CHILDREN).
//
// Its standard output goes to standard error, where it cannot mix with results; its input is empty.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace penstock {

class ProducerProcess {
 public:
  /// Starts `/bin/sh -c command`. Throws ConfigError when there is no room for another process.
  explicit ProducerProcess(std::string command);
  ProducerProcess(const ProducerProcess&) = delete;
  ProducerProcess& operator=(const ProducerProcess&) = delete;
  /// Asks the group to end (SIGTERM), ends what is left of it a second later (SIGKILL), and reaps.
  ~ProducerProcess();

  const std::string& command() const noexcept { return command_; }
  /// Readable once the command has ended.
  int fd() const noexcept { return fd_; }
  /// How the command ended: 0 is success. Empty while it runs.
  std::optional<int> status();
  /// "ended with status 3", "was ended by signal 9". Only once it has ended.
  std::string describe_end() const;
  /// Whether the command left processes behind that may still send.
  bool group_lives();

 private:
  std::string command_;
  pid_t pid_ = -1;
  int fd_ = -1;
  std::optional<int> wait_status_;
  bool group_gone_ = false;  // for good: its number may be another's since
};

}  // namespace penstock
