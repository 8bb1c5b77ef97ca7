// SPDX-License-Identifier: Apache-2.0
// A stop request for threads that wait for file descriptors.
//
// Thread-safety: send from any thread.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "dataflow/error.h"

namespace penstock {

/// An eventfd: readable for ever once it was signalled.
class StopSignal {
 public:
  /// Throws ConfigError where the process is out of file descriptors.
  StopSignal() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) throw ConfigError(std::string("cannot open an eventfd: ") + std::strerror(errno));
  }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal() { close(fd_); }
  void send() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
  }
  int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

}  // namespace penstock
