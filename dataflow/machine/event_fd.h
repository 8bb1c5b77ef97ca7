// SPDX-License-Identifier: Apache-2.0
// Wakes threads that wait for file descriptors. Thread-safety: any thread.
#pragma once

#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"

namespace penstock {

class EventFd {
 public:
  /// Throws ConfigError if the process has no free file descriptor.
  EventFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!fd_) throw ConfigError(std::string("cannot open an eventfd: ") + std::strerror(errno));
  }
  /// Readable from signal() until drain(); without drain(), it wakes every later wait.
  int get() const noexcept { return fd_.get(); }
  void signal() const noexcept { eventfd_write(fd_.get(), 1); }
  void drain() const noexcept {
    eventfd_t count = 0;
    eventfd_read(fd_.get(), &count);
  }

 private:
  const FileDescriptor fd_;
};

}  // namespace penstock
