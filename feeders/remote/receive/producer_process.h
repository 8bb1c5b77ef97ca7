// SPDX-License-Identifier: Apache-2.0
// Runs a producer as a child process: a shell command in a new process group. The group ends with
// this object, or with the thread that made it. The CPU time of the group then counts among that of
// this process's children (RUSAGE_CHILDREN).
//
// Its standard output goes to standard error, so that it does not mix with results. Its input is
// empty.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "dataflow/machine/file_descriptor.h"

namespace penstock::remote {

class ProducerProcess {
 public:
  /// Starts `/bin/sh -c command`. Throws ConfigError if the system cannot start a process.
  explicit ProducerProcess(std::string command);
  ProducerProcess(const ProducerProcess&) = delete;
  ProducerProcess& operator=(const ProducerProcess&) = delete;
  /// Asks the group, and processes of the command that left it, to end (SIGTERM), kills what is
  /// left up to a second later (SIGKILL), and reaps it.
  ~ProducerProcess();

  const std::string& command() const noexcept { return command_; }
  /// Readable once the command has ended.
  int fd() const noexcept { return end_.get(); }
  /// How the command ended: 0 is success. Empty while it runs.
  std::optional<int> status();
  /// "ended with status 3", "was ended by signal 9". Call only after it has ended.
  std::string describe_end() const;
  /// Whether processes of the command still run and may send.
  bool group_lives();

 private:
  std::vector<pid_t> outside_group() const;

  std::string command_;
  pid_t pid_ = -1;
  FileDescriptor end_;
  std::optional<int> wait_status_;
  bool group_gone_ = false;  // final: the group id may be reused
};

}  // namespace penstock::remote
